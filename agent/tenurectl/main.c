/*
 * tenurectl: asks the agent on this host, over D-Bus, who is there.
 */
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <systemd/sd-bus.h>
#include <time.h>
#include <unistd.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/conf.h"
#include "core.h"
#include "ctl.h"

/* Exit codes, as documented: 0 fine; 1 an error; 2 the host does not hold its place (status);
 * 125 an error, where another status would be the command's (lock; lock.c has the others). */
#define EXIT_NOT_HELD 2
#define EXIT_OF_LOCK 125

int ctl_fail(const char *what, int r, const sd_bus_error *error)
{
        if (error && sd_bus_error_has_name(error, SD_BUS_ERROR_SERVICE_UNKNOWN))
                fprintf(stderr, "tenurectl: no agent answers on this bus; is tenured running? "
                                "(systemctl status tenured)\n");
        else
                fprintf(stderr, "tenurectl: %s: %s.\n", what,
                        error && error->message ? error->message : strerror(-r));
        return -1;
}

void ctl_print(const struct ctl *c, struct json_object *o)
{
        puts(json_object_to_json_string_ext(
                o, c->json == JSON_PRETTY ? JSON_C_TO_STRING_PRETTY | JSON_C_TO_STRING_SPACED
                                          : JSON_C_TO_STRING_PLAIN));
        fflush(stdout);
        json_object_put(o);
}

static struct json_object *json_hex(int64_t v)
{
        char text[24];

        snprintf(text, sizeof(text), "%016" PRIx64, (uint64_t) v);
        return json_object_new_string(text);
}

/* A list of strings, or of pairs of them. */
static int read_list(sd_bus_message *m, struct json_object **ret)
{
        struct json_object *o = json_object_new_array();
        const char *s;
        int r = sd_bus_message_enter_container(m, 'v', "as");

        if (r >= 0)
                r = sd_bus_message_enter_container(m, 'a', "s");
        while (r >= 0 && (r = sd_bus_message_read(m, "s", &s)) > 0)
                json_object_array_add(o, json_object_new_string(s));
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        *ret = o;
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

static int read_pairs(sd_bus_message *m, struct json_object **ret)
{
        struct json_object *o = json_object_new_object();
        const char *k, *s;
        int r = sd_bus_message_enter_container(m, 'v', "a{ss}");

        if (r >= 0)
                r = sd_bus_message_enter_container(m, 'a', "{ss}");
        while (r >= 0 && (r = sd_bus_message_read(m, "{ss}", &k, &s)) > 0)
                json_object_object_add(o, k, json_object_new_string(s));
        if (r >= 0)
                r = sd_bus_message_exit_container(m);
        *ret = o;
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

/* Reads a{sv} into a JSON object: strings, numbers, booleans, lists and pairs as they are. */
static int read_properties(sd_bus_message *m, struct json_object *o)
{
        int r = sd_bus_message_enter_container(m, 'a', "{sv}");

        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'e', "sv")) > 0) {
                struct json_object *list = NULL;
                const char *key, *type, *s;
                uint16_t q;
                uint64_t t;
                int64_t x;
                int b;

                r = sd_bus_message_read(m, "s", &key);
                if (r >= 0)
                        r = sd_bus_message_peek_type(m, NULL, &type);
                if (r < 0)
                        break;
                if (strcmp(type, "as") == 0 || strcmp(type, "a{ss}") == 0) {
                        r = type[1] == 's' ? read_list(m, &list) : read_pairs(m, &list);
                        json_object_object_add(o, key, list);
                } else if (strcmp(type, "q") == 0 &&
                           (r = sd_bus_message_read(m, "v", "q", &q)) >= 0)
                        json_object_object_add(o, key, json_object_new_int(q));
                else if (strcmp(type, "s") == 0 &&
                         (r = sd_bus_message_read(m, "v", "s", &s)) >= 0)
                        json_object_object_add(o, key, json_object_new_string(s));
                else if (strcmp(type, "t") == 0 &&
                         (r = sd_bus_message_read(m, "v", "t", &t)) >= 0)
                        json_object_object_add(o, key, json_object_new_int64((int64_t) t));
                else if (strcmp(type, "x") == 0 &&
                         (r = sd_bus_message_read(m, "v", "x", &x)) >= 0)
                        json_object_object_add(o, key,
                                               strcmp(key, "LeaseId") == 0
                                                       ? json_hex(x)
                                                       : json_object_new_int64(x));
                else if (strcmp(type, "b") == 0 &&
                         (r = sd_bus_message_read(m, "v", "b", &b)) >= 0)
                        json_object_object_add(o, key, json_object_new_boolean(b));
                else if (r >= 0)
                        r = sd_bus_message_skip(m, "v");
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
        }
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

