/* Writing: the log, term and vote, snapshots. */
#include "store/store.h"

#include "base/crc32c.h"
#include "base/le.h"
#include "base/probe.h"
#include "store/internal.h"

/* A large snapshot is written in small pieces, so that other syncs wait for one piece, not for
 * all. */
#define WRITE_MAX ((size_t) 4 << 20)
/* How much memory of a write is kept for the next one. */
#define MEMORY_KEPT ((size_t) 256 << 10)

void store_segment_name(uint64_t seq, char out[static 32])
{
        snprintf(out, 32, "log-%016" PRIx64, seq);
}

void store_set_segment_size(struct store *s, size_t size)
{
        s->segment_size = size;
}

struct store *store_free(struct store *s)
{
        struct segment *seg;

        if (!s)
                return NULL;
        store_recovered_free(s);
        while ((seg = STAILQ_FIRST(&s->segments))) {
                STAILQ_REMOVE_HEAD(&s->segments, next);
                free(seg);
        }
        reserve_fini(s);
        buf_fini(&s->queued);
        buf_fini(&s->reused);
        buf_fini(&s->pieces.head);
        free(s);
        return NULL;
}

/* ---- term and vote ---- */

static int write_slot(struct store *s)
{
        uint8_t p[META_SIZE] = {0};

        s->meta_version++;
        le64_put(p + 4, s->meta_version);
        le32_put(p + 12, s->format);
        le64_put(p + 16, s->id.cluster_id);
        le64_put(p + 24, s->id.member_id);
        le64_put(p + 32, s->term);
        le64_put(p + 40, s->vote);
        le32_put(p, crc32c(0, p + 4, sizeof(p) - 4));
        return s->disk->ops->write(s->disk, "meta", (s->meta_version & 1) * META_SLOT, p,
                                   sizeof(p));
}

/* A slot that was damaged later passes for one whose write was cut short, and the one before it
 * counts. So from FORMAT_SEALED on both say the same, and no earlier version reads either. */
static int write_meta(struct store *s, uint64_t term, uint64_t vote)
{
        int r;

        s->term = term;
        s->vote = vote;
        r = write_slot(s);
        return r == 0 && s->format >= FORMAT_SEALED ? write_slot(s) : r;
}

int store_mark(struct disk *d, const struct mark *m)
{
        uint8_t p[MARK_SIZE] = {0};

        if (m->format != FORMAT_RECORDS)
                le32_put(p + 4, m->format);
        le64_put(p + 8, m->seq);
        le64_put(p + 16, m->size);
        le32_put(p, crc32c(0, p + 4, sizeof(p) - 4));
        return d->ops->write(d, "meta", (m->seq & 1) * META_SLOT + MARK_AT, p, sizeof(p));
}

int store_write_directory(struct store *s)
{
        uint8_t p[DIRECTORY_SIZE] = {0};
        int r = 0;

        le64_put(p + 8, s->id.directory);
        le32_put(p, crc32c(0, p + 4, sizeof(p) - 4));
        for (size_t at = DIRECTORY_AT; at < META_MOST && r == 0; at += META_SLOT)
                r = s->disk->ops->write(s->disk, "meta", at, p, sizeof(p));
        return r;
}

