/*
 * A world of virtual time: replicas that run the real state machine, consensus, store and core;
 * holders that run the real member; a network and disks that fail. One seed decides everything;
 * one event is handled at a time.
 *
 *     world.c     runs it
 *     events.c    the queue of events
 *     nodes.c     the replicas, a model of their links, and their disks
 *     linked.c    the real links of replicas that have some
 *     sockets.c   the streams on which these stand; see sockets.h. names.c has what names lead
 *                 to, plaintext.c that there is no TLS
 *     tcp.c       their kernels and the network; see tcp.h
 *     callers.c   others who connect to their ports
 *     loops.c     the loops of real processes; see loops.h
 *     watched.c   their disks as they see them
 *     disk.c      files in memory, and what a power loss does to them
 *     memory.c    allocations that fail
 *     load.c      requests of clients to the core
 *     wires.c     connections that speak gRPC to it
 *     clients.c   clients on them: watchers and lockers
 *     caches.c    clients that read from a cache
 *     sharers.c   members that share work
 *     asker.c     clients that send one request at a time, for the next ones
 *     named.c     clients that use leases by name
 *     guards.c    programs that write only while they have a place
 *     operators.c operators, who change the members
 *     visitors.c  clients that ask for what operators and monitoring ask for
 *     probers.c   clients that read a replica's resources over HTTP/1.1
 *     fillers.c   one that fills the store up to its quota
 *     users.c     users with passwords, and who administers them
 *     listeners.c a user who watches what it may read
 *     bulk.c      one that changes many keys at once, with large values
 *     dozers.c    patient clients of long worlds
 *     hoarders.c  clients with many keys
 *     hoard.c     what happened to these keys; see hoard.h
 *     holders.c   hosts that hold one place each
 *     units.c     what runs on a host only while it holds its place; see units.h
 *     ground.c    what the agent's fence and its guard stand on
 *     fenced.c    their turns, and whoever disturbs them
 *     steady.c    what an agent concludes from what happened to its host
 *     ends.c      the endpoints of their agents
 *     elsewhere.c other cores, to which these lead for a while
 *     forced.c    survivors of our core that are forced to go on alone
 *     moves.c     watches that have to move
 *     insides.c   what is read inside an agent
 *     view.c      what agents are told about each other
 *     faults.c    faults at any time
 *     aim.c       faults at the worst time
 *     overlap.c   entries under way are overwritten
 *     deposed.c   a leader learns too late that another one leads
 *     upgrades.c  replicas of two releases, and the cluster version rises
 *     swaps.c     disks that come back otherwise than they went
 *     replaced.c  members whose disk is lost for good
 *     doubled.c   one data directory in two processes
 *     rates.c     links that carry a limited number of bytes a second
 *     alone.c     members are removed until one is left
 *     nights.c    an hour with trouble now and then
 *     budget.c    what a cluster at rest costs
 *     seen.c      the coincidences that occurred
 *     reached.c   what worlds reach of the probes in the code, and of the methods
 *     trace.c     what a world does, as numbers, to compare two runs
 *     wider.c     a state machine with structs of other sizes; see wider.h
 *     prompt.c    what waits although others get on
 *     given.c     what is shared, and never given back
 *     acked.c     what leaders take for acknowledged
 *     drawn.c     what worlds have, for a run's last lines
 *     check.c     what must never happen; it shares no code with what it checks
 */
#pragma once

#include <bsd/sys/queue.h>

#include "base/rnd.h"
#include "consensus/link_window.h"
#include "etcd/api.h"
#include "etcd/node.h"
#include "rpc/conn.h"
#include "store/disk.h"

#include "counts.h"
#include "holders.h"

#define MSEC NSEC_PER_MSEC
#define NEVER INT64_MAX
#define ELECTION (500 * MSEC)  /* of most worlds ... */
#define HEARTBEAT (50 * MSEC)  /* ... and how often their leaders beat */
#define BEAT_LEAST (20 * MSEC) /* in the others */
/* Everything must have settled this long after the faults: enough for every TTL and several
 * elections. */
#define CALM_MAX (25 * NSEC_PER_SEC)
/* How long to wait after the faults at least: leases that are not renewed must be gone by then.
 */
#define CALM_MIN (8 * NSEC_PER_SEC)
#define TTL_MIN_MS 1000
#define TTL_MAX_MS 4000
#define CLOCK_STEP (5 * MSEC) /* how often the world is looked at */
#define TTL_LONG_MS 3600000   /* where some are long */
#define REQUEST_TIMEOUT                                                              \
        (5 * NSEC_PER_SEC)       /* of a write that is not applied, and two election \
                                  * timeouts more, as in tenure-core/main.c */
#define BREAKS_FROM NSEC_PER_SEC /* by then all replicas have started once */
/* What a frame takes at most; what it takes more if it is late, which makes those behind it
 * late, too; and what it takes more while the network is slow. */
#define FRAME_MOST (3 * MSEC)
#define FRAME_LATE (200 * MSEC)
#define FRAME_SLOW (60 * MSEC)
#define COMPACT_KEEP 100              /* revisions, where the core counts them */
#define CACHE_MOST (3 * NSEC_PER_SEC) /* the longest term of a cache */
#define N_KEYS 16
#define TIED 't'          /* the first byte of keys that end with a lease */
#define QUOTA (256 << 10) /* of the store, where it has one */
#define TXN_OPS 128       /* limit of operations in a transaction, as in etcd ... */
#define TXN_OPS_MOST 980  /* ... or about as many as may be set, and cost too much otherwise */
#define HOARD_MOST 100000 /* keys */
#define HOARD_LARGE 10000

struct world;
struct request;
struct replica_node;

/* ---- disk.c ---- */

