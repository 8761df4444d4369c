#include "keep.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "bus/notify.h"
#include "runtime.h"

#define PLACE "/run/tenure/place" /* where the unit's RuntimeDirectory= puts it */

/* Held by the process, not by the descriptor, which the service manager holds as well. */
static bool lock(int fd)
{
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

        return fcntl(fd, F_SETLK, &l) == 0;
}

void keep_open(struct keep *k, int stored_fd)
{
        char path[RUNTIME_PATH_MAX];
        bool stored;

        *k = (struct keep){.fd = stored_fd};
        stored = k->fd >= 0;
        /* If somebody removed the file, it was created again (see put_back()), and the stored
         * one is out of date. */
        if (stored && runtime_path("place", path) && !runtime_is_there(path, k->fd)) {
                int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);

                if (fd >= 0) {
                        keep_close(k);
                        k->fd = fd;
                }
        }
        if (!stored && runtime_path("place", path)) {
                k->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
                if (k->fd < 0)
                        log_warning("%s: cannot open it: %s. A restart will lose the place.",
                                    path, strerror(errno));
        }
        if (k->fd < 0)
                return;
        if (!lock(k->fd)) {
                log_warning("Another agent uses the same runtime directory. A restart will "
                            "lose the place.");
                keep_close(k);
                return;
        }
        fcntl(k->fd, F_SETFD, FD_CLOEXEC);
        if (!stored)
                notify_keep_fd(KEEP_FD_NAME, k->fd);
}

void keep_close(struct keep *k)
{
        if (k->fd >= 0)
                close(k->fd);
        k->fd = -1;
}

bool keep_load(struct keep *k, const char *cluster, const struct node_record *self,
               struct place *ret)
{
        char text[PLACE_BYTES_MAX];
        ssize_t n = k->fd < 0 ? 0 : pread(k->fd, text, sizeof(text), 0);

        int r;

        if (n <= 0)
                return false;
        r = place_read(ret, text, (size_t) n);
        if (r < 0) {
                log_warning("The state that an earlier run left is %s; joining anew.",
                            r == -ENOTSUP ? "that of a later version of tenured" : "damaged");
                return false;
        }
        if (strcmp(ret->cluster, cluster) != 0 || strcmp(ret->self.name, self->name) != 0 ||
            strcmp(ret->self.id, self->id) != 0)
                return false; /* the settings have changed; that place expires */
        if (!*self->boot_id || strcmp(ret->self.boot_id, self->boot_id) != 0)
                return false;
        k->kept = *ret;
        k->has = true;
        return true;
}

bool keep_read(const struct keep *k, struct place *ret)
{
        char text[PLACE_BYTES_MAX];
        ssize_t n = k->fd < 0 ? 0 : pread(k->fd, text, sizeof(text), 0);

        return n > 0 && place_read(ret, text, (size_t) n) == 0;
}

bool keep_peek(struct place *ret)
{
        struct keep k = {.fd = open(PLACE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW)};
        bool r = keep_read(&k, ret);

        keep_close(&k);
        return r;
}

/* Somebody may have removed the file. The guard opens it by name, and the next run of the agent
 * may have to. */
static void put_back(struct keep *k)
{
        char path[RUNTIME_PATH_MAX];
        int fd;

        if (!runtime_path("place", path) || runtime_is_there(path, k->fd))
                return;
        unlink(path);
        fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 || !lock(fd)) {
                log_debug("%s: cannot create it anew: %s.", path, strerror(errno));
                if (fd >= 0)
                        close(fd);
                return;
        }
        close(k->fd);
        k->fd = fd;
}

void keep_save(struct keep *k, const struct place *p)
{
        struct place *kept = &k->kept;
        bool renewed = !(k->has || k->failing) || p->session.lease != kept->session.lease ||
                       p->session.renewed_at.ns != kept->session.renewed_at.ns ||
                       strcmp(p->core, kept->core) != 0;
        cleanup_(buf_fini) struct buf b = {0};

        if (k->fd < 0 || (!renewed && p->followed == kept->followed))
                return;
        /* Between renewals only `followed` is stored: a restart has to continue at the address
         * that acknowledged the last renewal, since the one that is tried now may not
         * answer. */
        if (renewed)
                *kept = *p;
        else
                kept->followed = p->followed;
        put_back(k);
        errno = ENOSPC; /* a short write means that the disk is full */
        place_write(kept, &b);
        /* One write within a page: a process that is killed has written all of it or nothing.
         * If the text is shorter than before, old lines remain after its checksum; nobody reads
         * them. */
        if (buf_error(&b) < 0 || buf_len(&b) > PLACE_BYTES_MAX ||
            pwrite(k->fd, b.data, buf_len(&b), 0) != (ssize_t) buf_len(&b)) {
                if (!k->failing)
                        log_warning("Cannot keep the place for a restart: %s. This is tried "
                                    "again with each renewal.",
                                    strerror(errno));
                keep_clear(k);
                k->failing = true;
                return;
        }
        k->has = true;
        k->failing = false;
}

void keep_clear(struct keep *k)
{
        k->has = false;
        if (k->fd >= 0 && ftruncate(k->fd, 0) < 0)
                log_debug("Cannot clear the kept place: %s.", strerror(errno));
}
