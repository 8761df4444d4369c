#include "session/session.h"

#include "base/probe.h"

#define REQUEST_TIMEOUT \
        (2 *            \
         NSEC_PER_SEC) /* a grant or a registration not answered by then is tried elsewhere */
#define LEAVE_TIMEOUT NSEC_PER_SEC
/* Between two attempts to get a place, however long its lease would last. */
#define JOIN_RETRY_MAX (5 * NSEC_PER_SEC)
#define IN_VAIN_MAX 16
#define PPM INT64_C(1000000)

static const char *const names[] = {
        [SESSION_JOINING] = "joining",   [SESSION_HELD] = "held",
        [SESSION_JEOPARDY] = "jeopardy", [SESSION_LOST] = "lost",
        [SESSION_LEAVING] = "leaving",   [SESSION_LEFT] = "left",
};

const char *session_state_name(enum session_state state)
{
        return names[state];
}

void session_init(struct session *s, const struct session_config *cfg)
{
        *s = (struct session){.cfg = *cfg, .state = SESSION_JOINING};
}

void session_resume(struct session *s, const struct session_place *p, struct boot_time now)
{
        if (s->state != SESSION_JOINING || s->lease != 0)
                return;
        s->lease = p->lease;
        s->ttl = p->ttl;
        s->renewed_at = p->renewed_at;
        if (boot_before(now, p->renewed_at))
                s->renewed_at = boot_add((struct boot_time){0}, -p->ttl);
        s->drift_ppm = min_of(max_of(p->drift_ppm, (int64_t) s->cfg.drift_ppm), PPM);
        s->registered = s->unsure = true;
        s->state = SESSION_HELD;
}

bool session_place(const struct session *s, struct session_place *ret)
{
        if (s->lease == 0 || !s->registered || s->leave)
                return false;
        *ret = (struct session_place){s->lease, s->ttl, s->renewed_at, s->drift_ppm};
        return true;
}

/* The holder rounds down: TTL less the drift, in whole nanoseconds. */
struct boot_time session_deadline(const struct session *s)
{
        nsec_t margin = s->ttl / PPM * s->drift_ppm + s->ttl % PPM * s->drift_ppm / PPM + 1;

        return boot_add(s->renewed_at, s->ttl - margin);
}

bool session_holds(const struct session *s, struct boot_time now)
{
        return s->lease != 0 && s->registered &&
               (s->state == SESSION_HELD || s->state == SESSION_JEOPARDY ||
                s->state == SESSION_LEAVING) &&
               boot_before(now, session_deadline(s));
}

nsec_t session_ttl(const struct session *s)
{
        return s->lease ? s->ttl : s->cfg.ttl;
}

unsigned session_attempt(const struct session *s)
{
        return s->attempt;
}

/* T1 and T2 (DHCP's names, RFC 2131 section 4.4.5): renew from half the TTL on, and on all
 * endpoints from 7/8. */
static struct boot_time t1(const struct session *s)
{
        return s->unsure ? s->renewed_at : session_due(s);
}

static struct boot_time t2(const struct session *s)
{
        return boot_add(s->renewed_at, s->ttl / 8 * 7);
}

struct boot_time session_due(const struct session *s)
{
        return boot_add(s->renewed_at, s->ttl / 2);
}

struct session_renewal session_renewal(const struct session *s, struct boot_time sent,
                                       struct boot_time now)
{
        struct boot_time due = boot_min(session_due(s), sent);

        if (s->attempt > 0)
                due = boot_min(due, s->tried_at);
        /* If several attempts are acknowledged, the later ones were due when the first one
         * was. */
        due = boot_max(due, s->renewed_at);
        return (struct session_renewal){
                .before = s->renewed_at, .due = due, .sent = sent, .acknowledged = now};
}

static nsec_t retry_interval(const struct session *s)
{
        nsec_t ttl = s->ttl > 0 ? s->ttl : s->cfg.ttl, most = max_of(ttl / 16, s->cfg.retry),
               t = s->cfg.retry;

        if (s->state == SESSION_JOINING)
                most = min_of(most, JOIN_RETRY_MAX);
        for (unsigned i = 1; i < s->attempt && t < most; i++)
                t *= 2;
        return min_of(t, most);
}

