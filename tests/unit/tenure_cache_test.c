/* Caches of libtenure, on a core that does what real ones do rarely. */
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fake_core.h"
#include "nomem.h"

static Pb__KeyValue kvs[2], *of_kvs[] = {&kvs[0], &kvs[1]};
static Pb__RangeResponse content;

static void fill(void)
{
        pb__range_response__init(&content);
        for (size_t i = 0; i < 2; i++) {
                pb__key_value__init(&kvs[i]);
                kvs[i].key = pb_bytes(i == 0 ? "k1" : "k3", 2);
                kvs[i].value = pb_bytes(i == 0 ? "one" : "three", i == 0 ? 3 : 5);
        }
        content.kvs = of_kvs;
        content.n_kvs = 2;
        fake.content = &content;
}

static bool is_good(void *arg)
{
        return tenure_cache_is_good(arg);
}

static bool was_asked(void *arg)
{
        return fake.cached == *(unsigned *) arg;
}

static struct tenure_cache *begin(struct tenure **t, int64_t term_ms)
{
        struct tenure_cache *c;

        fake_begin();
        fill();
        fake.term_ms = term_ms;
        *t = fake_tie();
        CHECK_EQ(tenure_cache(*t,
                              &(struct tenure_range){.key = "k", .key_len = 1, .prefix = true},
                              &c),
                 0);
        CHECK(!tenure_cache_is_good(c));
        return c;
}

static enum tenure_event_type next(struct tenure *t, int *error)
{
        const struct tenure_event *e = tenure_pop_event(t);

        if (error)
                *error = e ? e->error : 0;
        return e ? e->type : 0;
}

TEST(a_cache_is_read_for_its_term_and_renewed_at_half_of_it)
{
        const struct tenure_kv *kv = NULL;
        struct tenure_cache *c;
        unsigned n = 2;
        struct tenure *t;

        c = begin(&t, 2000);
        CHECK_EQ(tenure_cache_get(c, "k1", 2, &kv), -EAGAIN);
        fake_until(t, is_good, c);
        CHECK_EQ(next(t, NULL), TENURE_CACHED);
        CHECK_EQ(next(t, NULL), 0);
        CHECK_EQ(tenure_cache_n_kvs(c), 2);
        CHECK_STR(tenure_cache_kv(c, 1)->value, "three");
        CHECK(!tenure_cache_kv(c, 2));
        CHECK_EQ(tenure_cache_get(c, "k1", 2, &kv), 0);
        CHECK_STR(kv->value, "one");
        CHECK_EQ(tenure_cache_get(c, "k2", 2, &kv), -ENOENT);
        CHECK(!fake.have);

        fake_until(t, was_asked, &n);
        CHECK(fake.have && tenure_cache_is_good(c));
        fake_turns(t, 3);
        CHECK_EQ(next(t, NULL), 0); /* nothing has changed */
        CHECK(!tenure_cache_free(c));
        fake_turns(t, 3);
        CHECK_EQ(fake.returned, 1);
        CHECK(!fake.cache);
        tenure_free(t);
        fake_end();
}

static bool is_not_good(void *arg)
{
        return !tenure_cache_is_good(arg);
}

TEST(a_cache_without_an_answer_is_good_for_its_term_and_no_longer)
{
        struct boot_time asked = boot_now();
        struct tenure_cache *c;
        struct tenure *t;

        c = begin(&t, 300);
        fake_until(t, is_good, c);
        fake.term_ms = -1;
        fake_hang_up(); /* its content stays valid */
        fake_turns(t, 3);
        CHECK(tenure_cache_is_good(c) || boot_diff(boot_now(), asked) >= 299 * NSEC_PER_MSEC);
        fake_until(t, is_not_good, c);
        CHECK(boot_diff(boot_now(), asked) >= 299 * NSEC_PER_MSEC);
        fake_turns(t, 3);
        CHECK_EQ(next(t, NULL), TENURE_CACHED);
        CHECK_EQ(next(t, NULL), TENURE_UNCACHED);
        fake.term_ms = 300;
        fake_hang_up();
        fake_until(t, is_good, c);
        CHECK_EQ(next(t, NULL), TENURE_CACHED);
        tenure_free(t);
        fake_end();
}

