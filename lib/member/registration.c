/* Writes our node's key, also over the key of an earlier life of this host, and notices when
 * another host has it. */
#include <stdio.h>

#include "base/probe.h"
#include "base/utf8.h"
#include "member/internal.h"

#define ASK_AGAIN_MIN (100 * NSEC_PER_MSEC)
#define REVOKE_AGAIN NSEC_PER_SEC

static void on_former_revoked(struct unary *u, enum rpc_code code, const char *message)
{
        struct member *m = u->member;

        (void) message;
        if (code == RPC_UNAVAILABLE || code == RPC_DEADLINE_EXCEEDED || code == RPC_CANCELED)
                return;
        for (size_t i = 0; i < m->former.n; i++)
                if (u->op == (uint64_t) m->former.leases[i])
                        m->former.leases[i] = m->former.leases[--m->former.n];
}

struct boot_time registration_next(const struct member *m)
{
        return m->former.n > 0 && m->session.registered ? m->former.at : BOOT_TIME_NEVER;
}

/* Repeats the call until it is answered: the lease may have a TTL of an hour, and services of
 * the earlier life are attached to it. */
void registration_revoke_former(struct member *m, struct boot_time now)
{
        Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;
        struct peer *p;

        if (boot_before(now, registration_next(m)))
                return;
        m->former.at = boot_add(now, REVOKE_AGAIN);
        p = member_peer(m, m->current); /* also while it connects */
        if (!p || !peer_rpc(p) || member_is_foreign(m, p))
                return;
        for (size_t i = 0; i < m->former.n; i++) {
                q.id = m->former.leases[i];
                (void) !member_call(p, (uint64_t) q.id, "/etcdserverpb.Lease/LeaseRevoke",
                                    &q.base, &pb__lease_revoke_response__descriptor,
                                    on_former_revoked);
        }
}

static void add_former(struct member *m, int64_t lease)
{
        for (size_t i = 0; i < m->former.n; i++)
                if (m->former.leases[i] == lease)
                        return;
        if (lease != 0 && m->former.n < FORMER_MAX) /* one that does not fit expires */
                m->former.leases[m->former.n++] = lease;
}

static void registered(struct member *m, int64_t revision)
{
        m->former.at = m->now;
        m->refused = false;
        m->registered_at = revision;
        publications_self_stored(&m->publications, revision);
        session_registered(&m->session);
}

static int write_key(struct member *m, struct peer *p, bool over);

/* The lease that was to be registered may have been dropped meanwhile, with no other in its
 * place: a key written then would be attached to no lease, and would stay for ever. */
static bool is_registering(const struct unary *u)
{
        const struct session *s = &u->member->session;

        return u->op == u->member->lease_op && s->state == SESSION_JOINING && s->lease != 0;
}

static void on_claimed(struct unary *u, enum rpc_code code, const char *message)
{
        (void) u;
        (void) code;
        (void) message; /* the holder of our name learns of us the next time */
}

/* Tells the holder of our name or id that we exist, in a key that lives as long as the lease
 * that we were granted but cannot register. */
static void tell_holder(struct member *m, struct peer *p)
{
        cleanup_(buf_fini) struct buf key = {0}, value = {0};
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;

        buf_printf(&key, "%sclaims/%s", m->prefix, m->holder.record.name);
        node_record_write(&m->self, &value);
        if (buf_error(&key) < 0 || buf_error(&value) < 0 || m->session.lease == 0)
                return;
        put.key = pb_bytes(key.data, buf_len(&key));
        put.value = pb_bytes(value.data, buf_len(&value));
        put.lease = m->session.lease;
        (void) !member_call(p, 0, "/etcdserverpb.KV/Put", &put.base,
                            &pb__put_response__descriptor, on_claimed);
}

/* Whether a record has our id and another name. */
static bool is_alias(const struct member *m, const struct node_record *n)
{
        return !m->sessions && *n->id && strcmp(n->id, m->self.id) == 0 &&
               strcmp(n->name, m->self.name) != 0;
}

