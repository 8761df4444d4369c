/* For LD_PRELOAD: the wall clock is off by as many seconds as the file $WRONG_CLOCK says, and
 * changes when that does. Every other clock is what it is. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static long off_by(void)
{
        const char *path = getenv("WRONG_CLOCK");
        char text[24] = "";
        int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

        if (fd < 0)
                return 0;
        (void) !read(fd, text, sizeof(text) - 1);
        close(fd);
        return atol(text);
}

int clock_gettime(clockid_t id, struct timespec *ts)
{
        int r = (int) syscall(SYS_clock_gettime, id, ts);

        if (r == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
                ts->tv_sec += off_by();
        return r;
}

int gettimeofday(struct timeval *restrict tv, void *restrict tz)
{
        struct timespec ts;

        (void) tz;
        clock_gettime(CLOCK_REALTIME, &ts);
        tv->tv_sec = ts.tv_sec;
        tv->tv_usec = ts.tv_nsec / 1000;
        return 0;
}

time_t time(time_t *ret)
{
        struct timespec ts;

        clock_gettime(CLOCK_REALTIME, &ts);
        if (ret)
                *ret = ts.tv_sec;
        return ts.tv_sec;
}
