#include "lists.h"

#include <stdio.h>

#include "base/log.h"

#define OBJECT_MANAGER "org.freedesktop.DBus.ObjectManager"

/* A piece; and what an answer may have, for a bus ends the connection of who sends more than
 * 32 MiB (dbus-daemon(1), max_message_size). */
#define PIECE (2 * NSEC_PER_MSEC)
#define REST_MAX \
        (10 * NSEC_PER_MSEC)     /* a piece that others interrupted took no longer itself */
#define LOOK_AGAIN NSEC_PER_MSEC /* whether the bus has taken the last answer */
#define ANSWER_MAX (24 << 20)
#define OBJECT_BYTES 800 /* about what one has */

struct changed {
        TAILQ_ENTRY(changed) entry;
        char path[];
};

struct list_call {
        struct kept_call call;
        TAILQ_ENTRY(list_call) entry;
        struct agent *agent;
        list_fn fn; /* NULL: all objects, piece by piece */

        sd_bus_message *reply; /* NULL: not begun */
        struct objects_at at;
        size_t n;
        TAILQ_HEAD(, changed) changes; /* while it was written */
};

static void forget_changes(struct list_call *c)
{
        struct changed *n;

        while ((n = TAILQ_FIRST(&c->changes))) {
                TAILQ_REMOVE(&c->changes, n, entry);
                free(n);
        }
}

static void forget(struct kept_call *k)
{
        struct list_call *c = container_of(k, struct list_call, call);
        struct lists *l = &c->agent->lists;

        if (k->counted)
                TAILQ_REMOVE(&l->waiting, c, entry);
        if (l->running == c)
                l->running = NULL;
        sd_bus_message_unref(c->reply);
        forget_changes(c);
        callers_drop(k);
        free(c);
}

static void on_timer(struct loop_timer *t)
{
        (void) t; /* the hook does the work */
}

void lists_init(struct agent *a)
{
        TAILQ_INIT(&a->lists.waiting);
        loop_timer_init(&a->lists.timer, a->loop, on_timer);
}

void lists_fini(struct agent *a)
{
        if (a->lists.timer.loop)
                loop_timer_disarm(&a->lists.timer);
}

/* ---- asked for ---- */

static void on_caller(struct kept_call *k)
{
        struct list_call *c = container_of(k, struct list_call, call);

        TAILQ_INSERT_TAIL(&c->agent->lists.waiting, c, entry);
        if (loop_timer_arm(&c->agent->lists.timer,
                           boot_max(boot_now(), c->agent->lists.next_at)) < 0)
                abort();
}

int lists_ask(struct agent *a, sd_bus_message *m, list_fn fn)
{
        struct list_call *c = calloc(1, sizeof(*c));
        int r;

        if (!c)
                return -ENOMEM;
        c->agent = a;
        c->fn = fn;
        TAILQ_INIT(&c->changes);
        r = callers_keep(&a->callers, &c->call, m, CALL_LISTING, on_caller, forget);
        if (r < 0)
                free(c);
        return r;
}

int lists_on_root(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        if (!sd_bus_message_is_method_call(m, OBJECT_MANAGER, "GetManagedObjects") ||
            !sd_bus_message_has_signature(m, ""))
                return 0;
        return lists_ask(userdata, m, NULL);
}

/* ---- all objects, piece by piece ---- */

static int begin(struct list_call *c)
{
        int r = sd_bus_message_new_method_return(c->call.m, &c->reply);

        return r < 0 ? r : sd_bus_message_open_container(c->reply, 'a', "{oa{sa{sv}}}");
}

/* To who asked alone. */
static int tell_again(struct list_call *c, const char *path)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        sd_bus *bus = sd_bus_message_get_bus(c->reply);
        const char *interface = objects_interface(path);
        bool there = objects_has(c->agent, path);
        int r = sd_bus_message_new_signal(bus, &m, ROOT, OBJECT_MANAGER,
                                          there ? "InterfacesAdded" : "InterfacesRemoved");

        if (r >= 0)
                r = there ? objects_append(c->agent, m, path)
                          : sd_bus_message_append(m, "oas", path, 1, interface);
        return r < 0 ? r : sd_bus_send_to(bus, m, callers_name(&c->call), NULL);
}

