/*
 * One thing: the conversation with raft_step(). Events go in through step(), what it wants done
 * comes out there, in the order that libraft asks for: term and vote to disk, entries queued,
 * messages sent, commits applied.
 */
#include "consensus/replica.h"

#include <bsd/sys/queue.h>
#include <inttypes.h>
#include <raft.h>
#include <stdio.h>

#include "base/le.h"
#include "base/log.h"
#include "consensus/lease_clock.h"
#include "consensus/log.h"
#include "consensus/message.h"

/* Commands are gathered into entries up to this size. */
#define ENTRY_BYTES ((size_t) 1 << 20)
/* Past it, clients are told: too many requests. */
#define QUEUED_BYTES_MAX ((size_t) 64 << 20)
/* [libraft] Conflicts are walked back one entry a round trip: few may be under way. */
#define UNCOMMITTED_MAX 64
#define UNCOMMITTED_BYTES_MAX ((size_t) 32 << 20)
#define INFLIGHT_MAX 128
#define SNAPSHOT_ENTRIES 16384
#define SNAPSHOT_BYTES ((size_t) 64 << 20)
/* Entries kept behind a snapshot, for replicas that lag a little. */
#define TRAILING 4096
#define STAMP sizeof(uint64_t)
#define READ_RETRY (200 * NSEC_PER_MSEC)
/* How often our session retries: an outage is excused with one such. */
#define CLIENT_RETRY (50 * NSEC_PER_MSEC)

/* Commands on their way into an entry. */
struct batch {
        STAILQ_ENTRY(batch) next;
        struct buf bytes;
};

/* Which frames of a sender have come: the highest, and those of the 64 up to it. */
struct window {
        uint64_t life, high, seen;
};

struct read {
        STAILQ_ENTRY(read) next;
        uint64_t id;
        uint64_t peer; /* who asked; 0: we */
};
STAILQ_HEAD(reads, read);

struct replica {
        struct raft raft;
        bool raft_up;
        struct replica_config cfg;
        char *address;
        const struct replica_ops *ops;
        void *userdata;
        struct store *store;
        struct log log;
        struct boot_time now;
        uint64_t applied, durable;
        uint64_t first_of_term; /* leader: the entry that makes us ready; 0: not submitted */
        bool ready;
        struct replica_status told; /* what `changed` last announced */

        STAILQ_HEAD(, batch) batches;
        struct buf urgent;
        size_t queued;
        uint64_t forwarded;                        /* frames of proposals, in this life */
        struct window proposed[REPLICA_PEERS_MAX]; /* leader: those that came */

        /* Snapshots. */
        uint64_t snap_index, snap_term;
        uint64_t snap_bytes_from; /* bytes applied since the last one */
        bool snapping, installing, snapshot_wanted;
        struct raft_snapshot_metadata pending; /* of the one being written */
        struct buf pending_data;               /* of one being installed */

        /* Reads: a round asks all peers; reads that come meanwhile wait for the next. */
        struct reads waiting, in_round;
        uint64_t round, round_index;
        unsigned round_acks;
        uint64_t round_acked; /* bit per peer */
        bool round_on;
        struct boot_time round_at;
        struct reads asked; /* follower: sent to the leader */
        struct boot_time asked_at;

        /* Lease time. */
        struct lease_clock clock;
        bool asking; /* leader: what time did the others hear of? */
        struct boot_time asked_time_at;
        uint64_t time_told;               /* bit per peer */
        struct boot_time worded_at;       /* leader: when the last word went out... */
        nsec_t worded[REPLICA_PEERS_MAX]; /* ...which each has answered in time... */
        nsec_t late[REPLICA_PEERS_MAX];   /* ...and the quickest answer that came late */
        unsigned words_unanswered;        /* in time, by a majority, since the last that was */
        uint64_t moved_commit; /* the commit index as last seen to move or to be complete */
        struct boot_time moved_at;

        struct boot_time snapshot_sent[REPLICA_PEERS_MAX];
        uint64_t told_commit[REPLICA_PEERS_MAX]; /* leader: up to where each follower knows what
                                                    is committed */
        struct boot_time leader_down_at; /* follower: since when its link is down; NEVER */

        /* What the disk said, until replica_start() hands it to raft. */
        struct raft_snapshot_metadata start_meta;
        uint64_t start_term, start_vote;

        bool dead;
};

static void fatal(struct replica *r, const char *why)
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

static bool is_leader(const struct replica *r)
{
        return raft_state((struct raft *) (uintptr_t) &r->raft) == RAFT_LEADER;
}

static uint64_t leader_id(const struct replica *r)
{
        const char *address;
        raft_id id;

        raft_leader((struct raft *) (uintptr_t) &r->raft, &id, &address);
        return id;
}

static const struct raft_configuration *conf(const struct replica *r)
{
        return &r->raft.configuration;
}

static int peer_position(const struct replica *r, uint64_t id)
{
        for (unsigned i = 0; i < conf(r)->n && i < REPLICA_PEERS_MAX; i++)
                if (conf(r)->servers[i].id == id)
                        return (int) i;
        return -1;
}

static unsigned n_voters(const struct replica *r)
{
        unsigned n = 0;

        for (unsigned i = 0; i < conf(r)->n; i++)
                n += conf(r)->servers[i].role == RAFT_VOTER;
        return n;
}

struct replica_status replica_status(const struct replica *r)
{
        return (struct replica_status){
                .leader = is_leader(r),
                .learner = peer_position(r, r->cfg.id) >= 0 &&
                           conf(r)->servers[peer_position(r, r->cfg.id)].role != RAFT_VOTER,
                .ready = r->ready,
                .leader_id = leader_id(r),
                .term = raft_current_term(&r->raft),
                .last = log_last(&r->log),
                .commit = raft_commit_index(&r->raft),
                .applied = r->applied,
                .disk_bytes = store_size(r->store),
        };
}

struct boot_time replica_now(const struct replica *r)
{
        return r->now;
}

void replica_each_peer(const struct replica *r,
                       void (*fn)(uint64_t id, const char *address, bool voter, void *arg),
                       void *arg)
{
        for (unsigned i = 0; i < conf(r)->n; i++)
                fn(conf(r)->servers[i].id, conf(r)->servers[i].address,
                   conf(r)->servers[i].role == RAFT_VOTER, arg);
}

/* ---- lease time: what counts against leases ---- */

static void send_frame(struct replica *r, uint64_t peer, enum frame_type type,
                       const uint64_t *v, size_t n);

static int nsec_cmp(const void *a, const void *b)
{
        nsec_t x = *(const nsec_t *) a, y = *(const nsec_t *) b;

        return x < y ? -1 : x > y;
}

/* Of the voters but us, in ascending order, what @of says of each. Returns how many. */
static unsigned voters_sorted(const struct replica *r, const nsec_t of[], nsec_t out[])
{
        unsigned n = 0;

        for (unsigned i = 0; i < conf(r)->n && i < REPLICA_PEERS_MAX; i++)
                if (conf(r)->servers[i].role == RAFT_VOTER &&
                    conf(r)->servers[i].id != r->cfg.id)
                        out[n++] = of[i];
        qsort(out, n, sizeof(*out), nsec_cmp);
        return n;
}

