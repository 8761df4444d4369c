/* Runs a world from one event to the next, and keeps account of when it could have worked. */
#include "world.h"
#include "acked.h"
#include "given.h"
#include "hoard.h"
#include "units.h"

#define COMPACT_AGE (2 * NSEC_PER_SEC) /* in half of the worlds with a quota */
#define GRACE (40 * MSEC) /* of the 50 that clients have for a retry after an election */
#define GRAIN (180 * MSEC * W->slower / 100)
#define KEEPS_UP 20 /* entries that are on their way to one that keeps up */
#define SETTLED_AGAIN (250 * MSEC)
/* What most worlds have set. */
#define TOKEN_TTL (2 * NSEC_PER_SEC)
#define CACHE_TERM (1500 * MSEC)
#define PROGRESS (600 * NSEC_PER_SEC)
#define DAY (86400 * NSEC_PER_SEC)
/* How long writing a snapshot may take, in worlds with frequent and with rare snapshots. */
#define WRITTEN_OFTEN (300 * MSEC)
#define WRITTEN_SELDOM (3 * NSEC_PER_SEC)

struct world *W;

bool chance_in(struct rnd *r, unsigned percent)
{
        return rnd_between(r, 1, 100) <= percent;
}

nsec_t time_in(struct rnd *r, nsec_t lo, nsec_t hi)
{
        return (nsec_t) rnd_between(r, (uint64_t) (lo / NSEC_PER_USEC),
                                    (uint64_t) (hi / NSEC_PER_USEC)) *
               NSEC_PER_USEC;
}

bool chance(struct world *w, unsigned percent)
{
        return chance_in(&w->rnd, percent);
}

nsec_t some_time(struct world *w, nsec_t lo, nsec_t hi)
{
        return time_in(&w->rnd, lo, hi);
}

/* ---- when the core could have worked ---- */

struct standing {
        bool runs, ready, waits;
        bool hands_over; /* leads, and accepts nothing until another replica does */
        uint64_t term, last, commit;
};

/* Whether @i and @j run and can talk to each other; @i runs. */
static bool can_talk(const struct world *w, const struct standing *s, unsigned i, unsigned j)
{
        return i == j || (s[j].runs && !w->cut[i][j] && !w->cut[j][i] &&
                          !linked_apart(w, i, j) && !doubled_apart(w, i, j));
}

/* Whether replica @i could have worked with a majority just now, seen from outside. With @does,
 * their disks are also not stalled, they are in the same term, and none is so far behind that
 * it would confirm nothing before it has what is committed. */
static bool could_lead(const struct world *w, const struct standing *s, unsigned i, bool does)
{
        unsigned n = 0;

        if (!s[i].runs)
                return false;
        for (unsigned j = 0; j < w->n_replicas; j++) {
                if (!can_talk(w, s, i, j))
                        continue;
                n += !does || (!s[j].waits && w->r[j].stalled_until <= w->now &&
                               s[j].term == s[i].term && s[j].last >= s[i].commit);
        }
        return n > w->n_replicas / 2;
}

/* Whether a majority could answer replica @i at once. */
static bool hears_quickly(const struct world *w, const struct standing *s, unsigned i)
{
        unsigned n = 0;

        for (unsigned j = 0; j < w->n_replicas; j++)
                n += can_talk(w, s, i, j) && w->links[i][j].delay + w->links[j][i].delay == 0 &&
                     !rates_are_busy(w, i, j) && !rates_are_busy(w, j, i);
        return n > w->n_replicas / 2;
}

/* The longest round trip that a leader can learn here: for seconds, none of its beacons was
 * answered in time, and only a slow network does that. One that has learned it does not notice
 * an outage that is shorter than twice that, and the grain (lease_clock.h). */
static nsec_t longest_way(const struct world *w)
{
        nsec_t late = w->faults.loss ? FRAME_LATE : 0;

        return w->slow_until > 0 ? 2 * (FRAME_MOST + w->slowest + late) : 0;
}

/* Who leads in the last term that had a leader, or n_replicas. */
static unsigned leader_in(const struct world *w, const struct standing *s)
{
        unsigned i = 0;

        while (i < w->n_replicas && !(s[i].ready && s[i].term >= w->top_term))
                i++;
        return i;
}

/* Accounts for the time in which no renewal can be accepted, so that lease time must stand
 * still. A new leader goes on from what its followers were told last, which loses nothing, and
 * gives clients the time to retry. All else a leader has to notice, which takes the grain of
 * what it notices; and twice that if nothing is committed: a commit is overdue, and then no
 * beacon is confirmed. */
