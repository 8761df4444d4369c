/* Changes of a data directory while no replica runs on it: --restore and --force-new-cluster.
 * */
#include "restore.h"

#include <fcntl.h>
#include <grp.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/le.h"
#include "base/log.h"
#include "core/core.h"
#include "etcd/backup.h"
#include "loop/loop.h"

struct restore {
        struct loop *loop;
        const char *data_dir;
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

/* A restore persists no entries; --force-new-cluster persists exactly this one. */
static void on_persisted(void *u, uint64_t index)
{
        on_done(u, index);
}

static void on_failed(void *u, const char *file, int r)
{
        struct restore *rs = u;

        log_error("Cannot write %s into %s: %s.", file, rs->data_dir, strerror(-r));
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

/* Runs the loop until the write is done. */
static int wait_done(const struct restore *rs)
{
        loop_run(rs->loop);
        if (!rs->done && rs->r == 0)
                log_error("Stopped before %s was written; run it again.", rs->data_dir);
        return rs->done ? 0 : rs->r < 0 ? rs->r : -EINTR;
}

/* Root permanently becomes the user that the directory belongs to. */
static int become_owner(const char *dir)
{
        struct stat st;

        if (geteuid() != 0 || stat(dir, &st) < 0 || st.st_uid == 0)
                return 0; /* a directory that is not there will be root's own */
        if (setgroups(0, NULL) < 0 || setresgid(st.st_gid, st.st_gid, st.st_gid) < 0 ||
            setresuid(st.st_uid, st.st_uid, st.st_uid) < 0) {
                int r = -errno;

                log_error("The data directory %s belongs to user %u, and this process cannot "
                          "become that user: %s. Run the command as that user.",
                          dir, (unsigned) st.st_uid, strerror(-r));
                return r;
        }
        return 0;
}

int restore_begin(const char *path, const char *dir, int *ret_fd)
{
        int fd = -1, r;

        if (path) {
                /* Without waiting for the writer of a FIFO, which is refused later. */
                fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
                if (fd < 0) {
                        r = -errno;
                        log_error("Cannot read %s: %s.", path, strerror(-r));
                        return r;
                }
        }
        r = become_owner(dir);
        if (r < 0 && fd >= 0)
                close(fd);
        if (r == 0)
                *ret_fd = fd;
        return r;
}

/* Reads at most one byte more than the header announces: a file that is not a snapshot may be
 * larger than memory. Closes @fd. */
static int read_file(int fd, struct buf *out)
{
        int r = 0;
        uint64_t size = 64; /* enough to recognize it */
        bool head = false;
        struct stat st;
        FILE *f;

        /* Reading a FIFO would block until somebody writes, and signals would not be
         * handled. */
        if (fstat(fd, &st) < 0)
                r = -errno;
        else if (!S_ISREG(st.st_mode))
                r = S_ISDIR(st.st_mode) ? -EISDIR : -ESPIPE;
        f = r == 0 ? fdopen(fd, "r") : NULL;
        if (!f) {
                r = r < 0 ? r : -errno;
                close(fd);
                return r;
        }
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
                if (!head)
                        r = backup_size_by_head(buf_head(out), &size);
                head = true;
        }
        fclose(f);
        return r < 0 ? r : buf_error(out);
}

/* Says what is wrong with a file that is not a snapshot, or is damaged. */
static const char *what_is_wrong(struct view file)
{
        static const uint8_t bolt[] = {0xed, 0xda, 0x0c, 0xed}; /* bbolt's magic number, in each
                                                                 * of its first two pages */
        uint64_t size;

        if (file.len >= 20 && memcmp(file.p + 16, bolt, sizeof(bolt)) == 0)
                return "it is an etcd snapshot; restore it with etcd, then copy its keys "
                       "(etcdctl make-mirror)";
        if (file.len == 0)
                return "it is empty";
        if (file.len < BACKUP_HEAD)
                return "it was cut short";
        if (backup_size_by_head(file.p, &size) < 0)
                return "it does not begin with the header of a snapshot";
        return file.len < size   ? "it was cut short"
               : file.len > size ? "there is data after its end"
                                 : "its checksum does not match";
}

/* Whether the directory holds exactly this restored snapshot, and no replica has run on it. */
static bool is_restored(const struct store_recovered *rec, const struct replica_config *cfg,
                        uint64_t index, struct view state)
{
        const struct view had = rec->snapshot.data;

        return !rec->fresh && rec->n_entries == 0 && rec->term == 1 && rec->vote == 0 &&
               rec->identity.cluster_id == cfg->cluster_id &&
               rec->identity.member_id == cfg->id && rec->snapshot.index == index &&
               had.len == state.len && memcmp(had.p, state.p, state.len) == 0;
}

/* The id of the new cluster. It is another one than that from which the snapshot was saved,
 * also if the settings are the same, so that hosts that held a place there notice; and members
 * that were restored from different files, or to different revisions, do not take each other
 * for members of one cluster. */
static uint64_t restored_id(uint64_t of_settings, const struct backup_content *from,
                            uint64_t bump)
{
        uint8_t end[16];

        le64_put(end, of_settings);
        le64_put(end + 8, bump);
        return hash_end(hash_add(hash_add(HASH_START, from->digest, sizeof(from->digest)), end,
                                 sizeof(end)));
}

int restore(struct loop *l, struct disk *d, const struct replica_config *settings, int fd,
            const char *path, uint64_t bump, const char *data_dir)
{
        static struct store *volatile in_use unused_; /* a sanitizer finds it here */
        cleanup_(buf_fini) struct buf file = {0}, bumped = {0};
        struct replica_config cfg = *settings;
        struct restore rs = {.loop = l, .data_dir = data_dir};
        struct store_error err;
        struct backup_content has = {0};
        struct store *s = NULL;
        bool there;
        int r = read_file(fd, &file);

        if (r == -ESPIPE)
                log_error("Cannot restore from %s: it is not a regular file; copy its contents "
                          "into one.",
                          path);
        else if (r < 0 && r != -EBADMSG)
                log_error("Cannot read %s: %s.", path, strerror(-r));
        if (r < 0 && r != -EBADMSG)
                return r;
        if (r == 0)
                r = backup_check((struct view){buf_head(&file), buf_len(&file)}, &has);
        if (r == -ENOMEM)
                log_error("There is not enough memory to load %s.", path);
        else if (r < 0)
                log_error("%s is not a snapshot of a lease core, or it is damaged: %s. Nothing "
                          "was changed; use another snapshot (tenurectl core snapshot save) or "
                          "another copy.",
                          path,
                          *has.wrong ? has.wrong
                                     : what_is_wrong(
                                               (struct view){buf_head(&file), buf_len(&file)}));
        if (r < 0)
                return r;
        if (bump > 0)
                r = backup_bump(&has, bump, &bumped);
        if (r < 0) {
                log_error("Cannot raise revision %" PRId64 " by %" PRIu64 ": %s.", has.revision,
                          bump, strerror(-r));
                return r;
        }
        cfg.cluster_id = restored_id(cfg.cluster_id, &has, bump);
        r = store_open(&s, d, &(struct store_config){.directory = cfg.directory}, &ops, &rs,
                       &err);
        there = r == 0 && is_restored(store_recovered(s), &cfg, has.index, has.state);
        if (there) {
                /* The restore was interrupted after its last step, or run twice. */
        } else if (r == 0 && !store_recovered(s)->fresh) {
                log_error("The data directory %s already holds a replica; name an empty one.",
                          data_dir);
                r = -EEXIST;
        } else if (r < 0) {
                log_error("Data directory %s: %s", data_dir, err.text);
        }
        if (r == 0 && !there) {
                store_recovered_free(s);
                r = store_begin_again(s);
                if (r == 0)
                        r = replica_restore(s, &cfg, has.index, has.state);
                if (r < 0)
                        log_error("Cannot fill %s: %s.", data_dir, strerror(-r));
        }
        if (r == 0 && !there)
                r = wait_done(&rs);
        if (r == 0 && !there) {
                r = replica_restored(s, &cfg);
                if (r < 0)
                        log_error("Cannot fill %s: %s; run it again.", data_dir, strerror(-r));
        }
        if (r == 0)
                log_info("Restored revision %" PRId64
                         " with %zu key(s) and %zu lease(s) into %s; "
                         "start the replica with the same options, without --restore.",
                         has.revision, has.n_keys, has.n_leases, data_dir);
        /* If a job may still be running, the store stays until the process exits. */
        if (rs.done || there || r == -EEXIST)
                store_free(s);
        else
                in_use = s;
        return r;
}

static void count(uint64_t id, const char *address, bool voter, void *n_members)
{
        (void) id;
        (void) address;
        (void) voter;
        *(size_t *) n_members += 1;
}

/* Whether the command has done its work on this directory before. */
static bool is_forced(const struct store_recovered *rec)
{
        size_t n_members = 0;
        bool first;

        return rec->identity.ancestor != 0 && !rec->half_forced && rec->lacks == 0 &&
               replica_each_recovered(rec, count, &n_members, &first) == 0 && n_members == 1;
}

int force_new_cluster(struct loop *l, struct disk *d, const struct replica_config *cfg,
                      uint64_t cluster_id, const char *data_dir)
{
        struct restore rs = {.loop = l, .data_dir = data_dir};
        struct store_error err;
        struct store *s = NULL;
        uint64_t index = 0;
        int r = store_open(&s, d, &(struct store_config){.directory = cfg->directory}, &ops,
                           &rs, &err);

        if (r < 0) {
                log_error("Data directory %s: %s", data_dir, err.text);
                return r;
        }
        if (store_recovered(s)->fresh) {
                log_error("The data directory %s holds no replica.", data_dir);
                store_free(s);
                return -ENOENT;
        }
        r = cfg->check(cfg->check_arg, store_recovered(s), &err);
        if (r < 0) {
                log_error("Data directory %s: %s", data_dir, err.text);
                store_free(s);
                return r;
        }
        if (is_forced(store_recovered(s))) {
                log_info("Member %016" PRIx64 " is the only member of cluster %016" PRIx64
                         " already, which descends from %016" PRIx64 ". Nothing was changed.",
                         cfg->id, cfg->cluster_id, store_recovered(s)->identity.ancestor);
                store_free(s);
                return 0;
        }
        r = store_descend(s, cluster_id);
        if (r == 0)
                r = replica_leave_alone(s, cfg, &index);
        if (r < 0)
                log_error("Cannot write to %s: %s.", data_dir, strerror(-r));
        else
                r = wait_done(&rs);
        if (r == 0) {
                r = store_descended(s);
                if (r < 0)
                        on_failed(&rs, "meta", r);
        }
        if (r == 0)
                log_info("Member %016" PRIx64
                         " is the only member of the new cluster %016" PRIx64
                         " now, which descends from %016" PRIx64 ", with all %" PRIu64
                         " entries of its log. Start it without --force-new-cluster; the "
                         "others join again with empty data directories (tenurectl core add).",
                         cfg->id, cluster_id, cfg->cluster_id, index);
        if (rs.done)
                store_free(s);
        return r;
}
