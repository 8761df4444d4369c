/*
 * Faults at the worst time. Faults at random times seldom coincide: a bug that takes three of
 * them within a few milliseconds does not show in 100,000 worlds. Most worlds therefore aim at
 * one kind of coincidence: they watch for a moment, disturb one of the processes involved, and
 * undo that after a while.
 *
 * Some aims are whole scenarios: overlap (overlap.c), alone (alone.c), and beacons; and reads
 * has one beside its rules (deposed.c).
 */
#include "base/log.h"
#include "world.h"

enum deed {
        CRASH = 1,
        CUT,
        STALL,
        PAUSE,
        FILL,
        BREAK, /* the link to the leader */
        TRANSFER,
        CHANGE,
        COMPACT,
        NO_MEMORY,
        RESTART_HOLDER,
        DELAY_HOLDER,
        DELAY_WATCH,
        LEAD_ASTRAY,
        UNDO = 32 /* combined with one of those above */
};

enum whom { SELF = 1, LEADER, OTHER };

/* At @when, in @per_mille of 1,000 cases, @what is done to @whom within @delay, and undone
 * after @least to @most. */
struct rule {
        enum moment when;
        enum deed what;
        enum whom whom;
        unsigned per_mille;
        nsec_t delay, least, most;
};

#define RULES_MAX 8
#define PATIENCE 60

struct aim {
        const char *name;
        struct rule rules[RULES_MAX];
        bool only_asked; /* by name; these are the last of the list */
        void (*prepare)(struct world *w);
        unsigned patience; /* see aim_patience(); 0: PATIENCE */
};

static nsec_t rested[RULES_MAX]; /* when each rule may act again */

/* ---- the aims ---- */

static void few_entries(struct world *w)
{
        if (chance(w, 80))
                often(w, 12, 30);
        w->write_every = some_time(w, 10 * MSEC, 25 * MSEC);
}

/* ... and to load a snapshot takes longer than to hand over. */
static void slow_loads(struct world *w)
{
        few_entries(w);
        if (chance(w, 60))
                w->apply_slice = 1;
}

/* A disk that was full has room again, and the log grows long without a snapshot. */
static void long_log(struct world *w)
{
        few_entries(w);
        if (chance(w, 50))
                return;
        often(w, 150, 400);
        w->log_bytes = 0;
        w->segment_size = rnd_between(&w->rnd, 1 << 10, 3 << 10);
}

static void compactions(struct world *w)
{
        few_entries(w);
        w->faults.compactions = true;
}

static void many_edges(struct world *w)
{
        w->n_edges = HOLDERS_MAX;
}

/* Now and then none of the leader's followers runs; nothing else is wrong. */
static void nobody_answers(struct world *w)
{
        many_edges(w);
        w->faults = (struct faults){.pauses = true};
        w->snapshot_time = 0;
}

static void many_holders(struct world *w)
{
        w->n_holders = HOLDERS_MAX;
        w->faults.deaths = true;
}

/* ... and all of them have something to report. */
static void holders_tell(struct world *w)
{
        many_holders(w);
        w->faults.deaths = chance(w, 50);
        w->queued_bytes = 0;
}

static void other_cores(struct world *w)
{
        holders_tell(w);
        w->strangers = true;
}

/* Commands wait, little room is left for more, and frames come twice. Renewals would hide how a
 * follower reacts to that. */
static void full_queues(struct world *w)
{
        w->queued_bytes = rnd_between(&w->rnd, 1000, 1500);
        w->write_every = some_time(w, 5 * MSEC, 15 * MSEC);
        w->n_holders = 1;
        w->n_edges = 0;
        w->repeated = 300;
}

static void leases_by_name(struct world *w)
{
        w->named = true;
        few_entries(w);
}

static void writers_with_a_guard(struct world *w)
{
        w->guarded = true;
}

static void hosts_with_units(struct world *w)
{
        w->fenced = true;
        w->faults.deaths = true;
        w->faults.suspends = chance(w, 50);
}

static void visitors_come(struct world *w)
{
        w->visited = true;
}

static void real_links(struct world *w)
{
        w->linked = true;
}

