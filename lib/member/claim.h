/*
 * Decides whose key it is that stands where we want to put our node's: an earlier incarnation
 * of this host, which has nothing to lose; or a host that may be alive, which is a clone of us
 * if it has our id. Pure.
 *
 * A host has one boot at a time, and one agent in it. So a lease that was renewed after we
 * started belongs to somebody else, whatever its holder claims to be; and so does the lease of
 * a boot that was never ours, for as long as it lives.
 */
#pragma once

#include "base/clock.h"
#include "member/node_record.h"

#define CLAIM_LIVES 8

struct claim {
        char lives[CLAIM_LIVES][64]; /* incarnations of this process, a ring */
        size_t at;
        char boots[1024];       /* earlier boots of this host, their ids, with commas */
        struct boot_time began; /* this process */
        struct boot_time boot;  /* this boot, or later, where that is not known */
};

enum claim_verdict {
        CLAIM_OURS,   /* of an earlier life: to be taken over */
        CLAIM_ASK,    /* when was its lease renewed? claim_judge() */
        CLAIM_CLONE,  /* somebody with our id */
        CLAIM_FOREIGN /* somebody with another one */
};

/* A life of ours begins. */
void claim_add(struct claim *c, const char *incarnation);

/* By what the key says; @lease 0: it hangs on none. */
enum claim_verdict claim_look(const struct claim *c, const struct node_record *self,
                              const struct node_record *holder, int64_t lease);

/* After CLAIM_ASK, at @now: its lease was renewed @least to @most ago. */
enum claim_verdict claim_judge(const struct claim *c, const struct node_record *self,
                               const struct node_record *holder, nsec_t least, nsec_t most,
                               struct boot_time now);
