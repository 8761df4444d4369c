/* Leases of any kind, by id and by name. */
#include "tenure/calls.h"

#define NAME_MAX_BYTES 1024 /* the limit of tenure-core */

/* tenure-core answers in milliseconds, etcd in seconds. */
static int64_t ms_of(int64_t ttl_ms, int64_t ttl_s)
{
        return ttl_ms > 0 ? ttl_ms
                          : max_of(min_of(ttl_s, INT64_MAX / 1000), INT64_MIN / 1000) * 1000;
}

static int check_id(struct tenure *t, int64_t lease, int64_t *ret)
{
        if (lease == 0)
                return tenure_fail(t, -EINVAL, "a lease's id is positive");
        return lease_of(t, lease, ret);
}

int lease_name_check(struct tenure *t, const char *name)
{
        if (name && *name && strlen(name) <= NAME_MAX_BYTES)
                return 0;
        return tenure_fail(t, -EINVAL, "a lease's name has 1 to %d bytes", NAME_MAX_BYTES);
}

static int is_gone(struct tenure_call *c)
{
        if (c->name)
                call_says(c, "There is no lease with the name '%s'", c->name);
        else
                call_says(c, "There is no lease %016llx; it has expired, or was revoked",
                          (unsigned long long) c->lease);
        return -ENOENT;
}

/* Takes the name from an answer; a core that ignores names returns none. */
static int take_name(struct tenure_call *c, const ProtobufCBinaryData *name)
{
        char *copy;

        if (c->named && name->len == 0) {
                call_says(c, "The core at %s cannot find leases by name; use the lease's id",
                          calls_endpoint_name(c->calls, c->endpoint));
                return -EOPNOTSUPP;
        }
        /* A name with a NUL in it could be mistaken for another lease's. */
        if (name->len == 0 || c->name || memchr(name->data, '\0', name->len))
                return 0;
        copy = strndup((const char *) name->data, name->len);
        if (!copy)
                return -ENOMEM;
        c->name = copy;
        return 0;
}

/* Begins a call of @kind with the request @q, for the lease @lease or the one named @name. */
static int ask_of(struct tenure *t, const struct call_kind *kind, const ProtobufCMessage *q,
                  int64_t lease, const char *name, bool changes, struct tenure_call **ret)
{
        struct tenure_call *c;
        int r = call_new(t, kind, &c);

        if (r < 0)
                return r;
        pb_append(&c->request, q);
        c->changes = changes;
        c->lease = lease;
        c->named = name != NULL;
        if (name) {
                c->name = strdup(name);
                if (!c->name) {
                        tenure_call_free(c);
                        return tenure_fail(t, -ENOMEM, "out of memory");
                }
        }
        return call_begin(c, ret);
}

/* ---- grant ---- */

static int read_grant(struct tenure_call *c, const void *answer)
{
        const Pb__LeaseGrantResponse *p = answer;

        if (p->error && *p->error) { /* etcd before 3.4 may report a refusal in the response */
                call_says(c, "The core refuses: %s", p->error);
                return -EPERM;
        }
        if (p->id <= 0)
                return -EBADMSG;
        c->lease = p->id;
        c->ttl_ms = ms_of(p->ttl_ms, p->ttl);
        return 0;
}

static const struct call_kind kind_grant = {"/etcdserverpb.Lease/LeaseGrant",
                                            &pb__lease_grant_response__descriptor, read_grant};

int tenure_lease_grant(struct tenure *t, uint64_t ttl_ms, const char *name,
                       struct tenure_call **ret)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;
        struct tenure_call *c;
        int r = name ? lease_name_check(t, name) : 0;

        if (r == 0 && (ttl_ms == 0 || ttl_ms > INT64_MAX - 999))
                r = tenure_fail(t, -EINVAL, "a lease's time to live is 1 ms or more");
        if (r == 0)
                r = call_new(t, &kind_grant, &c);
        if (r < 0)
                return r;
        q.ttl_ms = (int64_t) ttl_ms;
        q.ttl = ((int64_t) ttl_ms + 999) / 1000;
        if (name)
                q.name = pb_bytes(name, strlen(name));
        pb_append(&c->request, &q.base);
        c->changes = true;
        c->named = name != NULL;
        return call_begin(c, ret);
}

/* ---- renew ---- */

static int read_renewal(struct tenure_call *c, const void *answer)
{
        const Pb__LeaseKeepAliveResponse *p = answer;
        int r = take_name(c, &p->name);

        if (r < 0)
                return r;
        if (p->ttl <= 0)
                return is_gone(c);
        c->lease = p->id;
        c->ttl_ms = ms_of(p->ttl_ms, p->ttl);
        return 0;
}

static const struct call_kind kind_renew = {"/etcdserverpb.Lease/LeaseKeepAlive",
                                            &pb__lease_keep_alive_response__descriptor,
                                            read_renewal};

