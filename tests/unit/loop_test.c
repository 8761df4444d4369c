/* Connections with much to do, and others that must not wait for them: all on a real loop. */
#include <arpa/inet.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../sim/worker.h"
#include "loop/listener.h"
#include "loop/resolve.h"
#include "loop/standstill.h"
#include "loop/stream.h"
#include "loop/tls.h"
#include "loop/tls_socket.h"
#include "test.h"
#include "virtual_time.h"

#define SHARERS 40
#define BURN (2 * NSEC_PER_MSEC)

static void burn(nsec_t for_so_long)
{
        struct boot_time end = boot_add(boot_now(), for_so_long);

        while (boot_before(boot_now(), end))
                ;
}

static struct {
        struct loop *loop;
        struct loop_hook hook;
        unsigned turns, in_turn, most; /* calls between two hooks */
        struct loop_later later[SHARERS];
        unsigned runs[SHARERS], at[SHARERS], total;
        size_t bytes[2], bytes_in_turn, most_bytes;
        nsec_t cost; /* of a piece of input */
        struct stream *paused;
} w;

static struct boot_time on_turn(struct loop_hook *h unused_, struct boot_time now unused_)
{
        w.turns++;
        w.most = max_of(w.most, w.in_turn);
        w.most_bytes = max_of(w.most_bytes, w.bytes_in_turn);
        w.in_turn = 0;
        w.bytes_in_turn = 0;
        return BOOT_TIME_NEVER;
}

static void begin(void)
{
        memset(&w, 0, sizeof(w));
        CHECK_EQ(loop_new(&w.loop), 0);
        loop_hook_start(&w.hook, w.loop, LOOP_DECIDE, on_turn);
}

static void end(void)
{
        loop_hook_stop(&w.hook);
        loop_free(w.loop);
}

static void costly(struct loop_later *d)
{
        size_t i = (size_t) (d - w.later);

        burn(BURN);
        loop_lap(w.loop, "a costly one", "x");
        w.in_turn++;
        w.total++;
        /* In turn: no member is served for the second time before all were served once. */
        CHECK_EQ(w.runs[i], (w.total - 1) / SHARERS);
        w.runs[i]++;
        if (w.total == 2 * SHARERS)
                loop_stop(w.loop);
        if (w.runs[i] < 2)
                loop_share(d, w.loop, costly);
}

TEST(those_who_share_the_loop_take_a_part_of_each_turn)
{
        begin();
        for (size_t i = 0; i < SHARERS; i++)
                loop_share(&w.later[i], w.loop, costly);
        loop_run(w.loop);
        CHECK_EQ(w.total, 2 * SHARERS);
        CHECK(w.most <= 2); /* 3 ms are used up with the second */
        CHECK(w.turns >= SHARERS);
        CHECK(loop_longest_turn(w.loop) >= BURN);
        end();
}

static void costly_of_group(struct loop_later *d)
{
        size_t i = (size_t) (d - w.later);

        burn(BURN);
        loop_lap(w.loop, "a costly one", "x");
        w.runs[i]++;
        if (++w.total == 2 * SHARERS)
                loop_stop(w.loop);
        loop_share(d, w.loop, costly_of_group);
}

static void input_of_group(struct loop_later *d)
{
        size_t i = (size_t) (d - w.later);

        burn(BURN);
        loop_lap(w.loop, "input", NULL);
        w.runs[i]++;
        if (++w.total == 2 * SHARERS)
                loop_stop(w.loop);
        loop_share_input(d, w.loop, true, input_of_group);
}

/* A lone member gets as much as a whole crowd, in which each member gets as much as any other;
 * one that is gone delays nobody. */
static void groups(bool in)
{
        struct loop_group crowd, other;
        unsigned least = UINT_MAX, most = 0;

        begin();
        loop_group_init(&crowd);
        loop_group_init(&other);
        for (size_t i = 0; i < SHARERS; i++) {
                w.later[i].group = i > 0 ? &crowd : &other;
                if (in)
                        loop_share_input(&w.later[i], w.loop, true, input_of_group);
                else
                        loop_share(&w.later[i], w.loop, costly_of_group);
        }
        loop_later_cancel(&w.later[SHARERS / 2]);
        loop_run(w.loop);
        for (size_t i = 1; i < SHARERS; i++) {
                if (i == SHARERS / 2)
                        continue;
                least = min_of(least, w.runs[i]);
                most = max_of(most, w.runs[i]);
        }
        CHECK(w.runs[0] + 1 >= SHARERS);
        CHECK(least > 0 && most <= least + 1);
        CHECK_EQ(w.runs[SHARERS / 2], 0);
        for (size_t i = 0; i < SHARERS; i++)
                loop_later_cancel(&w.later[i]);
        end();
}

TEST(a_crowd_that_writes_shares_as_one)
{
        groups(false);
}

TEST(a_crowd_that_reads_shares_as_one)
{
        groups(true);
}

static void greets(struct stream *s, struct buf *tx unused_)
{
        size_t i = *(size_t *) stream_userdata(s);

        if (w.runs[i]++ > 0)
                return;
        burn(BURN);
        w.at[i] = w.total++;
        if (w.total == SHARERS)
                loop_stop(w.loop);
}

static void gone(struct stream *s, const char *why);

static const struct stream_ops greeting = {
        .patient = true, .on_fill = greets, .on_close = gone};

/* A crowd connects, and then somebody else: who greets them takes turns, too. */
TEST(a_newcomer_is_greeted_beside_a_crowd)
{
        static size_t which[SHARERS];
        struct stream *s[SHARERS];
        struct loop_group crowd, other;
        int peer[SHARERS];

        begin();
        loop_group_init(&crowd);
        loop_group_init(&other);
        for (size_t i = 0; i < SHARERS; i++) {
                int fd[2];

                which[i] = i;
                CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd),
                         0);
                CHECK_EQ(stream_accept(&s[i], w.loop, fd[0], NULL, &greeting, &which[i]), 0);
                stream_set_group(s[i], i + 1 < SHARERS ? &crowd : &other);
                peer[i] = fd[1];
        }
        loop_run(w.loop);
        CHECK(w.at[SHARERS - 1] <= 1);
        for (size_t i = 0; i < SHARERS; i++) {
                stream_free(s[i]);
                close(peer[i]);
        }
        end();
}

