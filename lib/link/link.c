#include "link/link.h"

#include <libmnl/libmnl.h>
#include <linux/rtnetlink.h>
#include <unistd.h>

#include "base/log.h"
#include "loop/loop.h"

#define RETRY NSEC_PER_SEC
/* An interrupted dump is repeated at once, then after longer and longer waits. */
#define AGAIN_STEP (10 * NSEC_PER_MSEC)
/* Reads per turn: this loop also sends heartbeats. */
#define READS_MAX 4

/* We dump links first, then addresses, since addresses belong to links. */
enum phase { LINKS, ADDRESSES, FOLLOWING };

struct links {
        struct loop *loop;
        struct mnl_socket *nl;
        struct loop_io io;
        struct loop_timer retry;
        struct link_table table;
        enum phase phase;
        uint32_t seq;     /* of the dump under way */
        bool interrupted; /* the dump has holes */
        unsigned n_again; /* interrupted dumps in a row */
        struct links_counts counts;
        bool known;
        bool wants_routes;
        const struct links_ops *ops;
        void *userdata;
        /* MNL_SOCKET_BUFFER_SIZE is at most 8 KiB; the kernel sends dumps in larger pieces. */
        uint8_t buffer[32768] __attribute__((aligned(8)));
};

static void ask(struct links *k)
{
        uint8_t b[64] __attribute__((aligned(8))) = {0};
        struct nlmsghdr *h = mnl_nlmsg_put_header(b);

        h->nlmsg_type = k->phase == LINKS ? RTM_GETLINK : RTM_GETADDR;
        h->nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
        h->nlmsg_seq = ++k->seq;
        mnl_nlmsg_put_extra_header(h, k->phase == LINKS ? sizeof(struct ifinfomsg)
                                                        : sizeof(struct ifaddrmsg));
        if (mnl_socket_sendto(k->nl, h, h->nlmsg_len) < 0) {
                log_warning("netlink: cannot ask for addresses: %s.", strerror(errno));
                loop_timer_in(&k->retry, RETRY);
        }
}

static void dump(struct links *k)
{
        k->phase = LINKS;
        k->interrupted = false;
        k->counts.dumps++;
        link_table_dump_begin(&k->table);
        ask(k);
}

static void on_retry(struct loop_timer *t)
{
        dump(container_of(t, struct links, retry));
}

/* A dump is complete. Returns what to report. */
static int on_done(struct links *k)
{
        bool first = !k->known;

        if (k->interrupted || k->table.failed) {
                log_debug("netlink: the dump was interrupted; starting it again.");
                k->counts.interrupted++;
                loop_timer_in(&k->retry, min_of(k->n_again++ * AGAIN_STEP, RETRY));
                return 0;
        }
        if (k->phase == LINKS) {
                k->phase = ADDRESSES;
                ask(k);
                return 0;
        }
        k->phase = FOLLOWING;
        k->n_again = 0;
        k->known = true;
        return link_table_dump_end(&k->table) || first ? LINK_CHANGED : 0;
}

static int on_message(struct links *k, const struct nlmsghdr *h)
{
        bool answer = h->nlmsg_pid == mnl_socket_get_portid(k->nl);
        int what;

        if (answer && h->nlmsg_seq != k->seq)
                return 0; /* answers a request that was given up */
        if (answer && (h->nlmsg_flags & NLM_F_DUMP_INTR))
                k->interrupted = true;
        if (answer && h->nlmsg_type == NLMSG_ERROR) {
                log_warning("netlink: the kernel reports no addresses.");
                loop_timer_in(&k->retry, RETRY);
                return 0;
        }
        what = max_of(link_table_feed(&k->table, h, h->nlmsg_len), 0);
        return answer && h->nlmsg_type == NLMSG_DONE && k->phase != FOLLOWING ? on_done(k)
                                                                              : what;
}

/* Messages were lost. A dump under way cannot be repeated before it has ended. It always ends:
 * the kernel continues it as we read. */
static void on_overflow(struct links *k)
{
        log_debug("netlink: the buffer has overflowed; asking for everything again.");
        k->counts.overflows++;
        if (k->phase == FOLLOWING)
                dump(k);
        else
                k->interrupted = true;
}

static void on_io(struct loop_io *io, int events)
{
        struct links *k = container_of(io, struct links, io);
        bool was_known = k->known;
        int what = 0;

        (void) events;
        for (int reads = 0; reads < READS_MAX; reads++) {
                ssize_t n = mnl_socket_recvfrom(k->nl, k->buffer, sizeof(k->buffer));
                int left = (int) n;

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == ENOBUFS) {
                        on_overflow(k);
                        continue;
                }
                if (n < 0 && errno != EAGAIN) {
                        log_warning("netlink: %s.", strerror(errno));
                        loop_timer_in(&k->retry, RETRY);
                }
                if (n <= 0)
                        break;
                for (const struct nlmsghdr *h = (const void *) k->buffer; mnl_nlmsg_ok(h, left);
                     h = mnl_nlmsg_next(h, &left))
                        what |= on_message(k, h);
        }
        if (!k->known)
                return;
        if (what & LINK_CHANGED)
                k->ops->changed(k->userdata);
        if (was_known && (what & LINK_PATH))
                k->ops->path_back(k->userdata);
}

int links_new(struct links **ret, struct loop *l, const struct links_ops *ops, void *userdata)
{
        cleanup_(links_freep) struct links *k = calloc(1, sizeof(*k));

        if (!k)
                return -ENOMEM;
        link_table_init(&k->table);
        k->loop = l;
        k->ops = ops;
        k->userdata = userdata;
        loop_timer_init(&k->retry, l, on_retry);
        k->nl = mnl_socket_open2(NETLINK_ROUTE, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (!k->nl ||
            mnl_socket_bind(k->nl, RTMGRP_LINK | RTMGRP_IPV4_IFADDR | RTMGRP_IPV6_IFADDR,
                            MNL_SOCKET_AUTOPID) < 0)
                return -errno;
        k->io.what = "the kernel's links";
        loop_io_start(&k->io, l, mnl_socket_get_fd(k->nl), EV_READ, on_io);
        dump(k);
        *ret = take_ptr(k);
        return 0;
}

struct links *links_free(struct links *k)
{
        if (!k)
                return NULL;
        loop_timer_disarm(&k->retry);
        loop_io_stop(&k->io);
        if (k->nl)
                mnl_socket_close(k->nl);
        link_table_fini(&k->table);
        free(k);
        return NULL;
}

const struct link_table *links_table(const struct links *k)
{
        return &k->table;
}

bool links_known(const struct links *k)
{
        return k->known;
}

struct links_counts links_counts(const struct links *k)
{
        return k->counts;
}

void links_want_routes(struct links *k, bool want)
{
        static const int groups[] = {RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE};

        if (k->wants_routes == want)
                return;
        k->wants_routes = want;
        for (size_t i = 0; i < ARRAY_SIZE(groups); i++) {
                int group = groups[i];

                if (mnl_socket_setsockopt(
                            k->nl, want ? NETLINK_ADD_MEMBERSHIP : NETLINK_DROP_MEMBERSHIP,
                            &group, sizeof(group)) < 0)
                        log_debug("netlink: routes: %s.", strerror(errno));
        }
}
