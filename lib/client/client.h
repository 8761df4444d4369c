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
#include "loop/resolve.h"
#include "loop/tls.h"
#include "session/session.h"

struct client;

#define CLIENT_ENDPOINTS_MAX 16

struct client_config {
        const char *cluster;         /* the name in the keys */
        const char *endpoints;       /* URLs joined by commas */
        const char *user, *password; /* to log in as, where the core asks; NULL: nobody, or who
                                        our certificate says we are */
        SSL_CTX *tls;                /* for https:// ones; borrowed; NULL: none */
        struct node_record self;     /* what to register: name, id, boot_id, version */
        const struct place *resume;  /* what an earlier life of ours left; NULL: nothing */
        bool observe;                /* follow only; hold nothing */
        struct session_config session;
        uint64_t seed;
};

struct client_ops {
        struct membership_ops members;
        /* The session's state, lease or deadline changed. @why: for a person; "" when there is
         * nothing to say. */
        void (*session)(void *userdata, enum session_state state, const char *why);
        /* The membership is known now, or not current any more. */
        void (*synced)(void *userdata, bool synced);
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

/* What a later life of this node can go on with, as of now; false while nothing is held. */
bool client_place(const struct client *c, struct place *ret);

/* To ask for from the next lease on. */
void client_set_ttl(struct client *c, nsec_t ttl);

const struct session *client_session(const struct client *c);
const struct membership *client_membership(const struct client *c);

/* True while a watch feeds the membership; since when it may be old otherwise. */
bool client_synced(const struct client *c);
struct boot_time
client_heard_at(const struct client *c); /* the last word from the core, of any kind */

/* The endpoint that answers us, "" when none does; and the member id of the replica behind it.
 */
const char *client_endpoint(const struct client *c);
uint64_t client_replica(const struct client *c);
