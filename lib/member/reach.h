/*
 * Decides whether to connect to an endpoint, and whether it still answers: waits after a
 * failure, and longer after the next; limits the time that a connection may take; sends PINGs
 * on one that is up, so that a half-open connection is found within seconds, and sooner on
 * request. While data arrives, an answer that is still missing waits behind it, on a slow link
 * for as long as the data takes. Pure: its owner has the connection, and calls reach_run() at
 * `when`. Embedded.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

struct reach;

/* What the owner does. */
struct reach_ops {
        /* Begins to connect; reach_up() or reach_failed() follows. */
        void (*connect)(struct reach *r);
        /* The connection was accepted, and TLS is under way. */
        bool (*is_greeting)(const struct reach *r);
        /* Closes the connection, however far it has got. */
        void (*close)(struct reach *r);
        /* Sends a PING. Returns 0 or -ENOMEM. */
        int (*ping)(struct reach *r);
        /* How many PINGs were answered on this connection. */
        uint64_t (*pongs)(const struct reach *r);
        /* The connection is closed: it was up, or could not be made. */
        void (*down)(struct reach *r, bool was_up, const char *why);
        /* The endpoint is up, but did not answer a probe in time, or is suspected. */
        void (*silent)(struct reach *r);
};

struct reach {
        const struct reach_ops *ops;
        enum { REACH_DOWN, REACH_CONNECTING, REACH_UP } state;
        struct boot_time when; /* when to call reach_run() next; BOOT_TIME_NEVER: not at all */
        struct boot_time tried_at; /* when it last began to connect ... */
        struct boot_time up_at;    /* ... and was connected */
        nsec_t backoff;
        bool wanted;
        bool greeting;  /* TLS is under way, which has a longer limit than connecting */
        bool probing;   /* `when` is the end of a probe's time */
        bool silent;    /* see reach_probe() */
        bool heard;     /* something has arrived since the last PING, or since this was read */
        uint64_t pings; /* sent on this connection */
        char failing[256]; /* why the next reach_run() ends the connection; "": it does not */
};

void reach_init(struct reach *r, const struct reach_ops *ops);

/* Does what is due at `when`; does nothing before that. */
void reach_run(struct reach *r, struct boot_time now);

/* Connects, unless it is connected, connecting, or waiting after a failure. */
void reach_want(struct reach *r, struct boot_time now);

/* Like reach_want(), but the next attempt begins @pace after the last one began, however many
 * have failed. An attempt that hangs for twice @pace is restarted: a host that has returned
 * answers a new one at once. */
void reach_hurry(struct reach *r, struct boot_time now, nsec_t pace);

/* Begins a new connection at once, if one is wanted, connecting or up. */
void reach_again(struct reach *r, struct boot_time now);

/* Limits the present step of connecting to @limit from @now on. */
void reach_limit(struct reach *r, struct boot_time now, nsec_t limit);

/* The endpoint is connected, and may be used. */
void reach_up(struct reach *r, struct boot_time now);

/* The connection has ended or must end: at once; or with the next reach_run(), for callers that
 * run inside a handler of the connection. */
void reach_failed(struct reach *r, struct boot_time now, const char *why);
void reach_fail_soon(struct reach *r, struct boot_time now, const char *why);

/* The endpoint, which is up, takes no more calls on its connection: the next reach_run()s
 * connect again, at once if it was up for a while. Its owner keeps the present connection
 * apart, for the calls on it; `close` and `down` are not called. */
void reach_leaves(struct reach *r, struct boot_time now);

/* The endpoint has sent something. */
void reach_heard(struct reach *r, struct boot_time now);

/* Checks whether an endpoint that is up still answers. If it does not answer @within that time,
 * or within the time between two PINGs, or is suspected, it is silent, until something comes
 * from it or its connection is given up. */
void reach_probe(struct reach *r, struct boot_time now, nsec_t within);
void reach_suspect(struct reach *r, struct boot_time now);