static void took(int fd, void *userdata)
{
        *(int *) userdata = fd;
        loop_stop(w.loop);
}

static int option(int fd, int level, int name)
{
        socklen_t len = sizeof(int);
        int v = -1;

        CHECK_EQ(getsockopt(fd, level, name, &v, &len), 0);
        return v;
}

/* Linux gives an accepted socket what was set for the one that listens. */
TEST(accepted_connections_notice_a_peer_that_vanished)
{
        struct sockaddr_in to = {.sin_family = AF_INET};
        struct url u = {.host = "127.0.0.1"};
        cleanup_(listener_freep) struct listener *l = NULL;
        int fd = -1, ours;

        begin();
        CHECK_EQ(listener_new(&l, w.loop, &u, took, &fd), 0);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        to.sin_port = htons(listener_port(l));
        ours = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK_EQ(connect(ours, (struct sockaddr *) &to, sizeof(to)), 0);
        loop_run(w.loop);
        CHECK_EQ(option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 5000);
        CHECK_EQ(option(fd, SOL_SOCKET, SO_KEEPALIVE), 1);
        CHECK_EQ(option(fd, IPPROTO_TCP, TCP_KEEPIDLE), 10);
        CHECK_EQ(option(fd, IPPROTO_TCP, TCP_KEEPINTVL), 3);
        CHECK_EQ(option(fd, IPPROTO_TCP, TCP_KEEPCNT), 3);
        CHECK(option(fd, IPPROTO_TCP, TCP_NODELAY) != 0);
        close(ours);
        close(fd);
        l = listener_free(l);
        end();
}

/* ---- readers that pause ---- */

static const struct stream_ops patient;

static struct {
        struct loop_timer look;
        int fd, reader;
        int expected; /* the TCP_USER_TIMEOUT that is waited for */
        unsigned looks;
        bool vanished;
        char why[80]; /* the stream has ended */
} pause_;

static void looks_at_it(struct loop_timer *t)
{
        static uint8_t bytes[1 << 16];

        if (pause_.expected != 0) /* it reads on */
                while (recv(pause_.reader, bytes, sizeof(bytes), MSG_DONTWAIT) > 0)
                        ;
        if (option(pause_.fd, IPPROTO_TCP, TCP_USER_TIMEOUT) == pause_.expected ||
            pause_.looks++ > 2000)
                loop_stop(w.loop);
        else
                loop_timer_in(t, 10 * NSEC_PER_MSEC);
}

static void until_timeout_is(int ms)
{
        pause_.expected = ms;
        loop_timer_in(&pause_.look, 10 * NSEC_PER_MSEC);
        loop_run(w.loop);
        CHECK_EQ(option(pause_.fd, IPPROTO_TCP, TCP_USER_TIMEOUT), ms);
}

/* A stream whose other side does not read yet. */
static struct stream *begin_with_reader(const struct stream_ops *stream_ops)
{
        struct sockaddr_in to = {.sin_family = AF_INET};
        struct url u = {.host = "127.0.0.1"};
        cleanup_(listener_freep) struct listener *l = NULL;
        struct stream *s;

        begin();
        memset(&pause_, 0, sizeof(pause_));
        loop_timer_init(&pause_.look, w.loop, looks_at_it);
        CHECK_EQ(listener_new(&l, w.loop, &u, took, &pause_.fd), 0);
        to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        to.sin_port = htons(listener_port(l));
        pause_.reader = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK_EQ(connect(pause_.reader, (struct sockaddr *) &to, sizeof(to)), 0);
        loop_run(w.loop);
        CHECK_EQ(stream_accept(&s, w.loop, pause_.fd, NULL, stream_ops, NULL), 0);
        return s;
}

/* More than the sockets have room for. */
static void write_much(struct stream *s)
{
        static uint8_t bytes[1 << 20];

        for (int i = 0; i < 16; i++)
                buf_add(stream_tx(s), bytes, sizeof(bytes));
        stream_kick(s);
}

static void end_with_reader(struct stream *s)
{
        stream_free(s);
        close(pause_.reader);
        loop_timer_disarm(&pause_.look);
        end();
}

/* The kernel must not count the time in which the other side has no room. */
TEST(a_reader_that_pauses_is_not_taken_for_one_that_vanished)
{
        struct stream *s = begin_with_reader(&patient);

        write_much(s);
        until_timeout_is(0);
        until_timeout_is(5000);
        end_with_reader(s);
}

/* From now on nothing arrives there: it acknowledges nothing, and answers no probe. */
static void vanish(int reader)
{
        struct sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
        struct sock_fprog all = {.len = 1, .filter = &none};

        CHECK_EQ(setsockopt(reader, SOL_SOCKET, SO_ATTACH_FILTER, &all, sizeof(all)), 0);
}

static uint32_t unacknowledged(int fd)
{
        struct tcp_info info;
        socklen_t len = sizeof(info);

        CHECK_EQ(getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len), 0);
        return info.tcpi_unacked;
}

/* Whether its kernel has data to send, of which none is on its way. */
static bool has_no_window(int fd)
{
        int n;

        CHECK_EQ(ioctl(fd, SIOCOUTQNSD, &n), 0);
        return n > 0 && unacknowledged(fd) == 0;
}

static void vanishes_when_full(struct loop_timer *t)
{
        if (!pause_.vanished && has_no_window(pause_.fd)) {
                vanish(pause_.reader);
                pause_.vanished = true;
        }
        if (pause_.looks++ > 2000)
                loop_stop(w.loop);
        else
                loop_timer_in(t, 10 * NSEC_PER_MSEC);
}

static void notes_why(struct stream *s unused_, const char *why)
{
        snprintf(pause_.why, sizeof(pause_.why), "%s", why);
        loop_stop(w.loop);
}

static const struct stream_ops patient_to_the_end = {.patient = true, .on_close = notes_why};

/* What was sent is acknowledged, so that the kernel itself would probe for a quarter of an
 * hour: the probes that get no answer are counted. */
TEST(a_reader_that_vanishes_while_it_pauses_is_noticed)
{
        struct stream *s = begin_with_reader(&patient_to_the_end);

        write_much(s);
        loop_timer_init(&pause_.look, w.loop, vanishes_when_full);
        loop_timer_in(&pause_.look, 10 * NSEC_PER_MSEC);
        loop_run(w.loop);
        CHECK(pause_.vanished);
        CHECK_STR(pause_.why, "it does not answer");
        end_with_reader(s);
}

