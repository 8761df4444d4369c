#include "state/state.h"

#include "base/probe.h"
#include "state/charge.h"
#include "state/internal.h"
#include "state/lease_names.h"
#include "state/lease_past.h"

/* The cost of finding a key among a million: most are not in the processor's cache. */
#define FIND_STEPS 12
#define DELETE_STEPS 2 /* for a key that follows the last one deleted */

const struct histogram_shape state_ttl_shape = {
        .n = 24,
        .digits = 3,
        .upper = {1000,      2000,      4000,       8000,       16000,      32000,
                  64000,     128000,    256000,     512000,     1024000,    2048000,
                  4096000,   8192000,   16384000,   32768000,   65536000,   131072000,
                  262144000, 524288000, 1048576000, 2097152000, 4194304000, 8388608000},
};

void state_init(struct state *s)
{
        *s = (struct state){.revision = 1, .cluster_version = CLUSTER_0_1};
        kv_init(&s->kv);
        leases_init(&s->leases);
        deadlines_init(&s->deadlines);
        auth_init(&s->auth);
}

void state_drop_readers(struct state *s)
{
        kept_unpin_all(&s->kv.kept);
        lease_past_drop_readers(&s->leases);
}

bool state_free_some(struct state *s, struct budget *left)
{
        if (!kv_free_some(&s->kv, left) || !lease_past_free_some(&s->leases, left) ||
            !leases_free_some(&s->leases, left) || !auth_free_some(&s->auth, left))
                return false;
        deadlines_fini(&s->deadlines);
        cached_fini(&s->cached);
        for (size_t i = 0; i < s->n_members; i++) {
                free(s->members[i].name);
                free(s->members[i].client_urls);
        }
        free(s->members);
        free(s->alarms);
        arena_fini(&s->scratch);
        *s = (struct state){0};
        return true;
}

void state_fini(struct state *s)
{
        struct budget all = BUDGET_ALL;

        state_drop_readers(s);
        (void) !state_free_some(s, &all);
}

size_t state_bytes(const struct state *s)
{
        return s->kv.bytes + s->leases.bytes + s->auth.bytes + s->cached.bytes;
}

int state_set_member(struct state *s, uint64_t id, const char *name, const char *client_urls)
{
        cleanup_(freep) char *n = strdup(name), *u = strdup(client_urls);
        size_t i = 0;

        if (!n || !u)
                return -ENOMEM;
        while (i < s->n_members && s->members[i].id < id)
                i++;
        if (i == s->n_members || s->members[i].id != id) {
                if (array_insert(&s->members, &s->n_members, &s->members_cap,
                                 sizeof(*s->members), i) < 0)
                        return -ENOMEM;
                s->members[i].id = id;
        }
        free(s->members[i].name);
        free(s->members[i].client_urls);
        s->members[i].name = take_ptr(n);
        s->members[i].client_urls = take_ptr(u);
        return 0;
}

const struct member *state_member(const struct state *s, uint64_t id)
{
        for (size_t i = 0; i < s->n_members; i++)
                if (s->members[i].id == id)
                        return &s->members[i];
        return NULL;
}

static void drop_member(struct state *s, uint64_t id)
{
        const struct member *m = state_member(s, id);

        if (!m)
                return;
        free(m->name);
        free(m->client_urls);
        array_remove(s->members, &s->n_members, sizeof(*s->members), (size_t) (m - s->members));
}

int64_t state_grant_ttl_ms(const Pb__LeaseGrantRequest *q)
{
        if (q->ttl_ms > 0)
                return q->ttl_ms;
        return q->ttl > 0 ? min_of(q->ttl, STATE_TTL_MAX_S) * 1000 : 0;
}

int state_write_put(struct state *s, const Pb__PutRequest *q, uint32_t *sub,
                    const struct kv_version **ret_prev)
{
        struct kv_key *k = kv_find(&s->kv, q->key.data, q->key.len);
        const struct kv_version *prev = k && kv_live(k) ? k->newest : NULL;
        const void *value = q->value.data;
        size_t value_len = q->value.len;
        enum state_outcome o;
        struct lease *l;
        int r;

        /* There is no value to keep if the same txn has just deleted the key. */
        if (q->ignore_value) {
                value = prev ? prev->value : NULL;
                value_len = prev ? prev->value_len : 0;
        }
        o = names_put_lease(s, q, &l);
        assert(o == STATE_OK); /* state_check_put_now() found it before */
        (void) o;
        if (q->ignore_lease)
                l = prev ? k->lease : NULL;
        r = kv_put(&s->kv, s->revision + 1, (*sub)++, q->key.data, q->key.len, value, value_len,
                   l ? l->id : 0, &k);
        if (r < 0)
                return r;
        leases_attach(k, l);
        s->counts.puts++;
        s->counts.put_bytes += q->key.len + value_len;
        *ret_prev = prev;
        return 0;
}

