/* The fleet of fleet.c, and the steps of its two uses: show.c (make run) and cases.c (make
 * test). */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <systemd/sd-bus.h>

#define CORES_MAX 5
#define AGENTS_MAX 8
#define PATIENCE_US 60000000 /* with what has no limit of its own to keep */

struct core {
        char name[16], client_url[64], peer_url[64];
        pid_t pid;      /* 0: not running */
        off_t log_from; /* where this life of it begins in its log */
};

/* What one agent has reported of another. */
struct sight {
        bool there;
        unsigned n_joined, n_left;
        int64_t left_at;  /* when the signal came */
        int64_t revision; /* of the last word on it */
        char reason[32];
};

struct agent {
        char name[16], address[128];
        pid_t pid, bus_pid;
        sd_bus *bus; /* the spectator's connection */
        struct sight sees[AGENTS_MAX];
        unsigned n_lost, n_repeated;
};

struct fleet {
        const char *bin, *dir;
        unsigned n_cores, n_agents, ttl_ms;
        char *log_level; /* of the programs */
        bool verbose;
        int64_t began;
        struct core cores[CORES_MAX];
        struct agent agents[AGENTS_MAX];
        char initial_cluster[512], endpoints[512], own_endpoints[512];
        int port_fds[2 * CORES_MAX];
        unsigned n_port_fds;
        volatile bool interrupted;
};

extern struct fleet F;

int64_t now_us(void);
void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void die(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

void fleet_start(void);
void fleet_stop(void);
void start_core(unsigned i);
void start_agent(unsigned i);
void stop_process(pid_t *pid, int signo);

/* Follows the buses until @done, or for @usec; returns whether @done came true. @done NULL:
 * just follows. */
bool wait_until(bool (*done)(void *arg), void *arg, int64_t usec);

/* The instant from which agent @i's lease counts, as it says itself; 0 when it does not answer.
 */
int64_t last_renewal(unsigned i);
void state_of(unsigned i, char *out, size_t size);

/* The index of the core's leader, -1 when there is none. */
int leader(void);
/* Whether a struct core has had a leader, itself or another one, since it was started. */
bool in_quorum(void *core);

/* show.c and cases.c. Each returns the exit code. */
int show(bool oneshot);
int cases(unsigned rounds);

/* steps.c: what both do. */
bool everybody_there(void *unused);
/* Kills agent @victim without warning, at a moment when its last renewal is known for sure;
 * returns that. */
int64_t kill_agent(unsigned victim);
/* Waits until all others that run say that @victim left; tells the earliest and the latest
 * word. */
bool wait_left(unsigned victim, int64_t usec, int64_t *ret_first, int64_t *ret_last);
/* Waits until every agent that runs has renewed after @since. @ret_last, or NULL: when the last
 * of these renewals was sent, however late it was heard of. */
bool wait_renewed(int64_t since, int64_t usec, int64_t *ret_last);
