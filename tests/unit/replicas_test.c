/* Three replicas without a network: the test carries, or loses, what they send. */
#include <bsd/sys/queue.h>
#include <stdlib.h>

#include "consensus/internal.h"
#include "consensus/message.h"
#include "nomem.h"
#include "test.h"

#include "../sim/world.h"

#define N 3 /* replicas, if a test does not want another number */
#define MOST 5
#define MS NSEC_PER_MSEC

struct frame {
        STAILQ_ENTRY(frame) next;
        uint64_t from, to;
        struct boot_time at; /* when it arrives */
        struct buf bytes;
};

static struct {
        struct net_node {
                struct replica *replica;
                struct disk *disk;
                unsigned applied, loaded, loads; /* how many '!' in commands */
                unsigned entries;                /* that had commands */
                unsigned saved, snaps;           /* ...as of the last one; those loaded */
                uint64_t bytes, large; /* sent to it in all, and in the largest frame */
                unsigned slices[REPLICA_SAVES]; /* of those that are taken, so far */
                unsigned saving[REPLICA_SAVES]; /* `applied`, as of them */
                unsigned turns;                 /* that a '~' takes yet */
                nsec_t far;                     /* frames to and from it take so much longer */
                bool full;                      /* the links to it ... */
                size_t pipe;         /* ... or they hold so many bytes; 0: any number */
                bool stuck;          /* its disk */
                unsigned configured; /* how often it was notified that the members have changed
                                      */
                bool may_end, ended;
                char why[64]; /* it ended, the beginning */
        } node[MOST];
        STAILQ_HEAD(, frame) frames;
        struct boot_time now;
        nsec_t delay;                        /* of frames, one way */
        bool (*lost)(const struct frame *f); /* NULL: none is */
        unsigned sent[32];                   /* frames by their type */
        unsigned n_read;                     /* answers to reads ... */
        uint64_t read;                       /* ... up to this one */
        int outcome;                         /* of the last change of members */
        unsigned removed; /* a bit for each that was notified that it was removed */
} net;

static unsigned n_nodes = N;

static uint64_t id_of(const void *u)
{
        return (uint64_t) ((const struct net_node *) u - net.node) + 1;
}

static void on_send(void *u, uint64_t peer, struct view v)
{
        struct frame *f = calloc(1, sizeof(*f));

        CHECK(f && v.len > 0);
        f->from = id_of(u);
        f->to = peer;
        f->at = boot_add(net.now,
                         net.delay + net.node[f->from - 1].far + net.node[peer - 1].far);
        buf_add(&f->bytes, v.p, v.len);
        net.node[peer - 1].bytes += v.len;
        net.node[peer - 1].large = max_of(net.node[peer - 1].large, (uint64_t) v.len);
        net.sent[v.p[0]]++;
        STAILQ_INSERT_TAIL(&net.frames, f, next);
}

static size_t on_room(void *u, uint64_t peer)
{
        const struct net_node *to = &net.node[peer - 1];
        size_t room = to->full ? 0 : to->pipe > 0 ? to->pipe : 1 << 20;
        const struct frame *f;

        (void) u;
        if (to->pipe > 0)
                STAILQ_FOREACH (f, &net.frames, next)
                        if (f->to == peer)
                                room -= min_of(room, buf_len(&f->bytes));
        return room;
}

/* '?' is a command that this version does not know. */
static int on_check(void *u, struct view commands)
{
        (void) u;
        return commands.len > 0 && memchr(commands.p, '?', commands.len) ? -ENOTSUP : 0;
}

static int on_apply(void *u, uint64_t index, uint64_t term, struct lease_time at,
                    struct view commands, size_t *left)
{
        const uint8_t *p = commands.p, *end = p + commands.len;
        struct net_node *n = u;

        (void) index;
        (void) term;
        (void) at;
        if (commands.len == 0)
                return 0;
        if (on_check(u, commands) < 0)
                return -ENOTSUP;
        if (n->turns > 0 && memchr(commands.p, '~', commands.len)) {
                n->turns--;
                *left = 0;
                return 1;
        }
        for (; (p = memchr(p, '!', (size_t) (end - p))); p++)
                n->applied++;
        n->entries++;
        return 0;
}

static void on_save(void *u, unsigned slot)
{
        struct net_node *n = u;

        n->saved = n->saving[slot] = n->applied;
        n->slices[slot] = 0;
}

static bool stale_once;
static unsigned slices;   /* that a snapshot takes, but for one ... */
static size_t slice_size; /* ... with so many bytes each */
static size_t padding;    /* of a snapshot, in the last one */

static int on_save_count(void *u, unsigned slot, size_t bytes, size_t *ret)
{
        (void) u;
        (void) slot;
        (void) bytes;
        *ret = sizeof(uint32_t) + slices * slice_size + padding;
        return 0;
}

static void add_dots(struct buf *out, size_t n)
{
        memset(buf_reserve(out, n), '.', n);
        buf_commit(out, n);
}

static int on_save_more(void *u, unsigned slot, size_t bytes, struct buf *out)
{
        struct net_node *n = u;

        (void) bytes;
        if (n->slices[slot]++ == 0)
                buf_add_u32(out, n->saving[slot]);
        if (n->slices[slot] <= slices) {
                add_dots(out, slice_size);
                return 1;
        }
        if (stale_once) {
                stale_once = false;
                return -ESTALE;
        }
        add_dots(out, padding);
        return 0;
}

static void on_save_end(void *u, unsigned slot)
{
        (void) u;
        (void) slot;
}

static int on_load(void *u, struct view snapshot)
{
        struct net_node *n = u;

        return view_u32(&snapshot, &n->loaded);
}

static int on_load_more(void *u, size_t *left, const char **ret_wrong)
{
        struct net_node *n = u;

        (void) ret_wrong;
        return *left < SIZE_MAX && n->loads++ % 3 != 2; /* in three slices */
}

static struct lease_time on_adopt(void *u)
{
        struct net_node *n = u;

        n->snaps++;
        n->applied = n->loaded;
        return (struct lease_time){0};
}

static void on_changed(void *u)
{
        (void) u;
}

static void on_read_at(void *u, uint64_t id, uint64_t index, struct lease_time at)
{
        (void) u;
        (void) index;
        (void) at;
        net.n_read++;
        net.read = id;
}

static void on_changed_members(void *u, uint64_t request, int outcome)
{
        (void) u;
        (void) request;
        net.outcome = outcome;
}

static void on_fatal(void *u, const char *why)
{
        struct net_node *n = u;

        if (!n->may_end)
                test_fail(__FILE__, __LINE__, "replica %d: %s", (int) id_of(u), why);
        n->ended = true;
        snprintf(n->why, sizeof(n->why), "%s", why);
}

static void on_configured(void *u)
{
        ((struct net_node *) u)->configured++;
}

static void on_removed(void *u)
{
        net.removed |= 1u << id_of(u);
}

static const struct replica_ops ops = {
        .configured = on_configured,
        .removed = on_removed,
        .send = on_send,
        .room = on_room,
        .check = on_check,
        .apply = on_apply,
        .save = on_save,
        .save_count = on_save_count,
        .save_more = on_save_more,
        .save_end = on_save_end,
        .load = on_load,
        .load_more = on_load_more,
        .adopt = on_adopt,
        .drop = on_changed,
        .changed = on_changed,
        .read_at = on_read_at,
        .skipped = on_changed,
        .changed_members = on_changed_members,
        .fatal = on_fatal,
};

/* The first frame that is due; those of a link stay in order. */
static struct frame *due(void)
{
        struct frame *f, *before;

        STAILQ_FOREACH (f, &net.frames, next) {
                if (boot_before(net.now, f->at))
                        continue;
                STAILQ_FOREACH (before, &net.frames, next)
                        if (before == f || (before->from == f->from && before->to == f->to))
                                break;
                if (before == f)
                        return f;
        }
        return NULL;
}

static uint64_t made_dirs; /* directories get ids, of which this was the last one; 0: none */

/* A frame of a member with another directory is refused. */
static void check_taken(int r)
{
        CHECK(r == 0 || (r == -EKEYREJECTED && made_dirs > 0));
}

static void deliver(void)
{
        struct frame *f;

        while ((f = due())) {
                STAILQ_REMOVE(&net.frames, f, frame, next);
                if (net.node[f->to - 1].replica && !(net.lost && net.lost(f)))
                        check_taken(replica_input(
                                net.node[f->to - 1].replica, f->from,
                                (struct view){buf_head(&f->bytes), buf_len(&f->bytes)},
                                net.now));
                buf_fini(&f->bytes);
                free(f);
        }
}

/* One turn of everybody: the network and the disks take no time. */
static void turn(void)
{
        deliver();
        for (unsigned i = 0; i < n_nodes; i++) {
                if (!net.node[i].replica)
                        continue;
                while (sim_disk_busy(net.node[i].disk) && !net.node[i].stuck)
                        sim_disk_finish(net.node[i].disk);
                replica_run(net.node[i].replica, net.now);
                replica_flush(net.node[i].replica, net.now);
        }
}

static void pass(nsec_t time)
{
        for (nsec_t i = 0; i < time; i += MS) {
                net.now = boot_add(net.now, MS);
                turn();
        }
}

static const struct replica_peer peers[MOST] = {{1, "http://1:1"},
                                                {2, "http://2:1"},
                                                {3, "http://3:1"},
                                                {4, "http://4:1"},
                                                {5, "http://5:1"}};

static bool founds;      /* the cluster is new in the sense of `found` */
static bool waits_found; /* ... which does not propose its first command yet */
static unsigned n_founded;

/* The first command is a '!'. */
static bool on_found(void *u)
{
        struct net_node *n = u;
        uint64_t member;

        n_founded++;
        if (waits_found)
                return false;
        return replica_raise(n->replica, "!", 1, &member) == 0;
}

static int make_node(struct net_node *n, size_t log_bytes, struct store_error *err)
{
        static struct replica_ops founding;

        founding = ops;
        founding.found = on_found;
        return replica_new(&n->replica,
                           &(struct replica_config){
                                   .id = id_of(n),
                                   .cluster_id = 7,
                                   .peers = peers,
                                   .n_peers = n_nodes,
                                   .election = 500 * MS,
                                   .heartbeat = 50 * MS,
                                   .seed = rnd(1, UINT32_MAX),
                                   .directory = made_dirs > 0 ? ++made_dirs : 0,
                                   .log_bytes = log_bytes,
                           },
                           n->disk, founds ? &founding : &ops, n, net.now, err);
}

static void start_node(struct net_node *n, size_t log_bytes)
{
        struct store_error err = {""};

        CHECK_EQ(make_node(n, log_bytes, &err), 0);
        CHECK_EQ(replica_start(n->replica), 0);
}

static void start_with(size_t log_bytes)
{
        memset(&net, 0, sizeof(net));
        slices = 0;
        slice_size = padding = 0;
        STAILQ_INIT(&net.frames);
        net.now.ns = 1000 * NSEC_PER_SEC;
        for (unsigned i = 0; i < n_nodes; i++) {
                net.node[i].disk = sim_disk_new();
                start_node(&net.node[i], log_bytes);
        }
}

static void start(void)
{
        start_with(0);
}

static void stop(void)
{
        struct frame *f;

        for (unsigned i = 0; i < n_nodes; i++) {
                while (sim_disk_busy(net.node[i].disk))
                        sim_disk_finish(net.node[i].disk);
                replica_free(net.node[i].replica);
                disk_free(net.node[i].disk);
        }
        while ((f = STAILQ_FIRST(&net.frames))) {
                STAILQ_REMOVE_HEAD(&net.frames, next);
                buf_fini(&f->bytes);
                free(f);
        }
}

/* As replicas of a new cluster, with directories from 101 on. */
static void start_founding_with(size_t log_bytes)
{
        founds = true;
        made_dirs = 100;
        start_with(log_bytes);
}

static void start_founding(void)
{
        start_founding_with(0);
}

static void stop_founding(void)
{
        founds = false;
        made_dirs = 0;
        stop();
}

/* Runs until a replica leads and is ready. Returns it. */
static struct net_node *elect(void)
{
        for (unsigned i = 0; i < 100; i++) {
                pass(100 * MS);
                for (unsigned k = 0; k < n_nodes; k++)
                        if (net.node[k].replica &&
                            replica_healthy(net.node[k].replica, net.now))
                                return &net.node[k];
        }
        test_fail(__FILE__, __LINE__, "nobody leads");
}

static struct net_node *follower(const struct net_node *leader)
{
        return &net.node[(leader - net.node + 1) % N];
}

static void end_node(struct net_node *n)
{
        n->replica = replica_free(n->replica);
        for (unsigned i = 0; i < n_nodes; i++)
                if (net.node[i].replica)
                        replica_peer_down(net.node[i].replica, id_of(n), net.now);
        pass(1000 * MS);
}

static int propose(struct net_node *n, size_t bytes)
{
        cleanup_(buf_fini) struct buf b = {0};
        uint8_t *p = buf_reserve(&b, bytes);

        CHECK(p && bytes > 0);
        memset(p, '.', bytes);
        p[0] = '!';
        buf_commit(&b, bytes);
        return replica_propose(n->replica, buf_head(&b), buf_len(&b), REPLICA_NORMAL);
}

static bool is_proposal(const struct frame *f)
{
        return buf_head(&f->bytes)[0] == FRAME_PROPOSE;
}

static bool some_proposals(const struct frame *f)
{
        return is_proposal(f) && rnd(0, 2) == 0;
}

static bool acknowledgements(const struct frame *f)
{
        return buf_head(&f->bytes)[0] == FRAME_PROPOSED;
}

static struct net_node *elect_unready(void)
{
        for (unsigned i = 0; i < 100; i++) {
                pass(100 * MS);
                for (unsigned k = 0; k < n_nodes; k++)
                        if (net.node[k].replica && replica_status(net.node[k].replica).leader)
                                return &net.node[k];
        }
        test_fail(__FILE__, __LINE__, "nobody leads");
}