static int delete_key(struct state *s, struct kv_key *k, uint32_t *sub)
{
        leases_attach(k, NULL);
        return kv_delete(&s->kv, s->revision + 1, (*sub)++, k);
}

int state_write_delete(struct state *s, const Pb__DeleteRangeRequest *q, uint32_t *sub,
                       struct arena *a, Pb__DeleteRangeResponse *out, struct budget *left)
{
        struct kv_span span = kv_span(&q->key, &q->range_end);
        bool prevs = q->prev_kv && a;
        size_t n = 0;
        int r;

        if (prevs) {
                n = min_of(kv_span_count(&s->kv, &span), left->left);
                out->prev_kvs = arena_alloc(a, n * sizeof(*out->prev_kvs));
                if (!out->prev_kvs)
                        return -ENOMEM;
        }
        for (struct kv_key *k = kv_live_first(&s->kv, &span); k; k = kv_live_next(&span, k)) {
                if (budget_is_spent(left))
                        return 1;
                budget_charge(left, DELETE_STEPS);
                budget_charge_read(left, k->len); /* with the range's end */
                if (prevs) {
                        Pb__KeyValue *prev = arena_alloc(a, sizeof(*prev));

                        if (!prev)
                                return -ENOMEM;
                        kv_fill(k->newest, prev);
                        out->prev_kvs[out->n_prev_kvs++] = prev;
                }
                out->deleted++;
                r = delete_key(s, k, sub);
                if (r < 0)
                        return r;
        }
        s->counts.deletes++;
        return 0;
}

/* Ends a removal; if there were keys, it took one revision. */
static void removed(struct state *s)
{
        s->revision += s->removal.sub > 0;
        s->removal = (struct removal){0};
}

/* Removes the lease and its keys: one revision for all keys, in their order. */
static int drop_lease(struct state *s, struct lease *l, struct budget *left)
{
        struct kv_key *k;

        s->removal.on = true;
        s->removal.lease = l;
        while ((k = RB_MIN(lease_keys, &l->keys))) {
                int r = budget_is_spent(left) ? 1 : delete_key(s, k, &s->removal.sub);

                budget_charge(left, DELETE_STEPS);
                if (r != 0)
                        return r;
                s->counts.deletes++;
        }
        removed(s);
        s->counts.ended++;
        lease_past_keep(s, l->slot);
        deadlines_clear(&s->deadlines, l->slot);
        leases_remove(&s->leases, l);
        deadlines_end_at(&s->deadlines, s->leases.n_slots);
        return 0;
}

/* Sets the granter's deadline of a lease that was granted or renewed. It is one TTL after the
 * leader appended the command, less the time that the request had waited; so the TTL counts
 * from no earlier than when the request was sent (I3). Batches may overtake each other, so a
 * deadline never moves to an earlier instant. */
static int set_deadline(struct state *s, const struct lease *l, int64_t later_ms)
{
        struct lease_time end = lease_time_add(s->time, (l->ttl_ms + later_ms) * NSEC_PER_MSEC),
                          was = deadlines_get(&s->deadlines, l->slot);

        return deadlines_set(&s->deadlines, l->slot,
                             was.ns == LEASE_TIME_NEVER.ns ? end : lease_time_max(was, end));
}

static int grant(struct state *s, const struct cmd *c, const Pb__LeaseGrantRequest *q,
                 struct state_reply *reply)
{
        int64_t ttl_ms = state_grant_ttl_ms(q);
        struct lease *l;
        int r;

