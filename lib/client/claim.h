/*
 * Whose the node's key is that stands where we want to put ours: an earlier life of ours, which
 * has nothing to lose; or somebody who may be alive, and a clone of us where the id is ours.
 * Pure.
 *
 * A host has one boot at a time, and one agent in it. So a lease that was renewed after we
 * began is somebody else's, whoever its holder says to be; and a boot that was never ours is,
 * too, for as long as its lease lives.
 */
#pragma once

#include "base/clock.h"
#include "client/node_record.h"

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
