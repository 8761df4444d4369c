/*
 * Snapshots on their way to other replicas, which lag too far for the log.
 *
 * They contain the current state, which is newer than the snapshot on disk. Each is encoded for
 * its replica while it is sent, and sent in parts that the replica acknowledges, so that
 * heartbeats fit in between. Only the parts under way are in memory. Their number of bytes
 * comes first, so the state is counted before that.
 */
#include "base/probe.h"
#include "consensus/internal.h"

#define PARTS 8                          /* under way to a replica at once, at most ... */
#define WINDOW_LEAST ((size_t) 16 << 10) /* ... and at least this many bytes */
#define RESEND 2 /* election timeouts without an answer, after which parts count as lost */
#define GIVE_UP (10 * NSEC_PER_SEC)
#define PAUSE (2 * NSEC_PER_MSEC) /* between slices that are counted or encoded */

static struct outgoing *outgoing_of(struct replica *r, uint64_t peer)
{
        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                if (r->outgoing[i].peer == peer)
                        return &r->outgoing[i];
        return NULL;
}

/* In replica_ops. */
static unsigned slot_of(const struct replica *r, const struct outgoing *o)
{
        return 1 + (unsigned) (o - r->outgoing);
}

/* What was encoded is not needed any more; in haste it may be much. */
static void let_go(struct replica *r, struct outgoing *o)
{
        struct blob *rest = o->bytes.data ? blob_new(&o->bytes) : NULL;

        if (rest)
                freeing_add(r, rest);
        r->ops->save_end(r->userdata, slot_of(r, o));
}

static void end(struct replica *r, struct outgoing *o)
{
        if (o->state == OUTGOING_COUNTING)
                raft_configuration_close(&o->meta.configuration);
        if (o->state == OUTGOING_COUNTING || o->state == OUTGOING_SENDING)
                let_go(r, o);
        *o = (struct outgoing){.state = OUTGOING_NONE};
}

/* Another one has to be encoded for the replica. */
static void begin_anew(struct replica *r, struct outgoing *o, bool in_haste)
{
        uint64_t peer = o->peer, index = o->index;

        end(r, o);
        o->state = OUTGOING_WANTED;
        o->peer = peer;
        o->wanted = index;
        o->in_haste = in_haste;
}

static bool is_on(const struct outgoing *o)
{
        return o->state == OUTGOING_COUNTING || o->state == OUTGOING_SENDING;
}

bool sending_is_on(const struct replica *r)
{
        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                if (is_on(&r->outgoing[i]))
                        return true;
        return false;
}

/* Whether the replica does not have it yet, or has it and may still be loading it. */
static bool is_under_way(const struct replica *r, const struct outgoing *o)
{
        return is_on(o) || (o->state == OUTGOING_INSTALLING && boot_before(r->now, o->until));
}

uint64_t sending_oldest(const struct replica *r)
{
        uint64_t index = UINT64_MAX;

        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                if (is_under_way(r, &r->outgoing[i]))
                        index = min_of(index, r->outgoing[i].index);
        return index;
}

uint64_t sending_needed(const struct replica *r)
{
        uint64_t index = sending_oldest(r), match;

        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                if (r->outgoing[i].state == OUTGOING_INSTALLED &&
                    libraft_match(r, r->outgoing[i].peer, &match))
                        index = min_of(index, match);
        return index;
}

size_t sending_largest(const struct replica *r)
{
        size_t most = 0;

        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                most = max_of(most, r->outgoing[i].total);
        return most;
}

/* [libraft] It may ask for a snapshot with every answer of a replica that is already installing
 * one. And it waits until the replica has the index that it asked for, so an older snapshot is
 * not enough. */
