#include "etcd/api.h"

#include <stdio.h>

#include "base/probe.h"
#include "etcd/internal.h"
#include "wire/renewal.h"

#define SPARE_MAX 4096
/* A request is at most 1.5 MB by default, and so is a value; the buffer grows by doubling. */
#define PACKED_KEEP ((size_t) 3 << 20)
#define MESSAGES_MIN 64 /* in one request, in addition to those of its operations */

static const struct {
        const struct method *methods;
        const size_t *n;
} tables[] = {
        {kv_methods, &n_kv_methods},       {lease_methods, &n_lease_methods},
        {watch_methods, &n_watch_methods}, {cluster_methods, &n_cluster_methods},
        {lock_methods, &n_lock_methods},   {maintenance_methods, &n_maintenance_methods},
        {auth_methods, &n_auth_methods},   {cache_methods, &n_cache_methods},
};

static int make_counts(struct api *a)
{
        size_t n = 0;

        while (api_method(n))
                n++;
        a->counts = calloc(n, sizeof(*a->counts));
        for (size_t i = 0; a->counts && i < n; i++)
                a->counts[i].now = core_clock(a->core);
        return a->counts ? 0 : -ENOMEM;
}

int api_new(struct api **ret, struct core *core, struct worker *passwords, nsec_t token_ttl)
{
        cleanup_(api_freep) struct api *a = calloc(1, sizeof(*a));
        int r;

        if (!a)
                return -ENOMEM;
        a->core = core;
        a->passwords = passwords;
        a->token_ttl = token_ttl;
        strcpy(a->version, API_VERSION);
        LIST_INIT(&a->spare_keepalives);
        LIST_INIT(&a->streams);
        a->leaderless_since = a->leaderless_at = BOOT_TIME_NEVER;
        line_init(&a->sliced, LINE_SLICED);
        line_init(&a->in_turn, LINE_TURN);
        line_init(&a->room, LINE_ROOM);
        line_init(&a->costly, LINE_LOG);
        TAILQ_INIT(&a->password_jobs);
        r = make_counts(a);
        if (r == 0)
                r = watch_hub_new(&a->watches, a);
        if (r == 0)
                r = claim_hub_new(&a->claims, a);
        if (r == 0)
                r = observe_hub_new(&a->observers, a);
        if (r == 0)
                r = cache_hub_new(&a->caches, a);
        if (r < 0)
                return r;
        *ret = take_ptr(a);
        return 0;
}

struct api *api_free(struct api *a)
{
        struct request *q;

        if (!a)
                return NULL;
        watch_hub_free(a->watches);
        claim_hub_free(a->claims);
        cache_hub_free(a->caches);
        observe_hub_free(a->observers);
        while ((q = a->spare)) {
                a->spare = q->next_spare;
                free(q);
        }
        keepalives_fini(a);
        buf_fini(&a->packed);
        free(a->counts);
        free(a);
        return NULL;
}

bool api_is_version(const char *version)
{
        int numbers = 0;

        for (const char *p = version; numbers < 3; p++) {
                size_t n = strspn(p, "0123456789");

                if (n == 0 || n > 5)
                        return false;
                p += n;
                numbers++;
                if (numbers == 3 ? *p != '\0' : *p != '.')
                        return false;
        }
        return true;
}

int api_set_version(struct api *a, const char *version)
{
        if (!api_is_version(version))
                return -EINVAL;
        snprintf(a->version, sizeof(a->version), "%s", version);
        return 0;
}

void api_set_status_page(struct api *a, bool on)
{
        a->status_page = on;
}

void api_set_conns(struct api *a, const struct api_conns *conns, void *arg)
{
        a->conns = *conns;
        a->conns_arg = arg;
        for (size_t i = 0; conns->clock && api_method(i); i++)
                a->counts[i].now = conns->clock(arg);
}

struct shares *api_shares(struct api *a)
{
        return core_shares(a->core);
}

const bool *api_busy(const struct api *a)
{
        return core_half_applied(a->core);
}

void api_kick(struct api *a, struct rpc_call *call)
{
        a->conns.kick(call->conn, a->conns_arg);
}

/* Clears the buffer for the next answer. */
static struct buf *packed(struct api *a)
{
        buf_reuse(&a->packed, PACKED_KEEP);
        return &a->packed;
}

struct buf api_take_packed(struct api *a)
{
        struct buf b = *packed(a);

        a->packed = (struct buf){0};
        return b;
}

void api_give_packed(struct api *a, struct buf *b)
{
        buf_fini(&a->packed);
        a->packed = *b;
        *b = (struct buf){0};
}

