/*
 * The replicated state machine: commands in, the same state on every replica (I4).
 *
 * Every replica applies the same log entries in the same order and so has the same keys, leases
 * and deadlines, members and revision. Pure: no descriptor, no clock, no global; the caller
 * passes the bytes of an entry, its index and its lease time.
 *
 * Where the invariants are kept: I1 and I7 in CMD_EXPIRE and CMD_RENEW; I2 in the deadlines,
 * which count from the true renewal, or from a little later (CMD_RENEW_AHEAD); I6 in the
 * history of kv.h.
 */
#pragma once

#include "base/arena.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/histogram.h"
#include "state/auth.h"
#include "state/cached.h"
#include "state/deadlines.h"
#include "state/kv.h"
#include "state/leases.h"
#include "state/outcome.h"
#include "wire/cmd.h"
#include "wire/pb.h"

#define STATE_TTL_MAX_S INT64_C(9000000000)

/* Limits of the state, the same on every replica, checked where a command is applied, so that
 * every accepted state can be saved, loaded and installed. A name is sent with every list of
 * leases and looked up with each grant: 1024 bytes are enough for a path, not for a
 * document. */
#define STATE_LEASES_MAX (1u << 22)
#define STATE_LEASE_NAME_MAX 1024
#define STATE_ALARMS_MAX 64

/* How much one command may read; this is known before anything is written. A txn is applied in
 * one turn of the loop, during which nothing else happens. So its cost in steps of weigh.c is
 * limited to about 7 ms: enough to look up 1,000 keys. */
#define STATE_TXN_OPS_MAX 1000
#define STATE_TXN_STEPS_MAX 10000
#define STATE_DELETE_MAX 100000
#define STATE_DELETE_PREV_MAX \
        10000 /* if the answer has previous values, whose sizes are added up in one turn */
#define STATE_DELETE_BYTES_MAX ((size_t) 16 << 20) /* of the previous values */
#define STATE_LEASE_KEYS_MAX 100000                /* of one lease, which ends in one command */
#define STATE_EXPIRE_KEYS 20000                    /* of one EXPIRE, or of a single lease */

/* What a replica has published about itself. */
struct member {
        WIDER;
        uint64_t id;
        char *name;        /* owned */
        char *client_urls; /* owned; joined by commas */
};

/* Why an alarm is raised; the alarm ends when there is no reason left. */
enum {
        ALARM_STANDS = 1,    /* the quota, or an operator: until it is disarmed */
        ALARM_FULL_DISK = 2, /* the member itself takes it back when its disk has room again */
        ALARM_SIBLING = 4,   /* `member` is another core that goes on from the same data: until
                              * it is disarmed */
};

struct alarm {
        WIDER;
        uint64_t member;
        Pb__AlarmType type;
        uint8_t why;
};

/* Progress of a command that removes many keys, compacts many changes or renews all leases, in
 * slices. In between, a reader of the state would see half of its effect. */
struct removal {
        WIDER;
        bool on;
        uint32_t sub;        /* keys removed, at the next revision */
        uint32_t slot;       /* leases before this one are renewed */
        struct lease *lease; /* the lease that ends; its name may have gone with its keys */
};

/* What this replica has applied since its start, for metrics. Not part of the state: neither
 * saved nor compared, and nothing that is replicated may depend on it (I4). */
struct state_counts {
        struct lease_time now; /* the lease time at which the caller applies, from which `late`
                                * is computed */
        uint64_t puts, put_bytes, deletes, txns, ranges;
        uint64_t granted, renewed; /* leases */
        uint64_t ended, expired;   /* all that ended, and those that expired */
        struct histogram ttl;      /* of granted leases, in milliseconds (state_ttl_shape) */
        struct histogram late;     /* how long after its deadline a lease expired
                                    * (histogram_way) */
};
/* From 1 s, doubling up to 97 days, like etcd's. */
extern const struct histogram_shape state_ttl_shape;

/* The log belongs to this cluster, which was forced to descend from that ancestor. */
struct descent {
        WIDER;
        uint64_t cluster; /* 0: it was never forced */
        uint64_t ancestor;
};

struct state {
        WIDER;
        struct kv kv;
        struct leases leases;
        struct deadlines deadlines;
        struct member *members; /* owned, ascending by id */
        size_t n_members, members_cap;
        struct alarm *alarms; /* owned, ascending by member and type */
        size_t n_alarms, alarms_cap;
        struct auth auth;
        struct cached cached;
        struct arena scratch;   /* for unpacking the command that is being applied */
        struct removal removal; /* the rest of that command */
        int64_t revision;       /* 1 on an empty store */
        uint32_t cluster_version;
        struct descent descent;
        uint64_t applied; /* the index of the last entry applied */
        struct lease_time
                time; /* lease time of that entry, or of an earlier entry if that was later */
        struct state_counts counts;
};

/* Where the answer to a command goes. */
struct state_reply {
        struct buf *out; /* the packed response is appended; NULL if no client waits here */
        Pb__ResponseHeader header; /* ids and term are the caller's; the revision is filled
                                    * in */
        enum state_outcome outcome;
        struct cached_wait wait; /* for STATE_E_CACHED */
};

