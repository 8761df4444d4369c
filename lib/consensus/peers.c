/* The links out, and the links in. Both are one thing, since each decides when one of the other
 * kind is made or ends. */
#include "consensus/peers.h"

#include <bsd/sys/queue.h>
#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>

#include "base/conf.h"
#include "base/hash.h"
#include "base/le.h"
#include "base/log.h"
#include "base/probe.h"
#include "base/utf8.h"
#include "consensus/message.h"
#include "loop/listener.h"

#define MAGIC "TENPEER1"
#define GREETING 24 /* bytes: magic, cluster, member */
/* The largest frame has one entry: a request (MaxRequestBytes=, up to 64 MiB), and the renewals
 * and expiries that go with it (8 MiB). */
#define FRAME_MAX ((size_t) 80 << 20)
/* The default limits of the bytes that are queued for a link. Beyond the first, no more entries
 * are read from the log, so that memory holds them only once for all links; beyond the second,
 * frames are dropped. */
#define TX_FULL ((size_t) 4 << 20)
#define TX_MAX ((size_t) 16 << 20)
#define STRANGERS_MAX 64 /* connections that have not identified themselves */
#define RESERVE 64       /* descriptors for the log and so on */
#define GREETING_TIMEOUT (5 * NSEC_PER_SEC)
#define RETRY_MIN (20 * NSEC_PER_MSEC)
#define RETRY_MAX (500 * NSEC_PER_MSEC)
#define CONNECT_TIMEOUT NSEC_PER_SEC
/* An attempt to connect that is not answered for so long may wait for TCP to repeat it. */
#define HANGS (100 * NSEC_PER_MSEC)
#define STABLE NSEC_PER_SEC /* a link that lasted this long is reconnected at once */
#define NOTICE_SIZE 13      /* a frame: length, its type, a number */
#define LISTENERS_MAX 8

struct link_out {
        LIST_ENTRY(link_out) next;
        struct peers *peers;
        uint64_t id;
        char urls[URLS_MAX];
        const char *next_url; /* into urls: the URL to try next */
        struct url url;
        struct dial dial;
        struct stream *stream; /* NULL until it is connected */
        bool open;
        struct boot_time opened_at;
        struct buf rx;           /* bytes of an answer, which can only be a refusal */
        struct loop_timer retry; /* when to connect again; while connecting, when to give up */
        nsec_t backoff;
        struct peers_losses losses;
};

enum caller {
        CALLER_UNKNOWN, /* it has not said who it is */
        CALLER_MEMBER,
        CALLER_ANSWERED /* no member: it got its answer, and what else it sends is ignored */
};

struct link_in {
        LIST_ENTRY(link_in) next;
        struct peers *peers;
        struct stream *stream;
        enum caller caller;
        bool reading, freed; /* in_free() waits for the reader of `rx` to return */
        uint64_t id;
        bool introduced; /* its first frame has arrived, and was accepted ... */
        char program[sizeof(((struct introduction *) 0)->program)]; /* ... and said this */
        struct buf rx;
        struct loop_timer timeout;
};

struct peers {
        struct loop *loop;
        struct resolver *resolver;
        struct peers_config cfg;
        const struct peers_ops *ops;
        void *userdata;
        struct port {
                struct peers *peers;
                struct listener *listener;
                bool tls;
        } ports[LISTENERS_MAX];
        size_t n_ports;
        bool stopped;
        LIST_HEAD(, link_out) out;
        LIST_HEAD(, link_in) in;
};

static struct link_out *out_of(const struct peers *p, uint64_t id)
{
        struct link_out *o;

        LIST_FOREACH (o, &p->out, next)
                if (o->id == id)
                        return o;
        return NULL;
}

/* Logs a refusal, the same one at most once a minute. */
static void refuse(struct peers *p, const char *kind, uint64_t id, const char *at,
                   const char *why)
{
        uint64_t cause = hash_add(HASH_START, kind, strlen(kind));

        cause = hash_end(hash_add(hash_add(cause, &id, sizeof(id)), why, strlen(why)));
        if (admission_tell(&p->cfg.admission, cause, loop_now(p->loop)))
                log_warning("Refused %s member %016" PRIx64 " at %s: %s.", kind, id, at, why);
}

