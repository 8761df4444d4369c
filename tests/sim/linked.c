/* Replicas with real links: agent/tenure-core/links.c, and so consensus/peers.c, join.c and
 * admission.c and loop/dial.c, on the sockets of sockets.c. */
#include "../../agent/tenure-core/links.h"
#include "base/log.h"
#include "names.h"
#include "sockets.h"
#include "tcp.h"
#include "world.h"

/* A link is there again this long after the last thing that was in its way: an attempt to
 * connect that began just before may take a second (CONNECT_TIMEOUT in peers.c), the next one
 * may begin half a second after that, and then try up to three addresses. */
#define RELINK (2200 * MSEC + (W->now < W->slow_until ? 5 * W->slowest : 0))

static struct linked {
        struct links links;
} of[REPLICAS_MAX];

static struct rnd rnd;
static size_t tx_full, tx_max;
static nsec_t delay;
/* Since when both count each other as a member, and run. */
static nsec_t wanted[REPLICAS_MAX][REPLICAS_MAX];

void linked_begin(struct world *w)
{
        if (!w->linked)
                return;
        rnd_init(&rnd, ~w->seed * 7);
        tx_full = chance_in(&rnd, 50) || w->bulk || w->rated ? 0 : rnd_between(&rnd, 500, 4000);
        tx_max = tx_full * 4;
        delay = w->election / 8;
        memset(wanted, 0, sizeof(wanted));
        tcp_begin(w);
        sockets_begin(w);
        callers_begin(w);
}

void linked_end(struct world *w)
{
        if (w->linked)
                tcp_end();
}

/* ---- a replica's ---- */

int linked_start(struct replica_node *n)
{
        static const struct joined nobody;
        struct loop *l = sockets_start(n);

        n->linked = &of[n->i];
        *n->linked = (struct linked){0};
        loop_enter(&n->clock);
        sockets_stir();
        return links_start(&n->linked->links, l, names_resolver(n->i), n->node.core,
                           n->node.replica, &nobody,
                           &(struct peers_config){.cluster_id = 7,
                                                  .member_id = n->id,
                                                  .listen_urls = address_of(n->i),
                                                  .admission.plaintext = true,
                                                  .tx_full = tx_full,
                                                  .tx_max = tx_max,
                                                  .delay = delay});
}

void linked_stop(struct replica_node *n)
{
        if (!n->linked)
                return;
        links_fini(&n->linked->links);
        n->linked = NULL;
}

void linked_fatal(struct replica_node *n)
{
        links_stop(&n->linked->links);
}

void linked_configured(struct replica_node *n)
{
        MEMORY(MEMORY_RUN);

        loop_enter(&n->clock);
        links_configured(&n->linked->links);
}

void linked_send(struct replica_node *n, uint64_t peer, struct view frame)
{
        MEMORY(MEMORY_RUN);

        links_send(&n->linked->links, peer, frame);
}

size_t linked_room(const struct replica_node *n, uint64_t peer)
{
        return links_room(&n->linked->links, peer);
}

bool linked_is_up(const struct replica_node *n, uint64_t peer)
{
        return links_are_up(&n->linked->links, peer);
}

void linked_process_ends(const struct replica_node *n, bool power)
{
        tcp_process_ends(n->i, power);
}

void linked_resumes(const struct replica_node *n)
{
        tcp_resumes(n->i);
}

void linked_break(const struct replica_node *n, unsigned to)
{
        for (unsigned i = 0; i < W->n_replicas; i++)
                if (to == NODES_MAX || to == i) {
                        tcp_break(n->i, i);
                        if (to == NODES_MAX)
                                tcp_break(i, n->i);
                }
}

/* A frame that another replica has sent is well formed. In worlds where links are modelled,
 * on_frame() says so. */
int __real_replica_input(struct replica *r, uint64_t peer, struct view frame,
                         struct boot_time now);
int __wrap_replica_input(struct replica *r, uint64_t peer, struct view frame,
                         struct boot_time now);

int __wrap_replica_input(struct replica *r, uint64_t peer, struct view frame,
                         struct boot_time now)
{
        uint64_t failures = memory_failures();
        int k = __real_replica_input(r, peer, frame, now);
        unsigned from = sockets_speaker();

        if (k < 0 && W->linked && from < REPLICAS_MAX && memory_failures() == failures &&
            !(k == -EPROTONOSUPPORT && (W->raised || callers_posed_as_old(from))))
                fail(W, "a replica refused a frame of replica %u", from + 1);
        return k;
}

