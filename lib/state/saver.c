#include "state/saver.h"

#define BYTES_PER_STEP 16 /* bytes to encode per step of the iterator */
#define LEASE_BYTES 64    /* about; less an owner */

/* Returns 0 at the end, 1 if there are more, -ESTALE or -ENOMEM. */
static int save_leases(struct state_saver *sv, size_t until, int64_t *steps)
{
        struct lease_then l;
        int r = 1;

        while (buf_len(&sv->out) < until && (r = lease_past_next(&sv->leases, steps, &l)) > 0) {
                snapshot_save_lease(&l, &sv->out);
                if (l.owner.len == 0)
                        continue;
                sv->n_owners++;
                snapshot_save_owner(&l, &sv->owners);
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
        for (size_t i = 0; i < s->n_members; i++)
                snapshot_save_member(
                        &(struct saved_member){s->members[i].id, view_str(s->members[i].name),
                                               view_str(s->members[i].client_urls)},
                        out);
        buf_add_u64(out, s->n_alarms);
        for (size_t i = 0; i < s->n_alarms; i++)
                snapshot_save_alarm(&(struct saved_alarm){s->alarms[i].member,
                                                          (uint8_t) (s->alarms[i].type +
                                                                     16 * s->alarms[i].why)},
                                    out);
        snapshot_save_auth(&s->auth, out);
        buf_add_u64(out, s->auth.n_users);
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
        if (!sv->leases.of)
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

void state_save_start(struct state_saver *sv, struct state *s)
{
        state_saver_fini(sv);
        sv->state = s;
        sv->auth_revision = s->auth.revision;
        kv_iter_history(&sv->keys, &s->kv, s->revision);
        kv_iter_pin(&sv->keys, &s->kv);
        lease_past_begin(&sv->leases, s);
        snapshot_save_head(s, &sv->out);
        buf_add_u64(&sv->out, s->leases.n);
        sv->n_keys = s->kv.n_all;
        save_tail(s, &sv->tail);
        if (s->cached.last_serial > 0 || s->cluster_version > CLUSTER_0_1)
                cached_save(&s->cached, &sv->cached);
        if (s->cluster_version > CLUSTER_0_1)
                snapshot_save_cluster(s, &sv->cached);
        if (s->descent.cluster != 0)
                snapshot_save_descent(&s->descent, &sv->cached);
}

static int64_t steps_of(size_t bytes)
{
        return (int64_t) (bytes / BYTES_PER_STEP + 1);
}

/* Saves the key or version that the iterator has come to. The bytes of its name or value may be
 * many, and are copied in parts. They stay in memory as long as the iterator is good. */
static void save_next(struct state_saver *sv, int what)
{
        const struct kv_iter *it = &sv->keys;
        const struct kv_version *v = it->version;

        sv->has_part = true;
        if (what == KV_KEY) {
                sv->part = (struct view){it->key->bytes, it->key->len};
                snapshot_save_key(it->key, &sv->out);
                sv->n_versions = it->n;
        } else {
                sv->part = (struct view){v->value, v->value_len};
                snapshot_save_version(v, &sv->out);
        }
}

static void save_part(struct state_saver *sv, size_t most)
{
        size_t n = min_of(most, sv->part.len);

        buf_add(&sv->out, sv->part.p, n);
        sv->part.p += n;
        sv->part.len -= n;
        if (sv->part.len > 0)
                return;
        sv->has_part = false;
        if (sv->n_versions > 0) /* the part was the key's name */
                snapshot_save_versions(&sv->n_versions, &sv->out);
        sv->n_versions = 0;
}

/* Returns how many bytes save_next() saves, and drops them. */
static size_t next_len(struct state_saver *sv, int what)
{
        size_t had = buf_len(&sv->out), n;

        save_next(sv, what);
        n = sv->part.len;
        sv->part.len = 0;
        save_part(sv, 0);
        n += buf_len(&sv->out) - had;
        sv->out.end = sv->out.off + had;
        return n;
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
                if (sv->leases.slot == 0) /* or it would be copied as it grows */
                        buf_expect(&sv->out, sv->state->leases.n * LEASE_BYTES);
                r = save_leases(sv, up_to(&sv->out, bytes), &steps);
                if (r == 0)
                        sv->size = buf_len(&sv->out) + buf_len(&sv->tail);
                return r < 0 ? r : 1;
        }
        while ((r = kv_iter_next(it, &steps)) > 0)
                if (r == KV_PAUSE)
                        return 1;
                else
                        sv->size += next_len(sv, r);
        if (buf_error(&sv->out) < 0)
                return -ENOMEM;
        if (r == 0)
                kv_iter_rewind(it);
        return r;
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
                        save_part(sv, until - buf_len(out));
                        continue;
                }
                r = kv_iter_next(it, &steps);
                if (r < 0)
                        return r;
                if (r == KV_PAUSE)
                        break;
                sv->n_keys -= r == KV_KEY;
                if (r > 0) {
                        save_next(sv, r);
                        continue;
                }
                if (sv->n_keys != 0) /* there are fewer keys than announced */
                        return -ESTALE;
                buf_add(out, buf_head(&sv->tail), buf_len(&sv->tail));
                return buf_error(&sv->tail) < 0 ? -ENOMEM : buf_error(out);
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
