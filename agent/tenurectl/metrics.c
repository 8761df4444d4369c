/* tenurectl metrics: what the agent counts, as Prometheus reads it. */
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "loop/clock.h"
#include "metrics_accept.h"
#include "metrics_request.h"
#include "replace.h"
#include "verbs.h"

#define ANSWER_USEC (3 * 1000 * 1000)
/* Limits for a request: larger than any real one, and longer than one takes. */
#define REQUEST_MAX 8192
#define REQUEST_MS 5000
/* How long we wait for the client to close: closing first could reset the connection, and lose
 * what the client has not read. */
#define LINGER_MS 1000

enum type { GAUGE, COUNTER };

/* The agent's name and Prometheus's name for each value. */
static const struct {
        const char *key, *name;
        enum type type;
        const char *help;
} values[] = {
        {"Held", "held", GAUGE, "Whether this host holds its place."},
        {"Synced", "synced", GAUGE, "Whether the agent follows the membership now."},
        {"Connected", "core_connected", GAUGE, "Whether the agent has a core that answers."},
        {"Degraded", "degraded", GAUGE, "Whether something slows this host down."},
        {"MassFailure", "mass_failure", GAUGE,
         "Whether most of the nodes are gone at once (mass failure)."},
        {"Nodes", "nodes", GAUGE, "Nodes in the cluster, as this host sees it."},
        {"Services", "services", GAUGE, "Services in the cluster, as this host sees it."},
        {"Revision", "revision", GAUGE,
         "The newest revision of the core that the agent has seen."},
        {"TTLSeconds", "ttl_seconds", GAUGE, "TTL of the lease; 0 without one."},
        {"MarginSeconds", "margin_seconds", GAUGE,
         "Time to the deadline unless the lease is renewed; 0 while no place is held."},
        {"Heartbeats", "heartbeats_total", COUNTER, "Renewals that were tried."},
        {"HeartbeatsAcknowledged", "heartbeats_acknowledged_total", COUNTER,
         "Renewals that the core acknowledged."},
        {"Places", "places_total", COUNTER, "Places that were taken or resumed."},
        {"Jeopardies", "jeopardies_total", COUNTER,
         "Times without an acknowledged renewal for 7/8 of the TTL."},
        {"Losses", "losses_total", COUNTER, "Places that were lost."},
        {"Fences", "fences_total", COUNTER,
         "Times that the units bound to the place were stopped."},
        {"FencesLate", "fences_late_total", COUNTER,
         "Of these, stops that were not complete by the deadline."},
};

static const struct {
        const char *key, *name, *help;
} histograms[] = {
        {"RoundTripSeconds", "round_trip_seconds",
         "Time from the request of a renewal to its acknowledgement."},
        {"RenewalMarginSeconds", "renewal_margin_seconds",
         "Time left to the deadline when a renewal was acknowledged."},
        {"FenceSeconds", "fence_seconds",
         "Time until nothing bound to the place ran any more."},
};

/* ---- the text, version 0.0.4 ---- */

static void add_head(struct buf *b, const char *name, const char *type, const char *help)
{
        buf_printf(b, "# HELP tenure_agent_%s %s\n# TYPE tenure_agent_%s %s\n", name, help,
                   name, type);
}

/* Whole numbers without a dot: most counters are whole. */
static void add_number(struct buf *b, double v)
{
        if (fabs(v) < 9e15 && v == (double) (int64_t) v)
                buf_printf(b, "%.0f\n", v);
        else
                buf_printf(b, "%.9g\n", v);
}

static int add_values(struct buf *b, sd_bus_message *m)
{
        int r = sd_bus_message_enter_container(m, 'a', "{sd}");
        const char *key;
        double v;

        while (r >= 0 && (r = sd_bus_message_read(m, "{sd}", &key, &v)) > 0)
                for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
                        if (strcmp(values[i].key, key) != 0)
                                continue; /* only a later agent has it */
                        add_head(b, values[i].name,
                                 values[i].type == COUNTER ? "counter" : "gauge",
                                 values[i].help);
                        buf_printf(b, "tenure_agent_%s ", values[i].name);
                        add_number(b, v);
                }
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

