/* Compiled as lib/state is for it (tests.mk): nobody else sees its structs. */
#include "wider.h"

#include "../whole.h"
#include "state/state.h"

#define SLICE 5 /* of a command: its slices end elsewhere than those of most replicas */

static struct state state;

void wider_begin(void)
{
        state_init(&state);
}

void wider_end(void)
{
        state_fini(&state);
}

uint64_t wider_applied(void)
{
        return state.applied;
}

static int apply(const struct cmd *c)
{
        struct state_reply reply = {0};
        int r;

        do {
                struct budget left = {SLICE};

                r = state_apply_some(&state, c, &reply, &left);
        } while (r > 0);
        return r;
}

int wider_apply(uint64_t index, struct lease_time at, struct view commands)
{
        struct cmd c;
        int r;

        if (index <= state.applied)
                return 0;
        state_begin(&state, index, at);
        while ((r = cmd_next(&commands, CLUSTER_NEWEST, &c)) == 0)
                if ((r = apply(&c)) < 0)
                        return r;
        return r == -ENODATA ? 0 : r;
}

int wider_load(struct view snapshot)
{
        state_fini(&state);
        return state_load(&state, snapshot);
}

uint64_t wider_hash(void)
{
        return state_hash(&state);
}