/* Until then it takes no writes and no reads, and says for whom it waits. */
TEST(a_new_cluster_begins_when_all_members_have_introduced_themselves)
{
        struct introduction in = {.newest = CLUSTER_0_2, .program = "0.2.0"};
        struct net_node *leader, *other;

        founds = true;
        n_founded = 0;
        start();
        leader = elect_unready();
        other = follower(leader);
        CHECK_EQ(propose(leader, 10), 0);
        CHECK_EQ(propose(other, 10), 0);
        replica_read(leader->replica, 1);
        CHECK_EQ(replica_peer_introduced(leader->replica, id_of(other), &in, net.now), 0);
        pass(2000 * MS);
        CHECK(!replica_status(leader->replica).ready);
        CHECK_EQ(replica_status(leader->replica).awaits, id_of(follower(other)));
        CHECK_EQ(leader->applied, 0);
        CHECK_EQ(net.n_read, 0);
        CHECK_EQ(n_founded, 0);
        CHECK_EQ(replica_peer_introduced(leader->replica, id_of(follower(other)),
                                         &introduction_0_1, net.now),
                 0);
        pass(500 * MS);
        CHECK(replica_status(leader->replica).ready);
        CHECK_EQ(replica_status(leader->replica).awaits, 0);
        CHECK_EQ(n_founded, 1);
        CHECK_EQ(leader->applied, 3);
        CHECK_EQ(other->applied, 3);
        CHECK_EQ(net.n_read, 1);
        /* The next leader finds that the cluster has begun. */
        net.node[leader - net.node].full = true;
        replica_free(leader->replica);
        leader->replica = NULL;
        leader = elect();
        CHECK_EQ(n_founded, 1);
        founds = false;
        stop();
}

/* As the links do. Returns what @to makes of it. */
static int introduce(const struct net_node *from, struct net_node *to)
{
        struct introduction in = replica_introduction(from->replica, id_of(to));

        return replica_peer_introduced(to->replica, id_of(from), &in, net.now);
}

static void introduce_all(void)
{
        for (unsigned i = 0; i < n_nodes; i++)
                for (unsigned k = 0; k < n_nodes; k++)
                        if (i != k && net.node[i].replica && net.node[k].replica)
                                CHECK_EQ(introduce(&net.node[i], &net.node[k]), 0);
}

static void check_nobody_leads(nsec_t time)
{
        for (nsec_t t = 0; t < time; t += 100 * MS) {
                pass(100 * MS);
                for (unsigned i = 0; i < N; i++)
                        CHECK(!net.node[i].replica ||
                              !replica_status(net.node[i].replica).leader);
        }
}

/* If the log dropped its first entries, nobody could tell that no command was among them. */
TEST(a_new_cluster_begins_though_its_log_is_full_before_the_first_command)
{
        struct net_node *leader = NULL;

        waits_found = true;
        start_founding_with(1);
        introduce_all();
        pass(3000 * MS);
        for (unsigned i = 0; i < N; i++)
                if (replica_status(net.node[i].replica).leader)
                        leader = &net.node[i];
        CHECK(leader && leader->replica->log.bytes > leader->replica->cfg.log_bytes);
        replica_want_snapshot(follower(leader)->replica);
        pass(100 * MS);
        end_node(leader);
        waits_found = false;
        n_founded = 0;
        (void) elect();
        CHECK_EQ(n_founded, 1);
        stop_founding();
}

/* Two of three have the directories that are recorded, but the third one's disk is lost: with
 * one of those that is behind, it would elect a leader that lacks what was acknowledged. */
TEST(a_member_whose_disk_is_lost_elects_nobody)
{
        struct net_node *leader, *lost, *behind;

        start_founding();
        check_nobody_leads(3000 * MS);
        CHECK(replica_status(net.node[0].replica).awaits != 0);
        introduce_all();
        leader = elect();
        lost = follower(leader);
        behind = follower(lost);
        pass(500 * MS);
        for (unsigned i = 0; i < N; i++) {
                struct introduction in = replica_introduction(net.node[i].replica, id_of(lost));

                CHECK(!in.founding);
                CHECK_EQ(in.yours, 101 + (id_of(lost) - 1));
        }

        replica_free(leader->replica);
        leader->replica = NULL;
        replica_peer_down(behind->replica, id_of(leader), net.now);
        replica_peer_down(behind->replica, id_of(lost), net.now);
        replica_free(lost->replica);
        disk_free(lost->disk);
        lost->disk = sim_disk_new();
        start_node(lost, 0);
        CHECK_EQ(introduce(lost, behind), -EKEYREJECTED);
        CHECK_EQ(introduce(behind, lost), 0);
        check_nobody_leads(5000 * MS);
        CHECK_EQ(replica_status(lost->replica).awaits, 0); /* it has begun without this one */

        start_node(leader, 0);
        CHECK_EQ(introduce(leader, behind), 0);
        CHECK_EQ(introduce(behind, leader), 0);
        CHECK_EQ(introduce(lost, leader), -EKEYREJECTED);
        CHECK_EQ(introduce(leader, lost), 0);
        CHECK(elect() != lost);
        stop_founding();
}

/* As member @from, which refuses entry @rejected (0: none), and has the log up to @last. */
static void answer_entries(struct net_node *to, uint64_t from, uint64_t rejected, uint64_t last)
{
        cleanup_(buf_fini) struct buf f = {0};
        struct raft_message m = {.type = RAFT_APPEND_ENTRIES_RESULT};

        m.append_entries_result.version = 1;
        m.append_entries_result.term = replica_term(to->replica);
        m.append_entries_result.rejected = rejected;
        m.append_entries_result.last_log_index = last;
        CHECK_EQ(message_encode(&m, NULL, NULL, 0, &f), 0);
        CHECK_EQ(replica_input(to->replica, from, (struct view){buf_head(&f), buf_len(&f)},
                               net.now),
                 0);
}

/* Member 4, which is not one of the replicas, has all of the log. */
static void acknowledge(struct net_node *to)
{
        answer_entries(to, 4, 0, log_last(&to->replica->log));
}

/* If it did at once, two directories could vote as one member: one acknowledges, and is lost
 * before anybody has it recorded. */
TEST(a_member_that_is_added_votes_once_its_directory_is_recorded_and_it_has_caught_up)
{
        struct introduction in = {.newest = CLUSTER_0_2, .directory = 900, .program = "0.2.0"};
        struct net_node *leader;

        start_founding();
        introduce_all();
        leader = elect();
        pass(1000 * MS);
        replica_change_members(leader->replica, 1, REPLICA_ADD, 4, "http://4:1");
        pass(1000 * MS);
        CHECK_EQ(net.outcome, 0);
        CHECK_EQ(replica_voters(leader->replica), 3);
        CHECK(replica_will_vote(leader->replica, 4));
        replica_change_members(leader->replica, 2, REPLICA_PROMOTE, 4, "");
        CHECK_EQ(net.outcome, REPLICA_E_VOTER); /* it is no learner, as etcd has it */

        CHECK_EQ(replica_peer_introduced(leader->replica, 4, &in, net.now), 0);
        pass(200 * MS);
        CHECK_EQ(replica_directory(follower(leader)->replica, 4), 900);
        CHECK_EQ(replica_voters(leader->replica), 3);
        in.directory = 901;
        CHECK_EQ(replica_peer_introduced(leader->replica, 4, &in, net.now), -EKEYREJECTED);
        in.directory = 900;
        CHECK_EQ(replica_peer_introduced(leader->replica, 4, &in, net.now), 0);

        acknowledge(leader);
        pass(10 * MS);
        CHECK_EQ(replica_voters(leader->replica), 4);
        CHECK(!replica_will_vote(leader->replica, 4));
        CHECK_EQ(replica_directory(leader->replica, 4), 900);
        stop_founding();
}

/* A leader of version 0.1 has appended its first command, and nobody else has it. */
TEST(a_founding_replica_votes_in_a_cluster_that_has_begun_at_version_0_1)
{
        struct introduction in = {.newest = CLUSTER_0_2, .directory = 102, .program = "0.2.0"};
        struct replica *r;

        start_founding();
        r = net.node[0].replica;
        CHECK_EQ(replica_peer_introduced(r, 2, &in, net.now), 0);
        CHECK(!directories_may_vote(r, 2));
        in.directory = 103;
        CHECK_EQ(replica_peer_introduced(r, 3, &in, net.now), 0);
        CHECK(directories_may_vote(r, 2));
        CHECK(!directories_may_stand(r));
        /* With entries of a later term, it would not vote for who has begun. */
        CHECK_EQ(log_push(&r->log, 2, RAFT_BARRIER, NULL, 0), 0);
        CHECK(directories_may_stand(r));
        in.yours = 55; /* it is at version 0.2, and our disk was lost */
        CHECK_EQ(replica_peer_introduced(r, 3, &in, net.now), 0);
        CHECK(!directories_may_vote(r, 2));
        CHECK(!directories_may_stand(r));
        log_cut(&r->log, log_last(&r->log));
        stop_founding();
}

/* A founding replica takes over the term of a member, for good. */
TEST(a_term_that_no_member_can_have_is_refused)
{
        struct introduction in = {.newest = CLUSTER_0_2,
                                  .directory = 102,
                                  .term = UINT64_MAX,
                                  .program = "0.2.0"};
        struct replica *r;

        start_founding();
        r = net.node[0].replica;
        CHECK_EQ(replica_peer_introduced(r, 2, &in, net.now), -EBADMSG);
        CHECK_EQ(replica_term(r), 1);
        in.term = 5;
        CHECK_EQ(replica_peer_introduced(r, 2, &in, net.now), 0);
        CHECK_EQ(replica_term(r), 5);
        stop_founding();
}

static int change(struct net_node *leader, enum replica_change what, uint64_t id,
                  const char *address)
{
        static uint64_t request;

        do {
                net.outcome = -1;
                replica_change_members(leader->replica, ++request, what, id, address);
                pass(300 * MS);
        } while (net.outcome == REPLICA_E_BUSY);
        return net.outcome;
}

/* By one entry; and whoever leads then promotes the new one. */
TEST(a_member_whose_directory_is_lost_is_replaced)
{
        struct net_node *first, *leader, *lost, *by = &net.node[4];
        struct store_error err;
        struct raft_server *s;
        const char *urls;
        uint64_t match;

        n_nodes = 4;
        start_founding();
        introduce_all();
        leader = first = elect();
        lost = &net.node[(leader - net.node + 1) % 4];
        urls = peers[id_of(lost) - 1].address;
        CHECK_EQ(change(leader, REPLICA_REPLACE, 5, "http://9:1"), REPLICA_E_UNKNOWN);
        CHECK_EQ(change(leader, REPLICA_REPLACE, 5, urls), REPLICA_E_ALIVE);
        end_node(lost);
        CHECK_EQ(change(leader, REPLICA_REPLACE_LOST, 5, urls), REPLICA_E_NOT_LET);
        leader->replica->cfg.replace_lost = true;
        CHECK_EQ(change(leader, REPLICA_REPLACE_LOST, 5, urls), 0);
        CHECK_EQ(replica_voters(leader->replica), 3);
        CHECK(libraft_match(leader->replica, 5, &match));
        CHECK_EQ(match, 0);
        CHECK(replica_member(leader->replica, 5).replaces);
        CHECK_EQ(change(leader, REPLICA_REPLACE, 6, urls), REPLICA_E_UNCLAIMED);

        end_node(leader);
        leader = elect();
        n_nodes = 5;
        by->disk = sim_disk_new();
        CHECK_EQ(replica_new(&by->replica,
                             &(struct replica_config){.id = 5,
                                                      .cluster_id = 7,
                                                      .peers = peers,
                                                      .n_peers = 5,
                                                      .join = true,
                                                      .election = 500 * MS,
                                                      .heartbeat = 50 * MS,
                                                      .directory = ++made_dirs,
                                                      .seed = 99},
                             by->disk, &ops, by, net.now, &err),
                 0);
        CHECK_EQ(replica_start(by->replica), 0);
        introduce_all();
        pass(3000 * MS);
        CHECK_EQ(replica_voters(leader->replica), 4);
        s = &replica_conf(leader->replica)->servers[replica_position(leader->replica, 5)];
        CHECK_EQ(s->role, RAFT_VOTER);
        CHECK_EQ(address_directory(s->address), made_dirs);
        CHECK(!replica_member(leader->replica, 5).replaces);

        start_node(first, 0);
        introduce_all();
        pass(1000 * MS);
        end_node(by);
        leader->replica->cfg.replace_lost = true;
        CHECK_EQ(change(leader, REPLICA_REPLACE_LOST, 4, urls), REPLICA_E_EARLY);
        stop_founding();
        n_nodes = N;
}

/* Both links end when the second one calls, which is not to be taken for silence. */
TEST(a_leader_lets_the_first_of_two_processes_with_one_directory_call_again)
{
        struct introduction first, second;
        struct net_node *leader, *other;

        start_founding();
        introduce_all();
        leader = elect();
        other = follower(leader);
        pass(2000 * MS);
        first = second = replica_introduction(other->replica, id_of(leader));
        second.process++;
        CHECK_EQ(replica_peer_introduced(leader->replica, id_of(other), &second, net.now),
                 -EBUSY);
        replica_peer_down(leader->replica, id_of(other), net.now);
        CHECK_EQ(replica_peer_introduced(leader->replica, id_of(other), &second, net.now),
                 -EBUSY);
        CHECK_EQ(replica_peer_introduced(leader->replica, id_of(other), &first, net.now), 0);
        CHECK_EQ(replica_peer_introduced(leader->replica, id_of(other), &second, net.now),
                 -EADDRINUSE);
        stop_founding();
}

