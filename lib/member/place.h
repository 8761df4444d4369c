/*
 * What an agent stores for its restart within the same boot: the node, the lease, and until
 * when the lease is held. It is a small text of lines KEY=value, the last of which is a
 * checksum; a text that was truncated by a crash, or edited, counts as no place. Pure.
 *
 * A key that is not known is skipped: a later version adds what earlier ones may ignore. If
 * they may not ignore it, it adds the line FORMAT=2, and this version refuses the text.
 */
#pragma once

#include "member/node_record.h"
#include "session/session.h"

struct place {
        char cluster[NODE_NAME_MAX + 1];
        char core[17];      /* the id of the core's cluster, in hex */
        char ancestor[17];  /* of the one from which that was forced to descend; "": none */
        char endpoint[320]; /* the URL that answered last, ... */
        char at[80];        /* ... and where that was: address:port */
        struct node_record self; /* without version and leaving */
        struct session_place session;
        int64_t followed; /* changes up to this revision were announced; 0: nobody knows */
};

#define PLACE_BYTES_MAX 2048 /* less than a page: one write stores all of it, or nothing */

void place_write(const struct place *p, struct buf *out);

/* Returns 0, -EBADMSG, or -ENOTSUP if the text is complete but of a later version. */
must_check_ int place_read(struct place *p, const void *bytes, size_t len);
