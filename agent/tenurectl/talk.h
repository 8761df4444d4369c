/* A call to the lease core, waited for. */
#pragma once

#include "client/endpoint.h"
#include "core.h"
#include "loop/tls.h"
#include "wire/pb.h"

/* One call, and the loop that runs for it. */
struct talk {
        struct loop *loop;
        struct resolver *resolver;
        struct endpoint *ep;
        struct tls *tls;
        struct endpoint_login login; /* user NULL: none */
        struct loop_timer timer;
        struct loop_io broken;
        const char *path;
        const ProtobufCMessage *request;
        const ProtobufCMessageDescriptor *reply_type;
        void *reply; /* the last message; owned */
        int (*each)(void *arg,
                    void *reply); /* for every message of a stream; NULL: keep the last */
        void *arg;
        nsec_t limit; /* for the answer; 0: 10 s */
        int break_fd; /* 0: none; when it is readable, `on_break` may end the call */
        int (*on_break)(void *arg); /* a negative errno, which talk() returns, or 0 */
        void *break_arg;
        bool sent, done;
        int failed;  /* of `each` */
        int unread;  /* why there is no `reply`: a negative errno */
        int gave_up; /* 0, -ETIMEDOUT, or what on_break said */
        enum rpc_code code;
        char text[512];
        char down[256];
};

/* Asks one endpoint after the other, until one answers. Returns 0; what `on_break` said;
 * -ETIMEDOUT when a `limit` of the caller's has passed; or has told what went wrong. */
must_check_ int talk(const struct core_options *o, struct talk *t);

/* The usual one: *@ret is the reply, to pb_free(). */
must_check_ int talk_call(const struct core_options *o, const char *path,
                          const ProtobufCMessage *request,
                          const ProtobufCMessageDescriptor *reply_type, void **ret);
