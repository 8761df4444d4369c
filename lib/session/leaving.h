/*
 * Leaving the cluster on purpose, and what follows:
 *
 *     staying -> releasing -> giving back -> out -> staying, or the end
 *
 * A host stays out for as long as there is a cause for it. First everything that needs the
 * place is stopped and its holders release it, then the lease is revoked, for a reason that the
 * other nodes see. A pure function of (causes, what was seen); agent/tenured/leave.c carries
 * out the acts.
 */
#pragma once

#include "base/base.h"

enum leaving_cause {
        LEAVING_EXIT = 1 << 0,        /* the program ends */
        LEAVING_MAINTENANCE = 1 << 1, /* ordered to stay out, until ordered to join */
        LEAVING_SLEEP = 1 << 2,       /* until the host is awake */
};

enum leaving_state {
        LEAVING_STAYING,
        LEAVING_RELEASING,
        LEAVING_GIVING_BACK,
        LEAVING_OUT,
};

/* What is to be done, in this order; several at a time. */
enum leaving_act {
        LEAVING_ASK_HOLDERS = 1 << 0, /* to release the place; ask again until they have */
        LEAVING_GIVE_BACK = 1 << 1,   /* the lease, for `reason` */
        LEAVING_SETTLE = 1 << 2,      /* it is out: waiting callers are answered */
        LEAVING_JOIN = 1 << 3,
        LEAVING_END = 1 << 4,
};

struct leaving {
        enum leaving_state state;
        unsigned causes;
        const char *reason; /* borrowed; NULL: it is not known yet, and waited for */
};

/* What was seen. */
struct leaving_sight {
        bool down;     /* nothing that needs the place runs */
        bool released; /* nor has anybody else a claim on it */
        bool left;     /* the lease is given back, or over */
};

/* For @cause, which the others see as @reason; a reason that is known already stays. NULL:
 * leaving_tell() follows. */
void leaving_begin(struct leaving *l, enum leaving_cause cause, const char *reason);

/* Sets or replaces the reason. */
void leaving_tell(struct leaving *l, const char *reason);

/* Removes @causes; joins again when none is left, once it is out. */
void leaving_end(struct leaving *l, unsigned causes);

/* At the start of a program that has nothing to give back. */
void leaving_is_out(struct leaving *l);

/* What to do. Call again whenever something else is seen. */
unsigned leaving_next(struct leaving *l, const struct leaving_sight *s);

static inline bool leaving_is_under_way(const struct leaving *l)
{
        return l->state != LEAVING_STAYING;
}
