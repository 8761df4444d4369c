/* Progress. What waits at a leader needs what a write needs: a majority that answers. So while
 * writes that came later are done there, in one term, nothing waits for long, whatever else
 * fails. And nothing waits at any replica once all has been well for a while. */
#include "world.h"

/* Between two writes there may have been a pause, or nothing to do: so much of it counts. */
#define BETWEEN_MOST (200 * MSEC)
#define TIMEOUT_LATE (200 * MSEC) /* a replica looks for timeouts every 100 ms */

static LIST_HEAD(, prompt) waiting = LIST_HEAD_INITIALIZER(waiting);

void prompts_begin(void)
{
        LIST_INIT(&waiting);
}

void prompt_begin(struct prompt *p, unsigned to, const char *what, nsec_t bound)
{
        prompt_end(p);
        *p = (struct prompt){
                .what = what, .to = to, .life = W->r[to].life, .came = W->now, .bound = bound};
        LIST_INSERT_HEAD(&waiting, p, next);
}

void prompt_end(struct prompt *p)
{
        if (p->what)
                LIST_REMOVE(p, next);
        p->what = NULL;
}

void prompt_see_write(struct world *w, unsigned at, nsec_t came)
{
        const struct replica_node *n = &w->r[at];
        struct replica_status st = core_status(n->node.core);
        struct prompt *p;

        if (!st.ready)
                return;
        LIST_FOREACH (p, &waiting, next) {
                if (p->to != at || p->life != n->life || came - p->came < p->bound ||
                    (p->excused && p->excused(p)))
                        continue;
                if (p->term != st.term)
                        p->overtaken = 0;
                else
                        p->overtaken += min_of(w->now - p->seen, (nsec_t) BETWEEN_MOST);
                p->term = st.term;
                p->seen = w->now;
                if (p->overtaken > p->bound)
                        fail(w,
                             "%s at replica %u, which leads term %llu, waits for %.1f s, "
                             "though "
                             "writes that came later are done",
                             p->what, at + 1, (unsigned long long) st.term,
                             (double) (w->now - p->came) / 1e9);
        }
}

nsec_t well_for(const struct world *w)
{
        return calm_for(w) - PROMPT_CALM(w);
}

void prompts_check(struct world *w)
{
        nsec_t well = well_for(w);
        struct prompt *p;

        LIST_FOREACH (p, &waiting, next) {
                const struct replica_node *n = &w->r[p->to];
                nsec_t since, most = PROMPT_CALM(w);

                if (!n->up || p->life != n->life)
                        continue;
                p->ran += n->paused ? 0 : CLOCK_STEP;
                if (p->most > 0 && p->ran > p->most + TIMEOUT_LATE)
                        fail(w, "%s at replica %u has no answer after %.2f s", p->what,
                             p->to + 1, (double) (w->now - p->came) / 1e9);
                if (well <= 0)
                        continue;
                if (p->excused && p->excused(p))
                        p->freed = w->now;
                since = w->now - max_of(p->came, p->freed);
                if (!p->lasts && since < well)
                        most = PROMPT_WELL;
                if (since <= most)
                        continue;
                fail(w, "%s at replica %u waits for %.2f s, though all was well for %.1f s",
                     p->what, p->to + 1, (double) since / 1e9, (double) calm_for(w) / 1e9);
        }
}
