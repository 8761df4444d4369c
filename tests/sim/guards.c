/*
 * Programs of which one at a time has a place, by a lease of its own, and which write only
 * while they have it: each write is a transaction that the core carries out only while the
 * place's key is attached to the writer's lease, as tenure_put_held() makes it. Each checks its
 * deadline, and then stops, or sends into a network that stalls, for up to several TTLs: so its
 * write arrives when another program has the place.
 *
 * After each entry, at each replica: every write was made by the program that had the place at
 * that revision, with the token of that time; tokens never become smaller; and no entry after
 * the one that ended a lease writes by that lease. And no write is refused before the writer's
 * deadline.
 */
#include "../whole.h"
#include "asker.h"

#define N_PROGRAMS 3
#define PLACE "place"
#define WRITTEN "written"
#define SEEN_MAX 4096 /* leases */

/* The content of a write: the writer and its right to write. */
struct note {
        int64_t lease, token;
        uint64_t number, who;
};

static struct program {
        struct asker asker;
        enum { IDLE, GRANTING, TAKING, READY, RENEWING, WRITING } state;
        int64_t lease, ttl_ms, token;
        nsec_t deadline, renew_at; /* of the lease */
        uint64_t n_written;
        bool late; /* the write was sent after the deadline */
} programs[N_PROGRAMS];

/* The leases of these programs: the first entry after which a replica had it, and the first
 * after which a replica did not have it any more. */
static struct seen_lease {
        int64_t id;
        uint64_t there, gone;
} leases[SEEN_MAX];
static size_t n_leases;
static int64_t looked[REPLICAS_MAX];     /* up to which revision it was checked ... */
static uint64_t looked_at[REPLICAS_MAX]; /* ... after which entry */

static struct program *program_of(struct asker *a)
{
        return container_of(a, struct program, asker);
}

/* ---- requests ---- */

static void grant(struct program *p)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;

        p->state = GRANTING;
        p->ttl_ms = TTL_MIN_MS;
        q.ttl_ms = p->ttl_ms;
        asker_ask(&p->asker, "/etcdserverpb.Lease/LeaseGrant", &q.base);
}

/* Creates the place's key, if it does not exist. */
static void take(struct program *p)
{
        Pb__TxnRequest txn = PB__TXN_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__Compare c = PB__COMPARE__INIT, *cs[] = {&c};

        p->state = TAKING;
        c.key = put.key = pb_bytes(PLACE, strlen(PLACE));
        c.target = PB__COMPARE__COMPARE_TARGET__CREATE;
        c.target_union_case = PB__COMPARE__TARGET_UNION_CREATE_REVISION;
        put.lease = p->lease;
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op.request_put = &put;
        txn.compare = cs;
        txn.success = ops;
        txn.n_compare = txn.n_success = 1;
        asker_ask(&p->asker, "/etcdserverpb.KV/Txn", &txn.base);
}

static void renew(struct program *p)
{
        Pb__LeaseKeepAliveRequest q = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;

        p->state = RENEWING;
        q.id = p->lease;
        asker_ask(&p->asker, "/etcdserverpb.Lease/LeaseKeepAlive", &q.base);
}

/* Like write_guarded() in tenure/txn.c. */
static void write_held(struct program *p)
{
        Pb__TxnRequest txn = PB__TXN_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};
        Pb__RequestOp look_op = PB__REQUEST_OP__INIT, *looks[] = {&look_op};
        Pb__RangeRequest look = PB__RANGE_REQUEST__INIT;
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__Compare held = PB__COMPARE__INIT, *cs[] = {&held};
        struct note note = {.lease = p->lease,
                            .token = p->token,
                            .number = ++p->n_written,
                            .who = p->asker.i};

        p->state = WRITING;
        held.key = look.key = pb_bytes(PLACE, strlen(PLACE));
        held.target = PB__COMPARE__COMPARE_TARGET__LEASE;
        held.target_union_case = PB__COMPARE__TARGET_UNION_LEASE;
        held.lease = p->lease;
        put.key = pb_bytes(WRITTEN, strlen(WRITTEN));
        put.value = pb_bytes(&note, sizeof(note));
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op.request_put = &put;
        look_op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        look_op.request_range = &look;
        txn.compare = cs;
        txn.success = ops;
        txn.failure = looks;
        txn.n_compare = txn.n_success = txn.n_failure = 1;
        asker_ask(&p->asker, "/etcdserverpb.KV/Txn", &txn.base);
}

/* It checks its deadline and goes on to write; in between, or on the way, time passes
 * unnoticed. */
static void decide(struct program *p)
{
        nsec_t most = p->ttl_ms * MSEC * 5 / 2;

        if (!chance(W, 30))
                return write_held(p);
        if (chance(W, 50)) {
                p->asker.frozen_until = W->now + some_time(W, 0, most);
                p->late = p->asker.frozen_until > p->deadline;
        } else {
                p->asker.cut =
                        (struct span){.from = W->now, .until = W->now + some_time(W, 0, most)};
                p->late = p->asker.cut.until > p->deadline;
        }
        write_held(p);
        p->asker.waits.lasts = true;
}

static void act(struct asker *a)
{
        struct program *p = program_of(a);

        if (p->lease != 0 && W->now >= p->deadline) {
                p->lease = p->token = 0;
                p->state = IDLE;
        }
        if (p->lease == 0)
                grant(p);
        else if (W->now >= p->renew_at)
                renew(p);
        else if (p->token == 0)
                take(p);
        else
                decide(p);
}

/* ---- answers ---- */

static void holds_on(struct program *p, int64_t ttl_ms)
{
        p->deadline = p->asker.asked_at + ttl_ms * MSEC / 1000 * 999;
        p->renew_at = p->asker.asked_at + ttl_ms * MSEC / 2;
}

