/* Others who connect to the ports of replicas that have real links: programs that speak
 * something else, replicas of another cluster, members that were removed or were never added,
 * replicas that want to join, members as far as one can tell, and whoever says nothing. */
#include <stdio.h>

#include "base/buf.h"
#include "base/conf.h"
#include "consensus/join.h"
#include "tcp.h"

#define OURS 7 /* the cluster; see nodes.c */
#define FLOOD 80

enum kind {
        CALLER_HTTP,
        CALLER_SILENT,
        CALLER_HALF, /* of a greeting */
        CALLER_OTHER_CLUSTER,
        CALLER_UNKNOWN,
        CALLER_JOINS,
        CALLER_MEMBER,
        CALLER_MALFORMED, /* a member that sends what is no frame */
        CALLER_ENDLESS,   /* or one that would be too long */
        CALLER_FLOOD,
};

static struct rnd rnd;
static nsec_t next;
static bool posed[REPLICAS_MAX + 1]; /* by member */

void callers_begin(struct world *w)
{
        rnd_init(&rnd, ~w->seed * 13);
        memset(posed, 0, sizeof(posed));
        next = chance_in(&rnd, 50) && !w->lasting ? NEVER : time_in(&rnd, 0, 3 * NSEC_PER_SEC);
}

nsec_t callers_next(void)
{
        return W->calm ? NEVER : next;
}

bool callers_posed_as_old(unsigned replica)
{
        return posed[replica + 1];
}

static void greeting(struct buf *b, uint64_t cluster, uint64_t member)
{
        buf_add(b, "TENPEER1", 8);
        buf_add_u64(b, cluster);
        buf_add_u64(b, member);
}

static void say(enum kind k, struct buf *b)
{
        uint64_t member = rnd_between(&rnd, 1, W->n_replicas);
        char url[32];

        switch (k) {
        case CALLER_HTTP:
                return buf_add_text(b, "GET /health HTTP/1.1\r\n\r\n");
        case CALLER_SILENT:
        case CALLER_FLOOD:
                return;
        case CALLER_HALF:
                return buf_add(b, "TENPEER1\7\0", 10);
        case CALLER_OTHER_CLUSTER:
                return greeting(b, OURS + 1, member);
        case CALLER_UNKNOWN:
                return greeting(b, OURS, 1000 + member);
        case CALLER_JOINS:
                snprintf(url, sizeof(url), "http://%u:1", (unsigned) member + 1);
                buf_add_text(b, JOIN_MAGIC);
                buf_add_u64(b, strlen(url));
                buf_add_u64(b, 0);
                return buf_add_text(b, url);
        case CALLER_MEMBER:
                return greeting(b, OURS, member);
        case CALLER_MALFORMED:
                posed[member] = true; /* of 0.1.0, whose members do not introduce themselves */
                greeting(b, OURS, member);
                buf_add_u32(b, 2);
                return buf_add(b, "\377\377", 2);
        case CALLER_ENDLESS:
                greeting(b, OURS, member);
                return buf_add_u32(b, UINT32_MAX);
        }
}

static void call(enum kind k)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct tcp *c =
                tcp_call(SOMEBODY, (unsigned) rnd_between(&rnd, 0, W->n_replicas - 1), NULL);

        say(k, &b);
        if (buf_len(&b) > 0)
                (void) tcp_send(c, CALLER, buf_head(&b), buf_len(&b));
        if (k != CALLER_FLOOD && chance_in(&rnd, 50))
                tcp_close(c, CALLER);
}

void callers_run(void)
{
        enum kind k;

        if (callers_next() > W->now)
                return;
        next = W->now + time_in(&rnd, 10 * MSEC, 3 * NSEC_PER_SEC);
        k = (enum kind) rnd_between(&rnd, CALLER_HTTP, CALLER_FLOOD);
        for (unsigned i = 0; i < (k == CALLER_FLOOD ? FLOOD : 1); i++)
                call(k);
}
