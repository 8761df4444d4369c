/* lib/tenure: what a program may act by, with the agent's page written by the test. */
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nomem.h"
#include "tenure/calls.h"
#include "test.h"
#include "virtual_time.h"

#define MS NSEC_PER_MSEC

/* ---- a page ---- */

static int new_page(bool sealed)
{
        int fd = memfd_create("tenancy", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        CHECK(fd >= 0 && ftruncate(fd, TENANCY_BYTES) == 0);
        CHECK(!sealed || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
        return fd;
}

static int reader_of(int fd)
{
        char path[32];
        int r;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        r = open(path, O_RDONLY | O_CLOEXEC);
        CHECK(r >= 0);
        return r;
}

static void put(int fd, const struct tenancy *t)
{
        uint8_t bytes[TENANCY_BYTES];

        tenancy_write(t, bytes);
        CHECK_EQ(pwrite(fd, bytes, sizeof(bytes), 0), TENANCY_BYTES);
}

static struct tenancy place(int64_t lease, nsec_t left)
{
        return (struct tenancy){.lease = lease,
                                .ttl = 2 * NSEC_PER_SEC,
                                .deadline = boot_add(boot_now(), left)};
}

TEST(a_page_is_mapped_only_if_it_keeps_its_size)
{
        for (int sealed = 0; sealed < 2; sealed++) {
                int fd = new_page(sealed);
                struct tenancy t = place(7, NSEC_PER_SEC);
                uint8_t half[TENANCY_BYTES / 2] = {0};
                struct page p;

                page_init(&p);
                CHECK_EQ(page_look(&p), -ENOENT);
                CHECK_EQ(page_open(&p, reader_of(fd)), 0);
                CHECK_EQ(p.map != NULL, sealed);
                put(fd, &t);
                CHECK_EQ(page_look(&p), 0);
                CHECK_EQ(p.tenancy.lease, 7);
                CHECK_EQ(p.tenancy.deadline.ns, t.deadline.ns);
                /* In the middle of being written: read again, but not for ever. */
                CHECK_EQ(pwrite(fd, half, sizeof(half), 0), (ssize_t) sizeof(half));
                CHECK_EQ(page_look(&p), -EBADMSG);
                t.time_ns = p.time_ns;
                put(fd, &t);
                CHECK_EQ(page_look(&p), 0);
                t.time_ns = p.time_ns + 1;
                put(fd, &t);
                CHECK_EQ(page_look(&p), -EXDEV);
                /* Cut off: whoever maps what can be cut off dies of it. */
                CHECK_EQ(ftruncate(fd, 0) == 0, !sealed);
                if (!sealed)
                        CHECK_EQ(page_look(&p), -EBADMSG);
                page_close(&p);
                CHECK_EQ(page_look(&p), -ENOENT);
                close(fd);
        }
}

static struct {
        int fd;
        bool end;
} writer;

/* Pages in which each number determines the others. */
static void *write_on(void *arg)
{
        enum { half = TENANCY_BYTES / 2 };
        uint8_t bytes[TENANCY_BYTES];

        (void) arg;
        for (int64_t i = 1; !__atomic_load_n(&writer.end, __ATOMIC_RELAXED); i++) {
                struct tenancy t = {.lease = i, .ttl = 2 * i, .deadline = {3 * i}};

                /* In two halves, so that the state between them is seen often. */
                tenancy_write(&t, bytes);
                if (pwrite(writer.fd, bytes, half, 0) != half ||
                    pwrite(writer.fd, bytes + half, half, half) != half)
                        return NULL;
        }
        return NULL;
}

TEST(a_page_is_whole_or_not_read_while_another_thread_writes_it)
{
        for (int sealed = 0; sealed < 2; sealed++) {
                unsigned good = 0;
                struct boot_time until;
                pthread_t thread;
                struct page p;

                writer.fd = new_page(sealed);
                writer.end = false;
                page_init(&p);
                CHECK_EQ(page_open(&p, reader_of(writer.fd)), 0);
                CHECK_EQ(pthread_create(&thread, NULL, write_on, NULL), 0);
                until = boot_add(boot_now(), 5 * NSEC_PER_SEC);
                while (good < 2000 && boot_before(boot_now(), until))
                        if (page_look(&p) == 0) {
                                CHECK(p.tenancy.ttl == 2 * p.tenancy.lease);
                                CHECK(p.tenancy.deadline.ns == 3 * p.tenancy.lease);
                                good += p.tenancy.lease > 0;
                        }
                __atomic_store_n(&writer.end, true, __ATOMIC_RELAXED);
                pthread_join(thread, NULL);
                CHECK(good > 0);
                page_close(&p);
                close(writer.fd);
        }
}

/* ---- a tie ---- */

static struct {
        struct tenure *t;
        int fd;
} tie;

/* With the agent's place; there is no bus: the page is the test's. */
static void begin(void)
{
        virtual_time_begin();
        setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent", 1);
        unsetenv("TENURE_ENDPOINTS");
        CHECK_EQ(tenure_new(&tie.t), 0);
        CHECK_EQ(tenure_hold_with_agent(tie.t), 0);
        CHECK_EQ(tenure_hold_own(tie.t, 2000, NULL), -EBUSY);
        CHECK_EQ(tenure_start(tie.t), 0);
        CHECK(!tenure_may_act(tie.t));
        tie.fd = new_page(true);
        CHECK_EQ(page_open(&tie.t->agent.page, reader_of(tie.fd)), 0);
        strcpy(tie.t->agent.cluster, "default");
        strcpy(tie.t->agent.node, "web1");
}

static void end(void)
{
        tenure_free(tie.t);
        close(tie.fd);
        unsetenv("DBUS_SYSTEM_BUS_ADDRESS");
}

static void tell(int64_t lease, nsec_t left, bool leaving)
{
        struct tenancy t = place(lease, left);

        t.leaving = leaving;
        put(tie.fd, &t);
}

/* A turn of the loop, whatever the descriptor says: there is no inotify here. */
static void turn(void)
{
        tenure_wake(tie.t);
        CHECK_EQ(tenure_dispatch(tie.t), 0);
}

static void expect(enum tenure_event_type type, int64_t lease)
{
        const struct tenure_event *e = tenure_pop_event(tie.t);

        CHECK(e != NULL);
        CHECK_EQ(e->type, type);
        CHECK_EQ(e->lease, lease);
}

TEST(who_may_act_by_the_agents_place)
{
        begin();
        turn();
        CHECK(tenure_pop_event(tie.t) == NULL);
        tell(5, NSEC_PER_SEC, false);
        CHECK(!tenure_may_act(tie.t)); /* the lease is not known yet */
        turn();
        expect(TENURE_HELD, 5);
        CHECK(tenure_may_act(tie.t));
        CHECK_EQ(tenure_lease(tie.t), 5);
        CHECK(tenure_deadline(tie.t) > 0);
        /* A renewal, and the loss of it, count without a dispatch. */
        tell(5, 0, false);
        CHECK(!tenure_may_act(tie.t));
        CHECK_EQ(tenure_lease(tie.t), 0);
        CHECK_EQ(tenure_deadline(tie.t), 0);
        tell(5, NSEC_PER_SEC, false);
        CHECK(tenure_may_act(tie.t));
        /* Another life of the place: not before the program knows that the first is over. */
        tell(6, NSEC_PER_SEC, false);
        CHECK(!tenure_may_act(tie.t));
        turn();
        CHECK(!tenure_may_act(tie.t));
        expect(TENURE_LOST, 5);
        CHECK(tenure_may_act(tie.t));
        expect(TENURE_HELD, 6);
        /* The deadline is near, which is reported, and then that it is not any more. */
        tell(6, 200 * MS, false);
        turn();
        expect(TENURE_JEOPARDY, 6);
        CHECK(tenure_may_act(tie.t));
        tell(6, NSEC_PER_SEC, false);
        turn();
        expect(TENURE_HELD, 6);
        CHECK(tenure_pop_event(tie.t) == NULL);
        /* Of another clock, or of another time namespace. */
        tell(6, 3 * NSEC_PER_SEC, false);
        turn();
        expect(TENURE_LOST, 6);
        CHECK(!tenure_may_act(tie.t));
        end();
}

TEST(a_deadline_passes_although_nobody_reports_it)
{
        struct boot_time asked, until;

        begin();
        tell(5, 1900 * MS, false);
        turn();
        expect(TENURE_HELD, 5);
        CHECK_EQ(tenure_wait(tie.t, 5000), 1);
        expect(TENURE_JEOPARDY, 5);
        until = tie.t->agent.page.tenancy.deadline;
        for (asked = boot_now(); tenure_may_act(tie.t); asked = boot_now())
                CHECK(boot_before(asked, until));
        CHECK(!boot_before(boot_now(), until));
        CHECK_EQ(tenure_wait(tie.t, 5000), 1);
        expect(TENURE_LOST, 5);
        end();
}

static bool is_locked(void)
{
        struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

        CHECK_EQ(fcntl(tie.fd, F_OFD_GETLK, &l), 0);
        return l.l_type != F_UNLCK;
}

/* A child shares the lock, and has nothing to stop. */
TEST(a_child_does_not_let_the_place_go)
{
        struct tenure_range all = {.prefix = true};
        struct tenure_call *c;
        int status;
        pid_t pid;

        begin();
        tell(5, NSEC_PER_SEC, false);
        turn();
        expect(TENURE_HELD, 5);
        tell(5, NSEC_PER_SEC, true);
        turn();
        CHECK_EQ(tenure_get(tie.t, &all, &c), 0);
        pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
                while (tenure_pop_event(tie.t))
                        ;
                _exit(tenure_call_wait(c, 0) != -ECHILD ||
                      !strstr(tenure_error(tie.t), "belongs to the parent of this process"));
        }
        CHECK_EQ(waitpid(pid, &status, 0), pid);
        CHECK_EQ(status, 0);
        CHECK(is_locked());
        expect(TENURE_LOST, 5);
        CHECK(tenure_pop_event(tie.t) == NULL);
        CHECK(!is_locked());
        end();
}

/* The agent waits until the program has seen to it. */
TEST(a_place_that_is_given_back_is_released_when_the_program_dispatches_again)
{
        begin();
        CHECK(!is_locked());
        tell(5, NSEC_PER_SEC, false);
        turn();
        expect(TENURE_HELD, 5);
        CHECK(is_locked());
        tell(5, NSEC_PER_SEC, true);
        CHECK(!tenure_may_act(tie.t));
        turn();
        CHECK(is_locked());
        turn();
        CHECK(is_locked());
        expect(TENURE_LOST, 5);
        CHECK(is_locked());
        CHECK(tenure_pop_event(tie.t) == NULL);
        CHECK(!is_locked());
        /* A program that comes while the agent leaves delays nobody. */
        turn();
        CHECK(!is_locked() && !tenure_may_act(tie.t));
        tell(6, NSEC_PER_SEC, false);
        turn();
        expect(TENURE_HELD, 6);
        CHECK(is_locked());
        CHECK_EQ(tenure_leave(tie.t), 0);
        CHECK(!tenure_may_act(tie.t));
        turn();
        expect(TENURE_LOST, 6);
        CHECK_EQ(tenure_dispatch(tie.t), 0);
        CHECK(!is_locked());
        turn();
        CHECK(tenure_pop_event(tie.t) == NULL);
        end();
}

TEST(what_is_guarded_wants_something_that_is_held)
{
        struct tenure_call *c = NULL;
        struct tenure_txn *x;
        struct tenure_lock *l;

        begin();
        CHECK_EQ(tenure_put_held(tie.t, "k", 1, "v", 1, &c), -ESTALE);
        CHECK(c == NULL && *tenure_error(tie.t));
        CHECK_EQ(tenure_lock(tie.t, "", NULL, &l), -EINVAL);
        CHECK_EQ(tenure_lock(tie.t, NULL, NULL, &l), -EINVAL);
        CHECK_EQ(tenure_lock(tie.t, "a", NULL, &l), 0);
        CHECK_EQ(tenure_lock(tie.t, "a", NULL, &l), -EALREADY);
        CHECK(!tenure_lock_is_held(l) && tenure_lock_token(l) == 0);
        CHECK(tenure_unlock(l) == NULL);
        expect(TENURE_UNLOCKED, 0);
        tell(5, NSEC_PER_SEC, false);
        turn();
        expect(TENURE_HELD, 5);
        CHECK_EQ(tenure_put_held(tie.t, "k", 1, "v", 1, &c), 0);
        tenure_call_free(c);
        /* Twice is once. */
        CHECK_EQ(tenure_txn_new(tie.t, &x), 0);
        tenure_txn_if_held(x);
        tenure_txn_if_held(x);
        tenure_txn_put(x, "k", 1, "v", 1, 0);
        CHECK_EQ(tenure_txn_commit(x, NULL), 0);
        end();
}

TEST(what_is_said_of_a_lock_is_not_of_the_next_one)
{
        struct tenure_lock *was, *next, *third;
        const struct tenure_event *e;

        begin();
        CHECK_EQ(tenure_lock(tie.t, "a", NULL, &was), 0);
        tenure_unlock(was);
        CHECK_EQ(tenure_lock(tie.t, "b", NULL, &next), 0);
        CHECK(next != was);
        e = tenure_pop_event(tie.t);
        CHECK(e && e->type == TENURE_UNLOCKED && e->lock == was);
        CHECK_EQ(tenure_lock(tie.t, "c", NULL, &third), 0); /* @e is still there */
        CHECK(third != was);
        CHECK(!tenure_pop_event(tie.t));
        end();
}

TEST(a_service_is_registered_with_what_it_may_say)
{
        struct tenure_service s = {.name = "cache", .tags = "a=1", .port = 80}, bad;
        struct tenure *t;

        CHECK_EQ(tenure_new(&t), 0);
        CHECK_EQ(tenure_register(t, &s), -EINVAL); /* nothing is held */
        tenure_free(t);
        begin();
        CHECK_EQ(tenure_register(tie.t, &s), 0);
        CHECK_EQ(tenure_register(tie.t, &s), 0);
        bad = s;
        bad.name = "a/b";
        CHECK_EQ(tenure_register(tie.t, &bad), -EINVAL);
        bad = s;
        bad.tags = "=";
        CHECK_EQ(tenure_register(tie.t, &bad), -EINVAL);
        bad.tags = "a=1,,b=2";
        CHECK_EQ(tenure_register(tie.t, &bad), -EINVAL);
        bad = s;
        bad.address = "a b";
        CHECK_EQ(tenure_register(tie.t, &bad), -EINVAL);
        CHECK_EQ(tenure_unregister(tie.t, "cache", "x"), -ENOENT);
        CHECK_EQ(tenure_unregister(tie.t, "cache", NULL), 0);
        CHECK_EQ(tenure_unregister(tie.t, "cache", NULL), -ENOENT);
        end();
}

TEST(what_a_lease_of_ones_own_may_be)
{
        struct tenure *t;

        CHECK_EQ(tenure_new(&t), 0);
        CHECK_EQ(tenure_leave(t), -EINVAL);
        CHECK_EQ(tenure_hold_own(t, 0, NULL), -EINVAL);
        CHECK_EQ(tenure_hold_own(t, UINT64_MAX, NULL), -EINVAL);
        CHECK_EQ(tenure_hold_own(t, 2000, "a/b"), -EINVAL);
        CHECK_EQ(tenure_hold_own(t, 2000, "a"), 0);
        CHECK_EQ(tenure_hold_with_agent(t), -EBUSY);
        CHECK_EQ(tenure_set_endpoints(t, "http://127.0.0.1:1"), 0);
        CHECK_EQ(tenure_start(t), 0);
        CHECK_EQ(tenure_hold_own(t, 2000, NULL), -EBUSY);
        CHECK(!tenure_may_act(t) && tenure_deadline(t) == 0 && tenure_lease(t) == 0);
        tenure_free(t);
}

/* ---- no memory ---- */

static void holds_and_asks(struct tenure *t)
{
        struct tenure_service s = {.name = "cache", .tags = "a=1", .port = 80};
        struct tenancy p = place(5, NSEC_PER_SEC);
        const struct tenure_event *e;
        struct tenure_lock *l = NULL;
        struct tenure_call *c = NULL;
        bool told = false;

        if (tenure_hold_with_agent(t) < 0 || tenure_start(t) < 0)
                return;
        tie.t = t;
        put(tie.fd, &p);
        CHECK_EQ(page_open(&t->agent.page, reader_of(tie.fd)), 0);
        strcpy(t->agent.cluster, "default");
        strcpy(t->agent.node, "web1");
        (void) !tenure_register(t, &s);
        (void) !tenure_lock(t, "a", "v", &l);
        tenure_wake(t);
        (void) !tenure_dispatch(t);
        while ((e = tenure_pop_event(t)))
                told |= e->type == TENURE_HELD;
        /* A program that has not taken the event may not act, because it would not learn of the
         * end either. */
        CHECK(told || !tenure_may_act(t));
        if (tenure_put_held(t, "k", 1, "v", 1, &c) == 0)
                tenure_call_free(c);
        tenure_wake(t);
        (void) !tenure_dispatch(t);
        tenure_unlock(l);
        (void) !tenure_unregister(t, "cache", NULL);
        tenure_wake(t);
        (void) !tenure_dispatch(t);
}

TEST(each_allocation_of_a_tie_that_holds_may_fail)
{
        bool came = true;

        setenv("DBUS_SYSTEM_BUS_ADDRESS", "unix:path=/nonexistent", 1);
        for (size_t n = 0; came; n++) {
                struct tenure *t;

                tie.fd = new_page(true);
                nomem_after(n);
                if (tenure_new(&t) == 0) {
                        holds_and_asks(t);
                        tenure_free(t);
                }
                came = nomem_end();
                close(tie.fd);
                CHECK(n < 10000);
        }
        unsetenv("DBUS_SYSTEM_BUS_ADDRESS");
}
