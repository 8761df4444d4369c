/* tenurectl: services, tags, and other single calls to the agent's Manager. */
#include <inttypes.h>
#include <stdio.h>

#include "bus/signals.h"
#include "member/node_record.h"
#include "operand.h"
#include "pick.h"
#include "table.h"
#include "text.h"
#include "verbs.h"

/* ---- tags ---- */

/* Splits each NAME=VALUE at its =. Returns 0, or -1 after printing which operand has none. */
static int split(int argc, char **argv)
{
        for (int i = 0; i < argc; i++)
                if (operand_pair(argv[i]) < 0)
                        return -1;
        return 0;
}

static const char *value_of(const char *pair)
{
        return pair + strlen(pair) + 1;
}

/* Appends an a{ss} of those that are not NULL. */
static int append_pairs(sd_bus_message *m, int argc, char **argv)
{
        int r = sd_bus_message_open_container(m, 'a', "{ss}");

        for (int i = 0; r >= 0 && i < argc; i++)
                if (argv[i])
                        r = sd_bus_message_append(m, "{ss}", argv[i], value_of(argv[i]));
        return r < 0 ? r : sd_bus_message_close_container(m);
}

int verb_set_tags(struct ctl *c, int argc, char **argv)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r;

        if (split(argc, argv) < 0)
                return -1;
        r = sd_bus_message_new_method_call(c->bus, &m, NAME, ROOT, MANAGER, "SetTags");
        if (r >= 0)
                r = append_pairs(m, argc, argv);
        if (r >= 0)
                r = ctl_call(c, m, CTL_ASK_USEC, &error, NULL);
        return r < 0 ? ctl_fail("cannot set the tags", r, &error) : 0;
}

/* ---- wait ---- */

#define WAIT (25 * NSEC_PER_SEC)
#define WAIT_MOST (INT64_C(365) * 86400 * NSEC_PER_SEC)

int verb_wait_revision(struct ctl *c, int argc, char **argv)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        struct json_object *o;
        nsec_t wait = WAIT;
        uint64_t revision, usec;
        int64_t reached;
        int r;

        if (operand_count("REVISION", argv[0], 0, INT64_MAX, &revision) < 0 ||
            (argc > 1 && operand_time("TIME", argv[1], 0, WAIT_MOST, &wait) < 0))
                return -1;
        usec = (uint64_t) (wait / NSEC_PER_USEC);
        r = sd_bus_message_new_method_call(c->bus, &m, NAME, ROOT, MANAGER, "WaitForRevision");
        if (r >= 0)
                r = sd_bus_message_append(m, "xt", (int64_t) revision, usec);
        if (r >= 0)
                r = sd_bus_call(c->bus, m, usec + 5000000, &error, &reply);
        if (r >= 0)
                r = sd_bus_message_read(reply, "x", &reached);
        if (r < 0)
                return ctl_fail("cannot wait", r, &error);
        o = json_object_new_object();
        json_put_number(o, "revision", reached);
        ctl_did(c, o, "%" PRId64, reached);
        return 0;
}

/* ---- describe ---- */

int verb_describe(struct ctl *c, int argc unused_, char **argv unused_)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        struct json_object *o;
        const char *text;
        int r;

        r = sd_bus_call_method(c->bus, NAME, ROOT, MANAGER, "Describe", &error, &m, "");
        if (r >= 0)
                r = sd_bus_message_read(m, "s", &text);
        if (r < 0)
                return ctl_fail("cannot ask the agent", r, &error);
        o = json_tokener_parse(text);
        if (!o)
                return say("the agent's answer is not JSON");
        if (c->json == JSON_OFF)
                c->json = JSON_PRETTY;
        ctl_print(c, o);
        return 0;
}

/* ---- services ---- */

