/* The links between replicas, over loopback. */
#include <arpa/inet.h>
#include <unistd.h>

#include "base/le.h"
#include "consensus/message.h"
#include "consensus/peers.h"
#include "loop/listener.h"
#include "loop/loop.h"
#include "test.h"
#include "virtual_time.h"

#define CLUSTER 7
#define VOTE "\1ote" /* a frame that raft sends */
#define MS NSEC_PER_MSEC

static struct {
        struct loop *loop;
        struct peers *from, *to; /* NULL while it is not there */
        struct loop_timer beat, end;
        unsigned got;
        int ports[2];
        void (*act)(void); /* what the receiver does inside of a frame; NULL: ends the run */
} w;

static size_t notice_len; /* the other end's notice about us */
static uint8_t notice_bytes[16];

static int on_frame(void *userdata, uint64_t id, struct view frame)
{
        (void) userdata;
        if (id == 2 && frame.len <= sizeof(notice_bytes)) {
                notice_len = frame.len;
                memcpy(notice_bytes, frame.p, frame.len);
        }
        if (id == 1 && frame.len == 4 && memcmp(frame.p, VOTE, 4) == 0) {
                w.got++;
                if (w.act)
                        w.act();
                else
                        loop_stop(w.loop);
        }
        return 0;
}

static unsigned n_introduced;
static struct introduction introduced; /* by member 1 */
static int introduced_as;              /* what member 2 makes of it */

static int on_introduced(void *userdata, uint64_t id, const struct introduction *in)
{
        (void) userdata;
        if (id != 1)
                return 0;
        n_introduced++;
        introduced = *in;
        return introduced_as;
}

static unsigned n_down; /* links from members that ended */

static void on_down(void *userdata, uint64_t id)
{
        (void) userdata;
        (void) id;
        n_down++;
}

static unsigned n_called;

static void on_called(void *userdata, uint64_t id)
{
        (void) userdata;
        (void) id;
        n_called++;
}

/* For strangers: the entry with which they were removed. */
static uint64_t removed_index;
static unsigned n_strange;

static uint64_t on_strange(void *userdata, uint64_t id)
{
        (void) userdata;
        (void) id;
        n_strange++;
        return removed_index;
}

static struct introduction introduction(void *userdata, uint64_t id)
{
        (void) userdata;
        return (struct introduction){
                .newest = CLUSTER_0_2, .directory = 5, .yours = id, .program = "0.2.0"};
}

static const struct peers_ops ops = {.introduction = introduction,
                                     .introduced = on_introduced,
                                     .frame = on_frame,
                                     .called = on_called,
                                     .down = on_down,
                                     .strange = on_strange};

static void on_end(struct loop_timer *t)
{
        (void) t;
        loop_stop(w.loop);
}

static void on_beat(struct loop_timer *t)
{
        peers_send(w.from, 2, (struct view){(const uint8_t *) VOTE, 4});
        loop_timer_in(t, 5 * MS);
}

static void run_for(nsec_t time)
{
        loop_timer_in(&w.end, time);
        loop_run(w.loop);
        loop_timer_disarm(&w.end);
}

/* The port stays bound until tear_down(): a test in another process gets another one. Whoever
 * listens on it has SO_REUSEADDR, too. */
static void free_url(char *ret, size_t size, int *ret_fd)
{
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        socklen_t len = sizeof(a);
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

        CHECK(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
              bind(fd, (struct sockaddr *) &a, len) == 0 &&
              getsockname(fd, (struct sockaddr *) &a, &len) == 0);
        snprintf(ret, size, "http://127.0.0.1:%u", ntohs(a.sin_port));
        *ret_fd = fd;
}

static bool only_one(void *userdata, uint64_t id)
{
        (void) userdata;
        return id == 1;
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

        CHECK_EQ(peers_new(&p, w.loop, rv, &cfg, &ops, NULL), 0);
        CHECK_EQ(peers_listen(p, true, err, sizeof(err)), 0);
        return p;
}

static struct resolver *set_up(char from[static 64], char to[static 64])
{
        struct resolver *rv = NULL;

