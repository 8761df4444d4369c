/* Work that may be much is done in slices: no turn of the loop has more of it than another. */
#include "compares.h"
#include "core/internal.h"
#include "one.h"
#include "rig.h"

#define WATCHES 5000

static unsigned reports;

static void got_report(struct rig_call *call, struct view m)
{
        cleanup_(pb_freep) Pb__WatchResponse *p = NULL;

        (void) call;
        CHECK_EQ(pb_unpack(&pb__watch_response__descriptor, m, &p), 0);
        reports += !p->created && p->n_events == 0;
}

static void send_watch(struct rig_call *call, unsigned i)
{
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;
        cleanup_(buf_fini) struct buf b = {0};
        char key[16];

        create.key = pb_bytes(key, (size_t) snprintf(key, sizeof(key), "w%05u", i));
        create.progress_notify = true;
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        pb_append(&b, &q.base);
        CHECK_EQ(rpc_call_send(call->call, buf_head(&b), buf_len(&b)), 0);
}

/* Watches that began together are due together, each ten minutes: 100,000 were 150 ms. */
TEST(progress_is_sent_in_batches)
{
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;
        struct rig_call call;
        struct rig_conn *c;
        unsigned most = 0;

        rig_begin();
        c = rig_connect(0);
        c->takes = 16 << 20;
        create.key = pb_bytes("w", 1);
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        rig_open(c, &call, "/etcdserverpb.Watch/Watch", &q.base);
        call.got = got_report;
        for (unsigned i = 0; i < WATCHES; i++) {
                send_watch(&call, i);
                if (i % 100 == 0)
                        rig_turn();
        }
        for (unsigned i = 0; i < 50; i++)
                rig_turn();
        CHECK_EQ(call.messages, WATCHES + 1);
        CHECK_EQ(reports, 0);
        rig.now = boot_add(rig.now, 700 * NSEC_PER_SEC);
        for (unsigned i = 0; i < 100 && reports < WATCHES; i++) {
                unsigned was = reports;

                rig_turn();
                most = max_of(most, reports - was);
        }
        CHECK_EQ(reports, WATCHES);
        CHECK(most <= 1000);
        rig_forget(&call);
        rig_end();
}

/* Proclamations that arrive within one turn of the loop are reported one by one, in order. */
static int64_t told;

static void is_next(struct rig_call *call, struct view m)
{
        Pb__LeaderResponse *p = pb__leader_response__unpack(NULL, m.len, m.p);

        CHECK(p);
        if (call->messages > 1)
                CHECK_EQ(p->kv->mod_revision, told + 1);
        told = p->kv->mod_revision;
        pb_free(p);
}

TEST(an_observer_gets_each_proclamation)
{
        Pb__LeaderRequest q = PB__LEADER_REQUEST__INIT;
        struct rig_call call;

        rig_begin();
        rig_put("e/1", 1);
        q.name = pb_bytes("e", 1);
        rig_open(rig_connect(0), &call, "/v3electionpb.Election/Observe", &q.base);
        call.got = is_next;
        for (unsigned i = 0; i < 20 && call.messages < 1; i++)
                rig_turn();
        for (unsigned i = 0; i < 3000; i++)
                rig_put("e/1", 1);
        for (unsigned i = 0; i < 400; i++)
                rig_turn();
        CHECK_EQ(call.messages, 3001);
        rig_forget(&call);
        rig_end();
}

/* A key that the same txn has made leads next: its revision is that of the one before. */
TEST(an_observer_is_told_of_a_leader_of_the_same_revision)
{
        Pb__LeaderRequest q = PB__LEADER_REQUEST__INIT;
        struct kv_key *first, *second;
        struct rig_call call;
        struct state *s;

        rig_begin();
        s = core_state(rig.core);
        s->revision++;
        CHECK_EQ(kv_put(&s->kv, s->revision, 0, "e/1", 3, "v", 1, 0, &first), 0);
        CHECK_EQ(kv_put(&s->kv, s->revision, 1, "e/2", 3, "v", 1, 0, &second), 0);
        q.name = pb_bytes("e", 1);
        rig_open(rig_connect(0), &call, "/v3electionpb.Election/Observe", &q.base);
        for (unsigned i = 0; i < 20; i++)
                rig_turn();
        CHECK_EQ(call.messages, 1);
        CHECK_EQ(kv_delete(&s->kv, ++s->revision, 0, first), 0);
        rig_put("other", 1);
        for (unsigned i = 0; i < 20; i++)
                rig_turn();
        CHECK_EQ(call.messages, 2);
        rig_forget(&call);
        rig_end();
}

