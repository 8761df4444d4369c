/*
 * tenurectl work GROUP --tasks=... -- COMMAND: runs a command for each task of the group that
 * this member has, and makes sure that the command has ended before another member runs it.
 *
 * The member has a lease of its own, not the host's: the host's lease would outlive this
 * process, and no other member would get its tasks. Each command has a keeper (keeper.h), which
 * ends the command before the lease ends, whatever happens to us: it follows a page like the
 * agent's, which we write.
 */
#include <bsd/sys/queue.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/secret.h"
#include "keeper.h"
#include "loop/clock.h"
#include "member/node_record.h"
#include "member/rendezvous.h"
#include "text.h"
#include "tie.h"
#include "verbs.h"
#include "work.h"

/* A command that has ended is run again after this pause, which doubles each time; after a run
 * of at least RUNS_WELL it is short again. */
#define PAUSE (100 * NSEC_PER_MSEC)
#define PAUSE_MOST (30 * NSEC_PER_SEC)
#define RUNS_WELL (10 * NSEC_PER_SEC)
/* The time to end one command among all those that end at the same moment. */
#define END_EACH (3 * NSEC_PER_MSEC)
/* How long the core may take to confirm that we have left. */
#define LEAVE_WITHIN (2 * NSEC_PER_SEC)

/* A task that this member has. */
struct job {
        LIST_ENTRY(job) entry;
        char *task; /* owned */
        int64_t token;
        struct kept kept; /* pid 0: nothing runs */
        bool ends;        /* it has to end */
        struct boot_time kill_at, began;
        struct boot_time again_at; /* while nothing runs */
        nsec_t pause;
};

struct working {
        const char *group;
        char **argv;
        char name[NODE_NAME_MAX + 1]; /* name of the session and of the member */
        nsec_t ttl, grace;
        struct tenure *t;
        struct tenure_work *work;
        LIST_HEAD(, job) jobs;
        size_t n_jobs;
        int page; /* tells the keepers until when we hold the lease */
        struct tenancy tenancy;
        sigset_t signals, mask;
        int sfd;
        bool on_terminal; /* we had a terminal at the start */
        bool leaving, left;
        struct boot_time leave_by; /* until then we wait for the lease to be given back; after
                                      that it expires */
        int failed;                /* an exit status */
};

/* ---- the page ---- */

static int open_page(struct working *w)
{
        uint8_t bytes[TENANCY_BYTES];

        w->page = memfd_create("tenancy", MFD_CLOEXEC);
        tenancy_write(&w->tenancy, bytes);
        if (w->page < 0 || pwrite(w->page, bytes, sizeof(bytes), 0) != sizeof(bytes))
                return ctl_fail(
                        "cannot share the lease's deadline with the commands' supervisors",
                        -errno, NULL);
        return 0;
}

/* The library's deadline, which is in CLOCK_BOOTTIME, in our own clock; if inexact, too early.
 */
static struct boot_time deadline(const struct working *w, struct boot_time now)
{
        int64_t usec = (int64_t) tenure_deadline(w->t) - boot_usec(now);

        return boot_add(now, usec * NSEC_PER_USEC);
}

static void publish(struct working *w)
{
        struct boot_time now = boot_now();
        struct tenancy t = {.lease = tenure_lease(w->t), .ttl = w->ttl};
        uint8_t bytes[TENANCY_BYTES];
        nsec_t later = 0;
        struct job *j;

        if (t.lease != 0) {
                t.deadline = boot_add(deadline(w, now),
                                      -min_of((nsec_t) w->n_jobs * END_EACH, w->ttl / 4));
                later = boot_diff(t.deadline, w->tenancy.deadline);
        }
        /* The conversion gives a slightly different value each time, and each task makes the
         * deadline earlier. All keepers read each new page, so small changes are not
         * published. */
        if (t.lease == w->tenancy.lease && later < NSEC_PER_MSEC && later > -w->ttl / 128)
                return;
        tenancy_write(&t, bytes);
        if (pwrite(w->page, bytes, sizeof(bytes), 0) != sizeof(bytes))
                return; /* the keepers end everything unless something newer is written */
        if (w->tenancy.lease != 0 && t.lease != w->tenancy.lease)
                LIST_FOREACH (j, &w->jobs, entry)
                        if (j->kept.pid > 0)
                                keeper_send(&j->kept, 0);
        w->tenancy = t;
}

