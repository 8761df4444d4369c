/* What arrives from other replicas: a row of one table for each type of frame. */
#include "base/probe.h"
#include "consensus/internal.h"

/* Whose frame counts; one of anybody else is dropped. Where the term of the frame, its first
 * number, has to be ours, it is one of this leadership. */
enum whose {
        ANYBODYS,
        ANYBODYS_IF_WE_LEAD,
        MEMBERS_OF_OUR_LEADERSHIP, /* we lead in that term, and a member answers */
        LEADERS_OF_THIS_TERM,      /* we follow its sender in that term */
};

#define NUMBERS_MAX 5

struct kind {
        /* Reads the whole frame itself. Returns 0 or -EBADMSG. */
        int (*whole)(struct replica *r, uint64_t peer, struct view in);
        unsigned numbers; /* or it has that many numbers; what follows them is skipped */
        enum whose whose;
        /* @at: the position of a member in the configuration */
        void (*on)(struct replica *r, uint64_t peer, unsigned at, const uint64_t *v);
};

static int on_raft(struct replica *r, uint64_t peer, struct view in)
{
        struct raft_message m;
        int k = message_decode(in, &m);

        if (k == -ENOMEM)
                replica_fatal(r, "out of memory");
        if (k == 0)
                replica_receive(r, peer, &m);
        return k;
}

/* ---- from anybody ---- */

static void on_read_ask(struct replica *r, uint64_t peer, unsigned at, const uint64_t *v)
{
        (void) at;
        reads_add(r, peer, v[0]);
}

static void on_read_tell(struct replica *r, uint64_t peer, unsigned at, const uint64_t *v)
{
        (void) peer;
        (void) at;
        reads_answered(r, v[0], v[1], (struct lease_time){(nsec_t) v[2]});
}

static void on_changed(struct replica *r, uint64_t peer, unsigned at, const uint64_t *v)
{
        (void) peer;
        (void) at;
        r->ops->changed_members(r->userdata, v[0], (int) v[1]);
}

static void on_removed(struct replica *r, uint64_t peer, unsigned at, const uint64_t *v)
{
        (void) peer;
        (void) at;
        members_removed(r, v[0]);
}

/* ---- from the leader that we follow ---- */

static void on_read_ping(struct replica *r, uint64_t peer, unsigned at, const uint64_t *v)
{
        (void) at;
        replica_send(r, peer, FRAME_READ_PONG, v, 2);
}

static void on_proposed(struct replica *r, uint64_t peer, unsigned at, const uint64_t *v)
{
        (void) peer;
        (void) at;
        queue_acknowledged(r, v[1], v[2], v[3], v[4] != 0);
}

static void on_beacon(struct replica *r, uint64_t peer, unsigned at, const uint64_t *v)
{
        (void) at;
        lease_clock_learn(&r->time.clock, v[0], (struct lease_time){(nsec_t) v[2]}, r->now);
        replica_send(r, peer, FRAME_BEACON_ACK, v, 2);
}

static void on_lacks(struct replica *r, uint64_t peer, unsigned at, const uint64_t *v)
{
        (void) peer;
        (void) at;
        members_lack(r, v[1]);
}

static void on_time_ask(struct replica *r, uint64_t peer, unsigned at, const uint64_t *v)
{
        (void) at;
        replica_send(r, peer, FRAME_TIME_TELL,
                     (uint64_t[]){v[0], r->time.clock.term, (uint64_t) r->time.clock.known.ns},
                     3);
}

/* ---- from members, to us as their leader ---- */

static void on_read_pong(struct replica *r, uint64_t peer, unsigned at, const uint64_t *v)
{
        (void) peer;
        reads_ponged(r, at, v[1]);
}

static void on_time_tell(struct replica *r, uint64_t peer, unsigned at, const uint64_t *v)
{
        (void) peer;
        beacons_reported(r, at, v[1], v[2]);
        beacons_run(r);
}

static void on_beacon_ack(struct replica *r, uint64_t peer, unsigned at, const uint64_t *v)
{
        (void) peer;
        beacons_acked(r, at, (nsec_t) v[1]);
        beacons_run(r);
}

