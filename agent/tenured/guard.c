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

/* How long an agent that has come back must last before the guard trusts it, and how soon the
 * guard reads a place again that it could not read. */
#define LOOK_AGAIN (100 * NSEC_PER_MSEC)

/* From the deadline on, a living agent has this long to bring down everything; freezing alone
 * does not. */
#define TAKE_OVER (200 * NSEC_PER_MSEC)
#define STRIKE_AGAIN (20 * NSEC_PER_MSEC)

struct guard {
        struct loop *loop;
        struct pid1 *pid1;
        struct options opt;
        struct {
                struct loop_io io; /* its pidfd */
                int fd;            /* -1: no agent is responsible for the gate */
                pid_t pid;
        } agent;
        bool has_place;         /* the place could be read */
        struct session session; /* as the agent wrote it last */
        struct fence fence;
        char target[256];
        bool striking, acting;      /* a fence exists; it acts */
        bool begun;                 /* units that an earlier guard may have frozen were
                                     * thawed */
        bool ending;                /* exit once nothing is left to guard */
        bool restarting;            /* or sooner: the next guard starts at once */
        bool settings_old;          /* they may have changed */
        struct boot_time extend_at; /* when to ask systemd for more time to stop */
        nsec_t watchdog;            /* its period; 0: none */
        struct boot_time beat_at;   /* when to notify the watchdog next */
        int fd;                     /* its socket, where it hears news from the agent */
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

/* Reads the place; if that fails, nothing is held. */
static void read_place(struct guard *g)
{
        struct session_config cfg = {.ttl = g->opt.ttl,
                                     .drift_ppm = (uint32_t) g->opt.drift_ppm,
                                     .retry = NSEC_PER_SEC};
        struct place p;

        session_init(&g->session, &cfg);
        g->has_place = keep_peek(&p);
        if (g->has_place)
                session_resume(&g->session, &p.session, boot_now());
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
static void on_agent_end(struct loop_io *io, int events)
{
        (void) events;
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

static void put_down(struct guard *g)
{
        if (g->striking || g->acting) {
                fence_release(&g->fence);
                fence_fini(&g->fence);
        }
        g->striking = g->acting = false;
}

static bool take_up(struct guard *g)
{
        struct fencing_config fencing = options_fencing(&g->opt);
        int r;

        if (g->striking || g->acting)
                return true;
        /* The target may have changed in the settings; use the one that is up. */
        if (!names_target(NAMES_TARGET, g->target))
                snprintf(g->target, sizeof(g->target), "%s", g->opt.held_target);
        r = fence_init(&g->fence, g->loop, g->pid1, g->target, &fencing, NULL);
        if (r < 0)
                log_error("Cannot reach the service manager: %s.", strerror(-r));
        return r == 0;
}

/* ---- deciding ---- */

/* Asks for more time while we stop and the deadline is still ahead. */
static void ask_for_time(struct guard *g, struct boot_time now)
{
        if (!g->ending || !session_holds(&g->session, now) || boot_before(now, g->extend_at))
                return;
        g->extend_at = boot_add(now, NOTIFY_EXTEND_EACH);
        notify_extend(NOTIFY_EXTEND_BY);
}

static struct boot_time act(struct guard *g, struct boot_time now)
{
        bool holds = session_holds(&g->session, now);

        /* If one agent has begun to stop units, only another agent starts them again. */
        fence_run(&g->fence, &g->session, !gate_is_open(), now);
        if (fence_is_down(&g->fence)) {
                put_down(g);
                return boot_add(now, LOOK_AGAIN);
        }
        ask_for_time(g, now);
        return holds ? boot_add(now, LOOK_AGAIN) : BOOT_TIME_NEVER; /* the fence sets a timer of
                                                                     * its own */
}

/* The agent lives, and decides. But nothing that is bound may run past the deadline: it is
 * frozen, which changes nothing if the agent's own fence works. */
static struct boot_time watch(struct guard *g, struct boot_time now)
{
        struct fencing_config fencing = options_fencing(&g->opt);
        struct boot_time deadline, freeze_at;

        if (!g->has_place) /* it may be being written; or /run is full */
                return boot_add(now, LOOK_AGAIN);
        deadline = session_deadline(&g->session);
        freeze_at = boot_add(deadline, -fencing_stillness(&fencing, g->session.ttl));
        /* A guard that was killed while it acted has left units frozen, and the agent, which
         * holds the place again, believes that they run. */
        if (!g->begun && gate_is_open() &&
            boot_before(now, boot_add(deadline, -fencing_lead(&fencing, g->session.ttl)))) {
                g->begun = take_up(g);
                if (g->begun)
                        fence_thaw(&g->fence);
                g->striking |= g->begun;
        }
        if (boot_before(now, freeze_at)) {
                put_down(g);
                if (refresh(g))
                        return now;
                ask_for_time(g, now);
                return g->ending ? boot_min(freeze_at, g->extend_at) : freeze_at;
        }
        if (!take_up(g))
                return boot_add(now, LOOK_AGAIN);
        g->striking = true;
        fence_freeze(&g->fence);
        g->acting = !boot_before(now, boot_add(deadline, TAKE_OVER));
        return g->acting ? act(g, now) : boot_add(now, STRIKE_AGAIN);
}

static struct boot_time look(struct guard *g)
{
        struct boot_time now;
        bool lives;

        if (!gate_is_open() && !gate_is_stopping()) {
                /* Everything is down. */
                put_down(g);
                forget_agent(g);
                (void) refresh(g);
                if (g->ending)
                        loop_stop(g->loop);
                return BOOT_TIME_NEVER;
        }
        lives = find_agent(g);
        /* At a shutdown agent and guard both get SIGTERM. End only if the agent is not stopping
         * units. */
        if (lives && g->ending && !gate_is_stopping()) {
                loop_stop(g->loop);
                return BOOT_TIME_NEVER;
        }
        read_place(g);
        now = boot_now(); /* reading files took time */
        /* The next guard may be waiting to start. */
        if (g->restarting && !g->striking && gate_is_open() &&
            session_holds(&g->session, now)) {
                loop_stop(g->loop);
                return BOOT_TIME_NEVER;
        }
        /* An agent that has opened the gate again, or continues to renew, decides again. */
        if (lives && g->acting && gate_is_open() && session_holds(&g->session, now)) {
                log_debug("The agent is back.");
                put_down(g);
        }
        if (lives && !g->acting)
                return watch(g, now);
        if (!take_up(g))
                return boot_add(now, LOOK_AGAIN);
        g->acting = true;
        return act(g, now);
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

static void on_news(struct loop_io *io, int events)
{
        char word[8];

        (void) events;
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
