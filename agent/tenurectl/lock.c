/*
 * tenurectl lock NAME -- COMMAND: runs a command while this host has a lock of the core. The
 * lock is attached to the host's lease, and keeper.h makes sure that the command ends before
 * the place is lost. If somebody requests a switchover of the lock (tenure/handover.h), the
 * command ends, and the lock goes to the named node.
 *
 * tenurectl unlock NAME: gives back a lock whose tenurectl was killed.
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
#include "lock_env.h"
#include "lock_holder.h"
#include "loop/loop.h"
#include "member/lock_name.h"
#include "own_key.h"
#include "talk.h"
#include "tenure/handover.h"
#include "tenure/host_agent.h"
#include "text.h"
#include "tie.h"
#include "verbs.h"

#define WAIT_FOREVER (INT64_C(365) * 86400 * NSEC_PER_SEC)
/* How long the core may take to answer that nobody has the lock. */
#define ANSWER_MIN NSEC_PER_SEC
/* ... and that nobody has requested a switchover. */
#define LOOK_MAX (500 * NSEC_PER_MSEC)
/* How often the place is checked during a switchover. */
#define LOOK_AT_PLACE_MS 100
/* How often a core that does not answer, or the one that the agent moves to, is asked again. */
#define ASK_AGAIN_MS 200
#define GIVE_BACK_FOR (10 * NSEC_PER_SEC)
/* ... and for how long after the start: the replica that the agent uses may have just died. */
#define REACH_FIRST (5 * NSEC_PER_SEC)

struct locking {
        struct ctl *ctl;
        int64_t lease;
        int turn;               /* of this host; see host_lock.h */
        int tenancy;            /* the agent's page, which says until when the place is held */
        int watch;              /* reports changes of the page */
        struct boot_time until; /* when to stop waiting for the lock */
        sigset_t signals;       /* signals for us, which we read from `sfd` */
        sigset_t mask;          /* the mask before that */
        int sfd;
        int ended_by; /* the signal that ends us; 0: none */
        char node[256];
        char endpoint[320]; /* the endpoint that the agent uses */
        bool follow;        /* we use that endpoint, too */
        bool moved;         /* the agent has moved to another endpoint */
        bool reached;       /* a request of ours has reached a core */
        struct boot_time began;
        bool waits_said; /* it was reported that no core answers */
        bool ran;        /* a command has run with the lock */
        bool runs;       /* ... and something of it may run now */
        int epfd;        /* what we wait for besides the core */
        const char *name, *key, *command;
        int64_t created; /* the create_revision of the key */
        int64_t marked;  /* the revision in which we have written it last */
        struct own_key own;
        struct tenure *tie;
        struct handover handover; /* runs while we have the lock */
        enum { NEWS_NOT_YET, NEWS_NONE, NEWS_ASKED, NEWS_DONE, NEWS_KEPT, NEWS_LOST } news;
};

/* Reads which endpoint the agent uses, and the name of this node. */
static int read_agent(struct locking *l)
{
        struct json_object *o;

        if ((l->follow ? ctl_get_connected(l->ctl, &o)
                       : ctl_get_all(l->ctl, ROOT, MANAGER, &o)) < 0)
                return -1;
        snprintf(l->node, sizeof(l->node), "%s", ctl_text(o, "NodeName"));
        snprintf(l->endpoint, sizeof(l->endpoint), "%s", ctl_text(o, "CoreEndpoint"));
        json_object_put(o);
        return 0;
}

int ctl_open_tenancy(struct ctl *c)
{
        return ctl_open(c, "OpenTenancy", NULL, "cannot get the deadline of this host's place");
}

/* Opens the agent's page about the place, and keeps it open. */
static int open_tenancy(struct locking *l)
{
        char path[32];

        l->tenancy = ctl_open_tenancy(l->ctl);
        if (l->tenancy < 0)
                return -1;
        l->watch = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
        snprintf(path, sizeof(path), "/proc/self/fd/%d", l->tenancy);
        if (l->watch < 0 || inotify_add_watch(l->watch, path, IN_MODIFY) < 0)
                return ctl_fail("cannot watch the deadline of this host's place", -errno, NULL);
        return 0;
}

