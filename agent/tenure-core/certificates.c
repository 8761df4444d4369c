#include "certificates.h"

#include "base/log.h"
#include "bus/messages.h"

int certificates_read(struct certificates *c, const struct options *o)
{
        struct tls_error err;
        int r = 0;

        if (o->cert_file && o->key_file)
                r = tls_new_server(
                        &c->clients,
                        &(struct tls_files){
                                .cert = o->cert_file,
                                .key = o->key_file,
                                .ca = o->trusted_ca_file,
                                .verify_clients = o->client_cert_auth || o->trusted_ca_file,
                                .http2 = true,
                        },
                        &err);
        if (r == 0 && o->peer_cert_file && o->peer_key_file) {
                /* Whose a certificate must be is for admission.h to say, on both ends. */
                struct tls_files f = {
                        .cert = o->peer_cert_file,
                        .key = o->peer_key_file,
                        .ca = o->peer_trusted_ca_file,
                        .verify_clients = true,
                        .any_name = true,
                };

                r = tls_new_server(&c->peers_in, &f, &err);
                if (r == 0)
                        r = tls_new_client(&c->peers_out, &f, &err);
        }
        if (r < 0)
                log_error("%s.", r == -ENOMEM ? "Out of memory" : err.text);
        return r;
}

void certificates_replace(struct certificates *c, struct certificates *fresh)
{
        if (fresh->clients)
                tls_replace(c->clients, take_ptr(fresh->clients));
        if (fresh->peers_in)
                tls_replace(c->peers_in, take_ptr(fresh->peers_in));
        if (fresh->peers_out)
                tls_replace(c->peers_out, take_ptr(fresh->peers_out));
        cert_end_run(&c->clients_end);
        cert_end_run(&c->peers_end);
}

static void tell(const char *option, const char *text, const char *what)
{
        const char *fields[] = {MESSAGE_CORE_CERTIFICATE, NULL};

        log_full(LOG_WARNING, fields,
                 "The certificate of %s %s: renew it, and reload; without it %s.", option, text,
                 what);
}

static void on_clients_end(struct cert_end *e unused_, const char *text)
{
        tell("--cert-file", text, "no client will talk to this member");
}

static void on_peers_end(struct cert_end *e unused_, const char *text)
{
        tell("--peer-cert-file", text, "no other member will");
}

void certificates_watch(struct certificates *c, struct loop *l)
{
        cert_end_start(&c->clients_end, l, c->clients, on_clients_end);
        cert_end_start(&c->peers_end, l, c->peers_in, on_peers_end);
}

void certificates_fini(struct certificates *c)
{
        tls_free(c->clients);
        tls_free(c->peers_in);
        tls_free(c->peers_out);
}
