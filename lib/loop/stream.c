#include "loop/stream.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "loop/peer.h"
#include "loop/peer_cert.h"
#include "loop/tls_socket.h"

/* A patient stream reads smaller pieces, and smaller ones still if bytes turn out to be
 * expensive. */
#define SLICE_MIN ((size_t) 1024)
#define SLICE_MAX ((size_t) 16 * 1024)
#define EVENT_BYTES ((size_t) 256 * 1024) /* read, and written, before others get a turn */
#define EVENT_BYTES_URGENT ((size_t) 4 << 20)
#define EVENT_URGENT (2 * NSEC_PER_MSEC)
/* Memory that is kept after a write for the next one, in bytes: by all patient connections
 * together, and by each urgent one. */
#define TX_KEPT ((size_t) 16 << 10)
#define TX_KEPT_URGENT ((size_t) 256 << 10)
#define TLS_WRITE ((size_t) 256 * 1024)
#define USER_TIMEOUT_MS 5000
#define HEED_FROM ((size_t) 32 << 10) /* bytes: less than what a reader has room for */
#define HEED_EVERY NSEC_PER_SEC
#define PROBES 3 /* unanswered, of a full reader's window: as for keep-alive */

enum stream_state {
        STREAM_CONNECTING,
        STREAM_HANDSHAKE,
        STREAM_OPEN,
        STREAM_CLOSED,
};

struct stream {
        struct loop *loop;
        int fd;
        enum stream_state state;
        SSL *ssl;
        struct loop_io io;
        struct loop_later flush_later, input;
        struct loop_timer heed; /* see on_heed() */
        size_t unheeded; /* bytes written since the kernel's queue was seen to be empty */
        bool excused;    /* TCP_USER_TIMEOUT is off */
        int ready;       /* events that were not handled yet */
        bool greeted; /* server: the beginning of the client's hello has come, and its size is
                       * acceptable */
        bool refused; /* the TLS handshake failed */
        bool ended;   /* the other side has closed; data that it sent before may be unread */
        size_t slice; /* bytes per read */
        bool paused;
        bool in_callback; /* stream_free() waits for the outermost callback to return */
        bool freed;
        bool close_after_tx;
        bool says_end; /* send close_notify before closing */
        bool tls_wants_write;
        struct buf tx;
        const struct stream_ops *ops;
        void *userdata;
        char peer[PEER_SHOWN_MAX];
        char *peer_name; /* the certificate's common name; owned; NULL until it was asked for */
};

void stream_set_options(int fd)
{
        static const struct {
                int level, name, value;
        } options[] = {
                {IPPROTO_TCP, TCP_NODELAY, 1},
                {SOL_SOCKET, SO_KEEPALIVE, 1},
                {IPPROTO_TCP, TCP_KEEPIDLE, 10},
                {IPPROTO_TCP, TCP_KEEPINTVL, 3},
                {IPPROTO_TCP, TCP_KEEPCNT, 3},
                {IPPROTO_TCP, TCP_USER_TIMEOUT, USER_TIMEOUT_MS},
        };

        for (size_t i = 0; i < ARRAY_SIZE(options); i++)
                (void) setsockopt(fd, options[i].level, options[i].name, &options[i].value,
                                  sizeof(int));
}

/* Closes the descriptor; the struct itself is freed when no callback is on the stack. */
static void shut(struct stream *s)
{
        if (s->fd < 0)
                return;
        loop_io_stop(&s->io);
        loop_later_cancel(&s->flush_later);
        loop_later_cancel(&s->input);
        loop_timer_disarm(&s->heed);
        SSL_free(s->ssl);
        s->ssl = NULL;
        close(s->fd);
        s->fd = -1;
        s->state = STREAM_CLOSED;
}

static void destroy(struct stream *s)
{
        buf_fini(&s->tx);
        free(s->peer_name);
        free(s);
}

struct stream *stream_free(struct stream *s)
{
        if (!s)
                return NULL;
        shut(s);
        if (s->in_callback)
                s->freed = true;
        else
                destroy(s);
        return NULL;
}