        virtual_time_begin();
        memset(&w, 0, sizeof(w));
        n_down = n_introduced = n_called = 0;
        introduced_as = 0;
        free_url(from, 64, &w.ports[0]);
        free_url(to, 64, &w.ports[1]);
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
        close(w.ports[0]);
        close(w.ports[1]);
}

/* Member 2 starts and calls; it gets the next frame without delay. */
static void check_called_back(struct resolver *rv, const char *from, const char *to)
{
        w.to = start(rv, 2, to);
        CHECK_EQ(peers_add(w.to, 1, from), 0);
        loop_timer_in(&w.beat, 0);
        run_for(250 * MS);
        CHECK_EQ(w.got, 1);
}

/* A replica that comes back asks and is asked for votes at once, however long it was away. */
TEST(who_calls_is_called_back_at_once)
{
        char from[64], to[64];
        struct resolver *rv = set_up(from, to);

        w.from = start(rv, 1, from);
        CHECK_EQ(peers_add(w.from, 2, to), 0);
        run_for(700 * MS); /* the sixth attempt was at 620 ms, the next is at 1120 ms */
        check_called_back(rv, from, to);
        tear_down(rv);
}

/* Listens at @url, and leaves those who connect without an answer: the queue is full. */
static void be_silent_at(const char *url, int ret_fd[static 4])
{
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t) atoi(strrchr(url, ':') + 1)),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int one = 1;

        for (int i = 0; i < 4; i++) {
                ret_fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
                CHECK(ret_fd[i] >= 0);
        }
        CHECK(setsockopt(ret_fd[0], SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) == 0 &&
              bind(ret_fd[0], (struct sockaddr *) &a, sizeof(a)) == 0 &&
              listen(ret_fd[0], 0) == 0);
        for (int i = 1; i < 4; i++)
                (void) !connect(ret_fd[i], (struct sockaddr *) &a, sizeof(a));
}

/* ... also while an attempt to connect hangs, as one does that began before the peer was there
 * or could be reached. */
TEST(who_calls_is_called_back_although_an_attempt_hangs)
{
        char from[64], to[64];
        struct resolver *rv = set_up(from, to);
        int silent[4];

        w.from = start(rv, 1, from);
        be_silent_at(to, silent);
        CHECK_EQ(peers_add(w.from, 2, to), 0);
        run_for(300 * MS); /* the attempt ends at 1000 ms */
        for (int i = 0; i < 4; i++)
                close(silent[i]);
        check_called_back(rv, from, to);
        tear_down(rv);
}

/* Frames that arrive in one piece. */
static void on_burst(struct loop_timer *t)
{
        for (unsigned i = 0; i < 8; i++)
                peers_send(w.from, 2, (struct view){(const uint8_t *) VOTE, 4});
        loop_timer_in(t, 5 * MS);
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
        loop_timer_in(&w.beat, 0);
        run_for(5000 * MS);
        CHECK_EQ(w.got, got);
        tear_down(rv);
}

/* A frame that shows a damaged log, a full disk or a bug makes the program free its links while
 * one of them is being read. No further frame is handled. */
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
        peers_sweep(w.to, only_one);
        CHECK_EQ(peers_add(w.to, 3, "http://127.0.0.1:1"), 0);
        peers_sweep(w.to, only_one);
        if (++relinked == 8)
                loop_stop(w.loop);
}

TEST(members_change_inside_of_a_frame)
{
        relinked = 0;
        inside_of_a_frame(relink_inside, 8);
}

/* After its links were stopped, a replica makes none, whatever changes. */
TEST(links_that_ended_stay_so)
{
        char from[64], to[64];
        struct resolver *rv = set_up(from, to);

        w.from = start(rv, 1, from);
        w.to = start(rv, 2, to);
        peers_stop(w.from);
        CHECK_EQ(peers_add(w.from, 2, to), 0);
        loop_timer_in(&w.beat, 0);
        run_for(100 * MS);
        CHECK_EQ(w.got, 0);
        tear_down(rv);
}

/* Removed inside of one of its frames: that was the last. */
static void remove_inside(void)
{
        peers_sweep(w.to, nobody);
}

/* In plaintext anybody can claim to be any member, but only a member; a former member is
 * notified on its own link, and does not retry more often than others. */
