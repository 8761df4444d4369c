#include "core/shares.h"

#include <stdlib.h>
#include <string.h>

#include "consensus/replica.h"
#include "state/cached.h"

#define WAITING_MAX 100000 /* reads, and as many writes */

static int party_cmp(const struct party *a, const struct party *b)
{
        return a->user != b->user ? (a->user ? 1 : -1)
                                  : bytes_cmp(a->name, a->len, b->name, b->len);
}

TREE_GENERATE(parties, party, by_name, party_cmp)

void shares_init(struct shares *s, size_t waiting_max)
{
        size_t waiting = waiting_max > 0 ? waiting_max : WAITING_MAX;

        *s = (struct shares){.pots = {
                                     [POT_READS].max = waiting,
                                     [POT_WRITES].max = waiting,
                                     /* What may wait fits into the queue for the leader. */
                                     [POT_WRITE_BYTES].max = REPLICA_QUEUED_MAX,
                                     [POT_CHANGES].max = REPLICA_CHANGES_MAX,
                                     [POT_CACHED].max = CACHED_RANGES_MAX,
                                     [POT_OWN_READS].max = WAITING_MAX,
                                     [POT_OWN_WRITES].max = WAITING_MAX,
                             }};
        RB_INIT(&s->named);
}

void shares_fini(struct shares *s)
{
        struct party *p;

        while ((p = RB_ROOT(&s->named))) {
                RB_REMOVE(parties, &s->named, p);
                p->shares = NULL;
        }
}

static struct party *party_new(const void *name, size_t len, bool user)
{
        struct party *p = calloc(1, sizeof(*p) + len);

        if (!p)
                return NULL;
        if (len > 0)
                memcpy(p->name, name, len);
        p->len = len;
        p->user = user;
        p->refs = 1;
        return p;
}

static struct party *named(struct shares *s, const void *name, size_t len, bool user)
{
        struct party *p = party_new(name, len, user), *same;

        if (!p)
                return NULL;
        same = RB_INSERT(parties, &s->named, p);
        if (same) {
                free(p);
                return party_ref(same);
        }
        p->shares = s;
        return p;
}

struct party *shares_address(struct shares *s, const char *name)
{
        return named(s, name, strlen(name), false);
}

struct party *shares_user(struct shares *s, const void *name, size_t len)
{
        return named(s, name, len, true);
}

struct party *shares_connection(struct party *address)
{
        struct party *p = party_new(NULL, 0, false);

        if (p)
                p->of = party_ref(address);
        return p;
}

struct party *party_ref(struct party *p)
{
        p->refs++;
        return p;
}

struct party *party_unref(struct party *p)
{
        if (!p || --p->refs > 0)
                return NULL;
        if (p->shares)
                RB_REMOVE(parties, &p->shares->named, p);
        party_unref(p->of);
        free(p);
        return NULL;
}

size_t shares_left(const struct shares *s, enum pot pot, struct requester by)
{
        size_t all = sub_sat(s->pots[pot].max, s->pots[pot].n + s->pots[pot].elsewhere),
               n = all;

        if (by.conn) {
                size_t address = sub_sat(all, by.conn->of->has[pot]);

                n = sub_sat(address, by.conn->has[pot]);
        }
        return by.user ? min_of(n, sub_sat(all, by.user->has[pot])) : n;
}

bool shares_take(struct shares *s, enum pot pot, struct requester by, size_t n)
{
        if (n > shares_left(s, pot, by))
                return false;
        s->pots[pot].n += n;
        if (by.conn) {
                party_ref(by.conn)->has[pot] += n;
                by.conn->of->has[pot] += n;
        }
        if (by.user)
                party_ref(by.user)->has[pot] += n;
        return true;
}

void shares_give(struct shares *s, enum pot pot, struct requester by, size_t n)
{
        s->pots[pot].n -= n;
        if (by.conn) {
                by.conn->has[pot] -= n;
                by.conn->of->has[pot] -= n;
                party_unref(by.conn);
        }
        if (by.user) {
                by.user->has[pot] -= n;
                party_unref(by.user);
        }
}

bool requester_is_core(struct requester by)
{
        return !by.conn && !by.user;
}
