/*
 * A world of virtual time: replicas that run the real state machine, consensus, store and core;
 * holders that run the real session; a network and disks that fail. One seed decides
 * everything; one event is handled at a time.
 *
 * world.c moves it, disk.c is its disk, clients.c speaks gRPC to it, check.c is what must never
 * happen, and shares no code with what it checks.
 */
#pragma once

#include "base/rnd.h"
#include "service/api.h"
#include "service/core.h"
#include "session/session.h"
#include "store/disk.h"

#define REPLICAS_MAX 5
#define HOLDERS_MAX 8
#define MSEC NSEC_PER_MSEC
#define RUN_TIME (30 * NSEC_PER_SEC)
#define CALM_TIME (25 * NSEC_PER_SEC) /* enough for every TTL and several elections */

/* ---- disk.c ---- */

struct sim_disk;
struct disk *sim_disk_new(void);
/* The process dies: jobs under way are lost, the first one perhaps half done. What was synced
 * stays. */
void sim_disk_crash(struct disk *d, struct rnd *rnd);
/* Nothing more fits on it; what is there can be written over. */
void sim_disk_fill(struct disk *d, bool full);
/* The next job is done, at its time; false when there is none. */
bool sim_disk_busy(const struct disk *d);
void sim_disk_finish(struct disk *d);
/* Called when a first job is queued, to be given a time. */
void sim_disk_on_submit(struct disk *d, void (*fn)(void *arg), void *arg);

/* ---- world.c ---- */

struct replica_node {
        unsigned i;
        bool up, paused;
        bool asleep; /* and paused: the whole host is suspended, frames to it are lost */
        bool full;   /* its disk */
        struct disk *disk;
        struct core *core;
        struct api *api;
        struct replica *replica;
        int32_t ppm;       /* how much its clock runs fast */
        nsec_t disk_delay; /* a stalled disk; writes that it holds up end later */
        nsec_t stalled_until;
        bool disk_armed;
        unsigned life; /* counts restarts; events of an older one are void */
};

struct holder {
        unsigned i;
        bool alive;
        nsec_t asleep_until; /* its host is suspended */
        struct session session;
        int32_t ppm;
        unsigned at; /* the replica it uses */
        unsigned ops;
        int64_t key;
};

/* A client that renews as late as it can, with a lease of its own: where renewal and expiry
 * meet. */
struct edge {
        int64_t lease, ttl_ms;
};

struct faults {
        bool crashes, partitions, loss, stalls, pauses, suspends, full, deaths, members,
                transfers;
};

/* How often what happened; printed by these names. */
#define COUNTS(x)                                                                            \
        x(events, "events"), x(frames, "frames"), x(lost_frames, "lost"),                    \
                x(crashes, "crashes"), x(partitions, "partitions"),                          \
                x(stalls, "stalled disks"), x(full, "full disks"), x(pauses, "pauses"),      \
                x(suspends, "suspends"), x(changes, "changes of members"),                   \
                x(transfers, "leaders moved"), x(leaders, "elections"), x(grants, "grants"), \
                x(renewals, "renewals"), x(expiries, "expiries"), x(writes, "writes"),       \
                x(reads, "reads"), x(told, "events told"), x(held, "locks held"),            \
                x(holder_deaths, "holders' deaths"), x(resumed, "resumed"),                  \
                x(holder_losses, "holders' losses")
#define COUNT_FIELD(field, name) field
#define COUNT_NAME(field, name) name

struct counts {
        uint64_t COUNTS(COUNT_FIELD);
};

struct world {
        uint64_t seed;
        struct rnd rnd;
        nsec_t now; /* the true time */
        unsigned n_replicas, n_holders;
        struct replica_node r[REPLICAS_MAX];
        struct holder h[HOLDERS_MAX];
        struct edge edges[HOLDERS_MAX];
        nsec_t outage; /* so far: time in which no majority could have worked together, whatever
                          the code does */
        uint64_t outages;
        bool was_out;
        nsec_t lull; /* so far: time in which nobody led a majority whose disks work */
        uint64_t lulls;
        bool was_lull;
        nsec_t lull_ended; /* when the last one did */
        bool cut[REPLICAS_MAX][REPLICAS_MAX];
        struct sim_link {
                nsec_t last;       /* when the last frame on it arrives */
                nsec_t down_until; /* broken */
        } links[REPLICAS_MAX][REPLICAS_MAX];
        struct faults faults;
        bool calm;
        struct counts counts;
        char failure[512]; /* "" while all is well */
        bool trace;
};

struct boot_time clock_of(const struct world *w, int32_t ppm);

/* Runs one seed. Returns true when nothing that must not happen did; w->failure tells what did
 * otherwise. */
bool world_run(struct world *w, uint64_t seed);

/* Time passes for a replica: what waits in it is done. */
void world_drive(struct world *w, struct replica_node *n);

/* ---- clients.c ---- */

void clients_begin(struct world *w);
void clients_end(void);
/* A replica has something to say on a connection. */
void clients_kick(struct rpc_conn *server);
/* Before its api goes: nobody is connected to it any more. */
void clients_replica_down(unsigned i);
/* Carries what is due, and lets those act whose time has come. */
void clients_run(void);
nsec_t clients_next(void);
/* Whether every watcher has been told all up to @revision. */
bool clients_all_told(int64_t revision);

/* ---- check.c ---- */

void fail(struct world *w, const char *fmt, ...) printf_(2, 3);
void check_reset(void);

/* An entry was applied at a replica. */
void check_applied(struct world *w, struct replica_node *n, uint64_t index);
/* A lease was granted; a renewal sent at @sent was acknowledged; a lease ended at some replica.
 */
void check_granted(struct world *w, int64_t lease, int64_t ttl_ms, nsec_t sent,
                   struct holder *h);
void check_renewed(struct world *w, int64_t lease, nsec_t sent, int64_t ttl_ms);
void check_ended(struct world *w, int64_t lease, bool expired);
/* A renewal, or the grant itself, of a lease was applied somewhere. */
void check_renewal_applied(struct world *w, int64_t lease, uint64_t index);
/* From time to time: who is not renewed is gone (I2). */
void check_undead(struct world *w);
void check_revoked(int64_t lease);
/* A history of one key's register: a write, a linearizable read, or a compare-and-set, each
 * with the true times between which it must have happened, and the revision that it says it did
 * at. */
enum op_kind { OP_WRITE, OP_READ, OP_CAS };
struct op {
        enum op_kind kind;
        int64_t key, value; /* written, or read */
        int64_t expect;     /* OP_CAS: the mod_revision that it wanted to find */
        bool done;          /* OP_CAS: it found it */
        int64_t found;      /* OP_READ: the mod_revision of what was read; 0: nothing */
        int64_t revision;
        nsec_t begun, ended;
};
void check_op(struct world *w, const struct op *op);
/* A write was acknowledged: it is there in the end (I5). */
void check_written(struct world *w, int64_t key, int64_t value, int64_t revision);
/* A watcher was told of this event; of a deletion without a value. */
void check_told(struct world *w, unsigned watcher, int64_t revision, struct view key,
                struct view value);
/* A lock was held from @begin to @end. */
void check_held(struct world *w, unsigned who, nsec_t begin, nsec_t end);
/* Everything is healed and had time. */
void check_end(struct world *w);