static void disks_swap(struct world *w)
{
        w->swaps = w->faults.crashes = true;
        w->operated = w->operated || chance_in(&w->damage, 60);
        w->faults.members = (w->faults.members || chance(w, 50)) && !w->operated;
        if (chance(w, 50))
                few_entries(w);
}

static void doubles(struct world *w)
{
        w->doubles = true;
        w->n_replicas = 3;
        w->linked = w->forced = w->operated = w->swaps = w->slows = w->drawn = false;
        w->faults.members = false;
}

static void many_keys(struct world *w)
{
        draw_hoard(w, 1000, HOARD_MOST);
        w->quota = 0;
        w->restricted = false;
}

static void has_quota(struct world *w)
{
        w->quota = QUOTA;
}

static void has_spells(struct world *w)
{
        w->slows = true;
        if (w->n_replicas < 3)
                w->n_replicas = 3;
}

static void clients_are_greedy(struct world *w)
{
        w->greedy = true;
        w->restricted = false;
        w->queued_bytes = 0;
}

static void has_users(struct world *w)
{
        w->restricted = true;
}

/* For long enough that leaders learn it, a round trip between replicas takes longer than a
 * heartbeat allows for. */
static void slow_at_first(struct world *w)
{
        w->run_time = min_of(w->run_time, 14 * NSEC_PER_SEC);
        w->end_time = w->run_time + CALM_MAX;
        w->slow_until = some_time(w, 3000 * MSEC, w->run_time);
        w->slowest = FRAME_SLOW;
        if (w->n_replicas < 3)
                w->n_replicas = 3;
        w->faults.loss = w->faults.members = false;
}

static void little_memory(struct world *w)
{
        w->faults.memory = true;
        few_entries(w);
}

static void three_at_least(struct world *w)
{
        if (w->n_replicas < 3)
                w->n_replicas = 3;
        w->faults.members = false;
}

static void narrow_links(struct world *w)
{
        w->rated = true;
        w->forced = false;
        w->hoard = 0;
        w->quota = 0;
        if (w->n_replicas < 3)
                w->n_replicas = 3;
}

/* Half of them have the scenario, which needs links that are modelled. */
static void many_reads(struct world *w)
{
        if (chance(w, 50))
                return;
        three_at_least(w);
        w->deposes = true;
        w->linked = w->slows = false;
}

/* The log fills its files faster than snapshots are written. If it has to wait for a snapshot,
 * leases show it, because nothing else is slow here (I2). */
static void slow_snapshots(struct world *w)
{
        w->n_replicas = 3;
        w->n_holders = 1;
        w->n_edges = 4;
        w->run_time = min_of(w->run_time, 14 * NSEC_PER_SEC);
        w->end_time = w->run_time + CALM_MAX;
        w->write_every = some_time(w, 6 * MSEC, 12 * MSEC);
        w->segment_size = 1 << 10;
        w->log_bytes = w->snapshot_bytes = 0;
        w->snapshot_entries = rnd_between(&w->rnd, 100, 300);
        w->snapshot_time = some_time(w, 1500 * MSEC, 3000 * MSEC);
        w->faults.loss = w->faults.stalls = w->faults.transfers = w->faults.full = false;
        w->faults.crashes = w->faults.memory = w->faults.members = false;
}

/* Real links do without `alone`: a replica whose members have all been removed asks nobody who
 * knows the others, and a program that was removed does not come back. */
static void members_go(struct world *w)
{
        w->linked = false;
        w->any_change = true;
        w->faults.members = true;
}

static void survivors(struct world *w)
{
        three_at_least(w);
        many_holders(w);
        w->forced = true;
        w->old = w->upgrades = false;
        w->finish_after = 0;
}

static void operators_come(struct world *w)
{
        w->operated = true;
        w->faults.members = false;
}

