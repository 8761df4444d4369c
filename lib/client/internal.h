/* Shared by the files of client/; not for use elsewhere. */
#pragma once

#include "client/client.h"
#include "client/endpoint.h"

/* Endpoints from DNS; `name` is empty if they are listed instead. */
struct discovery {
        char name[256];
        bool tls, failed;
        struct resolve_query *query;
        char *urls; /* owned; the last answer of DNS */
        struct boot_time at;
        nsec_t retry;
};

struct client {
        struct loop *loop;
        struct loop_hook hook;
        struct resolver *resolver;
        char *user, *password; /* owned */
        struct endpoint_login login;
        struct tls *tls; /* borrowed */
        struct member *member;
        struct end {
                struct client *client;
                struct endpoint *ep;
        } ends[MEMBER_ENDPOINTS_MAX]; /* by the numbers that the member knows them by */
        size_t n_ends;
        struct discovery discovery;
        const struct client_ops *ops; /* NULL: nothing is reported */
        void *userdata;
};

/* Replaces the endpoints by those in @urls; connections to those in both lists stay. */
void client_replace_endpoints(struct client *c, const char *urls);

/* discover.c. -ENOENT: @endpoints is not srv://NAME. */
must_check_ int discover_init(struct client *c, const char *endpoints);
void discover_fini(struct client *c);
void discover_run(struct client *c, struct boot_time now);
struct boot_time discover_next(const struct client *c);
