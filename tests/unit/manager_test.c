/* Calls to a service manager that answers, refuses, hangs, closes the connection, or is not
 * there, and what bound.c makes of how they end. The service manager is one of our own, on the
 * same loop. */
#include <sched.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "bus/bound.h"
#include "bus/manager.h"
#include "test.h"
#include "virtual_time.h"

#define SOCKET "/run/systemd/private"
#define CONNECTIONS_MAX 8

static struct {
        struct loop *loop;
        struct manager manager;
        unsigned n_up;

        int listener; /* the service manager's; -1: it is not there */
        struct loop_io accepts;
        bool closes; /* ends the connection on which it was asked to */
        bool hangs;
        unsigned n_stops;
        struct connection {
                struct loop_io io;
                sd_bus *sd;
        } connections[CONNECTIONS_MAX];
        size_t n;
} w;

/* ---- the service manager ---- */

/* Answers with a unit for each name, by the unit's own name. */
static int list_units(sd_bus_message *m)
{
        static const struct {
                const char *asked, *name, *state;
                uint32_t job;
        } units[] = {{"a.service", "a.service", "active", 0},
                     {"b.service", "b.service", "failed", 7},
                     {"another-name.target", "b.target", "active", 0},
                     {"a.target", "a.target", "inactive", 0}};
        sd_bus_message *reply = NULL;
        const char *name;

        CHECK(sd_bus_message_new_method_return(m, &reply) >= 0);
        CHECK(sd_bus_message_open_container(reply, 'a', "(ssssssouso)") >= 0);
        CHECK(sd_bus_message_enter_container(m, 'a', "s") >= 0);
        while (sd_bus_message_read(m, "s", &name) > 0)
                for (size_t i = 0; i < ARRAY_SIZE(units); i++)
                        if (strcmp(units[i].asked, name) == 0)
                                CHECK(sd_bus_message_append(reply, "(ssssssouso)",
                                                            units[i].name, "", "",
                                                            units[i].state, "", "", "/u",
                                                            units[i].job, "", "/j") >= 0);
        CHECK(sd_bus_message_close_container(reply) >= 0);
        CHECK(sd_bus_send(NULL, reply, NULL) >= 0);
        sd_bus_message_unref(reply);
        return 1;
}

/* Does as the method's name says. */
static int on_call(sd_bus_message *m, void *userdata unused_, sd_bus_error *error unused_)
{
        if (w.hangs)
                return 1;
        if (sd_bus_message_is_method_call(m, NULL, "GetAll"))
                return sd_bus_reply_method_return(m, "a{sv}", 1, "ActiveState", "s",
                                                  "inactive");
        if (sd_bus_message_is_method_call(m, SYSTEMD_MANAGER, "StopUnit")) {
                if (++w.n_stops > 1)
                        return sd_bus_reply_method_return(m, "o", "/job");
                w.closes = true;
        }
        if (sd_bus_message_is_method_call(m, SYSTEMD_MANAGER, "Answer"))
                return sd_bus_reply_method_return(m, "s", "");
        if (sd_bus_message_is_method_call(m, SYSTEMD_MANAGER, "Refuse"))
                return sd_bus_reply_method_errorf(m, SD_BUS_ERROR_ACCESS_DENIED, "no");
        if (sd_bus_message_is_method_call(m, SYSTEMD_MANAGER, "Close"))
                w.closes = true;
        if (sd_bus_message_is_method_call(m, SYSTEMD_MANAGER, "ListUnitsByNames"))
                return list_units(m);
        return 1; /* hangs */
}

static void on_input(struct loop_io *io, int events unused_)
{
        struct connection *c = container_of(io, struct connection, io);
        int r;

        while ((r = sd_bus_process(c->sd, NULL)) > 0)
                ;
        if (r == 0 && !w.closes)
                return;
        w.closes = false;
        loop_io_stop(&c->io);
        c->sd = sd_bus_close_unref(c->sd);
}

