/* Recovery: reads the persisted data from the files of a directory, and makes a store that
 * continues from there. */
#include "base/crc32c.h"
#include "base/le.h"
#include "base/probe.h"
#include "store/internal.h"

static int refuse(struct store_error *err, const char *file, uint64_t at, const char *what)
{
        snprintf(err->text, sizeof(err->text),
                 "%s is damaged at byte %" PRIu64 " (%s). " STORE_WAY_OUT, file, at, what);
        return -EBADMSG;
}

static int refuse_version(struct store_error *err, const char *file, uint32_t format,
                          unsigned newest)
{
        snprintf(err->text, sizeof(err->text),
                 "%s has format %" PRIu32
                 ", but this version of tenure-core reads none above %u. Nothing was "
                 "changed. Start the version that wrote it.",
                 file, format, newest);
        return -EBADMSG;
}

static int cannot(struct store_error *err, const char *what, const char *file, int r)
{
        snprintf(err->text, sizeof(err->text), "cannot %s %s: %s%s", what, file, strerror(-r),
                 r == -EIO ? "; see the kernel's messages about the disk (journalctl -k)" : "");
        return r;
}

/* Syncs before it reads. If an earlier run of ours was killed between a write and its sync, the
 * page cache has data that a power loss would take back. */
static int read_synced(struct store *s, const char *name, size_t most, struct buf *out,
                       struct store_error *err)
{
        int r = s->disk->ops->sync(s->disk, name);

        if (r == 0)
                r = s->disk->ops->read(s->disk, name, most, out);
        return r < 0 ? cannot(err, "read", name, r) : 0;
}

struct names {
        struct store *store;
        char (*name)[32]; /* segments and snapshots */
        size_t n, cap;
        char (*half)[32]; /* files that were not completed */
        size_t n_half, half_cap;
        char large[32]; /* a file with a log's name that is too large to be one; "": none */
};

/* Files with other names are not ours, such as a copy that somebody made of one. */
static bool is_ours(const char *name)
{
        size_t at = strncmp(name, "log-", 4) == 0        ? 4
                    : strncmp(name, "snapshot-", 9) == 0 ? 9
                                                         : 0;

        return at > 0 && strlen(name) == at + 16 && strspn(name + at, "0123456789abcdef") == 16;
}

static int collect_name(const char *name, uint64_t size, void *arg)
{
        struct names *all = arg;
        unsigned seq, named;
        char end;

        if (strlen(name) >= sizeof(*all->name))
                return 0;
        if (sscanf(name, SPARE "%8x-%8x%c", &seq, &named, &end) == 2) {
                all->store->spare_seq = max_of(all->store->spare_seq, (uint32_t) seq);
                return reserve_add(all->store, name, size == named ? named : 0);
        }
        if (strncmp(name, WIP, strlen(WIP)) == 0) {
                if (array_reserve(&all->half, &all->half_cap, all->n_half + 1,
                                  sizeof(*all->half)) < 0)
                        return -ENOMEM;
                strcpy(all->half[all->n_half++], name);
                return 0;
        }
        if (!is_ours(name))
                return 0;
        if (array_reserve(&all->name, &all->cap, all->n + 1, sizeof(*all->name)) < 0)
                return -ENOMEM;
        strcpy(all->name[all->n++], name);
        if (size > SEGMENT_MOST && strncmp(name, "log-", 4) == 0)
                strcpy(all->large, name);
        return 0;
}

static void names_fini(struct names *n)
{
        free(n->name);
        free(n->half);
}

static int name_cmp(const void *a, const void *b)
{
        return strcmp(a, b);
}

static void read_marks(struct store *s, const struct buf *meta)
{
        for (size_t at = MARK_AT; at + MARK_SIZE <= buf_len(meta); at += META_SLOT) {
                const uint8_t *p = meta->data + at;
                struct mark m = {le64_get(p + 8), le64_get(p + 16),
                                 max_of(le32_get(p + 4), (uint32_t) FORMAT_RECORDS)};

                if (crc32c(0, p + 4, MARK_SIZE - 4) == le32_get(p))
                        s->marks[m.seq & 1] = m;
        }
}

