/* Large ranges beside clients that write and compact without end, and beside slow readers. */
#include "rig.h"

#define RANGE "/etcdserverpb.KV/Range"
#define STREAM "/etcdserverpb.KV/RangeStream"
#define KEYS 60000

static void fill(unsigned n, size_t value_len)
{
        char key[16];

        for (unsigned i = 0; i < n; i++) {
                snprintf(key, sizeof(key), "k%06u", i);
                rig_put(key, value_len);
        }
}

static Pb__RangeRequest everything(void)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;

        q.key = pb_bytes("k", 1);
        q.range_end = pb_bytes("l", 1);
        return q;
}

static Pb__RangeRequest newest_first(void)
{
        Pb__RangeRequest q = everything();

        q.sort_target = PB__RANGE_REQUEST__SORT_TARGET__MOD;
        q.sort_order = PB__RANGE_REQUEST__SORT_ORDER__DESCEND;
        return q;
}

/* Others write, delete and compact up to now, each 20 ms. */
static void disturb(unsigned turn)
{
        struct state *s = core_state(rig.core);
        char key[16];

        if (turn % 20 != 0)
                return;
        for (unsigned i = 0; i < 500; i++) {
                struct kv_key *k;

                snprintf(key, sizeof(key), "k%06u", (unsigned) rnd(0, KEYS + 1000));
                k = kv_find(&s->kv, key, strlen(key));
                if (k && kv_live(k) && rnd(0, 1))
                        CHECK_EQ(kv_delete(&s->kv, ++s->revision, 0, k), 0);
                else
                        rig_put(key, 10);
        }
        rig_compact();
}

static void wait_disturbed(struct rig_call *call, unsigned max)
{
        for (unsigned i = 1; !call->over && i < max; i++) {
                rig_turn();
                disturb(i);
        }
        CHECK(call->over);
        CHECK_STR(call->text, "");
        CHECK_EQ(call->code, RPC_OK);
}

/* Everything is of one revision, that of the header, and complete. */
static void check_whole(const struct rig_call *call, int64_t revision)
{
        Pb__RangeResponse *p = pb__range_response__unpack(NULL, buf_len(&call->message),
                                                          buf_head(&call->message));
        int64_t last = INT64_MAX;

        CHECK(p);
        CHECK_EQ(p->header->revision, revision);
        CHECK_EQ(p->n_kvs, KEYS);
        CHECK_EQ(p->count, KEYS);
        for (size_t i = 0; i < p->n_kvs; i++) {
                CHECK(p->kvs[i]->mod_revision <= revision);
                CHECK(p->kvs[i]->mod_revision < last);
                last = p->kvs[i]->mod_revision;
        }
        pb_free(p);
}

TEST(a_large_sorted_range_ends_whatever_is_compacted)
{
        Pb__RangeRequest q = newest_first();
        struct rig_call call;
        int64_t revision;

        rig_begin();
        fill(KEYS, 10);
        revision = core_state(rig.core)->revision;
        rig_ask(rig_connect(0), &call, RANGE, &q.base);
        wait_disturbed(&call, 2000);
        check_whole(&call, revision);
        rig_forget(&call);
        rig_end();
}

TEST(a_large_range_in_parts_ends_whatever_is_compacted)
{
        Pb__RangeRequest q = everything();
        struct rig_call call;

        rig_begin();
        fill(KEYS, 10);
        rig_ask(rig_connect(0), &call, STREAM, &q.base);
        wait_disturbed(&call, 2000);
        CHECK(call.messages > 1);
        rig_forget(&call);
        rig_end();
}

/* ---- slow readers ---- */

#define LARGE 64
#define VALUE ((size_t) 500000)

static void check_large(const struct rig_call *call, int64_t revision)
{
        Pb__RangeResponse *p;

        CHECK_STR(call->text, "");
        CHECK_EQ(call->code, RPC_OK);
        CHECK_EQ(call->messages, 1);
        p = pb__range_response__unpack(NULL, buf_len(&call->message), buf_head(&call->message));
        CHECK(p);
        CHECK_EQ(p->header->revision, revision);
        CHECK_EQ(p->n_kvs, LARGE);
        CHECK_EQ(p->count, LARGE);
        for (size_t i = 0; i < p->n_kvs; i++) {
                CHECK_EQ(p->kvs[i]->value.len, VALUE);
                CHECK(p->kvs[i]->mod_revision <= revision);
        }
        pb_free(p);
}

