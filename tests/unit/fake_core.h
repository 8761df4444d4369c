/*
 * A core for one connection at a time, on a loopback port, that answers as the test tells it
 * to: for events that a real core has once a year. It runs in the test's own thread: call
 * fake_turn() between the turns of the library.
 */
#pragma once

#include "rpc/conn.h"
#include "tenure/calls.h"
#include "test.h"

enum fake_does { FAKE_ANSWERS, FAKE_HANGS_UP, FAKE_IS_SILENT, FAKE_REFUSES, FAKE_IS_LATE };

struct fake {
        char url[64];
        const char *user; /* that ties log in as; NULL: none */
        uint64_t cluster;
        int64_t revision;
        bool extended;          /* as a tenure-core */
        const char *lease_name; /* that it repeats; NULL: it skips names */
        size_t lease_name_more; /* bytes of it behind its first zero byte, which is one */
        const char *owner;      /* a further key on each lease; NULL: none */
        uint64_t leader;
        enum fake_does does; /* with the next call that is no Status and no watch */
        unsigned times;      /* so often; then it answers */
        bool one_by_one;     /* refuses one call in a turn */
        enum rpc_code code;
        const char *text;

        /* Requests so far. */
        unsigned logins, statuses, ranges, puts, txns, creates, cancels, connections;
        struct buf txn;           /* the last one's request */
        int64_t start, id;        /* of the watch that was asked for last */
        int64_t asked_at;         /* the revision at which that was */
        struct rpc_call *watch;   /* the stream; NULL: none */
        Pb__TxnResponse *outcome; /* what the next transaction answers; NULL: it succeeds */
        Pb__RangeResponse
                *content;     /* what a range answers, but for the header; NULL: nothing */
        bool create_silently; /* the test decides the outcome of a watch */
        /* Cache leases: the term that is given, -1: the test answers, or there is no such
         * stream; the last request, and what was given back. */
        int64_t term_ms;
        struct rpc_call *cache; /* the stream; NULL: none */
        unsigned cached, returned;
        int64_t cache_id;
        bool have;
};
extern struct fake fake;

void fake_begin(void);
void fake_end(void);
void fake_turn(void);
void fake_hang_up(void);
/* Answers the put that was late: it was done when it came. */
void fake_answer_late(void);
/* Sends @p on the stream, with its header. */
void fake_tell(Pb__WatchResponse *p);

/* Like fake_tell(), on the stream of cache leases. */
void fake_tell_cache(Pb__CacheResponse *p);

/* A tie to it, that is started. */
struct tenure *fake_tie(void);
/* Turns of both until @done, or a test fails. */
void fake_until(struct tenure *t, bool (*done)(void *arg), void *arg);
/* So many turns. */
void fake_turns(struct tenure *t, unsigned n);
/* Its result. */
int fake_result(struct tenure *t, struct tenure_call *c);
