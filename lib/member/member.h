/*
 * A host's relation to the core: holds its lease, publishes its node key and its services, and
 * follows the other nodes. Works alike with tenure-core and with a real etcd.
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

/* What the shell does. Endpoints are numbers from 0 on. None of these calls back, but `suspect`
 * and `again`, which may tell that the endpoint is silent, or down. */
struct member_ops {
        /* The connection to make calls on; NULL while the endpoint is not up. `kick` after
         * calls: there is something to send. */
        struct rpc_conn *(*rpc)(size_t i, void *userdata);
        void (*kick)(size_t i, void *userdata);
        /* Connects, unless it is connected, connecting, or waiting after a failure. */
        void (*want)(size_t i, void *userdata);
        /* Begins a new connection at once, where one is wanted, connecting or up. */
        void (*again)(size_t i, void *userdata);
        /* A call was refused for its token: logs in again, on a new connection. */
        void (*log_in_again)(size_t i, void *userdata);
        /* Asks whether somebody is still there: who does not say so within that time is silent,
         * until he says something or is given up; so is one that is suspected. */
        void (*probe)(size_t i, nsec_t within, void *userdata);
        void (*suspect)(size_t i, void *userdata);
        bool (*is_silent)(size_t i, void *userdata);
        /* Its URL, and the address and port that it is at; "" while it is not up. */
        const char *(*name)(size_t i, void *userdata);
        void (*at)(size_t i, char *out, size_t size, void *userdata);
        /* There is something to do: member_run(), soon. */
        void (*soon)(void *userdata);
        /* The date and the time of day, for people. */
        void (*date)(char text[static 32], void *userdata);
};

/* What is reported to the program. */
struct member_events {
        struct membership_ops members;
        struct services_ops services;
        /* The session's state, lease or deadline changed. @why: for a person; "" when there is
         * nothing to say. */
        void (*session)(void *userdata, enum session_state state, const char *why);
        /* A renewal was acknowledged that moves the deadline. NULL: of no interest. */
        void (*renewed)(void *userdata, const struct session_renewal *r);
        /* The membership is known now, or not current any more. */
        void (*synced)(void *userdata, bool synced);
        /* Another host wants our place while we hold it, and is refused. Each time. */
        void (*claimed)(void *userdata, const struct node_record *by);
};

struct member_config {
        const char *cluster;        /* the name in the keys */
        size_t n_endpoints;         /* 1 to MEMBER_ENDPOINTS_MAX */
        struct node_record self;    /* what to register: name, id, boot_id, version */
        const struct place *resume; /* what an earlier life of ours left; NULL: nothing */
        const char *boots;     /* ids of this host's earlier boots, with commas; NULL: none */
        struct boot_time boot; /* when this one began, or later, where that is not known */
        bool observe;          /* follow only; hold nothing */
        bool no_view;          /* follow nobody: who is there is not known */
        bool sessions;         /* hold a program's session: in sessions/, not in nodes/ */
        struct session_config session;
        uint64_t seed;
};

/* Strings are copied, @ops and @events borrowed. Returns 0 or -ENOMEM. */
must_check_ int member_new(struct member **ret, const struct member_config *cfg,
                           const struct member_ops *ops, void *shell,
                           const struct member_events *events, void *userdata,
                           struct boot_time now);

/* The end has come: the connections may be closed, and what comes of that is of no interest. */
void member_close(struct member *m);

/* Once no call of it is open: its connections are closed. */
struct member *member_free(struct member *m);
DEFINE_CLEANUP(struct member *, member_free)

/* ---- from the shell ---- */

/* The time, before anything else happens: answers on a connection, or one of the below. */
void member_at(struct member *m, struct boot_time now);

/* Does what is to be done, after whatever has happened; returns when it wants to run next. */
struct boot_time member_run(struct member *m, struct boot_time now);

