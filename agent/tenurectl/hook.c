#include "hook.h"

#include <bsd/sys/queue.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl.h"
#include "keeper.h"
#include "watch_since.h"

#define WAITING_MOST 10000 /* events */

struct waiting_event {
        STAILQ_ENTRY(waiting_event) entry;
        struct json_object *o; /* owned */
        size_t skipped;        /* it stands for so many */
};

struct hook {
        char **argv;
        sigset_t signals, mask;
        int sfd;
        STAILQ_HEAD(, waiting_event) waiting;
        size_t n_waiting;
        pid_t pid;      /* 0: nothing runs */
        char what[600]; /* the event for which it runs */
        bool ending;
        int status;
};

/* ---- the queue ---- */

static struct waiting_event *push(struct hook *h, struct json_object *o)
{
        struct waiting_event *e = calloc(1, sizeof(*e));

        if (!e || !o)
                abort(); /* a command that misses a change would go by wrong information */
        e->o = o;
        STAILQ_INSERT_TAIL(&h->waiting, e, entry);
        h->n_waiting++;
        return e;
}

static void skip(struct hook *h, const struct json_object *o)
{
        struct waiting_event *e = STAILQ_LAST(&h->waiting, waiting_event, entry);
        struct json_object *skipped;
        char reason[120];

        if (e->skipped == 0) {
                say("the command takes too long: %d events wait, and more are skipped",
                    WAITING_MOST);
                e = push(h, json_object_new_object());
        }
        snprintf(reason, sizeof(reason),
                 "the command takes too long: %zu event(s) were skipped", ++e->skipped);
        skipped = e->o;
        json_put_text(skipped, "event", WATCH_RESYNC);
        json_put_text(skipped, "reason", reason);
        json_object_object_foreach ((struct json_object *) (uintptr_t) o, key, value) {
                if (strcmp(key, "revision") == 0 || strcmp(key, "realtime_usec") == 0)
                        json_object_object_add(skipped, key, json_object_get(value));
        }
}

void hook_add(struct hook *h, struct json_object *o)
{
        if (h->n_waiting < WAITING_MOST) {
                push(h, o);
                return;
        }
        skip(h, o);
        json_object_put(o);
}

static void drop_first(struct hook *h)
{
        struct waiting_event *e = STAILQ_FIRST(&h->waiting);

        STAILQ_REMOVE_HEAD(&h->waiting, entry);
        h->n_waiting--;
        json_object_put(e->o);
        free(e);
}

/* ---- the command ---- */

/* Variables of an outer watch must not be taken for those of this event. */
static void set(const char *name, struct json_object *o, const char *key)
{
        const char *value = ctl_text(o, key);

        if (*value)
                setenv(name, value, 1);
        else
                unsetenv(name);
}

static void set_environment(struct json_object *o)
{
        bool service = *ctl_text(o, "node") != '\0';

        set("TENURE_EVENT", o, "event");
        set("TENURE_NODE", o, service ? "node" : "name");
        set("TENURE_NODE_ID", o, "id");
        set("TENURE_SERVICE", o, service ? "name" : "");
        set("TENURE_INSTANCE", o, "instance");
        set("TENURE_REASON", o, "reason");
        set("TENURE_NOTE", o, "note");
        set("TENURE_REVISION", o, "revision");
}

/* A file with the event, from which the command reads. Returns a descriptor, or a negative
 * errno. */
static int write_event(struct json_object *o)
{
        cleanup_(buf_fini) struct buf b = {0};
        int fd = memfd_create("event", MFD_CLOEXEC);

        text_add_json(&b, o, JSON_C_TO_STRING_PLAIN);
        if (fd < 0)
                return -errno;
        if (buf_error(&b) < 0 ||
            pwrite(fd, buf_head(&b), buf_len(&b), 0) != (ssize_t) buf_len(&b)) {
                close(fd);
                return -ENOMEM;
        }
        return fd;
}