/* Whether we still have the place whose lease we began with, with enough time to begin
 * something. If so, the place is not given back before we are done: the agent looks for our
 * file lock after it has published that it is leaving, and we read the page after we have
 * locked it. */
static bool still_held(const struct locking *l)
{
        struct flock shared = {.l_type = F_RDLCK, .l_whence = SEEK_SET};
        struct tenancy t;

        return fcntl(l->tenancy, F_OFD_SETLK, &shared) == 0 &&
               keeper_look(l->tenancy, &t) == 0 && keeper_may_begin(&t, l->lease, boot_now());
}

/* Whether we still have that place, however little time is left. */
static bool has_place(const struct locking *l)
{
        struct tenancy t;

        return keeper_look(l->tenancy, &t) == 0 && t.lease == l->lease &&
               boot_before(boot_now(), t.deadline);
}

/* Makes a call, before or after we have the lock. If a core has answered before, we keep
 * asking; and for a while if we use the agent's core, since that one keeps the host's place. In
 * all other cases failure is an error: what the user gave us to reach the core may be wrong,
 * and would stay wrong. */
static int call(struct locking *l, struct talk *t)
{
        /* A copy, as hear_agent() may change the original while talk() goes through it. */
        char endpoint[sizeof(l->endpoint)];
        struct core_options core = l->ctl->core;
        int r;

        if (l->follow) {
                snprintf(endpoint, sizeof(endpoint), "%s", l->endpoint);
                core.endpoints = endpoint;
        }
        t->asks_again = l->reached ||
                        (l->follow && boot_before(boot_now(), boot_add(l->began, REACH_FIRST)));
        r = talk(&core, t);
        l->reached |= t->sent;
        if (r == -ENOTCONN && !l->waits_said) {
                say("no lease core answers now%s%s%s%s; asking again", *t->url ? " at " : "",
                    t->url, *t->down ? ": " : "", t->down);
                l->waits_said = true;
        } else if (r != -ENOTCONN) {
                l->waits_said = false;
        }
        return r;
}

/* Reads all pending signals, and returns the last one except SIGCHLD, or 0. */
static int takes_signal(const struct locking *l)
{
        struct pollfd p = {.fd = l->sfd, .events = POLLIN};
        struct signalfd_siginfo si;
        int signo = 0;

        while (poll(&p, 1, 0) > 0 && read(l->sfd, &si, sizeof(si)) == sizeof(si))
                if (si.ssi_signo != SIGCHLD)
                        signo = (int) si.ssi_signo;
        return signo;
}

/* Whether a signal has arrived that ends us. */
static bool is_asked_to_end(struct locking *l)
{
        if (l->ended_by == 0)
                l->ended_by = takes_signal(l);
        return l->ended_by != 0;
}

/* Candidates for a lock have keys NAME/LEASE, as in etcd. */
static void key_of(const struct locking *l, char key[static LOCK_KEY_MAX])
{
        snprintf(key, LOCK_KEY_MAX, "%s/%" PRIx64, l->name, (uint64_t) l->lease);
}

/* The token is the revision at which the key was created, as for all who lock by such keys:
 * they hold the lock in the order of these revisions. */
static int read_token(const Pb__TxnResponse *p, int64_t *ret)
{
        const Pb__ResponseOp *op = p->n_responses == 2 ? p->responses[1] : NULL;

        if (!op || op->response_case != PB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE ||
            op->response_range->n_kvs != 1) {
                say("the core's answer is invalid");
                return -EBADMSG;
        }
        *ret = op->response_range->kvs[0]->create_revision;
        return 1;
}

/* Writes this host into the key, if that still exists; then the core no longer deletes the key
 * when an earlier connection of ours ends. Returns 1; 0 if the key is gone; -ENOTCONN if it
 * should be tried again; or another negative errno after reporting it. */