/* Like the real disk (store/disk_posix.c): each queue in order; neither waits for the other. */
enum disk_queue { DISK_LOG, DISK_ASIDE, DISK_QUEUES };

struct disk *sim_disk_new(void);
/* The power fails: jobs under way are lost, the first one of each queue perhaps half done. What
 * was synced stays; of what was not, any sectors and names may stay. */
void sim_disk_crash(struct disk *d, struct rnd *rnd);
/* The process is killed: its jobs are lost in the same way, but what the first ones have
 * written stays, unsynced. Returns whether there is any such data. */
bool sim_disk_kill(struct disk *d, struct rnd *rnd);
/* The last write to @name was not synced: the platter still has @bytes. */
void sim_disk_unsync(struct disk *d, const char *name, const void *bytes, size_t len);
/* The disk accepts nothing more; existing files can be overwritten. */
void sim_disk_fill(struct disk *d, bool full);
bool sim_disk_busy_at(const struct disk *d, enum disk_queue q);
/* Carries out the next job of a queue; its owner hears of it when it is finished. Returns true
 * if it completed a snapshot, which takes long. */
bool sim_disk_run_at(struct disk *d, enum disk_queue q);
/* Finishes the next job of a queue, if there is one. */
void sim_disk_finish_at(struct disk *d, enum disk_queue q);
/* Like the functions above, as if there were only one queue. */
bool sim_disk_busy(const struct disk *d);
void sim_disk_finish(struct disk *d);
/* How much of our memory its files take. */
size_t sim_disk_memory(const struct disk *d);
/* Between two lives: it loses all files, gets those of @from, or a bit of it flips. */
void sim_disk_empty(struct disk *d);
void sim_disk_copy(struct disk *d, const struct disk *from);
void sim_disk_flip(struct disk *d, struct rnd *rnd);
/* Called with each job that is queued. */
void sim_disk_on_submit(struct disk *d, void (*fn)(void *arg, enum disk_queue q), void *arg);

/* ---- replicas and worlds ---- */

/* What was seen of a replica from outside, by seen.c. */
struct seen {
        uint64_t term, leader; /* from its status */
        bool leads, ready;
        bool hands_over; /* a leader that told another replica to stand for election */
        bool installing, install_full, saving;
        uint64_t install_term, save_term;
        uint64_t acked, acked_term; /* the last entry that it acknowledged to a leader */
        nsec_t acked_at;
        uint64_t voted_term, voted_for; /* its last vote */
        nsec_t confirmed_at;            /* when a client last got a success */
        uint64_t durable, durable_term; /* at a crash: what it considered durable */
        int64_t compacted;
        uint64_t commit;   /* from its status */
        nsec_t waits;      /* leader: since when the next entry waits; 0: none does */
        uint64_t due;      /* follower: the leader has committed this entry ... */
        nsec_t behind;     /* ... since then; 0: so has it */
        nsec_t segment_at; /* when a file of the log was last made */
        bool crashed;      /* it crashed, and was not checked since */
};

struct replica_node {
        unsigned i;
        uint64_t id; /* of the member that it runs as */
        bool up, paused;
        bool asleep; /* also paused: the whole host is suspended, and frames to it are lost */
        bool dark;   /* its host has no power ... */
        nsec_t dark_at;   /* ... since then */
        bool lost_power;  /* it had none before this life */
        bool full;        /* its disk is full */
        bool made;        /* its disk has a data directory */
        bool lost;        /* nobody starts it again before the end; see forced.c */
        bool gone;        /* its disk is lost for good, and it has no new id yet ... */
        bool joins;       /* ... or has one, which another replica told it ... */
        bool again;       /* ... and which it had before, so that it is refused */
        uint32_t version; /* the newest cluster version that its program knows */
        nsec_t booted_at;
        uint64_t looked;      /* entries of its log up to here: upgrades_look() */
        bool keeps_up;        /* it has nearly all that is committed, and installs nothing */
        nsec_t refuses_since; /* since when it refuses each write for lack of room in the queue;
                               * 0: it does not */
        struct disk *disk;
        struct disk *watched_disk; /* the same disk, observed by seen.c */
        bool older;                /* `disk` is an older copy of the right one */
        struct disk *right_disk;   /* while `disk` has something else; NULL: it has not ... */
        bool refused;              /* ... and has been refused */
        struct node node;
        struct linked *linked;    /* its real links; NULL: they are modelled */
        struct worker *passwords; /* hashes them; NULL: nobody logs in */
        struct host_clock clock;  /* of its host */
        nsec_t slept_from;
        nsec_t disk_delay; /* the disk stalls for this long; jobs end later */
        nsec_t stalled_until;
        nsec_t disk_begun[DISK_QUEUES]; /* since when each queue is busy; 0: it is not */
        unsigned life;                  /* counts starts; events of an earlier life are void */
        uint64_t failures;              /* failed allocations before this life */
        unsigned io_errors;             /* of its disk in this life */
        uint64_t n_covered;             /* renewals that needed no entry, as last seen */
        nsec_t wake;                    /* when to drive it next, true time */
        nsec_t room_at;                 /* when a full link of it has room again */
        struct event *parked, **last_parked; /* what waits in its sockets while it is paused */
        struct seen seen;
};

/* A client that renews as late as it can, with a lease of its own: tests the moment where
 * renewal and expiry meet. In some worlds it sometimes renews in a loop before that. */
/* By this part of its TTL is a lease renewed ahead there, so that it often covers a round trip.
 */
#define LOOP_PART 20
/* So many reads wait at a replica at most, and as many writes, where clients are greedy. */
#define FEW_WAIT 200

struct edge {
        int64_t lease, ttl_ms;
        int64_t wants_ms; /* the TTL that it asks for */
};

