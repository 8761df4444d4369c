#include "core/internal.h"

#include "base/conf.h"
#include "base/probe.h"

#define READS_AT_ONCE 1500       /* answered in one turn; expensive ones have their own turns */
#define GONE_AT_ONCE 8192        /* freed in one turn: about 2 ms */
#define GONE_PAUSE NSEC_PER_MSEC /* until more is freed */
#define DESCEND_AGAIN (250 * NSEC_PER_MSEC)

int core_new(struct core **ret, const struct core_config *cfg, struct boot_time now)
{
        struct core *c = calloc(1, sizeof(*c));

        if (!c)
                return -ENOMEM;
        c->cfg = *cfg;
        c->newest = cfg->version > 0 ? cfg->version : CLUSTER_NEWEST;
        c->now = now;
        state_init(&c->state);
        rnd_init(&c->rnd, cfg->seed);
        shares_init(&c->shares, cfg->waiting_max);
        c->changes.shares = &c->shares;
        TAILQ_INIT(&c->usual_timeouts);
        RB_INIT(&c->shorter_timeouts);
        RB_INIT(&c->writes);
        c->repropose_from = NO_WRITE;
        TAILQ_INIT(&c->reads);
        TAILQ_INIT(&c->arrived);
        TAILQ_INIT(&c->queued);
        STAILQ_INIT(&c->gone);
        TAILQ_INIT(&c->waiting);
        LIST_INIT(&c->orders);
        c->waiting_at = BOOT_TIME_NEVER;
        c->busy_since = BOOT_TIME_NEVER;
        renew_pace_init(&c->pace, cfg->ahead_divisor);
        /* Commands of an earlier process of this replica may still be in the log, and its reads
         * at a stalled leader, so numbers must not repeat. */
        c->next_seq = rnd_u64(&c->rnd) >> 1;
        c->next_read = rnd_u64(&c->rnd) >> 1;
        c->issuer = rnd_u64(&c->rnd);
        c->changes.requests = rnd_u64(&c->rnd) >> 1;
        *ret = c;
        return 0;
}

struct core *core_free(struct core *c)
{
        struct budget all = BUDGET_ALL;

        if (!c)
                return NULL;
        changes_end(&c->changes);
        core_orders_end(c);
        /* A caller whose write failed may start a read, and vice versa: giving up a lock
         * deletes its key. */
        while (!RB_EMPTY(&c->writes) || !TAILQ_EMPTY(&c->reads)) {
                core_write_stop_first(c);
                core_read_stop_first(c);
        }
        core_renewals_fail(c, &c->arrived, status_stopped);
        core_renewals_fail(c, &c->queued, status_stopped);
        for (unsigned i = 0; i < REPLICA_SAVES; i++)
                state_saver_fini(&c->savers[i]);
        core_drop_loaded(c);
        (void) !core_free_gone(c, &all);
        state_fini(&c->state);
        shares_fini(&c->shares);
        buf_fini(&c->part.out);
        free(c->member_name);
        free(c->member_urls);
        buf_fini(&c->command);
        free(c);
        return NULL;
}

void core_set_owner(struct core *c, const struct core_owner *owner, void *userdata)
{
        c->owner = owner;
        c->owner_data = userdata;
}

void core_attach(struct core *c, struct replica *r)
{
        c->replica = c->changes.replica = r;
        c->replayed_to = replica_status(r).last;
        replica_set_version(r, c->state.cluster_version);
}

const struct replica *core_replica(const struct core *c)
{
        return c->replica;
}

struct state *core_state(struct core *c)
{
        return &c->state;
}

const struct core_config *core_config(const struct core *c)
{
        return &c->cfg;
}

struct replica_status core_status(const struct core *c)
{
        return c->replica ? replica_status(c->replica) : (struct replica_status){0};
}

uint64_t core_term(const struct core *c)
{
        return c->replica ? replica_term(c->replica) : 0;
}

const struct core_counts *core_counts(const struct core *c)
{
        return &c->counts;
}

struct shares *core_shares(struct core *c)
{
        return &c->shares;
}

size_t core_n_writes(const struct core *c)
{
        return c->n_writes;
}

struct core_link core_link(const struct core *c, uint64_t peer)
{
        return c->owner && c->owner->link ? c->owner->link(c->owner_data, peer)
                                          : (struct core_link){0};
}

struct lease_time core_next_deadline(struct core *c)
{
        return deadlines_next(&c->state.deadlines);
}

int64_t core_new_lease_id(struct core *c)
{
        int64_t id;

        do
                id = (int64_t) (rnd_u64(&c->rnd) >> 1);
        while (id <= 0 || leases_find(&c->state.leases, id));
        return id;
}

const bool *core_half_applied(const struct core *c)
{
        return &c->state.removal.on;
}

