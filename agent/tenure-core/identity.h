/*
 * Which member of which cluster this replica is: as the data directory says, whatever the
 * settings are; for an empty one, as --initial-cluster says, or the members of the cluster that
 * this replica joins. A directory that cannot be this replica's is refused.
 */
#pragma once

#include "certificates.h"
#include "consensus/join.h"

struct identity {
        /* Borrowed, and set by the caller. */
        const struct options *options;
        struct options_cluster *cluster;
        const struct certificates *tls;
        struct loop *loop;
        struct resolver *resolver;
        struct disk *disk;
        bool again; /* the directory was found to be empty while the cluster has begun: it is
                     * emptied, and we join */

        struct admission admission;     /* while we join */
        uint64_t cluster_id, member_id; /* at first those of the settings */
        uint64_t directory;             /* its id; 0: it is empty */
        uint64_t ancestor;    /* the cluster from which ours was forced to descend; 0: none */
        struct joined joined; /* the members that the others named; empty: we do not join */
};

/* Finds out which member we are. @join: a fresh directory may be that of a member that others
 * have added, which asks them; runs the loop until one answers. Returns 0; -EINTR if we were
 * told to stop; or another negative errno. All but -EINTR were logged. */
must_check_ int identity_find(struct identity *id, bool join);

/* A replica that joined and ended before its first entry knows nobody, and nobody else could
 * reach it: it asks again. Returns as identity_find(). */
must_check_ int identity_find_again(struct identity *id, const struct replica *r);

/* Writes the members of a new cluster, or of the one that we join; their addresses are borrowed
 * from @id. Returns how many there are. */
size_t identity_members(const struct identity *id,
                        struct replica_peer members[static REPLICA_PEERS_MAX]);

/* replica_config.check: compares the members in the data directory with those of the settings.
 * Logs a difference that does no harm. If no list was given, our URL in @identity becomes the
 * one in the directory. */
must_check_ int identity_check(void *identity, const struct store_recovered *had,
                               struct store_error *err);
