#include "options.h"

#include <stdio.h>
#include <syslog.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/url.h"
#include "core/core.h"
#include "etcd.h"
#include "etcd/api.h"

#define FIELD(f) offsetof(struct options, f)
#define MS NSEC_PER_MSEC
#define QUOTA_DEFAULT (UINT64_C(2) << 30)
#define MIN_TTL_DEFAULT NSEC_PER_SEC

static const struct conf_word states[] = {
        {"new", CLUSTER_NEW}, {"existing", CLUSTER_EXISTING}, {NULL, 0}};
static const struct conf_word compaction_modes[] = {
        {"periodic", COMPACT_PERIODIC}, {"revision", COMPACT_REVISION}, {NULL, 0}};
/* Our names, and etcd's. */
static const struct conf_word log_levels[] = {{"err", LOG_ERR},
                                              {"warning", LOG_WARNING},
                                              {"notice", LOG_NOTICE},
                                              {"info", LOG_INFO},
                                              {"debug", LOG_DEBUG},
                                              {"warn", LOG_WARNING},
                                              {"error", LOG_ERR},
                                              {"dpanic", LOG_ERR},
                                              {"panic", LOG_ERR},
                                              {"fatal", LOG_ERR},
                                              {NULL, 0}};
static const struct conf_word tls_versions[] = {
        {"TLS1.2", TLS_1_2}, {"TLS1.3", TLS_1_3}, {NULL, 0}};
static const struct conf_word lease_owners[] = {{"agents", LEASE_TIE_AGENTS},
                                                {"all", LEASE_TIE_ALL},
                                                {"none", LEASE_TIE_NONE},
                                                {NULL, 0}};

