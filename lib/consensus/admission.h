/*
 * Who may speak as which member, on either end of a link.
 *
 * With TLS, whoever calls or answers as a member shows a certificate that is for the host of
 * one of that member's peer URLs, as the configuration of the replicas has them, and that is a
 * server's: an agent's of the same authority is not. A site whose certificates are shaped
 * otherwise names the common name, or a host that all of them are for, instead. Without TLS
 * nothing is known of the other side, but that the member's URLs say so.
 *
 * A refusal is told once a minute for each cause, and of few causes at a time.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"
#include "loop/stream.h"

struct admission {
        const char *cn, *host; /* instead of the rule; NULL: the rule; borrowed */
        bool plaintext;        /* also to other machines */
        struct {
                uint64_t cause;
                struct boot_time at;
        } told[8];
        unsigned untold;
};

/* Whether the other side of @s may be the member with those URLs, joined by commas; if not,
 * @why says what is wrong, and what to do, after "Refused ...: ". */
bool admission_check(const struct admission *a, struct stream *s, const char *urls,
                     char why[static 512]);

/* Whether what goes to @u may go without TLS. */
bool admission_plaintext(const struct admission *a, const struct url *u);

/* Whether a refusal may be told; @cause is the same number for what is the same to a person. */
bool admission_tell(struct admission *a, uint64_t cause, struct boot_time now);
