/* tenurectl: services, tags, and other single calls to the agent's Manager. */
#include <inttypes.h>
#include <stdio.h>

#include "bus/signals.h"
#include "ctl.h"

/* ---- tags ---- */

int verb_set_tags(struct ctl *c, int argc, char **argv)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r = sd_bus_message_new_method_call(c->bus, &m, NAME, ROOT, MANAGER, "SetTags");

        if (argc == 0)
                return ctl_fail("set-tags needs NAME=VALUE, or NAME= to remove one", -EINVAL,
                                NULL);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "{ss}");
        for (int i = 0; r >= 0 && i < argc; i++) {
                char *value = strchr(argv[i], '=');

                if (!value)
                        return ctl_fail(argv[i], -EINVAL, NULL);
                *value++ = '\0';
                r = sd_bus_message_append(m, "{ss}", argv[i], value);
        }
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        if (r >= 0)
                r = ctl_call(c, m, CTL_ASK_USEC, &error, NULL);
        return r < 0 ? ctl_fail("cannot set the tags", r, &error) : 0;
}

/* ---- wait ---- */

int verb_wait_revision(struct ctl *c, int argc, char **argv)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *reply = NULL;
        uint64_t timeout = UINT64_C(25000000);
        int64_t revision;
        char *end;
        int r;

        if (argc < 1 || argc > 2)
                return ctl_fail("wait-revision needs REVISION [SECONDS]", -EINVAL, NULL);
        revision = strtoll(argv[0], &end, 10);
        if (*end || !*argv[0])
                return ctl_fail("wait-revision needs a number", -EINVAL, NULL);
        if (argc == 2)
                timeout = (uint64_t) (strtod(argv[1], NULL) * 1e6);
        r = sd_bus_message_new_method_call(c->bus, &m, NAME, ROOT, MANAGER, "WaitForRevision");
        if (r >= 0)
                r = sd_bus_message_append(m, "xt", revision, timeout);
        if (r >= 0)
                r = sd_bus_call(c->bus, m, timeout + 5000000, &error, &reply);
        if (r >= 0)
                r = sd_bus_message_read(reply, "x", &revision);
        if (r < 0)
                return ctl_fail("cannot wait", r, &error);
        printf("%" PRId64 "\n", revision);
        return 0;
}

/* ---- describe ---- */

int verb_describe(struct ctl *c, int argc, char **argv)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        struct json_object *o;
        const char *text;
        int r;

        (void) argv;
        if (argc > 0)
                return ctl_fail("describe takes no argument", -EINVAL, NULL);
        r = sd_bus_call_method(c->bus, NAME, ROOT, MANAGER, "Describe", &error, &m, "");
        if (r >= 0)
                r = sd_bus_message_read(m, "s", &text);
        if (r < 0)
                return ctl_fail("cannot ask the agent", r, &error);
        o = json_tokener_parse(text);
        if (!o)
                return ctl_fail("the agent's answer is not JSON", -EBADMSG, NULL);
        if (c->json == JSON_OFF)
                c->json = JSON_PRETTY;
        ctl_print(c, o);
        return 0;
}

/* ---- services ---- */

static const char *or_dash(const char *s)
{
        return *s ? s : "-";
}

static void service_row(struct json_object *o)
{
        char port[16] = "-", name[CTL_SHOWN], node[CTL_SHOWN], instance[CTL_SHOWN],
             state[CTL_SHOWN], since[CTL_SHOWN], unit[CTL_SHOWN];

        if (ctl_number(o, "Port") > 0)
                snprintf(port, sizeof(port), "%" PRId64, ctl_number(o, "Port"));
        printf("%-20s %-20s %-12s %-6s %-10s %-20s %s\n", ctl_shown(o, "Name", name),
               ctl_shown(o, "Node", node), or_dash(ctl_shown(o, "Instance", instance)), port,
               or_dash(ctl_shown(o, "State", state)), ctl_shown(o, "Since", since),
               or_dash(ctl_shown(o, "Unit", unit)));
}

static void service_head(void)
{
        printf("%-20s %-20s %-12s %-6s %-10s %-20s %s\n", "SERVICE", "NODE", "INSTANCE", "PORT",
               "STATE", "SINCE", "UNIT");
}

int verb_services(struct ctl *c, int argc, char **argv)
{
        static const struct listing listing = {.method = "GetServices",
                                               .things = "the services",
                                               .thing = "service",
                                               .head = service_head,
                                               .row = service_row};
        ssize_t n = ctl_list(c, &listing, argc, argv);

        if (n == 0 && argc > 0) {
                fprintf(stderr, "tenurectl: no such service is in the cluster.\n");
                return -1;
        }
        return n < 0 ? -1 : 0;
}