TEST(what_is_recalled_is_forgotten_and_given_back)
{
        Pb__CacheResponse p = PB__CACHE_RESPONSE__INIT;
        struct tenure_cache *c;
        unsigned n = 2;
        struct tenure *t;

        c = begin(&t, 3000);
        fake_until(t, is_good, c);
        fake.term_ms = -1;
        p.recall = true;
        fake_tell_cache(&p);
        fake_until(t, is_not_good, c);
        CHECK_EQ(tenure_cache_n_kvs(c), 0);
        fake_turns(t, 3);
        CHECK_EQ(fake.returned, 1);
        CHECK_EQ(next(t, NULL), TENURE_CACHED);
        CHECK_EQ(next(t, NULL), TENURE_UNCACHED);
        /* While the write waits there is no term; then there is one. */
        fake_until(t, was_asked, &n);
        fake_turns(t, 3);
        CHECK_EQ(fake.cached, 2);
        CHECK(!fake.have);
        pb__cache_response__init(&p);
        fake_tell_cache(&p);
        fake.term_ms = 3000;
        fake_until(t, is_good, c);
        CHECK_EQ(next(t, NULL), TENURE_CACHED);
        tenure_free(t);
        fake_end();
}

static bool was_returned(void *arg)
{
        return fake.returned == *(unsigned *) arg;
}

/* The answer to an earlier request: it may be on its way when everything is given back. */
TEST(a_term_that_comes_after_all_was_given_back_is_given_back_too)
{
        Pb__CacheResponse p = PB__CACHE_RESPONSE__INIT;
        struct tenure_cache *c, *other;
        unsigned n = 1;
        struct tenure *t;

        c = begin(&t, -1);
        fake_until(t, was_asked, &n);
        p.recall = true;
        fake_tell_cache(&p);
        fake_until(t, was_returned, &n);
        p.recall = false;
        p.term_ms = 3000;
        fake_tell_cache(&p);
        n++;
        fake_until(t, was_returned, &n);
        CHECK(!tenure_cache_is_good(c));
        fake_until(t, was_asked, &n);
        fake_tell_cache(&p);
        fake_until(t, is_good, c);

        /* Of one that is freed, too; another keeps the stream. */
        tenure_cache_free(c);
        n++;
        fake_until(t, was_returned, &n);
        CHECK_EQ(tenure_cache(t, &(struct tenure_range){.key = "i", .key_len = 1}, &other), 0);
        CHECK_EQ(tenure_cache(t, &(struct tenure_range){.key = "j", .key_len = 1}, &c), 0);
        n++;
        fake_until(t, was_asked, &n);
        tenure_cache_free(c);
        fake_until(t, was_returned, &n);
        fake_tell_cache(&p);
        n++;
        fake_until(t, was_returned, &n);
        p.term_ms = 0;
        p.recall = true;
        fake_tell_cache(&p);
        n++;
        fake_until(t, was_returned, &n);
        tenure_cache_free(other);
        tenure_free(t);
        fake_end();
}

/* After that, the tie's loop does not run any more. */
TEST(a_tie_that_is_freed_has_given_its_terms_back)
{
        struct tenure_cache *c;
        struct tenure *t;

        for (unsigned n = 0; n < 2; n++) {
                c = begin(&t, 3000);
                fake_until(t, is_good, c);
                if (n == 1)
                        tenure_cache_free(c);
                tenure_free(t);
                for (unsigned i = 0; i < 100 && fake.returned == 0; i++)
                        fake_turn();
                CHECK_EQ(fake.returned, 1);
                fake_end();
        }
}

/* The parent alone is asked to give a term back. */
TEST(a_child_of_the_program_reads_nothing_from_a_cache)
{
        struct tenure_cache *c;
        struct tenure *t;
        int status;
        pid_t pid;

        c = begin(&t, 3000);
        fake_until(t, is_good, c);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
                const struct tenure_kv *kv;

                _exit(tenure_cache_is_good(c) || tenure_cache_n_kvs(c) > 0 ||
                      tenure_cache_kv(c, 0) || tenure_cache_get(c, "k1", 2, &kv) != -EAGAIN);
        }
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 0);
        CHECK(tenure_cache_is_good(c));
        tenure_free(t);
        fake_end();
}

