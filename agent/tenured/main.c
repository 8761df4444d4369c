/*
 * tenured: the agent on every host. Holds the host's place in the cluster, and tells on D-Bus
 * who else is there. Listens on no network port.
 */
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent.h"
#include "base/log.h"
#include "base/secret.h"
#include "boots.h"
#include "bus/journal.h"
#include "bus/notify.h"
#include "guard.h"
#include "reboot.h"

/* Journal message ids, explained in conf/tenure.catalog. */
#define MESSAGE_HELD "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a001"
#define MESSAGE_JEOPARDY "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a002"
#define MESSAGE_LOST "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a003"
#define MESSAGE_JOINED "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a004"
#define MESSAGE_LEFT "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a005"
#define MESSAGE_MASS "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a00c"
#define MESSAGE_CLAIMED "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a00d"
#define MESSAGE_SERVICE_ADDED "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a008"
#define MESSAGE_SERVICE_REMOVED "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a009"

#define BUS_RETRY NSEC_PER_SEC
#define WATCHDOG_MIN (250 * NSEC_PER_MSEC)
#define SHUTDOWN_ANSWER (300 * NSEC_PER_MSEC)
#define RETRY_FIRST (50 * NSEC_PER_MSEC) /* as the core excuses after an outage */

/* ---- membership ---- */

/* What was there before us is no news: a site may have 100,000 services. */
static int news(const struct agent *a)
{
        return client_synced(a->client) ? LOG_INFO : LOG_DEBUG;
}

static void log_node(const struct agent *a, const char *message_id, const struct member_node *n,
                     const char *reason, int64_t revision)
{
        char f_node[NODE_NAME_MAX + 16], f_id[80], f_rev[48], f_reason[64];
        const char *fields[] = {message_id, f_node, f_id, f_rev, reason ? f_reason : NULL,
                                NULL};

        snprintf(f_node, sizeof(f_node), "NODE=%s", n->record.name);
        snprintf(f_id, sizeof(f_id), "NODE_ID=%s", n->record.id);
        snprintf(f_rev, sizeof(f_rev), "REVISION=%" PRId64, revision);
        snprintf(f_reason, sizeof(f_reason), "REASON=%s", reason ? reason : "");
        if (reason)
                log_full(LOG_NOTICE, fields, "Node %s left: %s.", n->record.name, reason);
        else
                log_full(news(a), fields, "Node %s joined.", n->record.name);
}

static void on_joined(const struct member_node *n, int64_t revision, void *userdata)
{
        struct agent *a = userdata;

        log_node(a, MESSAGE_JOINED, n, NULL, revision);
        manager_node_joined(a, n, revision);
        steady_nodes(&a->steady, client_membership(a->client)->n, false, boot_now());
}

static void on_left(const struct member_node *n, const char *reason, int64_t revision,
                    void *userdata)
{
        struct agent *a = userdata;

        log_node(a, MESSAGE_LEFT, n, reason, revision);
        manager_node_left(a, n, reason, revision);
        steady_nodes(&a->steady, client_membership(a->client)->n,
                     strcmp(reason, "expired") == 0, boot_now());
}

static void on_changed(const struct member_node *n, int64_t revision, void *userdata)
{
        manager_node_changed(userdata, n, revision);
}

static void log_service(const struct agent *a, const char *message_id, const struct service *s,
                        const char *reason, int64_t revision)
{
        char f_service[128], f_node[NODE_NAME_MAX + 16], f_instance[128], f_rev[48],
                f_reason[64];
        const char *fields[] = {message_id, f_service, f_node,
                                f_instance, f_rev,     reason ? f_reason : NULL,
                                NULL};

        snprintf(f_service, sizeof(f_service), "SERVICE=%s", s->name);
        snprintf(f_node, sizeof(f_node), "NODE=%s", s->node);
        snprintf(f_instance, sizeof(f_instance), "INSTANCE=%s", s->instance);
        snprintf(f_rev, sizeof(f_rev), "REVISION=%" PRId64, revision);
        snprintf(f_reason, sizeof(f_reason), "REASON=%s", reason ? reason : "");
        log_full(news(a), fields, "Service %s%s%s on %s %s%s.", s->name,
                 *s->instance ? " " : "", s->instance, s->node,
                 reason ? "is gone: " : "is there", reason ? reason : "");
}