struct boot_time core_now(const struct core *c)
{
        return c->now;
}

const struct boot_time *core_clock(const struct core *c)
{
        return &c->now;
}

struct lease_time core_lease_time(const struct core *c)
{
        return replica_lease_time(c->replica, c->now);
}

void core_header(const struct core *c, Pb__ResponseHeader *h)
{
        pb__response_header__init(h);
        h->cluster_id = c->cfg.cluster_id;
        h->member_id = c->cfg.member_id;
        h->raft_term = core_term(c);
        h->revision = c->state.revision;
        h->ancestor = core_ancestor(c);
}

/* ---- other cores ---- */

uint64_t core_ancestor(const struct core *c)
{
        return c->cfg.ancestor != 0 ? c->cfg.ancestor
                                    : state_ancestor(&c->state, c->cfg.cluster_id);
}

bool core_has_to_descend(const struct core *c)
{
        return c->cfg.ancestor != 0 && c->state.cluster_version >= CLUSTER_0_2 &&
               state_ancestor(&c->state, c->cfg.cluster_id) != c->cfg.ancestor;
}

/* Only the directory of the replica that was forced has the ancestor. Writes it into the log,
 * from which all members learn it, and keep it whichever member is removed later. */
static void descend(struct core *c)
{
        cleanup_(buf_fini) struct buf body = {0};

        if (!core_has_to_descend(c) || core_status(c).leader_id == 0 ||
            boot_before(c->now, c->descend_at))
                return;
        c->descend_at = boot_add(c->now, DESCEND_AGAIN);
        cmd_descend(&body, c->cfg.cluster_id, c->cfg.ancestor);
        (void) !core_propose_own(c, CMD_DESCEND, &body);
}

bool core_is_kin(const struct core *c, uint64_t id, uint64_t ancestor)
{
        return id != 0 && id != c->cfg.cluster_id && ancestor != 0 &&
               (ancestor == c->cfg.cluster_id || ancestor == core_ancestor(c));
}

/* At cluster version 1 nobody can read why the alarm is raised, and it stops writes alone. The
 * version counts where it is applied: ours may be behind. */
void core_hear_of(struct core *c, uint64_t id)
{
        cleanup_(buf_fini) struct buf alarm = {0};
        Pb__AlarmRequest q = PB__ALARM_REQUEST__INIT;
        bool raised = c->state.cluster_version >= CLUSTER_0_2
                              ? state_sibling(&c->state) != 0
                              : state_alarmed(&c->state, PB__ALARM_TYPE__CORRUPT);

        if (raised || boot_before(c->now, c->sibling_at))
                return;
        PROBE("a core hears of another one that goes on from the same data");
        c->sibling_at = boot_add(c->now, NSEC_PER_SEC);
        q.action = PB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE;
        q.alarm = PB__ALARM_TYPE__CORRUPT;
        q.memberid = id;
        q.sibling = true;
        pb_append(&alarm, &q.base);
        (void) !core_propose_own(c, CMD_ALARM, &alarm);
}

/* ---- members ---- */

static void member_done(struct core_write *w, struct status st, struct view reply)
{
        struct core *c = container_of(w, struct core, member);

        (void) st;
        (void) reply;
        c->member_out = false;
}

/* Writes this replica's own entry of MemberList into the log, unless it is there already. */
static void introduce(struct core *c)
{
        cleanup_(buf_fini) struct buf body = {0};
        Pb__Member m = PB__MEMBER__INIT;
        cleanup_(arena_fini) struct arena a = {0};
        const struct member *is = state_member(&c->state, c->cfg.member_id);

        if (!c->member_name || c->member_out || core_status(c).leader_id == 0)
                return;
        if (is && strcmp(is->name, c->member_name) == 0 &&
            strcmp(is->client_urls, c->member_urls) == 0)
                return;
        m.id = c->cfg.member_id;
        m.name = c->member_name;
        if (list_split(c->member_urls, &a, &m.clienturls, &m.n_clienturls) < 0)
                return; /* out of memory: tried again later */
        pb_append(&body, &m.base);
        c->member.done = member_done;
        c->member_out = buf_error(&body) == 0 && core_write(c, &c->member, CMD_MEMBER, NULL,
                                                            body.data, buf_len(&body), 0) == 0;
}

int core_set_member(struct core *c, const char *name, const char *client_urls)
{
        c->member_name = strdup(name);
        c->member_urls = strdup(client_urls);
        return c->member_name && c->member_urls ? 0 : -ENOMEM;
}

/* ---- requests of operators ---- */

int core_change_members(struct core *c, struct core_change *ch, nsec_t timeout)
{
        return changes_ask(&c->changes, ch, c->now,
                           timeout > 0 ? min_of(timeout, c->cfg.timeout) : c->cfg.timeout);
}

