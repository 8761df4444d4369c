/*
 * Calls each function that libtenure exports with each of its allocations failing in turn: it
 * reports that or does without, and the tie can still be used and freed. The list is made from
 * libtenure.sym, so that a function that is added there and not here does not build.
 */
#include "nomem.h"
#include "tenure/tenure.h"
#include "tenure_symbols.h"
#include "test.h"

/* The arguments of the functions, and what they have made. */
struct use {
        struct tenure *fresh; /* not started */
        struct tenure *t;     /* started, with a lease of its own, and no core that answers */
        struct tenure *made;
        struct tenure_call *call, *made_call;
        struct tenure_txn *txn, *made_txn;
        struct tenure_watch *watch, *made_watch;
        struct tenure_lock *lock, *made_lock;
        struct tenure_cache *cache, *made_cache;
        struct tenure_work *work, *made_work;
};

static const struct tenure_range all = {.prefix = true};
static const struct tenure_watch_options all_changes = {.prefix = true};
static const struct tenure_work_options tasks = {.n_tasks = 3};
static const struct tenure_service web = {.name = "web", .port = 80, .tags = "a=b"};

/* What a function returns, where that is a number that may be negative, and 0 otherwise. */
#define RETURNS(function, expression)             \
        static int call_##function(struct use *u) \
        {                                         \
                (void) u;                         \
                return expression;                \
        }
#define ENDS(function, expression) RETURNS(function, ((void) (expression), 0))

