#include "offspring.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The most processes in one walk, for a command that forks without end. */
#define WALK_MOST 8192

struct process {
        pid_t pid, parent;
        unsigned long long
                began; /* distinguishes a process from a later one with the same pid */
        bool ours;
};

/* Finds where the root of the unified hierarchy is mounted (proc(5), mountinfo). */
static bool find_mount(char ret[static 2048])
{
        char line[4096], root[1024], at[1024];
        FILE *f = fopen("/proc/self/mountinfo", "re");
        bool found = false;

        while (f && !found && fgets(line, sizeof(line), f))
                if (strstr(line, " - cgroup2 ") &&
                    sscanf(line, "%*s %*s %*s %1023s %1023s", root, at) == 2 &&
                    strcmp(root, "/") == 0) {
                        snprintf(ret, 2048, "%s", at);
                        found = true;
                }
        if (f)
                fclose(f);
        return found;
}

static bool find_own(char ret[static 2048])
{
        FILE *f = fopen("/proc/self/cgroup", "re");
        bool found = false;
        char line[2048];

        while (f && !found && fgets(line, sizeof(line), f)) {
                line[strcspn(line, "\n")] = '\0';
                found = strncmp(line, "0::/", 4) == 0 && !strstr(line, "/..");
                if (found)
                        snprintf(ret, 2048, "%s", strcmp(line, "0::/") == 0 ? "" : line + 3);
        }
        if (f)
                fclose(f);
        return found;
}

/* Sets the control group of process @of. */
static bool name(struct offspring *o, pid_t of)
{
        char mount[2048], own[2048];

        *o = (struct offspring){.kill = -1};
        return find_mount(mount) && find_own(own) &&
               snprintf(o->path, sizeof(o->path), "%s%s/tenure-lock-%d", mount, own, (int) of) <
                       (int) sizeof(o->path);
}

static int open_in_group(const struct offspring *o, const char *file)
{
        char path[sizeof(o->path) + 32];

        snprintf(path, sizeof(path), "%s/%s", o->path, file);
        return open(path, O_WRONLY | O_CLOEXEC);
}

static void open_group(struct offspring *o)
{
        o->kill = open_in_group(o, "cgroup.kill");
        if (o->kill < 0)
                offspring_end(o); /* a kernel before 5.14 */
}

void offspring_adopt(struct offspring *o, pid_t of)
{
        if (name(o, of))
                open_group(o);
}

void offspring_enter(const struct offspring *o)
{
        int fd = o->kill < 0 ? -1 : open_in_group(o, "cgroup.procs");

        if (fd < 0)
                return;
        (void) !write(fd, "0", 1);
        close(fd);
}

bool offspring_parse(const char *stat, pid_t *ret_parent, unsigned long long *ret_began)
{
        const char *end = strrchr(stat, ')');

        return end && sscanf(end + 1,
                             " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                             "%*d %*d %*d %llu",
                             ret_parent, ret_began) == 2;
}

