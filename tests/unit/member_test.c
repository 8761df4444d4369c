/* An agent's half on a real core, without sockets. */
#include "member/member.h"
#include "nomem.h"
#include "rig.h"
#include "test.h"

static struct {
        struct member *member;
        struct rig_conn *conn;    /* NULL: the endpoint is down, or only `leaving` is left */
        struct rig_conn *leaving; /* takes no more calls; NULL: none */
        nsec_t offset;            /* by its clock, which goes on while another core begins */
        unsigned losses;
        unsigned renewals;
        struct session_renewal renewal; /* the last one */
        int64_t lease;                  /* the first */
        unsigned hurries;
        unsigned joined;               /* nodes that were not remembered */
        char claimed_by[16], left[32]; /* the last one */
} own;

static struct boot_time now(void)
{
        return boot_add(rig.now, own.offset);
}

/* ---- its shell ---- */

static struct rpc_conn *op_rpc(size_t i, void *u)
{
        (void) i;
        (void) u;
        return own.conn ? own.conn->client : NULL;
}

static void op_nothing(size_t i, void *u)
{
        (void) i;
        (void) u;
}

static void op_hurry(size_t i, nsec_t pace, void *u)
{
        (void) i;
        (void) pace;
        (void) u;
        own.hurries++;
}

static void op_probe(size_t i, nsec_t within, void *u)
{
        (void) i;
        (void) within;
        (void) u;
}

static bool op_is_silent(size_t i, void *u)
{
        (void) i;
        (void) u;
        return false;
}

static const char *op_name(size_t i, void *u)
{
        (void) i;
        (void) u;
        return "http://core:2379";
}

static void op_at(size_t i, char *out, size_t size, void *u)
{
        (void) i;
        (void) u;
        snprintf(out, size, "%s", own.conn ? "10.0.0.1:2379" : "");
}

static void op_soon(void *u)
{
        (void) u;
}

static void op_date(char text[static 32], void *u)
{
        (void) u;
        strcpy(text, "today");
}

static const struct member_ops ops = {.rpc = op_rpc,
                                      .kick = op_nothing,
                                      .want = op_nothing,
                                      .hurry = op_hurry,
                                      .again = op_nothing,
                                      .log_in_again = op_nothing,
                                      .probe = op_probe,
                                      .suspect = op_nothing,
                                      .is_silent = op_is_silent,
                                      .name = op_name,
                                      .at = op_at,
                                      .soon = op_soon,
                                      .date = op_date};

/* ---- what it tells ---- */

static void on_node(const struct member_node *n, int64_t revision, void *u)
{
        (void) n;
        (void) revision;
        (void) u;
}

static void on_joined(const struct member_node *n, int64_t revision, void *u)
{
        (void) n;
        (void) revision;
        (void) u;
        own.joined += !member_remembers(own.member);
}

static void on_left(const struct member_node *n, const char *reason, int64_t revision, void *u)
{
        (void) revision;
        (void) u;
        snprintf(own.left, sizeof(own.left), "%s %s", n->record.name, reason);
}

static void on_service(const struct service *s, int64_t revision, void *u)
{
        (void) s;
        (void) revision;
        (void) u;
}

static void on_removed(const struct service *s, const char *reason, int64_t revision, void *u)
{
        (void) s;
        (void) reason;
        (void) revision;
        (void) u;
}

static void on_session(void *u, enum session_state state, const char *why)
{
        (void) u;
        (void) why;
        own.losses += state == SESSION_LOST;
}

static void on_renewed(void *u, const struct session_renewal *r)
{
        (void) u;
        own.renewal = *r;
        own.renewals++;
}

static void on_synced(void *u, bool synced)
{
        (void) u;
        (void) synced;
}

static void on_claimed(void *u, const struct node_record *by)
{
        (void) u;
        snprintf(own.claimed_by, sizeof(own.claimed_by), "%s", by->name);
}

static const struct member_events events = {
        .members = {.joined = on_joined, .left = on_left, .changed = on_node},
        .services = {.added = on_service, .removed = on_removed, .changed = on_service},
        .session = on_session,
        .renewed = on_renewed,
        .synced = on_synced,
        .claimed = on_claimed};

/* ---- ---- */

static void connect_it(void)
{
        member_at(own.member, now());
        own.conn = rig_connect(0);
        member_up(own.member, 0);
}

