/* Connections of clients to replicas: the real ones of rpc/, joined by a virtual network that
 * delays and breaks them. */
#include <stdio.h>

#include "world.h"
/* How long until data that nobody accepts now is tried again. */
#define AGAIN (20 * MSEC)

struct parcel {
        STAILQ_ENTRY(parcel) next;
        nsec_t sent, at;
        struct buf bytes;
};

/* The wires that are connected. */
static LIST_HEAD(, wire) wires = LIST_HEAD_INITIALIZER(wires);

bool is_in(const struct world *w, const struct span *s)
{
        return w->now >= s->from && w->now < s->until && !w->calm;
}

static void parcels_clear(struct parcels *list)
{
        struct parcel *p;

        while ((p = STAILQ_FIRST(list))) {
                STAILQ_REMOVE_HEAD(list, next);
                buf_fini(&p->bytes);
                free(p);
        }
}

void wire_init(struct wire *k, nsec_t *wake, const struct span *cut)
{
        *k = (struct wire){.wake = wake, .cut = cut};
        STAILQ_INIT(&k->to_client);
        STAILQ_INIT(&k->to_server);
}

struct rpc_limits wire_limits(const struct replica_node *n)
{
        return (struct rpc_limits){.message_max = 1 << 20,
                                   .calls_max = 100,
                                   .too_large = "x",
                                   .busy = api_busy(n->node.api)};
}

/* Who has the connection, for the shares of that replica. */
static struct party *party_of(const struct wire *k)
{
        static unsigned others;
        struct shares *shares = api_shares(W->r[k->to].node.api);
        struct party *address, *party;
        char name[32];

        snprintf(name, sizeof(name), "%u", ++others);
        address = shares_address(shares, k->from ? k->from : name);
        party = address ? shares_connection(address) : NULL;
        if (!party)
                abort();
        party_unref(address);
        return party;
}

static void on_call(struct rpc_call *call, void *userdata)
{
        const struct wire *k = rpc_conn_userdata(call->conn);

        forced_shown(k->to, call->core, call->core_ancestor);
        api_accept(call, userdata);
}

bool wire_connect(struct wire *k, unsigned to)
{
        struct rpc_limits limits;

        if (!W->r[to].up || W->r[to].asleep || W->cut[to][to])
                return false;
        limits = wire_limits(&W->r[to]);
        k->to = to;
        k->number++;
        k->last_in = k->last_out = k->late_until = 0;
        k->party = limits.party = party_of(k);
        if (rpc_conn_new_client(&k->client, "sim", false) < 0 ||
            rpc_conn_new_server(&k->server, &limits, on_call, W->r[to].node.api) < 0)
                abort();
        rpc_conn_set_userdata(k->server, k);
        k->address = (struct api_turn){0};
        k->turn = (struct api_turn){.of = &k->address};
        LIST_INSERT_HEAD(&wires, k, connected);
        return true;
}

void wire_close(struct wire *k)
{
        if (k->client)
                LIST_REMOVE(k, connected);
        k->client = rpc_conn_free(k->client);
        k->server = rpc_conn_free(k->server);
        k->party = party_unref(k->party);
        parcels_clear(&k->to_client);
        parcels_clear(&k->to_server);
        k->broken = k->client_dirty = k->server_dirty = false;
}

static bool is_patient(const struct wire *k)
{
        return k->cut;
}

static void wake(struct wire *k)
{
        if (k->wake)
                *k->wake = 0;
}

void wires_kick(struct rpc_conn *server, void *arg)
{
        struct wire *k = rpc_conn_userdata(server);

        (void) arg;
        k->server_dirty = true;
        wake(k);
}

struct api_turn *wire_turn(struct rpc_conn *server, void *arg)
{
        struct wire *k = rpc_conn_userdata(server);

        (void) arg;
        return &k->turn;
}

void wires_go_on(const struct replica_node *n)
{
        struct wire *k;

        LIST_FOREACH (k, &wires, connected)
                if (k->server && k->to == n->i) {
                        k->server_dirty = true;
                        wake(k);
                }
}

void wires_replica_down(unsigned i)
{
        struct wire *k;

        LIST_FOREACH (k, &wires, connected) {
                if (!k->server || k->to != i)
                        continue;
                k->server = rpc_conn_free(k->server);
                k->party = party_unref(k->party);
                k->server_dirty = false;
                parcels_clear(&k->to_server);
                /* A host without power does not close its connections. */
                k->broken = k->broken || !is_patient(k) || chance(W, 70);
                wake(k);
        }
}

/* Whose memory a side of the wire uses. Other cores have enough. */
static enum memory memory_for(const struct wire *k, const struct rpc_conn *side)
{
        return side == k->server && !is_stranger(k->to) ? MEMORY_RUN : MEMORY_OURS;
}

