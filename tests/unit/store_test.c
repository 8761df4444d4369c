#include <fcntl.h>
#include <unistd.h>

#include "../sim/world.h"
#include "base/le.h"
#include "loop/loop.h"
#include "store/internal.h"
#include "test.h"

static uint64_t persisted;
static unsigned failures, snapshot_failures;

static void on_persisted(void *u, uint64_t index)
{
        (void) u;
        persisted = index;
}

static uint64_t snapshot_at;

static void on_snapshot(void *u, uint64_t index)
{
        (void) u;
        snapshot_at = index;
}

static void on_failed(void *u, const char *file, int r)
{
        (void) u;
        (void) file;
        (void) r;
        failures++;
}

static void on_snapshot_failed(void *u, uint64_t index, int r)
{
        (void) u;
        (void) index;
        (void) r;
        snapshot_failures++;
}

static const struct store_ops ops = {.persisted = on_persisted,
                                     .snapshot_done = on_snapshot,
                                     .snapshot_failed = on_snapshot_failed,
                                     .failed = on_failed};

static void append(struct store *s, uint64_t from, uint64_t to, uint64_t term, size_t size)
{
        uint8_t data[4096];

        for (uint64_t i = from; i <= to; i++) {
                memset(data, (int) (i * 31 + term), sizeof(data));
                CHECK_EQ(store_append(s,
                                      &(struct store_entry){.index = i,
                                                            .term = term,
                                                            .type = 1,
                                                            .data = {data, size}},
                                      1),
                         0);
        }
        store_flush(s);
}

static size_t segment_size; /* 0: no change */
static bool format_1;       /* the test counts bytes of that format, or jobs */
static const struct store_config config = {.directory = 5};
static const struct store_identity identity = {.cluster_id = 1, .member_id = 2};

static struct store *open_store(struct disk *d, int expect)
{
        struct store_error err;
        struct store *s = NULL;

        if (store_open(&s, d, &config, &ops, NULL, &err) != expect)
                test_fail(__FILE__, __LINE__, "%s", err.text);
        if (s && segment_size > 0)
                store_set_segment_size(s, segment_size);
        if (s)
                store_keep_aside(s);
        if (s && store_recovered(s)->fresh) {
                struct store_entry first = {
                        .index = 1, .term = 1, .type = 3, .data = {(const uint8_t *) "c", 1}};

                CHECK_EQ(store_init(s, identity, 1, &first), 0);
        }
        if (s && !format_1 && rnd(0, 1) == 0)
                CHECK_EQ(store_raise_format(s, STORE_FORMAT), 0);
        return s;
}

/* The next life, after a power loss or a kill -9. */
static struct store *next_life(struct store *s, struct disk *d, bool power_loss)
{
        struct rnd r;

        rnd_init(&r, rnd(0, UINT64_MAX));
        if (power_loss)
                sim_disk_crash(d, &r);
        else
                sim_disk_kill(d, &r);
        store_free(s);
        return open_store(d, 0);
}

/* Spare files are made, as far as there is room. */
static void settle(struct store *s, struct disk *d)
{
        store_flush(s);
        while (sim_disk_busy(d))
                sim_disk_finish(d);
}

static void finish(struct disk *d)
{
        while (sim_disk_busy(d))
                sim_disk_finish(d);
}

static void check_entries(struct store *s, uint64_t from, uint64_t to, uint64_t term,
                          size_t size)
{
        const struct store_recovered *rec = store_recovered(s);

        CHECK_EQ(rec->n_entries, to - from + 1);
        for (size_t i = 0; i < rec->n_entries; i++) {
                const struct store_entry *e = &rec->entries[i];

                CHECK_EQ(e->index, from + i);
                CHECK_EQ(e->term, term);
                CHECK_EQ(e->data.len, size);
                for (size_t k = 0; k < size; k++)
                        CHECK_EQ(e->data.p[k], (uint8_t) (e->index * 31 + term));
        }
}

TEST(the_log_is_read_back)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store *s = open_store(d, 0);

        append(s, 1, 50, 1, rnd(0, 700));
        finish(d);
        append(s, 51, 60, 1, 3);
        finish(d);
        CHECK_EQ(persisted, 60);
        CHECK_EQ(store_vote(s, 9, 3), 0);
        CHECK_EQ(store_vote(s, 10, 2), 0);
        store_free(s);
        s = open_store(d, 0);
        CHECK_EQ(store_recovered(s)->n_entries, 60);
        CHECK_EQ(store_recovered(s)->term, 10);
        CHECK_EQ(store_recovered(s)->vote, 2);
        /* A new leader overwrites the end. */
        store_recovered_free(s);
        append(s, 40, 45, 2, 8);
        finish(d);
        store_free(s);
        s = open_store(d, 0);
        CHECK_EQ(store_recovered(s)->n_entries, 45);
        CHECK_EQ(store_recovered(s)->entries[44].term, 2);
        store_free(s);
}

/* I5: whatever a crash leaves of the last write, everything that was persisted before is there,
 * and the log continues. */
TEST(a_torn_write_costs_only_itself)
{
        for (int round = 0; round < 60; round++) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();
                struct store *s = open_store(d, 0);

                append(s, 1, 20, 1, 100);
                finish(d);
                append(s, 21, 20 + rnd(1, 30), 1, rnd(1, 4000));
                s = next_life(s, d, true);
                CHECK(store_recovered(s)->n_entries >= 20);
                store_recovered_free(s);
                append(s, 21, 25, 2, 50);
                finish(d);
                store_free(s);
                s = open_store(d, 0);
                CHECK_EQ(store_recovered(s)->n_entries, 25);
                CHECK_EQ(store_recovered(s)->entries[24].term, 2);
                store_free(s);
        }
}

#define TORN_SIZE ((size_t) 4 << 20)
#define TORN_BATCH 7

/* Bytes that a client chose, behind a sector that was not written. In every second of the
 * places where a record may begin there is what could be the header of a later one, whose
 * length reaches over half of the rest. */
static uint8_t *new_torn_file(void)
{
        uint8_t *file = calloc(1, TORN_SIZE);

        CHECK(file);
        for (size_t at = 512; at < TORN_SIZE; at += 8) {
                le32_put(file + at, TORN_BATCH + 2);
                if (at % 16 == 0 && TORN_SIZE - at > 64)
                        le32_put(file + at + 4, (uint32_t) (TORN_SIZE - at) / 2);
        }
        return file;
}

/* Such a file must not be read again for each of them at the next start, and a record that is
 * there is found among them. */
TEST(a_torn_file_is_read_in_one_pass)
{
        static const uint32_t far = TORN_SIZE - 4096;
        cleanup_(freep) uint8_t *file = new_torn_file();
        cleanup_(buf_fini) struct buf b = {0};
        struct store_entry e = {.index = 9, .term = 1, .type = 1, .data = {file + 8192, 3001}};
        struct timespec t;

        CHECK(record_is_torn(file, TORN_SIZE, 0, TORN_BATCH));
        record_add(&b, TORN_BATCH + 1, &e);
        memcpy(file + far, buf_head(&b), buf_len(&b));
        CHECK(!record_is_torn(file, TORN_SIZE, 0, TORN_BATCH));
        CHECK(record_is_torn(file, TORN_SIZE, 0, TORN_BATCH + 1));
        file[far + 2000]++;
        CHECK(record_is_torn(file, TORN_SIZE, 0, TORN_BATCH));
        CHECK_EQ(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t), 0);
        CHECK(t.tv_sec < 20);
}

/* A byte that changed under an acknowledged entry is not taken for a torn end: the file is
 * named, and refused. */