/* 32 MB, a little at a time, while all of it is overwritten and compacted: it arrives complete
 * and unchanged, and next to nothing is held for the reader. */
TEST(a_large_answer_is_made_as_its_reader_takes_it)
{
        Pb__RangeRequest q = newest_first();
        struct rig_call call;
        struct rig_conn *c;
        int64_t revision;

        rig_begin();
        c = rig_connect(0);
        fill(LARGE, VALUE);
        revision = core_state(rig.core)->revision;
        rig_ask(c, &call, RANGE, &q.base);
        c->takes = 16 * 1024;
        for (unsigned i = 0; i < 100; i++)
                rig_turn();
        fill(LARGE, 10);
        rig_compact();
        rig_wait(&call, 5000);
        check_large(&call, revision);
        CHECK(rig.most_held < 2 << 20);
        rig_forget(&call);
        for (unsigned i = 0; i < 100; i++)
                rig_turn();
        CHECK_EQ(core_state(rig.core)->kv.kept.bytes, 0);
        rig_end();
}

/* So many at once as a client likes, on one connection. */
TEST_BULK(many_large_answers_on_a_connection_are_made_as_they_are_read)
{
        Pb__RangeRequest q = everything();
        struct rig_call calls[20];
        struct rig_conn *c;
        int64_t revision;

        rig_begin();
        c = rig_connect(0);
        fill(LARGE, VALUE);
        revision = core_state(rig.core)->revision;
        for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
                rig_ask(c, &calls[i], RANGE, &q.base);
        c->takes = 1 << 20;
        for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
                rig_wait(&calls[i], 5000);
                check_large(&calls[i], revision);
                rig_forget(&calls[i]);
        }
        CHECK(rig.most_held < 16 << 20);
        rig_end();
}

/* Many connections, none of which reads its answer: when they hold as much as they may, the
 * next ones get a little each. Clients that read get everything, at the same address and at
 * others. */
static void crowd(const char *path)
{
        enum { CROWD = 200, BOUND = 32 << 20, EACH = 20 << 10 };
        static struct rig_call calls[CROWD];
        Pb__RangeRequest q = everything();
        int64_t revision;

        rig_begin();
        fill(LARGE, VALUE);
        rig.account.max = BOUND;
        revision = core_state(rig.core)->revision;
        for (size_t i = 0; i < CROWD; i++) {
                struct rig_conn *c = rig_connect(0);

                rig_ask(c, &calls[i], path, &q.base);
                c->takes = 0;
        }
        for (unsigned i = 0; i < 1000; i++)
                rig_turn();
        CHECK(rig.most_held > BOUND / 3);
        CHECK(rig.most_held < BOUND / 2 + CROWD * EACH);
        CHECK(!rig.account.wanted); /* nobody has to be closed for them */
        for (unsigned address = 0; address < 2; address++) {
                struct rig_call call;

                rig_ask(rig_connect(address), &call, RANGE, &q.base);
                rig_wait(&call, 5000);
                check_large(&call, revision);
                rig_forget(&call);
        }
        CHECK(rig.most_held < BOUND / 2 + (CROWD + 2) * EACH + (1 << 20));
        for (size_t i = 0; i < CROWD; i++)
                rig_forget(&calls[i]);
        rig_end();
}

TEST(many_who_do_not_read_their_range_hold_little_each)
{
        crowd(RANGE);
}

TEST(many_who_do_not_read_their_range_in_parts_hold_little_each)
{
        crowd(STREAM);
}

/* ---- one key, in pieces ---- */

struct found {
        struct rig_call call;
        unsigned keys, large;
        int64_t count;
};

static char large_key[100000];
static uint8_t large_value[300000];

