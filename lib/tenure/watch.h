/* Shared by watch.c, watch_begin.c and watch_report.c; not for use elsewhere. */
#pragma once

#include "base/tree.h"
#include "tenure/call_stream.h"

struct tenure_watch {
        RB_ENTRY(tenure_watch) by_id;
        TAILQ_ENTRY(tenure_watch) entry; /* of all, or of those to be made */
        TAILQ_ENTRY(tenure_watch) of_open;
        struct watches *watches;
        struct buf key, end;
        LIST_HEAD(, queued) events; /* in line to be taken */
        int64_t id;                 /* on the stream; 0: it is not on the stream */
        watch_sink_fn sink;         /* called instead of queueing events, unless NULL */
        void *arg;
        bool breaks; /* it ends with the stream */
        bool before;
        bool fresh;    /* to be made on the stream; in that list */
        bool anchored; /* `whole` is known: requested, or set by the confirmation */
        bool over;     /* it has ended, which was reported */
        bool made;     /* the core has confirmed that it is on this stream */
        bool refused;  /* once, because of a login that may have ended */
        int64_t whole; /* everything up to this revision has been reported */
        int64_t last;  /* the revision of the last change on this stream or, before the first
                          one, the revision to begin with */
        /* The revision of which more may come in another message: its number, how many of its
         * changes have been reported, and a hash of their keys, in order to continue after
         * them. */
        int64_t part;
        uint64_t reported, skip;
        uint64_t keys, skipped;
        /* For a watch without a start revision, while answers to calls may show that it has to
         * begin earlier: the number of the last call before it, and of the last one before it
         * was confirmed; the first revision that it has to report, as far as the answers show
         * (0: they do not); and the revision after which it began. */
        bool open;
        uint64_t asked, until;
        int64_t first, began;
};
TAILQ_HEAD(watch_list, tenure_watch);
RB_HEAD(watches_by_id, tenure_watch);

struct watches {
        struct tenure *tenure;
        struct watch_list there; /* on the stream, or over */
        struct watch_list fresh; /* to be made on it */
        struct watch_list open;  /* may have to begin earlier */
        struct watches_by_id ids;
        struct buf asked; /* ids of watches that were requested and not confirmed, in order */
        struct call_stream stream;
        struct boot_time held_at;
        bool held;     /* nothing is read from the stream */
        size_t queued; /* bytes of events in line */
        int64_t id;    /* the last one */
        int64_t seen;  /* the highest revision that any replica of our core has reported */
        struct boot_time answer_by; /* of the oldest of `asked` */
        struct boot_time progress_at;
        struct tenure_call *doubt; /* is the core behind what it has reported? */
        int64_t floor;             /* which was this */
};

/* ---- watch.c ---- */

/* Sets the watch's id on the stream (0: not there); and whether it is to be made there. */
void watch_set_id(struct tenure_watch *w, int64_t id);
void watch_set_fresh(struct tenure_watch *w, bool fresh);
/* Cancels the watch on the stream, without ending it. */
void watch_take_back(struct tenure_watch *w);

/* ---- watch_begin.c ---- */

/* The watch has no start revision: it reports what changes from now on. */
void watch_begins_open(struct tenure_watch *w);
/* The watch keeps the start that it has. */
void watch_settle(struct tenure_watch *w);
/* The core has confirmed the watch, and reports what follows @revision, which the request did
 * not name. The watch may be taken off the stream, and requested again from an earlier
 * revision. */
void watch_is_there(struct tenure_watch *w, int64_t revision);
/* Call it before the request: sets the start, if answers to calls have shown it. */
void watch_make_where_known(struct tenure_watch *w);

/* ---- watch_report.c ---- */

/* Reports those events of @p that were not reported yet. Returns 0; -EBADMSG if an event is
 * malformed or out of order; or -ENOMEM. After an error, what follows the last event in the
 * queue must be fetched again. */
must_check_ int watch_report(struct tenure_watch *w, const Pb__WatchResponse *p);
/* Reports the end of the watch, once. */
void watch_end(struct tenure_watch *w, int error, int64_t revision, const char *why);
/* The event was taken, or dropped. */
void watch_event_left(struct queued *q);
