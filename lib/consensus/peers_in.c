/* The links that are made to us: by members, and by whoever claims to be one, or wants to
 * become one. */
#include "consensus/peers_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/le.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/utf8.h"
#include "consensus/message.h"

#define STRANGERS_MAX 64 /* connections that have not identified themselves */
#define GREETING_TIMEOUT (5 * NSEC_PER_SEC)

static void in_destroy(struct link_in *i)
{
        buf_fini(&i->rx);
        free(i);
}

void peers_in_free(struct link_in *i)
{
        LIST_REMOVE(i, next);
        loop_timer_disarm(&i->timeout);
        i->stream = stream_free(i->stream);
        PROBE_IF(i->reading, "a link ends inside of a frame that it brought");
        if (i->reading)
                i->freed = true;
        else
                in_destroy(i);
}

/* Tells a peer on its own link why nothing else that it sends counts. */
static void notify(struct link_in *i, enum frame_type type, uint64_t number)
{
        i->caller = CALLER_ANSWERED;
        buf_clear(&i->rx);
        buf_add_u32(stream_tx(i->stream), PEERS_NOTICE - 4);
        buf_add_u8(stream_tx(i->stream), (uint8_t) type);
        buf_add_u64(stream_tx(i->stream), number);
        stream_kick(i->stream);
        /* The peer closes the link: if we closed it while bytes of the peer are unread, our
         * answer would be lost. */
        loop_timer_in(&i->timeout, GREETING_TIMEOUT);
}

bool peers_in_refuse(struct link_in *i)
{
        struct peers *p = i->peers;
        uint64_t index = p->ops->strange(p->userdata, i->id);

        if (i->freed || index == 0)
                return false;
        PROBE("a peer is notified on its own link that it is not a member");
        notify(i, FRAME_REMOVED, index);
        return true;
}

/* Answers a replica that has no link of its own yet (join.h), and nothing else. Returns false
 * if the link has ended. */
static bool greet_joiner(struct link_in *i)
{
        struct peers *p = i->peers;
        struct join_request q;
        char shown[200], why[512], answer[PEERS_CLAUSE];
        struct joined who = {.cluster_id = p->cfg.cluster_id};
        int r = join_read((struct view){buf_head(&i->rx), buf_len(&i->rx)}, &q);
        uint64_t cause = hash_add(HASH_START, q.urls, strlen(q.urls));

        if (r != 0)
                return r > 0;
        utf8_shown(q.urls, strlen(q.urls), shown, sizeof(shown));
        buf_clear(&i->rx);
        PROBE_IF(!q.replace, "who wants to join asks for its member id");
        PROBE_IF(q.replace, "who has lost its disk asks to be replaced");
        if (!admission_check(&p->cfg.admission, i->stream, q.urls, why)) {
                if (admission_tell(&p->cfg.admission, hash_end(cause), loop_now(p->loop)))
                        log_warning("Refused a replica at %s that wants to join as %s: %s.",
                                    stream_peer(i->stream), shown, why);
                return false;
        }
        if (q.replace)
                p->ops->replace(p->userdata, q.urls, q.name, answer);
        else
                p->ops->who(p->userdata, q.urls, q.directory, &who);
        if (i->freed)
                return true;
        if (!q.replace &&
            admission_tell(&p->cfg.admission, hash_end(hash_add(cause, "asked", 5)),
                           loop_now(p->loop)))
                log_info("A replica at %s asked for its member id: %016" PRIx64 ".", shown,
                         who.member_id);
        i->caller = CALLER_ANSWERED;
        if (q.replace)
                replace_answer(answer, stream_tx(i->stream));
        else
                join_answer(&who, stream_tx(i->stream));
        stream_close_after_tx(i->stream);
        stream_kick(i->stream);
        return true;
}

/* Ends the link of member @id that was @introduced, or that was not; silently. Returns whether
 * there was one. */
static bool end_former(struct peers *p, uint64_t id, bool introduced)
{
        struct link_in *i;

        LIST_FOREACH (i, &p->in, next)
                if (i->caller == CALLER_MEMBER && i->id == id && i->introduced == introduced) {
                        peers_in_free(i);
                        return true;
                }
        return false;
}

/* A member makes one link to us, so it has given up the one before: it was cut off, or its host
 * lost its power. The former one ends when the new one is accepted: else a process that is not
 * the member would end the member's link. */
static void welcome(struct link_in *i)
{
        struct peers *p = i->peers;
        bool cut_off = end_former(p, i->id, true);
        struct link_out *o = peers_out_of(p, i->id);

        PROBE_IF(cut_off, "a peer calls anew before its last link has ended");
        i->introduced = true;
        if (o && cut_off)
                peers_out_hurry(o, true);
        p->ops->called(p->userdata, i->id); /* last: the owner may end all links */
}