/* An empty directory is one with nothing but the members. */
TEST(only_a_directory_without_data_is_emptied)
{
        struct store_identity had;
        struct store_error err;
        struct net_node *n;

        n_nodes = 1;
        founds = false;
        start();
        n = &net.node[0];
        n->replica = replica_free(n->replica);
        CHECK_EQ(replica_forget(n->disk, &err), 0);
        CHECK_EQ(store_peek(n->disk, &had, &err), -ENOENT);
        CHECK_EQ(replica_forget(n->disk, &err), 0);
        start_node(n, 0);
        CHECK(elect() == n);
        n->replica = replica_free(n->replica);
        CHECK_EQ(replica_forget(n->disk, &err), -ENOTEMPTY);
        CHECK_EQ(store_peek(n->disk, &had, &err), 0);
        stop();
        n_nodes = N;
}

static void on_stored(void *u, uint64_t index)
{
        (void) u;
        (void) index;
}

/* --force-new-cluster, with @directory for the directory. */
static void force(struct net_node *n, uint64_t directory)
{
        static const struct store_ops store_ops = {.persisted = on_stored};
        const struct replica_config cfg = {.id = id_of(n),
                                           .cluster_id = 7,
                                           .peers = peers,
                                           .n_peers = N,
                                           .directory = directory};
        struct store_error err = {""};
        struct store *s;
        uint64_t index;

        replica_free(n->replica);
        CHECK_EQ(store_open(&s, n->disk, &(struct store_config){.directory = directory},
                            &store_ops, NULL, &err),
                 0);
        CHECK_EQ(store_descend(s, 8), 0);
        CHECK_EQ(replica_leave_alone(s, &cfg, &index), 0);
        while (sim_disk_busy(n->disk))
                sim_disk_finish(n->disk);
        CHECK_EQ(store_descended(s), 0);
        store_free(s);
        start_node(n, 0);
}

/* It never runs on the one that its log had recorded before, nor on one that is not recorded.
 * At cluster version 0.1 none is. */
TEST(a_forced_member_has_its_new_directory_recorded)
{
        for (unsigned recorded = 0; recorded < 2; recorded++) {
                struct net_node *one = &net.node[0];

                founds = recorded;
                made_dirs = recorded ? 100 : 0;
                start();
                if (recorded)
                        introduce_all();
                CHECK(elect());
                pass(500 * MS);
                CHECK_EQ(replica_directory(one->replica, 1), recorded ? 101 : 0);
                CHECK_EQ(replica_directory(one->replica, 2), recorded ? 102 : 0);
                for (unsigned i = 1; i < N; i++) {
                        replica_free(net.node[i].replica);
                        net.node[i].replica = NULL;
                }
                force(one, 900);
                CHECK_EQ(replica_directory(one->replica, 1), recorded ? 900 : 0);
                CHECK_EQ(replica_directory(one->replica, 2), 0);
                CHECK(elect() == one);
                CHECK_EQ(replica_introduction(one->replica, 2).directory, 900);
                stop();
        }
        founds = false;
        made_dirs = 0;
}

/* A link breaks with a proposal in it; leader and term stay. */
TEST(a_leader_that_steps_down_learns_whether_to_wait)
{
        struct net_node *leader;

        start();
        leader = elect();
        CHECK(replica_step_down(leader->replica, net.now));
        CHECK(replica_step_down(leader->replica, net.now)); /* still so */
        CHECK(!replica_step_down(follower(leader)->replica, net.now));
        stop();
}

TEST(a_proposal_that_a_link_lost_is_sent_again)
{
        struct net_node *leader, *from;
        uint64_t term;

        start();
        leader = elect();
        from = follower(leader);
        term = replica_status(leader->replica).term;
        net.lost = is_proposal;
        CHECK_EQ(propose(from, 10), 0);
        pass(20 * MS);
        CHECK_EQ(from->applied, 0);
        net.lost = NULL;
        /* The link is there again ... */
        replica_peer_up(from->replica, id_of(leader), net.now);
        pass(10 * MS);
        CHECK_EQ(from->applied, 1);
        /* ... or nobody noticed that it was gone. */
        net.lost = is_proposal;
        CHECK_EQ(propose(from, 10), 0);
        pass(20 * MS);
        net.lost = NULL;
        pass(400 * MS);
        CHECK_EQ(from->applied, 2);
        CHECK_EQ(leader->applied, 2);
        CHECK_EQ(replica_status(leader->replica).term, term);
        stop();
}

/* Frames lost and acknowledgements lost at random: all arrive, each once. */
TEST(proposals_arrive_once_whatever_is_lost)
{
        struct net_node *leader, *from;
        unsigned n = 0;

        start();
        leader = elect();
        from = follower(leader);
        for (unsigned i = 0; i < 300; i++) {
                net.lost = rnd(0, 1) ? some_proposals : rnd(0, 1) ? acknowledgements : NULL;
                if (propose(from, 10) == 0)
                        n++;
                pass(MS);
                if (rnd(0, 9) == 0)
                        replica_peer_up(from->replica, id_of(leader), net.now);
        }
        net.lost = NULL;
        pass(2000 * MS);
        CHECK_EQ(n, 300);
        CHECK_EQ(from->applied, n);
        CHECK_EQ(leader->applied, n);
        stop();
}

static bool is_pong(const struct frame *f)
{
        return *buf_head(&f->bytes) == FRAME_READ_PONG;
}

static unsigned confirm; /* so many of the others' pongs arrive, those of the first ones */

static bool is_late_pong(const struct frame *f)
{
        return is_pong(f) && f->from > confirm;
}

/* I8: it is a majority that confirms that a leader still leads, not half of it. */
TEST(a_leader_answers_a_read_once_a_majority_of_five_has_confirmed_it)
{
        struct net_node *leader;

        n_nodes = 5;
        start();
        leader = elect();
        net.lost = is_late_pong;
        confirm = id_of(leader) == 1 ? 2 : 1;
        replica_read(leader->replica, 1);
        pass(1000 * MS);
        CHECK_EQ(net.n_read, 0);
        confirm = id_of(leader) <= 3 ? 3 : 2;
        pass(1000 * MS);
        CHECK_EQ(net.n_read, 1);
        stop();
        n_nodes = N;
}

static bool is_tell(const struct frame *f)
{
        return *buf_head(&f->bytes) == FRAME_READ_TELL;
}

static uint64_t slow_reads(const struct net_node *n)
{
        return replica_counts(n->replica)->slow_reads;
}

/* It counted one every 200 ms while all were answered within some. */
TEST(a_busy_follower_asks_once_a_turn_and_none_of_its_reads_is_slow)
{
        struct net_node *leader, *from;
        uint64_t id = 1000;
        unsigned before;

        start();
        leader = elect();
        from = follower(leader);
        net.delay = 3 * MS;
        before = net.sent[FRAME_READ_ASK];
        for (unsigned i = 0; i < 1000; i++) {
                for (unsigned k = 0; k < 10; k++)
                        replica_read(from->replica, ++id);
                pass(MS);
        }
        pass(50 * MS);
        CHECK_EQ(net.read, id);
        CHECK_EQ(net.sent[FRAME_READ_ASK] - before, 1000);
        CHECK_EQ(slow_reads(from), 0);
        stop();
}

TEST(a_read_whose_answer_is_lost_is_asked_for_again)
{
        struct net_node *leader, *from;

        start();
        leader = elect();
        from = follower(leader);
        net.lost = is_tell;
        replica_read(from->replica, 7);
        pass(190 * MS);
        CHECK_EQ(net.n_read, 0);
        CHECK_EQ(slow_reads(from), 0);
        net.lost = NULL;
        pass(60 * MS);
        CHECK_EQ(net.n_read, 1);
        CHECK_EQ(slow_reads(from), 1);
        stop();
}

static bool is_of_reads(const struct frame *f)
{
        uint8_t type = *buf_head(&f->bytes);

        return type >= FRAME_READ_PING && type <= FRAME_READ_TELL;
}

/* Whichever of the two links between them is new. */
TEST(a_read_that_a_link_lost_is_asked_for_again_at_once)
{
        struct net_node *leader, *other;
        uint64_t id = 0;

        start();
        leader = elect();
        other = follower(leader);
        for (unsigned round = 0; round < 4; round++) {
                struct net_node *asks = round % 2 ? leader : other;
                uint64_t peer = id_of(round % 2 ? other : leader);

                net.n_read = 0;
                net.lost = is_of_reads;
                replica_read(asks->replica, ++id);
                pass(20 * MS);
                net.lost = NULL;
                if (round < 2)
                        replica_peer_up(asks->replica, peer, net.now);
                else
                        replica_peer_called(asks->replica, peer, net.now);
                pass(20 * MS);
                CHECK_EQ(net.n_read, 1);
                CHECK_EQ(slow_reads(asks), 0);
        }
        stop();
}

/* I8: those who confirm the round did so before it came. */
TEST(a_read_that_comes_during_a_round_waits_for_the_next_one)
{
        struct net_node *leader;

        start();
        leader = elect();
        net.lost = is_pong;
        replica_read(leader->replica, 1);
        pass(10 * MS);
        replica_read(leader->replica, 2);
        net.lost = NULL;
        while (net.n_read == 0)
                pass(MS);
        CHECK_EQ(net.read, 1);
        pass(10 * MS);
        CHECK_EQ(net.read, 2);
        stop();
}

/* However often it asks while a round goes on, or while the leader is not ready. */
TEST(a_follower_is_answered_once_a_round)
{
        struct net_node *leader, *from;
        unsigned before;

        start();
        leader = elect();
        from = follower(leader);
        before = net.sent[FRAME_READ_TELL];
        net.lost = is_pong;
        for (uint64_t id = 1000; id < 1100; id++) {
                replica_read(from->replica, id);
                pass(MS);
        }
        CHECK_EQ(net.n_read, 0);
        net.lost = NULL;
        pass(300 * MS);
        CHECK_EQ(net.read, 1099);
        CHECK_EQ(net.sent[FRAME_READ_TELL] - before, 2);
        stop();
}

TEST(a_new_leader_is_asked_at_once_about_the_reads_that_wait)
{
        struct net_node *leader, *next, *from;

        start();
        leader = elect();
        next = follower(leader);
        from = follower(next);
        net.lost = is_tell;
        replica_read(from->replica, 7);
        pass(10 * MS);
        net.lost = NULL;
        CHECK_EQ(replica_transfer(leader->replica, id_of(next), net.now), 0);
        pass(100 * MS);
        CHECK(replica_healthy(next->replica, net.now));
        CHECK_EQ(net.n_read, 1);
        CHECK_EQ(slow_reads(from), 0);
        stop();
}

static void tell(struct net_node *to, const struct net_node *from, uint64_t id)
{
        cleanup_(buf_fini) struct buf b = {0};

        buf_add_u8(&b, FRAME_READ_TELL);
        buf_add_u64(&b, id);
        buf_add_u64(&b, 1);
        buf_add_u64(&b, 1);
        CHECK_EQ(replica_input(to->replica, id_of(from), (struct view){b.data, buf_len(&b)},
                               net.now),
                 0);
}

/* I8: the leader may answer an earlier life of this process, or answer twice. */
TEST(an_answer_is_taken_once_and_by_the_life_that_asked)
{
        struct net_node *leader, *from;

        start();
        leader = elect();
        from = follower(leader);
        net.lost = is_tell;
        replica_read(from->replica, 1000);
        replica_read(from->replica, 1001);
        pass(10 * MS);
        tell(from, leader, 999);
        tell(from, leader, 1002);
        CHECK_EQ(net.n_read, 0);
        tell(from, leader, 1000);
        tell(from, leader, 1000);
        CHECK_EQ(net.n_read, 1);
        tell(from, leader, 1001);
        CHECK_EQ(net.n_read, 2);
        stop();
}

/* The last other voter is removed before it has confirmed that the leader still leads: the
 * reads that wait for that are answered, and later ones as well. */
TEST(reads_continue_when_the_last_other_voter_is_removed)
{
        struct net_node *leader, *other, *third;

        start();
        leader = elect();
        other = follower(leader);
        third = follower(other);
        replica_change_members(leader->replica, 1, REPLICA_REMOVE, id_of(third), NULL);
        pass(500 * MS);
        net.lost = is_pong;
        replica_read(leader->replica, 1);
        pass(100 * MS);
        CHECK_EQ(net.n_read, 0);
        replica_change_members(leader->replica, 2, REPLICA_REMOVE, id_of(other), NULL);
        pass(100 * MS);
        CHECK_EQ(net.n_read, 1);
        replica_read(leader->replica, 2);
        pass(100 * MS);
        CHECK_EQ(net.n_read, 2);
        stop();
}

/* The answer was lost. Another member at that URL is not meant. */
TEST(an_addition_that_is_asked_for_again_is_done)
{
        struct net_node *leader;

        start();
        leader = elect();
        for (unsigned i = 1; i <= 3; i++) {
                net.outcome = -1;
                replica_change_members(leader->replica, i, REPLICA_ADD_LEARNER, 4,
                                       "http://9:1");
                pass(100 * MS);
                CHECK_EQ(net.outcome, 0);
        }
        replica_change_members(leader->replica, 4, REPLICA_ADD_LEARNER, 5, "http://9:1");
        CHECK_EQ(net.outcome, REPLICA_E_EXISTS);
        replica_change_members(leader->replica, 5, REPLICA_ADD_LEARNER, 4, "http://9:2");
        CHECK_EQ(net.outcome, REPLICA_E_EXISTS);
        replica_change_members(leader->replica, 6, REPLICA_ADD, 4, "http://9:1");
        CHECK_EQ(net.outcome, REPLICA_E_EXISTS);
        stop();
}

