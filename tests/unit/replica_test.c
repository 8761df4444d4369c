/* One replica, driven by frames: its answers to a leader, and when they come. */
#include "consensus/replica.h"

#include <raft.h>

#include "../sim/world.h"
#include "base/crc32c.h"
#include "consensus/message.h"
#include "test.h"

static struct {
        struct disk *disk;
        struct replica *replica;
        uint64_t acked;                           /* the highest index that it said to have */
        uint64_t acked_term;                      /* in which term */
        struct raft_append_entries_result answer; /* the last one to entries */
        char state, loaded; /* loaded last, and beside the present state; 0: none */
        int load_fails;     /* ...with this, where it is not 0 */
        struct view loading;
        unsigned load_slices, dropped; /* slices that are still to come before that */
        const char *gave_up;
        struct boot_time now;
        bool alone; /* the only voter */
        bool joins;
        unsigned n_removed;     /* how often it said that it was removed */
        bool proposes;          /* when the next entry is applied */
        unsigned n_proposed[4]; /* frames of proposals that were sent, by member */
} w;

static void on_send(void *u, uint64_t peer, struct view frame)
{
        struct raft_message m;
        uint8_t type;

        (void) u;
        CHECK_EQ(view_u8(&frame, &type), 0);
        w.n_proposed[peer] += type == FRAME_PROPOSE;
        if (type != FRAME_RAFT)
                return;
        CHECK_EQ(message_decode(frame, 1, UINT64_MAX, &m), 0);
        if (m.type == RAFT_APPEND_ENTRIES_RESULT)
                w.answer = m.append_entries_result;
        if (m.type == RAFT_APPEND_ENTRIES_RESULT && m.append_entries_result.rejected == 0) {
                w.acked = max_of(w.acked, (uint64_t) m.append_entries_result.last_log_index);
                w.acked_term = m.append_entries_result.term;
        }
        message_discard(&m);
}

static int on_apply(void *u, uint64_t index, uint64_t term, struct lease_time at,
                    struct view commands, size_t *left)
{
        (void) u;
        (void) index;
        (void) term;
        (void) at;
        (void) commands;
        (void) left;
        if (w.proposes)
                CHECK_EQ(replica_propose(w.replica, "command", 7, REPLICA_NORMAL), 0);
        w.proposes = false;
        return 0;
}

static int on_load(void *u, struct view snapshot)
{
        (void) u;
        w.loading = snapshot;
        return 0;
}

static int on_load_more(void *u, size_t *left, const char **ret_wrong)
{
        *ret_wrong = "a 'b'";
        (void) u;
        if (*left < SIZE_MAX && w.load_slices > 0) {
                w.load_slices--;
                return 1;
        }
        if (w.load_fails == 0 && w.loading.len == 1 && *w.loading.p != 'b')
                w.loaded = (char) *w.loading.p;
        return w.load_fails < 0 ? w.load_fails : *w.loading.p == 'b' ? -EBADMSG : 0;
}

static void on_drop(void *u)
{
        (void) u;
        w.dropped++;
        w.loaded = 0;
}

static struct lease_time on_adopt(void *u)
{
        (void) u;
        w.state = w.loaded;
        return (struct lease_time){0};
}

static void on_event(void *u)
{
        (void) u;
}

static void on_removed(void *u)
{
        (void) u;
        w.n_removed++;
}

static void on_fatal(void *u, const char *why)
{
        (void) u;
        if (w.load_fails == 0)
                test_fail(__FILE__, __LINE__, "it gave up: %s", why);
        w.gave_up = why;
}

static const struct replica_ops ops = {
        .send = on_send,
        .apply = on_apply,
        .load = on_load,
        .load_more = on_load_more,
        .adopt = on_adopt,
        .drop = on_drop,
        .changed = on_event,
        .skipped = on_event,
        .removed = on_removed,
        .fatal = on_fatal,
};

static int open_replica(struct store_error *err)
{
        static const struct replica_peer peers[] = {
                {1, "http://1:1"}, {2, "http://2:1"}, {3, "http://3:1"}};

        return replica_new(&w.replica,
                           &(struct replica_config){
                                   .id = 1,
                                   .cluster_id = 7,
                                   .peers = peers,
                                   .n_peers = w.alone ? 1 : 3,
                                   .join = w.joins,
                                   .election = 500 * MSEC,
                                   .heartbeat = 50 * MSEC,
                                   .seed = 1,
                           },
                           w.disk, &ops, NULL, w.now, err);
}

