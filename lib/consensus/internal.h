/*
 * What the files of consensus/ share about a replica. Not for other folders.
 *
 *     libraft.c   struct raft, which no other file looks into
 *     replica.c   the exchange with raft, with the clock and with the store
 *     frames.c    frames from other replicas
 *     start.c     from a directory to a replica that takes part
 *     taking.c    snapshots of our state, and how they get to the disk
 *     sending.c   snapshots on their way to replicas that lag
 *     trim.c      how much of the log stays in memory
 *     freeing.c   frees large memory, in slices
 *     install.c   snapshots that another replica sends us
 *     queue.c     commands on their way into entries
 *     append.c    entries on their way to the followers
 *     read_index.c  linearizable reads
 *     beacons.c   lease time: the leader's beacons and their answers
 *     members.c   the members, and changes of them
 *     versions.c  which versions they have
 *     directories.c  which data directories
 */
#pragma once

#include <bsd/sys/queue.h>
#include <inttypes.h>
#include <raft.h>
#include <stdio.h>

#include "base/blob.h"
#include "base/crc32c.h"
#include "base/le.h"
#include "base/log.h"
#include "base/tree.h"
#include "consensus/address.h"
#include "consensus/lease_clock.h"
#include "consensus/link_window.h"
#include "consensus/log_tail.h"
#include "consensus/message.h"
#include "consensus/replica.h"

/* A frame of another replica (message.h): its numbers, and the bytes after them, borrowed. */
struct peer_frame {
        uint64_t peer;
        unsigned at; /* the peer's position in the configuration, if it is a member */
        uint64_t v[5];
        struct view rest;
};

/* Commands on their way into an entry. */
struct batch {
        STAILQ_ENTRY(batch) next;
        struct buf bytes;
};

/* A receive window: which frames of one life of a sender have arrived, as the highest number
 * and a bit for each of the 64 numbers up to it. */
#define WINDOW 64
struct window {
        uint64_t life; /* 0: unused */
        uint64_t high, seen;
        unsigned unacked; /* frames since the last acknowledgement */
        bool full;        /* there was no room for the last frame */
};

/* The latest lives of one sender, in the order in which they were first seen. A late frame of
 * an earlier life may arrive after one of the next life, and must not shut the next life
 * out. */
struct windows {
        uint64_t peer; /* the sender; 0: unused */
        struct window lives[5];
};

/* A frame of proposals that the leader has not acknowledged. */
struct forwarded {
        STAILQ_ENTRY(forwarded) next;
        uint64_t n;
        enum replica_priority priority;
        struct boot_time sent_at;
        struct buf frame;
};

/* Leader: entries for a follower: those after @prev up to @upto wait for room. */
struct pipe {
        uint64_t peer; /* 0: unused */
        uint64_t term, prev, upto;
        uint64_t start; /* where raft's last attempt began, how much of it has been sent ... */
        size_t bytes;
        struct boot_time began; /* ... and when it began */
};

/* Leader: which replicas have asked it to confirm their reads, and up to which id. */
struct asked_reads {
        struct asked_read {
                uint64_t peer, id;
        } all[2 * REPLICA_PEERS_MAX];
        size_t n;
};

/* The configuration as last seen. */
struct configured {
        uint64_t index; /* of the last one that is committed */
        unsigned n;
        uint64_t id[REPLICA_PEERS_MAX];
        int role[REPLICA_PEERS_MAX];
};

/* Leader: the change that is under way, and the replica that asked for it (0: this one). */
struct changing {
        uint64_t request, peer, index;
        /* The voters before the change, if it adds one: entries that a majority of them has
         * cannot be lost. */
        unsigned n_before;
        uint64_t before[REPLICA_PEERS_MAX];
};

/* A request to change the members that was answered for good. The same request may arrive
 * again, since it is repeated until the answer arrives, and must then change nothing. */
struct changed {
        uint64_t request; /* 0: unused; random in each life of the replica that asked ... */
        uint64_t peer;    /* ... which is this one; 0: we */
        int outcome;
};

/* The state of the path from a peer: when it was last heard from, and since when without a
 * break. */
struct health {
        uint64_t id; /* 0: unused */
        struct boot_time heard, since;
        bool broken;
        unsigned n_lacks;    /* leader: how often in a row the member reported in this term that
                              * it lacks entries that it had acknowledged */
        raft_index installs; /* leader: the index of a snapshot that is being sent to the member
                              * in this term, or installed there; meanwhile its raft answers as
                              * if its log were empty; 0: none */
        struct boot_time lacks_log_at; /* when that may be logged again */
};