static void dead(struct stream *s, const char *why)
{
        if (s->state == STREAM_CLOSED)
                return;
        shut(s);
        s->ops->on_close(s, why);
}

/* Ends a callback from the loop; the stream may be freed here. Returns whether it was. */
static bool leave(struct stream *s)
{
        s->in_callback = false;
        if (!s->freed)
                return false;
        destroy(s);
        return true;
}

static void watch(struct stream *s)
{
        int events = s->paused ? 0 : EV_READ;

        if (s->state == STREAM_CLOSED)
                return;
        if (s->state == STREAM_CONNECTING)
                events = EV_WRITE;
        else if (s->tls_wants_write || (s->state == STREAM_OPEN && buf_len(&s->tx) > 0))
                events |= EV_WRITE;
        loop_io_change(&s->io, events);
}

static void excuse(struct stream *s, bool excused)
{
        int ms = excused ? 0 : USER_TIMEOUT_MS;

        if (s->excused == excused)
                return;
        s->excused = excused;
        (void) setsockopt(s->fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof(ms));
}

/* A client may pause in the middle of an answer, until its window is full. Linux counts that
 * time in TCP_USER_TIMEOUT, although the client answers each probe of its window (tcp(7)). So
 * that is switched off while all that was sent is acknowledged and more waits; instead, the
 * probes that are not answered are counted. */
static void on_heed(struct loop_timer *t)
{
        struct stream *s = container_of(t, struct stream, heed);
        struct tcp_info info;
        socklen_t len = sizeof(info);

        if (getsockopt(s->fd, IPPROTO_TCP, TCP_INFO, &info, &len) < 0)
                return; /* a local socket */
        if (stream_unsent(s) == 0) {
                s->unheeded = 0;
                return excuse(s, false);
        }
        excuse(s, info.tcpi_unacked == 0 && !s->close_after_tx);
        loop_timer_in(&s->heed, HEED_EVERY);
        if (!s->excused || info.tcpi_probes < PROBES)
                return;
        s->in_callback = true;
        dead(s, "it does not answer");
        leave(s);
}

static void heed(struct stream *s)
{
        if (s->ops->patient && !loop_timer_armed(&s->heed) &&
            (s->unheeded >= HEED_FROM || buf_len(&s->tx) > 0))
                loop_timer_in(&s->heed, HEED_EVERY);
}

/* Writes once. Returns the number of bytes, 0 if the socket is full, or -1 if the stream has
 * ended. */
static ssize_t write_some(struct stream *s)
{
        size_t len = buf_len(&s->tx);
        ssize_t n;

        if (s->ssl) {
                int r, e;

                ERR_clear_error();
                errno = 0;
                r = SSL_write(s->ssl, buf_head(&s->tx), (int) min_of(len, TLS_WRITE));
                if (r > 0)
                        return r;
                e = errno;
                r = SSL_get_error(s->ssl, r);
                if (r == SSL_ERROR_WANT_WRITE || r == SSL_ERROR_WANT_READ) {
                        s->tls_wants_write = r == SSL_ERROR_WANT_WRITE;
                        return 0;
                }
                dead(s, tls_last_word(s->ssl, r, e));
                return -1;
        }
        n = send(s->fd, buf_head(&s->tx), len, MSG_NOSIGNAL);
        if (n >= 0)
                return n;
        if (errno == EAGAIN || errno == EINTR)
                return 0;
        dead(s, strerror(errno));
        return -1;
}

/* The bytes and the time that one event may use up. */
struct share {
        size_t bytes, bytes_max;
        struct boot_time end;
};

static struct share share_begin(const struct stream *s, struct boot_time now)
{
        bool patient = s->ops->patient;

        return (struct share){
                .bytes_max = patient ? EVENT_BYTES : EVENT_BYTES_URGENT,
                .end = boot_add(now, patient ? LOOP_PIECE : EVENT_URGENT),
        };
}

static bool share_used(const struct share *sh, struct boot_time now)
{
        return sh->bytes >= sh->bytes_max || !boot_before(now, sh->end);
}

static const char *what(const struct stream *s)
{
        return s->ops->what ? s->ops->what : "a stream";
}

