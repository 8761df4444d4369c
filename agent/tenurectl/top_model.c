#include "top_model.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"

/* An older answer of the core shows nothing about a member's renewals. */
#define FRESH (3 * NSEC_PER_SEC)

static const char *const state_words[] = {
        [TOP_LOST] = "lost",       [TOP_JEOPARDY] = "jeopardy",
        [TOP_LEFT] = "left",       [TOP_SUPPRESSED] = "suppressed",
        [TOP_LEAVING] = "leaving", [TOP_JOINING] = "joining",
        [TOP_HELD] = "held",
};

static const char *const sort_words[] = {
        [TOP_BY_NAME] = "node", [TOP_BY_STATE] = "state",       [TOP_BY_LEFT] = "left",
        [TOP_BY_TTL] = "ttl",   [TOP_BY_AGE] = "age",           [TOP_BY_ADDRESS] = "address",
        [TOP_BY_ZONE] = "zone", [TOP_BY_SERVICES] = "services",
};

const char *top_state_word(enum top_state s)
{
        return state_words[s];
}

const char *top_sort_word(enum top_sort s)
{
        return sort_words[s];
}

bool top_sort_parse(const char *word, enum top_sort *ret)
{
        for (size_t i = 0; i < ARRAY_SIZE(sort_words); i++)
                if (strcmp(word, sort_words[i]) == 0) {
                        *ret = (enum top_sort) i;
                        return true;
                }
        return false;
}

/* ---- members ---- */

static struct top_node *node_free(struct top_node *n)
{
        if (!n)
                return NULL;
        for (size_t i = 0; i < n->n_services; i++)
                free(n->services[i]);
        free(n->services);
        free(n->name);
        free(n->address);
        free(n->zone);
        free(n->tags);
        free(n->degraded);
        free(n->leaving);
        free(n->reason);
        free(n);
        return NULL;
}
DEFINE_CLEANUP(struct top_node *, node_free)

void top_model_fini(struct top_model *m)
{
        for (size_t i = 0; i < m->n_nodes; i++)
                node_free(m->nodes[i]);
        free(m->nodes);
        free(m->shown);
        *m = (struct top_model){0};
}

/* The index of the member, or where it would be inserted. */
static size_t place_of(const struct top_model *m, const char *name, bool *ret_there)
{
        size_t low = 0, high = m->n_nodes;

        *ret_there = false;
        while (low < high) {
                size_t mid = low + (high - low) / 2;
                int r = strcmp(m->nodes[mid]->name, name);

                if (r == 0) {
                        *ret_there = true;
                        return mid;
                }
                if (r < 0)
                        low = mid + 1;
                else
                        high = mid;
        }
        return low;
}

struct top_node *top_node_find(const struct top_model *m, const char *name)
{
        bool there;
        size_t i = place_of(m, name, &there);

        return there ? m->nodes[i] : NULL;
}

static int set(char **field, const char *value)
{
        char *copy;

        if (*field && strcmp(*field, value) == 0)
                return 0;
        copy = strdup(value);
        if (!copy)
                return -ENOMEM;
        free(*field);
        *field = copy;
        return 0;
}

static int fill(struct top_node *n, const struct top_facts *f)
{
        int r = set(&n->name, f->name);

        if (r == 0)
                r = set(&n->address, f->address);
        if (r == 0)
                r = set(&n->zone, f->zone);
        if (r == 0)
                r = set(&n->tags, f->tags);
        if (r == 0)
                r = set(&n->degraded, f->degraded);
        if (r == 0)
                r = set(&n->leaving, f->leaving);
        if (r == 0)
                r = set(&n->reason, "");
        if (r < 0)
                return r;
        n->ttl_ms = f->ttl_ms;
        n->since = f->since;
        return 0;
}