RETURNS(tenure_cache, tenure_cache(u->t, &all, &u->made_cache))
ENDS(tenure_cache_free, u->cache = tenure_cache_free(u->cache))
ENDS(tenure_cache_get, tenure_cache_get(u->cache, "k", 1, &(const struct tenure_kv *){0}))
ENDS(tenure_cache_is_good, tenure_cache_is_good(u->cache))
ENDS(tenure_cache_kv, tenure_cache_kv(u->cache, 0))
ENDS(tenure_cache_n_kvs, tenure_cache_n_kvs(u->cache))
ENDS(tenure_call_count, tenure_call_count(u->call, 0))
ENDS(tenure_call_error, tenure_call_error(u->call))
ENDS(tenure_call_free, u->call = tenure_call_free(u->call))
ENDS(tenure_call_kv, tenure_call_kv(u->call, 0, 0))
ENDS(tenure_call_lease, tenure_call_lease(u->call))
ENDS(tenure_call_lease_name, tenure_call_lease_name(u->call))
ENDS(tenure_call_n_kvs, tenure_call_n_kvs(u->call, 0))
RETURNS(tenure_call_result, tenure_call_result(u->call))
ENDS(tenure_call_revision, tenure_call_revision(u->call))
ENDS(tenure_call_switched, tenure_call_switched(u->call))
ENDS(tenure_call_ttl_ms, tenure_call_ttl_ms(u->call))
RETURNS(tenure_call_wait, tenure_call_wait(u->call, 0))
ENDS(tenure_deadline, tenure_deadline(u->t))
RETURNS(tenure_delete, tenure_delete(u->t, &all, &u->made_call))
RETURNS(tenure_dispatch, tenure_dispatch(u->t))
ENDS(tenure_error, tenure_error(u->t))
ENDS(tenure_find_node, tenure_find_node(u->t, "a"))
RETURNS(tenure_follow, tenure_follow(u->fresh, TENURE_NODES))
ENDS(tenure_free, u->fresh = tenure_free(u->fresh))
RETURNS(tenure_get, tenure_get(u->t, &all, &u->made_call))
ENDS(tenure_get_fd, tenure_get_fd(u->t))
ENDS(tenure_get_timeout, tenure_get_timeout(u->t))
RETURNS(tenure_hand_over, tenure_hand_over(u->lock))
RETURNS(tenure_hold_own, tenure_hold_own(u->fresh, 1000, NULL))
RETURNS(tenure_hold_with_agent, tenure_hold_with_agent(u->fresh))
ENDS(tenure_lease, tenure_lease(u->t))
RETURNS(tenure_lease_find, tenure_lease_find(u->t, "n", &u->made_call))
RETURNS(tenure_lease_grant, tenure_lease_grant(u->t, 1000, "n", &u->made_call))
RETURNS(tenure_lease_keys, tenure_lease_keys(u->t, 7, &u->made_call))
RETURNS(tenure_lease_keys_named, tenure_lease_keys_named(u->t, "n", &u->made_call))
RETURNS(tenure_lease_renew, tenure_lease_renew(u->t, 7, &u->made_call))
RETURNS(tenure_lease_renew_named, tenure_lease_renew_named(u->t, "n", &u->made_call))
RETURNS(tenure_lease_revoke, tenure_lease_revoke(u->t, 7, &u->made_call))
RETURNS(tenure_lease_revoke_named, tenure_lease_revoke_named(u->t, "n", &u->made_call))
RETURNS(tenure_lease_time_to_live, tenure_lease_time_to_live(u->t, 7, &u->made_call))
RETURNS(tenure_leave, tenure_leave(u->t))
RETURNS(tenure_lock, tenure_lock(u->t, "m", "me", &u->made_lock))
ENDS(tenure_lock_deadline, tenure_lock_deadline(u->lock))
ENDS(tenure_lock_is_held, tenure_lock_is_held(u->lock))
ENDS(tenure_lock_token, tenure_lock_token(u->lock))
ENDS(tenure_may_act, tenure_may_act(u->t))
ENDS(tenure_n_nodes, tenure_n_nodes(u->t))
RETURNS(tenure_new, tenure_new(&u->made))
ENDS(tenure_next_node, tenure_next_node(u->t, NULL))
ENDS(tenure_next_service, tenure_next_service(u->t, "web", NULL))
ENDS(tenure_pop_event, tenure_pop_event(u->t))
RETURNS(tenure_put, tenure_put(u->t, "k", 1, "v", 1, 0, &u->made_call))
RETURNS(tenure_put_held, tenure_put_held(u->t, "k", 1, "v", 1, &u->made_call))
RETURNS(tenure_put_named, tenure_put_named(u->t, "k", 1, "v", 1, "n", &u->made_call))
RETURNS(tenure_register, tenure_register(u->t, &web))
RETURNS(tenure_set_cluster, tenure_set_cluster(u->fresh, "c"))
RETURNS(tenure_set_endpoints, tenure_set_endpoints(u->fresh, "http://127.0.0.1:1"))
RETURNS(tenure_set_tls, tenure_set_tls(u->fresh, "/ca.pem", "/cert.pem", "/key.pem"))
RETURNS(tenure_set_user, tenure_set_user(u->fresh, "u", "p"))
RETURNS(tenure_start, tenure_start(u->fresh))
RETURNS(tenure_switchover, tenure_switchover(u->t, "l", "a", 1000, &u->made_call))
ENDS(tenure_tag, tenure_tag("a=b", "a", (char[8]){0}, 8))
RETURNS(tenure_task_ended, tenure_task_ended(u->work, "1"))
ENDS(tenure_task_is_held, tenure_task_is_held(u->work, "1"))
ENDS(tenure_task_token, tenure_task_token(u->work, "1"))
static int call_tenure_txn_commit(struct use *u)
{
        struct tenure_txn *x = u->txn;

        u->txn = NULL; /* it is freed, whatever comes of it */
        tenure_txn_put(x, "k", 1, "v", 1, 0);
        return tenure_txn_commit(x, &u->made_call);
}
ENDS(tenure_txn_delete, tenure_txn_delete(u->txn, &all))
ENDS(tenure_txn_else, tenure_txn_else(u->txn))
ENDS(tenure_txn_free, u->txn = tenure_txn_free(u->txn))
ENDS(tenure_txn_get, tenure_txn_get(u->txn, &all))
ENDS(tenure_txn_if_created, tenure_txn_if_created(u->txn, "k", 1, '=', 1))
ENDS(tenure_txn_if_held, tenure_txn_if_held(u->txn))
ENDS(tenure_txn_if_lease, tenure_txn_if_lease(u->txn, "k", 1, '!', 1))
ENDS(tenure_txn_if_modified, tenure_txn_if_modified(u->txn, "k", 1, '<', 1))
ENDS(tenure_txn_if_value, tenure_txn_if_value(u->txn, "k", 1, '>', "v", 1))
ENDS(tenure_txn_if_version, tenure_txn_if_version(u->txn, "k", 1, '=', 1))
RETURNS(tenure_txn_new, tenure_txn_new(u->t, &u->made_txn))
ENDS(tenure_txn_put, tenure_txn_put(u->txn, "k", 1, "v", 1, 0))
ENDS(tenure_txn_put_named, tenure_txn_put_named(u->txn, "k", 1, "v", 1, "n"))
ENDS(tenure_unlock, u->lock = tenure_unlock(u->lock))
RETURNS(tenure_unregister, tenure_unregister(u->t, "web", NULL))
ENDS(tenure_version, tenure_version())
RETURNS(tenure_wait, tenure_wait(u->t, 0))
RETURNS(tenure_watch, tenure_watch(u->t, &all_changes, &u->made_watch))
ENDS(tenure_watch_free, u->watch = tenure_watch_free(u->watch))
RETURNS(tenure_work_join, tenure_work_join(u->t, "h", &tasks, &u->made_work))
ENDS(tenure_work_leave, u->work = tenure_work_leave(u->work))

