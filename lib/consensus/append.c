/*
 * Sends entries to the followers: as many as their links take, in messages of bounded size.
 *
 * raft hands out AppendEntries of up to 128 entries, however large they are, and repeats them
 * with each heartbeat to a follower that does not answer. This file only notes the range that
 * raft wants to send, and reads its entries from the log when the link has room; to raft this
 * looks like a slow network. Each message starts where the last one ended, so that a follower
 * sees no gap.
 */
#include "consensus/internal.h"

size_t replica_room(const struct replica *r, uint64_t peer)
{
        return r->ops->room ? r->ops->room(r->userdata, peer) : SIZE_MAX;
}

static struct pipe *pipe_of(struct replica *r, uint64_t peer)
{
        struct pipe *p = REPLICA_SLOT(r, r->pipes, peer);

        if (p->peer != peer || p->term != replica_term(r))
                *p = (struct pipe){.peer = peer, .term = replica_term(r)};
        return p;
}

static bool entry_of(void *userdata, uint64_t index, uint64_t *ret_term, uint8_t *ret_type,
                     struct view *ret_data)
{
        const struct replica *r = userdata;
        const struct log_entry *e = log_get(&r->log, index);

        if (!e)
                return false;
        *ret_term = e->term;
        *ret_type = e->type;
        *ret_data = (struct view){e->data, e->len};
        return true;
}

/* Returns false if the log no longer reaches back that far. */
static bool send_entries(struct replica *r, uint64_t peer, uint64_t prev, unsigned n)
{
        cleanup_(buf_fini) struct buf f = {0};
        struct raft_message m = {.type = RAFT_APPEND_ENTRIES, .server_id = peer};
        int e;

        m.append_entries.term = replica_term(r);
        m.append_entries.prev_log_index = prev;
        m.append_entries.prev_log_term = replica_term_of(r, prev);
        m.append_entries.leader_commit = libraft_commit(r);
        m.append_entries.n_entries = n;
        if (prev > 0 && m.append_entries.prev_log_term == 0)
                return false;
        e = message_encode(&m, entry_of, r, 0, &f);
        if (e == -ENOENT)
                return false;
        if (e < 0)
                replica_fatal(r, "out of memory");
        else
                replica_send_frame(r, peer, &f);
        return true;
}

/* How many entries after @prev fit into one message of @most bytes: at least one. */
static unsigned fitting(const struct replica *r, uint64_t prev, uint64_t upto, size_t most,
                        size_t *ret_size)
{
        unsigned n = 0;

        for (*ret_size = 0; prev + n < upto; n++) {
                const struct log_entry *e = log_get(&r->log, prev + n + 1);

                if (n > 0 && (!e || *ret_size + e->len > most))
                        break;
                *ret_size += e ? e->len : 0;
        }
        return n;
}

static void pump(struct replica *r, struct pipe *p)
{
        uint64_t match;
        size_t room;

        if (libraft_match(r, p->peer, &match) && p->prev < match)
                p->prev = min_of((uint64_t) match, p->upto);
        while (p->prev < p->upto && !r->dead && (room = replica_room(r, p->peer)) > 0) {
                size_t size, most = min_of(r->cfg.message_bytes, room);
                unsigned n = fitting(r, p->prev, p->upto, most, &size);

                if (!send_entries(r, p->peer, p->prev, n)) {
                        p->prev = p->upto; /* raft notices the gap, and sends a snapshot */
                        return;
                }
                p->prev += n;
                p->bytes += size;
        }
}

bool append_heartbeat(struct replica *r, uint64_t peer, uint64_t prev)
{
        return replica_room(r, peer) > 0 && send_entries(r, peer, prev, 0);
}

/* raft repeats entries with each heartbeat until they are answered. Large ones may still be
 * under way then, so they are not sent again for a while. */
static bool is_under_way(const struct replica *r, const struct pipe *p, uint64_t prev)
{
        return prev == p->start && p->bytes > r->cfg.message_bytes &&
               boot_diff(r->now, p->began) < 2 * r->cfg.heartbeat;
}

void append_wanted(struct replica *r, uint64_t peer, uint64_t prev, unsigned n)
{
        struct pipe *p = pipe_of(r, peer);
        bool waits = p->prev < p->upto;

        if (waits && prev == p->upto) { /* it follows entries that wait for room */
                p->upto += n;
        } else if (is_under_way(r, p, prev)) {
                p->upto = max_of(p->upto, prev + n);
                (void) append_heartbeat(r, peer, prev);
        } else {
                *p = (struct pipe){.peer = peer,
                                   .term = p->term,
                                   .start = prev,
                                   .prev = prev,
                                   .upto = prev + n,
                                   .began = r->now};
                if (n == 0)
                        (void) append_heartbeat(r, peer, prev);
        }
        pump(r, p);
}

void append_link_up(struct replica *r, uint64_t peer)
{
        struct pipe *p;
        uint64_t match;

        if (!replica_leads(r) || !libraft_match(r, peer, &match))
                return;
        p = pipe_of(r, peer);
        p->bytes = 0;
        if (match > 0 && match < p->upto)
                p->prev = match; /* everything after it was lost */
        pump(r, p);
}

void append_run(struct replica *r)
{
        for (size_t i = 0; i < ARRAY_SIZE(r->pipes); i++) {
                struct pipe *p = &r->pipes[i];

                if (p->prev < p->upto && p->term == replica_term(r) &&
                    replica_position(r, p->peer) >= 0)
                        pump(r, p);
        }
}