int ctl_get_all(struct ctl *c, const char *path, const char *interface,
                struct json_object **ret)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        struct json_object *o = json_object_new_object();
        int r;

        r = sd_bus_call_method(c->bus, NAME, path, "org.freedesktop.DBus.Properties", "GetAll",
                               &error, &m, "s", interface);
        if (r >= 0)
                r = read_properties(m, o);
        if (r < 0) {
                json_object_put(o);
                return ctl_fail("cannot ask the agent", r, &error);
        }
        *ret = o;
        return 0;
}

const char *ctl_text(struct json_object *o, const char *key)
{
        struct json_object *v;

        return json_object_object_get_ex(o, key, &v) ? json_object_get_string(v) : "";
}

static const char *first_of(struct json_object *o, const char *key)
{
        struct json_object *v;

        if (!json_object_object_get_ex(o, key, &v) || json_object_array_length(v) == 0)
                return "-";
        return json_object_get_string(json_object_array_get_idx(v, 0));
}

int64_t ctl_number(struct json_object *o, const char *key)
{
        struct json_object *v;

        return json_object_object_get_ex(o, key, &v) ? json_object_get_int64(v) : 0;
}

static bool is_wanted(const char *name, int argc, char **argv)
{
        for (int i = 0; i < argc; i++)
                if (strcmp(argv[i], name) == 0)
                        return true;
        return argc == 0;
}

/* One page of what is behind @path, which then is the last one's. Returns how many there were,
 * or a negative errno. */
static int read_page(struct ctl *c, const struct listing *l, int argc, char **argv, char **path,
                     struct json_object *all, sd_bus_error *error)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        const char *at;
        int n = 0, r;

        r = sd_bus_call_method(c->bus, NAME, ROOT, MANAGER, l->method, error, &m, "ou", *path,
                               (uint32_t) 0);
        if (r >= 0)
                r = sd_bus_message_enter_container(m, 'a', "(oa{sv})");
        while (r >= 0 && (r = sd_bus_message_enter_container(m, 'r', "oa{sv}")) > 0) {
                struct json_object *o = json_object_new_object();

                r = sd_bus_message_read(m, "o", &at);
                if (r >= 0)
                        r = read_properties(m, o);
                if (r >= 0)
                        r = sd_bus_message_exit_container(m);
                if (r >= 0 && is_wanted(ctl_text(o, "Name"), argc, argv))
                        json_object_array_add(all, o);
                else
                        json_object_put(o);
                n++;
                if (r < 0)
                        break;
                free(*path);
                *path = strdup(at);
                if (!*path)
                        return -ENOMEM;
        }
        return r < 0 ? r : n;
}