static void refused(struct member *m, struct peer *p, enum claim_verdict v, nsec_t again)
{
        const struct node_record *h = &m->holder.record;

        m->refused = true;
        if (m->sessions)
                utf8_print(m->why, sizeof(m->why),
                           "the session '%s' is held by another program (%s, since %s)",
                           m->self.name, *h->tags ? h->tags : "unknown",
                           *h->since ? h->since : "unknown");
        else if (v == CLAIM_CLONE && is_alias(m, h))
                utf8_print(m->why, sizeof(m->why),
                           "this host's node id is that of node '%s' (boot %s, since %s, at "
                           "%s); if one is a clone of the other, give it a machine id of its "
                           "own; if that was this host, its lease will expire",
                           h->name, *h->boot_id ? h->boot_id : "unknown",
                           *h->since ? h->since : "unknown",
                           *h->addresses ? h->addresses : "an unknown address");
        else if (v == CLAIM_CLONE)
                utf8_print(m->why, sizeof(m->why),
                           "the place of '%s' is held by another host with the same node id "
                           "(boot %s, since %s, at %s); if one is a clone of the other, give "
                           "it a machine id of its own and another NodeName=; if that was an "
                           "earlier boot of this host, its lease will expire",
                           m->self.name, *h->boot_id ? h->boot_id : "unknown",
                           *h->since ? h->since : "unknown",
                           *h->addresses ? h->addresses : "an unknown address");
        else
                utf8_print(m->why, sizeof(m->why),
                           "the name '%s' is held by another node (id %s, since %s); give this "
                           "one another NodeName=",
                           m->self.name, *h->id ? h->id : "unknown",
                           *h->since ? h->since : "unknown");
        m->events->session(m->userdata, SESSION_JOINING, m->why);
        if (!m->sessions)
                tell_holder(m, p);
        session_refused(&m->session, m->now, again);
}

/* Whether our id is listed under another name, by a key that was written after @revision; the
 * first one is the holder then. */
static bool find_alias(struct member *m, int64_t revision)
{
        struct member_node *n, *first = NULL;

        if (!m->has_alias || m->members.revision == 0)
                return false;
        RB_FOREACH (n, member_tree, &m->members.nodes)
                if (is_alias(m, &n->record) && n->mod_revision > revision &&
                    (!first || n->mod_revision < first->mod_revision))
                        first = n;
        m->has_alias = first || revision > 0;
        if (!first)
                return false;
        m->holder.record = first->record;
        m->holder.lease = first->lease;
        m->holder.mod_revision = first->mod_revision;
        m->holder.ended = false;
        return true;
}

static void meet(struct member *m, struct peer *p);

static void take_over(struct member *m, struct peer *p)
{
        add_former(m, m->holder.lease);
        /* The name's key is an earlier life of ours, but one under another name may be of a
         * host that lives. */
        if (is_alias(m, &m->holder.record) && find_alias(m, m->holder.mod_revision))
                return meet(m, p);
        if (write_key(m, p, true) < 0)
                lease_failed(m, "cannot register", "the connection broke");
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
                return lease_failed(m, "cannot register", message);
        if (member_hear(m, u->peer, r->header) != WORLD_OURS)
                return lease_failed(m, "cannot register", LEASE_FOREIGN);
        if (r->ttl < 0) { /* it has ended meanwhile */
                PROBE("the holder of a name is gone when an agent asks for its age");
                if (!is_alias(m, &m->holder.record))
                        return session_failed(&m->session, m->now);
                m->holder.ended = true; /* ended: only our view is behind */
                return take_over(m, u->peer);
        }
        /* A core that does not know about milliseconds answers in whole seconds, rounded
         * down. */
        granted = lease_answered_ttl(r->granted_ttl_ms, r->grantedttl);
        left = lease_answered_ttl(r->ttl_ms, r->granted_ttl_ms > 0 ? 0 : r->ttl);
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
        if (member_call(p, ++m->lease_op, "/etcdserverpb.Lease/LeaseTimeToLive", &q.base,
                        &pb__lease_time_to_live_response__descriptor, on_age) < 0)
                lease_failed(m, "cannot register", "the connection broke");
}

/* If the holder that we were refused for is gone, tries again at once. */
void registration_check_holder(struct member *m)
{
        const struct member_node *n;

        if (m->sessions || m->holder.lease == 0 || m->session.state != SESSION_JOINING ||
            m->session.lease != 0 || !m->synced || m->members.revision < m->holder.mod_revision)
                return;
        n = membership_find(&m->members, m->holder.record.name);
        if (n && n->lease == m->holder.lease)
                return;
        m->holder.lease = 0;
        session_hurry(&m->session, m->now);
}

static void meet(struct member *m, struct peer *p)
{
        enum claim_verdict v =
                claim_look(&m->claim, &m->self, &m->holder.record, m->holder.lease);

        if (v == CLAIM_OURS)
                take_over(m, p);
        else if (v == CLAIM_ASK)
                ask_age(m, p);
        else
                refused(m, p, v, m->session.cfg.ttl);
}

