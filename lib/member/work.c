#include "member/work.h"

#include <stdio.h>

#include "base/probe.h"
#include "member/node_record.h"
#include "member/rendezvous.h"

#define SETTLES_MOST 5

static struct work_peer *peer_free(struct work_peer *p)
{
        free(p->name);
        work_record_fini(&p->record);
        free(p);
        return NULL;
}

/* Takes the tasks meant for @p, or all tasks if it is NULL, out of the assignment. */
static void unassign(struct work *w, const struct work_peer *p)
{
        for (size_t i = 0; i < w->n; i++) {
                struct work_task *t = &w->tasks[i];

                if (p && t->best != p)
                        continue;
                t->best = NULL;
                t->unassigned = true;
        }
        w->changed = true;
}

static void remove_peer(struct work *w, struct work_peer *p)
{
        unassign(w, p);
        LIST_REMOVE(p, entry);
        peer_free(p);
}

static void forget_peers(struct work *w)
{
        struct work_peer *p;

        unassign(w, NULL);
        while ((p = LIST_FIRST(&w->peers))) {
                LIST_REMOVE(p, entry);
                peer_free(p);
        }
}

int work_init(struct work *w, const char *name, struct work_record *record, nsec_t settle)
{
        *w = (struct work){.settle = settle, .changed = true};
        LIST_INIT(&w->peers);
        w->self.record = *record;
        *record = (struct work_record){0};
        w->self.name = strdup(name);
        w->tasks = calloc(max_of(w->self.record.n, (size_t) 1), sizeof(*w->tasks));
        if (w->tasks)
                w->n = w->self.record.n;
        if (!w->self.name || !w->tasks) {
                work_fini(w);
                return -ENOMEM;
        }
        w->self.hash = rendezvous_hash(name);
        for (size_t i = 0; i < w->n; i++) {
                struct work_task *t = &w->tasks[i];

                t->name = work_record_name(&w->self.record, i, t->number);
                t->hash = rendezvous_hash(t->name);
                t->unassigned = true;
        }
        return 0;
}

void work_fini(struct work *w)
{
        forget_peers(w);
        free(w->tasks);
        w->tasks = NULL;
        w->n = 0;
        free(w->self.name);
        w->self.name = NULL;
        work_record_fini(&w->self.record);
}

void work_hold(struct work *w, int64_t lease)
{
        w->lease = lease;
        w->unlisted = w->unsettled = false;
        forget_peers(w);
        for (size_t i = 0; i < w->n; i++) {
                struct work_task *t = &w->tasks[i];

                t->lease = t->created = t->given = 0;
                t->asked = WORK_NOTHING;
        }
}

void work_leave(struct work *w)
{
        w->leaving = true;
        unassign(w, &w->self);
}

/* ---- waiting for members that join ---- */

static struct boot_time settled_at(const struct work *w)
{
        return boot_min(boot_add(w->joined_last, w->settle),
                        boot_add(w->joined_first, SETTLES_MOST * w->settle));
}

static bool is_settled(const struct work *w, struct boot_time now)
{
        return !w->unsettled || !boot_before(now, settled_at(w));
}

static void somebody_joined(struct work *w, struct boot_time now)
{
        if (is_settled(w, now))
                w->joined_first = now;
        w->unsettled = true;
        w->joined_last = now;
}

/* ---- reading the group's keys ---- */

/* Copies the name below @folder, NUL-terminated, to @to. */
static bool name_below(struct view key, const char *folder, char to[static NODE_NAME_MAX + 1])
{
        size_t n = strlen(folder);

        if (key.len <= n || key.len - n > NODE_NAME_MAX || memcmp(key.p, folder, n) != 0)
                return false;
        memcpy(to, key.p + n, key.len - n);
        to[key.len - n] = '\0';
        return strlen(to) == key.len - n;
}

static struct work_peer *find_peer(struct work *w, const char *name)
{
        struct work_peer *p;

        LIST_FOREACH (p, &w->peers, entry)
                if (strcmp(p->name, name) == 0)
                        return p;
        return NULL;
}

struct work_task *work_find(struct work *w, const char *task)
{
        size_t from = 0, to = w->n;

