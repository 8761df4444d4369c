/*
 * Everything that goes down with one unit of systemd: the units that are bound to it or require
 * it, directly or through others (org.freedesktop.systemd1(5): BoundBy, RequiredBy,
 * RequisiteOf, ConsistsOf, PropagatesStopTo, SliceOf), with the control groups of their
 * processes. The set is known beforehand, and followed, so that it can be frozen and killed
 * while the service manager does not answer; it stays in use until a newer one is complete.
 * Talks to the service manager directly, as pid1.h does. Nothing here waits: answers come from
 * the loop; if one does not come, the connection is made anew.
 */
#pragma once

#include <sys/types.h>

#include "base/base.h"
#include "base/clock.h"

struct loop;
struct bound;

struct bound_unit {
        char *name;
        char *control_group; /* NULL: it has no processes */
        char *after;         /* what it is ordered after, a line each; or NULL */
        bool is_down;        /* inactive or failed, as last reported */
        bool is_after;       /* stopped before the root says that it is down */
        nsec_t stop_timeout; /* INT64_MAX: none; 0: does not apply */
        bool is_unloaded;    /* since it was read; a new unit may get its name */
        pid_t main_pid;      /* as last reported; 0: none */
};

/* A group outside of all units' own, in which a unit's main process is, or was while processes
 * are left there (strays.h). */
struct bound_stray {
        char *unit, *group;
        bool is_ours; /* must not be fenced: it holds this process, or the service manager */
};

/* @changed: another set is known, or other strays. @settled: as far as units have reported by
 * themselves, the last one is down, so that a look is worth its cost. @root, a unit's name, is
 * borrowed. Sends nothing to the service manager before the first order, look, or
 * bound_follow(). -ENOENT where systemd does not run. */
must_check_ int bound_new(struct bound **ret, struct loop *l, const char *root,
                          void (*changed)(void *userdata), void (*settled)(void *userdata),
                          void *userdata);
struct bound *bound_free(struct bound *b);
DEFINE_CLEANUP(struct bound *, bound_free)

/* Queries the set at once, and each time that another unit may have become bound. */
void bound_follow(struct bound *b);

const char *bound_root(const struct bound *b);

/* @suffix: ".mount", for example. */
static inline bool bound_is_kind(const char *unit, const char *suffix)
{
        size_t n = strlen(unit), k = strlen(suffix);

        return n > k && strcmp(unit + n - k, suffix) == 0;
}

/* Adds a unit that an earlier life of the process knew, the root first; used until the service
 * manager has reported the whole set. @group: NULL if the unit has none. A unit that is added
 * again was also in that group, as a stray. */
void bound_remember(struct bound *b, const char *name, const char *group);

/* The root is the first, by its first name. Valid until the next turn of the loop. */
const struct bound_unit *bound_units(const struct bound *b, size_t *ret_n);
const struct bound_stray *bound_strays(const struct bound *b, size_t *ret_n);

/* Whether more units go down with the root than that, the rest of which are not known. */
#define BOUND_MAX 4096
bool bound_has_more(const struct bound *b);

/* Orders to the root: each may be given as often as one likes. A stop cannot be undone by a
 * start while it is under way; from @accepted on nothing bound is started again by its
 * Restart=.
 */
void bound_start(struct bound *b);
void bound_stop(struct bound *b, void (*accepted)(void *userdata), void *userdata);

/* Queries the states of all units; of several calls before the answer only the last one is
 * answered. */
enum bound_sight {
        BOUND_UNKNOWN, /* nobody answers */
        BOUND_ACTIVE,  /* the root is active */
        BOUND_SOME,    /* something is not down; bound_units() has what */
        BOUND_NONE,    /* all is down, in a set that was queried after the call */
};
void bound_look(struct bound *b, void (*fn)(void *userdata, enum bound_sight s),
                void *userdata);
