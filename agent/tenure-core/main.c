/*
 * tenure-core: one replica of the lease core. Needs no capability; listens for clients and for
 * the other replicas.
 *
 * This file puts the parts together, and reads the clock for them.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/std_fds.h"
#include "bus/journal.h"
#include "bus/messages.h"
#include "bus/notify.h"
#include "certificates.h"
#include "descriptors.h"
#include "etcd.h"
#include "etcd/node.h"
#include "etcd/server.h"
#include "expiries.h"
#include "identity.h"
#include "leaderless.h"
#include "links.h"
#include "options.h"
#include "restore.h"

#define REQUEST_TIMEOUT (5 * NSEC_PER_SEC)
#define STOP_TIMEOUT NSEC_PER_SEC
#define REMOVED_TIMEOUT (500 * NSEC_PER_MSEC)
#define LONG_TURN (50 * NSEC_PER_MSEC)      /* of the loop; logged ... */
#define LONG_TURN_EVERY (10 * NSEC_PER_SEC) /* ... but at most this often */

struct program {
        struct arguments args;
        struct options opt;
        struct options_cluster cluster;
        struct identity identity;
        struct loop *loop;
        struct resolver *resolver;
        struct disk *disk;
        struct node node;
        struct links links;
        struct leaderless leaderless;
        struct expiries expiries;
        struct worker *passwords;
        struct server *server;
        struct certificates tls;
        struct loop_hook decide, feed;
        struct loop_timer stop_timer;
        struct loop_signal sigterm, sigint, sighup;
        uint64_t leader; /* the leader that was logged last */
        uint64_t awaits; /* whom the status said last that we wait for */
        struct boot_time turn_log_at;
        uint64_t long_turns; /* since the last one that was logged */
        bool stopping, removed;
        bool again, joins; /* to begin again, or having done so, as a replica that joins */
        int exit_code;
        int snapshot; /* the open file of --restore */
};

static void lap(void *loop, const char *what)
{
        loop_lap(loop, what, NULL);
}

static struct boot_time decide(struct loop_hook *h, struct boot_time now)
{
        struct program *p = container_of(h, struct program, decide);

        node_run(&p->node, now, lap, p->loop);
        notify_flush();
        if (p->stopping && !replica_status(p->node.replica).leader)
                loop_stop(p->loop);
        return BOOT_TIME_NEVER; /* feed() returns the next instant, once all answers are made */
}

static struct boot_time feed(struct loop_hook *h, struct boot_time now)
{
        struct program *p = container_of(h, struct program, feed);

        node_flush(&p->node, now);
        loop_lap(p->loop, "watchers, locks and scans", NULL);
        return node_next(&p->node);
}

/* A long turn delays the next heartbeat. */
static void on_long_turn(const struct loop_turn *t, void *arg)
{
        struct program *p = arg;
        struct boot_time now = loop_now(p->loop);

        p->long_turns++;
        if (boot_before(now, p->turn_log_at))
                return;
        p->turn_log_at = boot_add(now, LONG_TURN_EVERY);
        log_warning("The main loop ran for %" PRId64 " ms without a break, %" PRId64
                    " ms of that in %s%s%s%s, and had a processor for %" PRId64
                    " ms; this happened %" PRIu64 " time(s) since the last such message.",
                    t->took / NSEC_PER_MSEC, t->piece / NSEC_PER_MSEC, t->what,
                    *t->who ? " (" : "", t->who, *t->who ? ")" : "", t->ran / NSEC_PER_MSEC,
                    p->long_turns);
        p->long_turns = 0;
}

static const char *name_of(const struct program *p, uint64_t id)
{
        const struct member *m = state_member(core_state(p->node.core), id);

        if (m)
                return m->name;
        for (size_t i = 0; i < p->cluster.n_peers; i++)
                if (p->cluster.peers[i].id == id)
                        return p->cluster.peers[i].name;
        return "?";
}

/* To systemd. */
static void show(const struct program *p, const struct replica_status *s)
{
        if (s->awaits != 0 && s->leader)
                notify_status("Leader of a new cluster, which waits for %s to start.",
                              name_of(p, s->awaits));
        else if (s->awaits != 0)
                notify_status("Waiting for %s to start (%016" PRIx64
                              "), or, if this cluster is not new, for a member that has data.",
                              name_of(p, s->awaits), s->awaits);
        else if (s->leader_id == 0)
                notify_status("No leader (term %" PRIu64 ").", s->term);
        else if (s->leader)
                notify_status("Leader (term %" PRIu64 ").", s->term);
        else
                notify_status("Following %s (term %" PRIu64 ").", name_of(p, s->leader_id),
                              s->term);
}