/* What clients and hosts do in most worlds, and which some worlds do not have. */
enum usual {
        USUAL_WRITES = 1,
        USUAL_CAS = 2, /* compare-and-sets */
        USUAL_READS = 4,
        USUAL_LOCKS = 8,
        USUAL_GROUPS = 16,
        USUAL_CACHES = 32,
        USUAL_SERVICES = 64,
        USUAL_ALL = 127
};

struct faults {
        bool crashes, partitions, loss, stalls, pauses, suspends, full, deaths, late, members,
                transfers, compactions, memory;
};

struct world {
        uint64_t seed;
        struct rnd rnd;
        nsec_t now; /* true time */
        nsec_t run_time, end_time;
        unsigned n_replicas, n_holders, n_edges;
        unsigned n_nodes;     /* replicas, and behind them what doubled.c starts */
        bool lasting;         /* it is a long one; see nights.c */
        unsigned nights;      /* how often trouble comes again there */
        int64_t ttl_max_ms;   /* of holders */
        bool long_ttls;       /* some of holders and clients are long */
        nsec_t compact_age;   /* the core compacts what is older; 0: it does not ... */
        int64_t compact_keep; /* ... or keeps that many revisions; 0: it does not */
        bool dozes;           /* the clients of dozers.c exist */
        nsec_t election, heartbeat;
        bool swaps;          /* disks come back otherwise than they went; see swaps.c */
        unsigned n_swapped;  /* so many did */
        uint64_t older_term; /* of the last one that came back as an older copy, ... */
        bool unknowable;     /* ... and nobody can know any more what it lacks */
        bool doubles;        /* a second process of a member starts; see doubled.c */
        bool replaces;    /* whoever has lost its disk is replaced at times; see replaced.c */
        bool asks_itself; /* ... and asks for it */
        bool deposes;     /* a leader is deposed while answers to it are under way */
        bool steps;       /* a clock does not count exactly how long its host slept */
        bool drawn;       /* these are, and shorter ones when a replica starts */
        bool tuned;       /* the following settings are drawn; see draw_other_settings() */
        nsec_t min_ttl, token_ttl, watch_progress, timeout;
        nsec_t cache_term; /* of the clients that read from a cache ... */
        int64_t cache_ms;  /* ... and what they ask for */
        nsec_t slower; /* how much longer its elections or beats take than usual, in percent */
        uint64_t snapshot_entries, snapshot_bytes; /* 0: the default, which is never reached */
        size_t segment_size;
        nsec_t write_every, fault_every; /* on average */
        nsec_t snapshot_time;            /* writing a snapshot takes at most this long */
        bool hints;                      /* replicas hear of it when a peer's process ends */
        struct replica_node r[NODES_MAX];
        struct holder h[HOLDERS_MAX];
        struct edge edges[HOLDERS_MAX];
        nsec_t outage; /* total time so far in which no majority could have worked together,
                        * whatever the code does */
        bool was_out;
        struct {
                nsec_t total; /* for so long lease time must have stood still so far */
                enum {
                        STILL_NOT,
                        STILL_LEADERLESS, /* no leader is ready ... */
                        STILL_OUT,   /* no majority could work, or the leader does not run */
                        STILL_STUCK, /* nothing is committed, and an entry waits */
                } why;
                nsec_t lasts;          /* ... for so long */
                unsigned leader;       /* with STILL_STUCK, nothing by this one ... */
                uint64_t term, commit; /* ... after this entry */
                nsec_t grace;          /* clients still have so long to retry */
        } still;
        nsec_t lull; /* total time so far in which nobody led a majority with working disks */
        uint64_t lulls;
        bool was_lull;
        unsigned life_alone; /* of a replica that is alone */
        unsigned leads;      /* the replica that leads, or n_replicas */
        nsec_t lull_ended;   /* when the last lull ended */
        nsec_t incomplete;   /* when members were still missing, after the faults */
        bool restoring;      /* they are being added again */
        size_t log_bytes;    /* limit of the log in memory; 0: everything after the snapshot */
        unsigned repeated;   /* how many of 1,000 frames are repeated */
        size_t queued_bytes; /* limit of waiting commands; 0: one that is never reached */
        size_t apply_slice;  /* cost of entries in one turn; 0: the default */
        bool any_change;     /* members may be changed even if that may cost the majority */
        unsigned does;       /* of enum usual */
        bool loops;          /* edge clients renew in loops, so that leases are renewed ahead */
        bool slows;          /* now and then links between replicas are slow; see spells.c */
        nsec_t slow_until;   /* some are until then; 0: none has been */
        nsec_t slowest;      /* how much longer a frame takes at most */
        nsec_t learning_until; /* lease time may stand still, as a leader learns of it */
        bool was_slow;         /* its majority was slow to answer ... */
        uint64_t slow_term;    /* ... in this term */
        nsec_t narrow;         /* how much of a link's time the data under way may take */
        bool rated;            /* links carry a limited number of bytes a second; see rates.c */
        bool rests;            /* ... and nothing else is wrong */
        bool as_shipped; /* ... and messages and parts of snapshots are as large as usual */
        uint64_t rate;   /* of a narrow link, bytes a second */
        uint64_t request_most; /* bytes that a write has there */
        struct {
                unsigned who;
                uint64_t term;
                nsec_t since;
                struct lease_time at;
        } watched;         /* the leader whose lease time is watched, and what it was then */
        uint64_t top_term; /* the highest term in which any replica leads or led */
        bool cut[NODES_MAX][NODES_MAX];
        struct sim_link {
                nsec_t last;                 /* when the last frame on it arrives */
                nsec_t delay;                /* how much longer a frame takes at present */
                nsec_t down_until;           /* it is broken until then */
                uint64_t rate;               /* bytes a second; 0: any number */
                nsec_t carried;              /* when all that was sent on it is carried */
                struct link_window window;   /* of a modelled link ... */
                unsigned window_life;        /* ... of the sender's process */
                bool lost;                   /* a frame was lost on this link */
                bool calls;                  /* its sender was refused, and tries again */
                unsigned from_life, to_life; /* between which the sender has introduced
                                              * itself */
        } links[REPLICAS_MAX][REPLICAS_MAX];
        struct faults faults;
        bool strangers;      /* endpoints lead to other cores for a while */
        bool forced;         /* survivors are forced to go on alone; see forced.c */
        bool named, guarded; /* the clients of named.c exist; those of guards.c ... */
        bool fenced;         /* units are bound to the places of holders */
        bool operated;   /* ... and those of operators.c, and no others change the members */
        bool visited;    /* ... and those of visitors.c */
        bool restricted; /* ... and those of users.c */
        bool tied;   /* clients that renew late have keys, and sometimes revoke their leases */
        bool greedy; /* ... and those of greedy.c */
        bool bulk;   /* ... and that of bulk.c */
        unsigned bulk_keys;
        uint32_t bulk_largest; /* value */
        unsigned hoard;        /* keys of the clients of hoarders.c; 0: there are none ... */
        bool fleet;            /* ... and these are nodes */
        unsigned txn_ops;      /* limit of operations in a transaction */
        bool linked;           /* replicas have real links */
        bool old, upgrades;    /* they are of the older release at first, and upgraded ... */
        nsec_t finish_after;   /* ... which is finished by itself after that; 0: it is not */
        bool begun;            /* some command was applied: there may be leases */
        unsigned starts_late;  /* this one, and the cluster waits for it; 0: none does */
        bool raised;           /* the command that finishes it was once in a leader's log */
        uint64_t quota;        /* of the store, for the client of fillers.c; 0: none */
        bool later;       /* a follower is of a later version, and proposes what nobody knows */
        bool damages;     /* snapshots under way ... */
        nsec_t damage_at; /* ... are damaged not before this time ... */
        struct rnd damage;     /* ... drawn separately, so that other worlds stay the same */
        uint64_t breaks_in;    /* of so many calls of a disk one fails; 0: none */
        const struct aim *aim; /* of this world; see aim.c */
        bool calm;
        uint64_t requests; /* for changes of members */
        nsec_t changed_at; /* when a leader last had a change that was not committed */
        struct counts counts;
        struct coincidences met;
        char failure[512]; /* "" while no check has failed */
};

