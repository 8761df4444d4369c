#include "client/client.h"

#include <stdio.h>
#include <time.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/secret.h"
#include "client/internal.h"

/* ---- what the member wants ---- */

static struct endpoint *at(size_t i, void *userdata)
{
        struct client *c = userdata;

        return c->ends[i].ep;
}

static struct rpc_conn *op_rpc(size_t i, void *userdata)
{
        return endpoint_rpc(at(i, userdata));
}

static void op_kick(size_t i, void *userdata)
{
        endpoint_kick(at(i, userdata));
}

static void op_want(size_t i, void *userdata)
{
        endpoint_want(at(i, userdata));
}

static void op_hurry(size_t i, nsec_t pace, void *userdata)
{
        endpoint_hurry(at(i, userdata), pace);
}

static void op_again(size_t i, void *userdata)
{
        endpoint_again(at(i, userdata));
}

static void op_log_in_again(size_t i, void *userdata)
{
        endpoint_log_in_again(at(i, userdata));
}

static void op_probe(size_t i, nsec_t within, void *userdata)
{
        endpoint_probe(at(i, userdata), within);
}

static void op_suspect(size_t i, void *userdata)
{
        endpoint_suspect(at(i, userdata));
}

static bool op_is_silent(size_t i, void *userdata)
{
        return endpoint_is_silent(at(i, userdata));
}

static const char *op_name(size_t i, void *userdata)
{
        return endpoint_name(at(i, userdata));
}

static void op_at(size_t i, char *out, size_t size, void *userdata)
{
        endpoint_at(at(i, userdata), out, size);
}

static void op_soon(void *userdata)
{
        struct client *c = userdata;

        loop_hook_again(&c->hook);
}

