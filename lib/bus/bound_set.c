#include "bus/bound_set.h"

#include <limits.h>
#include <stdio.h>

#include "bus/manager.h"
#include "cgroup/cgroup.h"

static void *fatal_null(void *p)
{
        if (!p)
                abort();
        return p;
}

void bound_set_clear(struct bound_set *s)
{
        for (size_t i = 0; i < s->n; i++) {
                free(s->units[i].name);
                free(s->units[i].control_group);
                free(s->units[i].after);
        }
        free(s->units);
        *s = (struct bound_set){0};
}

struct bound_unit *bound_set_find(const struct bound_set *s, const char *name)
{
        for (size_t i = 0; i < s->n; i++)
                if (strcmp(s->units[i].name, name) == 0)
                        return &s->units[i];
        return NULL;
}

void bound_set_add(struct bound_set *s, const char *name)
{
        if (bound_set_find(s, name))
                return;
        if (s->n == BOUND_MAX) {
                s->is_full = true;
                return;
        }
        if (s->n == s->size) {
                s->size = s->size ? 2 * s->size : 16;
                s->units = fatal_null(reallocarray(s->units, s->size, sizeof(*s->units)));
        }
        s->units[s->n++] = (struct bound_unit){.name = fatal_null(strdup(name))};
}

bool bound_is_down_state(const char *state)
{
        return strcmp(state, "inactive") == 0 || strcmp(state, "failed") == 0;
}

enum bound_sight bound_set_sight(const struct bound_set *s)
{
        for (size_t i = 0; i < s->n; i++)
                if (!s->units[i].is_down)
                        return BOUND_SOME;
        return s->n ? BOUND_NONE : BOUND_UNKNOWN;
}

/* Dependencies along which systemd propagates a stop (src/core/unit-dependency-atom.c). */
static const char *const edges[] = {"BoundBy",    "RequiredBy",       "RequisiteOf",
                                    "ConsistsOf", "PropagatesStopTo", "SliceOf"};

/* Calls @fn with each string in a variant that holds an array of strings. */
static int read_names(sd_bus_message *m,
                      void (*fn)(struct bound_set *s, size_t unit, const char *name),
                      struct bound_set *s, size_t unit)
{
        const char *name;
        int r = sd_bus_message_enter_container(m, 'v', "as");

