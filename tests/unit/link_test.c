#include <arpa/inet.h>
#include <libmnl/libmnl.h>
#include <linux/if.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <stdio.h>

#include "link/link.h"
#include "loop/loop.h"
#include "test.h"

static uint8_t b[512] __attribute__((aligned(8)));

static int feed_link(struct link_table *t, int type, int index, const char *name,
                     unsigned flags)
{
        struct nlmsghdr *h = mnl_nlmsg_put_header(b);
        struct ifinfomsg *i = mnl_nlmsg_put_extra_header(h, sizeof(*i));

        h->nlmsg_type = (uint16_t) type;
        i->ifi_index = index;
        i->ifi_flags = flags;
        mnl_attr_put_strz(h, IFLA_IFNAME, name);
        return link_table_feed(t, b, h->nlmsg_len);
}

static int feed_address(struct link_table *t, int type, int index, const char *text,
                        unsigned prefix_len, uint32_t flags, uint8_t scope)
{
        struct nlmsghdr *h = mnl_nlmsg_put_header(b);
        struct ifaddrmsg *i = mnl_nlmsg_put_extra_header(h, sizeof(*i));
        uint8_t bytes[16];

        h->nlmsg_type = (uint16_t) type;
        i->ifa_family = strchr(text, ':') ? AF_INET6 : AF_INET;
        i->ifa_index = (unsigned) index;
        i->ifa_prefixlen = (uint8_t) prefix_len;
        i->ifa_scope = scope;
        CHECK_EQ(inet_pton(i->ifa_family, text, bytes), 1);
        mnl_attr_put(h, IFA_ADDRESS, i->ifa_family == AF_INET ? 4 : 16, bytes);
        mnl_attr_put_u32(h, IFA_FLAGS, flags);
        return link_table_feed(t, b, h->nlmsg_len);
}

#define UP (IFF_UP | IFF_LOWER_UP)

static void chosen(const struct link_table *t, const char *wanted, const char *source,
                   const char *expected)
{
        char out[256];

        link_table_choose(t, wanted, source, out, sizeof(out));
        CHECK_EQ(strcmp(out, expected), 0);
}

TEST(links_and_addresses_as_the_kernel_reports_them)
{
        struct link_table t;
        char small[16];

        link_table_init(&t);
        CHECK_EQ(feed_link(&t, RTM_NEWLINK, 1, "lo", UP | IFF_LOOPBACK), LINK_CHANGED);
        CHECK_EQ(feed_link(&t, RTM_NEWLINK, 2, "eth0", IFF_UP), LINK_CHANGED);
        CHECK_EQ(feed_link(&t, RTM_NEWLINK, 2, "eth0", IFF_UP), 0);
        CHECK_EQ(feed_address(&t, RTM_NEWADDR, 2, "10.0.0.7", 24, 0, RT_SCOPE_UNIVERSE),
                 LINK_CHANGED | LINK_PATH);
        chosen(&t, "core", "", ""); /* no carrier */
        CHECK_EQ(feed_link(&t, RTM_NEWLINK, 2, "eth0", UP), LINK_CHANGED | LINK_PATH);
        chosen(&t, "core", "", "10.0.0.7");
        chosen(&t, "core", "127.0.0.1", "10.0.0.7");
        chosen(&t, "core", "10.0.0.9", "10.0.0.9");

        /* Tentative, link-local and loopback ones are nowhere to be reached at. */
        CHECK_EQ(feed_address(&t, RTM_NEWADDR, 2, "fd00::7", 64, IFA_F_TENTATIVE, 0), 0);
        feed_address(&t, RTM_NEWADDR, 2, "fe80::1", 64, 0, RT_SCOPE_LINK);
        feed_address(&t, RTM_NEWADDR, 1, "127.0.0.1", 8, 0, RT_SCOPE_HOST);
        chosen(&t, "interface:eth0", "", "10.0.0.7");
        CHECK_EQ(feed_address(&t, RTM_NEWADDR, 2, "fd00::7", 64, 0, 0),
                 LINK_CHANGED | LINK_PATH);
        chosen(&t, "interface:eth0", "", "10.0.0.7,fd00::7");
        chosen(&t, "fd00::/16,10.0.0.0/29,core", "", "fd00::7,10.0.0.7");
        chosen(&t, "10.0.0.8/29,interface:eth1", "", "");
        chosen(&t, "db1.example,core", "10.0.0.7", "db1.example,10.0.0.7");
        link_table_choose(&t, "fd00::/16,10.0.0.0/29", "", small, sizeof(small));
        CHECK_EQ(strcmp(small, "fd00::7"), 0); /* what does not fit is left out */
        CHECK(link_table_has(&t, "10.0.0.7") && !link_table_has(&t, "127.0.0.1"));

        CHECK_EQ(feed_address(&t, RTM_DELADDR, 2, "10.0.0.7", 24, 0, 0), LINK_CHANGED);
        CHECK_EQ(feed_address(&t, RTM_DELADDR, 2, "10.0.0.7", 24, 0, 0), 0);
        chosen(&t, "core", "", "fd00::7");

        /* What a new dump does not have has gone. */
        link_table_dump_begin(&t);
        feed_link(&t, RTM_NEWLINK, 2, "eth0", UP);
        feed_address(&t, RTM_NEWADDR, 2, "10.0.0.8", 24, 0, 0);
        CHECK(link_table_dump_end(&t));
        chosen(&t, "core", "", "10.0.0.8");
        CHECK(link_table_find(&t, 2) && !link_table_find(&t, 1));
        CHECK_EQ(feed_link(&t, RTM_DELLINK, 2, "eth0", 0), LINK_CHANGED);
        chosen(&t, "core", "", "");
        link_table_fini(&t);
}