static void got_part(struct rig_call *call, struct view m)
{
        struct found *f = container_of(call, struct found, call);
        cleanup_(pb_freep) Pb__RangeStreamResponse *p = NULL;
        const Pb__RangeResponse *r;

        CHECK_EQ(pb_unpack(&pb__range_stream_response__descriptor, m, &p), 0);
        r = p->range_response;
        CHECK(r && r->header && r->header->revision > 0);
        for (size_t i = 0; i < r->n_kvs; i++, f->keys++) {
                const Pb__KeyValue *kv = r->kvs[i];

                if (kv->key.len != sizeof(large_key))
                        continue;
                f->large++;
                CHECK_EQ(memcmp(kv->key.data, large_key, sizeof(large_key)), 0);
                CHECK_EQ(bytes_cmp(kv->value.data, kv->value.len, large_value,
                                   sizeof(large_value)),
                         0);
                CHECK_EQ(kv->lease, 77);
                CHECK_EQ(kv->version, 1);
                CHECK(kv->create_revision == kv->mod_revision && kv->mod_revision > 1);
        }
        f->count += r->count;
}

/* Counts an answer that is sent in parts; a complete answer is a single part, without the
 * surrounding fields. */
static void got_whole(struct rig_call *call, struct view m)
{
        cleanup_(buf_fini) struct buf part = {0};

        buf_add_u8(&part, 1 << 3 | 2);
        buf_add_bytes(&part, m.p, m.len);
        got_part(call, (struct view){part.data, buf_len(&part)});
}

/* A key and a value that are larger than a piece, between small ones, whether there is room or
 * not. */
TEST(what_is_large_comes_in_pieces_and_whole)
{
        struct state *s;
        struct kv_key *k;

        rig_begin();
        s = core_state(rig.core);
        fill(5000, 10);
        memset(large_key, 'k', sizeof(large_key));
        for (size_t i = 0; i < sizeof(large_value); i++)
                large_value[i] = (uint8_t) rnd(0, 255);
        CHECK_EQ(kv_put(&s->kv, ++s->revision, 0, large_key, sizeof(large_key), large_value,
                        sizeof(large_value), 77, &k),
                 0);
        rig_put("kz", 10);
        for (unsigned pressed = 0; pressed < 2; pressed++) {
                for (unsigned parts = 0; parts < 2; parts++) {
                        Pb__RangeRequest q = everything();
                        struct found f = {0};

                        rig.account.held += pressed ? (size_t) 1 << 40 : 0;
                        rig.account.max = (size_t) 1 << 30;
                        rig_ask(rig_connect(0), &f.call, parts ? STREAM : RANGE, &q.base);
                        f.call.got = parts ? got_part : got_whole;
                        rig_wait(&f.call, 5000);
                        CHECK_STR(f.call.text, "");
                        CHECK_EQ(f.keys, 5002);
                        CHECK_EQ(f.large, 1);
                        CHECK_EQ(f.count, 5002);
                        rig.account.held -= pressed ? (size_t) 1 << 40 : 0;
                        rig_forget(&f.call);
                }
        }
        rig_end();
}

/* 30 at once, in several orders, that do not read yet: pointers to all keys that were found
 * were 8 bytes for each key and reader, whatever the bound. Sorted ones hold more, as long as
 * there is room. And each gets its answer, in its order, however little room there was. */
TEST(who_reads_slowly_holds_little)
{
        enum { READERS = 30 };
        struct rig_conn *conns[READERS];
        struct rig_call calls[READERS];
        int64_t revision;

        rig_begin();
        fill(KEYS, 10);
        rig.account.max = 12 << 20;
        revision = core_state(rig.core)->revision;
        for (size_t i = 0; i < READERS; i++) {
                Pb__RangeRequest q = everything();

                if (i % 2 > 0) {
                        q.sort_order = PB__RANGE_REQUEST__SORT_ORDER__DESCEND;
                        q.sort_target = i % 4 == 1 ? PB__RANGE_REQUEST__SORT_TARGET__MOD
                                                   : PB__RANGE_REQUEST__SORT_TARGET__KEY;
                }
                conns[i] = rig_connect(i % 8);
                rig_ask(conns[i], &calls[i], RANGE, &q.base);
                conns[i]->takes = 0;
        }
        for (unsigned i = 0; i < 500; i++)
                rig_turn();
        CHECK(rig.account.held > READERS * 64 * 1024); /* they wait for their readers */
        CHECK(rig.account.held < rig.account.max);
        for (size_t i = 0; i < READERS; i++)
                conns[i]->takes = 64 * 1024;
        for (size_t i = 0; i < READERS; i++) {
                rig_wait(&calls[i], 20000);
                CHECK_STR(calls[i].text, "");
                CHECK_EQ(calls[i].code, RPC_OK);
                if (i % 2 > 0)
                        check_whole(&calls[i], revision);
                rig_forget(&calls[i]);
                rig_disconnect(conns[i]);
        }
        rig_end();
}

