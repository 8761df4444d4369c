/* The agent's side of the fence: creates and configures it, and asks it before a place is
 * taken. */
#include "agent.h"
#include "base/log.h"
#include "bus/notify.h"
#include "fence_check.h"

/* A host that lost its place must not ask for a new one before everything that needed the old
 * one is down. */
void held_keep_out(struct agent *a)
{
        a->kept_out = !fence_is_down(&a->fence);
        member_suppress(a->member, a->kept_out ? BOOT_TIME_NEVER : a->stability.damping.until);
}

/* After a change of the bound units, the settings or the TTL. */
void held_check(struct agent *a)
{
        if (fence_check(&a->fence, session_ttl(member_session(a->member))))
                root_changed(a, "FenceWarnings");
}

static void on_bound(struct fence *f)
{
        held_check(container_of(f, struct agent, fence));
}

/* Only as a unit of the system: an agent that was started in a terminal must not touch the
 * host's units. */
void held_make(struct agent *a)
{
        struct fencing_config cfg = options_fencing(&a->opt);
        int r = notify_is_unit("tenured") ? pid1_new(&a->pid1, a->loop) : -ENOENT;

        if (r == 0 || r == -ENOENT)
                r = fence_init(&a->fence, a->loop, a->pid1, a->opt.held_target, &cfg, on_bound);
        if (r < 0 && r != -ENOENT)
                log_error("Cannot reach the service manager: %s. Nothing is fenced.",
                          strerror(-r));
}

void held_set(struct agent *a)
{
        struct fencing_config cfg = options_fencing(&a->opt);

        fence_set(&a->fence, &cfg);
        held_check(a);
}

/* systemd kills a service that takes longer than TimeoutStopSec= to stop, whatever it waits
 * for. Bound units and holders may take longer than that, so we ask for more time. */
struct boot_time held_extend(struct agent *a, struct boot_time now)
{
        bool waits = a->leaving.state == LEAVING_RELEASING || !fence_is_down(&a->fence);

        if (!(a->leaving.causes & LEAVING_EXIT) || !waits)
                return BOOT_TIME_NEVER;
        if (!boot_before(now, a->extend_at)) {
                a->extend_at = boot_add(now, NOTIFY_EXTEND_EACH);
                notify_extend(NOTIFY_EXTEND_BY);
        }
        return a->extend_at;
}
