#include "settings.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "bus/notify.h"

void settings_steady(struct agent *a)
{
        a->steady.damping_cfg = (struct damping_config){(unsigned) a->opt.flap_limit,
                                                        a->opt.flap_window, a->opt.flap_rest};
        a->steady.brake_cfg = (struct brake_config){(unsigned) a->opt.mass_failure_percent,
                                                    a->opt.mass_failure_window};
}

static int usage(FILE *f)
{
        fprintf(f, "tenured [OPTIONS...]\n\n"
                   "Holds this host's place in the cluster and tells on D-Bus who else is "
                   "there.\n\n"
                   "  -c, --config=FILE              settings [/etc/tenure/tenured.conf, if it "
                   "is there]\n"
                   "  -t, --test                     check the settings, print them, and exit\n"
                   "      --guard                    stop what is bound to the place in time "
                   "when the agent "
                   "cannot; for tenure-guard.service\n"
                   "      --rebooter                 reboot this host when told to; for "
                   "tenure-reboot.service\n"
                   "  -h, --help                     this text; --help=conf: the manual page "
                   "of the "
                   "settings, tenured.conf(5)\n"
                   "      --version\n\n");
        conf_help(options_table, n_options, f);
        fprintf(f, "\nSee tenured(8).\n");
        return f == stdout ? 0 : 1;
}

/* The file, then the command line over it. Returns 0, or a negative errno with *@err. */
int settings_parse(struct options *o, int argc, char **argv, bool *ret_test,
                   struct conf_error *err)
{
        const char *file = NULL;
        int i, r;

        for (i = 1; i < argc; i++) {
                if (strncmp(argv[i], "--config=", 9) == 0)
                        file = argv[i] + 9;
                else if ((strcmp(argv[i], "--config") == 0 || strcmp(argv[i], "-c") == 0) &&
                         i + 1 < argc)
                        file = argv[++i];
        }
        r = conf_defaults(options_table, n_options, o);
        if (r == 0) {
                r = options_read(o, file, err);
        }
        for (i = 1; r == 0 && i < argc;) {
                int at = i;

                r = conf_read_args(options_table, n_options, o, argc, argv, &i, err);
                if (r < 0 || i == argc || i != at)
                        continue;
                if (strcmp(argv[i], "--help=conf") == 0) {
                        conf_man(options_table, n_options, "tenured", DEFAULT_CONFIG, stdout);
                        exit(0);
                } else if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
                        exit(usage(stdout));
                } else if (strcmp(argv[i], "--version") == 0) {
                        puts("tenured " TENURE_VERSION);
                        exit(0);
                } else if (strcmp(argv[i], "-t") == 0 || strcmp(argv[i], "--test") == 0) {
                        *ret_test = true;
                } else if ((strcmp(argv[i], "--config") == 0 || strcmp(argv[i], "-c") == 0) &&
                           i + 1 < argc) {
                        i++;
                } else if (strncmp(argv[i], "--config=", 9) != 0) {
                        snprintf(err->text, sizeof(err->text),
                                 "unknown option '%s'; see tenured --help", argv[i]);
                        r = -EINVAL;
                }
                i++;
        }
        if (r == 0) {
                err->text[0] = '\0';
                r = options_resolve(o, err);
        }
        if (r < 0 && !*err->text)
                snprintf(err->text, sizeof(err->text), "%s", strerror(-r));
        return r;
}

/* Nothing where no endpoint wants it. */
int settings_tls(const struct options *o, struct tls **ret)
{
        struct tls_error err;
        int r;

        if (!strstr(o->endpoints, "https://") && !strstr(o->endpoints, "srvs://"))
                return 0;
        r = tls_new_client(ret,
                           &(struct tls_files){
                                   .cert = o->cert_file,
                                   .key = o->key_file,
                                   .ca = o->trusted_ca_file,
                                   .http2 = true,
                           },
                           &err);
        if (r < 0)
                log_error("%s.", r == -ENOMEM ? "Out of memory" : err.text);
        return r;
}

/* ---- settings, read once more ---- */

void settings_reload(struct agent *a)
{
        cleanup_(tls_freep) struct tls *tls = NULL;
        struct conf_error err = {""};
        struct options fresh = {0};
        bool test = false;

        notify_reloading();
        if (settings_parse(&fresh, a->argc, a->argv, &test, &err) < 0) {
                log_error("%s. The settings stay what they were.", err.text);
        } else if (settings_tls(&fresh, &tls) < 0) {
                log_error("The settings stay what they were.");
        } else {
                for (size_t i = 0; i < n_options; i++) {
                        const struct conf_option *o = &options_table[i];

                        if (!conf_differs(o, &a->opt, &fresh))
                                continue;
                        if (o->live) /* all else takes a restart, which keeps the place */
                                conf_swap(o, &a->opt, &fresh);
                        log_notice("%s= has changed%s.", o->key,
                                   names_when(o->key) ? names_when(o->key)
                                   : !o->live ? "; that takes a restart, which keeps the place"
                                   : strcmp(o->key, "TTL") == 0 ? "; from the next lease on"
                                                                : "");
                }
                /* Under the same names there may be others in the files. */
                if (a->tls && tls) {
                        tls_replace(a->tls, take_ptr(tls));
                        log_info("The certificates have been read again.");
                        cert_end_run(&a->certificate);
                }
                publish_reload(a);
                settings_steady(a);
                log_set_level(log_level_from_string(a->opt.log_level));
                client_set_ttl(a->client, a->opt.ttl);
                watchdog_set(a);
                held_set(a);
        }
        conf_clear(options_table, n_options, &fresh);
        /* READY=1 ends the reload; before the first one nothing is ready. */
        if (a->ready)
                notify_ready();
}
