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
        while (sim_disk_busy_at(one.disk, DISK_LOG)) {
                sim_disk_run_at(one.disk, DISK_LOG);
                sim_disk_finish_at(one.disk, DISK_LOG);
        }
        core_run(one.core, one.now);
}

/* The disk's other queue, which has the snapshots, stands still but for this. */
static void write_snapshots(void)
{
        for (unsigned i = 0; i < 100; i++) {
                turn();
                while (sim_disk_busy_at(one.disk, DISK_ASIDE)) {
                        sim_disk_run_at(one.disk, DISK_ASIDE);
                        sim_disk_finish_at(one.disk, DISK_ASIDE);
                }
        }
        turn();
}

/* An entry of the log. */
static void propose(void)
{
        cleanup_(buf_fini) struct buf none = {0};

        CHECK_EQ(core_propose_own(one.core, CMD_COMPACT, &none), 0);
        turn();
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
        core_withdraw_order(one.core, &withdrawn);
        stop();
        check_done(status_stopped);
        end();
}

TEST(a_snapshot_is_answered_when_it_is_on_the_disk)
{
        struct core_order o = {.done = done}, late = {.done = done};

        begin(1);
        propose();
        core_take_snapshot(one.core, &o);
        for (unsigned i = 0; i < 20; i++)
                turn();
        CHECK_EQ(one.done, 0);
        propose();
        core_take_snapshot(one.core, &late); /* the first one does not have that entry */
        write_snapshots();
        CHECK_EQ(one.done, 2);
        CHECK_EQ(one.st.code, RPC_OK);
        CHECK_EQ(replica_saved(one.replica).index, replica_applied(one.replica));

        one.done = 0;
        core_take_snapshot(one.core, &o); /* there is nothing new */
        turn();
        check_done(status_ok);
        end();
}

static void written(struct core_write *w, struct status st, struct view reply)
{
        (void) w;
        (void) reply;
        CHECK_EQ(st.code, RPC_OK);
}

/* More than the replica keeps in reserve for a snapshot. */
static void put_much(void)
{
        static uint8_t value[1 << 20];

        for (uint8_t i = 0; i < 10; i++) {
                Pb__PutRequest put = PB__PUT_REQUEST__INIT;
                struct core_write w = {.done = written};
                cleanup_(buf_fini) struct buf b = {0};

                put.key = pb_bytes(&i, 1);
                put.value = pb_bytes(value, sizeof(value));
                pb_append(&b, &put.base);
                CHECK_EQ(core_write(one.core, &w, CMD_PUT, NULL, buf_head(&b), buf_len(&b), 0),
                         0);
                while (core_n_writes(one.core) > 0)
                        turn();
        }
}

TEST(a_snapshot_that_cannot_be_written_is_reported)
{
        struct core_order o = {.done = done};

        begin(1);
        put_much();
        sim_disk_fill(one.disk, true);
        core_take_snapshot(one.core, &o);
        write_snapshots();
        check_done(status_of(STATE_E_NOSPACE));
        CHECK(LIST_EMPTY(&one.core->orders));

        sim_disk_fill(one.disk, false);
        core_take_snapshot(one.core, &o); /* tried at once, not after a pause */
        write_snapshots();
        check_done(status_ok);
        end();
}

TEST(a_snapshot_continues_when_its_order_is_withdrawn)
{
        struct core_order o = {.done = done};

        begin(1);
        propose();
        core_take_snapshot(one.core, &o);
        turn();
        core_withdraw_order(one.core, &o);
        write_snapshots();
        CHECK_EQ(one.done, 0);
        CHECK_EQ(replica_saved(one.replica).index, replica_applied(one.replica));
        end();
}
