/* lib/member/rendezvous.h, work_record.h: which member gets a task, and the records of
 * members. */
#include "member/rendezvous.h"

#include <stdio.h>

#include "member/work_record.h"
#include "test.h"

#define MEMBERS 10
#define TASKS 10000

struct group {
        uint64_t members[MEMBERS], tasks[TASKS];
        unsigned weights[MEMBERS];
        bool gone[MEMBERS];
};

static void name_them(struct group *g)
{
        char name[16];

        for (size_t i = 0; i < MEMBERS; i++) {
                snprintf(name, sizeof(name), "web%zu", i + 1);
                g->members[i] = rendezvous_hash(name);
                g->weights[i] = 100;
                g->gone[i] = false;
        }
        for (size_t i = 0; i < TASKS; i++) {
                snprintf(name, sizeof(name), "%zu", i + 1);
                g->tasks[i] = rendezvous_hash(name);
        }
}

static size_t owner(const struct group *g, size_t task)
{
        size_t best = SIZE_MAX;
        uint64_t least = 0, log;

        for (size_t i = 0; i < MEMBERS; i++) {
                if (g->gone[i])
                        continue;
                log = rendezvous_log(g->tasks[task], g->members[i]);
                if (best != SIZE_MAX &&
                    !rendezvous_less(log, g->weights[i], least, g->weights[best]))
                        continue;
                best = i;
                least = log;
        }
        return best;
}

static void owners(const struct group *g, size_t of[static TASKS], size_t n[static MEMBERS])
{
        memset(n, 0, MEMBERS * sizeof(*n));
        for (size_t i = 0; i < TASKS; i++)
                n[of[i] = owner(g, i)]++;
}

/* As computed elsewhere, with integers of any length: each machine has to come to this. */
TEST(a_rendezvous_is_the_same_everywhere)
{
        CHECK(rendezvous_hash("1") == UINT64_C(0x7c3832dde020d3d6));
        CHECK_EQ(rendezvous_log(rendezvous_hash("1"), rendezvous_hash("web1")), 1289944610);
        CHECK_EQ(rendezvous_log(rendezvous_hash("1"), rendezvous_hash("web2")), 751150642);
        CHECK_EQ(rendezvous_log(rendezvous_hash("1000"), rendezvous_hash("web1")), 291150641);
        CHECK_EQ(rendezvous_log(rendezvous_hash("orders"), rendezvous_hash("a:b")), 69786912);
}

TEST(a_rendezvous_divides_in_proportion_to_the_weights)
{
        static size_t of[TASKS];
        size_t n[MEMBERS];
        static struct group g;

        name_them(&g);
        owners(&g, of, n);
        for (size_t i = 0; i < MEMBERS; i++) /* 1000, and four standard deviations */
                CHECK(n[i] > 880 && n[i] < 1120);
        for (size_t i = 0; i < MEMBERS; i++)
                g.weights[i] = i < 5 ? 1 : 3;
        owners(&g, of, n);
        for (size_t i = 0; i < MEMBERS; i++)
                CHECK(i < 5 ? n[i] > 400 && n[i] < 600 : n[i] > 1350 && n[i] < 1650);
        g.weights[0] = RENDEZVOUS_WEIGHT_MAX;
        owners(&g, of, n);
        CHECK(n[0] > 9950);
}

TEST(a_rendezvous_moves_no_more_than_it_must)
{
        static size_t of[TASKS], now[TASKS];
        size_t n[MEMBERS], m[MEMBERS];
        static struct group g;

        name_them(&g);
        owners(&g, of, n);
        for (size_t who = 0; who < MEMBERS; who++) {
                g.gone[who] = true;
                owners(&g, now, m);
                for (size_t i = 0; i < TASKS; i++)
                        CHECK(of[i] == who ? now[i] != who : now[i] == of[i]);
                g.gone[who] = false; /* and it has the same ones when it is back */
                g.weights[who] = 150;
                owners(&g, now, m);
                CHECK(m[who] > n[who] + 200);
                for (size_t i = 0; i < TASKS; i++)
                        CHECK(now[i] == of[i] || now[i] == who);
                g.weights[who] = 100;
        }
}

