/*
 * Decides whether to connect to an endpoint, and whether it still answers: waits after a
 * failure, and longer after the next; limits the time that a connection may take; sends PINGs
 * on one that is up, so that a half-open connection is found within seconds, and sooner on
 * request. Pure: its owner has the connection, and calls again at the time it names. Embedded.
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

struct reach;

/* What its owner does. */
struct reach_ops {
        /* Begins to connect: reach_up(), or reach_failed(), follows. */
        void (*connect)(struct reach *r);
        /* It was accepted, and TLS is under way. */
        bool (*is_greeting)(const struct reach *r);
        /* Closes what there is of a connection. */
        void (*close)(struct reach *r);
        /* Sends a PING. Returns 0 or -ENOMEM. */
        int (*ping)(struct reach *r);
        /* How many were answered on this connection. */
        uint64_t (*pongs)(const struct reach *r);
        /* It is closed: it was up, or was not to be. */
        void (*down)(struct reach *r, bool was_up, const char *why);
        /* It is up, and has not answered a probe in time, or is suspected. */
        void (*silent)(struct reach *r);
};

struct reach {
        const struct reach_ops *ops;
        enum { REACH_DOWN, REACH_CONNECTING, REACH_UP } state;
        struct boot_time when; /* to come by; BOOT_TIME_NEVER: there is nothing to do */
        struct boot_time up_at;
        nsec_t backoff;
        bool wanted;
        bool greeting;     /* has more time than to be accepted */
        bool probing;      /* `when` is the end of a probe's time */
        bool silent;       /* see reach_probe() */
        uint64_t pings;    /* sent on this connection */
        char failing[256]; /* why it ends when its owner comes by next; "": it does not */
};

void reach_init(struct reach *r, const struct reach_ops *ops);

/* The time `when` has come; nothing otherwise. */
void reach_run(struct reach *r, struct boot_time now);

/* Connects, unless it is connected, connecting, or waiting after a failure. */
void reach_want(struct reach *r, struct boot_time now);

/* Begins a new connection at once, where one is wanted, connecting or up. */
void reach_again(struct reach *r, struct boot_time now);

/* What is being done to connect may take so long from now on. */
void reach_limit(struct reach *r, struct boot_time now, nsec_t limit);

/* It is connected, and may be used. */
void reach_up(struct reach *r, struct boot_time now);

/* It has ended, or has to; the other one: as soon as nobody is inside of it. */
void reach_failed(struct reach *r, struct boot_time now, const char *why);
void reach_fail_soon(struct reach *r, struct boot_time now, const char *why);

/* Something came. */
void reach_heard(struct reach *r, struct boot_time now);

/* Asks one that is up whether somebody is still there. Who does not say so within that time is
 * silent, until he says something or is given up; so is one that is suspected. */
void reach_probe(struct reach *r, struct boot_time now, nsec_t within);
void reach_suspect(struct reach *r, struct boot_time now);
