/*
 * The page: the bytes of a file in which the agent publishes, after each renewal, until when
 * this host holds its place. Programs that depend on the place get a descriptor of the file
 * from OpenTenancy of org.tenure.Membership1(5). So a program that has to stop in time needs
 * neither the agent's answer nor the bus to know its deadline.
 *
 * Instants are those of the host's boot_now(). A reader that sees the bytes while they are
 * being written reads them again. Pure: bytes in, bytes out.
 */
#pragma once

#include <stddef.h>

#include "base/base.h"
#include "base/clock.h"

#define TENANCY_BYTES 48

struct tenancy {
        int64_t lease; /* 0: no place is held, and the rest means nothing */
        nsec_t ttl;
        struct boot_time deadline; /* held until then, unless a later one is written */
        uint64_t time_ns;          /* the number of the time namespace of the deadline
                                      (time_namespaces(7)); 0: not known */
        bool leaving; /* no later deadline will be written: the place is given back at the
                         deadline, or as soon as no program has a lock on the file */
};

void tenancy_write(const struct tenancy *t, uint8_t out[static TENANCY_BYTES]);

/* Returns 0 or -EBADMSG. */
must_check_ int tenancy_read(struct tenancy *ret, const void *bytes, size_t len);