ssize_t ctl_list(struct ctl *c, const struct listing *l, int argc, char **argv)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        struct json_object *all = json_object_new_array();
        cleanup_(freep) char *path = strdup("/");
        char what[64];
        size_t n;
        int r = path ? 1 : -ENOMEM;

        while (r > 0)
                r = read_page(c, l, argc, argv, &path, all, &error);
        if (r < 0) {
                json_object_put(all);
                snprintf(what, sizeof(what), "cannot list %s", l->things);
                return ctl_fail(what, r, &error);
        }
        if (c->json == JSON_OFF && c->legend)
                l->head();
        n = json_object_array_length(all);
        for (size_t i = 0; i < n && c->json == JSON_OFF; i++)
                l->row(json_object_array_get_idx(all, i));
        if (c->json != JSON_OFF) {
                ctl_print(c, all);
        } else {
                json_object_put(all);
                if (c->legend)
                        printf("\n%zu %s(s).\n", n, l->thing);
        }
        return (ssize_t) n;
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
        bool held;

        (void) argv;
        if (argc > 0)
                return ctl_fail("status takes no argument", -EINVAL, NULL);
        if (ctl_get_all(c, ROOT, MANAGER, &o) < 0)
                return -1;
        held = strcmp(ctl_text(o, "State"), "held") == 0 ||
               strcmp(ctl_text(o, "State"), "jeopardy") == 0;
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
                printf("  Degraded: %s\n", ctl_text(o, "Degraded"));
        if (ctl_number(o, "RestUntilUSec") > usec_now())
                printf("     Rests: %.0f s more, for it flapped; tenurectl join ends that\n",
                       (double) (ctl_number(o, "RestUntilUSec") - usec_now()) / 1e6);
        if (*ctl_text(o, "Maintenance"))
                printf("  Stays out: %s; tenurectl join ends that\n",
                       strcmp(ctl_text(o, "Maintenance"), "persistent") == 0
                               ? "over boots"
                               : "until the next boot");
        if (json_object_get_boolean(json_object_object_get(o, "MassFailure")))
                printf("   Failure: most of the nodes are gone at once; what moves work should "
                       "wait\n");
        printf("      Core: %s\n", *ctl_text(o, "CoreEndpoint") ? ctl_text(o, "CoreEndpoint")
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
        if (!json_object_is_type(list, json_type_array)) { /* no word of it is no promise */
                json_object_put(o);
                return ctl_fail("the agent does not say what can be fenced; restart it, if it "
                                "is of an earlier version",
                                -ENODATA, NULL);
        }
        n = json_object_array_length(list);
        if (c->json != JSON_OFF) {
                ctl_print(c, json_object_get(list));
        } else {
                for (size_t i = 0; i < n; i++)
                        puts(json_object_get_string(json_object_array_get_idx(list, i)));
                if (n == 0 && c->legend)
                        puts("All that is bound to the place can be fenced in time.");
        }
        json_object_put(o);
        return n == 0 ? 0 : 1;
}

/* ---- leave, join ---- */

/* However long what is bound to the place takes to stop, and somebody to type a password: the
 * agent answers, or the bus says that it is gone. */
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

static void node_row(struct json_object *o)
{
        const char *degraded = ctl_text(o, "Degraded");

        printf("%-24s %-16s %-8g %-20s %s%s%s\n", ctl_text(o, "Name"), first_of(o, "Addresses"),
               (double) ctl_number(o, "TTLUSec") / 1e6, ctl_text(o, "Since"), ctl_text(o, "Id"),
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
        char when[32], text[640];
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
                printf("%s.%03ld %s (revision %" PRId64 ")\n", when, ts.tv_nsec / 1000000, text,
                       revision);
        } else {
                printf("%s.%03ld %s\n", when, ts.tv_nsec / 1000000, text);
        }
        fflush(stdout);
        return 0;
}

static int on_owner_changed(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        const char *name, *was, *is;

        (void) userdata;
        (void) error;
        if (sd_bus_message_read(m, "sss", &name, &was, &is) < 0 || strcmp(name, NAME) != 0)
                return 0;
        fprintf(stderr, *is ? "tenurectl: the agent is back.\n"
                            : "tenurectl: the agent is gone; waiting for it.\n");
        return 0;
}

