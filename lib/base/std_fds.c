#include "base/std_fds.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/base.h"

void std_fds_reserve(void)
{
        for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
                /* open(2) returns the lowest free descriptor, and all below @fd are taken. It
                 * is opened for the wrong direction, so that using it fails. */
                int how = fd == STDIN_FILENO ? O_WRONLY : O_RDONLY;

                if (fcntl(fd, F_GETFD) >= 0)
                        continue;
                /* In a chroot there may be no /dev/null; / is always there. */
                if (open("/dev/null", how | O_CLOEXEC | O_NOCTTY) < 0)
                        (void) !open("/", O_PATH | O_CLOEXEC);
        }
}
