/*
 * What outlives this process: the place it holds, in a file of a few lines that the service
 * manager keeps for us (its fd store) and that also lies in /run, written after every renewal.
 * A restart, a crash and an upgrade go on with the lease; a reboot does not, for its clock is
 * another one (client/place.h).
 */
#pragma once

#include "client/place.h"

struct keep {
        int fd; /* -1: nothing can be kept */
        struct place kept;
        bool has;
        bool failing; /* to write it, which was told */
};

/* Takes the file from the service manager, or opens the one in $RUNTIME_DIRECTORY, or goes
 * without. Nobody else may be using it: an agent is alone on its host. */
void keep_open(struct keep *k);
void keep_close(struct keep *k);

/* What an earlier life left, if it is this node's, in this cluster, on this boot. */
bool keep_load(struct keep *k, const char *cluster, const struct node_record *self,
               struct place *ret);

/* What is there, whoever's it is. */
bool keep_read(const struct keep *k, struct place *ret);

/* For one that only looks: what an agent has left in /run, whoever it was. */
bool keep_peek(struct place *ret);

/* Writes it, if it differs from what is there. */
void keep_save(struct keep *k, const struct place *p);

/* There is nothing to go on with any more. */
void keep_clear(struct keep *k);