static void read_directory(struct store *s, const struct buf *meta)
{
        size_t n = 0;

        for (size_t at = DIRECTORY_AT; at + DIRECTORY_SIZE <= buf_len(meta); at += META_SLOT) {
                const uint8_t *p = meta->data + at;

                if (crc32c(0, p + 4, DIRECTORY_SIZE - 4) != le32_get(p))
                        continue;
                s->id.directory = le64_get(p + 8);
                n++;
        }
        s->has_directory = n == 2;
}

/* A record of another cluster than that of `meta` is one of a descendant in the making. */
static void read_descent(struct store *s, const struct buf *meta)
{
        for (size_t at = DESCENT_AT; at + DESCENT_SIZE <= buf_len(meta); at += META_SLOT) {
                const uint8_t *p = meta->data + at;

                if (crc32c(0, p + 4, DESCENT_SIZE - 4) != le32_get(p))
                        continue;
                if (le64_get(p + 16) == s->id.cluster_id)
                        s->id.ancestor = le64_get(p + 8);
                else
                        s->rec.half_forced = true;
        }
}

static int read_meta(struct store *s, struct store_error *err)
{
        cleanup_(buf_fini) struct buf b = {0};
        int r = read_synced(s, "meta", META_MOST + 1, &b, err);

        if (r == -ENOENT) {
                err->text[0] = '\0';
                s->rec.fresh = true;
                return 0;
        }
        if (r < 0)
                return r;
        if (buf_len(&b) > META_MOST)
                return refuse(err, "meta", META_MOST, "it is too long");
        for (size_t at = 0; at + META_SIZE <= buf_len(&b); at += META_SLOT) {
                const uint8_t *p = b.data + at;

                if (crc32c(0, p + 4, META_SIZE - 4) != le32_get(p) ||
                    le64_get(p + 4) <= s->meta_version)
                        continue;
                s->format = le32_get(p + 12);
                if (s->format < FORMAT_RECORDS || s->format > s->newest_format)
                        return refuse_version(err, "meta", s->format, s->newest_format);
                s->meta_version = le64_get(p + 4);
                s->id.cluster_id = le64_get(p + 16);
                s->id.member_id = le64_get(p + 24);
                s->term = s->rec.term = le64_get(p + 32);
                s->vote = s->rec.vote = le64_get(p + 40);
        }
        read_marks(s, &b);
        read_directory(s, &b);
        read_descent(s, &b);
        if (buf_len(&b) >= LACKS_AT + LACKS_SIZE &&
            crc32c(0, b.data + LACKS_AT + 4, LACKS_SIZE - 4) == le32_get(b.data + LACKS_AT))
                s->rec.lacks = le64_get(b.data + LACKS_AT + 8);
        if (s->meta_version == 0 && all_zero(b.data, buf_len(&b))) {
                s->rec.fresh = true; /* the first start was interrupted */
                return 0;
        }
        if (s->meta_version == 0)
                return refuse(err, "meta", 0, "neither of its two slots has a valid checksum");
        if (max_of(s->marks[0].format, s->marks[1].format) > s->format)
                return refuse(err, "meta", 0, "its format is older than that of the log");
        s->rec.identity = s->id;
        return 0;
}

