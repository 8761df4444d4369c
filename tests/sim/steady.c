/* What an agent concludes from what happened to its host: that it flaps and has to rest
 * (session/damping), that it is slowed down (session/degraded), and how long renewals took
 * (session/evidence). Only on hosts with units; and each is checked against what its manual
 * page says. */
#include "units.h"

#include "member/member.h"
#include "world.h"

#define CALM_AFTER (10 * NSEC_PER_SEC)

/* ---- flapping ---- */

/* As tenured.conf(5) has it: this many losses, within this time. */
static bool flaps(struct steady *s, struct boot_time now)
{
        unsigned n = 0;

        if (s->damping_cfg.limit == 0)
                return false;
        s->losses[s->n_losses++ % LOSSES_MAX] = now;
        for (unsigned i = 0; i < min_of(s->n_losses, (unsigned) LOSSES_MAX); i++)
                n += boot_diff(now, s->losses[i]) <= s->damping_cfg.window;
        if (n < s->damping_cfg.limit)
                return false;
        s->n_losses = 0;
        s->rests_until = boot_add(now, s->damping_cfg.suppress);
        return true;
}

void steady_lost(struct units *u)
{
        struct steady *s = &u->steady;
        const struct session *of = member_session(u->holder->member);
        struct boot_time now = holder_now(u->holder);
        bool rests = damping_lost(&s->damping, &s->damping_cfg, now);

        W->counts.rests += rests;
        if (rests != flaps(s, now) || (rests && s->damping.until.ns != s->rests_until.ns))
                fail(W, "damping: host %u %s after a loss", u->holder->i,
                     rests ? "rests" : "does not rest");
        if (boot_before(now, session_deadline(of)))
                return;
        s->n_expired++;
        evidence_lost(s->evidence, session_due(of), now);
}

void steady_joins(struct units *u)
{
        damping_forgive(&u->steady.damping);
        u->steady.rests_until.ns = 0;
        u->steady.n_losses = 0;
}

bool steady_rests(const struct units *u)
{
        return boot_before(holder_now(u->holder), u->steady.rests_until);
}

void steady_granted(struct units *u, struct boot_time asked)
{
        if (boot_before(asked, u->steady.rests_until))
                fail(W, "damping: host %u asks for a place %.3f s before its rest is over",
                     u->holder->i, (double) boot_diff(u->steady.rests_until, asked) / 1e9);
}

/* ---- slowed down ---- */

static double pressure(struct units *u)
{
        return W->calm || units_chance(u, 60) ? 0 : (double) rnd_between(&u->rnd, 0, 100);
}

static bool is_bad(const struct steady *s, const struct degraded_reading *r, unsigned part)
{
        unsigned p = s->degraded_cfg.percent, c = s->degraded_cfg.cpu_percent;

        return (p > 0 && (r->memory * part >= p || r->io * part >= p)) ||
               (c > 0 && r->cpu * part >= c);
}

static void look_at_pressure(struct units *u)
{
        struct steady *s = &u->steady;
        struct boot_time now = holder_now(u->holder);
        struct degraded_reading r = {
                .cpu = pressure(u),
                .memory = pressure(u),
                .io = pressure(u),
                .lag = units_chance(u, 80) || W->calm ? 0 : units_time(u, 0, 400 * MSEC)};
        bool late = r.lag > s->degraded_cfg.lag && s->degraded_cfg.percent > 0,
             lags = r.lag * 2 > s->degraded_cfg.lag, bad = late || is_bad(s, &r, 1);

        if (degraded_update(&s->degraded, &s->degraded_cfg, &r, now))
                holder_tell_self(u->holder);
        /* From a bad reading on, until all is below half of the thresholds, 10 s later or
         * more. */
        if (bad)
                s->slow_since = now;
        if (bad || (s->slow && !lags && !is_bad(s, &r, 2) &&
                    boot_diff(now, s->slow_since) >= CALM_AFTER))
                s->slow = bad;
        W->counts.slowed += bad;
        if (s->slow != (*s->degraded.why != '\0'))
                fail(W, "degraded: host %u is %sslowed down, and says '%s'", u->holder->i,
                     s->slow ? "" : "not ", s->degraded.why);
}

/* ---- how long renewals took ---- */

void steady_renewed(struct units *u, const struct session_renewal *r)
{
        evidence_renewed(u->steady.evidence, r);
}

/* The TTL in use does not bridge the stall by which the place was lost. */
static void check_evidence(struct units *u)
{
        const struct session *of = member_session(u->holder->member);
        const struct steady *s = &u->steady;
        struct advice_terms t = {.ttl = of->ttl,
                                 .retry = of->cfg.retry,
                                 .drift_ppm = of->drift_ppm,
                                 .fencing = u->cfg};
        struct advice a;

        if (s->evidence->silent)
                return;
        evidence_advise(s->evidence, &t, holder_now(u->holder), &a);
        if (a.losses != s->n_expired)
                fail(W, "evidence: host %u has lost its place %u times, not %u", u->holder->i,
                     s->n_expired, a.losses);
        if (s->n_expired > 0 && a.stall_max <= advice_bridges(&t, of->ttl))
                fail(W,
                     "evidence: host %u has lost its place, and its TTL is said to bridge all "
                     "that was",
                     u->holder->i);
}

/* ---- ---- */

void steady_run(struct units *u)
{
        struct steady *s = &u->steady;

        evidence_heard(s->evidence, member_heard_at(u->holder->member));
        if (W->now >= s->look_at) {
                s->look_at = W->now + units_time(u, 200 * MSEC, 1000 * MSEC);
                look_at_pressure(u);
                if (u->holder->announced == SESSION_HELD)
                        check_evidence(u);
        }
}

void steady_start(struct units *u)
{
        u->steady.degraded = (struct degraded){0};
        u->steady.slow = false;
}

void steady_reboot(struct units *u)
{
        steady_joins(u);
        *u->steady.evidence = (struct evidence){0};
        u->steady.n_expired = 0;
}

void steady_begin(struct units *u)
{
        struct steady *s = &u->steady;
        /* In long worlds they are over before the next trouble. */
        nsec_t window = W->lasting ? 3600 * NSEC_PER_SEC : 15000 * MSEC,
               rest = W->lasting ? 150 * NSEC_PER_SEC : 3000 * MSEC;

        s->evidence = calloc(1, sizeof(*s->evidence));
        if (!s->evidence)
                abort();
        s->damping_cfg = (struct damping_config){.limit = (unsigned) rnd_between(&u->rnd, 0, 4),
                                                 .window = units_time(u, 1000 * MSEC, window),
                                                 .suppress = units_time(u, 200 * MSEC, rest)};
        s->degraded_cfg = (struct degraded_config){
                .percent = (unsigned) rnd_between(&u->rnd, 0, 90),
                .cpu_percent = units_chance(u, 50) ? 0 : (unsigned) rnd_between(&u->rnd, 1, 90),
                .lag = units_time(u, 20 * MSEC, 300 * MSEC)};
}

void steady_end(struct units *u)
{
        free(u->steady.evidence);
}
