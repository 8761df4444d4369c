#include "../../agent/tenure-core/expiries.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "test.h"

static unsigned lines, named;
static char last[256];

static int count_line(int level, const char *const fields[], const char *text)
{
        (void) level;
        (void) fields;
        lines++;
        named += strstr(text, "was not renewed in time") != NULL;
        snprintf(last, sizeof(last), "%s", text);
        return 0;
}

/* A stranger grants leases and lets them expire. */
TEST(leases_that_expire_by_the_thousand_leave_room_in_the_log)
{
        struct boot_time now = boot_add((struct boot_time){0}, 1000 * NSEC_PER_SEC);
        struct expiries e = {0};

        lines = named = 0;
        log_set_sink(count_line);
        for (int64_t i = 0; i < 50000; i++)
                expiries_log(&e, now, i, 0, 1);
        CHECK_EQ(named, EXPIRIES_AT_ONCE);
        CHECK_EQ(lines, EXPIRIES_AT_ONCE + 1);
        CHECK(strstr(last, "only counted"));
        now = boot_add(now, 10 * NSEC_PER_SEC);
        expiries_log(&e, now, 7, 1, 1);
        CHECK_EQ(lines, EXPIRIES_AT_ONCE + 3); /* how many there were, and this one */
        CHECK_STR(last, "Lease 0000000000000007 expired with 1 key(s): it was not renewed in "
                        "time.");
        now = boot_add(now, 10 * NSEC_PER_SEC);
        expiries_log(&e, now, 8, 1, 1);
        CHECK_EQ(lines, EXPIRIES_AT_ONCE + 4);
        log_set_sink(NULL);
}
