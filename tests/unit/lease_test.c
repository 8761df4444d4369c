#include "../whole.h"
#include "state/internal.h"
#include "test.h"

#define T0 ((struct lease_time){100 * NSEC_PER_SEC})
#define MS NSEC_PER_MSEC

static uint64_t next_index;

static void begin(struct state *s)
{
        state_init(s);
        next_index = 1;
}

/* Applies one command at @now; returns the outcome, and the response's bytes in @out where it
 * is given. */
static enum state_outcome apply(struct state *s, enum cmd_type type, const ProtobufCMessage *m,
                                struct lease_time now, struct buf *out)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct state_reply reply = {.out = out};
        struct cmd c = {.type = type};

        pb_append(&body, m);
        c.body = (struct view){body.data, buf_len(&body)};
        pb__response_header__init(&reply.header);
        state_begin(s, next_index++, now);
        CHECK_EQ(state_apply(s, &c, &reply), 0);
        return reply.outcome;
}

static enum state_outcome put(struct state *s, const char *key, const char *value,
                              int64_t lease)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;

        q.key = pb_bytes(key, strlen(key));
        q.value = pb_bytes(value, strlen(value));
        q.lease = lease;
        return apply(s, CMD_PUT, &q.base, T0, NULL);
}

static enum state_outcome grant(struct state *s, int64_t id, int64_t ttl_ms,
                                struct lease_time now)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;

        q.id = id;
        q.ttl_ms = ttl_ms;
        return apply(s, CMD_GRANT, &q.base, now, NULL);
}

static void renew_as(struct state *s, enum cmd_type type, int64_t id, uint64_t as_of,
                     struct lease_time now, unsigned ms)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct state_reply reply = {0};
        struct cmd_slots slots;
        struct cmd c = {.type = type};

        cmd_renew_begin(&body, &slots, as_of);
        cmd_renew_add(&body, &slots, leases_find(&s->leases, id)->slot, ms);
        c.body = (struct view){body.data, buf_len(&body)};
        state_begin(s, next_index++, now);
        CHECK_EQ(state_apply(s, &c, &reply), 0);
}

static void renew(struct state *s, int64_t id, uint64_t as_of, struct lease_time now)
{
        renew_as(s, CMD_RENEW, id, as_of, now, 0);
}

static void expire(struct state *s, const struct buf *body)
{
        struct state_reply reply = {0};
        struct cmd c = {.type = CMD_EXPIRE, .body = {body->data, buf_len(body)}};

        state_begin(s, next_index++, T0);
        CHECK_EQ(state_apply(s, &c, &reply), 0);
}

static const struct kv_version *get(const struct state *s, const char *key, int64_t revision)
{
        struct kv_key *k = kv_find(&s->kv, key, strlen(key));

        return k ? kv_at(k, revision) : NULL;
}

TEST(revisions_and_versions_count_as_etcd_counts)
{
        struct state s;

        begin(&s);
        CHECK_EQ(s.revision, 1);
        CHECK_EQ(put(&s, "a", "1", 0), STATE_OK);
        CHECK_EQ(put(&s, "a", "2", 0), STATE_OK);
        CHECK_EQ(s.revision, 3);
        CHECK_EQ(get(&s, "a", 0)->version, 2);
        CHECK_EQ(get(&s, "a", 0)->create_revision, 2);
        CHECK_EQ(get(&s, "a", 2)->value[0], '1');
        CHECK(!get(&s, "a", 1));
        state_fini(&s);
}

TEST(a_put_on_a_lease_that_is_not_there_changes_nothing)
{
        struct state s;

        begin(&s);
        CHECK_EQ(put(&s, "a", "1", 77), STATE_E_LEASE_NOT_FOUND);
        CHECK_EQ(s.revision, 1);
        CHECK_EQ(put(&s, "", "1", 0), STATE_E_KEY_MISSING);
        state_fini(&s);
}

/* I1, A1: an expiry that was proposed before a renewal is a no-op for that lease, and only for
 * that one. */