static const struct aim aims[] = {
        {.name = "mixed"},
        {.name = "overlap", .prepare = three_at_least},
        {.name = "votes",
         .rules = {{AT_VOTED, CRASH, SELF, 300, 3 * MSEC, MSEC, 60 * MSEC},
                   {AT_LEADING, CRASH, SELF, 500, 30 * MSEC, MSEC, 300 * MSEC},
                   {AT_LEADING, CUT, SELF, 500, 30 * MSEC, 100 * MSEC, 1500 * MSEC},
                   {AT_TERM, CRASH, OTHER, 100, 3 * MSEC, MSEC, 100 * MSEC}}},
        {.name = "acknowledgements",
         .rules = {{AT_ACKED, CRASH, SELF, 20, 2 * MSEC, MSEC, 300 * MSEC},
                   {AT_CONFIRMED, CRASH, SELF, 60, 2 * MSEC, MSEC, 1500 * MSEC},
                   {AT_CONFIRMED, CUT, LEADER, 60, 3 * MSEC, 300 * MSEC, 2000 * MSEC},
                   {AT_APPEND, STALL, OTHER, 30, MSEC, ELECTION / 2, 2 * ELECTION},
                   {AT_APPEND, CRASH, OTHER, 10, 3 * MSEC, MSEC, 500 * MSEC},
                   {AT_TRUNCATED, CRASH, SELF, 700, 5 * MSEC, MSEC, 100 * MSEC}}},
        {.name = "installs",
         .rules = {{AT_LEADING, CUT, OTHER, 700, 300 * MSEC, 500 * MSEC, 3000 * MSEC},
                   {AT_SAVING, CUT, OTHER, 200, 100 * MSEC, 500 * MSEC, 3000 * MSEC},
                   {AT_INSTALL, CRASH, LEADER, 250, 20 * MSEC, MSEC, 1500 * MSEC},
                   {AT_INSTALL, CUT, LEADER, 250, 20 * MSEC, 300 * MSEC, 1500 * MSEC},
                   {AT_INSTALL, CRASH, SELF, 250, 20 * MSEC, MSEC, 300 * MSEC},
                   {AT_INSTALL, STALL, SELF, 250, 0, ELECTION / 2, 2 * ELECTION},
                   {AT_LOAD, TRANSFER, LEADER, 400, 5 * MSEC, 0, 0},
                   {AT_LOAD, CRASH, LEADER, 200, 5 * MSEC, MSEC, 1500 * MSEC}},
         .prepare = slow_loads},
        {.name = "compactions",
         .rules = {{AT_SAVING, COMPACT, SELF, 900, 3 * MSEC, 0, 0},
                   {AT_COMPACTED, CRASH, SELF, 150, 5 * MSEC, MSEC, 500 * MSEC},
                   {AT_COMPACTED, CUT, OTHER, 150, 50 * MSEC, 300 * MSEC, 2000 * MSEC}},
         .prepare = compactions},
        {.name = "members",
         .rules = {{AT_LEADING, CHANGE, SELF, 800, 300 * MSEC, 0, 0},
                   {AT_CONFIRMED, CHANGE, SELF, 50, 30 * MSEC, 0, 0},
                   {AT_CHANGE, CUT, LEADER, 200, 3 * MSEC, 300 * MSEC, 1500 * MSEC},
                   {AT_CHANGE, CRASH, LEADER, 150, 3 * MSEC, MSEC, 1500 * MSEC},
                   {AT_CHANGE, CRASH, SELF, 100, 3 * MSEC, MSEC, 500 * MSEC},
                   {AT_CHANGE, STALL, OTHER, 200, 0, ELECTION / 2, 2 * ELECTION}}},
        {.name = "alone", .prepare = members_go},
        {.name = "reads",
         .rules = {{AT_READ, CUT, LEADER, 50, 3 * MSEC, 300 * MSEC, 1500 * MSEC},
                   {AT_READ, PAUSE, LEADER, 50, 3 * MSEC, 300 * MSEC, 2000 * MSEC},
                   {AT_READ, CRASH, LEADER, 20, 3 * MSEC, MSEC, 1000 * MSEC},
                   {AT_LEADING, TRANSFER, SELF, 300, 500 * MSEC, 0, 0}},
         .prepare = many_reads},
        {.name = "links",
         .rules = {{AT_FORWARD, BREAK, SELF, 60, 3 * MSEC, 5 * MSEC, 400 * MSEC},
                   {AT_FORWARD, CUT, LEADER, 20, 3 * MSEC, 100 * MSEC, 1500 * MSEC},
                   {AT_FORWARD, CRASH, LEADER, 20, 3 * MSEC, MSEC, 1000 * MSEC}}},
        {.name = "queues",
         .rules = {{AT_FORWARD, STALL, SELF, 50, 0, ELECTION, 4 * ELECTION},
                   {AT_FORWARD, STALL, LEADER, 100, 0, ELECTION, 4 * ELECTION},
                   {AT_FORWARD, STALL, OTHER, 100, 0, ELECTION, 4 * ELECTION},
                   {AT_FORWARD, BREAK, SELF, 10, 3 * MSEC, 5 * MSEC, 300 * MSEC}},
         .prepare = full_queues},
        {.name = "expiry",
         .rules = {{AT_RENEWAL, CUT, LEADER, 30, 50 * MSEC, 100 * MSEC, 1500 * MSEC},
                   {AT_RENEWAL, PAUSE, LEADER, 30, 50 * MSEC, 100 * MSEC, 3000 * MSEC},
                   {AT_RENEWAL, STALL, LEADER, 30, 50 * MSEC, 100 * MSEC, 1000 * MSEC},
                   {AT_RENEWAL, CRASH, LEADER, 10, 50 * MSEC, MSEC, 1000 * MSEC}},
         .prepare = many_edges},
        {.name = "beacons", .prepare = nobody_answers},
        {.name = "holders",
         .rules = {{AT_RENEWAL, RESTART_HOLDER, SELF, 100, 50 * MSEC, 0, 0},
                   {AT_RENEWAL, CUT, SELF, 50, 300 * MSEC, 500 * MSEC, 3000 * MSEC},
                   {AT_RENEWAL, CUT, LEADER, 30, 300 * MSEC, 500 * MSEC, 3000 * MSEC}},
         .prepare = many_holders},
        {.name = "late answers",
         .rules = {{AT_RENEWAL, DELAY_HOLDER, SELF, 150, 50 * MSEC, 0, 0},
                   {AT_RENEWAL, RESTART_HOLDER, SELF, 10, 50 * MSEC, 0, 0}},
         .prepare = many_holders},
        {.name = "watches",
         .rules = {{AT_RENEWAL, DELAY_WATCH, SELF, 150, 50 * MSEC, 0, 0},
                   {AT_RENEWAL, CUT, SELF, 20, 300 * MSEC, 500 * MSEC, 3000 * MSEC},
                   {AT_COMPACTED, DELAY_WATCH, SELF, 300, 50 * MSEC, 0, 0},
                   {AT_LEADING, COMPACT, SELF, 300, 900 * MSEC, 0, 0}},
         .prepare = holders_tell},
        {.name = "elsewhere",
         .rules = {{AT_RENEWAL, LEAD_ASTRAY, SELF, 30, 50 * MSEC, 0, 0},
                   {AT_RENEWAL, RESTART_HOLDER, SELF, 20, 50 * MSEC, 0, 0}},
         .prepare = other_cores},
        {.name = "full disks",
         .rules = {{AT_TERM, FILL, OTHER, 400, 3 * MSEC, 300 * MSEC, 3000 * MSEC},
                   {AT_LEADING, FILL, SELF, 300, 100 * MSEC, 300 * MSEC, 3000 * MSEC},
                   {AT_SEGMENT, FILL, SELF, 300, 3 * MSEC, 300 * MSEC, 3000 * MSEC},
                   {AT_SAVING, FILL, SELF, 200, 3 * MSEC, 300 * MSEC, 3000 * MSEC},
                   {AT_INSTALL, FILL, SELF, 300, 20 * MSEC, 300 * MSEC, 3000 * MSEC},
                   {AT_TERM, CRASH, LEADER, 100, 300 * MSEC, MSEC, 1000 * MSEC}},
         .prepare = long_log},
        {.name = "files",
         .rules = {{AT_SEGMENT, CRASH, SELF, 300, 4 * MSEC, MSEC, 300 * MSEC},
                   {AT_SEGMENT, STALL, SELF, 100, 0, ELECTION / 2, 2 * ELECTION},
                   {AT_SAVING, CRASH, SELF, 200, 20 * MSEC, MSEC, 300 * MSEC},
                   {AT_TRUNCATED, CRASH, SELF, 700, 5 * MSEC, MSEC, 300 * MSEC},
                   {AT_INSTALL, CRASH, SELF, 300, 20 * MSEC, MSEC, 300 * MSEC},
                   {AT_LEADING, CUT, SELF, 300, 300 * MSEC, 300 * MSEC, 2000 * MSEC}},
         .prepare = few_entries},
        {.name = "spares", .prepare = slow_snapshots},
        {.name = "slow network", .prepare = slow_at_first},
        {.name = "memory",
         .rules = {{AT_APPLY, NO_MEMORY, SELF, 30, 0, 0, 0},
                   {AT_LOAD, NO_MEMORY, SELF, 600, 0, 0, 0},
                   {AT_SAVING, NO_MEMORY, SELF, 200, 0, 0, 0},
                   {AT_CHANGE, NO_MEMORY, SELF, 200, 0, 0, 0},
                   {AT_START, NO_MEMORY, SELF, 200, 0, 0, 0},
                   {AT_APPEND, NO_MEMORY, OTHER, 20, 0, 0, 0},
                   {AT_LEADING, CUT, OTHER, 500, 300 * MSEC, 300 * MSEC, 2000 * MSEC}},
         .prepare = little_memory},
        {.name = "transfers",
         .rules = {{AT_LEADING, TRANSFER, SELF, 900, 400 * MSEC, 0, 0},
                   {AT_HANDING, CRASH, SELF, 500, 3 * MSEC, MSEC, 1000 * MSEC},
                   {AT_HANDING, CUT, SELF, 200, 3 * MSEC, 100 * MSEC, 1000 * MSEC},
                   {AT_HANDING, PAUSE, SELF, 200, 3 * MSEC, 100 * MSEC, 1000 * MSEC},
                   {AT_HANDING, STALL, OTHER, 200, 0, ELECTION / 2, 2 * ELECTION}}},
        /* Not drawn by seeds: their clients are in one of 16 worlds of every kind. */
        {.name = "names",
         .only_asked = true,
         .rules = {{AT_LEADING, CUT, SELF, 400, 900 * MSEC, 300 * MSEC, 2000 * MSEC},
                   {AT_CONFIRMED, CRASH, SELF, 10, 5 * MSEC, MSEC, 1000 * MSEC}},
         .prepare = leases_by_name},
        {.name = "guards",
         .only_asked = true,
         .rules = {{AT_LEADING, CUT, SELF, 300, 900 * MSEC, 300 * MSEC, 2000 * MSEC},
                   {AT_LEADING, PAUSE, SELF, 300, 900 * MSEC, 300 * MSEC, 3000 * MSEC}},
         .prepare = writers_with_a_guard},
        {.name = "forced", .only_asked = true, .prepare = survivors},
        {.name = "nights", .only_asked = true, .prepare = nights_prepare, .patience = 600},
        {.name = "units",
         .only_asked = true,
         .rules = {{AT_LEADING, CUT, SELF, 300, 900 * MSEC, 300 * MSEC, 3000 * MSEC},
                   {AT_LEADING, PAUSE, SELF, 300, 900 * MSEC, 300 * MSEC, 3000 * MSEC}},
         .prepare = hosts_with_units},
        {.name = "spells",
         .only_asked = true,
         .rules = {{AT_LEADING, CUT, SELF, 300, 900 * MSEC, 300 * MSEC, 2000 * MSEC},
                   {AT_LEADING, PAUSE, SELF, 300, 900 * MSEC, 300 * MSEC, 2000 * MSEC}},
         .prepare = has_spells},
        {.name = "visitors",
         .only_asked = true,
         .rules = {{AT_LEADING, CUT, SELF, 300, 900 * MSEC, 300 * MSEC, 2000 * MSEC},
                   {AT_CONFIRMED, CRASH, SELF, 10, 5 * MSEC, MSEC, 1000 * MSEC}},
         .prepare = visitors_come},
        {.name = "quotas",
         .only_asked = true,
         .rules = {{AT_LEADING, CUT, SELF, 300, 900 * MSEC, 300 * MSEC, 2000 * MSEC},
                   {AT_COMPACTED, CRASH, SELF, 100, 5 * MSEC, MSEC, 1000 * MSEC}},
         .prepare = has_quota},
        {.name = "users",
         .only_asked = true,
         .rules = {{AT_LEADING, CUT, SELF, 300, 900 * MSEC, 300 * MSEC, 2000 * MSEC},
                   {AT_CONFIRMED, CRASH, SELF, 10, 5 * MSEC, MSEC, 1000 * MSEC}},
         .prepare = has_users},
        {.name = "greedy",
         .only_asked = true,
         .rules = {{AT_LEADING, CUT, SELF, 300, 900 * MSEC, 300 * MSEC, 2000 * MSEC},
                   {AT_LEADING, PAUSE, SELF, 300, 900 * MSEC, 300 * MSEC, 2000 * MSEC}},
         .prepare = clients_are_greedy},
        {.name = "operators",
         .only_asked = true,
         .rules = {{AT_CHANGE, CRASH, LEADER, 200, 3 * MSEC, MSEC, 1500 * MSEC},
                   {AT_CHANGE, CUT, LEADER, 200, 3 * MSEC, 300 * MSEC, 1500 * MSEC},
                   {AT_CHANGE, STALL, OTHER, 200, 0, ELECTION / 2, 2 * ELECTION},
                   {AT_LEADING, CUT, SELF, 300, 900 * MSEC, 300 * MSEC, 2000 * MSEC}},
         .prepare = operators_come},
        {.name = "many keys",
         .only_asked = true,
         .rules = {{AT_LEADING, CUT, OTHER, 500, 900 * MSEC, 500 * MSEC, 3000 * MSEC},
                   {AT_COMPACTED, CRASH, SELF, 100, 5 * MSEC, MSEC, 1000 * MSEC},
                   {AT_APPLY, CRASH, SELF, 5, 20 * MSEC, MSEC, 1000 * MSEC}},
         .prepare = many_keys},
        {.name = "lost disks",
         .only_asked = true,
         .rules = {{AT_CONFIRMED, CRASH, SELF, 10, 5 * MSEC, MSEC, 1000 * MSEC},
                   {AT_VOTED, CRASH, SELF, 100, 5 * MSEC, MSEC, 1000 * MSEC},
                   {AT_LEADING, CRASH, SELF, 300, 900 * MSEC, 300 * MSEC, 2000 * MSEC},
                   {AT_INSTALL, CRASH, SELF, 300, 20 * MSEC, MSEC, 1000 * MSEC},
                   {AT_CHANGE, CRASH, OTHER, 100, 20 * MSEC, MSEC, 1000 * MSEC}},
         .prepare = disks_swap},
        {.name = "doubled disks",
         .only_asked = true,
         .rules = {{AT_CONFIRMED, CRASH, SELF, 5, 5 * MSEC, MSEC, 500 * MSEC},
                   {AT_LEADING, TRANSFER, SELF, 500, 900 * MSEC, 0, 0},
                   {AT_LEADING, CRASH, SELF, 200, 900 * MSEC, MSEC, 500 * MSEC},
                   {AT_VOTED, CUT, OTHER, 50, 5 * MSEC, 100 * MSEC, 1000 * MSEC}},
         .prepare = doubles},
        {.name = "narrow links", .only_asked = true, .prepare = narrow_links},
        {.name = "real links",
         .only_asked = true,
         .rules = {{AT_FORWARD, BREAK, SELF, 30, 3 * MSEC, 5 * MSEC, 400 * MSEC},
                   {AT_LEADING, CUT, SELF, 300, 900 * MSEC, 300 * MSEC, 3000 * MSEC},
                   {AT_LEADING, CUT, OTHER, 300, 900 * MSEC, 300 * MSEC, 6000 * MSEC},
                   {AT_APPEND, PAUSE, OTHER, 5, 3 * MSEC, 100 * MSEC, 6000 * MSEC},
                   {AT_CONFIRMED, CRASH, SELF, 10, 5 * MSEC, MSEC, 1500 * MSEC}},
         .prepare = real_links},
};

