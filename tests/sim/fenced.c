/* Hosts on which units are bound to the place: the turns of the agent's fence and of the guard,
 * what disturbs them, and what must not happen. */
#include "units.h"

#include <signal.h>

#include "base/log.h"
#include "member/member.h"
#include "world.h"

#define RESTART (100 * MSEC) /* RestartSec= of both programs */
/* What a service manager that hung starts outside of the slice has a group that nobody could
 * freeze before: it is frozen when all is frozen again. */
#define FROZEN_AGAIN (25 * MSEC)
#define BOOTS_MOST 12 /* what holder's list has room for */

static bool host_sleeps(const struct units *u)
{
        return W->now < u->holder->asleep_until &&
               u->holder->asleep_until > u->agent_hangs_until;
}

static bool agent_acts(const struct units *u)
{
        return u->fencing && W->now >= u->holder->asleep_until;
}

static bool guard_acts(const struct units *u)
{
        return u->guard && W->now >= u->guard_hangs_until && !host_sleeps(u);
}

/* ---- what must not happen ---- */

static struct place_seen *place_of(struct units *u, int64_t lease)
{
        for (size_t i = u->n_places; i-- > 0;)
                if (u->places[i].lease == lease)
                        return &u->places[i];
        return NULL;
}

/* What a service manager that was late makes after the end of a place is frozen the next time.
 * A unit in the slice is frozen from the start, if the slice was there to be frozen. */
static bool is_new(const struct units *u, const struct unit *t, const struct process *p)
{
        return W->now - (t->in_slice ? u->slice_since : p->began) <= FROZEN_AGAIN;
}

/* I9: nothing runs once the place with which it was started may have ended. */
static void check_running(struct units *u)
{
        struct boot_time now = holder_now(u->holder);

        for (size_t i = 0; i < u->n; i++) {
                struct process *p = unit_runs(u, &u->u[i]);
                const struct place_seen *s = p ? place_of(u, p->lease) : NULL;

                if (!p || (s && boot_before(now, s->deadline)) || is_new(u, &u->u[i], p))
                        continue;
                if (!agent_acts(u) && !guard_acts(u)) {
                        W->counts.unfenced += !p->escaped;
                        p->escaped = true;
                        continue;
                }
                fail(W,
                     "I9: on host %u, %s%s runs %.3f s after the end of its place %llx; agent "
                     "%s, guard %s",
                     u->holder->i, u->u[i].name, u->u[i].in_slice ? " (in the slice)" : "",
                     s ? (double) boot_diff(now, s->deadline) / 1e9 : 0.0,
                     (unsigned long long) p->lease, agent_acts(u) ? "acts" : "does not",
                     guard_acts(u) ? "acts" : "does not");
        }
}

/* Not only by our own clock. */
void fenced_lease_ended(struct holder *h, int64_t lease)
{
        struct units *u = h->units;

        for (size_t i = 0; i < u->n && !host_sleeps(u); i++) {
                const struct process *p = unit_runs(u, &u->u[i]);

                if (p && p->lease == lease && !p->escaped && W->now - p->began > FROZEN_AGAIN &&
                    (agent_acts(u) || guard_acts(u)))
                        fail(W, "I9: lease %llx has ended, and %s of host %u runs",
                             (unsigned long long) lease, u->u[i].name, h->i);
        }
}

static bool all_is_down(const struct units *u)
{
        for (size_t i = 0; i < u->n; i++)
                if (u->u[i].state != UNIT_DOWN || unit_has_processes(&u->u[i]))
                        return false;
        return true;
}

/* A host that is refused gets a lease each time. Nothing may run by one that is over, known or
 * not. */
static void forget_place(struct units *u)
{
        if (boot_before(holder_now(u->holder), u->places[0].deadline))
                return;
        u->n_places--;
        memmove(u->places, u->places + 1, u->n_places * sizeof(u->places[0]));
}

void fenced_place(struct holder *h, int64_t lease, struct boot_time deadline, bool is_new)
{
        struct units *u = h->units;
        struct place_seen *s = place_of(u, lease);

        if (is_new && !s && !all_is_down(u))
                fail(W, "I9: host %u has asked for a place before all is down", h->i);
        if (is_new && !s)
                steady_granted(u, member_session(h->member)->renewed_at);
        if (!s && u->n_places == PLACES_MAX)
                forget_place(u);
        if (!s && u->n_places == PLACES_MAX)
                return fail_full(W, "places of a host");
        if (!s)
                s = &u->places[u->n_places++];
        *s = (struct place_seen){lease, boot_max(s->deadline, deadline)};
}

