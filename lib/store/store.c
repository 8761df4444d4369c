/* Writing: the log, term and vote, snapshots. */
#include "store/store.h"

#include "base/crc32c.h"
#include "base/le.h"
#include "store/internal.h"

enum job_kind { JOB_LOG, JOB_SNAPSHOT, JOB_INSTALL, JOB_CREATE, JOB_SPARE, JOB_REMOVE };

struct job {
        struct disk_job disk_job;
        struct store *store;
        enum job_kind kind;
        char name[32];
        uint64_t offset;
        struct buf bytes;
        struct blob *data; /* of a snapshot: what follows `bytes` */
        size_t size;
        uint64_t index; /* of a snapshot */
        int r;
};

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
        buf_fini(&s->queued);
        free(s);
        return NULL;
}

/* ---- term and vote ---- */

static int write_meta(struct store *s, uint64_t term, uint64_t vote)
{
        uint8_t p[META_SIZE] = {0};

        s->meta_version++;
        le64_put(p + 4, s->meta_version);
        le32_put(p + 12, FORMAT);
        le64_put(p + 16, s->id.cluster_id);
        le64_put(p + 24, s->id.member_id);
        le64_put(p + 32, term);
        le64_put(p + 40, vote);
        le32_put(p, crc32c(0, p + 4, sizeof(p) - 4));
        return s->disk->ops->write(s->disk, "meta", (s->meta_version & 1) * META_SLOT, p,
                                   sizeof(p));
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
        seg->last = first ? first->index : 0;
        store_segment_name(seg->seq, seg->name);
        STAILQ_INSERT_TAIL(&s->segments, seg, next);
        r = buf_error(&record);
        if (r == 0)
                r = s->disk->ops->create(s->disk, seg->name, s->segment_size);
        if (r == 0 && first)
                r = s->disk->ops->write(s->disk, seg->name, 0, record.data, buf_len(&record));
        /* Both slots of `meta` are there before the first is filled, so that an empty one is
         * never seen. */
        if (r == 0)
                r = s->disk->ops->create(s->disk, "meta", 2 * META_SLOT);
        s->id = id;
        if (r == 0)
                r = write_meta(s, term, 0);
        s->batch = 1;
        s->offset = buf_len(&record);
        s->last = s->durable = seg->last;
        return r;
}

int store_vote(struct store *s, uint64_t term, uint64_t vote)
{
        return write_meta(s, term, vote);
}

/* ---- writing ---- */

static void fail(struct store *s, const char *file, int r)
{
        if (s->failed)
                return;
        s->failed = true;
        s->ops->failed(s->userdata, file, r);
}

static int write_snapshot(struct job *j)
{
        struct view v[] = {{j->bytes.data, buf_len(&j->bytes)}, blob_view(j->data)};

        le32_put(j->bytes.data, crc32c(crc32c(0, v[0].p + 4, v[0].len - 4), v[1].p, v[1].len));
        return j->store->disk->ops->replace(j->store->disk, j->name, v, ARRAY_SIZE(v));
}

static void run_job(struct disk_job *dj)
{
        struct job *j = container_of(dj, struct job, disk_job);
        struct disk *d = j->store->disk;

        switch (j->kind) {
        case JOB_LOG:
                j->r = d->ops->write(d, j->name, j->offset, j->bytes.data, buf_len(&j->bytes));
                break;
        case JOB_SNAPSHOT:
        case JOB_INSTALL:
                j->r = write_snapshot(j);
                break;
        case JOB_CREATE:
        case JOB_SPARE:
                j->r = d->ops->create(d, j->name, j->size);
                break;
        case JOB_REMOVE:
                j->r = d->ops->remove(d, j->name);
                break;
        }
}

static int submit(struct store *s, enum job_kind kind, const char *name, uint64_t offset,
                  struct buf *bytes, size_t size, uint64_t index);

static void job_drop(struct disk_job *dj)
{
        struct job *j = container_of(dj, struct job, disk_job);

        buf_fini(&j->bytes);
        blob_free(j->data);
        free(j);
}

static bool in_use(const struct store *s, const char *name)
{
        const struct segment *seg;

        STAILQ_FOREACH (seg, &s->segments, next)
                if (strcmp(seg->name, name) == 0)
                        return true;
        return false;
}