/* Where it is: its own address, or the one that its node prefers, and the port. */
static void put_endpoint(struct json_object *o, struct json_object *nodes)
{
        const char *address = ctl_text(o, "Address"), *colon;
        struct json_object *node = json_object_object_get(nodes, ctl_text(o, "Node"));
        struct json_object *list = json_object_object_get(node, "Addresses");
        int64_t port = ctl_number(o, "Port");
        char text[NODE_ADDRESSES_MAX + 16];

        if (!*address && json_object_is_type(list, json_type_array) &&
            json_object_array_length(list) > 0)
                address = json_object_get_string(json_object_array_get_idx(list, 0));
        colon = strchr(address, ':');
        if (port == 0)
                snprintf(text, sizeof(text), "%s", address);
        else
                snprintf(text, sizeof(text), colon ? "[%s]:%" PRId64 : "%s:%" PRId64, address,
                         port);
        json_put_text(o, "endpoint", text);
}

static bool keep(const struct ctl *c, struct json_object *o, void *nodes)
{
        put_endpoint(o, nodes);
        return pick_word(c->o.node, ctl_text(o, "Node")) &&
               pick_tags(c->o.tag, json_object_object_get(o, "Tags"));
}

/* Gets the nodes by their names. */
static bool keep_node(const struct ctl *c unused_, struct json_object *o, void *nodes)
{
        json_object_object_add(nodes, ctl_text(o, "Name"), json_object_get(o));
        return false;
}

int verb_services(struct ctl *c, int argc, char **argv)
{
        static const struct column columns[] = {
                {"SERVICE", "Name", COLUMN_TEXT},      {"NODE", "Node", COLUMN_TEXT},
                {"INSTANCE", "Instance", COLUMN_TEXT}, {"ADDRESS", "endpoint", COLUMN_TEXT},
                {"STATE", "State", COLUMN_TEXT},       {"SINCE", "Since", COLUMN_TEXT},
                {"UNIT", "Unit", COLUMN_TEXT},         {"TAGS", "Tags", COLUMN_TEXT}};
        static const struct listing listing = {"GetServices", "service", columns,
                                               ARRAY_SIZE(columns), keep};
        static const struct listing all_nodes = {
                .method = "GetNodes", .thing = "node", .keep = keep_node};
        struct json_object *nodes = json_object_new_object(), *none = NULL;
        struct ctl silent = *c;
        int r;

        silent.json = JSON_SHORT;
        silent.taken = &none;
        silent.done = NULL;
        r = ctl_list(&silent, &all_nodes, nodes, 0, NULL);
        json_object_put(none);
        if (r == 0)
                r = ctl_list(c, &listing, nodes, argc, argv);
        json_object_put(nodes);
        return r;
}

/* ---- entries ---- */

static int read_entries(struct ctl *c, struct json_object **ret)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r = sd_bus_call_method(c->bus, NAME, ROOT, MANAGER, "GetServiceEntries", &error, &m,
                                   "");

        if (r >= 0)
                r = ctl_read_properties(m, ret);
        return r < 0 ? ctl_fail("cannot ask the agent", r, &error) : 0;
}

int verb_entries(struct ctl *c, int argc unused_, char **argv unused_)
{
        static const struct column columns[] = {
                {"FILE", "File", COLUMN_TEXT},    {"STATE", "State", COLUMN_TEXT},
                {"SERVICE", "Name", COLUMN_TEXT}, {"INSTANCE", "Instance", COLUMN_TEXT},
                {"UNIT", "Unit", COLUMN_TEXT},    {"REASON", "Reason", COLUMN_REST}};
        struct json_object *list;
        size_t bad = 0;

        if (read_entries(c, &list) < 0)
                return -1;
        for (size_t i = 0; i < json_object_array_length(list); i++) {
                const char *state = ctl_text(json_object_array_get_idx(list, i), "State");

                bad += strcmp(state, "refused") == 0 || strcmp(state, "outdated") == 0;
        }
        table_print(c, list, columns, ARRAY_SIZE(columns));
        if (c->json == JSON_OFF && c->legend)
                printf("\n%zu file(s), %zu of them refused.\n", json_object_array_length(list),
                       bad);
        json_object_put(list);
        return bad > 0 ? EXIT_FAILED : 0;
}

/* ---- register ---- */

struct registering {
        struct ctl *ctl;
        const char *name, *instance;
        int argc;
        char **argv;         /* the tags; NULL in the places of Port= and Address= */
        uint64_t port;       /* 0: none */
        const char *address; /* NULL: the node's */
        int r;
};

