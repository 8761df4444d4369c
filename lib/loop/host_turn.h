/*
 * Turns among the programs of this host that share the host's lease, for work that they do one
 * at a time. Whoever has the turn has a lock of its open file description (fcntl(2)) on a byte
 * of a file that the agent gives out (OpenTurn, org.tenure.Membership1(5)) to those who may use
 * the place: nobody else can stand in the way. The kernel frees it with the last process that
 * has the descriptor. Programs that wait are notified by inotify(7) when somebody closes the
 * file. The kernel does so a moment before it frees the lock (__fput() in fs/file_table.c), and
 * not everybody may watch the file, so they also look by themselves.
 *
 * Programs of release 0.1.0 know nothing of the file: with them a turn is a socket that is
 * bound to an address, which any user can take. So whoever has the turn has that address, too,
 * unless another user has it, who is not root.
 */
#pragma once

#include "loop/loop.h"

/* Takes the turn if nobody has it. @fd: from the agent, and for this turn only. *@earlier: -1
 * at first, and what the last call left there while somebody has the turn. The turn ends when
 * both descriptors are closed. @fd negative: the agent is of release 0.1.0, and the address
 * alone is the turn. Two names with the same hash wait for each other, which does no harm.
 * Returns 0; -EAGAIN: somebody has it; or another negative errno. */
must_check_ int host_turn_take(int fd, int *earlier, int64_t lease, const char *name);

/* Returns a descriptor that becomes readable when somebody closes the file; -1: that is not
 * reported. */
must_check_ int host_turn_watch(int fd);
/* Reads what has come on it. */
void host_turn_heard(int watch);
/* How long to wait before the next look, unless there is a notification: longer than the @last
 * time, which is 0 at first and after a notification. */
nsec_t host_turn_pause(int watch, nsec_t last);

/* Embedded. When zeroed, and after host_turn_end(), it neither waits nor has a turn. */
struct host_turn {
        struct loop *loop;
        int fd, earlier; /* owned */
        int64_t lease;
        const char *name; /* borrowed */
        int watch;        /* while it waits; -1: there are no notifications */
        nsec_t pause;     /* before it looks again */
        struct loop_io io;
        struct loop_timer again;
        void (*fn)(struct host_turn *h); /* called when we have the turn */
};

/* Waits for the turn; @fn is called from the loop, never from in here. Takes ownership of @fd.
 */
void host_turn_begin(struct host_turn *h, struct loop *l, int fd, int64_t lease,
                     const char *name, void (*fn)(struct host_turn *h));
/* Gives the turn up, or stops waiting; may have ended already. */
void host_turn_end(struct host_turn *h);