/* ---- outwards ---- */

static bool has_lasted(const struct link_out *o)
{
        return o->open && boot_diff(loop_now(o->peers->loop), o->opened_at) >= STABLE;
}

static void out_retry(struct link_out *o)
{
        if (has_lasted(o)) {
                PROBE_IF(o->backoff > RETRY_MIN, "a link that lasted is made again at once");
                o->backoff = RETRY_MIN;
        }
        o->losses.downs += o->open;
        dial_stop(&o->dial);
        o->stream = stream_free(o->stream);
        o->open = false;
        buf_clear(&o->rx);
        loop_timer_in(&o->retry, o->backoff);
        o->backoff = min_of(2 * o->backoff, RETRY_MAX);
}

static void send_introduction(struct link_out *o)
{
        const struct peers *p = o->peers;
        struct introduction self = p->ops->introduction(p->userdata, o->id);
        cleanup_(buf_fini) struct buf f = {0};

        if (self.newest <= CLUSTER_0_1)
                return;
        introduction_append(&self, &f);
        buf_add_u32(stream_tx(o->stream), (uint32_t) buf_len(&f));
        buf_add(stream_tx(o->stream), buf_head(&f), buf_len(&f));
}

static void out_connected(struct stream *s, void *userdata)
{
        struct link_out *o = userdata;
        uint8_t hello[GREETING] = MAGIC;
        char why[512];

        o->stream = s;
        if (!admission_check(&o->peers->cfg.admission, s, o->urls, why)) {
                refuse(o->peers, "the answer of", o->id, stream_peer(s), why);
                return out_retry(o);
        }
        le64_put(hello + 8, o->peers->cfg.cluster_id);
        le64_put(hello + 16, o->peers->cfg.member_id);
        buf_add(stream_tx(s), hello, sizeof(hello));
        send_introduction(o);
        stream_kick(s);
        loop_timer_disarm(&o->retry);
        o->open = true;
        o->opened_at = loop_now(o->peers->loop);
        log_debug("Link to member %016" PRIx64 " at %s is up.", o->id, stream_peer(s));
        if (o->peers->ops->up)
                o->peers->ops->up(o->peers->userdata, o->id); /* last: the owner may free us */
}

/* Peers answer over their own link, with two exceptions: the notice that we are not a member,
 * or that another process is this member. */
static void out_data(struct stream *s, struct view data)
{
        struct link_out *o = stream_userdata(s);
        struct peers *p = o->peers;
        uint8_t frame[NOTICE_SIZE];
        uint64_t id = o->id;

        PROBE_IF(buf_len(&o->rx) > 0, "a notice on a link arrives in pieces");
        buf_add(&o->rx, data.p, min_of(data.len, (size_t) NOTICE_SIZE));
        if (buf_error(&o->rx) < 0)
                return out_retry(o);
        if (buf_len(&o->rx) < NOTICE_SIZE)
                return;
        memcpy(frame, buf_head(&o->rx), sizeof(frame));
        o->backoff = RETRY_MAX;
        out_retry(o);
        if (le32_get(frame) == NOTICE_SIZE - 4 &&
            (frame[4] == FRAME_REMOVED || frame[4] == FRAME_DOUBLED))
                (void) !p->ops->frame(p->userdata, id,
                                      (struct view){frame + 4, NOTICE_SIZE - 4});
}

static void out_close(struct stream *s, const char *why)
{
        struct link_out *o = stream_userdata(s);

        log_debug("Link to member %016" PRIx64 " at %s is down: %s.", o->id, stream_peer(s),
                  why);
        out_retry(o);
}

static const struct stream_ops out_ops = {.on_data = out_data, .on_close = out_close};