/* ---- records ---- */

static void back_and_forth(const struct work_record *r, const char *text)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct work_record back;

        work_record_write(r, &b);
        buf_add_u8(&b, 0);
        CHECK_STR((char *) buf_head(&b), text);
        CHECK_EQ(work_record_read(&back, buf_head(&b), buf_len(&b) - 1), 0);
        CHECK_EQ(back.weight, r->weight);
        CHECK_EQ(back.n, r->n);
        CHECK(!back.names == !r->names);
        for (size_t i = 0; r->names && i < r->n; i++)
                CHECK_STR(back.names[i], r->names[i]);
        work_record_fini(&back);
}

TEST(a_member_says_which_tasks_it_can_have)
{
        static const char *const names[] = {"orders", "07", "mail:in", "b"};
        static const char *const twice[] = {"x", "y", "x"}, *const bad[] = {"a", "a/b"};
        char room[WORK_NUMBER_MAX];
        struct work_record r;
        const char *which;

        CHECK_EQ(work_record_make(&r, 100, NULL, 1000, &which), 0);
        back_and_forth(&r, "{\"weight\":100,\"tasks\":1000}");
        CHECK(work_record_has(&r, "1") && work_record_has(&r, "1000"));
        CHECK(!work_record_has(&r, "0") && !work_record_has(&r, "1001"));
        CHECK(!work_record_has(&r, "01") && !work_record_has(&r, "") &&
              !work_record_has(&r, "1a"));
        CHECK(!work_record_has(&r, "18446744073709551617"));
        CHECK_STR(work_record_name(&r, 999, room), "1000");

        CHECK_EQ(work_record_make(&r, 7, names, ARRAY_SIZE(names), &which), 0);
        back_and_forth(&r, "{\"weight\":7,\"tasks\":[\"07\",\"b\",\"mail:in\",\"orders\"]}");
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                CHECK(work_record_has(&r, names[i]));
        CHECK(!work_record_has(&r, "7") && !work_record_has(&r, "orders2"));
        work_record_fini(&r);

        CHECK_EQ(work_record_make(&r, 1, twice, ARRAY_SIZE(twice), &which), -EINVAL);
        CHECK(which == twice[0]);
        CHECK_EQ(work_record_make(&r, 1, bad, ARRAY_SIZE(bad), &which), -EINVAL);
        CHECK(which == bad[1]);
        CHECK_EQ(work_record_make(&r, 1, NULL, WORK_TASKS_MAX + 1, &which), -EMSGSIZE);
}

TEST(names_of_tasks_have_a_bound)
{
        static char name[400][201];
        static const char *names[400];
        struct work_record r;
        const char *which;

        for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
                snprintf(name[i], sizeof(name[i]), "%0200zu", i);
                names[i] = name[i];
        }
        CHECK_EQ(work_record_make(&r, 1, names, 300, &which), 0);
        work_record_fini(&r);
        CHECK_EQ(work_record_make(&r, 1, names, 400, &which), -EMSGSIZE);
}

TEST(a_record_that_makes_no_sense)
{
        static const char *const texts[] = {
                "",
                "[]",
                "{}",
                "{\"weight\":1}",
                "{\"weight\":0,\"tasks\":1}",
                "{\"weight\":10001,\"tasks\":1}",
                "{\"weight\":\"1\",\"tasks\":1}",
                "{\"weight\":1,\"tasks\":-1}",
                "{\"weight\":1,\"tasks\":10001}",
                "{\"weight\":1,\"tasks\":\"a\"}",
                "{\"weight\":1,\"tasks\":[1]}",
                "{\"weight\":1,\"tasks\":[\"a/b\"]}",
                "{\"weight\":1,\"tasks\":[\"a\",\"a\"]}",
        };
        struct work_record r;

        for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
                CHECK_EQ(work_record_read(&r, texts[i], strlen(texts[i])), -EBADMSG);
}
