/* tenurectl: queries and commands for the agent on this host, over D-Bus. */
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <systemd/sd-bus.h>
#include <time.h>
#include <unistd.h>

#include "base/args.h"
#include "base/base.h"
#include "base/clock.h"
#include "base/conf.h"
#include "base/std_fds.h"
#include "base/utf8.h"
#include "bus/signals.h"
#include "core.h"
#include "ctl.h"
#include "lease.h"
#include "metrics.h"
#include "metrics_accept.h"
#include "text.h"
#include "top.h"
#include "work.h"

/* Exit codes, as documented: 0 success; 1 an error; 2 the host does not hold its place
 * (status); 125 an error, if another status would be the command's (lock; lock.c has the
 * others). */
#define EXIT_NOT_HELD 2
#define EXIT_OF_LOCK 125

int ctl_fail(const char *what, int r, const sd_bus_error *error)
{
        const char *why = error && error->message ? error->message : strerror(-r);
        size_t n = strlen(why);
        char shown[1024];

        if (n > 0 && why[n - 1] == '.') /* the agent's sentences have theirs, errno's do not */
                n--;
        if (error && sd_bus_error_has_name(error, SD_BUS_ERROR_SERVICE_UNKNOWN))
                fprintf(stderr, "tenurectl: no agent answers on this bus; is tenured running? "
                                "(systemctl status tenured)\n");
        else
                fprintf(stderr, "tenurectl: %s: %s.\n", what,
                        utf8_shown(why, n, shown, sizeof(shown)));
        return -1;
}

int ctl_json_flags(const struct ctl *c)
{
        return c->json == JSON_PRETTY ? JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED
                                      : JSON_C_TO_STRING_PLAIN;
}

void ctl_print(const struct ctl *c, struct json_object *o)
{
        text_print_json(o, ctl_json_flags(c));
        fflush(stdout);
}

/* ---- status ---- */

static int64_t usec_now(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_BOOTTIME, &ts);
        return (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

static int status(struct ctl *c, int argc, char **argv)
{
        struct json_object *o;
        int64_t deadline, left;
        char text[CTL_SHOWN];
        bool held;

        (void) argv;
        if (argc > 0)
                return ctl_fail("status takes no argument", -EINVAL, NULL);
        if (ctl_get_all(c, ROOT, MANAGER, &o) < 0)
                return -1;
        held = ctl_is_held(o);
        if (c->json != JSON_OFF) {
                ctl_print(c, o);
                return held ? 0 : EXIT_NOT_HELD;
        }
        deadline = ctl_number(o, "DeadlineUSec");
        left = deadline - usec_now();
        printf("      Node: %s (%s)\n", ctl_text(o, "NodeName"), ctl_text(o, "NodeId"));
        printf("   Cluster: %s, %" PRId64 " node(s), revision %" PRId64 "%s\n",
               ctl_text(o, "Cluster"), ctl_number(o, "NNodes"), ctl_number(o, "Revision"),
               ctl_number(o, "Synced") ? "" : " (not followed now)");
        printf("     State: %s\n", ctl_text(o, "State"));
        if (deadline > 0)
                printf("     Lease: %s, TTL %g s, ends in %.1f s unless renewed\n",
                       ctl_text(o, "LeaseId"), (double) ctl_number(o, "TTLUSec") / 1e6,
                       (double) left / 1e6);
        if (*ctl_text(o, "Degraded"))
                printf("  Degraded: %s\n", ctl_shown(o, "Degraded", text));
        if (ctl_number(o, "RestUntilUSec") > usec_now())
                printf("Suppressed: for %.0f s more, because it flapped; tenurectl join ends "
                       "this\n",
                       (double) (ctl_number(o, "RestUntilUSec") - usec_now()) / 1e6);
        if (*ctl_text(o, "Maintenance"))
                printf("  Stays out: %s; tenurectl join ends this\n",
                       strcmp(ctl_text(o, "Maintenance"), "persistent") == 0
                               ? "also after the next boot"
                               : "until the next boot");
        if (json_object_get_boolean(json_object_object_get(o, "MassFailure")))
                printf("   Failure: most nodes have gone at once; software that moves work "
                       "should "
                       "wait\n");
        printf("      Core: %s\n", *ctl_text(o, "CoreEndpoint")
                                           ? ctl_shown(o, "CoreEndpoint", text)
                                           : "no endpoint answers");
        json_object_put(o);
        return held ? 0 : EXIT_NOT_HELD;
}

/* ---- check ---- */

static int check(struct ctl *c, int argc, char **argv)
{
        struct json_object *o, *list;
        size_t n;

        (void) argv;
        if (argc > 0)
                return ctl_fail("check takes no argument", -EINVAL, NULL);
        if (ctl_get_all(c, ROOT, MANAGER, &o) < 0)
                return -1;
        list = json_object_object_get(o, "FenceWarnings");
        if (!json_object_is_type(
                    list, json_type_array)) { /* an older agent, which promises nothing */
                json_object_put(o);
                return ctl_fail("the agent does not report what can be fenced; restart it if "
                                "it is still an earlier version",
                                -ENODATA, NULL);
        }
        n = json_object_array_length(list);
        if (c->json != JSON_OFF) {
                ctl_print(c, json_object_get(list));
        } else {
                for (size_t i = 0; i < n; i++)
                        text_say(stdout, "%s",
                                 json_object_get_string(json_object_array_get_idx(list, i)));
                if (n == 0 && c->legend)
                        puts("Everything that is bound to the place can be fenced in time.");
        }
        json_object_put(o);
        return n == 0 ? 0 : 1;
}

/* ---- leave, join ---- */

/* No timeout, however long bound units take to stop, or a person to type a password: the agent
 * answers, or the bus reports that it is gone. */
static int order(struct ctl *c, sd_bus_message *m, const char *what)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        int r = ctl_call(c, m, UINT64_MAX, &error, NULL);

        return r < 0 ? ctl_fail(what, r, &error) : 0;
}

