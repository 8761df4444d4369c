/* Linearizable reads: one confirmation of leadership that many share (ReadIndex, Raft
 * thesis 6.4). */
#include "base/probe.h"
#include "consensus/internal.h"

#define SPARES 1024      /* answered reads, kept for reuse */
#define ASKED_AGAIN 4096 /* of the oldest, at a time: a leader that cannot answer keeps all */

static int id_cmp(const struct read *a, const struct read *b)
{
        return (a->id > b->id) - (a->id < b->id);
}

TREE_GENERATE(reads_asked, read, by_id, id_cmp)

static struct read *first(struct reads *list)
{
        struct read *rd = STAILQ_FIRST(list);

        if (rd)
                STAILQ_REMOVE_HEAD(list, next);
        return rd;
}

static struct read *first_asked(struct replica *r)
{
        struct read *rd = RB_ROOT(&r->reading.asked);

        if (rd)
                RB_REMOVE(reads_asked, &r->reading.asked, rd);
        return rd;
}

void reads_clear(struct replica *r)
{
        struct read *rd;

        while ((rd = first(&r->reading.waiting)) || (rd = first(&r->reading.in_round)) ||
               (rd = first_asked(r)) || (rd = first(&r->reading.spare)))
                free(rd);
        r->reading.n_spare = 0;
}

static void read_free(struct replica *r, struct read *rd)
{
        if (r->reading.n_spare == SPARES)
                return free(rd);
        STAILQ_INSERT_HEAD(&r->reading.spare, rd, next);
        r->reading.n_spare++;
}

static struct read *read_new(struct replica *r, uint64_t id, uint64_t peer)
{
        struct read *rd = first(&r->reading.spare);

        r->reading.n_spare -= rd != NULL;
        if (!rd)
                rd = malloc(sizeof(*rd));
        if (!rd) {
                replica_fatal(r, "out of memory");
                return NULL;
        }
        *rd = (struct read){.id = id, .peer = peer};
        return rd;
}

void reads_add(struct replica *r, struct reads *list, uint64_t id, uint64_t peer)
{
        struct read *rd = read_new(r, id, peer);

        if (rd)
                STAILQ_INSERT_TAIL(list, rd, next);
}

/* A leader that is not healthy may learn later that more lease time had passed by now. */
static struct lease_time confirmed_time(const struct replica *r)
{
        return lease_clock_healthy(&r->time.clock, r->now)
                       ? lease_clock_read(&r->time.clock, r->now)
                       : LEASE_TIME_NEVER;
}

static void answer_round(struct replica *r)
{
        struct lease_time at = confirmed_time(r);
        struct read *rd;

        PROBE_IF(at.ns == LEASE_TIME_NEVER.ns,
                 "reads are confirmed while lease time stands still");
        r->reading.round_on = false;
        while ((rd = first(&r->reading.in_round))) {
                if (rd->peer == 0)
                        r->ops->read_at(r->userdata, rd->id, r->reading.round_index, at);
                else
                        replica_send(
                                r, rd->peer, FRAME_READ_TELL,
                                (uint64_t[]){rd->id, r->reading.round_index, (uint64_t) at.ns},
                                3);
                read_free(r, rd);
        }
}

void reads_ping(struct replica *r)
{
        r->reading.round_at = r->now;
        replica_send_all(r, FRAME_READ_PING,
                         (uint64_t[]){raft_current_term(&r->raft), r->reading.round}, 2);
}

/* Starts the next round, unless one is under way. That one ends here if its answers are not
 * needed any more: the last other voter was removed meanwhile, and nobody can be elected
 * without our vote. */
void reads_start_round(struct replica *r)
{
        if (r->reading.round_on && replica_voters(r) <= 1) {
                PROBE("a round of reads ends because the last other voter was removed");
                answer_round(r);
        }
        if (r->reading.round_on || !r->ready || STAILQ_EMPTY(&r->reading.waiting))
                return;
        STAILQ_CONCAT(&r->reading.in_round, &r->reading.waiting);
        r->reading.round++;
        r->reading.round_index = raft_commit_index(&r->raft);
        r->reading.round_acks = 0;
        r->reading.round_acked = 0;
        r->reading.round_on = true;
        if (replica_voters(r) <= 1)
                return answer_round(r);
        reads_ping(r);
}

