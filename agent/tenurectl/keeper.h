/*
 * The keeper: runs a command for as long as the place is held, and not longer, whatever becomes
 * of tenurectl, the agent or the bus.
 *
 * It is a process between tenurectl and the command, in a session of its own, so that a
 * terminal's ^Z, which stops the other two, does not stop the clock. The command stays in
 * tenurectl's process group: to the shell the two are one job, in the foreground or not. The
 * keeper reads until when the place is held (client/tenancy.h) as the agent writes it, and ends
 * everything that the command has started (offspring.h): by SIGTERM when a renewal should have
 * come, seven eighths into the TTL; by SIGKILL a thirty-second of the TTL before the deadline;
 * and at once when the place is gone, or tenurectl is.
 */
#pragma once

#include <signal.h>

#include "base/base.h"
#include "client/tenancy.h"

struct keeper_job {
        int tenancy_fd;
        int64_t lease;
        char **argv;
        const sigset_t *mask; /* the command's */
        int sfd;              /* tenurectl's signals: SIGCHLD, and those that are passed on */
};

struct keeper_end {
        bool lost;  /* it was ended for the place's sake */
        int status; /* of the command, as of wait(2) */
};

/* What the agent says, now. Returns 0 or a negative errno; -EBADMSG: nothing that makes sense.
 */
must_check_ int keeper_look(int tenancy_fd, struct tenancy *ret);

/* Is the place that is @lease held at @now, for long enough to begin something? */
bool keeper_may_begin(const struct tenancy *t, int64_t lease, struct boot_time now);

/* Runs the command, and returns when nothing of it is left; 0, or a negative errno: there was
 * no command, or its end is not known. */
must_check_ int keeper_run(const struct keeper_job *j, struct keeper_end *ret);
