#include "bus/bound.h"

#include <limits.h>
#include <stdio.h>

#include "base/log.h"
#include "bus/bus.h"
#include "bus/cgroup.h"

#define NAME "org.freedesktop.systemd1"
#define PATH "/org/freedesktop/systemd1"
#define MANAGER NAME ".Manager"
#define UNITS PATH "/unit"
#define PROPERTIES "org.freedesktop.DBus.Properties"

#define RETRY (100 * NSEC_PER_MSEC)

/* A new unit may be bound; many come at a time. */
#define SETTLE (100 * NSEC_PER_MSEC)

/* An answer that has not come after this is not waited for, and the connection is made anew;
 * one that nobody answers at all is left alone longer and longer. */
#define ANSWER (2 * NSEC_PER_SEC)
#define ANSWER_MOST (32 * NSEC_PER_SEC)

#define UNITS_MAX 4096 /* of a set */

/* By these a stop goes on, src/core/unit-dependency-atom.c in systemd. */
static const char *const edges[] = {"BoundBy",    "RequiredBy",       "RequisiteOf",
                                    "ConsistsOf", "PropagatesStopTo", "SliceOf"};

struct set {
        struct bound_unit *units;
        size_t n, size;
};

/* What a unit of the walk is like; no answer yet. */
struct question {
        struct question *next;
        struct bound *bound;
        size_t unit; /* in the walk */
        sd_bus_slot *slot;
};

struct bound {
        struct loop *loop;
        const char *root;
        struct bus *bus; /* NULL: not connected, or not any more */
        bool broken;     /* to be freed from the timer, not from its own callback */
        struct loop_timer retry, settle, limit;
        nsec_t patience;    /* until the limit */
        char own[PATH_MAX]; /* our control group: never to be touched */
        struct set known;
        void (*changed)(void *userdata);
        void *userdata;

        struct set walk; /* the next one, while it is asked for */
        size_t asked;    /* of it, the first so many were asked for */
        struct question *open;
        bool walk_again;
        bool news; /* since it was last asked for */

        sd_bus_slot *order_slot;
        bool refused_told;

        sd_bus_slot *look_slot;
        void (*look_fn)(void *userdata, enum bound_sight s);
        void *look_userdata;
        bool look_walks; /* the answer is what the walk finds */
};

static void *fatal_null(void *p)
{
        if (!p)
                abort();
        return p;
}

static void set_clear(struct set *s)
{
        for (size_t i = 0; i < s->n; i++) {
                free(s->units[i].name);
                free(s->units[i].control_group);
                free(s->units[i].after);
        }
        free(s->units);
        *s = (struct set){0};
}

static struct bound_unit *set_find(const struct set *s, const char *name)
{
        for (size_t i = 0; i < s->n; i++)
                if (strcmp(s->units[i].name, name) == 0)
                        return &s->units[i];
        return NULL;
}

static void set_add(struct set *s, const char *name)
{
        if (set_find(s, name) || s->n == UNITS_MAX)
                return;
        if (s->n == s->size) {
                s->size = s->size ? 2 * s->size : 16;
                s->units = fatal_null(reallocarray(s->units, s->size, sizeof(*s->units)));
        }
        s->units[s->n++] = (struct bound_unit){.name = fatal_null(strdup(name))};
}

static bool is_down_state(const char *state)
{
        return strcmp(state, "inactive") == 0 || strcmp(state, "failed") == 0;
}

static bool is_kind(const char *unit, const char *suffix)
{
        size_t n = strlen(unit), k = strlen(suffix);

        return n > k && strcmp(unit + n - k, suffix) == 0;
}

static enum bound_sight sight(const struct set *s)
{
        for (size_t i = 0; i < s->n; i++)
                if (!s->units[i].is_down)
                        return BOUND_SOME;
        return s->n ? BOUND_NONE : BOUND_UNKNOWN;
}

static void answer(struct bound *b, enum bound_sight s)
{
        void (*fn)(void *userdata, enum bound_sight s) = b->look_fn;

        b->look_slot = sd_bus_slot_unref(b->look_slot);
        b->look_fn = NULL;
        b->look_walks = false;
        if (fn)
                fn(b->look_userdata, s);
}

