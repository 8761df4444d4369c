/* lib/tenure: the arguments of a switchover, and a lock that is to be handed over, on a core
 * that answers as the test tells it to. */
#include "fake_core.h"
#include "nomem.h"
#include "tenure/handover.h"
#include "tenure/switchover_internal.h"
#include "tenure/watch.h"

TEST(what_a_switchover_wants)
{
        struct tenure_call *c = NULL;
        struct tenure_lock *l;
        struct tenure *t;

        CHECK_EQ(tenure_new(&t), 0);
        CHECK_EQ(tenure_hold_own(t, 2000, "one"), 0);
        CHECK_EQ(tenure_switchover(t, "", "db2", 1000, &c), -EINVAL);
        CHECK_EQ(tenure_switchover(t, "a", "db/2", 1000, &c), -EINVAL);
        CHECK_EQ(tenure_switchover(t, "a", "", 1000, &c), -EINVAL);
        CHECK_EQ(tenure_switchover(t, "a", "db2", 0, &c), -EINVAL);
        CHECK_EQ(tenure_switchover(t, "a", "db2", -1, &c), -EINVAL);
        CHECK_EQ(tenure_switchover(t, "a", "db2", INT64_MAX, &c), -EINVAL);
        CHECK(c == NULL && *tenure_error(t));
        /* There is no request. */
        CHECK_EQ(tenure_lock(t, "a", NULL, &l), 0);
        CHECK_EQ(tenure_hand_over(l), -EINVAL);
        CHECK(strstr(tenure_error(t), "'a'"));
        CHECK_EQ(tenure_lock_deadline(l), 0);
        /* It waits for tenure_start(), and may be forgotten before. */
        CHECK_EQ(tenure_switchover(t, "a", "db2", 1000, &c), 0);
        CHECK_EQ(tenure_call_result(c), -EINPROGRESS);
        CHECK(tenure_call_switched(c) == NULL);
        CHECK(tenure_call_free(c) == NULL);
        CHECK_EQ(tenure_switchover(t, "a", NULL, 1000, NULL), 0);
        CHECK_EQ(tenure_switchover(t, "a", NULL, 1000, &c), 0);
        tenure_free(t);
}

/* ---- what the core shows of the line ---- */

#define OPS 4

static struct {
        Pb__TxnResponse txn;
        Pb__ResponseOp op[OPS], *ops[OPS];
        Pb__RangeResponse range[OPS];
        Pb__KeyValue kv[OPS][2], *kvs[OPS][2];
} shows;

static void show_nothing(void)
{
        pb__txn_response__init(&shows.txn);
        for (size_t i = 0; i < OPS; i++) {
                pb__response_op__init(&shows.op[i]);
                pb__range_response__init(&shows.range[i]);
                shows.op[i].response_case = PB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE;
                shows.op[i].response_range = &shows.range[i];
                shows.range[i].kvs = shows.kvs[i];
                shows.ops[i] = &shows.op[i];
        }
        shows.txn.succeeded = true;
        shows.txn.responses = shows.ops;
        shows.txn.n_responses = OPS;
        fake.outcome = &shows.txn;
}

static void show(size_t op, const char *key, const char *value, int64_t lease)
{
        size_t i = shows.range[op].n_kvs++;
        Pb__KeyValue *kv = &shows.kv[op][i];

        pb__key_value__init(kv);
        kv->key = pb_bytes(key, strlen(key));
        kv->value = pb_bytes(value, strlen(value));
        kv->create_revision = kv->mod_revision = (int64_t) (2 + i);
        kv->lease = lease;
        shows.kvs[op][i] = kv;
}

static int switchover(struct tenure *t, const char *to, const char *why)
{
        struct tenure_call *c;
        int r;

        CHECK_EQ(tenure_switchover(t, "a", to, 1000, &c), 0);
        r = fake_result(t, c);
        if (!strstr(tenure_call_error(c), why))
                test_fail(__FILE__, __LINE__, "'%s' does not say '%s'", tenure_call_error(c),
                          why);
        tenure_call_free(c);
        return r;
}

