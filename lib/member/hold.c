/* Carries out what the session decides: grant, register, renew, revoke. */
#include <stdio.h>

#include "base/log.h"
#include "base/probe.h"
#include "member/internal.h"
#include "member/refusal.h"

/* How long a replica may take to answer a probe. */
#define PATIENCE_SHARE 16 /* of the TTL, ... */
#define PATIENCE_MIN (250 * NSEC_PER_MSEC)

#define ASK_AGAIN_MIN (100 * NSEC_PER_MSEC)
#define REVOKE_AGAIN NSEC_PER_SEC

#define FOREIGN "it is of another cluster"

/* Limits for the TTL in an answer of the core: a longer one is cut, a shorter one counts as no
 * lease. */
#define TTL_MOST (86400 * NSEC_PER_SEC)
#define TTL_LEAST (50 * NSEC_PER_MSEC)

/* A core that does not know about milliseconds answers in whole seconds. */
static nsec_t answered_ttl(int64_t ms, int64_t seconds)
{
        if (ms > 0)
                return min_of(ms, TTL_MOST / NSEC_PER_MSEC) * NSEC_PER_MSEC;
        return min_of(max_of(seconds, INT64_C(0)), TTL_MOST / NSEC_PER_SEC) * NSEC_PER_SEC;
}

static void announce(struct member *m)
{
        if (m->session.state == m->announced)
                return;
        m->announced = m->session.state;
        m->events->session(m->userdata, m->announced, m->why);
}

static void failed(struct member *m, const char *what, const char *message)
{
        snprintf(m->why, sizeof(m->why), "%s: %s", what, message);
        log_debug("%s.", m->why);
        m->current = (m->current + 1) % m->n_peers;
        session_failed(&m->session, m->now);
}

/* ---- grant ---- */

static void on_granted(struct unary *u, enum rpc_code code, const char *message)
{
        struct member *m = u->member;
        const Pb__LeaseGrantResponse *p = u->reply;
        nsec_t ttl;

        if (u->op != m->hold_op)
                return;
        if (code != RPC_OK)
                return failed(m, "no lease", message);
        if (member_hear(m, u->peer, p->header) == WORLD_FOREIGN)
                return failed(m, "no lease", FOREIGN);
        ttl = answered_ttl(p->ttl_ms, p->ttl);
        if (p->id <= 0 || ttl < TTL_LEAST)
                return failed(m, "no lease", "the core's answer is invalid");
        member_heard(m, u->peer, p->header);
        session_granted(&m->session, p->id, ttl, u->sent_at);
}

static int grant(struct member *m, struct peer *p)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;
        nsec_t ttl = m->session.cfg.ttl;

        q.ttl_ms = ttl / NSEC_PER_MSEC;
        q.ttl = (ttl + NSEC_PER_SEC - 1) / NSEC_PER_SEC;
        return member_call(p, ++m->hold_op, "/etcdserverpb.Lease/LeaseGrant", &q.base,
                           &pb__lease_grant_response__descriptor, on_granted);
}

/* ---- register ---- */

static void on_former_revoked(struct unary *u, enum rpc_code code, const char *message)
{
        struct member *m = u->member;

        (void) message;
        if (u->op == (uint64_t) m->former.lease && code != RPC_UNAVAILABLE &&
            code != RPC_DEADLINE_EXCEEDED && code != RPC_CANCELED)
                m->former.lease = 0;
}

/* Until it is answered: the lease may have a TTL of an hour, and has services of before. */
static void revoke_former(struct member *m, struct boot_time now)
{
        Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;
        struct peer *p;

        if (m->former.lease == 0 || boot_before(now, m->former.at))
                return;
        m->former.at = boot_add(now, REVOKE_AGAIN);
        p = member_peer(m, m->current); /* which is also to connect */
        if (!p || !peer_rpc(p) || member_is_foreign(m, p))
                return;
        q.id = m->former.lease;
        (void) !member_call(p, (uint64_t) q.id, "/etcdserverpb.Lease/LeaseRevoke", &q.base,
                            &pb__lease_revoke_response__descriptor, on_former_revoked);
}

