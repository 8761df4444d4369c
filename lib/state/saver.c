/*
 * The state as bytes, little endian; the store's record adds the checksum. Equal state gives
 * equal bytes on every replica (I4).
 */
/* clang-format off */
/*
 *     snapshot = revision:u64 compacted:u64 applied:u64 time:u64
 *                n:u64 lease*      lease   = slot:u32 id:u64 ttl_ms:u64 born:u64 renewed:u64 end:u64 name:bytes
 *                n:u64 key*        key     = key:bytes n:varint version*, oldest first
 *                                  version = mod:u64 create:u64 version:u64 lease:u64 sub:u32 value:bytes
 *                n:u64 member*     member  = id:u64 name:bytes client_urls:bytes
 *                n:u64 alarm*      alarm   = member:u64 (type | why * 16):u8
 *                auth              = revision:u64 enabled:u8 secret:32 n:u64 user* n:u64 role*
 *                                  user    = name:bytes hash:bytes no_password:u8 login:u64 n:u64 (role:bytes)*
 *                                  role    = name:bytes n:u64 (type:u8 key:bytes range_end:bytes)*
 *                owners            = n:u64 (slot:u32 user:bytes)*, and nothing where no lease has one, unless:
 *                cached            = last_serial:u64 n:u64 range*, and nothing where there never was one
 *                                  range   = serial:u64 flags:u8 key:bytes range_end:bytes awaited_at:u64 rests_until:u64
 *                                            n:u64 (issuer:u64 until:u64)*
 */
/* clang-format on */
#include "state/saver.h"
#include "base/hash.h"
#include "base/le.h"

#define VERSION_LEN 36    /* of an encoded version, without its value */
#define BYTES_PER_STEP 16 /* bytes to encode per step of the iterator */

/* Writes all but the value, which follows. */
static void save_version(const struct kv_version *v, struct buf *out)
{
        buf_add_u64(out, (uint64_t) v->mod_revision);
        buf_add_u64(out, (uint64_t) v->create_revision);
        buf_add_u64(out, (uint64_t) v->version);
        buf_add_u64(out, (uint64_t) v->lease);
        buf_add_u32(out, v->sub);
        buf_add_varint(out, v->value_len);
}

#define LEASE_LEN 44 /* without the name */

/* Encoded by hand, since there may be a million. */
static void save_lease(const struct lease_then *l, struct buf *out)
{
        uint8_t *to = buf_reserve(out, LEASE_LEN + VARINT_MAX + l->name.len), *p = to;

        if (!to)
                return;
        le32_put(p, l->slot);
        le64_put(p + 4, (uint64_t) l->id);
        le64_put(p + 12, (uint64_t) l->ttl_ms);
        le64_put(p + 20, l->born);
        le64_put(p + 28, l->renewed);
        le64_put(p + 36, (uint64_t) l->end.ns);
        p = varint_put(p + LEASE_LEN, l->name.len);
        if (l->name.len > 0)
                memcpy(p, l->name.p, l->name.len);
        buf_commit(out, (size_t) (p - to) + l->name.len);
}

/* Returns 0 at the end, 1 if there are more, -ESTALE or -ENOMEM. */
static int save_leases(struct state_saver *sv, size_t until, int64_t *steps)
{
        struct lease_then l;
        int r = 1;

        while (buf_len(&sv->out) < until && (r = lease_past_next(&sv->leases, steps, &l)) > 0) {
                save_lease(&l, &sv->out);
                if (l.owner.len == 0)
                        continue;
                sv->n_owners++;
                buf_add_u32(&sv->owners, l.slot);
                buf_add_bytes(&sv->owners, l.owner.p, l.owner.len);
        }
        if (r != 0)
                return r == -EAGAIN ? 1 : r;
        sv->leases_done = true;
        if (sv->n_owners > 0 || buf_len(&sv->cached) > 0) {
                buf_add_u64(&sv->tail, sv->n_owners);
                buf_add(&sv->tail, buf_head(&sv->owners), buf_len(&sv->owners));
                buf_add(&sv->tail, buf_head(&sv->cached), buf_len(&sv->cached));
        }
        if (buf_error(&sv->owners) < 0 || buf_error(&sv->cached) < 0 ||
            buf_error(&sv->tail) < 0)
                return -ENOMEM;
        buf_fini(&sv->owners);
        buf_fini(&sv->cached);
        buf_add_u64(&sv->out, sv->n_keys);
        return 0;
}

