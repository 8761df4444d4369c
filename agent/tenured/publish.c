/* What this node publishes about itself and its services: from the settings, from the units and
 * links that are followed, and from programs. Any of them may change it; member_publish() and
 * member_set_self() write it to the core. */
#include <stdio.h>

#include "agent.h"
#include "base/log.h"
#include "bus/messages.h"

#define LAG_MIN (50 * NSEC_PER_MSEC)

int publish_tags(const struct agent *a, const char *set, char tags[static TAGS_MAX])
{
        char name[TAGS_MAX], value[TAGS_MAX];
        int r = 0;

        tags[0] = '\0';
        (void) !tags_set_list(tags, a->opt.tags);
        while (tags_next(&set, name, value))
                if (tags_set(tags, name, value) < 0)
                        r = -ENOSPC;
        return r;
}

/* Keeps the published address towards the core while this host has it: another core host that
 * answers now is no reason to change it. */
static void choose_addresses(struct agent *a, char *out, size_t size)
{
        const struct link_table *t = a->links ? links_table(a->links) : &a->no_links;
        char source[sizeof(a->source)];

        client_source(a->client, source, sizeof(source));
        if (*source && !link_table_has(t, a->source))
                strcpy(a->source, source);
        link_table_choose(t, a->opt.addresses, a->source, out, size);
}

void agent_publish(struct agent *a)
{
        const struct node_record *self = member_self(a->member);
        char tags[TAGS_MAX], addresses[NODE_ADDRESSES_MAX], was[NODE_ADDRESSES_MAX];

        /* If a DNS name stands for several hosts, each endpoint has its own source address. */
        snprintf(a->published_at, sizeof(a->published_at), "%s", member_endpoint(a->member));
        if (publish_tags(a, a->registry.tags, tags) < 0)
                log_warning("Tags= leaves too little room for the tags that were set on D-Bus: "
                            "some of these are not published.");
        strcpy(was, self->addresses);
        choose_addresses(a, addresses, sizeof(addresses));
        /* Without a link and without a core there is nobody to tell, so keep the former
         * addresses. */
        member_set_self(a->member, *addresses ? addresses : was, tags, a->health.degraded.why);
        if (strcmp(was, self->addresses) != 0)
                log_info("This node is reached at %s.", self->addresses);
}

static void check_known(struct agent *a);

static void on_links_changed(void *userdata)
{
        struct agent *a = userdata;

        agent_publish(a);
        check_known(a);
}

static void on_path_back(void *userdata)
{
        struct agent *a = userdata;

        log_debug("The network has changed.");
        member_path_back(a->member, loop_now(a->loop));
}

static const struct links_ops links_ops = {.changed = on_links_changed,
                                           .path_back = on_path_back};

static void make_links(struct agent *a)
{
        int r = links_new(&a->links, a->loop, &links_ops, a);

        if (r < 0)
                log_warning("Cannot follow the kernel's addresses: %s.", strerror(-r));
}

/* A service that an earlier run published is withdrawn only once we know that it is gone. */
static void check_known(struct agent *a)
{
        if (a->registry.known && (!a->units || units_known(a->units)) &&
            (!a->links || links_known(a->links)))
                member_published_all(a->member);
}

static void on_unit(void *userdata, const char *unit, const struct unit_state *s)
{
        struct agent *a = userdata;

        entries_follow(&a->entries, unit, s);
        check_known(a);
}

static void on_registry_known(void *userdata)
{
        struct agent *a = userdata;

        agent_publish(a);
        check_known(a);
}

static void on_released(void *userdata, const char *name, const char *instance)
{
        struct agent *a = userdata;

        entries_released(&a->entries, name, instance);
}

static const struct registry_ops registry_ops = {.known = on_registry_known,
                                                 .released = on_released};

static bool is_registered(void *userdata, const char *name, const char *instance)
{
        struct agent *a = userdata;

        return registry_owner(&a->registry, name, instance) != NULL;
}

int publish_start(struct agent *a)
{
        int r = a->pid1 ? units_new(&a->units, a->loop, on_unit, a) : 0;

        if (r < 0)
                return r;
        link_table_init(&a->no_links);
        health_init(&a->health);
        entries_init(&a->entries, a->member, a->units, is_registered, a);
        registry_init(&a->registry, a->member, &registry_ops, a);
        make_links(a);
        entries_load(&a->entries, a->opt.services_path);
        return 0;
}

void publish_reload(struct agent *a)
{
        entries_load(&a->entries, a->opt.services_path);
        agent_publish(a);
}

/* Checked with every heartbeat, which wakes us up anyway. */
static void look_at_health(struct agent *a, struct boot_time now)
{
        const struct session *s = member_session(a->member);
        const struct degraded_config cfg = {(unsigned) a->opt.degraded_pressure,
                                            (unsigned) a->opt.degraded_cpu_pressure,
                                            max_of(s->ttl / 20, LAG_MIN)};
        const char *fields[] = {NULL, NULL};
        nsec_t lag;

        if (s->lease == 0 || s->renewed_at.ns == a->health.looked_at.ns)
                return;
        a->health.looked_at = s->renewed_at;
        lag = loop_take_lag(a->loop);
        evidence_late(a->measured.evidence, lag, now);
        if (!health_look(&a->health, &cfg, lag, now))
                return;
        if (*a->health.degraded.why) {
                fields[0] = MESSAGE_DEGRADED;
                log_full(LOG_WARNING, fields, "This host is degraded: %s.",
                         a->health.degraded.why);
        } else {
                fields[0] = MESSAGE_WELL;
                log_full(LOG_NOTICE, fields, "This host is no longer degraded.");
        }
        agent_publish(a);
}

struct boot_time publish_run(struct agent *a, struct boot_time now)
{
        look_at_health(a, now);
        if (strcmp(member_endpoint(a->member), a->published_at) != 0) {
                agent_publish(a);
                root_changed(a, "CoreEndpoint");
        }
        if (a->links) /* routes too: a session that waits for a path may get one by them */
                links_want_routes(a->links,
                                  a->state != SESSION_HELD || !member_synced(a->member));
        return BOOT_TIME_NEVER;
}

void publish_stop(struct agent *a)
{
        health_fini(&a->health);
        registry_fini(&a->registry);
        entries_fini(&a->entries);
        units_free(a->units);
        links_free(a->links);
}
