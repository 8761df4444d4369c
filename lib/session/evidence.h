/*
 * Evidence for the choice of a TTL: records how long renewals took in the last day, in one
 * bucket per minute and a fixed amount of memory, and computes what would have happened with
 * other TTLs.
 *
 * What counts is the stall of a renewal: the time from when the renewal was due, at half the
 * TTL, until it was acknowledged. It includes a slow network, a core without a leader, a host
 * that was starved or paused, and an agent that was restarted. It does not depend on the TTL; a
 * TTL bridges a stall that fits between half of that TTL and its deadline. Pure: no clock, no
 * descriptor, no allocation. Recording costs a few assignments; advice costs a pass over the
 * buckets for each TTL.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"
#include "session/fencing.h"
#include "session/session.h"

#define EVIDENCE_MINUTES 1440

struct evidence_minute {
        uint32_t minute; /* since the boot, from 1 on; 0: the bucket is empty */
        uint32_t renewals;
        uint64_t round_trips_us; /* the sum */
        uint32_t round_trip_max_us, late_max_us, stall_max_us, gap_max_us;
        uint32_t jeopardies, losses, moves;
};

struct evidence {
        struct evidence_minute minutes[EVIDENCE_MINUTES]; /* number m is at m % that */
        bool silent;          /* the place was lost, and the core has not been heard since */
        struct boot_time due; /* when the renewal was due that never came through */
        struct boot_time lost_at;
};

/* Records a renewal that was acknowledged and that moves the deadline. */
void evidence_renewed(struct evidence *e, const struct session_renewal *r);
/* Records that the place is in jeopardy; that renewals go to another endpoint from now on; that
 * the loop ran so late. */
void evidence_jeopardy(struct evidence *e, struct boot_time now);
void evidence_moved(struct evidence *e, struct boot_time now);
void evidence_late(struct evidence *e, nsec_t late, struct boot_time now);
/* Records that the place is lost, because the renewal that was @due was not acknowledged. That
 * stall lasts until the core answers anything, which evidence_heard() records; that may be
 * called for every answer. */
void evidence_lost(struct evidence *e, struct boot_time due, struct boot_time now);
void evidence_heard(struct evidence *e, struct boot_time heard_at);

/* What a later life of the agent can continue with: one line per bucket, all of the same
 * length. */
#define EVIDENCE_LINE 128
uint32_t evidence_minute_at(struct boot_time now);
/* Bucket number @i, as text with an end of line; false: it is empty. */
bool evidence_write(const struct evidence *e, size_t i, char line[static EVIDENCE_LINE + 1]);
/* Returns 0, or -EBADMSG: evidence_write() did not write that line, or the line belongs to a
 * time that is too long ago or in the future. */
must_check_ int evidence_read(struct evidence *e, const char *line, struct boot_time now);

/* ---- advice ---- */

/* Added because a day without trouble does not show it: a replica's host loses power, and an
 * election follows. */
#define EVIDENCE_FAILOVER (1500 * NSEC_PER_MSEC)
/* With less evidence than this, nothing is recommended. */
#define EVIDENCE_MINUTES_LEAST 60
#define EVIDENCE_RENEWALS_LEAST 100
#define ADVICE_TTLS 10

struct advice_terms {
        nsec_t ttl;   /* in use */
        nsec_t retry; /* as of struct session_config */
        int64_t drift_ppm;
        struct fencing_config fencing; /* lead 0: nothing is fenced */
};

struct advice_ttl {
        nsec_t ttl;
        nsec_t bridges;    /* the longest stall that ends in time, whenever it begins */
        uint32_t too_long; /* minutes with a longer one */
};

struct advice {
        uint64_t renewals;
        uint32_t minutes;                  /* with renewals in them */
        nsec_t span;                       /* since the oldest of them */
        nsec_t round_trip, round_trip_max; /* on average, and the longest */
        nsec_t late_max, stall_max;
        nsec_t gap_max; /* from the request of a renewal to the acknowledgement of the next */
        uint32_t jeopardies, losses, moves;
        bool enough;
        nsec_t least;       /* the shortest TTL that bridges every stall; 0: no TTL does */
        nsec_t recommended; /* 0: there is not enough evidence */
        struct advice_ttl ttls[ADVICE_TTLS];
        size_t n_ttls;
};

/* The longest stall that @ttl bridges: the stall begins when a renewal is due at half of @ttl,
 * and the renewal is tried again one interval after the stall has ended, which must be before
 * the fence begins. */
nsec_t advice_bridges(const struct advice_terms *t, nsec_t ttl);

void evidence_advise(const struct evidence *e, const struct advice_terms *t,
                     struct boot_time now, struct advice *ret);
