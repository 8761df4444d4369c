/*
 * LeaseTimeToLive: for a lease with many keys, in slices.
 *
 * First the bytes of its keys are counted, and the call waits until there is room for them.
 * Then the keys are read again, in order, and encoded; then everything is sent as the client
 * takes it. A key that is attached to the lease all the time is listed once; one that is
 * attached or detached meanwhile may be listed. The remaining time is sent last.
 */
#include "etcd/sliced.h"
#include "state/lease_names.h"

#define LOOK_KEYS 4000 /* in one turn of the loop: about 2 ms */
#define LOOK_COST 10   /* steps of request_spent() for one key */
#define LOOK_BYTES SLICE_BYTES
#define SEND_HIGH ((size_t) 256 << 10) /* no more is sent while this much waits */
#define SEND_SMALL ((size_t) 16 << 10)
#define KEYS (5 << 3 | 2) /* the field of LeaseTimeToLiveResponse */

struct keys {
        struct sliced sliced;
        int64_t id;
        bool counts;       /* it only counts, and encodes nothing */
        size_t size;       /* bytes of all parts, as counted */
        uint64_t born;     /* identifies the lease: its id may be given to another */
        struct buf behind; /* the last key read, and a zero byte: where to continue */
        struct buf parts;  /* encoded */
};

static struct lease *find(const struct request *q, int64_t id)
{
        return leases_find(&core_state(q->api->core)->leases, id);
}

/* The requested lease, by its id or by its name. */
static struct lease *find_asked(const struct request *q)
{
        const Pb__LeaseTimeToLiveRequest *m = q->msg;

        return m->name.len > 0 ? names_find(core_state(q->api->core), &m->name)
                               : find(q, m->id);
}

static enum state_outcome permit(const struct request *q, int64_t id)
{
        return permit_lease(core_state(q->api->core), &q->who.user, id, PERMIT_READ, NULL);
}

static ProtobufCBinaryData name_of(const struct request *q, const struct lease *l)
{
        const struct state *s = core_state(q->api->core);
        struct view name = {0};

        /* As in the list of leases. */
        if (!s->auth.enabled || permit(q, l->id) == STATE_OK)
                name = names_of(s, l);
        return pb_bytes(name.p, name.len);
}

static void fill(const struct request *q, int64_t id, const struct lease *l,
                 Pb__ResponseHeader *h, Pb__LeaseTimeToLiveResponse *p)
{
        pb__lease_time_to_live_response__init(p);
        core_header(q->api->core, h);
        p->header = h;
        p->id = id;
        p->ttl = -1;
        p->name = ((const Pb__LeaseTimeToLiveRequest *) q->msg)->name;
        if (!l)
                return;
        p->name = name_of(q, l);
        p->ttl_ms = lease_left_ms(core_state(q->api->core), l, core_lease_time(q->api->core));
        p->ttl = p->ttl_ms / 1000;
        p->grantedttl = (l->ttl_ms + 999) / 1000;
        p->granted_ttl_ms = l->ttl_ms;
}

static void answer_without_keys(struct request *q, int64_t id, const struct lease *l)
{
        Pb__LeaseTimeToLiveResponse p;
        Pb__ResponseHeader h;

        fill(q, id, l, &h, &p);
        request_reply(q, &p.base);
}

/* ---- sending ---- */

static struct keys *keys_of(const struct request *q)
{
        return container_of((struct sliced *) q->data, struct keys, sliced);
}

/* Charges the call for what is held for it, whether its client reads or not. A small answer is
 * counted when it is sent. */
static void charge(const struct keys *w, size_t at_least)
{
        size_t n = max_of(w->parts.cap, at_least) + w->behind.cap;

        rpc_call_charge(w->sliced.q->call, n > SEND_SMALL ? sizeof(*w) + n : 0);
}

static void send_more(struct request *q)
{
        struct keys *w = keys_of(q);
        size_t queued = rpc_call_queued(q->call), n;

        if (queued < SEND_HIGH) {
                n = min_of(buf_len(&w->parts), SEND_HIGH - queued);
                if (rpc_call_add(q->call, buf_head(&w->parts), n) < 0)
                        return request_fail(q, status_nomem);
                buf_consume(&w->parts, n);
                buf_trim(&w->parts);
        }
        if (buf_len(&w->parts) == 0)
                return request_finish(q);
        charge(w, 0);
        request_goes_on(q);
}

static void send_first(struct keys *w, const struct lease *l)
{
        cleanup_(buf_fini) struct buf head = {0};
        Pb__LeaseTimeToLiveResponse p;
        struct request *q = w->sliced.q;
        size_t len = buf_len(&w->parts);
        Pb__ResponseHeader h;

        sliced_unqueue(&w->sliced);
        q->then = send_more;
        fill(q, w->id, l, &h, &p);
        pb_append(&head, &p.base);
        len += buf_len(&head);
        if (buf_error(&head) < 0)
                return request_fail(q, status_nomem);
        if (!request_begins(q, len))
                return;
        if (rpc_call_add(q->call, buf_head(&head), buf_len(&head)) < 0)
                return request_fail(q, status_nomem);
        send_more(q);
}

