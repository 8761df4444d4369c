#include "keeper.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/utf8.h"
#include "ctl.h"
#include "deadly.h"
#include "loop/clock.h"
#include "offspring.h"

/* A process that was killed and has not ended is killed again, and reported if it takes long.
 */
#define KILL_AGAIN (20 * NSEC_PER_MSEC)
#define KILL_LOG_AFTER NSEC_PER_SEC
/* ... at intervals that double: a thousand keepers must not keep the processors from the
 * processes that they have killed. Without a control group, processes may fork meanwhile, so
 * they are followed more often. */
#define KILL_AGAIN_MOST NSEC_PER_SEC
#define FOLLOW_AGAIN_MOST (160 * NSEC_PER_MSEC)
/* A page that is read while it is written is consistent a moment later. */
#define LOOK_AGAIN 50
#define EXIT_NO_KEEPER 125

/* From tenurectl to its keeper. */
struct word {
        int signo;               /* for the command */
        struct boot_time end_by; /* 0: only passes the signal on */
};

struct keeper {
        const struct keeper_job *job;
        struct offspring offspring;
        struct tenancy tenancy;
        pid_t child; /* the command; 0: it has ended */
        int parent;  /* tenurectl: a socket to receive from and send to */
        int sfd, inotify, timer;
        int not_run[2];          /* a pipe: the errno of a command that cannot be executed */
        bool ending;             /* the command is being ended because of the place */
        struct boot_time end_by; /* when tenurectl wants it ended; 0: it does not */
        bool killing;            /* everything left of the command is being killed */
        struct boot_time killing_at; /* since when this has gone on; 0: not yet */
        nsec_t again;
        bool late_logged;
        struct keeper_end end;
};

/* Whether the instants are those of another time namespace, which may differ by any amount,
 * even by less than a TTL. */
static bool is_other_clock(const struct tenancy *t)
{
        static uint64_t own;

        if (own == 0)
                own = boot_namespace();
        return t->time_ns != 0 && t->time_ns != own;
}

int keeper_look(int tenancy_fd, struct tenancy *ret)
{
        uint8_t bytes[TENANCY_BYTES];
        int r = -EBADMSG;

        for (unsigned i = 0; i < LOOK_AGAIN && r < 0; i++) {
                ssize_t n = pread(tenancy_fd, bytes, sizeof(bytes), 0);

                if (n < 0)
                        return -errno;
                r = tenancy_read(ret, bytes, (size_t) n);
                if (r < 0)
                        sched_yield();
        }
        return r == 0 && is_other_clock(ret) ? -EXDEV : r;
}

static struct boot_time term_at(const struct tenancy *t)
{
        return boot_add(t->deadline, -t->ttl / 8);
}

static struct boot_time kill_at(const struct tenancy *t)
{
        return boot_add(t->deadline, -t->ttl / 32);
}

bool keeper_may_begin(const struct tenancy *t, int64_t lease, struct boot_time now)
{
        return t->lease == lease && lease != 0 && !t->leaving && boot_before(now, term_at(t));
}

/* ---- the keeper's process ---- */

/* What keeper_take_signals() changes, and the actions before that. */
static struct {
        int signo;
        void (*handler)(int);
        bool changed;
        struct sigaction was;
} actions[] = {{.signo = SIGPIPE, .handler = SIG_IGN},
               {.signo = SIGXFSZ, .handler = SIG_IGN},
               {.signo = SIGCHLD, .handler = SIG_DFL}};

static void take(sigset_t *set, int signo)
{
        struct sigaction was;

        if (sigaction(signo, NULL, &was) == 0 && was.sa_handler != SIG_IGN)
                sigaddset(set, signo);
}

void keeper_take_signals(sigset_t *ret, sigset_t *ret_mask)
{
        static const int asked[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT};

        for (size_t i = 0; i < ARRAY_SIZE(actions); i++) {
                const struct sigaction sa = {.sa_handler = actions[i].handler};

                actions[i].changed = sigaction(actions[i].signo, &sa, &actions[i].was) == 0;
        }
        sigemptyset(ret);
        sigaddset(ret, SIGCHLD);
        for (size_t i = 0; i < ARRAY_SIZE(asked); i++)
                take(ret, asked[i]);
        for (size_t i = 0; i < ARRAY_SIZE(deadly_signals); i++)
                take(ret, deadly_signals[i]);
        for (int signo = SIGRTMIN; signo <= SIGRTMAX; signo++)
                take(ret, signo);
        sigprocmask(SIG_BLOCK, ret, ret_mask);
}