/* When the word was sent that a majority, us included, has answered. */
static struct boot_time majority_worded(const struct replica *r)
{
        unsigned need = n_voters(r) / 2, n;
        nsec_t at[REPLICA_PEERS_MAX];

        if (need == 0)
                return r->now;
        n = voters_sorted(r, r->worded, at);
        return (struct boot_time){n >= need ? at[n - need] : 0};
}

/* An answer that took long came out of a socket that nobody read: it says nothing of the time
 * in between. */
static void on_word_ack(struct replica *r, unsigned i, nsec_t sent)
{
        nsec_t way = boot_diff(r->now, (struct boot_time){sent});

        if (way < 0)
                return;
        if (way <= r->cfg.heartbeat + 2 * r->clock.way)
                r->worded[i] = max_of(r->worded[i], sent);
        else
                r->late[i] = min_of(r->late[i], way);
}

/* We lead and commit, and yet every answer comes late: it is the way that is long, longer than
 * the heartbeats were chosen for. */
static void learn_way(struct replica *r)
{
        unsigned need = n_voters(r) / 2;
        nsec_t late[REPLICA_PEERS_MAX];

        if (need == 0 ||
            r->words_unanswered < (unsigned) (4 * r->cfg.election / r->cfg.heartbeat) ||
            voters_sorted(r, r->late, late) < need || late[need - 1] == INT64_MAX)
                return;
        log_warning("The way to a majority of the replicas and back takes %lld ms; choose a "
                    "HeartbeatInterval above that.",
                    (long long) (late[need - 1] / NSEC_PER_MSEC));
        r->clock.way = late[need - 1];
        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                r->late[i] = INT64_MAX;
}

/* Whether what is appended gets committed. */
static bool commits_move(struct replica *r)
{
        uint64_t commit = raft_commit_index(&r->raft);

        if (commit > r->moved_commit || log_last(&r->log) <= commit) {
                r->moved_commit = commit;
                r->moved_at = r->now;
        }
        return boot_diff(r->now, r->moved_at) <= lease_clock_limit(&r->clock);
}

static void send_all(struct replica *r, enum frame_type type, const uint64_t *v, size_t n)
{
        for (unsigned i = 0; i < conf(r)->n; i++)
                if (conf(r)->servers[i].id != r->cfg.id)
                        send_frame(r, conf(r)->servers[i].id, type, v, n);
}

/* A new leader asks what lease time the others have heard of, until a majority has told. */
static void ask_time(struct replica *r)
{
        uint64_t term = raft_current_term(&r->raft);

        if (r->asking && boot_diff(r->now, r->asked_time_at) < r->cfg.heartbeat)
                return;
        r->asking = true;
        r->asked_time_at = r->now;
        send_all(r, FRAME_TIME_ASK, &term, 1);
}

static void on_time_told(struct replica *r, unsigned i, uint64_t term, uint64_t time)
{
        if (!r->asking || conf(r)->servers[i].role != RAFT_VOTER)
                return;
        r->time_told |= UINT64_C(1) << i;
        lease_clock_told(&r->clock, term, (struct lease_time){(nsec_t) time}, r->now);
}

/* Keeps lease time going, as long as a majority answers and commits move. */
static void run_clock(struct replica *r)
{
        nsec_t outages;

        if (!is_leader(r) || !r->ready)
                return;
        if (!r->clock.running) {
                if ((unsigned) __builtin_popcountll(r->time_told) + 1 <= n_voters(r) / 2)
                        return ask_time(r);
                r->asking = false;
                r->moved_at = r->now;
                lease_clock_start(&r->clock, raft_current_term(&r->raft), r->now);
        }
        outages = r->clock.outages;
        if (commits_move(r)) {
                if (boot_before(r->clock.since, majority_worded(r)))
                        r->words_unanswered = 0;
                lease_clock_confirm(&r->clock, majority_worded(r));
                learn_way(r);
        }
        if (r->clock.outages > outages)
                log_debug("For %lld ms nothing could be renewed; no lease pays for that.",
                          (long long) ((r->clock.outages - outages) / NSEC_PER_MSEC));
        if (boot_diff(r->now, r->worded_at) < r->cfg.heartbeat * 9 / 10)
                return;
        r->worded_at = r->now;
        r->words_unanswered++;
        send_all(r, FRAME_WORD,
                 (uint64_t[]){raft_current_term(&r->raft), (uint64_t) r->now.ns,
                              (uint64_t) lease_clock_give(&r->clock, r->now).ns},
                 3);
}

struct lease_time replica_lease_time(const struct replica *r, struct boot_time now)
{
        return lease_clock_read(&r->clock, now);
}

struct boot_time replica_lease_when(const struct replica *r, struct lease_time t,
                                    struct boot_time now)
{
        return is_leader(r) ? lease_clock_when(&r->clock, t, now) : BOOT_TIME_NEVER;
}

bool replica_healthy(const struct replica *r, struct boot_time now)
{
        return is_leader(r) && r->ready && lease_clock_healthy(&r->clock, now);
}

/* ---- reads ---- */

static void reads_clear(struct reads *list)
{
        struct read *rd;

        while ((rd = STAILQ_FIRST(list))) {
                STAILQ_REMOVE_HEAD(list, next);
                free(rd);
        }
}

static void reads_add(struct replica *r, struct reads *list, uint64_t id, uint64_t peer)
{
        struct read *rd = calloc(1, sizeof(*rd));

        if (!rd)
                return fatal(r, "out of memory");
        rd->id = id;
        rd->peer = peer;
        STAILQ_INSERT_TAIL(list, rd, next);
}

static void send_frame(struct replica *r, uint64_t peer, enum frame_type type,
                       const uint64_t *v, size_t n)
{
        cleanup_(buf_fini) struct buf f = {0};

        buf_add_u8(&f, (uint8_t) type);
        for (size_t i = 0; i < n; i++)
                buf_add_u64(&f, v[i]);
        if (buf_error(&f) == 0)
                r->ops->send(r->userdata, peer, (struct view){f.data, buf_len(&f)});
}

static void answer_round(struct replica *r)
{
        struct read *rd;

        r->round_on = false;
        while ((rd = STAILQ_FIRST(&r->in_round))) {
                STAILQ_REMOVE_HEAD(&r->in_round, next);
                if (rd->peer == 0)
                        r->ops->read_at(r->userdata, rd->id, r->round_index);
                else
                        send_frame(r, rd->peer, FRAME_READ_TELL,
                                   (uint64_t[]){rd->id, r->round_index}, 2);
                free(rd);
        }
}

static void ping_peers(struct replica *r)
{
        r->round_at = r->now;
        send_all(r, FRAME_READ_PING, (uint64_t[]){raft_current_term(&r->raft), r->round}, 2);
}