/* The key exists already: another life of ours wrote it, or another host. */
static void on_taken(struct member *m, struct peer *p, const Pb__TxnResponse *t)
{
        const Pb__RangeResponse *range;
        const Pb__KeyValue *kv;

        if (t->n_responses != 1 ||
            t->responses[0]->response_case != PB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE)
                return lease_failed(m, "cannot register", "the core's answer is invalid");
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
        /* If the value is not a record, the holder stays empty: unknown to us. */
        (void) !node_record_read(&m->holder.record, kv->value.data, kv->value.len);
        strcpy(m->holder.record.name, m->self.name);
        m->holder.lease = kv->lease;
        m->holder.mod_revision = kv->mod_revision;
        meet(m, p);
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
                return lease_failed(m, "cannot register", message);
        switch (member_hear(m, u->peer, t->header)) {
        case WORLD_FOREIGN:
                return lease_failed(m, "cannot register", LEASE_FOREIGN);
        case WORLD_HEIR:
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
void registration_check_key(struct member *m)
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
                utf8_print(m->why, sizeof(m->why),
                           "another host has taken the place (id %s, boot %s, at %s)",
                           *n->record.id ? n->record.id : "unknown",
                           *n->record.boot_id ? n->record.boot_id : "unknown",
                           *n->record.addresses ? n->record.addresses : "no address");
        else
                utf8_print(m->why, sizeof(m->why), "its key was deleted");
        session_gone(&m->session, m->session.lease);
}

void registration_own_key(const struct member *m, struct buf *key)
{
        buf_printf(key, "%s%s/%s", m->prefix, m->sessions ? "sessions" : "nodes", m->self.name);
}

static void compare_revision(Pb__Compare *c, int64_t mod_revision)
{
        c->target = PB__COMPARE__COMPARE_TARGET__MOD;
        c->target_union_case = PB__COMPARE__TARGET_UNION_MOD_REVISION;
        c->mod_revision = mod_revision;
}

int registration_txn(struct member *m, struct peer *p, Pb__Compare *compare, const char *former,
                     void (*done)(struct unary *u, enum rpc_code code, const char *message))
{
        cleanup_(buf_fini) struct buf key = {0}, value = {0}, former_key = {0};
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__Compare same = PB__COMPARE__INIT, *compares[] = {compare, &same};
        Pb__RequestOp yes = PB__REQUEST_OP__INIT, no = PB__REQUEST_OP__INIT,
                      away = PB__REQUEST_OP__INIT, *yes_p[] = {&yes, &away}, *no_p = &no;
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__DeleteRangeRequest delete = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__RangeRequest range = PB__RANGE_REQUEST__INIT;

        registration_own_key(m, &key);
        buf_printf(&former_key, "%snodes/%s", m->prefix, former ? former : "");
        node_record_write(&m->self, &value);
        m->publications.self_sent = m->publications.self_version;
        if (buf_error(&key) < 0 || buf_error(&value) < 0 || buf_error(&former_key) < 0)
                return -ENOMEM;
        if (m->session.lease == 0) /* a key without a lease would stay for ever */
                return -ESTALE;
        put.key = range.key = compare->key = pb_bytes(key.data, buf_len(&key));
        put.value = pb_bytes(value.data, buf_len(&value));
        put.lease = m->session.lease;
        compare->result = same.result = PB__COMPARE__COMPARE_RESULT__EQUAL;
        yes.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        yes.request_put = &put;
        no.request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        no.request_range = &range;
        delete.key = same.key = pb_bytes(former_key.data, buf_len(&former_key));
        compare_revision(&same, m->holder.ended ? 0 : m->holder.mod_revision);
        away.request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        away.request_delete_range = &delete;
        q.compare = compares;
        q.success = yes_p;
        q.failure = &no_p;
        q.n_compare = q.n_success = former ? 2 : 1;
        q.n_failure = 1;
        return member_call(p, ++m->lease_op, "/etcdserverpb.KV/Txn", &q.base,
                           &pb__txn_response__descriptor, done);
}

/* @over: writes over the holder's key, or in its place if that has another name, as it was when
 * we read it; otherwise only if there is no key. */
static int write_key(struct member *m, struct peer *p, bool over)
{
        const struct node_record *h = &m->holder.record;
        Pb__Compare cmp = PB__COMPARE__INIT;
        bool renamed = over && is_alias(m, h);

        compare_revision(&cmp, over && !renamed ? m->holder.mod_revision : 0);
        return registration_txn(m, p, &cmp, renamed ? h->name : NULL, on_registered);
}

/* Two hosts with one id that register at the same time, or one whose agent does not know
 * aliases, are not refused. The host that registered first reports the other. */
void registration_see(struct member *m, const struct member_node *n)
{
        if (!is_alias(m, &n->record))
                return;
        m->has_alias = true;
        if (!m->session.registered || n->create_revision <= m->registered_at)
                return;
        PROBE("a host registers with the id of one that holds its place");
        m->events->claimed(m->userdata, &n->record);
}

int registration_begin(struct member *m, struct peer *p)
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
        m->self.leaving[0] = m->self.leaving_note[0] = '\0';
        m->holder.lease = 0;
        m->refused = false;
        PROBE_IF(m->members.revision == 0 && !m->no_view && !m->sessions,
                 "an agent registers before it knows the membership");
        if (!find_alias(m, 0))
                return write_key(m, p, false);
        PROBE("an agent finds its node id under another name before it registers");
        meet(m, p);
        return 0;
}
