#include "identity.h"

#include <inttypes.h>

#include "base/log.h"
#include "bus/notify.h"

static void on_joined(void *u, const struct joined *who, const char *why)
{
        struct identity *id = u;

        if (!who) {
                log_warning("Joining: %s; trying again.", why);
                notify_status("Joining: %s.", why);
                return;
        }
        id->joined = *who;
        id->cluster_id = who->cluster_id;
        id->member_id = who->member_id;
        loop_stop(id->loop);
}

/* Asks the running members which member we are; runs the loop until one answers. */
static int join(struct identity *id)
{
        cleanup_(buf_fini) struct buf urls = {0};
        cleanup_(join_freep) struct join *j = NULL;
        const struct options_cluster *c = id->cluster;
        const char *cursor = c->peers[c->self].urls;
        const struct admission admission = certificates_admission(id->options);
        char own[320];
        int r;

        (void) list_next(&cursor, own, sizeof(own));
        for (size_t i = 0; i < c->n_peers; i++)
                if (i != c->self)
                        buf_printf(&urls, "%s%s", buf_len(&urls) > 0 ? "," : "",
                                   c->peers[i].urls);
        if (buf_len(&urls) == 0) {
                log_error("--initial-cluster-state=existing with an empty %s: "
                          "--initial-cluster must name the existing members.",
                          id->options->data_dir);
                return -EINVAL;
        }
        buf_add_u8(&urls, 0);
        r = buf_error(&urls);
        if (r == 0)
                r = join_new(&j, id->loop, id->resolver,
                             &(struct join_config){.urls = (const char *) buf_head(&urls),
                                                   .self = own,
                                                   .tls = id->tls->peers_out,
                                                   .admission = &admission},
                             on_joined, id);
        if (r < 0)
                return r;
        log_info("Joining as %s.", own);
        loop_run(id->loop);
        return id->joined.n_members > 0 ? 0 : -EINTR; /* told to stop */
}

int identity_find(struct identity *id, bool may_join)
{
        const struct options_peer *self = &id->cluster->peers[id->cluster->self];
        bool existing = id->options->initial_cluster_state == CLUSTER_EXISTING;
        struct store_identity had;
        struct store_error err;
        int r = store_peek(id->disk, &had, &err);

        id->cluster_id = id->cluster->cluster_id;
        id->member_id = self->id;
        if (r == -ENOENT)
                return existing && may_join ? join(id) : 0;
        if (r < 0) {
                log_error("Data directory %s: %s", id->options->data_dir, err.text);
                return r;
        }
        if (!existing && had.member_id != self->id) {
                log_error("The data directory %s belongs to member %016" PRIx64
                          " of cluster %016" PRIx64
                          ", but the configuration makes this member %016" PRIx64
                          "; use its own --name, --initial-cluster and "
                          "--initial-cluster-token, --initial-cluster-state=existing if it had "
                          "joined, or another --data-dir.",
                          id->options->data_dir, had.member_id, had.cluster_id, self->id);
                return -EINVAL;
        }
        id->cluster_id = had.cluster_id;
        id->member_id = had.member_id;
        return 0;
}

int identity_find_again(struct identity *id, const struct replica *replica)
{
        uint64_t before = id->member_id;
        bool must = id->joined.n_members == 0 && replica_status(replica).last == 0;
        int r = must ? join(id) : 0;

        if (r < 0 || id->member_id == before)
                return r;
        log_error("This replica is member %016" PRIx64 " now; move its data directory %s away, "
                  "which belongs to member %016" PRIx64 " and is empty.",
                  id->member_id, id->options->data_dir, before);
        return -EINVAL;
}

size_t identity_members(const struct identity *id,
                        struct replica_peer members[static REPLICA_PEERS_MAX])
{
        const struct options_cluster *c = id->cluster;
        const struct joined *j = &id->joined;

        for (size_t i = 0; i < j->n_members; i++)
                members[i] = (struct replica_peer){j->members[i].id, j->members[i].urls};
        if (j->n_members > 0)
                return j->n_members;
        for (size_t i = 0; i < c->n_peers; i++)
                members[i] = (struct replica_peer){
                        i == c->self ? id->member_id : c->peers[i].id, c->peers[i].urls};
        return c->n_peers;
}

/* Of the members that the data directory knows: which one we are, and which one has our
 * URLs. */
struct place {
        const struct identity *identity;
        bool ours;           /* one of our URLs belongs to the member that we are */
        uint64_t other;      /* or belongs to this member; 0: to none */
        const char *address; /* of the member that we are; borrowed */
};

static void look(uint64_t id, const char *address, bool voter, void *arg)
{
        struct place *at = arg;
        const struct options_cluster *c = at->identity->cluster;
        bool met = urls_meet(address, c->peers[c->self].urls);

        (void) voter;
        if (id == at->identity->member_id) {
                at->address = address;
                at->ours = met;
        } else if (met) {
                at->other = id;
        }
}

int identity_check_place(const struct identity *id, const struct core *c)
{
        struct place at = {.identity = id};

        core_each_peer(c, look, &at);
        if (!at.address || at.ours || at.other == 0)
                return 0;
        log_error("The data directory %s belongs to member %016" PRIx64
                  " at %s, but --initial-cluster puts %s at %s, which is member %016" PRIx64
                  "; give each member its own --data-dir, or correct --initial-cluster if the "
                  "member has moved.",
                  id->options->data_dir, id->member_id, at.address, id->options->name,
                  id->cluster->peers[id->cluster->self].urls, at.other);
        return -EINVAL;
}
