/* What must never happen: the invariants of the lease contract, as somebody who sees all and
 * trusts nobody would state them. */
#include <stdarg.h>
#include <stdio.h>

#include "world.h"

#define LEASES_MAX 4096
#define INDEX_MAX 200000
#define KEYS_MAX 64

struct lease_seen {
        int64_t id, ttl_ms;
        nsec_t counted; /* send time of the last acknowledged renewal, true time */
        bool gone, revoked;
        nsec_t gone_at;
        nsec_t outage_before; /* all the outage until it was last counted */
        struct holder *holder;
};

static struct lease_seen leases[LEASES_MAX];
static size_t n_leases;
static struct {
        uint64_t hash;
        bool known;
} story[INDEX_MAX];
static int64_t values[KEYS_MAX], value_revision[KEYS_MAX], written_revision;

static void vfail(struct world *w, bool known, const char *fmt, va_list ap)
{
        int n;

        if (*w->failure)
                return;
        w->known = known;
        n = snprintf(w->failure, sizeof(w->failure), "at %.3f s: ", (double) w->now / 1e9);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        vsnprintf(w->failure + n, sizeof(w->failure) - (size_t) n, fmt, ap);
#pragma GCC diagnostic pop
}

void fail(struct world *w, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        vfail(w, false, fmt, ap);
        va_end(ap);
}

void fail_known(struct world *w, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        vfail(w, true, fmt, ap);
        va_end(ap);
}

void check_reset(void)
{
        n_leases = 0;
        memset(story, 0, sizeof(story));
        memset(values, 0, sizeof(values));
        memset(value_revision, 0, sizeof(value_revision));
        written_revision = 0;
}

static struct lease_seen *find(int64_t id)
{
        for (size_t i = n_leases; i > 0; i--)
                if (leases[i - 1].id == id)
                        return &leases[i - 1];
        return NULL;
}

/* I4: one story. */
void check_applied(struct world *w, struct replica_node *n, uint64_t index)
{
        uint64_t hash;

        if (index >= INDEX_MAX || index % 8 != 0)
                return;
        hash = state_hash(core_state(n->core));
        if (!story[index].known) {
                story[index].known = true;
                story[index].hash = hash;
        } else if (story[index].hash != hash) {
                fail(w,
                     "I4: replica %u has another state after entry %llu than another one had",
                     n->i, (unsigned long long) index);
        }
}

void check_granted(struct world *w, int64_t lease, int64_t ttl_ms, nsec_t sent,
                   struct holder *h)
{
        if (find(lease))
                return fail(w, "lease %llx was granted twice", (unsigned long long) lease);
        if (n_leases == LEASES_MAX)
                return;
        leases[n_leases++] = (struct lease_seen){.id = lease,
                                                 .ttl_ms = ttl_ms,
                                                 .counted = sent,
                                                 .holder = h,
                                                 .outage_before = w->outage};
}

