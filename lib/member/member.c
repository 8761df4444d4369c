#include "member/member.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/probe.h"
#include "base/utf8.h"
#include "member/internal.h"
#include "member/refusal.h"

#define WORLD_TELL (10 * NSEC_PER_SEC)
#define MEET_EVERY (10 * NSEC_PER_SEC) /* in a core that was forced, others are asked */

/* ---- which core it is ---- */

static bool is_replaced(const struct member *m)
{
        bool any = false;

        for (size_t i = 0; i < m->n_peers; i++) {
                if (*m->peers[i].ours_at && !m->peers[i].replaced)
                        return false;
                any = any || m->peers[i].replaced;
        }
        return any;
}

/* Renewals are due at half the TTL: our core has not answered one for an eighth of it. */
static bool is_overdue(const struct member *m)
{
        return boot_diff(m->now, m->session.renewed_at) >= m->session.ttl / 8 * 5;
}

static enum world_word judge(const struct member *m, const struct peer *p)
{
        return world_judge(&m->world,
                           &(struct world_case){.cluster = p->cluster,
                                                .ancestor = p->ancestor,
                                                .held = m->session.lease != 0,
                                                .overdue = is_overdue(m),
                                                .replaced = is_replaced(m)},
                           m->now);
}

bool member_is_foreign(const struct member *m, const struct peer *p)
{
        return p->cluster != 0 && judge(m, p) == WORLD_FOREIGN;
}

static void tell_foreign(struct member *m, struct peer *p)
{
        if (p->logged == p->cluster)
                return;
        p->logged = p->cluster;
        if (p->ancestor == m->world.cluster)
                log_warning("The core at %s belongs to cluster %016" PRIx64
                            ", which was forced to descend from ours, %016" PRIx64
                            ", and is ignored as long as ours answers.",
                            peer_name(p), p->cluster, m->world.cluster);
        else
                log_warning("The core at %s belongs to another cluster (%016" PRIx64
                            "; ours is %016" PRIx64 "%s) and is ignored. Take it out of "
                            "Endpoints=, or restart the agent if that is the cluster to join.",
                            peer_name(p), p->cluster, m->world.cluster,
                            p->ancestor != 0 && p->ancestor == m->world.ancestor
                                    ? ", and both descend from the same one"
                                    : "");
}

/* Logs the new world, at a limited rate: two clusters that answer in turn behind one address
 * would fill the log. */
static void tell_world(struct member *m, const char *why)
{
        struct boot_time now = m->now;

        if (m->world_logged_at.ns != 0 && boot_diff(now, m->world_logged_at) < WORLD_TELL) {
                m->worlds_unlogged++;
                return;
        }
        if (m->worlds_unlogged > 0)
                log_warning("%s. What was known before is void (%u times since the last such "
                            "message).",
                            why, m->worlds_unlogged);
        else
                log_warning("%s. What was known before is void.", why);
        m->world_logged_at = now;
        m->worlds_unlogged = 0;
}

/* Shows our core to the others that we ask: one that learns of another descendant of its
 * ancestor stops. So only a core that we know to be there is shown. */
static void show_core(struct member *m)
{
        m->shown[0] = '\0';
        if (m->world.ancestor != 0 &&
            world_is_present(&m->world, session_holds(&m->session, m->now), m->now))
                snprintf(m->shown, sizeof(m->shown), "%016" PRIx64 " %016" PRIx64,
                         m->world.cluster, m->world.ancestor);
}

static void begin_world(struct member *m, const Pb__ResponseHeader *h)
{
        m->worlds++;
        world_begin(&m->world, h->cluster_id, h->ancestor, h->revision, m->now);
        for (size_t i = 0; i < m->n_peers; i++) {
                m->peers[i].replaced = false;
                m->peers[i].ours_at[0] = '\0';
                m->peers[i].logged = 0;
        }
        view_restart(m);
}

void member_begin_world(struct member *m, const Pb__ResponseHeader *h, const char *why)
{
        tell_world(m, why);
        if (m->session.lease != 0)
                utf8_print(m->why, sizeof(m->why), "%s", why);
        session_gone(&m->session, m->session.lease);
        begin_world(m, h);
}