static void drop_spare(struct store *s, const char *name)
{
        s->spare = false;
        if (submit(s, JOB_REMOVE, name, 0, NULL, 0, 0) < 0)
                fail(s, name, -ENOMEM);
}

static void job_done(struct disk_job *dj)
{
        struct job *j = container_of(dj, struct job, disk_job);
        struct store *s = j->store;

        /* Without a snapshot of our own the log is longer, no more; without a spare segment its
         * next one is made when it is needed. */
        if (j->r < 0 && j->kind == JOB_SNAPSHOT && !s->failed)
                s->ops->snapshot_failed(s->userdata, j->index, j->r);
        else if (j->r < 0 && j->kind == JOB_SPARE && !in_use(s, j->name))
                drop_spare(s, j->name);
        else if (j->r < 0 && !(j->kind == JOB_REMOVE && j->r == -ENOENT))
                fail(s, j->name, j->r);
        if (j->kind == JOB_LOG)
                s->writing = false;
        if (!s->failed && j->kind == JOB_LOG) {
                if (s->writing_index > s->durable) {
                        s->durable = s->writing_index;
                        s->ops->persisted(s->userdata, s->durable);
                }
                store_flush(s);
        } else if (!s->failed && j->r == 0 &&
                   (j->kind == JOB_SNAPSHOT || j->kind == JOB_INSTALL)) {
                if (s->snapshot_index > 0 && s->snapshot_index < j->index) {
                        char old[32];

                        snprintf(old, sizeof(old), "snapshot-%016" PRIx64, s->snapshot_index);
                        if (submit(s, JOB_REMOVE, old, 0, NULL, 0, 0) < 0)
                                fail(s, old, -ENOMEM);
                }
                s->snapshot_index = j->index;
                s->snapshot_size = buf_len(&j->bytes) + blob_view(j->data).len;
                if (j->kind == JOB_INSTALL)
                        s->durable = j->index; /* and it is all there is */
                s->ops->snapshot_done(s->userdata, j->index);
        }
        job_drop(dj);
}

static int submit_job(struct store *s, enum job_kind kind, const char *name, uint64_t offset,
                      struct buf *bytes, struct blob *data, size_t size, uint64_t index)
{
        struct job *j = calloc(1, sizeof(*j));

        if (!j)
                return -ENOMEM;
        j->disk_job.run = run_job;
        j->disk_job.done = job_done;
        j->disk_job.drop = job_drop;
        j->store = s;
        j->kind = kind;
        snprintf(j->name, sizeof(j->name), "%s", name);
        j->offset = offset;
        j->size = size;
        j->index = index;
        if (bytes) {
                j->bytes = *bytes;
                *bytes = (struct buf){0};
        }
        if (data)
                j->data = blob_hold(data);
        /* The log does not wait for a snapshot of our own. */
        if (kind == JOB_SNAPSHOT)
                s->disk->ops->submit_aside(s->disk, &j->disk_job);
        else
                s->disk->ops->submit(s->disk, &j->disk_job);
        return 0;
}

static int submit(struct store *s, enum job_kind kind, const char *name, uint64_t offset,
                  struct buf *bytes, size_t size, uint64_t index)
{
        return submit_job(s, kind, name, offset, bytes, NULL, size, index);
}

static int create_segment(struct store *s, enum job_kind kind, uint64_t seq, size_t size,
                          char name[static 32])
{
        store_segment_name(seq, name);
        return submit(s, kind, name, 0, NULL, size, 0);
}

/* Starts the next segment; what is queued fits into it. Jobs run in order: it is made before it
 * is written. */
static int next_segment(struct store *s, size_t need)
{
        struct segment *seg = calloc(1, sizeof(*seg));
        int r = 0;

        if (!seg)
                return -ENOMEM;
        seg->seq = s->next_seq;
        seg->size = max_of(s->segment_size, need);
        if (s->spare && seg->size == s->segment_size)
                store_segment_name(seg->seq, seg->name);
        else
                r = create_segment(s, JOB_CREATE, seg->seq, seg->size, seg->name);
        if (r < 0) {
                free(seg);
                return r;
        }
        s->spare = false;
        s->spare_at = seg->size / 2;
        s->next_seq++;
        s->offset = 0;
        STAILQ_INSERT_TAIL(&s->segments, seg, next);
        return 0;
}

