/* What this node says of itself and of its services, kept in the core: everything that has
 * changed goes into one Txn, which counts only while our key still hangs on our lease. */
#include <stdio.h>

#include "base/log.h"
#include "client/internal.h"

#define LIMIT NSEC_PER_SEC
#define RETRY (100 * NSEC_PER_MSEC)
#define OPS_MAX 64 /* etcd takes 128 by default */

void offer_init(struct offers *o, int64_t resumed_lease)
{
        TAILQ_INIT(&o->list);
        o->resumed_lease = resumed_lease;
        o->self_version = 1;
}

static void offer_drop(struct offers *o, struct offer *f)
{
        TAILQ_REMOVE(&o->list, f, entry);
        o->n--;
        free(f);
}

void offer_fini(struct offers *o)
{
        struct offer *f;

        while ((f = TAILQ_FIRST(&o->list)))
                offer_drop(o, f);
}

static struct offer *offer_find(struct offers *o, const char *name, const char *instance)
{
        struct offer *f;

        TAILQ_FOREACH (f, &o->list, entry)
                if (strcmp(f->record.name, name) == 0 &&
                    strcmp(f->record.instance, instance) == 0)
                        return f;
        return NULL;
}

static struct offer *offer_new(struct offers *o, const struct service_record *r)
{
        struct offer *f = calloc(1, sizeof(*f));

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

int client_offer(struct client *c, const struct service_record *s)
{
        struct offers *o = &c->offers;
        struct offer *f = offer_find(o, s->name, s->instance);
        char since[sizeof(s->since)];

        if (f && f->wanted && says_the_same(&f->record, s))
                return 0;
        if (!f && o->n == CLIENT_OFFERS_MAX)
                return -ENOSPC;
        if (!f)
                f = offer_new(o, s);
        if (!f)
                return -ENOMEM;
        hold_time(since);
        if (f->wanted && strcmp(f->record.invocation, s->invocation) == 0)
                strcpy(since, f->record.since); /* the same life says something else */
        f->record = *s;
        strcpy(f->record.since, since);
        strcpy(f->record.node, c->self.name);
        f->wanted = true;
        f->stored = f->under_way = false;
        loop_hook_again(&c->hook);
        return 0;
}

void client_withdraw(struct client *c, const char *name, const char *instance)
{
        struct offer *f = offer_find(&c->offers, name, instance);

        if (!f || !f->wanted)
                return;
        f->wanted = f->stored = f->under_way = false;
        loop_hook_again(&c->hook);
}

void client_offers_known(struct client *c)
{
        c->offers.known = true;
        loop_hook_again(&c->hook);
}

void client_set_self(struct client *c, const char *addresses, const char *tags,
                     const char *degraded)
{
        struct node_record *n = &c->self;

        if (strcmp(n->addresses, addresses) == 0 && strcmp(n->tags, tags) == 0 &&
            strcmp(n->degraded, degraded) == 0)
                return;
        snprintf(n->addresses, sizeof(n->addresses), "%s", addresses);
        snprintf(n->tags, sizeof(n->tags), "%s", tags);
        snprintf(n->degraded, sizeof(n->degraded), "%s", degraded);
        c->offers.self_version++;
        loop_hook_again(&c->hook);
}

/* ---- what an earlier life has left ---- */

static void import(struct client *c)
{
        struct offers *o = &c->offers;
        const struct member_node *n = membership_find(&c->members, c->self.name);
        struct service_record r;
        struct offer *f;

        if (n && n->lease == o->lease && node_record_same(&n->record, &c->self))
                o->self_stored = o->self_version;
        for (struct service *s = services_on(&c->services, c->self.name); s;
             s = services_next_on(s)) {
                if (s->lease != o->lease)
                        continue;
                service_read(s, &r);
                f = offer_find(o, s->name, s->instance);
                if (!f)
                        f = offer_new(o, &r); /* to be taken back */
                if (!f)
                        abort();
                if (f->wanted && says_the_same(&f->record, &r)) {
                        strcpy(f->record.since, r.since);
                        f->stored = true;
                }
        }
}

/* ---- to the core ---- */

static bool is_pending(const struct offer *f)
{
        return !f->stored;
}

static void on_offered(struct unary *u, enum rpc_code code, const char *message)
{
        struct client *c = u->client;
        struct offers *o = &c->offers;
        const Pb__TxnResponse *t = u->reply;
        struct boot_time now = loop_now(c->loop);
        struct offer *f, *next;

        if (u->op != o->op || !o->calling)
                return;
        o->calling = false;
        o->retry_at = (struct boot_time){0};
        if (code == RPC_OK && client_hear(c, u->peer, t->header) == WORLD_FOREIGN)
                code = RPC_UNAVAILABLE;
        if (code != RPC_OK || !t->succeeded) {
                /* Where the place is gone, the session learns it by itself. */
                log_debug("Cannot tell our services: %s.",
                          code != RPC_OK ? message : "the place is not ours now");
                o->retry_at = boot_add(now, pace_next(&o->pace, c->n_peers, now));
                return;
        }
        client_heard(c, u->peer, t->header);
        if (c->session.lease != o->lease)
                return; /* of another life by now */
        o->self_stored = o->self_sent;
        TAILQ_FOREACH_SAFE (f, &o->list, entry, next) {
                if (!f->under_way)
                        continue;
                f->under_way = false;
                f->stored = true;
                if (!f->wanted)
                        offer_drop(o, f);
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

static bool fill(struct client *c, struct txn *t)
{
        struct offers *o = &c->offers;
        struct offer *f;
        bool failed = false;

        hold_own_key(c, &t->keys[0]);
        t->compare.key = pb_bytes(buf_head(&t->keys[0]), buf_len(&t->keys[0]));
        if (o->self_stored != o->self_version) {
                node_record_write(&c->self, &t->values[0]);
                o->self_sent = o->self_version;
                add_op(t, o->lease, true);
        } else {
                o->self_sent = o->self_stored;
                t->n = 1; /* its place, for the key that is compared */
        }
        TAILQ_FOREACH (f, &o->list, entry) {
                f->under_way = t->n < OPS_MAX && is_pending(f);
                if (!f->under_way)
                        continue;
                buf_printf(&t->keys[t->n], "%sservices/", c->prefix);
                service_record_key(&f->record, &t->keys[t->n]);
                if (f->wanted)
                        service_record_write(&f->record, &t->values[t->n]);
                add_op(t, o->lease, f->wanted);
        }
        for (size_t i = 0; i < t->n; i++)
                failed = failed || buf_error(&t->keys[i]) < 0 || buf_error(&t->values[i]) < 0;
        return !failed;
}

static void tell(struct client *c, struct peer *p, struct boot_time now)
{
        struct txn *t = calloc(1, sizeof(*t));
        bool has_self = c->offers.self_stored != c->offers.self_version;

        if (!t)
                abort();
        pb__txn_request__init(&t->q);
        pb__compare__init(&t->compare);
        t->compares = &t->compare;
        t->compare.target = PB__COMPARE__COMPARE_TARGET__LEASE;
        t->compare.target_union_case = PB__COMPARE__TARGET_UNION_LEASE;
        t->compare.lease = c->offers.lease;
        t->compare.result = PB__COMPARE__COMPARE_RESULT__EQUAL;
        if (!fill(c, t))
                abort(); /* out of memory */
        t->q.compare = &t->compares;
        t->q.n_compare = 1;
        t->q.success = t->op_p + (has_self ? 0 : 1);
        t->q.n_success = t->n - (has_self ? 0 : 1);
        c->offers.calling = true;
        c->offers.retry_at = boot_add(now, LIMIT);
        if (client_call(p, ++c->offers.op, "/etcdserverpb.KV/Txn", &t->q.base,
                        &pb__txn_response__descriptor, on_offered) < 0) {
                c->offers.calling = false;
                c->offers.retry_at = boot_add(now, RETRY);
        }
        for (size_t i = 0; i < OPS_MAX; i++) {
                buf_fini(&t->keys[i]);
                buf_fini(&t->values[i]);
        }
        free(t);
}

static bool is_holding(const struct client *c)
{
        return c->session.state == SESSION_HELD || c->session.state == SESSION_JEOPARDY;
}

static bool has_pending(const struct offers *o)
{
        const struct offer *f;

        TAILQ_FOREACH (f, &o->list, entry)
                if (is_pending(f))
                        return true;
        return o->self_stored != o->self_version;
}

static void begin_lease(struct client *c)
{
        struct offers *o = &c->offers;
        struct offer *f, *next;

        o->lease = c->session.lease;
        o->op++;
        o->calling = false;
        TAILQ_FOREACH_SAFE (f, &o->list, entry, next) {
                f->stored = f->under_way = false;
                if (!f->wanted)
                        offer_drop(o, f);
        }
        if (o->lease == o->resumed_lease)
                import(c);
}

static bool may_begin(const struct client *c)
{
        const struct offers *o = &c->offers;

        return o->known && is_holding(c) &&
               (c->session.lease != o->resumed_lease || o->lease == o->resumed_lease ||
                c->synced);
}

void offer_run(struct client *c, struct boot_time now)
{
        struct offers *o = &c->offers;
        struct peer *p;

        if (!may_begin(c))
                return;
        if (o->lease != c->session.lease)
                begin_lease(c);
        if (boot_before(now, o->retry_at) || !has_pending(o))
                return;
        if (o->calling) { /* no answer in time: another endpoint may do better */
                o->calling = false;
                o->op++;
                c->current = (c->current + 1) % c->n_peers;
        }
        p = client_peer(c, c->current);
        if (!p) {
                o->retry_at = boot_add(now, RETRY);
                return;
        }
        tell(c, p, now);
}

struct boot_time offer_next(const struct client *c)
{
        return may_begin(c) && has_pending(&c->offers) ? c->offers.retry_at : BOOT_TIME_NEVER;
}
