/*
 * Measures how long each operation holds the loop: on a single replica with its services, on a
 * disk in memory, with a million keys and a million leases, and one client.
 *
 * What counts is the processor time that the server uses without a break - a turn of its timers
 * and what they flush, a read or a write of one connection, the end of one write to the disk -
 * and not the time of its clients or of the disk's thread. So a busy machine disturbs it
 * little.
 */
#include "../unit/rig.h"

#include "../unit/one.h"
#include "../whole.h"
#include "base/crc32c.h"
#include "consensus/message.h"
#include "etcd/metrics.h"

#include <malloc.h>
#include <raft.h>
#include <stdarg.h>
#include <string.h>

#define KEYS 1000000
#define LEASES 1000000
#define OF_ONE 100000 /* keys of one lease; that end at once */
#define USERS 10000
#define ROLES 1000
#define PERMISSIONS 1000
#define LARGE 1000000 /* bytes of a large value */
#define N_LARGE 300
#define WRITES 20000
#define TURNS 200000

static const char *only;
static struct rnd random_;

void test_fail(const char *file, int line, const char *fmt, ...)
{
        va_list ap;

        fprintf(stderr, "%s:%d: ", file, line);
        va_start(ap, fmt);
        vfprintf(stderr, fmt, ap);
        va_end(ap);
        fputc('\n', stderr);
        exit(1);
}

uint64_t rnd(uint64_t lo, uint64_t hi)
{
        return rnd_between(&random_, lo, hi);
}

static void tell(const char *what)
{
        printf("| %s | %.1f |\n", what, (double) rig.longest / 1e6);
        fflush(stdout);
        rig.longest = 0;
}

/* ---- what there is ---- */

static void add_lease(struct state *s, int64_t id, nsec_t end)
{
        struct lease *l;

        CHECK_EQ(leases_add(&s->leases, id, 3600000, 1, NULL, 0, NULL, &l), 0);
        CHECK_EQ(deadlines_set(&s->deadlines, l->slot, (struct lease_time){end}), 0);
}

static void add_key(struct state *s, const char *prefix, unsigned i, int64_t lease)
{
        static const uint8_t value[64];
        char name[32];
        struct kv_key *k;

        snprintf(name, sizeof(name), "%s%07u", prefix, i);
        CHECK_EQ(kv_put(&s->kv, ++s->revision, 0, name, strlen(name), value, sizeof(value),
                        lease, &k),
                 0);
        if (lease != 0)
                leases_attach(k, leases_find(&s->leases, lease));
}

static void add_users(struct state *s)
{
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;
        Pb__AuthUserAddRequest u = PB__AUTH_USER_ADD_REQUEST__INIT;
        Pb__AuthRoleAddRequest r = PB__AUTH_ROLE_ADD_REQUEST__INIT;
        Pb__AuthRoleGrantPermissionRequest g = PB__AUTH_ROLE_GRANT_PERMISSION_REQUEST__INIT;
        Pb__Permission p = PB__PERMISSION__INIT;
        char name[32], key[32];
        enum state_outcome o;

        u.hashedpassword =
                (char *) (uintptr_t) "$6$0123456789abcdef$0123456789abcdef0123456789";
        u.name = r.name = g.name = name;
        g.perm = &p;
        for (unsigned i = 0; i < USERS; i++) {
                snprintf(name, sizeof(name), "user-%05u", i);
                c.change_case = PB__AUTH_CHANGE__CHANGE_USER_ADD;
                c.user_add = &u;
                CHECK_EQ(auth_change(&s->auth, &c, &o), 0);
        }
        for (unsigned i = 0; i < ROLES; i++) {
                snprintf(name, sizeof(name), "role-%05u", i);
                c.change_case = PB__AUTH_CHANGE__CHANGE_ROLE_ADD;
                c.role_add = &r;
                CHECK_EQ(auth_change(&s->auth, &c, &o), 0);
                c.change_case = PB__AUTH_CHANGE__CHANGE_ROLE_GRANT_PERMISSION;
                c.role_grant_permission = &g;
                for (unsigned k = 0; k < PERMISSIONS; k++) {
                        p.key = pb_bytes(key, (size_t) snprintf(key, sizeof(key), "k%05u", k));
                        CHECK_EQ(auth_change(&s->auth, &c, &o), 0);
                }
        }
}

