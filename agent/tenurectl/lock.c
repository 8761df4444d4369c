/*
 * tenurectl lock NAME -- COMMAND: runs a command while this host has a lock of the core. The
 * lock hangs on the host's lease, and the command ends before the place is lost; keeper.h sees
 * to that.
 *
 * tenurectl unlock NAME: gives back what one that was killed has left.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl.h"
#include "host_lock.h"
#include "keeper.h"
#include "loop/loop.h"
#include "talk.h"

#define WAIT_FOREVER (INT64_C(365) * 86400 * NSEC_PER_SEC)
/* Of ours, rather than of the command: where timeout(1), env(1) and their like have theirs. */
#define EXIT_PLACE_LOST 123
#define EXIT_NOT_MINE 124 /* somebody else has it, and we were not to wait longer */
#define EXIT_FAILED 125
/* How long the core may take to say that nobody has it. */
#define ANSWER_MIN NSEC_PER_SEC

struct locking {
        struct ctl *ctl;
        struct core_options core;
        int64_t lease;
        int tenancy;            /* until when the place is held, to be read from */
        int watch;              /* for changes of that */
        struct boot_time until; /* how long to wait for the lock */
        sigset_t signals;       /* for us: they come by `sfd` */
        sigset_t mask;          /* before that */
        int sfd;
        int ended_by; /* the signal that did; 0: none */
        char node[256];
        char endpoint[320]; /* where the agent asks */
        bool follow;        /* ... and so do we */
        bool moved;         /* it asks elsewhere now */
        int epfd;           /* what we listen to while we wait for the core */
        const char *key, *command;
};

/* Where the agent asks, and who we are to the core. */
static int read_agent(struct locking *l)
{
        struct json_object *o;

        if (ctl_get_all(l->ctl, ROOT, MANAGER, &o) < 0)
                return -1;
        snprintf(l->node, sizeof(l->node), "%s", ctl_text(o, "NodeName"));
        snprintf(l->endpoint, sizeof(l->endpoint), "%s", ctl_text(o, "CoreEndpoint"));
        json_object_put(o);
        return 0;
}

/* The agent's word on the place, for as long as we like. */
static int open_tenancy(struct locking *l)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        char path[32];
        int r, fd;

        r = sd_bus_call_method(l->ctl->bus, NAME, ROOT, MANAGER, "OpenTenancy", &error, &m, "");
        if (r >= 0)
                r = sd_bus_message_read(m, "h", &fd);
        if (r < 0)
                return ctl_fail("cannot learn until when the place is held", r, &error);
        l->tenancy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
        l->watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", l->tenancy);
        if (l->tenancy < 0 || l->watch < 0 || inotify_add_watch(l->watch, path, IN_MODIFY) < 0)
                return ctl_fail("cannot follow until when the place is held", -errno, NULL);
        return 0;
}

/* Do we still have the place whose lease we began with, with time to begin something? If so it
 * is not given back before we are done: the agent looks for locks once it has said that it
 * leaves, we read what it says once we have ours. */
static bool still_held(const struct locking *l)
{
        struct flock shared = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
        struct tenancy t;

        return fcntl(l->tenancy, F_OFD_SETLK, &shared) == 0 &&
               keeper_look(l->tenancy, &t) == 0 && keeper_may_begin(&t, l->lease, boot_now());
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
        char events[sizeof(struct inotify_event) + 256];
        struct tenancy t;
        int64_t revision;
        int r;

        if (poll(&p, 1, 0) > 0)
                return -EINTR;
        while (read(l->watch, events, sizeof(events)) > 0)
                ;
        while ((r = sd_bus_process(l->ctl->bus, NULL)) > 0)
                ;
        if (r < 0) /* the core will tell */
                epoll_ctl(l->epfd, EPOLL_CTL_DEL, sd_bus_get_fd(l->ctl->bus), NULL);
        if (keeper_look(l->tenancy, &t) == 0 && (t.lease != l->lease || t.leaving))
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
            epoll_ctl(l->epfd, EPOLL_CTL_ADD, l->watch, &e) < 0 ||
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
                return EXIT_FAILED;
        }
        if (r == -ENOLINK) {
                fprintf(stderr, "tenurectl: this host lost its place while it waited.\n");
                return EXIT_PLACE_LOST;
        }
        if (r != -ETIMEDOUT)
                return EXIT_FAILED;
        fprintf(stderr, "tenurectl: somebody else has the lock '%s'.\n", name);
        return EXIT_NOT_MINE;
}

/* The lock is ours. Returns an exit status. */
static int run(struct locking *l, char **argv, int64_t revision)
{
        struct keeper_job job = {.tenancy_fd = l->tenancy,
                                 .lease = l->lease,
                                 .argv = argv,
                                 .mask = &l->mask,
                                 .sfd = l->sfd};
        struct keeper_end end;
        char text[32];
        int r;

        snprintf(text, sizeof(text), "%" PRId64, revision);
        setenv("TENURE_LOCK_KEY", l->key, 1);
        setenv("TENURE_LOCK_REVISION", text, 1);
        r = keeper_run(&job, &end);
        if (r < 0)
                return ctl_fail("what ran the command was ended, and so was all of it", r,
                                NULL);
        if (end.lost)
                return EXIT_PLACE_LOST;
        if (WIFSIGNALED(end.status))
                l->ended_by = WTERMSIG(end.status);
        return WIFEXITED(end.status) ? WEXITSTATUS(end.status) : EXIT_FAILED;
}

