/*
 * tenured: the agent on every host. Holds the host's place in the cluster, and tells on D-Bus
 * who else is there. Listens on no network port.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <unistd.h>

#include "agent.h"
#include "base/log.h"
#include "base/secret.h"
#include "boots.h"
#include "bus/journal.h"
#include "bus/notify.h"
#include "guard.h"
#include "memory.h"
#include "reboot.h"
#include "settings.h"

/* Journal message ids, explained in conf/tenure.catalog. */
#define MESSAGE_HELD "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a001"
#define MESSAGE_JEOPARDY "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a002"
#define MESSAGE_LOST "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a003"
#define MESSAGE_MASS "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a00c"
#define MESSAGE_CLAIMED "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a00d"

#define BUS_RETRY NSEC_PER_SEC
#define LONG_TURN (100 * NSEC_PER_MSEC)     /* told of... */
#define LONG_TURN_EVERY (10 * NSEC_PER_SEC) /* ...but not more often */
#define CLAIM_EVERY (60 * NSEC_PER_SEC)
#define SHUTDOWN_ANSWER (300 * NSEC_PER_MSEC)
#define RETRY_FIRST (50 * NSEC_PER_MSEC) /* as the core excuses after an outage */

/* ---- membership ---- */

static void on_joined(const struct member_node *n, int64_t revision, void *userdata)
{
        struct agent *a = userdata;

        news_add(a, NEWS_NODE_JOINED, n->record.name, n->record.id, "", "", revision);
        steady_nodes(&a->steady, client_membership(a->client)->n, false, boot_now());
}

static void on_left(const struct member_node *n, const char *reason, int64_t revision,
                    void *userdata)
{
        struct agent *a = userdata;

        news_add(a, NEWS_NODE_LEFT, n->record.name, n->record.id, "", reason, revision);
        steady_nodes(&a->steady, client_membership(a->client)->n,
                     strcmp(reason, "expired") == 0, boot_now());
}

static void on_changed(const struct member_node *n, int64_t revision, void *userdata)
{
        news_add(userdata, NEWS_NODE_CHANGED, n->record.name, n->record.id, "", "", revision);
}

static void on_service_added(const struct service *s, int64_t revision, void *userdata)
{
        news_add(userdata, NEWS_SERVICE_ADDED, s->name, s->node, s->instance, "", revision);
}

static void on_service_removed(const struct service *s, const char *reason, int64_t revision,
                               void *userdata)
{
        news_add(userdata, NEWS_SERVICE_REMOVED, s->name, s->node, s->instance, reason,
                 revision);
}

static void on_service_changed(const struct service *s, int64_t revision, void *userdata)
{
        news_add(userdata, NEWS_SERVICE_CHANGED, s->name, s->node, s->instance, "", revision);
}

static void on_brake(struct steady *s)
{
        struct agent *a = container_of(s, struct agent, steady);
        const char *fields[] = {MESSAGE_MASS, NULL};

        if (s->brake.on)
                log_full(LOG_WARNING, fields,
                         "%u %% of the nodes or more are gone within %" PRId64
                         " s; what moves work should wait.",
                         s->brake_cfg.percent, s->brake_cfg.window / NSEC_PER_SEC);
        else
                log_notice("The nodes that are there are most of the nodes again.");
        manager_changed(a, "MassFailure");
}

/* ---- our own place ---- */

