/* JSON of the gateway: texts as messages, and messages as texts. What was read is written and
 * read again; whatever is taken in one piece is the same in others. */
#include "wire/json.h"

#include "fuzz.h"
#include "methods.h"

#define MAX ((size_t) 1 << 20)

/* What the gateway reads and writes that no table of methods has: messages of streams, and what
 * is made of many kinds of fields. */
static const ProtobufCMessageDescriptor *const others[] = {
        &pb__watch_request__descriptor,
        &pb__lease_keep_alive_request__descriptor,
        &pb__txn_request__descriptor,
        &pb__txn_response__descriptor,
        &pb__watch_response__descriptor,
        &pb__lease_time_to_live_response__descriptor,
        &pb__member_list_response__descriptor,
        &pb__status_response__descriptor,
        &pb__snapshot_response__descriptor,
        &pb__hash_kvresponse__descriptor,
        &pb__alarm_response__descriptor,
        &pb__auth_role_get_response__descriptor,
        &pb__auth_user_list_response__descriptor,
        &pb__cache_term__descriptor,
};

static const ProtobufCMessageDescriptor *descriptor(size_t i)
{
        i %= ARRAY_SIZE(others) + fuzz_methods();
        return i < ARRAY_SIZE(others) ? others[i]
                                      : fuzz_method(i - ARRAY_SIZE(others))->request;
}

/* Reads one message off @text, in pieces of @step bytes. Returns as json_reader_put(). */
static int read_one(const ProtobufCMessageDescriptor *d, struct view *text, size_t step,
                    struct buf *wire)
{
        cleanup_(json_reader_freep) struct json_reader *j = NULL;
        struct view m;
        int r = json_reader_new(&j, d, MAX);

        HOLDS(r == 0);
        while (r == 0 && text->len > 0) {
                struct view piece = {text->p, min_of(step, text->len)}, rest = piece;

                r = json_reader_put(j, &rest, &m);
                HOLDS(r != 0 || rest.len == 0);
                text->p = rest.p;
                text->len -= piece.len - rest.len;
        }
        if (r == 0) {
                r = json_reader_end(j);
                HOLDS(r <= 0);
        }
        HOLDS(r == 0 || r == JSON_READER_MESSAGE || r == -EBADMSG || r == -E2BIG);
        HOLDS(r >= 0 || (json_reader_why(j)[0] && strlen(json_reader_why(j)) < JSON_WHY_SIZE));
        if (r == JSON_READER_MESSAGE)
                buf_add(wire, m.p, m.len);
        return r;
}

static int write_one(const ProtobufCMessageDescriptor *d, const struct buf *wire, size_t step,
                     struct buf *json)
{
        struct view rest = {buf_head(wire), buf_len(wire)};
        struct json_writer w = {0};
        int r = 0;

        json_writer_begin(&w, d);
        for (; r == 0 && rest.len > 0; rest.len -= min_of(step, rest.len)) {
                r = json_writer_put(&w, (struct view){rest.p, min_of(step, rest.len)}, json);
                rest.p += min_of(step, rest.len);
        }
        if (r == 0)
                r = json_writer_end(&w, json);
        json_writer_fini(&w);
        HOLDS(r == 0 || r == -EBADMSG);
        return r;
}

static bool same(const struct buf *a, const struct buf *b)
{
        return buf_len(a) == buf_len(b) &&
               (buf_len(a) == 0 || memcmp(buf_head(a), buf_head(b), buf_len(a)) == 0);
}

static void pack(const ProtobufCMessageDescriptor *d, const struct buf *wire, struct buf *out)
{
        ProtobufCMessage *m = protobuf_c_message_unpack(d, NULL, buf_len(wire), buf_head(wire));

        HOLDS(m);
        pb_append(out, m);
        pb_free(m);
}

/* A byte that says which message, one for the pieces, and texts of it. */
static void run_read(struct view in)
{
        const ProtobufCMessageDescriptor *d = descriptor(take_u8(&in));
        size_t step = (size_t) take_u8(&in) + 1;
        int r;

        do {
                cleanup_(buf_fini) struct buf a = {0}, b = {0}, json = {0}, back = {0}, x = {0},
                                              y = {0};
                struct view cut = in, written;

                r = read_one(d, &in, SIZE_MAX, &a);
                HOLDS(read_one(d, &cut, step, &b) == r && same(&a, &b));
                if (r != JSON_READER_MESSAGE)
                        break;
                HOLDS(cut.len == in.len);
                /* of a oneof any may have come; only one is left then */
                pack(d, &a, &x);
                HOLDS(write_one(d, &x, SIZE_MAX, &json) == 0);
                written = (struct view){buf_head(&json), buf_len(&json)};
                HOLDS(read_one(d, &written, step, &back) == JSON_READER_MESSAGE);
                HOLDS(written.len == 0);
                pack(d, &back, &y);
                HOLDS(same(&x, &y));
        } while (in.len > 0);
}

/* The same bytes, and a message. */
static void run_write(struct view in)
{
        const ProtobufCMessageDescriptor *d = descriptor(take_u8(&in));
        size_t step = (size_t) take_u8(&in) + 1;
        cleanup_(buf_fini) struct buf wire = {0}, json = {0}, cut = {0}, once = {0},
                                      json_once = {0}, twice = {0}, json_twice = {0};
        struct view text;
        int r;

        buf_add(&wire, in.p, in.len);
        r = write_one(d, &wire, SIZE_MAX, &json);
        HOLDS(write_one(d, &wire, step, &cut) == r);
        if (r < 0)
                return;
        HOLDS(same(&json, &cut));
        text = (struct view){buf_head(&json), buf_len(&json)};
        HOLDS(read_one(d, &text, step, &once) == JSON_READER_MESSAGE && text.len == 0);
        /* from here on nothing is left out or replaced */
        HOLDS(write_one(d, &once, step, &json_once) == 0);
        text = (struct view){buf_head(&json_once), buf_len(&json_once)};
        HOLDS(read_one(d, &text, step, &twice) == JSON_READER_MESSAGE && text.len == 0);
        HOLDS(write_one(d, &twice, SIZE_MAX, &json_twice) == 0);
        HOLDS(same(&once, &twice) && same(&json_once, &json_twice));
}

static const ProtobufCMessageDescriptor *message(struct view in, size_t *ret_at)
{
        *ret_at = 2;
        return in.len < 2 ? NULL : descriptor(in.p[0]);
}

const struct fuzzer fuzz_json_read = {.name = "json-read", .run = run_read};
const struct fuzzer fuzz_json_write = {
        .name = "json-write", .run = run_write, .message = message};