int store_init(struct store *s, struct store_identity id, uint64_t term,
               const struct store_entry *first)
{
        cleanup_(buf_fini) struct buf record = {0};
        struct segment *seg = calloc(1, sizeof(*seg));
        int r;

        if (!seg)
                return -ENOMEM;
        if (first)
                record_add(&record, 1, first);
        seg->seq = s->next_seq++;
        seg->size = s->segment_size;
        seg->format = s->format;
        seg->last = first ? first->index : 0;
        store_segment_name(seg->seq, seg->name);
        STAILQ_INSERT_TAIL(&s->segments, seg, next);
        r = buf_error(&record);
        if (r == 0)
                r = s->disk->ops->create(s->disk, seg->name, s->segment_size);
        if (r == 0 && first)
                r = s->disk->ops->write(s->disk, seg->name, 0, record.data, buf_len(&record));
        /* Both slots of `meta` exist before the first is filled, so that a missing slot is
         * never seen. */
        if (r == 0)
                r = s->disk->ops->create(s->disk, "meta", 2 * META_SLOT);
        s->id = id;
        s->id.directory = s->new_directory;
        if (r == 0)
                r = write_meta(s, term, 0);
        if (r == 0 && s->id.directory != 0)
                r = store_write_directory(s);
        if (r == 0)
                r = store_mark(s->disk, &(struct mark){seg->seq, seg->size, seg->format});
        seg->there = true;
        s->batch = 1;
        s->offset = buf_len(&record);
        s->last = s->had = s->durable = seg->last;
        return r;
}

uint64_t store_directory(const struct store *s)
{
        return s->id.directory;
}

int store_begin_again(struct store *s)
{
        int r = *s->half_restored ? s->disk->ops->remove(s->disk, s->half_restored) : 0;

        return r == -ENOENT ? 0 : r;
}

int store_vote(struct store *s, uint64_t term, uint64_t vote)
{
        return write_meta(s, term, vote);
}

unsigned store_format(const struct store *s)
{
        return s->format;
}

int store_raise_format(struct store *s, unsigned format)
{
        assert(format <= s->newest_format);
        if (format <= s->format)
                return 0;
        s->format = format;
        return write_meta(s, s->term, s->vote);
}

int store_condemn(struct store *s, uint64_t index)
{
        uint8_t p[LACKS_SIZE] = {0};

        if (index > 0 && index <= s->had) {
                PROBE("a replica has had the entries that it is said to lack");
                return STORE_E_HAD;
        }
        le64_put(p + 8, index);
        le32_put(p, crc32c(0, p + 4, sizeof(p) - 4));
        return s->disk->ops->write(s->disk, "meta", LACKS_AT, p, sizeof(p));
}

int store_descend(struct store *s, uint64_t cluster_id)
{
        uint8_t p[DESCENT_SIZE] = {0};
        int r = 0;

        s->descendant = cluster_id;
        le64_put(p + 8, s->id.cluster_id);
        le64_put(p + 16, cluster_id);
        le32_put(p, crc32c(0, p + 4, sizeof(p) - 4));
        for (size_t at = DESCENT_AT; at < META_MOST && r == 0; at += META_SLOT)
                r = s->disk->ops->write(s->disk, "meta", at, p, sizeof(p));
        return r;
}

int store_descended(struct store *s)
{
        int r = 0;

        s->id.ancestor = s->id.cluster_id;
        s->id.cluster_id = s->descendant;
        if (s->new_directory != 0) {
                s->id.directory = s->new_directory;
                r = store_write_directory(s);
        }
        return r == 0 ? write_meta(s, s->term, s->vote) : r;
}

/* ---- writing ---- */

void store_fail(struct store *s, const char *file, int r)
{
        if (s->failed)
                return;
        s->failed = true;
        s->ops->failed(s->userdata, file, r);
}

static int write_log(struct job *j)
{
        struct disk *d = j->store->disk;
        int r;

        if (*j->from) {
                r = d->ops->rename(d, j->from, j->name);
                if (r < 0)
                        return r;
                *j->from = '\0'; /* in case the job is retried */
        }
        if (j->seq > 0) {
                r = store_mark(d, &(struct mark){j->seq, j->size, j->format});
                if (r < 0)
                        return r;
        }
        return d->ops->write(d, j->name, j->offset, buf_head(&j->bytes), buf_len(&j->bytes));
}

/* Once this has failed, what follows is not written, and the end of the snapshot reports it. */
static void write_over(struct store *s, struct view v)
{
        if (s->over.r == 0)
                s->over.r = s->disk->ops->write(s->disk, ROOM, s->over.at, v.p, v.len);
        s->over.at += v.len;
}

