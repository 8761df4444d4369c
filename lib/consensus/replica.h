/*
 * One replica of the log: libraft's raft_step() on our store, without a socket and without a
 * clock.
 *
 * Owns raft, the log in memory, the batch of commands that becomes the next entry, and the
 * reads that wait for a confirmation of leadership. Its owner passes in frames from peers, the
 * time, and a store; the replica answers through `struct replica_ops`. The simulator runs this
 * same code on virtual time, network and disk.
 *
 * Work-arounds for libraft 0.22.1 are marked [libraft] where they stand. Single-threaded; not
 * reentrant from its own callbacks but for replica_propose() and replica_read().
 */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "consensus/introduction.h"
#include "store/store.h"

struct replica;

#define REPLICA_PEERS_MAX 9
/* The state is encoded for the disk, and for each replica that lags. */
#define REPLICA_SAVES (1 + REPLICA_PEERS_MAX)

struct replica_peer {
        uint64_t id;
        const char *address; /* its peer URLs (urls_join()); borrowed for replica_new() */
};

struct replica_config {
        uint64_t id;
        uint64_t cluster_id;
        const struct replica_peer *peers; /* all members of a new cluster, including us */
        size_t n_peers;
        bool join; /* a fresh directory belongs to a member that others have added: it waits
                    * until they send it the log */
        /* Whether we may run on a directory that is not fresh; called before an entry, a term
         * or a vote is written to it. Returns 0, or a negative errno with the reason in *@err.
         * NULL: yes. */
        int (*check)(void *arg, const struct store_recovered *had, struct store_error *err);
        void *check_arg;
        bool any_change;   /* members may be changed even if that may cost the majority */
        bool replace_lost; /* a member with an empty data directory may ask for its own
                            * replacement */
        uint32_t version;  /* the newest cluster version that this replica knows; 0:
                            * CLUSTER_NEWEST; a lower one is for tests */
        nsec_t election, heartbeat;
        uint64_t seed;             /* random; another one in each life of the process */
        uint64_t directory;        /* random: the id for a data directory that has none; 0: it
                                    * gets none */
        uint64_t snapshot_entries; /* entries between two snapshots; 0: the default */
        size_t snapshot_slice;     /* bytes encoded or sent at once; 0: the default */
        uint64_t snapshot_bytes;   /* at least this much is applied between two snapshots; 0:
                                    * the default */
        size_t log_bytes;     /* about how much of the applied log is kept in memory; 0: the
                               * default */
        size_t message_bytes; /* limit of a message with more than one entry; 0: the default */
        size_t queued_bytes;  /* of waiting commands; beyond it, more are refused; 0: the
                               * default */
        size_t segment_size;  /* of the log's files; 0: the default */
        size_t apply_slice;   /* cost of the entries applied in one turn; 0: the default */
};

/* What the programs show of a replica. */
struct replica_status {
        bool leader, learner;
        bool ready;         /* leader, and an entry of our own term is committed: the state is
                             * current */
        uint64_t leader_id; /* 0: none known */
        uint64_t term, last, commit, applied;
        bool waits_for_room; /* the disk is full: nothing becomes durable until there is room */
        bool short_of_room;  /* the disk is nearly full: the reserved space is in use, and
                              * nothing that makes the data grow should be accepted */
        size_t log_bytes;    /* of the log in memory */
        uint64_t awaits;     /* leader of a new cluster: the member that has to introduce itself
                              * before the cluster begins; 0: none */
        bool lost; /* our directory has nothing but the members with which it began, and another
                    * one is recorded for this member, so it was lost: replica_forget() */
        nsec_t way; /* round trip to a majority, if it is too long for the heartbeat
                     * interval, or was and is not yet short again */
};

/* For metrics: counts since the start. */
struct replica_peer_counts {
        uint64_t id;             /* 0: unused */
        uint64_t sent, received; /* bytes */
        struct histogram way;    /* round trips, as a leader measures them (histogram_way) */
};

struct replica_counts {
        uint64_t leader_changes;  /* how often a new leader was seen */
        uint64_t slow_applies;    /* entries that took longer than 100 ms */
        uint64_t slow_reads;      /* confirmations of leadership that had to be repeated */
        uint64_t late_heartbeats; /* leader: sent more than two intervals after the last */
        uint64_t outages;         /* leader: how often time was not counted against leases
                                   * ... */
        nsec_t excused;           /* ... and how much in all */
        struct replica_peer_counts peers[REPLICA_PEERS_MAX];
};

