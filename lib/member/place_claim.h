/*
 * Decides whose a key is that stands where we want to put our node's key, or that has our node
 * id under another name: an earlier incarnation's of this host, which may be taken over; or
 * that of a host that may be alive, which is a clone of us if it has our id. Pure.
 *
 * A host has one boot at a time, and one agent in it. So a lease that was renewed after we
 * started belongs to somebody else, whatever its holder claims to be; and so does the lease of
 * a boot that was never ours, for as long as it lives. So does the lease of a node with another
 * name and our boot: an agent knows the name that an earlier agent of its boot had, from the
 * place file.
 */
#pragma once

#include "base/clock.h"
#include "member/node_record.h"

#define CLAIM_LIVES 8

struct claim {
        char lives[CLAIM_LIVES][64]; /* incarnations of this process, a ring */
        size_t at;
        char boots[1024];       /* ids of earlier boots of this host, separated by commas */
        struct boot_time began; /* when this process began */
        struct boot_time boot;  /* when this boot began; or a later time, if not known */
};

enum claim_verdict {
        CLAIM_OURS,   /* the key of an earlier life: take it over */
        CLAIM_ASK,    /* find out when its lease was renewed, then call claim_judge() */
        CLAIM_CLONE,  /* the key of another host with our id */
        CLAIM_FOREIGN /* the key of a host with another id */
};

/* Records that a new life of ours begins. */
void claim_add(struct claim *c, const char *incarnation);

/* Decides by the content of the key; @lease: its lease, 0: none. */
enum claim_verdict claim_look(const struct claim *c, const struct node_record *self,
                              const struct node_record *holder, int64_t lease);

/* Decides after CLAIM_ASK: at @now, the last renewal of the lease was @least to @most ago. */
enum claim_verdict claim_judge(const struct claim *c, const struct node_record *self,
                               const struct node_record *holder, nsec_t least, nsec_t most,
                               struct boot_time now);
