/* Histograms, and the page that shows them with all that a replica counts. */
#include "base/histogram.h"

#include <ctype.h>
#include <stdlib.h>

#include "../whole.h"
#include "etcd/metrics.h"
#include "rig.h"

#define PUT "/etcdserverpb.KV/Put"
#define GRANT "/etcdserverpb.Lease/LeaseGrant"
#define WATCH "/etcdserverpb.Watch/Watch"

static const struct histogram_shape *const shapes[] = {
        &histogram_disk,  &histogram_way,   &histogram_calls,
        &histogram_sizes, &state_ttl_shape, &core_left_shape,
};

TEST(each_value_counts_once_in_its_bucket)
{
        for (size_t s = 0; s < ARRAY_SIZE(shapes); s++) {
                const struct histogram_shape *shape = shapes[s];
                struct histogram h = {0};
                uint64_t sum = 0;

                CHECK(shape->n <= HISTOGRAM_MAX);
                for (unsigned i = 0; i < shape->n; i++) {
                        CHECK(i == 0 || shape->upper[i] > shape->upper[i - 1]);
                        histogram_add(&h, shape, shape->upper[i]); /* still in it */
                        CHECK_EQ(h.n[i], i == 0 ? 1 : 2);
                        histogram_add(&h, shape, shape->upper[i] + 1); /* in the next */
                        CHECK_EQ(h.n[i + 1], 1);
                        sum += 2 * shape->upper[i] + 1;
                }
                CHECK_EQ(h.sum, sum);
                CHECK_EQ(histogram_count(&h, shape), 2 * shape->n);
        }
}

TEST(a_negative_duration_counts_as_none)
{
        struct histogram h = {0};

        histogram_add_nsec(&h, &histogram_way, -5);
        CHECK_EQ(h.n[0], 1);
        CHECK_EQ(h.sum, 0);
}

static void check_shown(const struct histogram *h, const struct histogram_shape *s,
                        const char *labels, const char *want)
{
        cleanup_(buf_fini) struct buf b = {0};

        metrics_histogram(&b, "x", labels, h, s);
        buf_add_u8(&b, 0);
        CHECK_EQ(buf_error(&b), 0);
        CHECK_STR((const char *) b.data, want);
}

/* As etcd's client library has the boundaries, so that series of both can be added up. */
TEST(boundaries_are_shown_as_etcd_shows_them)
{
        static const struct histogram_shape shape = {
                .n = 6,
                .digits = 3,
                .upper = {1, 20, 2000, 8192, UINT64_C(1048576000), UINT64_C(2000000000)}};
        struct histogram h = {0};

        histogram_add(&h, &shape, 1);
        histogram_add(&h, &shape, 3);
        histogram_add(&h, &shape, 4000);
        histogram_add(&h, &shape, UINT64_C(2000000001));
        check_shown(&h, &shape, "",
                    "x_bucket{le=\"0.001\"} 1\n"
                    "x_bucket{le=\"0.02\"} 2\n"
                    "x_bucket{le=\"2\"} 2\n"
                    "x_bucket{le=\"8.192\"} 3\n"
                    "x_bucket{le=\"1.048576e+06\"} 3\n"
                    "x_bucket{le=\"2e+06\"} 3\n"
                    "x_bucket{le=\"+Inf\"} 4\n"
                    "x_sum 2.000004005e+06\n"
                    "x_count 4\n");
}

TEST(labels_stand_before_the_boundary)
{
        static const struct histogram_shape shape = {.n = 1, .upper = {10}};
        struct histogram h = {0};

        check_shown(&h, &shape, "To=\"a\",",
                    "x_bucket{To=\"a\",le=\"10\"} 0\n"
                    "x_bucket{To=\"a\",le=\"+Inf\"} 0\n"
                    "x_sum{To=\"a\"} 0\n"
                    "x_count{To=\"a\"} 0\n");
}

/* ---- the page ---- */

static struct buf page;

static const char *make_page(bool open_metrics)
{
        buf_clear(&page);
        metrics_write(rig.api, open_metrics, &page);
        buf_add_u8(&page, 0);
        CHECK_EQ(buf_error(&page), 0);
        return (const char *) page.data;
}

