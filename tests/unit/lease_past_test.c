/* The leases of a snapshot are of one moment, though they are looked at in slices and change
 * meanwhile. */
#include "../whole.h"
#include "state/slots.h"
#include "test.h"

#define T0 ((struct lease_time){100 * NSEC_PER_SEC})

static uint64_t next_index;

static void apply(struct state *s, enum cmd_type type, const struct buf *body)
{
        struct lease_time now = lease_time_add(T0, (nsec_t) next_index * NSEC_PER_MSEC);
        struct cmd c = {.type = type, .body = {buf_head(body), buf_len(body)}};
        struct state_reply reply = {0};

        state_begin(s, ++next_index, now);
        CHECK_EQ(state_apply(s, &c, &reply), 0);
        CHECK_EQ(reply.outcome, STATE_OK);
}

static void grant(struct state *s, int64_t id)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;
        cleanup_(buf_fini) struct buf body = {0};
        struct view owner = {(const uint8_t *) "owner", 5};
        char name[24];

        q.id = id;
        q.ttl_ms = 1000 + id;
        if (id % 3 == 0)
                q.name = pb_bytes(name, (size_t) snprintf(name, sizeof(name), "n%" PRId64, id));
        pb_append(&body, &q.base);
        apply(s, CMD_GRANT, &body);
        if (id % 4 == 0)
                CHECK_EQ(leases_set_owner(&s->leases, leases_find(&s->leases, id), owner), 0);
}

static void grant_many(struct state *s, int64_t n)
{
        state_init(s);
        next_index = 0;
        for (int64_t id = 1; id <= n; id++)
                grant(s, id);
}

static void revoke(struct state *s, int64_t id)
{
        Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;
        cleanup_(buf_fini) struct buf body = {0};

        q.id = id;
        pb_append(&body, &q.base);
        apply(s, CMD_REVOKE, &body);
}

static void renew(struct state *s, uint32_t from, uint32_t to)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct cmd_slots slots;

        cmd_renew_begin(&body, &slots, s->applied);
        for (; from <= to; from++)
                cmd_renew_add(&body, &slots, from, 0);
        apply(s, CMD_RENEW, &body);
}

static void expire(struct state *s, const struct lease *l)
{
        cleanup_(buf_fini) struct buf body = {0};
        struct cmd_slots slots = {0};

        cmd_expire_add(&body, &slots, l->slot, l->renewed);
        apply(s, CMD_EXPIRE, &body);
}

#define LEASES 200

/* Any of what happens to leases. */
static void change(struct state *s)
{
        uint32_t slot = (uint32_t) rnd(0, LEASES);
        struct lease *l = leases_at(&s->leases, slot);

        if (!l)
                grant(s, 1000 + (int64_t) next_index);
        else if (rnd(0, 9) > 0)
                renew(s, slot, slot + (uint32_t) rnd(0, 20));
        else if (rnd(0, 1))
                revoke(s, l->id);
        else
                expire(s, l);
}

static bool is_as(const struct buf *got, const struct buf *want)
{
        return bytes_cmp(buf_head(got), buf_len(got), buf_head(want), buf_len(want)) == 0;
}

/* What is produced in one call is bounded, however many leases there are: a million took 70 to
 * 110 ms in one turn of the loop. All of them change while they are saved. */
TEST(leases_are_saved_in_slices)
{
        enum { N = 50000, SLICE = 4096, ONE = 128 };
        cleanup_(buf_fini) struct buf want = {0};
        struct state_saver sv = {0};
        size_t had;
        uint32_t n = 0;
        struct state s;
        int r;

        grant_many(&s, N);
        for (int counted = 0; counted < 2; counted++) {
                buf_clear(&want);
                state_save(&s, &want);
                state_save_start(&sv, &s);
                CHECK(buf_len(&sv.out) <= ONE);
                do {
                        had = buf_len(&sv.out);
                        r = counted ? state_save_count(&sv, SLICE)
                                    : state_save_more(&sv, SLICE);
                        CHECK(buf_len(&sv.out) - had <= SLICE + ONE || r == 0);
                        renew(&s, n % N, n % N + 999);
                        n += 1000;
                } while (r == 1);
                CHECK_EQ(r, 0);
                CHECK(n > N);
                if (counted) {
                        CHECK_EQ(sv.size, buf_len(&want));
                        CHECK_EQ(state_save_more(&sv, SIZE_MAX), 0);
                }
                CHECK(is_as(&sv.out, &want));
        }
        state_saver_fini(&sv);
        state_fini(&s);
}

#define SAVERS 4

struct saved {
        struct state_saver saver;
        struct buf want;
        bool counted;
};

static void save_begin(struct saved *v, struct state *s)
{
        state_saver_fini(&v->saver);
        buf_clear(&v->want);
        state_save(s, &v->want);
        state_save_start(&v->saver, s);
        v->counted = rnd(0, 1);
}

