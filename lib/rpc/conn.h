/*
 * One gRPC connection, as client or as server: HTTP/2 by nghttp2, bytes in and bytes out. Or,
 * as a server, calls that the owner carries by hand.
 *
 * Owns the HTTP/2 session and its calls. Opens no socket and reads no clock: the owner feeds
 * what it read to rpc_conn_input() and writes what rpc_conn_output() gives. Single-threaded.
 * Calls may be made, answered and ended inside of the handlers. References: RFC 9113;
 * grpc/doc/PROTOCOL-HTTP2.md.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "rpc/code.h"

struct rpc_conn;
struct rpc_call;

/* What happens to a call. Each may be NULL but `on_close`. */
struct rpc_handler {
        /* One whole message; @message is borrowed for the call. */
        void (*on_message)(struct rpc_call *call, struct view message);
        /* Server: the client has sent its last message. */
        void (*on_end)(struct rpc_call *call);
        /* Server: rpc_call_wait() or rpc_call_wait_sent() has ended. */
        void (*on_room)(struct rpc_call *call);
        /* Client: the status came, or the connection ended (RPC_UNAVAILABLE). Once; on_close
         * follows. */
        void (*on_status)(struct rpc_call *call, enum rpc_code code, const char *message);
        /* The call is over and is freed after this: drop it. Called once, in any case. */
        void (*on_close)(struct rpc_call *call);
};

/* The part of a call that its handler works with. */
struct rpc_call {
        const struct rpc_handler *handler;
        void *userdata;               /* the handler's own */
        struct rpc_conn *conn;        /* borrowed */
        const char *path;             /* "/package.Service/Method"; borrowed from the call */
        nsec_t timeout;               /* grpc-timeout; 0 when there is none */
        bool want_leader;             /* the metadata `hasleader: true` */
        uint64_t core, core_ancestor; /* the metadata `tenure-core`: the core that the client
                                         belongs to, and its ancestor; 0: none */
        const char *token; /* the metadata `token`, or `authorization`; NULL: none; borrowed */
        bool ended;        /* server: the client has sent its last message */
        bool unary; /* server: set by the code that accepts the call: the client sends one
                       request */
        bool large; /* server: set there, too: its answer may be large, so the request waits for
                       room */
        bool half;  /* server: a message has begun and not ended */
        void *carrier; /* of a call without HTTP/2: the owner's, see rpc_call_arrive() */
        bool resource; /* of such a call: `path` is that of an HTTP resource, not of a method */
        bool seen; /* server: for the owner of the connection, to find calls without progress;
                      each message resets it to false */
        /* Server: a list of the code that accepts the call, which the call leaves as it closes.
         */
        LIST_ENTRY(rpc_call) next_listed;
        bool listed;
};
LIST_HEAD(rpc_call_list, rpc_call);

/* Adds the call to @list, or takes it out again. */
void rpc_call_list(struct rpc_call *call, struct rpc_call_list *list);
void rpc_call_unlist(struct rpc_call *call);

/* Server: metrics of the calls of one method. */
struct rpc_counts {
        uint64_t started, received, sent;          /* calls; messages */
        uint64_t received_bytes, sent_bytes;       /* of messages */
        uint64_t handled[RPC_UNAUTHENTICATED + 1]; /* calls that have ended, by their code */
        struct histogram took;                     /* how long those took (histogram_calls) */
        const struct boot_time *now;               /* points to the present time; borrowed */
};

/* Memory held for clients: half messages, data that waits to be sent, waiting requests. There
 * is an account for each connection, for each address, and for all: each also counts in
 * @parent. An account may hold as much of its parent's room as is still unused. Memory that is
 * kept, and what open calls cost, are counted separately: they shrink when a client wants it,
 * and not by waiting. Each charge has a bound:
 *
 *   charge                         counts in  bound                    there    told
 *   an open call, its path, token  calls      the address's part       refused  client, log
 *   a call that waits for a lock   calls      ...at the next call      refused  client, log
 *   refusals that are not read     calls      ...and a quarter more    ends     client
 *   queued frames beside the calls calls      ...and a quarter more    ends     client
 *   headers of a request           calls      16 KiB of a call         refused  client
 *   the same, and later ones       nothing    64 KiB of a call         ends     client
 *   incomplete messages            held       64 MiB of a connection   refused  client
 *   the same, without room         held       128 KiB of a connection  refused  client
 *   room for a large message       held       8 MiB of a connection    waits
 *   a large request                held       8 MiB of a connection    waits
 *   an answer that is not read     held       1 MiB of a connection    waits
 *   what neither comes nor goes    held       the address's part       ends     log
 *   watches, observers             kept       the same, or 64 KiB      refused  client
 *   frames without content         nothing    24,000 in 10 s           ends     client
 *   dependencies of streams        nothing    1,000 of a connection    ends     client
 *
 * An address may always have calls that cost 64 KiB. "ends": the connection; "without room": in
 * the account. The requests that wait have shares of their own (core/shares.h). */
