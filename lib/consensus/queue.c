/*
 * Commands on their way into entries: collected, numbered, appended by the leader, forwarded by
 * the other replicas.
 *
 * A forwarded frame is kept until the leader acknowledges it, and sent again if no
 * acknowledgement arrives: a link may break and lose frames while leader and term stay the
 * same, and nothing else would notice. The leader accepts each number once (struct window), so
 * no more frames are under way than it can tell apart; further commands wait here, to be
 * collected into one frame.
 */
#include "base/probe.h"
#include "consensus/internal.h"

/* Commands are gathered into entries up to this size; no heartbeat overtakes one on a link. */
#define ENTRY_BYTES ((size_t) 64 << 10)
/* The limit of renewals, expiries and the like, which all go into one entry. */
#define URGENT_BYTES_MAX ((size_t) 8 << 20)
/* The limit of the commands in one proposal: the entry of these, and of the urgent ones that go
 * along, must fit into a frame, or no follower could be sent it, nor anything after it. */
#define PROPOSED_MAX (FRAME_MAX - URGENT_BYTES_MAX - 4096)
/* How much of the lost frames is sent again at once. */
#define RESEND_BYTES ((size_t) 1 << 20)
/* After this many frames a peer gets an acknowledgement even if nothing else is sent to it. */
#define ACK_AFTER (WINDOW / 4)
/* How often an unknown command is logged at most. */
#define UNKNOWN_AGAIN (60 * NSEC_PER_SEC)
/* How long commands gather at most. */
#define GATHER_MOST (4 * NSEC_PER_MSEC)
/* [libraft] After a conflict it goes back one entry per round trip, so only a few entries may
 * be uncommitted. */
#define UNCOMMITTED_MAX 64
/* Nor may more bytes than a majority commits in about half an election timeout, at least 32
 * KiB: renewals wait behind them, on slow links as on slow disks. */
#define UNCOMMITTED_BYTES_MAX ((size_t) 4 << 20)
/* Nor may more be unapplied than can be applied in about a second, because all later entries
 * wait for them. */
#define UNAPPLIED_BYTES_MAX ((size_t) 32 << 20)

static void forwarded_free(struct replica *r, struct forwarded *f)
{
        STAILQ_REMOVE(&r->queue.unacked, f, forwarded, next);
        r->queue.unacked_bytes -= buf_len(&f->frame);
        buf_fini(&f->frame);
        free(f);
}

static void drop_first(struct replica *r)
{
        struct batch *b = STAILQ_FIRST(&r->queue.batches);

        STAILQ_REMOVE_HEAD(&r->queue.batches, next);
        r->queue.bytes -= buf_len(&b->bytes);
        buf_fini(&b->bytes);
        free(b);
}

void queue_drop(struct replica *r)
{
        struct forwarded *f;

        while ((f = STAILQ_FIRST(&r->queue.unacked)))
                forwarded_free(r, f);
        while (!STAILQ_EMPTY(&r->queue.batches))
                drop_first(r);
        buf_clear(&r->queue.urgent);
        r->queue.state = QUEUE_FLOWS;
        r->queue.seen = 0;
}

/* Commands queued here were proposed in a term that is over. Their proposers give them up or
 * propose them again, so submitting them could apply them twice. */
void queue_enter_term(struct replica *r)
{
        if (r->queue.term == replica_term(r))
                return;
        PROBE_IF(!STAILQ_EMPTY(&r->queue.unacked),
                 "a term begins while forwarded commands are not acknowledged");
        queue_drop(r);
        r->queue.term = replica_term(r);
}

static int add_batch(struct replica *r, const void *p, size_t n)
{
        struct batch *b = STAILQ_LAST(&r->queue.batches, batch, next);
        bool begins = !b || buf_len(&b->bytes) + n > ENTRY_BYTES;

        if (begins)
                b = calloc(1, sizeof(*b));
        if (!b || buf_try_add(&b->bytes, p, n) < 0) {
                if (begins)
                        free(b);
                return -ENOMEM;
        }
        if (begins)
                STAILQ_INSERT_TAIL(&r->queue.batches, b, next);
        r->queue.bytes += n;
        return 0;
}

