/*
 * Snapshots on their way to other replicas, which lag too far for the log.
 *
 * They contain the current state, encoded for these replicas (taking.c), which is newer than
 * the snapshot on disk. They are sent in parts that the receiver acknowledges, so that
 * heartbeats fit in between.
 */
#include "base/probe.h"
#include "consensus/internal.h"

#define PARTS 8                          /* under way to a replica at once, at most ... */
#define WINDOW_LEAST ((size_t) 16 << 10) /* ... and at least this many bytes */
#define RESEND 2 /* election timeouts without an answer, after which parts count as lost */
#define GIVE_UP (10 * NSEC_PER_SEC)

static struct outgoing *outgoing_of(struct replica *r, uint64_t peer)
{
        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                if (r->outgoing[i].peer == peer)
                        return &r->outgoing[i];
        return NULL;
}

static void end(struct outgoing *o)
{
        blob_free(o->head);
        blob_free(o->data);
        *o = (struct outgoing){.state = OUTGOING_NONE};
}

static bool is_any(const struct replica *r, enum outgoing_state state)
{
        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                if (r->outgoing[i].state == state)
                        return true;
        return false;
}

bool sending_is_on(const struct replica *r)
{
        return is_any(r, OUTGOING_SENDING);
}

bool sending_is_wanted(const struct replica *r)
{
        return is_any(r, OUTGOING_WANTED);
}

/* Whether the replica does not have it yet, or has it and may still be loading it. */
static bool is_under_way(const struct replica *r, const struct outgoing *o)
{
        return o->state == OUTGOING_SENDING ||
               (o->state == OUTGOING_INSTALLING && boot_before(r->now, o->until));
}

uint64_t sending_oldest(const struct replica *r)
{
        uint64_t index = r->taking.state == SNAPSHOT_ENCODING && sending_is_wanted(r)
                                 ? r->taking.pending.index
                                 : UINT64_MAX;

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
        if (o && (o->state == OUTGOING_SENDING
                          ? o->index < index
                          : o->state != OUTGOING_WANTED && !is_under_way(r, o))) {
                PROBE_IF(o->state == OUTGOING_SENDING,
                         "a snapshot on its way is too old, and another one is sent");
                end(o);
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

/* At most @max bytes from @at on: of the message's head, of the state, or of the checksum. */
static struct view bytes_at(const struct outgoing *o, size_t at, size_t max)
{
        struct view in[] = {blob_view(o->head), blob_view(o->data), {o->tail, sizeof(o->tail)}};
        unsigned i = 0;

        for (; at >= in[i].len; i++)
                at -= in[i].len;
        return (struct view){in[i].p + at, min_of(in[i].len - at, max)};
}

/* The checksum is computed as the bytes are sent, rather than all at once. It must include
 * bytes that the other side has from an earlier attempt. */
static void sum_up(struct outgoing *o, size_t upto)
{
        while (o->summed < upto) {
                struct view v = bytes_at(o, o->summed, upto - o->summed);

                o->crc = crc32c(o->crc, v.p, v.len);
                o->summed += v.len;
                if (o->summed == o->total - sizeof(o->tail))
                        le32_put(o->tail, o->crc);
        }
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
        while (o->sent < o->total && o->sent < o->acked + o->window &&
               replica_room(r, o->peer) > 0) {
                size_t at = o->sent, part = min_of(r->cfg.snapshot_slice, o->window),
                       end = min_of(o->total, at + part);
                cleanup_(buf_fini) struct buf f = {0};

                sum_up(o, end);
                buf_add_u8(&f, FRAME_SNAPSHOT);
                buf_add_u64(&f, o->term);
                buf_add_u64(&f, o->index);
                buf_add_u64(&f, o->total);
                buf_add_u64(&f, at);
                while (at < end) {
                        struct view v = bytes_at(o, at, end - at);

                        buf_add(&f, v.p, v.len);
                        at += v.len;
                }
                if (buf_error(&f) < 0)
                        return; /* tried again later */
                replica_send_frame(r, o->peer, &f);
                o->sent = end;
                o->sent_at = r->now;
                if (o->probe == 0) {
                        o->probe = end;
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

static int begin(struct replica *r, struct outgoing *o, struct blob *data)
{
        struct raft_message m = {.type = RAFT_INSTALL_SNAPSHOT};
        struct buf head = {0};
        int k;

        m.install_snapshot.term = replica_term(r);
        m.install_snapshot.last_index = r->taking.pending.index;
        m.install_snapshot.last_term = r->taking.pending.term;
        m.install_snapshot.conf = r->taking.pending.configuration;
        m.install_snapshot.conf_index = r->taking.pending.configuration_index;
        k = message_encode(&m, NULL, NULL, blob_view(data).len, &head);
        if (k < 0) {
                buf_fini(&head);
                return k;
        }
        buf_consume(&head, 1);
        o->head = blob_new(&head);
        if (!o->head)
                return -ENOMEM;
        o->state = OUTGOING_SENDING;
        o->data = blob_hold(data);
        o->term = replica_term(r);
        o->index = r->taking.pending.index;
        o->total = blob_view(o->head).len + blob_view(data).len + sizeof(o->tail);
        o->moved_at = o->timed_at = o->sent_at = r->now;
        begin_window(r, o);
        members_restores(r, o->peer, o->index);
        log_debug("Sending a snapshot up to entry %" PRIu64 " (%zu bytes) to %016" PRIx64 ".",
                  o->index, o->total, o->peer);
        send_parts(r, o);
        return 0;
}

int sending_begin(struct replica *r, struct blob *data)
{
        int k = 0;

        for (unsigned i = 0; k == 0 && i < REPLICA_PEERS_MAX; i++) {
                struct outgoing *o = &r->outgoing[i];

                if (o->state == OUTGOING_WANTED && replica_leads(r) &&
                    o->wanted <= r->taking.pending.index)
                        k = begin(r, o, data);
        }
        return k;
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
                o->state = OUTGOING_INSTALLING;
                o->until = boot_add(r->now, max_of(r->cfg.election, o->took));
                o->head = blob_free(o->head);
                o->data = blob_free(o->data);
                return;
        }
        if (have != o->acked)
                o->moved_at = r->now;
        if (have < o->acked) { /* the replica has started over */
                PROBE("a replica begins anew to receive a snapshot");
                o->acked = have;
                return send_again(r, o);
        }
        o->acked = have;
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
                    (o->state >= OUTGOING_SENDING && o->term != replica_term(r)) ||
                    (o->state == OUTGOING_INSTALLED && libraft_match(r, o->peer, &match) &&
                     trim_keeps(r, match))) {
                        end(o); /* if raft still needs one, it asks again */
                } else if (sending && is_lost(r, o)) {
                        PROBE("parts of a snapshot are lost and sent again");
                        send_again(r, o);
                } else if (sending) {
                        send_parts(r, o); /* parts that waited for room on the link */
                }
        }
}

struct boot_time sending_next(const struct replica *r)
{
        return sending_is_on(r) ? boot_add(r->now, r->cfg.election) : BOOT_TIME_NEVER;
}

void sending_fini(struct replica *r)
{
        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                end(&r->outgoing[i]);
}
