#include "member/services.h"

static int service_cmp_name(const struct service *a, const struct service *b)
{
        int c = strcmp(a->name, b->name);

        if (c == 0)
                c = strcmp(a->node, b->node);
        return c != 0 ? c : strcmp(a->instance, b->instance);
}

static int service_cmp_node(const struct service *a, const struct service *b)
{
        int c = strcmp(a->node, b->node);

        return c != 0 ? c : service_cmp_name(a, b);
}

TREE_GENERATE(service_names, service, by_name, service_cmp_name)
TREE_GENERATE(service_nodes, service, by_node, service_cmp_node)

void services_init(struct services *v, const struct services_ops *ops, void *userdata)
{
        *v = (struct services){.ops = ops, .userdata = userdata};
        RB_INIT(&v->by_name);
        RB_INIT(&v->by_node);
}

static void drop(struct services *v, struct service *s)
{
        RB_REMOVE(service_names, &v->by_name, s);
        RB_REMOVE(service_nodes, &v->by_node, s);
        v->n--;
        free(s->value);
        free(s);
}

void services_fini(struct services *v)
{
        struct service *s;

        while ((s = RB_ROOT(&v->by_name)))
                drop(v, s);
}

struct service *services_find(const struct services *v, const char *name, const char *node,
                              const char *instance)
{
        struct service key = {.name = name, .node = node, .instance = instance};

        return RB_FIND(service_names, (struct service_names *) (uintptr_t) &v->by_name, &key);
}

struct service *services_from(const struct services *v, const char *name)
{
        struct service key = {.name = name, .node = "", .instance = ""};

        return RB_NFIND(service_names, (struct service_names *) (uintptr_t) &v->by_name, &key);
}

struct service *services_on(const struct services *v, const char *node)
{
        struct service key = {.name = "", .node = node, .instance = ""}, *s;

        s = RB_NFIND(service_nodes, (struct service_nodes *) (uintptr_t) &v->by_node, &key);
        return s && strcmp(s->node, node) == 0 ? s : NULL;
}

struct service *services_next(struct service *s)
{
        return RB_NEXT(service_names, NULL, s);
}

struct service *services_next_on(struct service *s)
{
        struct service *next = RB_NEXT(service_nodes, NULL, s);

        return next && strcmp(next->node, s->node) == 0 ? next : NULL;
}

void service_read(const struct service *s, struct service_record *ret)
{
        (void) !service_record_read(ret, s->value, s->value_len);
        /* The key determines the names, whatever the value says. */
        strcpy(ret->name, s->name);
        strcpy(ret->node, s->node);
        strcpy(ret->instance, s->instance);
}

static void remove_one(struct services *v, struct service *s, const char *reason,
                       int64_t revision)
{
        v->ops->removed(s, reason, revision, v->userdata);
        drop(v, s);
}

static struct service *service_new(const struct service_record *r)
{
        const char *parts[] = {r->name, r->node, r->instance};
        size_t len = strlen(r->name) + strlen(r->node) + strlen(r->instance) + 3;
        struct service *s = calloc(1, sizeof(*s) + len);
        char *at = s ? s->text : NULL;

        if (!s)
                return NULL;
        for (size_t i = 0; i < ARRAY_SIZE(parts); i++) {
                *(i == 0 ? &s->name : i == 1 ? &s->node : &s->instance) = at;
                at = stpcpy(at, parts[i]) + 1;
        }
        return s;
}

/* Whether the service was restarted so fast that nobody saw it down, or was deleted and put
 * again. */
static bool is_another_life(const struct service *s, const struct service_record *is,
                            int64_t create_revision)
{
        struct service_record was;

        if (s->create_revision != create_revision)
                return true;
        (void) !service_record_read(&was, s->value, s->value_len);
        return strcmp(was.invocation, is->invocation) != 0;
}

/* A copy of @value to keep; if it is larger than SERVICE_KEPT_MAX, its record @is, written
 * anew. */
static char *copy_of(struct view value, const struct service_record *is, size_t *ret_len)
{
        cleanup_(buf_fini) struct buf b = {0};
        char *copy;

        if (value.len > SERVICE_KEPT_MAX)
                service_record_write(is, &b);
        else
                buf_add(&b, value.p, value.len);
        copy = buf_error(&b) < 0 ? NULL : malloc(buf_len(&b) + 1);
        if (!copy)
                return NULL;
        if (buf_len(&b) > 0)
                memcpy(copy, buf_head(&b), buf_len(&b));
        copy[buf_len(&b)] = '\0';
        *ret_len = buf_len(&b);
        return copy;
}

int services_put(struct services *v, struct view key, struct view value, int64_t lease,
                 int64_t create_revision, int64_t mod_revision)
{
        struct service_record names, is;
        struct service *s;
        bool fresh = false;
        size_t len;
        char *copy;

        if (service_record_read_key(&names, key) < 0)
                return 0; /* no agent wrote this */
        s = services_find(v, names.name, names.node, names.instance);
        if (s && s->mod_revision == mod_revision && s->create_revision == create_revision &&
            s->lease == lease) {
                s->seen = true;
                return 0;
        }
        if (s || value.len > SERVICE_KEPT_MAX)
                (void) !service_record_read(&is, value.p, value.len);
        if (s && is_another_life(s, &is, create_revision)) {
                remove_one(v, s, "restarted", mod_revision);
                s = NULL;
        }
        copy = copy_of(value, &is, &len);
        if (!copy)
                return -ENOMEM;
        if (!s) {
                s = service_new(&names);
                if (!s) {
                        free(copy);
                        return -ENOMEM;
                }
                s->create_revision = create_revision;
                RB_INSERT(service_names, &v->by_name, s);
                RB_INSERT(service_nodes, &v->by_node, s);
                v->n++;
                fresh = true;
        }
        free(s->value);
        s->value = copy;
        s->value_len = len;
        s->lease = lease;
        s->mod_revision = mod_revision;
        s->seen = true;
        (fresh ? v->ops->added : v->ops->changed)(s, mod_revision, v->userdata);
        return 0;
}

void services_delete(struct services *v, struct view key, int64_t revision)
{
        struct service_record names;
        struct service *s;

        if (service_record_read_key(&names, key) < 0)
                return;
        s = services_find(v, names.name, names.node, names.instance);
        if (s)
                remove_one(v, s, "stopped", revision);
}

void services_node_left(struct services *v, const char *node, int64_t lease, const char *reason,
                        int64_t revision)
{
        struct service *s, *next;

        for (s = services_on(v, node); s; s = next) {
                next = services_next_on(s);
                if (s->lease == lease)
                        remove_one(v, s, reason, revision);
        }
}

void services_forget_revisions(struct services *v)
{
        struct service *s;

        RB_FOREACH (s, service_names, &v->by_name)
                s->mod_revision = 0;
}

void services_resync_begin(struct services *v)
{
        struct service *s;

        RB_FOREACH (s, service_names, &v->by_name)
                s->seen = false;
}

void services_resync_end(struct services *v, int64_t revision)
{
        struct service *s, *next;

        RB_FOREACH_SAFE (s, service_names, &v->by_name, next)
                if (!s->seen)
                        remove_one(v, s, "resync", revision);
}