/* With the host's turn. Where the place is lost, the lock is gone with it. */
static int lock(struct locking *l, const char *name, char **argv)
{
        int64_t revision = 0;
        struct tenancy t;
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
        /* Taking it may have taken long. */
        r = still_held(l) ? run(l, argv, revision) : without(l, name, -ENOLINK);
        if (keeper_look(l->tenancy, &t) == 0 && t.lease == l->lease &&
            boot_before(boot_now(), t.deadline))
                (void) !give_back(l, key);
        return r;
}

static int begin(struct locking *l, bool endpoints_given)
{
        static const int signals[] = {SIGCHLD, SIGTERM, SIGINT, SIGHUP,
                                      SIGQUIT, SIGUSR1, SIGUSR2};
        struct tenancy t;

        if (read_agent(l) < 0 || open_tenancy(l) < 0)
                return -1;
        if (keeper_look(l->tenancy, &t) < 0 || !keeper_may_begin(&t, t.lease, boot_now())) {
                fprintf(stderr, "tenurectl: this host does not hold its place now.\n");
                return EXIT_PLACE_LOST;
        }
        if (boot_diff(t.deadline, boot_now()) > t.ttl) {
                fprintf(stderr, "tenurectl: the agent goes by another clock than this program; "
                                "run it in the agent's time namespace.\n");
                return -1;
        }
        l->lease = t.lease;
        l->follow = !endpoints_given && *l->endpoint;
        if (l->follow)
                l->core.endpoints = l->endpoint;
        sigemptyset(&l->signals);
        for (size_t i = 0; i < ARRAY_SIZE(signals); i++)
                sigaddset(&l->signals, signals[i]);
        sigprocmask(SIG_BLOCK, &l->signals, &l->mask);
        l->sfd = signalfd(-1, &l->signals, SFD_CLOEXEC);
        return l->sfd < 0 ? ctl_fail("cannot wait for signals", -errno, NULL) : 0;
}

static void done(struct locking *l)
{
        if (l->sfd >= 0)
                close(l->sfd);
        if (l->watch >= 0)
                close(l->watch);
        if (l->tenancy >= 0)
                close(l->tenancy);
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
        struct locking l = {.ctl = c, .core = *core, .sfd = -1, .tenancy = -1, .watch = -1};
        int r, turn;

        if (argc < 2)
                return ctl_fail("lock wants NAME -- COMMAND", -EINVAL, NULL);
        l.until = core->wait < 0 ? BOOT_TIME_NEVER : boot_add(boot_now(), core->wait);
        r = sd_bus_match_signal(c->bus, NULL, NAME, ROOT, "org.freedesktop.DBus.Properties",
                                "PropertiesChanged", on_properties, &l);
        if (r < 0)
                return ctl_fail("cannot subscribe", r, NULL);
        r = begin(&l, endpoints_given);
        if (r == 0) {
                turn = host_lock(l.lease, argv[0], l.sfd, l.until);
                if (turn < 0 && turn != -EINTR && turn != -ETIMEDOUT)
                        r = ctl_fail("cannot wait for this host's turn", turn, NULL);
                else
                        r = turn < 0 ? without(&l, argv[0], turn) : lock(&l, argv[0], argv + 1);
                if (turn >= 0)
                        close(turn);
        }
        done(&l);
        if (l.ended_by)
                end_by(l.ended_by);
        return r < 0 ? EXIT_FAILED : r;
}

int unlock_main(struct ctl *c, const struct core_options *core, bool endpoints_given, int argc,
                char **argv)
{
        struct locking l = {.ctl = c, .core = *core, .sfd = -1, .tenancy = -1, .watch = -1};
        char key[1024];
        int r, turn;

        if (argc != 1)
                return ctl_fail("unlock wants NAME", -EINVAL, NULL);
        r = begin(&l, endpoints_given);
        if (r == 0) {
                sigprocmask(SIG_SETMASK, &l.mask, NULL);
                turn = host_lock(l.lease, argv[0], -1, boot_now());
                if (turn == -ETIMEDOUT) {
                        fprintf(stderr,
                                "tenurectl: a command on this host has the lock '%s'.\n",
                                argv[0]);
                        r = EXIT_NOT_MINE;
                } else if (turn < 0) {
                        r = ctl_fail("cannot wait for this host's turn", turn, NULL);
                } else {
                        key_of(&l, argv[0], key);
                        r = give_back(&l, key);
                        close(turn);
                }
        }
        done(&l);
        return r < 0 ? EXIT_FAILED : r;
}
