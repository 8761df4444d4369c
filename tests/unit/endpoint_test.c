/* An endpoint whose other side lets go of a connection, and calls that go on over it. */
#include "client/endpoint.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "test.h"
#include "virtual_time.h"

#define LONG (20 * NSEC_PER_SEC)

struct side {
        int fd; /* -1: it is closed */
        struct rpc_conn *conn;
        unsigned messages;
};

static struct {
        struct loop *loop;
        struct resolver *resolver;
        struct endpoint *endpoint;
        int fd; /* the loop's */
        unsigned ups, downs, over, over_before_down;
        /* The other side. The second socket keeps the port while nobody listens. */
        int listener, next_listener;
        struct side sides[2];
        unsigned n;
        bool resets; /* whatever is accepted */
        unsigned n_reset;
} rig;

static void on_up(struct endpoint *e, void *userdata)
{
        (void) e;
        (void) userdata;
        rig.ups++;
}

static void on_down(struct endpoint *e, const char *why, void *userdata)
{
        (void) e;
        (void) why;
        (void) userdata;
        rig.downs++;
        rig.over_before_down = rig.over;
}

static void on_silent(struct endpoint *e, void *userdata)
{
        (void) e;
        (void) userdata;
}

static const struct endpoint_ops ops = {.up = on_up, .down = on_down, .silent = on_silent};

/* ---- the other side ---- */

static void side_message(struct rpc_call *call, struct view m)
{
        struct side *s = call->userdata;

        (void) m;
        s->messages++;
}

static void side_end(struct rpc_call *call)
{
        (void) call;
}

static const struct rpc_handler side_handler = {
        .on_message = side_message, .on_end = side_end, .on_close = side_end};

static void accept_call(struct rpc_call *call, void *userdata)
{
        call->handler = &side_handler;
        call->userdata = userdata;
}

static void hang_up(struct side *s)
{
        s->conn = rpc_conn_free(s->conn);
        if (s->fd >= 0)
                close(s->fd);
        s->fd = -1;
}

static void side_turn(struct side *s)
{
        cleanup_(buf_fini) struct buf out = {0};
        uint8_t bytes[4096];
        ssize_t n;

        if (s->fd < 0)
                return;
        n = recv(s->fd, bytes, sizeof(bytes), MSG_DONTWAIT);
        if (n == 0 || (n > 0 && rpc_conn_input(s->conn, bytes, (size_t) n) < 0) ||
            rpc_conn_output(s->conn, &out, sizeof(bytes)) < 0)
                return hang_up(s);
        if (buf_len(&out) > 0)
                CHECK_EQ(send(s->fd, buf_head(&out), buf_len(&out), MSG_NOSIGNAL),
                         buf_len(&out));
}

static void accept_one(void)
{
        static const struct rpc_limits limits = {
                .message_max = 1024, .calls_max = 10, .too_large = "too large"};
        int fd = accept4(rig.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        struct side *s = &rig.sides[rig.n];

        if (fd < 0)
                return;
        if (rig.resets) {
                CHECK_EQ(close(fd), 0);
                rig.n_reset++;
                return;
        }
        CHECK(rig.n++ < ARRAY_SIZE(rig.sides));
        s->fd = fd;
        CHECK_EQ(rpc_conn_new_server(&s->conn, &limits, accept_call, s), 0);
}

/* Announces the end of the connection, and begins no call on it any more. */
static void say_goaway(const struct side *s)
{
        static const uint8_t goaway[9 + 8] = {0, 0, 8,    7,    0,    0,   0,
                                              0, 0, 0x7f, 0xff, 0xff, 0xff};

        CHECK_EQ(send(s->fd, goaway, sizeof(goaway), MSG_NOSIGNAL), sizeof(goaway));
}

static void others_turn(void)
{
        accept_one();
        for (unsigned i = 0; i < rig.n; i++)
                side_turn(&rig.sides[i]);
}

/* ---- ---- */

static void turn(void)
{
        struct pollfd p = {.fd = rig.fd, .events = POLLIN};

        poll(&p, 1, 2);
        (void) !loop_dispatch(rig.loop);
        others_turn();
}

static void until(const unsigned *count, unsigned n)
{
        struct boot_time end = boot_add(boot_now(), LONG);

        while (*count != n) {
                CHECK(boot_before(boot_now(), end));
                turn();
        }
}

static void on_message(struct rpc_call *call, struct view m)
{
        (void) call;
        (void) m;
}

static void on_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        (void) call;
        (void) message;
        CHECK_EQ(code, RPC_UNAVAILABLE);
        rig.over++;
}

static void on_close(struct rpc_call *call)
{
        (void) call;
}

static const struct rpc_handler handler = {
        .on_message = on_message, .on_status = on_status, .on_close = on_close};

/* A socket on @a, whose port is chosen if it is 0; it does not listen. */
static int bound(struct sockaddr_in *a)
{
        int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        socklen_t n = sizeof(*a);

        CHECK(fd >= 0);
        CHECK_EQ(setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof(on)), 0);
        CHECK_EQ(bind(fd, (struct sockaddr *) a, n), 0);
        CHECK_EQ(getsockname(fd, (struct sockaddr *) a, &n), 0);
        return fd;
}

