/* What a core does by itself: alarms and compaction. */
#include "core/internal.h"
#include "one.h"
#include "test.h"
#include "wire/pb.h"

#define MS NSEC_PER_MSEC
#define STEP (500 * NSEC_PER_USEC)

static struct {
        struct disk *disk;
        struct core *core;
        struct replica *replica;
        struct boot_time now;
} one;

static void begin(unsigned n_members, const struct core_config *cfg)
{
        memset(&one, 0, sizeof(one));
        one.now.ns = 1000 * NSEC_PER_SEC;
        one.disk = sim_disk_new();
        one_new(&one.core, &one.replica, one.disk, n_members, cfg, one.now);
}

/* Its disk needs no time. */
static void turn(void)
{
        one_turn(one.core, one.replica, one.disk, one.now);
}

static void pass(nsec_t time)
{
        for (struct boot_time end = boot_add(one.now, time); boot_before(one.now, end);) {
                one.now = boot_add(one.now, STEP);
                turn();
        }
}

static void end(void)
{
        core_free(one.core);
        replica_free(one.replica);
        disk_free(one.disk);
}

static void on_done(struct core_write *w, struct status st, struct view reply)
{
        (void) w;
        (void) reply;
        CHECK_EQ(st.code, RPC_OK);
}

static void propose(struct core_write *w, enum cmd_type type, const ProtobufCMessage *m)
{
        cleanup_(buf_fini) struct buf b = {0};

        pb_append(&b, m);
        w->done = on_done;
        CHECK_EQ(core_write(one.core, w, type, NULL, buf_head(&b), buf_len(&b), 0), 0);
}

/* What a member has said of itself goes with it, once no member is of 0.1.0, which would keep
 * it for ever. */
TEST(the_names_of_former_members_are_dropped)
{
        static const struct core_config cfgs[] = {
                {.timeout = 5 * NSEC_PER_SEC},
                {.timeout = 5 * NSEC_PER_SEC, .version = CLUSTER_0_1},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cfgs); i++) {
                Pb__Member m = PB__MEMBER__INIT;
                struct core_write w[3] = {0};

                begin(1, &cfgs[i]);
                CHECK_EQ(core_set_member(one.core, "a", "http://a:1"), 0);
                pass(NSEC_PER_SEC);
                m.name = "gone";
                for (size_t k = 0; k < ARRAY_SIZE(w); k++) {
                        m.id = 77 + k;
                        propose(&w[k], CMD_MEMBER, &m.base);
                }
                pass(5 * NSEC_PER_SEC);
                CHECK_EQ(core_state(one.core)->n_members,
                         core_state(one.core)->cluster_version == CLUSTER_0_1 ? 4 : 1);
                CHECK_STR(core_state(one.core)->members[0].name, "a");
                end();
        }
}

static bool is_refused(void)
{
        static uint8_t value[2000000];
        static const struct cmd_user user;
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;
        struct budget left = BUDGET_ALL;
        struct state_admission a;

        q.key = pb_bytes("k", 1);
        q.value = pb_bytes(value, sizeof(value));
        return core_admit(one.core, CMD_PUT, &user, &q, &left, &a).code != RPC_OK;
}

/* Who has refused a write for the quota raises the alarm as soon as somebody leads. */
TEST(an_alarm_of_the_quota_waits_for_a_leader)
{
        cleanup_(buf_fini) struct buf alarm = {0};

        begin(3, &(struct core_config){.timeout = 5 * NSEC_PER_SEC, .quota = 1000000});
        CHECK_EQ(core_status(one.core).leader_id, 0);
        CHECK(is_refused());
        turn();
        CHECK(one.core->upkeep.refused);
        CHECK(upkeep_quota(&one.core->upkeep, &one.core->cfg, &one.core->state, one.now,
                           &alarm));
        end();
}

/* While the alarm is on its way, further writes are refused. Each of them proposed it again. */
TEST(an_alarm_of_the_quota_is_proposed_once_a_second)
{
        cleanup_(buf_fini) struct buf alarm = {0};
        struct upkeep *u;

        begin(3, &(struct core_config){.timeout = 5 * NSEC_PER_SEC, .quota = 1000000});
        u = &one.core->upkeep;
        CHECK(is_refused());
        CHECK(upkeep_quota(u, &one.core->cfg, &one.core->state, one.now, &alarm));
        for (unsigned i = 0; i < 9; i++) {
                one.now = boot_add(one.now, 100 * MS);
                CHECK(is_refused());
                CHECK(!upkeep_quota(u, &one.core->cfg, &one.core->state, one.now, &alarm));
        }
        one.now = boot_add(one.now, 100 * MS);
        CHECK(upkeep_quota(u, &one.core->cfg, &one.core->state, one.now, &alarm));
        end();
}

