/* Cluster: lists and changes the members. */
#include "etcd/internal.h"

#include <stdio.h>

#include "base/conf.h"
#include "base/url.h"

struct list {
        const struct core *core;
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

static void add_member(uint64_t id, const char *address, bool voter, void *arg)
{
        struct list *l = arg;
        Pb__Member *m = arena_alloc(l->arena, sizeof(*m));
        const struct member *said = state_member(l->state, id);

        if (!m || l->out->n_members == REPLICA_PEERS_MAX) {
                l->failed = true;
                return;
        }
        pb__member__init(m);
        m->id = id;
        m->islearner = !voter && !replica_will_vote(core_replica(l->core), id);
        if (list_split(address, l->arena, &m->peerurls, &m->n_peerurls) < 0)
                l->failed = true;
        if (said) {
                m->name = copy(l->arena, said->name);
                if (list_split(said->client_urls, l->arena, &m->clienturls, &m->n_clienturls) <
                    0)
                        l->failed = true;
        }
        l->failed = l->failed || !m->name;
        l->out->members[l->out->n_members++] = m;
}

/* Fills @p; the memory is from @a. */
static int list_members(struct core *core, struct arena *a, Pb__MemberListResponse *p,
                        Pb__ResponseHeader *h)
{
        struct list l = {.core = core, .arena = a, .state = core_state(core), .out = p};

        p->members = arena_alloc(a, REPLICA_PEERS_MAX * sizeof(*p->members));
        if (!p->members)
                return -ENOMEM;
        replica_each_peer(core_replica(core), add_member, &l);
        core_header(core, h);
        p->header = h;
        return l.failed ? -ENOMEM : 0;
}

static void answer_members(struct request *q)
{
        Pb__MemberListResponse p = PB__MEMBER_LIST_RESPONSE__INIT;
        cleanup_(arena_fini) struct arena a = {0};
        Pb__ResponseHeader h;

        if (list_members(q->api->core, &a, &p, &h) < 0)
                return request_fail(q, status_nomem);
        request_reply(q, &p.base);
}

/* ---- changes ---- */

static struct status status_of_change(int outcome)
{
        switch (outcome) {
        case 0:
                return status_ok;
        case REPLICA_E_UNKNOWN:
                return (struct status){RPC_NOT_FOUND, "etcdserver: member not found"};
        case REPLICA_E_EXISTS:
                return (struct status){RPC_FAILED_PRECONDITION,
                                       "etcdserver: Peer URLs already exists"};
        case REPLICA_E_TOO_MANY:
                return (struct status){RPC_FAILED_PRECONDITION,
                                       "etcdserver: too many learner members in cluster"};
        case REPLICA_E_VOTER:
                return (struct status){RPC_FAILED_PRECONDITION,
                                       "etcdserver: can only promote a learner member"};
        case REPLICA_E_BEHIND:
                return (struct status){
                        RPC_FAILED_PRECONDITION,
                        "etcdserver: can only promote a learner member which is in sync with "
                        "leader"};
        case REPLICA_E_LAST:
                return (struct status){RPC_FAILED_PRECONDITION,
                                       "etcdserver: re-configuration failed due to not enough "
                                       "started members"};
        case REPLICA_E_NOT_STARTED:
                return (struct status){RPC_FAILED_PRECONDITION,
                                       "etcdserver: re-configuration failed due to not enough "
                                       "started members"};
        case REPLICA_E_ALIVE:
                return (struct status){
                        RPC_FAILED_PRECONDITION,
                        "tenure: the member answers; only one that does not is replaced: if "
                        "its data directory is lost, stop it first"};
        case REPLICA_E_UNCLAIMED:
                return (struct status){RPC_FAILED_PRECONDITION,
                                       "tenure: the member has no data directory yet; start it "
                                       "with an empty one"};
        case REPLICA_E_UNHEALTHY:
                return (struct status){RPC_UNAVAILABLE, "etcdserver: unhealthy cluster"};
        default:
                return status_timeout;
        }
}

/* The change that the core is asked for; kept with the request. */
struct change {
        struct core_change core;
        struct request *q;
};

static void drop(struct request *q)
{
        free(q->data);
}

/* This replica may not know the new member yet, so the answer describes it as requested. */
static void answer_added(struct request *q, struct arena *a, Pb__MemberListResponse *all,
                         const struct core_change *ch)
{
        Pb__MemberAddResponse p = PB__MEMBER_ADD_RESPONSE__INIT;
        struct list l = {.core = q->api->core,
                         .arena = a,
                         .state = core_state(q->api->core),
                         .out = all};

        for (size_t i = 0; i < all->n_members; i++)
                if (all->members[i]->id == ch->id)
                        p.member = all->members[i];
        if (!p.member) {
                add_member(ch->id, ch->address, ch->what == REPLICA_ADD, &l);
                if (l.failed)
                        return request_fail(q, status_nomem);
                p.member = all->members[all->n_members - 1];
        }
        p.header = all->header;
        p.members = all->members;
        p.n_members = all->n_members;
        request_reply(q, &p.base);
}

static void answer_replaced(struct request *q, const struct core_change *ch,
                            Pb__ResponseHeader *h)
{
        Pb__ReplaceMemberResponse p = PB__REPLACE_MEMBER_RESPONSE__INIT;
        Pb__Member m = PB__MEMBER__INIT;

        m.id = ch->id;
        m.islearner = true;
        p.header = h;
        p.member = &m;
        request_reply(q, &p.base);
}

/* The answers to remove, update, promote and list have the same layout: header = 1, members =
 * 2. */
static void changed(struct core_change *ch, int outcome)
{
        struct change *c = container_of(ch, struct change, core);
        struct request *q = c->q;
        Pb__MemberListResponse p = PB__MEMBER_LIST_RESPONSE__INIT;
        cleanup_(arena_fini) struct arena a = {0};
        Pb__ResponseHeader h;

        q->waiting = false;
        if (outcome == REPLICA_E_TOO_MANY && ch->what == REPLICA_REPLACE)
                return request_fail(q, (struct status){RPC_FAILED_PRECONDITION,
                                                       "tenure: there is a learner, which has "
                                                       "to be promoted or removed first"});
        if (outcome != 0)
                return request_fail(q, status_of_change(outcome));
        if (list_members(q->api->core, &a, &p, &h) < 0)
                return request_fail(q, status_nomem);
        if (ch->what == REPLICA_ADD || ch->what == REPLICA_ADD_LEARNER)
                return answer_added(q, &a, &p, ch);
        if (ch->what == REPLICA_REPLACE)
                return answer_replaced(q, ch, &h);
        request_reply(q, &p.base);
}

static void change(struct request *q, enum replica_change what, uint64_t id,
                   const char *address)
{
        struct change *c = calloc(1, sizeof(*c));

        if (!c)
                return request_fail(q, status_nomem);
        c->q = q;
        c->core.done = changed;
        c->core.what = what;
        c->core.id = id;
        c->core.by = requester_of(q->call, &q->who);
        snprintf(c->core.address, sizeof(c->core.address), "%s", address);
        q->data = c;
        q->drop = drop;
        q->waiting = true;
        if (core_change_members(q->api->core, &c->core, q->call->timeout) < 0) {
                q->waiting = false;
                request_fail(q, status_too_many);
        }
}

static const struct status status_bad_urls = {RPC_INVALID_ARGUMENT,
                                              "etcdserver: given member URLs are invalid"};
static const struct status status_plaintext = {
        RPC_INVALID_ARGUMENT,
        "peer URLs of another machine are http://, which anybody there can "
        "read and forge: use https://, or set AllowPlaintextPeers=yes on "
        "each replica"};

/* Writes a member's peer URLs in the form of the replicas' configuration. */
static struct status peer_urls(const struct request *q, char **urls, size_t n,
                               char out[static URLS_MAX])
{
        struct url u;

        if (urls_join(urls, n, out) < 0)
                return status_bad_urls;
        for (size_t i = 0; i < n; i++)
                if (url_parse(urls[i], &u) == 0 && !u.tls && !url_is_loopback(&u) &&
                    !core_config(q->api->core)->plaintext_peers)
                        return status_plaintext;
        return status_ok;
}

static void member_add(struct request *q)
{
        const Pb__MemberAddRequest *m = q->msg;
        char urls[URLS_MAX];
        struct status st = peer_urls(q, m->peerurls, m->n_peerurls, urls);

        if (st.code != RPC_OK)
                return request_fail(q, st);
        change(q, m->islearner ? REPLICA_ADD_LEARNER : REPLICA_ADD,
               core_new_member_id(q->api->core), urls);
}

static void member_remove(struct request *q)
{
        const Pb__MemberRemoveRequest *m = q->msg;

        change(q, REPLICA_REMOVE, m->id, "");
}

static void member_promote(struct request *q)
{
        const Pb__MemberPromoteRequest *m = q->msg;

        change(q, REPLICA_PROMOTE, m->id, "");
}

struct sought {
        uint64_t id;
        char urls[URLS_MAX]; /* "": not found */
};

static void seek(uint64_t id, const char *address, bool voter, void *arg)
{
        struct sought *s = arg;

        (void) voter;
        if (id == s->id)
                snprintf(s->urls, sizeof(s->urls), "%s", address);
}

static void member_replace(struct request *q)
{
        const Pb__ReplaceMemberRequest *m = q->msg;
        struct sought sought = {.id = m->id};

        replica_each_peer(core_replica(q->api->core), seek, &sought);
        if (!*sought.urls)
                return request_fail(q, status_of_change(REPLICA_E_UNKNOWN));
        if (core_state(q->api->core)->cluster_version < CLUSTER_0_2)
                return request_fail(
                        q, (struct status){RPC_FAILED_PRECONDITION,
                                           "tenure: the cluster version is 0.1, at which no "
                                           "member is replaced: finish the upgrade first "
                                           "(tenurectl core upgrade --finish)"});
        change(q, REPLICA_REPLACE, core_new_member_id(q->api->core), sought.urls);
}

/* Of a member that is not there, etcd does not look at the URLs. */
static void member_update(struct request *q)
{
        const Pb__MemberUpdateRequest *m = q->msg;
        char urls[URLS_MAX];
        struct status st = peer_urls(q, m->peerurls, m->n_peerurls, urls);
        struct sought sought = {.id = m->id};

        replica_each_peer(core_replica(q->api->core), seek, &sought);
        if (st.code != RPC_OK)
                return request_fail(q, *sought.urls ? st : status_of_change(REPLICA_E_UNKNOWN));
        change(q, REPLICA_MOVE, m->id, urls);
}

/* ---- the list ---- */

static void member_list(struct request *q)
{
        const Pb__MemberListRequest *m = q->msg;

        if (m->linearizable)
                return request_read(q, answer_members);
        answer_members(q);
}

const struct method cluster_methods[] = {
        {"/etcdserverpb.Cluster/MemberList", &pb__member_list_request__descriptor, member_list,
         .access = FOR_ALL, .always = true},
        {"/etcdserverpb.Cluster/MemberAdd", &pb__member_add_request__descriptor, member_add,
         .access = FOR_ROOT},
        {"/etcdserverpb.Cluster/MemberRemove", &pb__member_remove_request__descriptor,
         member_remove, .access = FOR_ROOT},
        {"/etcdserverpb.Cluster/MemberPromote", &pb__member_promote_request__descriptor,
         member_promote, .access = FOR_ROOT},
        {"/tenurepb.Cluster/ReplaceMember", &pb__replace_member_request__descriptor,
         member_replace, .access = FOR_ROOT},
        {"/etcdserverpb.Cluster/MemberUpdate", &pb__member_update_request__descriptor,
         member_update, .access = FOR_ROOT},
};
const size_t n_cluster_methods = ARRAY_SIZE(cluster_methods);