TEST(a_stranger_is_refused_and_notified)
{
        char from[64], to[64];
        struct resolver *rv = set_up(from, to);

        removed_index = 7;
        n_strange = 0;
        notice_len = 0;
        w.from = start(rv, 1, from);
        w.to = start(rv, 2, to);
        CHECK_EQ(peers_add(w.from, 2, to), 0);
        CHECK_EQ(peers_add(w.to, 3, "http://127.0.0.1:1"), 0);
        loop_timer_in(&w.beat, 0);
        run_for(1500 * MS);
        CHECK_EQ(w.got, 0);
        CHECK(n_strange > 0 && n_strange < 10);
        CHECK(notice_len == 9 && notice_bytes[0] == FRAME_REMOVED && notice_bytes[1] == 7);
        /* Where that is not known for good, it is not notified. */
        removed_index = 0;
        notice_len = 0;
        n_strange = 0;
        for (int i = 0; i < 10 && n_strange == 0; i++)
                run_for(700 * MS);
        CHECK(n_strange > 0 && notice_len == 0);
        /* Once it is a member, it is accepted. */
        CHECK_EQ(peers_add(w.to, 1, from), 0);
        run_for(5000 * MS);
        CHECK_EQ(w.got, 1);
        tear_down(rv);
}

TEST(the_input_of_a_removed_member_is_not_read_to_its_end)
{
        removed_index = 0;
        inside_of_a_frame(remove_inside, 1);
}

/* One that has no peers listens to none. */
TEST(alone_no_port_is_open)
{
        char from[64], to[64], err[128];
        struct resolver *rv = set_up(from, to);

        w.from = start(rv, 1, from);
        w.to = start(rv, 2, to);
        CHECK_EQ(peers_listen(w.to, false, err, sizeof(err)), 0);
        CHECK_EQ(peers_add(w.from, 2, to), 0);
        CHECK_EQ(peers_add(w.to, 1, from), 0);
        loop_timer_in(&w.beat, 0);
        run_for(300 * MS);
        CHECK_EQ(w.got, 0);
        CHECK_EQ(peers_listen(w.to, true, err, sizeof(err)), 0);
        run_for(5000 * MS);
        CHECK_EQ(w.got, 1);
        tear_down(rv);
}

/* A member has several URLs, of which one answers; plaintext to other machines is refused. */
TEST(a_link_tries_each_url_of_its_member)
{
        char from[64], to[64], two[160];
        struct resolver *rv = set_up(from, to);

        w.from = start(rv, 1, from);
        w.to = start(rv, 2, to);
        snprintf(two, sizeof(two), "http://127.0.0.1:1,%s", to);
        CHECK_EQ(peers_add(w.from, 2, two), 0);
        CHECK_EQ(peers_add(w.to, 1, from), 0);
        CHECK_EQ(peers_add(w.to, 3, "http://127.0.0.1:1,http://192.0.2.1:1"), -EPERM);
        CHECK_EQ(peers_add(w.to, 3, "http://127.0.0.1:1,nonsense"), -EINVAL);
        loop_timer_in(&w.beat, 0);
        run_for(5000 * MS);
        CHECK_EQ(w.got, 1);
        tear_down(rv);
}

