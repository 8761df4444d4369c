/* What must never happen: the invariants of the lease contract, as an observer states them who
 * sees everything and shares no code with what it checks. */
#include <stdarg.h>
#include <stdio.h>

#include "../whole.h"
#include "base/hash.h"
#include "hoard.h"
#include "units.h"
#include "wider.h"
#include "world.h"

#define HASHED_EVERY 64 /* entries */
#define WIDER_STARTS_EVERY (8 * HASHED_EVERY)
#define LEASES_MAX 4096
#define INDEX_MAX 200000
#define KEYS_MAX 64
#define LEASE_TIME_WATCHED (2500 * MSEC)
#define GRAIN (180 * MSEC * W->slower / 100)
#define LULL_GRAIN (2 * MSEC * W->slower)
/* What of lease time may not be in the log when a majority crashes, for a lease of this TTL. */
#define TICK_GRAIN(ttl) \
        (50 * MSEC + min_of(max_of((ttl) / 8, 250 * MSEC), NSEC_PER_SEC) * W->slower / 100)

struct lease_seen {
        int64_t id, ttl_ms;
        nsec_t counted; /* send time of the last acknowledged renewal, true time */
        bool gone, revoked;
        nsec_t gone_at;
        nsec_t still_before; /* how much lease time had stood still by then */
        uint64_t renewed;    /* the last entry with a renewal that was applied anywhere ... */
        nsec_t renewed_at, lull_before; /* ... when, and how much lull there had been by then */
        uint64_t lulls_before;
        struct holder *holder;
        bool asked;   /* somebody asked to renew it */
        int renewing; /* renewals under way */
};

#define OPS_MAX 8192
#define REVISIONS_MAX 16384
#define WATCHERS_MAX 2
#define HOLDS_MAX 4096
#define TERMS_MAX 4096

static struct lease_seen leases[LEASES_MAX];
static struct op ops[OPS_MAX];
static struct {
        int64_t revision, value;
} newest[N_KEYS];
static size_t n_ops;
static size_t n_leases;
static struct {
        uint64_t hash;
        bool known;
} story[INDEX_MAX];
static int64_t values[KEYS_MAX], value_revision[KEYS_MAX];
/* What watchers were told about each revision. */
static struct {
        uint64_t hash;      /* of all its events; 0: none yet */
        int64_t key, value; /* the value written to a register, if one of them was */
        bool compacted;     /* a watcher was told that it is compacted */
} delivered[WATCHERS_MAX][REVISIONS_MAX];
static struct {
        unsigned who;
        nsec_t begin, end;
} holds[HOLDS_MAX];
static size_t n_holds;
/* Which replica led each term, and in which life. */
static struct {
        unsigned who, life;
} led[TERMS_MAX];
static uint64_t term_end;
static uint64_t index_end;   /* how much of `story` is in use ... */
static int64_t revision_end; /* ... and how much of `delivered` */

void fail(struct world *w, const char *fmt, ...)
{
        va_list ap;
        int n;

        if (*w->failure)
                return;
        n = snprintf(w->failure, sizeof(w->failure), "at %.3f s: ", (double) w->now / 1e9);
        va_start(ap, fmt);
        vsnprintf(w->failure + n, sizeof(w->failure) - (size_t) n, fmt, ap);
        va_end(ap);
}

/* What is not noted is not checked. */
void fail_full(struct world *w, const char *what)
{
        fail(w, "the checks have no room for more %s; enlarge their table", what);
}

void check_reset(void)
{
        memset(newest, 0, sizeof(newest));
        n_leases = n_ops = n_holds = 0;
        for (size_t i = 0; i < WATCHERS_MAX; i++)
                memset(delivered[i], 0, (size_t) revision_end * sizeof(delivered[i][0]));
        memset(story, 0, index_end * sizeof(story[0]));
        memset(led, 0, term_end * sizeof(led[0]));
        index_end = 0;
        revision_end = 0;
        term_end = 0;
        memset(values, 0, sizeof(values));
        memset(value_revision, 0, sizeof(value_revision));
}