static void on_service_added(const struct service *s, int64_t revision, void *userdata)
{
        log_service(userdata, MESSAGE_SERVICE_ADDED, s, NULL, revision);
        manager_service_added(userdata, s, revision);
}

static void on_service_removed(const struct service *s, const char *reason, int64_t revision,
                               void *userdata)
{
        log_service(userdata, MESSAGE_SERVICE_REMOVED, s, reason, revision);
        manager_service_removed(userdata, s, reason, revision);
}

static void on_service_changed(const struct service *s, int64_t revision, void *userdata)
{
        manager_service_changed(userdata, s, revision);
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

/* From the settings. */
static void set_steady(struct agent *a)
{
        a->steady.damping_cfg = (struct damping_config){(unsigned) a->opt.flap_limit,
                                                        a->opt.flap_window, a->opt.flap_rest};
        a->steady.brake_cfg = (struct brake_config){(unsigned) a->opt.mass_failure_percent,
                                                    a->opt.mass_failure_window};
}

/* ---- our own place ---- */

static void tell_status(struct agent *a)
{
        const struct session *s = client_session(a->client);
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
                              *a->why ? ": " : "", a->why);
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
        case SESSION_LEFT:
                notify_status("Leaving.");
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

/* It asks again all the time: told once of each boot. */
static void on_claimed(void *userdata, const struct node_record *by)
{
        struct agent *a = userdata;
        char f_id[80], f_boot[80], f_address[NODE_ADDRESSES_MAX + 16];
        const char *fields[] = {MESSAGE_CLAIMED, f_id, f_boot, f_address, NULL};

        if (strcmp(a->claimed_by, by->boot_id) == 0)
                return;
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
                authorize_forget(&a->questions);
                waits_forget(&a->waits);
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

/* Tied to the heartbeat: an agent whose loop does not come round in time, or that acts late on
 * its own deadline, is not healthy, and the watchdog ends it. */
static void on_watchdog(struct loop_timer *t)
{
        struct agent *a = container_of(t, struct agent, watchdog);

        notify_watchdog();
        if (loop_timer_arm(t, boot_add(boot_now(), a->watchdog_period / 3)) < 0)
                abort();
}

/* An agent that hangs is ended early enough for its next life to renew, or to let go in time.
 */
static void make_watchdog(struct agent *a)
{
        nsec_t most = notify_watchdog_period();

        if (most == 0)
                return;
        a->watchdog_period = min_of(most, max_of(a->opt.ttl / 4, WATCHDOG_MIN));
        if (a->watchdog_period < most)
                notify_watchdog_shorten(a->watchdog_period);
        on_watchdog(&a->watchdog);
}

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
                a->asleep = true;
        } else if (!begins && a->asleep) {
                log_info("The host is awake; joining again.");
                a->asleep = false;
                if (a->then == THEN_REST)
                        a->then = THEN_JOIN;
        }
}

