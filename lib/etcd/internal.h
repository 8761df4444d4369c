/* What the files of etcd/ share about calls. Not for other folders. */
#pragma once

#include <bsd/sys/queue.h>

#include "etcd/api.h"
#include "etcd/line.h"
#include "etcd/revision_times.h"
#include "loop/process.h"
#include "loop/worker.h"
#include "state/permit.h"

struct watch_hub;
struct claim_hub;
struct observe_hub;
struct cache_hub;

struct keepalive;
struct password_job;

#define BLOCK 16 /* overhead of a block of memory, for what is charged */

struct api {
        struct core *core;
        LIST_HEAD(, keepalive) spare_keepalives; /* for reuse */
        size_t n_spare_keepalives;
        struct rpc_call_list streams;      /* require_leader.c, stopped.c */
        bool stopped;                      /* as was logged */
        bool stopping;                     /* there are streams that have to end */
        struct boot_time leaderless_since; /* BOOT_TIME_NEVER: there is a leader */
        struct boot_time leaderless_at;    /* when to look again */
        struct line sliced;                /* calls that take many slices */
        size_t n_sliced_keepers;           /* how many of them hold much for long */
        struct boot_time sweep_at;      /* when to free more of what compactions have dropped */
        struct line in_turn, room;      /* calls whose answers wait for their turn; for room */
        struct boot_time room_at;       /* when to check them next */
        struct line costly;             /* writes that wait until fewer costly ones ... */
        size_t steps_on_way;            /* ... are under way; the steps of those that are */
        const struct request *has_turn; /* the request that no other of its address may precede;
                                         * NULL: none */
        size_t spent;                   /* steps spent on large answers in this turn of the
                                         * loop */
        struct watch_hub *watches;
        struct claim_hub *claims;
        struct observe_hub *observers;
        struct cache_hub *caches;
        struct api_conns conns;
        void *conns_arg;
        struct worker *passwords;                 /* borrowed */
        struct password_job *password;            /* the job that it is working on; NULL:
                                                   * none */
        TAILQ_HEAD(, password_job) password_jobs; /* jobs that wait for the worker */
        size_t n_password_jobs;
        uint64_t turns;        /* counter of turns, for struct api_turn */
        struct request *spare; /* freed requests, for reuse: there may be 100,000 a second */
        size_t n_spare;
        struct buf packed; /* the next message to send */
        nsec_t token_ttl;
        struct rpc_counts *counts;       /* of each method, in the order of api_method() */
        uint64_t n_ranges;               /* ranges requested, outside of transactions */
        uint64_t n_healthy, n_unhealthy; /* answers about our health */
        struct process_look process;     /* for metrics.c */
        struct revision_times times;
        char version[API_VERSION_SIZE]; /* the version of etcd that is reported to clients */
        bool status_page;               /* there is a page at "/" */
};

/* Method number @i, counted over all services; NULL: no more. */
const struct method *api_method(size_t i);

/* The user at the other end, as far as known; empty while auth is off. */
struct identity {
        struct cmd_user user;
        uint8_t *name;       /* owned: what user.name shows */
        struct party *party; /* owned, a reference; NULL while auth is off */
};

/* Identifies the caller by the call's token or its certificate. permit.h checks what the user
 * may do. */
struct status identify(struct api *a, const struct rpc_call *call, struct identity *who);
/* Like identify(), if the call's token arrived when this replica, which lagged, did not know
 * yet that authentication is on, so that the token was not checked. */
struct status identify_late(struct api *a, const struct rpc_call *call, struct identity *who);
void identity_fini(struct identity *who);
/* Who requests something by @call. */
struct requester requester_of(const struct rpc_call *call, const struct identity *who);

/* Which users may call a method while auth is on; for FOR_USERS permissions on keys are
 * checked, too.
 */
enum access {
        FOR_USERS,
        FOR_ROOT,
        FOR_ALL,
};