static void arm(struct loop_timer *t, nsec_t in)
{
        if (loop_timer_arm(t, boot_add(boot_now(), in)) < 0)
                abort();
}

/* ---- the connection ---- */

static void close_question(struct question *q)
{
        struct question **at = &q->bound->open;

        while (*at != q)
                at = &(*at)->next;
        *at = q->next;
        sd_bus_slot_unref(q->slot);
        free(q);
}

static void hang_up(struct bound *b)
{
        while (b->open)
                close_question(b->open);
        b->order_slot = sd_bus_slot_unref(b->order_slot);
        b->look_slot = sd_bus_slot_unref(b->look_slot);
        set_clear(&b->walk);
        b->bus = bus_free(b->bus);
        b->broken = false;
        loop_timer_disarm(&b->limit);
}

static void on_closed(void *userdata, int r)
{
        struct bound *b = userdata;

        log_debug("The service manager closed the connection: %s.", strerror(-r));
        b->broken = true;
        arm(&b->retry, 0);
}

/* Something is waited for: not for ever. */
static void wait_for_answer(struct bound *b)
{
        if (!loop_timer_armed(&b->limit))
                arm(&b->limit, b->patience);
}

static void got_answer(struct bound *b)
{
        b->patience = ANSWER;
        if (b->open || b->order_slot || b->look_slot)
                arm(&b->limit, ANSWER);
        else
                loop_timer_disarm(&b->limit);
}

static sd_bus *connected(struct bound *b)
{
        return b->bus && !b->broken ? bus_sd(b->bus) : NULL;
}

/* ---- the walk: from the root on; whatever is found is asked for at once ---- */

static void walk_on(struct bound *b);
static void connect(struct bound *b);

/* Calls @fn with each string of a variant that holds an array of them. */
static int read_names(sd_bus_message *m,
                      void (*fn)(struct bound *b, size_t unit, const char *name),
                      struct bound *b, size_t unit)
{
        const char *name;
        int r = sd_bus_message_enter_container(m, 'v', "as");

