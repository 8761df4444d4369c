/* What the real fence.c and guard.c of agent/tenured stand on in the simulator, beside the
 * loop: control groups, the connection to the service manager, and the files in /run. Each call
 * concerns the host of the last ground_enter(). */
#include <fcntl.h>
#include <stdio.h>
#include <sys/pidfd.h>

#include "../../agent/tenured/counters.h"
#include "../../agent/tenured/fence_known.h"
#include "../../agent/tenured/keep.h"
#include "../../agent/tenured/memory.h"
#include "../../agent/tenured/names.h"
#include "../../agent/tenured/reboot.h"
#include "base/log.h"
#include "bus/journal.h"
#include "bus/notify.h"
#include "cgroup/cgroup.h"
#include "units.h"
#include "world.h"

#define ANSWER (2 * NSEC_PER_SEC) /* see bound.c */
#define REPLIES_MAX 8

static struct units *here;
static bool dying;

void ground_enter(struct units *u)
{
        here = u;
        loop_enter(&u->holder->clock);
}

void ground_die(struct units *u, bool dies)
{
        ground_enter(u);
        dying = dies;
}

/* ---- the loop ---- */

/* The guard hears of messages, and of the agent's end. */
void loop_io_start(struct loop_io *io, struct loop *l, int fd, int events,
                   void (*fn)(struct loop_io *io, int events))
{
        (void) events;
        io->loop = l;
        io->fn = fn;
        io->ev.fd = fd;
        if (strcmp(io->what, "the end of the agent") == 0)
                l->end_of_agent = io;
}

void loop_io_stop(struct loop_io *io)
{
        if (io->loop && io->loop->end_of_agent == io)
                io->loop->end_of_agent = NULL;
}

void loop_hook_start(struct loop_hook *h, struct loop *l, enum loop_stage stage,
                     struct boot_time (*run)(struct loop_hook *h, struct boot_time now))
{
        h->loop = l;
        h->stage = stage;
        h->run = run;
        l->hook = h;
}

void loop_hook_stop(struct loop_hook *h)
{
        if (h->loop)
                h->loop->hook = NULL;
}

void loop_signal_start(struct loop_signal *s, struct loop *l, int signo,
                       void (*fn)(struct loop_signal *s))
{
        s->loop = l;
        s->fn = fn;
        if (signo == SIGUSR1)
                l->sigusr1 = s;
}

/* ---- control groups ---- */

static struct unit *unit_of(const char *group)
{
        for (size_t i = 0; i < here->n; i++)
                if (strcmp(here->u[i].group, group) == 0)
                        return &here->u[i];
        return NULL;
}

static bool is_slice(const char *group)
{
        return strcmp(group, SLICE_GROUP) == 0;
}

bool cgroup_is_there(void)
{
        return true;
}

bool cgroup_can_kill(void)
{
        return true;
}

static int set_frozen(const char *path, bool frozen)
{
        struct unit *t = unit_of(path);

        if (is_slice(path) ? !units_slice_is_there(here) : !t || !t->there)
                return -ENOENT;
        if (dying)
                return 0;
        W->counts.freezes += frozen;
        W->met.guard_froze += frozen && here->guard_runs;
        W->met.thawed += !frozen && t && t->frozen && unit_has_processes(t) &&
                         here->target == TARGET_STOPPING;
        *(is_slice(path) ? &here->slice_frozen : &t->frozen) = frozen;
        units_tell(here, "%s is %s", path, frozen ? "frozen" : "thawed");
        here->wake = 0;
        return 0;
}

/* Nobody else freezes anything. */
bool cgroup_is_marked(const char *path)
{
        (void) path;
        return true;
}

int cgroup_freeze(const char *path)
{
        return set_frozen(path, true);
}

int cgroup_thaw(const char *path)
{
        return set_frozen(path, false);
}

int cgroup_kill(const char *path)
{
        struct unit *t = unit_of(path);

        if (is_slice(path) ? !units_slice_is_there(here) : !t || !t->there)
                return -ENOENT;
        for (size_t i = 0; i < here->n; i++)
                if (&here->u[i] == t || (is_slice(path) && here->u[i].in_slice))
                        units_kill(here, &here->u[i]);
        here->wake = 0;
        return 0;
}

int cgroup_is_populated(const char *path)
{
        struct unit *t = unit_of(path);

        if (t)
                return unit_has_processes(t);
        for (size_t i = 0; i < here->n; i++)
                if (here->u[i].in_slice && unit_has_processes(&here->u[i]))
                        return 1;
        return 0;
}

/* No unit is a mount, so nothing is left out. */
void cgroup_children(const char *path, void (*fn)(void *userdata, const char *child),
                     void *userdata)
{
        (void) path;
        (void) fn;
        (void) userdata;
        abort();
}

