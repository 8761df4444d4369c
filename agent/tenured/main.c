/* tenured: the agent on every host. Holds the host's place in the cluster, and reports on D-Bus
 * which other hosts are there. Listens on no network port. */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent.h"
#include "base/log.h"
#include "base/secret.h"
#include "base/std_fds.h"
#include "boots.h"
#include "bus/journal.h"
#include "bus/notify.h"
#include "guard.h"
#include "introspect.h"
#include "memory.h"
#include "openings.h"
#include "os_release.h"
#include "reboot.h"
#include "settings.h"

#define BUS_RETRY NSEC_PER_SEC
#define LONG_TURN (100 * NSEC_PER_MSEC)     /* logged ... */
#define LONG_TURN_EVERY (10 * NSEC_PER_SEC) /* ... but at most this often */
#define RETRY_FIRST (50 * NSEC_PER_MSEC)    /* excused together with an outage */

/* ---- a host that stood still together with its clocks ---- */

static void on_standstill(struct standstill *s, const char *sign)
{
        struct agent *a = container_of(s, struct agent, standstill);

        member_doubt(a->member, loop_now(a->loop));
        log_debug("%s: renewing at once.", sign);
}

/* ---- the bus: the agent runs without it, and connects when it comes ---- */

static void retry_bus(struct agent *a, const char *why)
{
        const char *address = getenv("DBUS_SYSTEM_BUS_ADDRESS");

        if (!a->bus_missing_logged)
                log_warning("Not on the system bus at %s: %s. Until that changes, local "
                            "programs cannot reach the agent.",
                            address ? address : "unix:path=/run/dbus/system_bus_socket", why);
        a->bus_missing_logged = true;
        a->on_bus = false;
        loop_timer_in(&a->bus_retry, BUS_RETRY);
}

static void on_bus_closed(void *userdata, int r)
{
        retry_bus(userdata, strerror(-r));
}

void agent_bus_refused(struct agent *a, const char *why)
{
        retry_bus(a, why);
}

void agent_bus_ready(struct agent *a)
{
        a->bus_missing_logged = false;
        a->on_bus = true;
        log_debug("On the system bus as org.tenure.Membership1.");
}

static void connect_bus(struct agent *a)
{
        int r;

        logind_attach(&a->logind, NULL);
        if (a->bus) {
                callers_forget(&a->callers);
                registry_attach(&a->registry, NULL);
        }
        a->bus = bus_free(a->bus);
        r = bus_new(&a->bus, a->loop, on_bus_closed, a);
        if (r == 0)
                r = root_attach(a);
        if (r == 0)
                r = log_control_attach(a);
        if (r == 0 && a->pid1)
                logind_attach(&a->logind, bus_sd(a->bus));
        registry_attach(&a->registry, r < 0 ? NULL : bus_sd(a->bus));
        if (r < 0)
                retry_bus(a, strerror(-r));
}

static void on_bus_retry(struct loop_timer *t)
{
        connect_bus(container_of(t, struct agent, bus_retry));
}

/* ---- ---- */

static void on_sigterm(struct loop_signal *s)
{
        agent_exit(container_of(s, struct agent, sigterm));
}

/* RestartKillSignal= of the unit: another agent follows, and resumes the place. */
static void on_sigusr1(struct loop_signal *s)
{
        struct agent *a = container_of(s, struct agent, sigusr1);

        notify_stopping();
        log_info("Stopping for a restart; this host keeps its place.");
        loop_stop(a->loop);
}

static void be_ready(struct agent *a)
{
        if (a->ready)
                return;
        a->ready = true;
        loop_timer_disarm(&a->ready_at);
        notify_ready();
}

/* Reports ready after a while at a boot without a network or without a core. */
static void on_ready_at(struct loop_timer *t)
{
        struct agent *a = container_of(t, struct agent, ready_at);

        const char *why = agent_trouble(a);

        log_notice("No place yet after %" PRId64
                   " s%s%s; still trying. Units bound to the place start once it is held.",
                   a->opt.ready_after / NSEC_PER_SEC, *why ? ": " : "", why);
        agent_tell_status(a);
        be_ready(a);
}

