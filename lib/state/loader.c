#include "state/loader.h"

#include "state/internal.h"

/* Limits the memory that a snapshot can claim. Slots are dense, so none is above
 * STATE_LEASES_MAX now; a snapshot from before this limit may have larger ones. */
#define SLOT_MAX (4 * STATE_LEASES_MAX)

/* The cost of one item among a million: most are not in the processor's cache. */
#define LEASE_STEPS 8
#define KEY_STEPS 8
#define VERSION_STEPS 3
#define BYTES_PER_STEP 1024 /* of a value, copied to memory that was never used before */
#define OWNER_STEPS 2
#define USER_STEPS 4 /* plus one for each of its roles */
#define ROLE_STEPS 3 /* plus one for each of its permissions */

/* In this order; saver.c describes them. */
enum {
        PART_HEAD,
        PART_LEASES,
        PART_KEYS,
        PART_HISTORY,
        PART_FEW,
        PART_AUTH,
        PART_USERS,
        PART_ROLES,
        PART_OWNERS,
        PART_END,
};

static void take(size_t *left, size_t steps)
{
        *left -= min_of(*left, steps);
}

/* Begins the next part: reads how many items it has. */
static int begin_part(struct state_loader *l, unsigned part)
{
        l->part = part;
        return view_u64(&l->in, &l->n);
}

/* Loads the remaining items of this part while *@left lasts; @one subtracts its cost from
 * *@left. Returns 0 at the end of the part, 1 before it, or an error of @one. */
