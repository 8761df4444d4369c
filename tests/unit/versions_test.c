/* What members say of their versions, and what a replica makes of it. */
#include "base/le.h"
#include "consensus/message.h"
#include "core/internal.h"
#include "one.h"
#include "rig.h"
#include "test.h"

static const struct introduction two = {.newest = CLUSTER_0_2,
                                        .directory = UINT64_C(0x0102030405060708),
                                        .yours = 7,
                                        .term = 9,
                                        .founding = true,
                                        .process = 11,
                                        .program = "0.2.0"};

static int read_it(const struct buf *b, struct introduction *ret)
{
        return introduction_read((struct view){buf_head(b), buf_len(b)}, ret);
}

TEST(an_introduction_is_read_as_it_was_written)
{
        cleanup_(buf_fini) struct buf b = {0}, other = {0};
        struct introduction in;

        introduction_append(&two, &b);
        CHECK_EQ(b.data[0], FRAME_TIME_ASK);
        CHECK_EQ(le64_get(b.data + 1), 0);
        CHECK_EQ(buf_len(&b), 1 + 8 + 4 + 8 + 8 + 8 + 1 + 8 + 1 + 5);
        CHECK_EQ(read_it(&b, &in), 0);
        CHECK_EQ(in.newest, CLUSTER_0_2);
        CHECK_EQ(in.directory, two.directory);
        CHECK_EQ(in.yours, 7);
        CHECK_EQ(in.term, 9);
        CHECK(in.founding);
        CHECK_EQ(in.process, 11);
        CHECK_STR(in.program, "0.2.0");
        buf_add_u64(&b, 1); /* what a later release says beyond that */
        CHECK_EQ(read_it(&b, &in), 0);
        CHECK_STR(in.program, "0.2.0");

        buf_add_u8(&other, FRAME_TIME_ASK);
        buf_add_u64(&other, 1);
        CHECK_EQ(read_it(&other, &in), -ENODATA);
        CHECK_EQ(in.newest, CLUSTER_0_1);
        CHECK_STR(in.program, "0.1.0");
}

TEST(a_damaged_introduction_is_refused)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct introduction in;

        introduction_append(&two, &b);
        for (size_t n = 0; n < buf_len(&b); n++)
                CHECK_EQ(introduction_read((struct view){b.data, n}, &in), -EBADMSG);
        b.data[buf_len(&b) - 1] = '\n';
        CHECK_EQ(read_it(&b, &in), -EBADMSG);
        b.data[buf_len(&b) - 1] = '0';
        le32_put(b.data + 9, 0);
        CHECK_EQ(read_it(&b, &in), -EBADMSG);
        le32_put(b.data + 9, UINT32_MAX);
        CHECK_EQ(read_it(&b, &in), 0);
}

/* A member that is taken for one of 0.1.0 keeps a new cluster at version 0.1. */
TEST(a_frame_that_0_1_0_does_not_send_is_no_sign_of_it)
{
        static const uint8_t types[] = {0, FRAME_DOUBLED, 0xff};
        struct introduction in;

        for (size_t i = 0; i < ARRAY_SIZE(types); i++)
                CHECK_EQ(introduction_read((struct view){&types[i], 1}, &in), -EBADMSG);
}

static unsigned n_sent;

static void count_sent(void *u, uint64_t peer, struct view frame)
{
        (void) u;
        (void) frame;
        n_sent += peer == 2;
}

/* A question that is answered: @from asks whether to vote for it. */
static int ask_for_vote(struct replica *r, uint64_t from, struct boot_time now)
{
        cleanup_(buf_fini) struct buf f = {0};
        struct raft_message m = {.type = RAFT_REQUEST_VOTE};

        m.request_vote.term = 1;
        m.request_vote.candidate_id = from;
        m.request_vote.last_log_index = 1;
        m.request_vote.last_log_term = 1;
        m.request_vote.pre_vote = true;
        CHECK_EQ(message_encode(&m, NULL, NULL, 0, &f), 0);
        return replica_input(r, from, (struct view){buf_head(&f), buf_len(&f)}, now);
}

