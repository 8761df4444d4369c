/* One thing: the table of metrics, their values, and how they are printed. */
#include "etcd/metrics.h"

#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>

#include "etcd/internal.h"
#include "etcd/watch.h"
#include "loop/process.h"

#define LABELS 160

struct peer {
        uint64_t id;
        bool voter;
        struct core_link link;
};

/* All values that the table refers to, taken at one moment. */
struct figures {
        struct state_counts state;
        struct replica_counts replica;
        struct store_counts store;
        struct core_counts core;
        struct process_usage process;
        struct histogram turns;
        nsec_t longest_turn, lease_time, next_deadline;
        bool has_leader, leads, learns, installs, short_of_room, forgetful, stopped,
                defragments;
        uint64_t committed, applied, pending, term, log_bytes;
        uint64_t quota, size, size_in_use, disk_bytes, state_bytes;
        uint64_t keys, revision, compacted, auth_revision, leases, cached_ranges;
        uint64_t watch_streams, watchers, behind, events, ranges, lock_waiters;
        uint64_t connections, held, received_bytes, sent_bytes, healthy, unhealthy;
        struct peer peers[REPLICA_PEERS_MAX];
        size_t n_peers;
};

struct page {
        struct api *api;
        bool open_metrics;
        struct figures f;
        struct buf *out;
};

/* The types of the formats. A value that goes up and down, but ends in _total because etcd
 * named it so, has no type: `promtool check metrics` and OpenMetrics accept no other. */
enum type {
        COUNTER,
        GAUGE,
        NO_TYPE,
        HISTOGRAM,
        HISTOGRAM_NO_TYPE, /* three families, each without a type */
};

struct metric {
        const char *name;
        enum type type;
        enum { ROWS, BOOL, WHOLE, NSEC, NUMBER, DISTRIBUTION } kind;
        size_t at;                                            /* offset of the figure ... */
        const struct histogram_shape *shape;                  /* ... for a histogram, its shape
                                                               * ... */
        void (*rows)(struct page *p, const struct metric *m); /* ... or a function that adds the
                                                               * samples */
        const char *help;
};

/* ---- numbers ---- */

/* Prints @v times 10^-digits exactly, as Go's 'g' does: from a million on with an exponent. */
static void print_scaled(char *out, size_t size, uint64_t v, unsigned digits)
{
        char all[40];
        int n = snprintf(all, sizeof(all), "%0*" PRIu64, (int) digits + 1, v),
            whole = n - (int) digits, end = n;

        while (end > whole && all[end - 1] == '0')
                end--;
        if (whole <= 6) {
                snprintf(out, size, "%.*s%s%.*s", whole, all, end > whole ? "." : "",
                         end - whole, all + whole);
                return;
        }
        while (end > 1 && all[end - 1] == '0')
                end--;
        snprintf(out, size, "%c%s%.*se+%02d", all[0], end > 1 ? "." : "", end - 1, all + 1,
                 whole - 1);
}

/* Prints a duration in seconds, with a sign and always with all digits: unlike the boundary of
 * a bucket, it need not match another text. */
static void print_nsec(char *out, size_t size, nsec_t d)
{
        uint64_t v = d < 0 ? -(uint64_t) d : (uint64_t) d;

        snprintf(out, size, "%s%" PRIu64 ".%09" PRIu64, d < 0 ? "-" : "",
                 v / (uint64_t) NSEC_PER_SEC, v % (uint64_t) NSEC_PER_SEC);
}

/* ---- samples ---- */

static void add(struct buf *out, const char *s)
{
        buf_add(out, s, strlen(s));
}

/* @labels: `a="b",` with a comma at the end, or empty. */
static void sample(struct buf *out, const char *name, const char *ending, const char *labels,
                   const char *value)
{
        size_t n = strlen(labels);

        add(out, name);
        add(out, ending);
        if (n > 0) {
                add(out, "{");
                buf_add(out, labels, n - 1);
                add(out, "}");
        }
        add(out, " ");
        add(out, value);
        add(out, "\n");
}

static void sample_whole(struct buf *out, const char *name, const char *labels, uint64_t v)
{
        char value[24];

        snprintf(value, sizeof(value), "%" PRIu64, v);
        sample(out, name, "", labels, value);
}

