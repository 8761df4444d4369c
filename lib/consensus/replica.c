/* The exchange with raft_step(): events go in through replica_step(), and the resulting actions
 * are carried out there in the order that libraft requires: term and vote are written, entries
 * queued for the disk, messages sent, committed entries applied. */
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

int replica_position(const struct replica *r, uint64_t id)
{
        return members_position(replica_conf(r), id);
}

unsigned replica_voters(const struct replica *r)
{
        uint64_t ids[REPLICA_PEERS_MAX];

        return members_voters(replica_conf(r), ids);
}

bool replica_votes(const struct replica *r)
{
        int i = replica_position(r, r->cfg.id);

        return i >= 0 && replica_conf(r)->servers[i].role == RAFT_VOTER;
}

uint64_t replica_applied(const struct replica *r)
{
        return r->applied;
}

bool replica_learns(const struct replica *r)
{
        int i = replica_position(r, r->cfg.id);

        return i >= 0 && !members_is_voter(&replica_conf(r)->servers[i]);
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
                .ready = replica_is_ready(r),
                .leader_id = replica_leader(r),
                .term = replica_term(r),
                .last = log_last(&r->log),
                .commit = r->committed,
                .applied = r->applied,
                .waits_for_room = store_waits_for_room(r->store),
                .short_of_room = replica_short_of_room(r),
                .log_bytes = r->log.bytes,
                .awaits =
                        directories_awaits(r) != 0 ? directories_awaits(r) : versions_awaits(r),
                .lost = r->directories.lost,
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
        uint64_t match;

        if (!replica_leads(r) || id == r->cfg.id || !libraft_match(r, id, &match))
                return 0;
        return log_last(&r->log) - min_of(log_last(&r->log), match);
}

bool replica_installs(const struct replica *r)
{
        return r->taking.state == SNAPSHOT_INSTALLING || r->incoming.state == INCOMING_LOADING;
}

bool replica_awaits_snapshot(const struct replica *r)
{
        const struct incoming *c = &r->incoming;

        return c->have > 0 && c->index > r->applied;
}

size_t replica_slot(const struct replica *r, const void *array, size_t n, size_t size,
                    uint64_t id)
{
        size_t unused = n, former = n;
        uint64_t has;

        for (size_t i = 0; i < n; i++) {
                memcpy(&has, (const uint8_t *) array + i * size, sizeof(has));
                if (has == id)
                        return i;
                if (has == 0)
                        unused = min_of(unused, i);
                else if (former == n && replica_position(r, has) < 0)
                        former = i;
        }
        assert(unused < n || former < n);
        return unused < n ? unused : former;
}

struct replica_peer_counts *replica_peer_counts(struct replica *r, uint64_t id)
{
        struct replica_peer_counts *c = REPLICA_SLOT(r, r->counts.peers, id);

        if (c->id != id)
                *c = (struct replica_peer_counts){.id = id};
        return c;
}

struct boot_time replica_now(const struct replica *r)
{
        return r->now;
}

void replica_each_peer(const struct replica *r,
                       void (*fn)(uint64_t id, const char *address, bool voter, void *arg),
                       void *arg)
{
        members_each(replica_conf(r), fn, arg);
}

void replica_send_frame(struct replica *r, uint64_t peer, const struct buf *frame)
{
        int i = replica_position(r, peer);

        if (versions_refuse(r, peer) != 0)
                return;
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

struct lease_time replica_stamp(const void *data)
{
        return (struct lease_time){(nsec_t) le64_get(data)};
}

void replica_adopt(struct replica *r, uint64_t term)
{
        lease_clock_learn(&r->time.clock, term, r->ops->adopt(r->userdata), r->now);
}

/* ---- raft ---- */

uint64_t replica_term_of(const struct replica *r, uint64_t index)
{
        const struct log_entry *e = log_get(&r->log, index);

        return e ? e->term : index == r->compacted.index ? r->compacted.term : 0;
}

/* @older: it answers entries of an older term. */
static void send_message(struct replica *r, const struct raft_message *m, bool older)
{
        cleanup_(buf_fini) struct buf f = {0};
        struct raft_message out = *m;
        int e;

        if (libraft_is_premature(r, m))
                return;
        libraft_mend(r, &out, older);
        if (m->type == RAFT_INSTALL_SNAPSHOT)
                return sending_asked(r, m->server_id, m->install_snapshot.last_index);
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
            s.leader_id == r->announced.leader_id && s.term == r->announced.term &&
            s.awaits == r->announced.awaits && s.lost == r->announced.lost)
                return;
        if (s.leader != r->announced.leader || s.leader_id != r->announced.leader_id ||
            s.term != r->announced.term)
                reads_reroute(r);
        if (s.leader_id != r->announced.leader_id) {
                r->counts.leader_changes += s.leader_id != 0;
                r->leader_down_at = BOOT_TIME_NEVER;
        }
        r->announced = s;
        r->ops->changed(r->userdata);
}