static int read_snapshot(struct store *s, const char *name, struct store_error *err)
{
        struct buf *b = &s->snapshot_bytes;
        uint64_t conf_len, data_len, len;
        char own_name[32];
        const uint8_t *p;
        int r;

        /* Reads the header first, then no more than the length that it gives. */
        r = read_synced(s, name, SNAPSHOT_HEADER, b, err);
        if (r < 0)
                return r;
        if (buf_len(b) < SNAPSHOT_HEADER)
                return refuse(err, name, 0, "it is too short");
        conf_len = le64_get(b->data + 32);
        data_len = le64_get(b->data + 40);
        if (__builtin_add_overflow(conf_len, data_len, &len) ||
            __builtin_add_overflow(len, SNAPSHOT_HEADER + 1, &len))
                return refuse(err, name, 32, "its length is wrong");
        buf_clear(b);
        r = s->disk->ops->read(s->disk, name, len, b);
        if (r < 0)
                return cannot(err, "read", name, r);
        if (buf_len(b) != len - 1)
                return refuse(err, name, 32, "its length is wrong");
        p = b->data;
        if (crc32c(0, p + 4, buf_len(b) - 4) != le32_get(p))
                return refuse(err, name, 0, "its checksum does not match");
        if (le32_get(p + 4) != FORMAT_SNAPSHOT)
                return refuse_version(err, name, le32_get(p + 4), FORMAT_SNAPSHOT);
        /* The latest snapshot is found by its name: a wrong name could make all later ones look
         * older. */
        snprintf(own_name, sizeof(own_name), "snapshot-%016" PRIx64, le64_get(p + 8));
        if (strcmp(name, own_name) != 0)
                return refuse(err, name, 8, "its index is not the one in its name");
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
        /* There is a gap where a snapshot was installed, which contains everything before
         * it. */
        if (rec->n_entries > 0 && rec->entries[rec->n_entries - 1].index + 1 != e->index)
                rec->n_entries = 0;
        if (array_reserve(&rec->entries, cap, rec->n_entries + 1, sizeof(*rec->entries)) < 0)
                return -ENOMEM;
        rec->entries[rec->n_entries++] = *e;
        return 0;
}

static int refuse_gap(struct store_error *err, uint64_t seq, uint64_t next)
{
        char name[32], what[80];

        store_segment_name(seq, name);
        snprintf(what, sizeof(what), "it is missing, but there is log-%016" PRIx64, next);
        return refuse(err, name, 0, what);
}

/* A power loss may bring back some files that had been removed, but not all. Their contents are
 * in the snapshot. Any other gap is a loss of data. */
static int skip_gap(struct store *s, uint64_t seq, struct store_error *err)
{
        struct store_recovered *rec = &s->rec;

        if (seq == s->next_seq)
                return 0;
        if (rec->n_entries > 0 && rec->entries[rec->n_entries - 1].index > rec->snapshot.index)
                return refuse_gap(err, s->next_seq, seq);
        rec->n_entries = 0;
        return 0;
}

/* A file says what format it has, and so does its mark, if it is one of the newest. */
static unsigned segment_format(const struct store *s, const struct segment *seg,
                               const uint8_t *file)
{
        const struct mark *m = &s->marks[seg->seq & 1];

        if (m->seq == seg->seq)
                return m->format;
        if (s->format >= FORMAT_SEALED && sealed_begin(file, seg->size, seg->seq) > 0)
                return FORMAT_SEALED;
        return all_zero(file, seg->size) ? s->format : FORMAT_RECORDS;
}

/* Reads what a file of FORMAT_RECORDS holds; s->offset is where that ends. */
static int read_records(struct store *s, struct segment *seg, const uint8_t *file, size_t *cap)
{
        struct record rec;
        size_t n;
        int r = 0;

        for (s->offset = 0; r == 0 && s->offset < seg->size; s->offset += n) {
                n = record_read(file, seg->size, s->offset, &rec);
                if (n == 0)
                        break;
                r = replay(s, &rec.entry, cap);
                seg->last = max_of(seg->last, rec.entry.index);
                s->batch = rec.batch;
        }
        return r;
}

/* Like read_records(), for a file of FORMAT_SEALED. */
static int read_sealed(struct store *s, struct segment *seg, uint8_t *file, size_t *cap,
                       struct store_error *err)
{
        struct store_entry e;
        struct view records;
        size_t n;
        int r = 0;

        s->offset = sealed_begin(file, seg->size, seg->seq);
        while (s->offset > 0 &&
               (n = sealed_read(file, seg->size, seg->seq, s->offset, &records)) > 0) {
                while (r == 0 && sealed_next(&records, &e)) {
                        r = replay(s, &e, cap);
                        seg->last = max_of(seg->last, e.index);
                }
                if (r == 0 && records.len > 0)
                        r = refuse(err, seg->name, s->offset,
                                   "what was written is not entries");
                if (r < 0)
                        return r;
                s->offset += n;
        }
        return r;
}

