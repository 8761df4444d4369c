/*
 * A host in a virtual machine, as a single program: process 1 of a kernel without a disk. It
 * holds a place with the agent's own client code, and prints on the serial line every few
 * milliseconds whether it believes that it holds it. The other end of the line sets its date
 * and slews its clock, as a hypervisor's agent and an NTP client would. See
 * test_paused_machine.py.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <inttypes.h>
#include <net/if.h>
#include <net/route.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/syscall.h>
#include <sys/timex.h>
#include <termios.h>
#include <unistd.h>

#include "client/client.h"
#include "loop/standstill.h"

#define SAY_EVERY (5 * NSEC_PER_MSEC)

static struct {
        struct loop *loop;
        struct client *client;
        struct standstill standstill;
        struct loop_timer timer;
        struct loop_io line;
        char text[64];
        size_t n;
        bool hints; /* whether it listens to signs of a standstill */
} g;

static void must(bool good, const char *what)
{
        if (good)
                return;
        printf("failed %s: %s\n", what, strerror(errno));
        reboot(RB_POWER_OFF);
}

static void insert_modules(void)
{
        FILE *f = fopen("/modules", "re");
        char name[128];

        while (f && fscanf(f, "%127s", name) == 1) {
                int fd = open(name, O_RDONLY | O_CLOEXEC);

                must(fd >= 0 && syscall(SYS_finit_module, fd, "", 0) == 0, name);
                close(fd);
        }
}

static struct sockaddr address(const char *text)
{
        struct sockaddr_in in = {.sin_family = AF_INET};
        struct sockaddr a;

        inet_pton(AF_INET, text, &in.sin_addr);
        memcpy(&a, &in, sizeof(a));
        return a;
}

/* As qemu's user network has it. */
static void bring_up(const char *name, const char *ip, const char *mask)
{
        int fd = socket(AF_INET, SOCK_DGRAM, 0);
        struct ifreq r = {0};

        snprintf(r.ifr_name, sizeof(r.ifr_name), "%s", name);
        r.ifr_addr = address(ip);
        must(ioctl(fd, SIOCSIFADDR, &r) == 0, name);
        r.ifr_netmask = address(mask);
        must(ioctl(fd, SIOCSIFNETMASK, &r) == 0, "netmask");
        r.ifr_flags = IFF_UP | IFF_RUNNING;
        must(ioctl(fd, SIOCSIFFLAGS, &r) == 0, "up");
        close(fd);
}

static void become_host(void)
{
        struct termios raw;
        int tty;

        mount("proc", "/proc", "proc", 0, NULL);
        mount("sys", "/sys", "sysfs", 0, NULL);
        mount("dev", "/dev", "devtmpfs", 0, NULL);
        tty = open("/dev/ttyS0", O_RDWR | O_NOCTTY);
        tcgetattr(tty, &raw);
        cfmakeraw(&raw);
        tcsetattr(tty, TCSANOW, &raw);
        dup2(tty, 0);
        dup2(tty, 1);
        dup2(tty, 2);
        setvbuf(stdout, NULL, _IOLBF, 256);
        insert_modules();
        bring_up("lo", "127.0.0.1", "255.0.0.0");
        bring_up("eth0", "10.0.2.15", "255.255.255.0");
}

static void on_standstill(struct standstill *s, const char *sign)
{
        (void) s;
        (void) sign;
        if (g.hints)
                member_doubt(client_member(g.client), loop_now(g.loop));
}

static void command(const char *text)
{
        struct timespec ts;
        long n;

        if (sscanf(text, "date %ld", &n) == 1) {
                clock_gettime(CLOCK_REALTIME, &ts);
                ts.tv_sec += n;
                must(clock_settime(CLOCK_REALTIME, &ts) == 0, "date");
        } else if (sscanf(text, "tick %ld", &n) == 1) {
                struct timex t = {.modes = ADJ_TICK, .tick = n};

                must(adjtimex(&t) >= 0, "tick");
        } else if (sscanf(text, "hints %ld", &n) == 1) {
                g.hints = n != 0;
        } else if (strcmp(text, "clocks") == 0) {
                clock_gettime(CLOCK_BOOTTIME, &ts);
                printf("c %" PRId64 " %" PRId64 "\n",
                       (int64_t) ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec, boot_now().ns);
        }
}

static void on_line(struct loop_io *io, int events)
{
        char c;

        (void) events;
        while (read(io->ev.fd, &c, 1) == 1)
                if (c == '\n') {
                        g.text[g.n] = '\0';
                        command(g.text);
                        g.n = 0;
                } else if (g.n < sizeof(g.text) - 1) {
                        g.text[g.n++] = c;
                }
}

static void on_timer(struct loop_timer *t)
{
        const struct session *s = member_session(client_member(g.client));
        struct boot_time now = boot_now();

        printf("b %d %" PRIx64 "\n", session_holds(s, now), (uint64_t) s->lease);
        loop_timer_arm(t, boot_add(now, SAY_EVERY));
}

static void on_node(const struct member_node *n, int64_t revision, void *userdata)
{
        (void) n;
        (void) revision;
        (void) userdata;
}

static void on_left(const struct member_node *n, const char *reason, int64_t revision,
                    void *userdata)
{
        (void) reason;
        on_node(n, revision, userdata);
}

static void on_service(const struct service *s, int64_t revision, void *userdata)
{
        (void) s;
        (void) revision;
        (void) userdata;
}

static void on_removed(const struct service *s, const char *reason, int64_t revision,
                       void *userdata)
{
        (void) reason;
        on_service(s, revision, userdata);
}

static void on_session(void *userdata, enum session_state state, const char *why)
{
        (void) userdata;
        printf("s %s %s\n", session_state_name(state), why);
}

static void on_synced(void *userdata, bool synced)
{
        (void) userdata;
        (void) synced;
}

int main(void)
{
        static const struct member_events ops = {
                .members = {.joined = on_node, .left = on_left, .changed = on_node},
                .services = {.added = on_service, .removed = on_removed, .changed = on_service},
                .session = on_session,
                .synced = on_synced,
        };
        const char *ttl = getenv("TTL_MS");
        struct client_config cfg = {
                .cluster = "default",
                .endpoints = getenv("CORE"),
                .session = {.ttl = ttl ? atol(ttl) * NSEC_PER_MSEC : NSEC_PER_SEC,
                            .drift_ppm = 1000,
                            .retry = 50 * NSEC_PER_MSEC},
                .self = {.name = "vm",
                         .id = "0123456789abcdef0123456789abcdef",
                         .boot_id = "0123456789abcdef0123456789abcdef",
                         .version = "1"},
                .seed = 1,
        };
        char err[512] = "";

        become_host();
        must(loop_new(&g.loop) == 0, "loop");
        must(client_new(&g.client, g.loop, &cfg, &ops, NULL, err, sizeof(err)) == 0, err);
        standstill_start(&g.standstill, g.loop, on_standstill);
        g.line.what = "the line";
        fcntl(0, F_SETFL, O_NONBLOCK);
        loop_io_start(&g.line, g.loop, 0, EV_READ, on_line);
        loop_timer_init(&g.timer, g.loop, on_timer);
        loop_timer_arm(&g.timer, boot_now());
        printf("up\n");
        loop_run(g.loop);
        return 0;
}
