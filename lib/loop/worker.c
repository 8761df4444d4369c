#include "loop/worker.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

struct queue {
        struct worker_job *head, **tail;
};

struct worker {
        pthread_t thread;
        bool started;
        pthread_mutex_t lock; /* protects the following fields, up to `finished` */
        bool running;         /* a job is running */
        bool abandoned;       /* the thread frees the rest by itself */
        sem_t wake;           /* posted for each job in `todo`, and once more to end the
                               * thread */
        struct queue todo, finished;
        int event_fd;
        struct loop_io io;
};

static void queue_init(struct queue *q)
{
        q->head = NULL;
        q->tail = &q->head;
}

static void queue_push(struct queue *q, struct worker_job *job)
{
        job->next = NULL;
        *q->tail = job;
        q->tail = &job->next;
}

static struct worker_job *queue_pop(struct queue *q)
{
        struct worker_job *job = q->head;

        if (job)
                q->head = job->next;
        if (!q->head)
                q->tail = &q->head;
        return job;
}

static struct worker_job *queue_take(struct queue *q)
{
        struct worker_job *all = q->head;

        queue_init(q);
        return all;
}

static void drop_all(struct worker_job *job)
{
        struct worker_job *next;

        for (; job; job = next) {
                next = job->next;
                job->drop(job);
        }
}

static void fini(struct worker *w)
{
        if (w->event_fd >= 0)
                close(w->event_fd);
        sem_destroy(&w->wake);
        pthread_mutex_destroy(&w->lock);
        free(w);
}

static void *thread_main(void *arg)
{
        struct worker *w = arg;

        for (;;) {
                struct worker_job *job;
                struct boot_time at;
                uint64_t one = 1;
                bool abandoned;

                while (sem_wait(&w->wake) < 0 && errno == EINTR)
                        ;
                pthread_mutex_lock(&w->lock);
                job = queue_pop(&w->todo);
                w->running = job != NULL;
                pthread_mutex_unlock(&w->lock);
                if (!job)
                        return NULL;
                at = boot_glance();
                job->run(job);
                job->took = boot_diff(boot_glance(), at);
                pthread_mutex_lock(&w->lock);
                w->running = false;
                abandoned = w->abandoned;
                if (!abandoned)
                        queue_push(&w->finished, job);
                pthread_mutex_unlock(&w->lock);
                if (abandoned) {
                        job->drop(job);
                        fini(w);
                        return NULL;
                }
                if (write(w->event_fd, &one, sizeof(one)) < 0 && errno != EAGAIN)
                        abort();
        }
}

/* Hands back one job, since it may free the worker: then the others are dropped. */
static void on_finished(struct loop_io *io, int events unused_)
{
        struct worker *w = container_of(io, struct worker, io);
        struct worker_job *job;
        uint64_t n;

        if (read(w->event_fd, &n, sizeof(n)) < 0)
                return;
        pthread_mutex_lock(&w->lock);
        job = queue_pop(&w->finished);
        pthread_mutex_unlock(&w->lock);
        job->took_in_all = boot_diff(boot_glance(), job->submitted_at);
        job->done(job);
}

int worker_new(struct worker **ret, struct loop *l, const char *thread_name)
{
        cleanup_(worker_freep) struct worker *w = calloc(1, sizeof(*w));
        sigset_t all, before;
        int r;

        if (!w)
                return -ENOMEM;
        pthread_mutex_init(&w->lock, NULL);
        sem_init(&w->wake, 0, 0);
        queue_init(&w->todo);
        queue_init(&w->finished);
        w->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK | EFD_SEMAPHORE);
        if (w->event_fd < 0)
                return -errno;
        w->io.what = "what a thread has done";
        loop_io_start(&w->io, l, w->event_fd, EV_READ, on_finished);
        /* Signals are handled by the loop's thread. */
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &before);
        r = pthread_create(&w->thread, NULL, thread_main, w);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (r != 0)
                return -r;
        w->started = true;
        pthread_setname_np(w->thread, thread_name);
        *ret = take_ptr(w);
        return 0;
}

struct worker *worker_free(struct worker *w)
{
        if (!w)
                return NULL;
        if (w->started) {
                sem_post(&w->wake);
                pthread_join(w->thread, NULL);
        }
        drop_all(queue_take(&w->finished));
        loop_io_stop(&w->io);
        fini(w);
        return NULL;
}

struct worker *worker_abandon(struct worker *w)
{
        struct worker_job *todo;

        if (!w)
                return NULL;
        pthread_mutex_lock(&w->lock);
        todo = queue_take(&w->todo);
        w->abandoned = w->running;
        if (!w->abandoned) {
                pthread_mutex_unlock(&w->lock);
                drop_all(todo);
                return worker_free(w);
        }
        loop_io_stop(&w->io);
        drop_all(queue_take(&w->finished));
        pthread_detach(w->thread);
        pthread_mutex_unlock(&w->lock);
        drop_all(todo);
        return NULL;
}

void worker_submit(struct worker *w, struct worker_job *job)
{
        job->submitted_at = boot_glance();
        pthread_mutex_lock(&w->lock);
        queue_push(&w->todo, job);
        pthread_mutex_unlock(&w->lock);
        sem_post(&w->wake);
}
