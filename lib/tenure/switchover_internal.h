/*
 * Shared by the files of a switchover that the program requests: switchover.c has its course,
 * and the functions of tenure.h; switchover_look.c finds out who holds the lock and who is to
 * get it; switchover_request.c makes the request, and follows it. Not for use elsewhere.
 */
#pragma once

#include "member/lock_name.h"
#include "member/switchover.h"
#include "tenure/calls.h"

enum switching_state {
        SWITCH_LOOK,     /* find the holder and the target */
        SWITCH_TARGET,   /* find out whether the target waits */
        SWITCH_BETWEEN,  /* find the waiters before it */
        SWITCH_WHO,      /* find the owners of their leases */
        SWITCH_GRANT,    /* get a lease for the request */
        SWITCH_ASK,      /* make the request */
        SWITCH_WAIT,     /* wait for the outcome */
        SWITCH_CHECK,    /* something has changed: find the holder */
        SWITCH_TAKES,    /* the target has the lock; wait until it reports that */
        SWITCH_WITHDRAW, /* time has run out: withdraw the request */
        SWITCH_END,      /* delete the request */
        SWITCH_OVER,
};

struct switching {
        struct tenure *tenure;
        struct tenure_call *call; /* the program's */
        struct loop_hook hook;
        enum switching_state state;
        char *name;     /* owned */
        struct buf key; /* the request's key */
        bool next;      /* the target is the next in line */
        struct switchover request;
        struct buf holder; /* the holder's key, ... */
        int64_t created;   /* ... and its create_revision */
        struct buf leases; /* the leases whose owners we need, the holder's first */
        size_t n_leases, at;
        int64_t lease; /* the request's lease; 0: none yet */
        int64_t mod;   /* the mod_revision of our request; 0: not made yet */
        int64_t seen;  /* the revision of the last look; watches begin after it */
        struct tenure_call *sub;
        struct tenure_watch *watch, *line; /* of the request, and of the lock's keys */
        bool accepted, request_gone;
        /* The revisions of the acceptance, and of the deletion of the holder's and the target's
         * key, as far as we have seen them; 0: not seen. */
        int64_t accepted_in, holder_gone, target_gone;
        bool blind; /* the watches have ended: read the keys instead */
        struct boot_time asked_at, gone_at, had_at;
        struct boot_time until, renew_at, retry_at;
        int result;
        struct tenure_switched switched;
};

/* ---- switchover.c ---- */

void switching_soon(struct switching *s);
void switching_go_to(struct switching *s, enum switching_state state);
/* Tries the present step again after a while. */
void switching_again(struct switching *s);
/* Ends the switchover with @result; the sentence is in the call. */
void switching_end(struct switching *s, int result);
void switching_no_memory(struct switching *s);

/* A transaction, with what each of its operations has read. -ECANCELED: its conditions did not
 * hold. */
extern const struct call_kind switching_txn;
/* Sends a request, which may be done twice without harm; tries again later if there is no
 * memory. Until @done gets the answer, the call is in `sub`. */
void switching_ask(struct switching *s, const struct call_kind *kind, const ProtobufCMessage *q,
                   call_done_fn done);
void switching_ask_packed(struct switching *s, const struct call_kind *kind,
                          const struct buf *request, call_done_fn done);
/* Takes the result. Returns false if there is none: then the switchover has ended, or the step
 * is tried again. */
bool switching_has_answer(struct switching *s, struct tenure_call *c, int *ret);

bool switching_is_key(const struct tenure_kv *kv, const void *key, size_t len);
bool switching_is_target(const struct switching *s, const struct tenure_kv *kv);
bool switching_is_holder(const struct switching *s, const struct tenure_kv *kv);
/* Returns false if out of memory. */
bool switching_set_holder(struct switching *s, const struct tenure_kv *kv);

/* ---- switchover_look.c ---- */

/* An operation that gets @key, and one that gets the @n eldest keys of the lock. */
void switching_get_op(Pb__RequestOp *op, Pb__RangeRequest *g, const struct buf *key);
void switching_first_op(Pb__RequestOp *op, Pb__RangeRequest *g, const struct buf *from,
                        const struct buf *to, int64_t n);

void switching_look(struct switching *s);
void switching_look_for_target(struct switching *s);
void switching_look_between(struct switching *s);
void switching_look_whose(struct switching *s);

/* ---- switchover_request.c ---- */

void switching_grant(struct switching *s);
void switching_make_request(struct switching *s);
void switching_wait(struct switching *s, struct boot_time now);
void switching_check(struct switching *s);
void switching_withdraw(struct switching *s);
/* The target has the lock. */
void switching_succeed(struct switching *s);
/* The request's lease. */
void switching_renew(struct switching *s, struct boot_time now);
