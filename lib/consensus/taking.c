/*
 * Snapshots of our own for the disk: when one is taken, and how it gets there. (sending.c
 * encodes others, for replicas that lag.)
 *
 * A state may be large, and nothing waits for it: it is encoded in slices between other work,
 * and written by a thread that nothing else waits for, piece by piece: so only some pieces are
 * in memory, which the thread has not written yet. The states are in enum snapshot_state, and
 * why one is taken in enum snapshot_reason.
 */
#include "base/probe.h"
#include "consensus/internal.h"

#define SLOT 0 /* of replica_ops */
#define SMALL ((uint64_t) 1 << 20)
/* Entries kept behind a snapshot, for replicas that lag a little. */
#define TRAILING 4096
#define TRAILING_BYTES ((size_t) 1 << 20) /* their size after a snapshot that was requested */
/* When the disk is full, log and snapshots are trimmed sooner. */
#define BYTES_WHEN_SHORT ((uint64_t) 1 << 20)
#define AGAIN (5 * NSEC_PER_SEC)  /* after a snapshot that could not be written */
#define PAUSE (2 * NSEC_PER_MSEC) /* between slices, which thus take 1/8 of the time */
#define SLICES 8                  /* in a piece, which is as much as the disk syncs at once */
#define PIECES_MOST 2             /* that are not written yet */

int taking_to_store(struct replica *r, struct blob *data, bool install)
{
        struct store_snapshot snap = {.index = r->taking.pending.index,
                                      .term = r->taking.pending.term,
                                      .conf_index = r->taking.pending.configuration_index};
        struct raft_buffer c;
        int k;

        if (raft_configuration_encode(&r->taking.pending.configuration, &c) != 0)
                return -ENOMEM;
        snap.conf = (struct view){c.base, c.len};
        k = data ? store_save_blob(r->store, &snap, data, install)
                 : store_snapshot_begin(r->store, &snap);
        raft_free(c.base);
        return k;
}

/* A large state is not saved for a few entries, or it would be written over and over. */
static bool is_due(const struct replica *r)
{
        uint64_t n = r->applied - r->taking.saved.index, bytes = r->taking.bytes_from;

        if (boot_before(r->now, r->taking.again_at) || n == 0)
                return false;
        if (r->taking.next >= SNAPSHOT_FOR_DISK)
                return true;
        if (store_short_of_room(r->store) &&
            (bytes >= BYTES_WHEN_SHORT || n >= r->cfg.snapshot_entries / 4))
                return true;
        /* A replica that is being sent a snapshot needs the entries after it. */
        if (sending_is_on(r) && bytes < 4 * max_of(r->cfg.snapshot_bytes, r->taking.size))
                return false;
        return bytes >= max_of(r->cfg.snapshot_bytes, r->taking.size / 2) ||
               (n >= r->cfg.snapshot_entries &&
                (r->taking.size < SMALL || bytes >= r->taking.size / 8));
}

static size_t piece_size(const struct replica *r)
{
        return SLICES * r->cfg.snapshot_slice;
}

static void begin(struct replica *r)
{
        if (trim_metadata(r, r->applied, &r->taking.pending) < 0)
                return replica_fatal(r, "out of memory");
        r->taking.state = SNAPSHOT_ENCODING;
        r->taking.reason = max_of(r->taking.next, SNAPSHOT_FOR_DISK);
        r->taking.next = SNAPSHOT_FOR_NOTHING;
        r->taking.slice_at = r->now;
        r->taking.bytes_from = 0;
        r->taking.encoded = 0;
        r->ops->save(r->userdata, SLOT);
        if (taking_to_store(r, NULL, false) < 0)
                replica_fatal(r, "out of memory");
}

/* Ends the current snapshot. */
static void end(struct replica *r)
{
        r->taking.state = SNAPSHOT_IDLE;
        raft_configuration_close(&r->taking.pending.configuration);
}

/* More was encoded; all of it if @last. Returns 0 or -ENOMEM. */
static int use(struct replica *r, bool last)
{
        struct buf *piece = &r->taking.piece;
        struct blob *data;

        if (!last && buf_len(piece) + r->cfg.snapshot_slice <= piece_size(r))
                return 0;
        r->taking.encoded += buf_len(piece);
        data = blob_new(piece);
        if (!data)
                return -ENOMEM;
        freeing_add(r, data);
        if (store_snapshot_add(r->store, data) < 0)
                return -ENOMEM;
        if (!last) {
                buf_expect(piece, piece_size(r));
                return 0;
        }
        r->taking.size = r->taking.encoded;
        r->taking.state = SNAPSHOT_WRITING;
        return store_snapshot_end(r->store);
}

