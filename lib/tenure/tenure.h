/*
 * libtenure: membership, leases, guarded writes and locks for a program of your own.
 *
 * A struct tenure is one tie to one cluster: to the agent of this host, over D-Bus, and to the
 * lease core, be it tenure-core or etcd. It starts no event loop and calls nobody back: wait
 * for its descriptor, dispatch, take the events that came of it.
 *
 *     struct pollfd p = {.fd = tenure_get_fd(t), .events = POLLIN};
 *
 *     poll(&p, 1, tenure_get_timeout(t));
 *     tenure_dispatch(t);
 *     while ((e = tenure_pop_event(t)))
 *             ...
 *
 * Where a function returns an int, 0 or more is success and a negative errno is not;
 * tenure_error() then has a sentence for a person. An object is used by one thread at a time;
 * several objects are independent of each other. What is returned by pointer to const is
 * borrowed; each function says until when. Structures are never allocated by the caller, and
 * may grow at their end.
 *
 * Keys and values are bytes; lengths are in bytes. Durations are in milliseconds, instants in
 * microseconds of CLOCK_BOOTTIME. See libtenure(3).
 */
#ifndef TENURE_H
#define TENURE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct tenure;
struct tenure_call;
struct tenure_txn;
struct tenure_watch;
struct tenure_lock;
struct tenure_cache;
struct tenure_work;

/* ---- the tie ---- */

int tenure_new(struct tenure **ret);

/* Ends everything that belongs to it, calls, watches and locks included: free none of them
 * afterwards. A lease of its own ends by its TTL, unless tenure_leave() came before. Accepts
 * NULL; returns NULL. */
struct tenure *tenure_free(struct tenure *t);

/* Before tenure_start(). Strings are copied; NULL is the default. */

/* URLs with commas between them, or srv://NAME. Default: $TENURE_ENDPOINTS, or else the
 * endpoint that this host's agent is connected to. */
int tenure_set_endpoints(struct tenure *t, const char *urls);
/* The cluster's name in the keys. Default: the agent's, or "default" where there is none. */
int tenure_set_cluster(struct tenure *t, const char *name);
/* PEM files for https:// endpoints; @ca NULL: the system's. */
int tenure_set_tls(struct tenure *t, const char *ca, const char *cert, const char *key);
/* Who to log in as, where the core asks. */
int tenure_set_user(struct tenure *t, const char *name, const char *password);

/* Connects, as far as what is asked for needs it, and returns at once. -EINVAL for what was set
 * and is no URL, no file, no name. */
int tenure_start(struct tenure *t);

/* What went wrong last, in one sentence: of a function that failed, or else why no endpoint is
 * reached; "" where nothing has. Borrowed until the next call. */
const char *tenure_error(const struct tenure *t);

/* "0.1.0" */
const char *tenure_version(void);

/* ---- waiting ---- */

/* Readable (POLLIN) when there is something to dispatch, deadlines included; also after the
 * host slept. The same from tenure_new() to tenure_free(). */
int tenure_get_fd(const struct tenure *t);
/* For poll(2): 0 when there is something to dispatch or to take already, -1 otherwise. */
int tenure_get_timeout(const struct tenure *t);

/* Does what is to be done, without waiting. */
int tenure_dispatch(struct tenure *t);

/* All of it for who has nothing else to wait for: returns 1 when an event can be taken, 0 when
 * @timeout_ms have passed (-1: never). */
int tenure_wait(struct tenure *t, int timeout_ms);

/* ---- events ---- */

enum tenure_event_type {
        /* tenure_follow(): `node`, and `reason` where it left */
        TENURE_NODE_JOINED = 1,
        TENURE_NODE_LEFT,
        TENURE_NODE_CHANGED,
        /* `service`, and `reason` where it was removed */
        TENURE_SERVICE_ADDED,
        TENURE_SERVICE_REMOVED,
        TENURE_SERVICE_CHANGED,
        /* all that was there at `revision` has been reported; from now on, changes are */
        TENURE_SYNCED,
        /* changes are not heard of now; TENURE_SYNCED follows when they are again, after those
         * that were missed */
        TENURE_STALE,
        /* tenure_hold_with_agent(), tenure_hold_own(): `lease`; `reason`. TENURE_LOST with the
         * `error` -EEXIST: another tie has the session's name, which is waited for */
        TENURE_HELD,
        TENURE_JEOPARDY,
        TENURE_LOST,
        /* `call` has its result */
        TENURE_REPLY,
        /* `watch`: `kv`, and `before` where it was asked for */
        TENURE_PUT,
        TENURE_DELETE,
        /* `watch` ended: `error`, `reason`; -ENODATA: what it was to begin with is compacted */
        TENURE_WATCH_ENDED,
        /* `lock` is ours, with its token in `revision`; or no more, with the `reason`; an
         * `error`: it was refused, and is not waited for */
        TENURE_LOCKED,
        TENURE_UNLOCKED,
        /* `cache` has all that it is for, as of `revision`; or it may not be read now, with the
         * `reason`; an `error`: and never will be */
        TENURE_CACHED,
        TENURE_UNCACHED,
        /* `lock` is to be handed over to whom `reason` names, by tenure_lock_deadline(): stop,
         * then tenure_hand_over() */
        TENURE_ASKED,
        /* `work`: `task` is this member's from now on, with its token in `revision`; it is to
         * end, for this `reason`, and tenure_task_ended() says that it has; the group has been
         * left, or an `error`: the core refuses it */
        TENURE_TASK_BEGIN,
        TENURE_TASK_END,
        TENURE_WORK_LEFT,
};