static void out_failed(const char *why, void *userdata)
{
        struct link_out *o = userdata;

        if (dial_was_refused(&o->dial))
                refuse(o->peers, "the answer of", o->id, o->url.host, why);
        else
                log_debug("Cannot link to member %016" PRIx64 " at %s: %s.", o->id, o->url.host,
                          why);
        out_retry(o);
}

static const struct dial_ops out_dial_ops = {.connected = out_connected, .failed = out_failed};

/* Connects to the next URL of the peer. */
static void out_timer(struct loop_timer *t)
{
        struct link_out *o = container_of(t, struct link_out, retry);
        char url[320];

        if (o->stream || dial_is_trying(&o->dial)) {
                PROBE("an attempt to make a link takes too long");
                return out_retry(o);
        }
        if (!list_next(&o->next_url, url, sizeof(url))) {
                o->next_url = o->urls;
                (void) list_next(&o->next_url, url, sizeof(url));
        }
        if (url_parse(url, &o->url) < 0 || (o->url.tls && !o->peers->cfg.tls_client))
                return out_retry(o);
        loop_timer_in(&o->retry, CONNECT_TIMEOUT);
        dial_start(&o->dial, &o->url, o->peers->cfg.tls_client);
}

static void out_free(struct link_out *o)
{
        LIST_REMOVE(o, next);
        loop_timer_disarm(&o->retry);
        dial_stop(&o->dial);
        stream_free(o->stream);
        buf_fini(&o->rx);
        free(o);
}

int peers_add(struct peers *p, uint64_t id, const char *urls)
{
        struct link_out *o = out_of(p, id);
        const char *cursor = urls;
        char item[320];
        struct url u;

        if (p->stopped || (o && strcmp(o->urls, urls) == 0))
                return 0;
        if (strlen(urls) >= sizeof(o->urls))
                return -EINVAL;
        while (list_next(&cursor, item, sizeof(item))) {
                if (url_parse(item, &u) < 0)
                        return -EINVAL;
                if (!admission_plaintext(&p->cfg.admission, &u))
                        return -EPERM;
        }
        if (*cursor || !*urls)
                return -EINVAL;
        PROBE_IF(o, "a member has moved, and the link to it is made anew");
        if (o)
                out_free(o);
        o = calloc(1, sizeof(*o));
        if (!o)
                return -ENOMEM;
        strcpy(o->urls, urls);
        o->next_url = o->urls;
        o->peers = p;
        o->id = id;
        o->backoff = RETRY_MIN;
        loop_timer_init(&o->retry, p->loop, out_timer);
        dial_init(&o->dial, p->loop, p->resolver, &out_dial_ops, &out_ops, o);
        LIST_INSERT_HEAD(&p->out, o, next);
        loop_timer_in(&o->retry, 0);
        return 0;
}

static struct link_out *open_link(const struct peers *p, uint64_t id)
{
        struct link_out *o = out_of(p, id);

        return o && o->open ? o : NULL;
}

void peers_send(struct peers *p, uint64_t id, struct view frame)
{
        struct link_out *o = out_of(p, id);
        struct buf *tx = o && o->open ? stream_tx(o->stream) : NULL;

        if (!o)
                return;
        PROBE_IF(tx && buf_len(tx) > p->cfg.tx_max,
                 "a frame is dropped because too much is queued for its link");
        if (!tx || buf_len(tx) > p->cfg.tx_max) {
                o->losses.unsent++;
                return;
        }
        buf_add_u32(tx, (uint32_t) frame.len);
        buf_add(tx, frame.p, frame.len);
        stream_kick(o->stream);
}

struct peers_losses peers_losses(const struct peers *p, uint64_t id)
{
        const struct link_out *o = out_of(p, id);

        return o ? o->losses : (struct peers_losses){0};
}

bool peers_linked(const struct peers *p, uint64_t id)
{
        return open_link(p, id) != NULL;
}

size_t peers_room(const struct peers *p, uint64_t id)
{
        struct link_out *o = open_link(p, id);
        size_t full = p->cfg.tx_full;

        PROBE_IF(o && buf_len(stream_tx(o->stream)) >= full, "a link has no room for entries");
        return o ? full - min_of(full, buf_len(stream_tx(o->stream))) : 0;
}

