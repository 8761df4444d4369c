/*
 * The keys of hoarders.c, of which there are up to 100,000, and what happened to them: as the
 * first replica applied it that got so far. Answers, events and what agents know are compared
 * with that; and each change must have been asked for, and is made once.
 *
 * In some worlds these keys are the nodes of a fleet, of which agents are told.
 */
#pragma once

#include "world.h"

#define HOARD_KEY 320   /* bytes of a key, with a terminating zero */
#define HOARD_VALUE 512 /* bytes of a value, at most */
#define HOARD_FLEET_MOST 16000
#define HOARD_FLEET_NAME "hoard" /* how the names of its nodes begin */

/* Something that a client asks for once. */
struct deed {
        unsigned from, to;             /* keys to be put */
        unsigned gone_from, gone_upto; /* keys to be deleted, before that */
        bool leased;                   /* they are put with a lease */
        int64_t revision;              /* at which it was carried out; 0: not yet */
};

/* How a key is now, or was at some revision. */
struct hoarded {
        int64_t revision;
        uint32_t deed; /* that put it; 0: it is not there */
};

void hoard_begin(struct world *w);
/* The key of that number, and its end in a range of all keys before @i. */
size_t hoard_key(unsigned i, char out[static HOARD_KEY]);
/* What that deed puts there. Returns its length. */
size_t hoard_value(uint32_t deed, unsigned i, char out[static HOARD_VALUE]);
/* Notes what is about to be asked for. Returns its number, or 0: there were enough changes. */
uint32_t hoard_ask(const struct deed *d);

/* A replica has applied everything up to @upto. */
void hoard_applied(struct world *w, const struct state *s, int64_t upto);
/* It was answered that a deed was carried out at @revision; @deleted keys, -1: not said. */
void hoard_done(struct world *w, uint32_t deed, int64_t revision, int64_t deleted);
/* How many keys there are. */
size_t hoard_live(void);
/* All keys as they were at @revision, which does not become smaller; NULL: that is not known
 * yet. */
const struct hoarded *hoard_at(int64_t revision);
/* Whether the value is that of key @i at that time. */
bool hoard_is(unsigned i, const struct hoarded *was, struct view value);
/* The number of a key; -1: it is none of these. */
int64_t hoard_number(struct view key);

/* A watcher is told of an event; of which others are told, too. */
void hoard_told(struct world *w, unsigned watcher, int64_t revision, struct view key,
                struct view value, bool put);
/* A watcher was told that everything before @to is compacted. */
void hoard_skipped(unsigned watcher, int64_t to);

/* An agent begins, and knows nothing; it is told that a node is there, or has gone. Returns
 * false if the node is not of the fleet. */
void hoard_agent_begins(const struct holder *h);
bool hoard_agent_told(const struct holder *h, const char *name, int64_t mod, bool there);
/* It claims to know everything up to @revision. */
void hoard_agent_knows(struct world *w, const struct holder *h, int64_t revision);

/* Checks that every replica has the keys, and every watcher was told. */
void hoard_check_end(struct world *w);