/* @name NULL: skips the histogram. */
static int add_buckets(struct buf *b, sd_bus_message *m, const char *name)
{
        uint64_t n = 0;
        double end, sum;
        int r = sd_bus_message_enter_container(m, 'r', "a(dt)d");

        if (r >= 0)
                r = sd_bus_message_enter_container(m, 'a', "(dt)");
        while (r >= 0 && (r = sd_bus_message_read(m, "(dt)", &end, &n)) > 0) {
                if (name && isinf(end))
                        buf_printf(b, "tenure_agent_%s_bucket{le=\"+Inf\"} %" PRIu64 "\n", name,
                                   n);
                else if (name)
                        buf_printf(b, "tenure_agent_%s_bucket{le=\"%.9g\"} %" PRIu64 "\n", name,
                                   end, n);
        }
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        if (r >= 0)
                r = sd_bus_message_read(m, "d", &sum);
        if (r >= 0 && name) {
                buf_printf(b, "tenure_agent_%s_sum ", name);
                add_number(b, sum);
                buf_printf(b, "tenure_agent_%s_count %" PRIu64 "\n", name, n);
        }
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

static int add_histograms(struct buf *b, sd_bus_message *m)
{
        int r = sd_bus_message_enter_container(m, 'a', "{s(a(dt)d)}");
        const char *key, *name;

        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'e', "s(a(dt)d)")) > 0) {
                name = NULL;
                r = sd_bus_message_read(m, "s", &key);
                for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(histograms); i++)
                        if (strcmp(histograms[i].key, key) == 0) {
                                name = histograms[i].name;
                                add_head(b, name, "histogram", histograms[i].help);
                        }
                if (r >= 0)
                        r = add_buckets(b, m, name);
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
        }
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

/* Drops characters that could end a label. */
static void add_label(struct buf *b, const char *s)
{
        for (; *s; s++)
                if (*s == '\\' || *s == '"')
                        buf_printf(b, "\\%c", *s);
                else if (*s == '\n')
                        buf_printf(b, "\\n");
                else
                        buf_add(b, s, 1);
}

static int add_info(struct buf *b, struct ctl *c, sd_bus_error *error)
{
        static const char *const names[] = {"Version", "State", "Cluster", "NodeName"};
        char *text[ARRAY_SIZE(names)] = {NULL};
        int r = 0;

        for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(names); i++)
                r = sd_bus_get_property_string(c->bus, NAME, ROOT, MANAGER, names[i], error,
                                               &text[i]);
        if (r >= 0) {
                add_head(b, "info", "gauge", "The agent: its version, cluster and node.");
                buf_printf(b, "tenure_agent_info{version=\"");
                add_label(b, text[0]);
                buf_printf(b, "\",cluster=\"");
                add_label(b, text[2]);
                buf_printf(b, "\",node=\"");
                add_label(b, text[3]);
                buf_printf(b, "\"} 1\n");
                add_head(b, "state", "gauge", "The state of its place, which is a label.");
                buf_printf(b, "tenure_agent_state{state=\"");
                add_label(b, text[1]);
                buf_printf(b, "\"} 1\n");
        }
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                free(text[i]);
        return r;
}

static int ask(struct ctl *c, struct buf *b, sd_bus_error *error)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *q = NULL, *m = NULL;
        int r = sd_bus_message_new_method_call(c->bus, &q, NAME, ROOT, MANAGER, "GetMetrics");

        if (r >= 0) /* reading metrics must not start the agent */
                r = sd_bus_message_set_auto_start(q, false);
        if (r >= 0)
                r = sd_bus_call(c->bus, q, ANSWER_USEC, error, &m);
        if (r >= 0)
                r = add_values(b, m);
        if (r >= 0)
                r = add_histograms(b, m);
        return r < 0 ? r : add_info(b, c, error);
}

/* Returns 0; a negative errno if the agent is down, which the text then says; or -ENOMEM. */
static int collect(struct ctl *c, struct buf *b, sd_bus_error *error)
{
        cleanup_(buf_fini) struct buf all = {0};
        int r = c->bus ? ask(c, &all, error) : -ENOTCONN;

        add_head(b, "up", "gauge", "Whether the agent answers on D-Bus.");
        buf_printf(b, "tenure_agent_up %d\n", r >= 0);
        if (r >= 0)
                buf_add(b, buf_head(&all), buf_len(&all));
        if (buf_error(&all) < 0 || buf_error(b) < 0)
                return -ENOMEM;
        return min_of(r, 0);
}

/* ---- into a file ---- */

static int write_all(int fd, const struct buf *b)
{
        size_t done = 0;

        while (done < buf_len(b)) {
                ssize_t n = write(fd, buf_head(b) + done, buf_len(b) - done);

                if (n < 0 && errno != EINTR)
                        return -errno;
                done += (size_t) max_of(n, (ssize_t) 0);
        }
        return 0;
}

