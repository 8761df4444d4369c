/*
 * What /metrics shows: one page with all that this replica counts, as Prometheus reads it.
 *
 * What etcd has too goes by etcd's names, so that its dashboards and alerts work; what it has
 * not begins with tenure_. A sample has the same name and labels in both formats, so that a
 * reader that asks for the other one goes on with the same series. The page is a table
 * (metrics.c); to make it takes half a millisecond, however many leases, keys and watches there
 * are.
 */
#pragma once

#include "etcd/api.h"

/* Content types of the two. */
#define METRICS_TEXT "text/plain; version=0.0.4; charset=utf-8"
#define METRICS_OPEN "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Appends the page: in the text format, or in OpenMetrics 1.0. Looks at /proc/self. A failed
 * allocation shows in buf_error(). */
void metrics_write(struct api *a, bool open_metrics, struct buf *out);

/* The same as metrics_write() does it, for who has counted and asked elsewhere, as tests have:
 * see histogram.h. @name without the ending of its samples; @labels: `a="b",`, with the comma,
 * or empty. */
void metrics_histogram(struct buf *out, const char *name, const char *labels,
                       const struct histogram *h, const struct histogram_shape *s);
