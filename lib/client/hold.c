/* What the session decides, done: grant, register, renew, revoke. */
#include <stdio.h>
#include <time.h>

#include "base/log.h"
#include "client/internal.h"

/* How long a replica may take to say that it is there. */
#define PATIENCE_SHARE 16 /* of the TTL, ... */
#define PATIENCE_MIN (250 * NSEC_PER_MSEC)

#define ASK_AGAIN_MIN (100 * NSEC_PER_MSEC)

#define FOREIGN "it is of another cluster"

/* What a core may say of a lease's length: no more is believed, and less is none. */
#define TTL_MOST (86400 * NSEC_PER_SEC)
#define TTL_LEAST (50 * NSEC_PER_MSEC)

/* A core that does not know milliseconds says whole seconds. */
static nsec_t told_ttl(int64_t ms, int64_t seconds)
{
        if (ms > 0)
                return min_of(ms, TTL_MOST / NSEC_PER_MSEC) * NSEC_PER_MSEC;
        return min_of(max_of(seconds, INT64_C(0)), TTL_MOST / NSEC_PER_SEC) * NSEC_PER_SEC;
}

static void announce(struct client *c)
{
        if (c->session.state == c->told)
                return;
        c->told = c->session.state;
        c->ops->session(c->userdata, c->told, c->why);
}

static void failed(struct client *c, const char *what, const char *message)
{
        snprintf(c->why, sizeof(c->why), "%s: %s", what, message);
        log_debug("%s.", c->why);
        c->current = (c->current + 1) % c->n_peers;
        session_failed(&c->session, loop_now(c->loop));
}

/* ---- grant ---- */

static void on_granted(struct unary *u, enum rpc_code code, const char *message)
{
        struct client *c = u->client;
        const Pb__LeaseGrantResponse *p = u->reply;
        nsec_t ttl;

        if (u->op != c->hold_op)
                return;
        if (code != RPC_OK)
                return failed(c, "no lease", message);
        if (client_hear(c, u->peer, p->header) == WORLD_FOREIGN)
                return failed(c, "no lease", FOREIGN);
        ttl = told_ttl(p->ttl_ms, p->ttl);
        if (p->id <= 0 || ttl < TTL_LEAST)
                return failed(c, "no lease", "the core's answer makes no sense");
        client_heard(c, u->peer, p->header);
        session_granted(&c->session, p->id, ttl, u->sent_at);
}

static int grant(struct client *c, struct peer *p)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;
        nsec_t ttl = c->session.cfg.ttl;

        q.ttl_ms = ttl / NSEC_PER_MSEC;
        q.ttl = (ttl + NSEC_PER_SEC - 1) / NSEC_PER_SEC;
        return client_call(p, ++c->hold_op, "/etcdserverpb.Lease/LeaseGrant", &q.base,
                           &pb__lease_grant_response__descriptor, on_granted);
}

/* ---- register ---- */

static void on_old_revoked(struct unary *u, enum rpc_code code, const char *message)
{
        (void) u;
        (void) code;
        (void) message; /* it would expire by itself as well */
}

static void registered(struct client *c, struct peer *p, int64_t revision)
{
        if (c->old_lease != 0 && endpoint_rpc(p->ep)) {
                Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;

                q.id = c->old_lease;
                (void) !client_call(p, 0, "/etcdserverpb.Lease/LeaseRevoke", &q.base,
                                    &pb__lease_revoke_response__descriptor, on_old_revoked);
        }
        c->old_lease = 0;
        c->registered_at = revision;
        c->offers.self_stored = c->offers.self_sent;
        session_registered(&c->session);
}

static int write_key(struct client *c, struct peer *p, int64_t mod_revision);

static void on_claimed(struct unary *u, enum rpc_code code, const char *message)
{
        (void) u;
        (void) code;
        (void) message; /* who holds our name hears of us the next time */
}

/* Says to the holder of our name, as long as the lease lives that it spared us, that we are
 * there. */