static void buckets(struct buf *out, const char *name, const char *labels,
                    const struct histogram *h, const struct histogram_shape *s)
{
        char bound[40], all[LABELS + 48], value[24];
        uint64_t n = 0;

        for (unsigned i = 0; i <= s->n; i++) {
                if (i < s->n)
                        print_scaled(bound, sizeof(bound), s->upper[i], s->digits);
                else
                        strcpy(bound, "+Inf");
                n += h->n[i];
                snprintf(all, sizeof(all), "%sle=\"%s\",", labels, bound);
                snprintf(value, sizeof(value), "%" PRIu64, n);
                sample(out, name, "_bucket", all, value);
        }
}

static void sum_up(struct buf *out, const char *name, const char *labels,
                   const struct histogram *h, const struct histogram_shape *s)
{
        char value[40];

        print_scaled(value, sizeof(value), h->sum, s->digits);
        sample(out, name, "_sum", labels, value);
}

static void count_up(struct buf *out, const char *name, const char *labels,
                     const struct histogram *h, const struct histogram_shape *s)
{
        char value[24];

        snprintf(value, sizeof(value), "%" PRIu64, histogram_count(h, s));
        sample(out, name, "_count", labels, value);
}

void metrics_histogram(struct buf *out, const char *name, const char *labels,
                       const struct histogram *h, const struct histogram_shape *s)
{
        buckets(out, name, labels, h, s);
        sum_up(out, name, labels, h, s);
        count_up(out, name, labels, h, s);
}

/* ---- families ---- */

/* OpenMetrics names a counter without the _total of its samples, and needs no type for an
 * unknown one. */
static void head(const struct page *p, const char *name, const char *ending, const char *type,
                 const char *help)
{
        size_t n = strlen(name);

        if (p->open_metrics && strcmp(type, "counter") == 0)
                n -= strlen("_total");
        buf_printf(p->out, "# HELP %.*s%s %s\n", (int) n, name, ending, help);
        if (!p->open_metrics || strcmp(type, "untyped") != 0)
                buf_printf(p->out, "# TYPE %.*s%s %s\n", (int) n, name, ending, type);
}

static void write_untyped_histogram(struct page *p, const struct metric *m)
{
        const struct histogram *h = (void *) ((char *) &p->f + m->at);

        head(p, m->name, "_bucket", "untyped", m->help);
        buckets(p->out, m->name, "", h, m->shape);
        head(p, m->name, "_sum", "untyped", m->help);
        sum_up(p->out, m->name, "", h, m->shape);
        head(p, m->name, "_count", "untyped", m->help);
        count_up(p->out, m->name, "", h, m->shape);
}

static void write_metric(struct page *p, const struct metric *m)
{
        static const char *const types[] = {
                [COUNTER] = "counter",
                [GAUGE] = "gauge",
                [NO_TYPE] = "untyped",
                [HISTOGRAM] = "histogram",
        };
        const void *at = (char *) &p->f + m->at;
        char value[48];

        if (m->type == HISTOGRAM_NO_TYPE)
                return write_untyped_histogram(p, m);
        head(p, m->name, "", types[m->type], m->help);
        switch (m->kind) {
        case ROWS:
                return m->rows(p, m);
        case DISTRIBUTION:
                return metrics_histogram(p->out, m->name, "", at, m->shape);
        case BOOL:
                return sample(p->out, m->name, "", "", *(const bool *) at ? "1" : "0");
        case WHOLE:
                return sample_whole(p->out, m->name, "", *(const uint64_t *) at);
        case NSEC:
                print_nsec(value, sizeof(value), *(const nsec_t *) at);
                return sample(p->out, m->name, "", "", value);
        case NUMBER:
                snprintf(value, sizeof(value), "%.17g", *(const double *) at);
                return sample(p->out, m->name, "", "", value);
        }
}

/* ---- families with labels ---- */

static void add_version(struct page *p, const struct metric *m)
{
        char labels[LABELS];

        snprintf(labels, sizeof(labels), "server_version=\"%s\",", p->api->version);
        sample(p->out, m->name, "", labels, "1");
}

static void add_cluster_version(struct page *p, const struct metric *m)
{
        size_t n = strcspn(p->api->version, ".") + 1;
        char labels[LABELS];

        n += strcspn(p->api->version + n, ".");
        snprintf(labels, sizeof(labels), "cluster_version=\"%.*s\",", (int) n, p->api->version);
        sample(p->out, m->name, "", labels, "1");
}

