/* member/switchover.h: the content of a request, its meaning for each client, and the effect of
 * its transactions on the line of a lock, on a real replica. */
#include "member/switchover.h"

#include "rig.h"

/* ---- the request ---- */

static struct switchover some_request(void)
{
        return (struct switchover){.to = "db2",
                                   .from = "db1",
                                   .by = "admin1",
                                   .key = "main/2",
                                   .created = 20,
                                   .within_ms = 30000};
}

TEST(a_request_is_read_as_it_was_written)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct switchover s = some_request(), t;

        strcpy(s.holder, "main/1");
        switchover_write(&s, &b);
        CHECK_EQ(buf_error(&b), 0);
        CHECK_EQ(switchover_read(&t, buf_head(&b), buf_len(&b)), 0);
        CHECK_STR(t.to, s.to);
        CHECK_STR(t.from, s.from);
        CHECK_STR(t.by, s.by);
        CHECK_STR(t.key, s.key);
        CHECK_STR(t.holder, s.holder);
        CHECK_EQ(t.created, 20);
        CHECK_EQ(t.within_ms, 30000);
}

TEST(what_is_no_request_is_refused)
{
        static const char *const texts[] = {
                "",
                "x",
                "[]",
                "{}",
                "{\"key\":\"a/1\"}",
                "{\"key\":\"a/1\",\"created\":1}",
                "{\"key\":\"a/1\",\"created\":1,\"within_ms\":0}",
                "{\"key\":\"a/1\",\"created\":0,\"within_ms\":1}",
                "{\"key\":\"a/1\",\"created\":-1,\"within_ms\":1}",
                "{\"key\":\"a/1\",\"created\":\"1\",\"within_ms\":1}",
                "{\"key\":1,\"created\":1,\"within_ms\":1}",
                "{\"key\":\"\",\"created\":1,\"within_ms\":1}",
        };
        static const char good[] = "{\"key\":\"a/1\",\"created\":1,\"within_ms\":1}";
        static const char ages[] =
                "{\"key\":\"a/1\",\"created\":1,\"within_ms\":9223372036854775807}";
        struct switchover s;

        for (size_t i = 0; i < ARRAY_SIZE(texts); i++)
                CHECK_EQ(switchover_read(&s, texts[i], strlen(texts[i])), -EBADMSG);
        CHECK_EQ(switchover_read(&s, good, strlen(good)), 0);
        /* Nanoseconds of it are counted. */
        CHECK_EQ(switchover_read(&s, ages, strlen(ages)), 0);
        CHECK_EQ(s.within_ms, 86400000);
}

TEST(what_a_request_means_to_a_holder)
{
        struct switchover s = some_request();
        const struct switchover_at target = {"main/2", 6, 20}, holder = {"main/1", 6, 10};

        CHECK_EQ(switchover_judge(&s, &holder), SWITCHOVER_ASKED);
        CHECK_EQ(switchover_judge(&s, &target), SWITCHOVER_TARGET);
        strcpy(s.holder, "main/1");
        CHECK_EQ(switchover_judge(&s, &holder), SWITCHOVER_ACCEPTED);
        /* The one that accepted has died, and we are next. */
        CHECK_EQ(switchover_judge(&s, &(struct switchover_at){"main/3", 6, 15}),
                 SWITCHOVER_ASKED);
        /* Another life of the target came later; and so did we: the one that was meant is gone.
         */
        CHECK_EQ(switchover_judge(&s, &(struct switchover_at){"main/2", 6, 30}),
                 SWITCHOVER_NOT_OURS);
        CHECK_EQ(switchover_judge(&s, &(struct switchover_at){"main/3", 6, 21}),
                 SWITCHOVER_NOT_OURS);
        /* A name that begins as ours does. */
        strcpy(s.holder, "main/11");
        CHECK_EQ(switchover_judge(&s, &holder), SWITCHOVER_ASKED);
        /* A key that is not the lock's cannot have it: the waiters would be passed over for
         * nobody. */
        strcpy(s.key, "else/2");
        CHECK_EQ(switchover_judge(&s, &holder), SWITCHOVER_NOT_OURS);
        strcpy(s.key, "mai");
        CHECK_EQ(switchover_judge(&s, &holder), SWITCHOVER_NOT_OURS);
        strcpy(s.key, "main/");
        CHECK_EQ(switchover_judge(&s, &holder), SWITCHOVER_NOT_OURS);
}

