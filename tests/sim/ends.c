/* The endpoints of a host's agent: does what the shell around the member does, with virtual
 * connections. */
#include <stdio.h>

#include "member/member.h"
#include "world.h"

/* ---- connections ---- */

static struct holder_end *end_of(const struct reach *r)
{
        return container_of(r, struct holder_end, reach);
}

static void on_connect(struct reach *r)
{
        struct holder_end *e = end_of(r);

        e->connect_at = W->now + some_time(W, 200 * NSEC_PER_USEC, 6 * MSEC);
        e->holder->wake = 0;
}

static bool is_greeting(const struct reach *r)
{
        (void) r;
        return false;
}

static void on_close(struct reach *r)
{
        struct holder_end *e = end_of(r);

        e->connect_at = NEVER;
        wire_close(&e->wire);
}

static int on_ping(struct reach *r)
{
        struct holder_end *e = end_of(r);

        e->wire.client_dirty = true;
        return rpc_conn_ping(e->wire.client);
}

static uint64_t pongs(const struct reach *r)
{
        return rpc_conn_pongs(end_of(r)->wire.client);
}

static void on_down(struct reach *r, bool was_up, const char *why)
{
        struct holder_end *e = end_of(r);

        (void) was_up;
        member_down(e->holder->member, e->to, why);
}

static void on_silent(struct reach *r)
{
        struct holder_end *e = end_of(r);

        W->counts.silences++;
        member_silent(e->holder->member, e->to);
}

static const struct reach_ops reach_ops = {.connect = on_connect,
                                           .is_greeting = is_greeting,
                                           .close = on_close,
                                           .ping = on_ping,
                                           .pongs = pongs,
                                           .down = on_down,
                                           .silent = on_silent};

/* A replica that is down refuses; one that is cut off or without power does not respond. */
static void connect_to(struct holder_end *e)
{
        struct holder *h = e->holder;
        unsigned to = elsewhere_leads(e);

        e->connect_at = NEVER;
        if (e->reach.state != REACH_CONNECTING || is_in(W, &h->cut))
                return;
        if (wire_connect(&e->wire, to)) {
                reach_up(&e->reach, holder_now(h));
                member_up(h->member, e->to);
        } else if (!W->r[to].up && chance(W, 70)) {
                reach_failed(&e->reach, holder_now(h), "connection refused");
        }
}

void ends_begin(struct holder *h)
{
        for (unsigned i = 0; i < W->n_replicas; i++) {
                struct holder_end *e = &h->ends[i];

                e->holder = h;
                e->to = i;
                e->connect_at = NEVER;
                reach_init(&e->reach, &reach_ops);
                wire_init(&e->wire, &h->wake, &h->cut);
                e->wire.backs_off = true;
        }
}

void ends_close(struct holder *h)
{
        for (unsigned i = 0; i < REPLICAS_MAX; i++) {
                h->ends[i].reach.state = REACH_DOWN;
                if (h->ends[i].holder)
                        wire_close(&h->ends[i].wire);
        }
}

void ends_replace(struct holder *h, unsigned i)
{
        struct holder_end *e = &h->ends[i];

        member_at(h->member, holder_now(h));
        wire_close(&e->wire);
        reach_init(&e->reach, &reach_ops);
        e->connect_at = NEVER;
        member_replaced(h->member, i);
        member_endpoints(h->member, W->n_replicas);
        h->wake = 0;
}

void ends_listen(struct holder *h)
{
        for (unsigned i = 0; i < W->n_replicas; i++) {
                struct holder_end *e = &h->ends[i];

                if (e->connect_at <= W->now)
                        connect_to(e);
                if (wire_hear(&e->wire))
                        reach_heard(&e->reach, holder_now(h));
                if (e->wire.broken)
                        reach_failed(&e->reach, holder_now(h), "the connection broke");
                reach_run(&e->reach, holder_now(h));
        }
}