/* How many aims seeds draw: those before the first one that is only asked for. */
static size_t n_drawn(void)
{
        size_t n = 0;

        while (n < ARRAY_SIZE(aims) && !aims[n].only_asked)
                n++;
        return n;
}

/* Marks @what as a fault that this world has, for the checks. */
static void has_deed(struct world *w, enum deed what)
{
        w->faults.crashes |= what == CRASH;
        w->faults.partitions |= what == CUT || what == BREAK;
        w->faults.loss |= what == BREAK;
        w->faults.stalls |= what == STALL;
        w->faults.pauses |= what == PAUSE;
        w->faults.full |= what == FILL;
        w->faults.transfers |= what == TRANSFER;
        w->faults.members |= what == CHANGE;
}

/* NULL: there is none. */
static const struct aim *find(const char *name)
{
        for (size_t i = 0; name && i < ARRAY_SIZE(aims); i++)
                if (strcmp(aims[i].name, name) == 0)
                        return &aims[i];
        return NULL;
}

void aim_draw(struct world *w, const char *name)
{
        const struct aim *asked = find(name);
        size_t which = chance(w, 30)  ? 0
                       : chance(w, 7) ? 1 /* overlap: few of its scenarios run to their end */
                                      : rnd_between(&w->rnd, 1, n_drawn() - 1);

        if (asked)
                which = (size_t) (asked - aims);
        w->aim = &aims[which];
        w->fault_every = which == 0 ? 700 * MSEC : some_time(w, 500 * MSEC, 6000 * MSEC);
        if (which == 0)
                return;
        if (w->n_replicas < 3 && chance(w, 80))
                w->n_replicas = 3;
        if (w->aim->prepare)
                w->aim->prepare(w);
        for (size_t i = 0; i < RULES_MAX && w->aim->rules[i].when; i++)
                has_deed(w, w->aim->rules[i].what);
        memset(rested, 0, sizeof(rested));
}