/* ---- a task's command ---- */

static void job_again(struct job *j, struct boot_time now)
{
        if (boot_diff(now, j->began) >= RUNS_WELL)
                j->pause = 0;
        j->pause = min_of(max_of(2 * j->pause, PAUSE), PAUSE_MOST);
        j->again_at = boot_add(now, j->pause);
}

static void job_start(struct working *w, struct job *j, struct boot_time now)
{
        const struct keeper_job k = {.tenancy_fd = w->page,
                                     .lease = w->tenancy.lease,
                                     .argv = w->argv,
                                     .mask = &w->mask,
                                     .sfd = w->sfd,
                                     .in_command = tie_restore_environment,
                                     .one_of_many = true};
        char token[24];
        int r;

        j->began = now;
        if (!tenure_task_is_held(w->work, j->task) ||
            !keeper_may_begin(&w->tenancy, w->tenancy.lease, now)) {
                j->again_at = boot_add(now, PAUSE); /* the task ends, or a renewal comes */
                return;
        }
        snprintf(token, sizeof(token), "%" PRId64, j->token);
        setenv("TENURE_GROUP", w->group, 1);
        setenv("TENURE_TASK", j->task, 1);
        setenv("TENURE_TOKEN", token, 1);
        r = keeper_start(&k, &j->kept);
        if (r == 0)
                return;
        keeper_say("tenurectl: cannot run the command for task %s: %s.", j->task, strerror(-r));
        job_again(j, now);
}

static void job_done(struct working *w, struct job *j)
{
        (void) !tenure_task_ended(w->work, j->task);
        LIST_REMOVE(j, entry);
        w->n_jobs--;
        free(j->task);
        free(j);
}

static struct job *find(struct working *w, const char *task)
{
        struct job *j;

        LIST_FOREACH (j, &w->jobs, entry)
                if (strcmp(j->task, task) == 0)
                        return j;
        return NULL;
}

static int on_begin(struct working *w, const struct tenure_event *e)
{
        struct job *j = calloc(1, sizeof(*j));

        if (j)
                j->task = strdup(e->task);
        if (!j || !j->task) {
                free(j);
                return -ENOMEM;
        }
        j->token = e->revision;
        LIST_INSERT_HEAD(&w->jobs, j, entry);
        w->n_jobs++;
        job_start(w, j, boot_now());
        return 0;
}

static void on_end(struct working *w, const char *task)
{
        struct job *j = find(w, task);

        if (!j)
                return;
        j->ends = true;
        if (j->kept.pid == 0)
                return job_done(w, j);
        j->kill_at = boot_add(boot_now(), w->grace);
        keeper_send(&j->kept, SIGTERM);
}

static void leave(struct working *w)
{
        struct job *j;

        if (w->leaving) { /* a second signal */
                LIST_FOREACH (j, &w->jobs, entry)
                        if (j->kept.pid > 0)
                                keeper_send(&j->kept, SIGKILL);
                w->left |= w->n_jobs == 0; /* the lease ends by itself */
                return;
        }
        w->leaving = true;
        tenure_work_leave(w->work); /* the handle is valid until TENURE_WORK_LEFT */
}

/* ---- commands that have ended ---- */

static void say_ended(const struct job *j, int status)
{
        char how[64];

        if (WIFSIGNALED(status))
                snprintf(how, sizeof(how), "by SIG%s", sigabbrev_np(WTERMSIG(status)));
        else
                snprintf(how, sizeof(how), "with status %d", WEXITSTATUS(status));
        keeper_say("tenurectl: the command for task %s ended %s; it is run again in %.1f s.",
                   j->task, how, (double) j->pause / 1e9);
}

/* What may be better in a moment: memory, processes or descriptors that somebody else has, a
 * program that is just being written. */
static bool is_passing(int why)
{
        return why == EAGAIN || why == ENOMEM || why == ENFILE || why == EMFILE ||
               why == ETXTBSY || why == EIO;
}

