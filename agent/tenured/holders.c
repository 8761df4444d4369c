#include "holders.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/log.h"
#include "runtime.h"

void holders_open(struct holders *h)
{
        char path[RUNTIME_PATH_MAX];

        *h = (struct holders){.fd = -1};
        /* The one of an earlier life is gone on with: readers have a descriptor of it. */
        if (runtime_path("tenancy", path))
                h->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (h->fd < 0)
                h->fd = memfd_create("tenancy", MFD_CLOEXEC);
        if (h->fd < 0)
                log_warning("Cannot tell tenurectl lock until when the place is held: %s.",
                            strerror(errno));
}

void holders_close(struct holders *h)
{
        if (h->fd >= 0)
                close(h->fd);
        h->fd = -1;
}

static void tell(struct holders *h, const struct tenancy *t)
{
        uint8_t bytes[TENANCY_BYTES];

        if (h->fd < 0 ||
            (h->has && t->lease == h->told.lease && t->deadline.ns == h->told.deadline.ns &&
             t->leaving == h->told.leaving))
                return;
        tenancy_write(t, bytes);
        h->has = pwrite(h->fd, bytes, sizeof(bytes), 0) == (ssize_t) sizeof(bytes);
        if (!h->has) /* what they know ends by itself */
                log_debug("Cannot tell until when the place is held: %s.", strerror(errno));
        h->told = *t;
}

void holders_tell(struct holders *h, const struct session *s, struct boot_time now)
{
        struct tenancy t = {0};

        if (session_holds(s, now))
                t = (struct tenancy){
                        .lease = s->lease, .ttl = s->ttl, .deadline = session_deadline(s)};
        else
                h->leaving = false;
        /* They have been told that it is the last deadline. */
        if (h->leaving && t.lease == h->told.lease)
                return;
        tell(h, &t);
}

bool holders_let_go(struct holders *h, const struct session *s, struct boot_time now)
{
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

        if (h->fd < 0 || !session_holds(s, now))
                return true;
        if (!h->leaving) {
                struct tenancy t = {.lease = s->lease,
                                    .ttl = s->ttl,
                                    .deadline = session_deadline(s),
                                    .leaving = true};

                h->leaving = true;
                tell(h, &t);
        }
        if (!boot_before(now, h->told.deadline))
                return true;
        return fcntl(h->fd, F_OFD_GETLK, &l) == 0 && l.l_type == F_UNLCK;
}

int holders_reader(const struct holders *h)
{
        char path[32];
        int fd;

        if (h->fd < 0)
                return -ENOENT;
        /* Not ours once more: theirs is another one, with locks of its own, and cannot write.
         */
        snprintf(path, sizeof(path), "/proc/self/fd/%d", h->fd);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        return fd < 0 ? -errno : fd;
}