static void start_round(struct replica *r)
{
        if (r->round_on || !r->ready || STAILQ_EMPTY(&r->waiting))
                return;
        STAILQ_CONCAT(&r->in_round, &r->waiting);
        r->round++;
        r->round_index = raft_commit_index(&r->raft);
        r->round_acks = 0;
        r->round_acked = 0;
        r->round_on = true;
        if (n_voters(r) <= 1)
                return answer_round(r);
        ping_peers(r);
}

static void ask_leader(struct replica *r)
{
        uint64_t leader = leader_id(r);
        struct read *rd;

        r->asked_at = r->now;
        if (leader != 0)
                STAILQ_FOREACH (rd, &r->asked, next)
                        send_frame(r, leader, FRAME_READ_ASK, &rd->id, 1);
}

void replica_read(struct replica *r, uint64_t id)
{
        if (is_leader(r)) {
                reads_add(r, &r->waiting, id, 0);
                return; /* replica_flush() starts the round: one for all that this iteration
                           brings */
        }
        reads_add(r, &r->asked, id, 0);
        if (leader_id(r) != 0)
                send_frame(r, leader_id(r), FRAME_READ_ASK, &id, 1);
}

static void on_pong(struct replica *r, unsigned i, uint64_t seq)
{
        if (!r->round_on || seq != r->round || conf(r)->servers[i].role != RAFT_VOTER ||
            (r->round_acked & UINT64_C(1) << i))
                return;
        r->round_acked |= UINT64_C(1) << i;
        if (++r->round_acks + 1 > n_voters(r) / 2)
                answer_round(r);
}

static void on_told(struct replica *r, uint64_t id, uint64_t index)
{
        struct read *rd;

        STAILQ_FOREACH (rd, &r->asked, next)
                if (rd->id == id) {
                        STAILQ_REMOVE(&r->asked, rd, read, next);
                        free(rd);
                        return r->ops->read_at(r->userdata, id, index);
                }
}

/* A leader that is none any more answers no read (I8): ours go to the new one, others' ask
 * again by themselves. */
static void reads_reroute(struct replica *r)
{
        struct reads own = STAILQ_HEAD_INITIALIZER(own);
        struct read *rd;

        STAILQ_CONCAT(&own, &r->in_round);
        STAILQ_CONCAT(&own, &r->waiting);
        STAILQ_CONCAT(&own, &r->asked);
        r->round_on = false;
        while ((rd = STAILQ_FIRST(&own))) {
                STAILQ_REMOVE_HEAD(&own, next);
                if (rd->peer == 0)
                        STAILQ_INSERT_TAIL(is_leader(r) ? &r->waiting : &r->asked, rd, next);
                else
                        free(rd);
        }
        if (!is_leader(r))
                ask_leader(r);
}

/* ---- raft ---- */

static void step(struct replica *r, struct raft_event *ev);

static bool entry_of(void *userdata, uint64_t index, uint64_t *ret_term, uint8_t *ret_type,
                     struct view *ret_data)
{
        const struct replica *r = userdata;
        const struct log_entry *e = log_get(&r->log, index);

        if (!e)
                return false;
        *ret_term = e->term;
        *ret_type = e->type;
        *ret_data = (struct view){e->data, e->len};
        return true;
}

static uint64_t term_of(const struct replica *r, uint64_t index)
{
        const struct log_entry *e = log_get(&r->log, index);

        return e ? e->term : index == r->snap_index ? r->snap_term : 0;
}

static void send_message(struct replica *r, const struct raft_message *m)
{
        cleanup_(buf_fini) struct buf f = {0}, data = {0};
        struct raft_message out = *m;
        int e;

        if (m->type == RAFT_REQUEST_VOTE_RESULT && m->request_vote_result.pre_vote &&
            !m->request_vote_result.vote_granted)
                /* [libraft] A refused pre-vote must tell the higher term, or nobody is ever
                 * elected. */
                out.request_vote_result.term =
                        max_of(m->request_vote_result.term, raft_current_term(&r->raft));
        if (m->type == RAFT_INSTALL_SNAPSHOT) {
                /* Not the snapshot on disk but the state as it is now: newer, and not kept
                 * twice. */
                int i = peer_position(r, m->server_id);

                /* [libraft] It may ask for one with every answer of a replica that installs
                 * one already. */
                if (i < 0 || boot_diff(r->now, r->snapshot_sent[i]) < r->cfg.election ||
                    r->applied < m->install_snapshot.last_index || term_of(r, r->applied) == 0)
                        return;
                r->snapshot_sent[i] = r->now;
                r->ops->save(r->userdata, &data);
                out.install_snapshot.last_index = r->applied;
                out.install_snapshot.last_term = term_of(r, r->applied);
                out.install_snapshot.conf = r->raft.configuration_committed;
                out.install_snapshot.conf_index = r->raft.configuration_committed_index;
                log_debug("Sending a snapshot up to entry %" PRIu64 " (%zu bytes) to %016llx.",
                          r->applied, buf_len(&data), m->server_id);
        }
        if (buf_error(&data) < 0)
                return fatal(r, "out of memory");
        e = message_encode(&out, entry_of, r, (struct view){data.data, buf_len(&data)}, &f);
        if (e == -ENOENT)
                return; /* compacted meanwhile: raft notices, and sends a snapshot */
        if (e < 0)
                return fatal(r, "out of memory");
        r->ops->send(r->userdata, m->server_id, (struct view){f.data, buf_len(&f)});
}

static void drop_batches(struct replica *r)
{
        struct batch *b;

        while ((b = STAILQ_FIRST(&r->batches))) {
                STAILQ_REMOVE_HEAD(&r->batches, next);
                buf_fini(&b->bytes);
                free(b);
        }
        buf_clear(&r->urgent);
        r->queued = 0;
}

static void announce(struct replica *r)
{
        struct replica_status s = replica_status(r);

        if (s.leader == r->told.leader && s.ready == r->told.ready &&
            s.leader_id == r->told.leader_id && s.term == r->told.term)
                return;
        if (s.leader != r->told.leader || s.leader_id != r->told.leader_id ||
            s.term != r->told.term)
                reads_reroute(r);
        /* What waits here was proposed in a term that is over: who proposed it gives it up, or
         * proposes it again. Going on with it now would apply it twice. */
        if (s.term != r->told.term)
                drop_batches(r);
        r->told = s;
        r->ops->changed(r->userdata);
}