/* Patient connections write from one shared buffer, unless there is more to write than the
 * socket takes. */
static void take_tx(struct stream *s)
{
        struct buf *spare = loop_spare(s->loop);

        if (!s->ops->patient || s->tx.data)
                return;
        s->tx = *spare;
        *spare = (struct buf){0};
}

static void return_tx(struct stream *s)
{
        struct buf *spare = loop_spare(s->loop);

        buf_reuse(&s->tx, s->ops->patient ? TX_KEPT : TX_KEPT_URGENT);
        if (!s->ops->patient || !s->tx.data)
                return;
        buf_fini(spare);
        *spare = s->tx;
        s->tx = (struct buf){0};
}

static void flush(struct stream *s)
{
        struct share sh;
        bool more = false;

        if (s->state != STREAM_OPEN)
                return;
        s->tls_wants_write = false;
        take_tx(s);
        for (sh = share_begin(s, loop_now(s->loop));;) {
                ssize_t n;

                if (sh.bytes > 0 && share_used(&sh, boot_glance())) {
                        stream_kick(s);
                        more = true;
                        break;
                }
                if (buf_len(&s->tx) == 0 && s->ops->on_fill)
                        s->ops->on_fill(s, &s->tx);
                if (s->state != STREAM_OPEN)
                        return;
                if (buf_error(&s->tx) < 0)
                        return dead(s, "out of memory");
                if (buf_len(&s->tx) == 0)
                        break;
                n = write_some(s);
                if (n < 0)
                        return;
                if (n == 0)
                        break;
                buf_consume(&s->tx, (size_t) n);
                sh.bytes += (size_t) n;
        }
        s->unheeded += sh.bytes;
        heed(s);
        if (buf_len(&s->tx) == 0 && !more) {
                if (s->close_after_tx) {
                        if (s->says_end && s->ssl)
                                SSL_shutdown(s->ssl);
                        return dead(s, "closed");
                }
                return_tx(s);
        }
        watch(s);
}

static void on_later(struct loop_later *d)
{
        struct stream *s = container_of(d, struct stream, flush_later);

        s->in_callback = true;
        flush(s);
        loop_piece(s->loop, what(s), s->peer);
        leave(s);
}

void stream_flush(struct stream *s)
{
        assert(!s->in_callback);
        s->in_callback = true;
        flush(s);
        leave(s);
}

void stream_kick(struct stream *s)
{
        if (s->state == STREAM_CLOSED)
                return;
        if (s->ops->patient)
                loop_share(&s->flush_later, s->loop, on_later);
        else
                loop_later(&s->flush_later, s->loop, on_later);
}

/* A greeting may already wait in the line of those without a group, where all newcomers are. */
void stream_set_group(struct stream *s, struct loop_group *group)
{
        bool waits = s->flush_later.list;

        assert(!s->input.list);
        loop_later_cancel(&s->flush_later);
        s->flush_later.group = s->input.group = group;
        if (waits)
                stream_kick(s);
}

static void on_turn(struct loop_later *d);

/* Arranges a read: for data that arrived before now, no event may come. */
static void read_later(struct stream *s)
{
        s->ready |= EV_READ;
        loop_share_input(&s->input, s->loop, s->ops->patient, on_turn);
}

static void opened(struct stream *s)
{
        s->state = STREAM_OPEN;
        if (s->ops->on_open)
                s->ops->on_open(s);
        if (s->state == STREAM_OPEN) {
                stream_kick(s);
                watch(s);
        }
        if (s->state == STREAM_OPEN && !s->paused)
                read_later(s); /* data may have come together with the end of the handshake */
}

static void refuse(struct stream *s, const char *why)
{
        s->refused = true;
        dead(s, why);
}

/* A client that speaks HTTP/1.1 gets an answer that it can read. What it sent is read first:
 * closing with unread data would discard the answer (RFC 9112, 9.6). */
static void refuse_plain(struct stream *s, const uint8_t *head)
{
        ssize_t n = recv(s->fd, loop_room(s->loop), LOOP_ROOM, 0);

        if (n > 0 && s->ops->not_tls && memcmp(head, "PRI", 3) != 0)
                n = send(s->fd, s->ops->not_tls, strlen(s->ops->not_tls), MSG_NOSIGNAL);
        (void) n; /* the connection is closed in any case */
        refuse(s, "it does not speak TLS, which this port requires");
}

