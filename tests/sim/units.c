/* Units that are bound to a host's place: their processes, and the kernel, the service manager
 * and the people that start, freeze and end them. */
#include "units.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/log.h"
#include "world.h"

bool units_chance(struct units *u, unsigned percent)
{
        return chance_in(&u->rnd, percent);
}

nsec_t units_time(struct units *u, nsec_t lo, nsec_t hi)
{
        return time_in(&u->rnd, lo, hi);
}

void units_tell(const struct units *u, const char *fmt, ...)
{
        char text[128];
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        log_debug("%.3f s: host %u: %s", (double) W->now / 1e9, u->holder->i, text);
}

static bool is_hanging(const struct units *u)
{
        return W->now < u->hangs_until;
}

/* ---- processes, and what the kernel does with them ---- */

bool unit_has_processes(const struct unit *t)
{
        for (size_t i = 0; i < PROCESSES_MAX; i++)
                if (t->p[i].alive)
                        return true;
        return false;
}

bool unit_is_frozen(const struct units *u, const struct unit *t)
{
        return t->frozen || (t->in_slice && u->slice_frozen);
}

struct process *unit_runs(const struct units *u, struct unit *t)
{
        if (unit_is_frozen(u, t))
                return NULL;
        for (size_t i = 0; i < PROCESSES_MAX; i++)
                if (t->p[i].alive && !t->p[i].killed)
                        return &t->p[i];
        return NULL;
}

bool units_slice_is_there(const struct units *u)
{
        for (size_t i = 0; i < u->n; i++)
                if (u->u[i].in_slice && u->u[i].there)
                        return true;
        return u->target != TARGET_DOWN;
}

/* What it began stays unfinished, and memory takes a while to be given back. */
static void kill_process(struct units *u, struct process *p)
{
        if (!p->alive || p->killed)
                return;
        p->killed = true;
        p->ends_at = W->now + units_time(u, 0, 3 * MSEC);
}

void units_kill(struct units *u, struct unit *t)
{
        W->met.outlived += t->state == UNIT_DOWN && unit_has_processes(t);
        for (size_t i = 0; i < PROCESSES_MAX; i++) {
                W->counts.unit_kills += t->p[i].alive && !t->p[i].killed;
                kill_process(u, &t->p[i]);
        }
}

/* It belongs to the place that the host had last, whether that has ended or not. */
static void fork_process(struct units *u, struct unit *t, unsigned as, nsec_t ends_at)
{
        t->p[as] = (struct process){.alive = true,
                                    .began = W->now,
                                    .lease = u->n_places > 0 ? u->places[u->n_places - 1].lease
                                                             : 0,
                                    .ends_at = ends_at};
        t->there = true;
}

static void end_processes(struct units *u)
{
        for (size_t i = 0; i < u->n; i++) {
                struct unit *t = &u->u[i];
                bool frozen = unit_is_frozen(u, t);

                for (size_t k = 0; k < PROCESSES_MAX; k++)
                        if (t->p[k].alive && t->p[k].ends_at <= W->now &&
                            (t->p[k].killed || !frozen))
                                t->p[k].alive = false;
        }
}

/* ---- the service manager: one unit ---- */

static void terminate(struct process *p, nsec_t takes)
{
        p->ends_at = min_of(p->ends_at, W->now + takes);
}

static void start_unit(struct units *u, struct unit *t)
{
        if (t->state != UNIT_DOWN && t->state != UNIT_WAITING)
                return;
        t->state = UNIT_STARTING;
        t->due = W->now + units_time(u, 0, 10 * MSEC);
}

static void stop_unit(struct units *u, struct unit *t)
{
        (void) u;
        if (t->state == UNIT_DOWN)
                return;
        t->stop = true;
        if (t->state == UNIT_STARTING || t->state == UNIT_WAITING) {
                t->due = W->now;
        } else if (t->state == UNIT_UP) {
                t->state = UNIT_STOPPING;
                t->due = W->now + t->stop_timeout;
                if (!t->stubborn)
                        terminate(&t->p[P_MAIN], t->stop_takes);
        }
}

static void enter_final(struct unit *t)
{
        t->state = UNIT_FINAL;
        t->due = W->now + t->stop_timeout;
}

static void main_has_ended(struct units *u, struct unit *t)
{
        if (t->post_takes == 0)
                return enter_final(t);
        fork_process(u, t, P_POST, W->now + t->post_takes);
        t->state = UNIT_POST;
        t->due = W->now + t->stop_timeout;
}

