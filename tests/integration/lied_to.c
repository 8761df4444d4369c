/*
 * A program that uses all of libtenure at once, for a core to lie to: a session, the
 * membership, watches, caches, a lock, shared work, and calls of all kinds ten times a second.
 * What ends it begins again. It answers each line of standard input with what it believes, in
 * one line of JSON. usage: lied_to TTL_MS KEY-THAT-IS-CACHED
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenure.h>
#include <time.h>
#include <unistd.h>

#define TICK_MS 100
#define CALLS 8
#define TASKS 10

static struct tenure_range all = {.prefix = true}; /* what is cached */
static struct tenure *t;
static struct tenure_watch *watch, *one;
static struct tenure_cache *key_cache, *all_cache;
static struct tenure_lock *lock;
static struct tenure_work *work;
static struct tenure_call *calls[CALLS], *look;
static bool watching;  /* `seen` is known, and `watch` goes on from there */
static bool work_left; /* a TENURE_WORK_LEFT is to come */
static char seen[64], one_seen[64];
static unsigned long turns, asked;
static unsigned long sum; /* all that was told has been read */

static uint64_t now_us(void)
{
        struct timespec ts;

        clock_gettime(CLOCK_BOOTTIME, &ts);
        return (uint64_t) ts.tv_sec * 1000000 + (uint64_t) ts.tv_nsec / 1000;
}

static void read_bytes(const void *p, size_t n)
{
        const unsigned char *c = p;

        for (size_t i = 0; i < n; i++)
                sum = sum * 31 + c[i];
        if (c[n] != '\0')
                abort();
}

static void read_text(const char *s)
{
        read_bytes(s, strlen(s));
}

static void read_kv(const struct tenure_kv *kv)
{
        read_bytes(kv->key, kv->key_len);
        read_bytes(kv->value, kv->value_len);
}

static void keep(char to[static 64], const struct tenure_kv *kv)
{
        snprintf(to, 64, "%.*s", (int) (kv && kv->value_len < 63 ? kv->value_len : 0),
                 kv ? (const char *) kv->value : "");
        for (char *c = to; *c; c++) /* into JSON */
                if (*c < ' ' || *c > '~' || *c == '"' || *c == '\\')
                        *c = '?';
}

static void read_call(struct tenure_call *c)
{
        read_text(tenure_call_error(c));
        read_text(tenure_call_lease_name(c));
        for (size_t op = 0; op < 4; op++)
                for (size_t i = 0; i < tenure_call_n_kvs(c, op); i++)
                        read_kv(tenure_call_kv(c, op, i));
        if (tenure_call_switched(c)) {
                read_text(tenure_call_switched(c)->from);
                read_text(tenure_call_switched(c)->to);
        }
        sum += (unsigned long) (tenure_call_revision(c) ^ tenure_call_lease(c) ^
                                tenure_call_ttl_ms(c) ^ tenure_call_count(c, 0));
}

/* ---- what was lost is had again ---- */

/* The value as of a revision, and all changes after it. */
static void on_look(void)
{
        struct tenure_watch_options o = {.key = "w/", .key_len = 2, .prefix = true};

        if (tenure_call_result(look) == 0) {
                keep(seen, tenure_call_kv(look, 0, 0));
                o.revision = tenure_call_revision(look) + 1;
                watching = tenure_watch(t, &o, &watch) == 0;
        }
        look = tenure_call_free(look);
}

static void begin_all(void)
{
        static const struct tenure_range w = {.key = "w/k", .key_len = 3};
        const struct tenure_range c = {.key = all.key, .key_len = all.key_len};
        static const struct tenure_watch_options o = {
                .key = "w/k", .key_len = 3, .before = true};
        static const struct tenure_work_options tasks = {.n_tasks = TASKS, .settle_ms = 50};

        (void) !(watch || look || tenure_get(t, &w, &look));
        (void) !(one || tenure_watch(t, &o, &one));
        (void) !(key_cache || tenure_cache(t, &c, &key_cache));
        (void) !(all_cache || tenure_cache(t, &all, &all_cache));
        (void) !(lock || tenure_lock(t, "lock/x", "me", &lock));
        (void) !(work || work_left || tenure_work_join(t, "g", &tasks, &work));
}

/* ---- calls ---- */

static int commit(struct tenure_call **ret)
{
        struct tenure_txn *x;

        if (tenure_txn_new(t, &x) < 0)
                return -ENOMEM;
        tenure_txn_if_held(x);
        tenure_txn_if_version(x, "mine", 4, '=', 1);
        tenure_txn_put(x, "t", 1, "v", 1, 0);
        tenure_txn_get(x, &all);
        tenure_txn_else(x);
        tenure_txn_get(x, &all);
        return tenure_txn_commit(x, ret);
}

static void ask_one(void)
{
        static const struct tenure_range mine = {.key = "mine", .key_len = 4};
        struct tenure_call **c = calls;
        unsigned n;

        while (*c)
                if (++c == calls + CALLS)
                        return;
        n = asked++ % 12;
        (void) !(n == 0    ? tenure_get(t, &all, c)
                 : n == 1  ? tenure_put(t, "mine", 4, "v", 1, TENURE_LEASE_OURS, c)
                 : n == 2  ? tenure_put_held(t, "held", 4, "v", 1, c)
                 : n == 3  ? tenure_delete(t, &mine, c)
                 : n == 4  ? tenure_lease_grant(t, 1000, "named", c)
                 : n == 5  ? tenure_lease_find(t, "named", c)
                 : n == 6  ? tenure_lease_keys(t, tenure_lease(t), c)
                 : n == 7  ? tenure_lease_renew(t, tenure_lease(t), c)
                 : n == 8  ? tenure_switchover(t, "lock/x", NULL, 300, c)
                 : n == 9  ? tenure_lease_revoke_named(t, "named", c)
                 : n == 10 ? tenure_put_named(t, "n", 1, "v", 1, "named", c)
                           : commit(c));
}

