#include "loop/clock.h"

#include <sys/stat.h>
#include <sys/timerfd.h>

/* How far two readings of the time spent asleep may differ although the host did not sleep,
 * because some time passes between reading the two clocks. If an interruption makes it longer,
 * we read again. */
#define BETWEEN (10 * NSEC_PER_USEC)
#define LOOK_AGAIN 8

/* The rate is measured over at least this long, or it would reflect the calls rather than the
 * clocks. No kernel lets it be further from 1 (adjtimex(2): tick by 10 %, frequency and offset
 * by 500 ppm each). */
#define RATE_SPAN (250 * NSEC_PER_MSEC)
#define RATE_OFF 0.102

static nsec_t nsec(clockid_t id)
{
        struct timespec ts;

        clock_gettime(id, &ts);
        return (nsec_t) ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static void read_clocks(struct clock_reading *ret)
{
        ret->monotonic = nsec(CLOCK_MONOTONIC);
        ret->boot = nsec(CLOCK_BOOTTIME);
        ret->raw = nsec(CLOCK_MONOTONIC_RAW);
}

/* The time spent asleep as of @r, plus what passed between the two calls. So it is never less
 * than the truth, and the smallest of several readings is the best. */
static nsec_t asleep(const struct clock_reading *r)
{
        return r->boot - r->monotonic;
}

/* Measures the rate between two readings that nothing interrupted; a further reading right
 * after @r shows whether @r was interrupted. Returns whether @r is out of date by then. */
static bool measure_rate(struct boot_clock *c, const struct clock_reading *r)
{
        nsec_t raw = r->raw - c->marked.raw, monotonic = r->monotonic - c->marked.monotonic;
        struct clock_reading next;

        if (c->marked.raw > 0 && raw < RATE_SPAN)
                return false;
        c->read(&next);
        if (next.monotonic - r->monotonic > BETWEEN)
                return true;
        if (c->marked.raw > 0)
                c->rate = max_of(min_of((double) monotonic / (double) raw, 1 + RATE_OFF),
                                 1 - RATE_OFF);
        c->marked = *r;
        return true;
}

static void read_all(struct boot_clock *c, struct clock_reading *r)
{
        nsec_t least;

        c->read(r);
        if (c->started && asleep(r) >= c->asleep && asleep(r) <= c->asleep + BETWEEN)
                return;
        /* The host slept, or we were interrupted, now or at the previous measurement. */
        least = asleep(r);
        for (unsigned i = 0; i < LOOK_AGAIN; i++) {
                c->read(r);
                least = min_of(least, asleep(r));
        }
        if (!c->started || least < c->asleep || least > c->asleep + BETWEEN)
                c->asleep = least;
        if (!c->started)
                c->rate = 1;
        c->started = true;
}

static struct boot_time read_now(struct boot_clock *c, struct clock_reading *r)
{
        read_all(c, r);
        if (measure_rate(c, r))
                read_all(c, r);
        c->last = max_of(c->last, r->raw + c->asleep);
        return (struct boot_time){c->last};
}

struct boot_time boot_clock_now(struct boot_clock *c)
{
        struct clock_reading r;

        return read_now(c, &r);
}

struct boot_time boot_clock_glance(struct boot_clock *c, nsec_t raw)
{
        if (!c->started)
                return boot_clock_now(c);
        c->last = max_of(c->last, raw + c->asleep);
        return (struct boot_time){c->last};
}

/* While our clock advances by x, CLOCK_BOOTTIME advances by the part of x that was slept, and
 * by at least 1 - RATE_OFF of the rest. */
bool boot_clock_is_ahead(struct boot_clock *c, struct boot_ahead *a, struct boot_time t,
                         nsec_t boot)
{
        nsec_t left;

        if (t.ns == a->of.ns && boot < a->until)
                return true;
        left = boot_diff(t, boot_clock_now(c));
        *a = (struct boot_ahead){
                .of = t,
                .until = left > 0 ? boot + (nsec_t) ((double) left * (1 - RATE_OFF)) : 0};
        return left > 0;
}

static struct timespec to_timespec(nsec_t t)
{
        return (struct timespec){.tv_sec = (time_t) (t / NSEC_PER_SEC),
                                 .tv_nsec = (long) (t % NSEC_PER_SEC)};
}

struct timespec boot_clock_timer(struct boot_clock *c, struct boot_time t)
{
        struct clock_reading r;
        nsec_t left = boot_diff(t, read_now(c, &r));

        if (left <= 0)
                return to_timespec(1); /* long ago; all zeroes would disarm a timer */
        if (left >= BOOT_TIME_NEVER.ns / 4)
                return to_timespec(BOOT_TIME_NEVER.ns);
        /* A little more if the rate was measured: a timer that fires early has to be armed
         * again. */
        return to_timespec(r.boot + (nsec_t) ((double) left * c->rate) + (left >> 17) +
                           5 * NSEC_PER_USEC);
}

int64_t boot_clock_usec(struct boot_clock *c, struct boot_time t)
{
        struct clock_reading r;
        nsec_t left;

        if (t.ns <= 0)
                return 0;
        left = boot_diff(t, read_now(c, &r));
        if (left >= BOOT_TIME_NEVER.ns / 4)
                return BOOT_TIME_NEVER.ns / NSEC_PER_USEC;
        return (r.boot + (nsec_t) ((double) left * min_of(c->rate, 1.0))) / NSEC_PER_USEC;
}

static _Thread_local struct boot_clock clock_here = {.read = read_clocks};

struct boot_time boot_now(void)
{
        return boot_clock_now(&clock_here);
}

struct boot_time boot_glance(void)
{
        return boot_clock_glance(&clock_here, nsec(CLOCK_MONOTONIC_RAW));
}

bool boot_is_ahead(struct boot_ahead *a, struct boot_time t)
{
        return boot_clock_is_ahead(&clock_here, a, t, nsec(CLOCK_BOOTTIME));
}

int boot_timer_new(void)
{
        int fd = timerfd_create(CLOCK_BOOTTIME, TFD_NONBLOCK | TFD_CLOEXEC);

        return fd < 0 ? -errno : fd;
}

void boot_timer_arm(int fd, struct boot_time when)
{
        struct itimerspec its = {0};

        if (when.ns != BOOT_TIME_NEVER.ns)
                its.it_value = boot_clock_timer(&clock_here, when);
        timerfd_settime(fd, TFD_TIMER_ABSTIME, &its, NULL);
}

double boot_rate(void)
{
        return clock_here.started ? clock_here.rate : 1;
}

int64_t boot_usec(struct boot_time t)
{
        return boot_clock_usec(&clock_here, t);
}

nsec_t thread_cpu_time(void)
{
        return nsec(CLOCK_THREAD_CPUTIME_ID);
}

uint64_t boot_namespace(void)
{
        struct stat st;

        return stat("/proc/self/ns/time", &st) < 0 ? 0 : (uint64_t) st.st_ino;
}
