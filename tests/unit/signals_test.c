/* Signals on a connection whose other end plays the bus: it owns the names, and says who sent
 * what. */
#include <sys/socket.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#include "bus/logind.h"
#include "bus/signals.h"
#include "test.h"

#define DBUS "org.freedesktop.DBus"
#define DBUS_PATH "/org/freedesktop/DBus"
#define LOGIN "org.freedesktop.login1"
#define LOGIN_PATH "/org/freedesktop/login1"

struct world {
        sd_bus *ours, *bus;
        const char *owner; /* of each name that is asked for */
};

/* Answers what has a meaning here. */
static int on_call(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct world *w = userdata;

        if (sd_bus_message_is_method_call(m, DBUS, "GetNameOwner"))
                return *w->owner ? sd_bus_reply_method_return(m, "s", w->owner)
                                 : sd_bus_reply_method_errorf(m, SD_BUS_ERROR_NAME_HAS_NO_OWNER,
                                                              "nobody");
        if (sd_bus_message_is_method_call(m, DBUS ".Properties", "Get"))
                return sd_bus_reply_method_return(m, "v", "b", 0);
        return 0;
}

static void settle(struct world *w)
{
        for (int idle = 0; idle < 4; idle++)
                if (sd_bus_process(w->ours, NULL) > 0 || sd_bus_process(w->bus, NULL) > 0)
                        idle = 0;
}

static void world_begin(struct world *w, const char *owner)
{
        int fds[2];

        *w = (struct world){.owner = owner};
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds), 0);
        CHECK_EQ(sd_bus_new(&w->ours), 0);
        CHECK_EQ(sd_bus_set_fd(w->ours, fds[0], fds[0]), 0);
        CHECK_EQ(sd_bus_new(&w->bus), 0);
        CHECK_EQ(sd_bus_set_fd(w->bus, fds[1], fds[1]), 0);
        CHECK_EQ(sd_bus_set_server(w->bus, 1, (sd_id128_t){.bytes = {1}}), 0);
        CHECK(sd_bus_add_filter(w->bus, NULL, on_call, w) >= 0);
        CHECK(sd_bus_start(w->bus) >= 0);
        CHECK(sd_bus_start(w->ours) >= 0);
        settle(w);
}

static void world_end(struct world *w)
{
        sd_bus_close_unref(w->ours);
        sd_bus_close_unref(w->bus);
}

/* ... as @from. */
#define SEND(w, from, path, interface, member, ...)                                            \
        do {                                                                                   \
                sd_bus_message *_m;                                                            \
                                                                                               \
                CHECK(sd_bus_message_new_signal((w)->bus, &_m, path, interface, member) >= 0); \
                CHECK(sd_bus_message_set_sender(_m, from) >= 0);                               \
                CHECK(sd_bus_message_append(_m, __VA_ARGS__) >= 0);                            \
                CHECK(sd_bus_send((w)->bus, _m, NULL) >= 0);                                   \
                sd_bus_message_unref(_m);                                                      \
                settle(w);                                                                     \
        } while (0)

static void move(struct world *w, const char *from, const char *name, const char *owner)
{
        SEND(w, from, DBUS_PATH, DBUS, "NameOwnerChanged", "sss", name, w->owner, owner);
}

static int n_slept, n_woken;

static void on_sleep(void *userdata unused_, bool begins)
{
        begins ? n_slept++ : n_woken++;
}

/* Everybody may send it, and a host that believed it would give its place back. */
TEST(a_host_goes_to_sleep_only_if_logind_says_so)
{
        struct logind l;
        struct world w;

        world_begin(&w, ":1.5");
        logind_init(&l, on_sleep, NULL);
        logind_attach(&l, w.ours);
        settle(&w);
        CHECK_EQ(n_woken, 1); /* the present state */
        n_slept = n_woken = 0;
        SEND(&w, ":1.66", LOGIN_PATH, LOGIN ".Manager", "PrepareForSleep", "b", 1);
        CHECK_EQ(n_slept, 0);
        SEND(&w, ":1.5", LOGIN_PATH, LOGIN ".Manager", "PrepareForSleep", "b", 1);
        CHECK_EQ(n_slept, 1);
        logind_attach(&l, NULL);
        logind_fini(&l);
        world_end(&w);
}