TEST(damage_is_refused_by_name)
{
        format_1 = true;
        for (int round = 0; round < 40; round++) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();
                struct store *s = open_store(d, 0);
                cleanup_(buf_fini) struct buf file = {0};
                struct store_error err;
                size_t at;

                append(s, 1, 20, 1, 300);
                finish(d);
                append(s, 21, 40, 1, 300);
                finish(d);
                store_free(s);
                CHECK_EQ(d->ops->read(d, "log-0000000000000001", SIZE_MAX, &file), 0);
                /* In the first of the two writes, behind the first entry and the word that
                 * voids it; a record takes 336 bytes, the last 4 of which are padding. */
                at = 40 + 32 + rnd(0, 19) * 336 + rnd(0, 331);
                file.data[at] ^= (uint8_t) rnd(1, 255);
                CHECK_EQ(d->ops->write(d, "log-0000000000000001", at, file.data + at, 1), 0);
                s = NULL;
                CHECK_EQ(store_open(&s, d, &config, &ops, NULL, &err), -EBADMSG);
                CHECK(strstr(err.text, "log-0000000000000001 is damaged"));
                store_free(s);
        }
}

TEST(a_snapshot_replaces_what_came_before)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store *s = open_store(d, 0);
        struct store_snapshot snap = {.index = 100,
                                      .term = 3,
                                      .conf_index = 1,
                                      .conf = {(const uint8_t *) "conf", 4},
                                      .data = {(const uint8_t *) "state", 5}};

        append(s, 1, 30, 1, 10);
        finish(d);
        CHECK_EQ(store_save_snapshot(s, &snap, true), 0);
        append(s, 101, 105, 3, 10);
        finish(d);
        store_free(s);
        s = open_store(d, 0);
        CHECK_EQ(store_recovered(s)->snapshot.index, 100);
        CHECK_EQ(store_recovered(s)->snapshot.data.len, 5);
        check_entries(s, 101, 105, 3, 10);
        store_free(s);
        CHECK_EQ(failures, 0);
}

/* By hand, or by another program. The next snapshot would have counted as older than this one
 * (found by the fuzzer of files). */
TEST(a_snapshot_under_another_name_is_refused)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store *s = open_store(d, 0);
        struct store_snapshot snap = {.index = 20,
                                      .term = 1,
                                      .conf_index = 1,
                                      .conf = {(const uint8_t *) "conf", 4},
                                      .data = {(const uint8_t *) "state", 5}};
        struct store_error err;

        append(s, 1, 30, 1, 10);
        finish(d);
        CHECK_EQ(store_save_snapshot(s, &snap, false), 0);
        finish(d);
        store_free(s);
        CHECK_EQ(d->ops->rename(d, "snapshot-0000000000000014", "snapshot-0000000000000019"),
                 0);
        s = NULL;
        CHECK_EQ(store_open(&s, d, &config, &ops, NULL, &err), -EBADMSG);
        CHECK(strstr(err.text, "snapshot-0000000000000019 is damaged"));
        store_free(s);
}

/* A first start that is cut short anywhere is a first start again. */
TEST(a_first_start_that_was_cut_short_begins_again)
{
        struct store_entry first = {
                .index = 1, .term = 1, .type = 3, .data = {(const uint8_t *) "conf", 4}};
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store_error err;
        struct store *s = NULL;

        CHECK_EQ(store_open(&s, d, &config, &ops, NULL, &err), 0);
        CHECK_EQ(store_init(s, identity, 1, &first), 0);
        store_free(s);
        CHECK_EQ(d->ops->remove(d, "meta"), 0);
        CHECK_EQ(store_open(&s, d, &config, &ops, NULL, &err), 0);
        CHECK(store_recovered(s)->fresh);
        CHECK_EQ(store_init(s, identity, 1, &first), 0);
        append(s, 2, 9, 1, 10);
        finish(d);
        store_free(s);
        /* But a log with content and no `meta` is no first start. */
        CHECK_EQ(d->ops->remove(d, "meta"), 0);
        s = NULL;
        CHECK_EQ(store_open(&s, d, &config, &ops, NULL, &err), -EBADMSG);
        CHECK(strstr(err.text, "meta is damaged"));
}

/* A restore writes its snapshot first, and the identity last: if it is interrupted, it is
 * repeated, perhaps with another snapshot, and no start takes it for a new replica. */
TEST(a_restore_that_was_cut_short_is_done_again)
{
        struct store_snapshot snap = {.index = 20,
                                      .term = 1,
                                      .conf_index = 1,
                                      .conf = {(const uint8_t *) "conf", 4},
                                      .data = {(const uint8_t *) "state", 5}};
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store_error err;
        struct store *s = NULL;

        CHECK_EQ(store_open(&s, d, &config, &ops, NULL, &err), 0);
        CHECK(!store_recovered(s)->half_restored);
        CHECK_EQ(store_save_snapshot(s, &snap, false), 0);
        finish(d);
        store_free(s);
        s = NULL;
        CHECK_EQ(store_open(&s, d, &config, &ops, NULL, &err), 0);
        CHECK(store_recovered(s)->fresh && store_recovered(s)->half_restored);
        CHECK_EQ(store_begin_again(s), 0);
        snap.index = 10; /* the rest would count as later */
        CHECK_EQ(store_save_snapshot(s, &snap, false), 0);
        finish(d);
        CHECK_EQ(store_init(s, identity, 1, NULL), 0);
        store_free(s);
        s = NULL;
        CHECK_EQ(store_open(&s, d, &config, &ops, NULL, &err), 0);
        CHECK(!store_recovered(s)->fresh && !store_recovered(s)->half_restored);
        CHECK_EQ(store_recovered(s)->snapshot.index, 10);
        store_free(s);
        /* Up to the last step. */
        CHECK_EQ(d->ops->remove(d, "meta"), 0);
        s = NULL;
        CHECK_EQ(store_open(&s, d, &config, &ops, NULL, &err), 0);
        CHECK(store_recovered(s)->half_restored);
        CHECK_EQ(store_begin_again(s), 0);
        store_free(s);
        s = NULL;
        CHECK_EQ(store_open(&s, d, &config, &ops, NULL, &err), 0);
        CHECK(store_recovered(s)->fresh && !store_recovered(s)->half_restored);
        store_free(s);
}

static void check_identity(struct store *s, uint64_t cluster_id, uint64_t ancestor)
{
        const struct store_recovered *rec = store_recovered(s);

        CHECK(!rec->half_forced);
        CHECK_EQ(rec->identity.cluster_id, cluster_id);
        CHECK_EQ(rec->identity.ancestor, ancestor);
}

/* The start of a descendant, cut short after @steps of its steps. */
static void descend(struct store *s, struct disk *d, uint64_t cluster_id, unsigned steps)
{
        uint64_t last = store_recovered(s)->n_entries;

        store_recovered_free(s);
        CHECK_EQ(store_descend(s, cluster_id), 0);
        if (steps > 1) {
                append(s, last + 1, last + 1, 1, 10);
                finish(d);
        }
        if (steps > 2)
                CHECK_EQ(store_descended(s), 0);
}

TEST(a_directory_becomes_one_of_a_descendant_at_once)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store *s = open_store(d, 0);
        struct store_error err;
        struct store_identity id;
        uint8_t bad = 0x55;

        s = next_life(s, d, true);
        check_identity(s, 1, 0);
        for (unsigned steps = 1; steps <= 2; steps++) {
                descend(s, d, 6 + steps, steps);
                s = next_life(s, d, true);
                CHECK(store_recovered(s)->half_forced);
                CHECK_EQ(store_recovered(s)->identity.cluster_id, 1);
                CHECK_EQ(store_recovered(s)->n_entries, steps);
        }
        descend(s, d, 9, 3);
        s = next_life(s, d, true);
        check_identity(s, 9, 1);
        CHECK_EQ(store_recovered(s)->identity.member_id, 2);
        CHECK_EQ(store_recovered(s)->identity.directory, config.directory);
        CHECK_EQ(store_peek(d, &id, &err), 0);
        CHECK_EQ(id.ancestor, 1);
        /* It survives votes, and damage of one of its two records. */
        CHECK_EQ(store_vote(s, 4, 2), 0);
        CHECK_EQ(d->ops->write(d, "meta", 2048 + 9, &bad, 1), 0);
        s = next_life(s, d, false);
        check_identity(s, 9, 1);
        /* A descendant may have a descendant. */
        descend(s, d, 10, 1);
        s = next_life(s, d, true);
        CHECK(store_recovered(s)->half_forced);
        CHECK_EQ(store_recovered(s)->identity.cluster_id, 9);
        descend(s, d, 11, 3);
        s = next_life(s, d, true);
        check_identity(s, 11, 9);
        store_free(s);
}

