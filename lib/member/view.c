/* Keeps the membership current: it reads a range page by page, then opens a watch from the next
 * revision on. After a break the watch is resumed where it ended, provided that the core still
 * has the same history. */
#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "base/probe.h"
#include "base/utf8.h"
#include "member/internal.h"
#include "member/json.h"
#include "member/refusal.h"

#define LOOK_AGAIN (100 * NSEC_PER_MSEC)  /* until an endpoint answers */
#define RANGE_TIMEOUT (10 * NSEC_PER_SEC) /* a page of it; or until a watch is there */
#define PAGE 2000                         /* keys */
#define FEED_BYTES 65536                  /* of keys and values that a turn reads of a page */
#define SIZE_LOG_EVERY (60 * NSEC_PER_SEC)
#define QUESTION_TIMEOUT (2 * NSEC_PER_SEC)
#define OUT_OF_MEMORY "out of memory"

/* The range that is followed, below our prefix: claims/, nodes/ and services/, which are
 * neighbours. The keys behind them, sessions/ and work/, may change many times a second, and
 * each change would wake each agent. */
#define FIRST "claims/"
#define BEHIND "services0" /* '0' follows '/' */
#define KEY_MAX 1024       /* a cluster's name has 255 bytes at most */

static void set_synced(struct member *m, bool synced)
{
        if (m->synced == synced)
                return;
        m->synced = synced;
        if (!synced)
                m->followed_until = m->heard_at;
        m->events->synced(m->userdata, synced);
}

static void again(struct member *m, const char *why)
{
        struct boot_time now = m->now;

        log_debug("Not following the membership: %s.", why);
        set_synced(m, false);
        m->range = pb_free(m->range);
        m->view_peer = (m->view_peer + 1) % m->n_peers;
        m->view_retry_at = boot_add(now, pace_next(&m->view_pace, m->n_peers, now));
}

static bool knows_own(const struct member *m, int64_t lease)
{
        const struct member_node *n = membership_find(&m->members, m->self.name);

        return n && n->lease == lease;
}

/* The state that an earlier life has announced cannot be read, so we do without it. */
static void drop_followed(struct member *m)
{
        if (m->followed == 0)
                return;
        m->followed = 0;
        membership_fini(&m->members);
        services_fini(&m->services);
}

enum kind { NODES, SERVICES, N_KINDS };

/* The part of a key under our prefix that follows `nodes/` or `services/`; empty for any other
 * key. */
static struct view name_in(const struct member *m, const ProtobufCBinaryData *key,
                           const char *folder)
{
        size_t n = strlen(m->prefix), k = strlen(folder);

        if (key->len <= n + k || memcmp(key->data, m->prefix, n) != 0 ||
            memcmp(key->data + n, folder, k) != 0)
                return (struct view){0};
        return (struct view){key->data + n + k, key->len - n - k};
}

static struct view name_of(const struct member *m, const ProtobufCBinaryData *key,
                           enum kind kind)
{
        return name_in(m, key, kind == NODES ? "nodes/" : "services/");
}

/* Another host has found our place held, and has recorded that in a claim. */
static void feed_claim(struct member *m, const Pb__KeyValue *kv)
{
        struct view name = name_in(m, &kv->key, "claims/");
        struct node_record by;

        if (name.len == 0 || m->session.lease == 0 || kv->lease == m->session.lease ||
            bytes_cmp(name.p, name.len, m->self.name, strlen(m->self.name)) != 0)
                return;
        if (node_record_read(&by, kv->value.data, kv->value.len) == 0)
                m->events->claimed(m->userdata, &by);
}

/* Whether @name is the name of our node, or of a service on it. */
static bool is_of_ours(const struct member *m, struct view name, enum kind kind)
{
        const uint8_t *slash = memchr(name.p, '/', name.len);
        size_t len = strlen(m->self.name);

        if (kind == SERVICES) {
                if (!slash)
                        return false;
                name.len -= (size_t) (slash + 1 - name.p);
                name.p = slash + 1;
        }
        return name.len >= len && memcmp(name.p, m->self.name, len) == 0 &&
               (name.len == len || name.p[len] == '/');
}