/* A holder that keeps losing its lease right after the grant asks less and less often: the wait
 * grows from the retry interval to half the TTL after the last grant. */
static struct boot_time not_before(const struct session *s)
{
        nsec_t most = max_of(s->ttl / 2, s->cfg.retry), t = s->cfg.retry;

        for (unsigned i = 1; i < s->in_vain && t < most; i++)
                t *= 2;
        return boot_add(s->renewed_at, min_of(t, most));
}

static void drop(struct session *s, enum session_state next)
{
        bool again = next == SESSION_LOST || next == SESSION_JOINING;

        s->state = next;
        s->lease = 0;
        s->in_vain += again && s->in_vain < IN_VAIN_MAX;
        s->registered = s->unsure = false;
        s->busy = false;
        s->attempt = 0;
        s->retry_at = again ? not_before(s) : (struct boot_time){0};
}

static enum session_action begin(struct session *s, struct boot_time now, enum session_action a,
                                 nsec_t limit)
{
        s->busy = true;
        s->busy_until = boot_add(now, limit);
        return a;
}

static enum session_action join(struct session *s, struct boot_time now)
{
        /* A lease that was granted but not registered ages like any other. If it would need a
         * renewal before it is used it is not worth having: a place held for a moment helps
         * nobody. */
        if (s->lease != 0 && !boot_before(now, t1(s))) {
                PROBE("a lease grows old before it is registered");
                drop(s, SESSION_JOINING);
        }
        if (s->busy && !boot_before(now, s->busy_until))
                session_failed(s, now);
        if (s->busy || boot_before(now, s->retry_at) || boot_before(now, s->suppressed_until))
                return SESSION_WAIT;
        return begin(s, now, s->lease == 0 ? SESSION_GRANT : SESSION_REGISTER, REQUEST_TIMEOUT);
}

static enum session_action hold(struct session *s, struct boot_time now)
{
        if (!boot_before(now, session_deadline(s))) {
                drop(s, SESSION_LOST);
                return SESSION_TELL_LOST;
        }
        if (boot_before(now, t1(s)))
                return SESSION_WAIT;
        if (!boot_before(now, t2(s))) {
                if (s->state == SESSION_HELD) {
                        s->state = SESSION_JEOPARDY;
                        s->retry_at = now;
                }
                if (boot_before(now, s->retry_at))
                        return SESSION_WAIT;
                return SESSION_RENEW_ALL;
        }
        return boot_before(now, s->retry_at) ? SESSION_WAIT : SESSION_RENEW;
}

static enum session_action leave(struct session *s, struct boot_time now)
{
        if (s->lease == 0) {
                s->state = SESSION_LEFT;
                return SESSION_WAIT;
        }
        if (!boot_before(now, boot_min(s->leave_until, session_deadline(s)))) {
                /* The lease will expire by itself; there is nobody to wait for. */
                PROBE("a host leaves without an answer to its good-bye");
                drop(s, SESSION_LEFT);
                return SESSION_WAIT;
        }
        if (s->busy || boot_before(now, s->retry_at))
                return SESSION_WAIT;
        return begin(s, now, SESSION_REVOKE, boot_diff(s->leave_until, now));
}

enum session_action session_next_action(struct session *s, struct boot_time now)
{
        if (s->leave && s->state != SESSION_LEAVING && s->state != SESSION_LEFT &&
            s->state != SESSION_LOST) {
                s->state = SESSION_LEAVING;
                s->busy = false;
                s->attempt = 0;
                s->retry_at = (struct boot_time){0};
                s->leave_until = boot_add(now, LEAVE_TIMEOUT);
        }
        switch (s->state) {
        case SESSION_JOINING:
                return join(s, now);
        case SESSION_HELD:
        case SESSION_JEOPARDY:
                return hold(s, now);
        case SESSION_LOST:
                return SESSION_TELL_LOST;
        case SESSION_LEAVING:
                return leave(s, now);
        case SESSION_LEFT:
                break;
        }
        return SESSION_WAIT;
}