/* clang-format off */
const struct conf_option options_table[] = {
        {"Core", "Name", "name", CONF_STRING, FIELD(name), "default", "this replica's name", 0, 0, false, NULL},
        {"Core", "DataDir", "data-dir", CONF_STRING, FIELD(data_dir), NULL, "directory of the log and snapshots [$STATE_DIRECTORY, else NAME.tenure]", 0, 0, false, NULL},
        {"Core", "HeartbeatInterval", "heartbeat-interval", CONF_MSEC, FIELD(heartbeat), "50ms", "how often the leader sends heartbeats", 10 * MS, 5000 * MS, false, NULL},
        {"Core", "ElectionTimeout", "election-timeout", CONF_MSEC, FIELD(election), "500ms", "how long replicas wait without a heartbeat before they elect another leader", 50 * MS, 50000 * MS, false, NULL},
        {"Core", "MinTTL", "min-ttl", CONF_NSEC, FIELD(min_ttl), "1s", "the shortest TTL that is granted; shorter ones are raised to it [twice ElectionTimeout, if that is longer]", 100 * MS, 3600000 * MS, false, NULL},
        {"Core", "QuotaBackendBytes", "quota-backend-bytes", CONF_UINT, FIELD(quota), "2147483648", "bytes of memory for keys and their history, leases, users and roles; beyond that, writes are refused; 0: the default", 0, INT64_C(1) << 40, false, NULL},
        {"Core", "AutoCompactionMode", "auto-compaction-mode", CONF_ENUM, FIELD(compaction_mode), "periodic", "what AutoCompactionRetention counts", 0, 0, false, compaction_modes},
        {"Core", "AutoCompactionRetention", "auto-compaction-retention", CONF_STRING, FIELD(compaction_retention), "0", "history to keep: a time (30m; a bare number is hours) or a number of revisions; 0: all", 0, 0, false, NULL},
        {"Core", "MaxTxnOps", "max-txn-ops", CONF_UINT, FIELD(max_txn_ops), "128", "most operations in one transaction", 1, 1000, false, NULL},
        {"Core", "MaxRequestBytes", "max-request-bytes", CONF_UINT, FIELD(max_request_bytes), "1572864", "most bytes of one request", 1, 64 << 20, false, NULL},
        {"Core", "LeaseOwners", "lease-owners", CONF_ENUM, FIELD(lease_owners), "agents", "with authentication, the leases that only the user who granted them may renew and revoke (agents: those with keys below /tenure/)", 0, 0, false, lease_owners},
        {"Core", "SnapshotCount", "snapshot-count", CONF_UINT, FIELD(snapshot_count), "16384", "take the next snapshot after this many log entries", 100, 10000000, false, NULL},
        {"Core", "FinishUpgradeAfter", "finish-upgrade-after", CONF_NSEC, FIELD(finish_upgrade_after), "24h", "raise the cluster version when all members have run a newer release for so long; infinity: only on request", 1000 * MS, INT64_MAX, false, NULL},
        {"Core", "ReplaceLostDisk", "replace-lost-disk", CONF_BOOL, FIELD(replace_lost_disk), "no", "with an empty data directory, ask the other members to replace this one, if it had another directory; replace members that ask for that reason", 0, 0, false, NULL},
        {"Core", "LogLevel", "log-level", CONF_ENUM, FIELD(log_level), "info", "the least severe messages that are logged", 0, 0, false, log_levels},
        {"Clients", "ListenClientURLs", "listen-client-urls", CONF_LIST, FIELD(listen_client_urls), "http://127.0.0.1:2379", "URLs to listen on for clients", 0, 0, false, NULL},
        {"Clients", "ListenClientHTTPURLs", "listen-client-http-urls", CONF_LIST, FIELD(listen_client_http_urls), "", "more URLs to listen on for clients, which are not advertised; etcd serves HTTP there", 0, 0, false, NULL},
        {"Clients", "ListenMetricsURLs", "listen-metrics-urls", CONF_LIST, FIELD(listen_metrics_urls), "", "URLs to listen on for monitoring: /metrics, /health, /livez and /readyz, and nothing else", 0, 0, false, NULL},
        {"Clients", "AdvertiseClientURLs", "advertise-client-urls", CONF_LIST, FIELD(advertise_client_urls), "", "URLs that are advertised to clients [the listen URLs]", 0, 0, false, NULL},
        {"Clients", "HostWhitelist", "host-whitelist", CONF_LIST, FIELD(host_whitelist), "*", "host names that requests over HTTP without TLS may be for, as a protection against DNS rebinding; *: any", 0, 0, false, NULL},
        {"Clients", "CertFile", "cert-file", CONF_STRING, FIELD(cert_file), NULL, "certificate for clients (PEM)", 0, 0, false, NULL},
        {"Clients", "KeyFile", "key-file", CONF_STRING, FIELD(key_file), NULL, "its key (PEM); a bare name is a credential of the unit", 0, 0, false, NULL},
        {"Clients", "TrustedCAFile", "trusted-ca-file", CONF_STRING, FIELD(trusted_ca_file), NULL, "CAs that sign clients' certificates (PEM)", 0, 0, false, NULL},
        {"Clients", "ClientCRLFile", "client-crl-file", CONF_STRING, FIELD(client_crl_file), NULL, "certificates that the CAs have revoked (PEM or DER)", 0, 0, false, NULL},
        {"Clients", "ClientCertAllowedCN", "client-cert-allowed-cn", CONF_STRING, FIELD(client_cert_allowed_cn), NULL, "common names, joined by commas, one of which a client's certificate must have [any]", 0, 0, false, NULL},
        {"Clients", "ClientCertAllowedHostname", "client-cert-allowed-hostname", CONF_LIST, FIELD(client_cert_allowed_hostname), "", "hosts, for one of which a client's certificate must be issued [any]", 0, 0, false, NULL},
        {"Clients", "AutoTLS", "auto-tls", CONF_BOOL, FIELD(auto_tls), "no", "without CertFile, serve https:// with a certificate that is made at the start and that no CA has signed", 0, 0, false, NULL},
        {"Clients", "AuthTokenTTL", "auth-token-ttl", CONF_NSEC, FIELD(auth_token_ttl), "24h", "how long a login by password lasts", 1000 * MS, INT64_C(31536000000) * MS, false, NULL},
        {"Clients", "WatchProgressNotifyInterval", "watch-progress-notify-interval", CONF_NSEC, FIELD(watch_progress), "10min", "how often a watch with progress notifications gets one while it has no events", 100 * MS, 86400000 * MS, false, NULL},
        {"Clients", "CacheTerm", "cache-term", CONF_NSEC, FIELD(cache_term), "3s", "how long a client that reads from a cache (tenure_cache(3)) may hold up a write; 0: give no cache leases", 0, 3000 * MS, false, NULL},
        {"Clients", "EtcdVersion", "etcd-version", CONF_STRING, FIELD(etcd_version), API_VERSION, "the version of etcd that is reported to clients, three numbers; some clients enable or disable features by it", 0, 0, false, NULL},
        {"Clients", "StatusPage", "status-page", CONF_BOOL, FIELD(status_page), "yes", "serve a page for browsers at / of the client URLs that shows the members live, as far as its reader may read them", 0, 0, false, NULL},
        {"Clients", "ClientCertAuth", "client-cert-auth", CONF_BOOL, FIELD(client_cert_auth), "no", "refuse clients without a certificate signed by a CA in TrustedCAFile", 0, 0, false, NULL},
        {"Clients", "MaxConnections", "max-connections", CONF_UINT, FIELD(max_connections), "16384", "how many clients may be connected at the same time; LimitNOFILE= is a limit, too", 1, 10000000, false, NULL},
        {"Clients", "MaxConnectionsPerAddress", "max-connections-per-address", CONF_UINT, FIELD(max_connections_per_address), "8192", "how many clients may be connected from one address", 1, 10000000, false, NULL},
        {"Clients", "MaxClientBytes", "max-client-bytes", CONF_UINT, FIELD(max_client_bytes), "268435456", "bytes held for all clients: answers not read yet, incomplete requests and waiting requests; the clients of one address may hold half of that; watches, observers and snapshots may take as much again, and so may open calls", 16 << 20, INT64_C(1) << 40, false, NULL},
        {"Peers", "ListenPeerURLs", "listen-peer-urls", CONF_LIST, FIELD(listen_peer_urls), "http://127.0.0.1:2380", "URLs to listen on for the other replicas", 0, 0, false, NULL},
        {"Peers", "InitialAdvertisePeerURLs", "initial-advertise-peer-urls", CONF_LIST, FIELD(initial_advertise_peer_urls), "", "URLs at which the other replicas reach this one [its URL in InitialCluster, else the listen URL]", 0, 0, false, NULL},
        {"Peers", "InitialCluster", "initial-cluster", CONF_LIST, FIELD(initial_cluster), "", "all replicas, NAME=URL,...; for an empty data directory [this one alone]", 0, 0, false, NULL},
        {"Peers", "InitialClusterState", "initial-cluster-state", CONF_ENUM, FIELD(initial_cluster_state), "new", "for an empty data directory: whether the cluster is new, or this replica was added to an existing one", 0, 0, false, states},
        {"Peers", "InitialClusterToken", "initial-cluster-token", CONF_STRING, FIELD(initial_cluster_token), "tenure", "for an empty data directory: distinguishes clusters that have the same URLs", 0, 0, false, NULL},
        {"Peers", "PeerCertFile", "peer-cert-file", CONF_STRING, FIELD(peer_cert_file), NULL, "certificate for links between replicas (PEM), for clients and servers, issued for the host of this replica's peer URL", 0, 0, false, NULL},
        {"Peers", "PeerKeyFile", "peer-key-file", CONF_STRING, FIELD(peer_key_file), NULL, "its key (PEM); a bare name is a credential of the unit", 0, 0, false, NULL},
        {"Peers", "PeerTrustedCAFile", "peer-trusted-ca-file", CONF_STRING, FIELD(peer_trusted_ca_file), NULL, "CAs that sign replicas' certificates (PEM) [the system's CAs]", 0, 0, false, NULL},
        {"Peers", "PeerClientCertAuth", "peer-client-cert-auth", CONF_BOOL, FIELD(peer_client_cert_auth), "no", "accepted for compatibility with etcd, without effect: replicas with https:// URLs always need a certificate", 0, 0, false, NULL},
        {"Peers", "PeerCRLFile", "peer-crl-file", CONF_STRING, FIELD(peer_crl_file), NULL, "certificates that the CAs have revoked (PEM or DER)", 0, 0, false, NULL},
        {"Peers", "PeerAutoTLS", "peer-auto-tls", CONF_BOOL, FIELD(peer_auto_tls), "no", "without PeerCertFile, use https:// with certificates that no CA has signed; beyond this machine that requires AllowPlaintextPeers, too", 0, 0, false, NULL},
        {"Peers", "PeerCertAllowedCN", "peer-cert-allowed-cn", CONF_STRING, FIELD(peer_cert_allowed_cn), NULL, "common names, joined by commas, one of which every replica's certificate must have [any; then the certificate must be for the host of the replica's peer URL]", 0, 0, false, NULL},
        {"Peers", "PeerCertAllowedHostname", "peer-cert-allowed-hostname", CONF_LIST, FIELD(peer_cert_allowed_hostname), "", "hosts, for one of which every replica's certificate must be issued [the host of its own peer URL]", 0, 0, false, NULL},
        {"Peers", "AllowPlaintextPeers", "allow-plaintext-peers", CONF_BOOL, FIELD(allow_plaintext_peers), "no", "peer URLs beyond this machine may be http://: whoever reaches them can read and write everything", 0, 0, false, NULL},
        {"Peers", "StrictReconfigCheck", "strict-reconfig-check", CONF_BOOL, FIELD(strict_reconfig_check), "yes", "refuse membership changes that may cost the majority", 0, 0, false, NULL},
        {"TLS", "CipherSuites", "cipher-suites", CONF_LIST, FIELD(cipher_suites), "", "the cipher suites for clients and replicas, by their names in the RFCs [those that OpenSSL considers safe]", 0, 0, false, NULL},
        {"TLS", "TLSMinVersion", "tls-min-version", CONF_ENUM, FIELD(tls_min), "TLS1.2", "the oldest version of TLS that is used", 0, 0, false, tls_versions},
        {"TLS", "TLSMaxVersion", "tls-max-version", CONF_ENUM, FIELD(tls_max), "TLS1.3", "the newest version of TLS that is used", 0, 0, false, tls_versions},
        {"TLS", "SelfSignedCertValidity", "self-signed-cert-validity", CONF_UINT, FIELD(auto_years), "1", "years for which a certificate of AutoTLS and PeerAutoTLS is valid", 1, 100, false, NULL},
};
/* clang-format on */
const size_t n_options = ARRAY_SIZE(options_table);

