/* No command may have another result because memory runs out: a replica on which an allocation
 * fails either does what all others do or goes no further (I4). */
#include "../whole.h"
#include "nomem.h"
#include "test.h"

struct command {
        enum cmd_type type;
        struct buf body;
        bool by_user;
};

struct script {
        struct command commands[64];
        size_t n;
};

static void script_fini(struct script *s)
{
        for (size_t i = 0; i < s->n; i++)
                buf_fini(&s->commands[i].body);
}

static struct command *command(struct script *s, enum cmd_type type)
{
        struct command *c = &s->commands[s->n++];

        CHECK(s->n <= ARRAY_SIZE(s->commands));
        *c = (struct command){.type = type};
        return c;
}

static void say(struct script *s, enum cmd_type type, const ProtobufCMessage *m)
{
        pb_append(&command(s, type)->body, m);
}

static ProtobufCBinaryData bytes(const char *s)
{
        return pb_bytes(s, strlen(s));
}

static void put(struct script *s, const char *key, const char *value, int64_t lease)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;

        q.key = bytes(key);
        q.value = bytes(value);
        q.lease = lease;
        q.prev_kv = true;
        say(s, CMD_PUT, &q.base);
}

static void grant(struct script *s, int64_t id, const char *name)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;

        q.id = id;
        q.ttl_ms = 10000;
        q.name = bytes(name);
        say(s, CMD_GRANT, &q.base);
}

static void user(struct script *s, const char *name, const char *role)
{
        Pb__AuthUserAddRequest add = PB__AUTH_USER_ADD_REQUEST__INIT;
        Pb__AuthUserGrantRoleRequest may = PB__AUTH_USER_GRANT_ROLE_REQUEST__INIT;
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;

        c.change_case = PB__AUTH_CHANGE__CHANGE_USER_ADD;
        c.user_add = &add;
        add.name = (char *) (uintptr_t) name;
        add.hashedpassword = (char *) (uintptr_t) "$y$";
        say(s, CMD_AUTH, &c.base);
        c.change_case = PB__AUTH_CHANGE__CHANGE_USER_GRANT_ROLE;
        c.user_grant_role = &may;
        may.user = (char *) (uintptr_t) name;
        may.role = (char *) (uintptr_t) role;
        say(s, CMD_AUTH, &c.base);
}

static void role(struct script *s, const char *name, const char *from, const char *to)
{
        Pb__AuthRoleAddRequest add = PB__AUTH_ROLE_ADD_REQUEST__INIT;
        Pb__AuthRoleGrantPermissionRequest may = PB__AUTH_ROLE_GRANT_PERMISSION_REQUEST__INIT;
        Pb__Permission p = PB__PERMISSION__INIT;
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;

        c.change_case = PB__AUTH_CHANGE__CHANGE_ROLE_ADD;
        c.role_add = &add;
        add.name = (char *) (uintptr_t) name;
        say(s, CMD_AUTH, &c.base);
        c.change_case = PB__AUTH_CHANGE__CHANGE_ROLE_GRANT_PERMISSION;
        c.role_grant_permission = &may;
        may.name = add.name;
        may.perm = &p;
        p.permtype = PB__PERMISSION__TYPE__READWRITE;
        p.key = bytes(from);
        p.range_end = bytes(to);
        say(s, CMD_AUTH, &c.base);
}

static void auth(struct script *s)
{
        static const uint8_t secret[AUTH_SECRET_LEN] = {1};
        Pb__AuthEnableChange on = PB__AUTH_ENABLE_CHANGE__INIT;
        Pb__AuthUserChangePasswordRequest pw = PB__AUTH_USER_CHANGE_PASSWORD_REQUEST__INIT;
        Pb__AuthRoleDeleteRequest gone = PB__AUTH_ROLE_DELETE_REQUEST__INIT;
        Pb__AuthChange c = PB__AUTH_CHANGE__INIT;

        role(s, "root", "", "x");
        role(s, "some", "a", "z");
        user(s, "root", "root");
        user(s, "u", "some");
        c.change_case = PB__AUTH_CHANGE__CHANGE_USER_CHANGE_PASSWORD;
        c.user_change_password = &pw;
        pw.name = (char *) (uintptr_t) "root";
        pw.hashedpassword = (char *) (uintptr_t) "$y$2";
        say(s, CMD_AUTH, &c.base);
        c.change_case = PB__AUTH_CHANGE__CHANGE_ENABLE;
        c.enable = &on;
        on.secret = pb_bytes(secret, sizeof(secret));
        say(s, CMD_AUTH, &c.base);
        role(s, "other", "b", "c");
        c.change_case = PB__AUTH_CHANGE__CHANGE_ROLE_DELETE;
        c.role_delete = &gone;
        gone.role = (char *) (uintptr_t) "other";
        say(s, CMD_AUTH, &c.base);
}

