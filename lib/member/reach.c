#include "member/reach.h"

#include <stdio.h>

#include "base/utf8.h"

#define CONNECT_TIMEOUT NSEC_PER_SEC
/* When all hosts of a site come back at once, a core has thousands of connections to set up. A
 * client that gave up too early would only have to start over, and so would all the others. */
#define GREETING_TIMEOUT (5 * NSEC_PER_SEC)
#define RETRY_MIN (20 * NSEC_PER_MSEC)
#define RETRY_MAX NSEC_PER_SEC
#define PING_EVERY (5 * NSEC_PER_SEC)

void reach_init(struct reach *r, const struct reach_ops *ops)
{
        *r = (struct reach){.ops = ops, .when = BOOT_TIME_NEVER, .backoff = RETRY_MIN};
}

void reach_limit(struct reach *r, struct boot_time now, nsec_t limit)
{
        r->when = boot_add(now, limit);
}

/* Whether the connection was up for a while. A peer that accepts us and closes at once is no
 * better than one that does not accept. */
static bool has_lasted(const struct reach *r, struct boot_time now)
{
        return boot_diff(now, r->up_at) >= RETRY_MAX;
}

static void wait_longer(struct reach *r, struct boot_time now)
{
        r->when = boot_add(now, r->backoff);
        r->backoff = min_of(2 * r->backoff, RETRY_MAX);
}

void reach_failed(struct reach *r, struct boot_time now, const char *why)
{
        bool was_up = r->state == REACH_UP;

        r->state = REACH_DOWN;
        r->failing[0] = '\0';
        r->ops->close(r);
        if (was_up && has_lasted(r, now))
                r->backoff = RETRY_MIN;
        wait_longer(r, now);
        r->ops->down(r, was_up, why);
}

void reach_leaves(struct reach *r, struct boot_time now)
{
        r->state = REACH_DOWN;
        r->wanted = true;
        if (has_lasted(r, now)) {
                r->backoff = RETRY_MIN;
                r->when = now;
        } else {
                wait_longer(r, now);
        }
}

void reach_fail_soon(struct reach *r, struct boot_time now, const char *why)
{
        utf8_print(r->failing, sizeof(r->failing), "%s", why);
        r->when = now;
}

void reach_up(struct reach *r, struct boot_time now)
{
        r->state = REACH_UP;
        r->up_at = now;
        r->pings = 0;
        r->probing = r->silent = r->heard = false;
        r->when = boot_add(now, PING_EVERY);
}

static void connect_now(struct reach *r, struct boot_time now)
{
        r->state = REACH_CONNECTING;
        r->wanted = r->greeting = false;
        r->tried_at = now;
        r->when = boot_add(now, CONNECT_TIMEOUT);
        r->ops->connect(r);
}

static bool is_waiting(const struct reach *r)
{
        return r->pings > r->ops->pongs(r);
}

static void ping(struct reach *r, struct boot_time now)
{
        if (r->ops->ping(r) < 0)
                return reach_fail_soon(r, now, "out of memory");
        r->pings++;
        r->heard = false;
}

void reach_heard(struct reach *r, struct boot_time now)
{
        r->heard = true;
        if (r->state != REACH_UP || r->failing[0] || is_waiting(r))
                return;
        if (r->probing)
                r->when = boot_add(now, PING_EVERY);
        r->probing = r->silent = false;
}

void reach_suspect(struct reach *r, struct boot_time now)
{
        if (r->state != REACH_UP || r->silent || r->failing[0])
                return;
        r->silent = true;
        r->probing = false;
        r->when = boot_add(now, PING_EVERY);
        if (!is_waiting(r))
                ping(r, now);
        r->ops->silent(r);
}

void reach_probe(struct reach *r, struct boot_time now, nsec_t within)
{
        if (r->state != REACH_UP || r->probing || r->silent || r->failing[0])
                return;
        r->probing = true;
        r->when = boot_add(now, min_of(within, PING_EVERY));
        if (!is_waiting(r))
                ping(r, now);
}

void reach_run(struct reach *r, struct boot_time now)
{
        char why[sizeof(r->failing)];

        if (boot_before(now, r->when))
                return;
        r->when = BOOT_TIME_NEVER;
        if (r->failing[0]) {
                strcpy(why, r->failing);
                return reach_failed(r, now, why);
        }
        switch (r->state) {
        case REACH_CONNECTING:
                if (!r->ops->is_greeting(r) || r->greeting)
                        return reach_failed(r, now, "no connection in time");
                r->greeting = true;
                r->when = boot_add(now, GREETING_TIMEOUT);
                break;
        case REACH_DOWN:
                if (r->wanted)
                        connect_now(r, now);
                break;
        case REACH_UP:
                if (r->probing)
                        return reach_suspect(r, now);
                if (is_waiting(r) && !r->heard)
                        return reach_failed(r, now, "it does not answer");
                r->heard = false;
                r->when = boot_add(now, PING_EVERY);
                if (!is_waiting(r))
                        ping(r, now);
                break;
        }
}

void reach_want(struct reach *r, struct boot_time now)
{
        if (r->state != REACH_DOWN)
                return;
        r->wanted = true;
        if (r->when.ns == BOOT_TIME_NEVER.ns)
                connect_now(r, now);
}

void reach_hurry(struct reach *r, struct boot_time now, nsec_t pace)
{
        struct boot_time next = boot_add(r->tried_at, pace);

        if (r->state == REACH_UP || (r->state == REACH_CONNECTING && r->ops->is_greeting(r)))
                return;
        if (r->state == REACH_DOWN) {
                r->wanted = true;
                r->when = boot_min(r->when, next);
        } else if (!boot_before(now, boot_add(next, pace))) {
                r->ops->close(r);
                r->state = REACH_DOWN;
                r->when = now;
        }
        if (r->state == REACH_DOWN && !boot_before(now, r->when))
                connect_now(r, now);
}

void reach_again(struct reach *r, struct boot_time now)
{
        bool wanted = r->state != REACH_DOWN || r->wanted;

        if (r->state == REACH_UP)
                reach_failed(r, now, "the network has changed");
        r->backoff = RETRY_MIN;
        if (!wanted)
                return;
        r->ops->close(r);
        connect_now(r, now);
}