/* A survivor has our lease, and the keys on it, as of its last entry: a renewal shows whether
 * the lease is there, and we write again what we publish. */
static void follow_heir(struct member *m, const struct peer *p, const Pb__ResponseHeader *h)
{
        log_warning(
                "The core at %s is a new cluster (%016" PRIx64
                "), which was forced to descend from ours (%016" PRIx64
                "); the old one does not answer. This agent follows the new one from now on.",
                peer_name(p), h->cluster_id, m->world.cluster);
        PROBE("a member follows the heir of its core");
        if (!m->session.registered)
                session_gone(&m->session, m->session.lease);
        publications_again(&m->publications);
        m->registered_at = 0; /* a revision of the other cluster */
        begin_world(m, h);
        session_hurry(&m->session, m->now);
}

enum world_word member_hear(struct member *m, struct peer *p, const Pb__ResponseHeader *h)
{
        enum world_word word;
        char at[sizeof(p->ours_at)], why[256];

        if (!h || h->cluster_id == 0) /* a core that does not send a cluster id has none */
                return WORLD_OURS;
        p->cluster = h->cluster_id;
        p->ancestor = h->ancestor;
        peer_at(p, at, sizeof(at));
        p->replaced = p->cluster != m->world.cluster && *at && strcmp(p->ours_at, at) == 0;
        word = judge(m, p);
        if (word == WORLD_FOREIGN) {
                tell_foreign(m, p);
                return word;
        }
        if (word == WORLD_NEW) {
                snprintf(why, sizeof(why),
                         "The core at %s is another one, with another cluster id (%016" PRIx64
                         " instead of %016" PRIx64 ")",
                         peer_name(p), h->cluster_id, m->world.cluster);
                member_begin_world(m, h, why);
        }
        if (word == WORLD_HEIR) {
                follow_heir(m, p, h);
                word = WORLD_NEW;
        }
        strcpy(p->ours_at, at);
        if (world_hear(&m->world, h->cluster_id, h->ancestor, h->revision, m->now))
                view_doubt(m);
        show_core(m);
        return word;
}

/* ---- ---- */

static struct peer *peer_that_is_up(struct member *m, size_t from, bool speaking)
{
        for (size_t i = 0; i < m->n_peers; i++) {
                struct peer *p = &m->peers[(from + i) % m->n_peers];

                if (peer_rpc(p) && !(speaking && peer_is_silent(p)) && !member_is_foreign(m, p))
                        return p;
                if (i == 0)
                        peer_want(p); /* for the next try */
        }
        return NULL;
}

struct peer *member_peer(struct member *m, size_t from)
{
        return peer_that_is_up(m, from, false);
}

struct peer *member_speaking_peer(struct member *m, size_t from)
{
        return peer_that_is_up(m, from, true);
}

void member_heard(struct member *m, struct peer *p, const Pb__ResponseHeader *h)
{
        m->current = (size_t) (p - m->peers);
        m->heard_at = m->now;
        if (h)
                m->replica = h->member_id;
        m->why[0] = '\0';
}

/* ---- the program's own calls ---- */

bool member_pick(struct member *m, size_t from, size_t *ret)
{
        struct peer *p = member_speaking_peer(m, from);

        if (p)
                *ret = p->i;
        return p != NULL;
}

bool member_answered(struct member *m, size_t i, const Pb__ResponseHeader *h)
{
        struct peer *p = &m->peers[i];

        if (member_hear(m, p, h) == WORLD_FOREIGN)
                return false;
        member_heard(m, p, h);
        return true;
}

unsigned member_worlds(const struct member *m)
{
        return m->worlds;
}

/* ---- unary calls ---- */

/* Every answer of a core begins with a header: without it nobody knows which core sent it, and
 * as of which revision. */
static bool has_header(const struct unary *u)
{
        const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(u->type, 1);
        const Pb__ResponseHeader *h =
                *(Pb__ResponseHeader *const *) ((const char *) u->reply + f->offset);

        return member_header_is_sane(h);
}

bool member_header_is_sane(const Pb__ResponseHeader *h)
{
        return h && h->revision > 0 && h->revision < INT64_MAX;
}

bool member_range_is_sane(const Pb__RangeResponse *p)
{
        return p->more || p->count <= (int64_t) p->n_kvs;
}

