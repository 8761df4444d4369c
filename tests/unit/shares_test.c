/* However much a connection, an address or a user takes of a pot, others get some of it; and
 * what is taken counts for as long as it is not given back. */
#include "core/shares.h"
#include "test.h"

enum { MAX = 1000, CONNS = 50, ADDRESSES = 6 };

static struct shares shares;

/* Connections of one address, and what they have. */
struct crowd {
        struct requester of[CONNS];
        size_t n[CONNS];
        size_t all;
};

static void come(struct crowd *c, const char *address, const char *user)
{
        struct party *from = shares_address(&shares, address);

        *c = (struct crowd){0};
        for (size_t i = 0; i < CONNS; i++) {
                c->of[i].conn = shares_connection(from);
                if (user)
                        c->of[i].user = shares_user(&shares, user, strlen(user));
        }
        party_unref(from);
}

static void take(struct crowd *c, size_t i)
{
        for (; shares_take(&shares, POT_WRITES, c->of[i], 1); c->all++)
                c->n[i]++;
}

static void take_all(struct crowd *c)
{
        for (size_t i = 0; i < CONNS; i++)
                take(c, i);
}

static void give_all(struct crowd *c)
{
        for (size_t i = 0; i < CONNS; i++)
                for (; c->n[i] > 0; c->n[i]--)
                        shares_give(&shares, POT_WRITES, c->of[i], 1);
}

static void leave(struct crowd *c)
{
        for (size_t i = 0; i < CONNS; i++) {
                party_unref(c->of[i].conn);
                party_unref(c->of[i].user);
        }
}

static void end(void)
{
        CHECK_EQ(shares.pots[POT_WRITES].n, 0);
        CHECK(RB_EMPTY(&shares.named));
        shares_fini(&shares);
}

TEST(an_address_may_have_as_much_as_nobody_has)
{
        struct crowd c[ADDRESSES];
        size_t left = MAX;

        shares_init(&shares, MAX);
        for (size_t i = 0; i < ADDRESSES; i++) {
                come(&c[i], (char[]){(char) ('a' + i), '\0'}, NULL);
                take_all(&c[i]);
                CHECK(c[i].all + 2 >= left * 45 / 100 && c[i].all <= (left + 1) / 2);
                left -= c[i].all;
        }
        CHECK(left > 0);
        CHECK_EQ(shares_left(&shares, POT_READS, c[0].of[0]), MAX); /* another pot */
        for (size_t i = 0; i < ADDRESSES; i++) {
                give_all(&c[i]);
                leave(&c[i]);
        }
        end();
}

TEST(a_connection_may_have_as_much_as_its_address_still_may)
{
        struct crowd c;

        shares_init(&shares, MAX);
        come(&c, "here", NULL);
        take(&c, 0);
        CHECK_EQ(c.n[0], (MAX + 2) / 3);
        take(&c, 1);
        CHECK(c.n[1] > MAX / 10);
        give_all(&c);
        leave(&c);
        end();
}

/* From wherever it comes. */
TEST(a_user_may_have_as_much_as_nobody_has)
{
        struct crowd c[ADDRESSES], other;
        size_t n = 0;

        shares_init(&shares, MAX);
        for (size_t i = 0; i < ADDRESSES; i++) {
                come(&c[i], (char[]){(char) ('a' + i), '\0'}, "greedy");
                take_all(&c[i]);
                n += c[i].all;
        }
        CHECK_EQ(n, MAX / 2);
        come(&other, "elsewhere", "other");
        take_all(&other);
        CHECK(other.all > MAX / 5);
        for (size_t i = 0; i < ADDRESSES; i++) {
                give_all(&c[i]);
                leave(&c[i]);
        }
        give_all(&other);
        leave(&other);
        end();
}

/* Writes are not withdrawn with their calls, nor with their connections. */
TEST(an_address_that_returns_finds_what_it_has)
{
        struct crowd gone, back;

        shares_init(&shares, MAX);
        come(&gone, "here", NULL);
        take_all(&gone);
        leave(&gone);
        come(&back, "here", NULL);
        take_all(&back);
        CHECK(back.all < MAX / 20);
        leave(&back);
        give_all(&gone);
        give_all(&back);
        end();
}

/* Then what is taken ends later than the pots. */
TEST(parties_outlive_their_shares)
{
        struct crowd c;

        shares_init(&shares, MAX);
        come(&c, "here", "user");
        shares_fini(&shares);
        leave(&c);
}
