/* Connects to a name: tries all of its addresses, in the order of RFC 8305, the next one when
 * the one before has not answered for a moment, or as soon as it has failed. The first
 * connection that opens is used; the address that worked last is tried first. */
#pragma once

#include "loop/resolve.h"
#include "loop/stream.h"

struct dial_ops {
        /* Connected, and the TLS handshake is done. The stream belongs to the owner from now
         * on, with the owner's ops; their on_open is not called. */
        void (*connected)(struct stream *s, void *userdata);
        /* No address could be connected; @why is the reason of the last one, for an
         * operator. */
        void (*failed)(const char *why, void *userdata);
};

/* Embedded; init once. Stop it before it goes away and before the resolver does. */
struct dial {
        struct loop *loop;
        struct resolver *resolver;
        const struct dial_ops *ops;
        const struct stream_ops *stream_ops;
        void *userdata;
        char host[256];
        struct tls *tls;
        struct resolve_query *query;
        struct inet_addresses addresses;
        struct inet_address good; /* of the last connection; len 0: none yet */
        struct stream *tries[ADDRESSES_MAX];
        size_t next;
        bool trying, refused;
        struct loop_timer timer;
};

/* @stream_ops and @userdata are for the stream that is connected. */
void dial_init(struct dial *d, struct loop *l, struct resolver *rv, const struct dial_ops *ops,
               const struct stream_ops *stream_ops, void *userdata);

/* Begins; connected() or failed() follows, perhaps before it returns. It may take as long as
 * DNS does: the owner has a limit, and dial_stop(). @tls NULL: plaintext. */
void dial_start(struct dial *d, const struct url *u, struct tls *tls);
void dial_stop(struct dial *d);
bool dial_is_trying(const struct dial *d);
/* Inside of failed(): the last address accepted the connection, but the TLS handshake
 * failed. */
bool dial_was_refused(const struct dial *d);
/* A connection was accepted, and the TLS handshake is under way. */
bool dial_is_greeting(const struct dial *d);

/* How long to wait for one of @n addresses before the next one is tried, too: 250 ms (RFC 8305,
 * section 5), less if there are many, so that all are tried within a second. */
nsec_t dial_delay(size_t n);
