/* Shared by the files of member/; not for use elsewhere. */
#pragma once

#include <bsd/sys/queue.h>

#include "base/rnd.h"
#include "member/member.h"
#include "member/pace.h"
#include "member/place_claim.h"
#include "member/world.h"
#include "wire/pb.h"

#define RENEWALS_MAX 64
/* Streams of an endpoint: the second is for when the first is stuck, or on a connection that
 * takes no more calls. */
#define RENEWALS 2
#define FORMER_MAX 4

/* A keep-alive stream. */
struct renewals {
        struct peer *peer;
        struct rpc_call *call;               /* NULL: none */
        struct boot_time sent[RENEWALS_MAX]; /* send times not answered yet, oldest first */
        size_t n;
        bool answered; /* it has answered at least once */
};

/* An endpoint and the keep-alive streams on it. */
struct peer {
        struct member *member;
        size_t i; /* the endpoint's number */
        struct renewals renewals[RENEWALS];
        size_t renewing;   /* the index of the stream that is in use */
        uint64_t cluster;  /* the cluster that answers on this connection; 0: no answer yet */
        uint64_t ancestor; /* the one from which that descends; 0: none */
        uint64_t logged;   /* a foreign cluster that was logged */
        char ours_at[80];  /* the address where our cluster answered last; "": it never did */
        bool replaced;     /* another cluster answers at that address now */
};

/* One unary call. Owns itself until `done`. */
struct unary {
        struct member *member;
        struct peer *peer;
        uint64_t op; /* the operation it belongs to; a late answer to an older one is dropped */
        struct boot_time sent_at;
        const ProtobufCMessageDescriptor *type;
        void *reply; /* the unpacked answer; owned */
        int unread;  /* why there is none: a negative errno */
        void (*done)(struct unary *u, enum rpc_code code, const char *message);
};

/* A service of this node that is to be in the core, or to be removed from it. */
struct publication {
        TAILQ_ENTRY(publication) entry;
        struct service_record record;
        bool wanted;
        bool stored;      /* the core has this record, on our lease */
        bool under_way;   /* the call under way writes or deletes the record */
        int64_t revision; /* the revision at which it was stored */
};
TAILQ_HEAD(publication_list, publication);

/* What this node publishes about itself and its services: what should be in the core, and what
 * is there. */
struct publications {
        struct publication_list list;
        size_t n;
        bool known;            /* the publications are complete */
        int64_t lease;         /* the lease to which `stored` refers */
        int64_t resumed_lease; /* the lease under which an earlier life of ours may have
                                * published */
        uint64_t op;           /* the call under way; late answers to older ones are dropped */
        bool calling;
        struct boot_time retry_at; /* when the next call may begin, or the present one is given
                                    * up */
        struct pace pace;
        uint64_t self_version, self_sent, self_stored; /* versions of our node's record: latest,
                                                        * sent, stored */
        int64_t self_revision;                         /* the revision at which it was stored */
        int64_t revision;                              /* the revision of the last answer */
        bool look; /* the watch reports that one of our keys has changed */
};

struct member {
        const struct member_ops *ops;
        void *shell;
        const struct member_events *events;
        void *userdata;
        struct boot_time now;   /* the time that the shell has passed in last */
        char *cluster, *prefix; /* "/tenure/<cluster>/" */
        struct node_record self;
        bool observe, no_view, sessions;
        struct rnd rnd;
        struct peer peers[MEMBER_ENDPOINTS_MAX];
        size_t n_peers;
        size_t current; /* the endpoint that answered last */
        struct boot_time heard_at;
        uint64_t replica; /* member id of the replica that answered last */

