/*
 * The gate: a file that exists exactly while bound units may be up (AssertPathExists= of
 * units/tenure-held.target). From the moment it closes until everything is down it has another
 * name, by which the next agent and the guard know that. The agent that is responsible for the
 * gate keeps the file locked. The guard only watches, and is notified when the gate opens.
 */
#pragma once

#include <sys/types.h>

#include "base/base.h"

#define GATE_OPEN "/run/tenure/held"
#define GATE_STOPPING "/run/tenure/stopping"
#define GATE_GUARD "/run/tenure/guard" /* the guard's socket */

bool gate_is_open(void);
bool gate_is_stopping(void);

/* The agent's. */
struct gate {
        int fd; /* -1: it answers for none */
};

/* Answers for what an earlier life has left, if it has left any. */
void gate_take(struct gate *g);

/* Returns 0 or a negative errno. One that somebody has taken away is made anew. */
must_check_ int gate_open(struct gate *g);

/* Everything is down: removes the mark of an earlier life that it was stopping. */
void gate_forget(struct gate *g);

/* Closes the gate, whoever is responsible for it; the guard calls it, too, when nobody is. */
void gate_close(void);

/* The guard's: makes the file, but does not answer for it. */
must_check_ int gate_keep_open(void);

/* The agent that answers for it; 0: nobody does, or there is none. */
pid_t gate_keeper(void);

/* Whether a guard listens. */
bool gate_is_guarded(void);

/* For the guard: a socket that can be read when there is something to see. Returns it or a
 * negative errno; -EADDRINUSE: another guard has it. */
must_check_ int gate_listen(void);