static bool read_process(pid_t pid, struct process *ret)
{
        char path[40], text[1024];
        ssize_t n;
        int fd;

        snprintf(path, sizeof(path), "/proc/%d/stat", (int) pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        n = fd < 0 ? -1 : read(fd, text, sizeof(text) - 1);
        if (fd >= 0)
                close(fd);
        if (n <= 0)
                return false;
        text[n] = '\0';
        *ret = (struct process){.pid = pid};
        return offspring_parse(text, &ret->parent, &ret->began);
}

struct found {
        struct process *all;
        size_t n, cap;
};

/* Adds a process. A child of ours counts even if we may not read it: with hidepid= (proc(5))
 * the kernel hides processes whose program we may not read, or that have capabilities. */
static void add(struct found *f, pid_t pid, bool is_child)
{
        if (array_reserve(&f->all, &f->cap, f->n + 1, sizeof(*f->all)) < 0)
                return;
        if (read_process(pid, &f->all[f->n]))
                f->n++;
        else if (is_child)
                f->all[f->n++] = (struct process){.pid = pid, .parent = getpid()};
}

/* ---- all processes of the host ---- */

static void read_all(struct found *f)
{
        DIR *d = opendir("/proc");
        struct dirent *e;

        while (d && (e = readdir(d))) {
                pid_t pid = (pid_t) strtol(e->d_name, NULL, 10);

                if (pid > 0)
                        add(f, pid, false);
        }
        if (d)
                closedir(d);
}

static int by_pid(const void *a, const void *b)
{
        const struct process *p = a, *q = b;

        return p->pid < q->pid ? -1 : p->pid > q->pid;
}

/* Marks our children and their descendants as ours. */
static void mark(struct process *all, size_t n)
{
        bool more = n > 0;

        if (more)
                qsort(all, n, sizeof(*all), by_pid);
        while (more) {
                more = false;
                for (size_t i = 0; i < n; i++) {
                        const struct process key = {.pid = all[i].parent}, *parent;

                        if (all[i].ours)
                                continue;
                        parent = bsearch(&key, all, n, sizeof(*all), by_pid);
                        all[i].ours = key.pid == getpid() || (parent && parent->ours);
                        more |= all[i].ours;
                }
        }
}

/* Reads all processes of the host, and keeps those that are ours. */
static void scan(struct found *f)
{
        size_t n = 0;

        read_all(f);
        mark(f->all, f->n);
        for (size_t i = 0; i < f->n; i++)
                if (f->all[i].ours)
                        f->all[n++] = f->all[i];
        f->n = n;
}

/* ---- only our own processes ---- */

/* Adds the children of one thread as the kernel lists them; none if the thread is gone. Returns
 * false if the kernel has no such lists (CONFIG_PROC_CHILDREN). */
static bool add_children(struct found *f, pid_t pid, const char *tid)
{
        cleanup_(freep) char *line = NULL;
        char path[64], *p, *end;
        size_t size = 0;
        FILE *in;

        snprintf(path, sizeof(path), "/proc/%d/task/%.20s/children", (int) pid, tid);
        in = fopen(path, "re");
        if (!in)
                return errno != ENOENT || pid != getpid();
        if (getline(&line, &size, in) > 0)
                for (p = line; f->n < WALK_MOST; p = end) {
                        pid_t child = (pid_t) strtol(p, &end, 10);

                        if (end == p)
                                break;
                        add(f, child, pid == getpid());
                }
        fclose(in);
        return true;
}

static bool walk_one(struct found *f, pid_t pid)
{
        char path[40];
        struct dirent *e;
        bool listed = true;
        DIR *d;

        snprintf(path, sizeof(path), "/proc/%d/task", (int) pid);
        d = opendir(path);
        while (d && (e = readdir(d)))
                if (*e->d_name != '.')
                        listed = add_children(f, pid, e->d_name) && listed;
        if (d)
                closedir(d);
        return d && listed;
}

/* Walks from parents to children. The cost depends on our own processes, not on all of the
 * host's: a thousand keepers each have to end a command in a fraction of a second. Processes
 * that end or fork meanwhile may be missed. Returns false if this is not possible. */
static bool walk(struct found *f)
{
        if (!walk_one(f, getpid()))
                return false;
        for (size_t i = 0; i < f->n && f->n < WALK_MOST; i++)
                (void) !walk_one(f, f->all[i].pid);
        return true;
}

static void find(struct found *f)
{
        if (!walk(f)) {
                f->n = 0;
                scan(f);
        }
}

static void send_to(const struct process *p, int signo)
{
        struct process now;
        int fd;

        if (p->parent == getpid()) { /* the number is its own until we wait for it */
                kill(p->pid, signo);
                return;
        }
        fd = (int) syscall(SYS_pidfd_open, p->pid, 0);
        if (read_process(p->pid, &now) && now.began == p->began) {
                if (fd >= 0)
                        syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0);
                else /* no descriptor is left, or a seccomp filter refuses pidfds */
                        kill(p->pid, signo);
        }
        if (fd >= 0)
                close(fd);
}

static bool has(const struct found *f, const struct process *p)
{
        for (size_t i = 0; i < f->n; i++)
                if (f->all[i].pid == p->pid && f->all[i].began == p->began)
                        return true;
        return false;
}

static bool has_pid(const struct found *f, pid_t pid)
{
        for (size_t i = 0; i < f->n; i++)
                if (f->all[i].pid == pid)
                        return true;
        return false;
}

/* A process that was missed because its parent ended meanwhile is our own child by now. */
static void send_to_missed(const struct found *had, int signo)
{
        struct found f = {0};

        find(&f);
        for (size_t i = 0; i < f.n; i++)
                if (!has(had, &f.all[i]))
                        send_to(&f.all[i], signo);
        free(f.all);
}

static int remove_empty(const char *path, const struct stat *st, int type, struct FTW *at)
{
        (void) st;
        (void) at;
        if (type == FTW_DP)
                (void) !rmdir(path);
        return 0;
}

/* Removes a group, and the groups that the command has made in it. The kernel keeps those that
 * have processes. */
static void remove_group(const char *path)
{
        if (rmdir(path) < 0 && errno == EBUSY)
                nftw(path, remove_empty, 8, FTW_DEPTH | FTW_PHYS);
}

/* Makes a control group. One may exist already, left by a process with our pid that was killed
 * together with its parent. */
static bool make_group(const char *path)
{
        if (mkdir(path, 0755) == 0)
                return true;
        if (errno != EEXIST)
                return false;
        remove_group(path);
        return mkdir(path, 0755) == 0;
}

int offspring_start(struct offspring *o)
{
        struct process own;

        prctl(PR_SET_CHILD_SUBREAPER, 1);
        errno = ENOENT;
        if (!read_process(getpid(), &own))
                return -errno;
        if (name(o, getpid()) && make_group(o->path))
                open_group(o);
        return 0;
}

bool offspring_kill_group(const struct offspring *o)
{
        return o->kill >= 0 && pwrite(o->kill, "1", 1, 0) == 1;
}

size_t offspring_signal(const struct offspring *o, int signo)
{
        struct found f = {0};
        size_t n;

        if (signo == SIGKILL)
                (void) !offspring_kill_group(o);
        find(&f);
        for (size_t i = 0; i < f.n; i++)
                send_to(&f.all[i], signo);
        if (signo != SIGKILL)
                send_to_missed(&f, signo);
        n = f.n;
        if (o->first != 0 && !has_pid(&f, o->first)) {
                kill(o->first, signo);
                n++;
        }
        free(f.all);
        return n;
}

void offspring_close(struct offspring *o)
{
        if (o->kill >= 0)
                close(o->kill);
        o->kill = -1;
}

void offspring_end(struct offspring *o)
{
        offspring_close(o);
        if (*o->path)
                remove_group(o->path);
}