static void restart(void)
{
        struct store_error err;

        CHECK_EQ(open_replica(&err), 0);
        CHECK_EQ(replica_start(w.replica), 0);
        replica_flush(w.replica, w.now);
        while (sim_disk_busy(w.disk))
                sim_disk_finish(w.disk); /* kept aside */
        w.acked = w.acked_term = 0;
}

static void begin_as(bool alone)
{
        memset(&w, 0, sizeof(w));
        w.alone = alone;
        w.now = (struct boot_time){1000 * NSEC_PER_SEC};
        w.disk = sim_disk_new();
        restart();
}

static void begin(void)
{
        begin_as(false);
}

static void end(void)
{
        replica_free(w.replica);
        disk_free(w.disk);
}

static void finish(void)
{
        sim_disk_finish(w.disk);
        replica_flush(w.replica, w.now);
}

struct sent {
        uint64_t term;
        uint8_t data[STAMP + 1];
};

static bool entry_of(void *u, uint64_t index, uint64_t *ret_term, uint8_t *ret_type,
                     struct view *ret_data)
{
        struct sent *s = u;

        s->data[STAMP] = (uint8_t) index;
        *ret_term = s->term;
        *ret_type = RAFT_COMMAND;
        *ret_data = (struct view){s->data, sizeof(s->data)};
        return true;
}

/* @peer, leader of @term, sends entries @from to @to, of that term, and up to where all is
 * committed. */
static void append_and_commit(uint64_t peer, uint64_t term, uint64_t from, uint64_t to,
                              uint64_t prev_term, uint64_t committed)
{
        cleanup_(buf_fini) struct buf f = {0};
        struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
        struct sent s = {.term = term};

        m.append_entries.term = term;
        m.append_entries.prev_log_index = from - 1;
        m.append_entries.prev_log_term = prev_term;
        m.append_entries.leader_commit = committed;
        m.append_entries.n_entries = (unsigned) (to - from + 1);
        CHECK_EQ(message_encode(&m, entry_of, &s, 0, &f), 0);
        CHECK_EQ(
                replica_input(w.replica, peer, (struct view){buf_head(&f), buf_len(&f)}, w.now),
                0);
        replica_flush(w.replica, w.now);
}

static void append(uint64_t peer, uint64_t term, uint64_t from, uint64_t to, uint64_t prev_term)
{
        append_and_commit(peer, term, from, to, prev_term, 0);
}

/* ... a snapshot up to @index: one letter; 'b' does not load. */
static void install_state(uint64_t peer, uint64_t term, uint64_t index, char state, bool damage)
{
        cleanup_(buf_fini) struct buf f = {0}, part = {0};
        struct raft_message m = {.type = RAFT_INSTALL_SNAPSHOT};
        struct view whole;

        raft_configuration_init(&m.install_snapshot.conf);
        for (unsigned i = 1; i <= 3; i++)
                CHECK_EQ(raft_configuration_add(&m.install_snapshot.conf, i,
                                                i == 1   ? "http://1:1"
                                                : i == 2 ? "http://2:1"
                                                         : "http://3:1",
                                                RAFT_VOTER),
                         0);
        m.install_snapshot.term = term;
        m.install_snapshot.last_index = index;
        m.install_snapshot.last_term = term;
        m.install_snapshot.conf_index = 1;
        CHECK_EQ(message_encode(&m, NULL, NULL, 1, &f), 0);
        raft_configuration_close(&m.install_snapshot.conf);
        buf_add_u8(&f, (uint8_t) state);
        buf_consume(&f, 1);
        buf_add_u32(&f, crc32c(0, buf_head(&f), buf_len(&f)));
        whole = (struct view){buf_head(&f), buf_len(&f)};
        buf_add_u8(&part, FRAME_SNAPSHOT);
        buf_add_u64(&part, term);
        buf_add_u64(&part, index);
        buf_add_u64(&part, whole.len);
        buf_add_u64(&part, 0);
        buf_add(&part, whole.p, whole.len);
        if (damage)
                part.data[buf_len(&part) - SNAPSHOT_CRC - 1] ^= 1;
        CHECK_EQ(replica_input(w.replica, peer, (struct view){buf_head(&part), buf_len(&part)},
                               w.now),
                 0);
        replica_flush(w.replica, w.now);
}

static void install(uint64_t peer, uint64_t term, uint64_t index)
{
        install_state(peer, term, index, 'x', false);
}

/* I5: the old leader's entries 2 to 10 are on their way to the disk when a new leader
 * overwrites them. The end of that write says nothing about the new ones. */
