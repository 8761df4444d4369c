/* Requests of clients to the core: they travel to a replica, and answers travel back; either
 * may be lost. Edge clients renew at the very end of a lease, and one client writes, reads and
 * compares. */
#include <inttypes.h>
#include <stdio.h>

#include "world.h"

enum request_kind {
        RQ_GRANT,
        RQ_RENEW,
        RQ_WRITE,
        RQ_READ,
        RQ_CAS,
        RQ_COMPACT,
        RQ_TIE,
        RQ_REVOKE,
        RQ_LARGE
};

/* What changes a cached key waits for a cache's term. */
static const struct {
        const char *what;
        bool meets_caches;
} kinds[] = {
        [RQ_GRANT] = {"a grant", false},        [RQ_RENEW] = {"a renewal", false},
        [RQ_WRITE] = {"a write", true},         [RQ_READ] = {"a read", false},
        [RQ_CAS] = {"a compare-and-set", true}, [RQ_COMPACT] = {"a compaction", false},
        [RQ_TIE] = {"a put by a lease", true},  [RQ_REVOKE] = {"a revocation", true},
        [RQ_LARGE] = {"a large write", false},
};

struct request {
        enum request_kind kind;
        struct edge *edge; /* for an edge client; or NULL */
        unsigned to, life;
        int64_t lease, ttl_ms, key, value, revision, found, expect;
        size_t len;  /* of RQ_LARGE's value */
        nsec_t sent; /* true time */
        struct prompt waits;
        bool ok, done;
        bool covered;  /* a renewal that needed no entry */
        bool counted;  /* it counts as a renewal under way */
        uint64_t term; /* the highest term of any leader when it was sent */
        struct core_write write;
        struct core_renewal renewal;
        struct core_read read;
};

void request_free(struct request *q)
{
        prompt_end(&q->waits);
        if (q->counted)
                check_renewing(W, q->lease, -1);
        free(q);
}

static void reply(struct request *q)
{
        struct replica_node *n = &W->r[q->to];

        prompt_end(&q->waits);

        if (q->ok && q->term < W->top_term) {
                W->met.read_across += q->kind == RQ_READ;
                W->met.covered_across += q->covered;
                W->met.write_across += q->kind == RQ_WRITE || q->kind == RQ_CAS;
        }
        if (q->ok && (q->kind == RQ_WRITE || q->kind == RQ_CAS)) {
                n->seen.confirmed_at = W->now;
                aim_at(W, AT_CONFIRMED, n);
        }
        if (W->cut[q->to][q->to] || (W->faults.loss && !W->calm && chance(W, 3)))
                return request_free(q);
        post(W, some_time(W, 100 * NSEC_PER_USEC, 3 * MSEC), EV_REPLY)->request = q;
}

/* By then, what a link lost has been sent again, so no request may wait for its timeout. */
static void check_timeout(struct world *w, unsigned at, struct status st)
{
        if (st.code == status_timeout.code && strcmp(st.text, status_timeout.text) == 0 &&
            well_for(w) > 0)
                fail(w,
                     "a write at replica %u waited for its timeout, though all was well for "
                     "%.1f s",
                     at, (double) calm_for(w) / 1e9);
}

/* Nor may a replica refuse every write for lack of room. */
static void check_refusal(struct world *w, struct replica_node *n, int r)
{
        w->met.refused += r == -ENOBUFS;
        if (r == 0)
                n->refuses_since = 0;
        else if (r == -ENOBUFS && n->refuses_since == 0)
                n->refuses_since = w->now;
        if (r == -ENOBUFS && min_of(calm_for(w), w->now - n->refuses_since) > PROMPT_CALM(w))
                fail(w, "replica %u refused all writes, though all was well for %.1f s",
                     n->i + 1, (double) calm_for(w) / 1e9);
}

static void write_done(struct core_write *cw, struct status st, struct view bytes)
{
        MEMORY(MEMORY_OURS);
        struct request *q = container_of(cw, struct request, write);

        q->ok = st.code == RPC_OK;
        check_timeout(W, q->to, st);
        if (q->ok && q->kind == RQ_GRANT) {
                Pb__LeaseGrantResponse *p =
                        pb__lease_grant_response__unpack(NULL, bytes.len, bytes.p);

                q->lease = p->id;
                q->ttl_ms = p->ttl_ms;
                pb_free(p);
        } else if (q->ok && q->kind == RQ_WRITE) {
                Pb__PutResponse *p = pb__put_response__unpack(NULL, bytes.len, bytes.p);

                q->revision = p->header->revision;
                pb_free(p);
                clients_see_write(q->revision);
                prompt_see_write(W, q->to, q->waits.came);
        } else if (q->ok && q->kind == RQ_CAS) {
                Pb__TxnResponse *p = pb__txn_response__unpack(NULL, bytes.len, bytes.p);

                q->revision = p->header->revision;
                q->done = p->succeeded;
                pb_free(p);
        }
        reply(q);
}

