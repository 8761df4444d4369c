/* Reads that cannot be answered, since there is no leader: they end in time, and leave nothing.
 * */
#include "core/internal.h"
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

TEST(each_read_ends_by_its_own_timeout)
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
        /* Reads with a short timeout of their own, and one whose client went away. */
        core_read_cancel(c, &reads[0]);
        now = boot_add(now, 200 * MSEC);
        CHECK(!boot_before(now, core_next(c)));
        core_run(c, now);
        CHECK_EQ(n_done, READS / 2);
        now = boot_add(now, NSEC_PER_SEC);
        core_run(c, now);
        CHECK_EQ(n_done, READS - 1);
        CHECK_EQ(n_leaderless, READS - 1);
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

enum { FEW = 4 };

/* Begins some reads, which wait for the others. */
static struct core_read *begin_reads(struct core **c, struct replica **r, struct disk **d,
                                     size_t n)
{
        struct core_read *reads = calloc(n, sizeof(*reads));

        n_done = 0;
        *d = sim_disk_new();
        one_new(c, r, *d, 3, &(struct core_config){.timeout = NSEC_PER_SEC},
                (struct boot_time){1000 * NSEC_PER_SEC});
        for (size_t i = 0; i < n; i++) {
                reads[i].done = done;
                core_read(*c, &reads[i], 0);
        }
        return reads;
}

static void end_reads(struct core_read *reads, struct core *c, struct replica *r,
                      struct disk *d)
{
        core_free(c);
        disk_free(d);
        replica_free(r);
        free(reads);
}

static void confirm(struct core *c, const struct core_read *rd, uint64_t index, nsec_t at)
{
        core_replica_ops.read_at(c, rd->id, index, (struct lease_time){at});
}

/* An answer is for all reads before it, too, of which each waits for its own entry. */
TEST(reads_are_served_once_their_entries_are_applied)
{
        struct core *c;
        struct replica *r;
        struct disk *d;
        struct core_read *reads = begin_reads(&c, &r, &d, FEW);

        c->reads_left = 100;
        confirm(c, &reads[1], 10, 1);
        confirm(c, &reads[2], 12, 2);
        CHECK_EQ(n_done, 0);
        core_reads_serve(c, 9);
        CHECK_EQ(n_done, 0);
        core_reads_serve(c, 10);
        CHECK_EQ(n_done, 2);
        CHECK_EQ(reads[1].at.ns, 1);
        core_reads_serve(c, 13);
        CHECK_EQ(n_done, 3); /* nothing was confirmed for the last one */
        CHECK_EQ(reads[2].at.ns, 2);
        end_reads(reads, c, r, d);
}

/* Apply is far behind, so that many answers wait. */
TEST(reads_wait_for_a_later_entry_where_too_many_answers_wait)
{
        enum { N = CONFIRMED_MAX + 10 };
        struct core *c;
        struct replica *r;
        struct disk *d;
        struct core_read *reads = begin_reads(&c, &r, &d, N);

        c->reads_left = 100;
        core_read_cancel(c, &reads[5]);
        for (unsigned i = 0; i < N; i++)
                if (i != 5)
                        confirm(c, &reads[i], 10 + i, i);
        core_reads_serve(c, 10 + CONFIRMED_MAX - 1);
        CHECK_EQ(n_done, CONFIRMED_MAX - 1);
        core_reads_serve(c, 10 + N - 2);
        CHECK_EQ(n_done, CONFIRMED_MAX - 1);
        core_reads_serve(c, 10 + N - 1);
        CHECK_EQ(n_done, N - 1);
        end_reads(reads, c, r, d);
}
