#include "member/place.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/crc32c.h"

#define CHECK "CHECK="

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
};

void place_write(const struct place *p, struct buf *out)
{
        size_t from = buf_len(out);

        buf_printf(out, "# What tenured goes on with after a restart. Nothing to edit.\n");
        for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
                const char *at = (const char *) p + fields[i].offset;
                int64_t n;

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

        *p = (struct place){0};
        for (; at < end && (line_end = memchr(at, '\n', (size_t) (end - at)));
             at = line_end + 1) {
                if ((size_t) (line_end - at) > strlen(CHECK) &&
                    memcmp(at, CHECK, strlen(CHECK)) == 0) {
                        snprintf(check, sizeof(check), CHECK "%08" PRIx32,
                                 crc32c(0, bytes, (size_t) (at - (const char *) bytes)));
                        if ((size_t) (line_end - at) != strlen(check) ||
                            memcmp(at, check, strlen(check)) != 0)
                                return -EBADMSG;
                        return p->session.lease > 0 && p->session.ttl > 0 &&
                                               p->session.renewed_at.ns > 0
                                       ? 0
                                       : -EBADMSG;
                }
                if (memchr(at, '\0', (size_t) (line_end - at)) ||
                    set(p, at, (size_t) (line_end - at)) < 0)
                        return -EBADMSG;
        }
        return -EBADMSG;
}
