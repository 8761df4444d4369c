/* libraft itself: no other file reads or writes struct raft. Where libraft lacks something, or
 * gets it wrong for us, the work-around is here if possible, and is marked [libraft]. The same
 * mark in another file explains why that file deviates. */
#include "base/probe.h"
#include "consensus/internal.h"

#define INFLIGHT_MAX 128

/* Some of its functions take a pointer that is not const, but do not write to it. */
static struct raft *raft_of(const struct replica *r)
{
        return (struct raft *) (uintptr_t) &r->raft;
}

static raft_time to_raft(struct boot_time t)
{
        return (raft_time) (t.ns / NSEC_PER_MSEC);
}

int libraft_begin(struct replica *r)
{
        const struct replica_config *cfg = &r->cfg;

        if (raft_init(&r->raft, NULL, NULL, cfg->id, r->address) != 0)
                return -ENOMEM;
        r->raft_up = true;
        /* [libraft] With a tracer, which raft_init() sets, several messages are formatted in
         * each step, and are discarded unless LIBRAFT_TRACE is set. */
        r->raft.tracer = NULL;
        raft_seed(&r->raft, (unsigned) cfg->seed);
        raft_set_election_timeout(&r->raft, (unsigned) (cfg->election / NSEC_PER_MSEC));
        raft_set_heartbeat_timeout(&r->raft, (unsigned) (cfg->heartbeat / NSEC_PER_MSEC));
        raft_set_pre_vote(&r->raft, true);
        raft_set_max_inflight_entries(&r->raft, INFLIGHT_MAX);
        /* [libraft] Raft notices that a replica did not install a snapshot only as long as we
         * take no newer one; after that it waits for this timeout. Asking more often is
         * harmless: see sending_asked(). */
        raft_set_install_snapshot_timeout(&r->raft, (unsigned) (cfg->election / NSEC_PER_MSEC));
        return 0;
}

void libraft_end(struct replica *r)
{
        if (r->raft_up)
                raft_close(&r->raft, NULL);
        r->raft_up = false;
}

/* ---- its term, leader and log ---- */

bool replica_leads(const struct replica *r)
{
        return raft_state(raft_of(r)) == RAFT_LEADER;
}

bool libraft_follows(const struct replica *r)
{
        return raft_state(raft_of(r)) == RAFT_FOLLOWER;
}

uint64_t replica_leader(const struct replica *r)
{
        const char *address;
        raft_id id;

        raft_leader(raft_of(r), &id, &address);
        return id;
}

uint64_t replica_term(const struct replica *r)
{
        return raft_current_term(&r->raft);
}

uint64_t libraft_vote(const struct replica *r)
{
        return raft_voted_for(&r->raft);
}

uint64_t libraft_commit(const struct replica *r)
{
        return raft_commit_index(&r->raft);
}

uint64_t libraft_stored(const struct replica *r)
{
        return r->raft.last_stored;
}

bool libraft_match(const struct replica *r, uint64_t id, uint64_t *ret)
{
        raft_index match;

        if (raft_match_index(raft_of(r), id, &match) != 0)
                return false;
        *ret = match;
        return true;
}

uint64_t replica_transferee(const struct replica *r)
{
        return raft_transferee(raft_of(r));
}

struct boot_time libraft_timeout(const struct replica *r)
{
        return (struct boot_time){(nsec_t) raft_timeout(raft_of(r)) * NSEC_PER_MSEC};
}

bool libraft_is_due(const struct replica *r)
{
        return raft_timeout(raft_of(r)) <= to_raft(r->now);
}

const struct raft_configuration *replica_conf(const struct replica *r)
{
        return &r->raft.configuration;
}

uint64_t libraft_uncommitted(const struct replica *r)
{
        return r->raft.configuration_uncommitted_index;
}

uint64_t libraft_committed(const struct replica *r, const struct raft_configuration **ret)
{
        if (ret)
                *ret = libraft_uncommitted(r) != 0 ? &r->raft.configuration_committed
                                                   : &r->raft.configuration;
        return r->raft.configuration_committed_index;
}