void keeper_give_signals_back(const sigset_t *mask)
{
        for (size_t i = 0; i < ARRAY_SIZE(actions); i++)
                if (actions[i].changed)
                        sigaction(actions[i].signo, &actions[i].was, NULL);
        sigprocmask(SIG_SETMASK, mask, NULL);
}

/* In a chroot there may be no /dev/null; then it is a pipe that nobody writes to. */
static void read_nothing(void)
{
        int fd = open("/dev/null", O_RDONLY), ends[2];

        if (fd < 0 && pipe(ends) == 0) {
                close(ends[1]);
                fd = ends[0];
        }
        if (fd >= 0 && fd != STDIN_FILENO) {
                dup2(fd, STDIN_FILENO);
                close(fd);
        }
}

static noreturn_ void be_command(const struct keeper *k, pid_t parent)
{
        char **argv = k->job->argv;
        int why;

        offspring_enter(&k->offspring);
        if (k->job->one_of_many)
                read_nothing();
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent)
                _exit(EXIT_NO_KEEPER);
        keeper_give_signals_back(k->job->mask);
        if (k->job->in_command)
                k->job->in_command();
        execvp(argv[0], argv);
        why = errno;
        (void) !write(k->not_run[1], &why, sizeof(why));
        if (!k->job->one_of_many)
                fprintf(stderr, "tenurectl: cannot run %s: %s.\n", argv[0], strerror(why));
        _exit(exit_not_run(why));
}

void keeper_say(const char *fmt, ...)
{
        struct pollfd p = {.fd = STDERR_FILENO, .events = POLLOUT};
        char text[1024], line[sizeof(text) + 256];
        va_list ap;
        size_t n;

        va_start(ap, fmt);
        utf8_vprint(text, sizeof(text), fmt, ap);
        va_end(ap);
        utf8_shown(text, strlen(text), line, sizeof(line) - 1);
        n = strlen(line);
        line[n++] = '\n';
        if (poll(&p, 1, 0) == 1 && (p.revents & POLLOUT))
                (void) !write(STDERR_FILENO, line, n);
}

static void kill_all(struct keeper *k, struct boot_time now)
{
        nsec_t most = k->offspring.kill < 0 ? FOLLOW_AGAIN_MOST : KILL_AGAIN_MOST;
        bool at_once = k->killing_at.ns == 0 && offspring_kill_group(&k->offspring);
        size_t n = at_once ? 0 : offspring_signal(&k->offspring, SIGKILL);

        k->again = min_of(max_of(2 * k->again, KILL_AGAIN), most);
        if (k->killing_at.ns == 0)
                k->killing_at = now;
        if (k->late_logged || n == 0 || boot_diff(now, k->killing_at) < KILL_LOG_AFTER)
                return;
        k->late_logged = true;
        keeper_say("tenurectl: %zu process(es) of the command were killed and have not exited "
                   "yet; waiting for them.",
                   n);
}

/* Decides what has to be done now. */
static void decide(struct keeper *k, struct boot_time now)
{
        const struct tenancy *t = &k->tenancy;
        bool gone = t->lease != k->job->lease;
        const char *why = gone         ? "the place is lost"
                          : t->leaving ? "this host gives its place back"
                          : !boot_before(now, term_at(t))
                                  ? "no renewal was reported, so the place may be lost soon"
                                  : NULL;
        bool end = why && k->child && !k->ending;

        k->ending |= end;
        k->killing |= gone || !boot_before(now, kill_at(t)) ||
                      (k->end_by.ns != 0 && !boot_before(now, k->end_by));
        if (k->killing)
                kill_all(k, now);
        else if (end)
                offspring_signal(&k->offspring, SIGTERM);
        if (end && !k->job->one_of_many)
                keeper_say("tenurectl: %s; ending the command.", why);
}

