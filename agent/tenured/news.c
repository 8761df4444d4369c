#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "bus/messages.h"
#include "lists.h"

#define SHARE (3 * NSEC_PER_MSEC)     /* of a turn */
#define BUS_WITHIN (5 * NSEC_PER_SEC) /* after a restart: some ms, unless the bus is busy */

struct news {
        TAILQ_ENTRY(news) entry;
        enum news_kind kind;
        int level;
        int64_t revision;
        const char *name, *of, *instance, *reason; /* into `text` */
        char text[];
};

void news_init(struct agent *a, int64_t sent)
{
        TAILQ_INIT(&a->news);
        a->sent = sent;
        if (a->resumed)
                a->news_without_bus_at = boot_add(boot_now(), BUS_WITHIN);
}

static void drop_first(struct agent *a)
{
        struct news *n = TAILQ_FIRST(&a->news);

        TAILQ_REMOVE(&a->news, n, entry);
        free(n);
}

void news_fini(struct agent *a)
{
        while (!TAILQ_EMPTY(&a->news))
                drop_first(a);
}

static const char *put(char **at, const char *text)
{
        char *s = *at;

        *at = stpcpy(s, text) + 1;
        return s;
}

void news_add(struct agent *a, enum news_kind kind, const char *name, const char *of,
              const char *instance, const char *reason, int64_t revision)
{
        struct news *n = malloc(sizeof(*n) + strlen(name) + strlen(of) + strlen(instance) +
                                strlen(reason) + 4);
        char *at;

        if (!n)
                abort(); /* programs that miss a change would go by wrong information */
        at = n->text;
        n->kind = kind;
        n->revision = revision;
        n->name = put(&at, name);
        n->of = put(&at, of);
        n->instance = put(&at, instance);
        n->reason = put(&at, reason);
        /* What existed before we started is not news: a site may have 100,000 services. */
        n->level = kind == NEWS_NODE_LEFT     ? LOG_NOTICE
                   : member_synced(a->member) ? LOG_INFO
                                              : LOG_DEBUG;
        TAILQ_INSERT_TAIL(&a->news, n, entry);
}

static int64_t told(const struct agent *a, int64_t known)
{
        const struct news *n = TAILQ_FIRST(&a->news);

        return n ? min_of(known, n->revision - 1) : known;
}

int64_t news_revision(const struct agent *a)
{
        return told(a, member_revision(a->member));
}

int64_t news_sent(struct agent *a, int64_t known)
{
        uint64_t unsent = 0;

        known = told(a, known);
        if (a->bus && sd_bus_get_n_queued_write(bus_sd(a->bus), &unsent) >= 0 && unsent > 0)
                known = min_of(known, a->sent);
        a->sent = known;
        return known;
}

/* ---- the log ---- */

/* The name under which the host of a node that was replaced is listed now, if it is another
 * one; otherwise NULL. */
static const char *new_name(const struct agent *a, const struct news *n)
{
        struct member_node *m;

        if (strcmp(n->reason, "replaced") != 0 || !*n->of)
                return NULL;
        RB_FOREACH (m, member_tree, (struct member_tree *) &member_nodes(a->member)->nodes)
                if (strcmp(m->record.id, n->of) == 0)
                        return strcmp(m->record.name, n->name) != 0 ? m->record.name : NULL;
        return NULL;
}

static void log_node(const struct agent *a, const struct news *n)
{
        char f_node[NODE_NAME_MAX + 16], f_id[80], f_rev[48], f_reason[64];
        const char *fields[] = {n->kind == NEWS_NODE_LEFT ? MESSAGE_LEFT : MESSAGE_JOINED,
                                f_node,
                                f_id,
                                f_rev,
                                *n->reason ? f_reason : NULL,
                                NULL};
        const char *is = new_name(a, n);

        snprintf(f_node, sizeof(f_node), "NODE=%s", n->name);
        snprintf(f_id, sizeof(f_id), "NODE_ID=%s", n->of);
        snprintf(f_rev, sizeof(f_rev), "REVISION=%" PRId64, n->revision);
        snprintf(f_reason, sizeof(f_reason), "REASON=%s", n->reason);
        if (n->kind == NEWS_NODE_LEFT)
                log_full(n->level, fields, "Node %s left: %s%s%s%s%s%s.", n->name, n->reason,
                         *n->instance ? " (" : "", n->instance, *n->instance ? ")" : "",
                         is ? "; its host is node " : "", is ? is : "");
        else
                log_full(n->level, fields, "Node %s joined.", n->name);
}

