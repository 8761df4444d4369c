#include "links.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/conf.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/probe.h"

#define LISTEN_AGAIN NSEC_PER_SEC
#define LINK_AGAIN NSEC_PER_SEC
#define ASK_AGAIN NSEC_PER_SEC
#define INTRODUCED_FOR (60 * NSEC_PER_SEC)
#define TOLD_FOR (60 * NSEC_PER_SEC)

/* The members that another member listed when we asked for our id, until our first entry is
 * applied. */
static const struct joined *told(const struct links *l)
{
        return core_status(l->core).applied == 0 ? l->joined : NULL;
}

/* The members that the configuration does not have, but whose calls we accept. */
static const struct joined *unconfigured(const struct links *l)
{
        if (boot_before(loop_now(l->loop), l->introduced_until))
                return &l->introduced;
        return told(l);
}

static bool is_unconfigured(const struct links *l, uint64_t id)
{
        const struct joined *j = unconfigured(l);

        for (size_t i = 0; j && i < j->n_members; i++)
                if (j->members[i].id == id)
                        return true;
        return false;
}

struct one {
        const struct links *links;
        uint64_t id;
        char urls[URLS_MAX]; /* of that member, once seen */
        size_t others;
        struct buf all; /* URLs of the other members */
};

static void look(uint64_t id, const char *address, bool voter, void *arg)
{
        struct one *o = arg;

        (void) voter;
        if (id == o->id)
                snprintf(o->urls, sizeof(o->urls), "%s", address);
        if (id == o->links->cfg.member_id)
                return;
        buf_printf(&o->all, "%s%s", o->others++ > 0 ? "," : "", address);
}

static bool is_member(void *userdata, uint64_t id)
{
        struct links *l = userdata;
        struct one o = {.links = l, .id = id};

        replica_each_peer(core_replica(l->core), look, &o);
        buf_fini(&o.all);
        return *o.urls || is_unconfigured(l, id);
}

static void link_to(uint64_t id, const char *address, bool voter, void *arg)
{
        struct links *l = arg;
        uint64_t cause;
        int r;

        (void) voter;
        if (id == l->cfg.member_id)
                return;
        r = peers_add(l->peers, id, address);
        if (r == 0)
                return;
        loop_timer_in(&l->link_again, LINK_AGAIN);
        cause = hash_end(hash_add(hash_add(HASH_START, &id, sizeof(id)), &r, sizeof(r)));
        if (admission_tell(&l->cfg.admission, cause, loop_now(l->loop)))
                log_error("Cannot link to member %016" PRIx64 " at %s: %s.", id, address,
                          r == -EPERM ? "the link would leave this machine in plaintext; give "
                                        "the member an https:// URL, or set "
                                        "AllowPlaintextPeers=yes"
                                      : strerror(-r));
}

/* Listens while there is another member to listen to, and for a while after the last one was
 * removed. */
static int listen_as_needed(struct links *l)
{
        struct boot_time now = loop_now(l->loop);
        const struct joined *extra = unconfigured(l);
        struct one o = {.links = l};
        char err[512] = "";
        bool others;
        int r;

        replica_each_peer(core_replica(l->core), look, &o);
        buf_fini(&o.all);
        others = o.others > 0 || (extra && extra->n_members > 1);
        if (l->had_others && !others) {
                l->open_until = boot_add(now, TOLD_FOR);
                loop_timer_in(&l->listen_again, TOLD_FOR);
        }
        PROBE_IF(!others && l->open_until.ns > 0 && !boot_before(now, l->open_until),
                 "a replica that is alone closes its port after a minute");
        l->had_others = others;
        r = peers_listen(l->peers, others || boot_before(now, l->open_until), err, sizeof(err));
        if (r < 0)
                log_error("%s.", *err ? err : strerror(-r));
        return r;
}

static void on_listen_again(struct loop_timer *t)
{
        struct links *l = container_of(t, struct links, listen_again);

        if (listen_as_needed(l) < 0)
                loop_timer_in(t, LISTEN_AGAIN);
}

