/* Cache leases: what waits for them, and what they wait for. */
#include "../whole.h"
#include "rig.h"

#define MS NSEC_PER_MSEC

static struct state s;
static uint64_t next_index;

static struct lease_time at(int64_t ms)
{
        return (struct lease_time){(1000 + ms) * MS};
}

static struct state_reply apply(enum cmd_type type, struct view body, int64_t ms,
                                struct buf *out)
{
        struct state_reply reply = {.out = out};
        struct cmd c = {.type = type, .body = body};

        pb__response_header__init(&reply.header);
        state_begin(&s, next_index++, at(ms));
        CHECK_EQ(state_apply(&s, &c, &reply), 0);
        return reply;
}

static struct state_reply apply_pb(enum cmd_type type, const ProtobufCMessage *m, int64_t ms,
                                   struct buf *out)
{
        cleanup_(buf_fini) struct buf body = {0};

        pb_append(&body, m);
        return apply(type, (struct view){body.data, buf_len(&body)}, ms, out);
}

static void begin(void)
{
        state_init(&s);
        next_index = 1;
}

static struct state_reply put(const char *key, int64_t lease, int64_t ms)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;

        q.key = pb_bytes(key, strlen(key));
        q.lease = lease;
        return apply_pb(CMD_PUT, &q.base, ms, NULL);
}

/* The term that is given; 0: none; negative: the outcome. */
static int64_t cache(const char *key, const char *end, uint64_t issuer, int64_t term_ms,
                     int64_t ms)
{
        cleanup_(pb_freep) Pb__CacheTerm *given = NULL;
        cleanup_(buf_fini) struct buf out = {0};
        Pb__CacheTerm q = PB__CACHE_TERM__INIT;
        struct state_reply reply;

        q.key = pb_bytes(key, strlen(key));
        q.range_end = pb_bytes(end, strlen(end));
        q.term_ms = term_ms;
        q.issuer = issuer;
        reply = apply_pb(CMD_CACHE, &q.base, ms, &out);
        if (reply.outcome != STATE_OK)
                return -(int64_t) reply.outcome;
        CHECK_EQ(pb_unpack(&pb__cache_term__descriptor, (struct view){out.data, buf_len(&out)},
                           &given),
                 0);
        return given->term_ms;
}

static void give_back(uint64_t serial, uint64_t issuer, struct lease_time until, int64_t ms)
{
        cleanup_(buf_fini) struct buf body = {0};

        cmd_uncache(&body, serial, issuer, (uint64_t) until.ns);
        CHECK_EQ(apply(CMD_UNCACHE, (struct view){body.data, buf_len(&body)}, ms, NULL).outcome,
                 STATE_OK);
}

TEST(a_write_waits_until_all_terms_have_ended)
{
        struct state_reply r;

        begin();
        CHECK_EQ(cache("k", "", 1, 1000, 0), 1000);
        CHECK_EQ(cache("k", "", 2, 1000, 400), 1000);
        CHECK_EQ(put("j", 0, 500).outcome, STATE_OK);
        CHECK_EQ(put("k0", 0, 500).outcome, STATE_OK);
        r = put("k", 0, 500);
        CHECK_EQ(r.outcome, STATE_E_CACHED);
        CHECK_EQ(r.wait.until.ns, at(1400).ns);
        CHECK_EQ(put("k", 0, 1399).outcome, STATE_E_CACHED);
        CHECK_EQ(put("k", 0, 1400).outcome, STATE_OK);
        /* A holder that made the write wait so long gets no term at once. */
        CHECK_EQ(put("k", 0, 1401).outcome, STATE_OK);
        CHECK_EQ(cache("k", "", 3, 1000, 11399), 0);
        CHECK_EQ(cache("j", "l", 3, 1000, 11399), 0);
        CHECK_EQ(cache("k", "", 3, 1000, 11400), 1000);
        CHECK_EQ(put("k", 0, 12400).outcome, STATE_OK);
        CHECK_EQ(s.cached.n, 0);
        state_fini(&s);
}

