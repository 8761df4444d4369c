#include "client/client.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/secret.h"
#include "client/internal.h"

#define WORLD_TELL (10 * NSEC_PER_SEC)

static void on_up(struct endpoint *e, void *userdata)
{
        struct peer *p = userdata;

        (void) e;
        session_hurry(&p->client->session, loop_now(p->client->loop));
        p->client->view_retry_at = (struct boot_time){0};
}

static void on_down(struct endpoint *e, const char *why, void *userdata)
{
        struct peer *p = userdata;
        struct client *c = p->client;

        snprintf(c->why, sizeof(c->why), "%s: %s", endpoint_name(e), why);
        p->cluster = 0; /* another one may be there next */
        hold_peer_down(c, p);
}

static void on_silent(struct endpoint *e, void *userdata)
{
        struct peer *p = userdata;

        (void) e;
        if (p == &p->client->peers[p->client->view_peer])
                view_move(p->client, "the replica is silent");
}

static const struct endpoint_ops endpoint_ops = {
        .up = on_up, .down = on_down, .silent = on_silent};

/* ---- which core it is ---- */

static bool is_replaced(const struct client *c)
{
        bool any = false;

        for (size_t i = 0; i < c->n_peers; i++) {
                if (*c->peers[i].ours_at && !c->peers[i].replaced)
                        return false;
                any = any || c->peers[i].replaced;
        }
        return any;
}

static enum world_word judge(const struct client *c, uint64_t cluster)
{
        return world_judge(&c->world, cluster, c->session.lease != 0, is_replaced(c),
                           loop_now(c->loop));
}

bool client_is_foreign(const struct client *c, const struct peer *p)
{
        return p->cluster != 0 && judge(c, p->cluster) == WORLD_FOREIGN;
}

static void tell_foreign(struct client *c, struct peer *p)
{
        if (p->told == p->cluster)
                return;
        p->told = p->cluster;
        log_warning("The core at %s is of another cluster (%016" PRIx64 "; ours is %016" PRIx64
                    "): it is not listened to. Take it out of Endpoints=, or restart the agent "
                    "if it is the one to join.",
                    endpoint_name(p->ep), p->cluster, c->world.cluster);
}

/* An address behind which two clusters answer in turns would fill the log. */
static void tell_world(struct client *c, const char *why)
{
        struct boot_time now = loop_now(c->loop);

        if (c->world_told_at.ns != 0 && boot_diff(now, c->world_told_at) < WORLD_TELL) {
                c->worlds_untold++;
                return;
        }
        if (c->worlds_untold > 0)
                log_warning("%s. What was known before is void; so it was %u times since this "
                            "was last said.",
                            why, c->worlds_untold);
        else
                log_warning("%s. What was known before is void.", why);
        c->world_told_at = now;
        c->worlds_untold = 0;
}

void client_begin_world(struct client *c, const Pb__ResponseHeader *h, const char *why)
{
        tell_world(c, why);
        if (c->session.lease != 0)
                snprintf(c->why, sizeof(c->why), "%s", why);
        session_gone(&c->session, c->session.lease);
        world_begin(&c->world, h->cluster_id, h->revision, loop_now(c->loop));
        for (size_t i = 0; i < c->n_peers; i++) {
                c->peers[i].replaced = false;
                c->peers[i].ours_at[0] = '\0';
                c->peers[i].told = 0;
        }
        view_restart(c);
}

enum world_word client_hear(struct client *c, struct peer *p, const Pb__ResponseHeader *h)
{
        enum world_word word;
        char at[sizeof(p->ours_at)], why[256];

        if (!h || h->cluster_id == 0) /* who does not say has none */
                return WORLD_OURS;
        p->cluster = h->cluster_id;
        endpoint_at(p->ep, at, sizeof(at));
        p->replaced = p->cluster != c->world.cluster && *at && strcmp(p->ours_at, at) == 0;
        word = judge(c, p->cluster);
        if (word == WORLD_FOREIGN) {
                tell_foreign(c, p);
                return word;
        }
        if (word == WORLD_NEW) {
                snprintf(why, sizeof(why),
                         "The core at %s is another one, with another cluster id (%016" PRIx64
                         " instead of %016" PRIx64 ")",
                         endpoint_name(p->ep), h->cluster_id, c->world.cluster);
                client_begin_world(c, h, why);
        }
        strcpy(p->ours_at, at);
        if (world_hear(&c->world, h->cluster_id, h->revision, loop_now(c->loop)))
                view_doubt(c);
        return word;
}

/* ---- ---- */