/* A joining replica: which members have reported since then that it is not a member. Any other
 * frame begins this anew. */
struct disowned {
        struct boot_time since;
        uint64_t by[REPLICA_PEERS_MAX];
        unsigned n;
};

/* sending.c: a snapshot on its way to a replica. */
enum outgoing_state {
        OUTGOING_NONE,
        OUTGOING_WANTED,     /* raft wants it ... */
        OUTGOING_COUNTING,   /* ... its size is computed ... */
        OUTGOING_SENDING,    /* ... some parts have not been acknowledged ... */
        OUTGOING_INSTALLING, /* ... all have, and the replica loads and writes it ... */
        OUTGOING_INSTALLED   /* ... and lacks more entries after it than the log else keeps */
};

struct outgoing {
        enum outgoing_state state;
        uint64_t peer;   /* unless NONE */
        uint64_t wanted; /* WANTED: it must reach at least this index */
        bool in_haste;   /* encoded ahead of its link, since the last one was lost (-ESTALE) */

        /* from COUNTING on */
        uint64_t term, index;
        size_t total; /* bytes: of the head, the state and the checksum; COUNTING: a guess */
        struct raft_snapshot_metadata meta; /* COUNTING */
        struct boot_time slice_at;          /* when to count or encode more ... */
        bool encoded;                       /* ... unless all of it is */

        /* SENDING */
        struct buf bytes; /* encoded, but not acknowledged, from `at` on */
        size_t at, sent, acked;
        uint32_t crc;  /* of what was encoded; it is sent at the end */
        size_t window; /* how many bytes may be under way, by how long they take ... */
        size_t probe;  /* ... measured until this many are acknowledged (0: not measured) ... */
        struct boot_time probe_at; /* ... and from this time on */
        nsec_t took;               /* how long the transfer has taken so far, without the time
                                    * in which parts were lost ... */
        struct boot_time timed_at; /* ... up to this time */
        struct boot_time sent_at;  /* when a part was sent last */
        struct boot_time moved_at; /* when the last progress was made */

        struct boot_time until; /* INSTALLING: how long we allow for that; then raft may have
                                 * another one sent */
};

/* install.c: a snapshot that another replica is sending us. */
enum incoming_state {
        INCOMING_NONE,
        INCOMING_PARTS,    /* some parts are here ... */
        INCOMING_COMPLETE, /* ... all are, and it waits for one of our own to be written ... */
        INCOMING_LOADING,  /* ... it becomes a state beside ours ... */
        INCOMING_INSTALLING, /* ... raft has it, and it is written ... */
        INCOMING_INSTALLED   /* ... and has replaced our state */
};

struct incoming {
        enum incoming_state state;
        uint64_t peer, term, index, total, have;
        struct buf bytes;            /* once it is loading: the state alone */
        uint32_t crc;                /* of the bytes so far */
        struct boot_time load_at;    /* when to load the next slice */
        struct raft_message message; /* loading: the message for raft when loading is done */
        struct boot_time acked_at;   /* when its sender was last sent our progress */
        struct boot_time refusal_log_at; /* when a refusal may be logged again */
};

/* queue.c: commands on their way to the leader, and into entries. */
enum queue_state {
        QUEUE_FLOWS,
        QUEUE_GATHERS, /* leader: the commands wait for more before they become an entry */
        QUEUE_REFUSED  /* another replica: the leader had no room for a frame */
};

struct queue {
        STAILQ_HEAD(, batch) batches;
        struct buf urgent;
        uint64_t term; /* in which all queued commands were proposed */
        enum queue_state state;
        size_t bytes;                   /* of `batches` */
        size_t seen;                    /* leader: `bytes` as of the last flush */
        struct boot_time gathers_since; /* when these began to gather */
        uint64_t forwarded; /* the number of the last frame of proposals in this life */
        STAILQ_HEAD(, forwarded) unacked; /* the frames that the leader may not have */
        size_t unacked_bytes;
        struct boot_time resent_at;
        uint64_t sent_to; /* since the last flush, a bit per peer */
        struct windows proposed[2 * REPLICA_PEERS_MAX]; /* leader: frames that arrived, by
                                                         * sender, including former members */
        struct link_window uncommitted;  /* leader: of entries on their way to a majority */
        struct boot_time unknown_log_at; /* leader: when it may log an unknown command again */
};

