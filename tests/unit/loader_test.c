/* A snapshot that is loaded in slices, and a state that is freed in slices. */
#include "base/hash.h"
#include "test.h"

#include "../whole.h"
#include "compares.h"
#include "state/internal.h"

/* Keys whose order differs from that of their changes, some with a history, on leases with
 * names and owners; users and roles. */
static void fill(struct state *s, unsigned n)
{
        char name[32];

        state_init(s);
        for (unsigned i = 0; i < n / 2; i++) {
                struct lease *l;

                snprintf(name, sizeof(name), "name-%u", i);
                CHECK_EQ(leases_add(&s->leases, i + 1, 1000, i + 1, name, strlen(name), NULL,
                                    &l),
                         0);
                CHECK_EQ(deadlines_set(&s->deadlines, l->slot, (struct lease_time){i}), 0);
                if (i % 3 == 0)
                        CHECK_EQ(leases_set_owner(&s->leases, l,
                                                  (struct view){(const uint8_t *) "me", 2}),
                                 0);
        }
        for (unsigned i = 0; i < 2 * n; i++) {
                struct kv_key *k;

                snprintf(name, sizeof(name), "key-%u", (unsigned) rnd(0, n));
                CHECK_EQ(kv_put(&s->kv, ++s->revision, 0, name, strlen(name), name, 8,
                                i % 2 == 0 ? i % (n / 2) + 1 : 0, &k),
                         0);
                leases_attach(k, leases_find(&s->leases, k->newest->lease));
        }
        kv_compact(&s->kv, s->revision / 4);
        s->auth.revision = 7;
        for (unsigned i = 0; i < n / 10 + 1; i++) {
                Pb__AuthChange c = PB__AUTH_CHANGE__INIT;
                Pb__AuthUserAddRequest u = PB__AUTH_USER_ADD_REQUEST__INIT;
                Pb__AuthRoleAddRequest r = PB__AUTH_ROLE_ADD_REQUEST__INIT;
                enum state_outcome outcome;

                snprintf(name, sizeof(name), "%u", i);
                u.name = r.name = name;
                c.change_case = PB__AUTH_CHANGE__CHANGE_USER_ADD;
                c.user_add = &u;
                CHECK_EQ(auth_change(&s->auth, &c, &outcome), 0);
                c.change_case = PB__AUTH_CHANGE__CHANGE_ROLE_ADD;
                c.role_add = &r;
                CHECK_EQ(auth_change(&s->auth, &c, &outcome), 0);
        }
}

static void check_history(const struct state *s)
{
        const struct kv *kv = &s->kv;

        for (size_t i = kv->history_from + 1; i < kv->history_to; i++)
                CHECK(kv_history_at(kv, i - 1)->mod_revision <
                      kv_history_at(kv, i)->mod_revision);
}

static void go(struct state *s)
{
        struct budget left = {5};

        state_drop_readers(s);
        while (!state_free_some(s, &left))
                left.left = 5;
}

/* However small the slices are, it is the same state; and it goes in slices too. */
TEST(a_state_read_in_in_slices_is_the_same)
{
        static const unsigned sizes[] = {2, 50, 3000, 9000};

        for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
                cleanup_(buf_fini) struct buf b = {0};
                struct state_loader l;
                struct state s, back;
                struct budget left = {1};
                int r;

                fill(&s, sizes[i]);
                state_save(&s, &b);
                state_load_start(&l, &back, (struct view){b.data, buf_len(&b)});
                while ((r = state_load_some(&l, &left)) > 0)
                        left.left = (size_t) rnd(1, 50);
                CHECK_EQ(r, 0);
                CHECK_EQ(state_hash(&back), state_hash(&s));
                CHECK_EQ(state_bytes(&back), state_bytes(&s));
                CHECK_EQ(back.kv.history_to - back.kv.history_from,
                         s.kv.history_to - s.kv.history_from);
                check_history(&back);
                go(&back);
                go(&s);
        }
}

/* Sorts a history of several blocks until it has room to be merged in, or to its end; the room
 * is given back a block at a time. */
