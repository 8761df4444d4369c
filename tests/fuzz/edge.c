#include "edge.h"

#include <crypt.h>
#include <resolv.h>
#include <stdio.h>
#include <sys/random.h>

#include "fuzz.h"
#include "loop/worker.h"

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

static struct worker_job *take(struct worker *w)
{
        struct worker_job *job = w->first;

        if (!job)
                return NULL;
        w->first = job->next;
        if (!w->first)
                w->last = &w->first;
        return job;
}

struct worker *worker_free(struct worker *w)
{
        struct worker **at = &workers;
        struct worker_job *job;

        if (!w)
                return NULL;
        while ((job = take(w)))
                job->drop(job);
        while (*at != w)
                at = &(*at)->next;
        *at = w->next;
        free(w);
        return NULL;
}

void fuzz_workers_run(void)
{
        for (struct worker *w = workers; w; w = w->next) {
                struct worker_job *job;

                while ((job = take(w))) {
                        job->run(job);
                        job->done(job);
                }
        }
}

/* ---- passwords: the hash of one is the setting and the password ---- */

char *crypt_gensalt_rn(const char *prefix, unsigned long count, const char *bytes, int n_bytes,
                       char *out, int size)
{
        (void) count;
        (void) bytes;
        (void) n_bytes;
        snprintf(out, (size_t) size, "%s.", prefix);
        return out;
}

char *crypt_rn(const char *phrase, const char *setting, void *data, int size)
{
        char *out = data;
        size_t n = strcspn(setting, ".");

        if (size < CRYPT_OUTPUT_SIZE || setting[n] != '.')
                return NULL;
        snprintf(out, CRYPT_OUTPUT_SIZE, "%.*s.%.64s", (int) min_of(n, (size_t) 64), setting,
                 phrase);
        return out;
}

/* ---- ---- */

ssize_t getrandom(void *p, size_t n, unsigned flags)
{
        (void) flags;
        memset(p, 42, n);
        return (ssize_t) n;
}

static struct view dns;

void fuzz_dns_answer(struct view answer)
{
        dns = answer;
}

int res_ninit(res_state s)
{
        (void) s;
        return 0;
}

void res_nclose(res_state s)
{
        (void) s;
}

int res_nquery(res_state s, const char *name, int class, int type, unsigned char *answer,
               int size)
{
        (void) s;
        (void) name;
        (void) class;
        (void) type;
        if (dns.len == 0)
                return -1;
        memcpy(answer, dns.p, min_of(dns.len, (size_t) size));
        return (int) dns.len; /* as the library does: what there was, not what was copied */
}
