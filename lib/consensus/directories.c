/*
 * A member is its id and its data directory (I5): raft's configuration names both (address.h).
 *
 * A directory that is empty, or another one, does not have what the member has acknowledged,
 * and how it has voted. So a replica neither accepts a member that introduces itself with
 * another directory than the recorded one, nor runs on such a directory itself.
 *
 * The leader records the directories: of all members in one entry, when the cluster is founded
 * or its version has risen to 0.2; later that of each member that was added, once it has
 * introduced itself.
 *
 * A replica is founding while its log has nothing but the members with which it began. It
 * cannot tell whether its directory is the member's first one, so it waits for all members: it
 * takes part in an election when each has introduced itself and all are founding, too. If one
 * is not, the cluster has begun, and a founding replica votes only for a candidate that has
 * this directory recorded; or for any, if all have introduced themselves and none has one. Then
 * it also stands, if it has got entries of a leader: whoever lacks these cannot be elected.
 */
#include "base/probe.h"
#include "consensus/internal.h"

#define TOLD_AGAIN (60 * NSEC_PER_SEC)

static uint64_t own(const struct replica *r)
{
        return store_directory(r->store);
}

/* A replica of an older version knows nothing of directories. */
static bool is_known(const struct replica *r)
{
        return own(r) != 0 && replica_newest(r) >= CLUSTER_0_2;
}

uint64_t replica_directory(const struct replica *r, uint64_t id)
{
        for (unsigned i = 0; i < r->directories.n; i++)
                if (r->directories.id[i] == id)
                        return r->directories.of[i];
        return 0;
}

bool directories_recorded(const struct replica *r)
{
        for (unsigned i = 0; i < r->directories.n; i++)
                if (r->directories.of[i] != 0)
                        return true;
        return false;
}

bool directories_begun(const struct replica *r)
{
        const struct compacted *c = &r->compacted;
        bool restored = c->index > 0 && c->index + 1 == r->log.first && c->term == 1 &&
                        c->conf_index == c->index;

        return !r->ops->found || (r->log.first > 1 && !restored) ||
               log_find(&r->log, RAFT_COMMAND, r->log.first, log_last(&r->log)) != 0;
}

/* Whether the members are still those with which the cluster began, or was restored. */
bool directories_founding(const struct replica *r)
{
        return is_known(r) && replica_position(r, r->cfg.id) >= 0 && !directories_begun(r) &&
               !directories_recorded(r);
}

static const struct introduction *introduction_of(const struct replica *r, uint64_t id)
{
        const struct member_version *v = versions_of(r, id);

        return v ? &v->is : NULL;
}

/* Whether a member is known not to be founding. Of a member of 0.1.0 nobody can tell. */
static bool has_begun(const struct replica *r)
{
        for (unsigned i = 0; i < r->directories.n; i++) {
                const struct introduction *in = introduction_of(r, r->directories.id[i]);

                if (in && in->newest >= CLUSTER_0_2 && !in->founding)
                        return true;
        }
        return false;
}

/* A member that has not introduced itself yet; 0: there is none. */
static uint64_t unknown(const struct replica *r)
{
        for (unsigned i = 0; i < r->directories.n; i++)
                if (r->directories.id[i] != r->cfg.id &&
                    !introduction_of(r, r->directories.id[i]))
                        return r->directories.id[i];
        return 0;
}

/* Whether the cluster has begun at version 0.1, and is still there: then members are not known
 * by their directories. */
static bool none_recorded(const struct replica *r)
{
        for (unsigned i = 0; i < r->directories.n; i++) {
                const struct introduction *in = introduction_of(r, r->directories.id[i]);

                if (in && in->yours != 0)
                        return false;
        }
        return unknown(r) == 0;
}

uint64_t directories_awaits(const struct replica *r)
{
        return directories_founding(r) && !has_begun(r) ? unknown(r) : 0;
}

bool directories_may_stand(const struct replica *r)
{
        bool stands;

        if (!directories_founding(r))
                return true;
        if (!has_begun(r))
                return directories_awaits(r) == 0;
        stands = none_recorded(r) && log_last(&r->log) > 1;
        PROBE_IF(stands, "a founding replica stands for election in a cluster of version 0.1");
        return stands;
}

bool directories_may_vote(const struct replica *r, uint64_t candidate)
{
        const struct introduction *in = introduction_of(r, candidate);

        if (!directories_founding(r))
                return true;
        PROBE_IF(has_begun(r) && none_recorded(r),
                 "a founding replica votes in a cluster of version 0.1");
        if (has_begun(r))
                return (in && in->yours == own(r)) || none_recorded(r);
        return directories_awaits(r) == 0;
}

/* A directory of this member that is lost may have voted in a term that others know. So this
 * one never does. */
static void abstain(struct replica *r, uint64_t term)
{
        if (!directories_founding(r) || term <= 1 || !libraft_follows(r) ||
            term < replica_term(r) || (term == replica_term(r) && libraft_vote(r) != 0))
                return;
        PROBE("a founding replica leaves the terms that another member knows");
        libraft_abstain(r, term);
        if (store_vote(r->store, term, r->cfg.id) < 0)
                replica_fatal(r, "cannot write term and vote (meta)");
}

bool directories_differ(const struct replica *r, uint64_t peer, const struct introduction *in)
{
        uint64_t recorded = replica_directory(r, peer);

        return recorded != 0 && in->directory != recorded;
}

bool directories_refuse(const struct replica *r, uint64_t peer)
{
        const struct introduction *in = introduction_of(r, peer);

        return in && directories_differ(r, peer, in);
}