        struct world world;
        char shown[2 * 17]; /* to every core that we ask: our core and its ancestor, while we
                             * are in it; "": it has none */
        struct boot_time meet_at; /* when to show it to the other endpoints again */
        unsigned worlds;          /* how many worlds have begun after the first */
        struct boot_time world_logged_at;
        unsigned worlds_unlogged; /* since the last one that was logged */
        struct session session;
        enum session_state announced;
        char why[512];
        uint64_t lease_op;
        char leaving[32], leaving_note[LEAVING_NOTE_MAX + 1];
        struct claim claim;
        struct {
                struct node_record record;
                int64_t lease, mod_revision;
                bool ended; /* its lease has, and its key with it */
        } holder;           /* the holder of our name, or of our id under another name, when
                             * we last registered; lease 0: none */
        bool refused;       /* ... and that holder keeps it */
        struct {
                int64_t leases[FORMER_MAX]; /* of earlier lives of ours, whose places we take,
                                             * or may have taken: once we have ours they are
                                             * revoked, since their services are gone */
                size_t n;
                struct boot_time at; /* when to ask for that (again) */
        } former;
        int64_t registered_at; /* the revision of our key; 0: an earlier life wrote it */

        struct publications publications;

        struct membership members;
        bool has_alias; /* there may be a node with our id and another name among them */
        struct services services;
        struct rpc_call *watch;
        bool ranging, asking, creating, checking, synced;
        struct boot_time answer_by; /* for the range, the question or the watch that is under
                                     * way */
        bool caught_up;             /* while checking: the replica that is asked has caught up
                                     * as well */
        bool before_last; /* while checking: the node that is read is the one that changed
                             before the last */
        Pb__RangeResponse *range; /* owned: a page that is being read; NULL: none */
        size_t range_at;          /* its first key that was not read yet */
        int64_t told; /* the revision of the last event of a response of which more is to come;
                       * 0: there is none */
        struct boot_time size_logged_at; /* when a value that is too large was logged last */
        struct buf range_from;           /* the key at which the range's next page begins */
        bool paging;                     /* its first page has come */
        int64_t range_revision; /* the revision of all pages; 0: that of the first, which has
                                 * not come yet */
        int64_t followed; /* an earlier life announced what there was at this revision, which is
                           * read first; 0: none did, or it has been read */
        struct boot_time
                followed_until; /* when the core was last heard from before the watch began */
        int64_t live_from; /* later changes come as they happen, those up to it may be older */
        int64_t page;      /* the number of keys in a page ... */
        int64_t page_most; /* ... and the upper limit for it, in this range */
        int64_t floor;     /* the revision that was known when the question was
                            * asked */
        int64_t progress;  /* a revision up to which, according to the core, there are
                            * no more events */
        uint64_t view_op;
        size_t view_peer;
        struct boot_time view_retry_at;
        struct pace view_pace;
};

/* ---- the shell, see member_ops ---- */

static inline struct rpc_conn *peer_rpc(const struct peer *p)
{
        return p->member->ops->rpc(p->i, p->member->shell);
}

static inline void peer_kick(const struct peer *p)
{
        p->member->ops->kick(p->i, p->member->shell);
}

static inline void peer_want(const struct peer *p)
{
        p->member->ops->want(p->i, p->member->shell);
}

static inline void peer_hurry(const struct peer *p, nsec_t pace)
{
        p->member->ops->hurry(p->i, pace, p->member->shell);
}

static inline void peer_again(const struct peer *p)
{
        p->member->ops->again(p->i, p->member->shell);
}

static inline void peer_log_in_again(const struct peer *p)
{
        p->member->ops->log_in_again(p->i, p->member->shell);
}

static inline void peer_probe(const struct peer *p, nsec_t within)
{
        p->member->ops->probe(p->i, within, p->member->shell);
}

static inline void peer_suspect(const struct peer *p)
{
        p->member->ops->suspect(p->i, p->member->shell);
}

static inline bool peer_is_silent(const struct peer *p)
{
        return p->member->ops->is_silent(p->i, p->member->shell);
}

static inline const char *peer_name(const struct peer *p)
{
        return p->member->ops->name(p->i, p->member->shell);
}

static inline void member_soon(const struct member *m)
{
        m->ops->soon(m->shell);
}

static inline void peer_at(const struct peer *p, char *out, size_t size)
{
        p->member->ops->at(p->i, out, size, p->member->shell);
}

/* ---- member.c ---- */

