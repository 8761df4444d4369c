#include "hoard.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "wire/pb.h"

#define DEEDS_MAX 16384
#define FACTS_MAX ((size_t) 1 << 20)
#define PUTS_MAX (FACTS_MAX / 2 - 1) /* what was put can be deleted once */
#define WATCHERS 2
#define PREFIX "hoard/"
#define FLEET_PREFIX "/tenure/sim/nodes/" HOARD_FLEET_NAME
#define LONG_NAME 230
#define SKIPPED UINT32_MAX /* a watcher was told of a compaction, instead of a key */

/* A change of a key, or what a watcher was told. */
struct fact {
        int64_t revision;
        uint32_t key, deed; /* 0: it was deleted */
};

static struct deed deeds[DEEDS_MAX];
static uint32_t n_deeds, deletions[DEEDS_MAX], n_deletions;
static struct fact facts[FACTS_MAX];
static uint64_t sums[FACTS_MAX + 1]; /* of all nodes of a fleet, before each fact */
static size_t n_facts, n_puts, puts_most, n_live;
static int64_t known; /* all facts up to this revision are */
static struct hoarded latest[HOARD_MOST], then[HOARD_MOST];
static size_t n_then; /* of the facts are in `then` */
static unsigned n_keys, name_len, value_len;
static bool fleet;

static struct watcher {
        struct fact told[FACTS_MAX];
        size_t n_told, n_checked, at;
} watchers[WATCHERS];

static struct agent {
        int64_t mods[HOARD_FLEET_MOST]; /* 0: it does not know that node */
        uint64_t sum;
} agents[HOLDERS_MAX];

/* ---- keys and values ---- */

static const char *prefix(void)
{
        return fleet ? FLEET_PREFIX : PREFIX;
}

size_t hoard_key(unsigned i, char out[static HOARD_KEY])
{
        int n = snprintf(out, HOARD_KEY, "%s%06u", prefix(), i);

        memset(out + n, 'x', name_len);
        out[(size_t) n + name_len] = '\0';
        return (size_t) n + name_len;
}

int64_t hoard_number(struct view key)
{
        size_t n = strlen(prefix());
        char digits[7] = "";

        if (key.len != n + 6 + name_len || memcmp(key.p, prefix(), n) != 0)
                return -1;
        memcpy(digits, key.p + n, 6);
        return strtol(digits, NULL, 10);
}

/* The record of a node of the fleet is as its agent would write it. */
size_t hoard_value(uint32_t deed, unsigned i, char out[static HOARD_VALUE])
{
        unsigned len = value_len > 0 ? (deed * 31 + i) % value_len : 0;
        int n = fleet ? snprintf(out, HOARD_VALUE,
                                 "{\"id\":\"%032x\",\"incarnation\":\"#%08x#\",\"ttl_ms\":"
                                 "10000,\"addresses\":[\"10.0.%u.%u\"]}",
                                 i + 1000, deed, i / 250, i % 250)
                      : snprintf(out, HOARD_VALUE, "#%08x#%06u", deed, i);

        if (fleet)
                return (size_t) n;
        memset(out + n, '.', len);
        return (size_t) n + len;
}

/* 0: it was not put by any. */
static uint32_t deed_of(struct view value)
{
        const uint8_t *at = value.len > 0 ? memchr(value.p, '#', value.len) : NULL;
        char digits[9] = "";

        if (!at || value.len - (size_t) (at - value.p) < 10)
                return 0;
        memcpy(digits, at + 1, 8);
        return (uint32_t) strtoul(digits, NULL, 16);
}

static bool is_value(uint32_t deed, unsigned i, struct view value)
{
        char text[HOARD_VALUE];
        size_t len = hoard_value(deed, i, text);

        return value.len == len && memcmp(value.p, text, len) == 0;
}

bool hoard_is(unsigned i, const struct hoarded *was, struct view value)
{
        return is_value(was->deed, i, value);
}

