#include "tenure/page.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "loop/clock.h"

/* How often to read again: a page that is being written while we read is complete a moment
 * later. */
#define LOOK_AGAIN 50

void page_init(struct page *p)
{
        *p = (struct page){.fd = -1};
}

void page_close(struct page *p)
{
        if (p->map)
                munmap((void *) (uintptr_t) p->map, TENANCY_BYTES);
        if (p->fd >= 0)
                close(p->fd);
        page_init(p);
}

static bool keeps_its_size(int fd, const struct stat *st)
{
        int seals = fcntl(fd, F_GET_SEALS);

        return seals >= 0 && (seals & F_SEAL_SHRINK) && st->st_size >= TENANCY_BYTES;
}

int page_open(struct page *p, int fd)
{
        struct page fresh = {.fd = fd, .time_ns = boot_namespace()};
        struct stat st;

        if (fstat(fd, &st) < 0) {
                int r = -errno;

                close(fd);
                return r;
        }
        fresh.dev = st.st_dev;
        fresh.ino = st.st_ino;
        if (keeps_its_size(fd, &st)) {
                void *map = mmap(NULL, TENANCY_BYTES, PROT_READ, MAP_SHARED, fd, 0);

                fresh.map = map == MAP_FAILED ? NULL : map;
        }
        page_close(p);
        *p = fresh;
        return 0;
}

/* Copies the bytes, which may change meanwhile. */
static int copy(const struct page *p, uint64_t to[static TENANCY_BYTES / sizeof(uint64_t)])
{
        const volatile uint64_t *from = (const volatile void *) p->map;

        if (!from)
                return pread(p->fd, to, TENANCY_BYTES, 0) == TENANCY_BYTES ? 0 : -EBADMSG;
        for (size_t i = 0; i < TENANCY_BYTES / sizeof(uint64_t); i++)
                to[i] = from[i];
        return 0;
}

static int read_again(struct page *p, uint64_t bytes[static TENANCY_BYTES / sizeof(uint64_t)])
{
        struct tenancy t;
        int r = -EBADMSG;

        for (unsigned i = 0; i < LOOK_AGAIN && r < 0; i++) {
                r = tenancy_read(&t, bytes, TENANCY_BYTES);
                if (r < 0 && copy(p, bytes) < 0)
                        break;
        }
        if (r < 0)
                return r;
        p->tenancy = t;
        memcpy(p->seen, bytes, TENANCY_BYTES);
        return 0;
}

int page_look(struct page *p)
{
        uint64_t bytes[TENANCY_BYTES / sizeof(uint64_t)];
        int r;

        if (p->fd < 0)
                return -ENOENT;
        r = copy(p, bytes);
        /* Unchanged bytes were verified the last time. */
        if (r == 0 && memcmp(bytes, p->seen, TENANCY_BYTES) != 0)
                r = read_again(p, bytes);
        if (r == 0 && p->tenancy.time_ns != 0 && p->tenancy.time_ns != p->time_ns)
                r = -EXDEV;
        return r;
}

void page_lock(struct page *p, bool locked)
{
        struct flock l = {.l_type = locked ? F_RDLCK : F_UNLCK, .l_whence = SEEK_SET};

        if (p->fd >= 0 && p->locked != locked)
                p->locked = fcntl(p->fd, F_OFD_SETLK, &l) == 0 && locked;
}
