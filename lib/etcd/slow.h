/* Calls that read the whole state: one slice at a time, with other work in between. Not for
 * others. */
#pragma once

#include "etcd/internal.h"

#define SLOW_SLICE ((size_t) 512 << 10) /* bytes, or so */

struct slow;

struct slow_ops {
        /* Starts, or starts again; may answer the request. */
        void (*begin)(struct slow *s);
        /* Returns 0; -ESTALE when the state that it looks at is gone; or -ENOMEM. May answer
         * the request, which ends it. */
        int (*run)(struct slow *s);
        void (*fini)(struct slow *s);
};

/* Embedded in what the call keeps. */
struct slow {
        struct line_place place;
        struct request *q;
        const struct slow_ops *ops;
        struct boot_time at;
        uint64_t installs;
        size_t kept; /* see slow_keep() */
        bool unkept; /* there was no room for it */
};

/* From now on @s goes with the request. slow_adopt() is the same for one that has begun: it is
 * called when it is queued, see slow_queue(). */
void slow_start(struct slow *s, struct request *q, const struct slow_ops *ops);
void slow_adopt(struct slow *s, struct request *q, const struct slow_ops *ops);

/* It is over, and the request goes on without it. */
void slow_end(struct slow *s);

/* It has its turns from now on, or none until it is queued again. */
void slow_queue(struct slow *s);
void slow_unqueue(struct slow *s);

/* What the call holds, whether its client reads or not, is so much. Where those who share an
 * account, or all, keep too much, the request fails, which ends @s, and it returns false; but
 * one such call there may always be. */
bool slow_keep(struct slow *s, size_t bytes);
/* From now on its reader decides how long it is held: rpc_call_charge() says how much. */
void slow_drop_kept(struct slow *s);

/* Another replica's snapshot has taken the place of the state since `begin`. */
bool slow_is_stale(const struct slow *s);