TEST(no_term_is_given_while_a_write_waits)
{
        begin();
        CHECK_EQ(cache("k", "l", 1, 1000, 0), 1000);
        CHECK_EQ(put("k5", 0, 100).outcome, STATE_E_CACHED);
        CHECK_EQ(cache("k", "l", 1, 1000, 200), 0);
        CHECK_EQ(cache("k5", "", 2, 1000, 200), 0);
        CHECK_EQ(cache("l", "", 2, 1000, 200), 1000);
        /* Nor between the end of the last term and the write; nor if the write does not come:
         * the next one would not have more time. */
        CHECK_EQ(cache("k", "l", 1, 1000, 1050), 0);
        CHECK_EQ(cache("k", "l", 1, 1000, 1100), 0);
        CHECK_EQ(cache("k5", "", 2, 1000, 10999), 0);
        CHECK_EQ(cache("k", "l", 1, 1000, 11000), 1000);
        CHECK_EQ(put("k5", 0, 11200).outcome, STATE_E_CACHED);
        CHECK_EQ(put("k5", 0, 12000).outcome, STATE_OK);
        CHECK_EQ(cache("k5", "", 2, 1000, 12000), 0);
        state_fini(&s);
}

TEST(what_is_given_back_is_waited_for_no_more)
{
        struct state_reply r;

        begin();
        CHECK_EQ(cache("k", "", 1, 1000, 0), 1000);
        CHECK_EQ(cache("k", "", 2, 1000, 10), 1000);
        r = put("k", 0, 20);
        CHECK_EQ(r.outcome, STATE_E_CACHED);
        give_back(r.wait.serial, 1, at(1000), 30);
        CHECK_EQ(put("k", 0, 40).outcome, STATE_E_CACHED);
        give_back(r.wait.serial, 2, at(1000),
                  50); /* an older one: it has given another since */
        CHECK_EQ(put("k", 0, 60).outcome, STATE_E_CACHED);
        give_back(r.wait.serial, 2, at(1010), 70);
        CHECK_EQ(put("k", 0, 80).outcome, STATE_OK);
        CHECK_EQ(cache("k", "", 1, 1000, 90), 1000);
        /* A write that is given up does not block terms for long. */
        r = put("k", 0, 100);
        CHECK_EQ(r.outcome, STATE_E_CACHED);
        give_back(r.wait.serial, 1, at(1090), 110);
        CHECK_EQ(cache("k", "", 1, 1000, 1099), 0);
        CHECK_EQ(cache("k", "", 1, 1000, 1100), 1000);
        state_fini(&s);
}

TEST(all_that_changes_keys_waits)
{
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__LeaseRevokeRequest revoke = PB__LEASE_REVOKE_REQUEST__INIT;
        Pb__DeleteRangeRequest delete = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__TxnRequest txn = PB__TXN_REQUEST__INIT;
        Pb__PutRequest a = PB__PUT_REQUEST__INIT, b = PB__PUT_REQUEST__INIT;
        Pb__RequestOp op[2] = {PB__REQUEST_OP__INIT, PB__REQUEST_OP__INIT},
                      *ops[] = {&op[0], &op[1]};
        struct state_reply r;

        begin();
        grant.id = revoke.id = 7;
        grant.ttl_ms = 5000;
        CHECK_EQ(apply_pb(CMD_GRANT, &grant.base, 0, NULL).outcome, STATE_OK);
        CHECK_EQ(put("k", 7, 0).outcome, STATE_OK);
        CHECK_EQ(put("m", 7, 0).outcome, STATE_OK);
        CHECK_EQ(cache("k", "", 1, 1000, 0), 1000);
        CHECK_EQ(cache("n", "", 1, 2000, 0), 2000);

        delete.key = pb_bytes("a", 1);
        delete.range_end = pb_bytes("z", 1);
        r = apply_pb(CMD_DELETE_RANGE, &delete.base, 100, NULL);
        CHECK_EQ(r.outcome, STATE_E_CACHED);
        CHECK_EQ(r.wait.until.ns, at(2000).ns);
        CHECK_EQ(apply_pb(CMD_REVOKE, &revoke.base, 100, NULL).outcome, STATE_E_CACHED);
        CHECK_EQ(s.kv.n_keys, 2);

        /* All ranges that it touches are awaited at once; operations that will not run do not
         * count. */
        a.key = pb_bytes("k", 1);
        b.key = pb_bytes("n", 1);
        op[0].request_case = op[1].request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op[0].request_put = &a;
        op[1].request_put = &b;
        txn.success = ops;
        txn.n_success = 2;
        r = apply_pb(CMD_TXN, &txn.base, 200, NULL);
        CHECK_EQ(r.outcome, STATE_E_CACHED);
        CHECK_EQ(r.wait.until.ns, at(2000).ns);
        txn.failure = ops;
        txn.n_failure = 2;
        txn.n_success = 0;
        CHECK_EQ(apply_pb(CMD_TXN, &txn.base, 200, NULL).outcome, STATE_OK);
        CHECK_EQ(apply_pb(CMD_REVOKE, &revoke.base, 1000, NULL).outcome, STATE_OK);
        CHECK_EQ(s.kv.n_keys, 0);
        state_fini(&s);
}

