/*
 * A world of virtual time: replicas that run the real state machine, consensus, store and core;
 * holders that run the real member; a network and disks that fail. One seed decides
 * everything; one event is handled at a time.
 *
 *     world.c     moves it
 *     events.c    what happens next
 *     nodes.c     the replicas, their links and disks
 *     watched.c   their disks as they see them
 *     disk.c      files in memory, and what a power cut does to them
 *     memory.c    allocations that fail
 *     load.c      what clients ask of the core
 *     wires.c     connections that speak gRPC to it
 *     clients.c   clients on them: watchers and lockers
 *     caches.c    and those that read from a cache
 *     sharers.c   ... and members that share work
 *     holders.c   hosts that hold a place each
 *     ends.c      the endpoints of their agents
 *     elsewhere.c other cores, to which these lead for a while
 *     moves.c     watches that have to move
 *     insides.c   what is looked at inside of an agent
 *     view.c      what these are told of each other
 *     faults.c    what goes wrong at any time
 *     aim.c       what goes wrong at the worst time
 *     overlap.c   entries that are on their way are written over
 *     alone.c     members are removed until one is left
 *     seen.c      which coincidences there were
 *     check.c     what must never happen; it shares no code with what it checks
 */
#pragma once

#include <bsd/sys/queue.h>

#include "base/rnd.h"
#include "etcd/api.h"
#include "etcd/node.h"
#include "rpc/conn.h"
#include "store/disk.h"

#include "counts.h"
#include "holders.h"

#define MSEC NSEC_PER_MSEC
#define NEVER INT64_MAX
#define ELECTION (500 * MSEC)
/* After the faults, by when all has settled: enough for every TTL and several elections. */
#define CALM_MAX (25 * NSEC_PER_SEC)
#define TTL_MIN_MS 1000
#define TTL_MAX_MS 4000
#define N_KEYS 16
#define CACHE_TERM_MS 1500 /* of those who read from a cache */

struct world;
struct request;
struct replica_node;

/* ---- disk.c ---- */

/* As the real disk (store/disk_posix.c): each queue in order, neither waits for the other. */
enum disk_queue { DISK_LOG, DISK_ASIDE, DISK_QUEUES };

struct disk *sim_disk_new(void);
/* The power fails: jobs under way are lost, the first one of each queue perhaps half done. What
 * was synced stays; of what was not, any sectors and names may stay. */
void sim_disk_crash(struct disk *d, struct rnd *rnd);
/* The process is killed: its jobs are lost in the same way, but what the first ones have
 * written stays, unsynced. Returns whether there is any such data. */
bool sim_disk_kill(struct disk *d, struct rnd *rnd);
/* What was written to @name last was not synced: the platter still has this. */
void sim_disk_unsync(struct disk *d, const char *name, const void *bytes, size_t len);
/* The disk takes nothing more; existing files can be overwritten. */
void sim_disk_fill(struct disk *d, bool full);
bool sim_disk_busy_at(const struct disk *d, enum disk_queue q);
/* Carries out the next job of a queue, of which nobody hears before it is finished. Returns
 * true if it wrote a whole file, which takes long. */
bool sim_disk_run_at(struct disk *d, enum disk_queue q);
/* The next job of a queue is done, at its time, if there is one. */
void sim_disk_finish_at(struct disk *d, enum disk_queue q);
/* The same as if there were one queue only. */
bool sim_disk_busy(const struct disk *d);
void sim_disk_finish(struct disk *d);
/* Called with each job that is queued. */
void sim_disk_on_submit(struct disk *d, void (*fn)(void *arg, enum disk_queue q), void *arg);

/* ---- what there is ---- */

/* What was seen of a replica from outside, in seen.c. */
struct seen {
        uint64_t term, leader; /* as it says */
        bool leads, ready;
        bool hands_over; /* a leader that told another one to stand for election */
        bool installing, saving;
        uint64_t install_term, save_term;
        uint64_t acked, acked_term; /* the last entry that it told a leader it has... */
        nsec_t acked_at;
        uint64_t voted_term, voted_for; /* its last vote */
        nsec_t confirmed_at;            /* when a client last got a success */
        uint64_t durable, durable_term; /* at a crash: what it took for safe */
        int64_t compacted;
        nsec_t segment_at; /* when a file of the log was last made */
        bool crashed;      /* and not checked since */
};