void state_init(struct state *s);
void state_fini(struct state *s);

/* state_fini() in slices. state_drop_readers(): all readers in slices lose the state (-ESTALE),
 * after which it may be moved. Then state_free_some() frees it. Returns false if @left was not
 * enough; then only the same call may follow. */
void state_drop_readers(struct state *s);
must_check_ bool state_free_some(struct state *s, struct budget *left);

/* Begins the entry at @index, which was appended at lease time @at; then apply its commands. */
void state_begin(struct state *s, uint64_t index, struct lease_time at);

/* Applies one command of that entry, in slices. A client's mistake is an outcome in *@reply; a
 * negative errno (-ENOMEM) means that this replica cannot continue. Returns 1 if @left was not
 * enough: then call it again with the same command and reply; no other command may be applied
 * before that. The result of a command does not depend on its slices. */
must_check_ int state_apply_some(struct state *s, const struct cmd *c,
                                 struct state_reply *reply, struct budget *left);

/* Appends the body of an EXPIRE for up to @max leases whose deadline has passed; each becomes
 * due again at @again if it still exists then. Returns how many. 0 may also mean that deadlines
 * have to be corrected first (deadlines.h): then deadlines_next() is in the past. */
size_t state_expire(struct state *s, struct lease_time now, struct lease_time again, size_t max,
                    struct buf *body);

/* Where it is asked whether a command is accepted. */
enum admit_at {
        ADMIT_DOOR, /* where it comes in: what it depends on may change before it is applied */
        ADMIT_READ, /* where it is answered: a txn that only reads, and so is in no log */
        ADMIT_APPLIED, /* where it is applied */
};

/* The branches that a txn and its nested txns take, in the order of visits. */
struct txn_branches {
        uint16_t n, at;
        uint8_t taken[(3 * STATE_TXN_OPS_MAX) / 8 + 1]; /* a bit for each: it is `success` */
};

struct state_admission {
        enum admit_at at;    /* these two are the caller's */
        size_t max_txn_ops;  /* see state_check_txn() */
        bool grows;          /* it may put or grant, and so is refused while a disk is full */
        size_t room;         /* bytes that it adds at most, as the quota counts them */
        size_t answer;       /* bytes, roughly: of the values and ranges in its answer */
        size_t steps;        /* to apply it, if there may be many; of STATE_TXN_STEPS_MAX */
        struct lease *lease; /* that it revokes */
        struct txn_branches branches; /* of a txn */
};

/* Whether command @c, whose body is @m, is accepted, and what it costs (admit.c has the order
 * of the checks). To find out is charged to @left. Returns 0, what the command is refused with
 * (enum state_outcome), or -ENOMEM. */
must_check_ int state_admit(const struct state *s, const struct cmd *c, const void *m,
                            struct budget *left, struct state_admission *a);

/* Checks of the form of reads. The second limits a txn to @max_ops compares, and to @max_ops
 * operations of a branch, summed along nested txns as etcd counts; and to three times that in
 * all. It returns 0, the outcome of the check, or -ENOMEM. */
enum state_outcome state_check_range(const Pb__RangeRequest *q);
must_check_ int state_check_txn(const Pb__TxnRequest *q, size_t max_ops);

/* Fills @out, borrowing from the store and from @a until either changes; the caller fills in
 * the header. Returns STATE_E_COMPACTED, STATE_E_FUTURE, or STATE_OK; *@ret_nomem: memory ran
 * out. */
enum state_outcome state_range(const struct state *s, const Pb__RangeRequest *q,
                               struct arena *a, Pb__RangeResponse *out, struct budget *left,
                               bool *ret_nomem);

/* Whether the txn, including its compares, writes nothing, so that it can be answered like a
 * read. */
bool state_txn_reads_only(const Pb__TxnRequest *q);

/* Answers a txn that only reads; otherwise like state_admit(). */
must_check_ int state_txn_read(struct state *s, const struct cmd_user *who,
                               const Pb__TxnRequest *q, struct state_reply *reply,
                               struct budget *left);

/* The TTL that a grant requests, in milliseconds. */
int64_t state_grant_ttl_ms(const Pb__LeaseGrantRequest *q);

/* Roughly the memory that the state takes, as the quota counts it. */
size_t state_bytes(const struct state *s);

/* Whether any replica has raised such an alarm. With NOSPACE nothing is put or granted; with
 * CORRUPT clients write nothing. */
bool state_alarmed(const struct state *s, Pb__AlarmType type);

/* What member @id has said of itself; NULL: nothing yet. Borrowed until the next command. */
const struct member *state_member(const struct state *s, uint64_t id);

/* Another core that continues from the same data: no client is served (I10). 0: there is
 * none. */
uint64_t state_sibling(const struct state *s);

/* The cluster from which @cluster was forced to descend; 0: none. A state that was restored is
 * that of another cluster, which descends from none. */
uint64_t state_ancestor(const struct state *s, uint64_t cluster);

/* Why @member has raised such an alarm; 0: it has not. */
uint8_t state_alarm_why(const struct state *s, uint64_t member, Pb__AlarmType type);
