/* Publishes this node's record and services in the core: all changes go into one Txn, which
 * takes effect only while our key is still attached to our lease. */
#include <stdio.h>

#include "base/log.h"
#include "base/probe.h"
#include "member/internal.h"

#define LIMIT NSEC_PER_SEC
#define RETRY (100 * NSEC_PER_MSEC)
#define OPS_MAX 64 /* etcd takes 128 by default */

void publications_init(struct publications *o, int64_t resumed_lease)
{
        TAILQ_INIT(&o->list);
        o->resumed_lease = resumed_lease;
        o->self_version = 1;
}

void publications_self_stored(struct publications *o, int64_t revision)
{
        o->self_stored = o->self_sent;
        o->self_revision = revision;
}

static void publication_drop(struct publications *o, struct publication *f)
{
        TAILQ_REMOVE(&o->list, f, entry);
        o->n--;
        free(f);
}

void publications_fini(struct publications *o)
{
        struct publication *f;

        while ((f = TAILQ_FIRST(&o->list)))
                publication_drop(o, f);
}

static struct publication *publication_find(struct publications *o, const char *name,
                                            const char *instance)
{
        struct publication *f;

        TAILQ_FOREACH (f, &o->list, entry)
                if (strcmp(f->record.name, name) == 0 &&
                    strcmp(f->record.instance, instance) == 0)
                        return f;
        return NULL;
}

static struct publication *publication_new(struct publications *o,
                                           const struct service_record *r)
{
        struct publication *f = calloc(1, sizeof(*f));

        if (!f)
                return NULL;
        f->record = *r;
        TAILQ_INSERT_TAIL(&o->list, f, entry);
        o->n++;
        return f;
}

static bool says_the_same(const struct service_record *a, const struct service_record *b)
{
        return strcmp(a->address, b->address) == 0 && a->port == b->port &&
               strcmp(a->tags, b->tags) == 0 && strcmp(a->unit, b->unit) == 0 &&
               strcmp(a->invocation, b->invocation) == 0 && strcmp(a->state, b->state) == 0;
}

int member_publish(struct member *m, const struct service_record *s)
{
        struct publications *o = &m->publications;
        struct publication *f = publication_find(o, s->name, s->instance);
        char since[sizeof(s->since)];

        if (f && f->wanted && says_the_same(&f->record, s))
                return 0;
        if (!f && o->n == MEMBER_PUBLISHED_MAX)
                return -ENOSPC;
        if (!f)
                f = publication_new(o, s);
        if (!f)
                return -ENOMEM;
        m->ops->date(since, m->shell);
        if (f->wanted && strcmp(f->record.invocation, s->invocation) == 0)
                strcpy(since, f->record.since); /* the same life with new values */
        f->record = *s;
        strcpy(f->record.since, since);
        strcpy(f->record.node, m->self.name);
        f->wanted = true;
        f->stored = f->under_way = false;
        member_soon(m);
        return 0;
}

void member_withdraw(struct member *m, const char *name, const char *instance)
{
        struct publication *f = publication_find(&m->publications, name, instance);

        if (!f || !f->wanted)
                return;
        f->wanted = f->stored = f->under_way = false;
        member_soon(m);
}

void member_published_all(struct member *m)
{
        m->publications.known = true;
        member_soon(m);
}

void member_set_self(struct member *m, const char *addresses, const char *tags,
                     const char *degraded)
{
        struct node_record *n = &m->self;

        if (strcmp(n->addresses, addresses) == 0 && strcmp(n->tags, tags) == 0 &&
            strcmp(n->degraded, degraded) == 0)
                return;
        snprintf(n->addresses, sizeof(n->addresses), "%s", addresses);
        snprintf(n->tags, sizeof(n->tags), "%s", tags);
        snprintf(n->degraded, sizeof(n->degraded), "%s", degraded);
        m->publications.self_version++;
        member_soon(m);
}

/* ---- what an earlier life has left ---- */

/* Adds, as unwanted publications, the services that the core has under our lease but that we do
 * not publish, so that they are withdrawn. Returns false if out of memory. */
static bool take_in(struct member *m)
{
        struct publications *o = &m->publications;

        for (struct service *s = services_on(&m->services, m->self.name); s;
             s = services_next_on(s)) {
                struct service_record r;

                if (s->lease != o->lease || publication_find(o, s->name, s->instance))
                        continue;
                service_read(s, &r);
                if (!publication_new(o, &r))
                        return false;
        }
        return true;
}

static const struct service *in_core(const struct member *m, const struct publication *f)
{
        return services_find(&m->services, f->record.name, m->self.name, f->record.instance);
}

