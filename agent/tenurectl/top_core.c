#include "top_core.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/conf.h"
#include "base/url.h"
#include "base/utf8.h"
#include "ctl.h"
#include "top_history.h"

/* With more members than this, the time left is asked for all leases at once. */
#define LEASES_FROM 300
/* At most this many members per second, since the list grows with their number. */
#define LEASES_PER_SECOND 2000
#define SILENT_AFTER (3 * NSEC_PER_SEC)
#define MEMBERS_EACH (5 * NSEC_PER_SEC)

struct conn {
        struct top_core *core;
        struct endpoint *ep;
        char url[TALK_URL_MAX];
        struct rpc_call *status, *members, *leases; /* NULL: not under way */
        struct boot_time asked, answered;
        uint64_t member; /* the member behind it; 0: not known yet */
        char down[TOP_REASON];
};

struct top_core {
        struct loop *loop;
        struct top_model *model;
        const struct core_options *options;
        struct resolver *resolver;
        struct top_history *history;
        struct tls *tls;
        struct conn *conns[2 * TOP_REPLICAS]; /* owned */
        size_t n_conns;
        struct boot_time members_at, leases_at;
        uint64_t leader;
        int64_t wall;
        bool listed;   /* the list of members has arrived */
        bool ending;   /* calls end because we end: ignore their errors */
        char srv[256]; /* the name whose SRV records list endpoints; "": none, or they are known
                        */
        bool srv_tls, srv_failed;
        struct resolve_query *query; /* NULL: none is under way */
};

static struct top_replica *replica_of(const struct conn *n)
{
        struct top_model *m = n->core->model;

        for (size_t i = 0; i < m->n_replicas; i++)
                if (n->member != 0 && m->replicas[i].id == n->member)
                        return &m->replicas[i];
        return NULL;
}

/* Whether another connection leads to the same replica. */
static bool has_other(const struct conn *n)
{
        const struct top_core *c = n->core;

        for (size_t i = 0; i < c->n_conns; i++)
                if (c->conns[i] != n && c->conns[i]->member == n->member &&
                    endpoint_rpc(c->conns[i]->ep) && !endpoint_is_silent(c->conns[i]->ep))
                        return true;
        return false;
}

static void silent(struct conn *n, const char *why)
{
        struct top_replica *p = n->core->ending ? NULL : replica_of(n);

        utf8_print(n->down, sizeof(n->down), "%s", why);
        if (!p || has_other(n))
                return;
        if (p->answers)
                top_event(n->core->model, n->core->wall, TOP_WARNING,
                          "replica %s does not answer: %s", p->name, why);
        p->answers = p->leads = false;
        utf8_print(p->why, sizeof(p->why), "%s", why);
}

/* ---- status ---- */

static void leads(struct top_core *c, uint64_t leader, uint64_t term)
{
        struct top_model *m = c->model;
        uint64_t newest = 0;

        for (size_t i = 0; i < m->n_replicas; i++)
                if (m->replicas[i].answers)
                        newest = max_of(newest, m->replicas[i].term);
        if (term < newest || leader == 0)
                return;
        for (size_t i = 0; i < m->n_replicas; i++)
                m->replicas[i].leads = m->replicas[i].id == leader;
        if (leader == c->leader)
                return;
        for (size_t i = 0; i < m->n_replicas && c->leader != 0; i++)
                if (m->replicas[i].leads)
                        top_event(m, c->wall, TOP_WARNING, "replica %s leads now (term %llu)",
                                  m->replicas[i].name, (unsigned long long) term);
        c->leader = leader;
}

static void errors_text(const Pb__StatusResponse *p, char *out, size_t size)
{
        size_t at = 0;

        *out = '\0';
        for (size_t i = 0; i < p->n_errors && at < size; i++)
                at += (size_t) snprintf(out + at, size - at, "%s%s", i > 0 ? "; " : "",
                                        p->errors[i]);
}

