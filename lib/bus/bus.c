#include "bus/bus.h"

#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "base/utf8.h"

/* How many messages of strangers we take in a turn; then others get as much time. */
#define MESSAGES_AT_ONCE 16
#define TIME_AT_ONCE (2 * NSEC_PER_MSEC)
#define REST_MAX (10 * NSEC_PER_MSEC)
#define MANAGER_SOCKET "/run/systemd/private"

struct bus {
        struct loop *loop;
        sd_bus *sd;
        struct loop_io io;
        struct loop_hook hook;
        bus_closed_fn closed;
        void *userdata;
        bool strangers;             /* strangers may be connected to it */
        struct boot_time rest_till; /* no message is taken before this */
        bool dead;
};

static struct boot_time die(struct bus *b, int r)
{
        if (!b->dead) {
                b->dead = true;
                loop_io_stop(&b->io);
                loop_hook_stop(&b->hook);
                b->closed(b->userdata, r);
        }
        return BOOT_TIME_NEVER;
}

/* sd-bus gives absolute microseconds of CLOCK_MONOTONIC; we convert them here. */
static struct boot_time from_monotonic(uint64_t usec)
{
        struct timespec ts;
        nsec_t left;

        if (usec == UINT64_MAX)
                return BOOT_TIME_NEVER;
        clock_gettime(CLOCK_MONOTONIC, &ts);
        left = (nsec_t) usec * NSEC_PER_USEC - ((nsec_t) ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec);
        return boot_add(boot_now(), max_of(left, (nsec_t) 0));
}

/* Takes a few messages at a time: a caller that never stops asking must not keep us from what
 * is due. Returns whether more may be there, or a negative errno. */
static int take_some(struct bus *b, struct boot_time began)
{
        nsec_t took;
        int r = 1;

        for (int i = 0; i < MESSAGES_AT_ONCE && r > 0; i++) {
                r = sd_bus_process(b->sd, NULL);
                took = r > 0 && b->strangers ? boot_diff(boot_now(), began) : 0;
                if (took >= TIME_AT_ONCE) {
                        b->rest_till = boot_add(began, took + min_of(took, REST_MAX));
                        break;
                }
        }
        return r;
}

/* Handles what has arrived, then waits for what sd-bus asks for. */
static struct boot_time bus_run(struct loop_hook *h, struct boot_time now)
{
        struct bus *b = container_of(h, struct bus, hook);
        int r = 0, events, want = 0;
        bool rest = boot_before(now, b->rest_till);
        uint64_t usec;

        if (!rest) {
                r = take_some(b, now);
                if (r < 0)
                        return die(b, r);
                rest = boot_before(now, b->rest_till);
        }
        events = sd_bus_get_events(b->sd);
        if (events < 0)
                return die(b, events);
        if (!rest && (events & POLLIN))
                want |= EV_READ;
        if (!rest && (events & POLLOUT))
                want |= EV_WRITE;
        loop_io_change(&b->io, want);
        if (rest)
                return b->rest_till;
        if (r > 0)
                return now;
        r = sd_bus_get_timeout(b->sd, &usec);
        return r < 0 ? die(b, r) : from_monotonic(usec);
}

static void on_io(struct loop_io *io unused_, int events)
{
        (void) events; /* the hook does the work */
}

/* Takes ownership of @sd. */
static int attach(struct bus **ret, struct loop *l, sd_bus *sd, bool strangers,
                  bus_closed_fn closed, void *userdata)
{
        struct bus *b = calloc(1, sizeof(*b));

        if (!b) {
                sd_bus_close_unref(sd);
                return -ENOMEM;
        }
        b->loop = l;
        b->sd = sd;
        b->strangers = strangers;
        b->closed = closed;
        b->userdata = userdata;
        b->io.what = "the bus";
        loop_io_start(&b->io, l, sd_bus_get_fd(b->sd), EV_READ, on_io);
        b->hook.what = "the bus";
        loop_hook_start(&b->hook, l, LOOP_BUS, bus_run);
        *ret = b;
        return 0;
}

int bus_new(struct bus **ret, struct loop *l, bus_closed_fn closed, void *userdata)
{
        sd_bus *sd;
        int r = sd_bus_open_system(&sd);

        return r < 0 ? r : attach(ret, l, sd, true, closed, userdata);
}

bool bus_manager_is_there(void)
{
        return access(MANAGER_SOCKET, F_OK) == 0;
}

int bus_new_manager(struct bus **ret, struct loop *l, bus_closed_fn closed, void *userdata)
{
        sd_bus *sd;
        int r;

        if (access(MANAGER_SOCKET, F_OK) < 0)
                return -errno;
        r = sd_bus_new(&sd);
        if (r < 0)
                return r;
        r = sd_bus_set_address(sd, "unix:path=" MANAGER_SOCKET);
        if (r >= 0)
                r = sd_bus_start(sd);
        if (r < 0) {
                sd_bus_close_unref(sd);
                return r;
        }
        return attach(ret, l, sd, false, closed, userdata);
}

struct bus *bus_free(struct bus *b)
{
        if (!b)
                return NULL;
        b->dead = true;
        loop_io_stop(&b->io);
        loop_hook_stop(&b->hook);
        sd_bus_close_unref(b->sd);
        free(b);
        return NULL;
}

sd_bus *bus_sd(const struct bus *b)
{
        return b->sd;
}

int bus_append_text(sd_bus_message *m, const char *text)
{
        size_t n = strlen(text);
        char *to;
        int r = sd_bus_message_append_string_space(m, n, &to);

        if (r < 0)
                return r;
        memcpy(to, text, n);
        utf8_dbus_mend(to, n);
        return 0;
}
