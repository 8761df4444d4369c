/* Leases: grants and revocations through the log, renewals in the core's batches, answers in
 * any order (A35). */
#include "etcd/internal.h"

#include "state/lease_names.h"
#include "wire/renewal.h"

static void grant(struct request *q)
{
        Pb__LeaseGrantRequest *m = q->msg;
        int64_t min_ms = core_config(q->api->core)->min_ttl / NSEC_PER_MSEC;

        if (m->id < 0)
                return request_fail(q,
                                    (struct status){RPC_INVALID_ARGUMENT,
                                                    "etcdserver: a lease id must be positive"});
        /* The log carries final values, which are the same on every replica whatever its
         * configuration. */
        m->ttl_ms = max_of(state_grant_ttl_ms(m), min_ms);
        if (m->id == 0)
                m->id = core_new_lease_id(q->api->core);
        request_write(q, CMD_GRANT, q->msg);
}

static void revoke_lease(struct request *q)
{
        Pb__LeaseRevokeRequest *m = q->msg;

        /* The setting of this replica decides, on every replica. */
        m->tied = (int32_t) core_config(q->api->core)->lease_tie;
        request_write(q, CMD_REVOKE, q->msg);
}

/* Never more than the TTL, which etcd's clients may rely on: a lease that was renewed ahead has
 * a little more left. */
int64_t lease_left_ms(const struct state *s, const struct lease *l, struct lease_time now)
{
        nsec_t left = lease_time_diff(deadlines_get(&s->deadlines, l->slot), now);

        return min_of(max_of(left, (nsec_t) 0) / NSEC_PER_MSEC, l->ttl_ms);
}

/* ---- LeaseKeepAlive ---- */

/* At most this many renewals of one stream may be unanswered; then we stop reading from it.
 * Fewer while its connection holds much. */
#define OUTSTANDING_MAX 4096
#define OUTSTANDING_FEW 64
#define SPARE_MAX 1024

struct renewal {
        struct core_renewal core;
        struct keepalive *ka; /* the stream; NULL: this is its own one, and unused */
        size_t bytes;
};

struct keepalive {
        LIST_ENTRY(keepalive) next; /* of those for reuse */
        struct api *api;
        struct rpc_call *call; /* NULL: the client went away */
        struct identity who;   /* when the stream began */
        size_t outstanding;
        size_t held;        /* bytes of the outstanding renewals */
        uint32_t slot;      /* of the last lease that was renewed, most likely also of the
                             * next */
        bool ended;         /* the client will send no more */
        struct renewal own; /* most streams have one renewal under way at a time */
};

/* With HTTP/1.1 each renewal is a stream of its own, so these are reused. */
static struct keepalive *keepalive_new(struct api *a)
{
        struct keepalive *ka = LIST_FIRST(&a->spare_keepalives);

        if (!ka)
                return calloc(1, sizeof(*ka));
        LIST_REMOVE(ka, next);
        a->n_spare_keepalives--;
        memset(ka, 0, sizeof(*ka));
        return ka;
}

static void keepalive_free(struct keepalive *ka)
{
        struct api *a = ka->api;

        identity_fini(&ka->who);
        if (a->n_spare_keepalives == SPARE_MAX)
                return free(ka);
        LIST_INSERT_HEAD(&a->spare_keepalives, ka, next);
        a->n_spare_keepalives++;
}

void keepalives_fini(struct api *a)
{
        struct keepalive *ka;

        while ((ka = LIST_FIRST(&a->spare_keepalives))) {
                LIST_REMOVE(ka, next);
                free(ka);
        }
}

static void keepalive_unref(struct keepalive *ka)
{
        if (ka->call || ka->outstanding > 0)
                return;
        keepalive_free(ka);
}

static void renewal_free(struct renewal *r)
{
        if (r == &r->ka->own)
                r->ka = NULL;
        else
                free(r);
}

