/*
 * TLS 1.2 and 1.3 by OpenSSL: certificates, trust and who must show one.
 *
 * A context is shared by every stream made with it and may be freed once they have it. Errors
 * name the file and OpenSSL's reason.
 */
#pragma once

#include <openssl/ssl.h>

#include "base/base.h"

struct tls_files {
        const char *cert;    /* PEM chain; NULL: none */
        const char *key;     /* PEM; NULL: none */
        const char *ca;      /* PEM bundle; NULL: the system's */
        bool verify_clients; /* server: refuse a client without a certificate that `ca` signed
                              */
        bool http2;          /* ALPN "h2" */
};

struct tls_error {
        char text[512];
};

/* Returns 0, -EINVAL with the reason in *@err, or -ENOMEM. */
must_check_ int tls_new_server(SSL_CTX **ret, const struct tls_files *f, struct tls_error *err);
must_check_ int tls_new_client(SSL_CTX **ret, const struct tls_files *f, struct tls_error *err);

/* Accepts NULL; returns NULL. */
SSL_CTX *tls_free(SSL_CTX *ctx);
DEFINE_CLEANUP(SSL_CTX *, tls_free)