void sending_asked(struct replica *r, uint64_t peer, uint64_t index)
{
        struct outgoing *o = outgoing_of(r, peer);

        /* A snapshot that the replica has received may still be loading there, however old it
         * is: another one would make it start over. */
        if (o && (is_on(o) ? o->index < index
                           : o->state != OUTGOING_WANTED && !is_under_way(r, o))) {
                PROBE_IF(o->state == OUTGOING_SENDING,
                         "a snapshot on its way is too old, and another one is sent");
                end(r, o);
                o = NULL;
        }
        if (!o)
                o = outgoing_of(r, 0);
        if (!o || o->state > OUTGOING_WANTED)
                return;
        o->state = OUTGOING_WANTED;
        o->peer = peer;
        o->wanted = max_of(o->wanted, index);
}

/* ---- encoding ---- */

/* The next bytes are needed to fill the window. */
static bool has_to_encode(const struct outgoing *o)
{
        return o->state == OUTGOING_COUNTING ||
               (o->state == OUTGOING_SENDING && !o->encoded &&
                (o->in_haste || o->at + buf_len(&o->bytes) < o->acked + o->window));
}

/* Drops what the replica has; which may include bytes of an earlier attempt that are not even
 * encoded yet: equal states have equal bytes. */
static void drop_acked(struct outgoing *o)
{
        size_t n = min_of(buf_len(&o->bytes), o->acked - o->at);

        buf_consume(&o->bytes, n);
        o->at += n;
}

/* The checksum is computed as the bytes are encoded, rather than all at once. */
static int encode(struct replica *r, struct outgoing *o)
{
        size_t had = buf_len(&o->bytes);
        int k = r->ops->save_more(r->userdata, slot_of(r, o), r->cfg.snapshot_slice, &o->bytes);

        if (k < 0)
                return k;
        o->crc = crc32c(o->crc, buf_head(&o->bytes) + had, buf_len(&o->bytes) - had);
        if (k == 0) {
                o->encoded = true;
                r->ops->save_end(r->userdata, slot_of(r, o));
                buf_add_u32(&o->bytes, o->crc);
        }
        if (buf_error(&o->bytes) < 0)
                return -ENOMEM;
        assert(!o->encoded || o->at + buf_len(&o->bytes) == o->total);
        drop_acked(o);
        return 0;
}

/* Heartbeats queue behind the parts on the same link: so the parts under way must not occupy a
 * slow link for longer than heartbeats may be delayed. */
static void begin_window(const struct replica *r, struct outgoing *o)
{
        o->window =
                max_of(r->cfg.snapshot_slice / 4, min_of(r->cfg.snapshot_slice, WINDOW_LEAST));
        o->probe = 0;
}

static void adapt_window(const struct replica *r, struct outgoing *o)
{
        nsec_t took = boot_diff(r->now, o->probe_at);

        if (o->probe == 0 || o->acked < o->probe)
                return;
        o->probe = 0;
        if (took < r->cfg.election / 4) {
                o->window = min_of(2 * o->window, PARTS * r->cfg.snapshot_slice);
        } else if (took > r->cfg.election / 2) {
                PROBE("parts of a snapshot take long, and fewer are sent at once");
                o->window = max_of(o->window / 2, min_of(r->cfg.snapshot_slice, WINDOW_LEAST));
        }
}

static void send_parts(struct replica *r, struct outgoing *o)
{
        size_t room;

        while (o->sent < o->at + buf_len(&o->bytes) && o->sent < o->acked + o->window &&
               (room = replica_room(r, o->peer)) > 0) {
                size_t part = min_of(r->cfg.snapshot_slice, o->window),
                       left = o->at + buf_len(&o->bytes) - o->sent;
                cleanup_(buf_fini) struct buf f = {0};

                part = min_of(part, max_of(room, WINDOW_LEAST));
                if (left < part && !o->encoded)
                        return; /* until there is enough for a whole part */
                part = min_of(part, left);
                buf_add_u8(&f, FRAME_SNAPSHOT);
                buf_add_u64(&f, o->term);
                buf_add_u64(&f, o->index);
                buf_add_u64(&f, o->total);
                buf_add_u64(&f, o->sent);
                buf_add(&f, buf_head(&o->bytes) + (o->sent - o->at), part);
                if (buf_error(&f) < 0)
                        return; /* tried again later */
                replica_send_frame(r, o->peer, &f);
                o->sent += part;
                o->sent_at = r->now;
                if (o->probe == 0) {
                        o->probe = o->sent;
                        o->probe_at = r->now;
                }
        }
}

