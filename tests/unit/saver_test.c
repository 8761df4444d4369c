/* Snapshots and hashes show one moment, and end, whatever is compacted meanwhile; and a
 * snapshot that is streamed is not held in memory. */
#include <malloc.h>

#include "../whole.h"
#include "rig.h"
#include "state/kv_hash.h"

#define KEYS 200
#define SNAPSHOT "/etcdserverpb.Maintenance/Snapshot"
#define HASH "/etcdserverpb.Maintenance/Hash"
#define HASHKV "/etcdserverpb.Maintenance/HashKV"

static void change(struct state *s)
{
        struct kv *kv = &s->kv;
        char key[16];
        int len = snprintf(key, sizeof(key), "k%03u", (unsigned) (rnd(0, KEYS) * rnd(0, 1)));
        struct kv_key *k = kv_find(kv, key, (size_t) len);

        s->revision++;
        if (k && kv_live(k) && rnd(0, 2) == 0)
                CHECK_EQ(kv_delete(kv, s->revision, 0, k), 0);
        else
                CHECK_EQ(kv_put(kv, s->revision, 0, key, (size_t) len, "value", rnd(0, 5), 0,
                                &k),
                         0);
        if (rnd(0, 3) == 0 && kv_live(k) && rnd(0, 1)) /* put and deleted by one txn */
                CHECK_EQ(kv_delete(kv, s->revision, 1, k), 0);
}

static void compact(struct kv *kv, int64_t upto)
{
        int64_t least = max_of(kv->compacted, (int64_t) 1);

        if (upto > least)
                kv_compact(kv, (int64_t) rnd((uint64_t) least, (uint64_t) upto));
}

#define SAVERS 4

struct saved {
        struct state_saver saver;
        struct buf want, got;
        bool counted;
};

static void save_begin(struct saved *v, struct state *s)
{
        state_saver_fini(&v->saver);
        buf_clear(&v->want);
        buf_clear(&v->got);
        state_save(s, &v->want);
        state_save_start(&v->saver, s);
        v->counted = rnd(0, 1);
}

/* Runs one slice. Returns true when the snapshot is complete, and as it must be. */
static bool save_run(struct saved *v)
{
        struct buf *out = &v->saver.out;
        size_t size = v->saver.size;
        int r;

        if (!v->counted) {
                r = state_save_count(&v->saver, rnd(1, 400));
                CHECK(r >= 0);
                v->counted = r == 0;
                if (r == 0)
                        CHECK_EQ(v->saver.size, buf_len(&v->want));
                return false;
        }
        r = state_save_more(&v->saver, rnd(1, 400));
        CHECK(r >= 0);
        CHECK_EQ(v->saver.size, size);
        buf_add(&v->got, buf_head(out), buf_len(out));
        buf_consume(out, buf_len(out));
        if (r > 0)
                return false;
        CHECK_EQ(bytes_cmp(buf_head(&v->got), buf_len(&v->got), buf_head(&v->want),
                           buf_len(&v->want)),
                 0);
        return true;
}

/* Several at a time, of several moments, and beside them one that pins no history. A compaction
 * ended every one of them: with continuous compactions none was finished. */
