/* Calls that read the whole state: one slice at a time, with other work in between. */
#include "etcd/sliced.h"

#include "base/probe.h"

#define PAUSE (2 * NSEC_PER_MSEC)
#define AT_ONCE 2
#define TOGETHER 4                    /* calls of a connection that run at the same time */
#define SWEEP ((struct budget){4000}) /* to free versions in one turn: about a millisecond */

void sliced_queue(struct sliced *s)
{
        struct api *a = s->q->api;

        line_join(&a->sliced, &s->place, a->conns.turn(s->q->call->conn, a->conns_arg));
}

void sliced_unqueue(struct sliced *s)
{
        line_leave(&s->q->api->sliced, &s->place);
}

static struct sliced *first(const struct api *a)
{
        struct line_place *p = line_first(&a->sliced);

        return p ? container_of(p, struct sliced, place) : NULL;
}

/* ---- charging ---- */

void sliced_drop_kept(struct sliced *s)
{
        struct api *a = s->q->api;

        if (s->kept == 0)
                return;
        a->n_sliced_keepers--;
        if (s->q->call && !s->unkept)
                rpc_call_drop_kept(s->q->call, s->kept);
        s->kept = 0;
}

bool sliced_keep(struct sliced *s, size_t bytes)
{
        struct api *a = s->q->api;

        sliced_drop_kept(s);
        s->unkept = !rpc_call_keep(s->q->call, bytes);
        if (s->unkept && a->n_sliced_keepers > 0) {
                request_fail(s->q, status_too_many);
                return false;
        }
        a->n_sliced_keepers++;
        s->kept = bytes;
        return true;
}

/* ---- slices ---- */

static void drop(struct request *q)
{
        struct sliced *s = q->data;

        sliced_drop_kept(s);
        sliced_unqueue(s);
        s->ops->fini(s);
}

static void begin(struct sliced *s)
{
        s->installs = core_installs(s->q->api->core);
        s->ops->begin(s);
}

void sliced_adopt(struct sliced *s, struct request *q, const struct sliced_ops *ops)
{
        s->q = q;
        s->ops = ops;
        s->installs = core_installs(q->api->core);
        q->data = s;
        q->drop = drop;
        q->gone = request_end;
}

void sliced_start(struct sliced *s, struct request *q, const struct sliced_ops *ops)
{
        sliced_adopt(s, q, ops);
        sliced_queue(s);
        begin(s);
}

void sliced_end(struct sliced *s)
{
        struct request *q = s->q;

        drop(q);
        q->data = NULL;
        q->drop = NULL;
        q->gone = NULL;
}

bool sliced_is_stale(const struct sliced *s)
{
        return s->installs != core_installs(s->q->api->core);
}

/* Runs a slice of the call whose turn it is. */
static void run(struct sliced *s, struct boot_time now)
{
        int r;

        s->at = boot_add(now, PAUSE);
        line_rotate(&s->q->api->sliced, TOGETHER - 1);
        r = s->ops->run(s);
        if (r == -ESTALE) {
                PROBE("a long read begins again on another state");
                begin(s);
        } else if (r < 0) {
                request_fail(s->q, status_nomem);
        }
}

/* Frees, bit by bit, what compactions have dropped and nobody reads any more. */
static void sweep(struct api *a, struct boot_time now)
{
        struct budget left = SWEEP;

        if (boot_before(now, a->sweep_at))
                return;
        a->sweep_at = boot_add(now, PAUSE);
        (void) kept_sweep(&core_state(a->core)->kv.kept, &left);
}

/* However many calls there are, only a few run in one turn of the loop. */
void sliced_flush(struct api *a, struct boot_time now)
{
        if (kept_wants_sweep(&core_state(a->core)->kv.kept))
                sweep(a, now);
        for (unsigned i = 0; i < AT_ONCE; i++) {
                struct sliced *s = first(a);

                if (!s || boot_before(now, s->at))
                        return;
                run(s, now);
        }
}

struct boot_time sliced_next(const struct api *a)
{
        const struct sliced *s = first(a);
        bool sweeps = kept_wants_sweep(&core_state(a->core)->kv.kept);

        return boot_min(s ? s->at : BOOT_TIME_NEVER, sweeps ? a->sweep_at : BOOT_TIME_NEVER);
}
