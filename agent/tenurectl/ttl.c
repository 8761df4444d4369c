/* tenurectl ttl advise: prints which TTL the agent's measurements of the last day suggest. */
#include <inttypes.h>
#include <stdio.h>

#include "verbs.h"

/* "12 ms", "1.50 s": easy to compare. */
static const char *duration(int64_t usec, char text[static 32])
{
        if (usec > -1000000 && usec < 1000000)
                snprintf(text, 32, "%.1f ms", (double) usec / 1e3);
        else
                snprintf(text, 32, "%.2f s", (double) usec / 1e6);
        return text;
}

static const char *of(struct json_object *o, const char *key, char text[static 32])
{
        return duration(ctl_number(o, key), text);
}

static int read_ttls(sd_bus_message *m, struct json_object *list)
{
        uint32_t too_long;
        uint64_t ttl;
        int64_t bridges;
        int r = sd_bus_message_enter_container(m, 'a', "(txu)");

        while (r >= 0 && (r = sd_bus_message_read(m, "(txu)", &ttl, &bridges, &too_long)) > 0) {
                struct json_object *o = json_object_new_object();

                json_put_number(o, "TTLUSec", (int64_t) ttl);
                json_put_number(o, "BridgesUSec", bridges);
                json_put_number(o, "MinutesTooLong", too_long);
                json_object_array_add(list, o);
        }
        return r < 0 ? r : sd_bus_message_exit_container(m);
}

/* Prints the measurements. */
static void print_figures(struct json_object *o)
{
        char a[32], b[32];

        printf("   Renewals: %" PRId64 " in %" PRId64 " minutes of the last %.1f h, TTL %g s\n",
               ctl_number(o, "Renewals"), ctl_number(o, "Minutes"),
               (double) ctl_number(o, "SpanUSec") / 3.6e9,
               (double) ctl_number(o, "TTLUSec") / 1e6);
        printf(" Round trip: %s on average, %s at most\n", of(o, "RoundTripUSec", a),
               of(o, "RoundTripMaxUSec", b));
        printf("Agent's lag: %s at most\n", of(o, "LateMaxUSec", a));
        printf("      Stall: %s at most, from when a renewal was due until it was "
               "acknowledged\n",
               of(o, "StallMaxUSec", a));
        printf("        Gap: %s at most, from the request of a renewal to the acknowledgement "
               "of "
               "the next\n",
               of(o, "GapMaxUSec", a));
        printf("     Events: %" PRId64 " times in jeopardy, %" PRId64
               " losses (renewal overdue), %" PRId64 " changes of the endpoint\n",
               ctl_number(o, "Jeopardies"), ctl_number(o, "Losses"),
               ctl_number(o, "EndpointChanges"));
}

static void print_ttl(struct json_object *figures, struct json_object *row)
{
        int64_t ttl = ctl_number(row, "TTLUSec"), bridges = ctl_number(row, "BridgesUSec"),
                margin = bridges - ctl_number(figures, "StallMaxUSec"),
                too_long = ctl_number(row, "MinutesTooLong");
        bool in_use = ttl == ctl_number(figures, "TTLUSec"),
             recommended = ttl == ctl_number(figures, "RecommendedUSec");
        char name[32], a[32], b[32], held[48] = "yes";

        snprintf(name, sizeof(name), "%g s", (double) ttl / 1e6);
        if (too_long > 0)
                snprintf(held, sizeof(held), "no, not in %" PRId64 " min", too_long);
        printf("%8s  %-12s  %-18s  %*s%s%s\n", name, duration(bridges, a), held,
               in_use || recommended ? -10 : 0, duration(margin, b), in_use ? "  in use" : "",
               recommended ? "  recommended" : "");
}

/* Prints the advice, in sentences. */
static void print_advice(struct json_object *o, struct json_object *list)
{
        int64_t recommended = ctl_number(o, "RecommendedUSec"), left = 0;
        char a[32];

        for (size_t i = 0; i < json_object_array_length(list); i++) {
                struct json_object *row = json_object_array_get_idx(list, i);

                if (ctl_number(row, "TTLUSec") == recommended)
                        left = ctl_number(row, "MinutesTooLong");
        }
        if (ctl_number(o, "Renewals") == 0)
                printf("No renewal was acknowledged yet, so nothing can be recommended.\n");
        else if (recommended == 0)
                printf("Not enough data yet: a recommendation needs at least one hour and 100 "
                       "renewals.\n");
        else if (left > 0)
                printf("Recommended: TTL=%gs. The stalls of %" PRId64
                       " min were longer than a TTL should bridge.\n",
                       (double) recommended / 1e6, left);
        else
                printf("Recommended: TTL=%gs. The shortest that would have held: %s.\n",
                       (double) recommended / 1e6, of(o, "LeastUSec", a));
}

static void print_all(const struct ctl *c, struct json_object *o, struct json_object *list)
{
        print_figures(o);
        putchar('\n');
        if (c->legend)
                printf("%8s  %-12s  %-18s  %s\n", "TTL", "BRIDGES", "WOULD HAVE HELD",
                       "MARGIN");
        for (size_t i = 0; i < json_object_array_length(list); i++)
                print_ttl(o, json_object_array_get_idx(list, i));
        putchar('\n');
        print_advice(o, list);
}

int verb_ttl_advise(struct ctl *c, int argc unused_, char **argv unused_)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        struct json_object *o = NULL, *list = json_object_new_array();
        int r;

        r = sd_bus_call_method(c->bus, NAME, ROOT, MANAGER, "AdviseTTL", &error, &m, "");
        if (r >= 0)
                r = ctl_read_properties(m, &o);
        if (r >= 0)
                r = read_ttls(m, list);
        if (r < 0) {
                json_object_put(list);
                json_object_put(o);
                return ctl_fail("cannot ask the agent", r, &error);
        }
        json_object_object_add(o, "TTLs", list);
        if (c->json == JSON_OFF)
                print_all(c, o, list);
        else
                ctl_print(c, json_object_get(o));
        json_object_put(o);
        return 0;
}
