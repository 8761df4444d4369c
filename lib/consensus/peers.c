#include "consensus/peers.h"

#include <bsd/sys/queue.h>
#include <inttypes.h>
#include <stdio.h>

#include "base/conf.h"
#include "base/le.h"
#include "base/log.h"

#define MAGIC "TENPEER1"
#define GREETING 24 /* magic, cluster, member */
#define FRAME_MAX ((size_t) 256 << 20)
/* What waits for a link: entries are not read from the log beyond the first, so that they stay
 * there, once for all; nothing is queued beyond the second. */
#define TX_FULL ((size_t) 4 << 20)
#define TX_MAX ((size_t) 16 << 20)
#define GREETING_TIMEOUT (5 * NSEC_PER_SEC)
#define RETRY_MIN (20 * NSEC_PER_MSEC)
#define RETRY_MAX (500 * NSEC_PER_MSEC)
#define CONNECT_TIMEOUT NSEC_PER_SEC

struct link_out {
        LIST_ENTRY(link_out) next;
        struct peers *peers;
        uint64_t id;
        struct url url;
        struct stream *stream;
        bool open;
        struct resolve_query *query;
        struct loop_timer
                retry; /* while there is no connection; else ends one that takes too long */
        nsec_t backoff;
};

struct link_in {
        LIST_ENTRY(link_in) next;
        struct peers *peers;
        struct stream *stream;
        bool greeted;
        bool reading, freed; /* in_free() waits for the reader of `rx` to return */
        uint64_t id;
        struct buf rx;
        struct loop_timer timeout;
};

struct peers {
        struct loop *loop;
        struct resolver *resolver;
        struct peers_config cfg;
        const struct peers_ops *ops;
        void *userdata;
        struct listener *listeners[8];
        size_t n_listeners;
        bool stopped;
        LIST_HEAD(, link_out) out;
        LIST_HEAD(, link_in) in;
};

/* ---- outwards ---- */

static void out_retry(struct link_out *o)
{
        o->stream = stream_free(o->stream);
        o->open = false;
        if (loop_timer_arm(&o->retry, boot_add(boot_now(), o->backoff)) < 0)
                abort();
        o->backoff = min_of(2 * o->backoff, RETRY_MAX);
}

static void out_open(struct stream *s)
{
        struct link_out *o = stream_userdata(s);
        uint8_t hello[GREETING] = MAGIC;

        le64_put(hello + 8, o->peers->cfg.cluster_id);
        le64_put(hello + 16, o->peers->cfg.member_id);
        buf_add(stream_tx(s), hello, sizeof(hello));
        stream_kick(s);
        loop_timer_disarm(&o->retry);
        o->backoff = RETRY_MIN;
        o->open = true;
        log_debug("Link to member %016" PRIx64 " at %s is up.", o->id, stream_peer(s));
        if (o->peers->ops->up)
                o->peers->ops->up(o->peers->userdata, o->id); /* last: it may end us */
}

static void out_data(struct stream *s, struct view data)
{
        /* Peers answer over their own link. */
        (void) s;
        (void) data;
}

static void out_close(struct stream *s, const char *why)
{
        struct link_out *o = stream_userdata(s);

        log_debug("Link to member %016" PRIx64 " at %s is down: %s.", o->id, stream_peer(s),
                  why);
        out_retry(o);
}

static const struct stream_ops out_ops = {.what = "a link to a replica",
                                          .on_open = out_open,
                                          .on_data = out_data,
                                          .on_close = out_close};

static void out_resolved(int r, const struct sockaddr *addr, socklen_t addr_len, void *userdata)
{
        struct link_out *o = userdata;
        struct tls *tls = o->url.tls ? o->peers->cfg.tls_client : NULL;

        o->query = NULL;
        if (r == 0)
                r = stream_connect(&o->stream, o->peers->loop, addr, addr_len, tls, o->url.host,
                                   &out_ops, o);
        if (r < 0)
                return out_retry(o);
        if (loop_timer_arm(&o->retry, boot_add(boot_now(), CONNECT_TIMEOUT)) < 0)
                abort();
}

static void out_timer(struct loop_timer *t)
{
        struct link_out *o = container_of(t, struct link_out, retry);

        if (o->stream)
                return out_retry(o);
        if (resolve(o->peers->resolver, &o->url, out_resolved, o, &o->query) < 0)
                out_retry(o);
}

