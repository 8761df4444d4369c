#include "loop/peer_cert.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "base/utf8.h"
#include "loop/tls.h"

static bool is_address(const char *host)
{
        struct in6_addr any;

        return inet_pton(AF_INET, host, &any) == 1 || inet_pton(AF_INET6, host, &any) == 1;
}

bool peer_cert_expect(SSL *ssl, const struct tls *tls, const char *name)
{
        if (is_address(name))
                return tls_any_name(tls) ||
                       X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name);
        SSL_set_tlsext_host_name(ssl, name);
        return tls_any_name(tls) || SSL_set1_host(ssl, name);
}

bool peer_cert_resumed_too_late(const SSL *ssl)
{
        X509 *cert = SSL_session_reused(ssl) ? SSL_get0_peer_certificate(ssl) : NULL;

        return cert && X509_cmp_current_time(X509_get0_notAfter(cert)) <= 0;
}

static X509 *verified(const SSL *ssl)
{
        X509 *cert = ssl ? SSL_get0_peer_certificate(ssl) : NULL;

        return cert && SSL_get_verify_result(ssl) == X509_V_OK ? cert : NULL;
}

bool peer_cert_is(const SSL *ssl, const char *host)
{
        X509 *cert = verified(ssl);

        if (!cert)
                return false;
        if (is_address(host))
                return X509_check_ip_asc(cert, host, 0) == 1;
        return X509_check_host(cert, host, strlen(host), X509_CHECK_FLAG_NEVER_CHECK_SUBJECT,
                               NULL) == 1;
}

bool peer_cert_serves(const SSL *ssl)
{
        X509 *cert = verified(ssl);

        return cert && X509_check_purpose(cert, X509_PURPOSE_SSL_SERVER, 0) == 1;
}

const char *peer_cert_subject(const SSL *ssl, char *out, size_t size)
{
        X509 *cert = verified(ssl);
        BIO *b = cert ? BIO_new(BIO_s_mem()) : NULL;
        char *text;
        long n = 0;

        out[0] = '\0';
        if (b && X509_NAME_print_ex(b, X509_get_subject_name(cert), 0, XN_FLAG_RFC2253) >= 0)
                n = BIO_get_mem_data(b, &text);
        if (n > 0)
                utf8_shown(text, (size_t) n, out, size);
        BIO_free(b);
        return out;
}

char *peer_cert_name(const SSL *ssl)
{
        X509 *cert = verified(ssl);
        X509_NAME_ENTRY *e;
        unsigned char *utf8;
        char *name = NULL;
        int at, n;

        if (!cert)
                return NULL;
        at = X509_NAME_get_index_by_NID(X509_get_subject_name(cert), NID_commonName, -1);
        e = at < 0 ? NULL : X509_NAME_get_entry(X509_get_subject_name(cert), at);
        n = e ? ASN1_STRING_to_UTF8(&utf8, X509_NAME_ENTRY_get_data(e)) : -1;
        if (n < 0)
                return NULL;
        /* A name that contains a zero byte is forged. */
        if (n > 0 && !memchr(utf8, 0, (size_t) n))
                name = strndup((const char *) utf8, (size_t) n);
        OPENSSL_free(utf8);
        return name;
}
