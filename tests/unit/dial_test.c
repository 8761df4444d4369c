/* The order in which the addresses of a name are tried, and how soon. */
#include <netinet/in.h>

#include "loop/dial.h"
#include "test.h"

static struct inet_addresses list(const char *families)
{
        struct inet_addresses a = {0};

        for (; *families; families++, a.n++) {
                struct sockaddr_in6 *s = (struct sockaddr_in6 *) &a.a[a.n].addr;

                s->sin6_family = *families == '6' ? AF_INET6 : AF_INET;
                s->sin6_port = (in_port_t) a.n; /* which it was */
                a.a[a.n].len = sizeof(*s);
        }
        return a;
}

static void check(const char *families, const char *order)
{
        struct inet_addresses a = list(families);

        inet_addresses_alternate(&a);
        CHECK_EQ(a.n, strlen(order));
        for (size_t i = 0; i < a.n; i++)
                CHECK_EQ(((struct sockaddr_in6 *) &a.a[i].addr)->sin6_port, order[i] - '0');
}

TEST(one_family_does_not_come_before_all_of_the_other)
{
        check("", "");
        check("6", "0");
        check("6644", "0213");
        check("66664", "04123");
        check("4666", "0123");
        check("44", "01");
        check("46464646", "01234567");
        check("66666644", "06172345");
}

/* The last one begins, and has time to answer, before a connection is given up. */
TEST(all_addresses_have_their_turn_within_a_second)
{
        for (size_t n = 1; n <= ADDRESSES_MAX; n++) {
                CHECK(dial_delay(n) >= 100 * NSEC_PER_MSEC);
                CHECK(dial_delay(n) <= 250 * NSEC_PER_MSEC);
                CHECK((nsec_t) (n - 1) * dial_delay(n) <= 750 * NSEC_PER_MSEC);
        }
}
