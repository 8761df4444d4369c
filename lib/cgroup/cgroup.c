#include "cgroup/cgroup.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

/* The root of the hierarchy, opened once; -1: there is none, or it was not asked for yet. It
 * stays open: a path from there leads to the same group, whatever is mounted above it later. */
static int root = -1;

bool cgroup_is_there(void)
{
        /* The second is for the hybrid hierarchy, where version 1 has the controllers. */
        static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};

        for (size_t i = 0; root < 0 && i < ARRAY_SIZE(roots); i++) {
                root = open(roots[i], O_DIRECTORY | O_PATH | O_CLOEXEC);
                if (root >= 0 && faccessat(root, "cgroup.procs", F_OK, 0) < 0) {
                        close(root);
                        root = -1;
                }
        }
        return root >= 0;
}

static int open_file(const char *path, const char *file, int flags)
{
        char text[PATH_MAX];
        int fd;

        if (!cgroup_is_there())
                return -ENOENT;
        if (snprintf(text, sizeof(text), ".%s/%s", path, file) >= (int) sizeof(text))
                return -ENAMETOOLONG;
        fd = openat(root, text, flags | O_CLOEXEC | O_NOFOLLOW);
        return fd < 0 ? -errno : fd;
}

static int put(const char *path, const char *file, const char *value)
{
        int fd = open_file(path, file, O_WRONLY), r;

        if (fd < 0)
                return fd;
        r = write(fd, value, 1) == 1 ? 0 : -errno;
        close(fd);
        /* The group was removed in between. */
        return r == -ENODEV ? -ENOENT : r;
}

/* ---- freezing ---- */

/* Marks each group that we have frozen: an extended attribute survives the process, and ends
 * with the group. systemd marks groups in the same way. */
#define MARK "user.tenure.frozen"

/* Whether somebody has frozen the group itself: 1, 0 or a negative errno. */
static int is_frozen(const char *path)
{
        int fd = open_file(path, "cgroup.freeze", O_RDONLY), r;
        char c = '0';

        if (fd < 0)
                return fd;
        r = read(fd, &c, 1) < 0 ? -errno : c == '1';
        close(fd);
        return r == -ENODEV ? -ENOENT : r;
}

static bool has_mark(int group)
{
        return fgetxattr(group, MARK, NULL, 0) >= 0 || errno == EOPNOTSUPP;
}

bool cgroup_is_marked(const char *path)
{
        int group = open_file(path, "", O_RDONLY | O_DIRECTORY);
        bool marked = group >= 0 && has_mark(group);

        if (group >= 0)
                close(group);
        return marked;
}

int cgroup_freeze(const char *path)
{
        int group = open_file(path, "", O_RDONLY | O_DIRECTORY), r;

        if (group < 0)
                return group;
        r = is_frozen(path);
        if (r > 0) {
                r = !has_mark(group);
        } else if (r == 0) {
                /* Marked first: a process that is killed in between leaves nothing frozen
                 * without a mark. */
                (void) !fsetxattr(group, MARK, "", 0, 0);
                r = put(path, "cgroup.freeze", "1");
        }
        close(group);
        return r;
}

int cgroup_thaw(const char *path)
{
        int group = open_file(path, "", O_RDONLY | O_DIRECTORY), r;

        if (group < 0)
                return group;
        r = put(path, "cgroup.freeze", "0");
        if (r == 0)
                (void) !fremovexattr(group, MARK);
        close(group);
        return r;
}

/* ---- killing ---- */

/* While processes are killed one by one, others may fork. */
#define KILL_PASSES 10

struct killing {
        int result;
        bool found; /* a process */
};

static void kill_each(void *userdata, const char *path)
{
        struct killing *k = userdata;
        int fd = open_file(path, "cgroup.procs", O_RDONLY), pid;
        FILE *f;

        if (fd < 0) /* the group was removed in between */
                return;
        f = fdopen(fd, "r");
        if (!f) {
                close(fd);
                *k = (struct killing){.result = -ENOMEM, .found = true};
                return;
        }
        while (fscanf(f, "%d", &pid) == 1) {
                k->found = true;
                if (pid > 0 && kill(pid, SIGKILL) < 0 && errno != ESRCH)
                        k->result = -errno;
        }
        fclose(f);
        cgroup_children(path, kill_each, k);
}

static bool has_file(const char *path, const char *file)
{
        int fd = open_file(path, file, O_PATH);

        if (fd >= 0)
                close(fd);
        return fd >= 0;
}

bool cgroup_can_kill(void)
{
        char own[PATH_MAX];

        return has_file(cgroup_own(own, sizeof(own)), "cgroup.kill");
}