/* ---- the agent ---- */

static void on_bound(struct fence *f)
{
        (void) f; /* it would check whether all can be fenced in time, and warn */
}

static void keep_out(struct units *u)
{
        u->kept_out = !fence_is_down(&u->fence);
        member_suppress(u->holder->member,
                        u->kept_out ? BOOT_TIME_NEVER : u->steady.damping.until);
}

void fenced_start(struct holder *h, bool resumed)
{
        struct units *u = h->units;
        static int pid1; /* not NULL is all that counts */

        ground_enter(u);
        loop_init(&u->agent_loop, &h->clock);
        u->agent_life++;
        W->met.stopping_start += u->run.stopping != 0;
        units_tell(u, "an agent starts");
        if (fence_init(&u->fence, &u->agent_loop, (struct pid1 *) &pid1, HELD_TARGET, &u->cfg,
                       on_bound) < 0)
                abort();
        u->fencing = true;
        u->back_at = u->watchdog_at = NEVER;
        u->leaving = (struct leaving){0};
        keep_out(u);
        steady_start(u);
        if (!u->out)
                return;
        leaving_begin(&u->leaving, LEAVING_MAINTENANCE, "left");
        if (resumed)
                return;
        member_leave(h->member, "left", "");
        leaving_is_out(&u->leaving);
}

void fenced_killed(struct holder *h)
{
        struct units *u = h->units;

        if (!u->fencing)
                return;
        units_tell(u, "the agent is killed");
        ground_die(u, true);
        fence_fini(&u->fence);
        ground_die(u, false);
        u->fencing = false;
        u->run.lock = 0;
        u->agent_ended = true;
        ground_tell_guard(u);
        if (W->now < u->agent_hangs_until)
                h->asleep_until = u->agent_hangs_until = W->now;
}

void fenced_listen(struct holder *h)
{
        ground_enter(h->units);
        while (ground_listen(&h->units->agent_loop))
                ;
}

void fenced_lost(struct holder *h)
{
        struct units *u = h->units;

        ground_enter(u);
        fence_run(&u->fence, member_session(h->member), leaving_is_under_way(&u->leaving),
                  holder_now(h));
        steady_lost(u);
        keep_out(u);
}

void fenced_renewed(struct holder *h, const struct session_renewal *r)
{
        steady_renewed(h->units, r);
}

static void leave(struct units *u)
{
        struct holder *h = u->holder;
        struct leaving_sight s = {.down = fence_is_down(&u->fence),
                                  .released = true,
                                  .left = h->announced == SESSION_LEFT};
        unsigned acts = leaving_next(&u->leaving, &s);

        if (acts & LEAVING_GIVE_BACK) {
                if (!all_is_down(u))
                        fail(W, "I9: host %u gives its place back before all is down", h->i);
                h->left_by = W->now + 1100 * MSEC;
                member_leave(h->member, u->leaving.reason, "");
        }
        if (acts & LEAVING_JOIN) {
                h->left_by = 0;
                h->announced = SESSION_JOINING;
                member_join(h->member);
        }
}

/* In the order of the steps of agent/tenured/main.c. */
void fenced_run(struct holder *h)
{
        struct units *u = h->units;

        ground_enter(u);
        fence_run(&u->fence, member_session(h->member), leaving_is_under_way(&u->leaving),
                  holder_now(h));
        if (u->kept_out == fence_is_down(&u->fence))
                keep_out(u);
        leave(u);
        steady_run(u);
        u->wake = 0;
}

void fenced_leave(struct holder *h)
{
        h->units->out = true;
        leaving_begin(&h->units->leaving, LEAVING_MAINTENANCE, "shutdown");
}

void fenced_join(struct holder *h)
{
        h->units->out = false;
        leaving_end(&h->units->leaving, LEAVING_MAINTENANCE);
        steady_joins(h->units);
        keep_out(h->units);
}

nsec_t fenced_next(const struct holder *h)
{
        return min_of(ground_next(&h->units->agent_loop), h->units->steady.look_at);
}

/* ---- the guard ---- */