struct replica_ops {
        /* Send a frame; losing it is allowed. @frame is borrowed. */
        void (*send)(void *u, uint64_t peer, struct view frame);
        /* How many more bytes the link to @peer takes now; 0: it is down, or enough is queued.
         * Large frames then wait here until a replica_flush() finds room. NULL: no limit. */
        size_t (*room)(void *u, uint64_t peer);
        /* Whether the commands of another replica's proposal can be applied: 0; -ENOTSUP: this
         * version does not know one of them; -EBADMSG. NULL: all can. */
        int (*check)(void *u, struct view commands);
        /* Apply a committed entry, which the leader appended at lease time @at; @commands is
         * borrowed. Subtracts its cost from *@left, in units of roughly 0.3 us, and returns 1
         * if that was not enough: the same call is repeated in the next turn, unless a snapshot
         * is loaded first. Returns 0, or a negative errno that ends the process; -ENOTSUP and
         * -EBADMSG as above. */
        int (*apply)(void *u, uint64_t index, uint64_t term, struct lease_time at,
                     struct view commands, size_t *left);
        /* save() begins to encode the state as of the last entry that was applied completely.
         * save_count(), which may come between, counts about @bytes: 1 when there is more to
         * count, 0 with the size of all of it in *@ret. save_more() appends about @bytes to
         * @out, while entries are applied: 1 when there is more to come, 0 when that was the
         * rest. Both return -ESTALE when it must begin again, or -ENOMEM. save_end() follows in
         * any case, unless the state machine ends first. Each @slot, below REPLICA_SAVES, is
         * for one that is independent of the others. */
        void (*save)(void *u, unsigned slot);
        int (*save_count)(void *u, unsigned slot, size_t bytes, size_t *ret);
        int (*save_more)(void *u, unsigned slot, size_t bytes, struct buf *out);
        void (*save_end)(void *u, unsigned slot);
        /* Begins to load such a state, beside the present one; @snapshot is borrowed until
         * loading ends or is dropped. Returns 0 or -ENOMEM. */
        int (*load)(void *u, struct view snapshot);
        /* Continues loading: subtracts its cost from *@left, in units as above. Returns 1 if
         * that was not enough; 0 when all was loaded; -ENOMEM; or another errno if @snapshot
         * holds no state, and why in *@ret_wrong, a clause that is borrowed until the next
         * load(); then loading has ended. */
        int (*load_more)(void *u, size_t *left, const char **ret_wrong);
        /* The state that was loaded last replaces the present one. Returns the lease time that
         * it had reached. No state is being saved meanwhile. */
        struct lease_time (*adopt)(void *u);
        /* The state that is being loaded, or has been, is not needed. */
        void (*drop)(void *u);
        /* Leader of a new cluster, before anything is written or read: called again and again
         * until it returns true; it may call replica_raise(). NULL: the cluster begins. */
        bool (*found)(void *u);
        /* Leader, term, our readiness, who is awaited, or whether our directory is lost
         * changed. */
        void (*changed)(void *u);
        /* Answers replica_read() @id and all before it: a read made once `applied` has reached
         * @index is linearizable (I8). @at: the leader's lease time when a majority had
         * confirmed it, which is later than the request; LEASE_TIME_NEVER: not known. */
        void (*read_at)(void *u, uint64_t id, uint64_t index, struct lease_time at);
        /* A snapshot of another replica was installed: it may contain commands of ours for
         * which `apply` was not called. */
        void (*skipped)(void *u);
        /* replica_change_members() @request has ended: 0, or an outcome below. */
        void (*changed_members)(void *u, uint64_t request, int outcome);
        /* Whether member @id has ever started, and so has published itself. NULL: all have. */
        bool (*started)(void *u, uint64_t id);
        /* The set of replicas has changed; may be NULL. */
        void (*configured)(void *u);
        /* We are no member any more; may be NULL. */
        void (*removed)(void *u);
        /* This process cannot continue; @why is for an operator. */
        void (*fatal)(void *u, const char *why);
};

/* [libraft] After a failed allocation libraft continues with whatever it has of its log, and at
 * start it frees memory that is ours. After this call, a failed allocation ends the process
 * instead. Programs call it once. */
void replica_end_without_memory(void);

