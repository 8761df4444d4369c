#include "loop/tls.h"

#include <openssl/err.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "base/conf.h"
#include "base/secret.h"

#define HELLO_MAX (16 * 1024)  /* a client's hello: the size of a record */
#define CERTS_MAX (32 * 1024L) /* the other side's chain; OpenSSL's own limit is 100 KiB */

struct tls {
        SSL_CTX *ctx;
        bool any_name;
};

/* The first error is the cause; later ones only show which parts of OpenSSL it passed
 * through. */
static int fail(struct tls_error *err, const char *what, const char *file)
{
        unsigned long e = ERR_peek_error();
        const char *why =
                ERR_SYSTEM_ERROR(e) ? strerror(ERR_GET_REASON(e)) : ERR_reason_error_string(e);

        snprintf(err->text, sizeof(err->text), "%s '%s': %s", what, file ? file : "",
                 why ? why : "OpenSSL gives no reason");
        ERR_clear_error();
        return -EINVAL;
}

/* Prefers HTTP/1.1: a client that offers it as well is a browser or curl, for which HTTP/2 that
 * carries only gRPC is useless. gRPC clients offer only HTTP/2. */
static int choose_http(SSL *ssl unused_, const unsigned char **out, unsigned char *out_len,
                       const unsigned char *in, unsigned int in_len, void *arg unused_)
{
        if (SSL_select_next_proto((unsigned char **) (uintptr_t) out, out_len,
                                  (const unsigned char *) "\x08http/1.1\x02h2\x08http/1.0", 21,
                                  in, in_len) == OPENSSL_NPN_NEGOTIATED)
                return SSL_TLSEXT_ERR_OK;
        return SSL_TLSEXT_ERR_ALERT_FATAL;
}

/* For each renegotiation record (TLS 1.2) OpenSSL sends an alert, which costs us more than the
 * record costs the client, and keeps reading within one SSL_read() for as long as they come. So
 * we stop reading from such a client. TLS 1.3 has no renegotiation, and its records all look
 * alike. */
static void on_record(int written, int version unused_, int type, const void *p, size_t n,
                      SSL *ssl, void *arg unused_)
{
        BIO *nothing;

        if (written || type != SSL3_RT_HEADER || n == 0 ||
            *(const uint8_t *) p != SSL3_RT_HANDSHAKE || !SSL_is_init_finished(ssl) ||
            SSL_version(ssl) >= TLS1_3_VERSION)
                return;
        nothing = BIO_new(BIO_s_null());
        if (nothing)
                SSL_set0_rbio(ssl, nothing);
}

bool tls_hello_fits(const uint8_t head[static TLS_HELLO_HEAD])
{
        size_t record = (size_t) head[3] << 8 | head[4],
               hello = (size_t) head[6] << 16 | (size_t) head[7] << 8 | head[8];

        if (head[0] != SSL3_RT_HANDSHAKE)
                return true;
        /* A header that is split into pieces is an attack. */
        return record >= SSL3_HM_HEADER_LENGTH && hello <= HELLO_MAX;
}

bool tls_is_http(const uint8_t *head, size_t n)
{
        for (size_t i = 0; i < 3; i++)
                if (i == n || head[i] < 'A' || head[i] > 'Z')
                        return false;
        return true;
}

const char *tls_reason(void)
{
        unsigned long e = ERR_peek_last_error();
        const char *why = e ? ERR_reason_error_string(e) : NULL;

        ERR_clear_error();
        return why ? why : "TLS error";
}

const char *tls_failure(int r, int e)
{
        if (r == SSL_ERROR_ZERO_RETURN || (r == SSL_ERROR_SYSCALL && e == 0))
                return "closed by the other side";
        return r == SSL_ERROR_SYSCALL ? strerror(e) : tls_reason();
}

const char *tls_last_word(struct ssl_st *ssl, int r, int e)
{
        char byte;
        int n;

        if (r != SSL_ERROR_SYSCALL)
                return tls_failure(r, e);
        ERR_clear_error();
        n = SSL_read(ssl, &byte, 1);
        return n <= 0 && SSL_get_error(ssl, n) == SSL_ERROR_SSL ? tls_reason()
                                                                : tls_failure(r, e);
}

const char *tls_why(const struct ssl_st *ssl)
{
        bool is_certificate =
                ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_CERTIFICATE_VERIFY_FAILED;
        const char *why = tls_reason();
        long verified = SSL_get_verify_result(ssl);

        if (!is_certificate)
                return why;
        if (verified == X509_V_ERR_UNABLE_TO_GET_CRL)
                return "there is no revocation list of the CA that signed its certificate";
        if (verified == X509_V_ERR_APPLICATION_VERIFICATION)
                return "its certificate has none of the names, or hosts, that are allowed";
        return X509_verify_cert_error_string(verified);
}