static void on_connection(struct loop_io *io unused_, int events unused_)
{
        struct connection *c = &w.connections[w.n++];
        int fd = accept4(w.listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        CHECK(fd >= 0 && w.n < CONNECTIONS_MAX);
        CHECK(sd_bus_new(&c->sd) >= 0 && sd_bus_set_fd(c->sd, fd, fd) >= 0 &&
              sd_bus_set_server(c->sd, 1, (sd_id128_t){.bytes = {1}}) >= 0 &&
              sd_bus_add_filter(c->sd, NULL, on_call, NULL) >= 0 && sd_bus_start(c->sd) >= 0);
        loop_io_start(&c->io, w.loop, fd, EV_READ, on_input);
        on_input(&c->io, EV_READ); /* sd_bus_start() has read */
}

static void listen_again(void)
{
        struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = SOCKET};

        w.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK_EQ(bind(w.listener, (struct sockaddr *) &at, sizeof(at)), 0);
        CHECK_EQ(listen(w.listener, CONNECTIONS_MAX), 0);
        loop_io_start(&w.accepts, w.loop, w.listener, EV_READ, on_connection);
}

static void vanish(void)
{
        loop_io_stop(&w.accepts);
        close(w.listener);
        CHECK_EQ(unlink(SOCKET), 0);
}

/* ---- who calls ---- */

struct caller {
        struct manager_call call;
        unsigned n_done;
        bool replied;
        int r;
        const char *again; /* called once the first call has ended, or NULL */
};

static void call(struct caller *c, const char *method);

static void on_done(struct manager_call *mc, sd_bus_message *reply, int r)
{
        struct caller *c = container_of(mc, struct caller, call);
        const char *again = c->again;

        CHECK(!manager_is_open(mc));
        c->n_done++;
        c->replied = reply;
        c->r = r;
        c->again = NULL;
        if (again)
                call(c, again);
        loop_stop(w.loop);
}

static void call(struct caller *c, const char *method)
{
        manager_call(&w.manager, &c->call, on_done, method, "");
}

static void run_until(const struct caller *c, unsigned n_done)
{
        while (c->n_done < n_done)
                loop_run(w.loop);
        CHECK_EQ(c->n_done, n_done);
}

static void on_up(struct manager *m unused_)
{
        w.n_up++;
}

static void begin(void)
{
        if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("tmpfs", "/run", "tmpfs", 0, NULL) < 0)
                SKIP("only root can have a /run/systemd of its own");
        CHECK_EQ(mkdir("/run/systemd", 0755), 0);
        memset(&w, 0, sizeof(w));
        CHECK_EQ(loop_new(&w.loop), 0);
        listen_again();
        manager_init(&w.manager, w.loop, on_up);
        virtual_time_begin();
}

static void end(void)
{
        manager_fini(&w.manager);
        for (size_t i = 0; i < w.n; i++) {
                loop_io_stop(&w.connections[i].io);
                sd_bus_close_unref(w.connections[i].sd);
        }
        vanish();
        loop_free(w.loop);
}

TEST(a_call_to_the_service_manager_ends_once_with_its_reply_or_the_connection)
{
        struct caller answered = {0}, refused = {0}, hung = {.again = "Answer"}, closing = {0};

        begin();
        call(&answered, "Answer");
        call(&refused, "Refuse");
        call(&hung, "Hang");
        run_until(&answered, 1);
        run_until(&refused, 1);
        CHECK(answered.replied && answered.r == 0);
        CHECK(refused.replied && refused.r == -EACCES);
        CHECK_EQ(w.n_up, 1);
        CHECK_EQ(hung.n_done, 0);

        call(&closing, "Close");
        run_until(&closing, 1);
        CHECK(!closing.replied && closing.r < 0);
        run_until(&hung, 2); /* called again on the next connection */
        CHECK(hung.replied && hung.r == 0);
        CHECK_EQ(w.n_up, 2);
        CHECK_EQ(w.n, 2);
        CHECK(answered.n_done == 1 && refused.n_done == 1 && closing.n_done == 1);
        end();
}

TEST(a_service_manager_that_hangs_is_given_up_later_each_time)
{
        struct caller one = {0}, other = {.again = "Hang"};
        struct boot_time began = boot_now(); /* no timer counts from before that */

        begin();
        call(&one, "Hang");
        call(&other, "Hang");
        run_until(&one, 1);
        CHECK(!one.replied && one.r < 0 && !other.replied);
        CHECK(boot_diff(boot_now(), began) >= 2 * NSEC_PER_SEC);
        run_until(&other, 2);
        CHECK(boot_diff(boot_now(), began) >= (2 + 4) * NSEC_PER_SEC);
        CHECK(!other.replied);
        CHECK_EQ(w.n_up, 3);

        end();
}

static void on_time(struct loop_timer *t unused_)
{
        loop_stop(w.loop);
}