/* A later file of the log with one entry: another log went before it, and its entry would take
 * the place of ours (found by the fuzzer of files). */
TEST(a_later_segment_without_meta_is_no_first_start)
{
        struct store_entry first = {
                .index = 1, .term = 1, .type = 3, .data = {(const uint8_t *) "conf", 4}};
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store_error err;
        struct store *s = NULL;

        CHECK_EQ(store_open(&s, d, &config, &ops, NULL, &err), 0);
        CHECK_EQ(store_init(s, identity, 1, &first), 0);
        store_free(s);
        CHECK_EQ(d->ops->remove(d, "meta"), 0);
        CHECK_EQ(d->ops->rename(d, "log-0000000000000001", "log-0000000000000023"), 0);
        s = NULL;
        CHECK_EQ(store_open(&s, d, &config, &ops, NULL, &err), -EBADMSG);
        CHECK(strstr(err.text, "meta is damaged"));
        store_free(s);
}

/* A snapshot was installed over a log with another history, and the process died before that
 * was cut off: only the snapshot stays, and what comes after it (Raft section 7; found by the
 * simulator, seed 2018127). */
TEST(a_log_that_contradicts_the_snapshot_is_void)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store *s = open_store(d, 0);
        struct store_snapshot snap = {.index = 10,
                                      .term = 2,
                                      .conf_index = 1,
                                      .conf = {(const uint8_t *) "c", 1},
                                      .data = {(const uint8_t *) "state", 5}};
        struct rnd r;

        rnd_init(&r, 1);
        append(s, 1, 20, 1, 16);
        finish(d);
        CHECK_EQ(store_save_snapshot(s, &snap, true), 0);
        sim_disk_finish(d);
        sim_disk_crash(d, &r);
        store_free(s);
        for (int life = 0; life < 2; life++) {
                s = open_store(d, 0);
                CHECK_EQ(store_recovered(s)->snapshot.index, 10);
                if (life == 0)
                        CHECK_EQ(store_recovered(s)->n_entries, 0);
                else
                        check_entries(s, 11, 15, 3, 16);
                store_recovered_free(s);
                if (life == 0)
                        append(s, 11, 15, 3, 16);
                finish(d);
                store_free(s);
        }
}

static void snapshot(struct store *s, uint64_t index, size_t size, bool reset)
{
        static const uint8_t state[1 << 16];
        struct store_snapshot snap = {.index = index, .term = 1, .data = {state, size}};

        CHECK_EQ(store_save_snapshot(s, &snap, reset), 0);
}

/* All disks are full, and nobody makes room: data that is overwritten again and again, as by
 * renewals, can still be written as long as its snapshots do not grow. */
TEST(a_full_disk_stops_nothing_that_does_not_grow)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store *s;
        uint64_t at = 2;

        failures = snapshot_failures = 0;
        segment_size = 4096;
        s = open_store(d, 0);
        settle(s, d);
        CHECK(!store_short_of_room(s));
        sim_disk_fill(d, true);
        for (int round = 0; round < 200; round++) {
                for (int i = 0; i < 10; i++, at++) {
                        append(s, at, at, 1, 400);
                        settle(s, d);
                        CHECK_EQ(persisted, at);
                }
                CHECK(round == 0 || store_short_of_room(s));
                CHECK_EQ(store_vote(s, (uint64_t) round + 2, 1), 0);
                snapshot(s, at - 1, 3000, false);
                settle(s, d);
                store_trim(s, at - 2);
                store_retry(s);
                settle(s, d);
        }
        CHECK_EQ(failures + snapshot_failures, 0);
        sim_disk_fill(d, false);
        store_retry(s);
        settle(s, d);
        CHECK(!store_short_of_room(s));
        store_free(s);
        s = open_store(d, 0);
        CHECK_EQ(store_recovered(s)->snapshot.index, at - 1);
        store_free(s);
        segment_size = 0;
}

/* Even that ends if the log cannot be released. The store then waits: nothing is reported,
 * votes are written, and it continues by itself when there is room. */
TEST(a_disk_that_is_full_to_the_brim_is_waited_for)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store *s;
        uint64_t at = 2, stuck;

        failures = snapshot_failures = 0;
        segment_size = 4096;
        s = open_store(d, 0);
        settle(s, d);
        sim_disk_fill(d, true);
        for (; at < 60; at++) {
                append(s, at, at, 1, 400);
                settle(s, d);
        }
        stuck = persisted;
        CHECK(stuck > 15 && stuck < 40); /* 3 files of 6 or, in format 1, 4 of 9 */
        CHECK(store_short_of_room(s));
        snapshot(s, stuck, 1 << 16, false); /* has no room either */
        settle(s, d);
        CHECK_EQ(snapshot_failures, 1);
        CHECK_EQ(store_vote(s, 7, 3), 0);
        for (int i = 0; i < 3; i++) {
                store_retry(s);
                settle(s, d);
        }
        CHECK_EQ(persisted, stuck);
        CHECK_EQ(failures, 0);
        /* A restart finds what was reported as persisted, and no more was reported. */
        store_free(s);
        s = open_store(d, 0);
        CHECK_EQ(store_recovered(s)->n_entries, stuck);
        CHECK_EQ(store_recovered(s)->term, 7);
        store_recovered_free(s);
        for (at = stuck + 1; at < 60; at++)
                append(s, at, at, 1, 400);
        settle(s, d);
        CHECK_EQ(persisted, stuck);
        CHECK(store_short_of_room(s));
        sim_disk_fill(d, false);
        store_retry(s);
        settle(s, d);
        CHECK_EQ(persisted, 59);
        CHECK(!store_short_of_room(s));
        snapshot(s, 50, 1 << 16, false);
        settle(s, d);
        CHECK_EQ(snapshot_failures, 1);
        store_free(s);
        segment_size = 0;
}

/* The disk is full from the n-th job on, for every n, and has room again at the end: nothing
 * fails, and everything is written. Or the power fails meanwhile: what was reported is
 * there. */
TEST(a_disk_may_be_full_at_any_write)
{
        for (unsigned round = 0; round < 120; round++) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();
                unsigned n = round / 2, jobs = 0;
                struct store *s;
                uint64_t at = 2;

                failures = 0;
                persisted = 1;
                snapshot_at = 0;
                segment_size = 4096;
                s = open_store(d, 0);
                store_flush(s);
                for (int step = 0; step < 24; step++) {
                        if (step == 16) {
                                snapshot(s, at + 20, 9000, true);
                                persisted = 0;
                                at += 21;
                        } else if (step % 6 == 5 && persisted > 3) {
                                snapshot(s, persisted, 500 * (size_t) step, false);
                        } else {
                                size_t size = step % 7 == 6 ? 4000 : 400;

                                append(s, at, at + 3, 1, size); /* four may need a large file */
                                at += 4;
                        }
                        for (uint64_t k = rnd(0, 3); k > 0 && sim_disk_busy(d); k--) {
                                if (jobs++ == n)
                                        sim_disk_fill(d, true);
                                sim_disk_finish(d);
                        }
                        if (snapshot_at > 1)
                                store_trim(s, snapshot_at - 1);
                        if (rnd(0, 5) == 0)
                                store_retry(s);
                }
                CHECK_EQ(failures, 0);
                if (round % 2 == 0) {
                        settle(s, d);
                        sim_disk_fill(d, false);
                        store_retry(s);
                        settle(s, d);
                        CHECK_EQ(failures, 0);
                        CHECK_EQ(persisted, at - 1);
                        CHECK(!store_short_of_room(s));
                        store_free(s);
                        s = open_store(d, 0);
                } else {
                        s = next_life(s, d, rnd(0, 1) == 0);
                }
                CHECK(store_recovered(s)->snapshot.index >= persisted ||
                      (store_recovered(s)->n_entries > 0 &&
                       store_recovered(s)->entries[store_recovered(s)->n_entries - 1].index >=
                               persisted));
                store_free(s);
                segment_size = 0;
        }
}

