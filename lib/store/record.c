#include "store/internal.h"

#include "base/crc32c.h"
#include "base/le.h"

#define RECORD_HEADER 32
#define RECORD_MAX ((uint32_t) 1 << 30)

void record_add(struct buf *b, uint32_t batch, const struct store_entry *e)
{
        static const uint8_t zeroes[8] = {0};
        uint8_t h[RECORD_HEADER] = {0};

        le32_put(h + 4, (uint32_t) e->data.len);
        le64_put(h + 8, e->index);
        le64_put(h + 16, e->term);
        le32_put(h + 24, batch);
        h[28] = e->type;
        h[29] = buf_len(b) == 0; /* the first of its batch */
        le32_put(h, crc32c(crc32c(0, h + 4, sizeof(h) - 4), e->data.p, e->data.len));
        buf_add(b, h, sizeof(h));
        buf_add(b, e->data.p, e->data.len);
        buf_add(b, zeroes, (8 - e->data.len % 8) % 8);
}

size_t record_size(size_t len)
{
        return RECORD_HEADER + (len + 7) / 8 * 8;
}

size_t record_read(const uint8_t *file, size_t size, size_t at, struct record *rec)
{
        const uint8_t *h = file + at;
        uint32_t len;

        if (size - at < RECORD_HEADER)
                return 0;
        len = le32_get(h + 4);
        if (len > RECORD_MAX || record_size(len) > size - at)
                return 0;
        if (crc32c(0, h + 4, RECORD_HEADER - 4 + len) != le32_get(h))
                return 0;
        rec->entry = (struct store_entry){
                .index = le64_get(h + 8),
                .term = le64_get(h + 16),
                .type = h[28],
                .data = {h + RECORD_HEADER, len},
        };
        rec->batch = le32_get(h + 24);
        rec->first = h[29] == 1;
        return rec->entry.index > 0 ? record_size(len) : 0;
}

bool all_zero(const uint8_t *p, size_t n)
{
        for (size_t i = 0; i < n; i++)
                if (p[i])
                        return false;
        return true;
}

/* Checksums from the beginning of a file to each of its blocks, so that the checksum of any
 * part costs the same. Otherwise, values of clients that look like long records could make
 * recovery read the same bytes again and again. */
struct sums {
        const uint8_t *file;
        uint32_t *of; /* owned; NULL if memory is short: then each part is read */
};

#define SUM_BLOCK 32

static void sums_fini(struct sums *s)
{
        free(s->of);
}

static struct sums sums_of(const uint8_t *file, size_t size)
{
        struct sums s = {file, calloc(size / SUM_BLOCK + 1, sizeof(uint32_t))};

        for (size_t i = 1; s.of && i <= size / SUM_BLOCK; i++)
                s.of[i] = crc32c(s.of[i - 1], file + (i - 1) * SUM_BLOCK, SUM_BLOCK);
        return s;
}

static uint32_t sum_to(const struct sums *s, size_t end)
{
        size_t block = end / SUM_BLOCK;

        return crc32c(s->of[block], s->file + block * SUM_BLOCK, end % SUM_BLOCK);
}

static uint32_t sum_between(const struct sums *s, size_t from, size_t end)
{
        if (!s->of)
                return crc32c(0, s->file + from, end - from);
        return sum_to(s, end) ^ crc32c_shift(sum_to(s, from), (uint32_t) (end - from));
}

/* Whether a record of a write after @last_batch is at @at. */
static bool is_later(const struct sums *s, size_t size, size_t at, uint32_t last_batch)
{
        const uint8_t *h = s->file + at;
        uint32_t len, batch;

        if (size - at < RECORD_HEADER)
                return false;
        len = le32_get(h + 4);
        batch = le32_get(h + 24);
        return (batch > last_batch + 1 || (batch == last_batch + 1 && h[29] == 1)) &&
               len <= RECORD_MAX && record_size(len) <= size - at && le64_get(h + 8) > 0 &&
               h[29] <= 1 && h[30] == 0 && h[31] == 0 &&
               sum_between(s, at + 4, at + RECORD_HEADER + len) == le32_get(h);
}

bool record_is_torn(const uint8_t *file, size_t size, size_t at, uint32_t last_batch)
{
        uint32_t len = size - at >= RECORD_HEADER ? le32_get(file + at + 4) : 0;
        size_t end = at + RECORD_HEADER + (len <= RECORD_MAX ? len : 0);
        cleanup_(sums_fini) struct sums sums = {0};
        bool hole = false;

        if (size - at < RECORD_HEADER ||
            (!all_zero(file + at, RECORD_HEADER) && (len > RECORD_MAX || end > size)))
                return false;
        /* A sector that was not written is zero to its end. */
        for (size_t a = at; a < min_of(end, size); a = (a / SECTOR + 1) * SECTOR) {
                size_t sector_end = (a / SECTOR + 1) * SECTOR;

                hole = hole || all_zero(file + a, min_of(sector_end, size) - a);
        }
        if (!hole)
                return false;
        /* The next write began only after this one had been synced. So if the next write has a
         * record there, it was the disk that lost this one, not a crash. */
        sums = sums_of(file, size);
        for (size_t a = (at + 8) & ~(size_t) 7; a < size; a += 8)
                if (is_later(&sums, size, a, last_batch))
                        return false;
        return true;
}
