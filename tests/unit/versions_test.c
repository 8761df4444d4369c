/* What members say of their versions, and what a replica makes of it. */
#include "base/le.h"
#include "consensus/message.h"
#include "core/core.h"
#include "one.h"
#include "test.h"

static const struct introduction two = {
        .newest = CLUSTER_0_2, .directory = UINT64_C(0x0102030405060708), .program = "0.2.0"};

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
        CHECK_EQ(buf_len(&b), 1 + 8 + 4 + 8 + 1 + 5);
        CHECK_EQ(read_it(&b, &in), 0);
        CHECK_EQ(in.newest, CLUSTER_0_2);
        CHECK_EQ(in.directory, two.directory);
        CHECK_STR(in.program, "0.2.0");
        buf_add_u64(&b, 1); /* what a later release says beyond that */
        CHECK_EQ(read_it(&b, &in), 0);
        CHECK_STR(in.program, "0.2.0");

        buf_add_u8(&other, FRAME_TIME_ASK);
        buf_add_u64(&other, 1);
        CHECK_EQ(read_it(&other, &in), -ENODATA);
        CHECK_EQ(in.newest, CLUSTER_0_1);
        CHECK_STR(in.program, "0.1.0");
        buf_clear(&other);
        CHECK_EQ(read_it(&other, &in), -ENODATA);
}

TEST(a_damaged_introduction_is_refused)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct introduction in;

        introduction_append(&two, &b);
        for (size_t n = 9; n < buf_len(&b); n++)
                CHECK_EQ(introduction_read((struct view){b.data, n}, &in), -EBADMSG);
        b.data[buf_len(&b) - 1] = '\n';
        CHECK_EQ(read_it(&b, &in), -EBADMSG);
        b.data[buf_len(&b) - 1] = '0';
        le32_put(b.data + 9, 0);
        CHECK_EQ(read_it(&b, &in), -EBADMSG);
        le32_put(b.data + 9, UINT32_MAX);
        CHECK_EQ(read_it(&b, &in), 0);
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

TEST(a_member_that_is_too_old_is_neither_heard_nor_sent_anything)
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
