/* org.freedesktop.LogControl1(5): `systemctl service-log-level tenured debug`. */
#include "base/log.h"
#include "objects.h"

#define PATH "/org/freedesktop/LogControl1"
#define INTERFACE "org.freedesktop.LogControl1"

GETTER(get_level)
{
        return sd_bus_message_append(reply, "s",
                                     conf_word_of(conf_log_levels, log_get_level()));
}

static int set_level(sd_bus *bus unused_, const char *path unused_,
                     const char *interface unused_, const char *property unused_,
                     sd_bus_message *value, void *userdata unused_, sd_bus_error *error)
{
        const char *name;
        char words[128];
        int r, level;

        r = sd_bus_message_read(value, "s", &name);
        if (r < 0)
                return r;
        if (conf_word_parse(conf_log_levels, name, &level) < 0)
                return sd_bus_error_setf(
                        error, SD_BUS_ERROR_INVALID_ARGS, "LogLevel must be %s, not '%s'.",
                        conf_words(conf_log_levels, words, sizeof(words)), name);
        log_set_level(level);
        log_info("The log level is %s now.", name);
        return 0;
}

GETTER(get_target)
{
        return sd_bus_message_append(reply, "s",
                                     getenv("JOURNAL_STREAM") ? "journal" : "console");
}

static int set_target(sd_bus *bus unused_, const char *path unused_,
                      const char *interface unused_, const char *property unused_,
                      sd_bus_message *value unused_, void *userdata unused_,
                      sd_bus_error *error)
{
        return sd_bus_error_setf(
                error, SD_BUS_ERROR_NOT_SUPPORTED,
                "The target of the log cannot be changed; systemd has chosen it.");
}

GETTER(get_identifier)
{
        return sd_bus_message_append(reply, "s", "tenured");
}

/* The policy of the bus (conf/org.tenure.Membership1.conf) lets only root set a property.
 * Without UNPRIVILEGED, sd-bus would query the bus for the sender's user as well, and wait up
 * to 25 s for the answer. */
static const sd_bus_vtable vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_WRITABLE_PROPERTY("LogLevel", "s", get_level, set_level, 0,
                                 SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_WRITABLE_PROPERTY("LogTarget", "s", get_target, set_target, 0,
                                 SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_PROPERTY("SyslogIdentifier", "s", get_identifier, 0,
                        SD_BUS_VTABLE_PROPERTY_CONST),
        SD_BUS_VTABLE_END,
};

int log_control_attach(struct agent *a)
{
        int r = sd_bus_add_object_vtable(bus_sd(a->bus), NULL, PATH, INTERFACE, vtable, a);

        return r < 0 ? r : 0;
}
