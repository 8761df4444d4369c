/* Which answer to a change of members is whose: an early refusal is not a lost answer. */
#include "consensus/replica.h"
#include "core/changes.h"
#include "one.h"
#include "rig.h"
#include "test.h"

#define NOW ((struct boot_time){1})
#define LATER(s) ((struct boot_time){1 + (s) *NSEC_PER_SEC})

static struct shares shares;
static struct changes changes;
static unsigned asked, ended;
static int outcome;

/* In place of a replica that takes the change to the leader (UNIT_WRAPS). */
void __wrap_replica_change_members(struct replica *r, uint64_t request,
                                   enum replica_change what, uint64_t id, const char *address);
void __real_replica_change_members(struct replica *r, uint64_t request,
                                   enum replica_change what, uint64_t id, const char *address);
void __wrap_replica_change_members(struct replica *r, uint64_t request,
                                   enum replica_change what, uint64_t id, const char *address)
{
        if (r)
                __real_replica_change_members(r, request, what, id, address);
        else
                asked++;
}

static void done(struct core_change *ch, int with)
{
        (void) ch;
        ended++;
        outcome = with;
}

static struct core_change begin(enum replica_change what)
{
        shares_init(&shares, 0);
        changes = (struct changes){.list = LIST_HEAD_INITIALIZER(changes.list),
                                   .shares = &shares};
        asked = ended = 0;
        return (struct core_change){.done = done, .what = what, .id = 7};
}

TEST(a_change_that_was_made_though_the_answer_was_lost_has_succeeded)
{
        static const struct {
                enum replica_change what;
                int found;
        } made[] = {{REPLICA_PROMOTE, REPLICA_E_VOTER}, {REPLICA_REMOVE, REPLICA_E_UNKNOWN}};

        for (size_t i = 0; i < ARRAY_SIZE(made); i++) {
                struct core_change ch = begin(made[i].what);

                CHECK_EQ(changes_ask(&changes, &ch, NOW, 5 * NSEC_PER_SEC), 0);
                changes_run(&changes, LATER(1)); /* nothing was answered */
                CHECK_EQ(asked, 2);
                changes_answered(&changes, ch.request, made[i].found);
                CHECK_EQ(ended, 1);
                CHECK_EQ(outcome, 0);
        }
}

TEST(a_change_that_another_one_made_is_refused_though_it_was_asked_twice)
{
        struct core_change ch = begin(REPLICA_PROMOTE);

        CHECK_EQ(changes_ask(&changes, &ch, NOW, 5 * NSEC_PER_SEC), 0);
        changes_answered(&changes, ch.request, REPLICA_E_BUSY); /* the other one is under way */
        CHECK_EQ(ended, 0);
        changes_run(&changes, LATER(1));
        CHECK_EQ(asked, 2);
        changes_answered(&changes, ch.request, REPLICA_E_VOTER);
        CHECK_EQ(ended, 1);
        CHECK_EQ(outcome, REPLICA_E_VOTER);
}

/* The leader knows a member that was added by its id, and answers that it is done. So if the
 * URL exists, it is another member's. */
TEST(an_addition_that_another_one_made_is_refused_though_it_was_asked_twice)
{
        static const enum replica_change adds[] = {REPLICA_ADD, REPLICA_ADD_LEARNER};

        for (size_t i = 0; i < ARRAY_SIZE(adds); i++) {
                struct core_change ch = begin(adds[i]);

                CHECK_EQ(changes_ask(&changes, &ch, NOW, 5 * NSEC_PER_SEC), 0);
                changes_run(&changes, LATER(1)); /* nothing was answered */
                changes_answered(&changes, ch.request, REPLICA_E_EXISTS);
                CHECK_EQ(ended, 1);
                CHECK_EQ(outcome, REPLICA_E_EXISTS);
        }
}

/* The first is under way when it is asked for again, so that one is refused; then it is lost.
 */
