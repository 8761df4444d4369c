/*
 * Which versions the members have, and the cluster version that is in force.
 *
 * Each replica hears from each other one, at the start of a link, how far its program can go.
 * Once the cluster version is above that, the member is refused: it takes no part until it is
 * upgraded.
 */
#include "base/probe.h"
#include "consensus/internal.h"

#define AWAITS_AGAIN (60 * NSEC_PER_SEC)
/* A process that lives calls again so soon after its link has ended. */
#define CALLS_AGAIN NSEC_PER_SEC

struct member_version *versions_of(const struct replica *r, uint64_t id)
{
        struct member_version *v = (struct member_version *) (uintptr_t) r->versions.of;

        for (size_t i = 0; id != 0 && i < ARRAY_SIZE(r->versions.of); i++)
                if (v[i].id == id)
                        return &v[i];
        return NULL;
}

static bool is_too_old(const struct replica *r, const struct introduction *in)
{
        return in->newest < r->versions.cluster ||
               (in->newest < CLUSTER_0_2 && directories_recorded(r));
}

/* Returns 0, -EPROTONOSUPPORT or -EKEYREJECTED, as replica_peer_introduced() does. */
static int judge(const struct replica *r, uint64_t peer, const struct introduction *in)
{
        if (is_too_old(r, in))
                return -EPROTONOSUPPORT;
        return directories_differ(r, peer, in) ? -EKEYREJECTED : 0;
}

int versions_refuse(const struct replica *r, uint64_t peer)
{
        const struct member_version *v = versions_of(r, peer);

        return v ? judge(r, peer, &v->is) : 0;
}

/* A leader hears from each member that lives, many times a second. */
static bool is_silent(struct replica *r, uint64_t id)
{
        return replica_leads(r) && boot_diff(r->now, r->led_at) >= CALLS_AGAIN &&
               !members_heard_lately(r, id);
}

/* Two processes may have one directory, if it was copied, or two hosts reach it. The first one
 * keeps its place while it lives. That its link stands proves nothing, since its host may have
 * lost its power: so both links end, and it has to call again. Returns 0, -EBUSY or
 * -EADDRINUSE, as replica_peer_introduced() does. */
static int take_turn(struct replica *r, struct member_version *v, const struct introduction *in)
{
        bool has_to_call = v->rival.process != 0 && !v->rival.outlived;

        if (in->process == 0 || v->is.process == 0 || in->directory == 0 ||
            in->directory != v->is.directory)
                return 0;
        if (in->process == v->is.process) {
                v->rival.outlived = true;
                return 0;
        }
        if ((!v->linked && !has_to_call) || is_silent(r, v->id))
                return 0;
        if (in->process == v->rival.process && v->rival.outlived) {
                PROBE("a second process with a member's directory is told to stop");
                return -EADDRINUSE;
        }
        if (v->rival.process == 0 || v->rival.outlived) {
                v->rival = (struct rival){.process = in->process, .since = r->now};
                return -EBUSY;
        }
        PROBE_IF(boot_diff(r->now, v->rival.since) >= CALLS_AGAIN,
                 "a process takes the place of one that does not call any more");
        return boot_diff(r->now, v->rival.since) >= CALLS_AGAIN ? 0 : -EBUSY;
}

/* What is refused is noted only if no link of the member's own stands: it says why the member
 * takes no part. */
int replica_peer_introduced(struct replica *r, uint64_t peer, const struct introduction *in,
                            struct boot_time now)
{
        struct member_version *had = versions_of(r, peer);
        int k;

        r->now = boot_max(r->now, now);
        if (in->term > frames_term_max(r))
                return -EBADMSG;
        k = had ? take_turn(r, had, in) : 0;
        if (k < 0)
                return k;
        if (r->versions.lost == peer)
                r->versions.lost = 0;
        k = judge(r, peer, in);
        PROBE_IF(k == -EPROTONOSUPPORT,
                 "a member that is too old for the cluster version calls");
        PROBE_IF(k == -EKEYREJECTED, "a member calls that has another directory");
        if (k < 0 && had && had->linked && judge(r, peer, &had->is) == 0) {
                PROBE("who is refused calls as a member that has a link");
        } else {
                /* A joining replica does not know the members yet. */
                *REPLICA_SLOT(r, r->versions.of, peer) = (struct member_version){
                        .id = peer,
                        .is = *in,
                        .linked = k == 0,
                        .rival = had && had->is.process == in->process ? had->rival
                                                                       : (struct rival){0}};
                versions_members_changed(r);
        }
        directories_introduced(r, peer, in);
        return k;
}