static void write_data(struct job *j)
{
        struct view v = j->data ? blob_view(j->data) : (struct view){0};
        struct store *s = j->store;

        if (j->offset > 0) {
                s->over.at = j->offset;
                s->over.crc = 0;
                s->over.was = SIZE_MAX;
                s->over.r =
                        s->disk->ops->reserve(s->disk, ROOM, j->offset + j->size, &s->over.was);
        }
        s->over.crc = crc32c(s->over.crc, v.p, v.len);
        for (size_t n; v.len > 0; v.p += n, v.len -= n) {
                n = min_of(v.len, WRITE_MAX);
                write_over(s, (struct view){v.p, n});
        }
}

/* The head comes last, because it has the size and the checksum of the data. */
static int write_snapshot(struct job *j)
{
        struct view head = {j->bytes.data, buf_len(&j->bytes)};
        struct store *s = j->store;
        struct disk *d = s->disk;
        int r;

        write_data(j);
        le32_put(j->bytes.data,
                 crc32c_shift(crc32c(0, head.p + 4, head.len - 4), j->size) ^ s->over.crc);
        s->over.at = 0;
        write_over(s, head);
        r = s->over.r;
        if (r == 0)
                r = d->ops->cut(d, ROOM, head.len + j->size);
        if (r == 0)
                r = d->ops->rename(d, ROOM, j->name);
        if (r < 0)
                (void) !d->ops->cut(d, ROOM, s->over.was);
        return r;
}

static void run_job(struct disk_job *dj)
{
        struct job *j = container_of(dj, struct job, disk_job);
        struct disk *d = j->store->disk;

        switch (j->kind) {
        case JOB_LOG:
                j->r = write_log(j);
                break;
        case JOB_PIECE:
                write_data(j);
                break;
        case JOB_SNAPSHOT:
        case JOB_INSTALL:
                j->r = write_snapshot(j);
                break;
        case JOB_REMOVE:
                j->r = d->ops->remove(d, j->name);
                break;
        case JOB_SPARE:
        case JOB_RECYCLE:
        case JOB_ROOM:
                j->r = reserve_run(j);
                break;
        }
}

void job_drop(struct disk_job *dj)
{
        struct job *j = container_of(dj, struct job, disk_job);

        buf_fini(&j->bytes);
        blob_free(j->data);
        free(j);
}

static void trim(struct store *s)
{
        struct segment *seg, *next;

        /* Nothing is removed before there is a snapshot: a file that is missing then was
         * lost. */
        if (s->trimmed == 0)
                return;
        /* The next segment must be on the disk first, or a crash could leave no log at all. */
        while ((seg = STAILQ_FIRST(&s->segments)) && (next = STAILQ_NEXT(seg, next)) &&
               next->there && seg->last <= s->trimmed) {
                STAILQ_REMOVE_HEAD(&s->segments, next);
                reserve_recycle(s, seg);
        }
}

static void log_written(struct store *s)
{
        s->writing = false;
        STAILQ_LAST(&s->segments, segment, next)->there = true;
        trim(s);
        if (s->writing_index > s->durable) {
                s->durable = s->writing_index;
                s->ops->persisted(s->userdata, s->durable);
        }
        store_flush(s);
}

static void snapshot_written(struct store *s, const struct job *j)
{
        uint64_t was = s->snapshot_index;
        char old[32] = "";

        if (was > 0 && was != j->index)
                snprintf(old, sizeof(old), "snapshot-%016" PRIx64, was);
        s->snapshot_index = j->index;
        s->snapshot_size = buf_len(&j->bytes) + j->size;
        reserve_used(s, old, s->snapshot_size);
        if (j->kind == JOB_INSTALL) {
                s->durable = j->index; /* the snapshot is all there is */
                s->installing = false;
        }
        s->ops->snapshot_done(s->userdata, j->index);
        store_flush(s);
}