TEST(a_renewal_beats_an_expiry_proposed_before_it)
{
        struct lease_time late = lease_time_add(T0, 2000 * MS);
        cleanup_(buf_fini) struct buf body = {0};
        struct state s;

        begin(&s);
        CHECK_EQ(grant(&s, 1, 1000, T0), STATE_OK);
        CHECK_EQ(grant(&s, 2, 1000, T0), STATE_OK);
        CHECK_EQ(state_expire(&s, late, lease_time_add(late, MS), 10, &body), 2);
        renew(&s, 1, s.applied, late);
        expire(&s, &body);
        CHECK(leases_find(&s.leases, 1));
        CHECK(!leases_find(&s.leases, 2));
        CHECK_EQ(deadlines_get(&s.deadlines, 0).ns, lease_time_add(late, 1000 * MS).ns);
        state_fini(&s);
}

/* I3: a term begins when the renewal came, not when its batch went; and one that waited long
 * does not shorten what a quicker one has given. */
TEST(a_renewal_counts_from_when_it_came)
{
        struct lease_time t1 = lease_time_add(T0, 500 * MS), t2 = lease_time_add(T0, 510 * MS);
        struct state s;

        begin(&s);
        CHECK_EQ(grant(&s, 1, 1000, T0), STATE_OK);
        renew_as(&s, CMD_RENEW, 1, s.applied, t1, 20);
        CHECK_EQ(deadlines_get(&s.deadlines, 0).ns, lease_time_add(t1, 980 * MS).ns);
        renew_as(&s, CMD_RENEW, 1, s.applied, t2, 50);
        CHECK_EQ(deadlines_get(&s.deadlines, 0).ns, lease_time_add(t1, 980 * MS).ns);
        renew_as(&s, CMD_RENEW_AHEAD, 1, s.applied, t2, 50);
        CHECK_EQ(deadlines_get(&s.deadlines, 0).ns, lease_time_add(t2, 1050 * MS).ns);
        renew_as(&s, CMD_RENEW, 1, s.applied, t2, 0);
        CHECK_EQ(deadlines_get(&s.deadlines, 0).ns, lease_time_add(t2, 1050 * MS).ns);
        state_fini(&s);
}

/* A10: an expiry that did not come through is due again. */
TEST(expiry_is_level_triggered)
{
        struct lease_time late = lease_time_add(T0, 2000 * MS),
                          again = lease_time_add(late, 100 * MS);
        cleanup_(buf_fini) struct buf body = {0};
        struct state s;

        begin(&s);
        CHECK_EQ(grant(&s, 1, 1000, T0), STATE_OK);
        CHECK_EQ(state_expire(&s, late, again, 10, &body), 1);
        buf_clear(&body);
        CHECK_EQ(state_expire(&s, late, again, 10, &body), 0);
        CHECK_EQ(state_expire(&s, again, lease_time_add(again, MS), 10, &body), 1);
        state_fini(&s);
}

/* A11, A12: there is no rate at which leases expire: thousands in one entry, each with its keys
 * at a revision of its own. */
TEST(thousands_expire_in_one_entry)
{
        struct lease_time late = lease_time_add(T0, 2000 * MS);
        cleanup_(buf_fini) struct buf body = {0};
        struct state s;

        begin(&s);
        for (int64_t i = 1; i <= 5000; i++) {
                char key[16];

                CHECK_EQ(grant(&s, i, 1000, T0), STATE_OK);
                snprintf(key, sizeof(key), "k%04d", (int) i);
                CHECK_EQ(put(&s, key, "v", i), STATE_OK);
        }
        CHECK_EQ(state_expire(&s, late, lease_time_add(late, MS), 8192, &body), 5000);
        CHECK(buf_len(&body) < 5000 * 4);
        expire(&s, &body);
        CHECK_EQ(s.leases.n, 0);
        CHECK_EQ(s.kv.n_keys, 0);
        CHECK_EQ(s.revision, 1 + 5000 + 5000);
        state_fini(&s);
}

