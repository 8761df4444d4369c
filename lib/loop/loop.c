/* One thing: a turn of the loop: who runs in it, in which order, and for how long. */
#include "loop/loop.h"

#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

/* How long the members that share the loop may run in a turn, before the hooks and after them:
 * even with both used up, and the longest piece after that, a heartbeat waits for less than 10
 * ms. */
#define SHARE_IN (3 * NSEC_PER_MSEC)
#define SHARE_OUT (3 * NSEC_PER_MSEC)
#define GREETINGS NSEC_PER_MSEC /* of SHARE_IN: for newcomers, if there are any */
#define NEWS NSEC_PER_MSEC   /* of SHARE_IN: to ask epoll which members of a crowd are ready */
#define TIMERS NSEC_PER_MSEC /* for the timers that are due */
#define NEWS_MAX 128         /* members of a crowd reported at once */
#define MINUTE (60 * NSEC_PER_SEC)
#define RAN_EVERY (5 * NSEC_PER_MSEC)
#define DISPATCH_TURNS 16 /* of one loop_dispatch() at most: the outer loop has other work */

/* If the rate of the timer's clock has moved by this much since it was armed, it is armed
 * again. */
#define RATE_MOVED 50e-6

struct loop_ring {
        TAILQ_HEAD(, loop_part) parts;
        size_t n; /* members of all parts */
};
RB_HEAD(loop_timers, loop_timer);

struct loop {
        struct ev_loop *ev;
        int timer_fd;
        struct loop_io timer_io;
        int crowd_fd; /* an epoll for the members of a crowd; to libev it is one descriptor */
        struct loop_io crowd_io;
        struct epoll_event *news; /* reports about the crowd, while they are dispatched */
        int n_news;
        nsec_t heard; /* how long that took in this turn */
        struct ev_prepare prepare;
        struct ev_idle idle; /* active while somebody waits for the next turn: no sleep */
        TAILQ_HEAD(, loop_hook) hooks[LOOP_STAGES];
        struct loop_hook *running;  /* the hook that runs; NULL: it was stopped meanwhile */
        struct loop_hook *after_it; /* the hook after it */
        struct loop_later behind;   /* in `laters`: LOOP_BEHIND, after the streams */
        struct loop_laters inputs, laters;
        struct loop_ring ring_in, ring_new, ring_out; /* the groups that share the loop */
        struct loop_group alone;                      /* the members without a group */
        struct loop_later share; /* in `laters`: the turn of those that share */
        nsec_t shared;           /* the time they took after the hooks */
        unsigned n_turns;
        int outer_fd;  /* an epoll of what libev watches, for a loop around this one; or -1 */
        uint8_t *room; /* LOOP_ROOM bytes, see loop_room() */
        struct buf spare;
        bool called; /* since loop_dispatch() last checked, for a descriptor */

        struct boot_time turn_at; /* when this turn began */
        struct boot_time lap_at;
        struct loop_turn turn; /* the present turn, so far */
        struct boot_time minute_at;
        nsec_t longest, longest_before; /* turn of this minute, and of the one before */
        struct histogram turns;
        struct boot_time ran_at; /* when `ran` was read, before this turn */
        nsec_t ran;
        nsec_t watch_least;
        void (*watch_fn)(const struct loop_turn *t, void *arg);
        void *watch_arg;
        struct boot_time armed_for; /* the instant that the timerfd is set to */
        double armed_rate;          /* the rate of CLOCK_BOOTTIME then */
        bool armed_ahead;           /* armed_for was in the future then */
        nsec_t worst_lag;
        struct loop_timers timers;
        struct loop_timer *soonest; /* of `timers` */
        uint64_t n_armed;           /* timers armed so far */
};

/* ---- timers ---- */

static int timer_cmp(const struct loop_timer *a, const struct loop_timer *b)
{
        if (a->when.ns != b->when.ns)
                return boot_before(a->when, b->when) ? -1 : 1;
        return a->order < b->order ? -1 : a->order > b->order;
}

TREE_GENERATE(loop_timers, loop_timer, by_time, timer_cmp)

