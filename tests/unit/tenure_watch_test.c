/* Watches of libtenure on a core that does what real ones do rarely. */
#include <poll.h>

#include "fake_core.h"
#include "nomem.h"

static bool asked_for(void *arg)
{
        return fake.creates == *(unsigned *) arg;
}

/* One on all keys that begin with k, from @revision on, that the core has. */
static struct tenure_watch *begin_watch(struct tenure *t, int64_t revision)
{
        struct tenure_watch *w;
        unsigned n = fake.creates + 1;

        CHECK_EQ(tenure_watch(t,
                              &(struct tenure_watch_options){.key = "k",
                                                             .key_len = 1,
                                                             .prefix = true,
                                                             .revision = revision},
                              &w),
                 0);
        fake_until(t, asked_for, &n);
        fake_turns(t, 3);
        return w;
}

/* Reports a put of each key, which begins with k, at a revision of one digit: "5a5b6a" means ka
 * and kb at 5, and ka at 6. */
static void tell(const char *what, bool fragment)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        Pb__KeyValue kv[8];
        char key[8][2];
        Pb__Event e[8], *events[8];

        for (; what[2 * p.n_events]; p.n_events++) {
                size_t i = p.n_events;

                pb__key_value__init(&kv[i]);
                pb__event__init(&e[i]);
                kv[i].mod_revision = what[2 * i] - '0';
                key[i][0] = 'k';
                key[i][1] = what[2 * i + 1];
                kv[i].key = pb_bytes(key[i], 2);
                kv[i].value = pb_bytes("v", 1);
                e[i].kv = &kv[i];
                events[i] = &e[i];
                fake.revision = max_of(fake.revision, kv[i].mod_revision);
        }
        p.events = events;
        p.fragment = fragment;
        p.watch_id = fake.id;
        fake_tell(&p);
}

/* What is reported to the program, written in that way; W at the end: the watch has ended. */
static const char *heard(struct tenure *t)
{
        static char text[64];
        const struct tenure_event *e;
        size_t n = 0;

        fake_turns(t, 6);
        text[0] = '\0';
        while ((e = tenure_pop_event(t)) && n + 3 < sizeof(text))
                n += (size_t) (e->type == TENURE_PUT
                                       ? sprintf(text + n, "%d%s", (int) e->revision,
                                                 (const char *) e->kv->key + 1)
                                       : sprintf(text + n, "W"));
        return text;
}

static void break_stream(struct tenure *t)
{
        unsigned n = fake.creates + 1;

        fake_hang_up();
        fake_until(t, asked_for, &n);
        fake_turns(t, 3);
}

/* A watch from 5 that has reported revision 9. */
static struct tenure *tie_that_has_heard_9(void)
{
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        begin_watch(t, 5);
        tell("9a", false);
        CHECK_STR(heard(t), "9a");
        return t;
}

TEST(a_watch_continues_after_what_it_has_reported)
{
        struct tenure_watch *w;
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        w = begin_watch(t, 5);
        CHECK_EQ(fake.start, 5);
        tell("5a", false);
        tell("6b6c7d", true);
        CHECK_STR(heard(t), "5a6b6c7d");
        /* There may be more of revision 7, and possibly of 6, as far as the tie knows; what was
         * reported is not reported again. */
        break_stream(t);
        CHECK_EQ(fake.start, 6);
        tell("6b6c", false);
        CHECK_STR(heard(t), "");
        break_stream(t);
        CHECK_EQ(fake.start, 7);
        tell("7d7e", true);
        CHECK_STR(heard(t), "7e");
        tell("7f", false);
        CHECK_STR(heard(t), "7f");
        tell("7f8g", false); /* a core that repeats an event */
        CHECK_STR(heard(t), "8g");
        break_stream(t);
        CHECK_EQ(fake.start, 9);
        CHECK(!tenure_watch_free(w));
        fake_turns(t, 5);
        CHECK(!fake.watch); /* nobody uses the stream any more */
        tenure_free(t);
        fake_end();
}

TEST(replicas_that_report_a_revision_in_another_order_end_a_watch)
{
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        begin_watch(t, 5);
        tell("7d7e", true);
        CHECK_STR(heard(t), "7d7e");
        break_stream(t);
        tell("7e7f7d", false);
        CHECK_STR(heard(t), "W");
        tenure_free(t);
        fake_end();
}