bool cgroup_is_within(const char *path, const char *group)
{
        size_t n = strlen(group);

        return strncmp(path, group, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

int cgroup_of_unit(const char *slice, const char *unit, char *out, size_t size)
{
        (void) slice;
        (void) unit;
        snprintf(out, size, "%s", SLICE_GROUP);
        return 0;
}

/* ---- the connection to the service manager ---- */

struct call {
        unsigned number; /* 0: it waits for no answer */
        enum question what;
        nsec_t since;
};

struct bound {
        LIST_ENTRY(bound) next;
        struct loop *loop;
        unsigned id;
        bool known;
        struct bound_unit units[2 + UNITS_MAX];
        void (*changed)(void *userdata);
        void *userdata;
        struct call order, look;
        void (*accepted)(void *userdata);
        void *order_userdata;
        void (*look_fn)(void *userdata, enum bound_sight s);
        void *look_userdata;
        struct reply {
                nsec_t at;
                struct question_sent to;
                enum bound_sight s;
        } replies[REPLIES_MAX];
        size_t n_replies;
};

static LIST_HEAD(, bound) bounds = LIST_HEAD_INITIALIZER(bounds);
static unsigned numbers;

int bound_new(struct bound **ret, struct loop *l, const char *root,
              void (*changed)(void *userdata), void (*settled)(void *userdata), void *userdata)
{
        struct bound *b = calloc(1, sizeof(*b));
        size_t n = 0;

        (void) settled; /* such reports may be lost, and here all are */
        if (!b)
                return -ENOMEM;
        *b = (struct bound){
                .loop = l, .id = ++numbers, .changed = changed, .userdata = userdata};
        b->units[n++].name = (char *) root;
        b->units[n].name = (char *) FENCE_SLICE;
        b->units[n++].control_group = (char *) SLICE_GROUP;
        for (size_t i = 0; i < here->n; i++, n++) {
                b->units[n].name = here->u[i].name;
                b->units[n].control_group = here->u[i].group;
        }
        LIST_INSERT_HEAD(&bounds, b, next);
        *ret = b;
        return 0;
}

struct bound *bound_free(struct bound *b)
{
        if (b)
                LIST_REMOVE(b, next);
        free(b);
        return NULL;
}

const char *bound_root(const struct bound *b)
{
        return b->units[0].name;
}

const struct bound_unit *bound_units(const struct bound *b, size_t *ret_n)
{
        *ret_n = b->known ? 2 + here->n : 0;
        return b->units;
}

const struct bound_stray *bound_strays(const struct bound *b, size_t *ret_n)
{
        (void) b;
        *ret_n = 0;
        return NULL;
}

/* A message takes its time. One that finds no room is lost, as when the connection breaks. */
static struct call ask(struct bound *b, enum question what)
{
        struct call c = {.number = ++numbers, .what = what, .since = W->now};

        (void) units_ask(here,
                         &(struct question_sent){
                                 .what = what,
                                 .at = W->now + units_time(here, 50 * NSEC_PER_USEC, 2 * MSEC),
                                 .asker = b->id,
                                 .number = c.number});
        here->wake = 0;
        return c;
}

void bound_follow(struct bound *b)
{
        (void) ask(b, ASK_SET);
}

static void order(struct bound *b, enum question what, void (*accepted)(void *userdata),
                  void *userdata)
{
        b->accepted = accepted;
        b->order_userdata = userdata;
        if (b->order.number != 0 && b->order.what == what)
                return;
        b->order = ask(b, what);
}

void bound_start(struct bound *b)
{
        order(b, ASK_START, NULL, NULL);
}

void bound_stop(struct bound *b, void (*accepted)(void *userdata), void *userdata)
{
        W->met.guard_stopped += here->guard_runs;
        order(b, ASK_STOP, accepted, userdata);
}

void bound_look(struct bound *b, void (*fn)(void *userdata, enum bound_sight s), void *userdata)
{
        b->look_fn = fn;
        b->look_userdata = userdata;
        b->look = ask(b, b->known ? ASK_LOOK : ASK_SET);
}

void ground_answer(struct units *u, const struct question_sent *q, enum bound_sight s)
{
        struct bound *b;

        LIST_FOREACH (b, &bounds, next)
                if (b->id == q->asker && b->n_replies < REPLIES_MAX) {
                        nsec_t at = W->now + units_time(u, 50 * NSEC_PER_USEC, 2 * MSEC);

                        b->replies[b->n_replies++] = (struct reply){at, *q, s};
                        if (b->loop == u->guard_loop)
                                u->guard_at = min_of(u->guard_at, at);
                        else
                                u->holder->wake = min_of(u->holder->wake, at);
                }
}

static void end_look(struct bound *b, enum bound_sight s)
{
        b->look.number = 0;
        b->look_fn(b->look_userdata, s);
}

static void take(struct bound *b, const struct reply *r)
{
        if (!b->known && r->to.what == ASK_SET) {
                b->known = true;
                b->changed(b->userdata);
        }
        if (r->to.number == b->order.number) {
                b->order.number = 0;
                if (b->accepted)
                        b->accepted(b->order_userdata);
        } else if (r->to.number == b->look.number) {
                end_look(b, r->s);
        }
}

/* A reply that is due, or an end of patience. */
static bool hear(struct bound *b)
{
        for (size_t i = 0; i < b->n_replies; i++) {
                struct reply r = b->replies[i];

                if (r.at > W->now)
                        continue;
                memmove(&b->replies[i], &b->replies[i + 1],
                        (--b->n_replies - i) * sizeof(b->replies[0]));
                take(b, &r);
                return true;
        }
        if ((b->order.number == 0 || W->now - b->order.since < ANSWER) &&
            (b->look.number == 0 || W->now - b->look.since < ANSWER))
                return false;
        b->order.number = 0;
        if (b->look.number != 0)
                end_look(b, BOUND_UNKNOWN);
        return true;
}

bool ground_listen(struct loop *l)
{
        bool any = false;
        struct bound *b;

        LIST_FOREACH (b, &bounds, next)
                while (b->loop == l && hear(b))
                        any = true;
        return loop_run_timer(l) || any;
}

static nsec_t patience_ends(const struct bound *b)
{
        nsec_t at = NEVER;

        if (b->order.number != 0)
                at = b->order.since + ANSWER;
        if (b->look.number != 0)
                at = min_of(at, b->look.since + ANSWER);
        return at;
}

nsec_t ground_next(const struct loop *l)
{
        nsec_t at = NEVER;
        struct bound *b;

        LIST_FOREACH (b, &bounds, next)
                if (b->loop == l) {
                        at = min_of(at, patience_ends(b));
                        for (size_t i = 0; i < b->n_replies; i++)
                                at = min_of(at, b->replies[i].at);
                }
        return min_of(at, loop_next(l));
}

void fence_known_save(const struct bound *b)
{
        here->run.known = b->known;
}

void fence_known_load(struct bound *b)
{
        b->known = here->run.known;
}

/* ---- the gate ---- */

void ground_tell_guard(struct units *u)
{
        u->guard_at = min_of(u->guard_at, W->now);
        u->wake = 0;
}

bool gate_is_open(void)
{
        return here->run.held != 0;
}

bool gate_is_stopping(void)
{
        return here->run.stopping != 0;
}

static void answer_for(struct gate *g, unsigned inode)
{
        g->fd = (int) inode;
        here->run.lock = inode;
        ground_tell_guard(here);
}

void gate_take(struct gate *g)
{
        const struct run_files *r = &here->run;

        if (r->held != 0 || r->stopping != 0)
                answer_for(g, r->held != 0 ? r->held : r->stopping);
}

int gate_keep_open(void)
{
        if (here->run.held == 0)
                here->run.held = ++here->run.last;
        return 0;
}

static bool is_ours(const struct gate *g)
{
        return g->fd >= 0 && here->run.held == (unsigned) g->fd;
}

int gate_open(struct gate *g)
{
        if (is_ours(g))
                return 0;
        if (gate_keep_open() == 0)
                answer_for(g, here->run.held);
        return 0;
}

void gate_close(void)
{
        if (here->run.held == 0)
                return;
        here->run.stopping = here->run.held;
        here->run.held = 0;
}

void gate_forget(struct gate *g)
{
        here->run.stopping = 0;
        g->fd = -1;
        here->run.lock = 0;
        ground_tell_guard(here);
}

pid_t gate_keeper(void)
{
        const struct run_files *r = &here->run;
        unsigned inode = r->held != 0 ? r->held : r->stopping;

        return inode != 0 && r->lock == inode ? (pid_t) here->agent_life : 0;
}

bool gate_is_guarded(void)
{
        return here->guard != NULL;
}

int gate_listen(void)
{
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Stands before libc's. */
int pidfd_open(pid_t pid, unsigned flags)
{
        (void) pid;
        (void) flags;
        return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* ---- other files, settings, and what is of no interest here ---- */

bool keep_peek(struct place *ret)
{
        return holder_read_file(here->holder, ret);
}

const struct histogram_shape counters_long = {.n = 1};
const struct conf_option options_table[1];
const size_t n_options;

int options_read(struct options *o, const char *file, struct conf_error *err)
{
        (void) file;
        (void) err;
        *o = (struct options){.held_target = (char *) HELD_TARGET,
                              .ttl = here->holder->cfg.ttl,
                              .drift_ppm = here->holder->cfg.drift_ppm,
                              .log_level = log_get_level()};
        return 0;
}

struct fencing_config options_fencing(const struct options *o)
{
        (void) o;
        return here->cfg;
}

bool names_target(const char *file, char out[static 256], struct fencing_config *cfg)
{
        (void) file;
        (void) out;
        (void) cfg;
        return false;
}

void reboot_now(struct pid1 *pid1)
{
        (void) pid1;
        here->reboots = !dying;
        here->wake = 0;
}

int pid1_new(struct pid1 **ret, struct loop *l)
{
        (void) l;
        *ret = (struct pid1 *) here; /* not NULL; nobody looks inside */
        return 0;
}

struct pid1 *pid1_free(struct pid1 *p)
{
        (void) p;
        return NULL;
}

nsec_t notify_watchdog_period(void)
{
        return 0;
}

void notify_watchdog(void)
{
}
void notify_flush(void)
{
}
void notify_ready(void)
{
}
void notify_extend(nsec_t by)
{
        (void) by;
}
void memory_lock_whole(void)
{
}
void journal_use(const char *identifier)
{
        (void) identifier;
}