static int leave(struct ctl *c, int argc, char **argv)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r;

        (void) argv;
        if (argc > 0)
                return ctl_fail("leave takes no argument", -EINVAL, NULL);
        r = sd_bus_message_new_method_call(c->bus, &m, NAME, ROOT, MANAGER,
                                           c->persistent ? "LeaveWithFlags" : "Leave");
        if (r >= 0 && c->persistent)
                r = sd_bus_message_append(m, "t", LEAVE_PERSISTENT);
        return r < 0 ? ctl_fail("cannot leave", r, NULL) : order(c, m, "cannot leave");
}

static int join(struct ctl *c, int argc, char **argv)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r;

        (void) argv;
        if (argc > 0)
                return ctl_fail("join takes no argument", -EINVAL, NULL);
        r = sd_bus_message_new_method_call(c->bus, &m, NAME, ROOT, MANAGER, "Join");
        return r < 0 ? ctl_fail("cannot join", r, NULL) : order(c, m, "cannot join");
}

/* ---- nodes ---- */

static const char *first_of(struct json_object *o, const char *key, char out[static CTL_SHOWN])
{
        struct json_object *v;
        const char *s;

        if (!json_object_object_get_ex(o, key, &v) || json_object_array_length(v) == 0)
                return "-";
        s = json_object_get_string(json_object_array_get_idx(v, 0));
        return utf8_shown(s, strlen(s), out, CTL_SHOWN);
}

static void node_row(struct json_object *o)
{
        char name[CTL_SHOWN], address[CTL_SHOWN], since[CTL_SHOWN], id[CTL_SHOWN],
                why[CTL_SHOWN];
        const char *degraded = ctl_shown(o, "Degraded", why);

        printf("%-24s %-16s %-8g %-20s %s%s%s\n", ctl_shown(o, "Name", name),
               first_of(o, "Addresses", address), (double) ctl_number(o, "TTLUSec") / 1e6,
               ctl_shown(o, "Since", since), ctl_shown(o, "Id", id),
               *degraded ? " degraded: " : "", degraded);
}

static void node_head(void)
{
        printf("%-24s %-16s %-8s %-20s %s\n", "NODE", "ADDRESS", "TTL", "SINCE", "ID");
}