void loop_timer_init(struct loop_timer *t, struct loop *l, void (*fn)(struct loop_timer *t))
{
        *t = (struct loop_timer){.loop = l, .fn = fn};
}

void loop_timer_arm(struct loop_timer *t, struct boot_time when)
{
        struct loop *l = t->loop;

        loop_timer_disarm(t);
        t->when = when;
        t->order = ++l->n_armed;
        RB_INSERT(loop_timers, &l->timers, t);
        if (!l->soonest || timer_cmp(t, l->soonest) < 0)
                l->soonest = t;
}

void loop_timer_in(struct loop_timer *t, nsec_t after)
{
        loop_timer_arm(t, boot_add(boot_now(), after));
}

void loop_timer_disarm(struct loop_timer *t)
{
        struct loop *l = t->loop;

        if (!loop_timer_armed(t))
                return;
        if (l->soonest == t)
                l->soonest = RB_NEXT(loop_timers, &l->timers, t);
        RB_REMOVE(loop_timers, &l->timers, t);
        t->order = 0;
}

/* Runs the timers that are due at @now. A timer that arms itself again for now cannot keep the
 * loop here. Timers that are left run in the next turn, which follows at once. */
static void run_timers(struct loop *l, struct boot_time now)
{
        struct boot_time end = boot_add(now, TIMERS);
        struct loop_timer *t;

        while ((t = l->soonest) && !boot_before(now, t->when) && boot_before(l->lap_at, end)) {
                loop_timer_disarm(t);
                t->fn(t); /* which may free @t */
                loop_lap(l, "timers", NULL);
        }
}

static void on_timer_fd(struct loop_io *io, int events unused_)
{
        struct loop *l = io->loop;
        struct boot_time now = loop_lap(l, "the loop itself", NULL);
        uint64_t n;

        if (read(l->timer_fd, &n, sizeof(n)) < 0 && errno != EAGAIN)
                abort(); /* a timerfd that cannot be read is a bug */
        if (l->armed_ahead)
                l->worst_lag = max_of(l->worst_lag, boot_diff(now, l->armed_for));
        l->armed_for = BOOT_TIME_NEVER;
        run_timers(l, now);
}

/* When the hooks want to run at the latest. */
static struct boot_time hooks_next(const struct loop *l)
{
        struct boot_time when = BOOT_TIME_NEVER;
        const struct loop_hook *h;

        for (enum loop_stage s = 0; s < LOOP_STAGES; s++)
                TAILQ_FOREACH (h, &l->hooks[s], next)
                        when = boot_min(when, h->when);
        return when;
}

/* Sets the timerfd to the next timer or, if no hook wants the next turn at once, to that of the
 * hooks, by the rate of its clock. The time is absolute, so a suspend does no harm. Returns
 * whether the next turn follows at once. */
static bool arm(struct loop *l)
{
        struct boot_time when = l->soonest ? l->soonest->when : BOOT_TIME_NEVER,
                         hooks = hooks_next(l);
        bool at_once = !boot_before(l->lap_at, hooks);
        double off = boot_rate() - l->armed_rate;

        if (!at_once)
                when = boot_min(when, hooks);
        if (off < RATE_MOVED && off > -RATE_MOVED &&
            (at_once ? !boot_before(when, l->armed_for) : when.ns == l->armed_for.ns))
                return at_once;
        boot_timer_arm(l->timer_fd, when);
        l->armed_for = when;
        l->armed_rate = boot_rate();
        l->armed_ahead = boot_before(l->lap_at, when);
        return at_once;
}

static struct boot_time lap(struct loop *l, struct boot_time now, const char *what,
                            const char *who)
{
        nsec_t took = boot_diff(now, l->lap_at);

        l->lap_at = now;
        if (took > l->turn.piece) {
                l->turn.piece = took;
                l->turn.what = what;
                l->turn.who[0] = '\0';
                if (who && took >= NSEC_PER_MSEC)
                        snprintf(l->turn.who, sizeof(l->turn.who), "%s", who);
        }
        return now;
}

struct boot_time loop_lap(struct loop *l, const char *what, const char *who)
{
        return lap(l, boot_now(), what, who);
}