/* Raft, Election Safety: a term has one leader, in only one of its lives, because other
 * replicas may have what it lost in between. */
void check_leads(struct world *w, const struct replica_node *n, uint64_t term)
{
        if (term >= TERMS_MAX)
                return fail_full(w, "terms");
        term_end = max_of(term_end, term + 1);
        if (led[term].life == 0) {
                led[term].who = n->i;
                led[term].life = n->life;
        } else if (led[term].who != n->i || led[term].life != n->life) {
                fail(w, "replica %u leads in term %llu, in which replica %u led%s", n->i + 1,
                     (unsigned long long) term, led[term].who + 1,
                     led[term].who == n->i ? " in an earlier life" : "");
        }
}

static struct lease_seen *find(int64_t id)
{
        for (size_t i = n_leases; i > 0; i--)
                if (leases[i - 1].id == id)
                        return &leases[i - 1];
        return NULL;
}

/* I4: nothing that is applied depends on the sizes of structs. */
static void check_wider(struct world *w, const struct replica_node *n, uint64_t hash)
{
        uint64_t index = wider_applied();
        cleanup_(buf_fini) struct buf snapshot = {0};

        if (wider_hash() != hash)
                return fail(w,
                            "I4: the state machine with wider structs has another state after "
                            "entry %llu than replica %u",
                            (unsigned long long) index, n->i + 1);
        if (index % WIDER_STARTS_EVERY != 0)
                return;
        state_save(core_state(n->node.core), &snapshot);
        if (wider_load((struct view){buf_head(&snapshot), buf_len(&snapshot)}) < 0 ||
            wider_hash() != hash)
                fail(w,
                     "I4: the state machine with wider structs cannot start from the snapshot "
                     "of replica %u at entry %llu",
                     n->i + 1, (unsigned long long) index);
}

/* I4: one history (A18, A20: also after crashes and snapshots; A15: on followers as on
 * leaders). */
void check_applied(struct world *w, struct replica_node *n, uint64_t index)
{
        uint64_t hash;

        if (index >= INDEX_MAX)
                return fail_full(w, "entries");
        if (index % HASHED_EVERY != 0)
                return;
        index_end = max_of(index_end, index + 1);
        /* Disks keep what was synced here, so no replica may lack what it has acknowledged. */
        if (replica_forgetful(core_replica(n->node.core)) != 0 && w->n_swapped == 0)
                fail(w, "I5: replica %u says that member %llx has lost entries", n->i + 1,
                     (unsigned long long) replica_forgetful(core_replica(n->node.core)));
        hash = state_hash(core_state(n->node.core));
        if (!story[index].known) {
                story[index].known = true;
                story[index].hash = hash;
                check_wider(w, n, hash);
        } else if (story[index].hash != hash) {
                fail(w,
                     "I4: replica %u has another state after entry %llu than another one had",
                     n->i + 1, (unsigned long long) index);
        }
}

/* I2: nobody can have asked yet to renew a lease of which no client has heard. */
static void check_not_renewed(struct world *w, int64_t lease)
{
        for (unsigned i = 0; i < w->n_replicas; i++) {
                const struct lease *l =
                        w->r[i].up ? leases_find(&core_state(w->r[i].node.core)->leases, lease)
                                   : NULL;

                if (l && l->renewed != l->born)
                        fail(w, "I2: lease %llx was renewed before its client knew of it",
                             (unsigned long long) lease);
        }
}

void check_granted(struct world *w, int64_t lease, int64_t ttl_ms, nsec_t sent,
                   struct holder *h)
{
        if (!w->forced)
                check_not_renewed(w, lease);
        if (find(lease))
                return fail(w, "lease %llx was granted twice", (unsigned long long) lease);
        if (n_leases == LEASES_MAX)
                return fail_full(w, "leases");
        leases[n_leases++] = (struct lease_seen){.id = lease,
                                                 .ttl_ms = ttl_ms,
                                                 .counted = sent,
                                                 .holder = h,
                                                 .still_before = w->still.total,
                                                 .renewed_at = w->now,
                                                 .lull_before = w->lull,
                                                 .lulls_before = w->lulls - w->was_lull};
}