/* A lease's expiry waits for nobody, so no term is promised beyond it. */
TEST(a_term_ends_with_the_leases_in_its_range)
{
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;

        begin();
        grant.id = 7;
        grant.ttl_ms = 1000;
        CHECK_EQ(apply_pb(CMD_GRANT, &grant.base, 0, NULL).outcome, STATE_OK);
        CHECK_EQ(put("k", 7, 0).outcome, STATE_OK);
        CHECK_EQ(cache("k", "", 1, 2000, 300), 700);
        CHECK_EQ(cache("a", "z", 1, 2000, 300), 700);
        CHECK_EQ(cache("k", "", 1, 2000, 990), 0);
        CHECK_EQ(cache("j", "", 1, 2000, 990), 2000);
        state_fini(&s);
}

TEST(what_may_be_cached_is_bounded)
{
        char key[16];

        begin();
        for (int i = 0; i <= CACHED_KEYS_MAX; i++) {
                snprintf(key, sizeof(key), "k%04d", i);
                CHECK_EQ(put(key, 0, 0).outcome, STATE_OK);
        }
        CHECK_EQ(cache("k", "l", 1, 1000, 0), -STATE_E_CACHE_TOO_LARGE);
        CHECK_EQ(cache("k0001", "l", 1, 1000, 0), 1000);
        for (int i = 1; i < CACHED_RANGES_MAX; i++) {
                snprintf(key, sizeof(key), "m%04d", i);
                CHECK_EQ(cache(key, "", 1, 1000, 0), 1000);
        }
        CHECK_EQ(cache("n", "", 1, 1000, 999), -STATE_E_CACHE_FULL);
        CHECK_EQ(cache("n", "", 1, 1000, 1000), 1000);
        for (uint64_t i = 2; i <= CACHED_ISSUERS_MAX; i++)
                CHECK_EQ(cache("n", "", i, 1000, 1000), 1000);
        CHECK_EQ(cache("n", "", 99, 1000, 1000), -STATE_E_CACHE_FULL);
        CHECK_EQ(cache("n", "", 99, 1000, 2000), 1000);
        CHECK_EQ(cache("", "", 1, 1000, 0), -STATE_E_KEY_MISSING);
        CHECK_EQ(cache("n", "", 1, CACHED_TERM_MAX_MS + 1, 0), -STATE_E_MALFORMED);
        state_fini(&s);
}

