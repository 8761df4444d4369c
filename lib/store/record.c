#include "store/internal.h"

#include "base/crc32c.h"
#include "base/le.h"

#define SECTOR 512
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

bool record_is_torn(const uint8_t *file, size_t size, size_t at, uint32_t last_batch)
{
        uint32_t len = size - at >= RECORD_HEADER ? le32_get(file + at + 4) : 0;
        size_t end = at + RECORD_HEADER + (len <= RECORD_MAX ? len : 0);
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
        /* The next write began only after this one had been synced. So if a record of it is
         * there, the disk lost this one; a crash did not. */
        for (size_t a = (at + 8) & ~(size_t) 7; a < size; a += 8) {
                struct record rec;

                if (record_read(file, size, a, &rec) > 0 &&
                    (rec.batch > last_batch + 1 || (rec.batch == last_batch + 1 && rec.first)))
                        return false;
        }
        return true;
}
