#include "consensus/admission.h"

#include <stdio.h>

#include "base/conf.h"
#include "base/log.h"

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

bool admission_check(const struct admission *a, struct stream *s, const char *urls,
                     char why[static 512])
{
        const char *cn = stream_peer_name(s);
        char subject[200];

        if (!stream_is_secure(s)) {
                snprintf(
                        why, 512,
                        "it speaks plaintext, and the member's peer URLs are https:// (%.200s)",
                        urls);
                return plain_url_among(urls);
        }
        stream_peer_subject(s, subject, sizeof(subject));
        if (!stream_peer_serves(s)) {
                snprintf(why, 512,
                         "its certificate (%s) is none of a server's; one of a replica has the "
                         "extended key usages serverAuth and clientAuth, or none",
                         subject);
                return false;
        }
        if (a->cn) {
                snprintf(why, 512,
                         "the common name in its certificate (%s) is not "
                         "PeerCertAllowedCN=%.100s",
                         subject, a->cn);
                return cn && strcmp(cn, a->cn) == 0;
        }
        if (a->host) {
                snprintf(
                        why, 512,
                        "its certificate (%s) is not for PeerCertAllowedHostname=%.100s by its "
                        "subjectAltName",
                        subject, a->host);
                return stream_peer_is(s, a->host);
        }
        snprintf(why, 512,
                 "its certificate (%s) is not for the host of the member's peer URL by its "
                 "subjectAltName (%.150s); issue one that is, or set PeerCertAllowedCN= or "
                 "PeerCertAllowedHostname=",
                 subject, urls);
        return host_among(s, urls);
}

bool admission_plaintext(const struct admission *a, const struct url *u)
{
        return a->plaintext || u->tls || url_is_loopback(u);
}

bool admission_tell(struct admission *a, uint64_t cause, struct boot_time now)
{
        size_t free = ARRAY_SIZE(a->told);

        for (size_t i = 0; i < ARRAY_SIZE(a->told); i++) {
                bool old = a->told[i].at.ns == 0 || boot_diff(now, a->told[i].at) >= TELL_AGAIN;

                if (!old && a->told[i].cause == cause)
                        return false;
                if (old)
                        free = i;
        }
        if (free == ARRAY_SIZE(a->told)) {
                a->untold++;
                return false;
        }
        if (a->untold > 0)
                log_warning("Refused %u links more, for causes that were too many to tell.",
                            a->untold);
        a->untold = 0;
        a->told[free].cause = cause;
        a->told[free].at = now;
        return true;
}
