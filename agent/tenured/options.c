#include "options.h"

#include <stdio.h>
#include <systemd/sd-id128.h>
#include <unistd.h>

#include "base/utf8.h"
#include "bus/bound.h"
#include "client/client.h"
#include "link/table.h"
#include "member/node_record.h"

#define FIELD(f) offsetof(struct options, f)
#define MS NSEC_PER_MSEC

/* Tenure's application id: a node's id is derived with it from the machine id, which is
 * confidential (machine-id(5)). */
#define APPLICATION_ID \
        SD_ID128_MAKE(6c, 2f, 4b, 0e, 7d, 1a, 4f, 39, 9e, 55, 80, 3d, b1, c4, 62, a7)

static const struct conf_word fence_actions[] = {
        {"kill", FENCE_KILL}, {"reboot", FENCE_REBOOT}, {NULL, 0}};

/* clang-format off */
const struct conf_option options_table[] = {
        {"Agent", "Endpoints", "endpoints", CONF_LIST, FIELD(endpoints), "http://127.0.0.1:2379", "the core's client URLs, or those of an etcd cluster; or srv://DOMAIN, with TLS srvs://DOMAIN, to find them by DNS", 0, 0, false, NULL},
        {"Agent", "Cluster", "cluster", CONF_STRING, FIELD(cluster), "default", "the cluster's name in the keys", 0, 0, false, NULL},
        {"Agent", "NodeName", "node-name", CONF_STRING, FIELD(node_name), NULL, "this node's name [the host name]", 0, 0, false, NULL},
        {"Agent", "NodeId", "node-id", CONF_STRING, FIELD(node_id), NULL, "32 hex digits that identify the node [derived from machine-id(5)]", 0, 0, false, NULL},
        {"Agent", "TTL", "ttl", CONF_NSEC, FIELD(ttl), "10s", "how long after its last renewal a node counts as gone", 100 * MS, 86400000 * MS, true, NULL},
        {"Agent", "ReadyAfter", "ready-after", CONF_NSEC, FIELD(ready_after), "15s", "how long unit start-up waits for a place; then it counts as started without one, so that a boot without a network completes", 0, 86400000 * MS, false, NULL},
        {"Agent", "DriftPpm", "drift-ppm", CONF_UINT, FIELD(drift_ppm), "1000", "how much the rates of two clocks may differ, in parts per million", 0, 100000, false, NULL},
        {"Agent", "Addresses", "addresses", CONF_LIST, FIELD(addresses), "core", "the address that the node publishes: core (the address from which it reaches the core), interface:NAME, a subnet such as 10.0.0.0/8, or an address or name", 0, 0, true, NULL},
        {"Agent", "Tags", "tags", CONF_LIST, FIELD(tags), "", "the node's attributes, name=value", 0, 0, true, NULL},
        {"Agent", "ServicesPath", "services-path", CONF_LIST, FIELD(services_path), "/etc/tenure/services.d,/run/tenure/services.d,/usr/local/lib/tenure/services.d,/usr/lib/tenure/services.d", "directories with NAME.service-entry files; a file hides files of the same name in later directories", 0, 0, true, NULL},
        {"Agent", "DegradedPressure", "degraded-pressure", CONF_UINT, FIELD(degraded_pressure), "60", "report the node as degraded if memory or disks kept all processes waiting for this percentage of the last 10 s, or if its agent runs late; 0: never", 0, 100, true, NULL},
        {"Agent", "DegradedCPUPressure", "degraded-cpu-pressure", CONF_UINT, FIELD(degraded_cpu_pressure), "0", "the node reports that it is degraded when for this percentage of the last 10 s some process waited for a processor; 0: never, since a busy host is not a sick one", 0, 100, true, NULL},
        {"Agent", "User", "user", CONF_STRING, FIELD(user), NULL, "log in to the core as this user [the user that the agent's certificate names]", 0, 0, false, NULL},
        {"Agent", "PasswordFile", "password-file", CONF_STRING, FIELD(password_file), NULL, "file with that user's password; a bare name is a credential of the unit", 0, 0, false, NULL},
        {"Agent", "LogLevel", "log-level", CONF_ENUM, FIELD(log_level), "info", "the least severe messages that are logged", 0, 0, true, conf_log_levels},
        {"Fencing", "HeldTarget", "held-target", CONF_STRING, FIELD(held_target), "tenure-held.target", "the unit that is up while the place is held; empty: no fencing", 0, 0, false, NULL},
        {"Fencing", "FenceLead", "fence-lead", CONF_NSEC, FIELD(fence_lead), "1s", "how long before the deadline HeldTarget is stopped; is capped at a quarter of the TTL", 0, 3600000 * MS, true, NULL},
        {"Fencing", "FenceAction", "fence-action", CONF_ENUM, FIELD(fence_action), "kill", "what the agent does to units that do not stop in time; reboot kills them first, and reboots at the deadline", 0, 0, true, fence_actions},
        {"Steadiness", "FlapLimit", "flap-limit", CONF_UINT, FIELD(flap_limit), "0", "a node that has lost its place this often within FlapWindow stays out for FlapRest; 0: never", 0, 16, true, NULL},
        {"Steadiness", "FlapWindow", "flap-window", CONF_NSEC, FIELD(flap_window), "1h", "period in which losses are counted for FlapLimit", 1000 * MS, 86400000 * MS, true, NULL},
        {"Steadiness", "FlapRest", "flap-rest", CONF_NSEC, FIELD(flap_rest), "10min", "how long a node that has reached FlapLimit stays out", 1000 * MS, 86400000 * MS, true, NULL},
        {"Steadiness", "MassFailurePercent", "mass-failure-percent", CONF_UINT, FIELD(mass_failure_percent), "55", "when this percentage of the nodes, at least four in all, has expired within MassFailureWindow and is not back, the agent reports MassFailure, until less than half of that is missing; 0: never", 0, 100, true, NULL},
        {"Steadiness", "MassFailureWindow", "mass-failure-window", CONF_NSEC, FIELD(mass_failure_window), "1min", "see MassFailurePercent", 1000 * MS, 86400000 * MS, true, NULL},
        {"TLS", "CertFile", "cert-file", CONF_STRING, FIELD(cert_file), NULL, "the agent's certificate (PEM)", 0, 0, true, NULL},
        {"TLS", "KeyFile", "key-file", CONF_STRING, FIELD(key_file), NULL, "its key (PEM); a bare name is a credential of the unit", 0, 0, true, NULL},
        {"TLS", "TrustedCAFile", "trusted-ca-file", CONF_STRING, FIELD(trusted_ca_file), NULL, "CAs that sign the core's certificates (PEM) [the system's]", 0, 0, true, NULL},
};
/* clang-format on */
const size_t n_options = ARRAY_SIZE(options_table);