/* trim.c: up to where raft has compacted the log, as if a snapshot had been taken there. */
struct compacted {
        uint64_t index, term;
        struct raft_configuration conf; /* the members as of `index` ... */
        uint64_t conf_index;            /* ... and the entry that made them so */
};

/* taking.c: a state on its way to the disk. */
enum snapshot_state {
        SNAPSHOT_IDLE,
        SNAPSHOT_ENCODING,  /* ours is encoded and written, in pieces ... */
        SNAPSHOT_WRITING,   /* ... of which the last are written */
        SNAPSHOT_INSTALLING /* that of another replica is written, and then replaces ours */
};

/* Why ours is taken; each includes those before. */
enum snapshot_reason {
        SNAPSHOT_FOR_NOTHING,
        SNAPSHOT_FOR_DISK, /* the log there has grown */
        SNAPSHOT_TO_LET_GO /* requested, to free space: little of the log is kept */
};

struct taking {
        enum snapshot_state state;
        enum snapshot_reason reason; /* of the present one, or the last */
        enum snapshot_reason next;   /* of the next one, if it was requested or has failed */
        struct raft_snapshot_metadata pending; /* of the present one, unless idle */
        struct buf piece;                      /* encoded, and not handed to the store yet */
        uint64_t encoded;                      /* bytes of it that were */
        struct boot_time slice_at;             /* when to encode more */
        struct boot_time again_at;             /* no sooner: the last one failed */
        struct replica_saved saved;
        uint64_t size;       /* of the last one */
        uint64_t bytes_from; /* bytes applied since the last one for the disk */
};

/* freeing.c */
struct freeing {
        struct blob_list blobs; /* those that nobody else holds are freed */
        struct log log;
        struct boot_time at; /* the next slice */
};

/* read_index.c: a round asks all peers; reads that arrive meanwhile wait for the next. The ids
 * of our own reads ascend, and an answer to one answers all before it, so two ids are enough to
 * know which reads wait. */
enum reading_state {
        READING_NOTHING, /* is to be done until there are more reads */
        READING_ROUND,   /* leader: a round waits for its confirmation */
        READING_ASKS     /* another replica: asks the leader at the end of the turn */
};

struct reading {
        enum reading_state state;
        uint64_t newest;   /* the last of our own; 0: there was none yet ... */
        uint64_t answered; /* ... and the last that was answered */
        struct asked_reads waiting, in_round; /* leader: those of others */
        uint64_t round, round_index;
        uint64_t round_own;   /* our own up to this one are in the round, too */
        uint64_t round_acked; /* bit per peer */
        struct boot_time round_at;
        uint64_t overdue;               /* the leader is asked again if this one is not
                                         * answered ... */
        struct boot_time overdue_since; /* ... READ_RETRY after this time */
};

/* beacons.c: lease time. */
struct timekeeping {
        struct lease_clock clock;
        bool asking; /* leader: it asks the others which lease time they know */
        struct boot_time asked_at;
        uint64_t reported;                  /* bit per peer that has reported */
        struct boot_time beacon_at;         /* leader: when it sent the last beacon ... */
        nsec_t answered[REPLICA_PEERS_MAX]; /* ... the last beacon that each peer answered in
                                             * time ... */
        nsec_t quickest[REPLICA_PEERS_MAX]; /* ... and what its quickest answer took ... */
        struct boot_time slow_since; /* ... since a majority last answered a beacon quickly */
        struct boot_time taken; /* when the last beacon of which beacon_took() knows was sent */
        unsigned n_timed;  /* beacons that a majority answered in time, since `way` was last
                            * reviewed ... */
        nsec_t slowest;    /* ... and the longest time that one of them took */
        unsigned patience; /* for how long all have to be quick before we allow for less ... */
        struct boot_time learned_at; /* ... and when a round trip was last learned */
        unsigned slow;               /* beacons since then ... */
        bool stood_still;            /* ... and whether lease time has stood still */
        uint64_t moved_commit; /* the commit index when commits last moved, or when nothing was
                                * uncommitted */
        struct boot_time moved_at;
};

/* versions.c: what a peer said of itself on its last link. */
struct member_version {
        uint64_t id; /* 0: unused */
        struct introduction is;
        bool linked; /* the link stands, as far as is known */
        struct rival {
                uint64_t process; /* another one with its directory; 0: none ... */
                struct boot_time since;
                bool outlived; /* ... and whether the first one has called again since then */
        } rival;
};