static void become_leader(struct replica *r)
{
        struct raft_entry e = {.term = replica_term(r), .type = RAFT_BARRIER};

        /* [libraft] It adds an entry of its own only if the log is longer than the commit
         * index. We always need one, because only then do we know everything that was committed
         * before (Raft section 8). */
        r->led_at = r->now;
        beacons_begin(r);
        memset(r->sent_commit, 0, sizeof(r->sent_commit));
        queue_term_begins(r);
        members_lead(r);
        versions_lead(r);
        e.buf.len = 8;
        e.buf.base = e.batch = raft_calloc(1, 8);
        if (!e.batch)
                return replica_fatal(r, "out of memory");
        r->first_of_term = log_last(&r->log) + 1;
        replica_submit(r, &e);
        beacons_ask(r);
}

static bool has_more_to_apply(const struct replica *r)
{
        return r->applied < r->committed && log_get(&r->log, r->applied + 1);
}

/* Another replica may know the command, so skipping it could give two replicas different states
 * (I4). */
static void cannot_apply(struct replica *r, uint64_t index, uint64_t term, int k)
{
        char why[256];

        if (k == -ENOTSUP)
                snprintf(why, sizeof(why),
                         "log entry %" PRIu64 " (term %" PRIu64
                         ") holds a command that this version cannot read; start the version "
                         "that wrote it",
                         index, term);
        else if (k == -EBADMSG)
                snprintf(why, sizeof(why),
                         "log entry %" PRIu64 " (term %" PRIu64 ") is malformed", index, term);
        else
                snprintf(why, sizeof(why), "cannot apply log entry %" PRIu64 ": %s", index,
                         strerror(-k));
        replica_fatal(r, why);
}

/* Applies a bounded amount per turn, so that neither heartbeats nor other work wait for one
 * command. */
static void apply_committed(struct replica *r)
{
        while (has_more_to_apply(r) && r->apply_left > 0 && !r->dead) {
                uint64_t index = r->applied + 1;
                /* A copy: what is called may append, and move the log's entries. */
                const struct log_entry e = *log_get(&r->log, index);
                int k = 0;

                r->applied = index;
                if (e.type == RAFT_COMMAND)
                        k = r->ops->apply(r->userdata, index, e.term, replica_stamp(e.data),
                                          (struct view){e.data + STAMP, e.len - STAMP},
                                          &r->apply_left);
                else if (e.type == RAFT_CHANGE)
                        libraft_conf_applied(r, index);
                if (k != 0)
                        r->applied = index - 1; /* a read must not believe that the entry is
                                                 * applied */
                if (k < 0)
                        return cannot_apply(r, index, e.term, k);
                if (k > 0) {
                        if (!r->applying)
                                r->applying_since = r->now;
                        r->applying = true;
                        return;
                }
                if (r->applying) {
                        r->apply_left = 0; /* work that had to wait for the entry gets a turn */
                        r->counts.slow_applies +=
                                boot_diff(r->now, r->applying_since) > SLOW_APPLY;
                }
                r->applying = false;
                r->taking.bytes_from += e.len;
                if (index == r->first_of_term)
                        beacons_run(r);
        }
}

/* Most often there is one entry, and nothing else in its memory: then the log takes over that
 * memory. [libraft] It was allocated with raft_malloc(), and is ours. */
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
                        lease_clock_learn(&r->time.clock, e->term, replica_stamp(e->buf.base),
                                          r->now);
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
                libraft_conf_appended(r, first);
        if (store_append(r->store, se, u->entries.n) < 0)
                replica_fatal(r, "out of memory");
        free(se);
        if (!owned)
                raft_free(u->entries.batch[0].batch);
}