void member_up(struct member *m, size_t i);
/* The calls on it have ended with RPC_UNAVAILABLE already. */
void member_down(struct member *m, size_t i, const char *why);
/* It is up, and has not answered a probe in time, or is suspected. */
void member_silent(struct member *m, size_t i);

/* Number @i is another endpoint from now on; then, how many there are, never fewer than
 * before. */
void member_replaced(struct member *m, size_t i);
void member_endpoints(struct member *m, size_t n);

/* The name in the keys, where that was not known before: while nothing is known or held.
 * Returns 0 or -ENOMEM. */
must_check_ int member_set_cluster(struct member *m, const char *cluster);

/* ---- from the program ---- */

/* Gives the place back and says why; the state becomes `left`, in time or after a second. */
void member_leave(struct member *m, const char *reason);

/* After it has left: joins again, as a new incarnation. */
void member_join(struct member *m);

/* Stays out until then, once the place is lost; 0: joins as usual. */
void member_suppress(struct member *m, struct boot_time until);

/* What a later life of this node can go on with, as of now; false while nothing is held. */
bool member_place(const struct member *m, struct place *ret);

/* What else our node says of itself from now on: addresses, tags, degraded. */
void member_set_self(struct member *m, const char *addresses, const char *tags,
                     const char *degraded);
const struct node_record *member_self(const struct member *m);

/* A service on this node, in the core as long as the place is held, in this life of the place
 * and in later ones; a name and instance that is published already says this from now on. The
 * node's name is filled in. Returns 0, -ENOSPC when there are too many, or -ENOMEM. */
must_check_ int member_publish(struct member *m, const struct service_record *s);
void member_withdraw(struct member *m, const char *name, const char *instance);

/* All that an earlier life of this node may have published has been published again: what else
 * it left in the core goes. Nothing is written before that. */
void member_published_all(struct member *m);

/* Everything up to it has been announced; and asks the core how far it is, so that a revision
 * in which nothing of ours happened is known as well. */
int64_t member_revision(const struct member *m);
void member_ask_revision(struct member *m);

/* To ask for from the next lease on. */
void member_set_ttl(struct member *m, nsec_t ttl);

const struct session *member_session(const struct member *m);
const struct membership *member_nodes(const struct member *m);
const struct services *member_services(const struct member *m);

/* True while a watch feeds the membership; since when it may be old otherwise. */
bool member_synced(const struct member *m);
/* The last word from the core, of any kind. */
struct boot_time member_heard_at(const struct member *m);

/* A link, an address or a route has come: what is stuck is tried anew, at once. */
void member_path_back(struct member *m, struct boot_time now);

/* The host may have stood still without its clocks knowing: is the place still ours? */
void member_doubt(struct member *m, struct boot_time now);

/* Somebody else holds our name, which is asked for again within the TTL, or when member_hurry()
 * says that something has changed: the revision of their key; 0: nobody does. */
int64_t member_is_refused(const struct member *m);
void member_hurry(struct member *m);

/* The number of the endpoint that answered last; its name, "" while it is not up; and the
 * member id of the replica behind it. */
size_t member_current(const struct member *m);
const char *member_endpoint(const struct member *m);
uint64_t member_replica(const struct member *m);

/* ---- for calls that are the program's own ---- */

/* The endpoint to use, from number @from on: one that is up, that speaks, and that is not known
 * to be of another cluster. False: there is none, and number @from is connected. */
bool member_pick(struct member *m, size_t from, size_t *ret);
/* Such a call was answered there, with this header, which may be NULL. False: by another
 * cluster, whose word does not count. */
must_check_ bool member_answered(struct member *m, size_t i, const Pb__ResponseHeader *h);
/* Every answer has one, of a revision that can be. */
bool member_header_is_sane(const Pb__ResponseHeader *h);
/* How often ours has begun anew, and all that was known of it was void: see world.h. */
unsigned member_worlds(const struct member *m);

/* What went wrong last, since an answer came, for a person; "": nothing. */
const char *member_trouble(const struct member *m);
