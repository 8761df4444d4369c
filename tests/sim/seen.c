/*
 * Observes coincidences, and what a replica that crashed had promised, from outside: by its
 * frames, its files and its status.
 *
 * Of a replica's internals, only these are read: the term of an entry in its log, what it
 * considers durable, and whether a snapshot or a change of members is under way.
 */
#include "consensus/internal.h"
#include "world.h"

/* Until an entry is committed, and until a follower knows, while all is well. It is told with
 * the next entry, or when that is committed, too. */
#define COMMIT_MOST ((W->linked ? 50 : 30) * MSEC) /* TCP may split what is sent */
#define KNOWN_MOST ((W->linked ? 60 : 40) * MSEC)

#define RIGHT_AFTER (5 * MSEC)

struct standing {
        uint64_t last, last_term;
        bool in_flight;
};

static struct standing standing; /* before the present frame */

static bool is_installing(const struct replica *r)
{
        return r->taking.state == SNAPSHOT_INSTALLING ||
               r->incoming.state == INCOMING_LOADING ||
               (r->incoming.state == INCOMING_PARTS && r->incoming.have > 0);
}

bool seen_loading(const struct replica_node *n)
{
        return n->node.replica && n->node.replica->incoming.state == INCOMING_LOADING;
}

static bool is_changing(const struct replica *r)
{
        return r->raft.configuration_uncommitted_index > 0;
}

/* ---- truncation ---- */

void seen_frame_before(struct replica_node *n)
{
        const struct replica *r = n->node.replica;

        standing.last = log_last(&r->log);
        standing.last_term = replica_term_of(r, standing.last);
        standing.in_flight = r->taking.state != SNAPSHOT_INSTALLING &&
                             r->raft.last_stored < standing.last &&
                             sim_disk_busy_at(n->disk, DISK_LOG);
}

void seen_frame_after(struct world *w, struct replica_node *n)
{
        const struct replica *r = n->node.replica;

        if (!standing.in_flight || r->taking.state == SNAPSHOT_INSTALLING ||
            replica_term_of(r, standing.last) == standing.last_term)
                return;
        w->met.truncated_in_flight++;
        aim_at(w, AT_TRUNCATED, n);
}

/* ---- frames that it sends ---- */

static uint64_t number(struct view *v)
{
        uint64_t n = 0;

        (void) !view_u64(v, &n);
        return n;
}

static void seen_result(struct world *w, struct replica_node *n, struct view v)
{
        uint64_t rejected, last;

        number(&v); /* the term */
        rejected = number(&v);
        last = number(&v);
        if (rejected != 0 || replica_term_of(n->node.replica, last) == 0)
                return;
        if (last != n->seen.acked) {
                n->seen.acked_at = w->now;
                aim_at(w, AT_ACKED, n);
        }
        n->seen.acked = last;
        n->seen.acked_term = replica_term_of(n->node.replica, last);
}

static void seen_vote(struct world *w, struct replica_node *n, uint64_t to, struct view v)
{
        uint64_t term = number(&v);
        uint8_t granted = 0, pre = 0;

        (void) !view_u8(&v, &granted);
        (void) !view_u8(&v, &pre);
        if (!granted || pre)
                return;
        if (n->seen.voted_term == term && n->seen.voted_for != to)
                fail(w, "replica %u voted for %u and for %u in term %llu", n->i + 1,
                     (unsigned) n->seen.voted_for, (unsigned) to, (unsigned long long) term);
        n->seen.voted_term = term;
        n->seen.voted_for = to;
        aim_at(w, AT_VOTED, n);
}

void seen_frame_out(struct world *w, struct replica_node *n, uint64_t to, struct view frame,
                    bool lost)
{
        struct view v = {frame.p + 2, frame.len - 2};

        if (frame.p[0] == FRAME_PROPOSE) {
                w->met.lost_proposal += lost;
                return aim_at(w, AT_FORWARD, n);
        }
        if (frame.p[0] != FRAME_RAFT || !n->node.replica || frame.len < 2)
                return;
        switch (frame.p[1]) {
        case RAFT_APPEND_ENTRIES:
                if (frame.len > 2 + 4 * sizeof(uint64_t) + sizeof(uint32_t))
                        aim_at(w, AT_APPEND, n);
                break;
        case RAFT_APPEND_ENTRIES_RESULT:
                return seen_result(w, n, v);
        case RAFT_REQUEST_VOTE_RESULT:
                return seen_vote(w, n, to, v);
        case RAFT_TIMEOUT_NOW:
                n->seen.hands_over = true;
                aim_at(w, AT_HANDING, n);
        }
}

