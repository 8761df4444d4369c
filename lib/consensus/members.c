/*
 * Membership of the cluster: one change at a time (Raft thesis, section 4.1), made by the
 * leader on request of any replica, and answered once it cannot be lost. A change after which
 * too few members may answer is refused, by etcd's rules.
 *
 * A learner is what libraft calls a standby: it gets the log but does not vote. Once data
 * directories are recorded, a member that is added as a voter is a learner to raft, too, until
 * its directory is recorded and it has caught up: then the leader makes it a voter.
 *
 * A removed member is notified by the first member that hears from it, since raft does not do
 * so.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/probe.h"
#include "base/url.h"
#include "consensus/internal.h"

/* A learner is in sync when it lacks no more entries than this, nor a tenth of the log. */
#define BEHIND_MAX 64

/* One report is not enough: a late answer may say what was true before a later one. */
#define LACKS_SURE 20
#define LACKS_AGAIN (60 * NSEC_PER_SEC)
#define DISOWNED_FOR (60 * NSEC_PER_SEC)

/* A member counts as healthy after it has answered for a while: as in etcd, 5 s with an
 * election timeout of 500 ms. */
static nsec_t health_interval(const struct replica *r)
{
        return 10 * r->cfg.election;
}

static struct health *health_of(struct replica *r, uint64_t peer)
{
        for (size_t i = 0; i < ARRAY_SIZE(r->health); i++)
                if (r->health[i].id == peer)
                        return &r->health[i];
        return NULL;
}

void members_heard(struct replica *r, uint64_t peer)
{
        struct health *h = health_of(r, peer);

        if (!h && replica_position(r, peer) < 0)
                return;
        if (!h) {
                h = REPLICA_SLOT(r, r->health, peer);
                *h = (struct health){.id = peer, .since = r->now};
                /* This replica has just started and cannot know how long the member has been
                 * connected. */
                if (boot_diff(r->now, r->born_at) < health_interval(r))
                        h->since = (struct boot_time){0};
        } else if (h->broken || (replica_leads(r) && boot_before(r->led_at, h->heard) &&
                                 boot_diff(r->now, h->heard) > r->cfg.election)) {
                h->since = r->now; /* followers do not hear from each other for long periods */
        }
        h->broken = false;
        h->heard = r->now;
}

void members_broke(struct replica *r, uint64_t peer)
{
        struct health *h = health_of(r, peer);

        if (h)
                h->broken = true;
}

/* What a former term has shown of the members' logs does not count: they may have got entries
 * of another leader since then, and raft begins anew, too. */
void members_lead(struct replica *r)
{
        for (size_t i = 0; i < ARRAY_SIZE(r->health); i++) {
                r->health[i].n_lacks = 0;
                r->health[i].installs = 0;
        }
}

void members_restores(struct replica *r, uint64_t peer, raft_index index)
{
        struct health *h = health_of(r, peer);

        if (h)
                h->installs = index;
}

/* raft assumes that a follower still has the entries that it acknowledged, and does not send
 * them again. A follower that has lost entries would accept nothing until another member leads,
 * and would vote as if nothing had been lost. So it is notified, and its process ends. */
void members_answered(struct replica *r, uint64_t peer,
                      const struct raft_append_entries_result *p)
{
        struct health *h = health_of(r, peer);
        uint64_t match;
        bool lacks;

        if (!h || !replica_leads(r) || p->term != replica_term(r) ||
            !libraft_match(r, peer, &match))
                return;
        if (p->rejected == 0 && p->last_log_index >= h->installs)
                h->installs = 0;
        lacks = p->rejected != 0 && p->last_log_index < match && h->installs == 0;
        h->n_lacks = lacks ? h->n_lacks + 1 : 0;
        if (h->n_lacks < LACKS_SURE)
                return;
        PROBE("a follower is notified that it lacks acknowledged entries");
        replica_send(r, peer, FRAME_LACKS, (uint64_t[]){p->term, match}, 2);
        if (!replica_is_due(r, &h->lacks_log_at, LACKS_AGAIN))
                return;
        log_error("The log of member %016" PRIx64 " ends at entry %" PRIu64
                  ", but the member has acknowledged entries up to %" PRIu64
                  ": files of its data directory are gone, or an older copy was put in their "
                  "place. It gets no more entries: have it replaced (tenurectl core replace), "
                  "and start it with an empty data directory.",
                  peer, (uint64_t) p->last_log_index, (uint64_t) match);
}

