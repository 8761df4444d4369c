/* What the files of client/ share. Not for others. */
#pragma once

#include <bsd/sys/queue.h>

#include "base/rnd.h"
#include "client/claim.h"
#include "client/client.h"
#include "client/endpoint.h"
#include "client/pace.h"
#include "client/world.h"
#include "wire/pb.h"

#define RENEWALS_MAX 64
#define RENEWALS 2 /* streams of them on an endpoint: the second beside one that is stuck */

/* A keep-alive stream. */
struct renewals {
        struct peer *peer;
        struct rpc_call *call;               /* NULL: none */
        struct boot_time sent[RENEWALS_MAX]; /* send times not answered yet, oldest first */
        size_t n;
        bool answered; /* anything, so far */
};

/* An endpoint and the keep-alive streams on it. */
struct peer {
        struct client *client;
        struct endpoint *ep;
        struct renewals renewals[RENEWALS];
        size_t renewing;  /* the one that is used */
        uint64_t cluster; /* that answers on this connection; 0: no answer yet */
        uint64_t told;    /* another cluster than ours, which was logged */
        char ours_at[80]; /* the address where ours answered last; "": it never did */
        bool replaced;    /* another cluster answers there now */
};

/* One unary call. Owns itself until `done`. */
struct unary {
        struct client *client;
        struct peer *peer;
        uint64_t op; /* the operation it belongs to; a late answer to an older one is dropped */
        struct boot_time sent_at;
        const ProtobufCMessageDescriptor *type;
        void *reply; /* unpacked; owned */
        int unread;  /* why there is none: a negative errno */
        void (*done)(struct unary *u, enum rpc_code code, const char *message);
};

/* A service of this node, wanted or to be taken back. */
struct offer {
        TAILQ_ENTRY(offer) entry;
        struct service_record record;
        bool wanted;
        bool stored;    /* what the core has under our lease is this */
        bool under_way; /* so will it be, when the call under way comes back */
};
TAILQ_HEAD(offer_list, offer);

/* What this node says of itself and of its services: as it should be, and as the core has it.
 */
struct offers {
        struct offer_list list;
        size_t n;
        bool known;            /* all that there is has been offered */
        int64_t lease;         /* that `stored` is about */
        int64_t resumed_lease; /* under which an earlier life of ours may have put some */
        uint64_t op;           /* the call under way; late answers to older ones are dropped */
        bool calling;
        struct boot_time retry_at; /* a call may begin; or one under way is given up */
        struct pace pace;
        uint64_t self_version, self_sent, self_stored; /* of our node's record */
};

/* Endpoints by DNS; `name` is empty where they are listed. */
struct discovery {
        char name[256];
        bool tls, failed;
        struct resolve_query *query;
        char *urls; /* owned; what DNS said last */
        struct boot_time at;
        nsec_t retry;
};

struct client {
        struct loop *loop;
        struct resolver *resolver;
        char *user, *password; /* owned */
        struct endpoint_login login;
        struct tls *tls; /* borrowed */
        const struct client_ops *ops;
        void *userdata;
        char *cluster, *prefix; /* "/tenure/<cluster>/" */
        struct node_record self;
        bool observe;
        struct rnd rnd;
        struct peer peers[CLIENT_ENDPOINTS_MAX];
        size_t n_peers;
        size_t current; /* the endpoint that answered last */
        struct loop_hook hook;
        struct boot_time heard_at;
        uint64_t replica; /* member id of who answered last */

        struct world world;
        struct boot_time world_told_at;
        unsigned worlds_untold; /* since then */
        struct session session;
        enum session_state told;
        char why[512];
        uint64_t hold_op;
        char leaving[32];
        struct claim claim;
        struct {
                struct node_record record;
                int64_t lease, mod_revision;
        } holder;              /* of our name, when we last registered; lease 0: nobody */
        int64_t old_lease;     /* of an incarnation of ours whose place we took */
        int64_t registered_at; /* the revision of our key; 0: an earlier life wrote it */

        struct offers offers;
        struct discovery discovery;

        struct membership members;
        struct services services;
        struct rpc_call *watch;
        bool ranging, asking, creating, synced;
        struct boot_time answer_by; /* of the range, the question, or the watch, under way */
        struct buf range_from;      /* the key with which the next page of the range begins */
        int64_t range_revision;     /* of which its pages are; 0: the first one is to come */
        int64_t page;               /* keys of one */
        int64_t floor;              /* what was known when the question was asked */
        int64_t progress;           /* the core has said that nothing came up to it */
        uint64_t view_op;
        size_t view_peer;
        struct boot_time view_retry_at;
        struct pace view_pace;
};

/* The endpoint to use, from number @from on, that is up; NULL when none is, and then those are
 * connected. */
struct peer *client_peer(struct client *c, size_t from);
/* ... and that is not silent. */
struct peer *client_speaking_peer(struct client *c, size_t from);

/* Begins a call; @done comes later, or never when it returns a negative errno. */
must_check_ int
client_call(struct peer *p, uint64_t op, const char *path, const ProtobufCMessage *m,
            const ProtobufCMessageDescriptor *reply_type,
            void (*done)(struct unary *u, enum rpc_code code, const char *message));

/* Endpoints of the list @urls instead of those that there are; what is in both goes on. */
void client_replace_peers(struct client *c, const char *urls);

/* discover.c. -ENOENT: @endpoints is no name for DNS. */
must_check_ int discover_init(struct client *c, const char *endpoints);
void discover_fini(struct client *c);
void discover_run(struct client *c, struct boot_time now);
struct boot_time discover_next(const struct client *c);

/* Says whose answer it is, before anything is done with it. After WORLD_NEW nothing of what was
 * known or held is left, and the answer is the first that counts. */
must_check_ enum world_word client_hear(struct client *c, struct peer *p,
                                        const Pb__ResponseHeader *h);

/* Every answer has one, of a revision that can be. */
bool client_header_is_sane(const Pb__ResponseHeader *h);

/* It is known to be of another cluster, and not listened to. */
bool client_is_foreign(const struct client *c, const struct peer *p);

/* The answer came from who is ours: that endpoint is the one to use. */
void client_heard(struct client *c, struct peer *p, const Pb__ResponseHeader *h);

/* What was known, and held, is void; @why is for a person. */
void client_begin_world(struct client *c, const Pb__ResponseHeader *h, const char *why);

/* hold.c: carries out what the session wants. */
void hold_run(struct client *c, struct boot_time now);
struct boot_time hold_next(const struct client *c);
void hold_peer_down(struct client *c, struct peer *p);
/* Renewals were sent there that are not answered yet. */
bool hold_waits_for(const struct peer *p);
void hold_own_key(const struct client *c, struct buf *key);
void hold_time(char text[static 32]); /* now, for people */

/* offer.c: keeps what this node says in the core. */
void offer_init(struct offers *o, int64_t resumed_lease);
void offer_fini(struct offers *o);
void offer_run(struct client *c, struct boot_time now);
struct boot_time offer_next(const struct client *c);

/* view.c: keeps the membership current. */
void view_run(struct client *c, struct boot_time now);
/* The replica that it is followed at is of no use, for @why: on to another one. */
void view_move(struct client *c, const char *why);
/* All that is known is void: begins with a range. */
void view_restart(struct client *c);
/* Ours seems to have gone back: asks it how far it is. */
void view_doubt(struct client *c);
struct boot_time view_next(const struct client *c);
