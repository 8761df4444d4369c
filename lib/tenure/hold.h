/*
 * What the program may act by: this host's place, as its agent tells of it, or a lease of its
 * own. What is announced of it, in order: TENURE_HELD, TENURE_JEOPARDY, TENURE_LOST.
 *
 * The answer to tenure_may_act() comes from the page or the session itself, with a fresh look
 * at the clock; what was announced is only by which lease. While the program has not taken a
 * TENURE_LOST, it may not act: who holds again by then does so in another life.
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
        int64_t lease;  /* as was announced; 0: none */
        enum tenure_event_type announced;
        unsigned lost;   /* TENURE_LOST that were not taken yet */
        bool given_back; /* tenure_leave() */
        bool letting_go; /* the agent waits for us, until that one was seen to */
        char taken[512]; /* who has the session's name, as was announced; "": nobody */
        struct tenure_watch *watch; /* for the end of that; NULL: within a TTL */
        struct boot_ahead ahead;
        struct loop_hook hook;
};

/* tenure_start(): what the client is to do for it; and what runs in each turn. */
struct client_config;
must_check_ int hold_configure(struct tenure *t, struct client_config *cfg);
void hold_start(struct tenure *t);
void hold_fini(struct tenure *t);
/* What it goes by has come: it runs again, though nobody may tell of changes. */
void hold_soon(struct tenure *t);

/* The session's state has changed, as of struct member_events. */
void hold_on_session(struct tenure *t, enum session_state state, const char *why);

/* The program comes for the next event, or to dispatch: it has seen to those that it took. */
void hold_came_back(struct tenure *t);

/* The key that stands while the place or the lease does, for a compare of its lease, which is
 * returned; 0 where nothing is held. */
struct buf;
int64_t hold_key(const struct tenure *t, struct buf *key);
