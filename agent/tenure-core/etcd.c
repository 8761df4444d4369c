#include "etcd.h"

#include <ctype.h>
#include <stdio.h>

#include "base/yaml.h"

#define PREFIX "ETCD_"

#define V3 "the v2 API is gone; use v3"
#define DISCOVERY                                                                          \
        "there is no discovery service; name all replicas in --initial-cluster, and have " \
        "clients "                                                                         \
        "find them by srv://DOMAIN"
#define TRACING "nothing is traced; the journal names each turn of the loop of 50 ms or longer"
#define MEMORY "keys are in memory, and there is no backend"
#define FORMAT "messages go to the journal with fields, elsewhere to standard error"
#define PROXY "there is no proxy"
#define CHECKED                                                                            \
        "what is on disk and in snapshots is checked as it is read, and etcdctl endpoint " \
        "hashkv "                                                                          \
        "compares the replicas"

/* clang-format off */
const struct args_foreign etcd_settings[] = {
        /* accepted without effect */
        {"wal-dir", false, false, NULL, "the log is in --data-dir; put that on the fastest disk"},
        {"initial-election-tick-advance", true, false, NULL, "a replica that starts waits for one election timeout"},
        {"max-snapshots", false, false, NULL, "one snapshot is kept"},
        {"max-wals", false, false, NULL, "what the latest snapshot has is removed from the log"},
        {"backend-batch-interval", false, false, NULL, MEMORY},
        {"backend-batch-limit", false, false, NULL, MEMORY},
        {"backend-bbolt-freelist-type", false, false, NULL, MEMORY},
        {"bootstrap-defrag-threshold-megabytes", false, false, NULL, MEMORY},
        {"compaction-batch-limit", false, false, NULL, "a compaction takes turns with everything else"},
        {"compaction-sleep-interval", false, false, NULL, "a compaction takes turns with everything else"},
        {"memory-mlock", true, false, NULL, "use MemoryLow= or a host without swap"},
        {"max-concurrent-streams", false, false, NULL, "a connection has up to 8192 calls, and further ones wait"},
        {"grpc-keepalive-min-time", false, false, NULL, "pings are bounded by what they cost"},
        {"grpc-keepalive-interval", false, false, NULL, "the kernel probes a silent connection after 10 s"},
        {"grpc-keepalive-timeout", false, false, NULL, "the kernel gives up 9 s after the first probe without an answer"},
        {"socket-reuse-port", true, false, NULL, "one process listens at an address"},
        {"socket-reuse-address", true, false, NULL, "this is always on"},
        {"enable-grpc-gateway", true, false, NULL, "this is always on"},
        {"raft-read-timeout", false, false, NULL, "a link on which nothing is acknowledged for 5 s is set up anew"},
        {"raft-write-timeout", false, false, NULL, "a link on which nothing is acknowledged for 5 s is set up anew"},
        {"snapshot-catchup-entries", false, false, NULL, "how much of the log is kept depends on its bytes"},
        {"feature-gates", false, false, NULL, "there are no experimental features to switch on"},
        {"pre-vote", true, false, NULL, "this is always on"},
        {"discovery-fallback", false, false, NULL, "it matters only to --discovery, which is not supported"},
        {"client-cert-file", false, false, NULL, "a replica is not a client of its own port"},
        {"client-key-file", false, false, NULL, "a replica is not a client of its own port"},
        {"cors", false, false, NULL, "answers allow no other origins"},
        {"bcrypt-cost", false, false, NULL, "passwords are hashed with yescrypt"},
        {"enable-pprof", true, false, NULL, "profile the process with perf(1)"},
        {"metrics", false, false, NULL, "there is one level of detail"},
        {"logger", false, false, NULL, FORMAT},
        {"log-outputs", false, false, NULL, FORMAT},
        {"log-output", false, false, NULL, FORMAT},
        {"log-format", false, false, NULL, FORMAT},
        {"log-package-levels", false, false, NULL, "--log-level is for all of it"},
        {"enable-log-rotation", true, false, NULL, FORMAT},
        {"log-rotation-config-json", false, false, NULL, FORMAT},
        {"warning-apply-duration", false, false, NULL, TRACING},
        {"warning-unary-request-duration", false, false, NULL, TRACING},
        {"enable-distributed-tracing", true, false, NULL, TRACING},
        {"distributed-tracing-address", false, false, NULL, TRACING},
        {"distributed-tracing-service-name", false, false, NULL, TRACING},
        {"distributed-tracing-instance-id", false, false, NULL, TRACING},
        {"distributed-tracing-sampling-rate", false, false, NULL, TRACING},
        {"corrupt-check-time", false, false, NULL, CHECKED},
        {"compact-hash-check-time", false, false, NULL, CHECKED},
        {"max-learners", false, false, NULL, "a cluster has one learner at a time"},
        {"downgrade-check-time", false, false, NULL, "no replica can be made to behave as an older version"},
        {"next-cluster-version-compatible", true, false, NULL, "no replica can be made to behave as an older version"},
        {"v2-deprecation", false, false, NULL, V3},
        {"proxy-failure-wait", false, false, NULL, PROXY},
        {"proxy-refresh-interval", false, false, NULL, PROXY},
        {"proxy-dial-timeout", false, false, NULL, PROXY},
        {"proxy-write-timeout", false, false, NULL, PROXY},
        {"proxy-read-timeout", false, false, NULL, PROXY},
        /* refused, except for values that have no effect in etcd either */
        {"auth-token", false, true, "simple", "tokens are valid at every replica and signed with a key of the cluster; leave this out"},
        {"debug", true, true, "false", "use --log-level=debug"},
        {"enable-v2", true, true, "false", V3},
        {"unsafe-no-fsync", true, true, "false", "acknowledged writes are always synced; use a faster disk"},
        {"peer-skip-client-san-verification", true, true, "false", "set --peer-cert-allowed-cn or --peer-cert-allowed-hostname to a name that all replicas' certificates have in common"},
        {"peer-client-cert-file", false, true, "", "issue --peer-cert-file for clients and servers, with both extended key usages or none"},
        {"peer-client-key-file", false, true, "", "issue --peer-cert-file for clients and servers, with both extended key usages or none"},
        {"proxy", false, true, "off", "point clients at the replicas themselves; each takes several endpoints"},
        {"discovery", false, true, "", DISCOVERY},
        {"discovery-proxy", false, true, "", DISCOVERY},
        {"discovery-srv", false, true, "", DISCOVERY},
        {"discovery-srv-name", false, true, "", DISCOVERY},
        {"discovery-endpoints", false, true, "", DISCOVERY},
        {"discovery-token", false, true, "", DISCOVERY},
        {"discovery-dial-timeout", false, true, "", DISCOVERY},
        {"discovery-request-timeout", false, true, "", DISCOVERY},
        {"discovery-keepalive-time", false, true, "", DISCOVERY},
        {"discovery-keepalive-timeout", false, true, "", DISCOVERY},
        {"discovery-insecure-transport", true, true, "true false", DISCOVERY},
        {"discovery-insecure-skip-tls-verify", true, true, "false", DISCOVERY},
        {"discovery-cert", false, true, "", DISCOVERY},
        {"discovery-key", false, true, "", DISCOVERY},
        {"discovery-cacert", false, true, "", DISCOVERY},
        {"discovery-user", false, true, "", DISCOVERY},
        {"discovery-password", false, true, "", DISCOVERY},
        {"gateway", true, true, NULL, "point clients at the replicas themselves; each takes several endpoints"},
        {"grpc-proxy", true, true, NULL, "point clients at the replicas themselves; each takes several endpoints"},
        /* refused, whatever the value */
        {"experimental-watch-progress-notify-interval", false, true, NULL, "use --watch-progress-notify-interval"},
        {"experimental-peer-skip-client-san-verification", true, true, NULL, "set --peer-cert-allowed-cn or --peer-cert-allowed-hostname to a name that all replicas' certificates have in common"},
        {"experimental-enable-v2v3", false, true, NULL, V3},
        {"experimental-enable-lease-checkpoint", true, true, NULL, "leave it out: the remaining time of every lease outlives the leader"},
        {"experimental-enable-lease-checkpoint-persist", true, true, NULL, "leave it out: the remaining time of every lease outlives the leader"},
        {"experimental-initial-corrupt-check", true, true, NULL, "leave it out: a replica checks what it reads at the start"},
        {"experimental-corrupt-check-time", false, true, NULL, "leave it out: " CHECKED},
        {"experimental-compact-hash-check-enabled", true, true, NULL, "leave it out: " CHECKED},
        {"experimental-compact-hash-check-time", false, true, NULL, "leave it out: " CHECKED},
        {"experimental-backend-bbolt-freelist-type", false, true, NULL, "leave it out: " MEMORY},
        {"experimental-bootstrap-defrag-threshold-megabytes", false, true, NULL, "leave it out: " MEMORY},
        {"experimental-memory-mlock", true, true, NULL, "use MemoryLow= or a host without swap"},
        {"experimental-compaction-batch-limit", false, true, NULL, "leave it out: a compaction takes turns with everything else"},
        {"experimental-compaction-sleep-interval", false, true, NULL, "leave it out: a compaction takes turns with everything else"},
        {"experimental-txn-mode-write-with-shared-buffer", true, true, NULL, "leave it out: " MEMORY},
        {"experimental-stop-grpc-service-on-defrag", true, true, NULL, "leave it out: a defragmentation stops nothing"},
        {"experimental-max-learners", false, true, NULL, "leave it out: a cluster has one learner at a time"},
        {"experimental-snapshot-catchup-entries", false, true, NULL, "leave it out: how much of the log is kept depends on its bytes"},
        {"experimental-snapshot-catch-up-entries", false, true, NULL, "leave it out: how much of the log is kept depends on its bytes"},
        {"experimental-downgrade-check-time", false, true, NULL, "leave it out: no replica can be made to behave as an older version"},
        {"experimental-warning-apply-duration", false, true, NULL, "leave it out: " TRACING},
        {"experimental-warning-unary-request-duration", false, true, NULL, "leave it out: " TRACING},
        {"experimental-enable-distributed-tracing", true, true, NULL, "leave it out: " TRACING},
        {"experimental-distributed-tracing-address", false, true, NULL, "leave it out: " TRACING},
        {"experimental-distributed-tracing-service-name", false, true, NULL, "leave it out: " TRACING},
        {"experimental-distributed-tracing-instance-id", false, true, NULL, "leave it out: " TRACING},
        {"experimental-distributed-tracing-sampling-rate", false, true, NULL, "leave it out: " TRACING},
};
/* clang-format on */
const size_t n_etcd_settings = ARRAY_SIZE(etcd_settings);

