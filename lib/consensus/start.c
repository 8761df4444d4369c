/* Starts a replica: from its data directory to a replica that takes part. */
#include <stdarg.h>

#include "consensus/internal.h"

/* How often a client's session retries: an outage is excused together with one retry. */
#define CLIENT_RETRY (50 * NSEC_PER_MSEC)

static void fill_in(struct replica_config *c)
{
        if (c->snapshot_entries == 0)
                c->snapshot_entries = 16384;
        if (c->snapshot_slice == 0)
                c->snapshot_slice = (size_t) 512 << 10;
        if (c->snapshot_bytes == 0)
                c->snapshot_bytes = (uint64_t) 64 << 20;
        if (c->log_bytes == 0) /* twice what may be committed and not applied yet */
                c->log_bytes = (size_t) 64 << 20;
        if (c->message_bytes == 0)
                c->message_bytes = (size_t) 1 << 20;
        if (c->queued_bytes == 0)
                c->queued_bytes = REPLICA_QUEUED_MAX;
}

static int encode_peers(const struct replica_config *cfg, struct raft_buffer *ret)
{
        struct raft_configuration c;
        int k = 0;

        raft_configuration_init(&c);
        for (size_t i = 0; i < cfg->n_peers && k == 0; i++)
                k = raft_configuration_add(&c, cfg->peers[i].id, cfg->peers[i].address,
                                           RAFT_VOTER);
        if (k == 0)
                k = raft_configuration_encode(&c, ret);
        raft_configuration_close(&c);
        return k == 0 ? 0 : k == RAFT_NOMEM ? -ENOMEM : -EINVAL;
}

/* The first entry of every replica of a new cluster: the members. */
static int bootstrap(struct replica *r)
{
        struct store_identity id = {.cluster_id = r->cfg.cluster_id, .member_id = r->cfg.id};
        struct raft_buffer b;
        int k;

        if (r->cfg.join)
                return store_init(r->store, id, 0, NULL);
        k = encode_peers(&r->cfg, &b);
        if (k < 0)
                return k;
        k = log_push(&r->log, 1, RAFT_CHANGE, b.base, b.len);
        if (k == 0)
                k = store_init(r->store, id, 1,
                               &(struct store_entry){.index = 1,
                                                     .term = 1,
                                                     .type = RAFT_CHANGE,
                                                     .data = {b.base, b.len}});
        raft_free(b.base);
        return k;
}

int replica_restore(struct store *s, const struct replica_config *cfg, uint64_t index,
                    struct view state)
{
        struct raft_buffer b;
        int k = encode_peers(cfg, &b);

        if (k < 0)
                return k;
        k = store_save_snapshot(s,
                                &(struct store_snapshot){.index = index,
                                                         .term = 1,
                                                         .conf_index = index,
                                                         .conf = {b.base, b.len},
                                                         .data = state},
                                false);
        raft_free(b.base);
        return k;
}

int replica_restored(struct store *s, const struct replica_config *cfg)
{
        return store_init(
                s, (struct store_identity){.cluster_id = cfg->cluster_id, .member_id = cfg->id},
                1, NULL);
}

static struct view last_conf(const struct store_recovered *rec)
{
        for (size_t i = rec->n_entries; i > 0; i--)
                if (rec->entries[i - 1].type == RAFT_CHANGE)
                        return rec->entries[i - 1].data;
        return rec->snapshot.conf;
}

/* Whether directories of members are recorded: if so, ours always is, too. */
static int names_directories(const struct store_recovered *rec, bool *ret)
{
        struct view conf = last_conf(rec);
        struct raft_configuration c;
        int k;

        *ret = false;
        if (conf.len == 0)
                return 0; /* it has joined, and got nothing yet */
        k = message_decode_conf(conf, &c);
        if (k < 0)
                return k;
        for (unsigned i = 0; i < c.n; i++)
                *ret = *ret || address_directory(c.servers[i].address) != 0;
        raft_configuration_close(&c);
        return 0;
}

