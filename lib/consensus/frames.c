/* Frames that arrive from other replicas: one table has a row for each type. */
#include "base/probe.h"
#include "consensus/internal.h"

/* From whom a type of frame is accepted; a frame from anybody else is dropped. The last two
 * also require that the term of the frame, its first number, is ours. */
enum whose {
        ANYBODYS,
        ANYBODYS_IF_WE_LEAD,
        MEMBERS_OF_OUR_LEADERSHIP, /* we lead in that term, and a member answers */
        LEADERS_OF_THIS_TERM,      /* we follow its sender in that term */
};

/* What the numbers of a frame may be. One with another number is refused, and ends its link: a
 * member that is damaged, or hostile, must not make us do what no other one can undo. */
enum range {
        NONE,  /* there are no more */
        ANY,   /* its receiver compares it with what it has sent, or only returns it */
        TERM,  /* at most TERM_AHEAD ahead of ours */
        INDEX, /* up to LOG_INDEX_MAX; so are sizes of a snapshot */
        NSECS, /* a boot_time or lease_time that is not negative */
        LEASE, /* lease time, up to LEASE_CLOCK_MAX */
        FLAG,
        OUTCOME, /* of a change of members */
};

/* A term begins with an election: in a replica's absence, there are not as many. A replica that
 * has just joined has no term to compare with. */
#define TERM_AHEAD (UINT64_C(1) << 32)

struct kind {
        enum range numbers[5];
        enum whose whose;
        void (*on)(struct replica *r, const struct peer_frame *in); /* skips bytes after them */
        /* ... or reads these, too. Returns 0 or -EBADMSG. */
        int (*on_rest)(struct replica *r, const struct peer_frame *in);
};

uint64_t frames_term_max(const struct replica *r)
{
        return replica_term(r) == 0 ? LOG_INDEX_MAX : replica_term(r) + TERM_AHEAD;
}

/* ---- from anybody ---- */

static int on_raft(struct replica *r, const struct peer_frame *in)
{
        struct raft_message m;
        int k = message_decode(in->rest, in->peer, frames_term_max(r), &m);

        if (k == -ENOMEM)
                replica_fatal(r, "out of memory");
        if (k == 0)
                replica_receive(r, in->peer, &m);
        return k == -EBADMSG ? k : 0;
}

static void on_changed(struct replica *r, const struct peer_frame *in)
{
        r->ops->changed_members(r->userdata, in->v[0], (int) in->v[1]);
}

static void on_doubled(struct replica *r, const struct peer_frame *in)
{
        if (in->v[0] == r->cfg.seed)
                replica_fatal(r, "another process runs as this member, with the same data "
                                 "directory or a copy of it, and was there first. Stop one of "
                                 "them, and delete its directory if it is a copy");
}

/* ---- from the leader that we follow ---- */

static void on_read_ping(struct replica *r, const struct peer_frame *in)
{
        replica_send(r, in->peer, FRAME_READ_PONG, in->v, 2);
}

static void on_beacon(struct replica *r, const struct peer_frame *in)
{
        lease_clock_learn(&r->time.clock, in->v[0], (struct lease_time){(nsec_t) in->v[2]},
                          r->now);
        replica_send(r, in->peer, FRAME_BEACON_ACK, in->v, 2);
}

static void on_time_ask(struct replica *r, const struct peer_frame *in)
{
        replica_send(
                r, in->peer, FRAME_TIME_TELL,
                (uint64_t[]){in->v[0], r->time.clock.term, (uint64_t) r->time.clock.known.ns},
                3);
}

/* ---- from members, to us as their leader ---- */

static void on_time_tell(struct replica *r, const struct peer_frame *in)
{
        beacons_reported(r, in->at, in->v[1], in->v[2]);
        beacons_run(r);
}

static void on_beacon_ack(struct replica *r, const struct peer_frame *in)
{
        beacons_acked(r, in->at, (nsec_t) in->v[1]);
        beacons_run(r);
}

