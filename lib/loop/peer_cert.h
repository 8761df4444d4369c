/* The certificate of a TLS connection's other side. */
#pragma once

#include "base/base.h"

struct ssl_st;
struct tls;

/* Client, before the handshake: the certificate must be for @name, a host or an address, unless
 * @tls leaves that to its caller. False: @name is unusable. */
bool peer_cert_expect(struct ssl_st *ssl, const struct tls *tls, const char *name);

/* OpenSSL resumes a session without checking the certificate that it was made with: whether
 * that has expired since. Such a session must end. */
bool peer_cert_resumed_too_late(const struct ssl_st *ssl);

/* For those below @ssl may be NULL, a plaintext connection: it has no certificate, and neither
 * has one whose certificate was not verified. */

/* Whether it is for @host, a name or an address, by its subjectAltName (RFC 6125, 6.4). */
bool peer_cert_is(const struct ssl_st *ssl, const char *host);

/* Whether it is also valid for a server, if it says what it is valid for (extended key usage,
 * RFC 5280, 4.2.1.12). */
bool peer_cert_serves(const struct ssl_st *ssl);

/* Its subject, for an operator; "" without one. Returns @out. */
const char *peer_cert_subject(const struct ssl_st *ssl, char *out, size_t size);

/* Its common name (RFC 5280, A.1), allocated; NULL: none, a forged one, or no memory. */
char *peer_cert_name(const struct ssl_st *ssl);
