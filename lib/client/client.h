/*
 * A host's connections to the core, on the caller's loop: carries out what member/ decides.
 *
 * Owns the endpoints, which are listed or come from DNS, and one hook in the loop, which runs
 * the member and makes all callbacks.
 */
#pragma once

#include "loop/loop.h"
#include "loop/tls.h"
#include "member/member.h"

struct client;

struct client_config {
        const char *cluster;         /* the name in the keys */
        const char *endpoints;       /* URLs joined by commas; or srv://, see base/url.h */
        const char *user, *password; /* to log in as, if the core requires it; NULL: do not log
                                        in, but a client certificate may name a user */
        struct tls *tls;             /* for https:// endpoints; borrowed; NULL: none */
        struct node_record self;     /* what to register: name, id, boot_id, version */
        const struct place *resume;  /* what an earlier life of ours has left; NULL: nothing */
        const char *boots;     /* ids of this host's earlier boots, with commas; NULL: none */
        struct boot_time boot; /* when this boot began; or a later time, if that is not known */
        bool observe;          /* follow only; hold nothing */
        bool no_view;          /* follow nothing: nodes and services are not known */
        bool sessions;         /* see struct member_config */
        struct session_config session;
        uint64_t seed;
};

/* Whether a client may have the endpoints @urls: srv://NAME alone, or 1 to MEMBER_ENDPOINTS_MAX
 * URLs. Returns 0, or -EINVAL with @err. */
must_check_ int client_check_endpoints(const char *urls, char *err, size_t err_size);

/* Strings are copied. Returns 0, -EINVAL as client_check_endpoints() does, or -ENOMEM; @err has
 * the reason. */
must_check_ int client_new(struct client **ret, struct loop *l, const struct client_config *cfg,
                           const struct member_events *events, void *userdata, char *err,
                           size_t err_size);
struct client *client_free(struct client *c);
DEFINE_CLEANUP(struct client *, client_free)

/* Replaces the endpoints; connections to those in both lists stay. @tls: for https://
 * endpoints; borrowed. Returns 0, or -EINVAL if one is not a URL. */
must_check_ int client_set_endpoints(struct client *c, const char *urls, struct tls *tls);

/* The member: use the functions of member.h that are "from the program". Borrowed until
 * client_free(). */
struct member *client_member(const struct client *c);

/* ---- for calls that are the program's own, on the same connections ---- */

/* Reports what happens to endpoint number @i, after the member has been informed. */
struct client_ops {
        void (*up)(size_t i, void *userdata);
        /* The calls on it have ended with RPC_UNAVAILABLE. @refused: it is there, but does not
         * let our user in, for the reason @why. */
        void (*down)(size_t i, bool refused, const char *why, void *userdata);
        /* The endpoint has not answered a probe in time. */
        void (*silent)(size_t i, void *userdata);
};
void client_set_ops(struct client *c, const struct client_ops *ops, void *userdata);

/* The connection of endpoint @i, NULL while it is not up; member_pick() chooses the endpoint to
 * use. After making calls on it, call client_kick(). */
struct rpc_conn *client_rpc(const struct client *c, size_t i);
void client_kick(struct client *c, size_t i);
/* Like client_kick(), but at once, for a caller that does not return to the loop. */
void client_flush(struct client *c, size_t i);
/* Checks whether the endpoint still answers; see endpoint_probe(). */
void client_probe(struct client *c, size_t i, nsec_t within);
/* To be called when a call was refused because of its token: logs in on a new connection. */
void client_log_in_again(struct client *c, size_t i);
const char *client_name(const struct client *c, size_t i);

/* Our own address on the connection to the core; "" while there is none. */
void client_source(const struct client *c, char *out, size_t size);
