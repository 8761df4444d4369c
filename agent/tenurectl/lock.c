/*
 * tenurectl lock NAME -- COMMAND: runs a command while this host has a lock of the core. The
 * lock hangs on the host's lease, and the command ends before the place is lost: with SIGTERM
 * when renewals fail, with SIGKILL at the deadline.
 *
 * tenurectl unlock NAME: gives back what one that was killed has left.
 */
#include <inttypes.h>
#include <json-c/json.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl.h"
#include "host_lock.h"
#include "loop/loop.h"
#include "talk.h"

#define WAIT_FOREVER (INT64_C(365) * 86400 * NSEC_PER_SEC)
#define EXIT_PLACE_LOST 3
#define EXIT_NOT_MINE 4 /* somebody else has it, and we were not to wait longer */
/* How long the core may take to say that nobody has it. */
#define ANSWER_MIN NSEC_PER_SEC

struct locking {
        struct ctl *ctl;
        struct core_options core;
        int64_t lease;
        pid_t child;
        bool lost; /* the place, before there was a command */
        bool ending;
        struct boot_time deadline; /* of the place; once `ending` */
        struct boot_time until;    /* how long to wait for the lock */
        sigset_t signals;          /* for us: they come by `sfd` */
        int sfd;
        int ended_by; /* the signal that did; 0: none */
        char node[256];
        char endpoint[320]; /* where the agent asks */
        bool follow;        /* ... and so do we */
        bool moved;         /* it asks elsewhere now */
        int epfd;           /* the signals and the bus, while we wait for the core */
        const char *key, *command;
};

