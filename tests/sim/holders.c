/* Hosts that hold one place each: the real member, on the endpoints of ends.c, and the file
 * that it leaves for its next life. */
#include <limits.h>
#include <stdio.h>

#include "base/log.h"
#include "hoard.h"
#include "insides.h"
#include "member/member.h"
#include "units.h"
#include "world.h"

#define CLUSTER "sim"
#define DRIFT_PPM 1000
#define KEPT_LATE (50 * MSEC)
/* Once everything is healed, a lease that nobody renews ends by its TTL and this. */
#define ENDS_BY (3 * NSEC_PER_SEC)

struct boot_time holder_now(const struct holder *h)
{
        return clock_of(W, &h->clock);
}

/* ---- callbacks of the member ---- */

static void on_joined(const struct member_node *n, int64_t revision, void *userdata)
{
        if (hoard_agent_told(userdata, n->record.name, n->mod_revision, true))
                return;
        view_put(userdata, view_node(n->record.name), true, n->lease, n->mod_revision,
                 revision);
}

static void on_changed(const struct member_node *n, int64_t revision, void *userdata)
{
        if (hoard_agent_told(userdata, n->record.name, n->mod_revision, true))
                return;
        view_put(userdata, view_node(n->record.name), false, n->lease, n->mod_revision,
                 revision);
}

static void on_left(const struct member_node *n, const char *reason, int64_t revision,
                    void *userdata)
{
        (void) reason;
        if (hoard_agent_told(userdata, n->record.name, n->mod_revision, false))
                return;
        view_gone(userdata, view_node(n->record.name), revision);
}

static void on_added(const struct service *s, int64_t revision, void *userdata)
{
        view_put(userdata, view_service(s->name, s->node), true, s->lease, s->mod_revision,
                 revision);
}

static void on_service_changed(const struct service *s, int64_t revision, void *userdata)
{
        view_put(userdata, view_service(s->name, s->node), false, s->lease, s->mod_revision,
                 revision);
}

static void on_removed(const struct service *s, const char *reason, int64_t revision,
                       void *userdata)
{
        (void) reason;
        view_gone(userdata, view_service(s->name, s->node), revision);
}

/* An answer of another cluster must not end a lease while ours renews it. */
static void check_loss(const struct holder *h)
{
        unsigned up = 0, have = 0;

        /* The answers of an emptied core count, and an agent remembers its revision for as long
         * as it lives: our core, which is behind that, then looks like one that was emptied. */
        if (!W->strangers || h->home != 0 || h->heard == 0 || h->view.may != 1 ||
            h->met_emptied)
                return;
        for (unsigned i = 0; i < W->n_replicas; i++) {
                up += W->r[i].up;
                have += W->r[i].up &&
                        leases_find(&core_state(W->r[i].node.core)->leases, h->lease);
        }
        if (have > 0 && have == up && boot_before(holder_now(h), h->deadline))
                fail(W, "I10: holder %u has lost lease %llx, which lives, to another cluster",
                     h->i, (unsigned long long) h->lease);
}

/* A host keeps its place as long as one endpoint takes its renewals: it tries all of them in
 * the last eighth of the TTL. */
static void check_kept(const struct holder *h)
{
        if (W->faults.members ||
            boot_before(holder_now(h), session_deadline(member_session(h->member))))
                return;
        for (unsigned i = 0; i < W->n_replicas; i++)
                if (W->now - h->free_since[i] > h->cfg.ttl / 8 + KEPT_LATE)
                        fail(W,
                             "holder %u has lost its place, though it could renew at "
                             "replica %u for %.1f s",
                             h->i, i + 1, (double) (W->now - h->free_since[i]) / 1e9);
}

static void on_session(void *userdata, enum session_state state, const char *why)
{
        struct holder *h = userdata;

        if (state == SESSION_LOST) {
                check_loss(h);
                check_kept(h);
        }
        W->counts.holder_losses += state == SESSION_LOST;
        log_debug("%.3f s: holder %u is %s: %s", (double) W->now / 1e9, h->i,
                  session_state_name(state), why);
        h->announced = state;
        h->refused = state == SESSION_JOINING &&
                     (strstr(why, "held by another") || strstr(why, "node id is that of"));
        if (state == SESSION_LOST && h->units)
                fenced_lost(h);
}

