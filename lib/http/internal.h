/* Shared by the files of http/, and private to them. */
#pragma once

#include <http_parser.h>

#include "http/conn.h"
#include "wire/json.h"

#define PATH_MAX_ 512 /* of a path and its query */
#define NAME_MAX_ 32  /* longest name of a header that we evaluate */
#define HEADERS_MAX 8

/* A request under way, and how far its answer has come. */
struct exchange {
        struct rpc_call *call; /* NULL: there is none, or its head is incomplete */
        const struct gateway_method *method; /* NULL: a resource */
        struct http_request pub;
        char path[PATH_MAX_ + 1];
        size_t path_len;
        bool head;        /* HEAD: no body goes back */
        bool keep_alive;  /* another request may follow */
        bool chunked;     /* the client understands chunks */
        bool came;        /* the whole request has arrived */
        bool begun;       /* the head of the answer is in the output */
        bool over;        /* the whole answer is in the output */
        unsigned status;  /* of the answer, and... */
        const char *type; /* ...the type of its body; NULL: not sent */
        const char *headers[HEADERS_MAX];
        size_t n_headers;
        size_t body; /* bytes of the request's body so far */

        /* gateway.c */
        struct http_desk *desk;     /* borrowed */
        struct json_reader *reader; /* the desk's or its own; NULL: the input is ignored */
        struct json_writer writer;  /* the desk's or its own, while `writing` */
        const char *too_large;      /* the error text for a request that is too large */
        bool got_message;           /* a message of the request has come */
        bool unread;                /* the request could not be parsed */
        bool deaf;                  /* the rest of the request is ignored */
        char *late;     /* why a later message could not be read, reported after the answers; or
                           NULL */
        bool writing;   /* a message of the answer has begun */
        bool malformed; /* the answer cannot be written as JSON */
};

/* gateway.c: begins a request of at most @max bytes. Returns 0 or -ENOMEM. */
must_check_ int gateway_begin(struct exchange *x, struct http_desk *d, size_t max);
/* Take the request's body, and its end. An error in it ends the call. Return 0 or -ENOMEM. */
must_check_ int gateway_input(struct exchange *x, const void *p, size_t n);
must_check_ int gateway_input_end(struct exchange *x);
/* Whether the call waits for others, or continues until the client ends it, as a watch does. A
 * keep-alive and a snapshot end by themselves once the whole request has arrived and been
 * answered. */
bool gateway_goes_on(const struct exchange *x);
/* Ends the call. What has arrived of the request is discarded. */
void gateway_refuse(struct exchange *x, enum rpc_code code, const char *why);
/* Appends about @max bytes of the part of the answer that has been made, as JSON. Returns false
 * when there are none. */
bool gateway_output(struct exchange *x, struct buf *json, size_t max);
/* As rpc_call_is_over(); a later message that could not be read is then an error, too. */
bool gateway_is_over(const struct exchange *x, enum rpc_code *ret_code,
                     const char **ret_message);
/* The error that is sent instead of an answer, or after a part of it. */
void gateway_error(const struct exchange *x, enum rpc_code code, const char *message,
                   struct buf *json);
/* Gives back to the desk what it has taken. */
void gateway_fini(struct exchange *x);
