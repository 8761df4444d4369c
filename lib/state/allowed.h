/* What a user may read and write: the permissions of all their roles, combined into as few
 * ranges as possible, sorted. So a check takes O(log n), whatever the permissions are. The
 * ranges are computed when they are first needed after a permission has changed, and once for
 * all users that have the same roles. They are counted, and forgotten when they are too many.
 * Not part of the state (I4). */
#pragma once

#include "state/auth.h"
#include "state/kv.h"
#include "state/permit.h"

/* A place between keys: before @key, right after it, or after all keys. */
struct place {
        struct view key;
        bool behind, at_end;
};

/* Compares in the order of keys. */
int place_cmp(const struct place *a, const struct place *b);
struct place place_end_of(const struct kv_span *span);

/* Moves *@at to the end of the range, without gaps, in which @u may do @what. Returns false if
 * the user may not do it at *@at at all. The first call after a change of roles puts their
 * ranges together, which may take long; @left may be NULL. */
bool allowed_go_on(const struct auth *a, const struct auth_user *u, enum permit what,
                   struct place *at, struct budget *left);

/* A user that shares it is removed, or gets other roles. Returns NULL; accepts it. */
struct allowed *allowed_unref(struct auth *a, struct allowed *r);