struct boot_time session_wakeup(const struct session *s)
{
        switch (s->state) {
        case SESSION_JOINING:
                return s->busy ? s->busy_until : boot_max(s->retry_at, s->suppressed_until);
        case SESSION_HELD:
                return boot_min(session_deadline(s),
                                boot_min(t2(s), boot_max(t1(s), s->retry_at)));
        case SESSION_JEOPARDY:
                return boot_min(session_deadline(s), s->retry_at);
        case SESSION_LEAVING:
                return boot_min(s->busy ? s->busy_until : s->retry_at,
                                boot_min(s->leave_until, session_deadline(s)));
        case SESSION_LOST:
        case SESSION_LEFT:
                break;
        }
        return BOOT_TIME_NEVER;
}

void session_granted(struct session *s, int64_t lease, nsec_t ttl, struct boot_time sent_at)
{
        if (s->state != SESSION_JOINING || s->lease != 0)
                return; /* too late: the lease expires unused */
        s->busy = false;
        s->attempt = 0;
        s->retry_at = (struct boot_time){0};
        s->lease = lease;
        s->ttl = ttl;
        s->drift_ppm = s->cfg.drift_ppm;
        s->renewed_at = sent_at;
        s->unsure = boot_before(sent_at, s->doubted_at);
}

void session_registered(struct session *s)
{
        if (s->state != SESSION_JOINING || s->lease == 0)
                return;
        s->busy = false;
        s->attempt = 0;
        s->retry_at = (struct boot_time){0};
        s->registered = true;
        s->state = SESSION_HELD;
}

void session_refused(struct session *s, struct boot_time now, nsec_t again)
{
        if (s->state != SESSION_JOINING)
                return;
        drop(s, SESSION_JOINING);
        s->attempt = 1; /* session_hurry() may end the wait */
        s->retry_at = boot_add(now, again);
}

void session_failed(struct session *s, struct boot_time now)
{
        if (s->state != SESSION_JOINING && s->state != SESSION_LEAVING)
                return;
        s->busy = false;
        s->attempt++;
        s->retry_at = boot_add(now, retry_interval(s));
}

void session_sent(struct session *s, struct boot_time now)
{
        if (s->attempt == 0)
                s->tried_at = now;
        s->attempt++;
        s->n_sent++;
        s->retry_at = boot_add(now, retry_interval(s));
}

void session_renewed(struct session *s, int64_t lease, nsec_t ttl, struct boot_time sent_at)
{
        if (lease != s->lease || lease == 0)
                return;
        s->ttl = min_of(s->ttl, ttl);
        s->in_vain = 0;
        s->renewed_at = boot_max(s->renewed_at, sent_at);
        /* An answer that was on its way while we were suspended says nothing about the
         * present. */
        s->unsure &= boot_before(sent_at, s->doubted_at);
        PROBE_IF(s->state == SESSION_JEOPARDY,
                 "a place is kept in the last eighth of its term");
        if (s->state == SESSION_JEOPARDY)
                s->state = SESSION_HELD;
        s->attempt = 0;
        s->retry_at = (struct boot_time){0};
}

void session_gone(struct session *s, int64_t lease)
{
        if (lease != s->lease || lease == 0)
                return;
        if (s->state == SESSION_LEAVING)
                drop(s, SESSION_LEFT);
        else
                drop(s, s->registered ? SESSION_LOST : SESSION_JOINING);
}

void session_loss_announced(struct session *s)
{
        if (s->state == SESSION_LOST)
                s->state = s->leave ? SESSION_LEFT : SESSION_JOINING;
}

void session_left(struct session *s)
{
        if (s->state == SESSION_LEAVING) /* otherwise it answers an earlier life */
                drop(s, SESSION_LEFT);
}

void session_hurry(struct session *s, struct boot_time now)
{
        if (s->attempt > 0)
                s->retry_at = now;
}

void session_doubt(struct session *s, struct boot_time now)
{
        if (s->registered && !s->unsure)
                s->retry_at = now;
        s->unsure = s->lease != 0;
        s->doubted_at = now;
}

void session_suppress(struct session *s, struct boot_time until)
{
        s->suppressed_until = until;
}

void session_leave(struct session *s)
{
        s->leave = true;
}

void session_join(struct session *s)
{
        if (s->state == SESSION_LEFT)
                *s = (struct session){.cfg = s->cfg,
                                      .state = SESSION_JOINING,
                                      .n_sent = s->n_sent,
                                      .suppressed_until = s->suppressed_until};
}