static bool greet(struct link_in *i)
{
        const uint8_t *b = buf_head(&i->rx);
        struct peers *p = i->peers;
        struct link_out *o;
        char why[512];

        if (memcmp(b, PEERS_MAGIC, 8) != 0)
                return false;
        i->id = le64_get(b + 16);
        if (le64_get(b + 8) != p->cfg.cluster_id) {
                PROBE("a replica of another cluster calls");
                snprintf(
                        why, sizeof(why),
                        "it belongs to cluster %016" PRIx64 ", but this replica to %016" PRIx64
                        "%s",
                        le64_get(b + 8), p->cfg.cluster_id,
                        le64_get(b + 8) == p->cfg.ancestor
                                ? ", which was forced to descend from that one; end the other, "
                                  "and add it with an empty data directory (tenurectl core add)"
                                : "; the one that is to join the other's cluster needs an "
                                  "empty "
                                  "data directory and --initial-cluster-state=existing");
                peers_refuse(p, "a link from", i->id, stream_peer(i->stream), why);
                return false;
        }
        o = peers_out_of(p, i->id);
        if (!o) {
                PROBE("a peer calls that is not a member");
                peers_refuse(p, "a link from", i->id, stream_peer(i->stream),
                             "as far as this replica knows, it is not a member of the cluster");
                return peers_in_refuse(i);
        }
        if (!admission_check(&p->cfg.admission, i->stream, o->urls, why)) {
                peers_refuse(p, "a link from a replica that claims to be", i->id,
                             stream_peer(i->stream), why);
                return false;
        }
        (void) end_former(p, i->id, false);
        peers_out_hurry(o, false);
        i->caller = CALLER_MEMBER;
        buf_consume(&i->rx, PEERS_GREETING);
        loop_timer_disarm(&i->timeout);
        return true;
}

/* Returns as frame() does. */
static int take_frame(struct link_in *i, struct view frame)
{
        struct peers *p = i->peers;
        struct introduction in;
        int first = -ENODATA, r = 0;

        if (!i->introduced) {
                first = introduction_read(frame, &in);
                if (first == -EBADMSG)
                        return first;
                PROBE_IF(first == -ENODATA, "a link begins as one of release 0.1.0");
                strcpy(i->program, in.program);
                r = p->ops->introduced(p->userdata, i->id, &in);
                if (r == 0 && !i->freed)
                        welcome(i);
                if (r == -EBUSY && !i->freed && end_former(p, i->id, true))
                        p->ops->down(p->userdata, i->id);
                if (r == -EADDRINUSE && !i->freed)
                        notify(i, FRAME_DOUBLED, in.process);
        }
        return r < 0 || first == 0 || i->freed ? r : p->ops->frame(p->userdata, i->id, frame);
}

static void refuse_frame(struct link_in *i, int r)
{
        char why[256] = "it sent a malformed frame";

        if (r == -EKEYREJECTED)
                snprintf(why, sizeof(why),
                         "it has another data directory than the cluster has recorded for it, "
                         "so its disk was lost, replaced or restored; start it with the other "
                         "one, or have it replaced (tenurectl core replace)");
        if (r == -EADDRINUSE)
                snprintf(why, sizeof(why),
                         "another process runs with the same data directory, or a copy of it, "
                         "and was there first; stop one of them");
        if (r == -EPROTONOSUPPORT)
                snprintf(why, sizeof(why),
                         "it runs tenure-core %s, which is too old for the cluster version; "
                         "upgrade it",
                         i->program);
        peers_refuse(i->peers, "a link from", i->id, stream_peer(i->stream), why);
}

/* Handles the frames that have arrived completely. Returns false if the link has ended. If a
 * frame made the owner free the link, everything but the link itself may be gone. */
static bool take(struct link_in *i)
{
        if (i->caller == CALLER_ANSWERED) {
                PROBE("a frame of a peer that is not a member is ignored");
                buf_clear(&i->rx);
                return true;
        }
        if (i->caller == CALLER_UNKNOWN) {
                /* The first bytes show that this is not our protocol. */
                size_t n = min_of(buf_len(&i->rx), (size_t) 8);

                if (memcmp(buf_head(&i->rx), PEERS_MAGIC, n) != 0 &&
                    !join_begins(buf_head(&i->rx), n))
                        return false;
                PROBE_IF(buf_len(&i->rx) < PEERS_GREETING, "a greeting arrives in pieces");
                if (buf_len(&i->rx) < PEERS_GREETING)
                        return true;
                if (join_begins(buf_head(&i->rx), n))
                        return greet_joiner(i);
                if (!greet(i))
                        return false;
        }
        while (!i->freed && i->caller == CALLER_MEMBER && buf_len(&i->rx) >= 4) {
                size_t len = le32_get(buf_head(&i->rx));
                int r;

                PROBE_IF(len > FRAME_MAX, "a link ends because a frame would be too long");
                if (len > FRAME_MAX)
                        return false;
                PROBE_IF(buf_len(&i->rx) < 4 + len, "a frame arrives in pieces");
                if (buf_len(&i->rx) < 4 + len)
                        break;
                r = take_frame(i, (struct view){buf_head(&i->rx) + 4, len});
                if (r < 0 && r != -EBUSY && !i->freed)
                        refuse_frame(i, r);
                if (r < 0)
                        return i->caller == CALLER_ANSWERED;
                if (i->caller == CALLER_MEMBER)
                        buf_consume(&i->rx, 4 + len);
        }
        if (buf_len(&i->rx) == 0 && i->rx.cap > (1 << 20))
                buf_fini(&i->rx);
        return true;
}