static int load_each(struct state_loader *l, size_t *left,
                     int (*one)(struct state_loader *l, size_t *left))
{
        for (; l->n > 0; l->n--) {
                int r;

                if (*left == 0)
                        return 1;
                r = one(l, left);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int load_head(struct state_loader *l)
{
        struct state *s = l->state;
        uint64_t revision, compacted, time;
        int r = view_u64(&l->in, &revision);

        if (r == 0)
                r = view_u64(&l->in, &compacted);
        if (r == 0)
                r = view_u64(&l->in, &s->applied);
        if (r == 0)
                r = view_u64(&l->in, &time);
        if (r == 0 && time > INT64_MAX)
                r = -EBADMSG;
        if (r < 0)
                return r;
        s->time = (struct lease_time){(nsec_t) time};
        s->revision = (int64_t) revision;
        s->kv.compacted = (int64_t) compacted;
        return begin_part(l, PART_LEASES);
}

static int load_lease(struct state_loader *loader, size_t *left)
{
        struct state *s = loader->state;
        struct view *in = &loader->in, name;
        uint64_t id, ttl, born, renewed, end;
        struct lease *l;
        uint32_t slot;
        int r = view_u32(in, &slot);

        take(left, LEASE_STEPS);
        if (r == 0)
                r = view_u64(in, &id);
        if (r == 0)
                r = view_u64(in, &ttl);
        if (r == 0)
                r = view_u64(in, &born);
        if (r == 0)
                r = view_u64(in, &renewed);
        if (r == 0)
                r = view_u64(in, &end);
        if (r == 0)
                r = view_bytes(in, &name);
        if (r < 0)
                return r;
        if (slot >= SLOT_MAX || end > INT64_MAX || ttl > INT64_MAX ||
            leases_at(&s->leases, slot) || leases_find(&s->leases, (int64_t) id) ||
            (name.len > 0 && leases_find_name(&s->leases, name.p, name.len)))
                return -EBADMSG;
        r = leases_add(&s->leases, (int64_t) id, (int64_t) ttl, born, name.p, name.len, &slot,
                       &l);
        if (r < 0)
                return r;
        l->renewed = renewed;
        return deadlines_set(&s->deadlines, slot, (struct lease_time){(nsec_t) end});
}

static int load_leases(struct state_loader *l, size_t *left)
{
        int r = load_each(l, left, load_lease);

        return r == 0 ? begin_part(l, PART_KEYS) : r;
}

static int load_version(struct state *s, struct view key, struct view *in, size_t *left)
{
        struct kv_version *v;
        struct view value;
        uint64_t mod, create, version, lease;
        uint32_t sub;
        int r = view_u64(in, &mod);

        if (r == 0)
                r = view_u64(in, &create);
        if (r == 0)
                r = view_u64(in, &version);
        if (r == 0)
                r = view_u64(in, &lease);
        if (r == 0)
                r = view_u32(in, &sub);
        if (r == 0)
                r = view_bytes(in, &value);
        if (r < 0)
                return r;
        take(left, VERSION_STEPS + value.len / BYTES_PER_STEP);
        v = malloc(sizeof(*v) + value.len);
        if (!v)
                return -ENOMEM;
        *v = (struct kv_version){
                .mod_revision = (int64_t) mod,
                .create_revision = (int64_t) create,
                .version = (int64_t) version,
                .lease = (int64_t) lease,
                .sub = sub,
                .value_len = (uint32_t) value.len,
        };
        if (value.len > 0)
                memcpy(v->value, value.p, value.len);
        r = kv_restore(&s->kv, key.p, key.len, v);
        if (r < 0)
                free(v);
        return r;
}

static int begin_key(struct state_loader *l)
{
        int r = view_bytes(&l->in, &l->key);

        if (r == 0)
                r = view_varint(&l->in, &l->n_versions);
        if (r == 0 && (l->n_versions == 0 || kv_find(&l->state->kv, l->key.p, l->key.len)))
                r = -EBADMSG;
        return r;
}

static int end_key(struct state_loader *l)
{
        struct state *s = l->state;
        struct kv_key *k = kv_find(&s->kv, l->key.p, l->key.len);
        struct lease *lease;

        if (!kv_live(k) || k->newest->lease == 0)
                return 0;
        lease = leases_find(&s->leases, k->newest->lease);
        if (!lease)
                return -EBADMSG;
        leases_attach(k, lease);
        return 0;
}

/* One key may have a million versions. */
static int load_keys(struct state_loader *l, size_t *left)
{
        while (l->n > 0) {
                int r = 0;

                if (*left == 0)
                        return 1;
                if (l->n_versions == 0) {
                        take(left, KEY_STEPS);
                        r = begin_key(l);
                }
                if (r == 0)
                        r = load_version(l->state, l->key, &l->in, left);
                if (r < 0)
                        return r;
                if (--l->n_versions > 0)
                        continue;
                r = end_key(l);
                if (r < 0)
                        return r;
                l->n--;
        }
        l->part = PART_HISTORY;
        return 0;
}

static int load_members(struct state *s, struct view *in)
{
        uint64_t n, id;
        int r = view_u64(in, &n);

        for (uint64_t i = 0; r == 0 && i < n; i++) {
                cleanup_(freep) char *name_z = NULL, *urls_z = NULL;
                struct view name, urls;

                r = view_u64(in, &id);
                if (r == 0)
                        r = view_bytes(in, &name);
                if (r == 0)
                        r = view_bytes(in, &urls);
                if (r < 0)
                        return r;
                name_z = strndup((const char *) name.p, name.len);
                urls_z = strndup((const char *) urls.p, urls.len);
                if (!name_z || !urls_z)
                        return -ENOMEM;
                r = state_set_member(s, id, name_z, urls_z);
        }
        return r;
}

static int load_alarms(struct state *s, struct view *in)
{
        uint64_t n, member;
        uint8_t type, why;
        int r = view_u64(in, &n);

        for (uint64_t i = 0; r == 0 && i < n; i++) {
                r = view_u64(in, &member);
                if (r == 0)
                        r = view_u8(in, &type);
                if (r < 0)
                        break;
                /* Earlier versions saved no reason. */
                why = type >> 4 > 0 ? type >> 4 : ALARM_STANDS;
                type &= 15;
                if (type != PB__ALARM_TYPE__NOSPACE && type != PB__ALARM_TYPE__CORRUPT)
                        r = -EBADMSG;
                else
                        r = state_add_alarm(s, member, (Pb__AlarmType) type, why);
        }
        return r;
}

/* Loads the parts that are always small. */
static int load_few(struct state_loader *l)
{
        int r = load_members(l->state, &l->in);

        if (r == 0)
                r = load_alarms(l->state, &l->in);
        /* A snapshot from before there was auth ends here. */
        l->part = l->in.len > 0 ? PART_AUTH : PART_END;
        return r;
}

static int load_auth(struct state_loader *l)
{
        int r = auth_load(&l->state->auth, &l->in);

        return r < 0 ? r : begin_part(l, PART_USERS);
}

static int load_user(struct state_loader *l, size_t *left)
{
        struct auth *a = &l->state->auth;
        size_t was = a->bytes;
        int r = auth_load_user(a, &l->in);

        take(left, USER_STEPS + (a->bytes - was) / 32);
        return r;
}

static int load_users(struct state_loader *l, size_t *left)
{
        int r = load_each(l, left, load_user);

        return r == 0 ? begin_part(l, PART_ROLES) : r;
}

static int load_role(struct state_loader *l, size_t *left)
{
        struct auth *a = &l->state->auth;
        size_t was = a->bytes;
        int r = auth_load_role(a, &l->in);

        take(left, ROLE_STEPS + (a->bytes - was) / 64);
        return r;
}

static int load_roles(struct state_loader *l, size_t *left)
{
        int r = load_each(l, left, load_role);

        if (r != 0)
                return r;
        /* A snapshot from before leases had owners ends here. */
        if (l->in.len > 0)
                return begin_part(l, PART_OWNERS);
        l->part = PART_END;
        return 0;
}

static int load_owner(struct state_loader *loader, size_t *left)
{
        struct state *s = loader->state;
        struct view owner;
        struct lease *l;
        uint32_t slot;
        int r = view_u32(&loader->in, &slot);

        take(left, OWNER_STEPS);
        if (r == 0)
                r = view_bytes(&loader->in, &owner);
        if (r < 0)
                return r;
        l = leases_at(&s->leases, slot);
        if (!l || l->owner || owner.len == 0 || memchr(owner.p, 0, owner.len))
                return -EBADMSG;
        return leases_set_owner(&s->leases, l, owner);
}

static int load_owners(struct state_loader *l, size_t *left)
{
        int r = load_each(l, left, load_owner);

        if (r != 0)
                return r;
        /* A snapshot from before there were cache leases, or without any, ends here. */
        if (l->in.len > 0)
                r = cached_load(&l->state->cached, &l->in);
        l->part = PART_END;
        return r == 0 && l->in.len > 0 ? -EBADMSG : r;
}

static int load_history(struct state_loader *l, size_t *left)
{
        int r = kv_restore_end(&l->state->kv, &l->order, left);

        if (r == 0) {
                kv_order_fini(&l->order);
                l->part = PART_FEW;
        }
        return r;
}

static int load_part(struct state_loader *l, size_t *left)
{
        switch (l->part) {
        case PART_HEAD:
                return load_head(l);
        case PART_LEASES:
                return load_leases(l, left);
        case PART_KEYS:
                return load_keys(l, left);
        case PART_HISTORY:
                return load_history(l, left);
        case PART_FEW:
                return load_few(l);
        case PART_AUTH:
                return load_auth(l);
        case PART_USERS:
                return load_users(l, left);
        case PART_ROLES:
                return load_roles(l, left);
        default:
                return load_owners(l, left);
        }
}

void state_load_start(struct state_loader *l, struct state *s, struct view snapshot)
{
        state_init(s);
        *l = (struct state_loader){.state = s, .in = snapshot, .part = PART_HEAD};
}

int state_load_some(struct state_loader *l, size_t *left)
{
        int r = 0;

        while (r == 0 && l->part != PART_END)
                r = *left > 0 ? load_part(l, left) : 1;
        return r;
}

void state_loader_fini(struct state_loader *l)
{
        kv_order_fini(&l->order);
        *l = (struct state_loader){0};
}

int state_load(struct state *s, struct view snapshot)
{
        struct state_loader l;
        size_t all = SIZE_MAX;
        int r;

        state_load_start(&l, s, snapshot);
        r = state_load_some(&l, &all);
        state_loader_fini(&l);
        if (r < 0) {
                state_fini(s);
                state_init(s);
        }
        return r;
}
