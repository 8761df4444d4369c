#include <stdio.h>

#include "member/brake.h"
#include "test.h"

#define AT(s) ((struct boot_time){(s) *NSEC_PER_SEC})

static const struct brake_config config = {55, 60 * NSEC_PER_SEC};

static void expired(struct brake *b, int node, int s)
{
        char name[16];

        snprintf(name, sizeof(name), "h%d", node);
        brake_expired(b, name, AT(s));
}

static void joined(struct brake *b, int node)
{
        char name[16];

        snprintf(name, sizeof(name), "h%d", node);
        brake_joined(b, name);
}

TEST(most_of_the_nodes_gone_at_once)
{
        struct brake_config cfg = config;
        struct brake b;

        brake_init(&b);
        CHECK(!brake_update(&b, &cfg, 10, AT(1)));
        CHECK_EQ(brake_wakeup(&b, &cfg).ns, BOOT_TIME_NEVER.ns);
        for (int i = 0; i < 5; i++)
                expired(&b, i, 10);
        CHECK(!brake_update(&b, &cfg, 5, AT(10))); /* half of them */
        CHECK_EQ(brake_wakeup(&b, &cfg).ns, AT(70).ns);
        expired(&b, 5, 11);
        CHECK(brake_update(&b, &cfg, 4, AT(11)) && b.on);
        CHECK(!brake_update(&b, &cfg, 4, AT(3609))); /* they are still missing */
        joined(&b, 0);
        joined(&b, 1);
        CHECK(!brake_update(&b, &cfg, 6, AT(3609)));         /* four of ten */
        CHECK(brake_update(&b, &cfg, 6, AT(3610)) && !b.on); /* for an hour: for good */
        CHECK(!brake_update(&b, &cfg, 6, AT(3610)));
        CHECK_EQ(brake_wakeup(&b, &cfg).ns, BOOT_TIME_NEVER.ns); /* one counted until now */
        for (int i = 0; i < 6; i++)
                expired(&b, i, 4000);
        CHECK(brake_update(&b, &cfg, 0, AT(4000)));
        cfg.percent = 0;
        CHECK(brake_update(&b, &cfg, 0, AT(4000)) && !b.on);
        CHECK(!brake_update(&b, &cfg, 0, AT(4000)));
        brake_fini(&b);
}

TEST(what_is_gone_one_by_one_is_no_mass_failure)
{
        struct brake b;

        brake_init(&b);
        for (int i = 0; i < 9; i++) {
                expired(&b, i, 30 * i);
                CHECK(!brake_update(&b, &config, (size_t) (8 - i), AT(30 * i)));
        }
        brake_fini(&b);
}

/* With three nodes, two that fail are no mass. */
TEST(three_nodes_are_too_few_for_a_mass_failure)
{
        struct brake b;

        brake_init(&b);
        for (int i = 0; i < 3; i++) {
                expired(&b, i, 1);
                CHECK(!brake_update(&b, &config, (size_t) (2 - i), AT(1)));
        }
        brake_fini(&b);
}

TEST(one_node_that_flaps_is_one_node)
{
        struct brake b;

        brake_init(&b);
        for (int i = 0; i < 50; i++) {
                expired(&b, 3, 10 * i);
                CHECK(!brake_update(&b, &config, 3, AT(10 * i)));
                joined(&b, 3);
                CHECK(!brake_update(&b, &config, 4, AT(10 * i + 1)));
                if (i % 2)
                        expired(&b, 3, 10 * i + 2); /* seen twice, without a join between */
        }
        brake_fini(&b);
}

TEST(a_mass_failure_of_a_large_fleet_begins_and_ends_at_its_percentage)
{
        const int n = 100000, most = 55000, least = 27500;
        struct brake b;
        int i;

        brake_init(&b);
        for (i = 0; i < most; i++) {
                CHECK(!brake_update(&b, &config, (size_t) (n - i), AT(5)));
                expired(&b, i, 5);
        }
        CHECK(brake_update(&b, &config, (size_t) (n - i), AT(5)) && b.on);
        for (; i > least - 1; i--) {
                CHECK(!brake_update(&b, &config, (size_t) (n - i), AT(900)));
                joined(&b, i - 1);
        }
        CHECK(brake_update(&b, &config, (size_t) (n - i), AT(900)) && !b.on);
        brake_fini(&b);
}

TEST(a_brake_keeps_a_bounded_number_of_nodes)
{
        struct brake b;

        brake_init(&b);
        for (int i = 0; i < 140000; i++)
                expired(&b, i, 5);
        CHECK_EQ(b.n_missing, BRAKE_MISSING_MAX);
        brake_fini(&b);
}

/* Compares it with the definition in brake.h: a time for each node at which it expired. */
TEST(brake_is_as_defined)
{
        enum { N = 12 };
        int since[N], n = (int) rnd(1, N);
        struct brake b;
        bool on = false, there[N];

        for (int i = 0; i < N; i++) {
                since[i] = -1;
                there[i] = i < n;
        }
        brake_init(&b);
        for (int now = 1; now < 20000; now += (int) rnd(0, rnd(0, 40) == 0 ? 600 : 12)) {
                int i = (int) rnd(0, N - 1), missing = 0, is = 0, of;
                bool was = on;

                if (there[i] && rnd(0, 3) > 0) {
                        expired(&b, i, now);
                        since[i] = now;
                } else if (!there[i]) {
                        joined(&b, i);
                        since[i] = -1;
                }
                there[i] = !there[i];
                for (i = 0; i < N; i++) {
                        if (since[i] >= 0 && now - since[i] >= (on ? 3600 : 60))
                                since[i] = -1;
                        missing += since[i] >= 0;
                        is += there[i];
                }
                of = missing + is;
                on = on ? missing * 200 >= of * 55 && missing > 0
                        : missing * 100 >= of * 55 && of >= 4;
                CHECK_EQ(brake_update(&b, &config, (size_t) is, AT(now)), on != was);
                CHECK_EQ(b.on, on);
        }
        brake_fini(&b);
}