void api_send_packed(struct api *a, struct rpc_call *call)
{
        if (buf_error(&a->packed) < 0 ||
            rpc_call_send(call, a->packed.data, buf_len(&a->packed)) < 0)
                rpc_call_finish(call, RPC_RESOURCE_EXHAUSTED, "out of memory");
        api_kick(a, call);
}

void api_send(struct api *a, struct rpc_call *call, const ProtobufCMessage *m)
{
        pb_append(packed(a), m);
        api_send_packed(a, call);
}

static struct request *request_new(struct api *a)
{
        struct request *q = a->spare;

        if (!q)
                return calloc(1, sizeof(*q));
        a->spare = q->next_spare;
        a->n_spare--;
        memset(q, 0, sizeof(*q));
        return q;
}

static void request_free(struct request *q)
{
        struct api *a = q->api;

        if (q->drop)
                q->drop(q);
        pb_free(q->msg);
        identity_fini(&q->who);
        if (a->n_spare == SPARE_MAX)
                return free(q);
        q->next_spare = a->spare;
        a->spare = q;
        a->n_spare++;
}

/* The call is answered: it no longer needs the request. */
void request_end(struct request *q)
{
        if (q->call) {
                q->call->userdata = NULL;
                api_kick(q->api, q->call);
        }
        request_free(q);
}

bool request_begins(struct request *q, size_t len)
{
        if (rpc_call_begin(q->call, len) < 0) {
                request_fail(q, status_nomem);
                return false;
        }
        if (len > RPC_MESSAGE_MAX) { /* rpc has sent that error to the client */
                request_end(q);
                return false;
        }
        return true;
}

void request_goes_on(struct request *q)
{
        rpc_call_wait_sent(q->call);
        api_kick(q->api, q->call);
}

void request_finish(struct request *q)
{
        rpc_call_finish(q->call, RPC_OK, "");
        request_end(q);
}

void request_reply_bytes(struct request *q, const void *p, size_t n)
{
        if (q->call) {
                if (rpc_call_send(q->call, p, n) < 0)
                        rpc_call_finish(q->call, RPC_RESOURCE_EXHAUSTED, "out of memory");
                rpc_call_finish(q->call, RPC_OK, "");
        }
        request_end(q);
}

static void reply_packed(struct request *q)
{
        const struct buf *b = &q->api->packed;

        if (buf_error(b) < 0)
                return request_fail(q, status_nomem);
        request_reply_bytes(q, b->data, buf_len(b));
}

void request_reply(struct request *q, const ProtobufCMessage *m)
{
        pb_append(packed(q->api), m);
        reply_packed(q);
}

void request_answer(struct request *q, const ProtobufCMessage *m,
                    void (*again)(struct request *q))
{
        if (request_has_room(q, protobuf_c_message_get_packed_size(m), again))
                request_reply(q, m);
}

void request_reply_header(struct request *q)
{
        Pb__ResponseHeader h;

        core_header(q->api->core, &h);
        header_append(packed(q->api), &h);
        reply_packed(q);
}

void request_fail(struct request *q, struct status st)
{
        if (q->reads_compacted && st.text == status_of(STATE_E_FUTURE).text)
                st = status_of(STATE_E_COMPACTED);
        if (q->call)
                rpc_call_finish(q->call, st.code, st.text);
        request_end(q);
}

static void core_failed(struct request *q, struct status st)
{
        if (q->failed)
                q->failed(q, st);
        else
                request_fail(q, st);
}

/* Also checked for a write: to refuse it here saves the log's time. It is checked again when it
 * is applied, against the state of that time. */
static struct status admit(struct request *q)
{
        const struct state *s = core_state(q->api->core);
        struct status st;

        if (q->method->access == FOR_ALL)
                return status_ok;
        st = identify(q->api, q->call, &q->who);
        if (st.code != RPC_OK)
                return st;
        return status_of(q->method->access == FOR_ROOT ? permit_root(s, &q->who.user)
                                                       : permit_user(s, &q->who.user));
}

/* Whether the request came with a token when this replica, which is behind, did not know that
 * authentication is on. */
static bool came_too_early(const struct request *q)
{
        return q->call && q->call->token && !q->who.name;
}

static void write_done(struct core_write *w, struct status st, struct view reply)
{
        static const struct status too_early = {
                RPC_UNAVAILABLE,
                "etcdserver: this replica did not know that authentication is on; try again"};
        struct request *q = container_of(w, struct request, write);

        if (st.text == status_of(STATE_E_USER_EMPTY).text && came_too_early(q)) {
                PROBE("a write with a token comes before its replica needs one");
                st = too_early;
        }
        request_is_applied(q);
        q->waiting = false;
        if (q->wrote)
                return q->wrote(q, st, reply);
        if (st.code != RPC_OK)
                return request_fail(q, st);
        request_reply_bytes(q, reply.p, reply.len);
}