static void out_free(struct link_out *o)
{
        LIST_REMOVE(o, next);
        loop_timer_disarm(&o->retry);
        resolve_cancel(o->query);
        stream_free(o->stream);
        free(o);
}

int peers_add(struct peers *p, uint64_t id, const char *url)
{
        struct link_out *o, *next;
        char was[320], is[320];
        struct url u;
        int r;

        if (p->stopped)
                return 0;
        r = url_parse(url, &u);
        if (r < 0)
                return r;
        LIST_FOREACH_SAFE (o, &p->out, next, next) {
                if (o->id != id)
                        continue;
                if (strcmp(url_format(&o->url, was), url_format(&u, is)) == 0)
                        return 0;
                out_free(o);
        }
        o = calloc(1, sizeof(*o));
        if (!o)
                return -ENOMEM;
        o->url = u;
        o->peers = p;
        o->id = id;
        o->backoff = RETRY_MIN;
        loop_timer_init(&o->retry, p->loop, out_timer);
        LIST_INSERT_HEAD(&p->out, o, next);
        return loop_timer_arm(&o->retry, boot_now());
}

void peers_sweep(struct peers *p, bool (*wanted)(void *userdata, uint64_t id))
{
        struct link_out *o, *next;

        LIST_FOREACH_SAFE (o, &p->out, next, next) {
                struct link_in *i;
                bool speaks = false;

                LIST_FOREACH (i, &p->in, next)
                        speaks = speaks || (i->greeted && i->id == o->id);
                if (!speaks && !wanted(p->userdata, o->id))
                        out_free(o);
        }
}

void peers_send(struct peers *p, uint64_t id, struct view frame)
{
        struct link_out *o;

        LIST_FOREACH (o, &p->out, next) {
                struct buf *tx;

                if (o->id != id || !o->open)
                        continue;
                tx = stream_tx(o->stream);
                if (buf_len(tx) > TX_MAX)
                        return;
                buf_add_u32(tx, (uint32_t) frame.len);
                buf_add(tx, frame.p, frame.len);
                stream_kick(o->stream);
                return;
        }
}

size_t peers_room(const struct peers *p, uint64_t id)
{
        const struct link_out *o;

        LIST_FOREACH (o, &p->out, next)
                if (o->id == id && o->open)
                        return TX_FULL - min_of(TX_FULL, buf_len(stream_tx(o->stream)));
        return 0;
}

/* ---- inwards ---- */

static void in_destroy(struct link_in *i)
{
        buf_fini(&i->rx);
        free(i);
}

/* The owner may end all links from inside of a frame of one, which is still being read. */
static void in_free(struct link_in *i)
{
        LIST_REMOVE(i, next);
        loop_timer_disarm(&i->timeout);
        i->stream = stream_free(i->stream);
        if (i->reading)
                i->freed = true;
        else
                in_destroy(i);
}

/* One that joins: tells it who it is, and that is all. Returns false when that link is over. */
static bool greet_joiner(struct link_in *i)
{
        uint64_t len = le64_get(buf_head(&i->rx) + 8);
        struct peers *p = i->peers;
        char url[JOIN_URL_MAX];
        struct joined who = {.cluster_id = p->cfg.cluster_id};

        if (len >= sizeof(url))
                return false;
        if (buf_len(&i->rx) < GREETING + len)
                return true;
        memcpy(url, buf_head(&i->rx) + GREETING, len);
        url[len] = '\0';
        buf_clear(&i->rx);
        p->ops->who(p->userdata, url, &who);
        if (i->freed)
                return true;
        log_info("A replica at %s asked who it is: %016" PRIx64 ".", url, who.member_id);
        join_answer(&who, stream_tx(i->stream));
        stream_close_after_tx(i->stream);
        stream_kick(i->stream);
        return true;
}

/* Who calls us is there to be called. */
static void out_hurry(struct peers *p, uint64_t id)
{
        struct link_out *o;

        LIST_FOREACH (o, &p->out, next) {
                if (o->id != id || o->stream || o->query)
                        continue;
                o->backoff = RETRY_MIN;
                if (loop_timer_arm(&o->retry, boot_now()) < 0)
                        abort();
        }
}

