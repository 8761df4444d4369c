/*
 * The stream that all watches of a tie share, and the one that all its caches share: to one
 * replica at a time. When it ends, the next one begins, after a delay that grows until a stream
 * works. For tenure/ only.
 */
#pragma once

#include "tenure/calls.h"

struct call_stream {
        struct tenure *tenure;
        struct rpc_call *call;     /* NULL: there is none; the handler of its end sets this */
        size_t endpoint;           /* where the stream is, or was */
        struct boot_time retry_at; /* no stream is begun before that */
        nsec_t backoff;
};

void call_stream_init(struct call_stream *s, struct tenure *t);

/* Begins a stream of the method @path; @handler gets its events, with @userdata. Returns false
 * if that is not possible now: calls_run() runs once there is an endpoint, and `retry_at` is
 * when to try again. */
bool call_stream_begin(struct call_stream *s, const char *path,
                       const struct rpc_handler *handler, void *userdata, struct boot_time now);

/* Sends a message. After a negative errno the stream may be gone. */
must_check_ int call_stream_send(struct call_stream *s, const ProtobufCMessage *q);

/* Checks the header of a message, whose revision may be 0 if @no_revision. Returns 0, -EBADMSG,
 * or -EXDEV if it comes from another core. */
must_check_ int call_stream_heard(struct call_stream *s, const Pb__ResponseHeader *h,
                                  bool no_revision);

/* The stream works: if it ends, the next one may begin soon. */
void call_stream_works(struct call_stream *s);

/* Ends the stream, if there is one. */
void call_stream_leave(struct call_stream *s);
/* Delays the next stream, each time by more. */
void call_stream_try_again(struct call_stream *s);
/* Ends the stream, delays the next one, and prefers other endpoints for a while. */
void call_stream_go_elsewhere(struct call_stream *s);
/* The endpoint @i is silent. */
void call_stream_silent(struct call_stream *s, size_t i);