void request_drop_msg(struct request *q)
{
        q->msg = pb_free(q->msg);
        if (q->call)
                rpc_call_charge_request(q->call, 0);
}

/* The answer to a write is built when it is applied, which cannot wait for a reader: so the
 * number of large ones under way is limited. */
static bool waits_for_room(struct request *q)
{
        if (q->call && !q->call->large && q->prev_kv) {
                q->call->large = true;
                if (!rpc_call_has_room(q->call)) {
                        q->then = q->method->run;
                        rpc_call_wait(q->call);
                        return true;
                }
        }
        return !request_has_room(q, q->answer_bytes, q->method->run);
}

static void write_bytes(struct request *q, enum cmd_type type, const void *m, struct view body)
{
        const struct cmd_user *who = q->by_core ? NULL : &q->who.user;
        struct budget left = BUDGET_ALL;
        struct state_admission a;
        struct status st;
        int r;

        q->own = (struct view){0};
        st = core_admit(q->api->core, type, who, m, &left, &a);
        request_spent(q, BUDGET_READ_STEPS * budget_used(&left), 0);
        if (st.code != RPC_OK)
                return core_failed(q, st);
        q->answer_bytes = a.answer;
        q->steps = a.steps;
        if (waits_for_room(q) || !request_may_cost(q, q->method->run))
                return;
        q->write.done = write_done;
        q->write.by = q->call ? requester_of(q->call, &q->who) : (struct requester){0};
        r = core_write(q->api->core, &q->write, type, who, body.p, body.len,
                       q->call ? q->call->timeout : 0);
        if (r < 0)
                return core_failed(q, status_too_many);
        request_is_on_way(q);
        q->waiting = true;
        if (!q->asks_again)
                request_drop_msg(q);
        if (q->call)
                rpc_call_charge(q->call, body.len + q->answer_bytes);
}

void request_write(struct request *q, enum cmd_type type, const ProtobufCMessage *body)
{
        struct buf *b = packed(q->api);

        pb_append(b, body);
        if (buf_error(b) < 0)
                return core_failed(q, status_nomem);
        write_bytes(q, type, body, (struct view){b->data, buf_len(b)});
}

void request_write_own(struct request *q, enum cmd_type type)
{
        if (q->own.p)
                write_bytes(q, type, q->msg, q->own);
        else
                request_write(q, type, q->msg);
}

static void read_done(struct core_read *rd, struct status st)
{
        struct request *q = container_of(rd, struct request, read);

        q->waiting = q->reading = false;
        if (!q->call)
                return q->gone ? q->gone(q) : request_free(q);
        if (st.code == RPC_OK && came_too_early(q)) {
                st = admit(q);
        }
        if (st.code != RPC_OK)
                return core_failed(q, st);
        if (q->method->large && !rpc_call_has_room(q->call))
                return rpc_call_wait(q->call); /* waiting does no harm: more may be reported
                                                * later */
        q->then(q);
}

static void on_room(struct rpc_call *call)
{
        struct request *q = call->userdata;

        if (q)
                q->then(q);
}

void request_read(struct request *q, void (*then)(struct request *q))
{
        q->waiting = q->reading = true;
        q->then = then;
        q->read.done = read_done;
        q->read.by = requester_of(q->call, &q->who);
        core_read(q->api->core, &q->read, q->call->timeout);
}

/* Whether the request is refused before anybody looks at its message. */
static struct status refuse_unread(struct request *q)
{
        if (replica_learns(core_replica(q->api->core)) &&
            q->method->at_learner == LEARNER_REFUSES)
                return status_learner;
        if (q->call->want_leader && core_status(q->api->core).leader_id == 0)
                return status_no_leader;
        return admit(q);
}

static bool learner_answers(const struct request *q)
{
        return q->method->at_learner != LEARNER_ANSWERS_SERIALIZABLE ||
               ((const Pb__RangeRequest *) q->msg)->serializable;
}

static void on_message(struct rpc_call *call, struct view m)
{
        struct request *q = call->userdata;
        struct status st;
        size_t cost;
        int r;

        if (!q || q->came) /* already answered, or a second message on a unary call */
                return;
        q->came = true;
        st = refuse_unread(q);
        if (st.code != RPC_OK)
                return request_fail(q, st);
        /* A request of 1.5 MB may have 100,000 operations, which would take too long to unpack:
         * so the number of messages is bounded by the number of operations allowed. */
        r = pb_unpack_few(q->method->request, m,
                          6 * core_config(q->api->core)->max_txn_ops + MESSAGES_MIN, &cost,
                          &q->msg);
        if (r == -E2BIG && q->method->request == &pb__txn_request__descriptor)
                return request_fail(q, status_of(STATE_E_TXN_TOO_LARGE));
        if (r < 0)
                return request_fail(q, status_unpacked(r));
        rpc_call_charge_request(call, cost);
        if (replica_learns(core_replica(q->api->core)) && !learner_answers(q))
                return request_fail(q, status_learner);
        q->own = m;
        q->method->run(q);
}