static bool greet(struct link_in *i)
{
        const uint8_t *p = buf_head(&i->rx);

        if (memcmp(p, MAGIC, 8) != 0)
                return false;
        if (le64_get(p + 8) != i->peers->cfg.cluster_id) {
                log_warning("Refused a replica of another cluster at %s (it says %016" PRIx64
                            ", we are %016" PRIx64 ").",
                            stream_peer(i->stream), le64_get(p + 8), i->peers->cfg.cluster_id);
                return false;
        }
        i->id = le64_get(p + 16);
        i->greeted = true;
        buf_consume(&i->rx, GREETING);
        loop_timer_disarm(&i->timeout);
        out_hurry(i->peers, i->id);
        return true;
}

/* Takes what has come whole. Returns false when that link is over. After a frame nothing may be
 * there any more but the link itself, when it was freed. */
static bool take(struct link_in *i)
{
        if (!i->greeted) {
                /* Garbage is told by its first bytes. */
                size_t n = min_of(buf_len(&i->rx), (size_t) 8);

                if (memcmp(buf_head(&i->rx), MAGIC, n) != 0 &&
                    memcmp(buf_head(&i->rx), JOIN_MAGIC, n) != 0)
                        return false;
                if (buf_len(&i->rx) < GREETING)
                        return true;
                if (memcmp(buf_head(&i->rx), JOIN_MAGIC, n) == 0)
                        return greet_joiner(i);
                if (!greet(i))
                        return false;
        }
        while (!i->freed && buf_len(&i->rx) >= 4) {
                size_t len = le32_get(buf_head(&i->rx));
                int r;

                if (len > FRAME_MAX)
                        return false;
                if (buf_len(&i->rx) < 4 + len)
                        break;
                r = i->peers->ops->frame(i->peers->userdata, i->id,
                                         (struct view){buf_head(&i->rx) + 4, len});
                if (r < 0 && !i->freed)
                        log_warning("Ended the link from member %016" PRIx64
                                    " at %s: it sent a malformed frame.",
                                    i->id, stream_peer(i->stream));
                if (r < 0)
                        return false;
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
        uint64_t id = i->greeted ? i->id : 0;

        (void) why;
        in_free(i);
        if (id != 0)
                p->ops->down(p->userdata, id);
}

static const struct stream_ops in_ops = {
        .what = "a link from a replica", .on_data = in_data, .on_close = in_close};

static void in_timeout(struct loop_timer *t)
{
        in_free(container_of(t, struct link_in, timeout));
}

static void on_accept(int fd, void *userdata)
{
        struct peers *p = userdata;
        struct link_in *i = calloc(1, sizeof(*i));

        if (!i) {
                log_debug("Out of memory for a link.");
                return;
        }
        i->peers = p;
        loop_timer_init(&i->timeout, p->loop, in_timeout);
        LIST_INSERT_HEAD(&p->in, i, next);
        if (stream_accept(&i->stream, p->loop, fd, p->cfg.tls_server, &in_ops, i) < 0 ||
            loop_timer_arm(&i->timeout, boot_add(boot_now(), GREETING_TIMEOUT)) < 0)
                in_free(i);
}

/* ---- both ---- */

int peers_new(struct peers **ret, struct loop *l, struct resolver *rv,
              const struct peers_config *cfg, const struct peers_ops *ops, void *userdata,
              char *err, size_t err_size)
{
        cleanup_(peers_freep) struct peers *p = calloc(1, sizeof(*p));
        const char *cursor = cfg->listen_urls;
        char item[320];
        struct url u;
        int r;

        if (!p)
                return -ENOMEM;
        p->loop = l;
        p->resolver = rv;
        p->cfg = *cfg;
        p->ops = ops;
        p->userdata = userdata;
        LIST_INIT(&p->out);
        LIST_INIT(&p->in);
        while (list_next(&cursor, item, sizeof(item)) &&
               p->n_listeners < ARRAY_SIZE(p->listeners)) {
                r = url_parse(item, &u);
                if (r == 0)
                        r = listener_new(&p->listeners[p->n_listeners], l, &u, on_accept, p);
                if (r < 0) {
                        snprintf(err, err_size, "cannot listen for peers on %s: %s", item,
                                 strerror(-r));
                        return r;
                }
                p->n_listeners++;
        }
        *ret = take_ptr(p);
        return 0;
}

void peers_stop(struct peers *p)
{
        struct link_out *o;
        struct link_in *i;

        p->stopped = true;
        for (size_t k = 0; k < p->n_listeners; k++)
                listener_free(p->listeners[k]);
        p->n_listeners = 0;
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