/* Logs, at most once a minute, which value is left out: a client may put many such values. */
static void warn_of_size(struct member *m, const Pb__KeyValue *kv)
{
        char key[128];

        if (kv->value.len <= RECORD_MAX || boot_before(m->now, m->size_logged_at))
                return;
        PROBE_IF(m->size_logged_at.ns > 0,
                 "a record is too large, and that is logged again after a minute");
        m->size_logged_at = boot_add(m->now, SIZE_LOG_EVERY);
        log_warning("The record %s has %zu bytes, of which at most %d are read: it counts as "
                    "empty until it is written again.",
                    utf8_shown(kv->key.data, kv->key.len, key, sizeof(key)), kv->value.len,
                    RECORD_MAX);
}

/* Returns -ENOMEM if the membership now has a hole and must be read again. */
static int feed(struct member *m, const Pb__KeyValue *kv, enum kind kind)
{
        struct view name = name_of(m, &kv->key, kind), value = {kv->value.data, kv->value.len};

        if (name.len == 0)
                return 0;
        warn_of_size(m, kv);
        m->publications.look |= is_of_ours(m, name, kind);
        if (kind == NODES)
                return membership_put(&m->members, name, value, kv->lease, kv->create_revision,
                                      kv->mod_revision);
        return services_put(&m->services, name, value, kv->lease, kv->create_revision,
                            kv->mod_revision);
}

static int feed_event(struct member *m, const Pb__Event *e, enum kind kind)
{
        struct view name;

        if (e->type == PB__EVENT__EVENT_TYPE__PUT)
                return feed(m, e->kv, kind);
        name = name_of(m, &e->kv->key, kind);
        if (name.len == 0)
                return 0;
        m->publications.look |= is_of_ours(m, name, kind);
        if (kind == NODES)
                membership_delete(&m->members, name, e->kv->mod_revision);
        else
                services_delete(&m->services, name, e->kv->mod_revision);
        return 0;
}

/* Within one revision nodes are handled first: services that were attached to the lease of a
 * node that left, left for the same reason. */
static int feed_events(struct member *m, Pb__Event **events, size_t n)
{
        for (size_t i = 0, end; i < n; i = end) {
                int64_t revision = events[i]->kv->mod_revision;
                int r = 0;

                for (end = i + 1; end < n && events[end]->kv->mod_revision == revision;)
                        end++;
                if (revision <= m->members.revision)
                        continue; /* it was announced before (A41) */
                for (enum kind kind = NODES; kind < N_KINDS; kind++)
                        for (size_t k = i; k < end && r == 0; k++)
                                r = feed_event(m, events[k], kind);
                if (r < 0)
                        return r;
                for (size_t k = i; k < end; k++)
                        if (events[k]->type == PB__EVENT__EVENT_TYPE__PUT)
                                feed_claim(m, events[k]->kv);
        }
        return 0;
}

/* ---- watch ---- */

/* The watch is useless: starts again with a range. */
static void from_the_top(struct member *m, const char *why)
{
        m->members.revision = m->told = 0;
        rpc_call_cancel(m->watch);
        again(m, why);
}

