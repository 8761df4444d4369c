/*
 * One HTTP/1.1 connection of a server (RFC 9112): bytes in and bytes out.
 *
 * Requests are served one after the other, each as a call on an rpc connection without HTTP/2
 * (rpc_conn_new_bare()): so they are accounted, made to wait and ended like calls of gRPC. A
 * path that the owner maps to a gRPC method takes a body of JSON and is answered in JSON, as
 * grpc-gateway does it; every other path is a resource, which is read with GET and whose bytes
 * are sent unchanged. Owns the parser, the rpc connection and the call. Opens no socket and
 * reads no clock.
 */
#pragma once

#include "rpc/conn.h"
#include "wire/json.h"

struct http_conn;

/* The JSON reader and writer, and a buffer for an answer, that all connections of one owner
 * share. A connection takes what it needs while it has a request or an answer under way, and
 * makes its own if another connection has it. So idle connections keep nothing, and busy ones
 * use the same memory in turn. Initialise it to zeroes. */
struct http_desk {
        struct json_reader *reader;
        struct json_writer writer;
        struct buf body; /* where an answer is built */
};

void http_desk_fini(struct http_desk *d);

/* A gRPC method behind a path. */
struct gateway_method {
        const char *path; /* "/v3/kv/range" */
        const char *call; /* "/etcdserverpb.KV/Range" */
        const ProtobufCMessageDescriptor *request, *answer;
        bool client_streams, server_streams;
        bool waits; /* the answer waits for other clients, without limit: a lock */
};

/* A request for a resource. The call behind it carries one message, the resource's body. */
struct http_request {
        const char *path, *query; /* "/health", "serializable=true"; borrowed from the call */
        const char *accept;       /* "": none */
};

struct http_site {
        /* The method behind this path; NULL: none. */
        const struct gateway_method *(*method_of)(const char *path);
        /* Whether there is a resource at this path. */
        bool (*has)(const char *path);
        /* The time for the header Date, such as "Sun, 06 Nov 1994 08:49:37 GMT"; NULL: the
         * header is left out. */
        const char *(*date)(void);
        /* The hosts that requests may name, see host_is_listed(); borrowed; NULL: any. */
        const char *hosts;
};

/* @accept gets the calls of methods, and those of resources, which have call->resource set.
 * @site and @desk are borrowed. Return 0 or -ENOMEM. */
must_check_ int http_conn_new(struct http_conn **ret, const struct rpc_limits *limits,
                              const struct http_site *site, struct http_desk *desk,
                              rpc_accept_fn accept, void *userdata);
struct http_conn *http_conn_free(struct http_conn *c);
DEFINE_CLEANUP(struct http_conn *, http_conn_free)

/* The rpc connection that its call belongs to, for code that counts calls; borrowed. */
struct rpc_conn *http_conn_rpc(struct http_conn *c);

/* Like rpc_conn_input() and rpc_conn_output(). Where the latter would return -EPIPE,
 * http_conn_output() returns -ECONNABORTED if the last answer is incomplete, which the client
 * must not take for complete. */
must_check_ int http_conn_input(struct http_conn *c, const void *p, size_t n);
must_check_ int http_conn_output(struct http_conn *c, struct buf *out, size_t max);
bool http_conn_can_go_on(const struct http_conn *c);

/* The other side has closed its side. Returns whether answers are still to be sent: to the
 * requests that have arrived, except those that would wait or continue without end, since a
 * client that has gone looks the same. */
bool http_conn_end(struct http_conn *c);

/* True while no more is to be read: a request waits behind the one that is answered. */
bool http_conn_is_full(const struct http_conn *c);

/* To be called at intervals. Returns false if the connection is to be ended: since the last
 * call it has sent an incomplete request at most, or has kept more than one request waiting
 * behind an answer that it does not read. */
bool http_conn_look(struct http_conn *c);
/* After http_conn_look() has returned false: what the client did wrong, as text for an
 * operator; NULL: it was idle. */
const char *http_conn_complaint(const struct http_conn *c);

/* Bytes of memory that it holds in addition to its call's; 0 while it is idle. */
size_t http_conn_held(const struct http_conn *c);

/* http_request_of(): the request behind a resource's call. http_set_answer() sets the status
 * and type of the answer, before its body is sent; @type must stay valid forever. */
const struct http_request *http_request_of(const struct rpc_call *call);
void http_set_answer(struct rpc_call *call, unsigned status, const char *type);
/* Adds a header to the answer, "Name: value"; @header must stay valid forever. */
void http_add_header(struct rpc_call *call, const char *header);