struct replica_node {
        unsigned i;
        bool up, paused;
        bool asleep; /* and paused: the whole host is suspended, frames to it are lost */
        bool full;   /* its disk */
        bool made;   /* there is a data directory on it */
        nsec_t refuses_since; /* each write, for lack of room in the queue; 0: it does not */
        struct disk *disk;
        struct disk *watched_disk; /* the same, through our eyes */
        struct node node;
        int32_t ppm;       /* how much its clock runs fast */
        nsec_t disk_delay; /* a stalled disk; what it holds up ends later */
        nsec_t stalled_until;
        nsec_t disk_begun[DISK_QUEUES]; /* since when each queue is at work; 0: it is not */
        unsigned life;                  /* counts restarts; events of an older one are void */
        uint64_t failures;              /* of allocations, before this life */
        nsec_t wake;                    /* when it is to be driven, true time */
        struct event *parked, **last_parked; /* what waits in its sockets while it is paused */
        struct seen seen;
};

/* A client that renews as late as it can, with a lease of its own: where renewal and expiry
 * meet. */
struct edge {
        int64_t lease, ttl_ms;
};

struct faults {
        bool crashes, partitions, loss, stalls, pauses, suspends, full, deaths, late, members,
                transfers, compactions, memory;
};

struct world {
        uint64_t seed;
        struct rnd rnd;
        nsec_t now; /* the true time */
        nsec_t run_time, end_time;
        unsigned n_replicas, n_holders, n_edges;
        uint64_t snapshot_entries, snapshot_bytes; /* 0: as it comes, which is never */
        size_t segment_size;
        nsec_t write_every, fault_every; /* about */
        nsec_t snapshot_time;            /* writing one takes up to that */
        bool hints;                      /* replicas hear of it when a peer's process ends */
        struct replica_node r[NODES_MAX];
        struct holder h[HOLDERS_MAX];
        struct edge edges[HOLDERS_MAX];
        nsec_t outage; /* so far: time in which no majority could have worked together, whatever
                          the code does */
        uint64_t outages;
        nsec_t way; /* the longest that a leader has learned of */
        bool was_out;
        nsec_t lull; /* so far: time in which nobody led a majority whose disks work */
        uint64_t lulls;
        bool was_lull;
        nsec_t lull_ended;   /* when the last one did */
        size_t log_bytes;    /* of the log in memory; 0: all that behind a snapshot */
        unsigned repeated;   /* of 1,000 frames, where they are */
        size_t queued_bytes; /* of commands that wait; 0: so many that it never matters */
        size_t apply_slice;  /* what entries may cost in a turn; 0: as it is */
        bool any_change;     /* also of members whose change may cost the majority */
        nsec_t narrow;       /* how much of a link's time may be taken by what is on its way */
        uint64_t top_term;   /* the highest that anybody leads, or led */
        bool cut[NODES_MAX][NODES_MAX];
        struct sim_link {
                nsec_t last;       /* when the last frame on it arrives */
                nsec_t down_until; /* broken */
                bool lost;         /* something was, since there was a link */
        } links[REPLICAS_MAX][REPLICAS_MAX];
        struct faults faults;
        bool strangers;        /* endpoints lead to other cores for a while */
        bool named, guarded;   /* there are the clients of named.c; of guards.c */
        nsec_t damage_at;      /* a snapshot on its way may be damaged from then on... */
        struct rnd damage;     /* ...which is drawn apart: other worlds stay as they are */
        const struct aim *aim; /* of this world; see aim.c */
        bool calm;
        struct counts counts;
        struct coincidences met;
        char failure[512]; /* "" while all is well */
};

extern struct world *W; /* for the callbacks; one world at a time */

struct boot_time clock_of(const struct world *w, int32_t ppm);
nsec_t true_time_of(const struct world *w, int32_t ppm, struct boot_time t);
/* True in @percent of 100 cases. */
bool chance(struct world *w, unsigned percent);
/* A time from @lo to @hi. */
nsec_t some_time(struct world *w, nsec_t lo, nsec_t hi);

