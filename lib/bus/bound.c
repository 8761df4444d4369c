#include "bus/bound.h"

#include <limits.h>
#include <stdio.h>

#include "base/log.h"
#include "bus/bound_set.h"
#include "bus/manager.h"
#include "bus/strays.h"
#include "cgroup/cgroup.h"

/* Wait this long after a new unit, which may be bound: many come at a time. */
#define SETTLE (100 * NSEC_PER_MSEC)

/* A question of the walk about one unit that is not answered yet. */
struct question {
        LIST_ENTRY(question) entry;
        struct bound *bound;
        size_t unit; /* its index in the walk */
        struct manager_call call;
};

struct bound {
        struct manager manager;
        const char *root;
        struct loop_timer settle;
        char own[PATH_MAX]; /* our own control group, which must never be touched */
        struct bound_set known;
        struct strays strays;
        void (*changed)(void *userdata);
        void (*settled)(void *userdata);
        void *userdata;

        struct bound_set walk; /* the next set, while we ask for it; empty: no walk */
        size_t asked;          /* the number of its units that we have asked about */
        LIST_HEAD(, question) open;
        bool news; /* since the walk began */

        struct manager_call order;
        bool starts;                      /* what the order does; otherwise it stops */
        void (*accepted)(void *userdata); /* called once the order is accepted; NULL: nobody
                                             wants to know */
        void *order_userdata;
        bool refusal_logged;

        /* Waits for the states of all units, then for a walk that began after them. */
        struct manager_call look;
        void (*look_fn)(void *userdata, enum bound_sight s);
        void *look_userdata;
};

static void answer(struct bound *b, enum bound_sight s)
{
        void (*fn)(void *userdata, enum bound_sight s) = b->look_fn;

        b->look_fn = NULL;
        if (fn)
                fn(b->look_userdata, s);
}

/* ---- main processes that are elsewhere ---- */

static bool is_in_a_unit(const struct bound *b, const char *group)
{
        for (size_t i = 0; i < b->known.n; i++)
                if (b->known.units[i].control_group &&
                    cgroup_is_within(group, b->known.units[i].control_group))
                        return true;
        return false;
}

/* Nothing is left there, or a unit that was read since has the group. */
static bool is_no_stray(const void *userdata, const char *group)
{
        return cgroup_is_populated(group) == 0 || is_in_a_unit(userdata, group);
}

/* Looks at @n of the units. Asks the kernel, which knows at once and in any case, and more
 * exactly than GetUnitByPID() does for what runs below a user's service manager. Returns
 * whether there is news. */
static bool find_strays(struct bound *b, const struct bound_unit *units, size_t n)
{
        bool news = strays_forget(&b->strays, is_no_stray, b);
        char group[PATH_MAX];

        for (const struct bound_unit *u = units; u < units + n; u++) {
                if (u->main_pid > 0 &&
                    cgroup_of_process(u->main_pid, group, sizeof(group)) == 0 &&
                    !is_in_a_unit(b, group))
                        news |= strays_add(&b->strays, u->name, group,
                                           bound_is_ours(group, b->own));
        }
        return news;
}

static void set_main(const struct bound_set *s, const char *unit, uint32_t pid)
{
        struct bound_unit *u = bound_set_find(s, unit);

        if (u)
                u->main_pid = (pid_t) pid;
}

/* Of the targets only the root counts (bound_set_read()). */
static void set_state(const struct bound *b, struct bound_unit *u, const char *state)
{
        if (u->control_group || !bound_is_kind(u->name, ".target") || u == b->known.units)
                u->is_down = bound_is_down_state(state);
}

struct report {
        const char *state; /* NULL: not among what has changed ... */
        uint32_t main_pid; /* ... and UINT32_MAX */
};

static int read_report(void *userdata, const char *key, sd_bus_message *m)
{
        struct report *to = userdata;

        if (strcmp(key, "ActiveState") == 0)
                return sd_bus_message_read(m, "v", "s", &to->state);
        return strcmp(key, "MainPID") == 0 ? sd_bus_message_read(m, "v", "u", &to->main_pid)
                                           : 0;
}

