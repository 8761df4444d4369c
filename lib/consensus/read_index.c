/* Linearizable reads: one confirmation of leadership that many share (ReadIndex, Raft
 * thesis 6.4). */
#include "base/probe.h"
#include "consensus/internal.h"

#define READ_RETRY (200 * NSEC_PER_MSEC)

void reads_asked(struct replica *r, const struct peer_frame *in)
{
        struct asked_reads *w = &r->reading.waiting;
        size_t i = 0;

        while (i < w->n && w->all[i].peer != in->peer)
                i++;
        if (i == ARRAY_SIZE(w->all))
                return; /* it asks again */
        w->all[i] = (struct asked_read){.peer = in->peer, .id = in->v[0]};
        w->n = max_of(w->n, i + 1);
}

/* A leader that is not healthy may learn later that more lease time had passed by now. */
static struct lease_time confirmed_time(const struct replica *r)
{
        return lease_clock_healthy(&r->time.clock, r->now)
                       ? lease_clock_read(&r->time.clock, r->now)
                       : LEASE_TIME_NEVER;
}

/* Reads that are not answered READ_RETRY from now are requested again. */
static void expect_answer(struct replica *r)
{
        r->reading.overdue = r->reading.newest;
        r->reading.overdue_since = r->now;
}

static void answer_own(struct replica *r, uint64_t upto, uint64_t index, struct lease_time at)
{
        r->reading.answered = upto;
        if (r->reading.overdue <= upto)
                expect_answer(r);
        r->ops->read_at(r->userdata, upto, index, at);
}

static void answer_round(struct replica *r)
{
        struct asked_reads *in_round = &r->reading.in_round;
        struct lease_time at = confirmed_time(r);
        uint64_t index = r->reading.round_index;

        PROBE_IF(at.ns == LEASE_TIME_NEVER.ns,
                 "reads are confirmed while lease time stands still");
        r->reading.state = READING_NOTHING;
        for (size_t i = 0; i < in_round->n; i++)
                replica_send(r, in_round->all[i].peer, FRAME_READ_TELL,
                             (uint64_t[]){in_round->all[i].id, index, (uint64_t) at.ns}, 3);
        in_round->n = 0;
        if (r->reading.round_own > r->reading.answered)
                answer_own(r, r->reading.round_own, index, at);
}

static bool round_is_open(const struct replica *r)
{
        return r->reading.state == READING_ROUND;
}

static void ping(struct replica *r)
{
        r->reading.round_at = r->now;
        replica_send_all(r, FRAME_READ_PING, (uint64_t[]){replica_term(r), r->reading.round},
                         2);
}

void reads_members_changed(struct replica *r)
{
        r->reading.round_acked = 0;
        if (!round_is_open(r))
                return;
        PROBE("a round of reads is open while the members change");
        ping(r);
}

/* Starts the next round, unless one is under way. A round ends here if its answers are not
 * needed any more: the last other voter was removed meanwhile, and nobody can be elected
 * without our vote. */
static void start_round(struct replica *r)
{
        if (round_is_open(r) && replica_voters(r) <= 1) {
                PROBE("a round of reads ends because the last other voter was removed");
                answer_round(r);
        }
        if (round_is_open(r) || !replica_is_ready(r) || !reads_wait(r))
                return;
        r->reading.in_round = r->reading.waiting;
        r->reading.waiting.n = 0;
        r->reading.round_own = r->reading.newest;
        r->reading.round++;
        r->reading.round_index = libraft_commit(r);
        r->reading.round_acked = 0;
        r->reading.state = READING_ROUND;
        if (replica_voters(r) <= 1)
                return answer_round(r);
        ping(r);
}

bool reads_wait(const struct replica *r)
{
        return r->reading.newest != r->reading.answered || r->reading.waiting.n > 0 ||
               round_is_open(r);
}

void replica_read(struct replica *r, uint64_t id)
{
        if (r->reading.newest == 0)
                r->reading.answered = id - 1;
        r->reading.newest = id;
        if (!replica_leads(r))
                r->reading.state = READING_ASKS;
}

void reads_flush(struct replica *r)
{
        uint64_t leader = replica_leader(r);

        if (replica_leads(r))
                return start_round(r);
        if (r->reading.state != READING_ASKS || leader == 0 ||
            r->reading.newest == r->reading.answered)
                return;
        r->reading.state = READING_NOTHING;
        if (r->reading.overdue <= r->reading.answered)
                expect_answer(r);
        replica_send(r, leader, FRAME_READ_ASK, &r->reading.newest, 1);
}

void reads_link_made(struct replica *r, uint64_t peer)
{
        if (round_is_open(r))
                replica_send(r, peer, FRAME_READ_PING,
                             (uint64_t[]){replica_term(r), r->reading.round}, 2);
        else if (peer == replica_leader(r))
                r->reading.state = READING_ASKS;
}

/* Frames may be lost without a link that breaks. */
void reads_run(struct replica *r)
{
        if (round_is_open(r) && boot_diff(r->now, r->reading.round_at) >= READ_RETRY) {
                PROBE("a round of reads is asked again for its confirmation");
                r->counts.slow_reads++;
                ping(r);
        }
        if (replica_leads(r) || replica_leader(r) == 0 ||
            r->reading.overdue <= r->reading.answered ||
            boot_diff(r->now, r->reading.overdue_since) < READ_RETRY)
                return;
        PROBE("a leader is asked again about reads");
        r->counts.slow_reads++;
        r->reading.state = READING_ASKS;
        expect_answer(r);
}

void reads_ponged(struct replica *r, const struct peer_frame *in)
{
        if (!round_is_open(r) || in->v[1] != r->reading.round ||
            replica_conf(r)->servers[in->at].role != RAFT_VOTER)
                return;
        r->reading.round_acked |= UINT64_C(1) << in->at;
        if ((unsigned) __builtin_popcountll(r->reading.round_acked) + 1 > replica_voters(r) / 2)
                answer_round(r);
}

/* An answer to an earlier life of this process has an id that this one never used. */
void reads_answered(struct replica *r, const struct peer_frame *in)
{
        if (in->v[0] > r->reading.answered && in->v[0] <= r->reading.newest)
                answer_own(r, in->v[0], in->v[1], (struct lease_time){(nsec_t) in->v[2]});
}

/* A deposed leader answers no read (I8). Our own reads are sent to the new leader; other
 * replicas ask again by themselves. */
void reads_reroute(struct replica *r)
{
        PROBE_IF(round_is_open(r), "the leader changes while a round of reads is open");
        r->reading.state = replica_leads(r) ? READING_NOTHING : READING_ASKS;
        r->reading.in_round.n = r->reading.waiting.n = 0;
        expect_answer(r);
}