static void arm(const struct keeper *k, struct boot_time now)
{
        struct boot_time when = k->killing  ? boot_add(now, k->again)
                                : k->ending ? kill_at(&k->tenancy)
                                            : term_at(&k->tenancy);

        if (!k->killing && k->end_by.ns != 0)
                when = boot_min(when, k->end_by);
        boot_timer_arm(k->timer, when);
}

/* Reaps all processes that have ended. Only the end of the command itself is reported. Returns
 * whether any process is left. */
static bool reap(struct keeper *k)
{
        int status;
        pid_t pid;

        while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
                if (pid == k->child) {
                        k->child = k->offspring.first = 0;
                        k->end = (struct keeper_end){.lost = k->ending,
                                                     .asked = k->end_by.ns != 0,
                                                     .status = status};
                        (void) !read(k->not_run[0], &k->end.not_run, sizeof(int));
                        k->killing = true;
                }
        return pid == 0;
}

/* Handles a message from tenurectl: a signal to pass on, or when the command must end. If
 * tenurectl itself has ended, the command is killed. */
static void hear_parent(struct keeper *k)
{
        struct word w;
        ssize_t n = recv(k->parent, &w, sizeof(w), MSG_DONTWAIT);

        if (n == (ssize_t) sizeof(w)) {
                if (w.end_by.ns != 0)
                        k->end_by = w.end_by;
                if (w.signo != 0)
                        offspring_signal(&k->offspring, w.signo);
        } else if (n == 0 || errno != EAGAIN) {
                k->killing = true;
        }
}

static void attend(struct keeper *k)
{
        char bytes[sizeof(struct inotify_event) + 256];
        struct tenancy t;

        while (reap(k)) {
                struct pollfd p[] = {{.fd = k->sfd, .events = POLLIN},
                                     {.fd = k->timer, .events = POLLIN},
                                     {.fd = k->inotify, .events = POLLIN},
                                     {.fd = k->killing ? -1 : k->parent, .events = POLLIN}};
                struct boot_time now;

                /* An inconsistent page changes nothing. */
                if (keeper_look(k->job->tenancy_fd, &t) == 0)
                        k->tenancy = t;
                now = boot_now();
                decide(k, now);
                arm(k, now);
                if (poll(p, ARRAY_SIZE(p), -1) < 0)
                        continue;
                for (size_t i = 0; i < 3; i++)
                        if (p[i].revents)
                                (void) !read(p[i].fd, bytes, sizeof(bytes));
                if (p[3].revents)
                        hear_parent(k);
        }
}

/* Closes the descriptors of other keepers. If each keeper had copies, none would notice that
 * tenurectl has ended until all the others have ended. */
static void close_all_but(int a, int b)
{
        unsigned low = (unsigned) min_of(a, b), high = (unsigned) max_of(a, b);

        if (low > 3)
                close_range(3, low - 1, 0);
        if (high > low + 1)
                close_range(low + 1, high - 1, 0);
        close_range(high + 1, ~0U, 0);
}

/* A descriptor that becomes readable when the page changes; -1: tenurectl reports changes. */
static int watch_page(const struct keeper_job *j)
{
        char path[32];
        int fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);

        snprintf(path, sizeof(path), "/proc/self/fd/%d", j->tenancy_fd);
        if (fd >= 0 && inotify_add_watch(fd, path, IN_MODIFY) < 0) {
                close(fd);
                return -1;
        }
        return fd;
}