/* The value of the sample with exactly this name, labels included; -1: there is none. */
static double value_of(const char *text, const char *name)
{
        size_t n = strlen(name);

        for (const char *line = text; line && *line;
             line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
                if (strncmp(line, name, n) == 0 && line[n] == ' ')
                        return strtod(line + n, NULL);
        return -1;
}

static double shown(const char *name)
{
        return value_of(make_page(false), name);
}

static bool ends_in(const char *s, size_t n, const char *ending)
{
        size_t k = strlen(ending);

        return n >= k && memcmp(s + n - k, ending, k) == 0;
}

/* Is the sample called @name, of @n bytes, one of the family? */
static bool belongs(const char *name, size_t n, const char *family, const char *type, bool open)
{
        static const char *const endings[] = {"_bucket", "_sum", "_count"};
        size_t f = strlen(family);

        if (n < f || memcmp(name, family, f) != 0)
                return false;
        if (strcmp(type, "histogram") == 0) {
                for (size_t i = 0; i < ARRAY_SIZE(endings); i++)
                        if (n == f + strlen(endings[i]) && ends_in(name, n, endings[i]))
                                return true;
                return false;
        }
        if (open && strcmp(type, "counter") == 0)
                return n == f + strlen("_total") && ends_in(name, n, "_total");
        return n == f;
}

/* What a reader relies on: each family has its help and its type first, and its samples behind
 * them; no family comes twice; in OpenMetrics nothing follows the end. */
static void check_page(const char *text, bool open)
{
        static char seen[256][96];
        char family[96] = "", type[32] = "", what[96];
        size_t n_seen = 0, n_samples = 0;
        const char *line = text, *end;
        bool over = false;

        for (; *line; line = end + 1) {
                end = strchr(line, '\n');
                CHECK(end);
                CHECK(!over);
                if (open && strncmp(line, "# EOF\n", 6) == 0) {
                        over = true;
                } else if (sscanf(line, "# HELP %95s", what) == 1) {
                        for (size_t i = 0; i < n_seen; i++)
                                CHECK(strcmp(seen[i], what) != 0);
                        CHECK(n_seen < ARRAY_SIZE(seen));
                        strcpy(seen[n_seen++], what);
                        strcpy(family, what);
                        strcpy(type, "unknown");
                        CHECK(end[-1] == '.');
                } else if (sscanf(line, "# TYPE %95s %31s", what, type) == 2) {
                        CHECK_STR(what, family);
                        /* Prometheus' own check of names (promlint) agrees. */
                        if (!open && strcmp(type, "untyped") != 0)
                                CHECK((strcmp(type, "counter") == 0) ==
                                      ends_in(what, strlen(what), "_total"));
                } else {
                        size_t n = strcspn(line, "{ ");
                        char *stop;

                        CHECK(isalpha((unsigned char) *line));
                        if (!belongs(line, n, family, type, open))
                                test_fail(__FILE__, __LINE__, "not of %s: %.*s", family,
                                          (int) (end - line), line);
                        (void) strtod(line + n +
                                              (line[n] == '{' ? strcspn(line + n, "}") + 1 : 0),
                                      &stop);
                        CHECK(stop == end);
                        n_samples++;
                }
        }
        CHECK_EQ(over, open);
        CHECK(n_seen > 90);
        CHECK(n_samples > 400);
}

TEST(the_page_can_be_read_in_both_formats)
{
        rig_begin();
        for (unsigned i = 0; i < 300; i++)
                rig_turn();
        check_page(make_page(false), false);
        check_page(make_page(true), true);
        buf_fini(&page);
        rig_end();
}

/* A reader that changes from one format to the other continues the same series. */
TEST(both_formats_have_the_same_samples)
{
        struct buf names[2] = {{0}};

        rig_begin();
        rig_turn();
        for (int open = 0; open < 2; open++) {
                const char *text = make_page(open), *end;

                for (const char *line = text; *line; line = end + 1) {
                        end = strchr(line, '\n');
                        if (*line != '#')
                                buf_add(&names[open], line, strcspn(line, " \n") + 1);
                }
                buf_add_u8(&names[open], 0);
        }
        CHECK_STR((char *) names[0].data, (char *) names[1].data);
        buf_fini(&names[0]);
        buf_fini(&names[1]);
        buf_fini(&page);
        rig_end();
}

static void ask(struct rig_conn *c, const char *path, const ProtobufCMessage *m,
                enum rpc_code want)
{
        struct rig_call call = {0};

        rig_ask(c, &call, path, m);
        rig_wait(&call, 1000);
        CHECK(call.over);
        CHECK_EQ(call.code, want);
        rig_forget(&call);
}

static void put(struct rig_conn *c, const char *key, enum rpc_code want)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;

        q.key = pb_bytes(key, strlen(key));
        q.value = pb_bytes("12345", 5);
        ask(c, PUT, &q.base, want);
}

