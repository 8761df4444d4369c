/* Which links a replica has (agent/tenure-core/links.c), over loopback. */
#include <arpa/inet.h>
#include <stdio.h>
#include <unistd.h>

#include "../../agent/tenure-core/links.h"
#include "one.h"
#include "test.h"
#include "virtual_time.h"

#define CLUSTER 7

static char urls[4][64]; /* of members 1 to 3 */

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

/* ---- the other members ---- */

static int hear(void *userdata, uint64_t id, struct view frame)
{
        (void) userdata;
        (void) id;
        (void) frame;
        return 0;
}

static void note(void *userdata, uint64_t id)
{
        (void) userdata;
        (void) id;
}

static uint64_t not_removed(void *userdata, uint64_t id)
{
        (void) userdata;
        (void) id;
        return 0;
}

/* Names all three to member 1. */
static void tell_all(void *userdata, const char *url, struct joined *ret)
{
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
        static const struct peers_ops ops = {.frame = hear,
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

/* ---- member 1, which joins, and was told of member 2 ---- */

static struct replica *start_first(struct core **ret_core, struct disk *disk)
{
        static const struct core_config cfg = {.cluster_id = CLUSTER, .member_id = 1};
        const struct replica_peer peers[] = {{1, urls[1]}, {2, urls[2]}};
        struct store_error err;
        struct replica *r;

        CHECK_EQ(core_new(ret_core, &cfg, boot_now()), 0);
        core_set_owner(*ret_core, &one_owner, NULL);
        CHECK_EQ(replica_new(&r,
                             &(struct replica_config){.id = 1,
                                                      .cluster_id = CLUSTER,
                                                      .peers = peers,
                                                      .n_peers = 2,
                                                      .join = true,
                                                      .election = 500 * NSEC_PER_MSEC,
                                                      .heartbeat = 50 * NSEC_PER_MSEC},
                             disk, &core_replica_ops, *ret_core, boot_now(), &err),
                 0);
        core_attach(*ret_core, r);
        CHECK_EQ(replica_start(r), 0);
        return r;
}

static void on_end(struct loop_timer *t)
{
        loop_stop(t->loop);
}

/* A replica that joins has applied nothing until it hears from the leader. If the leader was
 * added after it had asked who the members are, the members have to introduce it. */
TEST(who_is_introduced_is_linked_before_anything_is_applied)
{
        static struct joined told;
        struct disk *disk = sim_disk_new();
        struct links links = {0};
        struct peers *known, *leader;
        struct loop_timer end;
        struct resolver *rv;
        struct replica *r;
        struct loop *loop;
        struct core *core;
        int ports[4];

        virtual_time_begin();
        for (int i = 1; i <= 3; i++)
                free_url(urls[i], &ports[i]);
        CHECK_EQ(loop_new(&loop), 0);
        CHECK_EQ(resolver_new(&rv, loop), 0);
        told = (struct joined){.cluster_id = CLUSTER, .member_id = 1, .n_members = 2};
        for (uint64_t i = 0; i < 2; i++) {
                told.members[i].id = i + 1;
                strcpy(told.members[i].urls, urls[i + 1]);
        }
        r = start_first(&core, disk);
        CHECK_EQ(core_status(core).applied, 0);
        CHECK_EQ(links_start(&links, loop, rv, core, r, &told,
                             &(struct peers_config){.cluster_id = CLUSTER,
                                                    .member_id = 1,
                                                    .listen_urls = urls[1]}),
                 0);
        known = start_other(loop, rv, 2);
        leader = start_other(loop, rv, 3);
        CHECK_EQ(peers_add(leader, 1, urls[1]), 0);
        loop_timer_init(&end, loop, on_end);
        loop_timer_in(&end, 3 * NSEC_PER_SEC);
        loop_run(loop);
        CHECK(links_are_up(&links, 3));
        peers_free(known);
        peers_free(leader);
        core_free(core);
        links_fini(&links);
        replica_free(r);
        disk_free(disk);
        resolver_free(rv);
        loop_free(loop);
        for (int i = 1; i <= 3; i++)
                close(ports[i]);
}
