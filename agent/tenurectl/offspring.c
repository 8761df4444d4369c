#include "offspring.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

struct process {
        pid_t pid, parent;
        unsigned long long began; /* a pid that is used again is another process */
        bool ours;
};

/* Where the whole of the unified hierarchy is mounted (proc(5), mountinfo). */
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

/* The group of process @of. */
static bool name(struct offspring *o, pid_t of)
{
        char mount[2048], own[2048];

        *o = (struct offspring){.group = -1};
        return find_mount(mount) && find_own(own) &&
               snprintf(o->path, sizeof(o->path), "%s%s/tenure-lock-%d", mount, own, (int) of) <
                       (int) sizeof(o->path);
}

static void open_group(struct offspring *o)
{
        o->group = open(o->path, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (o->group < 0 || faccessat(o->group, "cgroup.kill", W_OK, 0) < 0)
                offspring_end(o); /* a kernel before 5.14 */
}

void offspring_start(struct offspring *o)
{
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        if (name(o, getpid()) && mkdir(o->path, 0755) == 0)
                open_group(o);
}

void offspring_adopt(struct offspring *o, pid_t of)
{
        if (name(o, of))
                open_group(o);
}

static bool put(const struct offspring *o, const char *file, const char *text)
{
        int fd = o->group < 0 ? -1 : openat(o->group, file, O_WRONLY | O_CLOEXEC);
        bool done = fd >= 0 && write(fd, text, strlen(text)) > 0;

        if (fd >= 0)
                close(fd);
        return done;
}

void offspring_enter(const struct offspring *o)
{
        put(o, "cgroup.procs", "0");
}

/* A line of /proc/PID/stat; the name in it may be anything. */
static bool read_process(pid_t pid, struct process *ret)
{
        char path[40], text[1024], *end;
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
        end = strrchr(text, ')');
        *ret = (struct process){.pid = pid};
        return end && sscanf(end + 1,
                             " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d "
                             "%*d %*d %*d %llu",
                             &ret->parent, &ret->began) == 2;
}

static size_t read_all(struct process **ret)
{
        DIR *d = opendir("/proc");
        struct process *all = NULL;
        size_t n = 0, cap = 0;
        struct dirent *e;

        while (d && (e = readdir(d))) {
                pid_t pid = (pid_t) strtol(e->d_name, NULL, 10);

                if (pid <= 0 || array_reserve(&all, &cap, n + 1, sizeof(*all)) < 0)
                        continue;
                n += read_process(pid, &all[n]);
        }
        if (d)
                closedir(d);
        *ret = all;
        return n;
}

static int by_pid(const void *a, const void *b)
{
        const struct process *p = a, *q = b;

        return p->pid < q->pid ? -1 : p->pid > q->pid;
}

/* Ours are our children, and theirs. */
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

static void send_to(const struct process *p, int signo)
{
        struct process now;
        int fd = (int) syscall(SYS_pidfd_open, p->pid, 0);

        if (fd < 0)
                return;
        if (read_process(p->pid, &now) && now.began == p->began)
                syscall(SYS_pidfd_send_signal, fd, signo, NULL, 0);
        close(fd);
}

size_t offspring_signal(const struct offspring *o, int signo)
{
        cleanup_(freep) struct process *all = NULL;
        size_t n, ours = 0;

        if (signo == SIGKILL)
                put(o, "cgroup.kill", "1");
        n = read_all(&all);
        mark(all, n);
        for (size_t i = 0; i < n; i++)
                if (all[i].ours) {
                        send_to(&all[i], signo);
                        ours++;
                }
        return ours;
}

void offspring_end(struct offspring *o)
{
        if (o->group >= 0)
                close(o->group);
        o->group = -1;
        rmdir(o->path);
}