void reads_ask_leader(struct replica *r)
{
        uint64_t leader = replica_leader(r);
        struct read *rd;
        unsigned n = 0;

        r->reading.asked_at = r->now;
        if (leader == 0)
                return;
        RB_FOREACH (rd, reads_asked, &r->reading.asked) {
                if (n++ == ASKED_AGAIN)
                        break;
                replica_send(r, leader, FRAME_READ_ASK, &rd->id, 1);
        }
}

void replica_read(struct replica *r, uint64_t id)
{
        struct read *rd;

        if (replica_leads(r)) {
                reads_add(r, &r->reading.waiting, id, 0);
                return; /* replica_flush() starts one round for all reads of this turn */
        }
        rd = read_new(r, id, 0);
        if (!rd)
                return;
        RB_INSERT(reads_asked, &r->reading.asked, rd);
        if (replica_leader(r) != 0)
                replica_send(r, replica_leader(r), FRAME_READ_ASK, &id, 1);
}

void reads_ponged(struct replica *r, unsigned i, uint64_t seq)
{
        if (!r->reading.round_on || seq != r->reading.round ||
            replica_conf(r)->servers[i].role != RAFT_VOTER ||
            (r->reading.round_acked & UINT64_C(1) << i))
                return;
        r->reading.round_acked |= UINT64_C(1) << i;
        if (++r->reading.round_acks + 1 > replica_voters(r) / 2)
                answer_round(r);
}

void reads_answered(struct replica *r, uint64_t id, uint64_t index, struct lease_time at)
{
        struct read key = {.id = id}, *rd = RB_FIND(reads_asked, &r->reading.asked, &key);

        if (!rd)
                return;
        RB_REMOVE(reads_asked, &r->reading.asked, rd);
        read_free(r, rd);
        r->ops->read_at(r->userdata, id, index, at);
}

/* A deposed leader answers no read (I8). Our own reads are sent to the new leader; other
 * replicas ask again by themselves. */
void reads_reroute(struct replica *r)
{
        struct reads own = STAILQ_HEAD_INITIALIZER(own);
        struct read *rd;

        PROBE_IF(r->reading.round_on, "the leader changes while a round of reads is open");
        STAILQ_CONCAT(&own, &r->reading.in_round);
        STAILQ_CONCAT(&own, &r->reading.waiting);
        r->reading.round_on = false;
        while ((rd = first(&own)) || (replica_leads(r) && (rd = first_asked(r))))
                if (rd->peer != 0)
                        read_free(r, rd);
                else if (replica_leads(r))
                        STAILQ_INSERT_TAIL(&r->reading.waiting, rd, next);
                else
                        RB_INSERT(reads_asked, &r->reading.asked, rd);
        if (!replica_leads(r))
                reads_ask_leader(r);
}

static void drop(struct replica *r, struct reads *list, bool (*wanted)(uint64_t id, void *arg),
                 void *arg)
{
        struct reads kept = STAILQ_HEAD_INITIALIZER(kept);
        struct read *rd;

        while ((rd = first(list))) {
                if (rd->peer != 0 || wanted(rd->id, arg))
                        STAILQ_INSERT_TAIL(&kept, rd, next);
                else
                        read_free(r, rd);
        }
        STAILQ_CONCAT(list, &kept);
}

void replica_drop_reads(struct replica *r, bool (*wanted)(uint64_t id, void *arg), void *arg)
{
        struct read *rd, *next;

        RB_FOREACH_SAFE (rd, reads_asked, &r->reading.asked, next)
                if (!wanted(rd->id, arg)) {
                        RB_REMOVE(reads_asked, &r->reading.asked, rd);
                        read_free(r, rd);
                }
        drop(r, &r->reading.waiting, wanted, arg);
        drop(r, &r->reading.in_round, wanted, arg);
}

size_t replica_n_reads(const struct replica *r)
{
        struct reads_asked *asked = (struct reads_asked *) (uintptr_t) &r->reading.asked;
        const struct reads *lists[] = {&r->reading.waiting, &r->reading.in_round};
        struct read *rd;
        size_t n = 0;

        RB_FOREACH (rd, reads_asked, asked)
                n++;

        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                STAILQ_FOREACH (rd, lists[i], next)
                        n++;
        return n;
}
