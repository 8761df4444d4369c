#include "certificates.h"

#include "base/log.h"
#include "bus/messages.h"

/* The hosts of URLs, joined by commas; a socket's host is "localhost". Returns NULL if out of
 * memory; the caller frees the result. */
static char *hosts_of(const char *urls)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct url u;
        char url[320];
        size_t len;

        while (list_next(&urls, url, sizeof(url)))
                if (url_parse(url, &u) == 0)
                        buf_printf(&b, "%s%s", buf_len(&b) > 0 ? "," : "",
                                   u.local ? "localhost" : u.host);
        buf_add_u8(&b, 0);
        return buf_error(&b) < 0 ? NULL : (char *) buf_take(&b, &len);
}

static int read_clients(struct certificates *c, const struct options *o, struct tls_error *err)
{
        cleanup_(freep) char *hosts =
                clients_get_made_certificate(o) ? hosts_of(o->advertise_client_urls) : NULL;
        struct tls_files f = {
                .cert = o->cert_file,
                .key = o->key_file,
                .ca = o->trusted_ca_file,
                .crl = o->client_crl_file,
                .names = o->client_cert_allowed_cn,
                .hosts = *o->client_cert_allowed_hostname ? o->client_cert_allowed_hostname
                                                          : NULL,
                .suites = o->cipher_suites,
                .oldest = (enum tls_version) o->tls_min,
                .newest = (enum tls_version) o->tls_max,
                .made_for = hosts,
                .made_for_years = (unsigned) o->auto_years,
                .verify_clients = o->client_cert_auth || o->trusted_ca_file,
                .http2 = true,
        };

        if (clients_get_made_certificate(o) && !hosts)
                return -ENOMEM;
        if (!hosts && (!o->cert_file || !o->key_file))
                return 0;
        return tls_new_server(&c->clients, &f, err);
}

static int read_peers(struct certificates *c, const struct options *o, struct tls_error *err)
{
        bool made = peers_make_certificates(o);
        cleanup_(freep) char *hosts = made ? hosts_of(o->listen_peer_urls) : NULL;
        /* admission.h decides, on both ends, whose certificate is accepted. */
        struct tls_files f = {
                .cert = o->peer_cert_file,
                .key = o->peer_key_file,
                .ca = o->peer_trusted_ca_file,
                .crl = o->peer_crl_file,
                .suites = o->cipher_suites,
                .oldest = (enum tls_version) o->tls_min,
                .newest = (enum tls_version) o->tls_max,
                .made_for = hosts,
                .made_for_years = (unsigned) o->auto_years,
                .verify_clients = !made,
                .anybody = made,
                .any_name = true,
        };
        int r;

        if (made && !hosts)
                return -ENOMEM;
        if (!made && (!o->peer_cert_file || !o->peer_key_file))
                return 0;
        r = tls_new_server(&c->peers_in, &f, err);
        return r < 0 ? r : tls_new_client(&c->peers_out, &f, err);
}

int certificates_read(struct certificates *c, const struct options *o)
{
        struct tls_error err = {""};
        int r = read_clients(c, o, &err);

        if (r == 0)
                r = read_peers(c, o, &err);
        if (r < 0)
                log_error("%s.", r == -ENOMEM ? "Out of memory" : err.text);
        return r;
}

struct admission certificates_admission(const struct options *o)
{
        return (struct admission){
                .cn = o->peer_cert_allowed_cn,
                .host = *o->peer_cert_allowed_hostname ? o->peer_cert_allowed_hostname : NULL,
                .anybody = peers_make_certificates(o),
                .plaintext = o->allow_plaintext_peers};
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
                 "The certificate of %s %s: renew it and reload; without it %s.", option, text,
                 what);
}

static void on_clients_end(struct cert_end *e unused_, const char *text)
{
        tell("--cert-file", text, "clients will refuse to talk to this member");
}

static void on_peers_end(struct cert_end *e unused_, const char *text)
{
        tell("--peer-cert-file", text, "the other members will refuse to talk to this one");
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
