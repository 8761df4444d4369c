/*
 * Visitors: two clients that ask for what operators and monitoring ask for, at any replica:
 * status, hashes, lists of leases, alarms, compactions, snapshots, another leader; and that
 * stand for elections of their own, in which nobody else stands.
 *
 * At equal revisions, equally compacted, the hashes of all replicas are equal (I4). A lease
 * that certainly lives is listed, and one that was revoked is not. What was compacted cannot be
 * read. A leader that was proclaimed, and has not resigned, is found with what it said last.
 * When leadership is said to have moved, nobody else leads in that term.
 */
#include <inttypes.h>
#include <stdio.h>

#include "asker.h"

#define N_VISITORS 2
#define TTL_MS 4000
#define BLUR (20 * MSEC) /* a fast clock, over a TTL */
#define HASHES_MAX 8192
#define FIRST_ID 5000                     /* of leases whose ids they choose */
#define SNAPSHOT_LASTS (4 * NSEC_PER_SEC) /* by then it asks another replica */

enum wish {
        GRANT,
        REVOKE,
        LEASES,
        LOOK,
        STATUS,
        HASH,
        HASH_KV,
        ALARMS,
        DEFRAGMENT,
        COMPACT,
        READ_BEHIND,
        STREAM,
        SNAPSHOT,
        MOVE,
        HEALTH,
        DOWNGRADE,
        FINISH,
        CAMPAIGN,
        PROCLAIM,
        LEADER,
        RESIGN,
        N_WISHES
};

static struct visitor {
        struct asker asker;
        enum wish wish;
        int64_t lease;
        nsec_t lives_until;       /* at least */
        bool spoilt;              /* a lease of its id may be granted, or end, late */
        bool revoking, revoked;   /* somebody was asked for its end; that was answered */
        int64_t revision;         /* the last one that it has seen */
        int64_t compacting;       /* what it has asked for */
        unsigned campaign, words; /* their numbers */
        bool leads, sure;         /* it has won; and knows what it has said last */
        int64_t created;
        char key[64];
        uint64_t heir; /* who was to lead */
} visitors[N_VISITORS];

/* What was compacted, as some visitor was told. */
static int64_t compacted;

static struct {
        int64_t revision, compacted;
        uint32_t hash;
        unsigned by;
} hashes[HASHES_MAX];
static size_t n_hashes;

static struct visitor *visitor_of(struct asker *a)
{
        return container_of(a, struct visitor, asker);
}

static void forget_lease(struct visitor *v)
{
        v->lease = 0;
        v->lives_until = 0;
        v->revoking = v->revoked = v->leads = false;
}

/* ---- requests ---- */

static enum wish choose(const struct visitor *v)
{
        enum wish wish = (enum wish) rnd_between(&W->rnd, 0, N_WISHES - 1);

        if (v->lease == 0 || v->revoked || v->lives_until < W->now + TTL_MS * MSEC / 4)
                wish = wish < STATUS ? (v->revoked ? LEASES : GRANT) : wish;
        if (v->revoked && wish == LEASES && chance(W, 50))
                wish = GRANT;
        if (wish == CAMPAIGN && (v->lease == 0 || v->revoking))
                wish = GRANT;
        if ((wish == PROCLAIM || wish == LEADER || wish == RESIGN) && !v->leads)
                wish = v->lease == 0 || v->revoking ? HASH_KV : CAMPAIGN;
        if (wish == GRANT && v->lease != 0 && !v->revoked && v->lives_until > W->now)
                wish = LEASES;
        if (wish == READ_BEHIND && compacted < 3)
                wish = HASH_KV;
        return wish;
}

static ProtobufCBinaryData text(const char *s)
{
        return pb_bytes(s, strlen(s));
}

static void ask_for_hash(struct visitor *v)
{
        Pb__HashKVRequest q = PB__HASH_KVREQUEST__INIT;

        /* Mostly what another replica was asked for. */
        if (n_hashes > 0 && chance(W, 70))
                q.revision = hashes[n_hashes - 1].revision;
        else if (chance(W, 30))
                q.revision = max_of(v->revision - (int64_t) rnd_between(&W->rnd, 0, 100),
                                    INT64_C(1));
        asker_ask(&v->asker, "/etcdserverpb.Maintenance/HashKV", &q.base);
}