/* Sends requests, if the host does not sleep. */
void ends_ask(struct holder *h, bool awake)
{
        for (unsigned i = 0; i < W->n_replicas; i++) {
                struct holder_end *e = &h->ends[i];

                if (awake)
                        wire_say(&e->wire);
                if (wire_ask(&e->wire)) {
                        if (is_stranger(e->wire.to))
                                elsewhere_asked(h, e->wire.to);
                        else
                                aim_at(W, AT_RENEWAL, &W->r[i]);
                }
                wire_answer(&e->wire);
        }
}

nsec_t ends_next(const struct holder *h, bool awake)
{
        nsec_t next = NEVER;

        for (unsigned i = 0; i < W->n_replicas; i++) {
                const struct holder_end *e = &h->ends[i];

                if (awake) {
                        next = min_of(next, true_time_of(W, &h->clock, e->reach.when));
                        next = min_of(next, e->connect_at);
                        next = min_of(next,
                                      wire_is_due(&e->wire) ? W->now : wire_next(&e->wire));
                }
                next = min_of(next, wire_next_asked(&e->wire));
        }
        return next;
}

/* ---- operations for the member ---- */

static struct holder_end *end_at(size_t i, void *userdata)
{
        struct holder *h = userdata;

        h->wake = 0;
        return &h->ends[i];
}

static struct rpc_conn *op_rpc(size_t i, void *userdata)
{
        const struct holder *h = userdata;

        return h->ends[i].reach.state == REACH_UP ? h->ends[i].wire.client : NULL;
}

static void op_kick(size_t i, void *userdata)
{
        end_at(i, userdata)->wire.client_dirty = true;
}

static void op_want(size_t i, void *userdata)
{
        reach_want(&end_at(i, userdata)->reach, holder_now(userdata));
}

static void op_hurry(size_t i, nsec_t pace, void *userdata)
{
        reach_hurry(&end_at(i, userdata)->reach, holder_now(userdata), pace);
}

static void op_again(size_t i, void *userdata)
{
        reach_again(&end_at(i, userdata)->reach, holder_now(userdata));
}

static void op_log_in_again(size_t i, void *userdata)
{
        (void) i;
        (void) userdata; /* no login is needed here */
}

static void op_probe(size_t i, nsec_t within, void *userdata)
{
        reach_probe(&end_at(i, userdata)->reach, holder_now(userdata), within);
}

static void op_suspect(size_t i, void *userdata)
{
        reach_suspect(&end_at(i, userdata)->reach, holder_now(userdata));
}

static bool op_is_silent(size_t i, void *userdata)
{
        const struct holder *h = userdata;

        return h->ends[i].reach.silent;
}

static const char *op_name(size_t i, void *userdata)
{
        static const char *const names[REPLICAS_MAX] = {"http://r1:2379", "http://r2:2379",
                                                        "http://r3:2379", "http://r4:2379",
                                                        "http://r5:2379"};

        (void) userdata;
        return names[i];
}

/* The address may be another core's. */
static void op_at(size_t i, char *out, size_t size, void *userdata)
{
        const struct holder_end *e = &((const struct holder *) userdata)->ends[i];

        out[0] = '\0';
        if (op_rpc(i, userdata))
                snprintf(out, size, "10.0.%d.%zu:2379",
                         is_stranger(e->wire.to) && e->moved_away, i + 1);
}

static void op_soon(void *userdata)
{
        struct holder *h = userdata;

        h->wake = 0;
}

static void op_date(char text[static 32], void *userdata)
{
        (void) userdata;
        snprintf(text, 32, "day 1, %lld ms", (long long) (W->now / MSEC));
}

const struct member_ops holder_ops = {.rpc = op_rpc,
                                      .kick = op_kick,
                                      .want = op_want,
                                      .hurry = op_hurry,
                                      .again = op_again,
                                      .log_in_again = op_log_in_again,
                                      .probe = op_probe,
                                      .suspect = op_suspect,
                                      .is_silent = op_is_silent,
                                      .name = op_name,
                                      .at = op_at,
                                      .soon = op_soon,
                                      .date = op_date};