static void watch_message(struct rpc_call *call, struct view bytes)
{
        struct member *m = call->userdata;
        struct peer *asked = &m->peers[m->view_peer];
        Pb__WatchResponse *r = NULL;

        if (pb_unpack(&pb__watch_response__descriptor, bytes, &r) == 0 && !r->header)
                r = pb_free(r);
        if (!r) /* its answer is lost */
                return from_the_top(m, "its answer cannot be parsed");
        switch (member_hear(m, asked, r->header)) {
        case WORLD_FOREIGN:
                pb_free(r);
                return view_move(m, "it is of another cluster");
        case WORLD_HEIR:
        case WORLD_NEW: /* already canceled */
                pb_free(r);
                return;
        case WORLD_OURS:
                break;
        }
        if (!member_events_are_sane(r)) {
                pb_free(r);
                return from_the_top(m, "its events have impossible revisions");
        }
        if (m->creating && !r->created && !r->canceled) {
                pb_free(r);
                return from_the_top(m, "it is not confirmed");
        }
        m->heard_at = m->now;
        m->creating = false;
        if (r->canceled) {
                /* The history was compacted beyond our revision, or the watch was refused. */
                from_the_top(m, "the watch was canceled");
                if (r->created) /* perhaps our login has expired: etcd does not report that */
                        peer_log_in_again(asked);
        } else if (r->header->revision < m->members.revision) {
                /* The replica does not have the revision that we asked for: it lags behind, or
                 * the core was emptied or restored. */
                view_doubt(m);
        } else if (r->created) {
                m->live_from = r->header->revision;
                set_synced(m, true);
        }
        if (feed_events(m, r->events, r->n_events) < 0) {
                pb_free(r);
                return from_the_top(m, OUT_OF_MEMORY);
        }
        /* The replica reports that nothing happened up to this revision. Debian's etcd 3.4 may
         * report that ahead of events (etcd 15220): so it counts only for callers that wait for
         * a revision, not as the point from which to resume. */
        if (r->n_events == 0 && !r->created && !r->canceled && m->synced)
                m->progress = max_of(m->progress, r->header->revision);
        /* A response holds whole revisions, so all of the last one has been announced now;
         * unless the response is too large and comes in parts, even though we asked for none.
         */
        if (r->n_events > 0)
                m->told = max_of(m->told, r->events[r->n_events - 1]->kv->mod_revision);
        if (!r->fragment) {
                m->members.revision = max_of(m->members.revision, m->told);
                m->told = 0;
        }
        pb_free(r);
}

static void watch_status(struct rpc_call *call, enum rpc_code code, const char *message)
{
        struct member *m = call->userdata;

        if (refusal_wants_login(code, message))
                peer_log_in_again(&m->peers[m->view_peer]);
        m->view_op++; /* answers to earlier requests are ignored from now on */
        m->asking = false;
        again(m, message);
}

static void watch_close(struct rpc_call *call)
{
        struct member *m = call->userdata;

        m->watch = NULL;
        m->creating = false;
}

static const struct rpc_handler watch_handler = {
        .on_message = watch_message, .on_status = watch_status, .on_close = watch_close};

static ProtobufCBinaryData below(const struct member *m, const char *name,
                                 char key[static KEY_MAX])
{
        return pb_bytes(key, (size_t) snprintf(key, KEY_MAX, "%s%s", m->prefix, name));
}

static void start_watch(struct member *m, struct peer *p)
{
        Pb__WatchCreateRequest create = PB__WATCH_CREATE_REQUEST__INIT;
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;
        cleanup_(buf_fini) struct buf b = {0};
        char first[KEY_MAX], behind[KEY_MAX];

        create.key = below(m, FIRST, first);
        create.range_end = below(m, BEHIND, behind);
        create.start_revision = min_of(m->members.revision, INT64_MAX - 1) + 1;
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
        q.create_request = &create;
        pb_append(&b, &q.base);
        if (buf_error(&b) < 0 || rpc_call_new(peer_rpc(p), "/etcdserverpb.Watch/Watch", true,
                                              &watch_handler, m, &m->watch) < 0)
                return again(m, "the connection broke");
        (void) !rpc_call_send(m->watch, b.data, buf_len(&b));
        m->creating = true;
        m->answer_by = boot_add(m->now, RANGE_TIMEOUT);
        peer_kick(p);
}

int64_t view_followed(const struct member *m)
{
        if (m->followed > 0)
                return m->followed;
        return knows_own(m, m->session.lease) ? m->members.revision : 0;
}

bool member_remembers(const struct member *m)
{
        return m->followed > 0;
}

void member_forget(struct member *m)
{
        m->followed = 0;
}

nsec_t member_gap(const struct member *m, int64_t revision)
{
        return revision <= m->live_from ? boot_diff(m->now, m->followed_until) : 0;
}

