/*
 * libtenure: membership, leases, guarded writes and locks for your own programs.
 *
 * A struct tenure is a tie to one cluster: to the agent on this host, over D-Bus, and to the
 * lease core, which is tenure-core or etcd. The library starts no threads, runs no event loop
 * and calls nothing back: wait for the tie's descriptor, dispatch, and take the events.
 *
 *     struct pollfd p = {.fd = tenure_get_fd(t), .events = POLLIN};
 *
 *     poll(&p, 1, tenure_get_timeout(t));
 *     tenure_dispatch(t);
 *     while ((e = tenure_pop_event(t)))
 *             ...
 *
 * A function that returns int returns 0 or more on success, and a negative errno on failure;
 * tenure_error() then describes the failure in one sentence. Only one thread at a time may use
 * a tie and what belongs to it; separate ties are independent of each other. Pointers to const
 * are borrowed; each function says how long they remain valid. Structures that the library
 * returns may grow at their end in later versions, so do not depend on their size. Those that
 * you pass in never grow; set the members that you do not use to 0.
 *
 * Keys and values are bytes, and lengths count bytes. Unless a name says otherwise, durations
 * are in milliseconds and instants in microseconds of CLOCK_BOOTTIME. See libtenure(3).
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

/* Makes a tie, which the caller owns and frees with tenure_free(). Connects to nothing yet. */
int tenure_new(struct tenure **ret);

/* Frees the tie with everything that belongs to it (calls, watches, caches, locks, groups), so
 * do not free those afterwards. A lease of the tie's own then expires, unless tenure_leave()
 * has given it back. Accepts NULL; returns NULL. */
struct tenure *tenure_free(struct tenure *t);

/* Settings. Call these before tenure_start(); after it they fail with -EBUSY. Strings are
 * copied; NULL selects the default. */

/* @urls: URLs separated by commas, or srv://NAME. Default: $TENURE_ENDPOINTS if it is set,
 * otherwise the endpoint that this host's agent is connected to. */
int tenure_set_endpoints(struct tenure *t, const char *urls);
/* The cluster's name, which is a part of its keys. Default: the agent's cluster if the
 * endpoint comes from the agent, otherwise "default". */
int tenure_set_cluster(struct tenure *t, const char *name);
/* Paths of PEM files, for https:// endpoints. @ca NULL: the system's certificate authorities.
 * @cert and @key are given together or not at all. */
int tenure_set_tls(struct tenure *t, const char *ca, const char *cert, const char *key);
/* The user to log in as, if the core has authentication enabled. */
int tenure_set_user(struct tenure *t, const char *name, const char *password);

/* Starts to connect to what the settings and calls so far require, and returns without waiting.
 * -EBUSY: the tie was started before; -EINVAL: an endpoint is not a URL, or a file cannot be
 * used. */
int tenure_start(struct tenure *t);

/* The last failure, in one sentence: of the function that failed last or, if none has failed,
 * the reason why no endpoint can be reached; "" if there is none. Valid until the next call on
 * this tie. */
const char *tenure_error(const struct tenure *t);

/* The version of the library, such as "0.1.0". */
const char *tenure_version(void);

/* ---- waiting ---- */

/* The descriptor to poll. It becomes readable (POLLIN) when tenure_dispatch() has something to
 * do, which includes deadlines that have passed, also while the host was suspended. It is the
 * same descriptor from tenure_new() to tenure_free(), and belongs to the tie: do not read from
 * it or close it. */
int tenure_get_fd(const struct tenure *t);
/* The timeout for poll(2): 0 while events wait to be taken, -1 otherwise. */
int tenure_get_timeout(const struct tenure *t);

/* Does the work that is due (I/O, renewals, deadlines) and never blocks. -ENOMEM: a change was
 * lost because memory ran out; free the tie and make another. -ECHILD: called in a forked child
 * of the process that made the tie. */
int tenure_dispatch(struct tenure *t);

/* For a program that waits for nothing else: dispatches and polls until an event can be taken,
 * and returns 1; or 0 after @timeout_ms milliseconds (-1: no limit). */
int tenure_wait(struct tenure *t, int timeout_ms);

/* ---- events ---- */