TEST(snapshots_in_parts_end_whatever_is_compacted)
{
        struct saved savers[SAVERS] = {0};
        struct kept_pin pin = {0};
        struct kv_hasher hasher = {0};
        unsigned whole = 0, hashed = 0;
        struct state s;
        uint32_t want = 0, got;

        state_init(&s);
        for (int i = 0; i < 2000; i++)
                change(&s);
        for (int i = 0; i < SAVERS; i++)
                save_begin(&savers[i], &s);
        for (int round = 0; round < 20000; round++) {
                struct saved *v = &savers[rnd(0, SAVERS - 1)];

                if (save_run(v)) {
                        save_begin(v, &s);
                        whole++;
                }
                if (want == 0) {
                        int64_t at = (int64_t) rnd((uint64_t) max_of(s.kv.compacted, 1),
                                                   (uint64_t) s.revision);

                        kv_hash_start(&hasher, &s.kv, at);
                        CHECK_EQ(kv_hash_more(&hasher, SIZE_MAX / 2, &want), 0);
                        kv_hash_start(&hasher, &s.kv, at);
                } else if (kv_hash_more(&hasher, rnd(1, 400), &got) == 0) {
                        CHECK_EQ(got, want);
                        want = 0;
                        hashed++;
                }
                if (rnd(0, 2) == 0)
                        change(&s);
                if (rnd(0, 9) == 0)
                        compact(&s.kv, s.revision);
                if (rnd(0, 4) == 0)
                        (void) kept_sweep(&s.kv.kept, &(struct budget){rnd(1, 50)});
                if (rnd(0, 99) == 0) {
                        kept_unpin(&pin);
                        kept_pin(&s.kv.kept, &pin, s.revision, s.revision);
                }
        }
        CHECK(whole > 20);
        CHECK(hashed > 20);
        for (int i = 0; i < SAVERS; i++) {
                state_saver_fini(&savers[i].saver);
                buf_fini(&savers[i].want);
                buf_fini(&savers[i].got);
        }
        kv_hash_fini(&hasher);
        kept_unpin(&pin);
        while (kept_sweep(&s.kv.kept, &(struct budget){100}))
                ;
        CHECK_EQ(s.kv.kept.bytes, 0);
        state_fini(&s);
}

/* One key with a long history, of which a little is compacted between any two looks. */
/* A key that came after it began, and of whose versions the compacted one is just where a slice
 * ends: it was looked at from its newest on for ever. */
TEST(a_slice_may_end_at_a_compacted_version)
{
        struct state_saver saver = {0};
        struct state s;
        struct kv_key *k;
        unsigned slices = 0;
        int64_t revision = 0;

        state_init(&s);
        CHECK_EQ(kv_put(&s.kv, ++revision, 0, "a", 1, "x", 1, 0, &k), 0);
        s.revision = revision;
        state_save_start(&saver, &s);
        CHECK_EQ(kv_put(&s.kv, ++revision, 0, "k", 1, "x", 1, 0, &k), 0);
        CHECK_EQ(kv_put(&s.kv, ++revision, 0, "a", 1, "x", 1, 0, &k), 0);
        for (unsigned i = 0; i < 5; i++)
                CHECK_EQ(kv_put(&s.kv, ++revision, 0, "k", 1, "x", 1, 0, &k), 0);
        s.revision = revision;
        kv_compact(&s.kv, 3);
        while (state_save_more(&saver, 64) == 1)
                CHECK(++slices < 100);
        state_saver_fini(&saver);
        state_fini(&s);
}

TEST(a_long_history_is_seen_whatever_is_compacted)
{
        struct saved v = {0};
        struct state s;
        unsigned rounds = 0;

        state_init(&s);
        for (int i = 0; i < 3000; i++) {
                struct kv_key *k;

                CHECK_EQ(kv_put(&s.kv, ++s.revision, 0, "counter", 7, "v", 1, 0, &k), 0);
        }
        for (int i = 0; i < 3; i++) {
                save_begin(&v, &s);
                v.counted = false;
                for (; !save_run(&v); rounds++) {
                        struct kv_key *k;

                        CHECK_EQ(kv_put(&s.kv, ++s.revision, 0, "counter", 7, "v", 1, 0, &k),
                                 0);
                        if (s.kv.compacted + 1 < s.revision)
                                kv_compact(&s.kv, s.kv.compacted + 1);
                        (void) kept_sweep(&s.kv.kept, &(struct budget){20});
                        CHECK(rounds < 100000);
                }
        }
        CHECK(rounds > 300);
        state_saver_fini(&v.saver);
        buf_fini(&v.want);
        buf_fini(&v.got);
        state_fini(&s);
}

