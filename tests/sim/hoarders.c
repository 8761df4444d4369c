/*
 * Clients with many keys, up to 100,000 (hoard.c). Three of them put keys, one by one and in
 * transactions, attach some to leases that end, and delete ranges of any size; a fourth one
 * reads: in pages, all of which have to be of one revision, whatever happens in between, or in
 * a stream, or only the last or the oldest keys. Visitors compact the history meanwhile, and
 * ask for hashes.
 *
 * They do not wait for each other, and send nothing a second time. Whether something whose
 * outcome they do not know was done is known from the replicas.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "asker.h"
#include "hoard.h"

#define N_WRITERS 3
#define PREV_MOST 5000
#define LEASE_MS 3000
#define PAGES_MOST 40
#define AT_ONCE_MOST 20000 /* keys in one answer */

enum wish { PUT, PUTS, DELETION, BOTH, GRANT, REVOKE };

static struct writer {
        struct asker asker;
        enum wish wish;
        uint32_t deed;
        int64_t lease;
        nsec_t until; /* then it uses another lease */
} writers[N_WRITERS];

static struct hoard_reader {
        struct asker asker;
        enum { PAGES, STREAM, COUNT, LAST, OLDEST } wish;
        unsigned from, to;
        int64_t revision; /* of the first page; 0: that is asked for */
        int64_t limit;
        size_t left;    /* keys that are still to come, according to the first page */
        bool keys_only; /* in this page */
} reader;

static unsigned next; /* the key that is put next */

/* A transaction under construction; the request refers to it until it is packed. */
static struct {
        Pb__RequestOp op[TXN_OPS_MOST], *ops[TXN_OPS_MOST];
        Pb__PutRequest put[TXN_OPS_MOST];
        Pb__DeleteRangeRequest del;
        Pb__TxnRequest txn;
        char keys[TXN_OPS_MOST][HOARD_KEY], values[TXN_OPS_MOST][HOARD_VALUE];
        char del_key[HOARD_KEY], del_end[HOARD_KEY];
        size_t n;
} t;

static unsigned some(unsigned lo, unsigned hi)
{
        return (unsigned) rnd_between(&W->damage, lo, hi);
}

static bool may(unsigned percent)
{
        return chance_in(&W->damage, percent);
}

/* Any number up to @most: small ones as often as large ones. */
static unsigned any(unsigned most)
{
        unsigned bits = 0;

        while (bits < 31 && 1u << (bits + 1) <= most)
                bits++;
        return min_of(some(1, 1u << some(0, bits + 1)), most);
}

static ProtobufCBinaryData key_of(unsigned i, char out[static HOARD_KEY])
{
        size_t n = hoard_key(i, out);

        return pb_bytes(out, n);
}

/* ---- writers ---- */

static Pb__RequestOp *next_op(void)
{
        Pb__RequestOp *op = &t.op[t.n];

        pb__request_op__init(op);
        t.ops[t.n++] = op;
        return op;
}

static void make_put(const struct writer *c, size_t k, unsigned i)
{
        pb__put_request__init(&t.put[k]);
        t.put[k].key = key_of(i, t.keys[k]);
        t.put[k].value = pb_bytes(t.values[k], hoard_value(c->deed, i, t.values[k]));
        t.put[k].lease = c->lease;
}

static void add_puts(const struct writer *c, const struct deed *d)
{
        for (unsigned i = d->from; i < d->to; i++) {
                size_t k = t.n;
                Pb__RequestOp *op = next_op();

                make_put(c, k, i);
                op->request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
                op->request_put = &t.put[k];
        }
}

static void make_deletion(const struct deed *d)
{
        pb__delete_range_request__init(&t.del);
        t.del.key = key_of(d->gone_from, t.del_key);
        t.del.range_end = key_of(d->gone_upto, t.del_end);
}

static void add_deletion(const struct deed *d)
{
        Pb__RequestOp *op = next_op();

        make_deletion(d);
        op->request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        op->request_delete_range = &t.del;
}

static void ask(struct writer *c, const char *path, const ProtobufCMessage *m)
{
        asker_ask(&c->asker, path, m);
        c->asker.waits.lasts = true; /* it may take many slices */
}

static enum wish choose(const struct writer *c)
{
        bool many = hoard_live() > W->hoard / 10 * 9;

        if (c->lease == 0 && may(W->fleet ? 50 : 10))
                return GRANT;
        if (c->lease != 0 && may(5))
                return REVOKE;
        if (may(many ? 25 : 6))
                return may(30) ? BOTH : DELETION;
        return may(15) ? PUT : PUTS;
}