TEST(calls_are_counted_by_method_and_status)
{
        struct rig_conn *c;

        rig_begin();
        c = rig_connect(1);
        for (unsigned i = 0; i < 3; i++)
                put(c, "key", RPC_OK);
        put(c, "", RPC_INVALID_ARGUMENT);
#define OF_PUT "grpc_method=\"Put\",grpc_service=\"etcdserverpb.KV\",grpc_type=\"unary\"}"
        CHECK_EQ(shown("grpc_server_started_total{" OF_PUT), 4);
        CHECK_EQ(shown("grpc_server_msg_received_total{" OF_PUT), 4);
        CHECK_EQ(shown("grpc_server_msg_sent_total{" OF_PUT), 3);
        CHECK_EQ(shown("grpc_server_handled_total{grpc_code=\"OK\"," OF_PUT), 3);
        CHECK_EQ(shown("grpc_server_handled_total{grpc_code=\"InvalidArgument\"," OF_PUT), 1);
        CHECK_EQ(shown("grpc_server_handling_seconds_count{" OF_PUT), 4);
        CHECK(shown("etcd_network_client_grpc_received_bytes_total") >= 3 * 12);
        CHECK(shown("etcd_network_client_grpc_sent_bytes_total") > 0);
        CHECK_EQ(shown("etcd_mvcc_put_total"), 3);
        CHECK_EQ(shown("etcd_debugging_mvcc_total_put_size_in_bytes"), 3 * 8);
        CHECK_EQ(shown("etcd_debugging_mvcc_keys_total"), 1);
        CHECK_EQ(shown("etcd_debugging_mvcc_current_revision"), 4);
        buf_fini(&page);
        rig_end();
}

TEST(a_stream_counts_until_its_client_is_gone)
{
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;
        struct rig_call watch = {0};
        struct rig_conn *c, *other;

        rig_begin();
        c = rig_connect(1);
        other = rig_connect(2);
        create.key = pb_bytes("key", 3);
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        rig_open(c, &watch, WATCH, &q.base);
        for (unsigned i = 0; i < 100 && watch.messages == 0; i++)
                rig_turn();
        CHECK_EQ(shown("etcd_debugging_mvcc_watch_stream_total"), 1);
        CHECK_EQ(shown("etcd_debugging_mvcc_watcher_total"), 1);
        CHECK_EQ(shown("etcd_debugging_mvcc_slow_watcher_total"), 0);
        put(other, "key", RPC_OK);
        for (unsigned i = 0; i < 100 && watch.messages < 2; i++)
                rig_turn();
        CHECK_EQ(shown("etcd_debugging_mvcc_events_total"), 1);
        rig_disconnect(c);
        rig_turn();
#define OF_WATCH \
        "grpc_method=\"Watch\",grpc_service=\"etcdserverpb.Watch\",grpc_type=\"bidi_stream\"}"
        CHECK_EQ(shown("grpc_server_handled_total{grpc_code=\"Canceled\"," OF_WATCH), 1);
        CHECK_EQ(shown("etcd_debugging_mvcc_watch_stream_total"), 0);
        CHECK_EQ(shown("etcd_debugging_mvcc_watcher_total"), 0);
        rig_forget(&watch);
        buf_fini(&page);
        rig_end();
}

TEST(leases_are_counted_from_grant_to_expiry)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;
        double left;

        rig_begin();
        CHECK_EQ(shown("tenure_lease_next_deadline_seconds"), -1);
        q.id = 7;
        q.ttl = 2;
        ask(rig_connect(1), GRANT, &q.base, RPC_OK);
        CHECK_EQ(shown("tenure_leases"), 1);
        CHECK_EQ(shown("etcd_debugging_lease_granted_total"), 1);
        CHECK_EQ(shown("etcd_debugging_lease_ttl_total_bucket{le=\"1\"}"), 0);
        CHECK_EQ(shown("etcd_debugging_lease_ttl_total_bucket{le=\"2\"}"), 1);
        left = shown("tenure_lease_next_deadline_seconds");
        CHECK(left > 1.5 && left <= 2.0);
        for (unsigned i = 0; i < 2500 && shown("tenure_leases") > 0; i += 100)
                for (unsigned k = 0; k < 100; k++)
                        rig_turn();
        CHECK_EQ(shown("tenure_leases"), 0);
        CHECK_EQ(shown("etcd_debugging_server_lease_expired_total"), 1);
        CHECK_EQ(shown("etcd_debugging_lease_revoked_total"), 1);
        CHECK_EQ(shown("tenure_lease_expiry_lateness_seconds_count"), 1);
        CHECK_EQ(shown("tenure_lease_expiry_lateness_seconds_bucket{le=\"0.1024\"}"), 1);
        buf_fini(&page);
        rig_end();
}

/* Counts belong to one replica: they are in no snapshot, and make no two replicas differ
 * (I4). */
TEST(counts_are_not_of_the_state)
{
        struct state a, b;

        state_init(&a);
        state_init(&b);
        b.counts.puts = b.counts.granted = 5;
        b.counts.now = (struct lease_time){12345};
        histogram_add(&b.counts.late, &histogram_way, 5);
        CHECK_EQ(state_hash(&a), state_hash(&b));
        state_fini(&a);
        state_fini(&b);
}
