#include "rig.h"

#include <crypt.h>
#include <time.h>

#include "../sim/worker.h"
#include "../whole.h"
#include "one.h"

#define CONNS_MAX 256
#define ADDRESSES 8

struct rig rig;
bool rig_measures;

static struct {
        struct disk *disk;
        struct replica *replica;
        struct worker *passwords;
        struct rig_conn *conns[CONNS_MAX];
        struct api_turn addresses[ADDRESSES];
        struct rpc_account accounts[ADDRESSES];
        bool woken; /* something reached the server since it ran */
} own;

/* ---- the thread that hashes ---- */

bool rig_hash(void)
{
        own.woken = true;
        return worker_do(own.passwords);
}

char *crypt_gensalt_rn(const char *prefix, unsigned long count, const char *bytes, int n_bytes,
                       char *out, int size)
{
        (void) count;
        (void) bytes;
        (void) n_bytes;
        snprintf(out, (size_t) size, "%s", prefix);
        return out;
}

char *crypt_rn(const char *phrase, const char *setting, void *data, int size)
{
        (void) setting;
        snprintf(data, (size_t) size, "%.64s", phrase);
        return data;
}

/* ---- the replica ---- */

static void kick(struct rpc_conn *c, void *arg)
{
        (void) c;
        (void) arg;
}

static const char *common_name(struct rpc_conn *c, void *arg)
{
        (void) c;
        (void) arg;
        return NULL;
}

static struct api_turn *turn(struct rpc_conn *c, void *arg)
{
        struct rig_conn *conn = rpc_conn_userdata(c);

        (void) arg;
        return &conn->turn;
}

static const struct api_conns conns = {.kick = kick, .common_name = common_name, .turn = turn};

void rig_begin(void)
{
        memset(&own, 0, sizeof(own));
        rig = (struct rig){.now = {1000 * NSEC_PER_SEC},
                           .account = {.max = SIZE_MAX, .kept_max = SIZE_MAX}};
        for (size_t i = 0; i < ADDRESSES; i++)
                own.accounts[i] = (struct rpc_account){
                        .parent = &rig.account, .max = SIZE_MAX, .kept_max = SIZE_MAX};
        own.woken = true;
        own.disk = sim_disk_new();
        one_new(&rig.core, &own.replica, own.disk, 1,
                &(struct core_config){.timeout = 5 * NSEC_PER_SEC,
                                      .max_txn_ops = 128,
                                      .watch_progress = 600 * NSEC_PER_SEC,
                                      .cache_term = 3 * NSEC_PER_SEC},
                rig.now);
        CHECK_EQ(worker_new(&own.passwords, NULL, "passwords"), 0);
        CHECK_EQ(api_new(&rig.api, rig.core, own.passwords, 300 * NSEC_PER_SEC), 0);
        api_set_conns(rig.api, &conns, NULL);
        for (unsigned i = 0; !core_status(rig.core).ready; i++) {
                CHECK(i < 5000);
                rig_turn();
        }
}

void rig_end(void)
{
        for (size_t i = 0; i < CONNS_MAX; i++)
                if (own.conns[i])
                        rig_disconnect(own.conns[i]);
        CHECK_EQ(rig.account.held, 0);
        CHECK_EQ(rig.account.calls, 0);
        while (sim_disk_busy(own.disk))
                sim_disk_finish(own.disk);
        worker_free(own.passwords);
        core_free(rig.core);
        api_free(rig.api);
        replica_free(own.replica);
        disk_free(own.disk);
}

/* ---- its clients ---- */

struct rig_conn *rig_connect(unsigned address)
{
        struct rpc_limits limits = {.message_max = 1536 * 1024,
                                    .calls_max = 8192,
                                    .too_large = "etcdserver: request is too large",
                                    .too_many = "etcdserver: too many requests"};
        struct rig_conn *c = calloc(1, sizeof(*c));
        struct party *host;
        char name[16];
        size_t i = 0;

        while (i < CONNS_MAX && own.conns[i])
                i++;
        CHECK(c && i < CONNS_MAX && address < ADDRESSES);
        own.conns[i] = c;
        c->takes = 64 * 1024;
        c->turn.of = &own.addresses[address];
        c->account = limits.account = &own.accounts[address];
        snprintf(name, sizeof(name), "10.0.0.%u", address);
        host = shares_address(api_shares(rig.api), name);
        c->party = limits.party = shares_connection(host);
        CHECK(c->party);
        party_unref(host);
        CHECK_EQ(rpc_conn_new_client(&c->client, "rig", false), 0);
        CHECK_EQ(rpc_conn_new_server(&c->server, &limits, api_accept, rig.api), 0);
        rpc_conn_set_userdata(c->server, c);
        rig_turn();
        return c;
}

void rig_disconnect(struct rig_conn *c)
{
        bool last = true;

        rpc_conn_free(c->server);
        rpc_conn_free(c->client);
        party_unref(c->party);
        for (size_t i = 0; i < CONNS_MAX; i++)
                if (own.conns[i] == c)
                        own.conns[i] = NULL;
                else if (own.conns[i] && own.conns[i]->turn.of == c->turn.of)
                        last = false;
        if (last) /* nobody remembers it */
                *c->turn.of = (struct api_turn){0};
        free(c);
}