TEST(what_a_switchover_is_refused_for)
{
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        show_nothing();
        CHECK_EQ(switchover(t, "db2", "Nobody holds the lock 'a'"), -ENOENT);
        show(0, "a/1", "", 1);
        CHECK_EQ(switchover(t, NULL, "Nobody waits for the lock 'a'"), -ENOENT);
        CHECK_EQ(switchover(t, "db2", "No node and no session is named 'db2'"), -ENOENT);
        show(1, "a.switchover",
             "{\"to\":\"db3\",\"by\":\"me\",\"key\":\"a/3\",\"created\":9,\"within_ms\":1}", 7);
        CHECK_EQ(switchover(t, "db2", "to db3 is under way, which me asked for"), -EBUSY);
        show_nothing();
        show(0, "a/1", "", 1);
        show(1, "a.switchover", "?", 0);
        CHECK_EQ(switchover(t, "db2", "The key a.switchover is in the way"), -EBUSY);
        /* Nothing of it hangs on a lease. */
        show_nothing();
        show(0, "a/x", "", 0);
        show(0, "a/y", "", 0);
        CHECK_EQ(switchover(t, NULL, "held by a program that cannot be asked"), -EOPNOTSUPP);
        /* A key of the lock a/main. */
        show_nothing();
        show(0, "a/main/1", "", 1);
        CHECK_EQ(switchover(t, "db2", "The key a/main/1 is in the line"), -EOPNOTSUPP);
        show_nothing();
        show(0, "a/1", "", 1);
        show(0, "a/main/2", "", 2);
        CHECK_EQ(switchover(t, NULL, "The key a/main/2 is in the line"), -EOPNOTSUPP);
        tenure_free(t);
        fake_end();
}

/* ---- the holder ---- */

static const char accepted[] = "{\"to\":\"db\",\"by\":\"me\",\"key\":\"a/3\",\"created\":3,"
                               "\"within_ms\":1000,\"holder\":\"a/1\"}";

static unsigned heard[HANDOVER_LOST + 1];

static void on_news(struct handover *h, enum handover_news news)
{
        (void) h;
        heard[news]++;
}

static bool was_answered(void *ranges)
{
        return fake.ranges > *(unsigned *) ranges;
}

static bool has_decided(void *h)
{
        return ((struct handover *) h)->state == HANDOVER_WATCH || fake.txns > 0;
}

static bool stops(void *h)
{
        return handover_is_asked(h);
}

static bool goes_on(void *h)
{
        return ((struct handover *) h)->state == HANDOVER_WATCH || handover_is_asked(h);
}

/* The tie of the holder of the lock a, which has found the request to hand it over to a/3. */
static struct tenure *tie_that_was_asked(struct handover *h)
{
        static const struct switchover_at own = {.key = "a/1", .len = 3, .created = 1};
        struct tenure *t;
        unsigned ranges;

        memset(heard, 0, sizeof(heard));
        fake_begin();
        t = fake_tie();
        show_nothing();
        show(0, "a.switchover",
             "{\"to\":\"db\",\"by\":\"me\",\"key\":\"a/3\",\"created\":3,\"within_ms\":1000}",
             7);
        fake.content = &shows.range[0];
        ranges = fake.ranges;
        handover_start(h, t, "a", &own, on_news);
        fake_until(t, was_answered, &ranges);
        show_nothing();
        return t;
}

static void end_handover(struct handover *h, struct tenure *t)
{
        handover_stop(h);
        fake.content = NULL;
        tenure_free(t);
        fake_end();
}

/* The holder of the lock a would delete the key of whoever has the lock a/main. */
TEST(a_request_is_not_accepted_while_another_lock_is_in_the_line)
{
        struct handover h;
        struct tenure *t = tie_that_was_asked(&h);

        show(0, "a/main/2", "", 2);
        fake_until(t, has_decided, &h);
        CHECK_EQ(fake.txns, 0);
        CHECK(heard[HANDOVER_NONE] == 1 && heard[HANDOVER_ASKED] == 0);
        end_handover(&h, t);
}

/* It stays there until whoever has made it withdraws it, or its lease ends. */
TEST(a_request_whose_target_has_gone_is_accepted_once)
{
        struct handover h;
        struct tenure *t = tie_that_was_asked(&h);

        fake_until(t, stops, &h);
        show_nothing();
        shows.txn.succeeded = false;
        shows.txn.n_responses = 1;
        show(0, "a/1", "", 1);
        shows.kv[0][0].create_revision = 1;
        show(1, "a.switchover", accepted, 7);
        shows.kv[1][0].mod_revision = fake.revision; /* at which it was accepted */
        fake.content = &shows.range[1];
        handover_go(&h);
        fake_until(t, goes_on, &h);
        CHECK(heard[HANDOVER_KEPT] == 1 && heard[HANDOVER_ASKED] == 1);
        end_handover(&h, t);
}

