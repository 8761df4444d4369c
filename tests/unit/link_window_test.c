/* How much a link to a peer takes at once (lib/consensus/link_window.c). */
#include "consensus/link_window.h"

#include "test.h"

#define KIB ((size_t) 1024)
#define MOST (4096 * KIB)
#define DELAY (125 * NSEC_PER_MSEC)

/* A link with a queue: it carries @rate bytes a second, after its own delay @way. */
struct link {
        struct link_window window;
        int64_t rate;
        nsec_t way;
        struct boot_time now, idle_at;
        nsec_t slowest; /* of all messages so far */
        struct {
                size_t n;
                struct boot_time arrives;
        } sent[8192];
        size_t n_sent, n_acked, unsent;
};

static void connect_it(struct link *l, int64_t rate, nsec_t way)
{
        *l = (struct link){.rate = rate, .way = way, .now = {NSEC_PER_SEC}};
        link_window_open(&l->window, MOST, DELAY);
}

static void send_bytes(struct link *l, size_t n)
{
        CHECK(l->n_sent < ARRAY_SIZE(l->sent));
        l->idle_at =
                boot_add(boot_max(l->now, l->idle_at), (int64_t) n * NSEC_PER_SEC / l->rate);
        l->slowest = max_of(l->slowest, boot_diff(l->idle_at, l->now));
        l->sent[l->n_sent].n = n;
        l->sent[l->n_sent++].arrives = boot_add(l->idle_at, l->way);
        l->unsent += n;
        link_window_put(&l->window, n, l->now);
}

static size_t room(struct link *l)
{
        while (l->n_acked < l->n_sent && !boot_before(l->now, l->sent[l->n_acked].arrives))
                l->unsent -= l->sent[l->n_acked++].n;
        if (link_window_asks(&l->window))
                link_window_told(&l->window, l->unsent, l->now);
        return link_window_room(&l->window);
}

/* Sends as much as the window takes, in messages of @n bytes, for @seconds. Returns the bytes
 * that have arrived, and how long the last message waits in *@ret_delay. */
static size_t fill(struct link *l, size_t n, int seconds, nsec_t *ret_delay)
{
        struct boot_time end = boot_add(l->now, seconds * NSEC_PER_SEC);
        size_t before = l->n_acked, arrived = 0;

        for (; boot_before(l->now, end); l->now = boot_add(l->now, 5 * NSEC_PER_MSEC))
                while (room(l) > 0)
                        send_bytes(l, n);
        for (size_t i = before; i < l->n_acked; i++)
                arrived += l->sent[i].n;
        *ret_delay = boot_diff(l->idle_at, l->now);
        return arrived;
}

TEST(link_window_leaves_room_for_heartbeats_on_a_slow_link)
{
        static struct link l;
        nsec_t delay;
        size_t arrived;

        connect_it(&l, 500000, NSEC_PER_MSEC);
        (void) fill(&l, 16 * KIB, 10, &delay);
        arrived = fill(&l, 16 * KIB, 10, &delay);
        CHECK(delay <= 2 * DELAY);
        CHECK(arrived >= 4500000); /* and yet it is busy */
}

TEST(link_window_does_not_outgrow_a_link_before_it_has_seen_it_full)
{
        static struct link l;
        nsec_t delay;

        connect_it(&l, 1000000, NSEC_PER_MSEC);
        (void) fill(&l, 16 * KIB, 10, &delay);
        CHECK(l.slowest <= DELAY + 20 * NSEC_PER_MSEC); /* the window, and one message */
}

/* ... and does not take the time that a large message takes for that of the link. */
TEST(link_window_learns_from_a_small_message_how_long_a_link_is)
{
        static struct link l;
        nsec_t delay;

        connect_it(&l, 1000000, NSEC_PER_MSEC);
        send_bytes(&l, 100);
        l.now = boot_add(l.now, 2 * NSEC_PER_MSEC);
        (void) fill(&l, 62 * KIB, 10, &delay);
        CHECK(l.slowest <= DELAY + 62 * NSEC_PER_MSEC);
}

TEST(link_window_fills_a_fast_link_that_is_long)
{
        static struct link l;
        nsec_t delay;
        size_t arrived;

        connect_it(&l, 100000000, 80 * NSEC_PER_MSEC);
        send_bytes(&l, 100); /* a greeting, which shows how long the link is */
        l.now = boot_add(l.now, 90 * NSEC_PER_MSEC);
        (void) fill(&l, 1024 * KIB, 5, &delay);
        CHECK_EQ(l.window.bytes, MOST);
        arrived = fill(&l, 1024 * KIB, 5, &delay);
        CHECK(arrived >= 200000000); /* 4 MiB each round trip of 80 ms, and a turn of 5 ms */
}

TEST(link_window_shrinks_when_a_link_becomes_slow_and_grows_again)
{
        static struct link l;
        nsec_t delay;

        connect_it(&l, 100000000, NSEC_PER_MSEC);
        (void) fill(&l, 1024 * KIB, 5, &delay);
        CHECK_EQ(l.window.bytes, MOST);
        l.rate = 1000000;
        (void) fill(&l, 16 * KIB, 30, &delay);
        CHECK(l.window.bytes <= 256 * KIB);
        CHECK(delay <= 2 * DELAY);
        l.rate = 100000000;
        (void) fill(&l, 256 * KIB, 5, &delay);
        CHECK_EQ(l.window.bytes, MOST);
}

TEST(link_window_without_a_limit_of_time_is_as_large_as_it_may_be)
{
        struct link_window w;

        link_window_open(&w, MOST, 0);
        link_window_put(&w, MOST, (struct boot_time){1});
        CHECK(link_window_asks(&w));
        link_window_told(&w, MOST - 1, (struct boot_time){10 * NSEC_PER_SEC});
        CHECK_EQ(link_window_room(&w), 1U);
        link_window_put(&w, 2, (struct boot_time){11 * NSEC_PER_SEC});
        CHECK_EQ(link_window_room(&w), 0U);
        link_window_told(&w, 0, (struct boot_time){30 * NSEC_PER_SEC});
        CHECK_EQ(link_window_room(&w), MOST);
}

/* Renewals are small, and each look at the kernel's queue is a system call. */
TEST(link_window_does_not_ask_for_what_is_little)
{
        struct link_window w;

        link_window_open(&w, MOST, DELAY);
        link_window_put(&w, 1000, (struct boot_time){1});
        CHECK(link_window_asks(&w)); /* once, how long the link is */
        link_window_told(&w, 0, (struct boot_time){2});
        link_window_put(&w, 1000, (struct boot_time){3});
        CHECK(!link_window_asks(&w));
        CHECK_EQ(link_window_room(&w), w.bytes - 1000);
        link_window_put(&w, w.bytes, (struct boot_time){1});
        CHECK(link_window_asks(&w));
}