static void got_message(struct rpc_call *call, struct view m)
{
        struct rig_call *r = call->userdata;

        r->messages++;
        r->bytes += m.len;
        buf_clear(&r->message);
        buf_add(&r->message, m.p, m.len);
        if (r->got)
                r->got(r, m);
}

static void got_status(struct rpc_call *call, enum rpc_code code, const char *text)
{
        struct rig_call *r = call->userdata;

        r->over = true;
        r->code = code;
        snprintf(r->text, sizeof(r->text), "%s", text);
}

static void got_close(struct rpc_call *call)
{
        struct rig_call *r = call->userdata;

        r->call = NULL;
}

static const struct rpc_handler handler = {
        .on_message = got_message, .on_status = got_status, .on_close = got_close};

void rig_open(struct rig_conn *c, struct rig_call *call, const char *path,
              const ProtobufCMessage *m)
{
        cleanup_(buf_fini) struct buf b = {0};

        *call = (struct rig_call){0};
        pb_append(&b, m);
        CHECK_EQ(rpc_call_new(c->client, path, false, &handler, call, &call->call), 0);
        CHECK_EQ(rpc_call_send(call->call, buf_len(&b) > 0 ? buf_head(&b) : (uint8_t *) "",
                               buf_len(&b)),
                 0);
}

void rig_ask(struct rig_conn *c, struct rig_call *call, const char *path,
             const ProtobufCMessage *m)
{
        rig_open(c, call, path, m);
        rpc_call_end(call->call);
}

void rig_forget(struct rig_call *call)
{
        buf_fini(&call->message);
}

static nsec_t cpu(void)
{
        struct timespec t;

        if (!rig_measures)
                return 0;
        CHECK_EQ(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t), 0);
        return t.tv_sec * NSEC_PER_SEC + t.tv_nsec;
}

static void took(nsec_t since)
{
        rig.longest = max_of(rig.longest, cpu() - since);
}

/* What its clients and its disk do is not the server's time. */
static void to_server(struct rig_conn *c)
{
        cleanup_(buf_fini) struct buf wire = {0};
        nsec_t since;

        CHECK_EQ(rpc_conn_output(c->client, &wire, 1 << 20), 0);
        since = cpu();
        CHECK_EQ(rpc_conn_input(c->server, buf_head(&wire), buf_len(&wire)), 0);
        took(since);
        own.woken = own.woken || buf_len(&wire) > 0;
}

static void to_client(struct rig_conn *c)
{
        cleanup_(buf_fini) struct buf wire = {0};
        nsec_t since = cpu();

        CHECK_EQ(rpc_conn_output(c->server, &wire, c->takes), 0);
        took(since);
        CHECK_EQ(rpc_conn_input(c->client, buf_head(&wire), buf_len(&wire)), 0);
        own.woken = own.woken || buf_len(&wire) > 0;
}

static void disk_turn(void)
{
        for (unsigned q = 0; q < DISK_QUEUES; q++)
                while (sim_disk_busy_at(own.disk, (enum disk_queue) q)) {
                        nsec_t since;

                        (void) sim_disk_run_at(own.disk, (enum disk_queue) q);
                        since = cpu();
                        sim_disk_finish_at(own.disk, (enum disk_queue) q);
                        took(since);
                        own.woken = true;
                }
}

/* As in the program, the server runs when something has reached it, and when it said that it
 * has something to do; so a service that forgets to say so stands still here, too. */
static bool is_due(void)
{
        return own.woken ||
               !boot_before(rig.now,
                            boot_min(replica_next(own.replica),
                                     boot_min(core_next(rig.core), api_next(rig.api))));
}

static void server_turn(void)
{
        nsec_t since = cpu();

        own.woken = false;
        replica_run(own.replica, rig.now);
        core_run(rig.core, rig.now);
        api_recall(rig.api, rig.now);
        core_flush(rig.core, rig.now);
        replica_flush(own.replica, rig.now);
        took(since);
        while (sim_disk_busy(own.disk))
                disk_turn();
        since = cpu();
        api_run(rig.api, rig.now);
        took(since);
}

void rig_turn(void)
{
        rig.now = boot_add(rig.now, RIG_TURN);
        if (is_due())
                server_turn();
        else
                rig.idle++;
        for (size_t i = 0; i < CONNS_MAX; i++) {
                struct rig_conn *c = own.conns[i];

                if (!c)
                        continue;
                to_server(c);
                if (c->takes > 0)
                        to_client(c);
        }
        rig.most_held = max_of(rig.most_held, rig.account.held);
}

void rig_wait(struct rig_call *call, unsigned max)
{
        for (unsigned i = 0; !call->over && i < max; i++)
                rig_turn();
        CHECK(call->over);
}

void rig_put(const char *key, size_t value_len)
{
        static uint8_t value[1 << 20];
        struct state *s = core_state(rig.core);
        struct kv_key *k;

        CHECK(value_len <= sizeof(value));
        CHECK_EQ(kv_put(&s->kv, ++s->revision, 0, key, strlen(key), value, value_len, 0, &k),
                 0);
        own.woken = true;
}

void rig_compact(void)
{
        struct state *s = core_state(rig.core);

        kv_compact(&s->kv, s->revision);
        own.woken = true;
}
