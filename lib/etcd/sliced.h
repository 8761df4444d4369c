/* Calls that read the whole state: one slice at a time, with other work in between. Not for
 * other folders. */
#pragma once

#include "etcd/internal.h"

#define SLICE_BYTES ((size_t) 512 << 10) /* bytes, roughly */

struct sliced;

struct sliced_ops {
        /* Starts, or starts again; may answer the request. */
        void (*begin)(struct sliced *s);
        /* Returns 0; -ESTALE when the state that it reads is gone; or -ENOMEM. May answer the
         * request, which ends it. */
        int (*run)(struct sliced *s);
        void (*fini)(struct sliced *s);
};

/* Embedded in the data of the call. */
struct sliced {
        struct line_place place;
        struct request *q;
        const struct sliced_ops *ops;
        struct boot_time at;
        uint64_t installs;
        size_t kept; /* see sliced_keep() */
        bool unkept; /* there was no room for it */
};

/* Attaches @s to the request. sliced_adopt() is the same for a call that has begun: it runs
 * once it is queued, see sliced_queue(). */
void sliced_start(struct sliced *s, struct request *q, const struct sliced_ops *ops);
void sliced_adopt(struct sliced *s, struct request *q, const struct sliced_ops *ops);

/* Ends @s; the request continues without it. */
void sliced_end(struct sliced *s);

/* sliced_queue(): @s takes turns from now on. sliced_unqueue(): it gets none until it is queued
 * again. */
void sliced_queue(struct sliced *s);
void sliced_unqueue(struct sliced *s);

/* Sets how many bytes the call holds whether its client reads or not. If the calls that share
 * its account, or all calls, keep too much, the request fails, which ends @s, and this returns
 * false; but one such call is always allowed. */
bool sliced_keep(struct sliced *s, size_t bytes);
/* From now on its reader decides how long the bytes are held: rpc_call_charge() sets how
 * many. */
void sliced_drop_kept(struct sliced *s);

/* A snapshot of another replica has replaced the state since `begin`. */
bool sliced_is_stale(const struct sliced *s);
