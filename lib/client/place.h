/*
 * What an agent leaves behind for its next life on the same boot: whose place it is, the lease,
 * and how long it is good for. A small text for people and for the agent, lines of KEY=value,
 * the last one a checksum; what a crash has cut off, or somebody has edited, is no place. Pure.
 */
#pragma once

#include "client/node_record.h"
#include "session/session.h"

struct place {
        char cluster[NODE_NAME_MAX + 1];
        char core[17];           /* the id of the core's cluster, in hex */
        char endpoint[320];      /* the URL that answered last, ... */
        char at[80];             /* ... and where that was: address:port */
        struct node_record self; /* without version and leaving */
        struct session_place session;
};

#define PLACE_BYTES_MAX 2048 /* less than a page: one write of it is whole, or not there */

void place_write(const struct place *p, struct buf *out);

/* Returns 0, or -EBADMSG. */
must_check_ int place_read(struct place *p, const void *bytes, size_t len);
