#include "holders.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "bus/notify.h"
#include "loop/clock.h"
#include "runtime.h"

/* Newer kernels (6.18) do not report a write through the descriptor of memfd_create(2) itself
 * to inotify watches of the file, but they do for a descriptor that was opened. Takes ownership
 * of @fd. */
static int to_write(int fd)
{
        int again = runtime_open_again(fd, O_RDWR);

        if (again < 0)
                return fd;
        close(fd);
        return again;
}

static int open_sealed(void)
{
        int fd = memfd_create("tenancy", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        if (fd < 0 || ftruncate(fd, TENANCY_BYTES) < 0 ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0) {
                if (fd >= 0)
                        close(fd);
                return -1;
        }
        return to_write(fd);
}

void holders_close(struct holders *h)
{
        if (h->fd >= 0)
                close(h->fd);
        h->fd = -1;
}

/* Continues with the file of an earlier run, because readers have descriptors of it. */
void holders_open(struct holders *h, int stored_fd)
{
        char path[RUNTIME_PATH_MAX];
        bool here = runtime_path("tenancy", path);

        *h = (struct holders){.fd = stored_fd, .time_ns = boot_namespace()};
        if (h->fd >= 0) {
                fcntl(h->fd, F_SETFD, FD_CLOEXEC);
                h->fd = to_write(h->fd);
        }
        if (h->fd < 0 && here)
                h->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
        if (h->fd < 0 && (notify_listens() || !here)) {
                h->fd = open_sealed();
                if (h->fd >= 0)
                        notify_keep_fd(HOLDERS_FD_NAME, h->fd);
        }
        if (h->fd < 0 && here)
                h->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
        /* Any user may watch it (inotify_add_watch(2)), and only we may write: a memory file is
         * created with mode 0777, and a descriptor can be reopened by way of /proc. */
        if (h->fd >= 0 && fchmod(h->fd, 0644) < 0)
                holders_close(h);
        if (h->fd < 0)
                log_warning("Cannot inform programs of how long the place is held: %s.",
                            strerror(errno));
}

static void tell(struct holders *h, const struct tenancy *t)
{
        uint8_t bytes[TENANCY_BYTES];

        if (h->fd < 0 ||
            (h->has && t->lease == h->published.lease &&
             t->deadline.ns == h->published.deadline.ns && t->leaving == h->published.leaving))
                return;
        tenancy_write(t, bytes);
        h->has = pwrite(h->fd, bytes, sizeof(bytes), 0) == (ssize_t) sizeof(bytes);
        if (!h->has) /* what readers know of an earlier place ends by its deadline */
                log_debug("Cannot publish how long the place is held: %s.", strerror(errno));
        h->published = *t;
}

void holders_tell(struct holders *h, const struct session *s, struct boot_time now)
{
        struct tenancy t = {.time_ns = h->time_ns};

        if (session_holds(s, now))
                t = (struct tenancy){.lease = s->lease,
                                     .ttl = s->ttl,
                                     .deadline = session_deadline(s),
                                     .time_ns = h->time_ns};
        else
                h->leaving = false;
        /* We have published that this deadline is the last one. */
        if (h->leaving && t.lease == h->published.lease)
                return;
        tell(h, &t);
}

bool holders_released(struct holders *h, const struct session *s, struct boot_time now)
{
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

        if (h->fd < 0 || !session_holds(s, now))
                return true;
        if (!h->leaving) {
                struct tenancy t = {.lease = s->lease,
                                    .ttl = s->ttl,
                                    .deadline = session_deadline(s),
                                    .time_ns = h->time_ns,
                                    .leaving = true};

                h->leaving = true;
                tell(h, &t);
        }
        if (!boot_before(now, h->published.deadline))
                return true;
        return fcntl(h->fd, F_OFD_GETLK, &l) == 0 && l.l_type == F_UNLCK;
}

void holders_opened(struct holders *h, const char *name, uid_t uid)
{
        size_t i = 0;

        while (i < h->n_openers && strcmp(h->openers[i].name, name) != 0)
                i++;
        if (i == h->n_openers)
                h->n_openers = min_of(h->n_openers + 1, (size_t) HOLDERS_OPENERS);
        i = min_of(i, (size_t) HOLDERS_OPENERS - 1);
        memmove(h->openers + 1, h->openers, i * sizeof(h->openers[0]));
        h->openers[0].uid = uid;
        snprintf(h->openers[0].name, sizeof(h->openers[0].name), "%s", name);
}

void holders_blame(const struct holders *h, char out[static HOLDERS_BLAME_MAX])
{
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        size_t at;

        /* The kernel does not say whose a lock of an open file description is (fcntl(2)). */
        if (fcntl(h->fd, F_OFD_GETLK, &l) == 0 && l.l_type != F_UNLCK && l.l_pid > 0) {
                snprintf(out, HOLDERS_BLAME_MAX, "process %d has it locked", (int) l.l_pid);
                return;
        }
        at = (size_t) snprintf(out, HOLDERS_BLAME_MAX, "%s",
                               h->n_openers ? "it was opened by"
                                            : "it was opened before this agent started");
        for (size_t i = 0; i < h->n_openers; i++)
                at += (size_t) snprintf(out + at, HOLDERS_BLAME_MAX - at, "%s user %d (%s)",
                                        i ? "," : "", (int) h->openers[i].uid,
                                        h->openers[i].name);
}

int holders_reader(const struct holders *h)
{
        int fd;

        if (h->fd < 0)
                return -ENOENT;
        /* Not a duplicate of ours: the reader's description must have its own locks and be
         * unable to write. */
        fd = runtime_open_again(h->fd, O_RDONLY);
        return fd < 0 ? -errno : fd;
}