/* A copied directory, or one that two hosts reach. */
TEST(of_two_processes_with_one_directory_the_first_one_keeps_the_place_while_it_lives)
{
        struct introduction first = two, second = two, third = two, in;
        struct boot_time now = {1000 * NSEC_PER_SEC};
        struct disk *disk = sim_disk_new();
        struct replica *r;
        struct core *core;
        bool linked;

        one_new(&core, &r, disk, 3, &(struct core_config){.min_ttl = NSEC_PER_SEC}, now);
        second.process = 12;
        third.process = 13;
        CHECK_EQ(replica_peer_introduced(r, 2, &first, now), 0);
        CHECK_EQ(replica_peer_introduced(r, 2, &second, now), -EBUSY);
        CHECK_EQ(replica_peer_introduced(r, 2, &second, now), -EBUSY);
        CHECK_EQ(replica_peer_introduced(r, 2, &first, now), 0);
        CHECK_EQ(replica_peer_introduced(r, 2, &second, now), -EADDRINUSE);
        now = boot_add(now, 60 * NSEC_PER_SEC);
        CHECK_EQ(replica_peer_introduced(r, 2, &second, now), -EADDRINUSE);

        /* Its host loses its power: the link stands, but nobody calls again. */
        CHECK_EQ(replica_peer_introduced(r, 2, &third, now), -EBUSY);
        now = boot_add(now, NSEC_PER_SEC - 1);
        CHECK_EQ(replica_peer_introduced(r, 2, &third, now), -EBUSY);
        now = boot_add(now, 1);
        CHECK_EQ(replica_peer_introduced(r, 2, &third, now), 0);
        CHECK_EQ(replica_peer_introduced(r, 2, &first, now), -EBUSY);

        /* Both links end with that, and it still has its turn. */
        replica_peer_down(r, 2, now);
        CHECK(replica_member_version(r, 2, &in, &linked) && !linked);
        CHECK_EQ(replica_peer_introduced(r, 2, &second, now), -EBUSY);
        CHECK_EQ(replica_peer_introduced(r, 2, &third, now), 0);
        CHECK_EQ(replica_peer_introduced(r, 2, &first, now), -EADDRINUSE);

        /* It ends. */
        replica_peer_down(r, 2, now);
        CHECK_EQ(replica_peer_introduced(r, 2, &second, now), 0);
        core_free(core);
        replica_free(r);
        disk_free(disk);
}

TEST(nothing_is_read_from_or_sent_to_a_member_that_is_too_old)
{
        struct core_owner owner = one_owner;
        struct boot_time now = {1000 * NSEC_PER_SEC};
        struct disk *disk = sim_disk_new();
        struct introduction in;
        struct replica *r;
        struct core *core;
        bool linked;

        n_sent = 0;
        one_new(&core, &r, disk, 3, &(struct core_config){.min_ttl = NSEC_PER_SEC}, now);
        owner.send = count_sent;
        core_set_owner(core, &owner, NULL);
        CHECK(!replica_member_version(r, 2, &in, &linked) && !linked);
        CHECK_EQ(replica_peer_introduced(r, 2, &introduction_0_1, now), 0);
        CHECK(replica_member_version(r, 2, &in, &linked) && linked);
        CHECK_STR(in.program, "0.1.0");
        CHECK_EQ(ask_for_vote(r, 2, now), 0);
        CHECK_EQ(n_sent, 1);
        replica_peer_down(r, 2, now);
        CHECK(replica_member_version(r, 2, &in, &linked) && !linked);
        CHECK_EQ(replica_peer_introduced(r, 2, &introduction_0_1, now), 0);

        replica_set_version(r, CLUSTER_0_2);
        CHECK_EQ(ask_for_vote(r, 2, now), -EPROTONOSUPPORT);
        CHECK_EQ(replica_peer_introduced(r, 2, &introduction_0_1, now), -EPROTONOSUPPORT);
        CHECK(replica_member_version(r, 2, &in, &linked) && !linked);
        now = boot_add(now, 5 * NSEC_PER_SEC);
        replica_run(r, now); /* it stands for election */
        replica_flush(r, now);
        CHECK_EQ(n_sent, 1);
        CHECK_EQ(replica_peer_introduced(r, 2, &two, now), 0);
        now = boot_add(now, 5 * NSEC_PER_SEC);
        replica_run(r, now);
        replica_flush(r, now);
        CHECK(n_sent > 1);
        CHECK(replica_member_version(r, 1, &in, &linked) && linked);
        CHECK_EQ(in.newest, CLUSTER_NEWEST);
        core_free(core);
        replica_free(r);
        disk_free(disk);
}

