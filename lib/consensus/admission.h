/*
 * Decides which peer may act as which member, on either end of a link.
 *
 * With TLS, a peer that calls or answers as a member must show a certificate that is for the
 * host of one of that member's peer URLs, according to the configuration of the replicas, and
 * that is valid for a server: an agent's certificate of the same authority is not. A site with
 * other certificates configures the common name, or a host, that all of them have. Without TLS
 * nothing is known of the peer, and only a member whose URLs are plaintext is accepted. With
 * certificates that replicas make themselves the peer is unknown as well, but eavesdroppers
 * learn nothing.
 *
 * A refusal is logged once a minute for each cause, and for a few causes at a time.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"
#include "loop/stream.h"

struct admission {
        const char *cn, *host; /* instead of the rule above, joined by commas; NULL: the rule;
                                  borrowed */
        bool anybody;          /* certificates do not identify anybody (--peer-auto-tls) */
        bool plaintext;        /* also to other machines */
        struct {
                uint64_t cause;
                struct boot_time at;
        } logged[16];
        unsigned unlogged;
};

/* Whether the other side of @s may be the member with these URLs, joined by commas. If not,
 * @why says what is wrong and what to do, as the end of "Refused ...: ". */
bool admission_check(const struct admission *a, struct stream *s, const char *urls,
                     char why[static 512]);

/* Whether data may be sent to @u, given what is known of the host there. */
bool admission_plaintext(const struct admission *a, const struct url *u);

/* Whether a refusal may be logged now; refusals that look the same to a person have the same
 * @cause. */
bool admission_tell(struct admission *a, uint64_t cause, struct boot_time now);