unsigned aim_patience(const char *name)
{
        const struct aim *a = find(name);

        return a && a->patience > 0 ? a->patience : PATIENCE;
}

bool aim_is_long(const char *name)
{
        const struct aim *a = find(name);

        return a && a->prepare == nights_prepare;
}

bool aim_known(const char *name)
{
        return find(name) != NULL;
}

bool aim_is_plain(const struct world *w)
{
        return aim_number(w) == 0 || w->aim->prepare == narrow_links;
}

bool aim_is_scenario(const struct world *w)
{
        return w->aim->rules[0].when == 0 && !aim_is_plain(w);
}

const char *aim_name(const struct world *w)
{
        return w->aim->name;
}

unsigned aim_number(const struct world *w)
{
        return (unsigned) (w->aim - aims);
}

const char *aim_called(size_t number)
{
        _Static_assert(ARRAY_SIZE(aims) <= AIMS_MAX, "AIMS_MAX is too small");
        return number < ARRAY_SIZE(aims) ? aims[number].name : NULL;
}

/* ---- rules ---- */

static void post_deed(struct world *w, nsec_t in, int what, unsigned to, unsigned rule)
{
        struct event *e = post(w, in, EV_DEED);

        e->deed = what;
        e->to = to;
        e->from = rule;
}