/* ---- the cluster version rises ---- */

static struct {
        struct boot_time now;
        struct core *core;
        struct replica *replica;
        struct disk *disk;
        unsigned done;
        enum rpc_code code;
        char text[256];
        int changed; /* outcome of a change of members */
} w;

static void begin(unsigned n_members, const struct core_config *cfg)
{
        memset(&w, 0, sizeof(w));
        w.now.ns = 1000 * NSEC_PER_SEC;
        w.disk = sim_disk_new();
        one_new(&w.core, &w.replica, w.disk, n_members, cfg, w.now);
}

static void end(void)
{
        core_free(w.core);
        while (sim_disk_busy(w.disk))
                sim_disk_finish(w.disk);
        replica_free(w.replica);
        disk_free(w.disk);
}

static void run_for(nsec_t time)
{
        for (nsec_t t = 0; t < time; t += 10 * MSEC) {
                w.now = boot_add(w.now, 10 * MSEC);
                one_turn(w.core, w.replica, w.disk, w.now);
        }
}

/* A single replica whose cluster an older program has founded. */
static void begin_upgraded(const struct core_config *cfg)
{
        struct core_config old = *cfg;

        old.version = CLUSTER_0_1;
        begin(1, &old);
        run_for(2 * NSEC_PER_SEC);
        CHECK(core_status(w.core).ready);
        core_free(w.core);
        replica_free(w.replica);
        one_new(&w.core, &w.replica, w.disk, 1, cfg, w.now);
}

static void done(struct core_order *o, struct status st)
{
        (void) o;
        w.done++;
        w.code = st.code;
        snprintf(w.text, sizeof(w.text), "%s", st.text);
}

static void check_finish(enum rpc_code code, const char *text)
{
        struct core_order o = {.done = done};

        w.done = 0;
        core_finish_upgrade(w.core, &o, NSEC_PER_SEC);
        run_for(200 * MSEC);
        CHECK_EQ(w.done, 1);
        CHECK_STR(w.text, text);
        CHECK_EQ(w.code, code);
}

static void changed(struct core_change *ch, int outcome)
{
        (void) ch;
        w.changed = outcome;
}

/* Nothing of an older version is ever in a new cluster. */
TEST(a_new_cluster_has_the_newest_version_from_its_first_entry_on)
{
        begin(1, &(struct core_config){.timeout = 5 * NSEC_PER_SEC});
        CHECK_EQ(core_set_member(w.core, "a", "http://a:1"), 0);
        run_for(NSEC_PER_SEC);
        CHECK(core_status(w.core).ready);
        CHECK_EQ(core_state(w.core)->cluster_version, CLUSTER_NEWEST);
        CHECK_EQ(core_state(w.core)->n_members, 1);
        end();
        begin(1, &(struct core_config){.timeout = 5 * NSEC_PER_SEC, .version = CLUSTER_0_1});
        run_for(NSEC_PER_SEC);
        CHECK(core_status(w.core).ready);
        CHECK_EQ(core_state(w.core)->cluster_version, CLUSTER_0_1);
        end();
}