static noreturn_ void be_keeper(const struct keeper_job *j, int parent)
{
        struct keeper k = {.job = j, .parent = parent};
        pid_t me = getpid();
        sigset_t chld;
        int r;

        if (j->one_of_many)
                close_all_but(parent, j->tenancy_fd);
        sigemptyset(&chld);
        sigaddset(&chld, SIGCHLD);
        k.sfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
        k.timer = boot_timer_new();
        k.inotify = j->one_of_many ? -1 : watch_page(j);
        if (k.sfd < 0 || k.timer < 0 || (k.inotify < 0 && !j->one_of_many) ||
            pipe2(k.not_run, O_CLOEXEC | O_NONBLOCK) < 0 ||
            keeper_look(j->tenancy_fd, &k.tenancy) < 0) {
                fprintf(stderr, "tenurectl: cannot supervise the command: %s.\n",
                        strerror(errno));
                _exit(EXIT_NO_KEEPER);
        }
        r = offspring_start(&k.offspring);
        if (r < 0) {
                fprintf(stderr,
                        "tenurectl: cannot supervise the command: cannot read /proc: %s.\n",
                        strerror(-r));
                _exit(EXIT_NO_KEEPER);
        }
        k.child = fork();
        if (k.child == 0)
                be_command(&k, me);
        if (k.child < 0) {
                fprintf(stderr, "tenurectl: cannot run the command: %s.\n", strerror(errno));
                offspring_end(&k.offspring);
                _exit(EXIT_NO_KEEPER);
        }
        k.offspring.first = k.child;
        /* From here on no terminal sends us signals, and with real-time priority, if we may
         * have it, other processes cannot delay us. */
        setsid();
        sched_setscheduler(0, SCHED_RR | SCHED_RESET_ON_FORK,
                           &(struct sched_param){.sched_priority = 1});
        attend(&k);
        offspring_end(&k.offspring);
        (void) !send(parent, &k.end, sizeof(k.end), MSG_NOSIGNAL);
        _exit(0);
}

/* ---- tenurectl's ---- */

/* A command that was killed cannot restore the terminal's settings. */
struct terminal {
        int fd; /* -1: there is none, or we were not in its foreground */
        struct termios was;
};

static void remember(struct terminal *t)
{
        t->fd = open("/dev/tty", O_RDWR | O_CLOEXEC | O_NOCTTY);
        if (t->fd < 0 || (tcgetpgrp(t->fd) == getpgrp() && tcgetattr(t->fd, &t->was) == 0))
                return;
        close(t->fd);
        t->fd = -1;
}

static void restore(struct terminal *t, bool killed)
{
        pid_t front = t->fd < 0 ? -1 : tcgetpgrp(t->fd);
        sigset_t ttou, old;

        if (t->fd < 0)
                return;
        sigemptyset(&ttou);
        sigaddset(&ttou,
                  SIGTTOU); /* tcsetpgrp(3) would stop us with it if we are in the background */
        sigprocmask(SIG_BLOCK, &ttou, &old);
        /* The command may have been a shell, which had made itself or one of its jobs the
         * foreground. */
        if (front > 0 && front != getpgrp() && kill(-front, 0) < 0 && errno == ESRCH)
                tcsetpgrp(t->fd, getpgrp());
        if (killed && tcgetpgrp(t->fd) == getpgrp())
                tcsetattr(t->fd, TCSADRAIN, &t->was);
        sigprocmask(SIG_SETMASK, &old, NULL);
        close(t->fd);
}

/* Whether the command has got the signal as well: the kernel sends signals of keys, and of a
 * terminal that is gone, to our whole process group. */
static bool is_from_terminal(const struct signalfd_siginfo *si)
{
        return si->ssi_code == SI_KERNEL &&
               (si->ssi_signo == SIGINT || si->ssi_signo == SIGQUIT || si->ssi_signo == SIGHUP);
}

static void pass_on(const struct keeper_job *j, int keeper)
{
        struct signalfd_siginfo si;
        struct word w = {0};

        if (read(j->sfd, &si, sizeof(si)) != sizeof(si))
                return;
        if (si.ssi_signo == SIGCHLD || is_from_terminal(&si))
                return;
        w.signo = (int) si.ssi_signo;
        (void) !send(keeper, &w, sizeof(w), MSG_NOSIGNAL);
}

/* If the keeper left a message of ours unread, ECONNRESET is reported before its own last
 * message (unix(7)). */
static bool last_word(int keeper, struct keeper_end *ret)
{
        ssize_t n = recv(keeper, ret, sizeof(*ret), MSG_DONTWAIT);

        if (n < 0 && errno == ECONNRESET)
                n = recv(keeper, ret, sizeof(*ret), MSG_DONTWAIT);
        return n == (ssize_t) sizeof(*ret);
}

