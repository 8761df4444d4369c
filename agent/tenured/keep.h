/*
 * Keeps the place over the end of this process, in a file of a few lines. The service manager
 * stores its descriptor for us (the fd store), and it is also in /run. It is written after
 * every renewal. After a restart, a crash or an upgrade the agent resumes the lease; after a
 * reboot it does not, because the clock is another one (member/place.h).
 */
#pragma once

#include "member/place.h"

struct keep {
        int fd; /* -1: nothing can be kept */
        struct place kept;
        bool has;
        bool failing; /* writing fails, which was logged */
};

/* Takes the file that the service manager stored, or opens the one in $RUNTIME_DIRECTORY, or
 * works without one. No other process may be using it: there is only one agent on a host. */
#define KEEP_FD_NAME "place"
void keep_open(struct keep *k, int stored_fd); /* the stored descriptor; -1: none */
void keep_close(struct keep *k);

/* The place that an earlier run left, if it belongs to this node, this cluster and this
 * boot. */
bool keep_load(struct keep *k, const char *cluster, const struct node_record *self,
               struct place *ret);

/* The stored place, whoever it belongs to. */
bool keep_read(const struct keep *k, struct place *ret);

/* For a process that only reads: the place that an agent has left in /run. */
bool keep_peek(struct place *ret);

/* Writes the place if it differs from what is stored. */
void keep_save(struct keep *k, const struct place *p);

/* Removes the place: there is nothing for a next run to resume. */
void keep_clear(struct keep *k);