        lease_past_keep(s, leases_free_slot(&s->leases));
        r = leases_add(&s->leases, q->id, ttl_ms, s->applied, q->name.data, q->name.len, NULL,
                       &l);
        if (r < 0)
                return r;
        if (c->by_user && s->auth.enabled && c->user.name.len > 0) {
                r = leases_set_owner(&s->leases, l, c->user.name);
                if (r < 0)
                        return r;
        }
        r = set_deadline(s, l, 0);
        if (r < 0)
                return r;
        s->counts.granted++;
        histogram_add(&s->counts.ttl, &state_ttl_shape, (uint64_t) ttl_ms);
        if (reply->out) {
                Pb__LeaseGrantResponse p = PB__LEASE_GRANT_RESPONSE__INIT;

                reply->header.revision = s->revision;
                p.header = &reply->header;
                p.id = l->id;
                p.ttl = (ttl_ms + 999) / 1000;
                p.ttl_ms = ttl_ms;
                pb_append(reply->out, &p.base);
        }
        return 0;
}

/* I7: the log orders renewals and the end of a lease, and a lease that has ended cannot be
 * found here. */
static int renew(struct state *s, struct view body, bool ahead)
{
        struct cmd_slots slots;
        uint64_t as_of;
        uint32_t slot;
        unsigned age;
        int r;

        r = cmd_renew_start(&body, &slots, &as_of);
        while (r == 0) {
                struct lease *l;

                r = cmd_renew_next(&body, &slots, &slot, &age);
                if (r < 0)
                        break;
                l = leases_at(&s->leases, slot);
                if (!l || l->born > as_of)
                        continue; /* the lease has ended, and another one may have its slot */
                lease_past_keep(s, slot);
                l->renewed = s->applied;
                s->counts.renewed++;
                r = set_deadline(s, l, ahead ? (int64_t) age : -(int64_t) age);
        }
        return r == -ENOMEM ? r : 0;
}

uint64_t state_ancestor(const struct state *s, uint64_t cluster)
{
        return cluster == s->descent.cluster ? s->descent.ancestor : 0;
}

/* I3: the survivor may lack the last renewals that the ancestor has acknowledged. All of them
 * were sent before now, so each lease begins a term now. */
static int descend(struct state *s, struct view body, struct budget *left)
{
        uint64_t cluster, ancestor;
        int r = cmd_descend_read(body, &cluster, &ancestor);

        if (r < 0 || state_ancestor(s, cluster) == ancestor)
                return 0;
        s->removal.on = true;
        for (; s->removal.slot < s->leases.n_slots; s->removal.slot++) {
                struct lease *l = leases_at(&s->leases, s->removal.slot);

                if (budget_is_spent(left))
                        return 1;
                budget_charge(left, 1);
                if (!l)
                        continue;
                lease_past_keep(s, l->slot);
                l->renewed = s->applied;
                r = set_deadline(s, l, 0);
                if (r < 0)
                        return r;
        }
        s->removal.on = false;
        s->removal.slot = 0;
        s->descent = (struct descent){.cluster = cluster, .ancestor = ancestor};
        return 0;
}

/* I1: a lease that was renewed after the proposer checked it is kept; the proposal has no
 * effect on it. */
static int expire(struct state *s, struct view body, struct budget *left)
{
        struct cmd_slots slots = {0};
        uint64_t renewed;
        uint32_t slot;

        while (cmd_expire_next(&body, &slots, &slot, &renewed) == 0) {
                struct lease *l = leases_at(&s->leases, slot);
                struct lease_time end = deadlines_get(&s->deadlines, slot);
                int r;

                if (!l || l->renewed != renewed) {
                        PROBE_IF(l, "a lease is renewed after its expiry was proposed");
                        continue;
                }
                s->removal.on = true;
                if (budget_is_spent(left))
                        return 1;
                r = drop_lease(s, l, left);
                if (r != 0)
                        return r;
                s->counts.expired++;
                histogram_add_nsec(
                        &s->counts.late, &histogram_way,
                        lease_time_diff(lease_time_max(s->counts.now, s->time), end));
                budget_charge(left, 1);
        }
        s->removal.on = false;
        return 0;
}

static int slot_cmp(const void *a, const void *b)
{
        uint32_t x = *(const uint32_t *) a, y = *(const uint32_t *) b;

        return x < y ? -1 : x > y;
}

size_t state_expire(struct state *s, struct lease_time now, struct lease_time again, size_t max,
                    struct buf *body)
{
        cleanup_(freep) uint32_t *due = NULL;
        struct cmd_slots slots = {0};
        size_t n = 0, cap = 0, keys = 0, looks = DEADLINES_LOOKS;
        uint32_t slot;