void members_lack(struct replica *r, const struct peer_frame *in)
{
        uint64_t index = in->v[1];
        char why[256];

        PROBE("a replica learns that it lacks acknowledged entries");
        if (store_condemn(r->store, index) != 0)
                return; /* the log was complete after all, or the leader will notify us again */
        snprintf(why, sizeof(why),
                 "the log ends at entry %" PRIu64
                 ", but the leader has this member's acknowledgement up to %" PRIu64
                 ": files of the data directory are gone, or an older copy was put in their "
                 "place. Have this member replaced (tenurectl core replace), and start it with "
                 "an empty data directory",
                 log_last(&r->log), index);
        replica_fatal(r, why);
}

uint64_t replica_forgetful(const struct replica *r)
{
        if (!replica_leads(r))
                return 0;
        for (size_t i = 0; i < ARRAY_SIZE(r->health); i++)
                if (r->health[i].n_lacks >= LACKS_SURE &&
                    replica_position(r, r->health[i].id) >= 0)
                        return r->health[i].id;
        return 0;
}

bool members_heard_lately(struct replica *r, uint64_t id)
{
        const struct health *h = health_of(r, id);

        return h && boot_diff(r->now, h->heard) <= r->cfg.election;
}

/* Leader: whether @id answers, and has done so since @since. */
static bool answers(struct replica *r, uint64_t id, nsec_t since)
{
        const struct health *h = health_of(r, id);

        return id == r->cfg.id || (members_heard_lately(r, id) && !h->broken &&
                                   (h->since.ns == 0 || boot_diff(r->now, h->since) >= since));
}

bool members_answers(struct replica *r, uint64_t id)
{
        return answers(r, id, 0);
}

/* [libraft] While entries are under way, no voter has all of the log; libraft would then ask
 * the last voter of the configuration, even if that is down. */
uint64_t members_heir(struct replica *r)
{
        uint64_t heir = 0, most = 0, match;

        for (unsigned i = 0; i < replica_conf(r)->n; i++) {
                const struct raft_server *s = &replica_conf(r)->servers[i];

                if (s->role != RAFT_VOTER || s->id == r->cfg.id || !answers(r, s->id, 0) ||
                    !libraft_match(r, s->id, &match) || (heir != 0 && match <= most))
                        continue;
                heir = s->id;
                most = match;
        }
        return heir;
}

static bool started(const struct replica *r, uint64_t id)
{
        return id == r->cfg.id || !r->ops->started || r->ops->started(r->userdata, id);
}

static bool is_addition(enum replica_change change)
{
        return change == REPLICA_ADD || change == REPLICA_ADD_LEARNER;
}

static bool is_replacement(enum replica_change change)
{
        return change == REPLICA_REPLACE || change == REPLICA_REPLACE_LOST;
}

/* Whether a majority of the voters can be relied on after the change. The rules and their order
 * are etcd's. */