/* One unary call. `call` is NULL once the client went away; then the answer is dropped. */
struct request {
        struct api *api;
        struct rpc_call *call;
        const struct method *method;
        bool came;       /* the request has come; further messages are ignored */
        void *msg;       /* unpacked; owned, until it becomes a command ... */
        bool asks_again; /* ... or the method, which needs it longer, frees it */
        struct view own; /* the bytes of the message; borrowed during `run` */
        struct identity who;
        struct core_write write;
        /* For a write: the size that its answer may reach, and the steps that applying it may
         * take, if there may be many; whether it is asked for previous values. */
        size_t answer_bytes, steps;
        bool prev_kv;
        bool reads_compacted; /* of a txn: if it reads the future, that was compacted, settle.c
                               */
        bool on_way;          /* its steps are counted in the api */
        struct core_read read;
        struct request *next_spare;
        void (*then)(struct request *q); /* called after the read */
        bool waiting;                    /* for the core; the request must stay until the core
                                          * answers */
        bool reading;                    /* for a read, which can be withdrawn */
        /* Data of a method that takes several steps; `drop` frees it with the request. */
        void *data;
        void (*drop)(struct request *q);
        /* Called instead of sending the write's answer to the client, also when the client is
         * gone. */
        void (*wrote)(struct request *q, struct status st, struct view reply);
        /* Called instead of request_fail() when the core takes no write, or a read failed. */
        void (*failed)(struct request *q, struct status st);
        bool by_core; /* writes need no permission: they are the replica's own */
        /* The client went away: the method must end the request, now or later. */
        void (*gone)(struct request *q);
};

/* Whether the client, or the replica, sends several messages. */
enum method_kind {
        UNARY,
        SERVER_STREAM,
        BIDI_STREAM,
};

/* What a learner answers, as in etcd 3.5. It may lag without anybody's noticing, so it reports
 * only its own status, its data only to a client that accepts that, and a snapshot, which may
 * be the last one left. */
enum at_learner {
        LEARNER_REFUSES,
        LEARNER_ANSWERS,
        LEARNER_ANSWERS_SERIALIZABLE, /* of ranges */
};

/* The one list of methods: what differs between them is a column here. */
struct method {
        const char *path;
        const ProtobufCMessageDescriptor *request;
        void (*run)(struct request *q);
        enum access access;
        /* Instead of `run`, for a call with several requests, or that may last: takes it over,
         * and checks the client's permissions. */
        void (*stream)(struct api *a, struct rpc_call *call);
        enum method_kind kind;
        enum at_learner at_learner;
        bool large; /* its answers may be large, whatever the request */
        /* Of a stream: with the metadata `hasleader: true`, it ends when there has been no
         * leader for a while. */
        bool hasleader;
        bool always; /* answered even while the core is stopped */
};

/* If this replica waits for a member, whose start is all that is missing, writes that to @text.
 */
#define API_WAITS 512
bool api_waits(const struct api *a, char text[static API_WAITS]);

/* ---- stopped.c ---- */

/* Whether nobody is served, because another core goes on from the same data. If so, writes what
 * clients are told. */
bool api_is_stopped(const struct api *a, char text[static 320]);
/* The client of @call is in another core. */
void api_hear_of(struct api *a, const struct rpc_call *call);
/* Ends all streams of a core that is stopped. */
void stopped_flush(struct api *a);

/* Answer and end the call. */
void request_reply(struct request *q, const ProtobufCMessage *m);
void request_reply_bytes(struct request *q, const void *p, size_t n);
/* Begins an answer of @len bytes that is produced as the client reads it. Returns false if the
 * request has ended: the answer is too large, which the client was told, or there is no
 * memory. */
must_check_ bool request_begins(struct request *q, size_t len);
/* request_goes_on(): there is more; `then` is called again when this part has been sent.
 * request_finish(): that was all. */
void request_goes_on(struct request *q);
void request_finish(struct request *q);
/* Frees the message of the request. */
void request_drop_msg(struct request *q);
/* Answers with a header only, like most writes. */
void request_reply_header(struct request *q);
void request_fail(struct request *q, struct status st);
/* Frees the request; its call was finished already. */
void request_end(struct request *q);

/* Answers or, while there is no room for the answer, waits; then @again makes the answer again.
 * For answers that may be large and are not made piece by piece. */
void request_answer(struct request *q, const ProtobufCMessage *m,
                    void (*again)(struct request *q));
/* Whether there is room for an answer of @bytes; if not, @again runs once there is. In
 * room.c. */
must_check_ bool request_has_room(struct request *q, size_t bytes,
                                  void (*again)(struct request *q));
/* request_has_turn(): whether work that may take long may still be done in this turn of the
 * loop; if not, @again runs in one of the next. request_spent(): what the work took, in steps
 * of 50 ns (BUDGET_READ_STEPS), and bytes copied. */
must_check_ bool request_has_turn(struct request *q, void (*again)(struct request *q));
void request_spent(struct request *q, size_t steps, size_t bytes);

