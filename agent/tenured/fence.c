#include "fence.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"
#include "bus/messages.h"
#include "cgroup/cgroup.h"
#include "counters.h"
#include "fence_known.h"
#include "reboot.h"

static nsec_t ms(nsec_t t)
{
        return t / NSEC_PER_MSEC;
}

static struct fencing_place place(const struct fence *f, struct boot_time now)
{
        struct fencing_place p = {.leave = f->leave};

        if (!f->session)
                return p;
        p.held = session_holds(f->session, now);
        p.ttl = f->session->ttl;
        if (p.held)
                p.deadline = session_deadline(f->session);
        return p;
}

static const char *slice_group(void)
{
        static char path[128];

        if (!*path && cgroup_of_unit(NULL, FENCE_SLICE, path, sizeof(path)) < 0)
                abort();
        return path;
}

/* The next control group beside the slice in which something bound may run: of a unit, or where
 * its main process is. @at begins with 0; NULL at the end. */
static const char *next_group(const struct fence *f, size_t *at)
{
        size_t n_units, n_strays;
        const struct bound_unit *u = bound_units(f->bound, &n_units);
        const struct bound_stray *s = bound_strays(f->bound, &n_strays);
        const char *group = NULL;

        while (!group && *at < n_units + n_strays) {
                size_t i = (*at)++;

                if (i < n_units)
                        group = u[i].control_group;
                else if (!s[i - n_units].is_ours)
                        group = s[i - n_units].group;
        }
        return group;
}

bool fence_is_settled(const struct fence *f)
{
        return !f->bound || f->stuck || (f->machine.state == FENCING_UP && f->machine.opened);
}

bool fence_is_held_back(const struct fence *f)
{
        struct fencing_place p = {0};

        if (f->bound)
                p = place(f, boot_now());
        return f->bound && fencing_is_held_back(&f->machine, &p);
}

bool fence_is_down(const struct fence *f)
{
        return !f->bound || fencing_is_down(&f->machine);
}

const char *fence_still_up(const struct fence *f)
{
        const struct bound_stray *s;
        const struct bound_unit *u;
        size_t n;

        if (!f->bound || f->machine.state != FENCING_STOPPING)
                return "";
        u = bound_units(f->bound, &n);
        /* The target last: it waits for the others. */
        for (size_t i = n; i-- > 0;)
                if (!u[i].is_down ||
                    (u[i].control_group && cgroup_is_populated(u[i].control_group) > 0))
                        return u[i].name;
        s = bound_strays(f->bound, &n);
        for (size_t i = 0; i < n; i++)
                if (!s[i].is_ours && cgroup_is_populated(s[i].group) > 0)
                        return s[i].unit;
        return cgroup_is_populated(slice_group()) > 0 ? FENCE_SLICE : "";
}

/* ---- at the kernel's control groups ---- */

/* The control group of a mount or a swap unit holds the process that mounts or unmounts it. If
 * that process is killed or frozen, the mount stays for ever. So the group is killed only once,
 * when the place is lost, for file systems that are served by a process. */
static bool is_mounted(const struct bound_unit *u)
{
        return u->control_group &&
               (bound_is_kind(u->name, ".mount") || bound_is_kind(u->name, ".swap"));
}

struct each {
        struct fence *fence;
        void (*fn)(struct fence *f, const char *group);
        const char **mounts; /* control groups of mounts, looked up once: there may be thousands
                              * of units */
        size_t n_mounts;
};

static void find_mounts(struct each *e)
{
        const struct bound_unit *u;
        size_t n;

        u = bound_units(e->fence->bound, &n);
        for (size_t i = 0; i < n; i++) {
                if (!is_mounted(&u[i]))
                        continue;
                e->mounts = reallocarray(e->mounts, e->n_mounts + 1, sizeof(*e->mounts));
                if (!e->mounts)
                        abort();
                e->mounts[e->n_mounts++] = u[i].control_group;
        }
}

/* Calls fn() for all of @group except the groups of mounts. */
static void all_but_mounts(void *userdata, const char *group)
{
        const struct each *e = userdata;

        for (size_t i = 0; i < e->n_mounts; i++) {
                if (cgroup_is_within(group, e->mounts[i]))
                        return;
                if (cgroup_is_within(e->mounts[i], group))
                        return cgroup_children(group, all_but_mounts, userdata);
        }
        e->fn(e->fence, group);
}

