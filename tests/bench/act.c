/* What tenure_may_act() costs, in nanoseconds; with a page as the agent has it. Never passes or
 * fails. usage: act [MILLIONS] */
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tenure/internal.h"

static double measure(bool sealed, unsigned millions)
{
        int fd = memfd_create("tenancy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        struct tenancy place = {.lease = 1,
                                .ttl = 3600 * NSEC_PER_SEC,
                                .deadline = boot_add(boot_now(), 3600 * NSEC_PER_SEC)};
        uint8_t bytes[TENANCY_BYTES];
        struct tenure *t;
        unsigned long yes = 0;
        struct boot_time began;

        tenancy_write(&place, bytes);
        if (tenure_new(&t) < 0 || pwrite(fd, bytes, sizeof(bytes), 0) != sizeof(bytes) ||
            (sealed && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0) ||
            tenure_hold_with_agent(t) < 0 || tenure_start(t) < 0 ||
            page_open(&t->agent.page, fd) < 0)
                return -1;
        snprintf(t->agent.cluster, sizeof(t->agent.cluster), "default");
        snprintf(t->agent.node, sizeof(t->agent.node), "web1");
        tenure_wake(t);
        if (tenure_dispatch(t) < 0)
                return -1;
        began = boot_now();
        for (unsigned long i = 0; i < millions * 1000000UL; i++)
                yes += tenure_may_act(t);
        tenure_free(t);
        if (yes != millions * 1000000UL)
                return -1;
        return (double) boot_diff(boot_now(), began) / (double) yes;
}

int main(int argc, char **argv)
{
        unsigned millions = argc > 1 ? (unsigned) atoi(argv[1]) : 10;
        struct boot_time began;

        setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent", 1);
        printf("tenure_may_act(), mapped: %.0f ns\n", measure(true, millions));
        printf("tenure_may_act(), read:   %.0f ns\n", measure(false, millions));
        began = boot_now();
        for (unsigned long i = 0; i < millions * 1000000UL; i++)
                (void) boot_now();
        printf("boot_now() alone:         %.0f ns\n",
               (double) boot_diff(boot_now(), began) / (double) (millions * 1000000UL));
        return 0;
}
