#include "host_lock.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "loop/host_turn.h"

#define BACKLOG 4096 /* holds the processes that wait */

/* Waits until the process that has the address lets it go. Returns 0 or a negative errno. */
static int wait_for_other(const struct sockaddr_un *sa, socklen_t len, int break_fd,
                          struct boot_time deadline)
{
        struct pollfd p[] = {{.fd = -1, .events = POLLIN}, {.fd = break_fd, .events = POLLIN}};
        nsec_t left = boot_diff(deadline, boot_now());
        int r;

        if (left <= 0)
                return -ETIMEDOUT;
        p[0].fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (p[0].fd < 0)
                return -errno;
        /* The process is gone, or its backlog is full: try again soon. */
        if (connect(p[0].fd, (const void *) sa, len) < 0) {
                close(p[0].fd);
                p[0].fd = -1;
                left = min_of(left, 100 * NSEC_PER_MSEC);
        }
        r = poll(p, 2, (int) min_of((left + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC, INT32_MAX));
        r = r < 0 && errno != EINTR ? -errno : p[1].revents ? -EINTR : 0;
        if (p[0].fd >= 0)
                close(p[0].fd);
        return r;
}

int host_lock(int64_t lease, const char *name, int break_fd, struct boot_time deadline)
{
        struct sockaddr_un sa;
        socklen_t len = host_turn_address(lease, name, &sa);
        int fd = socket(AF_UNIX, SOCK_STREAM, 0), r = 0;

        if (fd < 0)
                return -errno;
        while (r == 0 && bind(fd, (const void *) &sa, len) < 0)
                r = errno == EADDRINUSE ? wait_for_other(&sa, len, break_fd, deadline) : -errno;
        if (r == 0 && listen(fd, BACKLOG) < 0)
                r = -errno;
        if (r == 0)
                return fd;
        close(fd);
        return r;
}