/* Mostly the keys that follow the last ones. */
static void draw_puts(struct deed *d, unsigned most)
{
        unsigned n = may(60) ? most : any(most);

        d->from = may(70) ? next : some(0, W->hoard - 1);
        d->to = min_of(d->from + n, W->hoard);
        next = d->to == W->hoard ? 0 : d->to;
}

/* Some, or all. */
static void draw_deletion(struct deed *d, unsigned most)
{
        unsigned n = most == W->hoard && may(20) ? most : any(most);

        d->gone_from = some(0, W->hoard - n);
        d->gone_upto = d->gone_from + n;
}

/* A transaction must not put what it deletes. */
static void draw_both(struct deed *d, unsigned most)
{
        draw_deletion(d, min_of(W->hoard, most));
        d->from = d->gone_upto;
        d->to = min_of(d->from + any(most), W->hoard);
}

static bool draw(struct writer *c, struct deed *d)
{
        unsigned most = W->txn_ops - 1;

        *d = (struct deed){.leased = c->lease != 0};
        if (c->wish == PUT || c->wish == PUTS)
                draw_puts(d, c->wish == PUT ? 1 : most);
        else if (c->wish == DELETION)
                draw_deletion(d, W->hoard);
        else
                draw_both(d, most / 2);
        c->deed = hoard_ask(d);
        return c->deed > 0;
}

static void ask_for_lease(struct writer *c)
{
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__LeaseRevokeRequest revoke = PB__LEASE_REVOKE_REQUEST__INIT;

        if (c->wish == GRANT) {
                grant.ttl_ms = LEASE_MS;
                return asker_ask(&c->asker, "/etcdserverpb.Lease/LeaseGrant", &grant.base);
        }
        revoke.id = c->lease;
        c->lease = 0;
        ask(c, "/etcdserverpb.Lease/LeaseRevoke", &revoke.base);
}

static void act(struct asker *a)
{
        struct writer *c = container_of(a, struct writer, asker);
        struct deed d;

        if (c->lease != 0 && c->until <= W->now)
                c->lease = 0;
        c->wish = choose(c);
        if (c->wish == GRANT || c->wish == REVOKE)
                return ask_for_lease(c);
        if (!draw(c, &d)) {
                a->act_at = W->now + NSEC_PER_SEC;
                return;
        }
        t.n = 0;
        if (c->wish == PUT) {
                make_put(c, 0, d.from);
                return ask(c, "/etcdserverpb.KV/Put", &t.put[0].base);
        }
        if (c->wish == DELETION) {
                make_deletion(&d);
                t.del.prev_kv = d.gone_upto - d.gone_from <= PREV_MOST && may(30);
                return ask(c, "/etcdserverpb.KV/DeleteRange", &t.del.base);
        }
        if (c->wish == BOTH)
                add_deletion(&d);
        add_puts(c, &d);
        pb__txn_request__init(&t.txn);
        t.txn.success = t.ops;
        t.txn.n_success = t.n;
        ask(c, "/etcdserverpb.KV/Txn", &t.txn.base);
}

static void on_granted(struct writer *c, struct view m)
{
        Pb__LeaseGrantResponse *p = pb__lease_grant_response__unpack(NULL, m.len, m.p);

        c->lease = p->id;
        c->until = W->now + some_time(W, 0, LEASE_MS * MSEC);
        pb_free(p);
}

static void on_put(struct writer *c, struct view m)
{
        Pb__PutResponse *p = pb__put_response__unpack(NULL, m.len, m.p);

        hoard_done(W, c->deed, p->header->revision, -1);
        pb_free(p);
}

static void on_deleted(struct writer *c, struct view m)
{
        Pb__DeleteRangeResponse *p = pb__delete_range_response__unpack(NULL, m.len, m.p);

        hoard_done(W, c->deed, p->header->revision, p->deleted);
        if (p->n_prev_kvs > 0 && (int64_t) p->n_prev_kvs != p->deleted)
                fail(W, "hoard: %" PRId64 " keys were deleted, and %zu are shown", p->deleted,
                     p->n_prev_kvs);
        pb_free(p);
}

static void on_txn(struct writer *c, struct view m)
{
        Pb__TxnResponse *p = pb__txn_response__unpack(NULL, m.len, m.p);
        int64_t deleted = -1;

        if (c->wish == BOTH)
                deleted = p->responses[0]->response_delete_range->deleted;
        hoard_done(W, c->deed, p->header->revision, deleted);
        pb_free(p);
}