/* Opens the log on @d, borrowed, and loads the snapshot; a fresh directory becomes a replica of
 * the configured cluster. Returns 0; -EBADMSG or -EINVAL with the reason in *@err; or another
 * negative errno, also with *@err. */
must_check_ int replica_new(struct replica **ret, const struct replica_config *cfg,
                            struct disk *d, const struct replica_ops *ops, void *userdata,
                            struct boot_time now, struct store_error *err);

/* Calls @fn for each member that a directory names. *@ret_first: these are the members with
 * which it was founded or restored. (After a restore that is not known for long: the next
 * snapshot looks like one of members that have changed.) Returns 0, -ENOMEM, or -EBADMSG if the
 * members are damaged. */
must_check_ int replica_each_recovered(const struct store_recovered *had,
                                       void (*fn)(uint64_t id, const char *address, bool voter,
                                                  void *arg),
                                       void *arg, bool *ret_first);

/* Makes a directory empty that has nothing but the members with which it began: this replica
 * has acknowledged nothing, and no vote of it has counted. Returns 0; -ENOTEMPTY: it has more,
 * and stays as it is; or another negative errno, also with *@err. */
must_check_ int replica_forget(struct disk *d, struct store_error *err);

/* Fills a new directory, opened as @s, with a state as of @index, for a replica of the
 * configured cluster. The store's `snapshot_done` follows; then call replica_restored(), which
 * makes the directory that replica's: if the restore is cut short before that, there is no
 * replica. Both return 0 or a negative errno. */
must_check_ int replica_restore(struct store *s, const struct replica_config *cfg,
                                uint64_t index, struct view state);
must_check_ int replica_restored(struct store *s, const struct replica_config *cfg);

/* Makes the replica in the directory that is open as @s the only member of its cluster, by
 * appending one entry to its log, with the directory of @cfg if the log names directories. All
 * entries of the log count as committed, whatever the others had. For use when a majority is
 * lost for good. The store's `persisted` follows. Returns 0 or a negative errno. */
must_check_ int replica_leave_alone(struct store *s, const struct replica_config *cfg,
                                    uint64_t *ret_index);

/* Takes part from now on; callbacks begin. Returns 0 or a negative errno after `fatal`. */
must_check_ int replica_start(struct replica *r);
struct replica *replica_free(struct replica *r);
DEFINE_CLEANUP(struct replica *, replica_free)

/* Handles a frame from a peer. Returns 0; or, if that link is to end, -EBADMSG, or
 * -EPROTONOSUPPORT: the peer is too old for the cluster version, or -EKEYREJECTED: it has
 * another data directory than the recorded one. */
must_check_ int replica_input(struct replica *r, uint64_t peer, struct view frame,
                              struct boot_time now);

/* The link from @peer broke. A leader whose link stays down for some heartbeats has most likely
 * died: we then stand for election, instead of waiting for the whole timeout. It is only a
 * hint: the others decide by themselves whether to vote (pre-vote). */
void replica_peer_down(struct replica *r, uint64_t peer, struct boot_time now);
/* @peer has connected to us, and its introduction was accepted. */
void replica_peer_called(struct replica *r, uint64_t peer, struct boot_time now);

/* A member of the cluster says that this member has another directory. */
void replica_refused(struct replica *r);

/* What we say first on each link that we make to @peer. */
struct introduction replica_introduction(const struct replica *r, uint64_t peer);
/* The first frame on a new link of @peer has arrived. Returns 0; -EBADMSG, -EPROTONOSUPPORT or
 * -EKEYREJECTED, as above; -EBUSY: another process had a link with its directory, and both
 * links have to end: who lives calls again; -EADDRINUSE: the other process did, and this one is
 * to be notified (FRAME_DOUBLED). */
must_check_ int replica_peer_introduced(struct replica *r, uint64_t peer,
                                        const struct introduction *in, struct boot_time now);
/* The directory that is recorded for member @id; 0: none is. */
uint64_t replica_directory(const struct replica *r, uint64_t id);
/* What member @id last said of itself, and whether that link stands. False: nothing yet. */
bool replica_member_version(const struct replica *r, uint64_t id, struct introduction *ret,
                            bool *ret_linked);