static void on_snapshot_ack(struct replica *r, uint64_t peer, unsigned at, const uint64_t *v)
{
        (void) at;
        snapshot_acked(r, peer, v[1], v[2]);
}

static const struct kind kinds[] = {
        [FRAME_RAFT] = {.whole = on_raft},
        [FRAME_PROPOSE] = {.whole = queue_proposed},
        [FRAME_CHANGE] = {.whole = members_asked},
        [FRAME_SNAPSHOT] = {.whole = install_part},

        [FRAME_READ_ASK] = {NULL, 1, ANYBODYS_IF_WE_LEAD, on_read_ask},
        [FRAME_READ_TELL] = {NULL, 3, ANYBODYS, on_read_tell},
        [FRAME_CHANGED] = {NULL, 2, ANYBODYS, on_changed},
        [FRAME_REMOVED] = {NULL, 1, ANYBODYS, on_removed},

        [FRAME_READ_PING] = {NULL, 2, LEADERS_OF_THIS_TERM, on_read_ping},
        [FRAME_PROPOSED] = {NULL, 5, LEADERS_OF_THIS_TERM, on_proposed},
        [FRAME_BEACON] = {NULL, 3, LEADERS_OF_THIS_TERM, on_beacon},
        [FRAME_LACKS] = {NULL, 2, LEADERS_OF_THIS_TERM, on_lacks},
        [FRAME_TIME_ASK] = {NULL, 1, LEADERS_OF_THIS_TERM, on_time_ask},

        [FRAME_READ_PONG] = {NULL, 2, MEMBERS_OF_OUR_LEADERSHIP, on_read_pong},
        [FRAME_TIME_TELL] = {NULL, 3, MEMBERS_OF_OUR_LEADERSHIP, on_time_tell},
        [FRAME_BEACON_ACK] = {NULL, 2, MEMBERS_OF_OUR_LEADERSHIP, on_beacon_ack},
        [FRAME_SNAPSHOT_ACK] = {NULL, 3, MEMBERS_OF_OUR_LEADERSHIP, on_snapshot_ack},
};

static bool counts(const struct replica *r, uint64_t peer, int at, enum whose whose,
                   uint64_t term)
{
        switch (whose) {
        case ANYBODYS:
                return true;
        case ANYBODYS_IF_WE_LEAD:
                return replica_leads(r);
        case MEMBERS_OF_OUR_LEADERSHIP:
                return term == replica_term(r) && replica_leads(r) && at >= 0;
        case LEADERS_OF_THIS_TERM:
                return term == replica_term(r) && libraft_follows(r) &&
                       replica_leader(r) == peer;
        }
        return false;
}

static int on_numbers(struct replica *r, uint64_t peer, const struct kind *kind, struct view in)
{
        int at = replica_position(r, peer);
        uint64_t v[NUMBERS_MAX] = {0};

        for (unsigned i = 0; i < kind->numbers; i++)
                if (view_u64(&in, &v[i]) < 0)
                        return -EBADMSG;
        if (counts(r, peer, at, kind->whose, v[0]))
                kind->on(r, peer, (unsigned) at, v);
        return 0;
}

int replica_input(struct replica *r, uint64_t peer, struct view frame, struct boot_time now)
{
        const struct kind *kind;
        uint8_t type;

        r->now = boot_max(r->now, now);
        if (view_u8(&frame, &type) < 0)
                return -EBADMSG;
        members_heard(r, peer);
        if (replica_position(r, peer) >= 0)
                replica_peer_counts(r, peer)->received += frame.len + 1;
        if (peer == replica_leader(r))
                r->leader_down_at = BOOT_TIME_NEVER;
        kind = type < ARRAY_SIZE(kinds) ? &kinds[type] : NULL;
        if (kind && kind->whole)
                return kind->whole(r, peer, frame);
        return kind && kind->on ? on_numbers(r, peer, kind, frame) : -EBADMSG;
}
