/*
 * One HTTP/1.1 connection of a server (RFC 9112): bytes in and bytes out.
 *
 * Requests are served one after the other, each as a call of a connection of rpc's that is
 * carried by hand: so it is accounted, made to wait and ended like any of gRPC's. What its
 * owner names as a gRPC method has a body of JSON, and is answered in JSON, as grpc-gateway
 * does it; everything else that is read with GET is a resource, whose bytes go as they are.
 * Owns the parser, the rpc connection and the call. Opens no socket and reads no clock.
 */
#pragma once

#include "rpc/conn.h"
#include "wire/pb.h"

struct http_conn;

/* A gRPC method behind a path. */
struct gateway_method {
        const char *path; /* "/v3/kv/range" */
        const char *call; /* "/etcdserverpb.KV/Range" */
        const ProtobufCMessageDescriptor *request, *answer;
        bool client_streams, server_streams;
        bool waits; /* for others, as long as it takes: a lock */
};

/* A resource that is asked for. The call behind it carries one message, its body. */
struct http_request {
        const char *path, *query; /* "/health", "serializable=true"; borrowed from the call */
        const char *accept;       /* "": none */
};

struct http_site {
        /* The method behind this path; NULL: none. */
        const struct gateway_method *(*method_of)(const char *path);
        /* Whether there is a resource at it. */
        bool (*has)(const char *path);
        /* The time, for the header Date: "Sun, 06 Nov 1994 08:49:37 GMT"; NULL: it is left out.
         */
        const char *(*date)(void);
        /* The hosts that a request may be for, see host_is_listed(); borrowed; NULL: any. */
        const char *hosts;
};

/* @accept gets the calls of methods, and those of resources, which have call->resource set.
 * @site is borrowed. Return 0 or -ENOMEM. */
must_check_ int http_conn_new(struct http_conn **ret, const struct rpc_limits *limits,
                              const struct http_site *site, rpc_accept_fn accept,
                              void *userdata);
struct http_conn *http_conn_free(struct http_conn *c);
DEFINE_CLEANUP(struct http_conn *, http_conn_free)

/* Where its call is, for all that counts calls; borrowed. */
struct rpc_conn *http_conn_rpc(struct http_conn *c);

/* As rpc_conn_input() and rpc_conn_output(); the latter also returns -ECONNABORTED for -EPIPE
 * where the last answer is not whole, and must not pass for it. */
must_check_ int http_conn_input(struct http_conn *c, const void *p, size_t n);
must_check_ int http_conn_output(struct http_conn *c, struct buf *out, size_t max);
bool http_conn_can_go_on(const struct http_conn *c);

/* The other side sends no more. Returns whether answers are still to come: those to requests
 * that are there, but for what would wait or go on without an end, since who has gone looks the
 * same. */
bool http_conn_end(struct http_conn *c);

/* True while no more is to be read: a request waits behind the one that is answered. */
bool http_conn_is_full(const struct http_conn *c);

/* Some time has passed. Returns false for one that has sent half a request, or nothing, for the
 * whole of it, or keeps more than one behind an answer: it is to be ended. */
bool http_conn_look(struct http_conn *c);
/* Then: what it did, for a person; NULL: nothing, it was idle. */
const char *http_conn_complaint(const struct http_conn *c);

/* Bytes of memory that it has beside its call's; of one that is idle, none. */
size_t http_conn_held(const struct http_conn *c);

/* What a resource's call asks for; and its status and type, before its body is sent. The type
 * is borrowed for good. */
const struct http_request *http_request_of(const struct rpc_call *call);
void http_set_answer(struct rpc_call *call, unsigned status, const char *type);
/* Another header of it, "Name: value"; borrowed for good. */
void http_add_header(struct rpc_call *call, const char *header);