int replica_leave_alone(struct store *s, const struct replica_config *cfg, uint64_t *ret_index)
{
        const struct store_recovered *rec = store_recovered(s);
        struct store_entry e = {.index = rec->snapshot.index + 1,
                                .term = max_of(rec->term, rec->snapshot.term),
                                .type = RAFT_CHANGE};
        struct replica_config alone = *cfg;
        struct replica_peer self = {.id = cfg->id};
        struct member_address own = {0};
        char address[ADDRESS_MAX];
        struct raft_buffer b;
        bool named;
        int k = names_directories(rec, &named);

        if (k < 0)
                return k;
        if (rec->n_entries > 0) {
                e.index = rec->entries[rec->n_entries - 1].index + 1;
                e.term = max_of(e.term, rec->entries[rec->n_entries - 1].term);
        }
        own.directory = named ? cfg->directory : 0;
        for (size_t i = 0; i < cfg->n_peers; i++)
                if (cfg->peers[i].id == cfg->id)
                        (void) address_urls(cfg->peers[i].address, own.urls);
        self.address = address_join(&own, address);
        alone.peers = &self;
        alone.n_peers = 1;
        k = encode_peers(&alone, &b);
        if (k < 0)
                return k;
        e.data = (struct view){b.base, b.len};
        /* The operator has asked to continue without the entries that the log lacks. */
        k = rec->lacks > 0 ? store_condemn(s, 0) : 0;
        store_recovered_free(s);
        if (k == 0)
                k = store_append(s, &e, 1);
        if (k == 0)
                store_flush(s);
        raft_free(b.base);
        *ret_index = e.index - 1;
        return k;
}

/* [libraft] It trusts what it is started with; checksums detect a bad disk, but not wrong data.
 * A log without a snapshot begins with the members. */
static bool entries_are_sound(const struct store_recovered *rec)
{
        uint64_t term = 0;

        for (size_t i = 0; i < rec->n_entries; i++) {
                const struct store_entry *e = &rec->entries[i];

                if (e->term < term || !message_entry_is_sound(e->term, e->type, e->data))
                        return false;
                term = e->term;
        }
        return rec->n_entries == 0 || rec->snapshot.index > 0 ||
               (rec->entries[0].index == 1 && rec->entries[0].type == RAFT_CHANGE);
}

/* A term is durable before anything that was written in it. */
static uint64_t term_at_least(const struct store_recovered *rec)
{
        return max_of(rec->snapshot.term,
                      rec->n_entries > 0 ? rec->entries[rec->n_entries - 1].term : 0);
}

printf_(3, 4) static int refuse(struct store_error *err, int k, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(err->text, sizeof(err->text), fmt, ap);
        va_end(ap);
        return k;
}

/* Whether the directory is one that this member may have left. */
static int judge(const struct store_recovered *rec, struct store_error *err)
{
        if (!entries_are_sound(rec))
                return refuse(err, -EBADMSG,
                              "the log holds an entry that no replica can have "
                              "written. " STORE_WAY_OUT);
        if (term_at_least(rec) > rec->term)
                return refuse(
                        err, -EBADMSG,
                        "meta says term %" PRIu64 ", but there are entries of term %" PRIu64
                        ": meta is damaged, or an older copy was put in its place. This member "
                        "could vote twice. " STORE_WAY_OUT,
                        rec->term, term_at_least(rec));
        if (rec->half_restored)
                return refuse(
                        err, -EBADMSG,
                        "a restore into it was cut short: it holds a snapshot, but no meta. "
                        "Nothing was changed. Restore again (tenure-core --restore); if nobody "
                        "restored it, its meta is lost: remove this member from the cluster, "
                        "move its directory away, and add it again.");
        if (rec->half_forced)
                return refuse(
                        err, -EBADMSG,
                        "it was on its way to a cluster of its own, and that was cut short. "
                        "Run tenure-core --force-new-cluster again.");
        if (rec->lacks > 0)
                return refuse(
                        err, -EBADMSG,
                        "the leader has reported that it lacks entries that this member had "
                        "acknowledged, up to %" PRIu64
                        ": files of it are gone, or an older copy was put in their place. "
                        "Nothing was changed. Have the member replaced (tenurectl core "
                        "replace), and start it with an empty directory.",
                        rec->lacks);
        return 0;
}

/* All in one go: nothing waits for the replica yet. */
static int load_at_once(struct replica *r, struct view state, const char **ret_wrong)
{
        size_t all = SIZE_MAX;
        int k = r->ops->load(r->userdata, state);

        return k < 0 ? k : r->ops->load_more(r->userdata, &all, ret_wrong);
}

static int load_recovered(struct replica *r, struct raft_snapshot_metadata *meta,
                          struct store_error *err)
{
        const struct store_recovered *rec = store_recovered(r->store);
        const char *wrong = "its members are damaged";
        int k = judge(rec, err);

