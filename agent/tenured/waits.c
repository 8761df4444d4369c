/* WaitForRevision: answered once everything up to a revision has been announced. */
#include <stdio.h>

#include "objects.h"
#include "root_object.h"

/* How often to ask the core for its revision, on behalf of all callers: a number of times in a
 * row, then rarely. The first answer settles a revision that exists already; one that comes
 * later may take a moment more. */
#define ASK_AGAIN (50 * NSEC_PER_MSEC)
#define ASK_IN_A_ROW 10
#define ASK_REFILL (500 * NSEC_PER_MSEC)
#define OWED_AGAIN (5 * NSEC_PER_MSEC) /* to see whether the caller has got his list */

struct wait {
        struct kept_call call;
        TAILQ_ENTRY(wait) entry;
        struct agent *agent;
        int64_t revision;
        struct boot_time until;
};

static void forget(struct kept_call *k)
{
        struct wait *n = container_of(k, struct wait, call);
        struct waits *w = &n->agent->waits;

        if (k->counted) {
                TAILQ_REMOVE(&w->list, n, entry);
                w->n--;
        }
        callers_drop(k);
        free(n);
}

void waits_init(struct waits *w)
{
        *w = (struct waits){.asks = ASK_IN_A_ROW};
        TAILQ_INIT(&w->list);
}

/* Answers the callers whose revision has been reached or whose time is up. */
static void answer(struct agent *a, int64_t revision, struct boot_time now)
{
        struct waits *w = &a->waits;
        struct wait *n, *after;

        w->next = BOOT_TIME_NEVER;
        w->revision = revision;
        TAILQ_FOREACH_SAFE (n, &w->list, entry, after) {
                if (revision >= n->revision && lists_owe(a, callers_name(&n->call))) {
                        w->next = boot_min(w->next, boot_add(now, OWED_AGAIN));
                } else if (revision >= n->revision) {
                        (void) sd_bus_reply_method_return(n->call.m, "x", revision);
                        forget(&n->call);
                } else if (!boot_before(now, n->until)) {
                        (void) sd_bus_reply_method_errorf(
                                n->call.m, SD_BUS_ERROR_TIMEOUT,
                                "Revision %lld has not been reached; the latest is %lld.",
                                (long long) n->revision, (long long) revision);
                        forget(&n->call);
                } else {
                        w->next = boot_min(w->next, n->until);
                }
        }
}

static void ask(struct waits *w, struct member *m, struct boot_time now)
{
        unsigned won = (unsigned) min_of(boot_diff(now, w->refilled_at) / ASK_REFILL,
                                         (nsec_t) ASK_IN_A_ROW);

        if (won > 0) {
                w->asks = min_of(w->asks + won, (unsigned) ASK_IN_A_ROW);
                w->refilled_at = now;
        }
        if (w->asks > 0) {
                w->asks--;
                member_ask_revision(m);
        }
        w->ask_at = boot_add(now, w->asks > 0 ? ASK_AGAIN : ASK_REFILL);
}

/* In most turns nothing has changed for the callers, and this does nothing. */
struct boot_time waits_run(struct agent *a, struct boot_time now)
{
        struct waits *w = &a->waits;

        if (w->n == 0)
                return BOOT_TIME_NEVER;
        if (news_revision(a) != w->revision || !boot_before(now, w->next))
                answer(a, news_revision(a), now);
        if (w->n > 0 && !boot_before(now, w->ask_at))
                ask(w, a->member, now);
        return w->n > 0 ? boot_min(w->next, w->ask_at) : BOOT_TIME_NEVER;
}

static void on_caller(struct kept_call *k)
{
        struct wait *n = container_of(k, struct wait, call);
        struct waits *w = &n->agent->waits;
        struct boot_time now = loop_now(n->agent->loop);

        TAILQ_INSERT_TAIL(&w->list, n, entry);
        if (w->n++ == 0) {
                w->next = BOOT_TIME_NEVER;
                w->ask_at = boot_max(w->ask_at, now);
        }
        w->next = boot_min(w->next, news_revision(n->agent) >= n->revision ? now : n->until);
        /* A full allowance is for the first caller: later ones wait for the next round. */
        if (w->asks > 1)
                w->ask_at = now;
        loop_hook_again(&n->agent->hook);
}

int method_wait_for_revision(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct agent *a = userdata;
        uint64_t timeout_usec;
        struct wait *n;
        int64_t revision;
        int r = sd_bus_message_read(m, "xt", &revision, &timeout_usec);

        if (r < 0)
                return r;
        if (news_revision(a) >= revision && !lists_owe(a, sd_bus_message_get_sender(m)))
                return sd_bus_reply_method_return(m, "x", news_revision(a));
        n = calloc(1, sizeof(*n));
        if (!n)
                return -ENOMEM;
        n->agent = a;
        n->revision = revision;
        n->until =
                boot_add(loop_now(a->loop),
                         (nsec_t) min_of(timeout_usec, UINT64_C(86400000000)) * NSEC_PER_USEC);
        r = callers_keep(&a->callers, &n->call, m, CALL_REVISION, on_caller, forget);
        if (r < 0)
                free(n);
        return r;
}