static void renew_done(struct core_renewal *rn, struct status st, int64_t ttl_ms)
{
        MEMORY(MEMORY_OURS);
        struct request *q = container_of(rn, struct request, renewal);

        struct replica_node *n = &W->r[q->to];
        uint64_t n_covered = core_counts(n->node.core)->covered;

        q->ok = st.code == RPC_OK;
        q->covered = q->ok && n_covered != n->n_covered;
        rates_renewed(W, n, q->waits.came, q->ok);
        W->met.covered += q->covered;
        n->n_covered = n_covered;
        check_timeout(W, q->to, st);
        q->ttl_ms = ttl_ms;
        reply(q);
}

static void key_name(int64_t key, char out[static 16])
{
        snprintf(out, 16, "k%02" PRId64, key);
}

/* The value that the answering replica has now. */
static void look_up(struct request *q)
{
        struct state *s = core_state(W->r[q->to].node.core);
        char name[16];
        struct kv_key *k;

        key_name(q->key, name);
        k = kv_find(&s->kv, name, strlen(name));
        q->revision = s->revision;
        q->found = k && kv_live(k) ? k->newest->mod_revision : 0;
        if (q->found && k->newest->value_len == sizeof(q->value))
                memcpy(&q->value, k->newest->value, sizeof(q->value));
}

/* Txn: put the value if the key is as expected. */
static void pack_cas(const struct request *q, struct buf *b)
{
        Pb__TxnRequest txn = PB__TXN_REQUEST__INIT;
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};
        Pb__Compare c = PB__COMPARE__INIT, *cs[] = {&c};
        char name[16];

        key_name(q->key, name);
        c.key = put.key = pb_bytes(name, strlen(name));
        c.target = PB__COMPARE__COMPARE_TARGET__MOD;
        c.target_union_case = PB__COMPARE__TARGET_UNION_MOD_REVISION;
        c.mod_revision = q->expect;
        put.value = pb_bytes(&q->value, sizeof(q->value));
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op.request_put = &put;
        txn.compare = cs;
        txn.success = ops;
        txn.n_compare = txn.n_success = 1;
        pb_append(b, &txn.base);
}

static void read_done(struct core_read *rd, struct status st)
{
        MEMORY(MEMORY_OURS);
        struct request *q = container_of(rd, struct request, read);

        q->ok = st.code == RPC_OK;
        if (q->ok)
                look_up(q);
        reply(q);
}

static const uint8_t large[64 << 10];

/* Packs the request as its client would. */
static enum cmd_type pack(struct world *w, struct request *q, struct buf *b)
{
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__CompactionRequest compaction = PB__COMPACTION_REQUEST__INIT;
        Pb__LeaseRevokeRequest revoke = PB__LEASE_REVOKE_REQUEST__INIT;
        char name[16];

        switch (q->kind) {
        case RQ_GRANT:
                grant.id = (int64_t) (rnd_u64(&w->rnd) >> 1);
                grant.ttl_ms = q->ttl_ms;
                pb_append(b, &grant.base);
                return CMD_GRANT;
        case RQ_CAS:
                /* Compares with what this replica has, which may be old. */
                look_up(q);
                q->expect = q->found;
                q->value = (int64_t) rnd_u64(&w->rnd);
                pack_cas(q, b);
                return CMD_TXN;
        case RQ_COMPACT:
                compaction.revision = core_state(w->r[q->to].node.core)->revision -
                                      (int64_t) rnd_between(&w->rnd, 0, 30);
                pb_append(b, &compaction.base);
                return CMD_COMPACT;
        case RQ_LARGE:
                snprintf(name, sizeof(name), "large/%02" PRId64, q->key);
                put.key = pb_bytes(name, strlen(name));
                put.value = pb_bytes(large, q->len);
                pb_append(b, &put.base);
                return CMD_PUT;
        case RQ_REVOKE:
                revoke.id = q->lease;
                pb_append(b, &revoke.base);
                return CMD_REVOKE;
        default:
                key_name(q->key, name);
                put.lease = q->lease;
                if (q->kind == RQ_TIE)
                        *name = TIED;
                put.key = pb_bytes(name, strlen(name));
                put.value = pb_bytes(&q->value, sizeof(q->value));
                pb_append(b, &put.base);
                return CMD_PUT;
        }
}