static void unit_has_ended(struct units *u, struct unit *t)
{
        if (!t->stop && t->restart && u->target == TARGET_UP) {
                t->state = UNIT_WAITING;
                t->due = W->now + t->restart_after;
                return;
        }
        units_tell(u, "%s is down", t->name);
        t->state = UNIT_DOWN;
        t->stop = false;
        t->due = NEVER;
        t->lingers = units_chance(u, 20);
}

static void fork_main(struct units *u, struct unit *t)
{
        W->counts.units_started++;
        units_tell(u, "%s starts", t->name);
        t->state = UNIT_UP;
        t->due = NEVER;
        fork_process(u, t, P_MAIN, t->life > 0 ? W->now + units_time(u, 0, t->life) : NEVER);
        for (unsigned i = 0; i < t->n_children; i++)
                if (!t->p[P_CHILD + i].alive) {
                        W->counts.unit_forks++;
                        fork_process(u, t, P_CHILD + i, NEVER);
                }
}

static void step_unit(struct units *u, struct unit *t)
{
        bool due = t->due <= W->now;

        switch (t->state) {
        case UNIT_DOWN:
                if (t->there && !unit_has_processes(t) && !t->lingers)
                        t->there = t->frozen = false;
                return;
        case UNIT_STARTING:
                if (due && !t->stop)
                        fork_main(u, t);
                else if (due)
                        unit_has_ended(u, t);
                return;
        case UNIT_WAITING:
                if (!due)
                        return;
                if (t->stop || u->target != TARGET_UP)
                        unit_has_ended(u, t);
                else
                        start_unit(u, t);
                W->counts.unit_restarts += t->state == UNIT_STARTING;
                return;
        case UNIT_UP:
        case UNIT_STOPPING:
                if (!t->p[P_MAIN].alive)
                        return main_has_ended(u, t);
                if (!due)
                        return;
                W->counts.units_late++;
                t->due = NEVER;
                if (t->only_main)
                        kill_process(u, &t->p[P_MAIN]);
                else
                        units_kill(u, t);
                return;
        case UNIT_POST:
                if (!t->p[P_POST].alive)
                        return enter_final(t);
                if (due)
                        kill_process(u, &t->p[P_POST]);
                if (due)
                        t->due = NEVER;
                return;
        case UNIT_FINAL:
                if (t->only_main || !unit_has_processes(t))
                        return unit_has_ended(u, t);
                if (due)
                        units_kill(u, t);
                if (due)
                        t->due = NEVER;
                return;
        }
}

/* ---- the service manager: messages ---- */

bool units_ask(struct units *u, const struct question_sent *q)
{
        if (u->n_asked == ARRAY_SIZE(u->asked))
                return false;
        u->asked[u->n_asked++] = *q;
        return true;
}

static bool all_are_down(const struct units *u)
{
        for (size_t i = 0; i < u->n; i++)
                if (u->u[i].state != UNIT_DOWN)
                        return false;
        return u->target == TARGET_DOWN;
}

/* With what it wants. A stop that cannot be replaced is under way, or the assertion of the
 * target decides. */
static bool start_target(struct units *u)
{
        if (u->target == TARGET_STOPPING)
                return false;
        if (u->target == TARGET_DOWN && u->run.held == 0)
                return false;
        u->target = TARGET_UP;
        for (size_t i = 0; i < u->n; i++)
                if (u->u[i].wanted)
                        start_unit(u, &u->u[i]);
        return true;
}

static void stop_target(struct units *u)
{
        if (u->target != TARGET_UP)
                return;
        units_tell(u, "%s stops", "the target");
        u->target = TARGET_STOPPING;
        for (size_t i = 0; i < u->n; i++)
                stop_unit(u, &u->u[i]);
}

static void answer(struct units *u, const struct question_sent *q)
{
        struct question_sent again = *q;

        switch (q->what) {
        case ASK_START:
                (void) start_target(u);
                return ground_answer(u, q, BOUND_UNKNOWN);
        case ASK_STOP:
                stop_target(u);
                return ground_answer(u, q, BOUND_UNKNOWN);
        case ASK_UNIT:
                W->counts.units_asked++;
                if (u->target == TARGET_UP || start_target(u))
                        start_unit(u, &u->u[q->unit]);
                else
                        W->counts.units_refused++;
                return;
        case ASK_LOOK:
                if (u->target == TARGET_UP)
                        return ground_answer(u, q, BOUND_ACTIVE);
                if (!all_are_down(u))
                        return ground_answer(u, q, BOUND_SOME);
                /* What has been bound meanwhile counts as well, so all are asked for again. */
                again.what = ASK_SET;
                again.at = W->now + units_time(u, 100 * NSEC_PER_USEC, 2 * MSEC);
                (void) units_ask(u, &again);
                return;
        case ASK_SET:
                return ground_answer(u, q, all_are_down(u) ? BOUND_NONE : BOUND_SOME);
        }
}

