#include "helper.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct sockaddr_un address_of(const char *path)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};

        snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
        return a;
}

/* Returns a socket that is connected to @path, or a negative errno. */
static int reach(const char *path)
{
        struct sockaddr_un a = address_of(path);
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), r;

        if (fd < 0)
                return -errno;
        if (connect(fd, (const struct sockaddr *) &a, sizeof(a)) == 0)
                return fd;
        r = -errno;
        close(fd);
        return r;
}

bool helper_is_up(const char *path)
{
        int fd = reach(path);

        if (fd >= 0)
                close(fd);
        return fd >= 0;
}

int helper_send(const char *path, const void *word, size_t n)
{
        int fd = reach(path), r;

        if (fd < 0)
                return fd;
        r = send(fd, word, n, MSG_DONTWAIT | MSG_NOSIGNAL) < 0 ? -errno : 0;
        close(fd);
        return r;
}

int helper_listen(const char *path, int flags)
{
        struct sockaddr_un a = address_of(path);
        int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | flags, 0), r;

        if (fd < 0)
                return -errno;
        unlink(path);
        if (bind(fd, (const struct sockaddr *) &a, sizeof(a)) == 0)
                return fd;
        r = -errno;
        close(fd);
        return r;
}
