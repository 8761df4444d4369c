#include "tie.h"

#include <stdio.h>
#include <stdlib.h>

#include "text.h"

#define BUS "DBUS_SYSTEM_BUS_ADDRESS"

static struct {
        bool changed;
        char *was; /* NULL: it was not set; owned */
} bus;

int tie_set_bus(const char *address)
{
        const char *was = getenv(BUS);

        if (!address || bus.changed)
                return 0;
        bus.was = was ? strdup(was) : NULL;
        if ((was && !bus.was) || setenv(BUS, address, 1) < 0)
                return ctl_fail("cannot name the bus", -ENOMEM, NULL);
        bus.changed = true;
        return 0;
}

void tie_restore_environment(void)
{
        if (bus.changed && bus.was)
                setenv(BUS, bus.was, 1);
        else if (bus.changed)
                unsetenv(BUS);
}

int tie_fail(const struct tenure *t)
{
        return say("%s", tenure_error(t));
}

int tie_set(struct tenure *t, const struct core_options *o)
{
        int r = o->given ? tenure_set_endpoints(t, o->endpoints) : 0;

        if (r == 0)
                r = tenure_set_tls(t, o->cacert, o->cert, o->key);
        if (r == 0 && o->login.user)
                r = tenure_set_user(t, o->login.user, o->login.password);
        return r < 0 ? tie_fail(t) : 0;
}

int tie_new(const struct ctl *c, struct tenure **ret)
{
        struct tenure *t;
        int r;

        if (tie_set_bus(c->address) < 0)
                return -1;
        r = tenure_new(&t);
        if (r < 0)
                return ctl_fail("cannot ask the core", r, NULL);
        r = tie_set(t, &c->core);
        if (r == 0 && tenure_start(t) < 0)
                r = tie_fail(t);
        if (r < 0)
                tenure_free(t);
        else
                *ret = t;
        return r;
}