/* I7: a slot that went to another lease meanwhile is not renewed by a batch that meant the
 * first one. A23. */
TEST(a_renewal_of_a_slot_that_changed_hands_is_skipped)
{
        Pb__LeaseRevokeRequest revoke = PB__LEASE_REVOKE_REQUEST__INIT;
        struct lease_time later = lease_time_add(T0, 500 * MS);
        uint64_t as_of;
        struct state s;

        begin(&s);
        CHECK_EQ(grant(&s, 1, 1000, T0), STATE_OK);
        as_of = s.applied;
        revoke.id = 1;
        CHECK_EQ(apply(&s, CMD_REVOKE, &revoke.base, T0, NULL), STATE_OK);
        CHECK_EQ(grant(&s, 2, 1000, T0), STATE_OK);
        CHECK_EQ(leases_find(&s.leases, 2)->slot, 0);
        renew(&s, 2, as_of, later);
        CHECK_EQ(deadlines_get(&s.deadlines, 0).ns, lease_time_add(T0, 1000 * MS).ns);
        state_fini(&s);
}

/* A lease's keys go in one revision, in their order; a key put elsewhere meanwhile stays. */
TEST(a_lease_takes_its_keys_along)
{
        Pb__LeaseRevokeRequest revoke = PB__LEASE_REVOKE_REQUEST__INIT;
        int64_t before;
        struct state s;

        begin(&s);
        CHECK_EQ(grant(&s, 1, 1000, T0), STATE_OK);
        CHECK_EQ(grant(&s, 2, 1000, T0), STATE_OK);
        CHECK_EQ(put(&s, "b", "", 1), STATE_OK);
        CHECK_EQ(put(&s, "a", "", 1), STATE_OK);
        CHECK_EQ(put(&s, "c", "", 1), STATE_OK);
        CHECK_EQ(put(&s, "c", "", 2), STATE_OK);
        before = s.revision;
        revoke.id = 1;
        CHECK_EQ(apply(&s, CMD_REVOKE, &revoke.base, T0, NULL), STATE_OK);
        CHECK_EQ(s.revision, before + 1);
        CHECK(!get(&s, "a", 0) && !get(&s, "b", 0) && get(&s, "c", 0));
        CHECK_EQ(kv_history_at(&s.kv, s.kv.history_to - 2)->key->bytes[0], 'a');
        CHECK_EQ(kv_history_at(&s.kv, s.kv.history_to - 1)->key->bytes[0], 'b');
        CHECK_EQ(apply(&s, CMD_REVOKE, &revoke.base, T0, NULL), STATE_E_LEASE_NOT_FOUND);
        state_fini(&s);
}

TEST(names_of_leases_are_unique_while_they_live)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__LeaseRevokeRequest revoke = PB__LEASE_REVOKE_REQUEST__INIT;
        struct state s;

        begin(&s);
        q.id = 1;
        q.ttl = 5;
        q.name = pb_bytes("web", 3);
        CHECK_EQ(apply(&s, CMD_GRANT, &q.base, T0, NULL), STATE_OK);
        q.id = 2;
        CHECK_EQ(apply(&s, CMD_GRANT, &q.base, T0, NULL), STATE_E_LEASE_NAME_USED);
        revoke.id = 1;
        CHECK_EQ(apply(&s, CMD_REVOKE, &revoke.base, T0, NULL), STATE_OK);
        CHECK_EQ(apply(&s, CMD_GRANT, &q.base, T0, NULL), STATE_OK);
        state_fini(&s);
}

/* A21, A27, A30: a negative id and a TTL that overflows are refused; milliseconds are kept. */
TEST(odd_grants_are_refused)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;
        struct state s;

        begin(&s);
        q.id = -5;
        q.ttl = 5;
        CHECK_EQ(apply(&s, CMD_GRANT, &q.base, T0, NULL), STATE_E_MALFORMED);
        q.id = 6;
        q.ttl = INT64_MAX;
        CHECK_EQ(apply(&s, CMD_GRANT, &q.base, T0, NULL), STATE_E_TTL_TOO_LARGE);
        q.ttl_ms = 1234;
        q.ttl = 0;
        CHECK_EQ(apply(&s, CMD_GRANT, &q.base, T0, NULL), STATE_OK);
        CHECK_EQ(leases_find(&s.leases, 6)->ttl_ms, 1234);
        state_fini(&s);
}