static int nodes(struct ctl *c, int argc, char **argv)
{
        static const struct listing listing = {.method = "GetNodes",
                                               .things = "the nodes",
                                               .thing = "node",
                                               .head = node_head,
                                               .row = node_row};
        ssize_t n = ctl_list(c, &listing, argc, argv);

        if (n >= 0 && n < argc) {
                fprintf(stderr,
                        "tenurectl: %zd of the nodes asked for are not in the cluster.\n",
                        argc - n);
                return -1;
        }
        return n < 0 ? -1 : 0;
}

/* ---- watch ---- */

static int on_signal(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        const char *member = sd_bus_message_get_member(m), *name = "", *id = "", *reason = "",
                   *node = "", *instance = "";
        struct ctl *c = userdata;
        char when[32], text[640], shown[4 * sizeof(text)];
        struct timespec ts;
        int64_t revision = 0;
        uint64_t usec = 0;
        struct tm tm;
        int r = 0;

        (void) error;
        clock_gettime(CLOCK_REALTIME, &ts);
        localtime_r(&ts.tv_sec, &tm);
        strftime(when, sizeof(when), "%H:%M:%S", &tm);
        if (strcmp(member, "NodeLeft") == 0) {
                r = sd_bus_message_read(m, "sssx", &name, &id, &reason, &revision);
                snprintf(text, sizeof(text), "%s left: %s", name, reason);
        } else if (strcmp(member, "NodeJoined") == 0 || strcmp(member, "NodeChanged") == 0) {
                r = sd_bus_message_read(m, "ssx", &name, &id, &revision);
                snprintf(text, sizeof(text), "%s %s", name,
                         strcmp(member, "NodeJoined") == 0 ? "joined" : "changed");
        } else if (strcmp(member, "ServiceRemoved") == 0) {
                r = sd_bus_message_read(m, "ssssx", &name, &node, &instance, &reason,
                                        &revision);
                snprintf(text, sizeof(text), "service %s%s%s on %s is gone: %s", name,
                         *instance ? " " : "", instance, node, reason);
        } else if (strcmp(member, "ServiceAdded") == 0 ||
                   strcmp(member, "ServiceChanged") == 0) {
                r = sd_bus_message_read(m, "sssx", &name, &node, &instance, &revision);
                snprintf(text, sizeof(text), "service %s%s%s on %s %s", name,
                         *instance ? " " : "", instance, node,
                         strcmp(member, "ServiceAdded") == 0 ? "is there" : "changed");
        } else if (strcmp(member, "LeaseLost") == 0) {
                r = sd_bus_message_read(m, "s", &reason);
                snprintf(text, sizeof(text), "this host lost its place: %s", reason);
        } else if (strcmp(member, "LeaseHeld") == 0 || strcmp(member, "LeaseJeopardy") == 0) {
                r = sd_bus_message_read(m, "xt", &revision, &usec);
                snprintf(text, sizeof(text), "this host %s",
                         strcmp(member, "LeaseHeld") == 0
                                 ? "holds its place"
                                 : "may lose its place: renewals fail");
                revision = 0;
        } else {
                return 0;
        }
        if (r < 0)
                return r;
        if (c->json != JSON_OFF) {
                struct json_object *o = json_object_new_object();

                json_object_object_add(o, "event", json_object_new_string(member));
                if (*name) {
                        json_object_object_add(o, "name", json_object_new_string(name));
                        if (*id)
                                json_object_object_add(o, "id", json_object_new_string(id));
                }
                if (*node) {
                        json_object_object_add(o, "node", json_object_new_string(node));
                        json_object_object_add(o, "instance", json_object_new_string(instance));
                }
                if (*reason)
                        json_object_object_add(o, "reason", json_object_new_string(reason));
                if (revision > 0)
                        json_object_object_add(o, "revision", json_object_new_int64(revision));
                json_object_object_add(o, "realtime_usec",
                                       json_object_new_int64((int64_t) ts.tv_sec * 1000000 +
                                                             ts.tv_nsec / 1000));
                ctl_print(c, o);
        } else if (revision > 0) {
                printf("%s.%03ld %s (revision %" PRId64 ")\n", when, ts.tv_nsec / 1000000,
                       utf8_shown(text, strlen(text), shown, sizeof(shown)), revision);
        } else {
                printf("%s.%03ld %s\n", when, ts.tv_nsec / 1000000,
                       utf8_shown(text, strlen(text), shown, sizeof(shown)));
        }
        fflush(stdout);
        return 0;
}

