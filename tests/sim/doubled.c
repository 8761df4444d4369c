/*
 * One data directory in two processes: on another host, a second process of a member starts
 * from a copy of its disk, while the member itself runs. In some of these worlds it also has
 * the member's address, so that the others reach it instead.
 *
 * It is the node behind the last replica. The copy may be older than it is; the member may have
 * started again since. Whoever has a link from the member refuses the second process, which
 * is told to stop. Nobody can tell which of the two is the member if that has not called for a
 * while, or has just started: if the second process is accepted then, the world ends without a
 * verdict.
 */
#include "base/log.h"
#include "consensus/internal.h"
#include "world.h"

/* A member that is well calls again so soon (CALLS_AGAIN in versions.c, and a bit). */
#define CALLS_AGAIN (1500 * MSEC)
#define WELL_FOR (2 * NSEC_PER_SEC)
/* The second process calls at once, and then what it hears may be lost. */
#define TOLD_BY (3 * NSEC_PER_SEC)

static struct replica_node *first; /* whose disk was copied; NULL: nobody's was */
static bool moved;                 /* the second process has its address */
/* By each replica: when it could not hear from the first process, and from the second one; and
 * between which processes there was a link last. */
static struct {
        nsec_t deaf[2];
        unsigned from_life, to_life;
} heard[REPLICAS_MAX];

static struct replica_node *second(const struct world *w)
{
        return w->n_nodes > w->n_replicas ? &W->r[w->n_replicas] : NULL;
}

void doubled_draw(struct world *w)
{
        w->doubles = (w->doubles || w->seed % 11 == 8) && w->n_replicas == 3 && !w->old &&
                     !w->linked && !w->forced && !w->lasting && !w->swaps && !w->operated &&
                     !w->faults.members && !w->slows && !w->drawn && !w->rated;
        w->n_nodes = w->n_replicas + w->doubles;
}

void doubled_begin(struct world *w)
{
        struct replica_node *n = second(w);

        first = NULL;
        memset(heard, 0, sizeof(heard));
        if (!n)
                return;
        *n = (struct replica_node){.i = w->n_replicas,
                                   .version = CLUSTER_NEWEST,
                                   .disk = sim_disk_new(),
                                   .lost = true,
                                   .wake = NEVER};
        n->watched_disk = watched_disk_new(n->disk, n);
        n->last_parked = &n->parked;
        post(w, time_in(&w->damage, 1500 * MSEC, 4000 * MSEC), EV_DOUBLE);
}

struct replica_node *doubled_of(const struct world *w, const struct replica_node *n)
{
        struct replica_node *s = second(w);

        if (!s || !first || !s->up)
                return NULL;
        return n == first ? s : n == s ? first : NULL;
}

bool doubled_apart(const struct world *w, unsigned i, unsigned j)
{
        return first && moved && doubled_of(w, first) && (i == first->i) != (j == first->i);
}

struct replica_node *doubled_at(const struct world *w, struct replica_node *n)
{
        return n && n == first && moved && doubled_of(w, n) ? doubled_of(w, n) : n;
}

/* Whether @by hears from @n: the first process, or the second one. */
static bool hears(const struct world *w, const struct replica_node *by,
                  const struct replica_node *n)
{
        const struct sim_link *l = &w->links[n->i][by->i];

        return by->up && !by->paused && n->up && !n->paused && !w->cut[n->i][by->i] &&
               w->now >= l->down_until && w->now - n->booted_at >= CALLS_AGAIN;
}

void doubled_look(struct world *w)
{
        struct replica_node *s = second(w);
        bool both = s && first && s->up;

        if (both && w->calm)
                w->incomplete = w->now;
        for (unsigned i = 0; first && i < w->n_replicas; i++) {
                if (!hears(w, &w->r[i], first))
                        heard[i].deaf[0] = w->now;
                if (!hears(w, &w->r[i], s))
                        heard[i].deaf[1] = w->now;
                if (both && &w->r[i] != first &&
                    w->now - max_of(heard[i].deaf[0], heard[i].deaf[1]) > TOLD_BY)
                        fail(w, "I5: replica %u hears from two processes of replica %u for 3 s",
                             i + 1, first->i + 1);
        }
}

