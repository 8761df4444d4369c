/* Hosts of a world, their endpoints, other cores to which these lead, and what they were told.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "base/buf.h"
#include "etcd/api.h"
#include "member/node_record.h"
#include "member/reach.h"
#include "session/session.h"

/* How many of each there may be. */
#define REPLICAS_MAX 5
#define STRANGERS 2 /* other cores, of one replica each */
#define NODES_MAX (REPLICAS_MAX + STRANGERS)
#define HOLDERS_MAX 8

struct world;
struct replica_node;
struct state;

struct span {
        nsec_t from, until;
};

struct parcel;
STAILQ_HEAD(parcels, parcel);

/* A connection, and what is under way on it. */
struct wire {
        LIST_ENTRY(wire) connected;
        struct rpc_conn *client,
                *server; /* NULL: not connected; or `server` alone: it is gone */
        unsigned to;
        struct api_turn turn, address; /* of it, at its server */
        struct parcels to_client, to_server;
        nsec_t last_in, last_out;        /* when the last parcel arrives */
        bool broken;                     /* ends when nobody is inside of it */
        bool client_dirty, server_dirty; /* there may be something to say */
        nsec_t *wake;                    /* set to 0 when there is something to do; or NULL */
        nsec_t late_until, deaf_from;    /* answers wait so long; and requests, from then on */
        bool breaks;                     /* ...and then but the first answer is lost */
        const struct span
                *cut; /* for a patient client: the times at which its link is cut. What does not
                         get through is sent again; NULL: the connection breaks instead */
};

struct holder_end {
        struct holder *holder;
        unsigned to;
        struct reach reach;
        struct wire wire;
        nsec_t connect_at;  /* an attempt comes to its end; NEVER: there is none */
        unsigned astray_to; /* until then it leads to that core, ... */
        nsec_t astray_until;
        bool moved_away; /* ... by another address */
};

#define SERVICES_MAX 4 /* of a host */
#define VIEW_KEYS (HOLDERS_MAX + HOLDERS_MAX * SERVICES_MAX)

/* What an agent was told of the others, and what it should have been. See view.c. */
struct seen_view {
        struct seen_key {
                int64_t lease, mod; /* lease 0: it is not there */
        } keys[VIEW_KEYS];
        int64_t last;        /* the revision of the last change, while it comes from a watch */
        int64_t last_behind; /* when that answer came, everything up to this revision was known
                              */
        uint32_t may;        /* the histories that it may belong to, a bit for each */
        int64_t at;  /* as it was checked last; 0: from a range on it may be any of them */
        unsigned of; /* the history that `leases` are of, after so many facts */
        size_t n_facts;
        int64_t leases[VIEW_KEYS];
};

struct holder {
        unsigned i;
        unsigned name, id; /* its own numbers, or where names collide those of another one */
        bool alive;
        nsec_t asleep_until; /* its host is suspended */
        struct span cut;     /* nothing gets through to it, or from it */
        nsec_t wake;         /* when it next has something to do; 0: look */
        int32_t ppm;
        struct session_config cfg;
        struct member *member; /* while it is alive */
        struct holder_end ends[REPLICAS_MAX];
        struct buf file; /* what it left for its next life */
        unsigned boot;   /* its number */
        char boots[512]; /* those before */
        struct boot_time boot_at;
        enum session_state announced; /* what it said last */
        int64_t lease;                /* as seen last */
        unsigned home;                /* the history in which it was granted; 0: ours */
        uint32_t heard; /* endpoints at which ours spoke, and which led there since */
        struct boot_time deadline; /* of what it holds, as of its last renewal */
        bool met_emptied;          /* in this life, it was connected to an emptied core */
        size_t watch_at;           /* the endpoint that its watch was on, as seen last */
        bool beats_beside;         /* a heartbeat now is one beside a question */
        struct boot_time renewed_at;
        bool keeps;
        struct seen_view view;
        nsec_t act_at;  /* its host does something: a service comes or goes, it leaves, it joins
                         */
        nsec_t left_by; /* it has left by then, if it is awake; 0: it does not leave */
        struct {
                bool wanted;
                unsigned life, port;
        } services[SERVICES_MAX];
        unsigned changes; /* of them, so far */
};

/* ---- ends.c ---- */

extern const struct member_ops holder_ops;
void ends_begin(struct holder *h);
void ends_close(struct holder *h);
/* The list of endpoints has another endpoint under that number. */
void ends_replace(struct holder *h, unsigned i);
/* Takes what has arrived; then, if the host is awake, sends what is asked for, and answers it.
 * The last function says when there is more to do. */
void ends_listen(struct holder *h);
void ends_ask(struct holder *h, bool awake);
nsec_t ends_next(const struct holder *h, bool awake);

/* ---- elsewhere.c ---- */

static inline bool is_stranger(unsigned node)
{
        return node >= REPLICAS_MAX;
}
void elsewhere_begin(struct world *w);
void elsewhere_drive(struct world *w, struct replica_node *n);
/* Endpoints lead to another core; now and then they do. */
void elsewhere_lead(struct world *w);
void elsewhere_go_on(struct world *w);
/* The other cores are no more. */
void elsewhere_heal(struct world *w);
/* The node that an endpoint leads to now. */
unsigned elsewhere_leads(const struct holder_end *e);
/* A holder has asked another core for something. */
void elsewhere_asked(struct holder *h, unsigned to);
/* In which history a lease was granted. */
unsigned elsewhere_of_lease(int64_t id);
/* There it has ended, and that history goes on. */
bool elsewhere_is_over(unsigned history, int64_t lease);

/* ---- moves.c ---- */

/* Delays what answers the watch of one holder while others have something to tell, or delays
 * what it tells itself. */
void delay_watch(struct world *w);
/* Around a turn of its member. */
void moves_before(struct holder *h);
void moves_after(struct holder *h);

/* ---- holders.c ---- */

struct boot_time holder_now(const struct holder *h);
void holders_begin(struct world *w);
void holders_end(struct world *w);
/* It acts. */
void hold(struct world *w, struct holder *h);
/* A holder dies, comes back, or starts anew with what it left behind. */
void disturb_holder(struct world *w);
/* Delays the answers to one holder, on one of its connections or on all. */
void delay_holder(struct world *w);
/* Whether it counts on this lease; 0: on any lease. */
bool holder_holds(const struct holder *h, int64_t lease);
const char *holder_state(const struct holder *h);
/* Whether another host holds its name. */
bool holder_is_refused(const struct holder *h);
/* From time to time: checks that no holder believes that it holds a lease that is over. */
void check_holders(struct world *w);

/* ---- view.c ---- */

void view_reset(void);
/* Numbers of keys. */
unsigned view_node(const char *node);
unsigned view_service(const char *service, const char *node);
/* Another history than ours begins; its number is not 0. */
unsigned view_new_history(void);
bool view_histories_left(void);
/* A replica has applied all up to there, in that history. */
void view_applied(unsigned history, const struct state *s, int64_t upto);
/* There are changes after that revision, in ours. */
bool view_has_news(int64_t revision);
/* It knows nothing yet; the next functions record what it was told. */
void view_begin(struct holder *h);
void view_put(struct holder *h, unsigned key, bool is_new, int64_t lease, int64_t mod,
              int64_t revision);
void view_gone(struct holder *h, unsigned key, int64_t revision);
/* Checks that it was told everything up to the revision that it says it knows. */
void view_check(struct world *w, struct holder *h);
/* ... and that there is nothing more, and that it says so. */
bool view_knows_all(const struct holder *h);
/* Whether exactly what it publishes is in the core. */
bool view_is_published(const struct holder *h);