enum tenure_event_type {
        /* After tenure_follow(): `node`, and for TENURE_NODE_LEFT the `reason`. */
        TENURE_NODE_JOINED = 1,
        TENURE_NODE_LEFT,
        TENURE_NODE_CHANGED,
        /* After tenure_follow(): `service`, and for TENURE_SERVICE_REMOVED the `reason`. */
        TENURE_SERVICE_ADDED,
        TENURE_SERVICE_REMOVED,
        TENURE_SERVICE_CHANGED,
        /* Everything that existed at `revision` has been reported; changes follow. */
        TENURE_SYNCED,
        /* No replica can be followed at present. Once one can, the changes that were missed
         * are reported, and then TENURE_SYNCED. */
        TENURE_STALE,
        /* After tenure_hold_with_agent() or tenure_hold_own(): the place or the lease is held,
         * is close to its deadline without a renewal, or is lost; with `lease` and `reason`.
         * TENURE_LOST with `error` -EEXIST: another tie holds the session's name, and this tie
         * waits for it. */
        TENURE_HELD,
        TENURE_JEOPARDY,
        TENURE_LOST,
        /* `call` has ended: `error` is its result, `reason` describes it. */
        TENURE_REPLY,
        /* `watch` reports a change: `kv`, and `before` if that was asked for. */
        TENURE_PUT,
        TENURE_DELETE,
        /* `watch` has ended: `error`, `reason`. -ENODATA: the revision that it had to continue
         * from is compacted. */
        TENURE_WATCH_ENDED,
        /* This tie holds `lock`, and its token is `revision`; or it does not hold it any more,
         * or has given it back, for `reason`. With an `error`: the core has refused the lock,
         * and the tie does not ask again. */
        TENURE_LOCKED,
        TENURE_UNLOCKED,
        /* `cache` can be read, and has the state of `revision`; or it cannot be read now, for
         * `reason`. With an `error`: it never will be readable. */
        TENURE_CACHED,
        TENURE_UNCACHED,
        /* `lock` is to be handed over to the node or session that `reason` names: stop before
         * tenure_lock_deadline(), then call tenure_hand_over(). */
        TENURE_ASKED,
        /* In the group `work`: `task` belongs to this member from now on, and its token is
         * `revision`; this member must stop `task`, for `reason`, and then call
         * tenure_task_ended(); the tie has left the group or, with an `error`, the core does
         * not let it in. */
        TENURE_TASK_BEGIN,
        TENURE_TASK_END,
        TENURE_WORK_LEFT,
};

/* What a host publishes about itself. Strings are never NULL. */
struct tenure_node {
        const char *name, *id, *incarnation, *boot_id;
        const char *since;     /* when it joined, such as 2026-11-21T02:00:00Z */
        const char *addresses; /* separated by commas, the preferred one first */
        const char *tags;      /* "role=primary,zone=a"; see tenure_tag() */
        const char *version, *os_release;
        const char *degraded; /* what slows it down; "" if nothing does */
        const char *leaving;  /* why it is giving its place back; "" if it is not */
        uint64_t ttl_ms;
        int64_t lease;
        int64_t join_revision, revision;
};

struct tenure_service {
        const char *name, *node, *instance; /* instance "": the only one on its node */
        const char *address;                /* "": the address of its node */
        const char *tags, *unit, *state, *since;
        uint16_t port; /* 0: none */
        int64_t lease;
        int64_t join_revision, revision;
};

/* Copies the value of the tag @name from the list @tags to @value, with a terminating NUL.
 * Returns its length without the NUL; -ENOENT: there is no such tag; -ENOBUFS: the value and
 * its NUL need more than @size bytes. */
int tenure_tag(const char *tags, const char *name, char *value, size_t size);

struct tenure_kv {
        const void *key, *value; /* each followed by a NUL that its length does not count */
        size_t key_len, value_len;
        int64_t create_revision, mod_revision, version;
        int64_t lease; /* 0: none */
};

/* Members that do not apply to the event's type are 0 or NULL; `reason` is never NULL. */
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

/* Takes the next event, or returns NULL if there is none. The event and what it points to are
 * valid until the next tenure_pop_event(). */
const struct tenure_event *tenure_pop_event(struct tenure *t);

/* ---- nodes and services ---- */

#define TENURE_NODES 1
#define TENURE_SERVICES 2

/* Follows nodes, services or both (@what is a mask of the above). Reports everything that
 * exists, then TENURE_SYNCED, then each change once and in order, with its revision; after a
 * broken connection it continues where it was. Call it before tenure_start(). */
int tenure_follow(struct tenure *t, unsigned what);

