/* polkit's agent for the terminal, for calls that may need a password: pkttyagent(1), as
 * systemctl runs it. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl.h"

#define AGENT "/usr/bin/pkttyagent"

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