static void account_still(struct world *w, const struct standing *s, bool out)
{
        nsec_t grain = GRAIN + 2 * longest_way(w), most[] = {0, CLOCK_STEP, grain, 2 * grain};
        unsigned i = leader_in(w, s), why = STILL_NOT;

        if (i == w->n_replicas)
                why = STILL_LEADERLESS;
        else if (out || !s[i].runs)
                why = STILL_OUT;
        else if (s[i].last > s[i].commit)
                why = STILL_STUCK;
        if (why == STILL_LEADERLESS)
                w->still.grace = w->begun ? GRACE : 0;
        if (why != w->still.why ||
            (why == STILL_STUCK && (i != w->still.leader || s[i].term != w->still.term ||
                                    s[i].commit != w->still.commit)))
                w->still.lasts = 0;
        w->still.why = why;
        if (why == STILL_STUCK) {
                w->still.leader = i;
                w->still.term = s[i].term;
                w->still.commit = s[i].commit;
        }
        w->still.lasts += CLOCK_STEP;
        if (why != STILL_LEADERLESS && w->still.grace > 0) {
                w->still.grace -= CLOCK_STEP;
                w->still.total += CLOCK_STEP;
        } else if (why != STILL_NOT && w->still.lasts > most[why]) {
                w->still.total += CLOCK_STEP;
        }
}

/* An outage is time in which nobody could have led, whatever the code does; a lull, time in
 * which nobody did, or in which a leader may still have to learn that links are slow. */
static void account(struct world *w)
{
        struct standing s[REPLICAS_MAX] = {0};
        bool out = true, lull = true;

        for (unsigned i = 0; i < w->n_replicas; i++) {
                struct replica_status st = {0};

                s[i].runs = w->r[i].up && !w->r[i].paused && !upgrades_outdated(&w->r[i]);
                if (w->r[i].up) {
                        st = core_status(w->r[i].node.core);
                        w->begun = w->begun || core_state(w->r[i].node.core)->applied > 0;
                }
                s[i].ready = st.ready;
                s[i].hands_over = st.ready && st.leader_id == 0;
                s[i].waits = st.waits_for_room || w->r[i].seen.installing;
                s[i].term = st.term;
                s[i].last = st.last;
                s[i].commit = st.commit;
        }
        for (unsigned i = 0; i < w->n_replicas; i++) {
                out = out && !could_lead(w, s, i, false);
                lull = lull && !(s[i].ready && could_lead(w, s, i, true));
                if (s[i].ready && s[i].term >= w->top_term)
                        spells_see(w, s[i].term,
                                   could_lead(w, s, i, false) && !hears_quickly(w, s, i));
        }
        w->leads = leader_in(w, s);
        for (unsigned i = 0, by = w->leads; i < w->n_replicas; i++)
                w->r[i].keeps_up = by < w->n_replicas && !s[by].hands_over && s[i].runs &&
                                   !s[i].waits && s[i].term == s[by].term &&
                                   s[i].last + KEEPS_UP >= s[by].commit;
        if (lull && w->now < w->learning_until)
                w->learning_until += CLOCK_STEP; /* nothing is learned meanwhile */
        /* A replica that is alone leads again too soon for this look at it, but without the
         * lease time since its last entry. */
        lull = lull || w->now < w->learning_until ||
               (w->n_replicas == 1 && w->r[0].life != w->life_alone);
        w->life_alone = w->r[0].life;
        w->outage += out ? CLOCK_STEP : 0;
        w->was_out = out;
        account_still(w, s, out);
        w->lull += lull ? CLOCK_STEP : 0;
        w->lulls += lull && !w->was_lull;
        if (lull)
                w->lull_ended = w->now;
        w->was_lull = lull;
}

/* Whether all replicas run and vote, as the leader knows it, and nobody else is a member. */
static bool all_vote(struct world *w)
{
        struct replica_node *n = the_leader(w);
        int role[REPLICAS_MAX];

        return n && roles_of(n, role) == w->n_replicas && stray_of(n) == 0 && !replaced_lost(w);
}

nsec_t calm_for(const struct world *w)
{
        nsec_t since = max_of(w->lull_ended, w->incomplete);

        return !w->calm || w->was_lull ? 0 : w->now - max_of(since, w->run_time);
}