/* What a host says of itself. Strings are never NULL. */
struct tenure_node {
        const char *name, *id, *incarnation, *boot_id;
        const char *since;     /* when it joined: 2026-11-21T02:00:00Z */
        const char *addresses; /* best first, with commas */
        const char *tags;      /* "role=primary,zone=a"; see tenure_tag() */
        const char *version, *os_release;
        const char *degraded; /* what slows it down; "" while it is well */
        const char *leaving;  /* why it gives its place back; "" while it stays */
        uint64_t ttl_ms;
        int64_t lease;
        int64_t join_revision, revision;
};

struct tenure_service {
        const char *name, *node, *instance; /* instance "": the only one on its node */
        const char *address;                /* "": its node's */
        const char *tags, *unit, *state, *since;
        uint16_t port; /* 0: none to tell */
        int64_t lease;
        int64_t join_revision, revision;
};

/* The value of one tag of such a list in @value, with its end; returns its length, -ENOENT
 * where there is no such tag, or -ENOBUFS. */
int tenure_tag(const char *tags, const char *name, char *value, size_t size);

struct tenure_kv {
        const void *key, *value; /* with a NUL behind them that is not counted */
        size_t key_len, value_len;
        int64_t create_revision, mod_revision, version;
        int64_t lease; /* 0: none */
};

/* Members that an event does not speak of are 0 or NULL; `reason` is never NULL. */
struct tenure_event {
        enum tenure_event_type type;
        int64_t revision;
        int error; /* a negative errno, or 0 */
        const char *reason;
        int64_t lease;
        const struct tenure_node *node;
        const struct tenure_service *service;
        const struct tenure_kv *kv, *before;
        struct tenure_call *call;
        struct tenure_watch *watch;
        struct tenure_lock *lock;
        struct tenure_cache *cache;
        struct tenure_work *work;
        const char *task;
};

/* The next one, or NULL. Borrowed until the next tenure_pop_event(). */
const struct tenure_event *tenure_pop_event(struct tenure *t);

/* ---- who is there ---- */

#define TENURE_NODES 1
#define TENURE_SERVICES 2

/* Reports all that is there, then TENURE_SYNCED, then each change once and in order, with its
 * revision; after a broken connection from where it ended. Before tenure_start(). */
int tenure_follow(struct tenure *t, unsigned what);

/* As of the last tenure_dispatch(), which is further than the events that wait. Borrowed until
 * the next tenure_dispatch(). Iterate: the next after @name, from NULL on; NULL at the end. */
const struct tenure_node *tenure_find_node(const struct tenure *t, const char *name);
const struct tenure_node *tenure_next_node(const struct tenure *t, const char *name);
size_t tenure_n_nodes(const struct tenure *t);
/* Of one service, in the order of nodes and instances, after @after; from NULL on. */
const struct tenure_service *tenure_next_service(const struct tenure *t, const char *name,
                                                 const struct tenure_service *after);

/* ---- may I still act? ---- */

/* By this host's place, which its agent holds: no lease of one's own, no heartbeat more.
 * Before tenure_start(). */
int tenure_hold_with_agent(struct tenure *t);
/* By a lease of one's own at the core, kept alive by tenure_dispatch(): call it in time. @name:
 * of its key, /tenure/CLUSTER/sessions/NAME, which one tie has at a time; NULL: a random one.
 * Before tenure_start(). */
int tenure_hold_own(struct tenure *t, uint64_t ttl_ms, const char *name);

/* Gives a lease of one's own back; TENURE_LOST says when. The agent's place stays with the
 * host, and this tie does not act by it any more. */
