#include "etcd/backup.h"

#include "base/crc32c.h"
#include "base/le.h"
#include "state/loader.h"
#include "state/saver.h"

#define MAGIC "TENSNAP1"
#define MAGIC_LEN (sizeof(MAGIC) - 1)
#define BLOCK 512
#define SLICE ((size_t) 1 << 20) /* of a state, encoded at once */
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

/* The caller finishes the state in any case. */
static int load(struct backup_content *c, struct state *s)
{
        struct state_loader l;
        struct budget all = BUDGET_ALL;
        int r;

        state_load_start(&l, s, c->state);
        r = state_load_some(&l, &all);
        memcpy(c->wrong, l.wrong, sizeof(c->wrong));
        return r;
}

static int check_state(struct backup_content *c)
{
        struct state s;
        int r = load(c, &s);

        c->index = s.applied;
        c->revision = s.revision;
        c->n_keys = s.kv.n_keys;
        c->n_leases = s.leases.n;
        state_fini(&s);
        return r;
}

int backup_check(struct view file, struct backup_content *ret)
{
        SHA2_CTX sha;
        struct view magic;
        uint64_t len;
        uint32_t crc;
        int r;

        *ret = (struct backup_content){0};
        if (file.len < sizeof(ret->digest) || (file.len - sizeof(ret->digest)) % BLOCK != 0)
                return -EBADMSG;
        file.len -= sizeof(ret->digest);
        SHA256Init(&sha);
        SHA256Update(&sha, file.p, file.len);
        SHA256Final(ret->digest, &sha);
        if (memcmp(ret->digest, file.p + file.len, sizeof(ret->digest)) != 0)
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

static int save(struct state *s, struct buf *out)
{
        struct state_saver sv = {0};
        int r;

        state_save_start(&sv, s);
        do
                r = state_save_more(&sv, SLICE);
        while (r == 1);
        *out = sv.out;
        sv.out = (struct buf){0};
        state_saver_fini(&sv);
        return r;
}

int backup_bump(struct backup_content *c, uint64_t by, struct buf *out)
{
        struct budget all = BUDGET_ALL;
        struct state s;
        int r;

        if (by > (uint64_t) (INT64_MAX - c->revision))
                return -EOVERFLOW;
        r = load(c, &s);
        if (r == 0) {
                c->revision = s.revision += (int64_t) by;
                while (!kv_compact_some(&s.kv, s.revision, &all))
                        all = BUDGET_ALL;
                r = save(&s, out);
        }
        state_fini(&s);
        c->state = (struct view){buf_head(out), buf_len(out)};
        return r;
}
