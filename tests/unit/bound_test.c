#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bus/bound_set.h"
#include "bus/bus.h"
#include "bus/strays.h"
#include "test.h"

/* A bus without another side: messages need one. */
static sd_bus *nobodys_bus(int *ret_other)
{
        sd_bus *bus = NULL;
        int fds[2];

        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
        CHECK(sd_bus_new(&bus) >= 0 && sd_bus_set_fd(bus, fds[0], fds[0]) >= 0 &&
              sd_bus_start(bus) >= 0);
        *ret_other = fds[1];
        return bus;
}

static void add_text(sd_bus_message *m, const char *key, const char *value)
{
        CHECK(sd_bus_message_append(m, "{sv}", key, "s", value) >= 0);
}

static void add_list(sd_bus_message *m, const char *key, const char *a, const char *b)
{
        CHECK(sd_bus_message_append(m, "{sv}", key, "as", b ? 2 : 1, a, b) >= 0);
}

/* Whatever somebody else has written, a message with it can be sent and read. */
TEST(text_from_elsewhere_is_valid_on_the_bus)
{
        const char *first, *second;
        sd_bus_message *m = NULL;
        int other;
        sd_bus *bus = nobodys_bus(&other);

        CHECK(sd_bus_message_new_signal(bus, &m, "/a", "a.b", "C") >= 0);
        CHECK_EQ(bus_append_text(m, "\xf9\x80\x80\x80 and \xef\xbf\xbf"), 0);
        CHECK_EQ(bus_append_text(m, "d\xc3\xbcnn"), 0);
        CHECK(sd_bus_message_seal(m, 1, 0) >= 0 && sd_bus_message_rewind(m, true) >= 0);
        CHECK(sd_bus_message_read(m, "ss", &first, &second) > 0);
        CHECK_STR(first, "???? and ???");
        CHECK_STR(second, "d\xc3\xbcnn");
        sd_bus_message_unref(m);
        sd_bus_close_unref(bus);
        close(other);
}

/* All properties of a unit, as @fn adds them. */
static int read_one(sd_bus *bus, struct bound_set *s, size_t unit,
                    void (*fn)(sd_bus_message *m))
{
        sd_bus_message *m = NULL;
        int r;

        CHECK(sd_bus_message_new_signal(bus, &m, "/a", "a.b", "C") >= 0);
        CHECK(sd_bus_message_open_container(m, 'a', "{sv}") >= 0);
        fn(m);
        CHECK(sd_bus_message_close_container(m) >= 0);
        CHECK(sd_bus_message_seal(m, 1, 0) >= 0 && sd_bus_message_rewind(m, true) >= 0);
        r = bound_set_read(s, unit, m, "/system.slice/tenured.service");
        sd_bus_message_unref(m);
        return r;
}

static void root(sd_bus_message *m)
{
        add_text(m, "ActiveState", "inactive");
        add_list(m, "BoundBy", "a.service", "own.service");
        add_list(m, "WantedBy", "multi-user.target", NULL);
        add_list(m, "RequiredBy", "other.target", "a.service");
}

static void a(sd_bus_message *m)
{
        add_text(m, "ActiveState", "deactivating");
        add_text(m, "Slice", "x-y.slice");
        add_text(m, "ControlGroup", "");
        CHECK(sd_bus_message_append(m, "{sv}", "TimeoutStopUSec", "t", UINT64_MAX) >= 0);
        add_list(m, "ConsistsOf", "part.service", NULL);
        add_list(m, "After", "root.target", "basic.target");
}

static void own(sd_bus_message *m)
{
        add_text(m, "ActiveState", "active");
        add_text(m, "ControlGroup", "/system.slice");
}

static void target(sd_bus_message *m)
{
        add_text(m, "ActiveState", "active");
}

static void part(sd_bus_message *m)
{
        add_text(m, "ActiveState", "failed");
        add_text(m, "ControlGroup", "/system.slice/part.service");
        CHECK(sd_bus_message_append(m, "{sv}", "TimeoutStopUSec", "t", (uint64_t) 1500000) >=
              0);
        add_list(m, "After", "a.service", NULL);
}

static void with_main(sd_bus_message *m)
{
        CHECK(sd_bus_message_append(m, "{sv}", "MainPID", "u", (uint32_t) 4711) >= 0);
}

static void nonsense(sd_bus_message *m)
{
        CHECK(sd_bus_message_append(m, "{sv}", "BoundBy", "u", 1u) >= 0);
}

