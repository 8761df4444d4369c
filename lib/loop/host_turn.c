#include "loop/host_turn.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/hash.h"

/* Pauses between looks: the first one, and the longest, with notifications and without. */
#define PAUSE NSEC_PER_MSEC
#define PAUSE_TOLD NSEC_PER_SEC
#define PAUSE_UNTOLD (100 * NSEC_PER_MSEC)

/* Which byte of the file stands for the lock @name. */
static off_t place_of(int64_t lease, const char *name)
{
        uint64_t h = hash_add(HASH_START, &lease, sizeof(lease));

        return (off_t) (hash_end(hash_add(h, name, strlen(name))) >> 2);
}

#define BACKLOG 4096 /* programs of release 0.1.0 that wait */

static bool is_trusted(int connected)
{
        struct ucred peer;
        socklen_t len = sizeof(peer);

        return getsockopt(connected, SOL_SOCKET, SO_PEERCRED, &peer, &len) == 0 &&
               (peer.uid == 0 || peer.uid == geteuid());
}

/* The turn as release 0.1.0 has it. While such a program has it, *@fd is a connection, which
 * ends with the turn. */
static int take_earlier(int *fd, int64_t lease, const char *name, bool alone)
{
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        struct pollfd p = {.fd = *fd, .events = POLLIN};
        socklen_t len = (socklen_t) offsetof(struct sockaddr_un, sun_path) + 1;

        if (*fd >= 0 && poll(&p, 1, 0) == 0)
                return -EAGAIN;
        if (*fd >= 0)
                close(*fd);
        *fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (*fd < 0)
                return -errno;
        len += (socklen_t) snprintf(a.sun_path + 1, sizeof(a.sun_path) - 1,
                                    "tenure-lock-%016" PRIx64 "-%016" PRIx64, (uint64_t) lease,
                                    hash_end(hash_add(HASH_START, name, strlen(name))));
        if (bind(*fd, (const void *) &a, len) == 0 && listen(*fd, BACKLOG) == 0)
                return 0;
        if (connect(*fd, (const void *) &a, len) == 0 && (alone || is_trusted(*fd)))
                return -EAGAIN;
        close(*fd);
        *fd = -1;
        return alone ? -EAGAIN : 0;
}

int host_turn_take(int fd, int *earlier, int64_t lease, const char *name)
{
        struct flock l = {.l_type = F_WRLCK,
                          .l_whence = SEEK_SET,
                          .l_start = place_of(lease, name),
                          .l_len = 1};

        int r = take_earlier(earlier, lease, name, fd < 0);

        if (r < 0 || fd < 0 || fcntl(fd, F_OFD_SETLK, &l) == 0)
                return r;
        r = errno == EACCES ? -EAGAIN : -errno;
        if (*earlier >= 0)
                close(*earlier);
        *earlier = -1;
        return r;
}

int host_turn_watch(int fd)
{
        int watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        char path[32];

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        if (watch < 0 || inotify_add_watch(watch, path, IN_CLOSE_WRITE) >= 0)
                return watch;
        close(watch);
        return -1;
}

void host_turn_heard(int watch)
{
        char events[16 * (sizeof(struct inotify_event) + 16)];

        while (read(watch, events, sizeof(events)) > 0)
                ;
}

nsec_t host_turn_pause(int watch, nsec_t last)
{
        return min_of(max_of(last * 2, PAUSE), watch < 0 ? PAUSE_UNTOLD : PAUSE_TOLD);
}

static void stop_waiting(struct host_turn *h)
{
        loop_timer_disarm(&h->again);
        if (h->watch < 0)
                return;
        loop_io_stop(&h->io);
        close(h->watch);
        h->watch = -1;
}

/* An error, such as a lack of memory for locks, may pass. */
static void try(struct host_turn *h)
{
        if (host_turn_take(h->fd, &h->earlier, h->lease, h->name) == 0) {
                stop_waiting(h);
                return h->fn(h);
        }
        h->pause = host_turn_pause(h->watch, h->pause);
        loop_timer_in(&h->again, h->pause);
}

static void on_io(struct loop_io *io, int events unused_)
{
        struct host_turn *h = container_of(io, struct host_turn, io);

        host_turn_heard(h->watch);
        h->pause = 0;
        try(h);
}

static void on_again(struct loop_timer *t)
{
        try(container_of(t, struct host_turn, again));
}

void host_turn_begin(struct host_turn *h, struct loop *l, int fd, int64_t lease,
                     const char *name, void (*fn)(struct host_turn *h))
{
        *h = (struct host_turn){.loop = l,
                                .fd = fd,
                                .earlier = -1,
                                .lease = lease,
                                .name = name,
                                .watch = host_turn_watch(fd),
                                .fn = fn};
        loop_timer_init(&h->again, l, on_again);
        loop_timer_in(&h->again, 0);
        if (h->watch >= 0)
                loop_io_start(&h->io, l, h->watch, EV_READ, on_io);
}

void host_turn_end(struct host_turn *h)
{
        if (!h->loop)
                return;
        stop_waiting(h);
        if (h->fd >= 0)
                close(h->fd);
        if (h->earlier >= 0)
                close(h->earlier);
        *h = (struct host_turn){0};
}
