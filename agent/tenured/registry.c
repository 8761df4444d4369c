#include "registry.h"

#include <stdio.h>
#include <unistd.h>

#include "base/log.h"
#include "bus/signals.h"

struct registration {
        TAILQ_ENTRY(registration) entry;
        struct registry *registry;
        struct service_record record;
        char sender[256];
        sd_bus_slot *asked; /* whether the program is still there */
};

static void drop(struct registration *n)
{
        struct registry *r = n->registry;

        TAILQ_REMOVE(&r->list, n, entry);
        sd_bus_slot_unref(n->asked);
        free(n);
        if (TAILQ_EMPTY(&r->list))
                r->match = sd_bus_slot_unref(r->match);
}

static void end(struct registration *n)
{
        struct service_record was = n->record;
        struct registry *r = n->registry;

        member_withdraw(r->member, was.name, was.instance);
        drop(n);
        r->ops->released(r->userdata, was.name, was.instance);
}

static struct registration *find(const struct registry *r, const char *name,
                                 const char *instance)
{
        struct registration *n;

        TAILQ_FOREACH (n, &r->list, entry)
                if (strcmp(n->record.name, name) == 0 &&
                    strcmp(n->record.instance, instance) == 0)
                        return n;
        return NULL;
}

const char *registry_owner(const struct registry *r, const char *name, const char *instance)
{
        const struct registration *n = find(r, name, instance);

        return n ? n->sender : NULL;
}

static void check_known(struct registry *r)
{
        struct registration *n;

        TAILQ_FOREACH (n, &r->list, entry)
                if (n->asked)
                        return;
        if (r->known)
                return;
        r->known = true;
        r->ops->known(r->userdata);
}

/* ---- the file ---- */

#define HEAD "# What programs have registered; nothing to edit."

static void write_all(const void *userdata, FILE *f)
{
        const struct registry *r = userdata;
        const struct registration *n;

        fprintf(f, HEAD "\nBUS\t%s\nTAGS\t%s\n", r->bus_id, r->tags);
        TAILQ_FOREACH (n, &r->list, entry)
                fprintf(f, "SERVICE\t%s\t%s\t%s\t%s\t%u\t%s\n", n->sender, n->record.name,
                        n->record.instance, n->record.address, n->record.port, n->record.tags);
}

void registry_save(const struct registry *r)
{
        runtime_write(r->file, write_all, r, "forget what programs have registered");
}

/* The next field, up to a tab; "" if there is none. */
static const char *next_field(char **line)
{
        char *s = *line ? strsep(line, "\t") : NULL;

        return s ? s : "";
}

/* ---- the programs ---- */

static int follow(struct registration *n);

static int on_owner(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct registration *n = userdata;
        struct registry *r = n->registry;

        n->asked = sd_bus_slot_unref(n->asked);
        /* The bus has not answered, which says nothing of the program. */
        if (sd_bus_message_is_method_error(m, SD_BUS_ERROR_NO_REPLY) && follow(n) >= 0)
                return 0;
        if (sd_bus_message_is_method_error(m, NULL)) {
                end(n);
                registry_save(r);
        } else if (member_publish(r->member, &n->record) < 0) {
                log_error("Cannot publish the service %s any more.", n->record.name);
                end(n);
        }
        check_known(r);
        return 0;
}

static void on_departure(void *userdata, const char *name)
{
        struct registry *r = userdata;
        struct registration *n, *after;
        bool any = false;

        TAILQ_FOREACH_SAFE (n, &r->list, entry, after) {
                if (strcmp(n->sender, name) != 0)
                        continue;
                log_info("The program that registered the service %s is gone.", n->record.name);
                end(n);
                any = true;
        }
        if (!any)
                return;
        registry_save(r);
        check_known(r);
}

/* Add the match before asking, so that a program that goes in between is noticed. One for all
 * of them: a bus lets a connection have a few hundred (max_match_rules_per_connection). */
static int follow(struct registration *n)
{
        struct registry *r = n->registry;
        int q = 0;

        if (!r->match)
                q = signals_add_departures(r->sd, &r->match, on_departure, r);
        if (q >= 0)
                q = sd_bus_call_method_async(r->sd, &n->asked, DBUS, DBUS_PATH, DBUS,
                                             "GetNameOwner", on_owner, n, "s", n->sender);
        return q;
}

