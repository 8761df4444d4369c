/*
 * Maintenance/Snapshot: the state as a file, in chunks.
 *
 * It may be large, and nothing waits for it: it is encoded in slices and sent as fast as it is
 * taken, between other work. Of this replica as it is, without asking the others: it may be all
 * that is left.
 */
#include "lease/saver.h"
#include "service/backup.h"
#include "service/internal.h"

#define SLICE ((size_t) 512 << 10)
#define CHUNK ((size_t) 64 << 10)
#define QUEUED_HIGH ((size_t) 512 << 10)
#define PAUSE (2 * NSEC_PER_MSEC)

struct dump {
        LIST_ENTRY(dump) next;
        struct request *q;
        struct state_saver saver; /* of the state that was there after so many installs */
        uint64_t installs;
        bool whole; /* `saver.out` is; what of it was sent is consumed */
        struct backup file;
        struct buf piece; /* before the state, and after it */
        uint64_t left;    /* bytes of the file */
        struct boot_time at;
};

static void dump_free(struct request *q)
{
        struct dump *d = q->data;

        LIST_REMOVE(d, next);
        state_saver_fini(&d->saver);
        buf_fini(&d->piece);
        free(d);
}

static void begin(struct dump *d)
{
        struct core *c = d->q->api->core;

        d->installs = core_installs(c);
        state_save_start(&d->saver, core_state(c));
}

/* Returns 1 while there is more to encode. */
static int encode(struct dump *d)
{
        int r = -ESTALE;

        if (d->installs == core_installs(d->q->api->core))
                r = state_save_more(&d->saver, SLICE);
        if (r == -ESTALE) {
                begin(d);
                return 1;
        }
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
        struct request *q = d->q;
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

static void dump_run(struct dump *d, struct boot_time now)
{
        struct request *q = d->q;
        int r = 0;

        if (boot_before(now, d->at))
                return;
        d->at = boot_add(now, PAUSE);
        if (!d->whole)
                r = encode(d);
        while (r == 0 && rpc_call_queued(q->call) < QUEUED_HIGH) {
                if (send_next(d)) {
                        rpc_call_finish(q->call, RPC_OK, "");
                        return request_end(q);
                }
                r = buf_error(&d->piece);
        }
        if (r < 0)
                request_fail(q, status_nomem);
}

void dumps_flush(struct api *a, struct boot_time now)
{
        struct dump *d, *next;

        LIST_FOREACH_SAFE (d, &a->dumps, next, next)
                dump_run(d, now);
}

struct boot_time dumps_next(const struct api *a)
{
        struct boot_time next = BOOT_TIME_NEVER;
        struct dump *d;

        LIST_FOREACH (d, &a->dumps, next)
                next = boot_min(next, d->at);
        return next;
}

static void start(struct request *q)
{
        struct dump *d = calloc(1, sizeof(*d));

        if (!d)
                return request_fail(q, status_nomem);
        d->q = q;
        q->data = d;
        q->drop = dump_free;
        q->gone = request_end;
        LIST_INSERT_HEAD(&q->api->dumps, d, next);
        begin(d);
}

/* One that has just started knows less than its disk does, until others tell what is committed:
 * better no snapshot than an old one. */
void dump(struct request *q)
{
        if (!core_caught_up(q->api->core))
                return request_read(q, start);
        start(q);
}