        if (k == 0 && !rec->fresh && r->cfg.check)
                k = r->cfg.check(r->cfg.check_arg, rec, err);
        if (k < 0)
                return k;
        if (rec->snapshot.index > 0) {
                k = message_decode_conf(rec->snapshot.conf, &meta->configuration);
                if (k == 0)
                        k = load_at_once(r, rec->snapshot.data, &wrong);
                if (k < 0) {
                        raft_configuration_close(&meta->configuration);
                        if (k == -ENOMEM)
                                return refuse(
                                        err, k,
                                        "there is not enough memory for snapshot-%016" PRIx64,
                                        rec->snapshot.index);
                        return refuse(err, -EBADMSG,
                                      "snapshot-%016" PRIx64
                                      " does not load (%s). If another version of tenure-core "
                                      "wrote it, start that one. " STORE_WAY_OUT,
                                      rec->snapshot.index, wrong);
                }
                replica_adopt(r, rec->snapshot.term);
                meta->index = r->taking.saved.index = r->applied = rec->snapshot.index;
                meta->term = rec->snapshot.term;
                r->taking.size = rec->snapshot.data.len;
                meta->configuration_index = rec->snapshot.conf_index;
                k = trim_remember(r, meta);
                if (k < 0) {
                        raft_configuration_close(&meta->configuration);
                        return k;
                }
        }
        log_init(&r->log, rec->n_entries > 0 ? rec->entries[0].index : rec->snapshot.index + 1);
        for (size_t i = 0; i < rec->n_entries; i++) {
                const struct store_entry *e = &rec->entries[i];

                if (e->type == RAFT_COMMAND)
                        lease_clock_learn(&r->time.clock, e->term, replica_stamp(e->data.p),
                                          r->now);
                k = log_push(&r->log, e->term, e->type, e->data.p, e->data.len);
                if (k < 0)
                        return k;
        }
        return 0;
}

/* [libraft] The only voter leads as soon as it starts, in the same term as before. A learner
 * may have entries that this replica lost in a crash; new entries with the same index and term
 * would be mistaken for those (Raft, Log Matching Property). So each start begins a new
 * term. */
static int leave_term(struct replica *r)
{
        uint64_t at = log_find(&r->log, RAFT_CHANGE, 1, log_last(&r->log));
        uint64_t voters[REPLICA_PEERS_MAX];
        struct raft_configuration c = {0};
        unsigned n;

        if (at != 0 && libraft_conf_at(r, at, &c) < 0)
                return -ENOMEM; /* no other error is left: the encoding was checked before */
        n = members_voters(at != 0 ? &c : &r->start.meta.configuration, voters);
        raft_configuration_close(&c);
        if (n != 1 || voters[0] != r->cfg.id)
                return 0;
        r->start.term++;
        r->start.vote = r->cfg.id;
        return store_vote(r->store, r->start.term, r->start.vote);
}

/* Whether both have the same members, whatever directories of them are recorded. */
static int same_members(struct view a, struct view b, bool *ret)
{
        struct raft_configuration x, y;
        char urls[URLS_MAX], other[URLS_MAX];
        int k = message_decode_conf(a, &x);

        if (k < 0)
                return k;
        k = message_decode_conf(b, &y);
        if (k < 0) {
                raft_configuration_close(&x);
                return k;
        }
        *ret = x.n == y.n;
        for (unsigned i = 0; i < x.n && *ret; i++)
                *ret = x.servers[i].id == y.servers[i].id &&
                       x.servers[i].role == y.servers[i].role &&
                       strcmp(address_urls(x.servers[i].address, urls),
                              address_urls(y.servers[i].address, other)) == 0;
        raft_configuration_close(&x);
        raft_configuration_close(&y);
        return 0;
}

int replica_each_recovered(const struct store_recovered *had,
                           void (*fn)(uint64_t id, const char *address, bool voter, void *arg),
                           void *arg, bool *ret_first)
{
        const struct store_snapshot *snap = &had->snapshot;
        struct raft_configuration c;
        struct view conf = snap->conf;
        bool first =
                snap->conf_index == 1 || (snap->term == 1 && snap->conf_index == snap->index);
        int k;

        for (size_t i = 0; i < had->n_entries; i++) {
                bool same = false;

                if (had->entries[i].type != RAFT_CHANGE)
                        continue;
                k = conf.len > 0 ? same_members(conf, had->entries[i].data, &same) : 0;
                if (k < 0)
                        return k;
                conf = had->entries[i].data;
                first = had->entries[i].index == 1 || (first && same);
        }
        *ret_first = first;
        if (conf.len == 0)
                return 0; /* it has joined, and got nothing yet */
        k = message_decode_conf(conf, &c);
        if (k < 0)
                return k;
        members_each(&c, fn, arg);
        raft_configuration_close(&c);
        return 0;
}

