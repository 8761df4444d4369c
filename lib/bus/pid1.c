#include "bus/pid1.h"

#include "base/log.h"
#include "bus/manager.h"

/* If one of these units has a job, the machine is going down or rebooting. We ask about all of
 * them at once. */
static const struct {
        const char *unit;
        enum pid1_shutdown what;
} targets[] = {
        {"reboot.target", PID1_REBOOT},     {"kexec.target", PID1_REBOOT},
        {"poweroff.target", PID1_SHUTDOWN}, {"halt.target", PID1_SHUTDOWN},
        {"exit.target", PID1_SHUTDOWN},     {"soft-reboot.target", PID1_REBOOT},
};

struct pid1 {
        struct manager manager;
        struct manager_call reboot, jobs;
        void (*shutdown_fn)(void *userdata, enum pid1_shutdown what);
        void *shutdown_userdata;
        struct loop_timer shutdown_limit;
};

static void tell_shutdown(struct pid1 *p, enum pid1_shutdown what)
{
        manager_cancel(&p->jobs);
        loop_timer_disarm(&p->shutdown_limit);
        p->shutdown_fn(p->shutdown_userdata, what);
}

static void on_limit(struct loop_timer *t)
{
        log_notice("The service manager has not answered in time whether the host shuts down.");
        tell_shutdown(container_of(t, struct pid1, shutdown_limit), PID1_NO_SHUTDOWN);
}

int pid1_new(struct pid1 **ret, struct loop *l)
{
        struct pid1 *p;

        if (!bus_manager_is_there())
                return -ENOENT;
        p = calloc(1, sizeof(*p));
        if (!p)
                return -ENOMEM;
        loop_timer_init(&p->shutdown_limit, l, on_limit);
        manager_init(&p->manager, l, NULL);
        manager_connect(&p->manager);
        *ret = p;
        return 0;
}

struct pid1 *pid1_free(struct pid1 *p)
{
        if (!p)
                return NULL;
        loop_timer_disarm(&p->shutdown_limit);
        manager_fini(&p->manager);
        free(p);
        return NULL;
}

static void on_reboot(struct manager_call *c unused_, sd_bus_message *reply, int r)
{
        if (r < 0)
                log_error("systemd: cannot reboot: %s.", manager_why(reply, r));
}

void pid1_reboot(struct pid1 *p)
{
        manager_call(&p->manager, &p->reboot, on_reboot, "Reboot", "");
}

static void on_jobs(struct manager_call *c, sd_bus_message *reply, int r)
{
        enum pid1_shutdown what = PID1_NO_SHUTDOWN;
        struct manager_unit unit;

        while (r >= 0 && (r = manager_next_unit(reply, &unit)) > 0)
                for (size_t i = 0; unit.job && i < ARRAY_SIZE(targets); i++)
                        if (strcmp(unit.name, targets[i].unit) == 0)
                                what = max_of(what, targets[i].what);
        tell_shutdown(container_of(c, struct pid1, jobs), what);
}

void pid1_ask_shutdown(struct pid1 *p, nsec_t limit,
                       void (*fn)(void *userdata, enum pid1_shutdown what), void *userdata)
{
        char *names[ARRAY_SIZE(targets) + 1] = {NULL};

        for (size_t i = 0; i < ARRAY_SIZE(targets); i++)
                names[i] = (char *) (uintptr_t) targets[i].unit;
        p->shutdown_fn = fn;
        p->shutdown_userdata = userdata;
        manager_list(&p->manager, &p->jobs, on_jobs, names);
        loop_timer_in(&p->shutdown_limit, limit);
}