static int read_segment(struct store *s, const char *name, bool last, size_t *cap,
                        struct store_error *err)
{
        struct buf *b = &s->entry_bytes[s->n_entry_bytes];
        uint64_t seq = strtoull(name + 4, NULL, 16);
        struct segment *seg;
        size_t at;
        bool torn;
        int r;

        if (seq > SEQ_MOST)
                return refuse(err, name, 0, "its number is too large for a log");
        r = skip_gap(s, seq, err);
        if (r < 0)
                return r;
        r = read_synced(s, name, SEGMENT_MOST, b, err);
        if (r < 0)
                return r;
        s->n_entry_bytes++;
        seg = calloc(1, sizeof(*seg));
        if (!seg)
                return -ENOMEM;
        strcpy(seg->name, name);
        seg->seq = seq;
        seg->size = buf_len(b);
        seg->format = segment_format(s, seg, b->data);
        seg->there = true;
        STAILQ_INSERT_TAIL(&s->segments, seg, next);
        s->next_seq = seg->seq + 1;

        r = seg->format == FORMAT_RECORDS ? read_records(s, seg, b->data, cap)
                                          : read_sealed(s, seg, b->data, cap, err);
        at = s->offset;
        if (r < 0 || at >= seg->size || all_zero(b->data + at, seg->size - at))
                return r;
        torn = seg->format == FORMAT_RECORDS ? record_is_torn(b->data, seg->size, at, s->batch)
                                             : sealed_is_torn(b->data, seg->size, seg->seq, at);
        if (!torn)
                return refuse(err, name, at, "a record's checksum does not match");
        if (!last)
                return refuse(err, name, at,
                              "it ends in the middle of a record, and another segment follows");
        memset(b->data + at, 0, seg->size - at);
        s->torn.seg = seg;
        s->torn.at = at;
        s->torn.zeroes = b->data + at;
        return 0;
}

/* A segment that was only just begun holds nothing but zeroes; in that case the segment before
 * it is the last. */
static int segment_is_empty(struct store *s, const char *name, bool *ret,
                            struct store_error *err)
{
        cleanup_(buf_fini) struct buf b = {0};
        int r = read_synced(s, name, SEGMENT_MOST, &b, err);

        *ret = r == 0 && all_zero(b.data, buf_len(&b));
        return r;
}

/* Whether these are the remains of an interrupted store_init(): the first segment, with at most
 * the first record. */
static int is_first_start(struct store *s, const char *name, bool *ret, struct store_error *err)
{
        cleanup_(buf_fini) struct buf b = {0};
        char first[32];
        struct record rec;
        size_t at = 0;
        int r;

        store_segment_name(1, first);
        *ret = false;
        if (strcmp(name, first) != 0)
                return 0;
        r = read_synced(s, name, SEGMENT_MOST, &b, err);
        if (r < 0)
                return r;
        if (record_read(b.data, buf_len(&b), 0, &rec) > 0 && rec.entry.index == 1)
                at = record_size(rec.entry.data.len);
        *ret = all_zero(b.data + at, buf_len(&b) - at) ||
               (at == 0 && record_is_torn(b.data, buf_len(&b), 0, 0));
        return 0;
}

/* Whether these are the remains of an interrupted restore: its snapshot, and perhaps an empty
 * first segment. If the snapshot had a log of its own, that would not be empty. */
static int is_half_restore(struct store *s, const struct names *all, bool *ret,
                           struct store_error *err)
{
        const char *snapshot = all->name[all->n - 1];
        char first[32];

        store_segment_name(1, first);
        *ret = strncmp(snapshot, "snapshot-", 9) == 0 &&
               (all->n == 1 || (all->n == 2 && strcmp(all->name[0], first) == 0));
        if (*ret)
                strcpy(s->half_restored, snapshot);
        return *ret && all->n == 2 ? segment_is_empty(s, first, ret, err) : 0;
}