int64_t member_revision(const struct member *m)
{
        return max_of(m->members.revision, m->progress);
}

void member_ask_revision(struct member *m)
{
        Pb__WatchProgressRequest progress = PB__WATCH_PROGRESS_REQUEST__INIT;
        Pb__WatchRequest q = PB__WATCH_REQUEST__INIT;
        cleanup_(buf_fini) struct buf b = {0};

        if (!m->watch || !m->synced)
                return;
        q.request_union_case = PB__WATCH_REQUEST__REQUEST_UNION_PROGRESS_REQUEST;
        q.progress_request = &progress;
        pb_append(&b, &q.base);
        if (buf_error(&b) == 0 && rpc_call_send(m->watch, b.data, buf_len(&b)) == 0)
                peer_kick(&m->peers[m->view_peer]);
}

/* ---- range ---- */

static void send_range(struct member *m, struct peer *p);
static void start_range(struct member *m, struct peer *p);
static const struct member_node *known_node(struct member *m, bool before_last);

/* Asks for the next page in a later turn, so that the range of a large cluster delays no
 * heartbeat. */
static void next_page(struct member *m, struct peer *p, const Pb__KeyValue *last)
{
        buf_clear(&m->range_from);
        buf_add(&m->range_from, last->key.data, last->key.len);
        buf_add_u8(&m->range_from, 0);
        if (buf_error(&m->range_from) < 0)
                return again(m, OUT_OF_MEMORY);
        if (!peer_rpc(p))
                return again(m, "the connection broke");
        send_range(m, p);
}

static void read_page(struct member *m);
static void end_range(struct member *m, struct peer *p);

static void on_range(struct unary *u, enum rpc_code code, const char *message)
{
        struct member *m = u->member;
        const Pb__RangeResponse *r = u->reply;
        enum world_word word;

        if (u->op != m->view_op)
                return;
        m->ranging = false;
        if (code == RPC_RESOURCE_EXHAUSTED && strcmp(message, RPC_ANSWER_TOO_LARGE) == 0 &&
            m->page > 1 && peer_rpc(u->peer)) {
                PROBE("an agent asks for smaller pages");
                m->page = max_of(m->page / 8, INT64_C(1));
                return send_range(m, u->peer);
        }
        if (code == RPC_OUT_OF_RANGE && m->followed > 0 && peer_rpc(u->peer)) {
                PROBE("what an earlier life has announced is compacted");
                drop_followed(m);
                return start_range(m, u->peer);
        }
        if (code != RPC_OK)
                return again(m, message);
        word = member_hear(m, u->peer, r->header);
        if (word == WORLD_FOREIGN)
                return again(m, "it is of another cluster");
        if (word != WORLD_OURS && m->range_revision > 0)
                return; /* the next range begins with the first page */
        if (!member_range_is_sane(r))
                return again(m, "keys are missing in its answer");
        m->heard_at = m->now;
        if (!m->paging) {
                membership_resync_begin(&m->members);
                services_resync_begin(&m->services);
                m->paging = true;
        }
        if (m->range_revision == 0)
                m->range_revision = r->header->revision;
        m->page = min_of(2 * m->page, m->page_most);
        m->range = u->reply;
        m->range_at = 0;
        u->reply = NULL;
        read_page(m);
}

/* Whatever its keys and values are, a page delays no heartbeat: each turn reads some of it. In
 * the order of keys the nodes come before the services. */
static void read_page(struct member *m)
{
        const Pb__RangeResponse *r = m->range;
        struct peer *p = &m->peers[m->view_peer];
        size_t bytes = 0;

        for (; m->range_at < r->n_kvs && bytes < FEED_BYTES; m->range_at++) {
                const Pb__KeyValue *kv = r->kvs[m->range_at];

                for (enum kind kind = NODES; kind < N_KINDS; kind++)
                        if (feed(m, kv, kind) < 0)
                                return again(m, OUT_OF_MEMORY);
                bytes += kv->key.len + kv->value.len;
        }
        if (m->range_at < r->n_kvs)
                return;
        if (r->more && r->n_kvs > 0)
                next_page(m, p, r->kvs[r->n_kvs - 1]);
        else
                end_range(m, p);
        m->range = pb_free(m->range);
}