TEST(a_switchover_that_may_not_look_says_so)
{
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        fake.does = FAKE_REFUSES;
        fake.times = 1;
        fake.code = RPC_PERMISSION_DENIED;
        fake.text = "etcdserver: permission denied";
        CHECK_EQ(switchover(t, "db2", "permission denied"), -EACCES);
        tenure_free(t);
        fake_end();
}

/* ---- the outcome ---- */

static struct tenure_call *requested;

static bool has_looked(void *s)
{
        return ((struct switching *) s)->state > SWITCH_LOOK;
}

static bool is_followed(void *arg)
{
        struct switching *s = arg;

        return s->state == SWITCH_WAIT && s->watch->made && s->line->made;
}

/* A tie that has asked the owner of a/1 to hand the lock a over to that of a/3, and follows
 * this from revision 5 on. */
static struct tenure *tie_that_has_asked(void)
{
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        fake.owner = "/tenure/x/sessions/db";
        show_nothing();
        show(0, "a/1", "", 1);
        show(0, "a/3", "", 3);
        CHECK_EQ(tenure_switchover(t, "a", NULL, 3600000, &requested), 0);
        fake_until(t, has_looked, requested->switching);
        show_nothing();
        fake.outcome = NULL;
        fake_until(t, is_followed, requested->switching);
        fake.outcome = &shows.txn;
        return t;
}

/* Reports that @key was put, or deleted if @value is NULL, at @revision, of which there may be
 * @more. */
static void tell_part(const char *key, const char *value, int64_t revision, bool more)
{
        struct switching *s = requested->switching;
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        Pb__KeyValue kv = PB__KEY_VALUE__INIT;
        Pb__Event e = PB__EVENT__INIT, *events[] = {&e};

        kv.key = pb_bytes(key, strlen(key));
        kv.mod_revision = revision;
        if (value) {
                kv.value = pb_bytes(value, strlen(value));
                kv.lease = s->lease;
        } else {
                e.type = PB__EVENT__EVENT_TYPE__DELETE;
        }
        e.kv = &kv;
        p.events = events;
        p.n_events = 1;
        p.fragment = more;
        p.watch_id = strcmp(key, "a.switchover") == 0 ? s->watch->id : s->line->id;
        fake.revision = max_of(fake.revision, revision);
        fake_tell(&p);
}

static void tell(const char *key, const char *value, int64_t revision)
{
        tell_part(key, value, revision, false);
}

/* The result of the switchover once the tie finds that the target's key is gone. */
static int outcome(struct tenure *t)
{
        int r = fake_result(t, requested);
        const struct tenure_switched *got = tenure_call_switched(requested);

        if (r == 0)
                CHECK(got->token == 3 && got->stop_us >= 0 && got->pause_us >= 0);
        else if (!strstr(tenure_call_error(requested), "db no longer waits"))
                test_fail(__FILE__, __LINE__, "'%s'", tenure_call_error(requested));
        tenure_call_free(requested);
        tenure_free(t);
        fake_end();
        return r;
}

TEST(a_target_that_has_released_the_lock_before_the_tie_looks_has_had_it)
{
        struct tenure *t = tie_that_has_asked();

        tell("a.switchover", accepted, 5);
        tell("a/1", NULL, 6);
        CHECK_EQ(outcome(t), 0);
        t = tie_that_has_asked();
        tell("a.switchover", accepted, 5);
        tell("a/1", NULL, 6);
        tell("a.switchover", NULL, 7);
        tell("a/3", NULL, 8);
        CHECK_EQ(outcome(t), 0);
        /* The two watches need not be equally far. */
        t = tie_that_has_asked();
        tell("a/1", NULL, 6);
        tell("a/3", NULL, 8);
        tell("a.switchover", accepted, 5);
        CHECK_EQ(outcome(t), 0);
        /* It has waited again since. */
        t = tie_that_has_asked();
        tell("a.switchover", accepted, 5);
        tell("a/1", NULL, 6);
        show(0, "a/2", "", 2);
        show(1, "a/3", "", 3);
        shows.kv[1][0].create_revision = 9;
        CHECK_EQ(outcome(t), 0);
}

