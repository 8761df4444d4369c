/*
 * tenurectl switchover NAME [NODE]: the holder of a lock stops and hands it over to a node that
 * waits for it (member/switchover.h).
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/utf8.h"
#include "text.h"
#include "tie.h"

#define WITHIN (30 * NSEC_PER_SEC)
/* libtenure reports when the switchover cannot succeed. */
#define FOREVER -1

/* In addition to 0 and 1: nobody holds the lock, or the target does not wait; nothing has
 * changed. */
#define EXIT_NOT_POSSIBLE 2

static void print_json(const struct ctl *c, const char *name, const struct tenure_switched *s)
{
        struct json_object *o = json_object_new_object();

        json_object_object_add(o, "lock", json_object_new_string(name));
        json_object_object_add(o, "from", json_object_new_string(s->from));
        json_object_object_add(o, "to", json_object_new_string(s->to));
        json_object_object_add(o, "token", json_object_new_int64(s->token));
        json_object_object_add(o, "stop_usec", json_object_new_int64(s->stop_us));
        json_object_object_add(o, "pause_usec",
                               s->pause_us < 0 ? NULL : json_object_new_int64(s->pause_us));
        ctl_print(c, o);
}

static void print(const char *name, const struct tenure_switched *s)
{
        char from[CTL_SHOWN], to[CTL_SHOWN];

        printf("%s held '%s' and stopped within %.1f ms; %s has it ",
               utf8_shown(s->from, strlen(s->from), from, sizeof(from)), name,
               (double) s->stop_us / 1e3, utf8_shown(s->to, strlen(s->to), to, sizeof(to)));
        if (s->pause_us < 0)
                printf("now (token %" PRId64 "), but does not report since when.\n", s->token);
        else
                printf("%.1f ms later (token %" PRId64 ").\n", (double) s->pause_us / 1e3,
                       s->token);
}

int switchover_main(struct ctl *c, const struct core_options *core, bool endpoints_given,
                    int argc, char **argv)
{
        nsec_t within = core->wait < 0 ? WITHIN : core->wait;
        struct tenure_call *call;
        struct tenure *t;
        int r;

        if (argc < 1 || argc > 2)
                return ctl_fail("switchover needs NAME [NODE]", -EINVAL, NULL);
        if (tie_new(c, core, endpoints_given, &t) < 0)
                return -1;
        r = tenure_switchover(t, argv[0], argc > 1 ? argv[1] : NULL, within / NSEC_PER_MSEC,
                              &call);
        if (r < 0) {
                text_say(stderr, "tenurectl: %s.", tenure_error(t));
                tenure_free(t);
                return -1;
        }
        r = tenure_call_wait(call, FOREVER);
        if (tenure_call_switched(call) && c->json != JSON_OFF)
                print_json(c, argv[0], tenure_call_switched(call));
        else if (r == 0)
                print(argv[0], tenure_call_switched(call));
        else if (r == -EALREADY)
                text_say(stdout, "%s.", tenure_call_error(call));
        else
                text_say(stderr, "tenurectl: %s.", tenure_call_error(call));
        if (r == -EALREADY) /* that is what was wanted */
                r = 0;
        tenure_call_free(call);
        tenure_free(t);
        if (r == -ENOENT || r == -EBUSY || r == -EOPNOTSUPP)
                return EXIT_NOT_POSSIBLE;
        return r < 0 ? -1 : 0;
}
