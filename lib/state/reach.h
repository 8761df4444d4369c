/* What a user may read and write: the permissions of all his roles combined, in as few ranges
 * as possible, in their order. So a check takes log n, whatever they are; they are combined
 * when they are first needed after a change. Not part of the state (I4). */
#pragma once

#include "state/auth.h"
#include "state/kv.h"
#include "state/permit.h"

/* A place between keys: before @key, or right behind it, or behind all. */
struct place {
        struct view key;
        bool behind, at_end;
};

/* As they are in the order of keys. */
int place_cmp(const struct place *a, const struct place *b);
struct place place_end_of(const struct kv_span *span);

/* Moves *@at over what @u may do there without a gap. Returns false when that is nothing. */
bool reach_go_on(const struct auth *a, const struct auth_user *u, enum permit what,
                 struct place *at);

struct reach *reach_free(struct reach *r);
