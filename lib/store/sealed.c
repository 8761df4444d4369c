/*
 * Format 2 of the log: the entries of one write to the disk are sealed as a whole.
 *
 * A crash may leave some sectors of the last write as they were before: all zeroes. To tell
 * these from zeroes that a client stored, there is a tag in each sector that a write covers:
 * one at its beginning, one at each multiple of 512 bytes from there, and one at its end. A tag
 * is the length of the write, with a checksum. So one sector that was written is enough to know
 * where the write ends; only zeroes may follow.
 *
 * The tags' places are fixed by where the write begins, and no data is ever there, so that no
 * value of a client passes for a tag. With one exception: if a sector that held the beginnings
 * of two writes reads as zeroes, the first one's length is not known, and a value in the second
 * one may imitate a tag of a longer first one. Then both count as one write that was torn.
 */
#include "base/crc32c.h"
#include "base/le.h"
#include "store/internal.h"

#define FILE_HEAD 16
#define TAG 8
#define HEAD (TAG + 4) /* of a write: a tag and the checksum */
#define RECORD 21      /* before an entry's data */

static const uint8_t zeroes[FILE_HEAD + HEAD];

/* Appends to the write, which begins behind the head of a file. */
static void add(struct buf *b, const void *p, size_t n)
{
        const uint8_t *from = p;

        while (n > 0) {
                size_t at = (buf_len(b) - FILE_HEAD) % SECTOR, k;

                if (at == 0) {
                        buf_add(b, zeroes, TAG);
                        at = TAG;
                }
                k = min_of(n, SECTOR - at);
                buf_add(b, from, k);
                from += k;
                n -= k;
        }
}

void sealed_add(struct buf *b, const struct store_entry *e)
{
        uint8_t h[RECORD];

        /* All at once: a buffer that grows piece by piece may be copied each time. */
        (void) buf_reserve(b, FILE_HEAD + HEAD + RECORD + e->data.len +
                                      (e->data.len / (SECTOR - TAG) + 2) * TAG);
        if (buf_len(b) == 0)
                buf_add(b, zeroes, FILE_HEAD + HEAD);
        le64_put(h, e->index);
        le64_put(h + 8, e->term);
        h[16] = e->type;
        le32_put(h + 17, (uint32_t) e->data.len);
        add(b, h, sizeof(h));
        add(b, e->data.p, e->data.len);
}

/* Without the head of the file. */
static size_t padded(const struct buf *b)
{
        return (buf_len(b) - FILE_HEAD + 7) / 8 * 8;
}

size_t sealed_size(const struct buf *b)
{
        return FILE_HEAD + padded(b) + TAG;
}

void sealed_end(struct buf *b, uint64_t seq)
{
        size_t len = padded(b) + TAG;
        uint8_t *p, tag[TAG];

        buf_add(b, zeroes, FILE_HEAD + len - buf_len(b));
        if (buf_error(b) < 0)
                return;
        p = buf_head(b);
        le32_put(p + 4, FORMAT_SEALED);
        le64_put(p + 8, seq);
        le32_put(p, crc32c(0, p + 4, FILE_HEAD - 4));
        p += FILE_HEAD;
        le32_put(tag, (uint32_t) len);
        le32_put(tag + 4, crc32c(0, tag, 4));
        for (size_t at = 0; at < len; at += SECTOR)
                memcpy(p + at, tag, TAG);
        memcpy(p + len - TAG, tag, TAG);
        le32_put(p + TAG, crc32c(0, p + HEAD, len - HEAD - TAG));
        if (seq == 0)
                buf_consume(b, FILE_HEAD);
}

size_t sealed_begin(const uint8_t *file, size_t size, uint64_t seq)
{
        bool begins = size >= FILE_HEAD &&
                      le32_get(file) == crc32c(0, file + 4, FILE_HEAD - 4) &&
                      le32_get(file + 4) == FORMAT_SEALED && le64_get(file + 8) == seq;

        return begins ? FILE_HEAD : 0;
}

/* The length that the tag at @at gives to a write; 0: there is none. */
static size_t tag_get(const uint8_t *file, size_t size, size_t at)
{
        if (at > size || size - at < TAG || le32_get(file + at + 4) != crc32c(0, file + at, 4))
                return 0;
        return le32_get(file + at);
}

/* Whether the write of @len bytes at @at has its tag at @tag. If it has not because nothing of
 * the sector was written, that is a hole. */
static bool tag_is_sound(const uint8_t *file, size_t at, size_t len, size_t tag, bool *hole)
{
        size_t sector = tag / SECTOR * SECTOR, from = max_of(at, sector);

        if (tag_get(file, at + len, tag) == len)
                return true;
        *hole = true;
        return all_zero(file + from, min_of(sector + SECTOR, at + len) - from);
}

/* The same for all of its tags. */
static bool tags_are_sound(const uint8_t *file, size_t size, size_t at, size_t len,
                           bool *ret_hole)
{
        *ret_hole = false;
        if (len < HEAD + TAG || len % 8 != 0 || len > size - at ||
            !tag_is_sound(file, at, len, at + len - TAG, ret_hole))
                return false;
        for (size_t next = 0; next < len; next += SECTOR)
                if (!tag_is_sound(file, at, len, at + next, ret_hole))
                        return false;
        return true;
}

size_t sealed_read(uint8_t *file, size_t size, size_t at, struct view *ret_records)
{
        size_t len = tag_get(file, size, at), n = 0;
        uint8_t *p = file + at, *to = p + HEAD;
        bool hole;

        if (!tags_are_sound(file, size, at, len, &hole) || hole ||
            le32_get(p + TAG) != crc32c(0, p + HEAD, len - HEAD - TAG))
                return 0;
        for (size_t from = HEAD, k; from < len - TAG; from += k + TAG) {
                k = min_of(SECTOR - from % SECTOR, len - TAG - from);
                memmove(to + n, p + from, k);
                n += k;
        }
        *ret_records = (struct view){to, n};
        return len;
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

/* The length of the write at @at, by a tag that is left of it; 0: no crash left it so. */
static size_t torn_length(const uint8_t *file, size_t size, size_t at)
{
        size_t sector_end = (at / SECTOR + 1) * SECTOR, end = size, tag, len;

        if (!all_zero(file + at, min_of(sector_end, size) - at))
                return tag_get(file, size, at);
        while (file[end - 1] == 0)
                end--;
        end = (end + 7) / 8 * 8;
        /* The last sector that is left holds a tag in the middle or, if the write ends before
         * that, one at its end. */
        tag = (end - 1) / SECTOR * SECTOR + at % SECTOR;
        if (tag < end)
                return tag_get(file, size, tag);
        len = tag_get(file, size, end - TAG);
        return len == end - at ? len : 0;
}

bool sealed_is_torn(const uint8_t *file, size_t size, size_t at)
{
        size_t len;
        bool hole;

        if (at == 0) {
                if (!all_zero(file, min_of((size_t) SECTOR, size)))
                        return false;
                at = FILE_HEAD;
        }
        len = torn_length(file, size, at);
        return tags_are_sound(file, size, at, len, &hole) && hole &&
               all_zero(file + at + len, size - at - len);
}
