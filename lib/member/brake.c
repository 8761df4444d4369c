#include "member/brake.h"

struct missing_node {
        RB_ENTRY(missing_node) entry;
        TAILQ_ENTRY(missing_node) next;
        struct boot_time since;
        char name[];
};

static int missing_node_cmp(const struct missing_node *a, const struct missing_node *b)
{
        return strcmp(a->name, b->name);
}

TREE_GENERATE(brake_tree, missing_node, entry, missing_node_cmp)

void brake_init(struct brake *b)
{
        *b = (struct brake){0};
        RB_INIT(&b->by_name);
        TAILQ_INIT(&b->oldest_first);
}

static void forget(struct brake *b, struct missing_node *n)
{
        RB_REMOVE(brake_tree, &b->by_name, n);
        TAILQ_REMOVE(&b->oldest_first, n, next);
        b->n_missing--;
        free(n);
}

void brake_fini(struct brake *b)
{
        while (b->n_missing > 0)
                forget(b, TAILQ_FIRST(&b->oldest_first));
}

void brake_joined(struct brake *b, const char *name)
{
        struct missing_node *n = RB_ROOT(&b->by_name);

        while (n) {
                int c = strcmp(name, n->name);

                if (c == 0)
                        return forget(b, n);
                n = c < 0 ? RB_LEFT(n, entry) : RB_RIGHT(n, entry);
        }
}

void brake_expired(struct brake *b, const char *name, struct boot_time now)
{
        struct missing_node *n = malloc(sizeof(*n) + strlen(name) + 1);

        if (!n)
                return;
        brake_joined(b, name); /* it counts once, and from now on */
        if (b->n_missing == BRAKE_MISSING_MAX)
                forget(b, TAILQ_FIRST(&b->oldest_first));
        strcpy(n->name, name);
        n->since = now;
        RB_INSERT(brake_tree, &b->by_name, n);
        TAILQ_INSERT_TAIL(&b->oldest_first, n, next);
        b->n_missing++;
}

struct boot_time brake_wakeup(const struct brake *b, const struct brake_config *cfg)
{
        nsec_t counts_for = b->on ? max_of(cfg->window, BRAKE_MISSED_FOR) : cfg->window;

        return b->n_missing > 0 ? boot_add(TAILQ_FIRST(&b->oldest_first)->since, counts_for)
                                : BOOT_TIME_NEVER;
}

bool brake_update(struct brake *b, const struct brake_config *cfg, size_t n_nodes,
                  struct boot_time now)
{
        size_t of;
        bool on;

        while (!boot_before(now, brake_wakeup(b, cfg)))
                forget(b, TAILQ_FIRST(&b->oldest_first));
        of = n_nodes + b->n_missing;
        if (b->on)
                on = b->n_missing > 0 && b->n_missing * 200 >= of * cfg->percent;
        else
                on = of >= BRAKE_NODES_MIN && b->n_missing * 100 >= of * cfg->percent;
        on &= cfg->percent > 0;
        if (on == b->on)
                return false;
        b->on = on;
        return true;
}
