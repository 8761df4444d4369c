/* For fence.sh: what must not run on two hosts, and whether it did.
 *
 * says FILE [ignore] [stop MSEC]: writes down, every 10 ms, that it runs: one line of FILE, a
 * mapped one, is this process's, so that a write costs nothing and is never seen by half.
 * "ignore": SIGTERM; "stop": goes on for so long after one.
 *
 * says --judge FOLDER LEFT UNTIL: at LEFT, microseconds of the wall clock, the others were
 * told; until UNTIL there was no new place. Prints for each file when it last ran before, and
 * by how much it ran past either: "NAME MARGIN", in microseconds, negative when it ran twice.
 * says --after FOLDER THAW: for how long what had begun before THAW ran after it, at the most.
 * says --up FOLDER NAME...: fails, and names the first that did not run in the last 300 ms. */
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LIVES 1023 /* that a file remembers; the oldest is forgotten */

struct life {
        _Atomic int64_t began, last; /* microseconds of the wall clock; 0: none */
};

struct file {
        _Atomic uint64_t n; /* lives so far */
        uint64_t unused;
        struct life lives[LIVES];
};

static volatile sig_atomic_t notified;

static void on_term(int n)
{
        (void) n;
        notified = 1;
}

static int64_t now_us(clockid_t id)
{
        struct timespec ts;

        clock_gettime(id, &ts);
        return (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static struct file *map_file(const char *path, int write)
{
        int fd = open(path, (write ? O_RDWR | O_CREAT : O_RDONLY) | O_CLOEXEC, 0666);
        struct file *f;
        struct stat st;

        if (fd < 0 || (write && ftruncate(fd, sizeof(*f)) < 0))
                return NULL;
        if (write)
                (void) fchmod(fd, 0666);
        if (fstat(fd, &st) < 0 || st.st_size < (off_t) sizeof(*f)) {
                close(fd);
                return NULL;
        }
        f = mmap(NULL, sizeof(*f), PROT_READ | (write ? PROT_WRITE : 0), MAP_SHARED, fd, 0);
        close(fd);
        return f == MAP_FAILED ? NULL : f;
}

static int say(int argc, char **argv)
{
        struct file *f = map_file(argv[1], 1);
        const struct timespec pause = {.tv_nsec = 10000000};
        int64_t stop_after = 0, end = INT64_MAX, now;
        struct life *l;

        if (!f) {
                perror(argv[1]);
                return 1;
        }
        signal(SIGTERM, on_term);
        for (int i = 2; i < argc; i++)
                if (strcmp(argv[i], "ignore") == 0)
                        signal(SIGTERM, SIG_IGN);
                else if (strcmp(argv[i], "stop") == 0 && i + 1 < argc)
                        stop_after = atoll(argv[++i]) * 1000;
        l = &f->lives[atomic_fetch_add(&f->n, 1) % LIVES];
        atomic_store(&l->last, 0);
        atomic_store(&l->began, now_us(CLOCK_REALTIME));
        for (;;) {
                atomic_store(&l->last, now_us(CLOCK_REALTIME));
                now = now_us(CLOCK_MONOTONIC);
                if (notified && end == INT64_MAX)
                        end = now + stop_after;
                if (now >= end)
                        return 0;
                nanosleep(&pause, NULL);
        }
}

/* Calls @fn for each file's each life. */
static int each(const char *folder, void (*fn)(const char *name, const struct life *l, int end))
{
        DIR *d = opendir(folder);
        struct dirent *e;
        char path[1024];

        if (!d) {
                perror(folder);
                return -1;
        }
        while ((e = readdir(d))) {
                struct file *f;

                snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
                if (e->d_name[0] == '.' || !(f = map_file(path, 0)))
                        continue;
                for (size_t i = 0; i < LIVES; i++)
                        if (f->lives[i].last)
                                fn(e->d_name, &f->lives[i], 0);
                fn(e->d_name, NULL, 1);
                munmap(f, sizeof(*f));
        }
        closedir(d);
        return 0;
}

static int64_t left, until, worst;

static void judge(const char *name, const struct life *l, int end)
{
        static int64_t margin = INT64_MAX;

        if (end) {
                if (margin != INT64_MAX)
                        printf("%s %" PRId64 "\n", name, margin);
                margin = INT64_MAX;
                return;
        }
        if (l->began < left) {
                if (left - l->last < margin)
                        margin = left - l->last;
        } else if (l->began < until && left - l->last < margin) {
                margin = left - l->last;
        }
}

static void after(const char *name, const struct life *l, int end)
{
        (void) name;
        if (!end && l->began < left && l->last - left > worst)
                worst = l->last - left;
}

static int is_up(const char *folder, const char *name)
{
        int64_t now = now_us(CLOCK_REALTIME);
        struct file *f;
        char path[1024];
        int up = 0;

        snprintf(path, sizeof(path), "%s/%s", folder, name);
        f = map_file(path, 0);
        for (size_t i = 0; f && i < LIVES; i++)
                up |= f->lives[i].last > now - 300000;
        if (f)
                munmap(f, sizeof(*f));
        return up;
}

int main(int argc, char **argv)
{
        if (argc >= 2 && argv[1][0] != '-')
                return say(argc, argv);
        if (argc == 5 && strcmp(argv[1], "--judge") == 0) {
                left = atoll(argv[3]);
                until = atoll(argv[4]);
                return each(argv[2], judge) < 0;
        }
        if (argc == 4 && strcmp(argv[1], "--after") == 0) {
                left = atoll(argv[3]);
                if (each(argv[2], after) < 0)
                        return 1;
                printf("%" PRId64 "\n", worst);
                return 0;
        }
        if (argc >= 4 && strcmp(argv[1], "--up") == 0) {
                for (int i = 3; i < argc; i++)
                        if (!is_up(argv[2], argv[i])) {
                                puts(argv[i]);
                                return 1;
                        }
                return 0;
        }
        fprintf(stderr,
                "says: FILE [ignore] [stop MSEC], or --judge, --after, --up; see the source\n");
        return 2;
}