void replica_step(struct replica *r, struct raft_event *ev)
{
        struct raft_update u;
        bool was_leader = replica_leads(r), older;
        int k;

        if (r->dead)
                return;
        older = ev->type == RAFT_RECEIVE && ev->receive.message->type == RAFT_APPEND_ENTRIES &&
                ev->receive.message->append_entries.term < replica_term(r);
        k = libraft_step(r, ev, &u);
        if (k != 0) {
                char why[RAFT_ERRMSG_BUF_SIZE + 64];

                if (ev->type == RAFT_SUBMIT) {
                        PROBE("raft takes no entry");
                        raft_free(ev->submit.entries[0]
                                          .batch); /* on failure we still own it; leadership may
                                                    * just have been lost */
                        return;
                }
                snprintf(why, sizeof(why), "raft: %s (event %d)", libraft_why(r, k), ev->type);
                return replica_fatal(r, why);
        }
        r->committed = max_of(r->committed, libraft_commit(r));
        if ((u.flags & (RAFT_UPDATE_CURRENT_TERM)) || (u.flags & (RAFT_UPDATE_VOTED_FOR))) {
                k = store_vote(r->store, replica_term(r), libraft_vote(r));
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
        queue_enter_term(r); /* the callbacks below may propose in the new term */
        if (was_leader && !replica_leads(r)) {
                r->time.asking = false;
                lease_clock_stop(&r->time.clock);
                r->first_of_term = 0;
                r->versions.founding = false;
        }
        if (!was_leader && replica_leads(r))
                become_leader(r);
        members_step(r);
        directories_configured(r);
        if (u.flags & (RAFT_UPDATE_COMMIT_INDEX))
                apply_committed(r);
        members_committed(r);
        announce(r);
}

void replica_submit(struct replica *r, struct raft_entry *e)
{
        struct raft_event ev = {.type = RAFT_SUBMIT, .submit = {.entries = e, .n = 1}};

        replica_step(r, &ev);
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
        .snapshot_done = taking_on_written,
        .snapshot_failed = taking_on_failed,
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
        sending_link_up(r, peer);
        reads_link_made(r, peer);
}

void replica_peer_down(struct replica *r, uint64_t peer, struct boot_time now)
{
        r->now = boot_max(r->now, now);
        members_broke(r, peer);
        versions_link_down(r, peer);
        if (!replica_leads(r) && peer == replica_leader(r) &&
            r->leader_down_at.ns == BOOT_TIME_NEVER.ns)
                r->leader_down_at = boot_add(r->now, 3 * r->cfg.heartbeat / 2);
}

void replica_peer_called(struct replica *r, uint64_t peer, struct boot_time now)
{
        r->now = boot_max(r->now, now);
        members_heard(r, peer);
        if (!r->dead)
                reads_link_made(r, peer);
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

/* [libraft] A replica that cannot stand for election, because it is no voter or its log is not
 * on its disk yet, follows its leader for ever, and votes for nobody else while it does. */
static void check_silent_leader(struct replica *r)
{
        if (libraft_follows(r) && replica_leader(r) != 0 && libraft_is_due(r)) {
                PROBE_IF(!replica_votes(r), "a learner gives up a silent leader");
                libraft_forget_leader(r);
                announce(r);
        }
}

/* [libraft] It has no event for "the leader is gone". We clear its leader, so that it votes for
 * another one, and let its election timer run out when our turn comes. The first turn comes
 * after half a heartbeat: by then the others have given up the leader as well, and refuse no
 * candidate for its sake. */
static void check_leader_down(struct replica *r)
{
        nsec_t wait = (1 + 4 * rank_without(r, replica_leader(r))) * (r->cfg.heartbeat / 2);

        if (boot_before(r->now, r->leader_down_at))
                return;
        r->leader_down_at = BOOT_TIME_NEVER;
        if (!libraft_follows(r) || replica_leader(r) == 0)
                return;
        PROBE("a broken link is reason enough to elect another leader");
        log_debug("The link from the leader is down; electing another.");
        libraft_forget_leader(r);
        if (directories_may_stand(r))
                libraft_stand(r, wait);
        announce(r);
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
        if (i >= 0 && m->type == RAFT_APPEND_ENTRIES_RESULT) {
                members_answered(r, peer, &m->append_entries_result);
                sending_answered(r, peer, &m->append_entries_result);
        }
        if ((i < 0 &&
             (m->type == RAFT_APPEND_ENTRIES_RESULT || m->type == RAFT_REQUEST_VOTE_RESULT)) ||
            !libraft_takes(r, peer, m))
                return message_discard(m);
        if (m->type == RAFT_APPEND_ENTRIES) {
                libraft_skip_compacted(r, &m->append_entries);
                /* We hold as many committed but unapplied entries as we may: drop these as if
                 * they had been lost in transit. We make room by applying, for which we need no
                 * other replica. */
                if (trim_log_is_full(r)) {
                        PROBE("a follower drops entries because too many are not applied");
                        message_drop_entries(&m->append_entries);
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

/* Clients see the alarm NOSPACE; this is for whoever reads this host's journal. */
static void check_room(struct replica *r)
{
        bool full = store_short_of_room(r->store);

        if (full && !r->was_full)
                log_warning("The disk is full: requests that make the data grow are refused "
                            "until there is room; renewals and expiry continue.");
        else if (!full && r->was_full)
                log_notice("The disk has room again.");
        r->was_full = full;
        if (full && !boot_before(r->now, r->room_at)) {
                r->room_at = boot_add(r->now, ROOM_RETRY);
                store_retry(r->store);
        }
}

void replica_run(struct replica *r, struct boot_time now)
{
        r->now = boot_max(r->now, now);
        if (r->dead)
                return;
        check_room(r);
        check_leader_down(r);
        check_silent_leader(r);
        r->apply_left = r->cfg.apply_slice > 0 ? r->cfg.apply_slice : APPLY_SLICE;
        apply_committed(r);
        if (libraft_is_due(r) && !replica_leads(r) && !directories_may_stand(r)) {
                PROBE("a founding replica does not stand for election");
                libraft_wait(r);
        }
        if (libraft_is_due(r)) {
                struct raft_event ev = {.type = RAFT_TIMEOUT};
                bool hands_over = PROBING && replica_leads(r) && replica_transferee(r) != 0;

                replica_step(r, &ev);
                PROBE_IF(hands_over && replica_leads(r) && replica_transferee(r) == 0,
                         "a handover of leadership takes too long and is given up");
        }
        beacons_run(r);
        directories_run(r);
        members_run(r);
        if (r->versions.founding && versions_found(r))
                announce(r);
        versions_tell_awaited(r);
        announce(r);
        queue_run(r);
        reads_run(r);
}

struct boot_time replica_next(const struct replica *r)
{
        struct boot_time next = boot_min(libraft_timeout(r), r->leader_down_at);

        if (has_more_to_apply(r))
                return r->now;
        next = boot_min(next, boot_min(sending_next(r), install_next(r)));
        next = boot_min(next, boot_min(taking_next(r), freeing_next(r)));
        next = boot_min(next, queue_next(r));
        if (store_short_of_room(r->store))
                next = boot_min(next, r->room_at);
        if (replica_leads(r) || reads_wait(r))
                next = boot_min(next, boot_add(r->now, r->cfg.heartbeat));
        return next;
}

/* Followers learn the commit index from the next message. If none follows soon, they would
 * apply, and notify their watchers, up to a heartbeat late. So each follower that has the
 * committed entries gets a heartbeat at once; to raft it is one like any other. */
static void tell_commit(struct replica *r)
{
        uint64_t commit = libraft_commit(r);

        if (!replica_leads(r) || log_last(&r->log) > commit || r->queue.state == QUEUE_GATHERS)
                return;
        for (unsigned i = 0; i < replica_conf(r)->n && i < REPLICA_PEERS_MAX; i++) {
                uint64_t id = replica_conf(r)->servers[i].id;
                uint64_t match;

                if (id == r->cfg.id || !libraft_match(r, id, &match))
                        continue;
                match = min_of(match, commit);
                if (match > r->sent_commit[i] && replica_term_of(r, match) != 0 &&
                    append_heartbeat(r, id, match))
                        r->sent_commit[i] = match;
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
        trim_run(r);
        sending_run(r);
        install_run(r);
        freeing_run(r);
        taking_run(r);
        store_flush(r->store);
}

static void transfer(struct replica *r, uint64_t id)
{
        struct raft_event ev = {.type = RAFT_TRANSFER};

        ev.transfer.server_id = id;
        PROBE_IF(r->taking.state == SNAPSHOT_ENCODING,
                 "leadership is handed over while a snapshot is taken");
        queue_submit(r); /* commands that still gather would be lost with the leadership */
        replica_step(r, &ev);
}

bool replica_step_down(struct replica *r, struct boot_time now)
{
        uint64_t heir;

        r->now = boot_max(r->now, now);
        heir = replica_leads(r) && replica_transferee(r) == 0 ? members_heir(r) : 0;
        if (heir != 0)
                transfer(r, heir);
        return replica_leads(r) && replica_transferee(r) != 0;
}

int replica_transfer(struct replica *r, uint64_t id, struct boot_time now)
{
        int i = replica_position(r, id);

        r->now = boot_max(r->now, now);
        if (!replica_leads(r) || i < 0 || replica_conf(r)->servers[i].role != RAFT_VOTER)
                return -EINVAL;
        if (id == r->cfg.id || replica_transferee(r) == id)
                return 0;
        if (replica_transferee(r) != 0)
                return -EBUSY;
        transfer(r, id);
        return 0;
}
