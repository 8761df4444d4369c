/*
 * Flow control: how much of a client's input is accepted at a time, and how much is held for
 * it.
 *
 * No client is refused for being fast. The window of a stream opens again when its message has
 * been taken. A message that does not fit into the window gets room when there is some, and
 * gets all of it at once, so that no two messages wait for each other. While a connection holds
 * much, a request that would make a large answer, or would wait with a large body, waits for
 * its turn. Small requests - renewals, grants, locks - pass.
 */
#include "rpc/internal.h"

#define ROOMS_MAX ((size_t) 8 << 20)     /* for the large messages of one connection */
#define IN_MAX ((size_t) 64 << 20)       /* incomplete messages: honest clients have fewer */
#define IN_SPARE ((size_t) 128 << 10)    /* beside one with room, if all hold too much */
#define OUT_HIGH ((size_t) 1 << 20)      /* of a connection: no large answer is begun above */
#define CHARGE_HIGH ((size_t) 8 << 20)   /* ...and no large request is taken above */
#define CALL_OUT_HIGH ((size_t) 2 << 20) /* of a call: no message is taken from it above */
#define SMALL ((size_t) 16 << 10)        /* a call may always hold this much */
#define KEPT_SPARE ((size_t) 64 << 10)   /* what an address may keep if all keep too much */
#define TRIMMED ((size_t) 128 << 10)     /* a larger buffer is trimmed */
#define LARGE_PART 4 /* of an address's room: no answer waits for more than this */
#define LARGE_REQUEST 4096
/* More than two for each of the 8,192 calls that a client may begin before any is processed. */
#define IDLE_FRAMES_MAX 24000
/* Some frames make nghttp2 walk all streams; walking this many counts as one more frame. A
 * client that tunes its windows sends ten such frames in its life (gRPC's BDP estimator in Go).
 */
#define STREAMS_PER_FRAME 4
/* Streams may depend on each other (RFC 7540, 5.3). Each time nghttp2 has something to send, it
 * walks all ancestors of a stream, so this bounds the height of the tree. No gRPC
 * implementation makes one. (Announcing that we ignore priorities, RFC 9218, leads to a use
 * after free in nghttp2 before 1.61.) */
#define PRIORITIES_MAX 1000
#define FORGIVEN_BY_A_MESSAGE 16
#define FORGIVEN_PER_BYTES 512
#define RUN_MAX 64 /* calls that are resumed in one run */

static void account(const struct rpc_conn *c, size_t before, size_t after)
{
        for (struct rpc_account *a = c->limits.account; a; a = a->parent)
                a->held = a->held - before + after;
}

void flow_init(struct rpc_conn *c)
{
        TAILQ_INIT(&c->ready);
        TAILQ_INIT(&c->waiting);
        TAILQ_INIT(&c->behind);
        TAILQ_INIT(&c->senders);
        TAILQ_INIT(&c->beggars);
}

static void charge(struct call *k, size_t bytes)
{
        struct rpc_conn *c = k->pub.conn;

        account(c, k->charge, bytes);
        c->charged = c->charged - k->charge + bytes;
        k->charge = bytes;
}

void rpc_call_charge(struct rpc_call *pub, size_t bytes)
{
        struct call *k = call_of(pub);

        charge(k, k->request + bytes);
}

void rpc_call_charge_request(struct rpc_call *pub, size_t bytes)
{
        struct call *k = call_of(pub);
        size_t before = k->request;

        k->request = bytes;
        pub->conn->requests = pub->conn->requests - before + bytes;
        charge(k, k->charge - before + bytes);
}

/* An account may hold at most as much as its parent has unused. So a single account gets half
 * of the parent's room, two that grow together get a third each, and some is left for the next.
 * Charges that other bounds permit (the table in conn.h) may go beyond that. */
size_t rpc_account_spare(const struct rpc_account *a)
{
        size_t n = sub_sat(a->max, a->held);

        if (a->parent)
                n = min_of(n, sub_sat(sub_sat(a->parent->max, a->parent->held), a->held));
        return n;
}

size_t rpc_call_spare(const struct rpc_call *pub)
{
        return pub->conn->limits.account ? rpc_account_spare(pub->conn->limits.account)
                                         : SIZE_MAX;
}

bool rpc_call_is_small(size_t bytes)
{
        return bytes <= SMALL;
}