static int mark(struct locking *l, int64_t *ret_token)
{
        Pb__TxnRequest txn = PB__TXN_REQUEST__INIT;
        Pb__Compare c = PB__COMPARE__INIT, *cs[] = {&c};
        Pb__RequestOp op = PB__REQUEST_OP__INIT, look = PB__REQUEST_OP__INIT;
        Pb__RequestOp *ops[] = {&op, &look};
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__RangeRequest range = PB__RANGE_REQUEST__INIT;
        struct json_object *o = lock_holder_value(l->node, l->command);
        struct talk t = {.path = "/etcdserverpb.KV/Txn",
                         .request = &txn.base,
                         .reply_type = &pb__txn_response__descriptor};
        const Pb__TxnResponse *p;
        const char *text;
        int r;

        text = json_object_to_json_string_ext(o, JSON_C_TO_STRING_NOSLASHESCAPE);
        c.key = put.key = range.key = pb_bytes(l->key, strlen(l->key));
        c.target = PB__COMPARE__COMPARE_TARGET__VERSION;
        c.target_union_case = PB__COMPARE__TARGET_UNION_VERSION;
        c.result = PB__COMPARE__COMPARE_RESULT__GREATER;
        put.value = pb_bytes(text, strlen(text));
        put.lease = l->lease;
        op.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op.request_put = &put;
        range.keys_only = true;
        look.request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        look.request_range = &range;
        txn.compare = cs;
        txn.n_compare = 1;
        txn.success = ops;
        txn.n_success = 2;
        r = call(l, &t);
        json_object_put(o);
        p = t.reply;
        if (r == 0)
                r = p->succeeded ? read_token(p, ret_token) : 0;
        if (r > 0) {
                l->created = *ret_token;
                l->marked = p->header ? p->header->revision : 0;
        }
        pb_free(t.reply);
        return r;
}

/* The results of a switchover go to on_news(). */
static void dispatch(struct locking *l)
{
        const struct tenure_event *e;

        (void) !tenure_dispatch(l->tie);
        while ((e = tenure_pop_event(l->tie)))
                own_key_hear(&l->own, e);
}

/* Follows the agent to another endpoint; the tie learns of it even if the bus was restarted
 * since. */
static void hear_agent(struct locking *l)
{
        const char *endpoint = l->tie ? agent_endpoint(l->tie) : "";

        if (!*endpoint || strcmp(endpoint, l->endpoint) == 0)
                return;
        snprintf(l->endpoint, sizeof(l->endpoint), "%s", endpoint);
        l->moved = true;
}

/* Called while we wait for the core: handles signals, and news from the agent. An agent that
 * has moved to another endpoint knows of a replica's death long before our connection, which
 * only waits. */
static int heard(void *arg)
{
        struct locking *l = arg;
        struct pollfd p = {.fd = l->sfd, .events = POLLIN};
        char events[sizeof(struct inotify_event) + 256];
        struct tenancy t;
        int64_t token;

        if (poll(&p, 1, 0) > 0)
                return -EINTR;
        dispatch(l);
        while (read(l->watch, events, sizeof(events)) > 0)
                ;
        hear_agent(l);
        if (keeper_look(l->tenancy, &t) == 0 && (t.lease != l->lease || t.leaving))
                return -ENOLINK;
        if (!l->moved || !l->follow)
                return 0;
        /* Write through the new endpoint before the old connection ends, so that we keep our
         * turn. */
        l->moved = false;
        return mark(l, &token) < 0 ? 0 : -EAGAIN;
}

static int ask(struct locking *l)
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
                /* Our key is gone, because it was passed over. If the place is lost as well,
                 * the page shows that. */
                .again = "mutex: session is expired",
        };
        int r;

        q.name = pb_bytes(l->name, strlen(l->name));
        q.lease = l->lease;
        r = call(l, &t);
        pb_free(t.reply);
        return r;
}

/* No core answers: waits until something happens, or it is time to ask again. */
static int wait_for_core(struct locking *l)
{
        struct pollfd p = {.fd = l->epfd, .events = POLLIN};

        if (!has_place(l))
                return -ENOLINK;
        if (!boot_before(boot_now(), l->until)) {
                say("no lease core has answered in time");
                return -EHOSTUNREACH;
        }
        return poll(&p, 1, ASK_AGAIN_MS) > 0 ? heard(l) : 0;
}