void check_renewed(struct world *w, int64_t lease, nsec_t sent, int64_t ttl_ms)
{
        struct lease_seen *l = find(lease);

        if (!l || ttl_ms <= 0)
                return;
        /* I7: asked after its end, and still answered. */
        if (l->gone && sent > l->gone_at)
                fail(w,
                     "I7: lease %llx ended at %.3f s, was asked to be renewed at %.3f s, and "
                     "was",
                     (unsigned long long) lease, (double) l->gone_at / 1e9,
                     (double) sent / 1e9);
        if (sent > l->counted) {
                l->counted = sent;
                l->outage_before = w->outage;
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
        nsec_t ttl, age, out;

        if (!l || l->gone)
                return;
        l->gone = true;
        l->gone_at = w->now;
        if (!expired || l->revoked)
                return;
        /* I1: not before its TTL, as a clock may count it that runs fast by what is allowed,
         * since what was acknowledged. */
        ttl = l->ttl_ms * MSEC;
        age = w->now - l->counted;
        if (age < ttl - ttl / 1000 - MSEC)
                fail(w,
                     "I1: lease %llx expired %.3f s after a renewal that was acknowledged; its "
                     "TTL is %.3f s",
                     (unsigned long long) lease, (double) age / 1e9, (double) ttl / 1e9);
        /* Nor does time count in which nobody could have renewed it; less a moment, for what is
         * counted coarsely here. */
        out = w->outage - l->outage_before;
        if (age < ttl - ttl / 1000 + out - 400 * MSEC)
                fail_known(w,
                           "I1: lease %llx expired %.3f s after its last renewal with a TTL of "
                           "%.3f "
                           "s; for %.3f s of that the core was out",
                           (unsigned long long) lease, (double) age / 1e9, (double) ttl / 1e9,
                           (double) out / 1e9);
        /* I3: the holder knew before. */
        if (l->holder && l->holder->session.lease == lease &&
            session_holds(&l->holder->session, clock_of(w, l->holder->ppm)))
                fail(w, "I3: lease %llx expired while holder %u still counted on it",
                     (unsigned long long) lease, l->holder->i);
}

/* I5: what was acknowledged. */
void check_written(struct world *w, int64_t key, int64_t value, int64_t revision)
{
        (void) w;
        if (revision > value_revision[key]) {
                value_revision[key] = revision;
                values[key] = value;
        }
        written_revision = max_of(written_revision, revision);
}

int64_t check_read_begins(void)
{
        return written_revision;
}

/* I8: a read that begins after an acknowledged write sees it. */
void check_read(struct world *w, int64_t began_with, int64_t revision)
{
        if (revision < began_with)
                fail(w,
                     "I8: a linearizable read saw revision %lld; %lld was acknowledged before "
                     "it began",
                     (long long) revision, (long long) began_with);
}

void check_end(struct world *w)
{
        uint64_t applied = 0;

        for (unsigned i = 0; i < w->n_replicas; i++) {
                struct state *s = core_state(w->r[i].core);

                for (int64_t key = 0; key < KEYS_MAX; key++) {
                        char name[16];
                        struct kv_key *k;
                        int64_t is = 0;

                        if (value_revision[key] == 0)
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
                                fail(w, "I5: replica %u has another value for %s", i, name);
                }
                if (i > 0 && (s->applied > applied + 20 || applied > s->applied + 20))
                        fail(w,
                             "liveness: replica %u applied %llu entries, another one %llu, "
                             "after a long calm",
                             i, (unsigned long long) s->applied, (unsigned long long) applied);
                applied = s->applied;
        }
        for (unsigned i = 0; i < w->n_holders; i++)
                if (w->h[i].alive && !session_holds(&w->h[i].session, clock_of(w, w->h[i].ppm)))
                        fail(w, "liveness: holder %u is %s after a long calm", i,
                             session_state_name(w->h[i].session.state));
}

void check_undead(struct world *w, nsec_t healed_at)
{
        for (unsigned i = 0; i < w->n_replicas; i++) {
                struct state *s = core_state(w->r[i].core);
                struct boot_time now = clock_of(w, w->r[i].ppm);

                for (size_t k = 0; k < n_leases; k++) {
                        struct lease_seen *l = &leases[k];
                        struct lease *still = leases_find(&s->leases, l->id);

                        if (l->counted < healed_at - NSEC_PER_SEC && still)
                                fail_known(
                                        w,
                                        "I2: lease %llx, last renewed at %.3f s with a TTL of "
                                        "%.3f s, still lives at "
                                        "replica %u (%s, healthy %d), and has %.3f s there",
                                        (unsigned long long) l->id, (double) l->counted / 1e9,
                                        (double) l->ttl_ms / 1e3, i,
                                        core_status(w->r[i].core).leader ? "leader"
                                                                         : "follower",
                                        replica_healthy(w->r[i].replica, now),
                                        (double) boot_diff(
                                                deadlines_get(&s->deadlines, still->slot),
                                                now) /
                                                1e9);
                }
        }
}
