#include "identity.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/log.h"
#include "bus/notify.h"

static void on_joined(void *u, const struct joined *who, const char *why)
{
        struct identity *id = u;

        if (*why) {
                if (admission_tell(&id->admission,
                                   hash_end(hash_add(HASH_START, why, strlen(why))),
                                   loop_now(id->loop)))
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
        char own[320];
        int r;

        (void) list_next(&cursor, own, sizeof(own));
        for (size_t i = 0; i < c->n_peers; i++)
                if (i != c->self)
                        buf_printf(&urls, "%s%s", buf_len(&urls) > 0 ? "," : "",
                                   c->peers[i].urls);
        if (buf_len(&urls) == 0) {
                log_error("This replica joins a cluster, and its data directory %s is empty: "
                          "--initial-cluster must name the other members, which know its id.",
                          id->options->data_dir);
                return -EINVAL;
        }
        buf_add_u8(&urls, 0);
        r = buf_error(&urls);
        if (r == 0)
                r = join_new(&j, id->loop, id->resolver,
                             &(struct join_config){.urls = (const char *) buf_head(&urls),
                                                   .self = own,
                                                   .name = c->peers[c->self].name,
                                                   .self_urls = c->peers[c->self].urls,
                                                   .replace = id->options->replace_lost_disk,
                                                   .directory = id->directory,
                                                   .tls = id->tls->peers_out,
                                                   .admission = &id->admission},
                             on_joined, id);
        if (r < 0)
                return r;
        id->admission = certificates_admission(id->options);
        log_info("Joining as %s.", own);
        loop_run(id->loop);
        return id->joined.n_members > 0 ? 0 : -EINTR; /* told to stop */
}

int identity_find(struct identity *id, bool may_join)
{
        bool existing = id->again || id->options->initial_cluster_state == CLUSTER_EXISTING;
        struct store_identity had;
        struct store_error err;
        int r = id->again ? replica_forget(id->disk, &err) : 0;

        if (r == 0)
                r = store_peek(id->disk, &had, &err);
        if (r == -ENOENT)
                return existing && may_join ? join(id) : 0;
        if (r < 0) {
                log_error("Data directory %s: %s", id->options->data_dir, err.text);
                return r;
        }
        id->cluster_id = had.cluster_id;
        id->member_id = had.member_id;
        id->directory = had.directory;
        id->ancestor = had.ancestor;
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

/* The members in the data directory, compared with those of the settings. */
struct comparison {
        const struct identity *identity;
        size_t n;            /* members in the directory */
        size_t n_same;       /* with the same URLs in the list */
        bool known;          /* one of them has a URL that is in the list */
        bool ours;           /* one of our URLs belongs to the member that we are */
        uint64_t other;      /* or belongs to this member; 0: to none */
        const char *calls;   /* the list gives the URL of that member another name than ours;
                              * NULL: it does not */
        char urls[URLS_MAX]; /* of that member; "": the directory does not have it */
};

static void compare(uint64_t id, const char *urls, bool voter, void *arg)
{
        struct comparison *m = arg;
        const struct options_cluster *c = m->identity->cluster;
        bool we = id == m->identity->member_id;

        (void) voter;
        m->n++;
        for (size_t i = 0; i < c->n_peers; i++) {
                if (!urls_meet(urls, c->peers[i].urls))
                        continue;
                m->known = true;
                m->n_same += strcmp(urls, c->peers[i].urls) == 0;
                if (we && i == c->self)
                        m->ours = true;
                else if (we)
                        m->calls = c->peers[i].name;
                else if (i == c->self)
                        m->other = id;
        }
        if (we)
                snprintf(m->urls, sizeof(m->urls), "%s", urls);
}

#define NOT_NEEDED \
        "--initial-cluster (InitialCluster=), which is used only for an empty directory"

/* The directory of another member, or a copy of it, would start a second instance of that
 * member, which votes and acknowledges beside the first. The URLs tell them apart. */
static bool is_anothers(const struct comparison *m, struct store_error *err)
{
        const struct options_cluster *c = m->identity->cluster;
        const struct options_peer *self = &c->peers[c->self];

        if (!m->ours && m->other != 0)
                snprintf(err->text, sizeof(err->text),
                         "it belongs to member %016" PRIx64
                         " at %.100s, but the settings put %s at %.100s, which is member "
                         "%016" PRIx64 "; give each member its own --data-dir, or correct its "
                         "URL in the settings if the member has moved.",
                         m->identity->member_id, m->urls, self->name, self->urls, m->other);
        else if (!m->ours && m->calls && m->identity->member_id != self->id)
                snprintf(err->text, sizeof(err->text),
                         "it belongs to member %016" PRIx64
                         " at %.100s, which --initial-cluster calls %s, but this replica is "
                         "%s; give each member its own --data-dir, or correct "
                         "--initial-cluster if the member has moved.",
                         m->identity->member_id, m->urls, m->calls, self->name);
        return *err->text;
}

/* @first: the members are those with which the directory was founded or restored, by the list.
 */
static bool is_of_another_cluster(const struct comparison *m, bool first,
                                  struct store_error *err)
{
        const struct options_cluster *c = m->identity->cluster;
        uint64_t id = m->identity->cluster_id;

        if (id == c->cluster_id)
                return false; /* the list has founded it */
        if (!m->known)
                snprintf(err->text, sizeof(err->text),
                         "it belongs to cluster %016" PRIx64
                         ", but --initial-cluster names none of its members, such as %.100s; "
                         "use another --data-dir. If this is the right one, remove " NOT_NEEDED
                         ".",
                         id, m->urls);
        else if (first && m->n == 1 && c->n_peers > 1)
                snprintf(err->text, sizeof(err->text),
                         "its cluster %016" PRIx64
                         " began with this member alone, but --initial-cluster names others; "
                         "if it was started alone by mistake, move the directory away; if not, "
                         "remove " NOT_NEEDED ", and add the others (tenurectl core add).",
                         id);
        else if (first && m->n_same == m->n && m->n == c->n_peers &&
                 m->identity->member_id != c->peers[c->self].id) /* or the list restored it */
                snprintf(err->text, sizeof(err->text),
                         "its cluster %016" PRIx64
                         " began with another --initial-cluster-token; correct the token, or "
                         "use another --data-dir.",
                         id);
        return *err->text;
}

int identity_check(void *identity, const struct store_recovered *had, struct store_error *err)
{
        struct identity *id = identity;
        struct options_cluster *c = id->cluster;
        struct comparison m = {.identity = id};
        bool first;
        int r = replica_each_recovered(had, compare, &m, &first);

        *err->text = '\0';
        if (r < 0)
                snprintf(err->text, sizeof(err->text),
                         "its members cannot be read (%s). " STORE_WAY_OUT, strerror(-r));
        if (r < 0 || !*m.urls)
                return r;
        if (is_anothers(&m, err))
                return -EINVAL;
        if (!c->given) {
                strcpy(c->peers[c->self].urls, m.urls);
                return 0;
        }
        if (is_of_another_cluster(&m, first && had->identity.ancestor == 0, err))
                return -EINVAL;
        if (m.n_same != m.n || m.n != c->n_peers)
                log_warning("The data directory %s has other members, or other URLs of them, "
                            "than " NOT_NEEDED "; remove it from the settings.",
                            id->options->data_dir);
        return 0;
}