/* On the command line only, where --force-new-cluster does its work and exits. */
static const struct args_foreign force_new = {"force-new-cluster", true, true, "false",
                                              "run tenure-core --force-new-cluster once, with "
                                              "the settings of the replica, which makes "
                                              "it the only member, and start it without"};

void etcd_note_foreign(struct buf *n, const char *shown, const struct args_foreign *f)
{
        buf_printf(n, "%s has no effect: %s\n", shown, f->why);
}

/* Sets the setting @name, which messages call @shown. Returns 0, -EINVAL with *@err, -ENOMEM,
 * or -ENOENT if there is no such setting. */
static int set(struct options *o, const char *name, const char *value, const char *shown,
               struct buf *n, struct conf_error *err)
{
        const struct conf_option *c =
                conf_find_flag(options_table, n_options, name, strlen(name));
        const struct args_foreign *f =
                args_find_foreign(etcd_settings, n_etcd_settings, name, strlen(name));
        int r;

        if (strcmp(name, force_new.name) == 0)
                f = &force_new;
        if (c)
                return conf_set(c, o, value, shown, err);
        if (!f)
                return -ENOENT;
        r = args_check_foreign(f, shown, value, err);
        if (r == 0 && !f->refused && *value)
                etcd_note_foreign(n, shown, f);
        return r;
}

