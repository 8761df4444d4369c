/*
 * Snapshots: when one is taken, and how it gets to the disk and to a replica that lags too far
 * (install.c).
 *
 * A state may be large, and nothing waits for it: it is encoded in slices between other work,
 * written by a thread that nothing else waits for, and sent in parts that the other side
 * acknowledges, so that heartbeats go in between. What is sent is the present state, newer than
 * the one on disk. So the log in memory need not go back to that one: beyond a number of bytes
 * its oldest entries are dropped, and raft is given a snapshot of what has been applied.
 */
#include "base/probe.h"
#include "consensus/internal.h"

#define ENTRIES 16384
#define BYTES ((uint64_t) 64 << 20)
#define SMALL ((uint64_t) 1 << 20)
/* Entries kept behind a snapshot, for replicas that lag a little. */
#define TRAILING 4096
#define TRAILING_BYTES ((size_t) 1 << 20) /* their size after a snapshot that was asked for */
/* When the disk is full, log and snapshots are trimmed sooner. */
#define BYTES_WHEN_SHORT ((uint64_t) 1 << 20)
/* How much the log in memory may hold: twice what may be uncommitted. Beyond that the oldest
 * applied entries are dropped, and a replica that lacks them gets a snapshot. While a snapshot
 * is on its way the log may hold more: this many bytes, or as many as the snapshot has. */
#define LOG_BYTES ((size_t) 64 << 20)
#define LOG_BYTES_SENDING(bytes) (4 * (bytes))
#define AGAIN (5 * NSEC_PER_SEC) /* after a snapshot that could not be written */
#define SLICE ((size_t) 512 << 10)
#define PAUSE (2 * NSEC_PER_MSEC)        /* between slices, which so take 1/8 of the time */
#define RELEASE ((size_t) 16 << 20)      /* freed at once: less than 1 ms */
#define PARTS 8                          /* under way to a replica at once, at most ... */
#define WINDOW_LEAST ((size_t) 16 << 10) /* ... and at least this many bytes */
#define RESEND 2 /* election timeouts without an answer, after which parts count as lost */
#define GIVE_UP (10 * NSEC_PER_SEC)

static size_t slice(const struct replica *r)
{
        return r->cfg.snapshot_slice > 0 ? r->cfg.snapshot_slice : SLICE;
}

static uint64_t entries(const struct replica *r)
{
        return r->cfg.snapshot_entries > 0 ? r->cfg.snapshot_entries : ENTRIES;
}

static uint64_t bytes_between(const struct replica *r)
{
        return r->cfg.snapshot_bytes > 0 ? r->cfg.snapshot_bytes : BYTES;
}

/* ---- to another replica ---- */

static struct outgoing *outgoing_of(struct replica *r, uint64_t peer)
{
        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                if (r->snap.outgoing[i].peer == peer)
                        return &r->snap.outgoing[i];
        return NULL;
}

static void outgoing_end(struct outgoing *o)
{
        blob_free(o->head);
        blob_free(o->data);
        *o = (struct outgoing){0};
}

static bool is_sending(const struct replica *r)
{
        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                if (r->snap.outgoing[i].data)
                        return true;
        return false;
}

static bool is_wanted(const struct replica *r)
{
        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                if (r->snap.outgoing[i].peer != 0 && !r->snap.outgoing[i].head)
                        return true;
        return false;
}

/* Whether the replica does not have it yet, or has it and may still be loading it. */
static bool is_under_way(const struct replica *r, const struct outgoing *o)
{
        return o->head && (o->data || boot_before(r->now, o->at));
}

/* [libraft] It may ask for a snapshot with every answer of a replica that is already installing
 * one. And it waits until the replica has the index that it asked for, so an older snapshot is
 * not enough. */