/* Calls fn() once for each control group, the slice first. */
static void each_group(struct fence *f, bool mounts,
                       void (*fn)(struct fence *f, const char *group))
{
        struct each e = {.fence = f, .fn = fn};
        const char *group;
        size_t at = 0;

        if (!mounts)
                find_mounts(&e);
        all_but_mounts(&e, slice_group());
        while ((group = next_group(f, &at)))
                if (!cgroup_is_within(group, slice_group()))
                        all_but_mounts(&e, group);
        free(e.mounts);
}

/* Returns whether it is new. */
static bool remember(struct fence_texts *t, const char *text)
{
        for (size_t i = 0; i < t->n; i++)
                if (strcmp(t->all[i], text) == 0)
                        return false;
        t->all = reallocarray(t->all, t->n + 1, sizeof(*t->all));
        if (!t->all || !(t->all[t->n] = strdup(text)))
                abort();
        t->n++;
        return true;
}

static void forget(struct fence_texts *t)
{
        while (t->n > 0)
                free(t->all[--t->n]);
        free(t->all);
        t->all = NULL;
}

/* What is killed and does not die is killed again every few milliseconds: each message is one
 * for the log once in a fence. */
static void say(struct fence *f, int level, const char *fmt, ...) printf_(3, 4);
static void say(struct fence *f, int level, const char *fmt, ...)
{
        char text[1024];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        log_full(remember(&f->told, text) ? level : LOG_DEBUG, NULL, "%s", text);
}

/* What is frozen must be thawed even if it is no longer bound by then. */
static void freeze(struct fence *f, const char *group)
{
        int r = cgroup_freeze(group);

        if (r == 0)
                (void) remember(&f->frozen, group);
        else if (r < 0 && r != -ENOENT)
                say(f, LOG_ERR, "Cannot freeze %s: %s.", group, strerror(-r));
}

static void thaw(struct fence *f, const char *group)
{
        int r = cgroup_thaw(group);

        if (r < 0 && r != -ENOENT)
                say(f, LOG_ERR, "Cannot thaw %s: %s.", group, strerror(-r));
}

static void remember_marked(struct fence *f)
{
        const char *group = slice_group();
        size_t at = 0;

        for (; group; group = next_group(f, &at))
                if (cgroup_is_marked(group))
                        (void) remember(&f->frozen, group);
}

/* Thaws what we have frozen, in this run or an earlier one, or in the other process, and not
 * what an operator has. */
static void thaw_all(struct fence *f)
{
        remember_marked(f);
        for (size_t i = f->frozen.n; i-- > 0;)
                thaw(f, f->frozen.all[i]);
        forget(&f->frozen);
}

void fence_release(struct fence *f)
{
        if (f->bound && f->frozen.n > 0)
                thaw_all(f);
}

void fence_thaw(struct fence *f)
{
        if (f->bound)
                thaw_all(f);
}

static void kill_all(struct fence *f, const char *group)
{
        int r;

        if (cgroup_is_populated(group) == 0)
                return;
        r = cgroup_kill(group);
        if (r < 0 && r != -ENOENT)
                say(f, LOG_ERR, "Cannot kill the processes in %s: %s.", group, strerror(-r));
        else if (r == 0)
                say(f, LOG_WARNING, "Killing the processes left in %s.", group);
}

void fence_freeze(struct fence *f)
{
        if (f->bound)
                each_group(f, false, freeze);
}

static bool has_processes(const struct fence *f)
{
        const char *group = slice_group();
        size_t at = 0;

        for (; group; group = next_group(f, &at))
                if (cgroup_is_populated(group) != 0)
                        return true;
        return false;
}

/* ---- the gate ---- */

static bool open_gate(struct fence *f)
{
        int r = f->changed ? gate_open(&f->gate) : gate_keep_open();

        if (r < 0 && !f->stuck)
                log_error("%s: cannot create it: %s. %s stays down.", GATE_OPEN, strerror(-r),
                          bound_root(f->bound));
        f->stuck = r < 0;
        return r == 0;
}

