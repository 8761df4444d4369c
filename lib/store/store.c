/*
 * One thing: recovery and writing share the record format and the list of segments; they stay
 * in one file for that.
 */
#include "store/store.h"

#include <bsd/sys/queue.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/crc32c.h"
#include "base/le.h"

#define FORMAT 1
#define SEGMENT_SIZE ((size_t) 8 << 20)
#define SECTOR 512
#define RECORD_HEADER 32
#define RECORD_MAX ((uint32_t) 1 << 30)
#define META_SLOT 4096
#define META_SIZE 48
#define SNAPSHOT_HEADER 48
#define TYPE_TRUNCATE 0

struct segment {
        STAILQ_ENTRY(segment) next;
        char name[32];
        uint64_t seq;
        uint64_t last; /* highest index in it, ever */
        size_t size;
};

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

struct store {
        struct disk *disk;
        const struct store_ops *ops;
        void *userdata;
        struct store_recovered rec;
        struct buf snapshot_bytes; /* what rec.snapshot points into */
        struct buf *entry_bytes;   /* what rec.entries point into: one for each segment */
        size_t n_entry_bytes;

        struct store_identity id;
        uint64_t meta_version;
        STAILQ_HEAD(, segment) segments; /* the last one is written to */
        uint64_t next_seq;
        size_t segment_size;
        size_t offset; /* in the last segment, queued bytes included */
        uint32_t batch;
        uint64_t last;    /* the last index queued */
        uint64_t durable; /* up to here each entry is on the disk, as it is now */
        bool spare;       /* a segment behind the current one is made already */
        size_t spare_at;  /* the offset from which on to make one */
        struct buf queued;
        uint64_t queued_index;  /* when that is written, all up to here is durable... */
        uint64_t writing_index; /* ...and with the write under way, up to here */
        bool writing;
        bool failed;
        uint64_t snapshot_index;
        uint64_t snapshot_size;
};

static int refuse(struct store_error *err, const char *file, uint64_t at, const char *what)
{
        snprintf(err->text, sizeof(err->text),
                 "%s is damaged at byte %" PRIu64
                 " (%s); nothing was changed. Restore it from a backup, or remove this "
                 "replica's data directory and let it rejoin as a new member.",
                 file, at, what);
        return -EBADMSG;
}

static void segment_name(uint64_t seq, char out[static 32])
{
        snprintf(out, 32, "log-%016" PRIx64, seq);
}

/* ---- records ---- */

static void add_record(struct buf *b, uint32_t batch, const struct store_entry *e)
{
        static const uint8_t zeroes[8] = {0};
        uint8_t h[RECORD_HEADER] = {0};

        le32_put(h + 4, (uint32_t) e->data.len);
        le64_put(h + 8, e->index);
        le64_put(h + 16, e->term);
        le32_put(h + 24, batch);
        h[28] = e->type;
        h[29] = buf_len(b) == 0; /* the first of its batch */
        le32_put(h, crc32c(crc32c(0, h + 4, sizeof(h) - 4), e->data.p, e->data.len));
        buf_add(b, h, sizeof(h));
        buf_add(b, e->data.p, e->data.len);
        buf_add(b, zeroes, (8 - e->data.len % 8) % 8);
}

static size_t record_size(size_t len)
{
        return RECORD_HEADER + (len + 7) / 8 * 8;
}

/* Reads the record at @at. Returns its size, or 0 when none checks there. */
struct record {
        struct store_entry entry;
        uint32_t batch;
        bool first; /* of its batch */
};

static size_t read_record(const uint8_t *file, size_t size, size_t at, struct record *rec)
{
        const uint8_t *h = file + at;
        uint32_t len;

        if (size - at < RECORD_HEADER)
                return 0;
        len = le32_get(h + 4);
        if (len > RECORD_MAX || record_size(len) > size - at)
                return 0;
        if (crc32c(0, h + 4, RECORD_HEADER - 4 + len) != le32_get(h))
                return 0;
        rec->entry = (struct store_entry){
                .index = le64_get(h + 8),
                .term = le64_get(h + 16),
                .type = h[28],
                .data = {h + RECORD_HEADER, len},
        };
        rec->batch = le32_get(h + 24);
        rec->first = h[29] == 1;
        return rec->entry.index > 0 ? record_size(len) : 0;
}

static bool all_zero(const uint8_t *p, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (p[i])
                        return false;
        return true;
}

