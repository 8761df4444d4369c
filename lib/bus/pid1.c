#include "bus/pid1.h"

#include "base/log.h"
#include "bus/bus.h"

#define NAME "org.freedesktop.systemd1"
#define PATH "/org/freedesktop/systemd1"
#define MANAGER NAME ".Manager"
#define UNITS PATH "/unit"

/* If one of these units has a job, the machine is going down or rebooting. We ask about all of
 * them at once. */
static const struct {
        const char *unit;
        enum pid1_shutdown what;
} targets[] = {
        {"reboot.target", PID1_REBOOT},     {"kexec.target", PID1_REBOOT},
        {"poweroff.target", PID1_SHUTDOWN}, {"halt.target", PID1_SHUTDOWN},
        {"exit.target", PID1_SHUTDOWN},     {"soft-reboot.target", PID1_REBOOT},
};

struct pid1 {
        struct loop *loop;
        struct bus *bus; /* NULL: not connected, or no longer */
        bool broken;     /* to be freed before the next use: not from its own callback */

        void (*shutdown_fn)(void *userdata, enum pid1_shutdown what);
        void *shutdown_userdata;
        struct loop_timer shutdown_limit;
        enum pid1_shutdown shutdown;
        unsigned shutdown_open; /* the number of answers still missing */
};

static void tell_shutdown(struct pid1 *p)
{
        void (*fn)(void *userdata, enum pid1_shutdown what) = p->shutdown_fn;

        p->shutdown_fn = NULL;
        loop_timer_disarm(&p->shutdown_limit);
        if (fn)
                fn(p->shutdown_userdata, p->shutdown);
}

static void on_closed(void *userdata, int r)
{
        struct pid1 *p = userdata;

        log_debug("The service manager closed the connection: %s.", strerror(-r));
        p->broken = true;
        tell_shutdown(p);
}

static sd_bus *connected(struct pid1 *p)
{
        if (p->broken)
                p->bus = bus_free(p->bus);
        p->broken = false;
        if (!p->bus) {
                int r = bus_new_manager(&p->bus, p->loop, on_closed, p);

                if (r < 0)
                        log_warning("Cannot reach the service manager: %s.", strerror(-r));
        }
        return p->bus ? bus_sd(p->bus) : NULL;
}

static void on_limit(struct loop_timer *t)
{
        struct pid1 *p = container_of(t, struct pid1, shutdown_limit);

        if (p->shutdown == PID1_NO_SHUTDOWN)
                log_notice("The service manager has not said in time whether the host shuts "
                           "down.");
        tell_shutdown(p);
}

int pid1_new(struct pid1 **ret, struct loop *l)
{
        cleanup_(pid1_freep) struct pid1 *p = calloc(1, sizeof(*p));
        int r;

        if (!p)
                return -ENOMEM;
        p->loop = l;
        loop_timer_init(&p->shutdown_limit, l, on_limit);
        r = bus_new_manager(&p->bus, l, on_closed, p);
        if (r < 0)
                return r;
        *ret = take_ptr(p);
        return 0;
}

struct pid1 *pid1_free(struct pid1 *p)
{
        if (!p)
                return NULL;
        loop_timer_disarm(&p->shutdown_limit);
        bus_free(p->bus);
        free(p);
        return NULL;
}

/* ---- orders ---- */

static int on_done(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        (void) error;
        if (sd_bus_message_is_method_error(m, NULL))
                log_error("systemd: %s: %s.", (const char *) userdata,
                          sd_bus_message_get_error(m)->message);
        return 0;
}

static void check(int r, const char *what)
{
        if (r < 0)
                log_error("systemd: %s: %s.", what, strerror(-r));
}

void pid1_reboot(struct pid1 *p)
{
        sd_bus *sd = connected(p);

        if (sd)
                check(sd_bus_call_method_async(sd, NULL, NAME, PATH, MANAGER, "Reboot", on_done,
                                               (void *) (uintptr_t) "cannot reboot", NULL),
                      "cannot reboot");
}

static int get(struct pid1 *p, const char *unit, const char *property,
               sd_bus_message_handler_t fn, void *userdata)
{
        cleanup_(freep) char *path = NULL;
        sd_bus *sd = connected(p);
        int r;

        if (!sd)
                return -ENOTCONN;
        r = sd_bus_path_encode(UNITS, unit, &path);
        if (r < 0)
                return r;
        return sd_bus_call_method_async(sd, NULL, NAME, path, "org.freedesktop.DBus.Properties",
                                        "Get", fn, userdata, "ss", NAME ".Unit", property);
}

/* ---- questions ---- */

static int on_job(sd_bus_message *m, enum pid1_shutdown what, struct pid1 *p)
{
        uint32_t id = 0;
        const char *path;

        if (!sd_bus_message_is_method_error(m, NULL) &&
            sd_bus_message_read(m, "v", "(uo)", &id, &path) >= 0 && id != 0)
                p->shutdown = max_of(p->shutdown, what);
        if (--p->shutdown_open == 0)
                tell_shutdown(p);
        return 0;
}

static int on_reboot_job(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        (void) error;
        return on_job(m, PID1_REBOOT, userdata);
}

static int on_shutdown_job(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        (void) error;
        return on_job(m, PID1_SHUTDOWN, userdata);
}

void pid1_ask_shutdown(struct pid1 *p, nsec_t limit,
                       void (*fn)(void *userdata, enum pid1_shutdown what), void *userdata)
{
        p->shutdown_fn = fn;
        p->shutdown_userdata = userdata;
        p->shutdown = PID1_NO_SHUTDOWN;
        p->shutdown_open = 0;
        for (size_t i = 0; i < ARRAY_SIZE(targets); i++)
                if (get(p, targets[i].unit, "Job",
                        targets[i].what == PID1_REBOOT ? on_reboot_job : on_shutdown_job,
                        p) >= 0)
                        p->shutdown_open++;
        if (p->shutdown_open == 0)
                tell_shutdown(p);
        else
                loop_timer_in(&p->shutdown_limit, limit);
}
