/* URLs of members, and what a configuration has beside them. */
#include "consensus/address.h"

#include <stdio.h>

#include "test.h"

#define ID UINT64_C(0x00c0ffee00000001)

static const char *join(const char *urls, uint64_t replaced, uint64_t directory, bool will_vote,
                        char out[static ADDRESS_MAX])
{
        struct member_address a = {
                .replaced = replaced, .directory = directory, .will_vote = will_vote};

        snprintf(a.urls, sizeof(a.urls), "%s", urls);
        return address_join(&a, out);
}

static void check_plain(const char *address)
{
        char urls[URLS_MAX];

        CHECK_EQ(address_directory(address), 0);
        CHECK(!address_will_vote(address));
        CHECK_EQ(address_replaced(address), 0);
        CHECK_STR(address_urls(address, urls), address);
}

TEST(an_address_is_split_as_it_was_joined)
{
        static const char two[] = "http://10.0.0.1:2380,https://[::1]:2380";
        char address[ADDRESS_MAX], urls[URLS_MAX];
        struct member_address a;

        CHECK_STR(join(two, 0, 0, false, address), two);
        check_plain(address);
        CHECK_STR(join(two, 0, ID, false, address),
                  "http://10.0.0.1:2380,https://[::1]:2380#00c0ffee00000001");
        CHECK_EQ(address_directory(address), ID);
        CHECK_EQ(address_replaced(address), 0);
        CHECK(!address_will_vote(address));
        CHECK_STR(address_urls(address, urls), two);
        CHECK_STR(join(two, 0x2a, 0, false, address),
                  "http://10.0.0.1:2380,https://[::1]:2380!000000000000002a");
        CHECK_EQ(address_directory(address), 0);
        CHECK_EQ(address_replaced(address), 0x2a);
        CHECK_STR(address_urls(address, urls), two);
        CHECK_STR(join(two, 0x2a, ID, true, address),
                  "http://10.0.0.1:2380,https://[::1]:2380!000000000000002a+00c0ffee00000001");
        CHECK_EQ(address_directory(address), ID);
        CHECK_EQ(address_replaced(address), 0x2a);
        CHECK(address_will_vote(address));
        CHECK_STR(address_urls(address, urls), two);
        CHECK_STR(join("http://a:1", 0, 0, true, address), "http://a:1+0000000000000000");
        CHECK_EQ(address_directory(address), 0);
        CHECK(address_will_vote(address));
        CHECK_STR(address_urls(address, urls), "http://a:1");
        CHECK_STR(join(urls, 0, ID, true, address), "http://a:1+00c0ffee00000001");
        CHECK_EQ(address_directory(address), ID);
        CHECK(address_will_vote(address));
        a = address_split(address);
        CHECK_STR(a.urls, "http://a:1");
        CHECK_EQ(a.replaced, 0);
        CHECK_EQ(a.directory, ID);
        CHECK(a.will_vote);
}

/* What release 0.1.0 has written is never taken for more than URLs. */
TEST(urls_alone_are_nothing_else)
{
        check_plain("");
        check_plain("http://a:1");
        check_plain("http://0123456789abcdef:1");
        check_plain("http://a#0123456789abcde:1");
        check_plain("http://a:1#0123456789ABCDEF");
        check_plain("http://a:1#0123456789abcde");
        check_plain("http://a:1!0123456789abcdeg");
}

TEST(the_longest_urls_have_room_for_the_rest)
{
        char most[URLS_MAX], address[ADDRESS_MAX], urls[URLS_MAX];

        memset(most, 'a', sizeof(most) - 1);
        most[sizeof(most) - 1] = '\0';
        CHECK_EQ(address_directory(join(most, 1, ID, false, address)), ID);
        CHECK_EQ(address_replaced(address), 1);
        CHECK_STR(address_urls(address, urls), most);
}
