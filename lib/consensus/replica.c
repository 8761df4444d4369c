/* One thing: the exchange with raft_step(). Events go in through step(), and the resulting
 * actions are carried out there in the order that libraft requires: term and vote to disk,
 * entries queued, messages sent, commits applied. */
#include "base/probe.h"
#include "consensus/internal.h"

#define ROOM_RETRY NSEC_PER_SEC
#define APPLY_SLICE 16384                /* about 5 ms */
#define SLOW_APPLY (100 * NSEC_PER_MSEC) /* etcd's limit for its count of slow applies */

void replica_fatal(struct replica *r, const char *why)
{
        if (r->dead)
                return;
        r->dead = true;
        r->ops->fatal(r->userdata, why);
}

static raft_time to_raft(struct boot_time t)
{
        return (raft_time) (t.ns / NSEC_PER_MSEC);
}

bool replica_leads(const struct replica *r)
{
        return raft_state((struct raft *) (uintptr_t) &r->raft) == RAFT_LEADER;
}

uint64_t replica_leader(const struct replica *r)
{
        const char *address;
        raft_id id;

        raft_leader((struct raft *) (uintptr_t) &r->raft, &id, &address);
        return id;
}

const struct raft_configuration *replica_conf(const struct replica *r)
{
        return &r->raft.configuration;
}

int replica_position(const struct replica *r, uint64_t id)
{
        for (unsigned i = 0; i < replica_conf(r)->n && i < REPLICA_PEERS_MAX; i++)
                if (replica_conf(r)->servers[i].id == id)
                        return (int) i;
        return -1;
}

unsigned replica_voters(const struct replica *r)
{
        unsigned n = 0;

        for (unsigned i = 0; i < replica_conf(r)->n; i++)
                n += replica_conf(r)->servers[i].role == RAFT_VOTER;
        return n;
}

bool replica_votes(const struct replica *r)
{
        int i = replica_position(r, r->cfg.id);

        return i >= 0 && replica_conf(r)->servers[i].role == RAFT_VOTER;
}

uint64_t replica_term(const struct replica *r)
{
        return raft_current_term(&r->raft);
}

uint64_t replica_applied(const struct replica *r)
{
        return r->applied;
}

bool replica_learns(const struct replica *r)
{
        int i = replica_position(r, r->cfg.id);

        return i >= 0 && replica_conf(r)->servers[i].role != RAFT_VOTER;
}

bool replica_short_of_room(const struct replica *r)
{
        return store_short_of_room(r->store);
}

struct replica_status replica_status(const struct replica *r)
{
        return (struct replica_status){
                .leader = replica_leads(r),
                .learner = replica_learns(r),
                .ready = r->ready,
                .leader_id = replica_leader(r),
                .term = replica_term(r),
                .last = log_last(&r->log),
                .commit = r->committed,
                .applied = r->applied,
                .waits_for_room = store_waits_for_room(r->store),
                .short_of_room = replica_short_of_room(r),
                .log_bytes = r->log.bytes,
                .way = r->time.clock.way,
        };
}

uint64_t replica_disk_bytes(const struct replica *r)
{
        return store_size(r->store);
}

const struct replica_counts *replica_counts(const struct replica *r)
{
        return &r->counts;
}

const struct store_counts *replica_store_counts(const struct replica *r)
{
        return store_counts(r->store);
}

uint64_t replica_lag(const struct replica *r, uint64_t id)
{
        raft_index match;

        if (!replica_leads(r) || id == r->cfg.id || raft_match_index(&r->raft, id, &match) != 0)
                return 0;
        return log_last(&r->log) - min_of(log_last(&r->log), (uint64_t) match);
}

bool replica_installs(const struct replica *r)
{
        return r->snap.installing || r->snap.incoming.loading;
}

bool replica_awaits_snapshot(const struct replica *r)
{
        const struct incoming *c = &r->snap.incoming;

        return c->have > 0 && c->index > r->applied;
}

struct replica_peer_counts *replica_peer_counts(struct replica *r, uint64_t id)
{
        struct replica_peer_counts *c = r->counts.peers, *unused = c;

        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++) {
                if (c[i].id == id)
                        return &c[i];
                if (c[i].id == 0 || replica_position(r, c[i].id) < 0)
                        unused = &c[i];
        }
        *unused = (struct replica_peer_counts){.id = id};
        return unused;
}

