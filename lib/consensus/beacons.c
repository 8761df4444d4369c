/* Beacons carry lease time (lease_clock.h) between replicas: the leader sends them, followers
 * answer, and a new leader asks what the others have heard. */
#include "base/probe.h"
#include "consensus/internal.h"

static int nsec_cmp(const void *a, const void *b)
{
        nsec_t x = *(const nsec_t *) a, y = *(const nsec_t *) b;

        return x < y ? -1 : x > y;
}

/* Collects the values in @of for each voter but us, in ascending order. Returns how many there
 * are. */
static unsigned voters_sorted(const struct replica *r, const nsec_t of[], nsec_t out[])
{
        unsigned n = 0;

        for (unsigned i = 0; i < replica_conf(r)->n && i < REPLICA_PEERS_MAX; i++)
                if (replica_conf(r)->servers[i].role == RAFT_VOTER &&
                    replica_conf(r)->servers[i].id != r->cfg.id)
                        out[n++] = of[i];
        qsort(out, n, sizeof(*out), nsec_cmp);
        return n;
}

/* When the latest beacon was sent that a majority, including us, has answered. */
static struct boot_time majority_answered(const struct replica *r)
{
        unsigned need = replica_voters(r) / 2, n;
        nsec_t at[REPLICA_PEERS_MAX];

        if (need == 0)
                return r->now;
        n = voters_sorted(r, r->time.answered, at);
        return (struct boot_time){n >= need ? at[n - need] : 0};
}

/* A late answer may have waited in a socket that nobody read: it does not show that the core
 * was healthy in the meantime. */
void beacons_acked(struct replica *r, unsigned i, nsec_t sent)
{
        nsec_t way = boot_diff(r->now, (struct boot_time){sent});

        if (way < 0)
                return;
        histogram_add_nsec(&replica_peer_counts(r, replica_conf(r)->servers[i].id)->way,
                           &histogram_way, way);
        if (boot_before(r->time.slow_since, (struct boot_time){sent}))
                r->time.quickest[i] = min_of(r->time.quickest[i], way);
        if (way <= r->cfg.heartbeat + 2 * r->time.clock.way)
                r->time.answered[i] = max_of(r->time.answered[i], sent);
}

/* A network that becomes slow again within this time is unsteady. Before we allow for less
 * again, it must be quick for twice as long as the last time: while a round trip is learned,
 * lease time stands still and no command is accepted. */
#define BY_TURNS (600 * NSEC_PER_SEC)
#define PATIENCE_MOST 64

/* A round trip is learned after this many beacons without a quick answer from a majority. */
static unsigned learn_after(const struct replica *r)
{
        return (unsigned) (4 * r->cfg.election / r->cfg.heartbeat);
}

/* We allow for a shorter round trip after this many beacons that were answered more quickly. */
static unsigned shorten_after(const struct replica *r)
{
        return learn_after(r) / 2 * r->time.patience;
}

/* Whether an answer took so little that the next ones will come in time, too: half of what is
 * allowed for. */
static bool is_quick(const struct replica *r, nsec_t took)
{
        return took <= r->cfg.heartbeat / 2 + r->time.clock.way;
}

/* Starts to look anew whether answers are slow. */
static void forget_slow(struct replica *r)
{
        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                r->time.quickest[i] = INT64_MAX;
        r->time.slow_since = r->now;
        r->time.slow = 0;
        r->time.stood_still = false;
}

/* Starts to time beacons anew. */
static void forget_timed(struct replica *r)
{
        r->time.n_timed = 0;
        r->time.slowest = 0;
}

void beacons_members_changed(struct replica *r)
{
        memset(r->time.answered, 0, sizeof(r->time.answered));
        forget_slow(r);
        r->time.reported = 0;
}

void beacons_begin(struct replica *r)
{
        beacons_members_changed(r);
        forget_timed(r);
        r->time.taken = r->now;
        r->time.asking = false;
}

/* If we lead and commit, and yet a majority answers no beacon quickly, and lease time stands
 * still for that reason, the round trip is longer than the heartbeat interval allows for:
 * learns its length. */
static void learn_way(struct replica *r)
{
        unsigned need = replica_voters(r) / 2;
        nsec_t quickest[REPLICA_PEERS_MAX];
        bool again;

        if (need == 0 || r->time.slow < learn_after(r) || !r->time.stood_still ||
            voters_sorted(r, r->time.quickest, quickest) < need ||
            quickest[need - 1] == INT64_MAX)
                return;
        if (is_quick(r, quickest[need - 1]))
                return forget_slow(r); /* it was, at the beginning of this time */
        log_warning("The round trip to a majority of the replicas takes %lld ms; set "
                    "HeartbeatInterval= to more than that.",
                    (long long) (quickest[need - 1] / NSEC_PER_MSEC));
        PROBE("a leader learns how long a round trip takes");
        again = r->time.patience > 0 && boot_diff(r->now, r->time.learned_at) < BY_TURNS;
        PROBE_IF(again, "a leader learns again how long a round trip takes");
        PROBE_IF(
                r->time.patience > 0 && !again,
                "a leader learns how long a round trip takes, ten minutes after the last time");
        r->time.clock.way = quickest[need - 1];
        r->time.patience = again ? min_of(2 * r->time.patience, (unsigned) PATIENCE_MOST) : 1;
        r->time.learned_at = r->now;
        forget_timed(r);
        forget_slow(r);
}