static void tell_holder(struct client *c, struct peer *p)
{
        cleanup_(buf_fini) struct buf key = {0}, value = {0};
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;

        buf_printf(&key, "%sclaims/%s", c->prefix, c->self.name);
        node_record_write(&c->self, &value);
        if (buf_error(&key) < 0 || buf_error(&value) < 0 || c->session.lease == 0)
                return;
        put.key = pb_bytes(key.data, buf_len(&key));
        put.value = pb_bytes(value.data, buf_len(&value));
        put.lease = c->session.lease;
        (void) !client_call(p, 0, "/etcdserverpb.KV/Put", &put.base,
                            &pb__put_response__descriptor, on_claimed);
}

static void refused(struct client *c, struct peer *p, enum claim_verdict v, nsec_t again)
{
        const struct node_record *h = &c->holder.record;

        if (v == CLAIM_CLONE)
                snprintf(c->why, sizeof(c->why),
                         "the place of '%s' is held by another host with the same node id "
                         "(boot %s, since %s, at %s); if one is a clone of the other, give it "
                         "a machine id of its own and another NodeName=; if that was an "
                         "earlier boot of this one, its lease ends by itself",
                         c->self.name, *h->boot_id ? h->boot_id : "unknown",
                         *h->since ? h->since : "unknown",
                         *h->addresses ? h->addresses : "an unknown address");
        else
                snprintf(c->why, sizeof(c->why),
                         "the name '%s' is held by another node (id %s, since %s); give this "
                         "one another NodeName=",
                         c->self.name, *h->id ? h->id : "unknown",
                         *h->since ? h->since : "unknown");
        c->ops->session(c->userdata, SESSION_JOINING, c->why);
        tell_holder(c, p);
        session_refused(&c->session, loop_now(c->loop), again);
}

static void take_over(struct client *c, struct peer *p)
{
        c->old_lease = c->holder.lease;
        if (write_key(c, p, c->holder.mod_revision) < 0)
                failed(c, "cannot register", "the connection broke");
}

static void on_age(struct unary *u, enum rpc_code code, const char *message)
{
        struct client *c = u->client;
        const Pb__LeaseTimeToLiveResponse *r = u->reply;
        nsec_t granted, left, blur;
        enum claim_verdict v;

        if (u->op != c->hold_op)
                return;
        if (code != RPC_OK)
                return failed(c, "cannot register", message);
        if (client_hear(c, u->peer, r->header) != WORLD_OURS)
                return failed(c, "cannot register", FOREIGN);
        if (r->ttl < 0) /* it has ended meanwhile */
                return session_failed(&c->session, loop_now(c->loop));
        /* A core that does not know milliseconds tells whole seconds, rounded down. */
        granted = told_ttl(r->granted_ttl_ms, r->grantedttl);
        left = told_ttl(r->ttl_ms, r->granted_ttl_ms > 0 ? 0 : r->ttl);
        blur = r->granted_ttl_ms > 0 ? 0 : NSEC_PER_SEC;
        v = claim_judge(&c->claim, &c->self, &c->holder.record, granted - left - blur,
                        granted - left, loop_now(c->loop));
        if (v == CLAIM_OURS)
                take_over(c, u->peer);
        else
                refused(c, u->peer, v,
                        max_of(min_of(left + blur, c->session.cfg.ttl), ASK_AGAIN_MIN));
}

static void ask_age(struct client *c, struct peer *p)
{
        Pb__LeaseTimeToLiveRequest q = PB__LEASE_TIME_TO_LIVE_REQUEST__INIT;

        q.id = c->holder.lease;
        if (client_call(p, ++c->hold_op, "/etcdserverpb.Lease/LeaseTimeToLive", &q.base,
                        &pb__lease_time_to_live_response__descriptor, on_age) < 0)
                failed(c, "cannot register", "the connection broke");
}

