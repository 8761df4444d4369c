#include "openings.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "authorize.h"
#include "base/log.h"
#include "objects.h"
#include "runtime.h"

#define LOCK NAME ".lock"

int openings_turns(void)
{
        char path[RUNTIME_PATH_MAX];
        int fd = runtime_path("turns", path)
                         ? open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600)
                         : memfd_create("turns", MFD_CLOEXEC);

        if (fd >= 0 && fchmod(fd, 0600) == 0)
                return fd;
        log_warning("Cannot let programs take turns with the place: %s. They get no locks by "
                    "it.",
                    strerror(errno));
        if (fd >= 0)
                close(fd);
        return -1;
}

static int open_tenancy(const struct agent *a)
{
        return holders_reader(&a->holders);
}

/* Each has a description of its own, because the locks belong to it. */
static int open_turns(const struct agent *a)
{
        int fd = a->turns < 0 ? -1 : runtime_open_again(a->turns, O_RDWR);

        return fd >= 0 ? fd : a->turns < 0 ? -ENOENT : -errno;
}

/* An answer with a descriptor that somebody does not read keeps the bus from taking more of
 * ours: dbus-daemon allows 64 of a sender. So each is counted for its user until the caller
 * has answered a Ping behind it, or is gone. */
struct opening {
        struct kept_call call;
        struct agent *agent;
        int (*open)(const struct agent *a);
        sd_bus_slot *ping;
};

static void opening_end(struct kept_call *k)
{
        struct opening *o = container_of(k, struct opening, call);

        sd_bus_slot_unref(o->ping);
        callers_drop(k);
        free(o);
}

static int opening_read(sd_bus_message *m unused_, void *userdata, sd_bus_error *error unused_)
{
        struct opening *o = userdata;

        opening_end(&o->call); /* an error is an answer, too */
        return 0;
}

static int opening_answer(struct opening *o)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *ping = NULL;
        int r, fd = o->open(o->agent);

        if (fd < 0)
                return sd_bus_reply_method_errorf(o->call.m, SD_BUS_ERROR_FAILED,
                                                  "The agent cannot open the file for it: %s.",
                                                  strerror(-fd));
        r = sd_bus_reply_method_return(o->call.m, "h", fd); /* sd-bus duplicates it */
        close(fd);
        if (r >= 0)
                r = sd_bus_message_new_method_call(bus_sd(o->agent->bus), &ping,
                                                   callers_name(&o->call), "/",
                                                   "org.freedesktop.DBus.Peer", "Ping");
        if (r >= 0)
                r = sd_bus_call_async(bus_sd(o->agent->bus), &o->ping, ping, opening_read, o,
                                      UINT64_MAX);
        return r;
}

static void opening_go(struct kept_call *k)
{
        struct opening *o = container_of(k, struct opening, call);

        if (opening_answer(o) < 0 || !o->ping)
                opening_end(k);
}

static int begin(struct agent *a, sd_bus_message *m, int (*open)(const struct agent *a))
{
        struct opening *o = calloc(1, sizeof(*o));
        int r;

        if (!o)
                return -ENOMEM;
        o->agent = a;
        o->open = open;
        r = callers_keep(&a->callers, &o->call, m, CALL_TENANCY, opening_go, opening_end);
        if (r < 0)
                free(o);
        return r;
}

int method_open_tenancy(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        return begin(userdata, m, open_tenancy);
}

static int do_open_turns(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        return begin(userdata, m, open_turns);
}

/* Whoever has a descriptor can keep a turn for as long as he likes. */
int method_open_turns(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct agent *a = userdata;

        return authorize(&a->callers, m, LOCK,
                         (const char *const[]){"node", a->opt.node_name, NULL}, do_open_turns,
                         a);
}