/* The members have gone on without this one, whose directory is as it was made. As a replica
 * that joins, it waits for what they do about it, without another change of its settings. */
static void begin_again(struct program *p)
{
        if (p->again || p->stopping)
                return;
        p->again = true;
        log_warning(
                "The data directory %s is empty, but the cluster has begun, and this member "
                "had another one: asking the other members who this replica is now.",
                p->opt.data_dir);
        links_stop(&p->links);
        loop_stop(p->loop);
}

static void on_changed(void *u)
{
        struct program *p = u;
        struct replica_status s = replica_status(p->node.replica);
        char term[32], leader[64];
        const char *fields[] = {MESSAGE_LEADER, term, leader, NULL};

        if (s.lost)
                return begin_again(p);
        leaderless_changed(&p->leaderless, s.leader_id != 0);
        if (s.leader || s.leader_id != p->leader || s.awaits != p->awaits)
                show(p, &s);
        p->awaits = s.awaits;
        if (s.leader_id == p->leader)
                return;
        p->leader = s.leader_id;
        snprintf(term, sizeof(term), "TERM=%" PRIu64, s.term);
        snprintf(leader, sizeof(leader), "LEADER=%016" PRIx64, s.leader_id);
        if (s.leader_id == 0) {
                log_full(LOG_NOTICE, fields,
                         "No leader in term %" PRIu64 "; waiting for an election.", s.term);
        } else if (s.leader) {
                log_full(LOG_NOTICE, fields, "This replica leads now (term %" PRIu64 ").",
                         s.term);
        } else {
                log_full(LOG_NOTICE, fields, "Following %s (term %" PRIu64 ").",
                         name_of(p, s.leader_id), s.term);
        }
}

static void on_expired(void *u, int64_t lease, size_t n_keys, uint64_t term)
{
        struct program *p = u;

        expiries_log(&p->expiries, loop_now(p->loop), lease, n_keys, term);
}

static void on_send(void *u, uint64_t peer, struct view frame)
{
        struct program *p = u;

        links_send(&p->links, peer, frame);
}

static size_t on_room(void *u, uint64_t peer)
{
        struct program *p = u;

        return links_room(&p->links, peer);
}

static struct core_link on_link(void *u, uint64_t peer)
{
        struct program *p = u;

        return links_look(&p->links, peer);
}

static void on_fatal(void *u, const char *why)
{
        struct program *p = u;

        log_error("Stopping, so that nothing acknowledged is lost (data directory %s): %s.",
                  p->opt.data_dir, why);
        p->exit_code = 1;
        loop_stop(p->loop);
        /* Send nothing more: it could promise what is not on disk. */
        links_stop(&p->links);
}

/* ---- members ---- */

static void on_configured(void *u)
{
        struct program *p = u;

        links_configured(&p->links);
}

static void on_removed(void *u)
{
        struct program *p = u;

        if (replica_status(p->node.replica).last == 1 &&
            replica_introduction(p->node.replica, 0).founding)
                return begin_again(p);
        if (p->removed)
                return;
        p->removed = true;
        log_notice("This replica was removed from the cluster and stops. Its data directory %s "
                   "can be deleted.",
                   p->opt.data_dir);
        notify_stopping();
        /* The client that asked us for the removal gets its answer first. */
        loop_timer_in(&p->stop_timer, REMOVED_TIMEOUT);
}

static const struct core_owner owner = {
        .send = on_send,
        .room = on_room,
        .link = on_link,
        .fatal = on_fatal,
        .expired = on_expired,
        .changed = on_changed,
        .configured = on_configured,
        .removed = on_removed,
};

static void on_stop_timeout(struct loop_timer *t)
{
        loop_stop(t->loop);
}

/* A leader hands over first, so that a regular stop costs no election timeout. */
static void stop(struct program *p)
{
        p->again = false;
        if (p->stopping || !p->node.replica) {
                loop_stop(p->loop);
                return;
        }
        p->stopping = true;
        notify_stopping();
        log_info("Stopping.");
        loop_timer_in(&p->stop_timer, STOP_TIMEOUT);
        if (!replica_step_down(p->node.replica, loop_now(p->loop)))
                loop_stop(p->loop);
}

