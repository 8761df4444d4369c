/*
 * Connections, plain or TLS, on the loop: of TCP, and of sockets of this host.
 *
 * A stream reads as bytes arrive. Output is sent after the loop's hooks: an urgent stream
 * writes until the socket is full, a patient one a piece a turn. A stream ends by itself only
 * through on_close; its owner calls stream_free(), also from inside its own callbacks. Peers
 * that vanish silently are noticed by TCP_USER_TIMEOUT and keep-alive probes (tcp(7)); a
 * patient stream's other side that only stops reading may do so for as long as it answers the
 * kernel's probes.
 */
#pragma once

#include <sys/socket.h>

#include "base/base.h"
#include "base/buf.h"
#include "base/url.h"
#include "loop/loop.h"
#include "loop/tls.h"

struct stream;

struct stream_ops {
        /* One of many streams that nothing urgent waits for: it reads and writes a piece at a
         * time when its turn comes, see loop_share(). Other streams are served at once, and in
         * larger pieces. */
        bool patient;
        /* The text that a patient stream sends, before it is closed, to a client that speaks
         * HTTP/1.1 without TLS on a TLS port; NULL: nothing. */
        const char *not_tls;
        /* For loop_lap(): what is at the other end, such as "a client"; NULL: "a stream". */
        const char *what;
        /* Connected, and TLS agreed. */
        void (*on_open)(struct stream *s);
        /* Bytes; borrowed for the call. */
        void (*on_data)(struct stream *s, struct view data);
        /* May append to @tx, which is empty, the next data to send, a few 100 KiB at most.
         * NULL: there is only stream_tx(). */
        void (*on_fill)(struct stream *s, struct buf *tx);
        /* The other side sends no more (shutdown(2), SHUT_WR), but may still read: true keeps
         * the stream open for writing. Otherwise, and with NULL, the stream ends. Called again
         * when the stream is read from again. Not with TLS. */
        bool (*on_end)(struct stream *s);
        /* The connection is gone; @why is for a person. Once, and not after stream_free(). */
        void (*on_close)(struct stream *s, const char *why);
};

/* Takes over the connected @fd, which a listener accepted: its options are the listener's. @tls
 * NULL: plaintext. Returns 0, or a negative errno and @fd is closed. */
must_check_ int stream_accept(struct stream **ret, struct loop *l, int fd, struct tls *tls,
                              const struct stream_ops *ops, void *userdata);

/* Sets the options of a stream's socket. A listener's connections inherit them, which saves six
 * calls for each of thousands that arrive at once. */
void stream_set_options(int fd);

/* Begins to connect to a numeric address; @name is what a TLS certificate must be for. */
must_check_ int stream_connect(struct stream **ret, struct loop *l, const struct sockaddr *addr,
                               socklen_t addr_len, struct tls *tls, const char *name,
                               const struct stream_ops *ops, void *userdata);

/* From inside on_open: the stream is somebody else's from now on, whose on_open is not called.
 */
void stream_set_owner(struct stream *s, const struct stream_ops *ops, void *userdata);

/* Closes at once. Accepts NULL; returns NULL. */
struct stream *stream_free(struct stream *s);

void *stream_userdata(const struct stream *s);

/* The data to be sent: append to it, then call stream_kick(). */
struct buf *stream_tx(struct stream *s);

/* How many bytes the other side has not acknowledged: those in stream_tx() and those in the
 * kernel (tcp(7), SIOCOUTQ). Costs a system call. */
size_t stream_unsent(const struct stream *s);

/* How many bytes have arrived in the kernel and were not read (tcp(7), SIOCINQ). Costs a system
 * call. */
size_t stream_unread(const struct stream *s);

/* Makes a patient stream, which has not read yet, a member of @group, see loop_share();
 * borrowed. */
void stream_set_group(struct stream *s, struct loop_group *group);

/* Requests a flush at the end of this iteration; on_fill is called first. */
void stream_kick(struct stream *s);
/* Writes at once as much as possible, for callers that do not return to the loop. Not from
 * inside a callback. */
void stream_flush(struct stream *s);

/* Stops reading, or resumes. While a stream is paused, only a failing write detects the end of
 * the connection, so pause it only while data waits to be sent. */
void stream_pause(struct stream *s, bool paused);
bool stream_paused(const struct stream *s);

/* Sends what waits, then closes (on_close is called). */
void stream_close_after_tx(struct stream *s);
/* Like stream_close_after_tx(); with TLS, also notifies the other side that everything was
 * sent, so that it can distinguish the end from a truncation (close_notify, RFC 8446, 6.1). */
void stream_end_after_tx(struct stream *s);

/* The other side: "[::1]:2379"; for a local socket "unix:4711", the process there, or
 * "unix:/run/core.sock"; "?" while unknown. */
const char *stream_peer(const struct stream *s);

/* Our own address of the connection, without a port; "" while unknown. */
void stream_source(const struct stream *s, char *out, size_t size);

/* The other side has accepted the connection, and the TLS handshake is under way. */
bool stream_is_greeting(const struct stream *s);

/* Inside of on_close: whether the TLS handshake failed for a stated reason, and not because the
 * other side closed the connection. */
bool stream_was_refused(const struct stream *s);

/* Whether the stream uses TLS. */
bool stream_is_secure(const struct stream *s);

/* Whether the other side's certificate, which was verified, is for @host, a name or an address,
 * by its subjectAltName (RFC 6125, 6.4). */
bool stream_peer_is(const struct stream *s, const char *host);

/* Whether that certificate is also valid for a server, if it says what it is valid for
 * (extended key usage, RFC 5280, 4.2.1.12). */
bool stream_peer_serves(const struct stream *s);

/* The subject of the certificate, for an operator; "" without one. Returns @out. */
const char *stream_peer_subject(const struct stream *s, char *out, size_t size);

/* The common name (RFC 5280, A.1) in the other side's certificate, which was verified; NULL
 * without one. Borrowed. */
const char *stream_peer_name(struct stream *s);
