/*
 * What runs on a host only while it holds its place: units of a service manager, bound to
 * tenure-held.target, with their processes in control groups. And whoever starts, stops and
 * disturbs them: the service manager, people, and the agent and the guard, which are the
 * real fence.c and guard.c of agent/tenured (ground.c has what they stand on).
 *
 *     units.c    the world outside: processes, the kernel, the service manager, people
 *     ground.c   what fence.c and guard.c call: the loop, lib/bus, the files in /run
 *     fenced.c   the agent's and the guard's turns, and what must not happen
 *     steady.c   what the agent concludes from what happens to its host
 *
 * Modelled after systemd.service(5), systemd.kill(5) and cgroups(7), not after what the agent
 * expects of them.
 */
#pragma once

#include "../../agent/tenured/fence.h"
#include "../../agent/tenured/guard.h"
#include "base/rnd.h"
#include "loops.h"
#include "session/damping.h"
#include "session/degraded.h"
#include "session/evidence.h"
#include "session/leaving.h"

#define UNITS_MAX 4
#define PROCESSES_MAX 4 /* of a unit */
#define SLICE_GROUP "/tenure.slice/tenure-held.slice"
#define HELD_TARGET "tenure-held.target"
#define PLACES_MAX 256 /* of a host, so many at most */

struct world;
struct holder;
struct units;

struct process {
        int64_t lease; /* the place at its start */
        nsec_t began;
        nsec_t ends_at; /* by itself or, once it was told to, of that; unless it is frozen */
        bool alive;
        bool killed;  /* it does nothing any more, but is still there */
        bool escaped; /* it was seen running when it must not, and nobody could stop it */
};

enum unit_state {
        UNIT_DOWN,
        UNIT_STARTING,
        UNIT_UP,
        UNIT_STOPPING,
        UNIT_POST,    /* its clean-up runs: ExecStopPost= */
        UNIT_FINAL,   /* what is left is told to end */
        UNIT_WAITING, /* for RestartSec= to be over */
};

struct unit {
        char name[16], group[64];
        bool in_slice;
        /* What its file says. */
        bool restart, wanted, only_main; /* Restart=always, WantedBy=, KillMode=process */
        nsec_t stop_timeout, restart_after;
        /* How its processes behave. */
        bool stubborn;                       /* its main process ignores SIGTERM */
        nsec_t stop_takes, post_takes, life; /* 0: no clean-up; 0: until it is told to end */
        unsigned n_children;                 /* which ignore SIGTERM, too */
        /* What it is. */
        enum unit_state state;
        bool stop;  /* it has a job to stop */
        nsec_t due; /* when the service manager does the next thing; NEVER: nothing */
        struct process p[PROCESSES_MAX]; /* the main one, its children, the clean-up */
        bool there, frozen, lingers;     /* its control group; it stays when the unit is down */
};

enum { P_MAIN, P_CHILD, P_POST = PROCESSES_MAX - 1 };

enum question { ASK_START, ASK_STOP, ASK_LOOK, ASK_SET, ASK_UNIT };

/* A message to the service manager. */
struct question_sent {
        enum question what;
        nsec_t at;       /* when it arrives */
        unsigned asker;  /* the connection; 0: a person */
        unsigned number; /* of the call */
        unsigned unit;   /* of ASK_UNIT */
};

/* The files in /run/tenure, by inode number; 0: there is none. */
struct run_files {
        unsigned held, stopping, last;
        unsigned lock; /* the one that the agent has locked */
        bool known;    /* what is bound was written down */
};

#define LOSSES_MAX 16

/* See steady.c; beside what the agent knows, what it should know. */
struct steady {
        struct damping damping;
        struct damping_config damping_cfg;
        struct boot_time losses[LOSSES_MAX], rests_until;
        unsigned n_losses; /* since the last rest */
        struct degraded degraded;
        struct degraded_config degraded_cfg;
        bool slow;
        struct boot_time slow_since;
        struct evidence *evidence;
        unsigned n_expired; /* places that were lost at their deadline */
        nsec_t look_at;     /* when it looks at the pressure next */
};

