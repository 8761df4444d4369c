/*
 * A host's dealings with the core: holds the host's lease, publishes its node key and its
 * services, and follows the other nodes. Works in the same way with tenure-core and with etcd.
 *
 * Runs session/ with real calls on the endpoints, and feeds membership.h from a range and a
 * watch that is resumed where it ended, on whatever endpoint answers. Pure: it opens nothing
 * and reads no clock. Its shell (client/) makes the connections, which it knows by number, and
 * passes in the time; member_ops are the calls that the shell provides. Single-threaded.
 */
#pragma once

#include "member/membership.h"
#include "member/place.h"
#include "member/services.h"
#include "rpc/conn.h"
#include "session/session.h"
#include "wire/pb.h"

struct member;

#define MEMBER_ENDPOINTS_MAX 16
#define MEMBER_PUBLISHED_MAX 1000

/* What the shell does. Endpoints are numbered from 0 on. Only `suspect` and `again` may call
 * back, to report that the endpoint is silent or down. */
struct member_ops {
        /* The connection to make calls on; NULL while the endpoint is not up. Calls that were
         * made before may continue even then, on a connection that takes no more of them. After
         * calls, and messages of calls, `kick` says that there is something to send. */
        struct rpc_conn *(*rpc)(size_t i, void *userdata);
        void (*kick)(size_t i, void *userdata);
        /* Connects, unless it is connected, connecting, or waiting after a failure. */
        void (*want)(size_t i, void *userdata);
        /* Like `want`, for a place that is about to be lost: the next attempt begins @pace
         * after the last one began, and an attempt that hangs for twice @pace is restarted. */
        void (*hurry)(size_t i, nsec_t pace, void *userdata);
        /* Begins a new connection at once, where one is wanted, connecting or up. */
        void (*again)(size_t i, void *userdata);
        /* A call was refused for its token: logs in again, on a new connection. */
        void (*log_in_again)(size_t i, void *userdata);
        /* Checks whether the endpoint still answers. If it does not answer @within that time,
         * or is suspected, it is silent, until something comes from it or the connection is
         * given up. */
        void (*probe)(size_t i, nsec_t within, void *userdata);
        void (*suspect)(size_t i, void *userdata);
        bool (*is_silent)(size_t i, void *userdata);
        /* The endpoint's URL; and its address and port, "" while it is not up. */
        const char *(*name)(size_t i, void *userdata);
        void (*at)(size_t i, char *out, size_t size, void *userdata);
        /* Asks the shell to call member_run() soon. */
        void (*soon)(void *userdata);
        /* The date and the time of day, for people. */
        void (*date)(char text[static 32], void *userdata);
};

/* What is reported to the program. */
struct member_events {
        struct membership_ops members;
        struct services_ops services;
        /* The session's state, lease or deadline changed. @why: the reason, for people; "" if
         * there is none. */
        void (*session)(void *userdata, enum session_state state, const char *why);
        /* A renewal was acknowledged that moves the deadline. May be NULL. */
        void (*renewed)(void *userdata, const struct session_renewal *r);
        /* The membership is now complete and current (@synced), or no longer. */
        void (*synced)(void *userdata, bool synced);
        /* Another host requested our place while we hold it, and was refused; or it has our id
         * and another name, and may have a place. Called each time. */
        void (*claimed)(void *userdata, const struct node_record *by);
};

struct member_config {
        const char *cluster;        /* the name in the keys */
        size_t n_endpoints;         /* 1 to MEMBER_ENDPOINTS_MAX */
        struct node_record self;    /* what to register: name, id, boot_id, version */
        const struct place *resume; /* what an earlier life of ours has left; NULL: nothing */
        const char *boots;     /* ids of this host's earlier boots, with commas; NULL: none */
        struct boot_time boot; /* when this boot began; or a later time, if that is not known */
        bool observe;          /* follow only; hold nothing */
        bool no_view;          /* follow nothing: nodes and services are not known */
        bool sessions;         /* hold a program's session, in sessions/ instead of nodes/ */
        struct session_config session;
        uint64_t seed;
};

/* Strings are copied, @ops and @events borrowed. Returns 0 or -ENOMEM. */
must_check_ int member_new(struct member **ret, const struct member_config *cfg,
                           const struct member_ops *ops, void *shell,
                           const struct member_events *events, void *userdata,
                           struct boot_time now);

/* Prepares for the end: the connections may be closed after this, and the member reports
 * nothing any more. */
void member_close(struct member *m);

/* Frees @m, which may be NULL. Call it after the connections were closed, when no call of the
 * member is open. */
struct member *member_free(struct member *m);
DEFINE_CLEANUP(struct member *, member_free)

/* ---- from the shell ---- */

/* Passes the time. Call it before passing answers of a connection, or calling any of the
 * functions below. */
void member_at(struct member *m, struct boot_time now);

/* Does what is due. Call it after anything has happened; returns when to call it next. */
struct boot_time member_run(struct member *m, struct boot_time now);