static void stops_it(struct loop_timer *t unused_)
{
        loop_stop(w.loop);
}

/* For that one TCP_USER_TIMEOUT counts, however long it is looked at. */
TEST(a_reader_that_acknowledges_nothing_is_not_excused)
{
        struct stream *s = begin_with_reader(&patient_to_the_end);

        virtual_time_begin();
        vanish(pause_.reader);
        write_much(s);
        loop_timer_init(&pause_.look, w.loop, stops_it);
        loop_timer_in(&pause_.look, 3 * NSEC_PER_SEC); /* the stream looks each second */
        loop_run(w.loop);
        CHECK_STR(pause_.why, "");
        CHECK(unacknowledged(pause_.fd) > 0 && stream_unsent(s) > 0);
        CHECK_EQ(option(pause_.fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 5000);
        end_with_reader(s);
}

static void input(struct loop_later *d)
{
        size_t i = (size_t) (d - w.later);

        burn(BURN);
        loop_lap(w.loop, "input", NULL);
        w.in_turn++;
        w.runs[i]++;
        if (++w.total == 2 * SHARERS)
                loop_stop(w.loop);
        loop_share_input(d, w.loop, true, input);
}

static void urgent(struct loop_later *d)
{
        w.runs[0]++;
        loop_share_input(d, w.loop, false, urgent);
}

TEST(input_that_cannot_wait_is_served_in_each_turn)
{
        begin();
        for (size_t i = 1; i < SHARERS; i++)
                loop_share_input(&w.later[i], w.loop, true, input);
        loop_share_input(&w.later[0], w.loop, false, urgent);
        loop_run(w.loop);
        CHECK(w.most <= 2);
        CHECK(w.runs[0] >= w.turns - 1);
        for (size_t i = 2; i < SHARERS; i++)
                CHECK(w.runs[i] + 1 >= w.runs[1] && w.runs[i] <= w.runs[1] + 1);
        for (size_t i = 0; i < SHARERS; i++)
                loop_later_cancel(&w.later[i]);
        end();
}

/* ---- newcomers ---- */

static void is_greeted(struct loop_later *d unused_)
{
        burn(BURN);
        loop_lap(w.loop, "a newcomer", NULL);
        w.in_turn++;
        if (++w.total == SHARERS / 2)
                loop_stop(w.loop);
}

static void is_there(struct loop_later *d)
{
        burn(BURN);
        loop_lap(w.loop, "input", NULL);
        w.runs[0]++;
        CHECK(w.in_turn == 0); /* all that are served in this turn come before a newcomer */
        loop_share_input(d, w.loop, true, is_there);
}

/* Those who are there have more input than a turn has time for, and yet a newcomer is greeted
 * in each turn, after them; although the newcomers came first, and all belong to one group. */
TEST(newcomers_come_after_those_who_are_there_and_are_greeted_in_each_turn)
{
        struct loop_group group;

        begin();
        loop_group_init(&group);
        for (size_t i = 0; i < SHARERS; i++)
                w.later[i].group = &group;
        for (size_t i = 0; i < SHARERS / 2; i++)
                loop_share_greeting(&w.later[i], w.loop, is_greeted);
        for (size_t i = SHARERS / 2; i < SHARERS; i++)
                loop_share_input(&w.later[i], w.loop, true, is_there);
        loop_run(w.loop);
        CHECK_EQ(w.total, SHARERS / 2);
        CHECK(w.turns <= SHARERS / 2 + 1);
        CHECK(w.runs[0] + 1 >= w.turns);
        for (size_t i = 0; i < SHARERS; i++)
                loop_later_cancel(&w.later[i]);
        end();
}

/* The loop does not sleep while some wait for their turn, though nothing else happens. */
TEST(newcomers_that_are_left_for_the_next_turn_get_it_at_once)
{
        struct loop_group group;

        begin();
        loop_group_init(&group);
        for (size_t i = 0; i < SHARERS / 2; i++) {
                w.later[i].group = &group;
                loop_share_greeting(&w.later[i], w.loop, is_greeted);
        }
        loop_run(w.loop);
        CHECK_EQ(w.total, SHARERS / 2);
        CHECK(w.turns > 1);
        end();
}

static struct {
        int fds[SHARERS]; /* the newcomers' ends */
        unsigned answered;
} newcomers;

static bool has_answer(int fd)
{
        uint8_t b;

        return recv(fd, &b, 1, MSG_PEEK | MSG_DONTWAIT) == 1;
}

static void renews(struct stream *s unused_, struct view data unused_)
{
        for (size_t i = 0; i < SHARERS; i++)
                newcomers.answered += has_answer(newcomers.fds[i]);
        loop_stop(w.loop);
}

static void stays(struct stream *s unused_, const char *why unused_)
{
        CHECK(false);
}

static const struct stream_ops newcomer = {.patient = true, .on_close = stays};
static const struct stream_ops old_one = {
        .patient = true, .on_data = renews, .on_close = stays};

static void say_hello(int fd)
{
        SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
        SSL *ssl = SSL_new(ctx);

        CHECK_EQ(tls_socket_set(ssl, fd), 0);
        SSL_set_connect_state(ssl);
        CHECK_EQ(SSL_get_error(ssl, SSL_do_handshake(ssl)), SSL_ERROR_WANT_READ);
        SSL_free(ssl);
        SSL_CTX_free(ctx);
}

/* A crowd of one address has sent its ClientHellos, each of which costs a signature, when a
 * client of that address, which has been there before, sends something: that is read before any
 * of the crowd is answered. */
TEST(who_is_there_does_not_wait_behind_a_crowd_of_hellos)
{
        const struct tls_files files = {.made_for = "127.0.0.1", .made_for_years = 1};
        struct stream *crowd[SHARERS], *old;
        struct loop_group address;
        struct tls_error err;
        int fd[2], old_fd;
        struct tls *tls;

        begin();
        memset(&newcomers, 0, sizeof(newcomers));
        loop_group_init(&address);
        CHECK_EQ(tls_new_server(&tls, &files, &err), 0);
        for (size_t i = 0; i < SHARERS; i++) {
                CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd),
                         0);
                CHECK_EQ(stream_accept(&crowd[i], w.loop, fd[0], tls, &newcomer, NULL), 0);
                stream_set_group(crowd[i], &address);
                newcomers.fds[i] = fd[1];
                say_hello(fd[1]);
        }
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
        CHECK_EQ(stream_accept(&old, w.loop, fd[0], NULL, &old_one, NULL), 0);
        stream_set_group(old, &address);
        old_fd = fd[1];
        CHECK_EQ(write(old_fd, "renew", 5), 5);
        loop_run(w.loop);
        CHECK_EQ(newcomers.answered, 0);
        stream_free(old);
        close(old_fd);
        for (size_t i = 0; i < SHARERS; i++) {
                stream_free(crowd[i]);
                close(newcomers.fds[i]);
        }
        tls_free(tls);
        end();
}