void check_renewed(struct world *w, int64_t lease, nsec_t sent, int64_t ttl_ms)
{
        struct lease_seen *l = find(lease);

        if (!l || ttl_ms <= 0)
                return;
        /* I7: requested after the lease's end, and yet acknowledged (A23, A37). */
        if (l->gone && sent > l->gone_at)
                fail(w,
                     "I7: lease %llx ended at %.3f s, was asked to be renewed at %.3f s, and "
                     "was",
                     (unsigned long long) lease, (double) l->gone_at / 1e9,
                     (double) sent / 1e9);
        if (sent > l->counted) {
                l->counted = sent;
                l->still_before = w->still.total;
        }
}

void check_renewing(struct world *w, int64_t lease, int by)
{
        struct lease_seen *l = find(lease);

        (void) w;
        if (l) {
                l->renewing += by;
                l->asked = true;
        }
}

void check_revoked(int64_t lease)
{
        struct lease_seen *l = find(lease);

        if (l)
                l->revoked = true;
}

void check_ended(struct world *w, int64_t lease, bool expired)
{
        struct lease_seen *l = find(lease);
        nsec_t ttl, age, still;

        if (!l || l->gone)
                return;
        w->met.late_renewal += expired && l->renewing > 0;
        l->gone = true;
        l->gone_at = w->now;
        if (!expired || l->revoked)
                return;
        /* I1 (A1, A2, A3: deposed leaders, stalled disks; A9: elections): no expiry before the
         * TTL has passed since the last acknowledged renewal, by the fastest clock that is
         * allowed. */
        ttl = l->ttl_ms * MSEC;
        age = w->now - l->counted;
        if (age < ttl - ttl / 1000 - MSEC)
                fail(w,
                     "I1: lease %llx expired %.3f s after a renewal that was acknowledged; its "
                     "TTL is %.3f s",
                     (unsigned long long) lease, (double) age / 1e9, (double) ttl / 1e9);
        /* Nor may time count in which nobody could have renewed. If members change, we do not
         * know which majority counts. */
        still = w->still.total - l->still_before;
        if (!w->faults.members && age < ttl - ttl / 1000 + still - 10 * MSEC)
                fail(w,
                     "I1: lease %llx expired %.3f s after its last renewal with a TTL of %.3f "
                     "s; for %.3f s of that the core could do nothing",
                     (unsigned long long) lease, (double) age / 1e9, (double) ttl / 1e9,
                     (double) still / 1e9);
        /* I3: the holder must have known before (A36). */
        if (l->holder && l->holder->home == 0 && holder_holds(l->holder, lease) &&
            !holder_is_misled(l->holder))
                fail(w, "I3: lease %llx expired while holder %u still counted on it",
                     (unsigned long long) lease, l->holder->i);
        if (l->holder && l->holder->home == 0 && w->fenced && !holder_is_misled(l->holder))
                fenced_lease_ended(l->holder, lease);
}

/* I5: acknowledged writes. */
void check_written(struct world *w, int64_t key, int64_t value, int64_t revision)
{
        (void) w;
        if (revision > value_revision[key]) {
                value_revision[key] = revision;
                values[key] = value;
        }
}

/* ---- watches (I6; A41) and locks ---- */

void check_delivered(struct world *w, unsigned watcher, int64_t revision, struct view key,
                     struct view value)
{
        uint64_t h;