static void on_moved(void *userdata unused_, const char *owner)
{
        fprintf(stderr, *owner ? "tenurectl: the agent is back.\n"
                               : "tenurectl: the agent is gone; waiting for it.\n");
}

static int watch(struct ctl *c, int argc, char **argv)
{
        cleanup_(signals_end) struct signals agent = {0};
        int r;

        (void) argv;
        if (argc > 0)
                return ctl_fail("watch takes no argument", -EINVAL, NULL);
        /* First subscribe, then list, so that no change in between is missed. */
        r = signals_follow(&agent, c->bus, NAME, on_moved, NULL);
        if (r >= 0)
                r = signals_add(&agent, NULL, "path='" ROOT "',interface='" MANAGER "'",
                                on_signal, c);
        if (r < 0)
                return ctl_fail("cannot subscribe", r, NULL);
        if (c->json == JSON_OFF && nodes(c, 0, NULL) < 0)
                return -1;
        for (;;) {
                r = sd_bus_process(c->bus, NULL);
                if (r == 0)
                        r = sd_bus_wait(c->bus, UINT64_MAX);
                if (r < 0 && r != -EINTR)
                        return ctl_fail("the bus connection ended", r, NULL);
        }
}

/* ---- ---- */

static const struct {
        const char *verb, *args, *help;
        int (*fn)(struct ctl *c, int argc, char **argv);
} verbs[] = {
        {"status", "", "this host's place in the cluster (the default)", status},
        {"check", "",
         "check whether everything that is bound to the place can be fenced in time", check},
        {"nodes", "[NODE...]", "the nodes in the cluster", nodes},
        {"services", "[SERVICE...]", "the services, and the nodes that provide them",
         verb_services},
        {"register", "SERVICE [SETTING...]",
         "register a service of this host until interrupted; Port=, Address=, tags",
         verb_register},
        {"set-tags", "NAME=VALUE...", "set attributes of this node; NAME= removes one",
         verb_set_tags},
        {"wait-revision", "REVISION [SECONDS]",
         "wait until the agent has announced everything up to REVISION", verb_wait_revision},
        {"describe", "", "print everything that the agent knows as JSON", verb_describe},
        {"leave", "", "give this host's place back, and stay out until join", leave},
        {"join", "", "end a leave: take a place again", join},
        {"watch", "", "the nodes, then what changes, until interrupted", watch},
        {"ttl", "advise", "recommend a TTL on the evidence of the last day's renewals",
         verb_ttl},
};

static void help(const struct args_program *p, FILE *f)
{
        fprintf(f, "tenurectl [OPTIONS...] COMMAND\n\n"
                   "Asks the agent on this host.\n\nCommands:\n");
        for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
                fprintf(f, "  %-13s %-20s %s\n", verbs[i].verb, verbs[i].args, verbs[i].help);
        fprintf(f, "  %-13s %-20s %s\n", "top", "",
                "the members, the core's replicas and the last events, live");
        fprintf(f, "  %-13s %-20s %s\n", "metrics", "",
                "the agent's counters, in the format of Prometheus");
        fprintf(f, "  %-13s %-20s %s\n", "core", "COMMAND",
                "the lease core: members, snapshots");
        fprintf(f, "  %-13s %-20s %s\n", "lease", "COMMAND",
                "the leases of the core: list, grant, revoke, keep-alive, ttl");
        fprintf(f, "  %-13s %-20s %s\n", "lock", "NAME -- COMMAND",
                "run a command while this host has a lock");
        fprintf(f, "  %-13s %-20s %s\n", "unlock", "NAME",
                "give back a lock whose command was killed");
        fprintf(f, "  %-13s %-20s %s\n", "work", "GROUP [-- COMMAND]",
                "run a command for each task that this member gets, or list the tasks");
        fprintf(f, "  %-13s %-20s %s\n", "switchover", "NAME [NODE]",
                "ask the holder of a lock to hand it over to a node that waits for it");
        fprintf(f, "  %-13s %-20s %s\n", "put", "KEY VALUE",
                "write a key of the core, but only while the place or a lock is held");
        fprintf(f, "  %-13s %-20s %s\n", "cache", "KEY",
                "cache a key of the core, and print it each time that it changes");
        fprintf(f, "\nOptions:\n");
        args_help(p, f);
        fprintf(f, "\nExit status: 0 success; 1 error; 2 (status) the host does not hold its "
                   "place, "
                   "(switchover) it is not possible;\n(lock, unlock, put) 123 the place was "
                   "lost, 124 another holder has the lock; (lock, unlock, work) 125 error.\n"
                   "See tenurectl(1).\n");
}