struct versions {
        struct member_version of[2 * REPLICA_PEERS_MAX];
        uint32_t cluster; /* the cluster version; 0 until the state machine has said it */
        uint64_t
                lost; /* a member without a link that was reported to have an empty directory */
        struct replica_rise rise;
        bool founding;                  /* we lead a new cluster, which has not begun ... */
        struct boot_time awaits_log_at; /* ... and when that may be logged again */
};

/* directories.c: the ids of the members' data directories, as the last configuration in the log
 * has them; 0: it has none. */
struct directories {
        uint64_t index; /* of that configuration; 0: it is not committed */
        unsigned n;
        uint64_t id[REPLICA_PEERS_MAX], of[REPLICA_PEERS_MAX];
        struct boot_time log_at; /* when it may be logged again that ours is another one */
        bool lost; /* ours has nothing but the members, and the member has another one */
};

/* Each file owns a part of this: libraft.c owns `raft`, replica.c the log and the applied
 * entries. */
struct replica {
        struct replica_config cfg;
        char *address;
        const struct replica_ops *ops; /* the state machine */
        void *userdata;
        struct store *store;
        struct boot_time now;
        bool dead;

        struct raft raft;
        bool raft_up;
        struct log log;
        uint64_t committed; /* [libraft] a message whose last entry lies before it sets raft's
                             * own commit index back to that entry */
        uint64_t applied;
        size_t apply_left;      /* how much may still be applied in this turn */
        bool applying;          /* the entry after `applied` is half applied */
        uint64_t first_of_term; /* leader: the entry that makes us ready when it is applied; 0:
                                 * we do not lead */
        struct replica_status announced; /* the status that `changed` last announced */
        struct replica_counts counts;
        struct boot_time applying_since;  /* when the entry that is half applied was begun */
        struct boot_time room_at;         /* when the store next looks for room */
        bool was_full;                    /* the disk, when it was last looked at */
        struct boot_time leader_down_at;  /* follower: when to give up the leader, whose link
                                           * broke; NEVER: it did not */
        struct boot_time born_at, led_at; /* leader: when we became leader */

        struct queue queue;
        struct compacted compacted;
        struct taking taking;
        struct outgoing outgoing[REPLICA_PEERS_MAX];
        struct incoming incoming;
        struct freeing freeing;
        struct reading reading;
        struct timekeeping time;

        /* append.c */
        struct pipe pipes[REPLICA_PEERS_MAX];
        uint64_t sent_commit[REPLICA_PEERS_MAX]; /* leader: the commit index that each follower
                                                  * knows */

        /* members.c */
        struct configured configured;
        struct changing changing;
        /* A ring of the last ones. A request is repeated only until its answer arrives, so that
         * as many others as may wait can be answered before its last repetition comes. */
        struct changed changed[REPLICA_PEERS_MAX * REPLICA_CHANGES_MAX];
        unsigned n_changed;
        struct health health[2 * REPLICA_PEERS_MAX];
        struct disowned disowned;

        struct versions versions;
        struct directories directories;

        /* start.c: what was on the disk, until replica_start() hands it to raft. */
        struct {
                struct raft_snapshot_metadata meta;
                uint64_t term, vote;
        } start;
};

/* Whether @at has come; if so, it is @after from now. */
static inline bool replica_is_due(const struct replica *r, struct boot_time *at, nsec_t after)
{
        if (boot_before(r->now, *at))
                return false;
        *at = boot_add(r->now, after);
        return true;
}

/* Whether we lead, and know all that was committed before (Raft section 8). */
static inline bool replica_is_current(const struct replica *r)
{
        return r->first_of_term > 0 && r->applied >= r->first_of_term;
}

/* ... and the cluster has begun. */
static inline bool replica_is_ready(const struct replica *r)
{
        return replica_is_current(r) && !r->versions.founding;
}

/* ---- libraft.c ---- */

/* An id that no member has. */
#define LIBRAFT_NOBODY UINT64_MAX

/* Sets raft up. Returns 0 or -ENOMEM. */
must_check_ int libraft_begin(struct replica *r);
void libraft_end(struct replica *r);
/* Passes an event to raft. Returns 0, with the resulting actions in *@ret, or an error of
 * raft's. */
must_check_ int libraft_step(struct replica *r, struct raft_event *ev, struct raft_update *ret);
/* Describes such an error; borrowed. */
const char *libraft_why(const struct replica *r, int k);