/* Snapshots come every @least to @most entries. */
void often(struct world *w, uint64_t least, uint64_t most);

/* Runs one seed. Returns true if no invariant was broken; otherwise w->failure says what
 * happened. @aim is the name of one of aim.c's, or NULL: the seed draws it. */
bool world_run(struct world *w, uint64_t seed, const char *aim);

/* ---- events.c ---- */

enum event_kind {
        EV_FRAME,
        EV_DISK,
        EV_EXIT,
        EV_POWER,
        EV_FAULT,
        EV_HEAL,
        EV_CLIENT,
        EV_EDGE,
        EV_MEMBERS,
        EV_CLOCK,
        EV_REQUEST,
        EV_REPLY,
        EV_DEED,
        EV_DOWN,
        EV_UP,
        EV_SCRIPT,
        EV_ELSEWHERE,
        EV_SETTLED
};

struct event {
        nsec_t at;
        uint64_t number; /* events of the same time keep their order */
        enum event_kind kind;
        unsigned from, to, life;
        struct request *request;
        struct edge *edge;
        enum disk_queue queue; /* EV_DISK */
        int deed;              /* EV_DEED */
        struct event *next;    /* parked */
        size_t len;
        uint8_t bytes[];
};

/* Posts an event with room for @len bytes, @in from now. */
struct event *post_bytes(struct world *w, nsec_t in, enum event_kind kind, size_t len);
struct event *post(struct world *w, nsec_t in, enum event_kind kind);
/* Once more, now: it becomes the last one of this time. */
void post_again(struct world *w, struct event *e);
struct event *events_first(void);
/* Takes the first one out, to be freed by the caller. */
struct event *events_take(void);

/* ---- nodes.c ---- */

void boot(struct world *w, struct replica_node *n);
enum end { END_STOP, END_KILL, END_POWER };
void kill_replica(struct world *w, struct replica_node *n, enum end how);
const char *address_of(uint64_t id);
void nodes_begin(struct world *w);
void nodes_end(struct world *w);
/* Time passes for a replica: what waits in it is done. */
void world_drive(struct world *w, struct replica_node *n);
/* Keeps an event for a paused replica until it goes on. */
void park(struct replica_node *n, struct event *e);
void resume(struct world *w, struct replica_node *n);
/* A frame, or the end of a job of the disk, arrives. Returns true when @e was kept. */
bool on_frame(struct world *w, struct event *e);
bool on_disk(struct world *w, struct event *e);
/* Tells the peers linked to it that the links are down. */
void tell_peers(struct world *w, const struct replica_node *n);
/* It hears that the link to a peer broke, or that there is one again. */
bool on_link(struct world *w, struct event *e);

/* ---- watched.c ---- */

/* A disk that tells seen.c what is made on it. Owns @under. */
struct disk *watched_disk_new(struct disk *under, struct replica_node *n);

/* ---- memory.c ---- */

/* From now on, about one in @one_in allocations of the code of replicas fails; 0: none. */
void memory_begin(struct rnd *rnd, uint64_t one_in);
/* From now on none does. */
void memory_end(void);
/* The next one fails. */
void memory_fail_next(void);
/* Around the code of a replica, and, back again, around ours inside of it. */
enum memory { MEMORY_OURS, MEMORY_START, MEMORY_RUN, MEMORY_APPLY, MEMORY_LOAD };
enum memory memory_of(enum memory whose); /* returns whose it was */
/* How many failed so far in this world, of which kind. */
uint64_t memory_failed(enum memory whose);
uint64_t memory_failures(void);
static inline void memory_back(enum memory *was)
{
        (void) memory_of(*was);
}
#define MEMORY(whose) cleanup_(memory_back) enum memory unused_ memory_was = memory_of(whose)

/* ---- load.c ---- */

void load_begin(struct world *w);
/* A request or an answer arrives, or a client's time to act has come. Functions that take the
 * event return true if they kept it. */