/* A snapshot of the leader's that takes the place of the log waits for room, too. */
TEST(an_install_waits_for_room)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store *s;

        failures = 0;
        segment_size = 4096;
        s = open_store(d, 0);
        append(s, 2, 9, 1, 300);
        settle(s, d);
        sim_disk_fill(d, true);
        persisted = 0;
        snapshot(s, 40, 1 << 16, true);
        append(s, 41, 43, 2, 100);
        settle(s, d);
        CHECK(store_short_of_room(s));
        CHECK_EQ(persisted, 0);
        CHECK_EQ(failures, 0);
        sim_disk_fill(d, false);
        store_retry(s);
        settle(s, d);
        CHECK_EQ(persisted, 43);
        CHECK(!store_short_of_room(s));
        store_free(s);
        s = open_store(d, 0);
        CHECK_EQ(store_recovered(s)->snapshot.index, 40);
        check_entries(s, 41, 43, 2, 100);
        store_free(s);
        segment_size = 0;
}

/* A state of @len bytes, which differs from others. */
static struct view state_of(uint64_t index, size_t len)
{
        static uint8_t state[1 << 16];

        CHECK(len <= sizeof(state));
        for (size_t i = 0; i < len; i++)
                state[i] = (uint8_t) (index * 31 + i % 251);
        return (struct view){state, len};
}

static void add_pieces(struct store *s, struct view data, size_t most)
{
        for (size_t n; data.len > 0; data.p += n, data.len -= n) {
                cleanup_(blob_freep) struct blob *piece = NULL;
                struct buf copy = {0};

                n = min_of(data.len, most);
                buf_add(&copy, data.p, n);
                piece = blob_new(&copy);
                CHECK(piece);
                CHECK_EQ(store_snapshot_add(s, piece), 0);
        }
}

static void save_in_pieces(struct store *s, const struct store_snapshot *snap, size_t most)
{
        CHECK_EQ(store_snapshot_begin(s, snap), 0);
        add_pieces(s, snap->data, most);
        CHECK_EQ(store_snapshot_end(s), 0);
}

/* A file has the same bytes, whether its snapshot is written in pieces, after one that was
 * abandoned perhaps, or as a whole. */
TEST(a_snapshot_in_pieces_is_the_same_file)
{
        for (unsigned round = 0; round < 60; round++) {
                cleanup_(buf_fini) struct buf whole = {0}, pieces = {0};
                struct store_snapshot snap = {.index = 9,
                                              .term = rnd(1, 9),
                                              .conf_index = rnd(1, 9),
                                              .conf = {(const uint8_t *) "members", rnd(0, 7)},
                                              .data = state_of(9,
                                                               round == 0 ? 0 : rnd(0, 60000))},
                                      abandoned = {.index = 8, .data = snap.data};

                for (unsigned k = 0; k < 2; k++) {
                        cleanup_(disk_freep) struct disk *d = sim_disk_new();
                        struct store *s = open_store(d, 0);
                        size_t most = rnd(1, 20000);

                        snapshot_at = 0;
                        if (rnd(0, 1) == 0)
                                settle(s, d); /* there is room for it */
                        if (k == 0) {
                                CHECK_EQ(store_save_snapshot(s, &snap, false), 0);
                        } else {
                                if (rnd(0, 1) == 0) {
                                        CHECK_EQ(store_snapshot_begin(s, &abandoned), 0);
                                        add_pieces(s, abandoned.data, rnd(5000, 20000));
                                }
                                save_in_pieces(s, &snap, most);
                        }
                        finish(d);
                        CHECK_EQ(snapshot_at, 9);
                        CHECK_EQ(store_snapshot_waiting(s), 0);
                        CHECK_EQ(d->ops->read(d, "snapshot-0000000000000009", SIZE_MAX,
                                              k == 0 ? &whole : &pieces),
                                 0);
                        store_free(s);
                        s = open_store(d, 0);
                        CHECK_EQ(store_recovered(s)->snapshot.index, 9);
                        store_free(s);
                }
                CHECK_EQ(buf_len(&pieces), buf_len(&whole));
                CHECK_EQ(memcmp(pieces.data, whole.data, buf_len(&whole)), 0);
        }
}

/* The process ends at any moment: it leaves the snapshot before, or all of this one. */
TEST(a_snapshot_in_pieces_is_there_whole_or_not_at_all)
{
        for (unsigned round = 0; round < 300; round++) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();
                struct store *s = open_store(d, 0);
                struct store_snapshot was = {.index = 5, .term = 1, .data = state_of(5, 9000)},
                                      snap = {.index = 9, .term = 1};
                const struct store_snapshot *rec;
                uint64_t reported;

                CHECK_EQ(store_save_snapshot(s, &was, false), 0);
                settle(s, d);
                snap.data = state_of(9, rnd(0, 30000));
                save_in_pieces(s, &snap, 4000);
                for (uint64_t k = rnd(0, 9); k > 0 && sim_disk_busy(d); k--)
                        sim_disk_finish(d);
                reported = snapshot_at;
                s = next_life(s, d, rnd(0, 1) == 0);
                rec = &store_recovered(s)->snapshot;
                CHECK(rec->index == 9 || (rec->index == 5 && reported == 5));
                CHECK_EQ(rec->data.len, rec->index == 9 ? snap.data.len : 9000);
                CHECK_EQ(memcmp(rec->data.p, state_of(rec->index, rec->data.len).p,
                                rec->data.len),
                         0);
                store_free(s);
        }
}

static int size_of_room(const char *name, uint64_t size, void *arg)
{
        if (strcmp(name, ROOM) == 0)
                *(uint64_t *) arg = size;
        return 0;
}

static uint64_t room_of(struct disk *d)
{
        uint64_t size = 0;

        CHECK_EQ(d->ops->list(d, size_of_room, &size), 0);
        return size;
}

/* A disk of which one call fails. */
static const struct disk_ops *sound_ops;
static unsigned fails_in; /* calls; 0: no more */
static int fails_with;

static bool fails(void)
{
        return fails_in > 0 && --fails_in == 0;
}

static int failing_reserve(struct disk *d, const char *name, size_t size, size_t *ret_was)
{
        return fails() ? fails_with : sound_ops->reserve(d, name, size, ret_was);
}

static int failing_write(struct disk *d, const char *name, uint64_t offset, const void *p,
                         size_t n)
{
        return fails() ? fails_with : sound_ops->write(d, name, offset, p, n);
}

static int failing_cut(struct disk *d, const char *name, size_t size)
{
        return fails() ? fails_with : sound_ops->cut(d, name, size);
}

static int failing_rename(struct disk *d, const char *from, const char *to)
{
        return fails() ? fails_with : sound_ops->rename(d, from, to);
}

/* It is reported once, the snapshot before stays, the file that is written over is as large as
 * before, and the next attempt succeeds. */
