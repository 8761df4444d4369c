/*
 * What the files of watch*.c share. Not for other folders.
 *
 * A watch follows a feed. A feed goes through the history once for all watches that follow it:
 * it takes some revisions, looks up in the index which watches match each event, and sends.
 * Watches of one range form a group, whose responses are packed once. One feed serves the
 * watches that are up to date; passes bring the others up to date: one pass for near revisions,
 * so that a watch that is a moment late does not wait for a pass from far back, and one for the
 * rest. The work of a feed in one turn of the loop is bounded; it continues in the next.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "etcd/internal.h"
#include "state/span_index.h"

TAILQ_HEAD(watch_list, watch);
RB_HEAD(watch_ids, watch);

struct watch {
        RB_ENTRY(watch) by_id;   /* in its stream */
        TAILQ_ENTRY(watch) next; /* in the list to which `in` points */
        struct watch_list *in;   /* the list of a group, of `waiting` of a feed, or of `blocked`
                                  * of its stream */
        TAILQ_ENTRY(watch) by_sent;
        struct watch_stream *stream;
        struct watch_feed *feed; /* the feed that it follows, in `group`; NULL while it waits */
        struct watch_group *group;
        int64_t id;
        struct kv_span span;   /* in `bytes` */
        int64_t next_revision; /* it needs no events before this, nor those that its feed has
                                * passed ... */
        size_t n_sent;         /* ... nor, of that revision, the first so many of its group */
        uint64_t batch;        /* of its feed: the last batch in which it was looked up */
        bool prev_kv, no_put, no_delete, progress_notify, fragment;
        bool in_parts;            /* the last response said that another part follows */
        struct boot_time sent_at; /* when it last got a response */
        uint8_t bytes[];
};

/* The number of events for which a group keeps its memory for the next batch. */
#define WATCH_EVENTS_KEPT 8

/* The watches of one feed that cover the same range. */
struct watch_group {
        struct span_entry range; /* its bytes are those of one of the watches */
        struct watch_list watches;
        TAILQ_ENTRY(watch_group) next; /* while it has events */
        const struct kv_version **events;
        size_t n_events, events_cap;
        size_t bytes, prev_bytes; /* of the events, and of the previous values, if a ... */
        bool wants_prev;          /* ... watch needs those, or did */
};

enum watch_feed_state {
        FEED_IDLE,
        FEED_GATHERS, /* gathers the events of the batch that begins with `next` */
        FEED_SENDS,   /* sends them to the groups in `touched` */
};

/* A response without its watch_id, for all watches of a group with the same options. */
struct watch_pack {
        struct buf bytes;
        size_t at;  /* how many events of the group were considered ... */
        size_t n;   /* ... and how many are in it */
        bool begun; /* there was at least one */
};

struct watch_feed {
        struct watch_hub *hub;
        struct span_index groups;
        struct watch_list waiting; /* waiting for a pass that begins early enough */
        enum watch_feed_state state;
        bool fresh;   /* nothing was sent yet, so it may still begin earlier */
        int64_t next; /* everything before it has been sent */
        int64_t upto; /* the end of the batch; only a watch that needs nothing before this may
                       * join */
        struct kv_place place; /* of the event that is gathered next */
        size_t bytes;          /* of the events in the batch that a watch needs */
        uint64_t batch;        /* the number of the batch */
        int64_t compacted;     /* the batch is valid only as long as the history's compacted
                                * revision ... */
        uint64_t installs;     /* ... and this count of installs stay the same */
        TAILQ_HEAD(, watch_group) touched;
        struct watch_group *packs_of; /* NULL: none */
        struct watch_pack packs[8];   /* one for each combination of what watches of one range
                                       * may ask for */
};

enum { FEED_NOW, FEED_NEAR, FEED_FAR, N_FEEDS };

struct watch_stream {
        LIST_ENTRY(watch_stream) next;
        TAILQ_ENTRY(watch_stream) by_blocked; /* linked while `blocked` is not empty */
        LIST_ENTRY(watch_stream)
        by_asked; /* linked while `progress_asked` and none is behind */
        struct watch_hub *hub;
        struct rpc_call *call; /* NULL: it has ended, and its watches are freed in slices */
        struct identity who;   /* when the last watch was created */
        LIST_ENTRY(watch_stream) by_waiting; /* linked while `request` is not empty */
        struct buf request; /* waits until this replica knows the current revision */
        struct watch_ids watches;
        struct watch_list blocked; /* watches that wait for the client to read */
        size_t n_behind;           /* how many of its watches are not up to date */
        int64_t next_id;
        bool progress_asked;
};

struct watch_hub {
        struct api *api;
        struct watch_feed feeds[N_FEEDS];
        LIST_HEAD(, watch_stream) streams, asked;
        LIST_HEAD(, watch_stream) waiting; /* for `now` */
        TAILQ_HEAD(blocked_streams, watch_stream) blocked;
        LIST_HEAD(, watch_stream) leaving; /* streams that have no call any more */
        struct watch_list by_sent;     /* watches with progress notifications, the one that was
                                        * sent something longest ago first */
        uint64_t auth_seen;            /* auth_version() when permissions were last checked */
        struct watch_stream *check_at; /* the stream that is being checked; NULL: none */
        int64_t check_id;              /* the id from which the check continues */
        struct core_read now;          /* the read that `waiting` streams wait for */
        bool asking;
        struct boot_time next, passes_at, blocked_at;
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
/* Adds @s to those that are notified of their progress, or removes it, if it has asked and none
 * of its watches is behind. */
void watch_list_asked(struct watch_stream *s, bool on);
/* Something was sent to @w just now. */
void watch_note_sent(struct watch *w, struct boot_time now);

/* ---- watch_feed.c ---- */

void watch_feeds_init(struct watch_hub *h);

/* Puts a new or unblocked watch where it will be served next. */
void watch_place(struct watch *w);
/* Removes the watch from wherever it is. */
void watch_unplace(struct watch *w);

/* Sends a slice of everything there is to send. Returns true when the watches that are up to
 * date have been sent all events, and sets h->next for the rest. */
bool watch_feeds_run(struct watch_hub *h, struct boot_time now, struct watch_budget *b);

/* @w needs nothing before @next any more. */
void watch_pass(struct watch *w, int64_t next);

/* ---- watch_send.c ---- */

enum watch_sent {
        WATCH_SENT,
        WATCH_MORE, /* the budget was not enough: call it again */
        WATCH_FULL, /* its client has to read first; w->next_revision says where to continue */
};

/* Sends the events of @g from revision @from on to @w, one of its watches, if they match.
 * Charges the budget. */
must_check_ enum watch_sent watch_send(struct watch *w, struct watch_group *g, int64_t from,
                                       struct boot_time now, struct watch_budget *b);
/* The previous value of @v's event, as etcd has it: the one before the transaction, also of a
 * key that the same one has put; NULL: there was none. */
const struct kv_version *watch_prev(const struct kv_version *v);
/* A stream with this many bytes queued gets no more events. */
#define WATCH_QUEUED_HIGH ((size_t) 1 << 20)
/* Discards the responses packed so far. */
void watch_packs_clear(struct watch_feed *f);
