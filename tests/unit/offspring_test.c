/* The control group that a command of `tenurectl lock` runs in. */
#include <sys/stat.h>
#include <unistd.h>

#include "../../agent/tenurectl/offspring.h"
#include "test.h"

static void make_below(const struct offspring *o, const char *name)
{
        char path[sizeof(o->path) + 32];

        snprintf(path, sizeof(path), "%s/%s", o->path, name);
        CHECK_EQ(mkdir(path, 0755), 0);
}

TEST(the_control_group_of_a_killed_process_with_our_number_is_made_again)
{
        struct offspring killed, o;

        CHECK_EQ(offspring_start(&killed), 0);
        if (access(killed.path, F_OK) < 0)
                test_skip("no control group can be made here");
        make_below(&killed, "one");
        make_below(&killed, "one/two");
        offspring_close(&killed);

        CHECK_EQ(offspring_start(&o), 0);

        CHECK(o.kill >= 0);
        offspring_end(&o);
        CHECK(access(o.path, F_OK) < 0);
}
