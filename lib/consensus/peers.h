/*
 * The links between replicas: one connection out to each peer, for what we send, and one in
 * from each, for what it sends.
 *
 * Frames with a length in front, after a greeting that says which cluster and which member
 * speaks; TLS, mutual if so configured. A link that cannot be had is tried again, at intervals
 * that grow to half a second, and at once when that peer calls; frames for it are lost
 * meanwhile, as raft allows. What does not begin with a greeting is closed after a few seconds.
 */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "base/url.h"
#include "consensus/join.h"
#include "loop/resolve.h"
#include "loop/stream.h"

struct peers;

struct peers_ops {
        /* A frame from member @id; borrowed. Returns 0, or -EBADMSG to end the link. */
        int (*frame)(void *userdata, uint64_t id, struct view frame);
        /* There is a new link to member @id: what was sent on the one before may be lost. NULL:
         * nobody wants to know. */
        void (*up)(void *userdata, uint64_t id);
        /* The link from member @id broke. */
        void (*down)(void *userdata, uint64_t id);
        /* One that wants to join asks which member has @url, and who the others are (join.h).
         */
        void (*who)(void *userdata, const char *url, struct joined *ret);
};

struct peers_config {
        uint64_t cluster_id, member_id;
        const char *listen_urls;             /* joined by commas */
        struct tls *tls_server, *tls_client; /* NULL: plaintext; borrowed */
};

must_check_ int peers_new(struct peers **ret, struct loop *l, struct resolver *rv,
                          const struct peers_config *cfg, const struct peers_ops *ops,
                          void *userdata, char *err, size_t err_size);
struct peers *peers_free(struct peers *p);
DEFINE_CLEANUP(struct peers *, peers_free)

/* Keeps a link to member @id at @url, and to no other URL of it. */
must_check_ int peers_add(struct peers *p, uint64_t id, const char *url);

/* Ends the links to those for which @wanted is false, once they speak to us no more: until then
 * they may have to be told that they were removed. */
void peers_sweep(struct peers *p, bool (*wanted)(void *userdata, uint64_t id));

/* Queues a frame; it is dropped where there is no link, or where too much waits for it. */
void peers_send(struct peers *p, uint64_t id, struct view frame);

/* How many bytes more should be queued for that link now; 0: there is none, or much waits. */
size_t peers_room(const struct peers *p, uint64_t id);

/* Ends all links, for good, and listens no more: the replica behind them stops. This, as all
 * above and peers_free(), may be called from inside of a frame: what is left of what that link
 * has read is dropped. */
void peers_stop(struct peers *p);