static noreturn_ void be_command(const struct hook *h, struct json_object *o, int in, int out)
{
        dup2(in, STDIN_FILENO);
        set_environment(o);
        keeper_give_signals_back(&h->mask);
        execvp(h->argv[0], h->argv);
        (void) !write(out, &errno, sizeof(errno));
        _exit(EXIT_NOT_FOUND);
}

/* Returns 0; a positive errno: the command cannot be executed; or a negative one. */
static int start(struct hook *h, struct json_object *o)
{
        int in = write_event(o), pipe_fds[2], why = 0;
        pid_t pid;

        if (in < 0)
                return in;
        if (pipe2(pipe_fds, O_CLOEXEC) < 0) {
                close(in);
                return -errno;
        }
        pid = fork();
        if (pid == 0)
                be_command(h, o, in, pipe_fds[1]);
        close(pipe_fds[1]);
        close(in);
        if (pid < 0)
                why = -errno;
        /* Nothing, once it is executed. */
        else if (read(pipe_fds[0], &why, sizeof(why)) == sizeof(why))
                waitpid(pid, NULL, 0);
        else
                h->pid = pid;
        close(pipe_fds[0]);
        return why;
}

static void name_event(struct hook *h, struct json_object *o)
{
        snprintf(h->what, sizeof(h->what), "%s%s%s", ctl_text(o, "event"),
                 *ctl_text(o, "name") ? " " : "", ctl_text(o, "name"));
}

static void start_next(struct hook *h)
{
        struct json_object *o = STAILQ_FIRST(&h->waiting)->o;
        int r;

        name_event(h, o);
        r = start(h, o);
        drop_first(h);
        if (r == 0)
                return;
        if (r < 0) {
                say("the command for %s is left out: %s", h->what, strerror(-r));
                return;
        }
        say("cannot run %s: %s", h->argv[0], strerror(r));
        h->ending = true;
        h->status = exit_not_run(r);
}

static void say_ended(const struct hook *h, int status)
{
        if (WIFSIGNALED(status))
                say("the command for %s was ended by SIG%s", h->what,
                    sigabbrev_np(WTERMSIG(status)));
        else if (WEXITSTATUS(status) != 0)
                say("the command for %s ended with status %d", h->what, WEXITSTATUS(status));
}

/* ---- signals ---- */

static void on_signal(struct hook *h, int signo)
{
        if (h->ending && h->pid > 0)
                kill(h->pid, signo);
        h->ending = true;
}

bool hook_run(struct hook *h, int *ret_status)
{
        struct signalfd_siginfo si;
        int status;

        while (read(h->sfd, &si, sizeof(si)) == sizeof(si))
                if (si.ssi_signo != SIGCHLD)
                        on_signal(h, (int) si.ssi_signo);
        if (h->pid > 0 && waitpid(h->pid, &status, WNOHANG) == h->pid) {
                h->pid = 0;
                say_ended(h, status);
        }
        while (h->pid == 0 && !h->ending && !STAILQ_EMPTY(&h->waiting))
                start_next(h);
        *ret_status = h->status;
        return h->ending && h->pid == 0;
}

int hook_fd(const struct hook *h)
{
        return h->sfd;
}

int hook_new(struct hook **ret, char **argv)
{
        struct hook *h = calloc(1, sizeof(*h));

        if (!h)
                return ctl_fail("cannot begin", -ENOMEM, NULL);
        h->argv = argv;
        STAILQ_INIT(&h->waiting);
        keeper_take_signals(&h->signals, &h->mask);
        h->sfd = signalfd(-1, &h->signals, SFD_CLOEXEC | SFD_NONBLOCK);
        if (h->sfd < 0) {
                free(h);
                return ctl_fail("cannot wait for signals", -errno, NULL);
        }
        *ret = h;
        return 0;
}

struct hook *hook_free(struct hook *h)
{
        if (!h)
                return NULL;
        if (h->pid > 0)
                waitpid(h->pid, NULL, 0);
        while (!STAILQ_EMPTY(&h->waiting))
                drop_first(h);
        close(h->sfd);
        free(h);
        return NULL;
}
