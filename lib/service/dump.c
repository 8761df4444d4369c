/*
 * Maintenance/Snapshot: the state as a file, in chunks, sent as fast as they are taken.
 *
 * Of this replica as it is, without asking the others: it may be all that is left.
 */
#include "lease/saver.h"
#include "service/backup.h"
#include "service/slow.h"

#define CHUNK ((size_t) 64 << 10)
#define QUEUED_HIGH ((size_t) 512 << 10)

struct dump {
        struct slow slow;
        struct state_saver saver;
        bool whole; /* `saver.out` is; what of it was sent is consumed */
        struct backup file;
        struct buf piece; /* before the state, and after it */
        uint64_t left;    /* bytes of the file */
};

static struct dump *dump_of(struct slow *s)
{
        return container_of(s, struct dump, slow);
}

static void dump_fini(struct slow *s)
{
        struct dump *d = dump_of(s);

        state_saver_fini(&d->saver);
        buf_fini(&d->piece);
        free(d);
}

static void dump_begin(struct slow *s)
{
        state_save_start(&dump_of(s)->saver, core_state(s->q->api->core));
}

/* Returns 1 while there is more to encode. */
static int encode(struct dump *d)
{
        int r = slow_is_stale(&d->slow) ? -ESTALE : state_save_more(&d->saver, SLOW_SLICE);

        if (r != 0)
                return r;
        d->whole = true;
        d->left = backup_size(buf_len(&d->saver.out));
        backup_begin(&d->file, buf_len(&d->saver.out), &d->piece);
        return buf_error(&d->piece);
}

static void send_chunk(struct dump *d, struct buf *from)
{
        Pb__SnapshotResponse p = PB__SNAPSHOT_RESPONSE__INIT;
        size_t n = min_of(buf_len(from), CHUNK);
        struct request *q = d->slow.q;
        char version[] = API_VERSION;
        Pb__ResponseHeader h;

        core_header(q->api->core, &h);
        p.header = &h;
        p.version = version;
        p.blob = pb_bytes(buf_head(from), n);
        d->left -= n;
        p.remaining_bytes = d->left;
        api_send(q->api, q->call, &p.base);
        buf_consume(from, n);
}

/* Returns true when that was all. */
static bool send_next(struct dump *d)
{
        struct buf *state = &d->saver.out;

        if (buf_len(&d->piece) > 0) {
                send_chunk(d, &d->piece);
                return d->left == 0;
        }
        backup_state(&d->file, (struct view){buf_head(state), min_of(buf_len(state), CHUNK)});
        send_chunk(d, state);
        if (buf_len(state) == 0)
                backup_end(&d->file, &d->piece);
        return false;
}

static int dump_run(struct slow *s)
{
        struct dump *d = dump_of(s);
        int r = d->whole ? 0 : encode(d);

        while (r == 0 && rpc_call_queued_before(s->q->call, CHUNK) < QUEUED_HIGH) {
                if (send_next(d)) {
                        rpc_call_finish(s->q->call, RPC_OK, "");
                        request_end(s->q);
                        return 0;
                }
                r = buf_error(&d->piece);
        }
        return min_of(r, 0);
}

static const struct slow_ops ops = {.begin = dump_begin, .run = dump_run, .fini = dump_fini};

static void start(struct request *q)
{
        struct dump *d = calloc(1, sizeof(*d));

        if (!d)
                return request_fail(q, status_nomem);
        slow_start(&d->slow, q, &ops);
}

/* One that has just started knows less than its disk does, until others tell what is committed:
 * better no snapshot than an old one. */
void dump(struct request *q)
{
        if (!core_caught_up(q->api->core))
                return request_read(q, start);
        start(q);
}