int cgroup_kill(const char *path)
{
        struct killing k = {.found = true};
        int r = put(path, "cgroup.kill", "1");

        if (r != -ENOENT || !has_file(path, "cgroup.procs"))
                return r;
        /* The kernel is older than Linux 5.14. */
        for (int i = 0; i < KILL_PASSES && k.found; i++) {
                k = (struct killing){0};
                kill_each(&k, path);
        }
        return k.result;
}

int cgroup_is_populated(const char *path)
{
        int fd = open_file(path, "cgroup.events", O_RDONLY);
        char text[256];
        ssize_t n;

        if (fd < 0)
                return fd == -ENOENT ? 0 : fd;
        n = read(fd, text, sizeof(text) - 1);
        if (n < 0) {
                int r = -errno;

                close(fd);
                return r == -ENODEV ? 0 : r;
        }
        close(fd);
        text[n] = '\0';
        return strstr(text, "populated 1") ? 1 : 0;
}

void cgroup_children(const char *path, void (*fn)(void *userdata, const char *child),
                     void *userdata)
{
        int fd = open_file(path, "", O_RDONLY | O_DIRECTORY);
        char text[PATH_MAX];
        const struct dirent *e;
        DIR *d = fd < 0 ? NULL : fdopendir(fd);

        if (!d) {
                if (fd >= 0)
                        close(fd);
                return;
        }
        while ((e = readdir(d)))
                if (e->d_type == DT_DIR && e->d_name[0] != '.' &&
                    snprintf(text, sizeof(text), "%s/%s", path, e->d_name) < (int) sizeof(text))
                        fn(userdata, text);
        closedir(d);
}

/* What follows a path if the process has ended and its group is gone (cgroups(7)). */
#define DELETED " (deleted)"

static int read_group(const char *path, char *out, size_t size)
{
        char line[PATH_MAX + sizeof(DELETED) + 4];
        FILE *f = fopen(path, "re");
        int r = -ESRCH;

        if (!f)
                return errno == ENOENT ? -ESRCH : -errno;
        while (fgets(line, sizeof(line), f)) {
                if (strncmp(line, "0::", 3) != 0)
                        continue;
                line[strcspn(line, "\n")] = '\0';
                if (strlen(line) - 3 >= size)
                        r = -ENAMETOOLONG;
                else if (!strstr(line, DELETED)) {
                        strcpy(out, line + 3);
                        r = 0;
                }
        }
        fclose(f);
        return r;
}

const char *cgroup_own(char *out, size_t size)
{
        if (read_group("/proc/self/cgroup", out, size) < 0)
                out[0] = '\0';
        return out;
}

int cgroup_of_process(pid_t pid, char *out, size_t size)
{
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d/cgroup", (int) pid);
        return read_group(path, out, size);
}

bool cgroup_is_within(const char *path, const char *group)
{
        size_t n = strlen(group);

        return strncmp(path, group, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

/* a-b.slice is in a.slice; -.slice is the root. */
static int put_slice(const char *slice, char *out, size_t size)
{
        size_t at = 0, n = strlen(slice);

        out[0] = '\0';
        if (strcmp(slice, "-.slice") == 0)
                return 0;
        if (n < 6 || strcmp(slice + n - 6, ".slice") != 0)
                return -EINVAL;
        n -= 6;
        for (size_t i = 1; i <= n; i++) {
                int k;

                if (i < n && slice[i] != '-')
                        continue;
                k = snprintf(out + at, size - at, "/%.*s.slice", (int) i, slice);
                if (k >= (int) (size - at))
                        return -ENAMETOOLONG;
                at += (size_t) k;
        }
        return 0;
}

/* systemd puts "_" in front of a unit's name that could be mistaken for a file of the
 * kernel. */
static bool is_a_files_name(const char *unit)
{
        static const char *const words[] = {"cgroup", "cpu",  "cpuacct", "cpuset",  "io",
                                            "blkio",  "misc", "memory",  "devices", "pids",
                                            "rdma",   "dmem", "hugetlb"};
        size_t n = strcspn(unit, ".");

        if (unit[0] == '_' || unit[0] == '.')
                return true;
        for (size_t i = 0; i < ARRAY_SIZE(words); i++)
                if (strlen(words[i]) == n && strncmp(unit, words[i], n) == 0)
                        return true;
        return false;
}

int cgroup_of_unit(const char *slice, const char *unit, char *out, size_t size)
{
        int r, k;
        size_t at;

        if (!slice)
                return put_slice(unit, out, size);
        r = put_slice(slice, out, size);
        if (r < 0)
                return r;
        at = strlen(out);
        k = snprintf(out + at, size - at, "/%s%s", is_a_files_name(unit) ? "_" : "", unit);
        return k >= (int) (size - at) ? -ENAMETOOLONG : 0;
}