static void closed(struct stream *s, const char *why);

static const struct stream_ops leaves = {.patient = true, .on_close = closed};

/* Whoever sends a ClientHello and closes cannot complete the handshake, so it is not worth a
 * signature. */
TEST(who_has_closed_gets_no_answer_to_its_hello)
{
        const struct tls_files files = {.made_for = "127.0.0.1", .made_for_years = 1};
        struct tls_error err;
        struct stream *s;
        struct tls *tls;
        int fd[2];

        begin();
        CHECK_EQ(tls_new_server(&tls, &files, &err), 0);
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
        say_hello(fd[1]);
        CHECK_EQ(shutdown(fd[1], SHUT_WR), 0);
        CHECK_EQ(stream_accept(&s, w.loop, fd[0], tls, &leaves, NULL), 0);
        loop_run(w.loop); /* until it is closed */
        CHECK(!has_answer(fd[1]));
        close(fd[1]);
        tls_free(tls);
        end();
}

static struct loop_turn reported;

static nsec_t thread_time(void)
{
        struct timespec t;

        CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
        return t.tv_sec * NSEC_PER_SEC + t.tv_nsec;
}

static void on_long(const struct loop_turn *t, void *arg)
{
        (void) arg;
        if (reported.took == 0) /* a busy machine makes others long */
                reported = *t;
}

static void once(struct loop_later *d)
{
        (void) d;
        burn(5 * NSEC_PER_MSEC);
        loop_lap(w.loop, "the culprit", "somebody");
        loop_stop(w.loop);
}

TEST(a_long_turn_is_reported_with_its_cause)
{
        /* Who waits longer for a processor in that turn is its cause, rightly. */
        for (unsigned tries = 0; tries < 5; tries++) {
                memset(&reported, 0, sizeof(reported));
                begin();
                loop_watch_turns(w.loop, 5 * NSEC_PER_MSEC, on_long, NULL);
                loop_share(&w.later[0], w.loop, once);
                loop_run(w.loop);
                end();
                CHECK(reported.took >= 5 * NSEC_PER_MSEC && reported.piece <= reported.took);
                if (strcmp(reported.what, "the culprit") == 0)
                        break;
        }
        CHECK_STR(reported.what, "the culprit");
        CHECK_STR(reported.who, "somebody");
}

static void blocked(struct loop_later *d)
{
        (void) d;
        (void) poll(NULL, 0, 40); /* as where others have the processor */
        loop_stop(w.loop);
}

static void on_processor(struct loop_later *d)
{
        nsec_t from = thread_time();

        (void) d;
        while (thread_time() - from < 20 * NSEC_PER_MSEC)
                ;
        loop_stop(w.loop);
}

/* A long turn may not be our fault: it reports how much processor time it had. */
TEST(a_long_turn_says_how_much_of_it_ran)
{
        static void (*const fns[])(struct loop_later * d) = {blocked, on_processor};

        for (size_t i = 0; i < ARRAY_SIZE(fns); i++) {
                memset(&reported, 0, sizeof(reported));
                begin();
                loop_watch_turns(w.loop, 20 * NSEC_PER_MSEC, on_long, NULL);
                loop_share(&w.later[0], w.loop, fns[i]);
                loop_run(w.loop);
                if (fns[i] == blocked)
                        CHECK(reported.took >= 40 * NSEC_PER_MSEC &&
                              reported.ran < 20 * NSEC_PER_MSEC);
                else
                        CHECK(reported.ran >= 19 * NSEC_PER_MSEC &&
                              reported.ran <= reported.took);
                end();
        }
}

static void got_bytes(struct stream *s, struct view data)
{
        size_t i = *(size_t *) stream_userdata(s);

        burn(w.cost);
        w.in_turn++;
        w.bytes[i] += data.len;
        w.bytes_in_turn += data.len;
        if (w.bytes[0] + w.bytes[1] >= 6 << 20 || (w.cost > 0 && w.turns > 200))
                loop_stop(w.loop);
}

static void gone(struct stream *s, const char *why)
{
        (void) s;
        (void) why;
}

static const struct stream_ops patient = {
        .patient = true, .on_data = got_bytes, .on_close = gone};

struct writer {
        struct loop_io io;
        int fd;
};

static void keep_full(struct loop_io *io, int events)
{
        static uint8_t zeroes[1 << 16];
        struct writer *wr = container_of(io, struct writer, io);

        (void) events;
        while (write(wr->fd, zeroes, sizeof(zeroes)) > 0)
                ;
}

/* Two senders that never stop, one of them much larger: neither keeps the other, or the hooks,
 * from their turn, whatever a byte costs. */
static void flood(nsec_t cost)
{
        static size_t which[2] = {0, 1};
        struct writer writers[2] = {{.fd = -1}, {.fd = -1}};
        struct stream *s[2];

        begin();
        w.cost = cost;
        for (size_t i = 0; i < 2; i++) {
                int fd[2];

                CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd),
                         0);
                CHECK_EQ(stream_accept(&s[i], w.loop, fd[0], NULL, &patient, &which[i]), 0);
                writers[i].fd = fd[1];
                loop_io_start(&writers[i].io, w.loop, fd[1], EV_WRITE, keep_full);
        }
        loop_run(w.loop);
        CHECK(w.bytes[0] > 0 && w.bytes[1] > 0);
        for (size_t i = 0; i < 2; i++) {
                stream_free(s[i]);
                loop_io_stop(&writers[i].io);
                close(writers[i].fd);
        }
        end();
}

