#include "counters.h"

#include <math.h>

#include "agent.h"
#include "root_object.h"

#define MS UINT64_C(1000000)

const struct histogram_shape counters_long = {
        .n = 13,
        .digits = 9,
        .upper = {10 * MS, 50 * MS, 100 * MS, 250 * MS, 500 * MS, 1000 * MS, 2500 * MS,
                  5000 * MS, 10000 * MS, 20000 * MS, 30000 * MS, 60000 * MS, 120000 * MS},
};

void counters_renewed(struct counters *c, const struct session *s,
                      const struct session_renewal *r)
{
        nsec_t moved = boot_diff(r->sent, r->before);

        histogram_add_nsec(&c->round_trip, &histogram_way, boot_diff(r->acknowledged, r->sent));
        histogram_add_nsec(&c->margin, &counters_long,
                           boot_diff(session_deadline(s), r->acknowledged) - moved);
}

void counters_session(struct counters *c, enum session_state was, enum session_state is)
{
        /* A place in jeopardy is still held. */
        c->places += is == SESSION_HELD && was != SESSION_HELD && was != SESSION_JEOPARDY;
        c->jeopardies += is == SESSION_JEOPARDY && was != SESSION_JEOPARDY;
        c->losses += is == SESSION_LOST && was != SESSION_LOST;
}

/* ---- on D-Bus ---- */

static double seconds(nsec_t t)
{
        return (double) t / (double) NSEC_PER_SEC;
}

static int append_values(sd_bus_message *m, struct agent *a)
{
        const struct session *s = member_session(a->member);
        const struct counters *c = &a->counters;
        struct boot_time now = boot_now();
        bool held = session_holds(s, now);
        const struct {
                const char *name;
                double value;
        } values[] = {
                {"Held", held},
                {"Synced", member_synced(a->member)},
                {"Connected", *member_endpoint(a->member) != '\0'},
                {"Degraded", *member_self(a->member)->degraded != '\0'},
                {"MassFailure", a->stability.brake.on},
                {"Nodes", (double) member_nodes(a->member)->n},
                {"Services", (double) member_services(a->member)->n},
                {"Revision", (double) member_nodes(a->member)->revision},
                {"TTLSeconds", s->lease ? seconds(s->ttl) : 0},
                {"MarginSeconds", held ? seconds(boot_diff(session_deadline(s), now)) : 0},
                {"Heartbeats", (double) s->n_sent},
                {"HeartbeatsAcknowledged",
                 (double) histogram_count(&c->round_trip, &histogram_way)},
                {"Places", (double) c->places},
                {"Jeopardies", (double) c->jeopardies},
                {"Losses", (double) c->losses},
                {"Fences", (double) histogram_count(&a->fence.took, &counters_long)},
                {"FencesLate", (double) a->fence.n_late},
        };
        int r = sd_bus_message_open_container(m, 'a', "{sd}");

        for (size_t i = 0; r >= 0 && i < ARRAY_SIZE(values); i++)
                r = sd_bus_message_append(m, "{sd}", values[i].name, values[i].value);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

/* Cumulative counts, as Prometheus defines a histogram: the last bucket has no upper bound and
 * counts all. */
static int append_histogram(sd_bus_message *m, const char *name, const struct histogram *h,
                            const struct histogram_shape *s)
{
        double unit = 1;
        uint64_t n = 0;
        int r = sd_bus_message_open_container(m, 'e', "s(a(dt)d)");

        for (unsigned i = 0; i < s->digits; i++)
                unit /= 10;
        if (r >= 0)
                r = sd_bus_message_append(m, "s", name);
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'r', "a(dt)d");
        if (r >= 0)
                r = sd_bus_message_open_container(m, 'a', "(dt)");
        for (unsigned i = 0; r >= 0 && i <= s->n; i++) {
                n += h->n[i];
                r = sd_bus_message_append(m, "(dt)",
                                          i < s->n ? (double) s->upper[i] * unit : INFINITY, n);
        }
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        if (r >= 0)
                r = sd_bus_message_append(m, "d", (double) h->sum * unit);
        if (r >= 0)
                r = sd_bus_message_close_container(m);
        return r < 0 ? r : sd_bus_message_close_container(m);
}

int method_get_metrics(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *reply = NULL;
        struct agent *a = userdata;
        int r = sd_bus_message_new_method_return(m, &reply);

        if (r >= 0)
                r = append_values(reply, a);
        if (r >= 0)
                r = sd_bus_message_open_container(reply, 'a', "{s(a(dt)d)}");
        if (r >= 0)
                r = append_histogram(reply, "RoundTripSeconds", &a->counters.round_trip,
                                     &histogram_way);
        if (r >= 0)
                r = append_histogram(reply, "RenewalMarginSeconds", &a->counters.margin,
                                     &counters_long);
        if (r >= 0)
                r = append_histogram(reply, "FenceSeconds", &a->fence.took, &counters_long);
        if (r >= 0)
                r = sd_bus_message_close_container(reply);
        return r < 0 ? r : sd_bus_send(NULL, reply, NULL);
}