/* Waits until the core reports that the lock is ours, and records that in the key. */
static int take(struct locking *l, int64_t *ret_token)
{
        struct epoll_event e = {.events = EPOLLIN};
        int r;

        l->epfd = epoll_create1(EPOLL_CLOEXEC);
        if (l->epfd < 0 || epoll_ctl(l->epfd, EPOLL_CTL_ADD, l->sfd, &e) < 0 ||
            epoll_ctl(l->epfd, EPOLL_CTL_ADD, l->watch, &e) < 0 ||
            epoll_ctl(l->epfd, EPOLL_CTL_ADD, tenure_get_fd(l->tie), &e) < 0)
                return ctl_fail("cannot wait", -errno, NULL);
        do {
                r = ask(l);
                if (r == 0)
                        r = mark(l, ret_token);
                if (r == -ENOTCONN)
                        r = wait_for_core(l);
        } while (r == 0 || r == -EAGAIN);
        close(l->epfd);
        return r < 0 ? r : 0;
}

/* A second signal ends the wait for the core at once. */
static int hurry(void *arg)
{
        struct locking *l = arg;

        return takes_signal(l) != 0 ? -EINTR : 0;
}

/* Gives the lock back through the core that the agent uses now: a command may have run for
 * days. Another signal ends the wait for that. */
static int give_back(struct locking *l, const char *key)
{
        struct boot_time until = boot_add(boot_now(), GIVE_BACK_FOR);
        Pb__UnlockRequest q = PB__UNLOCK_REQUEST__INIT;
        int r;

        q.key = pb_bytes(key, strlen(key));
        (void) takes_signal(l); /* the command got the same signal, and has ended */
        for (;;) {
                struct talk t = {.path = "/v3lockpb.Lock/Unlock",
                                 .request = &q.base,
                                 .reply_type = &pb__unlock_response__descriptor,
                                 .break_fd = l->sfd,
                                 .on_break = hurry,
                                 .break_arg = l};
                struct pollfd p = {.fd = l->sfd, .events = POLLIN};

                if (l->tie)
                        dispatch(l);
                hear_agent(l);
                r = call(l, &t);
                pb_free(t.reply);
                if (r != -ENOTCONN && r != -EINTR)
                        return r;
                if (!has_place(l))
                        return r; /* and with the place the lock is lost */
                if (r == -ENOTCONN && boot_before(boot_now(), until) &&
                    (poll(&p, 1, ASK_AGAIN_MS) <= 0 || hurry(l) == 0))
                        continue;
                say("the %s '%s' could not be given back: no lease core answers; try tenurectl "
                    "unlock",
                    l->ran ? "lock" : "request for the lock", l->name);
                return r;
        }
}

/* Calls lock_holder_read(), and returns as it does. */
static int read_holder(const struct locking *l, const char *own, bool quiet,
                       struct lock_holder *ret)
{
        struct core_options core = l->ctl->core;

        if (l->follow)
                core.endpoints = l->endpoint;
        return lock_holder_read(&core, l->name, own, quiet, ret);
}

/* Reports why there is no lock; returns an exit status. */
static int without(struct locking *l, int r)
{
        struct lock_holder holder;

        if (r == -EINTR && is_asked_to_end(l))
                return EXIT_OURS;
        if (r == -ENOLINK) {
                say("this host lost its place while it waited");
                return EXIT_PLACE_LOST;
        }
        if (r != -ETIMEDOUT)
                return EXIT_OURS;
        if (read_holder(l, "", true, &holder) == 0)
                say("the lock '%s' is held by %s", l->name, holder.text);
        else
                say("the lock '%s' is held by somebody else", l->name);
        return (int) l->ctl->o.conflict;
}

/* ---- switchovers ---- */

