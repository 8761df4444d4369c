/* Publishes this program as a service: through the agent, for as long as we are on the bus; or
 * in the core, on a lease of the tie's own. */
#include <stdio.h>

#include "base/utf8.h"
#include "member/tags.h"
#include "tenure/internal.h"

static struct registration *find(struct tenure *t, const char *name, const char *instance)
{
        struct registration *g;

        TAILQ_FOREACH (g, &t->registrations, entry)
                if (strcmp(g->record.name, name) == 0 &&
                    strcmp(g->record.instance, instance) == 0)
                        return g;
        return NULL;
}

static struct member *own(struct tenure *t)
{
        return t->hold.kind == HOLD_OWN && t->started ? client_member(t->client) : NULL;
}

static const char *or_nothing(const char *s)
{
        return s ? s : "";
}

static int read_service(struct tenure *t, const struct tenure_service *s,
                        struct service_record *ret)
{
        const char *name = or_nothing(s->name), *instance = or_nothing(s->instance),
                   *address = or_nothing(s->address);

        *ret = (struct service_record){.port = s->port};
        if (!service_name_is_valid(name) || (*instance && !service_name_is_valid(instance)))
                return tenure_fail(t, -EINVAL,
                                   "the name of a service, or of an instance, has 1 to %d "
                                   "letters, digits and . _ - :, without a leading dot; '%s' "
                                   "is not one",
                                   SERVICE_NAME_MAX,
                                   service_name_is_valid(name) ? instance : name);
        if (strlen(address) >= sizeof(ret->address) || strpbrk(address, " \t\n,"))
                return tenure_fail(t, -EINVAL,
                                   "the address of the service '%s' is not valid: '%s'", name,
                                   address);
        if (tags_set_list(ret->tags, or_nothing(s->tags)) < 0)
                return tenure_fail(t, -EINVAL,
                                   "tags are name=value pairs separated by commas, at most %d "
                                   "bytes, not '%s'",
                                   TAGS_MAX - 1, s->tags);
        strcpy(ret->name, name);
        strcpy(ret->instance, instance);
        strcpy(ret->address, address);
        strcpy(ret->state, "running");
        /* As in records of others: D-Bus accepts only valid UTF-8. */
        utf8_dbus_mend(ret->address, strlen(ret->address));
        return 0;
}

static int announce(struct tenure *t, struct registration *g)
{
        struct member *m = own(t);
        int r;

        if (!m) {
                g->settled = false;
                if (t->agent.started) {
                        agent_register_services(t);
                        tenure_wake(t);
                }
                return 0;
        }
        r = member_publish(m, &g->record);
        tenure_wake(t);
        if (r == -ENOSPC)
                return tenure_fail(t, r, "a tie registers %d services at most",
                                   MEMBER_PUBLISHED_MAX);
        return r < 0 ? tenure_fail(t, r, "out of memory") : 0;
}

int tenure_register(struct tenure *t, const struct tenure_service *s)
{
        struct registration *g, *fresh = NULL;
        struct service_record record;
        int r;

        if (t->hold.kind == HOLD_NONE)
                return tenure_fail(t, -EINVAL,
                                   "a service needs a place or a lease; call "
                                   "tenure_hold_with_agent() or tenure_hold_own() first");
        r = read_service(t, s, &record);
        if (r < 0)
                return r;
        g = find(t, record.name, record.instance);
        if (g && g->wanted) {
                strcpy(record.invocation, g->record.invocation);
        } else { /* a new life of the service */
                r = tenure_draw_id(t, record.invocation);
                if (r < 0)
                        return r;
        }
        if (!g) {
                g = fresh = calloc(1, sizeof(*g));
                if (!g)
                        return tenure_fail(t, -ENOMEM, "out of memory");
                g->tie = t;
                TAILQ_INSERT_TAIL(&t->registrations, g, entry);
        }
        g->record = record;
        g->wanted = true;
        r = announce(t, g);
        if (r < 0 && fresh) {
                TAILQ_REMOVE(&t->registrations, fresh, entry);
                free(fresh);
        }
        return r;
}

int tenure_unregister(struct tenure *t, const char *name, const char *instance)
{
        struct registration *g = find(t, name, or_nothing(instance));
        struct member *m = own(t);

        if (!g || !g->wanted)
                return tenure_fail(t, -ENOENT, "no service '%s' %s is registered", name,
                                   or_nothing(instance));
        if (m)
                member_withdraw(m, g->record.name, g->record.instance);
        else if (t->agent.started && t->agent.bus) {
                g->wanted = false;
                return announce(t, g);
        }
        TAILQ_REMOVE(&t->registrations, g, entry);
        free(g);
        tenure_wake(t);
        return 0;
}

int register_start(struct tenure *t)
{
        struct registration *g;
        struct member *m = own(t);

        if (!m)
                return 0;
        TAILQ_FOREACH (g, &t->registrations, entry) {
                int r = announce(t, g);

                if (r < 0)
                        return r;
        }
        member_published_all(m);
        return 0;
}
