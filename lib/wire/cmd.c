#include "wire/cmd.h"

void cmd_append(struct buf *b, enum cmd_type type, uint64_t origin, uint64_t seq,
                const void *body, size_t body_len)
{
        buf_add_u8(b, (uint8_t) type);
        buf_add_varint(b, origin);
        buf_add_varint(b, seq);
        buf_add_bytes(b, body, body_len);
}

int cmd_next(struct view *entry, struct cmd *ret)
{
        struct view at = *entry;
        struct cmd c;
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
                r = view_bytes(&at, &c.body);
        if (r < 0)
                return r;
        if (type < CMD_PUT || type > CMD_LAST_)
                return -EBADMSG;
        c.type = type;
        *ret = c;
        *entry = at;
        return 0;
}

static void slot_add(struct buf *b, struct cmd_slots *s, uint32_t slot)
{
        assert(slot >= s->last);
        buf_add_varint(b, slot - s->last);
        s->last = slot + 1;
}

static int slot_next(struct view *body, struct cmd_slots *s, uint32_t *ret)
{
        uint64_t delta, slot;
        int r;

        if (body->len == 0)
                return -ENODATA;
        r = view_varint(body, &delta);
        if (r < 0)
                return r;
        if (__builtin_add_overflow(delta, s->last, &slot) || slot >= UINT32_MAX)
                return -EBADMSG;
        s->last = (uint32_t) slot + 1;
        *ret = (uint32_t) slot;
        return 0;
}

void cmd_renew_begin(struct buf *b, struct cmd_slots *s, uint64_t as_of)
{
        *s = (struct cmd_slots){0};
        buf_add_varint(b, as_of);
}

void cmd_renew_add(struct buf *b, struct cmd_slots *s, uint32_t slot, unsigned age_ms)
{
        assert(slot >= s->last && age_ms <= CMD_AGE_MAX);
        buf_add_varint(b, (uint64_t) (slot - s->last) * (CMD_AGE_MAX + 1) + age_ms);
        s->last = slot + 1;
}

int cmd_renew_start(struct view *body, struct cmd_slots *s, uint64_t *ret_as_of)
{
        *s = (struct cmd_slots){0};
        return view_varint(body, ret_as_of);
}

int cmd_renew_next(struct view *body, struct cmd_slots *s, uint32_t *ret_slot,
                   unsigned *ret_age_ms)
{
        uint64_t v, slot;
        int r;

        if (body->len == 0)
                return -ENODATA;
        r = view_varint(body, &v);
        if (r < 0)
                return r;
        if (__builtin_add_overflow(v / (CMD_AGE_MAX + 1), s->last, &slot) || slot >= UINT32_MAX)
                return -EBADMSG;
        s->last = (uint32_t) slot + 1;
        *ret_slot = (uint32_t) slot;
        *ret_age_ms = (unsigned) (v % (CMD_AGE_MAX + 1));
        return 0;
}

void cmd_expire_add(struct buf *b, struct cmd_slots *s, uint32_t slot, uint64_t renewed)
{
        slot_add(b, s, slot);
        buf_add_varint(b, renewed);
}

int cmd_expire_next(struct view *body, struct cmd_slots *s, uint32_t *ret_slot,
                    uint64_t *ret_renewed)
{
        int r = slot_next(body, s, ret_slot);

        return r < 0 ? r : view_varint(body, ret_renewed);
}