void snapshot_asked(struct replica *r, uint64_t peer, uint64_t index)
{
        struct outgoing *o = outgoing_of(r, peer);

        /* One that the replica has got may still be loading there, however old it is: another
         * one would make it begin again. */
        if (o && o->head && (!is_under_way(r, o) || (o->data && o->index < index))) {
                PROBE_IF(o->data, "a snapshot on its way is too old, and another one is sent");
                outgoing_end(o);
        }
        o = outgoing_of(r, o && o->peer == peer ? peer : 0);
        if (!o || o->head)
                return;
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
 * slow link for as long as heartbeats may take. */
static void begin_window(const struct replica *r, struct outgoing *o)
{
        o->window = max_of(slice(r) / 4, min_of(slice(r), WINDOW_LEAST));
        o->probe = 0;
}

static void adapt_window(const struct replica *r, struct outgoing *o)
{
        nsec_t took = boot_diff(r->now, o->probe_at);

        if (o->probe == 0 || o->acked < o->probe)
                return;
        o->probe = 0;
        if (took < r->cfg.election / 4) {
                o->window = min_of(2 * o->window, PARTS * slice(r));
        } else if (took > r->cfg.election / 2) {
                PROBE("parts of a snapshot take long, and fewer are sent at once");
                o->window = max_of(o->window / 2, min_of(slice(r), WINDOW_LEAST));
        }
}

static void send_parts(struct replica *r, struct outgoing *o)
{
        while (o->sent < o->total && o->sent < o->acked + o->window &&
               replica_room(r, o->peer) > 0) {
                size_t at = o->sent, part = min_of(slice(r), o->window),
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

void snapshot_link_up(struct replica *r, uint64_t peer)
{
        struct outgoing *o = outgoing_of(r, peer);

        if (o && o->data && replica_leads(r))
                send_again(r, o);
}

static int outgoing_begin(struct replica *r, struct outgoing *o, struct blob *data)
{
        struct raft_message m = {.type = RAFT_INSTALL_SNAPSHOT};
        struct buf head = {0};
        int k;

        m.install_snapshot.term = replica_term(r);
        m.install_snapshot.last_index = r->snap.pending.index;
        m.install_snapshot.last_term = r->snap.pending.term;
        m.install_snapshot.conf = r->snap.pending.configuration;
        m.install_snapshot.conf_index = r->snap.pending.configuration_index;
        k = message_encode(&m, NULL, NULL, blob_view(data).len, &head);
        if (k < 0) {
                buf_fini(&head);
                return k;
        }
        buf_consume(&head, 1);
        o->head = blob_new(&head);
        if (!o->head)
                return -ENOMEM;
        o->data = blob_hold(data);
        o->term = replica_term(r);
        o->index = r->snap.pending.index;
        o->total = blob_view(o->head).len + blob_view(data).len + sizeof(o->tail);
        o->at = o->timed_at = o->sent_at = r->now;
        begin_window(r, o);
        members_restores(r, o->peer, o->index);
        log_debug("Sending a snapshot up to entry %" PRIu64 " (%zu bytes) to %016" PRIx64 ".",
                  o->index, o->total, o->peer);
        send_parts(r, o);
        return 0;
}

void snapshot_acked(struct replica *r, uint64_t peer, uint64_t index, uint64_t have)
{
        struct outgoing *o = outgoing_of(r, peer);

        if (!o || !o->head || o->index != index || have > o->total)
                return;
        if (!o->data) {
                /* The replica has all of it and is still installing it; or it refused it, and
                 * will be sent another one, but not at once, since that may be no better. */
                if (have == o->total)
                        o->at = boot_max(o->at, boot_add(r->now, r->cfg.election));
                else if (have == 0)
                        o->at = boot_min(o->at, boot_add(r->now, r->cfg.election));
                return;
        }
        if (have > o->acked)
                o->took += boot_diff(r->now, o->timed_at);
        o->timed_at = r->now;
        if (have == o->total) {
                /* Allows for the time to write and load it before another one is sent. */
                o->at = boot_add(r->now, max_of(r->cfg.election, o->took));
                o->data = blob_free(o->data);
                return;
        }
        if (have != o->acked)
                o->at = r->now;
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

/* Whether the last parts have been unanswered for too long. */
static bool is_lost(const struct replica *r, const struct outgoing *o)
{
        return o->data && o->sent > o->acked &&
               boot_diff(r->now, boot_max(o->at, o->sent_at)) >= RESEND * r->cfg.election;
}

static void outgoing_run(struct replica *r)
{
        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++) {
                struct outgoing *o = &r->snap.outgoing[i];

                if (o->peer == 0)
                        continue;
                PROBE_IF(o->data && !replica_leads(r),
                         "leadership is lost while a snapshot is being sent");
                PROBE_IF(o->data && replica_leads(r) && replica_position(r, o->peer) < 0,
                         "a member is removed while a snapshot is sent to it");
                PROBE_IF(o->data && replica_leads(r) && boot_diff(r->now, o->at) >= GIVE_UP,
                         "a snapshot is given up because nothing of it was acknowledged");
                if (!replica_leads(r) || replica_position(r, o->peer) < 0 ||
                    (o->head && o->term != replica_term(r)) ||
                    (o->data && boot_diff(r->now, o->at) >= GIVE_UP)) {
                        outgoing_end(o); /* if raft still needs one, it asks again */
                } else if (is_lost(r, o)) {
                        PROBE("parts of a snapshot are lost and sent again");
                        send_again(r, o);
                } else if (o->data) {
                        send_parts(r, o); /* parts that waited for room on the link */
                }
        }
}

/* ---- freeing ---- */

void snapshot_release(struct replica *r, struct blob *data)
{
        SLIST_INSERT_HEAD(&r->snap.releasing, data, entry);
}

static struct blob *releasable(const struct replica *r)
{
        struct blob *b;

        SLIST_FOREACH(b, &r->snap.releasing, entry)
        if (b->n_holders == 1)
                return b;
        return NULL;
}

static void release_run(struct replica *r)
{
        struct blob *b = releasable(r);

        if (!b || boot_before(r->now, r->snap.release_at))
                return;
        r->snap.release_at = boot_add(r->now, PAUSE);
        if (blob_shrink(b, RELEASE) > 0)
                return;
        SLIST_REMOVE(&r->snap.releasing, b, blob, entry);
        blob_free(b);
}

/* ---- our own ---- */

int snapshot_to_store(struct replica *r, struct blob *data, bool install)
{
        struct raft_buffer c;
        int k;

        if (raft_configuration_encode(&r->snap.pending.configuration, &c) != 0)
                return -ENOMEM;
        k = store_save_blob(r->store,
                            &(struct store_snapshot){
                                    .index = r->snap.pending.index,
                                    .term = r->snap.pending.term,
                                    .conf_index = r->snap.pending.configuration_index,
                                    .conf = {c.base, c.len},
                            },
                            data, install);
        raft_free(c.base);
        return k;
}

/* A large state is not saved for a few entries, or it would be written over and over. */
static bool is_due(const struct replica *r)
{
        uint64_t n = r->applied - r->snap.disk_index, bytes = r->snap.bytes_from;

        if (boot_before(r->now, r->snap.again_at) || n == 0)
                return false;
        if (r->snap.wanted || r->snap.due)
                return true;
        if (store_short_of_room(r->store) && (bytes >= BYTES_WHEN_SHORT || n >= entries(r) / 4))
                return true;
        /* A replica that is being sent a snapshot needs the entries after it. */
        if (is_sending(r) && bytes < 4 * max_of(bytes_between(r), r->snap.size))
                return false;
        return bytes >= max_of(bytes_between(r), r->snap.size / 2) ||
               (n >= entries(r) && (r->snap.size < SMALL || bytes >= r->snap.size / 8));
}

int snapshot_remember(struct replica *r, const struct raft_snapshot_metadata *m)
{
        struct raft_buffer c;

        if (raft_configuration_encode(&m->configuration, &c) != 0)
                return -ENOMEM;
        buf_clear(&r->snap.conf);
        buf_add(&r->snap.conf, c.base, c.len);
        raft_free(c.base);
        r->snap.conf_index = m->configuration_index;
        r->snap.index = m->index;
        r->snap.term = m->term;
        return buf_error(&r->snap.conf);
}

/* The members as of @index, which has been applied. A replica that has just started may already
 * know that a later change is committed, but the change may be applied only after this
 * snapshot. The caller frees @ret->configuration. */
static int metadata_of(const struct replica *r, uint64_t index,
                       struct raft_snapshot_metadata *ret)
{
        struct raft_buffer c = {0}, conf;
        const struct raft_configuration *committed;
        uint64_t at = libraft_committed(r, &committed);
        int k;

        if (at <= index) {
                if (raft_configuration_encode(committed, &c) != 0)
                        return -ENOMEM;
                conf = c;
        } else {
                const struct log_entry *e = NULL;

                for (at = index; at > r->snap.index && (!e || e->type != RAFT_CHANGE); at--)
                        e = log_get(&r->log, at);
                if (e && e->type == RAFT_CHANGE) {
                        PROBE("a snapshot is taken between two changes of members");
                        at++;
                        conf = (struct raft_buffer){e->data, e->len};
                } else {
                        PROBE("a snapshot has older members than those known to be committed");
                        at = r->snap.conf_index;
                        conf = (struct raft_buffer){
                                (void *) (uintptr_t) buf_head(&r->snap.conf),
                                buf_len(&r->snap.conf)};
                }
        }
        *ret = (struct raft_snapshot_metadata){
                .index = index,
                .term = replica_term_of(r, index),
                .configuration_index = at,
        };
        k = raft_configuration_decode(&conf, &ret->configuration);
        raft_free(c.base);
        return k == 0 ? 0 : -ENOMEM;
}

static void save(struct replica *r, bool for_disk)
{
        if (metadata_of(r, r->applied, &r->snap.pending) < 0)
                return replica_fatal(r, "out of memory");
        r->snap.saving = true;
        r->snap.saving_for_disk = for_disk;
        r->snap.letting_go = for_disk && r->snap.wanted;
        r->snap.slice_at = r->now;
        if (for_disk) {
                r->snap.wanted = r->snap.due = false;
                r->snap.bytes_from = 0;
        }
        r->ops->save(r->userdata);
}

static void saved(struct replica *r, struct buf *bytes)
{
        struct blob *data;
        int k;

        r->snap.saving = false;
        r->snap.size = buf_len(bytes);
        data = blob_new(bytes);
        k = data ? 0 : -ENOMEM;
        if (data)
                snapshot_release(r, data);
        for (unsigned i = 0; k == 0 && i < REPLICA_PEERS_MAX; i++)
                if (r->snap.outgoing[i].peer != 0 && !r->snap.outgoing[i].head &&
                    replica_leads(r) && r->snap.outgoing[i].wanted <= r->snap.pending.index)
                        k = outgoing_begin(r, &r->snap.outgoing[i], data);
        r->snap.writing = r->snap.saving_for_disk;
        if (k == 0 && r->snap.writing)
                k = snapshot_to_store(r, data, false);
        else if (!r->snap.writing)
                raft_configuration_close(&r->snap.pending.configuration);
        if (k < 0)
                replica_fatal(r, "out of memory");
}

static void save_more(struct replica *r)
{
        struct buf bytes = {0};
        int k;

        if (boot_before(r->now, r->snap.slice_at))
                return;
        r->snap.slice_at = boot_add(r->now, PAUSE);
        k = r->ops->save_more(r->userdata, slice(r), &bytes);
        if (k == 0)
                return saved(r, &bytes);
        if (k == -ESTALE) {
                PROBE("a snapshot being taken has to begin again");
                r->snap.saving = false;
                r->snap.wanted = r->snap.wanted || r->snap.letting_go;
                r->snap.due = r->snap.due || r->snap.saving_for_disk;
                raft_configuration_close(&r->snap.pending.configuration);
        } else if (k < 0) {
                replica_fatal(r, "out of memory");
        }
}

/* Tells raft about a snapshot at @m->index, and gives it @m's configuration. */
static void compact(struct replica *r, struct raft_snapshot_metadata *m, uint64_t trailing)
{
        struct raft_event ev = {.type = RAFT_SNAPSHOT};

        if (!r->dead && snapshot_remember(r, m) < 0)
                replica_fatal(r, "out of memory");
        if (r->dead)
                return raft_configuration_close(&m->configuration);
        ev.snapshot.metadata = *m;
        ev.snapshot.trailing = (unsigned) trailing;
        replica_step(r, &ev);
        if (m->index > trailing)
                log_trim(&r->log, m->index - trailing);
}

/* The oldest snapshot that a replica is waiting for, whether it is being encoded, sent or
 * installed. Raft must not hear of a newer one, or it would ask for that one instead; under
 * load this would repeat, and no snapshot would ever arrive. */
static uint64_t on_its_way(const struct replica *r)
{
        uint64_t index = r->snap.saving && is_wanted(r) ? r->snap.pending.index : UINT64_MAX;

        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++) {
                const struct outgoing *o = &r->snap.outgoing[i];

                if (is_under_way(r, o))
                        index = min_of(index, o->index);
        }
        return index;
}

/* While a snapshot is on its way, the log keeps at least as many bytes after it as the snapshot
 * itself has: a larger one takes longer to send. */
static size_t sending_bytes(const struct replica *r, size_t keep)
{
        size_t most = r->snap.saving ? r->snap.size : 0;

        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                most = max_of(most, r->snap.outgoing[i].total);
        return max_of(LOG_BYTES_SENDING(keep), most);
}

/* The entries after a snapshot that is being taken or sent are needed once it is installed. */
static uint64_t needed_behind(const struct replica *r)
{
        uint64_t index = on_its_way(r);

        return r->snap.saving || r->snap.writing
                       ? min_of(index, (uint64_t) r->snap.pending.index)
                       : index;
}

static size_t keep_bytes(const struct replica *r)
{
        return r->cfg.log_bytes > 0 ? r->cfg.log_bytes : LOG_BYTES;
}

bool snapshot_log_is_full(const struct replica *r)
{
        return log_bytes(&r->log, r->applied + 1, r->committed) > keep_bytes(r);
}

static void shrink(struct replica *r)
{
        size_t keep = keep_bytes(r), left = r->log.bytes;
        bool waits = left <= sending_bytes(r, keep);
        uint64_t index = min_of(r->applied, libraft_stored(r)), first = r->log.first, upto;
        struct raft_snapshot_metadata m;

        if (waits)
                index = min_of(index, on_its_way(r));
        /* Drops a quarter at a time. */
        if (left <= keep + keep / 4 || r->snap.installing || r->dead ||
            index <= r->snap.index || replica_term_of(r, index) == 0 ||
            libraft_committed(r, NULL) > index)
                return;
        upto = waits ? min_of(index - 1, needed_behind(r)) : index - 1;
        for (; first <= upto && left > keep; first++)
                left -= log_get(&r->log, first)->len;
        if (first == r->log.first)
                return;
        PROBE_IF(!waits && on_its_way(r) != UINT64_MAX,
                 "the log drops entries that a snapshot on its way needs");
        if (metadata_of(r, index, &m) < 0)
                return replica_fatal(r, "out of memory");
        compact(r, &m, index - (first - 1));
}

void snapshot_run(struct replica *r)
{
        bool due;

        shrink(r);
        outgoing_run(r);
        install_run(r);
        release_run(r);
        if (r->snap.saving)
                return save_more(r);
        if (r->applying || r->snap.incoming.loading)
                return; /* it would save a state that is about to be replaced */
        due = is_due(r);
        if ((due || is_wanted(r)) && !r->snap.writing && !r->snap.installing && !r->dead &&
            replica_term_of(r, r->applied) != 0)
                save(r, due);
}

struct boot_time snapshot_next(const struct replica *r)
{
        struct boot_time next =
                boot_min(install_next(r), r->snap.saving ? r->snap.slice_at : BOOT_TIME_NEVER);

        if (releasable(r))
                next = boot_min(next, r->snap.release_at);
        return is_sending(r) ? boot_min(next, boot_add(r->now, r->cfg.election)) : next;
}

void replica_want_snapshot(struct replica *r)
{
        r->snap.wanted = true;
}

/* ---- callbacks of the store ---- */

/* How many entries to keep behind the snapshot at @index. A snapshot that was asked for, to
 * defragment, is meant to free space, so then only a few are kept, by their size. */
static uint64_t trailing(const struct replica *r, uint64_t index)
{
        uint64_t max = min_of(entries(r), (uint64_t) TRAILING), n = 0;
        size_t bytes = 0;

        if (!r->snap.letting_go || is_sending(r))
                return max;
        PROBE("a snapshot that was asked for lets the log go");
        while (n < max && index - n >= r->log.first && log_get(&r->log, index - n)) {
                bytes += log_get(&r->log, index - n)->len;
                if (bytes > TRAILING_BYTES)
                        break;
                n++;
        }
        return n;
}

static void taken(struct replica *r)
{
        r->snap.writing = false;
        if (r->snap.pending.index > r->snap.index && r->snap.pending.index <= on_its_way(r)) {
                compact(r, &r->snap.pending, trailing(r, r->snap.pending.index));
        } else { /* the log was trimmed beyond the snapshot, or the next snapshot trims it */
                PROBE("a snapshot is written whose entries the log has dropped already");
                raft_configuration_close(&r->snap.pending.configuration);
        }
}

void snapshot_on_done(void *userdata, uint64_t index)
{
        struct replica *r = userdata;

        if (index != r->snap.pending.index)
                return; /* an install has replaced this snapshot of ours */
        r->snap.disk_index = r->snap.pending.index;
        if (r->snap.installing)
                install_done(r, index);
        else
                taken(r);
        store_trim(r->store, min_of(r->log.first - 1, r->snap.disk_index));
}

void snapshot_on_failed(void *userdata, uint64_t index, int e)
{
        struct replica *r = userdata;

        if (index != r->snap.pending.index || r->snap.installing)
                return; /* an install has replaced this snapshot of ours */
        PROBE("a snapshot cannot be written");
        r->snap.writing = false;
        raft_configuration_close(&r->snap.pending.configuration);
        r->snap.again_at = boot_add(r->now, AGAIN);
        log_warning("Cannot write a snapshot: %s; the log grows until there is room for one.",
                    strerror(-e));
}

void snapshot_fini(struct replica *r)
{
        struct blob *b;

        if (r->snap.saving || r->snap.writing || r->snap.installing)
                raft_configuration_close(&r->snap.pending.configuration);
        for (unsigned i = 0; i < REPLICA_PEERS_MAX; i++)
                outgoing_end(&r->snap.outgoing[i]);
        install_fini(r);
        buf_fini(&r->snap.conf);
        while ((b = SLIST_FIRST(&r->snap.releasing))) {
                SLIST_REMOVE_HEAD(&r->snap.releasing, entry);
                blob_free(b);
        }
}