/* Is the record that does not check at @at one that a crash cut short? */
static bool is_torn(const uint8_t *file, size_t size, size_t at, uint32_t last_batch)
{
        uint32_t len = size - at >= RECORD_HEADER ? le32_get(file + at + 4) : 0;
        size_t end = at + RECORD_HEADER + (len <= RECORD_MAX ? len : 0);
        bool hole = false;

        if (size - at < RECORD_HEADER ||
            (!all_zero(file + at, RECORD_HEADER) && (len > RECORD_MAX || end > size)))
                return false;
        /* A sector that was not written is zero to its end. */
        for (size_t a = at; a < min_of(end, size); a = (a / SECTOR + 1) * SECTOR) {
                size_t sector_end = (a / SECTOR + 1) * SECTOR;

                hole = hole || all_zero(file + a, min_of(sector_end, size) - a);
        }
        if (!hole)
                return false;
        /* A write that follows was begun only after this one had been synced: then the disk
         * lost it, not a crash. */
        for (size_t a = (at + 8) & ~(size_t) 7; a < size; a += 8) {
                struct record rec;

                if (read_record(file, size, a, &rec) > 0 &&
                    (rec.batch > last_batch + 1 || (rec.batch == last_batch + 1 && rec.first)))
                        return false;
        }
        return true;
}

/* ---- recovery ---- */

struct names {
        char (*name)[32];
        size_t n, cap;
};

static int collect_name(const char *name, void *arg)
{
        struct names *all = arg;

        if (strncmp(name, "log-", 4) != 0 && strncmp(name, "snapshot-", 9) != 0)
                return 0;
        if (strlen(name) >= sizeof(*all->name) || strstr(name, ".tmp"))
                return 0;
        if (array_reserve(&all->name, &all->cap, all->n + 1, sizeof(*all->name)) < 0)
                return -ENOMEM;
        strcpy(all->name[all->n++], name);
        return 0;
}

static void names_fini(struct names *n)
{
        free(n->name);
}

static int name_cmp(const void *a, const void *b)
{
        return strcmp(a, b);
}

static int read_meta(struct store *s, struct store_error *err)
{
        cleanup_(buf_fini) struct buf b = {0};
        int r = s->disk->ops->read(s->disk, "meta", &b);

        if (r == -ENOENT) {
                s->rec.fresh = true;
                return 0;
        }
        if (r < 0)
                return r;
        for (size_t at = 0; at + META_SIZE <= buf_len(&b); at += META_SLOT) {
                const uint8_t *p = b.data + at;

                if (crc32c(0, p + 4, META_SIZE - 4) != le32_get(p) ||
                    le64_get(p + 4) <= s->meta_version)
                        continue;
                if (le32_get(p + 12) != FORMAT)
                        return refuse(err, "meta", at, "its format is of another version");
                s->meta_version = le64_get(p + 4);
                s->id = (struct store_identity){le64_get(p + 16), le64_get(p + 24)};
                s->rec.term = le64_get(p + 32);
                s->rec.vote = le64_get(p + 40);
        }
        if (s->meta_version == 0 && all_zero(b.data, buf_len(&b))) {
                s->rec.fresh = true; /* a first start that was cut short */
                return 0;
        }
        if (s->meta_version == 0)
                return refuse(err, "meta", 0, "neither of its two slots checks");
        s->rec.identity = s->id;
        return 0;
}

static int read_snapshot(struct store *s, const char *name, struct store_error *err)
{
        struct buf *b = &s->snapshot_bytes;
        uint64_t conf_len, data_len;
        const uint8_t *p;
        int r;

        r = s->disk->ops->read(s->disk, name, b);
        if (r < 0)
                return r;
        p = b->data;
        if (buf_len(b) < SNAPSHOT_HEADER)
                return refuse(err, name, 0, "it is too short");
        conf_len = le64_get(p + 32);
        data_len = le64_get(p + 40);
        if (conf_len > buf_len(b) || data_len > buf_len(b) ||
            SNAPSHOT_HEADER + conf_len + data_len != buf_len(b))
                return refuse(err, name, 32, "its length is wrong");
        if (crc32c(0, p + 4, buf_len(b) - 4) != le32_get(p))
                return refuse(err, name, 0, "its checksum does not match");
        if (le32_get(p + 4) != FORMAT)
                return refuse(err, name, 4, "its format is of another version");
        s->rec.snapshot = (struct store_snapshot){
                .index = le64_get(p + 8),
                .term = le64_get(p + 16),
                .conf_index = le64_get(p + 24),
                .conf = {p + SNAPSHOT_HEADER, conf_len},
                .data = {p + SNAPSHOT_HEADER + conf_len, data_len},
        };
        s->snapshot_index = s->rec.snapshot.index;
        s->snapshot_size = buf_len(b);
        return 0;
}