static void sort_and_free(struct view snapshot, bool is_given_up)
{
        struct state_loader l;
        struct state back;
        size_t most = 0;
        int r;

        state_load_start(&l, &back, snapshot);
        do {
                size_t was = back.kv.order.n_blocks, now;
                struct budget left = {1};

                r = state_load_some(&l, &left);
                now = back.kv.order.n_blocks;
                most = max_of(most, now);
                CHECK(now + 1 >= was);
        } while (r > 0 && !(is_given_up && most > 0));
        CHECK(most > 3);
        CHECK_EQ(r, is_given_up);
        CHECK_EQ(back.kv.order.n_blocks, is_given_up ? most : 0);
        state_drop_readers(&back);
        for (bool is_free = false; !is_free;) {
                size_t was = back.kv.order.n_blocks;
                struct budget left = {1};

                is_free = state_free_some(&back, &left);
                CHECK(back.kv.order.n_blocks + 1 >= was);
        }
}

TEST(the_room_in_which_a_history_was_sorted_is_freed_in_slices)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct kv_key *k;
        struct state s;

        state_init(&s);
        while (s.revision < (int64_t) (4 * KV_HISTORY_BLOCK))
                CHECK_EQ(kv_put(&s.kv, ++s.revision, 0, "key", 3, "", 0, 0, &k), 0);
        state_save(&s, &b);
        sort_and_free((struct view){b.data, buf_len(&b)}, false);
        sort_and_free((struct view){b.data, buf_len(&b)}, true);
        state_fini(&s);
}

/* A load can be given up, and a snapshot can be cut off, anywhere: everything is freed. */
TEST(a_state_that_is_half_loaded_is_freed)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct state_loader l;
        struct state s, back;

        fill(&s, 60);
        state_save(&s, &b);
        for (size_t steps = 1; steps < 4000; steps += 7) {
                struct budget left = {steps};

                state_load_start(&l, &back, (struct view){b.data, buf_len(&b)});
                (void) !state_load_some(&l, &left);
                go(&back);
        }
        for (size_t n = 0; n < buf_len(&b); n += 11) {
                struct budget left = {10};
                int r;

                state_load_start(&l, &back, (struct view){b.data, n});
                while ((r = state_load_some(&l, &left)) > 0)
                        left.left = 10;
                CHECK(r == -EBADMSG || r == 0);
                if (r == 0) { /* without users, or owners: that is a state, too */
                        cleanup_(buf_fini) struct buf again = {0};

                        state_save(&back, &again);
                        CHECK(buf_len(&again) >= n);
                        CHECK(memcmp(again.data, b.data, n) == 0);
                }
                go(&back);
        }
        go(&s);
}

/* No slice is much more than another: keys, their order of changes, what they hang on. */
TEST(a_large_state_is_read_in_in_slices)
{
        cleanup_(buf_fini) struct buf b = {0};
        uint64_t most = 0, all = compares();
        struct state_loader l;
        struct state s, back;
        unsigned n = 0;
        int r;

        fill(&s, 40000);
        state_save(&s, &b);
        all = compares();
        state_load_start(&l, &back, (struct view){b.data, buf_len(&b)});
        do {
                uint64_t was = compares();
                struct budget left = {2000};

                r = state_load_some(&l, &left);
                most = max_of(most, compares() - was);
                n++;
        } while (r > 0);
        CHECK_EQ(r, 0);
        all = compares() - all;
        CHECK(n > 200);
        CHECK(most < all / 20);
        state_fini(&back);
        state_fini(&s);
}

/* How many slices of @steps it takes to load @s, which goes. */
static unsigned slices(struct state *s, size_t steps)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct state_loader l;
        struct state back;
        unsigned n = 0;
        int r;

        state_save(s, &b);
        state_load_start(&l, &back, (struct view){b.data, buf_len(&b)});
        do {
                struct budget left = {steps};

                r = state_load_some(&l, &left);
                n++;
        } while (r > 0);
        CHECK_EQ(r, 0);
        CHECK_EQ(state_hash(&back), state_hash(s));
        state_fini(&back);
        state_fini(s);
        return n;
}