TEST(cached_ranges_are_in_a_snapshot)
{
        cleanup_(buf_fini) struct buf one = {0}, two = {0};
        struct state_reply r;

        begin();
        state_save(&s, &one);
        CHECK_EQ(cache("k", "l", 1, 1000, 0), 1000);
        CHECK_EQ(cache("x", "", 2, 2000, 0), 2000);
        CHECK_EQ(put("k1", 0, 10).outcome, STATE_E_CACHED);
        buf_clear(&one);
        state_save(&s, &one);
        state_fini(&s);
        CHECK_EQ(state_load(&s, (struct view){one.data, buf_len(&one)}), 0);
        state_save(&s, &two);
        CHECK(buf_len(&one) == buf_len(&two) && memcmp(one.data, two.data, buf_len(&one)) == 0);
        CHECK_EQ(cache("k", "l", 1, 1000, 20), 0);
        r = put("x", 0, 30);
        CHECK_EQ(r.outcome, STATE_E_CACHED);
        CHECK_EQ(r.wait.until.ns, at(2000).ns);
        state_fini(&s);
        for (size_t n = buf_len(&one) - 60; n < buf_len(&one); n++)
                CHECK_EQ(state_load(&s, (struct view){one.data, n}), -EBADMSG);
        state_fini(&s);
}

TEST(a_range_is_crowded_once_the_first_of_several_changes_is_through)
{
        struct kv_span span = {.from = {(const uint8_t *) "k", 1}, .single = true};
        struct state_reply r;

        begin();
        CHECK_EQ(cache("k", "", 1, 1000, 0), 1000);
        r = put("k", 0, 10);
        CHECK_EQ(put("k", 0, 11).outcome, STATE_E_CACHED);
        CHECK(!cached_is_crowded(&s.cached, &span, at(12)));
        give_back(r.wait.serial, 1, at(1000), 20);
        CHECK_EQ(put("k", 0, 30).outcome, STATE_OK);
        CHECK(cached_is_crowded(&s.cached, &span, at(30)));
        CHECK(cached_is_crowded(&s.cached, &span, at(1029)));
        CHECK(!cached_is_crowded(&s.cached, &span, at(1030)));
        /* Not by one. */
        CHECK_EQ(cache("k", "", 1, 1000, 1100), 1000);
        r = put("k", 0, 1110);
        CHECK_EQ(r.outcome, STATE_E_CACHED);
        give_back(r.wait.serial, 1, at(2100), 1120);
        CHECK_EQ(put("k", 0, 1130).outcome, STATE_OK);
        CHECK(!cached_is_crowded(&s.cached, &span, at(1130)));
        state_fini(&s);
}

/* ---- over a connection ---- */

static struct rig_conn *holder, *writer;
static struct rig_call stream, write_call;
static unsigned n_recalls;
static int64_t term_ms;
static bool unchanged;
static size_t n_kvs;
static char error[128];

static void got(struct rig_call *call, struct view m)
{
        cleanup_(pb_freep) Pb__CacheResponse *p = NULL;

        (void) call;
        CHECK_EQ(pb_unpack(&pb__cache_response__descriptor, m, &p), 0);
        CHECK_EQ(p->id, 3);
        snprintf(error, sizeof(error), "%s", p->error);
        n_recalls += p->recall ? 1 : 0;
        if (p->recall)
                return;
        term_ms = p->term_ms;
        unchanged = p->unchanged;
        n_kvs = p->n_kvs;
}

static void send_request(Pb__CacheRequest *q)
{
        cleanup_(buf_fini) struct buf b = {0};

        q->id = 3;
        pb_append(&b, &q->base);
        CHECK_EQ(rpc_call_send(stream.call, b.data, buf_len(&b)), 0);
}

static Pb__CacheRequest request(void)
{
        Pb__CacheRequest q = PB__CACHE_REQUEST__INIT;

        q.id = 3;
        q.key = pb_bytes("k", 1);
        q.range_end = pb_bytes("l", 1);
        q.term_ms = 1000;
        term_ms = -1;
        return q;
}

static void turns(unsigned n)
{
        while (n-- > 0)
                rig_turn();
}

/* Requests the term again, as a client that has the keys or claims to. */
static void ask_having(void)
{
        Pb__CacheRequest q = request();

        q.have = true;
        send_request(&q);
        turns(50);
}