/* ---- the environment ---- */

/* Whether @variable is one of etcd's and is not empty. If so, also its name as an option, and
 * where the value begins. */
static bool is_etcds(const char *variable, char name[static 80], const char **ret_value)
{
        const char *eq = strchr(variable, '=');
        size_t len, skip = strlen(PREFIX);

        if (strncmp(variable, PREFIX, skip) != 0 || !eq || eq[1] == '\0')
                return false;
        len = (size_t) (eq - variable) - skip;
        if (len == 0 || len >= 80)
                return false;
        for (size_t i = 0; i < len; i++) {
                char c = variable[skip + i];

                name[i] = (char) (c == '_' ? '-' : tolower((unsigned char) c));
        }
        name[len] = '\0';
        *ret_value = eq + 1;
        return strcmp(name, "config-file") != 0 && strcmp(name, "unsupported-arch") != 0;
}

int etcd_read_environment(struct options *o, char *const environment[], struct buf *n,
                          struct conf_error *err)
{
        for (; *environment; environment++) {
                const char *value;
                char name[80], shown[96];
                int r;

                if (!is_etcds(*environment, name, &value))
                        continue;
                snprintf(shown, sizeof(shown), "%.*s", (int) strcspn(*environment, "="),
                         *environment);
                r = set(o, name, value, shown, n, err);
                if (r == -ENOENT)
                        buf_printf(n,
                                   "%s in the environment is not a setting of etcd, and is "
                                   "ignored\n",
                                   shown);
                else if (r < 0)
                        return r;
        }
        return 0;
}

