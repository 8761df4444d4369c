#include "entries.h"

#include <dirent.h>
#include <stdio.h>

#include "base/log.h"
#include "base/utf8.h"
#include "entry_file.h"

#define SUFFIX ".service-entry"

struct entry {
        TAILQ_ENTRY(entry) entry;
        char file[256]; /* its name, without the folder */
        struct service_record record;
        char *path;    /* owned */
        char why[256]; /* why the file is refused; "": it is not */
};

void entries_init(struct entries *e, struct member *m, struct units *u, entries_taken_fn *taken,
                  void *userdata)
{
        *e = (struct entries){.member = m, .units = u, .is_taken = taken, .userdata = userdata};
        TAILQ_INIT(&e->list);
        TAILQ_INIT(&e->refused);
}

static struct entry *entry_free(struct entry *n)
{
        if (n)
                free(n->path);
        free(n);
        return NULL;
}

static void drop_all(struct entry_list *l)
{
        struct entry *n;

        while ((n = TAILQ_FIRST(l))) {
                TAILQ_REMOVE(l, n, entry);
                entry_free(n);
        }
}

void entries_fini(struct entries *e)
{
        if (!e->member)
                return;
        drop_all(&e->list);
        drop_all(&e->refused);
}

/* ---- publishing ---- */

static bool is_taken(const struct entries *e, const struct service_record *r)
{
        return e->is_taken(e->userdata, r->name, r->instance);
}

static void publish(struct entries *e, struct entry *n)
{
        struct service_record r = n->record;
        const struct unit_state *s = NULL;
        int q;

        if ((*r.unit && !e->units) || is_taken(e, &r))
                return;
        if (*r.unit) {
                s = units_state(e->units, r.unit);
                if (!s)
                        return; /* the unit's state is not known yet */
                if (!s->active)
                        return member_withdraw(e->member, r.name, r.instance);
                snprintf(r.invocation, sizeof(r.invocation), "%s", s->invocation);
                snprintf(r.state, sizeof(r.state), "%s", s->sub_state);
        }
        q = member_publish(e->member, &r);
        if (q < 0)
                log_error("%s: cannot publish the service %s: %s.", n->file, r.name,
                          q == -ENOSPC ? "there are too many" : strerror(-q));
}

void entries_follow(struct entries *e, const char *unit, const struct unit_state *s)
{
        struct entry *n;

        log_debug("%s is %s (%s).", unit, s->active ? "active" : "not active", s->sub_state);
        TAILQ_FOREACH (n, &e->list, entry)
                if (strcmp(n->record.unit, unit) == 0)
                        publish(e, n);
}

static struct entry *find(const struct entry_list *l, const char *name, const char *instance)
{
        struct entry *n;

        TAILQ_FOREACH (n, l, entry)
                if (strcmp(n->record.name, name) == 0 &&
                    strcmp(n->record.instance, instance) == 0)
                        return n;
        return NULL;
}

const char *entries_owner(const struct entries *e, const char *name, const char *instance)
{
        const struct entry *n = find(&e->list, name, instance);

        return n ? n->file : NULL;
}

void entries_released(struct entries *e, const char *name, const char *instance)
{
        struct entry *n = find(&e->list, name, instance);

        if (n)
                publish(e, n);
}

/* ---- files ---- */

struct loading {
        struct entries *e;
        struct entry_list list; /* what is published from now on */
        struct entry_list refused;
        char **read; /* names of files; those in later folders are hidden */
        size_t n_read, cap;
        bool unread; /* a folder could not be read */
};

static bool was_read(const struct loading *l, const char *file)
{
        for (size_t i = 0; i < l->n_read; i++)
                if (strcmp(l->read[i], file) == 0)
                        return true;
        return false;
}

static const struct entry *find_file(const struct entries *e, const char *file)
{
        struct entry *n;

        TAILQ_FOREACH (n, &e->list, entry)
                if (strcmp(n->file, file) == 0)
                        return n;
        return NULL;
}

/* Of what is not published. */
static void keep_refused(struct loading *l, const char *path, const struct service_record *r,
                         const char *why)
{
        struct entry *n = calloc(1, sizeof(*n));

        if (n)
                n->path = strdup(path);
        if (!n || !n->path) {
                entry_free(n);
                return; /* the log has it */
        }
        if (r)
                n->record = *r;
        utf8_print(n->why, sizeof(n->why), "%s", why);
        TAILQ_INSERT_TAIL(&l->refused, n, entry);
}

/* @why: what is wrong with the file, if @r is what it said before; "": nothing. */
static void add(struct loading *l, const char *path, const char *file,
                const struct service_record *r, const char *why)
{
        const struct entry *other = find(&l->list, r->name, r->instance);
        struct units *u = *r->unit ? l->e->units : NULL;
        char taken[512];
        struct entry *n;

        if (other) {
                snprintf(taken, sizeof(taken), "the service %s%s%s is already published by %s",
                         r->name, *r->instance ? " " : "", r->instance, other->file);
                keep_refused(l, path, r, *why ? why : taken);
                return log_error("%s: %s.", file, taken);
        }
        n = calloc(1, sizeof(*n));
        if (n)
                n->path = strdup(path);
        if (!n || !n->path || (u && units_follow(u, r->unit) < 0)) {
                entry_free(n);
                return log_error("%s: %s.", file, strerror(ENOMEM));
        }
        strcpy(n->file, file);
        n->record = *r;
        utf8_print(n->why, sizeof(n->why), "%s", why);
        TAILQ_INSERT_TAIL(&l->list, n, entry);
        if (*r->unit && !u)
                log_warning("%s: there is no service manager; %s cannot be followed.", file,
                            r->unit);
        if (is_taken(l->e, r))
                log_warning("%s: a program has registered the service %s%s%s; the file counts "
                            "once that program is gone.",
                            file, r->name, *r->instance ? " " : "", r->instance);
}

