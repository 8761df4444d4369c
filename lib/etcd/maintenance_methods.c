/* Maintenance and health: the replica's own status, and an operator's commands to it. */
#include <inttypes.h>
#include <stdio.h>

#include "etcd/internal.h"

static char *cluster_version(const struct state *s)
{
        return (char *) (uintptr_t) cluster_version_name(s->cluster_version);
}

struct member_versions {
        const struct core *core;
        size_t n;
        Pb__MemberVersion of[REPLICA_PEERS_MAX], *list[REPLICA_PEERS_MAX];
        struct introduction in[REPLICA_PEERS_MAX];
};

static void add_version(uint64_t id, const char *address, bool voter, void *arg)
{
        struct member_versions *all = arg;
        Pb__MemberVersion *v = &all->of[all->n];
        struct introduction *in = &all->in[all->n];
        struct replica_member m = replica_member(core_replica(all->core), id);
        bool linked;

        (void) address;
        (void) voter;
        pb__member_version__init(v);
        v->id = id;
        v->refused = m.refused;
        v->replaces = m.replaces;
        v->behind = replica_lag(core_replica(all->core), id);
        if (replica_member_version(core_replica(all->core), id, in, &linked)) {
                v->version = in->program;
                v->linked = linked;
                v->newest_cluster_version =
                        (char *) (uintptr_t) cluster_version_name(in->newest);
        }
        all->list[all->n++] = v;
}

struct awaited {
        uint64_t id;
        char urls[URLS_MAX];
};

static void find_awaited(uint64_t id, const char *address, bool voter, void *arg)
{
        struct awaited *m = arg;

        (void) voter;
        if (id == m->id)
                snprintf(m->urls, sizeof(m->urls), "%s", address);
}

bool api_waits(const struct api *a, char text[static API_WAITS])
{
        struct awaited m = {.id = core_status(a->core).awaits};

        if (m.id == 0)
                return false;
        replica_each_peer(core_replica(a->core), find_awaited, &m);
        snprintf(text, API_WAITS,
                 "tenure: this replica waits for member %016" PRIx64
                 " at %.200s: start it. A new cluster begins when each of its members has "
                 "started; if this one is not new, the disk of this replica was lost, and it "
                 "waits for a member that has data",
                 m.id, m.urls);
        return true;
}

/* Without memory for them, the answer has none. The caller frees *@ret. */
static void add_times(const struct api *a, Pb__StatusResponse *p, void **ret)
{
        size_t n = revision_times_kept(&a->times);
        Pb__RevisionTime **list = calloc(n, sizeof(*list) + sizeof(**list)), *t;

        *ret = list;
        t = list ? (Pb__RevisionTime *) (list + n) : NULL;
        for (size_t i = 0; t && i < n; i++) {
                const struct revision_time *r = revision_times_at(&a->times, i);

                pb__revision_time__init(&t[i]);
                t[i].revision = r->revision;
                t[i].ago_ms = boot_diff(core_now(a->core), r->at) / NSEC_PER_MSEC;
                list[i] = &t[i];
        }
        p->revision_times = list;
        p->n_revision_times = list ? n : 0;
}

static void status(struct request *q)
{
        static char tenure[] = TENURE_VERSION;
        static char no_leader[] = "etcdserver: no leader", nospace[] = "alarm:NOSPACE ",
                    corrupt[] = "alarm:CORRUPT ",
                    forgetful[] =
                            "tenure: a member lacks entries that it has acknowledged: see "
                            "the leader's log";
        char *errors[6], storage[] = "3.4.0", stopped[320], waits[API_WAITS];
        Pb__StatusResponse p = PB__STATUS_RESPONSE__INIT;
        Pb__DowngradeInfo downgrade = PB__DOWNGRADE_INFO__INIT;
        struct replica_status s = core_status(q->api->core);
        uint64_t disk_bytes = replica_disk_bytes(core_replica(q->api->core));
        struct state *state = core_state(q->api->core);
        struct member_versions versions = {.core = q->api->core};
        struct api_load load = {0};
        cleanup_(freep) void *times = NULL;
        Pb__ResponseHeader h;

        replica_each_peer(core_replica(q->api->core), add_version, &versions);
        if (q->api->conns.load)
                load = q->api->conns.load(q->api->conns_arg);
        core_header(q->api->core, &h);
        p.header = &h;
        p.version = q->api->version;
        p.storageversion = storage;
        p.downgradeinfo = &downgrade;
        p.leader = s.leader_id;
        p.raftindex = s.commit;
        p.raftterm = s.term;
        p.raftappliedindex = s.applied;
        p.islearner = s.learner;
        p.dbsize = (int64_t) disk_bytes;
        p.dbsizeinuse = (int64_t) min_of(state_bytes(state), (size_t) disk_bytes);
        p.dbsizequota = (int64_t) core_config(q->api->core)->quota;
        p.longest_turn_us = load.longest_turn / NSEC_PER_USEC;
        p.clients = (int64_t) load.connections;
        p.client_bytes = (int64_t) load.held;
        p.tenure_version = tenure;
        p.cluster_version = cluster_version(state);
        p.member_versions = versions.list;
        p.n_member_versions = versions.n;
        if (((const Pb__StatusRequest *) q->msg)->revision_times)
                add_times(q->api, &p, &times);
        p.errors = errors;
        if (s.leader_id == 0)
                errors[p.n_errors++] = no_leader;
        if (state_alarmed(state, PB__ALARM_TYPE__NOSPACE))
                errors[p.n_errors++] = nospace;
        if (state_alarmed(state, PB__ALARM_TYPE__CORRUPT))
                errors[p.n_errors++] = corrupt;
        if (api_is_stopped(q->api, stopped))
                errors[p.n_errors++] = stopped;
        if (api_waits(q->api, waits))
                errors[p.n_errors++] = waits;
        if (replica_forgetful(core_replica(q->api->core)) != 0)
                errors[p.n_errors++] = forgetful;
        request_reply(q, &p.base);
}

