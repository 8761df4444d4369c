/*
 * What survives this process: the place that it holds, in a file of a few lines, which the
 * service manager keeps for us (its fd store) and which also lies in /run. It is written after
 * every renewal. A restart, a crash and an upgrade resume the lease; a reboot does not, since
 * its clock is another one (member/place.h).
 */
#pragma once

#include "member/place.h"

struct keep {
        int fd; /* -1: nothing can be kept */
        struct place kept;
        bool has;
        bool failing; /* to write it, which was logged */
};

/* Takes the file that the service manager kept, or opens the one in $RUNTIME_DIRECTORY, or goes
 * without. Nobody else may be using it: an agent is alone on its host. */
#define KEEP_FD_NAME "place"
void keep_open(struct keep *k, int stored_fd); /* what the service manager had; -1: nothing */
void keep_close(struct keep *k);

/* What an earlier life left, if it is this node's, in this cluster, on this boot. */
bool keep_load(struct keep *k, const char *cluster, const struct node_record *self,
               struct place *ret);

/* What is there, whoever's it is. */
bool keep_read(const struct keep *k, struct place *ret);

/* For a process that only looks: what an agent has left in /run. */
bool keep_peek(struct place *ret);

/* Writes it, if it differs from what is there. */
void keep_save(struct keep *k, const struct place *p);

/* Nothing is left that a next life could resume. */
void keep_clear(struct keep *k);