static void send_again(struct replica *r, struct outgoing *o)
{
        begin_window(r, o);
        o->sent = o->acked;
        o->timed_at = r->now;
        send_parts(r, o);
}

void sending_link_up(struct replica *r, uint64_t peer)
{
        struct outgoing *o = outgoing_of(r, peer);

        if (o && o->state == OUTGOING_SENDING && replica_leads(r))
                send_again(r, o);
}

static int begin(struct replica *r, struct outgoing *o)
{
        if (trim_metadata(r, r->applied, &o->meta) < 0)
                return -ENOMEM;
        o->state = OUTGOING_COUNTING;
        o->term = replica_term(r);
        o->index = o->meta.index;
        o->total = r->taking.size;
        o->slice_at = r->now;
        r->ops->save(r->userdata, slot_of(r, o));
        return 0;
}

/* The state has @size bytes. */
static int counted(struct replica *r, struct outgoing *o, size_t size)
{
        struct raft_message m = {.type = RAFT_INSTALL_SNAPSHOT};
        int k;

        m.install_snapshot.term = o->term;
        m.install_snapshot.last_index = o->index;
        m.install_snapshot.last_term = o->meta.term;
        m.install_snapshot.conf = o->meta.configuration;
        m.install_snapshot.conf_index = o->meta.configuration_index;
        k = message_encode(&m, NULL, NULL, size, &o->bytes);
        raft_configuration_close(&o->meta.configuration);
        o->state = OUTGOING_SENDING;
        if (k < 0)
                return k;
        buf_consume(&o->bytes, 1);
        if (o->in_haste)
                buf_expect(&o->bytes, size + SNAPSHOT_CRC);
        o->crc = crc32c(0, buf_head(&o->bytes), buf_len(&o->bytes));
        o->total = buf_len(&o->bytes) + size + SNAPSHOT_CRC;
        o->moved_at = o->timed_at = o->sent_at = r->now;
        begin_window(r, o);
        members_restores(r, o->peer, o->index);
        log_debug("Sending a snapshot up to entry %" PRIu64 " (%zu bytes) to %016" PRIx64 ".",
                  o->index, o->total, o->peer);
        return 0;
}

static int count(struct replica *r, struct outgoing *o)
{
        size_t size;
        int k = r->ops->save_count(r->userdata, slot_of(r, o), r->cfg.snapshot_slice, &size);

        return k == 0 ? counted(r, o, size) : min_of(k, 0);
}

/* Counts or encodes a slice, when its time has come. */
static void move_on(struct replica *r, struct outgoing *o)
{
        int k = 0;

        if (o->state == OUTGOING_WANTED && taking_may_begin(r) && o->wanted <= r->applied) {
                k = begin(r, o);
        } else if (has_to_encode(o) && !boot_before(r->now, o->slice_at)) {
                o->slice_at = boot_add(r->now, PAUSE);
                k = o->state == OUTGOING_COUNTING ? count(r, o) : encode(r, o);
        }
        if (k == -ESTALE) {
                PROBE("a snapshot for a replica has to begin again");
                begin_anew(r, o, o->in_haste || o->state == OUTGOING_SENDING);
        } else if (k < 0) {
                replica_fatal(r, "out of memory");
        }
}

