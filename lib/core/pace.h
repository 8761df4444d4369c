/*
 * Pacing of renewals: which of them need no entry, and when those that need one become a batch,
 * which is one entry for all. Pure: told of renewals that come, of batches and of answers, it
 * says when to send the next batch.
 *
 *     a renewal                       waits for                  since
 *     ------------------------------  -------------------------  ---------------------------
 *     in the last quarter of its      nothing                    it must not be late (I1)
 *     term
 *     one of BATCH_MAX                nothing                    a command has a limit
 *     of a lease renewed ahead        a confirmation by the      the disks already have a
 *     (covered.c)                     leader                     term that ends later
 *     early, in the first eighth of   the batch under way, and   its client waits for nothing
 *     its term                        the rest of its crowd      but the answer
 *     any one, while few come         the batch under way        there is nothing to share
 *     any other one                   the end of the window      many share an entry
 *
 * A batch also goes when a lease is about to expire (core_expire()). The window ends TTL / 50,
 * but at least 2 ms and at most 50 ms, after the last batch.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

/* What is known of a renewed lease when the renewal comes. */
struct renew_term {
        nsec_t ttl;
        nsec_t left; /* until its deadline; more than `ttl` if it has been renewed ahead */
};

struct renew_pace {
        unsigned part; /* a lease is renewed ahead by this part of its TTL */
        nsec_t used;   /* what a lease uses of its lead until a confirmation comes, lately */

        /* What waits for the next batch. */
        size_t n, n_early;
        bool some_late;              /* ... waits for nothing */
        bool some_next;              /* ... waits only for the batch under way */
        struct boot_time window_end; /* when the rest goes */
        struct boot_time looked_at;  /* when a renewal came, or an answer, last */

        /* What was sent. */
        size_t n_under_way; /* batches */
        size_t n_crowd;     /* about how many clients renew as soon as they are answered */
        struct boot_time sent_at;   /* the last batch */
        struct boot_time soon_full; /* until here, the batches that were sent lately are paid
                                     * for by one in each WINDOW_MAX */
};

/* @part: 0: the usual one. */
void renew_pace_init(struct renew_pace *p, unsigned part);

/* By how much a lease is renewed ahead; 0: it is not. */
nsec_t renew_pace_ahead(const struct renew_pace *p, nsec_t ttl);
/* Whether a renewal waits for a confirmation, and not for a batch. */
bool renew_pace_is_covered(struct renew_pace *p, struct renew_term t);
/* A confirmation has come, and has used so much of the lead. */
void renew_pace_confirmed(struct renew_pace *p, nsec_t used);

/* One more waits for a batch. Returns whether it is renewed ahead. */
bool renew_pace_arrived(struct renew_pace *p, struct renew_term t, struct boot_time now);
/* None of those that waited does so any more; they have not been sent. */
void renew_pace_forget(struct renew_pace *p);
/* All that wait are being sent. Returns how many of them are early. */
size_t renew_pace_sent(struct renew_pace *p, struct boot_time now);
/* They have become a batch, one of at most two. */
void renew_pace_under_way(struct renew_pace *p);
/* A batch, with @n_early early renewals, has been answered. */
void renew_pace_answered(struct renew_pace *p, size_t n_early, struct boot_time now);
/* When to send what waits; BOOT_TIME_NEVER: nothing does. */
struct boot_time renew_pace_next(const struct renew_pace *p);