static void registered(struct member *m, int64_t revision)
{
        if (m->old_lease != 0) {
                m->former.lease = m->old_lease;
                m->former.at = m->now;
        }
        m->old_lease = 0;
        m->refused = false;
        m->registered_at = revision;
        publications_self_stored(&m->publications, revision);
        session_registered(&m->session);
}

static int write_key(struct member *m, struct peer *p, int64_t mod_revision);

/* The lease that was to be registered may have been dropped meanwhile, with no other in its
 * place: a key written then would be attached to no lease, and would stay for ever. */
static bool is_registering(const struct unary *u)
{
        const struct session *s = &u->member->session;

        return u->op == u->member->hold_op && s->state == SESSION_JOINING && s->lease != 0;
}

static void on_claimed(struct unary *u, enum rpc_code code, const char *message)
{
        (void) u;
        (void) code;
        (void) message; /* the holder of our name learns of us the next time */
}

/* Tells the holder of our name that we exist, in a key that lives as long as the lease that we
 * were granted but cannot register. */
static void tell_holder(struct member *m, struct peer *p)
{
        cleanup_(buf_fini) struct buf key = {0}, value = {0};
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;

        buf_printf(&key, "%sclaims/%s", m->prefix, m->self.name);
        node_record_write(&m->self, &value);
        if (buf_error(&key) < 0 || buf_error(&value) < 0 || m->session.lease == 0)
                return;
        put.key = pb_bytes(key.data, buf_len(&key));
        put.value = pb_bytes(value.data, buf_len(&value));
        put.lease = m->session.lease;
        (void) !member_call(p, 0, "/etcdserverpb.KV/Put", &put.base,
                            &pb__put_response__descriptor, on_claimed);
}

static void refused(struct member *m, struct peer *p, enum claim_verdict v, nsec_t again)
{
        const struct node_record *h = &m->holder.record;

        m->refused = true;
        if (m->sessions)
                snprintf(m->why, sizeof(m->why),
                         "the session '%s' is held by another program (%s, since %s)",
                         m->self.name, *h->tags ? h->tags : "unknown",
                         *h->since ? h->since : "unknown");
        else if (v == CLAIM_CLONE)
                snprintf(m->why, sizeof(m->why),
                         "the place of '%s' is held by another host with the same node id "
                         "(boot %s, since %s, at %s); if one is a clone of the other, give it "
                         "a machine id of its own and another NodeName=; if that was an "
                         "earlier boot of this one, its lease ends by itself",
                         m->self.name, *h->boot_id ? h->boot_id : "unknown",
                         *h->since ? h->since : "unknown",
                         *h->addresses ? h->addresses : "an unknown address");
        else
                snprintf(m->why, sizeof(m->why),
                         "the name '%s' is held by another node (id %s, since %s); give this "
                         "one another NodeName=",
                         m->self.name, *h->id ? h->id : "unknown",
                         *h->since ? h->since : "unknown");
        m->events->session(m->userdata, SESSION_JOINING, m->why);
        if (!m->sessions)
                tell_holder(m, p);
        session_refused(&m->session, m->now, again);
}

static void take_over(struct member *m, struct peer *p)
{
        m->old_lease = m->holder.lease;
        if (write_key(m, p, m->holder.mod_revision) < 0)
                failed(m, "cannot register", "the connection broke");
}

