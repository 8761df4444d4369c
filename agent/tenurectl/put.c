/*
 * tenurectl put KEY VALUE --while-held [--lock NAME]: a write that the core applies only while
 * this host holds its place, and the lock. The guard is determined before the value is read, so
 * that the write of a command that was delayed is refused, even if the host has a place, or the
 * lock, again by then.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <json-c/json.h>
#include <stdio.h>
#include <unistd.h>

#include "base/buf.h"
#include "ctl.h"
#include "keeper.h"
#include "lock_env.h"
#include "lock_holder.h"
#include "member/lock_name.h"
#include "talk.h"
#include "text.h"
#include "verbs.h"

#define VALUE_MOST (64 << 20) /* more than any core accepts */

struct guard {
        int64_t lease; /* of the place; under `tenurectl lock`, of the lock */
        char place[1024];
        const char *lock; /* NULL: none */
        char lock_key[1024];
        int64_t token;
};

static int place_lost(const char *why)
{
        say("%s; nothing was written", why);
        return EXIT_PLACE_LOST;
}

static int not_mine(const struct guard *g, const char *what, const char *holder)
{
        say("the lock '%s' %s%s; nothing was written", g->lock, what, holder);
        return EXIT_NOT_MINE;
}

/* ---- the guard ---- */

/* Reads the place that is held now; the core checks whether it still is when the write arrives.
 * Returns 0, -1, or an exit status. */
static int read_place(struct ctl *c, struct guard *g)
{
        struct tenancy t;
        int fd = ctl_open_tenancy(c), r;

        if (fd < 0)
                return -1;
        r = keeper_look(fd, &t);
        close(fd);
        if (r < 0)
                return ctl_fail("cannot get the deadline of this host's place", r, NULL);
        if (t.lease == 0)
                return place_lost("this host does not hold its place now");
        if (g->lease != 0 && g->lease != t.lease)
                return place_lost("the place with which the lock was taken has ended");
        g->lease = t.lease;
        return 0;
}

static int look_at_lock(const struct core_options *core, struct guard *g)
{
        struct lock_holder holder;
        int r = lock_holder_read(core, g->lock, g->lock_key, false, &holder);

        if (r < 0)
                return -1; /* reported already */
        if (r == LOCK_HOLDER_E_NOBODY)
                return not_mine(g, "is held by ", "nobody");
        if (strcmp(holder.key, g->lock_key) != 0)
                return not_mine(g, "is held by ", holder.text);
        g->token = holder.created;
        return 0;
}

/* ---- the write ---- */

static int read_value(const char *file, struct buf *b)
{
        bool in = strcmp(file, "-") == 0;
        int fd = in ? STDIN_FILENO : open(file, O_RDONLY | O_CLOEXEC), r = 0;
        char what[300];
        ssize_t n = 1;

        while (fd >= 0 && n > 0 && r == 0) {
                uint8_t *to = buf_reserve(b, 65536);

                n = to ? read(fd, to, 65536) : 0;
                if (n > 0)
                        buf_commit(b, (size_t) n);
                if (!to || buf_len(b) > VALUE_MOST)
                        r = to ? -EFBIG : -ENOMEM;
        }
        if (fd < 0 || n < 0)
                r = -errno;
        if (fd >= 0 && !in)
                close(fd);
        snprintf(what, sizeof(what), "cannot read the value from %.200s",
                 in ? "standard input" : file);
        return r < 0 ? ctl_fail(what, r, NULL) : 0;
}

static void compare(Pb__Compare *c, const char *key)
{
        pb__compare__init(c);
        c->key = pb_bytes(key, strlen(key));
        c->result = PB__COMPARE__COMPARE_RESULT__EQUAL;
}

/* Reports a refused write. The core's answer has the key that stands for the place. */
static int refused(const struct guard *g, const Pb__TxnResponse *p)
{
        const Pb__ResponseOp *op = p->n_responses == 1 ? p->responses[0] : NULL;
        const Pb__RangeResponse *found;
        char why[200];

        if (!op || op->response_case != PB__RESPONSE_OP__RESPONSE_RESPONSE_RANGE)
                return say("the core's answer is invalid");
        found = op->response_range;
        if (found->n_kvs == 1 && found->kvs[0]->lease == g->lease)
                return not_mine(g, "was given back or lost since", "");
        snprintf(why, sizeof(why),
                 "the core refused the write, because the lease %016" PRIx64
                 " of this host's place has ended",
                 (uint64_t) g->lease);
        return place_lost(why);
}

/* Whether an error proves that nothing was changed. */
static bool is_refusal(enum rpc_code code)
{
        return code == RPC_INVALID_ARGUMENT || code == RPC_NOT_FOUND ||
               code == RPC_PERMISSION_DENIED || code == RPC_RESOURCE_EXHAUSTED ||
               code == RPC_FAILED_PRECONDITION || code == RPC_OUT_OF_RANGE ||
               code == RPC_UNIMPLEMENTED || code == RPC_UNAUTHENTICATED;
}