bool replica_leads(const struct replica *r);
uint64_t replica_leader(const struct replica *r); /* 0: none known */
bool libraft_follows(const struct replica *r);    /* false: it leads, or stands for election */
uint64_t libraft_vote(const struct replica *r);   /* in this term; 0: for nobody */
uint64_t libraft_commit(const struct replica *r);
uint64_t libraft_stored(const struct replica *r); /* how far the log is on our disk */
/* Leader: how far member @id has acknowledged the log. False: there is no such member. */
bool libraft_match(const struct replica *r, uint64_t id, uint64_t *ret);
/* When raft wants a RAFT_TIMEOUT, and whether that time has come. */
struct boot_time libraft_timeout(const struct replica *r);
bool libraft_is_due(const struct replica *r);

/* The members by the last configuration in the log, committed or not. */
const struct raft_configuration *replica_conf(const struct replica *r);
/* The entry of that configuration if it is not known to be committed; 0: it is. */
uint64_t libraft_uncommitted(const struct replica *r);
/* The entry of the last configuration that is known to be committed, and in *@ret, unless that
 * is NULL, this configuration; borrowed. */
uint64_t libraft_committed(const struct replica *r, const struct raft_configuration **ret);
/* Entries from @first on were appended: some may be configurations. */
void libraft_conf_appended(struct replica *r, uint64_t first);
/* The configuration in entry @index is applied. */
void libraft_conf_applied(struct replica *r, uint64_t index);
/* Both return 0, or a negative errno. @index is of an entry in memory. */
must_check_ int libraft_conf_copy(const struct raft_configuration *c,
                                  struct raft_configuration *ret);
must_check_ int libraft_conf_at(const struct replica *r, uint64_t index,
                                struct raft_configuration *ret);

/* Follower: forgets the leader, so that it votes for another one. */
void libraft_forget_leader(struct replica *r);
/* ... and stands for election itself, unless another one is elected within @wait. */
void libraft_stand(struct replica *r, nsec_t wait);

/* ... and stays a follower for an election timeout. */
void libraft_wait(struct replica *r);
/* Follower: is in @term, in which it votes for nobody else. */
void libraft_abstain(struct replica *r, uint64_t term);

/* Whether raft may be given this message. */
bool libraft_takes(const struct replica *r, uint64_t peer, const struct raft_message *m);
/* [libraft] It rejects entries that begin before our compaction point: makes them begin
 * there. */
void libraft_skip_compacted(const struct replica *r, struct raft_append_entries *p);
/* Corrects an answer of raft's. @older: it answers entries of an older term. */
void libraft_mend(const struct replica *r, struct raft_message *m, bool older);
/* [libraft] It asks the next leader to stand with that member's first acknowledgement, even if
 * the member lacks later entries and so must ignore that. Nothing is written until the handover
 * is given up, an election timeout later. True: @m is such a message, and must not be sent.
 * Raft asks again with the next acknowledgement. */
bool libraft_is_premature(struct replica *r, const struct raft_message *m);

/* ---- replica.c ---- */

void replica_fatal(struct replica *r, const char *why);
/* The position of @id in the configuration, or -1. */
int replica_position(const struct replica *r, uint64_t id);
/* Whether we are a voter of our configuration. */
bool replica_votes(const struct replica *r);
unsigned replica_voters(const struct replica *r);
void replica_send_frame(struct replica *r, uint64_t peer, const struct buf *frame);
/* Of an array of structs, each of which begins with the id of its replica (0: it is unused):
 * the one of @id, or else one that it may have: an unused one, or else a former member's. There
 * are as many as members at least. */
#define REPLICA_SLOT(r, array, id) \
        (&(array)[replica_slot(r, array, ARRAY_SIZE(array), sizeof(*(array)), id)])
size_t replica_slot(const struct replica *r, const void *array, size_t n, size_t size,
                    uint64_t id);
/* The counts of member @id. */
struct replica_peer_counts *replica_peer_counts(struct replica *r, uint64_t id);
/* Sends a frame of @n numbers. */
void replica_send(struct replica *r, uint64_t peer, enum frame_type type, const uint64_t *v,
                  size_t n);
