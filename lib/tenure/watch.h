/* What watch.c and watch_report.c share. Not for others. */
#pragma once

#include "base/tree.h"
#include "tenure/call_stream.h"

struct tenure_watch {
        RB_ENTRY(tenure_watch) by_id;
        TAILQ_ENTRY(tenure_watch) entry; /* of all, or of those to be made */
        struct watches *watches;
        struct buf key, end;
        LIST_HEAD(, queued) events; /* in line to be taken */
        int64_t id;                 /* on the stream; 0: it is not there */
        watch_sink_fn sink;         /* instead of events; NULL: the program's own */
        void *arg;
        bool before;
        bool fresh;    /* to be made on the stream; in that list */
        bool anchored; /* `whole` is known: where it was to begin, or from when on it is there
                        */
        bool over;     /* it has ended, and has said so */
        bool made;     /* the core has said that it is on this stream */
        bool refused;  /* once, by a login that may have ended */
        int64_t whole; /* up to here all has been reported */
        int64_t last;  /* the revision of the last change that came on this stream, or, before
                          one has, from which on they are to come */
        /* Of a revision of which more may come in another message: which, how many changes have
         * been reported, and of what keys, so as to go on behind them. */
        int64_t part;
        uint64_t reported, skip;
        uint64_t keys, skipped;
};
TAILQ_HEAD(watch_list, tenure_watch);
RB_HEAD(watches_by_id, tenure_watch);

struct watches {
        struct tenure *tenure;
        struct watch_list there; /* on the stream, or over */
        struct watch_list fresh; /* to be made on it */
        struct watches_by_id ids;
        struct buf asked; /* ids that were to be made and are not answered, in order */
        struct call_stream stream;
        struct boot_time held_at;
        bool held;                  /* nothing is read from the stream */
        size_t queued;              /* bytes of events in line */
        int64_t id;                 /* the last one */
        int64_t seen;               /* the highest revision that any core of ours has said */
        struct boot_time answer_by; /* of the oldest of `asked` */
        struct boot_time progress_at;
        struct tenure_call *doubt; /* is the core behind what it has said? */
        int64_t floor;             /* which was this */
};

/* ---- watch.c ---- */

/* Its id on the stream, 0: it is not there; and whether it is to be made there. */
void watch_set_id(struct tenure_watch *w, int64_t id);
void watch_set_fresh(struct tenure_watch *w, bool fresh);

/* ---- watch_report.c ---- */

/* The events of @p that have not been reported. Returns 0, or -ENOMEM, or -EBADMSG where there
 * is no sense in one: what follows the last one that was put in line is to be had again. */
must_check_ int watch_report(struct tenure_watch *w, const Pb__WatchResponse *p);
/* The last event of it, once. */
void watch_end(struct tenure_watch *w, int error, int64_t revision, const char *why);
/* It is taken, or taken back. */
void watch_event_left(struct queued *q);