static void print(struct ctl *c, const char *key, int64_t revision)
{
        struct json_object *o = json_object_new_object();

        json_object_object_add(o, "key", text_json(view_str(key)));
        json_put_number(o, "revision", revision);
        ctl_did(c, o, "Wrote '%s' at revision %" PRId64 ".", key, revision);
}

static int write_guarded(struct ctl *c, const struct core_options *core, const struct guard *g,
                         const char *key, const struct buf *value)
{
        Pb__TxnRequest txn = PB__TXN_REQUEST__INIT;
        Pb__Compare place, lock, *cs[] = {&place, &lock};
        Pb__RequestOp yes = PB__REQUEST_OP__INIT, no = PB__REQUEST_OP__INIT;
        Pb__RequestOp *yes_p = &yes, *no_p = &no;
        Pb__PutRequest put = PB__PUT_REQUEST__INIT;
        Pb__RangeRequest look = PB__RANGE_REQUEST__INIT;
        struct talk t = {.path = "/etcdserverpb.KV/Txn",
                         .request = &txn.base,
                         .reply_type = &pb__txn_response__descriptor};
        const Pb__TxnResponse *p;
        int r;

        compare(&place, g->place);
        place.target = PB__COMPARE__COMPARE_TARGET__LEASE;
        place.target_union_case = PB__COMPARE__TARGET_UNION_LEASE;
        place.lease = g->lease;
        compare(&lock, g->lock_key);
        lock.target = PB__COMPARE__COMPARE_TARGET__CREATE;
        lock.target_union_case = PB__COMPARE__TARGET_UNION_CREATE_REVISION;
        lock.create_revision = g->token;
        put.key = pb_bytes(key, strlen(key));
        put.value = pb_bytes(buf_head(value), buf_len(value));
        yes.request_case = PB__REQUEST_OP__REQUEST_REQUEST_PUT;
        yes.request_put = &put;
        look.key = place.key;
        look.keys_only = true;
        no.request_case = PB__REQUEST_OP__REQUEST_REQUEST_RANGE;
        no.request_range = &look;
        txn.compare = cs;
        txn.success = &yes_p;
        txn.failure = &no_p;
        txn.n_compare = g->lock ? 2 : 1;
        txn.n_success = txn.n_failure = 1;
        r = talk(core, &t);
        p = t.reply;
        if (r < 0 && t.sent && !is_refusal(t.code))
                say("'%s' may or may not have been written; read it before you write it again",
                    key);
        if (r < 0)
                r = -1;
        else if (!p->succeeded)
                r = refused(g, p);
        else
                print(c, key, p->header ? p->header->revision : 0);
        t.reply = pb_free(t.reply);
        return r;
}

/* Determines which core to use, and the guard. @core borrows @endpoint. */
static int settle(struct ctl *c, struct core_options *core, struct guard *g,
                  char endpoint[static 320])
{
        struct json_object *o;
        int r = lock_env_read(g->lock, &g->lease, &g->token);

        if (r == -ESTALE)
                return place_lost("the place with which the lock was taken has ended");
        if (r == 0)
                r = read_place(c, g);
        if (r != 0)
                return r;
        if ((core->given ? ctl_get_all(c, ROOT, MANAGER, &o) : ctl_get_connected(c, &o)) < 0)
                return -1;
        snprintf(g->place, sizeof(g->place), "/tenure/%s/nodes/%s", ctl_text(o, "Cluster"),
                 ctl_text(o, "NodeName"));
        snprintf(endpoint, 320, "%s", ctl_text(o, "CoreEndpoint"));
        json_object_put(o);
        if (!core->given && !*endpoint)
                return say("the agent cannot reach a core");
        if (!core->given)
                core->endpoints = endpoint;
        if (!g->lock)
                return 0;
        snprintf(g->lock_key, sizeof(g->lock_key), "%s/%" PRIx64, g->lock, (uint64_t) g->lease);
        return g->token > 0 ? 0 : look_at_lock(core, g);
}

int verb_put(struct ctl *c, int argc, char **argv)
{
        struct core_options core = c->core;
        struct guard g = {.lock = c->o.lock};
        cleanup_(buf_fini) struct buf value = {0};
        const char *file = c->o.file;
        char endpoint[320];
        int r;

        if (argc != (file ? 1 : 2))
                return say("put needs KEY VALUE, KEY - for standard input, or --file=FILE KEY");
        if (!c->o.while_held && !c->o.lock)
                return say("put needs --while-held or --lock=NAME; to write without a "
                           "condition, use etcdctl put");
        if (c->o.lock && lock_name_problem(c->o.lock))
                return say("the name of a lock %s; '%s' is not one",
                           lock_name_problem(c->o.lock), c->o.lock);
        if (!file && strcmp(argv[1], "-") == 0)
                file = argv[1];
        r = settle(c, &core, &g, endpoint);
        if (r == 0 && file)
                r = read_value(file, &value);
        else if (r == 0)
                buf_add(&value, argv[1], strlen(argv[1]));
        if (r == 0 && buf_error(&value) < 0)
                r = ctl_fail("cannot keep the value", -ENOMEM, NULL);
        if (r == 0)
                r = write_guarded(c, &core, &g, argv[0], &value);
        return r;
}
