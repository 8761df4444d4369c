/* Calls that read the whole state: one slice at a time, with other work in between. Not for
 * other folders. */
#pragma once

#include "etcd/internal.h"

#define SLOW_SLICE ((size_t) 512 << 10) /* bytes, roughly */

struct slow;

struct slow_ops {
        /* Starts, or starts again; may answer the request. */
        void (*begin)(struct slow *s);
        /* Returns 0; -ESTALE when the state that it reads is gone; or -ENOMEM. May answer the
         * request, which ends it. */
        int (*run)(struct slow *s);
        void (*fini)(struct slow *s);
};

/* Embedded in the data of the call. */
struct slow {
        struct line_place place;
        struct request *q;
        const struct slow_ops *ops;
        struct boot_time at;
        uint64_t installs;
        size_t kept; /* see slow_keep() */
        bool unkept; /* there was no room for it */
};

/* Attaches @s to the request. slow_adopt() is the same for a call that has begun: it runs once
 * it is queued, see slow_queue(). */
void slow_start(struct slow *s, struct request *q, const struct slow_ops *ops);
void slow_adopt(struct slow *s, struct request *q, const struct slow_ops *ops);

/* Ends @s; the request continues without it. */
void slow_end(struct slow *s);

/* slow_queue(): @s takes turns from now on. slow_unqueue(): it gets none until it is queued
 * again. */
void slow_queue(struct slow *s);
void slow_unqueue(struct slow *s);

/* Sets how many bytes the call holds whether its client reads or not. If the calls that share
 * its account, or all calls, keep too much, the request fails, which ends @s, and this returns
 * false; but one such call is always allowed. */
bool slow_keep(struct slow *s, size_t bytes);
/* From now on its reader decides how long the bytes are held: rpc_call_charge() sets how
 * many. */
void slow_drop_kept(struct slow *s);

/* A snapshot of another replica has replaced the state since `begin`. */
bool slow_is_stale(const struct slow *s);