static void add_build(struct page *p, const struct metric *m)
{
        sample(p->out, m->name, "", "version=\"" TENURE_VERSION "\",", "1");
}

static void add_id(struct page *p, const struct metric *m)
{
        char labels[LABELS];

        snprintf(labels, sizeof(labels), "server_id=\"%" PRIx64 "\",",
                 core_config(p->api->core)->member_id);
        sample(p->out, m->name, "", labels, "1");
}

static void add_alarms(struct page *p, const struct metric *m)
{
        const struct state *s = core_state(p->api->core);
        char labels[LABELS];

        for (size_t i = 0; i < s->n_alarms; i++) {
                const char *type =
                        s->alarms[i].type == PB__ALARM_TYPE__NOSPACE ? "NOSPACE" : "CORRUPT";

                snprintf(labels, sizeof(labels), "server_id=\"%" PRIx64 "\",alarm_type=\"%s\",",
                         s->alarms[i].member, type);
                sample(p->out, m->name, "", labels, "1");
        }
}

static void add_members(struct page *p, const struct metric *m)
{
        uint64_t n[2] = {0};

        for (size_t i = 0; i < p->f.n_peers; i++)
                n[p->f.peers[i].voter]++;
        sample_whole(p->out, m->name, "role=\"voter\",", n[true]);
        sample_whole(p->out, m->name, "role=\"learner\",", n[false]);
}

/* Calls @fn for each member but us, with two kinds of labels. */
static void each_peer(struct page *p, const struct metric *m,
                      void (*fn)(struct page *p, const struct metric *m,
                                 const struct peer *peer, const char *to))
{
        uint64_t self = core_config(p->api->core)->member_id;
        char to[LABELS];

        for (size_t i = 0; i < p->f.n_peers; i++) {
                if (p->f.peers[i].id == self)
                        continue;
                snprintf(to, sizeof(to), "To=\"%" PRIx64 "\",", p->f.peers[i].id);
                fn(p, m, &p->f.peers[i], to);
        }
}

static void add_pair(struct page *p, const struct metric *m, const struct peer *peer,
                     uint64_t value)
{
        char labels[LABELS];

        snprintf(labels, sizeof(labels), "Local=\"%" PRIx64 "\",Remote=\"%" PRIx64 "\",",
                 core_config(p->api->core)->member_id, peer->id);
        sample_whole(p->out, m->name, labels, value);
}

static void add_known(struct page *p, const struct metric *m, const struct peer *peer,
                      const char *to)
{
        (void) to;
        add_pair(p, m, peer, 1);
}

static void add_active(struct page *p, const struct metric *m, const struct peer *peer,
                       const char *to)
{
        (void) to;
        add_pair(p, m, peer, peer->link.up);
}

static void add_downs(struct page *p, const struct metric *m, const struct peer *peer,
                      const char *to)
{
        (void) to;
        add_pair(p, m, peer, peer->link.downs);
}

static void add_unsent(struct page *p, const struct metric *m, const struct peer *peer,
                       const char *to)
{
        sample_whole(p->out, m->name, to, peer->link.unsent);
}

static void add_lag(struct page *p, const struct metric *m, const struct peer *peer,
                    const char *to)
{
        if (p->f.leads)
                sample_whole(p->out, m->name, to,
                             replica_lag(core_replica(p->api->core), peer->id));
}

static const struct replica_peer_counts *counts_of(const struct page *p, uint64_t id)
{
        static const struct replica_peer_counts none;

        for (size_t i = 0; i < REPLICA_PEERS_MAX; i++)
                if (p->f.replica.peers[i].id == id)
                        return &p->f.replica.peers[i];
        return &none;
}

static void add_peer_sent(struct page *p, const struct metric *m, const struct peer *peer,
                          const char *to)
{
        sample_whole(p->out, m->name, to, counts_of(p, peer->id)->sent);
}

static void add_peer_received(struct page *p, const struct metric *m, const struct peer *peer,
                              const char *to)
{
        char from[LABELS];

        (void) to;
        snprintf(from, sizeof(from), "From=\"%" PRIx64 "\",", peer->id);
        sample_whole(p->out, m->name, from, counts_of(p, peer->id)->received);
}

static void add_way(struct page *p, const struct metric *m, const struct peer *peer,
                    const char *to)
{
        metrics_histogram(p->out, m->name, to, &counts_of(p, peer->id)->way, m->shape);
}