struct rpc_account {
        struct rpc_account *parent; /* NULL: none */
        size_t held, max;           /* bytes, approximately */
        size_t kept, kept_max;      /* likewise bounded by what the parent has unused */
        bool wanted;                /* there was no room for an answer; the owner resets it */
        /* The cost of open calls: streams, paths, tokens, what waits with them, and frames that
         * wait to be sent. It may reach @max in addition to @held; calls beyond that are
         * refused and counted; the owner resets the count. */
        size_t calls;
        uint64_t n_refused; /* of this account */
};

/* Server: called when a call begins. Sets call->handler, or finishes the call; if it does
 * neither, the call ends with UNIMPLEMENTED. */
typedef void (*rpc_accept_fn)(struct rpc_call *call, void *userdata);

/* A message longer than @message_max ends its call with @too_large as its text (server), and is
 * never held in memory. */
struct rpc_limits {
        size_t message_max;
        uint32_t calls_max; /* at the same time; more are refused by HTTP/2 */
        const char *too_large;
        /* Server only: the error text when there are more half messages than any honest client
         * has; and the account that counts the memory held; borrowed, NULL: none. */
        const char *too_many;
        struct rpc_account *account;
        struct party *party; /* server: for the services, see rpc_call_party(); borrowed */
        const bool *busy; /* server: while it is true no message is handed over; borrowed, NULL:
                             never */
};

/* The caller owns *ret and ends it with rpc_conn_free(). Return 0 or -ENOMEM. */
must_check_ int rpc_conn_new_server(struct rpc_conn **ret, const struct rpc_limits *limits,
                                    rpc_accept_fn accept, void *userdata);
must_check_ int rpc_conn_new_client(struct rpc_conn **ret, const char *authority, bool tls);

/* A server's connection without HTTP/2: its owner brings the requests and takes the answers,
 * see rpc_call_arrive(). Neither rpc_conn_input() nor rpc_conn_output() is for it. */
must_check_ int rpc_conn_new_bare(struct rpc_conn **ret, const struct rpc_limits *limits,
                                  rpc_accept_fn accept, void *userdata);

/* Closes @n calls; returns whether those were all. Only the same call and rpc_conn_free() may
 * follow. Never from inside a handler. */
bool rpc_conn_close_some(struct rpc_conn *c, size_t n);
/* Closes every call. Accepts NULL; returns NULL. Never from inside a handler. */
struct rpc_conn *rpc_conn_free(struct rpc_conn *c);
DEFINE_CLEANUP(struct rpc_conn *, rpc_conn_free)

/* Takes @n bytes that the peer sent. Returns 0, or -EPROTO when the connection must end after
 * what rpc_conn_output() still gives, or -ENOMEM. A peer that sends endless headers, or many
 * frames without content, gets ENHANCE_YOUR_CALM (RFC 9113, 7). */
must_check_ int rpc_conn_input(struct rpc_conn *c, const void *p, size_t n);

/* Appends data to send, until @out holds @max bytes. Returns 0; -EPIPE when nothing is left and
 * both sides have ended the connection; or -ENOMEM. */
must_check_ int rpc_conn_output(struct rpc_conn *c, struct buf *out, size_t max);

/* After rpc_conn_output(): true when it should be called again, even if it returned nothing. */
bool rpc_conn_can_go_on(const struct rpc_conn *c);

/* How many frames wait to become output: an owner that cannot send stops reading when there are
 * many. */
size_t rpc_conn_backlog(const struct rpc_conn *c);

/* How many more bytes may be held in @a. */
size_t rpc_account_spare(const struct rpc_account *a);

/* Server: whether a large message has begun, and waits for room for its rest. */
bool rpc_call_begs(const struct rpc_call *call);
bool rpc_conn_begs(const struct rpc_conn *c);
/* Gives room to the first call that waits for it, if there is enough by now. Returns whether it
 * did; the next output then widens the call's window. */
bool rpc_conn_give(struct rpc_conn *c);

/* Bytes that are held for its calls, see struct rpc_account. */
size_t rpc_conn_held(const struct rpc_conn *c);

/* What waits for the other side, and how much it has sent and taken so far. */
struct rpc_traffic {
        size_t in, out;           /* bytes of messages that are not whole, and not taken */
        uint64_t received, taken; /* of messages, in all */
};
struct rpc_traffic rpc_conn_traffic(const struct rpc_conn *c);

/* To be called at intervals: restarts the count of frames without content. */
void rpc_conn_forgive(struct rpc_conn *c);

