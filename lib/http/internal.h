/* What the files of http/ share. Not for others. */
#pragma once

#include <http_parser.h>

#include "http/conn.h"
#include "wire/json.h"

#define PATH_MAX_ 512 /* of a path and its query */
#define NAME_MAX_ 32  /* of a header's name that means anything to us */
#define HEADERS_MAX 8

/* A request under way, and how far its answer has come. */
struct exchange {
        struct rpc_call *call; /* NULL: its headers are not whole yet, or there is none */
        const struct gateway_method *method; /* NULL: a resource */
        struct http_request pub;
        char path[PATH_MAX_ + 1];
        size_t path_len;
        bool head;        /* HEAD: no body goes back */
        bool keep_alive;  /* another may follow */
        bool chunked;     /* the other side understands that */
        bool came;        /* all of it */
        bool begun;       /* the head of the answer has gone */
        bool over;        /* all of the answer has been made */
        unsigned status;  /* of the answer, and... */
        const char *type; /* ...what its body is; NULL: nothing is said */
        const char *headers[HEADERS_MAX];
        size_t n_headers;
        size_t body; /* bytes that came */

        /* gateway.c */
        struct http_desk *desk;     /* borrowed */
        struct json_reader *reader; /* of that, or its own; NULL: what comes is not looked at */
        struct json_writer writer;  /* the same, while `writing` */
        const char *too_large;      /* what is said of a request that is */
        bool got_message;           /* a message of the request has come */
        bool unread;                /* what came of it could not be read */
        bool deaf;                  /* what comes of it is not looked at any more */
        bool writing;               /* a message of the answer has begun */
        bool malformed;             /* the answer cannot be told in JSON */
};

/* gateway.c: a request begins that may have @max bytes. Returns 0 or -ENOMEM. */
must_check_ int gateway_begin(struct exchange *x, struct http_desk *d, size_t max);
/* Its body, and its end. Errors end the call; -ENOMEM. */
must_check_ int gateway_input(struct exchange *x, const void *p, size_t n);
must_check_ int gateway_input_end(struct exchange *x);
/* Ends the call. The part of the request that has arrived is not treated as a request. */
void gateway_refuse(struct exchange *x, enum rpc_code code, const char *why);
/* Appends about @max bytes of the part of the answer that has been made, as JSON. Returns false
 * when there are none. */
bool gateway_output(struct exchange *x, struct buf *json, size_t max);
/* The error that is sent instead of an answer, or after a part of it. */
void gateway_error(const struct exchange *x, enum rpc_code code, const char *message,
                   struct buf *json);
/* Gives back what it has of the desk. */
void gateway_fini(struct exchange *x);