static void on_age(struct unary *u, enum rpc_code code, const char *message)
{
        struct member *m = u->member;
        const Pb__LeaseTimeToLiveResponse *r = u->reply;
        nsec_t granted, left, blur;
        enum claim_verdict v;

        if (!is_registering(u))
                return;
        if (code != RPC_OK)
                return failed(m, "cannot register", message);
        if (member_hear(m, u->peer, r->header) != WORLD_OURS)
                return failed(m, "cannot register", FOREIGN);
        if (r->ttl < 0) { /* it has ended meanwhile */
                PROBE("the holder of a name is gone when an agent asks for its age");
                return session_failed(&m->session, m->now);
        }
        /* A core that does not know about milliseconds answers in whole seconds, rounded
         * down. */
        granted = answered_ttl(r->granted_ttl_ms, r->grantedttl);
        left = answered_ttl(r->ttl_ms, r->granted_ttl_ms > 0 ? 0 : r->ttl);
        blur = r->granted_ttl_ms > 0 ? 0 : NSEC_PER_SEC;
        v = claim_judge(&m->claim, &m->self, &m->holder.record, granted - left - blur,
                        granted - left, m->now);
        if (v == CLAIM_OURS)
                take_over(m, u->peer);
        else
                refused(m, u->peer, v,
                        max_of(min_of(left + blur, m->session.cfg.ttl), ASK_AGAIN_MIN));
}

static void ask_age(struct member *m, struct peer *p)
{
        Pb__LeaseTimeToLiveRequest q = PB__LEASE_TIME_TO_LIVE_REQUEST__INIT;

        q.id = m->holder.lease;
        if (member_call(p, ++m->hold_op, "/etcdserverpb.Lease/LeaseTimeToLive", &q.base,
                        &pb__lease_time_to_live_response__descriptor, on_age) < 0)
                failed(m, "cannot register", "the connection broke");
}

/* If the holder that we were refused for is gone, tries again at once. */
static void check_holder(struct member *m)
{
        const struct member_node *n;

        if (m->sessions || m->holder.lease == 0 || m->session.state != SESSION_JOINING ||
            m->session.lease != 0 || !m->synced || m->members.revision < m->holder.mod_revision)
                return;
        n = membership_find(&m->members, m->self.name);
        if (n && n->lease == m->holder.lease)
                return;
        m->holder.lease = 0;
        session_hurry(&m->session, m->now);
}

/* The key exists already: another life of ours wrote it, or another host. */
static void on_taken(struct member *m, struct peer *p, const Pb__TxnResponse *t)
{
        const Pb__RangeResponse *range;
        const Pb__KeyValue *kv;
        enum claim_verdict v;

        if (t->n_responses != 1 ||
            t->responses[0]->response_case != PB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE)
                return failed(m, "cannot register", "the core's answer is invalid");
        range = t->responses[0]->response_range;
        if (range->n_kvs == 0) /* deleted again meanwhile */
                return session_failed(&m->session, m->now);
        kv = range->kvs[0];
        if (kv->lease == m->session.lease) {
                PROBE("an agent finds itself registered, by a request whose answer was lost");
                m->publications.self_sent =
                        0; /* the answer to our own registration was lost on the way */
                return registered(m, kv->mod_revision);
        }
        /* If the value is no record, the holder stays empty: unknown to us. */
        (void) !node_record_read(&m->holder.record, kv->value.data, kv->value.len);
        m->holder.lease = kv->lease;
        m->holder.mod_revision = kv->mod_revision;
        v = claim_look(&m->claim, &m->self, &m->holder.record, kv->lease);
        if (v == CLAIM_OURS)
                take_over(m, p);
        else if (v == CLAIM_ASK)
                ask_age(m, p);
        else
                refused(m, p, v, m->session.cfg.ttl);
}

static void on_registered(struct unary *u, enum rpc_code code, const char *message)
{
        struct member *m = u->member;
        const Pb__TxnResponse *t = u->reply;

        if (!is_registering(u))
                return;
        /* The lease ended before it was used, or never existed. */
        if (code == RPC_NOT_FOUND && u->peer->cluster == m->world.cluster)
                return session_gone(&m->session, m->session.lease);
        if (code != RPC_OK)
                return failed(m, "cannot register", message);
        switch (member_hear(m, u->peer, t->header)) {
        case WORLD_FOREIGN:
                return failed(m, "cannot register", FOREIGN);
        case WORLD_NEW: /* a new core, in which we have no lease */
                return;
        case WORLD_OURS:
                break;
        }
        member_heard(m, u->peer, t->header);
        if (t->succeeded)
                registered(m, t->header->revision);
        else
                on_taken(m, u->peer, t);
}

