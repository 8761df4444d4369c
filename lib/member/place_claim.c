#include "member/place_claim.h"

#include <stdio.h>

/* A request of an earlier agent of this boot may still arrive after the next agent has
 * begun. */
#define ON_ITS_WAY (500 * NSEC_PER_MSEC)

void claim_add(struct claim *c, const char *incarnation)
{
        snprintf(c->lives[c->at], sizeof(c->lives[0]), "%s", incarnation);
        c->at = (c->at + 1) % CLAIM_LIVES;
}

static bool was_ours(const struct claim *c, const char *incarnation)
{
        for (size_t i = 0; i < CLAIM_LIVES; i++)
                if (*incarnation && strcmp(c->lives[i], incarnation) == 0)
                        return true;
        return false;
}

static bool has_booted(const struct claim *c, const char *boot)
{
        size_t n = strlen(boot);

        for (const char *at = c->boots; n > 0 && (at = strstr(at, boot)); at += n)
                if ((at == c->boots || at[-1] == ',') && (at[n] == ',' || at[n] == '\0'))
                        return true;
        return false;
}

enum claim_verdict claim_look(const struct claim *c, const struct node_record *self,
                              const struct node_record *holder, int64_t lease)
{
        if (strcmp(self->id, holder->id) != 0)
                return CLAIM_FOREIGN;
        return lease == 0 || was_ours(c, holder->incarnation) ? CLAIM_OURS : CLAIM_ASK;
}

enum claim_verdict claim_judge(const struct claim *c, const struct node_record *self,
                               const struct node_record *holder, nsec_t least, nsec_t most,
                               struct boot_time now)
{
        /* The holder is probably an earlier agent of this boot. An agent that runs beside us,
         * where two systems share a boot id, is recognised by a renewal or by its name. */
        if (*self->boot_id && strcmp(self->boot_id, holder->boot_id) == 0)
                return strcmp(self->name, holder->name) != 0 ||
                                       most + ON_ITS_WAY < boot_diff(now, c->began)
                               ? CLAIM_CLONE
                               : CLAIM_OURS;
        /* A cloned disk also carries the list of its original's boots. */
        if (has_booted(c, holder->boot_id))
                return least < boot_diff(now, c->boot) ? CLAIM_CLONE : CLAIM_OURS;
        return CLAIM_CLONE;
}