static int allowed(struct replica *r, enum replica_change change, uint64_t id,
                   const char *address)
{
        const struct raft_configuration *c = replica_conf(r);
        unsigned n = 0, n_started = 0, n_before = 0, n_healthy = 0;
        int at = replica_position(r, id);

        if (is_replacement(change))
                return replacement_allowed(r, change, address);
        if (change == REPLICA_MOVE ||
            (change == REPLICA_REMOVE && (at < 0 || !members_is_voter(&c->servers[at]))))
                return 0;
        for (unsigned i = 0; i < c->n; i++) {
                if (!members_is_voter(&c->servers[i]))
                        continue;
                n_before++;
                n_healthy += answers(r, c->servers[i].id, health_interval(r));
                if (change == REPLICA_REMOVE && (int) i == at)
                        continue;
                n++;
                n_started += started(r, c->servers[i].id);
        }
        if (change == REPLICA_ADD || change == REPLICA_PROMOTE)
                n++;
        if (change == REPLICA_PROMOTE)
                n_started++; /* a learner that is in sync has started */
        /* A single member must be able to add the second. */
        if (change != REPLICA_ADD_LEARNER && n_started < n / 2 + 1 &&
            !(change == REPLICA_ADD && n == 2 && n_started == 1)) {
                PROBE("a change is refused because too few members have started");
                return REPLICA_E_NOT_STARTED;
        }
        if (change == REPLICA_PROMOTE ||
            (change == REPLICA_REMOVE && !answers(r, id, 0)) || /* a member that does not answer
                                                                 * is no loss */
            (change == REPLICA_REMOVE ? n_healthy - 1 >= 1 + (n_before - 1) / 2
                                      : n_healthy == n_before))
                return 0;
        PROBE_IF(boot_diff(r->now, r->led_at) >= r->cfg.election,
                 "a change is refused because a member does not answer");
        PROBE_IF(boot_diff(r->now, r->led_at) < r->cfg.election,
                 "a change waits until a new leader has heard from all members");
        /* A new leader may not have heard from all members yet. */
        return boot_diff(r->now, r->led_at) < r->cfg.election ? REPLICA_E_BUSY
                                                              : REPLICA_E_UNHEALTHY;
}

static bool same(const struct raft_configuration *c, const struct configured *seen)
{
        if (c->n != seen->n)
                return false;
        for (unsigned i = 0; i < c->n && i < REPLICA_PEERS_MAX; i++)
                if (c->servers[i].id != seen->id[i] || c->servers[i].role != seen->role[i])
                        return false;
        return true;
}

/* Counts that are kept by a member's position begin anew, and so does everything that waits for
 * a majority, because a different majority is needed now:
 *
 *     a round of reads       reads_members_changed() asks again; start_round() ends a round
 *                            that needs no answer any more
 *     lease time             beacons_members_changed() forgets who has answered
 *     a change of members    members_committed() checks after each raft_step()
 *     entries, elections     raft counts anew with each answer
 *     a handover             raft gives it up after an election timeout
 *     a snapshot on its way  sending_run() ends one to a former member
 *     covered renewals       wait for a read
 *     proposals              wait for an entry, or for their term to end
 */
static void begin_anew(struct replica *r)
{
        const struct raft_configuration *c = replica_conf(r);
        bool first = r->configured.n == 0;

        if (!first)
                replacement_log(r);

        beacons_members_changed(r);
        memset(r->sent_commit, 0, sizeof(r->sent_commit));
        r->configured.n = c->n;
        for (unsigned i = 0; i < c->n && i < REPLICA_PEERS_MAX; i++) {
                r->configured.id[i] = c->servers[i].id;
                r->configured.role[i] = c->servers[i].role;
        }
        if (!first)
                reads_members_changed(r);
        versions_members_changed(r);
}

/* A new URL counts once the change is committed: its member may have to acknowledge it, and
 * listens at the former URL until then. */
void members_step(struct replica *r)
{
        bool is_same = same(replica_conf(r), &r->configured);
        uint64_t index = libraft_committed(r, NULL);

        if (is_same && index == r->configured.index)
                return;
        r->configured.index = index;
        if (!is_same)
                begin_anew(r);
        if (r->ops->configured)
                r->ops->configured(r->userdata);
}