/* A client that does not read keeps its pinned versions as long as there is room. */
TEST(a_reader_too_slow_for_compaction_gets_an_error)
{
        Pb__RangeRequest q = everything();
        struct rig_call call;
        struct rig_conn *c;

        rig_begin();
        c = rig_connect(0);
        fill(LARGE, VALUE);
        core_state(rig.core)->kv.kept.max = 4 * VALUE;
        rig_ask(c, &call, RANGE, &q.base);
        for (unsigned i = 0; i < 10; i++)
                rig_turn();
        c->takes = 0;
        for (unsigned i = 0; i < 100; i++)
                rig_turn();
        fill(LARGE, 10);
        rig_compact();
        CHECK(core_state(rig.core)->kv.kept.bytes <= 9 * VALUE);
        c->takes = 64 * 1024;
        rig_wait(&call, 100);
        CHECK_STR(call.text, "etcdserver: mvcc: required revision has been compacted");
        CHECK_EQ(call.messages, 0);
        for (unsigned i = 0; i < 100; i++)
                rig_turn();
        CHECK_EQ(core_state(rig.core)->kv.kept.bytes, 0);
        rig_forget(&call);
        rig_end();
}

/* If the data is gone before anything was sent, the range starts again, a few times. */
TEST(a_range_in_parts_that_finds_nothing_does_not_look_forever)
{
        Pb__RangeRequest q = everything();
        struct rig_call call;
        char key[16];

        rig_begin();
        fill(KEYS, 10);
        core_state(rig.core)->kv.kept.max = 0;
        q.min_create_revision = INT64_MAX;
        rig_ask(rig_connect(0), &call, STREAM, &q.base);
        for (unsigned i = 0; !call.over && i < 2000; i++) {
                rig_turn();
                snprintf(key, sizeof(key), "k%06u", i);
                rig_put(key, 10);
                rig_compact();
        }
        CHECK(call.over);
        CHECK_STR(call.text, "etcdserver: mvcc: required revision has been compacted");
        rig_forget(&call);
        rig_end();
}

static void ask_and_wait(struct rig_conn *c, const char *path, const ProtobufCMessage *m)
{
        struct rig_call call;

        rig_ask(c, &call, path, m);
        rig_wait(&call, 1000);
        CHECK_STR(call.text, "");
        rig_forget(&call);
}

/* A role may have 1,000 permissions, and their keys are as long as a request: as often as they
 * were asked for, so often they were there. */
TEST(roles_are_listed_as_they_are_read)
{
        static char from[500000], end[500000];
        Pb__AuthRoleAddRequest add = PB__AUTH_ROLE_ADD_REQUEST__INIT;
        Pb__AuthRoleGrantPermissionRequest grant = PB__AUTH_ROLE_GRANT_PERMISSION_REQUEST__INIT;
        Pb__AuthRoleGetRequest get = PB__AUTH_ROLE_GET_REQUEST__INIT;
        Pb__Permission perm = PB__PERMISSION__INIT;
        struct rig_call calls[40];
        struct rig_conn *c;

        rig_begin();
        c = rig_connect(0);
        c->takes = 1 << 20;
        add.name = grant.name = get.role = (char[]){"large"};
        ask_and_wait(c, "/etcdserverpb.Auth/RoleAdd", &add.base);
        memset(from, 'a', sizeof(from));
        memset(end, 'b', sizeof(end));
        perm.key = pb_bytes(from, sizeof(from));
        perm.range_end = pb_bytes(end, sizeof(end));
        grant.perm = &perm;
        ask_and_wait(c, "/etcdserverpb.Auth/RoleGrantPermission", &grant.base);
        rig.most_held = 0;
        for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
                rig_ask(c, &calls[i], "/etcdserverpb.Auth/RoleGet", &get.base);
        c->takes = 16 * 1024;
        for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
                rig_wait(&calls[i], 5000);
                CHECK_STR(calls[i].text, "");
                CHECK(calls[i].bytes > sizeof(from) + sizeof(end));
                rig_forget(&calls[i]);
        }
        CHECK(rig.most_held < 8 << 20);
        rig_end();
}

