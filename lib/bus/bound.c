#include "bus/bound.h"

#include <limits.h>
#include <stdio.h>

#include "base/log.h"
#include "bus/bound_set.h"
#include "bus/bus.h"
#include "bus/signals.h"
#include "bus/strays.h"
#include "cgroup/cgroup.h"

#define NAME "org.freedesktop.systemd1"
#define PATH "/org/freedesktop/systemd1"
#define MANAGER NAME ".Manager"
#define UNITS PATH "/unit"
#define PROPERTIES "org.freedesktop.DBus.Properties"
#define FROM_MANAGER "path='" PATH "',interface='" MANAGER "',member="

#define RETRY (100 * NSEC_PER_MSEC)

/* Wait this long after a new unit, which may be bound: many come at a time. */
#define SETTLE (100 * NSEC_PER_MSEC)

/* An answer that takes longer is given up, and the connection is made anew. If nobody answers
 * at all, we ask less and less often. */
#define ANSWER (2 * NSEC_PER_SEC)
#define ANSWER_MOST (32 * NSEC_PER_SEC)

/* A question of the walk about one unit that is not answered yet. */
struct question {
        struct question *next;
        struct bound *bound;
        size_t unit; /* its index in the walk */
        sd_bus_slot *slot;
};

struct bound {
        struct loop *loop;
        const char *root;
        struct bus *bus; /* NULL: not connected, or no longer */
        bool broken;     /* to be freed from the timer, not from its own callback */
        struct loop_timer retry, settle, limit;
        nsec_t patience;    /* how long we wait for an answer */
        char own[PATH_MAX]; /* our own control group, which must never be touched */
        struct bound_set known;
        struct strays strays;
        void (*changed)(void *userdata);
        void *userdata;

        struct bound_set walk; /* the next set, while we ask for it */
        size_t asked;          /* the number of its units that we have asked about */
        struct question *open;
        bool walk_again;
        bool news; /* since we last asked */

        sd_bus_slot *order_slot;
        const char *ordered;              /* the method that the order called */
        void (*accepted)(void *userdata); /* called once the order is accepted; NULL: nobody
                                             wants to know */
        void *order_userdata;
        bool refusal_logged;

        sd_bus_slot *look_slot;
        void (*look_fn)(void *userdata, enum bound_sight s);
        void *look_userdata;
        bool look_walks; /* the look ends with the walk, not with an answer of its own */
};

static void answer(struct bound *b, enum bound_sight s)
{
        void (*fn)(void *userdata, enum bound_sight s) = b->look_fn;

        b->look_slot = sd_bus_slot_unref(b->look_slot);
        b->look_fn = NULL;
        b->look_walks = false;
        if (fn)
                fn(b->look_userdata, s);
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
        bound_set_clear(&b->walk);
        b->bus = bus_free(b->bus);
        b->broken = false;
        loop_timer_disarm(&b->limit);
}

static void on_closed(void *userdata, int r)
{
        struct bound *b = userdata;

        log_debug("The service manager closed the connection: %s.", strerror(-r));
        b->broken = true;
        loop_timer_in(&b->retry, 0);
}

/* Starts the timer: we do not wait for an answer for ever. */
static void wait_for_answer(struct bound *b)
{
        if (!loop_timer_armed(&b->limit))
                loop_timer_in(&b->limit, b->patience);
}

static void got_answer(struct bound *b)
{
        b->patience = ANSWER;
        if (b->open || b->order_slot || b->look_slot)
                loop_timer_in(&b->limit, ANSWER);
        else
                loop_timer_disarm(&b->limit);
}

