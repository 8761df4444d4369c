/*
 * Counts of events since the agent was started, for monitoring: GetMetrics of the Manager,
 * which `tenurectl metrics` turns into Prometheus's text. For the record of the last day see
 * advice.h.
 */
#pragma once

#include "base/histogram.h"
#include "session/session.h"

struct counters {
        uint64_t places; /* taken, or resumed */
        uint64_t jeopardies, losses;
        struct histogram round_trip; /* of acknowledged renewals; histogram_way */
        struct histogram margin;     /* time left to the deadline when they were acknowledged;
                                      * counters_long */
};

/* 10 ms to 120 s, in nanoseconds. */
extern const struct histogram_shape counters_long;

/* @s has the deadline that @r has moved already. */
void counters_renewed(struct counters *c, const struct session *s,
                      const struct session_renewal *r);
void counters_session(struct counters *c, enum session_state was, enum session_state is);
