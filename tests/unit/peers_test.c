/* The links between replicas, over loopback. */
#include <arpa/inet.h>
#include <unistd.h>

#include "consensus/peers.h"
#include "loop/loop.h"
#include "test.h"

#define CLUSTER 7
#define MS NSEC_PER_MSEC

static struct {
        struct loop *loop;
        struct peers *from, *to; /* NULL while it is not there */
        struct loop_timer beat, end;
        unsigned got;
        void (*act)(void); /* what the receiver does inside of a frame; NULL: ends the run */
} w;

static int on_frame(void *userdata, uint64_t id, struct view frame)
{
        (void) userdata;
        if (id == 1 && frame.len == 4 && memcmp(frame.p, "vote", 4) == 0) {
                w.got++;
                if (w.act)
                        w.act();
                else
                        loop_stop(w.loop);
        }
        return 0;
}

static void on_down(void *userdata, uint64_t id)
{
        (void) userdata;
        (void) id;
}

static const struct peers_ops ops = {.frame = on_frame, .down = on_down};

static void on_end(struct loop_timer *t)
{
        (void) t;
        loop_stop(w.loop);
}

static void on_beat(struct loop_timer *t)
{
        peers_send(w.from, 2, (struct view){(const uint8_t *) "vote", 4});
        CHECK_EQ(loop_timer_arm(t, boot_add(boot_now(), 5 * MS)), 0);
}

static void run_for(nsec_t time)
{
        CHECK_EQ(loop_timer_arm(&w.end, boot_add(boot_now(), time)), 0);
        loop_run(w.loop);
        loop_timer_disarm(&w.end);
}

static void free_url(char *ret, size_t size)
{
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof(a);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        CHECK(fd >= 0 && bind(fd, (struct sockaddr *) &a, len) == 0 &&
              getsockname(fd, (struct sockaddr *) &a, &len) == 0);
        snprintf(ret, size, "http://127.0.0.1:%u", ntohs(a.sin_port));
        close(fd);
}

static bool nobody(void *userdata, uint64_t id)
{
        (void) userdata;
        (void) id;
        return false;
}

static struct peers *start(struct resolver *rv, uint64_t id, const char *url)
{
        struct peers_config cfg = {.cluster_id = CLUSTER, .member_id = id, .listen_urls = url};
        struct peers *p = NULL;
        char err[256];

        CHECK_EQ(peers_new(&p, w.loop, rv, &cfg, &ops, NULL, err, sizeof(err)), 0);
        return p;
}

static struct resolver *set_up(char from[static 64], char to[static 64])
{
        struct resolver *rv = NULL;

        memset(&w, 0, sizeof(w));
        free_url(from, 64);
        free_url(to, 64);
        CHECK_EQ(loop_new(&w.loop), 0);
        CHECK_EQ(resolver_new(&rv, w.loop), 0);
        loop_timer_init(&w.beat, w.loop, on_beat);
        loop_timer_init(&w.end, w.loop, on_end);
        return rv;
}

static void tear_down(struct resolver *rv)
{
        loop_timer_disarm(&w.beat);
        peers_free(w.from);
        peers_free(w.to);
        resolver_free(rv);
        loop_free(w.loop);
}

/* A replica that comes back asks and is asked for votes at once, however long it was away. */
TEST(who_calls_is_called_back_at_once)
{
        char from[64], to[64];
        struct resolver *rv = set_up(from, to);

        w.from = start(rv, 1, from);
        CHECK_EQ(peers_add(w.from, 2, to), 0);
        run_for(700 * MS); /* the sixth attempt was at 620 ms, the next is at 1120 ms */
        w.to = start(rv, 2, to);
        CHECK_EQ(peers_add(w.to, 1, from), 0);
        CHECK_EQ(loop_timer_arm(&w.beat, boot_now()), 0);
        run_for(250 * MS);
        CHECK_EQ(w.got, 1);
        tear_down(rv);
}

/* Frames that arrive in one piece. */
static void on_burst(struct loop_timer *t)
{
        for (unsigned i = 0; i < 8; i++)
                peers_send(w.from, 2, (struct view){(const uint8_t *) "vote", 4});
        CHECK_EQ(loop_timer_arm(t, boot_add(boot_now(), 5 * MS)), 0);
}

static void stop_inside(void)
{
        peers_stop(w.to);
        loop_stop(w.loop);
}

static void free_inside(void)
{
        w.to = peers_free(w.to);
        loop_stop(w.loop);
}

static void inside_of_a_frame(void (*act)(void), unsigned got)
{
        char from[64], to[64];
        struct resolver *rv = set_up(from, to);

        loop_timer_init(&w.beat, w.loop, on_burst);
        w.act = act;
        w.from = start(rv, 1, from);
        w.to = start(rv, 2, to);
        CHECK_EQ(peers_add(w.from, 2, to), 0);
        CHECK_EQ(peers_add(w.to, 1, from), 0);
        CHECK_EQ(loop_timer_arm(&w.beat, boot_now()), 0);
        run_for(5000 * MS);
        CHECK_EQ(w.got, got);
        tear_down(rv);
}

/* A frame that shows a damaged log, a full disk, a bug: the program lets go of its links while
 * one of them is being read. Not one frame more is taken. */
TEST(links_end_inside_of_a_frame)
{
        inside_of_a_frame(stop_inside, 1);
        inside_of_a_frame(free_inside, 1);
}

static unsigned relinked;

/* Another URL, and back: what on_configured() does when a member moves. */
static void relink_inside(void)
{
        CHECK_EQ(peers_add(w.to, 1, "http://127.0.0.1:1"), 0);
        peers_sweep(w.to, nobody);
        CHECK_EQ(peers_add(w.to, 3, "http://127.0.0.1:1"), 0);
        peers_sweep(w.to, nobody);
        if (++relinked == 8)
                loop_stop(w.loop);
}

TEST(members_change_inside_of_a_frame)
{
        relinked = 0;
        inside_of_a_frame(relink_inside, 8);
}

/* Who has stopped its links makes none any more, whatever changes behind it. */
TEST(links_that_ended_stay_so)
{
        char from[64], to[64];
        struct resolver *rv = set_up(from, to);

        w.from = start(rv, 1, from);
        w.to = start(rv, 2, to);
        peers_stop(w.from);
        CHECK_EQ(peers_add(w.from, 2, to), 0);
        CHECK_EQ(loop_timer_arm(&w.beat, boot_now()), 0);
        run_for(100 * MS);
        CHECK_EQ(w.got, 0);
        tear_down(rv);
}
