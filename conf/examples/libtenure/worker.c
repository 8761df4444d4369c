/*
 * One worker of several: the one that has the lock `jobs` works, and stops in time. Each piece
 * of work is short, begins only while tenure_may_act(), and ends in a write that the core
 * refuses if the worker was held up for so long that another one may have taken over.
 *
 * cc worker.c $(pkg-config --cflags --libs libtenure)
 * usage: worker [NAME]     by a lease of its own; or, without NAME, by its host's place
 */
#include <stdio.h>
#include <string.h>
#include <tenure.h>
#include <time.h>

#define KEY "/jobs/done"

static int fail(struct tenure *t)
{
        fprintf(stderr, "worker: %s.\n", tenure_error(t));
        tenure_free(t);
        return 1;
}

/* What is to be done, a piece of it: much shorter than the TTL. */
static void work(void)
{
        nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
}

static void work_once(struct tenure *t, struct tenure_lock *l, unsigned *n)
{
        struct tenure_call *c;
        char text[64];
        int len, r;

        work();
        len = snprintf(text, sizeof(text), "%u by %lld", *n + 1,
                       (long long) tenure_lock_token(l));
        /* Only while our place or lease is held, as the core sees it. */
        r = tenure_put_held(t, KEY, strlen(KEY), text, (size_t) len, &c);
        if (r == 0) {
                r = tenure_call_wait(c, 5000);
                if (r < 0)
                        fprintf(stderr, "worker: not done: %s.\n", tenure_call_error(c));
                tenure_call_free(c);
        }
        if (r == 0)
                printf("did %u\n", ++*n);
}

int main(int argc, char **argv)
{
        const struct tenure_event *e;
        struct tenure_lock *lock;
        struct tenure *t;
        unsigned n = 0;
        int r;

        if (tenure_new(&t) < 0)
                return 1;
        r = argc > 1 ? tenure_hold_own(t, 3000, argv[1]) : tenure_hold_with_agent(t);
        if (r == 0)
                r = tenure_lock(t, "jobs", argc > 1 ? argv[1] : "", &lock);
        if (r == 0)
                r = tenure_start(t);
        if (r < 0)
                return fail(t);
        setvbuf(stdout, NULL, _IOLBF, 0);
        /* With work to do there is no waiting; without it, for an event. */
        while (tenure_wait(t, tenure_lock_is_held(lock) ? 0 : -1) >= 0) {
                while ((e = tenure_pop_event(t)))
                        if (e->type == TENURE_LOCKED)
                                printf("my turn, token %lld\n",
                                       (long long) tenure_lock_token(lock));
                        else if (e->type == TENURE_UNLOCKED)
                                printf("not my turn: %s\n", e->reason);
                        else if (e->type == TENURE_ASKED)
                                tenure_hand_over(lock); /* no piece of work is begun */
                        else if (e->type == TENURE_LOST)
                                printf("lost: %s\n", e->reason);
                /* Immediately before. */
                if (tenure_lock_is_held(lock))
                        work_once(t, lock, &n);
        }
        return fail(t);
}