static struct peer *peer_that_is_up(struct client *c, size_t from, bool speaking)
{
        for (size_t i = 0; i < c->n_peers; i++) {
                struct peer *p = &c->peers[(from + i) % c->n_peers];

                if (endpoint_rpc(p->ep) && !(speaking && endpoint_is_silent(p->ep)) &&
                    !client_is_foreign(c, p))
                        return p;
                if (i == 0)
                        endpoint_want(p->ep); /* for the next try */
        }
        return NULL;
}

struct peer *client_peer(struct client *c, size_t from)
{
        return peer_that_is_up(c, from, false);
}

struct peer *client_speaking_peer(struct client *c, size_t from)
{
        return peer_that_is_up(c, from, true);
}

void client_heard(struct client *c, struct peer *p, const Pb__ResponseHeader *h)
{
        c->current = (size_t) (p - c->peers);
        c->heard_at = loop_now(c->loop);
        if (h)
                c->replica = h->member_id;
        c->why[0] = '\0';
}

/* ---- unary calls ---- */

/* Each answer of a core begins with one: without it nobody knows whose word that is, and as of
 * when. */
static bool has_header(const struct unary *u)
{
        const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(u->type, 1);
        const Pb__ResponseHeader *h =
                *(Pb__ResponseHeader *const *) ((const char *) u->reply + f->offset);

        return client_header_is_sane(h);
}

bool client_header_is_sane(const Pb__ResponseHeader *h)
{
        return h && h->revision > 0 && h->revision < INT64_MAX;
}

static void unary_message(struct rpc_call *call, struct view m)
{
        struct unary *u = call->userdata;

        u->reply = pb_free(u->reply);
        u->unread = pb_unpack(u->type, m, &u->reply);
        if (u->unread == 0 && !has_header(u)) {
                u->reply = pb_free(u->reply);
                u->unread = -EBADMSG;
        }
}

static void unary_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct unary *u = call->userdata;

        if (code == RPC_UNAUTHENTICATED)
                endpoint_log_in_again(u->peer->ep);
        if (code == RPC_OK && !u->reply)
                u->done(u, RPC_INTERNAL,
                        u->unread == -ENOMEM ? "out of memory" : "the answer makes no sense");
        else
                u->done(u, code, message);
}

static void unary_close(struct rpc_call *call)
{
        struct unary *u = call->userdata;

        pb_free(u->reply);
        free(u);
}

static const struct rpc_handler unary_handler = {
        .on_message = unary_message, .on_status = unary_status, .on_close = unary_close};

int client_call(struct peer *p, uint64_t op, const char *path, const ProtobufCMessage *m,
                const ProtobufCMessageDescriptor *reply_type,
                void (*done)(struct unary *u, enum rpc_code code, const char *message))
{
        cleanup_(buf_fini) struct buf b = {0};
        struct rpc_call *call;
        struct unary *u;
        int r;

        pb_append(&b, m);
        u = calloc(1, sizeof(*u));
        if (!u || buf_error(&b) < 0) {
                free(u);
                return -ENOMEM;
        }
        u->client = p->client;
        u->peer = p;
        u->op = op;
        u->type = reply_type;
        u->done = done;
        u->sent_at = loop_now(p->client->loop);
        r = rpc_call_new(endpoint_rpc(p->ep), path, false, &unary_handler, u, &call);
        if (r < 0) {
                free(u);
                return r;
        }
        r = rpc_call_send(call, b.data, buf_len(&b));
        rpc_call_end(call);
        endpoint_kick(p->ep);
        return r;
}

/* ---- what is told of nodes goes through here ---- */

static void on_joined(const struct member_node *n, int64_t revision, void *userdata)
{
        struct client *c = userdata;

        c->ops->members.joined(n, revision, c->userdata);
}

static void on_changed(const struct member_node *n, int64_t revision, void *userdata)
{
        struct client *c = userdata;

        c->ops->members.changed(n, revision, c->userdata);
}

static void on_left(const struct member_node *n, const char *reason, int64_t revision,
                    void *userdata)
{
        struct client *c = userdata;

        services_node_left(&c->services, n->record.name, n->lease, reason, revision);
        c->ops->members.left(n, reason, revision, c->userdata);
}

static const struct membership_ops member_ops = {
        .joined = on_joined, .left = on_left, .changed = on_changed};

/* ---- */

/* Each may change what the others wait for: they are asked when all have run. */
static struct boot_time client_run(struct loop_hook *h, struct boot_time now)
{
        struct client *c = container_of(h, struct client, hook);
        struct boot_time next = BOOT_TIME_NEVER;