/* Who refused us is gone: at once once more. */
static void check_holder(struct client *c)
{
        const struct member_node *n;

        if (c->holder.lease == 0 || c->session.state != SESSION_JOINING ||
            c->session.lease != 0 || !c->synced || c->members.revision < c->holder.mod_revision)
                return;
        n = membership_find(&c->members, c->self.name);
        if (n && n->lease == c->holder.lease)
                return;
        c->holder.lease = 0;
        session_hurry(&c->session, loop_now(c->loop));
}

/* The key is there already: another life of ours, or somebody else. */
static void on_taken(struct client *c, struct peer *p, const Pb__TxnResponse *t)
{
        const Pb__RangeResponse *range;
        const Pb__KeyValue *kv;
        enum claim_verdict v;

        if (t->n_responses != 1 ||
            t->responses[0]->response_case != PB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE)
                return failed(c, "cannot register", "the core's answer makes no sense");
        range = t->responses[0]->response_range;
        if (range->n_kvs == 0) /* gone again meanwhile */
                return session_failed(&c->session, loop_now(c->loop));
        kv = range->kvs[0];
        if (kv->lease == c->session.lease) {
                c->offers.self_sent = 0; /* an answer to us was lost on the way */
                return registered(c, p, kv->mod_revision);
        }
        /* What is no record leaves it empty: nobody that we know. */
        (void) !node_record_read(&c->holder.record, kv->value.data, kv->value.len);
        c->holder.lease = kv->lease;
        c->holder.mod_revision = kv->mod_revision;
        v = claim_look(&c->claim, &c->self, &c->holder.record, kv->lease);
        if (v == CLAIM_OURS)
                take_over(c, p);
        else if (v == CLAIM_ASK)
                ask_age(c, p);
        else
                refused(c, p, v, c->session.cfg.ttl);
}

static void on_registered(struct unary *u, enum rpc_code code, const char *message)
{
        struct client *c = u->client;
        const Pb__TxnResponse *t = u->reply;

        if (u->op != c->hold_op)
                return;
        /* The lease ended before it was used; or it was never there. */
        if (code == RPC_NOT_FOUND && u->peer->cluster == c->world.cluster)
                return session_gone(&c->session, c->session.lease);
        if (code != RPC_OK)
                return failed(c, "cannot register", message);
        switch (client_hear(c, u->peer, t->header)) {
        case WORLD_FOREIGN:
                return failed(c, "cannot register", FOREIGN);
        case WORLD_NEW: /* in which we have no lease */
                return;
        case WORLD_OURS:
                break;
        }
        client_heard(c, u->peer, t->header);
        if (t->succeeded)
                registered(c, u->peer, t->header->revision);
        else
                on_taken(c, u->peer, t);
}

/* A place whose key is not ours any more, as the membership has it, is lost. */
static void check_key(struct client *c)
{
        const struct member_node *n;

        if ((c->session.state != SESSION_HELD && c->session.state != SESSION_JEOPARDY) ||
            c->members.revision == 0 || c->members.revision < c->registered_at)
                return;
        n = membership_find(&c->members, c->self.name);
        if (n && n->lease == c->session.lease)
                return;
        if (n)
                snprintf(c->why, sizeof(c->why),
                         "another host has taken it (id %s, boot %s, at %s)",
                         *n->record.id ? n->record.id : "unknown",
                         *n->record.boot_id ? n->record.boot_id : "unknown",
                         *n->record.addresses ? n->record.addresses : "no address");
        else
                snprintf(c->why, sizeof(c->why), "its key was deleted");
        session_gone(&c->session, c->session.lease);
}

void hold_own_key(const struct client *c, struct buf *key)
{
        buf_printf(key, "%snodes/%s", c->prefix, c->self.name);
}