TEST(a_snapshot_in_pieces_may_fail_at_any_call)
{
        unsigned n = 0;

        segment_size = 4096;
        for (bool failed = true; failed;) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();
                struct store *s = open_store(d, 0);
                struct store_snapshot snap = {.index = 9, .term = 1};
                struct disk_ops failing = *d->ops;
                uint64_t room;

                sound_ops = d->ops;
                failing.reserve = failing_reserve;
                failing.write = failing_write;
                failing.cut = failing_cut;
                failing.rename = failing_rename;
                failures = snapshot_failures = 0;
                settle(s, d);
                snapshot(s, 5, 3000, false);
                settle(s, d);
                room = room_of(d);
                CHECK_EQ(room, segment_size);
                fails_in = ++n;
                fails_with = n % 2 == 0 ? -EIO : -ENOSPC;
                d->ops = &failing;
                snap.data = state_of(9, 20000);
                save_in_pieces(s, &snap, 4000);
                while (snapshot_at == 5 && snapshot_failures == 0)
                        sim_disk_finish(d);
                d->ops = sound_ops;
                failed = fails_in == 0;
                CHECK_EQ(snapshot_failures, failed);
                if (failed) {
                        CHECK_EQ(snapshot_at, 5);
                        CHECK_EQ(room_of(d), room);
                        CHECK_EQ(store_short_of_room(s), fails_with == -ENOSPC);
                        store_retry(s);
                        settle(s, d);
                        CHECK(!store_short_of_room(s));
                        CHECK(room_of(d) >= (fails_with == -ENOSPC ? 20000 * 5 / 4 : room));
                        save_in_pieces(s, &snap, 4000);
                }
                settle(s, d);
                CHECK_EQ(failures, 0);
                CHECK_EQ(snapshot_at, 9);
                store_free(s);
                s = open_store(d, 0);
                CHECK_EQ(store_recovered(s)->snapshot.index, 9);
                CHECK_EQ(store_recovered(s)->snapshot.data.len, 20000);
                store_free(s);
        }
        CHECK_EQ(n, 10); /* six writes, one call before, two after; and none that failed */
        segment_size = 0;
}

/* I5: what a write under way stands for is reduced by each cut, however many there are;
 * `persisted` never names an entry of which only a predecessor is on the disk. */
TEST(a_cut_takes_along_what_is_on_its_way)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store *s;

        format_1 = true;
        s = open_store(d, 0);
        settle(s, d);
        persisted = 0;
        append(s, 2, 10, 1, 8);
        append(s, 6, 8, 2, 8); /* queued */
        append(s, 4, 7, 3, 8); /* and cut while it is */
        sim_disk_finish(d);
        CHECK_EQ(persisted, 3);
        append(s, 5, 5, 4, 8); /* the second write is under way */
        sim_disk_finish(d);
        CHECK_EQ(persisted, 4);
        sim_disk_finish(d);
        CHECK_EQ(persisted, 5);
        /* Below what was reported already: nothing is reported again. */
        append(s, 6, 9, 4, 8);
        persisted = 0;
        append(s, 3, 3, 5, 8);
        sim_disk_finish(d);
        CHECK_EQ(persisted, 0);
        sim_disk_finish(d);
        CHECK_EQ(persisted, 3);
        store_free(s);
        s = open_store(d, 0);
        CHECK_EQ(store_recovered(s)->n_entries, 3);
        CHECK_EQ(store_recovered(s)->entries[2].term, 5);
        store_free(s);
}

/* At any moment of any such history: a restart finds what was reported as persisted. */
TEST(what_is_acknowledged_is_on_disk)
{
        for (int round = 0; round < 100; round++) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();
                struct store *s = open_store(d, 0);
                uint64_t term_of[64] = {0, 1}, last = 1, acked;

                persisted = 1;
                for (uint64_t term = 2; term < 12; term++) {
                        uint64_t from = rnd(2, last + 1), to = from + rnd(0, 4);

                        persisted = min_of(persisted, from - 1);
                        append(s, from, to, term, rnd(0, 600));
                        for (uint64_t i = from; i <= to; i++)
                                term_of[i] = term;
                        last = to;
                        if (rnd(0, 1) == 0)
                                sim_disk_finish(d);
                }
                acked = persisted;
                s = next_life(s, d, true);
                CHECK(store_recovered(s)->n_entries >= acked);
                for (uint64_t i = 1; i <= acked; i++)
                        CHECK_EQ(store_recovered(s)->entries[i - 1].term, term_of[i]);
                store_free(s);
        }
}

/* A process is killed between write and sync, and its next life finds what it wrote in the page
 * cache: a power loss does not take away what that life believed. */
TEST(what_was_believed_after_a_kill_outlives_a_power_loss)
{
        segment_size = 4096;
        for (int round = 0; round < 200; round++) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();
                struct store *s = open_store(d, 0);
                struct store_snapshot snap = {
                        .index = 3, .term = 1, .data = {(const uint8_t *) "s", 1}};
                uint64_t n, last_term, snapshot, next = 2;

                for (uint64_t i = rnd(0, 2); i > 0; i--, next += 5) {
                        append(s, next, next + 4, 1, 300);
                        finish(d);
                }
                switch (rnd(0, 3)) {
                case 0: /* entries, or a cut */
                        append(s, rnd(2, next), next, 2, rnd(1, 4000));
                        break;
                case 1: /* a snapshot */
                        CHECK_EQ(store_save_snapshot(s, &snap, rnd(0, 1) == 0), 0);
                        break;
                case 2: /* a new segment, and its first record */
                        append(s, next, next + 8, 2, 700);
                        sim_disk_finish(d);
                        break;
                case 3: /* old ones go */
                        append(s, 2, 12, 1, 700);
                        finish(d);
                        append(s, 13, 20, 1, 700);
                        finish(d);
                        snap.index = 18;
                        CHECK_EQ(store_save_snapshot(s, &snap, false), 0);
                        sim_disk_finish(d);
                        store_trim(s, 18);
                        break;
                }
                s = next_life(s, d, false);
                n = store_recovered(s)->n_entries;
                last_term = n > 0 ? store_recovered(s)->entries[n - 1].term : 0;
                snapshot = store_recovered(s)->snapshot.index;
                s = next_life(s, d, true);
                CHECK_EQ(store_recovered(s)->n_entries, n);
                CHECK_EQ(n > 0 ? store_recovered(s)->entries[n - 1].term : 0, last_term);
                CHECK_EQ(store_recovered(s)->snapshot.index, snapshot);
                store_free(s);
        }
        segment_size = 0;
}

/* A replica that found itself bound by its term and vote stays bound, too. */
TEST(a_vote_that_was_believed_stands)
{
        for (int round = 0; round < 40; round++) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();
                struct store *s = open_store(d, 0);
                uint8_t slot[4096 + 48];
                cleanup_(buf_fini) struct buf meta = {0};

                CHECK_EQ(d->ops->read(d, "meta", SIZE_MAX, &meta), 0);
                CHECK(buf_len(&meta) >= sizeof(slot));
                memcpy(slot, meta.data, sizeof(slot));
                CHECK_EQ(store_vote(s, 9, 3), 0);
                store_free(s);
                sim_disk_unsync(d, "meta", slot, sizeof(slot));
                s = open_store(d, 0);
                CHECK_EQ(store_recovered(s)->term, 9);
                s = next_life(s, d, true);
                CHECK_EQ(store_recovered(s)->term, 9);
                CHECK_EQ(store_recovered(s)->vote, 3);
                store_free(s);
        }
}

/* Files that were removed may be back after a power loss, any of them: the log continues as
 * before. */
