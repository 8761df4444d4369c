#include "etcd/node.h"

int node_init(struct node *n, const struct node_config *cfg, struct disk *d,
              struct boot_time now, struct store_error *err)
{
        int r = core_new(&n->core, &cfg->core, now);

        if (r == 0)
                r = api_new(&n->api, n->core, cfg->passwords, cfg->token_ttl);
        if (r == 0 && cfg->etcd_version)
                r = api_set_version(n->api, cfg->etcd_version);
        if (r < 0)
                return r;
        api_set_status_page(n->api, cfg->status_page);
        if (cfg->conns)
                api_set_conns(n->api, cfg->conns, cfg->conns_arg);
        core_set_owner(n->core, cfg->owner, cfg->owner_arg);
        if (cfg->name)
                r = core_set_member(n->core, cfg->name, cfg->client_urls);
        if (r == 0)
                r = replica_new(&n->replica, &cfg->replica, d,
                                cfg->ops ? cfg->ops : &core_replica_ops, n->core, now, err);
        if (r == 0)
                core_attach(n->core, n->replica);
        return r;
}

int node_start(struct node *n)
{
        return replica_start(n->replica);
}

static void no_lap(void *arg, const char *what)
{
        (void) arg;
        (void) what;
}

/* Runs the parts from top to bottom. Renewals are gathered before they are proposed, and a
 * batch of them is sent to the other replicas in the same turn. */
void node_run(struct node *n, struct boot_time now, void (*lap)(void *arg, const char *what),
              void *arg)
{
        lap = lap ? lap : no_lap;
        replica_run(n->replica, now);
        lap(arg, "consensus");
        core_run(n->core, now);
        lap(arg, "expiry, timeouts and upkeep");
        api_recall(n->api, now);
        core_flush(n->core, now);
        lap(arg, "renewals and proposals");
        replica_flush(n->replica, now);
        lap(arg, "replication, reads and snapshots");
}

void node_flush(struct node *n, struct boot_time now)
{
        api_run(n->api, now);
}

struct boot_time node_next(struct node *n)
{
        return boot_min(replica_next(n->replica),
                        boot_min(core_next(n->core), api_next(n->api)));
}

/* Frees the core first: its requests need the api. */
void node_leave(struct node *n)
{
        n->core = core_free(n->core);
        n->api = api_free(n->api);
}

void node_free(struct node *n)
{
        n->replica = replica_free(n->replica);
}