/* Queues the word that entries from @from on are void. A write of theirs that is under way goes
 * on, but stands for what comes before them only: its end says nothing of their successors
 * (I5). */
static void cut(struct store *s, uint64_t from)
{
        struct store_entry e = {.index = from, .type = TYPE_TRUNCATE};

        record_add(&s->queued, s->batch + 1, &e);
        s->writing_index = min_of(s->writing_index, from - 1);
        s->durable = min_of(s->durable, from - 1);
}

int store_append(struct store *s, const struct store_entry *e, size_t n)
{
        if (n > 0 && e[0].index <= s->last)
                cut(s, e[0].index);
        for (size_t i = 0; i < n; i++)
                record_add(&s->queued, s->batch + 1, &e[i]);
        if (n > 0)
                s->last = s->queued_index = e[n - 1].index;
        return buf_error(&s->queued);
}

void store_flush(struct store *s)
{
        struct segment *seg = STAILQ_LAST(&s->segments, segment, next);
        size_t n = buf_len(&s->queued), at;
        char name[32];

        /* Of a record that got no memory there is only a part; the process ends of it. */
        if (n == 0 || s->writing || s->failed || buf_error(&s->queued) < 0)
                return;
        if (!seg || seg->size - s->offset < n) {
                if (next_segment(s, n) < 0)
                        return fail(s, "the log", -ENOMEM);
                seg = STAILQ_LAST(&s->segments, segment, next);
        }
        at = s->offset;
        s->offset += n;
        s->batch++;
        seg->last = max_of(seg->last, s->queued_index);
        s->writing = true;
        s->writing_index = s->queued_index;
        if (submit(s, JOB_LOG, seg->name, at, &s->queued, 0, 0) < 0)
                return fail(s, seg->name, -ENOMEM);
        /* Zero-filling takes tens of milliseconds: the next one is made before it is needed.
         * Where there is no room for it, it is tried again further on. */
        if (!s->spare && s->offset > max_of(s->spare_at, seg->size / 2)) {
                if (create_segment(s, JOB_SPARE, s->next_seq, s->segment_size, name) < 0)
                        return fail(s, name, -ENOMEM);
                s->spare = true;
                s->spare_at = s->offset + s->segment_size / 16;
        }
}

int store_save_blob(struct store *s, const struct store_snapshot *snap, struct blob *data,
                    bool reset)
{
        struct buf b = {0};
        uint8_t h[SNAPSHOT_HEADER] = {0};
        char name[32];
        int r;

        le32_put(h + 4, FORMAT);
        le64_put(h + 8, snap->index);
        le64_put(h + 16, snap->term);
        le64_put(h + 24, snap->conf_index);
        le64_put(h + 32, snap->conf.len);
        le64_put(h + 40, blob_view(data).len);
        buf_add(&b, h, sizeof(h));
        buf_add(&b, snap->conf.p, snap->conf.len);
        r = buf_error(&b);
        if (r == 0) {
                snprintf(name, sizeof(name), "snapshot-%016" PRIx64, snap->index);
                r = submit_job(s, reset ? JOB_INSTALL : JOB_SNAPSHOT, name, 0, &b, data, 0,
                               snap->index);
        }
        if (r == 0 && reset) {
                /* The log goes on behind the snapshot; what it held before is void once the
                 * snapshot is durable. */
                cut(s, 1);
                s->last = s->queued_index = snap->index;
                r = buf_error(&s->queued);
        }
        buf_fini(&b);
        return r;
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
        struct segment *seg;

        while ((seg = STAILQ_FIRST(&s->segments)) && STAILQ_NEXT(seg, next) &&
               seg->last <= index) {
                STAILQ_REMOVE_HEAD(&s->segments, next);
                if (submit(s, JOB_REMOVE, seg->name, 0, NULL, 0, 0) < 0)
                        fail(s, seg->name, -ENOMEM);
                free(seg);
        }
}

uint64_t store_size(const struct store *s)
{
        uint64_t n = s->snapshot_size;
        const struct segment *seg;

        STAILQ_FOREACH (seg, &s->segments, next)
                n += seg == STAILQ_LAST(&s->segments, segment, next) ? s->offset : seg->size;
        return n;
}
