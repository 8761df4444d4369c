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
        watch_sink_fn sink;         /* called instead of queueing events; NULL: queue them */
        void *arg;
        bool breaks; /* it ends with the stream */
        bool before;
        bool fresh;    /* to be made on the stream; in that list */
        bool anchored; /* `whole` is known: where it was to begin, or from when on it is there
                        */
        bool over;     /* it has ended, which was reported */
        bool made;     /* the core has confirmed that it is on this stream */
        bool refused;  /* once, because of a login that may have ended */
        int64_t whole; /* everything up to this revision has been reported */
        int64_t last;  /* the revision of the last change on this stream or, before the first
                          one,  the revision from which they are to come */
        /* The revision of which more may come in another message: its number, how many of its
         * changes have been reported, and a hash of their keys, in order to continue after
         * them. */
        int64_t part;
        uint64_t reported, skip;
        uint64_t keys, skipped;
        /* For a watch from now on, while answers may say that it has to begin earlier: the
         * number of the last call before it, and of the last one before it was confirmed; the
         * first revision that it has to report, as far as the answers say (0: they do not); and
         * after which one it began. */
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

/* Sets the watch's id on the stream (0: not there); and whether it is to be made there. */
void watch_set_id(struct tenure_watch *w, int64_t id);
void watch_set_fresh(struct tenure_watch *w, bool fresh);
/* Tells the core that the watch, which is on the stream, is not wanted there. */
void watch_take_back(struct tenure_watch *w);

/* ---- watch_begin.c ---- */

/* The watch is one from now on. */
void watch_begins_open(struct tenure_watch *w);
/* Where it began does not change any more. */
void watch_settle(struct tenure_watch *w);
/* The core has confirmed it, from after this revision on, which it did not ask for. It may be
 * taken off the stream, and requested again from an earlier one. */
void watch_is_there(struct tenure_watch *w, int64_t revision);
/* Before it is requested: from where on, if answers have said that. */
void watch_make_where_known(struct tenure_watch *w);

/* ---- watch_report.c ---- */

/* Reports those events of @p that were not reported yet. Returns 0; -EBADMSG if an event makes
 * no sense; or -ENOMEM. After an error, what follows the last event in the queue must be
 * fetched again. */
must_check_ int watch_report(struct tenure_watch *w, const Pb__WatchResponse *p);
/* Reports the end of the watch, once. */
void watch_end(struct tenure_watch *w, int error, int64_t revision, const char *why);
/* The event was taken, or dropped. */
void watch_event_left(struct queued *q);
