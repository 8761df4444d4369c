/*
 * Cache leases: ranges of keys that clients may read from a cache of their own (Gray and
 * Cheriton, "Leases: An Efficient Fault-Tolerant Mechanism for Distributed File Cache
 * Consistency", 1989).
 *
 * A cache lease promises its holder that nothing changes in a range of keys for a while, the
 * cache term (I11). Holders are not stored here, only the end of the longest cache term that
 * each issuer has given. An issuer is one life of one replica, which knows its holders; after a
 * crash nobody does, and its cache terms end by time. A command that would change a range
 * before all of its cache terms have ended or were returned is refused. From then on no cache
 * term is given for the range, so that a writer never waits for longer than the longest one. If
 * the cache term that a write waited for ended by time, or the write gave up, none is given for
 * a while: a holder that does not answer must not make every write wait. If several writes wait
 * for one range, each replica retries its own; another cache term may come in between, so while
 * a range is crowded its cache terms should be short.
 *
 * Part of the replicated state: the log decides which comes first, the change or the cache
 * term. Pure.
 */
#pragma once

#include "base/buf.h"
#include "base/clock.h"
#include "state/kv.h"
#include "state/span_index.h"

#define CACHED_RANGES_MAX 256
#define CACHED_ISSUERS_MAX 16
#define CACHED_KEYS_MAX 1000 /* in one range */
#define CACHED_SPAN_MAX 4096 /* bytes of a range's two keys */
#define CACHED_TERM_MAX_MS 3000
#define CACHED_TERM_MIN_MS 20
#define CACHED_CROWDS_MAX 16

struct cached_issuer {
        uint64_t id;
        struct lease_time until;
};

struct cached_range {
        WIDER;
        uint64_t serial;               /* never used for another range */
        struct span_entry keys;        /* its span shows `bytes`; in the index unless empty */
        bool touched;                  /* by the change of a key that is being examined */
        bool awaited;                  /* a change was refused ... */
        struct lease_time awaited_at;  /* ... and this was the last time */
        struct lease_time rests_until; /* no cache term is given before that */
        unsigned n_refused;            /* changes, by this range; not part of the state */
        size_t n_issuers;
        struct cached_issuer issuers[CACHED_ISSUERS_MAX];
        uint8_t bytes[];
};

struct cached_crowd {
        uint64_t span; /* its hash */
        struct lease_time until;
};

struct cached {
        WIDER;
        struct cached_range **ranges; /* owned; in the order in which they were made ... */
        struct span_index index;      /* ... and by the keys that they hold */
        size_t n, cap;
        size_t bytes; /* as the quota counts them (charge.h) */
        uint64_t last_serial;
        /* Not part of the state. They change when a write begins to wait for a range, and when
         * a cache term is returned. */
        uint64_t n_awaited, n_returned;
        struct cached_crowd crowds[CACHED_CROWDS_MAX]; /* a ring */
        size_t next_crowd;
};

/* Why a command was refused, and when it may be tried again. */
struct cached_wait {
        uint64_t serial; /* of the range whose cache terms end last; 0: nothing is in the way */
        struct lease_time until;
};

void cached_fini(struct cached *c);

struct cached_range *cached_find(const struct cached *c, uint64_t serial);

/* cached_is_live(): whether any cache term of @r runs at @now. cached_until(): the end of
 * @issuer's cache term, or 0. */
bool cached_is_live(const struct cached_range *r, struct lease_time now);
struct lease_time cached_until(const struct cached_range *r, uint64_t issuer);

/* Gives @issuer a cache term on @span up to @until. Not allowed while cached_is_awaited(): a
 * change is waiting, or was waiting a moment ago. Returns 0, -ENOSPC if there are too many
 * ranges or issuers, or -ENOMEM. */
must_check_ int cached_promise(struct cached *c, const struct kv_span *span, uint64_t issuer,
                               struct lease_time now, struct lease_time until,
                               struct cached_range **ret);
bool cached_is_awaited(const struct cached *c, const struct kv_span *span,
                       struct lease_time now);

/* Whether @span is one of the ranges that are cached, or rest; *@ret_n: how many there are. */
bool cached_has(const struct cached *c, const struct kv_span *span, struct lease_time now,
                size_t *ret_n);

/* Whether several changes waited for a cache term on @span, and some may still be waiting. For
 * the issuer; the state does not depend on it. */
bool cached_is_crowded(const struct cached *c, const struct kv_span *span,
                       struct lease_time now);

/* All holders of @issuer have returned their cache terms, up to the one that ends at @until. */
void cached_return(struct cached *c, uint64_t serial, uint64_t issuer, struct lease_time until);

/* @span is about to be changed. Ranges with running cache terms are awaited from now on and
 * added to @wait; ranges whose cache terms have ended are removed. */
void cached_change(struct cached *c, const struct kv_span *span, struct lease_time now,
                   struct cached_wait *wait);
/* Like cached_change(), for range @i alone, which the change touches; the range may be
 * removed. */
void cached_touch(struct cached *c, size_t i, struct lease_time now, struct cached_wait *wait);

/* For saver.h and loader.h. A range is loaded after `last_serial`. Returns 0, -EBADMSG or
 * -ENOMEM. */
struct snapshot_in;
void cached_save(const struct cached *c, struct buf *out);
must_check_ int cached_load_range(struct cached *c, struct snapshot_in *in);