TEST(who_sends_most_does_not_have_the_loop)
{
        flood(0);
        /* What one event may read, of each of the two, and the last slice. */
        CHECK(w.most_bytes <= 2 * (256 + 16) * 1024);
        flood(2 * NSEC_PER_MSEC);
        CHECK(w.most <= 3); /* each is one slice, which is longer than a piece may be */
        CHECK(w.bytes[0] < 2 * w.bytes[1] + (64 << 10) &&
              w.bytes[1] < 2 * w.bytes[0] + (64 << 10));
}

#define CROWD 300

static struct {
        struct loop_io io;
        struct loop_later turn;
        int fd;
        bool had;
} crowd[CROWD];

static void has_its_turn(struct loop_later *d)
{
        burn(NSEC_PER_MSEC / 5);
        for (size_t i = 0; i < CROWD; i++)
                if (d == &crowd[i].turn) {
                        w.total += !crowd[i].had;
                        crowd[i].had = true;
                }
        loop_lap(w.loop, "one of a crowd", NULL);
        if (w.total == CROWD)
                loop_stop(w.loop);
}

static void takes_note(struct loop_io *io, int events unused_)
{
        w.in_turn++;
        w.runs[0]++;
        for (size_t i = 0; i < CROWD; i++)
                if (io == &crowd[i].io)
                        loop_share_input(&crowd[i].turn, w.loop, true, has_its_turn);
}

/* They wait for their turn, and the loop does not hear of all of them in each of its own. */
TEST(a_crowd_is_reported_once)
{
        begin();
        for (size_t i = 0; i < CROWD; i++) {
                memset(&crowd[i], 0, sizeof(crowd[i]));
                crowd[i].fd = eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC);
                CHECK(crowd[i].fd >= 0);
                crowd[i].io.of_crowd = true;
                loop_io_start(&crowd[i].io, w.loop, crowd[i].fd, EV_READ, takes_note);
        }
        loop_run(w.loop);
        CHECK_EQ(w.total, CROWD);
        CHECK(w.turns > 5);
        CHECK_EQ(w.runs[0], CROWD);
        for (size_t i = 0; i < CROWD; i++) {
                loop_io_stop(&crowd[i].io);
                close(crowd[i].fd);
        }
        end();
}

/* One of those that were reported together ends all the others. */
static void ends_the_others(struct loop_io *io, int events unused_)
{
        w.total++;
        for (size_t i = 0; i < CROWD; i++)
                if (&crowd[i].io != io && crowd[i].fd >= 0) {
                        loop_io_stop(&crowd[i].io);
                        close(crowd[i].fd);
                        crowd[i].fd = -1;
                }
        loop_stop(w.loop);
}

TEST(a_watcher_that_ended_is_not_called)
{
        begin();
        for (size_t i = 0; i < CROWD; i++) {
                memset(&crowd[i], 0, sizeof(crowd[i]));
                crowd[i].fd = i < 50 ? eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC) : -1;
                if (crowd[i].fd < 0)
                        continue;
                crowd[i].io.of_crowd = true;
                loop_io_start(&crowd[i].io, w.loop, crowd[i].fd, EV_READ, ends_the_others);
        }
        loop_run(w.loop);
        CHECK_EQ(w.total, 1);
        for (size_t i = 0; i < CROWD; i++)
                if (crowd[i].fd >= 0) {
                        loop_io_stop(&crowd[i].io);
                        close(crowd[i].fd);
                }
        end();
}

static void closed(struct stream *s, const char *why);

static struct loop_timer pause_ends;

static void takes_and_ends(struct stream *s, struct view data)
{
        w.bytes[0] += data.len;
        if (w.bytes[0] == 3) { /* not read on for a while, in which the rest comes */
                stream_pause(s, true);
                loop_timer_in(&pause_ends, 5 * NSEC_PER_MSEC);
        }
}

static const struct stream_ops pauses = {
        .patient = true, .on_data = takes_and_ends, .on_close = closed};

static void goes_on(struct loop_timer *t unused_)
{
        stream_pause(w.paused, false);
}

/* What is reported once is not lost: bytes and the end of a stream that came together, and
 * those that came while it was paused. */
TEST(the_end_that_comes_with_the_last_bytes_is_seen)
{
        for (int pause = 0; pause < 2; pause++) {
                const char *const words[] = {"ab", "abc"};
                int fd[2];

                begin();
                loop_timer_init(&pause_ends, w.loop, goes_on);
                CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd),
                         0);
                CHECK(write(fd[1], words[pause], strlen(words[pause])) > 0);
                close(fd[1]);
                CHECK_EQ(stream_accept(&w.paused, w.loop, fd[0], NULL, &pauses, NULL), 0);
                loop_run(w.loop); /* until it is closed */
                CHECK_EQ(w.bytes[0], strlen(words[pause]));
                end();
        }
}

TEST(a_hello_that_claims_to_be_large_is_refused)
{
        static const struct {
                uint8_t head[TLS_HELLO_HEAD];
                bool fits;
        } hellos[] = {
                {{22, 3, 1, 2, 0, 1, 0, 1, 252}, true},
                {{22, 3, 1, 64, 0, 1, 0, 64, 0}, true},
                {{22, 3, 1, 64, 0, 1, 0, 64, 1}, false},
                {{22, 3, 1, 0, 128, 1, 1, 255, 184}, false},
                {{22, 3, 1, 0, 1, 1, 22, 3, 1}, false}, /* its length is in the next records */
                {{'P', 'R', 'I', ' ', '*', ' ', 'H', 'T', 'T'},
                 true}, /* OpenSSL reports why not */
        };

        for (size_t i = 0; i < ARRAY_SIZE(hellos); i++)
                CHECK_EQ(tls_hello_fits(hellos[i].head), hellos[i].fits);
}

static struct loop_timer due[CROWD];

static void costs_something(struct loop_timer *t unused_)
{
        burn(NSEC_PER_MSEC / 5);
        w.in_turn++;
        if (++w.total == CROWD)
                loop_stop(w.loop);
}

/* As after a pause of the machine: all deadlines of a crowd have passed. */
TEST(timers_that_are_due_at_once_take_a_part_of_each_turn)
{
        begin();
        for (size_t i = 0; i < CROWD; i++) {
                loop_timer_init(&due[i], w.loop, costs_something);
                loop_timer_arm(&due[i], (struct boot_time){.ns = 1});
        }
        loop_run(w.loop);
        CHECK_EQ(w.total, CROWD);
        CHECK(w.most <= 6);
        CHECK(w.turns >= CROWD / 6);
        end();
}

