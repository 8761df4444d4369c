/*
 * TLS 1.2 and 1.3 by OpenSSL: certificates, trust, and whether the other side must show a
 * certificate.
 *
 * One is shared by the streams that are made with it and outlives them. Errors name the file
 * and OpenSSL's reason.
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
        bool any_name;       /* client: whose certificate it is, is for the caller to look at */
        bool http2;          /* ALPN "h2" */
        const char *crl; /* PEM or DER; NULL: none. Then there must be one of whoever signed the
                            other side's certificate; one that is out of date counts, too */
        const char *names;  /* joined by commas: common names of which the other side's
                               certificate has one; NULL: any */
        const char *hosts;  /* the same of what it is issued for */
        const char *suites; /* cipher suites, by their names in RFCs, joined by commas; NULL: as
                               OpenSSL has them */
        enum tls_version oldest, newest;
        const char *made_for;    /* no cert: one that is made now, and signed by itself, for
                                    these hosts, joined by commas; NULL: none */
        unsigned made_for_years; /* how long that is good */
        bool anybody;            /* client: whoever it is that answers */
};

struct tls_error {
        char text[512];
};

/* Whether there is a cipher suite of that name, and it may be used. */
bool tls_has_suite(const char *name);

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

/* For a log: "expires on 2026-12-01, in 9 days" when that is within @within_days of @now_s,
 * "expired on ..."; "" for a certificate that is good for longer, or none. */
const char *tls_end_text(const struct tls *t, int64_t now_s, int within_days,
                         char out[static 64]);

/* A connection's own, of the OpenSSL context that is in force (SSL_new(3)); NULL: no memory. */
struct ssl_st *tls_connection(const struct tls *t);

/* The beginning of what a client says first: the head of a record, and of its ClientHello. */
#define TLS_HELLO_HEAD 9
/* Whether it is one of a size that a client may have: OpenSSL makes room for 128 KiB as soon as
 * one says that so much follows. What is no TLS is left for OpenSSL to name. */
bool tls_hello_fits(const uint8_t head[static TLS_HELLO_HEAD]);
/* Whether its @n bytes are rather those of HTTP without TLS: the name of a method. */
bool tls_is_http(const uint8_t *head, size_t n);

/* What OpenSSL says of its last failure, for a person; takes its errors. */
const char *tls_reason(void);
/* The same of a handshake: what is wrong with the other side's certificate, where that is it.
 */
const char *tls_why(const struct ssl_st *ssl);

/* Whether the other side asked for another handshake: then nothing more is read from it. */
bool tls_renegotiates(const struct ssl_st *ssl);

/* Accepts NULL; returns NULL. */
struct tls *tls_free(struct tls *t);
DEFINE_CLEANUP(struct tls *, tls_free)