        if (r >= 0)
                r = sd_bus_message_enter_container(m, 'a', "s");
        while (r >= 0 && (r = sd_bus_message_read(m, "s", &name)) > 0)
                fn(b, unit, name);
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

static void add_name(struct bound *b, size_t unit, const char *name)
{
        (void) unit;
        set_add(&b->walk, name);
}

static void add_after(struct bound *b, size_t unit, const char *name)
{
        struct bound_unit *u = &b->walk.units[unit];
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

/* One property; @m stands before its value. */
static int read_property(struct bound *b, size_t unit, sd_bus_message *m, const char *key,
                         char **slice)
{
        struct bound_unit *u = &b->walk.units[unit];
        const char *text;
        uint64_t usec;
        int r;

        if (is_edge(key))
                return read_names(m, add_name, b, unit);
        if (strcmp(key, "After") == 0)
                return read_names(m, add_after, b, unit);
        if (strcmp(key, "ActiveState") == 0) {
                r = sd_bus_message_read(m, "v", "s", &text);
                if (r >= 0)
                        u->is_down = is_down_state(text);
        } else if (strcmp(key, "ControlGroup") == 0) {
                r = sd_bus_message_read(m, "v", "s", &text);
                if (r >= 0 && *text) {
                        free(u->control_group);
                        u->control_group = fatal_null(strdup(text));
                }
        } else if (strcmp(key, "Slice") == 0) {
                r = sd_bus_message_read(m, "v", "s", &text);
                if (r >= 0) {
                        free(*slice);
                        *slice = fatal_null(strdup(text));
                }
        } else if (strcmp(key, "TimeoutStopUSec") == 0 || strcmp(key, "TimeoutUSec") == 0) {
                r = sd_bus_message_read(m, "v", "t", &usec);
                if (r >= 0)
                        u->stop_timeout = usec > INT64_MAX / NSEC_PER_USEC
                                                  ? INT64_MAX
                                                  : (nsec_t) usec * NSEC_PER_USEC;
        } else {
                r = sd_bus_message_skip(m, "v");
        }
        return r;
}

/* Who fences does not fence itself, nor what it is in, nor the service manager. */
static bool is_ours(const struct bound *b, const char *group)
{
        return strlen(group) < 2 || cgroup_is_within("/init.scope", group) ||
               cgroup_is_within(b->own, group);
}

static int read_unit(struct bound *b, size_t unit, sd_bus_message *m)
{
        const char *name = b->walk.units[unit].name, *key;
        char path[PATH_MAX];
        cleanup_(freep) char *slice = NULL;
        struct bound_unit *u;
        int r = sd_bus_message_enter_container(m, 'a', "{sv}");

        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                r = sd_bus_message_read(m, "s", &key);
                if (r >= 0)
                        r = read_property(b, unit, m, key, &slice);
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
        }
        if (r < 0)
                return r;
        u = &b->walk.units[unit];
        /* It gets one when it starts, and nobody may have the time to say which. */
        if (!u->control_group && (slice || is_kind(name, ".slice")) &&
            cgroup_of_unit(is_kind(name, ".slice") ? NULL : slice, name, path, sizeof(path)) ==
                    0)
                u->control_group = fatal_null(strdup(path));
        /* A target has no processes, and may be wanted by much else. */
        if (is_kind(name, ".target") && strcmp(name, b->root) != 0)
                u->is_down = true;
        if (u->control_group && is_ours(b, u->control_group)) {
                free(u->control_group);
                u->control_group = NULL;
                u->is_down = true;
        }
        return 0;
}

/* Directly, or after another one of the set that is. */
static void find_ordered(struct set *s)
{
        bool more = s->n > 0;

        if (more)
                s->units[0].is_after = true;
        while (more) {
                more = false;
                for (size_t i = 1; i < s->n; i++)
                        for (size_t k = 0; k < s->n && !s->units[i].is_after; k++) {
                                char line[512];

                                snprintf(line, sizeof(line), "\n%s\n", s->units[k].name);
                                if (s->units[k].is_after && s->units[i].after &&
                                    strstr(s->units[i].after, line))
                                        more = s->units[i].is_after = true;
                        }
        }
}

static bool is_other(const struct set *a, const struct set *b)
{
        if (a->n != b->n)
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

static void walk_end(struct bound *b)
{
        bool other;

        find_ordered(&b->walk);
        other = is_other(&b->walk, &b->known);
        set_clear(&b->known);
        b->known = b->walk;
        b->walk = (struct set){0};
        if (other)
                b->changed(b->userdata);
        if (b->walk_again) {
                b->walk_again = false;
                b->asked = 0;
                set_add(&b->walk, b->root);
                walk_on(b);
        } else if (b->look_walks) {
                answer(b, sight(&b->known));
        }
}

/* The unit, not who answers. */
static bool is_gone(sd_bus_message *m)
{
        return sd_bus_message_is_method_error(m, NAME ".NoSuchUnit") ||
               sd_bus_message_is_method_error(m, SD_BUS_ERROR_UNKNOWN_OBJECT);
}

static int on_unit(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct question *q = userdata;
        struct bound *b = q->bound;
        size_t unit = q->unit;
        int r = 0;

        (void) error;
        close_question(q);
        if (b->broken)
                return 0;
        got_answer(b);
        if (is_gone(m))
                b->walk.units[unit].is_down = true;
        else if (sd_bus_message_is_method_error(m, NULL))
                r = -sd_bus_message_get_errno(m);
        else
                r = read_unit(b, unit, m);
        if (r < 0) {
                log_debug("systemd: cannot tell what %s is: %s.", b->walk.units[unit].name,
                          strerror(-r));
                b->broken = true;
                arm(&b->retry, RETRY);
                return 0;
        }
        walk_on(b);
        return 0;
}

static int ask(struct bound *b, size_t unit)
{
        cleanup_(freep) char *path = NULL;
        struct question *q = fatal_null(malloc(sizeof(*q)));
        int r;

        *q = (struct question){.next = b->open, .bound = b, .unit = unit};
        b->open = q;
        r = sd_bus_path_encode(UNITS, b->walk.units[unit].name, &path);
        if (r >= 0)
                r = sd_bus_call_method_async(connected(b), &q->slot, NAME, path, PROPERTIES,
                                             "GetAll", on_unit, q, "s", "");
        if (r < 0)
                close_question(q);
        return r;
}

static void walk_on(struct bound *b)
{
        for (; b->asked < b->walk.n; b->asked++)
                if (!connected(b) || ask(b, b->asked) < 0) {
                        b->broken = true;
                        arm(&b->retry, RETRY);
                        return;
                }
        if (b->open)
                wait_for_answer(b);
        else
                walk_end(b);
}

/* One that is under way may have passed what is new. */
static void walk(struct bound *b)
{
        if (!connected(b))
                return;
        if (b->walk.n) {
                b->walk_again = true;
                return;
        }
        b->walk_again = false;
        b->asked = 0;
        set_add(&b->walk, b->root);
        walk_on(b);
}

static void on_settle(struct loop_timer *t)
{
        struct bound *b = container_of(t, struct bound, settle);

        if (!b->news)
                return;
        b->news = false;
        walk(b);
        arm(&b->settle, SETTLE);
}

static int on_news(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct bound *b = userdata;
        const char *unit;

        (void) error;
        /* Devices come in thousands, and are bound to nothing; what is known may come by our
         * asking for it. */
        if (sd_bus_message_is_signal(m, MANAGER, "UnitNew") &&
            sd_bus_message_read(m, "s", &unit) >= 0 &&
            (is_kind(unit, ".device") || set_find(&b->known, unit)))
                return 0;
        /* At once, for it may hang a moment later; and then once more for all that follows. */
        b->news = true;
        if (!loop_timer_armed(&b->settle))
                on_settle(&b->settle);
        return 0;
}

/* ---- the connection ---- */

static void connect(struct bound *b)
{
        int r;

        if (b->broken)
                hang_up(b);
        if (b->bus)
                return;
        r = bus_new_manager(&b->bus, b->loop, on_closed, b);
        if (r >= 0)
                r = sd_bus_match_signal(bus_sd(b->bus), NULL, NULL, PATH, MANAGER, "UnitNew",
                                        on_news, b);
        if (r >= 0)
                r = sd_bus_match_signal(bus_sd(b->bus), NULL, NULL, PATH, MANAGER, "Reloading",
                                        on_news, b);
        if (r < 0) {
                log_debug("Cannot reach the service manager: %s.", strerror(-r));
                hang_up(b);
                return arm(&b->retry, RETRY);
        }
        walk(b);
}

static void on_retry(struct loop_timer *t)
{
        struct bound *b = container_of(t, struct bound, retry);

        if (b->broken)
                hang_up(b);
        connect(b);
        answer(b, BOUND_UNKNOWN);
}

static void on_limit(struct loop_timer *t)
{
        struct bound *b = container_of(t, struct bound, limit);

        log_debug("The service manager has not answered for %d ms.",
                  (int) (b->patience / NSEC_PER_MSEC));
        b->patience = min_of(2 * b->patience, ANSWER_MOST);
        b->broken = true;
        on_retry(&b->retry);
}

/* ---- orders ---- */

static int on_ordered(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct bound *b = userdata;

        (void) error;
        b->order_slot = sd_bus_slot_unref(b->order_slot);
        got_answer(b);
        if (!sd_bus_message_is_method_error(m, NULL)) {
                b->refused_told = false;
        } else {
                log_full(b->refused_told ? LOG_DEBUG : LOG_ERR, NULL, "systemd: %s: %s.",
                         b->root, sd_bus_message_get_error(m)->message);
                b->refused_told = true;
        }
        return 0;
}

static void order(struct bound *b, const char *method, const char *mode)
{
        int r;

        /* The later one is what counts; one that is not answered is given again by the caller,
         * on the next connection at the latest. */
        b->order_slot = sd_bus_slot_unref(b->order_slot);
        connect(b);
        if (!connected(b))
                return;
        r = sd_bus_call_method_async(connected(b), &b->order_slot, NAME, PATH, MANAGER, method,
                                     on_ordered, b, "ss", b->root, mode);
        if (r < 0) {
                b->broken = true;
                return arm(&b->retry, RETRY);
        }
        wait_for_answer(b);
}

void bound_start(struct bound *b)
{
        order(b, "StartUnit", "replace");
}

void bound_stop(struct bound *b)
{
        order(b, "StopUnit", "replace-irreversibly");
}

/* ---- how they are ---- */

static int on_states(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct bound *b = userdata;
        const char *name, *state;
        bool active = false;
        int r;

        (void) error;
        b->look_slot = sd_bus_slot_unref(b->look_slot);
        got_answer(b);
        if (sd_bus_message_is_method_error(m, NULL))
                r = -sd_bus_message_get_errno(m);
        else
                r = sd_bus_message_enter_container(m, 'a', "(ssssssouso)");
        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'r', "ssssssouso")) > 0) {
                r = sd_bus_message_read(m, "ssss", &name, NULL, NULL, &state);
                if (r >= 0) {
                        struct bound_unit *u = set_find(&b->known, name);

                        if (u && (u->control_group || !is_kind(name, ".target") ||
                                  strcmp(name, b->root) == 0))
                                u->is_down = is_down_state(state);
                        if (strcmp(name, b->root) == 0)
                                active = strcmp(state, "active") == 0;
                        r = sd_bus_message_skip(m, "ssouso");
                }
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
        }
        if (r < 0) {
                log_debug("systemd: cannot tell how %s is: %s.", b->root, strerror(-r));
                answer(b, BOUND_UNKNOWN);
        } else if (active) {
                answer(b, BOUND_ACTIVE);
        } else if (sight(&b->known) == BOUND_SOME) {
                answer(b, BOUND_SOME);
        } else {
                /* What has been bound since the set was found counts as well. */
                b->look_walks = true;
                walk(b);
        }
        return 0;
}