static void help(const struct args_program *p, FILE *f)
{
        fprintf(f, "tenure-core [OPTIONS...]\n\n"
                   "One replica of Tenure's lease core; speaks the etcd v3 API.\n"
                   "With no option it is a single replica on loopback.\n\n");
        args_help(p, f);
        fputc('\n', f);
        conf_help(options_table, n_options, f);
        fprintf(f, "\nSee tenure-core(8).\n");
}

static int complain(struct conf_error *err, const char *fmt, const char *a, const char *b)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(err->text, sizeof(err->text), fmt, a, b);
#pragma GCC diagnostic pop
        return -EINVAL;
}

static int check_bump(struct arguments *a, const char *bump, bool compacted,
                      struct conf_error *err)
{
        static const struct conf_option o = {.type = CONF_UINT, .max = (int64_t) 1 << 62};
        int r = 0;

        if (!a->restore && (bump || compacted))
                return complain(err, "%s goes with --restore%s",
                                bump ? "--bump-revision" : "--mark-compacted", "");
        a->bump = RESTORE_BUMP;
        if (bump)
                r = conf_set(&o, &a->bump, bump, "--bump-revision", err);
        if (r == 0 && a->bump == 0 && compacted)
                return complain(err,
                                "--bump-revision=0 keeps the history, which --mark-compacted "
                                "drops; leave one of them out%s%s",
                                "", "");
        return r;
}

