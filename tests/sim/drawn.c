#include "drawn.h"

#include <inttypes.h>
#include <stdio.h>

#include "units.h"

/* A world has it or not. */
struct option {
        const char *what;
        bool has;
};

/* A world has that much of it; 0: none, or as much as the program itself has chosen. */
struct size {
        const char *what;
        uint64_t n;
        enum { EACH, TWOS, TENS } by; /* what is counted apart: each number, or powers */
};

static uint64_t in_ms(nsec_t t)
{
        return (uint64_t) (t / MSEC);
}

static bool same_names(const struct world *w)
{
        return w->n_holders > 1 && holders_vie(&w->h[0], &w->h[1]);
}

static nsec_t longest_ttl(const struct world *w)
{
        nsec_t ttl = 0;

        for (unsigned i = 0; i < w->n_holders; i++)
                ttl = max_of(ttl, w->h[i].cfg.ttl);
        return ttl;
}

static int64_t longest_wanted(const struct world *w)
{
        int64_t ms = 0;

        for (unsigned i = 0; i < w->n_edges; i++)
                ms = max_of(ms, w->edges[i].wants_ms);
        return ms;
}

/* ---- the tables: a line for whatever a world draws ---- */

static size_t options_of(const struct world *w, struct option out[static OPTIONS_MAX])
{
        const struct faults *f = &w->faults;
        const struct option all[] = {
                {"crashes", f->crashes},
                {"partitions", f->partitions},
                {"lost and late frames", f->loss},
                {"slow spells of links", w->slows},
                {"narrow links", w->rated},
                {"... and nothing else wrong", w->rests},
                {"real links", w->linked},
                {"two releases", w->upgrades},
                {"the older release alone", w->old && !w->upgrades},
                {"stalled disks", f->stalls},
                {"full disks", f->full},
                {"broken disks", w->breaks_in > 0},
                {"too little memory", f->memory},
                {"paused processes", f->pauses},
                {"suspended hosts", f->suspends},
                {"clocks that step in a suspend", f->suspends && w->steps},
                {"agents that die", f->deaths},
                {"late answers to agents", f->late},
                {"endpoints of other cores", w->strangers},
                {"forced cores", w->forced},
                {"two hosts of one name or id", same_names(w)},
                {"units bound to places", w->fenced},
                {"changes of members", f->members},
                {"operators", w->operated},
                {"a member in two processes", w->doubles},
                {"members replaced", w->replaces},
                {"... at their request", w->asks_itself},
                {"leaders moved", f->transfers},
                {"a later version", w->later},
                {"damaged snapshots", w->damages},
                {"compaction by clients", f->compactions || w->visited},
                {"compaction by the core", w->compact_age > 0 || w->compact_keep > 0},
                {"a quota that is reached", w->quota > 0},
                {"writes", w->does & USUAL_WRITES},
                {"compare-and-sets", w->does & USUAL_CAS},
                {"reads", w->does & USUAL_READS},
                {"locks and switchovers", w->does & USUAL_LOCKS},
                {"groups of keys", w->does & USUAL_GROUPS},
                {"reads from caches", w->does & USUAL_CACHES},
                {"leaders deposed between reads", w->deposes},
                {"cached keys that end with leases", w->tied && w->does & USUAL_CACHES},
                {"services of hosts", w->does & USUAL_SERVICES},
                {"beats and elections set", w->drawn},
                {"other settings", w->tuned},
                {"renewals in loops", w->loops},
                {"long TTLs", w->long_ttls},
                {"leases by name", w->named},
                {"guarded writes", w->guarded},
                {"visitors", w->visited},
                {"users with passwords", w->restricted},
                {"greedy clients", w->greedy},
                {"large transactions", w->bulk},
                {"many keys", w->hoard > 0},
                {"many nodes", w->hoard > 0 && w->fleet},
                {"long rests (nights)", w->lasting},
                {"patient clients", w->dozes},
        };

        _Static_assert(ARRAY_SIZE(all) <= OPTIONS_MAX, "OPTIONS_MAX is too small");
        memcpy(out, all, sizeof(all));
        return ARRAY_SIZE(all);
}