/* What of a member concerns its data directory. */
struct replica_member {
        bool refused;  /* it was last heard of with another one than is recorded */
        bool replaces; /* it was put in the place of a member whose directory was lost */
};
struct replica_member replica_member(const struct replica *r, uint64_t id);
/* A process with the settings of member @id has an empty directory, but that is not the
 * member's. */
void replica_member_lost(struct replica *r, uint64_t id);
/* How far the cluster version can rise. */
struct replica_rise {
        uint32_t to;     /* the version up to which all members can go; 0: one of them has not
                          * introduced itself ... */
        uint64_t member; /* ... and who cannot go further, or has not introduced itself */
        struct boot_time since; /* since when that is so */
};
struct replica_rise replica_rise(const struct replica *r);
/* Leader: appends @commands, which raise the cluster version, at once, if the leader hears from
 * all members now, or founds the cluster. Returns 0; -EAGAIN: no entry can be appended at the
 * moment; or -EHOSTUNREACH: it does not hear from *@ret_member. */
must_check_ int replica_raise(struct replica *r, const void *commands, size_t n,
                              uint64_t *ret_member);
/* The state machine has this cluster version from now on. */
void replica_set_version(struct replica *r, uint32_t version);

/* There is a new link to @peer: frames that were under way on the former one are lost, and are
 * sent again. */
void replica_peer_up(struct replica *r, uint64_t peer, struct boot_time now);

/* Lets time pass; to be called no later than replica_next(), and always before acting on a
 * deadline. */
void replica_run(struct replica *r, struct boot_time now);
struct boot_time replica_next(const struct replica *r);

/* Sends and writes what has been queued; called at the end of each turn of the loop. A leader
 * that gets more commands in each turn keeps gathering them, for at most 4 ms and a turn.
 */
void replica_flush(struct replica *r, struct boot_time now);

/* The latest time that a call passed in. */
struct boot_time replica_now(const struct replica *r);

/* The order within the next entry. Renewals and expiries are a class of their own, so that
 * clients' load does not delay them (A5, A6). */
enum replica_priority {
        REPLICA_NORMAL,
        REPLICA_URGENT,
};

/* The size of the commands that may wait, here or for the leader's acknowledgement. A single
 * one may be larger, up to almost 72 MiB. */
#define REPLICA_QUEUED_MAX ((size_t) 64 << 20)

/* Proposes commands for the leader's next entry. They come back through `apply`, or never: a
 * proposal made in term T that was not applied before the first entry of a later term never
 * will be. While its term lasts, it is sent until the leader has it. Returns 0; -ENOTCONN: no
 * leader is known; -ENOBUFS: too much waits, here or at the leader, or @n is too much for one
 * entry; -ENOMEM. */
must_check_ int replica_propose(struct replica *r, const void *commands, size_t n,
                                enum replica_priority priority);

/* Requests a linearizable read; read_at() follows, once there is a leader. The ids ascend, and
 * begin at a random one in each life of a process, since an answer may be meant for an earlier
 * life. */
void replica_read(struct replica *r, uint64_t id);

/* Lease time (base/clock.h), as this replica knows it; on followers an estimate that is
 * accurate to tens of milliseconds. */
struct lease_time replica_lease_time(const struct replica *r, struct boot_time now);

/* Leader: when lease time will be @t if all goes well; others: BOOT_TIME_NEVER. */
struct boot_time replica_lease_when(const struct replica *r, struct lease_time t,
                                    struct boot_time now);

/* Leader only: whether the core can accept renewals right now, so that a deadline that has
 * passed is the holder's fault. */
bool replica_healthy(const struct replica *r, struct boot_time now);

/* Leader only: asks another replica to take over, so that a stop is quick. Returns whether one
 * was asked, and the caller should wait. */
bool replica_step_down(struct replica *r, struct boot_time now);

/* Asks @id to take over. Returns 0 if it was asked, or leads; -EBUSY: a member was asked before
 * and may still take over; -EINVAL: we do not lead, or @id is not a voter. */
must_check_ int replica_transfer(struct replica *r, uint64_t id, struct boot_time now);
/* Leader: the member that was asked to take over, and has neither done so nor used up an
 * election timeout; 0: none. Meanwhile the leader takes no entries. */
uint64_t replica_transferee(const struct replica *r);

