/* Logs the expiry of the agent's certificate, weeks before. */
#include "agent.h"
#include "base/log.h"
#include "bus/messages.h"

static void on_end(struct cert_end *e, const char *text)
{
        struct agent *a = container_of(e, struct agent, certificate);
        const char *fields[] = {MESSAGE_CERTIFICATE, NULL};

        log_full(LOG_WARNING, fields,
                 "CertFile=%s %s: renew it and reload; without it this host loses its place.",
                 a->opt.cert_file, text);
}

void certificate_start(struct agent *a)
{
        cert_end_start(&a->certificate, a->loop, a->tls, on_end);
}
