/*
 * LeaseLeases: the lease that ends next comes first, as in etcd; a million leases are listed in
 * slices.
 *
 * First each lease is read, slot by slot, and its part of the answer encoded; then those parts
 * are sent from a heap, as the client takes them. A lease that exists all the time is listed
 * once; one that is granted or ends meanwhile may be listed.
 */
#include "etcd/sliced.h"
#include "state/lease_names.h"

#define LOOK_STEPS 8000    /* in one turn of the loop: about 2 ms */
#define LOOK_COST 5        /* steps of request_spent() for one of these */
#define BYTES_PER_STEP 256 /* of the answer: names may be long */
#define KEYS_PER_STEP 8    /* of a lease, to check whether the caller may read them */
#define SEND_ITEMS 2000    /* each time the reader has taken the output, in its own turn */
#define SEND_HIGH ((size_t) 256 << 10) /* no more is produced while this much waits */
#define SEND_SMALL ((size_t) 16 << 10)
#define LEASES (2 << 3 | 2) /* the field of LeaseLeasesResponse */

struct item {
        int64_t left_ms, id;
        size_t at; /* position in `parts` of its length and itself */
};

struct lease_list {
        struct sliced sliced;
        struct lease_time now; /* when the call began */
        size_t slot;           /* the next slot to read */
        struct item *heap;     /* the lease that ends first is first; owned */
        size_t n, cap;
        size_t left; /* bytes of the answer that are still to be sent */
        struct buf parts;
};

static void list_clear(struct lease_list *l)
{
        free(l->heap);
        l->heap = NULL;
        l->n = l->cap = l->left = l->slot = 0;
        buf_fini(&l->parts);
}

/* ---- the heap ---- */

static bool is_sooner(const struct item *a, const struct item *b)
{
        return a->left_ms != b->left_ms ? a->left_ms < b->left_ms : a->id < b->id;
}

static int heap_push(struct lease_list *l, struct item x)
{
        size_t i = l->n;

        if (array_reserve(&l->heap, &l->cap, l->n + 1, sizeof(*l->heap)) < 0)
                return -ENOMEM;
        l->n++;
        for (; i > 0 && is_sooner(&x, &l->heap[(i - 1) / 2]); i = (i - 1) / 2)
                l->heap[i] = l->heap[(i - 1) / 2];
        l->heap[i] = x;
        return 0;
}

static struct item heap_pop(struct lease_list *l)
{
        struct item first = l->heap[0], x = l->heap[--l->n];
        size_t i = 0, k;

        for (; (k = 2 * i + 1) < l->n; i = k) {
                if (k + 1 < l->n && is_sooner(&l->heap[k + 1], &l->heap[k]))
                        k++;
                if (!is_sooner(&l->heap[k], &x))
                        break;
                l->heap[i] = l->heap[k];
        }
        l->heap[i] = x;
        return first;
}

/* ---- reading ---- */

static int add(struct lease_list *l, const struct lease *x)
{
        const struct state *s = core_state(l->sliced.q->api->core);
        struct item i = {
                .left_ms = lease_left_ms(s, x, l->now), .id = x->id, .at = buf_len(&l->parts)};
        Pb__LeaseStatus st = PB__LEASE_STATUS__INIT;
        struct view name = names_of(s, x);

        st.id = x->id;
        st.name = pb_bytes(name.p, name.len);
        st.granted_ttl_ms = x->ttl_ms;
        st.ttl_ms = i.left_ms;
        st.keys = x->n_keys;
        buf_add_varint(&l->parts, protobuf_c_message_get_packed_size(&st.base));
        pb_append(&l->parts, &st.base);
        return buf_error(&l->parts) < 0 ? -ENOMEM : heap_push(l, i);
}

/* Returns 0 when all have been read, 1 if there are more, or -ENOMEM. */
static int look(struct lease_list *l, int64_t *steps)
{
        struct state *s = core_state(l->sliced.q->api->core);

        for (; l->slot < s->leases.n_slots; l->slot++) {
                const struct lease *x = leases_at(&s->leases, l->slot);
                size_t before = buf_len(&l->parts);

                if ((*steps)-- <= 0)
                        return 1;
                if (!x)
                        continue;
                if (s->auth.enabled)
                        *steps -= x->n_keys / KEYS_PER_STEP;
                if (permit_lease(s, &l->sliced.q->who.user, x->id, PERMIT_READ, NULL) ==
                            STATE_OK &&
                    add(l, x) < 0)
                        return -ENOMEM;
                *steps -= (int64_t) ((buf_len(&l->parts) - before) / BYTES_PER_STEP);
        }
        return 0;
}