static int open_bus(struct ctl *c, const char *address)
{
        int r;

        if (!address) {
                r = sd_bus_open_system(&c->bus);
        } else {
                r = sd_bus_new(&c->bus);
                if (r >= 0)
                        r = sd_bus_set_address(c->bus, address);
                if (r >= 0)
                        r = sd_bus_set_bus_client(c->bus, true);
                if (r >= 0)
                        r = sd_bus_start(c->bus);
        }
        return r < 0 ? ctl_fail("cannot reach the bus", r, NULL) : 0;
}

/* The command line. */
struct arguments {
        struct args all;
        struct core_options core;
        struct put_options put;
        struct work_options work;
        struct top_options top;
        struct metrics_options metrics;
        const char *address, *json, *wait;
        bool no_legend, no_ask, persistent, no_pager, prefix;
};

/* Arguments after `core snapshot restore` are tenure-core's, and those after the command of
 * `lock NAME` or `work GROUP` are that command's. */
static bool is_rest(char *const operands[], size_t n)
{
        if (n < 3)
                return false;
        return strcmp(operands[0], "lock") == 0 || strcmp(operands[0], "work") == 0 ||
               (strcmp(operands[0], "core") == 0 && strcmp(operands[1], "snapshot") == 0 &&
                strcmp(operands[2], "restore") == 0);
}