/* Finds the member of that name; with @f it is added if it does not exist yet. */
static int get(struct top_model *m, const struct top_facts *f, struct top_node **ret)
{
        cleanup_(node_freep) struct top_node *n = NULL;
        bool there;
        size_t at = place_of(m, f->name, &there);
        int r;

        if (there) {
                *ret = m->nodes[at];
                return 0;
        }
        n = calloc(1, sizeof(*n));
        if (!n)
                return -ENOMEM;
        n->left = -1;
        r = fill(n, f);
        if (r < 0)
                return r;
        r = array_insert(&m->nodes, &m->n_nodes, &m->cap_nodes, sizeof(*m->nodes), at);
        if (r < 0)
                return r;
        *ret = m->nodes[at] = take_ptr(n);
        return 0;
}

int top_node_put(struct top_model *m, const struct top_facts *f)
{
        struct top_node *n = NULL;
        int r = get(m, f, &n);

        if (r == 0)
                r = fill(n, f);
        if (r < 0)
                return r;
        if (n->lease != f->lease || !n->there)
                n->left = -1; /* the time was of an earlier lease */
        n->lease = f->lease;
        n->there = true;
        return 0;
}

int top_node_gone(struct top_model *m, const char *name, const char *reason,
                  struct boot_time now, int64_t wall)
{
        struct top_node *n = top_node_find(m, name);
        int r = n ? set(&n->reason, reason) : 0;

        if (!n || r < 0)
                return r;
        n->there = false;
        n->left_at = now;
        n->left_wall = wall;
        n->left = -1;
        return 0;
}

void top_node_left(struct top_node *n, nsec_t left, struct boot_time now)
{
        n->left = left;
        n->asked = now;
}

/* ---- services ---- */

static size_t service_place(const struct top_node *n, const char *name, bool *ret_there)
{
        size_t i = 0;

        while (i < n->n_services && strcmp(n->services[i], name) < 0)
                i++;
        *ret_there = i < n->n_services && strcmp(n->services[i], name) == 0;
        return i;
}

int top_service_put(struct top_model *m, const char *node, const char *name)
{
        struct top_node *n = top_node_find(m, node);
        char *copy;
        bool there;
        size_t at;
        int r;

        /* A member's own record comes before its services. */
        if (!n)
                return 0;
        at = service_place(n, name, &there);
        if (there)
                return 0;
        copy = strdup(name);
        if (!copy)
                return -ENOMEM;
        r = array_insert(&n->services, &n->n_services, &n->cap_services, sizeof(*n->services),
                         at);
        if (r < 0) {
                free(copy);
                return r;
        }
        n->services[at] = copy;
        return 0;
}

void top_service_gone(struct top_model *m, const char *node, const char *name)
{
        struct top_node *n = top_node_find(m, node);
        bool there;
        size_t at;

        if (!n)
                return;
        at = service_place(n, name, &there);
        if (!there)
                return;
        free(n->services[at]);
        n->n_services--;
        memmove(n->services + at, n->services + at + 1,
                (n->n_services - at) * sizeof(*n->services));
}

/* ---- replicas, locks ---- */

struct top_replica *top_replica_get(struct top_model *m, uint64_t id)
{
        struct top_replica *p;

        for (size_t i = 0; i < m->n_replicas; i++)
                if (m->replicas[i].id == id)
                        return &m->replicas[i];
        if (m->n_replicas == TOP_REPLICAS)
                return NULL;
        p = &m->replicas[m->n_replicas++];
        *p = (struct top_replica){.id = id, .clients = -1, .turn_us = -1};
        return p;
}

void top_replica_drop(struct top_model *m, size_t i)
{
        m->n_replicas--;
        memmove(m->replicas + i, m->replicas + i + 1,
                (m->n_replicas - i) * sizeof(*m->replicas));
}

static int by_name(const void *a, const void *b)
{
        const struct top_replica *p = a, *q = b;
        int r = strverscmp(p->name, q->name);

        return r != 0 ? r : (p->id > q->id) - (p->id < q->id);
}

void top_replicas_sort(struct top_model *m)
{
        qsort(m->replicas, m->n_replicas, sizeof(m->replicas[0]), by_name);
}

void top_replicas_compare(struct top_model *m)
{
        uint64_t furthest = 0;

        for (size_t i = 0; i < m->n_replicas; i++)
                if (m->replicas[i].answers)
                        furthest = max_of(furthest, m->replicas[i].applied);
        for (size_t i = 0; i < m->n_replicas; i++)
                m->replicas[i].behind = furthest - min_of(furthest, m->replicas[i].applied);
}

