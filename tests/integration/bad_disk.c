/*
 * For LD_PRELOAD: one call on the directory $BAD_DISK fails, or is the last of its process.
 * $BAD_DISK_CALL says which call (from 1; they are counted from the first $BAD_DISK_FROM on, if
 * that is set), $BAD_DISK_HOW with which errno, or "kill"; with a '+' behind it, all later
 * calls that could fail for the same reason fail too. Each call that is counted, up to there,
 * is listed in the file $BAD_DISK_LOG, the last line being the one that failed.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static long n_calls;

static bool is_in(const char *path)
{
        const char *dir = getenv("BAD_DISK");
        size_t n = dir ? strlen(dir) : 0;

        return n > 0 && strncmp(path, dir, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

static bool is_in_fd(int fd, char path[static PATH_MAX])
{
        char proc[64];
        ssize_t n;

        snprintf(proc, sizeof(proc), "/proc/self/fd/%d", fd);
        n = readlink(proc, path, PATH_MAX - 1);
        path[n > 0 ? n : 0] = '\0';
        return n > 0 && is_in(path);
}

/* Whether the call @what, of @path, is to fail; errno says of what. */
static bool fails(const char *what, const char *path, bool takes_room)
{
        const char *at = getenv("BAD_DISK_CALL"), *how = getenv("BAD_DISK_HOW"),
                   *log = getenv("BAD_DISK_LOG"), *from = getenv("BAD_DISK_FROM");
        bool room = how && strtol(how, NULL, 10) == ENOSPC;
        bool on = false;
        FILE *f;
        long k;

        if (!at || !how || !log || (room && !takes_room))
                return false;
        pthread_mutex_lock(&lock);
        if (n_calls > 0 || !from || strcmp(what, from) == 0)
                n_calls++;
        k = n_calls;
        on = k == atol(at) || (k > atol(at) && strchr(how, '+'));
        f = k > 0 && k <= atol(at) ? fopen(log, "ae") : NULL;
        if (f) {
                fprintf(f, "%s %s\n", what, path);
                fclose(f);
        }
        pthread_mutex_unlock(&lock);
        if (on && strncmp(how, "kill", 4) == 0)
                raise(SIGKILL);
        if (on)
                errno = atoi(how);
        return on;
}

static bool fd_fails(const char *what, int fd, bool takes_room)
{
        char path[PATH_MAX];

        return is_in_fd(fd, path) && fails(what, path, takes_room);
}

static bool at_fails(const char *what, int dir, const char *name, bool takes_room)
{
        char path[PATH_MAX], all[PATH_MAX + 300];

        if (!is_in_fd(dir, path))
                return false;
        snprintf(all, sizeof(all), "%s/%.256s", path, name);
        return fails(what, all, takes_room);
}

#define NEXT(name, type) ((type) dlsym(RTLD_NEXT, name))

int open(const char *path, int flags, ...)
{
        if (is_in(path) && fails("open", path, false))
                return -1;
        return NEXT("open", int (*)(const char *, int, ...))(path, flags, 0);
}

int openat(int dir, const char *name, int flags, ...)
{
        if (at_fails("openat", dir, name, flags & O_CREAT))
                return -1;
        return NEXT("openat", int (*)(int, const char *, int, ...))(dir, name, flags, 0600);
}

ssize_t read(int fd, void *to, size_t n)
{
        return fd_fails("read", fd, false)
                       ? -1
                       : NEXT("read", ssize_t(*)(int, void *, size_t))(fd, to, n);
}

/* Of a write that fails a part is there, in whole sectors. */
ssize_t pwrite(int fd, const void *from, size_t n, off_t at)
{
        ssize_t (*next)(int, const void *, size_t, off_t) =
                NEXT("pwrite", ssize_t(*)(int, const void *, size_t, off_t));

        if (fd_fails("pwrite", fd, true)) {
                int e = errno;

                (void) !next(fd, from, n / 2 / 512 * 512, at);
                errno = e;
                return -1;
        }
        return next(fd, from, n, at);
}

int fdatasync(int fd)
{
        return fd_fails("fdatasync", fd, true) ? -1 : NEXT("fdatasync", int (*)(int))(fd);
}

int fsync(int fd)
{
        return fd_fails("fsync", fd, true) ? -1 : NEXT("fsync", int (*)(int))(fd);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
        return fd_fails("fallocate", fd, true)
                       ? -1
                       : NEXT("fallocate", int (*)(int, int, off_t, off_t))(fd, mode, at, n);
}

int ftruncate(int fd, off_t n)
{
        return fd_fails("ftruncate", fd, false) ? -1
                                                : NEXT("ftruncate", int (*)(int, off_t))(fd, n);
}

int renameat(int dir, const char *from, int to_dir, const char *to)
{
        return at_fails("renameat", dir, from, true)
                       ? -1
                       : NEXT("renameat", int (*)(int, const char *, int, const char *))(
                                 dir, from, to_dir, to);
}

int unlinkat(int dir, const char *name, int flags)
{
        return at_fails("unlinkat", dir, name, false)
                       ? -1
                       : NEXT("unlinkat", int (*)(int, const char *, int))(dir, name, flags);
}

int fstat(int fd, struct stat *st)
{
        return fd_fails("fstat", fd, false)
                       ? -1
                       : NEXT("fstat", int (*)(int, struct stat *))(fd, st);
}

int fstatat(int dir, const char *restrict name, struct stat *restrict st, int flags)
{
        return at_fails("fstatat", dir, name, false)
                       ? -1
                       : NEXT("fstatat", int (*)(int, const char *, struct stat *, int))(
                                 dir, name, st, flags);
}

struct dirent *readdir(DIR *d)
{
        return fd_fails("readdir", dirfd(d), false)
                       ? NULL
                       : NEXT("readdir", struct dirent * (*) (DIR *) )(d);
}

int flock(int fd, int how)
{
        return fd_fails("flock", fd, false) ? -1 : NEXT("flock", int (*)(int, int))(fd, how);
}

int mkdir(const char *path, mode_t mode)
{
        return is_in(path) && fails("mkdir", path, true)
                       ? -1
                       : NEXT("mkdir", int (*)(const char *, mode_t))(path, mode);
}
