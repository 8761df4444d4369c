#include "worker.h"

struct worker {
        struct worker_job *first, **last;
        struct worker *next;
};

static struct worker *workers;

int worker_new(struct worker **ret, struct loop *l, const char *thread_name)
{
        struct worker *w = calloc(1, sizeof(*w));

        (void) l;
        (void) thread_name;
        if (!w)
                return -ENOMEM;
        w->last = &w->first;
        w->next = workers;
        *ret = workers = w;
        return 0;
}

void worker_submit(struct worker *w, struct worker_job *job)
{
        job->next = NULL;
        *w->last = job;
        w->last = &job->next;
}

struct worker_job *worker_take(struct worker *w)
{
        struct worker_job *job = w->first;

        if (!job)
                return NULL;
        w->first = job->next;
        if (!w->first)
                w->last = &w->first;
        return job;
}

bool worker_do(struct worker *w)
{
        struct worker_job *job = worker_take(w);

        if (!job)
                return false;
        job->run(job);
        job->done(job);
        return true;
}

bool workers_do(void)
{
        for (struct worker *w = workers; w; w = w->next)
                if (worker_do(w))
                        return true;
        return false;
}

struct worker *worker_newest(void)
{
        return workers;
}

void workers_run(void)
{
        for (struct worker *w = workers; w; w = w->next)
                while (worker_do(w))
                        ;
}

struct worker *worker_free(struct worker *w)
{
        struct worker **at = &workers;
        struct worker_job *job;

        if (!w)
                return NULL;
        while ((job = worker_take(w)))
                job->drop(job);
        while (*at != w)
                at = &(*at)->next;
        *at = w->next;
        free(w);
        return NULL;
}

struct worker *worker_abandon(struct worker *w)
{
        return worker_free(w);
}
