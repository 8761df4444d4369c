#include "wire/renewal.h"

#define NUMBER_MAX (2 + VARINT_MAX) /* bytes of a field, with its tag */
#define HEADER_MAX (2 + 5 * NUMBER_MAX)
#define ANSWER_MAX (HEADER_MAX + 3 * NUMBER_MAX)

bool renewal_read(struct view m, int64_t *ret_lease)
{
        uint64_t id;
        uint8_t tag;

        if (view_u8(&m, &tag) < 0 || tag != 1 << 3 || view_varint(&m, &id) < 0 || m.len > 0)
                return false;
        *ret_lease = (int64_t) id;
        return true;
}

/* A field of value 0 is omitted. */
static uint8_t *put_number(uint8_t *to, unsigned field, uint64_t v)
{
        return v == 0 ? to : varint_put(varint_put(to, field << 3), v);
}

/* @to has room for HEADER_MAX. */
static uint8_t *put_header(uint8_t *to, const Pb__ResponseHeader *h)
{
        uint8_t *begin = to;

        to = put_number(to + 2, 1, h->cluster_id);
        to = put_number(to, 2, h->member_id);
        to = put_number(to, 3, (uint64_t) h->revision);
        to = put_number(to, 4, h->raft_term);
        to = put_number(to, 9001, h->ancestor);
        begin[0] = 1 << 3 | 2; /* its length follows, in one byte */
        begin[1] = (uint8_t) (to - begin - 2);
        return to;
}

_Static_assert(5 * NUMBER_MAX < 0x80, "the header's length takes more than a byte");

void header_append(struct buf *b, const Pb__ResponseHeader *h)
{
        uint8_t *begin = buf_reserve(b, HEADER_MAX);

        if (begin)
                buf_commit(b, (size_t) (put_header(begin, h) - begin));
}

void renewal_answer_append(struct buf *b, const Pb__LeaseKeepAliveResponse *p)
{
        uint8_t *begin, *to;

        if (p->name.len > 0)
                return pb_append(b, &p->base);
        begin = buf_reserve(b, ANSWER_MAX);
        if (!begin)
                return;
        to = put_header(begin, p->header);
        to = put_number(to, 2, (uint64_t) p->id);
        to = put_number(to, 3, (uint64_t) p->ttl);
        to = put_number(to, 9001, (uint64_t) p->ttl_ms);
        buf_commit(b, (size_t) (to - begin));
}
