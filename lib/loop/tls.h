/*
 * TLS 1.2 and 1.3 by OpenSSL: certificates, trust, and whether the other side must show a
 * certificate.
 *
 * A struct tls is shared by the streams that are made with it, and must outlive them. Errors
 * name the file and OpenSSL's reason.
 */
#pragma once

#include "base/base.h"

struct tls;

enum tls_version { TLS_ANY, TLS_1_2, TLS_1_3 };

struct tls_files {
        const char *cert;    /* PEM chain; NULL: none */
        const char *key;     /* PEM; NULL: none */
        const char *ca;      /* PEM bundle; NULL: the system's */
        bool verify_clients; /* server: refuse a client without a certificate that `ca` signed
                              */
        bool any_name;       /* client: the caller checks whose certificate it is */
        bool http2;          /* ALPN "h2" */
        const char *crl;   /* PEM or DER; NULL: none. If set, it must have a list of the CA that
                              signed the other side's certificate; a list that is out of date
                              counts, too */
        const char *names; /* allowed common names of the other side, joined by commas; NULL:
                            * any */
        const char *hosts; /* allowed hosts, in the same way: the certificate must be for one of
                            * them */
        const char *suites; /* cipher suites, by their names in RFCs, joined by commas; NULL:
                             * OpenSSL's defaults */
        enum tls_version oldest, newest;
        const char *made_for; /* without `cert`: make a self-signed certificate for these hosts,
                                 joined by commas; NULL: none */
        unsigned made_for_years; /* how long that is valid */
        bool anybody;            /* client: accept any certificate */
};

struct tls_error {
        char text[512];
};

/* Whether a cipher suite of that name exists and may be used. */
bool tls_has_suite(const char *name);

/* Returns 0, -EINVAL with the reason in *@err, or -ENOMEM. */
must_check_ int tls_new_server(struct tls **ret, const struct tls_files *f,
                               struct tls_error *err);
must_check_ int tls_new_client(struct tls **ret, const struct tls_files *f,
                               struct tls_error *err);

/* Replaces the content of @t by @fresh, for new connections; frees the old content. */
void tls_replace(struct tls *t, struct tls *fresh);

/* Whether the caller has to check the name in a server's certificate. */
bool tls_any_name(const struct tls *t);

/* When our own certificate expires, in seconds of the wall clock; for operators. False: there
 * is none. */
bool tls_ends(const struct tls *t, int64_t *ret_s);

/* For a log: "expires on 2026-12-01, in 9 days" if that is within @within_days of @now_s, or
 * "expired on ..."; "" for a certificate that is valid for longer, or none. */
const char *tls_end_text(const struct tls *t, int64_t now_s, int within_days,
                         char out[static 64]);

/* Makes the SSL object of a connection, in the present SSL_CTX (SSL_new(3)); NULL: no
 * memory. */
struct ssl_st *tls_connection(const struct tls *t);

/* How many of a client's first bytes are needed: the headers of a record and of its
 * ClientHello. */
#define TLS_HELLO_HEAD 9
/* Whether the ClientHello has an acceptable size: OpenSSL allocates 128 KiB as soon as one
 * announces as much. Bytes that are not TLS are left for OpenSSL to report. */
bool tls_hello_fits(const uint8_t head[static TLS_HELLO_HEAD]);
/* Whether the @n bytes look like HTTP without TLS: they begin with the name of a method. */
bool tls_is_http(const uint8_t *head, size_t n);

/* The reason of OpenSSL's last failure, for an operator; clears its error queue. */
const char *tls_reason(void);
/* The reason why a handshake failed; if that is the other side's certificate, what is wrong
 * with it. */
const char *tls_why(const struct ssl_st *ssl);
/* Why a read or write has failed with @r, a SSL_ERROR_*, and errno @e. */
const char *tls_failure(int r, int e);
/* Like tls_failure(), for a write. In TLS 1.3 a server refuses a certificate, or that there is
 * none, after the client's handshake has ended. The alert that says so is read even if the
 * write finds first that the connection is closed. */
const char *tls_last_word(struct ssl_st *ssl, int r, int e);

/* Whether the other side asked for another handshake: then nothing more is read from it. */
bool tls_renegotiates(const struct ssl_st *ssl);

/* Accepts NULL; returns NULL. */
struct tls *tls_free(struct tls *t);
DEFINE_CLEANUP(struct tls *, tls_free)