struct boot_time replica_now(const struct replica *r)
{
        return r->now;
}

void replica_each_peer(const struct replica *r,
                       void (*fn)(uint64_t id, const char *address, bool voter, void *arg),
                       void *arg)
{
        for (unsigned i = 0; i < replica_conf(r)->n; i++)
                fn(replica_conf(r)->servers[i].id, replica_conf(r)->servers[i].address,
                   replica_conf(r)->servers[i].role == RAFT_VOTER, arg);
}

void replica_send_frame(struct replica *r, uint64_t peer, const struct buf *frame)
{
        int i = replica_position(r, peer);

        if (i >= 0) {
                r->queue.sent_to |= UINT64_C(1) << i;
                replica_peer_counts(r, peer)->sent += buf_len(frame);
        }
        r->ops->send(r->userdata, peer, (struct view){buf_head(frame), buf_len(frame)});
}

void replica_send(struct replica *r, uint64_t peer, enum frame_type type, const uint64_t *v,
                  size_t n)
{
        cleanup_(buf_fini) struct buf f = {0};

        buf_add_u8(&f, (uint8_t) type);
        for (size_t i = 0; i < n; i++)
                buf_add_u64(&f, v[i]);
        if (buf_error(&f) == 0)
                replica_send_frame(r, peer, &f);
}

void replica_send_all(struct replica *r, enum frame_type type, const uint64_t *v, size_t n)
{
        for (unsigned i = 0; i < replica_conf(r)->n; i++)
                if (replica_conf(r)->servers[i].id != r->cfg.id)
                        replica_send(r, replica_conf(r)->servers[i].id, type, v, n);
}

/* An entry of commands begins with the lease time at which the leader appended it. */
struct lease_time replica_stamp(const void *data, size_t len)
{
        return (struct lease_time){len < STAMP ? 0 : (nsec_t) le64_get(data)};
}

void replica_adopt(struct replica *r, uint64_t term)
{
        lease_clock_learn(&r->time.clock, term, r->ops->adopt(r->userdata), r->now);
}

/* ---- raft ---- */

uint64_t replica_term_of(const struct replica *r, uint64_t index)
{
        const struct log_entry *e = log_get(&r->log, index);

        return e ? e->term : index == r->snap.index ? r->snap.term : 0;
}

/* @older: it answers entries of an older term. */
static void send_message(struct replica *r, const struct raft_message *m, bool older)
{
        cleanup_(buf_fini) struct buf f = {0};
        struct raft_message out = *m;
        int e;

        if (m->type == RAFT_APPEND_ENTRIES_RESULT && older) {
                PROBE("entries of an older term are answered");
                /* [libraft] Such a refusal says nothing about our log: as our last entry it has
                 * what was on the stack, and it looks like an acceptance where entries began at
                 * the first one. If the sender leads our term by now, it must take it for
                 * neither (I5). */
                out.append_entries_result.rejected =
                        max_of(m->append_entries_result.rejected, (raft_index) 1);
                out.append_entries_result.last_log_index = log_last(&r->log);
        }

        if (m->type == RAFT_REQUEST_VOTE_RESULT && m->request_vote_result.pre_vote &&
            !m->request_vote_result.vote_granted)
                /* [libraft] A refused pre-vote must carry the higher term, or nobody is ever
                 * elected. */
                out.request_vote_result.term =
                        max_of(m->request_vote_result.term, raft_current_term(&r->raft));
        if (m->type == RAFT_INSTALL_SNAPSHOT)
                return snapshot_asked(r, m->server_id, m->install_snapshot.last_index);
        if (m->type == RAFT_APPEND_ENTRIES)
                return append_wanted(r, m->server_id, m->append_entries.prev_log_index,
                                     m->append_entries.n_entries);
        e = message_encode(&out, NULL, NULL, 0, &f);
        if (e < 0)
                return replica_fatal(r, "out of memory");
        replica_send_frame(r, m->server_id, &f);
}