static void end_range(struct member *m, struct peer *p)
{
        m->page_most = PAGE;
        /* An earlier life has announced its own key. */
        if (m->followed > 0 && !knows_own(m, m->publications.resumed_lease)) {
                PROBE("what an earlier life has announced is not in the core's history");
                drop_followed(m);
                return peer_rpc(p) ? start_range(m, p) : again(m, "the connection broke");
        }
        if (m->followed == 0)
                m->followed_until = m->now;
        m->followed = 0;
        membership_resync_end(&m->members, m->range_revision);
        services_resync_end(&m->services, m->range_revision);
        m->publications.look = true;
        /* If a node is known, it shows whether the history is still the one that was read
         * (resume()). Otherwise the connection shows it: a core that was emptied has lost
         * it. */
        if (!known_node(m, false) && peer_rpc(p))
                start_watch(m, p);
}

static void send_range(struct member *m, struct peer *p)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        char behind[KEY_MAX];

        q.key = pb_bytes(buf_head(&m->range_from), buf_len(&m->range_from));
        q.range_end = below(m, BEHIND, behind);
        q.limit = m->page;
        q.revision = m->range_revision;
        if (member_call(p, ++m->view_op, "/etcdserverpb.KV/Range", &q.base,
                        &pb__range_response__descriptor, on_range) < 0)
                return again(m, "the connection broke");
        m->ranging = true;
        m->answer_by = boot_add(m->now, RANGE_TIMEOUT);
}

static void start_range(struct member *m, struct peer *p)
{
        if (m->page == 0)
                m->page = m->page_most = PAGE;
        m->range_revision = m->followed;
        m->paging = false;
        m->told = 0;
        buf_clear(&m->range_from);
        buf_printf(&m->range_from, "%s" FIRST, m->prefix);
        if (buf_error(&m->range_from) < 0)
                return again(m, OUT_OF_MEMORY);
        send_range(m, p);
}

/* ---- is it the history that we know? ---- */

/* If the core's record of the node that changed last is the one that we know, the history is
 * ours, since lease ids are random. If not, we read the node that changed before it: only if
 * both differ is everything void that is known and held, since otherwise a single node that we
 * know wrongly would cost every host its place. */

#define COMPACTED "etcdserver: mvcc: required revision has been compacted"
#define FUTURE "etcdserver: mvcc: required revision is a future revision"

/* The node that changed last, or the one that changed before that, as of the last revision that
 * was announced; NULL: there is none. */
static const struct member_node *known_node(struct member *m, bool before_last)
{
        struct member_node *n, *last = NULL, *before = NULL;

        RB_FOREACH (n, member_tree, &m->members.nodes) {
                if (!last || n->mod_revision > last->mod_revision) {
                        before = last;
                        last = n;
                } else if (!before || n->mod_revision > before->mod_revision) {
                        before = n;
                }
        }
        return before_last ? before : last;
}

static bool has_known_node(struct member *m, const Pb__RangeResponse *r)
{
        const struct member_node *n = known_node(m, m->before_last);

        return n && r->n_kvs == 1 && r->kvs[0]->lease == n->lease &&
               r->kvs[0]->create_revision == n->create_revision &&
               r->kvs[0]->mod_revision == n->mod_revision;
}

/* Reads that node as of @revision, from the replica's own data; with 0, its present record, by
 * a linearizable read. */
static void ask_node(struct member *m, struct peer *p, int64_t revision,
                     void (*done)(struct unary *u, enum rpc_code code, const char *message))
{
        cleanup_(buf_fini) struct buf key = {0};
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;

        buf_printf(&key, "%snodes/%s", m->prefix, known_node(m, m->before_last)->record.name);
        if (buf_error(&key) < 0)
                return again(m, OUT_OF_MEMORY);
        q.key = pb_bytes(buf_head(&key), buf_len(&key));
        q.revision = revision;
        q.serializable = revision > 0;
        q.keys_only = true;
        if (!peer_rpc(p) || member_call(p, ++m->view_op, "/etcdserverpb.KV/Range", &q.base,
                                        &pb__range_response__descriptor, done) < 0)
                return again(m, "the connection broke");
        m->checking = true;
        m->answer_by = boot_add(m->now, QUESTION_TIMEOUT);
}

