/* Nodes and services: turns what the member reports into events, and looks up what it knows. */
#include "member/tags.h"
#include "tenure/internal.h"

/* ---- nodes ---- */

static struct tenure_node node_of(const struct member_node *n)
{
        const struct node_record *r = &n->record;

        return (struct tenure_node){.name = r->name,
                                    .id = r->id,
                                    .incarnation = r->incarnation,
                                    .boot_id = r->boot_id,
                                    .since = r->since,
                                    .addresses = r->addresses,
                                    .tags = r->tags,
                                    .version = r->version,
                                    .os_release = r->os_release,
                                    .degraded = r->degraded,
                                    .leaving = r->leaving,
                                    .ttl_ms = (uint64_t) max_of(r->ttl_ms, INT64_C(0)),
                                    .lease = n->lease,
                                    .join_revision = n->create_revision,
                                    .revision = n->mod_revision};
}

/* Where the public structures have strings, for copying them one by one. */
static const size_t node_strings[] = {
        offsetof(struct tenure_node, name),        offsetof(struct tenure_node, id),
        offsetof(struct tenure_node, incarnation), offsetof(struct tenure_node, boot_id),
        offsetof(struct tenure_node, since),       offsetof(struct tenure_node, addresses),
        offsetof(struct tenure_node, tags),        offsetof(struct tenure_node, version),
        offsetof(struct tenure_node, os_release),  offsetof(struct tenure_node, degraded),
        offsetof(struct tenure_node, leaving),
};

static const size_t service_strings[] = {
        offsetof(struct tenure_service, name),     offsetof(struct tenure_service, node),
        offsetof(struct tenure_service, instance), offsetof(struct tenure_service, address),
        offsetof(struct tenure_service, tags),     offsetof(struct tenure_service, unit),
        offsetof(struct tenure_service, state),    offsetof(struct tenure_service, since),
};

static const char **string_at(void *s, size_t offset)
{
        return (const char **) (void *) ((char *) s + offset);
}

static size_t strings_size(const void *s, const size_t *at, size_t n)
{
        size_t size = 0;

        for (size_t i = 0; i < n; i++)
                size += strlen(*(const char *const *) (const void *) ((const char *) s +
                                                                      at[i])) +
                        1;
        return size;
}

static void strings_keep(struct queued *q, void *s, const size_t *at, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                const char **p = string_at(s, at[i]);

                *p = queue_text(q, *p);
        }
}

/* Makes an event with room for the strings of @s, which it keeps. */
static struct queued *change_new(struct tenure *t, enum tenure_event_type type, const void *s,
                                 const size_t *strings, size_t n, const char *reason,
                                 int64_t revision)
{
        struct queued *q = queue_new(t, type, strings_size(s, strings, n) + strlen(reason) + 1);

        if (!q)
                return NULL;
        q->event.reason = queue_text(q, reason);
        q->event.revision = revision;
        return q;
}

static void node_event(struct tenure *t, enum tenure_event_type type,
                       const struct member_node *n, const char *reason, int64_t revision)
{
        struct tenure_node node = node_of(n);
        struct queued *q;

        if (!(t->follow & TENURE_NODES))
                return;
        q = change_new(t, type, &node, node_strings, ARRAY_SIZE(node_strings), reason,
                       revision);
        if (!q)
                return;
        q->node = node;
        strings_keep(q, &q->node, node_strings, ARRAY_SIZE(node_strings));
        q->event.node = &q->node;
        q->event.lease = node.lease;
        queue_event(t, q);
}

static void on_joined(const struct member_node *n, int64_t revision, void *userdata)
{
        node_event(userdata, TENURE_NODE_JOINED, n, "", revision);
}

static void on_left(const struct member_node *n, const char *reason, int64_t revision,
                    void *userdata)
{
        node_event(userdata, TENURE_NODE_LEFT, n, reason, revision);
}

static void on_changed(const struct member_node *n, int64_t revision, void *userdata)
{
        node_event(userdata, TENURE_NODE_CHANGED, n, "", revision);
}

/* ---- services ---- */

/* @r has the strings that @s does not contain as such. */
static struct tenure_service service_of(const struct service *s, struct service_record *r)
{
        service_read(s, r);
        return (struct tenure_service){.name = s->name,
                                       .node = s->node,
                                       .instance = s->instance,
                                       .address = r->address,
                                       .tags = r->tags,
                                       .unit = r->unit,
                                       .state = r->state,
                                       .since = r->since,
                                       .port = r->port,
                                       .lease = s->lease,
                                       .join_revision = s->create_revision,
                                       .revision = s->mod_revision};
}

