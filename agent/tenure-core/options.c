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
        {"Core", "MaxTxnOps", "max-txn-ops", CONF_UINT, FIELD(max_txn_ops), "128", "operations in one transaction", 1, 1000, false},
        {"Core", "MaxRequestBytes", "max-request-bytes", CONF_UINT, FIELD(max_request_bytes), "1572864", "bytes of one request", 1024, 64 << 20, false},
        {"Core", "LeaseOwners", "lease-owners", CONF_STRING, FIELD(lease_owners), "agents", "with authentication, whose leases only who granted them renews and revokes: agents (those with keys below /tenure/), all or none", 0, 0, false},
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
        {"Clients", "MaxConnections", "max-connections", CONF_UINT, FIELD(max_connections), "16384", "clients at the same time; bounded by LimitNOFILE= too", 1, 10000000, false},
        {"Clients", "MaxConnectionsPerAddress", "max-connections-per-address", CONF_UINT, FIELD(max_connections_per_address), "8192", "of these, from one address", 1, 10000000, false},
        {"Clients", "MaxClientBytes", "max-client-bytes", CONF_UINT, FIELD(max_client_bytes), "268435456", "bytes held for all clients: what is sent and not read, half requests, requests that wait; half of it for those of one address; and as much again for their watches, observers and snapshots", 16 << 20, INT64_C(1) << 40, false},
        {"Peers", "ListenPeerURLs", "listen-peer-urls", CONF_LIST, FIELD(listen_peer_urls), "http://127.0.0.1:2380", "where the other replicas are served", 0, 0, false},
        {"Peers", "InitialAdvertisePeerURLs", "initial-advertise-peer-urls", CONF_LIST, FIELD(initial_advertise_peer_urls), "", "where they find us [our URL in the cluster, else the listen URL]", 0, 0, false},
        {"Peers", "InitialCluster", "initial-cluster", CONF_LIST, FIELD(initial_cluster), "", "all replicas, NAME=URL,... [this one alone]", 0, 0, false},
        {"Peers", "InitialClusterState", "initial-cluster-state", CONF_STRING, FIELD(initial_cluster_state), "new", "new, or existing for a replica that was added to a running cluster", 0, 0, false},
        {"Peers", "InitialClusterToken", "initial-cluster-token", CONF_STRING, FIELD(initial_cluster_token), "tenure", "tells clusters apart that have the same URLs", 0, 0, false},
        {"Peers", "PeerCertFile", "peer-cert-file", CONF_STRING, FIELD(peer_cert_file), NULL, "certificate between replicas (PEM), of a client and a server, for the host of our peer URL", 0, 0, false},
        {"Peers", "PeerKeyFile", "peer-key-file", CONF_STRING, FIELD(peer_key_file), NULL, "its key (PEM); a bare name: a credential of the unit", 0, 0, false},
        {"Peers", "PeerTrustedCAFile", "peer-trusted-ca-file", CONF_STRING, FIELD(peer_trusted_ca_file), NULL, "who signs replicas' certificates (PEM) [the system's CAs]", 0, 0, false},
        {"Peers", "PeerClientCertAuth", "peer-client-cert-auth", CONF_BOOL, FIELD(peer_client_cert_auth), "no", "as etcd's; replicas with https:// URLs always show one, whatever it says", 0, 0, false},
        {"Peers", "PeerCertAllowedCN", "peer-cert-allowed-cn", CONF_STRING, FIELD(peer_cert_allowed_cn), NULL, "the common name in every replica's certificate [any, and it is for the host of the replica's peer URL]", 0, 0, false},
        {"Peers", "PeerCertAllowedHostname", "peer-cert-allowed-hostname", CONF_STRING, FIELD(peer_cert_allowed_hostname), NULL, "the host that every replica's certificate is for [that of its own peer URL]", 0, 0, false},
        {"Peers", "AllowPlaintextPeers", "allow-plaintext-peers", CONF_BOOL, FIELD(allow_plaintext_peers), "no", "peer URLs beyond this machine may be http://: whoever reaches them can read and write everything", 0, 0, false},
        {"Peers", "StrictReconfigCheck", "strict-reconfig-check", CONF_BOOL, FIELD(strict_reconfig_check), "yes", "refuse changes of the members that may cost the majority", 0, 0, false},
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

#define LISTEN_MAX 8

static int check_urls(const char *flag, const char *urls, bool need_tls_files,
                      struct conf_error *err)
{
        const char *cursor = urls;
        char item[320];
        struct url u;
        size_t n = 0;