static void count(struct store *s, const struct job *j)
{
        struct store_counts *c = &s->counts;

        if (j->kind == JOB_LOG) {
                c->log_bytes += buf_len(&j->bytes);
                histogram_add_nsec(&c->syncs, &histogram_disk, j->disk_job.took);
                histogram_add_nsec(&c->commits, &histogram_disk, j->disk_job.took_in_all);
        } else if (j->kind == JOB_PIECE) {
                s->pieces.took += j->disk_job.took;
        } else if (j->kind == JOB_SNAPSHOT) {
                histogram_add_nsec(&c->snapshots, &histogram_disk,
                                   s->pieces.took + j->disk_job.took);
        } else if (j->kind == JOB_INSTALL) {
                histogram_add_nsec(&c->installs, &histogram_disk, j->disk_job.took);
        }
}

/* Keeps the memory of a write, so that the next queue need not grow from nothing. One write is
 * under way at a time, and the memory that was kept before is in use by it. */
static void keep_memory(struct store *s, struct buf *b)
{
        s->reused = *b;
        *b = (struct buf){0};
        buf_reuse(&s->reused, MEMORY_KEPT);
}

static void job_done(struct disk_job *dj)
{
        struct job *j = container_of(dj, struct job, disk_job);
        struct store *s = j->store;
        bool full = no_room(j->r) && s->keeps_aside;

        if (s->failed)
                return job_drop(dj);
        if (j->r == 0)
                count(s, j);
        switch (j->kind) {
        case JOB_LOG:
                if (full)
                        return reserve_stall(s, j);
                keep_memory(s, &j->bytes);
                if (j->r < 0)
                        store_fail(s, j->name, j->r);
                else
                        log_written(s);
                break;
        case JOB_PIECE:
                s->pieces.n_waiting--;
                break;
        case JOB_INSTALL:
        case JOB_SNAPSHOT:
                PROBE_IF(full, "a snapshot does not fit on the disk");
                PROBE_IF(full && j->kind == JOB_INSTALL,
                         "another replica's snapshot does not fit on the disk");
                if (full)
                        reserve_missed(s, buf_len(&j->bytes) + j->size);
                if (full && j->kind == JOB_INSTALL)
                        return reserve_stall(s, j);
                /* Without a snapshot of our own the log only gets longer. */
                if (j->r < 0 && j->kind == JOB_SNAPSHOT)
                        s->ops->snapshot_failed(s->userdata, j->index, j->r);
                else if (j->r < 0)
                        store_fail(s, j->name, j->r);
                else
                        snapshot_written(s, j);
                break;
        case JOB_REMOVE:
                if (j->r < 0 && j->r != -ENOENT)
                        store_fail(s, j->name, j->r);
                break;
        case JOB_SPARE:
        case JOB_RECYCLE:
        case JOB_ROOM:
                reserve_done(j);
                break;
        }
        job_drop(dj);
}

struct job *job_new(struct store *s, enum job_kind kind, const char *name)
{
        struct job *j = calloc(1, sizeof(*j));

        if (!j)
                return NULL;
        j->disk_job.run = run_job;
        j->disk_job.done = job_done;
        j->disk_job.drop = job_drop;
        j->store = s;
        j->kind = kind;
        snprintf(j->name, sizeof(j->name), "%s", name);
        return j;
}

void job_start(struct job *j)
{
        struct disk *d = j->store->disk;

        /* The log may be waiting for a spare, which must not wait behind a large snapshot. */
        if (j->kind == JOB_LOG || j->kind == JOB_SPARE)
                d->ops->submit(d, &j->disk_job);
        else
                d->ops->submit_aside(d, &j->disk_job);
}

/* Starts the next segment if there is a file for @need bytes; *@from is the name that the file
 * has so far. Returns 0, -EAGAIN if the file is yet to be made, -EFBIG if none is that large,
 * or -ENOMEM. */
