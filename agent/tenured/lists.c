#include "lists.h"

#include <stdio.h>

#include "base/log.h"
#include "base/utf8.h"

#define OBJECT_MANAGER "org.freedesktop.DBus.ObjectManager"

/* The limits of one piece: time, and number of objects. A little further down, the size limit
 * of an answer: a bus disconnects a sender of more than 32 MiB (dbus-daemon(1),
 * max_message_size). */
#define PIECE (2 * NSEC_PER_MSEC)
#define PIECE_THINGS 500
#define LOOK_AGAIN NSEC_PER_MSEC /* to see whether the bus has taken the last answer */
#define ANSWER_MAX (24 << 20)

/* A user who asks now and then gets an answer without pauses. Beyond this time, a pause as long
 * as the piece took follows each piece. */
#define AT_ONCE (200 * NSEC_PER_MSEC)
#define REST_MAX \
        (10 * NSEC_PER_MSEC) /* a piece that took longer was interrupted by other processes */

#define REMEMBERED_WITHIN (2 * NSEC_PER_SEC) /* after the start: with a core, some ms */

struct again {
        TAILQ_ENTRY(again) entry;
        sd_bus_message *signal; /* NULL: about the object at `path`, as it will be then */
        char path[];
};

struct list_call {
        struct kept_call call;
        TAILQ_ENTRY(list_call) entry;
        const struct list_kind *kind;
        struct list list;
        bool begun, sent;
        TAILQ_HEAD(, again) again; /* announced since the answer was begun */
};

static void drop_first(struct list_call *c)
{
        struct again *n = TAILQ_FIRST(&c->again);

        TAILQ_REMOVE(&c->again, n, entry);
        sd_bus_message_unref(n->signal);
        free(n);
}

static void forget(struct kept_call *k)
{
        struct list_call *c = container_of(k, struct list_call, call);
        struct lists *l = &c->list.agent->lists;

        if (k->counted)
                TAILQ_REMOVE(&l->waiting, c, entry);
        if (l->running == c)
                l->running = NULL;
        while (!TAILQ_EMPTY(&c->again))
                drop_first(c);
        sd_bus_message_unref(c->list.reply);
        buf_fini(&c->list.text);
        callers_drop(k);
        free(c);
}

void lists_init(struct agent *a)
{
        TAILQ_INIT(&a->lists.waiting);
        a->lists.without_core_at = boot_add(boot_now(), REMEMBERED_WITHIN);
}

/* ---- requests ---- */

static void on_caller(struct kept_call *k)
{
        struct list_call *c = container_of(k, struct list_call, call);
        struct agent *a = c->list.agent;

        TAILQ_INSERT_TAIL(&a->lists.waiting, c, entry);
        loop_hook_again(&a->hook);
}

int lists_ask(struct agent *a, sd_bus_message *m, const struct list_kind *kind)
{
        struct list_call *c = calloc(1, sizeof(*c));
        int r;

        if (!c)
                return -ENOMEM;
        c->kind = kind;
        c->list.agent = a;
        c->list.call = m;
        TAILQ_INIT(&c->again);
        r = callers_keep(&a->callers, &c->call, m, CALL_LISTING, on_caller, forget);
        if (r < 0)
                free(c);
        return r;
}

/* ---- changes meanwhile ---- */

bool lists_repeats(const struct agent *a, enum list_of of)
{
        return a->lists.running && a->lists.running->kind->of == of;
}

bool lists_owe(const struct agent *a, const char *name)
{
        const struct list_call *c = a->lists.running;

        return c && c->kind->of != OF_NOTHING && strcmp(callers_name(&c->call), name) == 0;
}

static void keep(struct list_call *c, const char *path, sd_bus_message *signal)
{
        struct again *n = malloc(sizeof(*n) + strlen(path) + 1);

        if (!n)
                abort();
        n->signal = sd_bus_message_ref(signal);
        strcpy(n->path, path);
        TAILQ_INSERT_TAIL(&c->again, n, entry);
}

void lists_repeat(struct agent *a, sd_bus_message *m)
{
        keep(a->lists.running, "", m);
}

void lists_changed(struct agent *a, const char *path)
{
        if (lists_repeats(a, OF_OBJECTS))
                keep(a->lists.running, path, NULL);
}

static int make_signal(struct agent *a, const char *path, sd_bus_message **ret)
{
        struct object o;
        bool there = objects_find(a, path, &o);
        int r = sd_bus_message_new_signal(bus_sd(a->bus), ret, ROOT, OBJECT_MANAGER,
                                          there ? "InterfacesAdded" : "InterfacesRemoved");

        if (r < 0)
                return r;
        return there ? objects_append(*ret, path, &o)
                     : sd_bus_message_append(*ret, "oas", path, 1, objects_interface(path));
}