static void turn(void)
{
        member_at(own.member, boot_add(now(), RIG_TURN));
        rig_turn();
        (void) member_run(own.member, now());
}

static bool holds_and_knows(void)
{
        const struct session *s = member_session(own.member);

        return s->state == SESSION_HELD && session_holds(s, now()) &&
               member_synced(own.member) && membership_find(member_nodes(own.member), "self");
}

static bool holds_anew(void)
{
        return holds_and_knows() && member_session(own.member)->lease != own.lease;
}

static bool knows_before(void)
{
        return membership_find(member_nodes(own.member), "before") != NULL;
}

static bool knows_after(void)
{
        return membership_find(member_nodes(own.member), "after") != NULL;
}

static void until(bool (*is)(void))
{
        for (unsigned i = 0; !is(); i++) {
                CHECK(i < 20000);
                turn();
        }
}

static void make_with(const char *boots, const struct place *resume)
{
        const struct member_config cfg = {.cluster = "c",
                                          .n_endpoints = 1,
                                          .self = {.name = "self", .id = "i", .boot_id = "b"},
                                          .session = {.ttl = 4 * NSEC_PER_SEC,
                                                      .drift_ppm = 1000,
                                                      .retry = 50 * NSEC_PER_MSEC},
                                          .boots = boots,
                                          .resume = resume,
                                          .boot = now(),
                                          .seed = 1};

        memset(&own, 0, sizeof(own));
        CHECK_EQ(member_new(&own.member, &cfg, &ops, NULL, &events, NULL, now()), 0);
}

static void make_after(const char *boots)
{
        make_with(boots, NULL);
        connect_it();
}

static void make(void)
{
        make_after(NULL);
}

static void begin(void)
{
        rig_begin();
        make();
        until(holds_and_knows);
        own.lease = member_session(own.member)->lease;
}

static void lose_connection(void)
{
        struct rig_conn *c = own.conn;

        member_at(own.member, now());
        own.conn = NULL;
        rig_disconnect(c);
        member_down(own.member, 0, "the connection broke");
}

static void lose_leaving(void)
{
        struct rig_conn *c = own.leaving;

        own.leaving = NULL;
        if (c)
                rig_disconnect(c);
}

static void end(void)
{
        member_close(own.member);
        if (own.conn)
                rig_disconnect(own.conn);
        lose_leaving();
        own.member = member_free(own.member);
        rig_end();
}

static void ask(const char *path, const ProtobufCMessage *m)
{
        struct rig_conn *c = rig_connect(1);
        struct rig_call call;

        rig_ask(c, &call, path, m);
        rig_wait(&call, 1000);
        CHECK_EQ(call.code, RPC_OK);
        rig_forget(&call);
        rig_disconnect(c);
}

/* The key of a node, behind whose name there may be more bytes. */
static void put_bytes(const char *name, size_t len, const char *value, int64_t lease)
{
        Pb__PutRequest q = PB__PUT_REQUEST__INIT;
        uint8_t key[64] = "/tenure/c/nodes/";
        size_t n = strlen("/tenure/c/nodes/");

        CHECK(n + len <= sizeof(key));
        memcpy(key + n, name, len);
        q.key = pb_bytes(key, n + len);
        q.value = pb_bytes(value, strlen(value));
        q.lease = lease;
        ask("/etcdserverpb.KV/Put", &q.base);
}

static void put_node(const char *name, const char *value, int64_t lease)
{
        put_bytes(name, strlen(name), value, lease);
}

/* Another core takes the place of ours, with nothing of it but the id, and comes to @revision
 * before the agent does. */
static void another_core(int64_t revision)
{
        nsec_t was = rig.now.ns + own.offset;

        lose_connection();
        rig_end();
        rig_begin();
        own.offset = was - rig.now.ns;
        while (core_state(rig.core)->revision < revision)
                rig_put("x", 1);
}

static void leave_connection(void)
{
        own.leaving = own.conn;
        own.conn = NULL;
}

static bool was_renewed(void)
{
        return own.renewals > 0;
}

static bool was_renewed_again(void)
{
        return own.renewals > 1;
}

/* What is reported about renewals: on time, and after a connection that was gone for longer
 * than one was due. */
