#include "reboot.h"

#include <errno.h>
#include <poll.h>
#include <sys/reboot.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "bus/notify.h"
#include "bus/pid1.h"
#include "helper.h"
#include "memory.h"

#define WORD "reboot"

bool reboot_is_ready(void)
{
        return helper_is_up(REBOOT_SOCKET);
}

void reboot_now(struct pid1 *pid1)
{
        int r = helper_send(REBOOT_SOCKET, WORD, sizeof(WORD) - 1);

        /* If the helper got the message but the kernel refuses, systemd may still be able to
         * reboot. */
        pid1_reboot(pid1);
        if (r < 0)
                log_error(
                        "Cannot reach tenure-reboot.service: %s. Only systemd can reboot this "
                        "host now.",
                        strerror(-r));
}

int reboot_helper(void)
{
        int fd = helper_listen(REBOOT_SOCKET, SOCK_NONBLOCK), r;
        nsec_t watchdog = notify_watchdog_period();
        int beat = watchdog > 0 ? (int) (watchdog / 3 / NSEC_PER_MSEC) : -1;
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char word[sizeof(WORD)];
        ssize_t n;

        if (fd < 0) {
                log_error("%s: cannot listen: %s.", REBOOT_SOCKET, strerror(-fd));
                return fd;
        }
        memory_lock_whole();
        notify_ready();
        while (poll(&p, 1, beat) >= 0 || errno == EINTR) {
                notify_watchdog();
                n = recv(fd, word, sizeof(word), 0);
                if (n != sizeof(WORD) - 1 || memcmp(word, WORD, sizeof(WORD) - 1) != 0)
                        continue;
                if (reboot(RB_AUTOBOOT) < 0)
                        log_error("Cannot reboot: %s.", strerror(errno));
        }
        r = -errno;
        close(fd);
        return r;
}