#define PEER_ROWS(rows, fn)                                      \
        static void rows(struct page *p, const struct metric *m) \
        {                                                        \
                each_peer(p, m, fn);                             \
        }
PEER_ROWS(known_rows, add_known)
PEER_ROWS(active_rows, add_active)
PEER_ROWS(downs_rows, add_downs)
PEER_ROWS(unsent_rows, add_unsent)
PEER_ROWS(lag_rows, add_lag)
PEER_ROWS(peer_sent_rows, add_peer_sent)
PEER_ROWS(peer_received_rows, add_peer_received)
PEER_ROWS(way_rows, add_way)

/* ---- calls ---- */

static void method_labels(const struct method *method, char out[static LABELS])
{
        static const char *const kinds[] = {
                [UNARY] = "unary",
                [SERVER_STREAM] = "server_stream",
                [BIDI_STREAM] = "bidi_stream",
        };
        const char *path = method->path, *name = strrchr(path, '/') + 1;

        snprintf(out, LABELS, "grpc_method=\"%s\",grpc_service=\"%.*s\",grpc_type=\"%s\",",
                 name, (int) (name - path - 2), path + 1, kinds[method->kind]);
}

static void each_method(struct page *p, const struct metric *m,
                        void (*fn)(struct page *p, const struct metric *m,
                                   const struct rpc_counts *c, const char *labels))
{
        const struct method *method;
        char labels[LABELS];

        for (size_t i = 0; (method = api_method(i)); i++) {
                method_labels(method, labels);
                fn(p, m, &p->api->counts[i], labels);
        }
}

static void add_started(struct page *p, const struct metric *m, const struct rpc_counts *c,
                        const char *labels)
{
        sample_whole(p->out, m->name, labels, c->started);
}

static void add_received(struct page *p, const struct metric *m, const struct rpc_counts *c,
                         const char *labels)
{
        sample_whole(p->out, m->name, labels, c->received);
}

static void add_sent(struct page *p, const struct metric *m, const struct rpc_counts *c,
                     const char *labels)
{
        sample_whole(p->out, m->name, labels, c->sent);
}

/* Only the codes that have occurred, and always OK. */
static void add_handled(struct page *p, const struct metric *m, const struct rpc_counts *c,
                        const char *labels)
{
        char all[LABELS + 48];

        for (size_t i = 0; i < ARRAY_SIZE(c->handled); i++) {
                if (i != RPC_OK && c->handled[i] == 0)
                        continue;
                snprintf(all, sizeof(all), "grpc_code=\"%s\",%s",
                         status_code_name((enum rpc_code) i), labels);
                sample_whole(p->out, m->name, all, c->handled[i]);
        }
}

/* Only for methods that have been used: each takes a screenful. */
static void add_took(struct page *p, const struct metric *m, const struct rpc_counts *c,
                     const char *labels)
{
        if (histogram_count(&c->took, m->shape) > 0)
                metrics_histogram(p->out, m->name, labels, &c->took, m->shape);
}

#define METHOD_ROWS(rows, fn)                                    \
        static void rows(struct page *p, const struct metric *m) \
        {                                                        \
                each_method(p, m, fn);                           \
        }
METHOD_ROWS(started_rows, add_started)
METHOD_ROWS(received_rows, add_received)
METHOD_ROWS(sent_rows, add_sent)
METHOD_ROWS(handled_rows, add_handled)
METHOD_ROWS(took_rows, add_took)

static void deadline_rows(struct page *p, const struct metric *m)
{
        char value[48];

        if (p->f.next_deadline == INT64_MAX)
                return; /* there are no leases */
        print_nsec(value, sizeof(value), p->f.next_deadline);
        sample(p->out, m->name, "", "", value);
}

/* ---- the table ---- */

#define V(m)                                                                                   \
        .at = offsetof(struct figures, m), .kind = _Generic(((struct figures *) NULL)->m, bool \
                                                            : BOOL, uint64_t                   \
                                                            : WHOLE, nsec_t                    \
                                                            : NSEC, double                     \
                                                            : NUMBER, struct histogram         \
                                                            : DISTRIBUTION)
#define H(m, s) V(m), .shape = &(s)
#define R(fn) .kind = ROWS, .rows = (fn)

