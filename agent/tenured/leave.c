/* Leaves the cluster on purpose, and joins again; session/leaving.h decides when, and in which
 * order. */
#include <inttypes.h>

#include "agent.h"
#include "base/log.h"
#include "bus/messages.h"
#include "bus/notify.h"

#define SHUTDOWN_ANSWER (300 * NSEC_PER_MSEC)

/* How often to ask whether the holders have released the place, and how long they may take
 * until that is logged. */
#define ASK_AGAIN (10 * NSEC_PER_MSEC)
#define HOLDERS_SOON NSEC_PER_SEC

/* ---- causes ---- */

static void on_shutdown_known(void *userdata, enum pid1_shutdown what)
{
        struct agent *a = userdata;

        leaving_tell(&a->leaving, what == PID1_REBOOT     ? "reboot"
                                  : what == PID1_SHUTDOWN ? "shutdown"
                                                          : "left");
        loop_hook_again(&a->hook);
}

void agent_exit(struct agent *a)
{
        if (a->leaving.causes & LEAVING_EXIT) /* the second request: exit at once */
                return loop_stop(a->loop);
        notify_stopping();
        leaving_begin(&a->leaving, LEAVING_EXIT, NULL);
        if (a->leaving.state != LEAVING_RELEASING) /* otherwise the reason was published
                                                    * already */
                return;
        if (a->pid1)
                pid1_ask_shutdown(a->pid1, SHUTDOWN_ANSWER, on_shutdown_known, a);
        else
                on_shutdown_known(a, PID1_NO_SHUTDOWN);
}

bool agent_leave(struct agent *a, enum maintenance m, const char *note)
{
        if (a->leaving.causes & LEAVING_EXIT)
                return false;
        /* Store the order first, so that the next run carries it out if we do not. */
        a->maintenance = m;
        a->persisted = false;
        maintenance_set(m);
        root_changed(a, "Maintenance");
        strcpy(a->leave_note, note);
        if (!leaving_is_under_way(&a->leaving))
                log_info("Leaving until tenurectl join%s%s.", *note ? ": " : "", note);
        leaving_begin(&a->leaving, LEAVING_MAINTENANCE, "left");
        loop_hook_again(&a->hook);
        return true;
}

int agent_join(struct agent *a)
{
        int r = 0;

        if (a->leaving.causes & LEAVING_EXIT)
                return AGENT_E_EXITS;
        leaving_end(&a->leaving, LEAVING_MAINTENANCE | LEAVING_SLEEP);
        if (a->maintenance != MAINTENANCE_NONE || !a->persisted) {
                a->maintenance = MAINTENANCE_NONE;
                maintenance_set(MAINTENANCE_NONE);
                r = maintenance_persist(MAINTENANCE_NONE);
                a->persisted = r == 0;
                root_changed(a, "Maintenance");
        }
        *a->leave_note = '\0';
        stability_forgive(&a->stability);
        held_keep_out(a);
        loop_hook_again(&a->hook);
        return r;
}

/* A host that sleeps cannot renew, so it leaves before, with everything fenced down. A host
 * that was put to sleep without notice sees afterwards, by its clock, that the deadline has
 * passed. */
static void on_sleep(void *userdata, bool begins)
{
        struct agent *a = userdata;

        if (begins && !leaving_is_under_way(&a->leaving)) {
                log_info("The host is going to sleep.");
                leaving_begin(&a->leaving, LEAVING_SLEEP, "suspend");
        } else if (!begins && (a->leaving.causes & LEAVING_SLEEP)) {
                leaving_end(&a->leaving, LEAVING_SLEEP);
                log_info("The host is awake%s.", a->leaving.causes ? "" : "; joining again");
        }
        loop_hook_again(&a->hook); /* the bus calls this after the hook has run */
}

/* ---- carrying out ---- */

/* If this fails, the caller gets an error that says what the next boot will do instead. */
static void persist(struct agent *a)
{
        int r;

        if (a->persisted || a->maintenance == MAINTENANCE_NONE)
                return;
        a->persisted = true;
        r = maintenance_persist(a->maintenance);
        if (r == 0 || !a->leave_call)
                return;
        (void) sd_bus_reply_method_errorf(
                a->leave_call, SD_BUS_ERROR_IO_ERROR,
                a->maintenance == MAINTENANCE_PERSISTENT
                        ? "this host has left, but will join again at its next boot: the order "
                          "to stay out cannot be saved (%s)"
                        : "this host has left, but will stay out after its next boot as well: "
                          "an earlier order cannot be removed (%s)",
                strerror(-r));
        a->leave_call = sd_bus_message_unref(a->leave_call);
}

static void act(struct agent *a, unsigned acts)
{
        if (acts & LEAVING_GIVE_BACK)
                member_leave(a->member, a->leaving.reason, a->leave_note);
        if (acts & LEAVING_SETTLE) {
                if (!(acts & LEAVING_JOIN)) {
                        persist(a);
                        logind_release(&a->logind);
                }
                root_left(a);
        }
        if (acts & LEAVING_JOIN) {
                a->state = SESSION_JOINING;
                member_join(a->member);
                logind_inhibit(&a->logind);
        }
        if (acts & LEAVING_END)
                loop_stop(a->loop);
}

/* Once in each leave. */
static void tell_delay(struct agent *a, struct boot_time now)
{
        const char *fields[] = {MESSAGE_DELAYED, NULL};
        nsec_t left = boot_diff(a->holders.published.deadline, now);
        char who[HOLDERS_BLAME_MAX];

        if (a->delay_log_at.ns == 0)
                a->delay_log_at = boot_add(now, HOLDERS_SOON);
        if (boot_before(now, a->delay_log_at))
                return;
        a->delay_log_at = BOOT_TIME_NEVER;
        holders_blame(&a->holders, who);
        log_full(LOG_NOTICE, fields,
                 "A program delays the leaving of this host, for %" PRId64
                 " s at most, by its lock on the file of the place (OpenTenancy): %s.",
                 (left - 1) / NSEC_PER_SEC + 1, who);
}

struct boot_time leave_run(struct agent *a, struct boot_time now)
{
        struct leaving_sight s = {.down = fence_is_down(&a->fence),
                                  .left = a->state == SESSION_LEFT};
        unsigned acts;

        /* The first call also tells the holders. */
        if (a->leaving.state == LEAVING_RELEASING && a->leaving.reason && s.down)
                s.released = holders_released(&a->holders, member_session(a->member), now);
        acts = leaving_next(&a->leaving, &s);
        act(a, acts);
        if (!(acts & LEAVING_ASK_HOLDERS)) {
                a->delay_log_at.ns = 0;
                return BOOT_TIME_NEVER;
        }
        tell_delay(a, now);
        return boot_add(now, ASK_AGAIN);
}

void leave_init(struct agent *a)
{
        logind_init(&a->logind, on_sleep, a);
        a->maintenance = maintenance_load();
        a->persisted = true;
        if (a->maintenance == MAINTENANCE_NONE)
                return;
        log_notice("This host stays out until tenurectl join, as requested%s.",
                   a->maintenance == MAINTENANCE_PERSISTENT ? " for good" : "");
        leaving_begin(&a->leaving, LEAVING_MAINTENANCE, "left");
        /* A place that an earlier run holds is given back in order. Otherwise we take none. */
        if (!a->resumed) {
                member_leave(a->member, a->leaving.reason, a->leave_note);
                leaving_is_out(&a->leaving);
        }
}