/* A40: what a compaction keeps at its own revision, and what is gone below it. */
TEST(compaction_keeps_its_own_revision)
{
        Pb__CompactionRequest q = PB__COMPACTION_REQUEST__INIT;
        Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;
        struct state s;

        begin(&s);
        CHECK_EQ(put(&s, "a", "1", 0), STATE_OK); /* 2 */
        CHECK_EQ(put(&s, "a", "2", 0), STATE_OK); /* 3 */
        CHECK_EQ(put(&s, "b", "1", 0), STATE_OK); /* 4 */
        del.key = pb_bytes("a", 1);
        CHECK_EQ(apply(&s, CMD_DELETE_RANGE, &del.base, T0, NULL), STATE_OK); /* 5 */
        q.revision = 5;
        CHECK_EQ(apply(&s, CMD_COMPACT, &q.base, T0, NULL), STATE_OK);
        CHECK_EQ(kv_history_seek(&s.kv, 5), s.kv.history_from);
        CHECK_EQ(kv_history_at(&s.kv, s.kv.history_from)->version, 0);
        CHECK(get(&s, "b", 0));
        CHECK_EQ(apply(&s, CMD_COMPACT, &q.base, T0, NULL), STATE_E_COMPACTED);
        CHECK_EQ(put(&s, "c", "1", 0), STATE_OK);
        q.revision = 6;
        CHECK_EQ(apply(&s, CMD_COMPACT, &q.base, T0, NULL), STATE_OK);
        CHECK(!kv_find(&s.kv, "a", 1));
        q.revision = 7;
        CHECK_EQ(apply(&s, CMD_COMPACT, &q.base, T0, NULL), STATE_E_FUTURE);
        state_fini(&s);
}

/* A txn may put a key and delete it: both events outlive a compaction at their revision (A40).
 */
TEST(compaction_keeps_all_of_its_own_revision)
{
        struct kv_key *k;
        struct kv kv;

        kv_init(&kv);
        CHECK_EQ(kv_put(&kv, 4, 0, "a", 1, "old", 3, 0, &k), 0);
        CHECK_EQ(kv_put(&kv, 5, 0, "a", 1, "new", 3, 0, &k), 0);
        CHECK_EQ(kv_delete(&kv, 5, 1, k), 0);
        kv_compact(&kv, 5);
        CHECK_EQ(kv.history_to - kv_history_seek(&kv, 5), 2);
        CHECK_EQ(kv_history_at(&kv, kv_history_seek(&kv, 5))->value_len, 3);
        CHECK(!kv_at(k, 5));
        kv_compact(&kv, 6);
        CHECK(!kv_find(&kv, "a", 1));
        kv_fini(&kv);
}

/* Something at random; where it would compact, it does so @in_10 times of ten. */
static void change(struct state *s, unsigned in_10)
{
        char key[8];

        snprintf(key, sizeof(key), "k%d", (int) rnd(0, 20));
        switch (rnd(0, 5)) {
        case 0:
                (void) grant(s, (int64_t) rnd(1, 20), (int64_t) rnd(1000, 9000), T0);
                break;
        case 1: {
                Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;

                q.id = (int64_t) rnd(1, 20);
                (void) apply(s, CMD_REVOKE, &q.base, T0, NULL);
                break;
        }
        case 2: {
                Pb__DeleteRangeRequest q = PB__DELETE_RANGE_REQUEST__INIT;

                q.key = pb_bytes(key, strlen(key));
                (void) apply(s, CMD_DELETE_RANGE, &q.base, T0, NULL);
                break;
        }
        case 3:
                if (rnd(0, 9) < in_10 && s->revision > 3) {
                        Pb__CompactionRequest q = PB__COMPACTION_REQUEST__INIT;

                        q.revision = (int64_t) rnd(1, (uint64_t) s->revision);
                        (void) apply(s, CMD_COMPACT, &q.base, T0, NULL);
                }
                break;
        default:
                (void) put(s, key, "value", rnd(0, 1) ? (int64_t) rnd(1, 20) : 0);
        }
}