bool member_events_are_sane(const Pb__WatchResponse *p)
{
        for (size_t i = 0; i < p->n_events; i++) {
                const Pb__KeyValue *kv = p->events[i]->kv;

                if (!kv || !p->header || kv->mod_revision <= 0 ||
                    kv->mod_revision > p->header->revision)
                        return false;
        }
        return true;
}

static void unary_message(struct rpc_call *call, struct view bytes)
{
        struct unary *u = call->userdata;

        u->reply = pb_free(u->reply);
        u->unread = pb_unpack(u->type, bytes, &u->reply);
        if (u->unread == 0 && !has_header(u)) {
                u->reply = pb_free(u->reply);
                u->unread = -EBADMSG;
        }
}

static void unary_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct unary *u = call->userdata;

        if (refusal_wants_login(code, message))
                peer_log_in_again(u->peer);
        if (code == RPC_OK && !u->reply)
                u->done(u, RPC_INTERNAL,
                        u->unread == -ENOMEM ? "out of memory" : "malformed response");
        else
                u->done(u, code, message);
}

static void unary_close(struct rpc_call *call)
{
        struct unary *u = call->userdata;

        pb_free(u->reply);
        free(u);
}

static const struct rpc_handler unary_handler = {
        .on_message = unary_message, .on_status = unary_status, .on_close = unary_close};

int member_call(struct peer *p, uint64_t op, const char *path, const ProtobufCMessage *q,
                const ProtobufCMessageDescriptor *reply_type,
                void (*done)(struct unary *u, enum rpc_code code, const char *message))
{
        cleanup_(buf_fini) struct buf b = {0};
        struct rpc_call *call;
        struct unary *u;
        int r;

        pb_append(&b, q);
        u = calloc(1, sizeof(*u));
        if (!u || buf_error(&b) < 0) {
                free(u);
                return -ENOMEM;
        }
        u->member = p->member;
        u->peer = p;
        u->op = op;
        u->type = reply_type;
        u->done = done;
        u->sent_at = p->member->now;
        r = rpc_call_new(peer_rpc(p), path, false, &unary_handler, u, &call);
        if (r < 0) {
                free(u);
                return r;
        }
        r = rpc_call_send(call, b.data, buf_len(&b));
        rpc_call_end(call);
        peer_kick(p);
        return r;
}

/* ---- announcements of nodes ---- */

static void on_joined(const struct member_node *n, int64_t revision, void *userdata)
{
        struct member *m = userdata;

        registration_see(m, n);
        m->events->members.joined(n, revision, m->userdata);
}

static void on_changed(const struct member_node *n, int64_t revision, void *userdata)
{
        struct member *m = userdata;

        registration_see(m, n);
        m->events->members.changed(n, revision, m->userdata);
}

static void on_left(const struct member_node *n, const char *reason, int64_t revision,
                    void *userdata)
{
        struct member *m = userdata;

        services_node_left(&m->services, n->record.name, n->lease, reason, revision);
        m->events->members.left(n, reason, revision, m->userdata);
}

static const struct membership_ops node_events = {
        .joined = on_joined, .left = on_left, .changed = on_changed};

/* ---- from the shell ---- */

static void hurry(struct member *m)
{
        session_hurry(&m->session, m->now);
        m->view_retry_at = (struct boot_time){0};
}

void member_at(struct member *m, struct boot_time now)
{
        m->now = now;
}

static void on_met(struct unary *u, enum rpc_code code, const char *message)
{
        const Pb__RangeResponse *r = u->reply;

        (void) message; /* whatever the answer, the endpoint was shown our core */
        if (code == RPC_OK)
                (void) !member_hear(u->member, u->peer, r->header);
}

/* A member whose own endpoint answers has no reason to ask the others, and two groups of
 * members would never learn of each other's core. Those that have answered for another core are
 * asked again: an operator may have disarmed its alarm too early. */