static int arguments_parse(struct arguments *a, int argc, char **argv, struct conf_error *err)
{
        /* clang-format off */
        const struct args_option own[] = {
                {0, "endpoints", "URLS", "(core, lease, lock, put, work, cache, top) the core's URLs [$TENURE_ENDPOINTS, http://127.0.0.1:2379]", .value = &a->core.endpoints},
                {0, "cacert", "FILE", "(core, lease, lock, put, work, cache, top) the CA for https:// URLs", .value = &a->core.cacert},
                {0, "cert", "FILE", "(core, lease, lock, put, work, cache, top) the client's certificate", .value = &a->core.cert},
                {0, "key", "FILE", "(core, lease, lock, put, work, cache, top) the key of the client's certificate", .value = &a->core.key},
                {0, "user", "NAME[:PASSWORD]", "(core, lease, lock, put, work, cache, top) log in as this user; the password is asked for unless it is given here", .value = &a->core.user},
                {0, "password-file", "FILE", "(core, lease, lock, put, work, cache, top) read the password from this file", .value = &a->core.password_file},
                {0, "voter", NULL, "(core add) add it as a voter at once, not as a learner", .flag = &a->core.voter},
                {0, "finish", NULL, "(core upgrade) raise the cluster version, after which no replica can be downgraded", .flag = &a->core.finish},
                {0, "once", NULL, "(lease keep-alive) renew once; (cache, top) print once", .flag = &a->core.once},
                {0, "keys", NULL, "(lease ttl) also print the keys that are attached to the lease", .flag = &a->core.keys},
                {0, "prefix", NULL, "(cache) all keys that begin with KEY", .flag = &a->prefix},
                {0, "wait", "TIME", "(lock) give up after this time [never]; (switchover) the time that the holder has to stop [30s]", .value = &a->wait},
                {0, "while-held", NULL, "(put) write only if the core finds that this host holds its place", .flag = &a->put.while_held},
                {0, "lock", "NAME", "(put) write only if, in addition, this host has that lock", .value = &a->put.lock},
                {0, "file", "FILE", "(put) read the value from this file; -: standard input", .value = &a->put.file},
                {0, "tasks", "N|NAMES|@FILE", "(work) the tasks: 1 to N, names separated by commas, or a file of names", .value = &a->work.tasks},
                {0, "name", "NAME", "(work) the member's name [the host's]", .value = &a->work.name},
                {0, "weight", "N", "(work) this member's share relative to the others [100]", .value = &a->work.weight},
                {0, "ttl", "TIME", "(work) the TTL of the member's lease [10s]", .value = &a->work.ttl},
                {0, "grace", "TIME", "(work) kill a command that takes longer to end [10s]", .value = &a->work.grace},
                {0, "cluster", "NAME", "(work, top) the cluster [the agent's]", .value = &a->work.cluster},
                {0, "iterations", "N", "(top) print this many tables; 0: until interrupted", .value = &a->top.iterations},
                {0, "interval", "TIME", "(top) the time between updates [1s]", .value = &a->top.interval},
                {0, "filter", "WORDS", "(top) only members that have all these words; !WORD: that do not have it", .value = &a->top.filter},
                {0, "sort", "[-]COLUMN", "(top) sort by node, state, left, ttl, age, address, zone or services [node]", .value = &a->top.sort},
                {0, "output", "FILE", "(metrics) write to this file, for node_exporter", .value = &a->metrics.output},
                {0, "http", NULL, "(metrics) answer one request on standard input", .flag = &a->metrics.http},
                {0, "json", "short|pretty|off", "print JSON [off]", .value = &a->json, .bare = "pretty"},
                {0, "no-legend", NULL, "omit headings and totals", .flag = &a->no_legend},
                {0, "persistent", NULL, "(leave) stay out after a boot, too", .flag = &a->persistent},
                {0, "no-ask-password", NULL, "do not ask for a password", .flag = &a->no_ask},
                {0, "no-pager", NULL, "accepted and ignored; there is no pager", .flag = &a->no_pager},
                {0, "bus", "ADDRESS", "use this bus, not the system bus", .value = &a->address},
        };
        /* clang-format on */
        const struct args_program ctl = {
                .name = "tenurectl",
                .version = TENURE_VERSION,
                .options = own,
                .n_options = ARRAY_SIZE(own),
                .help = help,
                .operands = true,
                .rest = is_rest,
        };

        return args_parse(&a->all, &ctl, argc, argv, err);
}

static int parse_wait(const struct arguments *a, nsec_t *ret, struct conf_error *err)
{
        *ret = -1;
        if (!a->wait || nsec_parse(a->wait, ret) == 0)
                return 0;
        snprintf(err->text, sizeof(err->text),
                 "--wait must be a time such as 500ms or 10s, not '%s'", a->wait);
        return -EINVAL;
}

static int parse_json(const struct arguments *a, enum json_mode *ret, struct conf_error *err)
{
        static const char *const words[] = {
                [JSON_OFF] = "off", [JSON_SHORT] = "short", [JSON_PRETTY] = "pretty"};

        *ret = JSON_OFF;
        for (size_t i = 0; i < ARRAY_SIZE(words); i++)
                if (a->json && strcmp(a->json, words[i]) == 0) {
                        *ret = (enum json_mode) i;
                        return 0;
                }
        if (!a->json)
                return 0;
        snprintf(err->text, sizeof(err->text), "--json must be short, pretty or off, not '%s'",
                 a->json);
        return -EINVAL;
}

/* Output that could not be written is an error. */
static int finish(int r, int failed)
{
        if (fflush(stdout) == 0 && !ferror(stdout))
                return r < 0 ? failed : r;
        fprintf(stderr, "tenurectl: cannot write to standard output: %s.\n", strerror(errno));
        return failed;
}

static bool is_locking(const char *verb)
{
        return strcmp(verb, "lock") == 0 || strcmp(verb, "unlock") == 0;
}

