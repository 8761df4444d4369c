/* LeaseLeases of many leases, and LeaseTimeToLive of one with many keys, while they come and
 * go. */
#include "rig.h"

#define LEASES "/etcdserverpb.Lease/LeaseLeases"
#define N 50000
#define LAST ((int64_t) 1 << 40) /* leases with higher ids are granted meanwhile */

/* Past the log; in that slot, or the first that is free. */
static void add_lease(int64_t id, const uint32_t *slot)
{
        struct state *s = core_state(rig.core);
        nsec_t ttl = (nsec_t) rnd(1000, 100000) * NSEC_PER_SEC;
        char name[32];
        struct lease *l;

        snprintf(name, sizeof(name), "name of %" PRId64, id);
        CHECK_EQ(leases_add(&s->leases, id, ttl / NSEC_PER_MSEC, 1, name,
                            rnd(0, 1) ? strlen(name) : 0, slot, &l),
                 0);
        CHECK_EQ(deadlines_set(&s->deadlines, l->slot, lease_time_add(s->time, ttl)), 0);
}

/* Another one takes its slot. */
static void replace_lease(int64_t id, int64_t by)
{
        struct state *s = core_state(rig.core);
        struct lease *l = leases_find(&s->leases, id);
        uint32_t slot;

        if (!l)
                return;
        slot = l->slot;
        deadlines_clear(&s->deadlines, slot);
        leases_remove(&s->leases, l);
        add_lease(by, &slot);
}

static void fill(void)
{
        for (int64_t id = 1; id <= N; id++)
                add_lease(id, NULL);
}

/* Returns the highest id that is in it. */
static int64_t check_list(const struct rig_call *call, const bool *went, size_t n_least)
{
        cleanup_(pb_freep) Pb__LeaseLeasesResponse *p = NULL;
        static bool listed[N + 1];
        int64_t last = 0, highest = 0;

        CHECK_STR(call->text, "");
        CHECK_EQ(call->messages, 1);
        CHECK_EQ(pb_unpack(&pb__lease_leases_response__descriptor,
                           (struct view){buf_head(&call->message), buf_len(&call->message)},
                           &p),
                 0);
        CHECK(p->header && p->header->cluster_id != 0);
        CHECK(p->n_leases >= n_least);
        memset(listed, 0, sizeof(listed));
        for (size_t i = 0; i < p->n_leases; i++) {
                const Pb__LeaseStatus *st = p->leases[i];
                char name[32];

                snprintf(name, sizeof(name), "name of %" PRId64, st->id);
                CHECK(st->ttl_ms >= last && st->ttl_ms <= st->granted_ttl_ms);
                last = st->ttl_ms;
                CHECK(st->name.len == 0 ||
                      bytes_cmp(st->name.data, st->name.len, name, strlen(name)) == 0);
                highest = max_of(highest, st->id);
                if (st->id > LAST)
                        continue;
                CHECK(!listed[st->id]);
                listed[st->id] = true;
        }
        for (int64_t id = 1; id <= N; id++)
                CHECK(listed[id] || (went && went[id]));
        return highest;
}

/* Leases that exist all the time are listed, once each. */
TEST(many_leases_are_listed_in_slices)
{
        Pb__LeaseLeasesRequest q = PB__LEASE_LEASES_REQUEST__INIT;
        static bool went[N + 1];
        struct rig_call call;
        unsigned turns = 0;
        struct rig_conn *c;

        rig_begin();
        fill();
        memset(went, 0, sizeof(went));
        c = rig_connect(0);
        c->takes = 16 << 20;
        rig_ask(c, &call, LEASES, &q.base);
        for (; !call.over && turns < 5000; turns++) {
                rig_turn();
                for (unsigned i = 0; i < 100; i++) {
                        int64_t id = (int64_t) rnd(1, N);

                        replace_lease(id, LAST + 1 + (int64_t) turns * 100 + i);
                        went[id] = true;
                }
        }
        CHECK(call.over);
        /* One that came after five turns of the loop was still found. */
        CHECK(check_list(&call, went, N / 2) > LAST + 500);
        rig_forget(&call);
        rig_end();
}

/* A client that does not read gets one list made, not as many as it requests. */
TEST(lists_of_leases_that_nobody_reads_are_few)
{
        Pb__LeaseLeasesRequest q = PB__LEASE_LEASES_REQUEST__INIT;
        struct rig_call calls[200], other;
        struct rig_conn *c;

        rig_begin();
        fill();
        c = rig_connect(0);
        c->takes = 0;
        c->account->kept_max = 16 << 20;
        rig_ask(c, &calls[0], LEASES, &q.base);
        for (unsigned i = 0; i < 200; i++)
                rig_turn();
        CHECK(rig.account.kept > N * 20);
        for (size_t i = 1; i < ARRAY_SIZE(calls); i++)
                rig_ask(c, &calls[i], LEASES, &q.base);
        for (unsigned i = 0; i < 1000; i++)
                rig_turn();
        CHECK(rig.most_held + rig.account.kept < 20 << 20);
        /* Another one has his all the same. */
        rig_ask(rig_connect(1), &other, LEASES, &q.base);
        rig_wait(&other, 5000);
        check_list(&other, NULL, N);
        rig_forget(&other);
        c->takes = 16 << 20;
        for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
                rig_wait(&calls[i], 20000);
                if (calls[i].code == RPC_OK)
                        check_list(&calls[i], NULL, N);
                else
                        CHECK_EQ(calls[i].code, RPC_RESOURCE_EXHAUSTED);
                rig_forget(&calls[i]);
        }
        rig_end();
}

