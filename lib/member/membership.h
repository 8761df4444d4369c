/*
 * The nodes in the cluster, as last reported by the core, and what changed.
 *
 * Fed with the node keys of a range and with the events of a watch that continues it; reports
 * joins, departures and changes once each. Pure. Look-ups cost O(log nodes).
 */
#pragma once

#include "base/base.h"
#include "base/tree.h"
#include "member/node_record.h"

struct member_node {
        RB_ENTRY(member_node) by_name;
        struct node_record record;
        int64_t lease;
        int64_t create_revision, mod_revision;
        bool seen; /* during a resync */
};

RB_HEAD(member_tree, member_node);
RB_PROTOTYPE(member_tree, member_node, by_name, member_node_cmp)

struct membership_ops {
        void (*joined)(const struct member_node *n, int64_t revision, void *userdata);
        /* @reason: left, shutdown, reboot, suspend, expired, replaced, rebooted; resync: the
         * node is gone, and the core no longer has the history that shows why. @n is freed
         * after this call. */
        void (*left)(const struct member_node *n, const char *reason, int64_t revision,
                     void *userdata);
        void (*changed)(const struct member_node *n, int64_t revision, void *userdata);
};

struct membership {
        struct member_tree nodes;
        size_t n;
        int64_t revision; /* everything up to this revision is known */
        struct {
                char id[64]; /* of the node that was put last */
                int64_t revision;
        } last;
        const struct membership_ops *ops;
        void *userdata;
};

void membership_init(struct membership *m, const struct membership_ops *ops, void *userdata);
void membership_fini(struct membership *m);

struct member_node *membership_find(const struct membership *m, const char *name);

/* A key's value, from a range or a watch. @name is the key without its prefix. Returns 0 or
 * -ENOMEM. If one revision first puts a node, and then deletes another one with the same id,
 * that host has a new name, and the old node was replaced. */
must_check_ int membership_put(struct membership *m, struct view name, struct view value,
                               int64_t lease, int64_t create_revision, int64_t mod_revision);
void membership_delete(struct membership *m, struct view name, int64_t revision);

/* The core was emptied or restored, and its revisions are others: the next resync compares each
 * value, not the revisions. */
void membership_forget_revisions(struct membership *m);

/* Call these before and after the puts of a whole range that was read at @revision: nodes that
 * are not in the range have left meanwhile. */
void membership_resync_begin(struct membership *m);
void membership_resync_end(struct membership *m, int64_t revision);