static void save_tail(const struct state *s, struct buf *out)
{
        buf_add_u64(out, s->n_members);
        for (size_t i = 0; i < s->n_members; i++) {
                buf_add_u64(out, s->members[i].id);
                buf_add_bytes(out, s->members[i].name, strlen(s->members[i].name));
                buf_add_bytes(out, s->members[i].client_urls,
                              strlen(s->members[i].client_urls));
        }
        buf_add_u64(out, s->n_alarms);
        for (size_t i = 0; i < s->n_alarms; i++) {
                buf_add_u64(out, s->alarms[i].member);
                buf_add_u8(out, (uint8_t) ((unsigned) s->alarms[i].type |
                                           (unsigned) s->alarms[i].why << 4));
        }
        auth_save(&s->auth, out);
}

/* The length of @out after @bytes more. */
static size_t up_to(const struct buf *out, size_t bytes)
{
        return bytes < SIZE_MAX - buf_len(out) ? buf_len(out) + bytes : bytes;
}

#define MISSED_MAX 8 /* after this many failed attempts it is encoded in one go */

/* Returns 0 at the end, 1 if there is more, -ESTALE or -ENOMEM. */
static int save_auth(struct state_saver *sv, size_t bytes)
{
        struct auth *a = &sv->state->auth;

        if (sv->auth_done)
                return 0;
        if (sv->leases.pinned && !sv->leases.of)
                return -ESTALE; /* another state was loaded */
        if (a->revision != sv->auth_revision) {
                a->n_missed++;
                return -ESTALE;
        }
        if (a->n_missed >= MISSED_MAX)
                bytes = SIZE_MAX;
        sv->auth_done = auth_save_some(a, &sv->auth_at, up_to(&sv->tail, bytes), &sv->tail);
        if (buf_error(&sv->tail) < 0)
                return -ENOMEM;
        if (sv->auth_done)
                a->n_missed = 0;
        return !sv->auth_done;
}

static void save_start(struct state_saver *sv, struct state *s, bool pin)
{
        state_saver_fini(sv);
        sv->state = s;
        sv->auth_revision = s->auth.revision;
        kv_iter_history(&sv->keys, &s->kv, s->revision);
        if (pin)
                kv_iter_pin(&sv->keys, &s->kv);
        lease_past_begin(&sv->leases, s, pin);
        buf_add_u64(&sv->out, (uint64_t) s->revision);
        buf_add_u64(&sv->out, (uint64_t) s->kv.compacted);
        buf_add_u64(&sv->out, s->applied);
        buf_add_u64(&sv->out, (uint64_t) s->time.ns);
        buf_add_u64(&sv->out, s->leases.n);
        sv->n_keys = s->kv.n_all;
        save_tail(s, &sv->tail);
        cached_save(&s->cached, &sv->cached);
}

void state_save_start(struct state_saver *sv, struct state *s)
{
        save_start(sv, s, true);
}

static int64_t steps_of(size_t bytes)
{
        return (int64_t) (bytes / BYTES_PER_STEP + 1);
}

static size_t varint_len(uint64_t n)
{
        uint8_t out[VARINT_MAX];

        return (size_t) (varint_put(out, n) - out);
}

static size_t bytes_len(size_t n)
{
        return varint_len(n) + n;
}

