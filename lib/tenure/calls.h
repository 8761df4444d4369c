/*
 * Calls to the core, and their results.
 *
 * Calls wait in line and are sent on the endpoint that the member would use, a limited number
 * at a time. If the connection breaks, a call is sent again elsewhere, unless it might be done
 * twice. No change is sent to an endpoint before the endpoint has said which cluster it belongs
 * to. An answer is converted at once to what the accessors of tenure.h return, and the message
 * is freed. For tenure/ only.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "member/refusal.h"
#include "tenure/internal.h"

/* How many calls may be under way at a time: a core accepts no more on one connection, and each
 * call that was sent is in doubt if the connection breaks. */
#define CALLS_SENT_MAX 1000
#define CALLS_SENT_BYTES ((size_t) 4 << 20)
/* A call is given up when no call was answered for this long. */
#define CALLS_PATIENCE (10 * NSEC_PER_SEC)
/* How long an endpoint has to answer a probe. */
#define CALLS_PROBE_WITHIN (500 * NSEC_PER_MSEC)
/* How long a call may take even while others are answered. */
#define CALLS_LIMIT (60 * NSEC_PER_SEC)

/* The keys that an operation has read. */
struct found {
        struct tenure_kv *kvs; /* in one allocation with what they point to; owned */
        size_t n;
        int64_t count;
};

/* A kind of call. */
struct call_kind {
        const char *path;
        const ProtobufCMessageDescriptor *type; /* of the answer */
        /* Copies what is needed from the answer. Returns 0; another result for the call, which
         * call_says() has explained; or -EBADMSG: the response is malformed. */
        int (*read)(struct tenure_call *c, const void *answer);
};

/* A `read` that needs nothing from the answer. */
must_check_ int call_read_nothing(struct tenure_call *c, const void *answer);

typedef void (*call_done_fn)(struct tenure_call *c, void *arg);

struct tenure_call {
        TAILQ_ENTRY(tenure_call) entry; /* in `list` */
        LIST_ENTRY(tenure_call) of_all;
        struct call_list *list; /* `waiting` or `sent`; NULL: the call has ended */
        struct calls *calls;
        const struct call_kind *kind;
        struct buf request;
        uint64_t number; /* in the order of asking */
        struct boot_time since;
        bool changes; /* must not be done twice */
        bool local;   /* a replica without a leader may answer it */
        bool named;   /* possible only if leases have names */
        bool unowned; /* the program wants no answer: the call frees itself */
        bool waits;   /* in tenure_call_wait() */

        struct rpc_call *rpc;
        size_t endpoint;
        struct boot_time sent_at;
        void *answer;
        int unread; /* why `answer` could not be read */

        /* For calls of the library itself, instead of an event; may free @c. */
        call_done_fn done;
        void *arg;
        struct queued *event; /* allocated in advance, or in the queue */

        int result;
        char *says; /* the error in a sentence; owned; NULL: none, or out of memory */
        int64_t revision, lease, ttl_ms;
        struct found *found;
        size_t n_found;

        char *name; /* of the lease: as in the request, or as in the answer; owned */

        struct switching *switching; /* the switchover that this call performs; owned */

        /* A transaction: how many of its operations are before tenure_txn_else(), and whether
         * it is one in another that holds only while a key is on its lease. */
        size_t n_then, n_else;
        bool guarded, nested;
        int64_t guard;
};

TAILQ_HEAD(call_list, tenure_call);

struct calls {
        struct tenure *tenure;
        struct loop_hook hook;
        struct call_list waiting; /* in the order of asking */
        struct call_list sent;    /* in the order of being sent */
        size_t n_sent, sent_bytes;
        LIST_HEAD(, tenure_call) all;
        uint64_t number; /* the last number given out */
        struct end_known {
                struct calls *calls;
                struct rpc_call *asking;
                struct boot_time answer_by;
                bool known;
                bool logged_out; /* the login of its connection has ended */
                struct boot_time log_in_at;
                bool extended; /* a tenure-core: leases have names */
        } ends[MEMBER_ENDPOINTS_MAX];
        struct boot_time progress; /* when the last answer came */
        struct boot_time probe_at;
        struct boot_time retry_at, look_at;
        nsec_t backoff;
        size_t looked; /* how many endpoints were tried in vain */
        size_t avoid;
        struct boot_time avoid_until;
        unsigned worlds;
        bool again;        /* there is more to do; may be set while the hook runs */
        char trouble[512]; /* the last thing that went wrong */
};

