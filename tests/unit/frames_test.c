/* What a replica refuses of the frames of its peers: numbers that no member sends. */
#include <raft.h>

#include "base/le.h"
#include "consensus/message.h"
#include "core/core.h"
#include "one.h"
#include "test.h"

#define BIG UINT64_MAX
#define HALF (UINT64_MAX / 2)

static struct {
        struct replica *replica;
        struct boot_time now;
} w;

/* Member 2 sends it. */
static bool takes(const struct buf *f)
{
        int k = replica_input(w.replica, 2, (struct view){buf_head(f), buf_len(f)}, w.now);

        CHECK(k == 0 || k == -EBADMSG);
        return k == 0;
}

static bool takes_numbers(enum frame_type type, const uint64_t *v, size_t n)
{
        cleanup_(buf_fini) struct buf f = {0};

        buf_add_u8(&f, (uint8_t) type);
        for (size_t i = 0; i < n; i++)
                buf_add_u64(&f, v[i]);
        return takes(&f);
}

#define TAKES(type, ...)                                     \
        takes_numbers(type, (const uint64_t[]){__VA_ARGS__}, \
                      sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t))

static struct disk *begin(struct core **ret_core)
{
        struct disk *disk = sim_disk_new();

        w.now = (struct boot_time){1000 * NSEC_PER_SEC};
        one_new(ret_core, &w.replica, disk, 3, &(struct core_config){.min_ttl = NSEC_PER_SEC},
                w.now);
        return disk;
}

static void end(struct disk *disk, struct core *core)
{
        core_free(core);
        replica_free(w.replica);
        disk_free(disk);
}

/* Terms grow by one with each election, and lease time no faster than a clock. */
TEST(a_frame_with_a_number_that_no_member_sends_is_refused)
{
        struct core *core;
        struct disk *disk = begin(&core);
        const uint64_t year = 365 * UINT64_C(86400) * NSEC_PER_SEC;

        CHECK(TAKES(FRAME_READ_PING, 1, BIG));
        CHECK(TAKES(FRAME_READ_PING, 1000000, 1)); /* we were away */
        CHECK(!TAKES(FRAME_READ_PING, BIG, 1));
        CHECK(!TAKES(FRAME_READ_PONG, HALF, 1));
        CHECK(TAKES(FRAME_READ_TELL, BIG, 1, year));
        CHECK(TAKES(FRAME_READ_TELL, BIG, 1, (uint64_t) LEASE_TIME_NEVER.ns));
        CHECK(!TAKES(FRAME_READ_TELL, 1, BIG, year));
        CHECK(!TAKES(FRAME_READ_TELL, 1, 1, BIG));
        CHECK(TAKES(FRAME_BEACON, 1, BIG, 20 * year));
        CHECK(!TAKES(FRAME_BEACON, 1, 1, 100 * year));
        CHECK(!TAKES(FRAME_BEACON, 1, 1, BIG));
        CHECK(TAKES(FRAME_BEACON_ACK, 1, year));
        CHECK(!TAKES(FRAME_BEACON_ACK, 1, BIG));
        CHECK(TAKES(FRAME_TIME_ASK, 1));
        CHECK(!TAKES(FRAME_TIME_ASK, BIG));
        CHECK(!TAKES(FRAME_TIME_ASK, 0)); /* an introduction that says nothing */
        CHECK(TAKES(FRAME_TIME_TELL, 1, 0, 0));
        CHECK(!TAKES(FRAME_TIME_TELL, 1, BIG, 1));
        CHECK(!TAKES(FRAME_TIME_TELL, 1, 1, (uint64_t) LEASE_TIME_NEVER.ns));
        CHECK(TAKES(FRAME_CHANGED, BIG, REPLICA_E_LAST_));
        CHECK(!TAKES(FRAME_CHANGED, 1, REPLICA_E_LAST_ + 1));
        CHECK(!TAKES(FRAME_CHANGED, 1, BIG));
        CHECK(!TAKES(FRAME_REMOVED, BIG));
        CHECK(!TAKES(FRAME_LACKS, 1, BIG));
        CHECK(TAKES(FRAME_DOUBLED, 1)); /* to another process */
        CHECK(TAKES(FRAME_PROPOSED, 1, BIG, BIG, BIG, 1));
        CHECK(!TAKES(FRAME_PROPOSED, 1, 1, 1, 1, 2));
        CHECK(!TAKES(FRAME_SNAPSHOT_ACK, BIG, 1, 1));
        CHECK(!TAKES(FRAME_SNAPSHOT, BIG, 1, 100, 0));
        CHECK(!TAKES(FRAME_SNAPSHOT, 1, BIG, 100, 0));
        CHECK(!TAKES(FRAME_SNAPSHOT, 1, 1, BIG, 0));
        CHECK_EQ(replica_term(w.replica), 1);
        end(disk, core);
}

static bool takes_change(uint64_t request, uint8_t what, uint64_t id, struct view address)
{
        cleanup_(buf_fini) struct buf f = {0};

        buf_add_u8(&f, FRAME_CHANGE);
        buf_add_u64(&f, request);
        buf_add_u8(&f, what);
        buf_add_u64(&f, id);
        buf_add(&f, address.p, address.len);
        return takes(&f);
}

#define TEXT(t) ((struct view){(const uint8_t *) (t), sizeof(t) - 1})

/* The others would refuse a configuration with such a member, and nothing would be committed
 * any more. */