        w->counts.delivered++;
        if (revision >= REVISIONS_MAX)
                return fail_full(w, "revisions");
        revision_end = max_of(revision_end, revision + 1);
        h = delivered[watcher][revision].hash ? delivered[watcher][revision].hash : HASH_START;
        h = hash_add(hash_add(h, key.p, key.len), value.p, value.len);
        delivered[watcher][revision].hash = h;
        if (key.len == 3 && key.p[0] == 'k' && value.len == sizeof(int64_t)) {
                delivered[watcher][revision].key = (key.p[1] - '0') * 10 + key.p[2] - '0';
                memcpy(&delivered[watcher][revision].value, value.p, sizeof(int64_t));
        }
}

void check_compacted(unsigned watcher, int64_t from, int64_t to)
{
        if (to > REVISIONS_MAX)
                return fail_full(W, "revisions");
        for (int64_t rev = from; rev < to; rev++) {
                revision_end = max_of(revision_end, rev + 1);
                delivered[watcher][rev].compacted = true;
        }
}

/* All watchers were told the same, and the same as the writers. */
static void check_watchers(struct world *w)
{
        int64_t last = core_state(w->r[0].node.core)->revision;

        if (last >= REVISIONS_MAX)
                return fail_full(w, "revisions");
        if (!clients_caught_up(core_state(w->r[0].node.core)->revision))
                fail(w, "I6: after a long calm a watcher has not been told all");
        for (int64_t rev = 2; rev <= last; rev++)
                if (delivered[0][rev].hash != delivered[1][rev].hash &&
                    !delivered[0][rev].compacted && !delivered[1][rev].compacted)
                        fail(w, "I6: two watchers were told of revision %lld, not the same",
                             (long long) rev);
        for (size_t i = 0; i < n_ops; i++) {
                const struct op *o = &ops[i];

                if (o->kind == OP_READ || (o->kind == OP_CAS && !o->done) || o->revision > last)
                        continue;
                if ((delivered[0][o->revision].key != o->key ||
                     delivered[0][o->revision].value != o->value) &&
                    !delivered[0][o->revision].compacted)
                        fail(w, "I6: a watcher was not told of the write at revision %lld",
                             (long long) o->revision);
        }
}

void check_held(struct world *w, unsigned who, nsec_t begin, nsec_t end)
{
        w->counts.held++;
        for (size_t i = n_holds; i > 0; i--)
                if (begin < holds[i - 1].end && holds[i - 1].begin < end)
                        fail(w, "locks: client %u holds from %.3f s on, client %u until %.3f s",
                             who, (double) begin / 1e9, holds[i - 1].who,
                             (double) holds[i - 1].end / 1e9);
        if (n_holds == HOLDS_MAX)
                return fail_full(w, "locks");
        holds[n_holds].who = who;
        holds[n_holds].begin = begin;
        holds[n_holds++].end = end;
}

/* ---- linearizability (I8, and I5 while the world runs) ---- */

/* Records what somebody has been told: a read that begins later must find this value or a newer
 * one. */
static void see(int64_t key, int64_t revision, int64_t value)
{
        if (revision > newest[key].revision) {
                newest[key].revision = revision;
                newest[key].value = value;
        }
}

void check_op(struct world *w, const struct op *op)
{
        if (n_ops == OPS_MAX)
                return fail_full(w, "operations");
        ops[n_ops++] = *op;
        if (op->kind == OP_READ)
                see(op->key, op->found, op->value);
        else if (op->kind == OP_WRITE || op->done)
                see(op->key, op->revision, op->value);
}

void check_cached(struct world *w, int64_t key, int64_t value, int64_t found)
{
        if (found < newest[key].revision ||
            (found == newest[key].revision && value != newest[key].value))
                fail(w,
                     "I8: a read of key %lld from a cache found what was written at revision "
                     "%lld, though %lld was seen before",
                     (long long) key, (long long) found, (long long) newest[key].revision);
        see(key, found, value);
}