/* If, according to the membership, our key is no longer ours, the place is lost. Sessions are
 * not part of the membership: their guarded writes are refused until the lease ends. */
static void check_key(struct member *m)
{
        const struct member_node *n;

        if (m->sessions)
                return;
        if ((m->session.state != SESSION_HELD && m->session.state != SESSION_JEOPARDY) ||
            m->members.revision == 0 || m->members.revision < m->registered_at)
                return;
        n = membership_find(&m->members, m->self.name);
        if (n && n->lease == m->session.lease)
                return;
        PROBE_IF(n, "an agent hears from its watch that another host has its place");
        PROBE_IF(!n, "an agent hears from its watch that its key was deleted");
        if (n)
                snprintf(m->why, sizeof(m->why),
                         "another host has taken it (id %s, boot %s, at %s)",
                         *n->record.id ? n->record.id : "unknown",
                         *n->record.boot_id ? n->record.boot_id : "unknown",
                         *n->record.addresses ? n->record.addresses : "no address");
        else
                snprintf(m->why, sizeof(m->why), "its key was deleted");
        session_gone(&m->session, m->session.lease);
}

void hold_own_key(const struct member *m, struct buf *key)
{
        buf_printf(key, "%s%s/%s", m->prefix, m->sessions ? "sessions" : "nodes", m->self.name);
}

/* Writes our record if @compare holds; otherwise reads the key. */
static int txn(struct member *m, struct peer *p, Pb__Compare *compare,
               void (*done)(struct unary *u, enum rpc_code code, const char *message))
{
        cleanup_(buf_fini) struct buf key = {0}, value = {0};
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__RequestOp yes = PB__REQUEST_OP__INIT, no = PB__REQUEST_OP__INIT, *yes_p = &yes,
                      *no_p = &no;
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__RangeRequest range = PB__RANGE_REQUEST__INIT;

        hold_own_key(m, &key);
        node_record_write(&m->self, &value);
        m->publications.self_sent = m->publications.self_version;
        if (buf_error(&key) < 0 || buf_error(&value) < 0)
                return -ENOMEM;
        if (m->session.lease == 0) /* a key without a lease would stay for ever */
                return -ESTALE;
        put.key = range.key = compare->key = pb_bytes(key.data, buf_len(&key));
        put.value = pb_bytes(value.data, buf_len(&value));
        put.lease = m->session.lease;
        compare->result = PB__COMPARE__COMPARE_RESULT__EQUAL;
        yes.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        yes.request_put = &put;
        no.request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        no.request_range = &range;
        q.compare = &compare;
        q.success = &yes_p;
        q.failure = &no_p;
        q.n_compare = q.n_success = q.n_failure = 1;
        return member_call(p, ++m->hold_op, "/etcdserverpb.KV/Txn", &q.base,
                           &pb__txn_response__descriptor, done);
}

/* @mod_revision 0: writes only if there is no key; otherwise only over exactly that
 * revision. */
static int write_key(struct member *m, struct peer *p, int64_t mod_revision)
{
        Pb__Compare cmp = PB__COMPARE__INIT;

        cmp.target = PB__COMPARE__COMPARE_TARGET__MOD;
        cmp.target_union_case = PB__COMPARE__TARGET_UNION_MOD_REVISION;
        cmp.mod_revision = mod_revision;
        return txn(m, p, &cmp, on_registered);
}

static int register_node(struct member *m, struct peer *p)
{
        /* Each life of the node has its own incarnation. */
        if (m->session.attempt == 0) {
                snprintf(m->self.incarnation, sizeof(m->self.incarnation), "%016llx%016llx",
                         (unsigned long long) rnd_u64(&m->rnd),
                         (unsigned long long) rnd_u64(&m->rnd));
                m->ops->date(m->self.since, m->shell);
                claim_add(&m->claim, m->self.incarnation);
        }
        m->self.ttl_ms = m->session.ttl / NSEC_PER_MSEC;
        m->self.leaving[0] = '\0';
        m->holder.lease = 0;
        m->refused = false;
        return write_key(m, p, 0);
}

/* ---- renew ---- */

