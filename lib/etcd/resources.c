/*
 * The resources that GET reads on the client port, besides the gateway: the version; the
 * replica's health, in the words of etcd's probes (etcd's operations guide, "Monitoring"); and
 * its metrics.
 */
#include <stdio.h>

#include "base/probe.h"
#include "etcd/internal.h"
#include "etcd/metrics.h"
#include "etcd/status_page.h"
#include "http/accept.h"
#include "http/conn.h"

#define TEXT "text/plain; charset=utf-8"
#define JSON "application/json"
#define PROBE_TIMEOUT (5 * NSEC_PER_SEC)
#define NOSNIFF "X-Content-Type-Options: nosniff"

/* Whether @query, such as "a=1&b", has @name with this value or, if @value is NULL, at all. */
static bool query_has(const char *query, const char *name, const char *value)
{
        size_t len = strlen(name);

        for (const char *p = query, *end; *p; p = *end ? end + 1 : end) {
                end = strchrnul(p, '&');
                if ((size_t) (end - p) < len || memcmp(p, name, len) != 0)
                        continue;
                if (!value && (p[len] == '=' || p + len == end))
                        return true;
                if (value && p[len] == '=' && (size_t) (end - p) == len + 1 + strlen(value) &&
                    memcmp(p + len + 1, value, strlen(value)) == 0)
                        return true;
        }
        return false;
}

static void answer_bytes(struct api *a, struct rpc_call *call, unsigned status,
                         const char *type, const void *p, size_t n)
{
        http_set_answer(call, status, type);
        if (rpc_call_send(call, p, n) < 0)
                rpc_call_finish(call, RPC_RESOURCE_EXHAUSTED, "out of memory");
        rpc_call_finish(call, RPC_OK, "");
        api_kick(a, call);
}

/* Answers with @b, which is from api_take_packed(), and gives that back. */
static void answer(struct api *a, struct rpc_call *call, unsigned status, const char *type,
                   struct buf *b)
{
        if (buf_error(b) < 0)
                rpc_call_finish(call, RPC_RESOURCE_EXHAUSTED, "out of memory");
        answer_bytes(a, call, status, type, b->data, buf_len(b));
        api_give_packed(a, b);
}

static void version(struct api *a, struct rpc_call *call)
{
        struct buf b = api_take_packed(a);
        int minor = (int) strcspn(strchr(a->version, '.') + 1, ".");

        buf_printf(&b,
                   "{\"etcdserver\":\"%s\",\"etcdcluster\":\"%.*s.0\",\"tenure\":\"%s\","
                   "\"tenurecluster\":\"%s\"}",
                   a->version, (int) (strchr(a->version, '.') + 1 - a->version) + minor,
                   a->version, TENURE_VERSION,
                   cluster_version_name(core_state(a->core)->cluster_version));
        answer(a, call, 200, JSON, &b);
}

/* ---- health ---- */

enum check {
        CORRUPTION = 1 << 0,
        LOCAL_READ = 1 << 1,
        READ = 1 << 2,
        NO_LEARNER = 1 << 3,
};

static const struct {
        enum check check;
        const char *name;
} checks[] = {
        {CORRUPTION, "data_corruption"},
        {LOCAL_READ, "serializable_read"},
        {READ, "linearizable_read"},
        {NO_LEARNER, "non_learner"},
};

#define LIVE LOCAL_READ
#define READY (CORRUPTION | LOCAL_READ | READ | NO_LEARNER)

/* A large snapshot takes longer than any probe waits, so its read is not even tried. */
static const struct status behind = {
        RPC_UNAVAILABLE, "etcdserver: this replica installs a snapshot from the leader"};

/* A probe that waits for a linearizable read. */
struct probe {
        struct api *api;
        struct rpc_call *call;
        struct core_read read;
        unsigned checks;
        void (*then)(struct probe *p, struct status st);
};

static void probe_closed(struct rpc_call *call)
{
        struct probe *p = call->userdata;

        if (!p)
                return;
        core_read_cancel(p->api->core, &p->read);
        free(p);
}