/* Restores one line of the file of an earlier run. */
static void restore(struct registry *r, char *line)
{
        struct service_record s = {0};
        struct registration *n;
        const char *sender = next_field(&line);

        snprintf(s.name, sizeof(s.name), "%s", next_field(&line));
        snprintf(s.instance, sizeof(s.instance), "%s", next_field(&line));
        snprintf(s.address, sizeof(s.address), "%s", next_field(&line));
        s.port = (uint16_t) strtoul(next_field(&line), NULL, 10);
        /* The program's name on the bus identifies its run. */
        snprintf(s.invocation, sizeof(s.invocation), "%s", sender);
        if (!*sender || !service_name_is_valid(s.name) ||
            tags_set_list(s.tags, next_field(&line)) < 0 || find(r, s.name, s.instance))
                return;
        n = calloc(1, sizeof(*n));
        if (!n)
                abort();
        n->registry = r;
        n->record = s;
        snprintf(n->sender, sizeof(n->sender), "%s", sender);
        TAILQ_INSERT_TAIL(&r->list, n, entry);
}

static void load(struct registry *r)
{
        FILE *f = *r->file ? fopen(r->file, "re") : NULL;
        char *line = NULL;
        size_t cap = 0;

        while (f && getline(&line, &cap, f) > 0) {
                char *rest = line;
                const char *key;

                line[strcspn(line, "\n")] = '\0';
                key = next_field(&rest);
                if (strcmp(key, "BUS") == 0)
                        snprintf(r->bus_id, sizeof(r->bus_id), "%s", next_field(&rest));
                else if (strcmp(key, "TAGS") == 0)
                        (void) !tags_set_list(r->tags, next_field(&rest));
                else if (strcmp(key, "SERVICE") == 0)
                        restore(r, rest);
        }
        free(line);
        if (f)
                fclose(f);
}

/* ---- the bus ---- */

/* Asks for each program that an earlier run left whether it is still there. */
static void ask_all(struct registry *r, bool same_bus)
{
        struct registration *n, *after;

        TAILQ_FOREACH_SAFE (n, &r->list, entry, after)
                if (!same_bus || follow(n) < 0)
                        end(n);
}

static int on_id(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct registry *r = userdata;
        const char *id = "";

        r->asked = sd_bus_slot_unref(r->asked);
        if (!sd_bus_message_is_method_error(m, NULL))
                (void) !sd_bus_message_read(m, "s", &id);
        if (!r->known)
                ask_all(r, strcmp(id, r->bus_id) == 0);
        snprintf(r->bus_id, sizeof(r->bus_id), "%s", id);
        check_known(r);
        return 0;
}

void registry_attach(struct registry *r, sd_bus *sd)
{
        struct registration *n;
        bool any = !TAILQ_EMPTY(&r->list);

        r->asked = sd_bus_slot_unref(r->asked);
        r->sd = sd;
        if (sd && sd_bus_call_method_async(sd, &r->asked, DBUS, DBUS_PATH, DBUS, "GetId", on_id,
                                           r, NULL) >= 0)
                return;
        while ((n = TAILQ_FIRST(&r->list)))
                end(n);
        if (any)
                registry_save(r);
        check_known(r);
}

/* ---- ---- */

void registry_init(struct registry *r, struct member *m, const struct registry_ops *ops,
                   void *userdata)
{
        *r = (struct registry){.member = m, .ops = ops, .userdata = userdata};
        TAILQ_INIT(&r->list);
        (void) runtime_path("registered", r->file);
        load(r);
}

void registry_fini(struct registry *r)
{
        struct registration *n;

        if (!r->member)
                return;
        r->asked = sd_bus_slot_unref(r->asked);
        while ((n = TAILQ_FIRST(&r->list)))
                drop(n);
}

int registry_add(struct registry *r, sd_bus_message *m, struct service_record *s)
{
        struct registration *n = find(r, s->name, s->instance);
        const char *sender = sd_bus_message_get_sender(m);
        int q;

        if (n && strcmp(n->sender, sender) != 0)
                return -EEXIST;
        snprintf(s->invocation, sizeof(s->invocation), "%s", sender);
        q = member_publish(r->member, s);
        if (q < 0)
                return q;
        if (!n) {
                n = calloc(1, sizeof(*n));
                if (!n) {
                        member_withdraw(r->member, s->name, s->instance);
                        return -ENOMEM;
                }
                n->registry = r;
                snprintf(n->sender, sizeof(n->sender), "%s", sender);
                TAILQ_INSERT_TAIL(&r->list, n, entry);
                n->record = *s;
                q = follow(n);
                if (q < 0) {
                        end(n);
                        return q;
                }
        }
        n->record = *s;
        registry_save(r);
        return 0;
}

void registry_remove(struct registry *r, const char *name, const char *instance)
{
        struct registration *n = find(r, name, instance);

        if (!n)
                return;
        end(n);
        registry_save(r);
}