/* Leader: whether a learner has its directory recorded, and nearly all of the log. */
static bool is_in_sync(const struct replica *r, uint64_t id)
{
        uint64_t match;

        return libraft_match(r, id, &match) && match > 0 &&
               (!directories_recorded(r) || replica_directory(r, id) != 0) &&
               match + min_of((uint64_t) BEHIND_MAX, log_last(&r->log) / 10) >=
                       log_last(&r->log);
}

/* Makes the configuration after a change that was found permissible. */
static int make(const struct replica *r, enum replica_change change, uint64_t id,
                const char *urls, struct raft_configuration *out)
{
        const struct raft_configuration *c = replica_conf(r);
        struct member_address added = {.will_vote = change == REPLICA_ADD &&
                                                    directories_recorded(r)};
        char address[ADDRESS_MAX];
        int k = 0;

        if (is_replacement(change))
                return replacement_make(r, id, urls, out);
        raft_configuration_init(out);
        for (unsigned i = 0; i < c->n && k == 0; i++) {
                const struct raft_server *s = &c->servers[i];
                bool it = s->id == id, promoted = it && change == REPLICA_PROMOTE;
                struct member_address a = address_split(s->address);

                if (it && change == REPLICA_REMOVE)
                        continue;
                if (it && change == REPLICA_MOVE)
                        snprintf(a.urls, sizeof(a.urls), "%s", urls);
                a.will_vote = a.will_vote && !promoted;
                k = raft_configuration_add(out, s->id, address_join(&a, address),
                                           promoted ? RAFT_VOTER : s->role);
        }
        snprintf(added.urls, sizeof(added.urls), "%s", urls);
        if (k == 0 && is_addition(change))
                k = raft_configuration_add(
                        out, id, address_join(&added, address),
                        change == REPLICA_ADD && !added.will_vote ? RAFT_VOTER : RAFT_STANDBY);
        if (k == 0)
                return 0;
        raft_configuration_close(out);
        return k == RAFT_NOMEM ? -ENOMEM : REPLICA_E_EXISTS;
}

/* Returns 0, or the outcome of a change that is not made. */
static int check(const struct replica *r, enum replica_change change, uint64_t id,
                 const char *address)
{
        const struct raft_configuration *c = replica_conf(r);
        int at = replica_position(r, id);
        char urls[URLS_MAX];

        if (is_replacement(change))
                return 0; /* replacement_allowed() has checked it */
        if (is_addition(change) || change == REPLICA_MOVE)
                for (unsigned i = 0; i < c->n; i++)
                        if ((int) i != at &&
                            urls_meet(address_urls(c->servers[i].address, urls), address)) {
                                PROBE("a member is to get a URL that another one has");
                                return REPLICA_E_EXISTS;
                        }
        if (is_addition(change)) {
                if (at >= 0) {
                        PROBE("a member is added that exists");
                        return REPLICA_E_EXISTS;
                }
                if (c->n >= REPLICA_PEERS_MAX)
                        return REPLICA_E_TOO_MANY;
        } else if (at < 0) {
                return REPLICA_E_UNKNOWN;
        }
        for (unsigned i = 0; i < c->n; i++)
                if (change == REPLICA_ADD_LEARNER && !members_is_voter(&c->servers[i])) {
                        PROBE("a second learner is refused");
                        return REPLICA_E_TOO_MANY; /* one learner at a time */
                }
        if (change == REPLICA_PROMOTE) {
                if (members_is_voter(&c->servers[at]))
                        return REPLICA_E_VOTER;
                if (!is_in_sync(r, id)) {
                        PROBE("a learner that is behind is not promoted");
                        return REPLICA_E_BEHIND;
                }
        }
        if (change == REPLICA_REMOVE && c->servers[at].role == RAFT_VOTER &&
            replica_voters(r) == 1) {
                PROBE("the last voter is not removed");
                return REPLICA_E_LAST;
        }
        return 0;
}