static void become_leader(struct replica *r)
{
        struct raft_event ev = {.type = RAFT_SUBMIT};
        struct raft_entry e = {.term = raft_current_term(&r->raft), .type = RAFT_BARRIER};

        /* [libraft] It adds an entry of its own only where the log is longer than the commit
         * index; we need one always, to know that what was committed before is (Raft section
         * 8). */
        r->ready = false;
        memset(r->worded, 0, sizeof(r->worded));
        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                r->late[i] = INT64_MAX;
        memset(r->told_commit, 0, sizeof(r->told_commit));
        r->asking = false;
        r->time_told = 0;
        e.buf.len = 8;
        e.buf.base = e.batch = raft_calloc(1, 8);
        if (!e.batch)
                return fatal(r, "out of memory");
        ev.submit.entries = &e;
        ev.submit.n = 1;
        r->first_of_term = log_last(&r->log) + 1;
        step(r, &ev);
        ask_time(r);
}

/* An entry of commands begins with the lease time at which the leader appended it. */
static struct lease_time stamp_of(const void *data, size_t len)
{
        return (struct lease_time){len < STAMP ? 0 : (nsec_t) le64_get(data)};
}

static void apply_change(struct replica *r, const struct log_entry *e, uint64_t index)
{
        struct raft_buffer b = {e->data, e->len};
        struct raft_event ev = {.type = RAFT_CONFIGURATION, .configuration.index = index};

        if (r->raft.configuration_uncommitted_index != index)
                return;
        if (raft_configuration_decode(&b, &ev.configuration.conf) != 0)
                return fatal(r, "a committed configuration does not parse");
        step(r, &ev);
}

static void apply_committed(struct replica *r)
{
        while (r->applied < raft_commit_index(&r->raft) && !r->dead) {
                const struct log_entry *e = log_get(&r->log, r->applied + 1);
                uint64_t index = r->applied + 1;
                int k = 0;

                if (!e)
                        return; /* an install is under way */
                r->applied = index;
                r->snap_bytes_from += e->len;
                if (e->type == RAFT_COMMAND)
                        k = e->len < STAMP ? -EBADMSG
                                           : r->ops->apply(r->userdata, index, e->term,
                                                           stamp_of(e->data, e->len),
                                                           (struct view){e->data + STAMP,
                                                                         e->len - STAMP});
                else if (e->type == RAFT_CHANGE)
                        apply_change(r, e, index);
                if (k < 0)
                        return fatal(r, strerror(-k));
                if (is_leader(r) && !r->ready && index >= r->first_of_term &&
                    r->first_of_term > 0) {
                        r->ready = true;
                        run_clock(r);
                }
        }
}

static void save_entries(struct replica *r, const struct raft_update *u)
{
        uint64_t first = u->entries.index;
        struct store_entry *se;

        if (first <= log_last(&r->log)) {
                log_cut(&r->log, first);
                r->durable = min_of(r->durable, first - 1);
        }
        se = calloc(u->entries.n, sizeof(*se));
        if (!se)
                return fatal(r, "out of memory");
        for (unsigned i = 0; i < u->entries.n; i++) {
                const struct raft_entry *e = &u->entries.batch[i];

                if (e->type == RAFT_COMMAND)
                        lease_clock_told(&r->clock, e->term, stamp_of(e->buf.base, e->buf.len),
                                         r->now);
                if (log_push(&r->log, e->term, (uint8_t) e->type, e->buf.base, e->buf.len) <
                    0) {
                        free(se);
                        return fatal(r, "out of memory");
                }
                se[i] = (struct store_entry){
                        .index = first + i,
                        .term = e->term,
                        .type = (uint8_t) e->type,
                        .data = {e->buf.base, e->buf.len},
                };
        }
        if (store_append(r->store, se, u->entries.n) < 0)
                fatal(r, "out of memory");
        free(se);
        raft_free(u->entries.batch[0].batch);
}

static int save_snapshot(struct replica *r, struct view data, bool install)
{
        struct raft_buffer c;
        int k;

        if (raft_configuration_encode(&r->pending.configuration, &c) != 0)
                return -ENOMEM;
        k = store_save_snapshot(r->store,
                                &(struct store_snapshot){
                                        .index = r->pending.index,
                                        .term = r->pending.term,
                                        .conf_index = r->pending.configuration_index,
                                        .conf = {c.base, c.len},
                                        .data = data,
                                },
                                install);
        raft_free(c.base);
        return k;
}

static void install_snapshot(struct replica *r, struct raft_update *u)
{
        r->installing = true;
        r->pending = u->snapshot.metadata; /* with its configuration */
        buf_clear(&r->pending_data);
        buf_add(&r->pending_data, u->snapshot.chunk.base, u->snapshot.chunk.len);
        raft_free(u->snapshot.chunk.base);
        log_cut(&r->log, 0);
        r->log.first = r->pending.index + 1;
        r->durable = 0;
        if (buf_error(&r->pending_data) < 0 ||
            save_snapshot(r,
                          (struct view){buf_head(&r->pending_data), buf_len(&r->pending_data)},
                          true) < 0)
                fatal(r, "out of memory");
}

static void step(struct replica *r, struct raft_event *ev)
{
        struct raft_update u = {0};
        bool was_leader = is_leader(r);
        int k;

        if (r->dead)
                return;
        ev->time = to_raft(r->now);
        ev->capacity = UINT16_MAX;
        k = raft_step(&r->raft, ev, &u);
        if (k != 0) {
                char why[RAFT_ERRMSG_BUF_SIZE + 64];

                if (ev->type == RAFT_SUBMIT) {
                        raft_free(
                                ev->submit.entries[0]
                                        .batch); /* ours still; leadership may just have gone */
                        return;
                }
                snprintf(why, sizeof(why), "raft: %s (event %d)",
                         *raft_errmsg(&r->raft) ? raft_errmsg(&r->raft) : raft_strerror(k),
                         ev->type);
                return fatal(r, why);
        }
        if ((u.flags & (RAFT_UPDATE_CURRENT_TERM)) || (u.flags & (RAFT_UPDATE_VOTED_FOR))) {
                k = store_vote(r->store, raft_current_term(&r->raft), raft_voted_for(&r->raft));
                if (k < 0)
                        return fatal(r, "cannot write term and vote (meta)");
        }
        if (u.flags & (RAFT_UPDATE_ENTRIES))
                save_entries(r, &u);
        if (u.flags & (RAFT_UPDATE_SNAPSHOT))
                install_snapshot(r, &u);
        if (u.flags & (RAFT_UPDATE_MESSAGES))
                for (unsigned i = 0; i < u.messages.n; i++)
                        send_message(r, &u.messages.batch[i]);
        if (was_leader && !is_leader(r)) {
                r->ready = r->asking = false;
                lease_clock_stop(&r->clock);
                r->first_of_term = 0;
        }
        if (!was_leader && is_leader(r))
                become_leader(r);
        if (u.flags & (RAFT_UPDATE_COMMIT_INDEX))
                apply_committed(r);
        announce(r);
}

