#include "options.h"

#include <stdio.h>

#include "base/hash.h"
#include "base/log.h"
#include "base/url.h"

#define FIELD(f) offsetof(struct options, f)
#define MS NSEC_PER_MSEC

/* clang-format off */
const struct conf_option options_table[] = {
        {"Core", "Name", "name", CONF_STRING, FIELD(name), "default", "this replica's name", 0, 0, false},
        {"Core", "DataDir", "data-dir", CONF_STRING, FIELD(data_dir), NULL, "where the log and snapshots are [$STATE_DIRECTORY, else NAME.tenure]", 0, 0, false},
        {"Core", "HeartbeatInterval", "heartbeat-interval", CONF_NSEC, FIELD(heartbeat), "50ms", "how often the leader shows that it lives", 10 * MS, 5000 * MS, false},
        {"Core", "ElectionTimeout", "election-timeout", CONF_NSEC, FIELD(election), "500ms", "without a leader for so long, replicas elect one", 50 * MS, 50000 * MS, false},
        {"Core", "MinTTL", "min-ttl", CONF_NSEC, FIELD(min_ttl), "1s", "shorter TTLs are raised to it", 100 * MS, 3600000 * MS, false},
        {"Core", "QuotaBackendBytes", "quota-backend-bytes", CONF_UINT, FIELD(quota), "2147483648", "bytes of memory for keys with their history, leases, users and roles, past which writes are refused; 0: no bound", 0, INT64_C(1) << 40, false},
        {"Core", "AutoCompactionMode", "auto-compaction-mode", CONF_STRING, FIELD(compaction_mode), "periodic", "periodic or revision", 0, 0, false},
        {"Core", "AutoCompactionRetention", "auto-compaction-retention", CONF_STRING, FIELD(compaction_retention), "0", "history to keep: a time (1h; a bare number is hours), or so many revisions; 0: all", 0, 0, false},
        {"Core", "MaxTxnOps", "max-txn-ops", CONF_UINT, FIELD(max_txn_ops), "128", "operations in one transaction", 1, 100000, false},
        {"Core", "MaxRequestBytes", "max-request-bytes", CONF_UINT, FIELD(max_request_bytes), "1572864", "bytes of one request", 1024, 64 << 20, false},
        {"Core", "SnapshotCount", "snapshot-count", CONF_UINT, FIELD(snapshot_count), "16384", "entries after which a snapshot is taken", 100, 10000000, false},
        {"Core", "LogLevel", "log-level", CONF_STRING, FIELD(log_level), "info", "err, warning, notice, info or debug", 0, 0, false},
        {"Clients", "ListenClientURLs", "listen-client-urls", CONF_LIST, FIELD(listen_client_urls), "http://127.0.0.1:2379", "where clients are served", 0, 0, false},
        {"Clients", "AdvertiseClientURLs", "advertise-client-urls", CONF_LIST, FIELD(advertise_client_urls), "", "where clients are told to come [the listen URLs]", 0, 0, false},
        {"Clients", "CertFile", "cert-file", CONF_STRING, FIELD(cert_file), NULL, "certificate for clients (PEM)", 0, 0, false},
        {"Clients", "KeyFile", "key-file", CONF_STRING, FIELD(key_file), NULL, "its key (PEM); a bare name: a credential of the unit", 0, 0, false},
        {"Clients", "TrustedCAFile", "trusted-ca-file", CONF_STRING, FIELD(trusted_ca_file), NULL, "who signs clients' certificates (PEM)", 0, 0, false},
        {"Clients", "AuthTokenTTL", "auth-token-ttl", CONF_NSEC, FIELD(auth_token_ttl), "24h", "how long a login by password lasts", 1000 * MS, INT64_C(31536000000) * MS, false},
        {"Clients", "WatchProgressNotifyInterval", "watch-progress-notify-interval", CONF_NSEC, FIELD(watch_progress), "10min", "how often a watch that asked for it is told that nothing happened", 100 * MS, 86400000 * MS, false},
        {"Clients", "ClientCertAuth", "client-cert-auth", CONF_BOOL, FIELD(client_cert_auth), "no", "refuse clients without such a certificate", 0, 0, false},
        {"Peers", "ListenPeerURLs", "listen-peer-urls", CONF_LIST, FIELD(listen_peer_urls), "http://127.0.0.1:2380", "where the other replicas are served", 0, 0, false},
        {"Peers", "InitialAdvertisePeerURLs", "initial-advertise-peer-urls", CONF_LIST, FIELD(initial_advertise_peer_urls), "", "where they find us [our URL in the cluster, else the listen URL]", 0, 0, false},
        {"Peers", "InitialCluster", "initial-cluster", CONF_LIST, FIELD(initial_cluster), "", "all replicas, NAME=URL,... [this one alone]", 0, 0, false},
        {"Peers", "InitialClusterState", "initial-cluster-state", CONF_STRING, FIELD(initial_cluster_state), "new", "new, or existing for a replica that was added to a running cluster", 0, 0, false},
        {"Peers", "InitialClusterToken", "initial-cluster-token", CONF_STRING, FIELD(initial_cluster_token), "tenure", "tells clusters apart that have the same URLs", 0, 0, false},
        {"Peers", "PeerCertFile", "peer-cert-file", CONF_STRING, FIELD(peer_cert_file), NULL, "certificate between replicas (PEM)", 0, 0, false},
        {"Peers", "PeerKeyFile", "peer-key-file", CONF_STRING, FIELD(peer_key_file), NULL, "its key (PEM); a bare name: a credential of the unit", 0, 0, false},
        {"Peers", "PeerTrustedCAFile", "peer-trusted-ca-file", CONF_STRING, FIELD(peer_trusted_ca_file), NULL, "who signs replicas' certificates (PEM)", 0, 0, false},
        {"Peers", "PeerClientCertAuth", "peer-client-cert-auth", CONF_BOOL, FIELD(peer_client_cert_auth), "no", "refuse replicas without such a certificate", 0, 0, false},
};
/* clang-format on */
const size_t n_options = ARRAY_SIZE(options_table);

