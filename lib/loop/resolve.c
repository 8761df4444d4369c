#include "loop/resolve.h"

#include <arpa/nameser.h>
#include <netdb.h>
#include <netinet/in.h>
#include <resolv.h>
#include <stdio.h>
#include <sys/un.h>

#include "base/buf.h"

#define SRV_MAX 16
#define NAMES_MAX 64
#define THREADS_MAX 16 /* names that are looked up beside each other */
#define PATIENCE (100 * NSEC_PER_MSEC)

/* Does one look-up after the other. */
struct thread {
        struct worker *worker; /* NULL: not started */
        unsigned n_jobs;       /* that were submitted and not handed back */
};

/* A name that was asked for, and its last address. */
struct name {
        TAILQ_ENTRY(name) entry;
        struct resolver *rv; /* NULL: it was freed while `asking` */
        struct worker_job job;
        struct thread *thread; /* of the job */
        struct url url;
        bool asking; /* the job is under way, or its result is being handed out; one at a time,
                      * however long DNS takes */
        int r;       /* the job's result, together with `fresh` */
        struct inet_addresses fresh, kept;
        TAILQ_HEAD(, resolve_query) waiting;
        uint64_t n_queries; /* so far */
};

struct resolver {
        struct loop *loop;
        struct thread threads[THREADS_MAX]; /* started when a name is looked up, and those
                                             * before are busy */
        TAILQ_HEAD(, name) names;
        size_t n_names;
};

struct resolve_query {
        void *userdata;
        /* A query of addresses: */
        TAILQ_ENTRY(resolve_query) entry;
        struct name *name;
        uint64_t number;         /* of the queries for that name */
        struct loop_timer timer; /* fires when DNS has had enough time; then `kept` is the
                                  * answer */
        resolve_fn fn;
        /* A query of SRV records: */
        struct worker_job job;
        struct thread *thread;
        char host[256];
        int r;
        resolve_srv_fn srv_fn; /* NULL: canceled */
        char *targets;         /* owned */
};

int resolver_new(struct resolver **ret, struct loop *l)
{
        struct resolver *rv = calloc(1, sizeof(*rv));

        if (!rv)
                return -ENOMEM;
        rv->loop = l;
        TAILQ_INIT(&rv->names);
        *ret = rv;
        return 0;
}

static void query_free(struct resolve_query *q)
{
        TAILQ_REMOVE(&q->name->waiting, q, entry);
        loop_timer_disarm(&q->timer);
        free(q);
}

static void forget(struct name *n)
{
        struct resolve_query *q;

        TAILQ_REMOVE(&n->rv->names, n, entry);
        n->rv->n_names--;
        while ((q = TAILQ_FIRST(&n->waiting)))
                query_free(q);
        if (n->asking)
                n->rv = NULL; /* its job frees it */
        else
                free(n);
}

struct resolver *resolver_free(struct resolver *rv)
{
        struct name *n;

        if (!rv)
                return NULL;
        while ((n = TAILQ_FIRST(&rv->names)))
                forget(n);
        /* Do not wait for a DNS server that does not answer: an agent may be restarting. */
        for (size_t i = 0; i < THREADS_MAX; i++)
                worker_abandon(rv->threads[i].worker);
        free(rv);
        return NULL;
}

void inet_address_local(const struct url *u, struct inet_address *ret)
{
        struct sockaddr_un *a = (void *) &ret->addr;

        *ret = (struct inet_address){.len = sizeof(*a)};
        a->sun_family = AF_UNIX;
        snprintf(a->sun_path, sizeof(a->sun_path), "%s", u->host);
}

static int look_up(const struct url *u, int flags, struct inet_addresses *ret)
{
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                 .ai_flags = flags | AI_NUMERICSERV},
                        *ai;
        char port[8];
        int r;

        if (u->local) {
                ret->n = 1;
                inet_address_local(u, &ret->a[0]);
                return 0;
        }
        snprintf(port, sizeof(port), "%u", u->port);
        r = getaddrinfo(u->host, port, &hints, &ai);
        if (r != 0)
                return r == EAI_MEMORY ? -ENOMEM : -EHOSTUNREACH;
        ret->n = 0;
        for (struct addrinfo *i = ai; i && ret->n < ADDRESSES_MAX; i = i->ai_next) {
                struct inet_address *a = &ret->a[ret->n++];

                *a = (struct inet_address){.len = i->ai_addrlen};
                memcpy(&a->addr, i->ai_addr, i->ai_addrlen);
        }
        freeaddrinfo(ai);
        inet_addresses_alternate(ret);
        return 0;
}