/* Those that wait here or for the leader's acknowledgement. */
static size_t urgent_bytes(const struct replica *r)
{
        size_t n = buf_len(&r->queue.urgent);
        const struct forwarded *f;

        STAILQ_FOREACH (f, &r->queue.unacked, next)
                n += f->priority == REPLICA_URGENT ? buf_len(&f->frame) : 0;
        return n;
}

static int add_urgent(struct replica *r, const void *p, size_t n)
{
        if (urgent_bytes(r) + n > URGENT_BYTES_MAX)
                return -ENOBUFS;
        return buf_try_add(&r->queue.urgent, p, n);
}

/* The size of the commands that wait here or for the leader's acknowledgement. */
static size_t queued_bytes(const struct replica *r)
{
        return r->queue.bytes + r->queue.unacked_bytes;
}

int replica_propose(struct replica *r, const void *commands, size_t n,
                    enum replica_priority priority)
{
        if (r->dead || replica_leader(r) == 0)
                return -ENOTCONN;
        if (priority == REPLICA_URGENT)
                return add_urgent(r, commands, n);
        /* The largest request that the settings allow must fit if nothing else waits. */
        if (n > PROPOSED_MAX || r->queue.state == QUEUE_REFUSED ||
            (queued_bytes(r) > 0 && queued_bytes(r) + n > r->cfg.queued_bytes))
                return -ENOBUFS;
        return add_batch(r, commands, n);
}

/* Whether frame @n is new: no frame is accepted twice, whatever the links do. A window as in
 * RFC 4303, 3.4.3. */
static bool is_new(struct window *w, uint64_t n)
{
        uint64_t bit;

        if (n > w->high) {
                w->seen = n - w->high < WINDOW ? w->seen << (n - w->high) : 0;
                w->high = n;
        } else if (w->high - n >= WINDOW) {
                return false;
        }
        bit = UINT64_C(1) << (w->high - n);
        if (w->seen & bit) {
                PROBE("a forwarded frame arrives twice");
                return false;
        }
        w->seen |= bit;
        return true;
}

/* Receive windows are kept when members change, because a frame may be repeated after a
 * change. */
static struct windows *windows_of(struct replica *r, uint64_t peer)
{
        struct windows *w = REPLICA_SLOT(r, r->queue.proposed, peer);

        if (w->peer != peer)
                *w = (struct windows){.peer = peer};
        return w;
}

static struct window *window_of(struct replica *r, uint64_t peer, uint64_t life)
{
        struct windows *of = windows_of(r, peer);

        for (size_t i = 0; i < ARRAY_SIZE(of->lives); i++)
                if (of->lives[i].life == life)
                        return &of->lives[i];
        PROBE_IF(of->lives[0].life != 0,
                 "a follower forwards commands in its second life of a term");
        memmove(of->lives + 1, of->lives, sizeof(of->lives) - sizeof(*of->lives));
        of->lives[0] = (struct window){.life = life};
        return &of->lives[0];
}

/* An entry with a command that a member cannot apply would end that member's process, at each
 * start again (I13). So the frame is dropped, and its clients time out. It counts as received:
 * otherwise it would be sent again and again, and block its sender's other frames, even
 * renewals (I1). */
static void warn_of_unknown(struct replica *r, uint64_t peer)
{
        bool again = r->queue.unknown_log_at.ns > 0;

        if (!replica_is_due(r, &r->queue.unknown_log_at, UNKNOWN_AGAIN))
                return;
        PROBE_IF(again, "an unknown command is logged again after a minute");
        log_warning("Member %016" PRIx64 " proposed a command that this version does not know; "
                    "it was not accepted. Run the same version on all members.",
                    peer);
}

