/*
 * tenurectl lease ...: the leases of the core, by their ids and by their names.
 *
 * Leases are shown as etcdctl shows them, followed by what only tenure-core knows. A lease is
 * given by its id, 16 hexadecimal digits, or by its name; a name is never sent to an etcd,
 * which would ignore it.
 */
#include <inttypes.h>
#include <json-c/json.h>
#include <poll.h>
#include <stdio.h>

#include "base/conf.h"
#include "loop/loop.h"
#include "operand.h"
#include "table.h"
#include "talk.h"
#include "text.h"
#include "verbs.h"

#define ID_DIGITS 16
#define NAME_BYTES_MAX 1024
#define RETRY (250 * NSEC_PER_MSEC)
#define TTL_MOST (INT64_C(100) * 365 * 86400 * NSEC_PER_SEC) /* the core accepts less */

/* The lease that the user gave. */
struct which {
        const char *text; /* as given */
        int64_t id;
        const char *name; /* NULL: it is an id */
};

/* The endpoints for all calls of a command. */
struct asking {
        struct ctl *c;
        struct core_options core;
        char url[TALK_URL_MAX]; /* an endpoint whose leases have names; "": not asked yet */
        char first[4096];       /* keep-alive: all endpoints, the best first */
};

/* ---- to print ---- */

static struct view view_of(const ProtobufCBinaryData *d)
{
        return (struct view){d->data, d->len};
}

static struct json_object *json_lease(int64_t id, const ProtobufCBinaryData *name)
{
        struct json_object *j = json_object_new_object();

        json_put_id(j, "id", (uint64_t) id);
        json_object_object_add(j, "name", text_json(view_of(name)));
        return j;
}

/* In seconds, as etcdctl prints it. */
static const char *time_text(int64_t ms)
{
        static char text[32];

        if (ms % 1000 == 0)
                snprintf(text, sizeof(text), "%" PRId64 "s", ms / 1000);
        else
                snprintf(text, sizeof(text), "%.3fs", (double) ms / 1000);
        return text;
}

/* ", name(NAME)", or nothing. */
static const char *name_text(const ProtobufCBinaryData *name)
{
        static char text[4 * NAME_BYTES_MAX + 16];
        cleanup_(buf_fini) struct buf b = {0};

        if (name->len == 0)
                return "";
        text_add(&b, view_of(name));
        snprintf(text, sizeof(text), ", name(%.*s)", (int) buf_len(&b),
                 (const char *) buf_head(&b));
        return text;
}

/* ---- to ask ---- */

static struct which which_of(const char *text)
{
        struct which w = {.text = text, .name = text};
        bool digits = strncmp(text, "0x", 2) == 0;
        const char *from = digits ? text + 2 : text;

        if (strncmp(text, "name=", 5) == 0) {
                w.name = text + 5;
        } else if (strspn(from, "0123456789abcdefABCDEF") == strlen(from) && *from &&
                   (digits ? strlen(from) <= ID_DIGITS : strlen(from) == ID_DIGITS)) {
                w.id = (int64_t) strtoull(from, NULL, 16);
                w.name = NULL;
        }
        return w;
}

static bool is_sane(const struct which *w)
{
        if (w->name ? *w->name && strlen(w->name) <= NAME_BYTES_MAX : w->id > 0)
                return true;
        say(w->name ? "a lease's name has 1 to 1024 bytes; '%s' is not one"
                    : "the id of a lease is positive; '%s' is not one",
            w->text);
        return false;
}

static int ask(struct asking *a, struct talk *t)
{
        int r = talk(&a->core, t);

        if (r < 0)
                t->reply = pb_free(t->reply);
        return r;
}

