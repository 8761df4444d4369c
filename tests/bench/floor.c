/*
 * The lower bound for "leases kept alive on many connections: leader's CPU": a server that only
 * reads 24 bytes and answers 57, the sizes of a renewal and its answer, on a given number of
 * connections and at a given rate. What it costs is what the kernel costs for TCP; no server
 * with one connection per client can cost less.
 *
 * usage: floor CONNECTIONS MESSAGES-PER-SECOND SECONDS WINDOW-MS answers are collected for
 * WINDOW-MS (0: each is sent at once); prints the server's share of a core, in percent.
 */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/rnd.h"

#define REQUEST 24
#define ANSWER 57
#define EVENTS 64
#define CHECK(x)                               \
        do {                                   \
                if ((x) < 0)                   \
                        return perror(#x), -1; \
        } while (0)

static int64_t now(void)
{
        struct timespec t;

        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * NSEC_PER_SEC + t.tv_nsec;
}

/* What this process has run, as the scheduler counts it; -1 where it does not. */
static int64_t ran(void)
{
        FILE *f = fopen("/proc/self/schedstat", "re");
        long long ns = -1;

        if (f && fscanf(f, "%lld", &ns) != 1)
                ns = -1;
        if (f)
                fclose(f);
        return ns;
}

static int watch(int ep, int fd, uint32_t i)
{
        int one = 1;

        (void) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
        return epoll_ctl(ep, EPOLL_CTL_ADD, fd,
                         &(struct epoll_event){.events = EPOLLIN, .data.u32 = i});
}

/* Until the first connection ends. */
static int serve(int listener, uint32_t n, long window)
{
        struct itimerspec every = {{0, window * NSEC_PER_MSEC}, {0, window * NSEC_PER_MSEC}};
        cleanup_(freep) uint32_t *waiting = calloc(1 << 20, sizeof(*waiting));
        cleanup_(freep) int *fd = calloc(n, sizeof(*fd));
        char in[256], out[ANSWER] = {0};
        struct epoll_event ev[EVENTS];
        int ep = epoll_create1(0), timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
        int64_t cpu, began;
        size_t n_waiting = 0;

        if (!fd || !waiting)
                return -1;
        for (uint32_t i = 0; i < n; i++) {
                CHECK(fd[i] = accept4(listener, NULL, NULL, SOCK_NONBLOCK));
                CHECK(watch(ep, fd[i], i));
        }
        CHECK(watch(ep, timer, n));
        CHECK(timerfd_settime(timer, 0, &every, NULL));
        cpu = ran();
        began = now();
        for (;;) {
                int k = epoll_wait(ep, ev, EVENTS, -1);

                CHECK(k);
                for (int e = 0; e < k; e++) {
                        uint32_t i = ev[e].data.u32;

                        if (i == n) {
                                CHECK(read(timer, in, sizeof(in)));
                                for (size_t w = 0; w < n_waiting; w++)
                                        (void) !send(fd[waiting[w]], out, ANSWER, MSG_NOSIGNAL);
                                n_waiting = 0;
                        } else if (recv(fd[i], in, sizeof(in), 0) <= 0) {
                                printf("%.2f\n",
                                       (double) (ran() - cpu) * 100 / (double) (now() - began));
                                return 0;
                        } else if (window > 0 && n_waiting < 1 << 20) {
                                waiting[n_waiting++] = i;
                        } else {
                                (void) !send(fd[i], out, ANSWER, MSG_NOSIGNAL);
                        }
                }
        }
}

static int load(const struct sockaddr_in *to, uint32_t n, int64_t rate, int64_t seconds)
{
        cleanup_(freep) int *fd = calloc(n, sizeof(*fd));
        int64_t until, next, t;
        struct epoll_event ev[EVENTS];
        char bytes[256] = {0};
        int ep = epoll_create1(0);
        struct rnd rnd;

        if (!fd)
                return -1;
        rnd_init(&rnd, 1);
        for (uint32_t i = 0; i < n; i++) {
                CHECK(fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
                CHECK(connect(fd[i], (const struct sockaddr *) to, sizeof(*to)));
                CHECK(watch(ep, fd[i], i));
        }
        next = now();
        until = next + seconds * NSEC_PER_SEC;
        while ((t = now()) < until) {
                int k;

                for (; t >= next; next += (int64_t) rnd_between(
                                          &rnd, 0, (uint64_t) (2 * NSEC_PER_SEC / rate)))
                        CHECK(send(fd[rnd_between(&rnd, 0, n - 1)], bytes, REQUEST,
                                   MSG_NOSIGNAL));
                CHECK(k = epoll_pwait2(ep, ev, EVENTS, &(struct timespec){0, next - t}, NULL));
                for (int e = 0; e < k; e++)
                        (void) !recv(fd[ev[e].data.u32], bytes, sizeof(bytes), 0);
        }
        return 0; /* the end of this process is the end of the connections */
}

int main(int argc, char **argv)
{
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof(a);
        int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), status = 1;
        uint32_t n;
        pid_t client;

        if (argc != 5 || atoi(argv[1]) <= 0 || atoi(argv[2]) <= 0)
                return fprintf(stderr, "usage: floor CONNECTIONS MESSAGES-PER-SECOND SECONDS "
                                       "WINDOW-MS\n"),
                       2;
        n = (uint32_t) atoi(argv[1]);
        if (listener < 0 || bind(listener, (struct sockaddr *) &a, sizeof(a)) < 0 ||
            listen(listener, 4096) < 0 ||
            getsockname(listener, (struct sockaddr *) &a, &len) < 0)
                return perror("floor"), 1;
        client = fork();
        if (client == 0)
                _exit(load(&a, n, atoi(argv[2]), atoi(argv[3])) < 0);
        if (client < 0 || serve(listener, n, atoi(argv[4])) < 0)
                return 1;
        waitpid(client, &status, 0);
        return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}