static void take_snapshot(struct replica *r)
{
        cleanup_(buf_fini) struct buf data = {0};
        uint64_t every =
                r->cfg.snapshot_entries > 0 ? r->cfg.snapshot_entries : SNAPSHOT_ENTRIES;
        uint64_t term = term_of(r, r->applied);
        struct raft_buffer c;

        if (r->snapping || r->installing || r->dead || term == 0 ||
            r->applied == r->snap_index ||
            (r->applied - r->snap_index < every && r->snap_bytes_from < SNAPSHOT_BYTES &&
             !r->snapshot_wanted))
                return;
        r->snapshot_wanted = false;
        r->snapping = true;
        r->snap_bytes_from = 0;
        r->ops->save(r->userdata, &data);
        r->pending = (struct raft_snapshot_metadata){
                .index = r->applied,
                .term = term,
                .configuration_index = r->raft.configuration_committed_index,
        };
        if (raft_configuration_encode(&r->raft.configuration_committed, &c) != 0)
                return fatal(r, "out of memory");
        if (raft_configuration_decode(&c, &r->pending.configuration) != 0 ||
            buf_error(&data) < 0 ||
            save_snapshot(r, (struct view){data.data, buf_len(&data)}, false) < 0)
                fatal(r, "out of memory");
        raft_free(c.base);
}

/* ---- what the store tells ---- */

static void on_persisted(void *userdata, uint64_t index)
{
        struct replica *r = userdata;
        struct raft_event ev = {.type = RAFT_PERSISTED_ENTRIES};

        /* Never what was cut off meanwhile, nor anything during an install. */
        index = min_of(index, log_last(&r->log));
        if (r->installing || index <= r->durable)
                return;
        r->durable = index;
        ev.persisted_entries.index = index;
        step(r, &ev);
        run_clock(r);
}

static int load(struct replica *r, uint64_t term, struct view snapshot)
{
        struct lease_time t;
        int k = r->ops->load(r->userdata, snapshot, &t);

        if (k == 0)
                lease_clock_told(&r->clock, term, t, r->now);
        return k;
}

static void on_snapshot_done(void *userdata, uint64_t index)
{
        struct replica *r = userdata;
        struct raft_event ev = {0};
        uint64_t every =
                r->cfg.snapshot_entries > 0 ? r->cfg.snapshot_entries : SNAPSHOT_ENTRIES;
        uint64_t trailing = min_of((uint64_t) TRAILING, every);
        int k;

        if (index != r->pending.index)
                return; /* one of ours that an install overtook */
        r->snap_index = r->pending.index;
        r->snap_term = r->pending.term;
        if (r->installing) {
                r->installing = r->snapping = false;
                k = load(r, r->pending.term,
                         (struct view){buf_head(&r->pending_data), buf_len(&r->pending_data)});
                buf_fini(&r->pending_data);
                if (k < 0)
                        return fatal(r, "the leader's snapshot does not load");
                r->applied = r->durable = index;
                r->ops->skipped(r->userdata);
                ev.type = RAFT_PERSISTED_SNAPSHOT;
                ev.persisted_snapshot.metadata = r->pending;
                ev.persisted_snapshot.last = true;
                step(r, &ev);
        } else {
                r->snapping = false;
                ev.type = RAFT_SNAPSHOT;
                ev.snapshot.metadata = r->pending;
                ev.snapshot.trailing = (unsigned) trailing;
                step(r, &ev);
                if (index > trailing)
                        log_trim(&r->log, index - trailing);
        }
        store_trim(r->store, r->log.first - 1);
}

static void on_failed(void *userdata, const char *file, int e)
{
        char why[256];

        snprintf(why, sizeof(why), "cannot write %s: %s", file, strerror(-e));
        fatal(userdata, why);
}

static const struct store_ops store_ops = {
        .persisted = on_persisted,
        .snapshot_done = on_snapshot_done,
        .failed = on_failed,
};

/* ---- start ---- */

/* The first entry of every replica of a new cluster: its members. */
static int bootstrap(struct replica *r)
{
        struct raft_configuration c;
        struct raft_buffer b;
        int k = 0;

        raft_configuration_init(&c);
        for (size_t i = 0; i < r->cfg.n_peers && k == 0; i++)
                k = raft_configuration_add(&c, r->cfg.peers[i].id, r->cfg.peers[i].address,
                                           RAFT_VOTER);
        if (k == 0)
                k = raft_configuration_encode(&c, &b);
        raft_configuration_close(&c);
        if (k != 0)
                return k == RAFT_NOMEM ? -ENOMEM : -EINVAL;
        k = log_push(&r->log, 1, RAFT_CHANGE, b.base, b.len);
        if (k == 0)
                k = store_init(r->store,
                               (struct store_identity){.cluster_id = r->cfg.cluster_id,
                                                       .member_id = r->cfg.id},
                               1,
                               &(struct store_entry){.index = 1,
                                                     .term = 1,
                                                     .type = RAFT_CHANGE,
                                                     .data = {b.base, b.len}});
        raft_free(b.base);
        return k;
}

static int load_recovered(struct replica *r, struct raft_snapshot_metadata *meta,
                          struct store_error *err)
{
        const struct store_recovered *rec = store_recovered(r->store);
        struct raft_buffer b;
        int k;

        if (!rec->fresh && (rec->identity.cluster_id != r->cfg.cluster_id ||
                            rec->identity.member_id != r->cfg.id)) {
                snprintf(err->text, sizeof(err->text),
                         "the data directory belongs to member %016" PRIx64
                         " of cluster %016" PRIx64
                         ", but the configuration makes this member %016" PRIx64
                         " of cluster %016" PRIx64
                         "; use its own --name, --initial-cluster and --initial-cluster-token, "
                         "or another --data-dir",
                         rec->identity.member_id, rec->identity.cluster_id, r->cfg.id,
                         r->cfg.cluster_id);
                return -EINVAL;
        }
        if (rec->snapshot.index > 0) {
                b = (struct raft_buffer){(void *) (uintptr_t) rec->snapshot.conf.p,
                                         rec->snapshot.conf.len};
                if (raft_configuration_decode(&b, &meta->configuration) != 0 ||
                    load(r, rec->snapshot.term, rec->snapshot.data) < 0) {
                        snprintf(err->text, sizeof(err->text),
                                 "snapshot-%016" PRIx64 " does not load", rec->snapshot.index);
                        return -EBADMSG;
                }
                meta->index = r->snap_index = r->applied = rec->snapshot.index;
                meta->term = r->snap_term = rec->snapshot.term;
                meta->configuration_index = rec->snapshot.conf_index;
        }
        log_init(&r->log, rec->n_entries > 0 ? rec->entries[0].index : rec->snapshot.index + 1);
        for (size_t i = 0; i < rec->n_entries; i++) {
                const struct store_entry *e = &rec->entries[i];

                if (e->type == RAFT_COMMAND)
                        lease_clock_told(&r->clock, e->term, stamp_of(e->data.p, e->data.len),
                                         r->now);
                k = log_push(&r->log, e->term, e->type, e->data.p, e->data.len);
                if (k < 0)
                        return k;
        }
        return 0;
}

int replica_new(struct replica **ret, const struct replica_config *cfg, struct disk *d,
                const struct replica_ops *ops, void *userdata, struct boot_time now,
                struct store_error *err)
{
        cleanup_(replica_freep) struct replica *r = calloc(1, sizeof(*r));
        bool fresh;
        int k;