static int by_revision(const void *a, const void *b)
{
        const struct op *x = a, *y = b;
        bool wx = x->kind == OP_WRITE || (x->kind == OP_CAS && x->done),
             wy = y->kind == OP_WRITE || (y->kind == OP_CAS && y->done);

        if (x->revision != y->revision)
                return x->revision < y->revision ? -1 : 1;
        if (wx != wy)
                return wx ? -1 : 1; /* first the operation that made the revision, then those
                                     * that saw it */
        return x->begun < y->begun ? -1 : x->begun > y->begun;
}

/* No value is written twice. So a value that is found at another revision than was acknowledged
 * was applied twice. */
static void check_twice(struct world *w, const struct op *read)
{
        for (size_t i = 0; i < n_ops; i++)
                if (ops[i].kind != OP_READ && (ops[i].kind == OP_WRITE || ops[i].done) &&
                    ops[i].value == read->value && ops[i].revision != read->found)
                        fail(w,
                             "a write that was acknowledged at revision %lld stands at %lld "
                             "too",
                             (long long) ops[i].revision, (long long) read->found);
}

/* The revisions are the claimed order of operations. Does real time allow that order, and does
 * each operation see the last write before it? */
static void check_history(struct world *w)
{
        int64_t value[KEYS_MAX] = {0}, mod[KEYS_MAX] = {0};
        nsec_t latest_begin = 0;

        qsort(ops, n_ops, sizeof(*ops), by_revision);
        for (size_t i = 0; i < n_ops && !*w->failure; i++) {
                const struct op *o = &ops[i];

                /* An operation that is later in the order must not have ended before this one
                 * began. */
                if (o->ended < latest_begin)
                        fail(w,
                             "linearizability: an operation at revision %lld had ended before "
                             "one with a smaller revision began",
                             (long long) o->revision);
                latest_begin = max_of(latest_begin, o->begun);
                switch (o->kind) {
                case OP_WRITE:
                        if (mod[o->key] >= o->revision)
                                fail(w, "linearizability: two writes at revision %lld",
                                     (long long) o->revision);
                        value[o->key] = o->value;
                        mod[o->key] = o->revision;
                        break;
                case OP_CAS:
                        /* Writes that nobody was told of are missing here: a compare may expect
                         * a later revision than the last one we know, but never an earlier
                         * one. */
                        if (o->done && o->expect < mod[o->key])
                                fail(w,
                                     "linearizability: at revision %lld a compare found %lld, "
                                     "but "
                                     "%lld was written before",
                                     (long long) o->revision, (long long) o->expect,
                                     (long long) mod[o->key]);
                        if (o->done) {
                                value[o->key] = o->value;
                                mod[o->key] = o->revision;
                        }
                        break;
                case OP_READ:
                        if (o->found > 0)
                                check_twice(w, o);
                        if (o->found < mod[o->key] ||
                            (o->found == mod[o->key] && o->found > 0 &&
                             o->value != value[o->key]))
                                fail(w,
                                     "I8: a read at revision %lld found what was written at "
                                     "%lld; "
                                     "the last write before was at %lld",
                                     (long long) o->revision, (long long) o->found,
                                     (long long) mod[o->key]);
                        break;
                }
        }
}

/* It holds its place, and what it publishes is in the core; or another host has its name; or it
 * has to rest. */
static bool is_at_home(const struct holder *h)
{
        if (holder_holds(h, 0))
                return view_is_published(h);
        return holder_is_refused(h) || (h->units && steady_rests(h->units));
}

bool check_settled(struct world *w)
{
        uint64_t least = UINT64_MAX, most = 0;

        for (unsigned i = 0; i < w->n_replicas; i++) {
                uint64_t applied;

                /* Nor is an entry half applied. */
                if (!w->r[i].up || *core_half_applied(w->r[i].node.core))
                        return false;
                applied = core_state(w->r[i].node.core)->applied;
                least = min_of(least, applied);
                most = max_of(most, applied);
        }
        for (unsigned i = 0; i < w->n_holders; i++)
                if ((w->h[i].alive && (!is_at_home(&w->h[i]) || !view_knows_all(&w->h[i]))) ||
                    (w->fenced && !fenced_is_settled(&w->h[i])))
                        return false;
        if (the_leader(w) && core_status(the_leader(w)->node.core).way > 0)
                return false;
        return most - least <= 20 && load_ended(w) &&
               clients_caught_up(core_state(w->r[0].node.core)->revision) &&
               (!w->faults.members || restore_members(w));
}