TEST(what_a_renewal_took_is_reported)
{
        struct boot_time first, cut;

        begin();
        until(was_renewed);
        first = own.renewal.sent;
        CHECK_EQ(boot_diff(first, own.renewal.before), 2 * NSEC_PER_SEC);
        CHECK_EQ(own.renewal.due.ns, first.ns);
        CHECK(boot_before(first, own.renewal.acknowledged));
        CHECK(boot_diff(own.renewal.acknowledged, first) < NSEC_PER_SEC);
        lose_connection();
        cut = now();
        while (boot_diff(now(), cut) < 3 * NSEC_PER_SEC)
                turn();
        CHECK_EQ(own.renewals, 1);
        connect_it();
        until(was_renewed_again);
        CHECK_EQ(own.renewal.before.ns, first.ns);
        CHECK(boot_diff(own.renewal.due, first) <= 2 * NSEC_PER_SEC);
        CHECK(boot_diff(own.renewal.acknowledged, cut) >= 3 * NSEC_PER_SEC);
        CHECK_EQ(own.losses, 0);
        end();
}

/* ---- a connection that takes no more calls ---- */

static void begin_and_leave(void)
{
        begin();
        until(was_renewed);
        leave_connection();
}

/* Several terms, in which it is renewed again and again. */
static void terms_pass(void)
{
        struct boot_time since = now();
        unsigned before = own.renewals;

        while (boot_diff(now(), since) < 12 * NSEC_PER_SEC)
                turn();
        CHECK(own.renewals >= before + 5);
        CHECK_EQ(own.losses, 0);
        CHECK_EQ(member_session(own.member)->lease, own.lease);
}

TEST(renewals_continue_over_a_connection_that_takes_no_more_calls)
{
        begin_and_leave();
        terms_pass();
        CHECK(holds_and_knows());
        end();
}

TEST(renewals_move_to_the_connection_that_follows)
{
        begin_and_leave();
        terms_pass();
        CHECK_EQ(rpc_conn_n_calls(own.leaving->client), 2);
        connect_it();
        terms_pass();
        CHECK_EQ(rpc_conn_n_calls(own.leaving->client), 1); /* the watch */
        lose_leaving();
        terms_pass();
        end();
}

/* Whoever takes connections need not be of use. */
TEST(renewals_continue_until_the_connection_that_follows_has_answered_one)
{
        begin_and_leave();
        connect_it();
        own.conn->takes = 0;
        terms_pass();
        own.conn->takes = 64 * 1024;
        terms_pass();
        CHECK_EQ(rpc_conn_n_calls(own.leaving->client), 1); /* the watch */
        end();
}

static bool is_in_jeopardy(void)
{
        return member_session(own.member)->state == SESSION_JEOPARDY;
}

TEST(a_place_in_jeopardy_is_renewed_over_a_connection_that_takes_no_more_calls)
{
        struct boot_time since;

        begin_and_leave();
        own.leaving->takes = 0;
        until(is_in_jeopardy);
        since = now();
        own.leaving->takes = 64 * 1024;
        for (unsigned i = 0; i < 100; i++)
                turn();
        CHECK(!boot_before(own.renewal.sent, since));
        terms_pass();
        end();
}

static bool has_lost(void)
{
        return own.losses > 0;
}

/* A core that is back is found before the place ends, however long it was away. */
TEST(a_place_in_jeopardy_does_not_wait_before_it_connects)
{
        begin();
        lose_connection();
        until(is_in_jeopardy);
        CHECK(own.hurries <= 1);
        until(has_lost);
        CHECK(own.hurries >= 2);
        end();
}

/* I3: what counts is when the last renewal was sent that came through. */
TEST(i3_a_place_ends_with_the_term_when_the_connection_that_was_left_has_ended)
{
        struct boot_time sent;

        begin_and_leave();
        terms_pass();
        sent = own.renewal.sent;
        member_at(own.member, now());
        lose_leaving();
        member_down(own.member, 0, "the connection broke");
        until(has_lost);
        CHECK(boot_diff(now(), sent) <= 4 * NSEC_PER_SEC);
        CHECK_EQ(own.renewal.sent.ns, sent.ns);
        connect_it();
        until(holds_anew);
        end();
}

/* ---- ---- */

/* I10: where all hosts come back at once, an emptied core is soon as far as the one before was,
 * and revisions tell nothing. */
