/* The formats of the log and of meta: their bytes, damage, and writes that a crash cut short.
 */
#include "../sim/world.h"
#include "base/crc32c.h"
#include "base/le.h"
#include "store/internal.h"
#include "test.h"

#define SIZE ((size_t) 32768)
#define FIRST "log-0000000000000001"
#define SECOND "log-0000000000000002"

static uint64_t persisted;

static void on_persisted(void *u, uint64_t index)
{
        (void) u;
        persisted = index;
}

static void on_snapshot(void *u, uint64_t index)
{
        (void) u;
        (void) index;
}

static void on_failed(void *u, const char *file, int r)
{
        (void) u;
        test_fail(__FILE__, __LINE__, "%s: %s", file, strerror(-r));
}

static const struct store_ops ops = {
        .persisted = on_persisted, .snapshot_done = on_snapshot, .failed = on_failed};
static const struct store_identity identity = {.cluster_id = 0x1111, .member_id = 0x2222};
static const struct store_entry first = {
        .index = 1, .term = 1, .type = 3, .data = {(const uint8_t *) "conf", 4}};

static int open_with(struct disk *d, struct store **ret, const struct store_config *cfg,
                     struct store_error *err)
{
        int r;

        *ret = NULL;
        r = store_open(ret, d, cfg, &ops, NULL, err);
        if (r == 0)
                store_set_segment_size(*ret, SIZE);
        if (r == 0 && store_recovered(*ret)->fresh)
                CHECK_EQ(store_init(*ret, identity, 1, &first), 0);
        return r;
}

static struct store *open_store(struct disk *d)
{
        struct store_error err;
        struct store *s;

        if (open_with(d, &s, &(struct store_config){.directory = 0x3333}, &err) < 0)
                test_fail(__FILE__, __LINE__, "%s", err.text);
        return s;
}

static void finish(struct disk *d)
{
        while (sim_disk_busy(d))
                sim_disk_finish(d);
}

/* One write. */
static void put(struct store *s, struct disk *d, uint64_t index, const uint8_t *data,
                size_t len, size_t n)
{
        for (size_t i = 0; i < n; i++)
                CHECK_EQ(store_append(s,
                                      &(struct store_entry){.index = index + i,
                                                            .term = 2,
                                                            .type = 1,
                                                            .data = {data, len}},
                                      1),
                         0);
        store_flush(s);
        finish(d);
        CHECK_EQ(persisted, index + n - 1);
}

/* What clients may store: bytes, zeroes, both, and what looks like the tags of a write at @at
 * of the second file, or nearby. */
static void draw(uint8_t *data, size_t len, uint64_t kind, size_t at)
{
        uint8_t tag[8], of[16];

        for (size_t i = 0; i < len; i++) {
                if (i % 8 == 0 && kind == 4) {
                        le32_put(of, (uint32_t) (rnd(0, 1) ? rnd(1, len + 600) : len));
                        le32_put(of + 4, (uint32_t) (at - rnd(0, 1) * 512));
                        le64_put(of + 8, 2);
                        memcpy(tag, of, 4);
                        le32_put(tag + 4, crc32c(0, of, sizeof(of)));
                }
                data[i] = kind == 0   ? (uint8_t) rnd(0, 255)
                          : kind == 1 ? 0
                          : kind == 2 ? (uint8_t) (i / 600 % 2)
                          : kind == 3 ? (uint8_t) (i + 1 == len)
                                      : tag[i % 8];
        }
}

/* A log of format 2 in the file SECOND, and where its writes begin; the last one is not one of
 * them, but the end. */
struct written {
        struct disk *d; /* owned */
        size_t at[12], n;
        uint64_t last[12]; /* the last entry before each of these places */
        struct buf file;   /* owned: how it is without damage */
};

#define DATA_MAX ((size_t) 6000)

static struct written write_log(void)
{
        struct written w = {.d = sim_disk_new()};
        struct store *s = open_store(w.d);
        uint8_t data[DATA_MAX];
        uint64_t index = 2;