static void status_message(struct rpc_call *call, struct view bytes)
{
        struct conn *n = call->userdata;
        struct top_model *m = n->core->model;
        struct boot_time now = loop_now(n->core->loop);
        Pb__StatusResponse *p = NULL;
        struct top_replica *r;

        if (pb_unpack(&pb__status_response__descriptor, bytes, &p) < 0)
                return;
        n->member = p->header ? p->header->member_id : 0;
        n->answered = now;
        *n->down = '\0';
        top_history_times(n->core->history, p, now);
        r = top_replica_get(m, n->member);
        if (r) {
                if (*r->why && !r->answers)
                        top_event(m, n->core->wall, TOP_NEWS, "replica %s answers again",
                                  r->name);
                r->answers = true;
                *r->why = '\0';
                r->heard = now;
                r->round_trip = boot_diff(now, n->asked);
                r->term = p->raftterm;
                r->applied = p->raftappliedindex;
                r->learner = p->islearner;
                r->db_bytes = p->dbsize;
                m->etcd = p->clients == 0; /* we are one of its clients */
                r->clients = m->etcd ? -1 : p->clients;
                r->turn_us = m->etcd ? -1 : p->longest_turn_us;
                snprintf(r->version, sizeof(r->version), "%s%setcd %s%s", p->tenure_version,
                         *p->tenure_version ? " (" : "", p->version,
                         *p->tenure_version ? ")" : "");
                snprintf(m->cluster_version, sizeof(m->cluster_version), "%s",
                         p->cluster_version);
                m->ancestor = p->header ? p->header->ancestor : 0;
                if (!*r->url)
                        snprintf(r->url, sizeof(r->url), "%s", n->url);
                errors_text(p, r->errors, sizeof(r->errors));
                leads(n->core, p->leader, p->raftterm);
                top_replicas_compare(m);
        }
        pb_free(p);
}

static void status_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct conn *n = call->userdata;

        if (code != RPC_OK)
                silent(n, *message ? message : rpc_code_text(code));
}

static void status_close(struct rpc_call *call)
{
        ((struct conn *) call->userdata)->status = NULL;
}

static const struct rpc_handler status_handler = {
        .on_message = status_message, .on_status = status_status, .on_close = status_close};

/* ---- members ---- */

static int add_all(struct top_core *c, const char *cursor, const char *scheme,
                   char why[TOP_REASON]);

static bool is_asked(const struct top_core *c, uint64_t id, const char *url)
{
        for (size_t i = 0; i < c->n_conns; i++)
                if ((id != 0 && c->conns[i]->member == id) ||
                    strcmp(c->conns[i]->url, url) == 0)
                        return true;
        return false;
}

static void members_message(struct rpc_call *call, struct view bytes)
{
        struct conn *n = call->userdata;
        struct top_core *c = n->core;
        struct top_model *m = c->model;
        Pb__MemberListResponse *p = NULL;

        if (pb_unpack(&pb__member_list_response__descriptor, bytes, &p) < 0)
                return;
        for (size_t i = m->n_replicas; i-- > 0;) {
                bool there = false;

                for (size_t k = 0; k < p->n_members; k++)
                        there = there || p->members[k]->id == m->replicas[i].id;
                if (!there)
                        top_replica_drop(m, i);
        }
        for (size_t k = 0; k < p->n_members; k++) {
                const Pb__Member *q = p->members[k];
                struct top_replica *r = top_replica_get(m, q->id);
                const char *url = q->n_clienturls > 0 ? q->clienturls[0] : "";

                if (!r)
                        break;
                /* A replica that has just started may not know the names yet. */
                if (*q->name)
                        snprintf(r->name, sizeof(r->name), "%s", q->name);
                else if (!*r->name)
                        snprintf(r->name, sizeof(r->name), "%016" PRIx64, q->id);
                snprintf(r->url, sizeof(r->url), "%s", url);
                r->learner = q->islearner;
                if (!*url && !r->answers)
                        snprintf(r->why, sizeof(r->why), "it names no client URL");
                else if (*url && !is_asked(c, q->id, url) && add_all(c, url, "", r->why) == 0)
                        c->conns[c->n_conns - 1]->member = q->id;
        }
        top_replicas_sort(m);
        c->listed = true;
        leads(c, c->leader, UINT64_MAX);
        pb_free(p);
}

static void members_close(struct rpc_call *call)
{
        ((struct conn *) call->userdata)->members = NULL;
}

static const struct rpc_handler members_handler = {.on_message = members_message,
                                                   .on_close = members_close};

/* ---- all leases ---- */

struct by_lease {
        int64_t lease;
        struct top_node *node;
};

static int lease_order(const void *a, const void *b)
{
        const struct by_lease *p = a, *q = b;

        return (p->lease > q->lease) - (p->lease < q->lease);
}

static void leases_message(struct rpc_call *call, struct view bytes)
{
        struct conn *n = call->userdata;
        struct top_model *m = n->core->model;
        struct boot_time now = loop_now(n->core->loop);
        cleanup_(freep) struct by_lease *index = calloc(m->n_nodes + 1, sizeof(*index));
        Pb__LeaseLeasesResponse *p = NULL;
        size_t k = 0;

        if (!index || pb_unpack(&pb__lease_leases_response__descriptor, bytes, &p) < 0)
                return;
        for (size_t i = 0; i < m->n_nodes; i++)
                if (m->nodes[i]->there)
                        index[k++] = (struct by_lease){m->nodes[i]->lease, m->nodes[i]};
        qsort(index, k, sizeof(*index), lease_order);
        for (size_t i = 0; i < p->n_leases; i++) {
                struct by_lease key = {.lease = p->leases[i]->id}, *found;

                found = bsearch(&key, index, k, sizeof(*index), lease_order);
                if (found && p->leases[i]->granted_ttl_ms > 0)
                        top_node_left(found->node, p->leases[i]->ttl_ms * NSEC_PER_MSEC, now);
        }
        pb_free(p);
}

