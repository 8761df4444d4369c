#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loop/worker.h"
#include "store/disk.h"

#define READ_MAX ((size_t) 1 << 20)
/* The size of each write when a file is created. The page cache keeps the pages of one write
 * together; the larger such a unit is, the more each later small write into it, and its sync,
 * will cost. */
#define ZERO_MAX ((size_t) 64 << 10)

struct posix {
        struct disk base;
        int dir_fd, lock_fd;
        struct worker *worker, *aside;
        /* The file that was written last, kept open: the log's current segment. Only the
         * worker's thread uses it, once that runs. */
        char open_name[64];
        int open_fd;
};

/* A disk_job on the worker's queue; sits in disk_job.impl, which has room for it. */
struct posix_job {
        struct worker_job job;
};
_Static_assert(sizeof(struct posix_job) <= sizeof(((struct disk_job *) 0)->impl),
               "disk_job.impl is too small");

static struct posix *posix_of(struct disk *d)
{
        return container_of(d, struct posix, base);
}

/* Opens a file of the directory; a symbolic link is -ELOOP. The directory may belong to a user
 * other than the one we run as, who could then choose the file that we write. */
static int open_in(const struct posix *p, const char *name, int flags)
{
        int fd = openat(p->dir_fd, name, flags | O_NOFOLLOW | O_CLOEXEC, 0600);

        return fd < 0 ? -errno : fd;
}