bool tls_renegotiates(const struct ssl_st *ssl)
{
        return BIO_method_type(SSL_get_rbio(ssl)) == BIO_TYPE_NULL;
}

/* ---- checking the other side's certificate ---- */

/* Belongs to the SSL_CTX, which old connections keep after tls_replace(). */
struct rules {
        char *names, *hosts; /* NULL: any */
};

static void rules_free(void *parent unused_, void *ptr, CRYPTO_EX_DATA *ad unused_,
                       int i unused_, long argl unused_, void *argp unused_)
{
        struct rules *r = ptr;

        if (!r)
                return;
        free(r->names);
        free(r->hosts);
        free(r);
}

static int rules_at;

static void find_place(void)
{
        rules_at = SSL_CTX_get_ex_new_index(0, NULL, NULL, NULL, rules_free);
}

/* One index for the process, which may have several threads (libtenure). */
static int rules_index(void)
{
        static pthread_once_t once = PTHREAD_ONCE_INIT;

        pthread_once(&once, find_place);
        return rules_at;
}

static bool has_name(X509 *cert, const char *names)
{
        char name[256], own[256];
        int n = X509_NAME_get_text_by_NID(X509_get_subject_name(cert), NID_commonName, own,
                                          sizeof(own));

        /* A name that contains a zero byte is forged. */
        while (n > 0 && (size_t) n == strlen(own) && list_next(&names, name, sizeof(name)))
                if (strcmp(name, own) == 0)
                        return true;
        return false;
}

static bool has_host(X509 *cert, const char *hosts)
{
        char host[256];

        while (list_next(&hosts, host, sizeof(host)))
                if (X509_check_ip_asc(cert, host, 0) == 1 ||
                    X509_check_host(cert, host, strlen(host),
                                    X509_CHECK_FLAG_NEVER_CHECK_SUBJECT, NULL) == 1)
                        return true;
        return false;
}

/* Called for each certificate of the chain; the other side's own comes last. */
static int on_verify(int ok, X509_STORE_CTX *x)
{
        const SSL *ssl = X509_STORE_CTX_get_ex_data(x, SSL_get_ex_data_X509_STORE_CTX_idx());
        const struct rules *r = SSL_CTX_get_ex_data(SSL_get_SSL_CTX(ssl), rules_index());
        int depth = X509_STORE_CTX_get_error_depth(x), why = X509_STORE_CTX_get_error(x);
        X509 *cert = X509_STORE_CTX_get_current_cert(x);

        if (!ok) {
                /* A list that is out of date still revokes those that it names, and nobody
                 * else. The same for a list whose date is ahead of our clock. */
                if (why != X509_V_ERR_CRL_HAS_EXPIRED && why != X509_V_ERR_CRL_NOT_YET_VALID &&
                    (why != X509_V_ERR_UNABLE_TO_GET_CRL || depth == 0))
                        return 0;
                X509_STORE_CTX_set_error(x, X509_V_OK);
                return 1;
        }
        if (depth > 0 || !r ||
            ((!r->names || has_name(cert, r->names)) &&
             (!r->hosts || has_host(cert, r->hosts))))
                return 1;
        X509_STORE_CTX_set_error(x, X509_V_ERR_APPLICATION_VERIFICATION);
        return 0;
}

static int set_rules(SSL_CTX *ctx, const struct tls_files *f)
{
        struct rules *r;

        if (!f->names && !f->hosts)
                return 0;
        r = calloc(1, sizeof(*r));
        if (!r || SSL_CTX_set_ex_data(ctx, rules_index(), r) != 1) {
                free(r);
                return -ENOMEM;
        }
        r->names = f->names ? strdup(f->names) : NULL;
        r->hosts = f->hosts ? strdup(f->hosts) : NULL;
        return (f->names && !r->names) || (f->hosts && !r->hosts) ? -ENOMEM : 0;
}

static int load_crl(SSL_CTX *ctx, const char *file, struct tls_error *err)
{
        X509_STORE *store = SSL_CTX_get_cert_store(ctx);
        X509_LOOKUP *files = X509_STORE_add_lookup(store, X509_LOOKUP_file());
        char at[SECRET_PATH_MAX];

        if (!files)
                return -ENOMEM;
        if (X509_load_crl_file(files, secret_path(file, at), X509_FILETYPE_PEM) < 1 &&
            X509_load_crl_file(files, secret_path(file, at), X509_FILETYPE_ASN1) < 1)
                return fail(err, "cannot use the certificate revocation list", file);
        ERR_clear_error();
        X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK | X509_V_FLAG_CRL_CHECK_ALL);
        return 0;
}

/* ---- versions and cipher suites ---- */