        CHECK_EQ(store_raise_format(s, 2), 0);
        for (w.n = 0; w.n < rnd(1, 4); w.n++) {
                size_t len = rnd(0, 2) ? rnd(0, 300) : rnd(0, DATA_MAX), n = rnd(1, 3);

                n = len > 1000 ? 1 : n;
                w.last[w.n] = index - 1;
                w.at[w.n] = s->offset;
                draw(data, len, rnd(0, 4), max_of(s->offset, (size_t) 512));
                if (w.n == 0)
                        w.at[0] = 0; /* with the head of the file */
                put(s, w.d, index, data, len, n);
                index += n;
        }
        w.at[w.n] = s->offset;
        w.last[w.n] = index - 1;
        store_free(s);
        CHECK_EQ(w.d->ops->read(w.d, SECOND, SIZE_MAX, &w.file), 0);
        return w;
}

static void written_fini(struct written *w)
{
        buf_fini(&w->file);
        w->d = disk_free(w->d);
}

static void overwrite(struct disk *d, const char *name, size_t at, const void *p, size_t n)
{
        CHECK_EQ(d->ops->write(d, name, at, p, n), 0);
}

/* The last entry that a start finds; 0: it refuses the log, and has changed nothing. */
static uint64_t last_found(const struct written *w, const char *name)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        cleanup_(buf_fini) struct buf before = {0}, after = {0};
        struct store_error err;
        uint64_t last = 0;
        struct store *s;
        int r;

        sim_disk_copy(d, w->d);
        CHECK_EQ(d->ops->read(d, name, SIZE_MAX, &before), 0);
        r = open_with(d, &s, &(struct store_config){.directory = 1}, &err);
        if (r == 0) {
                last = s->last;
                store_recovered_free(s);
                put(s, d, last + 1, (const uint8_t *) "more", 4, 1);
                store_free(s);
                s = open_store(d);
                CHECK_EQ(s->last, last + 1);
                store_free(s);
                return last;
        }
        CHECK_EQ(r, -EBADMSG);
        if (!strstr(err.text, name))
                test_fail(__FILE__, __LINE__, "%s", err.text);
        CHECK_EQ(d->ops->read(d, name, SIZE_MAX, &after), 0);
        CHECK(buf_len(&before) == buf_len(&after) &&
              memcmp(before.data, after.data, buf_len(&before)) == 0);
        return 0;
}

/* A bit that flips in what was acknowledged is never taken for a torn end (I5). */
TEST(no_bit_of_an_acknowledged_write_flips_unnoticed)
{
        for (int round = 0; round < 15; round++) {
                struct written w = write_log();
                size_t from = w.at[w.n - 1], to = w.at[w.n], bits = (to - from) * 8;

                for (size_t i = 0; i < bits; i += i < 320 || bits - i < 100 ? 1 : rnd(1, 600)) {
                        uint8_t byte = w.file.data[from + i / 8] ^ (uint8_t) (1 << i % 8);

                        overwrite(w.d, SECOND, from + i / 8, &byte, 1);
                        if (last_found(&w, SECOND) != 0)
                                test_fail(__FILE__, __LINE__, "bit %zu of %zu of a write", i,
                                          bits);
                        overwrite(w.d, SECOND, from + i / 8, w.file.data + from + i / 8, 1);
                }
                written_fini(&w);
        }
}

/* Makes the sector at @at, of @size bytes, what it was before the write from @from to @to. */
static void lose_sector(const struct written *w, size_t at, size_t size, size_t from, size_t to)
{
        static const uint8_t zeroes[4096];

        from = max_of(from, at);
        overwrite(w->d, SECOND, from, zeroes, min_of(to, at + size) - from);
}