/* The request arrives at its replica. */
static void serve(struct world *w, struct request *q)
{
        struct replica_node *n = &w->r[q->to];
        cleanup_(buf_fini) struct buf b = {0};
        enum cmd_type type = CMD_PUT;
        int r = 0;

        if (!n->up || n->life != q->life)
                return request_free(q);
        prompt_begin(&q->waits, q->to, kinds[q->kind].what,
                     PROMPT_MAJORITY + (kinds[q->kind].meets_caches ? w->cache_term : 0));
        q->waits.lasts = kinds[q->kind].meets_caches;
        /* A renewal may wait for a confirmation first, and then for an entry. */
        q->waits.most = (q->kind == RQ_RENEW ? 2 : 1) * w->timeout;
        q->write.done = write_done;
        q->renewal.done = renew_done;
        q->renewal.lease = q->lease;
        q->read.done = read_done;
        if (q->kind != RQ_RENEW && q->kind != RQ_READ)
                type = pack(w, q, &b);
        if (q->kind == RQ_RENEW || q->kind == RQ_READ)
                aim_at(w, q->kind == RQ_RENEW ? AT_RENEWAL : AT_READ, n);
        {
                MEMORY(MEMORY_RUN);
                if (q->kind == RQ_RENEW)
                        core_renew(n->node.core, &q->renewal);
                else if (q->kind == RQ_READ)
                        core_read(n->node.core, &q->read, 0);
                else
                        r = core_write(n->node.core, &q->write, type, NULL, b.data, buf_len(&b),
                                       0);
        }
        if (q->kind != RQ_RENEW && q->kind != RQ_READ)
                check_refusal(w, n, r);
        if (r < 0)
                request_free(q);
        world_drive(w, n);
}

static struct request *ask(struct world *w, enum request_kind kind, unsigned to)
{
        struct request *q = calloc(1, sizeof(*q));

        if (!q)
                abort();
        q->kind = kind;
        q->to = to;
        q->life = w->r[to].life;
        q->sent = w->now;
        q->term = w->top_term;
        post(w, some_time(w, 100 * NSEC_PER_USEC, 3 * MSEC), EV_REQUEST)->request = q;
        return q;
}

/* Counts a renewal of this lease as under way. */
static void renewing(struct world *w, struct request *q)
{
        q->counted = q->kind == RQ_RENEW;
        if (q->counted)
                check_renewing(w, q->lease, 1);
}

static void ask_edge(struct world *w, struct edge *e)
{
        struct request *q = ask(w, e->lease ? RQ_RENEW : RQ_GRANT,
                                (unsigned) rnd_between(&w->rnd, 0, w->n_replicas - 1));

        q->edge = e;
        q->lease = e->lease;
        q->ttl_ms = e->wants_ms;
        renewing(w, q);
}

static void edge_answered(struct world *w, struct request *q)
{
        struct edge *e = q->edge;

        if (q->ok && q->kind == RQ_GRANT) {
                w->counts.grants++;
                check_granted(w, q->lease, q->ttl_ms, q->sent, NULL);
                e->lease = q->lease;
                e->ttl_ms = q->ttl_ms;
        } else if (q->ok) {
                w->counts.renewals++;
                check_renewed(w, q->lease, q->sent, q->ttl_ms);
                if (q->ttl_ms == 0)
                        e->lease = 0;
                else if (w->loops && chance(w, 80))
                        ask_edge(w, e);
        }
}

/* Puts its key, or gives up its lease, and so its key. */
static void use_lease(struct world *w, struct edge *e)
{
        struct request *q = ask(w, chance(w, 85) ? RQ_TIE : RQ_REVOKE,
                                (unsigned) rnd_between(&w->rnd, 0, w->n_replicas - 1));

        q->lease = e->lease;
        q->key = e - w->edges;
        q->value = (int64_t) rnd_u64(&w->rnd);
        if (q->kind != RQ_REVOKE)
                return;
        ask_edge(w, e); /* this renewal must not be another lease's, which gets its place */
        e->lease = 0;
}

/* Renews around the very end of the term: before it, at it, or after it. */
void on_edge(struct world *w, struct edge *e)
{
        if (w->tied && e->lease && chance(w, 40))
                use_lease(w, e);
        ask_edge(w, e);
        post(w, TTL_MIN_MS * MSEC / 100 * (nsec_t) rnd_between(&w->rnd, e->lease ? 85 : 2, 101),
             EV_EDGE)
                ->edge = e;
}