/* The figures for the advice on TTLs: a renewal was due before it was sent, and after the one
 * before. */
static void on_renewed(void *userdata, const struct session_renewal *r)
{
        struct holder *h = userdata;

        if (h->units)
                fenced_renewed(h, r);
        if (!boot_before(r->before, r->sent) || boot_before(r->sent, r->due) ||
            boot_before(r->due, r->before) || boot_before(r->acknowledged, r->sent) ||
            boot_before(holder_now(h), r->acknowledged))
                fail(W,
                     "evidence: holder %u's renewal after the one of %.3f s was due at %.3f, "
                     "sent at %.3f, acknowledged at %.3f",
                     h->i, (double) r->before.ns / 1e9, (double) r->due.ns / 1e9,
                     (double) r->sent.ns / 1e9, (double) r->acknowledged.ns / 1e9);
}

static void on_synced(void *userdata, bool synced)
{
        (void) userdata;
        (void) synced;
}

static void on_claimed(void *userdata, const struct node_record *by)
{
        (void) userdata;
        (void) by;
        W->counts.refusals++;
}

static const struct member_events events = {
        .members = {.joined = on_joined, .left = on_left, .changed = on_changed},
        .services = {.added = on_added, .removed = on_removed, .changed = on_service_changed},
        .session = on_session,
        .renewed = on_renewed,
        .synced = on_synced,
        .claimed = on_claimed};

/* ---- what the host does ---- */

static void publish(struct holder *h, unsigned i)
{
        struct service_record r = {.port = (uint16_t) h->services[i].port, .state = "running"};

        snprintf(r.name, sizeof(r.name), "svc%u", i);
        snprintf(r.invocation, sizeof(r.invocation), "%u", h->services[i].life);
        if (member_publish(h->member, &r) < 0)
                abort();
}

/* A unit starts, restarts, changes its record, or stops. */
static void change_service(struct world *w, struct holder *h)
{
        unsigned i = (unsigned) rnd_between(&w->rnd, 0, SERVICES_MAX - 1);
        char name[16];

        w->counts.published++;
        h->changes++;
        if (h->services[i].wanted && chance(w, 40)) {
                h->services[i].wanted = false;
                snprintf(name, sizeof(name), "svc%u", i);
                return member_withdraw(h->member, name, "");
        }
        if (!h->services[i].wanted || chance(w, 50))
                h->services[i].life = h->changes;
        h->services[i].wanted = true;
        h->services[i].port = h->changes % 60000 + 1;
        publish(h, i);
}

void holder_tell_self(struct holder *h)
{
        member_set_self(h->member, h->addresses, "",
                        h->units ? h->units->steady.degraded.why : "");
}

static void change_address(struct world *w, struct holder *h)
{
        snprintf(h->addresses, sizeof(h->addresses), "10.0.0.%u",
                 (unsigned) rnd_between(&w->rnd, 1, 254));
        holder_tell_self(h);
}

/* At the end the host must be there again. */
static void act(struct world *w, struct holder *h)
{
        bool last = load_ended(w);

        h->act_at = w->now + some_time(w, 50 * MSEC, 3000 * MSEC);
        if (h->announced == SESSION_LEFT) {
                if (!last && chance(w, 40))
                        return;
                if (h->units)
                        return fenced_join(h);
                h->left_by = 0;
                h->announced = SESSION_JOINING;
                return member_join(h->member);
        }
        if (last)
                return;
        if (h->left_by == 0 && chance(w, w->faults.deaths ? 5 : 1)) {
                w->counts.leaves++;
                if (h->units)
                        return fenced_leave(h);
                h->left_by = w->now + 1100 * MSEC;
                return member_leave(h->member, "shutdown", "");
        }
        /* If little may wait, there is no room for many at once. */
        if (w->queued_bytes == 0 && w->does & USUAL_SERVICES) {
                if (chance(w, 15))
                        change_address(w, h);
                else
                        change_service(w, h);
        }
}

/* ---- its lives ---- */

