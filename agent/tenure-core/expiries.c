#include "expiries.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "bus/messages.h"

#define PERIOD (10 * NSEC_PER_SEC)

static void begin_period(struct expiries *e, struct boot_time now)
{
        e->until = boot_add(now, PERIOD);
        e->named = 0;
        if (e->unnamed > 0)
                log_notice("%" PRIu64 " more leases expired; the log does not name them.",
                           e->unnamed);
        e->unnamed = 0;
}

void expiries_log(struct expiries *e, struct boot_time now, int64_t lease, size_t n_keys,
                  uint64_t term)
{
        char f_lease[48], f_term[32];
        const char *fields[] = {MESSAGE_EXPIRED, f_lease, f_term, NULL};

        if (!boot_before(now, e->until))
                begin_period(e, now);
        if (e->named == EXPIRIES_AT_ONCE) {
                if (e->unnamed++ == 0)
                        log_notice("Many leases expire: those that expire in the next seconds "
                                   "are only counted.");
                return;
        }
        e->named++;
        snprintf(f_lease, sizeof(f_lease), "LEASE=%016" PRIx64, (uint64_t) lease);
        snprintf(f_term, sizeof(f_term), "TERM=%" PRIu64, term);
        log_full(LOG_INFO, fields,
                 "Lease %016" PRIx64 " expired with %zu key(s): it was not renewed in time.",
                 (uint64_t) lease, n_keys);
}