/* Its election was looked at again every 20 ms, for as long as it did not read. */
TEST(an_observer_that_does_not_read_is_not_looked_for)
{
        Pb__LeaderRequest q = PB__LEADER_REQUEST__INIT;
        struct rig_call call;
        struct rig_conn *c;
        uint64_t before;

        rig_begin();
        rig_put("e/1", 1);
        q.name = pb_bytes("e", 1);
        c = rig_connect(0);
        rig_open(c, &call, "/v3electionpb.Election/Observe", &q.base);
        call.got = is_next;
        for (unsigned i = 0; i < 20 && call.messages < 1; i++)
                rig_turn();
        c->takes = 0;
        for (unsigned i = 0; i < 5; i++)
                rig_put("e/1", 1 << 20);
        for (unsigned i = 0; i < 20; i++)
                rig_turn();
        before = compares();
        for (unsigned i = 0; i < 200; i++)
                rig_turn();
        CHECK_EQ(compares(), before);
        c->takes = 1 << 20;
        for (unsigned i = 0; i < 400; i++)
                rig_turn();
        CHECK_EQ(call.messages, 6);
        rig_forget(&call);
        rig_end();
}

#define ELECTIONS 8000

/* After a compaction all observed elections must be checked: those without a leader were
 * checked in one turn. */
TEST(elections_are_looked_at_some_at_a_time)
{
        static struct rig_call calls[ELECTIONS];
        uint64_t most = 0, all = 0;
        struct rig_conn *c;

        rig_begin();
        for (unsigned i = 0; i < 1000; i++) {
                char key[16];

                snprintf(key, sizeof(key), "k%05u", i);
                rig_put(key, 1);
        }
        c = rig_connect(0);
        c->takes = 16 << 20;
        for (unsigned i = 0; i < ELECTIONS; i++) {
                Pb__LeaderRequest q = PB__LEADER_REQUEST__INIT;
                char name[16];

                q.name = pb_bytes(name, (size_t) snprintf(name, sizeof(name), "e%05u", i));
                rig_ask(c, &calls[i], "/v3electionpb.Election/Observe", &q.base);
                if (i % 100 == 0)
                        rig_turn();
        }
        for (unsigned i = 0; i < 50; i++)
                rig_turn();
        rig_put("k", 1);
        rig_put("k", 1);
        rig_compact();
        for (unsigned i = 0; i < 20; i++) {
                uint64_t was = compares();

                rig_turn();
                most = max_of(most, compares() - was);
                all += compares() - was;
        }
        CHECK(all > 2 * ELECTIONS);
        CHECK(most < all / 3);
        for (unsigned i = 0; i < ELECTIONS; i++)
                rig_forget(&calls[i]);
        rig_end();
}

#define NESTED 200

/* The keys of an election are also keys of all elections whose names begin theirs. */
TEST(a_change_is_looked_at_for_each_election_that_it_concerns)
{
        static struct rig_call calls[NESTED];
        static char key[2 * NESTED + 2];
        uint64_t most = 0, all = 0;
        struct rig_conn *c;

        rig_begin();
        for (unsigned i = 0; i < NESTED; i++)
                memcpy(key + 2 * i, "e/", 2);
        key[2 * NESTED] = '1';
        rig_put(key, 1);
        c = rig_connect(0);
        c->takes = 16 << 20;
        for (unsigned i = 0; i < NESTED; i++) {
                Pb__LeaderRequest q = PB__LEADER_REQUEST__INIT;

                q.name = pb_bytes(key, 2 * i + 1);
                rig_ask(c, &calls[i], "/v3electionpb.Election/Observe", &q.base);
        }
        for (unsigned i = 0; i < 50; i++)
                rig_turn();
        for (unsigned i = 0; i < 500; i++)
                rig_put(key, 1);
        for (unsigned i = 0; i < 4000; i++) {
                uint64_t was = compares();

                rig_turn();
                most = max_of(most, compares() - was);
                all += compares() - was;
        }
        CHECK(all > 500 * NESTED);
        CHECK(most < all / 10);
        for (unsigned i = 0; i < NESTED; i++) {
                CHECK_EQ(calls[i].messages, 501);
                rig_forget(&calls[i]);
        }
        rig_end();
}

#define READERS 3000

static unsigned n_got;

static void count_got(struct rig_call *call, struct view m)
{
        (void) call;
        (void) m;
        n_got++;
}

/* All of them get the same large value, for which there is no room until they read. They are
 * looked at some at a time. */