int tenure_leave(struct tenure *t);

/* True until the holder's deadline, which passes before anybody else can have the place: on a
 * clock that goes on in suspend and is not slewed with the date. Costs no system call, where
 * the agent's page can be mapped. False once the agent is gone for that long, or says that the
 * place is being given back; and while a TENURE_LOST waits to be taken. */
bool tenure_may_act(const struct tenure *t);
/* When that ends, if nothing is renewed; 0: it has. */
uint64_t tenure_deadline(const struct tenure *t);
/* 0: none is held. */
int64_t tenure_lease(const struct tenure *t);

/* ---- this program as a service of this host, while the place or the lease is held ---- */

/* @s: name, instance, address, port, tags; the rest is filled in. Again: it changed. */
int tenure_register(struct tenure *t, const struct tenure_service *s);
int tenure_unregister(struct tenure *t, const char *name, const char *instance);

/* ---- keys ---- */

/* Each begins a call; TENURE_REPLY says that it has ended. *@ret may be NULL for who wants no
 * answer. A call that was given to the core and has no answer when the connection breaks is
 * given once more only if it changes nothing; a change ends with -EREMOTEIO: it may have
 * happened. */

struct tenure_range {
        const void *key;
        size_t key_len;
        const void *end; /* NULL: this key alone; as in etcd: "\0" all from key on */
        size_t end_len;
        bool prefix;      /* all that begin with key */
        int64_t revision; /* 0: now */
        int64_t limit;    /* 0: none */
        bool keys_only, count_only, serializable;
};

int tenure_get(struct tenure *t, const struct tenure_range *q, struct tenure_call **ret);
/* @lease: 0: none; TENURE_LEASE_OURS: the one that tenure_lease() names. */
int tenure_put(struct tenure *t, const void *key, size_t key_len, const void *value,
               size_t value_len, int64_t lease, struct tenure_call **ret);
/* With the lease that has @name when the core applies it; -ENOENT: none has. */
int tenure_put_named(struct tenure *t, const void *key, size_t key_len, const void *value,
                     size_t value_len, const char *name, struct tenure_call **ret);
int tenure_delete(struct tenure *t, const struct tenure_range *q, struct tenure_call **ret);

#define TENURE_LEASE_OURS INT64_C(-1)

/* Waits for the answer and nothing else; events that come meanwhile can be taken afterwards,
 * the call's own TENURE_REPLY aside. Returns its result, or -ETIMEDOUT, and the call goes on.
 */
int tenure_call_wait(struct tenure_call *c, int timeout_ms);
/* Forgets it. What was given to the core may happen. Accepts NULL; returns NULL. */
struct tenure_call *tenure_call_free(struct tenure_call *c);

/* -EINPROGRESS; 0; or why it failed, with tenure_call_error() as a sentence. -ESTALE: guarded
 * by a lease that has ended. -ECANCELED: the conditions of a transaction do not hold, and it
 * has done what it has to do else. */
int tenure_call_result(const struct tenure_call *c);
const char *tenure_call_error(const struct tenure_call *c);

/* Once it has a result; borrowed until tenure_call_free(). Of a transaction: of its operation
 * number @op, in the order in which they were added; else 0. */
int64_t tenure_call_revision(const struct tenure_call *c);
size_t tenure_call_n_kvs(const struct tenure_call *c, size_t op);
const struct tenure_kv *tenure_call_kv(const struct tenure_call *c, size_t op, size_t i);
/* How many there are, or were deleted, where that is more than are returned. */
int64_t tenure_call_count(const struct tenure_call *c, size_t op);
/* Of a lease that was granted, renewed, or asked for. */
int64_t tenure_call_lease(const struct tenure_call *c);
/* "": it has none, or that was not asked. */
const char *tenure_call_lease_name(const struct tenure_call *c);
int64_t tenure_call_ttl_ms(const struct tenure_call *c);

/* A transaction: if all conditions hold, what follows them; else what follows
 * tenure_txn_else(). What goes wrong while it is put together is said by tenure_txn_commit(),
 * which also frees it. */
int tenure_txn_new(struct tenure *t, struct tenure_txn **ret);
struct tenure_txn *tenure_txn_free(struct tenure_txn *x);

/* Only while this tie's place or lease is held, judged by the core when it applies it: what was
 * held up on the way by a pause does not happen. The call ends with -ESTALE. */
void tenure_txn_if_held(struct tenure_txn *x);
/* @op: '=', '!', '<', '>' */
void tenure_txn_if_value(struct tenure_txn *x, const void *key, size_t key_len, char op,
                         const void *value, size_t value_len);