/* A unit that we know has another state or main process; or a scope begins or ends, to which a
 * session manager may have moved one. */
static int on_properties(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct bound *b = userdata;
        cleanup_(freep) char *unit = NULL;
        struct report now = {.main_pid = UINT32_MAX};
        struct bound_unit *u;
        bool was_down;

        if (sd_bus_path_decode(sd_bus_message_get_path(m), SYSTEMD_UNITS, &unit) <= 0)
                return 0;
        u = bound_set_find(&b->known, unit);
        if (u && (sd_bus_message_skip(m, "s") < 0 ||
                  manager_read_properties(m, read_report, &now) < 0))
                return 0;
        if (now.state) {
                was_down = u->is_down;
                set_state(b, u, now.state);
                if (!was_down && bound_set_sight(&b->known) == BOUND_NONE)
                        b->settled(b->userdata);
        }
        if (now.main_pid != UINT32_MAX) {
                /* The walk may have read the one before. */
                set_main(&b->known, unit, now.main_pid);
                set_main(&b->walk, unit, now.main_pid);
        }
        if ((now.main_pid != UINT32_MAX && find_strays(b, u, 1)) ||
            (bound_is_kind(unit, ".scope") && find_strays(b, b->known.units, b->known.n)))
                b->changed(b->userdata);
        return 0;
}

/* ---- the walk: from the root on; whatever is found is asked for at once ---- */

static void walk_on(struct bound *b);

static void close_question(struct question *q)
{
        LIST_REMOVE(q, entry);
        manager_cancel(&q->call);
        free(q);
}

static void walk_drop(struct bound *b)
{
        while (!LIST_EMPTY(&b->open))
                close_question(LIST_FIRST(&b->open));
        bound_set_clear(&b->walk);
}

/* A walk that is under way is dropped, since it may have passed what is new. */
static void walk_anew(struct bound *b)
{
        walk_drop(b);
        b->news = false;
        b->asked = 0;
        loop_timer_in(&b->settle, SETTLE);
        bound_set_add(&b->walk, b->root);
        walk_on(b);
}

/* A walk that is under way ends first, or it might never do so. */
static void walk_for_news(struct bound *b)
{
        if (b->news && !b->walk.n && !loop_timer_armed(&b->settle))
                walk_anew(b);
}

static void on_settle(struct loop_timer *t)
{
        walk_for_news(container_of(t, struct bound, settle));
}

static void look_has_walked(struct bound *b, enum bound_sight s)
{
        if (!manager_is_open(&b->look))
                answer(b, s);
}

static void walk_end(struct bound *b)
{
        bool other;

        bound_set_order(&b->walk);
        other = bound_set_is_other(&b->walk, &b->known);
        bound_set_clear(&b->known);
        b->known = b->walk;
        b->walk = (struct bound_set){0};
        if (find_strays(b, b->known.units, b->known.n) || other)
                b->changed(b->userdata);
        look_has_walked(b, bound_set_sight(&b->known));
        walk_for_news(b);
}

/* The unit is gone, not the service manager. */
static bool is_gone(sd_bus_message *m)
{
        return sd_bus_message_is_method_error(m, SYSTEMD ".NoSuchUnit") ||
               sd_bus_message_is_method_error(m, SD_BUS_ERROR_UNKNOWN_OBJECT);
}

static void on_unit(struct manager_call *c, sd_bus_message *reply, int r)
{
        struct question *q = container_of(c, struct question, call);
        struct bound *b = q->bound;
        size_t unit = q->unit;

        close_question(q);
        if (reply && is_gone(reply)) {
                b->walk.units[unit].is_down = true;
                r = 0;
        } else if (r >= 0) {
                r = bound_set_read(&b->walk, unit, reply, b->own);
        }
        if (r >= 0)
                return walk_on(b);
        log_debug("systemd: cannot learn what %s is: %s.", b->walk.units[unit].name,
                  strerror(-r));
        walk_drop(b);
        b->news = true;
        loop_timer_in(&b->settle, SETTLE);
        look_has_walked(b, BOUND_UNKNOWN);
}

