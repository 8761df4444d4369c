#include "etcd/backup.h"

#include "base/crc32c.h"
#include "base/le.h"
#include "state/loader.h"

#define MAGIC "TENSNAP1"
#define MAGIC_LEN (sizeof(MAGIC) - 1)
#define BLOCK 512
_Static_assert(MAGIC_LEN + 8 == BACKUP_HEAD, "the head of a snapshot");

uint64_t backup_size(uint64_t state_len)
{
        uint64_t n = MAGIC_LEN + 8 + state_len + 4;

        return (n + BLOCK - 1) / BLOCK * BLOCK + SHA256_DIGEST_LENGTH;
}

int backup_size_by_head(const uint8_t head[static BACKUP_HEAD], uint64_t *ret)
{
        uint64_t len = le64_get(head + MAGIC_LEN);

        if (memcmp(head, MAGIC, MAGIC_LEN) != 0 || len > UINT64_MAX / 2)
                return -EBADMSG;
        *ret = backup_size(len);
        return 0;
}

static void count(struct backup *b, const void *p, size_t n)
{
        SHA256Update(&b->sha, p, n);
        b->size += n;
}

void backup_begin(struct backup *b, uint64_t state_len, struct buf *out)
{
        uint8_t len[8];

        *b = (struct backup){0};
        SHA256Init(&b->sha);
        le64_put(len, state_len);
        count(b, MAGIC, MAGIC_LEN);
        count(b, len, sizeof(len));
        buf_add(out, MAGIC, MAGIC_LEN);
        buf_add(out, len, sizeof(len));
}

void backup_state(struct backup *b, struct view piece)
{
        b->crc = crc32c(b->crc, piece.p, piece.len);
        count(b, piece.p, piece.len);
}

void backup_end(struct backup *b, struct buf *out)
{
        uint8_t end[4 + BLOCK] = {0}, digest[SHA256_DIGEST_LENGTH];
        size_t n = 4 + (BLOCK - (b->size + 4) % BLOCK) % BLOCK;

        le32_put(end, b->crc);
        count(b, end, n);
        SHA256Final(digest, &b->sha);
        buf_add(out, end, n);
        buf_add(out, digest, sizeof(digest));
}

static int check_state(struct backup_content *c)
{
        struct state_loader l;
        struct budget all = BUDGET_ALL;
        struct state s;
        int r;

        state_load_start(&l, &s, c->state);
        r = state_load_some(&l, &all);
        state_loader_fini(&l);
        memcpy(c->wrong, l.wrong, sizeof(c->wrong));
        c->index = s.applied;
        c->revision = s.revision;
        c->n_keys = s.kv.n_keys;
        c->n_leases = s.leases.n;
        state_fini(&s);
        return r;
}

int backup_check(struct view file, struct backup_content *ret)
{
        uint8_t digest[SHA256_DIGEST_LENGTH];
        SHA2_CTX sha;
        struct view magic;
        uint64_t len;
        uint32_t crc;
        int r;

        *ret = (struct backup_content){0};
        if (file.len < sizeof(digest) || (file.len - sizeof(digest)) % BLOCK != 0)
                return -EBADMSG;
        file.len -= sizeof(digest);
        SHA256Init(&sha);
        SHA256Update(&sha, file.p, file.len);
        SHA256Final(digest, &sha);
        if (memcmp(digest, file.p + file.len, sizeof(digest)) != 0)
                return -EBADMSG;
        r = view_take(&file, MAGIC_LEN, &magic);
        if (r == 0)
                r = view_u64(&file, &len);
        if (r == 0)
                r = view_take(&file, len, &ret->state);
        if (r == 0)
                r = view_u32(&file, &crc);
        if (r < 0)
                return r;
        if (memcmp(magic.p, MAGIC, MAGIC_LEN) != 0 || file.len >= BLOCK ||
            crc32c(0, ret->state.p, ret->state.len) != crc)
                return -EBADMSG;
        return check_state(ret);
}