/* A change of @key, at @revision. */
static void tell_one(const char *key, int64_t revision)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        Pb__KeyValue kv = PB__KEY_VALUE__INIT;
        Pb__Event e = PB__EVENT__INIT, *events[] = {&e};

        kv.mod_revision = revision;
        kv.key = pb_bytes(key, strlen(key));
        e.kv = &kv;
        p.events = events;
        p.n_events = 1;
        p.watch_id = fake.id;
        fake_tell(&p);
}

/* Keys that nobody asked for; and revisions that cannot be, go back on one stream, or are later
 * than the core says it is. What follows the last plausible change is requested again: if a
 * later one were believed, those before it would be taken for repeated. */
TEST(changes_that_cannot_be_are_not_reported)
{
        static const struct {
                const char *key;
                int64_t revision;
        } odd[] = {{"j", 6},  {"l", 6}, {"", 6},  {"k", 0},
                   {"k", -1}, {"k", 4}, {"k", 8}, {"k", INT64_MAX}};
        struct tenure *t;
        unsigned n;

        fake_begin();
        t = fake_tie();
        begin_watch(t, 5);
        tell("5a", false);
        CHECK_STR(heard(t), "5a");
        fake.revision = 7;
        for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
                n = fake.creates + 1;
                tell_one(odd[i].key, odd[i].revision);
                fake_until(t, asked_for, &n);
                CHECK_EQ(fake.start, 6);
                CHECK_STR(heard(t), "");
        }
        tell("6b", false);
        CHECK_STR(heard(t), "6b");
        tenure_free(t);
        fake_end();
}

/* Once it has said that there was none, it may have kept others to itself. */
TEST(a_change_before_what_was_all_ends_a_watch)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        struct tenure *t;

        fake_begin();
        fake.extended = true;
        t = fake_tie();
        begin_watch(t, 5);
        tell("5a", false);
        CHECK_STR(heard(t), "5a");
        fake.revision = 9;
        p.watch_id = -1;
        fake_tell(&p);
        tell("5a", false); /* that once more is no harm */
        CHECK_STR(heard(t), "");
        tell("8b", false);
        CHECK_STR(heard(t), "W");
        tenure_free(t);
        fake_end();
}

static bool has_asked_often(void *arg)
{
        unsigned *n = arg;

        return fake.creates >= *n;
}

/* If a core ends the watch each time, it is asked again a second later, not at once. */
TEST(a_watch_that_ends_each_time_is_not_asked_for_without_pause)
{
        struct boot_time begin = boot_now();
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        begin_watch(t, 5);
        for (unsigned n = 2; n <= 6; n++) {
                pb__watch_response__init(&p);
                p.watch_id = fake.id;
                p.canceled = true;
                fake_tell(&p);
                fake_until(t, has_asked_often, &n);
        }
        CHECK(boot_diff(boot_now(), begin) >= (20 + 40 + 80 + 160) * NSEC_PER_MSEC);
        tenure_free(t);
        fake_end();
}

TEST(a_quiet_watch_continues_from_the_revision_that_progress_reported)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        struct tenure *t;

        fake_begin();
        fake.extended = false;
        t = fake_tie();
        fake.revision = 50;
        begin_watch(t, 0);
        CHECK_EQ(fake.start, 0);
        break_stream(t);
        CHECK_EQ(fake.start, 51); /* since it was made */
        fake.revision = 70;
        p.watch_id = fake.id;
        fake_tell(&p);
        fake_turns(t, 5);
        fake.revision = 90;
        p.watch_id = -1; /* it may come before what it refers to */
        fake_tell(&p);
        fake_turns(t, 5);
        break_stream(t);
        CHECK_EQ(fake.start, 71);
        CHECK_STR(heard(t), "");
        /* A tenure-core reports this when all events have been sent, and for the present
         * revision. */
        fake.extended = true;
        break_stream(t);
        fake_tell(&p);
        fake_turns(t, 5);
        break_stream(t);
        CHECK_EQ(fake.start, 91);
        tenure_free(t);
        fake_end();
}

static const struct tenure_event *ended(struct tenure *t)
{
        const struct tenure_event *e;

        fake_turns(t, 10);
        e = tenure_pop_event(t);
        CHECK(e);
        CHECK_EQ(e->type, TENURE_WATCH_ENDED);
        return e;
}

