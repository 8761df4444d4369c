/*
 * Long worlds: about an hour, in which there is trouble for some seconds, now and then, as in
 * an operator's year. In between all is well and clients rest for minutes, while replicas beat
 * and agents renew: what happens once a minute, or once in ten, happens. Before the next
 * trouble everything has to have settled.
 *
 * For as long as there is trouble, and for a while after it, w->run_time and calm_for() mean
 * what they mean in the only trouble of a short world.
 */
#include "world.h"

#define REST_LEAST (250 * NSEC_PER_SEC) /* no place lasts that long without renewals */
#define REST_MOST (1200 * NSEC_PER_SEC)
#define COMPACTED_AFTER (300 * NSEC_PER_SEC)
#define LOOKED_AT (60 * NSEC_PER_SEC) /* the number of revisions */

/* The newest revision when the trouble began, and when it was over, and when that was. */
static int64_t begun, ended;
static nsec_t ended_at;

static int64_t newest(struct world *w)
{
        int64_t revision = 0;

        for (unsigned i = 0; i < w->n_replicas; i++)
                if (w->r[i].up)
                        revision = max_of(revision, core_state(w->r[i].node.core)->revision);
        return revision;
}

static bool clients_compact(const struct world *w)
{
        return w->faults.compactions || w->visited;
}

/* 0: unknown. If clients compact, too, it says nothing. */
static int64_t compacted(struct world *w)
{
        const struct replica_node *n = the_leader(w);

        return n && !clients_compact(w) ? core_state(n->node.core)->kv.compacted : 0;
}

static void last(struct world *w, nsec_t lasts)
{
        w->run_time = w->now + lasts;
        w->end_time = w->nights > 0 ? NEVER : w->run_time + CALM_MAX;
}

/* Some things take several seconds of it. */
static nsec_t trouble(struct world *w)
{
        return some_time(w, NSEC_PER_SEC, (w->later || w->slows ? 16 : 8) * NSEC_PER_SEC);
}

/* A single replica, of which operators make two for a while. */
static void alone(struct world *w)
{
        w->n_replicas = 1;
        w->linked = w->operated = true;
        w->faults.members = w->slows = false;
}

void nights_prepare(struct world *w)
{
        w->lasting = true;
        w->fenced = w->fenced || chance_in(&w->damage, 20);
        w->nights = (unsigned) rnd_between(&w->rnd, 4, 6) + (w->fenced ? 2 : 0);
        if (chance_in(&w->damage, 50))
                w->compact_age = COMPACTED_AFTER;
        else
                w->compact_keep = COMPACT_KEEP;
        /* What is compacted after minutes is many steps, and leases that are due wait. */
        w->apply_slice = w->apply_slice > 0 ? max_of(w->apply_slice, (size_t) 60) : 0;
        w->dozes = chance_in(&w->damage, 50);
        w->linked = w->linked || chance_in(&w->damage, 40);
        w->slows = w->slows || chance_in(&w->damage, 60);
        w->later = w->later || chance_in(&w->damage, 20);
        if (chance_in(&w->damage, 20))
                alone(w);
        /* A snapshot with the large record has to arrive before the log has dropped what comes
         * after it. */
        if (w->dozes && w->log_bytes > 0)
                w->log_bytes += 200 << 10;
        w->quota = 0;
        w->ttl_max_ms = w->long_ttls ? 240000 : 60000;
        w->fault_every = some_time(w, 500 * MSEC, 4000 * MSEC);
        last(w, trouble(w));
        begun = 0;
        budget_begin();
}

/* What is young, or among the last revisions, is kept. */
static void check_kept(struct world *w)
{
        int64_t most = w->compact_age > 0 ? begun : newest(w) - COMPACT_KEEP;

        if (compacted(w) > max_of(most, INT64_C(0)))
                fail(w, "revision %lld is compacted, and is to be kept",
                     (long long) compacted(w) - 1);
}

/* What is old, or was before the last revisions when clients began to rest, is not, once there
 * has been time for that. */
static void check_dropped(struct world *w)
{
        nsec_t by = 2 * (w->compact_age > 0 ? COMPACTED_AFTER : LOOKED_AT);
        int64_t least = w->compact_age > 0 ? ended : ended - COMPACT_KEEP;

        if (w->now - ended_at > by && the_leader(w) && !clients_compact(w) &&
            compacted(w) < least)
                fail(w, "revision %lld is not compacted, and is old", (long long) compacted(w));
}

void nights_healed(struct world *w)
{
        if (w->lasting)
                check_kept(w);
        ended = newest(w);
        ended_at = w->now;
        post(w, CALM_MIN, w->nights > 0 ? EV_REST : EV_SETTLED);
        if (w->nights > 0)
                post(w, some_time(w, REST_LEAST, REST_MOST), EV_NIGHT);
}

void on_night(struct world *w)
{
        if (!check_settled(w))
                return fail(w, "nothing has settled, though all was well for %.1f s",
                            (double) calm_for(w) / 1e9);
        if (w->compact_age == 0)
                check_kept(w);
        check_dropped(w);
        budget_check(w);
        begun = newest(w);
        w->nights--;
        w->calm = false;
        last(w, trouble(w));
        memory_go_on(w->faults.memory ? rnd_between(&w->rnd, 500, 20000) : 0);
        load_begin(w);
        clients_go_on();
        spells_again(w);
        post(w, some_time(w, MSEC, 1000 * MSEC), EV_FAULT);
        post(w, w->run_time - w->now, EV_HEAL);
}