/* A renewal may be done twice. */
int tenure_lease_renew(struct tenure *t, int64_t lease, struct tenure_call **ret)
{
        Pb__LeaseKeepAliveRequest q = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;
        int r = check_id(t, lease, &q.id);

        return r < 0 ? r : ask_of(t, &kind_renew, &q.base, q.id, NULL, false, ret);
}

int tenure_lease_renew_named(struct tenure *t, const char *name, struct tenure_call **ret)
{
        Pb__LeaseKeepAliveRequest q = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;
        int r = lease_name_check(t, name);

        if (r < 0)
                return r;
        q.name = pb_bytes(name, strlen(name));
        return ask_of(t, &kind_renew, &q.base, 0, name, false, ret);
}

/* ---- revoke ---- */

const struct call_kind kind_revoke = {"/etcdserverpb.Lease/LeaseRevoke",
                                      &pb__lease_revoke_response__descriptor,
                                      call_read_nothing};

int tenure_lease_revoke(struct tenure *t, int64_t lease, struct tenure_call **ret)
{
        Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;
        int r = check_id(t, lease, &q.id);

        return r < 0 ? r : ask_of(t, &kind_revoke, &q.base, q.id, NULL, true, ret);
}

int tenure_lease_revoke_named(struct tenure *t, const char *name, struct tenure_call **ret)
{
        Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;
        int r = lease_name_check(t, name);

        if (r < 0)
                return r;
        q.name = pb_bytes(name, strlen(name));
        return ask_of(t, &kind_revoke, &q.base, 0, name, true, ret);
}

/* ---- time to live, and keys ---- */

/* Stores keys without values, in one allocation. */
static int take_keys(struct tenure_call *c, const ProtobufCBinaryData *keys, size_t n)
{
        size_t bytes = n * sizeof(struct tenure_kv);
        struct found *f;
        char *at;
        int r = found_new(c, 1);

        if (r < 0)
                return r;
        f = c->found;
        f->count = (int64_t) n;
        for (size_t i = 0; i < n; i++)
                bytes += keys[i].len + 1;
        f->kvs = n > 0 ? calloc(1, bytes) : NULL;
        if (n > 0 && !f->kvs)
                return -ENOMEM;
        at = (char *) (f->kvs + n);
        for (size_t i = 0; i < n; i++) {
                if (keys[i].len > 0)
                        memcpy(at, keys[i].data, keys[i].len);
                f->kvs[i] = (struct tenure_kv){
                        .key = at, .key_len = keys[i].len, .value = "", .lease = c->lease};
                at += keys[i].len + 1;
        }
        f->n = n;
        return 0;
}

static int read_time_to_live(struct tenure_call *c, const void *answer)
{
        const Pb__LeaseTimeToLiveResponse *p = answer;
        int r = take_name(c, &p->name);

        if (r < 0)
                return r;
        if (p->ttl < 0)
                return is_gone(c);
        c->lease = p->id;
        c->ttl_ms = p->granted_ttl_ms > 0 ? p->ttl_ms : ms_of(p->ttl_ms, p->ttl);
        return take_keys(c, p->keys, p->n_keys);
}

static const struct call_kind kind_time_to_live = {"/etcdserverpb.Lease/LeaseTimeToLive",
                                                   &pb__lease_time_to_live_response__descriptor,
                                                   read_time_to_live};

static int ask_time(struct tenure *t, int64_t lease, bool keys, struct tenure_call **ret)
{
        Pb__LeaseTimeToLiveRequest q = PB__LEASE_TIME_TO_LIVE_REQUEST__INIT;
        int r = check_id(t, lease, &q.id);

        q.keys = keys;
        return r < 0 ? r : ask_of(t, &kind_time_to_live, &q.base, q.id, NULL, false, ret);
}

static int ask_time_named(struct tenure *t, const char *name, bool keys,
                          struct tenure_call **ret)
{
        Pb__LeaseTimeToLiveRequest q = PB__LEASE_TIME_TO_LIVE_REQUEST__INIT;
        int r = lease_name_check(t, name);

        if (r < 0)
                return r;
        q.keys = keys;
        q.name = pb_bytes(name, strlen(name));
        return ask_of(t, &kind_time_to_live, &q.base, 0, name, false, ret);
}

int tenure_lease_time_to_live(struct tenure *t, int64_t lease, struct tenure_call **ret)
{
        return ask_time(t, lease, false, ret);
}

int tenure_lease_keys(struct tenure *t, int64_t lease, struct tenure_call **ret)
{
        return ask_time(t, lease, true, ret);
}

int tenure_lease_find(struct tenure *t, const char *name, struct tenure_call **ret)
{
        return ask_time_named(t, name, false, ret);
}

int tenure_lease_keys_named(struct tenure *t, const char *name, struct tenure_call **ret)
{
        return ask_time_named(t, name, true, ret);
}