TEST(a_watch_that_cannot_continue_says_why)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        const struct tenure_event *e;
        struct tenure_watch *w;
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        w = begin_watch(t, 3);
        p.watch_id = fake.id;
        p.canceled = true;
        p.compact_revision = 4;
        fake.revision = 0; /* as etcd sends it */
        fake_tell(&p);
        fake.revision = 4;
        e = ended(t);
        CHECK(e->watch == w);
        CHECK_EQ(e->error, -ENODATA);
        CHECK_EQ(e->revision, 4);
        tenure_watch_free(w);
        /* A watch that is refused has no id: it is the one that was asked for first. */
        fake.create_silently = true;
        w = begin_watch(t, 3);
        p.watch_id = -1;
        p.created = true;
        p.compact_revision = 0;
        p.cancel_reason = (char *) (uintptr_t) "rpc error: code = PermissionDenied desc = "
                                               "etcdserver: permission denied";
        fake_tell(&p);
        e = ended(t);
        CHECK(e->watch == w);
        CHECK_EQ(e->error, -EACCES);
        CHECK_STR(e->reason, "etcdserver: permission denied");
        fake_turns(t, 5);
        CHECK_EQ(fake.creates, 2);
        tenure_free(t);
        fake_end();
}

/* A replica may be late; a core that was restored is behind for good. */
TEST(a_core_that_was_rolled_back_ends_a_watch)
{
        const struct tenure_event *e;
        struct tenure *t;

        t = tie_that_has_heard_9();
        fake.revision = 8; /* late: a watch from that revision gets everything */
        fake_hang_up();
        for (unsigned n = 2; fake.creates < n;)
                fake_turns(t, 1);
        fake.revision = 9;
        CHECK_STR(heard(t), "");
        CHECK_EQ(fake.ranges, 1);
        fake.revision = 3;
        break_stream(t);
        e = ended(t);
        CHECK_EQ(fake.ranges, 2);
        CHECK_EQ(e->error, -ENODATA);
        CHECK(strstr(e->reason, "restored"));
        tenure_free(t);
        fake_end();
}

TEST(a_core_that_was_rolled_back_ends_a_watch_that_has_reported_nothing)
{
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        fake.revision = 9;
        begin_watch(t, 0);
        fake.revision = 3;
        break_stream(t);
        CHECK_EQ(fake.start, 10);
        CHECK_EQ(ended(t)->error, -ENODATA);
        tenure_free(t);
        fake_end();
}

/* So does another cluster at the address of ours: its revisions are others. */
TEST(another_cluster_in_place_of_ours_ends_a_watch)
{
        const struct tenure_event *e;
        struct tenure *t;

        t = tie_that_has_heard_9();
        fake.cluster = 8;
        fake_hang_up();
        fake_turns(t, 50);
        e = ended(t);
        CHECK_EQ(e->error, -ENODATA);
        CHECK_EQ(fake.creates, 1);
        tenure_free(t);
        fake_end();
}

TEST(events_go_with_their_watch)
{
        struct tenure_watch *w;
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        w = begin_watch(t, 5);
        tell("5a6b", false);
        fake_turns(t, 5);
        CHECK_EQ(tenure_get_timeout(t), 0);
        tenure_watch_free(w);
        CHECK(!tenure_pop_event(t));
        fake_turns(t, 5);
        CHECK(!tenure_watch_free(NULL));
        begin_watch(t, 5);
        tell("5a6b", false);
        fake_turns(t, 5);
        tenure_free(t); /* with events, and one under way */
        fake_end();
}

/* A watch is confirmed by the number under which it was asked for. After any other one, 0
 * included, nobody knows whose the events are that follow. */
TEST(a_watch_that_is_confirmed_by_another_number_is_asked_for_again)
{
        static const int64_t odd[] = {0, 1000, -1, -5, INT64_MAX, INT64_MIN};
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        struct tenure *t;
        unsigned n;

        fake_begin();
        t = fake_tie();
        fake.create_silently = true;
        begin_watch(t, 5);
        p.created = true;
        for (size_t i = 0; i < ARRAY_SIZE(odd); i++) {
                n = fake.creates + 1;
                p.watch_id = odd[i];
                fake.create_silently = i + 1 < ARRAY_SIZE(odd);
                fake_tell(&p);
                fake_until(t, asked_for, &n);
                CHECK_EQ(fake.start, 5);
                fake_turns(t, 3);
        }
        tell("5a", false);
        CHECK_STR(heard(t), "5a");
        tenure_free(t);
        fake_end();
}

