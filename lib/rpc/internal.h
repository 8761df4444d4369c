/* Shared by the files of rpc/, and private to them. */
#pragma once

#include <bsd/sys/queue.h>
#include <nghttp2/nghttp2.h>

#include "rpc/conn.h"

#define FRAME_HEADER 5 /* compressed flag, length */
#define SPARE_KEPT \
        ((size_t) 256) /* bytes of a call's buffers that are kept for the next small call */
/* How much a client may send of each call before we open the window further; a longer message
 * waits for room. So 8,192 calls of one connection cannot bring more than 128 MiB. */
#define RPC_STREAM_WINDOW (16 * 1024)
#define SHARE ((size_t) 64 << 10) /* what a connection may hold if all hold too much */

/* Room for "/package.Service/Method"; a longer path is cut, and is then no method of ours. */
#define PATH_SIZE 96

struct call {
        struct rpc_call pub;
        LIST_ENTRY(call) of_conn;
        TAILQ_ENTRY(call) queued; /* in `line`, if that is set */
        TAILQ_ENTRY(call) begging;
        struct calls *line; /* of the connection: ready, waiting or behind; NULL: none */
        int32_t stream;
        char path[PATH_SIZE];
        char *token;       /* may be a secret: wiped */
        bool called_token; /* server: by the header `token` */
        struct buf in, out;
        size_t in_memory, out_memory; /* the memory that they take, as counted */
        size_t left;                  /* bare: bytes of the current message still in `out` */
        size_t apart;                 /* bare: bytes of an incomplete message, at the owner */
        size_t header_bytes;          /* of the request, decoded */
        size_t window;   /* bytes not given back to the peer's window: server: those in `in`;
                            client: those received while the handler takes no message */
        size_t room;     /* server: room beside the window for a large message... */
        size_t reserved; /* ...and the part of it that is not filled yet */
        size_t cost;     /* of the call itself and its headers, see struct rpc_account */
        size_t waiting;  /* a part of that, see rpc_call_cost() */
        size_t request;  /* what the services hold for its request */
        size_t charge;   /* that, and what the services hold for its answer */
        size_t kept;     /* see struct rpc_account */
        bool refused;    /* server: its address has too many */
        bool begs;       /* waits for `room` */
        bool post, grpc; /* server: what the request's headers said */
        bool submitted;  /* server: the response's headers are under way */
        bool finished;   /* no message follows in our direction */
        bool sent;       /* client: a part of its messages has been sent */
        bool deferred;   /* nghttp2 waits for nghttp2_session_resume_data() */
        bool closing;    /* on_close has been called */
        bool held;       /* its handler takes no messages now */
        bool full;       /* too much output is queued, so no message is taken */
        bool wants_room; /* the handler waits for room, not a message */
        bool sends;      /* the handler continues when the queued output has been sent */
        bool turn;       /* the next message is delivered without a check */
        bool delivering;
        bool end_reported;
        bool has_status;
        bool silent; /* canceled by its owner, which wants no status */
        enum rpc_code code;
        char *message;
        struct rpc_counts *counts; /* NULL: it is not counted, or has been */
        struct boot_time began;
};

TAILQ_HEAD(calls, call);

struct rpc_conn {
        nghttp2_session *h2; /* NULL: its owner carries the calls, bare.c */
        bool server;
        struct rpc_limits limits;
        rpc_accept_fn accept;
        void *accept_data;
        void *userdata;
        char *authority;
        char *token;      /* client: sent with each call */
        const char *core; /* client: sent with each call; borrowed */
        bool tls;
        bool established;
        bool leaving; /* client: the server takes no new calls (GOAWAY) */
        bool nomem;
        bool calm; /* it got ENHANCE_YOUR_CALM: further input is ignored */
        uint64_t pongs;
        size_t n_calls;
        LIST_HEAD(, call) calls;
        struct call *spare; /* server: for the next call; owned */