/* ---- its leader, and its election timer ---- */

void libraft_forget_leader(struct replica *r)
{
        raft_free(r->raft.follower_state.current_leader.address);
        r->raft.follower_state.current_leader.address = NULL;
        r->raft.follower_state.current_leader.id = 0;
}

void libraft_stand(struct replica *r, nsec_t wait)
{
        r->raft.election_timer_start = to_raft(r->now) -
                                       r->raft.follower_state.randomized_election_timeout +
                                       (raft_time) (wait / NSEC_PER_MSEC);
}

void libraft_wait(struct replica *r)
{
        r->raft.election_timer_start = to_raft(r->now);
}

void libraft_abstain(struct replica *r, uint64_t term)
{
        if (term > replica_term(r))
                libraft_forget_leader(r);
        r->raft.current_term = term;
        r->raft.voted_for = r->cfg.id;
}

/* ---- steps ---- */

/* [libraft] A replica that does not know that it is a voter refuses to vote. But it may have
 * become one, and the cluster may need its vote before it can learn of that; the candidate
 * decides which votes count (Raft thesis, 4.2.2). For this event the replica becomes the only
 * voter of its configuration. Returns true if take_back() has to undo that. */
static bool lend_vote(struct replica *r, const struct raft_event *ev,
                      struct raft_configuration *ret_own)
{
        if (ev->type != RAFT_RECEIVE || ev->receive.message->type != RAFT_REQUEST_VOTE ||
            replica_votes(r))
                return false;
        PROBE("a replica that is not a voter lends its vote");
        *ret_own = r->raft.configuration;
        raft_configuration_init(&r->raft.configuration);
        if (raft_configuration_add(&r->raft.configuration, r->cfg.id, "", RAFT_VOTER) == 0)
                return true;
        r->raft.configuration = *ret_own;
        return false;
}

static void take_back(struct replica *r, const struct raft_configuration *own)
{
        raft_configuration_close(&r->raft.configuration);
        r->raft.configuration = *own;
}

/* [libraft] A leader keeps what it knows of each member's log in the order of the members, and
 * sorts that anew only if a change makes them more or fewer. So a new member at the place of
 * another one would inherit what that one had acknowledged. For this event the members before
 * the change have one more, of which nothing is known. Returns true if remove_nobody() has to
 * undo that, should raft refuse the event. */
static bool add_nobody(struct replica *r, const struct raft_event *ev)
{
        const struct raft_entry *e = ev->type == RAFT_SUBMIT ? ev->submit.entries : NULL;
        struct raft_configuration c;
        bool added = false;

        if (!e || e->type != RAFT_CHANGE ||
            message_decode_conf((struct view){e->buf.base, e->buf.len}, &c) < 0)
                return false;
        for (unsigned i = 0; i < c.n && c.n == replica_conf(r)->n && !added; i++)
                added = replica_position(r, c.servers[i].id) < 0;
        raft_configuration_close(&c);
        return added && raft_configuration_add(&r->raft.configuration, LIBRAFT_NOBODY, "",
                                               RAFT_SPARE) == 0;
}

static void remove_nobody(struct replica *r)
{
        struct raft_configuration *c = &r->raft.configuration;

        raft_free(c->servers[--c->n].address);
}

/* [libraft] At a timeout it considers each follower unreachable that has sent nothing since the
 * last quorum check, even if that check was a moment ago and the follower has been sent nothing
 * since. Until such a follower acknowledges another entry, it is sent one message per heartbeat
 * interval, and writes wait for that message. So we let each check look back as far as a leader
 * may go without a quorum. */
static void look_back(struct replica *r)
{
        struct boot_time since = {r->now.ns - r->cfg.election};

        r->raft.election_timer_start =
                min_of(r->raft.election_timer_start, to_raft(boot_max(since, r->led_at)));
}