/* Puts our record where @compare holds; reads the key otherwise. */
static int txn(struct client *c, struct peer *p, Pb__Compare *compare,
               void (*done)(struct unary *u, enum rpc_code code, const char *message))
{
        cleanup_(buf_fini) struct buf key = {0}, value = {0};
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__RequestOp yes = PB__REQUEST_OP__INIT, no = PB__REQUEST_OP__INIT, *yes_p = &yes,
                      *no_p = &no;
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__RangeRequest range = PB__RANGE_REQUEST__INIT;

        hold_own_key(c, &key);
        node_record_write(&c->self, &value);
        c->offers.self_sent = c->offers.self_version;
        if (buf_error(&key) < 0 || buf_error(&value) < 0)
                return -ENOMEM;
        put.key = range.key = compare->key = pb_bytes(key.data, buf_len(&key));
        put.value = pb_bytes(value.data, buf_len(&value));
        put.lease = c->session.lease;
        compare->result = PB__COMPARE__COMPARE_RESULT__EQUAL;
        yes.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        yes.request_put = &put;
        no.request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        no.request_range = &range;
        q.compare = &compare;
        q.success = &yes_p;
        q.failure = &no_p;
        q.n_compare = q.n_success = q.n_failure = 1;
        return client_call(p, ++c->hold_op, "/etcdserverpb.KV/Txn", &q.base,
                           &pb__txn_response__descriptor, done);
}

/* @mod_revision 0: only where there is no key; else only over exactly that one. */
static int write_key(struct client *c, struct peer *p, int64_t mod_revision)
{
        Pb__Compare cmp = PB__COMPARE__INIT;

        cmp.target = PB__COMPARE__COMPARE_TARGET__MOD;
        cmp.target_union_case = PB__COMPARE__TARGET_UNION_MOD_REVISION;
        cmp.mod_revision = mod_revision;
        return txn(c, p, &cmp, on_registered);
}

