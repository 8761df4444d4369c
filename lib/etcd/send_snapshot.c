/*
 * Maintenance/Snapshot: the state as a file, in chunks, produced as fast as the client takes
 * them.
 *
 * It is the state of this replica, read without asking the others: this may be the only one
 * left. The file begins with its length, so the state is counted before it is encoded; only
 * what stands before and after the keys is held until it is sent.
 */
#include "etcd/backup.h"
#include "etcd/sliced.h"
#include "state/saver.h"

#define CHUNK ((size_t) 64 << 10)
#define QUEUED_HIGH ((size_t) 512 << 10)
#define PRESSED ((size_t) 16 << 10) /* instead of these, while too much is held */
#define CHUNKS 4                    /* chunks sent in the connection's turn */
#define RESTARTS 3

struct snapshot_call {
        struct sliced sliced;
        struct state_saver saver; /* its output is consumed as it is sent */
        bool began;               /* a part has been sent */
        bool encoded;             /* everything has been encoded */
        unsigned n_begun;
        size_t chunk; /* the largest number of bytes in a chunk */
        struct backup file;
        struct buf piece; /* what comes before the state, and after it */
        uint64_t left;    /* bytes of the file that are still to be sent */
};

static struct snapshot_call *call_of(struct sliced *s)
{
        return container_of(s, struct snapshot_call, sliced);
}

static void fini(struct sliced *s)
{
        struct snapshot_call *d = call_of(s);

        state_saver_fini(&d->saver);
        buf_fini(&d->piece);
        free(d);
}

/* Begins, or begins again if the state was replaced while it was counted. */
static void begin(struct sliced *s)
{
        struct snapshot_call *d = call_of(s);

        if (d->began || d->n_begun++ > RESTARTS)
                return request_fail(s->q, status_of(STATE_E_COMPACTED));
        state_save_start(&d->saver, core_state(s->q->api->core));
        sliced_keep(s, sizeof(*d) + state_saver_bytes(&d->saver));
}

/* ---- sending ---- */

static void send_chunk(struct snapshot_call *d, struct buf *from)
{
        Pb__SnapshotResponse p = PB__SNAPSHOT_RESPONSE__INIT;
        size_t n = min_of(buf_len(from), d->chunk);
        struct request *q = d->sliced.q;
        Pb__ResponseHeader h;

        core_header(q->api->core, &h);
        p.header = &h;
        p.version = q->api->version;
        p.blob = pb_bytes(buf_head(from), n);
        d->left -= n;
        p.remaining_bytes = d->left;
        api_send(q->api, q->call, &p.base);
        buf_consume(from, n);
        d->began = true;
}

static int encode(struct snapshot_call *d)
{
        struct buf *state = &d->saver.out;
        int r = 1;

        if (!d->encoded && buf_len(state) < d->chunk)
                r = state_save_more(&d->saver, d->chunk - buf_len(state));
        d->encoded = d->encoded || r == 0;
        return min_of(r, 0);
}

/* Returns 0 at the end, 1 if there is more, -ESTALE, or -ENOMEM. */
static int send_next(struct snapshot_call *d)
{
        struct buf *state = &d->saver.out;
        int r;

        if (buf_len(&d->piece) > 0) {
                send_chunk(d, &d->piece);
                return d->left > 0;
        }
        r = encode(d);
        if (r < 0)
                return r;
        if (buf_len(state) >= d->chunk || d->encoded) {
                backup_state(&d->file,
                             (struct view){buf_head(state), min_of(buf_len(state), d->chunk)});
                send_chunk(d, state);
        }
        if (d->encoded && buf_len(state) == 0)
                backup_end(&d->file, &d->piece);
        return buf_error(&d->piece) < 0 ? -ENOMEM : 1;
}

static void send_more(struct request *q)
{
        struct snapshot_call *d = call_of(q->data);
        int r = sliced_is_stale(&d->sliced) ? -ESTALE : 1;
        bool pressed = rpc_call_is_pressed(q->call);
        size_t high = pressed ? PRESSED + 1 : QUEUED_HIGH;

        d->chunk = pressed ? PRESSED : CHUNK;
        for (int i = 0;
             r == 1 && i < CHUNKS && rpc_call_queued_before(q->call, d->chunk) < high; i++)
                r = send_next(d);
        if (r == -ESTALE)
                return request_fail(q, status_of(STATE_E_COMPACTED));
        if (r < 0)
                return request_fail(q, status_nomem);
        if (r == 0)
                return request_finish(q);
        if (buf_len(&d->saver.out) == 0)
                buf_fini(&d->saver.out); /* it held what comes before the keys */
        sliced_drop_kept(&d->sliced);
        rpc_call_charge(q->call, sizeof(*d) + state_saver_bytes(&d->saver) + d->piece.cap);
        request_goes_on(q);
}

/* ---- preparing ---- */

static int run(struct sliced *s)
{
        struct snapshot_call *d = call_of(s);
        int r = sliced_is_stale(s) ? -ESTALE : state_save_count(&d->saver, SLICE_BYTES);

        if (r > 0)
                sliced_keep(s, sizeof(*d) + state_saver_bytes(&d->saver));
        if (r != 0)
                return min_of(r, 0);
        d->left = backup_size(d->saver.size);
        backup_begin(&d->file, d->saver.size, &d->piece);
        if (buf_error(&d->piece) < 0)
                return -ENOMEM;
        sliced_unqueue(s);
        s->q->then = send_more;
        send_more(s->q);
        return 0;
}

static const struct sliced_ops ops = {.begin = begin, .run = run, .fini = fini};

static void start(struct request *q)
{
        struct snapshot_call *d = calloc(1, sizeof(*d));

        if (!d)
                return request_fail(q, status_nomem);
        sliced_start(&d->sliced, q, &ops);
}

/* A replica that has just started knows less than its disk does, until others tell it what is
 * committed. No snapshot is better than an old one. */
void send_snapshot(struct request *q)
{
        if (!core_caught_up(q->api->core))
                return request_read(q, start);
        start(q);
}
