/* One call to the lease core, waiting for its answer. */
#pragma once

#include "core.h"
#include "loop/tls.h"
#include "wire/pb.h"

#define TALK_URL_MAX 320

/* One call, and the loop that runs for it. */
struct talk {
        struct loop *loop;
        struct resolver *resolver;
        struct endpoint *ep;
        struct tls *tls;
        struct loop_timer timer;
        struct loop_io broken;
        const char *path;
        const ProtobufCMessage *request;
        const ProtobufCMessageDescriptor *reply_type;
        void *reply; /* the last message; owned */
        int (*each)(void *arg,
                    void *reply); /* for every message of a stream; NULL: keep the last */
        void *arg;
        nsec_t limit;    /* for the answer, or each message of a stream; 0: 10 s */
        nsec_t patience; /* how long to wait for each endpoint before the next is asked; 0: 5 s,
                            then `limit` */
        enum rpc_code
                quiet; /* print nothing for this code, since the caller prints it; 0: none */
        char url[TALK_URL_MAX]; /* the endpoint that was asked last */
        int break_fd;           /* 0: none; when it is readable, `on_break` may end the call */
        int (*on_break)(void *arg); /* a negative errno, which talk() returns, or 0 */
        void *break_arg;
        const char *again; /* an error text of the core for which talk() returns -EAGAIN and
                              prints nothing; NULL: none */
        bool asks_again;   /* the caller asks again if nobody answers or the answer is lost:
                              talk() returns -ENOTCONN, and prints nothing */
        bool sent, done, late;
        int failed;  /* of `each` */
        int unread;  /* why there is no `reply`: a negative errno */
        int gave_up; /* 0, -ETIMEDOUT, or what on_break has returned */
        enum rpc_code code;
        char text[512];
        char down[256];
};

/* Asks one endpoint after the other, until one answers. Returns 0; what `on_break` returned;
 * -ETIMEDOUT if the caller has set a `limit`, which has passed; -EAGAIN; -ENOTCONN; or another
 * negative errno after printing what went wrong. */
must_check_ int talk(const struct core_options *o, struct talk *t);

/* Determines the user to log in as, if any, and the password: o->login borrows @user and
 * @password. Returns 0, or -1 after printing what is wrong. */
#define TALK_USER 256
#define TALK_PASSWORD 512
must_check_ int talk_log_in(struct core_options *o, char user[static TALK_USER],
                            char password[static TALK_PASSWORD]);

/* A call with the usual settings; the caller frees *@ret, the reply, with pb_free(). */
must_check_ int talk_call(const struct core_options *o, const char *path,
                          const ProtobufCMessage *request,
                          const ProtobufCMessageDescriptor *reply_type, void **ret);
