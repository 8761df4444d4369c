/* Which units are bound, as bound.c learns it from a service manager that the test plays. */
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#include "bus/bound.h"
#include "loop/loop.h"
#include "test.h"

#define SYSTEMD "org.freedesktop.systemd1"
#define SYSTEMD_PATH "/org/freedesktop/systemd1"

static struct sockaddr_un own = {.sun_family = AF_UNIX, .sun_path = "/run/systemd/private"};

/* A socket where the service manager has its own, for this process alone. -1: only root can
 * have it. */
static int listen_as_manager(void)
{
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", "/run", "tmpfs", 0, NULL) < 0)
                return -1;
        CHECK_EQ(mkdir("/run/systemd", 0755), 0);
        CHECK_EQ(bind(fd, (struct sockaddr *) &own, sizeof(own)), 0);
        CHECK_EQ(listen(fd, 1), 0);
        return fd;
}

/* Bound to the target are first.service and, once it is loaded, late.service. That is loaded
 * when the target has been read, and first.service has not. */
static int on_call(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        bool *loaded = userdata, root = strstr(sd_bus_message_get_path(m), "_2etarget");
        sd_bus *bus = sd_bus_message_get_bus(m);
        sd_bus_message *a;

        if (!sd_bus_message_is_method_call(m, "org.freedesktop.DBus.Properties", "GetAll"))
                return 0;
        sd_bus_message_new_method_return(m, &a);
        sd_bus_message_open_container(a, 'a', "{sv}");
        if (root)
                sd_bus_message_append(a, "{sv}", "BoundBy", "as", *loaded ? 2 : 1,
                                      "first.service", "late.service");
        sd_bus_message_close_container(a);
        sd_bus_send(bus, a, NULL);
        sd_bus_message_unref(a);
        if (root && !*loaded)
                sd_bus_emit_signal(bus, SYSTEMD_PATH, SYSTEMD ".Manager", "UnitNew", "so",
                                   "late.service", SYSTEMD_PATH "/unit/late_2eservice");
        *loaded = true;
        return 1;
}

static void report_inactive(sd_bus *bus, const char *path)
{
        sd_bus_message *m;

        sd_bus_message_new_signal(bus, &m, path, "org.freedesktop.DBus.Properties",
                                  "PropertiesChanged");
        sd_bus_message_append(m, "sa{sv}as", SYSTEMD ".Unit", 1, "ActiveState", "s", "inactive",
                              0);
        sd_bus_send(bus, m, NULL);
        sd_bus_message_unref(m);
}

/* Bound to the target is first.service. Once both have been read, both become inactive. */
static int on_call_of_two(sd_bus_message *m, void *userdata unused_,
                          sd_bus_error *error unused_)
{
        bool root = strstr(sd_bus_message_get_path(m), "_2etarget");
        sd_bus *bus = sd_bus_message_get_bus(m);

        if (!sd_bus_message_is_method_call(m, "org.freedesktop.DBus.Properties", "GetAll"))
                return 0;
        sd_bus_reply_method_return(m, "a{sv}", 2, "ActiveState", "s", "active", "BoundBy", "as",
                                   root ? 1 : 0, "first.service");
        if (root)
                return 1;
        report_inactive(bus, SYSTEMD_PATH "/unit/first_2eservice");
        report_inactive(bus, SYSTEMD_PATH "/unit/a_2etarget");
        return 1;
}

static void manage(int listener, sd_bus_message_handler_t answer)
{
        int fd = accept(listener, NULL, NULL);
        bool loaded = false;
        sd_bus *bus;

        sd_bus_new(&bus);
        sd_bus_set_fd(bus, fd, fd);
        sd_bus_set_server(bus, 1, (sd_id128_t){.bytes = {1}});
        sd_bus_add_filter(bus, NULL, answer, &loaded);
        sd_bus_start(bus);
        while (sd_bus_process(bus, NULL) > 0 || sd_bus_wait(bus, UINT64_MAX) >= 0)
                ;
        _exit(0);
}

static struct loop *loop;

static void on_late(struct loop_timer *t unused_)
{
        loop_stop(loop);
}

static void on_changed(void *userdata)
{
        struct bound **b = userdata;
        size_t n;

        (void) bound_units(*b, &n);
        if (n == 3)
                loop_stop(loop);
}

/* The agent knows it from its earlier life, and it was unloaded in between. */
TEST(a_bound_unit_that_is_loaded_during_a_walk_is_found)
{
        int listener = listen_as_manager();
        struct loop_timer late;
        struct bound *b;
        pid_t manager;
        size_t n;

        if (listener < 0) {
                CHECK(geteuid() != 0);
                return;
        }
        manager = fork();
        if (manager == 0)
                manage(listener, on_call);
        CHECK_EQ(loop_new(&loop), 0);
        CHECK_EQ(bound_new(&b, loop, "a.target", on_changed, on_changed, &b), 0);
        bound_remember(b, "a.target", NULL);
        bound_remember(b, "late.service", NULL);
        bound_follow(b);
        loop_timer_init(&late, loop, on_late);
        loop_timer_in(&late, 5 * NSEC_PER_SEC);
        loop_run(loop);
        kill(manager, SIGKILL);
        (void) bound_units(b, &n);
        CHECK_EQ(n, 3);
        bound_free(b);
        loop_timer_disarm(&late);
        loop_free(loop);
}

static void on_settled(void *userdata)
{
        *(bool *) userdata = true;
        loop_stop(loop);
}

static void on_other_set(void *userdata unused_)
{
}

/* As each does by itself when it stops: so nobody has to ask again and again. */
TEST(a_set_is_settled_when_its_last_unit_has_reported_that_it_is_inactive)
{
        int listener = listen_as_manager();
        bool settled = false;
        struct loop_timer late;
        struct bound *b;
        pid_t manager;

        if (listener < 0) {
                CHECK(geteuid() != 0);
                return;
        }
        manager = fork();
        if (manager == 0)
                manage(listener, on_call_of_two);
        CHECK_EQ(loop_new(&loop), 0);
        CHECK_EQ(bound_new(&b, loop, "a.target", on_other_set, on_settled, &settled), 0);
        bound_follow(b);
        loop_timer_init(&late, loop, on_late);
        loop_timer_in(&late, 5 * NSEC_PER_SEC);
        loop_run(loop);
        kill(manager, SIGKILL);
        CHECK(settled);
        bound_free(b);
        loop_timer_disarm(&late);
        loop_free(loop);
        close(listener);
}
