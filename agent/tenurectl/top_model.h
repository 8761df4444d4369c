/*
 * What `tenurectl top` knows: members, replicas of the core, locks and the last events; and
 * which members it shows, in which order.
 *
 * Pure: opens nothing, reads no clock. Instants are handed in; wall time is in seconds, and for
 * display only. Looking a member up costs O(log n), arranging them O(n log n).
 */
#pragma once

#include "base/base.h"
#include "base/clock.h"

#define TOP_NAME 64
#define TOP_REASON 160
#define TOP_REPLICAS 16
#define TOP_LOCKS 64
#define TOP_EVENTS 512
#define TOP_FILTER 128
/* How long a member that has left stays in the table, with the reason, and a member that was
 * lost. */
#define TOP_GONE_FOR (60 * NSEC_PER_SEC)
#define TOP_LOST_FOR (3600 * NSEC_PER_SEC)

enum top_state {
        TOP_LOST, /* in the order of severity, by which they are sorted */
        TOP_JEOPARDY,
        TOP_SUPPRESSED,
        TOP_LEFT,
        TOP_LEAVING,
        TOP_JOINING,
        TOP_HELD,
};
const char *top_state_word(enum top_state s);

struct top_service {
        char *node, *name; /* owned; with the instance, if it has one */
};

struct top_node {
        char *name, *address, *zone, *tags, *degraded, *leaving; /* owned; never NULL */
        char *reason;                                            /* why it left; "" */
        int64_t lease;
        uint64_t ttl_ms;
        int64_t since; /* wall time; 0: not known */
        bool there;
        struct boot_time left_at;
        int64_t left_wall; /* `left_at` as wall time */
        nsec_t left;       /* of its lease, as the core reported at `asked`; -1: not reported */
        struct boot_time asked;
        char **services; /* owned, sorted */
        size_t n_services, cap_services;
};

struct top_replica {
        uint64_t id;
        char name[TOP_NAME], url[128], version[64], errors[TOP_REASON];
        bool learner, leads, answers;
        char why[TOP_REASON]; /* why it does not answer; "" if it does */
        uint64_t term, applied, behind;
        int64_t db_bytes;
        int64_t clients, turn_us; /* -1: an etcd, which does not report these */
        nsec_t round_trip;
        struct boot_time heard;
};

struct top_lock {
        char name[TOP_NAME];
        char holder[TOP_NAME]; /* "": nobody */
        int64_t token;
        size_t n_waiting;
        char waiting[TOP_REASON]; /* their names, the next one first */
        unsigned round;           /* the round in which it was last seen */
};

enum top_weight { TOP_NEWS, TOP_WARNING, TOP_BAD };

struct top_event {
        int64_t at; /* wall time */
        enum top_weight weight;
        char text[256];
};

/* The agent of this host, if there is one. */
struct top_host {
        bool known; /* there is an agent */
        char node[TOP_NAME], state[16], degraded[TOP_REASON], maintenance[16];
        struct boot_time deadline; /* the holder's; NEVER: none */
        struct boot_time rest_until;
        bool mass_failure;
};

enum top_sort {
        TOP_BY_NAME,
        TOP_BY_STATE,
        TOP_BY_LEFT,
        TOP_BY_TTL,
        TOP_BY_AGE,
        TOP_BY_ADDRESS,
        TOP_BY_ZONE,
        TOP_BY_SERVICES,
        TOP_SORTS,
};
const char *top_sort_word(enum top_sort s);
/* Returns whether there is such a column. */
bool top_sort_parse(const char *word, enum top_sort *ret);

struct top_model {
        struct top_node **nodes; /* by name; owned */
        size_t n_nodes, cap_nodes;
        struct top_node *
                *shown; /* members that pass the filter, sorted; borrowed from `nodes` */
        size_t n_shown, cap_shown;
        size_t n_there, n_degraded, n_services; /* as of top_arrange() */
        size_t n_states[TOP_HELD + 1];

        struct top_replica replicas[TOP_REPLICAS];
        size_t n_replicas;
        bool etcd;                /* the core is an etcd, as far as is known */
        char cluster_version[32]; /* "": not known */
        uint64_t ancestor;        /* the cluster from which it was forced to descend; 0: none */

        struct top_lock locks[TOP_LOCKS];
        size_t n_locks;

        struct top_event events[TOP_EVENTS]; /* a ring; the last one is events[(n - 1) % max] */
        size_t n_events;

        struct top_host host;
        char cluster[TOP_NAME];
        int64_t revision;
        int64_t first_revision; /* changes up to this revision are history */
        bool followed;          /* changes are being followed */
        bool ever;              /* they were followed once */
        int64_t stale_since;    /* wall time */
        char down[TOP_REASON];  /* why no changes are followed */

        enum top_sort sort;
        bool reverse;
        char filter[TOP_FILTER];
};

void top_model_fini(struct top_model *m);

/* What a member reports about itself. Strings are copied, and may have any content. */
struct top_facts {
        const char *name, *address, *zone, *tags, *degraded, *leaving;
        int64_t lease;
        uint64_t ttl_ms;
        int64_t since;
};

/* Adds or updates a member. Returns 0 or -ENOMEM. */
must_check_ int top_node_put(struct top_model *m, const struct top_facts *f);
/* A member has gone; ignored if it is not known. Returns 0 or -ENOMEM. */
must_check_ int top_node_gone(struct top_model *m, const char *name, const char *reason,
                              struct boot_time now, int64_t wall);
struct top_node *top_node_find(const struct top_model *m, const char *name);
/* Records how long the member's lease has left, as the core reported at @now. */
void top_node_left(struct top_node *n, nsec_t left, struct boot_time now);

/* Add and remove the service @name of @node, which may be unknown yet. Return 0 or -ENOMEM. */
must_check_ int top_service_put(struct top_model *m, const char *node, const char *name);
void top_service_gone(struct top_model *m, const char *node, const char *name);

/* The replica with that id, added if necessary; NULL if there are too many. */
struct top_replica *top_replica_get(struct top_model *m, uint64_t id);
void top_replica_drop(struct top_model *m, size_t i);
/* Sorts the replicas by name. */
void top_replicas_sort(struct top_model *m);
/* Computes how far each replica lags behind the one that has applied most. */
void top_replicas_compare(struct top_model *m);

/* The lock of that name, added if necessary; NULL if there are too many. */
struct top_lock *top_lock_get(struct top_model *m, const char *name);
void top_lock_drop(struct top_model *m, size_t i);

/* Adds an event; events are kept in the order of their times. */
void top_event(struct top_model *m, int64_t at, enum top_weight w, const char *fmt, ...)
        printf_(4, 5);
/* The event @back before the last one; NULL if there are not as many. */
const struct top_event *top_event_at(const struct top_model *m, size_t back);

/* The state of a member, in the terms of a session. */
enum top_state top_node_state(const struct top_model *m, const struct top_node *n,
                              struct boot_time now);
bool top_node_is_host(const struct top_model *m, const struct top_node *n);
/* Whether the member has expired, and has not come back. */
bool top_node_is_lost(const struct top_node *n);
/* Why the member left, or is leaving, or what slows it down; otherwise "". */
const char *top_node_note(const struct top_node *n);

/* Whether all words of the filter occur in what is shown of the member, in any case; a word
 * that begins with ! must not occur. */
bool top_node_passes(const struct top_model *m, const struct top_node *n, struct boot_time now);

/* Forgets members that have been gone for long; counts, filters and sorts the others. Returns 0
 * or -ENOMEM. */
must_check_ int top_arrange(struct top_model *m, struct boot_time now);
