/*
 * What the files of watch*.c share. Not for others.
 *
 * A watch follows a feed. A feed goes through the history once for all watches that follow it:
 * it takes some revisions, looks up in the index which watches want each event, and sends.
 * Watches of one range form a group, whose responses are packed once. One feed serves the
 * watches that are up to date; passes bring the others up to date: one pass for near revisions,
 * so that a watch that is a moment late does not wait for a pass from far back, and one for the
 * rest. The work of a feed in one turn of the loop is bounded; it goes on in the next.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "etcd/internal.h"
#include "etcd/watch_index.h"

TAILQ_HEAD(watch_list, watch);
RB_HEAD(watch_ids, watch);

struct watch {
        RB_ENTRY(watch) by_id;   /* of its stream */
        TAILQ_ENTRY(watch) next; /* in the list that `in` names */
        struct watch_list *in;   /* a group's, a feed's `waiting`, or its stream's `blocked` */
        TAILQ_ENTRY(watch) by_sent;
        struct watch_stream *stream;
        struct watch_feed *feed; /* that it follows, in `group`; NULL while it waits */
        struct watch_group *group;
        int64_t id;
        struct kv_span span;   /* of `bytes` */
        int64_t next_revision; /* it wants nothing before this, nor what its feed has passed...
                                */
        size_t n_sent;         /* ...nor, of that revision, so many events of its group */
        uint64_t batch;        /* of its feed: the last in which it was looked up */
        bool prev_kv, no_put, no_delete, progress_notify, fragment;
        bool in_parts;            /* the last response said that another part follows */
        struct boot_time sent_at; /* when it last got a response */
        uint8_t bytes[];
};

/* For how many events a group keeps its memory for the next batch. */
#define WATCH_EVENTS_KEPT 8

/* The watches of one feed that cover the same range. */
struct watch_group {
        struct watch_range range; /* its bytes are those of one of the watches */
        struct watch_list watches;
        TAILQ_ENTRY(watch_group) next; /* while it has events */
        const struct kv_version **events;
        size_t n_events, events_cap;
        size_t bytes, prev_bytes; /* of them, and of what was there before, where some... */
        bool wants_prev;          /* ...watch wants that, or did */
};

enum watch_feed_state {
        FEED_IDLE,
        FEED_GATHERS, /* up to `at`, the events of the batch that begins with `next` */
        FEED_SENDS,   /* them, to the groups in `touched` */
};

/* A response without its watch_id, for all watches of a group with the same options. */
struct watch_pack {
        struct buf bytes;
        size_t at;  /* so many events of the group were looked at... */
        size_t n;   /* ...and so many are in it */
        bool begun; /* some were wanted */
};

struct watch_feed {
        struct watch_hub *hub;
        struct watch_index groups;
        struct watch_list waiting; /* for a pass that begins early enough */
        enum watch_feed_state state;
        bool fresh;     /* nothing was sent yet: it may still begin earlier */
        int64_t next;   /* all before it has been sent */
        int64_t upto;   /* the end of the batch; a watch that wants later ones only may join */
        int64_t at;     /* of the revision that is being gathered... */
        size_t at_n;    /* ...so many events have been */
        size_t bytes;   /* of the events in the batch, as far as they are wanted */
        uint64_t batch; /* its number */
        int64_t compacted; /* of the history from which it was gathered, which must not... */
        uint64_t installs; /* ...have changed */
        TAILQ_HEAD(, watch_group) touched;
        struct watch_group *packs_of; /* NULL: none */
        struct watch_pack packs[8];   /* by what watches of one range may want */
};

enum { FEED_NOW, FEED_NEAR, FEED_FAR, N_FEEDS };

struct watch_stream {
        LIST_ENTRY(watch_stream) next;
        LIST_ENTRY(watch_stream) by_blocked; /* while `blocked` has any */
        LIST_ENTRY(watch_stream) by_asked;   /* while `progress_asked` */
        struct watch_hub *hub;
        struct rpc_call *call; /* NULL: it has ended, and its watches are freed in slices */
        struct identity who;   /* as of the last watch that was created */
        bool waits;            /* until this replica knows the present revision */
        struct buf held;       /* the request that does */
        struct watch_ids watches;
        struct watch_list blocked; /* which wait for the client to read */
        size_t n_behind;           /* of its watches, those that are not up to date */
        int64_t next_id;
        bool progress_asked;
};

struct watch_hub {
        struct api *api;
        struct watch_feed feeds[N_FEEDS];
        LIST_HEAD(, watch_stream) streams, blocked, asked;
        LIST_HEAD(, watch_stream) leaving; /* which have no call any more */
        struct watch_list by_sent;     /* those that want progress, sent to longest ago first */
        uint64_t auth_seen;            /* auth_version() when permissions were last checked */
        struct watch_stream *check_at; /* the stream whose turn it is in a check; NULL: none */
        int64_t check_id;              /* the id from which on */
        struct core_read now;          /* what streams wait for */
        bool waited_for, asking;
        struct boot_time next, passes_at, blocked_at;
        struct boot_time leaderless_since;
        struct watch_counts counts;
};

/* What may be done in one turn, in steps of roughly 50 ns. */
struct watch_budget {
        int64_t left;
};

RB_PROTOTYPE(watch_ids, watch, by_id, watch_id_cmp)

/* ---- watch.c ---- */

void watch_respond(struct watch_stream *s, Pb__WatchResponse *p);
void watch_free(struct watch *w);
/* Notifies the client, and frees @w. */
void watch_cancel(struct watch *w, const char *why, int64_t compacted);
/* Something was sent to @w just now. */
void watch_note_sent(struct watch *w, struct boot_time now);

/* ---- watch_feed.c ---- */

void watch_feeds_init(struct watch_hub *h);

/* A new watch, or one that was blocked, goes where it is served next. */
void watch_place(struct watch *w);
/* Takes it out of wherever it is. */
void watch_unplace(struct watch *w);

/* Sends a slice of everything there is to send. Returns true when the watches that are up to
 * date have been sent all events, and sets h->next for the rest. */
bool watch_feeds_run(struct watch_hub *h, struct boot_time now, struct watch_budget *b);

/* @w wants nothing before @next from now on. */
void watch_pass(struct watch *w, int64_t next);

/* ---- watch_send.c ---- */

enum watch_sent {
        WATCH_SENT,
        WATCH_MORE, /* the budget was not enough: the same call goes on */
        WATCH_FULL, /* its client has to read first: w->next_revision says where it goes on */
};

/* Sends the events of @g from revision @from on to @w, one of its watches, as far as it wants
 * them. Charges the budget. */
must_check_ enum watch_sent watch_send(struct watch *w, struct watch_group *g, int64_t from,
                                       struct boot_time now, struct watch_budget *b);
/* A stream with so many bytes queued gets no more events. */
#define WATCH_QUEUED_HIGH ((size_t) 1 << 20)
/* Discards the responses packed so far. */
void watch_packs_clear(struct watch_feed *f);
