#include "bus/units.h"

#include <bsd/sys/queue.h>
#include <stdio.h>

#include "base/log.h"
#include "bus/bus.h"
#include "bus/signals.h"

#define NAME "org.freedesktop.systemd1"
#define PATH "/org/freedesktop/systemd1"
#define MANAGER NAME ".Manager"
#define UNIT NAME ".Unit"
#define PROPERTIES "org.freedesktop.DBus.Properties"

#define RETRY (100 * NSEC_PER_MSEC)

struct followed {
        TAILQ_ENTRY(followed) entry;
        struct units *units;
        unsigned n_refs;
        char *name;         /* owned; the name by which it was asked for */
        char *path;         /* owned; the object path of the unit's primary name */
        sd_bus_slot *asked; /* the pending call; NULL: none */
        struct unit_state state;
        struct unit_state reported;
        bool known;
};
TAILQ_HEAD(followed_list, followed);

struct units {
        struct loop *loop;
        struct bus *bus; /* NULL: not connected, or no longer */
        bool broken;     /* to be freed from the timer, not from its own callback */
        struct loop_timer retry;
        struct followed_list list;
        unit_changed_fn changed;
        void *userdata;
};

static void retry_later(struct units *u)
{
        loop_timer_in(&u->retry, RETRY);
}

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

/* Reads "sv" entries up to the end of the array, and skips those that we do not know. */
static int read_properties(sd_bus_message *m, struct unit_state *s)
{
        int r = sd_bus_message_enter_container(m, 'a', "{sv}");

        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                const char *key, *text;
                const void *id;
                size_t n;

                r = sd_bus_message_read(m, "s", &key);
                if (r >= 0 && strcmp(key, "ActiveState") == 0) {
                        r = sd_bus_message_read(m, "v", "s", &text);
                        if (r >= 0)
                                s->active = strcmp(text, "active") == 0 ||
                                            strcmp(text, "reloading") == 0;
                } else if (r >= 0 && strcmp(key, "SubState") == 0) {
                        r = sd_bus_message_read(m, "v", "s", &text);
                        if (r >= 0)
                                snprintf(s->sub_state, sizeof(s->sub_state), "%s", text);
                } else if (r >= 0 && strcmp(key, "InvocationID") == 0) {
                        r = sd_bus_message_enter_container(m, 'v', "ay");
                        if (r >= 0)
                                r = sd_bus_message_read_array(m, 'y', &id, &n);
                        s->invocation[0] = '\0';
                        for (size_t i = 0; r >= 0 && i < min_of(n, (size_t) 16); i++)
                                snprintf(s->invocation + 2 * i, 3, "%02x",
                                         ((const uint8_t *) id)[i]);
                        if (r >= 0)
                                r = sd_bus_message_exit_container(m);
                } else if (r >= 0) {
                        r = sd_bus_message_skip(m, "v");
                }
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
        }
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

static int on_changed(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct units *u = userdata;
        const char *path = sd_bus_message_get_path(m), *interface;
        struct followed *f;

        (void) error;
        TAILQ_FOREACH (f, &u->list, entry) {
                /* Until the unit's whole state has arrived, a part of it says nothing. */
                if (!path || !f->path || f->asked || strcmp(f->path, path) != 0)
                        continue;
                if (sd_bus_message_rewind(m, 1) < 0 ||
                    sd_bus_message_read(m, "s", &interface) < 0 || strcmp(interface, UNIT) != 0)
                        return 0;
                if (read_properties(m, &f->state) >= 0)
                        tell(f);
        }
        return 0;
}

/* ---- questions ---- */

static int on_state(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct followed *f = userdata;
        struct unit_state fresh = {0};
        int r;

        (void) error;
        f->asked = sd_bus_slot_unref(f->asked);
        if (sd_bus_message_is_method_error(m, NULL))
                r = -sd_bus_message_get_errno(m);
        else
                r = read_properties(m, &fresh);
        if (r < 0) {
                log_warning("systemd: cannot learn the state of %s: %s.", f->name,
                            strerror(-r));
                retry_later(f->units);
                return 0;
        }
        f->state = fresh;
        tell(f);
        return 0;
}

