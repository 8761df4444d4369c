#include "bus/units.h"

#include <bsd/sys/queue.h>
#include <stdio.h>

#include "base/log.h"
#include "bus/manager.h"

struct followed {
        TAILQ_ENTRY(followed) entry;
        struct units *units;
        unsigned n_refs;
        char *name; /* owned; the name by which it was asked for */
        char *path; /* owned; the object path of the unit's primary name */
        struct manager_call call;
        struct unit_state state;
        struct unit_state reported;
        bool known;
};
TAILQ_HEAD(followed_list, followed);

struct units {
        struct manager manager;
        struct followed_list list;
        unit_changed_fn changed;
        void *userdata;
};

static void tell(struct followed *f)
{
        struct unit_state *s = &f->state;

        if (f->known && s->active == f->reported.active &&
            strcmp(s->sub_state, f->reported.sub_state) == 0 &&
            strcmp(s->invocation, f->reported.invocation) == 0)
                return;
        f->known = true;
        f->reported = *s;
        f->units->changed(f->units->userdata, f->name, &f->reported);
}

/* ---- what systemd says ---- */

static int read_property(void *userdata, const char *key, sd_bus_message *m)
{
        struct unit_state *s = userdata;
        const char *text;
        const void *id;
        size_t n;
        int r = 0;

        if (strcmp(key, "ActiveState") == 0) {
                r = sd_bus_message_read(m, "v", "s", &text);
                if (r >= 0)
                        s->active =
                                strcmp(text, "active") == 0 || strcmp(text, "reloading") == 0;
        } else if (strcmp(key, "SubState") == 0) {
                r = sd_bus_message_read(m, "v", "s", &text);
                if (r >= 0)
                        snprintf(s->sub_state, sizeof(s->sub_state), "%s", text);
        } else if (strcmp(key, "InvocationID") == 0) {
                r = sd_bus_message_enter_container(m, 'v', "ay");
                if (r >= 0)
                        r = sd_bus_message_read_array(m, 'y', &id, &n);
                s->invocation[0] = '\0';
                for (size_t i = 0; r >= 0 && i < min_of(n, (size_t) 16); i++)
                        snprintf(s->invocation + 2 * i, 3, "%02x", ((const uint8_t *) id)[i]);
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
        }
        return r;
}

static int on_changed(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct units *u = userdata;
        const char *path = sd_bus_message_get_path(m), *interface;
        struct followed *f;

        TAILQ_FOREACH (f, &u->list, entry) {
                /* Until the unit's whole state has arrived, a part of it says nothing. */
                if (!path || !f->path || manager_is_open(&f->call) ||
                    strcmp(f->path, path) != 0)
                        continue;
                if (sd_bus_message_rewind(m, 1) < 0 ||
                    sd_bus_message_read(m, "s", &interface) < 0 ||
                    strcmp(interface, SYSTEMD_UNIT) != 0)
                        return 0;
                if (manager_read_properties(m, read_property, &f->state) >= 0)
                        tell(f);
        }
        return 0;
}

/* ---- questions ---- */

/* If the connection has ended, everything is asked anew on the next one. */
static void on_state(struct manager_call *c, sd_bus_message *reply, int r)
{
        struct followed *f = container_of(c, struct followed, call);
        struct unit_state fresh = {0};

        if (!reply)
                return;
        if (r >= 0)
                r = manager_read_properties(reply, read_property, &fresh);
        if (r < 0)
                log_warning("systemd: cannot learn the state of %s: %s.", f->name,
                            manager_why(reply, r));
        f->state = r < 0 ? (struct unit_state){0} : fresh;
        tell(f);
}

static void on_loaded(struct manager_call *c, sd_bus_message *reply, int r)
{
        struct followed *f = container_of(c, struct followed, call);
        const char *path;

        if (!reply)
                return;
        if (r >= 0)
                r = sd_bus_message_read(reply, "o", &path);
        if (r < 0) {
                log_warning("systemd: cannot follow %s: %s.", f->name, manager_why(reply, r));
                f->state = (struct unit_state){0};
                tell(f); /* as far as anybody knows, there is no such unit */
                return;
        }
        free(f->path);
        f->path = strdup(path);
        if (!f->path)
                abort();
        manager_get_all(&f->units->manager, &f->call, on_state, f->path, SYSTEMD_UNIT);
}

static void ask(struct followed *f)
{
        manager_call(&f->units->manager, &f->call, on_loaded, "LoadUnit", "s", f->name);
}

static int on_reloading(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct units *u = userdata;
        struct followed *f;
        int active;

        /* Names may mean other units after a reload. */
        if (sd_bus_message_read(m, "b", &active) >= 0 && !active)
                TAILQ_FOREACH (f, &u->list, entry)
                        ask(f);
        return 0;
}

static void on_connected(struct manager *m)
{
        struct units *u = container_of(m, struct units, manager);
        struct followed *f;

        manager_watch(m, PROPERTIES_CHANGED, on_changed, u);
        manager_watch(m, MANAGER_SIGNAL("Reloading"), on_reloading, u);
        TAILQ_FOREACH (f, &u->list, entry)
                ask(f);
}

/* ---- ---- */

int units_new(struct units **ret, struct loop *l, unit_changed_fn changed, void *userdata)
{
        struct units *u = calloc(1, sizeof(*u));

        if (!u)
                return -ENOMEM;
        u->changed = changed;
        u->userdata = userdata;
        TAILQ_INIT(&u->list);
        manager_init(&u->manager, l, on_connected);
        *ret = u;
        return 0;
}

static void drop(struct followed *f)
{
        TAILQ_REMOVE(&f->units->list, f, entry);
        manager_cancel(&f->call);
        free(f->name);
        free(f->path);
        free(f);
}

struct units *units_free(struct units *u)
{
        struct followed *f;

        if (!u)
                return NULL;
        while ((f = TAILQ_FIRST(&u->list)))
                drop(f);
        manager_fini(&u->manager);
        free(u);
        return NULL;
}

static struct followed *find(const struct units *u, const char *unit)
{
        struct followed *f;

        TAILQ_FOREACH (f, &u->list, entry)
                if (strcmp(f->name, unit) == 0)
                        return f;
        return NULL;
}

int units_follow(struct units *u, const char *unit)
{
        struct followed *f = find(u, unit);

        if (f) {
                f->n_refs++;
                return 0;
        }
        f = calloc(1, sizeof(*f));
        if (!f || !(f->name = strdup(unit))) {
                free(f);
                return -ENOMEM;
        }
        f->units = u;
        f->n_refs = 1;
        ask(f);
        TAILQ_INSERT_TAIL(&u->list, f, entry);
        return 0;
}

void units_leave(struct units *u, const char *unit)
{
        struct followed *f = find(u, unit);

        if (f && --f->n_refs == 0)
                drop(f);
}

const struct unit_state *units_state(const struct units *u, const char *unit)
{
        const struct followed *f = find(u, unit);

        return f && f->known ? &f->reported : NULL;
}

bool units_known(const struct units *u)
{
        const struct followed *f;

        TAILQ_FOREACH (f, &u->list, entry)
                if (!f->known)
                        return false;
        return true;
}
