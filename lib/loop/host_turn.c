#include "loop/host_turn.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "base/hash.h"

/* Between looks: at first, and at most, for those who are told and those who are not. */
#define PAUSE NSEC_PER_MSEC
#define PAUSE_TOLD NSEC_PER_SEC
#define PAUSE_UNTOLD (100 * NSEC_PER_MSEC)

/* Which byte of the file stands for the lock @name. */
static off_t place_of(int64_t lease, const char *name)
{
        uint64_t h = hash_add(HASH_START, &lease, sizeof(lease));

        return (off_t) (hash_end(hash_add(h, name, strlen(name))) >> 2);
}

int host_turn_take(int fd, int64_t lease, const char *name)
{
        struct flock l = {.l_type = F_WRLCK,
                          .l_whence = SEEK_SET,
                          .l_start = place_of(lease, name),
                          .l_len = 1};

        if (fcntl(fd, F_OFD_SETLK, &l) == 0)
                return 0;
        return errno == EACCES ? -EAGAIN : -errno;
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
        if (host_turn_take(h->fd, h->lease, h->name) == 0) {
                stop_waiting(h);
                return h->fn(h);
        }
        h->pause = host_turn_pause(h->watch, h->pause);
        loop_timer_in(&h->again, h->pause);
}

static void on_io(struct loop_io *io, int events)
{
        struct host_turn *h = container_of(io, struct host_turn, io);

        (void) events;
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
        close(h->fd);
        *h = (struct host_turn){0};
}
