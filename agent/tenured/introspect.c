#include "introspect.h"

#include <sys/socket.h>
#include <unistd.h>

#include "objects.h"
#include "root_object.h"

#define PATH "/object"
#define PATIENCE_USEC (5 * 1000 * 1000) /* both ends are in this process */

static const struct {
        const char *interface;
        const sd_bus_vtable *vtable;
} interfaces[] = {
        {MANAGER, root_vtable},
        {NODE, node_vtable},
        {SERVICE, service_vtable},
};

const char *introspect_interfaces(void)
{
        return MANAGER ", " NODE " or " SERVICE;
}

/* Makes one end of a connection without a bus in between. Takes ownership of @fd. */
static int open_end(sd_bus **ret, int fd, bool server)
{
        cleanup_(sd_bus_unrefp) sd_bus *b = NULL;
        sd_id128_t id;
        int r = sd_id128_randomize(&id);

        if (r >= 0)
                r = sd_bus_new(&b);
        if (r >= 0)
                r = sd_bus_set_fd(b, fd, fd);
        if (r < 0) {
                close(fd);
                return r;
        }
        if (server)
                r = sd_bus_set_server(b, true, id);
        if (r >= 0)
                r = sd_bus_start(b);
        if (r < 0)
                return r;
        *ret = take_ptr(b);
        return 0;
}

static int open_pair(sd_bus **ret_server, sd_bus **ret_client)
{
        int fds[2], r;

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
                return -errno;
        r = open_end(ret_server, fds[0], true);
        if (r < 0) {
                close(fds[1]);
                return r;
        }
        return open_end(ret_client, fds[1], false);
}

static int on_reply(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        *(sd_bus_message **) userdata = sd_bus_message_ref(m);
        return 0;
}

/* Runs both ends in turns until the answer arrives. */
static int ask(sd_bus *server, sd_bus *client, sd_bus_message **ret)
{
        sd_bus_message *reply = NULL;
        int r = sd_bus_call_method_async(client, NULL, NULL, PATH,
                                         "org.freedesktop.DBus.Introspectable", "Introspect",
                                         on_reply, &reply, "");

        while (r >= 0 && !reply) {
                r = sd_bus_process(server, NULL);
                if (r == 0)
                        r = sd_bus_process(client, NULL);
                if (r == 0 && !reply)
                        r = sd_bus_wait(server, PATIENCE_USEC) > 0 ? 1 : -ETIMEDOUT;
        }
        if (r >= 0 && sd_bus_message_is_method_error(reply, NULL))
                r = -sd_bus_message_get_errno(reply);
        if (r < 0) {
                sd_bus_message_unref(reply);
                return r;
        }
        *ret = reply;
        return 0;
}

/* Prints one interface of an object, without the standard interfaces that every object has. */
static int print_one(const char *xml, const char *interface, FILE *f)
{
        static const char closing[] = " </interface>\n";
        const char *start, *end;
        char opening[128];

        snprintf(opening, sizeof(opening), " <interface name=\"%s\">\n", interface);
        start = strstr(xml, opening);
        end = start ? strstr(start, closing) : NULL;
        if (!end)
                return -EBADMSG;
        fprintf(f,
                "<!DOCTYPE node PUBLIC \"-//freedesktop//DTD D-BUS Object Introspection "
                "1.0//EN\" \"http://www.freedesktop.org/standards/dbus/1.0/introspect.dtd\">\n"
                "<node>\n%.*s</node>\n",
                (int) (end + strlen(closing) - start), start);
        return 0;
}

int introspect_print(const char *interface, FILE *f)
{
        cleanup_(sd_bus_close_unrefp) sd_bus *server = NULL, *client = NULL;
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        const char *xml;
        size_t i = 0;
        int r;

        while (i < ARRAY_SIZE(interfaces) && strcmp(interfaces[i].interface, interface) != 0)
                i++;
        if (i == ARRAY_SIZE(interfaces))
                return -ENOENT;
        r = open_pair(&server, &client);
        if (r >= 0)
                r = sd_bus_add_object_vtable(server, NULL, PATH, interface,
                                             interfaces[i].vtable, NULL);
        if (r >= 0)
                r = ask(server, client, &m);
        if (r >= 0)
                r = sd_bus_message_read(m, "s", &xml);
        return r < 0 ? r : print_one(xml, interface, f);
}
