#include "virtual_time.h"

#include <dlfcn.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>

#include "base/base.h"
#include "base/clock.h"

#define SPEED 50
#define NEVER INT64_MAX
#define FDS_MAX 1024

static bool on;
static nsec_t ahead;        /* of the kernel's clocks */
static nsec_t due[FDS_MAX]; /* by our clocks, of each timerfd that was set meanwhile; or 0 */

/* The next function of that name, which may be a sanitizer's. */
#define REAL(name)                                                \
        ({                                                        \
                static __typeof__(&name) _f;                      \
                                                                  \
                if (!_f)                                          \
                        *(void **) &_f = dlsym(RTLD_NEXT, #name); \
                _f;                                               \
        })

static nsec_t to_nsec(const struct timespec *ts)
{
        return ts->tv_sec * NSEC_PER_SEC + ts->tv_nsec;
}

static struct timespec to_timespec(nsec_t t)
{
        return (struct timespec){.tv_sec = t / NSEC_PER_SEC, .tv_nsec = t % NSEC_PER_SEC};
}

int clock_gettime(clockid_t id, struct timespec *ret)
{
        int r = REAL(clock_gettime)(id, ret);

        if (r == 0 && ahead > 0 &&
            (id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_RAW || id == CLOCK_BOOTTIME))
                *ret = to_timespec(to_nsec(ret) + ahead);
        return r;
}

static nsec_t now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_BOOTTIME, &ts);
        return to_nsec(&ts);
}

static int arm(int fd, nsec_t when, struct itimerspec *ret_old)
{
        const struct itimerspec its = {.it_value = to_timespec(max_of(when - ahead, 1))};

        return REAL(timerfd_settime)(fd, TFD_TIMER_ABSTIME, &its, ret_old);
}

/* That of a timer by the date has other flags (standstill.c). */
int timerfd_settime(int fd, int flags, const struct itimerspec *its, struct itimerspec *ret_old)
{
        nsec_t when = to_nsec(&its->it_value);

        if (flags != TFD_TIMER_ABSTIME || fd < 0 || fd >= FDS_MAX)
                return REAL(timerfd_settime)(fd, flags, its, ret_old);
        due[fd] = on ? when : 0;
        if (when == 0 || ahead == 0)
                return REAL(timerfd_settime)(fd, flags, its, ret_old);
        return arm(fd, when, ret_old);
}

/* The first timer that is due after @t. */
static nsec_t soonest(nsec_t t)
{
        nsec_t first = NEVER;

        for (int fd = 0; fd < FDS_MAX; fd++)
                if (due[fd] > t)
                        first = min_of(first, due[fd]);
        return first;
}

/* Those that were due before have fired. */
static void advance(nsec_t to)
{
        nsec_t t = now();

        if (to <= t)
                return;
        ahead += to - t;
        for (int fd = 0; fd < FDS_MAX; fd++)
                if (due[fd] <= t || arm(fd, due[fd], NULL) < 0) /* it was closed */
                        due[fd] = 0;
}

static int look(struct pollfd *p, nfds_t n, nsec_t wait)
{
        struct timespec ts = to_timespec(wait);

        return ppoll(p, n, wait == NEVER ? NULL : &ts, NULL);
}

static int wait_for(struct pollfd *p, nfds_t n, int timeout_ms)
{
        nsec_t t = now(), end = timeout_ms < 0 ? NEVER : t + timeout_ms * NSEC_PER_MSEC, next;
        int r;

        for (;; t = now()) {
                next = min_of(end, soonest(t));
                r = look(p, n, next == NEVER ? NEVER : max_of(next - t, 0) / SPEED);
                if (r != 0)
                        return r;
                advance(next);
                /* The kernel takes a moment for a timer that is due at once. */
                r = look(p, n, next == end ? 0 : NSEC_PER_MSEC);
                if (r != 0 || next == end)
                        return r;
        }
}

int poll(struct pollfd *p, nfds_t n, int timeout_ms)
{
        if (!on || timeout_ms == 0)
                return REAL(poll)(p, n, timeout_ms);
        return wait_for(p, n, timeout_ms);
}

int epoll_wait(int fd, struct epoll_event *ret, int n, int timeout_ms)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};

        if (!on || timeout_ms == 0)
                return REAL(epoll_wait)(fd, ret, n, timeout_ms);
        if (wait_for(&p, 1, timeout_ms) < 0)
                return -1;
        return REAL(epoll_wait)(fd, ret, n, 0);
}

void virtual_time_begin(void)
{
        on = true;
}

void virtual_time_end(void)
{
        on = false;
}
