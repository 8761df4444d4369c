#include "guard.h"

#include <stdio.h>
#include <sys/pidfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "bus/journal.h"
#include "bus/notify.h"
#include "fence.h"
#include "keep.h"
#include "memory.h"
#include "names.h"
#include "options.h"
#include "session/guarding.h"

/* How soon the guard looks again after its fence is done, or could not be made. */
#define LOOK_AGAIN (100 * NSEC_PER_MSEC)

struct guard {
        struct loop *loop;
        struct pid1 *pid1;
        struct options opt;
        struct {
                struct loop_io io; /* its pidfd */
                int fd;            /* -1: no agent is responsible for the gate */
                pid_t pid;
        } agent;
        struct guarding machine;
        struct session session; /* as the agent wrote it last */
        struct fence fence;
        bool fences; /* there is a fence */
        char target[256];
        struct fencing_config fencing;
        bool ending;              /* SIGTERM */
        bool restarting;          /* SIGUSR1 */
        bool settings_old;        /* they may have changed */
        nsec_t watchdog;          /* its period; 0: none */
        struct boot_time beat_at; /* when to notify the watchdog next */
        int fd;                   /* its socket, on which the agent reports changes */
        struct loop_io news;
        struct loop_hook hook;
        struct loop_signal sigterm, sigusr1, sighup;
};

/* ---- files of the agent ---- */

static void read_settings(struct guard *g)
{
        struct options fresh = {0};
        struct conf_error err = {""};
        int r = conf_defaults(options_table, n_options, &fresh);

        if (r == 0)
                r = options_read(&fresh, NULL, &err);
        if (r < 0) {
                conf_clear(options_table, n_options, &fresh);
                log_warning("%s. Continuing with %s settings.", err.text,
                            g->opt.held_target ? "the earlier" : "the default");
                if (g->opt.held_target || conf_defaults(options_table, n_options, &fresh) < 0)
                        return;
        }
        conf_clear(options_table, n_options, &g->opt);
        g->opt = fresh;
        log_set_level(g->opt.log_level);
}

/* Only when there is time: reading a file may hang with its disk. Returns whether it was done.
 */
static bool refresh(struct guard *g)
{
        bool due = g->settings_old;

        g->settings_old = false;
        if (due)
                read_settings(g);
        return due;
}

/* Reads the place that the agent wrote last. False: that failed, and nothing counts as held. */
static bool read_place(struct guard *g)
{
        struct session_config cfg = {.ttl = g->opt.ttl,
                                     .drift_ppm = (uint32_t) g->opt.drift_ppm,
                                     .retry = NSEC_PER_SEC};
        struct place p;
        bool known;

        session_init(&g->session, &cfg);
        known = keep_peek(&p);
        if (known)
                session_resume(&g->session, &p.session, boot_now());
        return known;
}

static void forget_agent(struct guard *g)
{
        loop_io_stop(&g->agent.io);
        if (g->agent.fd >= 0)
                close(g->agent.fd);
        g->agent.fd = -1;
        g->agent.pid = 0;
}

/* The agent has ended; the hook looks for another one. */
static void on_agent_end(struct loop_io *io, int events unused_)
{
        forget_agent(container_of(io, struct guard, agent.io));
}

static bool find_agent(struct guard *g)
{
        pid_t pid = gate_keeper();

        /* A known agent counts as alive until its pidfd says otherwise, even if its lock can no
         * longer be seen because somebody has touched the file. */
        if (pid == 0 || pid == g->agent.pid)
                return g->agent.pid != 0;
        forget_agent(g);
        g->agent.fd = pidfd_open(pid, 0);
        /* The process id may be reused already. */
        if (g->agent.fd < 0 || gate_keeper() != pid) {
                forget_agent(g);
                return false;
        }
        g->agent.pid = pid;
        g->agent.io.what = "the end of the agent";
        loop_io_start(&g->agent.io, g->loop, g->agent.fd, EV_READ, on_agent_end);
        g->settings_old = true; /* this agent may have other ones */
        return true;
}

/* ---- the fence ---- */

/* What may be up, and how the agent fences it: its settings may have changed since, or be those
 * of its command line. A fence borrows the name. */
static void read_target(struct guard *g)
{
        if (g->fences)
                return;
        g->fencing = options_fencing(&g->opt);
        if (!names_target(NAMES_TARGET, g->target, &g->fencing))
                snprintf(g->target, sizeof(g->target), "%s", g->opt.held_target);
}

static void put_down(struct guard *g)
{
        if (g->fences) {
                fence_release(&g->fence);
                fence_fini(&g->fence);
        }
        g->fences = false;
}

static bool take_up(struct guard *g)
{
        int r;

        if (g->fences)
                return true;
        r = fence_init(&g->fence, g->loop, g->pid1, g->target, &g->fencing, NULL);
        if (r < 0)
                log_error("Cannot reach the service manager: %s.", strerror(-r));
        g->fences = r == 0;
        return g->fences;
}

static void thaw(struct guard *g)
{
        if (!take_up(g))
                return;
        fence_thaw(&g->fence);
        guarding_thawed(&g->machine);
        put_down(g);
}

/* Returns whether the fence is done. */
static bool run_fence(struct guard *g, struct boot_time now)
{
        /* If one agent has begun to stop units, only another agent starts them again. */
        fence_run(&g->fence, &g->session, !gate_is_open(), now);
        if (!fence_is_down(&g->fence))
                return false;
        put_down(g);
        guarding_down(&g->machine);
        return true;
}

