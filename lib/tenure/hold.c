#include "tenure/hold.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "member/tags.h"
#include "tenure/calls.h"

/* How often to look at the page if inotify does not report its changes. */
#define LOOK_SHARE 16 /* of the TTL */
#define LOOK_UNKNOWN (250 * NSEC_PER_MSEC)

/* The drift margin of the agent. */
#define DRIFT_PPM 1000
#define RETRY (50 * NSEC_PER_MSEC)

#define TTL_MS_LEAST 100
#define TTL_MS_MOST 86400000

/* ---- events ---- */

static void lost_is_taken(struct queued *q)
{
        struct tenure *t = q->owner;

        t->hold.lost--;
}

static void announce(struct tenure *t, enum tenure_event_type type, int64_t lease, int error,
                     const char *why)
{
        struct queued *q = queue_new(t, type, strlen(why) + 1);

        if (!q)
                return;
        q->event.lease = lease;
        q->event.error = error;
        q->event.reason = queue_text(q, why);
        if (type == TENURE_LOST) {
                t->hold.lost++;
                q->owner = t;
                q->left = lost_is_taken;
        }
        queue_event(t, q);
}

static void lose(struct tenure *t, const char *why)
{
        struct hold *h = &t->hold;
        int64_t lease = h->lease;

        if (lease == 0)
                return;
        h->lease = 0;
        h->announced = TENURE_LOST;
        locks_lost(t, why);
        works_lost(t);
        announce(t, TENURE_LOST, lease, 0, why);
}

static void have(struct tenure *t, int64_t lease, enum tenure_event_type type, const char *why)
{
        struct hold *h = &t->hold;

        if (lease != h->lease) {
                lose(t, "the place was lost and taken again");
                h->lease = lease;
                h->announced = TENURE_HELD;
                announce(t, TENURE_HELD, lease, 0, "");
                locks_soon(t);
                works_soon(t);
        }
        if (h->announced == type)
                return;
        h->announced = type;
        announce(t, type, lease, 0, why);
}

void hold_came_back(struct tenure *t)
{
        struct hold *h = &t->hold;

        /* The lock belongs to the parent as well, and only the parent can say that it has
         * stopped. */
        if (!h->letting_go || h->lost > 0 || !tenure_is_ours(t))
                return;
        h->letting_go = false;
        page_lock(&t->agent.page, false);
}

/* ---- the agent's place ---- */

/* A deadline that is further ahead than a TTL comes from another clock. */
static bool makes_sense(const struct tenancy *p, struct boot_time now)
{
        return boot_diff(p->deadline, now) <= p->ttl;
}

static const char *why_not(const struct hold *h, const struct tenancy *p, int r,
                           struct boot_time now)
{
        if (h->given_back)
                return "given back";
        if (r == -EXDEV || (r == 0 && p->lease != 0 && !makes_sense(p, now)))
                return "the agent uses another clock; run this program in the agent's "
                       "time namespace";
        if (r < 0)
                return "the agent's page about the place cannot be read";
        if (p->lease != 0 && p->leaving)
                return "this host gives its place back";
        if (p->lease == 0 || p->lease != h->lease)
                return "this host has lost its place";
        return "the agent reports no renewal";
}

static bool is_held(const struct tenancy *p, int r, struct boot_time now)
{
        return r == 0 && p->lease != 0 && !p->leaving && boot_before(now, p->deadline) &&
               makes_sense(p, now);
}

/* When to look again if no change is reported. */
static struct boot_time look_next(const struct tenure *t, struct boot_time next, nsec_t after)
{
        return t->agent.watch >= 0 ? next : boot_min(next, boot_add(boot_now(), after));
}

static struct boot_time run_with_agent(struct loop_hook *hook, struct boot_time now)
{
        struct hold *h = container_of(hook, struct hold, hook);
        struct tenure *t = container_of(h, struct tenure, hold);
        struct page *page = &t->agent.page;
        const struct tenancy *p = &page->tenancy;
        struct boot_time jeopardy;
        int r = page_look(page);