int replica_forget(struct disk *d, struct store_error *err)
{
        struct store *s;
        const struct store_recovered *had;
        int k = store_open(&s, d, &(struct store_config){0}, NULL, NULL, err);

        if (k < 0)
                return k;
        had = store_recovered(s);
        if (!had->fresh && (had->snapshot.index != 0 || had->n_entries != 1 ||
                            had->entries[0].type != RAFT_CHANGE || had->lacks > 0))
                k = refuse(err, -ENOTEMPTY, "it has data.");
        if (k == 0 && !had->fresh) {
                /* Without meta, the log is that of a first start that was interrupted. */
                k = d->ops->remove(d, "meta");
                if (k == 0)
                        k = d->ops->sync(d, NULL);
                if (k < 0)
                        (void) refuse(err, k, "cannot remove meta: %s", strerror(-k));
        }
        store_recovered_free(s);
        store_free(s);
        return k;
}

int replica_new(struct replica **ret, const struct replica_config *cfg, struct disk *d,
                const struct replica_ops *ops, void *userdata, struct boot_time now,
                struct store_error *err)
{
        cleanup_(replica_freep) struct replica *r = calloc(1, sizeof(*r));
        bool fresh;
        int k;

        if (!r)
                return -ENOMEM;
        r->cfg = *cfg;
        fill_in(&r->cfg);
        r->apply_left = SIZE_MAX; /* nothing waits for the replica yet */
        r->ops = ops;
        r->userdata = userdata;
        r->now = r->born_at = now;
        lease_clock_init(&r->time.clock, cfg->heartbeat, CLIENT_RETRY);
        r->leader_down_at = BOOT_TIME_NEVER;
        STAILQ_INIT(&r->queue.batches);
        STAILQ_INIT(&r->queue.unacked);

        k = store_open(&r->store, d,
                       &(struct store_config){.directory = cfg->directory,
                                              .format = versions_format(cfg->version)},
                       &replica_store_ops, r, err);
        if (k < 0)
                return k;
        if (cfg->segment_size > 0)
                store_set_segment_size(r->store, cfg->segment_size);
        store_keep_aside(r->store);
        /* If the directory belongs to another member, two of the peers may have the same id;
         * then cfg->check refuses the directory. */
        for (size_t i = 0; i < cfg->n_peers && !r->address; i++)
                if (cfg->peers[i].id == cfg->id)
                        r->address = strdup(cfg->peers[i].address);
        k = r->address ? libraft_begin(r) : -ENOMEM;
        if (k < 0)
                return k;
        k = load_recovered(r, &r->start.meta, err);
        if (k < 0)
                return k;
        fresh = store_recovered(r->store)->fresh;
        r->start.term = fresh ? !r->cfg.join : store_recovered(r->store)->term;
        r->start.vote = store_recovered(r->store)->vote;
        store_recovered_free(r->store);
        if (!fresh) {
                k = leave_term(r);
                if (k < 0)
                        return refuse(err, k, "cannot write term and vote (meta): %s",
                                      strerror(-k));
        } else {
                k = bootstrap(r);
                if (k < 0)
                        return refuse(err, k, "cannot set up the data directory: %s",
                                      strerror(-k));
        }
        *ret = take_ptr(r);
        return 0;
}

int replica_start(struct replica *r)
{
        struct raft_event ev = {.type = RAFT_START};
        struct raft_entry *e = raft_calloc(r->log.n + 1, sizeof(*e));

        if (!e)
                return -ENOMEM;
        for (size_t i = 0; i < r->log.n; i++) {
                const struct log_entry *le = log_get(&r->log, r->log.first + i);

                e[i].term = le->term;
                e[i].type = le->type;
                e[i].buf = (struct raft_buffer){le->data, le->len};
                e[i].batch = le->data;
        }
        ev.start.term = r->start.term;
        ev.start.voted_for = r->start.vote;
        ev.start.metadata = r->start.meta.index > 0 ? &r->start.meta : NULL;
        ev.start.start_index = r->log.first;
        ev.start.entries = e;
        ev.start.n_entries = (unsigned) r->log.n;
        replica_step(r, &ev);
        raft_free(e);
        return r->dead ? -EIO : 0;
}

struct replica *replica_free(struct replica *r)
{
        if (!r)
                return NULL;
        queue_drop(r);
        libraft_end(r);
        buf_fini(&r->queue.urgent);
        taking_fini(r);
        sending_fini(r);
        install_fini(r);
        freeing_fini(r);
        raft_configuration_close(&r->compacted.conf);
        log_fini(&r->log);
        store_free(r->store);
        free(r->address);
        free(r);
        return NULL;
}
