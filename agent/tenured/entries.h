/*
 * Services by settings: NAME.service-entry files, each of which binds a service of this host to
 * a unit of systemd. The service is in the core while the unit is active; without a unit, as
 * long as the host holds its place. tenured.service-entry(5).
 */
#pragma once

#include <bsd/sys/queue.h>

#include "base/conf.h"
#include "bus/units.h"
#include "member/member.h"

struct entry;
TAILQ_HEAD(entry_list, entry);

struct entries {
        struct member *member;
        struct units *units; /* NULL: no systemd here */
        struct entry_list list;
};

void entries_init(struct entries *e, struct member *m, struct units *u);
void entries_fini(struct entries *e);

/* Reads all files of @path, folders joined by commas; of two of one name the one in the earlier
 * folder counts, and one that is empty, such as a link to /dev/null, hides the others. May be
 * called again: what has not changed goes on, a file that cannot be read now says what it said
 * before, and is named in the log. @is_taken: a name that somebody else has. */
void entries_load(struct entries *e, const char *path,
                  bool (*is_taken)(void *userdata, const char *name, const char *instance),
                  void *userdata);

/* A unit has changed. */
void entries_follow(struct entries *e, const char *unit, const struct unit_state *s);

bool entries_have(const struct entries *e, const char *name, const char *instance);
