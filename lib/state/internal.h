/*
 * What the files that apply commands share. Not for other folders.
 *
 *     state.c     a command, its outcome and its answer
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
                                   size_t *left);
enum state_outcome state_check_put_now(const struct state *s, const Pb__PutRequest *q);
must_check_ int state_set_member(struct state *s, uint64_t id, const char *name,
                                 const char *client_urls);

/* ---- weigh.c ---- */

/* How much a command may still read; the functions below return false if that is not enough. */
struct budget {
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
bool weigh_compare(const struct state *s, const Pb__Compare *q, struct budget *b);
bool weigh_range(const struct state *s, const Pb__RangeRequest *q, struct budget *b);
bool weigh_put(const struct state *s, const Pb__PutRequest *q, struct budget *b);
bool weigh_delete(const struct state *s, const Pb__DeleteRangeRequest *q, struct budget *b);
bool weigh_end(struct budget *b);

/* ---- touched.c ---- */

must_check_ int state_txn_collides(const Pb__TxnRequest *q, bool *ret);

/* ---- alarm.c ---- */

must_check_ int state_add_alarm(struct state *s, uint64_t member, Pb__AlarmType type,
                                uint8_t why);
must_check_ int state_alarm(struct state *s, const Pb__AlarmRequest *q,
                            struct state_reply *reply);

/* ---- caching.c ---- */

/* STATE_E_CACHED if running cache terms prevent a change; the change is awaited from now on. */
enum state_outcome state_awaits_caches(struct state *s, const ProtobufCBinaryData *key,
                                       const ProtobufCBinaryData *end,
                                       struct state_reply *reply);
enum state_outcome state_revoke_awaits_caches(struct state *s, const struct lease *l,
                                              struct state_reply *reply);
must_check_ int state_cache(struct state *s, const struct cmd_user *who, const Pb__CacheTerm *q,
                            struct state_reply *reply, size_t *left);
void state_uncache(struct state *s, struct view body, struct state_reply *reply);