void member_up(struct member *m, size_t i);
/* Endpoint @i is down; its calls have ended with RPC_UNAVAILABLE already. */
void member_down(struct member *m, size_t i, const char *why);
/* The endpoint is up, but did not answer a probe in time, or is suspected. */
void member_silent(struct member *m, size_t i);

/* Number @i stands for another endpoint from now on; there are @n endpoints from now on, never
 * fewer than before. */
void member_replaced(struct member *m, size_t i);
void member_endpoints(struct member *m, size_t n);

/* Sets the cluster's name, if it was not known at first; only while nothing is known or held.
 * Returns 0 or -ENOMEM. */
must_check_ int member_set_cluster(struct member *m, const char *cluster);

/* ---- from the program ---- */

/* Gives the place back, for @reason, about which people may have said more, @note. The state
 * becomes `left` when that is done, or after one second. */
void member_leave(struct member *m, const char *reason, const char *note);

/* Joins again after member_leave(), as a new incarnation. */
void member_join(struct member *m);

/* After the next loss of the place, stays out until @until; 0: joins as usual. */
void member_suppress(struct member *m, struct boot_time until);

/* What a later life of this node needs in order to resume; false while nothing is held. */
bool member_place(const struct member *m, struct place *ret);

/* Sets what our node publishes about itself from now on. */
void member_set_self(struct member *m, const char *addresses, const char *tags,
                     const char *degraded);
const struct node_record *member_self(const struct member *m);

/* Publishes a service of this node in the core whenever the place is held, in this life of the
 * place and in later ones; if the name and instance are published already, replaces their
 * record. The node's name is filled in. Returns 0, -ENOSPC (too many services) or -ENOMEM. */
must_check_ int member_publish(struct member *m, const struct service_record *s);
void member_withdraw(struct member *m, const char *name, const char *instance);

/* Tells the member that everything which an earlier life of this node may have published has
 * been published again; whatever else that life left in the core is deleted. Nothing is written
 * before this call. */
void member_published_all(struct member *m);

/* The revision up to which everything has been announced. member_ask_revision() asks the core
 * for its revision, so that revisions that change no node or service count as well. */
int64_t member_revision(const struct member *m);
void member_ask_revision(struct member *m);

/* Sets the TTL to request, from the next lease on. */
void member_set_ttl(struct member *m, nsec_t ttl);

const struct session *member_session(const struct member *m);
const struct membership *member_nodes(const struct member *m);
const struct services *member_services(const struct member *m);

/* Whether a watch feeds the membership, so that it is current. */
bool member_synced(const struct member *m);
/* When the core was last heard from. */
struct boot_time member_heard_at(const struct member *m);

/* Whether nodes and services that an earlier life has announced are being read; they are not
 * announced again. member_forget() ends that: those not read yet will be announced. */
bool member_remembers(const struct member *m);
void member_forget(struct member *m);

/* How long ago the change at @revision may have happened at most, since the core was not heard
 * from for a while; 0: it has just happened. */
nsec_t member_gap(const struct member *m, int64_t revision);

/* A link, an address or a route has appeared: whatever is stuck is tried again at once. */
void member_path_back(struct member *m, struct boot_time now);

/* The host may have stood still together with its clocks: checks whether the place is still
 * held; see session_doubt(). */
void member_doubt(struct member *m, struct boot_time now);

/* The revision of the key of the host that holds our name; 0 if none but us does. We request
 * the name again within the TTL, or after member_hurry(). */
int64_t member_is_refused(const struct member *m);
void member_hurry(struct member *m);

/* The number of the endpoint that answered last; its name, "" while it is not up; and the
 * member id of the replica behind it. */
size_t member_current(const struct member *m);
const char *member_endpoint(const struct member *m);
uint64_t member_replica(const struct member *m);

/* ---- for calls that are the program's own ---- */

/* The endpoint to use, from number @from on: one that is up, that is not silent, and that is
 * not known to belong to another cluster. False: there is none; @from is being connected. */
bool member_pick(struct member *m, size_t from, size_t *ret);
/* Reports that endpoint @i has answered such a call, with this header, which may be NULL.
 * False: the answer came from another cluster and must be ignored. */
must_check_ bool member_answered(struct member *m, size_t i, const Pb__ResponseHeader *h);
/* Whether there is a header, as in every answer, with a possible revision. */
bool member_header_is_sane(const Pb__ResponseHeader *h);
/* Whether a range that was read without filters has all of its keys, or says that there are
 * more. A client that believed it otherwise would take keys for deleted. */
bool member_range_is_sane(const Pb__RangeResponse *p);
/* Whether each event of a watch has a key, and a revision no later than the one that the core
 * reports for itself. A client that accepted a later one would skip the next changes as
 * known. */
bool member_events_are_sane(const Pb__WatchResponse *p);
/* How often everything that was known became void because another core, or its emptied or
 * restored data, took the place of ours; see world.h. */
unsigned member_worlds(const struct member *m);

/* What went wrong since the last answer, for people; "": nothing. */
const char *member_trouble(const struct member *m);