/* Values of a million bytes, of @n_keys keys in turn. */
static void add_large(struct state *s, const char *prefix, unsigned n_keys)
{
        static uint8_t value[LARGE];
        struct kv_key *k;
        char key[32];

        for (unsigned i = 0; i < N_LARGE; i++) {
                value[LARGE - 1] = (uint8_t) (i * 37);
                snprintf(key, sizeof(key), "%s%04u", prefix, i % n_keys);
                CHECK_EQ(kv_put(&s->kv, ++s->revision, 0, key, strlen(key), value,
                                sizeof(value), 0, &k),
                         0);
        }
}

static void populate(struct state *s)
{
        for (int64_t i = 1; i <= LEASES; i++)
                add_lease(s, i, (nsec_t) 1 << 60);
        for (unsigned i = 0; i < KEYS; i++)
                add_key(s, "k", i * 7919 % KEYS, i + 1);
}

/* ---- what is asked ---- */

/* Some services answer by a stream, and some not before all was read. */
static void ask(const char *what, const char *path, const ProtobufCMessage *m)
{
        struct rig_conn *c = rig_connect(0);
        struct rig_call call;

        if (only && !strstr(what, only))
                return;
        c->takes = 64 << 10;
        rig.longest = 0;
        rig_ask(c, &call, path, m);
        rig_wait(&call, TURNS);
        for (unsigned i = 0; i < 500; i++) /* what it leaves to be done */
                rig_turn();
        if (call.code != RPC_OK)
                printf("%s: %s\n", what, call.text);
        tell(what);
        rig_forget(&call);
        rig_disconnect(c);
}

static void ranges(void)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;

        q.key = pb_bytes("k", 1);
        q.range_end = pb_bytes("l", 1);
        ask("Range of a million keys", "/etcdserverpb.KV/Range", &q.base);
        q.sort_target = PB__RANGE_REQUEST__SORT_TARGET__MOD;
        q.sort_order = PB__RANGE_REQUEST__SORT_ORDER__DESCEND;
        q.limit = 10;
        ask("Range, the 10 newest of a million", "/etcdserverpb.KV/Range", &q.base);
        q.count_only = true;
        ask("Range, count only", "/etcdserverpb.KV/Range", &q.base);
}

static void sorts(struct state *s)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;

        add_large(s, "v", N_LARGE);
        q.key = pb_bytes("v", 1);
        q.range_end = pb_bytes("w", 1);
        q.sort_target = PB__RANGE_REQUEST__SORT_TARGET__VALUE;
        q.sort_order = PB__RANGE_REQUEST__SORT_ORDER__ASCEND;
        q.keys_only = true;
        ask("Range of 300 values of 1 MB that begin alike, sorted by value",
            "/etcdserverpb.KV/Range", &q.base);
}

static void lists(void)
{
        Pb__LeaseLeasesRequest q = PB__LEASE_LEASES_REQUEST__INIT;
        Pb__LeaseTimeToLiveRequest t = PB__LEASE_TIME_TO_LIVE_REQUEST__INIT;
        Pb__HashKVRequest h = PB__HASH_KVREQUEST__INIT;
        Pb__SnapshotRequest n = PB__SNAPSHOT_REQUEST__INIT;
        Pb__DefragmentRequest d = PB__DEFRAGMENT_REQUEST__INIT;

        ask("LeaseLeases, a million", "/etcdserverpb.Lease/LeaseLeases", &q.base);
        t.id = LEASES + 1;
        t.keys = true;
        ask("LeaseTimeToLive with 100,000 keys", "/etcdserverpb.Lease/LeaseTimeToLive",
            &t.base);
        ask("HashKV", "/etcdserverpb.Maintenance/HashKV", &h.base);
        ask("Snapshot", "/etcdserverpb.Maintenance/Snapshot", &n.base);
        ask("Defragment: a snapshot of its own", "/etcdserverpb.Maintenance/Defragment",
            &d.base);
}

