/*
 * Until when this host holds its place, as the agent tells programs that depend on it: some
 * bytes in a file, written again after each renewal, which the reader has a descriptor of
 * (OpenTenancy of org.tenure.Membership1(5)). So whoever has to stop in time needs no answer
 * from the agent, nor a bus, to know when that is.
 *
 * Instants are of the host's boot_now(). A reader may see a text while it is written: it reads
 * again. Pure: bytes in, bytes out.
 */
#pragma once

#include <stddef.h>

#include "base/base.h"
#include "base/clock.h"

#define TENANCY_BYTES 48

struct tenancy {
        int64_t lease; /* 0: no place is held, and nothing else is told */
        nsec_t ttl;
        struct boot_time deadline; /* the holder's: held until then, if nothing newer is told */
        bool leaving; /* nothing newer will be told: the place is given back by then, or once
                         nobody has a lock on the file any more */
};

void tenancy_write(const struct tenancy *t, uint8_t out[static TENANCY_BYTES]);

/* Returns 0 or -EBADMSG. */
must_check_ int tenancy_read(struct tenancy *ret, const void *bytes, size_t len);