int arguments_parse(struct arguments *ret, int argc, char **argv, struct conf_error *err)
{
        const char *bump = NULL;
        bool compacted = false;
        int r;
        /* clang-format off */
        const struct args_option own[] = {
                {0, "config-file", "FILE", "settings in systemd's format, which the options below override, or in etcd's YAML, which overrides them", .value = &ret->file},
                {0, "force-new-cluster", NULL, "make the replica in the data directory the only member of its cluster, and exit", .flag = &ret->force_new},
                {0, "restore", "FILE", "fill a new data directory from a snapshot, and exit", .value = &ret->restore},
                {0, "bump-revision", "N", "with --restore: raise the revision by this (1000000000), and compact the history; 0 to keep both", .value = &bump},
                {0, "mark-compacted", NULL, "with --restore: nothing, since it is the default; as in etcd", .flag = &compacted},
                {'t', "test", NULL, "check the settings, print them, and exit", .flag = &ret->test},
        };
        /* clang-format on */
        const struct args_program core = {
                .name = "tenure-core",
                .version = TENURE_VERSION,
                .options = own,
                .n_options = ARRAY_SIZE(own),
                .table = options_table,
                .n_table = n_options,
                .conf_path = "/etc/tenure/tenure-core.conf",
                .foreign = etcd_settings,
                .n_foreign = n_etcd_settings,
                .one_dash = true,
                .help = help,
        };

        r = args_parse(&ret->all, &core, argc, argv, err);
        return r == 0 ? check_bump(ret, bump, compacted, err) : r;
}