static void announce(struct replica *r)
{
        struct replica_status s = replica_status(r);

        if (s.leader == r->announced.leader && s.ready == r->announced.ready &&
            s.leader_id == r->announced.leader_id && s.term == r->announced.term)
                return;
        if (s.leader != r->announced.leader || s.leader_id != r->announced.leader_id ||
            s.term != r->announced.term)
                reads_reroute(r);
        if (s.leader_id != 0 && s.leader_id != r->announced.leader_id)
                r->counts.leader_changes++;
        r->announced = s;
        r->ops->changed(r->userdata);
}

static void become_leader(struct replica *r)
{
        struct raft_event ev = {.type = RAFT_SUBMIT};
        struct raft_entry e = {.term = raft_current_term(&r->raft), .type = RAFT_BARRIER};

        /* [libraft] It adds an entry of its own only if the log is longer than the commit
         * index. We always need one, to know that everything committed before is known to be
         * committed (Raft section 8). */
        r->ready = false;
        r->led_at = r->now;
        beacons_begin(r);
        memset(r->sent_commit, 0, sizeof(r->sent_commit));
        queue_term_begins(r);
        e.buf.len = 8;
        e.buf.base = e.batch = raft_calloc(1, 8);
        if (!e.batch)
                return replica_fatal(r, "out of memory");
        ev.submit.entries = &e;
        ev.submit.n = 1;
        r->first_of_term = log_last(&r->log) + 1;
        replica_step(r, &ev);
        beacons_ask(r);
}

static void apply_change(struct replica *r, const struct log_entry *e, uint64_t index)
{
        struct raft_buffer b = {e->data, e->len};
        struct raft_event ev = {.type = RAFT_CONFIGURATION, .configuration.index = index};

        if (r->raft.configuration_uncommitted_index != index)
                return;
        if (raft_configuration_decode(&b, &ev.configuration.conf) != 0)
                return replica_fatal(r, "a committed configuration does not parse");
        replica_step(r, &ev);
}

static bool has_more_to_apply(const struct replica *r)
{
        return r->applied < r->committed && log_get(&r->log, r->applied + 1);
}

/* Another replica may know the command, so to skip it could give two replicas different states
 * (I4). */
static void cannot_apply(struct replica *r, uint64_t index, int k)
{
        char why[256];

        if (k == -ENOTSUP)
                snprintf(why, sizeof(why),
                         "Entry %" PRIu64
                         " of the log has a command that this version does not "
                         "know: start the version that the other members run",
                         index);
        else if (k == -EBADMSG)
                snprintf(why, sizeof(why), "Entry %" PRIu64 " of the log is malformed", index);
        else
                snprintf(why, sizeof(why), "%s", strerror(-k));
        replica_fatal(r, why);
}

/* Applies a bounded amount per turn, so that neither heartbeats nor other work wait for one
 * command. */
static void apply_committed(struct replica *r)
{
        while (has_more_to_apply(r) && r->apply_left > 0 && !r->dead) {
                const struct log_entry *e = log_get(&r->log, r->applied + 1);
                uint64_t index = r->applied + 1;
                int k = 0;

                r->applied = index;
                if (e->type == RAFT_COMMAND)
                        k = e->len < STAMP ? -EBADMSG
                                           : r->ops->apply(r->userdata, index, e->term,
                                                           replica_stamp(e->data, e->len),
                                                           (struct view){e->data + STAMP,
                                                                         e->len - STAMP},
                                                           &r->apply_left);
                else if (e->type == RAFT_CHANGE)
                        apply_change(r, e, index);
                if (k != 0)
                        r->applied = index - 1; /* a read must not believe that the entry is
                                                 * applied */
                if (k < 0)
                        return cannot_apply(r, index, k);
                if (k > 0) {
                        if (!r->applying)
                                r->applying_since = r->now;
                        r->applying = true;
                        return;
                }
                if (r->applying) {
                        r->apply_left = 0; /* what had to wait for the entry gets a turn */
                        r->counts.slow_applies +=
                                boot_diff(r->now, r->applying_since) > SLOW_APPLY;
                }
                r->applying = false;
                r->snap.bytes_from += e->len;
                if (replica_leads(r) && !r->ready && index >= r->first_of_term &&
                    r->first_of_term > 0) {
                        r->ready = true;
                        beacons_run(r);
                }
        }
}

/* Most often there is one entry, and nothing else in its memory: then the log takes that over.
 * [libraft] It comes from raft_malloc(), and is ours. */
