#include "metrics_accept.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "base/clock.h"
#include "ctl.h"
#include "loop/clock.h"
#include "loop/peer.h"

/* How many requests are served at a time: in all, and from one address. */
#define MOST 16
#define MOST_OF_ONE 4
#define SOCKETS_MOST 16
/* The time limit of a request, however slowly the client writes and reads. */
#define REQUEST_SECONDS 15
#define SAY_EVERY (60 * NSEC_PER_SEC)
/* How long to wait after accept(2) or fork(2) failed. */
#define AGAIN_MS 100

struct accepting {
        int sockets[SOCKETS_MOST], n_sockets, sfd;
        struct {
                pid_t pid;
                char from[PEER_MAX]; /* "": a local process */
        } all[MOST];
        size_t n;
        uint64_t refused; /* since the last report */
        struct boot_time say_at;
};

static bool is_too_much(const struct accepting *a, const char *from)
{
        size_t n = 0;

        for (size_t i = 0; i < a->n; i++)
                n += strcmp(a->all[i].from, from) == 0;
        return a->n == MOST || (*from && n >= MOST_OF_ONE);
}

static void say_refused(struct accepting *a, const char *from)
{
        a->refused++;
        if (boot_before(boot_now(), a->say_at))
                return;
        /* <4>: a warning (sd-daemon(3)). */
        fprintf(stderr,
                "<4>tenurectl: too many requests at a time; closed unanswered: %" PRIu64
                ", the last one of %s.\n",
                a->refused, *from ? from : "this host");
        a->refused = 0;
        a->say_at = boot_add(boot_now(), SAY_EVERY);
}

static void reap(struct accepting *a)
{
        struct signalfd_siginfo si;
        pid_t pid;

        while (read(a->sfd, &si, sizeof(si)) == sizeof(si))
                ;
        while ((pid = waitpid(-1, NULL, WNOHANG)) > 0)
                for (size_t i = 0; i < a->n; i++)
                        if (a->all[i].pid == pid) {
                                a->all[i] = a->all[--a->n];
                                break;
                        }
}

static void be_request(const struct accepting *a, int fd, const sigset_t *mask)
{
        for (int i = 0; i < a->n_sockets; i++)
                close(a->sockets[i]);
        close(a->sfd);
        dup2(fd, STDIN_FILENO);
        dup2(fd, STDOUT_FILENO);
        close(fd);
        sigprocmask(SIG_SETMASK, mask, NULL);
        alarm(REQUEST_SECONDS);
}

/* Returns 1 in the child that serves the request. In the accepting process, returns 0, or a
 * negative errno if it should wait a moment before the next try. */
static int accept_one(struct accepting *a, int socket, const sigset_t *mask)
{
        struct sockaddr_storage address = {0};
        socklen_t len = sizeof(address);
        int fd = accept4(socket, (void *) &address, &len, SOCK_CLOEXEC), r;
        char from[PEER_MAX];
        pid_t pid;

        if (fd < 0)
                return errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM
                               ? -errno
                               : 0; /* the client has gone already */
        peer_address(&address, from);
        if (is_too_much(a, from)) {
                say_refused(a, from);
                close(fd);
                return 0;
        }
        pid = fork();
        r = pid < 0 ? -errno : pid == 0;
        if (pid == 0) {
                be_request(a, fd, mask);
                return 1;
        }
        close(fd);
        if (pid > 0) {
                snprintf(a->all[a->n].from, PEER_MAX, "%s", from);
                a->all[a->n++].pid = pid;
        }
        return r;
}

static int accept_all(struct accepting *a, const sigset_t *mask)
{
        struct pollfd p[1 + SOCKETS_MOST] = {{.fd = a->sfd, .events = POLLIN}};
        int r;

        for (int i = 0; i < a->n_sockets; i++)
                p[1 + i] = (struct pollfd){.fd = a->sockets[i], .events = POLLIN};
        for (;;) {
                if (poll(p, 1 + (nfds_t) a->n_sockets, -1) < 0 && errno != EINTR)
                        return ctl_fail("cannot wait for requests", -errno, NULL);
                reap(a);
                for (int i = 0; i < a->n_sockets; i++) {
                        r = p[1 + i].revents ? accept_one(a, a->sockets[i], mask) : 0;
                        if (r > 0)
                                return 1;
                        if (r < 0)
                                (void) !poll(NULL, 0, AGAIN_MS);
                }
        }
}

int metrics_accept(void)
{
        struct accepting a = {.sfd = -1};
        int n = sd_listen_fds(1);
        sigset_t chld, mask;

        /* With Accept=yes systemd passes the connection itself, also as standard input; that is
         * not a listening socket. */
        for (int fd = SD_LISTEN_FDS_START; fd < SD_LISTEN_FDS_START + n; fd++)
                if (sd_is_socket(fd, AF_UNSPEC, SOCK_STREAM, 1) > 0 &&
                    a.n_sockets < SOCKETS_MOST)
                        a.sockets[a.n_sockets++] = fd;
        if (a.n_sockets == 0)
                return 1;
        for (int i = 0; i < a.n_sockets; i++) /* the client may have gone before accept(2) */
                if (fcntl(a.sockets[i], F_SETFL, O_NONBLOCK) < 0)
                        return ctl_fail("cannot wait for requests", -errno, NULL);
        signal(SIGCHLD, SIG_DFL); /* ignored, it would report no end (wait(2)) */
        sigemptyset(&chld);
        sigaddset(&chld, SIGCHLD);
        sigprocmask(SIG_BLOCK, &chld, &mask);
        a.sfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
        if (a.sfd < 0)
                return ctl_fail("cannot wait for signals", -errno, NULL);
        return accept_all(&a, &mask);
}