        now = boot_now();
        /* Without these names, guarded writes could not compare the node's key. */
        if (!*t->agent.node || !*t->agent.cluster)
                return BOOT_TIME_NEVER;
        if (!h->given_back && is_held(p, r, now)) {
                h->letting_go = false;
                /* The agent first publishes that it leaves, and then looks for locks. So we
                 * take our lock first, and read the page again. */
                if (!page->locked) {
                        page_lock(page, true);
                        r = page_look(page);
                }
        }
        if (h->given_back || !is_held(p, r, now)) {
                lose(t, why_not(h, p, r, now));
                h->letting_go = page->locked;
                hold_came_back(t);
                return page->fd < 0 ? BOOT_TIME_NEVER
                                    : look_next(t, BOOT_TIME_NEVER, LOOK_UNKNOWN);
        }
        jeopardy = boot_add(p->deadline, -p->ttl / 8);
        if (boot_before(now, jeopardy)) {
                have(t, p->lease, TENURE_HELD, "");
                return look_next(t, jeopardy, p->ttl / LOOK_SHARE);
        }
        have(t, p->lease, TENURE_JEOPARDY,
             "the agent reports no renewal, and the deadline is near");
        return look_next(t, p->deadline, p->ttl / LOOK_SHARE);
}

/* ---- a lease of the tie's own ---- */

static void session_key(const struct tenure *t, struct buf *key)
{
        buf_printf(key, "/tenure/%s/sessions/%s", tenure_cluster(t), t->hold.name);
}

static void on_name_watched(const struct tenure_event *e, void *arg)
{
        struct tenure *t = arg;

        if (e->type == TENURE_DELETE)
                member_hurry(client_member(t->client));
}

/* Watches the key of the tie that has the name, in order to ask for the name as soon as it is
 * free. */
static void watch_name(struct tenure *t, int64_t revision)
{
        struct hold *h = &t->hold;
        cleanup_(buf_fini) struct buf key = {0};
        struct tenure_watch_options o = {.revision = revision + 1};

        h->watch = tenure_watch_free(h->watch);
        session_key(t, &key);
        o.key = buf_head(&key);
        o.key_len = buf_len(&key);
        if (buf_error(&key) == 0 && tenure_watch(t, &o, &h->watch) == 0)
                watch_into(h->watch, on_name_watched, t);
}

/* Another tie has the session's name. */
static void announce_taken(struct tenure *t, const char *by)
{
        struct hold *h = &t->hold;

        if (strcmp(h->taken, by) == 0)
                return;
        snprintf(h->taken, sizeof(h->taken), "%s", by);
        announce(t, TENURE_LOST, 0, tenure_fail(t, -EEXIST, "%s", by), by);
}

void hold_on_session(struct tenure *t, enum session_state state, const char *why)
{
        struct hold *h = &t->hold;
        const struct member *m = client_member(t->client);
        int64_t lease = member_session(m)->lease;

        switch (state) {
        case SESSION_HELD:
        case SESSION_JEOPARDY:
                h->taken[0] = '\0';
                h->watch = tenure_watch_free(h->watch);
                have(t, lease, state == SESSION_HELD ? TENURE_HELD : TENURE_JEOPARDY,
                     state == SESSION_HELD ? ""
                     : *why                ? why
                            : "no renewal is acknowledged, and the deadline is near");
                break;
        case SESSION_LOST:
                lose(t, why);
                break;
        case SESSION_LEFT:
                lose(t, "given back");
                break;
        case SESSION_JOINING:
                if (member_is_refused(m) == 0)
                        break;
                watch_name(t, member_is_refused(m));
                announce_taken(t, why);
                break;
        case SESSION_LEAVING:
                break;
        }
}

/* ---- questions of the program ---- */

static bool deadline(struct tenure *t, struct boot_time *ret)
{
        const struct hold *h = &t->hold;

        if (h->lease == 0 || h->lost > 0 || h->given_back || t->broken < 0)
                return false;
        if (h->kind == HOLD_AGENT) {
                const struct tenancy *p = &t->agent.page.tenancy;

                if (page_look(&t->agent.page) < 0 || p->lease != h->lease || p->leaving)
                        return false;
                *ret = p->deadline;
        } else {
                const struct session *s = member_session(client_member(t->client));

                if (s->lease != h->lease || !s->registered || !tenure_is_ours(t))
                        return false;
                *ret = session_deadline(s);
        }
        return true;
}

/* Only what we keep of the last look at the page changes, which callers cannot see. */
static struct tenure *at(const struct tenure *t)
{
        return (struct tenure *) (uintptr_t) t;
}

bool tenure_may_act(const struct tenure *t)
{
        struct boot_time end;

        return deadline(at(t), &end) && boot_is_ahead(&at(t)->hold.ahead, end);
}

uint64_t tenure_deadline(const struct tenure *t)
{
        struct boot_time end;

        return deadline(at(t), &end) && boot_is_ahead(&at(t)->hold.ahead, end)
                       ? (uint64_t) boot_usec(end)
                       : 0;
}

