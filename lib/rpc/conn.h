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
        /* Server: what rpc_call_wait() or rpc_call_wait_sent() waited for. */
        void (*on_room)(struct rpc_call *call);
        /* Client: the status came, or the connection ended (RPC_UNAVAILABLE). Once; on_close
         * follows. */
        void (*on_status)(struct rpc_call *call, enum rpc_code code, const char *message);
        /* The call is over and is freed after this: drop it. Once, whatever happened. */
        void (*on_close)(struct rpc_call *call);
};

/* The part of a call that its handler works with. */
struct rpc_call {
        const struct rpc_handler *handler;
        void *userdata;        /* the handler's own */
        struct rpc_conn *conn; /* borrowed */
        const char *path;      /* "/package.Service/Method"; borrowed from the call */
        nsec_t timeout;        /* grpc-timeout; 0 when there is none */
        bool want_leader;      /* the metadata `hasleader: true` */
        const char *token; /* the metadata `token`, or `authorization`; NULL: none; borrowed */
        bool ended;        /* server: the client has sent its last message */
        bool unary; /* server: set by the code that accepts the call: one request is all that
                       comes */
        bool large; /* server: the same; its answer may be large: the request waits for room */
        bool half;  /* server: a message has begun and not ended */
        void *carrier; /* of one that its owner carries, rpc_call_arrive(): its own */
        bool resource; /* the same; `path` is that of a resource of HTTP, and no method's */
        bool seen; /* server: for the owner of the connection, to find calls that go nowhere;
                      false again with each message */
};

/* Server: what has come of the calls of one method, for people who look after it. */
struct rpc_counts {
        uint64_t started, received, sent;          /* calls; messages */
        uint64_t received_bytes, sent_bytes;       /* of messages */
        uint64_t handled[RPC_UNAUTHENTICATED + 1]; /* calls that have ended, by their code */
        struct histogram took;                     /* these (histogram_calls) */
        const struct boot_time *now; /* the time, whenever it is looked at; borrowed */
};

/* What is held for clients: half messages, what waits to be sent, requests that wait. Of one
 * connection, of those of one address, and of all: each also counts in @parent. One may hold as
 * much of its parent's room as nobody holds yet. What is kept is beside it: that becomes less
 * when a client likes, and not by waiting for anything. */
struct rpc_account {
        struct rpc_account *parent; /* NULL: none */
        size_t held, max;           /* bytes, or so */
        size_t kept, kept_max;
        bool wanted; /* there was no room for somebody's answer; the owner's to take back */
        /* Of this one alone: writes that wait for the log, which are not taken back when their
         * calls end. The account stays while there are any; `settled`, which may be NULL, is
         * called when there are none any more. */
        size_t n_writes, write_bytes;
        void (*settled)(struct rpc_account *a);
};

/* Server: called when a call begins. Sets call->handler, or finishes the call, or leaves both:
 * UNIMPLEMENTED. */
typedef void (*rpc_accept_fn)(struct rpc_call *call, void *userdata);

/* A message longer than @message_max ends its call with @too_large as its text (server), and is
 * never held in memory. */
struct rpc_limits {
        size_t message_max;
        uint32_t calls_max; /* at the same time; more are refused by HTTP/2 */
        const char *too_large;
        /* Server only: the text where more half messages come than anybody honest has, and
         * where what is held is counted; borrowed, NULL: nowhere. */
        const char *too_many;
        struct rpc_account *account;
        const bool *busy; /* server: while it is true no message is handed over; borrowed, NULL:
                             never */
};

/* The caller owns *ret and ends it with rpc_conn_free(). Return 0 or -ENOMEM. */
must_check_ int rpc_conn_new_server(struct rpc_conn **ret, const struct rpc_limits *limits,
                                    rpc_accept_fn accept, void *userdata);
must_check_ int rpc_conn_new_client(struct rpc_conn **ret, const char *authority, bool tls);

/* A server's connection without HTTP/2: its owner brings the requests and takes the answers,
 * see rpc_call_arrive(). Neither rpc_conn_input(), rpc_conn_output() nor rpc_conn_goaway() is
 * for it. */
must_check_ int rpc_conn_new_bare(struct rpc_conn **ret, const struct rpc_limits *limits,
                                  rpc_accept_fn accept, void *userdata);

/* Closes so many calls; returns whether those were all. Nothing but that, and the end, may
 * follow. Never from inside a handler. */
bool rpc_conn_close_some(struct rpc_conn *c, size_t n);
/* Closes every call. Accepts NULL; returns NULL. Never from inside a handler. */
struct rpc_conn *rpc_conn_free(struct rpc_conn *c);
DEFINE_CLEANUP(struct rpc_conn *, rpc_conn_free)

/* Takes @n bytes that the peer sent. Returns 0, or -EPROTO when the connection must end after
 * what rpc_conn_output() still gives, or -ENOMEM. A peer whose headers are without end, or that
 * sends many frames and nothing in them, gets ENHANCE_YOUR_CALM (RFC 9113, 7). */