TEST(a_write_of_what_was_overwritten_acknowledges_nothing)
{
        begin();
        append(2, 2, 2, 10, 1);
        append(3, 3, 2, 4, 1);
        CHECK(sim_disk_busy(w.disk));
        finish();
        CHECK_EQ(w.acked, 0);
        finish();
        CHECK_EQ(w.acked, 4);
        CHECK_EQ(w.acked_term, 3);
        append(3, 3, 5, 6, 3);
        finish();
        CHECK_EQ(w.acked, 6);
        end();
}

/* That write acknowledges what is before the cut, and no more. */
TEST(a_write_acknowledges_what_is_left_of_it)
{
        begin();
        append(2, 2, 2, 10, 1);
        append(3, 3, 6, 8, 2);
        finish();
        CHECK_EQ(w.acked, 5);
        append(3, 3, 9, 9, 3);
        finish();
        CHECK_EQ(w.acked, 8);
        finish();
        CHECK_EQ(w.acked, 9);
        end();
}

/* I5: the sender may lead our term when it gets the answer to what it sent in an older one.
 * That acknowledges nothing, and does not say that entries are gone, either; whatever libraft
 * has left in it. */
TEST(an_answer_to_entries_of_an_older_term_says_what_there_is)
{
        begin();
        append(3, 3, 2, 6, 1);
        finish();
        CHECK_EQ(w.acked, 6);
        w.acked = 0;
        for (uint64_t from = 1; from <= 8; from++) {
                w.answer = (struct raft_append_entries_result){0};
                append(2, 2, from, from, from > 1);
                CHECK_EQ(w.answer.term, 3);
                CHECK_EQ(w.answer.rejected, max_of(from - 1, UINT64_C(1)));
                CHECK_EQ(w.answer.last_log_index, 6);
        }
        CHECK_EQ(w.acked, 0);
        end();
}

/* A crash leaves what was acknowledged, wherever the two writes were. */
TEST(what_was_acknowledged_outlives_a_crash_in_an_overlap)
{
        for (int round = 0; round < 40; round++) {
                struct rnd r;
                uint64_t acked, term;

                begin();
                rnd_init(&r, rnd(0, UINT64_MAX));
                append(2, 2, 2, 2 + rnd(1, 8), 1);
                append(3, 3, 2, 1 + rnd(1, 8), 1);
                for (uint64_t n = rnd(0, 2); n > 0; n--)
                        finish();
                acked = w.acked;
                term = w.acked_term;
                sim_disk_crash(w.disk, &r);
                replica_free(w.replica);
                restart();
                CHECK(replica_status(w.replica).last >= acked);
                /* The next leader finds out what is on disk: all of the old one's entries. */
                if (acked > 0)
                        append(3, term + 1, acked + 1, acked + 1, term);
                finish();
                CHECK_EQ(w.acked, acked > 0 ? acked + 1 : 0);
                end();
        }
}

/* A snapshot takes the place of the log, the write under way included. */
TEST(a_write_that_an_install_overtakes_acknowledges_nothing)
{
        begin();
        append(2, 2, 2, 30, 1);
        install(3, 3, 20);
        finish(); /* the write */
        CHECK_EQ(w.acked, 0);
        finish(); /* the snapshot */
        CHECK_EQ(w.acked, 20);
        append(3, 3, 21, 22, 3);
        while (sim_disk_busy(w.disk))
                finish();
        CHECK_EQ(w.acked, 22);
        replica_free(w.replica);
        restart();
        CHECK_EQ(replica_status(w.replica).last, 22);
        end();
}

/* A replica that was killed between write and sync reports at its restart what it finds, and
 * its leader relies on that. A power loss must not lose any of it (I5). */
TEST(what_is_acknowledged_after_a_kill_outlives_a_power_loss)
{
        for (int round = 0; round < 40; round++) {
                struct rnd r;
                uint64_t acked;

                begin();
                rnd_init(&r, rnd(0, UINT64_MAX));
                append(2, 2, 2, 3, 1);
                finish();
                append(2, 2, 4, 10, 2);
                (void) sim_disk_kill(w.disk, &r);
                replica_free(w.replica);
                restart();
                append(2, 2, 4, 3, 2); /* a heartbeat */
                acked = replica_status(w.replica).last;
                CHECK_EQ(w.acked, 3);
                if (acked > 3) {
                        append(2, 2, acked + 1, acked, 2);
                        CHECK_EQ(w.acked, acked);
                }
                sim_disk_crash(w.disk, &r);
                replica_free(w.replica);
                restart();
                CHECK(replica_status(w.replica).last >= acked);
                end();
        }
}