static bool is_behind(const struct keepalive *ka)
{
        return ka->outstanding >= OUTSTANDING_FEW &&
               (ka->outstanding >= OUTSTANDING_MAX || !rpc_call_has_room(ka->call));
}

static void answer(struct keepalive *ka, const Pb__LeaseKeepAliveResponse *p)
{
        struct buf *b = &ka->api->packed;

        buf_clear(b);
        renewal_answer_append(b, p);
        api_send_packed(ka->api, ka->call);
}

static struct status may_renew(struct keepalive *ka, int64_t id,
                               const ProtobufCBinaryData *name);

static void renewed(struct core_renewal *rn, struct status st, int64_t ttl_ms)
{
        struct renewal *r = container_of(rn, struct renewal, core);
        struct keepalive *ka = r->ka;

        ka->outstanding--;
        ka->held -= r->bytes;
        ka->slot = rn->slot;
        /* The lease with this name may not have been known when the request came. */
        if (rn->name.len > 0 && st.code == RPC_OK && ttl_ms > 0)
                st = may_renew(ka, 0, &rn->name);
        if (ka->call) {
                rpc_call_charge(ka->call, ka->held);
                if (!is_behind(ka))
                        rpc_call_release(ka->call);
        }
        if (ka->call && st.code != RPC_OK) {
                rpc_call_finish(ka->call, st.code, st.text);
                api_kick(ka->api, ka->call);
        } else if (ka->call) {
                Pb__LeaseKeepAliveResponse p = PB__LEASE_KEEP_ALIVE_RESPONSE__INIT;
                Pb__ResponseHeader h;

                core_header(ka->api->core, &h);
                p.header = &h;
                p.id = rn->lease;
                p.name = rn->name;
                p.ttl = (ttl_ms + 999) / 1000;
                p.ttl_ms = ttl_ms;
                answer(ka, &p);
                if (ka->ended && ka->outstanding == 0)
                        rpc_call_finish(ka->call, RPC_OK, "");
        }
        renewal_free(r);
        keepalive_unref(ka);
}

/* The stream's client was identified when the stream began, and its user may have been deleted
 * since; the owner of a lease never changes. A lease that is not known here yet is checked at
 * its next renewal. */
static struct status may_renew(struct keepalive *ka, int64_t id,
                               const ProtobufCBinaryData *name)
{
        const struct state *s = core_state(ka->api->core);
        struct status st = identify_late(ka->api, ka->call, &ka->who);
        const struct lease *l;
        enum state_outcome o;

        if (st.code != RPC_OK)
                return st;
        o = permit_name(s, &ka->who.user);
        if (!s->auth.enabled || o != STATE_OK)
                return status_of(o);
        l = name->len > 0 ? names_find(s, name) : leases_find(&s->leases, id);
        if (!l)
                return status_ok;
        /* Only a client that may list the lease knows its id; a name can be guessed. */
        if (name->len > 0)
                o = permit_lease(s, &ka->who.user, l->id, PERMIT_READ, NULL);
        if (o == STATE_OK)
                o = permit_owner(s, &ka->who.user, l, core_config(ka->api->core)->lease_tie);
        return status_of(o);
}

/* *ret_m is NULL if the request contains only an id. */
static struct status read_request(struct view m, int64_t *ret_lease,
                                  Pb__LeaseKeepAliveRequest **ret_m)
{
        enum state_outcome o;
        int r;

        *ret_m = NULL;
        if (renewal_read(m, ret_lease))
                return status_ok;
        r = pb_unpack(&pb__lease_keep_alive_request__descriptor, m, ret_m);
        if (r < 0)
                return status_unpacked(r);
        *ret_lease = (*ret_m)->id;
        o = names_check((*ret_m)->id, &(*ret_m)->name);
        return o == STATE_OK ? status_ok : status_of(o);
}