static int next_segment(struct store *s, size_t need, char from[static 32])
{
        struct segment *seg;
        struct spare *sp;

        if (need > SEGMENT_MOST)
                return -EFBIG;
        sp = reserve_take(s, need);
        if (!sp)
                return -EAGAIN;
        seg = calloc(1, sizeof(*seg));
        if (seg) {
                seg->seq = s->next_seq++;
                seg->size = sp->size;
                seg->format = s->queued_format;
                store_segment_name(seg->seq, seg->name);
                memcpy(from, sp->name, sizeof(sp->name));
                s->offset = 0;
                STAILQ_INSERT_TAIL(&s->segments, seg, next);
        }
        free(sp);
        return seg ? 0 : -ENOMEM;
}

void store_queue(struct store *s, const struct store_entry *e)
{
        if (buf_len(&s->queued) == 0)
                s->queued_format = s->format;
        if (s->queued_format == FORMAT_RECORDS)
                record_add(&s->queued, s->batch + 1, e);
        else
                sealed_add(&s->queued, e);
}

static size_t queued_size(const struct store *s)
{
        size_t n = buf_len(&s->queued);

        return n == 0 || s->queued_format == FORMAT_RECORDS ? n : sealed_size(&s->queued);
}

/* Queues a record that makes all entries from @from on void. A write of such entries that is
 * under way continues, but its completion counts only for the entries before them: it says
 * nothing of their successors (I5). */
static void cut(struct store *s, uint64_t from)
{
        struct store_entry e = {.index = from, .type = TYPE_TRUNCATE};

        store_queue(s, &e);
        s->writing_index = min_of(s->writing_index, from - 1);
        s->durable = min_of(s->durable, from - 1);
}

int store_append(struct store *s, const struct store_entry *e, size_t n)
{
        if (n > 0 && e[0].index <= s->last)
                cut(s, e[0].index);
        for (size_t i = 0; i < n; i++)
                store_queue(s, &e[i]);
        if (n > 0)
                s->last = s->queued_index = e[n - 1].index;
        s->had = max_of(s->had, s->last);
        return buf_error(&s->queued);
}

void store_flush(struct store *s)
{
        struct segment *seg = STAILQ_LAST(&s->segments, segment, next);
        size_t n = queued_size(s);
        char from[32] = "";
        struct job *j;
        int r = 0;

        /* A record for which memory ran out is incomplete; the process ends because of it. */
        if (buf_error(&s->queued) < 0)
                return;
        if (n > 0 && !s->writing && !s->installing && !s->failed) {
                if (!seg || seg->format != s->queued_format || seg->size - s->offset < n)
                        r = next_segment(s, n, from);
                PROBE_IF(r == 0 && seg && seg->format != s->queued_format,
                         "the log goes on in a file of a later format");
                PROBE_IF(r == -EAGAIN, "the log waits until its next file is made");
                if (r < 0 && r != -EAGAIN)
                        return store_fail(s, "the log", r);
        }
        reserve_tend(s);
        if (n == 0 || s->writing || s->installing || s->failed || r < 0)
                return;
        seg = STAILQ_LAST(&s->segments, segment, next);
        if (seg->format == FORMAT_SEALED)
                sealed_end(&s->queued, seg->seq, s->offset);
        j = buf_error(&s->queued) == 0 ? job_new(s, JOB_LOG, seg->name) : NULL;
        if (!j)
                return store_fail(s, seg->name, -ENOMEM);
        memcpy(j->from, from, sizeof(from));
        j->seq = seg->there ? 0 : seg->seq;
        j->format = seg->format;
        j->size = seg->size;
        j->offset = s->offset;
        j->bytes = s->queued;
        s->queued = s->reused;
        s->reused = (struct buf){0};
        s->offset += buf_len(&j->bytes);
        s->batch++;
        seg->last = max_of(seg->last, s->queued_index);
        s->writing = true;
        s->writing_index = s->queued_index;
        job_start(j);
}