/* The program has read at a revision that the core does not have any more, or never had: what
 * changes before the core gets there again must not be missed. */
TEST(a_core_that_is_behind_its_own_answer_ends_a_watch)
{
        struct tenure_range q = {.key = "k", .key_len = 1, .prefix = true};
        const struct tenure_event *e;
        struct tenure_call *c;
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        fake.revision = 100;
        CHECK_EQ(tenure_get(t, &q, &c), 0);
        CHECK_EQ(fake_result(t, c), 0);
        CHECK_EQ(tenure_call_revision(c), 100);
        tenure_call_free(c);
        fake.revision = 4;
        begin_watch(t, 101);
        e = ended(t);
        CHECK_EQ(e->error, -ENODATA);
        CHECK(strstr(e->reason, "restored"));
        /* From a revision that nobody has spoken of, it waits. */
        begin_watch(t, 101);
        CHECK_STR(heard(t), "");
        tenure_free(t);
        fake_end();
}

/* A core that went back, and at first does not say so when asked. */
static void ends_at_the_second_doubt(int64_t by)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        struct tenure *t;

        t = tie_that_has_heard_9();
        fake.revision = 3;
        fake.does = FAKE_REFUSES;
        fake.times = 1;
        fake.code = RPC_PERMISSION_DENIED;
        fake.text = "etcdserver: permission denied";
        break_stream(t);
        CHECK_STR(heard(t), "");
        CHECK_EQ(fake.ranges, 1);
        p.watch_id = by == 0 ? fake.id : by;
        fake_tell(&p);
        CHECK_EQ(ended(t)->error, -ENODATA);
        CHECK_EQ(fake.ranges, 2);
        tenure_free(t);
        fake_end();
}

TEST(whether_a_core_was_rolled_back_is_asked_until_it_is_known)
{
        ends_at_the_second_doubt(0);
        ends_at_the_second_doubt(-1);
}

static void count_ends(const struct tenure_event *e, void *arg)
{
        unsigned *n = arg;

        *n += e->type == TENURE_WATCH_ENDED;
}

/* What a lock or a group has read before it watched is read again from the next replica; a
 * program's watch goes on. */
TEST(a_watch_of_what_was_read_ends_with_its_stream)
{
        unsigned ends = 0;
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        watch_until_break(begin_watch(t, 5), count_ends, &ends);
        begin_watch(t, 5);
        CHECK_EQ(fake.creates, 2);
        CHECK_EQ(ends, 0);
        break_stream(t);
        CHECK_EQ(fake.creates, 3);
        CHECK_EQ(ends, 1);
        tell("5a", false);
        CHECK_STR(heard(t), "5a");
        tenure_free(t);
        fake_end();
}

/* ---- a watch from now on, and what its program asks for after it ---- */

/* One on all keys that begin with k, from now on. */
static struct tenure_watch *ask_from_now(struct tenure *t)
{
        struct tenure_watch_options o = {.key = "k", .key_len = 1, .prefix = true};
        struct tenure_watch *w;

        CHECK_EQ(tenure_watch(t, &o, &w), 0);
        return w;
}

/* A tie whose watch from now on was requested, and is not confirmed. */
static struct tenure *tie_with_unconfirmed_watch(void)
{
        struct tenure *t;

        fake_begin();
        fake.create_silently = true;
        t = fake_tie();
        ask_from_now(t);
        return t;
}

/* Puts a key; returns the revision. */
static int64_t put_one(struct tenure *t)
{
        struct tenure_call *c;
        int64_t revision;

        CHECK_EQ(tenure_put(t, "ka", 2, "v", 1, 0, &c), 0);
        CHECK_EQ(fake_result(t, c), 0);
        revision = tenure_call_revision(c);
        tenure_call_free(c);
        return revision;
}

/* Confirms the watch that was asked for last, at @revision. */
static void confirm_watch(struct tenure *t, int64_t revision)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        int64_t now = fake.revision;

        p.watch_id = fake.id;
        p.created = true;
        fake.revision = revision;
        fake_tell(&p);
        fake.revision = max_of(now, revision);
        fake_turns(t, 5);
}

static bool is_created_again(void *arg)
{
        (void) arg;
        return fake.creates == 2;
}