static bool owns_its_memory(const struct raft_update *u)
{
        const struct raft_entry *e = &u->entries.batch[0];

        return u->entries.n == 1 && e->type == RAFT_COMMAND && e->batch == e->buf.base;
}

static void save_entries(struct replica *r, const struct raft_update *u)
{
        uint64_t first = u->entries.index;
        bool changes = false, owned = owns_its_memory(u);
        struct store_entry *se;
        int k;

        log_cut(&r->log, first);
        se = calloc(u->entries.n, sizeof(*se));
        if (!se)
                return replica_fatal(r, "out of memory");
        for (unsigned i = 0; i < u->entries.n; i++) {
                const struct raft_entry *e = &u->entries.batch[i];

                changes = changes || e->type == RAFT_CHANGE;
                if (e->type == RAFT_COMMAND)
                        lease_clock_learn(&r->time.clock, e->term,
                                          replica_stamp(e->buf.base, e->buf.len), r->now);
                k = owned ? log_take(&r->log, e->term, RAFT_COMMAND, e->buf.base, e->buf.len)
                          : log_push(&r->log, e->term, (uint8_t) e->type, e->buf.base,
                                     e->buf.len);
                if (k < 0) {
                        free(se);
                        return replica_fatal(r, "out of memory");
                }
                se[i] = (struct store_entry){
                        .index = first + i,
                        .term = e->term,
                        .type = (uint8_t) e->type,
                        .data = {e->buf.base, e->buf.len},
                };
        }
        if (changes)
                members_appended(r, first);
        if (store_append(r->store, se, u->entries.n) < 0)
                replica_fatal(r, "out of memory");
        free(se);
        if (!owned)
                raft_free(u->entries.batch[0].batch);
}

void replica_step(struct replica *r, struct raft_event *ev)
{
        struct raft_update u = {0};
        struct raft_configuration own;
        bool was_leader = replica_leads(r), lent, older;
        int k;

        if (r->dead)
                return;
        older = ev->type == RAFT_RECEIVE && ev->receive.message->type == RAFT_APPEND_ENTRIES &&
                ev->receive.message->append_entries.term < raft_current_term(&r->raft);
        ev->time = to_raft(r->now);
        ev->capacity = UINT16_MAX;
        lent = members_lend_vote(r, ev, &own);
        k = raft_step(&r->raft, ev, &u);
        if (lent)
                members_take_back(r, &own);
        if (k != 0) {
                char why[RAFT_ERRMSG_BUF_SIZE + 64];

                if (ev->type == RAFT_SUBMIT) {
                        PROBE("raft takes no entry");
                        raft_free(ev->submit.entries[0]
                                          .batch); /* on failure we still own it; leadership may
                                                    * just have been lost */
                        return;
                }
                snprintf(why, sizeof(why), "raft: %s (event %d)",
                         *raft_errmsg(&r->raft) ? raft_errmsg(&r->raft) : raft_strerror(k),
                         ev->type);
                return replica_fatal(r, why);
        }
        r->committed = max_of(r->committed, (uint64_t) raft_commit_index(&r->raft));
        if ((u.flags & (RAFT_UPDATE_CURRENT_TERM)) || (u.flags & (RAFT_UPDATE_VOTED_FOR))) {
                k = store_vote(r->store, raft_current_term(&r->raft), raft_voted_for(&r->raft));
                if (k < 0)
                        return replica_fatal(r, "cannot write term and vote (meta)");
        }
        if (u.flags & (RAFT_UPDATE_ENTRIES))
                save_entries(r, &u);
        if (u.flags & (RAFT_UPDATE_SNAPSHOT))
                install_begin(r, &u);
        if (u.flags & (RAFT_UPDATE_MESSAGES))
                for (unsigned i = 0; i < u.messages.n; i++)
                        send_message(r, &u.messages.batch[i], older);
        queue_enter_term(r); /* who is called below may propose in it */
        if (was_leader && !replica_leads(r)) {
                r->ready = r->time.asking = false;
                lease_clock_stop(&r->time.clock);
                r->first_of_term = 0;
        }
        if (!was_leader && replica_leads(r))
                become_leader(r);
        members_step(r);
        if (u.flags & (RAFT_UPDATE_COMMIT_INDEX))
                apply_committed(r);
        members_committed(r);
        announce(r);
}

