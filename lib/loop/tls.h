/*
 * TLS 1.2 and 1.3 by OpenSSL: certificates, trust and who must show one.
 *
 * One is shared by the streams that are made with it and outlives them. Errors name the file
 * and OpenSSL's reason.
 */
#pragma once

#include "base/base.h"

struct tls;

struct tls_files {
        const char *cert;    /* PEM chain; NULL: none */
        const char *key;     /* PEM; NULL: none */
        const char *ca;      /* PEM bundle; NULL: the system's */
        bool verify_clients; /* server: refuse a client without a certificate that `ca` signed
                              */
        bool any_name;       /* client: whose certificate it is, is for the caller to look at */
        bool http2;          /* ALPN "h2" */
};

struct tls_error {
        char text[512];
};

/* Returns 0, -EINVAL with the reason in *@err, or -ENOMEM. */
must_check_ int tls_new_server(struct tls **ret, const struct tls_files *f,
                               struct tls_error *err);
must_check_ int tls_new_client(struct tls **ret, const struct tls_files *f,
                               struct tls_error *err);

/* Puts @fresh in the place of what @t was, for connections from now on; frees the rest. */
void tls_replace(struct tls *t, struct tls *fresh);

/* Whether the name in a server's certificate is left to the caller. */
bool tls_any_name(const struct tls *t);

/* When our own certificate ends, in seconds of the wall clock; for people. False: there is
 * none.
 */
bool tls_ends(const struct tls *t, int64_t *ret_s);

/* For a log: "ends on 2026-12-01, in 9 days" when that is within @within_days of @now_s, "has
 * ended on ..."; "" for a certificate that is good for longer, or none. */
const char *tls_end_text(const struct tls *t, int64_t now_s, int within_days,
                         char out[static 64]);

/* A connection's own, of the OpenSSL context that is in force (SSL_new(3)); NULL: no memory. */
struct ssl_st *tls_connection(const struct tls *t);

/* Whether the other side asked for another handshake: then nothing more is read from it. */
bool tls_renegotiates(const struct ssl_st *ssl);

/* Accepts NULL; returns NULL. */
struct tls *tls_free(struct tls *t);
DEFINE_CLEANUP(struct tls *, tls_free)