/* Sends @body through the log; the answer goes to the client. request_write_own(), from `run`
 * only, sends the request as it came. If q->answer_bytes says that the answer may be large and
 * there is no room for it, `run` is called again once there is. */
void request_write_own(struct request *q, enum cmd_type type);
void request_write(struct request *q, enum cmd_type type, const ProtobufCMessage *body);
/* Runs @then once a local read is linearizable. */
void request_read(struct request *q, void (*then)(struct request *q));

/* Notifies the connection that there is output. */
void api_kick(struct api *a, struct rpc_call *call);
/* Sends a message on a stream, and notifies the connection. */
void api_send(struct api *a, struct rpc_call *call, const ProtobufCMessage *m);
/* Like api_send(), with the message that is in @a->packed. */
void api_send_packed(struct api *a, struct rpc_call *call);
/* api_take_packed() hands out the buffer for the next message, empty; api_give_packed() takes
 * it back. */
struct buf api_take_packed(struct api *a);
void api_give_packed(struct api *a, struct buf *b);

extern const struct method kv_methods[], lease_methods[], watch_methods[], cluster_methods[],
        lock_methods[], maintenance_methods[], auth_methods[], cache_methods[];
extern const size_t n_kv_methods, n_lease_methods, n_watch_methods, n_cluster_methods,
        n_lock_methods, n_maintenance_methods, n_auth_methods, n_cache_methods;

void keepalives_fini(struct api *a);
/* Ends streams that require a leader, once there has been none for an election timeout. */
void require_leader_flush(struct api *a, struct boot_time now);
/* Serves resources, which are read with GET (call->resource); @probes: only those that a port
 * for probes has. */
void resource_accept(struct api *a, struct rpc_call *call, bool probes);
/* Election/Observe. */
void observe_accept(struct api *a, struct rpc_call *call);

/* The remaining time of @l at @now. */
int64_t lease_left_ms(const struct state *s, const struct lease *l, struct lease_time now);
/* Lease/LeaseLeases and LeaseTimeToLive. */
void lease_list(struct request *q);
void time_to_live(struct request *q);

/* Makes the txn of the request one that is applied as etcd applies it; twice is as once. In
 * settle.c. */
void settle_txn(struct request *q);

/* KV/Range and RangeStream. */
void range(struct request *q);
void range_stream(struct request *q);

/* Maintenance/Snapshot, Hash and HashKV. */
void send_snapshot(struct request *q);
void hash(struct request *q);
void hash_kv(struct request *q);
void sliced_flush(struct api *a, struct boot_time now);
struct boot_time sliced_next(const struct api *a);

/* Whether a write that takes q->steps may be proposed now; if not, @again runs once it may.
 * request_is_on_way() counts it until request_is_applied(). */
must_check_ bool request_may_cost(struct request *q, void (*again)(struct request *q));
void request_is_on_way(struct request *q);
void request_is_applied(struct request *q);

void room_flush(struct api *a, struct boot_time now);
struct boot_time room_next(const struct api *a);

must_check_ int watch_hub_new(struct watch_hub **ret, struct api *a);
struct watch_hub *watch_hub_free(struct watch_hub *h);
struct watch_counts {
        size_t streams, n, behind; /* streams; watches; and those that are not up to date */
        uint64_t events;           /* events sent */
};
struct watch_counts watch_hub_counts(const struct watch_hub *h);
void watch_hub_flush(struct watch_hub *h, struct boot_time now);
struct boot_time watch_hub_next(const struct watch_hub *h);

must_check_ int claim_hub_new(struct claim_hub **ret, struct api *a);
struct claim_hub *claim_hub_free(struct claim_hub *h);
/* The number of calls that wait for a lock or an election. */
size_t claim_hub_n_waiting(const struct claim_hub *h);
void claim_hub_flush(struct claim_hub *h, struct boot_time now);
struct boot_time claim_hub_next(const struct claim_hub *h);

must_check_ int observe_hub_new(struct observe_hub **ret, struct api *a);
struct observe_hub *observe_hub_free(struct observe_hub *h);
void observe_hub_flush(struct observe_hub *h, struct boot_time now);
struct boot_time observe_hub_next(const struct observe_hub *h);

must_check_ int cache_hub_new(struct cache_hub **ret, struct api *a);
struct cache_hub *cache_hub_free(struct cache_hub *h);
void cache_hub_flush(struct cache_hub *h, struct boot_time now);
struct boot_time cache_hub_next(const struct cache_hub *h);
