/* Endpoints named by DNS SRV records (RFC 2782): queried at the start, again while no endpoint
 * answers, and every few minutes. As long as DNS does not answer, the known endpoints stay in
 * use. */
#include <stdio.h>

#include "base/conf.h"
#include "base/log.h"
#include "client/internal.h"

#define REFRESH (300 * NSEC_PER_SEC)
#define RETRY_MIN NSEC_PER_SEC
#define RETRY_MAX (30 * NSEC_PER_SEC)

static bool any_up(const struct client *c)
{
        for (size_t i = 0; i < c->n_ends; i++)
                if (endpoint_rpc(c->ends[i].ep))
                        return true;
        return false;
}

static void ask_again(struct client *c, bool answered)
{
        struct discovery *d = &c->discovery;

        /* If no endpoint answers, the records may be out of date. */
        if (answered && any_up(c)) {
                d->retry = RETRY_MIN;
                d->at = boot_add(loop_now(c->loop), REFRESH);
        } else {
                d->at = boot_add(loop_now(c->loop), d->retry);
                d->retry = min_of(2 * d->retry, RETRY_MAX);
        }
}

static void on_answer(int r, const char *targets, void *userdata)
{
        struct client *c = userdata;
        struct discovery *d = &c->discovery;
        cleanup_(buf_fini) struct buf urls = {0};
        char target[320];

        d->query = NULL;
        if (r < 0) {
                if (!d->failed)
                        log_warning("No SRV record %s was found; continuing with the known "
                                    "endpoints.",
                                    d->name);
                d->failed = true;
                return ask_again(c, false);
        }
        d->failed = false;
        while (list_next(&targets, target, sizeof(target)))
                buf_printf(&urls, "%s%s://%s", buf_len(&urls) > 0 ? "," : "",
                           d->tls ? "https" : "http", target);
        buf_add_u8(&urls, 0);
        if (buf_error(&urls) < 0)
                return ask_again(c, false);
        if (!d->urls || strcmp(d->urls, (char *) urls.data) != 0) {
                free(d->urls);
                d->urls = strdup((char *) urls.data);
                if (!d->urls)
                        return ask_again(c, false);
                log_info("DNS names the core's endpoints: %s.", d->urls);
                client_replace_endpoints(c, d->urls);
        }
        ask_again(c, true);
}

int discover_init(struct client *c, const char *endpoints)
{
        struct discovery *d = &c->discovery;
        int r;

        r = url_parse_srv(endpoints, d->name, &d->tls);
        if (r < 0)
                return r;
        d->retry = RETRY_MIN;
        return 0;
}

void discover_fini(struct client *c)
{
        c->discovery.query = resolve_cancel(c->discovery.query);
        free(c->discovery.urls);
        c->discovery.urls = NULL;
}

void discover_run(struct client *c, struct boot_time now)
{
        struct discovery *d = &c->discovery;

        if (!*d->name || d->query || boot_before(now, d->at))
                return;
        if (resolve_srv(c->resolver, d->name, on_answer, c, &d->query) < 0)
                ask_again(c, false);
}

struct boot_time discover_next(const struct client *c)
{
        const struct discovery *d = &c->discovery;

        return !*d->name || d->query ? BOOT_TIME_NEVER : d->at;
}
