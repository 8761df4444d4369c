/* The times of revisions: by the second, for an hour of changes. */
#include "etcd/revision_times.h"
#include "rig.h"
#include "test.h"

static struct boot_time at_ms(int64_t ms)
{
        return (struct boot_time){.ns = (1000000 + ms) * NSEC_PER_MSEC};
}

/* Revision @r was applied in the second that begins with what is found, or at 0. */
static nsec_t found(const struct revision_times *t, int64_t r)
{
        for (size_t i = 0; i < revision_times_kept(t); i++)
                if (revision_times_at(t, i)->revision >= r)
                        return boot_diff(revision_times_at(t, i)->at, at_ms(0)) / NSEC_PER_MSEC;
        return -1;
}

TEST(revision_times_are_exact_to_the_second)
{
        struct revision_times *t = calloc(1, sizeof(*t));

        CHECK(t != NULL);
        revision_times_note(t, 10, at_ms(0)); /* of earlier: nobody knows when */
        revision_times_note(t, 12, at_ms(10));
        revision_times_note(t, 13, at_ms(900));
        revision_times_note(t, 13, at_ms(5000));
        revision_times_note(t, 14, at_ms(60000));
        CHECK_EQ(found(t, 11), 10);
        CHECK_EQ(found(t, 13), 10);
        CHECK_EQ(found(t, 14), 60000);
        CHECK_EQ(found(t, 15), -1);
        revision_times_note(t, 3, at_ms(61000)); /* of another state */
        CHECK_EQ(revision_times_kept(t), 1);
        free(t);
}

TEST(revision_times_keep_an_hour)
{
        struct revision_times *t = calloc(1, sizeof(*t));
        int64_t last = 3 * 3600;

        CHECK(t != NULL);
        for (int64_t s = 0; s <= last; s++)
                for (int64_t k = 0; k < 10; k++)
                        revision_times_note(t, 10 * s + k, at_ms(1000 * s + 100 * k));
        CHECK_EQ(revision_times_kept(t), REVISION_TIMES);
        for (int64_t s = last - 3595; s <= last; s++) {
                nsec_t late = 1000 * s - found(t, 10 * s);

                CHECK(late >= 0 && late < 1000);
        }
        free(t);
}

/* Status has them for who asks. */
TEST(status_has_the_times_of_revisions)
{
        Pb__StatusRequest status = PB__STATUS_REQUEST__INIT;
        Pb__RangeRequest range = PB__RANGE_REQUEST__INIT;
        Pb__StatusResponse *st = NULL;
        struct rig_conn *c;
        struct rig_call call;
        uint8_t key[] = "a";

        rig_begin();
        c = rig_connect(0);
        range.key = (ProtobufCBinaryData){1, key};
        rig_ask(c, &call, "/etcdserverpb.KV/Range", &range.base); /* so it has caught up */
        rig_wait(&call, 1000);
        rig_forget(&call);
        rig_put("a", 1);
        rig_turn();
        status.revision_times = true;
        rig_ask(c, &call, "/etcdserverpb.Maintenance/Status", &status.base);
        rig_wait(&call, 1000);
        CHECK_EQ(pb_unpack(&pb__status_response__descriptor,
                           (struct view){call.message.data, buf_len(&call.message)}, &st),
                 0);
        CHECK_EQ(st->n_revision_times, 2);
        CHECK(st->revision_times[0]->revision < st->header->revision);
        CHECK_EQ(st->revision_times[1]->revision, st->header->revision);
        CHECK(st->revision_times[1]->ago_ms <= st->revision_times[0]->ago_ms);
        pb_free(&st->base);
        rig_forget(&call);
        rig_end();
}
