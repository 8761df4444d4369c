/*
 * Disk space kept in reserve. The log continues in files that are made in advance, and the next
 * snapshot is written into a file that has room for it. So when the disk is full, there is
 * space for what must go on (renewals, expiry, votes, and the snapshot that releases old log),
 * and time to refuse what can be refused. A segment that is no longer needed becomes such a
 * file, rather than free space that another program takes.
 *
 * A file in the making has another name until it is complete: spare-<number>-<size> is zeroes,
 * on the disk. A file that is not of the present segment size is never used: an earlier version
 * of ours made it, or a crash came between making a large file and using it. It is converted to
 * that size, or removed.
 */
#include "base/probe.h"
#include "store/internal.h"

static bool fits(const struct store *s, const struct spare *sp)
{
        return sp->size == s->segment_size;
}

static size_t n_ready(const struct store *s)
{
        const struct spare *sp;
        size_t n = 0;

        STAILQ_FOREACH (sp, &s->spares, next)
                n += fits(s, sp);
        return n;
}

struct spare *reserve_take(struct store *s, size_t n)
{
        struct spare *sp;

        STAILQ_FOREACH (sp, &s->spares, next)
                if (n <= s->segment_size ? fits(s, sp) : sp->size >= n)
                        break;
        if (sp) {
                STAILQ_REMOVE(&s->spares, sp, spare, next);
                s->wanted = false;
        } else if (n <= s->segment_size) {
                s->wanted = true;
        } else {
                /* More may be queued meanwhile. */
                s->large = max_of(s->large, min_of(n + n / 2, SEGMENT_MOST));
        }
        return sp;
}

int reserve_add(struct store *s, const char *name, size_t size)
{
        struct spare *sp = calloc(1, sizeof(*sp));

        if (!sp)
                return -ENOMEM;
        snprintf(sp->name, sizeof(sp->name), "%s", name);
        sp->size = size;
        STAILQ_INSERT_TAIL(&s->spares, sp, next);
        return 0;
}

static void make_spare(struct store *s, enum job_kind kind, const char *from, size_t size)
{
        struct job *j;
        char name[32];

        snprintf(name, sizeof(name), SPARE "%08" PRIx32 "-%08zx", ++s->spare_seq, size);
        j = job_new(s, kind, name);
        if (!j)
                return store_fail(s, name, -ENOMEM);
        snprintf(j->from, sizeof(j->from), "%s", from);
        snprintf(j->wip, sizeof(j->wip), WIP "%08" PRIx32, s->spare_seq);
        j->size = size;
        s->n_making++;
        job_start(j);
}

static void make_room(struct store *s, const char *name, const char *from, size_t size)
{
        struct job *j = job_new(s, JOB_ROOM, name);

        if (!j)
                return store_fail(s, name, -ENOMEM);
        snprintf(j->from, sizeof(j->from), "%s", from);
        j->size = size;
        s->rooming = true;
        job_start(j);
}

static struct spare *take_misfit(struct store *s)
{
        struct spare *sp;

        STAILQ_FOREACH (sp, &s->spares, next)
                if (!fits(s, sp))
                        break;
        if (sp) {
                PROBE("a spare file has another size than files have now");
                STAILQ_REMOVE(&s->spares, sp, spare, next);
        }
        return sp;
}

/* Makes the next spare from one of another size, if there is any: when the disk is full, that
 * is the only space left. */
static void make_next(struct store *s)
{
        struct spare *sp = take_misfit(s);

        make_spare(s, JOB_SPARE, sp ? sp->name : "", s->segment_size);
        free(sp);
}

static void remove_file(struct store *s, const char *name)
{
        struct job *j = job_new(s, JOB_REMOVE, name);

        if (j)
                job_start(j);
        else
                store_fail(s, name, -ENOMEM);
}

static void remove_misfits(struct store *s)
{
        struct spare *sp;

        while ((sp = take_misfit(s))) {
                remove_file(s, sp->name);
                free(sp);
        }
}

void store_keep_aside(struct store *s)
{
        s->keeps_aside = true;
}

void reserve_tend(struct store *s)
{
        size_t n = s->keeps_aside ? SPARES : s->wanted;

        if (s->blocked || s->failed)
                return;
        if (s->large > 0 && s->n_making == 0)
                make_spare(s, JOB_SPARE, "", s->large);
        else if (n_ready(s) < n && s->n_making == 0)
                make_next(s);
        if (!s->keeps_aside)
                return;
        if (n_ready(s) >= SPARES)
                remove_misfits(s);
        s->room_goal = max_of(s->room_goal, s->segment_size);
        if (s->room < s->room_goal && !s->rooming)
                make_room(s, ROOM, "", s->room_goal);
        else if (s->snapshot_index == 0 && s->second < s->segment_size && !s->rooming)
                make_room(s, SECOND_ROOM, "", s->segment_size);
}

