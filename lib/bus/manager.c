#include "bus/manager.h"

#include <stdarg.h>

#include "base/log.h"

#define RETRY (100 * NSEC_PER_MSEC)

/* If nobody answers at all, we ask less and less often. */
#define PATIENCE (2 * NSEC_PER_SEC)
#define PATIENCE_MOST (32 * NSEC_PER_SEC)

static void lose(struct manager *m, nsec_t retry_in)
{
        if (m->lost)
                return;
        m->lost = true;
        loop_timer_in(&m->retry, retry_in);
}

static void on_closed(void *userdata, int r)
{
        log_debug("The service manager closed the connection: %s.", strerror(-r));
        lose(userdata, 0);
}

static void hang_up(struct manager *m)
{
        struct manager_call *c;

        LIST_FOREACH (c, &m->open, entry)
                c->slot = sd_bus_slot_unref(c->slot);
        m->bus = bus_free(m->bus);
        m->lost = false;
        loop_timer_disarm(&m->limit);
        loop_timer_disarm(&m->retry);
}

/* Calls that are made meanwhile end with the next attempt. Returns whether there is a new
 * connection. */
static bool dial(struct manager *m)
{
        int r;

        if (m->bus || loop_timer_armed(&m->retry))
                return false;
        r = bus_new_manager(&m->bus, m->loop, on_closed, m);
        if (r < 0) {
                log_debug("Cannot reach the service manager: %s.", strerror(-r));
                loop_timer_in(&m->retry, RETRY);
        }
        return r >= 0;
}

static void on_retry(struct loop_timer *t)
{
        struct manager *m = container_of(t, struct manager, retry);
        LIST_HEAD(, manager_call) ended = LIST_HEAD_INITIALIZER(ended);
        struct manager_call *c;
        bool is_new;

        hang_up(m);
        LIST_SWAP(&ended, &m->open, manager_call, entry);
        /* Before the calls end, so that whoever calls again has a connection. */
        is_new = dial(m);
        while ((c = LIST_FIRST(&ended))) {
                manager_cancel(c);
                c->done(c, NULL, -ENOTCONN);
        }
        if (is_new && m->up)
                m->up(m);
}

static void on_limit(struct loop_timer *t)
{
        struct manager *m = container_of(t, struct manager, limit);

        log_debug("The service manager has not answered for %d ms.",
                  (int) (m->patience / NSEC_PER_MSEC));
        m->patience = min_of(2 * m->patience, PATIENCE_MOST);
        on_retry(&m->retry);
}

void manager_init(struct manager *m, struct loop *l, void (*up)(struct manager *m))
{
        *m = (struct manager){.loop = l, .up = up, .patience = PATIENCE};
        LIST_INIT(&m->open);
        loop_timer_init(&m->retry, l, on_retry);
        loop_timer_init(&m->limit, l, on_limit);
}

void manager_fini(struct manager *m)
{
        while (!LIST_EMPTY(&m->open))
                manager_cancel(LIST_FIRST(&m->open));
        hang_up(m);
}

void manager_connect(struct manager *m)
{
        if (dial(m) && m->up)
                m->up(m);
}

void manager_watch(struct manager *m, const char *rule, sd_bus_message_handler_t fn,
                   void *userdata)
{
        if (signals_add_manager(bus_sd(m->bus), rule, fn, userdata) < 0)
                lose(m, RETRY);
}

/* ---- calls ---- */

void manager_cancel(struct manager_call *c)
{
        if (!c->manager)
                return;
        LIST_REMOVE(c, entry);
        c->slot = sd_bus_slot_unref(c->slot);
        if (LIST_EMPTY(&c->manager->open))
                loop_timer_disarm(&c->manager->limit);
        c->manager = NULL;
}