void tenure_txn_if_version(struct tenure_txn *x, const void *key, size_t key_len, char op,
                           int64_t version);
void tenure_txn_if_created(struct tenure_txn *x, const void *key, size_t key_len, char op,
                           int64_t revision);
void tenure_txn_if_modified(struct tenure_txn *x, const void *key, size_t key_len, char op,
                            int64_t revision);
void tenure_txn_if_lease(struct tenure_txn *x, const void *key, size_t key_len, char op,
                         int64_t lease);
void tenure_txn_get(struct tenure_txn *x, const struct tenure_range *q);
void tenure_txn_put(struct tenure_txn *x, const void *key, size_t key_len, const void *value,
                    size_t value_len, int64_t lease);
void tenure_txn_put_named(struct tenure_txn *x, const void *key, size_t key_len,
                          const void *value, size_t value_len, const char *name);
void tenure_txn_delete(struct tenure_txn *x, const struct tenure_range *q);
void tenure_txn_else(struct tenure_txn *x);
int tenure_txn_commit(struct tenure_txn *x, struct tenure_call **ret);

/* A put that takes effect only while this tie's place or lease is held. */
int tenure_put_held(struct tenure *t, const void *key, size_t key_len, const void *value,
                    size_t value_len, struct tenure_call **ret);

/* ---- watches ---- */

struct tenure_watch_options {
        const void *key;
        size_t key_len;
        const void *end; /* as of struct tenure_range */
        size_t end_len;
        bool prefix;
        int64_t revision; /* from this one on; 0: from now on */
        bool before;      /* with what was there before */
};

/* Each change once, in order, on whatever replica answers. */
int tenure_watch(struct tenure *t, const struct tenure_watch_options *o,
                 struct tenure_watch **ret);
struct tenure_watch *tenure_watch_free(struct tenure_watch *w);

/* ---- caches ---- */

/* Keeps a key, or all keys of a range, here, with the core's promise that nothing in it changes
 * for a while: to read it costs no round trip, and finds what the core has. A write to it waits
 * until all who have such a promise have given it back, or for 3 s from when they asked for it,
 * whatever becomes of them. For what is read often and seldom written. Of @q the key, its end
 * and `prefix` count; there may be 1,000 keys and 1 MiB. TENURE_CACHED says that it is here;
 * TENURE_UNCACHED that it is not any more: it is asked for again, without end. -EOPNOTSUPP in
 * TENURE_UNCACHED: the core is an etcd. */
int tenure_cache(struct tenure *t, const struct tenure_range *q, struct tenure_cache **ret);
/* Gives it back. Accepts NULL; returns NULL. */
struct tenure_cache *tenure_cache_free(struct tenure_cache *c);

/* Whether it may be read now. Costs no system call. */
bool tenure_cache_is_good(const struct tenure_cache *c);
/* What it has of @key: 0; -ENOENT: there is no such key; -EAGAIN: it may not be read now, which
 * tenure_get() can. *@ret is borrowed until the next tenure_dispatch(). */
int tenure_cache_get(const struct tenure_cache *c, const void *key, size_t key_len,
                     const struct tenure_kv **ret);
/* All that it has, in the order of keys; 0 and NULL while it may not be read. */
size_t tenure_cache_n_kvs(const struct tenure_cache *c);
const struct tenure_kv *tenure_cache_kv(const struct tenure_cache *c, size_t i);

/* ---- leases of any kind ---- */

/* @name NULL: none; -EEXIST: a lease that lives has it. @ttl_ms: etcd counts in seconds, and
 * gets the next whole one. */
int tenure_lease_grant(struct tenure *t, uint64_t ttl_ms, const char *name,
                       struct tenure_call **ret);
int tenure_lease_renew(struct tenure *t, int64_t lease, struct tenure_call **ret);
int tenure_lease_revoke(struct tenure *t, int64_t lease, struct tenure_call **ret);
int tenure_lease_time_to_live(struct tenure *t, int64_t lease, struct tenure_call **ret);
/* The same, with its keys: those of operation 0, without values. */
int tenure_lease_keys(struct tenure *t, int64_t lease, struct tenure_call **ret);
/* The same of the lease that has @name, which the core looks up when it does it; -ENOENT: none
 * has. The lease of a host's place has the name of its node. tenure_lease_find() is
 * tenure_lease_time_to_live(). */
