/* One call to the lease core, waiting for its answer. */
#pragma once

#include "client/endpoint.h"
#include "core.h"
#include "loop/tls.h"
#include "wire/pb.h"

#define TALK_URL_MAX 320
#define TALK_LOGIN_MAX 800

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
        nsec_t limit;    /* for the answer; 0: 10 s */
        nsec_t patience; /* with each endpoint, before the next is asked; 0: 5 s, then `limit`
                          */
        enum rpc_code quiet;    /* the caller says what that means; 0: there is no such */
        char url[TALK_URL_MAX]; /* who was asked last */
        int break_fd;           /* 0: none; when it is readable, `on_break` may end the call */
        int (*on_break)(void *arg); /* a negative errno, which talk() returns, or 0 */
        void *break_arg;
        const char *again; /* what the core says when it is to be asked once more: -EAGAIN, and
                              nothing is printed; NULL: nothing */
        bool asks_again;   /* the caller does, when nobody answers or the answer is lost:
                              -ENOTCONN, and nothing is printed */
        bool sent, done, late;
        int failed;  /* of `each` */
        int unread;  /* why there is no `reply`: a negative errno */
        int gave_up; /* 0, -ETIMEDOUT, or what on_break said */
        enum rpc_code code;
        char text[512];
        char down[256];
};

/* Asks one endpoint after the other, until one answers. Returns 0; what `on_break` said;
 * -ETIMEDOUT when a `limit` of the caller's has passed; -EAGAIN; -ENOTCONN; or has printed what
 * went wrong. */
must_check_ int talk(const struct core_options *o, struct talk *t);

/* Who to log in as, as @o says, which may be nobody; @name and @password keep it. Returns 0, or
 * has printed what is wrong. */
#define TALK_NAME 256
#define TALK_PASSWORD 512
must_check_ int talk_login(const struct core_options *o, struct endpoint_login *ret,
                           char name[TALK_NAME], char password[TALK_PASSWORD]);

/* For several calls: looks for the password once, and keeps it in @login, which @o refers to
 * then. Returns 0 or a negative errno, and has said why. */
must_check_ int talk_log_in_once(struct core_options *o, char login[static TALK_LOGIN_MAX]);

/* The usual one: *@ret is the reply, to pb_free(). */
must_check_ int talk_call(const struct core_options *o, const char *path,
                          const ProtobufCMessage *request,
                          const ProtobufCMessageDescriptor *reply_type, void **ret);
