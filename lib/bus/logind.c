#include "bus/logind.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"

#define NAME "org.freedesktop.login1"
#define PATH "/org/freedesktop/login1"
#define MANAGER NAME ".Manager"

void logind_init(struct logind *l, void (*sleep)(void *userdata, bool begins), void *userdata)
{
        *l = (struct logind){.sleep = sleep, .userdata = userdata, .fd = -1};
}

static void detach(struct logind *l)
{
        l->match = sd_bus_slot_unref(l->match);
        l->asked = sd_bus_slot_unref(l->asked);
        l->read = sd_bus_slot_unref(l->read);
        signals_end(&l->from);
        l->sd = NULL;
}

void logind_fini(struct logind *l)
{
        if (!l->sleep)
                return;
        detach(l);
        logind_release(l);
}

static int on_sleep(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct logind *l = userdata;
        int begins;

        if (sd_bus_message_read(m, "b", &begins) >= 0)
                l->sleep(l->userdata, begins);
        return 0;
}

static int on_preparing(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct logind *l = userdata;
        int begins;

        l->read = sd_bus_slot_unref(l->read);
        if (sd_bus_message_is_method_error(m, NULL))
                log_debug("logind: %s.", sd_bus_message_get_error(m)->message);
        else if (sd_bus_message_read(m, "v", "b", &begins) >= 0)
                l->sleep(l->userdata, begins);
        return 0;
}

static int on_inhibited(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct logind *l = userdata;
        int fd;

        l->asked = sd_bus_slot_unref(l->asked);
        if (sd_bus_message_is_method_error(m, NULL)) {
                log_debug("logind: %s. A suspend will be noticed only once it is over.",
                          sd_bus_message_get_error(m)->message);
        } else if (sd_bus_message_read(m, "h", &fd) >= 0 && l->fd < 0) {
                l->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        }
        return 0;
}

void logind_inhibit(struct logind *l)
{
        int r;

        if (!l->sd || l->fd >= 0 || l->asked)
                return;
        r = sd_bus_call_method_async(l->sd, &l->asked, NAME, PATH, MANAGER, "Inhibit",
                                     on_inhibited, l, "ssss", "sleep", "tenured",
                                     "The host's place in the cluster is given back first",
                                     "delay");
        if (r < 0)
                log_debug("logind: %s.", strerror(-r));
}

void logind_release(struct logind *l)
{
        if (l->fd >= 0)
                close(l->fd);
        l->fd = -1;
}

static int look(struct logind *l)
{
        logind_inhibit(l);
        return sd_bus_call_method_async(l->sd, &l->read, NAME, PATH, DBUS_PROPERTIES, "Get",
                                        on_preparing, l, "ss", MANAGER, "PreparingForSleep");
}

/* A logind that was restarted during a sleep does not say that the sleep is over. */
static void on_moved(void *userdata, const char *owner)
{
        struct logind *l = userdata;
        int r;

        if (!*owner)
                return;
        l->asked = sd_bus_slot_unref(l->asked);
        l->read = sd_bus_slot_unref(l->read);
        r = look(l);
        if (r < 0)
                log_debug("logind: %s.", strerror(-r));
}

void logind_attach(struct logind *l, sd_bus *sd)
{
        int r;

        detach(l);
        if (!sd)
                return;
        l->sd = sd;
        r = signals_follow(&l->from, sd, NAME, on_moved, l);
        if (r >= 0)
                r = signals_add(&l->from, &l->match,
                                "path='" PATH "',interface='" MANAGER
                                "',member='PrepareForSleep'",
                                on_sleep, l);
        if (r >= 0)
                r = look(l);
        if (r < 0)
                log_debug("logind: %s.", strerror(-r));
}
