#include "member/membership.h"

static int member_node_cmp(const struct member_node *a, const struct member_node *b)
{
        return strcmp(a->record.name, b->record.name);
}

TREE_GENERATE(member_tree, member_node, by_name, member_node_cmp)

void membership_init(struct membership *m, const struct membership_ops *ops, void *userdata)
{
        *m = (struct membership){.ops = ops, .userdata = userdata};
        RB_INIT(&m->nodes);
}

void membership_fini(struct membership *m)
{
        struct member_node *n;

        while ((n = RB_ROOT(&m->nodes))) {
                RB_REMOVE(member_tree, &m->nodes, n);
                free(n);
        }
        m->n = 0;
}

struct member_node *membership_find(const struct membership *m, const char *name)
{
        struct member_node *n = RB_ROOT(&m->nodes);

        while (n) {
                int c = strcmp(name, n->record.name);

                if (c == 0)
                        return n;
                n = c < 0 ? RB_LEFT(n, by_name) : RB_RIGHT(n, by_name);
        }
        return NULL;
}

static void leave(struct membership *m, struct member_node *n, const char *reason,
                  int64_t revision)
{
        RB_REMOVE(member_tree, &m->nodes, n);
        m->n--;
        m->ops->left(n, reason, revision, m->userdata);
        free(n);
}

/* The reason of a leave, when another life of the same node takes its place: that counts as a
 * leave and a join. */
static const char *why_replaced(const struct node_record *was, const struct node_record *is)
{
        return *was->leaving ? was->leaving
               : strcmp(was->id, is->id) == 0 && strcmp(was->boot_id, is->boot_id) != 0
                       ? "rebooted"
                       : "replaced";
}

static const char *why_deleted(const struct membership *m, const struct member_node *n,
                               int64_t revision)
{
        return *n->record.leaving ? n->record.leaving
               : *n->record.id && m->last.revision == revision &&
                               strcmp(m->last.id, n->record.id) == 0
                       ? "replaced"
                       : "expired";
}

/* Copies the name in a key. Returns false if the key has a zero byte, since the name would end
 * there and the key does not; or if the name is too long. */
static bool take_name(char ret[static NODE_NAME_MAX + 1], struct view key)
{
        if (key.len > NODE_NAME_MAX)
                return false;
        memcpy(ret, key.p, key.len);
        ret[key.len] = '\0';
        return strlen(ret) == key.len && node_name_is_valid(ret);
}

int membership_put(struct membership *m, struct view name, struct view value, int64_t lease,
                   int64_t create_revision, int64_t mod_revision)
{
        struct node_record rec;
        struct member_node *n;

        if (node_record_read(&rec, value.p, value.len) == -ENOMEM)
                return -ENOMEM;
        /* The key determines the name, whatever the value says. */
        if (!take_name(rec.name, name))
                return 0; /* no agent wrote this */

        strcpy(m->last.id, rec.id);
        m->last.revision = mod_revision;
        n = membership_find(m, rec.name);
        if (n && (strcmp(n->record.incarnation, rec.incarnation) != 0 ||
                  n->create_revision != create_revision)) {
                leave(m, n, why_replaced(&n->record, &rec), mod_revision);
                n = NULL;
        }
        if (!n) {
                n = calloc(1, sizeof(*n));
                if (!n)
                        return -ENOMEM;
                n->record = rec;
                n->lease = lease;
                n->create_revision = create_revision;
                n->mod_revision = mod_revision;
                n->seen = true;
                RB_INSERT(member_tree, &m->nodes, n);
                m->n++;
                m->ops->joined(n, mod_revision, m->userdata);
                return 0;
        }
        n->seen = true;
        if (n->mod_revision == mod_revision && n->lease == lease)
                return 0;
        n->record = rec;
        n->lease = lease;
        n->mod_revision = mod_revision;
        if (!*rec.leaving) /* otherwise the leave event will carry the reason */
                m->ops->changed(n, mod_revision, m->userdata);
        return 0;
}

void membership_delete(struct membership *m, struct view name, int64_t revision)
{
        char text[NODE_NAME_MAX + 1];
        struct member_node *n;

        if (!take_name(text, name))
                return;
        n = membership_find(m, text);
        if (n)
                leave(m, n, why_deleted(m, n, revision), revision);
}

void membership_forget_revisions(struct membership *m)
{
        struct member_node *n;

        RB_FOREACH (n, member_tree, &m->nodes)
                n->mod_revision = 0;
        m->revision = 0;
}

void membership_resync_begin(struct membership *m)
{
        struct member_node *n;

        RB_FOREACH (n, member_tree, &m->nodes)
                n->seen = false;
}

void membership_resync_end(struct membership *m, int64_t revision)
{
        struct member_node *n, *next;

        RB_FOREACH_SAFE (n, member_tree, &m->nodes, next)
                if (!n->seen)
                        leave(m, n, *n->record.leaving ? n->record.leaving : "resync",
                              revision);
        m->revision = revision;
}