/* An answer that is larger than LARGE_PART allows is treated as if it were just that large, or
 * it would wait forever: it may use up all the room. */
bool rpc_call_may_hold(const struct rpc_call *pub, size_t bytes)
{
        struct rpc_account *own = pub->conn->limits.account;

        if (!own || rpc_call_is_small(bytes) ||
            min_of(bytes, own->max / LARGE_PART) <= rpc_account_spare(own))
                return true;
        for (; own; own = own->parent)
                own->wanted = true;
        return false;
}

/* An account may keep at most as much as its parent has unused, see rpc_account_spare(). */
static bool may_keep(const struct rpc_account *own, size_t bytes)
{
        size_t max;

        if (!own)
                return true;
        max = own->kept_max;
        if (own->parent)
                max = min_of(max, sub_sat(own->parent->kept_max, own->parent->kept));
        return own->kept + bytes <= max_of(max, min_of(KEPT_SPARE, own->kept_max));
}

bool rpc_call_keep(struct rpc_call *pub, size_t bytes)
{
        struct rpc_account *own = pub->conn->limits.account;

        if (!may_keep(own, bytes))
                return false;
        for (struct rpc_account *a = own; a; a = a->parent)
                a->kept += bytes;
        call_of(pub)->kept += bytes;
        return true;
}

void rpc_call_drop_kept(struct rpc_call *pub, size_t bytes)
{
        for (struct rpc_account *a = pub->conn->limits.account; a; a = a->parent)
                a->kept -= bytes;
        call_of(pub)->kept -= bytes;
}

struct party *rpc_call_party(const struct rpc_call *pub)
{
        return pub->conn->limits.party;
}

static void get_out_of_line(struct call *k)
{
        if (k->line)
                TAILQ_REMOVE(k->line, k, queued);
        k->line = NULL;
}

static void get_in_line(struct call *k, struct calls *line)
{
        if (k->line == line)
                return;
        get_out_of_line(k);
        k->line = line;
        TAILQ_INSERT_TAIL(line, k, queued);
}

static bool was_given_room(const struct call *k)
{
        return k->room > 0 && !k->begs;
}

/* Room that was given and is not filled yet counts as held. */
static void count_reserved(struct call *k)
{
        struct rpc_conn *c = k->pub.conn;
        size_t now = was_given_room(k) ? sub_sat(k->room, k->in_memory + k->apart) : 0;

        account(c, k->reserved, now);
        c->reserved = c->reserved - k->reserved + now;
        k->reserved = now;
}

static void give_room(struct rpc_conn *c);

static void return_room(struct call *k)
{
        struct rpc_conn *c = k->pub.conn;

        if (k->begs)
                TAILQ_REMOVE(&c->beggars, k, begging);
        else
                c->rooms -= k->room;
        k->begs = false;
        k->room = 0;
        count_reserved(k);
        give_room(c);
}

void flow_call_begins(struct call *k)
{
        if (k->pub.conn->server)
                cost_begins(k);
}

void flow_call_ends(struct call *k)
{
        struct rpc_conn *c = k->pub.conn;

        get_out_of_line(k);
        return_room(k);
        charge(k, 0);
        cost_ends(k);
        c->requests -= k->request;
        rpc_call_drop_kept(&k->pub, k->kept);
        flow_apart(k, 0);
        c->in -= buf_len(&k->in);
        c->out -= buf_len(&k->out);
        account(c, k->in_memory + k->out_memory, 0);
}

/* Counts the buffer's capacity, which is more than its content; but not what a small buffer
 * keeps for the next message. */
static void count_memory(struct call *k, struct buf *b, size_t *counted)
{
        size_t before = *counted;

        if (b->cap > SMALL && buf_len(b) == 0 && !b->failed)
                buf_fini(b);
        else if (b->cap > TRIMMED && !(b == &k->in && was_given_room(k)))
                buf_trim(b);
        *counted = b->cap > SMALL ? b->cap : buf_len(b);
        account(k->pub.conn, before, *counted);
}

void flow_in_changed(struct call *k, size_t before)
{
        struct rpc_conn *c = k->pub.conn;

        c->in = c->in - before + buf_len(&k->in);
        c->received += buf_len(&k->in) - min_of(before, buf_len(&k->in));
        count_memory(k, &k->in, &k->in_memory);
        count_reserved(k);
}