void replica_member_lost(struct replica *r, uint64_t id)
{
        const struct member_version *v = versions_of(r, id);

        if (!v || !v->linked)
                r->versions.lost = id;
}

void versions_link_down(struct replica *r, uint64_t peer)
{
        struct member_version *v = versions_of(r, peer);

        if (v)
                v->linked = false;
}

struct introduction replica_introduction(const struct replica *r, uint64_t peer)
{
        return (struct introduction){
                .newest = replica_newest(r),
                .directory = store_directory(r->store),
                .yours = replica_directory(r, peer),
                .term = replica_term(r),
                .founding = directories_founding(r),
                .process = r->cfg.seed,
                .program = TENURE_VERSION,
        };
}

bool replica_member_version(const struct replica *r, uint64_t id, struct introduction *ret,
                            bool *ret_linked)
{
        const struct member_version *v = versions_of(r, id);

        if (id == r->cfg.id)
                *ret = replica_introduction(r, id);
        else if (v)
                *ret = v->is;
        *ret_linked = id == r->cfg.id || (v && v->linked);
        return id == r->cfg.id || v;
}

static struct replica_rise rise_now(const struct replica *r)
{
        struct replica_rise rise = {.to = UINT32_MAX, .since = r->now};

        for (unsigned i = 0; i < replica_conf(r)->n; i++) {
                struct introduction in = {0};
                bool linked;

                (void) replica_member_version(r, replica_conf(r)->servers[i].id, &in, &linked);
                if (in.newest >= rise.to)
                        continue;
                rise.to = in.newest;
                rise.member = replica_conf(r)->servers[i].id;
        }
        return rise;
}

/* A member that is away for a while, or has another link, is still able to what it was. */
void versions_members_changed(struct replica *r)
{
        struct replica_rise rise = rise_now(r);

        if (rise.to == r->versions.rise.to)
                rise.since = r->versions.rise.since;
        r->versions.rise = rise;
}

struct replica_rise replica_rise(const struct replica *r)
{
        return r->versions.rise;
}

int replica_raise(struct replica *r, const void *commands, size_t n, uint64_t *ret_member)
{
        for (unsigned i = 0; i < replica_conf(r)->n && !r->versions.founding; i++) {
                uint64_t id = replica_conf(r)->servers[i].id;
                struct introduction in;
                bool linked;

                (void) replica_member_version(r, id, &in, &linked);
                if (linked && members_answers(r, id))
                        continue;
                PROBE("the cluster version cannot rise because a member does not answer");
                *ret_member = id;
                return -EHOSTUNREACH;
        }
        return queue_append(r, commands, n);
}

void versions_lead(struct replica *r)
{
        r->versions.founding =
                directories_founding(r) || (r->log.first == 1 && !directories_begun(r));
}

uint64_t versions_awaits(const struct replica *r)
{
        return r->versions.founding && r->versions.rise.to == 0 ? r->versions.rise.member : 0;
}

bool versions_found(struct replica *r)
{
        uint64_t awaited = versions_awaits(r);

        if (!replica_is_current(r))
                return false;
        PROBE_IF(awaited != 0, "a new cluster waits for a member");
        if (awaited == 0 && !directories_are_due(r) && libraft_uncommitted(r) == 0 &&
            r->ops->found(r->userdata))
                r->versions.founding = false;
        return !r->versions.founding;
}

void versions_tell_awaited(struct replica *r)
{
        uint64_t id = replica_status(r).awaits;
        int at = replica_position(r, id);
        char urls[URLS_MAX];

        if (at < 0 || !replica_is_due(r, &r->versions.awaits_log_at, AWAITS_AGAIN))
                return;
        log_notice("The new cluster waits for member %016" PRIx64
                   " at %s: it begins when each of its members has started. If it is not "
                   "new, the disk of this member was lost, and it waits for a member that "
                   "has data.",
                   id, address_urls(replica_conf(r)->servers[at].address, urls));
}

unsigned versions_format(uint32_t version)
{
        static const unsigned formats[] = {
                [0] = STORE_FORMAT, [CLUSTER_0_1] = 1, [CLUSTER_0_2] = 2};

        return formats[min_of(version, (uint32_t) CLUSTER_NEWEST)];
}

void replica_set_version(struct replica *r, uint32_t version)
{
        if (r->versions.cluster > 0 && version > r->versions.cluster)
                log_notice("The cluster version is %s now.", cluster_version_name(version));
        r->versions.cluster = version;
        if (store_raise_format(r->store, versions_format(version)) < 0)
                replica_fatal(r, "cannot write the format of the data directory (meta)");
}