/* Finds an endpoint whose leases have names; from then on only that endpoint is asked. */
static int want_names(struct asking *a)
{
        Pb__StatusRequest q = PB__STATUS_REQUEST__INIT;
        struct talk t = {.path = "/etcdserverpb.Maintenance/Status",
                         .request = &q.base,
                         .reply_type = &pb__status_response__descriptor};
        bool has;
        int r;

        if (*a->url)
                return 0;
        r = ask(a, &t);
        if (r < 0)
                return r;
        has = ((Pb__StatusResponse *) t.reply)->clients > 0; /* we are one of its clients */
        pb_free(t.reply);
        if (!has)
                return say("leases have no names in the core at %s, which is an etcd; use the "
                           "lease's id",
                           t.url);
        snprintf(a->url, sizeof(a->url), "%s", t.url);
        a->core.endpoints = a->url;
        return 0;
}

static int is_gone(const struct which *w)
{
        if (w->name)
                say("there is no lease with the name '%s'", w->name);
        else
                say("there is no lease %s: it has expired, or was revoked", w->text);
        return -ENOENT;
}

/* Checks that the answer is about the lease with this name: a core that ignores names has
 * answered another question. */
static int check_name(const struct talk *t, const struct which *w,
                      const ProtobufCBinaryData *name)
{
        if (!w->name || name->len > 0)
                return 0;
        say("the core at %s cannot find leases by name; use the lease's id", t->url);
        return -EOPNOTSUPP;
}

/* ---- list ---- */

static struct json_object *json_row(const Pb__LeaseStatus *l)
{
        struct json_object *j = json_lease(l->id, &l->name);

        if (l->granted_ttl_ms > 0) { /* etcd reports only the ids */
                json_put_number(j, "ttl_ms", l->granted_ttl_ms);
                json_put_number(j, "left_ms", l->ttl_ms);
                json_put_number(j, "keys", (int64_t) l->keys);
        }
        return j;
}

int verb_lease_list(struct ctl *c, int argc unused_, char **argv unused_)
{
        static const struct column columns[] = {{"ID", "id", COLUMN_TEXT},
                                                {"TTL", "ttl_ms", COLUMN_MS},
                                                {"LEFT", "left_ms", COLUMN_MS},
                                                {"KEYS", "keys", COLUMN_TEXT},
                                                {"NAME", "name", COLUMN_REST}};
        Pb__LeaseLeasesRequest q = PB__LEASE_LEASES_REQUEST__INIT;
        cleanup_(pb_freep) Pb__LeaseLeasesResponse *p = NULL;
        struct json_object *list;

        if (talk_call(&c->core, "/etcdserverpb.Lease/LeaseLeases", &q.base,
                      &pb__lease_leases_response__descriptor, (void **) &p) < 0)
                return -1;
        list = json_object_new_array();
        for (size_t i = 0; i < p->n_leases; i++)
                json_object_array_add(list, json_row(p->leases[i]));
        table_print(c, list, columns, ARRAY_SIZE(columns));
        if (c->json == JSON_OFF && c->legend)
                printf("\n%zu leases.\n", p->n_leases);
        json_object_put(list);
        return 0;
}

/* ---- grant ---- */

int verb_lease_grant(struct ctl *c, int argc, char **argv)
{
        struct asking a = {.c = c, .core = c->core};
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;
        struct talk t = {.path = "/etcdserverpb.Lease/LeaseGrant",
                         .request = &q.base,
                         .reply_type = &pb__lease_grant_response__descriptor};
        struct which w = {.text = argv[1], .name = argc > 1 ? argv[1] : NULL};
        const Pb__LeaseGrantResponse *p;
        struct json_object *j;
        int64_t ttl_ms;
        nsec_t ttl;

        if (operand_time("TTL", argv[0], NSEC_PER_MSEC, TTL_MOST, &ttl) < 0)
                return -1;
        q.ttl_ms = ttl / NSEC_PER_MSEC;
        q.ttl = (ttl + NSEC_PER_SEC - 1) / NSEC_PER_SEC;
        if (w.name) {
                if (!is_sane(&w) || want_names(&a) < 0)
                        return -1;
                q.name = pb_bytes(w.name, strlen(w.name));
        }
        if (ask(&a, &t) < 0)
                return -1;
        p = t.reply;
        ttl_ms = p->ttl_ms > 0 ? p->ttl_ms : p->ttl * 1000;
        j = json_lease(p->id, &q.name);
        json_put_number(j, "ttl_ms", ttl_ms);
        ctl_did(c, j, "lease %016" PRIx64 " granted with TTL(%s)%s", (uint64_t) p->id,
                time_text(ttl_ms), name_text(&q.name));
        pb_free(t.reply);
        return 0;
}

