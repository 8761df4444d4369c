/*
 * Receives a snapshot of another replica: first as parts, then as complete bytes, then as a
 * state beside ours, which finally replaces ours.
 *
 * The snapshot is loaded before it replaces anything of ours: one that does not load, or was
 * damaged in transit, is refused. It may be large, and nothing waits for it: its checksum is
 * computed as it arrives, it is loaded in slices between other work, and only then passed to
 * raft. If a newer snapshot arrives or another term begins before that, it is dropped as if it
 * had never arrived.
 */
#include "base/probe.h"
#include "consensus/internal.h"

#define LOAD_STEPS 6000             /* at once: about 2 ms ... */
#define LOAD_PAUSE NSEC_PER_MSEC    /* ... and more after this time */
#define BELIEVED ((size_t) 8 << 20) /* bytes to arrive before the stated total is believed */
#define REFUSAL_LOG_AGAIN (10 * NSEC_PER_SEC) /* how often refusals are logged */

static void forget(struct replica *r)
{
        struct incoming *c = &r->incoming;
        struct blob *data;

        if (c->state == INCOMING_LOADING) {
                r->ops->drop(r->userdata);
                message_discard(&c->message);
        }
        data = c->bytes.data ? blob_new(&c->bytes) : NULL;
        if (data)
                freeing_add(r, data);
        *c = (struct incoming){.refusal_log_at = c->refusal_log_at};
}

/* Reports to the sender how much of its snapshot we have. */
static void acknowledge(struct replica *r, uint64_t have)
{
        const struct incoming *c = &r->incoming;

        replica_send(r, c->peer, FRAME_SNAPSHOT_ACK, (uint64_t[]){c->term, c->index, have}, 3);
}

/* Keeps our state, and reports to the sender that we have nothing of its snapshot, so that its
 * raft asks for another one. */
static void refuse(struct replica *r, const char *why)
{
        struct incoming *c = &r->incoming;

        acknowledge(r, 0);
        if (replica_is_due(r, &c->refusal_log_at, REFUSAL_LOG_AGAIN))
                log_warning("Refused the snapshot up to entry %" PRIu64 " of member %016" PRIx64
                            ", leader of term %" PRIu64
                            ": %s. This member keeps its state and asks for another snapshot. "
                            "If this repeats, check that all members run the same version of "
                            "tenure-core, check that member's memory and network, and let "
                            "another member lead (move-leader).",
                            c->index, c->peer, c->term, why);
        forget(r);
}

/* The snapshot is complete: begins to load it. */
static void begin(struct replica *r)
{
        struct incoming *c = &r->incoming;
        size_t len = buf_len(&c->bytes) - SNAPSHOT_CRC;
        struct view state;
        int k;

        if (le32_get(buf_head(&c->bytes) + len) != c->crc)
                return refuse(r, "it was damaged in transit");
        c->bytes.end -= SNAPSHOT_CRC;
        k = message_decode_snapshot((struct view){buf_head(&c->bytes), len}, c->term, c->index,
                                    &c->message, &state);
        if (k < 0)
                return refuse(r, "it is not a snapshot");
        c->state = INCOMING_LOADING;
        c->load_at = r->now;
        buf_consume(&c->bytes, len - state.len);
        if (r->ops->load(r->userdata, state) < 0)
                replica_fatal(r, "out of memory");
}

/* Called only while no snapshot of ours is on its way to the disk: libraft_takes() would drop
 * the message. */
static void hand_over(struct replica *r)
{
        struct incoming *c = &r->incoming;

        c->state = INCOMING_INSTALLING;
        replica_receive(r, c->peer, &c->message);
        if (r->taking.state == SNAPSHOT_INSTALLING)
                return;
        PROBE("raft does not need a snapshot that was loaded");
        /* If the same snapshot arrives again, it is accepted again. */
        r->ops->drop(r->userdata);
        forget(r);
}

static void load_more(struct replica *r)
{
        struct incoming *c = &r->incoming;
        size_t left = r->cfg.apply_slice > 0 ? r->cfg.apply_slice : LOAD_STEPS;
        const char *wrong;
        char why[200];
        int k;

        if (boot_before(r->now, c->load_at))
                return;
        c->load_at = boot_add(r->now, LOAD_PAUSE);
        k = r->ops->load_more(r->userdata, &left, &wrong);
        if (k == 0)
                hand_over(r);
        else if (k == -ENOMEM)
                replica_fatal(r, "out of memory");
        if (k >= 0 || k == -ENOMEM)
                return;
        snprintf(why, sizeof(why), "it does not load (%s)", wrong);
        refuse(r, why);
}