/* Whatever sectors of the last write reached the disk. */
TEST(a_torn_write_is_cut_off_and_never_refused)
{
        for (int round = 0; round < 60; round++) {
                struct written w = write_log();
                size_t from = w.at[w.n - 1], to = w.at[w.n], size = round % 3 ? 512 : 4096;
                size_t begin = from / size, n = (to - 1) / size - begin + 1;

                for (uint64_t i = 1; i < min_of((uint64_t) 1 << n, (uint64_t) 40); i++) {
                        uint64_t lost = n <= 5 ? i : rnd(1, ((uint64_t) 1 << n) - 1);

                        for (size_t k = 0; k < n; k++)
                                if (lost >> k & 1)
                                        lose_sector(&w, (begin + k) * size, size, from, to);
                        CHECK_EQ(last_found(&w, SECOND), w.last[w.n - 1]);
                        overwrite(w.d, SECOND, from, w.file.data + from, to - from);
                }
                CHECK_EQ(last_found(&w, SECOND), w.last[w.n]);
                written_fini(&w);
        }
}

/* A sector that was acknowledged and reads as zeroes is refused if anything was written after
 * it, whatever a client has stored there. */
TEST(a_lost_sector_is_refused_unless_it_is_the_last)
{
        for (int round = 0; round < 40; round++) {
                struct written w = write_log();

                for (size_t at = 0; at + 512 < w.at[w.n]; at += 512) {
                        size_t k = 0;

                        while (w.at[k + 1] <= at)
                                k++;
                        if (k + 1 == w.n)
                                break; /* of the last write */
                        lose_sector(&w, at, 512, 0, SIZE);
                        CHECK_EQ(last_found(&w, SECOND), 0);
                        overwrite(w.d, SECOND, at, w.file.data + at, 512);
                }
                written_fini(&w);
        }
}

/* What a disk returns that wrote something to the wrong place, or has not erased a file before
 * it was used again. */
TEST(a_sound_write_that_belongs_elsewhere_is_refused)
{
        static const struct {
                uint64_t seq;
                size_t away;
        } from[] = {{1, 0}, {3, 0}, {2, 512}, {2, SIZE}};

        for (size_t i = 0; i < ARRAY_SIZE(from); i++) {
                struct written w = write_log();
                cleanup_(buf_fini) struct buf b = {0};
                struct store_entry e = {.index = w.last[w.n] + 1, .term = 2, .type = 1};

                sealed_add(&b, &e);
                sealed_end(&b, from[i].seq, w.at[w.n] + from[i].away);
                overwrite(w.d, SECOND, w.at[w.n], buf_head(&b), buf_len(&b));
                CHECK_EQ(last_found(&w, SECOND), 0);
                written_fini(&w);
        }
}

/* ---- the formats ---- */

static void check_bytes(struct disk *d, const char *name, size_t at, const char *expect)
{
        cleanup_(buf_fini) struct buf b = {0};
        char text[600] = "";
        size_t n = strlen(expect) / 2;

        CHECK_EQ(d->ops->read(d, name, SIZE_MAX, &b), 0);
        CHECK(at + n < buf_len(&b));
        for (size_t i = 0; i < n; i++)
                snprintf(text + 2 * i, 3, "%02x", b.data[at + i]);
        if (strcmp(text, expect) != 0)
                test_fail(__FILE__, __LINE__, "%s at %zu has %s, not %s", name, at, text,
                          expect);
}

/* Until the format is raised, the bytes are those that 0.1.0 wrote, but for the directory's id.
 */