/* It counted as notified, and learned of the commit only with the next heartbeat. */
TEST(a_follower_whose_link_was_full_learns_of_the_commit_once_there_is_room)
{
        struct net_node *leader, *one;

        start();
        leader = elect();
        one = follower(leader);
        net.delay = MS;
        CHECK_EQ(propose(leader, 10), 0);
        pass(2 * MS);
        one->full = true;
        pass(8 * MS);
        CHECK_EQ(leader->applied, 1);
        CHECK_EQ(one->applied, 0);
        one->full = false;
        pass(3 * MS);
        CHECK_EQ(one->applied, 1);
        stop();
}

static struct net_node *led, *leads;

static bool is_for_who_follows(const struct frame *f)
{
        return f->to == id_of(led) && replica_leader(led->replica) == id_of(leads);
}

/* Another one leads by the time that it would have been given up, and is silent for a moment.
 */
TEST(a_link_to_a_former_leader_that_broke_is_no_reason_to_give_up_the_new_one)
{
        struct net_node *former;

        start();
        former = elect();
        led = follower(former);
        leads = follower(led);
        net.lost = is_for_who_follows;
        replica_peer_down(led->replica, id_of(former), net.now);
        CHECK_EQ(replica_transfer(former->replica, id_of(leads), net.now), 0);
        pass(50 * MS);
        CHECK_EQ(replica_leader(led->replica), id_of(leads));
        pass(50 * MS);
        CHECK_EQ(replica_leader(led->replica), id_of(leads));
        stop();
}

static uint64_t away;

static bool is_of_one_away(const struct frame *f)
{
        return f->from == away || f->to == away;
}

static bool is_listed(const struct net_node *n, uint64_t id)
{
        return replica_position(n->replica, id) >= 0;
}

/* A follower repeats a request every 300 ms until it is answered, so that one may arrive after
 * the answer. A client that got the error that a member was not added must not find it later,
 * and who removed it must not find it again. */
TEST(a_change_that_was_answered_is_not_made_when_it_arrives_again)
{
        struct net_node *leader, *from, *third;

        start();
        leader = elect();
        from = follower(leader);
        third = follower(from);
        pass(1000 * MS);
        away = id_of(third);
        net.lost = is_of_one_away;
        pass(1000 * MS);
        replica_change_members(from->replica, 100, REPLICA_ADD, 4, "http://4:1");
        pass(10 * MS);
        CHECK_EQ(net.outcome, REPLICA_E_UNHEALTHY);
        for (unsigned i = 0; i < 2 * 99; i++) { /* two replicas have others that wait */
                replica_change_members(i % 2 ? from->replica : leader->replica, 1000 + i,
                                       REPLICA_PROMOTE, 77, "");
                pass(MS);
                CHECK_EQ(net.outcome, REPLICA_E_UNKNOWN);
        }
        net.lost = NULL;
        pass(10 * NSEC_PER_SEC);
        net.outcome = -1;
        replica_change_members(from->replica, 100, REPLICA_ADD, 4, "http://4:1");
        pass(1000 * MS);
        CHECK_EQ(net.outcome, REPLICA_E_UNHEALTHY);
        CHECK(!is_listed(leader, 4));

        replica_change_members(from->replica, 101, REPLICA_ADD, 4, "http://4:1");
        pass(1000 * MS);
        CHECK_EQ(net.outcome, 0);
        CHECK(is_listed(leader, 4));
        replica_change_members(from->replica, 102, REPLICA_REMOVE, 4, "");
        pass(1000 * MS);
        CHECK_EQ(net.outcome, 0);
        CHECK(!is_listed(leader, 4));
        replica_change_members(from->replica, 101, REPLICA_ADD, 4, "http://4:1");
        pass(1000 * MS);
        CHECK(!is_listed(leader, 4));
        /* Another replica may use the same number. */
        replica_change_members(third->replica, 101, REPLICA_ADD, 4, "http://4:1");
        pass(1000 * MS);
        CHECK(is_listed(leader, 4));
        stop();
}

static bool is_any(const struct frame *f)
{
        return f != NULL;
}

/* What is on its way arrives before: an answer must not take the new delay one way only. */
static void set_delay(nsec_t delay)
{
        deliver();
        net.delay = delay;
}

/* I1: a leader that has learned of a long round trip does not notice short outages. Once the
 * network is good again, it does. */
TEST(a_network_that_was_slow_hides_no_outage_later)
{
        struct net_node *leader;
        uint64_t outages;

        start();
        leader = elect();
        CHECK_EQ(replica_status(leader->replica).way, 0);
        set_delay(60 * MS);
        pass(12000 * MS);
        CHECK_EQ(replica_status(leader->replica).way, 120 * MS);
        net.delay = 40 * MS;
        pass(3000 * MS);
        CHECK_EQ(replica_status(leader->replica).way, 80 * MS);
        net.delay = 0;
        pass(3000 * MS);
        CHECK_EQ(replica_status(leader->replica).way, 0);
        outages = replica_counts(leader->replica)->outages;
        net.lost = is_any;
        pass(280 * MS);
        net.lost = NULL;
        pass(200 * MS);
        CHECK_EQ(replica_counts(leader->replica)->outages, outages + 1);
        stop();
}

/* I2: lease time stands still whenever three beacons in a row are answered late. Where some
 * answers are late and others just in time, a round trip is learned, too. */
TEST(a_round_trip_close_to_the_heartbeat_interval_is_learned)
{
        struct net_node *leader;
        nsec_t was;

        start();
        leader = elect();
        was = replica_lease_time(leader->replica, net.now).ns;
        for (unsigned i = 0; i < 20000 / 25; i++) {
                set_delay((nsec_t) rnd(22, 30) * MS);
                pass(25 * MS);
        }
        CHECK(replica_status(leader->replica).way > 0);
        CHECK(replica_lease_time(leader->replica, net.now).ns - was > 17 * NSEC_PER_SEC);
        CHECK_EQ(replica_counts(leader->replica)->leader_changes, 1);
        stop();
}

/* I2: a quick answer to the very first beacon of a term does not double the time. */
TEST(a_round_trip_is_learned_as_soon_after_an_election)
{
        struct net_node *leader;

        start();
        leader = elect();
        net.delay = 60 * MS;
        pass(2500 * MS);
        CHECK(replica_status(leader->replica).way >= 60 * MS);
        stop();
}

/* I2: of five replicas two are dead and a third is far away, so that a majority is as far as
 * that one. The quick answers of the other one do not hide that. */
TEST(a_majority_is_as_far_away_as_its_last_member)
{
        struct net_node *leader;
        nsec_t was;
        unsigned at;

        n_nodes = 5;
        start();
        leader = elect();
        at = (unsigned) (leader - net.node);
        for (unsigned i = 1; i < 5; i++) {
                struct net_node *n = &net.node[(at + i) % 5];

                if (i < 3)
                        n->replica = replica_free(n->replica);
                n->far = i == 3 ? 35 * MS : 0;
        }
        pass(4000 * MS);
        /* What was on its way when it went away has gone that far once, not twice. */
        CHECK(replica_status(leader->replica).way >= 35 * MS);
        was = replica_lease_time(leader->replica, net.now).ns;
        pass(4000 * MS);
        CHECK(replica_lease_time(leader->replica, net.now).ns - was >= 3900 * MS);
        stop();
        n_nodes = N;
}

/* Slow for 2.5 s, good for 2 s, and so on. Returns how much lease time that gives. */
static nsec_t slow_by_turns(const struct net_node *leader, unsigned turns)
{
        nsec_t was = replica_lease_time(leader->replica, net.now).ns;

        for (unsigned i = 0; i < turns; i++) {
                set_delay(30 * MS);
                pass(2500 * MS);
                net.delay = 0;
                pass(2000 * MS);
        }
        return replica_lease_time(leader->replica, net.now).ns - was;
}

/* I2: lease time stands still while a round trip is learned. In a network that is slow by turns
 * it is not learned and forgotten for ever. */
TEST(a_network_that_is_slow_by_turns_is_learned_a_few_times)
{
        struct net_node *leader;
        uint64_t outages;

        start();
        leader = elect();
        outages = replica_counts(leader->replica)->outages;
        CHECK(slow_by_turns(leader, 40) > 165 * NSEC_PER_SEC);
        CHECK(replica_counts(leader->replica)->outages <= outages + 5);
        /* It is forgotten all the same, later... */
        pass(600 * NSEC_PER_SEC);
        CHECK_EQ(replica_status(leader->replica).way, 0);
        /* ...and so is the patience that it took. */
        outages = replica_counts(leader->replica)->outages;
        slow_by_turns(leader, 1);
        CHECK_EQ(replica_status(leader->replica).way, 0);
        CHECK_EQ(replica_counts(leader->replica)->outages, outages + 1);
        stop();
}

static void proposed_text(struct net_node *leader, struct net_node *from, uint64_t life,
                          uint64_t n, const char *commands)
{
        cleanup_(buf_fini) struct buf f = {0};

        buf_add_u8(&f, FRAME_PROPOSE);
        buf_add_u64(&f, replica_status(leader->replica).term);
        buf_add_u64(&f, life);
        buf_add_u64(&f, n);
        buf_add_u8(&f, REPLICA_NORMAL);
        buf_add(&f, commands, strlen(commands));
        CHECK_EQ(replica_input(leader->replica, id_of(from),
                               (struct view){buf_head(&f), buf_len(&f)}, net.now),
                 0);
        pass(10 * MS);
}

static void proposed(struct net_node *leader, struct net_node *from, uint64_t life, uint64_t n)
{
        proposed_text(leader, from, life, n, "!");
}

/* A follower of a later version proposes what the leader does not know: that enters no log, and
 * it is acknowledged, so that it is not sent again and what comes behind it is accepted. */
TEST(a_command_that_the_leader_does_not_know_enters_no_log)
{
        struct net_node *leader, *from;
        unsigned acks;

        start();
        leader = elect();
        from = follower(leader);
        acks = net.sent[FRAME_PROPOSED];
        proposed_text(leader, from, 1001, 1, "!?");
        CHECK_EQ(leader->applied, 0);
        proposed(leader, from, 1001, 1);
        CHECK_EQ(leader->applied, 0);
        proposed(leader, from, 1001, 2);
        pass(100 * MS);
        CHECK_EQ(leader->applied, 1);
        CHECK_EQ(from->applied, 1);
        CHECK(net.sent[FRAME_PROPOSED] > acks);
        stop();
}

/* The leader is of a later version: its followers end, with a reason, and skip nothing (I4). */
TEST(an_entry_with_an_unknown_command_is_not_skipped)
{
        struct net_node *leader;

        start();
        leader = elect();
        for (int i = 0; i < N; i++)
                net.node[i].may_end = true;
        CHECK_EQ(replica_propose(leader->replica, "?", 1, REPLICA_NORMAL), 0);
        pass(200 * MS);
        CHECK(leader->ended);
        CHECK_EQ(memcmp(leader->why, "log entry 3 (term ", 18), 0);
        stop();
}

/* A follower starts again within a term, and a frame of its life before comes late: what its
 * new life repeats is still taken once, as is that frame. */
TEST(a_late_frame_of_an_earlier_life_opens_no_window)
{
        struct net_node *leader, *from;

        start();
        leader = elect();
        from = follower(leader);
        proposed(leader, from, 1001, 1);
        CHECK_EQ(leader->applied, 1);
        proposed(leader, from, 1002, 1);
        CHECK_EQ(leader->applied, 2);
        proposed(leader, from, 1001, 2);
        proposed(leader, from, 1002, 1);
        proposed(leader, from, 1001, 1);
        proposed(leader, from, 1001, 2);
        CHECK_EQ(leader->applied, 3);
        stop();
}

/* A late frame of an earlier life may be the first of that life that the leader receives, or
 * there may be several such lives: the present one is not shut out. */
TEST(a_late_frame_of_an_earlier_life_shuts_nobody_out)
{
        struct net_node *leader, *from;

        start();
        leader = elect();
        from = follower(leader);
        proposed(leader, from, 1004, 1);
        proposed(leader, from, 1003, 7);
        proposed(leader, from, 1002, 1);
        proposed(leader, from, 1004, 2);
        CHECK_EQ(leader->applied, 4);
        proposed(leader, from, 1003, 7);
        proposed(leader, from, 1004, 1);
        proposed(leader, from, 1004, 2);
        CHECK_EQ(leader->applied, 4);
        proposed(leader, from, 1004, 3);
        CHECK_EQ(leader->applied, 5);
        stop();
}

/* Acknowledgements ride along: under load there are far fewer of them than entries, and when
 * nothing is lost nothing is sent twice. */
TEST(acknowledgements_cost_no_frame_of_their_own)
{
        struct net_node *leader, *from;

        start();
        leader = elect();
        from = follower(leader);
        memset(net.sent, 0, sizeof(net.sent));
        for (unsigned i = 0; i < 500; i++) {
                CHECK_EQ(propose(from, 10), 0);
                pass(MS);
        }
        pass(300 * MS);
        CHECK_EQ(from->applied, 500);
        CHECK_EQ(net.sent[FRAME_PROPOSE], 500);
        CHECK(net.sent[FRAME_PROPOSED] <= 500);
        stop();
}

static bool to_followers(const struct frame *f)
{
        return buf_head(&f->bytes)[0] == FRAME_RAFT && buf_len(&f->bytes) > 1000;
}

/* The leader commits nothing for a while and its queue is full: refused frames are sent again
 * when there is room, and new commands get the error at once. */
TEST_BULK(a_full_leader_is_reported_and_tried_again)
{
        struct net_node *leader, *from;
        unsigned n = 0;
        int r = 0;

        start();
        leader = elect();
        from = follower(leader);
        net.lost = to_followers; /* no entry gets anywhere */
        for (unsigned i = 0; i < 300; i++) {
                r = propose(i % 2 ? leader : from, (size_t) 1 << 20);
                n += r == 0;
                pass(MS);
        }
        CHECK_EQ(r, -ENOBUFS);
        CHECK_EQ(propose(from, 10), -ENOBUFS);
        net.lost = NULL;
        for (unsigned i = 0; i < 100 && from->applied < n; i++)
                pass(100 * MS);
        CHECK_EQ(from->applied, n);
        CHECK_EQ(propose(from, 10), 0);
        stop();
}

