/*
 * Files in memory, two queues of jobs, like the two threads of the real disk, and what the end
 * of the process or a power loss does to them.
 *
 * `files` is what a process sees: the page cache. If the platter has something else, because
 * the change was not synced yet, `unsynced` has that; a power loss brings back any part of it.
 */
#include <bsd/sys/queue.h>
#include <stdio.h>

#include "world.h"

#define SECTOR 512

/* Zeros at its end take no memory: a segment of the log is reserved at its full size. */
struct content {
        uint8_t *bytes;
        size_t held, cap; /* of `bytes`; what follows, up to `len`, is zero */
        size_t len;
};

struct file {
        char name[32];
        struct content c;
        struct file *next;
};

/* What the platter has under a name. */
struct unsynced {
        char name[32];
        bool existed;
        bool whole; /* a change of the name, at once; else of the content, sector by sector */
        struct content c;
        struct unsynced *next;
};

struct queued {
        STAILQ_ENTRY(queued) next;
        struct disk_job *job;
        uint64_t number; /* of all jobs */
        bool ran;        /* it is carried out; its owner has not heard yet */
};

struct sim_disk {
        struct disk base;
        struct file *files;
        struct unsynced *unsynced;
        STAILQ_HEAD(, queued) queues[DISK_QUEUES];
        uint64_t submitted;
        bool completed;      /* the running job has given a snapshot its name */
        struct rnd *tearing; /* set while the end of the process interrupts a job ... */
        bool killing;        /* ... after which the machine goes on ... */
        bool torn;           /* ... and the interruption has happened */
        bool full;
        void (*on_submit)(void *arg, enum disk_queue q);
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

static void make_room(struct content *c, size_t n)
{
        if (n <= c->cap)
                return;
        c->cap = max_of(n, min_of(c->cap * 2, c->len));
        c->bytes = realloc(c->bytes, c->cap);
        if (!c->bytes)
                abort();
}

static void resize(struct content *c, size_t len)
{
        c->len = len;
        c->held = min_of(c->held, len);
}

static void put(struct content *c, size_t at, const void *p, size_t n)
{
        if (n == 0)
                return;
        make_room(c, at + n);
        if (at > c->held)
                memset(c->bytes + c->held, 0, at - c->held);
        memcpy(c->bytes + at, p, n);
        c->held = max_of(c->held, at + n);
}

/* Makes @n bytes at @at what they are in @from, or zero beyond its end. */
static void put_back(struct content *c, size_t at, size_t n, const struct content *from)
{
        size_t known = at < from->held ? min_of(n, from->held - at) : 0;

        if (known > 0)
                put(c, at, from->bytes + at, known);
        if (at + known < c->held)
                memset(c->bytes + at + known, 0, min_of(c->held - at, n) - known);
}

static void copy(struct content *to, const struct content *from)
{
        resize(to, 0);
        resize(to, from->len);
        put(to, 0, from->bytes, from->held);
}

static int sim_list(struct disk *d, disk_list_fn fn, void *arg)
{
        int r = 0;

        for (struct file *f = sim_of(d)->files; f && r == 0; f = f->next)
                r = fn(f->name, f->c.len, arg);
        return r;
}

static int sim_read(struct disk *d, const char *name, size_t most, struct buf *out)
{
        struct file *f = find(sim_of(d), name);
        size_t n, held;
        uint8_t *to;

        if (!f)
                return -ENOENT;
        n = min_of(f->c.len, most);
        held = min_of(f->c.held, n);
        to = n > 0 ? buf_reserve(out, n) : NULL;
        if (to) {
                if (held > 0)
                        memcpy(to, f->c.bytes, held);
                memset(to + held, 0, n - held);
                buf_commit(out, n);
        }
        return buf_error(out);
}

static bool coin(struct rnd *rnd)
{
        return rnd_between(rnd, 0, 1) == 0;
}

/* How much of an operation is carried out. Each is synced before the next one of its job
 * begins. */
enum extent { ALL, PART, NOTHING };

static enum extent extent(struct sim_disk *s)
{
        if (!s->tearing)
                return ALL;
        if (s->torn)
                return NOTHING;
        s->torn = coin(s->tearing);
        return s->torn ? PART : ALL;
}

/* Whether an operation that is carried out in part skips this piece. */
static bool skipped(struct sim_disk *s, enum extent x)
{
        return x == NOTHING || (x == PART && coin(s->tearing));
}

static void drop_file(struct sim_disk *s, const char *name)
{
        struct file **at = &s->files, *f;

        while (*at && strcmp((*at)->name, name) != 0)
                at = &(*at)->next;
        f = *at;
        if (!f)
                return;
        *at = f->next;
        free(f->c.bytes);
        free(f);
}

/* ---- what is not synced ---- */

static struct unsynced **unsynced_of(struct sim_disk *s, const char *name)
{
        struct unsynced **at = &s->unsynced;

