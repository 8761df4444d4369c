/* The certificates of tenure-core: read together, and replaced together. */
#pragma once

#include "consensus/admission.h"
#include "loop/cert_end.h"
#include "options.h"

struct certificates {
        struct tls *clients; /* each NULL if its URLs are http:// */
        struct tls *peers_in, *peers_out;
        struct cert_end clients_end, peers_end;
};

/* Returns 0, or a negative errno that was logged. */
must_check_ int certificates_read(struct certificates *c, const struct options *o);

/* Which certificates of other replicas are accepted. */
struct admission certificates_admission(const struct options *o);

/* Replaces the certificates in @c by @fresh, for new connections, and watches when the new ones
 * expire. */
void certificates_replace(struct certificates *c, struct certificates *fresh);

/* Logs the expiry of each certificate, weeks before. */
void certificates_watch(struct certificates *c, struct loop *l);

void certificates_fini(struct certificates *c);