        if (!c->observe)
                hold_run(c, now);
        view_run(c, now);
        discover_run(c, now);
        if (!c->observe) {
                offer_run(c, now);
                next = boot_min(hold_next(c), offer_next(c));
        }
        return boot_min(next, boot_min(discover_next(c), view_next(c)));
}

/* ---- endpoints ---- */

static int make_endpoint(struct client *c, struct peer *p, const char *url)
{
        p->client = c;
        return endpoint_new(&p->ep, c->loop, c->resolver, url, c->tls,
                            c->user ? &c->login : NULL, &endpoint_ops, p);
}

static int add_peer(struct client *c, const char *url)
{
        int r = make_endpoint(c, &c->peers[c->n_peers], url);

        if (r == 0)
                c->n_peers++;
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

static bool has_peer(const struct client *c, const char *url)
{
        for (size_t i = 0; i < c->n_peers; i++)
                if (strcmp(endpoint_name(c->peers[i].ep), url) == 0)
                        return true;
        return false;
}

/* The next of @urls that no peer has. */
static bool next_new(const struct client *c, const char **urls, char url[static 320])
{
        while (list_next(urls, url, 320))
                if (!has_peer(c, url))
                        return true;
        return false;
}

/* A peer stays where it is, since calls and the session count on it: one that is wanted no more
 * becomes one that is new, or a second one to the first endpoint there is. */
void client_replace_peers(struct client *c, const char *urls)
{
        const char *cursor = urls;
        char url[320], first[320];
        const char *at = urls;

        if (!list_next(&at, first, sizeof(first)))
                return;
        for (size_t i = 0; i < c->n_peers; i++) {
                struct peer *p = &c->peers[i];
                bool is_new;

                if (has_url(urls, endpoint_name(p->ep)))
                        continue;
                is_new = next_new(c, &cursor, url);
                p->ep = endpoint_free(p->ep);
                p->cluster = p->told = 0;
                p->ours_at[0] = '\0';
                p->replaced = false;
                if (make_endpoint(c, p, is_new ? url : first) < 0 &&
                    make_endpoint(c, p, "http://0.0.0.0:0") < 0)
                        abort();
        }
        while (c->n_peers < CLIENT_ENDPOINTS_MAX && next_new(c, &cursor, url))
                if (add_peer(c, url) < 0)
                        log_warning("DNS names %s, which is no endpoint.", url);
        session_hurry(&c->session, loop_now(c->loop));
        c->view_retry_at = (struct boot_time){0};
}

/* DNS may say nothing now: where the endpoint of an earlier life was, it may still be. */
static void know_endpoint(struct client *c, const struct place *p)
{
        struct url name, at;

        if (url_parse(p->endpoint, &name) == 0 && url_parse(p->at, &at) == 0)
                resolver_know(c->resolver, &name, &at);
}

/* ---- ---- */

int client_new(struct client **ret, struct loop *l, const struct client_config *cfg,
               const struct client_ops *ops, void *userdata, char *err, size_t err_size)
{
        cleanup_(client_freep) struct client *c = calloc(1, sizeof(*c));
        struct boot_time now = loop_lap(l, "the start", NULL);
        const char *cursor = cfg->endpoints;
        char url[320];
        int r;

        snprintf(err, err_size, "out of memory");
        if (!c)
                return -ENOMEM;
        c->loop = l;
        c->ops = ops;
        c->userdata = userdata;
        c->self = cfg->self;
        c->observe = cfg->observe;
        rnd_init(&c->rnd, cfg->seed);
        membership_init(&c->members, &member_ops, c);
        services_init(&c->services, &ops->services, userdata);
        offer_init(&c->offers, cfg->resume ? cfg->resume->session.lease : 0);
        session_init(&c->session, &cfg->session);
        c->claim.began = now;
        c->claim.boot = cfg->boot;
        snprintf(c->claim.boots, sizeof(c->claim.boots), "%s", cfg->boots ? cfg->boots : "");
        if (cfg->resume && !cfg->observe) {
                memcpy(c->self.incarnation, cfg->resume->self.incarnation,
                       sizeof(c->self.incarnation));
                memcpy(c->self.since, cfg->resume->self.since, sizeof(c->self.since));
                c->self.ttl_ms = cfg->resume->session.ttl / NSEC_PER_MSEC;
                session_resume(&c->session, &cfg->resume->session, now);
                claim_add(&c->claim, c->self.incarnation);
                c->world.cluster = strtoull(cfg->resume->core, NULL, 16);
                c->world.heard_at = now;
        }
        c->cluster = strdup(cfg->cluster);
        if (!c->cluster || asprintf(&c->prefix, "/tenure/%s/", cfg->cluster) < 0) {
                c->prefix = NULL;
                return -ENOMEM;
        }
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
        r = discover_init(c, cfg->endpoints);
        if (r == 0) /* until DNS has answered */
                cursor = cfg->resume && *cfg->resume->endpoint ? cfg->resume->endpoint
                         : c->discovery.tls                    ? "https://0.0.0.0:0"
                                                               : "http://0.0.0.0:0";
        while (list_next(&cursor, url, sizeof(url))) {
                if (c->n_peers == CLIENT_ENDPOINTS_MAX) {
                        snprintf(err, err_size,
                                 "more than %d endpoints are given; name fewer of them",
                                 CLIENT_ENDPOINTS_MAX);
                        return -EINVAL;
                }
                r = add_peer(c, url);
                if (r < 0) {
                        snprintf(err, err_size,
                                 "endpoint '%s' is not a URL such as http://10.0.0.1:2379",
                                 url);
                        return r;
                }
        }
        if (c->n_peers == 0) {
                snprintf(err, err_size, "no endpoint is given");
                return -EINVAL;
        }
        /* Agents spread over the replicas. */
        c->current = c->view_peer = rnd_between(&c->rnd, 0, c->n_peers - 1);
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
        c->hold_op++; /* what still comes of calls under way is of no interest */
        c->view_op++;
        for (size_t i = 0; i < c->n_peers; i++)
                endpoint_free(c->peers[i].ep);
        discover_fini(c);
        resolver_free(c->resolver);
        offer_fini(&c->offers);
        buf_fini(&c->range_from);
        membership_fini(&c->members);
        services_fini(&c->services);
        free(c->cluster);
        free(c->prefix);
        free(c->user);
        secret_free(c->password);
        free(c);
        return NULL;
}

void client_leave(struct client *c, const char *reason)
{
        snprintf(c->leaving, sizeof(c->leaving), "%s", reason);
        session_leave(&c->session);
        loop_hook_again(&c->hook);
}

void client_join(struct client *c)
{
        session_join(&c->session);
        loop_hook_again(&c->hook);
}

void client_rest(struct client *c, struct boot_time until)
{
        session_rest(&c->session, until);
        loop_hook_again(&c->hook);
}

bool client_place(const struct client *c, struct place *ret)
{
        *ret = (struct place){.self = c->self};
        snprintf(ret->cluster, sizeof(ret->cluster), "%s", c->cluster);
        snprintf(ret->core, sizeof(ret->core), "%016" PRIx64, c->world.cluster);
        snprintf(ret->endpoint, sizeof(ret->endpoint), "%s", client_endpoint(c));
        endpoint_at(c->peers[c->current].ep, ret->at, sizeof(ret->at));
        return session_place(&c->session, &ret->session);
}

void client_set_ttl(struct client *c, nsec_t ttl)
{
        c->session.cfg.ttl = ttl;
}

const struct session *client_session(const struct client *c)
{
        return &c->session;
}

const struct membership *client_membership(const struct client *c)
{
        return &c->members;
}

const struct services *client_services(const struct client *c)
{
        return &c->services;
}

const struct node_record *client_self(const struct client *c)
{
        return &c->self;
}

bool client_synced(const struct client *c)
{
        return c->synced;
}

struct boot_time client_heard_at(const struct client *c)
{
        return c->heard_at;
}

const char *client_endpoint(const struct client *c)
{
        const struct peer *p = &c->peers[c->current];

        return endpoint_rpc(p->ep) ? endpoint_name(p->ep) : "";
}

void client_source(const struct client *c, char *out, size_t size)
{
        endpoint_source(c->peers[c->current].ep, out, size);
}

/* A connection whose answers are due waits for TCP's next attempt, which may be seconds away;
 * a new one does not. */
void client_path_back(struct client *c)
{
        bool trouble = session_attempt(&c->session) > 0;

        for (size_t i = 0; i < c->n_peers; i++) {
                struct peer *p = &c->peers[i];

                if (!endpoint_rpc(p->ep) || (trouble && hold_waits_for(p)))
                        endpoint_again(p->ep);
        }
        c->view_retry_at = (struct boot_time){0};
        session_hurry(&c->session, loop_now(c->loop));
        loop_hook_again(&c->hook);
}

void client_doubt(struct client *c)
{
        session_doubt(&c->session, loop_now(c->loop));
        loop_hook_again(&c->hook);
}

uint64_t client_replica(const struct client *c)
{
        return c->replica;
}

const char *client_trouble(const struct client *c)
{
        return c->why;
}
