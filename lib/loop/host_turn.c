#include "loop/host_turn.h"

#include <inttypes.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/hash.h"

#define BACKLOG 4096 /* connections of those that wait; the kernel holds them */
#define LOOK_AGAIN (100 * NSEC_PER_MSEC)

socklen_t host_turn_address(int64_t lease, const char *name, struct sockaddr_un *ret)
{
        *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
        return (socklen_t) (offsetof(struct sockaddr_un, sun_path) + 1) +
               (socklen_t) snprintf(ret->sun_path + 1, sizeof(ret->sun_path) - 1,
                                    "tenure-lock-%016" PRIx64 "-%016" PRIx64, (uint64_t) lease,
                                    hash_end(hash_add(HASH_START, name, strlen(name))));
}

static int new_socket(void)
{
        return socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

/* Tries to bind the address. Returns whether the turn is ours now. */
static bool take(struct host_turn *h)
{
        int fd = new_socket();

        if (fd < 0)
                return false;
        if (bind(fd, (const void *) &h->address, h->len) < 0 || listen(fd, BACKLOG) < 0) {
                close(fd);
                return false;
        }
        h->fd = fd;
        h->ours = true;
        return true;
}

static void stop_waiting(struct host_turn *h)
{
        loop_timer_disarm(&h->again);
        if (h->waits < 0)
                return;
        loop_io_stop(&h->io);
        close(h->waits);
        h->waits = -1;
}

static void try(struct host_turn *h);

static void on_io(struct loop_io *io, int events)
{
        (void) events; /* nobody sends anything, so it is the end of the connection */
        try(container_of(io, struct host_turn, io));
}

static void on_again(struct loop_timer *t)
{
        try(container_of(t, struct host_turn, again));
}

static void try(struct host_turn *h)
{
        stop_waiting(h);
        if (take(h))
                return h->fn(h);
        h->waits = new_socket();
        if (h->waits >= 0 && connect(h->waits, (const void *) &h->address, h->len) == 0)
                return loop_io_start(&h->io, h->loop, h->waits, EV_READ, on_io);
        /* The other program has just closed the address, or its backlog is full. */
        if (h->waits >= 0)
                close(h->waits);
        h->waits = -1;
        loop_timer_in(&h->again, LOOK_AGAIN);
}

void host_turn_begin(struct host_turn *h, struct loop *l, int64_t lease, const char *name,
                     void (*fn)(struct host_turn *h))
{
        *h = (struct host_turn){.loop = l, .fd = -1, .waits = -1, .fn = fn};
        h->len = host_turn_address(lease, name, &h->address);
        loop_timer_init(&h->again, l, on_again);
        loop_timer_in(&h->again, 0);
}

void host_turn_end(struct host_turn *h)
{
        if (!h->loop)
                return;
        stop_waiting(h);
        if (h->ours)
                close(h->fd);
        *h = (struct host_turn){0};
}