static sd_bus *connected(struct bound *b)
{
        return b->bus && !b->broken ? bus_sd(b->bus) : NULL;
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

/* Asks the kernel, which knows at once and in any case, and more exactly than GetUnitByPID()
 * does for what runs below a user's service manager. Returns whether there is news. */
static bool find_strays(struct bound *b)
{
        bool news = strays_forget(&b->strays, is_no_stray, b);
        char group[PATH_MAX];

        for (size_t i = 0; i < b->known.n; i++) {
                const struct bound_unit *u = &b->known.units[i];

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

/* Reads MainPID from what PropertiesChanged has. Returns 1, 0 if it is not there, or a negative
 * errno. */
static int read_main(sd_bus_message *m, uint32_t *ret)
{
        const char *key;
        bool found = false;
        int r = sd_bus_message_skip(m, "s");

        if (r >= 0)
                r = sd_bus_message_enter_container(m, 'a', "{sv}");
        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                r = sd_bus_message_read(m, "s", &key);
                if (r < 0)
                        break;
                if (strcmp(key, "MainPID") == 0) {
                        r = sd_bus_message_read(m, "v", "u", ret);
                        found = r >= 0;
                } else {
                        r = sd_bus_message_skip(m, "v");
                }
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
        }
        return r < 0 ? r : found;
}

/* A unit that we know has another main process; or a scope begins or ends, to which a session
 * manager may have moved one. */
static int on_properties(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct bound *b = userdata;
        cleanup_(freep) char *unit = NULL;
        uint32_t pid;

        (void) error;
        if (sd_bus_path_decode(sd_bus_message_get_path(m), UNITS, &unit) <= 0)
                return 0;
        if (!bound_is_kind(unit, ".scope")) {
                if (!bound_set_find(&b->known, unit) || read_main(m, &pid) <= 0)
                        return 0;
                /* The walk may have read the one before. */
                set_main(&b->known, unit, pid);
                set_main(&b->walk, unit, pid);
        }
        if (find_strays(b))
                b->changed(b->userdata);
        return 0;
}

/* ---- the walk: from the root on; whatever is found is asked for at once ---- */

static void walk_on(struct bound *b);
static void connect(struct bound *b);

static void walk_end(struct bound *b)
{
        bool other;

        bound_set_order(&b->walk);
        other = bound_set_is_other(&b->walk, &b->known);
        bound_set_clear(&b->known);
        b->known = b->walk;
        b->walk = (struct bound_set){0};
        if (find_strays(b) || other)
                b->changed(b->userdata);
        if (b->walk_again) {
                b->walk_again = false;
                b->asked = 0;
                bound_set_add(&b->walk, b->root);
                walk_on(b);
        } else if (b->look_walks) {
                answer(b, bound_set_sight(&b->known));
        }
}

/* The unit is gone, not the service manager. */
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
                r = bound_set_read(&b->walk, unit, m, b->own);
        if (r < 0) {
                log_debug("systemd: cannot learn what %s is: %s.", b->walk.units[unit].name,
                          strerror(-r));
                b->broken = true;
                loop_timer_in(&b->retry, RETRY);
                return 0;
        }
        walk_on(b);
        return 0;
}

static int ask(struct bound *b, size_t unit)
{
        cleanup_(freep) char *path = NULL;
        struct question *q = calloc(1, sizeof(*q));
        int r;

        if (!q)
                return -ENOMEM;
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
                        loop_timer_in(&b->retry, RETRY);
                        return;
                }
        if (b->open)
                wait_for_answer(b);
        else
                walk_end(b);
}

/* A walk that is under way may have passed what is new. */
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
        bound_set_add(&b->walk, b->root);
        walk_on(b);
}

static void on_settle(struct loop_timer *t)
{
        struct bound *b = container_of(t, struct bound, settle);

        if (!b->news)
                return;
        b->news = false;
        walk(b);
        loop_timer_in(&b->settle, SETTLE);
}

/* Until it is read again, the set keeps the unit, with its control group: it may be started at
 * any time. But a transient unit of that name may be in another one. */