static void read_late(const char *path, const ProtobufCMessage *m)
{
        static struct rig_call calls[READERS];
        struct rig_conn *c;

        rig_begin();
        rig_put("e/1", 1);
        c = rig_connect(0);
        c->takes = 16 << 20;
        for (unsigned i = 0; i < READERS; i++) {
                rig_open(c, &calls[i], path, m);
                calls[i].got = count_got;
                if (i % 100 == 0)
                        rig_turn();
        }
        for (unsigned i = 0; i < 100; i++)
                rig_turn();
        CHECK_EQ(calls[0].messages, 1);
        CHECK_EQ(calls[READERS - 1].messages, 1);
        c->takes = 0;
        rig_put("e/1", 20000);
        for (unsigned i = 0; i < 100; i++)
                rig_turn();
        n_got = 0;
        c->takes = 64 << 20;
        for (unsigned i = 0; i < 2000 && n_got < READERS; i++)
                rig_turn();
        CHECK_EQ(n_got, READERS);
        for (unsigned i = 0; i < READERS; i++)
                rig_forget(&calls[i]);
        rig_end();
}

TEST(observers_that_read_late_are_all_told)
{
        Pb__LeaderRequest q = PB__LEADER_REQUEST__INIT;

        q.name = pb_bytes("e", 1);
        read_late("/v3electionpb.Election/Observe", &q.base);
}

TEST(watches_that_are_read_late_all_go_on)
{
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;

        create.key = pb_bytes("e/1", 3);
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        read_late("/etcdserverpb.Watch/Watch", &q.base);
}

#define CHANGES 30000

/* As when a snapshot of another replica brings what follows the entries that are lost. */
static void lose_entries(void)
{
        one_skips = true;
        for (unsigned i = 0; i < 3; i++)
                rig_turn();
        one_skips = false;
        core_replica_ops.skipped(rig.core);
}

/* The most changes that a turn compacts, until @call is over. */
static uint64_t most_compacted(struct rig_call *call)
{
        const struct kv *kv = &core_state(rig.core)->kv;
        uint64_t most = 0;

        for (unsigned i = 0; !call->over && i < 1000; i++) {
                size_t was = kv->history_to - kv->history_from;

                rig_turn();
                most = max_of(most, was - min_of(was, kv->history_to - kv->history_from));
        }
        CHECK(call->over);
        return most;
}

/* The entries with the first steps are lost with a snapshot; the second time, with the last
 * one, which the snapshot shows to have been applied. */
TEST(a_compaction_that_is_lost_continues_in_steps)
{
        Pb__CompactionRequest q = PB__COMPACTION_REQUEST__INIT;
        struct rig_call call;
        struct rig_conn *c;
        struct state *s;

        for (unsigned applied = 0; applied <= 1; applied++) {
                rig_begin();
                s = core_state(rig.core);
                c = rig_connect(0);
                for (unsigned i = 0; i < (applied ? 1000 : CHANGES); i++)
                        rig_put("k", 1);
                q.revision = s->revision;
                rig_ask(c, &call, "/etcdserverpb.KV/Compact", &q.base);
                lose_entries();
                if (applied)
                        rig_compact();
                CHECK(most_compacted(&call) <= 5000);
                CHECK_EQ(call.code, RPC_OK);
                CHECK_EQ(s->kv.compacted, q.revision);
                rig_forget(&call);
                rig_end();
        }
}

/* Sent together with the put whose revision it names, a compaction reaches the replica before
 * the put is applied. It was one command then, during which renewals waited. */
TEST(a_compaction_ahead_of_its_revision_goes_in_steps)
{
        Pb__CompactionRequest q = PB__COMPACTION_REQUEST__INIT;
        Pb__PutRequest p = PB__PUT_REQUEST__INIT;
        struct rig_call put, call;
        struct state *s;
        struct rig_conn *c;

        rig_begin();
        s = core_state(rig.core);
        for (unsigned i = 0; i < CHANGES; i++)
                rig_put("k", 1);
        c = rig_connect(0);
        c->takes = 16 << 20;
        p.key = pb_bytes("z", 1);
        q.revision = s->revision + 1;
        rig_ask(c, &put, "/etcdserverpb.KV/Put", &p.base);
        rig_ask(c, &call, "/etcdserverpb.KV/Compact", &q.base);
        CHECK(most_compacted(&call) <= 5000);
        CHECK(put.over && put.code == RPC_OK);
        CHECK_EQ(call.code, RPC_OK);
        CHECK_EQ(s->kv.compacted, q.revision);
        rig_forget(&put);
        rig_forget(&call);
        /* A revision that nobody has reached compacts nothing. */
        for (unsigned i = 0; i < 10; i++)
                rig_put("k", 1);
        q.revision = s->revision + 1;
        rig_ask(c, &call, "/etcdserverpb.KV/Compact", &q.base);
        CHECK_EQ(most_compacted(&call), 0);
        CHECK_EQ(call.code, RPC_OUT_OF_RANGE);
        CHECK(strstr(call.text, "is a future revision"));
        CHECK(s->kv.compacted < s->revision);
        rig_forget(&call);
        rig_end();
}

#define WAITING 20000

