/*
 * One of several programs that divide shards among themselves: each works on its own shards,
 * and stops in time. Start it a few times, each time with another name; stop one with ^C, or
 * kill it, and the others take its shards over.
 *
 * cc shards.c $(pkg-config --cflags --libs libtenure)
 * usage: shards NAME [SHARDS]
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <tenure.h>

#define SHARDS_MOST 1000

static volatile sig_atomic_t interrupted;
static char is_ours[SHARDS_MOST + 1];

static void on_signal(int signo)
{
        (void) signo;
        interrupted = 1;
}

static int fail(struct tenure *t)
{
        fprintf(stderr, "shards: %s.\n", tenure_error(t));
        tenure_free(t);
        return 1;
}

static void work_at(const struct tenure_work *w, size_t shard)
{
        char name[24];

        snprintf(name, sizeof(name), "%zu", shard);
        /* Check immediately before each act, keep the act short, and pass on the token. */
        if (tenure_task_is_held(w, name))
                printf("shard %s, token %lld\n", name, (long long) tenure_task_token(w, name));
}

/* Returns whether this program has left the group. */
static int take_events(struct tenure *t)
{
        const struct tenure_event *e;

        while ((e = tenure_pop_event(t))) {
                size_t shard = e->task ? strtoul(e->task, NULL, 10) : 0;

                switch (e->type) {
                case TENURE_TASK_BEGIN:
                        printf("begin %s\n", e->task);
                        is_ours[shard] = 1;
                        break;
                case TENURE_TASK_END: /* no act is under way here, so the task has ended */
                        printf("end %s: %s\n", e->task, e->reason);
                        is_ours[shard] = 0;
                        tenure_task_ended(e->work, e->task);
                        break;
                case TENURE_WORK_LEFT:
                        return 1;
                default:
                        break;
                }
        }
        return 0;
}

int main(int argc, char **argv)
{
        struct tenure_work_options o = {.n_tasks = 12};
        struct pollfd p = {.events = POLLIN};
        struct tenure_work *work = NULL;
        struct tenure *t;
        size_t next = 0;

        if (argc > 2)
                o.n_tasks = strtoul(argv[2], NULL, 10);
        if (argc < 2 || o.n_tasks < 1 || o.n_tasks > SHARDS_MOST || tenure_new(&t) < 0) {
                fprintf(stderr, "usage: shards NAME [SHARDS]\n");
                return 2;
        }
        if (tenure_hold_own(t, 3000, argv[1]) < 0 ||
            tenure_work_join(t, "shards", &o, &work) < 0 || tenure_start(t) < 0)
                return fail(t);
        signal(SIGINT, on_signal);
        signal(SIGTERM, on_signal);
        setvbuf(stdout, NULL, _IOLBF, 0);
        p.fd = tenure_get_fd(t);
        while (!take_events(t)) {
                if (interrupted)
                        work = tenure_work_leave(work);
                /* One shard after the other, up to 50 a second. */
                next = next % o.n_tasks + 1;
                if (work && is_ours[next])
                        work_at(work, next);
                if (poll(&p, 1, tenure_get_timeout(t) == 0 ? 0 : 20) < 0 && errno != EINTR)
                        return 1;
                if (tenure_dispatch(t) < 0)
                        return fail(t);
        }
        /* Give the lease back, so that nobody has to wait for its end. */
        if (tenure_leave(t) == 0)
                tenure_wait(t, 2000);
        tenure_free(t);
        return 0;
}
