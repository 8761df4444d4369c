#include "state/lease_names.h"

#define TENURE "/tenure/"
#define NODES "/nodes/"
#define DEFAULT_NODES TENURE "default" NODES

/* A lease that holds a node's key has few keys that sort before it. */
#define LOOK_KEYS 4

static bool begins(struct view v, const char *with)
{
        return v.len >= strlen(with) && memcmp(v.p, with, strlen(with)) == 0;
}

static struct view behind(struct view v, size_t n)
{
        return (struct view){v.p + n, v.len - n};
}

static bool has_slash(struct view v)
{
        return v.len > 0 && memchr(v.p, '/', v.len);
}

/* The node's name in its key; empty if @key is not the key of a node. */
static struct view name_in(struct view key)
{
        struct view name = {0}, node;
        const uint8_t *slash;

        if (!begins(key, TENURE))
                return name;
        node = behind(key, strlen(TENURE));
        slash = memchr(node.p, '/', node.len);
        if (!slash || slash == node.p)
                return name;
        node = behind(node, (size_t) (slash - node.p));
        if (!begins(node, NODES))
                return name;
        node = behind(node, strlen(NODES));
        if (node.len == 0 || has_slash(node))
                return name;
        name = begins(key, DEFAULT_NODES) ? node : behind(key, strlen(TENURE));
        return name.len <= STATE_LEASE_NAME_MAX ? name : (struct view){0};
}

/* The name in the node's key that @l holds, whether or not another lease was granted with that
 * name. */
static struct view name_of_node(const struct lease *l)
{
        struct view from = {(const uint8_t *) TENURE, strlen(TENURE)}, name = {0};
        struct kv_key *k = lease_key_from(l, from);

        for (int n = 0; k && n < LOOK_KEYS && name.len == 0; n++) {
                name = name_in((struct view){k->bytes, k->len});
                k = RB_NEXT(lease_keys, NULL, k);
        }
        return name;
}

static struct lease *find_node(const struct state *s, struct view name)
{
        uint8_t key[sizeof(DEFAULT_NODES) + STATE_LEASE_NAME_MAX];
        const char *prefix = has_slash(name) ? TENURE : DEFAULT_NODES;
        size_t n = strlen(prefix);
        const struct kv_key *k;
        struct view is;

        memcpy(key, prefix, n);
        memcpy(key + n, name.p, name.len);
        k = kv_find(&s->kv, key, n + name.len);
        if (!k || !kv_live(k) || !k->lease || k->lease->name_len > 0)
                return NULL;
        is = name_of_node(k->lease);
        return bytes_cmp(is.p, is.len, name.p, name.len) == 0 ? k->lease : NULL;
}

struct lease *names_find(const struct state *s, const ProtobufCBinaryData *name)
{
        struct lease *l;

        if (name->len == 0 || name->len > STATE_LEASE_NAME_MAX)
                return NULL;
        l = leases_find_name(&s->leases, name->data, name->len);
        return l ? l : find_node(s, (struct view){name->data, name->len});
}

struct view names_of(const struct state *s, const struct lease *l)
{
        struct view name = {l->name, l->name_len};

        if (name.len > 0)
                return name;
        name = name_of_node(l);
        return name.len > 0 && !leases_find_name(&s->leases, name.p, name.len)
                       ? name
                       : (struct view){0};
}

enum state_outcome names_check(int64_t id, const ProtobufCBinaryData *name)
{
        if (name->len > STATE_LEASE_NAME_MAX)
                return STATE_E_LEASE_NAME;
        return name->len > 0 && id != 0 ? STATE_E_LEASE_TWICE : STATE_OK;
}

enum state_outcome names_put_lease(const struct state *s, const Pb__PutRequest *q,
                                   struct lease **ret)
{
        bool named = q->lease_name.len > 0;

        *ret = NULL;
        if (named && q->lease <= 0) /* the leader did not replace the name by an id */
                *ret = names_find(s, &q->lease_name);
        else if (q->lease != 0)
                *ret = leases_find(&s->leases, q->lease);
        else
                return STATE_OK;
        if (*ret)
                return STATE_OK;
        return named ? STATE_E_LEASE_NAME_NOT_FOUND : STATE_E_LEASE_NOT_FOUND;
}

static void settle_ops(const struct state *s, Pb__RequestOp **ops, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                struct lease *l;

                if (ops[i]->request_case == PB__REQUEST_OP__REQUEST_REQUEST_TXN)
                        names_settle(s, ops[i]->request_txn);
                else if (ops[i]->request_case == PB__REQUEST_OP__REQUEST_REQUEST_PUT &&
                         names_put_lease(s, ops[i]->request_put, &l) == STATE_OK && l)
                        ops[i]->request_put->lease = l->id;
        }
}

void names_settle(const struct state *s, Pb__TxnRequest *q)
{
        settle_ops(s, q->success, q->n_success);
        settle_ops(s, q->failure, q->n_failure);
}
