/*
 * Calls to the core, and what comes of them.
 *
 * They wait in line and go out on the endpoint that the member would use, some at a time; one
 * whose connection breaks is asked anew elsewhere if that cannot do it twice. No change is sent
 * to an endpoint before that has said which cluster it is of. An answer becomes what the
 * accessors of tenure.h return at once, and what came over the wire is gone. Not for others
 * than tenure/.
 */
#pragma once

#include <bsd/sys/queue.h>

#include "tenure/internal.h"

/* What is under way at a time, of many: a core takes no more of a connection at once, and what
 * has been sent when it breaks is in doubt. */
#define CALLS_SENT_MAX 1000
#define CALLS_SENT_BYTES ((size_t) 4 << 20)
/* How long no answer of any kind may have come before a call is given up. */
#define CALLS_PATIENCE (10 * NSEC_PER_SEC)
/* How long an endpoint has to answer when it is asked whether it is there. */
#define CALLS_PROBE_WITHIN (500 * NSEC_PER_MSEC)
/* How long one may take that others are answered beside. */
#define CALLS_LIMIT (60 * NSEC_PER_SEC)

/* What an operation has found. */
struct found {
        struct tenure_kv *kvs; /* one piece of memory with what they point to; owned */
        size_t n;
        int64_t count;
};

/* A kind of call. */
struct call_kind {
        const char *path;
        const ProtobufCMessageDescriptor *type; /* of the answer */
        /* Takes what it wants of the answer. Returns 0; what the call ends with, with its
         * sentence in call_says(); or -EBADMSG: there is no sense in it. */
        int (*read)(struct tenure_call *c, const void *answer);
};

/* Nothing: that there is an answer is enough. */
must_check_ int call_read_nothing(struct tenure_call *c, const void *answer);

typedef void (*call_done_fn)(struct tenure_call *c, void *arg);

struct tenure_call {
        TAILQ_ENTRY(tenure_call) entry; /* in `list` */
        LIST_ENTRY(tenure_call) of_all;
        struct call_list *list; /* of those that wait, or are sent; NULL: it is over */
        struct calls *calls;
        const struct call_kind *kind;
        struct buf request;
        uint64_t number; /* in the order of asking */
        struct boot_time since;
        bool changes; /* it is not to be done twice */
        bool local;   /* a replica without a leader may answer it */
        bool named;   /* it has a meaning only where leases have names */
        bool unowned; /* the program wants no answer: it frees itself */
        bool waits;   /* in tenure_call_wait() */

        struct rpc_call *rpc;
        size_t endpoint;
        struct boot_time sent_at;
        void *answer;
        int unread; /* why there is none */

        /* For a call of the library itself: instead of an event; may free @c. */
        call_done_fn done;
        void *arg;
        struct queued *event; /* made before anything can go wrong, or in line to be taken */

        int result;
        char *says; /* owned; NULL: nothing, or there was no memory for it */
        int64_t revision, lease, ttl_ms;
        struct found *found;
        size_t n_found;

        char *name; /* of the lease: that is asked for, or that was found; owned */

