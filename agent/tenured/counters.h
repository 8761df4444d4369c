/*
 * What the agent counts for whoever watches over it, since it was started: GetMetrics of the
 * Manager, of which `tenurectl metrics` makes Prometheus's text. The record of the last day is
 * advice.h's.
 */
#pragma once

#include "base/histogram.h"
#include "session/session.h"

struct counters {
        uint64_t places; /* taken, or resumed */
        uint64_t jeopardies, losses;
        struct histogram round_trip; /* of acknowledged renewals; histogram_way */
        struct histogram margin;     /* what was left to the deadline then; counters_long */
};

/* 10 ms to 120 s, in nanoseconds. */
extern const struct histogram_shape counters_long;

/* @s: with the deadline that @r has moved. */
void counters_renewed(struct counters *c, const struct session *s,
                      const struct session_renewal *r);
void counters_session(struct counters *c, enum session_state was, enum session_state is);