#define LISTEN_MAX 8

bool peers_make_certificates(const struct options *o)
{
        return o->peer_auto_tls && !o->peer_cert_file && !o->peer_key_file;
}

bool clients_get_made_certificate(const struct options *o)
{
        return o->auto_tls && !o->cert_file && !o->key_file;
}

static int check_urls(const char *flag, const char *urls, bool need_tls_files, bool local,
                      struct conf_error *err)
{
        const char *cursor = urls;
        char item[320];
        struct url u;
        size_t n = 0;

        if (!*urls)
                return complain(err,
                                "--%s needs at least one URL such as http://127.0.0.1:2379%s",
                                flag, "");
        while (list_next(&cursor, item, sizeof(item))) {
                if (strncmp(flag, "listen-", 7) == 0 && n++ == LISTEN_MAX)
                        return complain(
                                err,
                                "--%s: more than 8 URLs; name fewer, or one that stands "
                                "for all addresses such as http://0.0.0.0:2379%s",
                                flag, "");
                if (url_parse(item, &u) < 0 && strncmp(item, "unix", 4) == 0)
                        return complain(err,
                                        "--%s: '%s' is not a URL of the form unix:///PATH, "
                                        "with a path of 107 bytes or less",
                                        flag, item);
                if (url_parse(item, &u) < 0)
                        return complain(err,
                                        "--%s: '%s' is not a URL of the form http://HOST:PORT",
                                        flag, item);
                if (u.local && !local)
                        return complain(err,
                                        "--%s: %s: replicas reach each other by http:// and "
                                        "https:// URLs, not by sockets of a host",
                                        flag, item);
                if (u.tls && need_tls_files)
                        return complain(err, "--%s: %s needs a certificate and a key", flag,
                                        item);
        }
        if (*cursor)
                return complain(err, "--%s: '%s' is too long", flag, cursor);
        return 0;
}

static int check_client_urls(const struct options *o, const char *flag, const char *urls,
                             struct conf_error *err)
{
        return check_urls(flag, urls,
                          (!o->cert_file || !o->key_file) && !clients_get_made_certificate(o),
                          true, err);
}

