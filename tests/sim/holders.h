/* The hosts of a world, their endpoints, the other cores to which these lead, and what the
 * hosts were told. */
#pragma once

#include <bsd/sys/queue.h>

#include "base/buf.h"
#include "etcd/api.h"
#include "member/node_record.h"
#include "member/reach.h"
#include "session/session.h"

#include "clocks.h"

/* Maximum numbers. */
#define REPLICAS_MAX 5
#define STRANGERS 2 /* other cores, of one replica each */
#define NODES_MAX (REPLICAS_MAX + STRANGERS)
#define HOLDERS_MAX 8

struct place;
struct world;
struct replica_node;
struct state;

struct span {
        nsec_t from, until;
};

struct parcel;
STAILQ_HEAD(parcels, parcel);

/* A connection, and the data under way on it. */
struct wire {
        LIST_ENTRY(wire) connected;
        struct rpc_conn *client,
                *server; /* both NULL: not connected; only `server` NULL: the server has gone */
        unsigned to, number;           /* how often it has been connected */
        struct api_turn turn, address; /* turns of the connection and of its address, at the
                                        * server */
        const char *from;              /* its address; NULL: another one each time */
        struct party *party;           /* of the connection, at the server; NULL: it has gone */
        struct parcels to_client, to_server;
        nsec_t last_in, last_out;        /* when the last parcel in each direction arrives */
        bool broken;                     /* to be closed when no callback is running */
        bool nameless;                   /* the client has no certificate */
        bool backs_off;                  /* what did not get through is tried less and less
                                          * often */
        bool client_dirty, server_dirty; /* this side may have something to send */
        nsec_t *wake;                    /* set to 0 when there is something to do; NULL: not
                                          * needed */
        nsec_t late_until, deaf_from;    /* answers are delayed until then; requests from then
                                          * on */
        bool breaks;                     /* ... and all but the first answer are lost */
        const struct span *cut; /* for a patient client: when its link is cut. What does not get
                                 * through is sent again; NULL: the connection breaks instead */
};

struct holder_end {
        struct holder *holder;
        unsigned to;
        struct reach reach;
        struct wire wire;
        nsec_t connect_at;  /* when an attempt to connect ends; NEVER: there is none */
        unsigned astray_to; /* leads to that core until the following time, ... */
        nsec_t astray_until;
        bool moved_away; /* ... at another address */
};

#define SERVICES_MAX 4              /* on one host */
#define NAMES_MAX (2 * HOLDERS_MAX) /* each host has two, one at a time */
#define VIEW_KEYS (NAMES_MAX + NAMES_MAX * SERVICES_MAX)

/* What an agent was told about the others, and what it should have been told. See view.c. */
struct seen_view {
        struct seen_key {
                int64_t lease, mod; /* lease 0: it does not exist */
        } keys[VIEW_KEYS];
        int64_t last;        /* the revision of the last change, if it came from a watch */
        int64_t last_behind; /* when that answer came, everything up to this revision was
                              * known */
        uint32_t may;        /* the histories that it may belong to, one bit each */
        int64_t at;          /* the revision of the last check; 0: after a range, any history is
                              * possible */
        unsigned of; /* the history of `leases`, and how many of its facts they include */
        size_t n_facts;
        int64_t leases[VIEW_KEYS];
};

struct holder {
        unsigned i;
        unsigned name, id; /* its own numbers; or if they collide, those of another host */
        bool alive;
        bool earlier;        /* its agent is that of 0.1.0, as far as others can tell */
        nsec_t asleep_until; /* the host is suspended until then ... */
        nsec_t slept_from;   /* ... from then on; 0: it only does nothing */
        struct span cut;     /* no data to or from it gets through */
        bool cable;          /* its kernel will tell when that has ended */
        nsec_t retold;  /* a renewal waited when the kernel told so, and nothing has been in
                         * its way from then on; 0: it did not */
        nsec_t doubted; /* the same for a renewal, when its clock may have stood still */
        nsec_t free_since[REPLICAS_MAX]; /* nothing has been in the way of a renewal through
                                          * that endpoint from then on */
        nsec_t wake;                     /* when to run it next; 0: now */
        struct host_clock clock;
        char addresses[16]; /* of its network */
        struct session_config cfg;
        struct member *member; /* NULL while it is dead */
        struct holder_end ends[REPLICAS_MAX];
        struct buf file; /* what it leaves for its next life */
        unsigned boot;   /* the number of the present boot */
        char boots[512]; /* the boots before */
        struct boot_time boot_at;
        enum session_state announced; /* the state it announced last */
        bool refused;                 /* because a lease has its place */
        int64_t lease;                /* the lease it had when we last looked */
        uint64_t asked;               /* the number of its last request for a place */
        int64_t asked_for;            /* the last lease that it wanted to register, ... */
        int64_t knew;                 /* ... and the revision that it knew when it began to */
        unsigned home;                /* the history that granted it; 0: ours */
        unsigned acked_by;            /* the one that acknowledged it last */
        uint32_t heard; /* endpoints at which our core answered, and which have led to it
                         * since */
        struct boot_time deadline; /* of its place, as of the last renewal */
        bool remembers;            /* it is told what an earlier life was told */
        bool met_emptied;          /* in this life, it was connected to an emptied core */
        size_t watch_at;           /* the endpoint of its watch when we last looked */
        bool beats_beside;         /* a heartbeat now is sent while a question is open */
        struct boot_time renewed_at;
        bool keeps;
        struct seen_view view;
        nsec_t act_at;  /* when its host acts: a service comes or goes, or the host leaves or
                         * joins */
        nsec_t left_by; /* when it must have left, if awake; 0: it does not leave */
        struct {
                bool wanted;
                unsigned life, port;
        } services[SERVICES_MAX];
        unsigned changes;    /* number of changes of services so far */
        struct units *units; /* NULL: nothing is bound to its place */
};

