#include "watch_since.h"

#include <inttypes.h>
#include <stdio.h>

#include "member/membership.h"
#include "member/services.h"
#include "tie.h"

#define PAGE 1000 /* keys */
#define ANSWER_MS 10000

/* A change of a key, until all of its revision are there: those of nodes count first, since the
 * services of a node that has left are gone for the same reason. */
struct change {
        struct view name; /* into `text` */
        struct view value;
        bool of_service, gone;
        int64_t lease, created, revision;
        uint8_t text[];
};

struct watch_since {
        struct tenure *t;
        struct tenure_watch *watch;
        char prefix[NODE_NAME_MAX + 32]; /* of the keys of nodes and services */
        struct membership nodes;
        struct services services;
        struct change **changes; /* owned */
        size_t n, cap;
        bool reading; /* a state, which is no news */
        happening_fn *fn;
        void *userdata;
};

/* ---- what has happened ---- */

static void tell(struct watch_since *s, struct happening h)
{
        if (!s->reading)
                s->fn(&h, s->userdata);
}

static void tell_node(struct watch_since *s, const char *event, const struct member_node *n,
                      const char *reason, int64_t revision)
{
        tell(s, (struct happening){.event = event,
                                   .name = n->record.name,
                                   .id = n->record.id,
                                   .node = "",
                                   .instance = "",
                                   .reason = reason,
                                   .note = *reason && *n->record.leaving_note
                                                   ? n->record.leaving_note
                                                   : NULL,
                                   .revision = revision});
}

static void on_joined(const struct member_node *n, int64_t revision, void *userdata)
{
        tell_node(userdata, "NodeJoined", n, "", revision);
}

static void on_changed(const struct member_node *n, int64_t revision, void *userdata)
{
        tell_node(userdata, "NodeChanged", n, "", revision);
}

static void on_left(const struct member_node *n, const char *reason, int64_t revision,
                    void *userdata)
{
        struct watch_since *s = userdata;

        services_node_left(&s->services, n->record.name, n->lease, reason, revision);
        tell_node(s, "NodeLeft", n, reason, revision);
}

static void tell_service(struct watch_since *s, const char *event, const struct service *v,
                         const char *reason, int64_t revision)
{
        tell(s, (struct happening){.event = event,
                                   .name = v->name,
                                   .id = "",
                                   .node = v->node,
                                   .instance = v->instance,
                                   .reason = reason,
                                   .revision = revision});
}

static void on_service_added(const struct service *v, int64_t revision, void *userdata)
{
        tell_service(userdata, "ServiceAdded", v, "", revision);
}

static void on_service_changed(const struct service *v, int64_t revision, void *userdata)
{
        tell_service(userdata, "ServiceChanged", v, "", revision);
}

static void on_service_removed(const struct service *v, const char *reason, int64_t revision,
                               void *userdata)
{
        tell_service(userdata, "ServiceRemoved", v, reason, revision);
}

static const struct membership_ops node_ops = {
        .joined = on_joined, .left = on_left, .changed = on_changed};
static const struct services_ops service_ops = {.added = on_service_added,
                                                .removed = on_service_removed,
                                                .changed = on_service_changed};

/* ---- changes ---- */

/* The part of the key behind "nodes/" or "services/"; empty: it is another one. */
static struct view name_in(const struct watch_since *s, const struct tenure_kv *kv,
                           const char *folder)
{
        size_t n = strlen(s->prefix), k = strlen(folder);

        if (kv->key_len <= n + k || memcmp((const char *) kv->key + n, folder, k) != 0)
                return (struct view){0};
        return (struct view){(const uint8_t *) kv->key + n + k, kv->key_len - n - k};
}

static int put(struct watch_since *s, const struct change *c)
{
        if (c->of_service)
                return services_put(&s->services, c->name, c->value, c->lease, c->created,
                                    c->revision);
        return membership_put(&s->nodes, c->name, c->value, c->lease, c->created, c->revision);
}

static int apply(struct watch_since *s, const struct change *c)
{
        if (!c->gone)
                return put(s, c);
        if (c->of_service)
                services_delete(&s->services, c->name, c->revision);
        else
                membership_delete(&s->nodes, c->name, c->revision);
        return 0;
}