/* Peeks at the first bytes of a client. Returns false while they are not conclusive, or if the
 * stream died. */
static bool hears_hello(struct stream *s)
{
        uint8_t head[TLS_HELLO_HEAD];
        ssize_t n = recv(s->fd, head, sizeof(head), MSG_PEEK);

        if (n < 0 && errno == EAGAIN)
                return false;
        if (n > 0 && (size_t) n < sizeof(head) && !s->ended)
                return false;
        if ((size_t) n == sizeof(head) && !tls_hello_fits(head)) {
                refuse(s, "its ClientHello is too large");
                return false;
        }
        if (n > 0 && tls_is_http(head, (size_t) n)) {
                refuse_plain(s, head);
                return false;
        }
        /* Who has closed its side cannot complete a handshake, which is not begun then. */
        if (s->ended && n > 0 && head[0] == SSL3_RT_HANDSHAKE) {
                dead(s, "connection closed during the TLS handshake");
                return false;
        }
        s->greeted = true; /* OpenSSL handles an end or an error */
        return true;
}

static void handshake(struct stream *s)
{
        int r;

        /* Only for edge-triggered streams: a level-triggered one would be reported again and
         * again until the bytes are conclusive. Those are connections to the port for replicas,
         * of which there are few. */
        if (s->io.of_crowd && !s->greeted && !hears_hello(s))
                return watch(s);
        ERR_clear_error();
        r = SSL_do_handshake(s->ssl);
        if (r == 1 && peer_cert_resumed_too_late(s->ssl))
                return dead(s, "the certificate of the session that was resumed has expired");
        if (r == 1)
                return opened(s);
        r = SSL_get_error(s->ssl, r);
        if (r == SSL_ERROR_WANT_READ || r == SSL_ERROR_WANT_WRITE) {
                s->tls_wants_write = r == SSL_ERROR_WANT_WRITE;
                return watch(s);
        }
        if (r == SSL_ERROR_SSL)
                return refuse(s, tls_why(s->ssl));
        dead(s, "connection closed during the TLS handshake");
}

static void connected(struct stream *s)
{
        int e = 0;
        socklen_t len = sizeof(e);

        if (getsockopt(s->fd, SOL_SOCKET, SO_ERROR, &e, &len) < 0)
                e = errno;
        if (e != 0)
                return dead(s, strerror(e));
        if (!s->ssl)
                return opened(s);
        s->state = STREAM_HANDSHAKE;
        handshake(s);
}

/* Reads once. Returns false if there is no more for now. */
static bool read_some(struct stream *s, struct share *sh)
{
        uint8_t *bytes = loop_room(s->loop);
        size_t size = s->ops->patient ? s->slice : LOOP_ROOM;
        ssize_t n;

        if (s->ssl) {
                int r, e;

                ERR_clear_error();
                errno = 0;
                r = SSL_read(s->ssl, bytes, (int) size);
                if (r <= 0) {
                        e = errno;
                        r = SSL_get_error(s->ssl, r);
                        if (r == SSL_ERROR_WANT_READ)
                                return !tls_socket_is_empty(s->ssl);
                        if (r == SSL_ERROR_WANT_WRITE) {
                                s->tls_wants_write = true;
                                return false;
                        }
                        dead(s, tls_renegotiates(s->ssl) ? "it asks for another handshake"
                                                         : tls_failure(r, e));
                        return false;
                }
                n = r;
        } else {
                do
                        n = recv(s->fd, bytes, size, 0);
                while (n < 0 && errno == EINTR);
                if (n < 0) {
                        if (errno != EAGAIN)
                                dead(s, strerror(errno));
                        return false;
                }
                if (n == 0 && s->ops->on_end && s->ops->on_end(s)) {
                        stream_pause(s, true);
                        return false;
                }
                if (n == 0) {
                        dead(s, "closed by the other side");
                        return false;
                }
        }
        s->ops->on_data(s, (struct view){bytes, (size_t) n});
        sh->bytes += (size_t) n;
        /* TLS may hold more in its own buffer, which epoll does not see. And if the end came
         * together with these bytes, epoll has reported it already. */
        return s->state == STREAM_OPEN && !s->paused &&
               (s->ssl || s->ended || (size_t) n == size);
}