static uint64_t sum_of(uint32_t key, int64_t mod)
{
        uint64_t x = ((uint64_t) key << 40 ^ (uint64_t) mod) * UINT64_C(0x9e3779b97f4a7c15);

        return (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
}

/* ---- what happened ---- */

uint32_t hoard_ask(const struct deed *d)
{
        if (n_puts + (d->to - d->from) > puts_most || n_deeds + 1 == DEEDS_MAX)
                return 0;
        n_puts += d->to - d->from;
        deeds[++n_deeds] = *d;
        if (d->gone_upto > d->gone_from)
                deletions[n_deletions++] = n_deeds;
        return n_deeds;
}

/* Whether somebody asked for its deletion, or its lease may have ended. */
static bool may_go(uint32_t key)
{
        if (deeds[latest[key].deed].leased)
                return true;
        for (uint32_t i = n_deletions; i > 0; i--) {
                const struct deed *d = &deeds[deletions[i - 1]];

                if (key >= d->gone_from && key < d->gone_upto)
                        return true;
        }
        return false;
}

static void check_put(const struct kv_version *v, uint32_t key, uint32_t deed)
{
        struct deed *d = &deeds[deed <= n_deeds ? deed : 0];

        if (key < d->from || key >= d->to)
                return fail(W, "hoard: key %u was put at revision %" PRId64 ", unasked", key,
                            v->mod_revision);
        if (d->revision == 0)
                d->revision = v->mod_revision;
        if (d->revision != v->mod_revision)
                fail(W,
                     "hoard: what was asked for once was done at revisions %" PRId64
                     " and %" PRId64,
                     d->revision, v->mod_revision);
        if (!is_value(deed, key, (struct view){v->value, v->value_len}) ||
            (v->lease != 0) != d->leased)
                fail(W, "hoard: another value was put to key %u at revision %" PRId64, key,
                     v->mod_revision);
}

static void check_deletion(const struct kv_version *v, uint32_t key)
{
        if (latest[key].deed == 0)
                fail(W, "hoard: key %u was deleted at revision %" PRId64 ", and was not there",
                     key, v->mod_revision);
        else if (!may_go(key))
                fail(W, "hoard: key %u was deleted at revision %" PRId64 ", unasked", key,
                     v->mod_revision);
}

static void happen(const struct kv_version *v, uint32_t key)
{
        uint32_t deed = v->version > 0 ? deed_of((struct view){v->value, v->value_len}) : 0;
        uint64_t sum = sums[n_facts];

        if (n_facts == FACTS_MAX)
                return fail_full(W, "changes of the hoard");
        if (v->version > 0)
                check_put(v, key, deed);
        else
                check_deletion(v, key);
        sum -= latest[key].deed > 0 ? sum_of(key, latest[key].revision) : 0;
        n_live -= latest[key].deed > 0;
        facts[n_facts++] = (struct fact){v->mod_revision, key, deed};
        latest[key] = (struct hoarded){v->mod_revision, deed};
        sums[n_facts] = sum + (deed > 0 ? sum_of(key, v->mod_revision) : 0);
        n_live += deed > 0;
        W->counts.hoarded++;
}

void hoard_applied(struct world *w, const struct state *s, int64_t upto)
{
        const struct kv *kv = &s->kv;

        if (w->hoard == 0 || upto <= known)
                return;
        if (kv->compacted > known + 1)
                return fail(w, "hoard: revision %" PRId64 " is compacted, and nobody had it",
                            known + 1);
        for (size_t i = kv_history_seek(kv, known + 1); i < kv->history_to; i++) {
                const struct kv_version *v = kv_history_at(kv, i);
                int64_t key = hoard_number((struct view){v->key->bytes, v->key->len});

                if (v->mod_revision > upto)
                        break;
                if (key >= 0)
                        happen(v, (uint32_t) key);
        }
        known = upto;
}

/* Whether everything up to @revision is known. An entry may be half applied, and report whole
 * revisions. */
static bool is_known(struct world *w, int64_t revision)
{
        for (unsigned i = 0; i < w->n_replicas && revision > known; i++)
                if (w->r[i].up && core_state(w->r[i].node.core)->revision >= revision)
                        hoard_applied(w, core_state(w->r[i].node.core), revision);
        return revision <= known;
}

/* The first fact of that revision or a later one. */
static size_t first_from(int64_t revision)
{
        size_t lo = 0, hi = n_facts;

        while (lo < hi) {
                size_t mid = lo + (hi - lo) / 2;

                if (facts[mid].revision < revision)
                        lo = mid + 1;
                else
                        hi = mid;
        }
        return lo;
}

size_t hoard_live(void)
{
        return n_live;
}

const struct hoarded *hoard_at(int64_t revision)
{
        if (!is_known(W, revision))
                return NULL;
        for (; n_then < n_facts && facts[n_then].revision <= revision; n_then++)
                then[facts[n_then].key] =
                        (struct hoarded){facts[n_then].revision, facts[n_then].deed};
        return then;
}

/* ---- what clients are told ---- */

void hoard_done(struct world *w, uint32_t deed, int64_t revision, int64_t deleted)
{
        const struct deed *d = &deeds[deed];
        size_t puts = 0, gone = 0;

        if (!is_known(w, revision))
                return;
        for (size_t i = first_from(revision); i < n_facts && facts[i].revision == revision;
             i++) {
                puts += facts[i].deed == deed;
                gone += facts[i].deed == 0 && facts[i].key >= d->gone_from &&
                        facts[i].key < d->gone_upto;
        }
        if (puts != d->to - d->from)
                fail(w, "hoard: %zu of %u keys were put at revision %" PRId64, puts,
                     d->to - d->from, revision);
        if (deleted > 0 && (size_t) deleted != gone)
                fail(w, "hoard: %zu keys were deleted at revision %" PRId64 ", not %" PRId64,
                     gone, revision, deleted);
        for (unsigned i = d->gone_from; i < d->gone_upto; i++)
                if (latest[i].deed > 0 && latest[i].revision <= revision)
                        return fail(w,
                                    "hoard: key %u was not deleted at revision %" PRId64
                                    ", but put at %" PRId64,
                                    i, revision, latest[i].revision);
}

static void tell(unsigned watcher, struct fact f)
{
        struct watcher *t = &watchers[watcher];

        if (t->n_told == FACTS_MAX)
                return fail_full(W, "events of the hoard");
        t->told[t->n_told++] = f;
}

/* Compares what it was told with what is known. */
static void compare(struct world *w, unsigned watcher)
{
        struct watcher *t = &watchers[watcher];

        for (; t->n_checked < t->n_told; t->n_checked++) {
                const struct fact *f = &t->told[t->n_checked], *is = &facts[t->at];

                if (!is_known(w, f->revision - (f->key == SKIPPED)))
                        return;
                if (f->key == SKIPPED) {
                        t->at = max_of(t->at, first_from(f->revision));
                        continue;
                }
                if (t->at == n_facts || f->revision != is->revision || f->key != is->key ||
                    f->deed != is->deed)
                        return fail(w,
                                    "I6: watcher %u was told of key %u at revision %" PRId64
                                    ", and the next change is of key %" PRId64 " at %" PRId64,
                                    watcher, f->key, f->revision,
                                    t->at < n_facts ? (int64_t) is->key : -1,
                                    t->at < n_facts ? is->revision : -1);
                t->at++;
        }
}

void hoard_told(struct world *w, unsigned watcher, int64_t revision, struct view key,
                struct view value, bool put)
{
        int64_t i = w->hoard > 0 ? hoard_number(key) : -1;
        uint32_t deed = put ? deed_of(value) : 0;

        if (i < 0)
                return;
        if (put && !is_value(deed, (unsigned) i, value))
                fail(w, "I6: watcher %u was told of another value of key %u", watcher,
                     (unsigned) i);
        tell(watcher, (struct fact){revision, (uint32_t) i, deed});
        compare(w, watcher);
}

void hoard_skipped(unsigned watcher, int64_t to)
{
        if (W->hoard > 0)
                tell(watcher, (struct fact){to, SKIPPED, 0});
}

/* ---- what agents are told of a fleet ---- */

void hoard_agent_begins(const struct holder *h)
{
        agents[h->i].sum = 0;
        if (fleet)
                memset(agents[h->i].mods, 0, n_keys * sizeof(agents[h->i].mods[0]));
}

bool hoard_agent_told(const struct holder *h, const char *name, int64_t mod, bool there)
{
        struct agent *a = &agents[h->i];
        size_t n = strlen(HOARD_FLEET_NAME);
        uint32_t i;

        if (strncmp(name, HOARD_FLEET_NAME, n) != 0)
                return false;
        i = (uint32_t) strtoul(name + n, NULL, 10);
        a->sum -= a->mods[i] > 0 ? sum_of(i, a->mods[i]) : 0;
        a->mods[i] = there ? mod : 0;
        a->sum += there ? sum_of(i, mod) : 0;
        return true;
}

void hoard_agent_knows(struct world *w, const struct holder *h, int64_t revision)
{
        if (!fleet || revision == 0 || !is_known(w, revision))
                return;
        if (agents[h->i].sum != sums[first_from(revision + 1)])
                fail(w, "I6: holder %u does not know the fleet as it was at revision %" PRId64,
                     h->i, revision);
}

/* ---- in the end ---- */

static void check_replica(struct world *w, const struct replica_node *n)
{
        const struct state *s = core_state(n->node.core);
        char from[HOARD_KEY], to[HOARD_KEY];
        ProtobufCBinaryData first = pb_bytes(from, hoard_key(0, from)),
                            end = pb_bytes(to, hoard_key(n_keys, to));
        struct kv_span span = kv_span(&first, &end);
        size_t live = 0;

        if (s->revision < known)
                return; /* it is a few entries behind */
        for (struct kv_key *k = kv_live_first(&s->kv, &span); k; k = kv_live_next(&span, k)) {
                int64_t i = hoard_number((struct view){k->bytes, k->len});

                live++;
                if (latest[i].deed == 0 || latest[i].revision != k->newest->mod_revision)
                        return fail(w, "hoard: replica %u has another key %" PRId64, n->i + 1,
                                    i);
        }
        if (live != n_live)
                fail(w, "hoard: replica %u has %zu keys, not %zu", n->i + 1, live, n_live);
}

void hoard_check_end(struct world *w)
{
        if (w->hoard == 0)
                return;
        for (unsigned i = 0; i < w->n_replicas; i++)
                check_replica(w, &w->r[i]);
        for (unsigned i = 0; i < WATCHERS && !*w->failure; i++) {
                compare(w, i);
                if (watchers[i].at < n_facts)
                        fail(w, "I6: watcher %u was not told of revision %" PRId64, i,
                             facts[watchers[i].at].revision);
        }
}

/* ---- ---- */

void hoard_begin(struct world *w)
{
        n_keys = w->hoard;
        fleet = w->hoard > 0 && w->fleet;
        if (w->hoard == 0)
                return;
        name_len = fleet && rnd_between(&w->damage, 0, 1) == 0 ? LONG_NAME : 0;
        value_len = rnd_between(&w->damage, 0, 1) == 0 ? 0 : 300;
        n_deeds = n_deletions = 0;
        n_facts = n_puts = n_live = n_then = 0;
        puts_most = min_of(PUTS_MAX, (size_t) 3 * n_keys + 3000);
        known = 1;
        memset(latest, 0, n_keys * sizeof(latest[0]));
        memset(then, 0, n_keys * sizeof(then[0]));
        for (unsigned i = 0; i < WATCHERS; i++)
                watchers[i].n_told = watchers[i].n_checked = watchers[i].at = 0;
}
