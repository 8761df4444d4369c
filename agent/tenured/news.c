#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "objects.h"

/* Journal message ids, explained in conf/tenure.catalog. */
#define MESSAGE_JOINED "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a004"
#define MESSAGE_LEFT "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a005"
#define MESSAGE_SERVICE_ADDED "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a008"
#define MESSAGE_SERVICE_REMOVED "MESSAGE_ID=8d7b2a54a0b94d0f9c5d4e7a36d2a009"

#define SHARE (3 * NSEC_PER_MSEC) /* of a turn */

struct news {
        TAILQ_ENTRY(news) entry;
        enum news_kind kind;
        int level;
        int64_t revision;
        const char *name, *of, *instance, *reason; /* into `text` */
        char text[];
};

static void on_timer(struct loop_timer *t)
{
        (void) t; /* the hook does the work */
}

void news_init(struct agent *a)
{
        TAILQ_INIT(&a->news);
        loop_timer_init(&a->news_timer, a->loop, on_timer);
}

static void drop_first(struct agent *a)
{
        struct news *n = TAILQ_FIRST(&a->news);

        TAILQ_REMOVE(&a->news, n, entry);
        free(n);
}

void news_fini(struct agent *a)
{
        if (!a->news_timer.loop)
                return;
        loop_timer_disarm(&a->news_timer);
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
                abort(); /* a membership with a hole would lie */
        at = n->text;
        n->kind = kind;
        n->revision = revision;
        n->name = put(&at, name);
        n->of = put(&at, of);
        n->instance = put(&at, instance);
        n->reason = put(&at, reason);
        /* What was there before us is no news: a site may have 100,000 services. */
        n->level = kind == NEWS_NODE_LEFT     ? LOG_NOTICE
                   : client_synced(a->client) ? LOG_INFO
                                              : LOG_DEBUG;
        TAILQ_INSERT_TAIL(&a->news, n, entry);
}

int64_t news_revision(const struct agent *a)
{
        const struct news *n = TAILQ_FIRST(&a->news);
        int64_t known = client_revision(a->client);

        return n ? min_of(known, n->revision - 1) : known;
}

/* ---- the log ---- */

static void log_node(const struct news *n)
{
        char f_node[NODE_NAME_MAX + 16], f_id[80], f_rev[48], f_reason[64];
        const char *fields[] = {n->kind == NEWS_NODE_LEFT ? MESSAGE_LEFT : MESSAGE_JOINED,
                                f_node,
                                f_id,
                                f_rev,
                                *n->reason ? f_reason : NULL,
                                NULL};

        snprintf(f_node, sizeof(f_node), "NODE=%s", n->name);
        snprintf(f_id, sizeof(f_id), "NODE_ID=%s", n->of);
        snprintf(f_rev, sizeof(f_rev), "REVISION=%" PRId64, n->revision);
        snprintf(f_reason, sizeof(f_reason), "REASON=%s", n->reason);
        if (n->kind == NEWS_NODE_LEFT)
                log_full(n->level, fields, "Node %s left: %s.", n->name, n->reason);
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
                 *n->instance ? " " : "", n->instance, n->of, gone ? "is gone: " : "is there",
                 n->reason);
}

/* ---- the bus ---- */

static void check(int r, const char *what)
{
        if (r < 0)
                log_debug("D-Bus: cannot send %s: %s.", what, strerror(-r));
}

/* Others may have happened since: what is there now is told of objects that still are. */
static void tell_node(struct agent *a, const struct news *n)
{
        cleanup_(freep) char *path = NULL;
        sd_bus *bus = bus_sd(a->bus);

        if (!node_path(n->name, &path))
                return;
        if (n->kind == NEWS_NODE_LEFT) {
                check(sd_bus_emit_signal(bus, ROOT, MANAGER, "NodeLeft", "sssxo", n->name,
                                         n->of, n->reason, n->revision, path),
                      "NodeLeft");
                return objects_removed(a, path, NODE);
        }
        if (n->kind == NEWS_NODE_JOINED && objects_has(a, path))
                objects_added(a, path);
        check(sd_bus_emit_signal(bus, ROOT, MANAGER,
                                 n->kind == NEWS_NODE_JOINED ? "NodeJoined" : "NodeChanged",
                                 "ssxo", n->name, n->of, n->revision, path),
              "NodeJoined");
        if (n->kind == NEWS_NODE_CHANGED && objects_has(a, path))
                objects_node_changed(a, path);
}

static void tell_service(struct agent *a, const struct news *n)
{
        const struct service s = {.name = n->name, .node = n->of, .instance = n->instance};
        cleanup_(freep) char *path = NULL;
        sd_bus *bus = bus_sd(a->bus);

        if (!service_path(&s, &path))
                return;
        if (n->kind == NEWS_SERVICE_REMOVED) {
                check(sd_bus_emit_signal(bus, ROOT, MANAGER, "ServiceRemoved", "ssssxo",
                                         n->name, n->of, n->instance, n->reason, n->revision,
                                         path),
                      "ServiceRemoved");
                return objects_removed(a, path, SERVICE);
        }
        if (n->kind == NEWS_SERVICE_ADDED && objects_has(a, path))
                objects_added(a, path);
        check(sd_bus_emit_signal(bus, ROOT, MANAGER,
                                 n->kind == NEWS_SERVICE_ADDED ? "ServiceAdded"
                                                               : "ServiceChanged",
                                 "sssxo", n->name, n->of, n->instance, n->revision, path),
              "ServiceAdded");
        if (n->kind == NEWS_SERVICE_CHANGED && objects_has(a, path))
                objects_service_changed(a, path);
}

static void tell(struct agent *a, const struct news *n)
{
        bool node = n->kind <= NEWS_NODE_CHANGED;

        if (n->kind != NEWS_NODE_CHANGED && n->kind != NEWS_SERVICE_CHANGED)
                (node ? log_node : log_service)(n);
        if (a->bus)
                (node ? tell_node : tell_service)(a, n);
}

void news_pump(struct agent *a)
{
        struct boot_time end = boot_add(boot_now(), SHARE);

        while (!TAILQ_EMPTY(&a->news)) {
                if (!boot_before(boot_now(), end)) {
                        if (loop_timer_arm(&a->news_timer, boot_now()) < 0)
                                abort();
                        return;
                }
                tell(a, TAILQ_FIRST(&a->news));
                drop_first(a);
        }
}
