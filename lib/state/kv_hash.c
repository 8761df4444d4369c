#include "state/kv_hash.h"

#include "base/hash.h"

#define BYTES_PER_STEP 16

void kv_hash_start(struct kv_hasher *h, struct kv *kv, int64_t revision)
{
        kv_iter_fini(&h->it);
        kv_iter_history(&h->it, kv, revision);
        kv_iter_pin(&h->it, kv);
        h->hash = HASH_START;
}

void kv_hash_fini(struct kv_hasher *h)
{
        kv_iter_fini(&h->it);
}

static size_t hash_version(struct kv_hasher *h, const struct kv_version *v)
{
        int64_t numbers[] = {v->mod_revision, v->create_revision, v->version, v->lease};

        h->hash = hash_add(h->hash, v->key->bytes, v->key->len);
        h->hash = hash_add(h->hash, numbers, sizeof(numbers));
        h->hash = hash_add(h->hash, v->value, v->value_len);
        return sizeof(numbers) + v->key->len + v->value_len;
}

int kv_hash_more(struct kv_hasher *h, size_t bytes, uint32_t *ret)
{
        int64_t steps = (int64_t) (bytes / BYTES_PER_STEP + 1);
        int r;

        while ((r = kv_iter_next(&h->it, &steps)) > 0) {
                if (r == KV_PAUSE)
                        return 1;
                if (r == KV_VERSION)
                        steps -= (int64_t) (hash_version(h, h->it.version) / BYTES_PER_STEP);
        }
        if (r < 0)
                return r;
        h->hash = hash_end(h->hash);
        *ret = (uint32_t) (h->hash ^ h->hash >> 32);
        return 0;
}