static void help(const struct args_program *p, FILE *f)
{
        fprintf(f, "tenured [OPTIONS...]\n\nHolds this host's place in the cluster and reports "
                   "on D-Bus which other hosts are there.\n\n");
        args_help(p, f);
        fputc('\n', f);
        conf_help(options_table, n_options, f);
        fprintf(f, "\nSee tenured(8).\n");
}

int arguments_parse(struct arguments *ret, int argc, char **argv, struct conf_error *err)
{
        /* clang-format off */
        const struct args_option own[] = {
                {'c', "config", "FILE", "settings [" DEFAULT_CONFIG ", if it exists]", .value = &ret->file},
                {'t', "test", NULL, "check the settings, print them, and exit", .flag = &ret->test},
                {0, "guard", NULL, "stop the units bound to the place in time when the agent cannot; for tenure-guard.service", .flag = &ret->guard, .alone = true},
                {0, "rebooter", NULL, "reboot this host on request; for tenure-reboot.service", .flag = &ret->rebooter, .alone = true},
                {0, "introspect", "INTERFACE", "print the introspection data of this D-Bus interface as XML, and exit", .value = &ret->introspect, .alone = true},
        };
        /* clang-format on */
        const struct args_program tenured = {
                .name = "tenured",
                .version = TENURE_VERSION,
                .options = own,
                .n_options = ARRAY_SIZE(own),
                .table = options_table,
                .n_table = n_options,
                .conf_path = DEFAULT_CONFIG,
                .help = help,
        };

        return args_parse(&ret->all, &tenured, argc, argv, err);
}