/* ---- slices ---- */

static void keys_begin(struct sliced *s)
{
        struct keys *w = container_of(s, struct keys, sliced);
        const struct lease *l = find_asked(s->q);

        buf_clear(&w->behind);
        buf_clear(&w->parts);
        if (w->counts)
                w->size = 0;
        else
                (void) buf_reserve(&w->parts, w->size);
        if (!l)
                return answer_without_keys(
                        s->q, ((const Pb__LeaseTimeToLiveRequest *) s->q->msg)->id, NULL);
        w->id = l->id;
        w->born = l->born;
}

static void add_key(struct keys *w, const struct kv_key *k)
{
        uint8_t len[VARINT_MAX];

        if (w->counts) {
                w->size += 1 + (size_t) (varint_put(len, k->len) - len) + k->len;
                return;
        }
        buf_add_u8(&w->parts, KEYS);
        buf_add_bytes(&w->parts, k->bytes, k->len);
}

/* Returns 0 when all have been read, 1 if there are more, or -ENOMEM. */
static int look(struct keys *w, const struct lease *l)
{
        struct view from = {buf_head(&w->behind), buf_len(&w->behind)};
        size_t until = buf_len(&w->parts) + LOOK_BYTES;
        struct kv_key *k = lease_key_from(l, from), *last = NULL;

        for (size_t n = 0; k && n < LOOK_KEYS && buf_len(&w->parts) < until; n++) {
                add_key(w, k);
                last = k;
                k = RB_NEXT(lease_keys, NULL, k);
        }
        if (last && k) {
                buf_clear(&w->behind);
                buf_add(&w->behind, last->bytes, last->len);
                buf_add_u8(&w->behind, 0);
        }
        if (buf_error(&w->parts) < 0 || buf_error(&w->behind) < 0)
                return -ENOMEM;
        return k != NULL;
}

static void make(struct request *q);

/* While there is no room, nothing is kept. */
static void counted(struct keys *w)
{
        struct request *q = w->sliced.q;

        q->answer_bytes = w->size;
        sliced_end(&w->sliced);
        rpc_call_charge(q->call, 0);
        if (request_has_room(q, q->answer_bytes + min_of(q->answer_bytes, SEND_HIGH), make))
                make(q);
}

static int keys_run(struct sliced *s)
{
        struct keys *w = container_of(s, struct keys, sliced);
        const struct lease *l = find(s->q, w->id);
        enum state_outcome o = permit(s->q, w->id);
        int r;

        if (sliced_is_stale(s) || !l || l->born != w->born)
                return -ESTALE;
        if (o != STATE_OK) {
                request_fail(s->q, status_of(o));
                return 0;
        }
        r = look(w, l);
        charge(w, w->counts ? 0 : w->size);
        if (r == 0 && w->counts)
                counted(w);
        else if (r == 0)
                send_first(w, l);
        return min_of(r, 0);
}

static void keys_fini(struct sliced *s)
{
        struct keys *w = container_of(s, struct keys, sliced);

        buf_fini(&w->behind);
        buf_fini(&w->parts);
        free(w);
}

static const struct sliced_ops ops = {.begin = keys_begin, .run = keys_run, .fini = keys_fini};

/* Runs the first slice at once; mostly that is all. */
static void start(struct request *q, bool counts)
{
        const Pb__LeaseTimeToLiveRequest *m = q->msg;
        const struct lease *l = find_asked(q);
        enum state_outcome o = names_check(m->id, &m->name);
        struct keys *w;

        /* A name can be guessed, and the answer has the id. */
        if (o == STATE_OK && l && m->name.len > 0 && core_state(q->api->core)->auth.enabled)
                o = permit(q, l->id);
        if (o != STATE_OK)
                return request_fail(q, status_of(o));
        if (!l || !m->keys || l->n_keys == 0)
                return answer_without_keys(q, l ? l->id : m->id, l);
        w = calloc(1, sizeof(*w));
        if (!w)
                return request_fail(q, status_nomem);
        w->id = l->id;
        w->counts = counts;
        w->size = q->answer_bytes;
        request_spent(q, LOOK_COST * min_of(l->n_keys, (uint32_t) LOOK_KEYS), 0);
        sliced_start(&w->sliced, q, &ops);
        if (keys_run(&w->sliced) < 0)
                request_fail(q, status_nomem);
}

static void make(struct request *q)
{
        start(q, false);
}

static void answer(struct request *q)
{
        if (request_has_turn(q, answer))
                start(q, true);
}

void time_to_live(struct request *q)
{
        request_read(q, answer);
}