void flow_apart(struct call *k, size_t bytes)
{
        struct rpc_conn *c = k->pub.conn;

        c->in = c->in - k->apart + bytes;
        account(c, k->apart, bytes);
        k->apart = bytes;
        if (bytes == 0 && k->room > 0)
                return_room(k);
        count_reserved(k);
}

void flow_out_changed(struct call *k, size_t before)
{
        struct rpc_conn *c = k->pub.conn;
        size_t now = buf_len(&k->out);

        c->out = c->out - before + now;
        count_memory(k, &k->out, &k->out_memory);
        c->taken += before - min_of(before, now);
        if (now < before)
                c->idle_frames -= min_of(c->idle_frames, (before - now) / FORGIVEN_PER_BYTES);
        if (k->sends && now <= SMALL)
                get_in_line(k, &c->senders);
        if (k->full && rpc_call_queued(&k->pub) <= CALL_OUT_HIGH) {
                k->full = false;
                get_in_line(k, &c->ready);
        }
}

size_t rpc_conn_held(const struct rpc_conn *c)
{
        return c->in + c->reserved + c->out + c->charged;
}

struct rpc_traffic rpc_conn_traffic(const struct rpc_conn *c)
{
        bool waits_for_us = c->rooms == 0 && rpc_conn_begs(c);

        return (struct rpc_traffic){.in = waits_for_us ? 0 : c->in,
                                    .out = c->out,
                                    .received = c->received,
                                    .taken = c->taken};
}

/* What the services hold for answers to the connection's calls. */
static size_t charged(const struct rpc_conn *c)
{
        return c->charged - c->requests;
}

static bool is_over(const struct rpc_conn *c)
{
        return c->limits.account && rpc_account_spare(c->limits.account) == 0;
}

bool rpc_call_is_pressed(const struct rpc_call *pub)
{
        return is_over(pub->conn);
}

/* The connections that share the account hold too much, and this one more than a small part of
 * it. What it has sent as requests does not count: waiting would not reduce it. */
static bool overdrawn(const struct rpc_conn *c)
{
        return is_over(c) && c->out + charged(c) > SHARE;
}

static bool sends_much(const struct rpc_conn *c)
{
        return c->out > OUT_HIGH || overdrawn(c);
}

/* Looks only at output that waits to be read: that shrinks when the client reads. */
static bool is_unread(const struct rpc_conn *c)
{
        return c->out > 4 * OUT_HIGH || (is_over(c) && c->out > SHARE);
}

size_t rpc_call_queued_before(const struct rpc_call *pub, size_t more)
{
        const struct call *k = container_of(pub, const struct call, pub);
        const struct rpc_conn *c = pub->conn;
        size_t n = buf_len(&k->out);
        bool holds_too_much = (n > SMALL && (is_unread(c) || overdrawn(c))) ||
                              (n + more > SMALL && is_unread(c));

        return c->server && holds_too_much ? SIZE_MAX : n;
}

size_t rpc_call_queued(const struct rpc_call *pub)
{
        return rpc_call_queued_before(pub, 0);
}

size_t rpc_call_queued_patient(const struct rpc_call *pub, size_t more)
{
        return rpc_call_may_hold(pub, more) ? rpc_call_queued_before(pub, more) : SIZE_MAX;
}

static bool has_room(const struct rpc_conn *c)
{
        return !sends_much(c) && charged(c) <= CHARGE_HIGH;
}

/* Checked for requests in addition to has_room(). Requests shrink when they are answered, so no
 * answer waits for this. */
static bool asks_much(const struct rpc_conn *c)
{
        return c->requests > (is_over(c) ? SHARE : CHARGE_HIGH);
}

static bool is_busy(const struct rpc_conn *c)
{
        return c->limits.busy && *c->limits.busy;
}

bool rpc_call_has_room(const struct rpc_call *pub)
{
        return has_room(pub->conn) && TAILQ_EMPTY(&pub->conn->waiting);
}

void rpc_call_wait(struct rpc_call *pub)
{
        struct call *k = call_of(pub);

        k->wants_room = true;
        get_in_line(k, &pub->conn->waiting);
}

void rpc_call_wait_sent(struct rpc_call *pub)
{
        struct call *k = call_of(pub);

        k->sends = true;
        if (buf_len(&k->out) <= SMALL)
                get_in_line(k, &pub->conn->senders);
}

