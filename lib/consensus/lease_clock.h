/*
 * The clock of lease time (base/clock.h): how much time counts against leases.
 *
 * The leader runs it. With each heartbeat it sends a beacon that carries its own boot_time and
 * the current lease time; followers remember the highest lease time that they have received and
 * send the boot_time back. If a majority answers a beacon within a heartbeat, the core was
 * healthy when the beacon was sent, and lease time has advanced by as much as boot_time since
 * the beacon before. If that gap is longer than LEASE_CLOCK_NORMAL plus the round trip - there
 * was no leader, the leader did not run, nothing was committed, the majority was away - none of
 * it counts, and neither does the time that clients take to retry.
 *
 * A new leader asks a majority for the lease times that they have received, and continues from
 * the latest: at least one of these replicas answered the last confirmed beacon. The latest is
 * the highest one of the highest term. As a maximum of instants, it never counts or excuses any
 * time twice (I1, I2, A7). The resolution is the normal gap between two beacons plus a
 * heartbeat: shorter outages go unnoticed, and that much of a longer one may count.
 *
 * Entries of the log carry the lease time at which they were appended. Lease time that was
 * given out, in an entry or a beacon, is never taken back: a lease that is renewed later must
 * not end earlier. While an outage may be going on, no entry is appended. Pure.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

/* The longest time between two confirmed beacons that is not yet an outage. */
#define LEASE_CLOCK_NORMAL(heartbeat) ((heartbeat) *5 / 2)

/* Lease time begins at 0, and runs no faster than a clock: it does not pass 36 years, and
 * adding a TTL to it does not overflow. */
#define LEASE_CLOCK_MAX (INT64_C(1) << 60)

struct lease_clock {
        nsec_t normal, retry; /* see above; how long clients take to retry */
        nsec_t way;    /* round trip to a majority, if it is longer than heartbeats allow */
        uint64_t term; /* of the leader from which we have `known` */
        struct lease_time known; /* the latest lease time that we received or gave out */
        struct boot_time known_at;
        bool running;           /* we lead, and know from where to continue */
        struct lease_time at;   /* lease time as last confirmed ... */
        struct boot_time since; /* ... and when it had that value; after an outage, this is in
                                 * the future */
        nsec_t outages;         /* the time not counted since we became leader; for
                                 * statistics */
};

void lease_clock_init(struct lease_clock *c, nsec_t heartbeat, nsec_t retry);

/* A leader of @term has reported, by a beacon, an entry or a snapshot, that lease time has
 * reached @t. */
void lease_clock_learn(struct lease_clock *c, uint64_t term, struct lease_time t,
                       struct boot_time now);

/* We lead in @term, a majority has reported the lease times that it knows, and entries are
 * being committed: continues from the latest of these times. */
void lease_clock_start(struct lease_clock *c, uint64_t term, struct boot_time now);
void lease_clock_stop(struct lease_clock *c);

/* A longer time between two confirmed beacons is an outage. */
nsec_t lease_clock_limit(const struct lease_clock *c);

/* The beacon that was sent at @sent has been answered by a majority, and commits move. */
void lease_clock_confirm(struct lease_clock *c, struct boot_time sent);

/* Lease time now. The leader's may run ahead of what is confirmed later by at most the normal
 * gap; a follower's is the last value that it received plus an estimate of the time since. */
struct lease_time lease_clock_read(const struct lease_clock *c, struct boot_time now);

/* Lease time for a new entry or beacon, which commits us to it. */
struct lease_time lease_clock_give(struct lease_clock *c, struct boot_time now);

/* Leader: whether the core was healthy until now, so that an entry may be given a lease time,
 * and a deadline that has passed is the holder's fault. */
bool lease_clock_healthy(const struct lease_clock *c, struct boot_time now);

/* When lease time will reach @t if all goes well; @now if it has already. */
struct boot_time lease_clock_when(const struct lease_clock *c, struct lease_time t,
                                  struct boot_time now);