TEST(files_that_return_change_nothing)
{
        segment_size = 4096;
        for (int round = 0; round < 60; round++) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();
                struct store *s = open_store(d, 0);
                struct store_snapshot snap = {
                        .index = 40, .term = 2, .data = {(const uint8_t *) "s", 1}};
                uint64_t cut = 18 + 4 * rnd(0, 2);

                for (uint64_t at = 2; at < 30; at += 4) {
                        append(s, at, at + 3, 1, 700);
                        finish(d);
                }
                /* A later file takes back what an earlier one says. */
                for (uint64_t at = cut; at < 50; at += 4) {
                        append(s, at, at + 3, 2, 700);
                        finish(d);
                }
                CHECK_EQ(store_save_snapshot(s, &snap, false), 0);
                finish(d);
                store_trim(s, 38);
                finish(d);
                s = next_life(s, d, true);
                CHECK_EQ(store_recovered(s)->snapshot.index, 40);
                CHECK(store_recovered(s)->n_entries > 9);
                for (size_t i = 0; i < store_recovered(s)->n_entries; i++) {
                        const struct store_entry *entry = &store_recovered(s)->entries[i];

                        CHECK_EQ(entry->term, entry->index < cut ? 1 : 2);
                }
                store_free(s);
        }
        segment_size = 0;
}

/* Acknowledged entries, in files of 4 KiB: the last is @newest. */
static void fill_files(struct disk *d, char newest[static 32])
{
        struct store *s = open_store(d, 0);
        uint64_t n = 0;

        for (uint64_t at = 2; at < 30; at += 4) {
                append(s, at, at + 3, 1, 700);
                finish(d);
        }
        CHECK_EQ(persisted, 29);
        store_free(s);
        for (cleanup_(buf_fini) struct buf b = {0}; n == 0 || buf_len(&b) > 0; n++) {
                buf_clear(&b);
                snprintf(newest, 32, "log-%016" PRIx64, n + 1);
                if (d->ops->read(d, newest, SIZE_MAX, &b) < 0)
                        break;
        }
        CHECK(n > 3);
        snprintf(newest, 32, "log-%016" PRIx64, n);
}

static void check_refused(struct disk *d, const char *file, const char *what)
{
        struct store_error err;
        struct store *s = NULL;

        CHECK_EQ(store_open(&s, d, &config, &ops, NULL, &err), -EBADMSG);
        if (!strstr(err.text, file) || !strstr(err.text, what))
                test_fail(__FILE__, __LINE__, "%s", err.text);
        store_free(s);
}

/* A log without its newest file, or with its end cut off, looked like a shorter one: a replica
 * voted and led with it, and a lone one had lost what it had acknowledged (I5). */
TEST(a_log_that_lost_its_end_is_refused)
{
        char newest[32], name[32];

        segment_size = 4096;
        for (int what = 0; what < 4; what++) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();

                fill_files(d, newest);
                if (what ==
                    3) { /* an earlier version of us marked nothing; the next start does */
                        static const uint8_t zeroes[24];
                        struct store *s;

                        CHECK_EQ(d->ops->write(d, "meta", 512, zeroes, sizeof(zeroes)), 0);
                        CHECK_EQ(d->ops->write(d, "meta", 4096 + 512, zeroes, sizeof(zeroes)),
                                 0);
                        s = open_store(d, 0);
                        CHECK_EQ(store_recovered(s)->n_entries, 29);
                        store_free(s);
                }
                CHECK_EQ(d->ops->remove(d, newest), 0);
                if (what == 1) /* cut to nothing, or to whole sectors of it */
                        CHECK_EQ(d->ops->create(d, newest, 512 * rnd(0, 7)), 0);
                for (uint64_t i = 1; what == 2; i++) {
                        snprintf(name, sizeof(name), "log-%016" PRIx64, i);
                        if (strcmp(name, newest) == 0)
                                break;
                        CHECK_EQ(d->ops->remove(d, name), 0);
                }
                check_refused(d, newest, what == 1 ? "was longer" : "it is missing");
        }
        segment_size = 0;
}

/* After a gap in the sequence, nothing before the gap counted; so a file that was lost, or one
 * with a higher number that somebody put there, took all of the log with it, and there was no
 * error if the files after it were empty (I5). */
TEST(a_gap_is_refused_unless_a_snapshot_has_what_was_there)
{
        char newest[32], before[32], name[32];

        segment_size = 4096;
        for (int what = 0; what < 3; what++) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();
                const char *missing = before;
                uint64_t n;

                fill_files(d, newest);
                n = strtoull(newest + 4, NULL, 16);
                snprintf(before, sizeof(before), "log-%016" PRIx64, n - 1);
                switch (what) {
                case 0: /* the newest was just begun, and the one before it is lost */
                        CHECK_EQ(d->ops->remove(d, newest), 0);
                        CHECK_EQ(d->ops->create(d, newest, 4096), 0);
                        CHECK_EQ(d->ops->remove(d, before), 0);
                        break;
                case 1: /* and so are all others */
                        CHECK_EQ(d->ops->remove(d, newest), 0);
                        CHECK_EQ(d->ops->create(d, newest, 4096), 0);
                        for (uint64_t i = 1; i < n; i++) {
                                snprintf(name, sizeof(name), "log-%016" PRIx64, i);
                                CHECK_EQ(d->ops->remove(d, name), 0);
                        }
                        missing = "log-0000000000000001";
                        break;
                case 2: /* one that is not ours */
                        snprintf(before, sizeof(before), "log-%016" PRIx64, n + 1);
                        CHECK_EQ(d->ops->create(d, "log-00000000000000ff", 0), 0);
                        break;
                }
                check_refused(d, missing, "it is missing, but there is log-");
        }
        segment_size = 0;
}

/* A member that joins begins with no entry. Its first write may be too large for the first
 * file, which holds nothing then, and went before there was any snapshot. */
TEST(the_first_file_stays_until_there_is_a_snapshot)
{
        static const char first[] = "log-0000000000000001";
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        cleanup_(buf_fini) struct buf file = {0};
        struct store_error err;
        struct store *s;

        CHECK_EQ(store_open(&s, d, &config, &ops, NULL, &err), 0);
        store_set_segment_size(s, 4096);
        CHECK_EQ(store_init(s, identity, 1, NULL), 0);
        append(s, 1, 2, 1, 4000);
        finish(d);
        CHECK_EQ(persisted, 2);
        store_free(s);
        s = open_store(d, 0);
        check_entries(s, 1, 2, 1, 4000);
        store_free(s);
        CHECK_EQ(d->ops->read(d, first, SIZE_MAX, &file), 0);
        /* An earlier version of us removed it. */
        CHECK_EQ(d->ops->remove(d, first), 0);
        s = open_store(d, 0);
        check_entries(s, 1, 2, 1, 4000);
        store_free(s);
}

/* After it no other could be made: the next was the first again, and was read before all. */
TEST(a_file_of_the_log_with_too_high_a_number_is_refused)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store *s = open_store(d, 0);

        append(s, 2, 9, 1, 10);
        finish(d);
        snapshot(s, 9, 100, false);
        finish(d);
        store_free(s);
        CHECK_EQ(d->ops->create(d, "log-ffffffffffffffff", 0), 0);
        check_refused(d, "log-ffffffffffffffff", "its number is too large for a log");
        CHECK_EQ(d->ops->remove(d, "log-ffffffffffffffff"), 0);
        s = open_store(d, 0);
        CHECK_EQ(store_recovered(s)->snapshot.index, 9);
        store_free(s);
}

static void make_large(const char *dir, const char *name, off_t size)
{
        char path[128];
        int fd;

        snprintf(path, sizeof(path), "%s/%s", dir, name);
        fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        CHECK(fd >= 0);
        CHECK_EQ(ftruncate(fd, size), 0);
        close(fd);
}

static void remove_from(const char *dir, const char *name)
{
        char path[128];

        snprintf(path, sizeof(path), "%s/%s", dir, name);
        (void) !unlink(path);
}

