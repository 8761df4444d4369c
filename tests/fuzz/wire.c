/* What is on the wire besides HTTP/2: every message of the API, the commands of the log, and
 * renewals and expiry in them. What was parsed is encoded again, and must parse to the same. */
#include "fuzz.h"
#include "methods.h"
#include "wire/cmd.h"

/* Requests come from the tables of methods; these are the others that somebody unpacks. */
static const ProtobufCMessageDescriptor *const others[] = {
        &pb__watch_request__descriptor,
        &pb__lease_keep_alive_request__descriptor,
        &pb__auth_change__descriptor,
        &pb__member__descriptor,
        &pb__txn_request__descriptor,
        &pb__txn_response__descriptor,
        &pb__range_response__descriptor,
        &pb__put_response__descriptor,
        &pb__delete_range_response__descriptor,
        &pb__watch_response__descriptor,
        &pb__lease_grant_response__descriptor,
        &pb__lease_keep_alive_response__descriptor,
        &pb__lease_time_to_live_response__descriptor,
        &pb__lease_leases_response__descriptor,
        &pb__member_list_response__descriptor,
        &pb__status_response__descriptor,
        &pb__snapshot_response__descriptor,
        &pb__hash_kvresponse__descriptor,
        &pb__alarm_response__descriptor,
        &pb__authenticate_response__descriptor,
        &pb__auth_user_get_response__descriptor,
        &pb__auth_role_get_response__descriptor,
        &pb__auth_user_list_response__descriptor,
        &pb__lock_response__descriptor,
        &pb__campaign_response__descriptor,
        &pb__leader_response__descriptor,
        &pb__health_check_response__descriptor,
};

#define N_CODECS 3 /* before them */

static const ProtobufCMessageDescriptor *descriptor(size_t i)
{
        i %= ARRAY_SIZE(others) + fuzz_methods();
        return i < ARRAY_SIZE(others) ? others[i]
                                      : fuzz_method(i - ARRAY_SIZE(others))->request;
}

static const ProtobufCMessageDescriptor *message(struct view in, size_t *ret_at)
{
        *ret_at = 1;
        return in.len < 1 || in.p[0] < N_CODECS ? NULL : descriptor(in.p[0] - N_CODECS);
}

static void *from_arena(void *a, size_t n)
{
        return arena_alloc(a, n);
}

static void to_arena(void *a, void *p)
{
        (void) a;
        (void) p;
}

static void pack(ProtobufCMessage *m, struct buf *out)
{
        pb_append(out, m);
        HOLDS(buf_error(out) == 0);
        HOLDS(buf_len(out) == protobuf_c_message_get_packed_size(m));
}

/* protobuf-c keeps fields that it does not know and packs them, with tags that it would not
 * read: such a message is not held to come back. */
static bool has_unknown(const ProtobufCMessage *m)
{
        bool any = m->n_unknown_fields > 0;

        for (unsigned i = 0; i < m->descriptor->n_fields && !any; i++) {
                const ProtobufCFieldDescriptor *f = &m->descriptor->fields[i];
                const char *at = (const char *) m + f->offset;
                const unsigned *n = (const void *) ((const char *) m + f->quantifier_offset);

                if (f->type != PROTOBUF_C_TYPE_MESSAGE)
                        continue;
                if (f->label == PROTOBUF_C_LABEL_REPEATED) {
                        ProtobufCMessage *const *const *list = (const void *) at;

                        for (size_t k = 0; k < *(const size_t *) (const void *) n; k++)
                                any = any || has_unknown((*list)[k]);
                } else if (*(ProtobufCMessage *const *) (const void *) at &&
                           (!(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) || *n == f->id)) {
                        any = has_unknown(*(ProtobufCMessage *const *) (const void *) at);
                }
        }
        return any;
}

