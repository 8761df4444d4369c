/* Leases that are granted to claims whose callers bring none: each is renewed while its claim
 * waits, and then ends by itself. */
#pragma once

#include "core/core.h"

/* As in etcd. */
#define SESSION_TTL_MS 60000

TAILQ_HEAD(claim_sessions, claim_session);

struct claim_session {
        TAILQ_ENTRY(claim_session) next;
        struct claim_sessions *of; /* the next to be renewed is first; NULL: the claim is over,
                                    * and a renewal, which cannot be cancelled, is not yet */
        struct core_renewal renewal;
        struct boot_time renew_at;
        bool renewing;
};

/* NULL: no memory. The claim ends it; NULL is accepted. */
struct claim_session *claim_session_new(struct claim_sessions *of, int64_t lease,
                                        struct boot_time now);
void claim_session_end(struct claim_session *se);

void claim_sessions_run(struct claim_sessions *of, struct core *core, struct boot_time now);
struct boot_time claim_sessions_next(const struct claim_sessions *of);