/* ---- the run ---- */

/* Returns true if the event was kept. */
static bool handle(struct world *w, struct event *e)
{
        struct replica_node *n = &w->r[e->to];

        switch (e->kind) {
        case EV_FRAME:
                return on_frame(w, e);
        case EV_DISK:
                return on_disk(w, e);
        case EV_DOWN:
        case EV_UP:
                return on_link(w, e);
        case EV_HELLO:
                return on_hello(w, e);
        case EV_START:
                if (!n->up && !n->made)
                        boot(w, n);
                else
                        swap_heal(w, n);
                break;
        case EV_UPGRADE:
                upgrades_go_on(w);
                break;
        case EV_REQUEST:
                return on_request(w, e);
        case EV_REPLY:
                on_reply(w, e->request);
                break;
        case EV_EXIT:
                if (!n->up || n->life != e->life)
                        break;
                kill_replica(w, n, END_KILL);
                doubled_ended(w, n);
                if (w->calm) /* the replica failed earlier: nobody else will start it any
                              * more */
                        boot(w, n);
                break;
        case EV_POWER:
                if (w->calm)
                        break;
                w->counts.power += n->up;
                kill_replica(w, n, END_POWER);
                break;
        case EV_FAULT:
                if (!w->calm)
                        cause_fault(w);
                break;
        case EV_DEED:
                on_deed(w, e);
                break;
        case EV_SCRIPT:
                if (!w->calm)
                        on_script(w);
                break;
        case EV_HEAL:
                heal(w);
                if (w->faults.members && !w->restoring)
                        post(w, 0, EV_MEMBERS);
                w->restoring = w->faults.members;
                nights_healed(w);
                break;
        case EV_MEMBERS:
                w->restoring = w->calm;
                if (!w->calm)
                        break;
                (void) restore_members(w);
                post(w, 300 * MSEC, EV_MEMBERS);
                break;
        case EV_EDGE:
                if (!load_ended(w))
                        on_edge(w, e->edge);
                break;
        case EV_CLOCK:
                linked_check(w);
                doubled_look(w);
                account(w);
                rates_check(w);
                if (w->calm && ((w->faults.members && !all_vote(w)) || forced_has_stopped(w)))
                        w->incomplete = w->now;
                prompts_check(w);
                given_look(w);
                acked_look(w);
                sharers_check(w);
                check_lease_time(w);
                check_undead(w);
                check_terms(w);
                check_holders(w);
                post(w, CLOCK_STEP, EV_CLOCK);
                break;
        case EV_CLIENT:
                on_client(w);
                break;
        case EV_ELSEWHERE:
                elsewhere_go_on(w);
                break;
        case EV_FORCED:
                on_forced(w);
                break;
        case EV_DOUBLE:
                on_double(w);
                break;
        case EV_SETTLED:
                if (check_settled(w))
                        w->end_time = w->now;
                post(w, SETTLED_AGAIN, EV_SETTLED);
                break;
        case EV_REST:
                budget_rests(w);
                break;
        case EV_NIGHT:
                on_night(w);
                break;
        case EV_SLOW:
                on_spell(w);
                break;
        case EV_QUICK:
                on_quick(w);
                break;
        case EV_BURST:
                on_burst(w);
                break;
        }
        return false;
}

static nsec_t next_wakeup(const struct world *w)
{
        nsec_t at = min_of(clients_next(), sharers_next());

        at = min_of(at, linked_next(w));
        for (unsigned i = 0; i < w->n_nodes; i++)
                at = min_of(at, w->r[i].wake);
        for (unsigned i = REPLICAS_MAX; (w->strangers || w->forced) && i < NODES_MAX; i++)
                at = min_of(at, w->r[i].wake);
        for (unsigned i = 0; i < w->n_holders; i++)
                at = min_of(at, w->h[i].wake);
        for (unsigned i = 0; w->fenced && i < w->n_holders; i++)
                at = min_of(at, w->h[i].units->wake);
        return at;
}

void often(struct world *w, uint64_t least, uint64_t most)
{
        w->snapshot_entries = rnd_between(&w->rnd, least, most);
        w->snapshot_bytes = 0;
        w->snapshot_time = min_of(w->snapshot_time, WRITTEN_OFTEN);
}

/* In most worlds snapshots are frequent; but some bugs show only if the log grows long: with
 * snapshots after many entries or bytes, or never. Writing one takes time, as for a large
 * state, and only a replica that installs it waits for that: if the entries after it are not
 * kept meanwhile, that replica needs the next snapshot. */
