/*
 * The holder: one host's hold on its lease, as a pure function of (state, event, now).
 *
 *     joining -> held -> (jeopardy -> held)* -> lost -> joining      leaving -> left
 *
 * It decides when to ask for a lease, when to renew and on how many endpoints, and from which
 * instant on the host no longer holds its place. That instant is counted from the *send* time
 * of the last renewal that was acknowledged, less the drift margin, so that it passes before
 * any granter's deadline (I3): the granter counts from when it applied the renewal, which is
 * later. So the holder needs to ask nobody. The caller carries out what session_next_action()
 * names, reports the outcome, and comes back at session_wakeup(). No clock, no descriptor, no
 * allocation.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

enum session_state {
        SESSION_JOINING,
        SESSION_HELD,
        SESSION_JEOPARDY, /* held, but renewals fail and the deadline is near */
        SESSION_LOST,     /* until the loss has been announced; joining follows */
        SESSION_LEAVING,
        SESSION_LEFT,
};

enum session_action {
        SESSION_WAIT,      /* nothing before session_wakeup() */
        SESSION_GRANT,     /* ask for a lease: session_granted() or session_failed() */
        SESSION_REGISTER,  /* write the node's key under it: session_registered(), _refused() or
                              _failed() */
        SESSION_RENEW,     /* send a renewal on endpoint number session_attempt(), then
                              session_sent() */
        SESSION_RENEW_ALL, /* send one on every endpoint, then session_sent() */
        SESSION_TELL_LOST, /* nothing is held from now on; announce it and stop what depends on
                              it, then session_loss_announced() */
        SESSION_REVOKE,    /* write the reason and revoke: session_left() or session_failed() */
};

struct session_config {
        nsec_t ttl;         /* to ask for */
        uint32_t drift_ppm; /* by how much the rates of the clocks may differ */
        nsec_t retry;       /* the first interval between attempts; it doubles up to TTL/16, and
                             * while there is no place up to 5 s at most */
};

/* What a later life of the holder needs in order to resume the same lease. */
struct session_place {
        int64_t lease;
        nsec_t ttl;
        struct boot_time renewed_at;
        int64_t drift_ppm; /* the margin under which it was held */
};

/* The times of a renewal that was acknowledged. */
struct session_renewal {
        struct boot_time before; /* when the previous acknowledged renewal was sent */
        struct boot_time due;    /* at half the TTL, or when it was first tried, if sooner */
        struct boot_time sent, acknowledged;
};

struct session {
        struct session_config cfg;
        enum session_state state;
        int64_t lease;     /* 0: none */
        int64_t drift_ppm; /* of this lease */
        nsec_t ttl;        /* as granted, or less if a later answer of the core said so */
        bool registered;
        bool unsure; /* resumed or in doubt, and not renewed since: renew now, not at half the
                        TTL */
        struct boot_time
                doubted_at; /* only a renewal that was sent after this ends the doubt */
        uint64_t n_sent;    /* renewals, of all leases */
        bool busy;          /* an action is under way that session_next_action() waits for */
        struct boot_time busy_until;  /* the action counts as failed after that */
        struct boot_time renewed_at;  /* send time of the last acknowledged renewal */
        struct boot_time leave_until; /* the place expires by itself after that */
        struct boot_time retry_at;
        unsigned attempt;          /* since the last success */
        struct boot_time tried_at; /* the first of these attempts */
        unsigned in_vain;          /* leases that ended before a renewal was acknowledged */
        bool leave;                /* asked to leave */
        struct boot_time suppressed_until; /* no place is asked for before that */
};

void session_init(struct session *s, const struct session_config *cfg);

/* Resumes, at @now, what session_place() returned in an earlier life of this holder, on the
 * same clock. If the deadline has not passed, the place is held at once; otherwise
 * SESSION_TELL_LOST is the first action. The larger of the two lives' drift margins counts. A
 * renewal after @now must come from another clock than ours, so such a place counts as lost. */
void session_resume(struct session *s, const struct session_place *p, struct boot_time now);

/* False while nothing is held. */
bool session_place(const struct session *s, struct session_place *ret);

/* What to do at @now. Call again after each action, until SESSION_WAIT. */
enum session_action session_next_action(struct session *s, struct boot_time now);

/* When to call session_next_action() again if nothing happens before. */
struct boot_time session_wakeup(const struct session *s);

/* The instant from which this host is not the holder any more; meaningful while
 * session_holds(). A timer for it is only a hint: call session_holds() with a fresh time before
 * each act that the lease protects. */
struct boot_time session_deadline(const struct session *s);
bool session_holds(const struct session *s, struct boot_time now);

/* The TTL of the lease, or the one to ask for while there is none. */
nsec_t session_ttl(const struct session *s);

/* The times of the renewal that was sent at @sent and acknowledged at @now. Call it before
 * session_renewed() for the same renewal. */
struct session_renewal session_renewal(const struct session *s, struct boot_time sent,
                                       struct boot_time now);
/* When the next renewal is due, or was. Stays as it was after the place was lost. */
struct boot_time session_due(const struct session *s);

/* The number of the endpoint for the next attempt, in a list that wraps around. */
unsigned session_attempt(const struct session *s);

/* The outcome of an action. @sent_at: when the request was sent. */
void session_granted(struct session *s, int64_t lease, nsec_t ttl, struct boot_time sent_at);
void session_registered(struct session *s);
void session_refused(struct session *s, struct boot_time now,
                     nsec_t again); /* somebody else has the name; ask again after @again */
void session_failed(struct session *s, struct boot_time now);
void session_sent(struct session *s, struct boot_time now);
void session_renewed(
        struct session *s, int64_t lease, nsec_t ttl,
        struct boot_time sent_at); /* @ttl: from the answer; the smallest one so far counts */
void session_gone(struct session *s, int64_t lease); /* the core says that this lease ended */
void session_loss_announced(struct session *s);
void session_left(struct session *s);

/* To be called when there are signs that the host stood still together with its clocks, so that
 * the place may be gone although the deadline is ahead. Renews now rather than at half the TTL.
 * What is held stays held until the answer, or until the deadline. A lease that was granted to
 * a request of before, and is not registered yet, is given up for a new one. */
void session_doubt(struct session *s, struct boot_time now);

/* A network path or an endpoint has come back: try now rather than at the next interval. */
void session_hurry(struct session *s, struct boot_time now);

/* After the next loss of the place, stays out until @until; 0: joins as usual. */
void session_suppress(struct session *s, struct boot_time until);

/* Begins to leave; SESSION_REVOKE follows if there is a lease to give back. */
void session_leave(struct session *s);

/* Joins again, after SESSION_LEFT, once session_suppress() lets it. */
void session_join(struct session *s);

/* "joining", ... */
const char *session_state_name(enum session_state state);