/* ---- register ---- */

struct registering {
        struct ctl *ctl;
        char *name;
        const char *instance;
        int argc;
        char **argv;
        int r;
};

static int add_property(sd_bus_message *m, const char *key, const char *value)
{
        char *end;
        long port;

        if (strcmp(key, "Address") == 0)
                return sd_bus_message_append(m, "{sv}", key, "s", value);
        port = strtol(value, &end, 10);
        if (!*value || *end || port < 1 || port > 65535)
                return -ERANGE;
        return sd_bus_message_append(m, "{sv}", key, "q", (uint16_t) port);
}

static bool is_property(const char *word)
{
        return strncmp(word, "Port=", 5) == 0 || strncmp(word, "Address=", 8) == 0;
}

static int add_all(sd_bus_message *m, int argc, char **argv)
{
        int r = sd_bus_message_open_container(m, 'a', "{sv}");

        for (int i = 0; r >= 0 && i < argc; i++) {
                char key[16];

                if (!is_property(argv[i]))
                        continue;
                snprintf(key, sizeof(key), "%.*s", (int) strcspn(argv[i], "="), argv[i]);
                r = add_property(m, key, strchr(argv[i], '=') + 1);
        }
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'e', "sv");
        if (r >= 0)
                r = sd_bus_message_append(m, "s", "Tags");
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'v', "a{ss}");
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "{ss}");
        for (int i = 0; r >= 0 && i < argc; i++) {
                char key[256];

                if (is_property(argv[i]))
                        continue;
                snprintf(key, sizeof(key), "%.*s", (int) strcspn(argv[i], "="), argv[i]);
                r = sd_bus_message_append(
                        m, "{ss}", key, argv[i] + strlen(key) + (strchr(argv[i], '=') != NULL));
        }
        for (int i = 0; r >= 0 && i < 4; i++) /* {ss}, the variant, its entry, {sv} */
                r = sd_bus_message_close_container(m);
        return r;
}

static int on_registered(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct registering *g = userdata;

        if (!sd_bus_message_is_method_error(m, NULL)) {
                printf("Registered.\n");
                fflush(stdout);
                return 0;
        }
        /* If no agent runs now, wait for it. */
        if (sd_bus_message_is_method_error(m, SD_BUS_ERROR_SERVICE_UNKNOWN) ||
            sd_bus_message_is_method_error(m, SD_BUS_ERROR_NO_REPLY))
                return 0;
        g->r = ctl_fail("cannot register", -EIO, sd_bus_message_get_error(m));
        return 0;
}

static int register_now(struct registering *g)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r = sd_bus_message_new_method_call(g->ctl->bus, &m, NAME, ROOT, MANAGER,
                                               "RegisterService");

        if (r >= 0)
                r = sd_bus_message_append(m, "ss", g->name, g->instance);
        if (r >= 0)
                r = add_all(m, g->argc, g->argv);
        if (r >= 0)
                r = sd_bus_message_set_allow_interactive_authorization(m, 1);
        if (r >= 0)
                r = sd_bus_call_async(g->ctl->bus, NULL, m, on_registered, g, 0);
        return r;
}

static void on_moved(void *userdata, const char *owner)
{
        struct registering *g = userdata;

        if (!*owner)
                fprintf(stderr, "tenurectl: the agent is gone; waiting for it.\n");
        else if (register_now(g) < 0)
                g->r = ctl_fail("cannot register", -EIO, NULL);
}

int verb_register(struct ctl *c, int argc, char **argv)
{
        struct registering g = {.ctl = c, .instance = ""};
        cleanup_(signals_end) struct signals from = {0};
        char *slash;
        int r;

        if (argc == 0)
                return ctl_fail("register needs SERVICE[/INSTANCE]", -EINVAL, NULL);
        g.name = argv[0];
        g.argc = argc - 1;
        g.argv = argv + 1;
        slash = strchr(g.name, '/');
        if (slash) {
                *slash = '\0';
                g.instance = slash + 1;
        }
        r = signals_follow(&from, c->bus, NAME, on_moved, &g);
        if (r >= 0)
                r = register_now(&g);
        if (r == -ERANGE)
                return ctl_fail("Port= is a number from 1 to 65535", -EINVAL, NULL);
        if (r < 0)
                return ctl_fail("cannot register", r, NULL);
        while (g.r == 0) {
                r = sd_bus_process(c->bus, NULL);
                if (r == 0)
                        r = sd_bus_wait(c->bus, UINT64_MAX);
                if (r < 0 && r != -EINTR)
                        return ctl_fail("the bus connection ended", r, NULL);
        }
        return g.r;
}