void replica_send_all(struct replica *r, enum frame_type type, const uint64_t *v, size_t n);
/* Passes an event to raft, and carries out its answer. */
void replica_step(struct replica *r, struct raft_event *ev);
/* Leader: appends @e. Its memory is raft's afterwards, or freed if raft takes no entry now. */
void replica_submit(struct replica *r, struct raft_entry *e);
/* The lease time with which an entry of commands begins. */
struct lease_time replica_stamp(const void *data);
uint64_t replica_term_of(const struct replica *r, uint64_t index); /* 0: unknown */
/* Takes ownership of what @m points to. */
void replica_receive(struct replica *r, uint64_t peer, struct raft_message *m);
/* The highest term that a peer may claim. */
uint64_t frames_term_max(const struct replica *r);
/* The loaded state, of @term, becomes the present one. */
void replica_adopt(struct replica *r, uint64_t term);
extern const struct store_ops replica_store_ops;

/* ---- taking.c ---- */

/* Whether a snapshot of ours is being encoded or written. */
static inline bool taking_is_on(const struct replica *r)
{
        return r->taking.state == SNAPSHOT_ENCODING || r->taking.state == SNAPSHOT_WRITING;
}

/* Whether the state may begin to be encoded, for the disk or for a replica. */
bool taking_may_begin(const struct replica *r);
/* Takes a snapshot when one is due, or continues with it. */
void taking_run(struct replica *r);
struct boot_time taking_next(const struct replica *r);
/* Writes @data, the state of `pending`; NULL: its pieces follow. Returns 0 or -ENOMEM. */
must_check_ int taking_to_store(struct replica *r, struct blob *data, bool install);
void taking_fini(struct replica *r);
/* Callbacks of the store. */
void taking_on_written(void *userdata, uint64_t index);
void taking_on_failed(void *userdata, uint64_t index, int e);

/* ---- sending.c ---- */

/* Raft wants @peer to get a snapshot that reaches at least @index. */
void sending_asked(struct replica *r, uint64_t peer, uint64_t index);
void sending_acked(struct replica *r, const struct peer_frame *in);
/* An answer to entries shows how far the replica's log goes. */
void sending_answered(struct replica *r, uint64_t peer,
                      const struct raft_append_entries_result *p);
/* There is a new link: parts under way are lost. */
void sending_link_up(struct replica *r, uint64_t peer);
void sending_run(struct replica *r);
struct boot_time sending_next(const struct replica *r);
/* Whether a snapshot is counted or under way, and has not arrived completely. */
bool sending_is_on(const struct replica *r);
/* The oldest snapshot that a replica is waiting for, whether it is being counted, sent or
 * installed; UINT64_MAX: none does. Raft must not learn of a newer snapshot, or it would
 * request that one instead; under load this would repeat, and no snapshot would ever arrive. */
uint64_t sending_oldest(const struct replica *r);
/* The entries after this one are needed by replicas that wait for a snapshot, or have just
 * installed one; UINT64_MAX: none are. */
uint64_t sending_needed(const struct replica *r);
/* The size of the largest snapshot that is counted or under way. */
size_t sending_largest(const struct replica *r);
void sending_fini(struct replica *r);

/* ---- trim.c ---- */

/* Drops the oldest entries if the log takes too much memory. */
void trim_run(struct replica *r);
/* Whether the log keeps all entries after @index even if nobody waits for them. */
bool trim_keeps(const struct replica *r, uint64_t index);
/* Whether the limit of entries that are committed but not yet applied is reached. */
bool trim_log_is_full(const struct replica *r);
/* The metadata of a snapshot at @index, which has been applied. The caller frees its
 * configuration. Returns 0 or -ENOMEM. */
must_check_ int trim_metadata(const struct replica *r, uint64_t index,
                              struct raft_snapshot_metadata *ret);
/* Raft has compacted the log up to this snapshot, or is about to. Returns 0 or -ENOMEM. */
must_check_ int trim_remember(struct replica *r, const struct raft_snapshot_metadata *m);
/* Reports a snapshot to raft, and keeps the last @trailing of its entries in the log. Takes
 * over @m's configuration. */
void trim_to(struct replica *r, struct raft_snapshot_metadata *m, uint64_t trailing);

/* ---- freeing.c ---- */

/* Takes over the caller's reference to @data. Once there is no other reference, it is freed. */
void freeing_add(struct replica *r, struct blob *data);
/* Takes over the entries in @l. */
void freeing_add_log(struct replica *r, struct log *l);
void freeing_run(struct replica *r);
struct boot_time freeing_next(const struct replica *r);
void freeing_fini(struct replica *r);

/* ---- install.c ---- */