static void leases_close(struct rpc_call *call)
{
        ((struct conn *) call->userdata)->leases = NULL;
}

static const struct rpc_handler leases_handler = {.on_message = leases_message,
                                                  .on_close = leases_close};

/* ---- connections ---- */

/* @q: NULL for a request without fields. */
static void call(struct conn *n, const char *path, const ProtobufCMessage *q,
                 const struct rpc_handler *h, struct rpc_call **slot)
{
        cleanup_(buf_fini) struct buf b = {0};

        if (q)
                pb_append(&b, q);
        if (*slot || buf_error(&b) < 0 ||
            rpc_call_new(endpoint_rpc(n->ep), path, false, h, n, slot) < 0)
                return;
        if (rpc_call_send(*slot, buf_head(&b), buf_len(&b)) < 0)
                return rpc_call_cancel(*slot);
        rpc_call_end(*slot);
        endpoint_kick(n->ep);
}

static void ask_status(struct conn *n, struct boot_time now)
{
        Pb__StatusRequest q = PB__STATUS_REQUEST__INIT;

        if (n->status)
                return;
        n->asked = now;
        q.revision_times = !top_history_has_begun(n->core->history);
        call(n, "/etcdserverpb.Maintenance/Status", &q.base, &status_handler, &n->status);
}

static void on_up(struct endpoint *e, void *userdata)
{
        struct conn *n = userdata;

        (void) e;
        ask_status(n, loop_now(n->core->loop));
        call(n, "/etcdserverpb.Cluster/MemberList", NULL, &members_handler, &n->members);
}

static void on_down(struct endpoint *e, const char *why, void *userdata)
{
        (void) e;
        silent(userdata, why);
}

static void on_silent(struct endpoint *e, void *userdata)
{
        (void) e;
        silent(userdata, "it sends nothing");
}

static const struct endpoint_ops endpoint_ops = {
        .up = on_up, .down = on_down, .silent = on_silent};

static int add(struct top_core *c, const char *url)
{
        struct conn *n;
        int r;

        if (c->n_conns == ARRAY_SIZE(c->conns))
                return -ENOSPC;
        n = calloc(1, sizeof(*n));
        if (!n)
                return -ENOMEM;
        n->core = c;
        snprintf(n->url, sizeof(n->url), "%s", url);
        r = endpoint_new(&n->ep, c->loop, c->resolver, url, c->tls,
                         c->options->login.user ? &c->options->login : NULL, &endpoint_ops, n);
        if (r < 0) {
                free(n);
                return r;
        }
        c->conns[c->n_conns++] = n;
        endpoint_want(n->ep);
        return 0;
}

static int make_tls(struct top_core *c, char why[TOP_REASON])
{
        const struct core_options *o = c->options;
        struct tls_error err = {""};
        int r = tls_new_client(
                &c->tls,
                &(struct tls_files){
                        .cert = o->cert, .key = o->key, .ca = o->cacert, .http2 = true},
                &err);

        if (r < 0)
                snprintf(why, TOP_REASON, "%s", *err.text ? err.text : strerror(-r));
        return r;
}

/* Adds the endpoints that @cursor lists. */
static int add_all(struct top_core *c, const char *cursor, const char *scheme,
                   char why[TOP_REASON])
{
        char item[TALK_URL_MAX], url[TALK_URL_MAX + 16];
        int r = 0;

        while (r == 0 && list_next(&cursor, item, sizeof(item))) {
                snprintf(url, sizeof(url), "%s%s", scheme, item);
                if (is_asked(c, 0, url))
                        continue;
                if (strncmp(url, "https://", 8) == 0 && !c->tls)
                        r = make_tls(c, why);
                if (r < 0)
                        break;
                r = add(c, url);
                if (r < 0)
                        snprintf(why, TOP_REASON, "'%.100s' is not a URL of a core: %s", url,
                                 strerror(-r));
        }
        return r;
}

/* DNS is asked again until it has answered. */
static void on_srv(int r, const char *targets, void *userdata)
{
        struct top_core *c = userdata;
        char why[TOP_REASON] = "DNS has no SRV record of the core";

        c->query = NULL;
        if (r == 0)
                r = add_all(c, targets, c->srv_tls ? "https://" : "http://", why);
        if (r < 0 && !c->srv_failed)
                top_event(c->model, c->wall, TOP_BAD, "%s", why);
        c->srv_failed = r < 0;
        if (r == 0)
                *c->srv = '\0';
}