/* Waits until the keeper has ended, and continues it if somebody stops it. Returns as
 * keeper_run(). */
static int wait_for(const struct keeper_job *j, pid_t pid, int keeper, struct keeper_end *ret)
{
        int status = 0;

        for (;;) {
                struct pollfd p[] = {{.fd = j->sfd, .events = POLLIN},
                                     {.fd = j->fd, .events = POLLIN}};
                /* Process 1 of a container is also the parent of processes that it did not
                 * start. */
                pid_t r = waitpid(-1, &status, WNOHANG | WUNTRACED);
                struct word w = {.signo = SIGTERM};

                if (r == pid && WIFSTOPPED(status))
                        kill(pid, SIGCONT);
                else if (r == pid || (r < 0 && errno != EINTR))
                        break;
                if (r > 0)
                        continue;
                if (poll(p, ARRAY_SIZE(p), -1) <= 0)
                        continue;
                if (p[0].revents)
                        pass_on(j, keeper);
                if (p[1].revents && j->on_fd(j->arg, &w.end_by))
                        (void) !send(keeper, &w, sizeof(w), MSG_NOSIGNAL);
        }
        if (last_word(keeper, ret))
                return 0;
        return WIFEXITED(status) && WEXITSTATUS(status) == EXIT_NO_KEEPER ? KEEPER_E_NOT_RUN
                                                                          : -ECHILD;
}

int keeper_start(const struct keeper_job *j, struct kept *ret)
{
        int pair[2], r;
        pid_t pid;

        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
                return -errno;
        pid = fork();
        if (pid == 0) {
                close(pair[0]);
                be_keeper(j, pair[1]);
        }
        r = pid < 0 ? -errno : 0;
        close(pair[1]);
        if (r < 0)
                close(pair[0]);
        else
                *ret = (struct kept){.pid = pid, .fd = pair[0]};
        return r;
}

/* Ends the processes of a keeper that was killed: they have become our children. */
static void end_orphans(struct offspring *left)
{
        pid_t gone;

        while ((gone = waitpid(-1, NULL, WNOHANG)) >= 0) {
                offspring_signal(left, SIGKILL);
                if (gone == 0)
                        poll(NULL, 0, (int) (KILL_AGAIN / NSEC_PER_MSEC));
        }
        offspring_end(left);
}

int keeper_run(const struct keeper_job *j, struct keeper_end *ret)
{
        struct terminal t;
        struct kept k;
        int r;

        /* If the keeper is killed, its processes become our children, and we end them. */
        prctl(PR_SET_CHILD_SUBREAPER, 1);
        remember(&t);
        r = keeper_start(j, &k);
        if (r == 0) {
                r = wait_for(j, k.pid, k.fd, ret);
                if (r == -ECHILD) {
                        struct offspring left;

                        offspring_adopt(&left, k.pid);
                        end_orphans(&left);
                }
                close(k.fd);
        }
        restore(&t, r < 0 || (r == 0 && ret->lost));
        return r;
}

/* ---- several at a time ---- */

void keeper_begin_many(void)
{
        prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void keeper_send(const struct kept *k, int signo)
{
        struct word w = {.signo = signo};

        (void) !send(k->fd, &w, sizeof(w), MSG_NOSIGNAL | MSG_DONTWAIT);
}

bool keeper_ended(struct kept *k, struct keeper_end *ret)
{
        bool said = last_word(k->fd, ret);

        close(k->fd);
        *k = (struct kept){.fd = -1};
        return said;
}

void keeper_wait(const struct kept *k)
{
        int status;

        while (waitpid(k->pid, &status, WUNTRACED) == k->pid && WIFSTOPPED(status))
                kill(k->pid, SIGCONT);
}

void keeper_end_all(const struct kept *k, size_t n)
{
        struct offspring left = {.kill = -1};

        for (size_t i = 0; i < n; i++) {
                offspring_adopt(&left, k[i].pid);
                offspring_signal(&left, SIGKILL);
                offspring_close(&left);
        }
        end_orphans(&left);
        for (size_t i = 0; i < n; i++) { /* nothing is left of these */
                offspring_adopt(&left, k[i].pid);
                offspring_end(&left);
        }
}
