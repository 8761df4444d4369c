/* Turns among the programs of a host: real files, and a real loop. */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loop/host_turn.h"
#include "test.h"
#include "virtual_time.h"

#define LEASE getpid() /* no other process takes this turn */
#define NAME "job"
#define PATIENCE (60 * NSEC_PER_SEC)

static struct {
        struct loop *loop;
        struct host_turn turn;
        struct loop_timer then, end;
        int file, other, earlier; /* these two have the turn */
        bool ours;
} w;

static void on_turn(struct host_turn *h unused_)
{
        w.ours = true;
        loop_stop(w.loop);
}

static void on_end(struct loop_timer *t unused_)
{
        loop_stop(w.loop);
}

static int open_again(void)
{
        char path[32];
        int fd;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", w.file);
        fd = open(path, O_RDWR | O_CLOEXEC);
        CHECK(fd >= 0);
        return fd;
}

/* Waits for a turn that somebody else has, who calls @fn after a while. */
static void wait_for_other(void (*fn)(struct loop_timer *t))
{
        memset(&w, 0, sizeof(w));
        CHECK_EQ(loop_new(&w.loop), 0);
        w.file = memfd_create("turns", MFD_CLOEXEC);
        CHECK(w.file >= 0);
        w.other = open_again();
        w.earlier = -1;
        CHECK_EQ(host_turn_take(w.other, &w.earlier, LEASE, NAME), 0);
        host_turn_begin(&w.turn, w.loop, open_again(), LEASE, NAME, on_turn);
        loop_timer_init(&w.then, w.loop, fn);
        loop_timer_in(&w.then, 5 * NSEC_PER_SEC);
        loop_timer_init(&w.end, w.loop, on_end);
        loop_timer_in(&w.end, PATIENCE);
        virtual_time_begin();
        loop_run(w.loop);
        loop_timer_disarm(&w.end);
        host_turn_end(&w.turn);
        close(w.file);
        loop_free(w.loop);
}

static void close_other(struct loop_timer *t unused_)
{
        CHECK(!w.ours);
        close(w.other);
        close(w.earlier);
}

TEST(a_turn_is_taken_when_its_descriptor_is_closed)
{
        wait_for_other(close_other);
        CHECK(w.ours);
}

/* The kernel tells that a descriptor is closed before it frees its locks. */
static void unlock(struct loop_timer *t unused_)
{
        struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

        CHECK(!w.ours);
        CHECK_EQ(fcntl(w.other, F_OFD_SETLK, &all), 0);
        close(w.earlier);
}

static void tell_and_unlock(struct loop_timer *t)
{
        close(open_again());
        t->fn = unlock;
        loop_timer_in(t, 5 * NSEC_PER_SEC);
}

TEST(a_turn_is_taken_that_is_freed_after_it_was_reported)
{
        wait_for_other(tell_and_unlock);
        CHECK(w.ours);
        close(w.other);
}

/* ... of release 0.1.0, which knows nothing of the file. */
static void close_earlier(struct loop_timer *t unused_)
{
        CHECK(!w.ours);
        close(w.earlier);
}

static void unlock_file(struct loop_timer *t)
{
        struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};

        CHECK_EQ(fcntl(w.other, F_OFD_SETLK, &all), 0);
        t->fn = close_earlier;
        loop_timer_in(t, 5 * NSEC_PER_SEC);
}

TEST(a_turn_is_taken_when_a_program_of_release_0_1_0_gives_it_up)
{
        wait_for_other(unlock_file);
        CHECK(w.ours);
        close(w.other);
}

/* A program that was started before an upgrade goes on beside those that are started after it.
 */
TEST(programs_of_all_releases_lock_the_same_byte)
{
        struct flock any = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
        int earlier = -1, other;

        w.file = memfd_create("turns", MFD_CLOEXEC);
        other = open_again();
        while (host_turn_take(w.file, &earlier, 7, NAME) == -EAGAIN)
                usleep(1000); /* in another run of this test */
        CHECK_EQ(fcntl(other, F_OFD_GETLK, &any), 0);
        CHECK_EQ(any.l_type, F_WRLCK);
        CHECK_EQ(any.l_start, INT64_C(3588577504906780918));
        CHECK_EQ(any.l_len, 1);
        close(w.file);
        close(other);
        close(earlier);
}
