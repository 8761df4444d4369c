#include "top_feed.h"

#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "base/utf8.h"
#include "member/lock_name.h"
#include "text.h"

/* With at most this many members, the remaining time of all leases is read, shown or not. */
#define ALL_UP_TO 300
#define CALLS 512 /* under way at the same time */
/* The locks are asked for once in so many rounds. */
#define LOCKS_EACH 5
#define SESSIONS 256
#define LINE 32 /* candidates of a lock that are named */
/* A question that the core does not answer for this long is given up for good. */
#define GIVE_UP_AFTER (10 * NSEC_PER_SEC)

enum question { LEASE, KEYS, LOCK, SESSION_LIST, PERMISSION };

struct asked {
        struct tenure_call *call; /* NULL: free */
        enum question what;
        char name[TOP_NAME * 2]; /* name of the member or the lock */
        struct boot_time at;
};

/* The owner of a lease that is not a member: a session of libtenure. */
struct session {
        char name[TOP_NAME];
        int64_t lease;
};

struct top_feed {
        struct tenure *tenure;
        struct top_model *model;
        struct loop *loop;
        struct loop_io io;
        struct loop_hook hook;
        struct asked asked[CALLS];
        size_t n_asked;
        struct session sessions[SESSIONS];
        size_t n_sessions;
        unsigned round;
        char refused[TOP_REASON]; /* why the members could not be read, or "" */
        bool forbidden;           /* because permission is missing */
        int error;
};

/* ---- members ---- */

static int64_t since_of(const char *text)
{
        struct tm tm = {0};

        return strptime(text, "%Y-%m-%dT%H:%M:%S", &tm) ? (int64_t) timegm(&tm) : 0;
}

static int put_node(struct top_feed *f, const struct tenure_node *n)
{
        char address[TOP_NAME], zone[TOP_NAME];
        struct top_facts facts = {.name = n->name,
                                  .address = address,
                                  .zone = zone,
                                  .tags = n->tags,
                                  .degraded = n->degraded,
                                  .leaving = n->leaving,
                                  .lease = n->lease,
                                  .ttl_ms = n->ttl_ms,
                                  .since = since_of(n->since)};

        snprintf(address, sizeof(address), "%.*s", (int) strcspn(n->addresses, ","),
                 n->addresses);
        if (tenure_tag(n->tags, "zone", zone, sizeof(zone)) < 0)
                *zone = '\0';
        return top_node_put(f->model, &facts);
}

/* Reports what has changed about a known member. */
static void report_change(struct top_feed *f, const struct tenure_node *n)
{
        const struct top_node *was = top_node_find(f->model, n->name);
        int64_t at = time(NULL);

        if (!was)
                return;
        if (*n->leaving && strcmp(was->leaving, n->leaving) != 0)
                top_event(f->model, at, TOP_WARNING, "%s is leaving: %s", n->name, n->leaving);
        else if (*n->degraded && strcmp(was->degraded, n->degraded) != 0)
                top_event(f->model, at, TOP_WARNING, "%s is degraded: %s", n->name,
                          n->degraded);
        else if (!*n->degraded && *was->degraded)
                top_event(f->model, at, TOP_NEWS, "%s is well again", n->name);
        else if (strcmp(n->tags, was->tags) != 0)
                top_event(f->model, at, TOP_NEWS, "%s has other tags: %s", n->name, n->tags);
}

static int on_node(struct top_feed *f, const struct tenure_event *e)
{
        const struct tenure_node *n = e->node;

        if (e->type == TENURE_NODE_LEFT) {
                top_event(f->model, time(NULL),
                          strcmp(e->reason, "expired") == 0 ? TOP_BAD : TOP_NEWS, "%s left: %s",
                          n->name, e->reason);
                return top_node_gone(f->model, n->name, e->reason, loop_now(f->loop),
                                     time(NULL));
        }
        /* Only changes after the start are events. */
        if (f->model->ever && e->type == TENURE_NODE_JOINED)
                top_event(f->model, time(NULL), TOP_NEWS, "%s joined", n->name);
        else if (f->model->ever)
                report_change(f, n);
        return put_node(f, n);
}

