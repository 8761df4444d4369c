#include "settings.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "bus/notify.h"

void settings_steady(struct agent *a)
{
        a->stability.damping_cfg = (struct damping_config){
                (unsigned) a->opt.flap_limit, a->opt.flap_window, a->opt.flap_rest};
        a->stability.brake_cfg = (struct brake_config){(unsigned) a->opt.mass_failure_percent,
                                                       a->opt.mass_failure_window};
}

int settings_read(struct options *o, const struct arguments *args, struct conf_error *err)
{
        int r = conf_defaults(options_table, n_options, o);

        if (r == 0)
                r = options_read(o, args->file, err);
        if (r == 0)
                r = args_apply(&args->all, o, err);
        if (r == 0) {
                err->text[0] = '\0';
                r = options_resolve(o, err);
        }
        if (r < 0 && !*err->text)
                snprintf(err->text, sizeof(err->text), "%s", strerror(-r));
        return r;
}

/* Leaves *@ret NULL if no endpoint uses TLS. */
int settings_tls(const struct options *o, struct tls **ret)
{
        struct tls_error err;
        int r;

        if (!strstr(o->endpoints, "https://") && !strstr(o->endpoints, "srvs://") &&
            !strstr(o->endpoints, "unixs:"))
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

/* ---- reload ---- */

void settings_reload(struct agent *a)
{
        cleanup_(tls_freep) struct tls *tls = NULL;
        struct conf_error err = {""};
        struct options fresh = {0};

        notify_reloading();
        if (settings_read(&fresh, &a->args, &err) < 0) {
                log_error("%s. The settings in force remain unchanged.", err.text);
        } else if (settings_tls(&fresh, &tls) < 0) {
                log_error("The settings in force remain unchanged.");
        } else {
                for (size_t i = 0; i < n_options; i++) {
                        const struct conf_option *o = &options_table[i];

                        if (!conf_differs(o, &a->opt, &fresh))
                                continue;
                        if (o->live) /* other settings need a restart, which keeps the place */
                                conf_swap(o, &a->opt, &fresh);
                        log_notice("%s= has changed%s.", o->key,
                                   names_when(o->key) ? names_when(o->key)
                                   : !o->live ? "; this needs a restart, which keeps the place"
                                   : strcmp(o->key, "TTL") == 0 ? "; from the next lease on"
                                                                : "");
                }
                /* The content of the files may have changed. */
                if (a->tls && tls) {
                        tls_replace(a->tls, take_ptr(tls));
                        log_info("The certificates were reloaded.");
                        cert_end_run(&a->certificate);
                }
                publish_reload(a);
                settings_steady(a);
                stability_nodes(&a->stability, member_nodes(a->member)->n, boot_now());
                log_set_level(a->opt.log_level);
                member_set_ttl(a->member, a->opt.ttl);
                held_set(a);
        }
        conf_clear(options_table, n_options, &fresh);
        /* READY=1 ends the reload. Before the first READY=1, we are not ready. */
        if (a->ready)
                notify_ready();
}