/* A part of a snapshot came from @peer. */
must_check_ int install_part(struct replica *r, const struct peer_frame *in);
/* Continues with the snapshot that is arriving. */
void install_run(struct replica *r);
struct boot_time install_next(const struct replica *r);
/* Raft accepts the snapshot: it is written to disk ... */
void install_begin(struct replica *r, struct raft_update *u);
/* ... and has been written. */
void install_done(struct replica *r, uint64_t index);
void install_fini(struct replica *r);

/* ---- queue.c ---- */

/* Drops the commands that wait. */
void queue_drop(struct replica *r);
/* After each raft_step(): drops the waiting commands if their term is over. */
void queue_enter_term(struct replica *r);
/* Leader: a member forwards commands. */
must_check_ int queue_proposed(struct replica *r, const struct peer_frame *in);
/* Leader: appends entries with the waiting commands; queue_flush() does so unless they
 * gather. */
void queue_submit(struct replica *r);
void queue_flush(struct replica *r);
/* Leader: appends an entry of these commands, before those that wait. Returns 0, or -EAGAIN: no
 * entry can be appended now. */
must_check_ int queue_append(struct replica *r, const void *commands, size_t n);
/* Leader: called once when its term begins. */
void queue_term_begins(struct replica *r);
/* Leader: acknowledges forwarded frames to their senders; called last in a flush. */
void queue_acknowledge(struct replica *r);
/* Follower: sends waiting commands to the leader; learns which frames the leader has, and sends
 * the others again. */
void queue_forward(struct replica *r);
void queue_acknowledged(struct replica *r, const struct peer_frame *in);
void queue_link_up(struct replica *r, uint64_t peer);
void queue_run(struct replica *r);
struct boot_time queue_next(const struct replica *r);

/* ---- append.c ---- */

/* How many bytes of entries the link to @peer can take; 0: it is down or full. */
size_t replica_room(const struct replica *r, uint64_t peer);
/* Raft wants to send @peer the @n entries after @prev; 0: a heartbeat. */
void append_wanted(struct replica *r, uint64_t peer, uint64_t prev, unsigned n);
/* Returns false if the link has no room for it. */
bool append_heartbeat(struct replica *r, uint64_t peer, uint64_t prev);
void append_link_up(struct replica *r, uint64_t peer);
/* Sends entries that waited for room, if there is some now. */
void append_run(struct replica *r);

/* ---- read_index.c ---- */

/* Leader: a replica asks about its reads. */
void reads_asked(struct replica *r, const struct peer_frame *in);
/* At the end of a turn: a leader starts a round, another replica asks the leader. */
void reads_flush(struct replica *r);
/* A link to or from @peer is new: repeats to it what one before may have lost. */
void reads_link_made(struct replica *r, uint64_t peer);
/* Repeats requests that were not answered in time. */
void reads_run(struct replica *r);
/* Whether a read waits for its answer. */
bool reads_wait(const struct replica *r);
void reads_members_changed(struct replica *r);
void reads_ponged(struct replica *r, const struct peer_frame *in);
void reads_answered(struct replica *r, const struct peer_frame *in);
void reads_reroute(struct replica *r);

/* ---- beacons.c ---- */

/* We lead from now on. */
void beacons_begin(struct replica *r);
void beacons_run(struct replica *r);
void beacons_ask(struct replica *r);
void beacons_members_changed(struct replica *r);
void beacons_acked(struct replica *r, unsigned i, nsec_t sent);
void beacons_reported(struct replica *r, unsigned i, uint64_t term, uint64_t time);

/* ---- members.c ---- */

/* After each raft_step(): acts on a change of the configuration, and on the end of a change. */
void members_step(struct replica *r);
void members_committed(struct replica *r);
/* Somebody asks for a change. */
must_check_ int members_asked(struct replica *r, const struct peer_frame *in);
void members_heard(struct replica *r, uint64_t peer);
/* We lead from now on. */
void members_lead(struct replica *r);
void members_broke(struct replica *r, uint64_t peer);
/* Leader: a snapshot up to @index is being sent to @peer. */
void members_restores(struct replica *r, uint64_t peer, raft_index index);
/* Leader: a follower has answered; called also if raft does not get the answer. */
void members_answered(struct replica *r, uint64_t peer,
                      const struct raft_append_entries_result *p);
void members_stranger(struct replica *r, uint64_t peer);
/* Leader: whether no change is under way, and one may be made. */
bool members_may_change(const struct replica *r);
/* Leader: makes those voters that were added as such, and have caught up. */
void members_run(struct replica *r);
/* Leader: appends @c, and frees it. Returns 0, REPLICA_E_BUSY or -ENOMEM. */
must_check_ int members_submit(struct replica *r, struct raft_configuration *c);
/* Whether it is a voter to operators: it votes, or will. */
bool members_is_voter(const struct raft_server *s);
/* The ids of the voters in @c. Returns their number. */
unsigned members_voters(const struct raft_configuration *c,
                        uint64_t ret[static REPLICA_PEERS_MAX]);