int queue_proposed(struct replica *r, const struct peer_frame *in)
{
        struct view commands = in->rest;
        struct window *w;
        uint8_t priority;
        int known, k;

        if (view_u8(&commands, &priority) < 0 || priority > REPLICA_URGENT ||
            commands.len > PROPOSED_MAX)
                return -EBADMSG;
        known = r->ops->check ? r->ops->check(r->userdata, commands) : 0;
        if (known < 0 && known != -ENOTSUP)
                return known;
        w = window_of(r, in->peer, in->v[1]);
        w->unacked++;
        /* Our own clients may fill only half of the queue. Otherwise they would take all the
         * room, and a forwarded frame that is refused again and again blocks its sender's other
         * frames, even renewals (I1). */
        w->full = priority == REPLICA_URGENT
                          ? urgent_bytes(r) + commands.len > URGENT_BYTES_MAX
                          : r->queue.bytes > 0 &&
                                    r->queue.bytes + commands.len > 2 * r->cfg.queued_bytes;
        PROBE_IF(w->full, "the leader has no room for forwarded commands");
        /* A frame for which there is no room will be repeated, so it must not count as seen. */
        if (w->full || !is_new(w, in->v[2]))
                return 0;
        if (known < 0) {
                warn_of_unknown(r, in->peer);
                return 0;
        }
        k = priority == REPLICA_URGENT ? add_urgent(r, commands.p, commands.len)
                                       : add_batch(r, commands.p, commands.len);
        if (k < 0)
                replica_fatal(r, "out of memory");
        return 0;
}

void queue_term_begins(struct replica *r)
{
        memset(r->queue.proposed, 0,
               sizeof(r->queue.proposed)); /* frames of an older term are not accepted */
        link_window_open(&r->queue.uncommitted, UNCOMMITTED_BYTES_MAX, r->cfg.election / 2);
}

/* Acknowledgements are sent along with other frames, to save packets, at the latest with the
 * next heartbeat. */
static void acknowledge(struct replica *r, uint64_t peer, int at, struct window *w)
{
        if (w->unacked == 0 ||
            (w->unacked < ACK_AFTER && !w->full && !(r->queue.sent_to & UINT64_C(1) << at)))
                return;
        w->unacked = 0;
        replica_send(r, peer, FRAME_PROPOSED,
                     (uint64_t[]){replica_term(r), w->life, w->high, w->seen, w->full}, 5);
}

void queue_acknowledge(struct replica *r)
{
        for (size_t i = 0; i < ARRAY_SIZE(r->queue.proposed); i++) {
                struct windows *of = &r->queue.proposed[i];
                int at = of->peer != 0 ? replica_position(r, of->peer) : -1;

                for (size_t k = 0; at >= 0 && k < ARRAY_SIZE(of->lives); k++)
                        acknowledge(r, of->peer, at, &of->lives[k]);
        }
}

/* Commands wait until the current lease time is known, and during a handover of leadership:
 * [libraft] raft would refuse the entry, and the commands would be lost. */
static bool may_submit(const struct replica *r)
{
        PROBE_IF(r->queue.bytes > 0 && replica_transferee(r) != 0,
                 "commands wait while leadership is handed over");
        PROBE_IF(r->queue.bytes > 0 && replica_is_ready(r) &&
                         !lease_clock_healthy(&r->time.clock, r->now),
                 "commands wait while lease time stands still");
        return replica_is_current(r) && lease_clock_healthy(&r->time.clock, r->now) &&
               replica_transferee(r) == 0;
}

/* A majority is for entries what a peer's kernel is for a link. */
static bool has_room(struct replica *r)
{
        struct link_window *w = &r->queue.uncommitted;

        if (link_window_asks(w))
                link_window_told(w,
                                 log_bytes(&r->log, libraft_commit(r) + 1, log_last(&r->log)),
                                 r->now);
        return link_window_room(w) > 0;
}

/* Makes an entry for @n bytes of commands, which the caller writes behind the stamp. False if
 * there are too many entries under way. */