/* Two watches of one range, and one with previous values, of 20,000 deletions at one revision:
 * the response of each group is made in several turns, and is a single one. */
TEST(what_is_watched_is_packed_in_slices)
{
        Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;
        struct rig_call watches[3], call;
        unsigned turns = 0;

        rig_begin();
        for (unsigned i = 0; i < 20000; i++) {
                char key[16];

                snprintf(key, sizeof(key), "k%05u", i);
                rig_put(key, 4);
        }
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        create.key = del.key = pb_bytes("k", 1);
        create.range_end = del.range_end = pb_bytes("l", 1);
        for (unsigned i = 0; i < 3; i++) {
                struct rig_conn *c = rig_connect(i);

                create.prev_kv = i == 2;
                c->takes = 16 << 20;
                rig_open(c, &watches[i], "/etcdserverpb.Watch/Watch", &q.base);
                while (watches[i].messages == 0)
                        rig_turn();
        }
        rig_ask(rig_connect(3), &call, "/etcdserverpb.KV/DeleteRange", &del.base);
        rig_wait(&call, 5000);
        CHECK_EQ(call.code, RPC_OK);
        for (; watches[0].messages < 2; turns++)
                rig_turn();
        CHECK(turns >= 5); /* two of them note the events */
        for (unsigned i = 0; i < 3; i++) {
                cleanup_(pb_freep) Pb__WatchResponse *p = NULL;

                for (turns = 0; watches[i].messages < 2 && turns < 1000; turns++)
                        rig_turn();
                CHECK_EQ(watches[i].messages, 2);
                CHECK_EQ(pb_unpack(&pb__watch_response__descriptor,
                                   (struct view){buf_head(&watches[i].message),
                                                 buf_len(&watches[i].message)},
                                   &p),
                         0);
                CHECK_EQ(p->n_events, 20000);
                CHECK(p->header && !p->fragment);
                for (unsigned k = 0; k < 20000; k++) {
                        char key[16];

                        snprintf(key, sizeof(key), "k%05u", k);
                        CHECK_EQ(p->events[k]->type, PB__EVENT__EVENT_TYPE__DELETE);
                        CHECK_EQ(bytes_cmp(p->events[k]->kv->key.data, 6, key, 6), 0);
                        CHECK(!p->events[k]->prev_kv == (i < 2));
                }
        }
        for (unsigned i = 0; i < 3; i++)
                rig_forget(&watches[i]);
        rig_forget(&call);
        rig_end();
}

/* What waits for one confirmation is answered a few at a time: 1,000 ranges of 2,000 keys held
 * the loop for 560 ms, and a leader was deposed. */
TEST(ranges_that_waited_together_are_not_answered_together)
{
        enum { CONNS = 16, EACH = 20 };
        static struct rig_call calls[CONNS][EACH];
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        unsigned over = 0, most = 0, turns = 0;
        struct rig_conn *conns[CONNS];

        rig_begin();
        for (unsigned i = 0; i < 2000; i++) {
                char key[16];

                snprintf(key, sizeof(key), "k%06u", i);
                rig_put(key, 1);
        }
        q.key = pb_bytes("k", 1);
        q.range_end = pb_bytes("l", 1);
        q.keys_only = true;
        for (unsigned i = 0; i < CONNS; i++) {
                conns[i] = rig_connect(i % 8);
                conns[i]->takes = 16 << 20;
        }
        for (unsigned i = 0; i < CONNS; i++)
                for (unsigned j = 0; j < EACH; j++)
                        rig_ask(conns[i], &calls[i][j], RANGE, &q.base);
        for (; over < CONNS * EACH && turns < 1000; turns++) {
                unsigned was = over;

                rig_turn();
                over = 0;
                for (unsigned i = 0; i < CONNS; i++)
                        for (unsigned j = 0; j < EACH; j++)
                                over += calls[i][j].over;
                most = max_of(most, over - was);
        }
        CHECK_EQ(over, CONNS * EACH);
        CHECK(most <= 6);
        for (unsigned i = 0; i < CONNS; i++)
                for (unsigned j = 0; j < EACH; j++) {
                        CHECK_STR(calls[i][j].text, "");
                        CHECK_EQ(calls[i][j].messages, 1);
                        rig_forget(&calls[i][j]);
                }
        rig_end();
}