static void add_head(struct buf *b, const struct store_snapshot *snap)
{
        uint8_t h[SNAPSHOT_HEADER] = {0};

        le32_put(h + 4, FORMAT_SNAPSHOT);
        le64_put(h + 8, snap->index);
        le64_put(h + 16, snap->term);
        le64_put(h + 24, snap->conf_index);
        le64_put(h + 32, snap->conf.len);
        buf_add(b, h, sizeof(h));
        buf_add(b, snap->conf.p, snap->conf.len);
}

/* Queues the rest of a snapshot with @size bytes of data: all of the @data or, if that is NULL,
 * what follows the pieces. @head is empty afterwards. */
static int save(struct store *s, enum job_kind kind, struct buf *head, size_t size,
                struct blob *data)
{
        char name[32];
        uint64_t index;
        struct job *j;

        if (buf_error(head) < 0)
                return -ENOMEM;
        index = le64_get(head->data + 8);
        snprintf(name, sizeof(name), "snapshot-%016" PRIx64, index);
        j = job_new(s, kind, name);
        if (!j)
                return -ENOMEM;
        le64_put(head->data + 40, size);
        j->bytes = *head;
        *head = (struct buf){0};
        j->offset = data || size == 0 ? buf_len(&j->bytes) : 0;
        j->data = data ? blob_hold(data) : NULL;
        j->size = size;
        j->index = index;
        job_start(j);
        return 0;
}

int store_save_blob(struct store *s, const struct store_snapshot *snap, struct blob *data,
                    bool reset)
{
        cleanup_(buf_fini) struct buf head = {0};

        s->pieces.took = 0;
        add_head(&head, snap);
        if (reset) {
                /* Once the snapshot is durable, the log continues after it, and what the log
                 * held before is void. */
                cut(s, 1);
                s->last = s->queued_index = snap->index;
                s->had = max_of(s->had, s->last);
                s->installing = true;
        }
        if (buf_error(&s->queued) < 0)
                return -ENOMEM;
        return save(s, reset ? JOB_INSTALL : JOB_SNAPSHOT, &head, blob_view(data).len, data);
}

int store_snapshot_begin(struct store *s, const struct store_snapshot *snap)
{
        buf_clear(&s->pieces.head);
        add_head(&s->pieces.head, snap);
        s->pieces.size = 0;
        s->pieces.took = 0;
        return buf_error(&s->pieces.head);
}

int store_snapshot_add(struct store *s, struct blob *piece)
{
        struct job *j = job_new(s, JOB_PIECE, ROOM);

        if (!j)
                return -ENOMEM;
        j->data = blob_hold(piece);
        j->offset = s->pieces.size == 0 ? buf_len(&s->pieces.head) : 0;
        s->pieces.size += blob_view(piece).len;
        s->pieces.n_waiting++;
        job_start(j);
        return 0;
}

unsigned store_snapshot_waiting(const struct store *s)
{
        return s->pieces.n_waiting;
}

int store_snapshot_end(struct store *s)
{
        return save(s, JOB_SNAPSHOT, &s->pieces.head, s->pieces.size, NULL);
}

int store_save_snapshot(struct store *s, const struct store_snapshot *snap, bool reset)
{
        cleanup_(blob_freep) struct blob *data = NULL;
        struct buf copy = {0};

        buf_add(&copy, snap->data.p, snap->data.len);
        data = blob_new(&copy);
        return data ? store_save_blob(s, snap, data, reset) : -ENOMEM;
}

void store_trim(struct store *s, uint64_t index)
{
        s->trimmed = max_of(s->trimmed, index);
        trim(s);
}

const struct store_counts *store_counts(const struct store *s)
{
        return &s->counts;
}

uint64_t store_size(const struct store *s)
{
        uint64_t n = s->snapshot_size;
        const struct segment *seg;

        STAILQ_FOREACH (seg, &s->segments, next)
                n += seg == STAILQ_LAST(&s->segments, segment, next) ? s->offset : seg->size;
        return n;
}