static bool entry_new(struct replica *r, size_t n, struct raft_entry *ret)
{
        *ret = (struct raft_entry){
                .term = replica_term(r), .type = RAFT_COMMAND, .buf.len = STAMP + n};
        PROBE_IF(log_last(&r->log) - libraft_commit(r) >= UNCOMMITTED_MAX,
                 "commands wait because too many entries are not committed");
        if (log_last(&r->log) - libraft_commit(r) >= UNCOMMITTED_MAX || !has_room(r) ||
            log_bytes(&r->log, r->applied + 1, log_last(&r->log)) > UNAPPLIED_BYTES_MAX)
                return false;
        ret->buf.base = ret->batch = raft_malloc(ret->buf.len);
        if (!ret->batch) {
                replica_fatal(r, "out of memory");
                return false;
        }
        link_window_put(&r->queue.uncommitted, ret->buf.len, r->now);
        le64_put(ret->batch, (uint64_t) lease_clock_give(&r->time.clock, r->now).ns);
        return true;
}

/* Appends one entry: urgent commands first, then the oldest batch. */
static bool submit(struct replica *r)
{
        struct batch *b = STAILQ_FIRST(&r->queue.batches);
        size_t n_urgent = buf_len(&r->queue.urgent),
               n = n_urgent + (b ? buf_len(&b->bytes) : 0);
        struct raft_entry e;

        if (n == 0 || !entry_new(r, n, &e))
                return false;
        if (n_urgent > 0)
                memcpy((uint8_t *) e.batch + STAMP, buf_head(&r->queue.urgent), n_urgent);
        buf_clear(&r->queue.urgent);
        if (b) {
                memcpy((uint8_t *) e.batch + STAMP + n_urgent, buf_head(&b->bytes),
                       buf_len(&b->bytes));
                drop_first(r);
        }
        replica_submit(r, &e);
        return true;
}

int queue_append(struct replica *r, const void *commands, size_t n)
{
        uint64_t last = log_last(&r->log);
        struct raft_entry e;

        if (!may_submit(r) || !entry_new(r, n, &e))
                return -EAGAIN;
        memcpy((uint8_t *) e.batch + STAMP, commands, n);
        replica_submit(r, &e);
        return log_last(&r->log) > last ? 0 : -EAGAIN;
}

/* Commands gather while each turn of the loop brings more of them. An entry costs each replica
 * a write, an fdatasync() and some wakeups, whatever is in it, so a busy leader makes fewer and
 * larger ones. Urgent commands do not wait, and take the others along. */
static bool gathers(struct replica *r)
{
        const struct batch *first = STAILQ_FIRST(&r->queue.batches);

        if (r->queue.seen == 0)
                r->queue.gathers_since = r->now;
        return r->queue.bytes > r->queue.seen && buf_len(&r->queue.urgent) == 0 &&
               !STAILQ_NEXT(first, next) &&
               boot_diff(r->now, r->queue.gathers_since) < GATHER_MOST;
}

void queue_submit(struct replica *r)
{
        r->queue.state = QUEUE_FLOWS;
        while (replica_is_ready(r) && may_submit(r) && submit(r))
                ;
        r->queue.seen = r->queue.bytes;
}

void queue_flush(struct replica *r)
{
        if (!gathers(r))
                return queue_submit(r);
        r->queue.state = QUEUE_GATHERS;
        r->queue.seen = r->queue.bytes;
}

static void send_forwarded(struct replica *r, struct forwarded *f)
{
        f->sent_at = r->now;
        replica_send_frame(r, replica_leader(r), &f->frame);
}

/* Whether another frame may be sent: the link has room, and the leader can tell the frame from
 * those under way. */
static bool window_open(const struct replica *r)
{
        const struct forwarded *first = STAILQ_FIRST(&r->queue.unacked);

        return (!first || r->queue.forwarded + 1 - first->n < WINDOW) &&
               replica_room(r, replica_leader(r)) > 0;
}

static bool forward(struct replica *r, enum replica_priority priority,
                    const struct buf *commands)
{
        struct forwarded *f = calloc(1, sizeof(*f));

        if (!f) {
                replica_fatal(r, "out of memory");
                return false;
        }
        f->n = ++r->queue.forwarded;
        f->priority = priority;
        buf_add_u8(&f->frame, FRAME_PROPOSE);
        buf_add_u64(&f->frame, replica_term(r));
        buf_add_u64(&f->frame, r->cfg.seed);
        buf_add_u64(&f->frame, f->n);
        buf_add_u8(&f->frame, (uint8_t) priority);
        buf_add(&f->frame, buf_head(commands), buf_len(commands));
        STAILQ_INSERT_TAIL(&r->queue.unacked, f, next);
        r->queue.unacked_bytes += buf_len(&f->frame);
        if (buf_error(&f->frame) < 0) {
                replica_fatal(r, "out of memory");
                return false;
        }
        send_forwarded(r, f);
        return true;
}

