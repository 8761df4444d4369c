#include "invariants.h"

#include "../whole.h"
#include "fuzz.h"
#include "state/lease_names.h"

/* Attached to what it says, and to nothing when it is gone. */
static void check_lease_of(const struct kv_key *k)
{
        if (kv_live(k) && k->newest->lease != 0)
                HOLDS(k->lease && k->lease->id == k->newest->lease);
        else
                HOLDS(!k->lease);
}

void check_attached(const struct state *s)
{
        struct kv_key *k;

        RB_FOREACH (k, kv_tree, (struct kv_tree *) (uintptr_t) &s->kv.keys)
                check_lease_of(k);
}

static size_t check_key(const struct state *s, const struct kv_key *k)
{
        const struct kv_version *v = k->newest;
        size_t cost = sizeof(*k) + k->len, n = 0;

        HOLDS(v && k->len > 0);
        for (; v; v = v->older, n++) {
                const struct kv_version *o = v->older;

                cost += sizeof(*v) + v->value_len + sizeof(void *);
                HOLDS(v->key == k && v->mod_revision <= s->revision);
                HOLDS(v->version >= 0 && v->create_revision <= v->mod_revision);
                if (v->version > 1 && o && o->version > 0)
                        HOLDS(o->version == v->version - 1 &&
                              o->create_revision == v->create_revision);
                if (v->version == 1)
                        HOLDS(v->create_revision == v->mod_revision);
                if (o)
                        HOLDS(o->mod_revision < v->mod_revision ||
                              (o->mod_revision == v->mod_revision && o->sub < v->sub));
        }
        check_lease_of(k);
        return cost;
}

static void check_keys(const struct state *s)
{
        const struct kv_key *before = NULL;
        size_t live = 0, bytes = 0, attached = 0, n_kept = 0;
        struct kv_key *k;

        RB_FOREACH (k, kv_tree, (struct kv_tree *) (uintptr_t) &s->kv.keys) {
                if (before)
                        HOLDS(bytes_cmp(before->bytes, before->len, k->bytes, k->len) < 0);
                bytes += check_key(s, k);
                live += kv_live(k);
                attached += k->lease != NULL;
                for (const struct kv_version *v = k->newest; v; v = v->older)
                        n_kept += v->mod_revision >= s->kv.compacted;
                before = k;
        }
        HOLDS(live == s->kv.n_keys && bytes == s->kv.bytes);
        /* The history has every change since the last compaction, in its order, once. */
        HOLDS(s->kv.history_to - s->kv.history_from == n_kept);
        for (size_t i = s->kv.history_from; i < s->kv.history_to; i++) {
                const struct kv_version *v = kv_history_at(&s->kv, i), *u;

                HOLDS(v->mod_revision >= s->kv.compacted);
                if (i == s->kv.history_from)
                        continue;
                u = kv_history_at(&s->kv, i - 1);
                HOLDS(u->mod_revision < v->mod_revision ||
                      (u->mod_revision == v->mod_revision && u->sub < v->sub));
        }
        for (size_t i = 0; i < s->leases.n_slots; i++)
                attached -= s->leases.slots[i] ? s->leases.slots[i]->n_keys : 0;
        HOLDS(attached == 0);
}

/* The one that it has is its own. */
static void check_name(const struct state *s, const struct lease *l)
{
        struct view v = names_of(s, l);
        ProtobufCBinaryData name = pb_bytes(v.p, v.len);

        HOLDS(name.len == 0 || names_find(s, &name) == l);
}

static void check_leases(const struct state *s)
{
        size_t n = 0, named = 0, in_slots = 0;
        int64_t before = INT64_MIN;
        struct lease *l;

        RB_FOREACH (l, lease_ids, (struct lease_ids *) (uintptr_t) &s->leases.by_id) {
                struct kv_key *k;
                uint32_t n_keys = 0;

                HOLDS(l->id > before && l->id > 0 && l->ttl_ms > 0);
                HOLDS(leases_at(&s->leases, l->slot) == l);
                check_name(s, l);
                HOLDS(l->born <= l->renewed && l->renewed <= s->applied);
                HOLDS(deadlines_get(&s->deadlines, l->slot).ns != LEASE_TIME_NEVER.ns);
                RB_FOREACH (k, lease_keys, &l->keys) {
                        HOLDS(k->lease == l);
                        n_keys++;
                }
                HOLDS(n_keys == l->n_keys);
                if (l->name_len > 0) {
                        HOLDS(leases_find_name(&s->leases, l->name, l->name_len) == l);
                        named++;
                }
                before = l->id;
                n++;
        }
        RB_FOREACH (l, lease_names, (struct lease_names *) (uintptr_t) &s->leases.by_name)
                named--;
        for (size_t i = 0; i < s->leases.n_slots; i++) {
                in_slots += s->leases.slots[i] != NULL;
                HOLDS(s->leases.slots[i] ||
                      deadlines_get(&s->deadlines, (uint32_t) i).ns == LEASE_TIME_NEVER.ns);
                HOLDS(s->leases.slots[i] || i >= leases_free_slot(&s->leases));
        }
        HOLDS(!leases_at(&s->leases, leases_free_slot(&s->leases)));
        HOLDS(named == 0 && n == s->leases.n && n == in_slots && n == s->deadlines.n);
}

static void check_others(const struct state *s)
{
        const struct auth *a = &s->auth;

        for (size_t i = 1; i < s->n_members; i++)
                HOLDS(s->members[i - 1].id < s->members[i].id);
        for (size_t i = 1; i < s->n_alarms; i++)
                HOLDS(s->alarms[i - 1].member < s->alarms[i].member ||
                      (s->alarms[i - 1].member == s->alarms[i].member &&
                       s->alarms[i - 1].type < s->alarms[i].type));
        for (size_t i = 1; i < a->n_roles; i++)
                HOLDS(strcmp(a->roles[i - 1].name, a->roles[i].name) < 0);
        for (size_t i = 0; i < a->n_users; i++) {
                const struct auth_user *u = &a->users[i];

                HOLDS(i == 0 || strcmp(a->users[i - 1].name, u->name) < 0);
                HOLDS(*u->name);
                for (size_t k = 0; k < u->n_roles; k++) {
                        HOLDS(k == 0 || strcmp(u->roles[k - 1], u->roles[k]) < 0);
                        HOLDS(auth_role_find(a, u->roles[k]) ||
                              strcmp(u->roles[k], AUTH_ROOT) == 0);
                }
        }
        if (a->enabled)
                HOLDS(auth_user_find(a, AUTH_ROOT) &&
                      auth_user_has(auth_user_find(a, AUTH_ROOT), AUTH_ROOT));
}

void check_state(const struct state *s)
{
        HOLDS(s->revision >= 1 && s->kv.compacted <= s->revision);
        check_keys(s);
        check_leases(s);
        check_others(s);
}

void check_equal(const struct state *a, const struct state *b)
{
        cleanup_(buf_fini) struct buf x = {0}, y = {0};

        state_save(a, &x);
        state_save(b, &y);
        HOLDS(buf_error(&x) == 0 && buf_error(&y) == 0);
        HOLDS(buf_len(&x) == buf_len(&y) && memcmp(x.data, y.data, buf_len(&x)) == 0);
        HOLDS(state_hash(a) == state_hash(b));
        HOLDS(a->kv.bytes == b->kv.bytes && a->kv.n_keys == b->kv.n_keys);
        HOLDS(a->leases.n == b->leases.n);
}

void check_expired(void *u, int64_t lease, size_t n_keys, uint64_t term)
{
        (void) u;
        (void) n_keys;
        HOLDS(lease != 0 && term > 0);
}
