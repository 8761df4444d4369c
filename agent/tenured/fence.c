#include "fence.h"

#include <fcntl.h>
#include <inttypes.h>
#include <unistd.h>

#include "base/log.h"

/* Explained in conf/tenure.catalog. */
#define MESSAGE_FENCED "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a006"
#define MESSAGE_FENCE_FAILED "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a007"

/* While it stops, and only then, it is asked so often whether it has: a job that is done may
 * still have left something running. Not oftener: systemd runs jobs when it has nothing else to
 * do, and answering us is something. */
#define LOOK_AGAIN (10 * NSEC_PER_MSEC)

/* Of a term, no more than so much is given up to stop in time. */
#define LEAD_SHARE 4

static void on_timer(struct loop_timer *t)
{
        (void) t; /* fence_follow() comes with every iteration */
}

void fence_init(struct fence *f, struct loop *l, struct pid1 *pid1, const char *target,
                nsec_t lead, bool reboot)
{
        *f = (struct fence){.pid1 = pid1,
                            .target = target,
                            .lead = lead,
                            .reboot = reboot,
                            .state = pid1 ? FENCE_UP : FENCE_DOWN};
        loop_timer_init(&f->timer, l, on_timer);
}

void fence_set(struct fence *f, nsec_t lead, bool reboot)
{
        f->lead = lead;
        f->reboot = reboot;
}

void fence_fini(struct fence *f)
{
        if (f->pid1)
                loop_timer_disarm(&f->timer);
}

bool fence_is_settled(const struct fence *f)
{
        return !f->pid1 || f->stuck || (f->state == FENCE_UP && f->known);
}

bool fence_is_down(const struct fence *f)
{
        return f->state == FENCE_DOWN;
}

static nsec_t ms(nsec_t t)
{
        return t / NSEC_PER_MSEC;
}

static void on_down(void *userdata, int r)
{
        struct fence *f = userdata;
        struct boot_time now = boot_now();
        const char *fields[] = {MESSAGE_FENCED, NULL};

        f->asked = false;
        f->seen_up |= r == 0;
        if (r == 0 && f->state == FENCE_STOPPING && !f->told) {
                f->told = true;
                pid1_stop(f->pid1, f->target);
        }
        if (r <= 0 || f->state != FENCE_STOPPING)
                return;
        f->state = FENCE_DOWN;
        if (!f->known)
                log_debug("%s is down.", f->target);
        else if (boot_before(now, f->deadline))
                log_full(LOG_NOTICE, fields,
                         "%s is down after %" PRId64 " ms, %" PRId64 " ms before the deadline.",
                         f->target, ms(boot_diff(now, f->began)),
                         ms(boot_diff(f->deadline, now)));
        else
                log_full(LOG_NOTICE, fields, "%s is down after %" PRId64 " ms.", f->target,
                         ms(boot_diff(now, f->began)));
}

static bool open_gate(struct fence *f)
{
        int fd = open(FENCE_GATE, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);

        if (fd < 0 && !f->stuck)
                log_error("%s: cannot make it: %s. %s stays down.", FENCE_GATE, strerror(errno),
                          f->target);
        f->stuck = fd < 0;
        if (fd >= 0)
                close(fd);
        return fd >= 0;
}

/* Returns whether it was open. */
static bool close_gate(void)
{
        if (unlink(FENCE_GATE) == 0)
                return true;
        if (errno != ENOENT)
                log_error("%s: cannot remove it: %s.", FENCE_GATE, strerror(errno));
        return errno != ENOENT;
}

static void stop(struct fence *f, struct boot_time now)
{
        bool open = close_gate();

        f->state = FENCE_STOPPING;
        f->began = f->ask_at = now;
        f->asked = f->seen_up = f->killed = f->rebooted = false;
        if (f->known)
                log_info("Stopping %s.", f->target);
        /* At boot the target may wait for us to be ready, with units that wait for it: a stop
         * would be the end of their start. So what need not be up is looked at first. */
        f->told = f->known || open;
        if (f->told)
                pid1_stop(f->pid1, f->target);
}

static void press(struct fence *f, struct boot_time now)
{
        const char *fields[] = {MESSAGE_FENCE_FAILED, NULL};

        if (!f->asked && !boot_before(now, f->ask_at)) {
                f->asked = true;
                f->ask_at = boot_add(now, LOOK_AGAIN);
                pid1_is_down(f->pid1, f->target, on_down, f);
                if (f->state != FENCE_STOPPING)
                        return;
        }
        if (!f->killed && f->seen_up && !boot_before(now, f->kill_at)) {
                f->killed = true;
                pid1_kill_bound(f->pid1, f->target);
        }
        if (!f->rebooted && f->killed && !boot_before(now, f->deadline)) {
                f->rebooted = true;
                log_full(LOG_ERR, fields, "%s is still up at the deadline%s.", f->target,
                         f->reboot ? "; rebooting at once" : "");
                if (f->reboot)
                        pid1_reboot(f->pid1);
        }
}

void fence_follow(struct fence *f, const struct session *s, bool leave, struct boot_time now)
{
        nsec_t lead = min_of(f->lead, s->ttl / LEAD_SHARE);
        struct boot_time from = BOOT_TIME_NEVER;
        bool held, up;

        if (!f->pid1)
                return;
        held = session_holds(s, now);
        if (held) {
                f->deadline = session_deadline(s);
                from = boot_add(f->deadline, -lead);
        }
        up = held && !leave && boot_before(now, from);
        /* Who leaves in peace has all the time that its renewals win; who lost has none. */
        if (held)
                f->kill_at = boot_add(f->deadline, -lead / 2);
        else if (f->state == FENCE_UP)
                f->kill_at = f->deadline = now;
        if (up && f->state == FENCE_DOWN && open_gate(f)) {
                f->state = FENCE_UP;
                f->known = true;
                log_info("Starting %s.", f->target);
                pid1_start(f->pid1, f->target);
        } else if (up && f->state == FENCE_UP && !f->known && open_gate(f)) {
                /* An earlier life's. */
                f->known = true;
                pid1_start(f->pid1, f->target);
        } else if (!up && f->state == FENCE_UP) {
                stop(f, now);
        }
        if (f->state == FENCE_STOPPING) {
                press(f, now);
                from = boot_add(now, LOOK_AGAIN);
        }
        if (f->state == FENCE_DOWN)
                loop_timer_disarm(&f->timer);
        else if (loop_timer_arm(&f->timer, from) < 0)
                abort();
}
