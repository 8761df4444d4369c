/*
 * Links between replicas that carry a limited number of bytes a second in each direction: a
 * frame arrives when it has been carried, behind all that was sent before it. Bursts of writes,
 * for seconds larger than what links carry, fill them.
 *
 * In half of these worlds that have no aim, or this one, nothing else is wrong: there the first
 * leader that all replicas follow leads until the end.
 *
 * What checks allow besides is computed from what was sent and what a link carries: how long
 * the last byte on a link took (w->slowest), and until when (w->slow_until).
 */
#include "base/log.h"
#include "consensus/internal.h"
#include "world.h"

#define LEAST ((uint64_t) 500000) /* bytes a second with the usual election timeout */
#define DOUBLINGS 4               /* at most */
/* Of an election timeout, which part the largest request takes on a link: no heartbeat
 * overtakes it. */
#define REQUEST_PART 4
#define BURST_MOST 300                   /* writes at once */
#define VALUE_MOST ((uint64_t) 64 << 10) /* bytes */
/* A lagging replica has to get all of that in a snapshot while all is well. */
#define WRITTEN_FOR 4 /* seconds of one link */

static struct rnd rnd;
static uint64_t written; /* by all bursts */
/* The term of the leader that stays, where nothing else is wrong; 0: not yet. */
static uint64_t stays;
static nsec_t behind[REPLICAS_MAX]; /* when each last did not keep up */
static unsigned away;
static bool lags; /* some replica was told to, and one may again */

static uint64_t written_most(const struct world *w)
{
        return WRITTEN_FOR * w->rate;
}

/* With members that come and go, and with faults of every other kind, nobody could say whether
 * a leader had to stay. */
static void let_rest(struct world *w)
{
        w->faults = (struct faults){.compactions = w->faults.compactions,
                                    .deaths = w->faults.deaths};
        w->breaks_in = 0;
        w->damages = w->later = w->old = w->upgrades = w->swaps = w->replaces = false;
        w->operated = w->visited = w->fenced = w->strangers = w->drawn = w->slows = false;
        w->finish_after = 0;
        w->damage_at = NEVER;
}

void rates_draw(struct world *w)
{
        rnd_init(&rnd, ~w->seed * 11);
        w->rated = (w->rated || w->seed % 13 == 5) && w->n_replicas > 1 && !w->lasting &&
                   !w->doubles && !w->forced && !w->deposes && w->hoard == 0 && w->quota == 0 &&
                   !w->slow_until && !aim_is_scenario(w);
        if (!w->rated)
                return;
        w->rests = aim_is_plain(w) && !w->starts_late && chance_in(&rnd, 50);
        if (w->rests)
                let_rest(w);
        w->slows = false;
        w->rate = (LEAST << rnd_between(&rnd, 0, DOUBLINGS)) * (uint64_t) ELECTION /
                  (uint64_t) min_of(w->election, ELECTION);
        w->as_shipped = chance_in(&rnd, 50);
        w->bulk = !w->restricted && chance_in(&rnd, 50);
        w->request_most = w->rate * (uint64_t) w->election / NSEC_PER_SEC / REQUEST_PART;
        w->queued_bytes = 0;
        if (w->log_bytes > 0)
                w->log_bytes += 4 * w->rate;
        w->narrow = NSEC_PER_SEC; /* the window of a link says when it is full */
}

/* All links, those from or to one replica, or all others are wider. */
void rates_begin(struct world *w)
{
        unsigned all = w->n_replicas, from = all, to = all;

        written = stays = 0;
        lags = false;
        memset(behind, 0, sizeof(behind));
        if (!w->rated)
                return;
        switch (rnd_between(&rnd, 0, 4)) {
        case 0:
                from = (unsigned) rnd_between(&rnd, 0, all - 1);
                break;
        case 1:
                to = (unsigned) rnd_between(&rnd, 0, all - 1);
                break;
        }
        for (unsigned i = 0; i < all; i++)
                for (unsigned j = 0; j < all; j++)
                        w->links[i][j].rate =
                                (from == all || from == i) && (to == all || to == j)
                                        ? w->rate
                                        : w->rate << DOUBLINGS;
        log_debug("A link from %u to %u (%u: all) carries %llu bytes/s%s", from + 1, to + 1,
                  all + 1, (unsigned long long) w->rate,
                  w->rests ? "; nothing else is wrong" : "");
        post(w, time_in(&rnd, 1000 * MSEC, 3000 * MSEC), EV_BURST);
}

/* ---- a link ---- */

nsec_t rates_carry(struct world *w, unsigned from, unsigned to, size_t n)
{
        struct sim_link *l = &w->links[from][to];
        nsec_t waits;

        if (l->rate == 0)
                return w->now;
        l->carried =
                max_of(l->carried, w->now) + (nsec_t) (n * (uint64_t) NSEC_PER_SEC / l->rate);
        waits = l->carried - w->now;
        if (waits > FRAME_MOST) {
                w->slowest = max_of(w->slowest, waits);
                w->slow_until = max_of(w->slow_until, l->carried);
        }
        return l->carried;
}

bool rates_are_busy(const struct world *w, unsigned from, unsigned to)
{
        return w->links[from][to].carried > w->now + FRAME_MOST;
}

static size_t under_way(const struct world *w, const struct sim_link *l)
{
        nsec_t left = l->carried - w->now;

        return left > 0 ? (size_t) ((uint64_t) left * l->rate / NSEC_PER_SEC) : 0;
}

/* As consensus/peers_out.c has it for a real link. */
static struct link_window *window_of(struct world *w, unsigned from, unsigned to)
{
        struct sim_link *l = &w->links[from][to];