/* ---- revoke ---- */

static int revoke_one(struct asking *a, const char *text)
{
        Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;
        struct talk t = {.path = "/etcdserverpb.Lease/LeaseRevoke",
                         .request = &q.base,
                         .reply_type = &pb__lease_revoke_response__descriptor,
                         .quiet = RPC_NOT_FOUND};
        struct which w = which_of(text);
        const char *name = w.name ? w.name : w.text;
        cleanup_(buf_fini) struct buf b = {0};
        struct json_object *j;
        int r;

        if (!is_sane(&w) || (w.name && want_names(a) < 0))
                return -1;
        q.id = w.id;
        if (w.name)
                q.name = pb_bytes(w.name, strlen(w.name));
        r = ask(a, &t);
        if (r < 0)
                return t.code == RPC_NOT_FOUND ? is_gone(&w) : r;
        pb_free(t.reply);
        text_add(&b, view_str(name));
        j = json_object_new_object();
        json_object_object_add(j, "lease", text_json(view_str(name)));
        json_put_text(j, "event", "Revoked");
        ctl_did(a->c, j, "lease %.*s revoked", (int) buf_len(&b), (const char *) buf_head(&b));
        return 0;
}

int verb_lease_revoke(struct ctl *c, int argc, char **argv)
{
        struct asking a = {.c = c, .core = c->core};
        int r = 0;

        for (int i = 0; i < argc; i++)
                r = min_of(r, revoke_one(&a, argv[i]));
        return r;
}

/* ---- keep-alive ---- */

/* Renews once, trying one endpoint after the other, each for @patience at most. */
static int renew(struct asking *a, const struct which *w, nsec_t patience, int64_t *ret_ttl_ms)
{
        Pb__LeaseKeepAliveRequest q = PB__LEASE_KEEP_ALIVE_REQUEST__INIT;
        struct talk t = {.path = "/etcdserverpb.Lease/LeaseKeepAlive",
                         .request = &q.base,
                         .reply_type = &pb__lease_keep_alive_response__descriptor,
                         .patience = patience};
        const Pb__LeaseKeepAliveResponse *p;
        struct json_object *j;
        int r;

        q.id = w->id;
        if (w->name)
                q.name = pb_bytes(w->name, strlen(w->name));
        r = ask(a, &t);
        if (r == -EIO && t.code != RPC_UNAVAILABLE && t.code != RPC_RESOURCE_EXHAUSTED)
                return -EACCES; /* trying again would not help */
        if (r < 0)
                return r;
        p = t.reply;
        r = check_name(&t, w, &p->name);
        if (r == 0 && p->ttl <= 0)
                r = is_gone(w);
        if (r == 0) {
                snprintf(a->first, sizeof(a->first), "%s,%s", t.url, a->c->core.endpoints);
                a->core.endpoints = a->first;
                *ret_ttl_ms = p->ttl_ms > 0 ? p->ttl_ms : p->ttl * 1000;
                j = json_lease(p->id, &p->name);
                json_put_number(j, "ttl_ms", *ret_ttl_ms);
                ctl_did(a->c, j, "lease %016" PRIx64 " keepalived with TTL(%s)%s",
                        (uint64_t) p->id, time_text(*ret_ttl_ms), name_text(&p->name));
                if (ctl_flush(a->c) < 0)
                        r = -EACCES;
        }
        pb_free(t.reply);
        return r;
}