static void end_guard(struct units *u, bool killed)
{
        if (!u->guard)
                return;
        units_tell(u, "the guard %s", killed ? "is killed" : "ends");
        ground_die(u, killed);
        u->guard = guard_free(u->guard);
        ground_die(u, false);
        u->guard_loop = loop_free(u->guard_loop);
        u->guard_at = W->now + RESTART;
        u->guard_hangs_until = 0;
}

static void start_guard(struct units *u)
{
        units_tell(u, "a guard starts");
        ground_enter(u);
        if (loop_new(&u->guard_loop) < 0 || guard_new(&u->guard, u->guard_loop) < 0)
                abort();
        u->agent_ended = false;
}

static void run_guard(struct units *u)
{
        struct loop *l = u->guard_loop;

        ground_enter(u);
        u->guard_runs = true;
        if (u->agent_ended && l->end_of_agent)
                l->end_of_agent->fn(l->end_of_agent, EV_READ);
        u->agent_ended = false;
        do {
                struct boot_time next;

                while (ground_listen(l))
                        ;
                u->guard_at = NEVER;
                next = l->hook->run(l->hook, holder_now(u->holder));
                u->guard_at = min_of(u->guard_at, true_time_of(W, &u->holder->clock, next));
                u->guard_at = min_of(u->guard_at, ground_next(l));
        } while (u->guard_at <= W->now && !l->stopped);
        u->guard_runs = false;
        if (l->stopped)
                end_guard(u, false);
}

static void guard_turn(struct units *u)
{
        bool manager = W->now >= u->hangs_until;

        if (u->guard_at > W->now)
                return;
        if (!u->guard && manager)
                start_guard(u);
        if (u->guard && W->now >= u->guard_hangs_until)
                run_guard(u);
}

/* ---- what happens to the host ---- */

void fenced_reboot(struct holder *h)
{
        struct units *u = h->units;

        end_guard(u, true);
        units_reboot(u);
        u->reboots = false;
        steady_reboot(u);
        u->boots_until = 0;
        u->guard_at = W->now;
        u->out = u->out && units_chance(u, 50); /* ordered for good, or for this boot */
}

static void restart_agent(struct units *u, nsec_t after)
{
        holder_kill(u->holder);
        u->back_at = W->now + after;
}

static void hang_agent(struct units *u)
{
        struct holder *h = u->holder;

        if (!u->fencing || W->now < h->asleep_until)
                return;
        W->counts.hangs++;
        units_tell(u, "the agent hangs");
        u->agent_hangs_until = h->asleep_until = W->now + units_time(u, 50 * MSEC, 4000 * MSEC);
        u->watchdog_at = W->now + max_of(h->cfg.ttl / 4, 250 * MSEC);
        h->wake = 0;
}

/* People start a unit once or again and again, when they should and when they should not. */
static void ask_for_unit(struct units *u)
{
        unsigned n = (unsigned) rnd_between(&u->rnd, 1, 6);
        nsec_t at = W->now;

        for (unsigned i = 0; i < n; i++) {
                (void) units_ask(u,
                                 &(struct question_sent){
                                         .what = units_chance(u, 20) ? ASK_START : ASK_UNIT,
                                         .unit = (unsigned) rnd_between(&u->rnd, 0, u->n - 1),
                                         .at = at});
                at += units_time(u, 0, 200 * MSEC);
        }
}

static void kill_unit(struct units *u)
{
        struct unit *t = &u->u[rnd_between(&u->rnd, 0, u->n - 1)];

        if (unit_runs(u, t))
                units_kill(u, t);
}

static void hang_manager(struct units *u)
{
        u->hangs_until = W->now + units_time(u, 20 * MSEC, 4000 * MSEC);
        units_tell(u, "the service manager hangs until %.3f s", (double) u->hangs_until / 1e9);
}

static void hang_guard(struct units *u)
{
        if (!u->guard)
                return;
        u->guard_hangs_until = W->now + units_time(u, 50 * MSEC, 3000 * MSEC);
        units_tell(u, "the guard hangs");
}

static void cause_trouble(struct units *u)
{
        unsigned what = (unsigned) rnd_between(&u->rnd, 1, 100);

        if (what <= 35)
                ask_for_unit(u);
        else if (what <= 45)
                kill_unit(u);
        else if (what <= 60)
                hang_manager(u);
        else if (what <= 72)
                hang_agent(u);
        else if (what <= 82)
                restart_agent(u, RESTART);
        else if (what <= 90)
                end_guard(u, true);
        else
                hang_guard(u);
}