#define ROW(function) {#function, call_##function},
static const struct {
        const char *name;
        int (*call)(struct use *u);
} functions[] = {LIBTENURE_SYMBOLS(ROW)};

static void begin(struct use *u)
{
        *u = (struct use){0};
        CHECK_EQ(tenure_new(&u->fresh), 0);
        CHECK_EQ(tenure_set_endpoints(u->fresh, "http://127.0.0.1:1"), 0);
        CHECK_EQ(tenure_new(&u->t), 0);
        CHECK_EQ(tenure_set_endpoints(u->t, "http://127.0.0.1:1"), 0);
        CHECK_EQ(tenure_hold_own(u->t, 1000, "a"), 0);
        CHECK_EQ(tenure_start(u->t), 0);
        CHECK_EQ(tenure_get(u->t, &all, &u->call), 0);
        CHECK_EQ(tenure_txn_new(u->t, &u->txn), 0);
        CHECK_EQ(tenure_watch(u->t, &all_changes, &u->watch), 0);
        CHECK_EQ(tenure_lock(u->t, "l", NULL, &u->lock), 0);
        CHECK_EQ(tenure_cache(u->t, &all, &u->cache), 0);
        CHECK_EQ(tenure_work_join(u->t, "g", &tasks, &u->work), 0);
        CHECK_EQ(tenure_register(u->t, &web), 0);
}

static void end(struct use *u)
{
        int r = tenure_dispatch(u->t); /* an event may have been lost, which is reported */

        CHECK(r == 0 || r == -ENOMEM);
        tenure_txn_free(u->txn);
        tenure_txn_free(u->made_txn);
        tenure_free(u->fresh);
        tenure_free(u->made);
        tenure_free(u->t);
}

/* For a transaction, the lack of memory is reported by the commit. */
static bool is_in_txn(const char *name)
{
        return strncmp(name, "tenure_txn_", 11) == 0 && strcmp(name, "tenure_txn_free") != 0 &&
               strcmp(name, "tenure_txn_new") != 0 && strcmp(name, "tenure_txn_commit") != 0;
}

/* Functions that report it later, at dispatch or commit, or are refused for another reason. */
static bool goes_on(const char *name)
{
        static const char *const names[] = {"tenure_call_wait", "tenure_dispatch",
                                            "tenure_put_held", "tenure_unlock", "tenure_wait"};

        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                if (strcmp(name, names[i]) == 0)
                        return true;
        return is_in_txn(name);
}

static void call_without_memory(size_t i)
{
        struct use u;
        int usual, r;
        bool came = true;

        begin(&u);
        usual = functions[i].call(&u);
        end(&u);
        for (size_t n = 0; came; n++) {
                begin(&u);
                nomem_after(n);
                r = functions[i].call(&u);
                came = nomem_end();
                if (r != usual && !(came && r == -ENOMEM))
                        test_fail(__FILE__, __LINE__,
                                  "%s() without its allocation number %zu returns %d",
                                  functions[i].name, n, r);
                if (came && r == usual && !goes_on(functions[i].name))
                        test_fail(__FILE__, __LINE__,
                                  "%s() passes over its allocation number %zu",
                                  functions[i].name, n);
                if (came && is_in_txn(functions[i].name)) {
                        r = tenure_txn_commit(u.txn, NULL);
                        u.txn = NULL;
                        CHECK_EQ(r, -ENOMEM);
                }
                end(&u);
        }
}

TEST(each_function_of_libtenure_survives_that_memory_runs_out)
{
        for (size_t i = 0; i < ARRAY_SIZE(functions); i++)
                call_without_memory(i);
}
