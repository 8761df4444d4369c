/*
 * Services from settings: each NAME.service-entry file binds a service of this host to a unit
 * of systemd. The service is in the core while the unit is active; without a unit, while the
 * host holds its place. Of two files with the same service, the one that is read first counts;
 * one whose service a program has registered waits until that program is gone.
 * tenured.service-entry(5).
 */
#pragma once

#include <bsd/sys/queue.h>

#include "base/conf.h"
#include "bus/units.h"
#include "member/member.h"

struct entry;
TAILQ_HEAD(entry_list, entry);

/* Whether a program has registered the service. */
typedef bool entries_taken_fn(void *userdata, const char *name, const char *instance);

struct entries {
        struct member *member;
        struct units *units; /* NULL: not on systemd */
        struct entry_list list, refused;
        entries_taken_fn *is_taken;
        void *userdata;
};

void entries_init(struct entries *e, struct member *m, struct units *u, entries_taken_fn *taken,
                  void *userdata);
void entries_fini(struct entries *e);

/* Reads all files in @path, a list of folders with commas between them. Of files with the same
 * name, the one in the first folder counts; an empty file, such as a link to /dev/null, hides
 * the others. May be called again: unchanged services stay, and a file that cannot be read any
 * more is named in the log and keeps its former meaning. */
void entries_load(struct entries *e, const char *path);

/* The state of a unit has changed. */
void entries_follow(struct entries *e, const char *unit, const struct unit_state *s);

/* The file with this service; NULL: there is none. */
const char *entries_owner(const struct entries *e, const char *name, const char *instance);

/* What became of a file; for tenurectl entries. */
struct entry_told {
        const char *path;  /* or a folder's, which cannot be read */
        const char *state; /* loaded; waiting: its service cannot be published now; refused;
                              outdated: refused, and what it said before still counts */
        const char *why;   /* "" if it is loaded */
        const struct service_record *record; /* its names are empty if they are not known */
};
typedef int entries_each_fn(const struct entry_told *t, void *userdata);
/* Calls @fn for each file that does not hide others, until it returns a negative errno, which
 * this returns, too. */
must_check_ int entries_each(const struct entries *e, entries_each_fn *fn, void *userdata);

/* The program that had registered this service is gone. */
void entries_released(struct entries *e, const char *name, const char *instance);
