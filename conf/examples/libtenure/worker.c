/*
 * One of several workers: the one that has the lock `jobs` works, and stops in time. Each piece
 * of work is short, begins only while the lock is held, and ends with a write that the core
 * refuses if the worker was delayed for so long that another one may have taken over.
 *
 * cc worker.c $(pkg-config --cflags --libs libtenure)
 * usage: worker [NAME]     with NAME by a lease of its own, without it by the host's place
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

/* Stands for a piece of work, which is much shorter than the TTL. */
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
        /* Takes effect only if the core finds that our place or lease is still held. */
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
        /* Do not wait while there is work to do; otherwise wait for an event. */
        while (tenure_wait(t, tenure_lock_is_held(lock) ? 0 : -1) >= 0) {
                while ((e = tenure_pop_event(t)))
                        if (e->type == TENURE_LOCKED)
                                printf("my turn, token %lld\n",
                                       (long long) tenure_lock_token(lock));
                        else if (e->type == TENURE_UNLOCKED)
                                printf("not my turn: %s\n", e->reason);
                        else if (e->type == TENURE_ASKED)
                                tenure_hand_over(lock); /* no work is under way here */
                        else if (e->type == TENURE_LOST)
                                printf("lost: %s\n", e->reason);
                /* Check immediately before each piece of work. */
                if (tenure_lock_is_held(lock))
                        work_once(t, lock, &n);
        }
        return fail(t);
}
