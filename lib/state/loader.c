#include "state/loader.h"

#include <inttypes.h>
#include <stdio.h>

#include "state/internal.h"

/* The cost of one item among a million: most are not in the processor's cache. */
#define LEASE_STEPS 8
#define KEY_STEPS 8
#define VERSION_STEPS 3
#define BYTES_PER_STEP 1024 /* of a value, copied to memory that was never used before */
#define OWNER_STEPS 2
#define USER_STEPS 4 /* plus one for each of its roles */
#define ROLE_STEPS 3 /* plus one for each of its permissions */
#define FEW_STEPS 4  /* a member, an alarm or a cached range */

static int load_head(struct state_loader *l, struct budget *left unused_)
{
        struct state *s = l->state;
        int r = snapshot_load_head(&l->in, s);

        return r == 0 && s->kv.compacted > s->revision
                       ? snapshot_wrong(&l->in, "it is compacted beyond its revision")
                       : r;
}

static int load_lease(struct state_loader *l, struct budget *left)
{
        struct leases *t = &l->state->leases;
        struct lease_then is;
        struct lease *lease;
        int r = snapshot_load_lease(&l->in, &is);

        budget_charge(left, LEASE_STEPS);
        if (r < 0)
                return r;
        if (leases_at(t, is.slot) || leases_find(t, is.id) ||
            (is.name.len > 0 && leases_find_name(t, is.name.p, is.name.len)))
                return snapshot_wrong(&l->in, "another one has its slot, id or name");
        r = leases_add(t, is.id, is.ttl_ms, is.born, is.name.p, is.name.len, &is.slot, &lease);
        if (r < 0)
                return r;
        lease->renewed = is.renewed;
        return deadlines_set(&l->state->deadlines, is.slot, is.end);
}

/* The bytes of a key or value. */
static int load_bytes(struct state_loader *l, size_t n, struct view *ret)
{
        return view_take(&l->in.rest, n, ret) < 0
                       ? snapshot_wrong(&l->in, "a key or value is cut short")
                       : 0;
}

static int load_version(struct state_loader *l, struct budget *left)
{
        struct kv_version is = {0}, *v;
        struct view value;
        int r = snapshot_load_version(&l->in, &is);

        if (r == 0)
                r = load_bytes(l, is.value_len, &value);
        if (r < 0)
                return r;
        if (is.create_revision > is.mod_revision || is.mod_revision > l->state->revision ||
            (is.version == 0) != (is.create_revision == 0))
                return snapshot_wrong(&l->in, "its revisions contradict each other");
        budget_charge(left, VERSION_STEPS + value.len / BYTES_PER_STEP);
        v = malloc(sizeof(*v) + value.len);
        if (!v)
                return -ENOMEM;
        *v = is;
        if (value.len > 0)
                memcpy(v->value, value.p, value.len);
        r = kv_restore(&l->state->kv, l->name, v, &l->key);
        if (r < 0)
                free(v);
        return r == -EBADMSG ? snapshot_wrong(&l->in, "its versions are not in order") : r;
}

static int end_key(struct state_loader *l)
{
        const struct kv_version *v = l->key->newest;
        struct lease *lease;

        if (v->version == 0 || v->lease == 0)
                return 0;
        lease = leases_find(&l->state->leases, v->lease);
        if (!lease)
                return snapshot_wrong(&l->in, "its lease does not exist");
        leases_attach(l->key, lease);
        return 0;
}

/* One key may have a million versions. */
static int load_key(struct state_loader *l, struct budget *left)
{
        struct kv_key is;
        int r;

        if (l->n_versions == 0) {
                budget_charge(left, KEY_STEPS);
                r = snapshot_load_key(&l->in, &is);
                if (r == 0)
                        r = load_bytes(l, is.len, &l->name);
                if (r == 0)
                        r = snapshot_load_versions(&l->in, &l->n_versions);
                if (r < 0)
                        return r;
                /* It is searched for here, and again when it gets its place. */
                budget_charge_read(left,
                                   2 * budget_search_bytes(l->state->kv.n_all, l->name.len));
                if (kv_find(&l->state->kv, l->name.p, l->name.len))
                        return snapshot_wrong(&l->in, "it is there twice");
                l->key = NULL;
        }
        for (;;) {
                r = load_version(l, left);
                if (r < 0)
                        return r;
                if (--l->n_versions == 0)
                        return end_key(l);
                if (budget_is_spent(left))
                        return 1;
        }
}

static int sort_history(struct state_loader *l, struct budget *left)
{
        return kv_restore_end(&l->state->kv, left);
}

static int load_member(struct state_loader *l, struct budget *left)
{
        cleanup_(freep) char *name = NULL, *urls = NULL;
        struct saved_member is;
        int r = snapshot_load_member(&l->in, &is);

        budget_charge(left, FEW_STEPS);
        if (r < 0)
                return r;
        name = strndup((const char *) is.name.p, is.name.len);
        urls = strndup((const char *) is.client_urls.p, is.client_urls.len);
        return name && urls ? state_set_member(l->state, is.id, name, urls) : -ENOMEM;
}

