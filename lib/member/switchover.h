/*
 * A switchover: the holder of a lock hands it over to one that waits for it, as somebody asks.
 * The request, and the transactions of all who have a part in it. Pure.
 *
 * The request is the key NAME.switchover, beside the lock's own keys NAME/LEASE and none of
 * them, on a lease of whoever asks:
 *
 *     {"to": "db2", "from": "db1", "by": "admin1", "key": "main/3f2a", "created": 812,
 *      "within_ms": 30000, "holder": "main/77c1"}
 *
 * `key` is the target's, `created` its create_revision: it is one life of it that is meant.
 * `holder` is there once the holder has accepted, in the same step in which the keys between
 * its own and the target's are deleted. From then on the target is next, whatever becomes of
 * the holder, which deletes its own key when it has stopped. A holder that knows of no
 * switchovers accepts none, and nothing changes.
 */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "wire/pb.h"

#define SWITCHOVER_KEY_MAX 1024
#define SWITCHOVER_NAME_MAX 255
/* So many keys are deleted in one transaction: an etcd takes 128 operations at most. */
#define SWITCHOVER_PUSH_MAX 100

struct switchover {
        char to[SWITCHOVER_NAME_MAX + 1];
        char from[SWITCHOVER_NAME_MAX + 1];
        char by[SWITCHOVER_NAME_MAX + 1];
        char key[SWITCHOVER_KEY_MAX];
        char holder[SWITCHOVER_KEY_MAX]; /* that has accepted; "": none yet */
        int64_t created;
        int64_t within_ms; /* that the holder has to stop, from when it hears of it */
};

void switchover_write(const struct switchover *s, struct buf *out);

/* Returns 0, or -EBADMSG: it names no key, or makes no sense. */
must_check_ int switchover_read(struct switchover *s, const void *p, size_t len);

/* The keys of a lock: the request's, and the range of those who hold it and wait. */
void switchover_key(const char *name, struct buf *out);
void switchover_range(const char *name, struct buf *from, struct buf *to);

/* A key in one of its lives. */
struct switchover_at {
        const void *key;
        size_t len;
        int64_t created;
};

/* What a request means to a holder. */
enum switchover_part {
        SWITCHOVER_NOT_OURS, /* nothing */
        SWITCHOVER_TARGET,   /* it is the one that was to have the lock, and has it */
        SWITCHOVER_ASKED,    /* it is to hand the lock over */
        SWITCHOVER_ACCEPTED, /* ... which it has accepted already */
};
enum switchover_part switchover_judge(const struct switchover *s,
                                      const struct switchover_at *own);

/* Each appends a TxnRequest. What they do twice they do once. */

/* Asks, on @lease, if nobody else has, and @holder and the target are as they were. */
void switchover_ask(const char *name, const struct switchover *s,
                    const struct switchover_at *holder, int64_t lease, struct buf *out);

/* The holder, @own, deletes @n keys between its own and the target's; with the @last of them it
 * accepts the request, which was written at @mod on @lease. If not all is as it was: looks at
 * the target. */
void switchover_push(const char *name, const struct switchover *s,
                     const struct switchover_at *own, const struct switchover_at *between,
                     size_t n, bool last, int64_t mod, int64_t lease, struct buf *out);

/* What that has come to: 0; -ECANCELED: something has changed, to be looked at again; -ESRCH:
 * the target is gone; or -EBADMSG. */
must_check_ int switchover_pushed(const Pb__TxnResponse *p, const struct switchover *s);

/* The holder has stopped: deletes @own if the target is there; else looks at @own. */
void switchover_hand_over(const struct switchover *s, const struct switchover_at *own,
                          struct buf *out);

enum switchover_end {
        SWITCHOVER_DONE, /* it is the target's */
        SWITCHOVER_KEPT, /* the target is gone, and the lock is still the holder's */
        SWITCHOVER_LOST, /* it is the holder's no more */
};
/* What that has come to. Returns 0 or -EBADMSG. */
must_check_ int switchover_ended(const Pb__TxnResponse *p, const struct switchover_at *own,
                                 enum switchover_end *ret);

/* Deletes the request that was written at @mod: by whoever asked, who has waited long enough,
 * or by the target, which has the lock. */
void switchover_withdraw(const char *name, int64_t mod, struct buf *out);
