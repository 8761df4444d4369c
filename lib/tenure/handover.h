/*
 * The holder's part in a switchover (member/switchover.h): it follows the requests for its
 * lock, accepts one by making the target the next in line, is told to stop, and gives the lock
 * over once it has. For lock.c, and for `tenurectl lock`, whose lock the Lock service got.
 *
 * A core that does not let us read the requests is one that has none.
 */
#pragma once

#include "loop/loop.h"
#include "member/switchover.h"
#include "tenure/tenure.h"

enum handover_news {
        HANDOVER_NONE,  /* the first look has found none: once, and first, or it is the next */
        HANDOVER_ASKED, /* `request`: stop by `stop_by`, then call handover_go() */
        HANDOVER_DONE,  /* the target has the lock; this is over */
        HANDOVER_KEPT,  /* the target went away: the lock is ours still, and others may ask */
        HANDOVER_LOST,  /* the key is gone, or another one; this is over */
};

/* Embedded. Zeroed, or after handover_stop(), there is none. */
struct handover {
        struct tenure *tenure;
        struct loop_hook hook;
        const char *name;         /* the lock's; borrowed */
        struct switchover_at own; /* its key; borrowed */
        void (*fn)(struct handover *h, enum handover_news news);
        enum handover_state {
                HANDOVER_LOOK,    /* is there a request? */
                HANDOVER_WATCH,   /* for one */
                HANDOVER_BETWEEN, /* who is between the target and us? */
                HANDOVER_PUSH,    /* they are to be behind it */
                HANDOVER_STOPS,   /* the holder does */
                HANDOVER_GO,      /* it has */
                HANDOVER_ANSWER,  /* we are the target of one that is fulfilled */
                HANDOVER_OVER,
        } state;
        bool looked;  /* once: HANDOVER_NONE was announced, or HANDOVER_ASKED */
        bool stirred; /* there is, or was, another request */
        struct tenure_call *call;
        struct tenure_watch *watch;
        struct switchover request;
        int64_t mod, lease; /* of the request's key */
        int64_t seen;       /* the revision of the last look */
        int64_t no_more;    /* the `mod` of one whose target is gone */
        struct boot_time stop_by;
        struct boot_time retry_at;
        nsec_t backoff;
};

/* With the lock held: @name and @own are borrowed until handover_stop(). @fn comes from the
 * loop, and may call handover_stop() and handover_go(). */
void handover_start(struct handover *h, struct tenure *t, const char *name,
                    const struct switchover_at *own,
                    void (*fn)(struct handover *h, enum handover_news news));
/* May have ended already. What is with the core may happen. */
void handover_stop(struct handover *h);

/* After HANDOVER_ASKED: the holder does nothing any more that only the holder may. */
void handover_go(struct handover *h);

static inline bool handover_is_asked(const struct handover *h)
{
        return h->tenure && h->state == HANDOVER_STOPS;
}