static const struct metric table[] = {
        /* Metrics that etcd has. */
        {"etcd_server_has_leader", GAUGE, V(has_leader),
         .help = "Whether a leader is known: 1, or 0."},
        {"etcd_server_is_leader", GAUGE, V(leads), .help = "Whether this replica leads."},
        {"etcd_server_is_learner", GAUGE, V(learns), .help = "Whether it is a learner."},
        {"etcd_server_leader_changes_seen_total", COUNTER, V(replica.leader_changes),
         .help = "How often another leader was seen, or one at last."},
        {"etcd_server_heartbeat_send_failures_total", COUNTER, V(replica.late_heartbeats),
         .help = "Heartbeats that this leader sent more than two intervals after the last."},
        {"etcd_server_proposals_committed_total", COUNTER, V(committed),
         .help = "Entries of the log that are committed: its commit index."},
        {"etcd_server_proposals_applied_total", COUNTER, V(applied),
         .help = "Entries of the log that this replica has applied."},
        {"etcd_server_proposals_pending", GAUGE, V(pending),
         .help = "Commands that this replica has proposed and that are not applied yet."},
        {"etcd_server_proposals_failed_total", COUNTER, V(core.writes_failed),
         .help = "Commands that were refused, timed out, or may have been lost."},
        {"etcd_server_slow_apply_total", COUNTER, V(replica.slow_applies),
         .help = "Entries that took longer than 100 ms to apply."},
        {"etcd_server_slow_read_indexes_total", COUNTER, V(replica.slow_reads),
         .help = "Confirmations of leadership that had to be asked for again."},
        {"etcd_server_read_indexes_failed_total", COUNTER, V(core.reads_failed),
         .help = "Linearizable reads that were not confirmed in time."},
        {"etcd_server_snapshot_apply_in_progress_total", NO_TYPE, V(installs),
         .help = "Whether a snapshot of another replica is being taken over."},
        {"etcd_server_health_success", NO_TYPE, V(healthy),
         .help = "Health checks that succeeded."},
        {"etcd_server_health_failures", NO_TYPE, V(unhealthy),
         .help = "Health checks that failed."},
        {"etcd_server_quota_backend_bytes", GAUGE, V(quota),
         .help = "What keys, values and leases may take; 0: any amount."},
        {"etcd_server_version", GAUGE, R(add_version),
         .help = "The version of etcd that is reported to clients."},
        {"etcd_cluster_version", GAUGE, R(add_cluster_version),
         .help = "The version of the cluster that is reported to clients."},
        {"etcd_server_id", GAUGE, R(add_id), .help = "The id of this member, in hex."},
        {"etcd_debugging_server_alarms", GAUGE, R(add_alarms),
         .help = "Alarms that stand, by the member that raised them."},
        {"etcd_debugging_server_lease_expired_total", COUNTER, V(state.expired),
         .help = "Leases that expired."},
        {"etcd_debugging_lease_granted_total", COUNTER, V(state.granted),
         .help = "Leases that were granted."},
        {"etcd_debugging_lease_renewed_total", COUNTER, V(state.renewed),
         .help = "Renewals of leases that were applied."},
        {"etcd_debugging_lease_revoked_total", COUNTER, V(state.ended),
         .help = "Leases that ended: that were revoked, or expired."},
        {"etcd_debugging_lease_ttl_total", HISTOGRAM_NO_TYPE, H(state.ttl, state_ttl_shape),
         .help = "The TTLs of leases that were granted, in seconds."},
        {"etcd_disk_wal_fsync_duration_seconds", HISTOGRAM, H(store.syncs, histogram_disk),
         .help = "How long it took to write to the log and to make that durable."},
        {"etcd_disk_wal_write_bytes_total", COUNTER, V(store.log_bytes),
         .help = "Bytes written to the log."},
        {"etcd_disk_backend_commit_duration_seconds", HISTOGRAM,
         H(store.commits, histogram_disk),
         .help = "How long a write to the log took, from when the loop handed it over until "
                 "the loop learned of its end."},
        {"etcd_debugging_snap_save_total_duration_seconds", HISTOGRAM,
         H(store.snapshots, histogram_disk),
         .help = "How long it took to write a snapshot of this replica's."},
        {"etcd_snap_db_save_total_duration_seconds", HISTOGRAM,
         H(store.installs, histogram_disk),
         .help = "How long it took to write a snapshot that came from another replica."},
        {"etcd_mvcc_db_total_size_in_bytes", GAUGE, V(size),
         .help = "What log and snapshots take on the disk or, if that is more, what counts "
                 "against the quota."},
        {"etcd_mvcc_db_total_size_in_use_in_bytes", GAUGE, V(size_in_use),
         .help = "Of that, what is in use."},
        {"etcd_mvcc_put_total", COUNTER, V(state.puts), .help = "Keys that were put."},
        {"etcd_mvcc_delete_total", COUNTER, V(state.deletes),
         .help = "Deletions of keys or of ranges of them."},
        {"etcd_mvcc_txn_total", COUNTER, V(state.txns), .help = "Transactions."},
        {"etcd_mvcc_range_total", COUNTER, V(ranges), .help = "Ranges that were read."},
        {"etcd_debugging_mvcc_put_total", COUNTER, V(state.puts),
         .help = "etcd_mvcc_put_total, by its name in etcd 3.4."},
        {"etcd_debugging_mvcc_delete_total", COUNTER, V(state.deletes),
         .help = "etcd_mvcc_delete_total, by its name in etcd 3.4."},
        {"etcd_debugging_mvcc_txn_total", COUNTER, V(state.txns),
         .help = "etcd_mvcc_txn_total, by its name in etcd 3.4."},
        {"etcd_debugging_mvcc_range_total", COUNTER, V(ranges),
         .help = "etcd_mvcc_range_total, by its name in etcd 3.4."},
        {"etcd_debugging_mvcc_db_total_size_in_bytes", GAUGE, V(size),
         .help = "etcd_mvcc_db_total_size_in_bytes, by its name in etcd 3.4."},
        {"etcd_debugging_mvcc_keys_total", NO_TYPE, V(keys), .help = "Keys that there are."},
        {"etcd_debugging_mvcc_watch_stream_total", NO_TYPE, V(watch_streams),
         .help = "Streams of watches."},
        {"etcd_debugging_mvcc_watcher_total", NO_TYPE, V(watchers), .help = "Watches."},
        {"etcd_debugging_mvcc_slow_watcher_total", NO_TYPE, V(behind),
         .help = "Watches that are not up to date."},
        {"etcd_debugging_mvcc_events_total", COUNTER, V(events),
         .help = "Events that were sent to watches."},
        {"etcd_debugging_mvcc_current_revision", GAUGE, V(revision),
         .help = "The revision of the store."},
        {"etcd_debugging_mvcc_compact_revision", GAUGE, V(compacted),
         .help = "Up to which it is compacted."},
        {"etcd_debugging_mvcc_total_put_size_in_bytes", GAUGE, V(state.put_bytes),
         .help = "Bytes of keys and values that were put."},
        {"etcd_debugging_auth_revision", GAUGE, V(auth_revision),
         .help = "The revision of users and roles."},
        {"etcd_network_known_peers", GAUGE, R(known_rows), .help = "The other members."},
        {"etcd_network_active_peers", GAUGE, R(active_rows),
         .help = "Whether there is a link to a member."},
        {"etcd_network_disconnected_peers_total", COUNTER, R(downs_rows),
         .help = "How often the link to a member broke."},
        {"etcd_network_peer_sent_bytes_total", COUNTER, R(peer_sent_rows),
         .help = "Bytes for a member."},
        {"etcd_network_peer_received_bytes_total", COUNTER, R(peer_received_rows),
         .help = "Bytes from a member."},
        {"etcd_network_peer_sent_failures_total", COUNTER, R(unsent_rows),
         .help = "Frames for a member that were dropped: there was no link, or too much "
                 "waited for it."},
        {"etcd_network_peer_round_trip_time_seconds", HISTOGRAM, R(way_rows),
         .shape = &histogram_way,
         .help = "How long heartbeats of this replica took to a member and back, while it "
                 "led."},
        {"etcd_network_client_grpc_received_bytes_total", COUNTER, V(received_bytes),
         .help = "Bytes of clients' messages."},
        {"etcd_network_client_grpc_sent_bytes_total", COUNTER, V(sent_bytes),
         .help = "Bytes of messages to clients."},
        {"grpc_server_started_total", COUNTER, R(started_rows), .help = "Calls that began."},
        {"grpc_server_handled_total", COUNTER, R(handled_rows),
         .help = "Calls that ended, by their status."},
        {"grpc_server_msg_received_total", COUNTER, R(received_rows),
         .help = "Messages of clients."},
        {"grpc_server_msg_sent_total", COUNTER, R(sent_rows), .help = "Messages to clients."},
        {"grpc_server_handling_seconds", HISTOGRAM, R(took_rows), .shape = &histogram_calls,
         .help = "How long calls took, of the methods that were used."},

        /* Metrics that every program has. */
        {"process_cpu_seconds_total", COUNTER, V(process.cpu),
         .help = "CPU time, in user mode and in the kernel's."},
        {"process_open_fds", GAUGE, V(process.fds), .help = "Open file descriptors."},
        {"process_max_fds", GAUGE, V(process.fds_max), .help = "How many there may be."},
        {"os_fd_used", GAUGE, V(process.fds), .help = "process_open_fds, by another name."},
        {"os_fd_limit", GAUGE, V(process.fds_max), .help = "process_max_fds, by another name."},
        {"process_resident_memory_bytes", GAUGE, V(process.resident),
         .help = "Memory that is resident."},
        {"process_virtual_memory_bytes", GAUGE, V(process.virtual_),
         .help = "Memory that is mapped."},
        {"process_virtual_memory_max_bytes", GAUGE, V(process.virtual_max),
         .help = "How much may be."},
        {"process_start_time_seconds", GAUGE, V(process.started),
         .help = "When the process began, since 1970."},

        /* Our own. tenure-core(8) has a table of them. */
        {"tenure_build_info", GAUGE, R(add_build), .help = "The version of tenure-core."},
        {"tenure_leases", GAUGE, V(leases), .help = "Leases that there are."},
        {"tenure_lease_next_deadline_seconds", GAUGE, R(deadline_rows),
         .help = "How long until the nearest deadline of a lease, as far as is known; nothing "
                 "without leases."},
        {"tenure_lease_expiry_lateness_seconds", HISTOGRAM, H(state.late, histogram_way),
         .help = "How long after its deadline, in lease time, an expired lease was gone "
                 "here."},
        {"tenure_lease_renewal_left_ratio", HISTOGRAM, H(core.left, core_left_shape),
         .help = "What was left of its TTL when the renewal of a lease came to this replica."},
        {"tenure_lease_renewal_batch_size", HISTOGRAM, H(core.batches, histogram_sizes),
         .help = "Leases in one entry of renewals from this replica."},
        {"tenure_lease_renewals_covered_total", COUNTER, V(core.covered),
         .help = "Renewals that needed no entry, since the lease is renewed in a loop."},
        {"tenure_lease_time_seconds", GAUGE, V(lease_time),
         .help = "The clock of leases; it stands still while nobody can renew."},
        {"tenure_lease_outages_total", COUNTER, V(replica.outages),
         .help = "How often time was not counted against leases while this replica led, since "
                 "they could not have been renewed."},
        {"tenure_lease_outage_seconds_total", COUNTER, V(replica.excused),
         .help = "How long that was."},
        {"tenure_loop_turn_seconds", HISTOGRAM, H(turns, histogram_way),
         .help = "How long turns of the loop took; the next heartbeat waits for the end of "
                 "one."},
        {"tenure_loop_longest_turn_seconds", GAUGE, V(longest_turn),
         .help = "The longest of this minute and the one before."},
        {"tenure_client_connections", GAUGE, V(connections), .help = "Connections of clients."},
        {"tenure_client_held_bytes", GAUGE, V(held), .help = "Bytes held for clients."},
        {"tenure_lock_waiters", GAUGE, V(lock_waiters),
         .help = "Calls at this replica that wait for a lock or an election."},
        {"tenure_cached_ranges", GAUGE, V(cached_ranges),
         .help = "Ranges that clients have cache leases on."},
        {"tenure_members", GAUGE, R(add_members), .help = "Members of the cluster."},
        {"tenure_member_lag_entries", GAUGE, R(lag_rows),
         .help = "How many entries of the log a member is behind, as its leader knows."},
        {"tenure_member_forgetful", GAUGE, V(forgetful),
         .help = "Whether a member lacks entries that it has acknowledged, as its leader "
                 "knows."},
        {"tenure_core_stopped", GAUGE, V(stopped),
         .help = "Whether this core serves no clients, because another one continues from the "
                 "same data."},
        {"tenure_raft_term", GAUGE, V(term), .help = "The term of the log."},
        {"tenure_log_memory_bytes", GAUGE, V(log_bytes),
         .help = "Bytes of the log that are kept in memory."},
        {"tenure_disk_bytes", GAUGE, V(disk_bytes),
         .help = "What log and snapshots take on the disk."},
        {"tenure_disk_full", GAUGE, V(short_of_room),
         .help = "Whether the disk of this replica is full."},
        {"tenure_state_bytes", GAUGE, V(state_bytes),
         .help = "What keys, values, leases and users take: what the quota counts."},
};