/* ---- callbacks of the store ---- */

static void on_persisted(void *userdata, uint64_t index)
{
        struct replica *r = userdata;
        struct raft_event ev = {.type = RAFT_PERSISTED_ENTRIES};

        ev.persisted_entries.index = index;
        replica_step(r, &ev);
        beacons_run(r);
}

static void on_failed(void *userdata, const char *file, int e)
{
        char why[256];

        snprintf(why, sizeof(why), "cannot write %s: %s", file, strerror(-e));
        replica_fatal(userdata, why);
}

const struct store_ops replica_store_ops = {
        .persisted = on_persisted,
        .snapshot_done = snapshot_on_done,
        .snapshot_failed = snapshot_on_failed,
        .failed = on_failed,
};

/* ---- from the peers and the clock ---- */

void replica_peer_up(struct replica *r, uint64_t peer, struct boot_time now)
{
        r->now = boot_max(r->now, now);
        if (r->dead)
                return;
        append_link_up(r, peer);
        queue_link_up(r, peer);
        snapshot_link_up(r, peer);
}

void replica_peer_down(struct replica *r, uint64_t peer, struct boot_time now)
{
        r->now = boot_max(r->now, now);
        members_broke(r, peer);
        if (!replica_leads(r) && peer == replica_leader(r) &&
            r->leader_down_at.ns == BOOT_TIME_NEVER.ns)
                r->leader_down_at = boot_add(r->now, 3 * r->cfg.heartbeat / 2);
}

void replica_peer_called(struct replica *r, uint64_t peer, struct boot_time now)
{
        r->now = boot_max(r->now, now);
        members_heard(r, peer);
}

/* Our rank among the remaining voters: they stand for election one after the other, so that
 * votes are not split. */
static unsigned rank_without(const struct replica *r, uint64_t leader)
{
        unsigned rank = 0;

        for (unsigned i = 0;
             i < replica_conf(r)->n && replica_conf(r)->servers[i].id != r->cfg.id; i++)
                rank += replica_conf(r)->servers[i].role == RAFT_VOTER &&
                        replica_conf(r)->servers[i].id != leader;
        return rank;
}

static void forget_leader(struct replica *r)
{
        raft_free(r->raft.follower_state.current_leader.address);
        r->raft.follower_state.current_leader.address = NULL;
        r->raft.follower_state.current_leader.id = 0;
}

/* [libraft] A non-voter follows its leader for ever, and votes for nobody else while it
 * does. */
static void check_learner(struct replica *r)
{
        if (raft_state(&r->raft) == RAFT_FOLLOWER && replica_leader(r) != 0 &&
            !replica_votes(r) && raft_timeout(&r->raft) <= to_raft(r->now)) {
                PROBE("a learner gives up a silent leader");
                forget_leader(r);
                announce(r);
        }
}

/* [libraft] It has no event for "the leader is gone". We clear its leader, so that it votes for
 * another one, and let its election timer run out when our turn comes. The first turn comes
 * after half a heartbeat: by then the others have given up the leader as well, and nobody is
 * refused because of it. */
static void check_leader_down(struct replica *r)
{
        unsigned wait = (1 + 4 * rank_without(r, replica_leader(r))) *
                        (unsigned) (r->cfg.heartbeat / 2 / NSEC_PER_MSEC);

        if (boot_before(r->now, r->leader_down_at))
                return;
        r->leader_down_at = BOOT_TIME_NEVER;
        if (raft_state(&r->raft) != RAFT_FOLLOWER || replica_leader(r) == 0)
                return;
        PROBE("a broken link is reason enough to elect another leader");
        log_debug("The link from the leader is down; electing another.");
        forget_leader(r);
        r->raft.election_timer_start =
                to_raft(r->now) - r->raft.follower_state.randomized_election_timeout + wait;
        announce(r);
}

/* Whether a message claims that another member leads in our own term, which is impossible. */
static bool usurps(const struct replica *r, uint64_t term)
{
        return replica_leads(r) && term == raft_current_term(&r->raft);
}

