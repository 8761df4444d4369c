/*
 * Deposed: a leader asks the others whether it still leads, for reads that wait there. They
 * say yes, and their answers take long; meanwhile they elect another leader, which is told to
 * write. So when the answers arrive they are true of the past, and of the reads that came then:
 * whoever reads at the old leader only now must not be told what was written before (I8).
 */
#include "base/log.h"
#include "world.h"

#define ROUNDS 12 /* of writes and reads, each up to LATER after the last one */
#define LATER (40 * MSEC)

static struct {
        unsigned old;   /* the old leader */
        unsigned round; /* 0: none; the first one cuts it off */
} story;

static void go_on(struct world *w, nsec_t least, nsec_t most)
{
        post(w, some_time(w, least, most), EV_SCRIPT);
}

void deposed_begin(struct world *w)
{
        story.round = 0;
        go_on(w, 0, 1500 * MSEC);
}

static void set_links(struct world *w, bool cut, nsec_t least, nsec_t most)
{
        for (unsigned i = 0; i < w->n_replicas; i++) {
                if (i == story.old)
                        continue;
                w->cut[story.old][i] = cut;
                w->links[i][story.old].delay = most > 0 ? some_time(w, least, most) : 0;
        }
}

/* The others hear of it, as if whatever is between them had reset their connections. */
static void depose(struct world *w)
{
        for (unsigned i = 0; i < w->n_replicas; i++) {
                struct event *e;

                if (i == story.old || !w->r[i].up)
                        continue;
                w->cut[story.old][i] = true;
                e = post(w, some_time(w, 0, 2 * MSEC), EV_DOWN);
                e->from = story.old;
                e->to = i;
        }
}

static void write_elsewhere(struct world *w)
{
        for (unsigned i = 0; i < w->n_replicas; i++)
                if (i != story.old && w->r[i].up && core_status(w->r[i].node.core).ready)
                        ask_writes(w, i, 2);
}

void deposed_go_on(struct world *w)
{
        const struct replica_node *leader = the_leader(w);

        if (story.round == 0) {
                if (!leader || w->n_replicas < 3)
                        return go_on(w, 100 * MSEC, 500 * MSEC);
                story.old = leader->i;
                story.round = 1;
                log_debug("%.3f s: replica %u is to be deposed", (double) w->now / 1e9,
                          leader->i + 1);
                set_links(w, false, 100 * MSEC, 400 * MSEC);
                ask_reads(w, leader->i, 3);
                return go_on(w, 4 * MSEC, 15 * MSEC);
        }
        if (story.round == 1)
                depose(w);
        write_elsewhere(w);
        ask_reads(w, story.old, 2);
        if (story.round++ < ROUNDS)
                return go_on(w, 5 * MSEC, LATER);
        set_links(w, false, 0, 0);
        story.round = 0;
        go_on(w, 300 * MSEC, 2000 * MSEC);
}
