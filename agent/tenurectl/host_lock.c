#include "host_lock.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "loop/host_turn.h"

int host_lock_open(struct ctl *c, const char *name)
{
        static const char what[] = "cannot take the turn of this host";
        int fd = ctl_open(c, "OpenTurn", name, what);

        if (fd < 0 || fcntl(fd, F_SETFD, 0) == 0)
                return fd;
        (void) ctl_fail(what, -errno, NULL);
        close(fd);
        return -1;
}

/* Waits until another process has closed the file, or it is time to look again. Returns 0 or a
 * negative errno. */
static int wait_for_other(int watch, nsec_t *pause, int break_fd, struct boot_time deadline)
{
        struct pollfd p[] = {{.fd = watch, .events = POLLIN},
                             {.fd = break_fd, .events = POLLIN}};
        nsec_t left = boot_diff(deadline, boot_now());

        if (left <= 0)
                return -ETIMEDOUT;
        *pause = host_turn_pause(watch, *pause);
        left = min_of(left, *pause);
        if (poll(p, 2, (int) min_of((left + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC, INT32_MAX)) <
                    0 &&
            errno != EINTR)
                return -errno;
        if (p[0].revents) {
                host_turn_heard(watch);
                *pause = 0;
        }
        return p[1].revents ? -EINTR : 0;
}

int host_lock(int fd, int64_t lease, const char *name, int break_fd, struct boot_time deadline)
{
        int watch = host_turn_watch(fd), earlier = -1, r;
        nsec_t pause = 0;

        while ((r = host_turn_take(fd, &earlier, lease, name)) == -EAGAIN) {
                r = wait_for_other(watch, &pause, break_fd, deadline);
                if (r < 0)
                        break;
        }
        if (watch >= 0)
                close(watch);
        if (r == 0 && earlier >= 0) /* open until this process and the command have ended */
                fcntl(earlier, F_SETFD, 0);
        return r;
}