int tenure_lease_renew_named(struct tenure *t, const char *name, struct tenure_call **ret);
int tenure_lease_revoke_named(struct tenure *t, const char *name, struct tenure_call **ret);
int tenure_lease_find(struct tenure *t, const char *name, struct tenure_call **ret);
int tenure_lease_keys_named(struct tenure *t, const char *name, struct tenure_call **ret);

/* ---- locks and elections ---- */

/* Waits for @name, in the order of asking, with the place or the lease that is held: each who
 * waits watches the one before it. @value: what others see of the holder; may be NULL.
 * TENURE_LOCKED says that it is ours, TENURE_UNLOCKED that it is not any more, at the holder's
 * deadline at the latest; then it is waited for again. */
int tenure_lock(struct tenure *t, const char *name, const char *value,
                struct tenure_lock **ret);
/* Larger with each holder: for resources that refuse a smaller one. 0: not ours. */
int64_t tenure_lock_token(const struct tenure_lock *l);
/* Ours, and tenure_may_act(). */
bool tenure_lock_is_held(const struct tenure_lock *l);
/* Gives it back, or stops waiting: a TENURE_UNLOCKED with this handle, which is good for
 * nothing but a comparison by then, says when that is done. Accepts NULL; returns NULL. */
struct tenure_lock *tenure_unlock(struct tenure_lock *l);

/* After TENURE_ASKED, once the program has stopped: the named one has the lock next. Then
 * TENURE_UNLOCKED, and it is waited for again, at the end of the line; or TENURE_LOCKED with
 * the same token, since that one is gone. -EINVAL: nobody has asked. */
int tenure_hand_over(struct tenure_lock *l);
/* Until when it is ours if nothing is renewed: the place's deadline, or, once it is to be
 * handed over, the sooner one of that, when it goes whether the program has stopped or not. In
 * microseconds; 0: it is not ours. */
uint64_t tenure_lock_deadline(const struct tenure_lock *l);

/* Asks the holder of @lock to stop, within @within_ms, and to hand it over to @to: a node, or a
 * session, that waits for it; NULL: to the next in line. The call ends when that one has it, or
 * nothing will come of it. -ENOENT: nobody holds it, or @to does not wait for it; -EALREADY:
 * @to holds it; -EBUSY: another switchover of it is under way; -EOPNOTSUPP: a program holds it,
 * or waits before @to, that is none of libtenure's or tenurectl's; -ETIMEDOUT: the holder does
 * not answer, and keeps it. */
int tenure_switchover(struct tenure *t, const char *lock, const char *to, int64_t within_ms,
                      struct tenure_call **ret);

struct tenure_switched {
        const char *from, *to; /* nodes or sessions; "" where it is not known */
        int64_t token;         /* of the new holder */
        int64_t stop_us;       /* from the request until the lock was given over */
        int64_t pause_us;      /* from then until the new holder had it; -1: it does not say */
};

/* What it has come to, once its result is 0, or -EALREADY; else NULL. Borrowed until
 * tenure_call_free(). */
const struct tenure_switched *tenure_call_switched(const struct tenure_call *c);
/* ---- shared work ---- */

struct tenure_work_options {
        const char *const *tasks; /* their names; NULL: they are called 1, 2 and so on */
        size_t n_tasks;
        unsigned weight;    /* of what others have, in proportion; 0: 100 */
        unsigned settle_ms; /* for so long nobody joins before tasks move to who has; 0: 1000 */
};

/* Joins @group with a lease of one's own, as the member that the session's name says.
 * The live members divide the tasks; each is at one of them at a time, and moves only when the
 * member that has it goes, or one comes whose it is to be. TENURE_TASK_BEGIN and
 * TENURE_TASK_END say which are this member's. After a loss of the lease all have ended, and it
 * joins again. */
int tenure_work_join(struct tenure *t, const char *group, const struct tenure_work_options *o,
                     struct tenure_work **ret);
/* The answer to a TENURE_TASK_END: nothing of it runs any more. Before that nobody else has it,
 * while the lease is held. */
int tenure_task_ended(struct tenure_work *w, const char *task);
/* Larger with each member that has it; 0: it is not this one's. */
int64_t tenure_task_token(const struct tenure_work *w, const char *task);
/* This member's, not to end, and tenure_may_act(). */
bool tenure_task_is_held(const struct tenure_work *w, const char *task);
/* Has all tasks end and leaves the group: a TENURE_WORK_LEFT with this handle, which is good
 * for nothing but a comparison by then, says when that is done; until it is there,
 * TENURE_TASK_END is to be answered. Accepts NULL; returns NULL. */
struct tenure_work *tenure_work_leave(struct tenure_work *w);

#ifdef __cplusplus
}
#endif

#endif