void rpc_call_hold(struct rpc_call *pub)
{
        call_of(pub)->held = true;
}

void rpc_call_release(struct rpc_call *pub)
{
        struct call *k = call_of(pub);

        if (!k->held)
                return;
        k->held = false;
        if (!pub->conn->server && k->window > 0) {
                if (nghttp2_session_consume_stream(pub->conn->h2, k->stream, k->window) ==
                    NGHTTP2_ERR_NOMEM)
                        pub->conn->nomem = true;
                k->window = 0;
        }
        get_in_line(k, &pub->conn->ready);
}

bool flow_may_deliver(struct call *k, size_t len)
{
        struct rpc_conn *c = k->pub.conn;

        if (k->held)
                return false;
        if (!c->server)
                return true;
        if (is_busy(c)) {
                get_in_line(k, &c->ready);
                return false;
        }
        if (k->turn) {
                k->turn = false;
                return true;
        }
        if (rpc_call_queued(&k->pub) > CALL_OUT_HIGH) {
                k->full = true;
                return false;
        }
        if (!k->pub.large && len <= LARGE_REQUEST)
                return true;
        if (asks_much(c) || !TAILQ_EMPTY(&c->behind)) {
                get_in_line(k, &c->behind);
                return false;
        }
        if (!has_room(c) || !TAILQ_EMPTY(&c->waiting)) {
                get_in_line(k, &c->waiting);
                return false;
        }
        return true;
}

static int32_t window_of(const struct call *k)
{
        return nghttp2_session_get_stream_effective_local_window_size(k->pub.conn->h2,
                                                                      k->stream);
}

/* Widens by @by, whatever the window is: the client may not know our settings yet. We never
 * narrow it: nghttp2 would deduct that from the next widening without telling the client. */
static void widen(const struct call *k, int32_t by)
{
        struct rpc_conn *c = k->pub.conn;
        int32_t window = window_of(k);

        if (window >= 0 &&
            nghttp2_session_set_local_window_size(c->h2, NGHTTP2_FLAG_NONE, k->stream,
                                                  window + by) == NGHTTP2_ERR_NOMEM)
                c->nomem = true;
}

static void give_room(struct rpc_conn *c)
{
        struct call *k;

        while ((k = TAILQ_FIRST(&c->beggars)) &&
               (c->rooms == 0 || c->rooms + k->room <= ROOMS_MAX) &&
               rpc_call_may_hold(&k->pub, k->room)) {
                TAILQ_REMOVE(&c->beggars, k, begging);
                k->begs = false;
                c->rooms += k->room;
                if (c->h2) {
                        /* reserve all at once; otherwise the buffer would grow by copying */
                        buf_expect(&k->in, sub_sat(FRAME_HEADER + k->room, buf_len(&k->in)));
                        widen(k, (int32_t) k->room);
                }
                count_reserved(k);
        }
}

/* The room counts in `rooms` once it is given. */
static void beg(struct call *k, size_t bytes)
{
        struct rpc_conn *c = k->pub.conn;

        if (k->room > 0)
                return;
        k->begs = true;
        TAILQ_INSERT_TAIL(&c->beggars, k, begging);
        k->room = bytes;
        give_room(c);
}

void rpc_call_want(struct rpc_call *pub, size_t bytes)
{
        beg(call_of(pub), bytes);
}

bool rpc_call_begs(const struct rpc_call *pub)
{
        return container_of(pub, const struct call, pub)->begs;
}

bool rpc_conn_begs(const struct rpc_conn *c)
{
        return !TAILQ_EMPTY(&c->beggars);
}

bool rpc_conn_give(struct rpc_conn *c)
{
        const struct call *first = TAILQ_FIRST(&c->beggars);

        give_room(c);
        return TAILQ_FIRST(&c->beggars) != first;
}

/* Up to half a window may be consumed and not yet announced to the client, so a message that
 * needs more than half asks for room. */
void flow_half(struct call *k, size_t len)
{
        struct rpc_conn *c = k->pub.conn;

        if (!c->server)
                return;
        if (c->in > IN_MAX ||
            (is_over(c) && c->in > min_of(c->rooms, c->limits.message_max) + IN_SPARE))
                return rpc_call_finish(&k->pub, RPC_RESOURCE_EXHAUSTED, c->limits.too_many);
        if (FRAME_HEADER + len > (size_t) max_of(window_of(k), (int32_t) RPC_STREAM_WINDOW) / 2)
                beg(k, len);
}