static void ask(struct bound *b, size_t unit)
{
        cleanup_(freep) char *path = NULL;
        struct question *q = calloc(1, sizeof(*q));

        if (!q || sd_bus_path_encode(SYSTEMD_UNITS, b->walk.units[unit].name, &path) < 0)
                abort();
        q->bound = b;
        q->unit = unit;
        LIST_INSERT_HEAD(&b->open, q, entry);
        manager_get_all(&b->manager, &q->call, on_unit, path, "");
}

static void walk_on(struct bound *b)
{
        while (b->asked < b->walk.n)
                ask(b, b->asked++);
        if (LIST_EMPTY(&b->open))
                walk_end(b);
}

/* Until it is read again, the set keeps the unit, with its control group: it may be started at
 * any time. But a transient unit of that name may be in another one. */
static int on_removed(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        const struct bound *b = userdata;
        const struct bound_set *sets[] = {&b->known, &b->walk};
        const char *unit;

        if (sd_bus_message_read(m, "s", &unit) < 0)
                return 0;
        for (size_t i = 0; i < ARRAY_SIZE(sets); i++) {
                struct bound_unit *u = bound_set_find(sets[i], unit);

                if (u)
                        u->is_unloaded = true;
        }
        return 0;
}

/* There are thousands of devices, and none is bound to anything. A unit that we know may have
 * been loaded only because we asked for it. But a walk under way may have passed one that is
 * not in its set, and the set known before it may be older than this connection. */
static bool is_news(const struct bound *b, const char *unit)
{
        const struct bound_unit *u = bound_set_find(b->walk.n ? &b->walk : &b->known, unit);

        return !bound_is_kind(unit, ".device") && (!u || u->is_unloaded);
}

static int on_news(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct bound *b = userdata;
        const char *unit;

        if (sd_bus_message_is_signal(m, SYSTEMD_MANAGER, "UnitNew") &&
            sd_bus_message_read(m, "s", &unit) >= 0 && !is_news(b, unit))
                return 0;
        /* Ask at once, since systemd may hang a moment later; and then once more for all units
         * that follow. */
        b->news = true;
        walk_for_news(b);
        return 0;
}

static void on_connected(struct manager *m)
{
        struct bound *b = container_of(m, struct bound, manager);

        manager_watch(m, MANAGER_SIGNAL("UnitNew"), on_news, b);
        manager_watch(m, MANAGER_SIGNAL("UnitRemoved"), on_removed, b);
        manager_watch(m, MANAGER_SIGNAL("Reloading"), on_news, b);
        manager_watch(m, PROPERTIES_CHANGED ",path_namespace='" SYSTEMD_UNITS "'",
                      on_properties, b);
        walk_anew(b);
}

/* ---- orders ---- */

/* The unit has a job now, or had one: a unit that does not exist is not started again, and an
 * order that cannot be replaced is that of a shutdown. */
static bool is_accepted(sd_bus_message *m)
{
        return !sd_bus_message_is_method_error(m, NULL) || is_gone(m) ||
               sd_bus_message_is_method_error(m, SYSTEMD ".TransactionIsDestructive");
}

static void send_order(struct bound *b);

static void on_ordered(struct manager_call *c, sd_bus_message *reply, int r)
{
        struct bound *b = container_of(c, struct bound, order);

        if (!reply)
                return send_order(b);
        if (r >= 0) {
                b->refusal_logged = false;
        } else {
                log_full(b->refusal_logged ? LOG_DEBUG : LOG_ERR, NULL, "systemd: %s: %s.",
                         b->root, manager_why(reply, r));
                b->refusal_logged = true;
        }
        if (b->accepted && is_accepted(reply))
                b->accepted(b->order_userdata);
}

/* Only the later order counts. */
static void send_order(struct bound *b)
{
        manager_call(&b->manager, &b->order, on_ordered, b->starts ? "StartUnit" : "StopUnit",
                     "ss", b->root, b->starts ? "replace" : "replace-irreversibly");
}

static void order(struct bound *b, bool starts, void (*accepted)(void *userdata),
                  void *userdata)
{
        bool is_given = manager_is_open(&b->order) && b->starts == starts;

        b->starts = starts;
        b->accepted = accepted;
        b->order_userdata = userdata;
        if (!is_given)
                send_order(b);
}