TEST(a_change_that_makes_no_sound_configuration_is_refused)
{
        struct core *core;
        struct disk *disk = begin(&core);

        CHECK(takes_change(1, REPLICA_ADD, 4, TEXT("http://4:1")));
        CHECK(takes_change(1, REPLICA_REMOVE, 4, TEXT("")));
        CHECK(!takes_change(1, REPLICA_LAST_ + 1, 4, TEXT("http://4:1")));
        CHECK(!takes_change(0, REPLICA_ADD, 4, TEXT("http://4:1")));
        CHECK(!takes_change(1, REPLICA_ADD, 0, TEXT("http://4:1")));
        CHECK(!takes_change(1, REPLICA_ADD, BIG, TEXT("http://4:1")));
        CHECK(!takes_change(1, REPLICA_ADD, 4, TEXT("")));
        CHECK(!takes_change(1, REPLICA_MOVE, 4, TEXT("http://4:1\0,")));
        end(disk, core);
}

/* ---- raft's messages ---- */

struct sent {
        uint64_t term;
        uint8_t type;
        struct view data;
};

static bool entry_of(void *u, uint64_t index, uint64_t *ret_term, uint8_t *ret_type,
                     struct view *ret_data)
{
        const struct sent *s = u;

        (void) index;
        *ret_term = s->term;
        *ret_type = s->type;
        *ret_data = s->data;
        return true;
}

static bool takes_message(struct raft_message m)
{
        cleanup_(buf_fini) struct buf f = {0};

        CHECK_EQ(message_encode(&m, NULL, NULL, 0, &f), 0);
        return takes(&f);
}

static bool takes_entry(uint8_t type, struct view data)
{
        cleanup_(buf_fini) struct buf f = {0};
        struct raft_message m = {.type = RAFT_APPEND_ENTRIES};
        struct sent s = {.term = 2, .type = type, .data = data};

        m.append_entries.term = 2;
        m.append_entries.prev_log_index = m.append_entries.prev_log_term = 1;
        m.append_entries.n_entries = 1;
        CHECK_EQ(message_encode(&m, entry_of, &s, 0, &f), 0);
        return takes(&f);
}

TEST(a_message_of_raft_that_no_member_sends_is_refused)
{
        struct raft_message m = {.type = RAFT_REQUEST_VOTE};
        struct core *core;
        struct disk *disk = begin(&core);

        m.request_vote = (struct raft_request_vote){
                .term = 2, .candidate_id = 2, .last_log_index = 1, .last_log_term = 1};
        CHECK(takes_message(m));
        CHECK_EQ(replica_term(w.replica), 2); /* a member may do that */
        m.request_vote.candidate_id = 3;
        CHECK(!takes_message(m));
        m.request_vote.candidate_id = 2;
        m.request_vote.term = BIG;
        CHECK(!takes_message(m));
        m.request_vote.term = 3;
        m.request_vote.last_log_term = 4;
        CHECK(!takes_message(m));
        m.request_vote.last_log_term = 1;
        m.request_vote.last_log_index = BIG;
        CHECK(!takes_message(m));
        CHECK_EQ(replica_term(w.replica), 2);

        m = (struct raft_message){.type = RAFT_APPEND_ENTRIES_RESULT};
        m.append_entries_result.term = 2;
        CHECK(takes_message(m));
        m.append_entries_result.last_log_index = BIG;
        CHECK(!takes_message(m));
        m.append_entries_result.last_log_index = 1;
        m.append_entries_result.rejected = BIG;
        CHECK(!takes_message(m));
        m.append_entries_result.rejected = 0;
        m.append_entries_result.term = BIG - 1;
        CHECK(!takes_message(m));

        m = (struct raft_message){.type = RAFT_TIMEOUT_NOW};
        m.timeout_now.term = 2;
        m.timeout_now.last_log_term = 3;
        CHECK(!takes_message(m));

        m = (struct raft_message){.type = RAFT_APPEND_ENTRIES};
        m.append_entries.term = 2;
        m.append_entries.prev_log_index = 1;
        CHECK(!takes_message(m)); /* an entry has a term */
        m.append_entries.prev_log_term = 1;
        m.append_entries.leader_commit = BIG;
        CHECK(!takes_message(m));
        CHECK_EQ(replica_term(w.replica), 2);
        end(disk, core);
}

/* An entry becomes part of the log, where nothing can refuse it any more. */
TEST(an_entry_that_no_leader_appends_is_refused)
{
        struct core *core;
        struct disk *disk = begin(&core);
        const uint8_t none[16] = {1}, late[16] = {0, 0, 0, 0, 0, 0, 0, 0x7f};
        struct raft_configuration c;
        struct raft_buffer b;

        CHECK(!takes_entry(RAFT_COMMAND, (struct view){late, 7})); /* no lease time */
        CHECK(!takes_entry(RAFT_COMMAND, (struct view){late, 8}));
        CHECK(!takes_entry(RAFT_CHANGE, (struct view){none, 16})); /* no members */
        raft_configuration_init(&c);
        CHECK_EQ(raft_configuration_add(&c, 1, "http://1:1", RAFT_STANDBY), 0);
        CHECK_EQ(raft_configuration_encode(&c, &b), 0);
        CHECK(!takes_entry(RAFT_CHANGE, (struct view){b.base, b.len})); /* no voter */
        raft_free(b.base);
        raft_configuration_close(&c);
        CHECK_EQ(replica_status(w.replica).last, 1);
        CHECK(takes_entry(RAFT_COMMAND, (struct view){none, 8}));
        CHECK_EQ(replica_status(w.replica).last, 2);
        end(disk, core);
}