static void own_boot(const struct holder *h, unsigned boot, char out[static 40])
{
        snprintf(out, 40, "%016x%016x", h->i + 1, boot);
}

/* Everything that the agent keeps, in the real format. */
bool holder_read_file(const struct holder *h, struct place *ret)
{
        return buf_len(&h->file) > 0 &&
               place_read(ret, buf_head(&h->file), buf_len(&h->file)) == 0;
}

static void start(struct world *w, struct holder *h, bool resume)
{
        struct member_config cfg = {.cluster = CLUSTER,
                                    .n_endpoints = w->n_replicas,
                                    .session = h->cfg,
                                    .boot = h->boot_at,
                                    .boots = h->boots,
                                    .seed = rnd_u64(&w->rnd)};
        struct place place;

        snprintf(cfg.self.name, sizeof(cfg.self.name), "host%u", h->name);
        snprintf(cfg.self.id, sizeof(cfg.self.id), "%032x", h->id + 1);
        snprintf(cfg.self.addresses, sizeof(cfg.self.addresses), "%s", h->addresses);
        own_boot(h, h->boot, cfg.self.boot_id);
        h->lease = 0;
        h->heard = 0;
        h->met_emptied = h->refused = false;
        h->asked = 0;
        view_begin(h);
        h->remembers = false;
        if (resume && holder_read_file(h, &place)) {
                w->counts.resumed++;
                cfg.resume = &place;
                h->lease = place.session.lease;
                h->announced = SESSION_HELD;
        } else {
                h->announced = SESSION_JOINING;
        }
        /* It does not look for its id under another name; others do. */
        cfg.no_view = h->earlier;
        ends_begin(h);
        if (member_new(&h->member, &cfg, &holder_ops, h, &events, h, holder_now(h)) < 0)
                abort();
        h->renewed_at = member_session(h->member)->renewed_at;
        for (unsigned i = 0; i < SERVICES_MAX; i++)
                if (h->services[i].wanted)
                        publish(h, i);
        member_published_all(h->member);
        h->left_by = 0;
        h->act_at = w->now + some_time(w, 0, 2000 * MSEC);
        h->alive = true;
        h->wake = 0;
        if (h->units)
                fenced_start(h, cfg.resume != NULL);
}

/* The process is killed. */
static void end(struct holder *h)
{
        if (!h->alive)
                return;
        if (h->units)
                fenced_killed(h);
        h->alive = false;
        h->wake = NEVER;
        member_close(h->member);
        ends_close(h);
        h->member = member_free(h->member);
}

/* The host restarts, with another boot id, perhaps another name, and with a clock that shows
 * how long that took. */
static void reboot(struct holder *h)
{
        char id[40];
        size_t n = strlen(h->boots);

        own_boot(h, h->boot++, id);
        snprintf(h->boots + n, sizeof(h->boots) - n, "%s%s", n > 0 ? "," : "", id);
        buf_clear(&h->file);
        memset(h->services, 0, sizeof(h->services));
        if (chance_in(&W->damage, 50)) {
                W->counts.renames++;
                h->name = (h->name + HOLDERS_MAX) % NAMES_MAX;
        }
        h->boot_at = holder_now(h);
        if (h->units)
                fenced_reboot(h);
}

void holder_kill(struct holder *h)
{
        end(h);
}

void holder_start(struct holder *h)
{
        start(W, h, true);
}

void holder_install(struct holder *h, bool earlier)
{
        bool runs = h->alive;

        end(h);
        h->earlier = earlier;
        if (runs)
                start(W, h, true);
}

void holder_reboot(struct holder *h)
{
        end(h);
        reboot(h);
}

static void cut(struct world *w, struct holder *h, nsec_t from, nsec_t until)
{
        h->cut = (struct span){from, until};
        h->cable = chance(w, 60);
}

void disturb_holder(struct world *w)
{
        struct holder *h = &w->h[rnd_between(&w->rnd, 0, w->n_holders - 1)];
        bool again = !h->alive || chance(w, 40), lost = chance(w, 15);

        w->counts.holder_deaths += h->alive;
        end(h);
        if (!again)
                return;
        if (chance(w, 15))
                reboot(h);
        start(w, h, !lost);
        /* It may have to do with its place until the deadline. */
        if (h->lease != 0 && chance(w, 50))
                cut(w, h, w->now, w->now + some_time(w, 500 * MSEC, 5000 * MSEC));
}