static void draw_snapshots(struct world *w, bool small)
{
        unsigned kind = (unsigned) rnd_between(&w->rnd, 0, 9);

        w->snapshot_time = chance(w, 30) ? 0 : some_time(w, 0, WRITTEN_SELDOM);
        if (kind < 6)
                often(w, small ? 20 : 40, 90);
        else if (kind < 8)
                w->snapshot_entries = rnd_between(&w->rnd, 200, small ? 600 : 2000);
        else if (kind < 9)
                w->snapshot_bytes = rnd_between(&w->rnd, 10000, small ? 30000 : 80000);
        if (w->log_bytes > 0)
                w->snapshot_time = min_of(w->snapshot_time, WRITTEN_OFTEN);
}

/* Worlds are small or large: a bug that takes two replicas and a few seconds shows sooner in
 * ten small ones than in one large one, and a bug that takes more shows only in large ones. */
static void draw_size(struct world *w)
{
        bool small = chance(w, 60);

        w->n_replicas = chance(w, 12) ? 1 : chance(w, small ? 85 : 65) ? 3 : 5;
        w->log_bytes = chance(w, 50) ? 0 : rnd_between(&w->rnd, 200, 10000);
        /* Small, so that the log's files change often enough to be tested. */
        w->segment_size = chance(w, 50) ? 16 << 10 : rnd_between(&w->rnd, 1 << 10, 8 << 10);
        w->repeated = 10;
        w->queued_bytes = chance(w, 50) ? 0 : rnd_between(&w->rnd, 1000, 2500);
        w->any_change = chance(w, 70);
        w->apply_slice = chance(w, 50) ? 1 + rnd_u64(&w->rnd) % (chance(w, 50) ? 6 : 60) : 0;
        w->narrow = chance(w, 50) ? NSEC_PER_SEC : some_time(w, MSEC, 20 * MSEC);
        w->n_holders = (unsigned) rnd_between(&w->rnd, 1, small ? 3 : HOLDERS_MAX);
        w->n_edges = (unsigned) rnd_between(&w->rnd, 0, small ? 3 : HOLDERS_MAX);
        w->run_time =
                small ? some_time(w, 8 * NSEC_PER_SEC, 14 * NSEC_PER_SEC) : 30 * NSEC_PER_SEC;
        w->end_time = w->run_time + CALM_MAX;
        w->ttl_max_ms = TTL_MAX_MS;
        w->hints = chance(w, 50);
        w->write_every = some_time(w, 20 * MSEC, 80 * MSEC);
        draw_snapshots(w, small);
}

/* Nothing of what is promised depends on what operators choose here. */
static void draw_settings(struct world *w)
{
        w->election = ELECTION;
        w->heartbeat = HEARTBEAT;
        w->drawn = w->seed % 8 == 7;
        if (w->drawn) {
                w->heartbeat = (nsec_t) rnd_between(&w->damage, BEAT_LEAST / MSEC, 100) * MSEC;
                w->election = min_of(w->heartbeat * (nsec_t) rnd_between(&w->damage, 5, 20),
                                     NSEC_PER_SEC);
        }
        w->slower = max_of(100 * w->election / ELECTION, 100 * w->heartbeat / HEARTBEAT);
        w->slower = max_of(w->slower, (nsec_t) 100);
}

/* A number of any magnitude between these two. */
static uint64_t any_between(struct rnd *r, uint64_t least, uint64_t most)
{
        unsigned doublings = 0;

        while (least << (doublings + 1) <= most)
                doublings++;
        least <<= rnd_between(r, 0, doublings);
        return rnd_between(r, least, min_of(2 * least, most));
}

static nsec_t any_time(struct world *w, nsec_t least, nsec_t most)
{
        return (nsec_t) any_between(&w->damage, (uint64_t) (least / MSEC),
                                    (uint64_t) (most / MSEC)) *
               MSEC;
}

/* What else operators may set, and what follows from what they set. Caches may be given no term
 * at all. */