static inline struct boot_time calls_now(const struct calls *k)
{
        return loop_now(k->tenure->loop);
}

static inline const char *calls_endpoint_name(const struct calls *k, size_t i)
{
        return client_name(k->tenure->client, i);
}

/* ---- calls.c ---- */

must_check_ int calls_new(struct tenure *t);
/* Called by tenure_start() once there is a client. */
void calls_start(struct tenure *t);
/* Ends what is under way on the connections, before these end. calls_free() frees all calls. */
void calls_stop(struct tenure *t);
void calls_free(struct tenure *t);

/* Puts a call of @kind with the request @q in line; @ret NULL: no answer is wanted. */
must_check_ int call_ask(struct tenure *t, const struct call_kind *kind,
                         const ProtobufCMessage *q, bool changes, struct tenure_call **ret);
/* call_ask() in two steps, for calls with more to set: call_new() makes a call with an empty
 * request, and call_begin() puts it in line. */
must_check_ int call_new(struct tenure *t, const struct call_kind *kind,
                         struct tenure_call **ret);
must_check_ int call_begin(struct tenure_call *c, struct tenure_call **ret);

/* A call of the library itself: @done takes it once it has ended. Until then it is in *@ret,
 * which is NULL if memory ran out. */
must_check_ int call_ask_for(struct tenure *t, const struct call_kind *kind,
                             const ProtobufCMessage *q, bool changes, call_done_fn done,
                             void *arg, struct tenure_call **ret);
/* Like call_ask_for(), for a request that may be done twice, and that member/ has encoded. */
must_check_ int call_ask_packed(struct tenure *t, const struct call_kind *kind,
                                const struct buf *request, call_done_fn done, void *arg,
                                struct tenure_call **ret);

/* call_hold() begins a call that sends nothing itself, because other calls do its work;
 * call_finish() ends it. */
must_check_ int call_hold(struct tenure_call *c, struct tenure_call **ret);
void call_end(struct tenure_call *c, int result);

struct tenure *call_tenure(const struct tenure_call *c);

/* Sets the sentence that tenure_call_error() returns. */
void call_says(struct tenure_call *c, const char *fmt, ...) printf_(2, 3);

/* Lets calls_run() run in the next turn of the loop. */
void calls_soon(struct tenure *t);
void calls_run_again(struct calls *k);
/* Records what went wrong last, at endpoint @i. */
void calls_trouble(struct calls *k, size_t i, const char *why);

/* ---- switchover.c ---- */

/* Accepts NULL. A switchover that was requested may continue. */
struct switching *switching_free(struct switching *s);
/* Stops all switchovers, before what they use ends. */
void switchings_stop(struct tenure *t);

/* ---- endpoints.c ---- */

/* The login at endpoint @i has expired: nothing is sent there until calls_log_in() logs in
 * again, which it does when no call is under way there, or after a short time. */
void calls_log_in_later(struct calls *k, size_t i);
void calls_log_in(struct calls *k, struct boot_time now);
/* Finds the endpoint to use now, which has reported which cluster it belongs to. Returns false
 * if there is none yet; calls_run() runs once there is. */
bool calls_endpoint(struct tenure *t, struct boot_time now, size_t *ret);
/* Whether the endpoint is known to be a tenure-core. */
bool calls_is_extended(const struct tenure *t, size_t i);
/* Endpoint @i is up but of no use: others are preferred for a while. */
void calls_avoid(struct tenure *t, size_t i);
/* ---- codes.c: what a gRPC status means ---- */

/* Returns a negative errno. */
must_check_ int code_errno(enum rpc_code code, const char *message);
/* Whether the status means that the core has done nothing, and that a retry, here or elsewhere,
 * may work. */
bool code_is_untouched(enum rpc_code code, const char *message);
/* The part Y of a text such as "rpc error: code = X desc = Y". */
const char *code_text(const char *text);

/* ---- keys.c ---- */

/* Converts a key, and the end of a range, to etcd's form. @room has key_len + 1 bytes for the
 * end. Returns 0, or -EINVAL and sets tenure_error(). */
must_check_ int range_of(struct tenure *t, const void *key, size_t key_len, const void *end,
                         size_t end_len, bool prefix, uint8_t *room, ProtobufCBinaryData *ret,
                         ProtobufCBinaryData *ret_end);
/* Like range_of(), with copies in @ret and @ret_end, which the caller has left empty. Also
 * returns -ENOMEM. */
must_check_ int range_copy(struct tenure *t, const void *key, size_t key_len, const void *end,
                           size_t end_len, bool prefix, struct buf *ret, struct buf *ret_end);