static void tell_op(struct world *w, const struct request *q, enum op_kind kind)
{
        check_op(w, &(struct op){.kind = kind,
                                 .key = q->key,
                                 .value = q->value,
                                 .expect = q->expect,
                                 .done = q->done,
                                 .found = q->found,
                                 .revision = q->revision,
                                 .begun = q->sent,
                                 .ended = w->now});
}

void on_reply(struct world *w, struct request *q)
{
        int64_t answer[] = {q->kind,  q->ok,       q->lease, q->ttl_ms,
                            q->value, q->revision, q->found};

        trace_add(w, TRACED_ANSWER, q->to, answer, sizeof(answer));
        if (q->edge) {
                edge_answered(w, q);
                return request_free(q);
        }
        switch (q->kind) {
        case RQ_GRANT:
        case RQ_RENEW:
                break; /* edge clients only */
        case RQ_TIE:
        case RQ_REVOKE:
        case RQ_LARGE:
                break; /* what became of it shows in caches */
        case RQ_WRITE:
                if (q->ok) {
                        w->counts.writes++;
                        check_written(w, q->key, q->value, q->revision);
                        tell_op(w, q, OP_WRITE);
                }
                break;
        case RQ_CAS:
                if (q->ok) {
                        w->counts.writes++;
                        if (q->done)
                                check_written(w, q->key, q->value, q->revision);
                        tell_op(w, q, OP_CAS);
                }
                break;
        case RQ_READ:
                if (q->ok) {
                        w->counts.reads++;
                        tell_op(w, q, OP_READ);
                }
                break;
        case RQ_COMPACT:
                w->counts.compactions += q->ok;
                break;
        }
        request_free(q);
}

bool on_request(struct world *w, struct event *e)
{
        struct request *q = e->request;
        struct replica_node *n = &w->r[q->to];

        if (n->paused && n->up && !n->asleep) {
                park(n, e);
                return true;
        }
        if (n->asleep || w->cut[q->to][q->to] || (w->faults.loss && !w->calm && chance(w, 3)))
                request_free(q);
        else
                serve(w, q);
        return false;
}

/* Where one of these is missing, more of the others; and no less than one of them. */
static enum request_kind choose(struct world *w)
{
        if (chance(w, w->does & USUAL_WRITES ? 40 : 0))
                return RQ_WRITE;
        if (chance(w, w->does & USUAL_CAS ? 30 : 0) || !(w->does & USUAL_READS))
                return w->does & USUAL_CAS      ? RQ_CAS
                       : w->does & USUAL_WRITES ? RQ_WRITE
                                                : RQ_READ;
        return RQ_READ;
}

void on_client(struct world *w)
{
        struct request *q =
                ask(w, choose(w), (unsigned) rnd_between(&w->rnd, 0, w->n_replicas - 1));

        q->key = (int64_t) rnd_between(&w->rnd, 0, N_KEYS - 1);
        q->value = (int64_t) rnd_u64(&w->rnd);
        if (!load_ended(w))
                post(w, some_time(w, w->write_every / 15, 2 * w->write_every), EV_CLIENT);
}

void ask_writes(struct world *w, unsigned to, unsigned n)
{
        for (; n > 0; n--) {
                struct request *q = ask(w, RQ_WRITE, to);

                q->key = (int64_t) rnd_between(&w->rnd, 0, N_KEYS - 1);
                q->value = (int64_t) rnd_u64(&w->rnd);
        }
}

void ask_reads(struct world *w, unsigned to, unsigned n)
{
        for (; n > 0; n--)
                ask(w, RQ_READ, to)->key = (int64_t) rnd_between(&w->rnd, 0, N_KEYS - 1);
}

void ask_large_writes(struct world *w, unsigned to, unsigned n, size_t len)
{
        for (unsigned i = 0; i < n; i++) {
                struct request *q = ask(w, RQ_LARGE, to);

                q->key = i % 8;
                q->len = len;
        }
}

void ask_compaction(struct world *w)
{
        ask(w, RQ_COMPACT, (unsigned) rnd_between(&w->rnd, 0, w->n_replicas - 1));
}

bool load_ended(const struct world *w)
{
        return w->now > w->run_time + CALM_MIN - 1500 * MSEC;
}

void load_begin(struct world *w)
{
        post(w, 0, EV_CLIENT);
        for (unsigned i = 0; i < w->n_edges; i++) {
                w->edges[i].wants_ms = w->long_ttls ? long_ttl_ms(w, TTL_LONG_MS) : TTL_MIN_MS;
                post(w, (nsec_t) i * 100 * MSEC, EV_EDGE)->edge = &w->edges[i];
        }
}