static void ends(void)
{
        Pb__DeleteRangeRequest q = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__LeaseRevokeRequest v = PB__LEASE_REVOKE_REQUEST__INIT;
        Pb__CompactionRequest c = PB__COMPACTION_REQUEST__INIT;
        struct state *s = core_state(rig.core);
        struct kept_pin snapshot;

        v.id = LEASES + 1;
        ask("LeaseRevoke with 100,000 keys", "/etcdserverpb.Lease/LeaseRevoke", &v.base);
        q.key = pb_bytes("d", 1);
        q.range_end = pb_bytes("e", 1);
        ask("DeleteRange of 100,000 keys", "/etcdserverpb.KV/DeleteRange", &q.base);
        c.revision = s->revision;
        c.physical = true;
        ask("Compact of 1,400,000 changes", "/etcdserverpb.KV/Compact", &c.base);
        kept_pin(&s->kv.kept, &snapshot, s->kv.compacted, s->revision);
        add_key(s, "z", 0, 0);
        c.revision = s->revision;
        ask("Compact of 100,000 deletions of one revision that a snapshot holds",
            "/etcdserverpb.KV/Compact", &c.base);
        kept_unpin(&snapshot);
        add_large(s, "large", 1);
        c.revision = s->revision;
        ask("Compact of 300 values of 1 MB", "/etcdserverpb.KV/Compact", &c.base);
        for (unsigned i = 0; i < OF_ONE; i++)
                CHECK_EQ(deadlines_set(&s->deadlines, i, (struct lease_time){1}), 0);
        rig.longest = 0;
        for (unsigned i = 0; i < 2000; i++)
                rig_turn();
        CHECK(!leases_find(&s->leases, 1) && !leases_find(&s->leases, OF_ONE));
        tell("100,000 leases that expire in one instant");
}

/* ---- a snapshot of another replica's ---- */

static struct {
        struct core *core;
        struct replica *replica;
        struct disk *disk;
        struct boot_time now;
        nsec_t longest;
        bool adopted;
} f;

static nsec_t cpu(void)
{
        struct timespec t;

        CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
        return t.tv_sec * NSEC_PER_SEC + t.tv_nsec;
}

static void follower_turn(void)
{
        nsec_t since = cpu();

        f.now = boot_add(f.now, NSEC_PER_MSEC);
        core_flush(f.core, f.now);
        replica_flush(f.replica, f.now);
        f.longest = max_of(f.longest, cpu() - since);
        for (unsigned q = 0; q < DISK_QUEUES; q++)
                while (sim_disk_busy_at(f.disk, (enum disk_queue) q)) {
                        (void) sim_disk_run_at(f.disk, (enum disk_queue) q);
                        since = cpu();
                        sim_disk_finish_at(f.disk, (enum disk_queue) q);
                        f.longest = max_of(f.longest, cpu() - since);
                }
}

static void print_row(const char *what)
{
        rig.longest = f.longest;
        f.longest = 0;
        tell(what);
}

/* The InstallSnapshot as its leader would send it. */
static void make(const struct state *s, uint64_t index, struct buf *ret)
{
        cleanup_(buf_fini) struct buf state = {0};
        struct raft_message m = {.type = RAFT_INSTALL_SNAPSHOT};
        static const char *const urls[] = {"http://1:1", "http://2:1", "http://3:1"};

        state_save(s, &state);
        raft_configuration_init(&m.install_snapshot.conf);
        for (unsigned i = 0; i < 3; i++)
                CHECK_EQ(raft_configuration_add(&m.install_snapshot.conf, i + 1, urls[i],
                                                RAFT_VOTER),
                         0);
        m.install_snapshot.term = m.install_snapshot.last_term = 9;
        m.install_snapshot.last_index = index;
        m.install_snapshot.conf_index = 1;
        CHECK_EQ(message_encode(&m, NULL, NULL, buf_len(&state), ret), 0);
        raft_configuration_close(&m.install_snapshot.conf);
        buf_add(ret, state.data, buf_len(&state));
        buf_consume(ret, 1);
        buf_add_u32(ret, crc32c(0, buf_head(ret), buf_len(ret)));
}

