/* Identifying our core, and the owner of this node's key. */
#include "member/place_claim.h"
#include "member/world.h"
#include "test.h"

#define AT(ms) ((struct boot_time){(ms) *NSEC_PER_MSEC})
#define MS NSEC_PER_MSEC

enum { HELD = 1, OVERDUE = 2, REPLACED = 4 };

static enum world_word judge_core(const struct world *w, uint64_t cluster, uint64_t ancestor,
                                  unsigned we, struct boot_time now)
{
        return world_judge(w,
                           &(struct world_case){.cluster = cluster,
                                                .ancestor = ancestor,
                                                .held = we & HELD,
                                                .overdue = we & OVERDUE,
                                                .replaced = we & REPLACED},
                           now);
}

TEST(another_cluster_is_not_listened_to_while_there_is_a_lease)
{
        struct world w = {0};

        CHECK_EQ(judge_core(&w, 7, 0, 0, AT(0)), WORLD_OURS);
        CHECK(!world_hear(&w, 7, 0, 100, AT(0)));
        CHECK_EQ(judge_core(&w, 7, 0, HELD, AT(1)), WORLD_OURS);
        CHECK_EQ(judge_core(&w, 8, 0, HELD, AT(1)), WORLD_FOREIGN);
        CHECK_EQ(judge_core(&w, 8, 0, HELD, AT(3600000)), WORLD_FOREIGN);
        /* Without one: neither, for as long as ours may come back. */
        CHECK_EQ(judge_core(&w, 8, 0, 0, AT(9999)), WORLD_FOREIGN);
        CHECK_EQ(judge_core(&w, 8, 0, 0, AT(10000)), WORLD_NEW);
        CHECK(!world_hear(&w, 7, 0, 100, AT(9000)));
        CHECK_EQ(judge_core(&w, 8, 0, 0, AT(10000)), WORLD_FOREIGN);
        /* Where all of ours were, it is: there is nothing to wait for. */
        CHECK_EQ(judge_core(&w, 8, 0, HELD | REPLACED, AT(9001)), WORLD_NEW);
        CHECK_EQ(judge_core(&w, 7, 0, HELD | REPLACED, AT(9001)), WORLD_OURS);
        world_begin(&w, 8, 0, 3, AT(9001));
        CHECK_EQ(judge_core(&w, 7, 0, 0, AT(9002)), WORLD_FOREIGN);
        CHECK_EQ(w.revision, 3);
}

TEST(the_heir_of_a_core_that_does_not_answer_is_ours)
{
        struct world w = {0};

        world_begin(&w, 7, 0, 100, AT(0));
        CHECK_EQ(judge_core(&w, 8, 7, HELD, AT(20000)), WORLD_FOREIGN);
        CHECK_EQ(judge_core(&w, 8, 7, HELD | REPLACED, AT(20000)), WORLD_FOREIGN);
        CHECK_EQ(judge_core(&w, 8, 7, HELD | OVERDUE, AT(1)), WORLD_HEIR);
        CHECK_EQ(judge_core(&w, 8, 7, 0, AT(9999)), WORLD_FOREIGN);
        CHECK_EQ(judge_core(&w, 8, 7, 0, AT(10000)), WORLD_HEIR);
        CHECK_EQ(judge_core(&w, 8, 6, HELD | OVERDUE, AT(20000)), WORLD_FOREIGN);
}

TEST(i10_no_place_goes_back_to_the_ancestor_or_to_a_sibling)
{
        struct world w = {0};

        world_begin(&w, 8, 7, 100, AT(0));
        for (unsigned we = HELD; we < 8; we += 2) {
                CHECK_EQ(judge_core(&w, 7, 0, we, AT(20000)), WORLD_FOREIGN);
                CHECK_EQ(judge_core(&w, 9, 7, we, AT(20000)), WORLD_FOREIGN);
        }
        /* A replica that has joined it may not know from what it descends. */
        CHECK_EQ(judge_core(&w, 8, 0, HELD, AT(1)), WORLD_OURS);
        CHECK(!world_hear(&w, 8, 0, 100, AT(1)));
        CHECK_EQ(w.ancestor, 7);
        /* Without a place: as with any other core. */
        CHECK(world_is_present(&w, false, AT(10000)));
        CHECK_EQ(judge_core(&w, 9, 7, 0, AT(10000)), WORLD_FOREIGN);
        CHECK(!world_is_present(&w, false, AT(10001)));
        CHECK_EQ(judge_core(&w, 9, 7, 0, AT(10001)), WORLD_NEW);
}