/* ---- addresses ---- */

bool inet_address_is(const struct inet_address *a, const struct inet_address *b)
{
        return a->len == b->len && memcmp(&a->addr, &b->addr, a->len) == 0;
}

/* The first address from @from on whose family is, or is not, @family; @n if there is none. */
static size_t next_of(const struct inet_addresses *a, size_t from, int family, bool is)
{
        while (from < a->n && (a->a[from].addr.ss_family == family) != is)
                from++;
        return from;
}

void inet_addresses_alternate(struct inet_addresses *a)
{
        struct inet_addresses out = {0};
        int family = a->n > 0 ? a->a[0].addr.ss_family : 0;
        size_t next[2] = {next_of(a, 0, family, true), next_of(a, 0, family, false)};

        for (bool is = true; out.n < a->n; is = !is) {
                size_t *at = &next[is ? 0 : 1];

                if (*at == a->n)
                        continue;
                out.a[out.n++] = a->a[*at];
                *at = next_of(a, *at + 1, family, is);
        }
        *a = out;
}

static void run(struct worker_job *job)
{
        struct name *n = container_of(job, struct name, job);

        n->r = look_up(&n->url, AI_ADDRCONFIG, &n->fresh);
}

/* Answers a query. The callback may free the query's owner. */
static void answer(struct resolve_query *q, int r)
{
        struct inet_addresses a = q->name->kept;
        resolve_fn fn = q->fn;
        void *userdata = q->userdata;

        query_free(q);
        fn(a.n > 0 ? 0 : r, a.n > 0 ? &a : NULL, userdata);
}

static void submit(struct thread *t, struct worker_job *job)
{
        t->n_jobs++;
        worker_submit(t->worker, job);
}

static void begin(struct name *n)
{
        n->asking = true;
        submit(n->thread, &n->job);
}

static void done(struct worker_job *job)
{
        struct name *n = container_of(job, struct name, job);
        uint64_t upto = n->n_queries;
        struct resolve_query *q;
        int r = n->r;

        n->thread->n_jobs--;
        if (r == 0)
                n->kept = n->fresh;
        /* A callback may ask again: for another name, for which make_room() must not drop the
         * one that is in use here; or for this one, which is another query of DNS. */
        while ((q = TAILQ_FIRST(&n->waiting)) && q->number <= upto)
                answer(q, r);
        n->asking = false;
        if (!n->rv) /* a callback has freed the resolver */
                free(n);
        else if (q)
                begin(n);
}

static void drop(struct worker_job *job)
{
        free(container_of(job, struct name, job));
}

/* A thread that is idle, or another one if all are busy: a name whose DNS server does not
 * answer delays no other. Once there is no further thread, the one with the fewest jobs. */
static int find_thread(struct resolver *rv, struct thread **ret)
{
        struct thread *t, *end = &rv->threads[THREADS_MAX], *best = NULL;
        int r;

        for (t = rv->threads; t < end && t->worker; t++)
                if (!best || t->n_jobs < best->n_jobs)
                        best = t;
        if (t < end && (!best || best->n_jobs > 0)) {
                r = worker_new(&t->worker, rv->loop, "resolver");
                if (r < 0 && !best)
                        return r;
                if (r == 0)
                        best = t;
        }
        *ret = best;
        return 0;
}

/* Makes room for another name: drops the oldest ones that nobody waits for. */
static void make_room(struct resolver *rv)
{
        struct name *n, *next;

        TAILQ_FOREACH_SAFE (n, &rv->names, entry, next)
                if (rv->n_names >= NAMES_MAX && !n->asking && TAILQ_EMPTY(&n->waiting))
                        forget(n);
}