/* All whose state counts. */
static int append_names(struct bound *b, sd_bus_message *m)
{
        int r = sd_bus_message_open_container(m, 'a', "s");

        for (size_t i = 0; r >= 0 && i < b->known.n; i++)
                if (i == 0 || !is_kind(b->known.units[i].name, ".target"))
                        r = sd_bus_message_append(m, "s", b->known.units[i].name);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

void bound_look(struct bound *b, void (*fn)(void *userdata, enum bound_sight s), void *userdata)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r = -ENOTCONN;

        b->look_fn = fn;
        b->look_userdata = userdata;
        b->look_slot = sd_bus_slot_unref(b->look_slot);
        b->look_walks = false;
        connect(b);
        if (connected(b) && !b->known.n) {
                b->look_walks = true;
                return walk(b);
        }
        if (connected(b))
                r = sd_bus_message_new_method_call(connected(b), &m, NAME, PATH, MANAGER,
                                                   "ListUnitsByNames");
        if (r >= 0)
                r = append_names(b, m);
        if (r >= 0)
                r = sd_bus_call_async(connected(b), &b->look_slot, m, on_states, b, UINT64_MAX);
        if (r >= 0)
                return wait_for_answer(b);
        if (!loop_timer_armed(&b->retry)) /* which answers */
                arm(&b->retry, RETRY);
}

