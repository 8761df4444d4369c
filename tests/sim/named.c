/*
 * Clients that use leases by name only: grant, renew, revoke, look up, and attach keys,
 * whatever happens to the replicas and to their connections.
 *
 * After each entry, at each replica: no two leases have the same name, and each key that was
 * put with a name is attached to the lease that has it. And a client that was told of a lease
 * knows how long it lives at least: until then nobody else is granted its name, and nobody is
 * told that no lease has it.
 */
#include <stdio.h>

#include "asker.h"
#include "state/lease_names.h"

#define N_CLIENTS 4
#define N_NAMES 3
#define N_LASTING 2 /* names that nobody revokes */
#define N_KEYS_OF 3
#define PREFIX "named/"

enum asked { GRANT, RENEW, REVOKE, LOOK, PUT, TXN };

static struct client {
        struct asker asker;
        enum asked asked;
        unsigned name;
        int64_t ttl_ms;
} clients[N_CLIENTS];

/* When leases of a name certainly lived, in true time. */
#define LIVES_MAX 4096
static struct life {
        unsigned name;
        int64_t lease;
        nsec_t from, until;
} lives[LIVES_MAX];
static size_t n_lives;

static const char *const names[N_NAMES] = {"n0", "n1", "n2"};

static ProtobufCBinaryData name_of(const struct client *c)
{
        return pb_bytes(names[c->name], 2);
}

static struct client *client_of(struct asker *a)
{
        return container_of(a, struct client, asker);
}

/* ---- requests ---- */

static void put(struct client *c, bool in_txn)
{
        Pb__TxnRequest txn = PB__TXN_REQUEST__INIT;
        Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;
        char key[32];

        snprintf(key, sizeof(key), PREFIX "%s/%u", names[c->name],
                 (unsigned) rnd_between(&W->rnd, 0, N_KEYS_OF - 1));
        q.key = pb_bytes(key, strlen(key));
        q.lease = PB_LEASE_BY_NAME;
        q.lease_name = name_of(c);
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op.request_put = &q;
        txn.success = ops;
        txn.n_success = 1;
        asker_ask(&c->asker, in_txn ? "/etcdserverpb.KV/Txn" : "/etcdserverpb.KV/Put",
                  in_txn ? &txn.base : &q.base);
}

static void act(struct asker *a)
{
        static const enum asked kinds[] = {GRANT, RENEW, RENEW, RENEW, LOOK,
                                           PUT,   PUT,   TXN,   REVOKE};
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__LeaseKeepAliveRequest renew = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;
        Pb__LeaseRevokeRequest end = PB__LEASE_REVOKE_REQUEST__INIT;
        Pb__LeaseTimeToLiveRequest look = PB__LEASE_TIME_TO_LIVE_REQUEST__INIT;
        struct client *c = client_of(a);

        c->asked = kinds[rnd_between(&W->rnd, 0, ARRAY_SIZE(kinds) - 1)];
        c->name = (unsigned) rnd_between(&W->rnd, c->asked == REVOKE ? N_LASTING : 0,
                                         N_NAMES - 1);
        switch (c->asked) {
        case GRANT:
                c->ttl_ms = (int64_t) rnd_between(&W->rnd, TTL_MIN_MS, 2 * TTL_MIN_MS);
                grant.ttl_ms = c->ttl_ms;
                grant.name = name_of(c);
                return asker_ask(a, "/etcdserverpb.Lease/LeaseGrant", &grant.base);
        case RENEW:
                renew.name = name_of(c);
                return asker_ask(a, "/etcdserverpb.Lease/LeaseKeepAlive", &renew.base);
        case REVOKE:
                end.name = name_of(c);
                return asker_ask(a, "/etcdserverpb.Lease/LeaseRevoke", &end.base);
        case LOOK:
                look.name = name_of(c);
                look.keys = true;
                return asker_ask(a, "/etcdserverpb.Lease/LeaseTimeToLive", &look.base);
        case PUT:
        case TXN:
                return put(c, c->asked == TXN);
        }
}

/* ---- answers ---- */

/* A lease of that name that lived all the time since the request; NULL: none is known. */
static const struct life *lived(const struct client *c)
{
        for (size_t i = 0; i < n_lives; i++)
                if (lives[i].name == c->name && lives[i].from <= c->asker.asked_at &&
                    lives[i].until > W->now)
                        return &lives[i];
        return NULL;
}

static void check_nobody(const struct client *c, const char *what)
{
        const struct life *l = lived(c);

        if (l)
                fail(W, "names: client %u %s %s, which lease %llx has from %.3f to %.3f s",
                     c->asker.i, what, names[c->name], (unsigned long long) l->lease,
                     (double) l->from / 1e9, (double) l->until / 1e9);
}