void check_end(struct world *w)
{
        uint64_t applied = 0, hash = 0, most = 0;

        if (!w->r[0].node.core)
                return fail(w, "replica 1 is not there in the end");
        check_history(w);
        check_watchers(w);
        hoard_check_end(w);
        for (unsigned i = 0; i < w->n_replicas; i++)
                if (w->r[i].node.core)
                        most = max_of(most, core_state(w->r[i].node.core)->applied);
        for (unsigned i = 0; i < w->n_replicas; i++) {
                struct state *s;

                if (!w->r[i].node.core)
                        return fail(w, "replica %u is not there in the end", i + 1);
                if (core_status(w->r[i].node.core).leader &&
                    core_status(w->r[i].node.core).way > 0)
                        return fail(w, "I1: the leader would notice no short outage, as if the "
                                       "network were still slow");
                s = core_state(w->r[i].node.core);
                for (int64_t key = 0; key < KEYS_MAX; key++) {
                        char name[16];
                        struct kv_key *k;
                        int64_t is = 0;

                        /* One that is a few entries behind may not have the last write yet. */
                        if (value_revision[key] == 0 ||
                            (s->applied < most && s->revision < value_revision[key]))
                                continue;
                        snprintf(name, sizeof(name), "k%02lld", (long long) key);
                        k = kv_find(&s->kv, name, strlen(name));
                        if (k && kv_live(k) && k->newest->value_len == sizeof(is))
                                memcpy(&is, k->newest->value, sizeof(is));
                        if (!k || !kv_live(k) || k->newest->mod_revision < value_revision[key])
                                fail(w,
                                     "I5: replica %u lost the acknowledged write of %s at "
                                     "revision %lld",
                                     i, name, (long long) value_revision[key]);
                        else if (k->newest->mod_revision == value_revision[key] &&
                                 is != values[key])
                                fail(w, "I5: replica %u has another value for %s", i + 1, name);
                }
                if (i > 0 && (s->applied > applied + 20 || applied > s->applied + 20))
                        fail(w,
                             "liveness: replica %u applied %llu entries, another one %llu, "
                             "after a long calm",
                             i, (unsigned long long) s->applied, (unsigned long long) applied);
                if (i > 0 && s->applied == applied && state_hash(s) != hash)
                        fail(w, "I4: replica %u has another state in the end than another one",
                             i);
                applied = s->applied;
                hash = state_hash(s);
                if (applied == wider_applied())
                        check_wider(w, &w->r[i], hash);
        }
        for (unsigned i = 0; i < w->n_holders; i++)
                if (w->h[i].alive && !holder_holds(&w->h[i], 0) && !is_at_home(&w->h[i]))
                        fail(w, "liveness: holder %u is %s after a long calm", i,
                             holder_state(&w->h[i]));
                else if (w->h[i].alive && !view_knows_all(&w->h[i]))
                        fail(w, "I6: after a long calm holder %u does not know all", i);
                else if (w->h[i].alive && !is_at_home(&w->h[i]))
                        fail(w,
                             "after a long calm holder %u publishes other services than it has",
                             i);
                else if (w->fenced && !fenced_is_settled(&w->h[i]))
                        fail(w,
                             "after a long calm, what is bound on host %u is not as it should",
                             i);
}

void check_renewal_applied(struct world *w, const struct lease *is)
{
        struct lease_seen *l = find(is->id);
        uint64_t index = is->renewed;

        if (!l || index <= l->renewed)
                return;
        if (!l->holder && !l->asked && is->born != index && !w->forced)
                fail(w, "I2: lease %llx was renewed at entry %llu, and nobody asked for that",
                     (unsigned long long) is->id, (unsigned long long) index);
        l->renewed = index;
        l->renewed_at = w->now;
        l->lull_before = w->lull;
        l->lulls_before = w->lulls - w->was_lull;
}