static void check_emptied(int64_t more)
{
        begin();
        put_node("before", "{}", 0);
        until(knows_before);
        another_core(member_nodes(own.member)->revision + more);
        connect_it();
        until(holds_anew);
        CHECK(!knows_before());
        CHECK_EQ(member_nodes(own.member)->n, 1);
        CHECK_EQ(own.losses, 1);
        end();
}

TEST(i10_an_emptied_core_that_is_behind_is_another_one)
{
        check_emptied(-2);
}

TEST(i10_an_emptied_core_that_is_as_far_is_another_one)
{
        check_emptied(0);
}

TEST(i10_an_emptied_core_that_is_further_is_another_one)
{
        check_emptied(7);
}

/* A key that begins with a node's name, and goes on behind a zero byte, is no node's: it
 * neither replaces that node, nor makes one, nor costs a place when the watch has to go on. */
TEST(a_key_with_more_behind_a_name_is_no_nodes)
{
        const struct member_node *self;

        begin();
        put_bytes("self\0x", 6, "{\"id\":\"other\"}", 0);
        put_bytes("ghost\0x", 7, "{}", 0);
        put_node("before", "{}", 0);
        put_bytes("ghost\0y", 7, "{}", 0);
        until(knows_before);
        lose_connection();
        connect_it();
        put_node("after", "{}", 0);
        until(knows_after);
        until(holds_and_knows);
        self = membership_find(member_nodes(own.member), "self");
        CHECK_EQ(self->lease, own.lease);
        CHECK_EQ(member_nodes(own.member)->n, 3);
        CHECK(!membership_find(member_nodes(own.member), "ghost"));
        CHECK_EQ(member_session(own.member)->lease, own.lease);
        CHECK_EQ(own.losses, 0);
        end();
}

static bool forgot_before(void)
{
        return holds_and_knows() && !knows_before();
}

/* What is known of one node may be wrong: if the core has the node that changed before it just
 * as we know it, the nodes are read again, and the place is kept. */
TEST(one_node_that_the_core_does_not_have_costs_no_place)
{
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        int64_t revision, own_revision;

        begin();
        own_revision = membership_find(member_nodes(own.member), "self")->mod_revision;
        put_node("before", "{}", 0);
        until(knows_before);
        revision = member_nodes(own.member)->revision;
        another_core(own_revision - 1);
        grant.id = own.lease;
        grant.ttl = 60;
        ask("/etcdserverpb.Lease/LeaseGrant", &grant.base);
        put_node("self", "{}", own.lease);
        while (core_state(rig.core)->revision <= revision)
                rig_put("x", 1);
        connect_it();
        until(forgot_before);
        CHECK_EQ(member_session(own.member)->lease, own.lease);
        CHECK_EQ(own.losses, 0);
        end();
}

/* The same core is recognized, whatever happened meanwhile: the watch continues. */
TEST(a_watch_continues_where_it_was)
{
        begin();
        lose_connection();
        put_node("before", "{}", 0);
        connect_it();
        until(knows_before);
        /* Also if the revision to continue from is compacted: then everything is read again. */
        lose_connection();
        put_node("after", "{}", 0);
        rig_compact();
        connect_it();
        until(knows_after);
        until(holds_and_knows);
        CHECK_EQ(member_session(own.member)->lease, own.lease);
        CHECK_EQ(member_nodes(own.member)->n, 3);
        CHECK_EQ(own.losses, 0);
        end();
}

static bool knows_new(void)
{
        return membership_find(member_nodes(own.member), "new") != NULL;
}

/* The agent ends in order, and is started again. Meanwhile a node leaves and another one joins,
 * and @history is changed. */
static void restart(void (*history)(struct place *p))
{
        Pb__DeleteRangeRequest q = PB__DELETE_RANGE_REQUEST__INIT;
        const char *key = "/tenure/c/nodes/before";
        struct place p;

        begin();
        put_node("before", "{\"incarnation\":\"1\"}", 0);
        put_node("after", "{}", 0);
        until(knows_after);
        CHECK(member_place(own.member, &p));
        member_close(own.member);
        rig_disconnect(own.conn);
        own.member = member_free(own.member);

        put_node("before", "{\"incarnation\":\"1\",\"leaving\":\"shutdown\"}", 0);
        q.key = pb_bytes(key, strlen(key));
        ask("/etcdserverpb.KV/DeleteRange", &q.base);
        put_node("new", "{}", 0);
        history(&p);
        make_with(NULL, &p);
        CHECK(member_remembers(own.member));
        connect_it();
        until(knows_new);
        until(holds_and_knows);
        CHECK(!member_remembers(own.member));
        CHECK_EQ(member_nodes(own.member)->n, 3);
        CHECK_EQ(member_session(own.member)->lease, p.session.lease);
        CHECK_EQ(own.losses, 0);
}

