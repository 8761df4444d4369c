/* tenured's settings: one table for tenured.conf, the command line, --help and -t. */
#pragma once

#include "base/args.h"
#include "base/conf.h"
#include "session/fencing.h"

struct options {
        char *endpoints, *cluster;
        char *node_name, *node_id;
        nsec_t ttl, ready_after;
        uint64_t drift_ppm;
        char *addresses, *tags, *services_path;
        uint64_t degraded_pressure, degraded_cpu_pressure;
        uint64_t flap_limit, mass_failure_percent;
        nsec_t flap_window, flap_rest, mass_failure_window;
        char *held_target;
        nsec_t fence_lead;
        int fence_action; /* enum fence_action */
        char *user, *password_file;
        char *cert_file, *key_file, *trusted_ca_file;
        int log_level; /* a priority of syslog(3) */
};

enum fence_action {
        FENCE_KILL,
        FENCE_REBOOT, /* kills as well */
};

#define DEFAULT_CONFIG "/etc/tenure/tenured.conf"

/* The command line. */
struct arguments {
        struct args all;
        const char *file;       /* NULL: the default file */
        const char *introspect; /* print this interface and exit; NULL: run */
        bool test, guard, rebooter;
};

extern const struct conf_option options_table[];
extern const size_t n_options;

/* See args_parse(); args_fini(&ret->all) frees it. */
must_check_ int arguments_parse(struct arguments *ret, int argc, char **argv,
                                struct conf_error *err);

/* Reads @file into @o, or the default file if it exists, and then the drop-ins of FILE.d; for
 * the default file also those of /run/tenure and /usr/lib/tenure. Returns 0 or a negative errno
 * with *@err. */
must_check_ int options_read(struct options *o, const char *file, struct conf_error *err);

/* Fills in from the host what was left out, and checks the settings. Returns 0, -EINVAL with
 * *@err, or -ENOMEM. */
must_check_ int options_resolve(struct options *o, struct conf_error *err);

struct fencing_config options_fencing(const struct options *o);