static void update(struct links *l)
{
        const struct joined *extra = unconfigured(l);
        struct one o = {.links = l};

        replica_each_peer(core_replica(l->core), link_to, l);
        for (size_t i = 0; extra && i < extra->n_members; i++) {
                o.id = extra->members[i].id;
                *o.urls = '\0';
                replica_each_peer(core_replica(l->core), look, &o);
                if (!*o.urls)
                        link_to(extra->members[i].id, extra->members[i].urls, true, l);
        }
        buf_fini(&o.all);
        peers_sweep(l->peers, is_member);
}

static void on_link_again(struct loop_timer *t)
{
        update(container_of(t, struct links, link_again));
}

void links_configured(struct links *l)
{
        if (!l->peers)
                return;
        l->introduced_until = (struct boot_time){0}; /* the configuration is newer */
        update(l);
        on_listen_again(&l->listen_again);
}

/* ---- strangers ---- */

static void on_introduced(void *userdata, const struct joined *who, const char *why)
{
        struct links *l = userdata;

        if (*why) {
                log_debug("Asked a member about an unknown caller: %s.", why);
                if (who && who->cluster_id == l->cfg.cluster_id)
                        replica_refused(l->replica);
                PROBE_IF(l->refused == REPLICA_PEERS_MAX, "nobody says who a stranger is");
                if (++l->refused > REPLICA_PEERS_MAX)
                        l->asking = join_free(l->asking);
                return;
        }
        l->asking = join_free(l->asking);
        if (who->cluster_id != l->cfg.cluster_id || who->member_id != l->cfg.member_id)
                return;
        PROBE("members are introduced to a replica that asked about a stranger");
        l->introduced = *who;
        l->introduced_until = boot_add(loop_now(l->loop), INTRODUCED_FOR);
        update(l);
        on_listen_again(&l->listen_again);
}

static void ask_who(struct links *l)
{
        const struct joined *who = told(l);
        struct one o = {.links = l, .id = l->cfg.member_id};
        const char *cursor;
        char own[320];

        if (l->asking || boot_before(loop_now(l->loop), l->ask_at))
                return;
        replica_each_peer(core_replica(l->core), look, &o);
        for (size_t i = 0; who && i < who->n_members; i++)
                look(who->members[i].id, who->members[i].urls, true, &o);
        buf_add_u8(&o.all, 0);
        cursor = o.urls;
        if (o.others > 0 && buf_error(&o.all) == 0 && list_next(&cursor, own, sizeof(own))) {
                l->ask_at = boot_add(loop_now(l->loop), ASK_AGAIN);
                l->refused = 0;
                PROBE("a stranger calls, and the members are asked about it");
                (void) !join_new(
                        &l->asking, l->loop, l->resolver,
                        &(struct join_config){
                                .urls = (const char *) buf_head(&o.all),
                                .self = own,
                                .directory = replica_introduction(l->replica, 0).directory,
                                .tls = l->cfg.tls_client,
                                .admission = &l->cfg.admission},
                        on_introduced, l);
        }
        buf_fini(&o.all);
}

/* ---- callbacks of the links ---- */

static int on_frame(void *userdata, uint64_t id, struct view frame)
{
        struct links *l = userdata;

        return replica_input(l->replica, id, frame, boot_now());
}

static struct introduction introduction(void *userdata, uint64_t id)
{
        const struct links *l = userdata;

        return replica_introduction(l->replica, id);
}

static int on_introduction(void *userdata, uint64_t id, const struct introduction *in)
{
        struct links *l = userdata;

        return replica_peer_introduced(l->replica, id, in, boot_now());
}

static void on_up(void *userdata, uint64_t id)
{
        struct links *l = userdata;

        replica_peer_up(l->replica, id, boot_now());
}

static void on_called(void *userdata, uint64_t id)
{
        struct links *l = userdata;

        replica_peer_called(l->replica, id, boot_now());
}

static void on_down(void *userdata, uint64_t id)
{
        struct links *l = userdata;

        replica_peer_down(l->replica, id, boot_now());
}

