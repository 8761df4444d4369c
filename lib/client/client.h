/*
 * A host's connection to the core, on the caller's loop: what member/ decides, with real
 * connections.
 *
 * Owns the endpoints, as they are listed or as DNS names them, and one hook in the loop, in
 * which the member runs; callbacks come from there.
 */
#pragma once

#include "loop/loop.h"
#include "loop/tls.h"
#include "member/member.h"

struct client;

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
        bool no_view;          /* follow nobody: who is there is not known */
        bool sessions;         /* see struct member_config */
        struct session_config session;
        uint64_t seed;
};

/* Strings are copied. Returns 0, -EINVAL when an endpoint is no URL (named in @err), or
 * -ENOMEM. */
must_check_ int client_new(struct client **ret, struct loop *l, const struct client_config *cfg,
                           const struct member_events *events, void *userdata, char *err,
                           size_t err_size);
struct client *client_free(struct client *c);
DEFINE_CLEANUP(struct client *, client_free)

/* Other endpoints from now on; what is in both lists goes on. @tls: for https:// ones;
 * borrowed. Returns 0, or -EINVAL when one is no URL. */
must_check_ int client_set_endpoints(struct client *c, const char *urls, struct tls *tls);

/* What it decides, and knows: of member.h all that is "from the program". Goes with the client.
 */
struct member *client_member(const struct client *c);

/* ---- for calls that are the program's own, on the same connections ---- */

/* What happens to an endpoint, by its number; the member knows already. */
struct client_ops {
        void (*up)(size_t i, void *userdata);
        /* The calls on it have ended with RPC_UNAVAILABLE. @refused: it is there, and does not
         * let our user in, for @why. */
        void (*down)(size_t i, bool refused, const char *why, void *userdata);
        /* It has not answered a probe in time. */
        void (*silent)(size_t i, void *userdata);
};
void client_set_ops(struct client *c, const struct client_ops *ops, void *userdata);

/* Which one to use: member_pick() of member.h. Its connection, NULL while it is not up;
 * client_kick() after calls. */
struct rpc_conn *client_rpc(const struct client *c, size_t i);
void client_kick(struct client *c, size_t i);
/* The same, at once, for who does not return to the loop. */
void client_flush(struct client *c, size_t i);
/* Is somebody still there? See endpoint_probe(). */
void client_probe(struct client *c, size_t i, nsec_t within);
/* A call was refused for its token: on a new connection. */
void client_log_in_again(struct client *c, size_t i);
const char *client_name(const struct client *c, size_t i);
size_t client_n_endpoints(const struct client *c);

/* The address that we reach the core from; "" while there is none. */
void client_source(const struct client *c, char *out, size_t size);