enum replica_change {
        REPLICA_ADD = 1,     /* a voter */
        REPLICA_ADD_LEARNER, /* gets the log, does not vote */
        REPLICA_PROMOTE,     /* a learner that is in sync */
        REPLICA_REMOVE,
        REPLICA_MOVE, /* to another peer URL */
        /* Removes the member at these peer URLs, whose data directory is lost, and adds a
         * learner there, which is promoted once it has caught up, if the other was a voter. */
        REPLICA_REPLACE,
        REPLICA_REPLACE_LOST, /* REPLICA_REPLACE without an operator: at most once in ten
                                 minutes */
        REPLICA_LAST_ = REPLICA_REPLACE_LOST,
};

enum {
        REPLICA_E_NO_LEADER = 1, /* the leader changed, and the change may be made: ask again */
        REPLICA_E_BUSY,          /* nothing was proposed, because no leader is ready, or another
                                  * change is under way: ask again */
        REPLICA_E_UNKNOWN,       /* no such member */
        REPLICA_E_EXISTS,        /* a member has that id or that URL */
        REPLICA_E_TOO_MANY,
        REPLICA_E_VOTER,       /* it is not a learner */
        REPLICA_E_BEHIND,      /* the learner is not in sync */
        REPLICA_E_LAST,        /* the last voter cannot be removed */
        REPLICA_E_UNHEALTHY,   /* too few voters have answered for a while */
        REPLICA_E_NOT_STARTED, /* too few voters have ever started */
        REPLICA_E_ALIVE,       /* the member that is to be replaced answers */
        REPLICA_E_UNCLAIMED,   /* it has no data directory yet: any will do */
        REPLICA_E_EARLY,       /* it was replaced in the last ten minutes */
        REPLICA_E_NOT_LET,     /* only an operator may replace it: `replace_lost` is off */
        REPLICA_E_LAST_ = REPLICA_E_NOT_LET,
};

/* How many requests of a replica may wait for their answers. */
#define REPLICA_CHANGES_MAX 100

/* Requests a change of the members from the leader; changed_members() follows, unless the
 * request or the answer is lost. @request is not 0; @address is for changes that need one. */
void replica_change_members(struct replica *r, uint64_t request, enum replica_change what,
                            uint64_t id, const char *address);

/* Whether this replica lets members ask for their own replacement. */
bool replica_replaces_lost(const struct replica *r);

/* The index of the last committed change of the members, if @id is not a member after it: it
 * was removed, or we do not know of its addition yet. 0: it is a member, or we are not one
 * ourselves. */
uint64_t replica_excludes(const struct replica *r, uint64_t id);

/* Requests a snapshot, whether or not one is due, and at once even if the last could not be
 * written. */
void replica_want_snapshot(struct replica *r);

struct replica_saved {
        uint64_t index;    /* the last entry that is in the snapshot on the disk */
        uint64_t failures; /* how many snapshots could not be written ... */
        int error;         /* ... and why the last of these could not: a negative errno */
};
struct replica_saved replica_saved(const struct replica *r);

struct replica_status replica_status(const struct replica *r);
/* Parts of the status, for code that needs them with each request. */
uint64_t replica_term(const struct replica *r);
uint64_t replica_applied(const struct replica *r);
bool replica_learns(const struct replica *r); /* it was added as a learner */
/* Whether @id was added as a voter, and does not vote before it has caught up. */
bool replica_will_vote(const struct replica *r, uint64_t id);
bool replica_short_of_room(const struct replica *r);

/* Both are borrowed, and valid as long as the replica. */
const struct replica_counts *replica_counts(const struct replica *r);
const struct store_counts *replica_store_counts(const struct replica *r);

/* Leader: how many entries member @id is behind, according to its last answer; 0 on other
 * replicas. */
uint64_t replica_lag(const struct replica *r, uint64_t id);

/* Leader: a member that lacks entries that it had acknowledged, and gets no more; 0: none. */
uint64_t replica_forgetful(const struct replica *r);

/* Whether a snapshot of another replica is being installed. */
bool replica_installs(const struct replica *r);
/* Whether a snapshot with entries that we lack is being received or installed. No linearizable
 * read succeeds before it is installed. */
bool replica_awaits_snapshot(const struct replica *r);

/* The size of log and snapshot on the disk; adds up every file of the log. */
uint64_t replica_disk_bytes(const struct replica *r);

/* Calls @fn for each replica of the present configuration. */
void replica_each_peer(const struct replica *r,
                       void (*fn)(uint64_t id, const char *address, bool voter, void *arg),
                       void *arg);