/* Warns: without TLS between machines, anybody on the path can write to the log. */
static int check_plaintext(const struct options *o, const char *flag, const char *urls,
                           struct conf_error *err)
{
        char item[320];
        struct url u;

        while (!o->allow_plaintext_peers && list_next(&urls, item, sizeof(item))) {
                if (url_parse(item, &u) < 0 || url_is_loopback(&u))
                        continue;
                if (u.tls && peers_make_certificates(o))
                        return complain(
                                err,
                                "--%s: with --peer-auto-tls whoever reaches %s can pretend to "
                                "be a replica; give --peer-cert-file, --peer-key-file and "
                                "--peer-trusted-ca-file, or set --allow-plaintext-peers "
                                "(AllowPlaintextPeers=yes)",
                                flag, item);
                if (!u.tls)
                        return complain(
                                err,
                                "--%s: %s would leave this machine in plaintext, which anybody "
                                "on the network can read and forge; use https:// with "
                                "--peer-cert-file, --peer-key-file and --peer-trusted-ca-file, "
                                "or set --allow-plaintext-peers (AllowPlaintextPeers=yes)",
                                flag, item);
        }
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
        if (r == 0 && *o->listen_client_http_urls) {
                cleanup_(buf_fini) struct buf b = {0};

                buf_printf(&b, "%s,%s", o->listen_client_urls, o->listen_client_http_urls);
                buf_add_u8(&b, 0);
                r = buf_error(&b);
                if (r == 0)
                        r = set(&o->listen_client_urls, (const char *) buf_head(&b));
                if (r == 0)
                        r = set(&o->listen_client_http_urls, ""); /* the client URLs serve
                                                                   * them */
        }
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
                        buf_printf(&b, "%s%s=%s", buf_len(&b) > 0 ? "," : "", o->name, url);
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

/* Adds a URL to a member. Returns 0 or -EINVAL. */
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

/* As in etcd, a name that comes again adds another URL to its member. */
static int parse_cluster(const struct options *o, struct options_cluster *c,
                         struct conf_error *err)
{
        const char *cursor = o->initial_cluster;
        uint64_t h = hash_add(HASH_START, o->initial_cluster_token,
                              strlen(o->initial_cluster_token));
        char item[450];
        struct url u;