/* ---- ends.c ---- */

extern const struct member_ops holder_ops;
void ends_begin(struct holder *h);
void ends_close(struct holder *h);
/* The list of endpoints now has another endpoint at number @i. */
void ends_replace(struct holder *h, unsigned i);
/* ends_listen() takes what has arrived. ends_ask() sends requests, if the host is awake, and
 * answers. ends_next() says when there is more to do. */
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
/* Leads endpoints to another core; decides now and then whether to. */
void elsewhere_lead(struct world *w);
void elsewhere_go_on(struct world *w);
/* Removes the other cores. */
void elsewhere_heal(struct world *w);
/* The node that an endpoint leads to now. */
unsigned elsewhere_leads(const struct holder_end *e);
/* A holder has sent a request to another core. */
void elsewhere_asked(struct holder *h, unsigned to);
/* The history in which the lease was granted. */
unsigned elsewhere_of_lease(int64_t id);
/* Whether the lease has ended in that history, which goes on. */
bool elsewhere_is_over(unsigned history, int64_t lease);

/* ---- moves.c ---- */

/* Delays the answers to one holder's watch while others have something to report, or delays
 * what the holder itself reports. */
void delay_watch(struct world *w);
/* Called before and after its member runs. */
void moves_before(struct holder *h);
void moves_after(struct holder *h);

/* ---- holders.c ---- */

struct boot_time holder_now(const struct holder *h);
/* Whether its clock counted too little of a sleep, so that its deadline is late, and no renewal
 * that was sent since has been acknowledged. */
bool holder_is_misled(const struct holder *h);
void holders_begin(struct world *w);
void holders_end(struct world *w);
/* Runs the host. */
void hold(struct world *w, struct holder *h);
/* A holder dies, comes back, or starts with what it left behind. */
void disturb_holder(struct world *w);
/* Its agent's process is killed, or starts; the host restarts, without it. */
void holder_kill(struct holder *h);
void holder_start(struct holder *h);
/* What is to be known of its host has changed. */
void holder_tell_self(struct holder *h);
void holder_reboot(struct holder *h);
/* Another version of the agent is installed, which restarts it. */
void holder_install(struct holder *h, bool earlier);
/* The place that the agent has written down. */
bool holder_read_file(const struct holder *h, struct place *ret);
/* Delays the answers to one holder, on one of its connections or on all. */
void delay_holder(struct world *w);
/* Whether it counts on this lease; 0: on any lease. */
bool holder_holds(const struct holder *h, int64_t lease);
const char *holder_state(const struct holder *h);
/* Whether both want the same name, or have the same id. */
bool holders_vie(const struct holder *a, const struct holder *b);
/* Whether another host holds its name or id; or perhaps a lease that it had itself, until that
 * must have ended: if it has started anew, and the core was out meanwhile, its lease may seem
 * to be renewed by somebody else since (member/place_claim.h). */
bool holder_is_refused(const struct holder *h);
/* Called from time to time: checks that no holder believes that it holds a lease that is
 * over. */
void check_holders(struct world *w);
/* Another core, of that history, has ended the lease; or @all: the only one that is left. */
void check_ended_elsewhere(struct world *w, unsigned history, int64_t lease, bool all);

/* ---- listed.c ---- */

/* Changes of nodes were applied, those after revision @known. */
void listed_check(const struct state *s, int64_t known);
/* The key of a node on that lease was deleted. */
void listed_gone(const struct state *s, int64_t lease);

/* ---- view.c ---- */

void view_reset(void);
/* The numbers of keys. */
unsigned view_node(const char *node);
unsigned view_service(const char *service, const char *node);
/* Begins another history; its number is not 0, which is ours. */
unsigned view_new_history(void);
bool view_histories_left(void);
/* A replica has applied everything up to @upto in that history. */
void view_applied(unsigned history, const struct state *s, int64_t upto);
/* Whether there are changes after @revision in our history. */
bool view_has_news(int64_t revision);
/* The agent knows nothing yet; the next functions record what it is told. */
void view_begin(struct holder *h);
void view_put(struct holder *h, unsigned key, bool is_new, int64_t lease, int64_t mod,
              int64_t revision);
void view_gone(struct holder *h, unsigned key, int64_t revision);
/* Checks that the agent was told everything up to the revision that it claims to know. */
void view_check(struct world *w, struct holder *h);
/* Whether there is nothing more to know, and the agent claims to know it. */
bool view_knows_all(const struct holder *h);
/* Whether exactly what it publishes is in the core. */
bool view_is_published(const struct holder *h);
