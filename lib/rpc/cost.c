/*
 * What open calls cost: their streams, paths and tokens, and what waits with them.
 *
 * What is held for a client shrinks when it reads, or sends the rest of a message, and one that
 * does neither is ended. What an open call costs shrinks when the call ends, which may be
 * never. So that is counted apart, and has a bound at which further calls are refused: if it
 * were held, others would wait for something that their waiting does not reduce.
 */
#include "base/secret.h"
#include "rpc/internal.h"

#define CALL_COST 1536 /* about the memory of nghttp2's stream, the call and its request */
#define FRAME_COST 768 /* a queued frame: an error, with its text, takes about as much */
#define SPARE ((size_t) 64 << 10) /* what an address's calls may cost in any case */

static void set_cost(struct call *k, size_t bytes)
{
        for (struct rpc_account *a = k->pub.conn->limits.account; a; a = a->parent)
                a->calls = a->calls - k->cost + bytes;
        k->cost = bytes;
}

void cost_begins(struct call *k)
{
        set_cost(k, CALL_COST);
}

void cost_headers(struct call *k)
{
        set_cost(k, k->cost + strlen(k->path) + (k->token ? strlen(k->token) : 0));
}

/* Whether the calls of @a may cost @bytes: no more than their parent's bound leaves unused, see
 * rpc_account_spare(). */
static bool may_cost(const struct rpc_account *a, size_t bytes)
{
        size_t max =
                a->parent ? min_of(a->max, sub_sat(a->parent->max, a->parent->calls)) : a->max;

        return bytes <= max_of(max, SPARE);
}

/* A refused call still costs something until its client has read that. A quarter more than the
 * address may have is left for these; beyond that, a connection with many is ended. */
bool cost_may_stay(struct call *k)
{
        struct rpc_conn *c = k->pub.conn;
        struct rpc_account *own = c->limits.account;

        if (!own || may_cost(own, own->calls))
                return true;
        own->n_refused++;
        secret_free(k->token);
        k->pub.token = k->token = NULL;
        set_cost(k, CALL_COST);
        k->refused = true;
        c->refused += CALL_COST;
        if (c->refused > SHARE && !may_cost(own, own->calls / 5 * 4))
                flow_calm(c);
        return false;
}

static void set_frames_cost(struct rpc_conn *c, size_t bytes)
{
        for (struct rpc_account *a = c->limits.account; a; a = a->parent)
                a->calls = a->calls - c->frames + bytes;
        c->frames = bytes;
}

/* nghttp2 keeps the answer to a call that its client has reset until it would be sent, and so
 * the answers to pings. An open call may have one frame: its own cost includes that. */
void cost_frames(struct rpc_conn *c)
{
        const struct rpc_account *own = c->limits.account;

        if (own)
                set_frames_cost(c, sub_sat(rpc_conn_backlog(c), c->n_calls) * FRAME_COST);
}

void cost_frames_came(struct rpc_conn *c)
{
        const struct rpc_account *own = c->limits.account;

        cost_frames(c);
        if (c->frames > SHARE && !may_cost(own, own->calls / 5 * 4))
                flow_calm(c);
}

void cost_frames_end(struct rpc_conn *c)
{
        set_frames_cost(c, 0);
}

void cost_ends(struct call *k)
{
        k->pub.conn->refused -= k->refused ? k->cost : 0;
        set_cost(k, 0);
}

void rpc_call_cost(struct rpc_call *pub, size_t bytes)
{
        struct call *k = call_of(pub);
        size_t before = k->waiting;

        k->waiting = bytes;
        set_cost(k, k->cost - before + bytes);
}
