#include "loop/standstill.h"

#include <linux/netlink.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define KERNEL_EVENTS 1 /* the multicast group to which the kernel itself sends */
#define EVENT_MAX 8192
#define SIGN "NEW_VMGENID=1"

/* The timer never fires; only a change of the date ends the wait (TFD_TIMER_CANCEL_ON_SET). */
static void wait_for_date(int fd)
{
        struct itimerspec its = {.it_value.tv_sec = INT64_MAX / NSEC_PER_SEC};

        timerfd_settime(fd, TFD_TIMER_ABSTIME | TFD_TIMER_CANCEL_ON_SET, &its, NULL);
}

static void on_date(struct loop_io *io, int events unused_)
{
        struct standstill *s = container_of(io, struct standstill, date);
        uint64_t n;

        if (read(io->ev.fd, &n, sizeof(n)) >= 0 || errno != ECANCELED)
                return;
        wait_for_date(io->ev.fd);
        s->fn(s, "The date was set");
}

bool standstill_is_sign(const char *event, size_t len)
{
        for (const char *p = event, *end; p < event + len; p = end + 1) {
                end = memchr(p, '\0', (size_t) (event + len - p));
                if (!end)
                        return false;
                if (strcmp(p, SIGN) == 0)
                        return true;
        }
        return false;
}

static void on_machine(struct loop_io *io, int events unused_)
{
        struct standstill *s = container_of(io, struct standstill, machine);
        struct sockaddr_nl from = {0};
        socklen_t from_len = sizeof(from);
        char event[EVENT_MAX];
        ssize_t n = recvfrom(io->ev.fd, event, sizeof(event), MSG_DONTWAIT,
                             (struct sockaddr *) &from, &from_len);

        /* Errors, such as lost events, are no sign; messages from user space are forged. */
        if (n > 0 && from.nl_pid == 0 && standstill_is_sign(event, (size_t) n))
                s->fn(s, "The generation id of this machine has changed");
}

static int listen_to_kernel(void)
{
        struct sockaddr_nl a = {.nl_family = AF_NETLINK, .nl_groups = KERNEL_EVENTS};
        int fd = socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                        NETLINK_KOBJECT_UEVENT);

        if (fd >= 0 && bind(fd, (struct sockaddr *) &a, sizeof(a)) < 0) {
                close(fd);
                fd = -1;
        }
        return fd;
}

void standstill_start(struct standstill *s, struct loop *l,
                      void (*fn)(struct standstill *s, const char *sign))
{
        int date = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK | TFD_CLOEXEC);
        int machine = listen_to_kernel();

        *s = (struct standstill){.fn = fn};
        s->date.what = s->machine.what = "signs of a standstill";
        if (date >= 0) {
                wait_for_date(date);
                loop_io_start(&s->date, l, date, EV_READ, on_date);
        }
        if (machine >= 0)
                loop_io_start(&s->machine, l, machine, EV_READ, on_machine);
}

static void stop(struct loop_io *io)
{
        if (!io->loop)
                return;
        loop_io_stop(io);
        close(io->ev.fd);
        io->loop = NULL;
}

void standstill_stop(struct standstill *s)
{
        stop(&s->date);
        stop(&s->machine);
}