void delay_holder(struct world *w)
{
        struct holder *h = &w->h[rnd_between(&w->rnd, 0, w->n_holders - 1)];
        unsigned one = (unsigned) rnd_between(&w->rnd, 0, w->n_replicas - 1);
        bool all = chance(w, 60), breaks = chance(w, 60);
        nsec_t until = w->now + some_time(w, 100 * MSEC, 3000 * MSEC),
               deaf = min_of(until, w->now + some_time(w, 0, 3000 * MSEC));

        if (!h->alive)
                return;
        /* It may have to do with that term until the deadline. */
        if (breaks)
                cut(w, h, until + 4 * MSEC, until + some_time(w, 4 * MSEC, 5000 * MSEC));
        for (unsigned i = 0; i < w->n_replicas; i++)
                if (h->ends[i].wire.client && (all || i == one)) {
                        w->counts.late++;
                        wire_be_late(&h->ends[i].wire, until, deaf, breaks);
                }
}

/* ---- observing it ---- */

bool holder_holds(const struct holder *h, int64_t lease)
{
        const struct session *s = h->alive ? member_session(h->member) : NULL;

        return s && s->lease != 0 && (lease == 0 || s->lease == lease) &&
               session_holds(s, holder_now(h));
}

bool holder_is_misled(const struct holder *h)
{
        return h->alive && h->clock.stepped < 0 &&
               boot_before(member_session(h->member)->renewed_at, h->clock.woke_at);
}

static bool has_the_name(const struct holder *a, const struct holder *b)
{
        return a->name == b->name;
}

bool holders_vie(const struct holder *a, const struct holder *b)
{
        return has_the_name(a, b) || a->id == b->id;
}

/* In the core of history @home. */
static bool another(const struct holder *h, unsigned home,
                    bool (*vies)(const struct holder *other, const struct holder *h),
                    bool (*is)(const struct holder *other))
{
        for (unsigned i = 0; i < W->n_holders; i++)
                if (i != h->i && vies(&W->h[i], h) && W->h[i].home == home && is(&W->h[i]))
                        return true;
        return false;
}

static bool has_lease(const struct holder *h)
{
        return holder_holds(h, 0);
}

bool holder_is_refused(const struct holder *h)
{
        return another(h, 0, holders_vie, has_lease) ||
               (h->refused && W->now < W->run_time + h->cfg.ttl + ENDS_BY);
}

static bool says_it_holds(const struct holder *h)
{
        return h->alive && (h->announced == SESSION_HELD || h->announced == SESSION_JEOPARDY);
}

/* A holder that leaves does not act any more, although its lease may stand until it hears that
 * the lease is revoked. */
static bool acts(const struct holder *h)
{
        return says_it_holds(h) && has_lease(h) && !holder_is_misled(h);
}

const char *holder_state(const struct holder *h)
{
        return h->alive ? session_state_name(member_session(h->member)->state) : "dead";
}

/* The true time of a recent instant. */
static nsec_t true_past(const struct holder *h, struct boot_time t)
{
        nsec_t ago = boot_diff(holder_now(h), t);

        if (boot_before(t, h->clock.woke_at))
                ago -= h->clock.stepped;
        return W->now - ago + ago / 1000000 * h->clock.ppm;
}

/* With units, the agent forgets its place only after they have been seen to. */
static void forget_file(struct holder *h)
{
        if (!h->units)
                buf_clear(&h->file);
}

static void write_file(struct holder *h)
{
        struct place place;

        if (!member_place(h->member, &place))
                return forget_file(h);
        buf_clear(&h->file);
        if (h->earlier) /* 0.1.0 has no such line */
                place.ancestor[0] = '\0';
        place_write(&place, &h->file);
        if (buf_error(&h->file) < 0)
                abort();
}