/* There are files but no meta: either a first start or a restore was interrupted, or these are
 * the remains of a replica. */
static int begin_anew(struct store *s, const struct names *all, struct store_error *err)
{
        bool first_start = false;
        int r = all->n == 1 ? is_first_start(s, all->name[0], &first_start, err) : 0;

        if (r == 0 && !first_start)
                r = is_half_restore(s, all, &s->rec.half_restored, err);
        PROBE_IF(first_start, "a first start was interrupted");
        if (r < 0 || first_start || s->rec.half_restored)
                return r;
        return refuse(err, "meta", 0, "it is missing, but there is a log");
}

static const struct mark *newest_mark(const struct store *s)
{
        return &s->marks[s->marks[1].seq > s->marks[0].seq];
}

/* A log whose last segment is missing looks like a shorter log, so this checks that the newest
 * is there. */
static int newest_is_there(struct store *s, struct store_error *err)
{
        const struct segment *newest = STAILQ_LAST(&s->segments, segment, next);
        const struct mark *m = newest_mark(s);
        char name[32];

        store_segment_name(m->seq, name);
        if (m->seq > 0 && (!newest || newest->seq < m->seq))
                return refuse(err, name, 0, "it is missing, or not a regular file");
        if (m->seq > 0 && newest->seq == m->seq && newest->size < m->size)
                return refuse(err, name, newest->size, "it ends here, but was longer");
        return 0;
}

/* Nothing is removed before there is a snapshot. The exception is a first segment without
 * entries that was too small for the first write of an earlier version of ours. */
static int is_whole(struct store *s, struct store_error *err)
{
        const struct segment *seg;
        uint64_t seq = 1;

        if (s->rec.snapshot.index > 0 || s->rec.n_entries > 0)
                return 0;
        STAILQ_FOREACH (seg, &s->segments, next)
                if (seg->seq != seq++)
                        return refuse_gap(err, seq - 1, seg->seq);
        return 0;
}

/* Whether the log has an entry at the snapshot's index, but of another term. */
static bool contradicts(const struct store_recovered *rec)
{
        uint64_t at = rec->snapshot.index;

        return at > 0 && rec->n_entries > 0 && rec->entries[0].index <= at &&
               rec->entries[rec->n_entries - 1].index >= at &&
               rec->entries[at - rec->entries[0].index].term != rec->snapshot.term;
}

/* A directory of 0.1.0 has none, unless a later version opened it before. */
static int adopt_directory(struct store *s)
{
        if (s->rec.fresh || s->has_directory || s->new_directory == 0)
                return 0;
        PROBE("a directory gets its id at a later start");
        if (s->id.directory == 0)
                s->id.directory = s->new_directory;
        s->rec.identity = s->id;
        return store_write_directory(s);
}

/* Everything was read, and is sound. Now the directory is put in order. */
static int tidy(struct store *s, const struct names *all, size_t n_logs, size_t latest)
{
        const struct segment *torn = s->torn.seg,
                             *newest = STAILQ_LAST(&s->segments, segment, next);
        int r = adopt_directory(s);

        if (r < 0)
                return r;
        if (torn) {
                PROBE_IF(torn->format == FORMAT_RECORDS, "the log ends in a torn record");
                PROBE_IF(torn->format == FORMAT_SEALED, "the log ends in a torn write");
                r = s->disk->ops->write(s->disk, torn->name, s->torn.at, s->torn.zeroes,
                                        torn->size - s->torn.at);
                if (r < 0)
                        return r;
        }
        /* One of the snapshots that a newer one has replaced becomes the room for the next. */
        for (size_t i = n_logs; i < all->n; i++)
                if (i != latest) {
                        r = s->disk->ops->rename(s->disk, all->name[i], ROOM);
                        if (r < 0)
                                return r;
                }
        if (latest != SIZE_MAX) {
                r = s->disk->ops->remove(s->disk, SECOND_ROOM);
                if (r < 0 && r != -ENOENT)
                        return r;
        }
        for (size_t i = 0; i < all->n_half; i++) {
                r = s->disk->ops->remove(s->disk, all->half[i]);
                if (r < 0)
                        return r;
        }
        /* A crash, or an earlier version of ours, left the newest segment unmarked. */
        if (!newest || newest->seq <= newest_mark(s)->seq)
                return 0;
        return store_mark(s->disk, &(struct mark){newest->seq, newest->size, newest->format});
}