        if (l->window.most == 0 || l->window_life != w->r[from].life)
                link_window_open(&l->window, (size_t) 4 << 20, w->election / 8);
        l->window_life = w->r[from].life;
        return &l->window;
}

void rates_put(struct world *w, unsigned from, unsigned to, size_t n)
{
        link_window_put(window_of(w, from, to), n, clock_of(w, &w->r[from].clock));
}

size_t rates_room(struct world *w, unsigned from, unsigned to)
{
        struct link_window *k = window_of(w, from, to);

        if (link_window_asks(k))
                link_window_told(k, under_way(w, &w->links[from][to]),
                                 clock_of(w, &w->r[from].clock));
        return link_window_room(k);
}

void rates_break(struct world *w, unsigned from, unsigned to)
{
        struct sim_link *l = &w->links[from][to];

        l->carried = min_of(l->carried, w->now);
        l->window.most = 0;
}

/* ---- bursts ---- */

static bool all_follow(const struct world *w)
{
        for (unsigned i = 0; i < w->n_replicas; i++)
                if (!w->r[i].keeps_up)
                        return false;
        return w->leads < w->n_replicas;
}

/* A follower is away for a burst or two, so that it needs all of that, or a snapshot. */
static void let_lag(struct world *w)
{
        unsigned who = (w->leads + 1 + (unsigned) rnd_between(&rnd, 0, 1)) % w->n_replicas;

        if (lags) {
                memset(w->cut, 0, sizeof(w->cut));
                for (unsigned i = 0; i < w->n_replicas; i++)
                        if (!w->r[i].up)
                                boot(w, &w->r[i]);
                lags = false;
        } else if (stays > 0 && w->n_replicas > 2 && all_follow(w) && chance_in(&rnd, 40)) {
                log_debug("%.3f s: replica %u is away", (double) w->now / 1e9, who + 1);
                lags = true;
                away = who;
                behind[who] = w->now;
                if (chance_in(&rnd, 50))
                        return kill_replica(w, &w->r[who], END_KILL);
                for (unsigned i = 0; i < w->n_replicas; i++)
                        w->cut[i][who] = w->cut[who][i] = i != who;
        }
}

void on_burst(struct world *w)
{
        struct replica_node *leader = the_leader(w);
        unsigned to = leader && chance_in(&rnd, 60)
                              ? leader->i
                              : (unsigned) rnd_between(&rnd, 0, w->n_replicas - 1);
        uint64_t len = (uint64_t) 1000 << rnd_between(&rnd, 0, 6),
                 all = w->rate / 10 * rnd_between(&rnd, 3, 25);

        if (w->calm || written >= written_most(w))
                return;
        len = max_of(len, all / BURST_MOST);
        len = min_of(len, w->request_most);
        len = min_of(len, VALUE_MOST);
        all = min_of(all, written_most(w) - written);
        all = min_of(all, BURST_MOST * len);
        written += max_of(all, len);
        w->counts.bursts++;
        if (w->rests)
                let_lag(w);
        log_debug("%.3f s: %llu writes of %llu bytes at once at replica %u",
                  (double) w->now / 1e9, (unsigned long long) (all / len),
                  (unsigned long long) len, to + 1);
        ask_large_writes(w, to, (unsigned) (all / len), (size_t) len);
        post(w, time_in(&rnd, 500 * MSEC, 4000 * MSEC), EV_BURST);
}

/* ---- checks ---- */

/* Heartbeats and their answers are sent while entries are on their way, and arrive in time. */
void rates_see(struct world *w, const struct replica_node *n, unsigned to, struct view frame)
{
        nsec_t waits = w->links[n->i][to].carried - w->now;

        if (w->rests && frame.p[0] == FRAME_BEACON && waits > w->election * 3 / 4)
                fail(w, "rates: a heartbeat of replica %u to replica %u waits for %.3f s",
                     n->i + 1, to + 1, (double) waits / 1e9);
}

/* A renewal waits for what is on its way to a majority, and for the lease time after that, but
 * not for all that clients have to write. A replica that lags has its own clients wait. */
void rates_renewed(struct world *w, const struct replica_node *n, nsec_t came, bool ok)
{
        nsec_t took = w->now - came, most = w->election * 3 / 2 + 3 * w->slowest;

        if (!w->rests || stays == 0 || came <= behind[n->i] || !n->up || (ok && took <= most))
                return;
        fail(w,
             "rates: a renewal at replica %u %s after %.3f s, though no frame took more than "
             "%.3f s",
             n->i + 1, ok ? "is done only" : "fails", (double) took / 1e9,
             (double) w->slowest / 1e9);
}

void rates_check(struct world *w)
{
        if (!w->rated)
                return;
        for (unsigned i = 0; i < w->n_replicas; i++)
                for (unsigned j = 0; j < w->n_replicas && w->calm; j++)
                        if (i != j && rates_are_busy(w, i, j))
                                w->incomplete = w->now;
        if (!w->rests)
                return;
        for (unsigned i = 0; i < w->n_replicas; i++)
                if (!w->r[i].keeps_up || (lags && i == away))
                        behind[i] = w->now;
        if (stays == 0 && all_follow(w))
                stays = w->top_term;
        for (unsigned i = 0; i < w->n_replicas && stays > 0; i++) {
                struct replica_status st = {0};

                if (w->r[i].up)
                        st = core_status(w->r[i].node.core);
                if (st.term > stays)
                        fail(w,
                             "rates: replica %u began term %llu, though the leader of term "
                             "%llu had only more to send than links carry",
                             i + 1, (unsigned long long) st.term, (unsigned long long) stays);
        }
}