        while (*at && strcmp((*at)->name, name) != 0)
                at = &(*at)->next;
        return at;
}

static void settle(struct unsynced **at)
{
        struct unsynced *u = *at;

        *at = u->next;
        free(u->c.bytes);
        free(u);
}

/* The old state of a file that is about to change, where the change is not synced: to be filled
 * in, or NULL if the platter is further behind already. */
static struct unsynced *remember(struct sim_disk *s, const char *name, bool whole)
{
        struct unsynced **at = unsynced_of(s, name), *u = *at;

        if (u) {
                u->whole = u->whole || whole;
                return NULL;
        }
        u = calloc(1, sizeof(*u));
        if (!u)
                abort();
        snprintf(u->name, sizeof(u->name), "%s", name);
        u->whole = whole;
        u->existed = find(s, name);
        *at = u;
        return u;
}

static void keep(struct sim_disk *s, const char *name, bool whole)
{
        struct unsynced *u = remember(s, name, whole);

        if (u && u->existed)
                copy(&u->c, &find(s, name)->c);
}

static void content_synced(struct sim_disk *s, const char *name)
{
        struct unsynced **at = unsynced_of(s, name);

        if (*at && !(*at)->existed)
                (*at)->whole = true; /* the name is not synced */
        else if (*at && !(*at)->whole)
                settle(at);
}

static void names_synced(struct sim_disk *s)
{
        for (struct unsynced **at = &s->unsynced; *at;) {
                if ((*at)->whole) {
                        settle(at);
                        continue;
                }
                (*at)->existed = true;
                at = &(*at)->next;
        }
}

/* Some of what was not synced had been written back all the same. */
static void lose(struct sim_disk *s, struct rnd *rnd, const struct unsynced *u)
{
        struct file *f = find(s, u->name);

        if (u->whole || !f || (!u->existed && coin(rnd))) {
                if (coin(rnd))
                        return;
                drop_file(s, u->name);
                if (!u->existed)
                        return;
                copy(&make(s, u->name)->c, &u->c);
                return;
        }
        for (size_t at = 0; at < f->c.len; at += SECTOR)
                if (!coin(rnd))
                        put_back(&f->c, at, min_of((size_t) SECTOR, f->c.len - at), &u->c);
        if (f->c.len > u->c.len && coin(rnd))
                resize(&f->c, max_of(u->c.len, (size_t) rnd_between(rnd, 0, f->c.len)));
}

/* ---- the disk's operations ---- */

static int sim_sync(struct disk *d, const char *name)
{
        if (!name)
                names_synced(sim_of(d));
        else if (!find(sim_of(d), name))
                return -ENOENT;
        else
                content_synced(sim_of(d), name);
        return 0;
}

/* Whether there is room for a file of @size bytes. */
static bool fits(struct sim_disk *s, const struct file *f, size_t size)
{
        return !s->full || (f && f->c.len >= size);
}

static int sim_create(struct disk *d, const char *name, size_t size)
{
        struct sim_disk *s = sim_of(d);
        enum extent x = extent(s);
        struct file *f;

        if (skipped(s, x))
                return 0;
        if (!fits(s, find(s, name), size))
                return -ENOSPC;
        if (x == PART && s->killing)
                keep(s, name, false);
        f = make(s, name);
        resize(&f->c, 0);
        resize(&f->c, x == PART ? rnd_between(s->tearing, 0, size) : size);
        if (x == ALL) {
                content_synced(s, name);
                names_synced(s);
        }
        return 0;
}

/* Counts as durable, because reserved space has no content. */
static int sim_reserve(struct disk *d, const char *name, size_t size, size_t *ret_was)
{
        struct sim_disk *s = sim_of(d);
        struct file *f = find(s, name);

        if (skipped(s, extent(s)))
                return 0;
        if (!fits(s, f, size))
                return -ENOSPC;
        f = make(s, name);
        *ret_was = f->c.len;
        resize(&f->c, max_of(f->c.len, size));
        return 0;
}

static int sim_write(struct disk *d, const char *name, uint64_t offset, const void *p, size_t n)
{
        struct sim_disk *s = sim_of(d);
        struct file *f = find(s, name);
        enum extent x = extent(s);
        const uint8_t *from = p;

        if (!f)
                return s->torn ? 0 : -ENOENT;
        if (x == NOTHING)
                return 0;
        if (!fits(s, f, offset + n))
                return -ENOSPC;
        if (x == PART && s->killing)
                keep(s, name, false);
        if (offset + n > f->c.len)
                resize(&f->c, offset + n);
        for (size_t at = 0; at < n;) {
                size_t k = min_of(n - at, (size_t) (SECTOR - (offset + at) % SECTOR));

                /* Sectors reach the disk in any order: a crash keeps any of them. */
                if (!skipped(s, x))
                        put(&f->c, offset + at, from + at, k);
                at += k;
        }
        if (x == ALL)
                content_synced(s, name); /* all content, because it is one file */
        return 0;
}

static int sim_cut(struct disk *d, const char *name, size_t size)
{
        struct sim_disk *s = sim_of(d);
        struct file *f = find(s, name);
        enum extent x = extent(s);

        if (!f)
                return s->torn ? 0 : -ENOENT;
        if (skipped(s, x))
                return 0;
        if (x == PART && s->killing)
                keep(s, name, false);
        resize(&f->c, min_of(f->c.len, size));
        if (x == ALL)
                content_synced(s, name);
        return 0;
}

static int sim_rename(struct disk *d, const char *from, const char *to)
{
        struct sim_disk *s = sim_of(d);
        enum extent x = extent(s);
        struct file *f;

        if (!find(s, from))
                return s->torn ? 0 : -ENOENT;
        if (skipped(s, x))
                return 0;
        if (x == PART && s->killing) {
                keep(s, from, true);
                keep(s, to, true);
        }
        s->completed = strncmp(to, "snapshot-", 9) == 0;
        drop_file(s, to);
        f = find(s, from);
        snprintf(f->name, sizeof(f->name), "%s", to);
        if (x == ALL)
                names_synced(s);
        return 0;
}

/* Nobody waits until this is on the platter. */
static int sim_remove(struct disk *d, const char *name)
{
        struct sim_disk *s = sim_of(d);

        struct file *f = find(s, name);
        struct unsynced *u;

        if (!f)
                return s->torn ? 0 : -ENOENT;
        if (skipped(s, extent(s)))
                return 0;
        u = remember(s, name, true);
        if (u) {
                u->c = f->c;
                f->c = (struct content){0};
        }
        drop_file(s, name);
        return 0;
}

static void submit(struct sim_disk *s, enum disk_queue q, struct disk_job *job)
{
        struct queued *e = calloc(1, sizeof(*e));

        if (!e)
                abort();
        e->job = job;
        e->number = s->submitted++;
        STAILQ_INSERT_TAIL(&s->queues[q], e, next);
        if (s->on_submit)
                s->on_submit(s->arg, q);
}

static void sim_submit(struct disk *d, struct disk_job *job)
{
        submit(sim_of(d), DISK_LOG, job);
}

static void sim_submit_aside(struct disk *d, struct disk_job *job)
{
        submit(sim_of(d), DISK_ASIDE, job);
}

static struct disk_job *take(struct sim_disk *s, enum disk_queue q, bool *ret_ran)
{
        struct queued *e = STAILQ_FIRST(&s->queues[q]);
        struct disk_job *job;