static void tell_status(struct agent *a)
{
        const struct session *s = client_session(a->client);
        const char *why = *a->why ? a->why : client_trouble(a->client);
        size_t n = client_membership(a->client)->n;

        a->told_nodes = n;
        switch (a->state) {
        case SESSION_JOINING:
                if (!fence_is_down(&a->fence)) {
                        const char *what = fence_still_up(&a->fence);

                        notify_status("Not joining before %s is down.",
                                      *what ? what : a->opt.held_target);
                        break;
                }
                if (boot_before(boot_now(), a->steady.damping.until)) {
                        notify_status("Staying out for %" PRId64 " s after %" PRIu64
                                      " losses; tenurectl join ends that.",
                                      boot_diff(a->steady.damping.until, boot_now()) /
                                              NSEC_PER_SEC,
                                      a->opt.flap_limit);
                        break;
                }
                notify_status("Joining cluster %s as %s%s%s.", a->opt.cluster, a->opt.node_name,
                              *why ? ": " : "", why);
                break;
        case SESSION_HELD:
                notify_status("Holding lease %016" PRIx64 " as %s in cluster %s of %zu nodes.",
                              (uint64_t) s->lease, a->opt.node_name, a->opt.cluster, n);
                break;
        case SESSION_JEOPARDY:
                notify_status("Lease in jeopardy: renewals fail%s%s.", *a->why ? ": " : "",
                              a->why);
                break;
        case SESSION_LOST:
                notify_status("Lost the lease: %s.", a->why);
                break;
        case SESSION_LEAVING:
                notify_status("Leaving.");
                break;
        case SESSION_LEFT:
                if (a->then == THEN_REST && a->maintenance != MAINTENANCE_NONE)
                        notify_status("Staying out%s; tenurectl join ends that.",
                                      a->maintenance == MAINTENANCE_PERSISTENT ? ", over boots"
                                                                               : "");
                else
                        notify_status("Left.");
                break;
        }
}

static void on_session(void *userdata, enum session_state state, const char *why)
{
        struct agent *a = userdata;
        const struct session *s = client_session(a->client);
        bool again = state == a->state && state == SESSION_JOINING && strcmp(why, a->why) == 0;
        char lease[48];
        const char *fields[] = {NULL, lease, NULL};

        /* Before a word of it. */
        if (state == SESSION_LOST)
                fence_follow(&a->fence, s, a->leaving, boot_now());
        snprintf(lease, sizeof(lease), "LEASE=%016" PRIx64, (uint64_t) s->lease);
        snprintf(a->why, sizeof(a->why), "%s", why);
        a->state = state;
        switch (state) {
        case SESSION_HELD:
                watchdog_set(a);
                fields[0] = MESSAGE_HELD;
                log_full(LOG_NOTICE, fields,
                         "Node %s %s its place (lease %016" PRIx64 ", TTL %" PRId64 " ms).",
                         a->opt.node_name,
                         a->resumed && !a->ready ? "goes on holding" : "holds",
                         (uint64_t) s->lease, s->ttl / NSEC_PER_MSEC);
                break;
        case SESSION_JEOPARDY:
                fields[0] = MESSAGE_JEOPARDY;
                log_full(LOG_WARNING, fields,
                         "Renewals fail; the place is lost in %" PRId64
                         " ms unless one comes through%s%s.",
                         boot_diff(session_deadline(s), boot_now()) / NSEC_PER_MSEC,
                         *why ? ": " : "", why);
                break;
        case SESSION_LOST:
                fields[0] = MESSAGE_LOST;
                if (steady_lost(&a->steady, boot_now())) {
                        held_keep_out(a);
                        log_full(LOG_ERR, fields,
                                 "Node %s lost its place: %s; %" PRIu64
                                 " times by now, so it stays out for %" PRId64 " s.",
                                 a->opt.node_name, why, a->opt.flap_limit,
                                 a->opt.flap_rest / NSEC_PER_SEC);
                } else {
                        log_full(LOG_ERR, fields, "Node %s lost its place: %s; joining again.",
                                 a->opt.node_name, why);
                }
                break;
        case SESSION_JOINING:
                if (*why && !again)
                        log_warning("Cannot join yet: %s.", why);
                break;
        case SESSION_LEFT:
                log_info("Left.");
                break;
        case SESSION_LEAVING:
                break;
        }
        manager_session_changed(a, state, why);
        tell_status(a);
        if (state == SESSION_HELD)
                held_check(a);
}

static void on_synced(void *userdata, bool synced)
{
        struct agent *a = userdata;

        (void) synced;
        manager_session_changed(a, SESSION_JOINING, ""); /* the properties only */
        tell_status(a);
}

