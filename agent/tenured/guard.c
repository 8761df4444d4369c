#include "guard.h"

#include <stdio.h>

#include "base/log.h"
#include "bus/journal.h"
#include "bus/notify.h"
#include "fence.h"
#include "keep.h"
#include "names.h"
#include "options.h"

struct guard {
        struct loop *loop;
        struct keep keep;
        struct session session; /* as the agent left it */
        struct fence fence;
        struct loop_hook hook;
        struct loop_timer look;
};

/* How soon an agent that has come back is believed in. */
#define LOOK_AGAIN (100 * NSEC_PER_MSEC)

static void on_look(struct loop_timer *t)
{
        (void) t; /* the hook does the work */
}

static void on_hook(struct loop_hook *h)
{
        struct guard *g = container_of(h, struct guard, hook);
        struct boot_time now = boot_now();
        bool held = session_holds(&g->session, now);

        /* Its next life is the one to decide from now on. */
        if (g->fence.machine.state == FENCING_UP && keep_is_used(&g->keep)) {
                log_debug("The agent is back.");
                return loop_stop(g->loop);
        }
        fence_follow(&g->fence, &g->session, false, now);
        if (fence_is_down(&g->fence))
                return loop_stop(g->loop);
        if (held && loop_timer_arm(&g->look, boot_add(now, LOOK_AGAIN)) < 0)
                abort();
}

static int read_settings(struct options *o)
{
        struct conf_error err = {""};
        int r = conf_defaults(options_table, n_options, o);

        if (r == 0)
                r = options_read(o, NULL, &err);
        if (r == 0)
                return 0;
        log_warning("%s. Going on with the default settings.", err.text);
        conf_clear(options_table, n_options, o);
        return conf_defaults(options_table, n_options, o);
}

static int guard(const struct options *o)
{
        struct session_config cfg = {
                .ttl = o->ttl, .drift_ppm = (uint32_t) o->drift_ppm, .retry = NSEC_PER_SEC};
        struct fencing_config fencing = options_fencing(o);
        cleanup_(loop_freep) struct loop *l = NULL;
        cleanup_(pid1_freep) struct pid1 *pid1 = NULL;
        struct guard g = {.keep = {.fd = -1}};
        char target[256];
        struct place p;
        int r;

        /* The settings may have changed since. */
        if (!names_target(NAMES_TARGET, target))
                snprintf(target, sizeof(target), "%s", o->held_target);
        if (!*target) {
                notify_ready();
                return 0;
        }
        r = loop_new(&l);
        if (r == 0)
                r = pid1_new(&pid1, l);
        if (r == 0)
                r = fence_init(&g.fence, l, pid1, target, &fencing);
        if (r < 0) {
                log_error("Cannot reach the service manager: %s.", strerror(-r));
                return r;
        }
        session_init(&g.session, &cfg);
        /* Without a place that can be read nothing may be up. */
        if (keep_peek(&g.keep, &p))
                session_resume(&g.session, &p.session, boot_now());
        g.loop = l;
        loop_timer_init(&g.look, l, on_look);
        loop_hook_start(&g.hook, l, on_hook);
        notify_ready();
        loop_run(l);
        loop_timer_disarm(&g.look);
        loop_hook_stop(&g.hook);
        fence_fini(&g.fence);
        keep_close(&g.keep);
        return 0;
}

int guard_run(void)
{
        struct options o = {0};
        int r;

        journal_use();
        r = read_settings(&o);
        if (r == 0)
                r = guard(&o);
        conf_clear(options_table, n_options, &o);
        return r;
}
