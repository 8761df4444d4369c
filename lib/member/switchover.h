/*
 * A switchover: the holder of a lock hands it over to a client that waits for it, on request.
 * This file has the request, and the transactions of all clients that take part. Pure.
 *
 * The request is the key NAME.switchover, which is not one of the lock's own keys NAME/LEASE,
 * on a lease of the client that requests it:
 *
 *     {"to": "db2", "from": "db1", "by": "admin1", "key": "main/3f2a", "created": 812,
 *      "within_ms": 30000, "holder": "main/77c1"}
 *
 * `key` is the target's key, and `created` its create_revision, so that only this life of the
 * key is meant. `holder` is added when the holder accepts, in the same transaction in which the
 * keys between its own and the target's are deleted. From then on the target is next, whatever
 * happens to the holder, which deletes its own key when it has stopped. A holder that does not
 * know about switchovers accepts none, and nothing changes.
 */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "wire/pb.h"

#define SWITCHOVER_KEY_MAX 1024
#define SWITCHOVER_NAME_MAX 255
/* How many keys one transaction deletes: etcd allows 128 operations. */
#define SWITCHOVER_PUSH_MAX 100

struct switchover {
        char to[SWITCHOVER_NAME_MAX + 1];
        char from[SWITCHOVER_NAME_MAX + 1];
        char by[SWITCHOVER_NAME_MAX + 1];
        char key[SWITCHOVER_KEY_MAX];
        char holder[SWITCHOVER_KEY_MAX]; /* the holder that has accepted; "": none yet */
        int64_t created;
        int64_t within_ms; /* how long the holder has to stop, from when it learns of the
                              request */
};

void switchover_write(const struct switchover *s, struct buf *out);

/* Returns 0, or -EBADMSG if the request is malformed or names no key. */
must_check_ int switchover_read(struct switchover *s, const void *p, size_t len);

/* Keys of a lock: the request's key, and the range of the keys of the holder and the
 * waiters. */
void switchover_key(const char *name, struct buf *out);
void switchover_range(const char *name, struct buf *from, struct buf *to);

/* A key in one of its lives. */
struct switchover_at {
        const void *key;
        size_t len;
        int64_t created;
};

/* What a request means to a client with a key. */
enum switchover_part {
        SWITCHOVER_NOT_OURS, /* nothing */
        SWITCHOVER_TARGET,   /* it is the target, and has the lock */
        SWITCHOVER_ASKED,    /* it is the holder, and should hand the lock over */
        SWITCHOVER_ACCEPTED, /* it is the holder, and has accepted */
};
enum switchover_part switchover_judge(const struct switchover *s,
                                      const struct switchover_at *own);

/* Each function appends a TxnRequest, which may be carried out twice without harm. */

/* Makes the request on @lease, if there is none, and if @holder and the target are still in
 * place. */
void switchover_ask(const char *name, const struct switchover *s,
                    const struct switchover_at *holder, int64_t lease, struct buf *out);

/* The holder, @own, deletes @n keys between its own and the target's. With the @last of them it
 * accepts the request, which was written at @mod on @lease. If anything has changed, reads the
 * target instead. */
void switchover_push(const char *name, const struct switchover *s,
                     const struct switchover_at *own, const struct switchover_at *between,
                     size_t n, bool last, int64_t mod, int64_t lease, struct buf *out);

/* Reads the answer to switchover_push(). Returns 0; -ECANCELED: something has changed, look
 * again; -ESRCH: the target is gone; or -EBADMSG. */
must_check_ int switchover_pushed(const Pb__TxnResponse *p, const struct switchover *s);

/* The holder has stopped: deletes @own if the target exists; otherwise reads @own. */
void switchover_hand_over(const struct switchover *s, const struct switchover_at *own,
                          struct buf *out);

enum switchover_end {
        SWITCHOVER_DONE, /* the target has the lock */
        SWITCHOVER_KEPT, /* the target is gone, and the holder keeps the lock */
        SWITCHOVER_LOST, /* the holder has lost the lock */
};
/* Reads the answer to switchover_hand_over(). Returns 0 or -EBADMSG. */
must_check_ int switchover_ended(const Pb__TxnResponse *p, const struct switchover_at *own,
                                 enum switchover_end *ret);

/* Deletes the request that was written at @mod. Done by the client that made it, after it has
 * waited long enough, or by the target, once it has the lock. */
void switchover_withdraw(const char *name, int64_t mod, struct buf *out);