/* Our core has answered at that endpoint, and the endpoint leads to it. */
static void hears(struct holder *h, size_t end)
{
        const struct holder_end *e = &h->ends[end];

        if (e->wire.to == end && elsewhere_leads(e) == end)
                h->heard |= 1u << end;
}

/* @knew: the revision of the membership before it ran. */
static void look(struct world *w, struct holder *h, int64_t knew)
{
        const struct session *s = member_session(h->member);
        bool keeps = s->registered && !s->leave;
        uint64_t asked = insides_of(h->member).asked;

        if (asked != h->asked && s->lease != 0 && s->lease != h->asked_for) {
                h->asked_for = s->lease;
                h->knew = knew;
        }
        h->asked = asked;
        if (w->forced && s->lease != 0 && s->lease == h->lease) {
                unsigned home = forced_home(h);

                w->met.followed_heir += home != 0 && h->home == 0;
                /* Which of them has acknowledged a renewal meanwhile is not known. */
                if (home != h->home && s->renewed_at.ns != h->renewed_at.ns)
                        h->acked_by = UINT_MAX;
                else if (home == h->home && s->renewed_at.ns != h->renewed_at.ns)
                        h->acked_by = home;
                h->home = home;
        }
        if (s->lease != 0 && s->lease != h->lease) {
                unsigned home = w->forced ? forced_home(h) : elsewhere_of_lease(s->lease);

                w->counts.grants++;
                w->met.moved_world += home != 0 && home != h->home;
                w->met.moved_back += home == 0 && h->home != 0;
                h->home = h->acked_by = home;
                h->heard = 0;
                if (home == 0)
                        check_granted(w, s->lease, s->ttl / MSEC, true_past(h, s->renewed_at),
                                      h);
        } else if (s->lease != 0 && boot_before(h->renewed_at, s->renewed_at)) {
                w->counts.renewals++;
                if (h->home == 0 && h->acked_by == 0)
                        check_renewed(w, s->lease, true_past(h, s->renewed_at), s->ttl / MSEC);
                if (w->forced && h->acked_by == h->home)
                        forced_renewed(h, true_past(h, s->renewed_at));
                hears(h, member_current(h->member));
                h->deadline = session_deadline(s);
        }
        if (h->units && s->lease != 0)
                fenced_place(h, s->lease,
                             boot_add(s->renewed_at, s->ttl - s->ttl / 1000000 * DRIFT_PPM),
                             s->lease != h->lease);
        if (s->lease != h->lease || s->renewed_at.ns != h->renewed_at.ns || keeps != h->keeps)
                write_file(h);
        h->lease = s->lease;
        h->renewed_at = s->renewed_at;
        h->keeps = keeps;
        if (h->view.may == 1 && member_synced(h->member))
                hears(h, h->watch_at);
}

/* Whether half of the TTL is over and it has not sent the next renewal. Nothing else may delay
 * that. */
static bool is_late(const struct holder *h)
{
        const struct session *s = member_session(h->member);

        return s->state == SESSION_HELD && session_attempt(s) == 0 &&
               boot_diff(holder_now(h), s->renewed_at) > s->ttl / 2 + 10 * MSEC;
}

static bool awaits_renewal(const struct holder *h)
{
        const struct session *s = h->alive ? member_session(h->member) : NULL;

        return s && (s->state == SESSION_HELD || s->state == SESSION_JEOPARDY) &&
               session_attempt(s) > 0;
}

/* The kernel tells of a cable that has been plugged in. */
static void tell_of_cable(struct world *w, struct holder *h)
{
        if (!h->cable || w->now < h->cut.from || is_in(w, &h->cut))
                return;
        h->cable = false;
        member_path_back(h->member, holder_now(h));
        h->retold = awaits_renewal(h) ? w->now : 0;
}

/* Whether the link is down, or frames on it are late. */
static bool is_disturbed(const struct world *w, unsigned from, unsigned to)
{
        const struct sim_link *l = &w->links[from][to];

        return w->cut[from][to] || w->now < l->down_until || l->last > w->now + FRAME_MOST ||
               linked_apart(w, from, to);
}