static void probe_done(struct core_read *rd, struct status st)
{
        struct probe *p = container_of(rd, struct probe, read);

        p->call->userdata = NULL;
        p->then(p, st.code != RPC_OK && replica_awaits_snapshot(core_replica(p->api->core))
                           ? behind
                           : st);
        free(p);
}

/* Calls @then once a linearizable read has succeeded, or with the reason why it cannot. */
static void probe(struct api *a, struct rpc_call *call, unsigned which,
                  void (*then)(struct probe *p, struct status st))
{
        struct probe *p = calloc(1, sizeof(*p));

        if (!p)
                return rpc_call_finish(call, RPC_RESOURCE_EXHAUSTED, "out of memory");
        *p = (struct probe){.api = a, .call = call, .checks = which, .then = then};
        call->userdata = p;
        if (replica_awaits_snapshot(core_replica(a->core))) {
                PROBE("a health check comes while a snapshot is awaited");
                return probe_done(&p->read, behind);
        }
        p->read.done = probe_done;
        p->read.by.conn = rpc_call_party(call);
        core_read(a->core, &p->read, PROBE_TIMEOUT);
}

static void tell_health(struct api *a, struct rpc_call *call, const char *why, const char *more)
{
        struct buf b = api_take_packed(a);

        *(*why ? &a->n_unhealthy : &a->n_healthy) += 1;
        http_add_header(call, NOSNIFF);
        buf_printf(&b, "{\"health\":\"%s\",\"reason\":\"%s%s\"}", *why ? "false" : "true", why,
                   more);
        answer(a, call, *why ? 503 : 200, JSON, &b);
}

static void health_read(struct probe *p, struct status st)
{
        char waits[API_WAITS];

        if (st.code == RPC_OK)
                return tell_health(p->api, p->call, "", "");
        PROBE("a health check fails because nothing can be read");
        tell_health(p->api, p->call,
                    "RANGE ERROR:", api_waits(p->api, waits) ? waits : st.text);
}

static void health(struct api *a, struct rpc_call *call)
{
        const char *query = http_request_of(call)->query;
        const struct state *s = core_state(a->core);
        char waits[API_WAITS], stopped[320];

        if (api_is_stopped(a, stopped))
                return tell_health(a, call, "ALARM CORRUPT: ", stopped);
        if (state_alarmed(s, PB__ALARM_TYPE__NOSPACE) &&
            !query_has(query, "exclude", "NOSPACE")) {
                PROBE("a health check fails because of an alarm");
                return tell_health(a, call, "ALARM NOSPACE", "");
        }
        if (state_alarmed(s, PB__ALARM_TYPE__CORRUPT) &&
            !query_has(query, "exclude", "CORRUPT"))
                return tell_health(a, call, "ALARM CORRUPT", "");
        if (query_has(query, "serializable", "true"))
                return tell_health(a, call, "", "");
        if (core_status(a->core).leader_id == 0) {
                PROBE("a health check fails because there is no leader");
                if (api_waits(a, waits))
                        return tell_health(a, call, "RAFT NO LEADER: ", waits);
                return tell_health(a, call, "RAFT NO LEADER", "");
        }
        probe(a, call, 0, health_read);
}

static const char *fails(struct api *a, enum check check, struct status read)
{
        switch (check) {
        case CORRUPTION:
                return state_alarmed(core_state(a->core), PB__ALARM_TYPE__CORRUPT)
                               ? "alarm activated: CORRUPT"
                               : NULL;
        case READ:
                return read.code == RPC_OK ? NULL : read.text;
        case NO_LEARNER:
                return replica_learns(core_replica(a->core)) ? "not supported for learner"
                                                             : NULL;
        case LOCAL_READ: /* proven by answering */
                break;
        }
        return NULL;
}

static void tell_checks(struct api *a, struct rpc_call *call, unsigned which,
                        struct status read)
{
        bool verbose = query_has(http_request_of(call)->query, "verbose", NULL), failed = false;
        struct buf b = api_take_packed(a);
        char waits[API_WAITS];