static void drop(struct watch_since *s)
{
        for (size_t i = 0; i < s->n; i++)
                free(s->changes[i]);
        s->n = 0;
}

/* Returns 0 or -ENOMEM. */
static int flush(struct watch_since *s)
{
        int r = 0;

        for (int of_service = 0; of_service < 2; of_service++)
                for (size_t i = 0; r == 0 && i < s->n; i++)
                        if (s->changes[i]->of_service == of_service)
                                r = apply(s, s->changes[i]);
        drop(s);
        return r;
}

/* Returns 0 or -ENOMEM. */
static int add(struct watch_since *s, const struct tenure_kv *kv, bool gone)
{
        struct view name = name_in(s, kv, "nodes/");
        bool of_service = name.len == 0;
        size_t len = gone ? 0 : kv->value_len;
        struct change *c;
        int r = 0;

        if (of_service)
                name = name_in(s, kv, "services/");
        if (name.len == 0)
                return 0;
        if (s->n > 0 && s->changes[0]->revision != kv->mod_revision)
                r = flush(s);
        if (r < 0 || array_reserve(&s->changes, &s->cap, s->n + 1, sizeof(*s->changes)) < 0)
                return -ENOMEM;
        c = malloc(sizeof(*c) + name.len + len);
        if (!c)
                return -ENOMEM;
        *c = (struct change){.name = {c->text, name.len},
                             .value = {c->text + name.len, len},
                             .of_service = of_service,
                             .gone = gone,
                             .lease = kv->lease,
                             .created = kv->create_revision,
                             .revision = kv->mod_revision};
        memcpy(c->text, name.p, name.len);
        if (len > 0)
                memcpy(c->text + name.len, kv->value, len);
        s->changes[s->n++] = c;
        return 0;
}

/* ---- the state of a revision ---- */

static int fail(const struct watch_since *s, struct tenure_call *c, int r)
{
        const char *why = c ? tenure_call_error(c) : "";

        return ctl_fail("cannot read the history of the core", r,
                        &(sd_bus_error){.message = *why                  ? why
                                                   : *tenure_error(s->t) ? tenure_error(s->t)
                                                                         : NULL});
}

/* Reads the keys from @from on, at *@revision; 0: at the present one, which is then set. Puts
 * the key that the next page begins with into @from; it is empty after the last one. Returns 0;
 * -ENODATA: the revision is compacted; or another negative errno after printing why. */
static int read_page(struct watch_since *s, struct buf *from, const char *end,
                     int64_t *revision)
{
        struct tenure_range q = {.key = buf_head(from),
                                 .key_len = buf_len(from),
                                 .end = end,
                                 .end_len = strlen(end),
                                 .revision = *revision,
                                 .limit = PAGE};
        struct tenure_call *c = NULL;
        const struct tenure_kv *kv;
        size_t n = 0;
        int r = tenure_get(s->t, &q, &c);

        if (r == 0)
                r = tenure_call_wait(c, ANSWER_MS);
        if (r == -ERANGE)
                say("the core has not reached revision %" PRId64, *revision);
        else if (r < 0 && r != -ENODATA)
                fail(s, c, r);
        if (r == 0 && *revision == 0)
                *revision = tenure_call_revision(c);
        for (; r == 0 && (kv = tenure_call_kv(c, 0, n)); n++)
                r = add(s, kv, false);
        buf_clear(from);
        if (r == 0 && n == PAGE) {
                kv = tenure_call_kv(c, 0, n - 1);
                buf_add(from, kv->key, kv->key_len);
                buf_add_u8(from, 0);
                r = buf_error(from);
        }
        if (r == -ENOMEM)
                fail(s, NULL, r);
        tenure_call_free(c);
        return r;
}

