/* The cluster version (base/version.h) rises: by an operator's order, or when all members have
 * been able to for a while. Only the leader raises it, at a moment at which it hears from all
 * members, so that none of them runs an older program unnoticed. */
#include <inttypes.h>
#include <stdio.h>

#include "base/probe.h"
#include "core/internal.h"

#define AGAIN NSEC_PER_SEC

/* Why it cannot rise: @id is in the way. */
static struct status in_the_way(struct core *c, uint64_t id)
{
        char *why = c->upgrade.why, name[200];
        const struct member *m = state_member(&c->state, id);
        struct introduction in;
        bool linked, known = replica_member_version(c->replica, id, &in, &linked);

        snprintf(name, sizeof(name), "tenure: %s (%016" PRIx64 ")",
                 m && *m->name ? m->name : "a member", id);
        if (!known)
                snprintf(why, sizeof(c->upgrade.why),
                         "%s has no link to the leader: its version is not known", name);
        else if (in.newest <= c->state.cluster_version)
                snprintf(why, sizeof(c->upgrade.why),
                         "%s runs %s, which knows no newer cluster version than %s: upgrade it",
                         name, in.program, cluster_version_name(c->state.cluster_version));
        else
                snprintf(why, sizeof(c->upgrade.why), "%s does not answer the leader now",
                         name);
        return (struct status){RPC_FAILED_PRECONDITION, why};
}

/* Returns whether the command is on its way, or is to be tried again; otherwise *@ret says why
 * not. */
static bool raise_it(struct core *c, struct status *ret)
{
        cleanup_(buf_fini) struct buf body = {0}, cmd = {0};
        struct replica_rise rise = replica_rise(c->replica);
        int r;

        if (c->upgrade.term == core_term(c) && c->upgrade.to >= rise.to)
                return true;
        if (rise.to <= c->state.cluster_version) {
                *ret = in_the_way(c, rise.member);
                return false;
        }
        cmd_version(&body, rise.to);
        cmd_append(&cmd, CMD_VERSION, c->cfg.member_id, 0, NULL, 0, buf_head(&body),
                   buf_len(&body));
        if (buf_error(&body) < 0 || buf_error(&cmd) < 0)
                return true;
        r = replica_raise(c->replica, cmd.data, buf_len(&cmd), &rise.member);
        if (r == -EHOSTUNREACH) {
                *ret = in_the_way(c, rise.member);
                return false;
        }
        PROBE_IF(r == -EAGAIN, "the cluster version rises a little later");
        if (r == 0) {
                c->upgrade.term = core_term(c);
                c->upgrade.to = rise.to;
        }
        return true;
}

/* A new cluster has the newest version that all of its members know from the first entry on:
 * nothing of an older one is ever in it. */
bool core_found(void *core)
{
        struct core *c = core;
        struct status st;

        return replica_rise(c->replica).to <= c->state.cluster_version ||
               (raise_it(c, &st) && c->upgrade.term == core_term(c));
}

static bool has_risen(struct core *c, const struct core_order *o, struct status *ret)
{
        *ret = status_ok;
        if (c->state.cluster_version >= o->version)
                return true;
        *ret = status_not_leader;
        return !core_status(c).leader || !raise_it(c, ret);
}

static void timed_out(struct core *c, struct core_timeout *t)
{
        struct core_order *o = container_of(t, struct core_order, timeout);

        core_withdraw_order(c, o);
        o->done(o, core_timeout_status(c));
}

void core_finish_upgrade(struct core *c, struct core_order *o, nsec_t timeout)
{
        struct status st;

        o->is_over = has_risen;
        o->version = c->newest;
        if (has_risen(c, o, &st))
                return o->done(o, st);
        core_timeout_start(c, &o->timeout, timeout, timed_out);
        LIST_INSERT_HEAD(&c->orders, o, next);
}

static bool rises_by_itself(const struct core *c)
{
        return c->cfg.finish_after > 0 && core_status(c).leader &&
               replica_rise(c->replica).to > c->state.cluster_version;
}

void core_upgrade_run(struct core *c)
{
        struct status st;

        if (!rises_by_itself(c) || boot_before(c->now, c->upgrade.again_at) ||
            boot_diff(c->now, replica_rise(c->replica).since) < c->cfg.finish_after)
                return;
        PROBE("the cluster version rises by itself");
        c->upgrade.again_at = boot_add(c->now, AGAIN);
        (void) raise_it(c, &st);
}

struct boot_time core_upgrade_next(const struct core *c)
{
        return rises_by_itself(c)
                       ? boot_max(boot_add(replica_rise(c->replica).since, c->cfg.finish_after),
                                  c->upgrade.again_at)
                       : BOOT_TIME_NEVER;
}