/* Takes Port= and Address=, and refuses tags that look like them. Returns 0, or -1 after
 * printing what is wrong. */
static int take_properties(struct registering *g)
{
        static const char *const names[] = {"Address", "Port"};

        for (int i = 0; i < g->argc; i++)
                for (size_t k = 0; k < ARRAY_SIZE(names) && g->argv[i]; k++) {
                        const char *value = value_of(g->argv[i]);

                        if (strcasecmp(g->argv[i], names[k]) != 0)
                                continue;
                        if (strcmp(g->argv[i], names[k]) != 0)
                                return say("'%s' is no tag of a service; write %s=", g->argv[i],
                                           names[k]);
                        if (k == 0)
                                g->address = value;
                        else if (operand_count("Port=", value, 1, UINT16_MAX, &g->port) < 0)
                                return -1;
                        g->argv[i] = NULL;
                }
        return 0;
}

static int append_service(sd_bus_message *m, const struct registering *g)
{
        int r = sd_bus_message_append(m, "ss", g->name, g->instance);

        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "{sv}");
        if (r >= 0 && g->address)
                r = sd_bus_message_append(m, "{sv}", "Address", "s", g->address);
        if (r >= 0 && g->port > 0)
                r = sd_bus_message_append(m, "{sv}", "Port", "q", (uint16_t) g->port);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'e', "sv");
        if (r >= 0)
                r = sd_bus_message_append(m, "s", "Tags");
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'v', "a{ss}");
        if (r >= 0)
                r = append_pairs(m, g->argc, g->argv);
        for (int i = 0; r >= 0 && i < 3; i++) /* the variant, its entry, {sv} */
                r = sd_bus_message_close_container(m);
        return r;
}

static int on_registered(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct registering *g = userdata;
        struct json_object *o;

        if (!sd_bus_message_is_method_error(m, NULL)) {
                o = json_object_new_object();
                json_put_text(o, "event", "Registered");
                json_put_text(o, "name", g->name);
                json_put_text(o, "instance", g->instance);
                ctl_did(g->ctl, o, "Registered.");
                return 0;
        }
        if (sd_bus_message_is_method_error(m, SD_BUS_ERROR_SERVICE_UNKNOWN))
                say("no agent answers on this bus; waiting for it");
        else if (!sd_bus_message_is_method_error(m,
                                                 SD_BUS_ERROR_NO_REPLY)) /* it is back soon */
                g->r = ctl_fail("cannot register", -EIO, sd_bus_message_get_error(m));
        return 0;
}

static int register_now(struct registering *g)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r = sd_bus_message_new_method_call(g->ctl->bus, &m, NAME, ROOT, MANAGER,
                                               "RegisterService");

        if (r >= 0)
                r = append_service(m, g);
        if (r >= 0)
                r = sd_bus_message_set_allow_interactive_authorization(m, g->ctl->ask);
        if (r >= 0)
                r = sd_bus_call_async(g->ctl->bus, NULL, m, on_registered, g, 0);
        return r < 0 ? ctl_fail("cannot register", r, NULL) : 0;
}

static void on_moved(void *userdata, const char *owner)
{
        struct registering *g = userdata;

        if (!*owner)
                say("the agent is gone; waiting for it");
        else
                g->r = register_now(g);
}

int verb_register(struct ctl *c, int argc, char **argv)
{
        cleanup_(signals_end) struct signals from = {0};
        char *slash = strchr(argv[0], '/');
        struct registering g = {
                .ctl = c, .name = argv[0], .instance = "", .argc = argc - 1, .argv = argv + 1};
        int r;

        if (split(g.argc, g.argv) < 0 || take_properties(&g) < 0)
                return -1;
        if (slash) {
                *slash = '\0';
                g.instance = slash + 1;
        }
        r = signals_follow(&from, c->bus, NAME, on_moved, &g);
        if (r < 0)
                return ctl_fail("cannot register", r, NULL);
        g.r = register_now(&g);
        while (g.r == 0 && ctl_hear(c) == 0)
                ;
        return -1;
}