/* Look-ups in what the tie follows. They see the state of the last tenure_dispatch(), which
 * may be ahead of the events that have not been taken yet. What they return is valid until the
 * next look-up or tenure_dispatch(); NULL: there is no such node.
 * tenure_next_node() returns the first node for NULL, and otherwise the one that follows @name
 * in the order of names, even if @name itself does not exist. */
const struct tenure_node *tenure_find_node(const struct tenure *t, const char *name);
const struct tenure_node *tenure_next_node(const struct tenure *t, const char *name);
size_t tenure_n_nodes(const struct tenure *t);
/* The instances of the service @name, ordered by node and instance: the first one for NULL,
 * otherwise the one that follows @after, which may be the last result. NULL: no more. */
const struct tenure_service *tenure_next_service(const struct tenure *t, const char *name,
                                                 const struct tenure_service *after);

/* ---- may I still act? ---- */

/* Holds this host's place, which the agent holds: this needs no lease of the tie's own and
 * sends no heartbeats. Call it before tenure_start(). -EBUSY: too late, or the tie already
 * holds something. */
int tenure_hold_with_agent(struct tenure *t);
/* Holds a lease of the tie's own, of @ttl_ms milliseconds, which tenure_dispatch() renews: call
 * that whenever the descriptor is readable. The session @name is the key
 * /tenure/CLUSTER/sessions/NAME, which only one tie can hold at a time; NULL: a random name.
 * Call it before tenure_start(). -EBUSY as above; -EINVAL: @ttl_ms or @name is not valid. */
int tenure_hold_own(struct tenure *t, uint64_t ttl_ms, const char *name);

/* Gives the tie's own lease back; tenure_may_act() is false at once, and TENURE_LOST follows
 * when others can have the session's name. With the agent's place, only this tie stops acting
 * by it; the host keeps the place. -EINVAL: the tie holds nothing, or is not started. */
int tenure_leave(struct tenure *t);

/* Whether this program may act as the holder. True until the holder's deadline, which always
 * passes before anybody else can get the place, on a clock that advances during suspend and is
 * not adjusted with the date. Also false once the host starts to give its place back, and while
 * a TENURE_LOST waits to be taken. Reads no more than memory and clocks; a system call is made
 * only if the page that the agent publishes cannot be mapped. */
bool tenure_may_act(const struct tenure *t);
/* The holder's deadline if nothing is renewed before it; 0: tenure_may_act() is false. */
uint64_t tenure_deadline(const struct tenure *t);
/* The id of the lease that is held; 0: tenure_may_act() is false. */
int64_t tenure_lease(const struct tenure *t);

/* ---- register this program as a service ---- */

/* Publishes a service for as long as the place or the lease is held, and again after each loss
 * once it is held again. Reads the name, instance, address, port and tags of @s, of which all
 * but the name may be NULL or 0, and copies them. Call it again to change a service. -EINVAL:
 * the tie holds nothing, or something in @s is not valid; -ENOSPC: too many services. */
int tenure_register(struct tenure *t, const struct tenure_service *s);
/* @instance may be NULL. -ENOENT: no such service is registered. */
int tenure_unregister(struct tenure *t, const char *name, const char *instance);

/* ---- keys ---- */

/* Each of these functions begins a call to the core, copies its arguments, and returns without
 * waiting; TENURE_REPLY follows when the call has ended. The caller owns *@ret and frees it
 * with tenure_call_free(); @ret may be NULL if no answer is wanted. If the connection breaks
 * before the answer, a call that changes nothing is sent again elsewhere; one that changes
 * something is not, and ends with -EREMOTEIO: it may have happened. */

struct tenure_range {
        const void *key;
        size_t key_len;
        const void *end; /* exclusive, as in etcd; NULL: only `key`; "\0": no upper bound */
        size_t end_len;
        bool prefix;      /* all keys that begin with `key`; `end` is NULL then */
        int64_t revision; /* read the state of this revision; 0: the latest */
        int64_t limit;    /* return at most so many keys; 0: no limit */
        bool keys_only, count_only, serializable;
};

int tenure_get(struct tenure *t, const struct tenure_range *q, struct tenure_call **ret);
/* @lease: the key is deleted when this lease ends. 0: no lease; TENURE_LEASE_OURS: the lease
 * that tenure_lease() returns. */
int tenure_put(struct tenure *t, const void *key, size_t key_len, const void *value,
               size_t value_len, int64_t lease, struct tenure_call **ret);