static int on_service(struct top_feed *f, const struct tenure_event *e)
{
        const struct tenure_service *s = e->service;
        char name[2 * TOP_NAME];

        snprintf(name, sizeof(name), "%s%s%s", s->name, *s->instance ? "/" : "", s->instance);
        if (e->type == TENURE_SERVICE_REMOVED) {
                top_event(f->model, time(NULL), TOP_NEWS, "service %s on %s is gone: %s", name,
                          s->node, e->reason);
                top_service_gone(f->model, s->node, name);
                return 0;
        }
        if (f->model->ever && e->type == TENURE_SERVICE_ADDED)
                top_event(f->model, time(NULL), TOP_NEWS, "service %s on %s is available", name,
                          s->node);
        return top_service_put(f->model, s->node, name);
}

static void on_followed(struct top_feed *f, bool followed)
{
        struct top_model *m = f->model;

        if (followed && m->ever && !m->followed)
                top_event(m, time(NULL), TOP_NEWS, "the cluster is followed again");
        else if (!followed && m->followed) {
                m->stale_since = time(NULL);
                top_event(m, m->stale_since, TOP_BAD,
                          "the cluster is no longer followed: the core does not answer");
        }
        m->followed = followed;
        *f->refused = '\0';
        f->forbidden = false;
        if (followed && !m->ever)
                m->first_revision = m->revision;
        m->ever = m->ever || followed;
}

/* ---- answers ---- */

static struct session *session_of(struct top_feed *f, int64_t lease)
{
        for (size_t i = 0; i < f->n_sessions; i++)
                if (f->sessions[i].lease == lease)
                        return &f->sessions[i];
        return NULL;
}

/* The owner of a lease: a member's name, a session's, or the lease's number. */
static void name_of_lease(struct top_feed *f, int64_t lease, char out[TOP_NAME])
{
        const struct session *s = session_of(f, lease);

        for (size_t i = 0; i < f->model->n_nodes; i++)
                if (f->model->nodes[i]->there && f->model->nodes[i]->lease == lease) {
                        snprintf(out, TOP_NAME, "%s", f->model->nodes[i]->name);
                        return;
                }
        if (s)
                snprintf(out, TOP_NAME, "%s", s->name);
        else
                snprintf(out, TOP_NAME, "lease %016" PRIx64, (uint64_t) lease);
}

/* A key that ends with the number of its lease is a request for a lock, or a candidate in an
 * election. */
static void take_lock_names(struct top_feed *f, const struct tenure_call *c)
{
        int64_t lease = tenure_call_lease(c);
        char end[24], name[TOP_NAME];
        size_t len = (size_t) snprintf(end, sizeof(end), "/%" PRIx64, (uint64_t) lease);

        for (size_t i = 0; i < tenure_call_n_kvs(c, 0); i++) {
                const struct tenure_kv *kv = tenure_call_kv(c, 0, i);
                size_t n = kv->key_len;
                struct top_lock *l;

                if (n <= len || n - len >= sizeof(name) ||
                    memcmp((const char *) kv->key + n - len, end, len) != 0)
                        continue;
                memcpy(name, kv->key, n - len);
                name[n - len] = '\0';
                if (strlen(name) != n - len)
                        continue;
                l = top_lock_get(f->model, name);
                if (l)
                        l->round = f->round;
        }
}

/* Inserts @kv into the line, which has the @n oldest candidates so far. Returns how many it has
 * then. */
static size_t line_up(const struct tenure_kv *line[static LINE], size_t n,
                      const struct tenure_kv *kv)
{
        size_t at = n < LINE ? n++ : LINE - 1;

        if (at == LINE - 1 && line[at] && line[at]->create_revision < kv->create_revision)
                return n;
        for (; at > 0 && line[at - 1]->create_revision > kv->create_revision; at--)
                line[at] = line[at - 1];
        line[at] = kv;
        return n;
}

/* The candidate that asked first has the lock. */
static void take_lock(struct top_feed *f, const struct asked *a)
{
        const struct tenure_kv *line[LINE] = {NULL};
        size_t n = 0, at = 0, all = 0;
        struct top_lock *l = NULL;
        char who[TOP_NAME];
        size_t i;

        for (i = 0; i < f->model->n_locks; i++)
                if (strcmp(f->model->locks[i].name, a->name) == 0) {
                        l = &f->model->locks[i];
                        break;
                }
        if (!l)
                return;
        for (size_t k = 0; k < tenure_call_n_kvs(a->call, 0); k++) {
                const struct tenure_kv *kv = tenure_call_kv(a->call, 0, k);

                if (kv->lease == 0 || !lock_name_has(l->name, kv->key, kv->key_len))
                        continue;
                n = line_up(line, n, kv);
                all++;
        }
        if (n == 0)
                return top_lock_drop(f->model, i);
        name_of_lease(f, line[0]->lease, who);
        if (*l->holder && l->token != line[0]->create_revision)
                top_event(f->model, time(NULL), TOP_NEWS, "lock %s: %s has it, %s had it",
                          l->name, who, l->holder);
        snprintf(l->holder, sizeof(l->holder), "%s", who);
        l->token = line[0]->create_revision;
        l->n_waiting = all - 1;
        *l->waiting = '\0';
        for (size_t k = 1; k < n && at < sizeof(l->waiting); k++) {
                name_of_lease(f, line[k]->lease, who);
                at += (size_t) snprintf(l->waiting + at, sizeof(l->waiting) - at, "%s%s",
                                        k > 1 ? ", " : "", who);
        }
}

