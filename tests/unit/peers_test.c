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
} w;

static int on_frame(void *userdata, uint64_t id, struct view frame)
{
        (void) userdata;
        if (id == 1 && frame.len == 4 && memcmp(frame.p, "vote", 4) == 0) {
                w.got++;
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

static struct peers *start(struct resolver *rv, uint64_t id, const char *url)
{
        struct peers_config cfg = {.cluster_id = CLUSTER, .member_id = id, .listen_urls = url};
        struct peers *p = NULL;
        char err[256];

        CHECK_EQ(peers_new(&p, w.loop, rv, &cfg, &ops, NULL, err, sizeof(err)), 0);
        return p;
}

/* A replica that comes back asks and is asked for votes at once, however long it was away. */
TEST(who_calls_is_called_back_at_once)
{
        struct resolver *rv = NULL;
        char from[64], to[64];

        memset(&w, 0, sizeof(w));
        free_url(from, sizeof(from));
        free_url(to, sizeof(to));
        CHECK_EQ(loop_new(&w.loop), 0);
        CHECK_EQ(resolver_new(&rv, w.loop), 0);
        loop_timer_init(&w.beat, w.loop, on_beat);
        loop_timer_init(&w.end, w.loop, on_end);
        w.from = start(rv, 1, from);
        CHECK_EQ(peers_add(w.from, 2, to), 0);
        run_for(700 * MS); /* the sixth attempt was at 620 ms, the next is at 1120 ms */
        w.to = start(rv, 2, to);
        CHECK_EQ(peers_add(w.to, 1, from), 0);
        CHECK_EQ(loop_timer_arm(&w.beat, boot_now()), 0);
        run_for(250 * MS);
        CHECK_EQ(w.got, 1);
        loop_timer_disarm(&w.beat);
        peers_free(w.from);
        peers_free(w.to);
        resolver_free(rv);
        loop_free(w.loop);
}