static bool wants(struct replica *r, uint64_t peer, struct raft_message *m)
{
        raft_index match;

        switch (m->type) {
        case RAFT_REQUEST_VOTE_RESULT:
                /* [libraft] If we are not a candidate, it counts the vote in the wrong member
                 * of a union. */
                return raft_state(&r->raft) == RAFT_CANDIDATE;
        case RAFT_APPEND_ENTRIES:
                /* [libraft] It would handle the message as a follower, with our leader's
                 * progress in that union. */
                return !usurps(r, m->append_entries.term);
        case RAFT_APPEND_ENTRIES_RESULT:
                /* [libraft] Rejecting what has been accepted since breaks an invariant; but a
                 * rejection with another term says that we lead no more. */
                if (m->append_entries_result.term > raft_current_term(&r->raft))
                        return true;
                /* [libraft] It would commit entries that we never had. */
                PROBE_IF(m->append_entries_result.rejected == 0 &&
                                 m->append_entries_result.last_log_index > log_last(&r->log),
                         "an answer acknowledges entries that the leader does not have");
                if (m->append_entries_result.rejected == 0)
                        return m->append_entries_result.last_log_index <= log_last(&r->log);
                return raft_match_index(&r->raft, peer, &match) != 0 ||
                       m->append_entries_result.rejected > match;
        case RAFT_INSTALL_SNAPSHOT:
                /* [libraft] A second one while the first is being installed leaks memory. */
                return !r->snap.installing && !r->snap.writing && !r->snap.saving &&
                       !usurps(r, m->install_snapshot.term);
        default:
                return true;
        }
}

static void drop_entries(struct raft_append_entries *p)
{
        if (p->n_entries > 0) {
                raft_free(p->entries[0].batch);
                raft_free(p->entries);
        }
        p->entries = NULL;
        p->n_entries = 0;
}

/* [libraft] An AppendEntries that starts before our compaction point is rejected, so make it
 * start there. */
static void skip_compacted(struct replica *r, struct raft_append_entries *p)
{
        uint64_t skip;

        if (r->snap.index == 0 || p->prev_log_index + 1 >= r->log.first ||
            p->prev_log_index >= r->snap.index)
                return;
        PROBE("entries come that a snapshot has already");
        skip = r->snap.index - p->prev_log_index;
        if (skip >= p->n_entries) {
                drop_entries(p);
        } else {
                memmove(p->entries, p->entries + skip,
                        (p->n_entries - skip) * sizeof(*p->entries));
                p->n_entries -= (unsigned) skip;
        }
        p->prev_log_index = r->snap.index;
        p->prev_log_term = r->snap.term;
}

void replica_receive(struct replica *r, uint64_t peer, struct raft_message *m)
{
        struct raft_event ev = {.type = RAFT_RECEIVE};
        struct raft_entry *entries = NULL;
        int i = replica_position(r, peer);

        /* Our configuration may be older than the sender's. So requests are accepted from
         * anybody (Raft thesis, section 4.2.2), answers only from members. */
        if (i < 0 && m->type == RAFT_REQUEST_VOTE)
                members_stranger(r, peer);
        if (i >= 0 && m->type == RAFT_APPEND_ENTRIES_RESULT)
                members_answered(r, peer, &m->append_entries_result);
        if ((i < 0 &&
             (m->type == RAFT_APPEND_ENTRIES_RESULT || m->type == RAFT_REQUEST_VOTE_RESULT)) ||
            !wants(r, peer, m))
                return message_discard(m);
        if (m->type == RAFT_APPEND_ENTRIES) {
                skip_compacted(r, &m->append_entries);
                /* We hold as many committed but unapplied entries as we may: drop these as if
                 * they had been lost on their way. We make room by applying, which needs no
                 * other replica. */
                if (snapshot_log_is_full(r)) {
                        PROBE("a follower drops entries because too many are not applied");
                        drop_entries(&m->append_entries);
                }
                entries = m->append_entries.entries;
        }
        m->server_id = peer;
        m->server_address = i < 0 ? "" : replica_conf(r)->servers[i].address;
        ev.receive.message = m;
        replica_step(r, &ev);
        raft_free(entries);
        if (!r->dead)
                beacons_run(r);
}