void sending_acked(struct replica *r, const struct peer_frame *in)
{
        struct outgoing *o = outgoing_of(r, in->peer);
        uint64_t index = in->v[1], have = in->v[2];

        if (!o || o->state < OUTGOING_SENDING || o->state > OUTGOING_INSTALLING ||
            o->index != index || have > o->total)
                return;
        if (o->state == OUTGOING_INSTALLING) {
                struct boot_time soon = boot_add(r->now, r->cfg.election);

                /* The replica has all of it and is still installing it; or it refused it, and
                 * will be sent another one, but not at once, since the next one may be no
                 * better. */
                if (have == o->total)
                        o->until = boot_max(o->until, soon);
                else if (have == 0)
                        o->until = boot_min(o->until, soon);
                return;
        }
        if (have > o->acked)
                o->took += boot_diff(r->now, o->timed_at);
        o->timed_at = r->now;
        if (have == o->total) {
                /* Allows for the time to write and load it before another one is sent. */
                let_go(r, o);
                o->state = OUTGOING_INSTALLING;
                o->until = boot_add(r->now, max_of(r->cfg.election, o->took));
                return;
        }
        if (have < o->acked) {
                PROBE("a replica begins anew to receive a snapshot");
                return begin_anew(r, o, o->in_haste);
        }
        if (have != o->acked)
                o->moved_at = r->now;
        o->acked = have;
        drop_acked(o);
        adapt_window(r, o);
        o->sent = max_of(o->sent, o->acked);
        send_parts(r, o);
}

/* The replica agrees to entries up to the snapshot's: it has installed it, and may be sent
 * another one. */
void sending_answered(struct replica *r, uint64_t peer,
                      const struct raft_append_entries_result *p)
{
        struct outgoing *o = outgoing_of(r, peer);

        if (!o || o->state != OUTGOING_INSTALLING || p->term != replica_term(r) ||
            p->rejected != 0 || p->last_log_index < o->index)
                return;
        PROBE_IF(boot_before(r->now, o->until),
                 "a snapshot was loaded sooner than was allowed for");
        o->state = OUTGOING_INSTALLED;
}

/* Whether the last parts have been unanswered for too long. */
static bool is_lost(const struct replica *r, const struct outgoing *o)
{
        return o->sent > o->acked &&
               boot_diff(r->now, boot_max(o->moved_at, o->sent_at)) >= RESEND * r->cfg.election;
}

void sending_run(struct replica *r)
{
        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++) {
                struct outgoing *o = &r->outgoing[i];
                bool sending = o->state == OUTGOING_SENDING, leads = replica_leads(r),
                     member = replica_position(r, o->peer) >= 0,
                     stuck = sending && boot_diff(r->now, o->moved_at) >= GIVE_UP;
                uint64_t match = 0;

                if (o->state == OUTGOING_NONE)
                        continue;
                PROBE_IF(sending && !leads,
                         "leadership is lost while a snapshot is being sent");
                PROBE_IF(sending && leads && !member,
                         "a member is removed while a snapshot is sent to it");
                PROBE_IF(stuck && leads,
                         "a snapshot is given up because nothing of it was acknowledged");
                if (!leads || !member || stuck ||
                    (o->state >= OUTGOING_COUNTING && o->term != replica_term(r)) ||
                    (o->state == OUTGOING_INSTALLED && libraft_match(r, o->peer, &match) &&
                     trim_keeps(r, match))) {
                        end(r, o); /* if raft still needs one, it asks again */
                        continue;
                }
                move_on(r, o);
                if (o->state == OUTGOING_SENDING && is_lost(r, o)) {
                        PROBE("parts of a snapshot are lost and sent again");
                        send_again(r, o);
                } else if (o->state == OUTGOING_SENDING) {
                        send_parts(r, o);
                }
        }
}

struct boot_time sending_next(const struct replica *r)
{
        struct boot_time next =
                sending_is_on(r) ? boot_add(r->now, r->cfg.election) : BOOT_TIME_NEVER;

        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                if (has_to_encode(&r->outgoing[i]))
                        next = boot_min(next, r->outgoing[i].slice_at);
        return next;
}

void sending_fini(struct replica *r)
{
        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++) {
                buf_fini(&r->outgoing[i].bytes);
                if (r->outgoing[i].state == OUTGOING_COUNTING)
                        raft_configuration_close(&r->outgoing[i].meta.configuration);
        }
}