static struct name *name_of(struct resolver *rv, const struct url *u)
{
        struct name *n;

        TAILQ_FOREACH (n, &rv->names, entry)
                if (n->url.port == u->port && strcmp(n->url.host, u->host) == 0)
                        return n;
        make_room(rv);
        n = calloc(1, sizeof(*n));
        if (!n)
                return NULL;
        n->rv = rv;
        n->url = *u;
        n->job = (struct worker_job){.run = run, .done = done, .drop = drop};
        TAILQ_INIT(&n->waiting);
        TAILQ_INSERT_TAIL(&rv->names, n, entry);
        rv->n_names++;
        return n;
}

void resolver_know(struct resolver *rv, const struct url *u, const struct url *at)
{
        struct inet_addresses a;
        struct name *n;

        if (look_up(u, AI_NUMERICHOST, &a) == 0 || look_up(at, AI_NUMERICHOST, &a) < 0)
                return;
        n = name_of(rv, u);
        if (n && n->kept.n == 0)
                n->kept = a;
}

static void on_patience(struct loop_timer *t)
{
        struct resolve_query *q = container_of(t, struct resolve_query, timer);

        if (q->name->kept.n > 0)
                answer(q, 0);
}

int resolve(struct resolver *rv, const struct url *u, resolve_fn fn, void *userdata,
            struct resolve_query **ret)
{
        struct inet_addresses a;
        struct resolve_query *q;
        struct name *n;
        int r;

        *ret = NULL;
        if (look_up(u, AI_NUMERICHOST, &a) == 0) {
                fn(0, &a, userdata);
                return 0;
        }
        n = name_of(rv, u);
        if (!n)
                return -ENOMEM;
        r = n->asking ? 0 : find_thread(rv, &n->thread);
        if (r < 0)
                return r;
        q = calloc(1, sizeof(*q));
        if (!q)
                return -ENOMEM;
        q->name = n;
        q->fn = fn;
        q->userdata = userdata;
        loop_timer_init(&q->timer, rv->loop, on_patience);
        loop_timer_in(&q->timer, PATIENCE);
        q->number = ++n->n_queries;
        TAILQ_INSERT_TAIL(&n->waiting, q, entry);
        *ret = q;
        if (!n->asking)
                begin(n);
        return 0;
}

struct resolve_query *resolve_cancel(struct resolve_query *q)
{
        if (q && q->name)
                query_free(q);
        else if (q)
                q->srv_fn = NULL; /* the job owns the query */
        return NULL;
}

/* ---- SRV records ---- */

struct srv {
        unsigned priority, weight, port;
        char target[256];
};

/* By priority, the smallest first; at equal priority by weight, the largest first. Every host
 * gets the same order: spreading agents over the targets is the client's task. */
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
                    !*s->target || s->port == 0) /* "." means that there is no target */
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

        q->r = look_up_srv(q->host, &q->targets);
}

static void drop_srv(struct worker_job *job)
{
        struct resolve_query *q = container_of(job, struct resolve_query, job);

        free(q->targets);
        free(q);
}

static void done_srv(struct worker_job *job)
{
        struct resolve_query *q = container_of(job, struct resolve_query, job);

        q->thread->n_jobs--;
        if (q->srv_fn)
                q->srv_fn(q->r, q->targets, q->userdata);
        drop_srv(job);
}

int resolve_srv(struct resolver *rv, const char *name, resolve_srv_fn fn, void *userdata,
                struct resolve_query **ret)
{
        struct resolve_query *q;
        struct thread *thread;
        int r = find_thread(rv, &thread);

        *ret = NULL;
        if (r < 0)
                return r;
        q = calloc(1, sizeof(*q));
        if (!q)
                return -ENOMEM;
        q->thread = thread;
        q->job = (struct worker_job){.run = run_srv, .done = done_srv, .drop = drop_srv};
        q->userdata = userdata;
        q->srv_fn = fn;
        snprintf(q->host, sizeof(q->host), "%s", name);
        submit(thread, &q->job);
        *ret = q;
        return 0;
}
