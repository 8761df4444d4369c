/*
 * What a user may read and write: the permissions of all roles put together, as few ranges as
 * that takes, in their order. So a look takes log n, whatever they are; they are put together
 * when they are first asked for after a change. Of the state it is no part (I4).
 */
#pragma once

#include "lease/auth.h"
#include "lease/kv.h"
#include "lease/permit.h"

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
