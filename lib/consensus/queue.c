/* Commands on their way into entries: gathered, numbered, appended by the leader, forwarded by
 * others. */
#include "consensus/internal.h"

/* Commands are gathered into entries up to this size. */
#define ENTRY_BYTES ((size_t) 1 << 20)
/* Past it, clients are told: too many requests. */
#define QUEUED_BYTES_MAX ((size_t) 64 << 20)
/* [libraft] Conflicts are walked back one entry a round trip: few may be under way. */
#define UNCOMMITTED_MAX 64
#define UNCOMMITTED_BYTES_MAX ((size_t) 32 << 20)

void queue_drop(struct replica *r)
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
        if (r->dead || replica_leader(r) == 0)
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
                *w = (struct window){.peer = w->peer, .life = life};
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

/* Kept through changes of members, for a frame may come again after one. */
static struct window *window_of(struct replica *r, uint64_t peer)
{
        struct window *free_one = NULL;

        for (size_t i = 0; i < ARRAY_SIZE(r->proposed); i++) {
                struct window *w = &r->proposed[i];

                if (w->peer == peer)
                        return w;
                if (!free_one && (w->peer == 0 || replica_position(r, w->peer) < 0))
                        free_one = w;
        }
        assert(free_one); /* there are more than there can be members */
        *free_one = (struct window){.peer = peer};
        return free_one;
}

int queue_proposed(struct replica *r, uint64_t peer, struct view in)
{
        uint64_t term, life, n;
        uint8_t priority;
        int k = view_u64(&in, &term);

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
        if (!replica_leads(r) || term != raft_current_term(&r->raft) ||
            replica_position(r, peer) < 0 || !is_new(window_of(r, peer), life, n) ||
            r->queued + in.len > QUEUED_BYTES_MAX)
                return 0;
        k = priority == REPLICA_URGENT ? add_urgent(r, in.p, in.len)
                                       : add_batch(r, in.p, in.len);
        if (k < 0)
                replica_fatal(r, "out of memory");
        return 0;
}

static size_t uncommitted_bytes(const struct replica *r)
{
        size_t n = 0;

        for (uint64_t i = raft_commit_index(&r->raft) + 1; i <= log_last(&r->log); i++)
                n += log_get(&r->log, i) ? log_get(&r->log, i)->len : 0;
        return n;
}

/* Not before it is known what lease time it is. [libraft] Nor while it hands over: it would
 * refuse, and what was submitted be lost. */
bool queue_may_submit(const struct replica *r)
{
        return r->ready && lease_clock_healthy(&r->clock, r->now) &&
               raft_transferee((struct raft *) (uintptr_t) &r->raft) == 0;
}

/* One entry: what is urgent first, then the oldest batch. */
bool queue_submit(struct replica *r)
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
                replica_fatal(r, "out of memory");
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
        replica_step(r, &ev);
        return true;
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
                return replica_fatal(r, "out of memory");
        r->ops->send(r->userdata, replica_leader(r), (struct view){f.data, buf_len(&f)});
}

void queue_forward(struct replica *r)
{
        struct batch *b;

        forward(r, REPLICA_URGENT, &r->urgent);
        STAILQ_FOREACH (b, &r->batches, next)
                forward(r, REPLICA_NORMAL, &b->bytes);
        queue_drop(r);
}