int members_submit(struct replica *r, struct raft_configuration *c)
{
        struct raft_entry e = {.term = replica_term(r), .type = RAFT_CHANGE};
        uint64_t last = log_last(&r->log);
        int k = raft_configuration_encode(c, &e.buf);

        raft_configuration_close(c);
        if (k != 0)
                return -ENOMEM;
        e.batch = e.buf.base;
        replica_submit(r, &e);
        return log_last(&r->log) > last ? 0 : REPLICA_E_BUSY;
}

static const struct changed *find_changed(const struct replica *r, uint64_t peer,
                                          uint64_t request)
{
        for (size_t i = 0; i < ARRAY_SIZE(r->changed); i++)
                if (r->changed[i].request == request && r->changed[i].peer == peer)
                        return &r->changed[i];
        return NULL;
}

static void send_answer(struct replica *r, uint64_t peer, uint64_t request, int outcome)
{
        if (peer == 0)
                r->ops->changed_members(r->userdata, request, outcome);
        else
                replica_send(r, peer, FRAME_CHANGED, (uint64_t[]){request, (uint64_t) outcome},
                             2);
}

/* After these two the request is repeated; any other answer is final. */
static void answer(struct replica *r, uint64_t peer, uint64_t request, int outcome)
{
        if (outcome != REPLICA_E_NO_LEADER && outcome != REPLICA_E_BUSY)
                r->changed[r->n_changed++ % ARRAY_SIZE(r->changed)] =
                        (struct changed){request, peer, outcome};
        send_answer(r, peer, request, outcome);
}

unsigned members_voters(const struct raft_configuration *c,
                        uint64_t ret[static REPLICA_PEERS_MAX])
{
        unsigned n = 0;

        for (unsigned i = 0; i < c->n && n < REPLICA_PEERS_MAX; i++)
                if (c->servers[i].role == RAFT_VOTER)
                        ret[n++] = c->servers[i].id;
        return n;
}

/* A new voter counts at once, started or not, and in a cluster of two or three nothing is
 * committed without it. But once a majority of the previous voters has the entry on disk, in
 * this term, any leader that either configuration elects has it as well. So the change cannot
 * be undone, and the requester may be answered. etcd answers at the same point, because there
 * the old configuration commits the entry. */
static bool is_settled(struct replica *r)
{
        const struct changing *c = &r->changing;
        unsigned n = 0;

        for (unsigned i = 0; i < c->n_before; i++) {
                uint64_t match;

                if (c->before[i] == r->cfg.id)
                        n += libraft_stored(r) >= c->index;
                else if (libraft_match(r, c->before[i], &match))
                        n += match >= c->index;
        }
        return c->n_before > 0 && n >= c->n_before / 2 + 1;
}

/* Whether this very member was added by an earlier request, whose answer was lost. Each request
 * to add brings an id of its own. */
static bool is_there(const struct replica *r, enum replica_change what, uint64_t id,
                     const char *address)
{
        int at = replica_position(r, id);
        char urls[URLS_MAX];

        /* One that was put in the place of another may have been promoted since. */
        return (is_addition(what) || is_replacement(what)) && at >= 0 &&
               (is_replacement(what) ||
                members_is_voter(&replica_conf(r)->servers[at]) == (what == REPLICA_ADD)) &&
               strcmp(address_urls(replica_conf(r)->servers[at].address, urls), address) == 0;
}

bool members_may_change(const struct replica *r)
{
        return replica_is_current(r) && libraft_uncommitted(r) == 0 &&
               r->changing.request == 0 && replica_transferee(r) == 0;
}

bool replica_will_vote(const struct replica *r, uint64_t id)
{
        int at = replica_position(r, id);

        return at >= 0 && address_will_vote(replica_conf(r)->servers[at].address);
}

bool members_is_voter(const struct raft_server *s)
{
        return s->role == RAFT_VOTER || address_will_vote(s->address);
}