static void keep_history(struct place *p)
{
        (void) p;
}

static void compact_history(struct place *p)
{
        (void) p;
        rig_compact();
}

/* At that revision there was no node of ours yet. */
static void change_history(struct place *p)
{
        p->followed = 1;
}

TEST(a_restarted_agent_reports_what_happened_meanwhile)
{
        restart(keep_history);
        CHECK_EQ(own.joined, 1);
        CHECK_STR(own.left, "before shutdown");
        CHECK(member_gap(own.member, member_nodes(own.member)->revision) > 0);
        CHECK_EQ(member_gap(own.member, member_nodes(own.member)->revision + 1), 0);
        end();
}

TEST(a_restarted_agent_reports_all_nodes_if_the_history_is_compacted)
{
        restart(compact_history);
        CHECK_EQ(own.joined, 3);
        CHECK_STR(own.left, "");
        end();
}

TEST(a_restarted_agent_reports_all_nodes_if_the_history_is_another)
{
        restart(change_history);
        CHECK_EQ(own.joined, 3);
        CHECK_STR(own.left, "");
        end();
}

/* Tasks and sessions change often, and there are many agents. */
TEST(an_agent_does_not_learn_of_tasks_and_sessions)
{
        static const char *const keys[] = {"/tenure/c/work/g/tasks/1", "/tenure/c/sessions/s",
                                           "/tenure/c/servicesx"};
        int64_t revision;

        begin();
        revision = member_nodes(own.member)->revision;
        for (size_t i = 0; i < ARRAY_SIZE(keys); i++) {
                Pb__PutRequest q = PB__PUT_REQUEST__INIT;

                q.key = pb_bytes(keys[i], strlen(keys[i]));
                ask("/etcdserverpb.KV/Put", &q.base);
                for (unsigned k = 0; k < 100; k++)
                        turn();
                CHECK_EQ(member_nodes(own.member)->revision, revision);
        }
        put_node("after", "{}", 0);
        until(knows_after);
        CHECK_EQ(member_nodes(own.member)->revision, revision + 4);
        end();
}

/* ---- pages that are read some at a time ---- */

#define LARGE_NODES 40

/* All of them are in one page. */
static void begin_with_large_nodes(void)
{
        static char value[60001];
        char name[16];

        rig_begin();
        memset(value, ' ', 60000);
        value[0] = '{';
        value[59999] = '}';
        for (unsigned i = 0; i < LARGE_NODES; i++) {
                snprintf(name, sizeof(name), "n%u", i);
                put_node(name, value, 0);
        }
        make();
        own.conn->takes = 16 << 20;
}

/* Whoever may write the prefix decides how much a page has: reading it delays no renewal. */
TEST(a_page_of_large_records_is_read_some_at_a_time)
{
        size_t most = 0, was;

        begin_with_large_nodes();
        for (unsigned i = 0; i < 20000 && member_nodes(own.member)->n < LARGE_NODES; i++) {
                was = member_nodes(own.member)->n;
                turn();
                most = max_of(most, member_nodes(own.member)->n - was);
        }
        CHECK(most <= 4); /* two slices of two */
        until(holds_and_knows);
        CHECK_EQ(member_nodes(own.member)->n, LARGE_NODES + 1);
        end();
}

static bool knows_some(void)
{
        return member_nodes(own.member)->n > 0;
}

/* Until it has read some of a page, and not all of it. */
static size_t begin_in_a_page(void)
{
        begin_with_large_nodes();
        until(knows_some);
        CHECK(member_nodes(own.member)->n < LARGE_NODES);
        return member_nodes(own.member)->n;
}