        if (!r)
                return -ENOMEM;
        r->cfg = *cfg;
        r->ops = ops;
        r->userdata = userdata;
        r->now = now;
        lease_clock_init(&r->clock, cfg->heartbeat, CLIENT_RETRY);
        r->leader_down_at = BOOT_TIME_NEVER;
        STAILQ_INIT(&r->batches);
        STAILQ_INIT(&r->waiting);
        STAILQ_INIT(&r->in_round);
        STAILQ_INIT(&r->asked);

        k = store_open(&r->store, d, &store_ops, r, err);
        if (k < 0)
                return k;
        for (size_t i = 0; i < cfg->n_peers; i++)
                if (cfg->peers[i].id == cfg->id)
                        r->address = strdup(cfg->peers[i].address);
        if (!r->address || raft_init(&r->raft, NULL, NULL, cfg->id, r->address) != 0)
                return -ENOMEM;
        r->raft_up = true;
        raft_seed(&r->raft, (unsigned) cfg->seed);
        raft_set_election_timeout(&r->raft, (unsigned) (cfg->election / NSEC_PER_MSEC));
        raft_set_heartbeat_timeout(&r->raft, (unsigned) (cfg->heartbeat / NSEC_PER_MSEC));
        raft_set_pre_vote(&r->raft, true);
        raft_set_max_inflight_entries(&r->raft, INFLIGHT_MAX);
        raft_set_install_snapshot_timeout(&r->raft, 10000);

        k = load_recovered(r, &r->start_meta, err);
        if (k < 0)
                return k;
        fresh = store_recovered(r->store)->fresh;
        r->start_term = fresh ? 1 : store_recovered(r->store)->term;
        r->start_vote = store_recovered(r->store)->vote;
        store_recovered_free(r->store);
        if (fresh) {
                k = bootstrap(r);
                if (k < 0) {
                        snprintf(err->text, sizeof(err->text),
                                 "cannot set up the data directory: %s", strerror(-k));
                        return k;
                }
        }
        *ret = take_ptr(r);
        return 0;
}

int replica_start(struct replica *r)
{
        struct raft_event ev = {.type = RAFT_START};
        struct raft_entry *e = raft_calloc(r->log.n + 1, sizeof(*e));

        if (!e)
                return -ENOMEM;
        for (size_t i = 0; i < r->log.n; i++) {
                const struct log_entry *le = log_get(&r->log, r->log.first + i);

                e[i].term = le->term;
                e[i].type = le->type;
                e[i].buf = (struct raft_buffer){le->data, le->len};
                e[i].batch = le->data;
        }
        ev.start.term = r->start_term;
        ev.start.voted_for = r->start_vote;
        ev.start.metadata = r->start_meta.index > 0 ? &r->start_meta : NULL;
        ev.start.start_index = r->log.first;
        ev.start.entries = e;
        ev.start.n_entries = (unsigned) r->log.n;
        r->durable = log_last(&r->log);
        step(r, &ev);
        raft_free(e);
        return r->dead ? -EIO : 0;
}

struct replica *replica_free(struct replica *r)
{
        struct batch *b;

        if (!r)
                return NULL;
        while ((b = STAILQ_FIRST(&r->batches))) {
                STAILQ_REMOVE_HEAD(&r->batches, next);
                buf_fini(&b->bytes);
                free(b);
        }
        reads_clear(&r->waiting);
        reads_clear(&r->in_round);
        reads_clear(&r->asked);
        if (r->raft_up)
                raft_close(&r->raft, NULL);
        if (r->snapping || r->installing)
                raft_configuration_close(&r->pending.configuration);
        buf_fini(&r->urgent);
        buf_fini(&r->pending_data);
        log_fini(&r->log);
        store_free(r->store);
        free(r->address);
        free(r);
        return NULL;
}

/* ---- from the peers and the clock ---- */

void replica_peer_down(struct replica *r, uint64_t peer, struct boot_time now)
{
        r->now = boot_max(r->now, now);
        if (!is_leader(r) && peer == leader_id(r) && r->leader_down_at.ns == BOOT_TIME_NEVER.ns)
                r->leader_down_at = boot_add(r->now, 2 * r->cfg.heartbeat);
}

/* Which of the voters that are left we are: they stand for election one after the other, so
 * that votes are not split. */
static unsigned rank_without(const struct replica *r, uint64_t leader)
{
        unsigned rank = 0;

        for (unsigned i = 0; i < conf(r)->n && conf(r)->servers[i].id != r->cfg.id; i++)
                rank += conf(r)->servers[i].role == RAFT_VOTER &&
                        conf(r)->servers[i].id != leader;
        return rank;
}

/* [libraft] It has no event for "the leader is gone": we take the leader from it, so that it
 * votes for another one, and let its election timer run out when our turn comes. */
static void check_leader_down(struct replica *r)
{
        unsigned wait = 2 * rank_without(r, leader_id(r)) *
                        (unsigned) (r->cfg.heartbeat / NSEC_PER_MSEC);

        if (boot_before(r->now, r->leader_down_at))
                return;
        r->leader_down_at = BOOT_TIME_NEVER;
        if (raft_state(&r->raft) != RAFT_FOLLOWER || leader_id(r) == 0)
                return;
        log_debug("The link from the leader is down; electing another.");
        raft_free(r->raft.follower_state.current_leader.address);
        r->raft.follower_state.current_leader.address = NULL;
        r->raft.follower_state.current_leader.id = 0;
        r->raft.election_timer_start =
                to_raft(r->now) - r->raft.follower_state.randomized_election_timeout + wait;
        announce(r);
}

static bool wants(struct replica *r, uint64_t peer, struct raft_message *m)
{
        raft_index match;

        switch (m->type) {
        case RAFT_REQUEST_VOTE_RESULT:
                /* [libraft] Counted into the wrong member of a union when we are no candidate.
                 */
                return raft_state(&r->raft) == RAFT_CANDIDATE;
        case RAFT_APPEND_ENTRIES_RESULT:
                /* [libraft] A rejection of what was accepted since breaks an invariant. */
                return m->append_entries_result.rejected == 0 ||
                       raft_match_index(&r->raft, peer, &match) != 0 ||
                       m->append_entries_result.rejected > match;
        case RAFT_INSTALL_SNAPSHOT:
                /* [libraft] A second one while the first installs leaks. */
                return !r->installing && !r->snapping;
        default:
                return true;
        }
}

/* [libraft] An AppendEntries that starts before our compaction point is rejected: let it start
 * there. */