static int replay(struct store *s, const struct store_entry *e, size_t *cap)
{
        struct store_recovered *rec = &s->rec;

        while (rec->n_entries > 0 && rec->entries[rec->n_entries - 1].index >= e->index)
                rec->n_entries--;
        if (e->type == TYPE_TRUNCATE)
                return 0;
        /* A gap is where a snapshot was installed: what came before it is in the snapshot. */
        if (rec->n_entries > 0 && rec->entries[rec->n_entries - 1].index + 1 != e->index)
                rec->n_entries = 0;
        if (array_reserve(&rec->entries, cap, rec->n_entries + 1, sizeof(*rec->entries)) < 0)
                return -ENOMEM;
        rec->entries[rec->n_entries++] = *e;
        return 0;
}

static int read_segment(struct store *s, const char *name, bool last, size_t *cap,
                        struct store_error *err)
{
        struct buf *b = &s->entry_bytes[s->n_entry_bytes];
        struct segment *seg;
        size_t at = 0, n;
        struct record rec;
        int r;

        r = s->disk->ops->read(s->disk, name, b);
        if (r < 0)
                return r;
        s->n_entry_bytes++;
        seg = calloc(1, sizeof(*seg));
        if (!seg)
                return -ENOMEM;
        strcpy(seg->name, name);
        seg->seq = strtoull(name + 4, NULL, 16);
        seg->size = buf_len(b);
        STAILQ_INSERT_TAIL(&s->segments, seg, next);
        s->next_seq = seg->seq + 1;

        while (at < seg->size && (n = read_record(b->data, seg->size, at, &rec)) > 0) {
                r = replay(s, &rec.entry, cap);
                if (r < 0)
                        return r;
                seg->last = max_of(seg->last, rec.entry.index);
                s->batch = rec.batch;
                at += n;
        }
        s->offset = at;
        if (at >= seg->size || all_zero(b->data + at, seg->size - at))
                return 0;
        if (!is_torn(b->data, seg->size, at, s->batch))
                return refuse(err, name, at, "a record's checksum does not match");
        if (!last)
                return refuse(err, name, at,
                              "it ends in the middle of a record, and another segment follows");
        memset(b->data + at, 0, seg->size - at);
        return s->disk->ops->write(s->disk, name, at, b->data + at, seg->size - at);
}

/* A segment made in advance holds nothing but zeroes; then the one before it is the last. */
static int segment_is_empty(struct store *s, const char *name, bool *ret)
{
        cleanup_(buf_fini) struct buf b = {0};
        int r = s->disk->ops->read(s->disk, name, &b);

        *ret = r == 0 && all_zero(b.data, buf_len(&b));
        return r;
}

/* What store_init() leaves when it is cut short: no more than the first record. */
static int is_first_start(struct store *s, const char *name, bool *ret)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct record rec;
        size_t at = 0;
        int r = s->disk->ops->read(s->disk, name, &b);

        if (r < 0)
                return r;
        if (read_record(b.data, buf_len(&b), 0, &rec) > 0 && rec.entry.index == 1)
                at = record_size(rec.entry.data.len);
        *ret = all_zero(b.data + at, buf_len(&b) - at) ||
               (at == 0 && is_torn(b.data, buf_len(&b), 0, 0));
        return 0;
}

/* The log has the snapshot's last entry, of another term. */
static bool contradicts(const struct store_recovered *rec)
{
        uint64_t at = rec->snapshot.index;

        return at > 0 && rec->n_entries > 0 && rec->entries[0].index <= at &&
               rec->entries[rec->n_entries - 1].index >= at &&
               rec->entries[at - rec->entries[0].index].term != rec->snapshot.term;
}