static void last_words(struct stream *s, struct buf *tx)
{
        if (w.total++ == 0)
                buf_add(tx, "bye", 3);
        stream_close_after_tx(s); /* which asks for a flush */
}

static void closed(struct stream *s, const char *why)
{
        (void) why;
        stream_free(s);
        loop_stop(w.loop);
}

static const struct stream_ops ends = {
        .patient = true, .on_data = got_bytes, .on_fill = last_words, .on_close = closed};

TEST(a_stream_that_says_its_last_words_is_closed)
{
        struct stream *s;
        char text[8];
        int fd[2];

        begin();
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fd), 0);
        CHECK_EQ(stream_accept(&s, w.loop, fd[0], NULL, &ends, NULL), 0);
        loop_run(w.loop);
        CHECK_EQ(read(fd[1], text, sizeof(text)), 3);
        CHECK_EQ(read(fd[1], text, sizeof(text)), 0);
        CHECK(w.total <= 3);
        close(fd[1]);
        end();
}

/* A stream that has read when another loop, as in another thread, is at work. */
static struct beside {
        struct loop *loop;
        struct beside *other; /* its loop runs while this one holds what it has read */
        char got[16];
        size_t n;
} beside[2];

static void read_beside(struct stream *s, struct view data)
{
        struct beside *b = stream_userdata(s);

        if (b->other)
                loop_run(b->other->loop);
        b->n = min_of(data.len, sizeof(b->got));
        memcpy(b->got, data.p, b->n);
        loop_stop(b->loop);
}

static const struct stream_ops beside_ops = {.on_data = read_beside, .on_close = gone};

TEST(what_one_loop_reads_is_not_touched_by_another)
{
        struct stream *s[2];
        int fd[2][2];

        for (size_t i = 0; i < 2; i++) {
                beside[i] = (struct beside){.other = i == 0 ? &beside[1] : NULL};
                CHECK_EQ(loop_new(&beside[i].loop), 0);
                CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0,
                                    fd[i]),
                         0);
                CHECK_EQ(stream_accept(&s[i], beside[i].loop, fd[i][0], NULL, &beside_ops,
                                       &beside[i]),
                         0);
                CHECK_EQ(write(fd[i][1], i == 0 ? "ours" : "theirs", i == 0 ? 4 : 6),
                         i == 0 ? 4 : 6);
        }
        loop_run(beside[0].loop);
        CHECK(beside[0].n == 4 && memcmp(beside[0].got, "ours", 4) == 0);
        CHECK(beside[1].n == 6 && memcmp(beside[1].got, "theirs", 6) == 0);
        for (size_t i = 0; i < 2; i++) {
                stream_free(s[i]);
                close(fd[i][1]);
                loop_free(beside[i].loop);
        }
}

static unsigned accepted;
static int accepted_fds[64];

static void on_connection(int fd, void *userdata)
{
        (void) userdata;
        accepted_fds[accepted++] = fd;
}

static void after_a_while(struct loop_timer *t)
{
        loop_stop(t->loop);
}

/* Runs out of descriptors with connections waiting: the listener pauses, and continues once
 * there are some. */
TEST(a_listener_rests_while_there_are_no_descriptors)
{
        struct rlimit was, few;
        struct listener *l;
        struct loop_timer t;
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        struct url u;
        int clients[8], spare;

        begin();
        accepted = 0;
        CHECK_EQ(url_parse("http://127.0.0.1:0", &u), 0);
        CHECK_EQ(listener_new(&l, w.loop, &u, on_connection, NULL), 0);
        a.sin_port = htons(listener_port(l));
        loop_timer_init(&t, w.loop, after_a_while);
        for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
                clients[i] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
                CHECK_EQ(connect(clients[i], (struct sockaddr *) &a, sizeof(a)), 0);
        }
        CHECK_EQ(getrlimit(RLIMIT_NOFILE, &was), 0);
        few = was;
        spare = dup(0);
        few.rlim_cur = (rlim_t) spare + 3;
        close(spare);
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
        loop_timer_in(&t, 30 * NSEC_PER_MSEC);
        loop_run(w.loop);
        CHECK_EQ(accepted, 3);
        CHECK(w.turns < 20); /* it did not run in circles */

        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);
        for (unsigned tries = 0; accepted < 8 && tries < 100; tries++) {
                loop_timer_in(&t, 20 * NSEC_PER_MSEC);
                loop_run(w.loop);
        }
        CHECK_EQ(accepted, 8);

        /* A reserve is not touched. */
        few.rlim_cur = (rlim_t) spare + 64;
        listener_set_reserve(l, 64);
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
        close(clients[0]);
        clients[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        CHECK_EQ(connect(clients[0], (struct sockaddr *) &a, sizeof(a)), 0);
        loop_timer_in(&t, 20 * NSEC_PER_MSEC);
        loop_run(w.loop);
        CHECK_EQ(accepted, 8);
        CHECK_EQ(recv(clients[0], &a, 1, 0), 0); /* closed, not left waiting */
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &was), 0);

        for (size_t i = 0; i < ARRAY_SIZE(clients); i++) {
                close(clients[i]);
                close(accepted_fds[i]);
        }
        loop_timer_disarm(&t);
        listener_free(l);
        end();
}

/* As the kernel sends it: a head, then words, each with its end. */
TEST(another_generation_id_is_a_sign_and_nothing_else_is)
{
        static const char event[] =
                "change@/devices/LNXSYSTM:00/QEMUVGID:00\0ACTION=change\0NEW_VMGENID=1";
        static const char other[] = "change@/devices/x\0ACTION=change\0SYNTH_ARG_NEW_VMGENID=1";
        static const char head[] = "NEW_VMGENID=10\0ACTION=add";

        CHECK(standstill_is_sign(event, sizeof(event)));
        CHECK(!standstill_is_sign(event, sizeof(event) - 1)); /* cut off */
        CHECK(!standstill_is_sign(other, sizeof(other)));
        CHECK(!standstill_is_sign(head, sizeof(head)));
        CHECK(!standstill_is_sign("", 0));
        CHECK(!standstill_is_sign("", 1));
}

/* ---- inside another loop ---- */

