#include "member/place.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/crc32c.h"

#define CHECK "CHECK="
#define FORMAT "FORMAT=" /* is written from format 2 on */

#define TEXT(key, field)                                                                   \
        {                                                                                  \
                key, offsetof(struct place, field), sizeof(((struct place *) 0)->field), 0 \
        }
#define NUMBER(key, field, base)                            \
        {                                                   \
                key, offsetof(struct place, field), 0, base \
        }

static const struct field {
        const char *key;
        size_t offset, size; /* of a text field in struct place */
        int base;            /* 10 or 16: an int64_t in that base; 0: a text */
} fields[] = {
        TEXT("CLUSTER", cluster),
        TEXT("CORE", core),
        TEXT("ANCESTOR", ancestor),
        TEXT("ENDPOINT", endpoint),
        TEXT("AT", at),
        TEXT("NODE", self.name),
        TEXT("NODE_ID", self.id),
        TEXT("BOOT_ID", self.boot_id),
        TEXT("INCARNATION", self.incarnation),
        TEXT("SINCE", self.since),
        NUMBER("LEASE", session.lease, 16),
        NUMBER("TTL_NSEC", session.ttl, 10),
        NUMBER("RENEWED_RAW_NSEC", session.renewed_at.ns, 10),
        NUMBER("DRIFT_PPM", session.drift_ppm, 10),
        NUMBER("FOLLOWED", followed, 10),
};

void place_write(const struct place *p, struct buf *out)
{
        size_t from = buf_len(out);

        buf_printf(out, "# What tenured goes on with after a restart. Nothing to edit.\n");
        for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
                const char *at = (const char *) p + fields[i].offset;
                int64_t n;

                /* These lines are new in 0.2.0, and left out if they are empty. */
                if ((at == p->ancestor && !*at) ||
                    (at == (const char *) &p->followed && p->followed == 0))
                        continue;
                buf_printf(out, "%s=", fields[i].key);
                if (fields[i].base == 0) {
                        buf_printf(out, "%s\n", at);
                        continue;
                }
                memcpy(&n, at, sizeof(n));
                buf_printf(out, fields[i].base == 16 ? "%016" PRIx64 "\n" : "%" PRId64 "\n", n);
        }
        if (buf_error(out) == 0)
                buf_printf(out, CHECK "%08" PRIx32 "\n",
                           crc32c(0, (const char *) buf_head(out) + from, buf_len(out) - from));
}

static bool begins(const char *line, size_t len, const char *key)
{
        return len >= strlen(key) && memcmp(line, key, strlen(key)) == 0;
}

static int set(struct place *p, const char *line, size_t len)
{
        for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
                const struct field *f = &fields[i];
                size_t key = strlen(f->key);
                char number[24], *end;
                int64_t n;

                if (len <= key || memcmp(line, f->key, key) != 0 || line[key] != '=')
                        continue;
                line += key + 1;
                len -= key + 1;
                if (len >= (f->base == 0 ? f->size : sizeof(number)))
                        return -EBADMSG;
                if (f->base == 0) {
                        memcpy((char *) p + f->offset, line, len);
                        return 0;
                }
                memcpy(number, line, len);
                number[len] = '\0';
                errno = 0;
                n = strtoll(number, &end, f->base);
                if (errno != 0 || len == 0 || end != number + len)
                        return -EBADMSG;
                memcpy((char *) p + f->offset, &n, sizeof(n));
                return 0;
        }
        return 0; /* a field of a later version */
}

int place_read(struct place *p, const void *bytes, size_t len)
{
        const char *at = bytes, *end = at + len, *line_end;
        char check[sizeof(CHECK) + 9];
        bool later = false;

        *p = (struct place){0};
        for (; at < end && (line_end = memchr(at, '\n', (size_t) (end - at)));
             at = line_end + 1) {
                size_t n = (size_t) (line_end - at);

                if (begins(at, n, CHECK)) {
                        snprintf(check, sizeof(check), CHECK "%08" PRIx32,
                                 crc32c(0, bytes, (size_t) (at - (const char *) bytes)));
                        if (n != strlen(check) || memcmp(at, check, n) != 0)
                                return -EBADMSG;
                        if (later)
                                return -ENOTSUP;
                        return p->session.lease > 0 && p->session.ttl > 0 &&
                                               p->session.renewed_at.ns > 0
                                       ? 0
                                       : -EBADMSG;
                }
                later |= begins(at, n, FORMAT);
                if (memchr(at, '\0', n) || (!later && set(p, at, n) < 0))
                        return -EBADMSG;
        }
        return -EBADMSG;
}