        /* Popped soonest first, but encoded in ascending order of slots. */
        while (n < max && keys < STATE_EXPIRE_KEYS &&
               deadlines_pop(&s->deadlines, now, again, &looks, &slot)) {
                keys += leases_at(&s->leases, slot)->n_keys;
                if (array_reserve(&due, &cap, n + 1, sizeof(*due)) < 0)
                        break; /* they become due again at @again */
                due[n++] = slot;
        }
        if (n > 1)
                qsort(due, n, sizeof(*due), slot_cmp);
        for (size_t i = 0; i < n; i++)
                cmd_expire_add(body, &slots, due[i], leases_at(&s->leases, due[i])->renewed);
        return n;
}

static int put(struct state *s, const Pb__PutRequest *q, struct state_reply *reply)
{
        const struct kv_version *prev;
        uint32_t sub = 0;
        int r;

        r = state_write_put(s, q, &sub, &prev);
        if (r < 0)
                return r;
        s->revision++;
        if (reply->out) {
                Pb__PutResponse p = PB__PUT_RESPONSE__INIT;
                Pb__KeyValue kv;

                reply->header.revision = s->revision;
                p.header = &reply->header;
                if (q->prev_kv && prev) {
                        kv_fill(prev, &kv);
                        p.prev_kv = &kv;
                }
                pb_append(reply->out, &p.base);
        }
        return 0;
}

static int delete_range(struct state *s, const Pb__DeleteRangeRequest *q,
                        struct state_reply *reply, struct budget *left)
{
        Pb__DeleteRangeResponse p = PB__DELETE_RANGE_RESPONSE__INIT;
        cleanup_(arena_fini) struct arena a = {0};
        int r;

        s->removal.on = true;
        r = state_write_delete(s, q, &s->removal.sub, reply->out ? &a : NULL, &p, left);
        if (r < 0)
                return r;
        p.deleted = 0;
        if (r == 0) {
                p.deleted = s->removal.sub;
                removed(s);
                reply->header.revision = s->revision;
                p.header = &reply->header;
        }
        /* In protobuf's encoding, concatenated messages form one message. */
        if (reply->out)
                pb_append(reply->out, &p.base);
        return r;
}

/* A reply that consists of a header only: many messages are encoded like this one. */
static int answer_done(const struct state *s, struct state_reply *reply)
{
        Pb__CompactionResponse p = PB__COMPACTION_RESPONSE__INIT;

        if (reply->out) {
                reply->header.revision = s->revision;
                p.header = &reply->header;
                pb_append(reply->out, &p.base);
        }
        return 0;
}

static int compact(struct state *s, const Pb__CompactionRequest *q, struct state_reply *reply,
                   struct budget *left)
{
        s->removal.on = !kv_compact_some(&s->kv, q->revision, left);
        PROBE_IF(s->removal.on, "a compaction takes more than one slice");
        return s->removal.on ? 1 : answer_done(s, reply);
}

static int revoke(struct state *s, struct lease *l, struct state_reply *reply,
                  struct budget *left)
{
        int r = drop_lease(s, s->removal.on ? s->removal.lease : l, left);

        return r != 0 ? r : answer_done(s, reply);
}

static int set_member(struct state *s, const Pb__Member *m)
{
        cleanup_(buf_fini) struct buf urls = {0};

        if (!*m->name && m->n_clienturls == 0 && s->cluster_version >= CLUSTER_0_2) {
                drop_member(s, m->id);
                return 0;
        }
        for (size_t i = 0; i < m->n_clienturls; i++)
                buf_printf(&urls, "%s%s", i > 0 ? "," : "", m->clienturls[i]);
        buf_add_u8(&urls, 0);
        if (buf_error(&urls) < 0)
                return -ENOMEM;
        return state_set_member(s, m->id, m->name, (const char *) urls.data);
}

/* The protobuf type of each command's body; NULL: it is not a protobuf message. */
static const ProtobufCMessageDescriptor *const bodies[CMD_LAST_ + 1] = {
        [CMD_PUT] = &pb__put_request__descriptor,
        [CMD_DELETE_RANGE] = &pb__delete_range_request__descriptor,
        [CMD_TXN] = &pb__txn_request__descriptor,
        [CMD_COMPACT] = &pb__compaction_request__descriptor,
        [CMD_GRANT] = &pb__lease_grant_request__descriptor,
        [CMD_REVOKE] = &pb__lease_revoke_request__descriptor,
        [CMD_MEMBER] = &pb__member__descriptor,
        [CMD_ALARM] = &pb__alarm_request__descriptor,
        [CMD_AUTH] = &pb__auth_change__descriptor,
        [CMD_CACHE] = &pb__cache_term__descriptor,
};

