/* tenurectl nodes and watch: the nodes, and what changes. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/utf8.h"
#include "bus/signals.h"
#include "table.h"
#include "text.h"
#include "verbs.h"

/* ---- nodes ---- */

int verb_nodes(struct ctl *c, int argc, char **argv)
{
        static const struct column columns[] = {
                {"NODE", "Name", COLUMN_TEXT},      {"ADDRESS", "Addresses", COLUMN_TEXT},
                {"TTL", "TTLUSec", COLUMN_SECONDS}, {"SINCE", "Since", COLUMN_TEXT},
                {"ID", "Id", COLUMN_TEXT},          {"DEGRADED", "Degraded", COLUMN_REST}};
        static const struct listing listing = {"GetNodes", "node", columns,
                                               ARRAY_SIZE(columns)};

        return ctl_list(c, &listing, argc, argv);
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

                json_put_text(o, "event", member);
                if (*name) {
                        json_put_text(o, "name", name);
                        if (*id)
                                json_put_text(o, "id", id);
                }
                if (*node) {
                        json_put_text(o, "node", node);
                        json_put_text(o, "instance", instance);
                }
                if (*reason)
                        json_put_text(o, "reason", reason);
                if (revision > 0)
                        json_put_number(o, "revision", revision);
                json_put_number(o, "realtime_usec",
                                (int64_t) ts.tv_sec * 1000000 + ts.tv_nsec / 1000);
                ctl_print(c, o);
        } else if (revision > 0) {
                printf("%s.%03ld %s (revision %" PRId64 ")\n", when, ts.tv_nsec / 1000000,
                       utf8_shown(text, strlen(text), shown, sizeof(shown)), revision);
        } else {
                printf("%s.%03ld %s\n", when, ts.tv_nsec / 1000000,
                       utf8_shown(text, strlen(text), shown, sizeof(shown)));
        }
        return 0;
}

static void on_moved(void *userdata unused_, const char *owner)
{
        say(*owner ? "the agent is back" : "the agent is gone; waiting for it");
}

int verb_watch(struct ctl *c, int argc unused_, char **argv unused_)
{
        cleanup_(signals_end) struct signals agent = {0};
        int r;

        /* First subscribe, then list, so that no change in between is missed. */
        r = signals_follow(&agent, c->bus, NAME, on_moved, NULL);
        if (r >= 0)
                r = signals_add(&agent, NULL, "path='" ROOT "',interface='" MANAGER "'",
                                on_signal, c);
        if (r < 0)
                return ctl_fail("cannot subscribe", r, NULL);
        if (c->json == JSON_OFF && verb_nodes(c, 0, NULL) < 0)
                return -1;
        while (ctl_hear(c) == 0)
                ;
        return -1;
}