TEST(a_watch_is_asked_for_before_the_calls_that_follow_it)
{
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        ask_from_now(t);
        CHECK_EQ(put_one(t), 5);
        CHECK_EQ(fake.asked_at, 4);
        tell("5a", false);
        CHECK_STR(heard(t), "5a");
        CHECK_EQ(fake.creates, 1);
        tenure_free(t);
        fake_end();
}

TEST(a_watch_that_was_not_confirmed_begins_again_with_the_change_that_followed_it)
{
        struct tenure *t = tie_with_unconfirmed_watch();

        CHECK_EQ(put_one(t), 5);
        put_one(t);
        fake.revision = 8;
        fake.create_silently = false;
        break_stream(t);
        CHECK_EQ(fake.start, 5);
        tell("5a6a8b", false);
        CHECK_STR(heard(t), "5a6a8b");
        tenure_free(t);
        fake_end();
}

TEST(a_watch_that_was_not_confirmed_begins_again_behind_what_was_read_after_it)
{
        struct tenure_range q = {.key = "k", .key_len = 1};
        struct tenure_call *c;
        struct tenure *t = tie_with_unconfirmed_watch();

        CHECK_EQ(tenure_get(t, &q, &c), 0);
        CHECK_EQ(fake_result(t, c), 0);
        fake.revision = 8;
        break_stream(t);
        CHECK_EQ(fake.start, 5);
        tenure_free(t);
        fake_end();
}

/* The core may have received them in another order, if they came on different connections. */
TEST(a_watch_that_is_confirmed_behind_a_change_that_followed_it_goes_back_to_that)
{
        struct tenure *t = tie_with_unconfirmed_watch();

        CHECK_EQ(put_one(t), 5);
        fake.create_silently = false;
        confirm_watch(t, 6);
        fake_until(t, is_created_again, NULL);
        CHECK_EQ(fake.cancels, 1);
        CHECK_EQ(fake.start, 5);
        tell("5a6b", false);
        CHECK_STR(heard(t), "5a6b");
        CHECK_EQ(fake.creates, 2);
        tenure_free(t);
        fake_end();
}

/* A put that is done, and whose answer is under way. */
static struct tenure_call *put_late(struct tenure *t)
{
        struct tenure_call *c;

        fake.does = FAKE_IS_LATE;
        fake.times = 1;
        CHECK_EQ(tenure_put(t, "ka", 2, "v", 1, 0, &c), 0);
        for (unsigned n = fake.puts; fake.puts == n;)
                fake_turns(t, 1);
        return c;
}

static void answer_late(struct tenure *t, struct tenure_call *c)
{
        fake_answer_late();
        CHECK_EQ(fake_result(t, c), 0);
        tenure_call_free(c);
}

TEST(a_watch_goes_back_to_a_change_that_is_answered_after_it_was_confirmed)
{
        struct tenure_call *c;
        struct tenure *t = tie_with_unconfirmed_watch();

        c = put_late(t);
        fake.create_silently = false;
        confirm_watch(t, 5);
        CHECK_EQ(fake.creates, 1);
        answer_late(t, c);
        fake_until(t, is_created_again, NULL);
        CHECK_EQ(fake.start, 5);
        tell("5a", false);
        CHECK_STR(heard(t), "5a");
        tenure_free(t);
        fake_end();
}

/* No change comes behind a later one, even if it can be had only so. */
TEST(a_watch_that_has_reported_a_change_does_not_go_back)
{
        struct tenure_call *c;
        struct tenure *t = tie_with_unconfirmed_watch();

        c = put_late(t);
        confirm_watch(t, 5);
        tell("6b", false);
        CHECK_STR(heard(t), "6b");
        answer_late(t, c);
        fake_turns(t, 10);
        CHECK_EQ(fake.creates, 1);
        tenure_free(t);
        fake_end();
}

/* A transaction that changes nothing has the revision of somebody else's change, which may be
 * older than the watch. */
TEST(what_changes_nothing_leaves_a_watch_where_it_is)
{
        struct tenure_range q = {.key = "k", .key_len = 1};
        struct tenure_call *c;
        struct tenure_txn *x;
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        ask_from_now(t);
        CHECK_EQ(tenure_get(t, &q, &c), 0);
        CHECK_EQ(fake_result(t, c), 0);
        tenure_call_free(c);
        CHECK_EQ(tenure_txn_new(t, &x), 0);
        tenure_txn_if_version(x, "k", 1, '=', 1);
        tenure_txn_put(x, "k", 1, "v", 1, 0);
        CHECK_EQ(tenure_txn_commit(x, &c), 0);
        (void) fake_result(t, c);
        fake_turns(t, 10);
        CHECK_EQ(fake.creates, 1);
        CHECK_EQ(fake.cancels, 0);
        tenure_free(t);
        fake_end();
}