void bound_start(struct bound *b)
{
        order(b, true, NULL, NULL);
}

void bound_stop(struct bound *b, void (*accepted)(void *userdata), void *userdata)
{
        order(b, false, accepted, userdata);
}

/* ---- how they are ---- */

static void on_states(struct manager_call *c, sd_bus_message *reply, int r)
{
        struct bound *b = container_of(c, struct bound, look);
        struct manager_unit unit;
        bool active = false, is_root = true; /* the first, under whichever of its names */

        for (; r >= 0 && (r = manager_next_unit(reply, &unit)) > 0; is_root = false) {
                struct bound_unit *u =
                        is_root ? b->known.units : bound_set_find(&b->known, unit.name);

                if (u)
                        set_state(b, u, unit.active_state);
                if (is_root)
                        active = strcmp(unit.active_state, "active") == 0;
        }
        if (r < 0) {
                log_debug("systemd: cannot learn the state of %s: %s.", b->root, strerror(-r));
                answer(b, BOUND_UNKNOWN);
        } else if (active) {
                answer(b, BOUND_ACTIVE);
        } else if (bound_set_sight(&b->known) == BOUND_SOME) {
                answer(b, BOUND_SOME);
        } else {
                /* What has been bound since the set was found counts as well. */
                walk_anew(b);
        }
}

void bound_look(struct bound *b, void (*fn)(void *userdata, enum bound_sight s), void *userdata)
{
        cleanup_(freep) char **names = NULL;
        size_t n = 0;

        b->look_fn = fn;
        b->look_userdata = userdata;
        manager_connect(&b->manager); /* before a walk begins: on_connected() begins one, too */
        if (!b->known.n) {
                manager_cancel(&b->look);
                return walk_anew(b);
        }
        names = calloc(b->known.n + 1, sizeof(*names));
        if (!names)
                abort();
        for (size_t i = 0; i < b->known.n; i++)
                if (i == 0 || !bound_is_kind(b->known.units[i].name, ".target"))
                        names[n++] = b->known.units[i].name;
        manager_list(&b->manager, &b->look, on_states, names);
}

/* ---- ---- */

int bound_new(struct bound **ret, struct loop *l, const char *root,
              void (*changed)(void *userdata), void (*settled)(void *userdata), void *userdata)
{
        cleanup_(bound_freep) struct bound *b = calloc(1, sizeof(*b));

        if (!b)
                return -ENOMEM;
        b->root = root;
        b->changed = changed;
        b->settled = settled;
        b->userdata = userdata;
        manager_init(&b->manager, l, on_connected);
        LIST_INIT(&b->open);
        loop_timer_init(&b->settle, l, on_settle);
        cgroup_own(b->own, sizeof(b->own));
        if (!bus_manager_is_there())
                return -ENOENT;
        *ret = take_ptr(b);
        return 0;
}

void bound_follow(struct bound *b)
{
        manager_connect(&b->manager);
}

struct bound *bound_free(struct bound *b)
{
        if (!b)
                return NULL;
        walk_drop(b);
        manager_fini(&b->manager);
        loop_timer_disarm(&b->settle);
        bound_set_clear(&b->known);
        strays_clear(&b->strays);
        free(b);
        return NULL;
}

void bound_remember(struct bound *b, const char *name, const char *group)
{
        struct bound_unit *u;

        bound_set_add(&b->known, name);
        u = bound_set_find(&b->known, name);
        if (!u)
                return;
        u->is_after = true; /* unless something is found that contradicts it */
        if (u->control_group && group && !cgroup_is_within(group, u->control_group))
                strays_add(&b->strays, name, group, bound_is_ours(group, b->own));
        if (u->control_group || !group || bound_is_ours(group, b->own))
                return;
        u->control_group = strdup(group);
        if (!u->control_group)
                abort();
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

bool bound_has_more(const struct bound *b)
{
        return b->known.is_full;
}

const struct bound_stray *bound_strays(const struct bound *b, size_t *ret_n)
{
        *ret_n = b->strays.n;
        return b->strays.all;
}
