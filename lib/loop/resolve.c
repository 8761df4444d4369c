#include "loop/resolve.h"

#include <arpa/nameser.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <stdio.h>

#include "base/buf.h"

#define SRV_MAX 16

struct resolver {
        struct loop *loop;
        struct worker *worker; /* made for the first name that is not numeric */
};

struct resolve_query {
        struct worker_job job;
        struct url url;
        resolve_fn fn; /* NULL: canceled */
        void *userdata;
        int r;
        struct sockaddr_storage addr;
        socklen_t addr_len;
        resolve_srv_fn srv_fn; /* instead of `fn` */
        char *targets;         /* owned */
};

int resolver_new(struct resolver **ret, struct loop *l)
{
        struct resolver *rv = calloc(1, sizeof(*rv));

        if (!rv)
                return -ENOMEM;
        rv->loop = l;
        *ret = rv;
        return 0;
}

struct resolver *resolver_free(struct resolver *rv)
{
        if (!rv)
                return NULL;
        worker_abandon(rv->worker); /* an agent that restarts has no time for a silent DNS */
        free(rv);
        return NULL;
}

static int look_up(const struct url *u, int flags, struct sockaddr_storage *ret,
                   socklen_t *ret_len)
{
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                 .ai_flags = flags | AI_NUMERICSERV},
                        *ai;
        char port[8];
        int r;

        snprintf(port, sizeof(port), "%u", u->port);
        r = getaddrinfo(u->host, port, &hints, &ai);
        if (r != 0)
                return r == EAI_MEMORY ? -ENOMEM : -EHOSTUNREACH;
        memcpy(ret, ai->ai_addr, ai->ai_addrlen);
        *ret_len = ai->ai_addrlen;
        freeaddrinfo(ai);
        return 0;
}

static void run(struct worker_job *job)
{
        struct resolve_query *q = container_of(job, struct resolve_query, job);

        q->r = look_up(&q->url, AI_ADDRCONFIG, &q->addr, &q->addr_len);
}

static void done(struct worker_job *job)
{
        struct resolve_query *q = container_of(job, struct resolve_query, job);

        if (q->srv_fn)
                q->srv_fn(q->r, q->targets, q->userdata);
        else if (q->fn)
                q->fn(q->r, q->r == 0 ? (struct sockaddr *) &q->addr : NULL, q->addr_len,
                      q->userdata);
        free(q->targets);
        free(q);
}

static void drop(struct worker_job *job)
{
        struct resolve_query *q = container_of(job, struct resolve_query, job);

        free(q->targets);
        free(q);
}

/* To be filled, and submitted. */
static int query_new(struct resolver *rv, void (*fn)(struct worker_job *job), void *userdata,
                     struct resolve_query **ret)
{
        struct resolve_query *q;
        int r = rv->worker ? 0 : worker_new(&rv->worker, rv->loop, "resolver");

        *ret = NULL;
        if (r < 0)
                return r;
        q = calloc(1, sizeof(*q));
        if (!q)
                return -ENOMEM;
        q->job = (struct worker_job){.run = fn, .done = done, .drop = drop};
        q->userdata = userdata;
        *ret = q;
        return 0;
}

/* ---- SRV records ---- */

struct srv {
        unsigned priority, weight, port;
        char target[256];
};

/* The smaller priority first; of one priority the larger weight, which every host sees alike:
 * that agents spread is the client's doing. */
static int by_order(const void *a, const void *b)
{
        const struct srv *x = a, *y = b;

        if (x->priority != y->priority)
                return x->priority < y->priority ? -1 : 1;
        if (x->weight != y->weight)
                return x->weight > y->weight ? -1 : 1;
        return strcmp(x->target, y->target);
}

static size_t read_records(const uint8_t *answer, int len, struct srv out[static SRV_MAX])
{
        size_t n = 0;
        ns_msg msg;

        if (ns_initparse(answer, len, &msg) < 0)
                return 0;
        for (int i = 0; i < ns_msg_count(msg, ns_s_an) && n < SRV_MAX; i++) {
                struct srv *s = &out[n];
                const uint8_t *p;
                ns_rr rr;

                if (ns_parserr(&msg, ns_s_an, i, &rr) < 0 || ns_rr_type(rr) != ns_t_srv ||
                    ns_rr_rdlen(rr) < 7)
                        continue;
                p = ns_rr_rdata(rr);
                s->priority = ns_get16(p);
                s->weight = ns_get16(p + 2);
                s->port = ns_get16(p + 4);
                if (dn_expand(ns_msg_base(msg), ns_msg_end(msg), p + 6, s->target,
                              sizeof(s->target)) < 0 ||
                    !*s->target || s->port == 0) /* "." says that there is none */
                        continue;
                n++;
        }
        return n;
}

static int look_up_srv(const char *name, char **ret)
{
        struct __res_state state = {0};
        cleanup_(buf_fini) struct buf b = {0};
        struct srv records[SRV_MAX];
        uint8_t answer[4096];
        size_t n, len_text;
        int len;

        if (res_ninit(&state) < 0)
                return -EIO;
        state.retrans = 1;
        state.retry = 2;
        len = res_nquery(&state, name, ns_c_in, ns_t_srv, answer, sizeof(answer));
        res_nclose(&state);
        if (len < 0)
                return -ENOENT;
        n = read_records(answer, min_of(len, (int) sizeof(answer)), records);
        if (n == 0)
                return -ENOENT;
        qsort(records, n, sizeof(records[0]), by_order);
        for (size_t i = 0; i < n; i++)
                buf_printf(&b, "%s%s:%u", i > 0 ? "," : "", records[i].target, records[i].port);
        buf_add_u8(&b, 0);
        if (buf_error(&b) < 0)
                return -ENOMEM;
        *ret = (char *) buf_take(&b, &len_text);
        return 0;
}

static void run_srv(struct worker_job *job)
{
        struct resolve_query *q = container_of(job, struct resolve_query, job);

        q->r = look_up_srv(q->url.host, &q->targets);
}

int resolve_srv(struct resolver *rv, const char *name, resolve_srv_fn fn, void *userdata,
                struct resolve_query **ret)
{
        int r = query_new(rv, run_srv, userdata, ret);

        if (r < 0)
                return r;
        snprintf((*ret)->url.host, sizeof((*ret)->url.host), "%s", name);
        (*ret)->srv_fn = fn;
        worker_submit(rv->worker, &(*ret)->job);
        return 0;
}

/* ---- ---- */

int resolve(struct resolver *rv, const struct url *u, resolve_fn fn, void *userdata,
            struct resolve_query **ret)
{
        struct sockaddr_storage addr;
        socklen_t len;
        int r;

        *ret = NULL;
        if (look_up(u, AI_NUMERICHOST, &addr, &len) == 0) {
                fn(0, (struct sockaddr *) &addr, len, userdata);
                return 0;
        }
        r = query_new(rv, run, userdata, ret);
        if (r < 0)
                return r;
        (*ret)->url = *u;
        (*ret)->fn = fn;
        worker_submit(rv->worker, &(*ret)->job);
        return 0;
}

struct resolve_query *resolve_cancel(struct resolve_query *q)
{
        if (q) {
                q->fn = NULL;
                q->srv_fn = NULL;
        }
        return NULL;
}