void flow_taken(struct call *k)
{
        struct rpc_conn *c = k->pub.conn;
        size_t give;

        k->pub.seen = false;
        c->idle_frames -= min_of(c->idle_frames, (size_t) FORGIVEN_BY_A_MESSAGE);
        if (!c->server)
                return;
        if (k->room > 0)
                return_room(k);
        give = k->window - min_of(k->window, buf_len(&k->in));
        k->window -= give;
        if (give > 0 &&
            nghttp2_session_consume_stream(c->h2, k->stream, give) == NGHTTP2_ERR_NOMEM)
                c->nomem = true;
}

void flow_received(struct rpc_conn *c, struct call *k, int32_t stream, size_t n)
{
        int r;

        c->idle_frames -= min_of(c->idle_frames, n / FORGIVEN_PER_BYTES);
        r = nghttp2_session_consume_connection(c->h2, n);
        /* A client accepts what it has asked for, even a large answer, as it arrives, unless
         * the handler holds its messages back. */
        if (k && (c->server || k->held))
                k->window += n;
        else if (r == 0)
                r = nghttp2_session_consume_stream(c->h2, stream, n);
        if (r == NGHTTP2_ERR_NOMEM)
                c->nomem = true;
}

void flow_calm(struct rpc_conn *c)
{
        if (!c->calm && c->h2 &&
            nghttp2_session_terminate_session(c->h2, NGHTTP2_ENHANCE_YOUR_CALM) ==
                    NGHTTP2_ERR_NOMEM)
                c->nomem = true;
        c->calm = true;
}

static bool goes_through_streams(const nghttp2_frame_hd *hd)
{
        return hd->type == NGHTTP2_GOAWAY ||
               (hd->type == NGHTTP2_SETTINGS && (hd->flags & NGHTTP2_FLAG_ACK) == 0);
}

bool flow_priority(struct rpc_conn *c)
{
        if (++c->n_priorities > PRIORITIES_MAX)
                flow_calm(c);
        return !c->calm;
}

bool flow_frame(struct rpc_conn *c, const nghttp2_frame_hd *hd)
{
        if (!c->server)
                return true;
        c->reported++;
        if (hd->type == NGHTTP2_PRIORITY && !flow_priority(c))
                return false;
        c->idle_frames += 1 + (goes_through_streams(hd) ? c->n_calls / STREAMS_PER_FRAME : 0);
        if (c->idle_frames > IDLE_FRAMES_MAX)
                flow_calm(c);
        return !c->calm;
}

/* Counts frames of any type: each begins where the last one ends. */
static void count_frames(struct rpc_conn *c, const uint8_t *p, size_t n)
{
        while (n > 0) {
                size_t step = min_of(n, c->skip > 0 ? c->skip : sizeof(c->head) - c->n_head);

                if (c->skip > 0) {
                        c->skip -= step;
                } else {
                        memcpy(c->head + c->n_head, p, step);
                        c->n_head += step;
                }
                if (c->n_head == sizeof(c->head)) {
                        c->skip = (size_t) c->head[0] << 16 | (size_t) c->head[1] << 8 |
                                  c->head[2];
                        c->n_head = 0;
                        c->came++;
                }
                p += step;
                n -= step;
        }
}

/* nghttp2 does not report frames of unknown types, nor those for calls that are over. */
void flow_count_unreported(struct rpc_conn *c, const uint8_t *p, size_t n)
{
        if (!c->server)
                return;
        count_frames(c, p, n);
        if (c->came <= c->reported)
                return;
        c->idle_frames += c->came - c->reported;
        c->reported = c->came;
        if (c->idle_frames > IDLE_FRAMES_MAX)
                flow_calm(c);
}

void rpc_conn_forgive(struct rpc_conn *c)
{
        c->idle_frames = 0;
}

void rpc_conn_refuse(struct rpc_conn *c)
{
        flow_calm(c);
}

static void go_on(struct call *k)
{
        bool asked = k->wants_room || k->sends;

        k->wants_room = k->sends = false;
        if (k->closing)
                return;
        if (!asked)
                call_deliver(k);
        else if (k->pub.handler && k->pub.handler->on_room)
                k->pub.handler->on_room(&k->pub);
}