static int complain(struct conf_error *err, const char *fmt, const char *a, const char *b)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(err->text, sizeof(err->text), fmt, a, b);
#pragma GCC diagnostic pop
        return -EINVAL;
}

static int check_urls(const char *flag, const char *urls, bool need_tls_files,
                      struct conf_error *err)
{
        const char *cursor = urls;
        char item[320];
        struct url u;

        if (!*urls)
                return complain(err,
                                "--%s wants at least one URL such as http://127.0.0.1:2379%s",
                                flag, "");
        while (list_next(&cursor, item, sizeof(item))) {
                if (url_parse(item, &u) < 0)
                        return complain(err,
                                        "--%s: '%s' is not a URL of the form http://HOST:PORT",
                                        flag, item);
                if (u.tls && need_tls_files)
                        return complain(err, "--%s: %s wants a certificate and a key", flag,
                                        item);
        }
        if (*cursor)
                return complain(err, "--%s: '%s' is too long", flag, cursor);
        return 0;
}

static int set(char **field, const char *value)
{
        char *copy = strdup(value);

        if (!copy)
                return -ENOMEM;
        free(*field);
        *field = copy;
        return 0;
}

static int fill(struct options *o)
{
        const char *state_dir = getenv("STATE_DIRECTORY");
        char text[512];
        int r = 0;

        if (!o->data_dir && state_dir && *state_dir) {
                r = set(&o->data_dir, state_dir);
        } else if (!o->data_dir) {
                snprintf(text, sizeof(text), "%.200s.tenure", o->name);
                r = set(&o->data_dir, text);
        }
        if (r == 0 && !*o->advertise_client_urls)
                r = set(&o->advertise_client_urls, o->listen_client_urls);
        if (r == 0 && !*o->initial_cluster) {
                const char *url = *o->initial_advertise_peer_urls
                                          ? o->initial_advertise_peer_urls
                                          : o->listen_peer_urls;

                snprintf(text, sizeof(text), "%.100s=%.*s", o->name, (int) strcspn(url, ","),
                         url);
                r = set(&o->initial_cluster, text);
        }
        return r;
}

static int peer_cmp(const void *a, const void *b)
{
        return strcmp(((const struct options_peer *) a)->url,
                      ((const struct options_peer *) b)->url);
}

static int parse_cluster(const struct options *o, struct options_cluster *c,
                         struct conf_error *err)
{
        const char *cursor = o->initial_cluster;
        uint64_t h = hash_add(HASH_START, o->initial_cluster_token,
                              strlen(o->initial_cluster_token));
        char item[450];
        struct url u;