void etcd_note_environment(char *const environment[], struct buf *n)
{
        for (; *environment; environment++) {
                const char *value;
                char name[80];

                if (is_etcds(*environment, name, &value))
                        buf_printf(n, "%.*s is ignored, since --config-file is given\n",
                                   (int) strcspn(*environment, "="), *environment);
        }
}

/* ---- the file ---- */

bool etcd_is_file(const char *path)
{
        static const char *const ends[] = {".yml", ".yaml", ".json"};
        cleanup_(freep) char *line = NULL;
        size_t cap = 0, len = strlen(path);
        bool is = false, known = false;
        FILE *f;

        for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
                if (len > strlen(ends[i]) &&
                    strcasecmp(path + len - strlen(ends[i]), ends[i]) == 0)
                        return true;
        f = fopen(path, "re");
        while (f && !known && getline(&line, &cap, f) > 0) {
                const char *text = line + strspn(line, " \t\r\n");
                const char *colon = strchr(text, ':'), *eq = strchr(text, '=');

                known = *text != '\0' && *text != '#' && *text != ';';
                is = known && *text != '[' &&
                     (*text == '{' || strncmp(text, "---", 3) == 0 ||
                      (colon && (!eq || colon < eq)));
        }
        if (f)
                fclose(f);
        return is;
}

struct file {
        struct options *o;
        struct buf *notes;
};

/* Keys that etcd's file has in sections, and the options that they stand for. */
static const struct {
        const char *section, *key, *option;
} named[] = {
        {"client-transport-security", "crl-file", "client-crl-file"},
        {"client-transport-security", "allowed-cn", "client-cert-allowed-cn"},
        {"client-transport-security", "allowed-hostname", "client-cert-allowed-hostname"},
        {"client-transport-security", "skip-client-san-verification", NULL},
        {"peer-transport-security", "allowed-cn", "peer-cert-allowed-cn"},
        {"peer-transport-security", "allowed-hostname", "peer-cert-allowed-hostname"},
        {"discovery-config", "dial-timeout", "discovery-dial-timeout"},
        {"discovery-config", "discovery", "discovery"},
};

static const struct {
        const char *section, *before; /* prefix of the section's keys on the command line */
} sections[] = {
        {"", ""},
        {"client-transport-security", ""},
        {"peer-transport-security", "peer-"},
        {"socket-options", "socket-"},
        {"discovery-config", "discovery-"},
};

/* Returns 0, or -EINVAL with *@err. */
static int option_of(const char *section, const char *key, char name[static 160],
                     struct conf_error *err)
{
        for (size_t i = 0; i < ARRAY_SIZE(named); i++)
                if (strcmp(named[i].section, section) == 0 && strcmp(named[i].key, key) == 0) {
                        snprintf(name, 160, "%s", named[i].option ? named[i].option : "");
                        return 0;
                }
        for (size_t i = 0; i < ARRAY_SIZE(sections); i++)
                if (strcmp(sections[i].section, section) == 0) {
                        snprintf(name, 160, "%s%.80s", sections[i].before, key);
                        return 0;
                }
        snprintf(err->text, sizeof(err->text), "unknown section '%.80s'", section);
        return -EINVAL;
}

static int on_setting(const char *section, const char *key, const char *value, void *arg,
                      struct conf_error *err)
{
        struct file *f = arg;
        char name[160], shown[200], nanoseconds[48];
        int r = option_of(section, key, name, err);

        if (r < 0 || *name == '\0')
                return r;
        snprintf(shown, sizeof(shown), "%.80s%s%.80s", section, *section ? "." : "", key);
        /* etcd's file gives this duration as a bare number of nanoseconds. */
        if (strcmp(name, "watch-progress-notify-interval") == 0 && *value &&
            strlen(value) < 40 && strspn(value, "0123456789") == strlen(value)) {
                snprintf(nanoseconds, sizeof(nanoseconds), "%sns", value);
                value = nanoseconds;
        }
        r = set(f->o, name, value, shown, f->notes, err);
        if (r == -ENOENT) {
                snprintf(err->text, sizeof(err->text), "unknown setting '%.80s%s%.80s'",
                         section, *section ? "." : "", key);
                r = -EINVAL;
        }
        return r;
}

int etcd_read_file(struct options *o, const char *path, struct buf *n, struct conf_error *err)
{
        struct file f = {.o = o, .notes = n};

        return yaml_read_file(path, on_setting, &f, err);
}