static void take_sessions(struct top_feed *f, const struct tenure_call *c)
{
        f->n_sessions = 0;
        for (size_t i = 0; i < tenure_call_n_kvs(c, 0) && f->n_sessions < SESSIONS; i++) {
                const struct tenure_kv *kv = tenure_call_kv(c, 0, i);
                const char *slash = memrchr(kv->key, '/', kv->key_len);
                struct session *s = &f->sessions[f->n_sessions];

                if (!slash || kv->lease == 0)
                        continue;
                snprintf(s->name, sizeof(s->name), "%s", slash + 1);
                s->lease = kv->lease;
                f->n_sessions++;
        }
}

static void refused(struct top_feed *f, const struct tenure_call *c)
{
        utf8_print(f->refused, sizeof(f->refused), "%s", tenure_call_error(c));
        f->forbidden = tenure_call_result(c) == -EACCES;
}

static void take_answer(struct top_feed *f, struct asked *a, struct boot_time now)
{
        struct top_node *n = a->what == LOCK ? NULL : top_node_find(f->model, a->name);

        if (a->what == PERMISSION)
                refused(f, a->call);
        if (tenure_call_result(a->call) < 0)
                return;
        if (n && n->there && n->lease == tenure_call_lease(a->call))
                top_node_left(n, tenure_call_ttl_ms(a->call) * NSEC_PER_MSEC, now);
        if (a->what == KEYS)
                take_lock_names(f, a->call);
        else if (a->what == LOCK)
                take_lock(f, a);
        else if (a->what == SESSION_LIST)
                take_sessions(f, a->call);
}

static void drop(struct top_feed *f, struct asked *a)
{
        a->call = tenure_call_free(a->call);
        f->n_asked--;
}

static void on_reply(struct top_feed *f, const struct tenure_call *c, struct boot_time now)
{
        for (size_t i = 0; i < CALLS; i++)
                if (f->asked[i].call == c) {
                        take_answer(f, &f->asked[i], now);
                        return drop(f, &f->asked[i]);
                }
}

static struct boot_time run(struct loop_hook *h, struct boot_time now)
{
        struct top_feed *f = container_of(h, struct top_feed, hook);
        const struct tenure_event *e;
        int r = f->error == 0 ? tenure_dispatch(f->tenure) : f->error;

        while (r == 0 && (e = tenure_pop_event(f->tenure))) {
                if (e->revision > 0)
                        f->model->revision = max_of(f->model->revision, e->revision);
                if (e->node)
                        r = on_node(f, e);
                else if (e->service)
                        r = on_service(f, e);
                else if (e->type == TENURE_SYNCED || e->type == TENURE_STALE)
                        on_followed(f, e->type == TENURE_SYNCED);
                else if (e->type == TENURE_REPLY)
                        on_reply(f, e->call, now);
        }
        if (r < 0)
                f->error = r;
        utf8_print(f->model->down, sizeof(f->model->down), "%s",
                   *f->refused ? f->refused : tenure_error(f->tenure));
        return f->error == 0 && tenure_get_timeout(f->tenure) == 0 ? now : BOOT_TIME_NEVER;
}

static void on_readable(struct loop_io *io, int events)
{
        (void) io; /* the hook runs in each turn */
        (void) events;
}

/* ---- questions ---- */

static bool is_asked(const struct top_feed *f, enum question what, const char *name)
{
        for (size_t i = 0; i < CALLS; i++)
                if (f->asked[i].call && (f->asked[i].what == what) &&
                    strcmp(f->asked[i].name, name) == 0)
                        return true;
        return false;
}

static struct asked *slot(struct top_feed *f)
{
        for (size_t i = 0; i < CALLS; i++)
                if (!f->asked[i].call)
                        return &f->asked[i];
        return NULL;
}