TEST(for_a_call_that_is_cancelled_nobody_waits)
{
        struct caller c = {0};
        struct loop_timer later;

        begin();
        call(&c, "Hang");
        manager_cancel(&c.call);
        loop_timer_init(&later, w.loop, on_time);
        loop_timer_in(&later, 3 * NSEC_PER_SEC);
        loop_run(w.loop);
        CHECK_EQ(c.n_done, 0);
        CHECK_EQ(w.n_up, 1);
        end();
}

TEST(a_call_to_no_service_manager_ends_too)
{
        struct caller c = {0};

        begin();
        vanish();
        call(&c, "Answer");
        CHECK_EQ(c.n_done, 0);
        run_until(&c, 1);
        CHECK(!c.replied && c.r < 0);
        CHECK_EQ(w.n_up, 0);
        listen_again();
        call(&c, "Answer");
        while (!c.replied) {
                loop_run(w.loop);
                if (!manager_is_open(&c.call))
                        call(&c, "Answer");
        }
        CHECK_EQ(w.n_up, 1);
        end();
}

static void on_list(struct manager_call *mc unused_, sd_bus_message *reply, int r)
{
        struct manager_unit u;

        CHECK_EQ(r, 0);
        CHECK(manager_next_unit(reply, &u) > 0 && u.job == 0);
        CHECK_STR(u.name, "a.service");
        CHECK_STR(u.active_state, "active");
        CHECK(manager_next_unit(reply, &u) > 0 && u.job == 7);
        CHECK_STR(u.name, "b.service");
        CHECK_STR(u.active_state, "failed");
        CHECK_EQ(manager_next_unit(reply, &u), 0);
        loop_stop(w.loop);
}

TEST(units_are_read_one_after_the_other)
{
        char a[] = "a.service", b[] = "b.service", *names[] = {a, b, NULL};
        struct manager_call c = {0};

        begin();
        manager_list(&w.manager, &c, on_list, names);
        loop_run(w.loop);
        end();
}

/* ---- bound.c ---- */

static void on_other_set(void *userdata unused_)
{
}

static void on_sight(void *userdata, enum bound_sight s)
{
        *(enum bound_sight *) userdata = s;
        loop_stop(w.loop);
}

static void on_accepted(void *userdata)
{
        *(bool *) userdata = true;
        loop_stop(w.loop);
}

TEST(a_look_by_who_knows_nothing_yet_walks)
{
        enum bound_sight sight = BOUND_ACTIVE;
        struct bound *b;

        begin();
        CHECK_EQ(bound_new(&b, w.loop, "a.target", on_other_set, NULL, NULL), 0);
        bound_look(b, on_sight, &sight);
        loop_run(w.loop);
        CHECK_EQ(sight, BOUND_NONE);
        bound_free(b);
        end();
}

/* The manager answers with the unit's own name. */
TEST(a_look_sees_a_root_that_is_known_by_another_name)
{
        enum bound_sight sight = BOUND_UNKNOWN;
        struct bound *b;

        begin();
        CHECK_EQ(bound_new(&b, w.loop, "another-name.target", on_other_set, NULL, NULL), 0);
        bound_remember(b, "another-name.target", NULL);
        bound_look(b, on_sight, &sight);
        loop_run(w.loop);
        CHECK_EQ(sight, BOUND_ACTIVE);
        bound_free(b);
        end();
}

TEST(a_look_at_what_is_bound_ends_where_the_service_manager_hangs)
{
        enum bound_sight sight = BOUND_ACTIVE;
        struct bound *b;

        begin();
        w.hangs = true;
        CHECK_EQ(bound_new(&b, w.loop, "a.target", on_other_set, NULL, NULL), 0);
        bound_remember(b, "a.target", NULL);
        bound_look(b, on_sight, &sight);
        loop_run(w.loop);
        CHECK_EQ(sight, BOUND_UNKNOWN);

        w.hangs = false;
        bound_look(b, on_sight, &sight);
        loop_run(w.loop);
        CHECK_EQ(sight, BOUND_NONE);
        bound_free(b);
        end();
}

TEST(an_order_that_ended_with_the_connection_is_given_again)
{
        bool accepted = false;
        struct bound *b;

        begin();
        CHECK_EQ(bound_new(&b, w.loop, "a.target", on_other_set, NULL, NULL), 0);
        bound_stop(b, on_accepted, &accepted);
        loop_run(w.loop);
        CHECK(accepted);
        CHECK_EQ(w.n_stops, 2);
        bound_free(b);
        end();
}