/* OpenSSL's name for the suite; NULL if it has none, or considers it unsafe. */
static const char *suite_name(const char *name, bool *ret_1_3)
{
        static const struct {
                const char *old, *name;
        } also[] = {
                {"TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
                 "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"},
                {"TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
                 "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"},
        };
        const char *own;

        for (size_t i = 0; i < ARRAY_SIZE(also); i++)
                if (strcmp(also[i].old, name) == 0)
                        name = also[i].name;
        own = OPENSSL_cipher_name(name);
        if (!own || strcmp(own, "(NONE)") == 0)
                return NULL;
        *ret_1_3 = strcmp(own, name) == 0; /* TLS 1.3 suites have the same name in OpenSSL and
                                            * in the RFC */
        return own;
}

bool tls_has_suite(const char *name)
{
        bool is_1_3, has;
        const char *own = suite_name(name, &is_1_3);
        SSL_CTX *ctx = own ? SSL_CTX_new(TLS_server_method()) : NULL;
        STACK_OF(SSL_CIPHER) * all;
        SSL *ssl = NULL;

        has = ctx && (is_1_3 ? SSL_CTX_set_ciphersuites(ctx, own)
                             : SSL_CTX_set_cipher_list(ctx, own)) == 1;
        /* Leaves out the suites that the security level forbids. */
        if (has)
                ssl = SSL_new(ctx);
        all = ssl ? SSL_get1_supported_ciphers(ssl) : NULL;
        has = false;
        for (int i = 0; all && i < sk_SSL_CIPHER_num(all); i++)
                has |= strcmp(SSL_CIPHER_get_name(sk_SSL_CIPHER_value(all, i)), own) == 0;
        sk_SSL_CIPHER_free(all);
        SSL_free(ssl);
        SSL_CTX_free(ctx);
        ERR_clear_error();
        return has;
}

/* OpenSSL keeps the suites of TLS 1.2 and of 1.3 in two lists. If no 1.3 suite is named, the
 * 1.3 list stays as it is, as in Go; if no other is named, TLS 1.2 is switched off. */
static int set_suites(SSL_CTX *ctx, const char *suites, struct tls_error *err)
{
        cleanup_(buf_fini) struct buf old = {0}, new = {0};
        const char *cursor = suites, *own;
        char name[80];
        bool is_1_3;

        while (list_next(&cursor, name, sizeof(name))) {
                struct buf *b;

                own = suite_name(name, &is_1_3);
                if (!own)
                        return fail(err, "there is no cipher suite", name);
                b = is_1_3 ? &new : &old;
                buf_printf(b, "%s%s", buf_len(b) > 0 ? ":" : "", own);
        }
        buf_add_u8(&old, 0);
        buf_add_u8(&new, 0);
        if (buf_error(&old) < 0 || buf_error(&new) < 0)
                return -ENOMEM;
        if (buf_len(&old) == 1)
                SSL_CTX_set_min_proto_version(ctx, TLS1_3_VERSION);
        else if (SSL_CTX_set_cipher_list(ctx, (const char *) buf_head(&old)) != 1)
                return fail(err, "cannot use the cipher suites", suites);
        if (buf_len(&new) > 1 &&
            SSL_CTX_set_ciphersuites(ctx, (const char *) buf_head(&new)) != 1)
                return fail(err, "cannot use the cipher suites", suites);
        /* Prefer them in the order in which they were named. */
        SSL_CTX_set_options(ctx, SSL_OP_CIPHER_SERVER_PREFERENCE);
        return 0;
}

/* ---- a certificate of our own ---- */

static bool add_extension(X509 *x, int nid, const char *value)
{
        X509V3_CTX v;
        X509_EXTENSION *e;
        bool ok;

        X509V3_set_ctx(&v, x, x, NULL, NULL, 0);
        e = X509V3_EXT_conf_nid(NULL, &v, nid, value);
        ok = e && X509_add_ext(x, e, -1) == 1;
        X509_EXTENSION_free(e);
        return ok;
}

static bool add_hosts(X509 *x, const char *hosts)
{
        cleanup_(buf_fini) struct buf b = {0};
        char host[256];

        while (list_next(&hosts, host, sizeof(host))) {
                ASN1_OCTET_STRING *ip = a2i_IPADDRESS(host);

                buf_printf(&b, "%s%s:%s", buf_len(&b) > 0 ? "," : "", ip ? "IP" : "DNS", host);
                ASN1_OCTET_STRING_free(ip);
        }
        buf_add_u8(&b, 0);
        return buf_error(&b) == 0 &&
               add_extension(x, NID_subject_alt_name, (const char *) buf_head(&b));
}