static void draw_other_settings(struct world *w)
{
        w->min_ttl = TTL_MIN_MS * MSEC;
        w->token_ttl = TOKEN_TTL;
        w->watch_progress = PROGRESS;
        w->cache_term = CACHE_TERM;
        if (w->tuned) {
                w->min_ttl = any_time(w, 100 * MSEC, 3 * NSEC_PER_SEC);
                w->token_ttl = any_time(w, NSEC_PER_SEC, DAY);
                w->watch_progress = any_time(w, 100 * MSEC, PROGRESS);
                w->cache_term =
                        chance_in(&w->damage, 15) ? 0 : any_time(w, 20 * MSEC, CACHE_MOST);
        }
        w->cache_ms = (w->tuned ? CACHE_MOST : CACHE_TERM) / MSEC;
        w->timeout = REQUEST_TIMEOUT + 2 * w->election;
}

int64_t long_ttl_ms(struct world *w, int64_t most)
{
        return (int64_t) any_between(&w->damage, TTL_MIN_MS, (uint64_t) most);
}

/* Half of the time they are nodes. */
void draw_hoard(struct world *w, unsigned least, unsigned most)
{
        w->hoard = (unsigned) any_between(&w->damage, least, most);
        w->fleet = chance_in(&w->damage, 50);
        w->txn_ops = chance_in(&w->damage, 50) ? TXN_OPS : TXN_OPS_MOST;
}

/* Whoever does a few keys in a turn would take minutes with all of them; and history that
 * nobody compacts would fill memory. */
static void fit_to_hoard(struct world *w)
{
        w->fleet = w->fleet && !w->strangers && !w->forced;
        if (w->fleet) {
                w->hoard = min_of(w->hoard, (unsigned) HOARD_FLEET_MOST);
                w->n_holders = min_of(w->n_holders, 3U);
        }
        w->visited = true;
        if (w->apply_slice > 0)
                w->apply_slice = max_of(w->apply_slice, (size_t) w->hoard / 30);
        /* Some transactions fit: otherwise whoever is sent a snapshot needs the next one. */
        if (w->log_bytes > 0)
                w->log_bytes += (200 << 10) + (size_t) 100 * w->hoard;
        if (w->hoard >= HOARD_LARGE) {
                w->run_time = min_of(w->run_time, 14 * NSEC_PER_SEC);
                w->end_time = w->run_time + CALM_MAX;
        }
}

/* Of how many allocations one fails; 0: none does. */
static uint64_t fails_in(struct world *w)
{
        uint64_t in = w->faults.memory ? rnd_between(&w->rnd, 500, 20000) : 0;

        return w->hoard > 100 ? in * (w->hoard / 100) : in;
}

static void set_up(struct world *w, uint64_t seed, const char *aim)
{
        *w = (struct world){.seed = seed};
        W = w;
        rnd_init(&w->rnd, seed);
        rnd_init(&w->damage, ~seed);
        w->damages = seed % 4 == 1;
        w->damage_at = w->damages ? 0 : NEVER;
        w->later = seed % 4 == 3;
        w->breaks_in = seed % 8 == 6 ? rnd_between(&w->damage, 20, 1000) : 0;
        draw_settings(w);
        w->tuned = seed % 15 == 9;
        draw_other_settings(w);
        check_reset();
        view_reset();
        draw_size(w);
        faults_draw(w);
        w->strangers = seed % 8 == 3;
        w->named = seed % 16 == 7;
        w->loops = chance_in(&w->damage, 50);
        w->guarded = seed % 16 == 10;
        w->operated = seed % 16 == 14;
        w->fenced = seed % 8 == 4;
        w->visited = seed % 8 == 1;
        w->restricted = seed % 16 == 12;
        w->greedy = seed % 16 == 6;
        w->quota = seed % 16 == 8 ? QUOTA : 0;
        w->bulk = seed % 16 == 2;
        w->slows = seed % 16 == 5 || seed % 16 == 15;
        w->linked = seed % 16 == 0;
        w->tied = seed % 7 < 3;
        upgrades_draw(w);
        swaps_draw(w);
        forced_draw(w);
        w->txn_ops = TXN_OPS;
        w->long_ttls = seed % 15 == 4;
        w->steps = seed % 3 == 1;
        w->does = seed % 15 == 14 ? (unsigned) rnd_u64(&w->damage) & USUAL_ALL : USUAL_ALL;
        if (seed % 64 == 13)
                draw_hoard(w, 200, 2000);
        if (seed % 1024 == 525)
                draw_hoard(w, 10000, HOARD_MOST);
        aim_draw(w, aim);
        forced_fit(w);
        if (w->quota > 0)
                w->compact_keep = COMPACT_KEEP;
        if (w->quota > 0 && seed / 16 % 2)
                w->compact_age = COMPACT_AGE;
        w->greedy = w->greedy && !w->lasting && !w->restricted; /* there, all are one user */
        w->bulk = w->bulk && !w->lasting && w->quota == 0 && !w->restricted;
        /* A place in another core lasts as long. */
        w->long_ttls = w->long_ttls && !w->strangers && !w->forced;
        w->hoard = w->lasting || w->quota > 0 || w->restricted ? 0 : w->hoard;
        if (w->hoard > 0)
                fit_to_hoard(w);
        replaced_draw(w);
        w->operated = w->operated && !w->faults.members;
        w->any_change = w->any_change && !(w->operated && seed / 16 % 2);
        w->faults.members = w->faults.members || w->operated;
        w->faults.transfers = w->faults.transfers || w->visited;
        doubled_draw(w);
        rates_draw(w);
        /* Real links are slower, what fills a store is large, and bursts, and short terms of
         * caches, are many entries: a snapshot has to arrive before the log has dropped what
         * comes after it, or another one is needed. */
        if ((w->linked || w->quota > 0 || w->tuned || w->greedy) && w->log_bytes > 0)
                w->log_bytes += 20000;
        if (w->quota > 0 || w->hoard > 0)
                w->queued_bytes = 0; /* what they write is larger than that */
        memory_begin(&w->rnd, fails_in(w));
        prompts_begin();
        given_begin();
        acked_begin();
        swaps_begin();
        clients_begin(w);
        sharers_begin(w);
        rates_begin(w);
        linked_begin(w);
        nodes_begin(w);
        doubled_begin(w);
        elsewhere_begin(w);
        forced_begin(w);
        holders_begin(w);
        load_begin(w);
        spells_begin(w);
        upgrades_begin(w);
        post(w, some_time(w, MSEC, 2000 * MSEC), EV_FAULT);
        post(w, w->run_time, EV_HEAL);
        post(w, 0, EV_CLOCK);
        aim_begin(w);
}