static uint64_t on_strange(void *userdata, uint64_t id)
{
        struct links *l = userdata;

        ask_who(l);
        return replica_excludes(l->replica, id);
}

static const char *name_of(const struct links *l, uint64_t id)
{
        const struct member *m = state_member(core_state(l->core), id);

        return m ? m->name : "";
}

struct asking {
        const char *url;
        struct joined *ret;
};

static void tell_member(uint64_t id, const char *address, bool voter, void *arg)
{
        struct asking *a = arg;
        size_t i = a->ret->n_members;

        (void) voter;
        if (i == REPLICA_PEERS_MAX || strlen(address) >= sizeof(a->ret->members[i].urls))
                return;
        a->ret->members[i].id = id;
        strcpy(a->ret->members[i].urls, address);
        a->ret->n_members++;
        if (urls_meet(address, a->url))
                a->ret->member_id = id;
}

static void tell_who(void *userdata, const char *url, uint64_t directory, struct joined *ret)
{
        struct links *l = userdata;
        uint64_t recorded;
        char id[24];

        replica_each_peer(core_replica(l->core), tell_member,
                          &(struct asking){.url = url, .ret = ret});
        recorded = replica_directory(l->replica, ret->member_id);
        if (recorded != 0 && recorded != directory) {
                PROBE("who joins would be a member that has another directory");
                snprintf(id, sizeof(id), "%016" PRIx64, ret->member_id);
                replica_member_lost(l->replica, ret->member_id);
                if (admission_tell(&l->cfg.admission,
                                   hash_end(hash_add(HASH_START, &recorded, sizeof(recorded))),
                                   loop_now(l->loop)))
                        log_warning("A replica at %s has an empty data directory, but member "
                                    "%s there has another one. If that is lost: tenurectl core "
                                    "replace %s.",
                                    url, id,
                                    *name_of(l, ret->member_id) ? name_of(l, ret->member_id)
                                                                : id);
                ret->member_id = 0;
        }
}

/* ---- a member whose disk is lost ---- */

static const char *text_of(int outcome)
{
        switch (outcome) {
        case 0:
                return "it is replaced";
        case REPLICA_E_ALIVE:
                return "the member answers the leader, with the directory that it has";
        case REPLICA_E_EARLY:
                return "it was replaced less than ten minutes ago";
        case REPLICA_E_NOT_LET:
                return "ReplaceLostDisk= is off at the leader; an operator may do it "
                       "(tenurectl core replace)";
        case REPLICA_E_UNHEALTHY:
                return "too few of the other members answer the leader";
        case REPLICA_E_TOO_MANY:
                return "there is a learner, which has to become a voter first, or be removed";
        case REPLICA_E_UNKNOWN:
        case REPLICA_E_UNCLAIMED:
                return "it is being replaced already";
        default:
                return "there is no leader that could do so now";
        }
}

static void on_replaced(struct core_change *ch, int outcome)
{
        struct links *l = container_of(ch, struct links, replacement);

        l->replacement.done = NULL;
        l->replacement_outcome = outcome;
        if (outcome != 0 &&
            admission_tell(&l->cfg.admission,
                           hash_end(hash_add(HASH_START, &outcome, sizeof(outcome))),
                           loop_now(l->loop)))
                log_warning(
                        "Member %016" PRIx64
                        " at %s, whose disk is lost, asked to be replaced, but was not: %s.",
                        l->replaced, ch->address, text_of(outcome));
}

struct lost {
        const char *urls;
        uint64_t id; /* of the member there; 0: there is none */
};

static void look_for_lost(uint64_t id, const char *address, bool voter, void *arg)
{
        struct lost *lost = arg;

        (void) voter;
        if (strcmp(address, lost->urls) == 0)
                lost->id = id;
}

