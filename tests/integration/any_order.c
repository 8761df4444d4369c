/*
 * A program that uses libtenure in every order that its header allows, and in some that it
 * refuses: calls, watches, locks, caches and work are begun and freed at random, between events
 * and before the first one; processes are forked, and descriptors run out. Whether anything of
 * that is wrong is for valgrind or a sanitizer to say, and whether events name what is there is
 * checked here. usage: any_order SEED TIES
 *
 * It goes on after TIES of them until it has had a lock or a task, which other programs may
 * hold.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <tenure.h>
#include <unistd.h>

#define N 4 /* of each kind */

static struct tenure *t;
static struct tenure_call *calls[N];
static struct tenure_watch *watches[N];
static struct tenure_lock *locks[N];
static struct tenure_cache *caches[N];
static struct tenure_work *work;
static bool is_child;
static unsigned long counts[4]; /* events, actions, refusals, locks and tasks that were had */

static unsigned rnd(unsigned below)
{
        return (unsigned) rand() % below;
}

/* Keys of all lengths, the empty one included; some hold a NUL. */
static const char *key(size_t *len)
{
        static const char keys[][4] = {"", "a", "a/b", {'\0', 'x'}, "rnd"};
        unsigned i = rnd(5);

        *len = i == 3 ? 2 : strlen(keys[i]);
        return keys[i];
}

static const char *name(void)
{
        static const char *const names[] = {"x", "y", "", "a/b", "z z", "\xff"};

        return names[rnd(4) ? rnd(2) : rnd(6)];
}

static void count(int r)
{
        counts[1]++;
        counts[2] += r < 0;
}

static void begin_call(struct tenure_call **c)
{
        size_t len;
        struct tenure_range q = {.key = key(&len), .prefix = rnd(2), .limit = rnd(3)};
        struct tenure_txn *x;

        if (*c)
                return;
        q.key_len = len;
        switch (rnd(9)) {
        case 0:
                return count(tenure_get(t, &q, c));
        case 1:
                return count(tenure_put(t, q.key, len, "v", rnd(2),
                                        rnd(2) ? TENURE_LEASE_OURS : 0, rnd(4) ? c : NULL));
        case 2:
                return count(tenure_put_held(t, q.key, len, "held", 4, c));
        case 3:
                return count(tenure_delete(t, &q, c));
        case 4:
                return count(tenure_lease_grant(t, 5000, rnd(2) ? name() : NULL, c));
        case 5:
                return count(tenure_lease_find(t, name(), c));
        case 6:
                return count(tenure_switchover(t, name(), rnd(2) ? name() : NULL, 1000, c));
        case 7:
                return count(tenure_lease_time_to_live(t, rand(), c));
        default:
                if (tenure_txn_new(t, &x) < 0)
                        return;
                tenure_txn_if_held(x);
                tenure_txn_put(x, q.key, len, "t", 1, 0);
                if (rnd(2))
                        tenure_txn_else(x);
                tenure_txn_get(x, &q);
                if (rnd(3)) /* which frees it */
                        count(tenure_txn_commit(x, c));
                else
                        tenure_txn_free(x);
        }
}

static void begin_watch(struct tenure_watch **w, struct tenure_cache **c)
{
        size_t len;
        const char *k = key(&len);
        struct tenure_watch_options o = {.key = k,
                                         .key_len = len,
                                         .prefix = rnd(2),
                                         .revision = rnd(2) ? rnd(5) : 0,
                                         .before = rnd(2)};
        struct tenure_range q = {.key = k, .key_len = len, .prefix = rnd(2)};

        if (!*w)
                count(tenure_watch(t, &o, w));
        else if (!*c)
                count(tenure_cache(t, &q, c));
}

static void begin_work(void)
{
        static const char *const tasks[] = {"one", "two", "a/b"};
        struct tenure_work_options o = {.tasks = rnd(2) ? tasks : NULL,
                                        .n_tasks = rnd(4),
                                        .weight = rnd(200),
                                        .settle_ms = 1 + rnd(50)};

        if (!work)
                count(tenure_work_join(t, rnd(3) ? "g" : name(), &o, &work));
}

static void act(void);

