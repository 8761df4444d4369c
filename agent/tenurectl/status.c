/* tenurectl: the host's place: status, check, leave and join. */
#include <inttypes.h>
#include <stdio.h>

#include "loop/clock.h"
#include "member/node_record.h"
#include "text.h"
#include "verbs.h"

static double seconds_until(int64_t usec)
{
        return (double) (usec - boot_usec(boot_now())) / 1e6;
}

static void print_status(struct json_object *o)
{
        const char *stays_out = ctl_text(o, "Maintenance");
        char text[TEXT_SHOWN];

        printf("      Node: %s (%s)\n", ctl_text(o, "NodeName"), ctl_text(o, "NodeId"));
        printf("   Cluster: %s, %" PRId64 " node(s), revision %" PRId64 "%s\n",
               ctl_text(o, "Cluster"), ctl_number(o, "NNodes"), ctl_number(o, "Revision"),
               ctl_number(o, "Synced") ? "" : " (not followed now)");
        printf("     State: %s\n", ctl_text(o, "State"));
        if (ctl_number(o, "DeadlineUSec") > 0)
                printf("     Lease: %s, TTL %g s, ends in %.1f s unless renewed\n",
                       ctl_text(o, "LeaseId"), (double) ctl_number(o, "TTLUSec") / 1e6,
                       seconds_until(ctl_number(o, "DeadlineUSec")));
        if (*ctl_text(o, "Degraded"))
                printf("  Degraded: %s\n", ctl_shown(o, "Degraded", text));
        if (seconds_until(ctl_number(o, "RestUntilUSec")) > 0)
                printf("Suppressed: for %.0f s more, because it flapped; tenurectl join ends "
                       "this\n",
                       seconds_until(ctl_number(o, "RestUntilUSec")));
        if (*stays_out)
                printf("  Stays out: %s; tenurectl join ends this\n",
                       strcmp(stays_out, "persistent") == 0 ? "also after the next boot"
                                                            : "until the next boot");
        if (json_object_get_boolean(json_object_object_get(o, "MassFailure")))
                puts("   Failure: most nodes have gone at once; software that moves work "
                     "should wait");
        if (*ctl_text(o, "Trouble"))
                printf("   Trouble: %s\n", ctl_shown(o, "Trouble", text));
        printf("      Core: %s\n", *ctl_text(o, "CoreEndpoint")
                                           ? ctl_shown(o, "CoreEndpoint", text)
                                           : "no endpoint answers");
}

int verb_status(struct ctl *c, int argc unused_, char **argv unused_)
{
        struct json_object *o;
        bool held;

        if (ctl_get_all(c, ROOT, MANAGER, &o) < 0)
                return -1;
        held = ctl_is_held(o);
        if (c->json == JSON_OFF)
                print_status(o);
        else
                ctl_print(c, json_object_get(o));
        json_object_put(o);
        return held ? 0 : EXIT_NOT_SO;
}

int verb_check_fencing(struct ctl *c, int argc unused_, char **argv unused_)
{
        struct json_object *o, *list;
        size_t n;

        if (ctl_get_all(c, ROOT, MANAGER, &o) < 0)
                return -1;
        list = json_object_object_get(o, "FenceWarnings");
        if (!json_object_is_type(list, json_type_array)) {
                json_object_put(o); /* an older agent, which does not report this */
                return say("the agent does not report what can be fenced; restart it if it is "
                           "still an earlier version");
        }
        n = json_object_array_length(list);
        if (c->json != JSON_OFF)
                ctl_print(c, json_object_get(list));
        for (size_t i = 0; i < n && c->json == JSON_OFF; i++)
                text_say(stdout, "%s",
                         json_object_get_string(json_object_array_get_idx(list, i)));
        if (n == 0 && c->json == JSON_OFF && c->legend)
                puts("Everything that is bound to the place can be fenced in time.");
        json_object_put(o);
        return n == 0 ? 0 : EXIT_FAILED;
}

/* Calls a method without a timeout, since bound units may take long to stop, and a person to
 * type a password: the agent answers, or the bus reports that it is gone. */
static int order(struct ctl *c, const char *method, const char *what)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL;
        int r = sd_bus_message_new_method_call(c->bus, &m, NAME, ROOT, MANAGER, method);

        if (r >= 0 && (c->o.persistent || c->o.reason))
                r = sd_bus_message_append(m, "t",
                                          c->o.persistent ? LEAVE_PERSISTENT : UINT64_C(0));
        if (r >= 0 && c->o.reason)
                r = sd_bus_message_append(m, "s", c->o.reason);
        if (r >= 0)
                r = ctl_call(c, m, UINT64_MAX, &error, NULL);
        return r < 0 ? ctl_fail(what, r, &error) : 0;
}

int verb_leave(struct ctl *c, int argc unused_, char **argv unused_)
{
        if (c->o.reason && !leaving_note_is_valid(c->o.reason))
                return say("--reason must be one line of UTF-8, of at most %d bytes",
                           LEAVING_NOTE_MAX);
        return order(c,
                     c->o.reason       ? "LeaveWithNote"
                     : c->o.persistent ? "LeaveWithFlags"
                                       : "Leave",
                     "cannot leave");
}

int verb_join(struct ctl *c, int argc unused_, char **argv unused_)
{
        return order(c, "Join", "cannot join");
}
