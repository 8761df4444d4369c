/*
 * tenurectl watch: what changes, from the agent's signals, or with --since from the core; to be
 * printed, or for a command that is run for each change (hook.h).
 */
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <time.h>

#include "base/utf8.h"
#include "bus/signals.h"
#include "hook.h"
#include "pick.h"
#include "text.h"
#include "verbs.h"
#include "watch_since.h"

static const char *const events[] = {"NodeJoined",   "NodeLeft",       "NodeChanged",
                                     "ServiceAdded", "ServiceRemoved", "ServiceChanged",
                                     "LeaseHeld",    "LeaseJeopardy",  "LeaseLost"};

struct watching {
        struct ctl *ctl;
        char **names; /* only what happens to these nodes and services; none: to all */
        size_t n_names;
        struct hook *hook;         /* NULL: the changes are printed */
        struct watch_since *since; /* NULL: the agent reports nodes and services */
};

/* ---- which ---- */

static bool is_event(const char *word)
{
        for (size_t i = 0; i < ARRAY_SIZE(events); i++)
                if (strcmp(events[i], word) == 0)
                        return true;
        return false;
}

/* Who does not hear of a resync would go by what is out of date. */
static bool is_wanted(const struct watching *w, const struct happening *h)
{
        if (strcmp(h->event, WATCH_RESYNC) == 0)
                return true;
        if (!pick_word(w->ctl->o.event, h->event))
                return false;
        for (size_t i = 0; i < w->n_names; i++)
                if (strcmp(w->names[i], h->name) == 0 || strcmp(w->names[i], h->node) == 0)
                        return true;
        return w->n_names == 0;
}

/* ---- print ---- */

static void write_text(char text[static 640], const struct happening *h)
{
        const char *e = h->event;

        if (strcmp(e, "NodeLeft") == 0)
                snprintf(text, 640, "%s left: %s%s%s%s", h->name, h->reason,
                         h->note ? " (" : "", h->note ? h->note : "", h->note ? ")" : "");
        else if (strcmp(e, "NodeJoined") == 0 || strcmp(e, "NodeChanged") == 0)
                snprintf(text, 640, "%s %s", h->name, e[4] == 'J' ? "joined" : "changed");
        else if (strncmp(e, "Service", strlen("Service")) == 0)
                snprintf(text, 640, "service %s%s%s on %s %s%s", h->name,
                         *h->instance ? " " : "", h->instance, h->node,
                         e[7] == 'R'   ? "is gone: "
                         : e[7] == 'A' ? "is available"
                                       : "changed",
                         h->reason);
        else if (strcmp(e, WATCH_RESYNC) == 0)
                snprintf(text, 640, "resync: %s", h->reason);
        else if (strcmp(e, "LeaseLost") == 0)
                snprintf(text, 640, "this host lost its place: %s", h->reason);
        else
                snprintf(text, 640, "this host %s",
                         strcmp(e, "LeaseHeld") == 0 ? "holds its place"
                                                     : "may lose its place: renewals fail");
}

static struct json_object *to_json(const struct happening *h, const struct timespec *now)
{
        struct json_object *o = json_object_new_object();

        json_put_text(o, "event", h->event);
        if (*h->name)
                json_put_text(o, "name", h->name);
        if (*h->id)
                json_put_text(o, "id", h->id);
        if (*h->node) {
                json_put_text(o, "node", h->node);
                json_put_text(o, "instance", h->instance);
        }
        if (*h->reason)
                json_put_text(o, "reason", h->reason);
        if (h->note)
                json_put_text(o, "note", h->note);
        if (h->revision > 0)
                json_put_number(o, "revision", h->revision);
        json_put_time(o, now);
        return o;
}

static void print(const struct happening *h, const struct timespec *now)
{
        char when[TEXT_CLOCK], text[640], shown[4 * sizeof(text)], revision[48] = "";

        write_text(text, h);
        if (h->revision > 0)
                snprintf(revision, sizeof(revision), " (revision %" PRId64 ")", h->revision);
        printf("%s %s%s\n", text_clock(now, when),
               utf8_shown(text, strlen(text), shown, sizeof(shown)), revision);
}

static void tell(const struct happening *h, void *userdata)
{
        struct watching *w = userdata;
        struct timespec now;

        if (!is_wanted(w, h))
                return;
        clock_gettime(CLOCK_REALTIME, &now);
        if (w->hook)
                hook_add(w->hook, to_json(h, &now));
        else if (w->ctl->json != JSON_OFF)
                ctl_print(w->ctl, to_json(h, &now));
        else
                print(h, &now);
}

/* ---- the agent ---- */

/* Reads the arguments of the signal @h->event. Returns 0 or more, or a negative errno. */
static int read_signal(sd_bus_message *m, struct happening *h)
{
        const char *e = h->event;
        uint64_t usec;
        int64_t lease;

        if (strcmp(e, "NodeLeft") == 0)
                return sd_bus_message_read(m, "sssx", &h->name, &h->id, &h->reason,
                                           &h->revision);
        if (strncmp(e, "Node", strlen("Node")) == 0)
                return sd_bus_message_read(m, "ssx", &h->name, &h->id, &h->revision);
        if (strcmp(e, "ServiceRemoved") == 0)
                return sd_bus_message_read(m, "ssssx", &h->name, &h->node, &h->instance,
                                           &h->reason, &h->revision);
        if (strncmp(e, "Service", strlen("Service")) == 0)
                return sd_bus_message_read(m, "sssx", &h->name, &h->node, &h->instance,
                                           &h->revision);
        if (strcmp(e, "LeaseLost") == 0)
                return sd_bus_message_read(m, "s", &h->reason);
        return sd_bus_message_read(m, "xt", &lease, &usec);
}

