/*
 * How much data may be under way on a link to a peer. Heartbeats wait behind it on the same
 * connection, so it must not keep a slow link busy for longer than they may be delayed.
 *
 * The window doubles if what was acknowledged last shows that twice as much takes less than
 * `delay`. It is halved if that took longer than `delay`, beyond the shortest time that it ever
 * took on this link, which is the link's own (RFC 6817, LEDBAT, measures the delay of a queue
 * in the same way). Pure.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

struct link_window {
        size_t most;  /* its upper limit */
        nsec_t delay; /* 0: it has the upper limit at all times */
        size_t bytes;
        uint64_t put;              /* bytes that were queued on this link so far ... */
        uint64_t acked;            /* ... and that were seen to be acknowledged */
        uint64_t timed;            /* `put` behind those that are being timed; 0: none are */
        uint64_t behind;           /* at least so many bytes were not acknowledged with them */
        struct boot_time timed_at; /* when they were queued */
        struct boot_time asked_at; /* when they were last seen not to be acknowledged */
        nsec_t least;              /* the shortest time so far; 0: not known */
        bool filled;               /* there was no room since it was last adapted */
};

/* A new link is up. */
void link_window_open(struct link_window *w, size_t most, nsec_t delay);

/* @n bytes were queued. */
void link_window_put(struct link_window *w, size_t n, struct boot_time now);

/* Whether it has to be known how much is not acknowledged by the peer's kernel; otherwise so
 * little was queued since then that it does not matter. */
bool link_window_asks(const struct link_window *w);
void link_window_told(struct link_window *w, size_t unsent, struct boot_time now);

/* How many more bytes may be queued now. */
size_t link_window_room(struct link_window *w);