/* The position of @id in @c, or -1. */
must_check_ int members_position(const struct raft_configuration *c, uint64_t id);
/* Calls @fn for each member in @c; its URLs are borrowed until @fn returns. */
void members_each(const struct raft_configuration *c,
                  void (*fn)(uint64_t id, const char *urls, bool voter, void *arg), void *arg);
/* Leader: whether member @id was heard within an election timeout; and whether it answers, so
 * that its link has not broken since. */
bool members_heard_lately(struct replica *r, uint64_t id);
bool members_answers(struct replica *r, uint64_t id);
/* Leader: of the voters that answer, the one that lacks the fewest entries; 0: none answers. */
uint64_t members_heir(struct replica *r);
/* A peer says that we are no member, as of an entry. */
void members_told_removed(struct replica *r, const struct peer_frame *in);
/* The leader reports that we acknowledged entries which we lack. */
void members_lack(struct replica *r, const struct peer_frame *in);

/* ---- versions.c ---- */

/* The newest format of the data directory that may be written at cluster version @version; 0:
 * at the newest version. */
unsigned versions_format(uint32_t version);
/* What @id last said of itself, in this life of ours; NULL: nothing. */
struct member_version *versions_of(const struct replica *r, uint64_t id);
/* Whether nothing is taken of @peer, and nothing sent to it: 0; -EPROTONOSUPPORT: it is too old
 * for the cluster version; -EKEYREJECTED: it has another directory than the recorded one. */
must_check_ int versions_refuse(const struct replica *r, uint64_t peer);
/* The newest cluster version that this replica knows. */
static inline uint32_t replica_newest(const struct replica *r)
{
        return r->cfg.version > 0 ? r->cfg.version : (uint32_t) CLUSTER_NEWEST;
}
void versions_link_down(struct replica *r, uint64_t peer);
void versions_members_changed(struct replica *r);
/* We lead from now on. */
void versions_lead(struct replica *r);
/* Leader of a new cluster: lets it begin once all members have introduced themselves. Returns
 * whether it begins. */
bool versions_found(struct replica *r);
/* For whom it waits; 0: for nobody. */
uint64_t versions_awaits(const struct replica *r);
/* Logs whom a new cluster waits for, now and then. */
void versions_tell_awaited(struct replica *r);

/* ---- replacement.c ---- */

/* Whether the member at @urls can be replaced: 0, or an outcome of replica.h. */
must_check_ int replacement_allowed(struct replica *r, enum replica_change what,
                                    const char *urls);
/* Makes the configuration in which @id is at its place. Returns 0, an outcome, or -ENOMEM. */
must_check_ int replacement_make(const struct replica *r, uint64_t id, const char *urls,
                                 struct raft_configuration *out);
/* Logs what has become of members that were replaced, in comparison with r->configured. */
void replacement_log(const struct replica *r);

/* ---- directories.c ---- */

/* Whether any is recorded. */
bool directories_recorded(const struct replica *r);
/* After each raft_step(): the configuration may have changed. */
void directories_configured(struct replica *r);
/* Whether @in, as an introduction of @peer, has another directory than the recorded one; and
 * whether the last one of @peer has. */
bool directories_differ(const struct replica *r, uint64_t peer, const struct introduction *in);
bool directories_refuse(const struct replica *r, uint64_t peer);
void directories_introduced(struct replica *r, uint64_t peer, const struct introduction *in);
/* Leader: whether all directories have to be recorded, and are not; and records them. */
bool directories_are_due(const struct replica *r);
void directories_run(struct replica *r);
/* Whether a command was ever in our log: a new cluster, or one that was just restored, has
 * none. Until then the log keeps all of its entries, and no snapshot is taken, since nobody
 * could tell any more. */
bool directories_begun(const struct replica *r);
/* Whether nothing is in our log but the members with which it began. */
bool directories_founding(const struct replica *r);
/* ... and for whom we wait before we take part in an election; 0: for nobody. */
uint64_t directories_awaits(const struct replica *r);
bool directories_may_stand(const struct replica *r);
bool directories_may_vote(const struct replica *r, uint64_t candidate);