/* ---- inwards ---- */

static void in_destroy(struct link_in *i)
{
        buf_fini(&i->rx);
        free(i);
}

/* The owner may end all links while it handles a frame of one, whose reader is still
 * running. */
static void in_free(struct link_in *i)
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
        buf_add_u32(stream_tx(i->stream), NOTICE_SIZE - 4);
        buf_add_u8(stream_tx(i->stream), (uint8_t) type);
        buf_add_u64(stream_tx(i->stream), number);
        stream_kick(i->stream);
        /* The peer closes the link: if we closed it while bytes of the peer are unread, our
         * answer would be lost. */
        loop_timer_in(&i->timeout, GREETING_TIMEOUT);
}

/* Handles a peer that is no member: it is notified, if that is certain, and its frames are
 * ignored. Returns false if the link has ended. */
static bool in_refuse(struct link_in *i)
{
        struct peers *p = i->peers;
        uint64_t index = p->ops->strange(p->userdata, i->id);

        if (i->freed || index == 0)
                return false;
        PROBE("a peer is notified on its own link that it is not a member");
        notify(i, FRAME_REMOVED, index);
        return true;
}

void peers_sweep(struct peers *p, bool (*wanted)(void *userdata, uint64_t id))
{
        struct link_out *o, *o_next;
        struct link_in *i, *i_next;

        LIST_FOREACH_SAFE (o, &p->out, next, o_next)
                if (!wanted(p->userdata, o->id))
                        out_free(o);
        LIST_FOREACH_SAFE (i, &p->in, next, i_next)
                if (i->caller == CALLER_MEMBER && !out_of(p, i->id) && !in_refuse(i))
                        in_free(i);
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

/* Whether an attempt to connect is under way that may still be answered soon. */
static bool is_connecting(const struct link_out *o)
{
        nsec_t left = boot_diff(o->retry.when, loop_now(o->peers->loop));

        return dial_is_trying(&o->dial) &&
               (CONNECT_TIMEOUT - left < HANGS || dial_is_greeting(&o->dial));
}

/* A peer that connects to us can be reached: connect to it without delay. An attempt that began
 * before that may wait for TCP to repeat what was lost then. If the peer was @cut_off, our link
 * to it may be half open, and what is sent on it lost: make it anew, unless it was just made,
 * or the two ends would do so by turns. */
static void out_hurry(struct link_out *o, bool cut_off)
{
        PROBE_IF(o->stream, "a peer calls to which there is a link");
        if (cut_off && has_lasted(o)) {
                PROBE("a link to a peer that was cut off is made anew");
                return out_retry(o);
        }
        PROBE_IF(is_connecting(o), "a peer calls while it is called");
        if (o->stream || is_connecting(o))
                return;
        PROBE_IF(dial_is_trying(&o->dial), "a peer calls, and a call of it that hangs ends");
        PROBE_IF(o->backoff > RETRY_MIN, "a peer that calls is called back at once");
        dial_stop(&o->dial);
        o->backoff = RETRY_MIN;
        loop_timer_in(&o->retry, 0);
}

/* Ends the link of member @id that was @introduced, or that was not; silently. Returns whether
 * there was one. */
static bool end_former(struct peers *p, uint64_t id, bool introduced)
{
        struct link_in *i;

        LIST_FOREACH (i, &p->in, next)
                if (i->caller == CALLER_MEMBER && i->id == id && i->introduced == introduced) {
                        in_free(i);
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
        struct link_out *o = out_of(p, i->id);

        PROBE_IF(cut_off, "a peer calls anew before its last link has ended");
        i->introduced = true;
        if (o && cut_off)
                out_hurry(o, true);
        p->ops->called(p->userdata, i->id); /* last: the owner may end all links */
}

static bool greet(struct link_in *i)
{
        const uint8_t *b = buf_head(&i->rx);
        struct peers *p = i->peers;
        struct link_out *o;
        char why[512];

        if (memcmp(b, MAGIC, 8) != 0)
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
                                : "");
                refuse(p, "a link from", i->id, stream_peer(i->stream), why);
                return false;
        }
        o = out_of(p, i->id);
        if (!o) {
                PROBE("a peer calls that is not a member");
                refuse(p, "a link from", i->id, stream_peer(i->stream),
                       "as far as this replica knows, it is not a member of the cluster");
                return in_refuse(i);
        }
        if (!admission_check(&p->cfg.admission, i->stream, o->urls, why)) {
                refuse(p, "a link from a replica that claims to be", i->id,
                       stream_peer(i->stream), why);
                return false;
        }
        (void) end_former(p, i->id, false);
        out_hurry(o, false);
        i->caller = CALLER_MEMBER;
        buf_consume(&i->rx, GREETING);
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
        refuse(i->peers, "a link from", i->id, stream_peer(i->stream), why);
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

                if (memcmp(buf_head(&i->rx), MAGIC, n) != 0 &&
                    !join_begins(buf_head(&i->rx), n))
                        return false;
                PROBE_IF(buf_len(&i->rx) < GREETING, "a greeting arrives in pieces");
                if (buf_len(&i->rx) < GREETING)
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
                in_free(i);
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
        in_free(i);
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
        in_free(i);
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
        in_free(first);
}

