/*
 * tenurectl switchover NAME [NODE]: the holder of a lock stops and hands it over to a node that
 * waits for it (member/switchover.h).
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/utf8.h"
#include "text.h"
#include "tie.h"
#include "verbs.h"

#define WITHIN (30 * NSEC_PER_SEC)
/* No limit here: libtenure reports when the switchover cannot succeed. */
#define FOREVER -1

static struct json_object *json_of(const char *name, const struct tenure_switched *s)
{
        struct json_object *o = json_object_new_object();

        json_put_text(o, "lock", name);
        json_put_text(o, "from", s->from);
        json_put_text(o, "to", s->to);
        json_put_number(o, "token", s->token);
        json_put_number(o, "stop_usec", s->stop_us);
        if (s->pause_us >= 0)
                json_put_number(o, "pause_usec", s->pause_us);
        return o;
}

static void print(struct ctl *c, const char *name, const struct tenure_switched *s)
{
        char from[TEXT_SHOWN], to[TEXT_SHOWN], pause[32] = "now";

        if (s->pause_us >= 0)
                snprintf(pause, sizeof(pause), "%.1f ms later", (double) s->pause_us / 1e3);
        ctl_did(c, json_of(name, s),
                "%s held '%s' and stopped within %.1f ms; %s has it %s (token %" PRId64 ")%s.",
                text_shown(s->from, from), name, (double) s->stop_us / 1e3,
                text_shown(s->to, to), pause, s->token,
                s->pause_us < 0 ? ", but does not report since when" : "");
}

int verb_switchover(struct ctl *c, int argc, char **argv)
{
        nsec_t within = c->o.wait < 0 ? WITHIN : c->o.wait;
        struct tenure_call *call;
        struct tenure *t;
        int r;

        if (tie_new(c, &t) < 0)
                return -1;
        r = tenure_switchover(t, argv[0], argc > 1 ? argv[1] : NULL, within / NSEC_PER_MSEC,
                              &call);
        if (r < 0) {
                tie_fail(t);
                tenure_free(t);
                return -1;
        }
        r = tenure_call_wait(call, FOREVER);
        if (r == 0) {
                print(c, argv[0], tenure_call_switched(call));
        } else if (r == -EALREADY) { /* that is what was wanted */
                ctl_did(c, json_of(argv[0], tenure_call_switched(call)), "%s.",
                        tenure_call_error(call));
                r = 0;
        } else {
                say("%s", tenure_call_error(call));
        }
        tenure_call_free(call);
        tenure_free(t);
        return r == -ENOENT || r == -EBUSY || r == -EOPNOTSUPP ? EXIT_NOT_SO : r;
}
