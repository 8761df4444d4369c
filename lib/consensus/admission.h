/*
 * Decides which peer may act as which member, on either end of a link.
 *
 * With TLS, a peer that calls or answers as a member must present a certificate for the host of
 * one of that member's peer URLs, as the configuration of the replicas lists them. The
 * certificate must be valid for a server, which an agent's certificate of the same authority is
 * not. A site whose certificates do not name these hosts configures the common name, or a host,
 * that all of them share. Without TLS nothing is known about the peer, and it is accepted only
 * if the member's URLs are plaintext. If replicas generate their own certificates, the peer is
 * unknown as well, but eavesdroppers learn nothing.
 *
 * Each cause of refusals is logged once a minute, and only a few causes at a time.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"
#include "loop/stream.h"

struct admission {
        const char *cn, *host; /* what certificates must name instead, joined by commas; NULL: a
                                * host as above; borrowed */
        bool anybody;          /* certificates do not identify anybody (--peer-auto-tls) */
        bool plaintext;        /* allowed, even to other machines */
        struct {
                uint64_t cause;
                struct boot_time at;
        } logged[16];
        unsigned unlogged;
};

/* Whether the other side of @s may be the member with these URLs, joined by commas. If not,
 * @why says what is wrong and what to do; it follows "Refused ...: " in the log. */
bool admission_check(const struct admission *a, struct stream *s, const char *urls,
                     char why[static 512]);

/* Whether data may be sent to @u: its certificate identifies a member, @u is on this machine,
 * or plaintext is allowed. */
bool admission_plaintext(const struct admission *a, const struct url *u);

/* Whether a refusal may be logged now; refusals that look the same to an operator have the same
 * @cause. */
bool admission_tell(struct admission *a, uint64_t cause, struct boot_time now);