TEST(a_change_that_stood_in_its_own_way_has_succeeded)
{
        struct core_change ch = begin(REPLICA_PROMOTE);

        CHECK_EQ(changes_ask(&changes, &ch, NOW, 5 * NSEC_PER_SEC), 0);
        changes_run(&changes, LATER(1));
        changes_answered(&changes, ch.request, REPLICA_E_BUSY);
        changes_run(&changes, LATER(2));
        CHECK_EQ(asked, 3);
        changes_answered(&changes, ch.request, REPLICA_E_VOTER);
        CHECK_EQ(ended, 1);
        CHECK_EQ(outcome, 0);
}

/* Who leads no more may have proposed it before. */
TEST(a_change_that_a_deposed_leader_may_have_made_has_succeeded)
{
        struct core_change ch = begin(REPLICA_REMOVE);

        CHECK_EQ(changes_ask(&changes, &ch, NOW, 5 * NSEC_PER_SEC), 0);
        changes_answered(&changes, ch.request, REPLICA_E_NO_LEADER);
        changes_run(&changes, LATER(1));
        changes_answered(&changes, ch.request, REPLICA_E_UNKNOWN);
        CHECK_EQ(ended, 1);
        CHECK_EQ(outcome, 0);
}

/* The first request finds a leader that is not ready, and so changes nothing. */
TEST(the_removal_of_an_unknown_member_is_refused_though_it_was_asked_twice)
{
        struct core_change ch = {.done = done, .what = REPLICA_REMOVE, .id = 7};
        struct boot_time now = {1000 * NSEC_PER_SEC};
        struct disk *disk = sim_disk_new();
        struct replica *replica;
        struct core *core;

        ended = 0;
        one_new(&core, &replica, disk, 1, &(struct core_config){.timeout = 5 * NSEC_PER_SEC},
                now);
        CHECK(!core_status(core).ready);
        CHECK_EQ(core_change_members(core, &ch, 0), 0);
        for (unsigned i = 0; ended == 0; i++) {
                CHECK(i < 1000);
                now = boot_add(now, NSEC_PER_MSEC);
                one_turn(core, replica, disk, now);
        }
        CHECK_EQ(outcome, REPLICA_E_UNKNOWN);
        core_free(core);
        replica_free(replica);
        disk_free(disk);
}

/* Two clients asked for it. */
TEST(all_who_asked_for_the_removal_of_this_replica_are_answered)
{
        struct core_change first = begin(REPLICA_REMOVE), second = begin(REPLICA_REMOVE);

        CHECK_EQ(changes_ask(&changes, &first, NOW, 5 * NSEC_PER_SEC), 0);
        CHECK_EQ(changes_ask(&changes, &second, NOW, 5 * NSEC_PER_SEC), 0);
        changes_removed(&changes, 7);
        CHECK_EQ(ended, 2);
        CHECK_EQ(outcome, 0);
        changes_end(&changes);
}

/* As etcd's clients see it, and they may try again. */
TEST(changes_beyond_a_hundred_that_wait_are_refused)
{
        enum { N = 102 };
        static struct rig_call calls[N];
        Pb__MemberAddRequest q = PB__MEMBER_ADD_REQUEST__INIT;
        char url[32], *urls[] = {url};
        struct rig_conn *c;
        unsigned refused = 0;

        rig_begin();
        c = rig_connect(0);
        q.islearner = true;
        q.peerurls = urls;
        q.n_peerurls = 1;
        for (size_t i = 0; i < N; i++) { /* the first is under way, and the others wait */
                snprintf(url, sizeof(url), "https://host%zu:2380", i);
                rig_ask(c, &calls[i], "/etcdserverpb.Cluster/MemberAdd", &q.base);
        }
        for (unsigned i = 0; i < 100; i++)
                rig_turn();
        for (size_t i = 0; i < N; i++) {
                refused += calls[i].over && calls[i].code == RPC_RESOURCE_EXHAUSTED &&
                           strcmp(calls[i].text, "etcdserver: too many requests") == 0;
                rig_forget(&calls[i]);
        }
        CHECK(refused > 0);
        rig_end();
}
