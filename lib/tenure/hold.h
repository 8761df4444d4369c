/*
 * What allows the program to act: this host's place, as the agent publishes it, or a lease of
 * the tie's own; and the events about it: TENURE_HELD, TENURE_JEOPARDY, TENURE_LOST.
 *
 * tenure_may_act() reads the page or the session itself, and the clock, each time; of the
 * announced events it only uses the lease's id. Until the program has taken a TENURE_LOST it
 * may not act, even if the place is held again, since that is another life of the place.
 */
#pragma once

#include "loop/loop.h"
#include "session/session.h"
#include "tenure/tenure.h"

enum hold_kind { HOLD_NONE, HOLD_AGENT, HOLD_OWN };

struct hold {
        enum hold_kind kind;
        uint64_t ttl_ms;
        char name[256]; /* of the session */
        int64_t lease;  /* as announced; 0: none */
        enum tenure_event_type announced;
        unsigned lost;              /* how many TENURE_LOST were not taken yet */
        bool given_back;            /* by tenure_leave() */
        bool letting_go;            /* who has the session's name, as announced; "": nobody */
        char taken[512];            /* watches that key; NULL: try again within a TTL */
        struct tenure_watch *watch; /* of that one's key; NULL: ask again within a TTL */
        struct boot_ahead ahead;
        struct loop_hook hook;
};

/* For tenure_start(): configures the client; starts what runs in each turn. */
struct client_config;
must_check_ int hold_configure(struct tenure *t, struct client_config *cfg);
void hold_start(struct tenure *t);
void hold_fini(struct tenure *t);
/* Looks at the page in the next turn, because it is new or may have changed. */
void hold_soon(struct tenure *t);

/* The session's state has changed, as of struct member_events. */
void hold_on_session(struct tenure *t, enum session_state state, const char *why);

/* The program asks for the next event, or dispatches, so it has handled the events it took. */
void hold_came_back(struct tenure *t);

/* Returns the id of the lease that is held, or 0. @key gets the key that is attached to it
 * while it is held, for a condition of a transaction. */
struct buf;
int64_t hold_key(const struct tenure *t, struct buf *key);