/* Another member may be able to run it, so this one does not keep the tasks. */
static void give_up(struct working *w, int why)
{
        if (w->failed != 0 || w->leaving)
                return;
        keeper_say("tenurectl: cannot run %s: %s; leaving the group.", w->argv[0],
                   strerror(why));
        w->failed = exit_not_run(why);
        leave(w);
}

static void job_ended(struct working *w, struct job *j, const struct keeper_end *end)
{
        struct boot_time now = boot_now();

        if (end->not_run != 0 && !is_passing(end->not_run))
                give_up(w, end->not_run);
        if (j->ends)
                return job_done(w, j);
        /* Wait: a renewal came at the last moment, or will not come; or the end of the task is
         * on its way. */
        if (end->lost || w->leaving) {
                j->again_at = boot_add(now, PAUSE);
                return;
        }
        job_again(j, now);
        if (end->not_run != 0)
                keeper_say("tenurectl: cannot run %s for task %s: %s; trying again in %.1f s.",
                           w->argv[0], j->task, strerror(end->not_run),
                           (double) j->pause / 1e9);
        else
                say_ended(j, end->status);
}

/* A keeper was killed: the remains of its command cannot be distinguished from the other
 * commands, so all are ended. */
static void end_all(struct working *w, const struct kept *first)
{
        struct kept *kept = calloc(w->n_jobs + 1, sizeof(*kept));
        struct keeper_end none = {.lost = true};
        struct job *j, *next;
        size_t n = 0;

        keeper_say("tenurectl: a process that supervised a command was killed; ending all "
                   "commands and starting them again.");
        if (kept)
                kept[n++] = *first;
        LIST_FOREACH (j, &w->jobs, entry)
                if (kept && j->kept.pid > 0)
                        kept[n++] = j->kept;
        keeper_end_all(kept, n);
        free(kept);
        LIST_FOREACH_SAFE (j, &w->jobs, entry, next)
                if (j->kept.pid > 0) {
                        close(j->kept.fd);
                        j->kept = (struct kept){.fd = -1};
                        job_ended(w, j, &none);
                }
}

static void on_child(struct working *w, pid_t pid, int status)
{
        struct keeper_end end;
        struct kept kept;
        struct job *j;

        LIST_FOREACH (j, &w->jobs, entry)
                if (j->kept.pid == pid)
                        break;
        if (!j) /* an orphan of a keeper that was killed */
                return;
        if (WIFSTOPPED(status)) { /* its command would run beyond the deadline */
                kill(pid, SIGCONT);
                return;
        }
        kept = j->kept;
        if (keeper_ended(&j->kept, &end))
                return job_ended(w, j, &end);
        /* The keeper did not start the command, and has printed why; or it was killed. */
        end = (struct keeper_end){.lost = WIFSIGNALED(status), .status = status};
        job_ended(w, j, &end);
        if (WIFSIGNALED(status))
                end_all(w, &kept);
}

/* ---- input ---- */