/* A hole of a TiB takes no room on the disk, and took all memory at the start. */
TEST(a_file_that_is_too_large_is_refused_before_it_is_read)
{
        static const char *const names[] = {"meta", "log-0000000000000001",
                                            "log-0000000000000002",
                                            "snapshot-0000000000000007"};
        static const char *const says[] = {"it is too long", "it is too long", "it is too long",
                                           "its length is wrong"};
        const off_t huge = (off_t) 1 << 40;

        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                char dir[] = "/dev/shm/tenure-test-XXXXXX";
                struct disk *d;
                struct loop *l;
                struct store *s;

                if (!mkdtemp(dir)) { /* in memory nobody makes us wait for the disk */
                        strcpy(dir, "/tmp/tenure-test-XXXXXX");
                        CHECK(mkdtemp(dir));
                }
                CHECK_EQ(loop_new(&l), 0);
                CHECK_EQ(disk_posix_new(&d, dir, l), 0);
                segment_size = 4096;
                s = open_store(d, 0);
                store_free(s);
                segment_size = 0;
                make_large(dir, names[i], huge);
                check_refused(d, names[i], says[i]);
                disk_free(d);
                loop_free(l);
                for (size_t k = 0; k < ARRAY_SIZE(names); k++)
                        remove_from(dir, names[k]);
                remove_from(dir, "lock");
                CHECK_EQ(rmdir(dir), 0);
        }
}

/* The file that is written last stays open. It must not be, for the disk's other thread to
 * remove it. */
TEST(what_is_written_is_in_the_file_of_that_name)
{
        char dir[] = "/tmp/tenure-test-XXXXXX";
        cleanup_(buf_fini) struct buf b = {0};
        struct disk *d;
        struct loop *l;

        CHECK(mkdtemp(dir));
        CHECK_EQ(loop_new(&l), 0);
        CHECK_EQ(disk_posix_new(&d, dir, l), 0);
        for (unsigned i = 0; i < 2; i++) {
                CHECK_EQ(d->ops->create(d, "log-1", 8), 0);
                CHECK_EQ(d->ops->write(d, "log-1", i, "abc", 3), 0);
                CHECK_EQ(d->ops->write(d, "log-1", i + 3, "d", 1), 0);
                CHECK_EQ(d->ops->read(d, "log-1", 8, &b), 0);
                CHECK_EQ(d->ops->remove(d, "log-1"), 0);
        }
        CHECK_EQ(buf_len(&b), 16);
        CHECK_EQ(memcmp(buf_head(&b), "abcd\0\0\0\0\0abcd\0\0\0", 16), 0);
        /* The file that snapshots are written over. */
        for (unsigned i = 0; i < 2; i++) {
                size_t was = 99;

                CHECK_EQ(d->ops->reserve(d, ROOM, 6000, &was), 0);
                CHECK_EQ(was, i == 0 ? 0 : 3000);
                CHECK_EQ(room_of(d), 6000);
                CHECK_EQ(d->ops->cut(d, ROOM, 7000), 0);
                CHECK_EQ(room_of(d), 6000);
                CHECK_EQ(d->ops->cut(d, ROOM, 3000), 0);
                CHECK_EQ(room_of(d), 3000);
        }
        CHECK_EQ(d->ops->remove(d, ROOM), 0);
        CHECK_EQ(d->ops->cut(d, ROOM, 1), -ENOENT);
        disk_free(d);
        loop_free(l);
        remove_from(dir, "lock");
        CHECK_EQ(rmdir(dir), 0);
}

/* Only entries that have been here since the start count: a log that a new leader cut off, or
 * that a snapshot replaced, is no loss. */
TEST(what_was_here_is_not_lacking)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store *s = open_store(d, 0);

        append(s, 2, 30, 1, 10);
        append(s, 20, 21, 2, 10);
        finish(d);
        CHECK_EQ(store_condemn(s, 30), STORE_E_HAD);
        store_free(s);
        s = open_store(d, 0);
        CHECK_EQ(store_recovered(s)->lacks, 0);
        CHECK_EQ(store_condemn(s, 21), STORE_E_HAD);
        CHECK_EQ(store_condemn(s, 22), 0);
        store_free(s);
        s = open_store(d, 0);
        CHECK_EQ(store_recovered(s)->lacks, 22);
        CHECK_EQ(store_condemn(s, 0), 0);
        store_free(s);
        s = open_store(d, 0);
        CHECK_EQ(store_recovered(s)->lacks, 0);
        store_free(s);
}

/* A copy that somebody made beside a file of the log. */
TEST(other_names_are_not_ours)
{
        static const char *const names[] = {
                "log-0000000000000001.bak", "log-x",     "log-00000000000000gg",
                "log-00000000000000FF",     "snapshot-", "snapshot-0000000000000001.old"};
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        char newest[32];
        struct store *s;

        segment_size = 4096;
        fill_files(d, newest);
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                CHECK_EQ(d->ops->create(d, names[i], 4096), 0);
        s = open_store(d, 0);
        CHECK_EQ(store_recovered(s)->n_entries, 29);
        store_free(s);
        segment_size = 0;
}

/* A file of the log that is not needed is removed only when the next one exists: a crash in
 * between would leave none, which looks like a loss. */
TEST(the_log_is_never_without_a_file)
{
        segment_size = 4096;
        for (int round = 0; round < 20; round++) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();
                struct store *s = open_store(d, 0);
                struct store_snapshot snap = {
                        .index = 5, .term = 1, .data = {(const uint8_t *) "s", 1}};

                append(s, 2, 5, 1, 700);
                settle(s, d);
                CHECK_EQ(store_save_snapshot(s, &snap, false), 0);
                settle(s, d);
                sim_disk_fill(d, true);
                append(s, 6, 9, 1, 700);         /* in the next one... */
                sim_disk_finish_at(d, DISK_LOG); /* ...behind a spare, for which is no room */
                store_trim(s, 5);
                while (sim_disk_busy_at(d, DISK_ASIDE))
                        sim_disk_finish_at(d, DISK_ASIDE);
                sim_disk_fill(d, false);
                s = next_life(s, d, round & 1);
                CHECK_EQ(store_recovered(s)->snapshot.index, 5);
                append(s, 6, 9, 1, 700);
                settle(s, d);
                store_trim(s, 5);
                settle(s, d);
                CHECK_EQ(d->ops->remove(d, "log-0000000000000001"), -ENOENT); /* it went */
                store_free(s);
        }
        segment_size = 0;
}

/* A program that writes one thing and ends makes nothing that it does not wait for, and does
 * not wait for room. */
TEST(what_is_not_kept_aside_is_made_when_it_is_needed)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store_error err;
        struct store *s;

        format_1 = true;
        failures = snapshot_failures = 0;
        persisted = 0;
        segment_size = 4096;
        s = open_store(d, 0);
        store_free(s);
        s = NULL;
        CHECK_EQ(store_open(&s, d, &config, &ops, NULL, &err), 0);
        store_set_segment_size(s, segment_size);
        append(s, 2, 5, 1, 700);
        sim_disk_finish(d);
        CHECK_EQ(persisted, 5);
        CHECK(!sim_disk_busy(d));
        append(s, 6, 9, 1, 700);
        finish(d);
        CHECK_EQ(persisted, 9);
        snapshot(s, 8, 100, false);
        sim_disk_finish(d);
        CHECK_EQ(snapshot_at, 8);
        CHECK(!sim_disk_busy(d));
        sim_disk_fill(d, true);
        append(s, 10, 13, 1, 700);
        finish(d);
        CHECK_EQ(failures, 1);
        store_free(s);
        failures = 0;
        segment_size = 0;
}

/* When short of room, a snapshot releases a segment, which becomes the missing spare: there is
 * room again, and the log continues. */
TEST(a_disk_that_was_full_once_does_not_stop_the_log_for_ever)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store *s;
        uint64_t at = 2;

        failures = snapshot_failures = 0;
        persisted = 1;
        segment_size = 4096;
        s = open_store(d, 0);
        settle(s, d);
        sim_disk_fill(d, true);
        while (!store_short_of_room(s)) { /* the second file is begun, no spare can be made */
                append(s, at, at, 1, 400);
                settle(s, d);
                at++;
        }
        snapshot(s, at - 1, 3000, false); /* what is_due() does then */
        settle(s, d);
        store_trim(s, at - 1);
        settle(s, d);
        sim_disk_fill(d, false);
        for (int i = 0; i < 100; i++, at++) {
                append(s, at, at, 1, 400);
                settle(s, d);
                if (store_short_of_room(s)) /* as replica_run() does */
                        store_retry(s);
                settle(s, d);
        }
        CHECK_EQ(persisted, at - 1);
        store_free(s);
        segment_size = 0;
}