        if (!w->self.record.names) {
                from = strtoul(task, NULL, 10);
                if (!work_record_has(&w->self.record, task))
                        return NULL;
                return &w->tasks[from - 1];
        }
        PROBE("tasks have names");
        while (from < to) {
                size_t middle = from + (to - from) / 2;
                int c = strcmp(task, w->tasks[middle].name);

                if (c == 0)
                        return &w->tasks[middle];
                if (c < 0)
                        to = middle;
                else
                        from = middle + 1;
        }
        return NULL;
}

static bool same_record(const struct work_record *a, const struct work_record *b)
{
        if (a->weight != b->weight || a->n != b->n || !a->names != !b->names)
                return false;
        for (size_t i = 0; a->names && i < a->n; i++)
                if (strcmp(a->names[i], b->names[i]) != 0)
                        return false;
        return true;
}

static int see_peer(struct work *w, const char *name, struct view value, int64_t lease,
                    struct boot_time now)
{
        struct work_peer *p = find_peer(w, name);
        struct work_record record;
        int r;

        if (strcmp(name, w->self.name) == 0) {
                /* If the key is not on our lease, somebody else wrote it, and it does not
                 * entitle us to tasks. */
                w->unlisted = lease != w->lease;
                return 0;
        }
        /* A member without a lease was written by hand: it never expires, and takes nothing. */
        r = lease == 0 ? -EBADMSG : work_record_read(&record, value.p, value.len);
        if (r == -ENOMEM)
                return r;
        if (r < 0) /* we assign no tasks to a member whose record we cannot read */
                record = (struct work_record){.weight = 1};
        if (p && same_record(&p->record, &record)) {
                p->seen = true;
                work_record_fini(&record);
                return 0;
        }
        if (!p) {
                p = calloc(1, sizeof(*p));
                if (p)
                        p->name = strdup(name);
                if (!p || !p->name) {
                        free(p);
                        work_record_fini(&record);
                        return -ENOMEM;
                }
                p->hash = rendezvous_hash(name);
                LIST_INSERT_HEAD(&w->peers, p, entry);
        }
        unassign(w, p);
        work_record_fini(&p->record);
        p->record = record;
        p->seen = p->fresh = true;
        somebody_joined(w, now);
        return 0;
}

static void see_task(struct work_task *t, int64_t lease, int64_t created)
{
        t->seen = true;
        t->lease = lease;
        t->created = created;
        if (t->asked == WORK_TAKE || created != t->given)
                t->asked = WORK_NOTHING;
}

static void task_is_gone(struct work_task *t)
{
        t->lease = t->created = 0;
        if (t->asked == WORK_GIVE)
                t->asked = WORK_NOTHING;
}

int work_seen(struct work *w, struct view key, struct view value, int64_t lease,
              int64_t created, struct boot_time now)
{
        char name[NODE_NAME_MAX + 1];
        struct work_task *t;

        if (name_below(key, "members/", name))
                return see_peer(w, name, value, lease, now);
        t = name_below(key, "tasks/", name) ? work_find(w, name) : NULL;
        if (t)
                see_task(t, lease, created);
        return 0;
}

void work_seen_deleted(struct work *w, struct view key)
{
        char name[NODE_NAME_MAX + 1];
        struct work_task *t;
        struct work_peer *p;

        if (name_below(key, "members/", name)) {
                w->unlisted |= strcmp(name, w->self.name) == 0;
                p = find_peer(w, name);
                if (p)
                        remove_peer(w, p);
                return;
        }
        t = name_below(key, "tasks/", name) ? work_find(w, name) : NULL;
        if (t)
                task_is_gone(t);
}

void work_look(struct work *w)
{
        struct work_peer *p;

        w->unlisted = true;
        LIST_FOREACH (p, &w->peers, entry)
                p->seen = false;
        for (size_t i = 0; i < w->n; i++)
                w->tasks[i].seen = false;
}

void work_looked(struct work *w)
{
        struct work_peer *p, *next;

        LIST_FOREACH_SAFE (p, &w->peers, entry, next)
                if (!p->seen)
                        remove_peer(w, p);
        for (size_t i = 0; i < w->n; i++) {
                struct work_task *t = &w->tasks[i];

                if (t->seen)
                        continue;
                task_is_gone(t);
                PROBE_IF(t->asked == WORK_TAKE, "a task that a member asked for is not there");
                t->asked = WORK_NOTHING; /* no further event of its key will come */
        }
}

/* ---- assigning tasks ---- */