static void read_share(struct stream *s)
{
        struct boot_time from = loop_now(s->loop), now;
        struct share sh = share_begin(s, from);

        while (read_some(s, &sh)) {
                now = boot_glance();
                if (boot_diff(now, from) > LOOP_PIECE / 2)
                        s->slice = max_of(s->slice / 2, SLICE_MIN);
                else if (boot_diff(now, from) < LOOP_PIECE / 8)
                        s->slice = min_of(s->slice * 2, SLICE_MAX);
                from = now;
                if (share_used(&sh, now))
                        return read_later(s);
        }
}

static void serve(struct stream *s, int events)
{
        s->in_callback = true;
        if (s->state == STREAM_CONNECTING) {
                connected(s);
        } else if (s->state == STREAM_HANDSHAKE) {
                s->tls_wants_write = false;
                handshake(s);
        } else {
                /* If TLS had to write before it could read, it reads now. */
                if (events & EV_WRITE && s->tls_wants_write)
                        events |= EV_READ;
                if (events & EV_WRITE)
                        flush(s);
                if (s->state == STREAM_OPEN && (events & EV_READ) && !s->paused)
                        read_share(s);
        }
        loop_piece(s->loop, what(s), s->peer);
        if (!leave(s))
                watch(s);
}

static void on_turn(struct loop_later *d)
{
        struct stream *s = container_of(d, struct stream, input);
        int events = s->ready;

        s->ready = 0;
        serve(s, events);
}

static void on_io(struct loop_io *io, int events)
{
        struct stream *s = container_of(io, struct stream, io);

        if (!s->ops->patient && s->state != STREAM_HANDSHAKE)
                return serve(s, events);
        s->ready |= events;
        s->ended = s->ended || (events & LOOP_ENDED);
        /* A handshake takes one to five milliseconds, and anybody may begin one. So it waits
         * for its turn, even for urgent streams, and open connections, whose leases may depend
         * on it, do not wait behind it. */
        if (s->state == STREAM_HANDSHAKE)
                loop_share_greeting(&s->input, s->loop, on_turn);
        else
                loop_share_input(&s->input, s->loop, true, on_turn);
}

void stream_pause(struct stream *s, bool paused)
{
        if (s->paused == paused || s->state == STREAM_CLOSED)
                return;
        s->paused = paused;
        if (!paused) /* TLS may have buffered data while paused */
                read_later(s);
        watch(s);
}

bool stream_paused(const struct stream *s)
{
        return s->paused;
}

static int stream_new(struct stream **ret, struct loop *l, int fd, struct tls *tls,
                      const struct stream_ops *ops, void *userdata)
{
        struct stream *s = calloc(1, sizeof(*s));

        if (!s)
                return -ENOMEM;
        if (tls) {
                s->ssl = tls_connection(tls);
                if (!s->ssl || tls_socket_set(s->ssl, fd) < 0) {
                        SSL_free(s->ssl);
                        free(s);
                        return -ENOMEM;
                }
        }
        s->loop = l;
        s->fd = fd;
        s->ops = ops;
        s->io.of_crowd = ops->patient;
        loop_timer_init(&s->heed, l, on_heed);
        s->slice = SLICE_MAX;
        s->userdata = userdata;
        strcpy(s->peer, "?");
        *ret = s;
        return 0;
}