/* Whether a replica has applied at least the last renewal, and does not have the lease. */
static bool is_gone_somewhere(const struct world *w, const struct lease_seen *l)
{
        for (unsigned i = 0; i < w->n_replicas; i++)
                if (w->r[i].up && core_state(w->r[i].node.core)->applied >= l->renewed &&
                    !leases_find(&core_state(w->r[i].node.core)->leases, l->id))
                        return true;
        return false;
}

/* How each replica sees the lease, as text. */
static const char *views(const struct world *w, int64_t id)
{
        static char text[400];
        size_t n = 0;

        *text = '\0';
        for (unsigned i = 0; i < w->n_replicas; i++) {
                struct boot_time now = clock_of(w, &w->r[i].clock);
                struct lease *l;

                if (!w->r[i].up)
                        continue;
                l = leases_find(&core_state(w->r[i].node.core)->leases, id);
                if (!l || n > sizeof(text) - 64)
                        continue;
                n += (size_t) snprintf(
                        text + n, sizeof(text) - n, " %u %s, %s, left %.3f s;", i + 1,
                        core_status(w->r[i].node.core).ready ? "leads" : "follows",
                        replica_healthy(w->r[i].node.replica, now) ? "well" : "not well",
                        (double) lease_time_diff(
                                deadlines_get(&core_state(w->r[i].node.core)->deadlines,
                                              l->slot),
                                replica_lease_time(w->r[i].node.replica, now)) /
                                1e9);
        }
        return text;
}

/* What a lease may live longer than its TTL, and than the time in which nobody served. A
 * network that loses 3 of 100 frames costs beacons and commits; a disk that stalls holds up
 * what queues behind it; where heartbeats are so frequent that one late frame is longer than
 * what a leader takes for well, each of them is an outage; a leader that hands over to a
 * replica that is down serves nobody for an election timeout or two; lease time stands still
 * while a leader, each once, learns how long a round trip is; and when a majority crashes at
 * once, lease time continues from the log (tick_after() in core/expiry.c). If all has been well
 * since the lease was renewed, it takes what an entry takes to be committed. */
static nsec_t undead_most(const struct world *w, const struct lease_seen *l, uint64_t lulls)
{
        nsec_t age = w->now - l->renewed_at, more = 100 * MSEC;

        if (age < well_for(w))
                return 15 * MSEC;
        more += (nsec_t) lulls * LULL_GRAIN;
        more += w->faults.loss
                        ? 5 * MSEC * w->slower +
                                  age / (w->slows || w->rated ||
                                                         5 * w->heartbeat / 2 < FRAME_LATE
                                                 ? 2
                                                 : 3)
                        : 0;
        more += w->faults.stalls ? 500 * MSEC : 0;
        more += w->faults.transfers ? 12 * MSEC * w->slower + age / 2 : 0;
        more += w->faults.crashes || w->faults.memory
                        ? (nsec_t) (lulls + 1) * TICK_GRAIN(l->ttl_ms * MSEC)
                        : 0;
        return more;
}

/* I2: the lease time of a leader that could serve goes on, but for what check_undead() allows,
 * also where no lease ends that would show it. */