void loop_piece(struct loop *l, const char *what, const char *who)
{
        (void) lap(l, boot_glance(), what, who);
}

struct boot_time loop_now(const struct loop *l)
{
        return l->lap_at;
}

const struct boot_time *loop_clock(const struct loop *l)
{
        return &l->lap_at;
}

static void turn_begins(struct loop *l, struct boot_time now)
{
        /* Not in every turn, because it is a system call. */
        if (l->watch_fn && boot_diff(now, l->ran_at) >= RAN_EVERY) {
                l->ran_at = now;
                l->ran = thread_cpu_time();
        }
        l->turn = (struct loop_turn){.what = "nothing"};
        l->turn_at = l->lap_at = now;
        if (boot_diff(l->turn_at, l->minute_at) >= MINUTE) {
                l->longest_before =
                        boot_diff(l->turn_at, l->minute_at) < 2 * MINUTE ? l->longest : 0;
                l->longest = 0;
                l->minute_at = l->turn_at;
        }
}

static void turn_ends(struct loop *l)
{
        l->turn.took = boot_diff(loop_lap(l, "the loop itself", NULL), l->turn_at);
        l->longest = max_of(l->longest, l->turn.took);
        histogram_add_nsec(&l->turns, &histogram_way, l->turn.took);
        if (!l->watch_fn || l->turn.took < l->watch_least)
                return;
        l->turn.ran = min_of(thread_cpu_time() - l->ran, l->turn.took);
        l->watch_fn(&l->turn, l->watch_arg);
}

void loop_watch_turns(struct loop *l, nsec_t least,
                      void (*fn)(const struct loop_turn *t, void *arg), void *arg)
{
        l->ran_at = boot_now();
        l->ran = thread_cpu_time();
        l->watch_least = least;
        l->watch_fn = fn;
        l->watch_arg = arg;
}

nsec_t loop_longest_turn(struct loop *l)
{
        return max_of(l->longest, l->longest_before);
}

const struct histogram *loop_turns(const struct loop *l)
{
        return &l->turns;
}

/* ---- sharing: the groups take turns ---- */

void loop_group_init(struct loop_group *g)
{
        TAILQ_INIT(&g->in.members);
        TAILQ_INIT(&g->newcomers.members);
        TAILQ_INIT(&g->out.members);
}

static void join(struct loop_part *p, struct loop_ring *ring, struct loop_later *d)
{
        if (TAILQ_EMPTY(&p->members)) {
                p->ring = ring;
                TAILQ_INSERT_TAIL(&ring->parts, p, next);
        }
        ring->n++;
        d->part = p;
        d->list = &p->members;
        TAILQ_INSERT_TAIL(d->list, d, next);
}

static void rotate(struct loop_ring *ring)
{
        struct loop_part *p = TAILQ_FIRST(&ring->parts);

        TAILQ_REMOVE(&ring->parts, p, next);
        TAILQ_INSERT_TAIL(&ring->parts, p, next);
}

/* Takes the member whose turn it is; NULL: none. Unless @asked, skips the members that asked in
 * this turn. */
static struct loop_later *take(struct loop *l, struct loop_ring *ring, bool asked)
{
        const struct loop_part *first = TAILQ_FIRST(&ring->parts);

        for (struct loop_part *p = TAILQ_FIRST(&ring->parts); p;
             p = TAILQ_FIRST(&ring->parts)) {
                struct loop_later *d = TAILQ_FIRST(&p->members);

                rotate(ring);
                if (asked || d->asked_in != l->n_turns) {
                        loop_later_cancel(d);
                        return d;
                }
                if (TAILQ_FIRST(&ring->parts) == first)
                        break;
        }
        return NULL;
}

static bool run_next(struct loop *l, struct loop_ring *ring)
{
        struct loop_later *d = take(l, ring, false);

        if (d)
                d->fn(d);
        return d;
}

/* Urgent ones run first, and newcomers last. A newcomer is greeted in each turn, or those who
 * are there could keep all others out. One that asks again gets its turn in the next turn of
 * the loop. */