static void begin_stream(void)
{
        Pb__CacheRequest q = request();

        rig_begin();
        rig_put("k1", 5);
        rig_put("k2", 5);
        n_recalls = 0;
        holder = rig_connect(0);
        writer = rig_connect(1);
        rig_open(holder, &stream, "/tenurepb.Cache/Cache", &q.base);
        stream.got = got;
        turns(50);
        CHECK_EQ(term_ms, 1000);
        CHECK_EQ(n_kvs, 2);
        CHECK(!unchanged);
}

static void begin_write(void)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;

        q.key = pb_bytes("k1", 2);
        rig_ask(writer, &write_call, "/etcdserverpb.KV/Put", &q.base);
        turns(50);
        CHECK(!write_call.over);
}

static void end(void)
{
        rig_forget(&write_call);
        rig_forget(&stream);
        rig_disconnect(holder);
        rig_disconnect(writer);
        rig_end();
}

TEST(a_write_recalls_terms_and_happens_when_they_are_given_back)
{
        Pb__CacheRequest q;

        begin_stream();
        ask_having();
        CHECK_EQ(term_ms, 1000);
        CHECK(unchanged);
        CHECK_EQ(n_kvs, 0);

        begin_write();
        CHECK_EQ(n_recalls, 1);
        q = request(); /* a read is answered, without a term */
        send_request(&q);
        turns(50);
        CHECK_EQ(term_ms, 0);
        CHECK_EQ(n_kvs, 2);
        CHECK(!write_call.over);

        q = request();
        q.release = true;
        send_request(&q);
        turns(20);
        CHECK(write_call.over);
        CHECK_EQ(write_call.code, RPC_OK);
        ask_having(); /* it does not have them, and the core does not believe it */
        CHECK_EQ(term_ms, 1000);
        CHECK(!unchanged);
        CHECK_EQ(n_kvs, 2);
        end();
}

/* Some of the writes may be waiting elsewhere, and would wait for the next term, too. */
TEST(a_range_for_which_several_writes_waited_has_short_terms_for_a_while)
{
        static struct rig_call second;
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__CacheRequest q;

        begin_stream();
        begin_write();
        put.key = pb_bytes("k2", 2);
        rig_ask(writer, &second, "/etcdserverpb.KV/Put", &put.base);
        turns(50);
        q = request();
        q.release = true;
        send_request(&q);
        turns(20);
        CHECK(write_call.over);
        CHECK(second.over);
        rig_forget(&second);
        ask_having();
        CHECK_EQ(term_ms, CACHED_TERM_MIN_MS);
        for (unsigned i = 0; term_ms != 1000; i++) {
                CHECK(i < 1000);
                ask_having();
        }
        end();
}

/* What the holder has is from before the lease ended, and it asks as if nothing had. */
TEST(what_has_gone_with_a_lease_is_not_unchanged)
{
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__CacheRequest q;

        begin_stream();
        q = request();
        q.release = true;
        send_request(&q);
        grant.id = put.lease = 7;
        grant.ttl_ms = 700;
        rig_ask(writer, &write_call, "/etcdserverpb.Lease/LeaseGrant", &grant.base);
        rig_wait(&write_call, 100);
        CHECK_EQ(write_call.code, RPC_OK);
        rig_forget(&write_call);
        put.key = pb_bytes("k3", 2);
        rig_ask(writer, &write_call, "/etcdserverpb.KV/Put", &put.base);
        rig_wait(&write_call, 100);
        CHECK_EQ(write_call.code, RPC_OK);
        q = request();
        send_request(&q);
        turns(50);
        CHECK(term_ms > 500 && term_ms < 700);
        CHECK_EQ(n_kvs, 3);
        for (unsigned i = 0; core_state(rig.core)->kv.n_keys == 3; i++) {
                CHECK(i < 1000);
                rig_turn();
        }
        ask_having();
        CHECK_EQ(term_ms, 1000);
        CHECK(!unchanged);
        CHECK_EQ(n_kvs, 2);
        end();
}