static void meet_others(struct member *m)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;

        if (!*m->shown || boot_before(m->now, m->meet_at))
                return;
        m->meet_at = boot_add(m->now, MEET_EVERY);
        q.key = pb_bytes(m->prefix, strlen(m->prefix));
        q.count_only = q.serializable = true;
        for (size_t i = 0; i < m->n_peers; i++) {
                struct peer *p = &m->peers[i];

                if (!peer_rpc(p))
                        peer_want(p);
                else if (p->cluster != m->world.cluster)
                        (void) !member_call(p, 0, "/etcdserverpb.KV/Range", &q.base,
                                            &pb__range_response__descriptor, on_met);
        }
}

static struct boot_time meet_next(const struct member *m)
{
        return *m->shown ? m->meet_at : BOOT_TIME_NEVER;
}

/* Each of these may change what the others wait for, so the wakeup is computed after all have
 * run. */
struct boot_time member_run(struct member *m, struct boot_time now)
{
        m->now = now;
        show_core(m);
        meet_others(m);
        if (!m->observe)
                lease_run(m, now);
        view_run(m, now);
        if (m->observe)
                return boot_min(view_next(m), meet_next(m));
        publications_run(m, now);
        return boot_min(boot_min(lease_next(m), publications_next(m)),
                        boot_min(view_next(m), meet_next(m)));
}

void member_up(struct member *m, size_t i)
{
        rpc_conn_show(peer_rpc(&m->peers[i]), m->shown);
        hurry(m);
}

void member_down(struct member *m, size_t i, const char *why)
{
        struct peer *p = &m->peers[i];

        utf8_print(m->why, sizeof(m->why), "%s: %s", peer_name(p), why);
        p->cluster = 0; /* another core may be there next time */
        lease_peer_down(m, p);
}

void member_silent(struct member *m, size_t i)
{
        if (i == m->view_peer)
                view_move(m, "the replica is silent");
}

void member_replaced(struct member *m, size_t i)
{
        struct peer *p = &m->peers[i];

        p->cluster = p->logged = 0;
        p->ours_at[0] = '\0';
        p->replaced = false;
}

void member_endpoints(struct member *m, size_t n)
{
        m->n_peers = n;
        hurry(m);
}

/* ---- ---- */

static void resume(struct member *m, const struct place *p, struct boot_time now)
{
        memcpy(m->self.incarnation, p->self.incarnation, sizeof(m->self.incarnation));
        memcpy(m->self.since, p->self.since, sizeof(m->self.since));
        m->self.ttl_ms = p->session.ttl / NSEC_PER_MSEC;
        session_resume(&m->session, &p->session, now);
        claim_add(&m->claim, m->self.incarnation);
        m->world.cluster = strtoull(p->core, NULL, 16);
        m->world.ancestor = strtoull(p->ancestor, NULL, 16);
        m->world.heard_at = m->session.renewed_at;
        m->followed = m->world.cluster != 0 ? max_of(p->followed, INT64_C(0)) : 0;
        m->followed_until = m->session.renewed_at;
}

int member_set_cluster(struct member *m, const char *cluster)
{
        char *name = strdup(cluster), *prefix;

        if (!name || asprintf(&prefix, "/tenure/%s/", cluster) < 0) {
                free(name);
                return -ENOMEM;
        }
        free(m->cluster);
        free(m->prefix);
        m->cluster = name;
        m->prefix = prefix;
        return 0;
}

int member_new(struct member **ret, const struct member_config *cfg,
               const struct member_ops *ops, void *shell, const struct member_events *events,
               void *userdata, struct boot_time now)
{
        cleanup_(member_freep) struct member *m = calloc(1, sizeof(*m));
        int r;

        if (!m)
                return -ENOMEM;
        m->ops = ops;
        m->shell = shell;
        m->events = events;
        m->userdata = userdata;
        m->now = now;
        m->self = cfg->self;
        m->observe = cfg->observe;
        m->no_view = cfg->no_view;
        m->sessions = cfg->sessions;
        rnd_init(&m->rnd, cfg->seed);
        membership_init(&m->members, &node_events, m);
        services_init(&m->services, &events->services, userdata);
        publications_init(&m->publications, cfg->resume ? cfg->resume->session.lease : 0);
        session_init(&m->session, &cfg->session);
        m->claim.began = now;
        m->claim.boot = cfg->boot;
        snprintf(m->claim.boots, sizeof(m->claim.boots), "%s", cfg->boots ? cfg->boots : "");
        if (cfg->resume && !cfg->observe)
                resume(m, cfg->resume, now);
        for (size_t i = 0; i < MEMBER_ENDPOINTS_MAX; i++) {
                m->peers[i].member = m;
                m->peers[i].i = i;
        }
        m->n_peers = cfg->n_endpoints;
        /* A random first endpoint spreads the agents over the replicas. */
        m->current = m->view_peer = rnd_between(&m->rnd, 0, m->n_peers - 1);
        r = member_set_cluster(m, cfg->cluster);
        if (r == 0)
                *ret = take_ptr(m);
        return r;
}

