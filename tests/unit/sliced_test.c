/* Calls that take many slices, beside a client that makes many of them. */
#include "rig.h"

#define KEYS 60000
#define HASHES 4000

static void fill(void)
{
        char key[16];

        for (unsigned i = 0; i < KEYS; i++) {
                snprintf(key, sizeof(key), "k%06u", i);
                rig_put(key, 10);
        }
}

/* @address asks for all keys, while the address 0 has so many hashes made that they take
 * minutes. */
static void read_beside_hashes(unsigned address)
{
        static struct rig_call hashes[2][HASHES];
        Pb__HashKVRequest hash = PB__HASH_KVREQUEST__INIT;
        Pb__RangeRequest range = PB__RANGE_REQUEST__INIT;
        struct rig_call call;
        unsigned done = 0;

        rig_begin();
        fill();
        for (size_t i = 0; i < ARRAY_SIZE(hashes); i++) {
                struct rig_conn *c = rig_connect(0);

                for (size_t k = 0; k < HASHES; k++)
                        rig_ask(c, &hashes[i][k], "/etcdserverpb.Maintenance/HashKV",
                                &hash.base);
        }
        for (int i = 0; i < 20; i++)
                rig_turn();
        range.key = pb_bytes("k", 1);
        range.range_end = pb_bytes("l", 1);
        rig_ask(rig_connect(address), &call, "/etcdserverpb.KV/Range", &range.base);
        rig_wait(&call, 300);
        CHECK_EQ(call.code, RPC_OK);
        CHECK(call.bytes > KEYS * 10);
        /* And not at their cost alone. */
        for (int i = 0; i < 2000; i++)
                rig_turn();
        for (size_t i = 0; i < ARRAY_SIZE(hashes); i++)
                for (size_t k = 0; k < HASHES; k++) {
                        done += hashes[i][k].over;
                        rig_forget(&hashes[i][k]);
                }
        CHECK(done > 0);
        rig_forget(&call);
        rig_end();
}

TEST(many_hashes_of_an_address_leave_others_their_turn)
{
        read_beside_hashes(1);
}

TEST(many_hashes_of_a_connection_leave_others_their_turn)
{
        read_beside_hashes(0);
}
