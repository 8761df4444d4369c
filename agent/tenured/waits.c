/* WaitForRevision: answered once all that happened up to a revision has been told. */
#include <stdio.h>

#include "manager.h"
#include "objects.h"

#define ASK_AGAIN (50 * NSEC_PER_MSEC)
#define WAITS_MAX 1000

struct wait {
        TAILQ_ENTRY(wait) entry;
        sd_bus_message *m;
        int64_t revision;
        struct boot_time until;
};

static void forget(struct waits *w, struct wait *n)
{
        TAILQ_REMOVE(&w->list, n, entry);
        w->n--;
        sd_bus_message_unref(n->m);
        free(n);
}

static void on_timer(struct loop_timer *t)
{
        (void) t; /* the hook does the work */
}

void waits_init(struct waits *w, struct loop *l)
{
        *w = (struct waits){0};
        TAILQ_INIT(&w->list);
        loop_timer_init(&w->timer, l, on_timer);
}

void waits_forget(struct waits *w)
{
        struct wait *n;

        if (!w->timer.loop)
                return;
        while ((n = TAILQ_FIRST(&w->list)))
                forget(w, n);
        loop_timer_disarm(&w->timer);
}

void waits_pump(struct waits *w, struct client *c, struct boot_time now)
{
        struct boot_time next = BOOT_TIME_NEVER;
        struct wait *n, *after;

        if (w->n == 0)
                return;
        TAILQ_FOREACH_SAFE (n, &w->list, entry, after) {
                if (client_revision(c) >= n->revision) {
                        (void) sd_bus_reply_method_return(n->m, "x", client_revision(c));
                        forget(w, n);
                } else if (!boot_before(now, n->until)) {
                        (void) sd_bus_reply_method_errorf(
                                n->m, SD_BUS_ERROR_TIMEOUT,
                                "Revision %lld has not come; this is %lld.",
                                (long long) n->revision, (long long) client_revision(c));
                        forget(w, n);
                } else {
                        next = boot_min(next, n->until);
                }
        }
        if (w->n > 0 && !boot_before(now, w->ask_at)) {
                client_ask_revision(c);
                w->ask_at = boot_add(now, ASK_AGAIN);
        }
        if (loop_timer_arm(&w->timer, w->n > 0 ? boot_min(next, w->ask_at) : BOOT_TIME_NEVER) <
            0)
                abort();
}

int method_wait_for_revision(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct agent *a = userdata;
        uint64_t timeout_usec;
        struct wait *n;
        int64_t revision;
        int r = sd_bus_message_read(m, "xt", &revision, &timeout_usec);

        if (r < 0)
                return r;
        if (a->waits.n == WAITS_MAX)
                return sd_bus_error_setf(error, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                         "%d wait already.", WAITS_MAX);
        n = calloc(1, sizeof(*n));
        if (!n)
                return -ENOMEM;
        n->m = sd_bus_message_ref(m);
        n->revision = revision;
        n->until = boot_add(boot_now(), (nsec_t) min_of(timeout_usec, UINT64_C(86400000000)) *
                                                NSEC_PER_USEC);
        TAILQ_INSERT_TAIL(&a->waits.list, n, entry);
        a->waits.n++;
        a->waits.ask_at = (struct boot_time){0};
        /* The hook goes through it in this turn or, should it have run already, in the next. */
        if (loop_timer_arm(&a->waits.timer, boot_now()) < 0)
                abort();
        return 1;
}
