/*
 * What /metrics shows: one page with all that this replica counts, as Prometheus reads it.
 *
 * Metrics that etcd has, too, have etcd's names, so that its dashboards and alerts work; the
 * others begin with tenure_. A sample has the same name and labels in both formats, so that a
 * reader that changes the format continues the same series. The page is a table (metrics.c);
 * making it takes half a millisecond, however many leases, keys and watches there are.
 */
#pragma once

#include "etcd/api.h"

/* Content types of the two. */
#define METRICS_TEXT "text/plain; version=0.0.4; charset=utf-8"
#define METRICS_OPEN "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Appends the page, in the text format or in OpenMetrics 1.0. Reads /proc/self. A failed
 * allocation shows in buf_error(). */
void metrics_write(struct api *a, bool open_metrics, struct buf *out);

/* Appends one histogram as metrics_write() does, for callers with histograms of their own, such
 * as tests: see histogram.h. @name is without the suffix of the samples; @labels: `a="b",`,
 * with the comma, or empty. */
void metrics_histogram(struct buf *out, const char *name, const char *labels,
                       const struct histogram *h, const struct histogram_shape *s);
