/* systemd's side of a service: readiness, status and watchdog by sd_notify(3), and the journal
 * as a log sink. */
#pragma once

#include "base/base.h"
#include "base/clock.h"

/* Each does nothing when no service manager listens. */
void notify_ready(void);
void notify_status(const char *fmt, ...) printf_(1, 2);
void notify_watchdog(void);
void notify_stopping(void);

/* The watchdog's period from WATCHDOG_USEC; 0 when there is none. */
nsec_t notify_watchdog_period(void);

/* Sends log messages to the journal, with their fields, where standard error is connected to
 * it. */
void notify_use_journal(void);
