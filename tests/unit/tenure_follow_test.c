/* Following nodes and services by libtenure, while memory runs out. */
#include <poll.h>

#include "fake_core.h"
#include "nomem.h"

static void node_at(Pb__KeyValue *kv, const char *key, int64_t revision)
{
        pb__key_value__init(kv);
        kv->key = pb_bytes(key, strlen(key));
        kv->value = pb_bytes("{}", 2);
        kv->lease = 9;
        kv->create_revision = kv->mod_revision = revision;
}

/* Node b joins. */
static void tell_join(void)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        Pb__Event e = PB__EVENT__INIT, *events[] = {&e};
        Pb__KeyValue kv;

        node_at(&kv, "/tenure/default/nodes/b", ++fake.revision);
        e.kv = &kv;
        p.events = events;
        p.n_events = 1;
        p.watch_id = fake.id;
        fake_tell(&p);
}

/* Until b is seen. Returns what broke the tie, or 0. */
static int follow(struct tenure *t)
{
        struct boot_time end = boot_add(boot_now(), 20 * NSEC_PER_SEC);
        unsigned told = 0;
        int r;

        r = tenure_set_endpoints(t, fake.url);
        if (r == 0)
                r = tenure_follow(t, TENURE_NODES | TENURE_SERVICES);
        if (r == 0)
                r = tenure_start(t);
        while (r == 0 && !tenure_find_node(t, "b")) {
                struct pollfd p = {.fd = tenure_get_fd(t), .events = POLLIN};

                CHECK(boot_before(boot_now(), end));
                poll(&p, 1, 1);
                r = tenure_dispatch(t);
                fake_turn();
                nomem_pause(true);
                if (fake.watch && fake.creates != told)
                        tell_join();
                told = fake.creates;
                nomem_pause(false);
        }
        if (r == 0)
                CHECK(tenure_find_node(t, "a"));
        return r;
}

TEST(who_is_there_is_read_again_when_memory_ran_out)
{
        Pb__RangeResponse content = PB__RANGE_RESPONSE__INIT;
        Pb__KeyValue kv, *kvs[] = {&kv};
        unsigned again = 0;
        bool came = true;

        node_at(&kv, "/tenure/default/nodes/a", 3);
        content.kvs = kvs;
        content.n_kvs = 1;
        for (size_t n = 0; came; n++) {
                struct tenure *t = NULL;
                int r;

                fake_begin();
                fake.content = &content;
                nomem_after(n);
                r = tenure_new(&t);
                if (r == 0)
                        r = follow(t);
                tenure_free(t);
                came = nomem_end();
                CHECK(r == 0 || r == -ENOMEM);
                again += r == 0 && fake.creates > 1;
                fake_end();
        }
        CHECK(again > 0);
}

/* There are no nodes, which is known after one look; a node that joins is reported. */
TEST(an_empty_cluster_is_followed)
{
        Pb__RangeResponse content = PB__RANGE_RESPONSE__INIT;
        struct boot_time end = boot_add(boot_now(), 20 * NSEC_PER_SEC);
        const struct tenure_event *e;
        struct tenure *t = NULL;
        bool synced = false, told = false;

        fake_begin();
        fake.content = &content;
        CHECK_EQ(tenure_new(&t), 0);
        CHECK_EQ(tenure_set_endpoints(t, fake.url), 0);
        CHECK_EQ(tenure_follow(t, TENURE_NODES | TENURE_SERVICES), 0);
        CHECK_EQ(tenure_start(t), 0);
        while (!tenure_find_node(t, "b")) {
                struct pollfd p = {.fd = tenure_get_fd(t), .events = POLLIN};

                CHECK(boot_before(boot_now(), end));
                poll(&p, 1, 1);
                CHECK_EQ(tenure_dispatch(t), 0);
                while ((e = tenure_pop_event(t)))
                        synced = synced || e->type == TENURE_SYNCED;
                fake_turn();
                if (synced && !told)
                        tell_join();
                told = synced;
        }
        CHECK_EQ(fake.creates, 1);
        tenure_free(t);
        fake_end();
}