static int finish(struct list_call *c)
{
        struct changed *n;
        int r = sd_bus_message_close_container(c->reply);

        if (r >= 0)
                r = sd_bus_send(NULL, c->reply, NULL);
        TAILQ_FOREACH (n, &c->changes, entry)
                if (r >= 0)
                        r = tell_again(c, n->path);
        return r;
}

/* Returns 1 when it is done, 0 when there is more, or a negative errno. */
static int write_piece(struct list_call *c, struct boot_time end, sd_bus_error *error)
{
        cleanup_(freep) char *path = NULL;
        int r = c->reply ? 0 : begin(c);

        while (r >= 0) {
                if (c->n * OBJECT_BYTES > ANSWER_MAX)
                        return sd_bus_error_setf(
                                error, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                "There are too many objects for one message; ask GetNodes and "
                                "GetServices.");
                free(path);
                path = NULL;
                r = objects_next(c->agent, &c->at, &path);
                if (r == 0) {
                        r = finish(c);
                        return r < 0 ? r : 1;
                }
                if (r > 0)
                        r = sd_bus_message_open_container(c->reply, 'e', "oa{sa{sv}}");
                if (r >= 0)
                        r = objects_append(c->agent, c->reply, path);
                if (r >= 0)
                        r = sd_bus_message_close_container(c->reply);
                c->n++;
                if (r >= 0 && !boot_before(boot_now(), end))
                        return 0;
        }
        return r;
}

void lists_changed(struct agent *a, const char *path)
{
        struct list_call *c = a->lists.running;
        struct changed *n;

        if (!c)
                return;
        n = malloc(sizeof(*n) + strlen(path) + 1);
        if (!n)
                abort();
        strcpy(n->path, path);
        TAILQ_INSERT_TAIL(&c->changes, n, entry);
}

/* ---- whose turn it is ---- */

static struct list_call *choose(struct lists *l)
{
        struct list_call *n, *same_user = NULL;

        if (l->running)
                return l->running;
        TAILQ_FOREACH (n, &l->waiting, entry) {
                if (callers_uid(&n->call) != l->last_uid)
                        return n;
                if (!same_user && strcmp(callers_name(&n->call), l->last_name) != 0)
                        same_user = n;
        }
        return same_user ? same_user : TAILQ_FIRST(&l->waiting);
}

static void serve(struct agent *a, struct list_call *c, struct boot_time now)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        struct lists *l = &a->lists;
        int r;

        l->last_uid = callers_uid(&c->call);
        snprintf(l->last_name, sizeof(l->last_name), "%s", callers_name(&c->call));
        if (c->fn) {
                r = c->fn(c->call.m, a, &error);
                r = r < 0 ? r : 1;
        } else {
                l->running = c;
                r = write_piece(c, boot_add(now, PIECE), &error);
        }
        if (r == 0)
                return;
        if (r < 0)
                (void) sd_bus_reply_method_errno(c->call.m, r, &error);
        forget(&c->call);
}

void lists_pump(struct agent *a, struct boot_time now)
{
        struct lists *l = &a->lists;
        struct list_call *c = choose(l);
        uint64_t unsent = 0;
        nsec_t took;

        if (!c || boot_before(now, l->next_at))
                return;
        if (!c->reply &&
            (sd_bus_get_n_queued_write(bus_sd(a->bus), &unsent) < 0 || unsent > 0)) {
                /* What wakes us up for the bus to take more comes after us in a turn. */
                if (loop_timer_arm(&l->timer, boot_add(now, LOOK_AGAIN)) < 0)
                        abort();
                return;
        }
        serve(a, c, now);
        took = boot_diff(boot_now(), now);
        l->next_at = boot_add(boot_now(), min_of(took, REST_MAX));
        if (!TAILQ_EMPTY(&l->waiting) && loop_timer_arm(&l->timer, l->next_at) < 0)
                abort();
}