/* Whether nothing is in the way of a renewal in our core, through that endpoint. */
static bool end_is_free(const struct world *w, const struct holder *h, unsigned i)
{
        const struct replica_node *n = &w->r[i];

        if (!h->alive || h->home != 0 || w->now < h->asleep_until || is_in(w, &h->cut) ||
            w->was_lull || w->now < w->slow_until)
                return false;
        if (n->up && state_sibling(core_state(n->node.core)) != 0)
                return false;
        if (!n->keeps_up || n->full || w->now < n->stalled_until ||
            is_stranger(h->ends[i].wire.to) || is_stranger(elsewhere_leads(&h->ends[i])) ||
            w->now < h->ends[i].wire.late_until || wire_repeats(&h->ends[i].wire))
                return false;
        /* If it keeps up, there is a leader, which needs a majority. */
        for (unsigned j = 0; j < w->n_replicas; j++)
                if (is_disturbed(w, i, j) || is_disturbed(w, j, i) ||
                    (j != w->leads &&
                     (is_disturbed(w, w->leads, j) || is_disturbed(w, j, w->leads))))
                        return false;
        return true;
}

static bool way_is_free(const struct world *w, const struct holder *h)
{
        for (unsigned i = 0; i < w->n_replicas; i++)
                if (!end_is_free(w, h, i))
                        return false;
        return true;
}

/* At the very instant at which its host wakes up, the check may come before its own turn. */
static bool is_awake(const struct world *w, const struct holder *h)
{
        return w->now > h->asleep_until;
}

/* A renewal that has a reason to be sent at once, which came @at, waits neither for the
 * connections of before nor for the time of another attempt. */
static void check_at_once(struct world *w, struct holder *h, nsec_t *at, bool waits,
                          const char *reason)
{
        if (*at == 0)
                return;
        if (!waits)
                *at = 0;
        else if (!way_is_free(w, h) || !is_awake(w, h))
                *at = w->now + h->cfg.ttl / 16; /* what fails is tried again by then */
        else if (w->now - *at > PROMPT_MAJORITY)
                fail(w, "holder %u %s, and renews nothing for %.1f s", h->i, reason,
                     (double) (w->now - *at) / 1e9);
}

void check_holders(struct world *w)
{
        for (unsigned i = 0; i < w->n_holders; i++) {
                struct holder *h = &w->h[i];

                for (unsigned k = 0; k < w->n_replicas; k++)
                        if (!end_is_free(w, h, k))
                                h->free_since[k] = w->now;
                check_at_once(w, h, &h->retold, awaits_renewal(h), "has its cable back");
                check_at_once(w, h, &h->doubted, says_it_holds(h) && holder_is_misled(h),
                              "is told that its clock may have stood still");
                if (h->alive && is_awake(w, h) && is_late(h))
                        fail(w, "holder %u sends no heartbeat, and is to", h->i);
                if (says_it_holds(h) && is_awake(w, h) &&
                    !session_holds(member_session(h->member),
                                   boot_add(holder_now(h), -10 * MSEC)))
                        fail(w, "holder %u has told of no loss, and holds nothing", h->i);
                if (acts(h) && another(h, h->home, has_the_name, acts))
                        fail(w, "I10: holder %u holds a name, and so does another one", h->i);
                if (acts(h) && h->home != 0 && elsewhere_is_over(h->home, h->lease))
                        fail(w,
                             "I3: lease %llx ended in another core, and holder %u counts on it",
                             (unsigned long long) h->lease, h->i);
                if (h->alive && h->left_by > 0 && is_awake(w, h) && w->now >= h->left_by &&
                    h->announced != SESSION_LEFT)
                        fail(w, "holder %u was to leave, and is %s", h->i, holder_state(h));
        }
}

void check_ended_elsewhere(struct world *w, unsigned history, int64_t lease, bool all)
{
        for (unsigned i = 0; i < w->n_holders; i++) {
                const struct holder *h = &w->h[i];

                if (acts(h) && h->lease == lease &&
                    (h->acked_by == history || (all && h->acked_by == 0)))
                        fail(w,
                             "I3: lease %llx ended in a forced core, and holder %u counts on "
                             "it",
                             (unsigned long long) lease, i);
        }
}

