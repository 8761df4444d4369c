/* Prints the nodes that are there, and then each that joins or leaves.
 * cc members.c $(pkg-config --cflags --libs libtenure) */
#include <stdio.h>
#include <tenure.h>

static int fail(struct tenure *t)
{
        fprintf(stderr, "members: %s.\n", tenure_error(t));
        tenure_free(t);
        return 1;
}

int main(void)
{
        const struct tenure_event *e;
        struct tenure *t;

        if (tenure_new(&t) < 0)
                return 1;
        if (tenure_follow(t, TENURE_NODES) < 0 || tenure_start(t) < 0)
                return fail(t);
        setvbuf(stdout, NULL, _IOLBF, 0);
        while (tenure_wait(t, -1) > 0)
                while ((e = tenure_pop_event(t)))
                        if (e->type == TENURE_NODE_JOINED)
                                printf("joined %s %s\n", e->node->name, e->node->addresses);
                        else if (e->type == TENURE_NODE_LEFT)
                                printf("left %s: %s\n", e->node->name, e->reason);
                        else if (e->type == TENURE_SYNCED)
                                printf("synced at revision %lld\n", (long long) e->revision);
        return fail(t);
}
