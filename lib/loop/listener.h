/* Accepts connections: of TCP, and of sockets of this host. */
#pragma once

#include "base/base.h"
#include "base/url.h"
#include "loop/loop.h"

struct listener;

/* Called with a new connected descriptor, which it takes over. */
typedef void (*listener_fn)(int fd, void *userdata);

/* Listens on @u: a numeric address, a local name, or a socket; a socket that was left behind is
 * replaced. Returns 0 or a negative errno. */
must_check_ int listener_new(struct listener **ret, struct loop *l, const struct url *u,
                             listener_fn fn, void *userdata);

/* Leaves @n descriptors for others: a connection that would take one of the last @n is closed
 * at once. In any case, while no more can be accepted, the listener pauses for a moment, and
 * logs that. */
void listener_set_reserve(struct listener *l, unsigned n);
uint16_t listener_port(const struct listener *l); /* 0: it has none */
struct listener *listener_free(struct listener *l);
DEFINE_CLEANUP(struct listener *, listener_free)
