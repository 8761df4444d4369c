/* What is done to a data directory while no replica runs on it: --restore, and
 * --force-new-cluster. */
#include "restore.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "loop/loop.h"
#include "service/backup.h"
#include "service/core.h"

struct restore {
        struct loop *loop;
        int r;
        bool done;
};

static void on_done(void *u, uint64_t index)
{
        struct restore *rs = u;

        (void) index;
        rs->done = true;
        loop_stop(rs->loop);
}

/* Of a restore there is none; of --force-new-cluster it is the only write. */
static void on_persisted(void *u, uint64_t index)
{
        on_done(u, index);
}

static void on_failed(void *u, const char *file, int r)
{
        struct restore *rs = u;

        log_error("Cannot write %s: %s.", file, strerror(-r));
        rs->r = r;
        loop_stop(rs->loop);
}

static void on_snapshot_failed(void *u, uint64_t index, int r)
{
        (void) index;
        on_failed(u, "the snapshot", r);
}

static const struct store_ops ops = {.persisted = on_persisted,
                                     .snapshot_done = on_done,
                                     .snapshot_failed = on_snapshot_failed,
                                     .failed = on_failed};

/* Until the write is done. */
static int wait_done(const struct restore *rs)
{
        loop_run(rs->loop);
        return rs->done ? 0 : rs->r < 0 ? rs->r : -EINTR;
}

/* No more than one byte past what its head says that it has: what is none may be larger than
 * the memory that there is. */
static int read_file(const char *path, struct buf *out)
{
        uint64_t size = BACKUP_HEAD;
        FILE *f = fopen(path, "re");
        int r = 0;

        if (!f)
                return -errno;
        while (r == 0 && buf_len(out) <= size) {
                size_t want = (size_t) min_of(size + 1 - buf_len(out), (uint64_t) 1 << 20), n;
                uint8_t *to = buf_reserve(out, want);

                if (!to)
                        break;
                errno = 0;
                n = fread(to, 1, want, f);
                buf_commit(out, n);
                if (n == 0 || buf_len(out) < BACKUP_HEAD) {
                        r = ferror(f) ? -(errno ? errno : EIO) : 0;
                        break;
                }
                if (size == BACKUP_HEAD)
                        r = backup_size_by_head(buf_head(out), &size);
        }
        fclose(f);
        return r < 0 ? r : buf_error(out);
}

int restore(struct loop *l, struct disk *d, const struct replica_config *cfg, const char *path,
            const char *data_dir)
{
        cleanup_(buf_fini) struct buf file = {0};
        struct restore rs = {.loop = l};
        struct store_error err;
        struct store *s = NULL;
        struct view state;
        size_t n_keys, n_leases;
        int64_t revision;
        uint64_t index;
        int r = read_file(path, &file);

        if (r < 0 && r != -EBADMSG) {
                log_error("Cannot read %s: %s.", path, strerror(-r));
                return r;
        }
        if (r == 0)
                r = backup_check((struct view){buf_head(&file), buf_len(&file)}, &state, &index,
                                 &revision, &n_keys, &n_leases);
        if (r < 0) {
                log_error(
                        "%s is no snapshot of a lease core, or it is damaged; make another one "
                        "(tenurectl core snapshot save).",
                        path);
                return r;
        }
        r = store_open(&s, d, &ops, &rs, &err);
        if (r == 0 && !store_recovered(s)->fresh) {
                log_error("The data directory %s holds a replica already; name an empty one.",
                          data_dir);
                r = -EEXIST;
        } else if (r < 0) {
                log_error("Data directory %s: %s", data_dir, err.text);
        }
        if (r == 0) {
                store_recovered_free(s);
                r = replica_restore(s, cfg, index, state);
                if (r < 0)
                        log_error("Cannot fill %s: %s.", data_dir, strerror(-r));
        }
        if (r == 0)
                r = wait_done(&rs);
        if (r == 0)
                log_info("Restored revision %" PRId64
                         " with %zu key(s) and %zu lease(s) into %s; "
                         "start the replica with the same options, without --restore.",
                         revision, n_keys, n_leases, data_dir);
        /* Where a job may still run, its store stays until the process ends. */
        if (rs.done || r == -EEXIST)
                store_free(s);
        return r;
}

int force_new_cluster(struct loop *l, struct disk *d, const struct replica_config *cfg,
                      const char *data_dir)
{
        struct restore rs = {.loop = l};
        struct store_error err;
        struct store *s = NULL;
        uint64_t index = 0;
        int r = store_open(&s, d, &ops, &rs, &err);

        if (r < 0) {
                log_error("Data directory %s: %s", data_dir, err.text);
                return r;
        }
        if (store_recovered(s)->fresh) {
                log_error("The data directory %s holds no replica.", data_dir);
                store_free(s);
                return -ENOENT;
        }
        r = replica_leave_alone(s, cfg, &index);
        if (r < 0)
                log_error("Cannot write to %s: %s.", data_dir, strerror(-r));
        else
                r = wait_done(&rs);
        if (r == 0)
                log_info("Member %016" PRIx64 " of cluster %016" PRIx64
                         " is its only member now, with all %" PRIu64
                         " entries that it has. Start it without --force-new-cluster; the "
                         "others join again with empty data directories (tenurectl core add).",
                         cfg->id, cfg->cluster_id, index);
        if (rs.done)
                store_free(s);
        return r;
}