extern struct world *W; /* for callbacks; there is one world at a time */

/* True in @percent of 100 cases. */
bool chance(struct world *w, unsigned percent);
/* A time from @lo to @hi. */
nsec_t some_time(struct world *w, nsec_t lo, nsec_t hi);
/* Like chance() and some_time(), drawn from @r. */
bool chance_in(struct rnd *r, unsigned percent);
nsec_t time_in(struct rnd *r, nsec_t lo, nsec_t hi);

/* A TTL from the shortest one to @most, where some are long: any magnitude is as likely. */
int64_t long_ttl_ms(struct world *w, int64_t most);
/* Clients have that many keys. */
void draw_hoard(struct world *w, unsigned least, unsigned most);

/* Snapshots come every @least to @most entries. */
void often(struct world *w, uint64_t least, uint64_t most);

/* For how long everything has been healed, and there has been a leader and every member. */
nsec_t calm_for(const struct world *w);

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
        EV_HELLO,
        EV_START,
        EV_UPGRADE,
        EV_SCRIPT,
        EV_ELSEWHERE,
        EV_FORCED,
        EV_DOUBLE,
        EV_SETTLED,
        EV_NIGHT,
        EV_REST,
        EV_SLOW,
        EV_QUICK,
        EV_BURST
};

struct event {
        nsec_t at;
        uint64_t number; /* events of the same time keep their order */
        enum event_kind kind;
        unsigned from, to, life;
        uint64_t from_id, to_id; /* of EV_FRAME and EV_HELLO: of the members */
        struct request *request;
        struct edge *edge;
        enum disk_queue queue; /* of EV_DISK */
        int deed;              /* of EV_DEED */
        uint32_t version;      /* of EV_FRAME and EV_HELLO: of the sender's program */
        struct event *next;    /* in a list of parked events */
        size_t len;
        uint8_t bytes[];
};

/* Posts an event with room for @len bytes, @in from now. */
struct event *post_bytes(struct world *w, nsec_t in, enum event_kind kind, size_t len);
struct event *post(struct world *w, nsec_t in, enum event_kind kind);
/* Posts the event again, now, after all others of this time. */
void post_again(struct world *w, struct event *e);
struct event *events_first(void);
/* Takes out the first event, which the caller frees. */
struct event *events_take(void);

/* ---- nodes.c ---- */

void boot(struct world *w, struct replica_node *n);
enum end { END_STOP, END_KILL, END_POWER };
void kill_replica(struct world *w, struct replica_node *n, enum end how);
/* Where replica @i is a member, whoever it runs as; and the replica there: REPLICAS_MAX: none.
 */
const char *address_of(unsigned i);
unsigned replica_at(const char *address);
/* Introduces one to the other, in a while. */
void post_hello(struct world *w, const struct replica_node *from, unsigned to, nsec_t in);
/* The replica that runs as this member. NULL: none does. */
struct replica_node *node_of_member(uint64_t id);
void nodes_begin(struct world *w);
void nodes_end(struct world *w);
/* Lets a replica run: does what waits in it. */
void world_drive(struct world *w, struct replica_node *n);
/* Keeps an event for a paused replica until it goes on. */
void park(struct replica_node *n, struct event *e);
void resume(struct world *w, struct replica_node *n);
/* A frame, or the end of a disk's job, arrives. Returns true if @e was kept. */
bool on_frame(struct world *w, struct event *e);
bool on_disk(struct world *w, struct event *e);
/* Tells the peers that their links to it are down. */
void tell_peers(struct world *w, const struct replica_node *n);
/* It hears that the link to a peer broke, or that there is a new one. */
bool on_hello(struct world *w, struct event *e);
bool on_link(struct world *w, struct event *e);

