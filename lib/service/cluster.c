/* Cluster, Maintenance and health: what this replica knows of itself and of the others. */
#include "service/internal.h"

#include "base/conf.h"

struct list {
        struct arena *arena;
        struct state *state;
        Pb__MemberListResponse *out;
        bool failed;
};

static char *copy(struct arena *a, const char *s)
{
        char *c = arena_alloc(a, strlen(s) + 1);

        return c ? strcpy(c, s) : NULL;
}

static void fill_urls(struct list *l, Pb__Member *m, const char *joined)
{
        const char *cursor = joined;
        char url[320];

        m->clienturls = arena_alloc(l->arena, 8 * sizeof(*m->clienturls));
        while (m->clienturls && m->n_clienturls < 8 && list_next(&cursor, url, sizeof(url)))
                m->clienturls[m->n_clienturls++] = copy(l->arena, url);
        l->failed = l->failed || !m->clienturls;
}

static void add_member(uint64_t id, const char *address, bool voter, void *arg)
{
        struct list *l = arg;
        Pb__Member *m = arena_alloc(l->arena, sizeof(*m));

        if (!m || l->out->n_members == REPLICA_PEERS_MAX) {
                l->failed = true;
                return;
        }
        pb__member__init(m);
        m->id = id;
        m->islearner = !voter;
        m->peerurls = arena_alloc(l->arena, sizeof(*m->peerurls));
        if (m->peerurls)
                m->peerurls[m->n_peerurls++] = copy(l->arena, address);
        for (size_t i = 0; i < l->state->n_members; i++)
                if (l->state->members[i].id == id) {
                        m->name = copy(l->arena, l->state->members[i].name);
                        fill_urls(l, m, l->state->members[i].client_urls);
                }
        l->failed = l->failed || !m->peerurls || !m->peerurls[0] || !m->name;
        l->out->members[l->out->n_members++] = m;
}

static void answer_members(struct request *q)
{
        Pb__MemberListResponse p = PB__MEMBER_LIST_RESPONSE__INIT;
        cleanup_(arena_fini) struct arena a = {0};
        struct list l = {.arena = &a, .state = core_state(q->api->core), .out = &p};
        Pb__ResponseHeader h;

        p.members = arena_alloc(&a, REPLICA_PEERS_MAX * sizeof(*p.members));
        if (p.members)
                core_each_peer(q->api->core, add_member, &l);
        if (!p.members || l.failed)
                return request_fail(q,
                                    (struct status){RPC_RESOURCE_EXHAUSTED, "out of memory"});
        core_header(q->api->core, &h);
        p.header = &h;
        request_reply(q, &p.base);
}

static void member_list(struct request *q)
{
        const Pb__MemberListRequest *m = q->msg;

        if (m->linearizable)
                return request_read(q, answer_members);
        answer_members(q);
}

static void status(struct request *q)
{
        static char no_leader[] = "etcdserver: no leader";
        char *errors[] = {no_leader}, version[] = API_VERSION;
        Pb__StatusResponse p = PB__STATUS_RESPONSE__INIT;
        struct replica_status s = core_status(q->api->core);
        struct state *state = core_state(q->api->core);
        Pb__ResponseHeader h;

        core_header(q->api->core, &h);
        p.header = &h;
        p.version = version;
        p.leader = s.leader_id;
        p.raftindex = s.commit;
        p.raftterm = s.term;
        p.raftappliedindex = s.applied;
        p.dbsize = (int64_t) s.disk_bytes;
        p.dbsizeinuse = (int64_t) min_of(state->kv.bytes, (size_t) s.disk_bytes);
        if (s.leader_id == 0) {
                p.errors = errors;
                p.n_errors = 1;
        }
        request_reply(q, &p.base);
}

/* grpc/doc/health-checking.md: "" is the server as a whole. */
static void health(struct request *q)
{
        const Pb__HealthCheckRequest *m = q->msg;
        Pb__HealthCheckResponse p = PB__HEALTH_CHECK_RESPONSE__INIT;

        if (*m->service)
                return request_fail(q, (struct status){RPC_NOT_FOUND, "unknown service"});
        p.status = core_status(q->api->core).leader_id != 0
                           ? PB__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
                           : PB__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING;
        request_reply(q, &p.base);
}

const struct method cluster_methods[] = {
        {"/etcdserverpb.Cluster/MemberList", &pb__member_list_request__descriptor, member_list},
        {"/etcdserverpb.Maintenance/Status", &pb__status_request__descriptor, status},
        {"/grpc.health.v1.Health/Check", &pb__health_check_request__descriptor, health},
};
const size_t n_cluster_methods = ARRAY_SIZE(cluster_methods);