/* A renewal by id has a fixed size; a name is stored after it. */
static struct renewal *renewal_new(struct keepalive *ka, int64_t lease,
                                   const ProtobufCBinaryData *name)
{
        bool own = name->len == 0 && !ka->own.ka;
        struct renewal *r = own ? &ka->own : malloc(sizeof(*r) + name->len);

        if (!r)
                return NULL;
        *r = (struct renewal){
                .ka = ka,
                .bytes = sizeof(*r) + name->len,
                .core = {.done = renewed, .lease = lease, .slot = ka->slot},
        };
        if (name->len > 0)
                r->core.name = pb_bytes(memcpy(r + 1, name->data, name->len), name->len);
        return r;
}

static void keepalive_message(struct rpc_call *call, struct view m)
{
        cleanup_(pb_freep) Pb__LeaseKeepAliveRequest *q = NULL;
        struct keepalive *ka = call->userdata;
        ProtobufCBinaryData name = {0};
        int64_t lease = 0;
        struct status st = read_request(m, &lease, &q);
        struct renewal *r;

        if (q)
                name = q->name;
        if (st.code == RPC_OK)
                st = may_renew(ka, lease, &name);
        if (st.code != RPC_OK)
                return rpc_call_finish(call, st.code, st.text);
        r = renewal_new(ka, lease, &name);
        if (!r)
                return rpc_call_finish(call, status_nomem.code, status_nomem.text);
        ka->outstanding++;
        ka->held += r->bytes;
        rpc_call_charge(call, ka->held);
        if (is_behind(ka))
                rpc_call_hold(call);
        core_renew(ka->api->core, &r->core);
}

static void keepalive_end(struct rpc_call *call)
{
        struct keepalive *ka = call->userdata;

        ka->ended = true;
        if (ka->outstanding == 0)
                rpc_call_finish(call, RPC_OK, "");
}

static void keepalive_close(struct rpc_call *call)
{
        struct keepalive *ka = call->userdata;

        ka->call = NULL;
        keepalive_unref(ka);
}

static const struct rpc_handler keepalive_handler = {
        .on_message = keepalive_message,
        .on_end = keepalive_end,
        .on_close = keepalive_close,
};

/* The client is identified once, when the stream begins: a lease in use never ends because a
 * token does (A17). */
static void keepalive_accept(struct api *a, struct rpc_call *call)
{
        struct identity who = {0};
        struct keepalive *ka;
        struct status st;

        st = identify(a, call, &who);
        if (st.code == RPC_OK)
                st = status_of(permit_user(core_state(a->core), &who.user));
        ka = st.code == RPC_OK ? keepalive_new(a) : NULL;
        if (!ka) {
                identity_fini(&who);
                return st.code != RPC_OK
                               ? rpc_call_finish(call, st.code, st.text)
                               : rpc_call_finish(call, RPC_RESOURCE_EXHAUSTED, "out of memory");
        }
        ka->api = a;
        ka->who = who;
        ka->call = call;
        call->userdata = ka;
        call->handler = &keepalive_handler;
}

const struct method lease_methods[] = {
        {"/etcdserverpb.Lease/LeaseGrant", &pb__lease_grant_request__descriptor, grant,
         .access = FOR_USERS},
        {"/etcdserverpb.Lease/LeaseRevoke", &pb__lease_revoke_request__descriptor, revoke_lease,
         .access = FOR_USERS},
        {"/etcdserverpb.Lease/LeaseTimeToLive", &pb__lease_time_to_live_request__descriptor,
         time_to_live, .access = FOR_USERS, .large = true},
        {"/etcdserverpb.Lease/LeaseLeases", &pb__lease_leases_request__descriptor, lease_list,
         .access = FOR_USERS, .large = true},
        {"/etcdserverpb.Lease/LeaseKeepAlive", .stream = keepalive_accept, .kind = BIDI_STREAM,
         .hasleader = true},
};
const size_t n_lease_methods = ARRAY_SIZE(lease_methods);