/* Renews the lease at any endpoint that answers, until none has answered for a TTL. */
int verb_lease_keep_alive(struct ctl *c, int argc unused_, char **argv)
{
        struct asking a = {.c = c, .core = c->core};
        struct which w = which_of(argv[0]);
        struct boot_time until = {0};
        int64_t ttl_ms = 0;
        int r;

        if (!is_sane(&w) || (w.name && want_names(&a) < 0))
                return -1;
        a.core.endpoints = c->core.endpoints; /* the name in each answer is checked */
        for (;;) {
                struct boot_time sent = boot_now();
                int64_t before = ttl_ms;

                r = renew(&a, &w, ttl_ms * NSEC_PER_MSEC / 4, &ttl_ms);
                if (r == 0 && c->o.once)
                        return 0;
                if (r == 0) {
                        until = boot_add(sent, ttl_ms * NSEC_PER_MSEC);
                        poll(NULL, 0, (int) min_of(ttl_ms / 3, (int64_t) INT_MAX));
                } else if (r == -ENOENT || r == -EOPNOTSUPP || r == -EACCES || before == 0) {
                        return r;
                } else if (!boot_before(boot_now(), until)) {
                        return say("'%s' was not renewed in time, and may have expired",
                                   w.text);
                } else {
                        poll(NULL, 0, (int) (RETRY / NSEC_PER_MSEC));
                }
        }
}

/* ---- ttl ---- */

static struct json_object *json_time(const Pb__LeaseTimeToLiveResponse *p, int64_t granted,
                                     int64_t left, bool with_keys)
{
        struct json_object *j = json_lease(p->id, &p->name), *keys;

        json_put_number(j, "ttl_ms", granted);
        json_put_number(j, "left_ms", left);
        if (!with_keys)
                return j;
        keys = json_object_new_array();
        for (size_t i = 0; i < p->n_keys; i++)
                json_object_array_add(keys, text_json(view_of(&p->keys[i])));
        json_object_object_add(j, "keys", keys);
        return j;
}

static void print_time(const struct ctl *c, const Pb__LeaseTimeToLiveResponse *p)
{
        int64_t granted = p->granted_ttl_ms > 0 ? p->granted_ttl_ms : p->grantedttl * 1000;
        int64_t left = p->granted_ttl_ms > 0 ? p->ttl_ms : p->ttl * 1000;

        if (c->json != JSON_OFF)
                return ctl_print(c, json_time(p, granted, left, c->o.keys));
        printf("lease %016" PRIx64 " granted with TTL(%s)", (uint64_t) p->id,
               time_text(granted));
        printf(", remaining(%s)%s", time_text(left), name_text(&p->name));
        if (c->o.keys)
                printf(", attached keys([");
        for (size_t i = 0; c->o.keys && i < p->n_keys; i++) {
                printf(i > 0 ? " " : "");
                text_print(view_of(&p->keys[i]));
        }
        puts(c->o.keys ? "])" : "");
}

int verb_lease_ttl(struct ctl *c, int argc unused_, char **argv)
{
        struct asking a = {.c = c, .core = c->core};
        Pb__LeaseTimeToLiveRequest q = PB__LEASE_TIME_TO_LIVE_REQUEST__INIT;
        struct talk t = {.path = "/etcdserverpb.Lease/LeaseTimeToLive",
                         .request = &q.base,
                         .reply_type = &pb__lease_time_to_live_response__descriptor};
        struct which w = which_of(argv[0]);
        const Pb__LeaseTimeToLiveResponse *p;
        int r;

        if (!is_sane(&w) || (w.name && want_names(&a) < 0))
                return -1;
        q.id = w.id;
        q.keys = c->o.keys;
        if (w.name)
                q.name = pb_bytes(w.name, strlen(w.name));
        r = ask(&a, &t);
        if (r < 0)
                return r;
        p = t.reply;
        r = check_name(&t, &w, &p->name);
        if (r == 0 && p->ttl < 0)
                r = is_gone(&w);
        if (r == 0)
                print_time(c, p);
        pb_free(t.reply);
        return r;
}