        if (r >= 0)
                r = sd_bus_message_enter_container(m, 'a', "s");
        while (r >= 0 && (r = sd_bus_message_read(m, "s", &name)) > 0)
                fn(s, unit, name);
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

static void add_name(struct bound_set *s, size_t unit unused_, const char *name)
{
        bound_set_add(s, name);
}

static void add_after(struct bound_set *s, size_t unit, const char *name)
{
        struct bound_unit *u = &s->units[unit];
        size_t n = u->after ? strlen(u->after) : 0;

        u->after = fatal_null(realloc(u->after, n + strlen(name) + 3));
        sprintf(u->after + n, "%s%s\n", n ? "" : "\n", name);
}

static bool is_edge(const char *key)
{
        for (size_t i = 0; i < ARRAY_SIZE(edges); i++)
                if (strcmp(key, edges[i]) == 0)
                        return true;
        return false;
}

struct reading {
        struct bound_set *set;
        size_t unit;
        char *slice; /* owned */
};

static int read_property(void *userdata, const char *key, sd_bus_message *m)
{
        struct reading *to = userdata;
        struct bound_unit *u = &to->set->units[to->unit];
        const char *text;
        uint32_t pid;
        uint64_t usec;
        int r = 0;

        if (is_edge(key))
                return read_names(m, add_name, to->set, to->unit);
        if (strcmp(key, "After") == 0)
                return read_names(m, add_after, to->set, to->unit);
        /* The root may have been given by an alias; everybody else names it by this name. */
        if (strcmp(key, "Id") == 0 && to->unit == 0) {
                r = sd_bus_message_read(m, "v", "s", &text);
                if (r >= 0) {
                        free(u->name);
                        u->name = fatal_null(strdup(text));
                }
        } else if (strcmp(key, "ActiveState") == 0) {
                r = sd_bus_message_read(m, "v", "s", &text);
                if (r >= 0)
                        u->is_down = bound_is_down_state(text);
        } else if (strcmp(key, "ControlGroup") == 0) {
                r = sd_bus_message_read(m, "v", "s", &text);
                if (r >= 0 && *text) {
                        free(u->control_group);
                        u->control_group = fatal_null(strdup(text));
                }
        } else if (strcmp(key, "Slice") == 0) {
                r = sd_bus_message_read(m, "v", "s", &text);
                if (r >= 0) {
                        free(to->slice);
                        to->slice = fatal_null(strdup(text));
                }
        } else if (strcmp(key, "MainPID") == 0) {
                r = sd_bus_message_read(m, "v", "u", &pid);
                if (r >= 0)
                        u->main_pid = (pid_t) pid;
        } else if (strcmp(key, "TimeoutStopUSec") == 0 || strcmp(key, "TimeoutUSec") == 0) {
                r = sd_bus_message_read(m, "v", "t", &usec);
                if (r >= 0)
                        u->stop_timeout = usec > INT64_MAX / NSEC_PER_USEC
                                                  ? INT64_MAX
                                                  : (nsec_t) usec * NSEC_PER_USEC;
        }
        return r;
}

bool bound_is_ours(const char *group, const char *own)
{
        return strlen(group) < 2 || cgroup_is_within("/init.scope", group) ||
               cgroup_is_within(own, group);
}

int bound_set_read(struct bound_set *s, size_t unit, sd_bus_message *m, const char *own)
{
        char path[PATH_MAX];
        struct reading to = {.set = s, .unit = unit};
        int r = manager_read_properties(m, read_property, &to);
        cleanup_(freep) char *slice = to.slice;
        struct bound_unit *u;
        const char *name;

        if (r < 0)
                return r;
        u = &s->units[unit];
        name = u->name;
        /* It gets a control group when it starts, and the manager may then be too busy to
         * report which. */
        if (!u->control_group && (slice || bound_is_kind(name, ".slice")) &&
            cgroup_of_unit(bound_is_kind(name, ".slice") ? NULL : slice, name, path,
                           sizeof(path)) == 0)
                u->control_group = fatal_null(strdup(path));
        /* A target has no processes, and many other units may want it. */
        if (bound_is_kind(name, ".target") && unit != 0)
                u->is_down = true;
        if (u->control_group && bound_is_ours(u->control_group, own)) {
                free(u->control_group);
                u->control_group = NULL;
                u->is_down = true;
        }
        return 0;
}

void bound_set_order(struct bound_set *s)
{
        cleanup_(freep) size_t *found = fatal_null(calloc(s->n + 1, sizeof(*found)));
        size_t n = s->n > 0; /* the root, then all that are bound to it */

        if (n > 0)
                s->units[0].is_after = true;
        for (size_t k = 0; k < n && n < s->n; k++) {
                char line[512];

                snprintf(line, sizeof(line), "\n%s\n", s->units[found[k]].name);
                for (size_t i = 1; i < s->n; i++)
                        if (!s->units[i].is_after && s->units[i].after &&
                            strstr(s->units[i].after, line)) {
                                s->units[i].is_after = true;
                                found[n++] = i;
                        }
        }
}

bool bound_set_is_other(const struct bound_set *a, const struct bound_set *b)
{
        if (a->n != b->n || a->is_full != b->is_full)
                return true;
        for (size_t i = 0; i < a->n; i++)
                if (strcmp(a->units[i].name, b->units[i].name) != 0 ||
                    a->units[i].is_after != b->units[i].is_after ||
                    a->units[i].stop_timeout != b->units[i].stop_timeout ||
                    strcmp(a->units[i].control_group ? a->units[i].control_group : "",
                           b->units[i].control_group ? b->units[i].control_group : "") != 0)
                        return true;
        return false;
}
