/* What the files of tenure/ share. Not for others. */
#pragma once

#include <bsd/sys/queue.h>
#include <stdio.h>

#include "client/client.h"
#include "tenure/agent.h"
#include "tenure/hold.h"
#include "tenure/lock.h"
#include "tenure/tenure.h"
#include "tenure/work.h"

/* An event in the queue, with all that it points to. */
struct queued {
        TAILQ_ENTRY(queued) entry;
        struct tenure_event event;
        struct tenure_node node;
        struct tenure_service service;
        struct tenure_kv kv, before;
        void (*left)(struct queued *q); /* it is taken; NULL: nobody wants to know */
        void *owner;                    /* for that one */
        LIST_ENTRY(queued) of_owner;    /* the owner's: to take it back */
        void *handle; /* what is not there any more: freed with the event that has it, so that
                         nothing new is at its address before; owned */
        size_t used, size; /* of `text` */
        char text[];       /* what the strings above point to */
};
TAILQ_HEAD(queued_list, queued);

struct tenure {
        /* Not 0 in the process that made the tie, 0 in its children: a page that the kernel
         * clears there. What that process gives back, a child would still believe in. */
        uint8_t *ours;
        struct loop *loop;
        int fd;              /* the loop's, for whoever waits for it */
        struct loop_io wake; /* its descriptor is readable while there is something to do that
                                nobody else says */
        int wake_fd;
        bool awake;
        char *endpoints, *cluster, *ca, *cert, *key, *user,
                *password; /* owned; NULL: default */
        bool started;
        unsigned follow;
        struct tls *tls;
        struct client *client; /* from tenure_start() on */
        struct calls *calls;
        struct watches *watches;
        struct caches *caches;
        struct agent_tie agent;
        struct registration_list registrations;
        struct hold hold;
        struct lock_list locks;
        struct loop_hook locks_hook;
        struct work_list works;
        struct loop_hook works_hook;
        struct queued_list events;
        struct queued *popped; /* what tenure_pop_event() gave last */
        int broken;            /* a negative errno: an event could not be kept */
        /* What was looked up last. */
        struct tenure_node found_node;
        struct tenure_service found_service;
        struct service_record found_record;
        char error[512];
};

/* ---- tenure.c ---- */

static inline bool tenure_is_ours(const struct tenure *t)
{
        return *(const volatile uint8_t *) t->ours;
}

/* Keeps the sentence for tenure_error(), and returns @r. */
must_check_ int tenure_fail(struct tenure *t, int r, const char *fmt, ...) printf_(3, 4);

/* Random bytes, and 128 random bits as text, or a negative errno with its sentence. */
#define DRAWN_ID (32 + 1)
must_check_ int tenure_draw(struct tenure *t, void *to, size_t n);
must_check_ int tenure_draw_id(struct tenure *t, char to[static DRAWN_ID]);

/* The descriptor becomes readable: something has been asked for from outside of dispatch. */
void tenure_wake(struct tenure *t);

/* The cluster's name in the keys; "" while it is not known. */
const char *tenure_cluster(const struct tenure *t);

/* The agent has announced it, and @urls: where nobody else has said so, that is where we ask.
 */
must_check_ int tenure_core_is_at(struct tenure *t, const char *cluster, const char *urls);

/* ---- events.c ---- */

/* A new event with room for @text bytes of strings; NULL, and the tie is broken, when there is
 * no memory. queue_text() and queue_bytes() copy into it; queue_event() puts it at the end. */
struct queued *queue_new(struct tenure *t, enum tenure_event_type type, size_t text);
/* The same for what can be had again: only NULL. */
struct queued *queue_try(enum tenure_event_type type, size_t text);
const char *queue_text(struct queued *q, const char *s);
const void *queue_bytes(struct queued *q, const void *p, size_t n); /* with a NUL behind */
void queue_event(struct tenure *t, struct queued *q);
/* The end of what the program knows by @handle, with @q, its last event: it is compared with
 * until the event after that is taken, and is freed then. @q NULL: at once. */
void queue_last(struct tenure *t, struct queued *q, void *handle);
/* Takes back one that is in line, and frees it. */
void queue_take_back(struct tenure *t, struct queued *q);
void queue_fini(struct tenure *t);

/* ---- register.c ---- */

/* What was registered before tenure_start(). */
must_check_ int register_start(struct tenure *t);

/* ---- follow.c ---- */

extern const struct member_events follow_events;
