#include "fence_check.h"

#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/log.h"
#include "cgroup/cgroup.h"
#include "reboot.h"

/* From 7/8 of the TTL on, renewals are sent on all endpoints at once (lib/session). */
#define ALL_AT_ONCE 8

static nsec_t ms(nsec_t t)
{
        return t / NSEC_PER_MSEC;
}

/* Compares FenceLead= with the TTL. */
static void check_times(const struct fencing_config *cfg, nsec_t ttl, bool guarded,
                        struct buf *out)
{
        nsec_t lead = fencing_lead(cfg, ttl);

        if (lead * ALL_AT_ONCE > ttl)
                buf_printf(out,
                           "With a TTL of %" PRId64 " ms the stop begins %" PRId64
                           " ms before the deadline, before renewals are tried on every "
                           "endpoint at once (%" PRId64 " ms before): set FenceLead=%" PRId64
                           "ms or less, or TTL=%" PRId64 "ms or more.\n",
                           ms(ttl), ms(lead), ms(ttl / ALL_AT_ONCE), ms(ttl / ALL_AT_ONCE),
                           ms(cfg->lead * ALL_AT_ONCE));
        if (cfg->reboot && !reboot_is_ready())
                buf_printf(
                        out,
                        "FenceAction=reboot is set, but tenure-reboot.service is not up: only "
                        "systemd could reboot this host; enable it.\n");
        if (!guarded)
                buf_printf(out, "tenure-guard.service is not up: nothing stops bound units "
                                "if tenured and systemd hang together; start it.\n");
        if (!cgroup_is_there())
                buf_printf(out, "This host has no control groups v2: while systemd does "
                                "not answer, nothing can be stopped; boot with "
                                "systemd.unified_cgroup_hierarchy=1.\n");
        else if (!cgroup_can_kill())
                buf_printf(out,
                           "This kernel has no cgroup.kill (Linux 5.14): processes of other "
                           "users than root are frozen in time, but killed only by "
                           "systemd; set CapabilityBoundingSet=CAP_KILL for "
                           "tenured.service and tenure-guard.service.\n");
}

static void check_unit(const struct bound_unit *u, const char *target, nsec_t most,
                       struct buf *out)
{
        char slice[128];

        if (!u->is_after)
                buf_printf(out,
                           "%s is not ordered after %s: it may start before the place is held, "
                           "and a stop does not wait for it; set After=%s.\n",
                           u->name, target, target);
        if (bound_is_kind(u->name, ".mount") || bound_is_kind(u->name, ".swap")) {
                buf_printf(
                        out,
                        "%s can be neither frozen nor killed, and stays up while it is in use: "
                        "bind whatever uses it, too, or set FenceAction=reboot.\n",
                        u->name);
                return;
        }
        if (!u->control_group || bound_is_kind(u->name, ".slice"))
                return;
        if (cgroup_of_unit(NULL, FENCE_SLICE, slice, sizeof(slice)) == 0 &&
            !cgroup_is_within(u->control_group, slice))
                buf_printf(out,
                           "%s is not in %s: processes that it starts elsewhere, or before the "
                           "agent knows it, are not fenced; set Slice=%s.\n",
                           u->name, FENCE_SLICE, FENCE_SLICE);
        if (u->stop_timeout == INT64_MAX)
                buf_printf(out,
                           "%s may take for ever to stop (TimeoutStopSec=infinity), and is "
                           "killed after %" PRId64 " ms when the place is lost.\n",
                           u->name, ms(most));
        else if (u->stop_timeout > most)
                buf_printf(out,
                           "%s may take %" PRId64
                           " ms to stop (TimeoutStopSec=), and is killed after %" PRId64
                           " ms when the place is lost: make sure that it survives that or "
                           "stops sooner, or raise FenceLead= and TTL=.\n",
                           u->name, ms(u->stop_timeout), ms(most));
}

static void check_stray(const struct bound_stray *s, struct buf *out)
{
        if (s->is_ours)
                buf_printf(
                        out,
                        "%s has its main process in %s, which cannot be fenced: bind the unit "
                        "that process belongs to.\n",
                        s->unit, s->group);
        else
                buf_printf(
                        out,
                        "%s has its main process in %s, outside of its own control group, as "
                        "su, runuser -l, PAMName= or PIDFile= can bring about: everything "
                        "there is frozen and killed with it, also what belongs to others; "
                        "set User= instead.\n",
                        s->unit, s->group);
}

static void tell(const char *lines, const char *before)
{
        for (const char *end; (end = strchr(lines, '\n')); lines = end + 1) {
                size_t n = (size_t) (end - lines);
                bool is_old = false;

                for (const char *at = before; *at && !is_old; at = strchr(at, '\n') + 1)
                        is_old = strncmp(at, lines, n + 1) == 0;
                if (!is_old)
                        log_warning("%.*s", (int) n, lines);
        }
}

bool fence_check(struct fence *f, nsec_t ttl)
{
        const struct fencing_config *cfg = &f->machine.cfg;
        cleanup_(buf_fini) struct buf b = {0};
        const struct bound_stray *s;
        const struct bound_unit *u;
        char *text;
        size_t n;

        if (!f->bound)
                return false;
        check_times(cfg, ttl, f->guarded, &b);
        if (bound_has_more(f->bound))
                buf_printf(&b,
                           "More than %d units are bound to %s: of the others only those in %s "
                           "are fenced; set Slice=%s.\n",
                           BOUND_MAX, bound_root(f->bound), FENCE_SLICE, FENCE_SLICE);
        u = bound_units(f->bound, &n);
        for (size_t i = 1; i < n; i++)
                if (!bound_is_kind(u[i].name, ".target"))
                        check_unit(&u[i], bound_root(f->bound), fencing_lead(cfg, ttl) / 2, &b);
        s = bound_strays(f->bound, &n);
        for (size_t i = 0; i < n; i++)
                check_stray(&s[i], &b);
        buf_add_u8(&b, 0);
        text = buf_error(&b) < 0 ? NULL : strdup((const char *) buf_head(&b));
        if (!text || strcmp(text, f->warnings ? f->warnings : "") == 0) {
                free(text);
                return false;
        }
        tell(text, f->warnings ? f->warnings : "");
        free(f->warnings);
        f->warnings = text;
        return true;
}
