/* Large memory is freed in slices. */
#include "consensus/internal.h"
#include "test.h"

static struct replica r;

static struct log a_log(size_t n)
{
        struct log l;

        log_init(&l, 1);
        for (size_t i = 0; i < n; i++)
                CHECK_EQ(log_push(&l, 1, RAFT_COMMAND, "x", 1), 0);
        return l;
}

static void run_when_due(void)
{
        CHECK(freeing_next(&r).ns != BOOT_TIME_NEVER.ns);
        r.now = boot_max(r.now, freeing_next(&r));
        freeing_run(&r);
}

TEST(a_log_that_a_snapshot_has_replaced_is_freed_in_slices)
{
        struct log l = a_log(10000);

        CHECK_EQ(freeing_next(&r).ns, BOOT_TIME_NEVER.ns);
        freeing_add_log(&r, &l);
        CHECK(!l.entries);
        for (size_t left = 10000; left > 0; left -= min_of(left, (size_t) 4096)) {
                CHECK_EQ(r.freeing.log.gone, left);
                run_when_due();
                freeing_run(&r); /* too early for the next slice */
        }
        CHECK_EQ(freeing_next(&r).ns, BOOT_TIME_NEVER.ns);
        CHECK(!r.freeing.log.entries);
}

/* The smallest entry of commands has a few bytes. */
TEST(the_size_of_a_log_is_that_of_its_memory)
{
        struct log l = a_log(1000);

        CHECK(l.bytes >= 1000 * sizeof(struct log_entry));
        log_trim(&l, 400);
        log_cut(&l, 601);
        CHECK_EQ(l.bytes, log_bytes(&l, 401, 600));
        log_fini(&l);
}

/* After days of small entries, a snapshot lets go of millions of them. */
TEST(what_the_log_drops_is_freed_in_slices)
{
        r.log = a_log(10000);
        log_trim(&r.log, 9000);
        for (size_t left = 9000; left > 0; left -= min_of(left, (size_t) 4096)) {
                CHECK_EQ(r.log.gone, left);
                run_when_due();
                CHECK_EQ(log_push(&r.log, 1, RAFT_COMMAND, "xy", 2), 0);
        }
        CHECK_EQ(freeing_next(&r).ns, BOOT_TIME_NEVER.ns);
        CHECK_EQ(r.log.n, 1003);
        CHECK_EQ(r.log.bytes, log_bytes(&r.log, 1, UINT64_MAX));
        CHECK_EQ(r.log.first, 9001);
        for (size_t i = 0; i < 20000; i++) {
                CHECK_EQ(log_push(&r.log, 1, RAFT_COMMAND, "xyz", 3), 0);
                if (i % 5000 == 0)
                        log_trim(&r.log, r.log.first + 99);
        }
        CHECK_EQ(log_get(&r.log, r.log.first)->len, 1);
        CHECK_EQ(log_get(&r.log, log_last(&r.log))->len, 3);
        CHECK_EQ(r.log.bytes, log_bytes(&r.log, 1, UINT64_MAX));
        log_fini(&r.log);
}

TEST(another_log_may_come_before_the_last_one_is_freed)
{
        struct log l = a_log(5000);

        freeing_add_log(&r, &l);
        run_when_due();
        l = a_log(10);
        freeing_add_log(&r, &l);
        CHECK_EQ(r.freeing.log.gone, 10U);
        freeing_fini(&r);
        CHECK_EQ(freeing_next(&r).ns, BOOT_TIME_NEVER.ns);
}

TEST(a_blob_is_freed_with_its_last_reference)
{
        struct buf b = {0};
        struct blob *data, *held;
        unsigned n = 0;

        CHECK(buf_reserve(&b, (size_t) 40 << 20));
        buf_commit(&b, (size_t) 40 << 20);
        data = blob_new(&b);
        held = blob_hold(data);
        freeing_add(&r, data);
        CHECK_EQ(freeing_next(&r).ns, BOOT_TIME_NEVER.ns);
        blob_free(held);
        for (; freeing_next(&r).ns != BOOT_TIME_NEVER.ns; n++)
                run_when_due();
        CHECK(n >= 3);
}