/* As one that does not answer at all: or it would make each write wait for as long. */
TEST(who_gives_a_term_back_late_is_waited_for_to_its_end)
{
        Pb__CacheRequest q;

        begin_stream();
        begin_write();
        CHECK_EQ(n_recalls, 1);
        turns(550);
        q = request();
        q.release = true;
        send_request(&q);
        turns(200);
        CHECK(!write_call.over);
        turns(300);
        CHECK(write_call.over);
        CHECK_EQ(write_call.code, RPC_OK);
        q = request();
        send_request(&q);
        turns(50);
        CHECK_EQ(term_ms, 0);
        end();
}

TEST(a_write_waits_for_the_term_of_a_holder_that_is_gone)
{
        begin_stream();
        rig_forget(&stream);
        rig_disconnect(holder);
        begin_write();
        turns(800);
        CHECK(!write_call.over);
        turns(300);
        CHECK(write_call.over);
        CHECK_EQ(write_call.code, RPC_OK);
        holder = rig_connect(0);
        end();
}

/* As after a suspend of this replica's host, of which its clock counted too much. */
TEST(a_step_of_the_clock_ends_no_term)
{
        begin_stream();
        rig.now = boot_add(rig.now, 1200 * NSEC_PER_MSEC);
        begin_write();
        turns(700);
        CHECK(!write_call.over);
        turns(400);
        CHECK(write_call.over);
        CHECK_EQ(write_call.code, RPC_OK);
        end();
}

/* ---- shares ---- */

enum { STREAMS = 6 };

static struct rig_call streams[STREAMS];
static unsigned n_answers, n_given;
static char why[128];

static void count_terms(struct rig_call *call, struct view m)
{
        cleanup_(pb_freep) Pb__CacheResponse *p = NULL;

        (void) call;
        CHECK_EQ(pb_unpack(&pb__cache_response__descriptor, m, &p), 0);
        n_answers++;
        n_given += p->term_ms > 0;
        if (*p->error)
                snprintf(why, sizeof(why), "%s", p->error);
}

/* Asks for @n ranges of one key each, on a stream that is in use already, or begins. Returns
 * how many it gets. */
static unsigned ask_for_many(struct rig_conn *c, struct rig_call *call, unsigned from,
                             unsigned n)
{
        Pb__CacheRequest q = PB__CACHE_REQUEST__INIT;
        char key[16];

        n_answers = n_given = 0;
        q.term_ms = 3000;
        for (unsigned i = from; i < from + n; i++) {
                cleanup_(buf_fini) struct buf b = {0};

                snprintf(key, sizeof(key), "none/%u", i);
                q.id = i;
                q.key = pb_bytes(key, strlen(key));
                pb_append(&b, &q.base);
                if (!call->call) {
                        rig_open(c, call, "/tenurepb.Cache/Cache", &q.base);
                        call->got = count_terms;
                } else {
                        CHECK_EQ(rpc_call_send(call->call, b.data, buf_len(&b)), 0);
                }
        }
        for (unsigned i = 0; i < 1000 && n_answers < n; i++)
                rig_turn();
        CHECK_EQ(n_answers, n);
        return n_given;
}

static void forget_streams(void)
{
        for (unsigned i = 0; i < STREAMS; i++) {
                rig_forget(&streams[i]);
                streams[i] = (struct rig_call){0};
        }
}

