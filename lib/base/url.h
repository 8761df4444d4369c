/* URLs as people write them: http://10.0.0.1:2379, https://core1.example.org:2379, [::1]:2379,
 * host:port, unix:///run/core.sock. Pure; resolves nothing. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/base.h"

struct url {
        bool tls;       /* https://, unixs:// */
        bool local;     /* unix://, unixs:// */
        char host[256]; /* a name or a numeric address, without brackets; local: the path of a
                           socket of this host, unix(7) */
        uint16_t port;
};

/* Whether the @n bytes at @s may be a host: a name of letters, digits, '-', '_' and '.', or an
 * IPv4 address, which numbers with dots are meant to be. */
bool host_is_valid(const char *s, size_t n);

/* Parses @s; without a scheme it is plaintext. Returns 0, or -EINVAL for a missing port, an
 * unknown scheme, an invalid host, or a path that is too long or should not be there. */
must_check_ int url_parse(const char *s, struct url *ret);

/* srv://example.org stands for the hosts that the SRV records of _etcd-client._tcp.example.org
 * name, and srvs:// for those of _etcd-client-ssl._tcp, with TLS: the names that etcd's clients
 * look up (RFC 2782). A name that begins with '_' is used as it is. Returns 0 and the name to
 * look up, -ENOENT for another kind of URL, or -EINVAL. */
must_check_ int url_parse_srv(const char *s, char name[static 256], bool *ret_tls);

/* Writes scheme://host:port; returns @out. */
const char *url_format(const struct url *u, char out[static 320]);

/* Whether traffic to @u stays on this machine: localhost, 127.0.0.0/8, ::1, a socket. */
bool url_is_loopback(const struct url *u);

/* The peer URLs of one member, as the configuration of the replicas has them: each in the form
 * of url_format(), sorted, without repetitions, joined by commas. */
#define URLS_MAX 1024

/* Joins @n URLs in that form. Returns 0, or -EINVAL if there are none or too many, or if one is
 * not a URL or is that of a socket. */
must_check_ int urls_join(char *const urls[], size_t n, char out[static URLS_MAX]);

/* Whether the joined URLs @joined and @other have a URL in common. */
bool urls_meet(const char *joined, const char *other);
