/*
 * The holder's part in a switchover (member/switchover.h): follows the requests for the lock,
 * accepts one by making the target the next in line, asks the holder to stop, and hands the
 * lock over once the holder has stopped. For lock.c, and for `tenurectl lock`, which gets its
 * lock from the Lock service.
 *
 * If the core does not let us read the requests, we act as if there were none.
 */
#pragma once

#include "loop/loop.h"
#include "member/switchover.h"
#include "tenure/tenure.h"

enum handover_news {
        HANDOVER_NONE,  /* the first look found no request; reported first, or never */
        HANDOVER_ASKED, /* `request`: stop by `stop_by`, then call handover_go() */
        HANDOVER_DONE,  /* the target has the lock; the handover is over */
        HANDOVER_KEPT,  /* the target has gone: the lock is still ours, and others may request
                         * it */
        HANDOVER_LOST,  /* the key is gone, or replaced; the handover is over */
};

/* Embedded. While it is zeroed, and after handover_stop(), it does nothing. */
struct handover {
        struct tenure *tenure;
        struct loop_hook hook;
        const char *name;         /* the lock's; borrowed */
        struct switchover_at own; /* its key; borrowed */
        void (*fn)(struct handover *h, enum handover_news news);
        enum handover_state {
                HANDOVER_LOOK,    /* look for a request */
                HANDOVER_WATCH,   /* watch for one */
                HANDOVER_BETWEEN, /* find the waiters between the target and us */
                HANDOVER_PUSH,    /* move the target before them */
                HANDOVER_STOPS,   /* the holder is stopping */
                HANDOVER_GO,      /* the holder has stopped */
                HANDOVER_ANSWER,  /* we are the target of a request that is fulfilled */
                HANDOVER_OVER,
        } state;
        bool looked;  /* HANDOVER_NONE or HANDOVER_ASKED was reported */
        bool stirred; /* the request may have changed: look again */
        struct tenure_call *call;
        struct tenure_watch *watch;
        struct switchover request;
        int64_t mod, lease; /* of the request's key */
        int64_t seen;       /* the revision of the last look */
        int64_t no_more;    /* `mod` of a request whose target is gone */
        struct boot_time stop_by;
        struct boot_time retry_at;
        nsec_t backoff;
};

/* Call it while the lock is held. @name and @own are borrowed until handover_stop(). The loop
 * calls @fn, which may call handover_stop() and handover_go(). */
void handover_start(struct handover *h, struct tenure *t, const char *name,
                    const struct switchover_at *own,
                    void (*fn)(struct handover *h, enum handover_news news));
/* Accepts a handover that has ended already. Requests that were sent may still take effect. */
void handover_stop(struct handover *h);

/* Answers HANDOVER_ASKED, once the holder no longer does what only the holder may do. */
void handover_go(struct handover *h);

static inline bool handover_is_asked(const struct handover *h)
{
        return h->tenure && h->state == HANDOVER_STOPS;
}