static int on_loaded(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct followed *f = userdata;
        const char *path;
        int r;

        (void) error;
        f->asked = sd_bus_slot_unref(f->asked);
        if (sd_bus_message_is_method_error(m, NULL)) {
                log_warning("systemd: cannot follow %s: %s.", f->name,
                            sd_bus_message_get_error(m)->message);
                f->state = (struct unit_state){0};
                tell(f); /* as far as anybody knows, there is no such unit */
                return 0;
        }
        r = sd_bus_message_read(m, "o", &path);
        free(f->path);
        f->path = r < 0 ? NULL : strdup(path);
        if (!f->path)
                abort();
        r = sd_bus_call_method_async(bus_sd(f->units->bus), &f->asked, NAME, f->path,
                                     PROPERTIES, "GetAll", on_state, f, "s", UNIT);
        if (r < 0)
                retry_later(f->units);
        return 0;
}

static void ask(struct followed *f)
{
        struct units *u = f->units;
        int r;

        f->asked = sd_bus_slot_unref(f->asked);
        if (!u->bus || u->broken)
                return;
        r = sd_bus_call_method_async(bus_sd(u->bus), &f->asked, NAME, PATH, MANAGER, "LoadUnit",
                                     on_loaded, f, "s", f->name);
        if (r < 0)
                retry_later(u);
}

static int on_reloading(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct units *u = userdata;
        struct followed *f;
        int active;

        (void) error;
        /* Names may mean other units after a reload. */
        if (sd_bus_message_read(m, "b", &active) >= 0 && !active)
                TAILQ_FOREACH (f, &u->list, entry)
                        ask(f);
        return 0;
}

/* ---- the connection ---- */

static void hang_up(struct units *u)
{
        struct followed *f;

        TAILQ_FOREACH (f, &u->list, entry)
                f->asked = sd_bus_slot_unref(f->asked);
        u->bus = bus_free(u->bus);
        u->broken = false;
}

static void on_closed(void *userdata, int r)
{
        struct units *u = userdata;

        log_debug("The service manager closed the connection: %s.", strerror(-r));
        u->broken = true;
        retry_later(u);
}

static void connect(struct units *u)
{
        struct followed *f;
        int r;

        if (u->broken)
                hang_up(u);
        if (!u->bus) {
                r = bus_new_manager(&u->bus, u->loop, on_closed, u);
                if (r >= 0)
                        r = signals_add_manager(bus_sd(u->bus),
                                                "interface='" PROPERTIES
                                                "',member='PropertiesChanged'",
                                                on_changed, u);
                if (r >= 0)
                        r = signals_add_manager(bus_sd(u->bus),
                                                "path='" PATH "',interface='" MANAGER
                                                "',member='Reloading'",
                                                on_reloading, u);
                if (r < 0) {
                        log_warning("Cannot reach the service manager: %s.", strerror(-r));
                        hang_up(u);
                        return retry_later(u);
                }
        }
        TAILQ_FOREACH (f, &u->list, entry)
                if (!f->asked)
                        ask(f);
}

static void on_retry(struct loop_timer *t)
{
        connect(container_of(t, struct units, retry));
}

/* ---- ---- */

int units_new(struct units **ret, struct loop *l, unit_changed_fn changed, void *userdata)
{
        struct units *u = calloc(1, sizeof(*u));

        if (!u)
                return -ENOMEM;
        u->loop = l;
        u->changed = changed;
        u->userdata = userdata;
        TAILQ_INIT(&u->list);
        loop_timer_init(&u->retry, l, on_retry);
        *ret = u;
        return 0;
}

static void drop(struct followed *f)
{
        TAILQ_REMOVE(&f->units->list, f, entry);
        sd_bus_slot_unref(f->asked);
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
        loop_timer_disarm(&u->retry);
        bus_free(u->bus);
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
        TAILQ_INSERT_TAIL(&u->list, f, entry);
        if (u->bus && !u->broken)
                ask(f);
        else
                loop_timer_in(&u->retry, 0);
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
