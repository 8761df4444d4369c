#include "one.h"

#include "test.h"

static void on_send(void *u, uint64_t peer, struct view frame)
{
        (void) u;
        (void) peer;
        (void) frame;
}

static void on_fatal(void *u, const char *why)
{
        (void) u;
        test_fail(__FILE__, __LINE__, "it gave up: %s", why);
}

bool one_skips;

static int on_apply(void *u, uint64_t index, uint64_t term, struct lease_time at,
                    struct view commands, size_t *left)
{
        if (one_skips)
                return 0;
        return core_replica_ops.apply(u, index, term, at, commands, left);
}

const struct core_owner one_owner = {.send = on_send, .fatal = on_fatal};

void one_new(struct core **ret_core, struct replica **ret_replica, struct disk *disk,
             unsigned n_members, const struct core_config *cfg, struct boot_time now)
{
        static const struct replica_peer peers[] = {
                {1, "http://1:1"}, {2, "http://2:1"}, {3, "http://3:1"}};
        static struct replica_ops ops;
        struct core_config own = *cfg;
        struct store_error err;
        struct replica *r;
        struct core *c;

        CHECK(n_members <= ARRAY_SIZE(peers));
        one_skips = false;
        ops = core_replica_ops;
        ops.apply = on_apply;
        own.cluster_id = 7;
        own.member_id = 1;
        own.seed = rnd(1, UINT32_MAX);
        CHECK_EQ(core_new(&c, &own, now), 0);
        core_set_owner(c, &one_owner, NULL);
        CHECK_EQ(
                replica_new(&r,
                            &(struct replica_config){
                                    .id = 1,
                                    .version = cfg->version,
                                    .cluster_id = 7,
                                    .directory =
                                            n_members == 1
                                                    ? 0xd1
                                                    : 0, /* several would wait for each other */
                                    .peers = peers,
                                    .n_peers = n_members,
                                    .election = 500 * MSEC,
                                    .heartbeat = 50 * MSEC,
                                    .seed = rnd(1, UINT32_MAX)},
                            disk, &ops, c, now, &err),
                0);
        core_attach(c, r);
        CHECK_EQ(replica_start(r), 0);
        *ret_core = c;
        *ret_replica = r;
}

void one_turn(struct core *c, struct replica *r, struct disk *disk, struct boot_time now)
{
        replica_run(r, now);
        core_run(c, now);
        core_flush(c, now);
        replica_flush(r, now);
        while (sim_disk_busy(disk))
                sim_disk_finish(disk);
}