static void on_accept(int fd, void *userdata)
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
                return in_free(i);
        loop_timer_in(&i->timeout, GREETING_TIMEOUT);
}

/* ---- both ---- */

static void listen_no_more(struct peers *p)
{
        for (size_t i = 0; i < p->n_ports; i++)
                listener_free(p->ports[i].listener);
        p->n_ports = 0;
}

int peers_listen(struct peers *p, bool on, char *err, size_t err_size)
{
        const char *cursor = p->cfg.listen_urls;
        char item[320];
        struct url u;
        int r;

        if (!on || p->stopped)
                listen_no_more(p);
        if (!on || p->stopped || p->n_ports > 0)
                return 0;
        while (list_next(&cursor, item, sizeof(item))) {
                struct port *port = &p->ports[p->n_ports];

                r = p->n_ports == ARRAY_SIZE(p->ports) ? -E2BIG : url_parse(item, &u);
                if (r == 0 && u.tls && !p->cfg.tls_server)
                        r = -EINVAL;
                if (r == 0) {
                        *port = (struct port){.peers = p, .tls = u.tls};
                        r = listener_new(&port->listener, p->loop, &u, on_accept, port);
                        if (r == 0)
                                listener_set_reserve(port->listener, RESERVE);
                }
                if (r < 0) {
                        listen_no_more(p);
                        snprintf(err, err_size, "cannot listen for peers on %s: %s", item,
                                 strerror(-r));
                        return r;
                }
                p->n_ports++;
        }
        return 0;
}

int peers_new(struct peers **ret, struct loop *l, struct resolver *rv,
              const struct peers_config *cfg, const struct peers_ops *ops, void *userdata)
{
        struct peers *p = calloc(1, sizeof(*p));

        if (!p)
                return -ENOMEM;
        p->loop = l;
        p->resolver = rv;
        p->cfg = *cfg;
        p->cfg.tx_full = cfg->tx_full > 0 ? cfg->tx_full : TX_FULL;
        p->cfg.tx_max = cfg->tx_max > 0 ? cfg->tx_max : TX_MAX;
        p->ops = ops;
        p->userdata = userdata;
        LIST_INIT(&p->out);
        LIST_INIT(&p->in);
        *ret = p;
        return 0;
}

void peers_stop(struct peers *p)
{
        struct link_out *o;
        struct link_in *i;

        p->stopped = true;
        listen_no_more(p);
        while ((i = LIST_FIRST(&p->in)))
                in_free(i);
        while ((o = LIST_FIRST(&p->out)))
                out_free(o);
}

struct peers *peers_free(struct peers *p)
{
        if (!p)
                return NULL;
        peers_stop(p);
        free(p);
        return NULL;
}