static void run_inputs(struct loop *l)
{
        struct boot_time end = boot_add(l->lap_at, SHARE_IN - min_of(l->heard, NEWS)),
                         members_end = boot_add(end, l->ring_new.n > 0 ? -GREETINGS : 0);
        struct loop_later *d;

        l->heard = 0;
        l->n_turns++;
        while ((d = TAILQ_FIRST(&l->inputs)) && d->asked_in != l->n_turns) {
                loop_later_cancel(d);
                d->fn(d);
        }
        while (boot_before(l->lap_at, members_end) && run_next(l, &l->ring_in))
                ;
        while (run_next(l, &l->ring_new) && boot_before(l->lap_at, end))
                ;
}

/* Stands in `laters` at the place of the first member that shares. */
static void on_share(struct loop_later *share)
{
        struct loop *l = container_of(share, struct loop, share);
        struct loop_later *d;

        while (l->shared < SHARE_OUT && (d = take(l, &l->ring_out, true))) {
                struct boot_time from = l->lap_at;

                d->fn(d);
                l->shared += boot_diff(l->lap_at, from);
        }
}

static void run_laters(struct loop *l)
{
        struct loop_later *d;

        l->shared = 0;
        while ((d = TAILQ_FIRST(&l->laters))) {
                loop_later_cancel(d);
                d->fn(d);
        }
        if (l->ring_out.n > 0) /* the first thing in the next turn */
                loop_later(&l->share, l, on_share);
}

/* ---- hooks ---- */

void loop_hook_start(struct loop_hook *h, struct loop *l, enum loop_stage stage,
                     struct boot_time (*run)(struct loop_hook *h, struct boot_time now))
{
        h->loop = l;
        h->stage = stage;
        h->run = run;
        h->when = (struct boot_time){0};
        TAILQ_INSERT_TAIL(&l->hooks[stage], h, next);
}

void loop_hook_stop(struct loop_hook *h)
{
        struct loop *l = h->loop;

        if (!l)
                return;
        if (l->after_it == h || l->running == h)
                l->after_it = TAILQ_NEXT(h, next);
        if (l->running == h)
                l->running = NULL;
        TAILQ_REMOVE(&l->hooks[h->stage], h, next);
        h->loop = NULL;
}

void loop_hook_again(struct loop_hook *h)
{
        h->when = (struct boot_time){0};
}

/* Runs a hook, and returns the one after it. */
static struct loop_hook *run_hook(struct loop *l, struct loop_hook *h)
{
        const char *what = h->what;
        struct boot_time when;

        l->running = h;
        l->after_it = NULL;
        when = h->run(h, l->lap_at); /* which may free @h and others */
        if (what)
                loop_lap(l, what, NULL);
        if (!l->running)
                return l->after_it;
        l->running = NULL;
        h->when = when;
        return TAILQ_NEXT(h, next);
}

static void run_stage(struct loop *l, enum loop_stage stage)
{
        struct loop_hook *h = TAILQ_FIRST(&l->hooks[stage]);

        while (h)
                h = run_hook(l, h);
}

static void on_behind(struct loop_later *d)
{
        run_stage(container_of(d, struct loop, behind), LOOP_BEHIND);
}

/* A single prepare watcher for everything: libev does not run a prepare watcher that another
 * one starts in the same iteration. */
static void on_prepare(struct ev_loop *ev, struct ev_prepare *w, int events unused_)
{
        struct loop *l = container_of(w, struct loop, prepare);

        run_inputs(l);
        loop_lap(l, "the loop itself", NULL); /* hooks need the present time */
        for (enum loop_stage s = LOOP_DECIDE; s < LOOP_BEHIND; s++)
                run_stage(l, s);
        loop_later(&l->behind, l, on_behind);
        run_laters(l);
        if (!arm(l) && TAILQ_EMPTY(&l->inputs) && l->ring_in.n + l->ring_new.n == 0 &&
            TAILQ_EMPTY(&l->laters))
                ev_idle_stop(ev, &l->idle);
        else
                ev_idle_start(ev, &l->idle);
        loop_lap(l, "the loop itself", NULL);
}

/* libev is about to poll, and may sleep. The calls that it made before that, one for each
 * descriptor whose events changed, belong to the turn. */