/* Whether the answer counts. */
static bool hear_history(struct member *m, struct unary *u, enum rpc_code code,
                         const char *message)
{
        const Pb__RangeResponse *r = u->reply;
        enum world_word word;

        if (code != RPC_OK) {
                again(m, message);
                return false;
        }
        word = member_hear(m, u->peer, r->header);
        if (word == WORLD_FOREIGN)
                again(m, "it is of another cluster");
        if (word == WORLD_OURS)
                m->heard_at = m->now;
        return word == WORLD_OURS; /* a new history begins with a range */
}

static void another_history(struct member *m, struct unary *u)
{
        const Pb__RangeResponse *r = u->reply;
        char why[256];

        snprintf(why, sizeof(why),
                 "The core at %s was emptied or restored: it does not have what there was at "
                 "revision %" PRId64,
                 peer_name(u->peer), m->members.revision);
        member_begin_world(m, r->header, why);
}

static void on_history(struct unary *u, enum rpc_code code, const char *message);

static void on_revision(struct unary *u, enum rpc_code code, const char *message)
{
        struct member *m = u->member;
        const Pb__RangeResponse *r = u->reply;

        if (u->op != m->view_op)
                return;
        m->checking = false;
        if (!hear_history(m, u, code, message))
                return;
        if (r->header->revision < m->members.revision)
                return another_history(m, u);
        m->caught_up = true;
        ask_node(m, u->peer, m->members.revision, on_history);
}

/* The history is ours, but we know the node that changed last wrongly: reads all nodes
 * again. */
static void read_again(struct member *m, struct peer *p)
{
        PROBE("an agent knew a node wrongly, and reads all of them again");
        log_warning("The core at %s has another record of node %s than this agent. All nodes "
                    "are read again.",
                    peer_name(p), known_node(m, false)->record.name);
        m->members.revision = 0;
        start_range(m, p);
}

static void on_history(struct unary *u, enum rpc_code code, const char *message)
{
        struct member *m = u->member;

        if (u->op != m->view_op)
                return;
        m->checking = false;
        if (code == RPC_OUT_OF_RANGE && strcmp(message, COMPACTED) == 0) {
                PROBE("an agent's watch cannot go on because of a compaction");
                m->members.revision = 0;
                return start_range(m, u->peer);
        }
        /* The replica lags behind, or the core was emptied or restored. */
        if (code == RPC_OUT_OF_RANGE && strcmp(message, FUTURE) == 0 && !m->caught_up)
                return ask_node(m, u->peer, 0, on_revision);
        if (!hear_history(m, u, code, message))
                return;
        if (has_known_node(m, u->reply))
                return m->before_last ? read_again(m, u->peer) : start_watch(m, u->peer);
        if (m->before_last || !known_node(m, true))
                return another_history(m, u);
        PROBE("an agent asks for a second node that it knows");
        m->before_last = true;
        ask_node(m, u->peer, m->members.revision, on_history);
}

/* Checks the history before the watch continues: a watch follows whatever history the core has,
 * and a core that was emptied may have reached our revision again. */
static void resume(struct member *m, struct peer *p)
{
        m->caught_up = m->before_last = false;
        /* Between two parts of a response we know nodes of later revisions than ours. */
        if (m->told == 0 && known_node(m, false))
                return ask_node(m, p, m->members.revision, on_history);
        m->members.revision = 0;
        start_range(m, p);
}

static void stop(struct member *m)
{
        m->view_op++;
        m->ranging = m->asking = m->creating = m->checking = false;
        m->range = pb_free(m->range);
        if (m->watch)
                rpc_call_cancel(m->watch);
}

/* ---- was the core emptied or restored? ---- */