static void take_turn(struct call *k)
{
        k->turn = !k->wants_room;
        go_on(k);
        k->turn = false;
}

static bool may_follow(const struct rpc_conn *c)
{
        return !TAILQ_EMPTY(&c->behind) && TAILQ_EMPTY(&c->waiting) && has_room(c) &&
               !asks_much(c);
}

void flow_run(struct rpc_conn *c)
{
        struct call *k;

        if (is_busy(c))
                return;
        for (int i = 0; i < RUN_MAX && (k = TAILQ_FIRST(&c->ready)); i++) {
                get_out_of_line(k);
                go_on(k);
        }
        if ((k = TAILQ_FIRST(&c->senders))) { /* only one: each produces much output */
                get_out_of_line(k);
                go_on(k);
        }
        for (int i = 0; i < RUN_MAX && has_room(c) && (k = TAILQ_FIRST(&c->waiting)); i++) {
                get_out_of_line(k);
                if (!k->wants_room && asks_much(c)) {
                        get_in_line(k, &c->behind);
                        continue;
                }
                take_turn(k);
        }
        for (int i = 0; i < RUN_MAX && may_follow(c); i++) {
                k = TAILQ_FIRST(&c->behind);
                get_out_of_line(k);
                take_turn(k);
        }
}

bool rpc_conn_can_go_on(const struct rpc_conn *c)
{
        return !TAILQ_EMPTY(&c->ready) || !TAILQ_EMPTY(&c->senders) ||
               (!TAILQ_EMPTY(&c->waiting) && has_room(c)) || may_follow(c);
}

size_t rpc_conn_backlog(const struct rpc_conn *c)
{
        return c->h2 ? nghttp2_session_get_outbound_queue_size(c->h2) : 0;
}

/* ---- messages ---- */

void flow_drop_input(struct call *k)
{
        size_t before = buf_len(&k->in);

        buf_reuse(&k->in, SPARE_KEPT);
        k->pub.half = false;
        flow_in_changed(k, before);
}

static void report_end(struct call *k)
{
        if (!k->pub.ended || k->end_reported)
                return;
        k->end_reported = true;
        if (buf_len(&k->in) > 0 && !k->finished)
                rpc_call_finish(&k->pub, RPC_INTERNAL, "grpc: the message ended too early");
        else if (k->pub.handler && k->pub.handler->on_end && !k->finished)
                k->pub.handler->on_end(&k->pub);
}

/* Returns false if the next message has to wait. */
static bool deliver(struct call *k)
{
        struct rpc_conn *c = k->pub.conn;

        while (buf_len(&k->in) >= FRAME_HEADER && !k->closing && !(c->server && k->finished)) {
                const uint8_t *head = buf_head(&k->in);
                size_t len = frame_len(head), before = buf_len(&k->in);

                if (head[0] != 0) {
                        call_refuse(k, RPC_UNIMPLEMENTED,
                                    "grpc: compressed messages are not supported");
                        break;
                }
                if (len > c->limits.message_max) {
                        call_refuse(k,
                                    c->server ? RPC_INVALID_ARGUMENT : RPC_RESOURCE_EXHAUSTED,
                                    c->limits.too_large);
                        break;
                }
                if (before < FRAME_HEADER + len) {
                        flow_half(k, len);
                        break;
                }
                if (!flow_may_deliver(k, len))
                        return false;
                if (k->counts) {
                        k->counts->received++;
                        k->counts->received_bytes += len;
                }
                if (k->pub.handler && k->pub.handler->on_message)
                        k->pub.handler->on_message(&k->pub,
                                                   (struct view){head + FRAME_HEADER, len});
                buf_consume(&k->in, FRAME_HEADER + len);
                flow_in_changed(k, before);
                flow_taken(k);
        }
        return true;
}

void call_deliver(struct call *k)
{
        struct rpc_conn *c = k->pub.conn;
        bool all;

        if (k->delivering || k->closing)
                return;
        k->delivering = true;
        all = deliver(k);
        k->delivering = false;
        if (c->server && k->finished)
                flow_drop_input(k);
        k->pub.half = k->apart > 0 || (all && buf_len(&k->in) > 0);
        if (all && c->server && !k->closing)
                report_end(k);
}
