#include "loop/resolve.h"

#include <netdb.h>
#include <stdio.h>

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
        worker_free(rv->worker);
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

        if (q->fn)
                q->fn(q->r, q->r == 0 ? (struct sockaddr *) &q->addr : NULL, q->addr_len,
                      q->userdata);
        free(q);
}

static void drop(struct worker_job *job)
{
        free(container_of(job, struct resolve_query, job));
}

int resolve(struct resolver *rv, const struct url *u, resolve_fn fn, void *userdata,
            struct resolve_query **ret)
{
        struct sockaddr_storage addr;
        struct resolve_query *q;
        socklen_t len;
        int r;

        *ret = NULL;
        if (look_up(u, AI_NUMERICHOST, &addr, &len) == 0) {
                fn(0, (struct sockaddr *) &addr, len, userdata);
                return 0;
        }
        if (!rv->worker) {
                r = worker_new(&rv->worker, rv->loop, "resolver");
                if (r < 0)
                        return r;
        }
        q = calloc(1, sizeof(*q));
        if (!q)
                return -ENOMEM;
        q->job = (struct worker_job){.run = run, .done = done, .drop = drop};
        q->url = *u;
        q->fn = fn;
        q->userdata = userdata;
        *ret = q;
        worker_submit(rv->worker, &q->job);
        return 0;
}

struct resolve_query *resolve_cancel(struct resolve_query *q)
{
        if (q)
                q->fn = NULL;
        return NULL;
}