static void on_news(struct handover *h, enum handover_news news)
{
        struct locking *l = container_of(h, struct locking, handover);

        switch (news) {
        case HANDOVER_NONE:
                l->news = NEWS_NONE;
                break;
        case HANDOVER_ASKED:
                l->news = NEWS_ASKED;
                if (!l->runs)
                        handover_go(h);
                break;
        case HANDOVER_DONE:
                l->news = NEWS_DONE;
                keeper_say("tenurectl: the lock '%s' was handed over to %s.", l->name,
                           h->request.to);
                break;
        case HANDOVER_KEPT:
                l->news = NEWS_KEPT;
                keeper_say("tenurectl: %s no longer waits for the lock '%s'; it stays here.",
                           h->request.to, l->name);
                break;
        case HANDOVER_LOST:
                l->news = NEWS_LOST;
                break;
        }
}

/* Called while the command runs. */
static bool on_tie(void *arg, struct boot_time *ret)
{
        struct locking *l = arg;
        bool was_asked = l->news == NEWS_ASKED;

        bool was_gone = l->own.gone;

        dispatch(l);
        if (l->own.gone && !was_gone) {
                *ret = boot_now(); /* whoever is next in line may have begun */
                keeper_say(
                        "tenurectl: the key of the lock '%s' was deleted; killing the command.",
                        l->name);
                return true;
        }
        if (was_asked || l->news != NEWS_ASKED)
                return false;
        *ret = l->handover.stop_by;
        keeper_say("tenurectl: the lock '%s' is to be handed over to %s; ending the command.",
                   l->name, l->handover.request.to);
        return true;
}

/* Waits until the news are no longer @now, and until @until at most; a signal or the loss of
 * the place ends the wait. */
static void wait_for_news(struct locking *l, int now, struct boot_time until)
{
        struct pollfd p[] = {{.fd = tenure_get_fd(l->tie), .events = POLLIN},
                             {.fd = l->sfd, .events = POLLIN}};

        for (dispatch(l); (int) l->news == now && !is_asked_to_end(l); dispatch(l)) {
                nsec_t left = boot_diff(until, boot_now());

                if (left <= 0 || !still_held(l))
                        return;
                (void) !poll(p, 2,
                             (int) min_of((left + NSEC_PER_MSEC - 1) / NSEC_PER_MSEC,
                                          (nsec_t) LOOK_AT_PLACE_MS));
        }
}

/* Watches for switchover requests from now on, and checks whether there is one already. */
static void follow_requests(struct locking *l)
{
        struct switchover_at own = {
                .key = l->key, .len = strlen(l->key), .created = l->created};

        l->news = NEWS_NOT_YET;
        handover_start(&l->handover, l->tie, l->name, &own, on_news);
        wait_for_news(l, NEWS_NOT_YET, boot_add(boot_now(), LOOK_MAX));
}

/* Hands the lock over; nothing of the command runs any more. If the target is gone, we keep the
 * lock, unless the next request is there already. */
static void hand_over(struct locking *l)
{
        handover_go(&l->handover);
        wait_for_news(l, NEWS_ASKED, BOOT_TIME_NEVER);
}

/* Runs the command with the lock. Returns an exit status. */
static int run(struct locking *l, char **argv, int64_t token)
{
        struct keeper_job job = {.tenancy_fd = l->tenancy,
                                 .lease = l->lease,
                                 .argv = argv,
                                 .mask = &l->mask,
                                 .sfd = l->sfd,
                                 .in_command = tie_restore_environment,
                                 .fd = tenure_get_fd(l->tie),
                                 .on_fd = on_tie,
                                 .arg = l};
        struct keeper_end end;
        int r;

        l->ran = true;
        if (signalfd(l->sfd, &l->signals, 0) < 0) /* now including SIGCHLD */
                return ctl_fail("cannot wait for signals", -errno, NULL);
        r = lock_env_set(l->key, token);
        if (r < 0)
                return ctl_fail("cannot pass the lock to the command", r, NULL);
        own_key_watch(&l->own, l->tie, l->key, l->created, l->marked);
        do {
                l->runs = true;
                r = keeper_run(&job, &end);
                l->runs = false;
                if (r == -ECHILD)
                        return say("the process that supervised the command was killed, and "
                                   "the command with it");
                if (r < 0)
                        return ctl_fail("cannot run the command", r, NULL);
                if (r == KEEPER_E_NOT_RUN)
                        return EXIT_OURS;
                if (end.lost || l->own.gone)
                        return EXIT_PLACE_LOST;
                if (end.asked)
                        hand_over(l);
        } while (end.asked && l->news == NEWS_KEPT && !l->own.gone && still_held(l));
        if (end.asked)
                return EXIT_PLACE_LOST;
        if (WIFSIGNALED(end.status))
                l->ended_by = WTERMSIG(end.status);
        return WIFEXITED(end.status) ? WEXITSTATUS(end.status) : EXIT_OURS;
}