static void import(struct member *m)
{
        struct publications *o = &m->publications;
        const struct member_node *n = membership_find(&m->members, m->self.name);
        struct publication *f;

        if (n && n->lease == o->lease && node_record_same(&n->record, &m->self)) {
                o->self_stored = o->self_version;
                o->self_revision = n->mod_revision;
        }
        o->look = !take_in(m); /* out of memory: try again */
        TAILQ_FOREACH (f, &o->list, entry) {
                const struct service *s = f->wanted ? in_core(m, f) : NULL;
                struct service_record r;

                if (!s || s->lease != o->lease)
                        continue;
                service_read(s, &r);
                if (!says_the_same(&f->record, &r))
                        continue;
                strcpy(f->record.since, r.since);
                f->stored = true;
                f->revision = s->mod_revision;
        }
}

/* ---- is it still what we have stored? ---- */

/* A request that we had given up, and whose content we have since published through another
 * replica, may still be applied later if it was stuck in a replica that froze. It then
 * overwrites our record with old values, so we publish again. */
static void look(struct member *m)
{
        struct publications *o = &m->publications;
        const struct member_node *n = membership_find(&m->members, m->self.name);
        struct publication *f;

        o->look = false;
        if (n && n->lease == o->lease && n->mod_revision > o->self_revision)
                o->self_stored = 0;
        TAILQ_FOREACH (f, &o->list, entry) {
                const struct service *s = in_core(m, f);

                if (f->stored &&
                    (!s || s->lease != o->lease || s->mod_revision > f->revision)) {
                        PROBE("a record was changed by a request that was given up");
                        f->stored = false;
                }
        }
        o->look = !take_in(m);
}

/* True once the watch has reached the revision of the last answer. */
static bool may_look(const struct member *m)
{
        const struct publications *o = &m->publications;

        return o->look && !o->calling && m->synced &&
               m->members.revision >= max_of(o->revision, o->self_revision);
}

/* ---- to the core ---- */

static bool is_pending(const struct publication *f)
{
        return !f->stored;
}

static void on_published(struct unary *u, enum rpc_code code, const char *message)
{
        struct member *m = u->member;
        struct publications *o = &m->publications;
        const Pb__TxnResponse *t = u->reply;
        struct boot_time now = m->now;
        struct publication *f, *next;

        if (u->op != o->op || !o->calling)
                return;
        o->calling = false;
        o->retry_at = (struct boot_time){0};
        if (code == RPC_OK && member_hear(m, u->peer, t->header) == WORLD_FOREIGN)
                code = RPC_UNAVAILABLE;
        if (code != RPC_OK || !t->succeeded) {
                /* If the place is gone, the session will notice. */
                log_debug("Cannot publish our services: %s.",
                          code != RPC_OK ? message : "this host does not hold its place now");
                o->retry_at = boot_add(now, pace_next(&o->pace, m->n_peers, now));
                return;
        }
        member_heard(m, u->peer, t->header);
        if (m->session.lease != o->lease)
                return; /* we hold another lease now */
        o->revision = t->header->revision;
        if (o->self_stored != o->self_sent)
                publications_self_stored(o, o->revision);
        TAILQ_FOREACH_SAFE (f, &o->list, entry, next) {
                if (!f->under_way)
                        continue;
                f->under_way = false;
                f->stored = true;
                f->revision = o->revision;
                if (!f->wanted)
                        publication_drop(o, f);
        }
}

struct txn {
        Pb__TxnRequest q;
        Pb__Compare compare, *compares;
        Pb__RequestOp ops[OPS_MAX], *op_p[OPS_MAX];
        Pb__PutRequest puts[OPS_MAX];
        Pb__DeleteRangeRequest deletes[OPS_MAX];
        struct buf keys[OPS_MAX], values[OPS_MAX]; /* owned */
        size_t n;
};

static void add_op(struct txn *t, int64_t lease, bool put)
{
        size_t i = t->n++;
        ProtobufCBinaryData key = pb_bytes(buf_head(&t->keys[i]), buf_len(&t->keys[i]));

        pb__request_op__init(&t->ops[i]);
        t->op_p[i] = &t->ops[i];
        if (put) {
                pb__put_request__init(&t->puts[i]);
                t->puts[i].key = key;
                t->puts[i].value = pb_bytes(buf_head(&t->values[i]), buf_len(&t->values[i]));
                t->puts[i].lease = lease;
                t->ops[i].request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
                t->ops[i].request_put = &t->puts[i];
        } else {
                pb__delete_range_request__init(&t->deletes[i]);
                t->deletes[i].key = key;
                t->ops[i].request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
                t->ops[i].request_delete_range = &t->deletes[i];
        }
}