/* Of each of @n commands that wait for the cached range @serial, for @left more. */
static void wait_for(struct core_write *w, unsigned n, uint64_t serial, nsec_t left)
{
        struct cached_wait wait = {serial, lease_time_add(core_lease_time(rig.core), left)};

        for (unsigned i = 0; i < n; i++) {
                w[i].seq = i + 1;
                core_write_waits(rig.core, &w[i], &wait);
        }
}

static uint64_t cache_range(const char *name)
{
        struct state *s = core_state(rig.core);
        ProtobufCBinaryData key = pb_bytes(name, strlen(name)), none = {0};
        struct kv_span span = kv_span(&key, &none);
        struct cached_range *r;

        CHECK_EQ(cached_promise(&s->cached, &span, 1, s->time,
                                lease_time_add(s->time, 100 * NSEC_PER_SEC), &r),
                 0);
        return r->serial;
}

static unsigned n_waiting(void)
{
        struct core_write *w;
        unsigned n = 0;

        TAILQ_FOREACH (w, &rig.core->waiting, next_waiting)
                n++;
        return n;
}

/* 100,000 commands that waited for one of 256 cached ranges were looked at for 39 ms each time
 * that a cache term was given back. */
TEST(commands_that_wait_for_cache_terms_are_checked_in_slices)
{
        static struct core_write early[WAITING], late[WAITING], more;
        uint64_t a, b;
        struct core *c;

        rig_begin();
        c = rig.core;
        a = cache_range("a");
        b = cache_range("b");
        wait_for(early, WAITING, a, NSEC_PER_SEC);
        wait_for(late, WAITING, b, 9 * NSEC_PER_SEC);
        core_waiting_run(c);
        CHECK_EQ(n_waiting(), 2 * WAITING);

        /* Those that may go on do so in slices. One that comes meanwhile, and one that ends, do
         * not disturb that. */
        c->now = boot_add(c->now, NSEC_PER_SEC);
        for (unsigned i = 0; n_waiting() > WAITING; i++) {
                unsigned was = n_waiting();

                core_waiting_run(c);
                CHECK(was - n_waiting() <= 2000);
                CHECK(i < 100);
                CHECK(n_waiting() == WAITING || core_waiting_is_due(c));
                if (i == 1)
                        core_write_waits_no_more(c, c->waiting_check);
                if (i == 2)
                        wait_for(&more, 1, b, 9 * NSEC_PER_SEC);
        }

        /* And then nothing is due before the others are, unless a cache term is given back
         * while a check is under way: then another one follows. */
        for (unsigned i = 0; core_waiting_is_due(c); i++) {
                CHECK(i < 100);
                core_waiting_run(c);
        }
        CHECK_EQ(n_waiting(), WAITING);
        CHECK(boot_before(boot_add(c->now, 7 * NSEC_PER_SEC), c->waiting_at));
        c->state.cached.n_returned++;
        core_waiting_run(c);
        CHECK_EQ(n_waiting(), WAITING);
        cached_return(&c->state.cached, b, 1,
                      lease_time_add(c->state.time, 100 * NSEC_PER_SEC));
        for (unsigned i = 0; core_waiting_is_due(c); i++) {
                CHECK(i < 100);
                core_waiting_run(c);
        }
        CHECK_EQ(n_waiting(), 0);
        cached_fini(&c->state.cached);
        rig_end();
}

#define STREAMS 3000

static void never(struct core_read *rd, struct status st)
{
        (void) rd;
        (void) st;
        CHECK(false);
}

/* A replica that has just started does not know the current revision. Clients that come back to
 * it and ask for a watch from then on wait together: 8,000 took 28 ms in one turn. */
TEST(watches_that_wait_for_the_revision_begin_in_slices)
{
        static struct rig_call calls[STREAMS];
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;
        unsigned begun = 0, turns = 0;
        struct rig_conn *c;

        rig_begin();
        c = rig_connect(0);
        c->takes = 16 << 20;
        create.key = pb_bytes("w", 1);
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        for (unsigned i = 0; i < STREAMS; i++)
                rig_open(c, &calls[i], "/etcdserverpb.Watch/Watch", &q.base);
        rig.core->caught_up = false;
        rig.core->first.done = never; /* it does not ask by itself */
        for (unsigned i = 0; begun < STREAMS; i++) {
                unsigned was = begun;

                rig_turn();
                begun = 0;
                for (unsigned k = 0; k < STREAMS; k++)
                        begun += calls[k].messages;
                CHECK(begun - was <= 500);
                CHECK(i < 100);
                turns += begun > was;
        }
        CHECK_EQ(turns, STREAMS / 500);
        for (unsigned i = 0; i < STREAMS; i++) {
                CHECK_EQ(calls[i].messages, 1);
                rig_forget(&calls[i]);
        }
        rig_end();
}