/* [libraft] A follower whose term ends because a candidate may disrupt its leader still takes
 * that leader for the one of the new term. What was proposed before the new leader's first
 * message would be sent to the old one, and again only after a while. */
static void leave_leader(struct replica *r, const struct raft_event *ev, uint64_t term)
{
        if (ev->type != RAFT_RECEIVE || ev->receive.message->type != RAFT_REQUEST_VOTE ||
            replica_term(r) == term || !libraft_follows(r))
                return;
        PROBE_IF(replica_leader(r) != 0, "a follower votes while it has a leader");
        libraft_forget_leader(r);
}

int libraft_step(struct replica *r, struct raft_event *ev, struct raft_update *ret)
{
        uint64_t term = replica_term(r);
        struct raft_configuration own;
        bool lent, added;
        int k;

        *ret = (struct raft_update){0};
        ev->time = to_raft(r->now);
        if (ev->type == RAFT_TIMEOUT && replica_leads(r))
                look_back(r);
        ev->capacity = UINT16_MAX;
        lent = lend_vote(r, ev, &own);
        added = add_nobody(r, ev);
        k = raft_step(&r->raft, ev, ret);
        if (lent)
                take_back(r, &own);
        if (added && k != 0)
                remove_nobody(r);
        leave_leader(r, ev, term);
        return k;
}

const char *libraft_why(const struct replica *r, int k)
{
        const char *why = raft_errmsg(raft_of(r));

        return *why ? why : raft_strerror(k);
}

/* ---- messages ---- */

/* Whether a message claims that another member leads in our own term, which is impossible. */
static bool usurps(const struct replica *r, uint64_t term)
{
        return replica_leads(r) && term == replica_term(r);
}

bool libraft_takes(const struct replica *r, uint64_t peer, const struct raft_message *m)
{
        uint64_t match;

        switch (m->type) {
        case RAFT_REQUEST_VOTE_RESULT:
                /* [libraft] If we are not a candidate, it counts the vote in the wrong member
                 * of a union. */
                return raft_state(raft_of(r)) == RAFT_CANDIDATE;
        case RAFT_REQUEST_VOTE:
                PROBE_IF(!directories_may_vote(r, peer), "a founding replica does not vote");
                return directories_may_vote(r, peer);
        case RAFT_TIMEOUT_NOW:
                return directories_may_stand(r);
        case RAFT_APPEND_ENTRIES:
                /* [libraft] It would handle the message as a follower, with our leader's
                 * progress in that union. */
                return !usurps(r, m->append_entries.term);
        case RAFT_APPEND_ENTRIES_RESULT:
                /* [libraft] A late rejection of entries that have since been accepted breaks an
                 * invariant; but a rejection with another term shows that we no longer lead. */
                if (m->append_entries_result.term > replica_term(r))
                        return true;
                /* [libraft] It would clamp the index to our last entry, and so mistake an
                 * answer about another log for an acknowledgement of ours. */
                PROBE_IF(m->append_entries_result.rejected == 0 &&
                                 m->append_entries_result.last_log_index > log_last(&r->log),
                         "an answer acknowledges entries that the leader does not have");
                if (m->append_entries_result.rejected == 0)
                        return m->append_entries_result.last_log_index <= log_last(&r->log);
                return !libraft_match(r, peer, &match) ||
                       m->append_entries_result.rejected > match;
        case RAFT_INSTALL_SNAPSHOT:
                /* [libraft] A second snapshot while the first is being installed leaks
                 * memory. */
                return r->taking.state == SNAPSHOT_IDLE && !usurps(r, m->install_snapshot.term);
        default:
                return true;
        }
}

/* [libraft] Of the entries in a snapshot, raft knows the terms of the last one and of those
 * still in the log; so it rejects entries that follow any other one. */
