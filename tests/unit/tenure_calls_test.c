/* Calls, transactions and watches of libtenure on a core that does what real ones do rarely. */
#include <sys/wait.h>
#include <unistd.h>

#include "fake_core.h"
#include "nomem.h"

static struct tenure_call *begin_put(struct tenure *t)
{
        struct tenure_call *c;

        CHECK_EQ(tenure_put(t, "k", 1, "v", 1, 0, &c), 0);
        return c;
}

static struct tenure_call *begin_get(struct tenure *t)
{
        struct tenure_call *c;

        CHECK_EQ(tenure_get(t, &(struct tenure_range){.key = "k", .key_len = 1}, &c), 0);
        return c;
}

/* ---- what is asked anew, and what is not ---- */

TEST(a_change_that_is_not_confirmed_is_in_doubt)
{
        struct tenure_call *c;
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        fake.does = FAKE_HANGS_UP;
        fake.times = 1;
        c = begin_put(t);
        CHECK_EQ(fake_result(t, c), -EREMOTEIO);
        CHECK(strstr(tenure_call_error(c), "may have happened"));
        CHECK(strstr(tenure_call_error(c), fake.url));
        CHECK_EQ(fake.puts, 1);
        tenure_call_free(c);
        /* A timeout that the core reports is no better. */
        fake.does = FAKE_REFUSES;
        fake.times = 1;
        fake.code = RPC_UNAVAILABLE;
        fake.text = "etcdserver: request timed out";
        c = begin_put(t);
        CHECK_EQ(fake_result(t, c), -EREMOTEIO);
        CHECK(strstr(tenure_call_error(c), "request timed out"));
        CHECK_EQ(fake.puts, 2);
        tenure_call_free(c);
        c = begin_put(t);
        CHECK_EQ(fake_result(t, c), 0);
        CHECK_EQ(tenure_call_revision(c), 5);
        tenure_free(t);
        fake_end();
}

TEST(what_changes_nothing_or_was_not_begun_is_asked_again)
{
        struct tenure_call *c;
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        fake.does = FAKE_HANGS_UP;
        fake.times = 2;
        c = begin_get(t);
        CHECK_EQ(fake_result(t, c), 0);
        CHECK_EQ(fake.ranges, 3);
        CHECK_EQ(fake.connections, 3);
        CHECK_EQ(fake.statuses, 3);
        tenure_call_free(c);
        fake.does = FAKE_REFUSES;
        fake.times = 2;
        fake.code = RPC_RESOURCE_EXHAUSTED;
        fake.text = "etcdserver: too many requests";
        c = begin_put(t);
        CHECK_EQ(fake_result(t, c), 0);
        CHECK_EQ(fake.puts, 3);
        tenure_free(t);
        fake_end();
}

/* A login that has ended while many puts are under way: each is refused in its turn, and is
 * made again on the new connection, not in doubt because the old one has gone. */
TEST(a_login_that_has_ended_leaves_nothing_in_doubt)
{
        struct tenure_call *c[8];
        struct tenure *t;

        fake_begin();
        fake.user = "root";
        t = fake_tie();
        c[0] = begin_put(t);
        CHECK_EQ(fake_result(t, c[0]), 0);
        CHECK_EQ(fake.logins, 1);
        tenure_call_free(c[0]);
        fake.does = FAKE_REFUSES;
        fake.one_by_one = true;
        fake.times = ARRAY_SIZE(c);
        fake.code = RPC_UNAUTHENTICATED;
        fake.text = "etcdserver: invalid auth token";
        for (size_t i = 0; i < ARRAY_SIZE(c); i++)
                c[i] = begin_put(t);
        for (size_t i = 0; i < ARRAY_SIZE(c); i++)
                CHECK_EQ(fake_result(t, c[i]), 0);
        CHECK_EQ(fake.logins, 2);
        CHECK_EQ(fake.puts, 1 + 2 * ARRAY_SIZE(c));
        tenure_free(t);
        fake_end();
}