void reserve_recycle(struct store *s, struct segment *seg)
{
        if (seg->size == s->segment_size && n_ready(s) + s->n_making < SPARES)
                make_spare(s, JOB_RECYCLE, seg->name, seg->size);
        else
                remove_file(s, seg->name);
        free(seg);
}

void reserve_used(struct store *s, const char *old, size_t size)
{
        if (!s->keeps_aside)
                return; /* the next start finds @old */
        s->room = 0;
        s->room_goal = max_of(s->segment_size, size + size / 4);
        make_room(s, ROOM, *old ? old : SECOND_ROOM, s->room_goal);
}

void reserve_missed(struct store *s, size_t size)
{
        s->room = 0;
        s->room_goal = max_of(s->room_goal, size + size / 4);
        s->lacks_room = s->blocked = true;
}

int reserve_run(struct job *j)
{
        struct disk *d = j->store->disk;
        const char *target = j->kind == JOB_ROOM ? j->name : j->wip;
        size_t was;
        int r = 0;

        if (*j->from)
                r = d->ops->rename(d, j->from, target);
        if (r == -ENOENT)
                r = 0;
        if (j->kind == JOB_ROOM)
                return r < 0 ? r : d->ops->reserve(d, target, j->size, &was);
        if (r == 0)
                r = d->ops->create(d, target, j->size);
        if (no_room(r) && *j->from)
                /* A file that cannot grow is freed, as space for the next attempt. */
                (void) !d->ops->remove(d, target);
        if (r == 0)
                r = d->ops->rename(d, target, j->name);
        return r;
}

void reserve_done(struct job *j)
{
        struct store *s = j->store;
        int r = j->r;

        if (j->kind == JOB_ROOM)
                s->rooming = false;
        else
                s->n_making--;
        if (r < 0 && (!no_room(r) || !s->keeps_aside))
                return store_fail(s, j->kind == JOB_ROOM ? j->name : j->wip, r);
        if (r < 0)
                s->blocked = true;
        if (j->kind == JOB_ROOM) {
                size_t *room = strcmp(j->name, ROOM) == 0 ? &s->room : &s->second;

                *room = r == 0 ? j->size : 0;
                s->lacks_room = r < 0;
        } else if (r < 0) {
                s->lacks_spare = true;
        } else {
                if (reserve_add(s, j->name, j->size) < 0)
                        return store_fail(s, j->name, -ENOMEM);
                if (j->size >= s->large)
                        s->large = 0;
                if (n_ready(s) >= SPARES)
                        s->lacks_spare = false;
        }
        /* Without a lack of space, nobody calls store_retry(). */
        if (!store_short_of_room(s))
                s->blocked = false;
        store_flush(s);
}

void reserve_stall(struct store *s, struct job *j)
{
        PROBE_IF(j->kind == JOB_LOG, "the log does not fit on the disk");
        s->blocked = true;
        STAILQ_INSERT_TAIL(&s->stalled, j, next);
}

bool store_short_of_room(const struct store *s)
{
        return s->lacks_spare || s->lacks_room || !STAILQ_EMPTY(&s->stalled);
}

bool store_waits_for_room(const struct store *s)
{
        return !STAILQ_EMPTY(&s->stalled) ||
               (store_short_of_room(s) && buf_len(&s->queued) > 0 && !s->writing);
}

void store_retry(struct store *s)
{
        struct job *j;

        if (!s->blocked || s->failed)
                return;
        s->blocked = false;
        while ((j = STAILQ_FIRST(&s->stalled))) {
                STAILQ_REMOVE_HEAD(&s->stalled, next);
                job_start(j);
        }
        store_flush(s);
}

void reserve_fini(struct store *s)
{
        struct spare *sp;
        struct job *j;

        while ((sp = STAILQ_FIRST(&s->spares))) {
                STAILQ_REMOVE_HEAD(&s->spares, next);
                free(sp);
        }
        while ((j = STAILQ_FIRST(&s->stalled))) {
                STAILQ_REMOVE_HEAD(&s->stalled, next);
                job_drop(&j->disk_job);
        }
}
