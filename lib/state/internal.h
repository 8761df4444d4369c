/*
 * What the files that apply commands share. Not for other folders.
 *
 *     state.c     applies a command, and answers it
 *     admit.c     whether a command is accepted, and what it costs
 *     txn.c       transactions
 *     touched.c   whether two operations of a transaction write the same key
 *     weigh.c     how much a command will read, computed before it is run
 *     caching.c   commands of cache leases, and commands that wait for them
 *     alarm.c     alarms
 */
#pragma once

#include "state/state.h"

/* ---- state.c ---- */

/* Writes within a txn or alone, at revision s->revision + 1. */
must_check_ int state_write_put(struct state *s, const Pb__PutRequest *q, uint32_t *sub,
                                const struct kv_version **ret_prev);
/* Deletes as many keys as *@left allows; 1: there are more. */
must_check_ int state_write_delete(struct state *s, const Pb__DeleteRangeRequest *q,
                                   uint32_t *sub, struct arena *a, Pb__DeleteRangeResponse *out,
                                   struct budget *left);
must_check_ int state_set_member(struct state *s, uint64_t id, const char *name,
                                 const char *client_urls);

/* ---- admit.c ---- */

/* Parts of a txn are checked alike: their form, and what a put needs at the moment. */
enum state_outcome state_check_put(const Pb__PutRequest *q);
enum state_outcome state_check_delete(const Pb__DeleteRangeRequest *q);
enum state_outcome state_check_put_now(const struct state *s, const Pb__PutRequest *q);

/* ---- weigh.c ---- */

/* Fills in the cost of a command; returns an outcome if it is too much. */
enum state_outcome state_weigh(const struct state *s, enum cmd_type type, const void *m,
                               struct budget *left, struct state_admission *a);
/* NULL: there is no such lease. */
struct lease *state_revoked(const struct state *s, const Pb__LeaseRevokeRequest *q);

/* How much a command may still read; the functions below return false if that is not enough. */
struct weight {
        size_t steps;
        size_t put, n_ranges;           /* bytes put up to here, and ranges that may read
                                         * them */
        size_t n_puts, longest, second; /* and the bytes of the longest two, keys included */
        bool writes;
        size_t answer; /* bytes of the answer */
        /* Whether to count the bytes that a sort or a comparison may have to read. They count
         * when requests arrive, but not when they are applied: earlier versions do not count
         * them, and all replicas have to refuse the same requests (I4). */
        bool counts_compared;
};
bool weigh_compare(const struct state *s, const Pb__Compare *q, struct weight *b);
bool weigh_range(const struct state *s, const Pb__RangeRequest *q, struct weight *b);
bool weigh_put(const struct state *s, const Pb__PutRequest *q, struct weight *b);
bool weigh_delete(const struct state *s, const Pb__DeleteRangeRequest *q, struct weight *b);
bool weigh_end(struct weight *b);

/* ---- txn.c ---- */

/* Whether one of the branches puts anything. */
bool state_txn_puts(const Pb__TxnRequest *q);

/* Also chooses the branches, by the state before anything is written. */
enum state_outcome state_weigh_txn(const struct state *s, const Pb__TxnRequest *q,
                                   struct budget *left, struct state_admission *a);
/* What an operation that will run needs at the moment. */
enum state_outcome state_check_txn_now(const struct state *s, const Pb__TxnRequest *q,
                                       struct state_admission *a);
/* Collects all cache terms that end last for any of its changes, so that it waits for all of
 * them at the same time. */
void state_txn_awaits_caches(struct state *s, const Pb__TxnRequest *q,
                             struct state_admission *a, struct cached_wait *wait);
/* Runs a txn that was admitted; writes get revision @s->revision + 1. */
must_check_ int state_txn(struct state *s, const Pb__TxnRequest *q,
                          struct state_admission *admitted, struct state_reply *reply,
                          struct budget *left);

/* ---- touched.c ---- */

must_check_ int state_txn_collides(const Pb__TxnRequest *q, bool *ret);

/* ---- alarm.c ---- */

must_check_ int state_add_alarm(struct state *s, uint64_t member, Pb__AlarmType type,
                                uint8_t why);
must_check_ int state_alarm(struct state *s, const Pb__AlarmRequest *q,
                            struct state_reply *reply);

/* ---- caching.c ---- */

/* STATE_E_CACHED if running cache terms prevent the command; it is awaited from now on. */
enum state_outcome state_awaits_caches(struct state *s, enum cmd_type type, const void *m,
                                       struct state_admission *a, struct cached_wait *wait);
must_check_ int state_cache(struct state *s, const Pb__CacheTerm *q, struct state_reply *reply,
                            struct budget *left);
void state_uncache(struct state *s, struct view body, struct state_reply *reply);
