#include "names.h"

#include <arpa/inet.h>
#include <stdio.h>

#include "sockets.h"
#include "tcp.h"

#define PORT 1
#define LATE (50 * MSEC)

/* What is at an address: 10.WHAT.0.HOST. */
enum { AT_HOST, AT_CLOSED, AT_NOWHERE };

struct resolver {
        unsigned host;
};

struct resolve_query {
        LIST_ENTRY(resolve_query) next;
        unsigned host, of; /* who asks for whom */
        nsec_t at;
        int r;
        resolve_fn fn;
        void *userdata;
};

static LIST_HEAD(, resolve_query) queries = LIST_HEAD_INITIALIZER(queries);
static struct resolver resolvers[REPLICAS_MAX];
/* Of each replica: what the addresses of its name lead to. */
static struct {
        unsigned n, what[ADDRESSES_MAX];
} names[REPLICAS_MAX];
static struct rnd rnd;

/* Some names have several addresses, of which one leads to the host. */
void names_begin(struct world *w)
{
        rnd_init(&rnd, ~w->seed * 11);
        for (unsigned i = 0; i < w->n_replicas; i++) {
                unsigned n = chance_in(&rnd, 60) ? 1 : (unsigned) rnd_between(&rnd, 2, 3);

                names[i].n = n;
                for (unsigned k = 0; k < n; k++)
                        names[i].what[k] = (unsigned) rnd_between(&rnd, AT_CLOSED, AT_NOWHERE);
                names[i].what[rnd_between(&rnd, 0, n - 1)] = AT_HOST;
        }
}

struct resolver *names_resolver(unsigned host)
{
        resolvers[host].host = host;
        return &resolvers[host];
}

struct names_place names_look(const struct sockaddr *addr)
{
        const struct sockaddr_in *in = (const void *) addr;
        uint32_t at = ntohl(in->sin_addr.s_addr);
        unsigned what = at >> 16 & 0xff, of = at & 0xff;
        struct names_place ret = {.host = what == AT_HOST      ? of
                                          : what == AT_NOWHERE ? NOWHERE
                                                               : SOMEBODY};

        snprintf(ret.text, sizeof(ret.text), "10.%u.0.%u:%u", what, of + 1, PORT);
        return ret;
}

bool inet_address_is(const struct inet_address *a, const struct inet_address *b)
{
        return a->len == b->len && memcmp(&a->addr, &b->addr, a->len) == 0;
}

static void answer(int r, unsigned of, resolve_fn fn, void *userdata)
{
        struct inet_addresses a = {.n = of < W->n_replicas ? names[of].n : 1};

        for (unsigned i = 0; i < a.n; i++) {
                unsigned what = of < W->n_replicas ? names[of].what[i] : AT_CLOSED;
                struct sockaddr_in in = {.sin_family = AF_INET,
                                         .sin_port = htons(PORT),
                                         .sin_addr.s_addr = htonl(10U << 24 | what << 16 | of)};

                memcpy(&a.a[i].addr, &in, sizeof(in));
                a.a[i].len = sizeof(in);
        }
        fn(r, r < 0 ? NULL : &a, userdata);
}

int resolve(struct resolver *rv, const struct url *u, resolve_fn fn, void *userdata,
            struct resolve_query **ret)
{
        bool ours = strlen(u->host) == 1;
        unsigned of = ours ? (unsigned) (u->host[0] - '1') : REPLICAS_MAX;
        struct resolve_query *q;

        *ret = NULL;
        if (!ours || chance_in(&rnd, 60))
                return answer(0, of, fn, userdata), 0;
        q = calloc(1, sizeof(*q));
        if (!q)
                return -ENOMEM;
        *q = (struct resolve_query){.host = rv->host,
                                    .of = of,
                                    .at = W->now + time_in(&rnd, 0, LATE),
                                    .r = !W->calm && chance_in(&rnd, 10) ? -ETIMEDOUT : 0,
                                    .fn = fn,
                                    .userdata = userdata};
        LIST_INSERT_HEAD(&queries, q, next);
        if (q->r < 0)
                tcp_trouble(q->host, of);
        sockets_stir();
        *ret = q;
        return 0;
}

struct resolve_query *resolve_cancel(struct resolve_query *q)
{
        if (q)
                LIST_REMOVE(q, next);
        free(q);
        return NULL;
}

bool names_answer(unsigned host)
{
        struct resolve_query *q;

        LIST_FOREACH (q, &queries, next)
                if (q->host == host && q->at <= W->now) {
                        struct resolve_query is = *q;

                        resolve_cancel(q);
                        answer(is.r, is.of, is.fn, is.userdata);
                        return true;
                }
        return false;
}

nsec_t names_next(unsigned host)
{
        nsec_t at = NEVER;
        struct resolve_query *q;

        LIST_FOREACH (q, &queries, next)
                if (q->host == host)
                        at = min_of(at, q->at);
        return at;
}
