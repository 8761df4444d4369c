/* What a cluster at rest costs, in the calm of long worlds (nights.c): entries, frames, disks
 * and memory are bounded by what the world has, not by how long it lasts. */
#include <malloc.h>

#include "asker.h"

/* What patient clients do in a minute: a lock, its lease, three renewals, the end of these. */
#define DOZERS_A_SECOND 0.25
/* To ask for a place in vain: a lease, a key, that of the claim, and the ends of both. */
#define IN_VAIN 5
/* A leader beats, and raft does, and both are answered. */
#define FRAMES_A_BEAT 4
/* An entry is sent, acknowledged, and perhaps proposed by a follower and its outcome told. */
#define FRAMES_AN_ENTRY 4
/* Entries that the log has, for each from snapshot to snapshot. */
#define ENTRIES_ON_DISK 4
/* An entry has as many bytes that count towards a snapshot, or more. */
#define ENTRY_LEAST 10
#define BYTE_IN_MEMORY 16
/* Entries behind a snapshot that are kept for replicas that lag, if snapshots are not counted
 * in fewer entries (consensus/taking.c). */
#define TRAILING 4096
#define SECTOR ((size_t) 512)
#define GROWS_MOST ((size_t) 3 << 19)

static nsec_t rests_from; /* 0: nobody led */
static uint64_t applied, frames;
static size_t heap; /* of the whole process, but not its disks; 0: not known yet */
static unsigned rests;

void budget_begin(void)
{
        rests = 0;
        heap = 0;
        rests_from = 0;
}

void budget_rests(struct world *w)
{
        const struct replica_node *n = the_leader(w);

        rests_from = n ? w->now : 0;
        if (!n)
                return;
        applied = core_state(n->node.core)->applied;
        frames = w->counts.frames;
}

static void bound(struct world *w, const char *what, double is, double most)
{
        if (is > most)
                fail(w, "at rest for %.0f s: %.0f %s, and %.0f at most are needed",
                     (double) (w->now - rests_from) / 1e9, is, what, most);
}

/* A leader writes its lease time into the log this often, if nothing else is written
 * (core/expiry.c). A holder renews its lease before half of it has passed. */
static double ticks_a_second(const struct world *w)
{
        nsec_t after = NSEC_PER_SEC;

        for (unsigned i = 0; i < w->n_holders; i++)
                after = min_of(after, w->h[i].cfg.ttl / 2 / 8);
        return 1e9 / (double) max_of(after, 250 * MSEC);
}

static void check_traffic(struct world *w, const struct replica_node *n)
{
        double rest = (double) (w->now - rests_from) / 1e9;
        double beat = (double) (w->drawn ? BEAT_LEAST : HEARTBEAT) / 1e9;
        double entries = (double) (core_state(n->node.core)->applied - applied);
        double renewals = 0, others = w->n_replicas - 1;

        for (unsigned i = 0; i < w->n_holders; i++)
                renewals += 2 * rest / ((double) w->h[i].cfg.ttl / 1e9);
        /* One of the two asks in vain, at the latest when the other one's lease may end. */
        if (w->n_holders > 1 && holders_vie(&w->h[0], &w->h[1]))
                renewals += IN_VAIN * rest /
                            ((double) min_of(w->h[0].cfg.ttl, w->h[1].cfg.ttl) / 2e9);
        bound(w, "entries", entries,
              1.03 * rest * ticks_a_second(w) + 1.1 * renewals + 50 +
                      (w->dozes ? rest * DOZERS_A_SECOND : 0));
        bound(w, "frames", (double) (w->counts.frames - frames),
              others * (1.05 * rest / beat * FRAMES_A_BEAT + 1.2 * entries * FRAMES_AN_ENTRY) +
                      100);
}

/* Worlds that never take a snapshot keep their whole log. */
static bool has_snapshots(const struct world *w)
{
        return w->snapshot_entries > 0 || w->snapshot_bytes > 0;
}

/* An entry in a write of its own takes a sector (store/sealed.c), and its share of what begins
 * a file. */
static size_t entry_on_disk(const struct world *w)
{
        return w->segment_size / (w->segment_size / SECTOR - 1);
}

static void check_room(struct world *w)
{
        struct mallinfo2 m = mallinfo2(); /* zeroes with a sanitizer */
        uint64_t entries = (w->snapshot_entries > 0 ? w->snapshot_entries : TRAILING / 2) +
                           w->snapshot_bytes / ENTRY_LEAST;

        for (unsigned i = 0; i < w->n_replicas; i++) {
                struct core *c = w->r[i].node.core;

                bound(w, "bytes on a disk", (double) replica_disk_bytes(core_replica(c)),
                      3.0 * (double) state_bytes(core_state(c)) +
                              (double) (ENTRIES_ON_DISK * entries * entry_on_disk(w) +
                                        4 * w->segment_size + (32 << 10) + 2 * dozers_bytes()));
        }
        for (unsigned i = 0; i < w->n_replicas; i++)
                m.uordblks -= min_of(m.uordblks, sim_disk_memory(w->r[i].disk));
        if (++rests == 2)
                heap = m.uordblks;
        if (rests > 2)
                bound(w, "bytes of memory more", (double) m.uordblks - (double) heap,
                      (double) (GROWS_MOST +
                                w->n_replicas * (BYTE_IN_MEMORY * w->snapshot_bytes +
                                                 4 * dozers_bytes())));
}

void budget_check(struct world *w)
{
        const struct replica_node *n = the_leader(w);

        if (n && rests_from > 0)
                check_traffic(w, n);
        if (has_snapshots(w))
                check_room(w);
}
