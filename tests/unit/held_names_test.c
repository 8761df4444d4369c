/* agent/tenured/names.c: what the guard has to know of the target that may be up. */
#include <unistd.h>

#include "../../agent/tenured/keep.h"
#include "test.h"

/* guard_test.c has others of these names. */
#define names_target real_names_target
#define options_fencing fencing_of
/* What is not reached. */
#define keep_read(k, ret) ((void) (k), (void) (ret), false)
#include "../../agent/tenured/names.c"

struct fencing_config fencing_of(const struct options *o)
{
        return (struct fencing_config){.lead = o->fence_lead,
                                       .reboot = o->fence_action == FENCE_REBOOT};
}

/* The agent may have its settings from its command line, or have read others since. */
TEST(the_guard_fences_by_the_settings_of_the_agent)
{
        struct options o = {.held_target = (char *) "a.target", .fence_lead = 5};
        struct names n = {.target_file = "/tmp/tenure-target-XXXXXX"};
        struct fencing_config cfg;
        char target[256];
        FILE *f;

        close(mkstemp(n.target_file));
        CHECK(names_run(&n, &o, true));
        CHECK(!names_run(&n, &o, true));
        CHECK(names_target(n.target_file, target, &cfg));
        CHECK_STR(target, "a.target");
        CHECK(cfg.lead == 5 && !cfg.reboot);

        o.fence_lead = 7;
        o.fence_action = FENCE_REBOOT;
        CHECK(names_run(&n, &o, true));
        CHECK(names_target(n.target_file, target, &cfg));
        CHECK(cfg.lead == 7 && cfg.reboot);

        /* What an earlier release has written. */
        f = fopen(n.target_file, "we");
        fputs("b.target\n", f);
        fclose(f);
        CHECK(names_target(n.target_file, target, &cfg));
        CHECK_STR(target, "b.target");
        CHECK(cfg.lead == 7 && cfg.reboot);

        CHECK(!names_run(&n, &o, false));
        CHECK(!names_target(n.target_file, target, &cfg));
        CHECK(access(n.target_file, F_OK) < 0);
}
