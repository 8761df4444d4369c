/* Which links a replica has (agent/tenure-core/links.c), over loopback. */
#include <arpa/inet.h>
#include <raft.h>
#include <stdio.h>
#include <unistd.h>

#include "../../agent/tenure-core/links.h"
#include "../sim/world.h"
#include "consensus/message.h"
#include "core/core.h"
#include "nomem.h"
#include "test.h"
#include "virtual_time.h"

#define CLUSTER 7

static char urls[4][64]; /* of members 1 to 3 */
static int ports[4];

/* The port stays bound, so that nobody else gets it; who listens there has SO_REUSEADDR. */
static void free_url(char ret[static 64], int *ret_fd)
{
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof(a);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

        CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
              bind(fd, (struct sockaddr *) &a, len) == 0 &&
              getsockname(fd, (struct sockaddr *) &a, &len) == 0);
        snprintf(ret, 64, "http://127.0.0.1:%u", ntohs(a.sin_port));
        *ret_fd = fd;
}

static void choose_urls(void)
{
        virtual_time_begin();
        for (int i = 1; i <= 3; i++)
                free_url(urls[i], &ports[i]);
}

/* ---- the other members ---- */

static unsigned n_proposed; /* frames of proposals that they got */

static int hear(void *userdata, uint64_t id, struct view frame)
{
        (void) userdata;
        (void) id;
        n_proposed += frame.len > 0 && frame.p[0] == FRAME_PROPOSE;
        return 0;
}

static void note(void *userdata, uint64_t id)
{
        (void) userdata;
        (void) id;
}

static struct introduction of_0_1(void *userdata, uint64_t id)
{
        (void) userdata;
        (void) id;
        return introduction_0_1;
}

static int welcome(void *userdata, uint64_t id, const struct introduction *in)
{
        (void) userdata;
        (void) id;
        (void) in;
        return 0;
}

static uint64_t not_removed(void *userdata, uint64_t id)
{
        (void) userdata;
        (void) id;
        return 0;
}

/* Names all three to member 1. */
static void tell_all(void *userdata, const char *url, uint64_t directory, struct joined *ret)
{
        (void) directory;
        (void) userdata;
        (void) url;
        ret->member_id = 1;
        for (uint64_t id = 1; id <= 3; id++) {
                ret->members[ret->n_members].id = id;
                strcpy(ret->members[ret->n_members++].urls, urls[id]);
        }
}

static struct peers *start_other(struct loop *loop, struct resolver *rv, uint64_t id)
{
        static const struct peers_ops ops = {.introduction = of_0_1,
                                             .introduced = welcome,
                                             .frame = hear,
                                             .called = note,
                                             .down = note,
                                             .strange = not_removed,
                                             .who = tell_all};
        struct peers *p;
        char err[256];

        CHECK_EQ(peers_new(&p, loop, rv,
                           &(struct peers_config){.cluster_id = CLUSTER,
                                                  .member_id = id,
                                                  .listen_urls = urls[id]},
                           &ops, NULL),
                 0);
        CHECK_EQ(peers_listen(p, true, err, sizeof(err)), 0);
        return p;
}

/* ---- member 1 ---- */

static struct {
        struct loop *loop;
        struct resolver *resolver;
        struct disk *disk;
        struct core *core;
        struct replica *replica;
        struct links links;
        struct loop_hook hook;
        struct loop_timer end;
} w;

static void on_end(struct loop_timer *t)
{
        loop_stop(t->loop);
}

static void run_for(nsec_t time)
{
        loop_timer_in(&w.end, time);
        loop_run(w.loop);
}

static void on_send(void *u, uint64_t peer, struct view frame)
{
        (void) u;
        links_send(&w.links, peer, frame);
}

static void on_fatal(void *u, const char *why)
{
        (void) u;
        test_fail(__FILE__, __LINE__, "it gave up: %s", why);
}

static const struct core_owner owner = {.send = on_send, .fatal = on_fatal};

static struct boot_time run_replica(struct loop_hook *h, struct boot_time now)
{
        (void) h;
        replica_run(w.replica, now);
        replica_flush(w.replica, now);
        return replica_next(w.replica);
}

/* Starts it as one of three members; or, if others were @told to it when it asked for its id,
 * as one that joins them. */
static void begin(const struct joined *told, nsec_t election, nsec_t heartbeat)
{
        static const struct core_config cfg = {.cluster_id = CLUSTER, .member_id = 1};
        static const struct joined nobody;
        struct replica_peer peers[3];
        struct store_error err;

        memset(&w, 0, sizeof(w));
        n_proposed = 0;
        for (uint64_t i = 1; i <= 3; i++)
                peers[i - 1] = (struct replica_peer){i, urls[i]};
        CHECK_EQ(core_new(&w.core, &cfg, boot_now()), 0);
        core_set_owner(w.core, &owner, NULL);
        w.disk = sim_disk_new();
        CHECK_EQ(replica_new(&w.replica,
                             &(struct replica_config){.id = 1,
                                                      .cluster_id = CLUSTER,
                                                      .peers = peers,
                                                      .n_peers = told ? told->n_members : 3,
                                                      .join = told,
                                                      .election = election,
                                                      .heartbeat = heartbeat},
                             w.disk, &core_replica_ops, w.core, boot_now(), &err),
                 0);
        core_attach(w.core, w.replica);
        CHECK_EQ(replica_start(w.replica), 0);
        CHECK_EQ(loop_new(&w.loop), 0);
        CHECK_EQ(resolver_new(&w.resolver, w.loop), 0);
        loop_timer_init(&w.end, w.loop, on_end);
        CHECK_EQ(links_start(&w.links, w.loop, w.resolver, w.core, w.replica,
                             told ? told : &nobody,
                             &(struct peers_config){.cluster_id = CLUSTER,
                                                    .member_id = 1,
                                                    .listen_urls = urls[1]}),
                 0);
        loop_hook_start(&w.hook, w.loop, LOOP_DECIDE, run_replica);
}