/* ---- the figures ---- */

static void take_peer(uint64_t id, const char *address, bool voter, void *arg)
{
        struct page *p = arg;
        struct figures *f = &p->f;

        (void) address;
        if (f->n_peers < ARRAY_SIZE(f->peers))
                f->peers[f->n_peers++] = (struct peer){
                        .id = id, .voter = voter, .link = core_link(p->api->core, id)};
}

static void take_log(struct figures *f, const struct core *c)
{
        struct replica_status s = core_status(c);

        f->replica = *replica_counts(core_replica(c));
        f->store = *replica_store_counts(core_replica(c));
        f->has_leader = s.leader_id != 0;
        f->leads = s.leader;
        f->learns = s.learner;
        f->installs = replica_installs(core_replica(c));
        f->short_of_room = s.short_of_room;
        f->forgetful = replica_forgetful(core_replica(c)) != 0;
        f->stopped = state_sibling(core_state((struct core *) (uintptr_t) c)) != 0;
        f->committed = s.commit;
        f->applied = s.applied;
        f->term = s.term;
        f->log_bytes = s.log_bytes;
}

static void take_state(struct figures *f, struct core *c)
{
        const struct state *s = core_state(c);
        struct lease_time now = core_lease_time(c), next = core_next_deadline(c);

        f->state = s->counts;
        f->keys = s->kv.n_keys;
        f->revision = (uint64_t) s->revision;
        f->compacted = (uint64_t) s->kv.compacted;
        f->auth_revision = s->auth.revision;
        f->leases = s->leases.n;
        f->cached_ranges = s->cached.n;
        f->lease_time = now.ns;
        f->next_deadline =
                next.ns == LEASE_TIME_NEVER.ns ? INT64_MAX : lease_time_diff(next, now);
        f->quota = core_config(c)->quota;
        f->state_bytes = state_bytes(s);
        f->disk_bytes = replica_disk_bytes(core_replica(c));
        f->size = max_of(f->disk_bytes, f->state_bytes);
        f->size_in_use = f->state_bytes;
}