/* Nor does a change that was asked for before it. */
TEST(a_change_before_a_watch_leaves_it_where_it_is)
{
        struct tenure_call *c;
        struct tenure *t;

        fake_begin();
        fake.create_silently = true;
        t = fake_tie();
        c = put_late(t);
        ask_from_now(t);
        fake_turns(t, 5);
        CHECK_EQ(fake.creates, 1);
        answer_late(t, c);
        confirm_watch(t, 6);
        CHECK_EQ(fake.creates, 1);
        CHECK_EQ(fake.cancels, 0);
        tenure_free(t);
        fake_end();
}

/* ---- memory ---- */

#define CALLS 7

/* All of it once, with whatever comes of that. */
static int use_all(struct tenure *t)
{
        struct tenure_range q = {.key = "k", .key_len = 1, .prefix = true};
        struct tenure_watch_options o = {
                .key = "k", .key_len = 1, .prefix = true, .revision = 5};
        struct tenure_watch *w = NULL;
        struct tenure_call *c[CALLS] = {0};
        struct tenure_txn *x;
        struct boot_time end = boot_add(boot_now(), 20 * NSEC_PER_SEC);
        unsigned over = 0;
        bool told = false;
        int r;

        r = tenure_set_endpoints(t, fake.url);
        if (r == 0)
                r = tenure_start(t);
        if (r < 0)
                return r;
        (void) !tenure_watch(t, &o, &w);
        (void) !tenure_put(t, "k", 1, "v", 1, 0, &c[0]);
        (void) !tenure_get(t, &q, &c[1]);
        (void) !tenure_delete(t, &q, &c[2]);
        if (tenure_txn_new(t, &x) == 0) {
                tenure_txn_if_version(x, "k", 1, '=', 1);
                tenure_txn_get(x, &q);
                tenure_txn_else(x);
                tenure_txn_put(x, "k", 1, "v", 1, 0);
                txn_guard(x, "n", 1, 7);
                (void) !tenure_txn_commit(x, &c[3]);
        }
        (void) !tenure_lease_grant(t, 5000, "n", &c[4]);
        (void) !tenure_lease_keys_named(t, "n", &c[5]);
        (void) !tenure_put_named(t, "k", 1, "v", 1, "n", &c[6]);
        (void) !tenure_put(t, "k", 1, "v", 1, 0, NULL);
        while (over < CALLS && boot_before(boot_now(), end)) {
                const struct tenure_event *e;

                if (tenure_dispatch(t) < 0)
                        return -ENOMEM;
                fake_turn();
                nomem_pause(true);
                if (fake.watch && !told) {
                        tell("5a6b", false);
                        told = true;
                }
                nomem_pause(false);
                while ((e = tenure_pop_event(t)))
                        CHECK(e->type >= TENURE_REPLY);
                over = 0;
                for (int k = 0; k < CALLS; k++)
                        over += !c[k] || tenure_call_result(c[k]) != -EINPROGRESS;
                if (over < CALLS) {
                        struct pollfd p = {.fd = tenure_get_fd(t), .events = POLLIN};

                        poll(&p, 1, 1);
                }
        }
        CHECK_EQ(over, CALLS);
        return 0;
}

TEST(calls_and_watches_survive_that_memory_runs_out)
{
        Pb__RangeResponse content = PB__RANGE_RESPONSE__INIT;
        Pb__KeyValue kv = PB__KEY_VALUE__INIT, *kvs[] = {&kv};
        bool came = true;

        kv.key = pb_bytes("k", 1);
        content.kvs = kvs;
        content.n_kvs = 1;
        for (size_t n = 0; came; n++) {
                struct tenure *t = NULL;

                fake_begin();
                fake.content = &content;
                fake.lease_name = "n";
                nomem_after(n);
                if (tenure_new(&t) == 0)
                        (void) !use_all(t);
                tenure_free(t);
                came = nomem_end();
                fake_end();
        }
}