static struct {
        struct loop_io first, second;
        struct loop_timer timer;
        unsigned first_calls, second_calls, timer_calls;
        int fds[2]; /* eventfds */
} inner;

static void on_second(struct loop_io *io, int events unused_)
{
        eventfd_t n;

        CHECK_EQ(eventfd_read(io->ev.fd, &n), 0);
        inner.second_calls++;
        loop_timer_in(&inner.timer, 20 * NSEC_PER_MSEC);
}

/* What is registered from inside a callback is watched when dispatch returns. */
static void on_first(struct loop_io *io, int events unused_)
{
        eventfd_t n;

        CHECK_EQ(eventfd_read(io->ev.fd, &n), 0);
        if (inner.first_calls++ == 0)
                loop_io_start(&inner.second, io->loop, inner.fds[1], EV_READ, on_second);
}

static void on_inner_timer(struct loop_timer *t unused_)
{
        inner.timer_calls++;
}

static bool is_readable(int fd, int timeout_ms)
{
        struct pollfd p = {.fd = fd, .events = POLLIN};

        return poll(&p, 1, timeout_ms) == 1;
}

static void dispatch_all(struct loop *l)
{
        unsigned n = 0;

        while (loop_dispatch(l))
                CHECK(++n < 100);
}

TEST(a_loop_runs_inside_of_another_by_its_descriptor)
{
        struct loop *l;
        int fd;

        memset(&inner, 0, sizeof(inner));
        CHECK_EQ(loop_new(&l), 0);
        fd = loop_nest(l);
        CHECK(fd >= 0);
        for (size_t i = 0; i < 2; i++)
                inner.fds[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        loop_timer_init(&inner.timer, l, on_inner_timer);
        loop_io_start(&inner.first, l, inner.fds[0], EV_READ, on_first);
        dispatch_all(l);
        CHECK(!is_readable(fd, 0));

        CHECK_EQ(eventfd_write(inner.fds[0], 1), 0);
        CHECK(is_readable(fd, 0));
        dispatch_all(l);
        CHECK_EQ(inner.first_calls, 1);
        CHECK(!is_readable(fd, 0));
        CHECK_EQ(inner.timer_calls, 0);

        CHECK_EQ(eventfd_write(inner.fds[1], 1), 0);
        CHECK(is_readable(fd, 0));
        dispatch_all(l);
        CHECK_EQ(inner.second_calls, 1);

        if (inner.timer_calls == 0) { /* a busy machine may have been there already */
                CHECK(is_readable(fd, 5000));
                dispatch_all(l);
        }
        CHECK_EQ(inner.timer_calls, 1);
        CHECK(!is_readable(fd, 0));

        loop_io_stop(&inner.first);
        loop_io_stop(&inner.second);
        for (size_t i = 0; i < 2; i++)
                close(inner.fds[i]);
        loop_free(l);
}

/* ---- TLS to who is gone ---- */

static void on_pipe(int signo unused_)
{
        w.total++;
}

/* A program that uses our library does not know about our sockets. */
TEST(tls_to_a_side_that_is_gone_is_an_error_and_no_SIGPIPE)
{
        SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
        SSL *ssl = SSL_new(ctx);
        struct sigaction sa = {.sa_handler = on_pipe}, was;
        uint8_t hello[2048];
        int pair[2];

        memset(&w, 0, sizeof(w));
        CHECK_EQ(sigaction(SIGPIPE, &sa, &was), 0);
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair), 0);
        CHECK_EQ(tls_socket_set(ssl, pair[0]), 0);
        SSL_set_connect_state(ssl);
        CHECK_EQ(SSL_get_error(ssl, SSL_do_handshake(ssl)), SSL_ERROR_WANT_READ);
        CHECK(read(pair[1], hello, sizeof(hello)) > 0);
        close(pair[1]);
        CHECK(SSL_do_handshake(ssl) < 0); /* it reads the end */
        CHECK_EQ(SSL_get_error(ssl, -1), SSL_ERROR_SSL);
        SSL_free(ssl);

        ssl = SSL_new(ctx);
        CHECK_EQ(tls_socket_set(ssl, pair[0]), 0);
        SSL_set_connect_state(ssl);
        errno = 0;
        CHECK(SSL_do_handshake(ssl) < 0); /* it writes */
        CHECK_EQ(errno, EPIPE);
        CHECK_EQ(w.total, 0);
        SSL_free(ssl);
        close(pair[0]);
        SSL_CTX_free(ctx);
        sigaction(SIGPIPE, &was, NULL);
}

/* ---- TLS records without data ---- */

static struct {
        SSL *ssl;
        struct loop_io io;
        int fd;
        bool done; /* everything was sent */
} peer;