TEST(a_request_is_none_of_the_locks_keys)
{
        cleanup_(buf_fini) struct buf key = {0}, from = {0}, to = {0};

        switchover_key("a", &key);
        switchover_range("a", &from, &to);
        CHECK_EQ(bytes_cmp(buf_head(&from), buf_len(&from), "a/", 2), 0);
        CHECK_EQ(bytes_cmp(buf_head(&to), buf_len(&to), "a0", 2), 0);
        /* Before them, and in no range of them. */
        CHECK(bytes_cmp(buf_head(&key), buf_len(&key), "a/", 2) < 0);
}

/* ---- the line, on a real replica ---- */

#define LOCK "main"
#define LINE 5 /* keys main/0 to main/4 */

static struct rig_conn *conn;

/* Sends the content of @b and empties it; the caller frees the answer. */
static Pb__TxnResponse *txn(struct buf *b)
{
        Pb__TxnRequest *q;
        Pb__TxnResponse *p;
        struct rig_call call;

        CHECK_EQ(buf_error(b), 0);
        CHECK_EQ(pb_unpack(&pb__txn_request__descriptor, (struct view){buf_head(b), buf_len(b)},
                           &q),
                 0);
        rig_ask(conn, &call, "/etcdserverpb.KV/Txn", &q->base);
        rig_wait(&call, 1000);
        CHECK_STR(call.text, "");
        CHECK_EQ(call.code, RPC_OK);
        CHECK_EQ(pb_unpack(&pb__txn_response__descriptor,
                           (struct view){buf_head(&call.message), buf_len(&call.message)}, &p),
                 0);
        pb_free(q);
        rig_forget(&call);
        buf_clear(b);
        return p;
}

static bool succeeds(struct buf *b)
{
        Pb__TxnResponse *p = txn(b);
        bool r = p->succeeded;

        pb_free(p);
        return r;
}

static void delete_key(const char *key)
{
        Pb__DeleteRangeRequest d = PB__DELETE_RANGE_REQUEST__INIT;
        struct rig_call call;

        d.key = pb_bytes(key, strlen(key));
        rig_ask(conn, &call, "/etcdserverpb.KV/DeleteRange", &d.base);
        rig_wait(&call, 1000);
        CHECK_EQ(call.code, RPC_OK);
        rig_forget(&call);
}

static void key_of(unsigned i, char key[16])
{
        snprintf(key, 16, LOCK "/%u", i);
}

static int64_t created(const char *key)
{
        struct kv_key *k = kv_find(&core_state(rig.core)->kv, key, strlen(key));

        return k && kv_live(k) ? k->newest->create_revision : 0;
}

static int64_t modified(const char *key)
{
        struct kv_key *k = kv_find(&core_state(rig.core)->kv, key, strlen(key));

        return k && kv_live(k) ? k->newest->mod_revision : 0;
}

/* Comes, and is last. */
static void come(unsigned i)
{
        char key[16];

        key_of(i, key);
        if (created(key) == 0)
                rig_put(key, 1);
}

static void go(unsigned i)
{
        char key[16];

        key_of(i, key);
        delete_key(key);
}

static int64_t age_of(unsigned i)
{
        char key[16];

        key_of(i, key);
        return created(key);
}

/* The holder's number; -1: none. */
static int holder(void)
{
        int64_t best = INT64_MAX;
        int who = -1;

        for (unsigned i = 0; i < LINE; i++)
                if (age_of(i) > 0 && age_of(i) < best) {
                        best = age_of(i);
                        who = (int) i;
                }
        return who;
}

static struct switchover_at at(unsigned i, char key[16])
{
        key_of(i, key);
        return (struct switchover_at){.key = key, .len = strlen(key), .created = age_of(i)};
}

static struct switchover to(unsigned i)
{
        struct switchover s = {.to = "db", .within_ms = 1000, .created = age_of(i)};

        key_of(i, s.key);
        return s;
}

static bool asks(const struct switchover *s, unsigned from)
{
        cleanup_(buf_fini) struct buf b = {0};
        char key[16];
        struct switchover_at own = at(from, key);

        switchover_ask(LOCK, s, &own, 0, &b);
        return succeeds(&b);
}

/* The holder accepts; the keys between are those of all that are. Returns as
 * switchover_pushed(). */
static int accepts_at(const struct switchover *s, unsigned from, int64_t mod)
{
        cleanup_(buf_fini) struct buf b = {0};
        char key[16], keys[LINE][16];
        struct switchover_at own = at(from, key), between[LINE];
        Pb__TxnResponse *p;
        size_t n = 0;
        int r;

        for (unsigned i = 0; i < LINE; i++)
                if (age_of(i) > own.created && age_of(i) < s->created) {
                        between[n] = at(i, keys[n]);
                        n++;
                }
        switchover_push(LOCK, s, &own, between, n, true, mod, 0, &b);
        p = txn(&b);
        r = switchover_pushed(p, s);
        pb_free(p);
        return r;
}