/* Sends what one side has queued. */
static void collect(struct wire *k, struct rpc_conn *from, struct parcels *list, nsec_t *last)
{
        MEMORY(memory_for(k, from));
        struct buf b = {0};
        struct parcel *p;
        int r;

        r = rpc_conn_output(from, &b, 1 << 16);
        (void) memory_of(MEMORY_OURS);
        if (r < 0) { /* out of memory: the connection ends */
                k->broken = true;
                return buf_fini(&b);
        }
        if (buf_len(&b) == 0)
                return buf_fini(&b);
        p = calloc(1, sizeof(*p));
        if (!p)
                abort();
        p->bytes = b;
        p->sent = W->now;
        trace_add(W, TRACED_WIRE, k->to << 1 | (from == k->server), buf_head(&b), buf_len(&b));
        *last = p->at = max_of(*last + 1, W->now + some_time(W, 100 * NSEC_PER_USEC, 3 * MSEC));
        STAILQ_INSERT_TAIL(list, p, next);
}

/* Whether the network does not deliver it now. A patient client does not notice, and TCP tries
 * again: an agent's, after twice the time each time (RFC 6298, section 5.5). */
static bool is_cut(struct wire *k, struct parcel *p)
{
        if (W->r[k->to].asleep || W->cut[k->to][k->to] || (is_patient(k) && is_in(W, k->cut))) {
                if (is_patient(k))
                        p->at = W->now +
                                max_of(k->backs_off ? W->now - p->sent : 0, (nsec_t) AGAIN);
                else
                        k->broken = true;
                return true;
        }
        if (W->faults.loss && !W->calm && rnd_between(&W->rnd, 1, 500) == 1)
                k->broken = true;
        return k->broken;
}

void wire_be_late(struct wire *k, nsec_t until, nsec_t deaf_from, bool breaks)
{
        k->late_until = until;
        k->deaf_from = deaf_from;
        k->breaks = breaks;
}

static bool deliver(struct wire *k, struct parcels *list, struct rpc_conn *to)
{
        struct parcel *p = STAILQ_FIRST(list);
        const struct replica_node *n = &W->r[k->to];
        bool asked = list == &k->to_server;

        if (!p || p->at > W->now)
                return false;
        if (asked && n->paused && !n->asleep) { /* it stays in the socket */
                p->at = W->now + AGAIN;
                return false;
        }
        if (W->now < k->late_until && (!asked || W->now >= k->deaf_from)) {
                p->at = min_of(W->now + AGAIN, k->late_until);
                return false;
        }
        if (is_cut(k, p))
                return false;
        STAILQ_REMOVE_HEAD(list, next);
        k->client_dirty = k->server_dirty = true;
        if (!to) { /* a process that started again does not know the connection */
                k->broken = n->up;
        } else {
                MEMORY(memory_for(k, to));
                if (rpc_conn_input(to, buf_head(&p->bytes), buf_len(&p->bytes)) < 0)
                        k->broken = true;
        }
        if (!asked && k->late_until > 0) {
                k->broken = k->broken || k->breaks;
                k->late_until = 0;
        }
        buf_fini(&p->bytes);
        free(p);
        return true;
}

bool wire_hear(struct wire *k)
{
        bool heard = false;

        while (k->client && !k->broken && deliver(k, &k->to_client, k->client))
                heard = true;
        return heard;
}

bool wire_ask(struct wire *k)
{
        bool served = false;

        while (k->client && !k->broken && deliver(k, &k->to_server, k->server))
                served = true;
        if (served)
                world_drive(W, &W->r[k->to]);
        return served;
}

void wire_say(struct wire *k)
{
        if (k->client && k->client_dirty)
                collect(k, k->client, &k->to_server, &k->last_out);
        k->client_dirty = false;
}

void wire_answer(struct wire *k)
{
        /* A paused replica sends it when it goes on. */
        if (k->server && k->server_dirty && !W->r[k->to].paused) {
                bool waited = rpc_conn_can_go_on(k->server);

                k->server_dirty = false;
                collect(k, k->server, &k->to_client, &k->last_in);
                if (waited)
                        world_drive(W, &W->r[k->to]);
        }
}

void wire_run(struct wire *k, const nsec_t *act_at, void (*act)(void *client),
              void (*disconnect)(void *client), void *client)
{
        if (*act_at > W->now && !wire_is_due(k))
                return;
        (void) wire_hear(k);
        (void) wire_ask(k);
        if (*act_at <= W->now && !k->broken)
                act(client);
        if (k->broken)
                disconnect(client);
        wire_say(k);
        wire_answer(k);
        if (k->broken)
                disconnect(client);
}

nsec_t wire_next(const struct wire *k)
{
        const struct parcel *in = STAILQ_FIRST(&k->to_client),
                            *out = STAILQ_FIRST(&k->to_server);

        return min_of(in ? in->at : NEVER, out ? out->at : NEVER);
}

static bool is_old(const struct parcel *p)
{
        return p && W->now - p->sent > AGAIN;
}

bool wire_repeats(const struct wire *k)
{
        return is_old(STAILQ_FIRST(&k->to_client)) || is_old(STAILQ_FIRST(&k->to_server));
}

nsec_t wire_next_asked(const struct wire *k)
{
        const struct parcel *out = STAILQ_FIRST(&k->to_server);

        return out && !k->broken ? out->at : NEVER;
}

bool wire_is_due(const struct wire *k)
{
        return k->broken || wire_next(k) <= W->now || k->client_dirty ||
               (k->server && k->server_dirty && !W->r[k->to].paused);
}
