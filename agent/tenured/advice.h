/* Records, as renewals are acknowledged, the evidence from which a TTL is recommended
 * (session/evidence.h), for the last day. It is kept in $RUNTIME_DIRECTORY over a restart of
 * the agent, a line for each minute, written when the minute is over. */
#pragma once

#include "runtime.h"
#include "session/evidence.h"

struct measured {
        struct evidence *evidence;
        int fd;             /* of the file; -1: nothing is kept */
        uint32_t minute;    /* the minute that is being recorded */
        char endpoint[320]; /* the endpoint that acknowledged the last renewal */
        bool failing;       /* writing fails, which was logged */
};

/* Returns 0 or -ENOMEM. */
must_check_ int measured_init(struct measured *m, struct boot_time now);
void measured_fini(struct measured *m);

/* Writes the minutes that are complete. */
void measured_run(struct measured *m, struct boot_time now);

void measured_renewed(struct measured *m, const struct session_renewal *r,
                      const char *endpoint);
