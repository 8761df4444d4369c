/* Linearizable reads of a replica that knows no leader: they end in time, and leave nothing;
 * and when they are served if one answers. */
#include "core/internal.h"
#include "one.h"
#include "test.h"

#define READS 1000

static struct {
        struct boot_time now;
        struct core *core;
        struct replica *replica;
        struct disk *disk;
        struct core_read *reads;
        unsigned done, leaderless;
} rig;

static void done(struct core_read *rd, struct status st)
{
        (void) rd;
        rig.done++;
        rig.leaderless += st.code == status_no_leader.code;
}

/* Begins @n reads, of which each other one has one of these timeouts; 0: the core's second. */
static void begin(size_t n, nsec_t timeout, nsec_t other)
{
        memset(&rig, 0, sizeof(rig));
        rig.now.ns = 1000 * NSEC_PER_SEC;
        rig.reads = calloc(n, sizeof(*rig.reads));
        rig.disk = sim_disk_new();
        one_new(&rig.core, &rig.replica, rig.disk, 3,
                &(struct core_config){.timeout = NSEC_PER_SEC}, rig.now);
        for (size_t i = 0; i < n; i++) {
                rig.reads[i].done = done;
                core_read(rig.core, &rig.reads[i], i % 2 ? other : timeout);
        }
}

static void end(void)
{
        core_free(rig.core);
        disk_free(rig.disk);
        replica_free(rig.replica);
        free(rig.reads);
}

static void confirm(const struct core_read *rd, uint64_t index, nsec_t at)
{
        core_replica_ops.read_at(rig.core, rd->id, index, (struct lease_time){at});
}

TEST(each_read_ends_by_its_own_timeout)
{
        begin(READS, 5000 * MSEC, 50 * MSEC);
        /* Reads with a short timeout of their own, and one whose client went away. */
        core_read_cancel(rig.core, &rig.reads[0]);
        rig.now = boot_add(rig.now, 200 * MSEC);
        CHECK(!boot_before(rig.now, core_next(rig.core)));
        core_run(rig.core, rig.now);
        CHECK_EQ(rig.done, READS / 2);
        rig.now = boot_add(rig.now, NSEC_PER_SEC);
        core_run(rig.core, rig.now);
        CHECK_EQ(rig.done, READS - 1);
        CHECK_EQ(rig.leaderless, READS - 1);
        end();
}

/* However many there are, so many end in one turn. */
TEST(reads_time_out_some_at_a_time)
{
        enum { N = 2500 };

        begin(N, 0, 0);
        rig.now = boot_add(rig.now, 1100 * MSEC);
        core_run(rig.core, rig.now);
        CHECK_EQ(rig.done, 1000);
        CHECK(!boot_before(boot_add(rig.now, MSEC), core_next(rig.core)));
        core_run(rig.core, rig.now);
        core_run(rig.core, rig.now);
        CHECK_EQ(rig.done, N);
        end();
}

static void cancel_next(struct core_read *rd, struct status st)
{
        done(rd, st);
        core_read_cancel(rig.core, rd + 1);
}

/* As when a client goes away in the answer to one of its reads. */
TEST(a_read_that_is_cancelled_when_another_one_times_out_is_not_done)
{
        begin(3, 0, 0);
        rig.reads[0].done = cancel_next;
        rig.now = boot_add(rig.now, 1100 * MSEC);
        core_run(rig.core, rig.now);
        CHECK_EQ(rig.done, 2);
        CHECK_EQ(rig.core->shares.pots[POT_OWN_READS].n, 0);
        end();
}

enum { FEW = 4 };

/* An answer is for all reads before it, too, of which each waits for its own entry. */
TEST(reads_are_served_once_their_entries_are_applied)
{
        begin(FEW, 0, 0);
        rig.core->reads_left = 100;
        confirm(&rig.reads[1], 10, 1);
        confirm(&rig.reads[2], 12, 2);
        CHECK_EQ(rig.done, 0);
        core_reads_serve(rig.core, 9);
        CHECK_EQ(rig.done, 0);
        core_reads_serve(rig.core, 10);
        CHECK_EQ(rig.done, 2);
        CHECK_EQ(rig.reads[1].at.ns, 1);
        core_reads_serve(rig.core, 13);
        CHECK_EQ(rig.done, 3); /* nothing was confirmed for the last one */
        CHECK_EQ(rig.reads[2].at.ns, 2);
        end();
}

/* Apply is far behind, so that many answers wait. */
TEST(reads_wait_for_a_later_entry_where_too_many_answers_wait)
{
        enum { N = CONFIRMED_MAX + 10 };

        begin(N, 0, 0);
        rig.core->reads_left = 100;
        core_read_cancel(rig.core, &rig.reads[5]);
        for (unsigned i = 0; i < N; i++)
                if (i != 5)
                        confirm(&rig.reads[i], 10 + i, i);
        core_reads_serve(rig.core, 10 + CONFIRMED_MAX - 1);
        CHECK_EQ(rig.done, CONFIRMED_MAX - 1);
        core_reads_serve(rig.core, 10 + N - 2);
        CHECK_EQ(rig.done, CONFIRMED_MAX - 1);
        core_reads_serve(rig.core, 10 + N - 1);
        CHECK_EQ(rig.done, N - 1);
        end();
}