/* ---- what a core says that cannot be ---- */

static struct tenure *follower(void)
{
        struct tenure *t;

        CHECK_EQ(tenure_new(&t), 0);
        CHECK_EQ(tenure_set_endpoints(t, fake.url), 0);
        CHECK_EQ(tenure_follow(t, TENURE_NODES | TENURE_SERVICES), 0);
        CHECK_EQ(tenure_start(t), 0);
        return t;
}

static struct tenure *of_nodes; /* of the conditions below */

static bool has_ranges(void *arg)
{
        return fake.ranges >= *(unsigned *) arg;
}

static bool has_creates(void *arg)
{
        return fake.creates >= *(unsigned *) arg;
}

static bool finds_node(void *arg)
{
        return tenure_find_node(of_nodes, arg) != NULL;
}

/* If the rest of the nodes is not there, they have not left. */
TEST(a_reading_that_lacks_nodes_is_not_believed)
{
        Pb__RangeResponse content = PB__RANGE_RESPONSE__INIT;
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        Pb__KeyValue kv, *kvs[] = {&kv};
        const struct tenure_event *e;
        struct tenure *t;
        unsigned n;

        fake_begin();
        node_at(&kv, "/tenure/default/nodes/a", 3);
        content.kvs = kvs;
        content.n_kvs = 1;
        content.count = 1;
        fake.content = &content;
        of_nodes = t = follower();
        fake_until(t, finds_node, (char *) (uintptr_t) "a");
        n = 1;
        fake_until(t, has_creates, &n);
        content.n_kvs = 0;
        n = fake.ranges + 3;
        p.watch_id = fake.id;
        p.canceled = true;
        fake_tell(&p);
        fake_until(t, has_ranges, &n);
        while ((e = tenure_pop_event(t)))
                CHECK(e->type != TENURE_NODE_LEFT);
        CHECK(tenure_find_node(t, "a"));
        content.n_kvs = 1;
        n = 2;
        fake_until(t, has_creates, &n);
        tenure_free(t);
        fake_end();
}

/* Without it, nobody knows from when on the watch is there. */
TEST(a_watch_of_nodes_that_is_not_confirmed_is_asked_for_again)
{
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        struct tenure *t;
        unsigned n = 1;

        fake_begin();
        fake.create_silently = true;
        t = follower();
        fake_until(t, has_creates, &n);
        fake_tell(&p); /* as a confirmation from which one field is gone */
        n = 2;
        fake_until(t, has_creates, &n);
        tenure_free(t);
        fake_end();
}

/* It said that it was far ahead, twice; what happens before it gets there counts. */
TEST(a_core_that_is_behind_what_was_read_is_asked_until_it_is_known)
{
        Pb__RangeResponse content = PB__RANGE_RESPONSE__INIT;
        Pb__WatchResponse p = PB__WATCH_RESPONSE__INIT;
        Pb__KeyValue kv, *kvs[] = {&kv};
        struct tenure *t;
        unsigned n = 1;

        fake_begin();
        fake.create_silently = true;
        fake.revision = 100;
        of_nodes = t = follower();
        fake_until(t, has_creates, &n);
        n = fake.ranges + 1;
        p.created = true;
        fake.revision = 4;
        fake_tell(&p);
        fake.revision = 100;
        fake_until(t, has_ranges, &n);
        fake_turns(t, 3);
        fake.create_silently = false;
        fake.revision = 5;
        node_at(&kv, "/tenure/default/nodes/b", 6);
        content.kvs = kvs;
        content.n_kvs = 1;
        fake.content = &content;
        tell_join();
        fake_until(t, finds_node, (char *) (uintptr_t) "b");
        tenure_free(t);
        fake_end();
}