must_check_ int rpc_conn_input(struct rpc_conn *c, const void *p, size_t n);

/* Appends what is to be sent, until @out holds @max bytes. Returns 0, or -EPIPE when nothing is
 * left and both sides said good-bye, or -ENOMEM. */
must_check_ int rpc_conn_output(struct rpc_conn *c, struct buf *out, size_t max);

/* After rpc_conn_output(): true when it shall be called again, even if it gave nothing. */
bool rpc_conn_can_go_on(const struct rpc_conn *c);

/* Frames that wait to become output: an owner that cannot send stops reading above some. */
size_t rpc_conn_backlog(const struct rpc_conn *c);

/* How many bytes more may be held in @a. */
size_t rpc_account_spare(const struct rpc_account *a);

/* Server: whether a large message has begun, and waits for room for the rest. */
bool rpc_call_begs(const struct rpc_call *call);
bool rpc_conn_begs(const struct rpc_conn *c);
/* Gives one its room, where there is some by now; returns whether it did. What follows from it
 * is for the next output. */
bool rpc_conn_give(struct rpc_conn *c);

/* Bytes that are held for its calls, see struct rpc_account. */
size_t rpc_conn_held(const struct rpc_conn *c);

/* What waits for the other side, and what that has done about it so far. */
struct rpc_traffic {
        size_t in, out;           /* bytes of messages that are not whole, and not taken */
        uint64_t received, taken; /* of messages, in all */
};
struct rpc_traffic rpc_conn_traffic(const struct rpc_conn *c);

/* Some time has passed: frames with nothing in them are counted from the start. */
void rpc_conn_forgive(struct rpc_conn *c);

/* Ends it with ENHANCE_YOUR_CALM. */
void rpc_conn_refuse(struct rpc_conn *c);

/* The owner's own. */
void rpc_conn_set_userdata(struct rpc_conn *c, void *userdata);
void *rpc_conn_userdata(const struct rpc_conn *c);

/* True once the peer has shown that it speaks HTTP/2. */
bool rpc_conn_established(const struct rpc_conn *c);

/* Counts the calls that are open. */
size_t rpc_conn_n_calls(const struct rpc_conn *c);

/* Goes through the open calls; @fn may finish the call it is given. */
void rpc_conn_each_call(struct rpc_conn *c, void (*fn)(struct rpc_call *call, void *arg),
                        void *arg);

/* Sends an HTTP/2 PING; rpc_conn_pongs() counts the answers. */
must_check_ int rpc_conn_ping(struct rpc_conn *c);
uint64_t rpc_conn_pongs(const struct rpc_conn *c);

/* Says good-bye: no new calls; open ones go on. */
void rpc_conn_goaway(struct rpc_conn *c);

/* Client: shows this token with every call that begins from now on; copied. */
must_check_ int rpc_conn_set_token(struct rpc_conn *c, const char *token);

/* Client: begins a call; @want_leader: a replica that has no leader shall end it rather than be
 * silent. Messages follow with rpc_call_send(), then rpc_call_end(). @path is copied. *ret is
 * borrowed, valid until on_close. Returns 0, -ENOMEM, or -EPIPE when the connection takes no
 * more calls. */
must_check_ int rpc_call_new(struct rpc_conn *c, const char *path, bool want_leader,
                             const struct rpc_handler *handler, void *userdata,
                             struct rpc_call **ret);

/* Client: the text of RPC_RESOURCE_EXHAUSTED where we, not the server, refuse the answer. */
#define RPC_ANSWER_TOO_LARGE "the answer is too large"

/* What a message may come to: gRPC's own bound in Go. Its length has 32 bits on the wire. */
#define RPC_MESSAGE_MAX INT32_MAX

/* Queues one message, copied. Returns 0, -ENOMEM or, as a client, -EMSGSIZE; a server's call
 * that would answer more than RPC_MESSAGE_MAX is finished with an error that says so. After
 * rpc_call_finish() it does nothing. */
must_check_ int rpc_call_send(struct rpc_call *call, const void *p, size_t n);

/* Server: the same bit by bit: a message of @n bytes begins, and as many follow with
 * rpc_call_add(). Where they cannot, rpc_call_finish() with an error ends it half. */
must_check_ int rpc_call_begin(struct rpc_call *call, size_t n);
must_check_ int rpc_call_add(struct rpc_call *call, const void *p, size_t n);

/* Server: calls on_room, from rpc_conn_output(), once next to nothing of what was queued is
 * left; unless the call ends before. One call of a connection after the other. */
void rpc_call_wait_sent(struct rpc_call *call);

/* Bytes queued and not yet handed to the connection's output: for bounding a slow reader.
 * SIZE_MAX where the connection holds too much as a whole, or all do together, and this call
 * has a part in it. */