static void answered(struct asker *a, enum rpc_code code, struct view m, bool lost)
{
        struct writer *c = container_of(a, struct writer, asker);

        a->act_at = W->now + time_in(&W->damage, 0, 20 * MSEC);
        if (code != RPC_OK || lost)
                return;
        switch (c->wish) {
        case PUT:
                return on_put(c, m);
        case PUTS:
        case BOTH:
                return on_txn(c, m);
        case DELETION:
                return on_deleted(c, m);
        case GRANT:
                return on_granted(c, m);
        case REVOKE:
                return;
        }
}

static const struct asker_ops writer_ops = {.act = act, .answered = answered};

/* ---- the reader: what it asks for ---- */

static void begin_read(void)
{
        unsigned n = may(40) ? W->hoard : any(W->hoard);

        reader.wish = may(60) ? PAGES : (typeof(reader.wish)) some(STREAM, OLDEST);
        reader.from = some(0, W->hoard - n);
        reader.to = reader.from + n;
        reader.revision = 0;
        reader.limit = max_of(any(min_of(n, AT_ONCE_MOST)), n / PAGES_MOST);
        if (n <= AT_ONCE_MOST && reader.wish == PAGES && may(20))
                reader.limit = 0;
}

static void read_more(struct asker *a)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        char from[HOARD_KEY], to[HOARD_KEY];

        if (reader.revision == 0)
                begin_read();
        q.key = key_of(reader.from, from);
        q.range_end = key_of(reader.to, to);
        q.revision = reader.revision;
        q.limit = reader.wish == STREAM || reader.wish == COUNT ? 0 : reader.limit;
        q.serializable = reader.revision > 0 && may(30);
        q.keys_only = reader.keys_only = reader.wish != STREAM && may(20);
        q.count_only = reader.wish == COUNT;
        if (reader.wish == LAST || reader.wish == OLDEST) {
                q.sort_order = reader.wish == LAST ? PB__RANGE_REQUEST__SORT_ORDER__DESCEND
                                                   : PB__RANGE_REQUEST__SORT_ORDER__ASCEND;
                q.sort_target = reader.wish == LAST ? PB__RANGE_REQUEST__SORT_TARGET__KEY
                                                    : PB__RANGE_REQUEST__SORT_TARGET__MOD;
        }
        a->all = reader.wish == STREAM;
        asker_ask(a,
                  reader.wish == STREAM ? "/etcdserverpb.KV/RangeStream"
                                        : "/etcdserverpb.KV/Range",
                  &q.base);
        a->waits.lasts = true;
}

/* ---- the reader: what it gets ---- */

static size_t count(const struct hoarded *is, unsigned from, unsigned to)
{
        size_t n = 0;

        for (unsigned i = from; i < to; i++)
                n += is[i].deed > 0;
        return n;
}

/* The key in an answer is number @i, as it was at that time. */
static bool check_key(const Pb__KeyValue *kv, int64_t i, const struct hoarded *is)
{
        if (hoard_number((struct view){kv->key.data, kv->key.len}) == i &&
            kv->mod_revision == is->revision &&
            (reader.keys_only ||
             hoard_is((unsigned) i, is, (struct view){kv->value.data, kv->value.len})))
                return true;
        fail(W,
             "hoard: a read at revision %" PRId64 " has key %" PRId64 " of revision %" PRId64
             ", where it should have %" PRId64 " of %" PRId64,
             reader.revision, hoard_number((struct view){kv->key.data, kv->key.len}),
             kv->mod_revision, i, is->revision);
        return false;
}

/* The next keys of the span. Returns the number of the key after them. */
static unsigned check_keys(Pb__KeyValue **kvs, size_t n, const struct hoarded *is)
{
        unsigned i = reader.from;

        for (size_t k = 0; k < n; k++, i++) {
                while (i < reader.to && is[i].deed == 0)
                        i++;
                if (i == reader.to) {
                        fail(W, "hoard: a read at revision %" PRId64 " has too many keys",
                             reader.revision);
                        break;
                }
                if (!check_key(kvs[k], i, &is[i]))
                        break;
        }
        return i;
}

static void check_amount(size_t n, size_t of)
{
        if (n != of)
                fail(W, "hoard: a read at revision %" PRId64 " has %zu keys, not %zu",
                     reader.revision, n, of);
}

