/* Files in memory, a queue of jobs, and what a power cut does to them. */
#include <stdio.h>

#include "world.h"

#define SECTOR 512

struct file {
        char name[32];
        uint8_t *bytes;
        size_t len;
        struct file *next;
};

struct queued {
        struct disk_job *job;
        struct queued *next;
};

struct sim_disk {
        struct disk base;
        struct file *files;
        struct queued *head, **tail;
        struct rnd *tearing; /* while a job is half done by a crash */
        bool full;
        void (*on_submit)(void *arg);
        void *arg;
};

static struct sim_disk *sim_of(const struct disk *d)
{
        return container_of((struct disk *) (uintptr_t) d, struct sim_disk, base);
}

static struct file *find(struct sim_disk *s, const char *name)
{
        struct file *f = s->files;

        while (f && strcmp(f->name, name) != 0)
                f = f->next;
        return f;
}

static struct file *make(struct sim_disk *s, const char *name)
{
        struct file *f = find(s, name);

        if (f)
                return f;
        f = calloc(1, sizeof(*f));
        if (!f)
                abort();
        snprintf(f->name, sizeof(f->name), "%s", name);
        f->next = s->files;
        s->files = f;
        return f;
}

static void resize(struct file *f, size_t len)
{
        f->bytes = realloc(f->bytes, len > 0 ? len : 1);
        if (!f->bytes)
                abort();
        if (len > f->len)
                memset(f->bytes + f->len, 0, len - f->len);
        f->len = len;
}

static int sim_list(struct disk *d, int (*fn)(const char *name, void *arg), void *arg)
{
        int r = 0;

        for (struct file *f = sim_of(d)->files; f && r == 0; f = f->next)
                r = fn(f->name, arg);
        return r;
}

static int sim_read(struct disk *d, const char *name, struct buf *out)
{
        struct file *f = find(sim_of(d), name);

        if (!f)
                return -ENOENT;
        buf_add(out, f->bytes, f->len);
        return buf_error(out);
}

static bool skipped(struct sim_disk *s)
{
        return s->tearing && rnd_between(s->tearing, 0, 1) == 0;
}

static int sim_create(struct disk *d, const char *name, size_t size)
{
        struct file *f;

        if (skipped(sim_of(d)))
                return 0;
        if (sim_of(d)->full)
                return -ENOSPC;
        /* Small, so that segments change often enough to be tested. */
        f = make(sim_of(d), name);
        resize(f, 0);
        resize(f, size);
        return 0;
}

static int sim_write(struct disk *d, const char *name, uint64_t offset, const void *p, size_t n)
{
        struct sim_disk *s = sim_of(d);
        struct file *f = make(s, name);
        const uint8_t *from = p;

        if (offset + n > f->len && s->full)
                return -ENOSPC;
        if (offset + n > f->len)
                resize(f, offset + n);
        for (size_t at = 0; at < n;) {
                size_t k = min_of(n - at, (size_t) (SECTOR - (offset + at) % SECTOR));

                /* Sectors reach the disk in any order: a crash keeps any of them. */
                if (!skipped(s))
                        memcpy(f->bytes + offset + at, from + at, k);
                at += k;
        }
        return 0;
}

static int sim_replace(struct disk *d, const char *name, const struct view *v, size_t n)
{
        struct file *f;

        if (skipped(sim_of(d)))
                return 0;
        if (sim_of(d)->full)
                return -ENOSPC;
        f = make(sim_of(d), name);
        resize(f, 0);
        for (size_t i = 0; i < n; i++) {
                resize(f, f->len + v[i].len);
                if (v[i].len > 0)
                        memcpy(f->bytes + f->len - v[i].len, v[i].p, v[i].len);
        }
        return 0;
}

static int sim_remove(struct disk *d, const char *name)
{
        struct file **at = &sim_of(d)->files, *f;

        if (skipped(sim_of(d)))
                return 0;
        while (*at && strcmp((*at)->name, name) != 0)
                at = &(*at)->next;
        f = *at;
        if (!f)
                return -ENOENT;
        *at = f->next;
        free(f->bytes);
        free(f);
        return 0;
}

static void sim_submit(struct disk *d, struct disk_job *job)
{
        struct sim_disk *s = sim_of(d);
        struct queued *q = calloc(1, sizeof(*q));

        if (!q)
                abort();
        q->job = job;
        *s->tail = q;
        s->tail = &q->next;
        if (s->on_submit)
                s->on_submit(s->arg);
}

static struct disk_job *take(struct sim_disk *s)
{
        struct queued *q = s->head;
        struct disk_job *job;

        if (!q)
                return NULL;
        job = q->job;
        s->head = q->next;
        if (!s->head)
                s->tail = &s->head;
        free(q);
        return job;
}

void sim_disk_fill(struct disk *d, bool full)
{
        sim_of(d)->full = full;
}

bool sim_disk_busy(const struct disk *d)
{
        return sim_of(d)->head != NULL;
}

void sim_disk_finish(struct disk *d)
{
        struct disk_job *job = take(sim_of(d));

        if (!job)
                return;
        job->run(job);
        job->done(job);
}

void sim_disk_crash(struct disk *d, struct rnd *rnd)
{
        struct sim_disk *s = sim_of(d);
        struct disk_job *job = take(s);

        if (job) {
                s->tearing = rnd;
                if (rnd_between(rnd, 0, 2) > 0)
                        job->run(job);
                s->tearing = NULL;
                job->drop(job);
        }
        while ((job = take(s)))
                job->drop(job);
}

void sim_disk_on_submit(struct disk *d, void (*fn)(void *arg), void *arg)
{
        sim_of(d)->on_submit = fn;
        sim_of(d)->arg = arg;
}

static struct disk *sim_free(struct disk *d)
{
        struct sim_disk *s = sim_of(d);
        struct disk_job *job;

        while ((job = take(s)))
                job->drop(job);
        while (s->files) {
                struct file *f = s->files;

                s->files = f->next;
                free(f->bytes);
                free(f);
        }
        free(s);
        return NULL;
}

static const struct disk_ops ops = {
        .list = sim_list,
        .read = sim_read,
        .create = sim_create,
        .write = sim_write,
        .replace = sim_replace,
        .remove = sim_remove,
        .submit = sim_submit,
        .submit_aside = sim_submit,
        .free = sim_free,
};

struct disk *sim_disk_new(void)
{
        struct sim_disk *s = calloc(1, sizeof(*s));

        if (!s)
                abort();
        s->base.ops = &ops;
        s->tail = &s->head;
        return &s->base;
}