/* What the agent says of the place: the lease, 0 while none is held, or may soon be lost. */
static int read_place(struct locking *l, int64_t *ret_lease)
{
        struct json_object *o;

        if (ctl_get_all(l->ctl, ROOT, MANAGER, &o) < 0)
                return -1;
        *ret_lease = 0;
        if (strcmp(ctl_text(o, "State"), "held") == 0)
                *ret_lease = (int64_t) strtoull(ctl_text(o, "LeaseId"), NULL, 16);
        snprintf(l->node, sizeof(l->node), "%s", ctl_text(o, "NodeName"));
        snprintf(l->endpoint, sizeof(l->endpoint), "%s", ctl_text(o, "CoreEndpoint"));
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

        if (l->child <= 0) {
                l->lost |= strcmp(member, "LeaseLost") == 0;
                return 0;
        }
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

static int on_properties(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct locking *l = userdata;
        const char *name, *endpoint;

        if (sd_bus_message_skip(m, "s") < 0 ||
            sd_bus_message_enter_container(m, 'a', "{sv}") < 0)
                return 0;
        while (sd_bus_message_enter_container(m, 'e', "sv") > 0) {
                if (sd_bus_message_read(m, "s", &name) < 0)
                        return 0;
                if (strcmp(name, "CoreEndpoint") != 0) {
                        if (sd_bus_message_skip(m, "v") < 0)
                                return 0;
                } else if (sd_bus_message_read(m, "v", "s", &endpoint) < 0) {
                        return 0;
                } else if (*endpoint && strcmp(endpoint, l->endpoint) != 0) {
                        snprintf(l->endpoint, sizeof(l->endpoint), "%s", endpoint);
                        l->moved = true;
                }
                sd_bus_message_exit_container(m);
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

/* Until the command has ended. Returns its exit status, or -1. */
static int attend(struct locking *l)
{
        struct signalfd_siginfo si;
        int status;

        for (;;) {
                struct pollfd p[] = {{.fd = l->sfd, .events = POLLIN},
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
                if (!(p[0].revents & POLLIN) || read(l->sfd, &si, sizeof(si)) != sizeof(si))
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
                if (WIFSIGNALED(status))
                        l->ended_by = WTERMSIG(status);
                return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
        }
}

/* The lock of a lease is the key NAME/LEASE, as etcd makes it. */
static void key_of(const struct locking *l, const char *name, char key[static 1024])
{
        snprintf(key, 1024, "%s/%" PRIx64, name, (uint64_t) l->lease);
}

/* Writes to the key, where it is still there, who has it or waits for it; then what an earlier
 * connection of ours leaves behind no longer takes it away. Returns 1, 0 when it is gone, or a
 * negative errno, and has said why. */
static int mark(struct locking *l, int64_t *ret_revision)
{
        Pb__TxnRequest txn = PB__TXN_REQUEST__INIT;
        Pb__Compare c = PB__COMPARE__INIT, *cs[] = {&c};
        Pb__RequestOp op = PB__REQUEST_OP__INIT, *ops[] = {&op};
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        struct json_object *o = json_object_new_object();
        Pb__TxnResponse *p = NULL;
        const char *text;
        int r;

        json_object_object_add(o, "node", json_object_new_string(l->node));
        json_object_object_add(o, "pid", json_object_new_int64(getpid()));
        json_object_object_add(o, "command", json_object_new_string(l->command));
        text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_NOSLASHESCAPE);
        c.key = put.key = pb_bytes(l->key, strlen(l->key));
        c.target = PB__COMPARE__COMPARE_TARGET__VERSION;
        c.target_union_case = PB__COMPARE__TARGET_UNION_VERSION;
        c.result = PB__COMPARE__COMPARE_RESULT__GREATER;
        put.value = pb_bytes(text, strlen(text));
        put.lease = l->lease;
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op.request_put = &put;
        txn.compare = cs;
        txn.n_compare = 1;
        txn.success = ops;
        txn.n_success = 1;
        r = talk_call(&l->core, "/etcdserverpb.KV/Txn", &txn.base,
                      &pb__txn_response__descriptor, (void **) &p);
        json_object_put(o);
        if (r < 0)
                return r;
        r = p->succeeded;
        *ret_revision = p->header ? p->header->revision : 0;
        pb_free(p);
        return r;
}

/* While we wait for the core: a signal, or a word of the agent's. An agent that asks elsewhere
 * knows of a replica that died long before a connection that only waits does. */
static int heard(void *arg)
{
        struct locking *l = arg;
        struct pollfd p = {.fd = l->sfd, .events = POLLIN};
        int64_t revision;
        int r;

        if (poll(&p, 1, 0) > 0)
                return -EINTR;
        while ((r = sd_bus_process(l->ctl->bus, NULL)) > 0)
                ;
        if (r < 0) /* the core will tell */
                epoll_ctl(l->epfd, EPOLL_CTL_DEL, sd_bus_get_fd(l->ctl->bus), NULL);
        if (l->lost)
                return -ENOLINK;
        if (!l->moved || !l->follow)
                return 0;
        /* By the new one, before the old connection ends: so that our turn stays ours. */
        l->moved = false;
        return mark(l, &revision) < 0 ? 0 : -EAGAIN;
}

static int ask(struct locking *l, const char *name)
{
        Pb__LockRequest q = PB__LOCK_REQUEST__INIT;
        struct talk t = {
                .path = "/v3lockpb.Lock/Lock",
                .request = &q.base,
                .reply_type = &pb__lock_response__descriptor,
                .limit = min_of(max_of(boot_diff(l->until, boot_now()), ANSWER_MIN),
                                WAIT_FOREVER),
                .break_fd = l->epfd,
                .on_break = heard,
                .break_arg = l,
        };
        int r;

        q.name = pb_bytes(name, strlen(name));
        q.lease = l->lease;
        r = talk(&l->core, &t);
        pb_free(t.reply);
        return r;
}

/* Until the core says that the lock is ours, and it still is when we write that down. */
static int take(struct locking *l, const char *name, int64_t *revision)
{
        struct epoll_event e = {.events = EPOLLIN};
        int r;

        l->epfd = epoll_create1(EPOLL_CLOEXEC);
        if (l->epfd < 0 || epoll_ctl(l->epfd, EPOLL_CTL_ADD, l->sfd, &e) < 0 ||
            epoll_ctl(l->epfd, EPOLL_CTL_ADD, sd_bus_get_fd(l->ctl->bus), &e) < 0)
                return ctl_fail("cannot wait", -errno, NULL);
        do
                r = ask(l, name);
        while (r == -EAGAIN || (r == 0 && (r = mark(l, revision)) == 0));
        close(l->epfd);
        return r < 0 ? r : 0;
}

static int give_back(struct locking *l, const char *key)
{
        Pb__UnlockRequest q = PB__UNLOCK_REQUEST__INIT;
        void *p = NULL;
        int r;

        q.key = pb_bytes(key, strlen(key));
        r = talk_call(&l->core, "/v3lockpb.Lock/Unlock", &q.base,
                      &pb__unlock_response__descriptor, &p);
        if (r == 0)
                pb_free(p);
        return r;
}

/* Why there is no lock, as an exit status. */
static int without(struct locking *l, const char *name, int r)
{
        struct signalfd_siginfo si;

        if (r == -EINTR && read(l->sfd, &si, sizeof(si)) == sizeof(si)) {
                l->ended_by = (int) si.ssi_signo;
                return 1;
        }
        if (r == -ENOLINK) {
                fprintf(stderr, "tenurectl: this host lost its place while it waited.\n");
                return EXIT_PLACE_LOST;
        }
        if (r != -ETIMEDOUT)
                return 1;
        fprintf(stderr, "tenurectl: somebody else has the lock '%s'.\n", name);
        return EXIT_NOT_MINE;
}

/* With the host's turn. Where the place is lost, the lock is gone with it. */
static int lock(struct locking *l, const char *name, char **argv)
{
        int64_t revision = 0, lease;
        char key[1024];
        int r;

        key_of(l, name, key);
        l->key = key;
        l->command = argv[0];
        r = take(l, name, &revision);
        if (r < 0) {
                /* The answer may have been on its way. */
                if (r == -EINTR || r == -ETIMEDOUT)
                        (void) !give_back(l, key);
                return without(l, name, r);
        }
        /* Taking it may have taken long. What was told until now is older than this answer. */
        r = read_place(l, &lease);
        while (sd_bus_process(l->ctl->bus, NULL) > 0)
                ;
        if (r < 0 || lease != l->lease || l->lost) {
                (void) !give_back(l, key);
                return r < 0 ? r : without(l, name, -ENOLINK);
        }
        l->child = run(argv, key, revision);
        if (l->child < 0) {
                r = ctl_fail("cannot run the command", -errno, NULL);
        } else {
                setpgid(l->child, l->child);
                r = attend(l);
        }
        if (!l->ending || boot_before(boot_now(), l->deadline))
                (void) !give_back(l, key);
        return r;
}

static int begin(struct locking *l, bool endpoints_given)
{
        static const int signals[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP};

        if (read_place(l, &l->lease) < 0)
                return -1;
        if (l->lease == 0) {
                fprintf(stderr, "tenurectl: this host does not hold its place now.\n");
                return EXIT_PLACE_LOST;
        }
        l->follow = !endpoints_given && *l->endpoint;
        if (l->follow)
                l->core.endpoints = l->endpoint;
        sigemptyset(&l->signals);
        for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
                sigaddset(&l->signals, signals[i]);
        sigprocmask(SIG_BLOCK, &l->signals, NULL);
        l->sfd = signalfd(-1, &l->signals, SFD_CLOEXEC);
        return l->sfd < 0 ? ctl_fail("cannot wait for signals", -errno, NULL) : 0;
}

/* Ends as the command did: for a service manager, who was told to stop and did has not failed.
 */
static void end_by(int signo)
{
        sigset_t none;

        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* the command has left its own */
        signal(signo, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        raise(signo);
}

int lock_main(struct ctl *c, const struct core_options *core, bool endpoints_given, int argc,
              char **argv)
{
        struct locking l = {.ctl = c, .core = *core, .sfd = -1};
        int r, turn;

        if (argc < 2)
                return ctl_fail("lock wants NAME -- COMMAND", -EINVAL, NULL);
        l.until = core->wait < 0 ? BOOT_TIME_NEVER : boot_add(boot_now(), core->wait);
        r = sd_bus_match_signal(c->bus, NULL, NAME, ROOT, MANAGER, NULL, on_signal, &l);
        if (r >= 0)
                r = sd_bus_match_signal(c->bus, NULL, NAME, ROOT,
                                        "org.freedesktop.DBus.Properties", "PropertiesChanged",
                                        on_properties, &l);
        if (r < 0)
                return ctl_fail("cannot subscribe", r, NULL);
        r = begin(&l, endpoints_given);
        if (r != 0)
                return r;
        turn = host_lock(l.lease, argv[0], l.sfd, l.until);
        if (turn < 0 && turn != -EINTR && turn != -ETIMEDOUT)
                r = ctl_fail("cannot wait for this host's turn", turn, NULL);
        else
                r = turn < 0 ? without(&l, argv[0], turn) : lock(&l, argv[0], argv + 1);
        if (turn >= 0)
                close(turn);
        close(l.sfd);
        if (l.ended_by)
                end_by(l.ended_by);
        return r;
}

int unlock_main(struct ctl *c, const struct core_options *core, bool endpoints_given, int argc,
                char **argv)
{
        struct locking l = {.ctl = c, .core = *core, .sfd = -1};
        char key[1024];
        int r, turn;

        if (argc != 1)
                return ctl_fail("unlock wants NAME", -EINVAL, NULL);
        r = begin(&l, endpoints_given);
        if (r != 0)
                return r;
        close(l.sfd);
        sigprocmask(SIG_UNBLOCK, &l.signals, NULL);
        turn = host_lock(l.lease, argv[0], -1, boot_now());
        if (turn == -ETIMEDOUT) {
                fprintf(stderr, "tenurectl: a command on this host has the lock '%s'.\n",
                        argv[0]);
                return EXIT_NOT_MINE;
        }
        if (turn < 0)
                return ctl_fail("cannot wait for this host's turn", turn, NULL);
        key_of(&l, argv[0], key);
        r = give_back(&l, key);
        close(turn);
        return r < 0 ? 1 : 0;
}
