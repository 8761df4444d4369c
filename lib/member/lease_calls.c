/* Carries out what the session decides: grant, renew, revoke; registration.c registers. */
#include <stdio.h>

#include "base/log.h"
#include "base/probe.h"
#include "base/utf8.h"
#include "member/internal.h"
#include "member/refusal.h"

/* How long a replica may take to answer a probe. */
#define PATIENCE_SHARE 16 /* of the TTL, ... */
#define PATIENCE_MIN (250 * NSEC_PER_MSEC)

/* How long a lease that was granted waits for the membership, where it is not known yet: our id
 * may be listed under another name. With 10,000 nodes the range has 5 MB; where as many hosts
 * boot at once and it takes longer, they register without. */
#define LOOK_FIRST NSEC_PER_SEC
#define LOOK_SHARE 4 /* of the TTL at most */

/* Limits for the TTL in an answer of the core: a longer TTL is reduced to the limit, a shorter
 * one counts as an invalid answer. */
#define TTL_MOST (86400 * NSEC_PER_SEC)
#define TTL_LEAST (50 * NSEC_PER_MSEC)

nsec_t lease_answered_ttl(int64_t ms, int64_t seconds)
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

void lease_failed(struct member *m, const char *what, const char *message)
{
        utf8_print(m->why, sizeof(m->why), "%s: %s", what, message);
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

        if (u->op != m->lease_op)
                return;
        if (code != RPC_OK)
                return lease_failed(m, "no lease", message);
        if (member_hear(m, u->peer, p->header) == WORLD_FOREIGN)
                return lease_failed(m, "no lease", LEASE_FOREIGN);
        ttl = lease_answered_ttl(p->ttl_ms, p->ttl);
        if (p->id <= 0 || ttl < TTL_LEAST)
                return lease_failed(m, "no lease", "the core's answer is invalid");
        member_heard(m, u->peer, p->header);
        m->view_retry_at = (struct boot_time){0}; /* is_looking() */
        session_granted(&m->session, p->id, ttl, u->sent_at);
}

static int grant(struct member *m, struct peer *p)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;
        nsec_t ttl = m->session.cfg.ttl;

        q.ttl_ms = ttl / NSEC_PER_MSEC;
        q.ttl = (ttl + NSEC_PER_SEC - 1) / NSEC_PER_SEC;
        return member_call(p, ++m->lease_op, "/etcdserverpb.Lease/LeaseGrant", &q.base,
                           &pb__lease_grant_response__descriptor, on_granted);
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

/* If another replica has answered a request that we sent later, the replica of our watch has
 * probably failed. */
static void suspect_view(struct member *m, const struct peer *answered,
                         struct boot_time sent_at)
{
        struct peer *v = &m->peers[m->view_peer];
        const struct renewals *s = renewals_of(v);

        if (v != answered && s->n > 0 && boot_before(s->sent[0], sent_at))
                peer_suspect(v);
}

/* A replica whose host lost power sends nothing, and a watch sends nothing either, so nothing
 * would reveal the loss. With each heartbeat we also probe the replica of the watch, unless the
 * heartbeat itself goes there. */
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
                session_renewed(&m->session, r->id, lease_answered_ttl(r->ttl_ms, r->ttl),
                                sent_at);
                if (m->events->renewed && boot_before(took.before, m->session.renewed_at))
                        m->events->renewed(m->userdata, &took);
                suspect_view(m, p, sent_at);
                return;
        }
        if (r->id == m->session.lease) /* not an earlier lease */
                utf8_print(m->why, sizeof(m->why), "the core says that the lease is gone");
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
                utf8_print(p->member->why, sizeof(p->member->why), "%s: %s", peer_name(p),
                           message);
        /* A stream that has worked ends when its replica stops: continue at another replica.
         * After a stream that was refused we wait. */
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

/* The lease is gone: answers about it would mean nothing, and a stream that has not answered
 * may never do so. */
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

/* Opens a second stream, on @conn, beside the present one. That one is kept: if it is stuck,
 * its answer may still be on its way; if its connection takes no more calls, the new connection
 * has still to prove that it works. */
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

bool lease_waits_for(const struct peer *p)
{
        return p->renewals[p->renewing].n > 0;
}

void lease_peer_down(struct member *m, struct peer *p)
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

        if (u->op != m->lease_op)
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
        if (u->op != m->lease_op || m->session.lease == 0)
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
        if (member_call(p, ++m->lease_op, "/etcdserverpb.Lease/LeaseRevoke", &q.base,
                        &pb__lease_revoke_response__descriptor, on_revoked) < 0)
                session_failed(&m->session, m->now);
}

static int give_back(struct member *m, struct peer *p)
{
        Pb__Compare cmp = PB__COMPARE__INIT;

        snprintf(m->self.leaving, sizeof(m->self.leaving), "%s", m->leaving);
        strcpy(m->self.leaving_note, m->leaving_note);
        cmp.target = PB__COMPARE__COMPARE_TARGET__LEASE;
        cmp.target_union_case = PB__COMPARE__TARGET_UNION_LEASE;
        cmp.lease = m->session.lease;
        return registration_txn(m, p, &cmp, NULL, on_reason_written);
}

/* ---- */

static struct boot_time look_until(const struct session *s)
{
        return boot_add(s->renewed_at, min_of(s->ttl / LOOK_SHARE, LOOK_FIRST));
}

/* Whether the membership, in which our id may be listed under another name, is still to come
 * before the lease is used. */
static bool is_looking(const struct member *m, struct boot_time now)
{
        const struct session *s = &m->session;

        return !m->no_view && !m->sessions && m->members.revision == 0 && !s->leave &&
               s->state == SESSION_JOINING && s->lease != 0 && boot_before(now, look_until(s));
}

static void ask(struct member *m, int (*fn)(struct member *m, struct peer *p),
                struct boot_time now)
{
        struct peer *p = member_peer(m, m->current + session_attempt(&m->session));

        if (!p || fn(m, p) < 0)
                session_failed(&m->session, now);
}

void lease_run(struct member *m, struct boot_time now)
{
        enum session_action a;
        struct peer *p;

        registration_check_key(m);
        registration_check_holder(m);
        while (!is_looking(m, now) &&
               (a = session_next_action(&m->session, now)) != SESSION_WAIT) {
                if (a != SESSION_TELL_LOST)
                        announce(m);
                switch (a) {
                case SESSION_WAIT:
                        break;
                case SESSION_GRANT:
                        ask(m, grant, now);
                        break;
                case SESSION_REGISTER:
                        ask(m, registration_begin, now);
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
        registration_revoke_former(m, now);
        announce(m);
}

struct boot_time lease_next(const struct member *m)
{
        return boot_min(is_looking(m, m->now) ? look_until(&m->session)
                                              : session_wakeup(&m->session),
                        registration_next(m));
}
