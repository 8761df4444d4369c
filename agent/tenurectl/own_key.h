/*
 * Watches whether the key of a lock that this host has is still the one that was created. If
 * somebody deletes it, the next in line has the lock from then on.
 */
#pragma once

#include "base/base.h"
#include "tenure/tenure.h"

/* Zeroed: nothing is watched, and nothing is gone. */
struct own_key {
        struct tenure *tie; /* borrowed, as is the key */
        const char *key;
        int64_t created, seen; /* its create_revision, and up to where its changes are known */
        struct tenure_watch *watch;
        struct tenure_call
                *look; /* reads the key after the watch has ended; NULL: not under way */
        bool gone;
};

/* Watches @key, created at @created and last seen at @seen. The tie ends what this begins. */
void own_key_watch(struct own_key *o, struct tenure *tie, const char *key, int64_t created,
                   int64_t seen);
/* To be called with each event of the tie; sets `gone`. */
void own_key_hear(struct own_key *o, const struct tenure_event *e);