static struct renewals *renewals_of(struct peer *p)
{
        return &p->renewals[p->renewing];
}

static struct renewals *other_renewals_of(struct peer *p)
{
        return &p->renewals[(p->renewing + 1) % RENEWALS];
}

/* Whether the stream is on a connection that takes no more calls, and that @conn follows; NULL:
 * none does yet. */
static bool is_former(const struct renewals *s, const struct rpc_conn *conn)
{
        return s->call && s->call->conn != conn;
}

/* If another replica has answered a request that we sent later, the replica that our watch is
 * on is gone, or as good as gone. */
static void suspect_view(struct member *m, const struct peer *answered,
                         struct boot_time sent_at)
{
        struct peer *v = &m->peers[m->view_peer];
        const struct renewals *s = renewals_of(v);

        if (v != answered && s->n > 0 && boot_before(s->sent[0], sent_at))
                peer_suspect(v);
}

/* A replica whose host lost power says nothing, and a watch only listens. We are awake for the
 * heartbeat anyway, so we probe that replica, unless the heartbeat itself goes there. */
static void probe_view(struct member *m, const struct peer *renewed_on)
{
        if (renewed_on != &m->peers[m->view_peer])
                peer_probe(&m->peers[m->view_peer],
                           max_of(m->session.ttl / PATIENCE_SHARE, PATIENCE_MIN));
}

/* Renewals have moved to the connection of @s: a stream that stayed behind would only keep the
 * former connection from ending. */
static void end_former(const struct renewals *s)
{
        struct peer *p = s->peer;
        const struct renewals *former = other_renewals_of(p);

        if (s != renewals_of(p) || !is_former(former, s->call->conn))
                return;
        rpc_call_cancel(former->call);
        peer_kick(p);
}

static void on_renewal(struct renewals *s, const Pb__LeaseKeepAliveResponse *r)
{
        struct peer *p = s->peer;
        struct member *m = p->member;
        struct session_renewal took;
        struct boot_time sent_at;

        /* The k-th answer on a stream acknowledges at least the k-th oldest request. */
        sent_at = s->sent[0];
        memmove(s->sent, s->sent + 1, --s->n * sizeof(s->sent[0]));
        s->answered = true;
        if (member_hear(m, p, r->header) == WORLD_FOREIGN)
                return session_hurry(&m->session, m->now);
        member_heard(m, p, r->header);
        end_former(s);
        if (r->ttl > 0) {
                took = session_renewal(&m->session, sent_at, m->now);
                session_renewed(&m->session, r->id, answered_ttl(r->ttl_ms, r->ttl), sent_at);
                if (m->events->renewed && boot_before(took.before, m->session.renewed_at))
                        m->events->renewed(m->userdata, &took);
                suspect_view(m, p, sent_at);
                return;
        }
        if (r->id == m->session.lease) /* not an earlier lease */
                snprintf(m->why, sizeof(m->why), "the core says that the lease is gone");
        session_gone(&m->session, r->id);
}

static void keepalive_message(struct rpc_call *call, struct view bytes)
{
        struct renewals *s = call->userdata;
        Pb__LeaseKeepAliveResponse *r = NULL;

        /* An answer that cannot be read acknowledges nothing: the next answer then counts for
         * an older request. */
        if (pb_unpack(&pb__lease_keep_alive_response__descriptor, bytes, &r) == 0 && s->n > 0 &&
            member_header_is_sane(r->header))
                on_renewal(s, r);
        pb_free(r);
}

static void keepalive_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct renewals *s = call->userdata;
        struct peer *p = s->peer;

        if (refusal_wants_login(code, message))
                peer_log_in_again(p);
        if (code != RPC_OK)
                snprintf(p->member->why, sizeof(p->member->why), "%s: %s", peer_name(p),
                         message);
        /* A stream that worked ends when its replica does: go on to another replica. After a
         * stream that was refused we wait. */
        if (s->answered)
                session_hurry(&p->member->session, p->member->now);
}