struct top_lock *top_lock_get(struct top_model *m, const char *name)
{
        struct top_lock *l;

        for (size_t i = 0; i < m->n_locks; i++)
                if (strcmp(m->locks[i].name, name) == 0)
                        return &m->locks[i];
        if (m->n_locks == TOP_LOCKS || strlen(name) >= sizeof(l->name))
                return NULL;
        l = &m->locks[m->n_locks++];
        *l = (struct top_lock){0};
        strcpy(l->name, name);
        return l;
}

void top_lock_drop(struct top_model *m, size_t i)
{
        m->n_locks--;
        memmove(m->locks + i, m->locks + i + 1, (m->n_locks - i) * sizeof(*m->locks));
}

/* ---- events ---- */

void top_event(struct top_model *m, int64_t at, enum top_weight w, const char *fmt, ...)
{
        struct top_event *e;
        size_t i = m->n_events++, kept = min_of(i, (size_t) TOP_EVENTS - 1);
        va_list ap;

        for (; kept > 0 && m->events[(i - 1) % TOP_EVENTS].at > at; i--, kept--)
                m->events[i % TOP_EVENTS] = m->events[(i - 1) % TOP_EVENTS];
        e = &m->events[i % TOP_EVENTS];
        e->at = at;
        e->weight = w;
        va_start(ap, fmt);
        utf8_vprint(e->text, sizeof(e->text), fmt, ap);
        va_end(ap);
}

const struct top_event *top_event_at(const struct top_model *m, size_t back)
{
        if (back >= min_of(m->n_events, (size_t) TOP_EVENTS))
                return NULL;
        return &m->events[(m->n_events - 1 - back) % TOP_EVENTS];
}

/* ---- what is shown ---- */

bool top_node_is_host(const struct top_model *m, const struct top_node *n)
{
        return m->host.known && strcmp(m->host.node, n->name) == 0;
}

bool top_node_is_lost(const struct top_node *n)
{
        return !n->there && strcmp(n->reason, "expired") == 0;
}

/* The state by the agent of this host, which knows of a loss before the core does. HELD: the
 * agent reports nothing else than the core. */
static enum top_state state_by_agent(const struct top_model *m)
{
        for (size_t i = 0; i < TOP_HELD; i++)
                if (strcmp(m->host.state, state_words[i]) == 0)
                        return (enum top_state) i;
        return TOP_HELD;
}

enum top_state top_node_state(const struct top_model *m, const struct top_node *n,
                              struct boot_time now)
{
        if (!n->there && top_node_is_host(m, n) && boot_before(now, m->host.rest_until))
                return TOP_SUPPRESSED;
        if (top_node_is_host(m, n) && state_by_agent(m) != TOP_HELD)
                return state_by_agent(m);
        if (!n->there)
                return top_node_is_lost(n) ? TOP_LOST : TOP_LEFT;
        if (*n->leaving)
                return TOP_LEAVING;
        /* The holder's definition of jeopardy: no renewal in the last 7/8 of the TTL. */
        if (n->left >= 0 && boot_diff(now, n->asked) < FRESH &&
            n->left < (nsec_t) (n->ttl_ms * (uint64_t) NSEC_PER_MSEC / 8))
                return TOP_JEOPARDY;
        return TOP_HELD;
}

const char *top_node_note(const struct top_node *n)
{
        if (!n->there)
                return n->reason;
        return *n->leaving ? n->leaving : n->degraded;
}

static bool contains(const char *text, const char *word, size_t len)
{
        for (; *text; text++)
                if (strncasecmp(text, word, len) == 0)
                        return true;
        return len == 0;
}

static bool has_word(const struct top_model *m, const struct top_node *n, struct boot_time now,
                     const char *word, size_t len)
{
        const char *const fields[] = {n->name,
                                      n->address,
                                      n->tags,
                                      top_node_note(n),
                                      *n->degraded ? "degraded" : "",
                                      top_state_word(top_node_state(m, n, now))};

        for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
                if (contains(fields[i], word, len))
                        return true;
        for (size_t i = 0; i < n->n_services; i++)
                if (contains(n->services[i], word, len))
                        return true;
        return false;
}