static void on_sigterm(struct loop_signal *s)
{
        stop(container_of(s, struct program, sigterm));
}

static void on_sigint(struct loop_signal *s)
{
        stop(container_of(s, struct program, sigint));
}

/* Certificates are renewed under the same file names. New connections use the new files. If one
 * file is bad, all stay as they were. */
static void on_sighup(struct loop_signal *s)
{
        struct program *p = container_of(s, struct program, sighup);
        cleanup_(certificates_fini) struct certificates fresh = {0};

        notify_reloading();
        if (certificates_read(&fresh, &p->opt) < 0) {
                log_error("The certificates in use remain unchanged.");
        } else {
                certificates_replace(&p->tls, &fresh);
                log_notice("The certificates were reloaded.");
        }
        notify_ready();
}

/* A new directory survives a power loss only once its parent is synced; otherwise a member
 * would start empty, without its votes. If we may not read the parent, we cannot sync it, and
 * continue. */
static int sync_parent(const char *dir)
{
        int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), up, r = 0;

        if (fd < 0)
                return -errno;
        up = openat(fd, "..", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (up < 0 ? errno != EACCES : fsync(up) < 0 && errno != EINVAL && errno != EROFS)
                r = -errno;
        if (up >= 0)
                close(up);
        close(fd);
        return r;
}

/* A unit that was written for etcd names etcd's data directory. We would start empty beside
 * that data, and every client would find its keys gone. */
static int check_not_etcds(const char *dir)
{
        char member[4096];

        snprintf(member, sizeof(member), "%s/member/wal", dir);
        if (access(member, F_OK) < 0)
                return 0;
        log_error("The data directory %s contains data of etcd (%s), which cannot be read; "
                  "give "
                  "another --data-dir, and copy the keys as tenure-core(8) says (Moving from "
                  "etcd).",
                  dir, member);
        return -EINVAL;
}

static int open_data_dir(struct program *p)
{
        const char *dir = p->opt.data_dir;
        int r;

        r = check_not_etcds(dir);
        if (r < 0)
                return r;

        if (mkdir(dir, 0700) < 0 && errno != EEXIST) {
                r = -errno;
                log_error("Cannot make the data directory %s: %s.", dir, strerror(-r));
                return r;
        }
        r = sync_parent(dir);
        if (r == 0)
                r = disk_posix_new(&p->disk, dir, p->loop);
        if (r == -EBUSY)
                log_error("Another process uses the data directory %s; give each replica its "
                          "own (--data-dir).",
                          dir);
        else if (r == -ELOOP)
                log_error("The file lock in the data directory %s is a symbolic link, which is "
                          "not followed; remove it.",
                          dir);
        else if (r < 0)
                log_error("Cannot use the data directory %s: %s.", dir, strerror(-r));
        return r;
}

static struct core_config core_config_of(const struct program *p, uint64_t seed)
{
        const struct options *o = &p->opt;

        return (struct core_config){
                .cluster_id = p->identity.cluster_id,
                .member_id = p->identity.member_id,
                .ancestor = p->identity.ancestor,
                .finish_after = o->finish_upgrade_after,
                .min_ttl = o->min_ttl,
                .quota = o->quota,
                .max_txn_ops = o->max_txn_ops,
                .lease_tie = (enum lease_tie) o->lease_owners,
                .plaintext_peers = o->allow_plaintext_peers,
                .compact_keep = o->compact_keep,
                .compact_age = o->compact_age,
                .timeout = REQUEST_TIMEOUT + 2 * o->election,
                .leader_timeout = o->election,
                .watch_progress = o->watch_progress,
                .cache_term = o->cache_term,
                .seed = seed,
        };
}