/* ---- running ---- */

/* What an earlier life was told is read first, and may turn out to be gone: then nothing was
 * told. */
static void remember(struct holder *h)
{
        if (h->remembers && !member_remembers(h->member) &&
            member_nodes(h->member)->revision == 0)
                view_begin(h);
        h->remembers = member_remembers(h->member);
}

static void see_to_units(struct holder *h)
{
        struct place place;

        fenced_run(h);
        if (!member_place(h->member, &place))
                buf_clear(&h->file);
}

/* The kernel mostly tells of it: the date is set then (loop/standstill.h). */
static void wake_up(struct world *w, struct holder *h)
{
        nsec_t slept = w->now - h->slept_from;

        h->slept_from = 0;
        if (!clock_wakes(w, &h->clock, slept))
                return;
        if (h->left_by > 0)
                h->left_by = max_of(h->left_by - h->clock.stepped, w->now);
        if (!h->alive || chance_in(&w->damage, 30))
                return;
        member_doubt(h->member, holder_now(h));
        h->doubted = w->now;
}

void hold(struct world *w, struct holder *h)
{
        bool awake = w->now >= h->asleep_until;
        nsec_t wake = awake ? NEVER : h->asleep_until;
        struct boot_time now, next;
        int64_t knew;

        if (awake && h->slept_from > 0)
                wake_up(w, h);
        now = holder_now(h);

        if (h->units)
                h->units->wake = 0; /* the host may have fallen asleep, or be awake again */
        if (!h->alive) {
                h->wake = NEVER;
                return;
        }
        if (awake) {
                h->wake = NEVER;
                member_at(h->member, now);
                if (h->units)
                        fenced_listen(h);
                ends_listen(h);
                if (h->act_at <= w->now)
                        act(w, h);
                tell_of_cable(w, h);
                moves_before(h);
                knew = member_nodes(h->member)->revision;
                next = member_run(h->member, now);
                remember(h);
                moves_after(h);
                look(w, h, knew);
                if (h->units)
                        see_to_units(h);
                if (h->units && h->wake == 0) /* the session has news of it */
                        next = now;
                view_check(w, h);
                wake = min_of(wake, true_time_of(w, &h->clock, next));
                wake = min_of(wake, h->act_at);
                if (h->cable)
                        wake = min_of(wake, h->cut.until);
                if (h->units)
                        wake = min_of(wake, fenced_next(h));
        }
        ends_ask(h, awake);
        wake = min_of(wake, ends_next(h, awake));
        h->wake = wake;
}

void holders_begin(struct world *w)
{
        bool collide = chance(w, 20), cloned = chance(w, 50), copied;

        /* Whoever is refused would wait for the end of the other's lease. */
        collide = collide && !w->long_ttls;
        copied = !w->long_ttls && chance_in(&w->damage, 5);

        for (unsigned i = 0; i < w->n_holders; i++) {
                struct holder *h = &w->h[i];

                *h = (struct holder){
                        .i = i,
                        .name = collide && i == 1 ? 0 : i,
                        .id = ((collide && cloned) || copied) && i == 1 ? 0 : i,
                        .clock.ppm = (int32_t) rnd_between(&w->rnd, 0, 1000) - 500,
                        .cfg = {.ttl = (nsec_t) rnd_between(&w->rnd, TTL_MIN_MS,
                                                            (uint64_t) w->ttl_max_ms) *
                                       MSEC,
                                .drift_ppm = DRIFT_PPM,
                                .retry = 50 * MSEC},
                };
                h->earlier = w->upgrades && !w->strangers && chance_in(&w->damage, 70);
                if (w->long_ttls)
                        h->cfg.ttl =
                                long_ttl_ms(w, w->lasting ? w->ttl_max_ms : TTL_LONG_MS) * MSEC;
                h->boot_at = holder_now(h);
                if (w->fenced)
                        fenced_begin(w, h);
                start(w, h, false);
        }
}

void holders_end(struct world *w)
{
        for (unsigned i = 0; i < w->n_holders; i++) {
                end(&w->h[i]);
                fenced_end(&w->h[i]);
                buf_fini(&w->h[i].file);
        }
}
