#include "member/tenancy.h"

#include "base/crc32c.h"
#include "base/le.h"

/* "tenancy" and the version. */
#define MAGIC UINT64_C(0x3179636e616e6574)

enum {
        AT_MAGIC = 0,
        AT_LEASE = 8,
        AT_TTL = 16,
        AT_DEADLINE = 24,
        AT_LEAVING = 32,
        AT_TIME_NS = 36,
        AT_CHECK = 44
};

void tenancy_write(const struct tenancy *t, uint8_t out[static TENANCY_BYTES])
{
        memset(out, 0, TENANCY_BYTES);
        le64_put(out + AT_MAGIC, MAGIC);
        le64_put(out + AT_LEASE, (uint64_t) t->lease);
        le64_put(out + AT_TTL, (uint64_t) t->ttl);
        le64_put(out + AT_DEADLINE, (uint64_t) t->deadline.ns);
        out[AT_LEAVING] = t->leaving;
        le64_put(out + AT_TIME_NS, t->time_ns);
        le32_put(out + AT_CHECK, crc32c(0, out, AT_CHECK));
}

int tenancy_read(struct tenancy *ret, const void *bytes, size_t len)
{
        const uint8_t *p = bytes;

        if (len != TENANCY_BYTES || le64_get(p + AT_MAGIC) != MAGIC ||
            le32_get(p + AT_CHECK) != crc32c(0, p, AT_CHECK) || p[AT_LEAVING] > 1)
                return -EBADMSG;
        *ret = (struct tenancy){.lease = (int64_t) le64_get(p + AT_LEASE),
                                .ttl = (nsec_t) le64_get(p + AT_TTL),
                                .deadline = {(nsec_t) le64_get(p + AT_DEADLINE)},
                                .time_ns = le64_get(p + AT_TIME_NS),
                                .leaving = p[AT_LEAVING]};
        return ret->ttl >= 0 && ret->deadline.ns >= 0 ? 0 : -EBADMSG;
}
