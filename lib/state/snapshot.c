#include "state/snapshot.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/le.h"

/* Limits the memory that a snapshot can claim. Slots are dense, so none is above
 * STATE_LEASES_MAX now; a snapshot from before this limit may have larger ones. */
#define SLOT_MAX (4 * STATE_LEASES_MAX - 1)
#define LEN_MAX UINT32_MAX

/* The type of an integer is its width in bytes. */
enum type {
        U8 = 1,
        U32 = 4,
        U64 = 8,
        SECRET = AUTH_SECRET_LEN, /* bytes without a length */
        VARINT,
        LENGTH, /* a varint, of so many bytes that follow and are the caller's */
        BYTES,  /* a varint, and so many bytes */
        TEXT,   /* BYTES without a zero byte */
};

struct field {
        const char *name;
        size_t at; /* in the struct */
        enum type type;
        uint64_t min, max; /* allowed values; for bytes, allowed lengths */
};

/* It has the same width in the struct, so that nothing is cut off. */
#define WIDTH(type)                                    \
        ((type) > LENGTH    ? sizeof((struct view){0}) \
         : (type) == LENGTH ? 4                        \
         : (type) == VARINT ? 8                        \
                            : (type))
#define SAME(member, type) (0 * sizeof(char[sizeof(member) == WIDTH(type) ? 1 : -1]))
#define FIELD(in, member, type) \
        .name = #member, .at = offsetof(in, member) + SAME(((in *) 0)->member, type), type

/* clang-format off */
static const struct field head[] = {
        {FIELD(struct state, revision, U64), 1, INT64_MAX},
        {FIELD(struct state, kv.compacted, U64), 0, INT64_MAX},
        {FIELD(struct state, applied, U64), 0, UINT64_MAX},
        {FIELD(struct state, time, U64), 0, INT64_MAX},
};

static const struct field lease[] = {
        {FIELD(struct lease_then, slot, U32), 0, SLOT_MAX},
        {FIELD(struct lease_then, id, U64), 1, INT64_MAX},
        {FIELD(struct lease_then, ttl_ms, U64), 1, STATE_TTL_MAX_S * 1000},
        {FIELD(struct lease_then, born, U64), 0, UINT64_MAX},
        {FIELD(struct lease_then, renewed, U64), 0, UINT64_MAX},
        {FIELD(struct lease_then, end, U64), 0, INT64_MAX},
        {FIELD(struct lease_then, name, BYTES), 0, STATE_LEASE_NAME_MAX},
};

static const struct field key[] = {
        {FIELD(struct kv_key, len, LENGTH), 1, UINT32_MAX},
};

static const struct field versions[] = {
        {"n", 0, VARINT, 1, UINT64_MAX},
};

static const struct field version[] = {
        {FIELD(struct kv_version, mod_revision, U64), 1, INT64_MAX},
        {FIELD(struct kv_version, create_revision, U64), 0, INT64_MAX},
        {FIELD(struct kv_version, version, U64), 0, INT64_MAX},
        {FIELD(struct kv_version, lease, U64), 0, INT64_MAX},
        {FIELD(struct kv_version, sub, U32), 0, UINT32_MAX},
        {FIELD(struct kv_version, value_len, LENGTH), 0, UINT32_MAX},
};

static const struct field member[] = {
        {FIELD(struct saved_member, id, U64), 0, UINT64_MAX},
        {FIELD(struct saved_member, name, TEXT), 0, LEN_MAX},
        {FIELD(struct saved_member, client_urls, TEXT), 0, LEN_MAX},
};

static const struct field alarm[] = {
        {FIELD(struct saved_alarm, member, U64), 0, UINT64_MAX},
        {FIELD(struct saved_alarm, type_and_why, U8), 1, 0x72},
};

static const struct field auth[] = {
        {FIELD(struct auth, revision, U64), 0, UINT64_MAX},
        {FIELD(struct auth, enabled, U8), 0, 1},
        {FIELD(struct auth, secret, SECRET), 0, 0},
};

static const struct field user[] = {
        {FIELD(struct saved_user, name, TEXT), 1, AUTH_NAME_MAX},
        {FIELD(struct saved_user, hash, TEXT), 0, LEN_MAX},
        {FIELD(struct saved_user, no_password, U8), 0, 1},
        {FIELD(struct saved_user, login, U64), 0, UINT64_MAX},
        {FIELD(struct saved_user, n_roles, U64), 0, AUTH_ROLES_OF_USER_MAX},
};

static const struct field user_role[] = {
        {"role", 0, TEXT, 1, AUTH_NAME_MAX},
};

static const struct field role[] = {
        {FIELD(struct saved_role, name, TEXT), 1, AUTH_NAME_MAX},
        {FIELD(struct saved_role, n_permissions, U64), 0, AUTH_PERMISSIONS_MAX},
};

static const struct field permission[] = {
        {FIELD(struct saved_permission, type, U8), 0, UINT8_MAX},
        {FIELD(struct saved_permission, key, BYTES), 0, LEN_MAX},
        {FIELD(struct saved_permission, range_end, BYTES), 0, LEN_MAX},
};

static const struct field owner[] = {
        {FIELD(struct lease_then, slot, U32), 0, SLOT_MAX},
        {FIELD(struct lease_then, owner, TEXT), 1, LEN_MAX},
};

static const struct field cached[] = {
        {"last_serial", 0, U64, 0, UINT64_MAX},
};