void queue_forward(struct replica *r)
{
        struct batch *b;

        if (buf_len(&r->queue.urgent) > 0 && window_open(r) &&
            forward(r, REPLICA_URGENT, &r->queue.urgent))
                buf_clear(&r->queue.urgent);
        while ((b = STAILQ_FIRST(&r->queue.batches)) && !r->dead && window_open(r) &&
               forward(r, REPLICA_NORMAL, &b->bytes))
                drop_first(r);
}

/* How long a frame may go unacknowledged before it is sent again: by then the leader's next
 * acknowledgement, or the one after it, should have covered it. */
static nsec_t patience(const struct replica *r)
{
        return 4 * r->cfg.heartbeat;
}

/* Links keep the order, so a frame before @high that the leader does not have was lost, or
 * there was no room for it. Later ones may still be on their way. */
static void send_again(struct replica *r, uint64_t high, nsec_t after)
{
        struct forwarded *f;
        size_t bytes = 0;

        STAILQ_FOREACH (f, &r->queue.unacked, next) {
                if (f->n > high || bytes > RESEND_BYTES ||
                    replica_room(r, replica_leader(r)) == 0)
                        break;
                if (boot_diff(r->now, f->sent_at) < after)
                        continue;
                PROBE("a forwarded frame is sent again");
                bytes += buf_len(&f->frame);
                send_forwarded(r, f);
        }
}

void queue_acknowledged(struct replica *r, const struct peer_frame *in)
{
        uint64_t life = in->v[1], high = in->v[2], seen = in->v[3];
        bool full = in->v[4] != 0;
        struct forwarded *f, *next;

        STAILQ_FOREACH_SAFE (f, &r->queue.unacked, next, next)
                if (life == r->cfg.seed && f->n <= high && high - f->n < WINDOW &&
                    (seen & UINT64_C(1) << (high - f->n)))
                        forwarded_free(r, f);
        /* A refused frame is sent again, and the answer to it shows whether there is room by
         * then. If no frame is left to repeat, the refusal was of a needless repetition. */
        r->queue.state = full && !STAILQ_EMPTY(&r->queue.unacked) ? QUEUE_REFUSED : QUEUE_FLOWS;
        if (!full)
                send_again(r, life == r->cfg.seed ? high : 0, r->cfg.heartbeat);
}

struct boot_time queue_next(const struct replica *r)
{
        struct boot_time next = BOOT_TIME_NEVER;
        struct forwarded *f;

        if (replica_leads(r))
                return r->queue.state == QUEUE_GATHERS || r->queue.bytes > r->queue.seen
                               ? r->now
                               : next;
        if (replica_leader(r) == 0)
                return next;
        STAILQ_FOREACH (f, &r->queue.unacked, next)
                next = boot_min(next, boot_add(f->sent_at, patience(r)));
        /* Only a little at a time: a link that is merely slow must not be filled with repeated
         * frames. */
        return boot_max(next, boot_add(r->queue.resent_at, r->cfg.heartbeat));
}

void queue_run(struct replica *r)
{
        if (replica_leads(r) || replica_leader(r) == 0 || boot_before(r->now, queue_next(r)))
                return;
        r->queue.resent_at = r->now;
        send_again(r, UINT64_MAX, patience(r));
}

void queue_link_up(struct replica *r, uint64_t peer)
{
        struct forwarded *f;

        if (replica_leads(r) || replica_leader(r) != peer)
                return;
        STAILQ_FOREACH (f, &r->queue.unacked, next)
                if (replica_room(r, peer) > 0)
                        send_forwarded(r, f);
}