static void ask_in_election(struct visitor *v)
{
        Pb__CampaignRequest campaign = PB__CAMPAIGN_REQUEST__INIT;
        Pb__ProclaimRequest proclaim = PB__PROCLAIM_REQUEST__INIT;
        Pb__LeaderRequest leader = PB__LEADER_REQUEST__INIT;
        Pb__ResignRequest resign = PB__RESIGN_REQUEST__INIT;
        Pb__LeaderKey key = PB__LEADER_KEY__INIT;
        char name[32], word[16];

        if (v->wish == CAMPAIGN)
                v->campaign++;
        snprintf(name, sizeof(name), "visit/%u/%u", v->asker.i, v->campaign);
        if (v->wish == CAMPAIGN || v->wish == PROCLAIM)
                v->words++;
        snprintf(word, sizeof(word), "%u", v->words);
        key.name = campaign.name = leader.name = text(name);
        key.key = text(v->key);
        key.lease = campaign.lease = v->lease;
        key.rev = v->created;
        campaign.value = proclaim.value = text(word);
        proclaim.leader = resign.leader = &key;
        switch (v->wish) {
        case CAMPAIGN:
                v->leads = false;
                return asker_ask(&v->asker, "/v3electionpb.Election/Campaign", &campaign.base);
        case PROCLAIM:
                v->sure = false;
                return asker_ask(&v->asker, "/v3electionpb.Election/Proclaim", &proclaim.base);
        case LEADER:
                return asker_ask(&v->asker, "/v3electionpb.Election/Leader", &leader.base);
        default:
                v->leads = false;
                return asker_ask(&v->asker, "/v3electionpb.Election/Resign", &resign.base);
        }
}

static void ask_for_lease(struct visitor *v)
{
        Pb__LeaseGrantRequest grant = PB__LEASE_GRANT_REQUEST__INIT;
        Pb__LeaseRevokeRequest revoke = PB__LEASE_REVOKE_REQUEST__INIT;
        Pb__LeaseLeasesRequest leases = PB__LEASE_LEASES_REQUEST__INIT;
        Pb__LeaseTimeToLiveRequest look = PB__LEASE_TIME_TO_LIVE_REQUEST__INIT;

        switch (v->wish) {
        case GRANT:
                forget_lease(v);
                grant.ttl_ms = TTL_MS;
                if (!v->spoilt && chance(W, 50))
                        grant.id = FIRST_ID + v->asker.i;
                return asker_ask(&v->asker, "/etcdserverpb.Lease/LeaseGrant", &grant.base);
        case REVOKE:
                v->revoking = true;
                v->leads = false;
                revoke.id = v->lease;
                return asker_ask(&v->asker, "/etcdserverpb.Lease/LeaseRevoke", &revoke.base);
        case LEASES:
                return asker_ask(&v->asker, "/etcdserverpb.Lease/LeaseLeases", &leases.base);
        default:
                look.id = v->lease;
                look.keys = true;
                return asker_ask(&v->asker, "/etcdserverpb.Lease/LeaseTimeToLive", &look.base);
        }
}

static void ask_to_compact(struct visitor *v)
{
        Pb__CompactionRequest q = PB__COMPACTION_REQUEST__INIT;

        v->compacting = 1;
        for (unsigned i = 0; i < N_VISITORS; i++)
                v->compacting = max_of(v->compacting, visitors[i].revision);
        if (chance(W, 50))
                v->compacting -= (int64_t) rnd_between(&W->rnd, 0, 60);
        v->compacting = max_of(v->compacting, INT64_C(1));
        q.revision = v->compacting;
        asker_ask(&v->asker, "/etcdserverpb.KV/Compact", &q.base);
        v->asker.waits.bound = 3 * PROMPT_MAJORITY; /* it may take several steps */
}

static void ask_for_keys(struct visitor *v)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        uint8_t all[1] = {0};

        q.key = q.range_end = pb_bytes(all, 1);
        if (v->wish == STREAM)
                return asker_ask(&v->asker, "/etcdserverpb.KV/RangeStream", &q.base);
        q.revision = compacted - 1;
        asker_ask(&v->asker, "/etcdserverpb.KV/Range", &q.base);
}