/* ---- linked.c ---- */

void linked_begin(struct world *w);
void linked_end(struct world *w);
/* The links of a replica start with it, and end with its process. */
must_check_ int linked_start(struct replica_node *n);
void linked_stop(struct replica_node *n);
void linked_fatal(struct replica_node *n);
void linked_configured(struct replica_node *n);
void linked_send(struct replica_node *n, uint64_t peer, struct view frame);
size_t linked_room(const struct replica_node *n, uint64_t peer);
bool linked_is_up(const struct replica_node *n, uint64_t peer);
/* Its process ends, or goes on after a pause. */
void linked_process_ends(const struct replica_node *n, bool power);
void linked_resumes(const struct replica_node *n);
/* Its connections are reset by something in between; @to NODES_MAX: all of them. */
void linked_break(const struct replica_node *n, unsigned to);
/* Does what is due on the links. */
void linked_run(struct world *w);
nsec_t linked_next(const struct world *w);
/* Whether two replicas have no link in one of the directions, which they may take a moment to
 * make. */
bool linked_apart(const struct world *w, unsigned a, unsigned b);
/* Called from time to time: checks that links are made. */
void linked_check(struct world *w);

/* ---- watched.c ---- */

/* A disk that reports new files to seen.c. Takes ownership of @under. */
struct disk *watched_disk_new(struct disk *under, struct replica_node *n);

/* ---- memory.c ---- */

/* From now on, about one of @one_in allocations in the code of replicas fails; 0: none. */
void memory_begin(struct rnd *rnd, uint64_t one_in);
/* Like memory_begin(), after memory_end(); continues the count of failures. */
void memory_go_on(uint64_t one_in);
/* From now on no allocation fails. */
void memory_end(void);
/* Makes the next allocation fail. */
void memory_fail_next(void);
/* Set around the code of a replica, and set back around our own code inside it. */
enum memory { MEMORY_OURS, MEMORY_START, MEMORY_RUN, MEMORY_APPLY, MEMORY_LOAD };
enum memory memory_of(enum memory whose); /* returns the previous value */
/* How many allocations of that kind failed so far in this world. */
uint64_t memory_failed(enum memory whose);
uint64_t memory_failures(void);
static inline void memory_back(enum memory *was)
{
        (void) memory_of(*was);
}
#define MEMORY(whose) cleanup_(memory_back) enum memory unused_ memory_was = memory_of(whose)

/* ---- load.c ---- */

void load_begin(struct world *w);
/* A request or an answer arrives, or it is time for a client to act. Functions that take the
 * event return true if they kept it. */
bool on_request(struct world *w, struct event *e);
void on_reply(struct world *w, struct request *q);
void on_client(struct world *w);
void on_edge(struct world *w, struct edge *e);
/* Frees a request that gets no answer. */
void request_free(struct request *q);
/* Whether clients begin nothing new any more. */
bool load_ended(const struct world *w);
/* A client asks for a compaction up to about now; or writes or reads @n times. */
void ask_compaction(struct world *w);
void ask_writes(struct world *w, unsigned to, unsigned n);
void ask_reads(struct world *w, unsigned to, unsigned n);
void ask_large_writes(struct world *w, unsigned to, unsigned n, size_t len);

/* ---- clients.c ---- */

void clients_begin(struct world *w);
void clients_go_on(void); /* the load begins again */
void clients_end(void);
/* Delivers what is due, and runs the clients whose time has come. */
void clients_run(void);
nsec_t clients_next(void);
/* A write was done. */
void clients_see_write(int64_t revision);
/* Whether every watcher has been told everything up to @revision. */
bool clients_caught_up(int64_t revision);

/* ---- caches.c ---- */

void caches_begin(void);
void caches_end(void);
/* An entry was applied at a replica. */
void caches_applied(const struct state *s);
void caches_go_on(void);
void caches_run(void);
nsec_t caches_next(void);

/* ---- greedy.c ---- */

void greedy_begin(struct world *w);
void greedy_end(void);
void greedy_run(void);
nsec_t greedy_next(void);

/* ---- sharers.c ---- */

void sharers_begin(struct world *w);
void sharers_end(void);
/* Called from time to time: checks that no task stays nobody's. */
void sharers_check(struct world *w);
void sharers_run(void);
nsec_t sharers_next(void);

/* ---- probers.c ---- */

void probers_begin(void);
void probers_end(void);
void probers_run(void);
nsec_t probers_next(void);
/* A replica is about to end. */
void probers_replica_down(unsigned i);

/* ---- wires.c ---- */

/* See struct wire. */
void wire_init(struct wire *k, nsec_t *wake, const struct span *cut);
/* False, and nothing has changed, if nobody answers there. */
bool wire_connect(struct wire *k, unsigned to);
/* Of what a replica accepts on a connection. */
struct rpc_limits wire_limits(const struct replica_node *n);
bool is_in(const struct world *w, const struct span *s);
void wire_close(struct wire *k); /* may be closed already */
/* Delays answers until @until, and requests from @deaf_from on; if it @breaks, only the first
 * answer arrives. */
void wire_be_late(struct wire *k, nsec_t until, nsec_t deaf_from, bool breaks);
/* hear: takes what has arrived at the client; ask: at the server; both return whether there was
 * anything. say and answer send what each side has queued. */