static bool waits_for_disk(const struct replica *r)
{
        return store_snapshot_waiting(r->store) >= PIECES_MOST;
}

static void encode(struct replica *r)
{
        int k;

        PROBE_IF(waits_for_disk(r), "a snapshot being taken waits for the disk");
        if (boot_before(r->now, r->taking.slice_at) || waits_for_disk(r))
                return;
        r->taking.slice_at = boot_add(r->now, PAUSE);
        k = r->ops->save_more(r->userdata, SLOT, r->cfg.snapshot_slice, &r->taking.piece);
        if (k <= 0)
                r->ops->save_end(r->userdata, SLOT);
        if (k >= 0)
                k = use(r, k == 0);
        if (k == -ESTALE) {
                PROBE("a snapshot being taken has to begin again");
                buf_fini(&r->taking.piece);
                r->taking.next = max_of(r->taking.next, r->taking.reason);
                end(r);
        } else if (k < 0) {
                replica_fatal(r, "out of memory");
        }
}

/* No snapshot begins while an entry is half applied, or if the state is about to be replaced.
 */
bool taking_may_begin(const struct replica *r)
{
        return !r->applying && r->incoming.state != INCOMING_LOADING && !r->dead &&
               directories_begun(r) && replica_term_of(r, r->applied) != 0;
}

static bool may_begin(const struct replica *r)
{
        return r->taking.state == SNAPSHOT_IDLE && taking_may_begin(r);
}

void taking_run(struct replica *r)
{
        if (r->taking.state == SNAPSHOT_ENCODING)
                encode(r);
        else if (may_begin(r) && is_due(r))
                begin(r);
}

struct boot_time taking_next(const struct replica *r)
{
        if (r->taking.state == SNAPSHOT_ENCODING)
                return waits_for_disk(r) ? BOOT_TIME_NEVER : r->taking.slice_at;
        return r->taking.next >= SNAPSHOT_FOR_DISK && r->applied > r->taking.saved.index &&
                               may_begin(r)
                       ? r->taking.again_at
                       : BOOT_TIME_NEVER;
}

void replica_want_snapshot(struct replica *r)
{
        r->taking.next = SNAPSHOT_TO_LET_GO;
        r->taking.again_at = r->now;
}

struct replica_saved replica_saved(const struct replica *r)
{
        return r->taking.saved;
}

/* ---- callbacks of the store ---- */

/* How many of the entries up to the snapshot at @index to keep. A snapshot that was requested
 * to defragment is meant to free space: then only a few are kept, by their size. */
static uint64_t trailing(const struct replica *r, uint64_t index)
{
        uint64_t max = min_of(r->cfg.snapshot_entries, (uint64_t) TRAILING), n = 0;
        size_t bytes = 0;

        if (r->taking.reason != SNAPSHOT_TO_LET_GO || sending_is_on(r))
                return max;
        PROBE("a snapshot that was asked for lets the log go");
        while (n < max && index - n >= r->log.first && log_get(&r->log, index - n)) {
                bytes += log_get(&r->log, index - n)->len;
                if (bytes > TRAILING_BYTES)
                        break;
                n++;
        }
        return n;
}

static void written(struct replica *r)
{
        struct raft_snapshot_metadata *m = &r->taking.pending;

        if (m->index <= r->compacted.index || m->index > sending_oldest(r)) {
                PROBE("a snapshot is written whose entries the log has dropped already");
                return end(r); /* or the next snapshot drops them */
        }
        r->taking.state = SNAPSHOT_IDLE;
        trim_to(r, m, trailing(r, m->index));
}

void taking_on_written(void *userdata, uint64_t index)
{
        struct replica *r = userdata;

        r->taking.saved.index = index;
        if (r->taking.state == SNAPSHOT_INSTALLING)
                install_done(r, index);
        else
                written(r);
        store_trim(r->store, min_of(r->log.first - 1, r->taking.saved.index));
}

void taking_on_failed(void *userdata, uint64_t index, int e)
{
        struct replica *r = userdata;

        (void) index;
        PROBE("a snapshot cannot be written");
        r->taking.saved.failures++;
        r->taking.saved.error = e;
        r->taking.next = max_of(r->taking.next, r->taking.reason);
        end(r);
        r->taking.again_at = boot_add(r->now, AGAIN);
        log_warning("Cannot write a snapshot: %s; the log grows until there is room for one.",
                    strerror(-e));
}

void taking_fini(struct replica *r)
{
        buf_fini(&r->taking.piece);
        if (r->taking.state != SNAPSHOT_IDLE)
                raft_configuration_close(&r->taking.pending.configuration);
}