/* In the order in which they have come. */
static bool answer_one(struct units *u)
{
        for (size_t i = 0; i < u->n_asked; i++) {
                struct question_sent q = u->asked[i];

                if (q.at > W->now)
                        continue;
                memmove(&u->asked[i], &u->asked[i + 1],
                        (--u->n_asked - i) * sizeof(u->asked[0]));
                answer(u, &q);
                return true;
        }
        return false;
}

static void manage(struct units *u)
{
        bool down = true;

        while (answer_one(u))
                ;
        for (size_t i = 0; i < u->n; i++) {
                enum unit_state was;

                do {
                        was = u->u[i].state;
                        step_unit(u, &u->u[i]);
                } while (u->u[i].state != was);
                down = down && u->u[i].state == UNIT_DOWN;
        }
        if (u->target == TARGET_STOPPING && down)
                u->target = TARGET_DOWN;
        if (!units_slice_is_there(u)) {
                u->slice_frozen = false;
                u->slice_since = NEVER;
        } else if (u->slice_since == NEVER) {
                u->slice_since = W->now;
        }
}

static nsec_t next_of(const struct units *u)
{
        nsec_t at = NEVER, manager = NEVER;

        for (size_t i = 0; i < u->n; i++) {
                const struct unit *t = &u->u[i];
                bool frozen = unit_is_frozen(u, t);

                manager = min_of(manager, t->due);
                for (size_t k = 0; k < PROCESSES_MAX; k++)
                        if (t->p[k].alive && (t->p[k].killed || !frozen))
                                at = min_of(at, t->p[k].ends_at);
        }
        for (size_t i = 0; i < u->n_asked; i++)
                manager = min_of(manager, u->asked[i].at);
        return min_of(at, is_hanging(u) ? u->hangs_until : manager);
}

nsec_t units_run(struct units *u)
{
        end_processes(u);
        if (!is_hanging(u))
                manage(u);
        return next_of(u);
}

void units_reboot(struct units *u)
{
        for (size_t i = 0; i < u->n; i++) {
                struct unit *t = &u->u[i];

                memset(t->p, 0, sizeof(t->p));
                t->state = UNIT_DOWN;
                t->stop = t->there = t->frozen = false;
                t->due = NEVER;
        }
        u->target = TARGET_DOWN;
        u->slice_frozen = false;
        u->slice_since = NEVER;
        u->hangs_until = 0;
        u->n_asked = 0;
        u->run = (struct run_files){.last = u->run.last};
}

static void draw(struct units *u, struct unit *t, unsigned i)
{
        *t = (struct unit){
                .in_slice = units_chance(u, 70),
                .restart = units_chance(u, 60),
                .wanted = units_chance(u, 80),
                .only_main = units_chance(u, 25),
                .stop_timeout = units_time(u, 100 * MSEC, 3000 * MSEC),
                .restart_after = units_time(u, 0, 200 * MSEC),
                .stubborn = units_chance(u, 30),
                .stop_takes = units_chance(u, 70) ? units_time(u, 0, 100 * MSEC)
                                                  : units_time(u, 0, 2000 * MSEC),
                .post_takes = units_chance(u, 50) ? 0 : units_time(u, MSEC, 300 * MSEC),
                .life = units_chance(u, 50) ? 0 : units_time(u, 200 * MSEC, 8000 * MSEC),
                .n_children = (unsigned) rnd_between(&u->rnd, 0, P_POST - P_CHILD),
                .due = NEVER,
        };
        snprintf(t->name, sizeof(t->name), "u%u.service", i);
        snprintf(t->group, sizeof(t->group), "%s/%s",
                 t->in_slice ? SLICE_GROUP : "/system.slice", t->name);
}

void units_begin(struct units *u, struct world *w, struct holder *h)
{
        *u = (struct units){.holder = h};
        rnd_init(&u->rnd, w->seed * HOLDERS_MAX + h->i + 77);
        u->n = (unsigned) rnd_between(&u->rnd, 1, UNITS_MAX);
        for (unsigned i = 0; i < u->n; i++)
                draw(u, &u->u[i], i);
}