static void before_poll(struct ev_loop *ev) EV_NOEXCEPT
{
        turn_ends(ev_userdata(ev));
}

/* If it did not sleep, the call of epoll_wait() belongs to the turn, too: the kernel goes
 * through each descriptor that has something to report. */
static void after_poll(struct ev_loop *ev) EV_NOEXCEPT
{
        struct loop *l = ev_userdata(ev);
        bool slept = !ev_is_active(&l->idle);

        turn_begins(l, slept ? boot_now() : l->lap_at);
        loop_lap(l, "the kernel's answer", NULL);
}

static void on_idle(struct ev_loop *ev unused_, struct ev_idle *w unused_, int events unused_)
{
}

/* ---- a crowd ---- */

/* Always registers both directions; events that are not wanted are dropped here. This saves
 * system calls. */
static int crowd_ctl(struct loop_io *io, int op)
{
        struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                                .data.ptr = io};

        return epoll_ctl(io->loop->crowd_fd, op, io->ev.fd, &e);
}

/* Removes the descriptor also from the events that were reported and not passed on yet. */
static void crowd_leave(struct loop_io *io)
{
        struct loop *l = io->loop;

        (void) crowd_ctl(io, EPOLL_CTL_DEL);
        for (int i = 0; i < l->n_news; i++)
                if (l->news[i].data.ptr == io)
                        l->news[i].data.ptr = NULL;
        io->loop = NULL;
}

static void tell(struct loop_io *io, uint32_t got)
{
        int events = (got & (EPOLLIN | EPOLLRDHUP | EPOLLERR | EPOLLHUP) ? EV_READ : 0) |
                     (got & (EPOLLOUT | EPOLLERR | EPOLLHUP) ? EV_WRITE : 0);

        events &= io->wanted;
        if (got & (EPOLLRDHUP | EPOLLERR | EPOLLHUP))
                events |= LOOP_ENDED;
        if (events)
                io->fn(io, events);
}

/* Members that are not called now are called in the next turn, in the order in which they
 * became ready. */
static void on_crowd(struct loop_io *crowd, int events unused_)
{
        struct loop *l = crowd->loop;
        struct boot_time from = loop_lap(l, "the loop itself", NULL),
                         end = boot_add(from, NEWS);
        struct epoll_event news[NEWS_MAX];

        l->news = news;
        do {
                l->n_news = max_of(epoll_wait(l->crowd_fd, news, NEWS_MAX, 0), 0);
                for (int i = 0; i < l->n_news; i++)
                        if (news[i].data.ptr)
                                tell(news[i].data.ptr, news[i].events);
        } while (l->n_news == NEWS_MAX && boot_before(boot_glance(), end));
        l->n_news = 0;
        l->heard = boot_diff(loop_lap(l, "connections with input", NULL), from);
}

int loop_new(struct loop **ret)
{
        cleanup_(loop_freep) struct loop *l = calloc(1, sizeof(*l));

        if (!l)
                return -ENOMEM;
        l->crowd_fd = l->outer_fd = -1;
        l->timer_fd = boot_timer_new();
        if (l->timer_fd < 0)
                return l->timer_fd;
        l->room = malloc(LOOP_ROOM);
        if (!l->room)
                return -ENOMEM;
        l->crowd_fd = epoll_create1(EPOLL_CLOEXEC);
        if (l->crowd_fd < 0)
                return -errno;
        l->ev = ev_loop_new(EVFLAG_AUTO);
        if (!l->ev)
                return -ENOMEM;
        l->armed_for = BOOT_TIME_NEVER;
        l->armed_rate = boot_rate();
        loop_io_start(&l->timer_io, l, l->timer_fd, EV_READ, on_timer_fd);
        loop_io_start(&l->crowd_io, l, l->crowd_fd, EV_READ, on_crowd);
        RB_INIT(&l->timers);
        for (enum loop_stage s = 0; s < LOOP_STAGES; s++)
                TAILQ_INIT(&l->hooks[s]);
        TAILQ_INIT(&l->inputs);
        TAILQ_INIT(&l->laters);
        TAILQ_INIT(&l->ring_in.parts);
        TAILQ_INIT(&l->ring_new.parts);
        TAILQ_INIT(&l->ring_out.parts);
        loop_group_init(&l->alone);
        ev_prepare_init(&l->prepare, on_prepare);
        ev_prepare_start(l->ev, &l->prepare);
        ev_set_userdata(l->ev, l);
        ev_set_loop_release_cb(l->ev, before_poll, after_poll);
        ev_idle_init(&l->idle, on_idle);
        turn_begins(l, boot_now());
        l->minute_at = l->turn_at;
        *ret = take_ptr(l);
        return 0;
}

