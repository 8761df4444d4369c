#include "test.h"
#include "wire/pb.h"
#include "wire/renewal.h"

/* @n transactions, each in an operation of the one before; the innermost puts. */
static void nested_txns(struct buf *out, size_t n)
{
        buf_add(out, "\x12\x05\x12\x03\x0a\x01k", 7); /* success { request_put { key } } */
        for (size_t i = 1; i < n; i++) {
                cleanup_(buf_fini) struct buf op = {0};

                buf_add_u8(&op, 0x22); /* request_txn */
                buf_add_bytes(&op, buf_head(out), buf_len(out));
                buf_clear(out);
                buf_add_u8(out, 0x12);
                buf_add_bytes(out, buf_head(&op), buf_len(&op));
        }
        CHECK_EQ(buf_error(out), 0);
}

static int unpack(const ProtobufCMessageDescriptor *type, const struct buf *b)
{
        void *m = NULL;
        int r = pb_unpack(type, (struct view){buf_head(b), buf_len(b)}, &m);

        CHECK_EQ(m != NULL, r == 0);
        pb_free(m);
        return r;
}

TEST(a_message_nests_so_deep_and_no_deeper)
{
        const struct {
                size_t n;
                int r;
        } cases[] = {{1, 0}, {8, 0}, {128, 0}, {149, 0}, {150, -E2BIG}, {20000, -E2BIG}};

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                cleanup_(buf_fini) struct buf b = {0};

                nested_txns(&b, cases[i].n);
                CHECK_EQ(unpack(&pb__txn_request__descriptor, &b), cases[i].r);
        }
}

/* Two bytes on the wire become a hundred in memory: so many compares, or unknown fields, are
 * not what a client means. */
TEST(a_message_takes_no_more_memory_than_its_bytes_explain)
{
        cleanup_(buf_fini) struct buf compares = {0}, unknown = {0}, few = {0};

        for (unsigned i = 0; i < 100000; i++)
                buf_add(&compares, "\x0a\x00", 2);
        CHECK_EQ(unpack(&pb__txn_request__descriptor, &compares), -E2BIG);
        for (unsigned i = 0; i < 257; i++) {
                if (i == 256)
                        buf_add(&few, buf_head(&unknown), buf_len(&unknown));
                buf_add(&unknown, "\xf8\x7f\x01", 3);
        }
        CHECK_EQ(unpack(&pb__put_request__descriptor, &few), 0);
        CHECK_EQ(unpack(&pb__put_request__descriptor, &unknown), -E2BIG);
}

/* How much memory a message takes, and which fields a version knows, differ. */
TEST(a_command_of_the_log_is_refused_for_its_depth_alone)
{
        cleanup_(arena_fini) struct arena a = {0};
        cleanup_(buf_fini) struct buf dense = {0}, unknown = {0}, deep = {0};
        void *m;

        for (unsigned i = 0; i < 100000; i++)
                buf_add(&dense, "\x0a\x00", 2); /* a comparison in two bytes */
        for (unsigned i = 0; i < 1000; i++)
                buf_add(&unknown, "\xf8\x7f\x01", 3);
        nested_txns(&deep, PB_DEPTH_MAX / 2);
        CHECK_EQ(pb_unpack_logged(&a, &pb__txn_request__descriptor,
                                  (struct view){dense.data, buf_len(&dense)}, &m),
                 0);
        CHECK_EQ(pb_unpack_logged(&a, &pb__put_request__descriptor,
                                  (struct view){unknown.data, buf_len(&unknown)}, &m),
                 0);
        CHECK_EQ(pb_unpack_logged(&a, &pb__txn_request__descriptor,
                                  (struct view){buf_head(&deep), buf_len(&deep)}, &m),
                 -E2BIG);
}

/* The densest that is meant: operations on short keys, ten thousand of them, pass. */
TEST(ten_thousand_short_operations_unpack)
{
        cleanup_(buf_fini) struct buf b = {0};

        for (unsigned i = 0; i < 10000; i++) {
                const char op[] = {0x12, 8,   0x1a, 6, 0x0a, 4, (char) ('a' + i % 26),
                                   'b',  'c', 'd'};

                buf_add(&b, op, sizeof(op));
        }
        CHECK_EQ(unpack(&pb__txn_request__descriptor, &b), 0);
}

/* protobuf merges a message that comes again with the one before, which copies all of that each
 * time. */
TEST(a_message_that_may_arrive_once_arrives_once)
{
        cleanup_(buf_fini) struct buf twice = {0}, other = {0};

        buf_add(&twice, "\x12\x03\x12\x01k\x12\x03\x12\x01l", 10);
        CHECK_EQ(unpack(&pb__auth_role_grant_permission_request__descriptor, &twice), -EBADMSG);
        /* Of a oneof the last one counts. */
        buf_add(&other, "\x12\x03\x0a\x01k\x12\x03\x0a\x01l", 10);
        CHECK_EQ(unpack(&pb__request_op__descriptor, &other), 0);
}

/* Whatever bytes: what protobuf-c alone takes, and is not too much, we take, and the other way
 * round. */
