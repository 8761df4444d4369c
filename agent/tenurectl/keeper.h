/*
 * The keeper: runs a command for as long as the place is held, and not longer, even if
 * tenurectl, the agent or the bus stops or dies.
 *
 * It is a process between tenurectl and the command, in a session of its own, so that a ^Z at
 * the terminal, which stops the other two, does not stop the keeper. The command stays in
 * tenurectl's process group: to the shell the two are one job, in the foreground or not. The
 * keeper reads the deadline of the place, which the agent writes (member/tenancy.h), and ends
 * everything that the command has started (offspring.h): with SIGTERM if no renewal was
 * acknowledged for seven eighths of the TTL; with SIGKILL a thirty-second of the TTL before the
 * deadline; and at once if the place or tenurectl is gone. If tenurectl reports that the lock
 * is to be handed over (lock.c), with SIGTERM at once, and with SIGKILL at the time that
 * tenurectl sets.
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
        /* While the command runs: a descriptor that tenurectl watches in addition, and what it
         * calls when that is readable. Returns true, once, if the command must end by *@ret. */
        int fd; /* -1: nothing */
        bool (*on_fd)(void *arg, struct boot_time *ret);
        void *arg;
        /* One of many, for keeper_start(): tenurectl itself writes the page, says when it has
         * changed, and prints messages, of a command that cannot be executed as well; the
         * command reads nothing from the terminal. */
        bool one_of_many;
};

struct keeper_end {
        bool lost;   /* the command was ended because the place is lost or given back */
        bool asked;  /* ... or because `on_fd` returned true */
        int status;  /* of the command, as from wait(2) */
        int not_run; /* the errno for which it could not be executed; 0: it was */
};

/* Reads the agent's page. Returns 0; -EBADMSG: the page is malformed; -EXDEV: its instants are
 * those of another time namespace; or another negative errno. */
must_check_ int keeper_look(int tenancy_fd, struct tenancy *ret);

/* Whether the place is held on @lease at @now, for long enough to begin something. */
bool keeper_may_begin(const struct tenancy *t, int64_t lease, struct boot_time now);

/* Prints a line on standard error as text_say(), but drops it rather than wait for a reader. */
void keeper_say(const char *fmt, ...) printf_(1, 2);

/* Prepares signals for the functions below and for the keepers: if this process ended by a
 * signal, the command would be killed. Blocks SIGCHLD and all signals that end a process by
 * default, except those of faults and those that are ignored (nohup(1)). *@ret gets the blocked
 * signals, and *@ret_mask the former mask. A standard error that nobody reads, or that is a
 * file at its size limit, ends no process (SIGPIPE, SIGXFSZ). If SIGCHLD was ignored, it is not
 * any more, since ends of processes would not be reported (wait(2)). The command gets all
 * signals as they were. */
void keeper_take_signals(sigset_t *ret, sigset_t *ret_mask);
/* In the process of a command, before it is executed: makes them what they were. */
void keeper_give_signals_back(const sigset_t *mask);

enum { KEEPER_E_NOT_RUN = 1 };

/* Runs the command, and returns when nothing of it is left. Returns 0; KEEPER_E_NOT_RUN: the
 * command did not run, and the keeper has printed why; -ECHILD: the keeper was killed, so it is
 * not known how the command ended; or another negative errno: the command did not run. */
must_check_ int keeper_run(const struct keeper_job *j, struct keeper_end *ret);

/* ---- several at a time ---- */

struct kept {
        pid_t pid; /* the keeper's process, for waitpid(2); 0: none */
        int fd;
};

/* Makes this process the parent of the orphans of a keeper that is killed. */
void keeper_begin_many(void);
/* Runs the command, and returns at once. Returns 0 or a negative errno. */
must_check_ int keeper_start(const struct keeper_job *j, struct kept *ret);
/* Sends a signal to everything that the command has started; 0: reports to the keeper that the
 * page has changed. */
void keeper_send(const struct kept *k, int signo);
/* To be called when the keeper's process has ended and was waited for. Returns true if nothing
 * is left of the command, and in @ret how it ended; false if the keeper was killed. */
bool keeper_ended(struct kept *k, struct keeper_end *ret);
/* Waits until the keeper's process has ended, and continues it if somebody stops it. */
void keeper_wait(const struct kept *k);
/* If a keeper was killed, nobody knows what is left of its command: ends everything that any of
 * the keepers in @k has started, and the keepers. */
void keeper_end_all(const struct kept *k, size_t n);
