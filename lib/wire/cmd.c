#include "wire/cmd.h"

#define BY_USER 0x80
#define WITHIN 0x40

void cmd_append(struct buf *b, enum cmd_type type, uint64_t origin, uint64_t seq,
                const struct cmd_user *user, uint64_t quota, const void *body, size_t body_len)
{
        buf_add_u8(b, (uint8_t) (type | (user ? BY_USER : 0) | (quota > 0 ? WITHIN : 0)));
        buf_add_varint(b, origin);
        buf_add_varint(b, seq);
        if (user) {
                buf_add_bytes(b, user->name.p, user->name.len);
                buf_add_varint(b, user->login);
        }
        if (quota > 0)
                buf_add_varint(b, quota);
        buf_add_bytes(b, body, body_len);
}

int cmd_next(struct view *entry, uint32_t newest, struct cmd *ret)
{
        struct view at = *entry;
        struct cmd c = {0};
        uint32_t raised_to;
        uint8_t type;
        int r;

        if (at.len == 0)
                return -ENODATA;
        r = view_u8(&at, &type);
        if (r == 0)
                r = view_varint(&at, &c.origin);
        if (r == 0)
                r = view_varint(&at, &c.seq);
        if (r == 0)
                c.by_user = type & BY_USER;
        if (r == 0 && c.by_user)
                r = view_bytes(&at, &c.user.name);
        if (r == 0 && c.by_user)
                r = view_varint(&at, &c.user.login);
        if (r == 0 && type & WITHIN)
                r = view_varint(&at, &c.quota);
        if (r == 0)
                r = view_bytes(&at, &c.body);
        if (r < 0)
                return r;
        type &= (uint8_t) ~(BY_USER | WITHIN);
        if (type < CMD_PUT || type > (newest > CLUSTER_0_1 ? CMD_LAST_ : CMD_RENEW_AHEAD))
                return -ENOTSUP;
        c.type = type;
        if (type == CMD_VERSION) {
                r = cmd_version_read(c.body, &raised_to);
                if (r < 0)
                        return r;
                if (raised_to > newest)
                        return -ENOTSUP;
        }
        *ret = c;
        *entry = at;
        return 0;
}

int cmd_check(struct view entry, uint32_t newest)
{
        struct cmd c;
        int r;

        do
                r = cmd_next(&entry, newest, &c);
        while (r == 0);
        return r == -ENODATA ? 0 : r;
}

/* Encodes a slot as its distance from the previous one, combined with a value below @base. */
static void slot_add(struct buf *b, struct cmd_slots *s, uint32_t slot, unsigned base,
                     unsigned beside)
{
        assert(slot >= s->last && beside < base);
        buf_add_varint(b, (uint64_t) (slot - s->last) * base + beside);
        s->last = slot + 1;
}

static int slot_next(struct view *body, struct cmd_slots *s, unsigned base, uint32_t *ret_slot,
                     unsigned *ret_beside)
{
        uint64_t v, slot;
        int r;

        if (body->len == 0)
                return -ENODATA;
        r = view_varint(body, &v);
        if (r < 0)
                return r;
        if (__builtin_add_overflow(v / base, s->last, &slot) || slot >= UINT32_MAX)
                return -EBADMSG;
        s->last = (uint32_t) slot + 1;
        *ret_slot = (uint32_t) slot;
        *ret_beside = (unsigned) (v % base);
        return 0;
}

void cmd_renew_begin(struct buf *b, struct cmd_slots *s, uint64_t as_of)
{
        *s = (struct cmd_slots){0};
        buf_add_varint(b, as_of);
}

void cmd_renew_add(struct buf *b, struct cmd_slots *s, uint32_t slot, unsigned age_ms)
{
        slot_add(b, s, slot, CMD_AGE_MAX + 1, age_ms);
}

int cmd_renew_start(struct view *body, struct cmd_slots *s, uint64_t *ret_as_of)
{
        *s = (struct cmd_slots){0};
        return view_varint(body, ret_as_of);
}

int cmd_renew_next(struct view *body, struct cmd_slots *s, uint32_t *ret_slot,
                   unsigned *ret_age_ms)
{
        return slot_next(body, s, CMD_AGE_MAX + 1, ret_slot, ret_age_ms);
}

void cmd_expire_add(struct buf *b, struct cmd_slots *s, uint32_t slot, uint64_t renewed)
{
        slot_add(b, s, slot, 1, 0);
        buf_add_varint(b, renewed);
}

int cmd_expire_next(struct view *body, struct cmd_slots *s, uint32_t *ret_slot,
                    uint64_t *ret_renewed)
{
        unsigned nothing;
        int r = slot_next(body, s, 1, ret_slot, &nothing);

        return r < 0 ? r : view_varint(body, ret_renewed);
}

void cmd_uncache(struct buf *b, uint64_t serial, uint64_t issuer, uint64_t until)
{
        buf_add_varint(b, serial);
        buf_add_u64(b, issuer);
        buf_add_varint(b, until);
}

int cmd_uncache_read(struct view body, uint64_t *ret_serial, uint64_t *ret_issuer,
                     uint64_t *ret_until)
{
        int r = view_varint(&body, ret_serial);

        if (r == 0)
                r = view_u64(&body, ret_issuer);
        if (r == 0)
                r = view_varint(&body, ret_until);
        return r == 0 && body.len > 0 ? -EBADMSG : r;
}

void cmd_version(struct buf *b, uint32_t version)
{
        buf_add_varint(b, version);
}

int cmd_version_read(struct view body, uint32_t *ret_version)
{
        uint64_t version;
        int r = view_varint(&body, &version);

        if (r < 0)
                return r;
        if (body.len > 0 || version > UINT32_MAX)
                return -EBADMSG;
        *ret_version = (uint32_t) version;
        return 0;
}

void cmd_descend(struct buf *b, uint64_t cluster, uint64_t ancestor)
{
        buf_add_u64(b, cluster);
        buf_add_u64(b, ancestor);
}

int cmd_descend_read(struct view body, uint64_t *ret_cluster, uint64_t *ret_ancestor)
{
        uint64_t cluster, ancestor;

        if (view_u64(&body, &cluster) < 0 || view_u64(&body, &ancestor) < 0 || body.len > 0 ||
            cluster == 0 || ancestor == 0)
                return -EBADMSG;
        *ret_cluster = cluster;
        *ret_ancestor = ancestor;
        return 0;
}