static void run_message(const ProtobufCMessageDescriptor *d, struct view in)
{
        cleanup_(buf_fini) struct buf x = {0}, y = {0}, z = {0};
        cleanup_(arena_fini) struct arena a = {0};
        ProtobufCAllocator in_arena = {from_arena, to_arena, &a};
        cleanup_(pb_freep)
                ProtobufCMessage *m = protobuf_c_message_unpack(d, NULL, in.len, in.p),
                                 *again = NULL;
        ProtobufCMessage *same = protobuf_c_message_unpack(d, &in_arena, in.len, in.p);

        HOLDS(!m == !same);
        if (!m)
                return;
        pack(m, &x);
        pack(same, &y);
        again = protobuf_c_message_unpack(d, NULL, buf_len(&x), x.data);
        if (has_unknown(m))
                return;
        HOLDS(again);
        pack(again, &z);
        HOLDS(buf_len(&x) == buf_len(&y) && buf_len(&x) == buf_len(&z));
        HOLDS(buf_len(&x) == 0 || (memcmp(x.data, y.data, buf_len(&x)) == 0 &&
                                   memcmp(x.data, z.data, buf_len(&x)) == 0));
}

static bool same(struct view a, struct view b)
{
        return a.len == b.len && (a.len == 0 || memcmp(a.p, b.p, a.len) == 0);
}

static void run_commands(struct view in)
{
        struct cmd c, d;

        while (cmd_next(&in, CLUSTER_NEWEST, &c) == 0) {
                cleanup_(buf_fini) struct buf b = {0};
                struct view back;

                cmd_append(&b, c.type, c.origin, c.seq, c.by_user ? &c.user : NULL, c.quota,
                           c.body.p, c.body.len);
                back = (struct view){b.data, buf_len(&b)};
                HOLDS(cmd_next(&back, CLUSTER_NEWEST, &d) == 0 && back.len == 0);
                HOLDS(c.type == d.type && c.origin == d.origin && c.seq == d.seq &&
                      c.by_user == d.by_user && c.quota == d.quota &&
                      c.user.login == d.user.login);
                HOLDS(same(c.user.name, d.user.name) && same(c.body, d.body));
        }
}

static void run_renewals(struct view in)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct cmd_slots slots, written, read;
        uint64_t as_of, as_of_back;
        uint32_t slot, slot_back;
        unsigned age, age_back;
        struct view at = in, back;
        size_t n = 0;

        if (cmd_renew_start(&at, &slots, &as_of) < 0)
                return;
        cmd_renew_begin(&b, &written, as_of);
        while (cmd_renew_next(&at, &slots, &slot, &age) == 0) {
                cmd_renew_add(&b, &written, slot, age);
                n++;
        }
        back = (struct view){b.data, buf_len(&b)};
        HOLDS(cmd_renew_start(&back, &read, &as_of_back) == 0 && as_of == as_of_back);
        at = in;
        (void) !cmd_renew_start(&at, &slots, &as_of);
        for (; n > 0; n--) {
                HOLDS(cmd_renew_next(&at, &slots, &slot, &age) == 0 &&
                      cmd_renew_next(&back, &read, &slot_back, &age_back) == 0);
                HOLDS(slot == slot_back && age == age_back && age <= CMD_AGE_MAX);
        }
        HOLDS(back.len == 0);
}

static void run_expiry(struct view in)
{
        cleanup_(buf_fini) struct buf b = {0};
        struct cmd_slots slots = {0}, written = {0}, read = {0};
        uint64_t renewed, renewed_back;
        uint32_t slot, slot_back;
        struct view at = in, back;
        size_t n = 0;

        while (cmd_expire_next(&at, &slots, &slot, &renewed) == 0) {
                cmd_expire_add(&b, &written, slot, renewed);
                n++;
        }
        back = (struct view){b.data, buf_len(&b)};
        at = in;
        slots = (struct cmd_slots){0};
        for (; n > 0; n--) {
                HOLDS(cmd_expire_next(&at, &slots, &slot, &renewed) == 0 &&
                      cmd_expire_next(&back, &read, &slot_back, &renewed_back) == 0);
                HOLDS(slot == slot_back && renewed == renewed_back);
        }
        HOLDS(back.len == 0);
}

static void run(struct view in)
{
        uint8_t what = take_u8(&in);

        switch (what) {
        case 0:
                return run_commands(in);
        case 1:
                return run_renewals(in);
        case 2:
                return run_expiry(in);
        default:
                run_message(descriptor(what - N_CODECS), in);
        }
}

const struct fuzzer fuzz_wire = {.name = "wire", .run = run, .message = message};