TEST(the_bytes_of_both_formats)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store *s = open_store(d);
        uint8_t data[600];

        memset(data, 0xdd, sizeof(data));
        CHECK_EQ(store_vote(s, 9, 3), 0);
        put(s, d, 2, data, 5, 2);
        put(s, d, 4, data, 1, 1);
        CHECK_EQ(store_condemn(s, 77), 0);
        check_bytes(d, "meta", 0,
                    "f8ef59240200000000000000010000001111000000000000"
                    "222200000000000009000000000000000300000000000000");
        check_bytes(d, "meta", 512, "000000000000000000000000000000000000000000000000");
        check_bytes(d, "meta", 1024, "ff857a1b000000004d00000000000000");
        check_bytes(d, "meta", 1536, "5a525760000000003333000000000000");
        check_bytes(d, "meta", 4096,
                    "f72b0bd60100000000000000010000001111000000000000"
                    "222200000000000001000000000000000000000000000000");
        check_bytes(d, "meta", 4096 + 512, "3455a7bb0000000001000000000000000080000000000000");
        check_bytes(d, "meta", 4096 + 1536, "5a525760000000003333000000000000");
        check_bytes(d, FIRST, 0,
                    "ac566b2c040000000100000000000000"
                    "01000000000000000100000003010000636f6e6600000000"
                    "1d6ddda3050000000200000000000000"
                    "02000000000000000200000001010000dddddddddd000000"
                    "1fdb3a1d050000000300000000000000"
                    "02000000000000000200000001000000dddddddddd000000"
                    "92eb3f2b010000000400000000000000"
                    "02000000000000000300000001010000dd00000000000000");
        CHECK_EQ(store_raise_format(s, 2), 0);
        CHECK_EQ(store_format(s), 2);
        put(s, d, 5, data, 5, 2);
        put(s, d, 7, data, sizeof(data), 1);
        check_bytes(d, "meta", 0,
                    "4f8d06340400000000000000020000001111000000000000"
                    "222200000000000009000000000000000300000000000000");
        check_bytes(d, "meta", 512, "bddad8c60200000002000000000000000080000000000000");
        check_bytes(d, "meta", 4096,
                    "03075d100300000000000000020000001111000000000000"
                    "222200000000000009000000000000000300000000000000");
        /* The head of the file, a write of two entries, and one whose data has a tag inside. */
        check_bytes(d, SECOND, 0, "73e7fbdb0200000002000000000000000000000000000000");
        check_bytes(d, SECOND, 512,
                    "400000002b5b9fa3ce2867d1"
                    "050000000000000002000000000000000105000000dddddddddd"
                    "060000000000000002000000000000000105000000dddddddddd"
                    "0000000000000000");
        check_bytes(d, SECOND, 1024,
                    "8102000046e0370a5c8d00a2"
                    "070000000000000002000000000000000158020000dddddddd");
        check_bytes(d, SECOND, 1536 - 4, "dddddddd8102000046e0370adddddddddddddddd");
        check_bytes(d, SECOND, 1024 + 641 - 4, "dddddddd000000000000000000000000");
        store_free(s);
}

/* What does not know the format of a directory refuses it, and changes nothing. */
static void check_refused(struct disk *d, unsigned newest, const char *what)
{
        cleanup_(disk_freep) struct disk *copy = sim_disk_new();
        cleanup_(buf_fini) struct buf was = {0}, is = {0};
        struct store_error err;
        struct store *s;

        sim_disk_copy(copy, d);
        CHECK_EQ(open_with(copy, &s, &(struct store_config){.directory = 1, .format = newest},
                           &err),
                 -EBADMSG);
        if (!strstr(err.text, what))
                test_fail(__FILE__, __LINE__, "%s", err.text);
        CHECK_EQ(d->ops->read(d, "meta", SIZE_MAX, &was), 0);
        CHECK_EQ(copy->ops->read(copy, "meta", SIZE_MAX, &is), 0);
        CHECK(memcmp(was.data, is.data, buf_len(&was)) == 0);
}

TEST(a_directory_of_a_later_format_is_refused)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        cleanup_(buf_fini) struct buf meta = {0};
        struct store *s = open_store(d);

        CHECK_EQ(d->ops->read(d, "meta", SIZE_MAX, &meta), 0);
        CHECK_EQ(store_raise_format(s, 2), 0);
        CHECK_EQ(store_raise_format(s, 1), 0); /* which it is not any more */
        CHECK_EQ(store_format(s), 2);
        put(s, d, 2, (const uint8_t *) "x", 1, 1);
        store_free(s);
        check_refused(d, 1, "meta has format 2, but");
        for (size_t at = 0; at < buf_len(&meta); at += 4096)
                overwrite(d, "meta", at, meta.data + at, 48);
        check_refused(d, 2, "meta is damaged at byte 0 (its format is older");
}