void aim_at(struct world *w, enum moment m, struct replica_node *n)
{
        MEMORY(MEMORY_OURS);

        for (unsigned i = 0; i < RULES_MAX && w->aim->rules[i].when && !w->calm; i++) {
                const struct rule *u = &w->aim->rules[i];
                struct replica_node *to = n;

                if (u->when != m || w->now < rested[i] ||
                    rnd_between(&w->rnd, 1, 1000) > u->per_mille)
                        continue;
                rested[i] = w->now + some_time(w, 100 * MSEC, 2500 * MSEC);
                if (u->what == NO_MEMORY) {
                        memory_fail_next();
                        continue;
                }
                if (u->whom == OTHER)
                        to = replica_but(w, n);
                if (u->whom == LEADER)
                        to = NULL;
                post_deed(w, u->delay > 0 ? some_time(w, 0, u->delay) : 0, (int) u->what,
                          to ? to->i : REPLICAS_MAX, i);
        }
}

static void undo(struct world *w, struct replica_node *n, enum deed what)
{
        switch (what) {
        case CRASH:
                if (!n->up)
                        boot(w, n);
                break;
        case CUT:
                for (unsigned i = 0; i < w->n_replicas; i++)
                        w->cut[n->i][i] = w->cut[i][n->i] = false;
                break;
        case STALL:
                n->disk_delay = 0;
                break;
        case PAUSE:
                if (n->paused)
                        resume(w, n);
                break;
        case FILL:
                fill(w, n, false);
                if (!n->up)
                        boot(w, n);
                break;
        default:
                break;
        }
}

