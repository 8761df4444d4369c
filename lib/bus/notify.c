#include "bus/notify.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <systemd/sd-daemon.h>
#include <systemd/sd-journal.h>
#include <systemd/sd-login.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"

void notify_ready(void)
{
        sd_notify(0, "READY=1");
}

void notify_reloading(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_MONOTONIC, &ts); /* as systemd orders it by */
        sd_notifyf(0, "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
                   (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000);
}

void notify_status(const char *fmt, ...)
{
        char text[512];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        sd_notifyf(0, "STATUS=%s", text);
}

void notify_watchdog(void)
{
        sd_notify(0, "WATCHDOG=1");
}

void notify_stopping(void)
{
        sd_notify(0, "STOPPING=1");
}

bool notify_is_unit(const char *prefix)
{
        cleanup_(freep) char *unit = NULL;

        return sd_pid_get_unit(0, &unit) >= 0 && strncmp(unit, prefix, strlen(prefix)) == 0;
}

void notify_keep_fd(const char *name, int fd)
{
        char text[128];

        snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s", name);
        sd_pid_notify_with_fds(0, 0, text, &fd, 1);
}

int notify_kept_fd(const char *name)
{
        char **names = NULL;
        int n = sd_listen_fds_with_names(0, &names), fd = -1;

        for (int i = 0; i < n; i++) {
                if (fd < 0 && strcmp(names[i], name) == 0)
                        fd = SD_LISTEN_FDS_START + i;
                else
                        close(SD_LISTEN_FDS_START + i);
        }
        for (int i = 0; i < n; i++)
                free(names[i]);
        free(names);
        return fd;
}

nsec_t notify_watchdog_period(void)
{
        uint64_t usec;

        return sd_watchdog_enabled(0, &usec) > 0 ? (nsec_t) usec * NSEC_PER_USEC : 0;
}

void notify_watchdog_shorten(nsec_t period)
{
        sd_notifyf(0, "WATCHDOG_USEC=%" PRId64, period / NSEC_PER_USEC);
}

#define FIELDS_MAX 16

static void sink_journal(int level, const char *const fields[], const char *text)
{
        struct iovec iov[FIELDS_MAX + 2];
        char message[1100], priority[16];
        int n = 0;

        snprintf(message, sizeof(message), "MESSAGE=%s", text);
        snprintf(priority, sizeof(priority), "PRIORITY=%d", level);
        iov[n++] = (struct iovec){message, strlen(message)};
        iov[n++] = (struct iovec){priority, strlen(priority)};
        for (size_t i = 0; fields && fields[i] && i < FIELDS_MAX; i++)
                iov[n++] = (struct iovec){(void *) (uintptr_t) fields[i], strlen(fields[i])};
        sd_journal_sendv(iov, n);
}

void notify_use_journal(void)
{
        const char *stream = getenv("JOURNAL_STREAM");
        unsigned long long dev, ino;
        struct stat st;

        /* systemd.exec(5): JOURNAL_STREAM names the device and inode; a shell in between may
         * have redirected us. */
        if (stream && sscanf(stream, "%llu:%llu", &dev, &ino) == 2 &&
            fstat(STDERR_FILENO, &st) == 0 && st.st_dev == dev && st.st_ino == ino)
                log_set_sink(sink_journal);
}