uint64_t core_new_member_id(struct core *c)
{
        return rnd_u64(&c->rnd) | 1;
}

uint64_t core_installs(const struct core *c)
{
        return c->installs;
}

static bool is_no_member(uint64_t id, void *arg)
{
        return replica_excludes(arg, id) != 0;
}

static void keep_up(struct core *c)
{
        cleanup_(buf_fini) struct buf alarm = {0}, disk = {0}, former = {0}, compact = {0};
        struct replica_status st = core_status(c);
        enum cmd_type type;

        if (st.leader_id != 0 && upkeep_quota(&c->upkeep, &c->cfg, &c->state, c->now, &alarm))
                (void) !core_propose_own(c, CMD_ALARM, &alarm);
        if (st.leader_id != 0 &&
            upkeep_disk(&c->upkeep, &c->cfg, &c->state, st.short_of_room, c->now, &disk))
                (void) !core_propose_own(c, CMD_ALARM, &disk);
        type = st.leader ? upkeep_former(&c->upkeep, &c->state, is_no_member, c->replica,
                                         c->now, &former)
                         : 0;
        if (type != 0)
                (void) !core_propose_own(c, type, &former);
        if (upkeep_compact(&c->upkeep, &c->cfg, &c->state, c->now, &compact) && st.leader)
                (void) !core_propose_own(c, CMD_COMPACT, &compact);
}

/* ---- time ---- */

void core_run(struct core *c, struct boot_time now)
{
        c->now = boot_max(c->now, now);
        core_timeouts_run(c);
        core_expire(c);
        core_log_time(c);
        core_waiting_run(c);
        keep_up(c);
        changes_run(&c->changes, c->now);
        core_orders_run(c);
        core_upgrade_run(c);
        descend(c);
        introduce(c);
        core_reads_catch_up(c);
}

struct boot_time core_next(struct core *c)
{
        struct boot_time soon = boot_add(c->now, NSEC_PER_MSEC),
                         next = boot_min(changes_next(&c->changes),
                                         boot_max(core_timeouts_next(c), soon));
        struct replica_status st = core_status(c);

        if (c->skipped.on || (c->repropose_from != NO_WRITE && st.leader_id != 0) ||
            !TAILQ_EMPTY(&c->arrived) || core_reads_ready(c) || core_waiting_is_due(c))
                next = boot_min(next, c->now);
        if (!STAILQ_EMPTY(&c->gone))
                next = boot_min(next, c->gone_at);
        if (!c->part.on) /* otherwise the batch waits until the entry is applied */
                next = boot_min(next, renew_pace_next(&c->pace));
        if (!TAILQ_EMPTY(&c->waiting))
                next = boot_min(next, c->waiting_at);
        /* Lease time that stands still advances again in a turn that has another cause. */
        if (st.leader && replica_healthy(c->replica, c->now)) {
                next = boot_min(next,
                                boot_max(c->expire_not_before,
                                         replica_lease_when(c->replica,
                                                            deadlines_next(&c->state.deadlines),
                                                            c->now)));
                if (c->state.leases.n > 0 || c->term_seen != st.term)
                        next = boot_min(next, boot_max(c->tick_at, soon));
        }
        if (core_has_to_descend(c) && st.leader_id != 0)
                next = boot_min(next, boot_max(c->descend_at, soon));
        if (c->cfg.compact_keep > 0 || c->cfg.compact_age > 0)
                next = boot_min(
                        next,
                        boot_max(upkeep_compact_next(&c->upkeep, &c->state, st.leader), soon));
        if (st.leader_id != 0 && upkeep_disk_due(&c->cfg, &c->state, st.short_of_room))
                next = boot_min(next, boot_max(c->upkeep.disk_at, soon));
        return boot_min(next, boot_max(core_upgrade_next(c), soon));
}

void core_flush(struct core *c, struct boot_time now)
{
        uint64_t applied = c->replica ? replica_applied(c->replica) : 0;
        struct budget left = {GONE_AT_ONCE};

        c->now = boot_max(c->now, now);
        c->reads_left = READS_AT_ONCE;
        /* apply_entry() serves reads as well, but some entries hold no commands. */
        if (!c->part.on)
                core_reads_serve(c, max_of(applied, c->served));
        core_renewals_run(c, false);
        if (c->skipped.on)
                core_writes_end_skipped(c);
        if (!c->skipped.on)
                core_writes_repropose(c);
        if (!STAILQ_EMPTY(&c->gone) && !boot_before(c->now, c->gone_at)) {
                c->gone_at = boot_add(c->now, GONE_PAUSE);
                (void) !core_free_gone(c, &left);
        }
}