void on_deed(struct world *w, struct event *e)
{
        const struct rule *u = &w->aim->rules[e->from];
        struct replica_node *n = e->to < REPLICAS_MAX ? &w->r[e->to] : the_leader(w), *leader;
        nsec_t lasts = u->most > 0 ? some_time(w, u->least, u->most) : 0;

        if (w->calm || !n)
                return;
        if (e->deed >= UNDO)
                return undo(w, n, (enum deed)(e->deed - UNDO));
        if (!n->up || n->paused)
                return;
        log_debug("%.3f s: deed %d on replica %u", (double) w->now / 1e9, e->deed, n->i + 1);
        switch (e->deed) {
        case CRASH:
                crash(w, n);
                break;
        case CUT:
                cut_off(w, n, chance(w, 30));
                break;
        case STALL:
                stall(w, n, lasts);
                break;
        case PAUSE:
                pause_node(w, n, chance(w, 30));
                break;
        case FILL:
                fill(w, n, true);
                break;
        case BREAK:
                leader = the_leader(w);
                if (!leader)
                        break;
                w->links[n->i][leader->i].down_until = w->now + lasts;
                if (w->linked)
                        linked_break(n, leader->i);
                break;
        case TRANSFER:
                move_leader(w);
                break;
        case CHANGE:
                change_members(w);
                break;
        case COMPACT:
                ask_compaction(w);
                break;
        case RESTART_HOLDER:
                disturb_holder(w);
                break;
        case DELAY_HOLDER:
                delay_holder(w);
                break;
        case DELAY_WATCH:
                delay_watch(w);
                break;
        case LEAD_ASTRAY:
                elsewhere_lead(w);
                break;
        }
        if (lasts > 0)
                post_deed(w, lasts, e->deed + UNDO, n->i, e->from);
}

