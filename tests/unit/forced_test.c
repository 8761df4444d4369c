/* A replica that was forced to go on alone: it tells from which cluster it descends, and gives
 * each lease a new term before any of them ends. */
#include "../whole.h"
#include "core/internal.h"
#include "one.h"
#include "test.h"

#define OWN 7 /* the cluster of one.c */

static struct {
        struct boot_time now;
        struct core *core;
        struct replica *replica;
        struct disk *disk;
} one;

static void turn(void)
{
        one.now = boot_add(one.now, 10 * MSEC);
        one_turn(one.core, one.replica, one.disk, one.now);
}

static void pass(nsec_t time)
{
        for (nsec_t i = 0; i < time; i += 10 * MSEC)
                turn();
}

static void start(uint64_t ancestor, uint32_t version)
{
        one_new(&one.core, &one.replica, one.disk, 1,
                &(struct core_config){
                        .timeout = NSEC_PER_SEC, .ancestor = ancestor, .version = version},
                one.now);
        while (!core_status(one.core).ready)
                turn();
}

static void stop(void)
{
        one.core = core_free(one.core);
        one.replica = replica_free(one.replica);
}

static void begin(uint64_t ancestor, uint32_t version)
{
        memset(&one, 0, sizeof(one));
        one.now.ns = 1000 * NSEC_PER_SEC;
        one.disk = sim_disk_new();
        start(ancestor, version);
}

static void end(void)
{
        stop();
        disk_free(one.disk);
}

static uint64_t told(void)
{
        Pb__ResponseHeader h;

        core_header(one.core, &h);
        return h.ancestor;
}

/* From the log each member learns it, also one whose directory does not have it. */
TEST(the_ancestor_of_a_core_is_what_its_log_has_once_a_forced_member_has_reported_it)
{
        begin(5, 0);
        CHECK_EQ(told(), 5);
        pass(100 * MSEC);
        CHECK_EQ(state_ancestor(core_state(one.core), OWN), 5);
        stop();
        start(0, 0);
        pass(100 * MSEC);
        CHECK_EQ(told(), 5);
        stop();
        start(6, 0); /* forced again */
        CHECK_EQ(told(), 6);
        pass(100 * MSEC);
        stop();
        start(0, 0);
        pass(100 * MSEC);
        CHECK_EQ(told(), 6);
        end();
}

TEST(at_cluster_version_0_1_only_the_forced_member_knows_the_ancestor)
{
        begin(5, CLUSTER_0_1);
        pass(1000 * MSEC);
        CHECK_EQ(told(), 5);
        CHECK_EQ(state_ancestor(core_state(one.core), OWN), 0);
        stop();
        start(0, CLUSTER_0_1);
        CHECK_EQ(told(), 0);
        end();
}

static void grant(int64_t id, int64_t ttl_ms)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;
        cleanup_(buf_fini) struct buf body = {0};

        q.id = id;
        q.ttl_ms = ttl_ms;
        pb_append(&body, &q.base);
        CHECK_EQ(core_propose_own(one.core, CMD_GRANT, &body), 0);
        turn();
        CHECK(leases_find(&core_state(one.core)->leases, id));
}

static bool lives(int64_t id)
{
        return leases_find(&core_state(one.core)->leases, id);
}

/* A holder may have renewed after the survivor's last entry, and then counts on a whole TTL
 * from then on (I3). Once is enough. */
TEST(i3_a_forced_core_gives_each_lease_a_new_term_and_ends_none_before)
{
        begin(0, 0);
        grant(1, 1000);
        grant(2, 3000);
        pass(900 * MSEC);
        stop();
        start(5, 0);
        pass(900 * MSEC);
        CHECK(lives(1));
        pass(300 * MSEC);
        CHECK(!lives(1));
        pass(1500 * MSEC);
        CHECK(lives(2));
        stop();
        start(5, 0);
        pass(600 * MSEC);
        CHECK(!lives(2));
        end();
}

/* Two survivors of one cluster, and the cluster itself if it lives after all. */
TEST(i10_a_core_knows_its_kin)
{
        begin(5, 0);
        CHECK(core_is_kin(one.core, 8, 5));
        CHECK(core_is_kin(one.core, 8, OWN));
        CHECK(!core_is_kin(one.core, OWN, 5));
        CHECK(!core_is_kin(one.core, 5, 0));
        CHECK(!core_is_kin(one.core, 5, 4)); /* its ancestor, which was forced before */
        CHECK(!core_is_kin(one.core, 8, 6));
        CHECK(!core_is_kin(one.core, 0, 0));
        CHECK(!core_is_kin(one.core, 0, OWN)); /* no core has that id */
        CHECK(!core_is_kin(one.core, 9, 8));   /* forced out of a sibling: the manual says so */
        end();

        begin(8, 0); /* and the other way round */
        CHECK(!core_is_kin(one.core, 9, 5));
        end();
}

/* A replica that has just started is behind: it has not applied yet that the version rose. */
TEST(i10_a_core_stops_whatever_the_replica_that_learns_of_another_one_knows)
{
        begin(5, 0);
        pass(100 * MSEC);
        core_state(one.core)->cluster_version = CLUSTER_0_1;
        core_hear_of(one.core, 8);
        core_state(one.core)->cluster_version = CLUSTER_0_2;
        pass(100 * MSEC);
        CHECK_EQ(state_sibling(core_state(one.core)), 8);
        end();

        begin(0, CLUSTER_0_1);
        core_hear_of(one.core, 8);
        pass(100 * MSEC);
        CHECK(state_alarmed(core_state(one.core), PB__ALARM_TYPE__CORRUPT));
        CHECK_EQ(state_sibling(core_state(one.core)), 0);
        core_state(one.core)->cluster_version = CLUSTER_0_2;
        pass(1000 * MSEC);
        core_hear_of(one.core, 8);
        pass(100 * MSEC);
        CHECK_EQ(state_sibling(core_state(one.core)), 8);
        end();
}
