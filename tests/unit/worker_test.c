/* lib/loop/worker.c with its thread; the other tests have tests/sim/worker.c. */
#include <semaphore.h>

#include "loop/loop.h"
#include "test.h"

#define worker_abandon real_worker_abandon
#define worker_free real_worker_free
#define worker_freep real_worker_freep
#define worker_new real_worker_new
#define worker_submit real_worker_submit
#include "../../lib/loop/worker.c"

static struct worker *one;
static struct loop *l;
static sem_t begun, go_on;
static unsigned n_done, n_dropped;

static void run_at_once(struct worker_job *job)
{
        (void) job;
}

static void run_for_long(struct worker_job *job)
{
        (void) job;
        sem_post(&begun);
        sem_wait(&go_on);
}

static void ends_the_worker(struct worker_job *job)
{
        (void) job;
        n_done++;
        one = worker_abandon(one);
        loop_stop(l);
}

static void drop(struct worker_job *job)
{
        (void) job;
        n_dropped++;
        sem_post(&begun);
}

/* A resolver may be freed in an answer, with its threads and what their other jobs refer to. */
TEST(no_job_is_done_after_one_before_it_has_freed_the_worker)
{
        struct worker_job jobs[] = {
                {.run = run_at_once, .done = ends_the_worker, .drop = drop},
                {.run = run_at_once, .done = ends_the_worker, .drop = drop},
                {.run = run_for_long, .done = ends_the_worker, .drop = drop},
        };

        sem_init(&begun, 0, 0);
        sem_init(&go_on, 0, 0);
        CHECK_EQ(loop_new(&l), 0);
        CHECK_EQ(worker_new(&one, l, "test"), 0);
        for (size_t i = 0; i < ARRAY_SIZE(jobs); i++)
                worker_submit(one, &jobs[i]);
        sem_wait(&begun); /* the third; the others have run */
        loop_run(l);
        CHECK_EQ(n_done, 1);
        CHECK_EQ(n_dropped, 1);
        sem_post(&go_on);
        sem_wait(&begun); /* the second was dropped ... */
        sem_wait(&begun); /* ... and the third */
        CHECK_EQ(n_dropped, 2);
        loop_free(l);
}
