/*
 * The links between replicas: one connection out to each peer, for the frames that we send, and
 * one in from each, for the frames that it sends.
 *
 * After a greeting that names the cluster and the member, each link carries frames, each
 * preceded by its length, of which the first introduces the sender (introduction.h); TLS is
 * always mutual. A link that cannot be made is retried, at the member's next URL and at
 * intervals that grow to half a second, and at once when that peer calls; frames for it are
 * lost meanwhile, as raft allows. A connection that does not begin with a greeting is closed
 * after a few seconds.
 *
 * Only members are accepted (peers_add()), each as itself (admission.h), with one link each: a
 * new one ends the one before once its first frame was accepted. A peer that is no longer a
 * member is notified of that on the link that it made.
 *
 * So peers can make us hold, for each member, an incomplete frame (80 MiB) and what is queued
 * for it (tx_max and a frame); and, for at most 5 s, 64 connections that are not a member's,
 * with 64 KiB each in addition to what TLS takes.
 */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "base/url.h"
#include "consensus/admission.h"
#include "consensus/introduction.h"
#include "consensus/join.h"
#include "loop/dial.h"

struct peers;

#define PEERS_CLAUSE 300

struct peers_ops {
        /* What we say first on a link to member @id; newest CLUSTER_0_1 or 0: nothing. */
        struct introduction (*introduction)(void *userdata, uint64_t id);
        /* The first frame on a link from member @id has arrived. This and `frame` return 0, or,
         * to end the link, -EBADMSG; -EPROTONOSUPPORT: the member is too old; -EKEYREJECTED: it
         * has another data directory than the recorded one; -EBUSY: the member's former link
         * ends as well; -EADDRINUSE: another process is the member. */
        int (*introduced)(void *userdata, uint64_t id, const struct introduction *in);
        /* A frame from member @id; borrowed. Introductions are not among them. */
        int (*frame)(void *userdata, uint64_t id, struct view frame);
        /* There is a new link to member @id: frames sent on the former one may be lost. */
        void (*up)(void *userdata, uint64_t id);
        /* The link from member @id was made, and its introduction accepted; or it broke. */
        void (*called)(void *userdata, uint64_t id);
        void (*down)(void *userdata, uint64_t id);
        /* A peer called as @id, which is not a member as far as we know. Returns the index of
         * the last change of the members, which is sent to the peer; 0: nothing is. */
        uint64_t (*strange)(void *userdata, uint64_t id);
        /* A replica that joins with @directory (0: it has none yet) asks which member has @url,
         * and who the others are (join.h). */
        void (*who)(void *userdata, const char *url, uint64_t directory, struct joined *ret);
        /* A replica with an empty directory asks to replace the member at @urls, which is named
         * @name; writes what is done about it to @out, a clause. */
        void (*replace)(void *userdata, const char *urls, const char *name,
                        char out[static PEERS_CLAUSE]);
};

struct peers_config {
        uint64_t cluster_id, member_id;
        uint64_t ancestor; /* the cluster from which ours was forced to descend; 0: none */
        const char *listen_urls;             /* joined by commas */
        struct tls *tls_server, *tls_client; /* for https://; borrowed */
        struct admission admission;
        size_t tx_full, tx_max; /* limits of what is queued for a link: of peers_room(), and of
                                 * peers_send(); 0: the defaults */
        nsec_t delay; /* for how long data may keep a link busy with a heartbeat behind it; 0:
                       * no matter */
};

must_check_ int peers_new(struct peers **ret, struct loop *l, struct resolver *rv,
                          const struct peers_config *cfg, const struct peers_ops *ops,
                          void *userdata);
struct peers *peers_free(struct peers *p);
DEFINE_CLEANUP(struct peers *, peers_free)

/* Listens, or stops listening: a replica without peers opens no port. Returns 0, or a negative
 * errno with *@err. */
must_check_ int peers_listen(struct peers *p, bool on, char *err, size_t err_size);

/* Member @id is at one of @urls (joined by commas): keeps a link to it, and accepts links from
 * it. Returns 0; -EPERM: the link would be in plaintext to another machine, which is not
 * allowed; or another negative errno. */
must_check_ int peers_add(struct peers *p, uint64_t id, const char *urls);

/* Ends the links to and from members that are not @wanted. */
void peers_sweep(struct peers *p, bool (*wanted)(void *userdata, uint64_t id));

/* Queues a frame. It is dropped if there is no link, or if too much is queued. */
void peers_send(struct peers *p, uint64_t id, struct view frame);

/* Whether there is a link to @id, as far as is known. */
bool peers_linked(const struct peers *p, uint64_t id);

/* How often links to the member broke, and how many frames were dropped. */
struct peers_losses {
        uint64_t downs, unsent;
};
struct peers_losses peers_losses(const struct peers *p, uint64_t id);

/* How many more bytes may be queued for that link now; 0: it is down, or as much is under way
 * as it carries within the `delay` of the settings. */
size_t peers_room(struct peers *p, uint64_t id);

/* Ends all links for good and stops listening, because the replica stops. Like all functions
 * above and peers_free(), this may be called from inside frame(); then the rest of what that
 * link has read is dropped. */
void peers_stop(struct peers *p);