static int accepts(const struct switchover *s, unsigned from)
{
        return accepts_at(s, from, modified(LOCK ".switchover"));
}

static enum switchover_end hands_over(const struct switchover *s,
                                      const struct switchover_at *own)
{
        cleanup_(buf_fini) struct buf b = {0};
        enum switchover_end end;
        Pb__TxnResponse *p;

        switchover_hand_over(s, own, &b);
        p = txn(&b);
        CHECK_EQ(switchover_ended(p, own, &end), 0);
        pb_free(p);
        return end;
}

static void begin(void)
{
        rig_begin();
        conn = rig_connect(0);
        conn->takes = 1 << 20;
        for (unsigned i = 0; i < LINE; i++)
                come(i);
}

static void end(void)
{
        rig_disconnect(conn);
        rig_end();
}

TEST(the_target_is_next_and_nobody_gets_in_between)
{
        char key[16];
        struct switchover_at own;
        struct switchover s;
        int64_t token;

        begin();
        s = to(3);
        own = at(0, key);
        token = own.created;
        CHECK(asks(&s, 0));
        CHECK(!asks(&s, 0)); /* twice is once, and another one waits for its end */
        CHECK_EQ(accepts(&s, 0), 0);
        CHECK_EQ(accepts(&s, 0), 0); /* again, by the new revision of it */
        /* Between are none any more; those behind the target stay, and so does the holder. */
        CHECK(age_of(1) == 0 && age_of(2) == 0 && age_of(4) > 0);
        CHECK_EQ(holder(), 0);
        come(1); /* they ask again, before the holder has stopped */
        CHECK_EQ(hands_over(&s, &own), SWITCHOVER_DONE);
        CHECK_EQ(holder(), 3);
        CHECK(age_of(3) > token);
        /* In doubt it is done again, and may not take anything from anybody. */
        CHECK_EQ(hands_over(&s, &own), SWITCHOVER_LOST);
        CHECK_EQ(holder(), 3);
        come(0);
        CHECK_EQ(hands_over(&s, &own), SWITCHOVER_LOST);
        CHECK(age_of(0) > age_of(1) && age_of(1) > age_of(4) && age_of(4) > age_of(3));
        end();
}

TEST(a_target_that_is_gone_is_given_nothing)
{
        char key[16];
        struct switchover_at own;
        struct switchover s;

        begin();
        s = to(3);
        own = at(0, key);
        go(3);
        CHECK(!asks(&s, 0));
        come(3); /* another life of it, which was not requested */
        CHECK(!asks(&s, 0));
        s = to(3);
        CHECK(asks(&s, 0));
        go(3);
        CHECK_EQ(accepts(&s, 0), -ESRCH);
        CHECK(age_of(1) > 0 && age_of(2) > 0); /* nothing has changed */
        come(3);
        CHECK_EQ(accepts(&s, 0), -ESRCH);
        delete_key(LOCK ".switchover");
        s = to(3);
        CHECK(asks(&s, 0));
        CHECK_EQ(accepts(&s, 0), 0);
        go(3);
        CHECK_EQ(hands_over(&s, &own), SWITCHOVER_KEPT);
        come(3);
        CHECK_EQ(hands_over(&s, &own), SWITCHOVER_KEPT);
        CHECK_EQ(holder(), 0);
        end();
}

TEST(a_request_that_was_withdrawn_is_not_accepted)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct switchover s;
        int64_t mod;

        begin();
        s = to(2);
        CHECK(asks(&s, 0));
        mod = modified(LOCK ".switchover");
        switchover_withdraw(LOCK, mod, &b);
        CHECK(succeeds(&b));
        CHECK_EQ(accepts_at(&s, 0, mod), -ECANCELED);
        CHECK(age_of(1) > 0);
        /* One that was accepted is not withdrawn by whoever does not know. */
        CHECK(asks(&s, 0));
        mod = modified(LOCK ".switchover");
        CHECK_EQ(accepts(&s, 0), 0);
        switchover_withdraw(LOCK, mod, &b);
        CHECK(!succeeds(&b));
        end();
}