static void keepalive_close(struct rpc_call *call)
{
        struct renewals *s = call->userdata;

        s->call = NULL;
        s->n = 0;
        s->answered = false;
}

static const struct rpc_handler keepalive_handler = {.on_message = keepalive_message,
                                                     .on_status = keepalive_status,
                                                     .on_close = keepalive_close};

/* Answers about a lease that is gone are of no interest, and a stream that has not answered may
 * never do so. */
static void forget_renewals(struct member *m)
{
        for (size_t i = 0; i < m->n_peers; i++)
                for (size_t k = 0; k < RENEWALS; k++) {
                        struct renewals *s = &m->peers[i].renewals[k];

                        if (s->call && s->n > 0)
                                rpc_call_cancel(s->call);
                }
}

/* Nothing has arrived on the stream for 3/8 TTL, the time from T1 to T2. */
static bool is_stuck(const struct renewals *s, struct boot_time now)
{
        return s->n > 0 && boot_diff(now, s->sent[0]) >= s->peer->member->session.ttl / 8 * 3;
}

/* If the stream is stuck, its answer may still be on its way; if it is on a connection that
 * takes no more calls, the one that follows has still to prove itself. So we keep it, and open
 * another one on @conn beside it. */
static void begin_beside(struct peer *p, const struct rpc_conn *conn, struct boot_time now)
{
        const struct renewals *s = renewals_of(p);

        if (!is_former(s, conn) && (!is_stuck(s, now) || is_former(other_renewals_of(p), conn)))
                return;
        p->renewing = (p->renewing + 1) % RENEWALS;
        s = renewals_of(p);
        if (s->call)
                rpc_call_cancel(s->call);
}

static void send_renewal(struct renewals *s, int64_t lease, struct boot_time now)
{
        Pb__LeaseKeepAliveRequest q = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;
        cleanup_(buf_fini) struct buf b = {0};

        if (!s->call || s->n == RENEWALS_MAX)
                return; /* there is no stream, or enough renewals are under way on it */
        q.id = lease;
        pb_append(&b, &q.base);
        if (buf_error(&b) < 0 || rpc_call_send(s->call, b.data, buf_len(&b)) < 0)
                return;
        s->sent[s->n++] = now;
}

/* Renewals have moved to a new connection once one has been answered there; until then they are
 * sent on both. */
static void renew_on(struct member *m, struct peer *p, struct boot_time now)
{
        struct rpc_conn *conn = peer_rpc(p);
        struct renewals *s, *other;

        if (conn)
                begin_beside(p, conn, now);
        s = renewals_of(p);
        s->peer = p;
        if (conn && !s->call)
                (void) !rpc_call_new(conn, "/etcdserverpb.Lease/LeaseKeepAlive", false,
                                     &keepalive_handler, s, &s->call);
        send_renewal(s, m->session.lease, now);
        other = other_renewals_of(p);
        if (!s->answered && is_former(other, conn))
                send_renewal(other, m->session.lease, now);
        peer_kick(p);
}

/* Also an endpoint that takes no more calls, as long as one of its streams is open. */
static bool takes_renewals(struct peer *p)
{
        return peer_rpc(p) || renewals_of(p)->call || other_renewals_of(p)->call;
}

/* Prefers an endpoint that takes calls: the connection of any other is about to end. */
static struct peer *renewing_peer(struct member *m, size_t from)
{
        struct peer *p = member_peer(m, from);

        for (size_t i = 0; !p && i < m->n_peers; i++) {
                struct peer *q = &m->peers[(from + i) % m->n_peers];

                if (takes_renewals(q) && !member_is_foreign(m, q))
                        p = q;
        }
        return p;
}

bool hold_waits_for(const struct peer *p)
{
        return p->renewals[p->renewing].n > 0;
}

void hold_peer_down(struct member *m, struct peer *p)
{
        /* Renewals sent there may never be answered: do not wait until the next one is due. */
        if (p == &m->peers[m->current])
                m->current = (m->current + 1) % m->n_peers;
        session_hurry(&m->session, m->now);
}

/* ---- leave ---- */