static void on_page(const Pb__RangeResponse *p, const struct hoarded *is)
{
        size_t limit = reader.limit == 0 ? SIZE_MAX : (size_t) reader.limit;

        check_amount((size_t) p->count, reader.left);
        check_amount(p->n_kvs, min_of(limit, reader.left));
        reader.from = check_keys(p->kvs, p->n_kvs, is);
        reader.left -= min_of(p->n_kvs, reader.left);
        if (p->more != (reader.left > 0))
                fail(W, "hoard: a page of revision %" PRId64 " says %s", reader.revision,
                     p->more ? "that there are more" : "that it is the last one");
        W->counts.pages++;
        if (reader.left == 0)
                reader.revision = 0;
}

static void check_last(const Pb__RangeResponse *p, const struct hoarded *is)
{
        unsigned i = reader.to;

        check_amount(p->n_kvs, min_of((size_t) reader.limit, reader.left));
        for (size_t k = 0; k < p->n_kvs && !*W->failure; k++) {
                while (i > reader.from && is[i - 1].deed == 0)
                        i--;
                i--;
                (void) check_key(p->kvs[k], i, &is[i]);
        }
}

/* Whether nothing in the span that is left out is older than what is there. */
static void check_oldest(const Pb__RangeResponse *p, const struct hoarded *is)
{
        int64_t newest = 0;
        size_t older = 0, shown = 0;

        check_amount(p->n_kvs, min_of((size_t) reader.limit, reader.left));
        for (size_t k = 0; k < p->n_kvs && !*W->failure; k++) {
                int64_t i =
                        hoard_number((struct view){p->kvs[k]->key.data, p->kvs[k]->key.len});

                if (i < reader.from || i >= reader.to || p->kvs[k]->mod_revision < newest)
                        return fail(W, "hoard: key %" PRId64 " is out of order", i);
                (void) check_key(p->kvs[k], i, &is[i]);
                newest = p->kvs[k]->mod_revision;
        }
        for (unsigned i = reader.from; i < reader.to; i++)
                older += is[i].deed > 0 && is[i].revision < newest;
        for (size_t k = 0; k < p->n_kvs; k++)
                shown += p->kvs[k]->mod_revision < newest;
        check_amount(shown, older);
}

static void on_range(struct view m)
{
        Pb__RangeResponse *p = pb__range_response__unpack(NULL, m.len, m.p);
        bool first = reader.revision == 0;
        const struct hoarded *is;

        if (first)
                reader.revision = p->header->revision;
        is = hoard_at(reader.revision);
        if (is && first)
                reader.left = count(is, reader.from, reader.to);
        if (is && reader.wish == PAGES)
                on_page(p, is);
        else if (is && reader.wish == COUNT)
                check_amount((size_t) p->count, reader.left);
        else if (is && reader.wish == LAST)
                check_last(p, is);
        else if (is)
                check_oldest(p, is);
        if (!is || reader.wish != PAGES)
                reader.revision = 0;
        pb_free(p);
}

/* All parts of a stream, one behind the other: each is one field of the same number. */
static void on_stream(struct view m)
{
        Pb__RangeStreamResponse *p = pb__range_stream_response__unpack(NULL, m.len, m.p);
        const Pb__RangeResponse *all = p->range_response;
        const struct hoarded *is;

        reader.revision = all->header->revision;
        is = hoard_at(reader.revision);
        if (is) {
                check_amount(all->n_kvs, count(is, reader.from, reader.to));
                (void) check_keys(all->kvs, all->n_kvs, is);
        }
        W->counts.pages++;
        reader.revision = 0;
        pb_free(p);
}

static bool is_compacted(const struct asker *a, int64_t revision)
{
        struct core *c = W->r[a->link.to].node.core;

        return c && core_state(c)->kv.compacted > revision;
}

static void read_answered(struct asker *a, enum rpc_code code, struct view m, bool lost)
{
        a->act_at = W->now + time_in(&W->damage, 0, 60 * MSEC);
        if (code == RPC_OUT_OF_RANGE && reader.revision > 0) { /* or that replica is behind */
                W->met.page_compacted += is_compacted(a, reader.revision);
                reader.revision = 0;
        }
        if (code != RPC_OK || lost)
                return;
        if (reader.wish == STREAM)
                on_stream(m);
        else
                on_range(m);
}

static const struct asker_ops reader_ops = {.act = read_more, .answered = read_answered};

/* ---- ---- */

void hoarders_begin(struct world *w)
{
        hoard_begin(w);
        next = 0;
        for (unsigned i = 0; w->hoard > 0 && i < N_WRITERS; i++) {
                writers[i] = (struct writer){.lease = 0};
                asker_begin(&writers[i].asker, i, &writer_ops);
        }
        reader.revision = 0;
        if (w->hoard > 0)
                asker_begin(&reader.asker, N_WRITERS, &reader_ops);
}