static void skip_compacted(struct replica *r, struct raft_append_entries *p)
{
        uint64_t skip;

        if (r->snap_index == 0 || p->prev_log_index + 1 >= r->log.first ||
            p->prev_log_index >= r->snap_index)
                return;
        skip = r->snap_index - p->prev_log_index;
        if (skip >= p->n_entries) {
                if (p->n_entries > 0) {
                        raft_free(p->entries[0].batch);
                        raft_free(p->entries);
                }
                p->entries = NULL;
                p->n_entries = 0;
        } else {
                memmove(p->entries, p->entries + skip,
                        (p->n_entries - skip) * sizeof(*p->entries));
                p->n_entries -= (unsigned) skip;
        }
        p->prev_log_index = r->snap_index;
        p->prev_log_term = r->snap_term;
}

static void receive(struct replica *r, uint64_t peer, struct raft_message *m)
{
        struct raft_event ev = {.type = RAFT_RECEIVE};
        struct raft_entry *entries = NULL;
        int i = peer_position(r, peer);

        if (i < 0 || !wants(r, peer, m))
                return message_discard(m);
        if (m->type == RAFT_APPEND_ENTRIES) {
                skip_compacted(r, &m->append_entries);
                entries = m->append_entries.entries;
        }
        m->server_id = peer;
        m->server_address = conf(r)->servers[i].address;
        ev.receive.message = m;
        step(r, &ev);
        raft_free(entries);
        if (!r->dead)
                run_clock(r);
}

static int add_batch(struct replica *r, const void *p, size_t n)
{
        struct batch *b = STAILQ_LAST(&r->batches, batch, next);

        if (!b || buf_len(&b->bytes) + n > ENTRY_BYTES) {
                b = calloc(1, sizeof(*b));
                if (!b)
                        return -ENOMEM;
                STAILQ_INSERT_TAIL(&r->batches, b, next);
        }
        buf_add(&b->bytes, p, n);
        r->queued += n;
        return buf_error(&b->bytes);
}

static int add_urgent(struct replica *r, const void *p, size_t n)
{
        buf_add(&r->urgent, p, n);
        return buf_error(&r->urgent);
}

int replica_propose(struct replica *r, const void *commands, size_t n,
                    enum replica_priority priority)
{
        if (r->dead || leader_id(r) == 0)
                return -ENOTCONN;
        if (priority == REPLICA_URGENT)
                return add_urgent(r, commands, n);
        return r->queued + n > QUEUED_BYTES_MAX ? -ENOBUFS : add_batch(r, commands, n);
}

/* Whether frame @n of that life of a sender is new: none is taken twice, whatever the links do.
 * A window as in RFC 4303, 3.4.3. */
static bool is_new(struct window *w, uint64_t life, uint64_t n)
{
        uint64_t bit;

        if (w->life != life)
                *w = (struct window){.life = life};
        if (n > w->high) {
                w->seen = n - w->high < 64 ? w->seen << (n - w->high) : 0;
                w->high = n;
        } else if (w->high - n >= 64) {
                return false;
        }
        bit = UINT64_C(1) << (w->high - n);
        if (w->seen & bit)
                return false;
        w->seen |= bit;
        return true;
}

static int on_proposed(struct replica *r, uint64_t peer, struct view in)
{
        uint64_t term, life, n;
        uint8_t priority;
        int i = peer_position(r, peer), k = view_u64(&in, &term);

        if (k == 0)
                k = view_u64(&in, &life);
        if (k == 0)
                k = view_u64(&in, &n);
        if (k == 0)
                k = view_u8(&in, &priority);
        if (k < 0)
                return k;
        if (priority > REPLICA_URGENT)
                return -EBADMSG;
        /* Its sender gives up what it proposed in an older term; taking it now would apply it
         * behind its back. */
        if (!is_leader(r) || term != raft_current_term(&r->raft) || i < 0 ||
            !is_new(&r->proposed[i], life, n) || r->queued + in.len > QUEUED_BYTES_MAX)
                return 0;
        k = priority == REPLICA_URGENT ? add_urgent(r, in.p, in.len)
                                       : add_batch(r, in.p, in.len);
        if (k < 0)
                fatal(r, "out of memory");
        return 0;
}

/* How many numbers follow the type of the frames that are our own. */
static int numbers_in(uint8_t type)
{
        switch (type) {
        case FRAME_WORD:
        case FRAME_TIME_TELL:
                return 3;
        case FRAME_READ_PING:
        case FRAME_READ_PONG:
        case FRAME_READ_TELL:
        case FRAME_WORD_ACK:
                return 2;
        case FRAME_READ_ASK:
        case FRAME_TIME_ASK:
                return 1;
        default:
                return -EBADMSG;
        }
}

/* What one who follows @peer in this term answers. */
static void on_leader_frame(struct replica *r, uint64_t peer, uint8_t type, const uint64_t *v)
{
        switch (type) {
        case FRAME_READ_PING:
                return send_frame(r, peer, FRAME_READ_PONG, v, 2);
        case FRAME_WORD:
                lease_clock_told(&r->clock, v[0], (struct lease_time){(nsec_t) v[2]}, r->now);
                return send_frame(r, peer, FRAME_WORD_ACK, v, 2);
        case FRAME_TIME_ASK:
                return send_frame(
                        r, peer, FRAME_TIME_TELL,
                        (uint64_t[]){v[0], r->clock.term, (uint64_t) r->clock.known.ns}, 3);
        }
}

/* What a follower sends to the leader of this term. */
static void on_follower_frame(struct replica *r, uint64_t peer, uint8_t type, const uint64_t *v)
{
        int i = peer_position(r, peer);

        if (i < 0)
                return;
        switch (type) {
        case FRAME_READ_PONG:
                return on_pong(r, (unsigned) i, v[1]);
        case FRAME_TIME_TELL:
                on_time_told(r, (unsigned) i, v[1], v[2]);
                return run_clock(r);
        case FRAME_WORD_ACK:
                on_word_ack(r, (unsigned) i, (nsec_t) v[1]);
                return run_clock(r);
        }
}

int replica_input(struct replica *r, uint64_t peer, struct view frame, struct boot_time now)
{
        struct raft_message m;
        uint64_t v[3] = {0};
        uint8_t type;
        int n, k = view_u8(&frame, &type);

        r->now = boot_max(r->now, now);
        if (k < 0)
                return k;
        if (peer == leader_id(r))
                r->leader_down_at = BOOT_TIME_NEVER;
        if (type == FRAME_RAFT) {
                k = message_decode(frame, &m);
                if (k == -ENOMEM)
                        fatal(r, "out of memory");
                if (k == 0)
                        receive(r, peer, &m);
                return k;
        }
        if (type == FRAME_PROPOSE)
                return on_proposed(r, peer, frame);
        n = numbers_in(type);
        for (int i = 0; i < n && k == 0; i++)
                k = view_u64(&frame, &v[i]);
        if (n < 0 || k < 0)
                return -EBADMSG;
        if (type == FRAME_READ_ASK && is_leader(r))
                reads_add(r, &r->waiting, v[0], peer);
        else if (type == FRAME_READ_TELL)
                on_told(r, v[0], v[1]);
        else if (v[0] != raft_current_term(&r->raft))
                return 0;
        else if (is_leader(r))
                on_follower_frame(r, peer, type, v);
        else if (raft_state(&r->raft) == RAFT_FOLLOWER && leader_id(r) == peer)
                on_leader_frame(r, peer, type, v);
        return 0;
}