        if (!e)
                return NULL;
        job = e->job;
        *ret_ran = e->ran;
        STAILQ_REMOVE_HEAD(&s->queues[q], next);
        free(e);
        return job;
}

static void drop_all(struct sim_disk *s)
{
        struct disk_job *job;
        bool ran;

        for (enum disk_queue q = 0; q < DISK_QUEUES; q++)
                while ((job = take(s, q, &ran)))
                        job->drop(job);
}

void sim_disk_fill(struct disk *d, bool full)
{
        sim_of(d)->full = full;
}

bool sim_disk_busy_at(const struct disk *d, enum disk_queue q)
{
        return !STAILQ_EMPTY(&sim_of(d)->queues[q]);
}

bool sim_disk_busy(const struct disk *d)
{
        return sim_disk_busy_at(d, DISK_LOG) || sim_disk_busy_at(d, DISK_ASIDE);
}

bool sim_disk_run_at(struct disk *d, enum disk_queue q)
{
        struct sim_disk *s = sim_of(d);
        struct queued *e = STAILQ_FIRST(&s->queues[q]);

        if (!e || e->ran)
                return false;
        s->completed = false;
        e->job->run(e->job);
        e->ran = true;
        return s->completed;
}

void sim_disk_finish_at(struct disk *d, enum disk_queue q)
{
        struct disk_job *job;
        bool ran;

        (void) sim_disk_run_at(d, q);
        job = take(sim_of(d), q, &ran);
        if (job)
                job->done(job);
}

void sim_disk_finish(struct disk *d)
{
        const struct queued *log = STAILQ_FIRST(&sim_of(d)->queues[DISK_LOG]),
                            *aside = STAILQ_FIRST(&sim_of(d)->queues[DISK_ASIDE]);

        sim_disk_finish_at(d, log && (!aside || log->number < aside->number) ? DISK_LOG
                                                                             : DISK_ASIDE);
}

/* The first job of each queue was under way; how far each got is independent. */
static void die(struct sim_disk *s, struct rnd *rnd, bool kill)
{
        enum disk_queue first = coin(rnd) ? DISK_LOG : DISK_ASIDE;

        s->killing = kill;
        for (unsigned i = 0; i < DISK_QUEUES; i++) {
                bool ran;
                struct disk_job *job = take(s, (first + i) % DISK_QUEUES, &ran);

                if (!job)
                        continue;
                s->tearing = rnd;
                if (!ran && rnd_between(rnd, 0, 2) > 0)
                        job->run(job);
                s->tearing = NULL;
                s->torn = false;
                job->drop(job);
        }
        s->killing = false;
        drop_all(s);
}

bool sim_disk_kill(struct disk *d, struct rnd *rnd)
{
        die(sim_of(d), rnd, true);
        return sim_of(d)->unsynced;
}

void sim_disk_unsync(struct disk *d, const char *name, const void *bytes, size_t len)
{
        struct sim_disk *s = sim_of(d);
        struct unsynced *u;

        keep(s, name, false);
        u = *unsynced_of(s, name);
        resize(&u->c, min_of(u->c.len, len));
        put(&u->c, 0, bytes, u->c.len);
}

void sim_disk_crash(struct disk *d, struct rnd *rnd)
{
        struct sim_disk *s = sim_of(d);

        die(s, rnd, false);
        while (s->unsynced) {
                lose(s, rnd, s->unsynced);
                settle(&s->unsynced);
        }
}

void sim_disk_on_submit(struct disk *d, void (*fn)(void *arg, enum disk_queue q), void *arg)
{
        sim_of(d)->on_submit = fn;
        sim_of(d)->arg = arg;
}

void sim_disk_empty(struct disk *d)
{
        struct sim_disk *s = sim_of(d);

        while (s->files) {
                struct file *f = s->files;

                s->files = f->next;
                free(f->c.bytes);
                free(f);
        }
        while (s->unsynced)
                settle(&s->unsynced);
}

void sim_disk_copy(struct disk *d, const struct disk *from)
{
        sim_disk_empty(d);
        for (const struct file *f = sim_of(from)->files; f; f = f->next)
                copy(&make(sim_of(d), f->name)->c, &f->c);
}

size_t sim_disk_memory(const struct disk *d)
{
        const struct sim_disk *s = sim_of(d);
        size_t sum = 0;

        for (const struct file *f = s->files; f; f = f->next)
                sum += f->c.cap;
        for (const struct unsynced *u = s->unsynced; u; u = u->next)
                sum += u->c.cap;
        return sum;
}

void sim_disk_flip(struct disk *d, struct rnd *rnd)
{
        size_t total = 0, at;
        struct file *f;

        for (f = sim_of(d)->files; f; f = f->next)
                total += f->c.held;
        if (total == 0)
                return;
        at = rnd_between(rnd, 0, total - 1);
        for (f = sim_of(d)->files; at >= f->c.held; f = f->next)
                at -= f->c.held;
        f->c.bytes[at] ^= (uint8_t) (1 << rnd_between(rnd, 0, 7));
}

static struct disk *sim_free(struct disk *d)
{
        drop_all(sim_of(d));
        sim_disk_empty(d);
        free(sim_of(d));
        return NULL;
}

static const struct disk_ops ops = {
        .list = sim_list,
        .read = sim_read,
        .sync = sim_sync,
        .create = sim_create,
        .write = sim_write,
        .reserve = sim_reserve,
        .cut = sim_cut,
        .rename = sim_rename,
        .remove = sim_remove,
        .submit = sim_submit,
        .submit_aside = sim_submit_aside,
        .free = sim_free,
};

struct disk *sim_disk_new(void)
{
        struct sim_disk *s = calloc(1, sizeof(*s));

        if (!s)
                abort();
        s->base.ops = &ops;
        for (enum disk_queue q = 0; q < DISK_QUEUES; q++)
                STAILQ_INIT(&s->queues[q]);
        return &s->base;
}
