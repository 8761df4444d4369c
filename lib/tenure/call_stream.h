/*
 * The stream that all watches of a tie share, and all caches: one at a time, at whatever
 * replica there is. Where it ends, another one is begun, later each time until one works. Not
 * for others than tenure/.
 */
#pragma once

#include "tenure/calls.h"

struct call_stream {
        struct tenure *tenure;
        struct rpc_call *call;     /* NULL: there is none; whoever handles its end says so */
        size_t endpoint;           /* where it is, or was */
        struct boot_time retry_at; /* none is begun before that */
        nsec_t backoff;
};

void call_stream_init(struct call_stream *s, struct tenure *t);

/* Begins the stream of @path, whose calls of @handler have @userdata. False: not now;
 * calls_run() comes when there is an endpoint, and `retry_at` says when to try again. */
bool call_stream_begin(struct call_stream *s, const char *path,
                       const struct rpc_handler *handler, void *userdata, struct boot_time now);

/* It may be gone after a negative errno. */
must_check_ int call_stream_send(struct call_stream *s, const ProtobufCMessage *q);

/* What came is of the core that we have to do with: 0, -EBADMSG or -EXDEV. */
must_check_ int call_stream_heard(struct call_stream *s, const Pb__ResponseHeader *h);

/* It works: the next one may begin soon. */
void call_stream_works(struct call_stream *s);

/* Ends it, if there is one. */
void call_stream_leave(struct call_stream *s);
/* The next one waits a while, and the one after it longer. */
void call_stream_try_again(struct call_stream *s);
/* Both, and others come before that endpoint. */
void call_stream_go_elsewhere(struct call_stream *s);
/* The endpoint @i is silent. */
void call_stream_silent(struct call_stream *s, size_t i);
