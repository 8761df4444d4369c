/*
 * The cluster version: which formats and commands are in force in a core.
 *
 * It is a number of the replicated state. A program behaves at each version that it knows as
 * the first release with that version did, so that replicas of two releases can work together
 * (I13). What a newer version adds is written only once all members can read it, and an
 * operator, or time, has said that none of them goes back.
 */
#pragma once

#include <stdint.h>

enum cluster_version {
        CLUSTER_0_1 = 1,
        CLUSTER_0_2, /* CMD_VERSION and CMD_DESCEND, and what they say in a snapshot */
        CLUSTER_NEWEST = CLUSTER_0_2,
};

/* "0.2"; "unknown" if it is newer than this program. */
const char *cluster_version_name(uint32_t version);