bool agent_rest(struct agent *a)
{
        if (a->leaving && a->then != THEN_REST)
                return false;
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

/* After everything else in an iteration: the fence follows, and what has changed of our place
 * goes where a next life finds it. */
static void on_hook(struct loop_hook *h)
{
        struct agent *a = container_of(h, struct agent, hook);
        struct place p;

        /* What the lease protects comes first: all else can wait for it, not the other way. */
        fence_follow(&a->fence, client_session(a->client), a->leaving, boot_now());
        if (client_place(a->client, &p))
                keep_save(&a->keep, &p);
        else if (a->keep.has)
                keep_clear(&a->keep);
        holders_tell(&a->holders, client_session(a->client), boot_now());
        if (client_membership(a->client)->n != a->told_nodes)
                tell_status(a);
        publish_follow(a);
        waits_pump(&a->waits, a->client, boot_now());
        if (a->kept_out == fence_is_down(&a->fence)) {
                held_keep_out(a);
                tell_status(a);
        }
        /* Units that wait for the target at boot wait for us to be ready: it may be up by then.
         */
        if (!a->ready && a->state == SESSION_HELD && fence_is_settled(&a->fence)) {
                a->ready = true;
                notify_ready();
        }
        held_wait(a, boot_now());
        go_on_leaving(a);
        notify_flush();
}

static void on_sigint(struct loop_signal *s)
{
        leave(container_of(s, struct agent, sigint));
}

static int usage(FILE *f)
{
        fprintf(f, "tenured [OPTIONS...]\n\n"
                   "Holds this host's place in the cluster and tells on D-Bus who else is "
                   "there.\n\n"
                   "  -c, --config=FILE              settings [/etc/tenure/tenured.conf, if it "
                   "is there]\n"
                   "  -t, --test                     check the settings, print them, and exit\n"
                   "      --guard                    stop what an agent that has ended left "
                   "up, in "
                   "time; for tenure-guard.service\n"
                   "      --rebooter                 reboot this host when told to; for "
                   "tenure-reboot.service\n"
                   "  -h, --help                     this text; --help=conf: the manual page "
                   "of the "
                   "settings, tenured.conf(5)\n"
                   "      --version\n\n");
        conf_help(options_table, n_options, f);
        fprintf(f, "\nSee tenured(8).\n");
        return f == stdout ? 0 : 1;
}

/* The file, then the command line over it. Returns 0, or a negative errno with *@err. */
static int parse(struct options *o, int argc, char **argv, bool *ret_test,
                 struct conf_error *err)
{
        const char *file = NULL;
        int i, r;

        for (i = 1; i < argc; i++) {
                if (strncmp(argv[i], "--config=", 9) == 0)
                        file = argv[i] + 9;
                else if ((strcmp(argv[i], "--config") == 0 || strcmp(argv[i], "-c") == 0) &&
                         i + 1 < argc)
                        file = argv[++i];
        }
        r = conf_defaults(options_table, n_options, o);
        if (r == 0) {
                r = conf_read_file(options_table, n_options, o, file ? file : DEFAULT_CONFIG,
                                   err);
                if (r == -ENOENT && !file)
                        r = 0;
        }
        for (i = 1; r == 0 && i < argc;) {
                int at = i;

                r = conf_read_args(options_table, n_options, o, argc, argv, &i, err);
                if (r < 0 || i == argc || i != at)
                        continue;
                if (strcmp(argv[i], "--help=conf") == 0) {
                        conf_man(options_table, n_options, "tenured", DEFAULT_CONFIG, stdout);
                        exit(0);
                } else if (strcmp(argv[i], "-h") == 0 || strcmp(argv[i], "--help") == 0) {
                        exit(usage(stdout));
                } else if (strcmp(argv[i], "--version") == 0) {
                        puts("tenured " TENURE_VERSION);
                        exit(0);
                } else if (strcmp(argv[i], "-t") == 0 || strcmp(argv[i], "--test") == 0) {
                        *ret_test = true;
                } else if ((strcmp(argv[i], "--config") == 0 || strcmp(argv[i], "-c") == 0) &&
                           i + 1 < argc) {
                        i++;
                } else if (strncmp(argv[i], "--config=", 9) != 0) {
                        snprintf(err->text, sizeof(err->text),
                                 "unknown option '%s'; see tenured --help", argv[i]);
                        r = -EINVAL;
                }
                i++;
        }
        if (r == 0) {
                err->text[0] = '\0';
                r = options_resolve(o, err);
        }
        if (r < 0 && !*err->text)
                snprintf(err->text, sizeof(err->text), "%s", strerror(-r));
        return r;
}

/* Nothing where no endpoint wants it. */
static int make_tls(const struct options *o, struct tls **ret)
{
        struct tls_error err;
        int r;

        if (!strstr(o->endpoints, "https://") && !strstr(o->endpoints, "srvs://"))
                return 0;
        r = tls_new_client(ret,
                           &(struct tls_files){
                                   .cert = o->cert_file,
                                   .key = o->key_file,
                                   .ca = o->trusted_ca_file,
                                   .http2 = true,
                           },
                           &err);
        if (r < 0)
                log_error("%s.", r == -ENOMEM ? "Out of memory" : err.text);
        return r;
}

/* ---- settings, read once more ---- */

static void on_sighup(struct loop_signal *s)
{
        struct agent *a = container_of(s, struct agent, sighup);
        cleanup_(tls_freep) struct tls *tls = NULL;
        struct conf_error err = {""};
        struct options fresh = {0};
        bool test = false;

        notify_reloading();
        if (parse(&fresh, a->argc, a->argv, &test, &err) < 0) {
                log_error("%s. The settings stay what they were.", err.text);
        } else if (make_tls(&fresh, &tls) < 0) {
                log_error("The settings stay what they were.");
        } else {
                for (size_t i = 0; i < n_options; i++) {
                        const struct conf_option *o = &options_table[i];

                        if (!conf_differs(o, &a->opt, &fresh))
                                continue;
                        if (o->live) /* all else takes a restart, which keeps the place */
                                conf_swap(o, &a->opt, &fresh);
                        log_notice("%s= has changed%s.", o->key,
                                   !o->live ? "; that takes a restart, which keeps the place"
                                   : strcmp(o->key, "TTL") == 0 ? "; from the next lease on"
                                                                : "");
                }
                /* Under the same names there may be others in the files. */
                if (a->tls && tls) {
                        tls_replace(a->tls, take_ptr(tls));
                        log_info("The certificates have been read again.");
                }
                publish_reload(a);
                set_steady(a);
                log_set_level(log_level_from_string(a->opt.log_level));
                client_set_ttl(a->client, a->opt.ttl);
                held_set(a);
        }
        conf_clear(options_table, n_options, &fresh);
        /* READY=1 ends the reload; before the first one nothing is ready. */
        if (a->ready)
                notify_ready();
}

/* What is paged out comes back too late, when memory is short. The unit's LimitMEMLOCK= says
 * whether it may be locked; of what is never touched nothing is. */
static void lock_memory(void)
{
        struct rlimit most;

        if (getrlimit(RLIMIT_MEMLOCK, &most) < 0 || most.rlim_cur != RLIM_INFINITY)
                return;
        if (mlockall(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT) < 0)
                log_warning("Cannot lock memory: %s.", strerror(errno));
}

static int run(struct agent *a)
{
        struct client_config cfg = {
                .cluster = a->opt.cluster,
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
        snprintf(cfg.self.name, sizeof(cfg.self.name), "%s", a->opt.node_name);
        snprintf(cfg.self.id, sizeof(cfg.self.id), "%s", a->opt.node_id);
        boots_own(cfg.self.boot_id, &cfg.boot);
        boots_load(cfg.self.boot_id, boots);
        cfg.boots = boots;
        snprintf(cfg.self.version, sizeof(cfg.self.version), "%s", TENURE_VERSION);
        keep_open(&a->keep);
        holders_open(&a->holders);
        a->resumed = keep_load(&a->keep, a->opt.cluster, &cfg.self, &resume);
        cfg.resume = a->resumed ? &resume : NULL;
        if (getrandom(&cfg.seed, sizeof(cfg.seed), 0) < 0)
                return -errno;
        r = loop_new(&a->loop);
        if (r == 0)
                r = make_tls(&a->opt, &a->tls);
        if (r < 0)
                return r;
        cfg.tls = a->tls;
        loop_timer_init(&a->bus_retry, a->loop, on_bus_retry);
        loop_timer_init(&a->watchdog, a->loop, on_watchdog);
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
        lock_memory();
        held_make(a);
        set_steady(a);
        steady_init(&a->steady, a->loop, on_brake);
        held_keep_out(a);
        authorize_init(&a->questions);
        waits_init(&a->waits, a->loop);
        r = publish_start(a);
        if (r < 0)
                return r;
        logind_init(&a->logind, on_sleep, a);
        standstill_start(&a->standstill, a->loop, on_standstill);
        loop_hook_start(&a->hook, a->loop, on_hook);
        connect_bus(a);
        make_watchdog(a);
        log_info("%s cluster %s as %s (core: %s).", a->resumed ? "Back in" : "Joining",
                 a->opt.cluster, a->opt.node_name, a->opt.endpoints);
        tell_status(a);
        loop_run(a->loop);
        return 0;
}

static void fini(struct agent *a)
{
        fence_fini(&a->fence);
        pid1_free(a->pid1);
        if (a->registry.client)
                authorize_forget(&a->questions);
        waits_forget(&a->waits);
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
        r = parse(&a.opt, argc, argv, &test, &err);
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
