/*
 * tenurectl lock NAME -- COMMAND: runs a command while this host has a lock of the core. The
 * lock hangs on the host's lease, and the command ends before the place is lost: with SIGTERM
 * when renewals fail, with SIGKILL at the deadline.
 */
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl.h"
#include "loop/loop.h"
#include "talk.h"

#define WAIT_FOREVER (INT64_C(365) * 86400 * NSEC_PER_SEC)
#define EXIT_PLACE_LOST 3

struct locking {
        struct ctl *ctl;
        struct core_options core;
        int64_t lease;
        pid_t child;
        bool ending;
        struct boot_time deadline; /* of the place; once `ending` */
        sigset_t signals;          /* for us, while the command runs */
};

/* What the agent says of the place: the lease, 0 while none is held. */
static int read_place(struct locking *l, int64_t *ret_lease, struct boot_time *ret_deadline,
                      char endpoint[static 320])
{
        struct json_object *o;
        const char *state;

        if (ctl_get_all(l->ctl, ROOT, MANAGER, &o) < 0)
                return -1;
        state = ctl_text(o, "State");
        *ret_lease = 0;
        if (strcmp(state, "held") == 0 || strcmp(state, "jeopardy") == 0)
                *ret_lease = (int64_t) strtoull(ctl_text(o, "LeaseId"), NULL, 16);
        ret_deadline->ns = ctl_number(o, "DeadlineUSec") * NSEC_PER_USEC;
        snprintf(endpoint, 320, "%s", ctl_text(o, "CoreEndpoint"));
        json_object_put(o);
        return 0;
}

static void end_command(struct locking *l, const char *why)
{
        if (l->ending)
                return;
        fprintf(stderr, "tenurectl: %s; ending the command.\n", why);
        l->ending = true;
        kill(-l->child, SIGTERM);
}

static int on_signal(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        const char *member = sd_bus_message_get_member(m);
        struct locking *l = userdata;
        uint64_t deadline;
        int64_t lease;

        if (strcmp(member, "LeaseJeopardy") == 0 &&
            sd_bus_message_read(m, "xt", &lease, &deadline) >= 0) {
                l->deadline.ns = (int64_t) deadline * NSEC_PER_USEC;
                end_command(l, "renewals fail, and the place may be lost");
        } else if (strcmp(member, "LeaseLost") == 0) {
                l->deadline = (struct boot_time){0};
                end_command(l, "the place is lost");
        }
        return 0;
}

static pid_t run(char **argv, const char *key, int64_t revision)
{
        char text[32];
        sigset_t none;
        pid_t pid = fork();

        if (pid != 0)
                return pid;
        /* Its own group, so that all of it is ended; and it does not outlive us. */
        setpgid(0, 0);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        snprintf(text, sizeof(text), "%" PRId64, revision);
        setenv("TENURE_LOCK_KEY", key, 1);
        setenv("TENURE_LOCK_REVISION", text, 1);
        execvp(argv[0], argv);
        fprintf(stderr, "tenurectl: cannot run %s: %s.\n", argv[0], strerror(errno));
        _exit(127);
}