static void op_date(char text[static 32], void *userdata)
{
        time_t now = time(NULL);
        struct tm tm;

        (void) userdata;
        gmtime_r(&now, &tm);
        strftime(text, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

static const struct member_ops member_ops = {.rpc = op_rpc,
                                             .kick = op_kick,
                                             .want = op_want,
                                             .hurry = op_hurry,
                                             .again = op_again,
                                             .log_in_again = op_log_in_again,
                                             .probe = op_probe,
                                             .suspect = op_suspect,
                                             .is_silent = op_is_silent,
                                             .name = op_name,
                                             .at = op_at,
                                             .soon = op_soon,
                                             .date = op_date};

/* ---- what it reports ---- */

static size_t number_of(const struct end *e)
{
        return (size_t) (e - e->client->ends);
}

static void on_time(struct boot_time now, void *userdata)
{
        struct end *e = userdata;

        member_at(e->client->member, now);
}

static void on_up(struct endpoint *ep, void *userdata)
{
        struct end *e = userdata;

        (void) ep;
        member_up(e->client->member, number_of(e));
        if (e->client->ops)
                e->client->ops->up(number_of(e), e->client->userdata);
}

static void on_down(struct endpoint *ep, const char *why, void *userdata)
{
        struct end *e = userdata;

        member_down(e->client->member, number_of(e), why);
        if (e->client->ops)
                e->client->ops->down(number_of(e), endpoint_is_refused(ep), why,
                                     e->client->userdata);
}

static void on_silent(struct endpoint *ep, void *userdata)
{
        struct end *e = userdata;

        (void) ep;
        member_silent(e->client->member, number_of(e));
        if (e->client->ops)
                e->client->ops->silent(number_of(e), e->client->userdata);
}

static const struct endpoint_ops endpoint_ops = {
        .at = on_time, .up = on_up, .down = on_down, .silent = on_silent};

static struct boot_time client_run(struct loop_hook *h, struct boot_time now)
{
        struct client *c = container_of(h, struct client, hook);
        struct boot_time next;

        discover_run(c, now);
        next = member_run(c->member, now);
        return boot_min(next, discover_next(c));
}

/* ---- endpoints ---- */

static int make_endpoint(struct client *c, struct end *e, const char *url)
{
        e->client = c;
        return endpoint_new(&e->ep, c->loop, c->resolver, url, c->tls,
                            c->user ? &c->login : NULL, &endpoint_ops, e);
}

static int add_endpoint(struct client *c, const char *url)
{
        int r = make_endpoint(c, &c->ends[c->n_ends], url);

        if (r == 0)
                c->n_ends++;
        return r;
}

static bool has_url(const char *urls, const char *name)
{
        char url[320];

        while (list_next(&urls, url, sizeof(url)))
                if (strcmp(url, name) == 0)
                        return true;
        return false;
}

static bool has_endpoint(const struct client *c, const char *url)
{
        for (size_t i = 0; i < c->n_ends; i++)
                if (strcmp(endpoint_name(c->ends[i].ep), url) == 0)
                        return true;
        return false;
}

/* Finds the next of @urls that no endpoint has. */
static bool next_new(const struct client *c, const char **urls, char url[static 320])
{
        while (list_next(urls, url, 320))
                if (!has_endpoint(c, url))
                        return true;
        return false;
}

/* Calls and the session refer to endpoints by number, so a number stays in use: that of an
 * endpoint which is no longer wanted goes to a new one or, if there is none, to a second copy
 * of the first. */
void client_replace_endpoints(struct client *c, const char *urls)
{
        const char *cursor = urls;
        char url[320], first[320];
        const char *head = urls;
        struct endpoint *old;

        if (!list_next(&head, first, sizeof(first)))
                return;
        member_at(c->member, loop_now(c->loop));
        for (size_t i = 0; i < c->n_ends; i++) {
                struct end *e = &c->ends[i];
                bool is_new;

                if (has_url(urls, endpoint_name(e->ep)))
                        continue;
                is_new = next_new(c, &cursor, url);
                old = e->ep;
                if (make_endpoint(c, e, is_new ? url : first) < 0) {
                        log_warning("%s is not a valid endpoint; continuing with %s.",
                                    is_new ? url : first, endpoint_name(old));
                        continue;
                }
                endpoint_free(old);
                member_replaced(c->member, i);
        }
        while (c->n_ends < MEMBER_ENDPOINTS_MAX && next_new(c, &cursor, url))
                if (add_endpoint(c, url) < 0)
                        log_warning("DNS names %s, which is not a valid endpoint.", url);
        member_endpoints(c->member, c->n_ends);
}

int client_set_endpoints(struct client *c, const char *urls, struct tls *tls)
{
        const char *cursor = urls;
        struct url parsed;
        char url[320];

        while (list_next(&cursor, url, sizeof(url)))
                if (url_parse(url, &parsed) < 0)
                        return -EINVAL;
        c->tls = tls;
        client_replace_endpoints(c, urls);
        return 0;
}

/* DNS may not answer now, and the endpoint of an earlier life may still be valid. */
static void know_endpoint(struct client *c, const struct place *p)
{
        struct url name, address;

        if (url_parse(p->endpoint, &name) == 0 && url_parse(p->at, &address) == 0)
                resolver_know(c->resolver, &name, &address);
}

int client_check_endpoints(const char *urls, char *err, size_t err_size)
{
        const char *cursor = urls;
        char url[320], srv[256];
        struct url parsed;
        size_t n = 0;
        bool tls;

        for (; list_next(&cursor, url, sizeof(url)); n++) {
                int r = url_parse_srv(url, srv, &tls);

                if (r == 0 && strchr(urls, ',')) {
                        snprintf(err, err_size, "%s cannot be combined with other URLs", url);
                        return -EINVAL;
                }
                if (r == -EINVAL || (r == -ENOENT && url_parse(url, &parsed) < 0)) {
                        snprintf(err, err_size,
                                 "'%s' is not a URL such as http://10.0.0.1:2379, or "
                                 "srv://example.org",
                                 url);
                        return -EINVAL;
                }
        }
        if (n > 0 && n <= MEMBER_ENDPOINTS_MAX)
                return 0;
        if (n == 0)
                snprintf(err, err_size, "no endpoint is given");
        else
                snprintf(err, err_size, "more than %d endpoints are given; name fewer of them",
                         MEMBER_ENDPOINTS_MAX);
        return -EINVAL;
}

static int first_endpoints(struct client *c, const struct client_config *cfg)
{
        const char *cursor = cfg->endpoints;
        char url[320];
        int r = 0;

        if (discover_init(c, cfg->endpoints) == 0) /* until DNS has answered */
                cursor = cfg->resume && *cfg->resume->endpoint ? cfg->resume->endpoint
                         : c->discovery.tls                    ? "https://0.0.0.0:0"
                                                               : "http://0.0.0.0:0";
        while (r == 0 && list_next(&cursor, url, sizeof(url)))
                r = add_endpoint(c, url);
        return r;
}

/* ---- ---- */

int client_new(struct client **ret, struct loop *l, const struct client_config *cfg,
               const struct member_events *events, void *userdata, char *err, size_t err_size)
{
        cleanup_(client_freep) struct client *c = calloc(1, sizeof(*c));
        struct member_config m = {.cluster = cfg->cluster,
                                  .self = cfg->self,
                                  .resume = cfg->resume,
                                  .boots = cfg->boots,
                                  .boot = cfg->boot,
                                  .observe = cfg->observe,
                                  .no_view = cfg->no_view,
                                  .sessions = cfg->sessions,
                                  .session = cfg->session,
                                  .seed = cfg->seed};
        struct boot_time now = loop_lap(l, "the start", NULL);
        int r;

        if (client_check_endpoints(cfg->endpoints, err, err_size) < 0)
                return -EINVAL;
        snprintf(err, err_size, "out of memory");
        if (!c)
                return -ENOMEM;
        c->loop = l;
        r = resolver_new(&c->resolver, l);
        if (r < 0)
                return r;
        if (cfg->resume)
                know_endpoint(c, cfg->resume);
        if (cfg->user) {
                c->user = strdup(cfg->user);
                c->password = strdup(cfg->password);
                if (!c->user || !c->password)
                        return -ENOMEM;
                c->login = (struct endpoint_login){c->user, c->password};
        }
        c->tls = cfg->tls;
        r = first_endpoints(c, cfg);
        if (r < 0)
                return r;
        m.n_endpoints = c->n_ends;
        r = member_new(&c->member, &m, &member_ops, c, events, userdata, now);
        if (r < 0)
                return r;
        c->hook.what = "the client";
        loop_hook_start(&c->hook, l, LOOP_DECIDE, client_run);
        *ret = take_ptr(c);
        return 0;
}

struct client *client_free(struct client *c)
{
        if (!c)
                return NULL;
        loop_hook_stop(&c->hook);
        if (c->member)
                member_close(c->member);
        for (size_t i = 0; i < c->n_ends; i++)
                endpoint_free(c->ends[i].ep);
        member_free(c->member);
        discover_fini(c);
        resolver_free(c->resolver);
        free(c->user);
        secret_free(c->password);
        free(c);
        return NULL;
}

void client_source(const struct client *c, char *out, size_t size)
{
        endpoint_source(c->ends[member_current(c->member)].ep, out, size);
}

void client_set_ops(struct client *c, const struct client_ops *ops, void *userdata)
{
        c->ops = ops;
        c->userdata = userdata;
}

struct rpc_conn *client_rpc(const struct client *c, size_t i)
{
        return endpoint_rpc(c->ends[i].ep);
}

void client_kick(struct client *c, size_t i)
{
        endpoint_kick(c->ends[i].ep);
}

void client_flush(struct client *c, size_t i)
{
        endpoint_flush(c->ends[i].ep);
}

void client_probe(struct client *c, size_t i, nsec_t within)
{
        endpoint_probe(c->ends[i].ep, within);
}

void client_log_in_again(struct client *c, size_t i)
{
        endpoint_log_in_again(c->ends[i].ep);
}

const char *client_name(const struct client *c, size_t i)
{
        return endpoint_name(c->ends[i].ep);
}

struct member *client_member(const struct client *c)
{
        return c->member;
}