static void end(void)
{
        loop_hook_stop(&w.hook);
        core_free(w.core);
        links_fini(&w.links);
        replica_free(w.replica);
        disk_free(w.disk);
        resolver_free(w.resolver);
        loop_free(w.loop);
        for (int i = 1; i <= 3; i++)
                close(ports[i]);
}

/* A replica that joins has applied nothing until it hears from the leader. If the leader was
 * added after it had asked who the members are, the members have to introduce it. */
TEST(who_is_introduced_is_linked_before_anything_is_applied)
{
        static struct joined told;
        struct peers *known, *leader;

        choose_urls();
        told = (struct joined){.cluster_id = CLUSTER, .member_id = 1, .n_members = 2};
        for (uint64_t i = 0; i < 2; i++) {
                told.members[i].id = i + 1;
                strcpy(told.members[i].urls, urls[i + 1]);
        }
        begin(&told, 500 * NSEC_PER_MSEC, 50 * NSEC_PER_MSEC);
        CHECK_EQ(core_status(w.core).applied, 0);
        known = start_other(w.loop, w.resolver, 2);
        leader = start_other(w.loop, w.resolver, 3);
        CHECK_EQ(peers_add(leader, 1, urls[1]), 0);
        run_for(3 * NSEC_PER_SEC);
        CHECK(links_are_up(&w.links, 3));
        peers_free(known);
        peers_free(leader);
        end();
}

static bool nobody(void *userdata, uint64_t id)
{
        (void) userdata;
        (void) id;
        return false;
}

/* A member to which no link could be made, for lack of memory, is not left alone until the
 * members change again. */
TEST(a_link_that_could_not_be_made_is_tried_again)
{
        struct peers *other;

        choose_urls();
        begin(NULL, 60 * NSEC_PER_SEC, NSEC_PER_SEC);
        other = start_other(w.loop, w.resolver, 2);
        CHECK_EQ(peers_add(other, 1, "http://127.0.0.1:1"), 0); /* it does not find us */
        peers_sweep(w.links.peers, nobody);
        nomem_after(0);
        links_configured(&w.links);
        CHECK(nomem_end());
        CHECK(!links_are_up(&w.links, 2));
        run_for(3 * NSEC_PER_SEC);
        CHECK(links_are_up(&w.links, 2));
        peers_free(other);
        end();
}

/* Member 2 leads. */
static void lead(struct peers *leader)
{
        cleanup_(buf_fini) struct buf f = {0};
        struct raft_message m = {.type = RAFT_APPEND_ENTRIES};

        m.append_entries.term = 2;
        m.append_entries.prev_log_index = m.append_entries.prev_log_term = 1;
        CHECK_EQ(message_encode(&m, NULL, NULL, 0, &f), 0);
        peers_send(leader, 1, (struct view){buf_head(&f), buf_len(&f)});
        run_for(100 * NSEC_PER_MSEC);
        CHECK_EQ(replica_status(w.replica).leader_id, 2);
}

static struct peers *start_leader(void)
{
        struct peers *leader = start_other(w.loop, w.resolver, 2);

        CHECK_EQ(peers_add(leader, 1, urls[1]), 0);
        run_for(NSEC_PER_SEC);
        CHECK(links_are_up(&w.links, 2));
        return leader;
}

/* Only the end of the leader's link shows that it is gone before the election timeout. */
TEST(a_replica_gives_up_a_leader_whose_link_breaks)
{
        struct peers *leader;

        choose_urls();
        begin(NULL, 60 * NSEC_PER_SEC, NSEC_PER_SEC);
        leader = start_leader();
        lead(leader);
        run_for(5 * NSEC_PER_SEC);
        CHECK_EQ(replica_status(w.replica).leader_id, 2);
        peers_free(leader);
        run_for(2 * NSEC_PER_SEC); /* one heartbeat and a half */
        CHECK_EQ(replica_status(w.replica).leader_id, 0);
        end();
}

/* What was under way on a link that broke may be lost: on the next link it is sent again, and
 * not only when the leader could have acknowledged it, after four heartbeats. */
TEST(a_new_link_to_the_leader_repeats_what_was_under_way)
{
        struct peers *leader;

        choose_urls();
        begin(NULL, 60 * NSEC_PER_SEC, 5 * NSEC_PER_SEC);
        leader = start_leader();
        lead(leader);
        CHECK_EQ(replica_propose(w.replica, "command", 7, REPLICA_NORMAL), 0);
        replica_flush(w.replica, boot_now());
        run_for(NSEC_PER_SEC);
        CHECK_EQ(n_proposed, 1);
        peers_free(leader);
        leader = start_leader();
        CHECK_EQ(n_proposed, 2);
        peers_free(leader);
        end();
}