void hold_time(char text[static 32])
{
        time_t now = time(NULL);
        struct tm tm;

        gmtime_r(&now, &tm);
        strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static int register_node(struct client *c, struct peer *p)
{
        /* Each life of the node is told apart. */
        if (c->session.attempt == 0) {
                snprintf(c->self.incarnation, sizeof(c->self.incarnation), "%016llx%016llx",
                         (unsigned long long) rnd_u64(&c->rnd),
                         (unsigned long long) rnd_u64(&c->rnd));
                hold_time(c->self.since);
                claim_add(&c->claim, c->self.incarnation);
        }
        c->self.ttl_ms = c->session.ttl / NSEC_PER_MSEC;
        c->self.leaving[0] = '\0';
        c->old_lease = c->holder.lease = 0;
        return write_key(c, p, 0);
}

/* ---- renew ---- */

static struct renewals *renewals_of(struct peer *p)
{
        return &p->renewals[p->renewing];
}

/* Another one has answered what was sent later: the one that our watch is on is gone, or as
 * good as that. */
static void suspect_view(struct client *c, const struct peer *answered,
                         struct boot_time sent_at)
{
        struct peer *v = &c->peers[c->view_peer];
        const struct renewals *s = renewals_of(v);

        if (v != answered && s->n > 0 && boot_before(s->sent[0], sent_at))
                endpoint_suspect(v->ep);
}

/* A replica whose host lost its power says nothing, and a watch only listens. We are awake for
 * the heartbeat, so we ask, unless the heartbeat itself goes there. */
static void probe_view(struct client *c, const struct peer *renewed_on)
{
        if (renewed_on != &c->peers[c->view_peer])
                endpoint_probe(c->peers[c->view_peer].ep,
                               max_of(c->session.ttl / PATIENCE_SHARE, PATIENCE_MIN));
}

static void on_renewal(struct renewals *s, const Pb__LeaseKeepAliveResponse *r)
{
        struct peer *p = s->peer;
        struct client *c = p->client;
        struct boot_time sent_at;

        /* The k-th answer on a stream acknowledges k requests: at least the k-th oldest. */
        sent_at = s->sent[0];
        memmove(s->sent, s->sent + 1, --s->n * sizeof(s->sent[0]));
        s->answered = true;
        if (client_hear(c, p, r->header) == WORLD_FOREIGN)
                return session_hurry(&c->session, loop_now(c->loop));
        client_heard(c, p, r->header);
        if (r->ttl > 0) {
                session_renewed(&c->session, r->id, told_ttl(r->ttl_ms, r->ttl), sent_at);
                suspect_view(c, p, sent_at);
                return;
        }
        if (r->id == c->session.lease) /* not of an earlier one */
                snprintf(c->why, sizeof(c->why), "the core says that the lease is gone");
        session_gone(&c->session, r->id);
}

static void keepalive_message(struct rpc_call *call, struct view m)
{
        struct renewals *s = call->userdata;
        Pb__LeaseKeepAliveResponse *r = NULL;

        /* One that cannot be read acknowledges nothing: the next counts for an older one. */
        if (pb_unpack(&pb__lease_keep_alive_response__descriptor, m, &r) == 0 && s->n > 0 &&
            client_header_is_sane(r->header))
                on_renewal(s, r);
        pb_free(r);
}

static void keepalive_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct renewals *s = call->userdata;
        struct peer *p = s->peer;

        if (code == RPC_UNAUTHENTICATED)
                endpoint_log_in_again(p->ep);
        if (code != RPC_OK)
                snprintf(p->client->why, sizeof(p->client->why), "%s: %s", endpoint_name(p->ep),
                         message);
        /* One that was fine ends with its replica: on to another one. One that is refused
         * waits. */
        if (s->answered)
                session_hurry(&p->client->session, loop_now(p->client->loop));
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

/* What was asked for the lease that is gone is of no interest, and a stream that has not
 * answered may never do. */
static void forget_renewals(struct client *c)
{
        for (size_t i = 0; i < c->n_peers; i++)
                for (size_t k = 0; k < RENEWALS; k++) {
                        struct renewals *s = &c->peers[i].renewals[k];

                        if (s->call && s->n > 0)
                                rpc_call_cancel(s->call);
                }
}

/* A stream on which nothing has come for as long as from T1 to T2 is stuck, or its answer is
 * still on its way: so it stays, and another one begins beside it. */
static void begin_beside(struct peer *p, struct boot_time now)
{
        const struct renewals *s = renewals_of(p);

        if (s->n == 0 || boot_diff(now, s->sent[0]) < p->client->session.ttl / 8 * 3)
                return;
        p->renewing = (p->renewing + 1) % RENEWALS;
        s = renewals_of(p);
        if (s->call)
                rpc_call_cancel(s->call);
}

static void renew_on(struct client *c, struct peer *p, struct boot_time now)
{
        Pb__LeaseKeepAliveRequest q = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;
        cleanup_(buf_fini) struct buf b = {0};
        struct renewals *s;

        begin_beside(p, now);
        s = renewals_of(p);
        s->peer = p;
        if (!s->call && rpc_call_new(endpoint_rpc(p->ep), "/etcdserverpb.Lease/LeaseKeepAlive",
                                     false, &keepalive_handler, s, &s->call) < 0)
                return;
        if (s->n == RENEWALS_MAX)
                return; /* enough is under way there */
        q.id = c->session.lease;
        pb_append(&b, &q.base);
        if (buf_error(&b) < 0 || rpc_call_send(s->call, b.data, buf_len(&b)) < 0)
                return;
        s->sent[s->n++] = now;
        endpoint_kick(p->ep);
}

bool hold_waits_for(const struct peer *p)
{
        return p->renewals[p->renewing].n > 0;
}

void hold_peer_down(struct client *c, struct peer *p)
{
        /* What was sent there may never be answered: do not wait for T1's next interval. */
        if (p == &c->peers[c->current])
                c->current = (c->current + 1) % c->n_peers;
        session_hurry(&c->session, loop_now(c->loop));
}

/* ---- leave ---- */

static void on_revoked(struct unary *u, enum rpc_code code, const char *message)
{
        struct client *c = u->client;

        if (u->op != c->hold_op)
                return;
        (void) message;
        if (code == RPC_OK || (code == RPC_NOT_FOUND && u->peer->cluster == c->world.cluster))
                session_left(&c->session);
        else
                session_failed(&c->session, loop_now(c->loop));
}

static int give_back(struct client *c, struct peer *p);

static void on_reason_written(struct unary *u, enum rpc_code code, const char *message)
{
        struct client *c = u->client;
        const Pb__TxnResponse *t = u->reply;
        Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;
        struct peer *p = u->peer;

        (void) message; /* with or without the reason: the place is given back */
        if (u->op != c->hold_op)
                return;
        if (code == RPC_OK && client_hear(c, p, t->header) == WORLD_FOREIGN) {
                p = client_peer(c, c->current + 1);
                if (!p || give_back(c, p) < 0)
                        session_failed(&c->session, loop_now(c->loop));
                return;
        }
        if (c->session.lease == 0)
                return;
        if (!endpoint_rpc(p->ep))
                return session_failed(&c->session, loop_now(c->loop));
        q.id = c->session.lease;
        if (client_call(p, ++c->hold_op, "/etcdserverpb.Lease/LeaseRevoke", &q.base,
                        &pb__lease_revoke_response__descriptor, on_revoked) < 0)
                session_failed(&c->session, loop_now(c->loop));
}

static int give_back(struct client *c, struct peer *p)
{
        Pb__Compare cmp = PB__COMPARE__INIT;

        snprintf(c->self.leaving, sizeof(c->self.leaving), "%s", c->leaving);
        cmp.target = PB__COMPARE__COMPARE_TARGET__LEASE;
        cmp.target_union_case = PB__COMPARE__TARGET_UNION_LEASE;
        cmp.lease = c->session.lease;
        return txn(c, p, &cmp, on_reason_written);
}

/* ---- */

static void ask(struct client *c, int (*fn)(struct client *c, struct peer *p),
                struct boot_time now)
{
        struct peer *p = client_peer(c, c->current + session_attempt(&c->session));

        if (!p || fn(c, p) < 0)
                session_failed(&c->session, now);
}

void hold_run(struct client *c, struct boot_time now)
{
        enum session_action a;
        struct peer *p;

        check_key(c);
        check_holder(c);
        while ((a = session_next_action(&c->session, now)) != SESSION_WAIT) {
                if (a != SESSION_TELL_LOST)
                        announce(c);
                switch (a) {
                case SESSION_WAIT:
                        break;
                case SESSION_GRANT:
                        ask(c, grant, now);
                        break;
                case SESSION_REGISTER:
                        ask(c, register_node, now);
                        break;
                case SESSION_RENEW:
                        world_renewal(&c->world);
                        p = client_peer(c, c->current + session_attempt(&c->session));
                        if (p)
                                renew_on(c, p, now);
                        probe_view(c, p);
                        session_sent(&c->session, now);
                        break;
                case SESSION_RENEW_ALL:
                        for (size_t i = 0; i < c->n_peers; i++) {
                                endpoint_want(c->peers[i].ep);
                                if (endpoint_rpc(c->peers[i].ep) &&
                                    !client_is_foreign(c, &c->peers[i]))
                                        renew_on(c, &c->peers[i], now);
                        }
                        session_sent(&c->session, now);
                        break;
                case SESSION_TELL_LOST:
                        c->told = SESSION_LOST;
                        c->ops->session(c->userdata, SESSION_LOST,
                                        *c->why ? c->why
                                                : "no renewal was acknowledged in time");
                        forget_renewals(c);
                        session_told_lost(&c->session);
                        break;
                case SESSION_REVOKE:
                        ask(c, give_back, now);
                        break;
                }
        }
        announce(c);
}

struct boot_time hold_next(const struct client *c)
{
        return session_wakeup(&c->session);
}