static void load_file(struct loading *l, const char *folder, const char *file)
{
        const struct entry *was = find_file(l->e, file);
        struct conf_error err = {""};
        struct service_record r;
        char path[4096], name[256];
        int q;

        snprintf(path, sizeof(path), "%s/%s", folder, file);
        snprintf(name, sizeof(name), "%.*s", (int) (strlen(file) - strlen(SUFFIX)), file);
        q = entry_file_read(path, name, &r, &err);
        if (q < 0) {
                const char *why = *err.text ? err.text : strerror(-q);

                log_error("%s.", why);
                if (!was)
                        return keep_refused(l, path, NULL, why);
                r = was->record; /* what the file said before */
                return add(l, path, file, &r, why);
        }
        if (q != 0)
                add(l, path, file, &r, "");
}

static int is_entry(const struct dirent *d)
{
        size_t n = strlen(d->d_name), k = strlen(SUFFIX);

        return n > k && n < 256 && d->d_name[0] != '.' &&
               strcmp(d->d_name + n - k, SUFFIX) == 0;
}

static void load_folder(struct loading *l, const char *folder)
{
        struct dirent **files;
        int n = scandir(folder, &files, is_entry, alphasort);

        if (n < 0) {
                if (errno != ENOENT) {
                        char why[128];

                        snprintf(why, sizeof(why), "cannot read it: %s", strerror(errno));
                        log_error("%s: %s.", folder, why);
                        keep_refused(l, folder, NULL, why);
                        l->unread = true;
                }
                return;
        }
        for (int i = 0; i < n; i++) {
                char *copy;

                if (!was_read(l, files[i]->d_name)) {
                        copy = strdup(files[i]->d_name);
                        if (!copy ||
                            array_reserve(&l->read, &l->cap, l->n_read + 1, sizeof(char *)) < 0)
                                abort();
                        l->read[l->n_read++] = copy;
                        load_file(l, folder, copy);
                }
                free(files[i]);
        }
        free(files);
}

/* A service stays as it is, whichever file it is in now, unless it has another unit. */
static void replace(struct entries *e, struct entry_list *by)
{
        struct entry *n, *is;

        while ((n = TAILQ_FIRST(&e->list))) {
                struct service_record *r = &n->record;

                TAILQ_REMOVE(&e->list, n, entry);
                is = find(by, r->name, r->instance);
                if ((!is || strcmp(is->record.unit, r->unit) != 0) && !is_taken(e, r))
                        member_withdraw(e->member, r->name, r->instance);
                if (*r->unit && e->units)
                        units_leave(e->units, r->unit);
                entry_free(n);
        }
        TAILQ_CONCAT(&e->list, by, entry);
        TAILQ_FOREACH (n, &e->list, entry)
                publish(e, n);
}

void entries_load(struct entries *e, const char *path)
{
        struct loading l = {.e = e,
                            .list = TAILQ_HEAD_INITIALIZER(l.list),
                            .refused = TAILQ_HEAD_INITIALIZER(l.refused)};
        struct entry *n;
        char folder[2048];

        while (list_next(&path, folder, sizeof(folder)))
                load_folder(&l, folder);
        TAILQ_FOREACH (n, &e->list, entry)
                if (l.unread && !was_read(&l, n->file)) /* perhaps it is in that folder */
                        add(&l, n->path, n->file, &n->record, n->why);
        replace(e, &l.list);
        drop_all(&e->refused);
        TAILQ_CONCAT(&e->refused, &l.refused, entry);
        for (size_t i = 0; i < l.n_read; i++)
                free(l.read[i]);
        free(l.read);
}

/* ---- to be told ---- */

/* Why the service of a file that was read is not published; "": nothing prevents that. */
static const char *why_not(const struct entries *e, const struct entry *n, char why[static 256])
{
        *why = '\0';
        if (is_taken(e, &n->record))
                snprintf(why, 256,
                         "a program has registered the service; the file counts once that "
                         "program is gone");
        else if (*n->record.unit && !e->units)
                utf8_print(why, 256, "there is no service manager; %s cannot be followed",
                           n->record.unit);
        return why;
}

int entries_each(const struct entries *e, entries_each_fn *fn, void *userdata)
{
        const struct entry_list *lists[] = {&e->list, &e->refused};
        struct entry_told told;
        struct entry *n;
        char why[256];
        int r = 0;

        for (size_t i = 0; i < ARRAY_SIZE(lists); i++)
                TAILQ_FOREACH (n, lists[i], entry) {
                        told = (struct entry_told){.path = n->path, .record = &n->record};
                        if (*n->why) {
                                told.state = i == 0 ? "outdated" : "refused";
                                told.why = n->why;
                        } else {
                                told.why = why_not(e, n, why);
                                told.state = *why ? "waiting" : "loaded";
                        }
                        r = fn(&told, userdata);
                        if (r < 0)
                                return r;
                }
        return r;
}