/* Authentication is switched on while a connection is up that was made without it. */
TEST(a_connection_from_before_authentication_logs_in)
{
        struct tenure_call *c;
        struct tenure *t;

        fake_begin();
        fake.user = "root";
        t = fake_tie();
        c = begin_put(t);
        CHECK_EQ(fake_result(t, c), 0);
        tenure_call_free(c);
        fake.does = FAKE_REFUSES;
        fake.times = 1;
        fake.code = RPC_INVALID_ARGUMENT;
        fake.text = "etcdserver: user name is empty";
        c = begin_put(t);
        CHECK_EQ(fake_result(t, c), 0);
        tenure_call_free(c);
        CHECK_EQ(fake.logins, 2);
        CHECK_EQ(fake.puts, 3);
        tenure_free(t);
        fake_end();
}

TEST(what_a_core_refuses_is_an_errno_and_its_own_words)
{
        static const struct {
                enum rpc_code code;
                const char *text;
                int r;
        } cases[] = {
                {RPC_NOT_FOUND, "etcdserver: requested lease not found", -ENOENT},
                {RPC_PERMISSION_DENIED, "etcdserver: permission denied", -EACCES},
                {RPC_INVALID_ARGUMENT, "etcdserver: user name is empty", -EACCES},
                {RPC_UNAUTHENTICATED, "etcdserver: invalid auth token", -EACCES},
                {RPC_RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded", -ENOSPC},
                {RPC_INVALID_ARGUMENT, "etcdserver: request is too large", -EMSGSIZE},
                {RPC_RESOURCE_EXHAUSTED, RPC_ANSWER_TOO_LARGE, -EMSGSIZE},
                {RPC_INVALID_ARGUMENT, "etcdserver: too many operations in txn request",
                 -E2BIG},
                {RPC_INVALID_ARGUMENT, "etcdserver: duplicate key given in txn request",
                 -EINVAL},
                {RPC_OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted",
                 -ENODATA},
                {RPC_OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision",
                 -ERANGE},
                {RPC_FAILED_PRECONDITION, "etcdserver: lease already exists", -EEXIST},
                {RPC_UNIMPLEMENTED, "unknown method", -EOPNOTSUPP},
                {RPC_DATA_LOSS, "etcdserver: corrupt cluster", -EIO},
                {RPC_UNKNOWN, "raft proposal dropped", -EREMOTEIO},
                {RPC_DEADLINE_EXCEEDED, "context deadline exceeded", -EREMOTEIO}};
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct tenure_call *c = begin_put(t);

                fake.does = FAKE_REFUSES;
                fake.times = 1;
                fake.code = cases[i].code;
                fake.text = cases[i].text;
                CHECK_EQ(fake_result(t, c), cases[i].r);
                CHECK(strstr(tenure_call_error(c), cases[i].text));
                tenure_call_free(c);
        }
        CHECK_EQ(fake.puts, ARRAY_SIZE(cases));
        tenure_free(t);
        fake_end();
}

/* A call without an answer has another error than one that nobody waits for. */
TEST(a_child_of_the_program_learns_why_it_has_no_answer)
{
        struct tenure_call *c;
        struct tenure *t;
        int status;
        pid_t pid;

        fake_begin();
        t = fake_tie();
        c = begin_get(t);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
                _exit(tenure_call_wait(c, 1000) != -ECHILD ||
                      !strstr(tenure_error(t), "belongs to the parent of this process"));
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 0);
        CHECK_EQ(tenure_call_wait(c, 0), -ETIMEDOUT);
        CHECK_STR(tenure_error(t), "no answer yet");
        CHECK_EQ(fake_result(t, c), 0);
        tenure_free(t);
        fake_end();
}

