/*
 * Pacing of renewals: which of them need no entry, and when the others are sent. Pure: the
 * caller reports arrivals, sends and answers, and is told when to send next.
 *
 * A lease that is renewed again soon is renewed ahead, by a thousandth of its TTL: its deadline
 * then exceeds TTL from now by a surplus. Clients that renew as soon as they are answered are
 * early; 64 or more of them are a crowd. The batch window ends TTL / 50 after the last send,
 * but at least 2 ms and at most 50 ms after it.
 *
 * A renewal waits for one of four things; the first row that fits counts. Except for a
 * confirmation, it never waits past the batch window, and a send includes all waiting renewals.
 *
 *     a renewal                       waits for                  because
 *     ------------------------------  -------------------------  ---------------------------
 *     of a lease with a surplus that  a confirmation by the      the disks already have a
 *     outlasts a confirmation         leader (confirm.c)         deadline that is late enough
 *     in the last quarter of TTL      nothing                    it must not be late (I1)
 *     of a lease with more than any   nothing                    lease time is stale here, so
 *     surplus                                                    it may be late
 *     the 4,096th that waits          nothing                    the queue is long enough
 *     early, in the first eighth of   the command under way, or  its client waits for nothing
 *     TTL                             most of its crowd          but the answer
 *     any, while few arrive           the command under way      there is nothing to share
 *     any other                       the end of the window      many share a command
 *
 * Waiting renewals are also sent when a lease is due (core_expire()).
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

/* What is known of a renewed lease when the renewal comes. */
struct renew_left {
        nsec_t ttl;
        nsec_t left; /* until its deadline; more than `ttl`: it has a surplus */
};

/* What a renewal waits for; the most impatient waiting renewal decides. */
enum renew_wait { RENEW_WAITS_FOR_WINDOW, RENEW_WAITS_FOR_COMMAND, RENEW_WAITS_FOR_NOTHING };

struct renew_pace {
        unsigned ahead_divisor; /* a lease is renewed ahead by TTL / this */

        /* Confirmations. */
        nsec_t took;    /* how long they have taken lately: a moving average that rises fast */
        size_t n_asked; /* renewals that wait for one */

        /* Waiting renewals. */
        size_t n, n_early;
        enum renew_wait wait;
        struct boot_time window_end;
        struct boot_time early_at; /* when the last early renewal or answer arrived */

        /* Sends. */
        size_t n_under_way;       /* commands; a send proposes up to two */
        size_t n_crowd;           /* about how many clients come early, again and again */
        struct boot_time sent_at; /* the last send */
        struct boot_time full_at; /* a leaky bucket: each send adds WINDOW_MAX, time drains it;
                                   * it is full when this is FEW_MAX * WINDOW_MAX from now */
};

/* @ahead_divisor: 0: the default; other values are for tests. */
void renew_pace_init(struct renew_pace *p, unsigned ahead_divisor);

/* By how much a lease is renewed ahead; 0: its TTL is too short for that. */
nsec_t renew_pace_ahead(const struct renew_pace *p, nsec_t ttl);
/* Decides whether a renewal asks for a confirmation; if so, it counts until it is settled. */
bool renew_pace_ask(struct renew_pace *p, struct renew_left t);
/* Whether a renewal that was about to ask goes along with a command instead. */
bool renew_pace_joins(struct renew_pace *p, struct renew_left t);
/* @n renewals that asked wait no more. */
void renew_pace_settled(struct renew_pace *p, size_t n);
/* A confirmation took this long. */
void renew_pace_took(struct renew_pace *p, nsec_t took);

/* One more renewal waits. Returns whether its lease is renewed ahead. */
bool renew_pace_arrived(struct renew_pace *p, struct renew_left t, struct boot_time now);
/* Forgets the waiting renewals, which were not sent. */
void renew_pace_forget(struct renew_pace *p);
/* All waiting renewals are being sent. Returns how many of them are early. */
size_t renew_pace_sent(struct renew_pace *p, struct boot_time now);
/* A command with some of them was proposed, or has been answered. */
void renew_pace_proposed(struct renew_pace *p);
void renew_pace_answered(struct renew_pace *p, struct boot_time now);
/* The @n_early early ones of a send have been answered. */
void renew_pace_crowd(struct renew_pace *p, size_t n_early);
/* When to send the waiting renewals; BOOT_TIME_NEVER: there are none. */
struct boot_time renew_pace_next(const struct renew_pace *p);