bool top_node_passes(const struct top_model *m, const struct top_node *n, struct boot_time now)
{
        const char *p = m->filter;

        for (;;) {
                bool not ;
                size_t len;

                p += strspn(p, " ");
                not = *p == '!';
                p += not ;
                len = strcspn(p, " ");
                if (len == 0 && !not )
                        return true;
                if (len > 0 && has_word(m, n, now, p, len) == not )
                        return false;
                p += len;
        }
}

static int compare_numbers(int64_t a, int64_t b)
{
        return (a > b) - (a < b);
}

struct sorting {
        const struct top_model *m;
        struct boot_time now;
};

/* A member that has gone has no time left, and comes after those that have some. */
static int compare(const struct sorting *s, const struct top_node *a, const struct top_node *b)
{
        switch (s->m->sort) {
        case TOP_BY_STATE: {
                int r = compare_numbers((int64_t) top_node_state(s->m, a, s->now),
                                        (int64_t) top_node_state(s->m, b, s->now));

                return r != 0 ? r : compare_numbers(!*a->degraded, !*b->degraded);
        }
        case TOP_BY_LEFT:
                return compare_numbers(a->left < 0, b->left < 0) != 0
                               ? compare_numbers(a->left < 0, b->left < 0)
                               : compare_numbers(a->left, b->left);
        case TOP_BY_TTL:
                return compare_numbers((int64_t) a->ttl_ms, (int64_t) b->ttl_ms);
        case TOP_BY_AGE: /* the youngest first */
                return compare_numbers(b->since, a->since);
        case TOP_BY_ADDRESS: {
                size_t n = strlen(a->address), k = strlen(b->address);
                int r = strverscmp(a->address, b->address);

                return n == 0 || k == 0 ? compare_numbers(n == 0, k == 0) : r;
        }
        case TOP_BY_ZONE:
                return strcmp(a->zone, b->zone);
        case TOP_BY_SERVICES: /* the most first */
                return compare_numbers((int64_t) b->n_services, (int64_t) a->n_services);
        case TOP_BY_NAME:
        case TOP_SORTS:
                break;
        }
        return 0;
}

static int by_sort(const void *a, const void *b, void *arg)
{
        const struct top_node *const *p = a, *const *q = b;
        const struct sorting *s = arg;
        int r = compare(s, *p, *q);

        if (r == 0) /* node2 before node10 */
                r = strverscmp((*p)->name, (*q)->name);
        return s->m->reverse ? -r : r;
}

static void forget(struct top_model *m, struct boot_time now)
{
        size_t kept = 0;

        for (size_t i = 0; i < m->n_nodes; i++) {
                struct top_node *n = m->nodes[i];
                nsec_t keep = top_node_is_lost(n) ? TOP_LOST_FOR : TOP_GONE_FOR;

                if (!n->there && boot_diff(now, n->left_at) > keep)
                        node_free(n);
                else
                        m->nodes[kept++] = n;
        }
        m->n_nodes = kept;
}

int top_arrange(struct top_model *m, struct boot_time now)
{
        struct sorting s = {.m = m, .now = now};

        m->n_shown = 0; /* no row refers to a member now, so old ones can be dropped */
        forget(m, now);
        if (array_reserve(&m->shown, &m->cap_shown, m->n_nodes, sizeof(*m->shown)) < 0)
                return -ENOMEM;
        m->n_there = m->n_degraded = m->n_services = 0;
        memset(m->n_states, 0, sizeof(m->n_states));
        for (size_t i = 0; i < m->n_nodes; i++) {
                struct top_node *n = m->nodes[i];

                m->n_there += n->there;
                m->n_degraded += n->there && *n->degraded;
                m->n_services += n->there ? n->n_services : 0;
                m->n_states[top_node_state(m, n, now)]++;
                if (top_node_passes(m, n, now))
                        m->shown[m->n_shown++] = n;
        }
        if (m->n_shown > 0)
                qsort_r(m->shown, m->n_shown, sizeof(*m->shown), by_sort, &s);
        return 0;
}