/* Like tenure_put(), with the lease that has the name @name when the core applies the call; the
 * call ends with -ENOENT if no lease has it. */
int tenure_put_named(struct tenure *t, const void *key, size_t key_len, const void *value,
                     size_t value_len, const char *name, struct tenure_call **ret);
/* Uses the key, end and prefix of @q; the rest must be 0. */
int tenure_delete(struct tenure *t, const struct tenure_range *q, struct tenure_call **ret);

#define TENURE_LEASE_OURS INT64_C(-1)

/* Dispatches until the call has ended, and returns its result; or -ETIMEDOUT after @timeout_ms
 * milliseconds (-1: no limit), and the call continues. Events that arrive meanwhile can be
 * taken afterwards; once the call has ended, its TENURE_REPLY is not among them. -ENOTCONN: the
 * tie is not started. */
int tenure_call_wait(struct tenure_call *c, int timeout_ms);
/* Frees the call, at any time. A call that was sent may still take effect. Accepts NULL;
 * returns NULL. */
struct tenure_call *tenure_call_free(struct tenure_call *c);

/* -EINPROGRESS: there is no answer yet; 0: success; otherwise why it failed, which
 * tenure_call_error() describes in one sentence. -ESTALE: the lease that guards the call has
 * ended. -ECANCELED: the conditions of a transaction did not hold, and the operations after
 * tenure_txn_else() were done instead. See tenure_get(3) for the others. */
int tenure_call_result(const struct tenure_call *c);
const char *tenure_call_error(const struct tenure_call *c);

/* The answer, once there is a result; what is returned is valid until tenure_call_free().
 * @op is the number of an operation in a transaction, counted from 0 in the order in which
 * the operations were added; for any other call it is 0. */

/* The core's revision when it answered: for a change, the revision of that change. */
int64_t tenure_call_revision(const struct tenure_call *c);
/* The keys that were read, in the order of keys; NULL: @i is too large. */
size_t tenure_call_n_kvs(const struct tenure_call *c, size_t op);
const struct tenure_kv *tenure_call_kv(const struct tenure_call *c, size_t op, size_t i);
/* How many keys are in the range, including those that a limit has left out; or how many were
 * deleted. */
int64_t tenure_call_count(const struct tenure_call *c, size_t op);
/* Of a call from "leases of any kind" below: the lease's id; its name ("": it has none, or the
 * call does not return it); its TTL as granted or renewed, or the time that is left of it. */
int64_t tenure_call_lease(const struct tenure_call *c);
const char *tenure_call_lease_name(const struct tenure_call *c);
int64_t tenure_call_ttl_ms(const struct tenure_call *c);

/* A transaction. If all its conditions hold, the core does the operations that were added
 * before tenure_txn_else(), otherwise those that were added after it. The functions that add to
 * it return nothing: tenure_txn_commit() reports their first error. It frees the transaction in
 * any case; tenure_txn_free() is for a transaction that is not committed. */
int tenure_txn_new(struct tenure *t, struct tenure_txn **ret);
struct tenure_txn *tenure_txn_free(struct tenure_txn *x);

/* The whole transaction takes effect only while this tie's place or lease is held, which the
 * core checks when it applies the transaction. So a write that was delayed on its way does
 * nothing once the place is lost, and the call ends with -ESTALE. */
void tenure_txn_if_held(struct tenure_txn *x);
/* Conditions. @op is '=', '!' (not equal), '<' or '>'. A key that does not exist has version,
 * revisions and lease 0, and no condition on its value holds. */
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

/* A put, without a lease, that takes effect only while this tie's place or lease is held; see
 * tenure_txn_if_held(). -ESTALE: nothing is held now, and nothing is sent. */
int tenure_put_held(struct tenure *t, const void *key, size_t key_len, const void *value,
                    size_t value_len, struct tenure_call **ret);

/* ---- watches ---- */

struct tenure_watch_options {
        const void *key;
        size_t key_len;
        const void *end; /* as in struct tenure_range */
        size_t end_len;
        bool prefix;
        /* The first revision to report; 0: from now on, see tenure_watch(3). */
        int64_t revision;
        bool before; /* also report what the key was before the change */
};

/* Reports each change of a key or of a range of keys once and in order, as TENURE_PUT and
 * TENURE_DELETE, and continues at another replica if the connection breaks. The caller owns
 * *@ret. */
int tenure_watch(struct tenure *t, const struct tenure_watch_options *o,
                 struct tenure_watch **ret);
