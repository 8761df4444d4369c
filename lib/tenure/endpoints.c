/* Chooses the endpoint for calls: finds out what is there, which cluster it belongs to, and
 * logs in. */
#include "tenure/calls.h"

#define LOOK_AGAIN (100 * NSEC_PER_MSEC) /* at an endpoint that is up */
#define GREETING (2 * NSEC_PER_SEC)      /* how long it may take to report its cluster */
#define LOG_IN_WITHIN NSEC_PER_SEC
#define AVOID NSEC_PER_SEC

void calls_avoid(struct tenure *t, size_t i)
{
        struct calls *k = t->calls;

        k->avoid = i;
        k->avoid_until = boot_add(calls_now(k), AVOID);
}

/* ---- a login that has ended ---- */

/* A new login needs a new connection, and everything under way on the present one would be in
 * doubt. So nothing more is sent there until all of it is answered, mostly with the same
 * refusal. */
void calls_log_in_later(struct calls *k, size_t i)
{
        struct end_known *e = &k->ends[i];

        if (!e->logged_out)
                e->log_in_at = boot_add(calls_now(k), LOG_IN_WITHIN);
        e->logged_out = true;
        calls_run_again(k);
}

static bool has_calls_at(const struct calls *k, size_t i)
{
        const struct tenure_call *c;

        TAILQ_FOREACH (c, &k->sent, entry)
                if (c->endpoint == i)
                        return true;
        return false;
}

void calls_log_in(struct calls *k, struct boot_time now)
{
        for (size_t i = 0; i < MEMBER_ENDPOINTS_MAX; i++) {
                struct end_known *e = &k->ends[i];

                if (!e->logged_out)
                        continue;
                if (has_calls_at(k, i) && boot_before(now, e->log_in_at)) {
                        k->look_at = boot_min(k->look_at, e->log_in_at);
                        continue;
                }
                e->logged_out = false;
                client_log_in_again(k->tenure->client, i);
                k->retry_at = boot_add(now, k->backoff);
        }
}

/* ---- what an endpoint is ---- */

static void greeting_message(struct rpc_call *rpc, struct view bytes)
{
        struct end_known *e = rpc->userdata;
        struct calls *k = e->calls;
        size_t i = (size_t) (e - k->ends);
        Pb__StatusResponse *p = NULL;

        if (pb_unpack(&pb__status_response__descriptor, bytes, &p) < 0)
                return;
        if (!member_answered(client_member(k->tenure->client), i, p->header)) {
                calls_trouble(k, i, "it is of another cluster");
        } else {
                e->known = true;
                e->extended = p->clients > 0; /* the answer counts us, so it comes from a
                                               * tenure-core */
                if (p->leader == 0) {
                        calls_trouble(k, i, "it has no leader");
                        calls_avoid(k->tenure, i);
                }
        }
        pb_free(p);
        calls_run_again(k);
}

static void greeting_status(struct rpc_call *rpc, enum rpc_code code, const char *message)
{
        struct end_known *e = rpc->userdata;
        struct calls *k = e->calls;
        struct tenure *t = k->tenure;
        size_t i = (size_t) (e - k->ends);

        if (code == RPC_OK)
                return;
        calls_trouble(k, i, message);
        if (t->user && refusal_wants_login(code, message))
                calls_log_in_later(k, i);
        else if (code != RPC_UNAVAILABLE)
                e->known = true; /* it does not say; the answers to calls will */
        else if (client_rpc(t->client, i) == rpc->conn)
                calls_avoid(t, i);
}

static void greeting_close(struct rpc_call *rpc)
{
        struct end_known *e = rpc->userdata;

        e->asking = NULL;
        calls_run_again(e->calls);
}

static const struct rpc_handler greeting = {.on_message = greeting_message,
                                            .on_status = greeting_status,
                                            .on_close = greeting_close};

/* The answer also says whether leases have names there, and whether there is a leader. */
static void greet(struct calls *k, size_t i, struct boot_time now)
{
        struct client *cl = k->tenure->client;
        struct end_known *e = &k->ends[i];

        e->calls = k;
        if (e->asking && !boot_before(now, e->answer_by)) {
                calls_trouble(k, i, "it does not answer");
                calls_avoid(k->tenure, i);
                rpc_call_cancel(e->asking);
        }
        if (!e->asking) {
                int r = rpc_call_new(client_rpc(cl, i), "/etcdserverpb.Maintenance/Status",
                                     false, &greeting, e, &e->asking);

                if (r == 0)
                        r = rpc_call_send(e->asking, "", 0);
                if (r < 0) {
                        if (e->asking)
                                rpc_call_cancel(e->asking);
                        k->look_at = boot_add(now, LOOK_AGAIN);
                        return calls_avoid(k->tenure, i);
                }
                rpc_call_end(e->asking);
                client_kick(cl, i);
                client_probe(cl, i, CALLS_PROBE_WITHIN);
                e->answer_by = boot_add(now, GREETING);
        }
        k->look_at = e->answer_by;
}

/* Prefers an endpoint that is up, not silent, and not to be avoided. */
static bool pick(struct calls *k, struct boot_time now, size_t *ret)
{
        struct member *m = client_member(k->tenure->client);
        size_t i, other;

        if (!member_pick(m, member_current(m) + k->looked, &i)) {
                k->looked++; /* each call connects the next one */
                return false;
        }
        k->looked = 0;
        if (i == k->avoid && boot_before(now, k->avoid_until) && member_pick(m, i + 1, &other))
                i = other;
        *ret = i;
        return true;
}

bool calls_endpoint(struct tenure *t, struct boot_time now, size_t *ret)
{
        struct calls *k = t->calls;

        if (!pick(k, now, ret)) {
                k->look_at = boot_add(now, LOOK_AGAIN);
                return false;
        }
        if (k->ends[*ret].logged_out)
                return false;
        if (!k->ends[*ret].known)
                greet(k, *ret, now);
        return k->ends[*ret].known;
}

bool calls_is_extended(const struct tenure *t, size_t i)
{
        return t->calls->ends[i].known && t->calls->ends[i].extended;
}
