/*
 * What libtenure_calls.sh does with calls and watches, as a program of somebody's would; who it
 * talks to is in the environment (TENURE_ENDPOINTS, USER_IS, CA, CERT, KEY). Each line of the
 * output is one fact; FAIL begins one that must not be. The first line is "begun" once it is
 * under way.
 *
 *     puts N        N puts, 1,000 outstanding: each is acknowledged and there, or in doubt
 *     watch N       N puts in one tie, and watches in another: each change once and in order
 *     many          10,000 calls and 1,000 watches at a time on one tie
 *     slow N        a watcher that takes nothing while N puts of 4 KiB are made
 *     gets          reads until it is told to end; how long the slowest took
 *     old           a watch of what is compacted
 *     login         one put
 *     leases        by id and by name
 */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tenure.h>
#include <time.h>
#include <unistd.h>

#define OUTSTANDING 1000
#define WAIT 60000 /* ms: for what must come */

static volatile sig_atomic_t over;

static void end(int signo)
{
        (void) signo;
        over = 1;
}

static int64_t ms(void)
{
        struct timespec t;

        clock_gettime(CLOCK_BOOTTIME, &t);
        return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void fail(const char *what, const char *why)
{
        printf("FAIL %s: %s\n", what, why);
        exit(1);
}

static struct tenure *tie(void)
{
        struct tenure *t;

        if (tenure_new(&t) < 0)
                fail("tenure_new()", "no memory");
        if (tenure_set_user(t, getenv("USER_IS"), getenv("PASSWORD")) < 0 ||
            tenure_set_tls(t, getenv("CA"), getenv("CERT"), getenv("KEY")) < 0 ||
            tenure_start(t) < 0)
                fail("a tie", tenure_error(t));
        return t;
}

static void must(struct tenure *t, int r, const char *what)
{
        if (r < 0)
                fail(what, tenure_error(t));
}

/* ---- puts ---- */

static struct put {
        struct tenure_call *call;
        int result;
        int64_t revision;
        unsigned events; /* that told of it */
} * puts_made;
static size_t n_puts, n_begun, n_done;
static unsigned n_ok, n_doubt, n_failed;

static void begin_put(struct tenure *t, const char *prefix, size_t keys)
{
        char key[32], value[32];
        size_t i = n_begun++;
        int k = snprintf(key, sizeof(key), "%s%05zu", prefix, i % keys);
        int v = snprintf(value, sizeof(value), "%zu", i);

        must(t, tenure_put(t, key, (size_t) k, value, (size_t) v, 0, &puts_made[i].call),
             "tenure_put()");
}

static void end_put(struct tenure_call *c)
{
        struct put *p = NULL;

        for (size_t i = n_done > OUTSTANDING ? n_done - OUTSTANDING : 0; i < n_begun; i++)
                if (puts_made[i].call == c) {
                        p = &puts_made[i];
                        break;
                }
        for (size_t i = 0; !p && i < n_begun; i++)
                if (puts_made[i].call == c)
                        p = &puts_made[i];
        if (!p)
                fail("a reply", "to what nobody has asked");
        p->result = tenure_call_result(c);
        p->revision = tenure_call_revision(c);
        if (p->result == 0)
                n_ok++;
        else if (p->result == -EREMOTEIO)
                n_doubt++;
        else if (n_failed++ < 5)
                printf("FAIL a put: %d, %s\n", p->result, tenure_call_error(c));
        p->call = tenure_call_free(c);
        n_done++;
}

static void some_puts(struct tenure *t, const char *prefix, size_t keys, size_t outstanding)
{
        const struct tenure_event *e;

        while (n_begun < n_puts && n_begun - n_done < outstanding)
                begin_put(t, prefix, keys);
        must(t, tenure_dispatch(t), "tenure_dispatch()");
        while ((e = tenure_pop_event(t)))
                if (e->type == TENURE_REPLY)
                        end_put(e->call);
}

static void prepare_puts(const char *n)
{
        n_puts = strtoul(n, NULL, 10);
        puts_made = calloc(n_puts, sizeof(*puts_made));
}

static struct tenure_call *get(struct tenure *t, struct tenure_range q)
{
        struct tenure_call *c;

        must(t, tenure_get(t, &q, &c), "tenure_get()");
        if (tenure_call_wait(c, WAIT) < 0)
                fail("a get", tenure_error(t));
        return c;
}

static void mode_puts(const char *n)
{
        struct tenure *t = tie();
        struct tenure_call *c;
        unsigned there = 0, lost = 0, wrong = 0;

        prepare_puts(n);
        while (n_done < n_puts) {
                struct pollfd p = {.fd = tenure_get_fd(t), .events = POLLIN};
                size_t before = n_done;

                some_puts(t, "puts/", n_puts, OUTSTANDING);
                if (before / 1000 != n_done / 1000)
                        printf("answered %zu\n", n_done);
                if (n_begun == n_puts || n_begun - n_done == OUTSTANDING)
                        poll(&p, 1, tenure_get_timeout(t));
        }
        c = get(t, (struct tenure_range){.key = "puts/", .key_len = 5, .prefix = true});
        for (size_t i = 0; i < tenure_call_n_kvs(c, 0); i++) {
                const struct tenure_kv *kv = tenure_call_kv(c, 0, i);
                size_t at = strtoul((const char *) kv->key + 5, NULL, 10);

                there++;
                wrong += at >= n_puts || strtoul(kv->value, NULL, 10) != at ||
                         kv->version != 1 ||
                         (puts_made[at].result == 0 &&
                          puts_made[at].revision != kv->mod_revision);
                if (at < n_puts)
                        puts_made[at].events = 1;
        }
        for (size_t i = 0; i < n_puts; i++)
                lost += puts_made[i].result == 0 && puts_made[i].events == 0;
        printf("acknowledged %u in doubt %u there %u\n", n_ok, n_doubt, there);
        printf("failed %u lost %u wrong %u\n", n_failed, lost, wrong);
        tenure_free(t);
}

/* ---- watch ---- */

#define KEYS 100
#define OTHERS 50 /* watches of one key each */

static struct seen {
        struct tenure_watch *watch;
        int64_t last;
        size_t n;
} seen[1 + OTHERS];

static void take_event(const struct tenure_event *e)
{
        struct seen *s = NULL;
        size_t i;

        if (e->type == TENURE_WATCH_ENDED)
                fail("a watch ended", e->reason);
        if (e->type != TENURE_PUT)
                return;
        for (size_t k = 0; k <= OTHERS && !s; k++)
                if (seen[k].watch == e->watch)
                        s = &seen[k];
        if (!s)
                fail("an event", "of a watch that nobody made");
        if (e->revision <= s->last)
                fail("an event", "again, or out of order");
        s->last = e->revision;
        s->n++;
        if (s != seen)
                return;
        i = strtoul(e->kv->value, NULL, 10);
        if (i >= n_puts)
                fail("an event", "of what nobody has written");
        puts_made[i].events++;
        if (puts_made[i].result == 0 && puts_made[i].revision != 0 &&
            puts_made[i].revision != e->revision)
                fail("an event", "of another revision than its put");
        if (s->n % 300 == 200) { /* by each of them */
                int64_t least = e->revision;

                for (size_t k = 0; k <= OTHERS; k++)
                        if (seen[k].last < least)
                                least = seen[k].last;
                printf("seen %" PRId64 "\n", least);
        }
}

static void take_events(struct tenure *t)
{
        const struct tenure_event *e;

        must(t, tenure_dispatch(t), "tenure_dispatch()");
        while ((e = tenure_pop_event(t)))
                take_event(e);
}

static void watch(struct tenure *t, const char *key, bool prefix, int64_t revision,
                  struct tenure_watch **ret)
{
        struct tenure_watch_options o = {
                .key = key, .key_len = strlen(key), .prefix = prefix, .revision = revision};

        must(t, tenure_watch(t, &o, ret), "tenure_watch()");
}

static void mode_watch(const char *n)
{
        struct tenure *writer = tie(), *watcher = tie();
        int64_t from, deadline, next = ms();
        unsigned missing = 0, twice = 0, others = 0;

        prepare_puts(n);
        from = tenure_call_revision(
                       get(writer, (struct tenure_range){.key = "w/", .key_len = 2})) +
               1;
        watch(watcher, "w/", true, from, &seen[0].watch);
        for (int i = 1; i <= OTHERS; i++) {
                char key[16];

                snprintf(key, sizeof(key), "w/%05d", i - 1);
                watch(watcher, key, false, from, &seen[i].watch);
        }
        while (n_done < n_puts) {
                struct pollfd p[] = {{.fd = tenure_get_fd(writer), .events = POLLIN},
                                     {.fd = tenure_get_fd(watcher), .events = POLLIN}};

                if (ms() >= next) { /* some hundred in a second: it lasts as long as faults */
                        some_puts(writer, "w/", KEYS, 20);
                        next = ms() + 20;
                }
                take_events(watcher);
                poll(p, 2, 5);
        }
        puts("written");
        for (deadline = ms() + 30000; ms() < deadline;) {
                struct pollfd p = {.fd = tenure_get_fd(watcher), .events = POLLIN};
                int64_t last = 0;

                for (size_t i = 0; i < n_puts; i++)
                        if (puts_made[i].result == 0 && puts_made[i].revision > last)
                                last = puts_made[i].revision;
                take_events(watcher);
                if (seen[0].last >= last)
                        break;
                poll(&p, 1, 100);
        }
        for (int k = 0; k < 20; k++) { /* what comes twice comes soon */
                struct pollfd p = {.fd = tenure_get_fd(watcher), .events = POLLIN};

                poll(&p, 1, 10);
                take_events(watcher);
        }
        for (size_t i = 0; i < n_puts; i++) {
                missing += puts_made[i].result == 0 && puts_made[i].events == 0;
                twice += puts_made[i].events > 1;
                others += i % KEYS < OTHERS && puts_made[i].events > 0;
        }
        for (int i = 1; i <= OTHERS; i++)
                others -= (unsigned) seen[i].n;
        printf("acknowledged %u in doubt %u events %zu\n", n_ok, n_doubt, seen[0].n);
        printf("failed %u missing %u twice %u others %u\n", n_failed, missing, twice, others);
        tenure_free(writer);
        tenure_free(watcher);
}

/* ---- in number ---- */

static size_t memory(void)
{
        size_t pages = 0;
        FILE *f = fopen("/proc/self/statm", "re");

        if (!f || fscanf(f, "%*u %zu", &pages) != 1)
                fail("memory", "cannot be told");
        fclose(f);
        return pages * (size_t) sysconf(_SC_PAGESIZE) / 1024;
}

static void mode_many(void)
{
        struct tenure *t = tie();
        static struct tenure_watch *w[1000];
        static unsigned told[1000];
        const struct tenure_event *e;
        int64_t from =
                tenure_call_revision(get(t, (struct tenure_range){.key = "m/", .key_len = 2})) +
                1;
        size_t events = 0;
        int64_t began;

        prepare_puts("10000");
        for (int i = 0; i < 1000; i++) {
                char key[16];

                snprintf(key, sizeof(key), "m/%05d", i);
                watch(t, key, false, from, &w[i]);
        }
        while (n_begun < n_puts)
                begin_put(t, "m/", 1000);
        began = ms();
        puts("begun");
        while (n_done < n_puts || events < n_puts) {
                if (ms() > began + WAIT || tenure_wait(t, WAIT) <= 0)
                        fail("10,000 calls and events", "took too long");
                while ((e = tenure_pop_event(t)))
                        if (e->type == TENURE_REPLY) {
                                n_ok += tenure_call_result(e->call) == 0;
                                n_done++;
                                tenure_call_free(e->call);
                        } else if (e->type == TENURE_PUT) {
                                size_t i = strtoul((const char *) e->kv->key + 2, NULL, 10);

                                if (i >= 1000 || w[i] != e->watch ||
                                    strtoul(e->kv->value, NULL, 10) != told[i]++ * 1000 + i)
                                        fail("an event", "of another watch, or out of order");
                                events++;
                        } else
                                fail("an event", e->reason);
        }
        printf("acknowledged %u events %zu in %" PRId64 " ms, %zu KiB\n", n_ok, events,
               ms() - began, memory());
        for (int i = 0; i < 1000; i++)
                tenure_watch_free(w[i]);
        tenure_free(t);
}

static void mode_slow(const char *n)
{
        struct tenure *t = tie(), *writer = tie();
        struct tenure_watch *w;
        int64_t from =
                tenure_call_revision(get(t, (struct tenure_range){.key = "s/", .key_len = 2})) +
                1;
        size_t before, after, got = 0, want = strtoul(n, NULL, 10), begun = 0, done = 0;
        const struct tenure_event *e;
        char value[4096];
        bool freed = true;

        memset(value, 'x', sizeof(value));
        watch(t, "s/", true, from, &w);
        before = memory();
        while (done < want) { /* both at work; the watcher's events stay where they are */
                while (begun < want && begun - done < 100) {
                        struct tenure_call *c;

                        must(writer, tenure_put(writer, "s/k", 3, value, sizeof(value), 0, &c),
                             "tenure_put()");
                        begun++;
                }
                if (tenure_wait(writer, WAIT) <= 0)
                        fail("a put", "took too long");
                while ((e = tenure_pop_event(writer))) {
                        if (e->error < 0)
                                fail("a put", e->reason);
                        tenure_call_free(e->call);
                        done++;
                }
                must(t, tenure_dispatch(t), "tenure_dispatch()");
        }
        for (int i = 0; i < 50; i++) {
                struct pollfd p = {.fd = tenure_get_fd(t), .events = POLLIN};

                poll(&p, 1, 10);
                must(t, tenure_dispatch(t), "tenure_dispatch()");
        }
        after = memory();
        printf("holds %zu KiB more after %zu KiB that nobody took\n", after - before, want * 4);
        if (after - before > 24 * 1024)
                fail("a watcher that takes nothing", "its library takes all");
        /* Other calls go on beside it. */
        tenure_call_free(get(t, (struct tenure_range){.key = "s/k", .key_len = 3}));
        while (got < want) {
                if (tenure_wait(t, WAIT) <= 0)
                        fail("the rest of the events", "did not come");
                while ((e = tenure_pop_event(t))) {
                        if (e->type != TENURE_PUT || e->kv->version != (int64_t) ++got)
                                fail("an event", "missing, or another one");
                        if (got == want / 2 && freed)
                                freed = false;
                }
        }
        printf("took %zu\n", got);
        tenure_free(t);
        tenure_free(writer);
}

static void mode_gets(void)
{
        struct tenure *t = tie();
        int64_t slowest = 0, n = 0;

        while (!over) {
                struct timespec pause = {.tv_nsec = 5000000};
                int64_t began = ms();

                tenure_call_free(get(t, (struct tenure_range){.key = "g", .key_len = 1}));
                if (ms() - began > slowest)
                        slowest = ms() - began;
                if (++n % 20 == 0)
                        printf("answered %" PRId64 "\n", n);
                nanosleep(&pause, NULL);
        }
        printf("slowest %" PRId64 "\n", slowest);
        tenure_free(t);
}

static void mode_old(void)
{
        struct tenure *t = tie();
        const struct tenure_event *e;
        struct tenure_watch *w;

        watch(t, "w/", true, 1, &w);
        if (tenure_wait(t, WAIT) <= 0)
                fail("a watch of what is compacted", "does not end");
        e = tenure_pop_event(t);
        printf("%s %d %s\n", e->type == TENURE_WATCH_ENDED ? "ended" : "FAIL", e->error,
               e->revision > 1 && *e->reason ? "compacted" : "no reason");
        tenure_watch_free(w);
        tenure_free(t);
}

static void mode_login(void)
{
        struct tenure *t = tie();
        struct tenure_call *c;
        struct tenure_watch *w;
        const struct tenure_event *e;
        int64_t began = ms();
        int r;

        watch(t, "app/", true, 0, &w);
        must(t, tenure_put(t, "app/x", 5, "y", 1, 0, &c), "tenure_put()");
        r = tenure_call_wait(c, WAIT);
        printf("put %d after %s: %s\n", r, ms() - began < 5000 ? "a moment" : "long",
               tenure_call_error(c));
        tenure_call_free(c);
        if (r == -EACCES && tenure_wait(t, 5000) > 0) {
                e = tenure_pop_event(t);
                printf("watch %d\n", e->type == TENURE_WATCH_ENDED ? e->error : 0);
        }
        tenure_free(t);
}

static void mode_leases(void)
{
        struct tenure *t = tie();
        struct tenure_call *c;
        int64_t lease;
        int r;

        must(t, tenure_lease_grant(t, 60000, NULL, &c), "grant");
        if (tenure_call_wait(c, WAIT) < 0)
                fail("grant", tenure_error(t));
        lease = tenure_call_lease(c);
        printf("granted %" PRId64 "\n", tenure_call_ttl_ms(c));
        c = tenure_call_free(c);
        must(t, tenure_put(t, "l/k", 3, "v", 1, lease, &c), "put");
        printf("put %d\n", tenure_call_wait(c, WAIT));
        c = tenure_call_free(c);
        must(t, tenure_lease_renew(t, lease, &c), "renew");
        r = tenure_call_wait(c, WAIT);
        printf("renewed %d %" PRId64 "\n", r, tenure_call_ttl_ms(c));
        c = tenure_call_free(c);
        must(t, tenure_lease_revoke(t, lease, &c), "revoke");
        printf("revoked %d\n", tenure_call_wait(c, WAIT));
        c = tenure_call_free(c);
        must(t, tenure_lease_time_to_live(t, lease, &c), "ttl");
        printf("then %d\n", tenure_call_wait(c, WAIT));
        tenure_call_free(c);
        c = get(t, (struct tenure_range){.key = "l/k", .key_len = 3});
        printf("keys %zu\n", tenure_call_n_kvs(c, 0));
        tenure_call_free(c);
        must(t, tenure_lease_grant(t, 60000, "by-name", &c), "grant");
        r = tenure_call_wait(c, WAIT);
        printf("named %d\n", r);
        lease = tenure_call_lease(c);
        c = tenure_call_free(c);
        must(t, tenure_lease_find(t, "by-name", &c), "find");
        r = tenure_call_wait(c, WAIT);
        printf("found %d %d\n", r, tenure_call_lease(c) == lease);
        tenure_call_free(c);
        tenure_free(t);
}

static int result_of(struct tenure *t, struct tenure_call *c)
{
        int r = tenure_call_wait(c, WAIT);

        if (r < 0)
                printf("  %s\n", tenure_error(t));
        return r;
}

/* All that goes by a name; what an etcd refuses, and has not done. */
static void mode_named(void)
{
        struct tenure *t = tie();
        struct tenure_call *c;
        struct tenure_txn *x;
        int64_t lease;
        int r;

        must(t, tenure_lease_grant(t, 60000, "jobs", &c), "grant");
        printf("granted %d\n", result_of(t, c));
        lease = tenure_call_lease(c);
        c = tenure_call_free(c);
        must(t, tenure_lease_grant(t, 60000, "jobs", &c), "grant");
        printf("again %d\n", result_of(t, c));
        c = tenure_call_free(c);
        must(t, tenure_put_named(t, "n/a", 3, "v", 1, "jobs", &c), "put");
        printf("put %d\n", result_of(t, c));
        c = tenure_call_free(c);
        must(t, tenure_txn_new(t, &x), "txn");
        tenure_txn_if_version(x, "n/b", 3, '=', 0);
        tenure_txn_put_named(x, "n/b", 3, "v", 1, "jobs");
        must(t, tenure_txn_commit(x, &c), "commit");
        printf("txn %d\n", result_of(t, c));
        c = tenure_call_free(c);
        must(t, tenure_lease_renew_named(t, "jobs", &c), "renew");
        r = result_of(t, c);
        printf("renewed %d %d\n", r, tenure_call_lease(c) == lease);
        c = tenure_call_free(c);
        must(t, tenure_lease_keys_named(t, "jobs", &c), "keys");
        printf("keys %d", result_of(t, c));
        for (size_t i = 0; i < tenure_call_n_kvs(c, 0); i++)
                printf(" %s", (const char *) tenure_call_kv(c, 0, i)->key);
        printf("\n");
        c = tenure_call_free(c);
        if (lease != 0) {
                must(t, tenure_lease_time_to_live(t, lease, &c), "ttl");
                r = result_of(t, c);
                printf("name %d %s\n", r, tenure_call_lease_name(c));
                c = tenure_call_free(c);
        }
        must(t, tenure_lease_revoke_named(t, "jobs", &c), "revoke");
        printf("revoked %d\n", result_of(t, c));
        c = tenure_call_free(c);
        must(t, tenure_put_named(t, "n/c", 3, "v", 1, "jobs", &c), "put");
        printf("late %d\n", result_of(t, c));
        c = tenure_call_free(c);
        c = get(t, (struct tenure_range){.key = "n/", .key_len = 2, .prefix = true});
        printf("left %zu\n", tenure_call_n_kvs(c, 0));
        tenure_call_free(c);
        tenure_free(t);
}

int main(int argc, char **argv)
{
        const char *mode = argc > 1 ? argv[1] : "", *n = argc > 2 ? argv[2] : "1";

        setvbuf(stdout, NULL, _IOLBF, 0);
        signal(SIGTERM, end);
        if (strcmp(mode, "puts") == 0)
                mode_puts(n);
        else if (strcmp(mode, "watch") == 0)
                mode_watch(n);
        else if (strcmp(mode, "named") == 0)
                mode_named();
        else if (strcmp(mode, "many") == 0)
                mode_many();
        else if (strcmp(mode, "slow") == 0)
                mode_slow(n);
        else if (strcmp(mode, "gets") == 0)
                mode_gets();
        else if (strcmp(mode, "old") == 0)
                mode_old();
        else if (strcmp(mode, "login") == 0)
                mode_login();
        else if (strcmp(mode, "leases") == 0)
                mode_leases();
        else
                return 2;
        free(puts_made);
        return 0;
}
