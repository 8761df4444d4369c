/* What the files of rpc/ share. Not for others. */
#pragma once

#include <bsd/sys/queue.h>
#include <nghttp2/nghttp2.h>

#include "rpc/conn.h"

#define FRAME_HEADER 5 /* compressed flag, length */
#define SPARE_KEPT \
        ((size_t) 256) /* bytes of a call's buffers kept for the next: a small call */
/* How much a client may send of each call before we open the window further; a longer message
 * waits for room. So 8,192 calls of one connection cannot bring more than 128 MiB. */
#define RPC_STREAM_WINDOW (16 * 1024)

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
        bool called_token; /* server: by its header */
        struct buf in, out;
        size_t in_memory, out_memory; /* that they take, as it is counted */
        size_t left;                  /* bare: of the answer that is being taken out of `out` */
        size_t apart;                 /* bare: of half a message, which its owner has */
        size_t header_bytes;          /* of the request, decoded */
        size_t window;   /* bytes that the other side has not been given back: server: of `in`;
                            client: that came while its handler takes no message */
        size_t room;     /* server: what a large message was given beside the window... */
        size_t reserved; /* ...and of that, what it does not fill yet */
        size_t cost;     /* by itself, with its headers */
        size_t request;  /* what its request takes elsewhere */
        size_t charge;   /* all that, and what else it costs elsewhere */
        size_t kept;     /* see struct rpc_account */
        bool begs;       /* waits for that room */
        bool post, grpc; /* server: what the request's headers said */
        bool submitted;  /* server: the response's headers are under way */
        bool finished;   /* no message follows in our direction */
        bool sent;       /* client: of its messages, something */
        bool deferred;   /* nghttp2 waits for nghttp2_session_resume_data() */
        bool closing;    /* on_close has been called */
        bool held;       /* its handler takes no message now */
        bool full;       /* too much waits to be sent to it, so nothing is taken from it */
        bool wants_room; /* its handler asked, and not a message */
        bool sends;      /* its handler goes on when what is queued has gone */
        bool turn;       /* the next message is its to have */
        bool delivering;
        bool end_reported;
        bool has_status;
        bool silent; /* canceled by its owner, which wants no status */
        enum rpc_code code;
        char *message;
        struct rpc_counts *counts; /* NULL: it counts nowhere, or has been counted */
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
        char *token; /* client: what its calls show */
        bool tls;
        bool established;
        bool nomem;
        bool calm; /* it got ENHANCE_YOUR_CALM: nothing more is taken from it */
        uint64_t pongs;
        size_t n_calls;
        LIST_HEAD(, call) calls;
        struct call *spare; /* server: for the next call; owned */

        /* flow.c */
        struct calls ready;       /* may go on with their messages */
        struct calls waiting;     /* go on once there is room */
        struct calls behind;      /* go on once there are fewer requests */
        struct calls senders;     /* make more of their answers */
        struct calls beggars;     /* have begun a large message */
        size_t in, out;           /* bytes of all calls */
        uint64_t received, taken; /* the same, in all */
        size_t charged;           /* by the services, for what waits for the log, say, and... */
        size_t cost;              /* ...of that what the calls cost by themselves... */
        size_t requests;          /* ...and their requests */
        size_t rooms;             /* given for large messages... */
        size_t reserved;          /* ...and not filled yet */
        size_t idle_frames;       /* that brought nothing */
        uint64_t came, reported;  /* frames, and those of them that nghttp2 has reported */
        uint8_t head[9];          /* of the next frame, as far as it came */
        size_t n_head, skip;      /* bytes of that; and up to it, what the last one holds */
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
/* Server: hands it to the services. */
void call_accept(struct call *k);
/* Tells its handler that it is over. */
void call_close(struct call *k, enum rpc_code code, const char *message);
/* The peer's data is not accepted, so its call cannot go on. */
void call_refuse(struct call *k, enum rpc_code code, const char *message);
void frame_head(uint8_t head[FRAME_HEADER], size_t n);
size_t frame_len(const uint8_t head[FRAME_HEADER]);

/* h2.c */
void h2_free(struct rpc_conn *c);
/* There is more to send of it. */
void h2_resume(struct call *k);
/* h2_answer(): server: the first message of the answer is queued. h2_end_unanswered(): there is
 * none, and the call is over. */
void h2_answer(struct call *k);
void h2_end_unanswered(struct call *k);
/* Client: it is given up. */
void h2_reset(struct call *k);

/* It has ended with @code, if it counts. */
void call_count_end(struct call *k, enum rpc_code code);

/* flow.c */
void flow_init(struct rpc_conn *c);
void flow_call_begins(struct call *k);
void flow_call_ends(struct call *k);
/* The call itself costs @bytes more, for its headers for example. */
void flow_costs(struct call *k, size_t bytes);
/* @k->in, or @k->out, had @before bytes. Frees the memory of an empty buffer, or of a large one
 * that is half empty. */
void flow_in_changed(struct call *k, size_t before);
void flow_out_changed(struct call *k, size_t before);
/* Half a message of it takes so many bytes elsewhere. */
void flow_apart(struct call *k, size_t bytes);
/* Whether the next message, of @len bytes, may be given to the handler now; if not, it is given
 * later. */
bool flow_may_deliver(struct call *k, size_t len);
/* A message of @len bytes has begun and is not whole. */
void flow_half(struct call *k, size_t len);
/* A message has been taken out of `in`. */
void flow_taken(struct call *k);
/* Bytes came: @n of them for @k, which may be NULL. */
void flow_received(struct rpc_conn *c, struct call *k, int32_t stream, size_t n);
/* Gives the whole messages that came to the handler, and the end. */
void call_deliver(struct call *k);
/* Drops all further input. */
void flow_drop_input(struct call *k);
/* A frame begins. Returns false when no more of the input is to be processed. */
bool flow_frame(struct rpc_conn *c, const nghttp2_frame_hd *hd);
/* After nghttp2 has taken in these bytes: counts the frames that began in them and were not
 * reported. */
void flow_count_unreported(struct rpc_conn *c, const uint8_t *p, size_t n);
/* The same for a frame that makes one stream depend on another. */
bool flow_priority(struct rpc_conn *c);
void flow_calm(struct rpc_conn *c);
/* Resumes some calls for which there is room now. Not from inside nghttp2's callbacks. */
void flow_run(struct rpc_conn *c);