static void stop_listening(void)
{
        close(rig.listener);
        rig.listener = rig.next_listener;
        rig.next_listener = -1;
}

/* Returns a call, on a connection that then takes no more calls, while nobody takes another. */
static struct rpc_call *begin_and_leave(void)
{
        struct sockaddr_in a = {.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        struct rpc_call *call;
        struct boot_time end;
        char url[64];

        virtual_time_begin();
        memset(&rig, 0, sizeof(rig));
        rig.sides[0].fd = rig.sides[1].fd = -1;
        rig.listener = bound(&a);
        rig.next_listener = bound(&a);
        CHECK_EQ(listen(rig.listener, 10), 0);
        snprintf(url, sizeof(url), "http://127.0.0.1:%d", ntohs(a.sin_port));
        CHECK_EQ(loop_new(&rig.loop), 0);
        CHECK_EQ(resolver_new(&rig.resolver, rig.loop), 0);
        rig.fd = loop_nest(rig.loop);
        CHECK_EQ(endpoint_new(&rig.endpoint, rig.loop, rig.resolver, url, NULL, NULL, &ops,
                              NULL),
                 0);
        endpoint_want(rig.endpoint);
        until(&rig.ups, 1);
        CHECK_EQ(rpc_call_new(endpoint_rpc(rig.endpoint), "/s/m", false, &handler, NULL, &call),
                 0);
        CHECK_EQ(rpc_call_send(call, "1", 1), 0);
        endpoint_kick(rig.endpoint);
        until(&rig.sides[0].messages, 1);

        stop_listening();
        say_goaway(&rig.sides[0]);
        end = boot_add(boot_now(), LONG);
        while (endpoint_rpc(rig.endpoint)) {
                CHECK(boot_before(boot_now(), end));
                turn();
        }
        return call;
}

static void rig_is_over(void)
{
        endpoint_free(rig.endpoint);
        resolver_free(rig.resolver);
        loop_free(rig.loop);
        for (size_t i = 0; i < ARRAY_SIZE(rig.sides); i++)
                hang_up(&rig.sides[i]);
        close(rig.listener);
}

TEST(what_is_sent_on_a_connection_that_was_left_goes_out)
{
        struct rpc_call *call = begin_and_leave();

        CHECK_EQ(rpc_call_send(call, "2", 1), 0);
        endpoint_kick(rig.endpoint);
        until(&rig.sides[0].messages, 2);
        CHECK_EQ(rpc_call_send(call, "3", 1), 0);
        endpoint_flush(rig.endpoint);
        others_turn();
        CHECK_EQ(rig.sides[0].messages, 3);
        rig_is_over();
}

TEST(an_endpoint_is_not_down_while_calls_continue_over_the_connection_that_was_left)
{
        struct rpc_call *call = begin_and_leave();
        struct boot_time end = boot_add(boot_now(), 2 * NSEC_PER_SEC);

        while (boot_before(boot_now(), end)) /* a new one is refused, again and again */
                turn();
        CHECK_EQ(rig.downs, 0);
        CHECK_EQ(rig.over, 0);

        CHECK_EQ(listen(rig.listener, 10), 0);
        until(&rig.ups, 2);
        CHECK_EQ(rpc_call_send(call, "2", 1), 0);
        endpoint_kick(rig.endpoint);
        until(&rig.sides[0].messages, 2);

        hang_up(&rig.sides[0]);
        until(&rig.over, 1);
        CHECK_EQ(rig.downs, 0);
        CHECK(endpoint_rpc(rig.endpoint));
        rig_is_over();
}

/* A proxy with nothing behind it accepts whoever comes, and says nothing. */
TEST(a_connection_that_was_left_stays_until_its_successor_has_answered)
{
        struct rpc_call *call = begin_and_leave();

        rig.resets = true;
        CHECK_EQ(listen(rig.listener, 10), 0);
        until(&rig.n_reset, 3);
        CHECK_EQ(rpc_call_send(call, "2", 1), 0);
        endpoint_kick(rig.endpoint);
        until(&rig.sides[0].messages, 2);
        CHECK_EQ(rig.ups, 1);
        CHECK_EQ(rig.downs, 0);
        CHECK_EQ(rig.over, 0);

        rig.resets = false;
        until(&rig.ups, 2);
        CHECK_EQ(rig.downs, 0);
        rig_is_over();
}

TEST(an_endpoint_is_down_once_the_connection_that_was_left_has_ended_and_there_is_no_other)
{
        (void) begin_and_leave();

        hang_up(&rig.sides[0]);
        until(&rig.over, 1);
        CHECK_EQ(rig.downs, 1);
        CHECK_EQ(rig.over_before_down, 1);
        rig_is_over();
}

TEST(calls_end_with_an_endpoint_whose_new_connection_breaks)
{
        (void) begin_and_leave();
        CHECK_EQ(listen(rig.listener, 10), 0);
        until(&rig.ups, 2);
        until(&rig.n, 2);

        hang_up(&rig.sides[1]);
        until(&rig.downs, 1);
        CHECK_EQ(rig.over_before_down, 1);
        rig_is_over();
}