/* A reader finds either the last file or this one, complete. */
static int write_file(const char *path, const struct buf *b)
{
        char part[4096];
        int r = snprintf(part, sizeof(part), "%s.XXXXXX", path), fd;

        if (r < 0 || (size_t) r >= sizeof(part))
                return -ENAMETOOLONG;
        fd = mkostemp(part, O_CLOEXEC);
        if (fd < 0)
                return -errno;
        r = write_all(fd, b);
        if (r == 0 && fchmod(fd, 0644) < 0)
                r = -errno;
        if (close(fd) < 0 && r == 0)
                r = -errno;
        if (r == 0 && rename(part, path) < 0)
                r = -errno;
        if (r < 0)
                unlink(part);
        return r;
}

/* ---- for one request ---- */

/* Reads up to the empty line behind the headers. Returns 0, -ETIMEDOUT, -EMSGSIZE, -EPIPE, or
 * the error of read(2). */
static int read_request(char *out, size_t size)
{
        struct boot_time until = boot_add(boot_now(), REQUEST_MS * NSEC_PER_MSEC);
        struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
        size_t n = 0;

        for (;;) {
                nsec_t left = boot_diff(until, boot_now());
                ssize_t k;

                if (left <= 0)
                        return -ETIMEDOUT;
                if (poll(&p, 1, (int) (left / NSEC_PER_MSEC) + 1) <= 0)
                        continue;
                k = read(STDIN_FILENO, out + n, size - 1 - n);
                if (k < 0 && errno == EINTR)
                        continue;
                if (k <= 0)
                        return k < 0 ? -errno : -EPIPE;
                n += (size_t) k;
                out[n] = '\0';
                if (strstr(out, "\r\n\r\n") || strstr(out, "\n\n"))
                        return 0;
                if (n == size - 1)
                        return -EMSGSIZE;
        }
}

static void linger(void)
{
        struct boot_time until = boot_add(boot_now(), LINGER_MS * NSEC_PER_MSEC);
        struct pollfd p = {.fd = STDIN_FILENO, .events = POLLIN};
        char rest[512];

        shutdown(STDOUT_FILENO, SHUT_WR);
        while (boot_before(boot_now(), until) && poll(&p, 1, LINGER_MS) > 0)
                if (read(STDIN_FILENO, rest, sizeof(rest)) <= 0)
                        return;
}

static int serve(struct ctl *c)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        cleanup_(buf_fini) struct buf body = {0}, answer = {0};
        char request[REQUEST_MAX];
        const char *status;
        bool wants_body = true;
        int r = read_request(request, sizeof(request));

        if (r < 0 && r != -EMSGSIZE)
                return 0; /* nobody would read an answer */
        status = r < 0 ? "431 Request Header Fields Too Large"
                       : metrics_judge(request, &wants_body);
        if (strncmp(status, "200", 3) == 0) {
                if (collect(c, &body, &error) == -ENOMEM)
                        return ctl_fail("cannot answer", -ENOMEM, NULL);
        } else {
                buf_printf(&body, "%s\nThe metrics are at /metrics.\n", status + 4);
        }
        buf_printf(&answer,
                   "HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
                   "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n%s"
                   "Connection: close\r\n\r\n",
                   status,
                   strncmp(status, "200", 3) == 0 ? "text/plain; version=0.0.4; charset=utf-8"
                                                  : "text/plain; charset=utf-8",
                   buf_len(&body),
                   strncmp(status, "405", 3) == 0 ? "Allow: GET, HEAD\r\n" : "");
        if (wants_body)
                buf_add(&answer, buf_head(&body), buf_len(&body));
        if (buf_error(&answer) < 0)
                return ctl_fail("cannot answer", -ENOMEM, NULL);
        if (write_all(STDOUT_FILENO, &answer) == 0)
                linger();
        return 0;
}

int verb_metrics(struct ctl *c, int argc unused_, char **argv unused_)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        cleanup_(buf_fini) struct buf b = {0};
        int r, w;

        if (c->o.http && c->o.output)
                return say("metrics takes --http or --output, not both");
        if (c->o.output && replace_check(c->o.output) < 0)
                return -1;
        if (c->o.http && metrics_accept() < 0)
                return -1;
        if (ctl_open_bus(c) < 0) /* the metrics then show that there is no agent */
                c->bus = sd_bus_flush_close_unref(c->bus);
        if (c->o.http)
                return serve(c);
        r = collect(c, &b, &error);
        if (r == -ENOMEM)
                return ctl_fail("cannot show the metrics", r, NULL);
        if (!c->o.output) {
                fwrite(buf_head(&b), 1, buf_len(&b), stdout);
                return r < 0 && c->bus ? ctl_fail("cannot ask the agent", r, &error) : r;
        }
        w = write_file(c->o.output, &b);
        if (w < 0)
                return say("cannot write %s: %s", c->o.output, strerror(-w));
        return 0; /* if the agent is down, the file says so */
}