static void alarm_(struct request *q)
{
        request_write(q, CMD_ALARM, q->msg);
}

/* What the replica is ordered to do; kept with the request. */
struct order {
        struct core_order core;
        struct request *q;
};

static void drop_order(struct request *q)
{
        free(q->data);
}

static void withdraw_order(struct request *q)
{
        core_withdraw_order(q->api->core, &((struct order *) q->data)->core);
        request_end(q);
}

static void obeyed(struct core_order *o, struct status st)
{
        struct request *q = container_of(o, struct order, core)->q;

        if (st.code != RPC_OK)
                return request_fail(q, st);
        request_reply_header(q);
}

/* Returns NULL if out of memory, after answering the client. */
static struct core_order *order_new(struct request *q)
{
        struct order *o = calloc(1, sizeof(*o));

        if (!o) {
                request_fail(q, status_nomem);
                return NULL;
        }
        o->q = q;
        o->core.done = obeyed;
        q->data = o;
        q->drop = drop_order;
        q->gone = withdraw_order;
        return &o->core;
}

/* Once there is a new snapshot, the last one and old segments of the log are removed. */
static void defragment(struct request *q)
{
        struct core_order *o = order_new(q);

        if (o)
                core_take_snapshot(q->api->core, o);
}

static void move_leader(struct request *q)
{
        const Pb__MoveLeaderRequest *m = q->msg;
        struct core_order *o = order_new(q);

        if (o)
                core_move_leader(q->api->core, o, m->targetid, q->call->timeout);
}

static void finished(struct core_order *o, struct status st)
{
        struct request *q = container_of(o, struct order, core)->q;
        Pb__FinishUpgradeResponse p = PB__FINISH_UPGRADE_RESPONSE__INIT;
        Pb__ResponseHeader h;

        if (st.code != RPC_OK)
                return request_fail(q, st);
        core_header(q->api->core, &h);
        p.header = &h;
        p.cluster_version = cluster_version(core_state(q->api->core));
        request_reply(q, &p.base);
}

static void finish_upgrade(struct request *q)
{
        struct core_order *o = order_new(q);

        if (!o)
                return;
        o->done = finished;
        core_finish_upgrade(q->api->core, o, q->call->timeout);
}

/* No older version can run on this data yet. */
static void downgrade(struct request *q)
{
        const Pb__DowngradeRequest *m = q->msg;

        if (m->action == PB__DOWNGRADE_REQUEST__DOWNGRADE_ACTION__CANCEL)
                return request_fail(q,
                                    (struct status){RPC_FAILED_PRECONDITION,
                                                    "etcdserver: no inflight downgrade job"});
        request_fail(q, (struct status){RPC_INVALID_ARGUMENT,
                                        "etcdserver: invalid downgrade target version"});
}

/* grpc/doc/health-checking.md: "" is the server as a whole. */
static void health(struct request *q)
{
        const Pb__HealthCheckRequest *m = q->msg;
        Pb__HealthCheckResponse p = PB__HEALTH_CHECK_RESPONSE__INIT;

        if (*m->service)
                return request_fail(q, (struct status){RPC_NOT_FOUND, "unknown service"});
        p.status = core_status(q->api->core).leader_id != 0 &&
                                   state_sibling(core_state(q->api->core)) == 0
                           ? PB__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                           : PB__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
        request_reply(q, &p.base);
}

const struct method maintenance_methods[] = {
        {"/etcdserverpb.Maintenance/Status", &pb__status_request__descriptor, status,
         .access = FOR_ALL, .at_learner = LEARNER_ANSWERS, .always = true},
        {"/etcdserverpb.Maintenance/Hash", &pb__hash_request__descriptor, hash,
         .access = FOR_ROOT},
        {"/etcdserverpb.Maintenance/HashKV", &pb__hash_kvrequest__descriptor, hash_kv,
         .access = FOR_ROOT},
        {"/etcdserverpb.Maintenance/Alarm", &pb__alarm_request__descriptor, alarm_,
         .access = FOR_USERS, .always = true},
        {"/etcdserverpb.Maintenance/Defragment", &pb__defragment_request__descriptor,
         defragment, .access = FOR_ROOT},
        {"/etcdserverpb.Maintenance/MoveLeader", &pb__move_leader_request__descriptor,
         move_leader, .access = FOR_ROOT},
        {"/tenurepb.Maintenance/FinishUpgrade", &pb__finish_upgrade_request__descriptor,
         finish_upgrade, .access = FOR_ROOT},
        {"/etcdserverpb.Maintenance/Downgrade", &pb__downgrade_request__descriptor, downgrade,
         .access = FOR_ROOT},
        {"/etcdserverpb.Maintenance/Snapshot", &pb__snapshot_request__descriptor, send_snapshot,
         .access = FOR_ROOT, .kind = SERVER_STREAM, .at_learner = LEARNER_ANSWERS,
         .always = true},
        {"/grpc.health.v1.Health/Check", &pb__health_check_request__descriptor, health,
         .access = FOR_ALL, .always = true},
};
const size_t n_maintenance_methods = ARRAY_SIZE(maintenance_methods);