static void log_service(const struct news *n)
{
        bool gone = n->kind == NEWS_SERVICE_REMOVED;
        char f_service[128], f_node[NODE_NAME_MAX + 16], f_instance[128], f_rev[48],
                f_reason[64];
        const char *fields[] = {gone ? MESSAGE_SERVICE_REMOVED : MESSAGE_SERVICE_ADDED,
                                f_service,
                                f_node,
                                f_instance,
                                f_rev,
                                gone ? f_reason : NULL,
                                NULL};

        snprintf(f_service, sizeof(f_service), "SERVICE=%s", n->name);
        snprintf(f_node, sizeof(f_node), "NODE=%s", n->of);
        snprintf(f_instance, sizeof(f_instance), "INSTANCE=%s", n->instance);
        snprintf(f_rev, sizeof(f_rev), "REVISION=%" PRId64, n->revision);
        snprintf(f_reason, sizeof(f_reason), "REASON=%s", n->reason);
        log_full(n->level, fields, "Service %s%s%s on %s %s%s.", n->name,
                 *n->instance ? " " : "", n->instance, n->of,
                 gone ? "is gone: " : "is available", n->reason);
}

/* ---- the bus ---- */

static int make_signal(struct agent *a, const struct news *n, const char *path,
                       sd_bus_message **ret)
{
        static const char *const names[] = {
                [NEWS_NODE_JOINED] = "NodeJoined",
                [NEWS_NODE_LEFT] = "NodeLeft",
                [NEWS_NODE_CHANGED] = "NodeChanged",
                [NEWS_SERVICE_ADDED] = "ServiceAdded",
                [NEWS_SERVICE_REMOVED] = "ServiceRemoved",
                [NEWS_SERVICE_CHANGED] = "ServiceChanged",
        };
        int r = sd_bus_message_new_signal(bus_sd(a->bus), ret, ROOT, MANAGER, names[n->kind]);

        if (r >= 0)
                r = bus_append_text(*ret, n->name);
        if (r >= 0)
                r = bus_append_text(*ret, n->of);
        if (r >= 0 && n->kind > NEWS_NODE_CHANGED)
                r = bus_append_text(*ret, n->instance);
        if (r >= 0 && (n->kind == NEWS_NODE_LEFT || n->kind == NEWS_SERVICE_REMOVED))
                r = bus_append_text(*ret, n->reason);
        if (r >= 0)
                r = sd_bus_message_append(*ret, "xo", n->revision, path);
        return r;
}

/* Sends the signal to everybody, and once more to the caller whose list is being written, after
 * that list. */
static void tell_manager(struct agent *a, const struct news *n, const char *path)
{
        cleanup_(sd_bus_message_unrefp) sd_bus_message *m = NULL, *again = NULL;
        int r = make_signal(a, n, path, &m);

        if (r >= 0)
                r = sd_bus_send(bus_sd(a->bus), m, NULL);
        if (r >= 0 && lists_repeats(a, n->kind <= NEWS_NODE_CHANGED ? OF_NODES : OF_SERVICES)) {
                r = make_signal(a, n, path, &again);
                if (r >= 0)
                        lists_repeat(a, again);
        }
        objects_sent(r, "what became of a node or a service");
}

/* Other changes may have happened since. Objects that still exist are announced as they are
 * now. */
static void tell_node(struct agent *a, const struct news *n)
{
        cleanup_(freep) char *path = NULL;
        struct object o;

        if (!node_path(n->name, &path))
                return;
        if (n->kind == NEWS_NODE_JOINED && objects_find(a, path, &o))
                objects_added(a, path);
        tell_manager(a, n, path);
        if (n->kind == NEWS_NODE_LEFT)
                objects_removed(a, path, NODE);
        if (n->kind == NEWS_NODE_CHANGED && objects_find(a, path, &o))
                objects_node_changed(a, path);
}

static void tell_service(struct agent *a, const struct news *n)
{
        const struct service s = {.name = n->name, .node = n->of, .instance = n->instance};
        cleanup_(freep) char *path = NULL;
        struct object o;

        if (!service_path(&s, &path))
                return;
        if (n->kind == NEWS_SERVICE_ADDED && objects_find(a, path, &o))
                objects_added(a, path);
        tell_manager(a, n, path);
        if (n->kind == NEWS_SERVICE_REMOVED)
                objects_removed(a, path, SERVICE);
        if (n->kind == NEWS_SERVICE_CHANGED && objects_find(a, path, &o))
                objects_service_changed(a, path);
}

static void tell(struct agent *a, const struct news *n)
{
        bool node = n->kind <= NEWS_NODE_CHANGED;

        if (n->kind == NEWS_NODE_JOINED || n->kind == NEWS_NODE_LEFT)
                log_node(a, n);
        if (n->kind == NEWS_SERVICE_ADDED || n->kind == NEWS_SERVICE_REMOVED)
                log_service(n);
        if (a->bus)
                (node ? tell_node : tell_service)(a, n);
}

struct boot_time news_run(struct agent *a, struct boot_time now)
{
        struct boot_time end = boot_add(now, SHARE);

        /* Who has followed the last run would miss it. */
        if (!a->on_bus && boot_before(now, a->news_without_bus_at))
                return a->news_without_bus_at;
        while (!TAILQ_EMPTY(&a->news)) {
                tell(a, TAILQ_FIRST(&a->news));
                drop_first(a);
                if (!boot_before(boot_now(), end))
                        return now; /* continue in the next turn */
        }
        return BOOT_TIME_NEVER;
}
