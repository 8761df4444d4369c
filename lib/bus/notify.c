#include "bus/notify.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-login.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/utf8.h"

/* ---- never waiting ---- */

struct word {
        char text[600];
        int fd; /* sent with the message, and ours while it waits; -1: none */
};

/* Messages that could not be sent yet, oldest first. There is at most one of each kind, and
 * these are the kinds: STATUS=, READY=, RELOADING=, STOPPING=, WATCHDOG_USEC=,
 * EXTEND_TIMEOUT_USEC=, WATCHDOG=, and FDSTORE= for each name. */
#define WORDS_MAX 12
static struct word waiting[WORDS_MAX];
static size_t n_waiting;

/* Returns 0, even if nobody listens, or -EAGAIN. */
static int say(const struct word *w)
{
        const char *path = getenv("NOTIFY_SOCKET");
        struct sockaddr_un a = {.sun_family = AF_UNIX};
        struct iovec iov = {(void *) (uintptr_t) w->text, strlen(w->text)};
        union {
                struct cmsghdr h;
                uint8_t room[CMSG_SPACE(sizeof(int))];
        } control = {0};
        struct msghdr m = {.msg_name = &a, .msg_iov = &iov, .msg_iovlen = 1};
        static int fd = -1;

        if (!path || (*path != '/' && *path != '@') || strlen(path) >= sizeof(a.sun_path))
                return 0;
        if (fd < 0)
                fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        memcpy(a.sun_path, path, strlen(path));
        if (*path == '@')
                a.sun_path[0] = '\0';
        m.msg_namelen = (socklen_t) (offsetof(struct sockaddr_un, sun_path) + strlen(path));
        if (w->fd >= 0) {
                m.msg_control = &control;
                m.msg_controllen = sizeof(control);
                control.h = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
                                             .cmsg_type = SCM_RIGHTS,
                                             .cmsg_len = CMSG_LEN(sizeof(int))};
                memcpy(CMSG_DATA(&control.h), &w->fd, sizeof(int));
        }
        if (sendmsg(fd, &m, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
                return 0;
        return errno == EAGAIN || errno == ENOBUFS || errno == EINTR ? -EAGAIN : 0;
}

static void forget(size_t i)
{
        if (waiting[i].fd >= 0)
                close(waiting[i].fd);
        memmove(&waiting[i], &waiting[i + 1], (--n_waiting - i) * sizeof(waiting[0]));
}

void notify_flush(void)
{
        size_t i = 0;

        while (i < n_waiting && say(&waiting[i]) == 0)
                i++;
        for (; i > 0; i--)
                forget(0);
}

/* Only the newest message of a kind counts; they are sent in the order in which they were
 * said. */
static void tell(int fd, const char *fmt, ...) printf_(2, 3);
static void tell(int fd, const char *fmt, ...)
{
        struct word w = {.fd = fd};
        size_t kind;
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(w.text, sizeof(w.text), fmt, ap);
        va_end(ap);
        kind = fd >= 0 ? sizeof(w.text) : strcspn(w.text, "=") + 1;
        for (size_t i = 0; i < n_waiting; i++)
                if (strncmp(waiting[i].text, w.text, kind) == 0) {
                        forget(i);
                        break;
                }
        notify_flush();
        if (n_waiting == 0 && say(&w) == 0)
                return;
        assert(n_waiting < WORDS_MAX);
        /* Until it is sent, the caller may close the descriptor. */
        w.fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
        if (fd < 0 || w.fd >= 0)
                waiting[n_waiting++] = w;
}

void notify_ready(void)
{
        tell(-1, "READY=1");
}

void notify_reloading(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts); /* systemd orders reloads by this */
        tell(-1, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
             (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000);
}

/* The text may come from elsewhere, and each line of a message is an order to systemd. */
void notify_status(const char *fmt, ...)
{
        char text[512], line[512];
        va_list ap;

        va_start(ap, fmt);
        utf8_vprint(text, sizeof(text), fmt, ap);
        va_end(ap);
        tell(-1, "STATUS=%s", utf8_shown(text, strlen(text), line, sizeof(line)));
}

void notify_watchdog(void)
{
        tell(-1, "WATCHDOG=1");
}

void notify_stopping(void)
{
        tell(-1, "STOPPING=1");
}

void notify_extend(nsec_t by)
{
        tell(-1, "EXTEND_TIMEOUT_USEC=%" PRId64, by / NSEC_PER_USEC);
}

bool notify_is_unit(const char *prefix)
{
        cleanup_(freep) char *unit = NULL;

        return sd_pid_get_unit(0, &unit) >= 0 && strncmp(unit, prefix, strlen(prefix)) == 0;
}

void notify_keep_fd(const char *name, int fd)
{
        tell(fd, "FDSTORE=1\nFDNAME=%s", name);
}

void notify_kept_fds(const char *const names[], size_t n_names, int ret[])
{
        char **kept = NULL;
        int n = sd_listen_fds_with_names(0, &kept);

        for (size_t k = 0; k < n_names; k++)
                ret[k] = -1;
        for (int i = 0; i < n; i++) {
                int fd = SD_LISTEN_FDS_START + i;

                for (size_t k = 0; k < n_names && fd >= 0; k++)
                        if (ret[k] < 0 && strcmp(kept[i], names[k]) == 0) {
                                ret[k] = fd;
                                fd = -1;
                        }
                if (fd >= 0)
                        close(fd);
        }
        for (int i = 0; i < n; i++)
                free(kept[i]);
        free(kept);
}

bool notify_listens(void)
{
        return getenv("NOTIFY_SOCKET") != NULL;
}

nsec_t notify_watchdog_period(void)
{
        uint64_t usec;

        return sd_watchdog_enabled(0, &usec) > 0 ? (nsec_t) usec * NSEC_PER_USEC : 0;
}

void notify_watchdog_set(nsec_t period)
{
        tell(-1, "WATCHDOG_USEC=%" PRId64, period / NSEC_PER_USEC);
}
