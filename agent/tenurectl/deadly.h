/* Signals that end a process by default and are neither faults nor those by which people ask it
 * to end: timers, limits, power and other programs send them (signal(7)). */
#pragma once

#include <signal.h>

static const int deadly_signals[] = {
        SIGUSR1,   SIGUSR2, SIGALRM, SIGVTALRM, SIGPROF, SIGXCPU, SIGIO, SIGPWR,
#ifdef SIGSTKFLT /* not on MIPS */
        SIGSTKFLT,
#endif
};