static void tear_down(struct world *w)
{
        struct event *e;

        clients_end();
        sharers_end();
        holders_end(w);
        elsewhere_heal(w);
        forced_heal(w);
        nodes_end(w);
        linked_end(w);
        /* Requests and answers under way; requests inside a core were answered just now. */
        while (events_first()) {
                e = events_take();
                if (e->request)
                        request_free(e->request);
                free(e);
        }
}

bool world_run(struct world *w, uint64_t seed, const char *aim)
{
        uint64_t at_one_time = 0;

        set_up(w, seed, aim);
        while (w->now < w->end_time && !*w->failure && !w->unknowable) {
                struct event *e = events_first();
                nsec_t next = min_of(next_wakeup(w), e ? e->at : NEVER);

                for (unsigned i = 0; next > w->now && w->fenced && i < w->n_holders; i++)
                        fenced_check(&w->h[i]);
                at_one_time = next > w->now ? 0 : at_one_time + 1;
                if (at_one_time > 100000)
                        fail(w, "time stands still");
                w->now = max_of(w->now, next);
                w->counts.events++;
                if (e && e->at <= w->now) {
                        e = events_take();
                        if (!handle(w, e))
                                free(e);
                } else {
                        for (unsigned i = 0; i < w->n_nodes; i++)
                                if (w->r[i].wake <= w->now)
                                        world_drive(w, &w->r[i]);
                        for (unsigned i = REPLICAS_MAX;
                             (w->strangers || w->forced) && i < NODES_MAX; i++)
                                if (w->r[i].wake <= w->now)
                                        world_drive(w, &w->r[i]);
                }
                for (unsigned i = 0; i < w->n_holders && !*w->failure; i++) {
                        if (w->fenced && w->h[i].units->wake <= w->now)
                                fenced_turn(w, &w->h[i]);
                        if (w->h[i].wake <= w->now)
                                hold(w, &w->h[i]);
                }
                if (!*w->failure)
                        clients_run();
                if (!*w->failure)
                        sharers_run();
                if (!*w->failure)
                        linked_run(w);
        }
        w->counts.failed_allocations = memory_failures();
        w->met.alloc_load = memory_failed(MEMORY_LOAD);
        memory_end();
        w->counts.unknowable += w->unknowable;
        if (!*w->failure && !w->unknowable) {
                check_end(w);
                given_check(w);
                upgrades_end(w);
        }
        tear_down(w);
        return !*w->failure;
}