/* Also on keys that do not exist. */
TEST(nobody_gets_all_cached_ranges)
{
        struct rig_conn *here[3], *there;
        unsigned one, all;

        rig_begin();
        for (unsigned i = 0; i < 3; i++)
                here[i] = rig_connect(0);
        there = rig_connect(1);
        one = all = ask_for_many(here[0], &streams[0], 0, 256);
        CHECK_EQ(one, (256 + 2) / 3);
        CHECK(strstr(why, "too many cached ranges"));
        for (unsigned i = 1; i < 3; i++)
                all += ask_for_many(here[i], &streams[i], i * 256, 256);
        CHECK(all > 100 && all < 128);
        CHECK(ask_for_many(there, &streams[3], 3 * 256, 256) > 40);
        /* What others cache costs nothing. */
        CHECK_EQ(ask_for_many(here[0], &streams[4], 3 * 256, 40), 40);
        rig_disconnect(here[0]); /* its terms go on */
        CHECK(ask_for_many(here[1], &streams[1], 5 * 256, 256) < 30);
        turns(4200);
        CHECK(ask_for_many(here[1], &streams[1], 6 * 256, 256) > 60);
        rig_disconnect(here[1]);
        rig_disconnect(here[2]);
        rig_disconnect(there);
        forget_streams();
        rig_end();
}

/* As do calls that have ended before they are answered. */
TEST(ranges_that_were_given_back_are_free)
{
        struct rig_conn *c;

        rig_begin();
        c = rig_connect(0);
        for (unsigned i = 0; i < 10; i++) {
                CHECK_EQ(ask_for_many(c, &streams[0], 0, 60), 60);
                rpc_call_end(streams[0].call);
                rig_wait(&streams[0], 100);
                rig_forget(&streams[0]);
                turns(3100);
        }
        rig_disconnect(c);
        forget_streams();
        rig_end();
}

/* Puts the key, and returns for how many turns that waits. */
static unsigned put_waits(const char *key)
{
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        struct rig_call call;
        unsigned n = 0;

        put.key = pb_bytes(key, strlen(key));
        rig_ask(writer, &call, "/etcdserverpb.KV/Put", &put.base);
        for (; !call.over; n++)
                rig_turn();
        CHECK_EQ(call.code, RPC_OK);
        rig_forget(&call);
        return n;
}

/* Somebody never gives a term back, caches the same key again as soon as that is possible, and
 * comes by another connection each time. In ten minutes writes wait for less than 15 s. */
TEST(who_holds_up_writes_gets_no_terms_for_long)
{
        unsigned held_up = 0, times = 0;
        struct boot_time end;
        struct rig_conn *deaf, *other;
        struct party *payer;

        rig_begin();
        writer = rig_connect(1);
        other = rig_connect(2);
        for (end = boot_add(rig.now, 600 * NSEC_PER_SEC); boot_before(rig.now, end);) {
                deaf = rig_connect(0);
                if (ask_for_many(deaf, &streams[0], 1, 1) > 0) {
                        unsigned waited = put_waits("none/1");

                        CHECK(waited <= 3100);
                        times += waited > 1000;
                        held_up += waited;
                }
                rig_disconnect(deaf);
                forget_streams();
                turns(1000);
        }
        CHECK(times >= 2);
        CHECK(held_up < 15000);
        CHECK(strstr(why, "held up writes"));
        /* Others are not refused. */
        CHECK_EQ(ask_for_many(other, &streams[0], 1, 1), 1);
        /* All that remembers it is what it still pays for. */
        payer = shares_address(core_shares(rig.core), "10.0.0.0");
        CHECK_EQ(payer->refs, 2);
        party_unref(payer);
        rig_disconnect(other);
        rig_disconnect(writer);
        forget_streams();
        rig_end();
}

/* It gives back what is recalled just before it would count as silent. */
TEST(who_gives_back_late_each_time_gets_no_terms_for_long)
{
        unsigned held_up = 0;
        struct boot_time end_at;
        Pb__CacheRequest q;

        begin_stream();
        end_at = boot_add(rig.now, 600 * NSEC_PER_SEC);
        while (boot_before(rig.now, end_at)) {
                Pb__PutRequest put = PB__PUT_REQUEST__INIT;
                unsigned before = n_recalls;

                q = request();
                send_request(&q);
                turns(100);
                put.key = pb_bytes("k1", 2);
                rig_ask(writer, &write_call, "/etcdserverpb.KV/Put", &put.base);
                for (unsigned i = 0; !write_call.over; i++) {
                        if (n_recalls > before && i == 400) {
                                q = request();
                                q.release = true;
                                send_request(&q);
                        }
                        held_up += n_recalls > before;
                        rig_turn();
                }
                CHECK_EQ(write_call.code, RPC_OK);
                rig_forget(&write_call);
        }
        CHECK(held_up > 2000);
        CHECK(held_up < 15000);
        end();
}