/* ---- turns ---- */

static bool runs(const struct replica_node *n)
{
        return n->up && !n->paused && n->linked;
}

nsec_t linked_next(const struct world *w)
{
        return w->linked ? sockets_due_at() : NEVER;
}

static nsec_t next_of_all(const struct world *w)
{
        nsec_t at = min_of(tcp_next(), callers_next());

        for (unsigned i = 0; i < w->n_replicas; i++)
                if (runs(&w->r[i]))
                        at = min_of(at, sockets_next(i));
        return at;
}

static void turn(struct world *w, struct replica_node *n)
{
        bool any;

        loop_enter(&n->clock);
        seen_frame_before(n);
        {
                MEMORY(MEMORY_RUN);
                any = sockets_turn(n->i);
        }
        if (!any)
                return;
        seen_frame_after(w, n);
        world_drive(w, n);
}

void linked_run(struct world *w)
{
        if (!w->linked || sockets_due_at() > w->now)
                return;
        callers_run();
        tcp_run();
        for (unsigned i = 0; i < w->n_replicas && !*w->failure; i++)
                if (runs(&w->r[i]))
                        turn(w, &w->r[i]);
        sockets_rest(next_of_all(w)); /* unless something is sent now */
        for (unsigned i = 0; i < w->n_replicas && !*w->failure; i++)
                if (runs(&w->r[i])) {
                        MEMORY(MEMORY_RUN);
                        loop_enter(&w->r[i].clock);
                        sockets_flush(i);
                }
}

/* ---- checks ---- */

/* Whether frames get from one to the other; or @stuck: there is a link, and what is in the way
 * is TCP. */
static bool flows(const struct world *w, unsigned a, unsigned b, bool *stuck)
{
        const struct tcp *c;

        *stuck = false;
        LIST_FOREACH (c, &tcp_all, next) {
                const struct tcp_side *s = &c->side[CALLER];

                if (s->host != a || c->side[CALLED].host != b || !s->stream ||
                    !sockets_is_open(s->stream) || !linked_is_up(&w->r[a], w->r[b].id))
                        continue;
                if (c->side[CALLED].stream && c->speaks && !tcp_is_stuck(c))
                        return true;
                *stuck = *stuck || tcp_is_stuck(c);
        }
        return false;
}

static bool waits_for_link(const struct world *w, unsigned a, unsigned b)
{
        bool stuck;

        return !flows(w, a, b, &stuck) && (stuck || w->now - tcp_troubled(a, b) <= RELINK);
}

bool linked_apart(const struct world *w, unsigned a, unsigned b)
{
        return w->linked && a < w->n_replicas && b < w->n_replicas && runs(&w->r[a]) &&
               runs(&w->r[b]) && (waits_for_link(w, a, b) || waits_for_link(w, b, a));
}

static void check_pair(struct world *w, unsigned a, unsigned b)
{
        int of_a[REPLICAS_MAX], of_b[REPLICAS_MAX];
        bool stuck;

        if (!runs(&w->r[a]) || !runs(&w->r[b]) || tcp_is_cut(a, b) ||
            upgrades_outdated(&w->r[a]) || upgrades_outdated(&w->r[b])) {
                tcp_trouble(a, b);
                wanted[a][b] = NEVER;
                return;
        }
        (void) roles_of(&w->r[a], of_a);
        (void) roles_of(&w->r[b], of_b);
        if (of_a[b] == 0 || of_b[a] == 0)
                wanted[a][b] = NEVER;
        else if (wanted[a][b] == NEVER)
                wanted[a][b] = w->now;
        if (wanted[a][b] == NEVER || flows(w, a, b, &stuck) || stuck ||
            w->now - max_of(wanted[a][b], tcp_troubled(a, b)) <= RELINK)
                return;
        fail(w, "links: replica %u has no link to replica %u, though nothing is in its way",
             a + 1, b + 1);
}

void linked_check(struct world *w)
{
        for (unsigned a = 0; w->linked && a < w->n_replicas; a++)
                for (unsigned b = 0; b < w->n_replicas; b++) {
                        if (a == b)
                                continue;
                        check_pair(w, a, b);
                        if (w->calm && linked_apart(w, a, b))
                                w->incomplete = w->now;
                }
}