static int tell_first(struct list_call *c)
{
        struct again *n = TAILQ_FIRST(&c->again);
        struct agent *a = c->list.agent;
        int r = n->signal ? 0 : make_signal(a, n->path, &n->signal);

        if (r >= 0)
                r = sd_bus_send_to(bus_sd(a->bus), n->signal, callers_name(&c->call), NULL);
        drop_first(c);
        return r;
}

/* ---- pieces ---- */

/* What was written behind the first @n bytes is text from elsewhere. */
static void mend(struct list *l, size_t n)
{
        if (buf_len(&l->text) > n)
                utf8_dbus_mend(buf_head(&l->text) + n, buf_len(&l->text) - n);
}

static int begin(struct list_call *c, sd_bus_error *error)
{
        int r = c->begun ? 0 : c->kind->begin(&c->list, error);

        if (!c->begun)
                mend(&c->list, 0);
        c->begun = true;
        return r;
}

static int next(struct list *l, const struct list_kind *kind)
{
        size_t n = buf_len(&l->text);
        int r = kind->next(l);

        mend(l, n);
        return r;
}

static int finish(struct list_call *c)
{
        int r = c->kind->end(&c->list);

        if (r >= 0)
                r = sd_bus_send(NULL, c->list.reply, NULL);
        c->sent = r >= 0;
        return r;
}

/* Returns 1 when it is done, 0 when there is more, or a negative errno. */
static int write_piece(struct list_call *c, struct boot_time end, sd_bus_error *error)
{
        int r = begin(c, error), n = 0;

        while (r >= 0 && !c->sent) {
                if (max_of(c->list.bytes, buf_len(&c->list.text)) > ANSWER_MAX)
                        return sd_bus_error_setf(error, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                                 "The answer is too large for one message; "
                                                 "call GetNodes and GetServices.");
                r = next(&c->list, c->kind);
                if (r == 0)
                        r = finish(c);
                if (r >= 0 && (++n == PIECE_THINGS || !boot_before(boot_now(), end)))
                        return 0;
        }
        while (r >= 0 && !TAILQ_EMPTY(&c->again)) {
                r = tell_first(c);
                if (r >= 0 && !boot_before(boot_now(), end))
                        return 0;
        }
        return r < 0 ? r : 1;
}

/* ---- turns ---- */

static struct list_call *choose(struct lists *l)
{
        struct list_call *n, *same_user = NULL;

        if (l->running)
                return l->running;
        TAILQ_FOREACH (n, &l->waiting, entry) {
                if (callers_uid(&n->call) != l->last_uid)
                        return n;
                if (!same_user && strcmp(callers_name(&n->call), l->last_name) != 0)
                        same_user = n;
        }
        return same_user ? same_user : TAILQ_FIRST(&l->waiting);
}

static void serve(struct agent *a, struct list_call *c, struct boot_time now)
{
        cleanup_(sd_bus_error_free) sd_bus_error error = SD_BUS_ERROR_NULL;
        struct lists *l = &a->lists;
        int r;

        l->last_uid = callers_uid(&c->call);
        snprintf(l->last_name, sizeof(l->last_name), "%s", callers_name(&c->call));
        l->running = c;
        r = write_piece(c, boot_add(now, PIECE), &error);
        if (r == 0)
                return;
        if (r < 0 && !c->sent)
                (void) sd_bus_reply_method_errno(c->call.m, r, &error);
        forget(&c->call);
}

struct boot_time lists_run(struct agent *a, struct boot_time now)
{
        struct lists *l = &a->lists;
        struct list_call *c = choose(l);
        uint64_t unsent = 0;
        nsec_t took;

        if (!c)
                return BOOT_TIME_NEVER;
        /* What an earlier run has announced is not announced again, so it belongs in the first
         * list. Without the core it is announced after all, once the core is back. */
        if (member_remembers(a->member)) {
                if (boot_before(now, l->without_core_at))
                        return l->without_core_at;
                member_forget(a->member);
        }
        if (boot_before(now, l->next_at))
                return l->next_at;
        if (!c->begun && (sd_bus_get_n_queued_write(bus_sd(a->bus), &unsent) < 0 || unsent > 0))
                /* The hook that learns that the bus can take more runs after this one. */
                return boot_add(now, LOOK_AGAIN);
        l->spent = max_of(l->spent - boot_diff(now, l->next_at), (nsec_t) 0);
        serve(a, c, now);
        l->next_at = boot_now();
        took = min_of(boot_diff(l->next_at, now), REST_MAX);
        l->spent += took;
        if (l->spent > AT_ONCE) {
                l->spent -= took;
                l->next_at = boot_add(l->next_at, took);
        }
        return TAILQ_EMPTY(&l->waiting) ? BOOT_TIME_NEVER : l->next_at;
}