/* Each is compared with others that begin alike. */
TEST(long_keys_are_read_in_a_few_at_a_time)
{
        enum { KEYS = 60, LEN = 64 << 10 };
        cleanup_(freep) char *key = calloc(1, LEN);
        struct kv_key *k;
        struct state s;

        state_init(&s);
        for (int i = 0; i < KEYS; i++) {
                key[LEN - 1] = (char) i;
                CHECK_EQ(kv_put(&s.kv, ++s.revision, 0, key, LEN, NULL, 0, 0, &k), 0);
        }
        CHECK(slices(&s, 200) > KEYS / 3);
}

TEST(members_and_alarms_are_read_in_in_slices)
{
        enum { N = 50 };
        struct state s;

        state_init(&s);
        for (uint64_t id = 1; id <= N; id++) {
                CHECK_EQ(state_set_member(&s, id, "name", "url"), 0);
                CHECK_EQ(state_add_alarm(&s, id, PB__ALARM_TYPE__NOSPACE, ALARM_STANDS), 0);
        }
        CHECK(slices(&s, 1) > 2 * N);
}

/* No log makes such a key: it would outlive every lease, and its holder. */
TEST(a_key_on_a_lease_that_does_not_exist_is_refused)
{
        for (int64_t lease = 1; lease <= 2; lease++) {
                cleanup_(buf_fini) struct buf b = {0};
                struct state s, back;
                struct kv_key *k;
                struct lease *l;

                state_init(&s);
                CHECK_EQ(leases_add(&s.leases, 1, 1000, 1, NULL, 0, NULL, &l), 0);
                CHECK_EQ(deadlines_set(&s.deadlines, l->slot, (struct lease_time){1}), 0);
                CHECK_EQ(kv_put(&s.kv, ++s.revision, 0, "k", 1, "v", 1, lease, &k), 0);
                if (lease == 1)
                        leases_attach(k, l);
                state_save(&s, &b);
                CHECK_EQ(state_load(&back, (struct view){b.data, buf_len(&b)}),
                         lease == 1 ? 0 : -EBADMSG);
                state_fini(&back);
                state_fini(&s);
        }
}

static void add_user(struct state *s, const char *name)
{
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;
        Pb__AuthUserAddRequest u = PB__AUTH_USER_ADD_REQUEST__INIT;
        enum state_outcome outcome;

        u.name = (char *) (uintptr_t) name;
        c.change_case = PB__AUTH_CHANGE__CHANGE_USER_ADD;
        c.user_add = &u;
        CHECK_EQ(auth_change(&s->auth, &c, &outcome), 0);
        CHECK_EQ((int) outcome, STATE_OK);
}

/* 10,000 users, or roles with a thousand permissions each, were encoded in one turn: up to 30
 * ms. A change of one starts the encoding again, but not for ever. */
TEST(users_and_roles_are_saved_some_at_a_time)
{
        cleanup_(buf_fini) struct buf whole = {0};
        struct state_saver sv = {0};
        unsigned missed = 0, slices = 0;
        struct state s;
        char name[16];
        int r;

        fill(&s, 20000);
        for (;; missed++) {
                size_t had;

                CHECK(missed < 20);
                state_save_start(&sv, &s);
                had = buf_len(&sv.tail);
                CHECK_EQ(state_save_more(&sv, 1000), 1);
                if (buf_len(&sv.tail) > had + 2000)
                        break;
                snprintf(name, sizeof(name), "new-%u", missed);
                add_user(&s, name);
                CHECK_EQ(state_save_more(&sv, 1000), -ESTALE);
        }
        CHECK_EQ(missed, 8);
        state_save_start(&sv, &s);
        while ((r = state_save_more(&sv, 1000)) > 0) {
                CHECK(slices > 40 || !sv.leases_done);
                slices++;
        }
        CHECK_EQ(r, 0);
        state_save(&s, &whole);
        CHECK_EQ(buf_len(&whole), buf_len(&sv.out));
        CHECK(memcmp(buf_head(&whole), buf_head(&sv.out), buf_len(&whole)) == 0);
        state_saver_fini(&sv);
        state_fini(&s);
}