static int recover(struct store *s, struct store_error *err)
{
        cleanup_(names_fini) struct names all = {.store = s};
        size_t n_logs = 0, cap = 0, latest = SIZE_MAX;
        int r;

        r = s->disk->ops->sync(s->disk, NULL);
        if (r == 0)
                r = read_meta(s, err);
        if (r < 0)
                return r;
        r = s->disk->ops->list(s->disk, collect_name, &all);
        if (r < 0)
                return r;
        if (*all.large)
                return refuse(err, all.large, SEGMENT_MOST, "it is too long");
        if (all.n > 0)
                qsort(all.name, all.n, sizeof(*all.name), name_cmp);
        if (s->rec.fresh && all.n > 0)
                return begin_anew(s, &all, err);
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
                        r = segment_is_empty(s, all.name[i + 1], &empty, err);
                        if (r < 0)
                                return r;
                        if (empty) {
                                PROBE("a start finds a file of the log that was just begun");
                                last = true;
                        }
                }
                r = read_segment(s, all.name[i], last, &cap, err);
                if (r < 0)
                        return r;
        }
        r = newest_is_there(s, err);
        if (r < 0)
                return r;
        r = is_whole(s, err);
        if (r < 0)
                return r;
        /* A log that ends before the snapshot was overtaken by an install, so only the snapshot
         * counts. */
        if (s->rec.n_entries > 0 &&
            s->rec.entries[s->rec.n_entries - 1].index < s->rec.snapshot.index) {
                PROBE("a start finds a log that ends before the snapshot");
                s->rec.n_entries = 0;
        }
        /* A log with another history up to the snapshot is void as well: a crash came before
         * that log was cut off (Raft section 7). The next write cuts it off. */
        if (contradicts(&s->rec)) {
                struct store_entry all_void = {.index = 1, .type = TYPE_TRUNCATE};

                PROBE("a start finds a log that contradicts the snapshot");
                s->rec.n_entries = 0;
                store_queue(s, &all_void);
                s->queued_index = s->rec.snapshot.index;
                if (buf_error(&s->queued) < 0)
                        return -ENOMEM;
        }
        if (s->rec.n_entries > 0 && s->rec.entries[0].index > s->rec.snapshot.index + 1)
                return refuse(err, all.name[0], 0, "the entries before it are missing");
        s->last = s->rec.n_entries > 0 ? s->rec.entries[s->rec.n_entries - 1].index
                                       : s->rec.snapshot.index;
        s->durable = s->had = s->last;
        return tidy(s, &all, n_logs, latest);
}

/* Reports the error if nothing more precise was reported. */
static void name_error(int r, struct store_error *err)
{
        if (r < 0 && err->text[0] == '\0')
                (void) cannot(err, "read", "its files", r);
}

int store_peek(struct disk *d, struct store_identity *ret, struct store_error *err)
{
        struct store s = {.disk = d, .newest_format = STORE_FORMAT};
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

int store_open(struct store **ret, struct disk *d, const struct store_config *cfg,
               const struct store_ops *ops, void *userdata, struct store_error *err)
{
        cleanup_(store_freep) struct store *s = calloc(1, sizeof(*s));
        int r;

        if (!s)
                return -ENOMEM;
        s->disk = d;
        s->ops = ops;
        s->userdata = userdata;
        STAILQ_INIT(&s->segments);
        STAILQ_INIT(&s->spares);
        STAILQ_INIT(&s->stalled);
        s->format = FORMAT_RECORDS;
        s->newest_format = cfg->format > 0 ? cfg->format : STORE_FORMAT;
        s->new_directory = cfg->directory;
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