/* Ends a watch and drops its events that were not taken. Accepts NULL; returns NULL. */
struct tenure_watch *tenure_watch_free(struct tenure_watch *w);

/* ---- caches ---- */

/* Keeps a key or a range of keys in this program, together with a cache lease: the core's
 * promise that nothing in the range changes for up to 3 s, renewed for as long as the cache
 * exists. A read of the cache needs no round trip and returns what the core has. For keys that
 * are read often and seldom written, since a write to the range waits until each holder has
 * given its cache lease back or, if a holder does not answer, until that lease has ended.
 *
 * Uses the key, end and prefix of @q; the rest must be 0. A range has at most 1,000 keys and
 * 1 MiB. TENURE_CACHED: the cache can be read. TENURE_UNCACHED: it cannot be read now, and the
 * library asks the core again until it can; only with an `error` (-EOPNOTSUPP: the core is an
 * etcd, for example) it never will. The caller owns *@ret. */
int tenure_cache(struct tenure *t, const struct tenure_range *q, struct tenure_cache **ret);
/* Gives the cache lease back and frees the cache. Accepts NULL; returns NULL. */
struct tenure_cache *tenure_cache_free(struct tenure_cache *c);

/* Whether the cache can be read now. Makes no system call. */
bool tenure_cache_is_good(const struct tenure_cache *c);
/* Looks @key up in the cache. -ENOENT: there is no such key; -EAGAIN: the cache cannot be read
 * now, use tenure_get(). *@ret is valid until the next tenure_dispatch(). */
int tenure_cache_get(const struct tenure_cache *c, const void *key, size_t key_len,
                     const struct tenure_kv **ret);
/* All keys in the cache, in the order of keys; 0 and NULL while it cannot be read. Valid until
 * the next tenure_dispatch(). */
size_t tenure_cache_n_kvs(const struct tenure_cache *c);
const struct tenure_kv *tenure_cache_kv(const struct tenure_cache *c, size_t i);

/* ---- leases of any kind ---- */

/* These begin calls, as described above. Nothing renews these leases except the program, with
 * tenure_lease_renew(). TENURE_LEASE_OURS is accepted as an id. */

/* @ttl_ms is rounded up to whole seconds for an etcd; tenure_call_ttl_ms() is what was granted.
 * @name: NULL for none; the call ends with -EEXIST if another lease has that name. */
int tenure_lease_grant(struct tenure *t, uint64_t ttl_ms, const char *name,
                       struct tenure_call **ret);
int tenure_lease_renew(struct tenure *t, int64_t lease, struct tenure_call **ret);
int tenure_lease_revoke(struct tenure *t, int64_t lease, struct tenure_call **ret);
int tenure_lease_time_to_live(struct tenure *t, int64_t lease, struct tenure_call **ret);
/* The time to live, and the keys of the lease, without values: tenure_call_kv() with @op 0. */
int tenure_lease_keys(struct tenure *t, int64_t lease, struct tenure_call **ret);
/* Like the four functions above (tenure_lease_find() like tenure_lease_time_to_live()), for the
 * lease that has the name @name when the core handles the call. -ENOENT: no lease has the name.
 * The lease of a host's place has the name of the host's node. */
int tenure_lease_renew_named(struct tenure *t, const char *name, struct tenure_call **ret);
int tenure_lease_revoke_named(struct tenure *t, const char *name, struct tenure_call **ret);
int tenure_lease_find(struct tenure *t, const char *name, struct tenure_call **ret);
int tenure_lease_keys_named(struct tenure *t, const char *name, struct tenure_call **ret);

/* ---- locks and elections ---- */

/* Waits in line for the lock @name, on the place or the lease that the tie holds. @value is
 * what others see about the holder; it may be NULL. TENURE_LOCKED: this tie has the lock.
 * TENURE_UNLOCKED: it does not have it any more, which is reported at the holder's deadline at
 * the latest; the tie then waits for the lock again, unless there is an `error`. The caller
 * owns *@ret. -EINVAL: the tie holds nothing, or @name is not valid; -EALREADY: the tie has, or
 * waits for, that lock. */
int tenure_lock(struct tenure *t, const char *name, const char *value,
                struct tenure_lock **ret);
/* The fencing token: each holder has a larger one than the holders before it, so that a
 * resource can refuse the smaller ones. 0: this tie does not have the lock. */