        /* flow.c */
        struct calls ready;       /* may continue with their messages */
        struct calls waiting;     /* continue once there is room */
        struct calls behind;      /* continue once there are fewer requests */
        struct calls senders;     /* make more of their answers */
        struct calls beggars;     /* have begun a large message */
        size_t in, out;           /* bytes of all calls */
        uint64_t received, taken; /* of all calls since the beginning */
        size_t charged;           /* held by the services, such as for writes... */
        size_t requests;          /* ...including for requests */
        size_t refused;           /* the cost of calls that were refused */
        size_t frames;            /* the cost of frames that wait, beside those of open calls */
        size_t rooms;             /* given for large messages... */
        size_t reserved;          /* ...and not filled yet */
        size_t idle_frames;       /* that carried no content */
        uint64_t came, reported;  /* frames received, and those that nghttp2 has reported */
        uint8_t head[9];          /* header of the next frame, as far as received */
        size_t n_head, skip;      /* bytes of that; and payload to skip before it */
        size_t n_priorities;      /* frames that made a stream depend on another */
};

static inline struct call *call_of(struct rpc_call *pub)
{
        return container_of(pub, struct call, pub);
}

/* conn.c */
struct rpc_conn *conn_new(bool server);
void conn_serve(struct rpc_conn *c, const struct rpc_limits *limits, rpc_accept_fn accept,
                void *userdata);
struct call *call_alloc(struct rpc_conn *c, int32_t stream);
void call_free(struct call *k);
void call_set_path(struct call *k, const void *p, size_t n);
/* Server: offers the call to the services. */
void call_accept(struct call *k);
/* Ends the call: its handler gets on_status, if a client's, and on_close. */
void call_close(struct call *k, enum rpc_code code, const char *message);
/* Ends the call because the peer's data is not accepted. */
void call_refuse(struct call *k, enum rpc_code code, const char *message);
void frame_head(uint8_t head[FRAME_HEADER], size_t n);
size_t frame_len(const uint8_t head[FRAME_HEADER]);

/* h2.c */
void h2_free(struct rpc_conn *c);
/* The call has more to send. */
void h2_resume(struct call *k);
/* h2_answer(): server: the first message of the answer is queued. h2_end_unanswered(): there is
 * none, and the call is over. */
void h2_answer(struct call *k);
void h2_end_unanswered(struct call *k);
/* Client: gives the call up. */
void h2_reset(struct call *k);

/* Counts the end of the call with @code, if the call is counted. */
void call_count_end(struct call *k, enum rpc_code code);

/* cost.c: server */
void cost_begins(struct call *k);
/* The headers are complete. */
void cost_headers(struct call *k);
/* Whether the call may stay open. If not, its token is dropped, and it is to be refused. */
bool cost_may_stay(struct call *k);
void cost_ends(struct call *k);
/* The queue of frames may have changed. */
void cost_frames(struct rpc_conn *c);
/* Like cost_frames(), after input from the client: if its address has too much queued, ends a
 * connection with many frames as one that does not read. */
void cost_frames_came(struct rpc_conn *c);
void cost_frames_end(struct rpc_conn *c);

/* flow.c */
void flow_init(struct rpc_conn *c);
void flow_call_begins(struct call *k);
void flow_call_ends(struct call *k);
/* @k->in, or @k->out, had @before bytes. Frees the memory of an empty buffer, or of a large one
 * that is half empty. */
void flow_in_changed(struct call *k, size_t before);
void flow_out_changed(struct call *k, size_t before);
/* The owner holds @bytes of an incomplete message. */
void flow_apart(struct call *k, size_t bytes);
/* Whether the next message, of @len bytes, may be given to the handler now; if not, it is given
 * later. */
bool flow_may_deliver(struct call *k, size_t len);
/* A message of @len bytes has begun and is not whole. */
void flow_half(struct call *k, size_t len);
/* A message has been taken out of `in`. */
void flow_taken(struct call *k);
/* @n bytes arrived on @stream, for @k, which may be NULL. */
void flow_received(struct rpc_conn *c, struct call *k, int32_t stream, size_t n);
/* Delivers complete messages to the handler, and then the end. */
void call_deliver(struct call *k);
/* Drops the input that has not been taken. */
void flow_drop_input(struct call *k);
/* A frame begins. Returns false when no more of the input is to be processed. */
bool flow_frame(struct rpc_conn *c, const nghttp2_frame_hd *hd);
/* After nghttp2 has taken in these bytes: counts the frames that began in them and were not
 * reported. */
void flow_count_unreported(struct rpc_conn *c, const uint8_t *p, size_t n);
/* Like flow_frame(), for a frame that makes one stream depend on another. */
bool flow_priority(struct rpc_conn *c);
void flow_calm(struct rpc_conn *c);
/* Resumes some calls for which there is room now. Not from inside nghttp2's callbacks. */
void flow_run(struct rpc_conn *c);
