/* The real kernel's messages, in a network namespace of our own: more of them than the socket
 * holds, and dumps that are interrupted. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <libmnl/libmnl.h>
#include <linux/if_addr.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "link/link.h"
#include "loop/loop.h"
#include "test.h"

#define N_ADDRESSES 6000
#define DEADLINE (20 * NSEC_PER_SEC)

struct world {
        struct loop *loop;
        struct links *links;
        struct loop_hook hook;
        struct loop_timer deadline;
        struct mnl_socket *nl; /* of who changes things */
        unsigned changed, path_back;
        bool in_time;
        bool (*until)(struct world *w);
        int extra; /* addresses that came while a dump was under way */
};

static void on_changed(void *userdata)
{
        ((struct world *) userdata)->changed++;
}

static void on_path_back(void *userdata)
{
        ((struct world *) userdata)->path_back++;
}

static const struct links_ops ops = {.changed = on_changed, .path_back = on_path_back};

static struct boot_time on_turn(struct loop_hook *h, struct boot_time now unused_)
{
        struct world *w = container_of(h, struct world, hook);

        if (w->until(w))
                loop_stop(w->loop);
        return BOOT_TIME_NEVER;
}

static void on_deadline(struct loop_timer *t)
{
        struct world *w = container_of(t, struct world, deadline);

        w->in_time = false;
        loop_stop(w->loop);
}

static void run_until(struct world *w, bool (*until)(struct world *w))
{
        w->until = until;
        w->in_time = true;
        loop_timer_in(&w->deadline, DEADLINE);
        loop_run(w->loop);
        CHECK(w->in_time);
}

/* Adds or removes 10.x.y.z/32 on the loopback link. */
static void change(struct world *w, int type, uint32_t i)
{
        uint8_t b[256] __attribute__((aligned(8)));
        struct nlmsghdr *h = mnl_nlmsg_put_header(b);
        struct ifaddrmsg *m;

        h->nlmsg_type = (uint16_t) type;
        h->nlmsg_flags = NLM_F_REQUEST | NLM_F_ACK | (type == RTM_NEWADDR ? NLM_F_CREATE : 0);
        m = mnl_nlmsg_put_extra_header(h, sizeof(*m));
        m->ifa_family = AF_INET;
        m->ifa_prefixlen = 32;
        m->ifa_index = 1;
        mnl_attr_put_u32(h, IFA_LOCAL, htonl(0x0a000000 + i));
        CHECK(mnl_socket_sendto(w->nl, h, h->nlmsg_len) > 0);
        CHECK(mnl_socket_recvfrom(w->nl, b, sizeof(b)) > 0);
        h = (void *) b;
        CHECK_EQ(h->nlmsg_type, NLMSG_ERROR);
        CHECK_EQ(((const struct nlmsgerr *) mnl_nlmsg_get_payload(h))->error, 0);
}

static unsigned n_known(const struct world *w)
{
        const struct address *a;
        unsigned n = 0;

        TAILQ_FOREACH (a, &links_table(w->links)->addresses, entry)
                n += a->family == AF_INET && a->bytes[0] == 10;
        return n;
}

static bool knows(const struct world *w, uint32_t i)
{
        const struct address *a;
        uint32_t wanted = htonl(0x0a000000 + i);

        TAILQ_FOREACH (a, &links_table(w->links)->addresses, entry)
                if (a->family == AF_INET && memcmp(a->bytes, &wanted, 4) == 0)
                        return true;
        return false;
}

static bool is_known(struct world *w)
{
        return links_known(w->links);
}

static bool all_there(struct world *w)
{
        return n_known(w) == N_ADDRESSES;
}

static bool half_there(struct world *w)
{
        return n_known(w) == N_ADDRESSES / 2;
}

/* Something changes at each turn while an answer is on its way, until three were of no use. */
static bool interrupted_and_whole(struct world *w)
{
        if (n_known(w) > 0 && links_counts(w->links).interrupted < 3)
                change(w, RTM_NEWADDR, (uint32_t) (N_ADDRESSES + w->extra++));
        return links_known(w->links);
}

static void world_begin(struct world *w)
{
        struct ifreq up = {.ifr_name = "lo"};
        int s = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        *w = (struct world){0};
        CHECK(s >= 0);
        CHECK_EQ(ioctl(s, SIOCGIFFLAGS, &up), 0);
        up.ifr_flags |= IFF_UP;
        CHECK_EQ(ioctl(s, SIOCSIFFLAGS, &up), 0);
        close(s);
        w->nl = mnl_socket_open2(NETLINK_ROUTE, SOCK_CLOEXEC);
        CHECK(w->nl && mnl_socket_bind(w->nl, 0, MNL_SOCKET_AUTOPID) == 0);
        CHECK_EQ(loop_new(&w->loop), 0);
        loop_hook_start(&w->hook, w->loop, LOOP_ACT, on_turn);
        loop_timer_init(&w->deadline, w->loop, on_deadline);
}

static void world_end(struct world *w)
{
        links_free(w->links);
        loop_timer_disarm(&w->deadline);
        loop_hook_stop(&w->hook);
        loop_free(w->loop);
        mnl_socket_close(w->nl);
}

static int old_net = -1;

/* A private network namespace; left again at the end of the test. */
static void unshare_net(void)
{
        old_net = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        CHECK(old_net >= 0);
        if (unshare(CLONE_NEWNET) == 0)
                return;
        close(old_net);
        SKIP("no right to make a network namespace (root)");
}

static void rejoin_net(void)
{
        CHECK_EQ(setns(old_net, CLONE_NEWNET), 0);
        close(old_net);
}

TEST(more_news_than_the_socket_holds)
{
        struct world w;

        unshare_net();
        world_begin(&w);
        CHECK_EQ(links_new(&w.links, w.loop, &ops, &w), 0);
        run_until(&w, is_known);
        CHECK_EQ(links_counts(w.links).dumps, 1);
        /* Nothing is read meanwhile. */
        for (uint32_t i = 0; i < N_ADDRESSES; i++)
                change(&w, RTM_NEWADDR, i);
        run_until(&w, all_there);
        CHECK(links_counts(w.links).overflows >= 1);
        CHECK(links_counts(w.links).dumps >= 2);
        /* What went unheard is gone, too. */
        for (uint32_t i = 0; i < N_ADDRESSES; i += 2)
                change(&w, RTM_DELADDR, i);
        run_until(&w, half_there);
        CHECK(links_counts(w.links).overflows >= 2);
        CHECK(knows(&w, 1) && !knows(&w, 0) && !knows(&w, N_ADDRESSES - 2));
        world_end(&w);
        rejoin_net();
}

TEST(a_dump_that_is_interrupted_is_begun_again)
{
        struct world w;

        unshare_net();
        world_begin(&w);
        for (uint32_t i = 0; i < N_ADDRESSES; i++)
                change(&w, RTM_NEWADDR, i);
        CHECK_EQ(links_new(&w.links, w.loop, &ops, &w), 0);
        run_until(&w, interrupted_and_whole);
        CHECK(w.extra >= 3);
        CHECK(links_counts(w.links).interrupted >= 3);
        CHECK_EQ(links_counts(w.links).dumps, links_counts(w.links).interrupted + 1);
        CHECK_EQ(n_known(&w), N_ADDRESSES + w.extra);
        CHECK_EQ(w.changed, 1); /* reported once, whole */
        world_end(&w);
        rejoin_net();
}
