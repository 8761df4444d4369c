/*
 * A host's tie to the core: holds its lease, keeps its node key, and follows who else is there.
 *
 * Drives session/ with real calls on the endpoints, and feeds membership.h from a range and a
 * watch that is resumed where it ended, on whatever endpoint answers. Works alike with
 * tenure-core and with a real etcd. On the caller's loop; callbacks come from it.
 */
#pragma once

#include "client/membership.h"
#include "client/place.h"
#include "client/services.h"
#include "loop/resolve.h"
#include "loop/tls.h"
#include "session/session.h"

struct client;

#define CLIENT_ENDPOINTS_MAX 16

struct client_config {
        const char *cluster;         /* the name in the keys */
        const char *endpoints;       /* URLs joined by commas; or srv://, see base/url.h */
        const char *user, *password; /* to log in as, where the core asks; NULL: nobody, or who
                                        our certificate says we are */
        struct tls *tls;             /* for https:// ones; borrowed; NULL: none */
        struct node_record self;     /* what to register: name, id, boot_id, version */
        const struct place *resume;  /* what an earlier life of ours left; NULL: nothing */
        const char *boots;     /* ids of this host's earlier boots, with commas; NULL: none */
        struct boot_time boot; /* when this one began, or later, where that is not known */
        bool observe;          /* follow only; hold nothing */
        struct session_config session;
        uint64_t seed;
};

struct client_ops {
        struct membership_ops members;
        struct services_ops services;
        /* The session's state, lease or deadline changed. @why: for a person; "" when there is
         * nothing to say. */
        void (*session)(void *userdata, enum session_state state, const char *why);
        /* The membership is known now, or not current any more. */
        void (*synced)(void *userdata, bool synced);
        /* Another host wants our place while we hold it, and is refused. Each time. */
        void (*claimed)(void *userdata, const struct node_record *by);
};

/* Strings are copied. Returns 0, -EINVAL when an endpoint is no URL (named in @err), or
 * -ENOMEM. */
must_check_ int client_new(struct client **ret, struct loop *l, const struct client_config *cfg,
                           const struct client_ops *ops, void *userdata, char *err,
                           size_t err_size);
struct client *client_free(struct client *c);
DEFINE_CLEANUP(struct client *, client_free)

/* Gives the place back and says why; the state becomes `left`, in time or after a second. */
void client_leave(struct client *c, const char *reason);

/* After it has left: joins again, as a new incarnation. */
void client_join(struct client *c);

/* Stays out until then, once the place is lost; 0: joins as usual. */
void client_rest(struct client *c, struct boot_time until);

/* What a later life of this node can go on with, as of now; false while nothing is held. */
bool client_place(const struct client *c, struct place *ret);

/* What else our node says of itself from now on: addresses, tags, degraded. */
void client_set_self(struct client *c, const char *addresses, const char *tags,
                     const char *degraded);
const struct node_record *client_self(const struct client *c);

#define CLIENT_OFFERS_MAX 1000

/* A service on this node, in the core as long as the place is held, in this life of the place
 * and in later ones; a name and instance that is offered already says this from now on. The
 * node's name is filled in. Returns 0, -ENOSPC when there are too many, or -ENOMEM. */
must_check_ int client_offer(struct client *c, const struct service_record *s);
void client_withdraw(struct client *c, const char *name, const char *instance);

/* All that an earlier life of this node may have offered has been offered again: what else it
 * left in the core goes. Nothing is written before that. */
void client_offers_known(struct client *c);

/* Everything up to it has been told; and asks the core how far it is, so that a revision in
 * which nothing of ours happened is known as well. */
int64_t client_revision(const struct client *c);
void client_ask_revision(struct client *c);

/* To ask for from the next lease on. */
void client_set_ttl(struct client *c, nsec_t ttl);

const struct session *client_session(const struct client *c);
const struct membership *client_membership(const struct client *c);
const struct services *client_services(const struct client *c);

/* True while a watch feeds the membership; since when it may be old otherwise. */
bool client_synced(const struct client *c);
struct boot_time
client_heard_at(const struct client *c); /* the last word from the core, of any kind */

/* The address that we reach it from; "" while there is none. */
void client_source(const struct client *c, char *out, size_t size);

/* A link, an address or a route has come: what is stuck is tried anew, at once. */
void client_path_back(struct client *c);

/* The host may have stood still without its clocks knowing: is the place still ours? */
void client_doubt(struct client *c);

/* The endpoint that answers us, "" when none does; and the member id of the replica behind it.
 */
const char *client_endpoint(const struct client *c);
uint64_t client_replica(const struct client *c);

/* What went wrong last, since an answer came, for a person; "": nothing. */
const char *client_trouble(const struct client *c);