static void receive(const struct buf *whole, uint64_t index)
{
        size_t part = 512 << 10;

        for (size_t at = 0; at < buf_len(whole); at += part) {
                size_t n = min_of(part, buf_len(whole) - at);
                cleanup_(buf_fini) struct buf b = {0};
                nsec_t since;

                buf_add_u8(&b, FRAME_SNAPSHOT);
                buf_add_u64(&b, 9);
                buf_add_u64(&b, index);
                buf_add_u64(&b, buf_len(whole));
                buf_add_u64(&b, at);
                buf_add(&b, buf_head(whole) + at, n);
                since = cpu();
                CHECK_EQ(replica_input(f.replica, 2, (struct view){buf_head(&b), buf_len(&b)},
                                       f.now),
                         0);
                f.longest = max_of(f.longest, cpu() - since);
                follower_turn();
        }
}

static void install(const char *loads, const char *goes)
{
        cleanup_(buf_fini) struct buf whole = {0};
        struct state *s;

        f.now = (struct boot_time){1000 * NSEC_PER_SEC};
        f.disk = sim_disk_new();
        one_new(&f.core, &f.replica, f.disk, 3,
                &(struct core_config){.timeout = 5 * NSEC_PER_SEC, .max_txn_ops = 128}, f.now);
        s = core_state(rig.core);
        for (uint64_t index = 1000; index <= 2000; index += 1000) {
                uint64_t installs = core_installs(f.core);

                make(s, index, &whole);
                f.longest = 0;
                receive(&whole, index);
                for (unsigned i = 0; core_installs(f.core) == installs; i++) {
                        CHECK(i < TURNS);
                        follower_turn();
                }
                if (index == 1000)
                        print_row(loads);
                for (unsigned i = 0; i < 3000; i++)
                        follower_turn();
                buf_fini(&whole);
        }
        print_row(goes);
        core_free(f.core);
        replica_free(f.replica);
        disk_free(f.disk);
}

/* The longest of a hundred. */
static void scrape(const char *what, bool open_metrics)
{
        cleanup_(buf_fini) struct buf page = {0};

        if (only && !strstr(what, only))
                return;
        rig.longest = 0;
        for (unsigned i = 0; i < 100; i++) {
                nsec_t since = cpu();

                buf_clear(&page);
                metrics_write(rig.api, open_metrics, &page);
                rig.longest = max_of(rig.longest, cpu() - since);
        }
        tell(what);
}

int main(int argc, char **argv)
{
        struct state *s;

        only = argc > 1 ? argv[1] : NULL;
        replica_end_without_memory();
        /* As tenure-core has it. */
        mallopt(M_MMAP_THRESHOLD, 256 << 10);
        mallopt(M_MMAP_MAX, 32768);
        mallopt(M_TRIM_THRESHOLD, 16 << 20);
        mallopt(M_MXFAST, 0);
        rig_measures = true;
        rnd_init(&random_, 1);
        printf("| what | longest turn, ms of processor time |\n| --- | --- |\n");
        rig_begin();
        s = core_state(rig.core);
        populate(s);
        add_lease(s, LEASES + 1, (nsec_t) 1 << 60);
        for (unsigned i = 0; i < OF_ONE; i++) {
                add_key(s, "a", i, LEASES + 1);
                add_key(s, "d", i, 0);
        }
        install("install: a snapshot is read in",
                "install: the same beside such a state, which goes");
        ranges();
        lists();
        scrape("a page of metrics", false);
        scrape("a page of metrics, as OpenMetrics", true);
        ends();
        sorts(s);
        add_users(s);
        {
                Pb__DefragmentRequest d = PB__DEFRAGMENT_REQUEST__INIT;

                ask("Defragment with 10,000 users and 1,000 roles of 1,000 permissions",
                    "/etcdserverpb.Maintenance/Defragment", &d.base);
        }
        rig_end();
        return 0;
}