TEST(a_look_ahead_changes_no_answer)
{
        const ProtobufCMessageDescriptor *types[] = {
                &pb__txn_request__descriptor, &pb__range_request__descriptor,
                &pb__watch_request__descriptor, &pb__auth_change__descriptor,
                &pb__range_response__descriptor};
        unsigned n_good = 0;

        for (unsigned i = 0; i < 20000; i++) {
                const ProtobufCMessageDescriptor *type = types[rnd(0, ARRAY_SIZE(types) - 1)];
                uint8_t bytes[48];
                size_t n = rnd(0, sizeof(bytes));
                ProtobufCMessage *alone;
                void *m = NULL;
                int r;

                for (size_t k = 0; k < n; k++)
                        bytes[k] = (uint8_t) (rnd(0, 3) ? rnd(0, 40) : rnd(0, 255));
                alone = protobuf_c_message_unpack(type, NULL, n, bytes);
                r = pb_unpack(type, (struct view){bytes, n}, &m);
                CHECK(r != -ENOMEM && r != -E2BIG);
                if (r == 0) {
                        CHECK(alone);
                        n_good++;
                }
                pb_free(alone);
                pb_free(m);
        }
        CHECK(n_good > 250); /* about 500 */
}

TEST(so_many_messages_and_no_more)
{
        cleanup_(buf_fini) struct buf b = {0};
        size_t cost = 0;
        void *m;

        nested_txns(&b, 3); /* each in an operation, and a put: 3 + 3 + 1 */
        CHECK_EQ(pb_unpack_few(&pb__txn_request__descriptor, (struct view){b.data, buf_len(&b)},
                               6, &cost, &m),
                 -E2BIG);
        CHECK_EQ(pb_unpack_few(&pb__txn_request__descriptor, (struct view){b.data, buf_len(&b)},
                               7, &cost, &m),
                 0);
        CHECK(cost > 3 * sizeof(Pb__TxnRequest) && cost < 4096);
        pb_free(m);
}

static int64_t some_number(void)
{
        return (int64_t) (rnd(0, 4) == 0 ? 0 : rnd(0, UINT64_MAX) >> rnd(0, 63));
}

/* Byte for byte, whatever the numbers are. */
TEST(an_answer_to_a_renewal_is_packed_as_protobuf_does)
{
        for (int i = 0; i < 2000; i++) {
                Pb__LeaseKeepAliveResponse p = PB__LEASE_KEEP_ALIVE_RESPONSE__INIT;
                Pb__ResponseHeader h = PB__RESPONSE_HEADER__INIT;
                cleanup_(buf_fini) struct buf ours = {0}, theirs = {0};

                h.cluster_id = (uint64_t) some_number();
                h.member_id = (uint64_t) some_number();
                h.revision = some_number();
                h.raft_term = (uint64_t) some_number();
                p.header = &h;
                p.id = some_number();
                p.ttl = some_number();
                p.ttl_ms = some_number();
                renewal_answer_append(&ours, &p);
                pb_append(&theirs, &p.base);
                CHECK_EQ(buf_len(&ours), buf_len(&theirs));
                CHECK(memcmp(ours.data, theirs.data, buf_len(&ours)) == 0);
        }
}

TEST(a_header_and_a_field_are_packed_as_protobuf_does)
{
        for (int i = 0; i < 2000; i++) {
                Pb__RangeResponse p = PB__RANGE_RESPONSE__INIT;
                Pb__ResponseHeader h = PB__RESPONSE_HEADER__INIT;
                Pb__KeyValue kv = PB__KEY_VALUE__INIT, *kvs = &kv;
                cleanup_(buf_fini) struct buf ours = {0}, theirs = {0};
                uint8_t value[300] = {0};

                h.cluster_id = (uint64_t) some_number();
                h.member_id = (uint64_t) some_number();
                h.revision = some_number();
                h.raft_term = (uint64_t) some_number();
                kv.value = pb_bytes(value, rnd(0, sizeof(value)));
                kv.version = some_number();
                p.header = &h;
                p.n_kvs = 1;
                p.kvs = &kvs;
                header_append(&ours, &h);
                pb_append_field(&ours, 2 << 3 | 2, &kv.base);
                pb_append(&theirs, &p.base);
                CHECK_EQ(buf_len(&ours), buf_len(&theirs));
                CHECK(memcmp(ours.data, theirs.data, buf_len(&ours)) == 0);
        }
}

/* What is read without protobuf-c gives the same result; the rest is left to protobuf-c. */
TEST(a_renewal_is_read_as_protobuf_does)
{
        size_t n_read = 0;

        for (int i = 0; i < 20000; i++) {
                Pb__LeaseKeepAliveRequest q = PB__LEASE_KEEP_ALIVE_REQUEST__INIT, *back;
                cleanup_(buf_fini) struct buf b = {0};
                int64_t lease;

                q.id = some_number();
                pb_append(&b, &q.base);
                for (uint64_t n = rnd(0, 2); n > 0 && buf_len(&b) > 0; n--)
                        b.data[rnd(0, buf_len(&b) - 1)] = (uint8_t) rnd(0, 255);
                if (!renewal_read((struct view){b.data, buf_len(&b)}, &lease))
                        continue;
                n_read++;
                CHECK_EQ(pb_unpack(&pb__lease_keep_alive_request__descriptor,
                                   (struct view){b.data, buf_len(&b)}, &back),
                         0);
                CHECK_EQ(back->id, lease);
                pb_free(back);
        }
        CHECK(n_read > 5000);
}