static bool to_the_dead(const struct frame *f)
{
        return net.node[f->to - 1].full;
}

/* A replica is away, and entries are large: nothing is read from the log for it, the others are
 * not affected, and in the end it gets messages of bounded size. */
TEST(entries_wait_in_the_log_while_a_link_is_down)
{
        struct net_node *leader, *dead;
        uint64_t before, live;

        start();
        leader = elect();
        dead = follower(leader);
        live = follower(dead)->bytes;
        dead->full = true;
        net.lost = to_the_dead;
        before = dead->bytes;
        for (unsigned i = 0; i < 20; i++) {
                CHECK_EQ(propose(leader, 1000000), 0);
                pass(10 * MS);
        }
        pass(1000 * MS);
        CHECK_EQ(leader->applied, 20);
        CHECK(dead->bytes - before < 100000);
        CHECK(follower(dead)->bytes - live < 21000000);
        before = dead->bytes;
        dead->full = false;
        net.lost = NULL;
        replica_peer_up(leader->replica, id_of(dead), net.now);
        pass(200 * MS);
        CHECK_EQ(dead->applied, 20);
        CHECK(dead->bytes - before < 50000000); /* once, or nearly so */
        CHECK(dead->large < 1100000);
        stop();
}

/* A link that takes little at a time, with all that raft does meanwhile. */
TEST(a_slow_link_gets_all_in_order)
{
        struct net_node *leader, *slow;
        unsigned n = 0;

        start();
        leader = elect();
        slow = follower(leader);
        for (unsigned i = 0; i < 500; i++) {
                slow->full = rnd(0, 3) != 0;
                n += propose(rnd(0, 1) ? leader : follower(slow), rnd(1, 100000)) == 0;
                pass((nsec_t) rnd(1, 10) * MS);
        }
        slow->full = false;
        pass(500 * MS);
        CHECK_EQ(n, 500);
        for (unsigned i = 0; i < N; i++) {
                CHECK_EQ(net.node[i].applied, n);
                CHECK_EQ(net.node[i].snaps, 0);
        }
        CHECK(slow->large < 1200000);
        stop();
}

/* Renewals go ahead of other commands, but not of entries. Two links carry about 64 KiB in 50
 * ms. */
TEST(entries_on_their_way_to_a_slow_majority_are_bounded_in_bytes)
{
        struct net_node *leader;
        size_t most = 0;
        unsigned n = 0;

        start();
        leader = elect();
        net.delay = 50 * MS;
        for (unsigned i = 0; i < N; i++)
                net.node[i].pipe = 64 << 10;
        for (unsigned i = 0; i < 2000 && leader->applied < 200; i++) {
                const struct replica *r = leader->replica;

                n += n < 200 && propose(leader, 60000) == 0;
                pass(5 * MS);
                if (i > 200)
                        most = max_of(most, log_bytes(&r->log, replica_status(r).commit + 1,
                                                      log_last(&r->log)));
        }
        CHECK_EQ(n, 200);
        CHECK_EQ(leader->applied, n);
        CHECK(most > 0 && most <= 1000000);
        stop();
}

/* No snapshot is due on disk, and a replica is away; the log in memory is bounded all the same,
 * and so it gets a snapshot. */
TEST(the_log_in_memory_is_bounded_in_bytes)
{
        struct net_node *leader, *dead;
        unsigned n = 0;

        start_with(1000000);
        leader = elect();
        dead = follower(leader);
        dead->full = true;
        net.lost = to_the_dead;
        for (unsigned i = 0; i < 200; i++) {
                n += propose(leader, 20000) == 0;
                pass(2 * MS);
                CHECK(replica_status(leader->replica).log_bytes < 2000000);
                CHECK(replica_status(follower(dead)->replica).log_bytes < 2000000);
        }
        pass(200 * MS);
        CHECK_EQ(n, 200);
        CHECK_EQ(follower(dead)->applied, n);
        dead->full = false;
        net.lost = NULL;
        replica_peer_up(leader->replica, id_of(dead), net.now);
        for (unsigned i = 0; i < 50 && dead->applied < n; i++)
                pass(100 * MS);
        CHECK_EQ(dead->applied, n);
        CHECK_EQ(dead->snaps, 1);
        CHECK_EQ(propose(dead, 10), 0);
        pass(60 * MS); /* a heartbeat */
        CHECK_EQ(dead->applied, n + 1);
        stop();
}

static uint64_t late_id;

/* Its way back is lost for longer than a heartbeat, time and again. */
static bool answers_at_times(const struct frame *f)
{
        return buf_head(&f->bytes)[0] == FRAME_RAFT &&
               buf_head(&f->bytes)[1] == RAFT_APPEND_ENTRIES_RESULT && f->from == late_id &&
               net.now.ns / (80 * MS) % 2 == 0;
}

/* The log in memory is at its bound, and moves on while a snapshot is encoded for a replica
 * that needs one: raft must not hear of another one that it would ask for instead. */
TEST(the_log_does_not_overtake_a_snapshot_that_is_waited_for)
{
        struct net_node *leader, *dead;
        unsigned n = 0, i;

        start_with(1000000);
        slices = 100;
        leader = elect();
        dead = follower(leader);
        late_id = id_of(dead);
        dead->full = true;
        net.lost = to_the_dead;
        for (i = 0; i < 200; i++) {
                n += propose(leader, 20000) == 0;
                pass(2 * MS);
        }
        dead->full = false;
        net.lost = answers_at_times;
        replica_peer_up(leader->replica, id_of(dead), net.now);
        for (i = 0; i < 500 && dead->snaps == 0; i++) {
                n += propose(leader, 20000) == 0;
                pass(4 * MS);
        }
        CHECK(i < 250);
        net.lost = NULL;
        pass(1000 * MS);
        CHECK_EQ(dead->applied, n);
        CHECK(dead->snaps <= 2); /* one more, where the answer to it was among the lost */
        stop();
}

/* One replica lacks so much that it needs a snapshot, which is encoded in @in slices of @size
 * bytes and one of @n. Returns the leader. */
static struct net_node *lag_by(size_t n, unsigned in, size_t size, struct net_node **ret_dead)
{
        struct net_node *leader;

        start_with(1000000);
        padding = n;
        slices = in;
        slice_size = size;
        leader = elect();
        *ret_dead = follower(leader);
        (*ret_dead)->full = true;
        net.lost = to_the_dead;
        for (unsigned i = 0; i < 200; i++) {
                CHECK_EQ(propose(leader, 20000), 0);
                pass(2 * MS);
        }
        (*ret_dead)->full = false;
        return leader;
}

static struct net_node *lag_behind(size_t n, unsigned in, struct net_node **ret_dead)
{
        return lag_by(n, in, 0, ret_dead);
}

/* Encoding takes longer than the log has room for. Then the log is allowed as many bytes as the
 * snapshot has, also if none was ever written to the disk; it began anew for ever. */
TEST(a_snapshot_that_takes_long_to_encode_is_sent_at_the_second_attempt)
{
        struct net_node *leader, *dead;
        unsigned i;

        leader = lag_behind(16000000, 1000 /* 2 s */, &dead);
        net.lost = NULL;
        replica_peer_up(leader->replica, id_of(dead), net.now);
        for (i = 0; i < 3000 && dead->snaps == 0; i++) {
                CHECK_EQ(propose(leader, 20000), 0);
                pass(4 * MS);
        }
        CHECK(i < 1500);
        stop();
}

/* While a snapshot is installed, the log keeps more than else for the replica: it is needed
 * until the replica has caught up, or the next snapshot would help no more than this one. */
TEST(what_is_kept_for_a_snapshot_is_kept_until_the_replica_has_caught_up)
{
        struct net_node *leader, *late;
        unsigned n = 200, installs = 0;

        leader = lag_behind(1000000, 0, &late);
        late->far = 20 * MS;
        late->pipe = 200000; /* 10 MB/s */
        net.lost = NULL;
        replica_peer_up(leader->replica, id_of(late), net.now);
        for (unsigned i = 0; i < 2000; i++, n++) { /* 5 MB/s */
                installs = replica_installs(late->replica) ? installs + 1 : 0;
                late->stuck = installs > 0 && installs < 100; /* 400 ms, thus 2 MB */
                CHECK_EQ(propose(leader, 20000), 0);
                pass(4 * MS);
        }
        CHECK_EQ(late->snaps, 1);
        pass(1000 * MS);
        CHECK_EQ(late->applied, n);
        stop();
}

static unsigned last_parts; /* of snapshots, that something is done to */

/* Of a part of a snapshot: where it begins, in how many bytes, and how many it brings. */
static bool read_part(const struct frame *f, uint64_t *ret_at, uint64_t *ret_total,
                      size_t *ret_len)
{
        struct view v = {buf_head(&f->bytes), buf_len(&f->bytes)};
        uint64_t n[4];
        uint8_t type;

        if (view_u8(&v, &type) < 0 || type != FRAME_SNAPSHOT)
                return false;
        for (unsigned i = 0; i < 4; i++)
                CHECK_EQ(view_u64(&v, &n[i]), 0);
        *ret_total = n[2];
        *ret_at = n[3];
        *ret_len = v.len;
        return true;
}

static bool is_last_part(const struct frame *f)
{
        uint64_t at, total;
        size_t len;

        return read_part(f, &at, &total, &len) && at + len == total && last_parts > 0 &&
               last_parts-- > 0;
}

static bool is_damaged(const struct frame *f)
{
        uint8_t *p = (uint8_t *) (uintptr_t) buf_head(&f->bytes);

        if (is_last_part(f))
                p[buf_len(&f->bytes) - 10] ^= 1;
        return false;
}

static bool is_part(const struct frame *f)
{
        return buf_head(&f->bytes)[0] == FRAME_SNAPSHOT;
}

/* Of two parts under way the first is acknowledged, and the second, the last one of all, is
 * lost: nothing reports that the link broke. */
TEST(the_last_part_of_a_snapshot_is_sent_again)
{
        struct net_node *dead, *leader = lag_behind(1500000, 0, &dead);

        last_parts = 1;
        net.lost = is_last_part;
        replica_peer_up(leader->replica, id_of(dead), net.now);
        for (unsigned i = 0; i < 20 && dead->snaps == 0; i++)
                pass(100 * MS);
        CHECK_EQ(last_parts, 0);
        CHECK_EQ(dead->snaps, 1);
        pass(200 * MS);
        CHECK_EQ(dead->applied, 200);
        stop();
}

/* Heartbeats wait behind a part on the same link. */
TEST(a_part_of_a_snapshot_is_no_larger_than_what_its_link_takes)
{
        struct net_node *dead, *leader = lag_behind(1500000, 0, &dead);

        net.lost = NULL;
        dead->pipe = 40000;
        dead->large = 0;
        replica_peer_up(leader->replica, id_of(dead), net.now);
        for (unsigned i = 0; i < 100 && dead->snaps == 0; i++)
                pass(20 * MS);
        CHECK_EQ(dead->snaps, 1);
        CHECK(dead->large <= 41000);
        dead->pipe = 0;
        pass(200 * MS);
        CHECK_EQ(dead->applied, 200);
        stop();
}

/* A snapshot that took long, because the link was away, is damaged on its way: the next one is
 * not delayed as long again, as if this one were being installed. */
TEST(after_a_damaged_snapshot_another_one_is_sent_soon)
{
        struct net_node *dead, *leader = lag_behind(1500000, 0, &dead);

        net.lost = is_part;
        replica_peer_up(leader->replica, id_of(dead), net.now);
        pass(4000 * MS);
        last_parts = 1;
        net.lost = is_damaged;
        replica_peer_up(leader->replica, id_of(dead), net.now);
        for (unsigned i = 0; i < 10 && dead->snaps == 0; i++)
                pass(100 * MS);
        CHECK_EQ(last_parts, 0);
        CHECK_EQ(dead->snaps, 1);
        pass(200 * MS);
        CHECK_EQ(dead->applied, 200);
        stop();
}

static unsigned firsts; /* first parts of snapshots that were sent */

static bool count_firsts(const struct frame *f)
{
        uint64_t at, total;
        size_t len;

        firsts += read_part(f, &at, &total, &len) && at == 0;
        return false;
}

/* From the first part on until it is installed, so that a probe need not wait to say no. */
TEST(a_replica_reports_that_it_awaits_a_snapshot)
{
        struct net_node *dead, *leader = lag_behind(1500000, 0, &dead);

        CHECK(!replica_awaits_snapshot(dead->replica));
        last_parts = UINT32_MAX;
        net.lost = is_last_part;
        replica_peer_up(leader->replica, id_of(dead), net.now);
        for (unsigned i = 0; i < 200 && !replica_awaits_snapshot(dead->replica); i++)
                pass(MS);
        CHECK(replica_awaits_snapshot(dead->replica));
        CHECK(!replica_installs(dead->replica));
        dead->stuck = true;
        net.lost = count_firsts;
        for (unsigned i = 0; i < 20 && !replica_installs(dead->replica); i++)
                pass(100 * MS);
        CHECK(replica_installs(dead->replica));
        CHECK(replica_awaits_snapshot(dead->replica));
        dead->stuck = false;
        for (unsigned i = 0; i < 20 && dead->snaps == 0; i++)
                pass(100 * MS);
        CHECK_EQ(dead->snaps, 1);
        CHECK(!replica_awaits_snapshot(dead->replica));
        stop();
}

/* 20 MB in 40 slices, over a link of 40 ms and 10 MB/s. Returns the leader's end of it. */
static struct outgoing *send_slowly(struct net_node **ret_leader, struct net_node **ret_late)
{
        struct net_node *leader = lag_by(0, 40, (size_t) 512 << 10, ret_late);