/* Returns the first endpoint from number @from on that is up. If none is, connects them and
 * returns NULL. */
struct peer *member_peer(struct member *m, size_t from);
/* Like member_peer(), but skips silent endpoints. */
struct peer *member_speaking_peer(struct member *m, size_t from);

/* Begins a call; @done is called later, but never if this returns a negative errno. */
must_check_ int
member_call(struct peer *p, uint64_t op, const char *path, const ProtobufCMessage *m,
            const ProtobufCMessageDescriptor *reply_type,
            void (*done)(struct unary *u, enum rpc_code code, const char *message));

/* Decides which core an answer comes from; call it before using the answer. After WORLD_NEW,
 * everything that was known is void, and the place is lost; after WORLD_HEIR, the place may
 * still be held. In both cases this answer is the first that counts. */
must_check_ enum world_word member_hear(struct member *m, struct peer *p,
                                        const Pb__ResponseHeader *h);

/* Whether the endpoint is known to belong to another cluster, and is ignored. */
bool member_is_foreign(const struct member *m, const struct peer *p);

/* The answer came from our cluster, so this endpoint is the one to use. */
void member_heard(struct member *m, struct peer *p, const Pb__ResponseHeader *h);

/* Makes everything void that was known or held; @why is for operators. */
void member_begin_world(struct member *m, const Pb__ResponseHeader *h, const char *why);

/* lease_calls.c: carries out what the session decides. */
void lease_run(struct member *m, struct boot_time now);
struct boot_time lease_next(const struct member *m);
void lease_peer_down(struct member *m, struct peer *p);
/* Whether a renewal that was sent to @p is not answered yet. */
bool lease_waits_for(const struct peer *p);
/* A request has failed: tries another endpoint next. @what and @message are for the log. */
void lease_failed(struct member *m, const char *what, const char *message);
/* The TTL in an answer. A core that does not know about milliseconds has whole seconds only. */
nsec_t lease_answered_ttl(int64_t ms, int64_t seconds);
#define LEASE_FOREIGN "it is of another cluster"

/* registration.c: our node's key. */
void registration_own_key(const struct member *m, struct buf *key);
/* Begins to write our key, on the session's lease. Returns 0 or a negative errno. */
must_check_ int registration_begin(struct member *m, struct peer *p);
/* The membership has a new node, or one that has changed. */
void registration_see(struct member *m, const struct member_node *n);
/* Checks, by the membership, whether our key is still ours, and whether the holder of our name
 * still has it. */
void registration_check_key(struct member *m);
void registration_check_holder(struct member *m);
void registration_revoke_former(struct member *m, struct boot_time now);
struct boot_time registration_next(const struct member *m);
/* Writes our record if @compare holds; otherwise reads the key. @former: NULL, or the name of
 * the holder that has our id: its key is deleted in the same step, unless it has changed. That
 * comes after the put, by which readers know the reason (membership_put()). */
must_check_ int
registration_txn(struct member *m, struct peer *p, Pb__Compare *compare, const char *former,
                 void (*done)(struct unary *u, enum rpc_code code, const char *message));

/* publications.c: keeps this node's records in the core. */
void publications_init(struct publications *o, int64_t resumed_lease);
void publications_fini(struct publications *o);
void publications_run(struct member *m, struct boot_time now);
/* The core may have lost our records: writes all of them again. */
void publications_again(struct publications *o);
/* Our node's record was stored in the version that was sent last. */
void publications_self_stored(struct publications *o, int64_t revision);
struct boot_time publications_next(const struct member *m);

/* view.c: keeps the membership current. */
void view_run(struct member *m, struct boot_time now);
/* Follows the membership at another replica, because the present one is of no use, for @why. */
void view_move(struct member *m, const char *why);
/* Forgets everything that is known, and begins again with a range. */
void view_restart(struct member *m);
/* Our core seems to be at an earlier revision than it was: reads its revision. */
void view_doubt(struct member *m);
struct boot_time view_next(const struct member *m);
/* The revision for the place: what was announced, as far as a later life can read it. */
int64_t view_followed(const struct member *m);
