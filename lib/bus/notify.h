/*
 * The service's messages to systemd: readiness, status and watchdog, as sd_notify(3) sends
 * them, but without ever waiting: a service manager that does not read must not delay a
 * heartbeat. Messages that it does not take now are kept, the newest of each kind, and sent by
 * notify_flush().
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

/* Each does nothing when no service manager listens. */
void notify_ready(void);
void notify_reloading(void);                            /* notify_ready() follows */
void notify_status(const char *fmt, ...) printf_(1, 2); /* becomes one line, see utf8_shown() */
void notify_watchdog(void);
void notify_stopping(void);
#define NOTIFY_EXTEND_EACH NSEC_PER_SEC /* interval between messages during a stop */
#define NOTIFY_EXTEND_BY (30 * NSEC_PER_SEC)
void notify_extend(nsec_t by); /* the stop takes so long from now on, or longer */

/* Sends what could not be sent before, in its order; in every turn of the loop. */
void notify_flush(void);

/* True when we run as the system's unit @prefix*.service, not in somebody's terminal. */
bool notify_is_unit(const char *prefix);

/* The service manager keeps a duplicate of @fd for our next life, under @name (FDSTORE=1 in
 * sd_notify(3)). @fd is borrowed, and may be closed afterwards. */
void notify_keep_fd(const char *name, int fd);

/* The descriptor that it kept under each name, now ours; -1: none. Call it once, early: it
 * closes all other kept descriptors. */
void notify_kept_fds(const char *const names[], size_t n_names, int ret[]);

/* Whether there is a service manager that listens, and so may keep descriptors. */
bool notify_listens(void);

/* The watchdog's period from WATCHDOG_USEC; 0 when there is none. Another one may be asked for.
 */
nsec_t notify_watchdog_period(void);
void notify_watchdog_set(nsec_t period);