        (*ret_late)->far = 20 * MS;
        (*ret_late)->pipe = 400000;
        net.lost = NULL;
        replica_peer_up(leader->replica, id_of(*ret_late), net.now);
        *ret_leader = leader;
        for (struct outgoing *o = leader->replica->outgoing;; o++) {
                CHECK(o < leader->replica->outgoing + REPLICA_PEERS_MAX);
                if (o->peer == id_of(*ret_late))
                        return o;
        }
}

TEST(of_a_snapshot_that_is_sent_only_what_is_under_way_is_in_memory)
{
        struct net_node *leader, *late;
        struct outgoing *o = send_slowly(&leader, &late);
        size_t most = 0;

        for (unsigned i = 0; i < 5000 && late->snaps == 0; i++) {
                most = max_of(most, buf_len(&o->bytes));
                pass(MS);
        }
        CHECK_EQ(late->snaps, 1);
        CHECK(most > slice_size);
        CHECK(most < 10 * slice_size);
        pass(1000 * MS);
        CHECK_EQ(late->applied, 200);
        stop();
}

/* What it had acknowledged is not in the leader's memory any more. */
TEST(a_replica_that_restarts_while_it_gets_a_snapshot_is_sent_a_newer_one)
{
        struct net_node *leader, *late;
        struct outgoing *o = send_slowly(&leader, &late);

        while (o->acked < 10 * slice_size)
                pass(MS);
        CHECK_EQ(propose(leader, 1000), 0);
        late->replica = replica_free(late->replica);
        late->applied = 0;
        start_node(late, 1000000);
        for (unsigned i = 0; i < 5000 && late->snaps == 0; i++)
                pass(MS);
        CHECK_EQ(late->snaps, 1);
        CHECK_EQ(late->loaded, 201);
        stop();
}

/* While a snapshot was sent more was compacted than could be kept, and the same would happen to
 * the next one. */
TEST(a_state_that_changes_too_much_is_encoded_before_it_is_sent)
{
        struct net_node *leader, *late;
        struct outgoing *o = send_slowly(&leader, &late);
        bool before = false;

        stale_once = true;
        for (unsigned i = 0; i < 10000 && late->snaps == 0; i++) {
                CHECK_EQ(o->in_haste, !stale_once && o->state != OUTGOING_NONE);
                before = before || buf_len(&o->bytes) > 30 * slice_size;
                pass(MS);
        }
        CHECK(before);
        CHECK_EQ(late->snaps, 1);
        stop();
}

/* The one that lags can be reached, and its disk ends nothing that it begins. */
static void write_for_long(struct net_node *leader, struct net_node *dead)
{
        firsts = 0;
        dead->stuck = true;
        net.lost = count_firsts;
        replica_peer_up(leader->replica, id_of(dead), net.now);
}

/* The transfer was short, but the disk is slow: no other snapshot is sent meanwhile, and the
 * entries after it are still there when it is done. */
TEST(a_snapshot_that_is_written_for_long_is_waited_for)
{
        struct net_node *dead, *leader = lag_behind(100000, 0, &dead);

        write_for_long(leader, dead);
        for (unsigned i = 0; i < 100; i++) {
                CHECK_EQ(propose(leader, 10000), 0);
                pass(50 * MS);
        }
        CHECK_EQ(firsts, 1);
        dead->stuck = false;
        pass(300 * MS);
        CHECK_EQ(dead->applied, 300);
        CHECK_EQ(dead->snaps, 1);
        CHECK_EQ(firsts, 1);
        stop();
}

/* The log of the leader outgrows its bound while a replica writes a snapshot, so the replica
 * will need a later one. It may end all the same, or a slow disk would begin again and again.
 */
TEST(a_snapshot_that_is_written_is_not_replaced_by_a_later_one)
{
        struct net_node *dead, *leader = lag_behind(100000, 0, &dead);

        write_for_long(leader, dead);
        pass(500 * MS);
        for (unsigned i = 0; i < 500; i++) {
                CHECK_EQ(propose(leader, 20000), 0);
                pass(50 * MS);
        }
        CHECK_EQ(firsts, 1);
        dead->stuck = false;
        for (unsigned i = 0; i < 40 && dead->applied < 700; i++)
                pass(100 * MS);
        CHECK_EQ(dead->applied, 700);
        CHECK_EQ(dead->snaps, 2);
        stop();
}

/* The network was slow, so a snapshot took 6 s to arrive, and while it was being written the
 * log outgrew its bound: the replica needs another one. It gets that once the first is
 * installed, not after as much time as that took to arrive. */
TEST(after_a_snapshot_that_took_long_the_next_one_is_sent_soon)
{
        struct net_node *dead, *leader = lag_behind(4000000, 0, &dead);

        write_for_long(leader, dead);
        dead->far = 100 * MS;
        for (unsigned i = 0; i < 200 && !replica_installs(dead->replica); i++)
                pass(100 * MS);
        CHECK(replica_installs(dead->replica));
        dead->far = 0;
        for (unsigned i = 0; i < 300; i++) {
                CHECK_EQ(propose(leader, 20000), 0);
                pass(2 * MS);
        }
        CHECK_EQ(firsts, 1);
        dead->stuck = false;
        pass(1000 * MS);
        CHECK_EQ(dead->snaps, 2);
        CHECK_EQ(dead->applied, 500);
        stop();
}

/* A snapshot that was requested, to defragment, releases the room that a log of large entries
 * took: in memory and on disk. */
TEST(a_requested_snapshot_releases_the_log)
{
        struct net_node *leader;

        start();
        leader = elect();
        for (unsigned i = 0; i < 300; i++) {
                CHECK_EQ(propose(leader, 100000), 0);
                pass(5 * MS);
        }
        CHECK(replica_disk_bytes(leader->replica) > 30000000);
        replica_want_snapshot(leader->replica);
        pass(500 * MS);
        CHECK(replica_status(leader->replica).log_bytes < 2 << 20);
        CHECK(replica_disk_bytes(leader->replica) < 20 << 20); /* two segments */
        CHECK_EQ(propose(leader, 10), 0);
        pass(60 * MS); /* a heartbeat */
        for (unsigned i = 0; i < N; i++) {
                CHECK_EQ(net.node[i].applied, 301);
                CHECK_EQ(net.node[i].snaps, 0);
        }
        stop();
}

/* Renewals, expiries and the like have a bound too, at whoever cannot get rid of them. */
TEST(what_is_urgent_has_a_bound)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct net_node *leader, *from;
        unsigned sent = 0;
        int r = 0;

        start();
        leader = elect();
        for (unsigned i = 0; i < 100000; i++)
                buf_add_u8(&b, '.');
        net.lost = to_followers;
        for (unsigned i = 0; i < 2000 && r == 0; i++) {
                r = replica_propose(leader->replica, buf_head(&b), buf_len(&b), REPLICA_URGENT);
                if (i % 10 == 0)
                        turn();
        }
        CHECK_EQ(r, -ENOBUFS);

        /* A follower keeps what it has sent until that is acknowledged. */
        net.lost = acknowledgements;
        from = follower(leader);
        for (r = 0; r == 0; sent += r == 0) {
                r = replica_propose(from->replica, buf_head(&b), buf_len(&b), REPLICA_URGENT);
                turn();
        }
        CHECK_EQ(r, -ENOBUFS);
        CHECK_EQ(sent, (8 << 20) / 100000);
        stop();
}

/* As member @from, whose frame of proposals has @n bytes of commands. */
static int proposed_bytes(struct net_node *leader, struct net_node *from, size_t n)
{
        cleanup_(buf_fini) struct buf f = {0};
        uint8_t *p;

        buf_add_u8(&f, FRAME_PROPOSE);
        buf_add_u64(&f, replica_status(leader->replica).term);
        buf_add_u64(&f, 1001);
        buf_add_u64(&f, n);
        buf_add_u8(&f, REPLICA_NORMAL);
        p = buf_reserve(&f, n);
        CHECK(p);
        memset(p, '.', n);
        p[0] = '!';
        buf_commit(&f, n);
        return replica_input(leader->replica, id_of(from),
                             (struct view){buf_head(&f), buf_len(&f)}, net.now);
}

/* No link takes a frame of more than FRAME_MAX. A hostile member fills one with commands, and
 * the leader's entry of them, with the urgent commands that go along, is sent in one frame,
 * too: if that were too large, no follower would ever get it, nor anything after it. */
TEST_BULK(what_is_proposed_fits_into_a_frame_to_the_followers)
{
        static const size_t sizes[] = {FRAME_MAX - 26, (size_t) 72 << 20, (size_t) 71 << 20};
        static const uint8_t urgent[8 << 20];
        struct net_node *leader, *from;
        int r = 0;

        start();
        leader = elect();
        from = follower(leader);
        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                r = proposed_bytes(leader, from, sizes[i]);
                CHECK(r == 0 || r == -EBADMSG);
                if (r < 0)
                        CHECK_EQ(propose(leader, sizes[i]), -ENOBUFS);
                CHECK_EQ(replica_propose(leader->replica, urgent, sizeof(urgent),
                                         REPLICA_URGENT),
                         0);
                pass(100 * MS);
                CHECK(from->large <= FRAME_MAX);
        }
        CHECK_EQ(r, 0);
        CHECK_EQ(from->applied, 1);
        stop();
}

static unsigned sent_by_a_flush(struct net_node *n)
{
        unsigned before = net.sent[FRAME_RAFT];

        replica_flush(n->replica, net.now);
        return net.sent[FRAME_RAFT] - before;
}

/* It is a request that the settings allow. */
TEST_BULK(a_command_of_any_size_fits_into_an_empty_queue)
{
        struct net_node *leader, *from;

        start();
        leader = elect();
        from = follower(leader);
        CHECK_EQ(propose(from, REPLICA_QUEUED_MAX + 100), 0);
        CHECK_EQ(propose(from, 10), -ENOBUFS);
        pass(100 * MS);
        CHECK_EQ(from->applied, 1);
        CHECK_EQ(propose(leader, REPLICA_QUEUED_MAX + 100), 0);
        pass(100 * MS);
        CHECK_EQ(from->applied, 2);
        stop();
}

/* A busy leader makes fewer and larger entries; one that is not busy waits for nothing. */
TEST(commands_gather_while_each_turn_brings_more)
{
        struct net_node *leader;
        unsigned before;

        start();
        leader = elect();
        pass(200 * MS);
        CHECK_EQ(propose(leader, 1), 0);
        CHECK_EQ(sent_by_a_flush(leader), 0);
        CHECK_EQ(replica_next(leader->replica).ns,
                 net.now.ns); /* the next turn comes at once */
        CHECK_EQ(sent_by_a_flush(leader), N - 1);
        CHECK(boot_before(net.now, replica_next(leader->replica)));
        pass(10 * MS);
        before = leader->entries;
        for (unsigned i = 0; i < 10; i++) {
                CHECK_EQ(propose(leader, 1), 0);
                CHECK_EQ(sent_by_a_flush(leader), 0);
        }
        CHECK_EQ(sent_by_a_flush(leader), N - 1);
        pass(10 * MS);
        CHECK_EQ(leader->applied, 11);
        CHECK_EQ(leader->entries - before, 1);
        stop();
}

/* Without memory a command is refused, and that is all: those before and after it are not. */
TEST(a_command_that_finds_no_memory_is_forgotten)
{
        struct net_node *leader;
        unsigned refused;

        start();
        leader = elect();
        for (unsigned urgent = 0; urgent < 2; urgent++) {
                refused = leader->applied = 0;
                for (unsigned i = 0; i < 40; i++) {
                        cleanup_(buf_fini) struct buf b = {0};

                        buf_add_u8(&b, '!');
                        for (unsigned k = 0; k < 1000; k++)
                                buf_add_u8(&b, '.');
                        if (i % 8 == 0)
                                nomem_after(i / 8 % 2); /* of a batch, and of its bytes */
                        refused += replica_propose(leader->replica, buf_head(&b), buf_len(&b),
                                                   urgent ? REPLICA_URGENT : REPLICA_NORMAL) ==
                                   -ENOMEM;
                        if (i % 8 == 0)
                                (void) nomem_end();
                        replica_flush(leader->replica, net.now);
                }
                pass(20 * MS);
                CHECK(refused > 0);
                CHECK_EQ(leader->applied, 40 - refused);
        }
        stop();
}

/* ...even if each is larger than what is gathered in an entry. */
TEST(a_large_command_that_finds_no_memory_is_in_nobodys_way)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct net_node *leader;

        start();
        leader = elect();
        buf_add_u8(&b, '!');
        while (buf_len(&b) < (3 << 19))
                buf_add(&b, "................", 16);
        nomem_after(1); /* of the bytes of a batch */
        CHECK_EQ(replica_propose(leader->replica, buf_head(&b), buf_len(&b), REPLICA_NORMAL),
                 -ENOMEM);
        CHECK(nomem_end());
        CHECK_EQ(replica_propose(leader->replica, buf_head(&b), buf_len(&b), REPLICA_NORMAL),
                 0);
        pass(100 * MS);
        CHECK_EQ(leader->applied, 1);
        stop();
}

TEST(commands_do_not_gather_for_long)
{
        struct net_node *leader;
        unsigned before;

        start();
        leader = elect();
        before = leader->entries;
        for (unsigned i = 0; i < 100; i++) {
                CHECK_EQ(propose(leader, 1), 0);
                pass(MS);
        }
        pass(10 * MS);
        CHECK_EQ(leader->applied, 100);
        CHECK_EQ(leader->entries - before, 20); /* at 0, 1, 2, 3 and 4 ms each */
        stop();
}