static void on_revoked(struct unary *u, enum rpc_code code, const char *message)
{
        struct member *m = u->member;

        if (u->op != m->hold_op)
                return;
        (void) message;
        if (code == RPC_OK || (code == RPC_NOT_FOUND && u->peer->cluster == m->world.cluster))
                session_left(&m->session);
        else
                session_failed(&m->session, m->now);
}

static int give_back(struct member *m, struct peer *p);

static void on_reason_written(struct unary *u, enum rpc_code code, const char *message)
{
        struct member *m = u->member;
        const Pb__TxnResponse *t = u->reply;
        Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;
        struct peer *p = u->peer;

        (void) message; /* the place is given back whether or not the reason was written */
        if (u->op != m->hold_op || m->session.lease == 0)
                return;
        if (code == RPC_OK && member_hear(m, p, t->header) == WORLD_FOREIGN) {
                p = member_peer(m, m->current + 1);
                if (!p || give_back(m, p) < 0)
                        session_failed(&m->session, m->now);
                return;
        }
        if (m->session.lease == 0) /* the answer showed that the lease is gone */
                return;
        if (!peer_rpc(p))
                return session_failed(&m->session, m->now);
        q.id = m->session.lease;
        if (member_call(p, ++m->hold_op, "/etcdserverpb.Lease/LeaseRevoke", &q.base,
                        &pb__lease_revoke_response__descriptor, on_revoked) < 0)
                session_failed(&m->session, m->now);
}

static int give_back(struct member *m, struct peer *p)
{
        Pb__Compare cmp = PB__COMPARE__INIT;

        snprintf(m->self.leaving, sizeof(m->self.leaving), "%s", m->leaving);
        cmp.target = PB__COMPARE__COMPARE_TARGET__LEASE;
        cmp.target_union_case = PB__COMPARE__TARGET_UNION_LEASE;
        cmp.lease = m->session.lease;
        return txn(m, p, &cmp, on_reason_written);
}

/* ---- */

static void ask(struct member *m, int (*fn)(struct member *m, struct peer *p),
                struct boot_time now)
{
        struct peer *p = member_peer(m, m->current + session_attempt(&m->session));

        if (!p || fn(m, p) < 0)
                session_failed(&m->session, now);
}

void hold_run(struct member *m, struct boot_time now)
{
        enum session_action a;
        struct peer *p;

        check_key(m);
        check_holder(m);
        while ((a = session_next_action(&m->session, now)) != SESSION_WAIT) {
                if (a != SESSION_TELL_LOST)
                        announce(m);
                switch (a) {
                case SESSION_WAIT:
                        break;
                case SESSION_GRANT:
                        ask(m, grant, now);
                        break;
                case SESSION_REGISTER:
                        ask(m, register_node, now);
                        break;
                case SESSION_RENEW:
                        world_renewal(&m->world);
                        p = renewing_peer(m, m->current + session_attempt(&m->session));
                        if (p)
                                renew_on(m, p, now);
                        probe_view(m, p);
                        session_sent(&m->session, now);
                        break;
                case SESSION_RENEW_ALL:
                        for (size_t i = 0; i < m->n_peers; i++) {
                                peer_hurry(&m->peers[i], m->session.ttl / 16);
                                if (takes_renewals(&m->peers[i]) &&
                                    !member_is_foreign(m, &m->peers[i]))
                                        renew_on(m, &m->peers[i], now);
                        }
                        session_sent(&m->session, now);
                        break;
                case SESSION_TELL_LOST:
                        m->announced = SESSION_LOST;
                        m->events->session(m->userdata, SESSION_LOST,
                                           *m->why ? m->why
                                                   : "no renewal was acknowledged in time");
                        forget_renewals(m);
                        session_loss_announced(&m->session);
                        break;
                case SESSION_REVOKE:
                        ask(m, give_back, now);
                        break;
                }
        }
        revoke_former(m, now);
        announce(m);
}

struct boot_time hold_next(const struct member *m)
{
        return boot_min(session_wakeup(&m->session),
                        m->former.lease != 0 ? m->former.at : BOOT_TIME_NEVER);
}