int top_core_add(struct top_core *c, const char *endpoints, char why[TOP_REASON])
{
        int r = url_parse_srv(endpoints, c->srv, &c->srv_tls);

        if (r == -ENOENT) {
                *c->srv = '\0';
                return add_all(c, endpoints, "", why);
        }
        if (r < 0)
                snprintf(why, TOP_REASON, "'%.100s' names no SRV record", endpoints);
        return r;
}

void top_core_ask(struct top_core *c, struct boot_time now, int64_t wall)
{
        bool members = !boot_before(now, c->members_at), leases;
        size_t n_nodes = c->model->n_there;

        c->wall = wall;
        if (*c->srv && !c->query && resolve_srv(c->resolver, c->srv, on_srv, c, &c->query) < 0)
                c->query = NULL;
        leases = n_nodes > LEASES_FROM && !c->model->etcd && !boot_before(now, c->leases_at);
        for (size_t i = 0; i < c->n_conns; i++) {
                struct conn *n = c->conns[i];
                const struct top_replica *r;

                if (!endpoint_rpc(n->ep)) {
                        endpoint_want(n->ep);
                        continue;
                }
                if (n->status && boot_diff(now, n->asked) > SILENT_AFTER)
                        silent(n, "no answer for 3 s");
                ask_status(n, now);
                endpoint_probe(n->ep, SILENT_AFTER);
                if (n->status && boot_diff(now, n->asked) > SILENT_AFTER)
                        continue;
                r = replica_of(n);
                if (r && r->learner) /* a learner knows less, and does not answer for others */
                        continue;
                if (members)
                        call(n, "/etcdserverpb.Cluster/MemberList", NULL, &members_handler,
                             &n->members);
                members = false;
                if (leases)
                        call(n, "/etcdserverpb.Lease/LeaseLeases", NULL, &leases_handler,
                             &n->leases);
                if (leases)
                        c->leases_at = boot_add(
                                now, max_of(2 * NSEC_PER_SEC, (nsec_t) n_nodes * NSEC_PER_SEC /
                                                                      LEASES_PER_SECOND));
                leases = false;
        }
        if (!boot_before(now, c->members_at))
                c->members_at = boot_add(now, MEMBERS_EACH);
}

const char *top_core_why(const struct top_core *c)
{
        for (size_t i = 0; i < c->n_conns; i++)
                if (*c->conns[i]->down)
                        return c->conns[i]->down;
        return "";
}

static bool all_have_answered(const struct top_core *c)
{
        for (size_t i = 0; i < c->n_conns; i++)
                if (c->conns[i]->answered.ns == 0 && !*c->conns[i]->down)
                        return false;
        return c->listed;
}

bool top_core_is_settled(const struct top_core *c, struct boot_time now)
{
        return all_have_answered(c) && top_history_is_done(c->history, now);
}

void top_core_run(struct top_core *c, struct boot_time now)
{
        struct timespec wall;

        for (size_t i = 0;
             all_have_answered(c) && top_history_waits(c->history) && i < c->n_conns; i++) {
                const struct conn *n = c->conns[i];
                const struct top_replica *r = replica_of(n);

                if (!endpoint_rpc(n->ep) || !r || r->learner || !r->answers)
                        continue;
                clock_gettime(CLOCK_REALTIME, &wall);
                top_history_begin(c->history, endpoint_rpc(n->ep), now,
                                  wall.tv_sec * NSEC_PER_SEC + wall.tv_nsec);
                endpoint_kick(n->ep);
        }
        (void) top_history_is_done(c->history, now);
}

bool top_core_has_any(const struct top_core *c)
{
        return c->n_conns > 0 || *c->srv;
}

int top_core_new(struct top_core **ret, struct loop *l, struct top_model *m,
                 const struct core_options *o)
{
        struct top_core *c = calloc(1, sizeof(*c));
        int r = c ? 0 : -ENOMEM;

        if (r == 0) {
                c->loop = l;
                c->model = m;
                c->options = o;
                r = top_history_new(&c->history, m);
                if (r == 0)
                        r = resolver_new(&c->resolver, l);
        }
        if (r < 0) {
                top_core_free(c);
                ctl_fail("cannot ask the core", r, NULL);
                return r;
        }
        *ret = c;
        return 0;
}

struct top_core *top_core_free(struct top_core *c)
{
        if (!c)
                return NULL;
        c->query = resolve_cancel(c->query);
        c->ending = true;
        for (size_t i = 0; i < c->n_conns; i++) {
                endpoint_free(c->conns[i]->ep);
                free(c->conns[i]);
        }
        top_history_free(c->history);
        resolver_free(c->resolver);
        tls_free(c->tls);
        free(c);
        return NULL;
}