bool on_request(struct world *w, struct event *e);
void on_reply(struct world *w, struct request *q);
void on_client(struct world *w);
void on_edge(struct world *w, struct edge *e);
/* A request that gets no answer. */
void request_free(struct request *q);
/* Clients stop to ask for anything new. */
bool load_ended(const struct world *w);
/* A client asks for everything up to about now to be compacted; or writes, @n times. */
void ask_compaction(struct world *w);
void ask_writes(struct world *w, unsigned to, unsigned n);

/* ---- clients.c ---- */

void clients_begin(struct world *w);
void clients_end(void);
/* Carries what is due, and lets the clients act whose time has come. */
void clients_run(void);
nsec_t clients_next(void);
/* Whether every watcher has been told all up to @revision. */
bool clients_caught_up(int64_t revision);

/* ---- caches.c ---- */

void caches_begin(void);
void caches_end(void);
void caches_run(void);
nsec_t caches_next(void);

/* ---- sharers.c ---- */

void sharers_begin(struct world *w);
void sharers_end(void);
void sharers_run(void);
nsec_t sharers_next(void);

/* ---- wires.c ---- */

/* See struct wire. */
void wire_init(struct wire *k, nsec_t *wake, const struct span *cut);
/* False, and nothing is changed: nobody answers there. */
bool wire_connect(struct wire *k, unsigned to);
bool is_in(const struct world *w, const struct span *s);
void wire_close(struct wire *k); /* may be closed already */
/* Delays answers until @until, and requests from @deaf_from on; if it @breaks, only the first
 * answer arrives. */
void wire_be_late(struct wire *k, nsec_t until, nsec_t deaf_from, bool breaks);
/* What has arrived at the client, or at the server, is taken; true where something was. And
 * what each has to say gets on its way. */
bool wire_hear(struct wire *k);
bool wire_ask(struct wire *k);
void wire_say(struct wire *k);
void wire_answer(struct wire *k);
/* When the next parcel arrives; or the next one at the server. */
nsec_t wire_next(const struct wire *k);
nsec_t wire_next_asked(const struct wire *k);
bool wire_is_due(const struct wire *k);
/* Runs a client that is never frozen, if anything is due or @act_at has come: it receives,
 * acts, and disconnects if the wire is broken. */
void wire_run(struct wire *k, const nsec_t *act_at, void (*act)(void *client),
              void (*disconnect)(void *client), void *client);
/* A replica has something to say on a connection. */
void wires_kick(struct rpc_conn *server);
/* When its long requests have their turns; as api_conns wants it. */
struct api_turn *wire_turn(struct rpc_conn *server, void *arg);
/* What was asked of @n while it was busy, or paused, is taken now. */
void wires_go_on(const struct replica_node *n);
/* Before its api goes: nobody is connected to it any more. */
void wires_replica_down(unsigned i);

/* ---- faults.c ---- */

void faults_draw(struct world *w);
void cause_fault(struct world *w);
void heal(struct world *w);
/* Makes all replicas members again; returns true when all are. */
bool restore_members(struct world *w);
void change_members(struct world *w);
/* Asks @n for it. */
void ask_change(struct world *w, struct replica_node *n, enum replica_change what, uint64_t id);
/* The role of each replica as @n knows it: 2 a voter, 1 a learner, 0 neither. Returns the
 * number of voters. */
unsigned roles_of(struct replica_node *n, int role[static REPLICAS_MAX]);
void move_leader(struct world *w);
/* The leader, who was asked, says that this change is done. */
void check_changed(struct world *w, struct replica_node *n, uint64_t request);
void crash(struct world *w, struct replica_node *n);
void cut_off(struct world *w, struct replica_node *n, bool from_clients);
void stall(struct world *w, struct replica_node *n, nsec_t delay);
void fill(struct world *w, struct replica_node *n, bool full);
void pause_node(struct world *w, struct replica_node *n, bool host);
struct replica_node *the_leader(struct world *w); /* NULL: none is ready */
struct replica_node *replica_but(struct world *w,
                                 const struct replica_node *n); /* another one */

/* ---- aim.c ---- */