static void on_answer(struct unary *u, enum rpc_code code, const char *message)
{
        struct member *m = u->member;
        const Pb__RangeResponse *r = u->reply;
        enum world_word word;
        char why[256];

        if (u->op != m->view_op)
                return;
        if (code != RPC_OK || !r->header) {
                stop(m);
                return again(m, message);
        }
        /* The answer may be older than what other replicas have reported since we asked. That
         * is no reason to ask again: the next answer would have the same fault. */
        word = member_hear(m, u->peer, r->header);
        m->asking = false;
        if (word != WORLD_OURS)
                return view_move(m, "it is of another cluster");
        if (r->header->revision >= m->floor) {
                PROBE("a core that seemed emptied was only behind");
                set_synced(m, m->watch != NULL); /* the replica was only behind */
                return;
        }
        snprintf(why, sizeof(why),
                 "The core at %s was emptied or restored: it is at revision %" PRId64
                 " and was at %" PRId64,
                 peer_name(u->peer), r->header->revision, m->floor);
        member_begin_world(m, r->header, why);
}

/* A linearizable read, which reads are by default, shows everything that any replica had
 * reported before it. */
void view_doubt(struct member *m)
{
        Pb__RangeRequest q = PB__RANGE_REQUEST__INIT;
        struct peer *p = &m->peers[m->view_peer];

        if (!m->watch || m->asking || !peer_rpc(p))
                return;
        q.key = pb_bytes(m->prefix, strlen(m->prefix));
        q.count_only = true;
        m->floor = max_of(m->members.revision, m->world.revision);
        if (member_call(p, ++m->view_op, "/etcdserverpb.KV/Range", &q.base,
                        &pb__range_response__descriptor, on_answer) < 0)
                return; /* the connection is about to end, and the watch with it */
        m->asking = true;
        m->answer_by = boot_add(m->now, QUESTION_TIMEOUT);
}

/* ---- ---- */

void view_move(struct member *m, const char *why)
{
        if (!m->watch && !m->ranging && !m->range && !m->asking && !m->checking)
                return;
        stop(m);
        again(m, why);
        /* The next replica may do better. */
        if (!pace_is_round(&m->view_pace, m->n_peers))
                m->view_retry_at = m->now;
}

void view_restart(struct member *m)
{
        stop(m);
        drop_followed(m);
        membership_forget_revisions(&m->members);
        services_forget_revisions(&m->services);
        m->progress = m->live_from = 0;
        set_synced(m, false);
        /* Slows down the search among replicas whose answers each begin a new world. */
        m->view_retry_at = boot_add(m->now, pace_next(&m->view_pace, m->n_peers, m->now));
}

struct boot_time view_next(const struct member *m)
{
        if (m->no_view)
                return BOOT_TIME_NEVER;
        if (m->range)
                return m->now;
        if (m->ranging || m->asking || m->creating || m->checking)
                return m->answer_by;
        return m->watch ? BOOT_TIME_NEVER : m->view_retry_at;
}

void view_run(struct member *m, struct boot_time now)
{
        struct peer *p;

        if (m->no_view)
                return;
        if ((m->ranging || m->asking || m->creating || m->checking) &&
            !boot_before(now, m->answer_by)) {
                /* The page may have been too large for our line, which all replicas share. */
                if (m->ranging) {
                        PROBE("a page of the membership does not come in time");
                        m->page = m->page_most = max_of(m->page / 4, INT64_C(1));
                }
                view_move(m, "the replica does not answer");
        }
        if (m->range)
                return read_page(m);
        if (m->watch || m->ranging || m->checking || boot_before(now, m->view_retry_at))
                return;
        p = member_speaking_peer(m, m->view_peer);
        if (!p) { /* use another replica then: do not connect without need */
                m->view_peer = (m->view_peer + 1) % m->n_peers;
                m->view_retry_at = boot_add(now, LOOK_AGAIN);
                return;
        }
        m->view_peer = (size_t) (p - m->peers);
        if (m->members.revision == 0)
                start_range(m, p);
        else
                resume(m, p);
}