static int make_replica(struct program *p)
{
        struct replica_peer peers[REPLICA_PEERS_MAX];
        const struct options_peer *self = &p->cluster.peers[p->cluster.self];
        struct boot_time now = loop_lap(p->loop, "the start", NULL);
        struct replica_config cfg = {
                .id = p->identity.member_id,
                .cluster_id = p->identity.cluster_id,
                .peers = peers,
                .n_peers = identity_members(&p->identity, peers),
                .join = p->identity.joined.n_members > 0,
                .check = identity_check,
                .check_arg = &p->identity,
                .any_change = !p->opt.strict_reconfig_check,
                .replace_lost = p->opt.replace_lost_disk,
                .election = p->opt.election,
                .heartbeat = p->opt.heartbeat,
                .snapshot_entries = p->opt.snapshot_count,
        };
        struct store_error err = {""};
        uint64_t random[3] = {(uint64_t) now.ns, (uint64_t) now.ns, (uint64_t) now.ns};
        int r;

        (void) !getrandom(random, sizeof(random), 0);
        cfg.seed = random[0] ^ (uint64_t) now.ns;
        cfg.directory = random[1];
        if (p->args.force_new)
                return force_new_cluster(p->loop, p->disk, &cfg, random[2] | 1,
                                         p->opt.data_dir);
        if (p->args.restore)
                return restore(p->loop, p->disk, &cfg, p->snapshot, p->args.restore,
                               p->args.bump, p->opt.data_dir);
        r = worker_new(&p->passwords, p->loop, "passwords");
        if (r < 0)
                return r;
        r = node_init(&p->node,
                      &(struct node_config){
                              .core = core_config_of(p, random[0]),
                              .replica = cfg,
                              .owner = &owner,
                              .owner_arg = p,
                              .name = self->name,
                              .client_urls = p->opt.advertise_client_urls,
                              .passwords = p->passwords,
                              .token_ttl = p->opt.auth_token_ttl,
                              .etcd_version = p->opt.etcd_version,
                              .status_page = p->opt.status_page,
                      },
                      p->disk, now, &err);
        if (r < 0)
                log_error("Data directory %s: %s", p->opt.data_dir,
                          *err.text ? err.text : strerror(-r));
        return r;
}

static int make_port(struct program *p)
{
        char err[512] = "";
        int r = server_new(&p->server, p->loop, p->node.api,
                           &(struct server_config){
                                   .urls = p->opt.listen_client_urls,
                                   .probe_urls = p->opt.listen_metrics_urls,
                                   .tls = p->tls.clients,
                                   .hosts = p->opt.host_whitelist,
                                   .request_max = p->opt.max_request_bytes,
                                   .connections_max = p->opt.max_connections,
                                   .connections_of_address = p->opt.max_connections_per_address,
                                   .memory_max = p->opt.max_client_bytes,
                                   .runs = &p->decide,
                           },
                           err, sizeof(err));

        if (r < 0)
                log_error("%s.", *err ? err : strerror(-r));
        return r;
}

static int make_links(struct program *p)
{
        return links_start(&p->links, p->loop, p->resolver, p->node.core, p->node.replica,
                           &p->identity.joined,
                           &(struct peers_config){
                                   .cluster_id = p->identity.cluster_id,
                                   .member_id = p->identity.member_id,
                                   .ancestor = p->identity.ancestor,
                                   .listen_urls = p->opt.listen_peer_urls,
                                   .delay = p->opt.election / 8,
                                   .tls_server = p->tls.peers_in,
                                   .tls_client = p->tls.peers_out,
                                   .admission = certificates_admission(&p->opt),
                           });
}

static int run(struct program *p)
{
        int r;

        descriptors_raise(&p->opt);
        r = loop_new(&p->loop);
        if (r == 0)
                r = resolver_new(&p->resolver, p->loop);
        if (r == 0)
                r = certificates_read(&p->tls, &p->opt);
        if (r == 0 && (p->args.restore || p->args.force_new))
                r = restore_begin(p->args.restore, p->opt.data_dir, &p->snapshot);
        if (r == 0)
                r = open_data_dir(p);
        if (r < 0)
                return r;
        loop_timer_init(&p->stop_timer, p->loop, on_stop_timeout);
        loop_signal_start(&p->sigterm, p->loop, SIGTERM, on_sigterm);
        loop_signal_start(&p->sigint, p->loop, SIGINT, on_sigint);
        loop_signal_start(&p->sighup, p->loop, SIGHUP, on_sighup);
        p->identity = (struct identity){.options = &p->opt,
                                        .cluster = &p->cluster,
                                        .tls = &p->tls,
                                        .loop = p->loop,
                                        .resolver = p->resolver,
                                        .disk = p->disk,
                                        .again = p->joins,
                                        .cluster_id = p->cluster.cluster_id,
                                        .member_id = p->cluster.peers[p->cluster.self].id};
        if (!p->args.restore)
                r = identity_find(&p->identity, !p->args.force_new);
        if (r == 0)
                r = make_replica(p);
        if (p->args.restore || p->args.force_new)
                return r;
        if (r == 0)
                r = identity_find_again(&p->identity, p->node.replica);
        if (r == 0)
                r = make_port(p);
        if (r == 0)
                r = node_start(&p->node);
        if (r < 0)
                return r;
        loop_hook_start(&p->decide, p->loop, LOOP_DECIDE, decide);
        loop_hook_start(&p->feed, p->loop, LOOP_BEHIND, feed);
        r = make_links(p);
        if (r < 0)
                return r;
        log_info("tenure-core %s (member %016" PRIx64 " of cluster %016" PRIx64
                 ") serves clients on %s; data in %s.",
                 p->opt.name, p->identity.member_id, p->identity.cluster_id,
                 p->opt.listen_client_urls, p->opt.data_dir);
        certificates_watch(&p->tls, p->loop);
        notify_ready();
        leaderless_start(&p->leaderless, p->loop, p->node.core, &p->links);
        loop_watch_turns(p->loop, LONG_TURN, on_long_turn, p);
        loop_run(p->loop);
        return 0;
}

