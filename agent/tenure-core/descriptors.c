#include "descriptors.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "etcd/server.h"

#define ASIDE 288 /* for the log, links to replicas and the like */

/* The kernel grows the table of descriptors as they are opened. In a process with threads it
 * waits for all processors each time (expand_fdtable(), synchronize_rcu()): the 256th client,
 * the 512th and so on held the loop for 15 ms each, and for 179 ms on a busy machine. The table
 * never shrinks, so open it at its full size once. */
static void widen(int n)
{
        int fd = open("/", O_PATH | O_CLOEXEC),
            last = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, n) : -1;

        if (last >= 0)
                close(last);
        if (fd >= 0)
                close(fd);
}

void descriptors_raise(struct options *o)
{
        rlim_t aside = ASIDE + (*o->listen_metrics_urls ? SERVER_PROBES_MAX : 0);
        struct rlimit r;

        if (getrlimit(RLIMIT_NOFILE, &r) < 0)
                return;
        r.rlim_cur = r.rlim_max;
        (void) setrlimit(RLIMIT_NOFILE, &r);
        widen((int) min_of(r.rlim_cur - 1, o->max_connections + aside));
        if (o->max_connections + aside <= r.rlim_cur)
                return;
        o->max_connections = r.rlim_cur > aside + ASIDE ? r.rlim_cur - aside : 1;
        log_notice("The limit of file descriptors (LimitNOFILE=) is %" PRIu64
                   ": at most %" PRIu64 " clients can connect at the same time.",
                   (uint64_t) r.rlim_cur, o->max_connections);
}
