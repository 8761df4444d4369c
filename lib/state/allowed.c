#include "state/allowed.h"

#define RANGE_STEPS 2 /* to sort and merge one of a million */
/* Of all users together; then they are forgotten, and computed again when they are needed. One
 * user may have a million to read and as many to write, of 48 bytes each. */
#define RANGES_MAX ((size_t) 2 << 20)

struct stretch {
        struct place from, to;
};

/* Borrows from the permissions until they change. */
struct allowed {
        size_t n_users; /* that share it */
        struct {
                uint64_t permits;    /* of auth; 0: not computed yet */
                struct stretch *all; /* owned */
                size_t n;
        } of[2]; /* to read, to write */
};

/* ---- places ---- */

int place_cmp(const struct place *a, const struct place *b)
{
        int c;

        if (a->at_end || b->at_end)
                return a->at_end - b->at_end;
        if (!a->behind && b->behind)
                return -place_cmp(b, a);
        c = bytes_cmp(a->key.p, a->key.len, b->key.p, b->key.len);
        if (a->behind == b->behind)
                return c;
        if (c >= 0)
                return 1;
        /* No key lies between a key and the same key followed by a zero byte. */
        if (b->key.len != a->key.len + 1 || b->key.p[a->key.len] != 0)
                return -1;
        return bytes_cmp(a->key.p, a->key.len, b->key.p, a->key.len);
}

struct place place_end_of(const struct kv_span *span)
{
        return (struct place){.key = span->single ? span->from : span->end,
                              .behind = span->single,
                              .at_end = span->to_end};
}

/* ---- merging ranges ---- */

static bool gives(const struct auth_permission *p, enum permit what)
{
        switch (p->type) {
        case PB__PERMISSION__TYPE__READ:
                return what == PERMIT_READ;
        case PB__PERMISSION__TYPE__WRITE:
                return what == PERMIT_WRITE;
        case PB__PERMISSION__TYPE__READWRITE:
                return true;
        default:
                return false;
        }
}

static struct stretch stretch_of(const struct auth_permission *p)
{
        struct kv_span span = kv_span(&p->key, &p->range_end);

        return (struct stretch){.from = {.key = span.from}, .to = place_end_of(&span)};
}

static int stretch_cmp(const void *a, const void *b)
{
        const struct stretch *x = a, *y = b;

        return place_cmp(&x->from, &y->from);
}

static int collect(const struct auth *a, const struct auth_user *u, enum permit what,
                   struct stretch **ret, size_t *ret_n)
{
        size_t cap = 0;

        for (size_t i = 0; i < u->n_roles; i++) {
                const struct auth_role *r = auth_role_find(a, u->roles[i]);

                for (size_t j = 0; r && j < r->n_permissions; j++) {
                        if (!gives(&r->permissions[j], what))
                                continue;
                        if (array_reserve(ret, &cap, *ret_n + 1, sizeof(**ret)) < 0)
                                return -ENOMEM;
                        (*ret)[(*ret_n)++] = stretch_of(&r->permissions[j]);
                }
        }
        return 0;
}

/* Sorts the ranges and merges those that overlap or touch. */
static size_t join(struct stretch *s, size_t n)
{
        size_t last = 0;

        if (n == 0)
                return 0;
        qsort(s, n, sizeof(*s), stretch_cmp);
        for (size_t i = 1; i < n; i++)
                if (place_cmp(&s[i].from, &s[last].to) > 0)
                        s[++last] = s[i];
                else if (place_cmp(&s[i].to, &s[last].to) > 0)
                        s[last].to = s[i].to;
        return last + 1;
}

/* Takes over @all. */
static void set(struct auth *a, struct allowed *r, unsigned w, struct stretch *all, size_t n,
                uint64_t permits)
{
        a->n_ranges += n - r->of[w].n;
        free(r->of[w].all);
        r->of[w].all = all;
        r->of[w].n = n;
        r->of[w].permits = permits;
}