/* Greets; then sends new keys and a byte at once (RFC 8446, 4.6.3). */
static void greets_and_updates(struct loop_io *io unused_, int events unused_)
{
        BIO *one = NULL;
        char bytes[512];
        int n;

        if (peer.done || SSL_do_handshake(peer.ssl) != 1)
                return;
        one = BIO_new(BIO_s_mem());
        SSL_set0_wbio(peer.ssl, one);
        CHECK_EQ(SSL_key_update(peer.ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        CHECK_EQ(SSL_do_handshake(peer.ssl), 1);
        CHECK_EQ(SSL_write(peer.ssl, "x", 1), 1);
        n = BIO_read(one, bytes, sizeof(bytes));
        CHECK_EQ(send(peer.fd, bytes, (size_t) n, MSG_NOSIGNAL), n);
        peer.done = true;
}

static void read_all(struct stream *s unused_, struct view data)
{
        w.bytes[0] += data.len;
        loop_stop(w.loop);
}

static const struct stream_ops reads = {.patient = true, .on_data = read_all, .on_close = gone};

static void too_late(struct loop_timer *t unused_)
{
        loop_stop(w.loop);
}

/* A patient stream is notified once of what arrives. Its read ends at a record that carries no
 * data, with the request still in the socket. */
TEST(a_request_that_comes_with_a_tls_key_update_is_read)
{
        SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
        struct tls_files files = {.made_for = "localhost", .made_for_years = 1};
        struct loop_timer guard;
        struct tls_error err;
        struct stream *s;
        struct tls *tls;
        int pair[2];

        begin();
        CHECK_EQ(tls_new_server(&tls, &files, &err), 0);
        CHECK_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
        CHECK_EQ(stream_accept(&s, w.loop, pair[0], tls, &reads, NULL), 0);
        peer.done = false;
        peer.fd = pair[1];
        peer.ssl = SSL_new(ctx);
        CHECK_EQ(tls_socket_set(peer.ssl, pair[1]), 0);
        SSL_set_connect_state(peer.ssl);
        loop_io_start(&peer.io, w.loop, pair[1], EV_READ, greets_and_updates);
        (void) SSL_do_handshake(peer.ssl); /* its hello; the answer is an event */
        loop_timer_init(&guard, w.loop, too_late);
        loop_timer_in(&guard, 20 * NSEC_PER_SEC);
        loop_run(w.loop);
        CHECK(peer.done);
        CHECK_EQ(w.bytes[0], 1);
        loop_timer_disarm(&guard);
        stream_free(s);
        loop_io_stop(&peer.io);
        SSL_free(peer.ssl);
        close(pair[1]);
        tls_free(tls);
        SSL_CTX_free(ctx);
        end();
}

/* ---- names ---- */

static struct {
        struct resolver *rv;
        unsigned answers;
} names;

static void on_answer(int r, const struct inet_addresses *a, void *userdata unused_)
{
        CHECK((r == 0) == (a != NULL));
        names.answers++;
}

/* As a member does, which goes on with another endpoint. */
static void asks_for_another(int r, const struct inet_addresses *a, void *userdata unused_)
{
        struct resolve_query *q;
        struct url u;

        CHECK((r == 0) == (a != NULL));
        names.answers++;
        CHECK_EQ(url_parse("http://localhost:9999", &u), 0);
        CHECK_EQ(resolve(names.rv, &u, on_answer, NULL, &q), 0);
        CHECK_EQ(names.answers, 1);
}

/* The oldest name makes room for a new one, but not while its own answer is given. */
TEST(a_name_whose_answer_asks_for_another_one_stays)
{
        struct resolve_query *q;
        struct url u, at;
        char name[64];

        begin();
        names.answers = 0;
        CHECK_EQ(resolver_new(&names.rv, w.loop), 0);
        CHECK_EQ(url_parse("http://localhost:1000", &u), 0);
        CHECK_EQ(resolve(names.rv, &u, asks_for_another, NULL, &q), 0);
        CHECK_EQ(url_parse("http://127.0.0.1:1", &at), 0);
        for (int i = 0; i < 63; i++) {
                snprintf(name, sizeof(name), "http://host%d.example:1", i);
                CHECK_EQ(url_parse(name, &u), 0);
                resolver_know(names.rv, &u, &at);
        }
        workers_run();
        CHECK_EQ(names.answers, 2);
        resolver_free(names.rv);
        end();
}

static void asks_again(int r, const struct inet_addresses *a, void *userdata)
{
        struct resolve_query *q;
        const struct url *u = userdata;

        (void) a;
        CHECK_EQ(r, -EHOSTUNREACH);
        if (++names.answers < 3)
                CHECK_EQ(resolve(names.rv, u, asks_again, userdata, &q), 0);
}

/* As a client does that has one endpoint: each query is another look-up, and they do not follow
 * each other within one answer, which would never end while the name does not resolve. */
TEST(a_name_that_is_asked_for_again_in_its_answer_is_looked_up_again)
{
        struct resolve_query *q;
        char name[128];
        struct url u;

        begin();
        names.answers = 0;
        CHECK_EQ(resolver_new(&names.rv, w.loop), 0);
        /* With a label that is too long it is no name, which needs no DNS to be found out. */
        snprintf(name, sizeof(name), "http://%064d.invalid:1", 0);
        CHECK_EQ(url_parse(name, &u), 0);
        CHECK_EQ(resolve(names.rv, &u, asks_again, &u, &q), 0);
        for (unsigned i = 1; i <= 3; i++) {
                CHECK(workers_do());
                CHECK_EQ(names.answers, i);
        }
        CHECK(!workers_do());
        resolver_free(names.rv);
        end();
}

static void ends_all(int r, const struct inet_addresses *a, void *userdata)
{
        (void) r;
        (void) a;
        (void) userdata;
        names.answers++;
        names.rv = resolver_free(names.rv);
}

TEST(a_resolver_may_be_freed_in_an_answer)
{
        struct resolve_query *q, *other;
        struct url u;

        begin();
        names.answers = 0;
        CHECK_EQ(resolver_new(&names.rv, w.loop), 0);
        CHECK_EQ(url_parse("http://localhost:1000", &u), 0);
        CHECK_EQ(resolve(names.rv, &u, ends_all, NULL, &q), 0);
        CHECK_EQ(resolve(names.rv, &u, on_answer, NULL, &other), 0);
        CHECK(workers_do());
        CHECK_EQ(names.answers, 1);
        end();
}

/* The thread does not notice, and goes on with the look-up until DNS has answered. */
TEST(a_resolver_may_be_freed_while_a_name_is_looked_up)
{
        struct resolve_query *q;
        struct worker_job *job;
        struct url u;

        begin();
        names.answers = 0;
        CHECK_EQ(resolver_new(&names.rv, w.loop), 0);
        CHECK_EQ(url_parse("http://localhost:1000", &u), 0);
        CHECK_EQ(resolve(names.rv, &u, on_answer, NULL, &q), 0);
        job = worker_take(worker_newest());
        CHECK(job);
        names.rv = resolver_free(names.rv);
        job->run(job);
        job->drop(job);
        CHECK_EQ(names.answers, 0);
        end();
}

/* A dead DNS server costs its own name ten seconds, and no other. */
TEST(a_name_is_answered_while_another_one_is_looked_up)
{
        struct resolve_query *slow, *q;
        struct url u;

        begin();
        names.answers = 0;
        CHECK_EQ(resolver_new(&names.rv, w.loop), 0);
        CHECK_EQ(url_parse("http://localhost:1001", &u), 0);
        CHECK_EQ(resolve(names.rv, &u, on_answer, NULL, &slow), 0);
        CHECK_EQ(url_parse("http://localhost:1002", &u), 0);
        CHECK_EQ(resolve(names.rv, &u, on_answer, NULL, &q), 0);
        while (worker_do(worker_newest()))
                ;
        CHECK_EQ(names.answers, 1);
        resolve_cancel(slow);
        resolver_free(names.rv);
        end();
}