TEST(names_of_leases_are_not_sent_to_who_has_none)
{
        struct tenure_call *c;
        struct tenure_txn *x;
        struct tenure *t;

        fake_begin();
        fake.extended = false;
        t = fake_tie();
        CHECK_EQ(tenure_lease_grant(t, 5000, "name", &c), 0);
        CHECK_EQ(fake_result(t, c), -EOPNOTSUPP);
        CHECK_EQ(tenure_lease_find(t, "name", &c), 0);
        CHECK_EQ(fake_result(t, c), -EOPNOTSUPP);
        CHECK_EQ(tenure_lease_keys_named(t, "name", &c), 0);
        CHECK_EQ(fake_result(t, c), -EOPNOTSUPP);
        CHECK_EQ(tenure_lease_renew_named(t, "name", &c), 0);
        CHECK_EQ(fake_result(t, c), -EOPNOTSUPP);
        CHECK_EQ(tenure_lease_revoke_named(t, "name", &c), 0);
        CHECK_EQ(fake_result(t, c), -EOPNOTSUPP);
        CHECK_EQ(tenure_put_named(t, "k", 1, "v", 1, "name", &c), 0);
        CHECK_EQ(fake_result(t, c), -EOPNOTSUPP);
        CHECK(strstr(tenure_call_error(c), "have no names"));
        CHECK_EQ(tenure_txn_new(t, &x), 0);
        tenure_txn_put_named(x, "k", 1, "v", 1, "name");
        CHECK_EQ(tenure_txn_commit(x, &c), 0);
        CHECK_EQ(fake_result(t, c), -EOPNOTSUPP);
        CHECK_EQ(fake.txns + fake.puts, 0);
        CHECK_EQ(tenure_put_named(t, "k", 1, "v", 1, "", &c), -EINVAL);
        CHECK_EQ(tenure_put_named(t, "", 0, "v", 1, "name", &c), -EINVAL);
        CHECK_EQ(tenure_txn_new(t, &x), 0);
        tenure_txn_put_named(x, "k", 1, "v", 1, "");
        CHECK_EQ(tenure_txn_commit(x, NULL), -EINVAL);
        CHECK_EQ(tenure_lease_grant(t, 0, NULL, &c), -EINVAL);
        CHECK_EQ(tenure_lease_grant(t, 5, "", &c), -EINVAL);
        CHECK_EQ(tenure_lease_renew(t, 0, &c), -EINVAL);
        /* None is no name either. */
        CHECK_EQ(tenure_lease_find(t, NULL, &c), -EINVAL);
        CHECK(strstr(tenure_error(t), "a lease's name has 1 to"));
        CHECK_EQ(tenure_lease_keys_named(t, NULL, &c), -EINVAL);
        CHECK_EQ(tenure_lease_renew_named(t, NULL, &c), -EINVAL);
        CHECK_EQ(tenure_lease_revoke_named(t, NULL, &c), -EINVAL);
        CHECK_EQ(tenure_put_named(t, "k", 1, "v", 1, NULL, &c), -EINVAL);
        CHECK_EQ(tenure_txn_new(t, &x), 0);
        tenure_txn_put_named(x, "k", 1, "v", 1, NULL);
        CHECK_EQ(tenure_txn_commit(x, NULL), -EINVAL);
        CHECK_EQ(tenure_switchover(t, NULL, NULL, 1000, &c), -EINVAL);
        tenure_free(t);
        fake_end();
}

