/* Reads that wait until the local state is recent enough to be linearizable. */
#include "base/probe.h"
#include "core/internal.h"

static enum pot pot_of(const struct core_read *rd)
{
        return requester_is_core(rd->by) ? POT_OWN_READS : POT_READS;
}

void core_read_cancel(struct core *c, struct core_read *rd)
{
        core_timeout_stop(c, &rd->timeout);
        TAILQ_REMOVE(&c->reads, rd, next);
        shares_give(&c->shares, pot_of(rd), rd->by, 1);
}

void core_read_finish(struct core *c, struct core_read *rd, struct status st)
{
        core_read_cancel(c, rd);
        c->caught_up = c->caught_up || st.code == RPC_OK;
        c->counts.reads_failed += st.code != RPC_OK;
        rd->done(rd, st);
}

static void timed_out(struct core *c, struct core_timeout *t)
{
        core_read_finish(c, container_of(t, struct core_read, timeout), core_timeout_status(c));
}

void core_read(struct core *c, struct core_read *rd, nsec_t timeout)
{
        if (!shares_take(&c->shares, pot_of(rd), rd->by, 1))
                return rd->done(rd, status_too_many);
        rd->id = ++c->next_read;
        core_timeout_start(c, &rd->timeout, timeout, timed_out);
        TAILQ_INSERT_TAIL(&c->reads, rd, next);
        replica_read(c->replica, rd->id);
}

bool core_caught_up(const struct core *c)
{
        return c->caught_up;
}

/* Forgets the confirmations of reads that have ended. */
static void forget(struct core *c)
{
        const struct core_read *rd = TAILQ_FIRST(&c->reads);
        unsigned n = 0;

        while (n < c->n_confirmed && (!rd || c->confirmed[n].upto < rd->id))
                n++;
        if (n == 0)
                return;
        c->n_confirmed -= n;
        memmove(c->confirmed, c->confirmed + n, c->n_confirmed * sizeof(*c->confirmed));
}

/* The confirmation with which the first read can be served now, or NULL. */
static const struct confirmed *servable(struct core *c)
{
        forget(c);
        return c->n_confirmed > 0 && c->confirmed->index <= c->served && !c->part.on
                       ? c->confirmed
                       : NULL;
}

bool core_reads_ready(struct core *c)
{
        return servable(c) != NULL;
}

/* Serves as many as one turn allows: one confirmation may be for 100,000 reads. */
void core_reads_serve(struct core *c, uint64_t applied)
{
        const struct confirmed *f;

        c->served = applied;
        while (c->reads_left > 0 && (f = servable(c))) {
                struct core_read *rd = TAILQ_FIRST(&c->reads);

                rd->at = f->at;
                c->reads_left--;
                core_read_finish(c, rd, status_ok);
        }
}

void core_reads_at(void *u, uint64_t id, uint64_t index, struct lease_time at)
{
        struct core *c = u;

        forget(c);
        /* Reads are served in order: none overtakes one that waits for a later entry. */
        if (c->n_confirmed > 0)
                index = max_of(index, c->confirmed[c->n_confirmed - 1].index);
        c->n_confirmed -= c->n_confirmed == CONFIRMED_MAX; /* its reads wait for @index */
        c->confirmed[c->n_confirmed++] = (struct confirmed){id, index, at};
        if (!c->part.on)
                core_reads_serve(c, replica_applied(c->replica));
}

static void on_first(struct core_read *rd, struct status st)
{
        (void) st;
        rd->done = NULL;
}

/* The first read waits until we have caught up with the others. If no client reads, we start
 * one ourselves: otherwise, once the others are lost, we could not vouch for our state, however
 * long we had run beside them. */
void core_reads_catch_up(struct core *c)
{
        if (c->caught_up || c->first.done || core_status(c).leader_id == 0)
                return;
        c->first.done = on_first;
        core_read(c, &c->first, 0);
}

void core_read_stop_first(struct core *c)
{
        struct core_read *rd = TAILQ_FIRST(&c->reads);

        if (rd)
                core_read_finish(c, rd, status_stopped);
}