/* Ends it with ENHANCE_YOUR_CALM. */
void rpc_conn_refuse(struct rpc_conn *c);

/* A pointer for the owner's use. */
void rpc_conn_set_userdata(struct rpc_conn *c, void *userdata);
void *rpc_conn_userdata(const struct rpc_conn *c);

/* True once the peer has proved that it speaks HTTP/2. */
bool rpc_conn_established(const struct rpc_conn *c);

/* Client: the server has announced the end of the connection (GOAWAY, RFC 9113, 6.8): it takes
 * no new calls; those under way continue. */
bool rpc_conn_is_leaving(const struct rpc_conn *c);

/* The number of open calls. */
size_t rpc_conn_n_calls(const struct rpc_conn *c);

/* Calls @fn for each open call; @fn may finish that call. */
void rpc_conn_each_call(struct rpc_conn *c, void (*fn)(struct rpc_call *call, void *arg),
                        void *arg);

/* Sends an HTTP/2 PING; rpc_conn_pongs() counts the answers. */
must_check_ int rpc_conn_ping(struct rpc_conn *c);
uint64_t rpc_conn_pongs(const struct rpc_conn *c);

/* Client: shows this token with every call that begins from now on; copied. */
must_check_ int rpc_conn_set_token(struct rpc_conn *c, const char *token);

/* Client: shows @core with every call that begins from now on, as `tenure-core`, unless it is
 * empty then; borrowed. */
void rpc_conn_show(struct rpc_conn *c, const char *core);

/* Client: begins a call; @want_leader: a replica that has no leader ends the call instead of
 * waiting for one. Messages follow with rpc_call_send(), then rpc_call_end(). @path is copied.
 * *ret is borrowed, valid until on_close. Returns 0, -ENOMEM, or -EPIPE when the connection
 * takes no more calls. */
must_check_ int rpc_call_new(struct rpc_conn *c, const char *path, bool want_leader,
                             const struct rpc_handler *handler, void *userdata,
                             struct rpc_call **ret);

/* Client: the text of RPC_RESOURCE_EXHAUSTED where we, not the server, refuse the answer. */
#define RPC_ANSWER_TOO_LARGE "the answer is too large"

/* The largest message: gRPC's own bound in Go. Its length has 32 bits on the wire. */
#define RPC_MESSAGE_MAX INT32_MAX

/* Queues one message, copied. Returns 0, -ENOMEM or, as a client, -EMSGSIZE; a server's call
 * that would answer more than RPC_MESSAGE_MAX is finished with an error that says so. After
 * rpc_call_finish() it does nothing. */
must_check_ int rpc_call_send(struct rpc_call *call, const void *p, size_t n);

/* Server: sends a message piece by piece: begins one of @n bytes, which follow with
 * rpc_call_add(). If they cannot follow, rpc_call_finish() with an error ends the call in the
 * middle of it. */
must_check_ int rpc_call_begin(struct rpc_call *call, size_t n);
must_check_ int rpc_call_add(struct rpc_call *call, const void *p, size_t n);

/* Server: has on_room called, from rpc_conn_output(), once nearly everything queued has been
 * sent, unless the call ends before. The calls of a connection take turns. */
void rpc_call_wait_sent(struct rpc_call *call);

/* Bytes queued and not yet handed to the connection's output, for bounding a slow reader.
 * SIZE_MAX if the connection, or all connections together, hold too much and this call
 * contributes to it. */
size_t rpc_call_queued(const struct rpc_call *call);
/* Like rpc_call_queued(), for a call that is about to send @more bytes, which contribute, too,
 * if they are many. */
size_t rpc_call_queued_before(const struct rpc_call *call, size_t more);

/* Like rpc_call_queued_before(), for data that can wait even if nothing is unread, such as
 * events: SIZE_MAX also if there is no room for it, see rpc_call_may_hold(). */
size_t rpc_call_queued_patient(const struct rpc_call *call, size_t more);

/* Delivers no message for now; the other side's data waits in its window. The next on_message
 * after the release comes from rpc_conn_output(). */
void rpc_call_hold(struct rpc_call *call);
void rpc_call_release(struct rpc_call *call);

/* Server: whether an answer, perhaps a large one, may be made now. If not, rpc_call_wait() has
 * on_room called, from rpc_conn_output(), when the call's turn comes; unless the call ends
 * before. */
bool rpc_call_has_room(const struct rpc_call *call);
void rpc_call_wait(struct rpc_call *call);

/* Server: sets how many bytes are held for the call elsewhere, until it is finished: for its
 * answer, and for its request. While a connection has many of these, no further large request
 * is taken from it. */
void rpc_call_charge(struct rpc_call *call, size_t bytes);
void rpc_call_charge_request(struct rpc_call *call, size_t bytes);