        if (!*o->data_dir)
                return complain(err, "--data-dir must not be empty", "", "");
        /* Checked here: otherwise the error would blame --initial-cluster, which may not have
         * been given. */
        if (!*o->name || strlen(o->name) >= 128 || strpbrk(o->name, " \t=,"))
                return complain(err,
                                "--name must be 1 to 127 bytes without blanks, commas and "
                                "equals signs, not '%s'%s",
                                o->name, "");
        while (list_next(&cursor, item, sizeof(item))) {
                char *eq = strchr(item, '=');
                struct options_peer *p;

                if (!eq || eq == item || eq - item >= 128 || url_parse(eq + 1, &u) < 0 ||
                    u.local)
                        return complain(
                                err, "--initial-cluster: '%s' is not NAME=http://HOST:PORT%s",
                                item, "");
                *eq = '\0';
                p = peer_named(c, item);
                if (!p && c->n_peers == OPTIONS_PEERS_MAX)
                        return complain(
                                err,
                                "--initial-cluster: more than 9 replicas are not supported%s%s",
                                "", "");
                if (!p) {
                        p = &c->peers[c->n_peers++];
                        strcpy(p->name, item);
                }
                if (u.tls && !peers_make_certificates(o) &&
                    (!o->peer_cert_file || !o->peer_key_file))
                        return complain(err,
                                        "--initial-cluster: %s needs --peer-cert-file and "
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
        if (c->n_peers > OPTIONS_PEERS_NEW && o->initial_cluster_state != CLUSTER_EXISTING)
                return complain(err,
                                "--initial-cluster: a new cluster has 7 replicas at most; "
                                "every write waits for a majority of them%s%s",
                                "", "");
        return 0;
}

/* As in etcd, a bare number means hours with `periodic`. */
static int resolve_compaction(struct options *o)
{
        const char *text = o->compaction_retention;
        bool number = *text && strspn(text, "0123456789") == strlen(text) && strlen(text) < 16;
        long long n = number ? strtoll(text, NULL, 10) : 0;

        o->compact_keep = 0;
        o->compact_age = 0;
        if (o->compaction_mode == COMPACT_REVISION) {
                o->compact_keep = n;
                return number ? 0 : -EINVAL;
        }
        if (number) {
                o->compact_age = min_of(n, 1000000LL) * 3600 * NSEC_PER_SEC;
                return 0;
        }
        return nsec_parse(text, &o->compact_age) < 0 || o->compact_age < 0 ? -EINVAL : 0;
}

/* Whoever compares a certificate with such a list ends at an item that is too long for a name,
 * and would refuse those behind it. */
static int check_names(const struct options *o, struct conf_error *err)
{
        const struct {
                const char *flag, *names;
        } lists[] = {
                {"client-cert-allowed-cn", o->client_cert_allowed_cn},
                {"client-cert-allowed-hostname", o->client_cert_allowed_hostname},
                {"peer-cert-allowed-cn", o->peer_cert_allowed_cn},
                {"peer-cert-allowed-hostname", o->peer_cert_allowed_hostname},
        };

        for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
                const char *rest = list_too_long(lists[i].names, 256);

                if (rest)
                        return complain(err, "--%s: '%s' is too long", lists[i].flag, rest);
        }
        return 0;
}

static int check_tls(const struct options *o, struct conf_error *err)
{
        const char *cursor = o->cipher_suites;
        char suite[80];

        if ((o->client_crl_file || o->client_cert_allowed_cn ||
             *o->client_cert_allowed_hostname) &&
            !o->trusted_ca_file)
                return complain(err, "--%s needs --trusted-ca-file%s",
                                o->client_crl_file          ? "client-crl-file"
                                : o->client_cert_allowed_cn ? "client-cert-allowed-cn"
                                                            : "client-cert-allowed-hostname",
                                "");
        if (o->tls_min > o->tls_max)
                return complain(err, "--tls-min-version is newer than --tls-max-version%s%s",
                                "", "");
        while (list_next(&cursor, suite, sizeof(suite)))
                if (!tls_has_suite(suite))
                        return complain(err,
                                        "--cipher-suites: '%s' is unknown or too weak; name "
                                        "suites such as "
                                        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256%s",
                                        suite, "");
        return *cursor ? complain(err, "--cipher-suites: '%s' is too long%s", cursor, "")
                       : check_names(o, err);
}

static int resolve(struct options *o, struct options_cluster *c, struct conf_error *err)
{
        int r;

        *c = (struct options_cluster){.given = *o->initial_cluster};
        r = check_client_urls(o, "listen-client-urls", o->listen_client_urls, err);
        if (r == 0 && *o->listen_metrics_urls)
                r = check_client_urls(o, "listen-metrics-urls", o->listen_metrics_urls, err);
        if (r == 0 && *o->listen_client_http_urls)
                r = check_client_urls(o, "listen-client-http-urls", o->listen_client_http_urls,
                                      err);
        if (r == 0)
                r = check_urls("listen-peer-urls", o->listen_peer_urls,
                               (!o->peer_cert_file || !o->peer_key_file) &&
                                       !peers_make_certificates(o),
                               false, err);
        if (r == 0)
                r = check_plaintext(o, "listen-peer-urls", o->listen_peer_urls, err);
        if (r == 0)
                r = fill(o);
        if (r == 0)
                r = check_urls("advertise-client-urls", o->advertise_client_urls, false, true,
                               err);
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
                                        "--initial-advertise-peer-urls '%s' differs from this "
                                        "replica's URL in --initial-cluster, '%s'",
                                        o->initial_advertise_peer_urls, c->peers[c->self].urls);
        }
        if (o->client_cert_auth && !o->trusted_ca_file)
                return complain(err, "--client-cert-auth needs --trusted-ca-file%s%s", "", "");
        if (o->peer_client_cert_auth && !o->peer_trusted_ca_file)
                return complain(err, "--peer-client-cert-auth needs --peer-trusted-ca-file%s%s",
                                "", "");
        if (o->peer_cert_allowed_cn && *o->peer_cert_allowed_hostname)
                return complain(err,
                                "--peer-cert-allowed-cn and --peer-cert-allowed-hostname "
                                "exclude each other; choose one%s%s",
                                "", "");
        r = check_tls(o, err);
        if (r < 0)
                return r;
        if (o->quota == 0)
                o->quota = QUOTA_DEFAULT;
        if (o->election < 5 * o->heartbeat)
                return complain(err,
                                "--election-timeout must be at least five times "
                                "--heartbeat-interval%s%s",
                                "", "");
        if (o->min_ttl == MIN_TTL_DEFAULT)
                o->min_ttl = max_of(o->min_ttl, 2 * o->election);
        if (o->min_ttl < 2 * o->election)
                return complain(err,
                                "--min-ttl must be at least twice --election-timeout, or a new "
                                "leader may be elected too late to renew such a lease%s%s",
                                "", "");
        if (resolve_compaction(o) < 0)
                return complain(err, "--auto-compaction-retention must be %s, not '%s'",
                                o->compaction_mode == COMPACT_REVISION
                                        ? "a number of revisions with "
                                          "--auto-compaction-mode=revision"
                                        : "a time (1h, or hours)",
                                o->compaction_retention);
        if (!api_is_version(o->etcd_version))
                return complain(err,
                                "--etcd-version must be three numbers such as %s, not '%s': "
                                "clients take it apart",
                                API_VERSION, o->etcd_version);
        return 0;
}