/* It asks again all the time: told once of each boot, and not often of many. */
static void on_claimed(void *userdata, const struct node_record *by)
{
        struct agent *a = userdata;
        char f_id[80], f_boot[80], f_address[NODE_ADDRESSES_MAX + 16];
        const char *fields[] = {MESSAGE_CLAIMED, f_id, f_boot, f_address, NULL};

        if (strcmp(a->claimed_by, by->boot_id) == 0 ||
            boot_before(boot_now(), a->claim_told_at))
                return;
        a->claim_told_at = boot_add(boot_now(), CLAIM_EVERY);
        strcpy(a->claimed_by, by->boot_id);
        snprintf(f_id, sizeof(f_id), "NODE_ID=%s", by->id);
        snprintf(f_boot, sizeof(f_boot), "CLAIMED_BY_BOOT=%s", by->boot_id);
        snprintf(f_address, sizeof(f_address), "ADDRESS=%s", by->addresses);
        log_full(
                LOG_ERR, fields,
                "Another host claims to be node %s, with %s node id (boot %s, at %s). It is "
                "refused while we hold the place; %s.",
                a->opt.node_name, strcmp(by->id, a->opt.node_id) == 0 ? "our" : "another",
                *by->boot_id ? by->boot_id : "unknown",
                *by->addresses ? by->addresses : "an unknown address",
                strcmp(by->id, a->opt.node_id) == 0
                        ? "if one is a clone of the other, give it a machine id of its own and "
                          "another NodeName="
                        : "give it another NodeName=");
}

static const struct client_ops client_ops = {
        .members = {.joined = on_joined, .left = on_left, .changed = on_changed},
        .services = {.added = on_service_added,
                     .removed = on_service_removed,
                     .changed = on_service_changed},
        .session = on_session,
        .synced = on_synced,
        .claimed = on_claimed,
};

/* ---- a host that stood still, and its clocks with it ---- */

static void on_standstill(struct standstill *s, const char *sign)
{
        struct agent *a = container_of(s, struct agent, standstill);

        client_doubt(a->client);
        log_debug("%s: renewing at once.", sign);
}

/* ---- the bus: without it we go on, and take it when it comes ---- */

