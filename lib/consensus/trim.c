/*
 * How much of the log stays in memory. Beyond a number of bytes its oldest applied entries are
 * dropped, without a snapshot of our own: a replica that lacks them is sent the current state.
 * A snapshot of the applied entries is reported to raft as if there were one.
 */
#include "base/probe.h"
#include "consensus/internal.h"

/* While a snapshot is on its way the log may hold this many times more; or as many bytes as the
 * snapshot, if that is more. */
#define SENDING_TIMES 4

int trim_remember(struct replica *r, const struct raft_snapshot_metadata *m)
{
        struct raft_configuration c;

        if (libraft_conf_copy(&m->configuration, &c) < 0)
                return -ENOMEM;
        raft_configuration_close(&r->compacted.conf);
        r->compacted = (struct compacted){m->index, m->term, c, m->configuration_index};
        return 0;
}

/* A replica that has just started may already know that a later change is committed, but the
 * change may be applied only after this snapshot. */
int trim_metadata(const struct replica *r, uint64_t index, struct raft_snapshot_metadata *ret)
{
        const struct raft_configuration *conf;
        uint64_t at = libraft_committed(r, &conf);

        *ret = (struct raft_snapshot_metadata){
                .index = index, .term = replica_term_of(r, index), .configuration_index = at};
        if (at <= index)
                return libraft_conf_copy(conf, &ret->configuration);
        at = log_find(&r->log, RAFT_CHANGE, r->compacted.index + 1, index);
        ret->configuration_index = at != 0 ? at : r->compacted.conf_index;
        if (at == 0) {
                PROBE("a snapshot has older members than those known to be committed");
                return libraft_conf_copy(&r->compacted.conf, &ret->configuration);
        }
        PROBE("a snapshot is taken between two changes of members");
        return libraft_conf_at(r, at, &ret->configuration);
}

void trim_to(struct replica *r, struct raft_snapshot_metadata *m, uint64_t trailing)
{
        struct raft_event ev = {.type = RAFT_SNAPSHOT};

        if (!r->dead && trim_remember(r, m) < 0)
                replica_fatal(r, "out of memory");
        if (r->dead)
                return raft_configuration_close(&m->configuration);
        ev.snapshot.metadata = *m;
        ev.snapshot.trailing = (unsigned) trailing;
        replica_step(r, &ev);
        if (m->index > trailing)
                log_trim(&r->log, m->index - trailing);
}

/* While a snapshot is on its way, the log keeps at least as many bytes after it as the snapshot
 * itself has: a larger one takes longer to send. */
static size_t sending_bytes(const struct replica *r, size_t keep)
{
        return max_of(SENDING_TIMES * keep, sending_largest(r));
}

/* The entries after a snapshot that is being taken or sent are needed once it is installed, and
 * until the replica has caught up. */
static uint64_t needed_behind(const struct replica *r)
{
        uint64_t index = sending_needed(r);

        return taking_is_on(r) ? min_of(index, (uint64_t) r->taking.pending.index) : index;
}

bool trim_keeps(const struct replica *r, uint64_t index)
{
        return log_bytes(&r->log, index + 1, log_last(&r->log)) <= r->cfg.log_bytes;
}

bool trim_log_is_full(const struct replica *r)
{
        return log_bytes(&r->log, r->applied + 1, r->committed) > r->cfg.log_bytes;
}

void trim_run(struct replica *r)
{
        size_t keep = r->cfg.log_bytes;
        bool waits = r->log.bytes <= sending_bytes(r, keep);
        uint64_t index = min_of(r->applied, libraft_stored(r)), first = r->log.first, upto;
        struct raft_snapshot_metadata m;

        if (waits)
                index = min_of(index, sending_oldest(r));
        /* Drops a quarter at a time. */
        if (r->log.bytes <= keep + keep / 4 || r->taking.state == SNAPSHOT_INSTALLING ||
            r->dead || !directories_begun(r) || index <= r->compacted.index ||
            replica_term_of(r, index) == 0 || libraft_committed(r, NULL) > index)
                return;
        upto = waits ? min_of(index - 1, needed_behind(r)) : index - 1;
        while (first <= upto && log_bytes(&r->log, first, log_last(&r->log)) > keep)
                first++;
        if (first == r->log.first)
                return;
        PROBE_IF(!waits && sending_needed(r) != UINT64_MAX,
                 "the log drops entries that a snapshot on its way needs");
        if (trim_metadata(r, index, &m) < 0)
                return replica_fatal(r, "out of memory");
        trim_to(r, &m, index - (first - 1));
}
