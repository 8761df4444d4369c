#include "callers.h"

#include <stdio.h>

#include "bus/signals.h"

/* A user may page through a list with many calls, so remember users for this long after their
 * last call, and at most this many. */
#define IDLE_FOR (10 * NSEC_PER_SEC)
#define IDLE_MAX 64

/* Limits for a user, and, until the user is known, for a connection. */
static const struct {
        size_t most;
        const char *what;
} limits[N_CALL_KINDS] = {
        [CALL_LISTING] = {256, "ask for lists"},
        [CALL_REVISION] = {256, "wait for a revision"},
        [CALL_PERMISSION] = {64, "wait for permission"},
        /* dbus-daemon stops reading from a sender with 64 descriptors under way. */
        [CALL_TENANCY] = {16, "have an answer with a descriptor that was not read"},
};

struct user {
        TAILQ_ENTRY(user) entry;
        uid_t uid;
        size_t n[N_CALL_KINDS];
};

/* A connection to the bus that has asked for something. */
struct caller {
        TAILQ_ENTRY(caller) entry;
        struct callers *callers;
        struct user *user; /* NULL: not known yet */
        char name[256];
        sd_bus_slot *asked;
        struct kept_list calls;
        size_t n[N_CALL_KINDS];
        struct boot_time idle_since; /* when its last call ended */
        bool busy;                   /* its calls are being processed */
        bool gone;
};

static struct user *user_of(struct callers *c, uid_t uid)
{
        struct user *u;

        TAILQ_FOREACH (u, &c->users, entry)
                if (u->uid == uid)
                        return u;
        u = calloc(1, sizeof(*u));
        if (!u)
                abort();
        u->uid = uid;
        TAILQ_INSERT_TAIL(&c->users, u, entry);
        return u;
}

static void forget_idle(struct caller *c)
{
        TAILQ_REMOVE(&c->callers->idle, c, entry);
        c->callers->n_idle--;
        free(c);
}

/* Forgets connections that have been idle for long, and those beyond the limit. */
static void trim(struct callers *cs)
{
        struct boot_time now = boot_now();
        struct caller *c;

        while ((c = TAILQ_FIRST(&cs->idle)) &&
               (cs->n_idle > IDLE_MAX || boot_diff(now, c->idle_since) >= IDLE_FOR))
                forget_idle(c);
        if (c)
                loop_timer_arm(&cs->timer, boot_add(c->idle_since, IDLE_FOR));
        else if (TAILQ_EMPTY(&cs->list))
                cs->match = sd_bus_slot_unref(cs->match);
}

static void on_timer(struct loop_timer *t)
{
        trim(container_of(t, struct callers, timer));
}

/* If the caller has no calls left, moves it to the idle ones. */
static void let_rest(struct caller *c)
{
        struct callers *cs = c->callers;

        if (c->busy || !TAILQ_EMPTY(&c->calls))
                return;
        TAILQ_REMOVE(&cs->list, c, entry);
        c->asked = sd_bus_slot_unref(c->asked);
        if (c->gone || !c->user) {
                free(c);
        } else {
                c->idle_since = boot_now();
                TAILQ_INSERT_TAIL(&cs->idle, c, entry);
                cs->n_idle++;
        }
        trim(cs);
}

void callers_drop(struct kept_call *k)
{
        struct caller *c = k->caller;

        if (!c)
                return;
        k->caller = NULL;
        TAILQ_REMOVE(&c->calls, k, of_caller);
        c->n[k->kind]--;
        if (k->counted)
                c->user->n[k->kind]--;
        k->counted = false;
        k->m = sd_bus_message_unref(k->m);
        let_rest(c);
}

static void end_all(struct caller *c)
{
        struct kept_call *k;

        c->gone = c->busy = true;
        while ((k = TAILQ_FIRST(&c->calls)))
                k->end(k);
        c->busy = false;
        let_rest(c);
}

static struct caller *find(struct caller_list *list, const char *name)
{
        struct caller *c;

        TAILQ_FOREACH (c, list, entry)
                if (strcmp(c->name, name) == 0)
                        return c;
        return NULL;
}

static void on_departure(void *userdata, const char *name)
{
        struct callers *cs = userdata;
        struct caller *c;

        c = find(&cs->list, name);
        if (c)
                end_all(c);
        c = find(&cs->idle, name);
        if (c) {
                forget_idle(c);
                trim(cs);
        }
}

static void refuse(struct kept_call *k)
{
        (void) sd_bus_reply_method_errorf(k->m, SD_BUS_ERROR_LIMITS_EXCEEDED,
                                          "%zu calls of this user %s already.",
                                          limits[k->kind].most, limits[k->kind].what);
        k->end(k);
}