        while (list_next(&cursor, item, sizeof(item))) {
                char *eq = strchr(item, '=');
                struct options_peer *p;

                if (!eq || eq == item || eq - item >= 128 || url_parse(eq + 1, &u) < 0)
                        return complain(
                                err, "--initial-cluster: '%s' is not NAME=http://HOST:PORT%s",
                                item, "");
                if (c->n_peers == OPTIONS_PEERS_MAX)
                        return complain(
                                err,
                                "--initial-cluster: more than 5 replicas are not supported%s%s",
                                "", "");
                p = &c->peers[c->n_peers++];
                *eq = '\0';
                strcpy(p->name, item);
                url_format(&u, p->url);
                p->id = hash_end(hash_add(h, p->url, strlen(p->url))) | 1;
        }
        if (*cursor)
                return complain(err, "--initial-cluster: '%s' is too long%s", cursor, "");
        qsort(c->peers, c->n_peers, sizeof(c->peers[0]), peer_cmp);
        c->self = SIZE_MAX;
        for (size_t i = 0; i < c->n_peers; i++) {
                for (size_t j = 0; j < i; j++)
                        if (c->peers[i].id == c->peers[j].id ||
                            strcmp(c->peers[i].name, c->peers[j].name) == 0)
                                return complain(
                                        err, "--initial-cluster names '%s' or its URL twice%s",
                                        c->peers[i].name, "");
                if (strcmp(c->peers[i].name, o->name) == 0)
                        c->self = i;
                h = hash_add(h, &c->peers[i].id, sizeof(c->peers[i].id));
        }
        c->cluster_id = hash_end(h);
        if (c->self == SIZE_MAX)
                return complain(err,
                                "--initial-cluster '%s' does not name this replica (--name %s)",
                                o->initial_cluster, o->name);
        if (c->n_peers % 2 == 0 && strcmp(o->initial_cluster_state, "existing") != 0)
                return complain(err,
                                "--initial-cluster: run 1, 3 or 5 replicas: an even number "
                                "tolerates no more failures%s%s",
                                "", "");
        return 0;
}

/* As etcd has it: a bare number is hours with `periodic`. */
static int resolve_compaction(struct options *o)
{
        const char *text = o->compaction_retention;
        bool number = *text && strspn(text, "0123456789") == strlen(text) && strlen(text) < 16;
        long long n = number ? strtoll(text, NULL, 10) : 0;

        o->compact_keep = 0;
        o->compact_age = 0;
        if (strcmp(o->compaction_mode, "revision") == 0) {
                o->compact_keep = n;
                return number ? 0 : -EINVAL;
        }
        if (strcmp(o->compaction_mode, "periodic") != 0)
                return -EINVAL;
        if (number) {
                o->compact_age = min_of(n, 1000000LL) * 3600 * NSEC_PER_SEC;
                return 0;
        }
        return nsec_parse(text, &o->compact_age) < 0 || o->compact_age < 0 ? -EINVAL : 0;
}

int options_resolve(struct options *o, struct options_cluster *c, struct conf_error *err)
{
        char own[320];
        struct url u;
        int r;

        *c = (struct options_cluster){0};
        r = check_urls("listen-client-urls", o->listen_client_urls,
                       !o->cert_file || !o->key_file, err);
        if (r == 0)
                r = check_urls("listen-peer-urls", o->listen_peer_urls,
                               !o->peer_cert_file || !o->peer_key_file, err);
        if (r == 0)
                r = fill(o);
        if (r == 0)
                r = check_urls("advertise-client-urls", o->advertise_client_urls, false, err);
        if (r == 0)
                r = parse_cluster(o, c, err);
        if (r < 0)
                return r;
        if (*o->initial_advertise_peer_urls) {
                snprintf(own, sizeof(own), "%.*s",
                         (int) strcspn(o->initial_advertise_peer_urls, ","),
                         o->initial_advertise_peer_urls);
                if (url_parse(own, &u) < 0 ||
                    strcmp(url_format(&u, own), c->peers[c->self].url) != 0)
                        return complain(err,
                                        "--initial-advertise-peer-urls '%s' is not our URL in "
                                        "--initial-cluster, '%s'",
                                        o->initial_advertise_peer_urls, c->peers[c->self].url);
        }
        if (strcmp(o->initial_cluster_state, "new") != 0 &&
            strcmp(o->initial_cluster_state, "existing") != 0)
                return complain(err,
                                "--initial-cluster-state wants new or existing, not '%s'%s",
                                o->initial_cluster_state, "");
        if (o->client_cert_auth && !o->trusted_ca_file)
                return complain(err, "--client-cert-auth wants --trusted-ca-file%s%s", "", "");
        if (o->peer_client_cert_auth && !o->peer_trusted_ca_file)
                return complain(err, "--peer-client-cert-auth wants --peer-trusted-ca-file%s%s",
                                "", "");
        if (o->election < 5 * o->heartbeat)
                return complain(err,
                                "--election-timeout must be at least five times "
                                "--heartbeat-interval%s%s",
                                "", "");
        if (o->min_ttl < 2 * o->election)
                return complain(err,
                                "--min-ttl must be at least twice --election-timeout, or a new "
                                "leader comes too late for it%s%s",
                                "", "");
        if (resolve_compaction(o) < 0)
                return complain(err,
                                "--auto-compaction-mode wants periodic or revision, and "
                                "--auto-compaction-retention a time (1h, or hours) or a number "
                                "of revisions, not '%s' and '%s'",
                                o->compaction_mode, o->compaction_retention);
        if (log_level_from_string(o->log_level) < LOG_ERR)
                return complain(
                        err,
                        "--log-level wants err, warning, notice, info or debug, not '%s'%s",
                        o->log_level, "");
        return 0;
}