TEST(what_goes_down_with_a_unit)
{
        struct bound_set s = {0}, other = {0};
        int fd;
        sd_bus *bus = nobodys_bus(&fd);

        CHECK_EQ(bound_set_sight(&s), BOUND_UNKNOWN);
        bound_set_add(&s, "root.target");
        CHECK_EQ(read_one(bus, &s, 0, root), 0);
        /* Each unit once, in the order in which it is found, whatever the kind of
         * dependency. */
        CHECK_EQ(s.n, 4);
        CHECK_STR(s.units[1].name, "a.service");
        CHECK_STR(s.units[2].name, "own.service");
        CHECK_STR(s.units[3].name, "other.target");
        CHECK_EQ(read_one(bus, &s, 1, a), 0);
        CHECK_EQ(read_one(bus, &s, 2, own), 0);
        CHECK_EQ(read_one(bus, &s, 3, target), 0);
        CHECK_EQ(s.n, 5);
        CHECK_EQ(bound_set_sight(&s), BOUND_SOME);
        CHECK_EQ(read_one(bus, &s, 4, part), 0);
        bound_set_order(&s);

        /* Where it will be, since it is nowhere yet. */
        CHECK_STR(s.units[1].control_group, "/x.slice/x-y.slice/a.service");
        CHECK_EQ(s.units[1].stop_timeout, INT64_MAX);
        CHECK(!s.units[1].is_down && s.units[1].is_after);
        /* What we are in ourselves is left alone, and not waited for. */
        CHECK(!s.units[2].control_group && s.units[2].is_down && !s.units[2].is_after);
        CHECK(s.units[3].is_down);
        CHECK_STR(s.units[4].control_group, "/system.slice/part.service");
        CHECK_EQ(s.units[4].stop_timeout, 1500 * NSEC_PER_MSEC);
        CHECK(s.units[4].is_down && s.units[4].is_after);

        CHECK(!bound_set_is_other(&s, &s));
        CHECK(bound_set_is_other(&s, &other));
        CHECK(bound_set_find(&s, "part.service") == &s.units[4]);
        CHECK(!bound_set_find(&s, "multi-user.target"));
        CHECK(read_one(bus, &s, 0, nonsense) < 0);
        bound_set_clear(&s);
        CHECK_EQ(s.n, 0);
        sd_bus_close(bus);
        sd_bus_unref(bus);
        close(fd);
}

TEST(what_is_never_fenced)
{
        const char *self = "/system.slice/tenured.service";

        CHECK(bound_is_ours("/", self));
        CHECK(bound_is_ours("/init.scope", self));
        CHECK(bound_is_ours("/system.slice", self));
        CHECK(bound_is_ours(self, self));
        CHECK(!bound_is_ours("/system.slice/tenured.service-2", self));
        CHECK(!bound_is_ours("/system.slice/a.service", self));
}

TEST(the_main_process_of_a_unit_is_known)
{
        struct bound_set s = {0};
        int fd;
        sd_bus *bus = nobodys_bus(&fd);

        bound_set_add(&s, "a.service");
        CHECK_EQ(read_one(bus, &s, 0, a), 0);
        CHECK_EQ(s.units[0].main_pid, 0);
        CHECK_EQ(read_one(bus, &s, 0, with_main), 0);
        CHECK_EQ(s.units[0].main_pid, 4711);
        bound_set_clear(&s);
        sd_bus_unref(bus);
        close(fd);
}

static void alias(sd_bus_message *m)
{
        add_text(m, "Id", "root.target");
        root(m);
        add_list(m, "RequisiteOf", "root.target", NULL);
}

/* Units name the root by its first name, whichever of its names it was asked for by. */
TEST(the_root_may_be_given_by_an_alias)
{
        struct bound_set s = {0};
        int fd;
        sd_bus *bus = nobodys_bus(&fd);

        bound_set_add(&s, "alias.target");
        CHECK_EQ(read_one(bus, &s, 0, alias), 0);
        CHECK_EQ(s.n, 4); /* and not once more by its first name */
        CHECK_EQ(read_one(bus, &s, 1, a), 0);
        bound_set_order(&s);
        CHECK(s.units[1].is_after);
        bound_set_clear(&s);
        sd_bus_unref(bus);
        close(fd);
}

TEST(a_set_says_that_it_lacks_units)
{
        struct bound_set s = {0};
        char name[32];

        for (int i = 0; i < 4096; i++) {
                snprintf(name, sizeof(name), "a%d.service", i);
                bound_set_add(&s, name);
        }
        bound_set_add(&s, "a7.service");
        CHECK(!s.is_full);
        bound_set_add(&s, "b.service");
        CHECK(s.is_full && s.n == 4096);
        bound_set_clear(&s);
        CHECK(!s.is_full);
}

static bool is_it(const void *userdata, const char *group)
{
        return strcmp(group, userdata) == 0;
}

TEST(groups_beside_those_of_bound_units_are_forgotten_when_they_are_over)
{
        struct strays s = {0};

        CHECK(strays_add(&s, "a.service", "/no-such.scope", false));
        CHECK(strays_add(&s, "a.service", "/no-other.scope", true));
        CHECK(strays_add(&s, "b.service", "/no-such.scope", false));
        CHECK(!strays_add(&s, "a.service", "/no-such.scope", false));
        CHECK_EQ(s.n, 3);
        CHECK(s.all[1].is_ours && strcmp(s.all[1].group, "/no-other.scope") == 0);
        CHECK(strays_forget(&s, is_it, "/no-such.scope"));
        CHECK_EQ(s.n, 1);
        CHECK_STR(s.all[0].group, "/no-other.scope");
        CHECK(!strays_forget(&s, is_it, "/no-such.scope"));
        CHECK(strays_add(&s, "a.service", "/no-such.scope", false));
        strays_clear(&s);
}