static const struct field range[] = {
        {FIELD(struct saved_range, serial, U64), 1, UINT64_MAX},
        {FIELD(struct saved_range, flags, U8), 0, 7},
        {FIELD(struct saved_range, key, BYTES), 0, CACHED_SPAN_MAX},
        {FIELD(struct saved_range, range_end, BYTES), 0, CACHED_SPAN_MAX},
        {FIELD(struct saved_range, awaited_at, U64), 0, INT64_MAX},
        {FIELD(struct saved_range, rests_until, U64), 0, INT64_MAX},
        {FIELD(struct saved_range, n_issuers, U64), 0, CACHED_ISSUERS_MAX},
};

static const struct field issuer[] = {
        {FIELD(struct cached_issuer, id, U64), 0, UINT64_MAX},
        {FIELD(struct cached_issuer, until, U64), 0, INT64_MAX},
};

static const struct field cluster[] = {
        {FIELD(struct state, cluster_version, U32), CLUSTER_0_1 + 1, UINT32_MAX},
};

static const struct field descent[] = {
        {FIELD(struct descent, cluster, U64), 1, UINT64_MAX},
        {FIELD(struct descent, ancestor, U64), 1, UINT64_MAX},
};
/* clang-format on */

/* ---- saving ---- */

#define FIXED_MAX 96 /* bytes of a record without those of BYTES and TEXT */

/* Inlined with its table and unrolled, so that it costs no more than code for that record
 * alone: there may be a million. */
#define INLINE static inline __attribute__((always_inline))

INLINE void save(const struct field *f, size_t n, const void *from, struct buf *out)
{
        size_t most = FIXED_MAX;
        uint8_t *to, *p;

#pragma GCC unroll 16
        for (size_t i = 0; i < n; i++)
                if (f[i].type == BYTES || f[i].type == TEXT)
                        most += ((const struct view *) ((const uint8_t *) from + f[i].at))->len;
        p = to = buf_reserve(out, most);
        if (!to)
                return;
#pragma GCC unroll 16
        for (size_t i = 0; i < n; i++) {
                const uint8_t *at = (const uint8_t *) from + f[i].at;
                const struct view *bytes = (const struct view *) at;

                if (f[i].type == U8) {
                        *p++ = *at;
                } else if (f[i].type == U32) {
                        le32_put(p, *(const uint32_t *) at);
                        p += 4;
                } else if (f[i].type == U64) {
                        le64_put(p, *(const uint64_t *) at);
                        p += 8;
                } else if (f[i].type == SECRET) {
                        memcpy(p, at, SECRET);
                        p += SECRET;
                } else if (f[i].type == VARINT) {
                        p = varint_put(p, *(const uint64_t *) at);
                } else if (f[i].type == LENGTH) {
                        p = varint_put(p, *(const uint32_t *) at);
                } else {
                        p = varint_put(p, bytes->len);
                        if (bytes->len > 0)
                                memcpy(p, bytes->p, bytes->len);
                        p += bytes->len;
                }
        }
        buf_commit(out, (size_t) (p - to));
}

/* ---- loading ---- */

int snapshot_wrong(struct snapshot_in *in, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(in->wrong, sizeof(in->wrong), fmt, ap);
        va_end(ap);
        return -EBADMSG;
}

/* Reads a field, and its value or length. */
INLINE int read_field(const struct field *f, struct view *in, void *at, uint64_t *ret_value)
{
        struct view *bytes = at, fixed;
        int r = f->type > LENGTH   ? view_bytes(in, bytes)
                : f->type < VARINT ? view_take(in, f->type, &fixed)
                                   : view_varint(in, ret_value);

        if (r < 0)
                return r;
        if (f->type == U8)
                *ret_value = *(uint8_t *) at = *fixed.p;
        else if (f->type == U32)
                *ret_value = *(uint32_t *) at = le32_get(fixed.p);
        else if (f->type == U64)
                *ret_value = *(uint64_t *) at = le64_get(fixed.p);
        else if (f->type == SECRET)
                memcpy(at, fixed.p, SECRET);
        else if (f->type == VARINT)
                *(uint64_t *) at = *ret_value;
        else if (f->type == LENGTH)
                *(uint32_t *) at = (uint32_t) *ret_value; /* its maximum bounds it */
        else
                *ret_value = bytes->len;
        return 0;
}

INLINE int load(const struct field *f, size_t n, struct snapshot_in *in, void *to)
{
#pragma GCC unroll 16
        for (size_t i = 0; i < n; i++) {
                void *at = (uint8_t *) to + f[i].at;
                const struct view *text = at;
                uint64_t value = 0;

                if (read_field(&f[i], &in->rest, at, &value) < 0)
                        return snapshot_wrong(in, "%s is cut short", f[i].name);
                if (value < f[i].min || value > f[i].max)
                        return snapshot_wrong(in, "%s%s is %" PRIu64 ", which is not allowed",
                                              f[i].type > LENGTH ? "the length of " : "",
                                              f[i].name, value);
                if (f[i].type == TEXT && memchr(text->p, 0, text->len))
                        return snapshot_wrong(in, "%s has a zero byte", f[i].name);
        }
        return 0;
}

#define DEFINE(record, type)                                           \
        void snapshot_save_##record(const type *from, struct buf *out) \
        {                                                              \
                save(record, ARRAY_SIZE(record), from, out);           \
        }                                                              \
        int snapshot_load_##record(struct snapshot_in *in, type *ret)  \
        {                                                              \
                return load(record, ARRAY_SIZE(record), in, ret);      \
        }
SNAPSHOT_RECORDS(DEFINE)