int state_save_count(struct state_saver *sv, size_t bytes)
{
        struct kv_iter *it = &sv->keys;
        int64_t steps = steps_of(bytes);
        int r;

        r = save_auth(sv, bytes);
        if (r != 0)
                return r;
        if (!sv->leases_done) {
                r = save_leases(sv, up_to(&sv->out, bytes), &steps);
                if (r == 0)
                        sv->size = buf_len(&sv->out) + buf_len(&sv->tail);
                return r < 0 ? r : 1;
        }
        while ((r = kv_iter_next(it, &steps)) > 0)
                if (r == KV_PAUSE)
                        return 1;
                else if (r == KV_KEY)
                        sv->size += bytes_len(it->key->len) + varint_len(it->n);
                else
                        sv->size += VERSION_LEN + bytes_len(it->version->value_len);
        if (r == 0)
                kv_iter_rewind(it);
        return r;
}

/* Begins to copy a key's name or a value in pieces, since either may be large. Both stay in
 * memory as long as the iterator is good. */
static void part_begin(struct state_saver *sv, const uint8_t *p, size_t n)
{
        sv->part = (struct view){p, n};
        sv->has_part = true;
}

static void part_go_on(struct state_saver *sv, size_t most)
{
        size_t n = min_of(most, sv->part.len);

        buf_add(&sv->out, sv->part.p, n);
        sv->part.p += n;
        sv->part.len -= n;
        if (sv->part.len > 0)
                return;
        sv->has_part = false;
        if (sv->n_versions > 0) /* the part was the key's name */
                buf_add_varint(&sv->out, sv->n_versions);
        sv->n_versions = 0;
}

int state_save_more(struct state_saver *sv, size_t bytes)
{
        struct buf *out = &sv->out;
        struct kv_iter *it = &sv->keys;
        size_t until = up_to(out, bytes);
        int64_t steps = steps_of(bytes);
        int r = save_auth(sv, bytes);

        if (r == 0 && !sv->leases_done)
                r = save_leases(sv, until, &steps);
        if (r != 0)
                return r < 0 || buf_error(out) == 0 ? r : -ENOMEM;
        if (sv->has_part && !kv_iter_is_good(it))
                return -ESTALE;
        while (buf_len(out) < until && buf_error(out) == 0) {
                if (sv->has_part) {
                        part_go_on(sv, until - buf_len(out));
                        continue;
                }
                r = kv_iter_next(it, &steps);
                if (r < 0)
                        return r;
                if (r == KV_PAUSE)
                        break;
                if (r == KV_KEY) {
                        sv->n_keys--;
                        buf_add_varint(out, it->key->len);
                        part_begin(sv, it->key->bytes, it->key->len);
                        sv->n_versions = it->n;
                } else if (r == KV_VERSION) {
                        save_version(it->version, out);
                        part_begin(sv, it->version->value, it->version->value_len);
                } else {
                        if (sv->n_keys != 0) /* there are fewer keys than announced */
                                return -ESTALE;
                        buf_add(out, buf_head(&sv->tail), buf_len(&sv->tail));
                        if (buf_error(&sv->tail) < 0)
                                return -ENOMEM;
                        return buf_error(out);
                }
        }
        return buf_error(out) < 0 ? -ENOMEM : 1;
}

size_t state_saver_bytes(const struct state_saver *sv)
{
        return sv->out.cap + sv->tail.cap + sv->owners.cap + sv->cached.cap;
}

void state_saver_fini(struct state_saver *sv)
{
        kv_iter_fini(&sv->keys);
        lease_past_fini(&sv->leases);
        buf_fini(&sv->out);
        buf_fini(&sv->tail);
        buf_fini(&sv->owners);
        buf_fini(&sv->cached);
        *sv = (struct state_saver){0};
}

void state_save(const struct state *s, struct buf *out)
{
        struct state_saver sv = {0};

        save_start(&sv, (struct state *) (uintptr_t) s, false);
        if (state_save_more(&sv, SIZE_MAX) < 0)
                out->failed = true;
        else
                buf_add(out, buf_head(&sv.out), buf_len(&sv.out));
        state_saver_fini(&sv);
}

uint64_t state_hash(const struct state *s)
{
        cleanup_(buf_fini) struct buf b = {0};

        state_save(s, &b);
        return hash_end(hash_add_words(HASH_START, buf_head(&b), buf_len(&b)));
}