        if (!*urls)
                return complain(err,
                                "--%s wants at least one URL such as http://127.0.0.1:2379%s",
                                flag, "");
        while (list_next(&cursor, item, sizeof(item))) {
                if (strncmp(flag, "listen-", 7) == 0 && n++ == LISTEN_MAX)
                        return complain(
                                err,
                                "--%s: more than 8 URLs; name fewer, or one that stands "
                                "for all addresses such as http://0.0.0.0:2379%s",
                                flag, "");
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

/* Without TLS between machines, whoever is on the way writes the log. */
static int check_plaintext(const struct options *o, const char *flag, const char *urls,
                           struct conf_error *err)
{
        char item[320];
        struct url u;

        while (!o->allow_plaintext_peers && list_next(&urls, item, sizeof(item)))
                if (url_parse(item, &u) == 0 && !u.tls && !url_is_loopback(&u))
                        return complain(
                                err,
                                "--%s: %s is plaintext beyond this machine, which anybody "
                                "there "
                                "can read and forge; use https:// with --peer-cert-file, "
                                "--peer-key-file and --peer-trusted-ca-file, or say "
                                "--allow-plaintext-peers (AllowPlaintextPeers=yes)",
                                flag, item);
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
                const char *urls = o->initial_advertise_peer_urls;
                cleanup_(buf_fini) struct buf b = {0};
                char url[320];

                if (!*urls) {
                        snprintf(text, sizeof(text), "%.*s",
                                 (int) strcspn(o->listen_peer_urls, ","), o->listen_peer_urls);
                        urls = text;
                }
                while (list_next(&urls, url, sizeof(url)))
                        buf_printf(&b, "%s%.100s=%s", buf_len(&b) > 0 ? "," : "", o->name, url);
                buf_add_u8(&b, 0);
                r = buf_error(&b);
                if (r == 0)
                        r = set(&o->initial_cluster, (const char *) buf_head(&b));
        }
        return r;
}

static int peer_cmp(const void *a, const void *b)
{
        return strcmp(((const struct options_peer *) a)->urls,
                      ((const struct options_peer *) b)->urls);
}

static struct options_peer *peer_named(struct options_cluster *c, const char *name)
{
        for (size_t i = 0; i < c->n_peers; i++)
                if (strcmp(c->peers[i].name, name) == 0)
                        return &c->peers[i];
        return NULL;
}

/* One URL more of a member. Returns 0 or -EINVAL. */
static int add_url(struct options_peer *p, const char *url)
{
        cleanup_(arena_fini) struct arena a = {0};
        cleanup_(buf_fini) struct buf b = {0};
        char **all;
        size_t n;

        buf_printf(&b, "%s%s%s", p->urls, *p->urls ? "," : "", url);
        buf_add_u8(&b, 0);
        if (buf_error(&b) < 0 || list_split((const char *) buf_head(&b), &a, &all, &n) < 0)
                return -ENOMEM;
        return urls_join(all, n, p->urls);
}

/* As for etcd, a name that comes again brings another URL of its member. */
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
                *eq = '\0';
                p = peer_named(c, item);
                if (!p && c->n_peers == OPTIONS_PEERS_MAX)
                        return complain(
                                err,
                                "--initial-cluster: more than 5 replicas are not supported%s%s",
                                "", "");
                if (!p) {
                        p = &c->peers[c->n_peers++];
                        strcpy(p->name, item);
                }
                if (u.tls && (!o->peer_cert_file || !o->peer_key_file))
                        return complain(err,
                                        "--initial-cluster: %s wants --peer-cert-file and "
                                        "--peer-key-file%s",
                                        eq + 1, "");
                if (add_url(p, eq + 1) < 0)
                        return complain(err, "--initial-cluster: '%s' has too many URLs%s",
                                        p->name, "");
        }
        for (size_t i = 0; i < c->n_peers; i++) {
                struct options_peer *p = &c->peers[i];

                if (check_plaintext(o, "initial-cluster", p->urls, err) < 0)
                        return -EINVAL;
                p->id = hash_end(hash_add(h, p->urls, strlen(p->urls))) | 1;
        }
        if (*cursor)
                return complain(err, "--initial-cluster: '%s' is too long%s", cursor, "");
        qsort(c->peers, c->n_peers, sizeof(c->peers[0]), peer_cmp);
        c->self = SIZE_MAX;
        for (size_t i = 0; i < c->n_peers; i++) {
                for (size_t j = 0; j < i; j++)
                        if (c->peers[i].id == c->peers[j].id ||
                            urls_meet(c->peers[i].urls, c->peers[j].urls))
                                return complain(
                                        err,
                                        "--initial-cluster: '%s' and '%s' have a URL in common",
                                        c->peers[i].name, c->peers[j].name);
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
        int r;

        *c = (struct options_cluster){0};
        r = check_urls("listen-client-urls", o->listen_client_urls,
                       !o->cert_file || !o->key_file, err);
        if (r == 0)
                r = check_urls("listen-peer-urls", o->listen_peer_urls,
                               !o->peer_cert_file || !o->peer_key_file, err);
        if (r == 0)
                r = check_plaintext(o, "listen-peer-urls", o->listen_peer_urls, err);
        if (r == 0)
                r = fill(o);
        if (r == 0)
                r = check_urls("advertise-client-urls", o->advertise_client_urls, false, err);
        if (r == 0)
                r = parse_cluster(o, c, err);
        if (r < 0)
                return r;
        if (*o->initial_advertise_peer_urls) {
                struct options_peer own = {0};
                const char *cursor = o->initial_advertise_peer_urls;
                char url[320];

                while (r == 0 && list_next(&cursor, url, sizeof(url)))
                        r = add_url(&own, url);
                if (r < 0 || *cursor || strcmp(own.urls, c->peers[c->self].urls) != 0)
                        return complain(err,
                                        "--initial-advertise-peer-urls '%s' is not our URL in "
                                        "--initial-cluster, '%s'",
                                        o->initial_advertise_peer_urls, c->peers[c->self].urls);
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
        if (o->peer_cert_allowed_cn && o->peer_cert_allowed_hostname)
                return complain(
                        err,
                        "--peer-cert-allowed-cn and --peer-cert-allowed-hostname are two "
                        "rules for one thing; choose one%s%s",
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
        if (strcmp(o->lease_owners, "agents") != 0 && strcmp(o->lease_owners, "all") != 0 &&
            strcmp(o->lease_owners, "none") != 0)
                return complain(err, "--lease-owners wants agents, all or none, not '%s'%s",
                                o->lease_owners, "");
        if (log_level_from_string(o->log_level) < LOG_ERR)
                return complain(
                        err,
                        "--log-level wants err, warning, notice, info or debug, not '%s'%s",
                        o->log_level, "");
        return 0;
}