static void settle(void)
{
        replica_flush(w.replica, w.now);
        while (sim_disk_busy(w.disk))
                finish();
}

static void restart_with(char state)
{
        replica_free(w.replica);
        w.state = 0;
        restart();
        CHECK_EQ(w.state, state);
}

/* The first message of another leader may commit what the last one appended. Whoever learns of
 * that may propose at once, in the new term: that is not one of the commands that were queued
 * for the old leader and go with its term. */
TEST(what_is_proposed_while_an_entry_is_applied_reaches_the_new_leader)
{
        begin();
        append(2, 2, 2, 2, 1);
        finish();
        CHECK_EQ(replica_propose(w.replica, "command", 7, REPLICA_NORMAL),
                 0); /* goes with it */
        w.proposes = true;
        append_and_commit(3, 3, 3, 2, 2, 2);
        CHECK(!w.proposes);
        CHECK_EQ(w.n_proposed[2], 0);
        CHECK_EQ(w.n_proposed[3], 1);
        end();
}

/* A learner may have entries that it lost in a crash; in the same term other entries at these
 * indices would be mistaken for those, and the two would differ for ever. */
TEST(a_lone_voter_leads_in_a_new_term_after_each_start)
{
        begin_as(true);
        for (uint64_t term = 1; term <= 4; term++) {
                CHECK(replica_status(w.replica).leader);
                CHECK_EQ(replica_status(w.replica).term, term);
                CHECK_EQ(replica_propose(w.replica, "x", 1, REPLICA_NORMAL), 0);
                replica_flush(w.replica, w.now);
                while (sim_disk_busy(w.disk))
                        finish();
                replica_free(w.replica);
                restart();
        }
        end();
}

/* A damaged slot of meta passes for one whose write was cut short, so that the term and vote
 * before it count. But the log shows that there was a later term. */
TEST(a_term_that_meta_has_lost_does_not_begin_again)
{
        struct disk *disk;
        uint64_t term;
        int refused = 0;

        begin_as(true);
        replica_free(w.replica);
        restart();
        term = replica_status(w.replica).term;
        CHECK_EQ(replica_propose(w.replica, "x", 1, REPLICA_NORMAL), 0);
        replica_flush(w.replica, w.now);
        while (sim_disk_busy(w.disk))
                finish();
        replica_free(w.replica);
        disk = w.disk;
        for (uint64_t slot = 0; slot < 2; slot++) {
                struct store_error err = {""};

                w.disk = sim_disk_new();
                sim_disk_copy(w.disk, disk);
                CHECK_EQ(w.disk->ops->write(w.disk, "meta", slot * 4096, (uint8_t[56]){0}, 56),
                         0);
                if (open_replica(&err) == 0) {
                        CHECK_EQ(replica_start(w.replica), 0);
                        CHECK(replica_status(w.replica).term > term);
                        while (sim_disk_busy(w.disk))
                                sim_disk_finish(w.disk);
                        replica_free(w.replica);
                } else {
                        CHECK(strstr(err.text, "meta"));
                        refused++;
                }
                disk_free(w.disk);
        }
        CHECK_EQ(refused, 1);
        disk_free(disk);
}

/* A stop waits for a successor only if there is one. */
TEST(a_lone_voter_hands_over_to_nobody)
{
        begin_as(true);
        CHECK(replica_status(w.replica).leader);
        CHECK(!replica_step_down(w.replica, w.now));
        CHECK(replica_status(w.replica).leader);
        end();
}

/* A leader's snapshot that does not load, for example of another version, or that was damaged
 * on its way, replaces nothing, on disk or in memory, and the next intact one does. */
TEST(a_snapshot_that_does_not_load_is_refused)
{
        for (int how = 0; how < 2; how++) {
                begin();
                append(2, 2, 2, 10, 1);
                settle();
                install_state(2, 2, 20, 'a', false);
                settle();
                CHECK_EQ(w.acked, 20);
                CHECK_EQ(w.state, 'a');
                install_state(2, 2, 30, how == 0 ? 'b' : 'c', how == 1);
                settle();
                CHECK_EQ(w.acked, 20);
                CHECK_EQ(w.state, 'a');
                append(2, 2, 21, 22, 2); /* it continues with what it has */
                settle();
                CHECK_EQ(w.acked, 22);
                restart_with('a');
                append(2, 2, 23, 22, 2);
                install_state(2, 2, 30, how == 0 ? 'b' : 'c', how == 1);
                settle();
                install_state(2, 2, 30, 'd', false); /* the same place, another try */
                settle();
                CHECK_EQ(w.acked, 30);
                restart_with('d');
                end();
        }
}