static int load_alarm(struct state_loader *l, struct budget *left)
{
        struct saved_alarm is;
        int r = snapshot_load_alarm(&l->in, &is);
        uint8_t type, why;

        budget_charge(left, FEW_STEPS);
        if (r < 0)
                return r;
        type = is.type_and_why & 15;
        /* Earlier versions saved no reason. */
        why = is.type_and_why > 15 ? is.type_and_why >> 4 : ALARM_STANDS;
        if (type != PB__ALARM_TYPE__NOSPACE && type != PB__ALARM_TYPE__CORRUPT)
                return snapshot_wrong(&l->in, "its type is %u", type);
        return state_add_alarm(l->state, is.member, (Pb__AlarmType) type, why);
}

static int load_auth(struct state_loader *l, struct budget *left unused_)
{
        return snapshot_load_auth(&l->in, &l->state->auth);
}

static int load_user(struct state_loader *l, struct budget *left)
{
        struct auth *a = &l->state->auth;
        size_t was = a->bytes;
        int r = auth_load_user(a, &l->in);

        budget_charge(left, USER_STEPS + (a->bytes - was) / 32);
        return r;
}

static int load_role(struct state_loader *l, struct budget *left)
{
        struct auth *a = &l->state->auth;
        size_t was = a->bytes;
        int r = auth_load_role(a, &l->in);

        budget_charge(left, ROLE_STEPS + (a->bytes - was) / 64);
        return r;
}

static int load_owner(struct state_loader *l, struct budget *left)
{
        struct leases *t = &l->state->leases;
        struct lease *lease;
        struct lease_then is;
        int r = snapshot_load_owner(&l->in, &is);

        budget_charge(left, OWNER_STEPS);
        if (r < 0)
                return r;
        lease = leases_at(t, is.slot);
        if (!lease || lease->owner)
                return snapshot_wrong(&l->in, "its lease does not exist or has one already");
        return leases_set_owner(t, lease, is.owner);
}

static int load_cached(struct state_loader *l, struct budget *left unused_)
{
        return snapshot_load_cached(&l->in, &l->state->cached.last_serial);
}

static int load_range(struct state_loader *l, struct budget *left)
{
        budget_charge(left, FEW_STEPS);
        return cached_load_range(&l->state->cached, &l->in);
}

static int load_cluster(struct state_loader *l, struct budget *left unused_)
{
        uint32_t version;
        int r = snapshot_load_cluster(&l->in, l->state);

        version = l->state->cluster_version;
        if (r == 0 && version > l->newest)
                return snapshot_wrong(&l->in, "it is %s (%u), and this program knows up to %s",
                                      cluster_version_name(version), version,
                                      cluster_version_name(l->newest));
        return r;
}

static int load_descent(struct state_loader *l, struct budget *left unused_)
{
        return snapshot_load_descent(&l->in, &l->state->descent);
}

/* In this order (snapshot.h). */
static const struct part {
        const char *name;
        /* Charges its cost. Returns 0, 1 if there is more to do for this item, or an error. */
        int (*one)(struct state_loader *l, struct budget *left);
        uint64_t max;  /* items of a list; 0: it is not a list */
        bool optional; /* the snapshot may end before it */
} parts[] = {
        {"head", load_head, 0, false},
        {"lease", load_lease, UINT64_MAX, false},
        {"key", load_key, UINT64_MAX, false},
        {"history", sort_history, 0, false},
        {"member", load_member, UINT64_MAX, false},
        {"alarm", load_alarm, UINT64_MAX, false},
        {"auth", load_auth, 0, true},
        {"user", load_user, AUTH_USERS_MAX, false},
        {"role", load_role, AUTH_ROLES_MAX, false},
        {"owner", load_owner, UINT64_MAX, true},
        {"cache", load_cached, 0, true},
        {"cached range", load_range, CACHED_RANGES_MAX, false},
        {"cluster version", load_cluster, 0, true},
        {"descent", load_descent, 0, true},
};

static int begin_part(struct state_loader *l, const struct part *p)
{
        l->i = 0;
        l->n = 1;
        if (p->max > 0 && view_u64(&l->in.rest, &l->n) < 0)
                return snapshot_wrong(&l->in, "the number of them is cut short");
        if (p->max > 0 && l->n > p->max)
                return snapshot_wrong(&l->in, "the number of them is %" PRIu64, l->n);
        return 0;
}

static int load_part(struct state_loader *l, const struct part *p, struct budget *left)
{
        int r = l->begun ? 0 : begin_part(l, p);

        for (; r == 0 && l->i < l->n; l->i += r == 0)
                r = budget_is_spent(left) ? 1 : p->one(l, left);
        l->part += r == 0;
        l->begun = r != 0;
        return r;
}

void state_load_start(struct state_loader *l, struct state *s, struct view snapshot)
{
        state_init(s);
        *l = (struct state_loader){.state = s, .in.rest = snapshot, .newest = CLUSTER_NEWEST};
}

int state_load_some(struct state_loader *l, struct budget *left)
{
        int r = 0;

        while (r == 0 && l->part < ARRAY_SIZE(parts)) {
                const struct part *p = &parts[l->part];

                if (p->optional && !l->begun && l->in.rest.len == 0)
                        return 0;
                r = budget_is_spent(left) ? 1 : load_part(l, p, left);
                if (r == -EBADMSG)
                        snprintf(l->wrong, sizeof(l->wrong), "%s %" PRIu64 ": %s", p->name,
                                 l->i + 1, l->in.wrong);
        }
        if (r == 0 && l->in.rest.len > 0) {
                snprintf(l->wrong, sizeof(l->wrong), "%zu bytes follow its end",
                         l->in.rest.len);
                r = -EBADMSG;
        }
        return r;
}