/* Until the command has ended. Returns its exit status as a shell tells it, or -1. */
static int attend(struct locking *l, int sfd)
{
        struct signalfd_siginfo si;
        int status;

        for (;;) {
                struct pollfd p[] = {{.fd = sfd, .events = POLLIN},
                                     {.fd = sd_bus_get_fd(l->ctl->bus), .events = POLLIN}};
                int r, timeout = -1;

                while ((r = sd_bus_process(l->ctl->bus, NULL)) > 0)
                        ;
                if (r < 0 && !l->ending) {
                        l->deadline = boot_now();
                        end_command(l, "the agent cannot be heard any more");
                }
                if (l->ending) {
                        nsec_t left = boot_diff(l->deadline, boot_now());

                        if (left <= 0)
                                kill(-l->child, SIGKILL);
                        timeout = left <= 0 ? 100 : (int) (left / NSEC_PER_MSEC) + 1;
                }
                if (r < 0)
                        p[1].fd = -1;
                if (poll(p, 2, timeout) < 0 && errno != EINTR)
                        return -1;
                if (!(p[0].revents & POLLIN) || read(sfd, &si, sizeof(si)) != sizeof(si))
                        continue;
                if (si.ssi_signo != SIGCHLD) {
                        kill(-l->child, (int) si.ssi_signo);
                        continue;
                }
                if (waitpid(l->child, &status, WNOHANG) != l->child)
                        continue;
                kill(-l->child, SIGKILL); /* what it has left behind */
                if (l->ending)
                        return EXIT_PLACE_LOST;
                return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
}

static int take(struct locking *l, const char *name, char key[static 1024], int64_t *revision)
{
        Pb__LockRequest q = PB__LOCK_REQUEST__INIT;
        struct talk t = {.path = "/v3lockpb.Lock/Lock",
                         .request = &q.base,
                         .reply_type = &pb__lock_response__descriptor,
                         .limit = WAIT_FOREVER};
        Pb__LockResponse *p;
        int r;

        q.name = pb_bytes(name, strlen(name));
        q.lease = l->lease;
        r = talk(&l->core, &t);
        p = t.reply;
        if (r == 0) {
                snprintf(key, 1024, "%.*s", (int) p->key.len, (const char *) p->key.data);
                *revision = p->header ? p->header->revision : 0;
        }
        pb_free(p);
        return r;
}

static void give_back(struct locking *l, const char *key)
{
        Pb__UnlockRequest q = PB__UNLOCK_REQUEST__INIT;
        void *p = NULL;

        q.key = pb_bytes(key, strlen(key));
        /* Where the place is lost, the lock is gone with it. */
        if (talk_call(&l->core, "/v3lockpb.Lock/Unlock", &q.base,
                      &pb__unlock_response__descriptor, &p) == 0)
                pb_free(p);
}

static int lock(struct locking *l, const char *name, char **argv, int sfd)
{
        struct boot_time deadline;
        int64_t revision = 0, lease;
        char key[1024], endpoint[320];
        int r;

        /* Until here a signal ends us, and the core lets the next one have it. */
        if (take(l, name, key, &revision) < 0)
                return -1;
        sigprocmask(SIG_BLOCK, &l->signals, NULL);
        /* Taking it may have taken long. */
        if (read_place(l, &lease, &deadline, endpoint) < 0 || lease != l->lease) {
                fprintf(stderr, "tenurectl: this host lost its place while it waited.\n");
                return EXIT_PLACE_LOST;
        }
        l->child = run(argv, key, revision);
        if (l->child < 0) {
                r = ctl_fail("cannot run the command", -errno, NULL);
        } else {
                setpgid(l->child, l->child);
                r = attend(l, sfd);
        }
        give_back(l, key);
        return r;
}

int lock_main(struct ctl *c, const struct core_options *core, bool endpoints_given, int argc,
              char **argv)
{
        struct locking l = {.ctl = c, .core = *core};
        static const int signals[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP};
        struct boot_time deadline;
        char endpoint[320];
        int r, sfd;

        if (argc < 2)
                return ctl_fail("lock wants NAME -- COMMAND", -EINVAL, NULL);
        r = sd_bus_match_signal(c->bus, NULL, NAME, ROOT, MANAGER, NULL, on_signal, &l);
        if (r < 0)
                return ctl_fail("cannot subscribe", r, NULL);
        if (read_place(&l, &l.lease, &deadline, endpoint) < 0)
                return -1;
        if (l.lease == 0) {
                fprintf(stderr, "tenurectl: this host does not hold its place now.\n");
                return EXIT_PLACE_LOST;
        }
        if (!endpoints_given && *endpoint)
                l.core.endpoints = endpoint;
        sigemptyset(&l.signals);
        for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
                sigaddset(&l.signals, signals[i]);
        sfd = signalfd(-1, &l.signals, SFD_CLOEXEC);
        if (sfd < 0)
                return ctl_fail("cannot wait for signals", -errno, NULL);
        r = lock(&l, argv[0], argv + 1, sfd);
        close(sfd);
        return r;
}