int64_t tenure_lock_token(const struct tenure_lock *l);
/* Whether this tie has the lock and tenure_may_act(). */
bool tenure_lock_is_held(const struct tenure_lock *l);
/* Gives the lock back, or stops waiting for it, and ends the handle. TENURE_UNLOCKED follows
 * when the next in line can have the lock; its `lock` may only be compared with the handle.
 * Accepts NULL; returns NULL. */
struct tenure_lock *tenure_unlock(struct tenure_lock *l);

/* Answers TENURE_ASKED, once the program has stopped acting as the holder. TENURE_UNLOCKED
 * follows when the lock was handed over, and the tie waits for it again, at the end of the
 * line; or TENURE_LOCKED, with the same token, if the node or session that was to get it has
 * gone. -EINVAL: nobody has asked for the lock. */
int tenure_hand_over(struct tenure_lock *l);
/* When this tie has to stop acting as the holder if nothing changes: at the deadline of the
 * place or the lease or, after TENURE_ASKED, at the end of the time to stop if that is sooner;
 * the lock is then handed over even if tenure_hand_over() was not called. 0: this tie does not
 * have the lock. */
uint64_t tenure_lock_deadline(const struct tenure_lock *l);

/* Begins a call that asks the holder of @lock to stop within @within_ms milliseconds and to
 * hand the lock over to the node or session @to, which must be waiting for it; NULL: the next
 * in line. The call ends when that one has the lock, or with an error:
 *   -ENOENT      nobody holds the lock, or @to does not wait for it
 *   -EALREADY    @to holds it already
 *   -EBUSY       another switchover of this lock is under way
 *   -EOPNOTSUPP  the holder, or one before @to, uses neither libtenure nor tenurectl, or its
 *                key is that of another lock
 *   -ETIMEDOUT   the holder did not answer and keeps the lock, or has accepted and not stopped
 */
int tenure_switchover(struct tenure *t, const char *lock, const char *to, int64_t within_ms,
                      struct tenure_call **ret);

struct tenure_switched {
        const char *from, *to; /* nodes or sessions; "": not known */
        int64_t token;         /* of the new holder */
        int64_t stop_us;       /* from the request until the old holder gave the lock up */
        int64_t pause_us;      /* from then until the new holder had it; -1: not known */
};

/* The outcome of a switchover whose result is 0 or -EALREADY, otherwise NULL. Valid until
 * tenure_call_free(). */
const struct tenure_switched *tenure_call_switched(const struct tenure_call *c);

/* ---- shared work ---- */

struct tenure_work_options {
        const char *const *tasks; /* the names of the tasks; NULL: they are named 1, 2, ... */
        size_t n_tasks;
        unsigned weight;    /* this member's share relative to the others; 0: 100 */
        unsigned settle_ms; /* tasks move to new members once none has joined for this long;
                               0: 1000 */
};

/* Joins @group, on the tie's own lease (tenure_hold_own()), as a member with the session's
 * name. The live members divide the tasks among themselves; each task belongs to one member at
 * a time, and moves only when that member leaves, or when a new member is to have it.
 * TENURE_TASK_BEGIN and TENURE_TASK_END report which tasks are this member's. When the lease is
 * lost, all of them end, and the tie joins again with its next lease. @o is copied. -EINVAL:
 * the tie has no lease of its own, or an option is not valid; -EALREADY: it is in the group. */
int tenure_work_join(struct tenure *t, const char *group, const struct tenure_work_options *o,
                     struct tenure_work **ret);
/* Answers TENURE_TASK_END, once nothing of the task runs any more. Until then no other member
 * gets the task while this tie's lease is held. -EINVAL: no TENURE_TASK_END waits for an
 * answer. */
int tenure_task_ended(struct tenure_work *w, const char *task);
/* The fencing token of a task, larger with each member that has it; 0: it is not this
 * member's. */
int64_t tenure_task_token(const struct tenure_work *w, const char *task);
/* Whether the task is this member's, no TENURE_TASK_END was reported for it, and
 * tenure_may_act(). */
bool tenure_task_is_held(const struct tenure_work *w, const char *task);
/* Ends all tasks and leaves the group. Go on answering each TENURE_TASK_END until
 * TENURE_WORK_LEFT, whose `work` may only be compared with the handle. Accepts NULL; returns
 * NULL. */
struct tenure_work *tenure_work_leave(struct tenure_work *w);

#ifdef __cplusplus
}
#endif

#endif
