#include "gate.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "helper.h"
#include "runtime.h"

bool gate_is_open(void)
{
        return access(GATE_OPEN, F_OK) == 0;
}

bool gate_is_stopping(void)
{
        return access(GATE_STOPPING, F_OK) == 0;
}

/* ---- notifying the guard ---- */

bool gate_is_guarded(void)
{
        return helper_is_up(GATE_GUARD);
}

/* A failure needs no retry: a guard that does not run yet checks the gate when it starts, and a
 * guard whose queue is full has not read it yet. */
void gate_tell_guard(void)
{
        (void) !helper_send(GATE_GUARD, "", 1);
}

int gate_listen(void)
{
        return gate_is_guarded() ? -EADDRINUSE : helper_listen(GATE_GUARD, SOCK_NONBLOCK);
}

/* ---- the lock of the responsible agent ---- */

/* Only root may lock it: another user's lock would look like an agent's. The lock belongs to
 * the process, and is released as soon as the process closes any descriptor of the file. */
static int open_file(const char *path, int flags)
{
        int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | flags, 0600);

        if (fd >= 0 && fchmod(fd, 0600) < 0)
                log_debug("%s: cannot change its mode: %s.", path, strerror(errno));
        return fd;
}

static void answer_for(struct gate *g, int fd)
{
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

        if (g->fd >= 0)
                close(g->fd);
        g->fd = fd;
        if (fcntl(fd, F_SETLK, &l) < 0)
                log_warning("%s: cannot lock it: %s. The guard may consider this agent dead.",
                            GATE_OPEN, strerror(errno));
        gate_tell_guard();
}

void gate_take(struct gate *g)
{
        int fd = open_file(GATE_OPEN, 0);

        if (fd < 0)
                fd = open_file(GATE_STOPPING, 0);
        if (fd >= 0)
                answer_for(g, fd);
}

static bool is_ours(const struct gate *g)
{
        return g->fd >= 0 && runtime_is_there(GATE_OPEN, g->fd);
}

int gate_open(struct gate *g)
{
        int fd;

        if (is_ours(g))
                return 0;
        fd = open_file(GATE_OPEN, O_CREAT);
        /* Another user made it. */
        if (fd < 0 && (errno == EACCES || errno == ELOOP) && unlink(GATE_OPEN) == 0)
                fd = open_file(GATE_OPEN, O_CREAT);
        if (fd < 0)
                return -errno;
        answer_for(g, fd);
        return 0;
}

int gate_keep_open(void)
{
        int fd;

        if (gate_is_open()) /* another user's file, which we could not touch, counts as well */
                return 0;
        fd = open_file(GATE_OPEN, O_CREAT);
        if (fd < 0)
                return -errno;
        close(fd);
        return 0;
}

void gate_close(void)
{
        if (rename(GATE_OPEN, GATE_STOPPING) == 0 || errno == ENOENT)
                return;
        if (unlink(GATE_OPEN) < 0)
                log_error("%s: cannot remove it: %s.", GATE_OPEN, strerror(errno));
}

void gate_forget(struct gate *g)
{
        unlink(GATE_STOPPING);
        if (g->fd >= 0)
                close(g->fd);
        g->fd = -1;
        gate_tell_guard();
}

pid_t gate_keeper(void)
{
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int fd = open(GATE_OPEN, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

        if (fd < 0)
                fd = open(GATE_STOPPING, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0)
                return 0;
        if (fcntl(fd, F_GETLK, &l) < 0 || l.l_type == F_UNLCK)
                l.l_pid = 0;
        close(fd);
        return l.l_pid;
}