static bool is_over(void *arg)
{
        return ((const struct tenure *) arg)->events.tqh_first != NULL;
}

TEST(a_core_without_cache_leases_says_so_once)
{
        struct tenure_cache *c;
        struct tenure *t;
        int error;

        c = begin(&t, 0);
        fake_until(t, is_over, t);
        CHECK_EQ(next(t, &error), TENURE_UNCACHED);
        CHECK_EQ(error, -EOPNOTSUPP);
        fake_turns(t, 30);
        CHECK_EQ(next(t, NULL), 0);
        CHECK(!tenure_cache_free(c));
        CHECK_EQ(tenure_cache(t, &(struct tenure_range){.key = "k", .key_len = 1, .limit = 1},
                              &c),
                 -EINVAL);
        CHECK_EQ(tenure_cache(t, &(struct tenure_range){.key = "", .key_len = 0}, &c), -EINVAL);
        tenure_free(t);
        fake_end();
}

TEST(what_a_cache_may_not_have_ends_it)
{
        Pb__CacheResponse p = PB__CACHE_RESPONSE__INIT;
        struct tenure_cache *c;
        unsigned n = 1;
        struct tenure *t;
        int error;

        c = begin(&t, -1);
        fake_until(t, was_asked, &n);
        p.error = (char *) (uintptr_t) "etcdserver: too large to be cached";
        p.code = RPC_INVALID_ARGUMENT;
        fake_tell_cache(&p);
        fake_until(t, is_over, t);
        CHECK_EQ(next(t, &error), TENURE_UNCACHED);
        CHECK_EQ(error, -EMSGSIZE);
        fake_turns(t, 30);
        CHECK_EQ(fake.cached, 1);
        tenure_cache_free(c);
        tenure_free(t);
        fake_end();
}

/* A malformed message ends the stream, and nothing in it is used. */
TEST(a_core_that_talks_nonsense_of_a_cache_is_left)
{
        Pb__CacheResponse p = PB__CACHE_RESPONSE__INIT;
        struct tenure_cache *c;
        unsigned n = 1;
        struct tenure *t;

        c = begin(&t, -1);
        fake_until(t, was_asked, &n);
        p.unchanged = true;
        p.term_ms = 1000;
        fake_tell_cache(&p);
        n++;
        fake_until(t, was_asked, &n);
        CHECK(!tenure_cache_is_good(c));
        p.unchanged = false;
        p.term_ms = 1000000;
        fake_tell_cache(&p);
        n++;
        fake_until(t, was_asked, &n);
        CHECK(!tenure_cache_is_good(c));
        p.term_ms = 1000;
        fake_tell_cache(&p);
        fake_until(t, is_good, c);
        fake_tell_cache(&p); /* nobody asked */
        fake.term_ms = 500;
        n++;
        fake_until(t, was_asked, &n);
        tenure_free(t);
        fake_end();
}

TEST(a_cache_survives_that_memory_runs_out)
{
        bool came = true;

        for (size_t n = 0; came; n++) {
                struct boot_time end = boot_add(boot_now(), 20 * NSEC_PER_SEC);
                struct tenure_cache *c = NULL;
                struct tenure *t = NULL;
                int r;

                fake_begin();
                fill();
                fake.term_ms = 2000;
                nomem_after(n);
                r = tenure_new(&t);
                if (r == 0)
                        r = tenure_set_endpoints(t, fake.url);
                if (r == 0)
                        r = tenure_start(t);
                if (r == 0)
                        r = tenure_cache(t,
                                         &(struct tenure_range){
                                                 .key = "k", .key_len = 1, .prefix = true},
                                         &c);
                while (r == 0 && !tenure_cache_is_good(c)) {
                        struct pollfd p = {.fd = tenure_get_fd(t), .events = POLLIN};

                        CHECK(boot_before(boot_now(), end));
                        poll(&p, 1, 1);
                        r = tenure_dispatch(t);
                        fake_turn();
                }
                CHECK(r == 0 || r == -ENOMEM);
                if (r == 0)
                        CHECK_EQ(tenure_cache_n_kvs(c), 2);
                tenure_free(t);
                came = nomem_end();
                fake_end();
        }
}