/* ---- the steps of a turn, after all input was handled ---- */

static struct boot_time keep_place(struct agent *a, struct boot_time now unused_)
{
        struct place p;

        a->has_place = member_place(a->member, &p);
        p.followed = news_sent(a, p.followed);
        if (a->has_place)
                keep_save(&a->keep, &p);
        return BOOT_TIME_NEVER;
}

/* The fence also has a timer, which acts before the steps of a turn. */
static struct boot_time fence(struct agent *a, struct boot_time now)
{
        fence_run(&a->fence, member_session(a->member), leaving_is_under_way(&a->leaving), now);
        return BOOT_TIME_NEVER;
}

static struct boot_time forget_place(struct agent *a, struct boot_time now unused_)
{
        if (names_run(&a->names, &a->opt, !fence_is_down(&a->fence)))
                gate_tell_guard();
        if (!a->has_place && a->keep.has)
                keep_clear(&a->keep);
        return BOOT_TIME_NEVER;
}

/* The core may have lowered it, or the settings have another one. */
static void follow_ttl(struct agent *a)
{
        nsec_t ttl = session_ttl(member_session(a->member));

        if (ttl == a->reported_ttl)
                return;
        a->reported_ttl = ttl;
        root_changed(a, "TTLUSec");
        held_check(a);
}

static struct boot_time tell(struct agent *a, struct boot_time now)
{
        holders_tell(&a->holders, member_session(a->member), now);
        evidence_heard(a->measured.evidence, member_heard_at(a->member));
        measured_run(&a->measured, now);
        watchdog_set(a);
        follow_ttl(a);
        if (member_nodes(a->member)->n != a->reported_nodes)
                agent_tell_status(a);
        return agent_tell_trouble(a, now);
}

/* Stays out while bound units are up. Units that wait for the target at boot wait until we are
 * ready, because the target may be up only then. */
static struct boot_time keep_out(struct agent *a, struct boot_time now)
{
        struct boot_time next;

        if (a->kept_out == fence_is_down(&a->fence)) {
                held_keep_out(a);
                agent_tell_status(a);
        }
        if (a->held_back != fence_is_held_back(&a->fence)) {
                a->held_back = !a->held_back;
                agent_tell_status(a);
        }
        next = held_extend(a, now);
        if ((a->state == SESSION_HELD && fence_is_settled(&a->fence)) ||
            a->state == SESSION_LEFT)
                be_ready(a);
        return next;
}

/* Restarts the agent if new settings have waited until no place is held: the next run uses
 * them. */
static struct boot_time begin_anew(struct agent *a, struct boot_time now unused_)
{
        if (!a->names.waiting || member_session(a->member)->lease != 0 ||
            !fence_is_down(&a->fence) || leaving_is_under_way(&a->leaving))
                return BOOT_TIME_NEVER;
        log_notice("The place has ended; restarting with the settings that waited for that.");
        a->names.waiting = false;
        loop_stop(a->loop);
        return BOOT_TIME_NEVER;
}

/* The steps run in this order, after the client (LOOP_DECIDE) and before the bus sends
 * (LOOP_BUS). What the lease protects comes first: everything else can wait for it, but not the
 * other way round. */
static const struct {
        const char *what;
        struct boot_time (*run)(struct agent *a, struct boot_time now);
} steps[] = {
        {"keeping the place", keep_place}, /* before the gate opens, because the guard reads it
                                            * then */
        {"the fence", fence},
        {"keeping the place", forget_place},
        {"reporting the place", tell},
        {"what this node publishes", publish_run},
        {"news", news_run},
        {"who waits for a revision", waits_run}, /* after the news, which announce revisions */
        {"lists that are asked for", lists_run},
        {"staying out", keep_out},
        {"leaving", leave_run},
        {"beginning anew", begin_anew},
};

static struct boot_time agent_run(struct loop_hook *h, struct boot_time now)
{
        struct agent *a = container_of(h, struct agent, hook);
        struct boot_time next = BOOT_TIME_NEVER;

        for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
                next = boot_min(next, steps[i].run(a, now));
                now = loop_lap(a->loop, steps[i].what, NULL);
        }
        notify_flush();
        return next;
}