/* The disk's second thread is busy. */
static const struct disk_ops *kept_ops;
static struct disk_ops two_threads;
static struct disk_job *held_jobs[64];
static unsigned n_held_jobs;
static void hold_aside(struct disk *d, struct disk_job *j)
{
        (void) d;
        CHECK(n_held_jobs < ARRAY_SIZE(held_jobs));
        held_jobs[n_held_jobs++] = j;
}

static void begin_to_hold(struct disk *d)
{
        n_held_jobs = 0;
        kept_ops = d->ops;
        two_threads = *d->ops;
        two_threads.submit_aside = hold_aside;
        d->ops = &two_threads;
}

static void run_held(struct disk *d)
{
        for (unsigned i = 0; i < n_held_jobs; i++) {
                held_jobs[i]->run(held_jobs[i]);
                held_jobs[i]->done(held_jobs[i]);
                finish(d);
        }
        d->ops = kept_ops;
}

TEST(the_log_continues_while_a_large_snapshot_is_written)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store *s;
        uint64_t at = 2;

        persisted = 1;
        failures = 0;
        segment_size = 4096;
        s = open_store(d, 0);
        settle(s, d);
        begin_to_hold(d);
        snapshot(s, 1, 1 << 16, false); /* takes its time */
        for (; at < 200; at++) {
                append(s, at, at, 1, 400);
                settle(s, d);
        }
        CHECK_EQ(persisted, at - 1);
        run_held(d);
        CHECK_EQ(failures, 0);
        store_free(s);
        segment_size = 0;
}

/* A snapshot releases many files of the log at once. The log's next write comes first, not
 * behind their removals. */
TEST(the_log_does_not_wait_for_the_removal_of_its_old_files)
{
        cleanup_(disk_freep) struct disk *d = sim_disk_new();
        struct store *s;
        uint64_t at = 2;

        persisted = 1;
        failures = 0;
        segment_size = 4096;
        s = open_store(d, 0);
        for (; at < 195; at++) { /* which is not the first of a file */
                append(s, at, at, 1, 400);
                settle(s, d);
        }
        snapshot(s, at - 1, 100, false);
        settle(s, d);
        begin_to_hold(d);
        store_trim(s, at - 1);
        append(s, at, at, 1, 400);
        sim_disk_finish_at(d, DISK_LOG);
        CHECK_EQ(persisted, at);
        CHECK(n_held_jobs > 20);
        run_held(d);
        CHECK_EQ(failures, 0);
        CHECK_EQ(d->ops->remove(d, "log-0000000000000001"), -ENOENT); /* it went */
        store_free(s);
        segment_size = 0;
}

static size_t spare_size;
static unsigned n_spares_seen;

/* Each spare is as large as its name says, and as the segments are. */
static int look_at_spare(const char *name, uint64_t size, void *arg)
{
        unsigned seq, named;

        (void) arg;
        if (sscanf(name, "spare-%8x-%8x", &seq, &named) != 2)
                return 0;
        CHECK_EQ(named, spare_size);
        CHECK_EQ(size, spare_size);
        n_spares_seen++;
        return 0;
}

static void check_spares(struct disk *d)
{
        spare_size = segment_size;
        n_spares_seen = 0;
        CHECK_EQ(d->ops->list(d, look_at_spare, NULL), 0);
        CHECK_EQ(n_spares_seen, 3);
}

/* A directory of another version, whose log files were smaller or larger, or of a crash between
 * the creation of a large file and its use: the log continues in files of today's size,
 * whatever a power loss leaves of that change. */
TEST(spares_of_another_size_do_not_stop_the_log)
{
        for (unsigned round = 0; round < 120; round++) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();
                size_t was[] = {1024, 4096, 16384, 65536};
                uint64_t at = 2;
                struct store *s;
                struct rnd r;

                rnd_init(&r, rnd(0, UINT64_MAX));
                failures = 0;
                segment_size = was[round % ARRAY_SIZE(was)];
                s = open_store(d, 0);
                settle(s, d);
                check_spares(d);
                store_free(s);
                segment_size = 8192;
                s = open_store(d, 0);
                store_recovered_free(s);
                if (round >= 60) { /* the power goes while that is made up for */
                        store_flush(s);
                        for (uint64_t k = rnd(0, 4); k > 0 && sim_disk_busy(d); k--)
                                sim_disk_finish(d);
                        if (round % 2 == 0)
                                (void) sim_disk_crash(d, &r);
                        else
                                (void) sim_disk_kill(d, &r);
                        store_free(s);
                        s = open_store(d, 0);
                        store_recovered_free(s);
                }
                for (; at < 60; at += 2) {
                        append(s, at, at + 1, 1, 3000);
                        settle(s, d);
                        CHECK_EQ(persisted, at + 1);
                }
                check_spares(d);
                CHECK(!store_short_of_room(s));
                CHECK_EQ(failures, 0);
                store_free(s);
                s = open_store(d, 0);
                CHECK_EQ(store_recovered(s)->n_entries, at - 1);
                store_free(s);
                segment_size = 0;
        }
}

/* On a full disk, the space of old spares of another size is room for a new one. */
TEST(spares_of_another_size_are_room_on_a_full_disk)
{
        size_t was[] = {4096, 65536};

        for (unsigned i = 0; i < ARRAY_SIZE(was); i++) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();
                struct store *s;
                uint64_t at = 2;

                failures = 0;
                segment_size = was[i];
                s = open_store(d, 0);
                settle(s, d);
                store_free(s);
                segment_size = 8192;
                s = open_store(d, 0);
                store_recovered_free(s);
                sim_disk_fill(d, true);
                for (; at < 20; at++)
                        append(s, at, at, 1, 3000);
                settle(s, d);
                CHECK_EQ(failures, 0);
                CHECK(was[i] < segment_size || persisted == at - 1);
                sim_disk_fill(d, false);
                store_retry(s);
                settle(s, d);
                CHECK_EQ(persisted, at - 1);
                check_spares(d);
                store_free(s);
                segment_size = 0;
        }
}

/* A spare that was cut short, for example by an incomplete copy: a record that a crash tears in
 * it could not be distinguished from damage. It is filled up first. */
TEST(a_spare_is_not_believed_by_its_name)
{
        for (unsigned round = 0; round < 60; round++) {
                cleanup_(disk_freep) struct disk *d = sim_disk_new();
                struct store *s;
                struct rnd r;

                rnd_init(&r, rnd(0, UINT64_MAX));
                segment_size = 4096;
                s = open_store(d, 0);
                settle(s, d);
                store_free(s);
                for (int i = 1; i <= 3; i++) {
                        char name[32];

                        snprintf(name, sizeof(name), "spare-%08x-00001000", i);
                        CHECK_EQ(d->ops->create(d, name, rnd(0, 1) * rnd(0, 4095)), 0);
                }
                s = open_store(d, 0);
                store_recovered_free(s);
                append(s, 2, 7, 1, 500);
                settle(s, d);
                CHECK_EQ(persisted, 7);
                append(s, 8, 13, 1, 500); /* the first of them */
                if (round % 2 == 0) {
                        settle(s, d);
                        CHECK_EQ(persisted, 13);
                        check_spares(d);
                }
                sim_disk_crash(d, &r);
                store_free(s);
                s = open_store(d, 0);
                CHECK(store_recovered(s)->n_entries >= persisted);
                store_free(s);
                segment_size = 0;
        }
}