/* Reads the state at *@revision, as read_page(), and watches from there on. */
static int read_state(struct watch_since *s, int64_t *revision)
{
        char end[sizeof(s->prefix) + 16], first[sizeof(end)];
        struct tenure_watch_options o = {.key = first, .end = end};
        cleanup_(buf_fini) struct buf from = {0};
        int r = 0;

        s->reading = true;
        o.key_len = (size_t) snprintf(first, sizeof(first), "%snodes/", s->prefix);
        o.end_len = (size_t) snprintf(end, sizeof(end), "%sservices0", s->prefix);
        buf_add(&from, first, o.key_len);
        while (r == 0 && buf_len(&from) > 0)
                r = read_page(s, &from, end, revision);
        if (r == 0) {
                r = flush(s);
                o.revision = *revision + 1;
                if (r == 0)
                        r = tenure_watch(s->t, &o, &s->watch);
                if (r < 0)
                        fail(s, NULL, r);
        }
        drop(s);
        s->reading = false;
        return r;
}

/* What came after @since is not in the history any more. Begins with what there is now. */
static int begin_anew(struct watch_since *s, int64_t since)
{
        struct happening h = {
                .event = WATCH_RESYNC, .name = "", .id = "", .node = "", .instance = ""};
        char reason[160];
        int r;

        s->watch = tenure_watch_free(s->watch);
        drop(s);
        membership_fini(&s->nodes);
        services_fini(&s->services);
        r = read_state(s, &h.revision);
        if (r < 0)
                return r == -ENODATA ? fail(s, NULL, r) : -1;
        if (since > 0)
                snprintf(reason, sizeof(reason),
                         "the core's history no longer goes back to revision %" PRId64
                         ": what changed since then is not known",
                         since);
        else
                snprintf(reason, sizeof(reason),
                         "the core's history has a gap: what changed since the last event is "
                         "not known");
        h.reason = reason;
        tell(s, h);
        return 0;
}

/* ---- ---- */

int watch_since_run(struct watch_since *s)
{
        const struct tenure_event *e;
        int r = tenure_dispatch(s->t);

        if (r < 0)
                return tie_fail(s->t);
        while (r == 0 && (e = tenure_pop_event(s->t)))
                if (e->type == TENURE_WATCH_ENDED && e->error == -ENODATA)
                        return flush(s) < 0 ? fail(s, NULL, -ENOMEM) : begin_anew(s, 0);
                else if (e->type == TENURE_WATCH_ENDED)
                        return say("the core ended the watch: %s", e->reason);
                else if (e->type == TENURE_PUT || e->type == TENURE_DELETE)
                        r = add(s, e->kv, e->type == TENURE_DELETE);
        if (r == 0)
                r = flush(s);
        return r < 0 ? fail(s, NULL, r) : 0;
}

int watch_since_fd(const struct watch_since *s)
{
        return tenure_get_fd(s->t);
}

int watch_since_timeout(const struct watch_since *s)
{
        return tenure_get_timeout(s->t);
}

int watch_since_new(struct watch_since **ret, struct ctl *c, int64_t revision, happening_fn *fn,
                    void *userdata)
{
        struct watch_since *s;
        struct json_object *o;
        int r = ctl_get_all(c, ROOT, MANAGER, &o);

        if (r < 0)
                return -1;
        s = calloc(1, sizeof(*s));
        if (!s) {
                json_object_put(o);
                return ctl_fail("cannot begin", -ENOMEM, NULL);
        }
        s->fn = fn;
        s->userdata = userdata;
        snprintf(s->prefix, sizeof(s->prefix), "/tenure/%s/", ctl_text(o, "Cluster"));
        json_object_put(o);
        membership_init(&s->nodes, &node_ops, s);
        services_init(&s->services, &service_ops, s);
        r = tie_new(c, &s->t);
        if (r == 0) {
                r = read_state(s, &revision);
                if (r == -ENODATA)
                        r = begin_anew(s, revision);
        }
        if (r < 0) {
                watch_since_free(s);
                return -1;
        }
        *ret = s;
        return 0;
}

struct watch_since *watch_since_free(struct watch_since *s)
{
        if (!s)
                return NULL;
        tenure_watch_free(s->watch);
        tenure_free(s->t);
        drop(s);
        free(s->changes);
        membership_fini(&s->nodes);
        services_fini(&s->services);
        free(s);
        return NULL;
}