/* ---- its files ---- */

void seen_file(struct world *w, struct replica_node *n, const char *name)
{
        if (strncmp(name, "log-", 4) != 0)
                return;
        n->seen.segment_at = w->now;
        w->met.spare_aside += sim_disk_busy_at(n->disk, DISK_ASIDE);
        aim_at(w, AT_SEGMENT, n);
}

/* ---- its status ---- */

/* A replica is ready to lead a new term. */
static void seen_term(struct world *w, struct replica_node *leader)
{
        w->top_term = leader->seen.term;
        for (unsigned i = 0; i < w->n_replicas; i++) {
                const struct replica_node *n = &w->r[i];

                if (!n->up)
                        continue;
                w->met.stalled_term += n->stalled_until > w->now;
                w->met.full_election += n->full;
                w->met.change_election += is_changing(n->node.replica);
                w->met.two_leaders += n->seen.leads && n->seen.term < w->top_term && !n->paused;
                w->met.slept_term += n->seen.leads && n->seen.term < w->top_term && n->paused;
        }
}

/* The leader has removed it, and it has not heard of that, or ignores it. */
static bool is_removed(struct world *w, const struct replica_node *n)
{
        struct replica_node *leader = the_leader(w);
        int role[REPLICAS_MAX];

        if (!leader || leader == n)
                return false;
        (void) roles_of(leader, role);
        return role[n->i] == 0;
}

static void seen_snapshots(struct world *w, struct replica_node *n)
{
        const struct replica *r = n->node.replica;
        struct seen *s = &n->seen;
        bool installing = is_installing(r), saving = taking_is_on(r);

        if (installing && !s->installing) {
                s->install_term = s->term;
                aim_at(w, AT_INSTALL, n);
        }
        if (saving && !s->saving) {
                s->save_term = s->term;
                aim_at(w, AT_SAVING, n);
        }
        if (installing && s->install_term != s->term) {
                w->met.install_election++;
                s->install_term = s->term;
        }
        if (saving && s->save_term != s->term) {
                w->met.save_election++;
                s->save_term = s->term;
        }
        w->met.install_full += installing && n->full && !s->install_full;
        s->install_full = installing && n->full;
        s->installing = installing;
        s->saving = saving;
}

static void waits(struct world *w, const struct replica_node *n, nsec_t since, nsec_t most,
                  const char *what)
{
        if (since > 0 && w->now - since > most && well_for(w) > 0)
                fail(w, "entry %llu of replica %u %s for %.0f ms, though all is well",
                     (unsigned long long) n->seen.commit + 1, n->i + 1, what,
                     (double) (w->now - since) / 1e6);
}

/* Once all has been well for a while, an entry waits for a round trip and two disks, and then
 * for its way to the followers, but for nothing that happens once in a heartbeat interval. */
static void seen_commit(struct world *w, struct replica_node *n,
                        const struct replica_status *st)
{
        struct seen *s = &n->seen;
        uint64_t was = s->commit;
        bool moved = st->commit != was;

        waits(w, n, s->waits, COMMIT_MOST, "waits for a majority");
        if (!st->ready || st->commit == st->last)
                s->waits = 0;
        else if (s->waits == 0 || moved)
                s->waits = w->now;
        waits(w, n, s->behind, KNOWN_MOST, "waits to be committed as the leader has done");
        if (st->commit >= s->due)
                s->behind = 0;
        s->commit = st->commit;
        for (unsigned i = 0; st->ready && moved && i < w->n_replicas; i++) {
                struct seen *f = &w->r[i].seen;

                /* One that lagged already may need a snapshot. */
                if (i == n->i || f->commit < was || f->commit >= st->commit || f->behind > 0)
                        continue;
                f->due = st->commit;
                f->behind = w->now;
        }
}