/* Without memory for it the process ends, as for any other lack of memory; the next life finds
 * the former state. */
TEST(a_snapshot_that_finds_no_memory_leaves_what_is_there)
{
        begin();
        append(2, 2, 2, 10, 1);
        settle();
        install_state(2, 2, 20, 'a', false);
        settle();
        w.load_fails = -ENOMEM;
        install_state(2, 2, 30, 'c', false);
        settle();
        CHECK(w.gave_up && strstr(w.gave_up, "out of memory"));
        w.load_fails = 0;
        restart_with('a');
        end();
}

/* Lets time pass until a load has ended. */
static void pass(unsigned ms)
{
        for (unsigned i = 0; i < ms; i++) {
                w.now = boot_add(w.now, MSEC);
                replica_flush(w.replica, w.now);
        }
}

/* It is large, and heartbeats do not wait for it. The former state stays until all is
 * loaded. */
TEST(a_snapshot_is_read_in_while_others_have_their_turn)
{
        begin();
        append(2, 2, 2, 10, 1);
        settle();
        w.load_slices = 20;
        install_state(2, 2, 20, 'a', false);
        for (unsigned i = 0; i < 19; i++) {
                CHECK(w.load_slices > 0);
                w.acked_term = 0;
                append(2, 2, 11, 10, 2);
                CHECK_EQ(w.acked_term, 2);
                CHECK_EQ(w.acked, 10);
                CHECK_EQ(w.loaded, 0);
                CHECK(!boot_before(boot_add(w.now, MSEC), replica_next(w.replica)));
                pass(1);
        }
        pass(2);
        settle();
        CHECK_EQ(w.acked, 20);
        CHECK_EQ(w.state, 'a');
        CHECK_EQ(w.dropped, 0);
        end();
}

/* Half of it is nothing: it goes when a newer one comes, or another term, and nothing of it is
 * left. */
TEST(a_snapshot_that_is_half_read_in_is_dropped)
{
        for (int how = 0; how < 3; how++) {
                begin();
                append(2, 2, 2, 10, 1);
                settle();
                w.load_slices = 20;
                install_state(2, 2, 20, 'a', false);
                pass(5);
                CHECK_EQ(w.load_slices, 14);
                CHECK_EQ(w.dropped, 0);
                if (how == 0) {
                        install_state(2, 2, 30, 'c', false);
                } else if (how == 1) {
                        append(3, 3, 11, 12, 2); /* continues from the former state */
                } else {
                        end();
                        continue;
                }
                CHECK_EQ(w.dropped, 1);
                pass(30);
                settle();
                CHECK_EQ(w.state, how == 0 ? 'c' : 0);
                CHECK_EQ(w.acked, how == 0 ? 30 : 12);
                CHECK_EQ(w.dropped, 1);
                end();
        }
}

/* @peer says for @seconds, each second, that we are no member. */
static void disown(uint64_t peer, unsigned seconds)
{
        uint8_t f[9] = {FRAME_REMOVED, 9};

        for (unsigned i = 0; i < seconds; i++) {
                w.now = boot_add(w.now, NSEC_PER_SEC);
                CHECK_EQ(replica_input(w.replica, peer, (struct view){f, sizeof(f)}, w.now), 0);
        }
}

/* A replica that joins and is removed before its log contains its addition cannot tell whether
 * others have removed it or do not know of it yet. If most of them go on saying so, and no
 * leader sends it anything, it was removed. */
TEST(a_joining_replica_that_no_member_knows_was_removed)
{
        memset(&w, 0, sizeof(w));
        w.joins = true;
        w.now = (struct boot_time){1000 * NSEC_PER_SEC};
        w.disk = sim_disk_new();
        restart();
        disown(2, 200); /* the leader may be member 3 */
        CHECK_EQ(w.n_removed, 0);
        disown(3, 1);
        CHECK_EQ(w.n_removed, 1);
        restart_with(0);
        w.n_removed = 0;
        disown(2, 50);
        disown(3, 5);
        append(3, 2, 1, 0, 0); /* it is the leader, and knows us by now */
        disown(2, 50);
        disown(3, 5);
        CHECK_EQ(w.n_removed, 0);
        disown(2, 10);
        CHECK(w.n_removed > 0);
        end();
}
