/*
 * Format 2 of the log: the entries of one write to the disk are sealed as a whole.
 *
 * A crash may leave some sectors of the last write as they were before: all zeroes. To tell
 * these from zeroes that a client stored, each sector that a write covers begins with a tag,
 * which has the length of the write and a checksum over that, where the write begins, and in
 * which file. So one sector that was written is enough to know the whole write; only zeroes may
 * follow.
 *
 * A write begins with a sector of its own, behind the head of the file, which has one as well.
 * So no sector holds bytes of two writes: what is durable is not written again, and a value of
 * a client is never where a tag would be.
 */
#include "base/crc32c.h"
#include "base/le.h"
#include "store/internal.h"

#define FILE_HEAD 16
#define TAG 8
#define HEAD (TAG + 4) /* of a write: a tag and the checksum */
#define RECORD 21      /* before an entry's data */

static const uint8_t zeroes[SECTOR + HEAD];

/* Where a write is. */
struct place {
        uint64_t seq;
        size_t at;
};

static size_t whole_sectors(size_t n)
{
        return (n + SECTOR - 1) / SECTOR * SECTOR;
}

/* Whether a write of @len bytes, with the rest of its last sector, has room in @size. */
static bool fits(size_t len, size_t size)
{
        return len <= size / SECTOR * SECTOR;
}

/* Appends to the write, which begins behind the head of a file. */
static void add(struct buf *b, const void *p, size_t n)
{
        const uint8_t *from = p;

        while (n > 0) {
                size_t k;

                if (buf_len(b) % SECTOR == 0)
                        buf_add(b, zeroes, TAG);
                k = min_of(n, SECTOR - buf_len(b) % SECTOR);
                buf_add(b, from, k);
                from += k;
                n -= k;
        }
}

void sealed_add(struct buf *b, const struct store_entry *e)
{
        uint8_t h[RECORD];

        /* All at once: a buffer that grows piece by piece may be copied each time. */
        (void) buf_reserve(b, SECTOR + HEAD + RECORD + e->data.len +
                                      (e->data.len / (SECTOR - TAG) + 2) * TAG + SECTOR);
        if (buf_len(b) == 0)
                buf_add(b, zeroes, SECTOR + HEAD);
        le64_put(h, e->index);
        le64_put(h + 8, e->term);
        h[16] = e->type;
        le32_put(h + 17, (uint32_t) e->data.len);
        add(b, h, sizeof(h));
        add(b, e->data.p, e->data.len);
}

size_t sealed_size(const struct buf *b)
{
        return whole_sectors(buf_len(b));
}

static void tag_put(uint8_t tag[static TAG], size_t len, struct place where)
{
        uint8_t of[16];

        le32_put(of, (uint32_t) len);
        le32_put(of + 4, (uint32_t) where.at);
        le64_put(of + 8, where.seq);
        le32_put(tag, (uint32_t) len);
        le32_put(tag + 4, crc32c(0, of, sizeof(of)));
}

/* The length that the tag @p gives to the write at @where; 0: it is no tag of that write. */
static size_t tag_get(const uint8_t *p, struct place where)
{
        uint8_t tag[TAG];

        tag_put(tag, le32_get(p), where);
        return memcmp(p, tag, TAG) == 0 ? le32_get(p) : 0;
}

void sealed_end(struct buf *b, uint64_t seq, size_t at)
{
        size_t len = buf_len(b) - SECTOR;
        uint8_t *p, tag[TAG];

        buf_add(b, zeroes, sealed_size(b) - buf_len(b));
        if (buf_error(b) < 0)
                return;
        p = buf_head(b);
        le32_put(p + 4, FORMAT_SEALED);
        le64_put(p + 8, seq);
        le32_put(p, crc32c(0, p + 4, FILE_HEAD - 4));
        p += SECTOR;
        tag_put(tag, len, (struct place){seq, max_of(at, (size_t) SECTOR)});
        for (size_t sector = 0; sector < len; sector += SECTOR)
                memcpy(p + sector, tag, TAG);
        le32_put(p + TAG, crc32c(0, p + HEAD, whole_sectors(len) - HEAD));
        if (at > 0)
                buf_consume(b, SECTOR);
}

size_t sealed_begin(const uint8_t *file, size_t size, uint64_t seq)
{
        bool begins = size >= SECTOR && le32_get(file) == crc32c(0, file + 4, FILE_HEAD - 4) &&
                      le32_get(file + 4) == FORMAT_SEALED && le64_get(file + 8) == seq &&
                      all_zero(file + FILE_HEAD, SECTOR - FILE_HEAD);

        return begins ? SECTOR : 0;
}

size_t sealed_read(uint8_t *file, size_t size, uint64_t seq, size_t at,
                   struct view *ret_records)
{
        size_t len, n = 0;
        uint8_t *p = file + at, *to = p + HEAD;

        if (size - at < SECTOR)
                return 0;
        len = tag_get(p, (struct place){seq, at});
        if (len < HEAD || !fits(len, size - at) ||
            le32_get(p + TAG) != crc32c(0, p + HEAD, whole_sectors(len) - HEAD))
                return 0;
        for (size_t next = SECTOR; next < len; next += SECTOR)
                if (memcmp(p + next, p, TAG) != 0)
                        return 0;
        for (size_t from = HEAD, k; from < len; from += k + TAG) {
                k = min_of(SECTOR - from % SECTOR, len - from);
                memmove(to + n, p + from, k);
                n += k;
        }
        *ret_records = (struct view){to, n};
        return whole_sectors(len);
}

bool sealed_next(struct view *records, struct store_entry *ret)
{
        struct reader rd = {.in = *records};
        uint32_t len;

        ret->index = reader_u64(&rd);
        ret->term = reader_u64(&rd);
        ret->type = reader_u8(&rd);
        len = reader_u32(&rd);
        ret->data = reader_take(&rd, len);
        reader_check(&rd, ret->index > 0);
        if (rd.r == 0)
                *records = rd.in;
        return rd.r == 0;
}

bool sealed_is_torn(const uint8_t *file, size_t size, uint64_t seq, size_t at)
{
        bool hole = at == 0; /* the head of the file is one */
        size_t len = 0;

        if (hole && !all_zero(file, min_of((size_t) SECTOR, size)))
                return false;
        at = max_of(at, (size_t) SECTOR);
        for (size_t next = at; next < size; next += SECTOR) {
                const uint8_t *p = file + next;
                size_t k;

                if (all_zero(p, min_of((size_t) SECTOR, size - next))) {
                        hole |= len == 0 || next - at < len;
                        continue;
                }
                k = size - next >= SECTOR ? tag_get(p, (struct place){seq, at}) : 0;
                if (next - at >= k || (len > 0 && k != len))
                        return false;
                len = k;
        }
        return hole && len > 0 && fits(len, size - at);
}