/* The guard closes the gate if the agent is not heard of in time, as after a suspend; a renewal
 * that was acknowledged meanwhile may come just then. And if somebody removes the file, bound
 * units cannot start, and the guard cannot see that some may be up. The guard may be gone, too.
 * So check all of it with each renewal. */
static void keep_gate(struct fence *f)
{
        const struct session *s = f->session;
        bool guarded;

        if (!f->changed || f->machine.state != FENCING_UP || !f->machine.opened ||
            s->renewed_at.ns == f->gate_seen.ns)
                return;
        f->gate_seen = s->renewed_at;
        if (gate_is_stopping())
                return fencing_closed(&f->machine);
        if (!gate_is_open())
                fencing_unsure(&f->machine);
        (void) open_gate(f);
        guarded = gate_is_guarded();
        if (guarded == f->guarded)
                return;
        f->guarded = guarded;
        f->changed(f);
}

/* ---- carrying out the acts ---- */

static void count(struct fence *f, struct boot_time now)
{
        const struct fencing *m = &f->machine;

        if (m->began.ns == 0)
                return;
        histogram_add_nsec(&f->took, &counters_long, boot_diff(now, m->began));
        f->n_late += !boot_before(now, m->deadline);
}

static void tell_down(const struct fence *f, struct boot_time now)
{
        const struct fencing *m = &f->machine;
        const char *fields[] = {MESSAGE_FENCED, NULL};
        const char *target = bound_root(f->bound);

        if (m->began.ns == 0)
                log_debug("%s is down.", target);
        else if (boot_before(now, m->deadline))
                log_full(LOG_NOTICE, fields,
                         "%s is down after %" PRId64 " ms, %" PRId64 " ms before the deadline.",
                         target, ms(boot_diff(now, m->began)), ms(boot_diff(m->deadline, now)));
        else
                log_full(LOG_NOTICE, fields, "%s is down after %" PRId64 " ms.", target,
                         ms(boot_diff(now, m->began)));
}

static void alarm_people(const struct fence *f, bool reboots)
{
        const char *fields[] = {MESSAGE_FENCE_FAILED, NULL};
        const char *what = fence_still_up(f);

        log_full(LOG_ERR, fields, "%s is still up at the deadline%s%s%s%s.",
                 bound_root(f->bound), *what ? ": " : "", what,
                 *what ? "" : ", as far as systemd reports",
                 reboots ? "; rebooting at once" : "");
}

/* Once each time that something goes down for it. */
static void tell_held_back(struct fence *f, const struct fencing_place *p)
{
        const struct fencing *m = &f->machine;
        const char *fields[] = {MESSAGE_HELD_BACK, NULL};
        char calm[64] = "";

        if (f->held_back || !fencing_is_held_back(m, p))
                return;
        f->held_back = true;
        if (m->calm > 0)
                snprintf(calm, sizeof(calm), " for %" PRId64 " s",
                         (m->calm - 1) / NSEC_PER_SEC + 1);
        log_full(LOG_WARNING, fields,
                 "%s stays down although the place is held: the core acknowledged a renewal "
                 "after %" PRId64 " ms, and with TTL=%" PRId64 "ms and FenceLead=%" PRId64
                 "ms the next one would arrive after the stop. It starts again once renewals "
                 "have taken less than %" PRId64 " ms%s; a longer TTL= allows for slower ones.",
                 bound_root(f->bound), ms(m->took), ms(p->ttl),
                 ms(fencing_lead(&m->cfg, p->ttl)), ms(fencing_answer_max(&m->cfg, p->ttl)),
                 calm);
}

static void on_seen(void *userdata, enum bound_sight s)
{
        struct fence *f = userdata;
        enum fencing_sight sight = FENCING_SAW_NOTHING;

        if (s == BOUND_ACTIVE)
                sight = f->machine.state == FENCING_UP ? FENCING_SAW_STARTED : FENCING_SAW_UP;
        else if (s == BOUND_SOME)
                sight = FENCING_SAW_UP;
        else if (s == BOUND_NONE)
                sight = has_processes(f) ? FENCING_SAW_LEFTOVER : FENCING_SAW_DOWN;
        fencing_saw(&f->machine, sight);
        /* Not from here: fence_run() may end the connection whose callback this is. */
        loop_timer_in(&f->timer, 0);
}

