#include "loop/listener.h"

#include <limits.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "loop/resolve.h"
#include "loop/stream.h"

#define ACCEPTS 32 /* at once, and for at most ACCEPT_FOR */
#define ACCEPT_FOR (2 * LOOP_PIECE)
#define ACCEPT_PAUSE (100 * NSEC_PER_MSEC)
#define COMPLAIN_EVERY (60 * NSEC_PER_SEC)
#define LISTEN_BACKLOG INT_MAX /* the kernel limits it: net.core.somaxconn */

struct listener {
        struct loop *loop;
        int fd;
        struct loop_io io;
        struct loop_timer pause;
        struct boot_time complained_at;
        unsigned reserve;
        listener_fn fn;
        void *userdata;
        char *path; /* of a local socket, which is removed with the listener; else NULL */
};

void listener_set_reserve(struct listener *l, unsigned n)
{
        l->reserve = n;
}

static void on_pause_over(struct loop_timer *t)
{
        loop_io_change(&container_of(t, struct listener, pause)->io, EV_READ);
}

/* Pauses the listener: the connection stays in the kernel's queue, and epoll would report it
 * endlessly. */
static void rest(struct listener *l, const char *why)
{
        struct boot_time now = loop_now(l->loop);
        char port[8];

        snprintf(port, sizeof(port), "%u", listener_port(l));
        loop_timer_in(&l->pause, ACCEPT_PAUSE);
        loop_io_change(&l->io, 0);
        if (boot_before(now, l->complained_at))
                return;
        l->complained_at = boot_add(now, COMPLAIN_EVERY);
        log_warning("Cannot take more connections on %s %s: %s; further ones wait until some "
                    "are closed.",
                    l->path ? "socket" : "port", l->path ? l->path : port, why);
}

/* The first descriptor of the reserve. */
static rlim_t first_of_reserve(const struct listener *l)
{
        struct rlimit r;

        if (l->reserve == 0 || getrlimit(RLIMIT_NOFILE, &r) < 0)
                return RLIM_INFINITY;
        return r.rlim_cur - min_of(r.rlim_cur, (rlim_t) l->reserve);
}

static void on_accept(struct loop_io *io, int events unused_)
{
        struct listener *l = container_of(io, struct listener, io);
        struct boot_time end = boot_add(loop_now(l->loop), ACCEPT_FOR);
        rlim_t reserve = first_of_reserve(l);

        for (int i = 0; i < ACCEPTS && boot_before(boot_glance(), end); i++) {
                int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

                if (fd < 0 &&
                    (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM))
                        return rest(l, strerror(errno));
                if (fd < 0)
                        return;
                if ((rlim_t) fd >= reserve) { /* it was the lowest that was free */
                        close(fd);
                        return rest(l, "too few file descriptors are left (RLIMIT_NOFILE)");
                }
                l->fn(fd, l->userdata);
        }
}

/* A name may have IPv4 and IPv6 addresses. Takes an IPv4 one if there is one, as Go's programs
 * do. */
static const struct addrinfo *first_of(const struct addrinfo *all)
{
        for (const struct addrinfo *a = all; a; a = a->ai_next)
                if (a->ai_family == AF_INET)
                        return a;
        return all;
}

static int listen_at(struct listener *l, const struct url *u)
{
        struct addrinfo hints = {.ai_socktype = SOCK_STREAM,
                                 .ai_flags = AI_PASSIVE | AI_NUMERICSERV},
                        *all;
        const struct addrinfo *ai;
        char port[8];
        int one = 1, r;

        snprintf(port, sizeof(port), "%u", u->port);
        r = getaddrinfo(u->host, port, &hints, &all);
        if (r != 0)
                return r == EAI_SYSTEM ? -errno : -EADDRNOTAVAIL;
        ai = first_of(all);
        l->fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        r = l->fd < 0 ? -errno : 0;
        if (r == 0) {
                (void) setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
                stream_set_options(l->fd);
                if (bind(l->fd, ai->ai_addr, ai->ai_addrlen) < 0 ||
                    listen(l->fd, LISTEN_BACKLOG) < 0)
                        r = -errno;
        }
        freeaddrinfo(all);
        return r;
}

/* Removes a socket on which nobody listens, left behind by a process that was killed. */
static int remove_left_over(const struct inet_address *at, const char *path)
{
        int fd, r = -EADDRINUSE;
        struct stat st;

        if (lstat(path, &st) < 0)
                return -errno;
        if (!S_ISSOCK(st.st_mode))
                return -EEXIST;
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        if (connect(fd, (const struct sockaddr *) &at->addr, at->len) < 0 &&
            errno == ECONNREFUSED)
                r = unlink(path) < 0 ? -errno : 0;
        close(fd);
        return r;
}

static int listen_locally(struct listener *l, const struct url *u)
{
        struct inet_address at;
        const struct sockaddr *addr = (const struct sockaddr *) &at.addr;
        int r;

        inet_address_local(u, &at);
        l->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (l->fd < 0)
                return -errno;
        r = bind(l->fd, addr, at.len) < 0 ? -errno : 0;
        if (r == -EADDRINUSE) {
                r = remove_left_over(&at, u->host);
                if (r == 0 && bind(l->fd, addr, at.len) < 0)
                        r = -errno;
        }
        if (r < 0)
                return r;
        l->path = strdup(u->host);
        if (!l->path)
                return -ENOMEM;
        return listen(l->fd, LISTEN_BACKLOG) < 0 ? -errno : 0;
}

int listener_new(struct listener **ret, struct loop *loop, const struct url *u, listener_fn fn,
                 void *userdata)
{
        cleanup_(listener_freep) struct listener *l = calloc(1, sizeof(*l));
        int r;

        if (!l)
                return -ENOMEM;
        l->fd = -1;
        l->loop = loop;
        loop_timer_init(&l->pause, loop, on_pause_over);
        l->io.what = "new connections";
        l->fn = fn;
        l->userdata = userdata;
        r = u->local ? listen_locally(l, u) : listen_at(l, u);
        if (r < 0)
                return r;
        loop_io_start(&l->io, loop, l->fd, EV_READ, on_accept);
        *ret = take_ptr(l);
        return 0;
}

uint16_t listener_port(const struct listener *l)
{
        struct sockaddr_storage a;
        socklen_t len = sizeof(a);

        if (getsockname(l->fd, (struct sockaddr *) &a, &len) < 0 || a.ss_family == AF_UNIX)
                return 0;
        return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *) (void *) &a)->sin6_port
                                             : ((struct sockaddr_in *) (void *) &a)->sin_port);
}

struct listener *listener_free(struct listener *l)
{
        if (!l)
                return NULL;
        loop_io_stop(&l->io);
        loop_timer_disarm(&l->pause);
        if (l->fd >= 0)
                close(l->fd);
        if (l->path)
                (void) unlink(l->path);
        free(l->path);
        free(l);
        return NULL;
}