        if (read.code != RPC_OK && api_waits(a, waits))
                read.text = waits;
        http_add_header(call, NOSNIFF);
        for (size_t i = 0; i < ARRAY_SIZE(checks); i++) {
                const char *why = fails(a, checks[i].check, read);

                if (!(which & checks[i].check))
                        continue;
                failed = failed || why;
                if (why)
                        buf_printf(&b, "[-]%s failed: %s\n", checks[i].name, why);
                else
                        buf_printf(&b, "[+]%s ok\n", checks[i].name);
        }
        if (!failed && !verbose)
                buf_clear(&b);
        buf_printf(&b, failed ? "\n" : "ok\n");
        answer(a, call, failed ? 503 : 200, TEXT, &b);
}

static void checks_read(struct probe *p, struct status st)
{
        tell_checks(p->api, p->call, p->checks, st);
}

/* "/readyz", or one of its checks, "/readyz/linearizable_read". */
static void run_checks(struct api *a, struct rpc_call *call, unsigned all)
{
        const struct http_request *r = http_request_of(call);
        const char *one = strchr(r->path + 1, '/');
        unsigned which = 0;

        for (size_t i = 0; i < ARRAY_SIZE(checks); i++)
                if ((all & checks[i].check) &&
                    (one ? strcmp(one + 1, checks[i].name) == 0
                         : !query_has(r->query, "exclude", checks[i].name)))
                        which |= checks[i].check;
        if (one && which == 0)
                return rpc_call_finish(call, RPC_UNIMPLEMENTED, "");
        if (which & READ)
                return probe(a, call, which, checks_read);
        tell_checks(a, call, which, status_ok);
}

static void live(struct api *a, struct rpc_call *call)
{
        run_checks(a, call, LIVE);
}

static void ready(struct api *a, struct rpc_call *call)
{
        run_checks(a, call, READY);
}

/* A client that likes OpenMetrics at least as much as the older text, as Prometheus does, gets
 * OpenMetrics. */
static bool wants_open_metrics(const char *accept)
{
        unsigned open = http_wants(accept, "application/openmetrics-text", "1.0.0,0.0.1");

        return open > 0 && open >= http_wants(accept, "text/plain", "0.0.4");
}

static void metrics(struct api *a, struct rpc_call *call)
{
        bool open_metrics = wants_open_metrics(http_request_of(call)->accept);
        struct buf b = api_take_packed(a);

        metrics_write(a, open_metrics, &b);
        answer(a, call, 200, open_metrics ? METRICS_OPEN : METRICS_TEXT, &b);
}

static void page(struct api *a, struct rpc_call *call)
{
        const struct status_page_file *f = status_page_find(http_request_of(call)->path);

        if (!a->status_page || !f)
                return rpc_call_finish(call, RPC_UNIMPLEMENTED, "");
        for (const char *const *h = status_page_headers; *h; h++)
                http_add_header(call, *h);
        answer_bytes(a, call, 200, f->type, f->p, (size_t) (f->end - f->p));
}

/* A path, and with @below also everything below it; @probes: a port for probes has it, too. */
static const struct {
        const char *path;
        bool below, probes;
        void (*run)(struct api *a, struct rpc_call *call);
} resources[] = {
        {"/version", false, false, version}, {"/health", false, true, health},
        {"/metrics", false, true, metrics},  {"/livez", true, true, live},
        {"/readyz", true, true, ready},      {"/", false, false, page},
        {"/page.css", false, false, page},   {"/page.js", false, false, page},
        {"/page.svg", false, false, page},
};

/* Resources that do not wait have no probe to end. */
static const struct rpc_handler handler = {.on_close = probe_closed};

/* The resource at @path on one kind of port; -1: none. */
static int find(const char *path, bool probes)
{
        for (size_t i = 0; i < ARRAY_SIZE(resources); i++) {
                size_t n = strlen(resources[i].path);

                if ((!probes || resources[i].probes) &&
                    strncmp(path, resources[i].path, n) == 0 &&
                    (path[n] == '\0' || (resources[i].below && path[n] == '/')))
                        return (int) i;
        }
        return -1;
}

bool resource_is(const char *path)
{
        return find(path, false) >= 0;
}

bool resource_is_probe(const char *path)
{
        return find(path, true) >= 0;
}

void resource_accept(struct api *a, struct rpc_call *call, bool probes)
{
        int i = find(http_request_of(call)->path, probes);

        if (i < 0)
                return;
        call->handler = &handler;
        resources[i].run(a, call);
}