/* Carries out a change, on the leader. */
static void change(struct replica *r, uint64_t peer, uint64_t request, enum replica_change what,
                   uint64_t id, const char *address)
{
        struct changing ch = {.request = request, .peer = peer};
        const struct changed *done = find_changed(r, peer, request);
        struct raft_configuration c;
        bool there;
        int k;

        PROBE_IF(done != NULL, "a change of members that was answered is asked for again");
        if (done)
                return send_answer(r, peer, request, done->outcome);
        if (!replica_is_ready(r) || replica_transferee(r) != 0)
                return answer(r, peer, request, REPLICA_E_BUSY);
        there = is_there(r, what, id, address);
        k = there || (r->cfg.any_change && what <= REPLICA_MOVE)
                    ? 0
                    : allowed(r, what, id, address);
        if (k != 0)
                return answer(r, peer, request, k);
        if (r->changing.request != 0 || libraft_uncommitted(r) != 0 ||
            (what != REPLICA_REMOVE && directories_are_due(r))) {
                PROBE("a change of members comes while another one is under way");
                return answer(r, peer, request, REPLICA_E_BUSY);
        }
        if (there) {
                PROBE("a member is added again as it is");
                return answer(r, peer, request, 0);
        }
        k = check(r, what, id, address);
        if (k == 0 && what == REPLICA_REMOVE && id == r->cfg.id) {
                PROBE("a leader is to remove itself");
                /* Another member has to lead first; it removes us when asked again. */
                (void) replica_step_down(r, r->now);
                return answer(r, peer, request, REPLICA_E_BUSY);
        }
        if (k == 0)
                k = make(r, what, id, address, &c);
        if (k == 0) {
                if (what == REPLICA_ADD || what == REPLICA_PROMOTE)
                        ch.n_before = members_voters(replica_conf(r), ch.before);
                k = members_submit(r, &c);
        }
        if (k == -ENOMEM)
                return replica_fatal(r, "out of memory");
        if (k != 0)
                return answer(r, peer, request, k);
        ch.index = log_last(&r->log);
        r->changing = ch;
}

void members_committed(struct replica *r)
{
        struct changing c = r->changing;

        if (c.request == 0)
                return;
        if (!replica_leads(r)) {
                PROBE("leadership is lost while the members change");
                r->changing = (struct changing){0};
                answer(r, c.peer, c.request, REPLICA_E_NO_LEADER);
        } else if (r->applied >= c.index || is_settled(r)) {
                PROBE_IF(r->applied < c.index,
                         "a change of members is answered before it is committed");
                r->changing = (struct changing){0};
                answer(r, c.peer, c.request, 0);
        }
}

void members_run(struct replica *r)
{
        const struct raft_configuration *c = replica_conf(r);
        struct raft_configuration after;
        int k;

        if (!members_may_change(r))
                return;
        for (unsigned i = 0; i < c->n; i++) {
                uint64_t id = c->servers[i].id;

                if (!address_will_vote(c->servers[i].address) || !is_in_sync(r, id) ||
                    !answers(r, id, 0))
                        continue;
                PROBE("a member that was added as a voter has caught up, and votes");
                k = make(r, REPLICA_PROMOTE, id, "", &after);
                if (k == 0)
                        k = members_submit(r, &after);
                if (k == -ENOMEM)
                        replica_fatal(r, "out of memory");
                return;
        }
}

void replica_change_members(struct replica *r, uint64_t request, enum replica_change what,
                            uint64_t id, const char *address)
{
        cleanup_(buf_fini) struct buf f = {0};

        if (replica_leads(r))
                return change(r, 0, request, what, id, address);
        if (replica_leader(r) == 0)
                return answer(r, 0, request, REPLICA_E_BUSY);
        buf_add_u8(&f, FRAME_CHANGE);
        buf_add_u64(&f, request);
        buf_add_u8(&f, (uint8_t) what);
        buf_add_u64(&f, id);
        buf_add(&f, address, strlen(address));
        if (buf_error(&f) < 0)
                return replica_fatal(r, "out of memory");
        replica_send_frame(r, replica_leader(r), &f);
}