nsec_t loop_take_lag(struct loop *l)
{
        nsec_t lag = l->worst_lag;

        l->worst_lag = 0;
        return lag;
}

void loop_leave_to_parent(struct loop *l)
{
        if (l->crowd_fd >= 0)
                close(l->crowd_fd);
        if (l->outer_fd >= 0)
                close(l->outer_fd);
        l->crowd_fd = l->outer_fd = -1;
}

struct loop *loop_free(struct loop *l)
{
        if (!l)
                return NULL;
        if (l->ev) {
                loop_io_stop(&l->timer_io);
                loop_io_stop(&l->crowd_io);
                ev_prepare_stop(l->ev, &l->prepare);
                ev_idle_stop(l->ev, &l->idle);
                ev_loop_destroy(l->ev);
        }
        if (l->timer_fd >= 0)
                close(l->timer_fd);
        if (l->crowd_fd >= 0)
                close(l->crowd_fd);
        if (l->outer_fd >= 0)
                close(l->outer_fd);
        free(l->room);
        buf_fini(&l->spare);
        free(l);
        return NULL;
}

uint8_t *loop_room(struct loop *l)
{
        return l->room;
}

struct buf *loop_spare(struct loop *l)
{
        return &l->spare;
}

void loop_run(struct loop *l)
{
        turn_begins(l, boot_now());
        ev_run(l->ev, 0);
        turn_ends(l); /* ends the last turn; no further poll is needed */
}

void loop_stop(struct loop *l)
{
        ev_break(l->ev, EVBREAK_ALL);
}

/* libev does not reveal its epoll, so everything that it watches is also registered in an epoll
 * for the outer loop. */
static void outer_set(struct loop_io *io, int events)
{
        struct epoll_event e = {.events = (events & EV_READ ? EPOLLIN : 0U) |
                                          (events & EV_WRITE ? EPOLLOUT : 0U)};
        int fd = io->loop->outer_fd;

        if (fd < 0)
                return;
        if (events == 0)
                (void) !epoll_ctl(fd, EPOLL_CTL_DEL, io->ev.fd, NULL);
        else if (epoll_ctl(fd, EPOLL_CTL_MOD, io->ev.fd, &e) < 0)
                (void) !epoll_ctl(fd, EPOLL_CTL_ADD, io->ev.fd, &e);
}

int loop_nest(struct loop *l)
{
        if (l->outer_fd < 0)
                l->outer_fd = epoll_create1(EPOLL_CLOEXEC);
        if (l->outer_fd < 0)
                return -errno;
        outer_set(&l->timer_io, EV_READ);
        outer_set(&l->crowd_io, EV_READ);
        return l->outer_fd;
}

/* libev acts on events, and tells the kernel which others to watch, only before its next poll.
 * So another poll follows each one that brought something. */
bool loop_dispatch(struct loop *l)
{
        bool more;

        turn_begins(l, boot_now());
        for (unsigned i = 0; i < DISPATCH_TURNS; i++) {
                l->called = false;
                ev_run(l->ev, EVRUN_NOWAIT);
                more = l->called || ev_is_active(&l->idle);
                if (!more)
                        break;
        }
        turn_ends(l);
        return more;
}

static void io_ready(struct ev_loop *ev unused_, struct ev_io *w, int events)
{
        struct loop_io *io = container_of(w, struct loop_io, ev);
        const char *what = io->what;
        struct loop *l = io->loop;

        l->called = true;
        io->fn(io, events & (EV_READ | EV_WRITE)); /* which may free @io */
        if (what)
                loop_lap(l, what, NULL);
}