static void in_data(struct stream *s, struct view data)
{
        struct link_in *i = stream_userdata(s);
        bool go_on;

        buf_add(&i->rx, data.p, data.len);
        i->reading = true;
        go_on = buf_error(&i->rx) == 0 && take(i);
        i->reading = false;
        if (i->freed)
                in_destroy(i);
        else if (!go_on)
                peers_in_free(i);
}

static void in_close(struct stream *s, const char *why)
{
        struct link_in *i = stream_userdata(s);
        struct peers *p = i->peers;
        uint64_t id = i->caller == CALLER_MEMBER ? i->id : 0;
        struct link_in *other;

        if (stream_was_refused(s) &&
            admission_tell(&p->cfg.admission, hash_end(hash_add(HASH_START, why, strlen(why))),
                           loop_now(p->loop)))
                log_warning("Refused a link from %s: %s.", stream_peer(s), why);
        peers_in_free(i);
        LIST_FOREACH (other, &p->in, next)
                if (other->caller == CALLER_MEMBER && other->id == id && other->introduced)
                        return;
        if (id != 0)
                p->ops->down(p->userdata, id);
}

static const struct stream_ops in_ops = {
        .what = "a link from a replica", .on_data = in_data, .on_close = in_close};

static void in_timeout(struct loop_timer *t)
{
        struct link_in *i = container_of(t, struct link_in, timeout);

        PROBE_IF(i->caller == CALLER_UNKNOWN,
                 "who connects does not say who it is, and is disconnected");
        PROBE_IF(i->caller == CALLER_ANSWERED,
                 "a peer that is not a member keeps its link, and is disconnected");
        peers_in_free(i);
}

/* Whether both have the same address, on any ports. */
static bool same_address(const char *a, const char *b)
{
        const char *end = strrchr(a, ':');
        size_t len = end ? (size_t) (end - a) + 1 : strlen(a);

        return strncmp(a, b, len) == 0 && !strchr(b + len, ':');
}

static size_t n_of_address(const struct peers *p, const struct link_in *of)
{
        struct link_in *i;
        size_t n = 0;

        LIST_FOREACH (i, &p->in, next)
                n += i->caller != CALLER_MEMBER &&
                     same_address(stream_peer(of->stream), stream_peer(i->stream));
        return n;
}

/* A connection has a few seconds to identify itself, and only a few may be unidentified at a
 * time. If there are too many, the oldest of the address that has most of them is closed, so
 * that a flood does not end a member's handshake. Costs STRANGERS_MAX squared comparisons. */
static void bound_strangers(struct peers *p)
{
        struct link_in *i, *first = NULL;
        size_t n = 0, most = 0, k;

        LIST_FOREACH (i, &p->in, next)
                n += i->caller != CALLER_MEMBER;
        if (n < STRANGERS_MAX)
                return;
        LIST_FOREACH (i, &p->in, next) {
                k = i->caller == CALLER_MEMBER ? 0 : n_of_address(p, i);
                if (k > 0 && k >= most) {
                        first = i;
                        most = k;
                }
        }
        PROBE("a connection ends because too many have not said who they are");
        peers_in_free(first);
}

void peers_in_accept(int fd, void *userdata)
{
        const struct port *port = userdata;
        struct peers *p = port->peers;
        struct link_in *i = calloc(1, sizeof(*i));

        if (!i) {
                log_debug("Out of memory for a link.");
                close(fd);
                return;
        }
        bound_strangers(p);
        i->peers = p;
        loop_timer_init(&i->timeout, p->loop, in_timeout);
        LIST_INSERT_HEAD(&p->in, i, next);
        if (stream_accept(&i->stream, p->loop, fd, port->tls ? p->cfg.tls_server : NULL,
                          &in_ops, i) < 0)
                return peers_in_free(i);
        loop_timer_in(&i->timeout, GREETING_TIMEOUT);
}