bool wire_hear(struct wire *k);
bool wire_ask(struct wire *k);
void wire_say(struct wire *k);
void wire_answer(struct wire *k);
/* When the next parcel arrives at the client; or at the server. */
nsec_t wire_next(const struct wire *k);
nsec_t wire_next_asked(const struct wire *k);
bool wire_is_due(const struct wire *k);
/* Whether something was not accepted, and is sent again by TCP. */
bool wire_repeats(const struct wire *k);
/* Runs a client that is never frozen, if anything is due or @act_at has come: it receives,
 * acts, and disconnects if the wire is broken. */
void wire_run(struct wire *k, const nsec_t *act_at, void (*act)(void *client),
              void (*disconnect)(void *client), void *client);
/* In the form of api_conns: a replica has something to send on a connection; and the turns of
 * its long requests. */
void wires_kick(struct rpc_conn *server, void *arg);
struct api_turn *wire_turn(struct rpc_conn *server, void *arg);
/* Delivers the requests that came while @n was busy or paused. */
void wires_go_on(const struct replica_node *n);
/* Ends the connections to a replica before its api is freed. */
void wires_replica_down(unsigned i);

/* ---- faults.c ---- */

void faults_draw(struct world *w);
void cause_fault(struct world *w);
void heal(struct world *w);
/* Asks for all replicas to become members again; returns true when all are. */
bool restore_members(struct world *w);
void change_members(struct world *w);
/* Asks @n for a change. */
void ask_change(struct world *w, struct replica_node *n, enum replica_change what, uint64_t id);
/* The role of each replica as @n knows it: 2 a voter, 1 a learner, 0 neither. Returns how many
 * of them vote. */
unsigned roles_of(struct replica_node *n, int role[static REPLICAS_MAX]);
/* A member, as @n knows it, that is none of the replicas; 0: there is none. */
uint64_t stray_of(struct replica_node *n);
void move_leader(struct world *w);
/* The leader reports that the requested change is done. */
void check_changed(struct world *w, struct replica_node *n, uint64_t request);
void crash(struct world *w, struct replica_node *n);
void cut_off(struct world *w, struct replica_node *n, bool from_clients);
void stall(struct world *w, struct replica_node *n, nsec_t delay);
void fill(struct world *w, struct replica_node *n, bool full);
void pause_node(struct world *w, struct replica_node *n, bool host);
struct replica_node *the_leader(struct world *w); /* NULL: none is ready */
struct replica_node *replica_but(struct world *w,
                                 const struct replica_node *n); /* a replica other than @n */

/* ---- aim.c ---- */

/* A moment at which a fault may be injected. */
enum moment {
        AT_LEADING = 1, /* it is ready to lead */
        AT_TERM,        /* its term has changed */
        AT_CONFIRMED,   /* it confirmed a client's request */
        AT_ACKED,       /* it acknowledged an entry to a leader */
        AT_VOTED,
        AT_APPEND,    /* it sent entries */
        AT_SAVING,    /* it begins a snapshot */
        AT_INSTALL,   /* it begins to install a snapshot */
        AT_CHANGE,    /* it has a change of members that is not committed */
        AT_FORWARD,   /* it forwarded commands to the leader */
        AT_RENEWAL,   /* it got a renewal */
        AT_READ,      /* it got a read */
        AT_SEGMENT,   /* it began a file of its log */
        AT_LOAD,      /* it is about to adopt another replica's snapshot */
        AT_START,     /* its process starts */
        AT_APPLY,     /* it is about to apply an entry */
        AT_COMPACTED, /* it applied a compaction */
        AT_HANDING,   /* as the leader, it asks another replica to stand for election */
        AT_TRUNCATED  /* entries were cut off while a write was in flight */
};

void aim_draw(struct world *w, const char *name);
bool aim_known(const char *name);
/* How many seconds of processor time a world of it may take; a usual one takes 0.1. */
unsigned aim_patience(const char *name);
/* Whether its worlds are those of nights.c. NULL: no. */
bool aim_is_long(const char *name);
const char *aim_name(const struct world *w);
/* Whether it disturbs nothing by itself; or is a scenario, which counts on quick links. */
bool aim_is_plain(const struct world *w);
bool aim_is_scenario(const struct world *w);
/* Aims have numbers from 0 on. NULL: there is none of that number. */
#define AIMS_MAX 64
unsigned aim_number(const struct world *w);
const char *aim_called(size_t number);
void aim_begin(struct world *w);
void aim_at(struct world *w, enum moment m, struct replica_node *n);
void on_deed(struct world *w, struct event *e);
void on_script(struct world *w);

/* ---- spells.c ---- */

void spells_begin(struct world *w);
/* There is trouble again. */
void spells_again(struct world *w);
/* All links are quick from now on. */
void spells_end(struct world *w);
/* Some links become slow, or quick again. */
void on_spell(struct world *w);
void on_quick(struct world *w);
/* The leader of that term has a majority, which is slow to answer, or not. */
void spells_see(struct world *w, uint64_t term, bool slow);

/* ---- rates.c ---- */

/* After all else was drawn, and when the replicas are about to begin. */
void rates_draw(struct world *w);
void rates_begin(struct world *w);
/* @n bytes are sent on a link now: when it has carried them. */
nsec_t rates_carry(struct world *w, unsigned from, unsigned to, size_t n);
/* Whether what is sent now waits. */
bool rates_are_busy(const struct world *w, unsigned from, unsigned to);
/* A modelled link: @n bytes were sent; how many more its window takes; and it broke. */
void rates_put(struct world *w, unsigned from, unsigned to, size_t n);
size_t rates_room(struct world *w, unsigned from, unsigned to);
void rates_break(struct world *w, unsigned from, unsigned to);
void on_burst(struct world *w);
/* A frame was sent on a modelled link. */
void rates_see(struct world *w, const struct replica_node *n, unsigned to, struct view frame);
/* A renewal that came then has its answer. */
void rates_renewed(struct world *w, const struct replica_node *n, nsec_t came, bool ok);
/* Called from time to time: checks that links that are full depose no leader. */
void rates_check(struct world *w);