/* Server: sets how many bytes are held while the call waits for what others do, such as give up
 * a lock. They belong to the call's own cost, until it ends. */
void rpc_call_cost(struct rpc_call *call, size_t bytes);

/* Server: how many more bytes may be held for the call before the calls that share its account,
 * or all calls, hold too much. Other calls need some of that room, too. */
size_t rpc_call_spare(const struct rpc_call *call);

/* Server: whether there is room for an answer of @bytes that is made whole, even if its
 * connection has nothing to read. If not, the owner tries again later, and the account records
 * that room is wanted. Small answers need none. */
bool rpc_call_may_hold(const struct rpc_call *call, size_t bytes);
bool rpc_call_is_small(size_t bytes);

/* Server: true while there is no room at all: answers that are made as they are read are then
 * made in small pieces, which are always allowed. */
bool rpc_call_is_pressed(const struct rpc_call *call);

/* Server: reserves @bytes more to be kept for the call, for a watch for example, until it drops
 * them or is closed. Returns false, without keeping anything, if the calls that share its
 * account, or all calls, keep too much; an account that keeps little may keep a little more
 * even then. */
must_check_ bool rpc_call_keep(struct rpc_call *call, size_t bytes);
void rpc_call_drop_kept(struct rpc_call *call, size_t bytes);

/* Server: who has the connection, for the services (core/shares.h); NULL: nobody. Borrowed. */
struct party *rpc_call_party(const struct rpc_call *call);

/* Client: no more messages follow. */
void rpc_call_end(struct rpc_call *call);

/* Server: the call counts in @counts, which is borrowed until the call has ended. To be called
 * once, while the call is accepted. */
void rpc_call_count(struct rpc_call *call, struct rpc_counts *counts);

/* Server: ends the call with a status, which follows what is queued. Only the first such call
 * has an effect. */
void rpc_call_finish(struct rpc_call *call, enum rpc_code code, const char *message);

/* Client: whether any part of its messages has gone into the output; also valid inside of
 * on_status. False: the server has not seen the call, or reports that it has not processed
 * it. */
bool rpc_call_was_sent(const struct rpc_call *call);

/* Client: drops the call at once; on_close follows, on_status does not. */
void rpc_call_cancel(struct rpc_call *call);

/* ---- a connection without HTTP/2 ---- */

struct rpc_metadata {
        void *carrier; /* for call->carrier */
        bool resource;
        const char *token; /* NULL: none */
        nsec_t timeout;    /* 0: none */
        bool want_leader;
};

/* Begins a request; everything is copied. *ret is borrowed until rpc_call_leave(), or the
 * connection's end; the call may be over at once. */
must_check_ int rpc_call_arrive(struct rpc_conn *c, const char *path,
                                const struct rpc_metadata *md, struct rpc_call **ret);
/* rpc_call_bring(): one complete message of the request. rpc_call_bring_end(): there are no
 * more. Messages for a call that is over are dropped. */
must_check_ int rpc_call_bring(struct rpc_call *call, const void *p, size_t n);
void rpc_call_bring_end(struct rpc_call *call);
/* @came bytes of messages have come; sets how many are held of one that is not complete, 0:
 * none has begun. They count like those of half a message of HTTP/2. */
void rpc_call_half(struct rpc_call *call, size_t came, size_t held);
/* A message that has begun may take @bytes: bring more of it only once the call no longer waits
 * for that room (rpc_call_begs()). The room is the message's until none of it is held
 * (rpc_call_half()). */
void rpc_call_want(struct rpc_call *call, size_t bytes);
/* True while a message waits to be taken: the owner then brings no more of a stream. */
bool rpc_call_has_input(const struct rpc_call *call);

/* Continues waiting calls for which there is room; to be called before answers are taken. */
void rpc_conn_run(struct rpc_conn *c);

/* rpc_call_next() begins the next message of the answer; false: there is none yet, or the
 * present one has not ended. rpc_call_left(): how many of its bytes are still to be taken;
 * rpc_call_piece() lends them as they are made.
 */
bool rpc_call_next(struct rpc_call *call);
size_t rpc_call_left(const struct rpc_call *call);
struct view rpc_call_piece(const struct rpc_call *call);
void rpc_call_taken(struct rpc_call *call, size_t n);
/* True once nothing will be added to the answer. */
bool rpc_call_is_complete(const struct rpc_call *call);
/* True once the whole answer has been taken; then also how it ended. The text is borrowed. */
bool rpc_call_is_over(const struct rpc_call *call, enum rpc_code *ret_code,
                      const char **ret_message);
/* Closes and frees the call, whether it is over or not. Never from inside a handler. */
void rpc_call_leave(struct rpc_call *call);
