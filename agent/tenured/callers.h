/*
 * D-Bus calls that are not answered at once: which connection asked, for which user, and
 * whether it is still there. The number of such calls is bounded for each user, whatever the
 * number of his connections; calls of a connection that has gone are dropped. Nothing here
 * waits.
 */
#pragma once

#include <bsd/sys/queue.h>
#include <systemd/sd-bus.h>

#include "loop/loop.h"

/* What a call waits for; each kind has its own limit for a user. */
enum call_kind { CALL_LISTING, CALL_REVISION, CALL_PERMISSION, CALL_TENANCY, N_CALL_KINDS };

struct caller;
struct kept_call;
TAILQ_HEAD(kept_list, kept_call);

/* Embedded in a struct of the owner of the call. */
struct kept_call {
        TAILQ_ENTRY(kept_call) of_caller;
        struct caller *caller;
        sd_bus_message *m; /* owned */
        enum call_kind kind;
        bool counted; /* the user is known, and the call counts for it */
        /* The user is known, and within the limit. */
        void (*go)(struct kept_call *k);
        /* The caller is gone or was refused: free it after callers_drop(). */
        void (*end)(struct kept_call *k);
};

struct callers {
        sd_bus_slot *match; /* while there are callers: reports connections that leave the
                             * bus */
        TAILQ_HEAD(caller_list, caller) list;
        struct caller_list idle; /* without calls at present; the one that has been idle longest
                                  * comes first */
        size_t n_idle;
        struct loop_timer timer;
        TAILQ_HEAD(user_list, user) users;
};

void callers_init(struct callers *c, struct loop *l);

/* The connection to the bus is about to close: ends all calls. */
void callers_forget(struct callers *c);

/* Keeps @m, a call from the bus; go() or end() follows, go() possibly from within this
 * function. Returns 1, as a method's handler does, or a negative errno: then @k is not kept. */
must_check_ int callers_keep(struct callers *c, struct kept_call *k, sd_bus_message *m,
                             enum call_kind kind, void (*go)(struct kept_call *k),
                             void (*end)(struct kept_call *k));

/* Forgets the call, which was answered or has ended. */
void callers_drop(struct kept_call *k);

/* Valid from go() on. */
uid_t callers_uid(const struct kept_call *k);
const char *callers_name(const struct kept_call *k);