static size_t sizes_of(const struct world *w, struct size out[static SIZES_MAX])
{
        const struct size all[] = {
                {"replicas", w->n_replicas, EACH},
                {"hosts", w->n_holders, EACH},
                {"clients that renew late", w->n_edges, EACH},
                {"virtual time, s", (uint64_t) (w->now / NSEC_PER_SEC), TWOS},
                {"TTL of hosts at most, s", (uint64_t) (longest_ttl(w) / NSEC_PER_SEC), TWOS},
                {"TTL of clients at most, s", (uint64_t) longest_wanted(w) / 1000, TWOS},
                {"election timeout, ms", in_ms(w->election), TWOS},
                {"heartbeat interval, ms", in_ms(w->heartbeat), TWOS},
                {"timeout of a write, ms", in_ms(w->timeout), TENS},
                {"term of a cache, ms", w->does & USUAL_CACHES ? in_ms(w->cache_term) : 0,
                 TENS},
                {"shortest TTL granted, ms", in_ms(w->min_ttl), TENS},
                {"life of a token, s", w->restricted ? in_ms(w->token_ttl) / 1000 : 0, TENS},
                {"progress of watches, ms", in_ms(w->watch_progress), TENS},
                {"ms from write to write", in_ms(w->write_every), TWOS},
                {"entries from snapshot to snapshot", w->snapshot_entries, TENS},
                {"bytes from snapshot to snapshot", w->snapshot_bytes, TENS},
                {"writing a snapshot, ms", in_ms(w->snapshot_time), TENS},
                {"bytes of a file of the log", w->segment_size, TENS},
                {"bytes of the log in memory", w->log_bytes, TENS},
                {"bytes of waiting commands", w->queued_bytes, TENS},
                {"steps of an entry in a turn", w->apply_slice, TENS},
                {"bytes a second of a narrow link", w->rate, TENS},
                {"keys of large transactions", w->bulk_keys, TENS},
                {"bytes of their largest value", w->bulk_largest, TENS},
                {"keys where there are many", w->hoard, TENS},
                {"operations in a transaction", w->txn_ops, TENS},
        };

        _Static_assert(ARRAY_SIZE(all) <= SIZES_MAX, "SIZES_MAX is too small");
        memcpy(out, all, sizeof(all));
        return ARRAY_SIZE(all);
}

/* ---- ---- */

/* The least number that is counted at that step; step 0 is for none. */
static uint64_t least_of(const struct size *s, unsigned step)
{
        uint64_t n = 1;

        if (s->by == EACH || step == 0)
                return step;
        while (--step > 0)
                n *= s->by == TWOS ? 2 : 10;
        return n;
}

static unsigned step_of(const struct size *s)
{
        unsigned step = 0;

        while (step + 1 < STEPS_MAX && least_of(s, step + 1) <= s->n)
                step++;
        return step;
}

void drawn_see(struct drawn *d, const struct world *w)
{
        struct option options[OPTIONS_MAX];
        struct size sizes[SIZES_MAX];

        d->worlds++;
        for (size_t i = options_of(w, options); i-- > 0;)
                d->has[i] += options[i].has;
        for (size_t i = sizes_of(w, sizes); i-- > 0;)
                d->of[i][step_of(&sizes[i])]++;
        d->aims[aim_number(w)]++;
}

/* Shares of what is seldom have another digit. */
static void tell_share(const struct drawn *d, uint64_t n, int width)
{
        double share = 100.0 * (double) n / (double) d->worlds;

        printf("%*.*f %%", width, n > 0 && share < 1 ? 2 : n > 0 && share < 10 ? 1 : 0, share);
}

/* In three columns. */
static void tell_column(const struct drawn *d, size_t i, uint64_t n, const char *what)
{
        tell_share(d, n, 6);
        printf(i % 3 == 2 ? " %s\n" : " %-24s", what);
}

static void tell_size(const struct drawn *d, const struct size *s, const uint64_t *of)
{
        printf("  %-34s", s->what);
        for (unsigned step = 0, n = 0; step < STEPS_MAX; step++) {
                if (of[step] == 0)
                        continue;
                printf(n++ > 0 ? ", " : " ");
                if (step == 0)
                        printf("none");
                else
                        printf("%" PRIu64 "%s", least_of(s, step), s->by == EACH ? "" : "+");
                printf(": ");
                tell_share(d, of[step], 0);
        }
        puts("");
}

void drawn_tell(const struct drawn *d)
{
        static const struct world none;
        struct option options[OPTIONS_MAX];
        struct size sizes[SIZES_MAX];
        size_t n = options_of(&none, options), n_sizes = sizes_of(&none, sizes);

        if (d->worlds == 0)
                return;
        printf("what %" PRIu64 " worlds had\n", d->worlds);
        for (size_t i = 0; i < n; i++)
                tell_column(d, i, d->has[i], options[i].what);
        puts(n % 3 > 0 ? "\naims" : "aims");
        n = 0;
        for (size_t i = 0; aim_called(i); i++)
                if (d->aims[i] > 0)
                        tell_column(d, n++, d->aims[i], aim_called(i));
        puts(n % 3 > 0 ? "\nhow much of it (10+: from 10 on, up to the next number)"
                       : "how much of it (10+: from 10 on, up to the next number)");
        for (size_t i = 0; i < n_sizes; i++)
                tell_size(d, &sizes[i], d->of[i]);
}