void libraft_skip_compacted(const struct replica *r, struct raft_append_entries *p)
{
        uint64_t skip;

        if (r->compacted.index == 0 || p->prev_log_index >= r->log.first ||
            p->prev_log_index >= r->compacted.index)
                return;
        PROBE_IF(p->prev_log_index + 1 == r->log.first,
                 "entries come after the last one that the log has dropped");
        PROBE("entries come that a snapshot has already");
        skip = r->compacted.index - p->prev_log_index;
        if (skip >= p->n_entries) {
                message_drop_entries(p);
        } else {
                memmove(p->entries, p->entries + skip,
                        (p->n_entries - skip) * sizeof(*p->entries));
                p->n_entries -= (unsigned) skip;
        }
        p->prev_log_index = r->compacted.index;
        p->prev_log_term = r->compacted.term;
}

void libraft_mend(const struct replica *r, struct raft_message *m, bool older)
{
        if (m->type == RAFT_APPEND_ENTRIES_RESULT && older) {
                PROBE("entries of an older term are answered");
                /* [libraft] Such a refusal says nothing about our log: as our last entry it
                 * reports garbage from the stack, and it looks like an acceptance if the
                 * entries began at the first one. A sender that leads our term by now must not
                 * believe either (I5). */
                m->append_entries_result.rejected =
                        max_of(m->append_entries_result.rejected, (raft_index) 1);
                m->append_entries_result.last_log_index = log_last(&r->log);
        }
        if (m->type == RAFT_REQUEST_VOTE_RESULT && m->request_vote_result.pre_vote &&
            !m->request_vote_result.vote_granted)
                /* [libraft] A refused pre-vote must carry the higher term, or nobody is ever
                 * elected. */
                m->request_vote_result.term =
                        max_of(m->request_vote_result.term, replica_term(r));
}

bool libraft_is_premature(struct replica *r, const struct raft_message *m)
{
        uint64_t match;

        if (m->type != RAFT_TIMEOUT_NOW ||
            (libraft_match(r, m->server_id, &match) && match == m->timeout_now.last_log_index))
                return false;
        PROBE("the next leader acknowledges some entries and lacks others");
        r->raft.leader_state.transferring = false;
        return true;
}

/* ---- its configurations ---- */

int libraft_conf_copy(const struct raft_configuration *c, struct raft_configuration *ret)
{
        struct raft_buffer b;
        int k;

        if (raft_configuration_encode(c, &b) != 0)
                return -ENOMEM;
        k = raft_configuration_decode(&b, ret);
        raft_free(b.base);
        return k == 0 ? 0 : -ENOMEM;
}

int libraft_conf_at(const struct replica *r, uint64_t index, struct raft_configuration *ret)
{
        const struct log_entry *e = log_get(&r->log, index);

        return message_decode_conf((struct view){e->data, e->len}, ret);
}

/* [libraft] A follower assumes that the configuration in a message came with the message's
 * first entry (replicationAppend() passes that index), and remembers only the last one. So we
 * set the true index here, before anything is cut off or applied according to it. The
 * configuration before it is committed, because changes are made one at a time. */
void libraft_conf_appended(struct replica *r, uint64_t first)
{
        uint64_t at = log_find(&r->log, RAFT_CHANGE, first, log_last(&r->log)), before;
        struct raft_configuration c;

        if (at == 0)
                return;
        r->raft.configuration_uncommitted_index = at;
        before = log_find(&r->log, RAFT_CHANGE, r->raft.configuration_committed_index + 1,
                          at - 1);
        if (before == 0)
                return;
        PROBE("a change of members shows that the one before it is committed");
        if (libraft_conf_at(r, before, &c) < 0)
                return replica_fatal(r, "a configuration in the log does not parse");
        raft_configuration_close(&r->raft.configuration_committed);
        r->raft.configuration_committed = c;
        r->raft.configuration_committed_index = before;
}

void libraft_conf_applied(struct replica *r, uint64_t index)
{
        struct raft_event ev = {.type = RAFT_CONFIGURATION, .configuration.index = index};

        if (libraft_uncommitted(r) != index)
                return;
        if (libraft_conf_at(r, index, &ev.configuration.conf) < 0)
                return replica_fatal(r, "a committed configuration does not parse");
        replica_step(r, &ev);
}