static int posix_list(struct disk *d, disk_list_fn fn, void *arg)
{
        int fd = openat(posix_of(d)->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
        struct dirent *e;
        struct stat st;
        DIR *dir;

        if (fd < 0)
                return -errno;
        dir = fdopendir(fd);
        if (!dir) {
                r = -errno;
                close(fd);
                return r;
        }
        while (r == 0 && (errno = 0, e = readdir(dir))) {
                if (fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        r = -errno;
                else if (S_ISREG(st.st_mode))
                        r = fn(e->d_name, (uint64_t) st.st_size, arg);
        }
        if (r == 0 && errno != 0)
                r = -errno; /* not the end: names are missing */
        closedir(dir);
        return r;
}

static int posix_read(struct disk *d, const char *name, size_t most, struct buf *out)
{
        int fd = open_in(posix_of(d), name, O_RDONLY), r = 0;
        size_t piece;

        if (fd < 0)
                return fd;
        for (; most > 0; most -= piece) {
                uint8_t *to;
                ssize_t n;

                piece = min_of(most, READ_MAX);
                to = buf_reserve(out, piece);

                if (!to) {
                        r = -ENOMEM;
                        break;
                }
                do
                        n = read(fd, to, piece);
                while (n < 0 && errno == EINTR);
                if (n < 0)
                        r = -errno;
                if (n <= 0)
                        break;
                piece = (size_t) n;
                buf_commit(out, piece);
        }
        close(fd);
        return r;
}

static int posix_sync(struct disk *d, const char *name)
{
        struct posix *p = posix_of(d);
        int fd, r = 0;

        if (!name)
                return fsync(p->dir_fd) < 0 ? -errno : 0;
        /* If the name is a FIFO now, do not wait for its writer; fsync() will fail. */
        fd = open_in(p, name, O_RDONLY | O_NONBLOCK);
        if (fd < 0)
                return fd;
        if (fsync(fd) < 0)
                r = -errno;
        /* A write that failed leaves pages that look written, so make sure that the next read
         * comes from the disk. (Rebello et al., "Can Applications Recover from fsync
         * Failures?") */
        if (r == 0)
                (void) !posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
        close(fd);
        return r;
}

static int write_all(int fd, const uint8_t *p, size_t n, uint64_t offset)
{
        while (n > 0) {
                ssize_t k = pwrite(fd, p, n, (off_t) offset);

                if (k < 0 && errno == EINTR)
                        continue;
                if (k < 0)
                        return -errno;
                p += k;
                n -= (size_t) k;
                offset += (uint64_t) k;
        }
        return 0;
}

static void forget_open(struct posix *p)
{
        if (p->open_fd >= 0)
                close(p->open_fd);
        p->open_fd = -1;
}

/* Opens @name, or creates it. Asks for all the space at once, so that a lack of it shows before
 * the rest of the disk is filled. */
static int open_room(struct posix *p, const char *name, uint64_t size, int *ret_fd,
                     off_t *ret_was)
{
        int fd = open_in(p, name, O_RDWR | O_CREAT), r = 0;
        struct stat st;

        if (fd < 0)
                return fd;
        if (fstat(fd, &st) < 0) {
                r = -errno;
                close(fd); /* its size is unknown, so it stays as it is */
                return r;
        }
        *ret_was = st.st_size;
        if ((uint64_t) st.st_size < size && fallocate(fd, 0, 0, (off_t) size) < 0 &&
            errno != EOPNOTSUPP && errno != ENOSYS)
                r = -errno;
        *ret_fd = fd;
        return r;
}

/* After a file could not get its space: restores its former size, or removes it. */
static void give_back(struct posix *p, int fd, const char *name, off_t was)
{
        if (was == 0 || ftruncate(fd, was) < 0)
                (void) !unlinkat(p->dir_fd, name, 0);
}

static int posix_create(struct disk *d, const char *name, size_t size)
{
        struct posix *p = posix_of(d);
        static const uint8_t zeroes[ZERO_MAX];
        off_t was = 0;
        int fd = -1, r;

        r = open_room(p, name, size, &fd, &was);
        /* Writes the zeroes, so that a later fdatasync() has no metadata to flush. */
        for (size_t at = 0; r == 0 && at < size; at += ZERO_MAX)
                r = write_all(fd, zeroes, min_of(size - at, ZERO_MAX), at);
        if (r == 0 && (uint64_t) was > size && ftruncate(fd, (off_t) size) < 0)
                r = -errno;
        if (r == 0 && (fsync(fd) < 0 || fsync(p->dir_fd) < 0))
                r = -errno;
        if (r < 0 && fd >= 0)
                give_back(p, fd, name, was);
        if (fd >= 0)
                close(fd);
        return r;
}

static int posix_reserve(struct disk *d, const char *name, size_t size, size_t *ret_was)
{
        struct posix *p = posix_of(d);
        off_t was = 0;
        int fd = -1, r = open_room(p, name, size, &fd, &was);

        if (r < 0 && fd >= 0)
                give_back(p, fd, name, was);
        if (fd >= 0)
                close(fd);
        if (r == 0)
                *ret_was = (size_t) was;
        return r;
}

/* The other thread may have removed the file since. */
static bool is_open(const struct posix *p, const char *name)
{
        struct stat st;

        return p->open_fd >= 0 && strcmp(p->open_name, name) == 0 &&
               fstat(p->open_fd, &st) == 0 && st.st_nlink > 0;
}

static int posix_write(struct disk *d, const char *name, uint64_t offset, const void *bytes,
                       size_t n)
{
        struct posix *p = posix_of(d);
        bool keep = strncmp(name, "log-", 4) == 0;
        int fd, r;

        if (keep && is_open(p, name)) {
                fd = p->open_fd;
        } else {
                fd = open_in(p, name, O_RDWR);
                if (fd < 0)
                        return fd;
                if (keep) {
                        forget_open(p);
                        p->open_fd = fd;
                        snprintf(p->open_name, sizeof(p->open_name), "%s", name);
                }
        }
        r = write_all(fd, bytes, n, offset);
        if (r == 0 && fdatasync(fd) < 0)
                r = -errno;
        if (!keep)
                close(fd);
        return r;
}

static int posix_cut(struct disk *d, const char *name, size_t size)
{
        int fd = open_in(posix_of(d), name, O_RDWR), r = 0;
        struct stat st;

        if (fd < 0)
                return fd;
        if (fstat(fd, &st) < 0 ||
            ((uint64_t) st.st_size > size && ftruncate(fd, (off_t) size) < 0) || fsync(fd) < 0)
                r = -errno;
        close(fd);
        return r;
}

static int posix_rename(struct disk *d, const char *from, const char *to)
{
        struct posix *p = posix_of(d);

        if (renameat(p->dir_fd, from, p->dir_fd, to) < 0 || fsync(p->dir_fd) < 0)
                return -errno;
        return 0;
}

static int posix_remove(struct disk *d, const char *name)
{
        return unlinkat(posix_of(d)->dir_fd, name, 0) < 0 ? -errno : 0;
}

static void run(struct worker_job *job)
{
        struct disk_job *j = container_of((void *) job, struct disk_job, impl);

        j->run(j);
}

static void done(struct worker_job *job)
{
        struct disk_job *j = container_of((void *) job, struct disk_job, impl);

        j->took = job->took;
        j->took_in_all = job->took_in_all;
        j->done(j);
}

static void drop(struct worker_job *job)
{
        struct disk_job *j = container_of((void *) job, struct disk_job, impl);

        j->drop(j);
}

static void submit_to(struct worker *w, struct disk_job *j)
{
        struct posix_job *pj = (struct posix_job *) (void *) j->impl;

        pj->job = (struct worker_job){.run = run, .done = done, .drop = drop};
        worker_submit(w, &pj->job);
}

static void posix_submit(struct disk *d, struct disk_job *j)
{
        submit_to(posix_of(d)->worker, j);
}

static void posix_submit_aside(struct disk *d, struct disk_job *j)
{
        submit_to(posix_of(d)->aside, j);
}

static struct disk *posix_free(struct disk *d)
{
        struct posix *p = posix_of(d);

        worker_free(p->aside);
        worker_free(p->worker);
        forget_open(p);
        if (p->lock_fd >= 0)
                close(p->lock_fd);
        if (p->dir_fd >= 0)
                close(p->dir_fd);
        free(p);
        return NULL;
}

static const struct disk_ops posix_ops = {
        .list = posix_list,
        .read = posix_read,
        .sync = posix_sync,
        .create = posix_create,
        .write = posix_write,
        .reserve = posix_reserve,
        .cut = posix_cut,
        .rename = posix_rename,
        .remove = posix_remove,
        .submit = posix_submit,
        .submit_aside = posix_submit_aside,
        .free = posix_free,
};

int disk_posix_new(struct disk **ret, const char *dir, struct loop *l)
{
        cleanup_(disk_freep) struct disk *d = NULL;
        struct posix *p = calloc(1, sizeof(*p));
        int r;

        if (!p)
                return -ENOMEM;
        d = &p->base;
        d->ops = &posix_ops;
        p->dir_fd = p->lock_fd = p->open_fd = -1;
        p->dir_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (p->dir_fd < 0)
                return -errno;
        p->lock_fd = open_in(p, "lock", O_RDWR | O_CREAT);
        if (p->lock_fd < 0)
                return p->lock_fd;
        if (flock(p->lock_fd, LOCK_EX | LOCK_NB) < 0)
                return errno == EWOULDBLOCK ? -EBUSY : -errno;
        r = worker_new(&p->worker, l, "disk");
        if (r == 0)
                r = worker_new(&p->aside, l, "snapshots");
        if (r < 0)
                return r;
        *ret = take_ptr(d);
        return 0;
}