/* They would be lost with the leadership. */
TEST(what_gathers_is_sent_before_the_leader_steps_down)
{
        struct net_node *leader;
        unsigned before;

        start();
        leader = elect();
        CHECK_EQ(propose(leader, 1), 0);
        CHECK_EQ(sent_by_a_flush(leader), 0);
        before = leader->applied;
        CHECK(replica_step_down(leader->replica, net.now));
        pass(100 * MS);
        CHECK_EQ(leader->applied - before, 1);
        stop();
}

/* What fills an entry waits for no more, and what is urgent for nothing. */
TEST(full_entries_and_urgent_commands_do_not_gather)
{
        struct net_node *leader;

        start();
        leader = elect();
        CHECK_EQ(propose(leader, 1), 0);
        CHECK_EQ(sent_by_a_flush(leader), 0);
        CHECK_EQ(propose(leader, 1), 0);
        CHECK_EQ(replica_propose(leader->replica, "!", 1, REPLICA_URGENT), 0);
        CHECK_EQ(sent_by_a_flush(leader), N - 1);
        pass(10 * MS);
        CHECK_EQ(leader->applied, 3);
        CHECK_EQ(propose(leader, 600000), 0);
        CHECK_EQ(propose(leader, 600000), 0);
        CHECK(sent_by_a_flush(leader) >= N - 1);
        pass(10 * MS);
        CHECK_EQ(leader->applied, 5);
        stop();
}

static uint64_t leader_id;
static bool entries_and_acks(const struct frame *f)
{
        return f->to != leader_id && (buf_head(&f->bytes)[0] == FRAME_RAFT ||
                                      buf_head(&f->bytes)[0] == FRAME_PROPOSED);
}
static bool entries_only(const struct frame *f)
{
        return f->to != leader_id && buf_head(&f->bytes)[0] == FRAME_RAFT;
}
/* A frame that was accepted is repeated while the leader is full: its follower does not stop
 * because of that. */
TEST_BULK(a_repeated_frame_at_a_full_leader_closes_nothing)
{
        struct net_node *leader, *from;
        uint64_t term;
        int r = 0;

        start();
        leader = elect();
        from = follower(leader);
        leader_id = id_of(leader);
        term = replica_status(leader->replica).term;
        net.lost = entries_and_acks;
        for (unsigned i = 0; i < 100; i++) {
                while (propose(leader, (1 << 20) - 16) == 0)
                        ;
                if (i % 10 == 0)
                        pass(MS);
        }
        CHECK_EQ(propose(from, 10), 0); /* accepted; its acknowledgement is lost, or late */
        pass(5 * MS);
        for (size_t n = 1 << 20; n > 0; n /= 2)
                while (propose(leader, n) == 0)
                        ;
        net.lost = entries_only;
        replica_peer_up(from->replica, id_of(leader), net.now); /* or 200 ms without an
                                                                 * acknowledgement */
        pass(5 * MS);
        net.lost = NULL;
        pass(10 * NSEC_PER_SEC);
        CHECK_EQ(replica_status(leader->replica).term, term);
        CHECK_EQ(replica_status(leader->replica).commit, replica_status(leader->replica).last);
        CHECK_EQ(propose(leader, 10), 0);
        for (unsigned i = 0; i < 60 && (r = propose(from, 10)) != 0; i++)
                pass(NSEC_PER_SEC);
        CHECK_EQ(r, 0);
        stop();
}

/* A compaction comes while a snapshot that was due is encoded; a follower lacks 4 MB. */
static void begin_again(bool stale)
{
        struct net_node *leader, *late;

        start();
        leader = elect();
        late = follower(leader);
        stale_once = false;
        for (unsigned i = 0; i < 660; i++) {
                CHECK_EQ(propose(leader, 100000), 0);
                pass(2 * MS);
        }
        stale_once = stale; /* the next one to encode gets -ESTALE */
        late->full = true;
        net.lost = to_the_dead;
        for (unsigned i = 0; i < 40; i++) {
                CHECK_EQ(propose(leader, 100000), 0);
                pass(2 * MS);
        }
        pass(100 * MS);
        CHECK(!stale_once);
        late->full = false;
        net.lost = NULL;
        replica_peer_up(leader->replica, id_of(late), net.now);
        pass(2000 * MS);
        CHECK_EQ(late->snaps, 0);
        stop();
}
TEST(a_restarted_snapshot_does_not_release_the_log)
{
        begin_again(false);
        begin_again(true);
}

/* The leader's own clients take all the room there is; a follower has one large frame
 * that is refused for it, and renewals. */
/* From now on @n is at an entry until its `turns` are over. */
static void hold_up(struct net_node *n)
{
        n->turns = 1000000;
        CHECK_EQ(replica_propose(n->replica, "~", 1, REPLICA_NORMAL), 0);
        pass(50 * MS);
        CHECK(n->turns < 1000000);
}

/* A follower that applies slowly, though its disk is fast, accepts no more than it may keep; it
 * does not slow the others down, and does not stand for election. */
TEST(what_is_not_applied_yet_is_bounded_in_bytes)
{
        struct net_node *leader, *slow, *other;
        unsigned n = 0;
        uint64_t term;

        start_with(1000000);
        leader = elect();
        slow = follower(leader);
        other = follower(slow);
        term = replica_status(leader->replica).term;
        hold_up(slow);
        for (; n < 5000; n++) {
                CHECK_EQ(propose(leader, 1000), 0);
                if (n % 10 == 0)
                        pass(MS);
                CHECK(replica_status(slow->replica).log_bytes < 2000000);
        }
        pass(100 * MS);
        CHECK_EQ(leader->applied, n);
        CHECK_EQ(other->applied, n);
        /* What is not kept for it arrives as a snapshot. */
        CHECK(slow->applied == 0 || slow->snaps > 0);
        slow->turns = 0;
        pass(1000 * MS);
        CHECK_EQ(slow->applied, n);
        CHECK_EQ(replica_status(leader->replica).term, term);
        stop();
}

/* A leader that applies slowly keeps proposals in the queue; past its limit clients get an
 * error. */
TEST(a_leader_that_applies_slowly_takes_no_more)
{
        struct net_node *leader;
        unsigned n = 0;

        start_with(1000000);
        leader = elect();
        hold_up(leader);
        for (; n < 60; n++) {
                CHECK_EQ(propose(leader, 1000000), 0);
                pass(MS);
                CHECK(replica_status(leader->replica).log_bytes < 36 << 20);
        }
        leader->turns = 0;
        pass(1000 * MS);
        CHECK_EQ(leader->applied, n);
        CHECK_EQ(propose(leader, 1000), 0);
        stop();
}

/* An entry that takes several turns to apply: nothing after it is applied, and no snapshot
 * taken, before it is done; heartbeats continue, and nobody is deposed. */
TEST(an_entry_is_applied_in_slices)
{
        struct net_node *n;
        struct replica *r;
        uint64_t applied, term;

        start();
        n = elect();
        r = n->replica;
        pass(200 * MS);
        applied = replica_status(r).applied;
        term = replica_status(r).term;
        n->turns = 3000;
        CHECK_EQ(replica_propose(r, "~!", 2, REPLICA_NORMAL), 0);
        pass(20 * MS);
        CHECK_EQ(propose(n, 10), 0);
        replica_want_snapshot(r);
        pass(2 * NSEC_PER_SEC);
        CHECK(n->turns > 0 && n->turns < 1000);
        CHECK_EQ(n->applied, 0);
        CHECK_EQ(n->saved, 0);
        CHECK_EQ(replica_status(r).applied, applied);
        CHECK(replica_status(r).commit >= applied + 2);
        CHECK(!boot_before(net.now, replica_next(r)));
        CHECK_EQ(follower(n)->applied, 2); /* it was done with it at once */
        pass(2 * NSEC_PER_SEC);
        CHECK_EQ(n->turns, 0);
        CHECK_EQ(n->applied, 2);
        CHECK_EQ(n->saved, 1); /* before the one behind it had its turn */
        CHECK_EQ(replica_status(r).applied, applied + 2);
        CHECK_EQ(replica_status(r).term, term);
        CHECK(replica_status(r).leader);
        stop();
}

TEST_BULK(renewals_go_on_beside_a_frame_that_is_refused)
{
        struct net_node *leader, *from;
        static const uint8_t small[1000];
        unsigned sent = 0, at_leader = 0;
        uint64_t term;

        start();
        leader = elect();
        from = follower(leader);
        term = replica_status(leader->replica).term;
        for (unsigned i = 0; i < 800; i++) {
                for (unsigned k = 0; k < N; k++) /* the links are slow */
                        net.node[k].full = &net.node[k] != leader && i % 50 > 2;
                while (replica_propose(leader->replica, small, sizeof(small), REPLICA_NORMAL) ==
                       0)
                        ;
                if (i == 10) {
                        static const uint8_t large[1 << 20];
                        CHECK_EQ(replica_propose(from->replica, large, 1000000, REPLICA_NORMAL),
                                 0);
                }
                if (i % 5 == 4 && replica_propose(from->replica, "!", 1, REPLICA_URGENT) == 0)
                        sent++;
                pass(MS);
                at_leader = leader->applied;
        }
        CHECK_EQ(replica_status(leader->replica).term, term);
        CHECK(sent > 150 && at_leader + 60 > sent); /* some are on their way */
        stop();
}

static int copy_file(const char *name, uint64_t size, void *arg)
{
        struct disk **d = arg; /* from, to */
        cleanup_(buf_fini) struct buf b = {0};

        CHECK_EQ(d[0]->ops->read(d[0], name, SIZE_MAX, &b), 0);
        CHECK_EQ(d[1]->ops->create(d[1], name, (size_t) size), 0);
        CHECK_EQ(d[1]->ops->write(d[1], name, 0, buf_head(&b), buf_len(&b)), 0);
        return 0;
}

/* An older copy of its directory is put back under a follower: the leader reports that, also to
 * the follower, which stops, and is not started again. A follower that was merely away is not
 * reported. With its vote, a replica that lacks acknowledged entries could lead (I5). */
TEST(a_replica_that_lost_acknowledged_entries_is_notified)
{
        struct store_error err = {""};
        struct net_node *leader, *f, *third;
        cleanup_(buf_fini) struct buf word = {0};
        struct disk *copy[2];
        uint64_t index;
        struct rnd r;

        start();
        leader = elect();
        f = follower(leader);
        CHECK_EQ(propose(leader, 100), 0);
        pass(500 * MS);
        copy[0] = f->disk;
        copy[1] = sim_disk_new();
        CHECK_EQ(f->disk->ops->list(f->disk, copy_file, copy), 0);
        f->replica = replica_free(f->replica);
        for (int i = 0; i < 5; i++)
                CHECK_EQ(propose(leader, 100), 0);
        pass(200 * MS);
        start_node(f, 0);
        pass(3000 * MS);
        CHECK_EQ(replica_status(f->replica).last, replica_status(leader->replica).last);
        CHECK_EQ(replica_forgetful(leader->replica), 0);
        /* Such a notice about entries that were here all the time, as while a snapshot replaces
         * the log, is ignored: the replica does not end. */
        buf_add_u8(&word, FRAME_LACKS);
        buf_add_u64(&word, replica_status(f->replica).term);
        buf_add_u64(&word, replica_status(f->replica).last);
        CHECK_EQ(replica_input(f->replica, id_of(leader),
                               (struct view){buf_head(&word), buf_len(&word)}, net.now),
                 0);

        rnd_init(&r, rnd(0, UINT64_MAX));
        third = follower(f);
        third->stuck = true; /* it answers, and acknowledges none of these */
        CHECK_EQ(propose(leader, 100), 0);
        pass(50 * MS); /* what comes now is behind a write that does not end */
        for (int i = 0; i < 5; i++)
                CHECK_EQ(propose(leader, 100), 0);
        pass(200 * MS);
        index = replica_status(leader->replica).last;
        CHECK_EQ(replica_status(f->replica).last, index);
        f->replica = replica_free(f->replica);
        disk_free(f->disk);
        f->disk = copy[1];
        f->may_end = true;
        start_node(f, 0);
        for (int i = 0; i < 3000 && !f->ended; i++)
                pass(MS);
        if (f->ended) {
                f->replica = replica_free(f->replica);
                CHECK_EQ(replica_forgetful(leader->replica), id_of(f));
                CHECK_EQ(make_node(f, 0, &err), -EBADMSG);
                CHECK(strstr(err.text, "had acknowledged"));
        }
        leader->replica = replica_free(leader->replica);
        sim_disk_crash(third->disk, &r);
        third->replica = replica_free(third->replica);
        third->stuck = false;
        start_node(third, 0);
        CHECK(replica_status(third->replica).last < index);
        pass(5000 * MS);
        CHECK(!replica_status(third->replica).leader);
        CHECK(!f->replica || !replica_status(f->replica).leader);
        CHECK(f->ended);
        stop();
}

static void hand_over(struct net_node *from, struct net_node *to)
{
        CHECK_EQ(replica_transfer(from->replica, id_of(to), net.now), 0);
        pass(1000 * MS);
        CHECK(replica_status(to->replica).leader);
}

/* A leader begins to send a snapshot, and loses its leadership; in a later term it leads again.
 * A member that has acknowledged entries since then, and lacks them, is notified, although the
 * snapshot was never installed. */
TEST(a_snapshot_of_an_earlier_term_hides_no_lack_of_entries)
{
        struct net_node *f, *third, *leader = lag_behind(1000, 0, &f);
        uint64_t last;

        f->full = true; /* it gets nothing of the snapshot */
        third = &net.node[6 - id_of(leader) - id_of(f) - 1];
        pass(500 * MS);
        hand_over(leader, third);
        hand_over(third, leader);
        last = leader->replica->log.first + 1;
        answer_entries(leader, id_of(f), 0, last);
        CHECK_EQ(replica_forgetful(leader->replica), 0);
        for (unsigned i = 0; i < 20; i++)
                answer_entries(leader, id_of(f), last + 1, last - 1);
        CHECK_EQ(replica_forgetful(leader->replica), id_of(f));
        stop();
}