void seen_look(struct world *w, struct replica_node *n)
{
        struct seen *s = &n->seen;
        struct replica_status st;
        bool led;

        if (!n->up)
                return;
        st = core_status(n->node.core);
        led = s->leads;
        s->leads = st.leader;
        if (st.leader)
                check_leads(w, n, st.term);
        if (st.term != s->term) {
                w->met.removed_stands += w->faults.members && is_removed(w, n);
                s->term = st.term;
                s->hands_over = false;
                aim_at(w, AT_TERM, n);
        }
        if (st.ready && !s->ready) {
                if (s->term > w->top_term)
                        seen_term(w, n);
                aim_at(w, AT_LEADING, n);
        }
        s->ready = st.ready;
        if (led && !st.leader)
                s->hands_over = false;
        seen_snapshots(w, n);
        seen_commit(w, n, &st);
        if (is_changing(n->node.replica) && core_status(n->node.core).leader)
                w->changed_at = w->now;
        if (is_changing(n->node.replica))
                aim_at(w, AT_CHANGE, n);
        if (core_state(n->node.core)->kv.compacted > s->compacted) {
                w->met.save_compaction += s->compacted > 0 && s->saving;
                s->compacted = core_state(n->node.core)->kv.compacted;
                aim_at(w, AT_COMPACTED, n);
        }
}

/* ---- a crash, and the state after it ---- */

void seen_crash(struct world *w, struct replica_node *n)
{
        const struct replica *r = n->node.replica;
        struct seen *s = &n->seen;

        w->met.acked_crash += s->acked_at > 0 && w->now - s->acked_at <= RIGHT_AFTER;
        w->met.confirmed_crash +=
                s->confirmed_at > 0 && w->now - s->confirmed_at <= RIGHT_AFTER;
        w->met.segment_crash += s->segment_at > 0 && w->now - s->segment_at <= RIGHT_AFTER;
        w->met.torn_crash += sim_disk_busy(n->disk);
        w->met.both_crash +=
                sim_disk_busy_at(n->disk, DISK_LOG) && sim_disk_busy_at(n->disk, DISK_ASIDE);
        w->met.install_crash += is_installing(r);
        w->met.change_crash += is_changing(r);
        w->met.transfer_crash += s->leads && s->hands_over;
        /* What it has acknowledged, unless a leader has overwritten it meanwhile. */
        s->crashed = true;
        if (replica_term_of(r, s->acked) != s->acked_term)
                s->acked = s->acked_term = 0;
        s->durable = r->taking.state == SNAPSHOT_INSTALLING ? 0 : r->raft.last_stored;
        s->durable_term = replica_term_of(r, s->durable);
}

static bool has(const struct replica *r, uint64_t index, uint64_t term)
{
        return index == 0 || term == 0 || index <= r->compacted.index ||
               replica_term_of(r, index) == term;
}

/* I5: it has what it acknowledged. And it does not vote twice in a term. */
void seen_check(struct world *w, const struct replica_node *n, const struct replica *r)
{
        const struct seen *s = &n->seen;
        uint64_t term = raft_current_term((struct raft *) (uintptr_t) &r->raft),
                 vote = raft_voted_for((struct raft *) (uintptr_t) &r->raft);

        if (s->crashed && !has(r, s->acked, s->acked_term))
                fail(w,
                     "I5: replica %u acknowledged entry %llu of term %llu to a leader, "
                     "crashed, "
                     "and does not have it",
                     n->i + 1, (unsigned long long) s->acked,
                     (unsigned long long) s->acked_term);
        if (s->crashed && !has(r, s->durable, s->durable_term))
                fail(w,
                     "I5: replica %u took entry %llu of term %llu for durable, crashed, and "
                     "does not have it",
                     n->i + 1, (unsigned long long) s->durable,
                     (unsigned long long) s->durable_term);
        if (term < s->voted_term || (term == s->voted_term && vote != s->voted_for))
                fail(w, "replica %u forgot its vote of term %llu", n->i + 1,
                     (unsigned long long) s->voted_term);
}

void seen_start(struct world *w, struct replica_node *n)
{
        struct replica *r = n->node.replica;
        struct seen *s = &n->seen;
        uint64_t term = raft_current_term(&r->raft);

        seen_check(w, n, r);
        w->met.alone_start += w->n_replicas > 1 && replica_votes(r) && replica_voters(r) == 1;
        /* The election in which it voted is still going on. */
        w->met.voted_crash += s->crashed && term == s->voted_term && term > w->top_term;
        *s = (struct seen){.term = term,
                           .voted_term = s->voted_term,
                           .voted_for = s->voted_for,
                           .compacted = core_state(n->node.core)->kv.compacted};
        seen_look(w, n);
}