/* How many numbers follow the type in our own kinds of frames. */
static int numbers_in(uint8_t type)
{
        switch (type) {
        case FRAME_PROPOSED:
                return 5;
        case FRAME_BEACON:
        case FRAME_READ_TELL:
        case FRAME_TIME_TELL:
        case FRAME_SNAPSHOT_ACK:
                return 3;
        case FRAME_READ_PING:
        case FRAME_READ_PONG:
        case FRAME_CHANGED:
        case FRAME_BEACON_ACK:
        case FRAME_LACKS:
                return 2;
        case FRAME_READ_ASK:
        case FRAME_TIME_ASK:
        case FRAME_REMOVED:
                return 1;
        default:
                return -EBADMSG;
        }
}

/* Handles a frame from @peer as leader of this term. */
static void on_leader_frame(struct replica *r, uint64_t peer, uint8_t type, const uint64_t *v)
{
        switch (type) {
        case FRAME_READ_PING:
                return replica_send(r, peer, FRAME_READ_PONG, v, 2);
        case FRAME_PROPOSED:
                return queue_acknowledged(r, v[1], v[2], v[3], v[4] != 0);
        case FRAME_BEACON:
                lease_clock_learn(&r->time.clock, v[0], (struct lease_time){(nsec_t) v[2]},
                                  r->now);
                return replica_send(r, peer, FRAME_BEACON_ACK, v, 2);
        case FRAME_LACKS:
                return members_lack(r, v[1]);
        case FRAME_TIME_ASK:
                return replica_send(r, peer, FRAME_TIME_TELL,
                                    (uint64_t[]){v[0], r->time.clock.term,
                                                 (uint64_t) r->time.clock.known.ns},
                                    3);
        }
}

/* Handles a frame from a follower to the leader of this term. */
static void on_follower_frame(struct replica *r, uint64_t peer, uint8_t type, const uint64_t *v)
{
        int i = replica_position(r, peer);

        if (i < 0)
                return;
        switch (type) {
        case FRAME_READ_PONG:
                return reads_ponged(r, (unsigned) i, v[1]);
        case FRAME_TIME_TELL:
                beacons_reported(r, (unsigned) i, v[1], v[2]);
                return beacons_run(r);
        case FRAME_BEACON_ACK:
                beacons_acked(r, (unsigned) i, (nsec_t) v[1]);
                return beacons_run(r);
        case FRAME_SNAPSHOT_ACK:
                return snapshot_acked(r, peer, v[1], v[2]);
        }
}

int replica_input(struct replica *r, uint64_t peer, struct view frame, struct boot_time now)
{
        struct raft_message m;
        uint64_t v[5] = {0};
        uint8_t type;
        int n, k = view_u8(&frame, &type);

        r->now = boot_max(r->now, now);
        if (k < 0)
                return k;
        members_heard(r, peer);
        if (replica_position(r, peer) >= 0)
                replica_peer_counts(r, peer)->received += frame.len + 1;
        if (peer == replica_leader(r))
                r->leader_down_at = BOOT_TIME_NEVER;
        if (type == FRAME_RAFT) {
                k = message_decode(frame, &m);
                if (k == -ENOMEM)
                        replica_fatal(r, "out of memory");
                if (k == 0)
                        replica_receive(r, peer, &m);
                return k;
        }
        if (type == FRAME_PROPOSE)
                return queue_proposed(r, peer, frame);
        if (type == FRAME_CHANGE)
                return members_asked(r, peer, frame);
        if (type == FRAME_SNAPSHOT)
                return install_part(r, peer, frame);
        n = numbers_in(type);
        for (int i = 0; i < n && k == 0; i++)
                k = view_u64(&frame, &v[i]);
        if (n < 0 || k < 0)
                return -EBADMSG;
        if (type == FRAME_READ_ASK && replica_leads(r))
                reads_add(r, peer, v[0]);
        else if (type == FRAME_READ_TELL)
                reads_answered(r, v[0], v[1], (struct lease_time){(nsec_t) v[2]});
        else if (type == FRAME_CHANGED)
                r->ops->changed_members(r->userdata, v[0], (int) v[1]);
        else if (type == FRAME_REMOVED)
                members_removed(r, v[0]);
        else if (v[0] != raft_current_term(&r->raft))
                return 0;
        else if (replica_leads(r))
                on_follower_frame(r, peer, type, v);
        else if (raft_state(&r->raft) == RAFT_FOLLOWER && replica_leader(r) == peer)
                on_leader_frame(r, peer, type, v);
        return 0;
}