/* A compare, a put with the previous value, a range, a deletion, and the same nested. */
static void txn(struct script *s, const char *given_twice)
{
        Pb__PutRequest put_q = PB__PUT_REQUEST__INIT, inner_q = PB__PUT_REQUEST__INIT;
        Pb__RangeRequest range_q = PB__RANGE_REQUEST__INIT;
        Pb__DeleteRangeRequest del_q = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__RequestOp op[5] = {PB__REQUEST_OP__INIT, PB__REQUEST_OP__INIT, PB__REQUEST_OP__INIT,
                               PB__REQUEST_OP__INIT, PB__REQUEST_OP__INIT};
        Pb__RequestOp *ops[] = {&op[0], &op[1], &op[2], &op[3]}, *inner[] = {&op[4]};
        Pb__Compare compare = PB__COMPARE__INIT, *compares[] = {&compare};
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT, nested = PB__TXN_REQUEST__INIT;

        compare.key = bytes("k");
        compare.range_end = bytes("l");
        compare.result = PB__COMPARE__COMPARE_RESULT__GREATER;
        compare.target = PB__COMPARE__COMPARE_TARGET__VERSION;
        put_q.key = bytes("k1");
        put_q.prev_kv = true;
        range_q.key = bytes("a");
        range_q.range_end = bytes("z");
        range_q.sort_target = PB__RANGE_REQUEST__SORT_TARGET__VALUE;
        range_q.sort_order = PB__RANGE_REQUEST__SORT_ORDER__DESCEND;
        del_q.key = bytes("d");
        del_q.range_end = bytes("e");
        del_q.prev_kv = true;
        inner_q.key = bytes(given_twice);
        op[0].request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op[0].request_put = &put_q;
        op[1].request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        op[1].request_range = &range_q;
        op[2].request_case = PB__REQUEST_OP__REQUEST_REQUEST_DELETE_RANGE;
        op[2].request_delete_range = &del_q;
        op[3].request_case = PB__REQUEST_OP__REQUEST_REQUEST_TXN;
        op[3].request_txn = &nested;
        op[4].request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        op[4].request_put = &inner_q;
        nested.success = nested.failure = inner;
        nested.n_success = nested.n_failure = 1;
        q.compare = compares;
        q.n_compare = 1;
        q.success = q.failure = ops;
        q.n_success = q.n_failure = 4;
        say(s, CMD_TXN, &q.base);
}

static void others(struct script *s)
{
        Pb__CacheTerm term = PB__CACHE_TERM__INIT;
        Pb__DeleteRangeRequest del = PB__DELETE_RANGE_REQUEST__INIT;
        Pb__CompactionRequest compact = PB__COMPACTION_REQUEST__INIT;
        Pb__LeaseRevokeRequest revoke = PB__LEASE_REVOKE_REQUEST__INIT;
        Pb__AlarmRequest alarm = PB__ALARM_REQUEST__INIT;
        Pb__Member member = PB__MEMBER__INIT;
        char *urls[] = {(char *) (uintptr_t) "http://a", (char *) (uintptr_t) "http://b"};
        struct cmd_slots slots;
        struct buf *body;

        del.key = bytes("k");
        del.range_end = bytes("l");
        del.prev_kv = true;
        say(s, CMD_DELETE_RANGE, &del.base);
        compact.revision = 5;
        say(s, CMD_COMPACT, &compact.base);
        revoke.id = 2;
        say(s, CMD_REVOKE, &revoke.base);
        body = &command(s, CMD_RENEW)->body;
        cmd_renew_begin(body, &slots, 10000);
        cmd_renew_add(body, &slots, 0, 0);
        body = &command(s, CMD_RENEW_AHEAD)->body;
        cmd_renew_begin(body, &slots, 10000);
        cmd_renew_add(body, &slots, 0, 10);
        body = &command(s, CMD_EXPIRE)->body;
        slots = (struct cmd_slots){0};
        cmd_expire_add(body, &slots, 2, 3);
        command(s, CMD_TICK);
        term.key = bytes("a");
        term.range_end = bytes("z");
        term.term_ms = 1000;
        term.issuer = 5;
        say(s, CMD_CACHE, &term.base);
        put(s, "m", "waits", 0);
        cmd_uncache(&command(s, CMD_UNCACHE)->body, 1, 5, 0);
        cmd_version(&command(s, CMD_VERSION)->body, CLUSTER_NEWEST);
        cmd_descend(&command(s, CMD_DESCEND)->body, 8, 7);
        member.id = 7;
        member.name = (char *) (uintptr_t) "n1";
        member.clienturls = urls;
        member.n_clienturls = 2;
        say(s, CMD_MEMBER, &member.base);
        alarm.action = PB__ALARM_REQUEST__ALARM_ACTION__ACTIVATE;
        alarm.alarm = PB__ALARM_TYPE__NOSPACE;
        alarm.memberid = 7;
        say(s, CMD_ALARM, &alarm.base);
        put(s, "k9", "no space", 0);
}

