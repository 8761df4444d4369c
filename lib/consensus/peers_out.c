/* The links that we make to the other members. */
#include "consensus/peers_internal.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/conf.h"
#include "base/le.h"
#include "base/log.h"
#include "base/probe.h"
#include "consensus/message.h"

#define RETRY_MIN (20 * NSEC_PER_MSEC)
#define RETRY_MAX (500 * NSEC_PER_MSEC)
#define CONNECT_TIMEOUT NSEC_PER_SEC
/* An attempt to connect that is not answered for so long may wait for TCP to repeat it. */
#define HANGS (100 * NSEC_PER_MSEC)
#define STABLE NSEC_PER_SEC /* a link that lasted this long is reconnected at once */

struct link_out *peers_out_of(const struct peers *p, uint64_t id)
{
        struct link_out *o;

        LIST_FOREACH (o, &p->out, next)
                if (o->id == id)
                        return o;
        return NULL;
}

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
        uint8_t hello[PEERS_GREETING] = PEERS_MAGIC;
        char why[512];

        o->stream = s;
        if (!admission_check(&o->peers->cfg.admission, s, o->urls, why)) {
                peers_refuse(o->peers, "the answer of", o->id, stream_peer(s), why);
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
        link_window_open(&o->window, o->peers->cfg.tx_full, o->peers->cfg.delay);
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
        uint8_t frame[PEERS_NOTICE];
        uint64_t id = o->id;

        PROBE_IF(buf_len(&o->rx) > 0, "a notice on a link arrives in pieces");
        buf_add(&o->rx, data.p, min_of(data.len, (size_t) PEERS_NOTICE));
        if (buf_error(&o->rx) < 0)
                return out_retry(o);
        if (buf_len(&o->rx) < PEERS_NOTICE)
                return;
        memcpy(frame, buf_head(&o->rx), sizeof(frame));
        o->backoff = RETRY_MAX;
        out_retry(o);
        if (le32_get(frame) == PEERS_NOTICE - 4 &&
            (frame[4] == FRAME_REMOVED || frame[4] == FRAME_DOUBLED))
                (void) !p->ops->frame(p->userdata, id,
                                      (struct view){frame + 4, PEERS_NOTICE - 4});
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
                peers_refuse(o->peers, "the answer of", o->id, o->url.host, why);
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

void peers_out_free(struct link_out *o)
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
        struct link_out *o = peers_out_of(p, id);
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
                peers_out_free(o);
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

/* What is queued for it; NULL: it is not open. */
static struct buf *tx_of(const struct link_out *o)
{
        return o && o->open ? stream_tx(o->stream) : NULL;
}

void peers_send(struct peers *p, uint64_t id, struct view frame)
{
        struct link_out *o = peers_out_of(p, id);
        struct buf *tx = tx_of(o);

        PROBE_IF(tx && buf_len(tx) > p->cfg.tx_max,
                 "a frame is dropped because too much is queued for its link");
        if (!tx || buf_len(tx) > p->cfg.tx_max) {
                if (o)
                        o->losses.unsent++;
                return;
        }
        buf_add_u32(tx, (uint32_t) frame.len);
        buf_add(tx, frame.p, frame.len);
        link_window_put(&o->window, 4 + frame.len, loop_now(p->loop));
        stream_kick(o->stream);
}

struct peers_losses peers_losses(const struct peers *p, uint64_t id)
{
        const struct link_out *o = peers_out_of(p, id);

        return o ? o->losses : (struct peers_losses){0};
}

bool peers_linked(const struct peers *p, uint64_t id)
{
        return tx_of(peers_out_of(p, id)) != NULL;
}

size_t peers_room(struct peers *p, uint64_t id)
{
        struct link_out *o = peers_out_of(p, id);
        size_t room;

        if (!tx_of(o))
                return 0;
        if (link_window_asks(&o->window))
                link_window_told(&o->window, stream_unsent(o->stream), loop_now(p->loop));
        room = link_window_room(&o->window);
        PROBE_IF(room == 0, "a link has no room for entries");
        return room;
}

/* Whether an attempt to connect is under way that may still be answered soon. */
static bool is_connecting(const struct link_out *o)
{
        nsec_t left = boot_diff(o->retry.when, loop_now(o->peers->loop));

        return dial_is_trying(&o->dial) &&
               (CONNECT_TIMEOUT - left < HANGS || dial_is_greeting(&o->dial));
}

void peers_out_hurry(struct link_out *o, bool cut_off)
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