void state_begin(struct state *s, uint64_t index, struct lease_time at)
{
        s->applied = index;
        s->time = lease_time_max(s->time, at);
}

static void raise_version(struct state *s, struct view body)
{
        uint32_t version;

        if (cmd_version_read(body, &version) == 0)
                s->cluster_version = max_of(s->cluster_version, version);
}

static int change_auth(struct state *s, const Pb__AuthChange *q, struct state_reply *reply)
{
        int r = auth_change(&s->auth, q, &reply->outcome);

        return r == 0 && reply->outcome == STATE_OK ? answer_done(s, reply) : r;
}

/* A command that would exceed the quota of the replica that accepted it raises that replica's
 * alarm, as in etcd. Here the entry itself raises it, so that commands in flight are refused as
 * well. */
static int raise_nospace(struct state *s, const struct cmd *c)
{
        if (state_alarmed(s, PB__ALARM_TYPE__NOSPACE))
                return 0;
        PROBE("an entry raises the alarm of the quota");
        return state_add_alarm(s, c->origin, PB__ALARM_TYPE__NOSPACE, ALARM_STANDS);
}

/* Also begins to wait for cache terms. */
static int admit(struct state *s, const struct cmd *c, const void *m, struct budget *left,
                 struct state_admission *a, struct state_reply *reply)
{
        int r = state_admit(s, c, m, left, a);

        if (r < 0)
                return r;
        PROBE_IF(r == STATE_E_LEASE_EXISTS, "a lease is granted that exists");
        reply->outcome = (enum state_outcome) r;
        if (r == 0 && s->cached.n > 0)
                reply->outcome = state_awaits_caches(s, c->type, m, a, &reply->wait);
        return r == STATE_E_NOSPACE ? raise_nospace(s, c) : 0;
}

/* The reads of a txn, and removals, are counted when they happen. */
static size_t cost(const struct cmd *c)
{
        return cmd_is_renewal(c->type) || c->type == CMD_EXPIRE ? 1 + c->body.len / 4
                                                                : FIND_STEPS + c->body.len / 64;
}

int state_apply_some(struct state *s, const struct cmd *c, struct state_reply *reply,
                     struct budget *left)
{
        struct state_admission a = {.at = ADMIT_APPLIED, .max_txn_ops = STATE_TXN_OPS_MAX};
        void *m = NULL;
        int r = 0;

        reply->outcome = STATE_OK;
        reply->wait = (struct cached_wait){0};
        arena_clear(&s->scratch);
        if (!s->removal.on)
                budget_charge(left, cost(c));
        if (bodies[c->type])
                r = pb_unpack_logged(&s->scratch, bodies[c->type], c->body, &m);
        if (r == -ENOMEM)
                return r; /* never an outcome, which must depend on the bytes alone (I4) */
        if (r < 0) {
                reply->outcome = STATE_E_MALFORMED;
                return 0;
        }
        if (m && !s->removal.on)
                r = admit(s, c, m, left, &a, reply);
        if (r < 0 || reply->outcome != STATE_OK)
                return r;
        switch (c->type) {
        case CMD_PUT:
                return put(s, m, reply);
        case CMD_DELETE_RANGE:
                return delete_range(s, m, reply, left);
        case CMD_TXN:
                names_settle(s, m);
                return state_txn(s, m, &a, reply, left);
        case CMD_COMPACT:
                return compact(s, m, reply, left);
        case CMD_GRANT:
                return grant(s, c, m, reply);
        case CMD_REVOKE:
                return revoke(s, a.lease, reply, left);
        case CMD_ALARM:
                return state_alarm(s, m, reply);
        case CMD_AUTH:
                return change_auth(s, m, reply);
        case CMD_MEMBER:
                return set_member(s, m);
        case CMD_CACHE:
                return state_cache(s, m, reply, left);
        case CMD_UNCACHE:
                state_uncache(s, c->body, reply);
                return 0;
        case CMD_RENEW:
        case CMD_RENEW_AHEAD:
                return renew(s, c->body, c->type == CMD_RENEW_AHEAD);
        case CMD_EXPIRE:
                return expire(s, c->body, left);
        case CMD_VERSION:
                raise_version(s, c->body);
                return 0;
        case CMD_DESCEND:
                return descend(s, c->body, left);
        case CMD_TICK:
                return 0;
        }
        reply->outcome = STATE_E_MALFORMED;
        return 0;
}