int install_part(struct replica *r, const struct peer_frame *in)
{
        uint64_t term = in->v[0], index = in->v[1], total = in->v[2], offset = in->v[3];
        struct incoming *c = &r->incoming;
        struct view part = in->rest;

        if (total <= SNAPSHOT_CRC || offset > total || part.len > total - offset)
                return -EBADMSG;
        if (r->dead || term < replica_term(r))
                return 0;
        if (c->peer != in->peer || c->term != term || c->index != index || c->total != total) {
                PROBE_IF(c->state == INCOMING_PARTS,
                         "another snapshot comes before the last one is complete");
                PROBE_IF(c->state == INCOMING_LOADING,
                         "another snapshot comes while one is being loaded");
                forget(r);
                c->state = INCOMING_PARTS;
                c->peer = in->peer;
                c->term = term;
                c->index = index;
                c->total = total;
        }
        if (offset == c->have) {
                uint64_t end = total - SNAPSHOT_CRC;

                /* A part states the total size, which is not believed before much of the
                 * snapshot has arrived. */
                if (c->have < BELIEVED && c->have + part.len >= BELIEVED)
                        buf_expect(&c->bytes, total - c->have);
                buf_add(&c->bytes, part.p, part.len);
                if (buf_error(&c->bytes) < 0) {
                        replica_fatal(r, "out of memory");
                        return 0;
                }
                if (offset < end)
                        c->crc = crc32c(c->crc, part.p, min_of(part.len, end - offset));
                c->have += part.len;
                if (c->state == INCOMING_PARTS && c->have == total)
                        c->state = INCOMING_COMPLETE;
        }
        acknowledge(r, c->have);
        return 0;
}

/* Whether a snapshot has arrived completely, and has not been installed yet. */
static bool is_busy(const struct replica *r)
{
        return r->incoming.state >= INCOMING_COMPLETE &&
               r->incoming.state <= INCOMING_INSTALLING;
}

static struct boot_time tell_next(const struct replica *r)
{
        return is_busy(r) ? boot_add(r->incoming.acked_at, r->cfg.election / 4)
                          : BOOT_TIME_NEVER;
}

/* Installing a large snapshot takes time on a slow disk. Meanwhile the sender must neither send
 * another one, which would take as long, nor drop the entries after it. */
static void tell_progress(struct replica *r)
{
        if (r->dead || boot_before(r->now, tell_next(r)))
                return;
        r->incoming.acked_at = r->now;
        acknowledge(r, r->incoming.have);
}

void install_run(struct replica *r)
{
        struct incoming *c = &r->incoming;
        bool saves = taking_is_on(r);

        if (r->taking.state != SNAPSHOT_INSTALLING) {
                if (c->state != INCOMING_NONE && c->term < replica_term(r)) {
                        PROBE_IF(c->have > 0, "a term begins while a snapshot is received");
                        forget(r);
                }
                PROBE_IF(saves && c->state == INCOMING_COMPLETE,
                         "a snapshot waits for one of our own");
                if (!saves && c->state == INCOMING_COMPLETE)
                        begin(r);
                if (c->state == INCOMING_LOADING && !r->dead)
                        load_more(r);
        }
        tell_progress(r);
}

struct boot_time install_next(const struct replica *r)
{
        return boot_min(tell_next(r), r->incoming.state == INCOMING_LOADING
                                              ? r->incoming.load_at
                                              : BOOT_TIME_NEVER);
}

void install_begin(struct replica *r, struct raft_update *u)
{
        struct blob *data;

        r->taking.state = SNAPSHOT_INSTALLING;
        r->taking.pending = u->snapshot.metadata; /* raft's own copy, with its configuration */
        freeing_add_log(r, &r->log);
        log_init(&r->log, r->taking.pending.index + 1);
        r->taking.size = buf_len(&r->incoming.bytes);
        data = blob_new(&r->incoming.bytes);
        if (data)
                freeing_add(r, data);
        if (!data || taking_to_store(r, data, true) < 0)
                replica_fatal(r, "out of memory");
}

void install_done(struct replica *r, uint64_t index)
{
        struct raft_event ev = {.type = RAFT_PERSISTED_SNAPSHOT};

        if (trim_remember(r, &r->taking.pending) < 0)
                return replica_fatal(r, "out of memory");
        replica_adopt(r, r->taking.pending.term);
        r->taking.state = SNAPSHOT_IDLE;
        r->taking.bytes_from = 0;
        if (r->incoming.state == INCOMING_INSTALLING)
                r->incoming.state = INCOMING_INSTALLED;
        r->applying = false;
        r->applied = index;
        r->ops->skipped(r->userdata);
        ev.persisted_snapshot.metadata = r->taking.pending;
        ev.persisted_snapshot.last = true;
        replica_step(r, &ev);
}

void install_fini(struct replica *r)
{
        if (r->incoming.state == INCOMING_LOADING)
                message_discard(&r->incoming.message);
        buf_fini(&r->incoming.bytes);
}