TEST(a_waiter_that_returned_behind_the_target_stays)
{
        cleanup_(buf_fini) struct buf b = {0};
        char key[16], key1[16];
        struct switchover_at own, between;
        struct switchover s;
        Pb__TxnResponse *p;

        begin();
        s = to(2);
        own = at(0, key);
        between = at(1, key1);
        CHECK(asks(&s, 0));
        /* As was seen before 1 went and came. */
        go(1);
        come(1);
        switchover_push(LOCK, &s, &own, &between, 1, true, modified(LOCK ".switchover"), 0, &b);
        p = txn(&b);
        CHECK_EQ(switchover_pushed(p, &s), -ECANCELED);
        pb_free(p);
        CHECK(age_of(1) > age_of(2));
        CHECK_EQ(accepts(&s, 0), 0);
        CHECK(age_of(1) > age_of(2));
        end();
}

TEST(more_than_a_transaction_takes_are_passed_over)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct switchover_at own, between[SWITCHOVER_PUSH_MAX];
        char key[16], keys[SWITCHOVER_PUSH_MAX][24];
        struct switchover s;

        begin();
        for (unsigned i = 0; i < SWITCHOVER_PUSH_MAX; i++) {
                snprintf(keys[i], sizeof(keys[i]), LOCK "/more%u", i);
                rig_put(keys[i], 1);
                between[i] = (struct switchover_at){.key = keys[i], .len = strlen(keys[i])};
        }
        go(4);
        come(4);
        s = to(4);
        own = at(0, key);
        CHECK(asks(&s, 0));
        /* Not the last of them: nothing is accepted yet. */
        switchover_push(LOCK, &s, &own, between, SWITCHOVER_PUSH_MAX, false,
                        modified(LOCK ".switchover"), 0, &b);
        CHECK(succeeds(&b));
        CHECK_EQ(modified(LOCK ".switchover"), created(LOCK ".switchover"));
        for (unsigned i = 0; i < SWITCHOVER_PUSH_MAX; i++)
                CHECK_EQ(created(keys[i]), 0);
        CHECK_EQ(accepts(&s, 0), 0);
        CHECK(modified(LOCK ".switchover") > created(LOCK ".switchover"));
        CHECK_EQ(hands_over(&s, &own), SWITCHOVER_DONE);
        CHECK_EQ(holder(), 4);
        end();
}

/* Whoever comes and goes meanwhile: an accepted request leads to its target while the target is
 * there, and to nobody else; and tokens grow. */
TEST(whoever_comes_and_goes_the_target_is_next)
{
        unsigned done = 0, kept = 0;

        begin();
        for (unsigned round = 0; round < 1500; round++) {
                unsigned who, target;
                struct switchover_at own;
                struct switchover s;
                int64_t token;
                char key[16];

                for (unsigned i = 0; i < LINE; i++)
                        come(i);
                who = (unsigned) holder();
                do
                        target = (unsigned) rnd(0, LINE - 1);
                while (target == who);
                s = to(target);
                own = at(who, key);
                token = own.created;
                CHECK(asks(&s, who));
                for (unsigned n = (unsigned) rnd(0, 3); n > 0; n--) {
                        unsigned i = (unsigned) rnd(0, LINE - 1);

                        if (i != who && (i != target || rnd(0, 9) == 0))
                                go(i);
                        if (rnd(0, 1) == 0)
                                come(i);
                }
                if (accepts(&s, who) < 0) {
                        CHECK(age_of(target) != s.created);
                        delete_key(LOCK ".switchover");
                        continue;
                }
                for (unsigned n = (unsigned) rnd(0, 5); n > 0; n--) {
                        unsigned i = (unsigned) rnd(0, LINE - 1);

                        if (rnd(0, 2) == 0 && i != who && (i != target || rnd(0, 4) == 0))
                                go(i);
                        else
                                come(i);
                }
                /* Its lease ends before it has stopped; or not. */
                if (rnd(0, 3) == 0) {
                        bool there = age_of(target) == s.created;

                        go(who);
                        CHECK(!there || holder() == (int) target);
                } else if (age_of(target) == s.created) {
                        CHECK_EQ(hands_over(&s, &own), SWITCHOVER_DONE);
                        CHECK_EQ(holder(), target);
                        done++;
                } else {
                        CHECK_EQ(hands_over(&s, &own), SWITCHOVER_KEPT);
                        CHECK_EQ(holder(), who);
                        kept++;
                }
                CHECK(holder() == (int) who || holder() < 0 ||
                      age_of((unsigned) holder()) > token);
                delete_key(LOCK ".switchover");
        }
        CHECK(done > 50 && kept > 5);
        end();
}