/* A majority has taken @took to answer a beacon. Once shorten_after() beacons in a row have
 * taken less than the round trip that we allow for, we allow for a shorter one: otherwise a
 * network that was slow for some seconds would hide short outages for ever (I1). We go back to
 * none at all only below half a heartbeat: a round trip close to the heartbeat interval would
 * be learned and forgotten again and again, and lease time stands still while it is learned. */
static void shorten_way(struct replica *r, nsec_t took)
{
        nsec_t slowest = max_of(r->time.slowest, took);

        r->time.slowest = slowest;
        if (++r->time.n_timed < shorten_after(r))
                return;
        forget_timed(r);
        if (slowest >= r->time.clock.way)
                return;
        PROBE("a leader allows for a shorter round trip again");
        log_debug("The round trip to a majority of the replicas takes less than %lld ms again.",
                  (long long) (r->time.clock.way / NSEC_PER_MSEC));
        r->time.clock.way = slowest > r->cfg.heartbeat / 2 ? slowest : 0;
}

/* A majority has taken @took to answer a beacon in time. Where some answers come just in time
 * and others late, lease time would stand still time and again if those in time were taken for
 * a sign that nothing is slow. */
static void beacon_took(struct replica *r, nsec_t took)
{
        if (is_quick(r, took))
                forget_slow(r);
        shorten_way(r, took);
}

/* Whether appended entries become committed. */
static bool commits_move(struct replica *r)
{
        uint64_t commit = libraft_commit(r);
        bool moves;

        if (commit > r->time.moved_commit || log_last(&r->log) <= commit) {
                r->time.moved_commit = commit;
                r->time.moved_at = r->now;
        }
        moves = boot_diff(r->now, r->time.moved_at) <= lease_clock_limit(&r->time.clock);
        PROBE_IF(!moves, "lease time stands still because no entry is committed");
        return moves;
}

/* A new leader asks which lease time the others have received, until a majority has answered.
 */
void beacons_ask(struct replica *r)
{
        uint64_t term = replica_term(r);

        if (r->time.asking && boot_diff(r->now, r->time.asked_at) < r->cfg.heartbeat)
                return;
        r->time.asking = true;
        r->time.asked_at = r->now;
        replica_send_all(r, FRAME_TIME_ASK, &term, 1);
}

void beacons_reported(struct replica *r, unsigned i, uint64_t term, uint64_t time)
{
        if (!r->time.asking || replica_conf(r)->servers[i].role != RAFT_VOTER ||
            term > replica_term(r))
                return;
        r->time.reported |= UINT64_C(1) << i;
        lease_clock_learn(&r->time.clock, term, (struct lease_time){(nsec_t) time}, r->now);
}

static void count_excused(struct replica *r, nsec_t d)
{
        r->counts.outages += d > 0;
        r->counts.excused += max_of(d, (nsec_t) 0);
}

/* Lets lease time advance as long as a majority answers and commits move. */
void beacons_run(struct replica *r)
{
        struct boot_time answered, heard;
        nsec_t outages;
        bool is_new;

        if (!replica_is_current(r))
                return;
        if (!r->time.clock.running) {
                if ((unsigned) __builtin_popcountll(r->time.reported) + 1 <=
                    replica_voters(r) / 2)
                        return beacons_ask(r);
                r->time.asking = false;
                r->time.moved_at = r->now;
                heard = r->time.clock.known_at;
                lease_clock_start(&r->time.clock, replica_term(r), r->now);
                if (heard.ns > 0)
                        count_excused(r, boot_diff(r->time.clock.since, heard));
        }
        outages = r->time.clock.outages;
        /* During a handover of leadership no renewal is accepted. */
        if (commits_move(r) && replica_transferee(r) == 0) {
                answered = majority_answered(r);
                is_new = boot_before(r->time.taken, answered);
                r->time.taken = boot_max(r->time.taken, answered);
                lease_clock_confirm(&r->time.clock, answered);
                if (is_new)
                        beacon_took(r, boot_diff(r->now, answered));
                learn_way(r);
        }
        count_excused(r, r->time.clock.outages - outages);
        if (r->time.clock.outages > outages)
                log_debug("No renewal could be accepted for %lld ms, which count against no "
                          "lease.",
                          (long long) ((r->time.clock.outages - outages) / NSEC_PER_MSEC));
        if (boot_diff(r->now, r->time.beacon_at) < r->cfg.heartbeat * 9 / 10)
                return;
        r->counts.late_heartbeats +=
                boot_before(r->led_at, r->time.beacon_at) &&
                boot_diff(r->now, r->time.beacon_at) > 2 * r->cfg.heartbeat;
        r->time.beacon_at = r->now;
        r->time.slow++;
        r->time.stood_still |= !lease_clock_healthy(&r->time.clock, r->now);
        replica_send_all(r, FRAME_BEACON,
                         (uint64_t[]){replica_term(r), (uint64_t) r->now.ns,
                                      (uint64_t) lease_clock_give(&r->time.clock, r->now).ns},
                         3);
}

struct lease_time replica_lease_time(const struct replica *r, struct boot_time now)
{
        return lease_clock_read(&r->time.clock, now);
}

struct boot_time replica_lease_when(const struct replica *r, struct lease_time t,
                                    struct boot_time now)
{
        return replica_leads(r) ? lease_clock_when(&r->time.clock, t, now) : BOOT_TIME_NEVER;
}

bool replica_healthy(const struct replica *r, struct boot_time now)
{
        return replica_is_ready(r) && lease_clock_healthy(&r->time.clock, now);
}