static void service_event(struct tenure *t, enum tenure_event_type type,
                          const struct service *s, const char *reason, int64_t revision)
{
        struct service_record r;
        struct tenure_service service;
        struct queued *q;

        if (!(t->follow & TENURE_SERVICES))
                return;
        service = service_of(s, &r);
        q = change_new(t, type, &service, service_strings, ARRAY_SIZE(service_strings), reason,
                       revision);
        if (!q)
                return;
        q->service = service;
        strings_keep(q, &q->service, service_strings, ARRAY_SIZE(service_strings));
        q->event.service = &q->service;
        q->event.lease = service.lease;
        queue_event(t, q);
}

static void on_added(const struct service *s, int64_t revision, void *userdata)
{
        service_event(userdata, TENURE_SERVICE_ADDED, s, "", revision);
}

static void on_removed(const struct service *s, const char *reason, int64_t revision,
                       void *userdata)
{
        service_event(userdata, TENURE_SERVICE_REMOVED, s, reason, revision);
}

static void on_service_changed(const struct service *s, int64_t revision, void *userdata)
{
        service_event(userdata, TENURE_SERVICE_CHANGED, s, "", revision);
}

/* ---- ---- */

static void on_synced(void *userdata, bool synced)
{
        struct tenure *t = userdata;
        struct queued *q =
                t->follow ? queue_new(t, synced ? TENURE_SYNCED : TENURE_STALE, 0) : NULL;

        if (!q)
                return;
        q->event.revision = member_nodes(client_member(t->client))->revision;
        queue_event(t, q);
}

static void on_session(void *userdata, enum session_state state, const char *why)
{
        hold_on_session(userdata, state, why);
}

static void on_claimed(void *userdata, const struct node_record *by)
{
        (void) userdata;
        (void) by;
}

const struct member_events follow_events = {
        .members = {.joined = on_joined, .left = on_left, .changed = on_changed},
        .services = {.added = on_added, .removed = on_removed, .changed = on_service_changed},
        .session = on_session,
        .synced = on_synced,
        .claimed = on_claimed,
};

int tenure_follow(struct tenure *t, unsigned what)
{
        if (t->started)
                return tenure_fail(t, -EBUSY,
                                   "call tenure_follow() before tenure_start(), not after it");
        if (what & ~(unsigned) (TENURE_NODES | TENURE_SERVICES))
                return tenure_fail(t, -EINVAL,
                                   "tenure_follow() knows TENURE_NODES and TENURE_SERVICES, "
                                   "not %#x",
                                   what);
        t->follow = what;
        return 0;
}

/* ---- look-ups ---- */

static const struct tenure_node *found(const struct tenure *t, const struct member_node *n)
{
        /* The tie only lends memory for the answer; what is looked at does not change. */
        struct tenure *at = (struct tenure *) (uintptr_t) t;

        if (!n)
                return NULL;
        at->found_node = node_of(n);
        return &at->found_node;
}

static const struct membership *nodes(const struct tenure *t)
{
        return t->client && (t->follow & TENURE_NODES) ? member_nodes(client_member(t->client))
                                                       : NULL;
}

const struct tenure_node *tenure_find_node(const struct tenure *t, const char *name)
{
        const struct membership *m = nodes(t);

        return m ? found(t, membership_find(m, name)) : NULL;
}

const struct tenure_node *tenure_next_node(const struct tenure *t, const char *name)
{
        struct membership *m = (struct membership *) (uintptr_t) nodes(t);
        struct member_node key = {0}, *n;

        if (!m)
                return NULL;
        if (!name)
                return found(t, RB_MIN(member_tree, &m->nodes));
        snprintf(key.record.name, sizeof(key.record.name), "%s", name);
        n = RB_NFIND(member_tree, &m->nodes, &key);
        if (n && strcmp(n->record.name, key.record.name) == 0)
                n = RB_NEXT(member_tree, &m->nodes, n);
        return found(t, n);
}

size_t tenure_n_nodes(const struct tenure *t)
{
        const struct membership *m = nodes(t);

        return m ? m->n : 0;
}

const struct tenure_service *tenure_next_service(const struct tenure *t, const char *name,
                                                 const struct tenure_service *after)
{
        struct tenure *at = (struct tenure *) (uintptr_t) t;
        const struct services *v;
        struct service *s;

        if (!t->client || !(t->follow & TENURE_SERVICES))
                return NULL;
        v = member_services(client_member(t->client));
        s = after ? services_find(v, after->name, after->node, after->instance)
                  : services_from(v, name);
        if (after && s)
                s = services_next(s);
        if (!s || strcmp(s->name, name) != 0)
                return NULL;
        at->found_service = service_of(s, &at->found_record);
        return &at->found_service;
}

int tenure_tag(const char *tags, const char *name, char *value, size_t size)
{
        char n[TAGS_MAX], v[TAGS_MAX];
        const char *cursor = tags;

        while (tags_next(&cursor, n, v)) {
                if (strcmp(n, name) != 0)
                        continue;
                if (strlen(v) >= size)
                        return -ENOBUFS;
                memcpy(value, v, strlen(v) + 1);
                return (int) strlen(v);
        }
        return -ENOENT;
}