/* Most of it comes when it does most harm: while units stop, and before they have to. */
static nsec_t until_trouble(struct units *u)
{
        struct boot_time now = holder_now(u->holder);
        nsec_t left =
                u->n_places == 0 ? NEVER : boot_diff(u->places[u->n_places - 1].deadline, now);
        bool soon = u->target == TARGET_STOPPING || (left > 0 && left < u->holder->cfg.ttl / 2);

        return soon ? units_time(u, 5 * MSEC, 500 * MSEC)
                    : units_time(u, 100 * MSEC, 3000 * MSEC);
}

static void go_on(struct world *w, struct units *u)
{
        struct holder *h = u->holder;

        if (u->reboots && h->boot < BOOTS_MOST) {
                w->counts.reboots++;
                holder_reboot(h);
                u->boots_until = u->back_at = w->now + units_time(u, 500 * MSEC, 3000 * MSEC);
        }
        u->reboots = false;
        if (w->now >= u->watchdog_at && w->now >= u->hangs_until) {
                u->watchdog_at = NEVER;
                if (w->now < u->agent_hangs_until)
                        restart_agent(u, RESTART);
        }
        if (w->now >= u->back_at && w->now >= u->hangs_until && !h->alive)
                holder_start(h);
        if (w->now < u->trouble_at || w->calm)
                return;
        u->trouble_at = w->now + until_trouble(u);
        cause_trouble(u);
}

void fenced_turn(struct world *w, struct holder *h)
{
        struct units *u = h->units;

        if (host_sleeps(u) || w->now < u->boots_until) {
                u->wake = host_sleeps(u) ? h->asleep_until : u->boots_until;
                return;
        }
        go_on(w, u);
        guard_turn(u);
        u->wake = units_run(u);
        guard_turn(u);
        u->wake = min_of(u->wake, u->guard ? max_of(u->guard_at, u->guard_hangs_until)
                                           : max_of(u->guard_at, u->hangs_until));
        u->wake = min_of(u->wake, w->calm ? NEVER : u->trouble_at);
        u->wake = min_of(u->wake, max_of(u->watchdog_at, u->hangs_until));
        u->wake = min_of(u->wake, max_of(u->back_at, u->hangs_until));
}

void fenced_check(struct holder *h)
{
        const struct units *u = h->units;
        const struct place_seen *s = u->n_places > 0 ? &u->places[u->n_places - 1] : NULL;
        bool ended = s && !boot_before(holder_now(h), s->deadline);

        if (ended && !u->ended && u->target != TARGET_DOWN) {
                W->met.deaf_deadline += W->now < u->hangs_until;
                W->met.slept_place += host_sleeps(u);
        }
        h->units->ended = ended;
        if (!host_sleeps(u))
                check_running(h->units);
}

/* Whether the last place has not ended, by the holder's own clock: the guard waits for that. */
static bool place_stands(const struct units *u)
{
        return u->n_places > 0 &&
               boot_before(holder_now(u->holder), u->places[u->n_places - 1].deadline);
}

/* The fence waits, for many TTLs, where renewals came too late again and again. */
bool fenced_is_settled(const struct holder *h)
{
        const struct units *u = h->units;

        if (!h->alive)
                return all_is_down(u) || place_stands(u);
        if (!holder_holds(h, 0) || u->fence.machine.calm > 0)
                return true;
        if (u->target != TARGET_UP || u->run.held == 0 || u->slice_frozen)
                return false;
        for (size_t i = 0; i < u->n; i++)
                if (u->u[i].frozen ||
                    (u->u[i].wanted && u->u[i].restart && u->u[i].state == UNIT_DOWN))
                        return false;
        return true;
}

void fenced_begin(struct world *w, struct holder *h)
{
        struct units *u = calloc(1, sizeof(*u));

        if (!u)
                abort();
        h->units = u;
        units_begin(u, w, h);
        u->cfg = (struct fencing_config){.lead = units_time(u, 200 * MSEC, 1000 * MSEC),
                                         .reboot = units_chance(u, 20)};
        steady_begin(u);
        u->back_at = u->watchdog_at = NEVER;
        u->trouble_at = units_time(u, 500 * MSEC, 3000 * MSEC);
}

void fenced_end(struct holder *h)
{
        if (!h->units)
                return;
        end_guard(h->units, true);
        steady_end(h->units);
        free(h->units);
        h->units = NULL;
}