/* What the page says is of a core that is void now. */
TEST(a_page_of_a_core_that_was_replaced_is_read_no_further)
{
        Pb__ResponseHeader h = PB__RESPONSE_HEADER__INIT;
        size_t n = begin_in_a_page();

        own.conn->takes = 0;
        h.cluster_id = 1234;
        h.member_id = 1;
        h.revision = 1;
        CHECK(member_answered(own.member, 0, &h));
        CHECK_EQ(member_worlds(own.member), 1);
        for (unsigned i = 0; i < 2 * LARGE_NODES; i++)
                turn();
        CHECK_EQ(member_nodes(own.member)->n, n);
        own.conn->takes = 16 << 20;
        until(holds_and_knows);
        CHECK_EQ(member_nodes(own.member)->n, LARGE_NODES + 1);
        end();
}

/* The membership would have a hole: it is read again from its beginning, after a pause. */
TEST(a_page_that_finds_no_memory_is_read_no_further)
{
        size_t n = begin_in_a_page();

        nomem_after(0);
        (void) member_run(own.member, now());
        CHECK(nomem_end());
        CHECK_EQ(member_nodes(own.member)->n, n);
        for (unsigned i = 0; i < 10; i++)
                turn();
        CHECK_EQ(member_nodes(own.member)->n, n);
        until(holds_and_knows);
        CHECK_EQ(member_nodes(own.member)->n, LARGE_NODES + 1);
        end();
}

/* ---- a response of a watch that comes in parts ---- */

#define MANY_NODES 13000 /* with names of 250 bytes: the events of their end take 4 MiB */
#define IN_A_TXN 100

static ProtobufCBinaryData long_key(char out[static 300], unsigned i)
{
        int n = snprintf(out, 300, "/tenure/c/nodes/many%05u", i % 100000);

        memset(out + n, 'x', 240);
        return pb_bytes(out, (size_t) n + 240);
}

static void put_many(void)
{
        static char keys[IN_A_TXN][300];
        Pb__RequestOp op[IN_A_TXN], *all[IN_A_TXN];
        Pb__PutRequest puts[IN_A_TXN];
        Pb__TxnRequest q = PB__TXN_REQUEST__INIT;

        q.success = all;
        q.n_success = IN_A_TXN;
        for (unsigned i = 0; i < MANY_NODES; i += IN_A_TXN) {
                for (unsigned k = 0; k < IN_A_TXN; k++) {
                        pb__put_request__init(&puts[k]);
                        pb__request_op__init(&op[k]);
                        puts[k].key = long_key(keys[k], i + k);
                        puts[k].value = pb_bytes("{}", 2);
                        op[k].request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
                        op[k].request_put = &puts[k];
                        all[k] = &op[k];
                }
                ask("/etcdserverpb.KV/Txn", &q.base);
        }
}

static void delete_many(void)
{
        Pb__DeleteRangeRequest q = PB__DELETE_RANGE_REQUEST__INIT;

        q.key = pb_bytes("/tenure/c/nodes/many", 20);
        q.range_end = pb_bytes("/tenure/c/nodes/manz", 20);
        ask("/etcdserverpb.KV/DeleteRange", &q.base);
}

static bool knows_many(void)
{
        return member_nodes(own.member)->n == MANY_NODES + 1;
}

static bool knows_fewer(void)
{
        return member_nodes(own.member)->n < MANY_NODES;
}

static bool knows_itself(void)
{
        return member_nodes(own.member)->n == 1;
}

/* The parts of a revision are whole together: no event of the later ones is taken for one that
 * was announced before. */
TEST(i6_all_parts_of_a_revision_are_reported)
{
        int64_t revision;

        begin();
        own.conn->takes = 1 << 20;
        put_many();
        until(knows_many);
        revision = member_nodes(own.member)->revision;
        delete_many();
        until(knows_fewer);
        CHECK_EQ(member_nodes(own.member)->revision, revision);
        until(knows_itself);
        CHECK_EQ(member_nodes(own.member)->revision, revision + 1);
        end();
}

/* What was reported to it before is not part of the history that it knew: so that does not show
 * whether the core was emptied or restored. */