static void ask_for(struct visitor *v)
{
        Pb__StatusRequest status = PB__STATUS_REQUEST__INIT;
        Pb__HashRequest hash = PB__HASH_REQUEST__INIT;
        Pb__AlarmRequest alarm = PB__ALARM_REQUEST__INIT;
        Pb__DefragmentRequest defragment = PB__DEFRAGMENT_REQUEST__INIT;
        Pb__SnapshotRequest snapshot = PB__SNAPSHOT_REQUEST__INIT;
        Pb__MoveLeaderRequest move = PB__MOVE_LEADER_REQUEST__INIT;
        Pb__HealthCheckRequest health = PB__HEALTH_CHECK_REQUEST__INIT;
        Pb__DowngradeRequest downgrade = PB__DOWNGRADE_REQUEST__INIT;
        Pb__FinishUpgradeRequest finish = PB__FINISH_UPGRADE_REQUEST__INIT;
        struct asker *a = &v->asker;

        switch (v->wish) {
        case GRANT:
        case REVOKE:
        case LEASES:
        case LOOK:
                return ask_for_lease(v);
        case STATUS:
                return asker_ask(a, "/etcdserverpb.Maintenance/Status", &status.base);
        case HASH:
                return asker_ask(a, "/etcdserverpb.Maintenance/Hash", &hash.base);
        case HASH_KV:
                return ask_for_hash(v);
        case ALARMS:
                return asker_ask(a, "/etcdserverpb.Maintenance/Alarm", &alarm.base);
        case DEFRAGMENT:
                asker_ask(a, "/etcdserverpb.Maintenance/Defragment", &defragment.base);
                a->waits.bound = SNAPSHOT_LASTS;
                return;
        case COMPACT:
                return ask_to_compact(v);
        case READ_BEHIND:
        case STREAM:
                return ask_for_keys(v);
        case SNAPSHOT:
                return asker_ask(a, "/etcdserverpb.Maintenance/Snapshot", &snapshot.base);
        case MOVE:
                v->heir = move.targetid = W->r[rnd_between(&W->rnd, 1, W->n_replicas) - 1].id;
                return asker_ask(a, "/etcdserverpb.Maintenance/MoveLeader", &move.base);
        case HEALTH:
                return asker_ask(a, "/grpc.health.v1.Health/Check", &health.base);
        case DOWNGRADE:
                return asker_ask(a, "/etcdserverpb.Maintenance/Downgrade", &downgrade.base);
        case FINISH:
                return asker_ask(a, "/tenurepb.Maintenance/FinishUpgrade", &finish.base);
        default:
                return ask_in_election(v);
        }
}

/* What writes to the disk; and what has to do with all keys, where there are many. */
static bool is_long(enum wish w)
{
        return w == DEFRAGMENT || (W->hoard > 0 && (w == HASH || w == HASH_KV || w == COMPACT ||
                                                    w == STREAM || w == SNAPSHOT));
}

static void act(struct asker *a)
{
        struct visitor *v = visitor_of(a);

        v->wish = choose(v);
        ask_for(v);
        a->waits.lasts = is_long(v->wish);
}

/* ---- answers ---- */

static void on_hash(struct visitor *v, struct view m)
{
        Pb__HashKVResponse *p = pb__hash_kvresponse__unpack(NULL, m.len, m.p);

        v->revision = max_of(v->revision, p->header->revision);
        for (size_t i = 0; i < n_hashes; i++)
                if (hashes[i].revision == p->hash_revision &&
                    hashes[i].compacted == p->compact_revision && hashes[i].hash != p->hash)
                        fail(W,
                             "I4: at revision %" PRId64 ", compacted to %" PRId64
                             ", the hash of replica %u is %08" PRIx32
                             ", and that of replica %u %08" PRIx32,
                             p->hash_revision, p->compact_revision, v->asker.link.to + 1,
                             p->hash, hashes[i].by + 1, hashes[i].hash);
        if (n_hashes == HASHES_MAX)
                fail_full(W, "hashes");
        else
                hashes[n_hashes++] = (typeof(hashes[0])){p->hash_revision, p->compact_revision,
                                                         p->hash, v->asker.link.to};
        W->counts.hashes++;
        pb_free(p);
}

static void on_leases(struct visitor *v, struct view m)
{
        Pb__LeaseLeasesResponse *p = pb__lease_leases_response__unpack(NULL, m.len, m.p);
        bool there = false;

        for (size_t i = 0; i < p->n_leases; i++)
                there = there || p->leases[i]->id == v->lease;
        if (!there && v->lease != 0 && !v->revoking && v->lives_until > W->now)
                fail(W, "leases: %" PRIx64 " lives until %.3f s at least, and is not listed",
                     v->lease, (double) v->lives_until / 1e9);
        if (there && v->revoked)
                fail(W, "leases: %" PRIx64 " was revoked, and is listed", v->lease);
        pb_free(p);
}

