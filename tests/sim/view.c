/* What happened to the keys of nodes and services, as replicas applied it, and whether each
 * agent was informed: every change once, in order, none left out (I6). Other cores have
 * histories of their own (elsewhere.c): what an agent knows must always come from one of them
 * (I10). */
#include <stdio.h>

#include "hoard.h"
#include "member/member.h"
#include "units.h"
#include "world.h"

#define FACTS_MAX 16384
#define HISTORIES_MAX 24
#define NODES "/tenure/sim/nodes/"
#define SERVICES "/tenure/sim/services/"

/* A change of a key. */
struct fact {
        int64_t revision, lease; /* lease 0: the key was deleted */
        unsigned key;
};

/* The first one is ours. */
static struct history {
        struct fact facts[FACTS_MAX];
        size_t n;
        int64_t known;   /* the revision up to which the facts are known */
        bool incomplete; /* a compaction was faster, or there were too many facts */
} histories[HISTORIES_MAX];
static unsigned n_histories;

static void begin(struct history *y)
{
        y->n = 0;
        y->known = 1;
        y->incomplete = false;
}

void view_reset(void)
{
        n_histories = 1;
        begin(&histories[0]);
}

bool view_histories_left(void)
{
        return n_histories < HISTORIES_MAX;
}

unsigned view_new_history(void)
{
        begin(&histories[n_histories]);
        return n_histories++;
}

unsigned view_node(const char *node)
{
        unsigned host;

        if (sscanf(node, "host%u", &host) != 1 || host >= NAMES_MAX)
                abort();
        return host;
}

unsigned view_service(const char *service, const char *node)
{
        unsigned n;

        if (sscanf(service, "svc%u", &n) != 1 || n >= SERVICES_MAX)
                abort();
        return NAMES_MAX + view_node(node) * SERVICES_MAX + n;
}

static bool key_of(const struct kv_key *k, unsigned *ret)
{
        char text[128], service[32];
        size_t len = min_of(k->len, sizeof(text) - 1);

        if (memchr(k->bytes, '\0', k->len))
                return false; /* no name has a zero byte */
        memcpy(text, k->bytes, len);
        text[len] = '\0';
        if (strncmp(text, NODES HOARD_FLEET_NAME, strlen(NODES HOARD_FLEET_NAME)) == 0)
                return false;
        if (strncmp(text, NODES, strlen(NODES)) == 0)
                *ret = view_node(text + strlen(NODES));
        else if (strncmp(text, SERVICES, strlen(SERVICES)) == 0 &&
                 sscanf(text + strlen(SERVICES), "%31[^/]/", service) == 1)
                *ret = view_service(service, text + strlen(SERVICES) + strlen(service) + 1);
        else
                return false;
        return true;
}

void view_applied(unsigned history, const struct state *s, int64_t upto)
{
        struct history *y = &histories[history];
        const struct kv *kv = &s->kv;
        bool nodes = false;

        if (upto <= y->known || y->incomplete)
                return;
        y->incomplete = kv->compacted > y->known + 1;
        for (size_t i = kv_history_seek(kv, y->known + 1); i < kv->history_to; i++) {
                const struct kv_version *v = kv_history_at(kv, i);
                unsigned key;

                if (v->mod_revision > upto)
                        break;
                if (!key_of(v->key, &key))
                        continue;
                if (y->n == FACTS_MAX)
                        return fail_full(W, "changes of nodes and services");
                if (history == 0 && key < NAMES_MAX && v->version == 0 && v->older)
                        listed_gone(s, v->older->lease);
                nodes |= key < NAMES_MAX;
                y->facts[y->n++] = (struct fact){.revision = v->mod_revision,
                                                 .lease = v->version > 0 ? v->lease : 0,
                                                 .key = key};
        }
        if (history == 0 && nodes)
                listed_check(s, y->known);
        y->known = upto;
}

bool view_has_news(int64_t revision)
{
        const struct history *y = &histories[0];

        return y->n > 0 && y->facts[y->n - 1].revision > revision;
}

/* ---- what an agent is told ---- */

void view_begin(struct holder *h)
{
        memset(&h->view, 0, sizeof(h->view));
        hoard_agent_begins(h);
}

/* An event of a watch comes after everything that was told before. (A range ends for nodes
 * first, and then for services.) */
static void check_order(struct holder *h, int64_t revision, bool ends_range)
{
        int64_t all = member_nodes(h->member)->revision - ends_range;
        int64_t last = h->view.last_behind == all ? h->view.last : 0;

        if (all > 0 && (revision <= all || revision < last))
                fail(W, "I6: holder %u was told of revision %lld when it knew all up to %lld",
                     h->i, (long long) revision, (long long) max_of(all, last));
        h->view.last = all > 0 ? revision : 0;
        h->view.last_behind = all;
        W->counts.changes_delivered++;
}

void view_put(struct holder *h, unsigned key, bool is_new, int64_t lease, int64_t mod,
              int64_t revision)
{
        struct seen_key *k = &h->view.keys[key];
        /* A range may come from another core. */
        bool anew = (W->strangers || W->forced) && member_nodes(h->member)->revision == 0;

        check_order(h, revision, false);
        if (is_new ? k->lease != 0 : k->lease == 0 || (mod <= k->mod && !anew))
                fail(W, "I6: holder %u was told of key %u at revision %lld, %s", h->i, key,
                     (long long) revision,
                     is_new          ? "that it is there, twice"
                     : k->lease == 0 ? "that it changed, and it is not there"
                                     : "again");
        k->lease = lease;
        k->mod = mod;
}