/* It is to be emptied if it holds nothing but the first members. */
void replica_refused(struct replica *r)
{
        r->directories.lost = directories_founding(r) && log_last(&r->log) == 1;
}

void directories_introduced(struct replica *r, uint64_t peer, const struct introduction *in)
{
        abstain(r, in->term);
        if (in->yours == 0 || in->yours == own(r) || !is_known(r))
                return;
        replica_refused(r);
        if (r->directories.lost || !replica_is_due(r, &r->directories.log_at, TOLD_AGAIN))
                return;
        PROBE("a replica learns that its directory is not the member's");
        log_error(
                "Member %016" PRIx64
                " knows another data directory of this member. The disk of this member was "
                "lost, replaced or restored, or a second process runs as this member. It "
                "takes no part: if the other directory still exists, start with that one; if "
                "not, have the member replaced (tenurectl core replace), and start it with an "
                "empty data directory.",
                peer);
}

/* ---- what is recorded ---- */

/* Whether the configuration may be another one than at the last call: while it is not
 * committed, a later leader may put another one at its index. */
static bool is_another_entry(struct replica *r)
{
        uint64_t index = libraft_uncommitted(r) == 0 ? libraft_committed(r, NULL) : 0,
                 before = r->directories.index;

        r->directories.index = index;
        return index == 0 || index != before;
}

static bool has_changed(const struct replica *r)
{
        const struct raft_configuration *c = replica_conf(r);

        if (c->n != r->directories.n)
                return true;
        for (unsigned i = 0; i < c->n && i < REPLICA_PEERS_MAX; i++)
                if (c->servers[i].id != r->directories.id[i] ||
                    address_directory(c->servers[i].address) != r->directories.of[i])
                        return true;
        return false;
}

static void send_introductions(struct replica *r)
{
        for (unsigned i = 0; i < r->directories.n; i++) {
                cleanup_(buf_fini) struct buf f = {0};
                struct introduction in = replica_introduction(r, r->directories.id[i]);

                if (r->directories.id[i] == r->cfg.id)
                        continue;
                introduction_append(&in, &f);
                if (buf_error(&f) == 0)
                        replica_send_frame(r, r->directories.id[i], &f);
        }
}

/* A directory with such a configuration cannot be read by 0.1.0. */
void directories_configured(struct replica *r)
{
        const struct raft_configuration *c = replica_conf(r);
        uint64_t recorded;

        if (!is_another_entry(r) || !has_changed(r))
                return;
        r->directories.n = min_of(c->n, (unsigned) REPLICA_PEERS_MAX);
        for (unsigned i = 0; i < r->directories.n; i++) {
                r->directories.id[i] = c->servers[i].id;
                r->directories.of[i] = address_directory(c->servers[i].address);
        }
        if (!directories_recorded(r))
                return;
        if (replica_newest(r) < CLUSTER_0_2)
                return replica_fatal(r, "the log names data directories, of which this version "
                                        "knows nothing; start the version that wrote it");
        if (store_raise_format(r->store, versions_format(CLUSTER_0_2)) < 0)
                return replica_fatal(r, "cannot write the format of the data directory (meta)");
        recorded = replica_directory(r, r->cfg.id);
        if (recorded != 0 && recorded != own(r)) {
                PROBE("a replica finds in its log that its directory is not the member's");
                return replica_fatal(
                        r, "this member has another data directory: the disk of this member "
                           "was lost, replaced or restored. If that directory still exists, "
                           "start with it; if not, have the member replaced (tenurectl core "
                           "replace), and start it with an empty data directory");
        }
        send_introductions(r);
}

/* Makes the members with all directories that are known. Returns 1 if there is nothing to
 * record, or something is not known that has to be. */
static int make(const struct replica *r, struct raft_configuration *out)
{
        const struct raft_configuration *c = replica_conf(r);
        bool all = !directories_recorded(r), some = false;
        int k = 0;

        raft_configuration_init(out);
        for (unsigned i = 0; i < c->n && k == 0; i++) {
                const struct introduction *in = introduction_of(r, c->servers[i].id);
                struct member_address a = address_split(c->servers[i].address);
                uint64_t is = c->servers[i].id == r->cfg.id ? own(r) : in ? in->directory : 0;
                char address[ADDRESS_MAX];

                some = some || (a.directory == 0 && is != 0);
                a.directory = a.directory != 0 ? a.directory : is;
                if (a.directory == 0 && all)
                        k = 1;
                else if (raft_configuration_add(out, c->servers[i].id,
                                                address_join(&a, address),
                                                c->servers[i].role) != 0)
                        k = -ENOMEM;
        }
        if (k == 0 && some)
                return 0;
        raft_configuration_close(out);
        return k < 0 ? k : 1;
}

/* Before anything that only a member with a recorded directory may do. */
bool directories_are_due(const struct replica *r)
{
        return is_known(r) && !directories_recorded(r) &&
               (r->versions.cluster >= CLUSTER_0_2 ||
                (r->versions.founding && r->versions.rise.to >= CLUSTER_0_2));
}

void directories_run(struct replica *r)
{
        bool lacks = false;
        struct raft_configuration c;
        int k;

        for (unsigned i = 0; i < r->directories.n; i++)
                lacks = lacks || r->directories.of[i] == 0;
        if (!lacks || !members_may_change(r) ||
            !(directories_are_due(r) || directories_recorded(r)))
                return;
        k = make(r, &c);
        if (k == 0) {
                PROBE_IF(r->versions.founding, "the directories of a new cluster are recorded");
                PROBE_IF(directories_recorded(r),
                         "the directory of a member that was added is recorded");
                k = members_submit(r, &c);
        }
        if (k == -ENOMEM)
                replica_fatal(r, "out of memory");
}