/* Whatever happened, a snapshot gives the same state back (I4), and deadlines that are not
 * earlier (I1). */
TEST(a_snapshot_is_the_state)
{
        struct state s, back;
        cleanup_(buf_fini) struct buf b = {0};

        begin(&s);
        for (int i = 0; i < 300; i++)
                change(&s, 1);
        CHECK_EQ(state_set_member(&s, 7, "core1", "http://a:1,http://b:2"), 0);
        state_save(&s, &b);
        CHECK_EQ(state_load(&back, (struct view){b.data, buf_len(&b)}), 0);
        CHECK(state_hash(&back) == state_hash(&s));
        CHECK_EQ(back.kv.n_keys, s.kv.n_keys);
        for (uint32_t i = 0; i < s.leases.n_slots; i++)
                CHECK_EQ(deadlines_get(&back.deadlines, i).ns,
                         deadlines_get(&s.deadlines, i).ns);
        state_fini(&back);
        state_fini(&s);
}

/* In steps, a compaction ends where it would in one, and no step is a large one. */
TEST(a_long_history_is_compacted_in_steps)
{
        Pb__CompactionRequest q = PB__COMPACTION_REQUEST__INIT;
        unsigned steps = 0;
        struct state s;

        begin(&s);
        for (int i = 0; i < 200000; i++)
                CHECK_EQ(put(&s, i % 3 ? "a" : "b", "v", 0), STATE_OK);
        while (s.kv.compacted < s.revision - 10) {
                size_t was = s.kv.history_to - s.kv.history_from;

                q.revision = kv_compact_step(&s.kv, s.revision - 10);
                CHECK(q.revision > s.kv.compacted && q.revision <= s.revision - 10);
                CHECK_EQ(apply(&s, CMD_COMPACT, &q.base, T0, NULL), STATE_OK);
                CHECK(was - (s.kv.history_to - s.kv.history_from) <= 2048);
                steps++;
        }
        CHECK_EQ(s.kv.compacted, s.revision - 10);
        CHECK_EQ(steps, 98);
        CHECK_EQ(s.kv.history_to - s.kv.history_from, 11);
        CHECK(s.kv.n_history_blocks <= 2); /* they were 25 */
        for (int i = 0; i < 20; i++)
                CHECK_EQ(put(&s, "a", "v", 0), STATE_OK);
        CHECK_EQ(s.kv.history_to - s.kv.history_from, 31);
        for (size_t i = s.kv.history_from + 1; i < s.kv.history_to; i++)
                CHECK_EQ(kv_history_at(&s.kv, i)->mod_revision,
                         kv_history_at(&s.kv, i - 1)->mod_revision + 1);
        state_fini(&s);
}

/* The memory of many leases is given back when they have ended, in any order. Those of the
 * lowest slots stay. */
TEST(leases_that_have_ended_leave_no_memory_behind)
{
        enum { N = 100000, LOW = 100 };
        static int64_t id[N];
        struct state s;

        begin(&s);
        for (int64_t i = 0; i < N; i++) {
                id[i] = 1 + i;
                CHECK_EQ(grant(&s, id[i], 10000, T0), STATE_OK);
        }
        for (size_t i = N - 1; i > LOW; i--) { /* shuffled (Knuth, volume 2, 3.4.2) */
                size_t k = LOW + rnd(0, (unsigned) (i - LOW));
                int64_t was = id[i];

                id[i] = id[k];
                id[k] = was;
        }
        for (size_t i = LOW; i < N; i++) {
                Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;

                q.id = id[i];
                CHECK_EQ(apply(&s, CMD_REVOKE, &q.base, T0, NULL), STATE_OK);
        }
        CHECK_EQ(s.leases.n, LOW);
        CHECK(s.leases.slots_cap <= ARRAY_SMALL);
        CHECK(s.deadlines.slots_cap <= ARRAY_SMALL);
        CHECK(s.deadlines.heap_cap <= ARRAY_SMALL);
        for (unsigned i = 0; i < LOW; i++) {
                CHECK_EQ(leases_at(&s.leases, i)->id, 1 + i);
                CHECK_EQ(deadlines_get(&s.deadlines, i).ns, T0.ns + 10000 * MS);
        }
        for (int64_t i = 0; i < 3000; i++)
                CHECK_EQ(grant(&s, N + 1 + i, 10000, T0), STATE_OK);
        CHECK_EQ(leases_find(&s.leases, N + 3000)->slot, LOW + 2999);
        state_fini(&s);
}