/* Why nobody is asked to replace the member; NULL: the leader is asked. */
static const char *keeps(const struct links *l, uint64_t id, const char *name)
{
        struct introduction in;
        bool linked = false;

        if (!replica_replaces_lost(l->replica))
                return "ReplaceLostDisk= is off at that member; an operator may do it "
                       "(tenurectl core replace)";
        if (id == 0)
                return "no member has exactly these URLs";
        if (*name_of(l, id) && strcmp(name_of(l, id), name) != 0)
                return "the member with these URLs has another name";
        if (replica_directory(l->replica, id) == 0)
                return "no directory is recorded for the member yet, so it can start with an "
                       "empty one";
        (void) replica_member_version(l->replica, id, &in, &linked);
        if (linked || id == l->cfg.member_id) {
                PROBE("who asks to be replaced runs elsewhere");
                return "another process runs as this member, with the directory that it has";
        }
        return NULL;
}

static void on_replace(void *userdata, const char *urls, const char *name,
                       char out[static PEERS_CLAUSE])
{
        struct links *l = userdata;
        struct lost lost = {.urls = urls};
        const char *kept, *why;

        replica_each_peer(core_replica(l->core), look_for_lost, &lost);
        why = kept = keeps(l, lost.id, name);
        if (!why && l->replacement.done)
                why = "it is being replaced";
        if (!why && lost.id == l->replaced && l->replacement_outcome != 0)
                why = text_of(l->replacement_outcome);
        snprintf(out, PEERS_CLAUSE, "%s", why ? why : "the leader is asked to do so");
        if (l->replacement.done || kept)
                return;
        l->replaced = lost.id;
        l->replacement = (struct core_change){.done = on_replaced,
                                              .what = REPLICA_REPLACE_LOST,
                                              .id = core_new_member_id(l->core)};
        snprintf(l->replacement.address, sizeof(l->replacement.address), "%s", urls);
        if (core_change_members(l->core, &l->replacement, 0) < 0)
                l->replacement.done = NULL;
        else if (admission_tell(&l->cfg.admission,
                                hash_end(hash_add(HASH_START, urls, strlen(urls))),
                                loop_now(l->loop)))
                log_notice("Member %016" PRIx64 " at %s has lost its disk, and asks to be "
                           "replaced; asking the leader.",
                           lost.id, urls);
}

static const struct peers_ops ops = {.introduction = introduction,
                                     .introduced = on_introduction,
                                     .frame = on_frame,
                                     .up = on_up,
                                     .called = on_called,
                                     .down = on_down,
                                     .strange = on_strange,
                                     .who = tell_who,
                                     .replace = on_replace};

int links_start(struct links *l, struct loop *loop, struct resolver *rv, struct core *core,
                struct replica *r, const struct joined *joined, const struct peers_config *cfg)
{
        int k;

        l->loop = loop;
        l->resolver = rv;
        l->core = core;
        l->replica = r;
        l->joined = joined;
        l->cfg = *cfg;
        loop_timer_init(&l->listen_again, loop, on_listen_again);
        loop_timer_init(&l->link_again, loop, on_link_again);
        k = peers_new(&l->peers, loop, rv, &l->cfg, &ops, l);
        if (k == 0)
                k = listen_as_needed(l);
        if (k == 0)
                update(l);
        return k;
}

void links_send(struct links *l, uint64_t peer, struct view frame)
{
        if (l->peers)
                peers_send(l->peers, peer, frame);
}

bool links_are_up(const struct links *l, uint64_t peer)
{
        return l->peers && peers_linked(l->peers, peer);
}

size_t links_room(const struct links *l, uint64_t peer)
{
        return l->peers ? peers_room(l->peers, peer) : 0;
}

struct core_link links_look(const struct links *l, uint64_t peer)
{
        struct peers_losses lost;

        if (!l->peers)
                return (struct core_link){0};
        lost = peers_losses(l->peers, peer);
        return (struct core_link){
                .up = peers_linked(l->peers, peer),
                .downs = lost.downs,
                .unsent = lost.unsent,
        };
}

void links_stop(struct links *l)
{
        if (!l->peers)
                return;
        l->asking = join_free(l->asking);
        loop_timer_disarm(&l->listen_again);
        loop_timer_disarm(&l->link_again);
        peers_stop(l->peers);
}

void links_fini(struct links *l)
{
        links_stop(l);
        l->peers = peers_free(l->peers);
}