/* It forgets the sleep that it has announced. */
TEST(a_host_is_awake_once_a_logind_that_was_restarted_during_its_sleep_says_so)
{
        struct logind l;
        struct world w;

        world_begin(&w, ":1.5");
        logind_init(&l, on_sleep, NULL);
        logind_attach(&l, w.ours);
        settle(&w);
        SEND(&w, ":1.5", LOGIN_PATH, LOGIN ".Manager", "PrepareForSleep", "b", 1);
        n_slept = n_woken = 0;
        move(&w, DBUS, LOGIN, "");
        CHECK_EQ(n_woken, 0); /* nobody says anything */
        move(&w, DBUS, LOGIN, ":1.6");
        CHECK_EQ(n_woken, 1);
        CHECK_EQ(n_slept, 0);
        logind_attach(&l, NULL);
        logind_fini(&l);
        world_end(&w);
}

static int n_heard, n_moved;
static char last[64];

static int on_signal(sd_bus_message *m unused_, void *userdata unused_,
                     sd_bus_error *error unused_)
{
        n_heard++;
        return 0;
}

static void on_moved(void *userdata unused_, const char *owner)
{
        n_moved++;
        snprintf(last, sizeof(last), "%s", owner);
}

static void heard(struct world *w, const char *from, int expected)
{
        n_heard = 0;
        SEND(w, from, "/a", "a.b", "C", "s", "");
        CHECK_EQ(n_heard, expected);
}

TEST(a_signal_is_believed_from_the_present_owner_of_the_name_alone)
{
        sd_bus_slot *slot;
        struct signals s;
        struct world w;

        world_begin(&w, "");
        CHECK_EQ(signals_follow(&s, w.ours, "a.b", on_moved, NULL), 0);
        CHECK_EQ(signals_add(&s, &slot, "interface='a.b'", on_signal, NULL), 0);
        settle(&w);
        CHECK_EQ(n_moved, 0);
        heard(&w, ":1.1", 0);
        move(&w, ":1.1", "a.b", ":1.1"); /* whoever says so himself */
        CHECK_EQ(n_moved, 0);
        heard(&w, ":1.1", 0);
        move(&w, DBUS, "a.b", ":1.1");
        CHECK_STR(last, ":1.1");
        heard(&w, ":1.1", 1);
        heard(&w, ":1.2", 0);
        move(&w, DBUS, "a.b", ":1.2");
        CHECK_STR(last, ":1.2");
        heard(&w, ":1.1", 0);
        heard(&w, ":1.2", 1);
        move(&w, DBUS, "a.b", "");
        CHECK_STR(last, "");
        heard(&w, ":1.2", 0);
        sd_bus_slot_unref(slot);
        signals_end(&s);
        world_end(&w);
}

/* Until the connection ends. */
TEST(whoever_is_on_the_managers_own_connection_is_the_manager)
{
        struct world w;

        world_begin(&w, "");
        CHECK_EQ(signals_add_manager(w.ours, "interface='a.b',path_namespace='/a'", on_signal,
                                     NULL),
                 0);
        heard(&w, ":1.1", 1);
        n_heard = 0;
        SEND(&w, ":1.1", "/b", "a.b", "C", "s", "");
        CHECK_EQ(n_heard, 0);
        world_end(&w);
}

static void on_departure(void *userdata unused_, const char *connection)
{
        n_moved++;
        snprintf(last, sizeof(last), "%s", connection);
}

TEST(a_connection_has_left_when_the_bus_says_so)
{
        sd_bus_slot *slot;
        struct world w;

        world_begin(&w, "");
        CHECK_EQ(signals_add_departures(w.ours, &slot, on_departure, NULL), 0);
        n_moved = 0;
        move(&w, ":1.66", ":1.4", "");
        move(&w, DBUS, ":1.4", ":1.4");
        CHECK_EQ(n_moved, 0);
        move(&w, DBUS, ":1.4", "");
        CHECK_EQ(n_moved, 1);
        CHECK_STR(last, ":1.4");
        sd_bus_slot_unref(slot);
        world_end(&w);
}