/* Several at a time, of several moments; some are given up. */
TEST(saved_leases_are_of_one_moment)
{
        struct saved savers[SAVERS] = {0};
        unsigned whole = 0;
        struct state s;

        grant_many(&s, LEASES);
        for (int i = 0; i < SAVERS; i++)
                save_begin(&savers[i], &s);
        for (int round = 0; round < 20000; round++) {
                struct saved *v = &savers[rnd(0, SAVERS - 1)];
                int r;

                if (v->counted) {
                        r = state_save_more(&v->saver, rnd(1, 400));
                        CHECK(r >= 0);
                        if (r == 0) {
                                CHECK(is_as(&v->saver.out, &v->want));
                                whole++;
                        }
                        if (r == 0 || rnd(0, 999) == 0)
                                save_begin(v, &s);
                } else {
                        r = state_save_count(&v->saver, rnd(1, 400));
                        CHECK(r >= 0);
                        v->counted = r == 0;
                        CHECK(r > 0 || v->saver.size == buf_len(&v->want));
                }
                for (uint64_t n = rnd(0, 2); n > 0; n--)
                        change(&s);
        }
        CHECK(whole > 100);
        for (int i = 0; i < SAVERS; i++) {
                state_saver_fini(&savers[i].saver);
                buf_fini(&savers[i].want);
        }
        for (int i = 0; i < 2 * SAVERS * LEASES && s.leases.kept_bytes > 0; i++)
                change(&s);
        CHECK_EQ(s.leases.kept_bytes, 0);
        state_fini(&s);
}

/* The arrays of slots become shorter while a reader has still to read their last ones. */
TEST(leases_that_end_while_they_are_saved_are_saved)
{
        enum { N = 20000 };
        struct saved v = {0};
        struct state s;
        int r;

        grant_many(&s, N);
        save_begin(&v, &s);
        for (int64_t id = N; id > 10; id--)
                revoke(&s, id);
        CHECK_EQ(s.leases.n_slots, 10);
        CHECK(s.leases.slots_cap < N);
        for (; (r = state_save_count(&v.saver, 1000)) > 0;)
                ;
        CHECK_EQ(r, 0);
        for (; (r = state_save_more(&v.saver, 1000)) > 0;)
                ;
        CHECK_EQ(r, 0);
        CHECK(is_as(&v.saver.out, &v.want));
        state_saver_fini(&v.saver);
        buf_fini(&v.want);
        state_fini(&s);
}

/* If too much would have to be kept, readers are lost; and so they are if another state
 * replaces this one. */
TEST(saved_leases_may_be_lost)
{
        struct state_saver sv = {0};
        struct state s;

        grant_many(&s, LEASES);
        state_save_start(&sv, &s);
        CHECK_EQ(state_save_more(&sv, 100), 1);
        renew(&s, 0, LEASES - 2);
        CHECK(s.leases.kept_bytes > 0);
        CHECK_EQ(state_save_more(&sv, 100), 1);
        s.leases.kept_bytes += SIZE_MAX / 2; /* as if it were as much */
        renew(&s, 0, LEASES - 2);
        CHECK_EQ(state_save_more(&sv, 100), 1); /* those were kept already */
        revoke(&s, s.leases.slots[LEASES - 1]->id);
        CHECK_EQ(state_save_more(&sv, 100), -ESTALE);
        s.leases.kept_bytes -= SIZE_MAX / 2;
        state_save_start(&sv, &s);
        CHECK_EQ(state_save_more(&sv, 100), 1);
        state_fini(&s);
        state_init(&s);
        CHECK_EQ(state_save_more(&sv, 100), -ESTALE);
        state_saver_fini(&sv);
        state_fini(&s);
}

/* Of slots that come and go the lowest free one, and the end of those that are taken, as a
 * plain look finds them. That look was 0.4 ms for each grant among a million, and those are
 * many in a turn. */
TEST(the_lowest_free_slot)
{
        static bool taken[300000];
        struct slots s = {0};
        size_t lowest = 0, end = 0, at;

        memset(taken, 0, sizeof(taken));
        CHECK_EQ(slots_lowest_free(&s), 0);
        for (unsigned i = 0; i < 300000; i++) {
                bool full = rnd(0, 1000) > 0;

                at = full ? slots_lowest_free(&s) : rnd(0, ARRAY_SIZE(taken) - 1);
                CHECK(!full || at == lowest);
                if (taken[at]) {
                        slots_give(&s, at);
                        lowest = min_of(lowest, at);
                } else {
                        CHECK_EQ(slots_take(&s, at), 0);
                }
                taken[at] = !taken[at];
                while (lowest < ARRAY_SIZE(taken) - 1 && taken[lowest])
                        lowest++;
                for (end = max_of(end, at + 1); end > 0 && !taken[end - 1];)
                        end--;
                CHECK_EQ(slots_end(&s), end);
        }
        CHECK(lowest > 64 * 64 * 64);
        slots_fini(&s);
}