static void retry_bus(struct agent *a, const char *why)
{
        if (!a->bus_missing_told)
                log_warning("Not on the system bus: %s. Local programs cannot ask until that "
                            "changes.",
                            why);
        a->bus_missing_told = true;
        if (loop_timer_arm(&a->bus_retry, boot_add(boot_now(), BUS_RETRY)) < 0)
                abort();
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
        a->bus_missing_told = false;
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
                r = manager_attach(a);
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

/* While those who depend on the place have not let go: so often. */
#define LET_GO_AGAIN (10 * NSEC_PER_MSEC)

static void on_let_go(struct loop_timer *t)
{
        (void) t; /* the hook looks */
}

static void on_shutdown_known(void *userdata, enum pid1_shutdown what)
{
        struct agent *a = userdata;

        a->leave_reason = what == PID1_REBOOT     ? "reboot"
                          : what == PID1_SHUTDOWN ? "shutdown"
                                                  : "left";
}

static void leave(struct agent *a)
{
        if (a->leaving && a->then == THEN_EXIT) { /* asked twice: at once */
                loop_stop(a->loop);
                return;
        }
        a->leaving = true;
        a->then = THEN_EXIT;
        if (a->left) { /* for the sleep that it is woken from */
                notify_stopping();
                return;
        }
        notify_stopping();
        if (a->pid1)
                pid1_ask_shutdown(a->pid1, SHUTDOWN_ANSWER, on_shutdown_known, a);
        else
                on_shutdown_known(a, PID1_NO_SHUTDOWN);
}

/* Whoever asked for it is told that it will not last. */
static void persist(struct agent *a)
{
        int r = maintenance_persist(a->maintenance);

        if (r == 0 || !a->leave_call)
                return;
        (void) sd_bus_reply_method_errorf(a->leave_call, SD_BUS_ERROR_IO_ERROR,
                                          "this host has left, and joins again with its next "
                                          "boot: that it shall stay out cannot be written (%s)",
                                          strerror(-r));
        a->leave_call = sd_bus_message_unref(a->leave_call);
}

/* The place is given back once nothing that needs it runs any more. */
static void go_on_leaving(struct agent *a)
{
        if (!a->leaving || !a->leave_reason || !fence_is_down(&a->fence))
                return;
        if (!a->left && !holders_let_go(&a->holders, client_session(a->client), boot_now())) {
                if (loop_timer_arm(&a->let_go, boot_add(boot_now(), LET_GO_AGAIN)) < 0)
                        abort();
                return;
        }
        if (!a->left)
                client_leave(a->client, a->leave_reason);
        a->left = true;
        if (a->state != SESSION_LEFT)
                return;
        switch (a->then) {
        case THEN_EXIT:
                return loop_stop(a->loop);
        case THEN_REST:
                if (!a->persisted)
                        persist(a);
                a->persisted = true;
                logind_release(&a->logind);
                return manager_left(a);
        case THEN_JOIN:
                a->leaving = a->left = false;
                a->leave_reason = NULL;
                a->state = SESSION_JOINING;
                a->then = THEN_EXIT;
                manager_left(a);
                client_join(a->client);
                logind_inhibit(&a->logind);
        }
}

/* A host that sleeps cannot renew: it leaves before, and what it fenced is down. One that was
 * put to sleep without a word finds out by its clock. */
static void on_sleep(void *userdata, bool begins)
{
        struct agent *a = userdata;

        if (begins && !a->leaving) {
                log_info("The host is going to sleep.");
                a->leaving = true;
                a->leave_reason = "suspend";
                a->then = THEN_REST;
                a->asleep = a->persisted = true;
        } else if (!begins && a->asleep) {
                log_info("The host is awake; joining again.");
                a->asleep = false;
                if (a->then == THEN_REST && a->maintenance == MAINTENANCE_NONE)
                        a->then = THEN_JOIN;
        }
}

bool agent_rest(struct agent *a, enum maintenance m)
{
        if (a->leaving && a->then != THEN_REST)
                return false;
        /* First of all: should we not live to see the end of it, the next life goes on. */
        a->maintenance = m;
        a->persisted = false;
        maintenance_set(m);
        manager_changed(a, "Maintenance");
        if (!a->leaving)
                log_info("Leaving until told to join.");
        a->leaving = true;
        a->asleep = false;
        if (!a->leave_reason)
                a->leave_reason = "left";
        a->then = THEN_REST;
        return true;
}

bool agent_join(struct agent *a)
{
        if (a->leaving && a->then == THEN_EXIT)
                return false;
        if (a->leaving)
                a->then = THEN_JOIN;
        if (a->maintenance != MAINTENANCE_NONE) {
                a->maintenance = MAINTENANCE_NONE;
                maintenance_set(MAINTENANCE_NONE);
                (void) maintenance_persist(MAINTENANCE_NONE);
                manager_changed(a, "Maintenance");
        }
        steady_forgive(&a->steady);
        held_keep_out(a);
        return true;
}

static void on_sigterm(struct loop_signal *s)
{
        leave(container_of(s, struct agent, sigterm));
}

/* RestartKillSignal= of the unit: another life follows, and goes on with the place. */
static void on_sigusr1(struct loop_signal *s)
{
        struct agent *a = container_of(s, struct agent, sigusr1);

        notify_stopping();
        log_info("Stopping for a restart; the place stays ours.");
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

/* A boot without a network, or without a core, ends. */
static void on_ready_at(struct loop_timer *t)
{
        struct agent *a = container_of(t, struct agent, ready_at);

        const char *why = client_trouble(a->client);

        log_notice("No place yet after %" PRId64
                   " s%s%s; going on trying. What is bound to it starts when it is there.",
                   a->opt.ready_after / NSEC_PER_SEC, *why ? ": " : "", why);
        tell_status(a);
        be_ready(a);
}

/* Nothing is held any more, and settings have waited for that: the next life has them. */
static void begin_anew(struct agent *a)
{
        if (!a->names.waiting || client_session(a->client)->lease != 0 ||
            !fence_is_down(&a->fence) || a->leaving)
                return;
        log_notice(
                "The place is over; starting again, with the settings that waited for that.");
        a->names.waiting = false;
        loop_stop(a->loop);
}

/* After everything else in an iteration: the fence follows, and what has changed of our place
 * goes where a next life finds it. */
static void on_hook(struct loop_hook *h)
{
        struct agent *a = container_of(h, struct agent, hook);
        struct place p;
        bool has_place;

        /* The guard goes by it as soon as the gate is open. */
        has_place = client_place(a->client, &p);
        if (has_place)
                keep_save(&a->keep, &p);
        /* What the lease protects comes first: all else can wait for it, not the other way. */
        fence_follow(&a->fence, client_session(a->client), a->leaving, boot_now());
        names_follow(&a->names, &a->opt, !fence_is_down(&a->fence));
        if (!has_place && a->keep.has)
                keep_clear(&a->keep);
        holders_tell(&a->holders, client_session(a->client), boot_now());
        if (a->state == SESSION_HELD)
                watchdog_set(a); /* the core may have lowered the TTL */
        if (client_membership(a->client)->n != a->told_nodes)
                tell_status(a);
        publish_follow(a);
        news_pump(a);
        waits_pump(a, boot_now());
        lists_pump(a, boot_now());
        if (a->kept_out == fence_is_down(&a->fence)) {
                held_keep_out(a);
                tell_status(a);
        }
        held_wait(a, boot_now());
        /* Units that wait for the target at boot wait for us to be ready: it may be up by then.
         */
        if ((a->state == SESSION_HELD && fence_is_settled(&a->fence)) ||
            a->state == SESSION_LEFT)
                be_ready(a);
        go_on_leaving(a);
        begin_anew(a);
        notify_flush();
}

/* The next heartbeat waits for the end of a turn. */
static void on_long_turn(const struct loop_turn *t, void *arg)
{
        struct agent *a = arg;
        struct boot_time now = boot_now();

        if (boot_before(now, a->turn_told_at))
                return;
        a->turn_told_at = boot_add(now, LONG_TURN_EVERY);
        log_info("The loop was busy for %" PRId64 " ms at a stretch, %" PRId64
                 " of them with %s.",
                 t->took / NSEC_PER_MSEC, t->piece / NSEC_PER_MSEC, t->what);
}

static void on_sigint(struct loop_signal *s)
{
        leave(container_of(s, struct agent, sigint));
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
        char password[512], err[512], boots[BOOTS_MAX];
        struct place resume;
        int r;

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
        keep_open(&a->keep);
        holders_open(&a->holders);
        names_init(&a->names, &a->opt, &a->keep, cfg.self.boot_id);
        cfg.cluster = a->opt.cluster;
        snprintf(cfg.self.name, sizeof(cfg.self.name), "%s", a->opt.node_name);
        snprintf(cfg.self.id, sizeof(cfg.self.id), "%s", a->opt.node_id);
        snprintf(cfg.self.version, sizeof(cfg.self.version), "%s", TENURE_VERSION);
        a->resumed = keep_load(&a->keep, a->opt.cluster, &cfg.self, &resume);
        cfg.resume = a->resumed ? &resume : NULL;
        if (getrandom(&cfg.seed, sizeof(cfg.seed), 0) < 0)
                return -errno;
        r = loop_new(&a->loop);
        if (r == 0)
                r = settings_tls(&a->opt, &a->tls);
        if (r < 0)
                return r;
        cfg.tls = a->tls;
        loop_timer_init(&a->bus_retry, a->loop, on_bus_retry);
        loop_timer_init(&a->watchdog, a->loop, watchdog_beat);
        loop_timer_init(&a->ready_at, a->loop, on_ready_at);
        loop_timer_init(&a->let_go, a->loop, on_let_go);
        loop_signal_start(&a->sigterm, a->loop, SIGTERM, on_sigterm);
        loop_signal_start(&a->sigint, a->loop, SIGINT, on_sigint);
        loop_signal_start(&a->sigusr1, a->loop, SIGUSR1, on_sigusr1);
        loop_signal_start(&a->sighup, a->loop, SIGHUP, on_sighup);
        r = client_new(&a->client, a->loop, &cfg, &client_ops, a, err, sizeof(err));
        explicit_bzero(password, sizeof(password));
        if (r < 0) {
                log_error("%s.", err);
                return r;
        }
        memory_lock();
        held_make(a);
        settings_steady(a);
        steady_init(&a->steady, a->loop, on_brake);
        held_keep_out(a);
        callers_init(&a->callers, a->loop);
        waits_init(&a->waits, a->loop);
        lists_init(a);
        news_init(a);
        r = publish_start(a);
        if (r < 0)
                return r;
        logind_init(&a->logind, on_sleep, a);
        standstill_start(&a->standstill, a->loop, on_standstill);
        a->hook.what = "the place, and lists that are asked for";
        loop_hook_start(&a->hook, a->loop, on_hook);
        if (loop_timer_arm(&a->ready_at, boot_add(boot_now(), a->opt.ready_after)) < 0)
                return -ENOMEM;
        a->maintenance = maintenance_load();
        if (a->maintenance != MAINTENANCE_NONE) {
                log_notice("This host stays out until tenurectl join, as it was told%s.",
                           a->maintenance == MAINTENANCE_PERSISTENT ? " for good" : "");
                a->leaving = a->persisted = true;
                a->leave_reason = "left";
                a->then = THEN_REST;
                /* What an earlier life holds is given back in order; else nothing is taken. */
                if (!a->resumed)
                        client_leave(a->client, a->leave_reason);
                a->left = !a->resumed;
        }
        connect_bus(a);
        a->watchdog_most = notify_watchdog_period();
        watchdog_set(a);
        certificate_start(a);
        log_info("%s cluster %s as %s (core: %s).", a->resumed ? "Back in" : "Joining",
                 a->opt.cluster, a->opt.node_name, a->opt.endpoints);
        tell_status(a);
        loop_watch_turns(a->loop, LONG_TURN, on_long_turn, a);
        loop_run(a->loop);
        return 0;
}

static void fini(struct agent *a)
{
        fence_fini(&a->fence);
        pid1_free(a->pid1);
        callers_forget(&a->callers);
        waits_fini(&a->waits);
        lists_fini(a);
        news_fini(a);
        publish_stop(a);
        standstill_stop(&a->standstill);
        steady_fini(&a->steady);
        a->client = client_free(a->client);
        keep_close(&a->keep);
        holders_close(&a->holders);
        a->leave_call = sd_bus_message_unref(a->leave_call);
        logind_fini(&a->logind);
        bus_free(a->bus);
        tls_free(a->tls);
        loop_free(a->loop);
        conf_clear(options_table, n_options, &a->opt);
}

int main(int argc, char **argv)
{
        struct agent a = {.keep = {.fd = -1}, .holders = {.fd = -1}};
        struct conf_error err = {""};
        char line[600];
        bool test = false;
        int r;

        signal(SIGPIPE, SIG_IGN);
        if (argc == 2 && strcmp(argv[1], "--guard") == 0)
                return guard_run() < 0;
        if (argc == 2 && strcmp(argv[1], "--rebooter") == 0) {
                journal_use();
                return reboot_helper() < 0;
        }
        a.argc = argc;
        a.argv = argv;
        r = settings_parse(&a.opt, argc, argv, &test, &err);
        if (r < 0) {
                /* An agent that hangs here would have no guard. */
                snprintf(line, sizeof(line), "tenured: %s.\n", err.text);
                (void) !log_write(STDERR_FILENO, line, strlen(line));
        } else if (test) {
                cleanup_(buf_fini) struct buf b = {0};

                conf_print(options_table, n_options, &a.opt, &b);
                fwrite(b.data, 1, buf_len(&b), stdout);
        } else {
                log_set_level(log_level_from_string(a.opt.log_level));
                journal_use();
                r = run(&a);
        }
        fini(&a);
        return r < 0 ? 1 : a.exit_code;
}
