/* What an operator orders of a replica: it is answered when it is done or cannot be done. */
#include "core/internal.h"
#include "one.h"
#include "test.h"

static struct {
        struct boot_time now;
        struct core *core;
        struct replica *replica;
        struct disk *disk;
        unsigned done;
        struct status st;
} one;

static void done(struct core_order *o, struct status st)
{
        (void) o;
        one.done++;
        one.st = st;
}

static void turn(void)
{
        one.now = boot_add(one.now, 10 * MSEC);
        replica_run(one.replica, one.now);
        core_run(one.core, one.now);
        core_flush(one.core, one.now);
        replica_flush(one.replica, one.now);
        while (sim_disk_busy(one.disk))
                sim_disk_finish(one.disk);
        core_run(one.core, one.now);
}

static void begin(unsigned n_members)
{
        memset(&one, 0, sizeof(one));
        one.now.ns = 1000 * NSEC_PER_SEC;
        one.disk = sim_disk_new();
        one_new(&one.core, &one.replica, one.disk, n_members,
                &(struct core_config){.timeout = NSEC_PER_SEC}, one.now);
        while (n_members == 1 && !core_status(one.core).ready)
                turn();
}

static void stop(void)
{
        one.core = core_free(one.core);
}

static void end(void)
{
        stop();
        while (sim_disk_busy(one.disk))
                sim_disk_finish(one.disk);
        replica_free(one.replica);
        disk_free(one.disk);
}

static void check_done(struct status st)
{
        CHECK_EQ(one.done, 1);
        CHECK_STR(one.st.text, st.text);
        CHECK_EQ(one.st.code, st.code);
        one.done = 0;
}

TEST(only_a_leader_moves_the_leadership_and_only_to_a_voter)
{
        struct core_order o = {.done = done};

        begin(3);
        core_move_leader(one.core, &o, 2, 0);
        check_done(status_not_leader);
        end();

        begin(1);
        core_move_leader(one.core, &o, 2, 0);
        check_done(status_bad_transferee);
        core_move_leader(one.core, &o, 1, 0);
        turn();
        check_done(status_ok);
        CHECK(LIST_EMPTY(&one.core->orders));
        end();
}

TEST(an_order_ends_with_the_core_and_not_after_it_was_withdrawn)
{
        struct core_order kept = {.done = done}, withdrawn = {.done = done};

        begin(1);
        core_move_leader(one.core, &withdrawn, 1, 0);
        core_move_leader(one.core, &kept, 1, 0);
        core_withdraw_order(&withdrawn);
        stop();
        check_done(status_stopped);
        end();
}
