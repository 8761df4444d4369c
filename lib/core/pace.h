/*
 * Pacing of renewals: which of them need no entry, and when those that need one are sent. Pure:
 * told of renewals that come, of what is sent and of answers, it says when to send next.
 *
 * A lease that is renewed soon after it was renewed is renewed ahead: by a thousandth of its
 * TTL, which its deadline then has as a surplus over TTL from now. Clients that renew as soon
 * as they are answered come early; 64 or more of them are a crowd. The window ends TTL / 50
 * after the last send, but at least 2 ms and at most 50 ms.
 *
 * A renewal waits for one of four things; the first row that fits counts. Whatever it waits
 * for, except for a confirmation, it waits no longer than the window, and a send takes along
 * all that wait by then.
 *
 *     a renewal                       waits for                  since
 *     ------------------------------  -------------------------  ---------------------------
 *     of a lease with a surplus that  a confirmation by the      the disks already have a
 *     outlasts a confirmation         leader (covered.c)         deadline that is late enough
 *     in the last quarter of TTL      nothing                    it must not be late (I1)
 *     of a lease with more than any   nothing                    lease time is stale here, so
 *     surplus                                                    it may be late
 *     the 4,096th that waits          nothing                    it takes memory and work
 *     early, in the first eighth of   the command under way, or  its client waits for nothing
 *     TTL                             most of its crowd          but the answer
 *     any one, while few come         the command under way      there is nothing to share
 *     any other one                   the end of the window      many share a command
 *
 * What waits is also sent when a lease is due (core_expire()).
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

/* What is known of a renewed lease when the renewal comes. */
struct renew_left {
        nsec_t ttl;
        nsec_t left; /* until its deadline; more than `ttl`: it has a surplus */
};

/* What a renewal waits for; the most impatient of those that wait decides. */
enum renew_wait { RENEW_WAITS_FOR_WINDOW, RENEW_WAITS_FOR_COMMAND, RENEW_WAITS_FOR_NOTHING };

struct renew_pace {
        unsigned ahead_divisor; /* by which part of its TTL a lease is renewed ahead */

        /* Confirmations. */
        nsec_t took; /* how long they have taken lately: a moving average, which rises fast */
        bool tries;  /* one is under way that shows whether they are quick again */

        /* What waits to be sent. */
        size_t n, n_early;
        enum renew_wait wait;
        struct boot_time window_end;
        struct boot_time early_at; /* when an early one came, or an answer, last */

        /* What was sent. */
        size_t n_under_way;       /* commands; a send makes up to two */
        size_t n_crowd;           /* about how many clients come early, again and again */
        struct boot_time sent_at; /* the last send */
        struct boot_time full_at; /* a leaky bucket: each send adds WINDOW_MAX, time drains it;
                                   * it is full FEW_MAX * WINDOW_MAX from now */
};

/* @ahead_divisor: 0: the usual one; others are for tests. */
void renew_pace_init(struct renew_pace *p, unsigned ahead_divisor);

/* By how much a lease is renewed ahead; 0: its TTL is too short for that. */
nsec_t renew_pace_ahead(const struct renew_pace *p, nsec_t ttl);
/* Decides whether a renewal asks for a confirmation, which it then counts as doing. */
bool renew_pace_ask(struct renew_pace *p, struct renew_left t);
/* A confirmation has come after this time; or none will come. */
void renew_pace_confirmed(struct renew_pace *p, nsec_t took);
void renew_pace_not_confirmed(struct renew_pace *p);

/* One more waits to be sent. Returns whether its lease is renewed ahead. */
bool renew_pace_arrived(struct renew_pace *p, struct renew_left t, struct boot_time now);
/* None of those that waited does so any more; they have not been sent. */
void renew_pace_forget(struct renew_pace *p);
/* All that wait are being sent. Returns how many of them are early. */
size_t renew_pace_sent(struct renew_pace *p, struct boot_time now);
/* A command with some of them was proposed, or has been answered. */
void renew_pace_proposed(struct renew_pace *p);
void renew_pace_answered(struct renew_pace *p, struct boot_time now);
/* The @n_early early ones of a send have been answered. */
void renew_pace_crowd(struct renew_pace *p, size_t n_early);
/* When to send what waits; BOOT_TIME_NEVER: nothing does. */
struct boot_time renew_pace_next(const struct renew_pace *p);