static int recover(struct store *s, struct store_error *err)
{
        cleanup_(names_fini) struct names all = {0};
        size_t n_logs = 0, cap = 0, latest = SIZE_MAX;
        int r;

        r = read_meta(s, err);
        if (r < 0)
                return r;
        r = s->disk->ops->list(s->disk, collect_name, &all);
        if (r < 0)
                return r;
        if (s->rec.fresh && all.n > 0) {
                bool first_start = false;

                r = all.n == 1 ? is_first_start(s, all.name[0], &first_start) : 0;
                if (r < 0)
                        return r;
                return first_start
                               ? 0
                               : refuse(err, "meta", 0, "it is missing, but there is a log");
        }
        if (all.n > 0)
                qsort(all.name, all.n, sizeof(*all.name), name_cmp);
        while (n_logs < all.n && strncmp(all.name[n_logs], "log-", 4) == 0)
                n_logs++;
        if (n_logs < all.n)
                latest = all.n - 1;
        if (latest != SIZE_MAX) {
                r = read_snapshot(s, all.name[latest], err);
                if (r < 0)
                        return r;
        }
        s->entry_bytes = calloc(n_logs + 1, sizeof(*s->entry_bytes));
        if (!s->entry_bytes)
                return -ENOMEM;
        for (size_t i = 0; i < n_logs; i++) {
                bool last = i + 1 == n_logs, empty = false;

                if (i + 2 == n_logs) {
                        r = segment_is_empty(s, all.name[i + 1], &empty);
                        if (r < 0)
                                return r;
                        if (empty)
                                last = true;
                }
                r = read_segment(s, all.name[i], last, &cap, err);
                if (r < 0)
                        return r;
                if (empty) {
                        s->spare = true;
                        break;
                }
        }
        /* Snapshots that a newer one replaced. */
        for (size_t i = n_logs; i < all.n; i++)
                if (i != latest) {
                        r = s->disk->ops->remove(s->disk, all.name[i]);
                        if (r < 0)
                                return r;
                }
        /* A log that ends before the snapshot was overtaken by an install: the snapshot stands
         * alone. */
        if (s->rec.n_entries > 0 &&
            s->rec.entries[s->rec.n_entries - 1].index < s->rec.snapshot.index)
                s->rec.n_entries = 0;
        /* So was one that tells another story up to there; a crash kept it from being cut off
         * (Raft section 7). That is made up for with the next write. */
        if (contradicts(&s->rec)) {
                struct store_entry all_void = {.index = 1, .type = TYPE_TRUNCATE};

                s->rec.n_entries = 0;
                add_record(&s->queued, s->batch + 1, &all_void);
                s->queued_index = s->rec.snapshot.index;
                if (buf_error(&s->queued) < 0)
                        return -ENOMEM;
        }
        if (s->rec.n_entries > 0 && s->rec.entries[0].index > s->rec.snapshot.index + 1)
                return refuse(err, all.name[0], 0, "the entries before it are missing");
        s->last = s->rec.n_entries > 0 ? s->rec.entries[s->rec.n_entries - 1].index
                                       : s->rec.snapshot.index;
        s->durable = s->last;
        return 0;
}

/* What went wrong, where nothing more exact was said. */
static void name_error(int r, struct store_error *err)
{
        if (r < 0 && err->text[0] == '\0')
                snprintf(err->text, sizeof(err->text), "cannot read the data directory: %s",
                         strerror(-r));
}

int store_peek(struct disk *d, struct store_identity *ret, struct store_error *err)
{
        struct store s = {.disk = d};
        int r;

        err->text[0] = '\0';
        r = read_meta(&s, err);
        name_error(r, err);
        if (r == 0 && s.rec.fresh)
                return -ENOENT;
        if (r == 0)
                *ret = s.rec.identity;
        return r;
}

int store_open(struct store **ret, struct disk *d, const struct store_ops *ops, void *userdata,
               struct store_error *err)
{
        cleanup_(store_freep) struct store *s = calloc(1, sizeof(*s));
        int r;

        if (!s)
                return -ENOMEM;
        s->disk = d;
        s->ops = ops;
        s->userdata = userdata;
        STAILQ_INIT(&s->segments);
        s->next_seq = 1;
        s->segment_size = SEGMENT_SIZE;
        err->text[0] = '\0';
        r = recover(s, err);
        name_error(r, err);
        if (r < 0)
                return r;
        *ret = take_ptr(s);
        return 0;
}

void store_set_segment_size(struct store *s, size_t size)
{
        s->segment_size = size;
}

const struct store_recovered *store_recovered(const struct store *s)
{
        return &s->rec;
}

void store_recovered_free(struct store *s)
{
        for (size_t i = 0; i < s->n_entry_bytes; i++)
                buf_fini(&s->entry_bytes[i]);
        free(s->entry_bytes);
        s->entry_bytes = NULL;
        s->n_entry_bytes = 0;
        buf_fini(&s->snapshot_bytes);
        free(s->rec.entries);
        s->rec = (struct store_recovered){0};
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
                add_record(&record, 1, first);
        seg->seq = s->next_seq++;
        seg->size = s->segment_size;
        seg->last = first ? first->index : 0;
        segment_name(seg->seq, seg->name);
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
        segment_name(seq, name);
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
                segment_name(seg->seq, seg->name);
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

        add_record(&s->queued, s->batch + 1, &e);
        s->writing_index = min_of(s->writing_index, from - 1);
        s->durable = min_of(s->durable, from - 1);
}

int store_append(struct store *s, const struct store_entry *e, size_t n)
{
        if (n > 0 && e[0].index <= s->last)
                cut(s, e[0].index);
        for (size_t i = 0; i < n; i++)
                add_record(&s->queued, s->batch + 1, &e[i]);
        if (n > 0)
                s->last = s->queued_index = e[n - 1].index;
        return buf_error(&s->queued);
}

void store_flush(struct store *s)
{
        struct segment *seg = STAILQ_LAST(&s->segments, segment, next);
        size_t n = buf_len(&s->queued), at;
        char name[32];

        if (n == 0 || s->writing || s->failed)
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
