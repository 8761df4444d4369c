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

/* The agent's handle of the gate. */
struct gate {
        int fd; /* -1: it is not responsible for a gate */
};

/* Becomes responsible for a gate that an earlier run has left open or stopping. */
void gate_take(struct gate *g);

/* Opens the gate, also again if somebody has removed its file. Returns 0 or a negative
 * errno. */
must_check_ int gate_open(struct gate *g);

/* Everything is down: removes the file by which an earlier run marked that it was stopping. */
void gate_forget(struct gate *g);

/* Closes the gate, whoever is responsible for it. The guard calls it if nobody is. */
void gate_close(void);

/* For the guard: creates the file without becoming responsible for the gate. */
must_check_ int gate_keep_open(void);

/* The process id of the responsible agent; 0: there is none, or no gate. */
pid_t gate_keeper(void);

/* Whether a guard listens; and has it look at the files of the agent. */
bool gate_is_guarded(void);
void gate_tell_guard(void);

/* For the guard: a socket that becomes readable when the gate may have changed. Returns it or a
 * negative errno; -EADDRINUSE: another guard has it. */
must_check_ int gate_listen(void);