/* A tenure-core that skips names, for it is older, has answered for the lease 0. */
TEST(an_answer_by_name_repeats_the_name)
{
        struct tenure_call *c;
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        CHECK_EQ(tenure_lease_find(t, "name", &c), 0);
        CHECK_EQ(fake_result(t, c), -EOPNOTSUPP);
        tenure_call_free(c);
        fake.lease_name = "name";
        CHECK_EQ(tenure_lease_keys_named(t, "name", &c), 0);
        CHECK_EQ(fake_result(t, c), 0);
        CHECK_EQ(tenure_call_lease(c), 5);
        CHECK_EQ(tenure_call_ttl_ms(c), 9000);
        CHECK_EQ(tenure_call_n_kvs(c, 0), 2);
        CHECK_EQ(tenure_call_count(c, 0), 2);
        CHECK_STR(tenure_call_kv(c, 0, 0)->key, "a");
        CHECK_STR(tenure_call_kv(c, 0, 1)->key, "bc");
        CHECK_EQ(tenure_call_kv(c, 0, 1)->value_len, 0);
        tenure_call_free(c);
        CHECK_EQ(tenure_lease_time_to_live(t, 5, &c), 0);
        CHECK_EQ(fake_result(t, c), 0);
        CHECK_STR(tenure_call_lease_name(c), "name");
        tenure_call_free(c);
        /* The core's names are bytes; the beginning of one is the name of another lease. */
        fake.lease_name = "name\0s";
        fake.lease_name_more = 2;
        CHECK_EQ(tenure_lease_time_to_live(t, 5, &c), 0);
        CHECK_EQ(fake_result(t, c), 0);
        CHECK_STR(tenure_call_lease_name(c), "");
        tenure_call_free(c);
        tenure_free(t);
        fake_end();
}

/* ---- the program's side ---- */

TEST(a_call_is_waited_for_taken_or_forgotten)
{
        const struct tenure_event *e;
        struct tenure_call *a, *b;
        struct tenure *t;

        CHECK_EQ(tenure_new(&t), 0);
        CHECK_EQ(tenure_put(t, "", 0, "v", 1, 0, NULL), -EINVAL);
        CHECK_EQ(tenure_put(t, "k", 1, "v", 1, -2, NULL), -EINVAL);
        CHECK_EQ(tenure_put(t, "k", 1, "v", 1, TENURE_LEASE_OURS, NULL), -ESTALE);
        CHECK_EQ(tenure_get(t, &(struct tenure_range){0}, NULL), -EINVAL);
        CHECK_EQ(tenure_get(t, &(struct tenure_range){.prefix = true, .end = "x", .end_len = 1},
                            NULL),
                 -EINVAL);
        CHECK_EQ(tenure_delete(t, &(struct tenure_range){.key = "k", .key_len = 1, .limit = 1},
                               NULL),
                 -EINVAL);
        a = begin_put(t);
        CHECK_EQ(tenure_call_wait(a, 0), -ENOTCONN);
        CHECK_EQ(tenure_call_n_kvs(a, 0), 0);
        CHECK(!tenure_call_kv(a, 0, 0));
        tenure_free(t); /* and what was asked for */

        fake_begin();
        t = fake_tie();
        CHECK_EQ(tenure_put(t, "k", 1, "v", 1, 0, NULL), 0); /* no answer is wanted */
        a = begin_put(t);
        b = begin_get(t);
        CHECK_EQ(tenure_call_wait(a, 0), -ETIMEDOUT);
        CHECK_EQ(fake_result(t, a), 0);
        CHECK_EQ(fake_result(t, b), 0);
        CHECK_EQ(tenure_call_wait(a, 0), 0); /* its event goes with that */
        e = tenure_pop_event(t);
        CHECK_EQ(e->type, TENURE_REPLY);
        CHECK(e->call == b);
        CHECK(!tenure_pop_event(t));
        tenure_call_free(a);
        tenure_call_free(b);
        CHECK_EQ(fake.puts, 2);
        /* Freed while it waits, is under way, or has its event in line. */
        tenure_call_free(begin_get(t));
        a = begin_get(t);
        fake.does = FAKE_IS_SILENT;
        fake.times = 1;
        fake_turns(t, 5);
        tenure_call_free(a);
        a = begin_get(t);
        CHECK_EQ(fake_result(t, a), 0);
        tenure_call_free(a);
        CHECK(!tenure_pop_event(t));
        CHECK(!tenure_call_free(NULL));
        begin_get(t);
        fake_turns(t, 1);
        begin_get(t);
        tenure_free(t);
        fake_end();
}