/* As in etcd: with a file of etcd's, nothing else counts; without one, options override the
 * environment. A file of ours is overridden by options, and excludes the environment. */
static int read_all(struct options *o, const struct arguments *args, struct buf *notes,
                    struct conf_error *err)
{
        const char *file = args->file;
        int r;

        if (!file)
                file = getenv("ETCD_CONFIG_FILE");
        if (!file || !*file) {
                r = etcd_read_environment(o, environ, notes, err);
        } else {
                etcd_note_environment(environ, notes);
                if (etcd_is_file(file)) {
                        if (args->all.n_settings + args->all.n_foreign > 0)
                                buf_printf(notes,
                                           "Command-line options are ignored because %s is in "
                                           "etcd's "
                                           "format (etcd does the same)\n",
                                           file);
                        return etcd_read_file(o, file, notes, err);
                }
                r = conf_read_file(options_table, n_options, o, file, err);
        }
        if (r == 0)
                r = args_apply(&args->all, o, err);
        for (size_t i = 0; i < args->all.n_foreign; i++) {
                char shown[96];

                snprintf(shown, sizeof(shown), "--%s", args->all.foreign[i]->name);
                etcd_note_foreign(notes, shown, args->all.foreign[i]);
        }
        return r;
}

int options_read(struct options *o, struct options_cluster *c, const struct arguments *args,
                 struct buf *notes, struct conf_error *err)
{
        int r = conf_defaults(options_table, n_options, o);

        if (r == 0)
                r = read_all(o, args, notes, err);
        if (r == 0)
                r = resolve(o, c, err);
        if (r == 0 && c->n_peers % 2 == 0)
                buf_printf(
                        notes,
                        "%zu replicas tolerate no more failures than %zu: run an odd number\n",
                        c->n_peers, c->n_peers - 1);
        if (r == 0)
                r = buf_error(notes);
        if (r < 0 && !*err->text)
                snprintf(err->text, sizeof(err->text), "%s", strerror(-r));
        return r;
}