TEST(a_watch_that_ends_between_two_parts_costs_no_place)
{
        begin();
        own.conn->takes = 1 << 20;
        put_many();
        until(knows_many);
        lose_connection();
        put_node("before", "{}", 0);
        put_node("after", "{}", 0);
        delete_many();
        connect_it();
        until(knows_fewer);
        CHECK(knows_after());
        lose_connection();
        connect_it();
        until(holds_and_knows);
        CHECK_EQ(member_nodes(own.member)->n, 3);
        CHECK_EQ(member_session(own.member)->lease, own.lease);
        CHECK_EQ(member_worlds(own.member), 0);
        CHECK_EQ(own.losses, 0);
        end();
}

/* ---- ---- */

static bool has_lease(void)
{
        return member_session(own.member)->lease != 0;
}

static bool has_no_lease(void)
{
        return !has_lease();
}

/* I10: the answer to a registration comes when the lease that was to be registered has been
 * given up as too old, and no other is asked for: nothing is written then, for a key without a
 * lease would stay for ever. */
TEST(i10_no_key_is_written_without_a_lease)
{
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        const char *key = "/tenure/c/nodes/self";
        const struct kv_key *k;

        rig_begin();
        grant.id = 7;
        grant.ttl = 60;
        ask("/etcdserverpb.Lease/LeaseGrant", &grant.base);
        put_node("self", "{\"id\":\"i\",\"boot_id\":\"b\"}", 7); /* to be taken over */
        make();
        until(has_lease);
        member_suppress(own.member, boot_add(now(), 60 * NSEC_PER_SEC));
        own.conn->takes = 0;
        until(has_no_lease);
        own.conn->takes = 64 * 1024;
        for (unsigned i = 0; i < 100; i++)
                turn();
        k = kv_find(&core_state(rig.core)->kv, key, strlen(key));
        CHECK(k && kv_live(k));
        CHECK_EQ(k->newest->lease, 7);
        end();
}

static bool holds(void)
{
        return member_session(own.member)->state == SESSION_HELD;
}

static bool has_ended(void)
{
        return !leases_find(&core_state(rig.core)->leases, 7);
}

/* Services of an earlier life are on its lease, which may last for an hour. */
TEST(the_lease_of_an_earlier_life_is_revoked_until_that_is_answered)
{
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;

        rig_begin();
        grant.id = 7;
        grant.ttl = 3600;
        ask("/etcdserverpb.Lease/LeaseGrant", &grant.base);
        put_node("self", "{\"id\":\"i\",\"boot_id\":\"b\"}", 7);
        make();
        until(holds);
        lose_connection(); /* with what was asked in this turn */
        CHECK(!has_ended());
        connect_it();
        until(has_ended);
        CHECK(holds());
        end();
}

/* ---- another name ---- */

static bool is_listed(const char *name)
{
        const struct kv_key *k;
        char key[64];

        snprintf(key, sizeof(key), "/tenure/c/nodes/%s", name);
        k = kv_find(&core_state(rig.core)->kv, key, strlen(key));
        return k && kv_live(k);
}

static void grant(int64_t id)
{
        Pb__LeaseGrantRequest q = PB__LEASE_GRANT_REQUEST__INIT;

        q.id = id;
        q.ttl = 60;
        ask("/etcdserverpb.Lease/LeaseGrant", &q.base);
}

/* The host was `old` in an earlier boot, and is `self` now. */
static void begin_renamed(const char *boots)
{
        rig_begin();
        grant(7);
        put_node("old", "{\"id\":\"i\",\"boot_id\":\"then\"}", 7);
        put_node("other", "{\"id\":\"j\",\"boot_id\":\"then\"}", 0);
        for (unsigned i = 0; i < 100; i++)
                rig_turn();
        make_after(boots);
}

static bool is_refused(void)
{
        return member_is_refused(own.member) != 0;
}

TEST(i10_a_host_that_booted_with_another_name_is_listed_once)
{
        begin_renamed("then");
        for (unsigned i = 0; !is_listed("self"); i++) {
                CHECK(i < 20000 && is_listed("old"));
                turn();
        }
        CHECK(!is_listed("old"));
        until(has_ended); /* with the services on it */
        until(holds_and_knows);
        CHECK_EQ(strcmp(own.left, "old replaced"), 0);
        CHECK_EQ(*own.claimed_by, '\0');
        CHECK(is_listed("other"));
        end();
}

