/*
 * Data directories that go on in a later format, in three worlds of four: each at a time of its
 * own, as when an upgrade is finished. In these worlds they begin as those of 0.1.0, without an
 * id, which they get at their next start.
 */
#include "consensus/internal.h"
#include "world.h"

/* A replica that is down is tried again. */
#define AGAIN (300 * MSEC)

void formats_begin(struct world *w)
{
        struct rnd rnd;

        rnd_init(&rnd, ~w->seed * 17);
        w->formats = chance_in(&rnd, 75);
        for (unsigned i = 0; i < w->n_replicas && w->formats; i++) {
                nsec_t in = chance_in(&rnd, 30) ? 0 : time_in(&rnd, 0, w->run_time);
                struct event *e = post(w, in, EV_FORMAT);

                e->to = i;
        }
}

void on_format(struct world *w, struct event *e)
{
        struct replica_node *n = &w->r[e->to];
        struct replica *r = n->node.replica;

        if (!n->up || n->paused || n->asleep) {
                post(w, AGAIN, EV_FORMAT)->to = e->to;
                return;
        }
        if (store_raise_format(r->store, STORE_FORMAT) < 0)
                replica_fatal(r, "cannot write term and vote (meta)");
        world_drive(w, n);
}
