/* Reads that wait until the local state is recent enough to be linearizable. */
#include "base/probe.h"
#include "core/internal.h"

#define READS_MAX 100000 /* waiting reads; beyond this: too many requests */

static int read_cmp(const struct core_read *a, const struct core_read *b)
{
        return a->id < b->id ? -1 : a->id > b->id;
}

TREE_GENERATE(core_reads, core_read, by_id, read_cmp)

static void read_remove(struct core *c, struct core_read *rd)
{
        RB_REMOVE(core_reads, &c->reads, rd);
        if (rd->index > 0)
                TAILQ_REMOVE(&c->confirmed, rd, by_index);
        c->n_reads--;
}

void core_read_finish(struct core *c, struct core_read *rd, struct status st)
{
        read_remove(c, rd);
        c->caught_up = c->caught_up || st.code == RPC_OK;
        c->reads_dropped = c->reads_dropped || st.code != RPC_OK;
        c->counts.reads_failed += st.code != RPC_OK;
        rd->done(rd, st);
}

bool core_reads_full(const struct core *c)
{
        return c->n_reads >= READS_MAX;
}

void core_read(struct core *c, struct core_read *rd, nsec_t timeout)
{
        if (core_reads_full(c))
                return rd->done(rd, status_too_many);
        c->n_reads++;
        rd->id = ++c->next_read;
        rd->index = 0;
        rd->deadline = boot_add(c->now,
                                timeout > 0 ? min_of(timeout, c->cfg.timeout) : c->cfg.timeout);
        RB_INSERT(core_reads, &c->reads, rd);
        replica_read(c->replica, rd->id);
}

bool core_caught_up(const struct core *c)
{
        return c->caught_up;
}

void core_read_cancel(struct core *c, struct core_read *rd)
{
        read_remove(c, rd);
        c->reads_dropped = true;
}

static bool is_wanted(uint64_t id, void *arg)
{
        struct core *c = arg;

        return RB_FIND(core_reads, &c->reads, &(struct core_read){.id = id}) != NULL;
}

/* Serves as many as one turn allows: one confirmation may be for 100,000 reads. */
static void serve_some(struct core *c)
{
        struct core_read *rd;

        while ((rd = TAILQ_FIRST(&c->confirmed)) && rd->index <= c->served && !c->part.on &&
               c->reads_left > 0) {
                c->reads_left--;
                core_read_finish(c, rd, status_ok);
        }
}

void core_reads_serve(struct core *c, uint64_t applied)
{
        c->served = applied;
        serve_some(c);
}

void core_reads_at(void *u, uint64_t id, uint64_t index, struct lease_time at)
{
        struct core *c = u;
        struct core_read key = {.id = id}, *rd = RB_FIND(core_reads, &c->reads, &key), *before;

        if (!rd || rd->index > 0)
                return; /* it timed out, was canceled, or was answered before */
        rd->index = max_of(index, (uint64_t) 1);
        rd->at = at;
        before = TAILQ_LAST(&c->confirmed, core_confirmed);
        while (before && before->index > rd->index) {
                PROBE("reads are confirmed out of order");
                before = TAILQ_PREV(before, core_confirmed, by_index);
        }
        if (before)
                TAILQ_INSERT_AFTER(&c->confirmed, before, rd, by_index);
        else
                TAILQ_INSERT_HEAD(&c->confirmed, rd, by_index);
        if (!c->part.on)
                core_reads_serve(c, replica_applied(c->replica));
}

static void on_first(struct core_read *rd, struct status st)
{
        (void) st;
        rd->done = NULL;
}

/* The first read waits until we have caught up with the others. If no client reads, we do it
 * ourselves: otherwise, once the others are lost, we could not vouch for anything, however long
 * we had run beside them. */
void core_reads_catch_up(struct core *c)
{
        if (c->caught_up || c->first.done || core_status(c).leader_id == 0)
                return;
        c->first.done = on_first;
        core_read(c, &c->first, 0);
}

void core_read_stop_first(struct core *c)
{
        struct core_read *rd = RB_MIN(core_reads, &c->reads);

        if (rd)
                core_read_finish(c, rd, status_stopped);
}

void core_reads_time_out(struct core *c, size_t *left)
{
        struct core_read *rd, *rd_next;

        for (rd = RB_MIN(core_reads, &c->reads); rd && *left > 0; rd = rd_next) {
                rd_next = RB_NEXT(core_reads, &c->reads, rd);
                if (boot_before(c->now, rd->deadline))
                        continue;
                (*left)--;
                core_read_finish(c, rd,
                                 core_status(c).leader_id ? status_timeout : status_no_leader);
        }
        /* Without a leader no read is answered, and clients retry. */
        if (c->reads_dropped && c->replica)
                replica_drop_reads(c->replica, is_wanted, c);
        c->reads_dropped = false;
}