void replica_tick(struct replica *r, struct boot_time now)
{
        r->now = boot_max(r->now, now);
        if (r->dead)
                return;
        check_leader_down(r);
        if (raft_timeout(&r->raft) <= to_raft(r->now)) {
                struct raft_event ev = {.type = RAFT_TIMEOUT};

                step(r, &ev);
        }
        run_clock(r);
        /* Frames may be lost: reads ask again. */
        if (r->round_on && boot_diff(r->now, r->round_at) >= READ_RETRY)
                ping_peers(r);
        if (!STAILQ_EMPTY(&r->asked) && boot_diff(r->now, r->asked_at) >= READ_RETRY)
                ask_leader(r);
}

struct boot_time replica_next(const struct replica *r)
{
        struct boot_time raft = {(nsec_t) raft_timeout(&r->raft) * NSEC_PER_MSEC};

        raft = boot_min(raft, r->leader_down_at);
        if (is_leader(r) || r->round_on || !STAILQ_EMPTY(&r->asked))
                return boot_min(raft, boot_add(r->now, r->cfg.heartbeat));
        return raft;
}

static size_t uncommitted_bytes(const struct replica *r)
{
        size_t n = 0;

        for (uint64_t i = raft_commit_index(&r->raft) + 1; i <= log_last(&r->log); i++)
                n += log_get(&r->log, i) ? log_get(&r->log, i)->len : 0;
        return n;
}

/* Not before it is known what lease time it is. */
static bool may_append(const struct replica *r)
{
        return r->ready && lease_clock_healthy(&r->clock, r->now);
}

/* One entry: what is urgent first, then the oldest batch. */
static bool submit_entry(struct replica *r)
{
        struct batch *b = STAILQ_FIRST(&r->batches);
        size_t n_urgent = buf_len(&r->urgent), n = n_urgent + (b ? buf_len(&b->bytes) : 0);
        struct raft_event ev = {.type = RAFT_SUBMIT};
        struct raft_entry e = {.term = raft_current_term(&r->raft), .type = RAFT_COMMAND};

        if (n == 0 || log_last(&r->log) - raft_commit_index(&r->raft) >= UNCOMMITTED_MAX ||
            uncommitted_bytes(r) > UNCOMMITTED_BYTES_MAX)
                return false;
        e.buf.len = STAMP + n;
        e.buf.base = e.batch = raft_malloc(e.buf.len);
        if (!e.batch) {
                fatal(r, "out of memory");
                return false;
        }
        le64_put(e.batch, (uint64_t) lease_clock_give(&r->clock, r->now).ns);
        if (n_urgent > 0)
                memcpy((uint8_t *) e.batch + STAMP, buf_head(&r->urgent), n_urgent);
        buf_clear(&r->urgent);
        if (b) {
                memcpy((uint8_t *) e.batch + STAMP + n_urgent, buf_head(&b->bytes),
                       buf_len(&b->bytes));
                r->queued -= buf_len(&b->bytes);
                STAILQ_REMOVE_HEAD(&r->batches, next);
                buf_fini(&b->bytes);
                free(b);
        }
        ev.submit.entries = &e;
        ev.submit.n = 1;
        step(r, &ev);
        return true;
}

/* Followers learn what is committed from the next message; when none follows at once they would
 * apply it, and tell their watchers, up to a heartbeat late. So each gets a heartbeat as soon
 * as it has what was committed. To raft it is one like any other. */
static void tell_commit(struct replica *r)
{
        uint64_t commit = raft_commit_index(&r->raft);

        if (!is_leader(r) || log_last(&r->log) > commit)
                return;
        for (unsigned i = 0; i < conf(r)->n && i < REPLICA_PEERS_MAX; i++) {
                struct raft_message m = {.type = RAFT_APPEND_ENTRIES,
                                         .server_id = conf(r)->servers[i].id};
                raft_index match;

                if (m.server_id == r->cfg.id ||
                    raft_match_index(&r->raft, m.server_id, &match) != 0)
                        continue;
                match = min_of(match, (raft_index) commit);
                if (match <= r->told_commit[i] || term_of(r, match) == 0)
                        continue;
                r->told_commit[i] = match;
                m.append_entries.term = raft_current_term(&r->raft);
                m.append_entries.prev_log_index = match;
                m.append_entries.prev_log_term = term_of(r, match);
                m.append_entries.leader_commit = commit;
                send_message(r, &m);
        }
}

static void forward(struct replica *r, enum replica_priority priority,
                    const struct buf *commands)
{
        cleanup_(buf_fini) struct buf f = {0};

        if (buf_len(commands) == 0)
                return;
        buf_add_u8(&f, FRAME_PROPOSE);
        buf_add_u64(&f, raft_current_term(&r->raft));
        buf_add_u64(&f, r->cfg.seed);
        buf_add_u64(&f, ++r->forwarded);
        buf_add_u8(&f, (uint8_t) priority);
        buf_add(&f, buf_head(commands), buf_len(commands));
        if (buf_error(&f) < 0)
                return fatal(r, "out of memory");
        r->ops->send(r->userdata, leader_id(r), (struct view){f.data, buf_len(&f)});
}

void replica_flush(struct replica *r, struct boot_time now)
{
        r->now = boot_max(r->now, now);
        if (r->dead)
                return;
        if (is_leader(r)) {
                start_round(r);
                while (is_leader(r) && may_append(r) && submit_entry(r))
                        ;
                tell_commit(r);
        } else if (leader_id(r) != 0) {
                struct batch *b;

                forward(r, REPLICA_URGENT, &r->urgent);
                STAILQ_FOREACH (b, &r->batches, next)
                        forward(r, REPLICA_NORMAL, &b->bytes);
                drop_batches(r);
        }
        take_snapshot(r);
        store_flush(r->store);
}

static void transfer(struct replica *r, uint64_t id)
{
        struct raft_event ev = {.type = RAFT_TRANSFER};

        ev.transfer.server_id = id;
        step(r, &ev);
}

void replica_step_down(struct replica *r, struct boot_time now)
{
        r->now = boot_max(r->now, now);
        if (is_leader(r) && n_voters(r) > 1 && raft_transferee(&r->raft) == 0)
                transfer(r, 0);
}

int replica_transfer(struct replica *r, uint64_t id, struct boot_time now)
{
        int i = peer_position(r, id);

        r->now = boot_max(r->now, now);
        if (!is_leader(r) || i < 0 || conf(r)->servers[i].role != RAFT_VOTER)
                return -EINVAL;
        if (id != r->cfg.id && raft_transferee(&r->raft) == 0)
                transfer(r, id);
        return 0;
}

void replica_want_snapshot(struct replica *r)
{
        r->snapshot_wanted = true;
}
