/* Shared by the files of tenure/; not for use elsewhere. */
#pragma once

#include <bsd/sys/queue.h>
#include <stdio.h>

#include "client/client.h"
#include "tenure/hold.h"
#include "tenure/host_agent.h"
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
        void (*left)(struct queued *q); /* called when the event is taken; may be NULL */
        void *owner;                    /* for `left` */
        LIST_ENTRY(queued) of_owner;    /* the owner's list of events that it may drop */
        void *handle; /* a handle that has ended: freed together with this event, so that its
                         address is not used again before; owned */
        size_t used, size; /* of `text` */
        char text[];       /* what the strings above point to */
};
TAILQ_HEAD(queued_list, queued);

struct tenure {
        /* Not 0 in the process that made the tie, and 0 in its children, where the kernel
         * clears this page. A child would not learn what the process gives back. */
        uint8_t *ours;
        struct loop *loop;
        int fd;              /* the loop's, for tenure_get_fd() */
        struct loop_io wake; /* readable while there is something to do that no other descriptor
                                signals */
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
        struct queued *popped; /* what tenure_pop_event() returned last */
        int broken;            /* a negative errno: an event was lost */
        /* The results of the last look-ups. */
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

/* Makes the descriptor readable, because there is something to do outside of tenure_dispatch().
 */
void tenure_wake(struct tenure *t);

/* The cluster's name in the keys; "" while it is not known. */
const char *tenure_cluster(const struct tenure *t);

/* The agent has reported its cluster, and @urls: uses them where the program has set nothing.
 */
must_check_ int tenure_core_is_at(struct tenure *t, const char *cluster, const char *urls);

/* ---- event_queue.c ---- */

/* A new event with room for @text bytes of strings; NULL, and the tie is broken, when there is
 * no memory. queue_text() and queue_bytes() copy into it; queue_event() puts it at the end. */
struct queued *queue_new(struct tenure *t, enum tenure_event_type type, size_t text);
/* Like queue_new(), for what can be fetched again: on failure it does not break the tie. */
struct queued *queue_try(enum tenure_event_type type, size_t text);
const char *queue_text(struct queued *q, const char *s);
const void *queue_bytes(struct queued *q, const void *p, size_t n); /* with a NUL behind */
void queue_event(struct tenure *t, struct queued *q);
/* Queues @q, the last event of @handle. The program may compare the handle until it takes the
 * event after that; the handle is freed then, or at once if @q is NULL. */
void queue_last(struct tenure *t, struct queued *q, void *handle);
/* Removes an event from the queue, and frees it. */
void queue_take_back(struct tenure *t, struct queued *q);
void queue_fini(struct tenure *t);

/* ---- register.c ---- */

/* Publishes what was registered before tenure_start(). */
must_check_ int register_start(struct tenure *t);

/* ---- follow.c ---- */

extern const struct member_events follow_events;