void loop_io_start(struct loop_io *io, struct loop *l, int fd, int events,
                   void (*fn)(struct loop_io *io, int events))
{
        io->loop = l;
        io->fn = fn;
        ev_io_init(&io->ev, io_ready, fd, events);
        io->wanted = events;
        if (io->of_crowd && crowd_ctl(io, EPOLL_CTL_ADD) == 0)
                return;
        io->of_crowd = false; /* the kernel could not register it there */
        if (!events)
                return;
        ev_io_start(l->ev, &io->ev);
        outer_set(io, events);
}

void loop_io_change(struct loop_io *io, int events)
{
        io->wanted = events;
        if (io->of_crowd)
                return;
        if (ev_is_active(&io->ev) && (io->ev.events & (EV_READ | EV_WRITE)) == events)
                return;
        ev_io_stop(io->loop->ev, &io->ev);
        ev_io_set(&io->ev, io->ev.fd, events);
        if (events)
                ev_io_start(io->loop->ev, &io->ev);
        outer_set(io, events);
}

void loop_io_stop(struct loop_io *io)
{
        if (io->loop && io->of_crowd)
                crowd_leave(io);
        if (!io->loop || !ev_is_active(&io->ev))
                return;
        outer_set(io, 0);
        ev_io_stop(io->loop->ev, &io->ev);
}

static bool is_queued(struct loop_later *d, struct loop *l, void (*fn)(struct loop_later *d))
{
        if (d->list)
                return true;
        d->fn = fn;
        d->asked_in = l->n_turns;
        return false;
}

static void queue(struct loop_later *d, struct loop_laters *list)
{
        d->list = list;
        TAILQ_INSERT_TAIL(list, d, next);
}

static struct loop_group *group_of(const struct loop_later *d, struct loop *l)
{
        return d->group ? d->group : &l->alone;
}

void loop_later(struct loop_later *d, struct loop *l, void (*fn)(struct loop_later *d))
{
        if (!is_queued(d, l, fn))
                queue(d, &l->laters);
}

void loop_share(struct loop_later *d, struct loop *l, void (*fn)(struct loop_later *d))
{
        if (is_queued(d, l, fn))
                return;
        join(&group_of(d, l)->out, &l->ring_out, d);
        loop_later(&l->share, l, on_share);
}

void loop_share_input(struct loop_later *d, struct loop *l, bool patient,
                      void (*fn)(struct loop_later *d))
{
        if (is_queued(d, l, fn))
                return;
        if (patient)
                join(&group_of(d, l)->in, &l->ring_in, d);
        else
                queue(d, &l->inputs);
}

void loop_share_greeting(struct loop_later *d, struct loop *l, void (*fn)(struct loop_later *d))
{
        if (!is_queued(d, l, fn))
                join(&group_of(d, l)->newcomers, &l->ring_new, d);
}

void loop_later_cancel(struct loop_later *d)
{
        if (!d->list)
                return;
        TAILQ_REMOVE(d->list, d, next);
        d->list = NULL;
        if (!d->part)
                return;
        d->part->ring->n--;
        if (TAILQ_EMPTY(&d->part->members))
                TAILQ_REMOVE(&d->part->ring->parts, d->part, next);
        d->part = NULL;
}

static void signal_ready(struct ev_loop *ev unused_, struct ev_signal *w, int events unused_)
{
        struct loop_signal *s = container_of(w, struct loop_signal, ev);
        struct loop *l = s->loop;

        l->called = true;
        s->fn(s);
        loop_lap(l, "a signal", NULL);
}

void loop_signal_start(struct loop_signal *s, struct loop *l, int signo,
                       void (*fn)(struct loop_signal *s))
{
        s->loop = l;
        s->fn = fn;
        ev_signal_init(&s->ev, signal_ready, signo);
        ev_signal_start(l->ev, &s->ev);
}

void loop_signal_stop(struct loop_signal *s)
{
        if (s->loop)
                ev_signal_stop(s->loop->ev, &s->ev);
        s->loop = NULL;
}