/* Returns the exit status. */
static int run(struct ctl *c, struct arguments *a, bool endpoints_given, int failed)
{
        const char *verb = a->all.n_operands > 0 ? a->all.operands[0] : "status";
        char **rest = a->all.operands + min_of(a->all.n_operands, (size_t) 1);
        int n = max_of((int) a->all.n_operands - 1, 0), r;

        if (strcmp(verb, "core") == 0)
                return finish(core_main(&a->core, n, rest), failed);
        if (strcmp(verb, "switchover") == 0)
                return finish(switchover_main(c, &a->core, endpoints_given, n, rest), failed);
        if (strcmp(verb, "cache") == 0)
                return finish(cache_main(c, &a->core, endpoints_given, a->prefix, n, rest),
                              failed);
        if (strcmp(verb, "metrics") == 0) {
                if (a->metrics.http && metrics_accept() < 0)
                        return failed;
                if (open_bus(c, a->address) < 0)
                        c->bus = sd_bus_flush_close_unref(c->bus);
                r = metrics_main(c, &a->metrics, n, rest);
                sd_bus_flush_close_unref(c->bus);
                return finish(r, failed);
        }
        if (strcmp(verb, "top") == 0) {
                a->top.once = a->core.once;
                a->top.cluster = a->work.cluster;
                return finish(top_main(c, &a->core, endpoints_given, &a->top, n, rest), failed);
        }
        if (strcmp(verb, "lease") == 0)
                return finish(lease_main(&a->core, n, rest), failed);
        if (is_locking(verb)) {
                r = open_bus(c, a->address);
                if (r == 0)
                        r = (*verb == 'l' ? lock_main : unlock_main)(c, &a->core,
                                                                     endpoints_given, n, rest);
                sd_bus_flush_close_unref(c->bus);
                return r < 0 ? failed : r;
        }
        if (strcmp(verb, "put") == 0) {
                r = open_bus(c, a->address);
                if (r == 0)
                        r = put_main(c, &a->core, endpoints_given, &a->put, n, rest);
                sd_bus_flush_close_unref(c->bus);
                return finish(r, failed);
        }
        if (strcmp(verb, "work") == 0) {
                r = n == 1 && !a->work.cluster && !endpoints_given ? open_bus(c, a->address)
                                                                   : 0;
                if (r == 0)
                        r = work_main(c, &a->core, &a->work, endpoints_given, a->address, n,
                                      rest);
                sd_bus_flush_close_unref(c->bus);
                return finish(r, failed);
        }
        for (size_t k = 0; k < ARRAY_SIZE(verbs); k++)
                if (strcmp(verbs[k].verb, verb) == 0) {
                        r = open_bus(c, a->address);
                        if (r == 0)
                                r = verbs[k].fn(c, n, rest);
                        sd_bus_flush_close_unref(c->bus);
                        return finish(r, failed);
                }
        fprintf(stderr, "tenurectl: unknown command '%s'; see tenurectl --help.\n", verb);
        return failed;
}

int main(int argc, char **argv)
{
        const char *env = getenv("TENURE_ENDPOINTS");
        const char *given = "http://127.0.0.1:2379";
        struct arguments a = {.core.endpoints = env && *env ? env : given};
        struct conf_error err = {""};
        struct ctl c = {0};
        int failed = 1, r;

        std_fds_reserve();
        r = arguments_parse(&a, argc, argv, &err);
        if (a.all.n_operands > 0 &&
            (is_locking(a.all.operands[0]) || strcmp(a.all.operands[0], "work") == 0))
                failed = EXIT_OF_LOCK;
        if (r == 0)
                r = parse_wait(&a, &a.core.wait, &err);
        if (r == 0)
                r = parse_json(&a, &c.json, &err);
        if (r == 0) {
                c.legend = a.core.legend = !a.no_legend;
                c.ask = !a.no_ask;
                c.persistent = a.persistent;
                c.address = a.address;
                a.core.json = (int) c.json;
                r = run(&c, &a, a.core.endpoints != given, failed);
        } else if (r < 0) {
                fprintf(stderr, "tenurectl: %s.\n", *err.text ? err.text : strerror(-r));
                r = failed;
        } else {
                r = 0; /* --help and the like */
        }
        args_fini(&a.all);
        return r;
}