/* Copies the disk of some replica, and starts from that later. */
static void copy_disk(struct world *w, struct replica_node *s)
{
        struct replica_node *n = &w->r[rnd_between(&w->damage, 0, w->n_replicas - 1)];

        if (!n->up || replica_directory(n->node.replica, n->id) == 0)
                return;
        first = n;
        moved = chance_in(&w->damage, 40);
        sim_disk_copy(s->disk, n->disk);
        s->id = n->id;
        s->made = true;
        s->seen = (struct seen){0};
        log_debug("%.3f s: the disk of replica %u is copied", (double) w->now / 1e9, n->i + 1);
}

static bool is_well(const struct world *w)
{
        for (unsigned i = 0; i < w->n_replicas; i++)
                if (&w->r[i] != first && (w->now - heard[i].deaf[0] < WELL_FOR ||
                                          w->links[first->i][i].from_life != first->life ||
                                          w->links[first->i][i].to_life != w->r[i].life))
                        return false;
        return true;
}

static void start_second(struct world *w, struct replica_node *s)
{
        w->counts.doubled++;
        log_debug("%.3f s: a second process of replica %u starts%s", (double) w->now / 1e9,
                  first->i + 1, moved ? " at its address" : "");
        for (unsigned i = 0; i < w->n_replicas; i++) {
                heard[i].from_life = first->life;
                heard[i].to_life = w->r[i].life;
        }
        s->lost = false;
        boot(w, s);
        if (!s->up)
                doubled_ended(w, s);
}

void on_double(struct world *w)
{
        struct replica_node *s = second(w);

        if (w->calm)
                return;
        if (!first)
                copy_disk(w, s);
        else if (s->lost && is_well(w))
                start_second(w, s);
        post(w, time_in(&w->damage, 50 * MSEC, first ? 500 * MSEC : 3000 * MSEC), EV_DOUBLE);
}

/* ---- links ---- */

static void call_again(struct world *w, const struct replica_node *from, unsigned to)
{
        struct sim_link *l = &w->links[from->i][to];

        l->to_life = 0;
        if (from->up && !l->calls) {
                l->calls = true;
                post_hello(w, from, to, 100 * MSEC);
        }
}

static void tell_doubled(struct world *w, const struct replica_node *n,
                         const struct replica_node *whom)
{
        cleanup_(buf_fini) struct buf f = {0};
        struct event *e;

        buf_add_u8(&f, FRAME_DOUBLED);
        buf_add_u64(&f, replica_introduction(whom->node.replica, 0).process);
        e = post_bytes(w, MSEC, EV_FRAME, buf_len(&f));
        memcpy(e->bytes, buf_head(&f), buf_len(&f));
        e->len = buf_len(&f);
        e->from = n->i;
        e->to = whom->i;
        e->life = n->life;
        e->from_id = n->id;
        e->to_id = whom->id;
        e->version = n->version;
}

static void accepted(struct world *w, const struct replica_node *n,
                     const struct replica_node *by)
{
        if (n == first) {
                heard[by->i].from_life = n->life;
                heard[by->i].to_life = by->life;
        } else if (w->now - heard[by->i].deaf[0] >= CALLS_AGAIN &&
                   heard[by->i].from_life == first->life && heard[by->i].to_life == by->life) {
                fail(w, "I5: replica %u accepts a second process of replica %u", by->i + 1,
                     first->i + 1);
        } else {
                w->unknowable = true;
        }
}

void doubled_introduced(struct world *w, const struct replica_node *n,
                        const struct replica_node *by, int r)
{
        const struct replica_node *other = doubled_of(w, n);

        if (!first || (n != first && n != second(w)))
                return;
        if (r == 0)
                accepted(w, n, by);
        if (r == 0 && other)
                w->links[other->i][by->i].to_life = 0; /* its former link ends */
        if (r == -EBUSY && other)
                call_again(w, other, by->i);
        if (r == -EADDRINUSE)
                tell_doubled(w, by, n);
}

bool doubled_stops(const struct world *w, const struct replica_node *n)
{
        return n == second(w);
}

void doubled_ended(struct world *w, struct replica_node *n)
{
        if (n != second(w))
                return;
        log_debug("%.3f s: the second process of replica %u has ended", (double) w->now / 1e9,
                  first->i + 1);
        n->lost = true;
        w->met.doubled += first->up;
        first = NULL; /* another disk may be copied */
}
