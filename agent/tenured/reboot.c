#include "reboot.h"

#include <errno.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "bus/notify.h"
#include "bus/pid1.h"

#define WORD "reboot"

static const struct sockaddr_un address = {.sun_family = AF_UNIX, .sun_path = REBOOT_SOCKET};

/* Returns the socket, or a negative errno. */
static int reach(void)
{
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

        if (fd < 0)
                return -errno;
        if (connect(fd, (const struct sockaddr *) &address, sizeof(address)) == 0)
                return fd;
        r = -errno;
        close(fd);
        return r;
}

bool reboot_is_ready(void)
{
        int fd = reach();

        if (fd >= 0)
                close(fd);
        return fd >= 0;
}

void reboot_now(struct pid1 *pid1)
{
        int fd = reach(), r = fd;

        if (fd >= 0) {
                r = send(fd, WORD, sizeof(WORD) - 1, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno
                                                                                      : 0;
                close(fd);
        }
        /* Where the helper hears but the kernel refuses, systemd may still do it. */
        pid1_reboot(pid1);
        if (r < 0)
                log_error(
                        "Cannot reach tenure-reboot.service: %s. Only systemd can reboot this "
                        "host now.",
                        strerror(-r));
}

int reboot_helper(void)
{
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        char word[sizeof(WORD)];
        ssize_t n;

        if (fd < 0)
                return -errno;
        unlink(address.sun_path);
        if (bind(fd, (const struct sockaddr *) &address, sizeof(address)) < 0) {
                int r = -errno;

                log_error("%s: cannot listen: %s.", address.sun_path, strerror(-r));
                close(fd);
                return r;
        }
        notify_ready();
        while ((n = recv(fd, word, sizeof(word), 0)) >= 0 || errno == EINTR) {
                if (n != sizeof(WORD) - 1 || memcmp(word, WORD, sizeof(WORD) - 1) != 0)
                        continue;
                if (reboot(RB_AUTOBOOT) < 0)
                        log_error("Cannot reboot: %s.", strerror(errno));
        }
        n = -errno;
        close(fd);
        return (int) n;
}