static int watch(struct ctl *c, int argc, char **argv)
{
        int r;

        (void) argv;
        if (argc > 0)
                return ctl_fail("watch takes no argument", -EINVAL, NULL);
        /* Matches first, then the list: what changes in between is seen. */
        r = sd_bus_match_signal(c->bus, NULL, NAME, ROOT, MANAGER, NULL, on_signal, c);
        if (r >= 0)
                r = sd_bus_match_signal(c->bus, NULL, "org.freedesktop.DBus",
                                        "/org/freedesktop/DBus", "org.freedesktop.DBus",
                                        "NameOwnerChanged", on_owner_changed, c);
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
        {"check", "", "whether all that is bound to the place can be fenced in time", check},
        {"nodes", "[NODE...]", "who is there", nodes},
        {"services", "[SERVICE...]", "what is there, and on which nodes", verb_services},
        {"register", "SERVICE [SETTING...]",
         "a service of this host, until interrupted; Port=, Address=, tags", verb_register},
        {"set-tags", "NAME=VALUE...", "this node's attributes; NAME= removes one",
         verb_set_tags},
        {"wait-revision", "REVISION [SECONDS]",
         "until the agent has told all that happened up to there", verb_wait_revision},
        {"describe", "", "everything the agent knows, as JSON", verb_describe},
        {"leave", "", "give this host's place back, and stay out until told to join", leave},
        {"join", "", "take a place again", join},
        {"watch", "", "who is there, then what changes, until interrupted", watch},
};