static int own_id(char **ret)
{
        char text[SD_ID128_STRING_MAX];
        sd_id128_t id;
        int r = sd_id128_get_machine_app_specific(APPLICATION_ID, &id);

        if (r < 0)
                return r;
        *ret = strdup(sd_id128_to_string(id, text));
        return *ret ? 0 : -ENOMEM;
}

int options_read(struct options *o, const char *file, struct conf_error *err)
{
        const char *main_file = file ? file : DEFAULT_CONFIG;
        char own[4096];
        const char *folders[] = {own, file ? NULL : "/run/tenure/tenured.conf.d",
                                 "/usr/lib/tenure/tenured.conf.d", NULL};
        int r = conf_read_file(options_table, n_options, o, main_file, err);

        if (r == -ENOENT && !file)
                r = 0;
        snprintf(own, sizeof(own), "%s.d", main_file);
        return r < 0 ? r : conf_read_folders(options_table, n_options, o, folders, err);
}

/* As systemd names units (systemd.unit(5)). */
static bool is_target(const char *unit)
{
        static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyz"
                                      "ABCDEFGHIJKLMNOPQRSTUVWXYZ:-_.\\@";
        size_t n = strlen(unit);

        return n < 256 && strspn(unit, letters) == n && bound_is_kind(unit, ".target");
}

int options_resolve(struct options *o, struct conf_error *err)
{
        char text[480], tags[TAGS_MAX] = "";
        int r;

        if (!o->node_name) {
                if (gethostname(text, sizeof(text)) < 0)
                        return -errno;
                o->node_name = strdup(text);
                if (!o->node_name)
                        return -ENOMEM;
        }
        if (!o->node_id) {
                r = own_id(&o->node_id);
                if (r < 0) {
                        snprintf(err->text, sizeof(err->text),
                                 "no node id: /etc/machine-id cannot be read (%s); run "
                                 "systemd-machine-id-setup, or set NodeId=",
                                 strerror(-r));
                        return -EINVAL;
                }
        }
        if (!node_name_is_valid(o->node_name)) {
                snprintf(
                        err->text, sizeof(err->text),
                        "NodeName= must be letters, digits and . _ - : (at most 255), not '%s'",
                        o->node_name);
                return -EINVAL;
        }
        if (strlen(o->node_id) != 32 || strspn(o->node_id, "0123456789abcdef") != 32) {
                snprintf(err->text, sizeof(err->text),
                         "NodeId= must be 32 lowercase hex digits, not '%s'", o->node_id);
                return -EINVAL;
        }
        if (!node_name_is_valid(o->cluster)) {
                snprintf(err->text, sizeof(err->text),
                         "Cluster= must be letters, digits and . _ - :, not '%s'", o->cluster);
                return -EINVAL;
        }
        if (client_check_endpoints(o->endpoints, text, sizeof(text)) < 0) {
                snprintf(err->text, sizeof(err->text), "Endpoints=: %s", text);
                return -EINVAL;
        }
        for (const char *at = o->addresses; list_next(&at, text, sizeof(text));)
                if (!link_choice_is_valid(text)) {
                        snprintf(err->text, sizeof(err->text),
                                 "Addresses= must be core, interface:NAME, a subnet such as "
                                 "10.0.0.0/8, or an address, not '%.200s'",
                                 text);
                        return -EINVAL;
                }
        if (tags_set_list(tags, o->tags) < 0) {
                snprintf(err->text, sizeof(err->text),
                         "Tags= must be name=value in UTF-8, at most 511 bytes in all, not "
                         "'%s'",
                         utf8_shown(o->tags, strlen(o->tags), text, 200));
                return -EINVAL;
        }
        if (!o->user != !o->password_file) {
                snprintf(err->text, sizeof(err->text),
                         "User= and PasswordFile= go together: %s= is missing",
                         o->user ? "PasswordFile" : "User");
                return -EINVAL;
        }
        if (*o->held_target && !is_target(o->held_target)) {
                snprintf(err->text, sizeof(err->text),
                         "HeldTarget= must be a target such as tenure-held.target, or empty, "
                         "not '%.200s'",
                         o->held_target);
                return -EINVAL;
        }
        return 0;
}

struct fencing_config options_fencing(const struct options *o)
{
        return (struct fencing_config){.lead = o->fence_lead,
                                       .reboot = o->fence_action == FENCE_REBOOT};
}