/* A child may ask for all that its parent may, in vain, and free it; the parent's goes on. */
static void fork_one(void)
{
        pid_t pid = is_child ? -1 : fork();
        int status = 0;

        if (pid == 0) {
                bool acts = tenure_may_act(t);

                is_child = true;
                for (unsigned n = rnd(20); n > 0; n--) {
                        act();
                        if (tenure_dispatch(t) != -ECHILD)
                                _exit(4);
                        tenure_pop_event(t);
                }
                tenure_free(t);
                _exit(acts ? 3 : 0);
        }
        if (pid > 0 && (waitpid(pid, &status, 0) < 0 || status != 0)) {
                printf("a child ended with %#x\n", (unsigned) status);
                exit(4);
        }
}

static void lack_descriptors(bool lack)
{
        static rlim_t usual;
        struct rlimit r;

        getrlimit(RLIMIT_NOFILE, &r);
        if (!usual)
                usual = r.rlim_cur;
        r.rlim_cur = lack ? 5 + rnd(8) : usual;
        setrlimit(RLIMIT_NOFILE, &r);
}

static void act(void)
{
        unsigned i = rnd(N);
        const struct tenure_kv *kv;
        size_t len;
        const char *k = key(&len);

        switch (rnd(14)) {
        case 0:
        case 1:
                return begin_call(&calls[i]);
        case 2:
                calls[i] = tenure_call_free(calls[i]);
                return;
        case 3:
                return begin_watch(&watches[i], &caches[i]);
        case 4:
                watches[i] = tenure_watch_free(watches[i]);
                return;
        case 5:
                caches[i] = tenure_cache_free(caches[i]);
                return;
        case 6:
                if (!locks[i])
                        count(tenure_lock(t, name(), rnd(2) ? name() : NULL, &locks[i]));
                return;
        case 7:
                locks[i] = tenure_unlock(locks[i]);
                return;
        case 8:
                if (locks[i])
                        count(tenure_hand_over(locks[i]));
                return;
        case 9:
                return rnd(3) ? begin_work() : (void) (work = tenure_work_leave(work));
        case 10:
                if (caches[i] && tenure_cache_is_good(caches[i]))
                        count(tenure_cache_get(caches[i], k, len, &kv));
                return;
        case 11:
                if (calls[i])
                        count(tenure_call_wait(calls[i], (int) rnd(20)));
                return;
        case 12:
                if (rnd(20) == 0)
                        return fork_one();
                return lack_descriptors(rnd(8) == 0);
        default:
                if (rnd(30) == 0)
                        count(tenure_leave(t));
        }
}

/* An event is of something that is there, or of what has just been given back. */
static void look(const struct tenure_event *e)
{
        counts[0]++;
        if (!e->reason)
                exit(5);
        counts[3] += e->type == TENURE_LOCKED || e->type == TENURE_TASK_BEGIN;
        if (e->type == TENURE_REPLY)
                for (size_t i = 0; i < N; i++)
                        if (calls[i] == e->call && rnd(2))
                                calls[i] = tenure_call_free(calls[i]);
        if (e->type == TENURE_ASKED && rnd(2))
                count(tenure_hand_over(e->lock));
        if (e->type == TENURE_TASK_END && e->work == work && work)
                count(tenure_task_ended(work, e->task));
}

static void one_tie(void)
{
        const struct tenure_event *e;
        unsigned n = rnd(300);

        memset(calls, 0, sizeof(calls));
        memset(watches, 0, sizeof(watches));
        memset(locks, 0, sizeof(locks));
        memset(caches, 0, sizeof(caches));
        work = NULL;
        if (tenure_new(&t) < 0)
                exit(6);
        if (rnd(4))
                count(tenure_hold_own(t, 2000 + rnd(8000), rnd(2) ? name() : NULL));
        if (rnd(4) == 0)
                count(tenure_follow(t, TENURE_NODES));
        if (rnd(10))
                count(tenure_start(t));
        for (unsigned i = 0; i < n; i++) {
                act();
                if (rnd(2) || tenure_wait(t, (int) rnd(10)) < 0)
                        continue;
                for (unsigned more = rnd(8); more && (e = tenure_pop_event(t)); more--) {
                        look(e);
                        if (rnd(3) == 0)
                                act();
                }
        }
        lack_descriptors(false);
        t = tenure_free(t);
}

int main(int argc, char **argv)
{
        unsigned long least;

        if (argc < 3)
                return 2;
        least = strtoul(argv[2], NULL, 10);
        srand((unsigned) strtoul(argv[1], NULL, 10));
        for (unsigned long n = 0; n < least || counts[2] == 0 || counts[3] == 0; n++)
                one_tie();
        printf("events %lu, actions %lu, refused %lu, locks and tasks %lu\n", counts[0],
               counts[1], counts[2], counts[3]);
        return 0;
}