void replica_run(struct replica *r, struct boot_time now)
{
        r->now = boot_max(r->now, now);
        if (r->dead)
                return;
        if (store_short_of_room(r->store) && !boot_before(r->now, r->room_at)) {
                r->room_at = boot_add(r->now, ROOM_RETRY);
                store_retry(r->store);
        }
        check_leader_down(r);
        check_learner(r);
        members_run(r);
        r->apply_left = r->cfg.apply_slice > 0 ? r->cfg.apply_slice : APPLY_SLICE;
        apply_committed(r);
        if (raft_timeout(&r->raft) <= to_raft(r->now)) {
                struct raft_event ev = {.type = RAFT_TIMEOUT};
                bool hands_over = PROBING && replica_leads(r) && raft_transferee(&r->raft) != 0;

                replica_step(r, &ev);
                PROBE_IF(hands_over && replica_leads(r) && raft_transferee(&r->raft) == 0,
                         "a handover of leadership takes too long and is given up");
        }
        beacons_run(r);
        queue_run(r);
        reads_run(r);
}

struct boot_time replica_next(const struct replica *r)
{
        struct boot_time raft = {(nsec_t) raft_timeout(&r->raft) * NSEC_PER_MSEC};

        if (has_more_to_apply(r))
                return r->now;
        raft = boot_min(raft, boot_min(r->leader_down_at, snapshot_next(r)));
        if (store_short_of_room(r->store))
                raft = boot_min(raft, r->room_at);
        raft = boot_min(raft, queue_next(r));
        if (replica_leads(r) || reads_wait(r))
                return boot_min(raft, boot_add(r->now, r->cfg.heartbeat));
        return raft;
}

/* Followers learn the commit index from the next message. If none follows soon, they would
 * apply, and notify their watchers, up to a heartbeat late. So each follower that has the
 * committed entries gets a heartbeat at once, which to raft is one like any other. */
static void tell_commit(struct replica *r)
{
        uint64_t commit = raft_commit_index(&r->raft);

        if (!replica_leads(r) || log_last(&r->log) > commit || r->queue.gathers)
                return;
        for (unsigned i = 0; i < replica_conf(r)->n && i < REPLICA_PEERS_MAX; i++) {
                uint64_t id = replica_conf(r)->servers[i].id;
                raft_index match;

                if (id == r->cfg.id || raft_match_index(&r->raft, id, &match) != 0)
                        continue;
                match = min_of(match, (raft_index) commit);
                if (match <= r->sent_commit[i] || replica_term_of(r, match) == 0)
                        continue;
                r->sent_commit[i] = match;
                append_heartbeat(r, id, match);
        }
}

void replica_flush(struct replica *r, struct boot_time now)
{
        r->now = boot_max(r->now, now);
        if (r->dead)
                return;
        reads_flush(r);
        if (replica_leads(r)) {
                queue_flush(r);
                append_run(r);
                tell_commit(r);
                queue_acknowledge(r);
        } else if (replica_leader(r) != 0) {
                queue_forward(r);
        }
        r->queue.sent_to = 0;
        snapshot_run(r);
        store_flush(r->store);
}

static void transfer(struct replica *r, uint64_t id)
{
        struct raft_event ev = {.type = RAFT_TRANSFER};

        ev.transfer.server_id = id;
        PROBE_IF(r->snap.saving, "leadership is handed over while a snapshot is taken");
        queue_submit(r); /* what gathers would be lost with the leadership */
        replica_step(r, &ev);
}

bool replica_step_down(struct replica *r, struct boot_time now)
{
        r->now = boot_max(r->now, now);
        if (replica_leads(r) && replica_voters(r) > 1 && raft_transferee(&r->raft) == 0)
                transfer(r, 0);
        return replica_leads(r) && raft_transferee(&r->raft) != 0;
}

int replica_transfer(struct replica *r, uint64_t id, struct boot_time now)
{
        int i = replica_position(r, id);

        r->now = boot_max(r->now, now);
        if (!replica_leads(r) || i < 0 || replica_conf(r)->servers[i].role != RAFT_VOTER)
                return -EINVAL;
        if (id != r->cfg.id && raft_transferee(&r->raft) == 0)
                transfer(r, id);
        return 0;
}