static void on_look(struct visitor *v, struct view m)
{
        Pb__LeaseTimeToLiveResponse *p =
                pb__lease_time_to_live_response__unpack(NULL, m.len, m.p);

        if (p->ttl < 0 && v->lease != 0 && !v->revoking && v->lives_until > W->now)
                fail(W, "leases: %" PRIx64 " lives until %.3f s at least, and is not found",
                     v->lease, (double) v->lives_until / 1e9);
        if (p->ttl >= 0 && v->revoked)
                fail(W, "leases: %" PRIx64 " was revoked, and is found", v->lease);
        pb_free(p);
}

static void on_granted(struct visitor *v, struct view m)
{
        Pb__LeaseGrantResponse *p = pb__lease_grant_response__unpack(NULL, m.len, m.p);

        v->lease = p->id;
        v->lives_until = v->asker.asked_at + TTL_MS * MSEC - BLUR;
        pb_free(p);
}

static void on_status(struct visitor *v, struct view m)
{
        Pb__StatusResponse *p = pb__status_response__unpack(NULL, m.len, m.p);

        if (p->header->member_id != W->r[v->asker.link.to].id)
                fail(W, "status: replica %u says that it is member %" PRIx64,
                     v->asker.link.to + 1, p->header->member_id);
        v->revision = max_of(v->revision, p->header->revision);
        pb_free(p);
}

static void on_campaign(struct visitor *v, struct view m)
{
        Pb__CampaignResponse *p = pb__campaign_response__unpack(NULL, m.len, m.p);

        v->leads = v->sure = true;
        v->created = p->leader->rev;
        snprintf(v->key, sizeof(v->key), "%.*s", (int) p->leader->key.len,
                 (const char *) p->leader->key.data);
        pb_free(p);
}

static void on_leader(struct visitor *v, struct view m)
{
        Pb__LeaderResponse *p = pb__leader_response__unpack(NULL, m.len, m.p);
        char word[16];

        snprintf(word, sizeof(word), "%u", v->words);
        if (v->sure && v->leads && v->lives_until > W->now && !v->revoking &&
            (!p->kv || p->kv->value.len != strlen(word) ||
             memcmp(p->kv->value.data, word, p->kv->value.len) != 0))
                fail(W, "elections of clients: visitor %u said %s, and that is not found",
                     v->asker.i, word);
        pb_free(p);
}

static void on_moved(struct visitor *v, struct view m)
{
        Pb__MoveLeaderResponse *p = pb__move_leader_response__unpack(NULL, m.len, m.p);

        for (unsigned i = 0; i < W->n_replicas; i++) {
                struct replica_status s = {0};

                if (W->r[i].up)
                        s = core_status(W->r[i].node.core);
                if (s.leader && s.term == p->header->raft_term && W->r[i].id != v->heir)
                        fail(W,
                             "leader: it is said to be %" PRIu64 " in term %" PRIu64
                             ", and is %u",
                             v->heir, s.term, i + 1);
        }
        pb_free(p);
}

static void on_done(struct visitor *v, struct view m)
{
        switch (v->wish) {
        case GRANT:
                return on_granted(v, m);
        case REVOKE:
                v->revoked = true;
                return;
        case LEASES:
                return on_leases(v, m);
        case LOOK:
                return on_look(v, m);
        case STATUS:
                return on_status(v, m);
        case HASH_KV:
                return on_hash(v, m);
        case COMPACT:
                compacted = max_of(compacted, v->compacting);
                return;
        case READ_BEHIND:
                return fail(W, "compacted: revision %" PRId64 " was compacted, and is read",
                            compacted - 1);
        case MOVE:
                return on_moved(v, m);
        case CAMPAIGN:
                return on_campaign(v, m);
        case PROCLAIM:
                v->sure = true;
                return;
        case LEADER:
                return on_leader(v, m);
        default:
                return;
        }
}

static void answered(struct asker *a, enum rpc_code code, struct view m, bool lost)
{
        struct visitor *v = visitor_of(a);

        a->act_at = W->now + some_time(W, 0, 200 * MSEC);
        v->spoilt = v->spoilt || ((v->wish == GRANT || v->wish == REVOKE) && code != RPC_OK &&
                                  code != RPC_FAILED_PRECONDITION && code != RPC_NOT_FOUND);
        if (code == RPC_OK && !lost)
                on_done(v, m);
}

static const struct asker_ops ops = {.act = act, .answered = answered};

void visitors_begin(struct world *w)
{
        n_hashes = 0;
        compacted = 0;
        for (unsigned i = 0; w->visited && i < N_VISITORS; i++) {
                visitors[i] = (struct visitor){.revision = 1};
                asker_begin(&visitors[i].asker, i, &ops);
        }
}
