/* polkit's agent for the terminal, for calls that may need a password: pkttyagent(1), as
 * systemctl runs it. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "ctl.h"
#include "loop/clock.h"

#define AGENT "/usr/bin/pkttyagent"

/* Other programs of this user may have all the descriptors that the agent lends at a time. They
 * return them soon, unless one of them hangs. */
#define BUSY_FOR (5 * NSEC_PER_SEC)
#define BUSY_AGAIN_MS 20

/* Returns the agent's pid once it has registered with polkit; 0: there is none. */
static pid_t start_agent(void)
{
        char fd[16], c;
        int fds[2];
        pid_t pid;

        if (geteuid() == 0 || !isatty(STDIN_FILENO) || !isatty(STDERR_FILENO) ||
            access(AGENT, X_OK) < 0 || pipe(fds) < 0)
                return 0;
        pid = fork();
        if (pid == 0) {
                close(fds[0]);
                snprintf(fd, sizeof(fd), "%d", fds[1]);
                execl(AGENT, AGENT, "--notify-fd", fd, "--fallback", NULL);
                _exit(1);
        }
        close(fds[1]);
        while (pid > 0 && read(fds[0], &c, 1) < 0 && errno == EINTR) /* until it closes it */
                ;
        close(fds[0]);
        return max_of(pid, 0);
}

int ctl_call(struct ctl *c, sd_bus_message *m, uint64_t timeout_usec, sd_bus_error *error,
             sd_bus_message **ret_reply)
{
        pid_t agent = c->ask ? start_agent() : 0;
        int r = sd_bus_message_set_allow_interactive_authorization(m, c->ask);

        if (r >= 0)
                r = sd_bus_call(c->bus, m, timeout_usec, error, ret_reply);
        if (agent > 0) {
                kill(agent, SIGTERM);
                kill(agent, SIGCONT);
                waitpid(agent, NULL, 0);
        }
        return r;
}

int ctl_open(struct ctl *c, const char *method, const char *lock, const char *what)
{
        struct boot_time until = boot_add(boot_now(), BUSY_FOR);

        for (;;) {
                cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
                cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
                int fd, r;

                r = sd_bus_message_new_method_call(c->bus, &m, NAME, ROOT, MANAGER, method);
                if (r >= 0 && lock)
                        r = sd_bus_message_append_array(m, 'y', lock, strlen(lock));
                if (r >= 0) /* polkit asks for a password only about a lock */
                        r = lock ? ctl_call(c, m, CTL_ASK_USEC, &error, &reply)
                                 : sd_bus_call(c->bus, m, 0, &error, &reply);
                if (r >= 0)
                        r = sd_bus_message_read(reply, "h", &fd);
                if (r >= 0) {
                        fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
                        return fd < 0 ? ctl_fail(what, -errno, NULL) : fd;
                }
                if (lock && sd_bus_error_has_name(&error, SD_BUS_ERROR_UNKNOWN_METHOD))
                        return -ENOSYS;
                if (!sd_bus_error_has_name(&error, SD_BUS_ERROR_LIMITS_EXCEEDED) ||
                    !boot_before(boot_now(), until))
                        return ctl_fail(what, r, &error);
                poll(NULL, 0, BUSY_AGAIN_MS);
        }
}
