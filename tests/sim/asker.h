/*
 * A client of the simulator that sends the real services one request at a time, and then gets
 * the answer, or learns that there will be none. Besides what the network does, its own process
 * may stop for a while.
 */
#pragma once

#include "world.h"

struct asker;

struct asker_ops {
        /* It is time to act: it is connected, and waits for no answer. */
        void (*act)(struct asker *a);
        /* The last request has an answer or an error; @lost: the client will never know the
         * outcome. */
        void (*answered)(struct asker *a, enum rpc_code code, struct view answer, bool lost);
};

struct asker {
        STAILQ_ENTRY(asker) next;
        const struct asker_ops *ops;
        unsigned i;
        struct wire link;
        struct span cut;     /* what it sends in this time arrives late */
        nsec_t frozen_until; /* its process is stopped */
        nsec_t act_at;
        nsec_t asked_at;
        bool asks;
        struct prompt waits; /* for the answer */
        bool restless;       /* it acts while others rest, but at the end */
        bool all;            /* keep all messages of the answer, one behind the other */
        struct buf answer;
};

void asker_begin(struct asker *a, unsigned i, const struct asker_ops *ops);
void asker_ask(struct asker *a, const char *path, const ProtobufCMessage *m);

/* All that have begun, in that order: does what is due, and calls act() or answered(). */
void askers_run(void);
nsec_t askers_next(void);
void askers_end(void);

/* ---- named.c: clients that use leases by their names ---- */

void named_begin(struct world *w);
/* An entry was applied at a replica. */
void named_applied(struct world *w, struct state *s);

/* ---- guards.c: programs that write only while they hold a place ---- */

void guards_begin(struct world *w);
void guards_applied(struct world *w, struct replica_node *n, uint64_t index);
/* ---- operators.c: they change the members ---- */

void operators_begin(struct world *w);

/* ---- visitors.c: they ask for what operators and monitoring ask for ---- */

void visitors_begin(struct world *w);

/* ---- fillers.c: one fills the store up to its quota ---- */

void fillers_begin(struct world *w);
/* Part of an entry is about to be applied, or was applied, at a replica. */
void fillers_apply(const struct state *s);
void fillers_applied(struct world *w, const struct state *s, struct view commands);

/* ---- users.c: users with passwords, and who administers them ---- */

void users_begin(struct world *w);

/* ---- bulk.c: one changes many keys at once, with large values ---- */

void bulk_begin(struct world *w);

/* ---- dozers.c: patient clients of long worlds ---- */

void dozers_begin(struct world *w);
/* How many bytes of records that are too large were put. */
size_t dozers_bytes(void);

/* ---- hoarders.c: they have up to 100,000 keys ---- */

void hoarders_begin(struct world *w);