static int on_reply(sd_bus_message *reply, void *userdata, sd_bus_error *error unused_)
{
        struct manager_call *c = userdata;
        struct manager *m = c->manager;

        /* When a connection closes, sd-bus itself answers what is open. */
        if (m->lost || sd_bus_is_open(bus_sd(m->bus)) <= 0)
                return 0;
        manager_cancel(c);
        m->patience = PATIENCE;
        if (!LIST_EMPTY(&m->open))
                loop_timer_in(&m->limit, PATIENCE);
        c->done(c, reply, -sd_bus_message_get_errno(reply));
        return 0;
}

const char *manager_why(sd_bus_message *reply, int r)
{
        const sd_bus_error *error = reply ? sd_bus_message_get_error(reply) : NULL;

        return error && error->message ? error->message : strerror(-r);
}

/* Returns a message, or NULL: the call ends with the connection. */
static sd_bus_message *begin(struct manager *m, struct manager_call *c, manager_done_fn done,
                             const char *path, const char *interface, const char *method)
{
        sd_bus_message *msg = NULL;

        manager_connect(m);
        manager_cancel(c);
        c->manager = m;
        c->done = done;
        LIST_INSERT_HEAD(&m->open, c, entry);
        if (!m->bus || m->lost)
                return NULL;
        if (sd_bus_message_new_method_call(bus_sd(m->bus), &msg, SYSTEMD, path, interface,
                                           method) < 0)
                lose(m, RETRY);
        return msg;
}

/* @r: whether the arguments are in @msg. Frees it. */
static void send(struct manager_call *c, sd_bus_message *msg, int r)
{
        struct manager *m = c->manager;

        if (r >= 0)
                r = sd_bus_call_async(bus_sd(m->bus), &c->slot, msg, on_reply, c, UINT64_MAX);
        sd_bus_message_unref(msg);
        if (r < 0)
                lose(m, RETRY);
        else if (!loop_timer_armed(&m->limit))
                loop_timer_in(&m->limit, m->patience);
}

void manager_call(struct manager *m, struct manager_call *c, manager_done_fn done,
                  const char *method, const char *types, ...)
{
        sd_bus_message *msg = begin(m, c, done, SYSTEMD_PATH, SYSTEMD_MANAGER, method);
        va_list args;

        if (!msg)
                return;
        va_start(args, types);
        send(c, msg, sd_bus_message_appendv(msg, types, args));
        va_end(args);
}

void manager_get_all(struct manager *m, struct manager_call *c, manager_done_fn done,
                     const char *path, const char *interface)
{
        sd_bus_message *msg = begin(m, c, done, path, DBUS_PROPERTIES, "GetAll");

        if (msg)
                send(c, msg, sd_bus_message_append(msg, "s", interface));
}

void manager_list(struct manager *m, struct manager_call *c, manager_done_fn done,
                  char *names[])
{
        sd_bus_message *msg =
                begin(m, c, done, SYSTEMD_PATH, SYSTEMD_MANAGER, "ListUnitsByNames");

        if (msg)
                send(c, msg, sd_bus_message_append_strv(msg, names));
}

int manager_next_unit(sd_bus_message *reply, struct manager_unit *ret)
{
        char type;
        int r = sd_bus_message_peek_type(reply, &type, NULL);

        if (r > 0 && type == 'a')
                r = sd_bus_message_enter_container(reply, 'a', "(ssssssouso)");
        return r < 0 ? r
                     : sd_bus_message_read(reply, "(ssssssouso)", &ret->name, NULL, NULL,
                                           &ret->active_state, NULL, NULL, NULL, &ret->job,
                                           NULL, NULL);
}

int manager_read_properties(sd_bus_message *m,
                            int (*read)(void *userdata, const char *key, sd_bus_message *m),
                            void *userdata)
{
        const char *key;
        int r = sd_bus_message_enter_container(m, 'a', "{sv}");

        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                r = sd_bus_message_read(m, "s", &key);
                if (r > 0)
                        r = read(userdata, key, m);
                if (r == 0)
                        r = sd_bus_message_skip(m, "v");
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
        }
        r = r < 0 ? r : sd_bus_message_exit_container(m);
        return r < 0 ? r : 0;
}
