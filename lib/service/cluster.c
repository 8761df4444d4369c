/* Cluster: who the replicas are. */
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
                return request_fail(q, status_nomem);
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

const struct method cluster_methods[] = {
        {"/etcdserverpb.Cluster/MemberList", &pb__member_list_request__descriptor, member_list},
};
const size_t n_cluster_methods = ARRAY_SIZE(cluster_methods);