/* ---- nights.c ---- */

void nights_prepare(struct world *w);
/* Everything was healed. */
void nights_healed(struct world *w);
void on_night(struct world *w);

/* ---- budget.c ---- */

void budget_begin(void);
/* From now on clients rest. */
void budget_rests(struct world *w);
/* They have rested until now. */
void budget_check(struct world *w);

/* ---- upgrades.c ---- */

void upgrades_draw(struct world *w);
void upgrades_begin(struct world *w);
/* After each turn of replica @n. */
void upgrades_look(struct world *w, struct replica_node *n);
void upgrades_go_on(struct world *w);
void upgrades_heal(struct world *w);
void upgrades_end(struct world *w);
/* Whether it is of an older release than its cluster, and so to be refused. */
bool upgrades_outdated(const struct replica_node *n);

/* ---- overlap.c ---- */

void overlap_begin(void);
/* deposed.c: a leader is deposed while it is told that it leads. */
void deposed_begin(struct world *w);
void deposed_go_on(struct world *w);
void overlap_go_on(struct world *w);

/* ---- swaps.c ---- */

void swaps_draw(struct world *w);
void swaps_begin(void);
/* Remembers the present disk of some replica, for later. */
void swaps_copy(struct world *w);
/* The host of @n has lost its power: perhaps swaps its disk. */
void swap_disk(struct world *w, struct replica_node *n);
/* After each turn of replica @n: whom it refuses, or who refuses it. */
void swaps_look(struct world *w, struct replica_node *n);
/* Whether its process ends since it has refused a disk: the next one has the right one. */
bool swap_refused(struct replica_node *n);
/* Another replica refuses it because of its disk: it gets the right one back. */
void swap_heal(struct world *w, struct replica_node *n);
/* Whether its membership may be changed. */
bool swap_settles(struct world *w, struct replica_node *n, bool added);
/* It starts. */
void swap_back(struct replica_node *n);

/* ---- replaced.c ---- */

/* After the aim was drawn. */
void replaced_draw(struct world *w);
/* Its disk is lost for good. */
void replaced_empty(struct replica_node *n);
/* A replica whose disk is lost, and which waits for its new id. NULL: there is none. */
struct replica_node *replaced_lost(struct world *w);
/* It starts: whether it has its new id. If not, it tries again later. */
bool replaced_joins(struct world *w, struct replica_node *n);
/* All is healed: whether all that are lost are replaced, as that leader knows. */
bool replaced_all(struct world *w, struct replica_node *leader);
/* It runs as the member that it is now. */
void replaced_starts(const struct replica_node *n);
/* After each turn of replica @n. */
void replaced_look(const struct world *w, const struct replica_node *n);

/* ---- doubled.c ---- */

/* After all else was drawn, and when the replicas have begun. */
void doubled_draw(struct world *w);
void doubled_begin(struct world *w);
void on_double(struct world *w);
/* The other process of the same member. NULL: there is none that runs. */
struct replica_node *doubled_of(const struct world *w, const struct replica_node *n);
/* Who is reached at the address of replica @n, which may be NULL; and whether one of the two
 * does not reach the other one because of that. */
struct replica_node *doubled_at(const struct world *w, struct replica_node *n);
bool doubled_apart(const struct world *w, unsigned i, unsigned j);
/* Replica @by has taken, or not, that @n introduces itself. */
void doubled_introduced(struct world *w, const struct replica_node *n,
                        const struct replica_node *by, int r);
/* Whether a process may be told to stop because another one runs with its directory. */
bool doubled_stops(const struct world *w, const struct replica_node *n);
/* Its process has ended by itself. */
void doubled_ended(struct world *w, struct replica_node *n);
/* Called from time to time. */
void doubled_look(struct world *w);

/* ---- forced.c ---- */

void forced_draw(struct world *w);
/* After the aim was drawn. */
void forced_fit(struct world *w);
void forced_begin(struct world *w);
void on_forced(struct world *w);
/* Ends the forced cores; what was lost is found. */
void forced_heal(struct world *w);
/* Whether an alarm about a forced core stops our core. */
bool forced_has_stopped(const struct world *w);
/* A call to that node shows it the core that its client is in. */
void forced_shown(unsigned node, uint64_t core, uint64_t ancestor);
/* The history of the core that the agent is in. */
unsigned forced_home(const struct holder *h);
/* It has renewed its lease there. */
void forced_renewed(const struct holder *h, nsec_t sent);

/* ---- alone.c ---- */

void alone_begin(void);
void alone_go_on(struct world *w);

/* ---- seen.c ---- */

/* Called after every event in which a replica did something. */
void seen_look(struct world *w, struct replica_node *n);
void seen_frame_out(struct world *w, struct replica_node *n, uint64_t to, struct view frame,
                    bool lost);
void seen_frame_before(struct replica_node *n);
void seen_frame_after(struct world *w, struct replica_node *n);
/* Called before the replica is gone, and when it has started again. */
void seen_crash(struct world *w, struct replica_node *n);
/* Whether it is loading another replica's snapshot. */
bool seen_loading(const struct replica_node *n);
void seen_start(struct world *w, struct replica_node *n);
/* Whether @r, which was started from the disk of @n, has what that had promised. */
void seen_check(struct world *w, const struct replica_node *n, const struct replica *r);
void seen_file(struct world *w, struct replica_node *n, const char *name);

