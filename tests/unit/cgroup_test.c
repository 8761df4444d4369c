#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cgroup/cgroup.h"
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

#define TOP "/sys/fs/cgroup"

/* A hierarchy without cgroup.kill, as before Linux 5.14, for this process alone. False: only
 * root can have it. */
static bool have_old_kernel(void)
{
        return unshare(CLONE_NEWNS) == 0 &&
               mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
               mount("tmpfs", TOP, "tmpfs", 0, NULL) == 0;
}

static pid_t sleeper_in(const char *group)
{
        char path[256];
        pid_t pid = fork();
        FILE *f;

        if (pid == 0) {
                pause();
                _exit(0);
        }
        snprintf(path, sizeof(path), TOP "%s", group);
        mkdir(path, 0755);
        snprintf(path, sizeof(path), TOP "%s/cgroup.procs", group);
        f = fopen(path, "w");
        CHECK(f);
        fprintf(f, "%d\n", (int) pid);
        fclose(f);
        return pid;
}

TEST(all_processes_of_a_group_are_killed_where_the_kernel_has_no_cgroup_kill)
{
        pid_t pids[3];
        int status;

        if (!have_old_kernel()) {
                CHECK(geteuid() != 0);
                return;
        }
        CHECK(!cgroup_can_kill());
        sleeper_in("");
        pids[0] = sleeper_in("/a.slice");
        pids[1] = sleeper_in("/a.slice/b.service");
        pids[2] = sleeper_in("/a.slice/b.service/c");
        CHECK_EQ(cgroup_kill("/a.slice"), 0);
        for (size_t i = 0; i < ARRAY_SIZE(pids); i++) {
                CHECK_EQ(waitpid(pids[i], &status, 0), pids[i]);
                CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        }
        CHECK_EQ(cgroup_kill("/c.slice"), -ENOENT);
}