#define TTL "/etcdserverpb.Lease/LeaseTimeToLive"
#define KEYS 50000

/* On @l, or on none; past the log. */
static void hang(unsigned i, struct lease *l)
{
        struct state *s = core_state(rig.core);
        struct kv_key *k;
        char key[16];
        size_t n = (size_t) snprintf(key, sizeof(key), "key %07u", i);

        CHECK_EQ(kv_put(&s->kv, ++s->revision, 0, key, n, "v", 1, l ? l->id : 0, &k), 0);
        leases_attach(k, l);
}

/* Returns how many keys of even number were listed, each once and in order. */
static unsigned check_keys(const struct rig_call *call, struct lease *l)
{
        cleanup_(pb_freep) Pb__LeaseTimeToLiveResponse *p = NULL;
        unsigned even = 0;

        CHECK_STR(call->text, "");
        CHECK_EQ(call->messages, 1);
        CHECK_EQ(pb_unpack(&pb__lease_time_to_live_response__descriptor,
                           (struct view){buf_head(&call->message), buf_len(&call->message)},
                           &p),
                 0);
        CHECK(p->header && p->header->cluster_id != 0);
        CHECK_EQ(p->id, 7);
        CHECK_EQ(p->granted_ttl_ms, l->ttl_ms);
        CHECK(p->ttl_ms > 0 && p->ttl_ms <= l->ttl_ms);
        for (size_t i = 0; i < p->n_keys; i++) {
                CHECK_EQ(p->keys[i].len, 11);
                CHECK(i == 0 || memcmp(p->keys[i - 1].data, p->keys[i].data, 11) < 0);
                even += p->keys[i].data[10] % 2 == 0;
        }
        return even;
}

/* A client requests the keys of a lease with very many. */
static struct lease *ask_for_keys(struct rig_call *call)
{
        Pb__LeaseTimeToLiveRequest q = PB__LEASE_TIME_TO_LIVE_REQUEST__INIT;
        struct rig_conn *c;
        struct lease *l;

        rig_begin();
        add_lease(7, NULL);
        l = leases_find(&core_state(rig.core)->leases, 7);
        for (unsigned i = 0; i < KEYS; i++)
                hang(i, l);
        c = rig_connect(0);
        c->takes = 16 << 20;
        q.id = 7;
        q.keys = true;
        rig_ask(c, call, TTL, &q.base);
        return l;
}

/* 100,000 keys of a lease were encoded in one turn, of 11 ms and more. */
TEST(the_keys_of_a_lease_are_listed_in_slices)
{
        struct rig_call call;
        unsigned turns = 0;
        struct lease *l = ask_for_keys(&call);

        for (; !call.over && turns < 5000; turns++) {
                rig_turn();
                /* Odd ones come and go. */
                for (unsigned i = 0; i < 20; i++)
                        hang((unsigned) rnd(0, KEYS / 2 - 1) * 2 + 1, rnd(0, 1) ? l : NULL);
        }
        CHECK(call.over);
        CHECK(turns >= KEYS / 5000);
        CHECK_EQ(check_keys(&call, l), KEYS / 2);
        rig_forget(&call);
        rig_end();
}

/* A lease that goes meanwhile has gone, and another one with its id is another one. */
TEST(a_lease_may_end_while_its_keys_are_listed)
{
        for (int again = 0; again < 2; again++) {
                cleanup_(pb_freep) Pb__LeaseTimeToLiveResponse *p = NULL;
                struct rig_call call;
                struct lease *l = ask_for_keys(&call);

                for (unsigned i = 0; i < 5; i++)
                        rig_turn();
                CHECK(!call.over);
                for (unsigned i = 0; i < KEYS; i++)
                        hang(i, NULL);
                deadlines_clear(&core_state(rig.core)->deadlines, l->slot);
                leases_remove(&core_state(rig.core)->leases, l);
                if (again) {
                        add_lease(7, NULL);
                        l = leases_find(&core_state(rig.core)->leases, 7);
                        l->born = 2;
                        hang(3, l);
                }
                rig_wait(&call, 1000);
                CHECK_STR(call.text, "");
                CHECK_EQ(pb_unpack(
                                 &pb__lease_time_to_live_response__descriptor,
                                 (struct view){buf_head(&call.message), buf_len(&call.message)},
                                 &p),
                         0);
                CHECK_EQ(p->n_keys, again);
                CHECK(again ? p->ttl_ms > 0 : p->ttl == -1);
                rig_forget(&call);
                rig_end();
        }
}