static bool fill(struct member *m, struct txn *t)
{
        struct publications *o = &m->publications;
        struct publication *f;
        bool failed = false;

        registration_own_key(m, &t->keys[0]);
        t->compare.key = pb_bytes(buf_head(&t->keys[0]), buf_len(&t->keys[0]));
        if (o->self_stored != o->self_version) {
                node_record_write(&m->self, &t->values[0]);
                o->self_sent = o->self_version;
                add_op(t, o->lease, true);
        } else {
                o->self_sent = o->self_stored;
                t->n = 1; /* the first slot is for the key that is compared */
        }
        TAILQ_FOREACH (f, &o->list, entry) {
                f->under_way = t->n < OPS_MAX && is_pending(f);
                if (!f->under_way)
                        continue;
                buf_printf(&t->keys[t->n], "%sservices/", m->prefix);
                service_record_key(&f->record, &t->keys[t->n]);
                if (f->wanted)
                        service_record_write(&f->record, &t->values[t->n]);
                add_op(t, o->lease, f->wanted);
        }
        for (size_t i = 0; i < t->n; i++)
                failed = failed || buf_error(&t->keys[i]) < 0 || buf_error(&t->values[i]) < 0;
        return !failed;
}

static void tell(struct member *m, struct peer *p, struct boot_time now)
{
        struct txn *t = calloc(1, sizeof(*t));
        bool has_self = m->publications.self_stored != m->publications.self_version;

        m->publications.retry_at = boot_add(now, RETRY);
        if (!t)
                return; /* out of memory: try again */
        pb__txn_request__init(&t->q);
        pb__compare__init(&t->compare);
        t->compares = &t->compare;
        t->compare.target = PB__COMPARE__COMPARE_TARGET__LEASE;
        t->compare.target_union_case = PB__COMPARE__TARGET_UNION_LEASE;
        t->compare.lease = m->publications.lease;
        t->compare.result = PB__COMPARE__COMPARE_RESULT__EQUAL;
        if (!fill(m, t))
                goto end; /* out of memory: try again */
        t->q.compare = &t->compares;
        t->q.n_compare = 1;
        t->q.success = t->op_p + (has_self ? 0 : 1);
        t->q.n_success = t->n - (has_self ? 0 : 1);
        m->publications.calling = true;
        m->publications.retry_at = boot_add(now, LIMIT);
        if (member_call(p, ++m->publications.op, "/etcdserverpb.KV/Txn", &t->q.base,
                        &pb__txn_response__descriptor, on_published) < 0) {
                m->publications.calling = false;
                m->publications.retry_at = boot_add(now, RETRY);
        }
end:
        for (size_t i = 0; i < OPS_MAX; i++) {
                buf_fini(&t->keys[i]);
                buf_fini(&t->values[i]);
        }
        free(t);
}

static bool is_holding(const struct member *m)
{
        return m->session.state == SESSION_HELD || m->session.state == SESSION_JEOPARDY;
}

static bool has_pending(const struct publications *o)
{
        const struct publication *f;

        TAILQ_FOREACH (f, &o->list, entry)
                if (is_pending(f))
                        return true;
        return o->self_stored != o->self_version;
}

static void begin_lease(struct member *m)
{
        struct publications *o = &m->publications;
        struct publication *f, *next;

        o->lease = m->session.lease;
        o->op++;
        o->calling = false;
        TAILQ_FOREACH_SAFE (f, &o->list, entry, next) {
                f->stored = f->under_way = false;
                if (!f->wanted)
                        publication_drop(o, f);
        }
        if (o->lease == o->resumed_lease)
                import(m);
}

void publications_again(struct publications *o)
{
        o->lease = 0;
        o->self_stored = o->self_sent = 0;
}

static bool may_begin(const struct member *m)
{
        const struct publications *o = &m->publications;

        return o->known && is_holding(m) &&
               (m->session.lease != o->resumed_lease || o->lease == o->resumed_lease ||
                m->synced);
}

void publications_run(struct member *m, struct boot_time now)
{
        struct publications *o = &m->publications;
        struct peer *p;

        if (!may_begin(m))
                return;
        if (o->lease != m->session.lease)
                begin_lease(m);
        if (may_look(m))
                look(m);
        if (boot_before(now, o->retry_at) || !has_pending(o))
                return;
        if (o->calling) { /* no answer in time: another endpoint may answer */
                o->calling = false;
                o->op++;
                m->current = (m->current + 1) % m->n_peers;
        }
        p = member_peer(m, m->current);
        if (!p) {
                o->retry_at = boot_add(now, RETRY);
                return;
        }
        tell(m, p, now);
}

struct boot_time publications_next(const struct member *m)
{
        return may_begin(m) && has_pending(&m->publications) ? m->publications.retry_at
                                                             : BOOT_TIME_NEVER;
}