int64_t tenure_lease(const struct tenure *t)
{
        return tenure_may_act(t) ? t->hold.lease : 0;
}

static int begin(struct tenure *t)
{
        if (t->started)
                return tenure_fail(
                        t, -EBUSY,
                        "choose what the tie holds before tenure_start(), not after it");
        if (t->hold.kind != HOLD_NONE)
                return tenure_fail(t, -EBUSY,
                                   "this tie holds something already; make another tie");
        return 0;
}

int tenure_hold_with_agent(struct tenure *t)
{
        int r = begin(t);

        if (r < 0)
                return r;
        t->hold.kind = HOLD_AGENT;
        t->agent.place = true;
        return 0;
}

int tenure_hold_own(struct tenure *t, uint64_t ttl_ms, const char *name)
{
        struct hold *h = &t->hold;
        int r = begin(t);

        if (r < 0)
                return r;
        if (ttl_ms < TTL_MS_LEAST || ttl_ms > TTL_MS_MOST)
                return tenure_fail(t, -EINVAL,
                                   "a TTL is from %d to %d milliseconds, not %" PRIu64,
                                   TTL_MS_LEAST, TTL_MS_MOST, ttl_ms);
        if (name && !node_name_is_valid(name))
                return tenure_fail(
                        t, -EINVAL,
                        "a session's name has 1 to 255 letters, digits and . _ - :, without a "
                        "leading dot; '%s' is not one",
                        name);
        if (name)
                snprintf(h->name, sizeof(h->name), "%s", name);
        else
                r = tenure_draw_id(t, h->name);
        if (r < 0)
                return r;
        h->ttl_ms = ttl_ms;
        h->kind = HOLD_OWN;
        return 0;
}

int tenure_leave(struct tenure *t)
{
        struct hold *h = &t->hold;

        if (h->kind == HOLD_NONE || !t->started)
                return tenure_fail(t, -EINVAL,
                                   "this tie holds nothing that it could give back");
        if (!h->given_back && h->kind == HOLD_OWN)
                member_leave(client_member(t->client), "left", "");
        h->given_back = true;
        tenure_wake(t);
        return 0;
}

/* ---- ---- */

int64_t hold_key(const struct tenure *t, struct buf *key)
{
        const struct hold *h = &t->hold;

        if (!tenure_may_act(t))
                return 0;
        if (h->kind == HOLD_OWN)
                session_key(t, key);
        else if (*t->agent.cluster && *t->agent.node)
                buf_printf(key, "/tenure/%s/nodes/%s", t->agent.cluster, t->agent.node);
        else
                return 0;
        return h->lease;
}

/* Tags by which people who read the key know whose it is. */
static void describe(struct node_record *self)
{
        char host[HOST_NAME_MAX + 1] = "", pid[16];

        gethostname(host, sizeof(host) - 1);
        snprintf(pid, sizeof(pid), "%d", getpid());
        (void) !tags_set(self->tags, "host", host);
        (void) !tags_set(self->tags, "pid", pid);
        (void) !tags_set(self->tags, "program", program_invocation_short_name);
}

int hold_configure(struct tenure *t, struct client_config *cfg)
{
        struct hold *h = &t->hold;

        if (h->kind != HOLD_OWN)
                return 0;
        cfg->observe = false;
        cfg->sessions = true;
        cfg->session = (struct session_config){.ttl = (nsec_t) h->ttl_ms * NSEC_PER_MSEC,
                                               .drift_ppm = DRIFT_PPM,
                                               .retry = RETRY};
        snprintf(cfg->self.name, sizeof(cfg->self.name), "%s", h->name);
        snprintf(cfg->self.version, sizeof(cfg->self.version), "%s", TENURE_VERSION);
        describe(&cfg->self);
        /* Each program that wants the name gets another id, also after a restart, because
         * requests of its earlier life may still arrive. */
        return tenure_draw_id(t, cfg->self.id);
}

void hold_start(struct tenure *t)
{
        struct hold *h = &t->hold;

        if (h->kind != HOLD_AGENT)
                return;
        h->hook.what = "the place";
        loop_hook_start(&h->hook, t->loop, LOOP_ACT, run_with_agent);
}

void hold_soon(struct tenure *t)
{
        if (t->hold.hook.loop)
                loop_hook_again(&t->hold.hook);
}

void hold_fini(struct tenure *t)
{
        loop_hook_stop(&t->hold.hook);
}
