#include "session/leaving.h"
#include "test.h"

static const struct leaving_sight UP = {0}, DOWN = {.down = true},
                                  FREE = {.down = true, .released = true},
                                  OUT = {.down = true, .released = true, .left = true};

/* The order: what comes down first, and who is asked before the lease is given back. */
TEST(a_place_is_given_back_when_nothing_needs_it)
{
        struct leaving l = {0};

        CHECK(!leaving_is_under_way(&l));
        CHECK_EQ(leaving_next(&l, &OUT), 0);
        leaving_begin(&l, LEAVING_MAINTENANCE, "left");
        CHECK(leaving_is_under_way(&l));
        CHECK_EQ(leaving_next(&l, &UP), 0);
        CHECK_EQ(leaving_next(&l, &DOWN), LEAVING_ASK_HOLDERS);
        CHECK_EQ(leaving_next(&l, &DOWN), LEAVING_ASK_HOLDERS);
        CHECK_EQ(leaving_next(&l, &FREE), LEAVING_GIVE_BACK);
        CHECK_EQ(leaving_next(&l, &FREE), 0);
        CHECK_EQ(leaving_next(&l, &OUT), LEAVING_SETTLE);
        CHECK_EQ(leaving_next(&l, &OUT), LEAVING_SETTLE);
        leaving_end(&l, LEAVING_MAINTENANCE);
        CHECK_EQ(leaving_next(&l, &OUT), LEAVING_SETTLE | LEAVING_JOIN);
        CHECK(!leaving_is_under_way(&l));
        CHECK_EQ(leaving_next(&l, &OUT), 0);
        CHECK(!l.reason);
}

/* The others learn whether it is a reboot: nothing is given back before that is known. */
TEST(an_exit_waits_for_its_reason)
{
        struct leaving l = {0};

        leaving_begin(&l, LEAVING_EXIT, NULL);
        CHECK_EQ(leaving_next(&l, &FREE), 0);
        leaving_tell(&l, "reboot");
        CHECK_EQ(leaving_next(&l, &FREE), LEAVING_GIVE_BACK);
        CHECK(strcmp(l.reason, "reboot") == 0);
        leaving_tell(&l, "left"); /* too late */
        CHECK(strcmp(l.reason, "reboot") == 0);
        CHECK_EQ(leaving_next(&l, &OUT), LEAVING_END);
}

TEST(an_exit_while_it_leaves_has_its_own_reason)
{
        struct leaving l = {0};

        leaving_begin(&l, LEAVING_MAINTENANCE, "left");
        leaving_begin(&l, LEAVING_EXIT, NULL);
        leaving_tell(&l, "shutdown");
        CHECK(strcmp(l.reason, "shutdown") == 0);
        CHECK_EQ(leaving_next(&l, &FREE), LEAVING_GIVE_BACK);
        CHECK_EQ(leaving_next(&l, &OUT), LEAVING_END);
        leaving_end(&l, LEAVING_MAINTENANCE); /* a join that comes too late */
        CHECK_EQ(leaving_next(&l, &OUT), LEAVING_END);
}

TEST(a_host_stays_out_while_there_is_a_cause)
{
        struct leaving l = {0};

        leaving_begin(&l, LEAVING_SLEEP, "suspend");
        CHECK_EQ(leaving_next(&l, &FREE), LEAVING_GIVE_BACK);
        leaving_begin(&l, LEAVING_MAINTENANCE, "left");
        CHECK(strcmp(l.reason, "suspend") == 0);
        CHECK_EQ(leaving_next(&l, &OUT), LEAVING_SETTLE);
        leaving_end(&l, LEAVING_SLEEP);
        CHECK_EQ(leaving_next(&l, &OUT), LEAVING_SETTLE);
        leaving_begin(&l, LEAVING_EXIT, NULL);
        CHECK_EQ(leaving_next(&l, &OUT), LEAVING_END);
}

/* What has begun is completed, because other hosts may have seen it. */
TEST(a_join_half_way_gives_back_first)
{
        struct leaving l = {0};

        leaving_begin(&l, LEAVING_MAINTENANCE, "left");
        leaving_end(&l, LEAVING_MAINTENANCE);
        CHECK_EQ(leaving_next(&l, &UP), 0);
        CHECK_EQ(leaving_next(&l, &FREE), LEAVING_GIVE_BACK);
        CHECK_EQ(leaving_next(&l, &OUT), LEAVING_SETTLE | LEAVING_JOIN);
}

/* An earlier run was ordered to stay out, and what it fenced may still be up. */
TEST(who_begins_in_maintenance_has_nothing_to_give_back)
{
        static const struct leaving_sight left = {.left = true};
        struct leaving l = {0};

        leaving_begin(&l, LEAVING_MAINTENANCE, "left");
        leaving_is_out(&l);
        CHECK_EQ(leaving_next(&l, &left), 0);
        CHECK_EQ(leaving_next(&l, &OUT), LEAVING_SETTLE);
}