static bool fill(X509 *x, EVP_PKEY *key, const struct tls_files *f)
{
        X509_NAME *name = X509_get_subject_name(x);
        unsigned char serial[16];
        BIGNUM *n;
        bool ok;

        if (RAND_bytes(serial, sizeof(serial)) != 1)
                return false;
        serial[0] &= 0x7f;
        n = BN_bin2bn(serial, sizeof(serial), NULL);
        ok = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));
        BN_free(n);
        return ok && X509_set_version(x, X509_VERSION_3) == 1 &&
               X509_gmtime_adj(X509_getm_notBefore(x), -3600) && /* for clocks that are late */
               X509_time_adj_ex(X509_getm_notAfter(x), (int) f->made_for_years * 365, 0,
                                NULL) &&
               X509_NAME_add_entry_by_txt(name, "O", MBSTRING_ASC,
                                          (const unsigned char *) "tenure", -1, -1, 0) == 1 &&
               X509_set_issuer_name(x, name) == 1 && X509_set_pubkey(x, key) == 1 &&
               add_extension(x, NID_basic_constraints, "critical,CA:TRUE") &&
               add_extension(x, NID_key_usage, "critical,digitalSignature,keyCertSign") &&
               add_extension(x, NID_ext_key_usage, "serverAuth,clientAuth") &&
               add_hosts(x, f->made_for) && X509_sign(x, key, EVP_sha256()) > 0;
}

static int make_certificate(SSL_CTX *ctx, const struct tls_files *f, struct tls_error *err)
{
        EVP_PKEY *key = EVP_EC_gen("P-256");
        X509 *x = X509_new();
        int r = 0;

        if (!key || !x || !fill(x, key, f) || SSL_CTX_use_certificate(ctx, x) != 1 ||
            SSL_CTX_use_PrivateKey(ctx, key) != 1)
                r = fail(err, "cannot make a certificate for", f->made_for);
        X509_free(x);
        EVP_PKEY_free(key);
        return r;
}

static int load(SSL_CTX *ctx, const struct tls_files *f, struct tls_error *err)
{
        static const int versions[] = {
                [TLS_ANY] = 0, [TLS_1_2] = TLS1_2_VERSION, [TLS_1_3] = TLS1_3_VERSION};
        char at[SECRET_PATH_MAX];
        int r = 0;

        ERR_clear_error();
        SSL_CTX_set_min_proto_version(ctx, f->oldest ? versions[f->oldest] : TLS1_2_VERSION);
        SSL_CTX_set_max_proto_version(ctx, versions[f->newest]);
        SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
        /* Without this, one SSL_read() continues as long as records come that carry no data:
         * key updates (RFC 8446, 4.6.3) cost us more than the sender, so it would never end. */
        SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
        /* A peer that closes without close_notify is a closed connection, not a TLS error. */
        SSL_CTX_set_options(ctx, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_RENEGOTIATION);
        SSL_CTX_set_msg_callback(ctx, on_record);
        SSL_CTX_set_max_cert_list(ctx, CERTS_MAX);
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
        if (!f->cert && f->made_for)
                r = make_certificate(ctx, f, err);
        if (r == 0 && f->suites && *f->suites)
                r = set_suites(ctx, f->suites, err);
        if (r == 0 && f->crl)
                r = load_crl(ctx, f->crl, err);
        return r < 0 ? r : set_rules(ctx, f);
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
                SSL_CTX_set_alpn_select_cb((*ret)->ctx, choose_http, NULL);
        /* Without a context id, OpenSSL refuses a client with a certificate when it resumes its
         * session (SSL_CTX_set_session_id_context(3)). Sessions are protected by the SSL_CTX's
         * own ticket key and cache: the next tls_replace() ends them all, and with them the
         * trust in the former CAs. */
        if (SSL_CTX_set_session_id_context((*ret)->ctx, (const uint8_t *) "tenure", 6) != 1) {
                *ret = tls_free(*ret);
                return -ENOMEM;
        }
        if (f->verify_clients)
                SSL_CTX_set_verify((*ret)->ctx,
                                   SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                                   on_verify);
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
        SSL_CTX_set_verify(t->ctx, f->anybody ? SSL_VERIFY_NONE : SSL_VERIFY_PEER, on_verify);
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
        int days;

        out[0] = '\0';
        if (!tls_ends(t, &end) || end - now_s > (int64_t) within_days * 86400)
                return out;
        at = (time_t) end;
        gmtime_r(&at, &tm);
        strftime(date, sizeof(date), "%Y-%m-%d", &tm);
        days = (int) ((end - now_s) / 86400);
        if (end <= now_s)
                snprintf(out, 64, "expired on %s", date);
        else if (days == 0)
                snprintf(out, 64, "expires on %s, within a day", date);
        else
                snprintf(out, 64, "expires on %s, in %d day%s", date, days,
                         days == 1 ? "" : "s");
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