static void write_script(struct script *s)
{
        grant(s, 1, "");
        grant(s, 2, "named");
        grant(s, 3, "");
        put(s, "k1", "v", 1);
        put(s, "k2", "v", 2);
        put(s, "k3", "v", 2);
        put(s, "d1", "v", 3);
        put(s, "k2", "again", 2);
        auth(s);
        s->commands[s->n].by_user = true;
        put(s, "k4", "by a user", 1);
        txn(s, "m");
        txn(s, "k1"); /* which is put already */
        others(s);
}

struct result {
        int r;
        enum state_outcome outcome;
        uint64_t hash;
        struct buf out;
};

/* Applies @c, the command at @index, to the state that @before is the bytes of; the allocation
 * after @after fails. */
static struct result run(struct view before, const struct command *c, uint64_t index,
                         size_t after, bool *ret_came)
{
        struct state_reply reply = {0};
        struct result res = {0};
        struct cmd cmd = {.type = c->type,
                          .body = {buf_head(&c->body), buf_len(&c->body)},
                          .by_user = c->by_user,
                          .user = {.name = {(const uint8_t *) "u", 1}}};
        struct state s;

        CHECK_EQ(state_load(&s, before), 0);
        pb__response_header__init(&reply.header);
        reply.out = &res.out;
        state_begin(&s, index, (struct lease_time){NSEC_PER_SEC});
        nomem_after(after);
        res.r = state_apply(&s, &cmd, &reply);
        *ret_came = nomem_end();
        if (res.r == 0)
                res.r = buf_error(&res.out); /* as the core looks */
        res.outcome = reply.outcome;
        res.hash = state_hash(&s);
        state_fini(&s);
        return res;
}

static void fail_each(struct view before, const struct command *c, uint64_t index)
{
        bool came = true;
        struct result good = run(before, c, index, SIZE_MAX - 1, &came);

        CHECK(!came);
        CHECK_EQ(good.r, 0);
        came = true;
        for (size_t after = 0; came; after++) {
                struct result res = run(before, c, index, after, &came);

                CHECK(came || res.r == 0);
                if (res.r == 0) {
                        CHECK_EQ(res.outcome, good.outcome);
                        CHECK(res.hash == good.hash);
                        CHECK_EQ(buf_len(&res.out), buf_len(&good.out));
                        CHECK(buf_len(&res.out) == 0 ||
                              memcmp(buf_head(&res.out), buf_head(&good.out),
                                     buf_len(&res.out)) == 0);
                } else {
                        CHECK_EQ(res.r, -ENOMEM);
                }
                buf_fini(&res.out);
        }
        buf_fini(&good.out);
}

TEST(memory_that_runs_out_is_no_outcome)
{
        cleanup_(script_fini) struct script script = {.n = 0};
        unsigned seen = 0, ok = 0;
        struct state s;

        write_script(&script);
        state_init(&s);
        for (size_t i = 0; i < script.n; i++) {
                const struct command *c = &script.commands[i];
                cleanup_(buf_fini) struct buf before = {0};
                struct state_reply reply = {0};
                struct cmd cmd = {.type = c->type,
                                  .body = {buf_head(&c->body), buf_len(&c->body)}};

                state_save(&s, &before);
                CHECK_EQ(buf_error(&before), 0);
                fail_each((struct view){before.data, buf_len(&before)}, c, i + 1);
                state_begin(&s, i + 1, (struct lease_time){NSEC_PER_SEC});
                CHECK_EQ(state_apply(&s, &cmd, &reply), 0);
                seen |= 1u << c->type;
                ok += reply.outcome == STATE_OK;
        }
        CHECK_EQ(seen, (2u << CMD_LAST_) - 2); /* every kind of command was there */
        CHECK_EQ(script.n - ok,
                 3); /* a key given twice, one that waits for a cache, no space */
        state_fini(&s);
}

/* Loading is as honest: out of memory, not damaged. */
TEST(a_snapshot_is_not_damaged_for_want_of_memory)
{
        cleanup_(script_fini) struct script script = {.n = 0};
        cleanup_(buf_fini) struct buf bytes_of = {0};
        struct state s;
        bool came = true;

        write_script(&script);
        state_init(&s);
        for (size_t i = 0; i < script.n; i++) {
                struct state_reply reply = {0};
                struct cmd cmd = {.type = script.commands[i].type,
                                  .body = {buf_head(&script.commands[i].body),
                                           buf_len(&script.commands[i].body)}};

                state_begin(&s, i + 1, (struct lease_time){NSEC_PER_SEC});
                CHECK_EQ(state_apply(&s, &cmd, &reply), 0);
        }
        state_save(&s, &bytes_of);
        for (size_t after = 0; came; after++) {
                struct state back;
                int r;

                nomem_after(after);
                r = state_load(&back, (struct view){bytes_of.data, buf_len(&bytes_of)});
                came = nomem_end();
                CHECK_EQ(r, came ? -ENOMEM : 0);
                state_fini(&back);
        }
        for (size_t after = 0; after == 0 || came; after++) {
                cleanup_(buf_fini) struct buf out = {0};

                nomem_after(after);
                state_save(&s, &out);
                came = nomem_end();
                CHECK_EQ(buf_error(&out), came ? -ENOMEM : 0);
        }
        state_fini(&s);
}
