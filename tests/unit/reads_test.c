/* Reads that nobody answers, since there is no leader: they end in time, and leave nothing. */
#include "../sim/world.h"
#include "service/core.h"
#include "test.h"

#define READS 1000

static unsigned n_done, n_leaderless;

static void on_send(void *u, uint64_t peer, struct view frame)
{
        (void) u;
        (void) peer;
        (void) frame;
}

static void on_fatal(void *u, const char *why)
{
        (void) u;
        test_fail(__FILE__, __LINE__, "it gave up: %s", why);
}

static void done(struct core_read *rd, struct status st)
{
        (void) rd;
        n_done++;
        n_leaderless += st.code == status_no_leader.code;
}

TEST(reads_that_timed_out_are_not_asked_for_any_more)
{
        static const struct replica_peer peers[] = {
                {1, "http://1:1"}, {2, "http://2:1"}, {3, "http://3:1"}};
        static const struct core_owner owner = {.send = on_send, .fatal = on_fatal};
        struct boot_time now = {1000 * NSEC_PER_SEC};
        struct core_read *reads = calloc(READS, sizeof(*reads));
        struct disk *disk = sim_disk_new();
        struct store_error err;
        struct replica *r;
        struct core *c;

        n_done = n_leaderless = 0;
        CHECK_EQ(core_new(&c,
                          &(struct core_config){.cluster_id = 7,
                                                .member_id = 1,
                                                .timeout = NSEC_PER_SEC,
                                                .seed = 1},
                          now),
                 0);
        core_set_owner(c, &owner, NULL);
        CHECK_EQ(replica_new(&r,
                             &(struct replica_config){.id = 1,
                                                      .cluster_id = 7,
                                                      .peers = peers,
                                                      .n_peers = 3,
                                                      .election = 500 * MSEC,
                                                      .heartbeat = 50 * MSEC,
                                                      .seed = 1},
                             disk, &core_replica_ops, c, now, &err),
                 0);
        core_attach(c, r);
        CHECK_EQ(replica_start(r), 0);
        for (unsigned i = 0; i < READS; i++) {
                reads[i].done = done;
                core_read(c, &reads[i], i % 2 ? 50 * MSEC : 5000 * MSEC);
        }
        CHECK_EQ(replica_n_reads(r), READS);
        /* Those with a short patience of their own, and one whose client went away. */
        core_read_cancel(c, &reads[0]);
        now = boot_add(now, 200 * MSEC);
        CHECK(!boot_before(now, core_next(c)));
        core_tick(c, now);
        CHECK_EQ(n_done, READS / 2);
        CHECK_EQ(replica_n_reads(r), READS / 2 - 1);
        now = boot_add(now, NSEC_PER_SEC);
        core_tick(c, now);
        CHECK_EQ(n_done, READS - 1);
        CHECK_EQ(n_leaderless, READS - 1);
        CHECK_EQ(replica_n_reads(r), 0);
        core_free(c);
        disk_free(disk);
        replica_free(r);
        free(reads);
}
