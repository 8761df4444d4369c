/*
 * Monitoring: clients that read a replica's resources over HTTP/1.1 (etcd/resources.c), as
 * Prometheus, load balancers and etcdctl's older versions do, without a network in between.
 *
 * A replica that says that it is healthy, or ready, has read linearizably: not if no majority
 * could work all the time since it was asked (I8).
 */
#include <stdio.h>

#include "etcd/gateway_paths.h"
#include "http/conn.h"
#include "world.h"

#define N_PROBERS 2
#define PATIENCE (5 * NSEC_PER_SEC) /* more than a probe takes, which fails after 2 s */
/* Whether a majority could work is looked at every 5 ms. */
#define JUDGED_AFTER (10 * MSEC)

static const struct {
        const char *path;
        bool reads; /* linearizably, if the answer is good */
} resources[] = {
        {"/health", true},
        {"/health?serializable=true", false},
        {"/readyz", true},
        {"/readyz/linearizable_read", true},
        {"/readyz?verbose&exclude=data_corruption", true},
        {"/livez", false},
        {"/version", false},
        {"/metrics", false},
        {"/v3/nothing", false},
};

static struct prober {
        struct wire link; /* never connected: what the api knows of the connection */
        struct http_conn *conn;
        size_t which;
        nsec_t act_at, asked_at;
        bool out;      /* when it asked, no majority could work ... */
        nsec_t outage; /* ... and so long had that been so in this world */
        bool judged;   /* a good answer came meanwhile */
        struct buf answer;
} probers[N_PROBERS];

static struct http_desk desk;

static const struct http_site site = {.method_of = gateway_method_of, .has = resource_is};

static void end(struct prober *p)
{
        p->conn = http_conn_free(p->conn);
        buf_clear(&p->answer);
        p->act_at = W->now + some_time(W, 50 * MSEC, 600 * MSEC);
}

static void ask(struct prober *p)
{
        unsigned to = (unsigned) rnd_between(&W->rnd, 0, W->n_replicas - 1);
        struct replica_node *n = &W->r[to];
        struct rpc_limits limits;
        char request[128];
        int r = -1;

        p->act_at = W->now + 100 * MSEC;
        if (!n->up || n->paused || *core_half_applied(n->node.core))
                return;
        p->which = (size_t) rnd_between(&W->rnd, 0, ARRAY_SIZE(resources) - 1);
        snprintf(request, sizeof(request), "GET %s HTTP/1.1\r\nHost: here\r\n\r\n",
                 resources[p->which].path);
        limits = wire_limits(n);
        p->link.to = to;
        p->link.turn = (struct api_turn){.of = &p->link.address};
        if (http_conn_new(&p->conn, &limits, &site, &desk, api_accept, n->node.api) < 0)
                abort();
        rpc_conn_set_userdata(http_conn_rpc(p->conn), &p->link);
        p->asked_at = W->now;
        p->out = W->was_out;
        p->outage = W->outage;
        p->act_at = W->now + PATIENCE;
        p->link.server_dirty = true;
        {
                MEMORY(MEMORY_RUN);
                r = http_conn_input(p->conn, request, strlen(request));
        }
        if (r < 0)
                return end(p);
        world_drive(W, n);
}

static bool has(const struct prober *p, const char *text)
{
        return buf_len(&p->answer) > 0 &&
               memmem(buf_head(&p->answer), buf_len(&p->answer), text, strlen(text));
}

/* Where members change, so does what a majority is. */
static bool was_out(const struct prober *p)
{
        return !W->faults.members && p->out && W->outage - p->outage >= W->now - p->asked_at;
}

static void on_answer(struct prober *p)
{
        bool good = has(p, "HTTP/1.1 200");

        W->counts.probes += good;
        trace_add(W, TRACED_ANSWER, p->link.to, buf_head(&p->answer),
                  min_of(buf_len(&p->answer), (size_t) 12));
        p->judged = good && resources[p->which].reads && was_out(p);
        end(p);
        if (p->judged)
                p->act_at = W->now + JUDGED_AFTER;
}

static void judge(struct prober *p)
{
        p->judged = false;
        if (was_out(p))
                fail(W,
                     "I8: replica %u answered that it is well at %s, and no majority could "
                     "work "
                     "since it was asked, at %.3f s",
                     p->link.to + 1, resources[p->which].path, (double) p->asked_at / 1e9);
}

static void hear(struct prober *p)
{
        int r;

        p->link.server_dirty = false;
        {
                MEMORY(MEMORY_RUN);
                r = http_conn_output(p->conn, &p->answer, 1 << 20);
        }
        if (r < 0)
                end(p);
        else if (has(p, "\r\n\r\n"))
                on_answer(p);
}

void probers_begin(void)
{
        for (unsigned i = 0; W->visited && i < N_PROBERS; i++) {
                probers[i] = (struct prober){.act_at = some_time(W, 0, 2000 * MSEC)};
                wire_init(&probers[i].link, NULL, NULL);
        }
}

void probers_end(void)
{
        for (unsigned i = 0; i < N_PROBERS; i++) {
                probers[i].conn = http_conn_free(probers[i].conn);
                buf_fini(&probers[i].answer);
        }
        http_desk_fini(&desk);
        desk = (struct http_desk){0};
}

void probers_replica_down(unsigned i)
{
        for (unsigned k = 0; k < N_PROBERS; k++)
                if (probers[k].conn && probers[k].link.to == i)
                        end(&probers[k]);
}

static bool has_news(const struct prober *p)
{
        return p->conn && p->link.server_dirty && !W->r[p->link.to].paused;
}

void probers_run(void)
{
        for (unsigned i = 0; W->visited && i < N_PROBERS; i++) {
                struct prober *p = &probers[i];

                if (has_news(p))
                        hear(p);
                if (p->act_at > W->now)
                        continue;
                if (p->judged)
                        judge(p);
                if (p->conn) /* it did not answer */
                        end(p);
                else if (!load_ended(W))
                        ask(p);
                else
                        p->act_at = W->now + NSEC_PER_SEC;
        }
}

nsec_t probers_next(void)
{
        nsec_t at = NEVER;

        for (unsigned i = 0; W->visited && i < N_PROBERS; i++)
                at = min_of(at, has_news(&probers[i]) ? W->now : probers[i].act_at);
        return at;
}