/* What cannot be kept is lost, with an error, and memory stays within its bound. */
TEST(what_is_kept_for_snapshots_has_a_bound)
{
        struct state_saver sv = {0};
        struct state s;
        int r;

        state_init(&s);
        s.kv.kept.max = 20000;
        for (int i = 0; i < 2000; i++)
                change(&s);
        state_save_start(&sv, &s);
        CHECK_EQ(state_save_more(&sv, 100), 1);
        for (int i = 0; i < 100; i++) {
                kv_compact(&s.kv, s.revision);
                CHECK(s.kv.kept.bytes <= 2 * s.kv.kept.max);
                for (int j = 0; j < 50; j++)
                        change(&s);
        }
        CHECK_EQ(state_save_more(&sv, 100), -ESTALE);
        while (kept_sweep(&s.kv.kept, &(struct budget){100}))
                ;
        CHECK_EQ(s.kv.kept.bytes, 0);
        state_save_start(&sv, &s);
        while ((r = state_save_more(&sv, 100)) == 1)
                ;
        CHECK_EQ(r, 0);
        state_saver_fini(&sv);
        state_fini(&s);
}

/* ---- streams ---- */

static void fill(unsigned n, size_t value_len)
{
        char key[16];

        for (unsigned i = 0; i < n; i++) {
                snprintf(key, sizeof(key), "k%06u", i);
                rig_put(key, value_len);
        }
}

/* Up to now, each millisecond. */
static void wait_disturbed(struct rig_call *call, unsigned max)
{
        for (unsigned i = 1; !call->over && i < max; i++) {
                rig_turn();
                rig_put("k000007", 100);
                rig_compact();
        }
        CHECK(call->over);
        CHECK_STR(call->text, "");
        CHECK_EQ(call->code, RPC_OK);
}

TEST(what_looks_at_all_ends_whatever_is_compacted)
{
        const char *paths[] = {SNAPSHOT, HASH, HASHKV};
        Pb__HashRequest q = PB__HASH_REQUEST__INIT; /* empty, as the others */

        rig_begin();
        fill(64, 100000);
        for (size_t i = 0; i < ARRAY_SIZE(paths); i++) {
                struct rig_call call;
                struct rig_conn *c = rig_connect(0);

                rig_ask(c, &call, paths[i], &q.base);
                wait_disturbed(&call, 3000);
                if (i == 0)
                        CHECK(call.bytes > 64 * 100000);
                rig_forget(&call);
                rig_disconnect(c);
        }
        for (unsigned i = 0; i < 100; i++)
                rig_turn();
        CHECK_EQ(core_state(rig.core)->kv.kept.bytes, 0);
        rig_end();
}

/* 40 streams of a state of 32 MB took 1.4 GB, charged to nobody. */
TEST(snapshots_that_are_not_read_hold_little)
{
        enum { READERS = 40 };
        Pb__SnapshotRequest q = PB__SNAPSHOT_REQUEST__INIT;
        struct rig_conn *conns[READERS];
        struct rig_call calls[READERS];
        struct mallinfo2 before, after;

        rig_begin();
        fill(32, 1000000);
        rig.account.max = 16 << 20;
        for (size_t i = 0; i < READERS; i++)
                conns[i] = rig_connect(i % 8);
        before = mallinfo2();
        for (size_t i = 0; i < READERS; i++) {
                rig_ask(conns[i], &calls[i], SNAPSHOT, &q.base);
                conns[i]->takes = 0;
        }
        for (unsigned i = 0; i < 500; i++)
                rig_turn();
        after = mallinfo2();
        CHECK(after.uordblks + after.hblkhd < before.uordblks + before.hblkhd + (64 << 20));
        for (size_t i = 0; i < READERS; i++) {
                CHECK(!calls[i].over);
                rig_forget(&calls[i]);
                if (i > 0)
                        rig_disconnect(conns[i]);
        }
        conns[0]->takes = 1 << 20;
        rig_wait(&calls[0], 10000);
        CHECK_EQ(calls[0].code, RPC_OK);
        CHECK(calls[0].bytes > 32 * 1000000);
        rig_forget(&calls[0]);
        rig_end();
}