/* A replica may be late by a heartbeat; by two it is odd. */
TEST(a_core_that_was_rolled_back_is_asked)
{
        struct world w = {0};

        CHECK(!world_hear(&w, 7, 0, 100, AT(0)));
        CHECK(!world_hear(&w, 7, 0, 90, AT(0)));
        world_renewal(&w);
        CHECK(!world_hear(&w, 7, 0, 90, AT(0)));
        world_renewal(&w);
        CHECK(world_hear(&w, 7, 0, 99, AT(0)));
        CHECK(!world_hear(&w, 7, 0, 100, AT(0)));
        CHECK_EQ(w.revision, 100);
}

static enum claim_verdict judge(const char *boot, const char *boots, nsec_t least, nsec_t most,
                                int64_t began, int64_t booted)
{
        struct claim c = {.began = AT(began), .boot = AT(booted)};
        struct node_record self = {.id = "i", .boot_id = "now"}, holder = {.id = "i"};

        snprintf(c.boots, sizeof(c.boots), "%s", boots);
        snprintf(holder.boot_id, sizeof(holder.boot_id), "%s", boot);
        return claim_judge(&c, &self, &holder, least, most, AT(60000));
}

TEST(an_earlier_life_is_taken_over_and_a_clone_is_not)
{
        struct claim c = {0};
        struct node_record self = {.id = "i", .boot_id = "now"};
        struct node_record holder = {.id = "i", .incarnation = "a"};

        CHECK_EQ(claim_look(&c, &self, &holder, 7), CLAIM_ASK);
        CHECK_EQ(claim_look(&c, &self, &holder, 0), CLAIM_OURS); /* on no lease: nobody owns
                                                                  * it */
        claim_add(&c, "a");
        CHECK_EQ(claim_look(&c, &self, &holder, 7), CLAIM_OURS);
        for (int i = 0; i < CLAIM_LIVES; i++)
                claim_add(&c, "b");
        CHECK_EQ(claim_look(&c, &self, &holder, 7), CLAIM_ASK);
        holder.incarnation[0] = '\0';
        CHECK_EQ(claim_look(&c, &self, &holder, 7), CLAIM_ASK);
        strcpy(holder.id, "j");
        CHECK_EQ(claim_look(&c, &self, &holder, 0), CLAIM_FOREIGN);

        /* An agent before us, in this boot; and one that renews while we are here. */
        CHECK_EQ(judge("now", "", 100 * MS, 100 * MS, 59950, 0), CLAIM_OURS);
        CHECK_EQ(judge("now", "", 5000 * MS, 5000 * MS, 59950, 0), CLAIM_OURS);
        CHECK_EQ(judge("now", "", 400 * MS, 400 * MS, 59000, 0), CLAIM_CLONE);
        CHECK_EQ(judge("now", "", 0, 1000 * MS, 59000, 0), CLAIM_OURS); /* the owner is
                                                                         * unknown */
        self.name[0] = 'n'; /* and the same boot with another name */
        CHECK_EQ(claim_judge(&(struct claim){.began = AT(59950)}, &self,
                             &(struct node_record){.id = "i", .boot_id = "now"}, 5000 * MS,
                             5000 * MS, AT(60000)),
                 CLAIM_CLONE);
        /* An earlier boot of ours; one that is said to be, and renews while we are up. */
        CHECK_EQ(judge("then", "old,then,now", 7000 * MS, 7000 * MS, 59000, 54000), CLAIM_OURS);
        CHECK_EQ(judge("then", "then", 5000 * MS, 5000 * MS, 59000, 54000), CLAIM_CLONE);
        CHECK_EQ(judge("then", "then", 5500 * MS, 6500 * MS, 59000, 54000), CLAIM_CLONE);
        /* One that was never ours. */
        CHECK_EQ(judge("the", "then,nowhere", 9000 * MS, 9000 * MS, 59000, 54000), CLAIM_CLONE);
        CHECK_EQ(judge("hen", "then", 9000 * MS, 9000 * MS, 59000, 54000), CLAIM_CLONE);
        CHECK_EQ(judge("", "then,,x", 9000 * MS, 9000 * MS, 59000, 54000), CLAIM_CLONE);
}