/* ---- deciding ---- */

static struct guarding_sight see(struct guard *g)
{
        struct guarding_sight s = {.ending = g->ending, .restarting = g->restarting};

        if (gate_is_open())
                s.gate = GUARDING_OPEN;
        else if (gate_is_stopping())
                s.gate = GUARDING_STOPPING;
        if (s.gate == GUARDING_CLOSED) {
                forget_agent(g);
                return s;
        }
        s.agent_lives = find_agent(g);
        s.known = read_place(g);
        read_target(g);
        s.place.deadline = session_deadline(&g->session);
        s.place.ttl = g->session.ttl;
        return s;
}

static struct boot_time look(struct guard *g)
{
        struct guarding_sight s = see(g);
        struct boot_time now = boot_now(), again; /* reading files took time */
        unsigned acts;

        s.place.held = session_holds(&g->session, now);
        acts = guarding_next(&g->machine, &s, &g->fencing, now, &again);
        if (acts & GUARDING_RELEASE)
                put_down(g);
        if (acts & GUARDING_THAW)
                thaw(g);
        if (acts & (GUARDING_FREEZE | GUARDING_RUN) && !take_up(g))
                return boot_add(now, LOOK_AGAIN);
        if (acts & GUARDING_FREEZE)
                fence_freeze(&g->fence);
        if (acts & GUARDING_RUN && run_fence(g, now))
                return boot_add(now, LOOK_AGAIN);
        if (acts & GUARDING_SPARE && refresh(g))
                return now;
        if (acts & GUARDING_EXTEND)
                notify_extend(NOTIFY_EXTEND_BY);
        if (acts & GUARDING_EXIT)
                loop_stop(g->loop);
        return again;
}

static struct boot_time run_turn(struct loop_hook *h, struct boot_time now)
{
        struct guard *g = container_of(h, struct guard, hook);

        if (g->watchdog > 0 && !boot_before(now, g->beat_at)) {
                g->beat_at = boot_add(now, g->watchdog / 3);
                notify_watchdog();
        }
        notify_flush();
        return boot_min(look(g), g->watchdog > 0 ? g->beat_at : BOOT_TIME_NEVER);
}

static void on_news(struct loop_io *io, int events unused_)
{
        char word[8];

        while (recv(io->ev.fd, word, sizeof(word), MSG_DONTWAIT) >= 0)
                ;
}

static void on_sigterm(struct loop_signal *s)
{
        container_of(s, struct guard, sigterm)->ending = true;
}

/* RestartKillSignal= of the unit: another guard follows. */
static void on_sigusr1(struct loop_signal *s)
{
        struct guard *g = container_of(s, struct guard, sigusr1);

        g->ending = g->restarting = true;
}

static void on_sighup(struct loop_signal *s)
{
        container_of(s, struct guard, sighup)->settings_old = true;
}

/* ---- ---- */

int guard_new(struct guard **ret, struct loop *l)
{
        cleanup_(guard_freep) struct guard *g = calloc(1, sizeof(*g));
        int r;

        if (!g)
                return -ENOMEM;
        g->agent.fd = -1;
        g->loop = l;
        g->fd = gate_listen();
        if (g->fd == -EADDRINUSE)
                log_error(
                        "Another guard is already running; see systemctl status tenure-guard.");
        else if (g->fd < 0)
                log_error("%s: cannot listen: %s.", GATE_GUARD, strerror(-g->fd));
        if (g->fd < 0)
                return g->fd;
        r = pid1_new(&g->pid1, l);
        if (r < 0) {
                log_error("Cannot reach the service manager: %s.", strerror(-r));
                return r;
        }
        guarding_init(&g->machine, NOTIFY_EXTEND_EACH);
        read_settings(g);
        g->watchdog = notify_watchdog_period();
        g->news.what = "a message from the agent";
        loop_io_start(&g->news, l, g->fd, EV_READ, on_news);
        loop_hook_start(&g->hook, l, LOOP_ACT, run_turn);
        loop_signal_start(&g->sigterm, l, SIGTERM, on_sigterm);
        loop_signal_start(&g->sigusr1, l, SIGUSR1, on_sigusr1);
        loop_signal_start(&g->sighup, l, SIGHUP, on_sighup);
        *ret = take_ptr(g);
        return 0;
}

struct guard *guard_free(struct guard *g)
{
        if (!g)
                return NULL;
        put_down(g);
        forget_agent(g);
        loop_hook_stop(&g->hook);
        loop_io_stop(&g->news);
        if (g->fd >= 0)
                close(g->fd);
        pid1_free(g->pid1);
        conf_clear(options_table, n_options, &g->opt);
        free(g);
        return NULL;
}

int guard_run(void)
{
        cleanup_(loop_freep) struct loop *l = NULL;
        cleanup_(guard_freep) struct guard *g = NULL;
        int r;

        journal_use("tenure-guard");
        r = loop_new(&l);
        if (r < 0) {
                log_error("Cannot make an event loop: %s.", strerror(-r));
                return r;
        }
        r = guard_new(&g, l);
        if (r < 0)
                return r;
        memory_lock_whole();
        notify_ready();
        loop_run(l);
        return 0;
}