/* They are found soonest first and listed slot by slot: as many as may be due at once took 12
 * ms to put in order when that was as their square. (So many here would take seconds.) */
TEST(leases_that_end_together_are_reported_in_slot_order)
{
        enum { N = 100000 };
        struct lease_time late = lease_time_add(T0, N * 1000 * MS);
        cleanup_(buf_fini) struct buf body = {0};
        struct cmd_slots slots = {0};
        uint64_t renewed;
        uint32_t slot, want = 0;
        struct state s;
        struct view v;

        begin(&s);
        for (int64_t i = 0; i < N; i++)
                CHECK_EQ(grant(&s, 1 + i, 1000 + N - i, T0), STATE_OK);
        CHECK_EQ(state_expire(&s, late, lease_time_add(late, MS), N, &body), N);
        v = (struct view){buf_head(&body), buf_len(&body)};
        for (; cmd_expire_next(&v, &slots, &slot, &renewed) == 0; want++) {
                CHECK_EQ(slot, want);
                CHECK_EQ(renewed, leases_at(&s.leases, slot)->renewed);
        }
        CHECK_EQ(want, N);
        state_fini(&s);
}

/* Encoded bit by bit under changes, it is the state as it was at the start, also when it is
 * compacted meanwhile. */
TEST(a_snapshot_in_parts_is_one_moment)
{
        struct state_saver sv = {0};
        unsigned compacted = 0;
        struct state s;

        begin(&s);
        for (int round = 0; round < 40; round++) {
                cleanup_(buf_fini) struct buf then = {0};
                int r;

                for (int i = 0; i < 100; i++)
                        change(&s, 1);
                state_save(&s, &then);
                state_save_start(&sv, &s);
                while ((r = state_save_more(&sv, rnd(1, 200))) > 0)
                        for (uint64_t i = rnd(0, 3); i > 0; i--)
                                change(&s, round % 2 ? 1 : 0);
                compacted += sv.keys.from != s.kv.compacted;
                CHECK_EQ(r, 0);
                CHECK_EQ(bytes_cmp(buf_head(&sv.out), buf_len(&sv.out), buf_head(&then),
                                   buf_len(&then)),
                         0);
        }
        CHECK(compacted > 0);
        state_saver_fini(&sv);
        state_fini(&s);
}

TEST(a_txn_is_all_or_nothing)
{
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;
        Pb__RequestOp op[2] = {PB__REQUEST_OP__INIT, PB__REQUEST_OP__INIT},
                      *ops[] = {&op[0], &op[1]};
        Pb__PutRequest good = PB__PUT_REQUEST__INIT, bad = PB__PUT_REQUEST__INIT;
        cleanup_(buf_fini) struct buf out = {0};
        Pb__TxnResponse *p;
        struct state s;

        begin(&s);
        good.key = pb_bytes("a", 1);
        bad.key = pb_bytes("b", 1);
        bad.lease = 99;
        op[0].request_case = op[1].request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op[0].request_put = &good;
        op[1].request_put = &bad;
        q.success = ops;
        q.n_success = 2;
        CHECK_EQ(apply(&s, CMD_TXN, &q.base, T0, NULL), STATE_E_LEASE_NOT_FOUND);
        CHECK(!get(&s, "a", 0) && s.revision == 1);
        bad.lease = 0;
        CHECK_EQ(apply(&s, CMD_TXN, &q.base, T0, &out), STATE_OK);
        CHECK_EQ(get(&s, "a", 0)->mod_revision, get(&s, "b", 0)->mod_revision);
        p = pb__txn_response__unpack(NULL, buf_len(&out), out.data);
        CHECK(p && p->succeeded && p->n_responses == 2 &&
              p->responses[0]->response_put->header->revision == 2);
        pb_free(p);
        bad.key = pb_bytes("a", 1);
        CHECK_EQ(apply(&s, CMD_TXN, &q.base, T0, NULL), STATE_E_TXN_DUPLICATE);
        state_fini(&s);
}

