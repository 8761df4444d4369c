#include <unistd.h>

#include "bus/cgroup.h"
#include "test.h"

static const char *of(const char *slice, const char *unit)
{
        static char path[256];

        CHECK_EQ(cgroup_of_unit(slice, unit, path, sizeof(path)), 0);
        return path;
}

/* As systemd.slice(5) and systemd's cgroup code have it. */
TEST(where_a_unit_that_is_not_up_will_be)
{
        char small[16];

        CHECK_STR(of("system.slice", "a.service"), "/system.slice/a.service");
        CHECK_STR(of("-.slice", "a.mount"), "/a.mount");
        CHECK_STR(of("a-b-c.slice", "x@1.service"),
                  "/a.slice/a-b.slice/a-b-c.slice/x@1.service");
        CHECK_STR(of(NULL, "tenure-held.slice"), "/tenure.slice/tenure-held.slice");
        CHECK_STR(of("system-a\\x2db.slice", "y.service"),
                  "/system.slice/system-a\\x2db.slice/y.service");
        /* What the kernel has files of is escaped. */
        CHECK_STR(of("system.slice", "memory.service"), "/system.slice/_memory.service");
        CHECK_STR(of("system.slice", "memory-hog.service"), "/system.slice/memory-hog.service");
        CHECK_STR(of("system.slice", "_a.service"), "/system.slice/__a.service");
        CHECK_EQ(cgroup_of_unit("system", "a.service", small, sizeof(small)), -EINVAL);
        CHECK_EQ(cgroup_of_unit("system.slice", "a.service", small, sizeof(small)),
                 -ENAMETOOLONG);
}

TEST(what_is_within_a_control_group)
{
        CHECK(cgroup_is_within("/a.slice", "/a.slice"));
        CHECK(cgroup_is_within("/a.slice/b.service", "/a.slice"));
        CHECK(!cgroup_is_within("/a.slice-2/b.service", "/a.slice"));
        CHECK(!cgroup_is_within("/b.slice", "/a.slice"));
        CHECK_EQ(cgroup_is_populated("/no-such.slice"), 0);
        CHECK_EQ(cgroup_kill("/no-such.slice"), -ENOENT);
        CHECK_EQ(cgroup_freeze("/no-such.slice"), -ENOENT);
        CHECK_EQ(cgroup_thaw("/no-such.slice"), -ENOENT);
        CHECK(!cgroup_is_marked("/no-such.slice"));
}

TEST(where_a_process_is)
{
        char own[4096], of[4096], small[1];

        CHECK_EQ(cgroup_of_process(getpid(), of, sizeof(of)), 0);
        CHECK_STR(of, cgroup_own(own, sizeof(own)));
        CHECK(of[0] == '/');
        CHECK_EQ(cgroup_of_process(getpid(), small, sizeof(small)), -ENAMETOOLONG);
        CHECK_EQ(cgroup_of_process(INT32_MAX, of, sizeof(of)), -ESRCH);
}
