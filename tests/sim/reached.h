/*
 * What worlds reach: the probes in the code (base/probe.h), and what each method of the etcd
 * API was answered with. Counted by each process, added up, and compared with the list of those
 * that are not reached, or seldom, for a reason (tests/sim/unreached).
 */
#pragma once

#include "etcd/api.h"

#define PROBES_MAX 256
#define METHODS_MAX 80
#define CODES (RPC_UNAUTHENTICATED + 1)

struct reached {
        uint64_t worlds[PROBES_MAX];        /* that reached the probe */
        uint64_t calls[METHODS_MAX][CODES]; /* that ended so */
};

/* A world begins. */
void reached_begin(void);
/* A replica is about to end: counts the calls that have ended. */
void reached_api(const struct api *a);
/* A world has ended: adds what it reached. */
void reached_end(struct reached *r);
/* Prints the methods and what they were answered with, and what @worlds worlds reached seldom
 * or never; if these @are_long, what was to be reached by them. Returns how much of it should
 * have been reached, or has a wrong reason; SIZE_MAX: this build has no probes. */
size_t reached_tell(const struct reached *r, uint64_t worlds, bool are_long);