/* At whatever moment before the host registers another one takes its old name, it keeps it. */
TEST(i10_an_old_name_that_another_host_has_taken_is_not_deleted)
{
        bool too_late = false;

        for (unsigned turns = 0; !too_late; turns++) {
                begin_renamed("then");
                for (unsigned i = 0; i < turns; i++)
                        turn();
                too_late = is_listed("self");
                grant(8);
                put_node("old", "{\"id\":\"k\",\"boot_id\":\"else\"}", 8);
                until(holds_and_knows);
                CHECK(is_listed("old"));
                end();
        }
}

/* The boot of `old` was never ours, so that host may live. */
TEST(i10_a_node_id_that_is_listed_under_another_name_is_refused)
{
        Pb__LeaseRevokeRequest q = PB__LEASE_REVOKE_REQUEST__INIT;

        begin_renamed("before");
        until(is_refused);
        for (unsigned i = 0; i < 100; i++)
                turn();
        CHECK(is_listed("old") && !is_listed("self"));
        q.id = 7;
        ask("/etcdserverpb.Lease/LeaseRevoke", &q.base);
        until(holds_and_knows);
        end();
}

/* The old name alone would be taken over. */
TEST(i10_a_clone_beside_the_old_name_is_refused_too)
{
        rig_begin();
        grant(7);
        put_node("old", "{\"id\":\"i\",\"boot_id\":\"then\"}", 7);
        grant(8);
        put_node("clone", "{\"id\":\"i\",\"boot_id\":\"else\"}", 8);
        for (unsigned i = 0; i < 100; i++)
                rig_turn();
        make_after("then");
        until(is_refused);
        CHECK(is_listed("clone") && is_listed("old") && !is_listed("self"));
        end();
}

/* Agents of 0.1.0 have left the old name beside the new one, so a host that is `self` again, or
 * that was renamed twice, finds several lives of its own. */
TEST(i10_all_earlier_lives_of_a_host_are_taken_over)
{
        static const char *const pairs[][2] = {{"self", "old"}, {"old", "self"}, {"a", "b"}};

        for (size_t i = 0; i < ARRAY_SIZE(pairs); i++) {
                rig_begin();
                for (int64_t k = 0; k < 2; k++) {
                        grant(7 + k);
                        put_node(pairs[i][k], "{\"id\":\"i\",\"boot_id\":\"then\"}", 7 + k);
                }
                for (unsigned k = 0; k < 100; k++)
                        rig_turn();
                make_after("then");
                until(holds_and_knows);
                for (unsigned k = 0; k < 300; k++)
                        turn();
                for (int64_t k = 0; k < 2; k++) {
                        CHECK_EQ(is_listed(pairs[i][k]), strcmp(pairs[i][k], "self") == 0);
                        CHECK(!leases_find(&core_state(rig.core)->leases, 7 + k));
                }
                CHECK(holds());
                end();
        }
}

static bool is_claimed(void)
{
        return strcmp(own.claimed_by, "twin") == 0;
}

/* An agent of 0.1.0 does not look for aliases. */
TEST(a_host_that_registers_with_our_id_is_named)
{
        begin();
        grant(7);
        put_node("twin", "{\"id\":\"i\",\"boot_id\":\"else\"}", 7);
        until(is_claimed);
        CHECK(holds());
        end();
}

/* ---- a place in a core that was forced, and was ended for another one ---- */

/* The place that the agent was left with was renewed so long ago. Then its host sleeps. */
static void check_former_place(nsec_t renewed, nsec_t sleeps)
{
        struct place p = {.core = "00000000000000bb", .session = {.lease = 7}};

        rig_begin();
        snprintf(p.ancestor, sizeof(p.ancestor), "%016llx",
                 (unsigned long long) core_config(rig.core)->cluster_id);
        p.session.ttl = 4 * NSEC_PER_SEC;
        p.session.renewed_at = boot_add(now(), -renewed);
        make_with(NULL, &p);
        (void) member_run(own.member, now());
        own.offset = sleeps;
        connect_it();
        until(holds_anew);
        CHECK(!state_alarmed(core_state(rig.core), PB__ALARM_TYPE__CORRUPT));
        end();
}

/* The other core was kept, and serves again: whoever comes back late does not stop it. */
TEST(i10_a_place_that_is_over_is_in_no_core)
{
        check_former_place(60 * NSEC_PER_SEC, 0);
        check_former_place(NSEC_PER_SEC, 60 * NSEC_PER_SEC);
}