/* The kernel reports so, to those who follow links, that a link has left its bridge. */
TEST(a_link_that_leaves_a_bridge_is_still_there)
{
        struct nlmsghdr *h = (void *) b;
        struct link_table t;

        link_table_init(&t);
        CHECK_EQ(feed_link(&t, RTM_NEWLINK, 2, "eth0", UP), LINK_CHANGED | LINK_PATH);
        (void) feed_link(&t, RTM_NEWLINK, 2, "eth0", UP); /* the same again, for its bytes */
        h->nlmsg_type = RTM_DELLINK;
        ((struct ifinfomsg *) mnl_nlmsg_get_payload(h))->ifi_family = AF_BRIDGE;
        CHECK_EQ(link_table_feed(&t, b, h->nlmsg_len), 0);
        CHECK(link_table_find(&t, 2));
        link_table_fini(&t);
}

TEST(a_dump_that_ends_with_an_error_has_a_hole)
{
        static const struct {
                int error;
                bool failed;
        } cases[] = {{0, false}, {-ENOBUFS, true}};
        struct link_table t;

        link_table_init(&t);
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct nlmsghdr *h = mnl_nlmsg_put_header(b);

                link_table_dump_begin(&t);
                h->nlmsg_type = NLMSG_DONE;
                *(int *) mnl_nlmsg_put_extra_header(h, sizeof(int)) = cases[i].error;
                CHECK_EQ(link_table_feed(&t, b, h->nlmsg_len), 0);
                CHECK_EQ(t.failed, cases[i].failed);
        }
        link_table_fini(&t);
}

/* An address is as long as its family says; the 12 bytes behind a short one are not ours. */
TEST(addresses_of_another_length_are_refused)
{
        static const struct {
                uint8_t family;
                size_t len;
                int expected;
        } cases[] = {
                {AF_INET, 4, LINK_CHANGED | LINK_PATH},
                {AF_INET, 3, -EBADMSG},
                {AF_INET, 16, -EBADMSG},
                {AF_INET6, 16, LINK_CHANGED | LINK_PATH},
                {AF_INET6, 4, -EBADMSG},
                {AF_INET6, 15, -EBADMSG},
                {AF_INET6, 0, -EBADMSG},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct nlmsghdr *h = mnl_nlmsg_put_header(b);
                struct ifaddrmsg *a = mnl_nlmsg_put_extra_header(h, sizeof(*a));
                uint8_t bytes[16] = {10};
                struct link_table t;

                link_table_init(&t);
                h->nlmsg_type = RTM_NEWADDR;
                a->ifa_family = cases[i].family;
                a->ifa_index = 2;
                mnl_attr_put(h, IFA_ADDRESS, cases[i].len, bytes);
                CHECK_EQ(link_table_feed(&t, b, h->nlmsg_len), cases[i].expected);
                link_table_fini(&t);
        }
}

TEST(choices_of_addresses)
{
        CHECK(link_choice_is_valid("core") && link_choice_is_valid("interface:bond0.7"));
        CHECK(link_choice_is_valid("10.0.0.0/8") && link_choice_is_valid("fd00::/64"));
        CHECK(link_choice_is_valid("10.1.2.3") && link_choice_is_valid("db1.example"));
        CHECK(!link_choice_is_valid("10.0.0.0/33") && !link_choice_is_valid("10.0.0/x"));
        CHECK(!link_choice_is_valid("interface:") && !link_choice_is_valid("") &&
              !link_choice_is_valid("interface:a-name-that-is-too-long"));
        CHECK(link_choice_is_valid("fe80::1") && !link_choice_is_valid("fe80::1::2"));
        CHECK(!link_choice_is_valid("interface=eth0") && !link_choice_is_valid("10.0.0.300") &&
              !link_choice_is_valid("10.0.0.1:80") && !link_choice_is_valid("10.0.1"));
}

static struct loop *loop;
static unsigned n_changed;

static void on_changed(void *userdata)
{
        (void) userdata;
        n_changed++;
        loop_stop(loop);
}

static void on_path(void *userdata)
{
        (void) userdata;
}

TEST(the_kernel_of_this_host_reports_its_loopback)
{
        static const struct links_ops ops = {on_changed, on_path};
        struct links *k;

        CHECK_EQ(loop_new(&loop), 0);
        CHECK_EQ(links_new(&k, loop, &ops, NULL), 0);
        CHECK(!links_known(k));
        loop_run(loop);
        CHECK(links_known(k) && n_changed == 1);
        CHECK(link_table_find(links_table(k), 1) &&
              link_table_find(links_table(k), 1)->loopback);
        links_want_routes(k, true);
        links_want_routes(k, false);
        links_free(k);
        loop_free(loop);
}