static void take_calls(struct figures *f, const struct api *a)
{
        for (size_t i = 0; api_method(i); i++) {
                f->received_bytes += a->counts[i].received_bytes;
                f->sent_bytes += a->counts[i].sent_bytes;
        }
}

static void take(struct page *p)
{
        struct figures *f = &p->f;
        struct api *a = p->api;
        struct watch_counts w = watch_hub_counts(a->watches);
        struct api_load load = {0};

        take_log(f, a->core);
        take_state(f, a->core);
        take_calls(f, a);
        f->core = *core_counts(a->core);
        f->pending = core_n_writes(a->core);
        f->watch_streams = w.streams;
        f->watchers = w.n;
        f->behind = w.behind;
        f->events = w.events;
        f->ranges = f->state.ranges + a->n_ranges;
        f->lock_waiters = claim_hub_n_waiting(a->claims);
        f->healthy = a->n_healthy;
        f->unhealthy = a->n_unhealthy;
        if (a->conns.load)
                load = a->conns.load(a->conns_arg);
        f->connections = load.connections;
        f->held = load.held;
        f->longest_turn = load.longest_turn;
        if (a->conns.turns)
                f->turns = *a->conns.turns(a->conns_arg);
        process_look(&a->process, load.connections, &f->process);
        replica_each_peer(core_replica(a->core), take_peer, p);
}

void metrics_write(struct api *a, bool open_metrics, struct buf *out)
{
        struct page p = {.api = a, .open_metrics = open_metrics, .out = out};

        take(&p);
        for (size_t i = 0; i < ARRAY_SIZE(table); i++)
                write_metric(&p, &table[i]);
        if (open_metrics)
                add(out, "# EOF\n");
}
