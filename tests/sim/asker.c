#include "asker.h"

#define PATIENCE (4 * NSEC_PER_SEC)

/* Those of this world, in the order in which they began. */
static STAILQ_HEAD(, asker) askers = STAILQ_HEAD_INITIALIZER(askers);

static void on_close(struct rpc_call *call)
{
        (void) call;
}

static void on_message(struct rpc_call *call, struct view m)
{
        struct asker *a = call->userdata;

        if (!a->all)
                buf_clear(&a->answer);
        buf_add(&a->answer, m.p, m.len);
}

static void done(struct asker *a, enum rpc_code code, bool lost)
{
        prompt_end(&a->waits);
        a->asks = false;
        a->act_at = W->now;
        a->ops->answered(a, code, (struct view){buf_head(&a->answer), buf_len(&a->answer)},
                         lost);
}

static void on_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct asker *a = call->userdata;

        (void) message;
        /* A replica that went away after the request may have carried it out. */
        done(a, code, code == RPC_UNAVAILABLE || code == RPC_UNKNOWN);
}

static const struct rpc_handler handler = {
        .on_message = on_message, .on_status = on_status, .on_close = on_close};

static void disconnect(struct asker *a)
{
        wire_close(&a->link);
        if (a->asks)
                done(a, RPC_UNAVAILABLE, true);
        a->act_at = max_of(a->act_at, W->now + some_time(W, 5 * MSEC, 100 * MSEC));
}

void asker_begin(struct asker *a, unsigned i, const struct asker_ops *ops)
{
        buf_fini(&a->answer);
        *a = (struct asker){.ops = ops, .i = i};
        STAILQ_INSERT_TAIL(&askers, a, next);
        wire_init(&a->link, NULL, &a->cut);
        a->act_at = some_time(W, 0, 2000 * MSEC);
}

static void end(struct asker *a)
{
        prompt_end(&a->waits);
        wire_close(&a->link);
        buf_fini(&a->answer);
        a->asks = false;
}

static bool does_not_hear(struct prompt *p)
{
        const struct asker *a = container_of(p, struct asker, waits);

        return a->frozen_until > W->now || is_in(W, &a->cut);
}

void asker_ask(struct asker *a, const char *path, const ProtobufCMessage *m)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct rpc_call *call;

        pb_append(&b, m);
        buf_clear(&a->answer);
        a->asks = true;
        a->asked_at = W->now;
        a->act_at = W->now + PATIENCE; /* by then it tries another replica */
        a->link.client_dirty = true;
        if (rpc_call_new(a->link.client, path, true, &handler, a, &call) < 0 ||
            rpc_call_send(call, b.data, buf_len(&b)) < 0) {
                a->link.broken = true;
                return;
        }
        rpc_call_end(call);
        prompt_begin(&a->waits, a->link.to, path, PROMPT_MAJORITY);
        a->waits.excused = does_not_hear;
}

static bool is_frozen(const struct asker *a)
{
        return a->frozen_until > W->now;
}

static void act(struct asker *a)
{
        if (a->asks) { /* it has waited long enough */
                a->link.broken = true;
        } else if (!a->link.client) {
                a->act_at = W->now + some_time(W, 20 * MSEC, 100 * MSEC);
                if (wire_connect(&a->link,
                                 (unsigned) rnd_between(&W->rnd, 0, W->n_replicas - 1)))
                        a->act_at = W->now;
        } else if (load_ended(W) && !(a->restless && W->nights > 0)) {
                a->act_at = W->now + NSEC_PER_SEC;
        } else {
                a->act_at = W->now + some_time(W, 5 * MSEC, 60 * MSEC);
                a->ops->act(a);
        }
}

static nsec_t next(const struct asker *a)
{
        if (is_frozen(a))
                return min_of(a->frozen_until, wire_next_asked(&a->link));
        return min_of(a->act_at, wire_next(&a->link));
}

static void run(struct asker *a)
{
        bool frozen = is_frozen(a);

        if (next(a) > W->now && !wire_is_due(&a->link))
                return;
        if (!frozen)
                (void) wire_hear(&a->link);
        (void) wire_ask(&a->link);
        if (!frozen && a->act_at <= W->now && !a->link.broken)
                act(a);
        if (!frozen && a->link.broken)
                disconnect(a);
        if (!is_frozen(a))
                wire_say(&a->link);
        wire_answer(&a->link);
        if (!frozen && a->link.broken)
                disconnect(a);
}

void askers_end(void)
{
        struct asker *a;

        while ((a = STAILQ_FIRST(&askers))) {
                STAILQ_REMOVE_HEAD(&askers, next);
                end(a);
        }
}

void askers_run(void)
{
        struct asker *a;

        STAILQ_FOREACH (a, &askers, next)
                run(a);
}

nsec_t askers_next(void)
{
        const struct asker *a;
        nsec_t at = NEVER;

        STAILQ_FOREACH (a, &askers, next)
                at = min_of(at, next(a));
        return at;
}