/* ---- ---- */

int bound_new(struct bound **ret, struct loop *l, const char *root,
              void (*changed)(void *userdata), void *userdata)
{
        cleanup_(bound_freep) struct bound *b = calloc(1, sizeof(*b));

        if (!b)
                return -ENOMEM;
        b->loop = l;
        b->root = root;
        b->changed = changed;
        b->userdata = userdata;
        b->patience = ANSWER;
        loop_timer_init(&b->retry, l, on_retry);
        loop_timer_init(&b->settle, l, on_settle);
        loop_timer_init(&b->limit, l, on_limit);
        cgroup_own(b->own, sizeof(b->own));
        if (!bus_manager_is_there())
                return -ENOENT;
        connect(b);
        *ret = take_ptr(b);
        return 0;
}

struct bound *bound_free(struct bound *b)
{
        if (!b)
                return NULL;
        b->look_fn = NULL;
        hang_up(b);
        loop_timer_disarm(&b->retry);
        loop_timer_disarm(&b->settle);
        set_clear(&b->known);
        free(b);
        return NULL;
}

void bound_remember(struct bound *b, const char *name, const char *group)
{
        struct bound_unit *u;

        set_add(&b->known, name);
        u = set_find(&b->known, name);
        if (!u || u->control_group || !group || is_ours(b, group))
                return;
        u->control_group = fatal_null(strdup(group));
        u->is_after = true; /* nothing is said against it */
}

const char *bound_root(const struct bound *b)
{
        return b->root;
}

const struct bound_unit *bound_units(const struct bound *b, size_t *ret_n)
{
        *ret_n = b->known.n;
        return b->known.units;
}
