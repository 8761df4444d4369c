/* Watches with large events: no response is large, and nothing waits for a client that does not
 * read. */
#include "rig.h"

#define WATCH "/etcdserverpb.Watch/Watch"
#define KEYS 64
#define VALUE ((size_t) 256 << 10)

struct watcher {
        struct rig_call call;
        struct rig_conn *conn;
        unsigned responses, events, prevs;
        size_t largest;
        int64_t last; /* revision */
        bool in_part;
};

static void got(struct rig_call *call, struct view m)
{
        struct watcher *w = container_of(call, struct watcher, call);
        cleanup_(pb_freep) Pb__WatchResponse *p = NULL;

        CHECK_EQ(pb_unpack(&pb__watch_response__descriptor, m, &p), 0);
        CHECK(!p->canceled);
        if (p->created)
                return;
        /* Only parts of one response have events of one revision. */
        CHECK(p->n_events > 0);
        CHECK(w->in_part || p->events[0]->kv->mod_revision > w->last);
        for (size_t i = 0; i < p->n_events; i++) {
                const Pb__Event *e = p->events[i];
                char key[16];

                snprintf(key, sizeof(key), "k%05u", w->events % KEYS);
                CHECK_EQ(bytes_cmp(e->kv->key.data, e->kv->key.len, key, 6), 0);
                CHECK(e->kv->mod_revision >= w->last);
                w->last = e->kv->mod_revision;
                w->events++;
                w->prevs += e->prev_kv && e->prev_kv->value.len == VALUE;
        }
        w->in_part = p->fragment;
        w->responses++;
        w->largest = max_of(w->largest, m.len);
}

static void begin_watch(struct watcher *w, unsigned address, bool prev_kv, int64_t from)
{
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;

        *w = (struct watcher){.conn = rig_connect(address)};
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        create.key = pb_bytes("k", 1);
        create.range_end = pb_bytes("l", 1);
        create.prev_kv = prev_kv;
        create.start_revision = from;
        rig_open(w->conn, &w->call, WATCH, &q.base);
        w->call.got = got;
        while (w->call.messages == 0)
                rig_turn();
}

static void wait_for_events(struct watcher *w, unsigned n)
{
        for (unsigned i = 0; w->events < n && i < 5000; i++)
                rig_turn();
        CHECK_EQ(w->events, n);
}

static void fill(size_t value_len)
{
        for (unsigned i = 0; i < KEYS; i++) {
                char key[16];

                snprintf(key, sizeof(key), "k%05u", i);
                rig_put(key, value_len);
        }
}

static void delete_all(void)
{
        Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;
        struct rig_call call;

        del.key = pb_bytes("k", 1);
        del.range_end = pb_bytes("l", 1);
        rig_ask(rig_connect(7), &call, "/etcdserverpb.KV/DeleteRange", &del.base);
        rig_wait(&call, 5000);
        CHECK_EQ(call.code, RPC_OK);
        rig_forget(&call);
}

/* 16 MiB of values are deleted with one revision. A watch that asked for previous values gets
 * them as it reads; one that did not gets one response. */
TEST(deleted_values_are_sent_as_they_are_read)
{
        struct watcher slow, deaf, plain;

        rig_begin();
        fill(VALUE);
        begin_watch(&slow, 0, true, 0);
        begin_watch(&deaf, 1, true, 0);
        begin_watch(&plain, 2, false, 0);
        deaf.conn->takes = 0;
        rig.most_held = 0;
        delete_all();
        wait_for_events(&plain, KEYS);
        CHECK_EQ(plain.responses, 1);
        wait_for_events(&slow, KEYS);
        CHECK_EQ(slow.prevs, KEYS);
        CHECK(slow.largest <= 2 << 20);
        CHECK(!slow.in_part && !plain.in_part);
        CHECK(rig.most_held < 6 << 20);
        /* The order of the changes is kept, too. */
        rig_put("k00000", 1);
        deaf.conn->takes = 256 << 10;
        wait_for_events(&deaf, KEYS + 1);
        CHECK_EQ(deaf.prevs, KEYS);
        CHECK(rig.most_held < 6 << 20);
        wait_for_events(&slow, KEYS + 1);
        for (struct watcher *w = &slow; w; w = w == &slow ? &deaf : w == &deaf ? &plain : NULL)
                rig_forget(&w->call);
        rig_end();
}

/* Each small value takes the place of a large one: so few of them are one response. */
TEST(what_was_there_before_counts)
{
        struct watcher w;
        int64_t from;

        rig_begin();
        fill(VALUE);
        from = core_state(rig.core)->revision + 1;
        fill(1);
        rig.most_held = 0;
        begin_watch(&w, 0, true, from);
        wait_for_events(&w, KEYS);
        CHECK_EQ(w.prevs, KEYS);
        CHECK(w.largest <= 2 << 20);
        CHECK(rig.most_held < 6 << 20);
        rig_forget(&w.call);
        rig_end();
}

/* A compaction in the middle drops previous values, but no event. */
TEST(a_compaction_leaves_events_that_are_sent_in_parts)
{
        struct watcher w;

        rig_begin();
        fill(VALUE);
        begin_watch(&w, 0, true, 0);
        w.conn->takes = 128 << 10;
        delete_all();
        while (w.events == 0)
                rig_turn();
        rig_compact();
        wait_for_events(&w, KEYS);
        CHECK(w.prevs > 0 && w.prevs < KEYS);
        rig_turn();
        CHECK(!w.in_part);
        rig_forget(&w.call);
        rig_end();
}

/* More changes than are looked at in a turn, of which the last one is watched: meanwhile
 * nothing is sent, and nothing else happens that would run the server again. */
TEST(a_watch_waits_for_nothing_while_changes_of_other_keys_are_passed_over)
{
        struct watcher w;

        rig_begin();
        begin_watch(&w, 0, false, 0);
        for (unsigned i = 0; i < 200; i++)
                rig_turn();
        for (unsigned i = 0; i < 200000; i++)
                rig_put("other", 1);
        rig_put("k00000", 1);
        rig.idle = 0;
        wait_for_events(&w, 1);
        CHECK_EQ(rig.idle, 0);
        rig_forget(&w.call);
        rig_end();
}

/* Many connections that read nothing, and have nothing unread at first: each would get one
 * response, all together have a bound. Later they have it. */
TEST(many_who_do_not_read_hold_no_more_than_they_may)
{
        static struct watcher deaf[100];
        struct watcher other;

        rig_begin();
        rig.account.max = 4 << 20;
        for (size_t i = 0; i < ARRAY_SIZE(deaf); i++) {
                begin_watch(&deaf[i], (unsigned) i % 4, false, 0);
                deaf[i].conn->takes = 0;
        }
        rig.most_held = 0;
        rig_put("k00000", VALUE);
        for (int i = 0; i < 100; i++)
                rig_turn();
        CHECK(rig.most_held > 2 << 20 && rig.most_held < 5 << 20);
        /* A small one reaches watches that do not wait for anything. */
        begin_watch(&other, 4, false, 0);
        other.events = 1;
        rig_put("k00001", 10);
        wait_for_events(&other, 2);
        for (size_t i = 0; i < ARRAY_SIZE(deaf); i++)
                deaf[i].conn->takes = 1 << 20;
        for (size_t i = 0; i < ARRAY_SIZE(deaf); i++) {
                wait_for_events(&deaf[i], 2);
                rig_forget(&deaf[i].call);
        }
        CHECK(rig.most_held < 5 << 20);
        rig_forget(&other.call);
        rig.account.max = SIZE_MAX;
        rig_end();
}