static int on_removed(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        const struct bound *b = userdata;
        const struct bound_set *sets[] = {&b->known, &b->walk};
        const char *unit;

        (void) error;
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

static int on_news(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct bound *b = userdata;
        const char *unit;

        (void) error;
        if (sd_bus_message_is_signal(m, MANAGER, "UnitNew") &&
            sd_bus_message_read(m, "s", &unit) >= 0 && !is_news(b, unit))
                return 0;
        /* Ask at once, since systemd may hang a moment later; and then once more for all units
         * that follow. */
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
                r = signals_add_manager(bus_sd(b->bus), FROM_MANAGER "'UnitNew'", on_news, b);
        if (r >= 0)
                r = signals_add_manager(bus_sd(b->bus), FROM_MANAGER "'UnitRemoved'",
                                        on_removed, b);
        if (r >= 0)
                r = signals_add_manager(bus_sd(b->bus), FROM_MANAGER "'Reloading'", on_news, b);
        if (r >= 0)
                r = signals_add_manager(bus_sd(b->bus),
                                        "interface='" PROPERTIES "',member="
                                        "'PropertiesChanged',path_namespace='" UNITS "'",
                                        on_properties, b);
        if (r < 0) {
                log_debug("Cannot reach the service manager: %s.", strerror(-r));
                hang_up(b);
                return loop_timer_in(&b->retry, RETRY);
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

/* The unit has a job now, or had one: a unit that does not exist is not started again, and an
 * order that cannot be replaced is that of a shutdown. */
static bool is_accepted(sd_bus_message *m)
{
        return !sd_bus_message_is_method_error(m, NULL) || is_gone(m) ||
               sd_bus_message_is_method_error(m, NAME ".TransactionIsDestructive");
}

static int on_ordered(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct bound *b = userdata;

        (void) error;
        b->order_slot = sd_bus_slot_unref(b->order_slot);
        got_answer(b);
        if (!sd_bus_message_is_method_error(m, NULL)) {
                b->refusal_logged = false;
        } else {
                log_full(b->refusal_logged ? LOG_DEBUG : LOG_ERR, NULL, "systemd: %s: %s.",
                         b->root, sd_bus_message_get_error(m)->message);
                b->refusal_logged = true;
        }
        if (b->accepted && is_accepted(m))
                b->accepted(b->order_userdata);
        return 0;
}

static void order(struct bound *b, const char *method, const char *mode,
                  void (*accepted)(void *userdata), void *userdata)
{
        int r;

        b->accepted = accepted;
        b->order_userdata = userdata;
        /* On this connection the order is still unanswered; the next connection repeats it. */
        if (b->order_slot && connected(b) && strcmp(b->ordered, method) == 0)
                return;
        /* Only the later order counts. */
        b->order_slot = sd_bus_slot_unref(b->order_slot);
        b->ordered = method;
        connect(b);
        if (!connected(b))
                return;
        r = sd_bus_call_method_async(connected(b), &b->order_slot, NAME, PATH, MANAGER, method,
                                     on_ordered, b, "ss", b->root, mode);
        if (r < 0) {
                b->broken = true;
                return loop_timer_in(&b->retry, RETRY);
        }
        wait_for_answer(b);
}

void bound_start(struct bound *b)
{
        order(b, "StartUnit", "replace", NULL, NULL);
}

void bound_stop(struct bound *b, void (*accepted)(void *userdata), void *userdata)
{
        order(b, "StopUnit", "replace-irreversibly", accepted, userdata);
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
                        struct bound_unit *u = bound_set_find(&b->known, name);

                        if (u && (u->control_group || !bound_is_kind(name, ".target") ||
                                  strcmp(name, b->root) == 0))
                                u->is_down = bound_is_down_state(state);
                        if (strcmp(name, b->root) == 0)
                                active = strcmp(state, "active") == 0;
                        r = sd_bus_message_skip(m, "ssouso");
                }
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
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
                b->look_walks = true;
                walk(b);
        }
        return 0;
}

/* Appends all units whose state counts. */
static int append_names(struct bound *b, sd_bus_message *m)
{
        int r = sd_bus_message_open_container(m, 'a', "s");

        for (size_t i = 0; r >= 0 && i < b->known.n; i++)
                if (i == 0 || !bound_is_kind(b->known.units[i].name, ".target"))
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
        if (!loop_timer_armed(&b->retry)) /* whose handler answers */
                loop_timer_in(&b->retry, RETRY);
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
        *ret = take_ptr(b);
        return 0;
}

void bound_follow(struct bound *b)
{
        connect(b);
}

struct bound *bound_free(struct bound *b)
{
        if (!b)
                return NULL;
        b->look_fn = NULL;
        hang_up(b);
        loop_timer_disarm(&b->retry);
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
        u->is_after = true; /* nothing speaks against it */
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

const struct bound_stray *bound_strays(const struct bound *b, size_t *ret_n)
{
        *ret_n = b->strays.n;
        return b->strays.all;
}