int stream_accept(struct stream **ret, struct loop *l, int fd, struct tls *tls,
                  const struct stream_ops *ops, void *userdata)
{
        struct sockaddr_storage a = {0};
        socklen_t len = sizeof(a);
        struct stream *s;
        int r;

        r = stream_new(&s, l, fd, tls, ops, userdata);
        if (r < 0) {
                close(fd);
                return r;
        }
        if (getpeername(fd, (struct sockaddr *) &a, &len) == 0 && a.ss_family == AF_UNIX)
                peer_process(fd, s->peer);
        else
                peer_shown(&a, s->peer);
        if (s->ssl)
                SSL_set_accept_state(s->ssl);
        s->state = s->ssl ? STREAM_HANDSHAKE : STREAM_OPEN;
        loop_io_start(&s->io, l, fd, EV_READ, on_io);
        if (!s->ssl)
                stream_kick(s); /* in HTTP/2 the server speaks first, too */
        *ret = s;
        return 0;
}

int stream_connect(struct stream **ret, struct loop *l, const struct sockaddr *addr,
                   socklen_t addr_len, struct tls *tls, const char *name,
                   const struct stream_ops *ops, void *userdata)
{
        struct sockaddr_storage a = {0};
        struct stream *s;
        int fd, r;

        fd = socket(addr->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return -errno;
        r = stream_new(&s, l, fd, tls, ops, userdata);
        if (r < 0) {
                close(fd);
                return r;
        }
        stream_set_options(fd);
        memcpy(&a, addr, addr_len);
        peer_shown(&a, s->peer);
        if (s->ssl) {
                SSL_set_connect_state(s->ssl);
                if (!peer_cert_expect(s->ssl, tls, name)) {
                        stream_free(s);
                        return -EINVAL;
                }
        }
        if (connect(fd, addr, addr_len) < 0 && errno != EINPROGRESS) {
                r = -errno;
                stream_free(s);
                return r;
        }
        s->state = STREAM_CONNECTING;
        loop_io_start(&s->io, l, fd, EV_WRITE, on_io);
        *ret = s;
        return 0;
}

void stream_set_owner(struct stream *s, const struct stream_ops *ops, void *userdata)
{
        s->ops = ops;
        s->userdata = userdata;
}

void *stream_userdata(const struct stream *s)
{
        return s->userdata;
}

struct buf *stream_tx(struct stream *s)
{
        return &s->tx;
}

size_t stream_unsent(const struct stream *s)
{
        int n, r = ioctl(s->fd, TIOCOUTQ, &n); /* fails on a closed socket: nothing is unsent */

        return buf_len(&s->tx) + (r == 0 ? (size_t) n : 0);
}

size_t stream_unread(const struct stream *s)
{
        int n, r = ioctl(s->fd, TIOCINQ, &n);

        return r == 0 ? (size_t) n : 0;
}

void stream_close_after_tx(struct stream *s)
{
        s->close_after_tx = true;
        stream_kick(s);
}

void stream_end_after_tx(struct stream *s)
{
        s->says_end = true;
        stream_close_after_tx(s);
}

const char *stream_peer(const struct stream *s)
{
        return s->peer;
}

void stream_source(const struct stream *s, char *out, size_t size)
{
        struct sockaddr_storage a;
        socklen_t len = sizeof(a);

        out[0] = '\0';
        if (getsockname(s->fd, (struct sockaddr *) &a, &len) < 0 || a.ss_family == AF_UNIX ||
            getnameinfo((struct sockaddr *) &a, len, out, (socklen_t) size, NULL, 0,
                        NI_NUMERICHOST) != 0)
                out[0] = '\0';
        out[strcspn(out, "%")] = '\0'; /* cuts off the link of a link-local address */
}

bool stream_is_greeting(const struct stream *s)
{
        return s->state == STREAM_HANDSHAKE;
}

bool stream_was_refused(const struct stream *s)
{
        return s->refused;
}

bool stream_is_secure(const struct stream *s)
{
        return s->ssl != NULL;
}

bool stream_peer_is(const struct stream *s, const char *host)
{
        return peer_cert_is(s->ssl, host);
}

bool stream_peer_serves(const struct stream *s)
{
        return peer_cert_serves(s->ssl);
}

const char *stream_peer_subject(const struct stream *s, char *out, size_t size)
{
        return peer_cert_subject(s->ssl, out, size);
}

const char *stream_peer_name(struct stream *s)
{
        if (!s->peer_name)
                s->peer_name = peer_cert_name(s->ssl);
        return s->peer_name;
}