/* Connects from @host and sends nothing yet. */
static int call_from(const char *host, const char *url)
{
        struct sockaddr_in a = {.sin_family = AF_INET};
        struct sockaddr_in b = {.sin_family = AF_INET,
                                .sin_port = htons((uint16_t) atoi(strrchr(url, ':') + 1)),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        CHECK(fd >= 0 && inet_pton(AF_INET, host, &a.sin_addr) == 1);
        CHECK(bind(fd, (struct sockaddr *) &a, sizeof(a)) == 0);
        CHECK(connect(fd, (struct sockaddr *) &b, sizeof(b)) == 0);
        return fd;
}

/* Calls as @member, and sends a frame. */
static int call_as(uint64_t member, const char *url)
{
        uint8_t said[24 + 4 + 4] = "TENPEER1";
        int fd = call_from("127.0.0.2", url);

        le64_put(said + 8, CLUSTER);
        le64_put(said + 16, member);
        le32_put(said + 24, 4);
        memcpy(said + 28, VOTE, 4);
        CHECK_EQ(write(fd, said, sizeof(said)), (ssize_t) sizeof(said));
        return fd;
}

static bool has_ended(int fd)
{
        char c;

        return recv(fd, &c, 1, MSG_DONTWAIT) >= 0 || errno == ECONNRESET;
}

static void on_joined(void *userdata, const struct joined *who, const char *why)
{
        (void) userdata;
        (void) who;
        (void) why;
}

/* Otherwise it would collect whatever follows, until it asks the next one. */
TEST(who_joins_hears_one_answer_of_each_that_it_asks)
{
        static const uint8_t nonsense[] = {0xff, 0xff, 0xff, 0xff};
        struct admission any = {.plaintext = true};
        char from[64], to[64], request[512];
        struct resolver *rv = set_up(from, to);
        struct join *j;
        int fd;

        CHECK_EQ(listen(w.ports[1], 4), 0);
        CHECK_EQ(join_new(&j, w.loop, rv,
                          &(struct join_config){.urls = to, .self = from, .admission = &any},
                          on_joined, NULL),
                 0);
        run_for(100 * MS);
        fd = accept(w.ports[1], NULL, NULL);
        CHECK(recv(fd, request, sizeof(request), MSG_DONTWAIT) > 0);
        CHECK(!has_ended(fd));
        CHECK_EQ(write(fd, nonsense, sizeof(nonsense)), (ssize_t) sizeof(nonsense));
        run_for(100 * MS);
        CHECK(has_ended(fd));
        close(fd);
        join_free(j);
        tear_down(rv);
}

/* Each link begins with it, whatever its sender has to say. */
TEST(a_member_introduces_itself_on_each_link)
{
        char from[64], to[64];
        struct resolver *rv = set_up(from, to);

        w.from = start(rv, 1, from);
        w.to = start(rv, 2, to);
        CHECK_EQ(peers_add(w.to, 1, from), 0);
        CHECK_EQ(peers_add(w.from, 2, to), 0);
        run_for(100 * MS);
        CHECK_EQ(n_introduced, 1);
        CHECK_EQ(introduced.newest, CLUSTER_0_2);
        CHECK_EQ(introduced.directory, 5);
        CHECK_EQ(introduced.yours, 2);
        CHECK_STR(introduced.program, "0.2.0");
        loop_timer_in(&w.beat, 0);
        run_for(5000 * MS);
        CHECK_EQ(w.got, 1);
        CHECK_EQ(n_introduced, 1);
        peers_free(w.from);
        w.from = start(rv, 1, from);
        CHECK_EQ(peers_add(w.from, 2, to), 0);
        run_for(1000 * MS);
        CHECK_EQ(n_introduced, 2);
        tear_down(rv);
}

/* The links of release 0.1.0 begin with any frame, which counts. */
TEST(a_link_that_begins_otherwise_is_one_of_release_0_1_0)
{
        char from[64], to[64];
        struct resolver *rv = set_up(from, to);
        int fd;

        w.to = start(rv, 2, to);
        CHECK_EQ(peers_add(w.to, 1, from), 0);
        fd = call_as(1, to);
        run_for(5000 * MS);
        CHECK_EQ(w.got, 1);
        CHECK_EQ(n_introduced, 1);
        CHECK_EQ(introduced.newest, CLUSTER_0_1);
        CHECK_STR(introduced.program, "0.1.0");
        close(fd);
        /* One that is too old is not heard. */
        introduced_as = -EPROTONOSUPPORT;
        fd = call_as(1, to);
        run_for(100 * MS);
        CHECK_EQ(n_introduced, 2);
        CHECK_EQ(w.got, 1);
        CHECK(has_ended(fd));
        close(fd);
        tear_down(rv);
}

/* What release 0.1.0 gets from us. */
TEST(an_introduction_follows_the_greeting)
{
        static const char is[] = "TENPEER1"
                                 "\7\0\0\0\0\0\0\0"
                                 "\1\0\0\0\0\0\0\0"
                                 "\64\0\0\0" /* bytes */
                                 "\11\0\0\0\0\0\0\0\0"
                                 "\2\0\0\0"
                                 "\5\0\0\0\0\0\0\0"
                                 "\2\0\0\0\0\0\0\0" /* yours */
                                 "\0\0\0\0\0\0\0\0" /* term */
                                 "\0"
                                 "\0\0\0\0\0\0\0\0" /* process */
                                 "\5"
                                 "0.2.0";
        char from[64], to[64], got[128];
        struct resolver *rv = set_up(from, to);
        int fd;

        CHECK_EQ(listen(w.ports[1], 4), 0);
        w.from = start(rv, 1, from);
        CHECK_EQ(peers_add(w.from, 2, to), 0);
        run_for(100 * MS);
        fd = accept(w.ports[1], NULL, NULL);
        CHECK_EQ(recv(fd, got, sizeof(got), MSG_DONTWAIT), sizeof(is) - 1);
        CHECK_EQ(memcmp(got, is, sizeof(is) - 1), 0);
        close(fd);
        tear_down(rv);
}

/* A member has one link to us: the last one that it made. Whatever it left behind, as one that
 * lost its power does, takes neither memory nor descriptors, and its end is no news. */
TEST(who_calls_again_has_one_link)
{
        char from[64], to[64];
        struct resolver *rv = set_up(from, to);
        int fd[8];

        w.to = start(rv, 2, to);
        CHECK_EQ(peers_add(w.to, 1, from), 0);
        for (unsigned i = 0; i < ARRAY_SIZE(fd); i++) {
                fd[i] = call_as(1, to);
                run_for(5000 * MS); /* until the frame is there */
                CHECK_EQ(w.got, i + 1);
                CHECK(i == 0 || has_ended(fd[i - 1]));
                CHECK(!has_ended(fd[i]));
        }
        CHECK_EQ(n_down, 0);
        close(fd[ARRAY_SIZE(fd) - 1]);
        run_for(100 * MS);
        CHECK_EQ(n_down, 1);
        for (unsigned i = 0; i + 1 < ARRAY_SIZE(fd); i++)
                close(fd[i]);
        tear_down(rv);
}

/* Another process may call as a member, with a directory that is not the member's, or with the
 * same one. */
TEST(who_is_refused_does_not_end_the_link_of_the_member)
{
        char from[64], to[64];
        struct resolver *rv = set_up(from, to);
        uint8_t notice[32];
        int member, other;

        w.to = start(rv, 2, to);
        CHECK_EQ(peers_add(w.to, 1, from), 0);
        member = call_as(1, to);
        run_for(5000 * MS);
        CHECK_EQ(w.got, 1);

        introduced_as = -EKEYREJECTED;
        other = call_as(1, to);
        run_for(100 * MS);
        CHECK(has_ended(other));
        CHECK(!has_ended(member));
        close(other);

        introduced_as = -EADDRINUSE;
        other = call_as(1, to);
        run_for(100 * MS);
        CHECK_EQ(recv(other, notice, sizeof(notice), MSG_DONTWAIT), 13);
        CHECK_EQ(notice[4], FRAME_DOUBLED);
        CHECK(!has_ended(other)); /* it closes the link itself */
        CHECK(!has_ended(member));
        close(other);

        introduced_as = -EBUSY;
        other = call_as(1, to);
        run_for(100 * MS);
        CHECK(has_ended(other));
        CHECK(has_ended(member));
        CHECK_EQ(n_introduced, 4);
        CHECK_EQ(n_called, 1); /* who is refused does not answer for the member */
        CHECK_EQ(w.got, 1);
        CHECK_EQ(n_down, 1);
        close(other);
        close(member);
        tear_down(rv);
}

/* The link of a member breaks while somebody else has only greeted as that member. */
TEST(who_has_not_introduced_itself_is_no_link_of_the_member)
{
        uint8_t greeting[24] = "TENPEER1";
        char from[64], to[64];
        struct resolver *rv = set_up(from, to);
        int member, other;

        le64_put(greeting + 8, CLUSTER);
        le64_put(greeting + 16, 1);
        w.to = start(rv, 2, to);
        CHECK_EQ(peers_add(w.to, 1, from), 0);
        member = call_as(1, to);
        run_for(5000 * MS);
        CHECK_EQ(w.got, 1);
        other = call_from("127.0.0.2", to);
        CHECK_EQ(write(other, greeting, sizeof(greeting)), (ssize_t) sizeof(greeting));
        run_for(100 * MS);
        CHECK(!has_ended(other));
        close(member);
        run_for(100 * MS);
        CHECK_EQ(n_down, 1);
        close(other);
        tear_down(rv);
}

/* No member sends a frame of 100 MiB, and none may make us wait for it with the memory ready.
 */
TEST(a_frame_that_is_too_long_ends_its_link)
{
        const uint8_t length[4] = {0, 0, 0x40, 6};
        char from[64], to[64];
        struct resolver *rv = set_up(from, to);
        int fd;

        w.to = start(rv, 2, to);
        CHECK_EQ(peers_add(w.to, 1, from), 0);
        fd = call_as(1, to);
        run_for(5000 * MS);
        CHECK(!has_ended(fd));
        CHECK_EQ(write(fd, length, sizeof(length)), 4);
        run_for(100 * MS);
        CHECK(has_ended(fd));
        close(fd);
        tear_down(rv);
}

static unsigned n_accepted;

static void on_accepted(int fd, void *userdata)
{
        (void) fd; /* stays open, and silent */
        (void) userdata;
        n_accepted++;
}

/* A member that calls again, although its last link has not ended, was cut off or lost its
 * power: then our link to it is dead as well, and if nothing is sent on it, nobody notices
 * before a vote is lost. A link that was just made is left alone, or each of two members would
 * go on renewing its link because of the other. */
TEST(who_calls_again_is_called_again)
{
        char from[64], to[64];
        struct resolver *rv = set_up(from, to);
        struct listener *silent;
        struct url u;
        int fd[3];

        n_accepted = 0;
        CHECK_EQ(url_parse(to, &u), 0);
        CHECK_EQ(listener_new(&silent, w.loop, &u, on_accepted, NULL), 0);
        w.from = start(rv, 1, from);
        CHECK_EQ(peers_add(w.from, 2, to), 0);
        fd[0] = call_as(2, from);
        run_for(3000 * MS);
        CHECK_EQ(n_accepted, 1);
        fd[1] = call_as(2, from);
        run_for(500 * MS);
        CHECK_EQ(n_accepted, 2);
        CHECK(peers_linked(w.from, 2));
        fd[2] = call_as(2, from);
        run_for(500 * MS);
        CHECK_EQ(n_accepted, 2);
        for (unsigned i = 0; i < ARRAY_SIZE(fd); i++)
                close(fd[i]);
        listener_free(silent);
        tear_down(rv);
}

/* A flood from one address ends its own connections, not that of a member that is slower to
 * identify itself; if all addresses have as many, the oldest connection goes. */
TEST(who_floods_ends_its_own_connections)
{
        uint8_t said[24 + 4 + 4] = "TENPEER1";
        char from[64], to[64], host[32];
        struct resolver *rv = set_up(from, to);
        int fd[200], member, first;

        w.to = start(rv, 2, to);
        CHECK_EQ(peers_add(w.to, 1, from), 0);
        le64_put(said + 8, CLUSTER);
        le64_put(said + 16, 1);
        le32_put(said + 24, 4);
        memcpy(said + 28, VOTE, 4);

        first = call_from("127.0.0.3", to);
        run_for(20 * MS);
        member = call_from("127.0.0.2", to);
        run_for(20 * MS);
        for (size_t i = 0; i < ARRAY_SIZE(fd); i++) {
                fd[i] = call_from("127.0.0.1", to);
                if (i % 16 == 15)
                        run_for(20 * MS);
        }
        run_for(20 * MS);
        CHECK(recv(first, host, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
        CHECK_EQ(write(member, said, sizeof(said)), (ssize_t) sizeof(said));
        run_for(3000 * MS);
        CHECK_EQ(w.got, 1);

        /* One of each address: `first` is the oldest. */
        for (size_t i = 0; i < ARRAY_SIZE(fd); i++)
                close(fd[i]);
        run_for(20 * MS);
        for (size_t i = 0; i < 64; i++) {
                snprintf(host, sizeof(host), "127.0.1.%zu", i + 1);
                fd[i] = call_from(host, to);
        }
        run_for(100 * MS);
        CHECK_EQ(recv(first, host, 1, MSG_DONTWAIT), 0);
        CHECK(recv(fd[0], host, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN);
        for (size_t i = 0; i < 64; i++)
                close(fd[i]);
        close(member);
        close(first);
        tear_down(rv);
}