/* ---- transactions ---- */

static Pb__TxnRequest *asked(void)
{
        Pb__TxnRequest *q;

        CHECK_EQ(pb_unpack(&pb__txn_request__descriptor,
                           (struct view){buf_head(&fake.txn), buf_len(&fake.txn)}, &q),
                 0);
        return q;
}

/* "There is one key, which is not here, and no more" says nothing about the keys. */
TEST(an_answer_that_lacks_keys_is_not_believed)
{
        Pb__RangeResponse content = PB__RANGE_RESPONSE__INIT;
        struct tenure_range q = {.key = "k", .key_len = 1};
        struct tenure_call *c;
        struct tenure *t;

        fake_begin();
        fake.content = &content;
        content.count = 1;
        t = fake_tie();
        CHECK_EQ(tenure_get(t, &q, &c), 0);
        CHECK_EQ(fake_result(t, c), -EBADMSG);
        tenure_call_free(c);
        q.count_only = true;
        CHECK_EQ(tenure_get(t, &q, &c), 0);
        CHECK_EQ(fake_result(t, c), 0);
        CHECK_EQ(tenure_call_count(c, 0), 1);
        tenure_call_free(c);
        q.count_only = false;
        q.limit = 1;
        content.more = true; /* a core may have its own limits */
        CHECK_EQ(tenure_get(t, &q, &c), 0);
        CHECK_EQ(fake_result(t, c), 0);
        tenure_free(t);
        fake_end();
}

TEST(a_transaction_that_cannot_be_is_not_sent)
{
        struct tenure_txn *x;
        struct tenure *t;

        CHECK_EQ(tenure_new(&t), 0);
        CHECK_EQ(tenure_txn_new(t, &x), 0);
        tenure_txn_if_version(x, "k", 1, '?', 1);
        tenure_txn_put(x, "", 0, "v", 1, 0);
        CHECK_EQ(tenure_txn_commit(x, NULL), -EINVAL);
        CHECK(strstr(tenure_error(t), "'?'")); /* the first error */
        CHECK_EQ(tenure_txn_new(t, &x), 0);
        tenure_txn_else(x);
        tenure_txn_else(x);
        CHECK_EQ(tenure_txn_commit(x, NULL), -EINVAL);
        CHECK_EQ(tenure_txn_new(t, &x), 0);
        tenure_txn_put(x, "k", 1, "v", 1, 0);
        CHECK(!tenure_txn_free(x));
        CHECK(!tenure_txn_free(NULL));
        tenure_free(t);
}

/* What happens else is guarded as well: it is in one that holds only while the key is on its
 * lease. */