/* The lock is ours, and no command has run with it yet. The holder before us may have been
 * asked to hand it over to another node. Returns as run(), or -EAGAIN if the lock was handed
 * over. */
static int run_unless_asked(struct locking *l, char **argv, int64_t token)
{
        follow_requests(l);
        if (l->news == NEWS_ASKED)
                hand_over(l);
        if (l->news == NEWS_DONE || l->news == NEWS_LOST)
                return -EAGAIN;
        if (l->ended_by)
                return EXIT_OURS;
        /* Taking the lock may have taken long; and a handover may still be requested. */
        return still_held(l) && l->news != NEWS_ASKED ? run(l, argv, token)
                                                      : without(l, -ENOLINK);
}

/* The first request opens the connection, which must exist by the time it matters. */
static int open_tie(struct locking *l)
{
        cleanup_(buf_fini) struct buf key = {0};
        struct tenure_range q = {0};
        int r = tie_new(l->ctl, &l->tie);

        switchover_key(l->name, &key);
        q.key = buf_head(&key);
        q.key_len = buf_len(&key);
        if (r == 0 && (buf_error(&key) < 0 || tenure_get(l->tie, &q, NULL) < 0))
                r = ctl_fail("cannot ask the core", -ENOMEM, NULL);
        return r;
}

/* Called in the host's turn. If the place is lost, the lock is lost with it. */
static int lock(struct locking *l, char **argv)
{
        int64_t token = 0;
        char key[1024];
        int r;

        key_of(l, key);
        l->key = key;
        l->command = argv[0];
        l->began = boot_now(); /* the host's turn may have taken long */
        do {
                r = take(l, &token);
                if (r < 0) {
                        if (r == -EINTR)
                                (void) is_asked_to_end(l);
                        /* We may have got the lock: the answer may have been on its way. */
                        if (r != -ENOLINK && l->reached)
                                (void) !give_back(l, key);
                        /* A replica that dies may end the lease before the agent reports it. */
                        if (r != -EINTR && r != -ETIMEDOUT && !has_place(l))
                                r = -ENOLINK;
                        return without(l, r);
                }
                r = run_unless_asked(l, argv, token);
                handover_stop(&l->handover);
        } while (r == -EAGAIN);
        if (l->news != NEWS_DONE && !l->own.gone && has_place(l))
                (void) !give_back(l, key);
        return r;
}

static int begin(struct locking *l)
{
        struct tenancy t;
        sigset_t waiting;
        int r;

        l->began = boot_now();
        if (read_agent(l) < 0 || open_tenancy(l) < 0)
                return -1;
        r = keeper_look(l->tenancy, &t);
        if (r != -EXDEV && (r < 0 || !keeper_may_begin(&t, t.lease, boot_now()))) {
                say("this host does not hold its place now");
                return EXIT_PLACE_LOST;
        }
        if (r == -EXDEV || boot_diff(t.deadline, boot_now()) > t.ttl)
                return say("the agent uses another clock than this program; run the program in "
                           "the agent's time namespace");
        l->turn = host_lock_open(l->ctl, l->name);
        if (l->turn == -1)
                return -1;
        l->lease = t.lease;
        if (l->follow && !*l->endpoint)
                return say("the agent cannot reach a core");
        keeper_take_signals(&l->signals, &l->mask);
        /* Until our command runs, SIGCHLD can only come from children that this process had
         * before exec(). */
        waiting = l->signals;
        sigdelset(&waiting, SIGCHLD);
        l->sfd = signalfd(-1, &waiting, SFD_CLOEXEC);
        return l->sfd < 0 ? ctl_fail("cannot wait for signals", -errno, NULL) : 0;
}