/* ---- what comes ---- */

static void on_event(const struct tenure_event *e)
{
        read_text(e->reason);
        if (e->kv)
                read_kv(e->kv);
        if (e->before)
                read_kv(e->before);
        if (e->node) {
                read_text(e->node->name);
                read_text(e->node->tags);
                read_text(e->node->addresses);
        }
        if (e->service)
                read_text(e->service->tags);
        if (e->task)
                read_text(e->task);
        switch (e->type) {
        case TENURE_REPLY:
                read_call(e->call);
                for (size_t i = 0; i < CALLS; i++)
                        if (calls[i] == e->call)
                                calls[i] = tenure_call_free(calls[i]);
                if (e->call == look)
                        on_look();
                break;
        case TENURE_PUT:
        case TENURE_DELETE:
                if (e->kv->key_len == 3 && memcmp(e->kv->key, "w/k", 3) == 0)
                        keep(e->watch == one ? one_seen : seen,
                             e->type == TENURE_PUT ? e->kv : NULL);
                break;
        case TENURE_WATCH_ENDED:
                watching &= e->watch == one;
                if (e->watch == one)
                        one = tenure_watch_free(one);
                else
                        watch = tenure_watch_free(watch);
                break;
        case TENURE_UNCACHED:
                if (e->error && e->cache == key_cache)
                        key_cache = tenure_cache_free(key_cache);
                else if (e->error)
                        all_cache = tenure_cache_free(all_cache);
                break;
        case TENURE_UNLOCKED:
                if (e->lock == lock && e->error < 0)
                        lock = tenure_unlock(lock);
                break;
        case TENURE_ASKED:
                (void) !tenure_hand_over(e->lock);
                break;
        case TENURE_TASK_END:
                (void) !tenure_task_ended(e->work, e->task);
                break;
        case TENURE_WORK_LEFT:
                if (e->work == work) { /* refused: leave what is left of it */
                        work = tenure_work_leave(work);
                        work_left = true;
                } else {
                        work_left = false;
                }
                break;
        default:
                break;
        }
}

/* ---- what it believes ---- */

static const char *cached(const struct tenure_cache *c, char to[static 64])
{
        const struct tenure_kv *kv;
        int r = c ? tenure_cache_get(c, all.key, all.key_len, &kv) : -EAGAIN;

        for (size_t i = 0; c && i < tenure_cache_n_kvs(c); i++)
                read_kv(tenure_cache_kv(c, i));
        if (r == 0)
                keep(to, kv);
        return r == 0 ? to : r == -EAGAIN ? "(none)" : "(no key)";
}

static void tell(void)
{
        unsigned tasks = 0;
        char a[64], b[64], name[12];
        uint64_t end = tenure_deadline(t), now = now_us();

        for (int i = 1; i <= TASKS && work; i++) {
                snprintf(name, sizeof(name), "%d", i);
                tasks += tenure_task_is_held(work, name);
        }
        printf("{\"acts\": %d, \"lease\": %" PRIi64 ", \"left_us\": %" PRIu64
               ", \"turns\": %lu, \"watching\": %d, \"seen\": \"%s\", \"one\": \"%s\", "
               "\"cached\": \"%s\", \"all_cached\": \"%s\", \"locked\": %d, "
               "\"token\": %" PRIi64 ", \"tasks\": %u}\n",
               tenure_may_act(t), tenure_lease(t), end > now ? end - now : 0, turns, watching,
               seen, one_seen, cached(key_cache, a), cached(all_cache, b),
               lock && tenure_lock_is_held(lock), lock ? tenure_lock_token(lock) : 0, tasks);
        fflush(stdout);
        read_text(tenure_error(t));
}

int main(int argc, char **argv)
{
        const struct tenure_event *e;
        uint64_t tick = 0;
        char line[16];

        if (argc < 3)
                return 2;
        all.key = argv[2];
        all.key_len = strlen(argv[2]);
        if (tenure_new(&t) < 0 || tenure_hold_own(t, strtoul(argv[1], NULL, 10), "liar") < 0 ||
            tenure_follow(t, TENURE_NODES | TENURE_SERVICES) < 0 || tenure_start(t) < 0) {
                fprintf(stderr, "lied_to: %s.\n", t ? tenure_error(t) : "it cannot begin");
                return 2;
        }
        for (;;) {
                struct pollfd p[2] = {{.fd = tenure_get_fd(t), .events = POLLIN},
                                      {.fd = STDIN_FILENO, .events = POLLIN}};

                if (now_us() >= tick) {
                        tick = now_us() + TICK_MS * 1000;
                        begin_all();
                        ask_one();
                }
                if (poll(p, 2, tenure_get_timeout(t) == 0 ? 0 : TICK_MS / 4) < 0)
                        return 3;
                turns += p[0].revents != 0;
                if (tenure_dispatch(t) < 0) {
                        fprintf(stderr, "lied_to: %s.\n", tenure_error(t));
                        return 4;
                }
                while ((e = tenure_pop_event(t)))
                        on_event(e);
                if (!p[1].revents)
                        continue;
                if (!fgets(line, sizeof(line), stdin))
                        break;
                tell();
        }
        t = tenure_free(t);
        return sum == 1; /* it was computed */
}