/* Those that were renewed behind the soonest one all came up when that was renewed, too: a
 * million held the loop for 320 ms. Until all are right nothing is late, and nothing early. */
TEST(renewed_deadlines_are_put_right_bit_by_bit)
{
        enum { N = 20000 };
        struct lease_time soon = lease_time_add(T0, 1000 * MS),
                          late = lease_time_add(T0, 9000 * MS), next;
        struct deadlines d;
        size_t looks, calls = 0;
        uint32_t slot;

        deadlines_init(&d);
        for (uint32_t i = 0; i <= N; i++)
                CHECK_EQ(deadlines_set(&d, i, lease_time_add(T0, 100 * MS + i)), 0);
        for (uint32_t i = N - 1; i > 0; i--)
                CHECK_EQ(deadlines_set(&d, i, late), 0);
        CHECK_EQ(deadlines_set(&d, N, soon), 0);
        CHECK_EQ(deadlines_next(&d).ns, lease_time_add(T0, 100 * MS).ns);
        CHECK_EQ(deadlines_set(&d, 0, late), 0);
        for (; (next = deadlines_next(&d)).ns != soon.ns; calls++) {
                CHECK(lease_time_before(next, soon));
                looks = 10;
                CHECK(!deadlines_pop(&d, soon, late, &looks, &slot));
                CHECK_EQ(looks, 0);
        }
        CHECK_EQ(calls, (N - 1) / (DEADLINES_LOOKS + 10));
        looks = 10;
        CHECK(!deadlines_pop(&d, lease_time_add(soon, -1), late, &looks, &slot));
        CHECK(deadlines_pop(&d, soon, late, &looks, &slot));
        CHECK_EQ(slot, N);
        deadlines_fini(&d);
}

/* Whatever the order of arrival and of renewals, each lease is due exactly at its own end. */
TEST(deadlines_come_in_order)
{
        struct deadlines d;
        struct lease_time end[200], now = T0;
        bool gone[200] = {false};
        size_t n = 0, looks = SIZE_MAX;
        uint32_t slot;

        deadlines_init(&d);
        for (uint32_t i = 0; i < 200; i++) {
                end[i] = lease_time_add(T0, (nsec_t) rnd(1, 5000) * MS);
                CHECK_EQ(deadlines_set(&d, i, end[i]), 0);
        }
        for (int i = 0; i < 300; i++) { /* renewals move ends later */
                uint32_t k = (uint32_t) rnd(0, 199);

                end[k] = lease_time_add(end[k], (nsec_t) rnd(0, 3000) * MS);
                CHECK_EQ(deadlines_set(&d, k, end[k]), 0);
        }
        while (n < 200) {
                struct lease_time next = deadlines_next(&d);

                CHECK(!lease_time_before(next, now));
                now = next;
                CHECK(deadlines_pop(&d, now, LEASE_TIME_NEVER, &looks, &slot));
                CHECK(!gone[slot]);
                CHECK_EQ(end[slot].ns, now.ns);
                gone[slot] = true;
                deadlines_clear(&d, slot);
                n++;
        }
        CHECK_EQ(deadlines_next(&d).ns, LEASE_TIME_NEVER.ns);
        deadlines_fini(&d);
}