static const struct kind kinds[] = {
        [FRAME_RAFT] = {{NONE}, ANYBODYS, .on_rest = on_raft},
        [FRAME_CHANGE] = {{ANY}, ANYBODYS, .on_rest = members_asked},
        [FRAME_SNAPSHOT] = {{TERM, INDEX, INDEX, INDEX}, ANYBODYS, .on_rest = install_part},
        [FRAME_READ_ASK] = {{ANY}, ANYBODYS_IF_WE_LEAD, .on = reads_asked},
        [FRAME_READ_TELL] = {{ANY, INDEX, NSECS}, ANYBODYS, .on = reads_answered},
        [FRAME_CHANGED] = {{ANY, OUTCOME}, ANYBODYS, .on = on_changed},
        [FRAME_REMOVED] = {{INDEX}, ANYBODYS, .on = members_told_removed},
        [FRAME_DOUBLED] = {{ANY}, ANYBODYS, .on = on_doubled},

        [FRAME_READ_PING] = {{TERM, ANY}, LEADERS_OF_THIS_TERM, .on = on_read_ping},
        [FRAME_PROPOSED] = {{TERM, ANY, ANY, ANY, FLAG},
                            LEADERS_OF_THIS_TERM,
                            .on = queue_acknowledged},
        [FRAME_BEACON] = {{TERM, ANY, LEASE}, LEADERS_OF_THIS_TERM, .on = on_beacon},
        [FRAME_LACKS] = {{TERM, INDEX}, LEADERS_OF_THIS_TERM, .on = members_lack},
        [FRAME_TIME_ASK] = {{TERM}, LEADERS_OF_THIS_TERM, .on = on_time_ask},

        /* Of commands, the sender gives up those that it proposed in an older term. If we
         * accepted them now, they would be applied without the sender's knowledge. */
        [FRAME_PROPOSE] = {{TERM, ANY, ANY},
                           MEMBERS_OF_OUR_LEADERSHIP,
                           .on_rest = queue_proposed},
        [FRAME_READ_PONG] = {{TERM, ANY}, MEMBERS_OF_OUR_LEADERSHIP, .on = reads_ponged},
        [FRAME_TIME_TELL] = {{TERM, TERM, LEASE},
                             MEMBERS_OF_OUR_LEADERSHIP,
                             .on = on_time_tell},
        [FRAME_BEACON_ACK] = {{TERM, NSECS}, MEMBERS_OF_OUR_LEADERSHIP, .on = on_beacon_ack},
        [FRAME_SNAPSHOT_ACK] = {{TERM, INDEX, INDEX},
                                MEMBERS_OF_OUR_LEADERSHIP,
                                .on = sending_acked},
};

static bool is_in(const struct replica *r, enum range range, uint64_t v)
{
        static const uint64_t most[] = {[ANY] = UINT64_MAX,  [INDEX] = LOG_INDEX_MAX,
                                        [NSECS] = INT64_MAX, [LEASE] = LEASE_CLOCK_MAX,
                                        [FLAG] = 1,          [OUTCOME] = REPLICA_E_LAST_};

        return v <= (range == TERM ? frames_term_max(r) : most[range]);
}

static bool accepts(const struct replica *r, const struct peer_frame *f, int at,
                    enum whose whose)
{
        uint64_t term = f->v[0];

        switch (whose) {
        case ANYBODYS:
                return true;
        case ANYBODYS_IF_WE_LEAD:
                return replica_leads(r);
        case MEMBERS_OF_OUR_LEADERSHIP:
                return term == replica_term(r) && replica_leads(r) && at >= 0;
        case LEADERS_OF_THIS_TERM:
                return term == replica_term(r) && libraft_follows(r) &&
                       replica_leader(r) == f->peer;
        }
        return false;
}

int replica_input(struct replica *r, uint64_t peer, struct view frame, struct boot_time now)
{
        int at = replica_position(r, peer);
        struct peer_frame f = {.peer = peer, .at = (unsigned) at};
        struct reader rd = {.in = frame};
        uint8_t type = reader_u8(&rd);
        struct introduction introduction;
        int k = type == FRAME_TIME_ASK ? introduction_read(frame, &introduction) : -ENODATA;
        const struct kind *kind = type < ARRAY_SIZE(kinds) ? &kinds[type] : NULL;

        r->now = boot_max(r->now, now);
        if (k != -ENODATA)
                return k < 0 ? k : replica_peer_introduced(r, peer, &introduction, now);
        if (!kind || (!kind->on && !kind->on_rest))
                return -EBADMSG;
        for (unsigned i = 0; i < ARRAY_SIZE(f.v) && kind->numbers[i] != NONE; i++) {
                f.v[i] = reader_u64(&rd);
                reader_check(&rd, is_in(r, kind->numbers[i], f.v[i]));
        }
        if (rd.r < 0)
                return rd.r;
        k = versions_refuse(r, peer);
        if (k < 0)
                return k;
        f.rest = rd.in;
        members_heard(r, peer);
        if (type != FRAME_REMOVED)
                r->disowned.n = 0;
        if (at >= 0)
                replica_peer_counts(r, peer)->received += frame.len;
        if (peer == replica_leader(r))
                r->leader_down_at = BOOT_TIME_NEVER;
        if (!accepts(r, &f, at, kind->whose)) {
                PROBE_IF(type == FRAME_PROPOSE && f.v[0] < replica_term(r),
                         "forwarded commands arrive when their term is over");
                return 0;
        }
        if (kind->on_rest)
                return kind->on_rest(r, &f);
        kind->on(r, &f);
        return 0;
}
