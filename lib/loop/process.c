#include "loop/process.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define FEW 256 /* client descriptors; up to this number, all descriptors are counted */

/* The beginning of the file as a string; empty if it cannot be read. */
static void read_start(const char *path, char *out, size_t size)
{
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, out, size - 1) : 0;

        if (fd >= 0)
                close(fd);
        out[n > 0 ? n : 0] = '\0';
}

/* When the machine started, in seconds since 1970; 0: unknown. The line comes after those of
 * the processors. */
static uint64_t booted(void)
{
        FILE *f = fopen("/proc/stat", "re");
        uint64_t at = 0;
        char *line = NULL;
        size_t size = 0;

        while (f && at == 0 && getline(&line, &size, f) > 0)
                (void) sscanf(line, "btime %" SCNu64, &at);
        free(line);
        if (f)
                fclose(f);
        return at;
}

/* When this process started: the 22nd field of the line, in clock ticks since boot. Fields are
 * counted from the end of the name, which may contain anything. */
static double started(void)
{
        char line[1024];
        const char *p;
        uint64_t ticks;

        read_start("/proc/self/stat", line, sizeof(line));
        p = strrchr(line, ')');
        for (int i = 2; p && i < 22; i++) {
                p = strchr(p, ' ');
                if (p)
                        p++;
        }
        if (!p || sscanf(p, "%" SCNu64, &ticks) != 1)
                return 0;
        return (double) booted() + (double) ticks / (double) sysconf(_SC_CLK_TCK);
}

static uint64_t count_fds(void)
{
        DIR *d = opendir("/proc/self/fd");
        const struct dirent *e;
        uint64_t n = 0;

        if (!d)
                return 0;
        while ((e = readdir(d)))
                n += e->d_name[0] != '.';
        closedir(d);
        return n > 0 ? n - 1 : 0; /* without the descriptor of the directory itself */
}

static uint64_t open_fds(struct process_look *l, uint64_t clients)
{
        struct stat st;
        uint64_t n;

        /* Since Linux 6.2 st_size is the number of descriptors. */
        if (stat("/proc/self/fd", &st) == 0 && st.st_size > 0)
                return (uint64_t) st.st_size;
        if (clients > FEW)
                return l->other_fds + clients;
        n = count_fds();
        l->other_fds = n - min_of(n, clients);
        return n;
}

void process_look(struct process_look *l, uint64_t clients, struct process_usage *ret)
{
        uint64_t pages = 0, resident = 0, page = (uint64_t) sysconf(_SC_PAGESIZE);
        struct rusage u = {0};
        struct rlimit r = {0};
        char line[256];

        *ret = (struct process_usage){0};
        if (getrusage(RUSAGE_SELF, &u) == 0)
                ret->cpu = (u.ru_utime.tv_sec + u.ru_stime.tv_sec) * NSEC_PER_SEC +
                           (u.ru_utime.tv_usec + u.ru_stime.tv_usec) * NSEC_PER_USEC;
        /* Read once, because the date may be set later. */
        if (l->started == 0)
                l->started = started();
        ret->started = l->started;
        read_start("/proc/self/statm", line, sizeof(line));
        if (sscanf(line, "%" SCNu64 " %" SCNu64, &pages, &resident) == 2) {
                ret->virtual_ = pages * page;
                ret->resident = resident * page;
        }
        if (getrlimit(RLIMIT_AS, &r) == 0)
                ret->virtual_max = r.rlim_cur == RLIM_INFINITY ? UINT64_MAX : r.rlim_cur;
        if (getrlimit(RLIMIT_NOFILE, &r) == 0)
                ret->fds_max = r.rlim_cur;
        ret->fds = open_fds(l, clients);
}
