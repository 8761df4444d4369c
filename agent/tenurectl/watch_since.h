/*
 * What has happened to nodes and services since a revision, from the core's history of their
 * keys, and what happens from then on: the state of that revision is read, and a watch feeds
 * what follows to the agent's own code, so that each event is the one that an agent would have
 * announced. If the history does not go back that far, that is an event, too.
 */
#pragma once

#include "ctl.h"

/* An event of nobody: what happened before `revision` is not known, for `reason`. */
#define WATCH_RESYNC "Resync"

/* Texts are never NULL, and valid during the call. */
struct happening {
        const char *event;           /* as the agent's signal */
        const char *name;            /* of the node or service; "": of neither */
        const char *id;              /* a node's */
        const char *node, *instance; /* a service's */
        const char *reason;
        const char *note; /* of people, about the reason; NULL: none */
        int64_t revision; /* 0: none */
};
typedef void happening_fn(const struct happening *h, void *userdata);

struct watch_since;

/* @revision: the last one that is known. Reads the state of that revision. Returns 0, and the
 * caller owns *@ret; or -1 after printing why not. */
must_check_ int watch_since_new(struct watch_since **ret, struct ctl *c, int64_t revision,
                                happening_fn *fn, void *userdata);
struct watch_since *watch_since_free(struct watch_since *s);

/* Reports what has come. Returns 0, or -1 after printing why nothing more will come. */
must_check_ int watch_since_run(struct watch_since *s);
must_check_ int watch_since_fd(const struct watch_since *s);
must_check_ int watch_since_timeout(const struct watch_since *s);
