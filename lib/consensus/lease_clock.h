/*
 * The clock that makes lease time (base/clock.h): how much time counts against leases.
 *
 * The leader runs it. Each heartbeat it sends a beacon with its own boot_time and the lease
 * time then; followers remember the highest lease time they have received and send the
 * boot_time back. Once a majority has answered a beacon, within a heartbeat, the core was well
 * when it was sent: lease time has advanced by as much as boot_time since the beacon before. If
 * that is longer than LEASE_CLOCK_NORMAL heartbeats and the way - nobody led, the leader did
 * not run, commits stood still, the majority was away - none of it counts, nor the moment that
 * clients take to try again.
 *
 * A new leader goes on from the latest that a majority has received: whoever answered the last
 * confirmed beacon is in it. Latest means of the highest term, and of that the highest. It is a
 * maximum of instants, so that nothing is ever counted or excused twice (I1, I2, A7). What
 * falls between two beacons, up to the normal gap, and a heartbeat is the grain of it: shorter
 * outages are not noticed, and of a longer one so much may count.
 *
 * Entries of the log carry the lease time at which they were appended. What was once given out,
 * in an entry or a beacon, is never taken back: a lease that is renewed later must not end
 * earlier. While it is not known whether an outage goes on, no entry is appended. Pure.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

/* Heartbeats between two confirmed beacons that are not an outage yet. */
#define LEASE_CLOCK_NORMAL(heartbeat) ((heartbeat) *5 / 2)

struct lease_clock {
        nsec_t normal, retry; /* see above; how long clients take to try again */
        nsec_t way;    /* to a majority and back, where that is longer than heartbeats allow */
        uint64_t term; /* of the leader that `known` is from */
        struct lease_time known; /* the latest that we received, or gave out */
        struct boot_time known_at;
        bool running;           /* we lead, and know where to go on */
        struct lease_time at;   /* lease time as last confirmed... */
        struct boot_time since; /* ...which it reached then; ahead of now after an outage */
        nsec_t outages;         /* all that was left out since we lead; for statistics */
};

void lease_clock_init(struct lease_clock *c, nsec_t heartbeat, nsec_t retry);

/* A leader of @term says, by a beacon, an entry or a snapshot, that it has been @t. */
void lease_clock_learn(struct lease_clock *c, uint64_t term, struct lease_time t,
                       struct boot_time now);

/* We lead in @term, a majority has reported what it knows, and commits work: goes on from the
 * latest of it. */
void lease_clock_start(struct lease_clock *c, uint64_t term, struct boot_time now);
void lease_clock_stop(struct lease_clock *c);

/* What is longer is an outage. */
nsec_t lease_clock_limit(const struct lease_clock *c);

/* The beacon that was sent at @sent has been answered by a majority, and commits move. */
void lease_clock_confirm(struct lease_clock *c, struct boot_time sent);

/* Lease time now. The leader's may run ahead of what gets confirmed by the normal gap at most;
 * a follower's is what it received last, and a guess of what passed since. */
struct lease_time lease_clock_read(const struct lease_clock *c, struct boot_time now);

/* The same, for an entry or a beacon of ours. */
struct lease_time lease_clock_give(struct lease_clock *c, struct boot_time now);

/* Leader: was the core well until now, so that time may be given to an entry, and what is past
 * its deadline is the holder's doing? */
bool lease_clock_healthy(const struct lease_clock *c, struct boot_time now);

/* When lease time will be @t, if all goes well; now, where it has been already. */
struct boot_time lease_clock_when(const struct lease_clock *c, struct lease_time t,
                                  struct boot_time now);