/* A moment at which a fault may be injected. */
enum moment {
        AT_LEADING = 1, /* it is ready to lead */
        AT_TERM,        /* its term is another one */
        AT_CONFIRMED,   /* it told a client of success */
        AT_ACKED,       /* it told a leader that it has an entry */
        AT_VOTED,
        AT_APPEND,    /* it sent entries */
        AT_SAVING,    /* it begins a snapshot */
        AT_INSTALL,   /* it begins to install one */
        AT_CHANGE,    /* it has a change of members that is not committed */
        AT_FORWARD,   /* it handed commands to the leader */
        AT_RENEWAL,   /* it was asked for a renewal */
        AT_READ,      /* it was asked for a read */
        AT_SEGMENT,   /* a file of its log was begun */
        AT_LOAD,      /* it is about to take up another's snapshot */
        AT_START,     /* its process starts */
        AT_APPLY,     /* it is about to apply an entry */
        AT_COMPACTED, /* it applied a compaction */
        AT_HANDING,   /* as the leader, it asks another one to stand */
        AT_TRUNCATED  /* entries were cut off while a write was in flight */
};

void aim_draw(struct world *w, const char *name);
bool aim_known(const char *name);
const char *aim_name(const struct world *w);
void aim_begin(struct world *w);
void aim_at(struct world *w, enum moment m, struct replica_node *n);
void on_deed(struct world *w, struct event *e);
void on_script(struct world *w);

/* ---- overlap.c ---- */

void overlap_begin(void);
void overlap_go_on(struct world *w);

/* ---- alone.c ---- */

void alone_begin(void);
void alone_go_on(struct world *w);

/* ---- seen.c ---- */

/* After every event in which a replica did something. */
void seen_look(struct world *w, struct replica_node *n);
void seen_frame_out(struct world *w, struct replica_node *n, unsigned to, struct view frame,
                    bool lost);
void seen_frame_before(struct replica_node *n);
void seen_frame_after(struct world *w, struct replica_node *n);
/* Before it is gone; and when it is there again. */
void seen_crash(struct world *w, struct replica_node *n);
/* It is reading in a snapshot of another's. */
bool seen_loading(const struct replica_node *n);
void seen_start(struct world *w, struct replica_node *n);
void seen_file(struct world *w, struct replica_node *n, const char *name);

/* ---- check.c ---- */

void fail(struct world *w, const char *fmt, ...) printf_(2, 3);
void check_reset(void);

/* It leads, in this term. */
void check_leads(struct world *w, const struct replica_node *n, uint64_t term);
/* An entry was applied at a replica. */
void check_applied(struct world *w, struct replica_node *n, uint64_t index);
/* A lease was granted; a renewal sent at @sent was acknowledged; a lease ended at some replica.
 */
void check_granted(struct world *w, int64_t lease, int64_t ttl_ms, nsec_t sent,
                   struct holder *h);
void check_renewed(struct world *w, int64_t lease, nsec_t sent, int64_t ttl_ms);
void check_ended(struct world *w, int64_t lease, bool expired);
/* A renewal of it was sent, or came to its end. */
void check_renewing(struct world *w, int64_t lease, int by);
/* A renewal, or the grant itself, of a lease was applied somewhere. */
void check_renewal_applied(struct world *w, int64_t lease, uint64_t index);
/* From time to time: checks that leases which are not renewed are gone (I2). */
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
/* The same of a read from a cache, now; @found 0: there was no such key. */
void check_cached(struct world *w, int64_t key, int64_t value, int64_t found);
/* A write was acknowledged: it is there in the end (I5). */
void check_written(struct world *w, int64_t key, int64_t value, int64_t revision);
/* A watcher got this event; of a deletion without a value. */
void check_delivered(struct world *w, unsigned watcher, int64_t revision, struct view key,
                     struct view value);
/* It got the error that all from @from to before @to is compacted. */
void check_compacted(unsigned watcher, int64_t from, int64_t to);
/* A lock was held from @begin to @end. */
void check_held(struct world *w, unsigned who, nsec_t begin, nsec_t end);
/* Everything is healed: whether nothing is left that still has to happen. */
bool check_settled(struct world *w);
/* The final checks, once everything had time to settle. */
void check_end(struct world *w);