static void done(struct locking *l)
{
        handover_stop(&l->handover);
        tenure_free(l->tie);
        if (l->sfd >= 0)
                close(l->sfd);
        if (l->watch >= 0)
                close(l->watch);
        if (l->tenancy >= 0)
                close(l->tenancy);
        if (l->turn >= 0)
                close(l->turn);
}

/* Ends by the signal that ended the command: a service manager does not count a command as
 * failed that ended by the signal that asked it to stop. */
static void end_by(int signo)
{
        sigset_t none;

        setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}); /* the command left its own */
        signal(signo, SIG_DFL);
        sigemptyset(&none);
        sigprocmask(SIG_SETMASK, &none, NULL);
        raise(signo);
}

/* Returns 0, or -1 after printing why. @new: the name must have no slash: keys db/main/LEASE
 * would count, as in etcd, for a lock db, too, which would wait for this one. */
static int check_name(const char *name, bool new)
{
        const char *problem = lock_name_problem(name);

        if (!problem && new &&strchr(name, '/'))
                problem = "has no slash: locks of names such as db and db/main would wait for "
                          "each other";
        return problem ? say("the name of a lock %s; '%s' is not one", problem, name) : 0;
}

static int open_locking(struct locking *l, struct ctl *c, const char *name)
{
        *l = (struct locking){.ctl = c,
                              .name = name,
                              .follow = !c->core.given,
                              .sfd = -1,
                              .turn = -1,
                              .tenancy = -1,
                              .watch = -1};
        l->until = c->o.nonblock   ? boot_now()
                   : c->o.wait < 0 ? BOOT_TIME_NEVER
                                   : boot_add(boot_now(), c->o.wait);
        return begin(l);
}

int verb_lock(struct ctl *c, int argc unused_, char **argv)
{
        struct locking l;
        int r;

        if (check_name(argv[0], true) < 0)
                return -1;
        if (c->o.nonblock && c->o.wait >= 0)
                return say("lock takes --nonblock or --wait, not both");
        r = open_locking(&l, c, argv[0]);
        if (r == 0) {
                r = host_lock(l.turn, l.lease, argv[0], l.sfd, l.until);
                if (r < 0 && r != -EINTR && r != -ETIMEDOUT)
                        r = ctl_fail("cannot wait for the turn of this host", r, NULL);
                else if (r < 0)
                        r = without(&l, r);
                else if (open_tie(&l) < 0)
                        r = -1;
                else
                        r = lock(&l, argv + 1);
        }
        done(&l);
        if (l.ended_by) {
                end_by(l.ended_by);
                return 128 + l.ended_by; /* no signal ends process 1 of a container */
        }
        return r;
}

/* In this host's turn: no command on this host runs with the lock. */
static int unlock(struct locking *l)
{
        struct lock_holder holder;
        char key[LOCK_KEY_MAX];
        int r;

        key_of(l, key);
        r = read_holder(l, key, false, &holder);
        if (r == LOCK_HOLDER_E_NOBODY) {
                say("nobody holds the lock '%s'", l->name);
                return EXIT_NOT_SO;
        }
        if (r == 0 && !holder.waits) {
                say("the lock '%s' is held by %s", l->name, holder.text);
                return EXIT_NOT_MINE;
        }
        return r < 0 ? r : give_back(l, key);
}

int verb_unlock(struct ctl *c, int argc unused_, char **argv)
{
        struct locking l;
        int r;

        if (check_name(argv[0], false) < 0)
                return -1;
        r = open_locking(&l, c, argv[0]);
        if (r == 0) {
                sigprocmask(SIG_SETMASK, &l.mask, NULL);
                r = host_lock(l.turn, l.lease, argv[0], -1, boot_now());
                if (r == -ETIMEDOUT) {
                        say("a command on this host has the lock '%s'", argv[0]);
                        r = EXIT_NOT_MINE;
                } else if (r < 0) {
                        r = ctl_fail("cannot wait for the turn of this host", r, NULL);
                } else {
                        r = unlock(&l);
                }
        }
        done(&l);
        return r;
}