/* ---- sending ---- */

static struct lease_list *list_of(const struct request *q)
{
        return container_of((struct sliced *) q->data, struct lease_list, sliced);
}

/* Adds the next lease's part. */
static void add_next(struct lease_list *l, struct buf *out)
{
        struct item i = heap_pop(l);
        struct view all = {buf_head(&l->parts) + i.at, buf_len(&l->parts) - i.at}, part;

        if (view_bytes(&all, &part) < 0)
                abort();
        buf_add_u8(out, LEASES);
        buf_add_bytes(out, part.p, part.len);
}

static int send_some(struct lease_list *l, struct buf *out)
{
        for (size_t n = 0; l->n > 0 && n < SEND_ITEMS && buf_len(out) < SEND_HIGH; n++)
                add_next(l, out);
        if (buf_error(out) < 0)
                return -ENOMEM;
        assert(buf_len(out) <= l->left);
        l->left -= buf_len(out);
        return rpc_call_add(l->sliced.q->call, buf_head(out), buf_len(out));
}

static void send_more(struct request *q)
{
        cleanup_(buf_fini) struct buf out = {0};
        struct lease_list *l = list_of(q);

        if (rpc_call_queued(q->call) < SEND_HIGH && send_some(l, &out) < 0)
                return request_fail(q, status_nomem);
        if (l->n == 0) {
                assert(l->left == 0);
                return request_finish(q);
        }
        request_goes_on(q);
}

static void send_first(struct lease_list *l)
{
        Pb__LeaseLeasesResponse p = PB__LEASE_LEASES_RESPONSE__INIT;
        cleanup_(buf_fini) struct buf head = {0};
        struct request *q = l->sliced.q;
        Pb__ResponseHeader h;

        sliced_unqueue(&l->sliced);
        q->then = send_more;
        core_header(q->api->core, &h);
        p.header = &h;
        pb_append(&head, &p.base);
        l->left = l->n + buf_len(&l->parts); /* and each part's field number */
        if (buf_error(&head) < 0)
                return request_fail(q, status_nomem);
        if (!request_begins(q, buf_len(&head) + l->left))
                return;
        if (rpc_call_add(q->call, buf_head(&head), buf_len(&head)) < 0)
                return request_fail(q, status_nomem);
        send_more(q);
}

/* ---- its turns ---- */

static void list_begin(struct sliced *s)
{
        struct lease_list *l = container_of(s, struct lease_list, sliced);

        list_clear(l);
        l->now = core_lease_time(l->sliced.q->api->core);
}

static int list_run(struct sliced *s)
{
        struct lease_list *l = container_of(s, struct lease_list, sliced);
        int64_t steps = LOOK_STEPS;
        enum state_outcome o = permit_user(core_state(s->q->api->core), &s->q->who.user);
        int r;

        if (o != STATE_OK) { /* since the call came: a list of nothing would be no answer */
                request_fail(s->q, status_of(o));
                return 0;
        }
        r = sliced_is_stale(s) ? -ESTALE : look(l, &steps);
        request_spent(s->q, LOOK_COST * (size_t) (LOOK_STEPS - steps), 0);
        if (r < 0)
                return r;
        /* A small list is sent at once, and counted then. */
        if ((r > 0 || buf_len(&l->parts) > SEND_SMALL) &&
            !sliced_keep(s, sizeof(*l) + l->cap * sizeof(*l->heap) + l->parts.cap))
                return 0;
        if (r == 0)
                send_first(l);
        return 0;
}

static void list_fini(struct sliced *s)
{
        struct lease_list *l = container_of(s, struct lease_list, sliced);

        list_clear(l);
        free(l);
}

static const struct sliced_ops list_ops = {
        .begin = list_begin, .run = list_run, .fini = list_fini};

static void answer(struct request *q)
{
        struct lease_list *l;
        int r;

        if (!request_has_turn(q, answer))
                return;
        l = calloc(1, sizeof(*l));
        if (!l)
                return request_fail(q, status_nomem);
        sliced_start(&l->sliced, q, &list_ops);
        r = list_run(&l->sliced); /* mostly there are few leases */
        if (r < 0)
                request_fail(q, status_nomem);
}

void lease_list(struct request *q)
{
        request_read(q, answer);
}
