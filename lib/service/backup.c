/* The state as a file: what Maintenance/Snapshot streams and `tenure-core --restore` reads. */
#include <sha2.h>

#include "base/crc32c.h"
#include "base/le.h"
#include "service/core.h"

#define BLOCK 512
#define MAGIC_LEN (sizeof(CORE_SNAPSHOT_MAGIC) - 1)

static void digest_of(struct view v, uint8_t out[static SHA256_DIGEST_LENGTH])
{
        SHA2_CTX ctx;

        SHA256Init(&ctx);
        SHA256Update(&ctx, v.p, v.len);
        SHA256Final(out, &ctx);
}

/* As etcd's files end: padded to whole blocks, then their SHA-256, which etcdctl checks. */
static void seal(struct buf *out)
{
        uint8_t digest[SHA256_DIGEST_LENGTH];

        while (buf_len(out) % BLOCK != 0 && !out->failed)
                buf_add_u8(out, 0);
        if (out->failed)
                return;
        digest_of((struct view){buf_head(out), buf_len(out)}, digest);
        buf_add(out, digest, sizeof(digest));
}

void core_snapshot(struct core *c, struct buf *out)
{
        cleanup_(buf_fini) struct buf state = {0};

        state_save(core_state(c), &state);
        if (buf_error(&state) < 0) {
                out->failed = true;
                return;
        }
        buf_add(out, CORE_SNAPSHOT_MAGIC, MAGIC_LEN);
        buf_add_u64(out, buf_len(&state));
        buf_add(out, buf_head(&state), buf_len(&state));
        buf_add_u32(out, crc32c(0, buf_head(&state), buf_len(&state)));
        seal(out);
}

int core_snapshot_check(struct view file, struct view *ret_state, uint64_t *ret_index,
                        int64_t *ret_revision, size_t *ret_n_keys, size_t *ret_n_leases)
{
        uint8_t digest[SHA256_DIGEST_LENGTH];
        struct view magic, data;
        struct state s;
        uint64_t len;
        uint32_t crc;
        int r;

        if (file.len < sizeof(digest) || (file.len - sizeof(digest)) % BLOCK != 0)
                return -EBADMSG;
        file.len -= sizeof(digest);
        digest_of(file, digest);
        if (memcmp(digest, file.p + file.len, sizeof(digest)) != 0)
                return -EBADMSG;
        r = view_take(&file, MAGIC_LEN, &magic);
        if (r == 0)
                r = view_u64(&file, &len);
        if (r == 0)
                r = view_take(&file, len, &data);
        if (r == 0)
                r = view_u32(&file, &crc);
        if (r < 0)
                return r;
        if (memcmp(magic.p, CORE_SNAPSHOT_MAGIC, MAGIC_LEN) != 0 || file.len >= BLOCK ||
            crc32c(0, data.p, data.len) != crc)
                return -EBADMSG;
        r = state_load(&s, data);
        if (r < 0)
                return r;
        *ret_state = data;
        *ret_index = s.applied;
        *ret_revision = s.revision;
        *ret_n_keys = s.kv.n_keys;
        *ret_n_leases = s.leases.n;
        state_fini(&s);
        return 0;
}