        struct switching *switching; /* what makes several of one, and ends it; owned */

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
        uint64_t number; /* of the last one */
        struct end_known {
                struct calls *calls;
                struct rpc_call *asking;
                struct boot_time answer_by;
                bool known;
                bool logged_out; /* its login has ended */
                struct boot_time log_in_at;
                bool extended; /* it is a tenure-core: leases have names */
        } ends[MEMBER_ENDPOINTS_MAX];
        struct boot_time progress; /* an answer came */
        struct boot_time probe_at;
        struct boot_time retry_at, look_at;
        nsec_t backoff;
        size_t looked; /* for an endpoint, in vain */
        size_t avoid;
        struct boot_time avoid_until;
        unsigned worlds;
        bool again;        /* there is more to do, perhaps since the hook has begun to run */
        char trouble[512]; /* the last */
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
/* At tenure_start(), once there is a client. */
void calls_start(struct tenure *t);
/* Ends what is on the connections, before those end; and then all. */
void calls_stop(struct tenure *t);
void calls_free(struct tenure *t);

/* A call of @kind that asks @q, in line; @ret NULL: no answer is wanted. */
must_check_ int call_ask(struct tenure *t, const struct call_kind *kind,
                         const ProtobufCMessage *q, bool changes, struct tenure_call **ret);
/* The same in two steps, where there is more to say of it. call_new() has an empty request;
 * call_begin() puts it in line. */
must_check_ int call_new(struct tenure *t, const struct call_kind *kind,
                         struct tenure_call **ret);
must_check_ int call_begin(struct tenure_call *c, struct tenure_call **ret);

/* One of the library itself that asks @q: @done takes it when it is over. Until then it is in
 * *@ret, which is NULL when there was no memory to ask. */
must_check_ int call_ask_for(struct tenure *t, const struct call_kind *kind,
                             const ProtobufCMessage *q, bool changes, call_done_fn done,
                             void *arg, struct tenure_call **ret);
/* The same for a request that may be done twice, as the bytes that member/ has made. */
must_check_ int call_ask_packed(struct tenure *t, const struct call_kind *kind,
                                const struct buf *request, call_done_fn done, void *arg,
                                struct tenure_call **ret);

/* One that asks nothing itself, others do for it; and its end. */
must_check_ int call_hold(struct tenure_call *c, struct tenure_call **ret);
void call_end(struct tenure_call *c, int result);

struct tenure *call_tenure(const struct tenure_call *c);

/* Its sentence. */
void call_says(struct tenure_call *c, const char *fmt, ...) printf_(2, 3);

/* Runs when the loop does next. */
void calls_soon(struct tenure *t);
void calls_run_again(struct calls *k);
/* What went wrong last. */
void calls_trouble(struct calls *k, size_t i, const char *why);

/* ---- switchover.c ---- */

/* Accepts NULL. What was asked may go on. */
struct switching *switching_free(struct switching *s);
/* Before what they use ends. */
void switchings_stop(struct tenure *t);

/* ---- endpoints.c ---- */

/* The login there has ended: nothing is sent until another one is made, which calls_log_in()
 * does once no call is under way there, or soon. */
void calls_log_in_later(struct calls *k, size_t i);
void calls_log_in(struct calls *k, struct boot_time now);
/* The endpoint to use now, that has said which cluster it is of, in @ret; false: there is none
 * yet, and calls_run() comes when there is. */
bool calls_endpoint(struct tenure *t, struct boot_time now, size_t *ret);
/* It is a tenure-core, as far as is known. */
bool calls_is_extended(const struct tenure *t, size_t i);
/* @i is up and of no use, for a while: others come first. */
void calls_avoid(struct tenure *t, size_t i);
/* ---- codes.c: what a gRPC status means ---- */

/* A negative errno. */
must_check_ int code_errno(enum rpc_code code, const char *message);
/* The login that goes with the connection has ended. */
bool code_is_login(enum rpc_code code, const char *message);
/* The core says that it has done nothing, and another one, or the same one later, may. */
bool code_is_untouched(enum rpc_code code, const char *message);
/* Of a text such as "rpc error: code = X desc = Y": Y. */
const char *code_text(const char *text);

/* ---- keys.c ---- */

/* As etcd wants a key, and the end of a range. @end has room for key_len + 1 bytes. Returns 0
 * or -EINVAL, with a sentence. */
must_check_ int range_of(struct tenure *t, const void *key, size_t key_len, const void *end,
                         size_t end_len, bool prefix, uint8_t *room, ProtobufCBinaryData *ret,
                         ProtobufCBinaryData *ret_end);
/* The same as copies, in @ret and @ret_end, which are empty before. Also returns -ENOMEM. */
must_check_ int range_copy(struct tenure *t, const void *key, size_t key_len, const void *end,
                           size_t end_len, bool prefix, struct buf *ret, struct buf *ret_end);
/* The requests, checked, with what they borrow of @q and, for a range, of @room, as above. */
must_check_ int range_request(struct tenure *t, const struct tenure_range *q, uint8_t *room,
                              Pb__RangeRequest *ret);
must_check_ int put_request(struct tenure *t, const void *key, size_t key_len,
                            const void *value, size_t value_len, int64_t lease,
                            Pb__PutRequest *ret);
/* The same with the lease of a name, which is borrowed too: for cores where leases have names.
 */
must_check_ int put_request_named(struct tenure *t, const void *key, size_t key_len,
                                  const void *value, size_t value_len, const char *name,
                                  Pb__PutRequest *ret);
must_check_ int delete_request(struct tenure *t, const struct tenure_range *q, uint8_t *room,
                               Pb__DeleteRangeRequest *ret);
/* The lease to put something with: @lease itself, or ours. -ESTALE: there is none. */
must_check_ int lease_of(struct tenure *t, int64_t lease, int64_t *ret);
/* A RangeRequest; what there is of the range is found as operation 0. */
extern const struct call_kind kind_range;
must_check_ int found_new(struct tenure_call *c, size_t n);
must_check_ int found_copy(struct found *f, Pb__KeyValue *const *kvs, size_t n);
must_check_ int found_kvs(struct tenure_call *c, size_t i, Pb__KeyValue *const *kvs, size_t n);
/* It borrows the bytes of @kv, without a NUL behind them; and what a copy with those takes. */
struct tenure_kv kv_of(const Pb__KeyValue *kv);
size_t kv_bytes(const Pb__KeyValue *kv);

/* ---- leases.c ---- */

extern const struct call_kind kind_revoke;

/* Could a lease have that name? Returns 0 or -EINVAL, with a sentence. */
must_check_ int lease_name_check(struct tenure *t, const char *name);

/* ---- txn.c ---- */

/* The transaction takes effect only while @key is on the lease @lease, which the core judges
 * when it applies it; its call ends with -ESTALE otherwise, whatever else it has asked for, and
 * tells what became of the key. Once in a transaction. */
void txn_guard(struct tenure_txn *x, const void *key, size_t key_len, int64_t lease);

struct tenure *txn_tenure(const struct tenure_txn *x);
bool txn_is_guarded(const struct tenure_txn *x);
/* What tenure_txn_commit() says; the sentence is in tenure_error() now. */
void txn_fail(struct tenure_txn *x, int r);

/* ---- watch.c ---- */

/* Who asks inside of the library: @sink instead of events. It only takes note. */
typedef void (*watch_sink_fn)(const struct tenure_event *e, void *arg);
void watch_into(struct tenure_watch *w, watch_sink_fn sink, void *arg);

must_check_ int watches_new(struct tenure *t);
struct boot_time watches_run(struct tenure *t, struct boot_time now);
void watches_stop(struct tenure *t);
void watches_free(struct tenure *t);
/* All end: what they are to go on from is void, or the user is not let in. */
void watches_end(struct tenure *t, int error, const char *why);
void watches_silent(struct tenure *t, size_t i);
/* Is the endpoint still there that the watches are on? They move when it does not say so. */
void watches_probe(struct tenure *t);

/* ---- cache.c ---- */

must_check_ int caches_new(struct tenure *t);
struct boot_time caches_run(struct tenure *t, struct boot_time now);
/* What is here is given back, while there is a connection. */
void caches_stop(struct tenure *t);
void caches_free(struct tenure *t);
/* What is here is of another core, or the user is not let in: @error, and it is over. */
void caches_end(struct tenure *t, int error, const char *why);
void caches_silent(struct tenure *t, size_t i);
