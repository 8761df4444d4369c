/* Frames that arrive from other replicas: one table has a row for each type. */
#include "consensus/internal.h"

/* From whom a type of frame is accepted; a frame from anybody else is dropped. The last two
 * also require that the term of the frame, its first number, is ours. */
enum whose {
        ANYBODYS,
        ANYBODYS_IF_WE_LEAD,
        MEMBERS_OF_OUR_LEADERSHIP, /* we lead in that term, and a member answers */
        LEADERS_OF_THIS_TERM,      /* we follow its sender in that term */
};

struct numbers {
        uint64_t peer;
        unsigned at; /* its position in the configuration, if it is a member */
        uint64_t v[5];
};

struct kind {
        /* Reads the whole frame itself. Returns 0 or -EBADMSG. */
        int (*whole)(struct replica *r, uint64_t peer, struct view in);
        unsigned numbers; /* otherwise, the frame has this many numbers; bytes after them are
                           * skipped */
        enum whose whose;
        void (*on)(struct replica *r, const struct numbers *in);
};

static int on_raft(struct replica *r, uint64_t peer, struct view in)
{
        struct raft_message m;
        int k = message_decode(in, &m);

        if (k == -ENOMEM)
                replica_fatal(r, "out of memory");
        if (k == 0)
                replica_receive(r, peer, &m);
        return k == -EBADMSG ? k : 0;
}

/* ---- from anybody ---- */

static void on_read_ask(struct replica *r, const struct numbers *in)
{
        reads_add(r, in->peer, in->v[0]);
}

static void on_read_tell(struct replica *r, const struct numbers *in)
{
        reads_answered(r, in->v[0], in->v[1], (struct lease_time){(nsec_t) in->v[2]});
}

static void on_changed(struct replica *r, const struct numbers *in)
{
        r->ops->changed_members(r->userdata, in->v[0], (int) in->v[1]);
}

static void on_removed(struct replica *r, const struct numbers *in)
{
        members_told_removed(r, in->v[0]);
}

/* ---- from the leader that we follow ---- */

static void on_read_ping(struct replica *r, const struct numbers *in)
{
        replica_send(r, in->peer, FRAME_READ_PONG, in->v, 2);
}

static void on_proposed(struct replica *r, const struct numbers *in)
{
        queue_acknowledged(r, in->v[1], in->v[2], in->v[3], in->v[4] != 0);
}

static void on_beacon(struct replica *r, const struct numbers *in)
{
        lease_clock_learn(&r->time.clock, in->v[0], (struct lease_time){(nsec_t) in->v[2]},
                          r->now);
        replica_send(r, in->peer, FRAME_BEACON_ACK, in->v, 2);
}

static void on_lacks(struct replica *r, const struct numbers *in)
{
        members_lack(r, in->v[1]);
}

static void on_time_ask(struct replica *r, const struct numbers *in)
{
        replica_send(
                r, in->peer, FRAME_TIME_TELL,
                (uint64_t[]){in->v[0], r->time.clock.term, (uint64_t) r->time.clock.known.ns},
                3);
}

/* ---- from members, to us as their leader ---- */

static void on_read_pong(struct replica *r, const struct numbers *in)
{
        reads_ponged(r, in->at, in->v[1]);
}

static void on_time_tell(struct replica *r, const struct numbers *in)
{
        beacons_reported(r, in->at, in->v[1], in->v[2]);
        beacons_run(r);
}

static void on_beacon_ack(struct replica *r, const struct numbers *in)
{
        beacons_acked(r, in->at, (nsec_t) in->v[1]);
        beacons_run(r);
}

static void on_snapshot_ack(struct replica *r, const struct numbers *in)
{
        sending_acked(r, in->peer, in->v[1], in->v[2]);
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
        struct numbers n = {.peer = peer, .at = (unsigned) at};

        for (unsigned i = 0; i < kind->numbers; i++)
                if (view_u64(&in, &n.v[i]) < 0)
                        return -EBADMSG;
        if (counts(r, peer, at, kind->whose, n.v[0]))
                kind->on(r, &n);
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
