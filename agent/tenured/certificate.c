/* The end of our certificate, told weeks before: once a day, and whenever it has been read. */
#include <inttypes.h>
#include <time.h>

#include "agent.h"
#include "base/log.h"

#define MESSAGE_CERTIFICATE "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a00e"
#define DAY (86400 * NSEC_PER_SEC)
#define WITHIN_DAYS 21

void certificate_tell(struct loop_timer *t)
{
        struct agent *a = container_of(t, struct agent, certificate);
        const char *fields[] = {MESSAGE_CERTIFICATE, NULL};
        char text[64];

        if (*tls_end_text(a->tls, time(NULL), WITHIN_DAYS, text))
                log_full(LOG_WARNING, fields,
                         "CertFile=%s %s: renew it, and reload; without it this host loses "
                         "its place.",
                         a->opt.cert_file, text);
        if (a->tls && loop_timer_arm(t, boot_add(boot_now(), DAY)) < 0)
                abort();
}
