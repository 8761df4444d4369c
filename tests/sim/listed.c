/* Under which names the hosts are listed. A host that has another name than before is listed
 * under one of them, from the step on in which the new one is registered; and no host that
 * lives is taken off the list, whatever its id and its name (I10). */
#include <stdio.h>

#include "member/member.h"
#include "world.h"

/* For so long after its grant an agent waits for the membership before it registers
 * (LOOK_FIRST in member/lease_calls.c). */
#define LOOKS (900 * MSEC)

struct listed {
        struct node_record record;
        int64_t lease, create_revision; /* lease 0: it is not listed */
};

static struct listed find(const struct state *s, unsigned name)
{
        struct listed n = {0};
        const struct kv_key *k;
        char key[64];

        snprintf(key, sizeof(key), "/tenure/sim/nodes/host%u", name);
        k = kv_find(&s->kv, key, strlen(key));
        if (k && kv_live(k) &&
            node_record_read(&n.record, k->newest->value, k->newest->value_len) == 0) {
                n.lease = k->newest->lease;
                n.create_revision = k->newest->create_revision;
        }
        return n;
}

static const struct holder *holder_of(int64_t lease)
{
        for (unsigned i = 0; i < W->n_holders && lease != 0; i++)
                if (W->h[i].alive && W->h[i].home == 0 &&
                    member_session(W->h[i].member)->lease == lease)
                        return &W->h[i];
        return NULL;
}

/* Whether the holder of @later knew of @earlier when it registered, or was to wait until it
 * did. What it knows may be of another core. */
static bool could_know(const struct listed *earlier, const struct listed *later)
{
        const struct holder *h = holder_of(later->lease);
        const struct session *s = h ? member_session(h->member) : NULL;

        return s && !h->earlier && s->state == SESSION_JOINING &&
               ((!W->strangers && !W->forced) || h->view.may == 1) &&
               (h->knew == 0 || earlier->create_revision <= h->knew) &&
               boot_diff(holder_now(h), s->renewed_at) < min_of(s->ttl / 4, LOOKS);
}

void listed_check(const struct state *s, int64_t known)
{
        struct listed n[NAMES_MAX];

        for (unsigned i = 0; i < NAMES_MAX; i++)
                n[i] = find(s, i);
        for (unsigned i = 0; i < NAMES_MAX; i++)
                for (unsigned k = 0; k < NAMES_MAX; k++)
                        if (n[i].lease != 0 && n[k].lease != 0 &&
                            n[i].create_revision < n[k].create_revision &&
                            n[k].create_revision > known &&
                            strcmp(n[i].record.id, n[k].record.id) == 0 &&
                            could_know(&n[i], &n[k]))
                                fail(W,
                                     "I10: host%u registers, and is listed as host%u as well",
                                     k, i);
}

void listed_gone(const struct state *s, int64_t lease)
{
        const struct holder *h = holder_of(lease);

        if (h && member_session(h->member)->registered &&
            leases_find((struct leases *) (uintptr_t) &s->leases, lease))
                fail(W, "I10: holder %u lives, and is taken off the list", h->i);
}