static uint64_t mute, deaf; /* members */

static bool is_answer_of_mute(const struct frame *f)
{
        const uint8_t *p = buf_head(&f->bytes);

        return f->from == mute && p[0] == FRAME_RAFT && p[1] == RAFT_APPEND_ENTRIES_RESULT;
}

/* Its answers are lost while it goes on, until the last entry that the leader knows it to have
 * is the last one that its log has dropped. */
TEST(a_follower_takes_entries_after_the_last_one_that_its_log_has_dropped)
{
        struct net_node *leader, *f;
        struct store_error err;
        uint64_t match = 0;

        start_with(0);
        leader = elect();
        f = follower(leader);
        replica_free(f->replica);
        f->replica = NULL;
        CHECK_EQ(make_node(f, 20000, &err), 0);
        CHECK_EQ(replica_start(f->replica), 0);
        pass(500 * MS);
        mute = id_of(f);
        for (unsigned i = 0; i < 60; i++) {
                CHECK_EQ(propose(leader, 1000), 0);
                pass(5 * MS);
        }
        for (unsigned i = 0; i < 40 && f->replica->log.first - 1 != match; i++) {
                net.lost = NULL;
                pass(300 * MS);
                for (unsigned k = 0; k <= i % 7; k++) {
                        CHECK_EQ(propose(leader, 1000), 0);
                        pass(100 * MS);
                }
                CHECK(libraft_match(leader->replica, mute, &match));
                net.lost = is_answer_of_mute;
                for (unsigned k = 0; k < 60 && f->replica->log.first - 1 < match; k++) {
                        CHECK_EQ(propose(leader, 1000), 0);
                        pass(3 * MS);
                }
        }
        CHECK_EQ(f->replica->log.first - 1, match);
        pass(1500 * MS);
        net.lost = NULL;
        CHECK_EQ(propose(leader, 1000), 0);
        pass(2 * NSEC_PER_SEC);
        CHECK(libraft_match(leader->replica, mute, &match));
        CHECK_EQ(match, log_last(&leader->replica->log));
        CHECK_EQ(replica_forgetful(leader->replica), 0);
        stop();
}

TEST(all_learn_that_a_member_has_moved)
{
        unsigned before[3];
        struct net_node *leader;

        n_nodes = 3;
        start();
        leader = elect();
        pass(6 * NSEC_PER_SEC);
        for (unsigned i = 0; i < 3; i++)
                before[i] = net.node[i].configured;
        replica_change_members(leader->replica, 1, REPLICA_MOVE, 2, "http://9:1");
        pass(300 * MS);
        for (unsigned i = 0; i < 3; i++)
                CHECK(net.node[i].configured > before[i]);
        stop();
}

static bool is_for_deaf(const struct frame *f)
{
        return f->to == deaf && f->from != 5;
}

/* By one that has not heard of its addition yet, and knows a later change than it does. */
TEST(a_member_that_is_joining_is_not_told_that_it_was_removed)
{
        struct net_node *leader, *f, *x = &net.node[4];
        struct store_error err;
        bool told = false;

        n_nodes = 4;
        start();
        leader = elect();
        f = &net.node[(leader - net.node + 1) % 4];
        pass(6 * NSEC_PER_SEC);
        replica_change_members(leader->replica, 1, REPLICA_MOVE, id_of(f), "http://9:1");
        pass(300 * MS);
        for (unsigned i = 0; i < 600; i++) {
                CHECK_EQ(propose(leader, 1000), 0);
                pass(6 * MS);
        }
        replica_change_members(leader->replica, 2, REPLICA_MOVE, id_of(f), "http://9:2");
        pass(300 * MS);
        deaf = id_of(f);
        net.lost = is_for_deaf;
        net.outcome = -1;
        replica_change_members(leader->replica, 3, REPLICA_ADD_LEARNER, 5, "http://5:1");
        pass(100 * MS);
        CHECK_EQ(net.outcome, 0);
        x->disk = sim_disk_new();
        n_nodes = 5;
        CHECK_EQ(replica_new(&x->replica,
                             &(struct replica_config){.id = 5,
                                                      .cluster_id = 7,
                                                      .peers = peers,
                                                      .n_peers = 5,
                                                      .join = true,
                                                      .election = 500 * MS,
                                                      .heartbeat = 50 * MS,
                                                      .seed = 99},
                             x->disk, &ops, x, net.now, &err),
                 0);
        CHECK_EQ(replica_start(x->replica), 0);
        net.delay = 5 * MS;
        for (unsigned i = 0; i < 400 && replica_position(x->replica, 5) < 0; i++) {
                uint8_t frame[9] = {FRAME_REMOVED};
                uint64_t index = replica_excludes(f->replica, 5);

                pass(MS);
                le64_put(frame + 1, index); /* as peers.c does when 5 calls */
                told = told || (index > libraft_committed(x->replica, NULL) &&
                                log_last(&x->replica->log) > 1);
                CHECK_EQ(replica_input(x->replica, deaf, (struct view){frame, 9}, net.now), 0);
        }
        CHECK(told);
        CHECK(replica_position(x->replica, 5) >= 0);
        CHECK_EQ(net.removed, 0);
        stop();
        n_nodes = N;
}

TEST(a_requested_snapshot_is_written_once_the_disk_has_room)
{
        struct net_node *leader;

        start();
        padding = 9 << 20;
        leader = elect();
        for (unsigned i = 0; i < 300; i++) {
                CHECK_EQ(propose(leader, 100000), 0);
                pass(5 * MS);
        }
        sim_disk_fill(leader->disk, true);
        replica_want_snapshot(leader->replica);
        pass(500 * MS);
        CHECK_EQ(leader->replica->taking.saved.index, 0);
        CHECK_EQ(taking_next(leader->replica).ns, leader->replica->taking.again_at.ns);
        sim_disk_fill(leader->disk, false);
        pass(10 * NSEC_PER_SEC);
        CHECK(leader->replica->taking.saved.index > 0);
        CHECK(replica_status(leader->replica).log_bytes < 4 << 20);
        stop();
}

/* How many bytes of data the latest snapshot on the disk has. */
static uint64_t saved_bytes(struct net_node *n)
{
        cleanup_(buf_fini) struct buf b = {0};
        char name[32];

        snprintf(name, sizeof(name), "snapshot-%016" PRIx64, n->replica->taking.saved.index);
        CHECK_EQ(n->disk->ops->read(n->disk, name, SIZE_MAX, &b), 0);
        return le64_get(b.data + 40);
}

/* As many bytes as are handed to the disk at once. */
#define PIECE ((size_t) 4 << 20)

/* The state is changed while it is encoded, and the disk stands still for a while. */
TEST(a_snapshot_is_encoded_as_fast_as_the_disk_writes)
{
        struct net_node *leader;
        struct taking *taking;

        start();
        slices = 50;
        slice_size = PIECE;
        leader = elect();
        taking = &leader->replica->taking;
        CHECK_EQ(propose(leader, 1000), 0);
        pass(50 * MS);
        leader->stuck = true;
        replica_want_snapshot(leader->replica);
        for (unsigned i = 0; i < 100; i++) {
                CHECK_EQ(propose(leader, 1000), 0);
                pass(4 * MS);
                CHECK(store_snapshot_waiting(leader->replica->store) <= 2);
        }
        CHECK_EQ(taking->state, SNAPSHOT_ENCODING);
        CHECK_EQ(taking_next(leader->replica).ns, BOOT_TIME_NEVER.ns);
        CHECK_EQ(leader->slices[0], 2);
        leader->stuck = false;
        pass(500 * MS);
        CHECK_EQ(leader->applied, 101);
        CHECK_EQ(leader->saved, 1);
        CHECK_EQ(taking->state, SNAPSHOT_IDLE);
        CHECK(taking->saved.index > 0);
        CHECK_EQ(taking->size, 50 * PIECE + 4);
        CHECK_EQ(saved_bytes(leader), 50 * PIECE + 4);
        stop();
}

TEST(a_snapshot_that_begins_again_has_nothing_of_the_first_attempt)
{
        struct net_node *leader;

        start();
        slices = 20;
        slice_size = PIECE;
        leader = elect();
        CHECK_EQ(propose(leader, 1000), 0);
        stale_once = true;
        replica_want_snapshot(leader->replica);
        pass(500 * MS);
        CHECK(!stale_once);
        CHECK(leader->replica->taking.saved.index > 0);
        CHECK_EQ(saved_bytes(leader), 20 * PIECE + 4);
        stop();
}

TEST(leadership_is_handed_over_to_one_at_a_time)
{
        struct net_node *leader, *one, *other;

        start();
        leader = elect();
        one = follower(leader);
        other = &net.node[6 - id_of(leader) - id_of(one) - 1];
        one->stuck = true;
        CHECK_EQ(propose(leader, 1000), 0);
        pass(10 * MS); /* it lags, so that the handover takes a while */
        CHECK_EQ(replica_transfer(leader->replica, id_of(one), net.now), 0);
        CHECK_EQ(replica_transfer(leader->replica, id_of(one), net.now), 0);
        CHECK_EQ(replica_transfer(leader->replica, id_of(other), net.now), -EBUSY);
        CHECK_EQ(replica_transfer(leader->replica, 17, net.now), -EINVAL);
        one->stuck = false;
        pass(2 * NSEC_PER_SEC);
        stop();
}

/* [libraft] The next leader was asked to stand with its first acknowledgement, even if it
 * lacked later entries. It ignored that, and nothing was written for an election timeout. */
TEST(a_leader_that_writes_hands_over_within_a_few_round_trips)
{
        struct net_node *leader, *next;

        start();
        net.delay = 2 * MS;
        for (unsigned i = 0; i < 20; i++) {
                unsigned took = 0;

                leader = elect();
                next = follower(leader);
                for (unsigned k = (unsigned) rnd(5, 20); k > 0; k--) {
                        CHECK_EQ(propose(leader, 10), 0);
                        pass(MS);
                }
                CHECK_EQ(replica_transfer(leader->replica, id_of(next), net.now), 0);
                for (; !replica_healthy(next->replica, net.now) && took < 1000; took++)
                        pass(MS);
                if (took > 50)
                        test_fail(__FILE__, __LINE__, "handover %u took %u ms", i, took);
                pass(100 * MS);
        }
        stop();
}

/* [libraft] A leader that writes all the time sends no heartbeats, and checks for its quorum
 * once in an election timeout. A follower that was asked for nothing between two checks was
 * taken for unreachable: it got one message per heartbeat interval until it acknowledged an
 * entry. */
TEST(a_write_after_a_pause_takes_one_round_trip)
{
        struct net_node *leader;

        start();
        leader = elect();
        net.delay = 2 * MS;
        for (unsigned i = 0; i < 50; i++) {
                unsigned took = 0, before;

                for (unsigned k = (unsigned) rnd(20, 60); k > 0; k--) {
                        CHECK_EQ(propose(leader, 10), 0);
                        pass((nsec_t) rnd(5, 30) * MS);
                }
                pass((nsec_t) rnd(50, 150) * MS);
                before = leader->applied;
                CHECK_EQ(propose(leader, 10), 0);
                for (; leader->applied == before && took < 100; took++)
                        pass(MS);
                if (took > 10)
                        test_fail(__FILE__, __LINE__, "write %u took %u ms", i, took);
        }
        stop();
}

/* [libraft] While entries are under way, no member has all of the log, and libraft asked the
 * last voter of the configuration to take over: maybe one that is down. */
TEST(a_leader_that_writes_steps_down_for_a_member_that_answers)
{
        struct net_node *leader, *gone, *next;
        unsigned took = 0;

        start();
        leader = elect();
        gone = &net.node[leader == &net.node[N - 1] ? N - 2 : N - 1];
        next = &net.node[N * (N + 1) / 2 - id_of(leader) - id_of(gone) - 1];
        gone->replica = replica_free(gone->replica);
        net.delay = 2 * MS;
        for (unsigned i = 0; i < 100; i++) {
                CHECK_EQ(propose(leader, 10), 0);
                pass(MS);
        }
        CHECK(replica_step_down(leader->replica, net.now));
        for (; !replica_healthy(next->replica, net.now) && took < 200; took++)
                pass(MS);
        CHECK(took < 100);
        stop();
}

/* Its leader is gone, and its disk is busy or full: it cannot stand, but others can. */
TEST(a_replica_that_waits_for_its_disk_votes_for_a_new_leader)
{
        struct net_node *leader, *slow, *other;

        start();
        leader = elect();
        slow = follower(leader);
        other = follower(slow);
        slow->stuck = true;
        CHECK_EQ(propose(leader, 10), 0);
        pass(100 * MS);
        leader->replica = replica_free(leader->replica);
        pass(5 * NSEC_PER_SEC);
        CHECK(replica_status(slow->replica).leader_id != id_of(leader));
        CHECK(replica_status(other->replica).leader);
        slow->stuck = false;
        CHECK(elect() == other);
        stop();
}

/* [libraft] A replica that votes for the next leader took the old one for its leader until the
 * new one's first message, and sent it what was proposed meanwhile. */
TEST(what_is_proposed_during_a_handover_goes_to_the_new_leader)
{
        struct net_node *leader, *next, *voter;
        unsigned took = 0;
        uint64_t term;

        start();
        leader = elect();
        next = follower(leader);
        voter = follower(next);
        term = replica_status(voter->replica).term;
        net.delay = 2 * MS;
        CHECK_EQ(replica_transfer(leader->replica, id_of(next), net.now), 0);
        while (replica_status(voter->replica).term == term)
                pass(MS);
        while (propose(voter, 10) < 0)
                pass(MS);
        for (; voter->applied == 0 && took < 1000; took++)
                pass(MS);
        CHECK(took < 50);
        stop();
}