static void on_granted(struct program *p, struct view m)
{
        Pb__LeaseGrantResponse *r = pb__lease_grant_response__unpack(NULL, m.len, m.p);

        p->lease = r->id;
        p->token = 0;
        holds_on(p, r->ttl_ms);
        pb_free(r);
        if (n_leases == SEEN_MAX)
                return fail_full(W, "leases of programs");
        leases[n_leases++] = (struct seen_lease){.id = p->lease};
}

static void on_renewed(struct program *p, struct view m)
{
        Pb__LeaseKeepAliveResponse *r = pb__lease_keep_alive_response__unpack(NULL, m.len, m.p);

        if (r->ttl > 0)
                holds_on(p, r->ttl_ms);
        else
                p->lease = 0;
        pb_free(r);
}

static void on_txn(struct program *p, struct view m)
{
        Pb__TxnResponse *r = pb__txn_response__unpack(NULL, m.len, m.p);

        if (p->state == TAKING) {
                p->token = r->succeeded ? r->header->revision : 0;
                W->counts.places += r->succeeded ? 1 : 0;
        } else if (r->succeeded) {
                W->counts.guarded++;
        } else {
                if (W->now < p->deadline)
                        fail(W,
                             "guards: program %u was refused a write, %.3f s before its "
                             "deadline",
                             p->asker.i, (double) (p->deadline - W->now) / 1e9);
                p->lease = 0;
                W->counts.guards++;
                W->counts.guards_late += p->late;
        }
        pb_free(r);
}

static void answered(struct asker *a, enum rpc_code code, struct view m, bool lost)
{
        struct program *p = program_of(a);
        nsec_t pause = p->state == TAKING ? 200 * MSEC : 60 * MSEC;

        a->cut.until = 0;
        a->act_at = W->now + some_time(W, 0, pause);
        if (code == RPC_OK && !lost) {
                if (p->state == GRANTING)
                        on_granted(p, m);
                else if (p->state == RENEWING)
                        on_renewed(p, m);
                else
                        on_txn(p, m);
        } else if (p->state == TAKING) {
                p->lease = 0; /* the key may be ours, with a token that we were not told */
        }
        p->late = false;
        p->state = p->lease == 0 ? IDLE : READY;
}

static const struct asker_ops ops = {.act = act, .answered = answered};

/* ---- what every replica has ---- */

static void look_for_leases(const struct state *s, uint64_t index)
{
        for (size_t i = 0; i < n_leases; i++) {
                struct seen_lease *l = &leases[i];
                bool there = leases_find(&s->leases, l->id);

                if (there && (l->there == 0 || index < l->there))
                        l->there = index;
                if (!there && l->there > 0 && index > l->there &&
                    (l->gone == 0 || index < l->gone))
                        l->gone = index;
        }
}

static const struct seen_lease *find_lease(int64_t id)
{
        for (size_t i = 0; i < n_leases; i++)
                if (leases[i].id == id)
                        return &leases[i];
        return NULL;
}

/* @index 0: the entry is unknown. */
static void check_write(struct world *w, const struct state *s, const struct kv_version *v,
                        uint64_t index)
{
        struct kv_key *place = kv_find(&s->kv, PLACE, strlen(PLACE));
        const struct kv_version *at = place ? kv_at(place, v->mod_revision) : NULL;
        const struct seen_lease *l;
        struct note n, before;

        memcpy(&n, v->value, sizeof(n));
        l = find_lease(n.lease);
        if (!at || at->version == 0 || at->lease != n.lease || at->create_revision != n.token)
                fail(w,
                     "guards: at revision %lld program %llu wrote by lease %llx and token "
                     "%lld, and the place was of lease %llx, token %lld",
                     (long long) v->mod_revision, (unsigned long long) n.who,
                     (unsigned long long) n.lease, (long long) n.token,
                     (unsigned long long) (at ? at->lease : 0),
                     (long long) (at ? at->create_revision : 0));
        if (l && l->gone > 0 && l->gone < index)
                fail(w,
                     "guards: entry %llu wrote by lease %llx, which was gone after entry %llu",
                     (unsigned long long) index, (unsigned long long) n.lease,
                     (unsigned long long) l->gone);
        if (!v->older || v->older->value_len != sizeof(before))
                return;
        memcpy(&before, v->older->value, sizeof(before));
        if (n.token < before.token)
                fail(w, "guards: a write with the token %lld came after one with %lld",
                     (long long) n.token, (long long) before.token);
}

void guards_applied(struct world *w, struct replica_node *n, uint64_t index)
{
        struct state *s = core_state(n->node.core);
        struct kv_key *k;

        if (!w->guarded || n->i >= REPLICAS_MAX)
                return;
        k = kv_find(&s->kv, WRITTEN, strlen(WRITTEN));
        /* A replica that starts again begins from scratch, and one that installs a snapshot
         * leaps ahead. */
        for (const struct kv_version *v = k ? k->newest : NULL;
             v && v->mod_revision > max_of(looked[n->i], s->kv.compacted); v = v->older)
                check_write(w, s, v, looked_at[n->i] + 1 == index ? index : 0);
        looked[n->i] = s->revision;
        looked_at[n->i] = index;
        look_for_leases(s, index);
}

/* ---- ---- */

void guards_begin(struct world *w)
{
        n_leases = 0;
        memset(looked, 0, sizeof(looked));
        memset(looked_at, 0, sizeof(looked_at));
        for (unsigned i = 0; w->guarded && i < N_PROGRAMS; i++) {
                programs[i] = (struct program){.state = IDLE};
                asker_begin(&programs[i].asker, i, &ops);
        }
}
