#include "disk.h"

#include <stdio.h>

#include "fuzz.h"

#define FILES_MAX 256
/* A file is read with the zeroes behind what was written, as far as it goes; one of the store's
 * usual size, which would take long, only with a few of them. */
#define WHOLE ((size_t) 1 << 20)
#define ROOM ((size_t) 16384)

struct file {
        char name[32];
        struct buf bytes;
        size_t len; /* with the zeroes that it was made with */
};

struct fuzz_disk {
        struct disk base;
        struct file *files[FILES_MAX];
        size_t n_files;
        struct disk_job *jobs[1024];
        size_t from, to;
        int fail;
};

static struct fuzz_disk *disk_of(const struct disk *d)
{
        return container_of((struct disk *) (uintptr_t) d, struct fuzz_disk, base);
}

static struct file *find(struct disk *d, const char *name)
{
        struct fuzz_disk *f = disk_of(d);

        for (size_t i = 0; i < f->n_files; i++)
                if (strcmp(f->files[i]->name, name) == 0)
                        return f->files[i];
        return NULL;
}

static struct file *make(struct disk *d, const char *name)
{
        struct fuzz_disk *f = disk_of(d);
        struct file *file = find(d, name);

        if (file)
                return file;
        file = calloc(1, sizeof(*file));
        if (!file || f->n_files == FILES_MAX)
                abort();
        snprintf(file->name, sizeof(file->name), "%s", name);
        f->files[f->n_files++] = file;
        return file;
}

struct buf *fuzz_disk_file(struct disk *d, const char *name)
{
        return &make(d, name)->bytes;
}

static int on_list(struct disk *d, disk_list_fn fn, void *arg)
{
        int r = 0;

        for (size_t i = 0; i < disk_of(d)->n_files && r == 0; i++)
                r = fn(disk_of(d)->files[i]->name, disk_of(d)->files[i]->len, arg);
        return r;
}

static void add_zeroes(struct buf *b, size_t n)
{
        uint8_t *to = buf_reserve(b, n > 0 ? n : 1);

        if (!to)
                abort();
        memset(to, 0, n);
        buf_commit(b, n);
}

static int on_read(struct disk *d, const char *name, size_t most, struct buf *out)
{
        struct file *f = find(d, name);
        size_t n, zeroes;

        if (!f)
                return -ENOENT;
        n = min_of(buf_len(&f->bytes), most);
        buf_add(out, n > 0 ? f->bytes.data : (uint8_t *) "", n);
        zeroes = f->len > buf_len(&f->bytes) ? f->len - buf_len(&f->bytes) : 0;
        zeroes = f->len > WHOLE ? min_of(zeroes, ROOM) : zeroes;
        zeroes = min_of(zeroes, most - n);
        if (zeroes > 0)
                add_zeroes(out, zeroes);
        return buf_error(out);
}

static int on_create(struct disk *d, const char *name, size_t size)
{
        struct file *f;

        if (disk_of(d)->fail < 0)
                return disk_of(d)->fail;
        f = make(d, name);
        buf_clear(&f->bytes);
        f->len = size;
        return 0;
}

static int on_write(struct disk *d, const char *name, uint64_t offset, const void *p, size_t n)
{
        struct file *f;

        if (disk_of(d)->fail < 0)
                return disk_of(d)->fail;
        f = make(d, name);
        if (offset + n > buf_len(&f->bytes))
                add_zeroes(&f->bytes, offset + n - buf_len(&f->bytes));
        if (n > 0)
                memcpy(f->bytes.data + offset, p, n);
        f->len = max_of(f->len, buf_len(&f->bytes));
        return 0;
}

static int on_sync(struct disk *d, const char *name)
{
        return !name || find(d, name) ? 0 : -ENOENT;
}

static int on_reserve(struct disk *d, const char *name, size_t size, size_t *ret_was)
{
        struct file *f;

        if (disk_of(d)->fail < 0)
                return disk_of(d)->fail;
        f = make(d, name);
        *ret_was = f->len;
        f->len = max_of(f->len, size);
        return 0;
}

static int on_cut(struct disk *d, const char *name, size_t size)
{
        struct file *f = find(d, name);

        if (disk_of(d)->fail < 0)
                return disk_of(d)->fail;
        if (!f)
                return -ENOENT;
        f->len = min_of(f->len, size);
        f->bytes.end = min_of(f->bytes.end, size);
        return 0;
}

static int on_remove(struct disk *d, const char *name);

static int on_rename(struct disk *d, const char *from, const char *to)
{
        struct file *f = find(d, from);

        if (disk_of(d)->fail < 0)
                return disk_of(d)->fail;
        if (!f)
                return -ENOENT;
        if (strcmp(from, to) != 0)
                (void) on_remove(d, to);
        snprintf(f->name, sizeof(f->name), "%s", to);
        return 0;
}

static void file_free(struct file *f)
{
        buf_fini(&f->bytes);
        free(f);
}

static int on_remove(struct disk *d, const char *name)
{
        struct fuzz_disk *f = disk_of(d);

        if (f->fail < 0)
                return f->fail;
        for (size_t i = 0; i < f->n_files; i++)
                if (strcmp(f->files[i]->name, name) == 0) {
                        file_free(f->files[i]);
                        f->files[i] = f->files[--f->n_files];
                        return 0;
                }
        return -ENOENT;
}

static struct disk_job *take(struct fuzz_disk *f)
{
        return f->from == f->to ? NULL : f->jobs[f->from++ % ARRAY_SIZE(f->jobs)];
}

static void on_submit(struct disk *d, struct disk_job *job)
{
        struct fuzz_disk *f = disk_of(d);

        if (f->to - f->from == ARRAY_SIZE(f->jobs))
                abort();
        f->jobs[f->to++ % ARRAY_SIZE(f->jobs)] = job;
}

bool fuzz_disk_step(struct disk *d)
{
        struct disk_job *job = take(disk_of(d));

        if (!job)
                return false;
        job->run(job);
        job->done(job);
        return true;
}

void fuzz_disk_fail(struct disk *d, int r)
{
        disk_of(d)->fail = r;
}

static struct disk *on_free(struct disk *d)
{
        struct fuzz_disk *f = disk_of(d);
        struct disk_job *job;

        while ((job = take(f)))
                job->drop(job);
        for (size_t i = 0; i < f->n_files; i++)
                file_free(f->files[i]);
        free(f);
        return NULL;
}

static const struct disk_ops ops = {
        .list = on_list,
        .read = on_read,
        .sync = on_sync,
        .create = on_create,
        .reserve = on_reserve,
        .write = on_write,
        .cut = on_cut,
        .rename = on_rename,
        .remove = on_remove,
        .submit = on_submit,
        .submit_aside = on_submit,
        .free = on_free,
};

struct disk *fuzz_disk_new(void)
{
        struct fuzz_disk *f = calloc(1, sizeof(*f));

        if (!f)
                abort();
        f->base.ops = &ops;
        return &f->base;
}