void view_gone(struct holder *h, unsigned key, int64_t revision)
{
        check_order(h, revision, key >= NAMES_MAX);
        if (h->view.keys[key].lease == 0)
                fail(W, "I6: holder %u was told twice that key %u is gone", h->i, key);
        h->view.keys[key] = (struct seen_key){0};
}

/* A service whose node has left: an agent that saw the node leave counts the service as gone,
 * and one that comes later sees it, for as long as the old lease lives. */
static bool is_left_over(const struct seen_view *v, unsigned key)
{
        return key >= NAMES_MAX &&
               v->leases[key] != v->leases[(key - NAMES_MAX) / SERVICES_MAX];
}

/* Advances `leases` to @revision of that history. */
static void go_to(struct seen_view *v, unsigned history, int64_t revision)
{
        const struct history *y = &histories[history];

        if (v->of != history ||
            (v->n_facts > 0 && y->facts[v->n_facts - 1].revision > revision)) {
                v->of = history;
                v->n_facts = 0;
                memset(v->leases, 0, sizeof(v->leases));
        }
        for (; v->n_facts < y->n && y->facts[v->n_facts].revision <= revision; v->n_facts++)
                v->leases[y->facts[v->n_facts].key] = y->facts[v->n_facts].lease;
}

/* The first key about which the agent is wrong; VIEW_KEYS: none. */
static unsigned first_wrong(const struct seen_view *v)
{
        unsigned i = 0;

        while (i < VIEW_KEYS && (v->leases[i] == v->keys[i].lease || is_left_over(v, i)))
                i++;
        return i;
}

static void fail_key(struct world *w, const struct holder *h, unsigned key, int64_t revision)
{
        const struct seen_view *v = &h->view;

        fail(w, "I6: holder %u takes key %u at revision %lld for %s %llx, and it was %s %llx%s",
             h->i, key, (long long) revision, v->keys[key].lease ? "under lease" : "gone",
             (unsigned long long) v->keys[key].lease, v->leases[key] ? "under lease" : "gone",
             (unsigned long long) v->leases[key],
             n_histories > 1 ? ", in the core that it follows" : "");
}

/* Whether everything up to @revision is known. */
static bool is_known(const struct world *w, unsigned history, int64_t revision)
{
        const struct history *y = &histories[history];

        /* Of an entry that is half applied, whole revisions may be reported. */
        for (unsigned i = 0; history == 0 && i < w->n_replicas && revision > y->known; i++)
                if (w->r[i].up && core_state(w->r[i].node.core)->revision >= revision)
                        view_applied(0, core_state(w->r[i].node.core), revision);
        return !y->incomplete && revision <= y->known;
}

/* The agent was told everything up to this revision: does it agree with one of the histories?
 * After a range it may be any of them; from then on it stays the same one. */
void view_check(struct world *w, struct holder *h)
{
        int64_t revision = member_nodes(h->member)->revision;
        struct seen_view *v = &h->view;

        if (revision == v->at)
                return;
        hoard_agent_knows(w, h, revision);
        if (v->at == 0)
                v->may = (1u << n_histories) - 1;
        if (revision == 0) {
                v->at = 0;
                return;
        }
        for (unsigned k = 0; k < n_histories; k++) {
                unsigned key;

                if (!(v->may & 1u << k))
                        continue;
                /* The replica that told it is gone; others have it, or will have it. */
                if (!is_known(w, k, revision)) {
                        if (v->may == 1u << k)
                                return;
                        continue;
                }
                go_to(v, k, revision);
                key = first_wrong(v);
                if (key == VIEW_KEYS)
                        continue;
                v->may &= ~(1u << k);
                if (v->may == 0)
                        return fail_key(w, h, key, revision);
        }
        v->at = revision;
}

bool view_knows_all(const struct holder *h)
{
        const struct history *y = &histories[0];

        return y->incomplete || y->n == 0 ||
               (member_synced(h->member) && (h->view.may & 1) &&
                h->view.at == member_nodes(h->member)->revision &&
                h->view.at >= y->facts[y->n - 1].revision);
}

static bool is_node_published(const struct holder *h, const struct state *s)
{
        const char *degraded = h->units ? h->units->steady.degraded.why : "";
        char name[64];
        struct node_record r;
        const struct kv_key *k;

        snprintf(name, sizeof(name), NODES "host%u", h->name);
        k = kv_find(&s->kv, name, strlen(name));
        return k && kv_live(k) && k->newest->lease == h->lease &&
               node_record_read(&r, k->newest->value, k->newest->value_len) == 0 &&
               strcmp(r.addresses, h->addresses) == 0 && strcmp(r.degraded, degraded) == 0;
}

bool view_is_published(const struct holder *h)
{
        const struct state *s = core_state(W->r[0].node.core);

        if (!is_node_published(h, s))
                return false;

        for (unsigned i = 0; i < SERVICES_MAX; i++) {
                char name[64];
                struct service_record r;
                const struct kv_key *k;

                snprintf(name, sizeof(name), SERVICES "svc%u/host%u", i, h->name);
                k = kv_find(&s->kv, name, strlen(name));
                if (h->services[i].wanted != (k && kv_live(k)))
                        return false;
                if (h->services[i].wanted &&
                    (service_record_read(&r, k->newest->value, k->newest->value_len) < 0 ||
                     k->newest->lease != h->lease || r.port != h->services[i].port))
                        return false;
        }
        return true;
}
