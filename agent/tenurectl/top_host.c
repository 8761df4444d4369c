#include "top_host.h"

#include <poll.h>
#include <stdio.h>
#include <time.h>

#include "bus/signals.h"

#define FIRST_ANSWER_MS 1000
#define ANSWER_USEC (2 * 1000 * 1000)

struct top_host_bus {
        struct loop *loop;
        struct top_model *model;
        const char *address;
        sd_bus *bus; /* NULL: not connected */
        struct signals from;
        sd_bus_slot *asked;
        struct loop_io io;
        struct loop_hook hook;
        bool started;
        int64_t wall;
        struct top_agent agent;
};

const struct top_agent *top_host_agent(const struct top_host_bus *h)
{
        return &h->agent;
}

/* Converts an instant of CLOCK_BOOTTIME to our own clock: the two differ by the time that the
 * first has been slewed. 0: none. */
static struct boot_time instant_of(int64_t usec, struct boot_time none)
{
        struct timespec ts;

        if (usec <= 0)
                return none;
        clock_gettime(CLOCK_BOOTTIME, &ts);
        return boot_add(boot_now(), usec * NSEC_PER_USEC -
                                            ((nsec_t) ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec));
}

static void report(struct top_host_bus *h, const char *was, const char *is)
{
        if (*was && strcmp(was, is) != 0)
                top_event(h->model, h->wall, strcmp(is, "held") == 0 ? TOP_NEWS : TOP_WARNING,
                          "this host: %s (before: %s)", is, was);
}

static void take(struct top_host_bus *h, struct json_object *o)
{
        struct top_host *p = &h->model->host;

        if (p->known)
                report(h, p->state, ctl_text(o, "State"));
        p->known = true;
        snprintf(p->node, sizeof(p->node), "%s", ctl_text(o, "NodeName"));
        snprintf(p->state, sizeof(p->state), "%s", ctl_text(o, "State"));
        snprintf(p->degraded, sizeof(p->degraded), "%s", ctl_text(o, "Degraded"));
        snprintf(p->maintenance, sizeof(p->maintenance), "%s", ctl_text(o, "Maintenance"));
        p->deadline = instant_of(ctl_number(o, "DeadlineUSec"), BOOT_TIME_NEVER);
        p->rest_until = instant_of(ctl_number(o, "RestUntilUSec"), (struct boot_time){0});
        p->mass_failure = ctl_number(o, "MassFailure") != 0;
        snprintf(h->agent.cluster, sizeof(h->agent.cluster), "%s", ctl_text(o, "Cluster"));
        if (*ctl_text(o, "CoreEndpoint"))
                snprintf(h->agent.endpoint, sizeof(h->agent.endpoint), "%s",
                         ctl_text(o, "CoreEndpoint"));
}

static void gone(struct top_host_bus *h)
{
        if (h->model->host.known)
                top_event(h->model, h->wall, TOP_WARNING, "this host's agent does not answer");
        h->model->host.known = false;
}

static int on_properties(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct top_host_bus *h = userdata;
        struct json_object *o = NULL;

        (void) error;
        h->asked = sd_bus_slot_unref(h->asked);
        if (sd_bus_message_is_method_error(m, NULL) || ctl_read_properties(m, &o) < 0)
                gone(h);
        else
                take(h, o);
        json_object_put(o);
        return 0;
}

static void ask(struct top_host_bus *h)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;

        if (!h->bus || h->asked ||
            sd_bus_message_new_method_call(h->bus, &m, NAME, ROOT, DBUS_PROPERTIES, "GetAll") <
                    0)
                return;
        if (sd_bus_message_append(m, "s", MANAGER) < 0 ||
            sd_bus_message_set_auto_start(m, false) < 0 ||
            sd_bus_call_async(h->bus, &h->asked, m, on_properties, h, ANSWER_USEC) < 0)
                h->asked = NULL;
}

static int on_signal(sd_bus_message *m, void *userdata, sd_bus_error *error)
{
        struct top_host_bus *h = userdata;
        const char *member = sd_bus_message_get_member(m);

        (void) error;
        if (strncmp(member, "Lease", 5) == 0) /* the place has changed */
                ask(h);
        return 0;
}

static void disconnect(struct top_host_bus *h)
{
        if (h->started)
                loop_io_stop(&h->io);
        h->started = false;
        h->asked = sd_bus_slot_unref(h->asked);
        signals_end(&h->from);
        h->bus = sd_bus_close_unref(h->bus);
}

static void on_bus(struct loop_io *io, int events)
{
        (void) io; /* the hook runs in each turn */
        (void) events;
}

static struct boot_time run(struct loop_hook *hook, struct boot_time now)
{
        struct top_host_bus *h = container_of(hook, struct top_host_bus, hook);
        int r = 0;

        while (h->bus && (r = sd_bus_process(h->bus, NULL)) > 0)
                ;
        if (r < 0) {
                disconnect(h);
                gone(h);
        }
        if (h->bus)
                loop_io_change(&h->io,
                               EV_READ | (sd_bus_get_events(h->bus) & POLLOUT ? EV_WRITE : 0));
        (void) now;
        return BOOT_TIME_NEVER; /* a timeout is found at the next question */
}

static void connect_(struct top_host_bus *h)
{
        sd_bus *bus = NULL;
        int r;

        if (h->address) {
                r = sd_bus_new(&bus);
                if (r >= 0)
                        r = sd_bus_set_address(bus, h->address);
                if (r >= 0)
                        r = sd_bus_set_bus_client(bus, true);
                if (r >= 0)
                        r = sd_bus_start(bus);
        } else {
                r = sd_bus_open_system(&bus);
        }
        if (r >= 0)
                r = signals_follow(&h->from, bus, NAME, NULL, NULL);
        if (r >= 0)
                r = signals_add(&h->from, NULL, "path='" ROOT "',interface='" MANAGER "'",
                                on_signal, h);
        if (r < 0) {
                signals_end(&h->from);
                sd_bus_unref(bus);
                return;
        }
        h->bus = bus;
        h->io.what = "D-Bus";
        loop_io_start(&h->io, h->loop, sd_bus_get_fd(bus), EV_READ | EV_WRITE, on_bus);
        h->started = true;
}

void top_host_ask(struct top_host_bus *h, int64_t wall)
{
        h->wall = wall;
        if (!h->bus)
                connect_(h);
        ask(h);
}

/* Called before the loop runs. */
static void wait_for_answer(struct top_host_bus *h)
{
        struct boot_time until = boot_add(boot_now(), FIRST_ANSWER_MS * NSEC_PER_MSEC);

        while (h->bus && h->asked && boot_before(boot_now(), until)) {
                int r = sd_bus_process(h->bus, NULL);

                if (r == 0)
                        r = sd_bus_wait(h->bus, FIRST_ANSWER_MS * 100);
                if (r < 0 && r != -EINTR)
                        return disconnect(h);
        }
}

int top_host_new(struct top_host_bus **ret, struct loop *l, struct top_model *m,
                 const struct ctl *c)
{
        struct top_host_bus *h = calloc(1, sizeof(*h));

        if (!h)
                return -ENOMEM;
        h->loop = l;
        h->model = m;
        h->address = c->address;
        top_host_ask(h, 0);
        wait_for_answer(h);
        h->hook.what = "D-Bus";
        loop_hook_start(&h->hook, l, LOOP_BUS, run);
        *ret = h;
        return 0;
}

struct top_host_bus *top_host_free(struct top_host_bus *h)
{
        if (!h)
                return NULL;
        loop_hook_stop(&h->hook);
        disconnect(h);
        free(h);
        return NULL;
}