TEST(a_cache_is_refused_what_is_too_large)
{
        Pb__CacheRequest q;

        begin_stream();
        for (int i = 3; i < 30; i++) {
                char key[8];

                snprintf(key, sizeof(key), "k%d", i);
                rig_put(key, 50000);
        }
        q = request();
        q.range_end = pb_bytes("m", 1);
        send_request(&q);
        turns(50);
        CHECK(strstr(error, "too large"));
        q = request();
        q.key.len = 0;
        send_request(&q);
        turns(50);
        CHECK(strstr(error, "key is not provided"));
        end();
}

/* As every write: the log is spared what would be refused. */
TEST(a_cache_of_too_many_keys_is_refused_before_the_log)
{
        uint64_t applied;
        Pb__CacheRequest q;

        begin_stream();
        for (int i = 0; i <= CACHED_KEYS_MAX; i++) {
                char key[8];

                snprintf(key, sizeof(key), "m%d", i);
                rig_put(key, 1);
        }
        q = request();
        q.key = pb_bytes("m", 1);
        q.range_end = pb_bytes("n", 1);
        applied = core_state(rig.core)->applied;
        send_request(&q);
        turns(10);
        CHECK(strstr(error, "too large"));
        CHECK_EQ(core_state(rig.core)->applied, applied);
        end();
}

static struct view some_key(char *bytes)
{
        size_t n = rnd(0, 2);

        for (size_t i = 0; i < n; i++)
                bytes[i] = (char) rnd('a', 'c');
        return (struct view){(const uint8_t *) bytes, n};
}

static void check_equal(const struct cached *x, const struct cached *y)
{
        cleanup_(buf_fini) struct buf a = {0}, b = {0};

        cached_save(x, &a);
        cached_save(y, &b);
        CHECK_EQ(buf_len(&a), buf_len(&b));
        CHECK(buf_len(&a) == 0 || memcmp(buf_head(&a), buf_head(&b), buf_len(&a)) == 0);
}

/* A changed key is looked up, which must find the same ranges as to compare with each, in the
 * same order. */
TEST(the_ranges_that_hold_a_key_are_touched_as_if_compared_with_each)
{
        struct cached looks_up = {0}, compares = {0};
        unsigned n_touched = 0;

        for (unsigned i = 0; i < 20000; i++) {
                struct lease_time now = at(i), until = at(i + (unsigned) rnd(1, 200));
                struct cached_wait w1 = {0}, w2 = {0};
                char a[3], b[3];
                struct kv_span span = {.from = some_key(a)};

                if (rnd(0, 2) > 0) {
                        struct cached_range *r;

                        span.single = rnd(0, 2) == 0;
                        span.to_end = !span.single && rnd(0, 3) == 0;
                        if (!span.single && !span.to_end)
                                span.end = some_key(b);
                        CHECK_EQ(cached_promise(&looks_up, &span, 1, now, until, &r), 0);
                        CHECK_EQ(cached_promise(&compares, &span, 1, now, until, &r), 0);
                        continue;
                }
                span.single = true;
                cached_change(&looks_up, &span, now, &w1);
                for (size_t k = compares.n; k > 0; k--)
                        if (kv_spans_overlap(&compares.ranges[k - 1]->keys.span, &span)) {
                                cached_touch(&compares, k - 1, now, &w2);
                                n_touched++;
                        }
                CHECK_EQ(w1.serial, w2.serial);
                check_equal(&looks_up, &compares);
        }
        CHECK(n_touched > 10000);
        cached_fini(&looks_up);
        cached_fini(&compares);
}
