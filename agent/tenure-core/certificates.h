/* The certificates of tenure-core: read together, and replaced together. */
#pragma once

#include "loop/tls.h"
#include "options.h"

struct certificates {
        struct tls *clients; /* each NULL where its URLs are http:// */
        struct tls *peers_in, *peers_out;
};

/* Returns 0, or a negative errno that was told. */
must_check_ int certificates_read(struct certificates *c, const struct options *o);

/* Puts @fresh in the place of what @c was, for connections from now on. */
void certificates_replace(struct certificates *c, struct certificates *fresh);

void certificates_fini(struct certificates *c);