/* Check @q and build requests, which borrow from @q and, for a range, from @room, as above. */
must_check_ int range_request(struct tenure *t, const struct tenure_range *q, uint8_t *room,
                              Pb__RangeRequest *ret);
must_check_ int put_request(struct tenure *t, const void *key, size_t key_len,
                            const void *value, size_t value_len, int64_t lease,
                            Pb__PutRequest *ret);
/* Like put_request(), with the lease of that name, which is borrowed too; for cores where
 * leases have names. */
must_check_ int put_request_named(struct tenure *t, const void *key, size_t key_len,
                                  const void *value, size_t value_len, const char *name,
                                  Pb__PutRequest *ret);
must_check_ int delete_request(struct tenure *t, const struct tenure_range *q, uint8_t *room,
                               Pb__DeleteRangeRequest *ret);
/* Finds the lease for a put: @lease itself, or ours. -ESTALE: we hold none. */
must_check_ int lease_of(struct tenure *t, int64_t lease, int64_t *ret);
/* A RangeRequest; the keys that it returns are those of operation 0. kind_range_part is for a
 * request that leaves out keys which the core counts, other than by a limit. */
extern const struct call_kind kind_range, kind_range_part;
must_check_ int found_new(struct tenure_call *c, size_t n);
must_check_ int found_copy(struct found *f, Pb__KeyValue *const *kvs, size_t n);
must_check_ int found_kvs(struct tenure_call *c, size_t i, Pb__KeyValue *const *kvs, size_t n);
/* kv_of() borrows the bytes of @kv, without a NUL after them; kv_bytes() is the size of a
 * copy. */
struct tenure_kv kv_of(const Pb__KeyValue *kv);
size_t kv_bytes(const Pb__KeyValue *kv);

/* ---- leases.c ---- */

extern const struct call_kind kind_revoke;

/* Checks whether a lease can have that name. Returns 0, or -EINVAL and sets tenure_error(). */
must_check_ int lease_name_check(struct tenure *t, const char *name);

/* ---- txn.c ---- */

/* The transaction takes effect only if @key is attached to @lease when the core applies it;
 * otherwise its call ends with -ESTALE, whatever its other conditions are, and
 * tenure_call_error() describes what has happened to the key. At most once in a transaction. */
void txn_guard(struct tenure_txn *x, const void *key, size_t key_len, int64_t lease);

struct tenure *txn_tenure(const struct tenure_txn *x);
bool txn_is_guarded(const struct tenure_txn *x);
/* Sets what tenure_txn_commit() returns, and reports what tenure_error() has now. */
void txn_fail(struct tenure_txn *x, int r);

/* ---- watch.c ---- */

/* For watches of the library itself: @sink is called instead of queueing events. It must only
 * record what has happened. */
typedef void (*watch_sink_fn)(const struct tenure_event *e, void *arg);
void watch_into(struct tenure_watch *w, watch_sink_fn sink, void *arg);
/* Like watch_sink(), for a watch that follows an earlier read: it ends with its stream, so that
 * the caller reads again. No event would reveal that the read was wrong, or that the core was
 * restored since and has reached the same revision again. */
void watch_until_break(struct tenure_watch *w, watch_sink_fn sink, void *arg);

must_check_ int watches_new(struct tenure *t);
struct boot_time watches_run(struct tenure *t, struct boot_time now);
void watches_stop(struct tenure *t);
void watches_free(struct tenure *t);
/* Ends all watches: the history that they follow is void, or the core refuses the user. */
void watches_end(struct tenure *t, int error, const char *why);
/* A replica of our core has reported this revision: a core that stays behind it was restored.
 */
void watches_heard(struct tenure *t, int64_t revision);
/* The call was answered, and `answer` and `revision` are there. */
void watches_answered(const struct tenure_call *c);
void watches_silent(struct tenure *t, size_t i);
/* Probes the endpoint of the watches; they move if it does not answer. */
void watches_probe(struct tenure *t);

/* ---- cache.c ---- */

must_check_ int caches_new(struct tenure *t);
struct boot_time caches_run(struct tenure *t, struct boot_time now);
/* Gives all cache leases back, while there is a connection. */
void caches_stop(struct tenure *t);
void caches_free(struct tenure *t);
/* Empties all caches, which belong to another core; with a negative @error ends them, because
 * the core refuses the user. */
void caches_end(struct tenure *t, int error, const char *why);
void caches_silent(struct tenure *t, size_t i);