static void ask(struct top_feed *f, enum question what, const char *name, int64_t lease,
                struct boot_time now)
{
        static const char *const around[][2] = {[LOCK] = {"", "/"},
                                                [SESSION_LIST] = {"/tenure/", "/sessions/"},
                                                [PERMISSION] = {"/tenure/", "/nodes/"}};
        struct asked *a = is_asked(f, what, name) ? NULL : slot(f);
        char prefix[3 * TOP_NAME];
        struct tenure_range q = {.key = prefix, .prefix = true};
        int r;

        if (!a || strlen(name) >= sizeof(a->name))
                return;
        switch (what) {
        case LEASE:
                r = tenure_lease_time_to_live(f->tenure, lease, &a->call);
                break;
        case KEYS:
                r = tenure_lease_keys(f->tenure, lease, &a->call);
                break;
        case LOCK:
        case SESSION_LIST:
        case PERMISSION:
        default:
                q.key_len = (size_t) snprintf(prefix, sizeof(prefix), "%s%s%s", around[what][0],
                                              name, around[what][1]);
                q.keys_only = true;
                q.limit =
                        what == LOCK
                                ? 0
                                : SESSIONS; /* any of them may be the one that has the lease */
                r = tenure_get(f->tenure, &q, &a->call);
        }
        if (r < 0) {
                a->call = NULL;
                return;
        }
        a->what = what;
        a->at = now;
        strcpy(a->name, name);
        f->n_asked++;
}

static void ask_node(struct top_feed *f, const struct top_node *n, bool keys,
                     struct boot_time now)
{
        if (n->there && n->lease != 0)
                ask(f, keys ? KEYS : LEASE, n->name, n->lease, now);
}

void top_feed_ask(struct top_feed *f, size_t first, size_t n, struct boot_time now,
                  int64_t wall)
{
        struct top_model *m = f->model;
        bool keys = f->round % LOCKS_EACH == 0;

        if (!m->followed && m->stale_since == 0)
                m->stale_since = wall;
        for (size_t i = 0; i < CALLS; i++)
                if (f->asked[i].call && boot_diff(now, f->asked[i].at) > GIVE_UP_AFTER)
                        drop(f, &f->asked[i]);
        if (!m->followed)
                return ask(f, PERMISSION, m->cluster, 0, now);
        for (size_t i = first; i < first + n && i < m->n_shown; i++)
                ask_node(f, m->shown[i], keys, now);
        for (size_t i = 0; m->n_nodes <= ALL_UP_TO && i < m->n_nodes; i++)
                if (!is_asked(f, keys ? KEYS : LEASE, m->nodes[i]->name))
                        ask_node(f, m->nodes[i], keys, now);
        if (keys)
                ask(f, SESSION_LIST, m->cluster, 0, now);
        for (size_t i = 0; keys && i < f->n_sessions; i++)
                ask(f, KEYS, f->sessions[i].name, f->sessions[i].lease, now);
        for (size_t i = 0; i < m->n_locks; i++)
                ask(f, LOCK, m->locks[i].name, 0, now);
        f->round++;
}

bool top_feed_is_settled(const struct top_feed *f)
{
        return f->n_asked == 0;
}

bool top_feed_is_refused(const struct top_feed *f)
{
        return f->forbidden;
}

int top_feed_error(const struct top_feed *f)
{
        return f->error;
}

int top_feed_new(struct top_feed **ret, struct loop *l, struct top_model *m, struct tenure *t)
{
        struct top_feed *f = calloc(1, sizeof(*f));
        int r;

        if (!f)
                return -ENOMEM;
        f->tenure = t;
        f->model = m;
        f->loop = l;
        r = tenure_follow(t, TENURE_NODES | TENURE_SERVICES);
        if (r == 0)
                r = tenure_start(t);
        if (r < 0) {
                free(f);
                return r;
        }
        f->io.what = f->hook.what = "libtenure";
        loop_io_start(&f->io, l, tenure_get_fd(t), EV_READ, on_readable);
        loop_hook_start(&f->hook, l, LOOP_DECIDE, run);
        /* Without permission to read the members, the watch stays silent; a direct question
         * gets an error. */
        ask(f, PERMISSION, m->cluster, 0, loop_now(l));
        *ret = f;
        return 0;
}

struct top_feed *top_feed_free(struct top_feed *f)
{
        if (!f)
                return NULL;
        loop_hook_stop(&f->hook);
        loop_io_stop(&f->io);
        for (size_t i = 0; i < CALLS; i++)
                tenure_call_free(f->asked[i].call);
        free(f);
        return NULL;
}