/* And it asks again until the alarm stands, but not after it has stood. */
TEST(an_alarm_of_the_quota_is_raised_once)
{
        cleanup_(buf_fini) struct buf again = {0};
        Pb__AlarmRequest q = PB__ALARM_REQUEST__INIT;
        static struct core_write w;

        begin(1, &(struct core_config){.timeout = 5 * NSEC_PER_SEC, .quota = 1000000});
        pass(NSEC_PER_SEC);
        CHECK(is_refused());
        pass(2 * STEP);
        CHECK_EQ(core_state(one.core)->n_alarms, 1);
        q.action = PB__ALARM_REQUEST__ALARM_ACTION__DEACTIVATE;
        q.alarm = PB__ALARM_TYPE__NOSPACE;
        propose(&w, CMD_ALARM, &q.base);
        pass(3 * NSEC_PER_SEC);
        CHECK_EQ(core_state(one.core)->n_alarms, 0);
        CHECK(!upkeep_quota(&one.core->upkeep, &one.core->cfg, &one.core->state, one.now,
                            &again));
        end();
}

static void grant(struct core_write *w, int64_t id, int64_t ttl_ms)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;

        q.id = id;
        q.ttl_ms = ttl_ms;
        propose(w, CMD_GRANT, &q.base);
        pass(10 * MS);
}

/* For @time the log says at least this often which lease time it is. Returns how many entries
 * that took. An entry that was written for another reason says it as well: so the next one is
 * due so long after that. */
static uint64_t say(nsec_t time, nsec_t most, bool puts)
{
        struct lease_time last = core_state(one.core)->time;
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        uint64_t n = core_status(one.core).last;
        static struct core_write w;

        put.key = pb_bytes("k", 1);
        for (unsigned i = 1; i * STEP < time; i++) {
                if (puts && i % 700 == 0)
                        propose(&w, CMD_PUT, &put.base);
                pass(STEP);
                if (core_state(one.core)->time.ns != last.ns)
                        CHECK(lease_time_diff(core_state(one.core)->time, last) <
                              most + 10 * MS);
                last = core_state(one.core)->time;
        }
        CHECK(lease_time_diff(core_lease_time(one.core), last) < most + 10 * MS);
        return core_status(one.core).last - n;
}

TEST(the_log_says_which_lease_time_it_is_as_often_as_the_next_end_asks_for)
{
        static struct core_write w[3];

        begin(1, &(struct core_config){.timeout = 5 * NSEC_PER_SEC});
        pass(NSEC_PER_SEC);
        grant(&w[0], 7, 3600000);
        CHECK(say(10 * NSEC_PER_SEC, NSEC_PER_SEC, false) <= 10);
        CHECK(say(10 * NSEC_PER_SEC, NSEC_PER_SEC, true) < 30);
        grant(&w[1], 8, 4000);
        CHECK(say(2 * NSEC_PER_SEC, 500 * MS, false) < 7);
        CHECK(say(1900 * MS, 250 * MS, false) > 6);
        pass(NSEC_PER_SEC);
        CHECK_EQ(core_state(one.core)->leases.n, 1);
        pass(300 * MS);
        grant(&w[2], 9, 1500);
        CHECK(say(1400 * MS, 250 * MS, false) > 4);
        end();
}

/* A long history is compacted in steps, and an idle replica wakes for the next one. */
TEST(the_next_step_of_a_compaction_does_not_wait_for_others)
{
        static struct core_write w[20000];
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;
        const struct state *s;
        struct boot_time began;

        begin(1, &(struct core_config){.timeout = 5 * NSEC_PER_SEC, .compact_keep = 10});
        s = core_state(one.core);
        pass(NSEC_PER_SEC);
        q.key = pb_bytes("k", 1);
        for (size_t i = 0; i < ARRAY_SIZE(w); i++) {
                propose(&w[i], CMD_PUT, &q.base);
                if (i % 1000 == 999)
                        pass(20 * MS);
        }
        pass(100 * MS);
        CHECK(s->revision > (int64_t) ARRAY_SIZE(w));
        while (s->kv.compacted == 0)
                pass(10 * MS);
        for (began = one.now; s->kv.compacted < s->revision - 10; turn())
                one.now = boot_max(one.now, core_next(one.core));
        CHECK(boot_diff(one.now, began) < 200 * MS);
        end();
}

/* While nothing is committed, for example for hours because a disk is full, each step was
 * proposed a hundred times a second. */
TEST(a_step_of_a_compaction_is_proposed_once_a_second)
{
        cleanup_(buf_fini) struct buf step = {0};
        static struct core_write w[20];
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;
        struct upkeep *u;

        begin(1, &(struct core_config){.timeout = 5 * NSEC_PER_SEC, .compact_keep = 10});
        u = &one.core->upkeep;
        pass(NSEC_PER_SEC);
        q.key = pb_bytes("k", 1);
        for (size_t i = 0; i < ARRAY_SIZE(w); i++)
                propose(&w[i], CMD_PUT, &q.base);
        pass(100 * MS);
        one.now = boot_add(one.now, 60 * NSEC_PER_SEC);
        CHECK(upkeep_compact(u, &one.core->cfg, &one.core->state, one.now, &step));
        one.now = boot_add(one.now, 900 * MS);
        CHECK(!upkeep_compact(u, &one.core->cfg, &one.core->state, one.now, &step));
        CHECK(boot_before(one.now, upkeep_compact_next(u, &one.core->state, true)));
        one.now = boot_add(one.now, 100 * MS);
        CHECK(upkeep_compact(u, &one.core->cfg, &one.core->state, one.now, &step));
        end();
}