size_t rpc_call_queued(const struct rpc_call *call);
/* The same for a call that has @more to send: what is large is a part, too. */
size_t rpc_call_queued_before(const struct rpc_call *call, size_t more);

/* The same for a call that can wait though nothing of it is unread, as events can: SIZE_MAX,
 * too, where there is no room for it, see rpc_call_may_hold(). */
size_t rpc_call_queued_patient(const struct rpc_call *call, size_t more);

/* Takes no message for now; what the other side sends waits in its window. The next on_message
 * after the release comes from rpc_conn_output(). */
void rpc_call_hold(struct rpc_call *call);
void rpc_call_release(struct rpc_call *call);

/* Server: whether an answer, perhaps a large one, may be made now. Where not, rpc_call_wait()
 * calls on_room, from rpc_conn_output(), when the call's turn comes; unless it ends before. */
bool rpc_call_has_room(const struct rpc_call *call);
void rpc_call_wait(struct rpc_call *call);

/* Server: says how many bytes are held for the call elsewhere, until it is finished: for the
 * answer or on its way there, and of the request. While a connection has many of these, no
 * large request more is taken from it. */
void rpc_call_charge(struct rpc_call *call, size_t bytes);
void rpc_call_charge_request(struct rpc_call *call, size_t bytes);

/* Server: how many bytes more may be held for the call before those that share its account, or
 * all, hold too much. Some of it is for others. */
size_t rpc_call_spare(const struct rpc_call *call);

/* Server: whether there is room for an answer of @bytes that is made whole, also where its
 * connection has nothing to read. Where not, its owner asks again, and its account records that
 * somebody wants room. What is small needs none. */
bool rpc_call_may_hold(const struct rpc_call *call, size_t bytes);
bool rpc_call_is_small(size_t bytes);

/* Server: true while there is none at all: an answer that is made as it is read is made in
 * small pieces then, which everybody may have. */
bool rpc_call_is_pressed(const struct rpc_call *call);

/* Server: asks to keep @bytes more for the call, of a watch, say, until it drops them or
 * is closed. False, and nothing is kept, where those that share its account, or all, keep too
 * much; those that keep little may keep a little more even then. */
must_check_ bool rpc_call_keep(struct rpc_call *call, size_t bytes);
void rpc_call_drop_kept(struct rpc_call *call, size_t bytes);

/* Server: where what is held for its calls counts; NULL: nowhere. Borrowed, for as long as the
 * connection, or as long as there are writes in it. */
struct rpc_account *rpc_call_account(const struct rpc_call *call);

/* Client: no more messages follow. */
void rpc_call_end(struct rpc_call *call);

/* Server: the call counts in @counts from now on, borrowed until it has ended: once, while it
 * is accepted. */
void rpc_call_count(struct rpc_call *call, struct rpc_counts *counts);

/* Server: ends the call with a status after what is queued. Once; later ones do nothing. */
void rpc_call_finish(struct rpc_call *call, enum rpc_code code, const char *message);

/* Client: whether anything of its messages has gone into the output; also inside of on_status.
 * False: the server has not seen it, or says that it has not looked at it. */
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

/* A request begins; all is copied. *ret is borrowed until rpc_call_leave(), or the connection's
 * end; it may be over at once. */
must_check_ int rpc_call_arrive(struct rpc_conn *c, const char *path,
                                const struct rpc_metadata *md, struct rpc_call **ret);
/* One whole message of it; and that there are no more. What comes for one that is over is
 * dropped. */
must_check_ int rpc_call_bring(struct rpc_call *call, const void *p, size_t n);
void rpc_call_bring_end(struct rpc_call *call);
/* So many bytes are held of a message that is not whole; 0: none has begun. They count as those
 * of half a message that comes by HTTP/2. */
void rpc_call_half(struct rpc_call *call, size_t bytes);
/* A message that has begun may take so many bytes: more of it is to be brought when the call
 * begs for them no longer. They are its own until none is held of it (rpc_call_half()). */
void rpc_call_want(struct rpc_call *call, size_t bytes);
/* True while one of them waits to be taken: who brings a stream waits, too. */
bool rpc_call_has_input(const struct rpc_call *call);

/* Lets what waits go on where there is room: before answers are taken. */
void rpc_conn_run(struct rpc_conn *c);

/* A message of the answer begins; false: none does, yet, or one is not at its end. So many of
 * its bytes are still to be taken; they come with rpc_call_piece(), borrowed, as they are made.
 */
bool rpc_call_next(struct rpc_call *call);
size_t rpc_call_left(const struct rpc_call *call);
struct view rpc_call_piece(const struct rpc_call *call);
void rpc_call_taken(struct rpc_call *call, size_t n);
/* True once all of the answer has been taken, and how it ended; the text is borrowed. */
bool rpc_call_is_over(const struct rpc_call *call, enum rpc_code *ret_code,
                      const char **ret_message);
/* Closes and frees the call, whether it is over or not. Never from inside a handler. */
void rpc_call_leave(struct rpc_call *call);
