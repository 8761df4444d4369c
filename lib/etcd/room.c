/*
 * Large answers take turns, and those that are made whole wait for room.
 *
 * One confirmation of leadership releases any number of reads, each of which may take
 * milliseconds; so a turn of the loop spends a bounded time on them, and leaves the rest for
 * later turns. A range is made as it is read. A transaction, for example, is made whole, and
 * waits until others have read what is held for them, or were closed because they do not read.
 * It is not refused: a refused client asks again at once, and an honest one among many would
 * rarely succeed. In the queue, addresses take turns, and the connections of each address,
 * those that have waited longest first. A newcomer waits behind the others of its address even
 * if there is room for it; otherwise a client that wants much would wait as long as clients
 * arrive that want less. Small answers do not wait.
 */
#include "etcd/internal.h"

#define AGAIN (2 * NSEC_PER_MSEC)
#define TURN_STEPS 40000 /* about 2 ms */
/* Bytes of a whole answer in one step. Its memory is new, so the kernel clears each page first:
 * that takes several times as long as copying. */
#define STEP_BYTES 64
#define LOOKS 256 /* addresses checked that have no room */
/* Steps of the writes that are under way: more would delay everything behind them in the log,
 * renewals too. Writes of few steps pass; and a single write with more, such as the removal of
 * 100,000 keys, must be the only one of its kind. */
#define STEPS_ON_WAY ((size_t) 2 * STATE_TXN_STEPS_MAX)
#define STEPS_FEW 500

struct waiter {
        struct line *line;
        struct line_place place;
        struct request *q;
        size_t wants; /* bytes of room, or steps; 0: it waits only for its turn */
        void (*again)(struct request *q);
};

static void leave(struct request *q)
{
        struct waiter *w = q->data;

        line_leave(w->line, &w->place);
        q->data = NULL;
        q->drop = NULL;
        free(w);
}

static void wait_in(struct line *l, struct request *q, size_t wants,
                    void (*again)(struct request *q))
{
        struct waiter *w = calloc(1, sizeof(*w));
        struct api *a = q->api;

        if (!w)
                return request_fail(q, status_nomem);
        assert(!q->data && !q->drop);
        *w = (struct waiter){.line = l, .q = q, .wants = wants, .again = again};
        q->data = w;
        q->drop = leave;
        q->own = (struct view){0};
        line_join(l, &w->place, a->conns.turn(q->call->conn, a->conns_arg));
}

void request_spent(struct request *q, size_t steps, size_t bytes)
{
        q->api->spent += steps + bytes / STEP_BYTES;
}

static bool others_wait(struct request *q, const struct line *l)
{
        struct api *a = q->api;

        return a->has_turn != q &&
               line_n_of_address(l, a->conns.turn(q->call->conn, a->conns_arg)) > 0;
}

bool request_has_room(struct request *q, size_t bytes, void (*again)(struct request *q))
{
        if (!q->call)
                return true;
        if (!rpc_call_is_small(bytes) &&
            (others_wait(q, &q->api->room) || !rpc_call_may_hold(q->call, bytes))) {
                wait_in(&q->api->room, q, bytes, again);
                return false;
        }
        request_spent(q, 0, bytes);
        return true;
}

bool request_has_turn(struct request *q, void (*again)(struct request *q))
{
        if (q->api->spent < TURN_STEPS || !q->call)
                return true;
        wait_in(&q->api->in_turn, q, 0, again);
        return false;
}

/* Its connection may have other output to send first. */
static void go_on(struct waiter *w)
{
        struct request *q = w->q;
        struct api *a = q->api;

        bool waited = w->wants > 0;

        q->then = w->again;
        leave(q);
        if (!rpc_call_has_room(q->call))
                return rpc_call_wait(q->call);
        a->has_turn = waited ? q : NULL;
        q->then(q);
        a->has_turn = NULL;
}

/* Lets some requests proceed, until @steps are spent. Returns how many. */
static unsigned run(struct api *a, struct line *l, size_t steps)
{
        const struct api_turn *skipped = NULL;
        struct line_place *p;
        unsigned n = 0;

        for (int i = 0; i < LOOKS && a->spent < steps && (p = line_first(l)); i++) {
                struct waiter *w = container_of(p, struct waiter, place);

                if (p->turn->of == skipped) /* all addresses have been checked */
                        break;
                if (rpc_call_may_hold(w->q->call, w->wants)) {
                        line_rotate(l, 0);
                        go_on(w);
                        n++;
                } else {
                        skipped = skipped ? skipped : p->turn->of;
                        line_skip(l);
                }
        }
        return n;
}

/* ---- writes that are costly to apply ---- */

static bool may_be_on_way(const struct api *a, size_t steps)
{
        return steps <= STEPS_FEW || a->steps_on_way == 0 ||
               a->steps_on_way + steps <= STEPS_ON_WAY;
}

bool request_may_cost(struct request *q, void (*again)(struct request *q))
{
        if (!q->call || q->steps <= STEPS_FEW ||
            (!others_wait(q, &q->api->costly) && may_be_on_way(q->api, q->steps)))
                return true;
        wait_in(&q->api->costly, q, q->steps, again);
        return false;
}

void request_is_on_way(struct request *q)
{
        q->on_way = q->steps > STEPS_FEW;
        q->api->steps_on_way += q->on_way ? q->steps : 0;
}

void request_is_applied(struct request *q)
{
        q->api->steps_on_way -= q->on_way ? q->steps : 0;
        q->on_way = false;
}

static struct waiter *next_costly(const struct api *a)
{
        struct line_place *p = line_first(&a->costly);
        struct waiter *w = p ? container_of(p, struct waiter, place) : NULL;

        return w && may_be_on_way(a, w->wants) ? w : NULL;
}

static void run_costly(struct api *a)
{
        struct waiter *w;

        while (a->spent < TURN_STEPS && (w = next_costly(a))) {
                line_rotate(&a->costly, 0);
                go_on(w);
        }
}

void room_flush(struct api *a, struct boot_time now)
{
        a->spent = 0;
        if (!boot_before(now, a->room_at))
                a->room_at = run(a, &a->room, TURN_STEPS / 2) > 0 ? now : boot_add(now, AGAIN);
        /* A single one may have cost more than all that there is; the others get their half. */
        a->spent = min_of(a->spent, (size_t) TURN_STEPS / 2);
        run_costly(a);
        run(a, &a->in_turn, TURN_STEPS);
}

struct boot_time room_next(const struct api *a)
{
        if (line_first(&a->in_turn) || next_costly(a))
                return (struct boot_time){0};
        return line_first(&a->room) ? a->room_at : BOOT_TIME_NEVER;
}
