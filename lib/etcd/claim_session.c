#include "etcd/claim_session.h"

#include "base/probe.h"

#define SESSION_RENEW (20 * NSEC_PER_SEC)

/* If the lease is gone, and the key with it, the claim notices. */
static void renewed(struct core_renewal *rn, struct status st, int64_t ttl_ms)
{
        struct claim_session *se = container_of(rn, struct claim_session, renewal);

        (void) st;
        (void) ttl_ms;
        se->renewing = false;
        if (!se->of)
                free(se);
}

struct claim_session *claim_session_new(struct claim_sessions *of, int64_t lease,
                                        struct boot_time now)
{
        struct claim_session *se = calloc(1, sizeof(*se));

        if (!se)
                return NULL;
        se->of = of;
        se->renewal.lease = lease;
        se->renewal.done = renewed;
        se->renew_at = boot_add(now, SESSION_RENEW);
        TAILQ_INSERT_TAIL(of, se, next);
        return se;
}

void claim_session_end(struct claim_session *se)
{
        if (!se)
                return;
        TAILQ_REMOVE(se->of, se, next);
        se->of = NULL;
        if (!se->renewing)
                free(se);
}

void claim_sessions_run(struct claim_sessions *of, struct core *core, struct boot_time now)
{
        struct claim_session *se;

        while ((se = TAILQ_FIRST(of)) && !boot_before(now, se->renew_at)) {
                se->renew_at = boot_add(now, SESSION_RENEW);
                TAILQ_REMOVE(of, se, next);
                TAILQ_INSERT_TAIL(of, se, next);
                if (se->renewing)
                        continue;
                se->renewing = true;
                PROBE("a caller that waits for a lock has its lease renewed by the core");
                core_renew(core, &se->renewal);
        }
}

struct boot_time claim_sessions_next(const struct claim_sessions *of)
{
        const struct claim_session *se = TAILQ_FIRST(of);

        return se ? se->renew_at : BOOT_TIME_NEVER;
}
