/*
 * How many bytes the quota counts for each thing that the state holds.
 *
 * Each replica checks a command against the quota in it when it applies the command, so these
 * numbers belong to the meaning of the log (I4, I13): they are the same in each version and on
 * each machine, whatever the size of the structs there. They are the sizes of the structs of
 * release 0.1.0 on a 64-bit machine, with the array slots that point to them and the overhead
 * of malloc(). The asserts fail when a struct takes much more, so that the quota still bounds
 * memory; then the struct has to shrink, since the numbers stay.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define CHARGE_KEY ((size_t) 104)       /* and its bytes */
#define CHARGE_VERSION ((size_t) 72)    /* and its value */
#define CHARGE_LEASE ((size_t) 168)     /* and its name */
#define CHARGE_OWNER ((size_t) 16)      /* of a lease, and the name of the user */
#define CHARGE_USER ((size_t) 88)       /* and the name and the hash of the password */
#define CHARGE_ROLE ((size_t) 48)       /* and its name */
#define CHARGE_USER_ROLE ((size_t) 24)  /* a role that a user has, and its name */
#define CHARGE_PERMISSION ((size_t) 72) /* and the two ends of its range */
#define CHARGE_CACHED ((size_t) 344)    /* a range that is cached, and its two ends */

/* A grant and a change of users are refused unless this much is left. */
#define CHARGE_GRANT ((size_t) 192) /* and the name */
#define CHARGE_AUTH ((size_t) 256)  /* and the command */

/* @type is charged as @charge; it takes at most half as much again. */
#define CHARGES(type, charge) \
        _Static_assert(2 * sizeof(type) <= 3 * (charge), "the quota counts too little for it")

/* Comes first in the structs of the state. It takes no room; but with TENURE_WIDER they are
 * larger, by about as much as the asserts allow, as if this were another version, or on another
 * machine. The simulator has a state machine that is built so beside its replicas
 * (tests/sim/wider.h). */
#ifdef TENURE_WIDER
#define WIDER uint64_t wider[5]
#else
#define WIDER _Static_assert(1, "")
#endif