static void forget(struct auth *a, struct allowed *r)
{
        set(a, r, 0, NULL, 0, 0);
        set(a, r, 1, NULL, 0, 0);
}

struct allowed *allowed_unref(struct auth *a, struct allowed *r)
{
        if (r && --r->n_users == 0) {
                forget(a, r);
                free(r);
        }
        return NULL;
}

static bool have_same_roles(const struct auth_user *a, const struct auth_user *b)
{
        if (a->n_roles != b->n_roles)
                return false;
        for (size_t i = 0; i < a->n_roles; i++)
                if (strcmp(a->roles[i], b->roles[i]) != 0)
                        return false;
        return true;
}

/* What the user may do, or of another user with the same roles; NULL if memory is short. */
static struct allowed *allowed_of(const struct auth *a, const struct auth_user *u)
{
        struct allowed **own = (struct allowed **) (uintptr_t) &u->allowed;

        if (*own)
                return *own;
        for (size_t i = 0; !*own && i < a->n_users; i++)
                if (a->users[i].allowed && have_same_roles(&a->users[i], u))
                        *own = a->users[i].allowed;
        if (!*own)
                *own = calloc(1, sizeof(**own));
        if (*own)
                (*own)->n_users++;
        return *own;
}

/* Frees the unused end of an array. */
static struct stretch *fit(struct stretch *all, size_t n)
{
        struct stretch *less = n > 0 ? realloc(all, n * sizeof(*all)) : NULL;

        return less ? less : all;
}

static int put_together(const struct auth *auth, const struct auth_user *u, enum permit what,
                        struct allowed *r, struct budget *left)
{
        struct auth *a = (struct auth *) (uintptr_t) auth;
        cleanup_(freep) struct stretch *all = NULL;
        size_t n = 0;

        if (collect(a, u, what, &all, &n) < 0)
                return -ENOMEM;
        if (left)
                budget_charge(left, RANGE_STEPS * n);
        n = join(all, n);
        if (a->n_ranges + n > RANGES_MAX)
                for (size_t i = 0; i < a->n_users; i++)
                        if (a->users[i].allowed)
                                forget(a, a->users[i].allowed);
        set(a, r, what == PERMIT_WRITE, fit(take_ptr(all), n), n, a->permits);
        return 0;
}

/* ---- walking ---- */

static bool step(const struct stretch *s, struct place *at)
{
        if (place_cmp(&s->from, at) > 0 || place_cmp(&s->to, at) <= 0)
                return false;
        *at = s->to;
        return true;
}

/* Like allowed_go_on(), directly from the permissions, for when memory is short: every replica
 * must get the same result. */
static bool go_on_slowly(const struct auth *a, const struct auth_user *u, enum permit what,
                         struct place *at)
{
        bool any = false;

        for (size_t i = 0; i < u->n_roles; i++) {
                const struct auth_role *r = auth_role_find(a, u->roles[i]);

                for (size_t j = 0; r && j < r->n_permissions; j++) {
                        struct stretch s = stretch_of(&r->permissions[j]);

                        any = (gives(&r->permissions[j], what) && step(&s, at)) || any;
                }
        }
        return any;
}

bool allowed_go_on(const struct auth *a, const struct auth_user *u, enum permit what,
                   struct place *at, struct budget *left)
{
        struct allowed *r = allowed_of(a, u);
        unsigned w = what == PERMIT_WRITE;
        size_t from = 0, to;

        if (!r || (r->of[w].permits != a->permits && put_together(a, u, what, r, left) < 0))
                return go_on_slowly(a, u, what, at);
        /* Finds the last stretch that begins at or before @at. */
        for (to = r->of[w].n; from < to;) {
                size_t mid = from + (to - from) / 2;

                if (place_cmp(&r->of[w].all[mid].from, at) <= 0)
                        from = mid + 1;
                else
                        to = mid;
        }
        return from > 0 && step(&r->of[w].all[from - 1], at);
}