/* Counts the call for its user, who is known now, and starts or refuses it. */
static void admit(struct kept_call *k)
{
        struct user *u = k->caller->user;

        if (u->n[k->kind] >= limits[k->kind].most)
                return refuse(k);
        u->n[k->kind]++;
        k->counted = true;
        k->go(k);
}

static int follow(struct caller *c, sd_bus *sd);

static int on_uid(sd_bus_message *m, void *userdata, sd_bus_error *error unused_)
{
        struct caller *c = userdata;
        struct kept_call *k, *after;
        uint32_t uid;

        c->asked = sd_bus_slot_unref(c->asked);
        /* The bus has not answered; the caller may still wait. */
        if (sd_bus_message_is_method_error(m, SD_BUS_ERROR_NO_REPLY) &&
            follow(c, sd_bus_message_get_bus(m)) >= 0)
                return 0;
        if (sd_bus_message_is_method_error(m, NULL) || sd_bus_message_read(m, "u", &uid) < 0) {
                end_all(c); /* it left the bus before the bus could tell its user */
                return 0;
        }
        c->user = user_of(c->callers, uid);
        c->busy = true;
        /* A call that is admitted may be kept once more, at the end, for what it was permitted
         * to do; that has been admitted then. */
        TAILQ_FOREACH_SAFE (k, &c->calls, of_caller, after)
                if (!k->counted)
                        admit(k);
        c->busy = false;
        let_rest(c);
        return 0;
}

/* Add the match for names that leave the bus before asking about this one, so that a connection
 * that ends in between is noticed. */
static int follow(struct caller *c, sd_bus *sd)
{
        struct callers *cs = c->callers;
        int r = 0;

        if (!cs->match)
                r = signals_add_departures(sd, &cs->match, on_departure, cs);
        if (r >= 0)
                r = sd_bus_call_method_async(sd, &c->asked, DBUS, DBUS_PATH, DBUS,
                                             "GetConnectionUnixUser", on_uid, c, "s", c->name);
        return r;
}

static int caller_of(struct callers *cs, sd_bus_message *m, struct caller **ret)
{
        const char *name = sd_bus_message_get_sender(m);
        struct caller *c;
        int r;

        if (!name)
                return -EPERM;
        *ret = find(&cs->list, name);
        if (*ret)
                return 0;
        c = find(&cs->idle, name);
        if (c) {
                TAILQ_REMOVE(&cs->idle, c, entry);
                cs->n_idle--;
                TAILQ_INSERT_TAIL(&cs->list, c, entry);
                *ret = c;
                return 0;
        }
        c = calloc(1, sizeof(*c));
        if (!c)
                return -ENOMEM;
        c->callers = cs;
        snprintf(c->name, sizeof(c->name), "%s", name);
        TAILQ_INIT(&c->calls);
        TAILQ_INSERT_TAIL(&cs->list, c, entry);
        r = follow(c, sd_bus_message_get_bus(m));
        if (r < 0) {
                let_rest(c);
                return r;
        }
        *ret = c;
        return 0;
}

int callers_keep(struct callers *cs, struct kept_call *k, sd_bus_message *m,
                 enum call_kind kind, void (*go)(struct kept_call *k),
                 void (*end)(struct kept_call *k))
{
        struct caller *c;
        int r = caller_of(cs, m, &c);

        if (r < 0)
                return r;
        k->caller = c;
        k->m = sd_bus_message_ref(m);
        k->kind = kind;
        k->go = go;
        k->end = end;
        TAILQ_INSERT_TAIL(&c->calls, k, of_caller);
        if (++c->n[kind] > limits[kind].most && !c->user)
                refuse(k);
        else if (c->user)
                admit(k);
        return 1;
}

uid_t callers_uid(const struct kept_call *k)
{
        return k->caller->user->uid;
}

const char *callers_name(const struct kept_call *k)
{
        return k->caller->name;
}

void callers_init(struct callers *c, struct loop *l)
{
        TAILQ_INIT(&c->list);
        TAILQ_INIT(&c->idle);
        TAILQ_INIT(&c->users);
        loop_timer_init(&c->timer, l, on_timer);
}

void callers_forget(struct callers *c)
{
        struct caller *n;
        struct user *u;

        if (!c->timer.loop)
                return;
        while ((n = TAILQ_FIRST(&c->list)))
                end_all(n);
        while ((n = TAILQ_FIRST(&c->idle)))
                forget_idle(n);
        c->match = sd_bus_slot_unref(c->match);
        loop_timer_disarm(&c->timer);
        while ((u = TAILQ_FIRST(&c->users))) {
                TAILQ_REMOVE(&c->users, u, entry);
                free(u);
        }
}
