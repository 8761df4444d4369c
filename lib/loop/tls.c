#include "loop/tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <stdio.h>
#include <time.h>

#include "base/secret.h"

struct tls {
        SSL_CTX *ctx;
        bool any_name;
};

static int fail(struct tls_error *err, const char *what, const char *file)
{
        char why[256];

        ERR_error_string_n(ERR_peek_last_error(), why, sizeof(why));
        ERR_clear_error();
        snprintf(err->text, sizeof(err->text), "%s '%s': %s", what, file ? file : "", why);
        return -EINVAL;
}

static int choose_h2(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                     const unsigned char *in, unsigned int in_len, void *arg)
{
        (void) ssl;
        (void) arg;
        if (SSL_select_next_proto((unsigned char **) (uintptr_t) out, out_len,
                                  (const unsigned char *) "\x02h2", 3, in,
                                  in_len) == OPENSSL_NPN_NEGOTIATED)
                return SSL_TLSEXT_ERR_OK;
        return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* OpenSSL refuses another handshake on a connection (TLS 1.2), record by record, each with an
 * alert that costs it more than the other side, and all in one SSL_read() while any come. So
 * who asks is no longer read from. In TLS 1.3 all records look alike, and there is none. */
static void on_record(int written, int version, int type, const void *p, size_t n, SSL *ssl,
                      void *arg)
{
        BIO *nothing;

        (void) version;
        (void) arg;
        if (written || type != SSL3_RT_HEADER || n == 0 ||
            *(const uint8_t *) p != SSL3_RT_HANDSHAKE || !SSL_is_init_finished(ssl) ||
            SSL_version(ssl) >= TLS1_3_VERSION)
                return;
        nothing = BIO_new(BIO_s_null());
        if (nothing)
                SSL_set0_rbio(ssl, nothing);
}

bool tls_renegotiates(const struct ssl_st *ssl)
{
        return BIO_method_type(SSL_get_rbio(ssl)) == BIO_TYPE_NULL;
}

static int load(SSL_CTX *ctx, const struct tls_files *f, struct tls_error *err)
{
        char at[SECRET_PATH_MAX];

        SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
        SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
        /* Else one SSL_read() goes on for as long as there comes what is none of our bytes: new
         * keys (RFC 8446, 4.6.3) cost it more than who sends them, so that it never ends. */
        SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
        /* A peer that closes without a goodbye is a closed connection, not a TLS error. */
        SSL_CTX_set_options(ctx, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
        SSL_CTX_set_msg_callback(ctx, on_record);
        if (f->cert && SSL_CTX_use_certificate_chain_file(ctx, secret_path(f->cert, at)) != 1)
                return fail(err, "cannot use the certificate", f->cert);
        if (f->key &&
            SSL_CTX_use_PrivateKey_file(ctx, secret_path(f->key, at), SSL_FILETYPE_PEM) != 1)
                return fail(err, "cannot use the key", f->key);
        if (f->cert && f->key && SSL_CTX_check_private_key(ctx) != 1)
                return fail(err, "the key does not belong to the certificate", f->cert);
        if (f->ca ? SSL_CTX_load_verify_locations(ctx, secret_path(f->ca, at), NULL) != 1
                  : SSL_CTX_set_default_verify_paths(ctx) != 1)
                return fail(err, "cannot use the trusted CA file", f->ca);
        return 0;
}

static int make(struct tls **ret, const SSL_METHOD *method, const struct tls_files *f,
                struct tls_error *err)
{
        cleanup_(tls_freep) struct tls *t = calloc(1, sizeof(*t));
        int r;

        if (!t)
                return -ENOMEM;
        t->ctx = SSL_CTX_new(method);
        if (!t->ctx)
                return -ENOMEM;
        r = load(t->ctx, f, err);
        if (r == 0)
                *ret = take_ptr(t);
        return r;
}

int tls_new_server(struct tls **ret, const struct tls_files *f, struct tls_error *err)
{
        int r = make(ret, TLS_server_method(), f, err);

        if (r < 0)
                return r;
        if (f->http2)
                SSL_CTX_set_alpn_select_cb((*ret)->ctx, choose_h2, NULL);
        /* A session that was made with a client's certificate is resumed only in its own
         * context (SSL_CTX_set_session_id_context(3)); without one such a client is refused
         * when it comes again. What guards a session is the context's own ticket key and cache:
         * the next tls_replace() ends them all, and with them what the CAs before trusted. */
        if (SSL_CTX_set_session_id_context((*ret)->ctx, (const uint8_t *) "tenure", 6) != 1) {
                *ret = tls_free(*ret);
                return -ENOMEM;
        }
        if (f->verify_clients)
                SSL_CTX_set_verify((*ret)->ctx,
                                   SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
        return 0;
}

int tls_new_client(struct tls **ret, const struct tls_files *f, struct tls_error *err)
{
        cleanup_(tls_freep) struct tls *t = NULL;
        int r = make(&t, TLS_client_method(), f, err);

        if (r < 0)
                return r;
        if (f->http2 &&
            SSL_CTX_set_alpn_protos(t->ctx, (const unsigned char *) "\x02h2", 3) != 0)
                return -ENOMEM;
        SSL_CTX_set_verify(t->ctx, SSL_VERIFY_PEER, NULL);
        t->any_name = f->any_name;
        *ret = take_ptr(t);
        return 0;
}

void tls_replace(struct tls *t, struct tls *fresh)
{
        SSL_CTX_free(t->ctx);
        t->ctx = take_ptr(fresh->ctx);
        t->any_name = fresh->any_name;
        tls_free(fresh);
}

bool tls_ends(const struct tls *t, int64_t *ret_s)
{
        X509 *x = t ? SSL_CTX_get0_certificate(t->ctx) : NULL;
        struct tm tm;

        if (!x || ASN1_TIME_to_tm(X509_get0_notAfter(x), &tm) != 1)
                return false;
        *ret_s = timegm(&tm);
        return true;
}

const char *tls_end_text(const struct tls *t, int64_t now_s, int within_days,
                         char out[static 64])
{
        char date[16];
        struct tm tm;
        int64_t end;
        time_t at;

        out[0] = '\0';
        if (!tls_ends(t, &end) || end - now_s > (int64_t) within_days * 86400)
                return out;
        at = (time_t) end;
        gmtime_r(&at, &tm);
        strftime(date, sizeof(date), "%Y-%m-%d", &tm);
        if (end <= now_s)
                snprintf(out, 64, "has ended on %s", date);
        else
                snprintf(out, 64, "ends on %s, in %d days", date,
                         (int) ((end - now_s) / 86400));
        return out;
}

bool tls_any_name(const struct tls *t)
{
        return t->any_name;
}

struct ssl_st *tls_connection(const struct tls *t)
{
        return SSL_new(t->ctx);
}

struct tls *tls_free(struct tls *t)
{
        if (!t)
                return NULL;
        SSL_CTX_free(t->ctx);
        free(t);
        return NULL;
}