struct units {
        struct holder *holder;
        struct rnd rnd;
        struct fencing_config cfg;
        struct unit u[UNITS_MAX];
        unsigned n;
        bool slice_frozen;
        nsec_t slice_since; /* when its control group was made; NEVER: there is none */
        /* The service manager. */
        enum { TARGET_DOWN, TARGET_UP, TARGET_STOPPING } target;
        nsec_t hangs_until;
        struct question_sent asked[32];
        size_t n_asked;
        /* The host. */
        struct run_files run;
        nsec_t trouble_at; /* when somebody disturbs it next */
        bool reboots;      /* it was ordered to */
        nsec_t boots_until;
        nsec_t back_at; /* when it has booted, or when the agent is started again; NEVER: it
                         * is not */
        /* The agent. */
        struct loop agent_loop;
        struct fence fence;
        unsigned agent_life; /* counts its processes */
        bool fencing;        /* it runs */
        bool kept_out;
        nsec_t agent_hangs_until, watchdog_at; /* when it is killed for that; NEVER: not */
        struct leaving leaving;
        bool out; /* ordered to stay out: a file that a next life finds */
        struct steady steady;
        /* The guard. */
        struct guard *guard;
        struct loop *guard_loop;
        nsec_t guard_at; /* when it runs next, or starts again */
        nsec_t guard_hangs_until;
        bool guard_runs;  /* just now */
        bool agent_ended; /* and the guard has not heard of it */
        /* Of the checks. */
        struct place_seen {
                int64_t lease;
                struct boot_time deadline;
        } places[PLACES_MAX]; /* the last one is the present one, or was the last */
        size_t n_places;
        bool ended; /* and that was seen */
        nsec_t wake;
};

/* ---- units.c ---- */

void units_begin(struct units *u, struct world *w, struct holder *h);
/* Does what is due in the world outside; returns when there is more. */
nsec_t units_run(struct units *u);
/* All that runs ends with the host. */
void units_reboot(struct units *u);
bool unit_is_frozen(const struct units *u, const struct unit *t);
bool unit_has_processes(const struct unit *t);
/* A process of the unit that does something; NULL: none does. */
struct process *unit_runs(const struct units *u, struct unit *t);
bool units_ask(struct units *u, const struct question_sent *q);
void units_kill(struct units *u, struct unit *t);
bool units_slice_is_there(const struct units *u);
void units_tell(const struct units *u, const char *fmt, ...) printf_(2, 3);
nsec_t units_time(struct units *u, nsec_t lo, nsec_t hi);
bool units_chance(struct units *u, unsigned percent);

/* ---- ground.c ---- */

/* What fence.c and guard.c do from now on, they do on this host. */
void ground_enter(struct units *u);
/* The service manager answers a call. */
void ground_answer(struct units *u, const struct question_sent *q, enum bound_sight s);
/* Runs what is due in a process: timers, and answers that have come. Returns whether there was
 * anything. */
bool ground_listen(struct loop *l);
nsec_t ground_next(const struct loop *l);
/* A process ends at once: whatever frees its memory touches nothing on the host. */
void ground_die(struct units *u, bool dies);
/* Messages to the guard. */
void ground_tell_guard(struct units *u);

/* ---- steady.c ---- */

void steady_begin(struct units *u);
void steady_end(struct units *u);
/* An agent starts; the host reboots. */
void steady_start(struct units *u);
void steady_reboot(struct units *u);
/* The place was lost; a person lets the host join; the agent has got a place that it asked for
 * then; a renewal was acknowledged. */
void steady_lost(struct units *u);
void steady_joins(struct units *u);
void steady_granted(struct units *u, struct boot_time asked);
/* Whether its host asks for no place for a while. */
bool steady_rests(const struct units *u);
void steady_renewed(struct units *u, const struct session_renewal *r);
void steady_run(struct units *u);

/* ---- fenced.c ---- */

void fenced_begin(struct world *w, struct holder *h);
void fenced_end(struct holder *h);
/* The agent's process starts, or has been killed; or the host reboots, without its agent. */
void fenced_start(struct holder *h, bool resumed);
void fenced_killed(struct holder *h);
void fenced_reboot(struct holder *h);
/* The agent's turn: before its member runs; when the place was lost; after its place was
 * written down; and the acts of its host. */
void fenced_listen(struct holder *h);
void fenced_lost(struct holder *h);
void fenced_run(struct holder *h);
void fenced_leave(struct holder *h);
void fenced_join(struct holder *h);
nsec_t fenced_next(const struct holder *h);
/* The host has this place until then; @is_new: it was granted just now. */
void fenced_place(struct holder *h, int64_t lease, struct boot_time deadline, bool is_new);
void fenced_renewed(struct holder *h, const struct session_renewal *r);
/* All the others on the host: the kernel, the service manager, people, the guard. */
void fenced_turn(struct world *w, struct holder *h);
/* Once all is well: whether what is bound is up and runs if the place is held, and down if the
 * agent is gone. */
bool fenced_is_settled(const struct holder *h);
/* A replica says that this lease of the host has ended. */
void fenced_lease_ended(struct holder *h, int64_t lease);
/* Called when all that is due at an instant is done. */
void fenced_check(struct holder *h);