int members_asked(struct replica *r, const struct peer_frame *in)
{
        struct reader rd = {.in = in->rest};
        uint8_t what = reader_u8(&rd);
        uint64_t id = reader_u64(&rd);
        char address[URLS_MAX];

        reader_check(&rd, in->v[0] != 0 && what >= REPLICA_ADD && what <= REPLICA_LAST_ &&
                                  id != 0 && id != LIBRAFT_NOBODY &&
                                  rd.in.len < sizeof(address));
        if (rd.r < 0)
                return rd.r;
        memcpy(address, rd.in.p, rd.in.len);
        address[rd.in.len] = '\0';
        if (strlen(address) != rd.in.len ||
            (!*address && what != REPLICA_PROMOTE && what != REPLICA_REMOVE))
                return -EBADMSG;
        if (replica_leads(r))
                change(r, in->peer, in->v[0], what, id, address);
        else
                answer(r, in->peer, in->v[0], REPLICA_E_BUSY);
        return 0;
}

int members_position(const struct raft_configuration *c, uint64_t id)
{
        for (unsigned i = 0; i < c->n && i < REPLICA_PEERS_MAX; i++)
                if (c->servers[i].id == id)
                        return (int) i;
        return -1;
}

void members_each(const struct raft_configuration *c,
                  void (*fn)(uint64_t id, const char *urls, bool voter, void *arg), void *arg)
{
        char urls[URLS_MAX];

        for (unsigned i = 0; i < c->n; i++)
                fn(c->servers[i].id, address_urls(c->servers[i].address, urls),
                   c->servers[i].role == RAFT_VOTER, arg);
}

uint64_t replica_excludes(const struct replica *r, uint64_t id)
{
        const struct raft_configuration *c;
        uint64_t index = libraft_committed(r, &c);

        if (c->n == 0 || replica_position(r, r->cfg.id) < 0)
                return 0;
        return members_position(c, id) < 0 && index > 1 ? index : 0;
}

/* A peer that is not a member, as far as we know, stands for election. It may know a newer
 * configuration than we do. */
void members_stranger(struct replica *r, uint64_t peer)
{
        uint64_t index = replica_excludes(r, peer);

        if (index != 0) {
                PROBE("a removed member stands for election and is notified");
                replica_send(r, peer, FRAME_REMOVED, &index, 1);
        }
}

/* Whether we are a member, or were one before a change that may not last. */
static bool was_member(const struct replica *r)
{
        const struct raft_configuration *c;

        (void) libraft_committed(r, &c);
        return members_position(c, r->cfg.id) >= 0 || replica_position(r, r->cfg.id) >= 0;
}

/* A joining replica is not a member until its log contains its addition. Who says that it is
 * none may not know of the addition yet. But it was removed, or its addition was lost, if most
 * of the others say so and no leader has sent it anything for a minute: by then members that
 * lag know of it, or there is another leader, which does not. */
static bool is_disowned(struct replica *r, uint64_t peer)
{
        struct disowned *d = &r->disowned;
        unsigned i = 0;

        if (d->n == 0)
                d->since = r->now;
        while (i < d->n && d->by[i] != peer)
                i++;
        if (i == d->n && i < ARRAY_SIZE(d->by))
                d->by[d->n++] = peer;
        return 2 * d->n > r->cfg.n_peers - 1 && boot_diff(r->now, d->since) >= DISOWNED_FOR;
}

void members_told_removed(struct replica *r, const struct peer_frame *in)
{
        if (in->v[0] <= libraft_committed(r, NULL) || replica_leads(r) || !r->ops->removed)
                return;
        PROBE_IF(!was_member(r), "a joining member is notified that it was removed");
        if (was_member(r) || is_disowned(r, in->peer))
                r->ops->removed(r->userdata);
}