static bool is_better(const struct work_peer *a, uint64_t log_a, const struct work_peer *b,
                      uint64_t log_b)
{
        unsigned wa = a->record.weight, wb = b->record.weight;

        if (rendezvous_less(log_a, wa, log_b, wb))
                return true;
        return !rendezvous_less(log_b, wb, log_a, wa) && strcmp(a->name, b->name) < 0;
}

/* Assigns the task to @p if @p is the best candidate so far. */
static void offer(struct work_task *t, const struct work_peer *p)
{
        uint64_t log;

        if (!work_record_has(&p->record, t->name))
                return;
        log = rendezvous_log(t->hash, p->hash);
        if (t->best && !is_better(p, log, t->best, t->log))
                return;
        t->best = p;
        t->log = log;
}

/* A member that joins can only take tasks, and one that leaves frees only its own. So each task
 * is compared only with the members that have joined, or with all if its own has left; there
 * may be many of both. */
void work_assign(struct work *w)
{
        struct work_peer *p;

        if (!w->changed)
                return;
        w->changed = false;
        LIST_FOREACH (p, &w->peers, entry) {
                for (size_t i = 0; p->fresh && i < w->n; i++)
                        if (!w->tasks[i].unassigned)
                                offer(&w->tasks[i], p);
                p->fresh = false;
        }
        for (size_t i = 0; i < w->n; i++) {
                struct work_task *t = &w->tasks[i];

                if (!t->unassigned)
                        continue;
                t->unassigned = false;
                if (!w->leaving)
                        offer(t, &w->self);
                LIST_FOREACH (p, &w->peers, entry)
                        offer(t, p);
        }
}

/* ---- the next step ---- */

static bool is_ours(const struct work *w, const struct work_task *t)
{
        return w->lease != 0 && t->created != 0 && t->lease == w->lease;
}

static bool is_wanted(const struct work *w, const struct work_task *t)
{
        return w->lease != 0 && !w->leaving && t->best == &w->self;
}

static enum work_step while_it_runs(const struct work *w, const struct work_task *t,
                                    struct boot_time now)
{
        if (!is_ours(w, t) || t->created != t->token || w->leaving)
                return WORK_END;
        /* A member that leaves never ends a task of ours; only one that has joined can take a
         * task from us. */
        return !is_wanted(w, t) && is_settled(w, now) ? WORK_END : WORK_NOTHING;
}

enum work_step work_next_step(const struct work *w, const struct work_task *t,
                              struct boot_time now)
{
        if (t->run == WORK_RUNS)
                return while_it_runs(w, t, now);
        if (t->run == WORK_STOPS)
                return WORK_NOTHING;
        if (is_ours(w, t)) {
                if (is_wanted(w, t) && t->created != t->given)
                        return WORK_BEGIN;
                return t->asked == WORK_GIVE ? WORK_NOTHING : WORK_GIVE;
        }
        return t->created == 0 && is_wanted(w, t) && t->asked == WORK_NOTHING ? WORK_TAKE
                                                                              : WORK_NOTHING;
}

struct boot_time work_next(const struct work *w, struct boot_time now)
{
        return is_settled(w, now) ? BOOT_TIME_NEVER : settled_at(w);
}

void work_asked(struct work_task *t, enum work_step what)
{
        t->asked = what;
        if (what == WORK_GIVE)
                t->given = t->created;
}

void work_refused(struct work_task *t, enum work_step what)
{
        if (t->asked == what)
                t->asked = WORK_NOTHING;
}

void work_began(struct work_task *t)
{
        t->run = WORK_RUNS;
        t->token = t->created;
}

void work_stops(struct work_task *t)
{
        t->run = WORK_STOPS;
}

void work_ended(struct work_task *t)
{
        t->run = WORK_IDLE;
        t->token = 0;
}

void work_why(const struct work *w, const struct work_task *t, char *to, size_t size)
{
        if (w->lease == 0)
                snprintf(to, size, "the lease is lost");
        else if (w->leaving)
                snprintf(to, size, "this member leaves the group");
        else if (!is_ours(w, t) || t->created != t->token)
                snprintf(to, size, "its key was deleted, or made anew by somebody else");
        else
                snprintf(to, size, "it goes to the member %s", t->best ? t->best->name : "");
}

bool work_is_busy(const struct work *w)
{
        for (size_t i = 0; i < w->n; i++) {
                const struct work_task *t = &w->tasks[i];

                if (t->run != WORK_IDLE || t->asked != WORK_NOTHING || is_ours(w, t))
                        return true;
        }
        return false;
}