/* After a crash anywhere in it, the directory has one format or the other, and all entries. */
TEST(a_raise_that_was_cut_short)
{
        for (int written = 0; written < 3; written++) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();
                cleanup_(buf_fini) struct buf meta = {0};
                struct store *s = open_store(d);

                put(s, d, 2, (const uint8_t *) "x", 1, 3);
                CHECK_EQ(store_vote(s, 7, 3), 0);
                CHECK_EQ(d->ops->read(d, "meta", SIZE_MAX, &meta), 0);
                CHECK_EQ(store_raise_format(s, 2), 0);
                for (size_t slot = 0; slot < 2; slot++) {
                        int order = slot == (s->meta_version & 1); /* 1: the later */

                        if (order >= written)
                                overwrite(d, "meta", slot * 4096, meta.data + slot * 4096, 48);
                }
                store_free(s);
                s = open_store(d);
                CHECK_EQ(store_format(s), written == 0 ? 1 : 2);
                CHECK_EQ(store_recovered(s)->term, 7);
                CHECK_EQ(store_recovered(s)->vote, 3);
                CHECK_EQ(s->last, 4);
                store_recovered_free(s);
                CHECK_EQ(store_raise_format(s, 2), 0);
                put(s, d, 5, (const uint8_t *) "x", 1, 1);
                store_free(s);
                s = open_store(d);
                CHECK_EQ(store_recovered(s)->n_entries, 5);
                store_free(s);
        }
}

/* The format rises while writes are under way and queued; power is lost at any time after
 * that. */
TEST(the_format_rises_between_writes)
{
        for (int round = 0; round < 200; round++) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();
                struct store *s = open_store(d);
                uint64_t index = 2;
                uint8_t data[3000];
                struct rnd r;

                rnd_init(&r, rnd(0, UINT64_MAX));
                persisted = 1;
                for (int step = 0; step < 12; step++) {
                        draw(data, sizeof(data), rnd(0, 4), s->offset);
                        CHECK_EQ(store_append(s,
                                              &(struct store_entry){
                                                      .index = index++,
                                                      .term = 1,
                                                      .type = 1,
                                                      .data = {data, rnd(0, sizeof(data))}},
                                              1),
                                 0);
                        if (rnd(0, 1) == 0)
                                store_flush(s);
                        if (rnd(0, 2) == 0)
                                sim_disk_finish(d);
                        if (rnd(0, 5) == 0)
                                CHECK_EQ(store_raise_format(s, 2), 0);
                }
                sim_disk_crash(d, &r);
                store_free(s);
                s = open_store(d);
                CHECK(store_recovered(s)->n_entries >= persisted);
                CHECK(store_recovered(s)->n_entries < index);
                store_free(s);
        }
}

static uint64_t directory_of(struct disk *d, uint64_t offered)
{
        struct store_error err;
        struct store_identity id;
        struct store *s;

        CHECK_EQ(open_with(d, &s, &(struct store_config){.directory = offered}, &err), 0);
        store_free(s);
        CHECK_EQ(store_peek(d, &id, &err), 0);
        return id.directory;
}

/* It is made with the directory; one of 0.1.0 gets it at its first start with a later version.
 */
TEST(a_directory_keeps_its_id)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new(), *copy = sim_disk_new();
        static const uint8_t zeroes[16];

        CHECK_EQ(directory_of(d, 11), 11);
        CHECK_EQ(directory_of(d, 12), 11);
        overwrite(d, "meta", 1536 + rnd(0, 1) * 4096, zeroes, sizeof(zeroes));
        CHECK_EQ(directory_of(d, 13), 11);
        for (size_t at = 1536; at < 8192; at += 4096) {
                sim_disk_copy(copy, d);
                overwrite(copy, "meta", at, zeroes, sizeof(zeroes));
                CHECK_EQ(directory_of(copy, 14), 11); /* both slots have it again */
        }
        for (size_t at = 1536; at < 8192; at += 4096)
                overwrite(d, "meta", at, zeroes, sizeof(zeroes));
        CHECK_EQ(directory_of(d, 0), 0);
        CHECK_EQ(directory_of(d, 15), 15);
        CHECK_EQ(directory_of(d, 16), 15);
}
