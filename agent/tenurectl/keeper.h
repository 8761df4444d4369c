/*
 * The keeper: runs a command for as long as the place is held, and not longer, whatever becomes
 * of tenurectl, the agent or the bus.
 *
 * It is a process between tenurectl and the command, in a session of its own, so that a
 * terminal's ^Z, which stops the other two, does not stop the clock. The command stays in
 * tenurectl's process group: to the shell the two are one job, in the foreground or not. The
 * keeper reads until when the place is held (member/tenancy.h) as the agent writes it, and ends
 * everything that the command has started (offspring.h): by SIGTERM when a renewal should have
 * come, seven eighths into the TTL; by SIGKILL a thirty-second of the TTL before the deadline;
 * and at once when the place is gone, or tenurectl is. When tenurectl says that the lock is to
 * be handed over (lock.c), by SIGTERM at once, and by SIGKILL at the time that goes with it.
 */
#pragma once

#include <signal.h>

#include "base/base.h"
#include "member/tenancy.h"

struct keeper_job {
        int tenancy_fd;
        int64_t lease;
        char **argv;
        const sigset_t *mask; /* the command's */
        int sfd;              /* tenurectl's signals: SIGCHLD, and those that are passed on */
        void (*in_command)(void); /* in its process, before it begins; may be NULL */
        /* While the command runs: what tenurectl listens to beside it, and what it does when
         * that is readable. Returns true, once, when the command is to end by *@ret. */
        int fd; /* -1: nothing */
        bool (*on_fd)(void *arg, struct boot_time *ret);
        void *arg;
        /* One of many, for keeper_start(): tenurectl itself writes the page and tells of it,
         * and reports; the command reads nothing from the terminal. */
        bool one_of_many;
};

struct keeper_end {
        bool lost;  /* it was ended for the place's sake */
        bool asked; /* ... or because `on_fd` said so */
        int status; /* of the command, as of wait(2) */
};

/* What the agent says, now. Returns 0 or a negative errno; -EBADMSG: nothing that makes sense.
 */
must_check_ int keeper_look(int tenancy_fd, struct tenancy *ret);

/* Is the place that is @lease held at @now, for long enough to begin something? */
bool keeper_may_begin(const struct tenancy *t, int64_t lease, struct boot_time now);

/* Prints a line, where somebody reads: nobody else may make us wait. */
void keeper_say(const char *fmt, ...) printf_(1, 2);

/* For who calls the functions below: that nobody reads standard error any more ends neither us
 * nor a keeper, which would kill the command. The command itself gets SIGPIPE as it was. */
void keeper_ignore_pipe(void);

/* Runs the command, and returns when nothing of it is left; 0, or a negative errno: there was
 * no command, or its end is not known. */
must_check_ int keeper_run(const struct keeper_job *j, struct keeper_end *ret);

/* ---- several at a time ---- */

struct kept {
        pid_t pid; /* the keeper's process, for waitpid(2); 0: none */
        int fd;
};

/* Makes this process the one to whom the orphans of a keeper come that is killed. */
void keeper_begin_many(void);
/* Runs the command, and returns at once. Returns 0 or a negative errno. */
must_check_ int keeper_start(const struct keeper_job *j, struct kept *ret);
/* A signal for all that the command has started; 0: the page has changed. */
void keeper_send(const struct kept *k, int signo);
/* The keeper's process has ended, and been waited for. Returns whether nothing is left of the
 * command, which ended like that; false: the keeper was killed. */
bool keeper_ended(struct kept *k, struct keeper_end *ret);
/* Then nobody knows what is left of it: this ends all that any of the keepers of @k has
 * started, and the keepers. */
void keeper_end_all(const struct kept *k, size_t n);