static void on_end(struct rpc_call *call)
{
        struct request *q = call->userdata;

        if (q && !q->came)
                request_fail(q,
                             (struct status){RPC_INTERNAL, "grpc: the request has no message"});
}

static void on_close(struct rpc_call *call)
{
        struct request *q = call->userdata;

        if (!q)
                return;
        q->call = NULL;
        if (q->reading) { /* nobody waits for the answer of the read any more */
                core_read_cancel(q->api->core, &q->read);
                q->reading = q->waiting = false;
        }
        if (q->gone)
                q->gone(q);
        else if (!q->waiting)
                request_free(q);
}

static const struct rpc_handler unary = {
        .on_message = on_message, .on_end = on_end, .on_room = on_room, .on_close = on_close};

static const struct method *method_of(const char *path, size_t *ret_i)
{
        size_t n = 0;

        for (size_t t = 0; t < ARRAY_SIZE(tables); t++)
                for (size_t i = 0; i < *tables[t].n; i++, n++)
                        if (strcmp(tables[t].methods[i].path, path) == 0) {
                                *ret_i = n;
                                return &tables[t].methods[i];
                        }
        return NULL;
}

const struct method *api_method(size_t i)
{
        for (size_t t = 0; t < ARRAY_SIZE(tables); i -= *tables[t++].n)
                if (i < *tables[t].n)
                        return &tables[t].methods[i];
        return NULL;
}

void api_accept(struct rpc_call *call, void *userdata)
{
        struct api *a = userdata;
        const struct method *m;
        struct request *q;
        char why[320];
        size_t i;

        if (call->resource)
                return resource_accept(a, call, false);
        m = method_of(call->path, &i);
        if (!m)
                return; /* rpc answers "unimplemented" */
        rpc_call_count(call, &a->counts[i]);
        api_hear_of(a, call);
        if (!m->always && api_is_stopped(a, why))
                return rpc_call_finish(call, RPC_FAILED_PRECONDITION, why);
        if (m->stream && replica_learns(core_replica(a->core)))
                return rpc_call_finish(call, status_learner.code, status_learner.text);
        if (m->hasleader && call->want_leader) {
                if (core_status(a->core).leader_id == 0)
                        return rpc_call_finish(call, status_no_leader.code,
                                               status_no_leader.text);
        } else if (m->stream) {
                call->want_leader = false; /* it does not end for lack of one */
        }
        if (m->stream) {
                rpc_call_list(call, &a->streams);
                return m->stream(a, call);
        }
        q = request_new(a);
        if (!q)
                return rpc_call_finish(call, RPC_RESOURCE_EXHAUSTED, "out of memory");
        q->api = a;
        q->call = call;
        q->method = m;
        call->userdata = q;
        call->handler = &unary;
        call->unary = true;
        call->large = m->large;
}

void api_accept_probe(struct rpc_call *call, void *userdata)
{
        resource_accept(userdata, call, true);
}

void api_recall(struct api *a, struct boot_time now)
{
        if (!*core_half_applied(a->core))
                cache_hub_flush(a->caches, now);
}

void api_run(struct api *a, struct boot_time now)
{
        if (*core_half_applied(a->core))
                return;
        if (core_caught_up(a->core)) /* else it may be about to apply what is hours old */
                revision_times_note(&a->times, core_state(a->core)->revision, now);
        claim_hub_flush(a->claims, now);
        observe_hub_flush(a->observers, now);
        require_leader_flush(a, now);
        stopped_flush(a);
        watch_hub_flush(a->watches, now);
        sliced_flush(a, now);
        room_flush(a, now);
        if (a->conns.relieve)
                a->conns.relieve(a->conns_arg);
}

struct boot_time api_next(const struct api *a)
{
        if (*core_half_applied(a->core))
                return BOOT_TIME_NEVER;
        if (a->stopping)
                return core_now(a->core);
        return boot_min(
                boot_min(boot_min(cache_hub_next(a->caches), claim_hub_next(a->claims)),
                         boot_min(observe_hub_next(a->observers), a->leaderless_at)),
                boot_min(watch_hub_next(a->watches), boot_min(sliced_next(a), room_next(a))));
}
