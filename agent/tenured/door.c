#include "door.h"

#include <inttypes.h>

#include "base/log.h"
#include "objects.h"

/* So many messages of ours wait for the bus at most; it takes some thousands in a turn. */
#define UNSENT_MAX 4096
#define TELL_EVERY (60 * NSEC_PER_SEC)

/* An answer would wait, too: it stays in our memory until the bus takes it. */
static int drop(struct agent *a, uint64_t unsent)
{
        if (!boot_before(boot_now(), a->door_told_at)) {
                a->door_told_at = boot_add(boot_now(), TELL_EVERY);
                log_warning("The system bus does not take our messages, of which %" PRIu64
                            " wait: a program does not read its answers. Calls are dropped "
                            "until they are read.",
                            unsent);
        }
        return 1;
}

static int on_message(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        bool call = sd_bus_message_is_method_call(m, NULL, NULL) > 0;
        const char *path = sd_bus_message_get_path(m);
        struct agent *a = userdata;
        uint64_t unsent = 0;

        if (call && sd_bus_get_n_queued_write(sd_bus_message_get_bus(m), &unsent) >= 0 &&
            unsent >= UNSENT_MAX)
                return drop(a, unsent);
        if (!path || strnlen(path, OBJECT_PATH_MAX + 1) <= OBJECT_PATH_MAX)
                return 0;
        /* sd-bus would look for each of its parents, in a time that grows with the square. */
        return call ? sd_bus_error_setf(error, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                        "The path of an object has at most %d bytes here.",
                                        OBJECT_PATH_MAX)
                    : 1;
}

int door_attach(struct agent *a)
{
        int r = sd_bus_add_filter(bus_sd(a->bus), NULL, on_message, a);

        return r < 0 ? r : 0;
}