/* ---- trace.c ---- */

enum traced { TRACED_FRAME, TRACED_DISK, TRACED_WIRE, TRACED_ANSWER, TRACED_KINDS };
#define TRACE_STEP (100 * MSEC)
#define TRACE_STEPS 600

/* A hash of what was done in each step of time, by kind; 0: nothing. */
struct trace {
        uint64_t steps[TRACE_STEPS][TRACED_KINDS];
};

/* From now on into @t, emptied; NULL: nowhere. */
void trace_into(struct trace *t);
void trace_add(const struct world *w, enum traced what, unsigned who, const void *p, size_t n);
/* Returns false if both did the same; or says in @out where they first differ. */
bool trace_differs(const struct trace *a, const struct trace *b, char *out, size_t size);

/* ---- prompt.c ---- */

/* How long what needs a majority's answer may wait: a frame that was lost is sent again, and a
 * confirmation of leadership is asked for again, after 200 ms. */
#define PROMPT_MAJORITY (7 * MSEC * W->slower + 4 * W->slowest)

/* Something that waits at a replica. Zeroed before its first use. */
struct prompt {
        LIST_ENTRY(prompt) next;
        const char *what; /* NULL: it does not wait */
        unsigned to, life;
        nsec_t came, bound;
        nsec_t overtaken; /* for how long writes that came later are done, in this term, ... */
        uint64_t term;
        nsec_t seen;  /* ... the last one at this time */
        nsec_t freed; /* when it last waited for something else, since all has been well */
        /* The others are set after prompt_begin(). Whether it waits for something else just
         * now; may be NULL. */
        bool (*excused)(struct prompt *p);
        bool lasts;  /* it may wait for other clients: for a lock, or the term of a cache */
        nsec_t most; /* after this time its replica answers it, whatever happens; 0: not so */
        nsec_t ran;  /* the replica has run for so long since it came */
};

/* The length of calm after which nothing waits for a lost frame, at any replica. But one that
 * installs a snapshot waits until it is encoded and sent, in slices, and written, perhaps after
 * one of its own; and a write may wait for the term of a cache that was given just before. */
#define PROMPT_SENT (1500 * MSEC)
#define PROMPT_CALM(w)                                      \
        (20 * MSEC * (w)->slower + 2 * (w)->snapshot_time + \
         max_of((w)->cache_term, (nsec_t) PROMPT_SENT))
#define PROMPT_WELL (100 * MSEC) /* what came after that waits no longer, unless it lasts */

/* For how long there has been calm of that length; not positive: not yet. */
nsec_t well_for(const struct world *w);

void prompts_begin(void);
void prompt_begin(struct prompt *p, unsigned to, const char *what, nsec_t bound);
void prompt_end(struct prompt *p);
/* A write that came at that time is done at replica @at. */
void prompt_see_write(struct world *w, unsigned at, nsec_t came);
/* Called from time to time: checks that nothing waits any more when all has been well for long
 * enough. */
void prompts_check(struct world *w);

/* ---- check.c ---- */

void fail(struct world *w, const char *fmt, ...) printf_(2, 3);
/* A table of a check is full. */
void fail_full(struct world *w, const char *what);
void check_reset(void);

/* The replica leads in this term. */
void check_leads(struct world *w, const struct replica_node *n, uint64_t term);
/* An entry was applied at a replica. */
void check_applied(struct world *w, struct replica_node *n, uint64_t index);
/* A lease was granted; a renewal sent at @sent was acknowledged; a lease ended at some replica.
 */
void check_granted(struct world *w, int64_t lease, int64_t ttl_ms, nsec_t sent,
                   struct holder *h);
void check_renewed(struct world *w, int64_t lease, nsec_t sent, int64_t ttl_ms);
void check_ended(struct world *w, int64_t lease, bool expired);
/* A renewal of the lease was sent, or has ended. */
void check_renewing(struct world *w, int64_t lease, int by);
/* A renewal or the grant of a lease was applied somewhere. */
void check_renewal_applied(struct world *w, const struct lease *is);
/* Called from time to time: checks that leases that are not renewed are gone (I2). */
void check_undead(struct world *w);
void check_terms(struct world *w);
void check_lease_time(struct world *w);
void check_revoked(int64_t lease);
/* An operation on one key's register: a write, a linearizable read, or a compare-and-set, each
 * with the true times between which it must have happened, and the revision at which it claims
 * to have happened. */
enum op_kind { OP_WRITE, OP_READ, OP_CAS };
struct op {
        enum op_kind kind;
        int64_t key, value; /* written, or read */
        int64_t expect;     /* OP_CAS: the expected mod_revision */
        bool done;          /* OP_CAS: it was found */
        int64_t found;      /* OP_READ: the mod_revision that was found; 0: no key */
        int64_t revision;
        nsec_t begun, ended;
};
void check_op(struct world *w, const struct op *op);
/* A read from a cache, now; @found 0: there was no such key. */
void check_cached(struct world *w, int64_t key, int64_t value, int64_t found);
/* A write was acknowledged, so it must be there in the end (I5). */
void check_written(struct world *w, int64_t key, int64_t value, int64_t revision);
/* A watcher got this event; a deletion has no value. */
void check_delivered(struct world *w, unsigned watcher, int64_t revision, struct view key,
                     struct view value);
/* A watcher got the error that everything from @from to before @to is compacted. */
void check_compacted(unsigned watcher, int64_t from, int64_t to);
/* A lock was held from @begin to @end. */
void check_held(struct world *w, unsigned who, nsec_t begin, nsec_t end);
/* Everything is healed: whether everything that has to happen has happened. */
bool check_settled(struct world *w);
/* The final checks, when everything had time to settle. */
void check_end(struct world *w);