static bool has_terminal(void)
{
        int fd = open("/dev/tty", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

        if (fd >= 0)
                close(fd);
        return fd >= 0;
}

/* Whether the signal means that our terminal is gone, which ends us. The kernel sends it, or
 * the shell, which gets it first. */
static bool is_hangup(const struct working *w, const struct signalfd_siginfo *si)
{
        return si->ssi_signo == SIGHUP &&
               (si->ssi_code == SI_KERNEL || (w->on_terminal && !has_terminal()));
}

/* Whether the signal ends us. The last four are limits of our own time, which a process that is
 * run again would not end. */
static bool is_end(const struct working *w, const struct signalfd_siginfo *si)
{
        switch ((int) si->ssi_signo) {
        case SIGTERM:
        case SIGINT:
        case SIGQUIT:
        case SIGALRM:
        case SIGVTALRM:
        case SIGPROF:
        case SIGXCPU:
                return true;
        default:
                return is_hangup(w, si);
        }
}

static void on_signals(struct working *w)
{
        struct signalfd_siginfo si;
        int status;
        pid_t pid;
        struct job *j;

        while (read(w->sfd, &si, sizeof(si)) == sizeof(si)) {
                int signo = (int) si.ssi_signo;

                if (is_end(w, &si))
                        leave(w);
                else if (signo != SIGCHLD)
                        LIST_FOREACH (j, &w->jobs, entry)
                                if (j->kept.pid > 0)
                                        keeper_send(&j->kept, signo);
        }
        while ((pid = waitpid(-1, &status, WNOHANG | WUNTRACED)) > 0)
                on_child(w, pid, status);
}

static void on_left(struct working *w, const struct tenure_event *e)
{
        if (e->error < 0) {
                keeper_say("tenurectl: the group '%s' cannot be joined: %s.", w->group,
                           e->reason);
                w->failed = EXIT_FAILED;
                return leave(w);
        }
        w->left = true;
        w->work = NULL;
        w->leave_by = boot_add(boot_now(), LEAVE_WITHIN);
        if (tenure_lease(w->t) == 0)
                w->leave_by = boot_now();
        (void) !tenure_leave(w->t);
}

static int on_event(struct working *w, const struct tenure_event *e)
{
        switch (e->type) {
        case TENURE_TASK_BEGIN:
                return on_begin(w, e);
        case TENURE_TASK_END:
                on_end(w, e->task);
                return 0;
        case TENURE_WORK_LEFT:
                on_left(w, e);
                return 0;
        case TENURE_LOST:
                if (w->left)
                        w->leave_by = boot_now();
                else
                        keeper_say("tenurectl: %s%s.",
                                   e->error == -EEXIST
                                           ? ""
                                           : "the lease is lost; asking for another one: ",
                                   e->reason);
                return 0;
        default:
                return 0;
        }
}

/* ---- time passes ---- */

static struct boot_time jobs_run(struct working *w, struct boot_time now)
{
        struct boot_time next = w->left ? w->leave_by : BOOT_TIME_NEVER;
        struct job *j, *after;

        LIST_FOREACH_SAFE (j, &w->jobs, entry, after) {
                if (j->kept.pid == 0 && !boot_before(now, j->again_at))
                        job_start(w, j, now);
                if (j->kept.pid == 0) {
                        next = boot_min(next, j->again_at);
                } else if (j->ends && !boot_before(now, j->kill_at)) {
                        keeper_send(&j->kept, SIGKILL);
                        j->kill_at = boot_add(now, NSEC_PER_SEC);
                }
                if (j->kept.pid > 0 && j->ends)
                        next = boot_min(next, j->kill_at);
        }
        return next;
}

static int turn(struct working *w)
{
        struct pollfd p[] = {{.fd = tenure_get_fd(w->t), .events = POLLIN},
                             {.fd = w->sfd, .events = POLLIN}};
        struct boot_time now = boot_now(), next = jobs_run(w, now);
        nsec_t left = boot_diff(next, now);
        const struct tenure_event *e;
        int timeout = tenure_get_timeout(w->t), r;

        if (next.ns != BOOT_TIME_NEVER.ns && timeout < 0)
                timeout = (int) min_of(max_of(left, INT64_C(0)) / NSEC_PER_MSEC + 1,
                                       (nsec_t) INT_MAX);
        if (poll(p, ARRAY_SIZE(p), timeout) < 0 && errno != EINTR)
                return ctl_fail("cannot wait", -errno, NULL);
        r = tenure_dispatch(w->t);
        publish(w);
        on_signals(w);
        while (r == 0 && (e = tenure_pop_event(w->t)))
                r = on_event(w, e);
        publish(w); /* a loss counts once its event has been taken */
        if (r < 0)
                say("%s", *tenure_error(w->t) ? tenure_error(w->t) : strerror(-r));
        return r;
}

/* ---- the beginning ---- */

/* Sets the session's name: the group, a colon, and the given name or the host's, so that a host
 * in two groups has two sessions. Names have no colon, so that the last one ends the group's
 * name, which may have others. */
static int read_name(struct working *w, const char *given)
{
        char host[HOST_NAME_MAX + 1] = "";

        if (gethostname(host, sizeof(host) - 1) < 0)
                return ctl_fail("cannot read this host's name", -errno, NULL);
        given = given ? given : host;
        if (strchr(given, ':'))
                return say("a member's name, --name, has no colon; '%s' has", given);
        if (snprintf(w->name, sizeof(w->name), "%s:%s", w->group, given) >=
            (int) sizeof(w->name))
                return ctl_fail("the group's and the member's name are too long together",
                                -ENAMETOOLONG, NULL);
        return 0;
}

static int begin(struct working *w, const struct options *o, const struct work_names *names)
{
        struct tenure_work_options join = {
                .tasks = names->names, .n_tasks = names->n, .weight = (unsigned) o->weight};
        int r = read_name(w, o->name);

        w->ttl = o->ttl;
        w->grace = o->grace;
        if (r < 0)
                return r;
        r = tenure_hold_own(w->t, (uint64_t) (w->ttl / NSEC_PER_MSEC), w->name);
        if (r == 0)
                r = tenure_work_join(w->t, w->group, &join, &w->work);
        if (r == 0)
                r = tenure_start(w->t);
        return r < 0 ? tie_fail(w->t) : 0;
}

static int listen_to_signals(struct working *w)
{
        w->on_terminal = has_terminal();
        keeper_take_signals(&w->signals, &w->mask);
        w->sfd = signalfd(-1, &w->signals, SFD_CLOEXEC | SFD_NONBLOCK);
        return w->sfd < 0 ? ctl_fail("cannot wait for signals", -errno, NULL) : 0;
}

static int work(struct working *w, const struct options *o)
{
        struct work_names names = {0};
        struct job *j, *next;
        /* The list may be a FIFO; until signals are blocked, they end us while we wait for it.
         */
        int r = work_names_parse(&names, o->tasks);

        if (r == 0)
                r = listen_to_signals(w);
        keeper_begin_many();
        if (r == 0)
                r = open_page(w);
        if (r == 0)
                r = begin(w, o, &names);
        work_names_fini(&names);
        while (r == 0 && !(w->left && !boot_before(boot_now(), w->leave_by)))
                r = turn(w);
        /* When their sockets are closed, the keepers end, with everything that they keep. */
        LIST_FOREACH_SAFE (j, &w->jobs, entry, next) {
                if (j->kept.pid > 0) {
                        close(j->kept.fd);
                        keeper_wait(&j->kept);
                }
                free(j->task);
                free(j);
        }
        return r < 0 ? -1 : w->failed;
}

static int list(struct ctl *c, struct tenure *t, const char *group)
{
        const char *cluster = c->o.cluster ? c->o.cluster : "default";
        struct json_object *o = NULL;
        int r;

        if (!node_name_is_valid(group))
                return say("a group's name has 1 to 255 letters, digits and . _ - :, without a "
                           "leading dot; '%s' is not one",
                           group);
        if (tenure_start(t) < 0)
                return tie_fail(t);
        if (!c->o.cluster && !c->core.given) { /* the agent knows both */
                if (ctl_open_bus(c) < 0 || ctl_get_all(c, ROOT, MANAGER, &o) < 0)
                        return -1;
                cluster = ctl_text(o, "Cluster");
        }
        r = work_list(c, t, cluster, group);
        json_object_put(o);
        return r;
}

int verb_work(struct ctl *c, int argc, char **argv)
{
        struct working w = {.sfd = -1, .page = -1, .group = argv[0], .argv = argv + 1};
        int r;

        if ((argc > 1) != (c->o.tasks != NULL))
                return say("work needs --tasks=TASKS GROUP -- COMMAND, or GROUP alone to list "
                           "its tasks");
        if (tie_set_bus(c->address) < 0)
                return -1;
        r = tenure_new(&w.t);
        if (r < 0)
                return ctl_fail("cannot begin", r, NULL);
        r = tie_set(w.t, &c->core);
        if (r == 0 && tenure_set_cluster(w.t, c->o.cluster) < 0)
                r = tie_fail(w.t);
        if (r == 0)
                r = argc > 1 ? work(&w, &c->o) : list(c, w.t, w.group);
        tenure_free(w.t);
        if (w.sfd >= 0)
                close(w.sfd);
        if (w.page >= 0)
                close(w.page);
        return r;
}
