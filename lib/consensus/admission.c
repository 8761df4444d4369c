#include "consensus/admission.h"

#include <stdio.h>

#include "base/conf.h"
#include "base/log.h"
#include "base/probe.h"

#define TELL_AGAIN (60 * NSEC_PER_SEC)

static bool plain_url_among(const char *urls)
{
        struct url u;
        char url[320];

        while (list_next(&urls, url, sizeof(url)))
                if (url_parse(url, &u) == 0 && !u.tls)
                        return true;
        return false;
}

static bool host_among(const struct stream *s, const char *urls)
{
        struct url u;
        char url[320];

        while (list_next(&urls, url, sizeof(url)))
                if (url_parse(url, &u) == 0 && u.tls && stream_peer_is(s, u.host))
                        return true;
        return false;
}

static bool among(const char *list, const char *word)
{
        char item[256];

        while (list_next(&list, item, sizeof(item)))
                if (strcmp(item, word) == 0)
                        return true;
        return false;
}

static bool is_one_of(const struct stream *s, const char *hosts)
{
        char host[256];

        while (list_next(&hosts, host, sizeof(host)))
                if (stream_peer_is(s, host))
                        return true;
        return false;
}

bool admission_check(const struct admission *a, struct stream *s, const char *urls,
                     char why[static 512])
{
        const char *cn = stream_peer_name(s);
        char subject[200];

        if (!stream_is_secure(s)) {
                snprintf(
                        why, 512,
                        "it does not use TLS, but the member's peer URLs are https:// (%.200s)",
                        urls);
                return plain_url_among(urls);
        }
        if (a->anybody)
                return true;
        stream_peer_subject(s, subject, sizeof(subject));
        if (!stream_peer_serves(s)) {
                snprintf(why, 512,
                         "its certificate (%s) is not valid for a server; a replica's "
                         "certificate has both extended key usages, serverAuth and clientAuth, "
                         "or none",
                         subject);
                return false;
        }
        if (a->cn) {
                snprintf(why, 512,
                         "the common name in its certificate (%s) is not "
                         "PeerCertAllowedCN=%.100s",
                         subject, a->cn);
                return cn && among(a->cn, cn);
        }
        if (a->host) {
                snprintf(why, 512,
                         "the subjectAltName of its certificate (%s) is not for "
                         "PeerCertAllowedHostname=%.100s",
                         subject, a->host);
                return is_one_of(s, a->host);
        }
        snprintf(why, 512,
                 "the subjectAltName of its certificate (%s) is not for the host of the "
                 "member's peer URL (%.150s); reissue it, or set "
                 "PeerCertAllowedCN= or PeerCertAllowedHostname=",
                 subject, urls);
        return host_among(s, urls);
}

bool admission_plaintext(const struct admission *a, const struct url *u)
{
        return a->plaintext || (u->tls && !a->anybody) || url_is_loopback(u);
}

bool admission_tell(struct admission *a, uint64_t cause, struct boot_time now)
{
        size_t free = ARRAY_SIZE(a->logged);

        for (size_t i = 0; i < ARRAY_SIZE(a->logged); i++) {
                bool old = a->logged[i].at.ns == 0 ||
                           boot_diff(now, a->logged[i].at) >= TELL_AGAIN;

                if (!old && a->logged[i].cause == cause)
                        return false;
                PROBE_IF(a->logged[i].at.ns > 0 && a->logged[i].cause == cause,
                         "links are refused, and that is logged again after a minute");
                if (old)
                        free = i;
        }
        if (free == ARRAY_SIZE(a->logged)) {
                a->unlogged++;
                return false;
        }
        if (a->unlogged > 0)
                log_warning("Refused %u more links, for too many different reasons to log each "
                            "one.",
                            a->unlogged);
        a->unlogged = 0;
        a->logged[free].cause = cause;
        a->logged[free].at = now;
        return true;
}
