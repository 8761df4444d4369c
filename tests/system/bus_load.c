/*
 * bus_load ADDRESS polkit: stands in for polkit; prints what it is asked, and lets whatever has
 * a service or a lock "allowed".
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-bus.h>

static sd_bus *open_bus(const char *address)
{
        sd_bus *bus;

        if (sd_bus_new(&bus) < 0 || sd_bus_set_address(bus, address) < 0 ||
            sd_bus_set_bus_client(bus, true) < 0 || sd_bus_start(bus) < 0) {
                fprintf(stderr, "bus_load: cannot reach %s.\n", address);
                exit(1);
        }
        return bus;
}

static int check_authorization(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        const char *kind, *action, *key, *value, *cancel;
        int may = 0, r;
        uint32_t flags;

        (void) userdata;
        (void) error;
        r = sd_bus_message_enter_container(m, 'r', "sa{sv}");
        if (r >= 0)
                r = sd_bus_message_read(m, "s", &kind);
        if (r >= 0)
                r = sd_bus_message_skip(m, "a{sv}");
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        if (r >= 0)
                r = sd_bus_message_read(m, "s", &action);
        if (r >= 0)
                r = sd_bus_message_enter_container(m, 'a', "{ss}");
        if (r < 0)
                return r;
        printf("%s", action);
        while (sd_bus_message_read(m, "{ss}", &key, &value) > 0) {
                printf(" %s=%s", key, value);
                may |= (strcmp(key, "service") == 0 || strcmp(key, "lock") == 0) &&
                       strcmp(value, "allowed") == 0;
        }
        r = sd_bus_message_exit_container(m);
        if (r >= 0)
                r = sd_bus_message_read(m, "us", &flags, &cancel);
        if (r < 0)
                return r;
        printf(" flags=%u\n", flags);
        fflush(stdout);
        return sd_bus_reply_method_return(m, "(bba{ss})", may, !may, 0);
}

static int polkit(const char *address)
{
        static const sd_bus_vtable vtable[] = {
                SD_BUS_VTABLE_START(0),
                SD_BUS_METHOD("CheckAuthorization", "(sa{sv})sa{ss}us", "(bba{ss})",
                              check_authorization, SD_BUS_VTABLE_UNPRIVILEGED),
                SD_BUS_VTABLE_END,
        };
        sd_bus *bus = open_bus(address);

        if (sd_bus_add_object_vtable(bus, NULL, "/org/freedesktop/PolicyKit1/Authority",
                                     "org.freedesktop.PolicyKit1.Authority", vtable,
                                     NULL) < 0 ||
            sd_bus_request_name(bus, "org.freedesktop.PolicyKit1", 0) < 0)
                return 1;
        printf("ready\n");
        fflush(stdout);
        for (;;) {
                int r = sd_bus_process(bus, NULL);

                if (r < 0 || (r == 0 && sd_bus_wait(bus, UINT64_MAX) < 0))
                        return 1;
        }
}

int main(int argc, char **argv)
{
        return argc == 3 && strcmp(argv[2], "polkit") == 0 ? polkit(argv[1]) : 2;
}