/* It was granted or renewed, so it lives at least until then, by the fastest clock. */
static void lives_on(const struct client *c, int64_t lease, int64_t ttl_ms)
{
        const struct life *l = lived(c);
        nsec_t until = c->asker.asked_at + ttl_ms * MSEC / 1000 * 998;

        if (l && l->lease != lease)
                fail(W, "names: %s is said to be of lease %llx, and lease %llx has it",
                     names[c->name], (unsigned long long) lease, (unsigned long long) l->lease);
        if (c->name >= N_LASTING || until <= W->now)
                return;
        if (n_lives == LIVES_MAX)
                return fail_full(W, "named leases");
        lives[n_lives++] =
                (struct life){.name = c->name, .lease = lease, .from = W->now, .until = until};
}

static void on_granted(struct client *c, enum rpc_code code, struct view m)
{
        Pb__LeaseGrantResponse *p;

        if (code == RPC_FAILED_PRECONDITION)
                W->counts.names_used++;
        if (code != RPC_OK)
                return;
        W->counts.names_granted++;
        check_nobody(c, "was granted");
        p = pb__lease_grant_response__unpack(NULL, m.len, m.p);
        lives_on(c, p->id, p->ttl_ms);
        pb_free(p);
}

static void on_renewed(struct client *c, struct view m)
{
        Pb__LeaseKeepAliveResponse *p = pb__lease_keep_alive_response__unpack(NULL, m.len, m.p);

        if (bytes_cmp(p->name.data, p->name.len, names[c->name], 2) != 0)
                fail(W, "names: a renewal of %s is answered with another name", names[c->name]);
        if (p->ttl > 0)
                lives_on(c, p->id, p->ttl_ms);
        else
                check_nobody(c, "was told that nobody has");
        W->counts.names_renewed += p->ttl > 0;
        pb_free(p);
}

static void on_found(struct client *c, struct view m)
{
        Pb__LeaseTimeToLiveResponse *p =
                pb__lease_time_to_live_response__unpack(NULL, m.len, m.p);
        const struct life *l = lived(c);

        if (p->ttl < 0)
                check_nobody(c, "did not find");
        else if (l && l->lease != p->id)
                fail(W, "names: %s is looked up as lease %llx, and lease %llx has it",
                     names[c->name], (unsigned long long) p->id, (unsigned long long) l->lease);
        for (size_t i = 0; i < p->n_keys; i++)
                if (p->keys[i].len < 8 || memcmp(p->keys[i].data + 6, names[c->name], 2) != 0)
                        fail(W, "names: a key of another name hangs on the lease of %s",
                             names[c->name]);
        pb_free(p);
}

static void answered(struct asker *a, enum rpc_code code, struct view m, bool lost)
{
        struct client *c = client_of(a);

        a->act_at = W->now + some_time(W, 0, 80 * MSEC);
        if (lost)
                return;
        if (code == RPC_NOT_FOUND)
                check_nobody(c, "was told that nobody has");
        switch (c->asked) {
        case GRANT:
                on_granted(c, code, m);
                break;
        case RENEW:
                if (code == RPC_OK)
                        on_renewed(c, m);
                break;
        case LOOK:
                if (code == RPC_OK)
                        on_found(c, m);
                break;
        case REVOKE:
        case PUT:
        case TXN:
                W->counts.names_put += code == RPC_OK && c->asked != REVOKE;
                break;
        }
}

static const struct asker_ops ops = {.act = act, .answered = answered};

/* ---- what every replica has ---- */

static void check_unique(struct world *w, const struct state *s)
{
        for (size_t i = 0; i < s->leases.n_slots; i++)
                for (size_t k = 0; k < i; k++) {
                        const struct lease *a = s->leases.slots[i], *b = s->leases.slots[k];

                        if (a && b && a->name_len > 0 &&
                            bytes_cmp(a->name, a->name_len, b->name, b->name_len) == 0)
                                fail(w, "names: the leases %llx and %llx have one name",
                                     (unsigned long long) a->id, (unsigned long long) b->id);
                }
}

void named_applied(struct world *w, struct state *s)
{
        ProtobufCBinaryData from = pb_bytes(PREFIX, 6), end = pb_bytes("named0", 6);
        struct kv_span span = kv_span(&from, &end);

        if (!w->named)
                return;
        check_unique(w, s);
        for (struct kv_key *k = kv_live_first(&s->kv, &span); k; k = kv_live_next(&span, k)) {
                const struct lease *l = k->lease;

                if (!l || leases_find(&s->leases, l->id) != l)
                        fail(w, "names: a key that was put with a name hangs on no lease");
                else if (bytes_cmp(l->name, l->name_len, k->bytes + 6, 2) != 0)
                        fail(w, "names: %.*s hangs on the lease %llx, which is named %.*s",
                             (int) k->len, (const char *) k->bytes, (unsigned long long) l->id,
                             (int) l->name_len, (const char *) l->name);
        }
}

/* ---- ---- */

void named_begin(struct world *w)
{
        n_lives = 0;
        for (unsigned i = 0; w->named && i < N_CLIENTS; i++)
                asker_begin(&clients[i].asker, i, &ops);
}
