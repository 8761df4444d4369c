/* Identifying our core, and the owner of this node's key. */
#include "member/claim.h"
#include "member/world.h"
#include "test.h"

#define AT(ms) ((struct boot_time){(ms) *NSEC_PER_MSEC})
#define MS NSEC_PER_MSEC

TEST(another_cluster_is_not_listened_to_while_there_is_a_lease)
{
        struct world w = {0};

        CHECK_EQ(world_judge(&w, 7, false, false, AT(0)), WORLD_OURS);
        CHECK(!world_hear(&w, 7, 100, AT(0)));
        CHECK_EQ(world_judge(&w, 7, true, false, AT(1)), WORLD_OURS);
        CHECK_EQ(world_judge(&w, 8, true, false, AT(1)), WORLD_FOREIGN);
        CHECK_EQ(world_judge(&w, 8, true, false, AT(3600000)), WORLD_FOREIGN);
        /* Without one: neither, for as long as ours may come back. */
        CHECK_EQ(world_judge(&w, 8, false, false, AT(9999)), WORLD_FOREIGN);
        CHECK_EQ(world_judge(&w, 8, false, false, AT(10000)), WORLD_NEW);
        CHECK(!world_hear(&w, 7, 100, AT(9000)));
        CHECK_EQ(world_judge(&w, 8, false, false, AT(10000)), WORLD_FOREIGN);
        /* Where all of ours were, it is: there is nothing to wait for. */
        CHECK_EQ(world_judge(&w, 8, true, true, AT(9001)), WORLD_NEW);
        CHECK_EQ(world_judge(&w, 7, true, true, AT(9001)), WORLD_OURS);
        world_begin(&w, 8, 3, AT(9001));
        CHECK_EQ(world_judge(&w, 7, false, false, AT(9002)), WORLD_FOREIGN);
        CHECK_EQ(w.revision, 3);
}

/* A replica may be late by a heartbeat; by two it is odd. */
TEST(a_core_that_goes_back_is_asked)
{
        struct world w = {0};

        CHECK(!world_hear(&w, 7, 100, AT(0)));
        CHECK(!world_hear(&w, 7, 90, AT(0)));
        world_renewal(&w);
        CHECK(!world_hear(&w, 7, 90, AT(0)));
        world_renewal(&w);
        CHECK(world_hear(&w, 7, 99, AT(0)));
        CHECK(!world_hear(&w, 7, 100, AT(0)));
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