TEST(a_target_that_ends_without_its_report_has_had_the_lock)
{
        struct tenure *t = tie_that_has_asked();
        struct switching *s = requested->switching;

        tell("a/1", NULL, 6);
        show(2, "a.switchover", accepted, s->lease);
        shows.kv[2][0].mod_revision = 5;
        CHECK_EQ(fake_result(t, requested), 0);
        CHECK_EQ(tenure_call_switched(requested)->pause_us, -1);
        tenure_call_free(requested);
        tenure_free(t);
        fake_end();
}

static bool has_looked_again(void *arg)
{
        struct switching *s = arg;

        return s->state == SWITCH_WAIT && s->accepted;
}

TEST(a_holder_that_accepts_while_the_tie_withdraws_hands_over_all_the_same)
{
        struct tenure *t = tie_that_has_asked();
        struct switching *s = requested->switching;

        shows.txn.succeeded = false;
        show(0, "a/1", "", 1);
        show(1, "a/3", "", 3);
        shows.kv[1][0].create_revision = 3;
        show(2, "a.switchover", accepted, s->lease);
        shows.kv[2][0].mod_revision = 5;
        s->until = boot_now(); /* its time is over */
        switching_soon(s);
        fake_until(t, has_looked_again, s);
        show_nothing();
        tell("a/1", NULL, 6);
        CHECK_EQ(outcome(t), 0);
}

TEST(a_holder_that_dies_before_it_accepts_hands_nothing_over)
{
        struct tenure *t = tie_that_has_asked();

        tell("a/1", NULL, 6);
        CHECK_EQ(outcome(t), -ENOENT);
        /* It was another one that accepted. */
        t = tie_that_has_asked();
        tell("a/1", NULL, 5);
        tell("a.switchover", accepted, 6);
        CHECK_EQ(outcome(t), -ENOENT);
}

TEST(a_target_that_goes_before_the_holder_has_not_had_the_lock)
{
        struct tenure *t = tie_that_has_asked();

        tell("a.switchover", accepted, 5);
        tell("a/3", NULL, 6);
        CHECK_EQ(outcome(t), -ENOENT);
        t = tie_that_has_asked();
        tell("a.switchover", accepted, 5);
        tell("a/3", NULL, 6);
        tell("a/1", NULL, 7);
        CHECK_EQ(outcome(t), -ENOENT);
        /* Its place in the line is a new one when it is deleted again. */
        t = tie_that_has_asked();
        tell("a.switchover", accepted, 5);
        tell("a/3", NULL, 6);
        tell("a/1", NULL, 7);
        tell("a/3", NULL, 8);
        CHECK_EQ(outcome(t), -ENOENT);
        /* Somebody deletes all keys of the lock at once. */
        t = tie_that_has_asked();
        tell("a.switchover", accepted, 5);
        tell_part("a/1", NULL, 6, true);
        tell("a/3", NULL, 6);
        CHECK_EQ(outcome(t), -ENOENT);
}

TEST(a_tie_that_has_not_seen_the_holder_go_does_not_know_that_the_target_had_the_lock)
{
        struct tenure *t = tie_that_has_asked();
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;

        tell("a.switchover", accepted, 5);
        p.watch_id = requested->switching->line->id;
        p.canceled = true;
        p.compact_revision = 9;
        fake_tell(&p);
        CHECK_EQ(outcome(t), -ENOENT);
}

TEST(each_allocation_of_a_switchover_may_fail)
{
        bool came = true;

        for (size_t n = 0; came; n++) {
                struct tenure_call *c = NULL;
                struct tenure *t;

                fake_begin();
                t = fake_tie();
                show_nothing();
                nomem_after(n);
                if (tenure_switchover(t, "a", "db2", 1000, &c) == 0)
                        for (int i = 0; i < 20 && tenure_call_result(c) == -EINPROGRESS; i++)
                                fake_turns(t, 1);
                tenure_call_free(c);
                came = nomem_end();
                tenure_free(t);
                fake_end();
                CHECK(n < 1000);
        }
}
