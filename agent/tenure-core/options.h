/* tenure-core's settings: one table for the configuration file, the command line, --help and
 * -t. */
#pragma once

#include "base/conf.h"
#include "base/url.h"

struct options {
        char *name, *data_dir;
        char *listen_client_urls, *advertise_client_urls, *listen_peer_urls,
                *initial_advertise_peer_urls;
        char *initial_cluster, *initial_cluster_state, *initial_cluster_token;
        nsec_t heartbeat, election, min_ttl, auth_token_ttl, watch_progress;
        uint64_t max_connections, max_connections_per_address, max_client_bytes;
        uint64_t quota, max_txn_ops, max_request_bytes, snapshot_count;
        char *lease_owners;
        char *compaction_mode, *compaction_retention;
        int64_t compact_keep; /* what the two say */
        nsec_t compact_age;
        char *cert_file, *key_file, *trusted_ca_file;
        bool client_cert_auth;
        char *peer_cert_file, *peer_key_file, *peer_trusted_ca_file;
        bool peer_client_cert_auth;
        char *peer_cert_allowed_cn, *peer_cert_allowed_hostname;
        bool allow_plaintext_peers, strict_reconfig_check;
        char *log_level;
};

extern const struct conf_option options_table[];
extern const size_t n_options;

#define OPTIONS_PEERS_MAX 5

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
        uint64_t cluster_id;
};

/* Fills what was left out, checks what belongs together and works out the members. Returns 0,
 * or -EINVAL with *@err. */
must_check_ int options_resolve(struct options *o, struct options_cluster *ret,
                                struct conf_error *err);