/* A long turn delays the next heartbeat. */
static void on_long_turn(const struct loop_turn *t, void *arg)
{
        struct agent *a = arg;
        struct boot_time now = boot_now();

        if (boot_before(now, a->turn_log_at))
                return;
        a->turn_log_at = boot_add(now, LONG_TURN_EVERY);
        log_info("The main loop ran for %" PRId64 " ms without a break, %" PRId64
                 " ms of that in %s, and had a processor for %" PRId64 " ms.",
                 t->took / NSEC_PER_MSEC, t->piece / NSEC_PER_MSEC, t->what,
                 t->ran / NSEC_PER_MSEC);
}

static void on_sigint(struct loop_signal *s)
{
        agent_exit(container_of(s, struct agent, sigint));
}

static void on_sighup(struct loop_signal *s)
{
        settings_reload(container_of(s, struct agent, sighup));
}

static int run(struct agent *a)
{
        struct client_config cfg = {
                .endpoints = a->opt.endpoints,
                .session = {.ttl = a->opt.ttl,
                            .drift_ppm = (uint32_t) a->opt.drift_ppm,
                            .retry = RETRY_FIRST},
        };
        static const char *const stored_names[] = {KEEP_FD_NAME, HOLDERS_FD_NAME};
        enum { STORED_PLACE, STORED_TENANCY, STORED };
        char password[512], err[512], boots[BOOTS_MAX];
        struct place resume;
        int r, stored[STORED];

        if (a->opt.user) {
                r = secret_read(a->opt.password_file, password, sizeof(password));
                if (r < 0) {
                        log_error("PasswordFile=%s: cannot read a password from it: %s.",
                                  a->opt.password_file, strerror(-r));
                        return r;
                }
                cfg.user = a->opt.user;
                cfg.password = password;
        }
        boots_own(cfg.self.boot_id, &cfg.boot);
        boots_load(cfg.self.boot_id, boots);
        cfg.boots = boots;
        notify_kept_fds(stored_names, STORED, stored);
        keep_open(&a->keep, stored[STORED_PLACE]);
        holders_open(&a->holders, stored[STORED_TENANCY]);
        a->turns = openings_turns();
        names_init(&a->names, &a->opt, &a->keep, cfg.self.boot_id);
        cfg.cluster = a->opt.cluster;
        snprintf(cfg.self.name, sizeof(cfg.self.name), "%s", a->opt.node_name);
        snprintf(cfg.self.id, sizeof(cfg.self.id), "%s", a->opt.node_id);
        snprintf(cfg.self.version, sizeof(cfg.self.version), "%s", TENURE_VERSION);
        os_release(cfg.self.os_release, sizeof(cfg.self.os_release));
        a->resumed = keep_load(&a->keep, a->opt.cluster, &cfg.self, &resume);
        cfg.resume = a->resumed ? &resume : NULL;
        if (getrandom(&cfg.seed, sizeof(cfg.seed), 0) < 0)
                return -errno;
        r = measured_init(&a->measured, boot_now());
        if (r == 0)
                r = loop_new(&a->loop);
        if (r == 0)
                r = settings_tls(&a->opt, &a->tls);
        if (r < 0)
                return r;
        cfg.tls = a->tls;
        loop_timer_init(&a->bus_retry, a->loop, on_bus_retry);
        loop_timer_init(&a->watchdog, a->loop, watchdog_beat);
        loop_timer_init(&a->ready_at, a->loop, on_ready_at);
        loop_signal_start(&a->sigterm, a->loop, SIGTERM, on_sigterm);
        loop_signal_start(&a->sigint, a->loop, SIGINT, on_sigint);
        loop_signal_start(&a->sigusr1, a->loop, SIGUSR1, on_sigusr1);
        loop_signal_start(&a->sighup, a->loop, SIGHUP, on_sighup);
        r = client_new(&a->client, a->loop, &cfg, &agent_events, a, err, sizeof(err));
        explicit_bzero(password, sizeof(password));
        if (r < 0) {
                log_error("%s.", err);
                return r;
        }
        a->member = client_member(a->client);
        a->reported_ttl = session_ttl(member_session(a->member));
        memory_lock();
        held_make(a);
        settings_steady(a);
        stability_init(&a->stability, a->loop, agent_brake);
        held_keep_out(a);
        callers_init(&a->callers, a->loop);
        waits_init(&a->waits);
        lists_init(a);
        news_init(a, a->resumed ? resume.followed : 0);
        r = publish_start(a);
        if (r < 0)
                return r;
        leave_init(a);
        standstill_start(&a->standstill, a->loop, on_standstill);
        loop_hook_start(&a->hook, a->loop, LOOP_ACT, agent_run);
        loop_timer_in(&a->ready_at, a->opt.ready_after);
        connect_bus(a);
        a->watchdog_most = notify_watchdog_period();
        certificate_start(a);
        log_info("%s cluster %s as %s (core: %s).", a->resumed ? "Back in" : "Joining",
                 a->opt.cluster, a->opt.node_name, a->opt.endpoints);
        agent_tell_status(a);
        loop_watch_turns(a->loop, LONG_TURN, on_long_turn, a);
        loop_run(a->loop);
        keep_place(a, boot_now());
        return 0;
}