void member_close(struct member *m)
{
        m->lease_op++;
        m->view_op++;
}

struct member *member_free(struct member *m)
{
        if (!m)
                return NULL;
        publications_fini(&m->publications);
        buf_fini(&m->range_from);
        pb_free(m->range);
        membership_fini(&m->members);
        services_fini(&m->services);
        free(m->cluster);
        free(m->prefix);
        free(m);
        return NULL;
}

/* ---- from the program ---- */

void member_leave(struct member *m, const char *reason, const char *note)
{
        snprintf(m->leaving, sizeof(m->leaving), "%s", reason);
        snprintf(m->leaving_note, sizeof(m->leaving_note), "%s", note);
        session_leave(&m->session);
        member_soon(m);
}

void member_join(struct member *m)
{
        session_join(&m->session);
        member_soon(m);
}

void member_suppress(struct member *m, struct boot_time until)
{
        session_suppress(&m->session, until);
        member_soon(m);
}

bool member_place(const struct member *m, struct place *ret)
{
        *ret = (struct place){.self = m->self};
        snprintf(ret->cluster, sizeof(ret->cluster), "%s", m->cluster);
        snprintf(ret->core, sizeof(ret->core), "%016" PRIx64, m->world.cluster);
        if (m->world.ancestor != 0)
                snprintf(ret->ancestor, sizeof(ret->ancestor), "%016" PRIx64,
                         m->world.ancestor);
        snprintf(ret->endpoint, sizeof(ret->endpoint), "%s", member_endpoint(m));
        peer_at(&m->peers[m->current], ret->at, sizeof(ret->at));
        ret->followed = view_followed(m);
        return session_place(&m->session, &ret->session);
}

void member_set_ttl(struct member *m, nsec_t ttl)
{
        m->session.cfg.ttl = ttl;
}

const struct session *member_session(const struct member *m)
{
        return &m->session;
}

const struct membership *member_nodes(const struct member *m)
{
        return &m->members;
}

const struct services *member_services(const struct member *m)
{
        return &m->services;
}

const struct node_record *member_self(const struct member *m)
{
        return &m->self;
}

bool member_synced(const struct member *m)
{
        return m->synced;
}

struct boot_time member_heard_at(const struct member *m)
{
        return m->heard_at;
}

size_t member_current(const struct member *m)
{
        return m->current;
}

const char *member_endpoint(const struct member *m)
{
        const struct peer *p = &m->peers[m->current];

        return peer_rpc(p) ? peer_name(p) : "";
}

/* A connection with unanswered requests waits for TCP's next retransmission, which may be
 * seconds away; a new connection does not. */
void member_path_back(struct member *m, struct boot_time now)
{
        bool trouble = session_attempt(&m->session) > 0;

        m->now = now;
        PROBE_IF(trouble, "the network changes while a renewal is late");
        for (size_t i = 0; i < m->n_peers; i++) {
                struct peer *p = &m->peers[i];

                if (!peer_rpc(p) || (trouble && lease_waits_for(p)))
                        peer_again(p);
        }
        hurry(m);
        member_soon(m);
}

void member_doubt(struct member *m, struct boot_time now)
{
        session_doubt(&m->session, now);
        member_soon(m);
}

int64_t member_is_refused(const struct member *m)
{
        return m->refused ? m->holder.mod_revision : 0;
}

void member_hurry(struct member *m)
{
        hurry(m);
        member_soon(m);
}

uint64_t member_replica(const struct member *m)
{
        return m->replica;
}

const char *member_trouble(const struct member *m)
{
        return m->why;
}