static void on_accepted(void *userdata)
{
        struct fence *f = userdata;

        fencing_accepted(&f->machine);
        loop_timer_in(&f->timer, 0);
}

static void act(struct fence *f, unsigned acts, struct boot_time now)
{
        /* The urgent acts first; those that may take long last. */
        if (acts & FENCING_FREEZE)
                each_group(f, false, freeze);
        if (acts & FENCING_KILL) {
                each_group(f, f->machine.lost && !f->mounts_killed, kill_all);
                f->mounts_killed = f->machine.lost;
        }
        if (acts & FENCING_CLOSE)
                gate_close();
        if (acts & FENCING_REBOOT)
                reboot_now(f->pid1);
        if (acts & FENCING_STOP)
                bound_stop(f->bound, on_accepted, f);
        if (acts & FENCING_ALARM)
                alarm_people(f, acts & FENCING_REBOOT);
        if (acts & FENCING_CLOSE)
                log_info("Stopping %s.", bound_root(f->bound));
        if (acts & FENCING_THAW)
                thaw_all(f);
        if (acts & FENCING_FORGET) {
                count(f, now);
                tell_down(f, now);
                gate_forget(&f->gate);
                forget(&f->told);
        }
        if (acts & FENCING_OPEN) {
                if (!open_gate(f)) {
                        fencing_barred(&f->machine);
                        return;
                }
                log_info("Starting %s.", bound_root(f->bound));
        }
        if (acts & FENCING_START)
                bound_start(f->bound);
        if (acts & FENCING_LOOK)
                bound_look(f->bound, on_seen, f);
}

void fence_run(struct fence *f, const struct session *s, bool leave, struct boot_time now)
{
        struct fencing_place p;

        f->session = s;
        f->leave = leave;
        if (!f->bound)
                return;
        p = place(f, now);
        act(f, fencing_next(&f->machine, &p, now), now);
        tell_held_back(f, &p);
        f->held_back &= f->machine.state != FENCING_UP;
        keep_gate(f);
        loop_timer_arm(&f->timer, fencing_wakeup(&f->machine, &p, now));
}

/* ---- ---- */

/* Acts at once, before anything else in this turn. The guard does not: what it knows of the
 * place may be old, so it reads it first, in the hook of this turn. */
static void on_timer(struct loop_timer *t)
{
        struct fence *f = container_of(t, struct fence, timer);

        if (f->changed)
                fence_run(f, f->session, f->leave, boot_now());
}

static void on_changed(void *userdata)
{
        struct fence *f = userdata;

        if (!f->changed)
                return;
        fence_known_save(f->bound);
        f->changed(f);
}

static void on_settled(void *userdata)
{
        struct fence *f = userdata;

        fencing_settled(&f->machine);
        loop_timer_in(&f->timer, 0);
}

int fence_init(struct fence *f, struct loop *l, struct pid1 *pid1, const char *target,
               const struct fencing_config *cfg, void (*changed)(struct fence *f))
{
        int r;

        *f = (struct fence){.pid1 = pid1, .gate = {-1}, .guarded = true, .changed = changed};
        loop_timer_init(&f->timer, l, on_timer);
        if (!*target || !pid1)
                return 0;
        fencing_init(&f->machine, cfg, gate_is_open(), gate_is_stopping());
        r = bound_new(&f->bound, l, target, on_changed, on_settled, f);
        if (r < 0)
                return r;
        fence_known_load(f->bound);
        if (changed) {
                gate_take(&f->gate);
                bound_follow(f->bound);
        }
        if (f->machine.perhaps_frozen)
                remember_marked(f);
        if (!cgroup_is_there())
                log_warning("This host has no control groups v2: units bound to %s can "
                            "be stopped only while systemd answers.",
                            target);
        return 0;
}

void fence_set(struct fence *f, const struct fencing_config *cfg)
{
        f->machine.cfg = *cfg;
}

void fence_fini(struct fence *f)
{
        if (f->timer.loop)
                loop_timer_disarm(&f->timer);
        f->bound = bound_free(f->bound);
        forget(&f->frozen);
        forget(&f->told);
        free(f->warnings);
        f->warnings = NULL;
}