static void fini(struct agent *a)
{
        fence_fini(&a->fence);
        pid1_free(a->pid1);
        callers_forget(&a->callers);
        news_fini(a);
        publish_stop(a);
        standstill_stop(&a->standstill);
        stability_fini(&a->stability);
        a->client = client_free(a->client);
        a->member = NULL;
        keep_close(&a->keep);
        measured_fini(&a->measured);
        holders_close(&a->holders);
        if (a->turns >= 0)
                close(a->turns);
        a->leave_call = sd_bus_message_unref(a->leave_call);
        logind_fini(&a->logind);
        bus_free(a->bus);
        tls_free(a->tls);
        loop_free(a->loop);
        conf_clear(options_table, n_options, &a->opt);
}

/* Reports why the agent does not start. It must not hang here: it would have no guard. */
static int refuse(const char *why)
{
        char line[600];

        snprintf(line, sizeof(line), "tenured: %s.\n", why);
        (void) !log_write(STDERR_FILENO, line, strlen(line));
        return 1;
}

static int be_agent(struct agent *a)
{
        struct conf_error err = {""};
        int r = settings_read(&a->opt, &a->args, &err);

        if (r < 0) {
                refuse(err.text);
        } else if (a->args.test) {
                cleanup_(buf_fini) struct buf b = {0};

                conf_print(options_table, n_options, &a->opt, &b);
                fwrite(b.data, 1, buf_len(&b), stdout);
        } else {
                log_set_level(a->opt.log_level);
                journal_use("tenured");
                r = run(a);
        }
        fini(a);
        return r < 0 ? 1 : a->exit_code;
}

static int print_interface(const char *interface)
{
        char why[512];
        int r = introspect_print(interface, stdout);

        if (r == 0)
                return 0;
        if (r == -ENOENT)
                snprintf(why, sizeof(why), "--introspect must be %s, not '%s'",
                         introspect_interfaces(), interface);
        else
                snprintf(why, sizeof(why), "cannot introspect: %s", strerror(-r));
        return refuse(why);
}

int main(int argc, char **argv)
{
        struct agent a = {
                .keep = {.fd = -1}, .holders = {.fd = -1}, .turns = -1, .measured = {.fd = -1}};
        struct conf_error err = {""};
        int r;

        std_fds_reserve();
        signal(SIGPIPE, SIG_IGN);
        r = arguments_parse(&a.args, argc, argv, &err);
        if (r < 0) {
                r = refuse(*err.text ? err.text : strerror(-r));
        } else if (r == ARGS_E_SHOWN) {
                r = 0;
        } else if (a.args.introspect) {
                r = print_interface(a.args.introspect);
        } else if (a.args.guard) {
                r = guard_run() < 0;
        } else if (a.args.rebooter) {
                journal_use("tenured");
                r = reboot_helper() < 0;
        } else {
                r = be_agent(&a);
        }
        args_fini(&a.args.all);
        return r;
}