void check_lease_time(struct world *w)
{
        struct replica_node *n = the_leader(w);
        nsec_t passed = w->now - w->watched.since, went_on, most;
        struct lease_time at;
        uint64_t term;

        if (!n) {
                w->watched.term = 0;
                return;
        }
        term = replica_term(n->node.replica);
        at = replica_lease_time(n->node.replica, clock_of(w, &n->clock));
        if (!w->was_lull && !w->faults.members && w->watched.term == term &&
            w->watched.who == n->i) {
                if (passed < LEASE_TIME_WATCHED)
                        return;
                went_on = lease_time_diff(at, w->watched.at);
                most = 100 * MSEC + GRAIN + passed / 5;
                if (w->faults.loss || w->faults.transfers)
                        most += passed / 2;
                else if (w->slows || w->rated)
                        most += passed / 4;
                if (passed - went_on > most)
                        fail(w,
                             "I2: lease time went on by %.3f s in %.3f s at replica %u, which "
                             "could serve",
                             (double) went_on / 1e9, (double) passed / 1e9, n->i + 1);
        }
        w->watched.who = n->i;
        w->watched.term = term;
        w->watched.since = w->now;
        w->watched.at = at;
}

/* I1: what is left of a lease at the leader is the rest of a whole TTL since the last renewal
 * that was acknowledged, also where nobody lets the lease end. Its lease time is never quicker
 * than a clock. And it is in the log early enough for the shortest TTL. */
void check_terms(struct world *w)
{
        struct replica_node *n = the_leader(w);
        struct lease_time at;
        struct state *s;
        nsec_t lost;

        if (!n || *core_half_applied(n->node.core))
                return;
        s = core_state(n->node.core);
        at = replica_lease_time(n->node.replica, clock_of(w, &n->clock));
        /* Where all is well the entry that says so is not under way for long. */
        lost = well_for(w) > 2 * NSEC_PER_SEC
                       ? lease_time_diff(at, s->time) - core_status(n->node.core).way
                       : 0;
        for (size_t k = 0; k < n_leases; k++) {
                const struct lease_seen *l = &leases[k];
                const struct lease *is = l->gone || s->applied < l->renewed
                                                 ? NULL
                                                 : leases_find(&s->leases, l->id);
                nsec_t ttl = l->ttl_ms * MSEC, age = w->now - l->counted, left;

                if (!is)
                        continue;
                left = lease_time_diff(deadlines_get(&s->deadlines, is->slot), at);
                if (left + age < ttl - ttl / 1000 - MSEC)
                        fail(w,
                             "I1: lease %llx has %.3f s left, %.3f s after a renewal that was "
                             "acknowledged; its TTL is %.3f s",
                             (unsigned long long) l->id, (double) left / 1e9,
                             (double) age / 1e9, (double) ttl / 1e9);
                if (lost > TICK_GRAIN(ttl))
                        fail(w,
                             "I2: a crash of all replicas would take back %.3f s of lease "
                             "time, and lease %llx has a TTL of %.3f s",
                             (double) lost / 1e9, (unsigned long long) l->id,
                             (double) ttl / 1e9);
        }
}

/* I2 (A7, A8, A10): gone after TTL + outage, plus what an outage costs besides. */
void check_undead(struct world *w)
{
        if (w->faults.members)
                return;
        for (size_t k = 0; k < n_leases; k++) {
                struct lease_seen *l = &leases[k];
                nsec_t ttl = l->ttl_ms * MSEC, lull = w->lull - l->lull_before;
                uint64_t lulls = w->lulls - l->lulls_before;
                nsec_t ahead = w->loops ? min_of(ttl / LOOP_PART, 50 * MSEC) : 0;

                if (l->gone || w->now - l->renewed_at <= ttl + ahead + ttl / 500 + lull +
                                                                 undead_most(w, l, lulls))
                        continue;
                /* It ended within a snapshot, or before we heard that it was granted; or there
                 * is no replica to ask. */
                if (l->renewed == 0 || !*views(w, l->id) || is_gone_somewhere(w, l))
                        continue;
                fail(w,
                     "I2: lease %llx, last renewed at %.3f s with a TTL of %.3f s, still "
                     "lives; "
                     "for %.3f s of that, in %llu pieces, nobody served;%s",
                     (unsigned long long) l->id, (double) l->renewed_at / 1e9,
                     (double) ttl / 1e9, (double) lull / 1e9, (unsigned long long) lulls,
                     views(w, l->id));
        }
}