/* Each member can be in the way, also one that does not vote. */
TEST(the_cluster_version_rises_when_all_members_can_and_answer)
{
        struct core_change ch = {
                .done = changed, .what = REPLICA_ADD_LEARNER, .id = 2, .address = "http://2:1"};

        begin(3, &(struct core_config){.timeout = 5 * NSEC_PER_SEC});
        check_finish(RPC_FAILED_PRECONDITION, "etcdserver: not leader");
        end();

        begin_upgraded(&(struct core_config){.timeout = 5 * NSEC_PER_SEC});
        run_for(2 * NSEC_PER_SEC);
        CHECK(core_status(w.core).ready);
        w.changed = -1;
        CHECK_EQ(core_change_members(w.core, &ch, NSEC_PER_SEC), 0);
        run_for(2 * NSEC_PER_SEC);
        CHECK_EQ(w.changed, 0);
        check_finish(RPC_FAILED_PRECONDITION,
                     "tenure: a member (0000000000000002) has no link to the leader: its "
                     "version is not known");
        CHECK_EQ(replica_peer_introduced(w.replica, 2, &introduction_0_1, w.now), 0);
        check_finish(RPC_FAILED_PRECONDITION,
                     "tenure: a member (0000000000000002) runs 0.1.0, which knows no newer "
                     "cluster version than 0.1: upgrade it");
        CHECK_EQ(replica_peer_introduced(w.replica, 2, &two, w.now), 0);
        check_finish(RPC_FAILED_PRECONDITION,
                     "tenure: a member (0000000000000002) does not answer the leader now");
        CHECK_EQ(core_state(w.core)->cluster_version, CLUSTER_0_1);
        ch = (struct core_change){.done = changed, .what = REPLICA_REMOVE, .id = 2};
        CHECK_EQ(core_change_members(w.core, &ch, NSEC_PER_SEC), 0);
        run_for(2 * NSEC_PER_SEC);
        check_finish(RPC_OK, "");
        CHECK_EQ(core_state(w.core)->cluster_version, CLUSTER_0_2);
        CHECK_EQ(replica_peer_introduced(w.replica, 2, &introduction_0_1, w.now),
                 -EPROTONOSUPPORT);
        check_finish(RPC_OK, "");
        end();
}

/* What an operator may cancel until then: nobody can go back afterwards. */
TEST(the_cluster_version_rises_by_itself_after_a_while)
{
        begin_upgraded(&(struct core_config){.timeout = 5 * NSEC_PER_SEC,
                                             .finish_after = 10 * NSEC_PER_SEC});
        run_for(9 * NSEC_PER_SEC);
        CHECK_EQ(core_state(w.core)->cluster_version, CLUSTER_0_1);
        run_for(2 * NSEC_PER_SEC);
        CHECK_EQ(core_state(w.core)->cluster_version, CLUSTER_0_2);
        end();

        begin_upgraded(
                &(struct core_config){.timeout = 5 * NSEC_PER_SEC, .finish_after = INT64_MAX});
        run_for(60 * NSEC_PER_SEC);
        CHECK_EQ(core_state(w.core)->cluster_version, CLUSTER_0_1);
        end();
}

TEST(a_client_sees_the_versions_and_may_finish_an_upgrade)
{
        Pb__FinishUpgradeRequest finish = PB__FINISH_UPGRADE_REQUEST__INIT;
        Pb__StatusRequest status = PB__STATUS_REQUEST__INIT;
        Pb__FinishUpgradeResponse *p = NULL;
        Pb__StatusResponse *st = NULL;
        struct rig_conn *c;
        struct rig_call call;

        rig_begin();
        c = rig_connect(0);
        rig_ask(c, &call, "/tenurepb.Maintenance/FinishUpgrade", &finish.base);
        rig_wait(&call, 1000);
        CHECK_EQ(call.code, RPC_OK);
        CHECK_EQ(pb_unpack(&pb__finish_upgrade_response__descriptor,
                           (struct view){call.message.data, buf_len(&call.message)}, &p),
                 0);
        CHECK_STR(p->cluster_version, "0.2");
        pb_free(&p->base);
        rig_forget(&call);
        rig_ask(c, &call, "/etcdserverpb.Maintenance/Status", &status.base);
        rig_wait(&call, 1000);
        CHECK_EQ(pb_unpack(&pb__status_response__descriptor,
                           (struct view){call.message.data, buf_len(&call.message)}, &st),
                 0);
        CHECK_STR(st->tenure_version, TENURE_VERSION);
        CHECK_STR(st->cluster_version, "0.2");
        CHECK_EQ(st->n_member_versions, 1);
        CHECK_EQ(st->member_versions[0]->id, 1);
        CHECK(st->member_versions[0]->linked);
        CHECK_STR(st->member_versions[0]->version, TENURE_VERSION);
        CHECK_STR(st->member_versions[0]->newest_cluster_version, "0.2");
        CHECK_EQ(st->n_revision_times, 0);
        pb_free(&st->base);
        rig_forget(&call);
        rig_end();
}
