/* Reads that cannot be answered, since there is no leader: they end in time, and leave nothing.
 * */
#include "one.h"
#include "test.h"

#define READS 1000

static unsigned n_done, n_leaderless;

static void done(struct core_read *rd, struct status st)
{
        (void) rd;
        n_done++;
        n_leaderless += st.code == status_no_leader.code;
}

TEST(reads_that_timed_out_are_not_asked_for_any_more)
{
        struct boot_time now = {1000 * NSEC_PER_SEC};
        struct core_read *reads = calloc(READS, sizeof(*reads));
        struct disk *disk = sim_disk_new();
        struct replica *r;
        struct core *c;

        n_done = n_leaderless = 0;
        one_new(&c, &r, disk, 3, &(struct core_config){.timeout = NSEC_PER_SEC}, now);
        for (unsigned i = 0; i < READS; i++) {
                reads[i].done = done;
                core_read(c, &reads[i], i % 2 ? 50 * MSEC : 5000 * MSEC);
        }
        CHECK_EQ(replica_n_reads(r), READS);
        /* Reads with a short timeout of their own, and one whose client went away. */
        core_read_cancel(c, &reads[0]);
        now = boot_add(now, 200 * MSEC);
        CHECK(!boot_before(now, core_next(c)));
        core_run(c, now);
        CHECK_EQ(n_done, READS / 2);
        CHECK_EQ(replica_n_reads(r), READS / 2 - 1);
        now = boot_add(now, NSEC_PER_SEC);
        core_run(c, now);
        CHECK_EQ(n_done, READS - 1);
        CHECK_EQ(n_leaderless, READS - 1);
        CHECK_EQ(replica_n_reads(r), 0);
        core_free(c);
        disk_free(disk);
        replica_free(r);
        free(reads);
}

/* However many there are, so many end in one turn. */
TEST(reads_time_out_some_at_a_time)
{
        enum { N = 2500 };
        struct boot_time now = {1000 * NSEC_PER_SEC};
        struct core_read *reads = calloc(N, sizeof(*reads));
        struct disk *disk = sim_disk_new();
        struct replica *r;
        struct core *c;

        n_done = n_leaderless = 0;
        one_new(&c, &r, disk, 3, &(struct core_config){.timeout = NSEC_PER_SEC}, now);
        for (unsigned i = 0; i < N; i++) {
                reads[i].done = done;
                core_read(c, &reads[i], 0);
        }
        now = boot_add(now, 1100 * MSEC);
        core_run(c, now);
        CHECK_EQ(n_done, 1000);
        CHECK(!boot_before(boot_add(now, MSEC), core_next(c)));
        core_run(c, now);
        core_run(c, now);
        CHECK_EQ(n_done, N);
        core_free(c);
        disk_free(disk);
        replica_free(r);
        free(reads);
}