static int on_signal(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct watching *w = userdata;
        struct happening h = {.event = sd_bus_message_get_member(m),
                              .name = "",
                              .id = "",
                              .node = "",
                              .instance = "",
                              .reason = ""};
        int r;

        if (!is_event(h.event))
                return 0; /* of a later version */
        if (w->since && strncmp(h.event, "Lease", strlen("Lease")) != 0)
                return 0; /* the core reports it */
        r = read_signal(m, &h);
        if (r >= 0)
                tell(&h, w);
        return min_of(r, 0);
}

static void on_moved(void *userdata unused_, const char *owner)
{
        say(*owner ? "the agent is back" : "the agent is gone; waiting for it");
}

/* ---- wait ---- */

/* In ms, as for poll(2), until sd-bus wants to be called. */
static int bus_timeout(sd_bus *bus)
{
        struct timespec now;
        uint64_t at, is;

        if (sd_bus_get_timeout(bus, &at) < 0 || at == UINT64_MAX)
                return -1;
        clock_gettime(CLOCK_MONOTONIC, &now);
        is = (uint64_t) now.tv_sec * 1000000 + (uint64_t) now.tv_nsec / 1000;
        return at <= is ? 0 : (int) min_of((at - is) / 1000 + 1, (uint64_t) INT_MAX);
}

static int sooner(int a, int b)
{
        return a < 0 ? b : b < 0 ? a : min_of(a, b);
}

/* Returns 0, or -1 after printing what is wrong. */
static int rest(const struct watching *w)
{
        sd_bus *bus = w->ctl->bus;
        struct pollfd p[] = {
                {.fd = sd_bus_get_fd(bus), .events = (short) sd_bus_get_events(bus)},
                {.fd = w->hook ? hook_fd(w->hook) : -1, .events = POLLIN},
                {.fd = w->since ? watch_since_fd(w->since) : -1, .events = POLLIN}};
        int timeout = bus_timeout(bus);

        if (ctl_flush(w->ctl) < 0)
                return -1;
        if (w->since)
                timeout = sooner(timeout, watch_since_timeout(w->since));
        if (poll(p, ARRAY_SIZE(p), timeout) < 0 && errno != EINTR)
                return ctl_fail("cannot wait", -errno, NULL);
        return 0;
}

/* Returns an exit status, or -1 after printing what is wrong. */
static int follow(struct watching *w)
{
        int r = 0, status = 0;

        while (r == 0) {
                do
                        r = sd_bus_process(w->ctl->bus, NULL);
                while (r > 0);
                if (w->hook && hook_run(w->hook, &status))
                        return status;
                if (r < 0)
                        return ctl_fail("the bus connection ended", r, NULL);
                if (w->since)
                        r = watch_since_run(w->since);
                if (r == 0)
                        r = rest(w);
        }
        return r;
}

static int subscribe(struct watching *w, struct signals *agent)
{
        int r = signals_follow(agent, w->ctl->bus, NAME, on_moved, NULL);

        if (r >= 0)
                r = signals_add(agent, NULL, "path='" ROOT "',interface='" MANAGER "'",
                                on_signal, w);
        return r < 0 ? ctl_fail("cannot subscribe", r, NULL) : 0;
}

/* The bus answers after it has made the matches, which nobody else has waited for. Returns 0,
 * or -1 after printing what is wrong. */
static int tell_subscribed(struct watching *w)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        struct timespec now;
        int r = sd_bus_call_method(w->ctl->bus, DBUS, DBUS_PATH, DBUS, "GetId", &error, NULL,
                                   "");

        if (r < 0)
                return ctl_fail("cannot subscribe", r, &error);
        clock_gettime(CLOCK_REALTIME, &now);
        ctl_print(w->ctl, to_json(&(struct happening){.event = "Subscribed",
                                                      .name = "",
                                                      .id = "",
                                                      .node = "",
                                                      .instance = "",
                                                      .reason = ""},
                                  &now));
        return 0;
}

int verb_watch(struct ctl *c, int argc, char **argv)
{
        cleanup_(signals_end) struct signals agent = {0};
        struct watching w = {
                .ctl = c, .names = argv, .n_names = min_of(c->n_before, (size_t) argc)};
        bool plain = argc == 0 && !c->o.event && c->o.since == 0 && c->json == JSON_OFF;
        int r = 0;

        if (w.n_names < (size_t) argc)
                r = hook_new(&w.hook, argv + w.n_names);
        /* First subscribe, then list, so that no change in between is missed. */
        if (r == 0)
                r = subscribe(&w, &agent);
        if (r == 0 && plain)
                r = verb_nodes(c, 0, NULL);
        if (r == 0 && c->o.since > 0)
                r = watch_since_new(&w.since, c, (int64_t) c->o.since, tell, &w);
        if (r == 0 && c->json != JSON_OFF && !w.hook && !w.since)
                r = tell_subscribed(&w);
        if (r == 0)
                r = follow(&w);
        watch_since_free(w.since);
        hook_free(w.hook);
        return r;
}