TEST(a_guard_that_fails_is_distinguished_from_conditions_that_do_not_hold)
{
        Pb__TxnResponse p = PB__TXN_RESPONSE__INIT, inner = PB__TXN_RESPONSE__INIT;
        Pb__ResponseOp op = PB__RESPONSE_OP__INIT, put_op = PB__RESPONSE_OP__INIT,
                       *ops[] = {&op}, *inner_ops[] = {&put_op};
        Pb__RangeResponse range = PB__RANGE_RESPONSE__INIT;
        Pb__PutResponse put = PB__PUT_RESPONSE__INIT;
        Pb__KeyValue kv = PB__KEY_VALUE__INIT, *kvs[] = {&kv};
        struct tenure_call *c;
        struct tenure *t;

        fake_begin();
        t = fake_tie();
        p.responses = ops;
        p.n_responses = 1;
        fake.outcome = &p;
        for (int i = 0; i < 4; i++) {
                Pb__TxnRequest *q;
                struct tenure_txn *x;
                static const int results[] = {-ESTALE, -ESTALE, -ECANCELED, 0};

                CHECK_EQ(tenure_txn_new(t, &x), 0);
                tenure_txn_if_value(x, "a", 1, '=', "b", 1);
                tenure_txn_put(x, "c", 1, "d", 1, 0);
                tenure_txn_else(x);
                tenure_txn_put(x, "e", 1, "f", 1, 0);
                txn_guard(x, "node", 4, 77);
                CHECK_EQ(tenure_txn_commit(x, &c), 0);
                op.response_case = PB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE;
                op.response_range = &range;
                range.kvs = kvs;
                range.n_kvs = i == 0 ? 0 : 1;
                kv.lease = 78;
                p.succeeded = i >= 2;
                if (i >= 2) {
                        op.response_case = PB__RESPONSE_OP__RESPONSE_RESPONSE_TXN;
                        op.response_txn = &inner;
                        inner.succeeded = i == 3;
                        inner.responses = inner_ops;
                        inner.n_responses = 1;
                        put_op.response_case = PB__RESPONSE_OP__RESPONSE_RESPONSE_PUT;
                        put_op.response_put = &put;
                }
                CHECK_EQ(fake_result(t, c), results[i]);
                CHECK(i > 0 || strstr(tenure_call_error(c), "000000000000004d"));
                CHECK(i != 1 || strstr(tenure_call_error(c), "000000000000004e"));
                tenure_call_free(c);
                q = asked();
                CHECK_EQ(q->n_compare, 1);
                CHECK_EQ(q->compare[0]->target, PB__COMPARE__COMPARE_TARGET__LEASE);
                CHECK_EQ(q->compare[0]->lease, 77);
                CHECK_EQ(bytes_cmp(q->compare[0]->key.data, q->compare[0]->key.len, "node", 4),
                         0);
                CHECK_EQ(q->n_success, 1);
                CHECK_EQ(q->success[0]->request_case, PB__REQUEST_OP__REQUEST_REQUEST_TXN);
                CHECK_EQ(q->success[0]->request_txn->n_compare, 1);
                CHECK_EQ(q->success[0]->request_txn->n_failure, 1);
                CHECK_EQ(q->n_failure, 1);
                CHECK_EQ(q->failure[0]->request_case, PB__REQUEST_OP__REQUEST_REQUEST_RANGE);
                pb_free(q);
        }
        tenure_free(t);
        fake_end();
}

TEST(a_guard_alone_needs_no_nesting)
{
        struct tenure_txn *x;
        struct tenure_call *c;
        struct tenure *t;
        Pb__TxnResponse p = PB__TXN_RESPONSE__INIT;
        Pb__ResponseOp op = PB__RESPONSE_OP__INIT, *ops[] = {&op};
        Pb__PutResponse put = PB__PUT_RESPONSE__INIT;
        Pb__TxnRequest *q;

        fake_begin();
        t = fake_tie();
        op.response_case = PB__RESPONSE_OP__RESPONSE_RESPONSE_PUT;
        op.response_put = &put;
        p.succeeded = true;
        p.responses = ops;
        p.n_responses = 1;
        fake.outcome = &p;
        CHECK_EQ(tenure_txn_new(t, &x), 0);
        txn_guard(x, "node", 4, 77);
        tenure_txn_put(x, "c", 1, "d", 1, 0);
        CHECK_EQ(tenure_txn_commit(x, &c), 0);
        CHECK_EQ(fake_result(t, c), 0);
        q = asked();
        CHECK_EQ(q->success[0]->request_case, PB__REQUEST_OP__REQUEST_REQUEST_PUT);
        CHECK_EQ(q->n_failure, 1);
        pb_free(q);
        /* An answer of another layout is invalid, and the change is in doubt. */
        p.n_responses = 0;
        CHECK_EQ(tenure_txn_new(t, &x), 0);
        txn_guard(x, "node", 4, 77);
        tenure_txn_put(x, "c", 1, "d", 1, 0);
        CHECK_EQ(tenure_txn_commit(x, &c), 0);
        CHECK_EQ(fake_result(t, c), -EREMOTEIO);
        tenure_free(t);
        fake_end();
}
