/* tenure-core's settings: one table for the configuration file, the command line, --help and
 * -t. */
#pragma once

#include "base/args.h"
#include "base/conf.h"
#include "base/url.h"
#include "loop/tls.h"

enum initial_state { CLUSTER_NEW, CLUSTER_EXISTING };
enum compaction_mode { COMPACT_PERIODIC, COMPACT_REVISION };

struct options {
        char *name, *data_dir;
        char *listen_client_urls, *listen_client_http_urls, *listen_metrics_urls,
                *advertise_client_urls, *listen_peer_urls, *initial_advertise_peer_urls;
        char *initial_cluster, *initial_cluster_token;
        int initial_cluster_state; /* enum initial_state */
        nsec_t heartbeat, election, min_ttl, auth_token_ttl, watch_progress, cache_term;
        nsec_t finish_upgrade_after;
        uint64_t max_connections, max_connections_per_address, max_client_bytes;
        uint64_t quota, max_txn_ops, max_request_bytes, snapshot_count;
        int lease_owners;    /* enum lease_tie */
        int compaction_mode; /* enum compaction_mode */
        char *compaction_retention, *etcd_version;
        int64_t compact_keep; /* mode and retention, resolved */
        nsec_t compact_age;
        char *host_whitelist;
        char *cert_file, *key_file, *trusted_ca_file;
        bool client_cert_auth, auto_tls, status_page;
        char *client_crl_file, *client_cert_allowed_cn, *client_cert_allowed_hostname;
        char *peer_cert_file, *peer_key_file, *peer_trusted_ca_file;
        bool peer_client_cert_auth, peer_auto_tls;
        char *peer_crl_file;
        char *peer_cert_allowed_cn, *peer_cert_allowed_hostname;
        bool allow_plaintext_peers, strict_reconfig_check, replace_lost_disk;
        char *cipher_suites;
        int tls_min, tls_max; /* enum tls_version */
        uint64_t auto_years;
        int log_level; /* a priority of syslog(3) */
};

extern const struct conf_option options_table[];
extern const size_t n_options;

/* By how much a restore raises the revision: more than a cluster that is in use writes between
 * a snapshot and its loss (a day of 10,000 writes a second is 864,000,000). */
#define RESTORE_BUMP UINT64_C(1000000000)

/* The command line. */
struct arguments {
        struct args all;
        const char *file;    /* NULL: none */
        const char *restore; /* a snapshot file; NULL: run */
        uint64_t bump;       /* raise its revision by this, and compact it; 0: neither */
        bool force_new;      /* restart as the only member of the cluster, and exit */
        bool test;
};

/* See args_parse(); args_fini(&ret->all) frees it. */
must_check_ int arguments_parse(struct arguments *ret, int argc, char **argv,
                                struct conf_error *err);

#define OPTIONS_PEERS_MAX 9 /* including one that joins and one that is being replaced */
#define OPTIONS_PEERS_NEW 7 /* the largest new cluster */

/* One member of --initial-cluster. */
struct options_peer {
        char name[128];
        char urls[URLS_MAX]; /* joined by commas (urls_join()) */
        uint64_t id;
};

struct options_cluster {
        struct options_peer peers[OPTIONS_PEERS_MAX];
        size_t n_peers;
        size_t self; /* index into peers */
        bool given;  /* --initial-cluster; otherwise we are the only one */
        uint64_t cluster_id;
};

/* Whether the replicas, or this replica for its clients, use certificates that they make
 * themselves. */
bool peers_make_certificates(const struct options *o);
bool clients_get_made_certificate(const struct options *o);

/* Reads the file, the environment and the command line, which overrides them; fills in what was
 * left out, checks the combination, and works out the members. What an operator should know
 * goes to @notes, a line each, as a sentence without its full stop. Returns 0, or a negative
 * errno with *@err. */
must_check_ int options_read(struct options *o, struct options_cluster *ret,
                             const struct arguments *args, struct buf *notes,
                             struct conf_error *err);