/* ---- beacons ---- */

/* For less than an election timeout, so that no other replica leads: meanwhile their sockets
 * fill with the leader's beacons, which they answer late. Half of the times it takes about as
 * long as the leader takes for well. */
static void nobody_gets_on(struct world *w)
{
        struct replica_node *leader = the_leader(w);
        nsec_t lasts = chance(w, 50) ? some_time(w, 50 * MSEC, 200 * MSEC)
                                     : some_time(w, 200 * MSEC, ELECTION - 50 * MSEC);

        for (unsigned i = 0; leader && i < w->n_replicas; i++) {
                struct replica_node *n = &w->r[i];

                if (!n->up || n->paused || n == leader)
                        continue;
                pause_node(w, n, false);
                post_deed(w, lasts, PAUSE + UNDO, i, 0);
        }
        post(w, some_time(w, 600 * MSEC, 2500 * MSEC), EV_SCRIPT);
}

static bool aims_at(const struct world *w, const char *name)
{
        return strcmp(w->aim->name, name) == 0;
}

void on_script(struct world *w)
{
        if (w->deposes)
                deposed_go_on(w);
        else if (aims_at(w, "overlap"))
                overlap_go_on(w);
        else if (aims_at(w, "alone"))
                alone_go_on(w);
        else
                nobody_gets_on(w);
}

void aim_begin(struct world *w)
{
        if (aims_at(w, "alone")) {
                has_deed(w, CRASH);
                has_deed(w, CUT);
                alone_begin();
                post(w, 600 * MSEC, EV_SCRIPT);
        }
        if (aims_at(w, "beacons"))
                post(w, 800 * MSEC, EV_SCRIPT);
        if (w->deposes)
                deposed_begin(w);
        if (!aims_at(w, "overlap"))
                return;
        has_deed(w, CRASH);
        has_deed(w, CUT);
        has_deed(w, STALL);
        overlap_begin();
        post(w, some_time(w, 0, 500 * MSEC), EV_SCRIPT);
}
