#include "member/lock_name.h"

#include "test.h"

TEST(what_the_name_of_a_lock_may_be)
{
        char name[LOCK_NAME_MOST + 2];

        memset(name, 'a', sizeof(name));
        name[LOCK_NAME_MOST + 1] = '\0';
        CHECK(lock_name_problem(name));
        name[LOCK_NAME_MOST] = '\0';
        CHECK(!lock_name_problem(name));
        CHECK(lock_name_problem(""));
        CHECK(lock_name_problem("/tenure/default/nodes"));
        CHECK(!lock_name_problem("/tenure"));
        CHECK(!lock_name_problem("db"));
        CHECK(!lock_name_problem("jobs/db"));
}

static bool has(const char *name, const char *key)
{
        return lock_name_has(name, key, strlen(key));
}

TEST(which_keys_are_those_of_a_lock)
{
        CHECK(has("db", "db/3f2a"));
        CHECK(has("jobs/db", "jobs/db/3f2a"));
        CHECK(has("db", "db/by-hand"));
        CHECK(!has("db", "db/main/3f2a")); /* of the lock db/main */
        CHECK(!has("db", "db/"));
        CHECK(!has("db", "db"));
        CHECK(!has("db", "d"));
        CHECK(!has("db", "da/3f2a"));
        CHECK(!has("db", "db.switchover"));
}