static int usage(FILE *f)
{
        fprintf(f, "tenurectl [OPTIONS...] COMMAND\n\n"
                   "Asks the agent on this host.\n\nCommands:\n");
        for (size_t i = 0; i < ARRAY_SIZE(verbs); i++)
                fprintf(f, "  %-13s %-20s %s\n", verbs[i].verb, verbs[i].args, verbs[i].help);
        fprintf(f, "  %-13s %-20s %s\n", "core", "COMMAND",
                "the lease core: members, snapshots");
        fprintf(f, "  %-13s %-20s %s\n", "lock", "NAME -- COMMAND",
                "run a command while this host has a lock");
        fprintf(f, "  %-13s %-20s %s\n", "unlock", "NAME",
                "give back a lock whose command was killed");
        fprintf(f, "\nOptions:\n"
                   "  --endpoints=URLS          (core) where it is [$TENURE_ENDPOINTS, "
                   "http://127.0.0.1:2379]\n"
                   "  --cacert=FILE --cert=FILE --key=FILE   (core) for https:// ones\n"
                   "  --user=NAME[:PASSWORD]    (core) log in; the password is asked for if "
                   "neither given here\n"
                   "  --password-file=FILE      (core) nor in this file\n"
                   "  --wait=TIME               (lock) give up after it [never]\n"
                   "  --json=short|pretty|off   print JSON [off]\n"
                   "  --no-legend               no headings and totals\n"
                   "  --persistent              leave: over boots, too\n"
                   "  --no-ask-password         ask nobody for a password\n"
                   "  --no-pager                accepted; there is no pager\n"
                   "  --bus=ADDRESS             another bus than the system's\n"
                   "  -h, --help\n"
                   "  --version\n\n"
                   "Exit status: 0 fine, 1 an error, 2 (status) the host does not hold its "
                   "place;\n(lock, unlock) 123 it lost it, 124 somebody else has the lock, 125 "
                   "an error.\n"
                   "See tenurectl(1).\n");
        return f == stdout ? 0 : 1;
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

/* Options may stand anywhere. Returns false for an unknown one. */
static bool parse_option(struct ctl *c, const char *arg, const char **ret_address)
{
        if (strcmp(arg, "--json=short") == 0)
                c->json = JSON_SHORT;
        else if (strcmp(arg, "--json=pretty") == 0 || strcmp(arg, "--json") == 0)
                c->json = JSON_PRETTY;
        else if (strcmp(arg, "--json=off") == 0)
                c->json = JSON_OFF;
        else if (strcmp(arg, "--no-legend") == 0)
                c->legend = false;
        else if (strcmp(arg, "--no-ask-password") == 0)
                c->ask = false;
        else if (strcmp(arg, "--persistent") == 0)
                c->persistent = true;
        else if (strncmp(arg, "--bus=", 6) == 0)
                *ret_address = arg + 6;
        else
                return strcmp(arg, "--no-pager") == 0;
        return true;
}

static bool core_option(struct core_options *o, const char *arg)
{
        static const char *const names[] = {"--endpoints=", "--cacert=", "--cert=",
                                            "--key=",       "--user=",   "--password-file="};
        const char **fields[] = {&o->endpoints, &o->cacert, &o->cert,
                                 &o->key,       &o->user,   &o->password_file};

        if (strcmp(arg, "--voter") == 0)
                return o->voter = true;
        if (strncmp(arg, "--wait=", 7) == 0)
                return nsec_parse(arg + 7, &o->wait) == 0 && o->wait >= 0;
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                if (strncmp(arg, names[i], strlen(names[i])) == 0) {
                        *fields[i] = arg + strlen(names[i]);
                        return true;
                }
        return false;
}

/* What was not written was not told. */
static int finish(int r, int failed)
{
        if (fflush(stdout) == 0 && !ferror(stdout))
                return r < 0 ? failed : r;
        fprintf(stderr, "tenurectl: cannot write to standard output: %s.\n", strerror(errno));
        return failed;
}

int main(int argc, char **argv)
{
        const char *env = getenv("TENURE_ENDPOINTS");
        const char *given = "http://127.0.0.1:2379";
        struct core_options core = {.endpoints = env && *env ? env : given, .wait = -1};
        struct ctl c = {.legend = true, .ask = true};
        const char *address = NULL, *verb = "status";
        int n = 0, r, failed = 1;

        for (int i = 1; i < argc; i++)
                if (argv[i][0] != '-') {
                        if (strcmp(argv[i], "lock") == 0 || strcmp(argv[i], "unlock") == 0)
                                failed = EXIT_OF_LOCK;
                        break;
                }
        for (int i = 1; i < argc; i++) {
                if (strcmp(argv[i], "--") == 0) { /* what comes after it is a command's */
                        while (++i < argc)
                                argv[n++] = argv[i];
                        break;
                }
                if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
                        return usage(stdout);
                if (strcmp(argv[i], "--version") == 0) {
                        puts("tenurectl " TENURE_VERSION);
                        return 0;
                }
                /* What comes after it is tenure-core's. */
                if (n >= 3 && strcmp(argv[0], "core") == 0 && strcmp(argv[2], "restore") == 0) {
                        argv[n++] = argv[i];
                        continue;
                }
                if (argv[i][0] != '-') {
                        argv[n++] = argv[i];
                } else if (core_option(&core, argv[i])) {
                        continue;
                } else if (!parse_option(&c, argv[i], &address)) {
                        fprintf(stderr,
                                "tenurectl: unknown option '%s'; see tenurectl --help.\n",
                                argv[i]);
                        return failed;
                }
        }
        argv[n] = NULL;
        if (n > 0)
                verb = argv[0];
        if (strcmp(verb, "core") == 0) {
                core.json = (int) c.json;
                core.legend = c.legend;
                return finish(core_main(&core, n - 1, argv + 1), failed);
        }
        if (strcmp(verb, "lock") == 0 || strcmp(verb, "unlock") == 0) {
                r = open_bus(&c, address);
                if (r == 0)
                        r = (*verb == 'l' ? lock_main : unlock_main)(
                                &c, &core, core.endpoints != given, n - 1, argv + 1);
                sd_bus_flush_close_unref(c.bus);
                return r < 0 ? failed : r;
        }
        for (size_t k = 0; k < ARRAY_SIZE(verbs); k++)
                if (strcmp(verbs[k].verb, verb) == 0) {
                        r = open_bus(&c, address);
                        if (r == 0)
                                r = verbs[k].fn(&c, max_of(n - 1, 0), argv + 1);
                        sd_bus_flush_close_unref(c.bus);
                        return finish(r, failed);
                }
        fprintf(stderr, "tenurectl: unknown command '%s'; see tenurectl --help.\n", verb);
        return 1;
}