static void fini(struct program *p)
{
        loop_signal_stop(&p->sigterm);
        loop_signal_stop(&p->sigint);
        loop_signal_stop(&p->sighup);
        loop_hook_stop(&p->decide);
        loop_hook_stop(&p->feed);
        leaderless_fini(&p->leaderless);
        server_free(p->server);
        worker_free(p->passwords);
        node_leave(&p->node);
        links_fini(&p->links);
        /* The disk's thread must end before the data of its jobs is freed. */
        disk_free(p->disk);
        node_free(&p->node);
        resolver_free(p->resolver);
        certificates_fini(&p->tls);
        loop_free(p->loop);
        conf_clear(options_table, n_options, &p->opt);
}

/* Makes malloc return memory to the kernel and keep its free lists short. By default, malloc
 * raises its mmap threshold after the first large block, and takes the next ones from the heap:
 * half-sent answers of a megabyte left holes there as large as all that was held for clients.
 * And small blocks are merged with their neighbours as they are freed: otherwise malloc sets
 * them aside until the next large one, and merging a million of them took 60 ms of one turn. */
static void give_memory_back(void)
{
        mallopt(M_MMAP_THRESHOLD, 256 << 10);
        mallopt(M_MMAP_MAX, 32768); /* vm.max_map_count allows a process 65,530 mappings */
        mallopt(M_TRIM_THRESHOLD, 16 << 20);
        mallopt(M_MXFAST, 0);
}

static int refuse(const char *why)
{
        fprintf(stderr, "tenure-core: %s.\n", why);
        return 1;
}

/* Reports the notes about etcd's settings: to the log, or to standard error if nothing is
 * logged. */
static void tell_notes(const struct buf *n, bool log)
{
        const char *line = (const char *) buf_head(n);
        size_t left = buf_len(n);

        while (left > 0) {
                size_t len = (size_t) ((const char *) memchr(line, '\n', left) - line);

                if (log)
                        log_info("%.*s.", (int) len, line);
                else
                        fprintf(stderr, "tenure-core: %.*s.\n", (int) len, line);
                line += len + 1;
                left -= len + 1;
        }
}

static int be_replica(struct program *p)
{
        cleanup_(buf_fini) struct buf notes = {0};
        struct conf_error err = {""};
        int r = options_read(&p->opt, &p->cluster, &p->args, &notes, &err);

        if (r < 0) {
                refuse(err.text);
        } else if (p->args.test) {
                cleanup_(buf_fini) struct buf b = {0};

                conf_print(options_table, n_options, &p->opt, &b);
                fwrite(b.data, 1, buf_len(&b), stdout);
                tell_notes(&notes, false);
        } else {
                log_set_level(p->opt.log_level);
                journal_use("tenure-core");
                replica_end_without_memory();
                tell_notes(&notes, true);
                r = run(p);
        }
        fini(p);
        return r == -EINTR && !p->args.restore && !p->args.force_new ? 0
               : r < 0                                               ? 1
                                                                     : p->exit_code;
}

int main(int argc, char **argv)
{
        struct program p = {0};
        struct conf_error err = {""};
        int r;

        std_fds_reserve();
        give_memory_back();
        signal(SIGPIPE, SIG_IGN);
        r = arguments_parse(&p.args, argc, argv, &err);
        if (r < 0)
                r = refuse(*err.text ? err.text : strerror(-r));
        else if (r == ARGS_E_SHOWN)
                r = 0;
        else
                do {
                        p = (struct program){.args = p.args, .joins = p.again};
                        r = be_replica(&p);
                } while (p.again);
        args_fini(&p.args.all);
        return r;
}
