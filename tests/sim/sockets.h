/*
 * In place of loop/stream.c: the streams and listeners of the processes that have real links,
 * on the connections of tcp.c. What names lead to is in names.c; there is no TLS (plaintext.c).
 */
#pragma once

#include "loop/stream.h"
#include "loops.h"

struct replica_node;
struct world;

void sockets_begin(struct world *w);
/* A process starts on a host; its loop, borrowed. */
struct loop *sockets_start(const struct replica_node *n);
/* Something may be due now. */
void sockets_stir(void);
/* When to look again. */
nsec_t sockets_due_at(void);
/* Runs what is due in the process: timers, answers of the resolver, connections, and bytes.
 * Returns whether there was anything, or a full stream has room. */
bool sockets_turn(unsigned host);
/* Sends what its streams have queued. */
void sockets_flush(unsigned host);
nsec_t sockets_next(unsigned host);
/* When to look again, if nothing happens before. */
void sockets_rest(nsec_t until);
/* Whether anybody listens there. */
bool sockets_listen(unsigned host);
/* Whether the stream is open, for its owner. */
bool sockets_is_open(const struct stream *s);
/* At the other end of the stream that is being read: a host of tcp.h. */
unsigned sockets_speaker(void);
/* The connection of the stream is gone with its process. */
void stream_lost(struct stream *s);
