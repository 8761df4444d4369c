/* Watches the expiry of the program's own certificate: checked once a day, and logged during
 * the last three weeks, for a person to renew it. Nothing else depends on that. Goes away with
 * its loop. */
#pragma once

#include "loop/loop.h"
#include "loop/tls.h"

struct cert_end;

/* @text as tls_end_text() has it. */
typedef void (*cert_end_fn)(struct cert_end *e, const char *text);

struct cert_end {
        struct loop_timer timer;
        const struct tls *tls; /* borrowed; NULL: none */
        cert_end_fn fn;
};

/* Checks at once, then once a day. */
void cert_end_start(struct cert_end *e, struct loop *l, const struct tls *tls, cert_end_fn fn);

/* Checks now: the certificate has been reloaded. */
void cert_end_run(struct cert_end *e);
