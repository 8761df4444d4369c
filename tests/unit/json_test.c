/* Texts, errors included, are what Debian's etcd 3.4 takes and says, as
 * tests/integration/test_gateway.py sees it; where we differ on purpose, it is said so. */
#include "wire/json.h"

#include "nomem.h"
#include "test.h"
#include "wire/base64.h"
#include "wire/json_scan.h"

#define MAX ((size_t) 1 << 20)

static struct view text_view(const char *s)
{
        return (struct view){(const uint8_t *) s, strlen(s)};
}

/* ---- reading and writing, in pieces ---- */

struct outcome {
        int r; /* 0: a message */
        char why[JSON_WHY_SIZE];
        struct buf wire;
        size_t n_left; /* bytes after it */
};

static void outcome_fini(struct outcome *o)
{
        buf_fini(&o->wire);
}

/* Leaves @j somewhere inside of a text: with half a string, some levels deep, or with an error.
 */
static void spoil(struct json_reader *j, size_t how)
{
        static const char *const texts[] = {
                "{\"key\": \"abc\\u00", "{\"unknown\": [[[{\"a\": \"Zm9v",
                "{\"key\": 1}",         "{\"lease\": \"12",
                "{\"key\": \"Zm9v\"}",  "{\"key\" 1",
        };
        const char *text = texts[how % ARRAY_SIZE(texts)];
        struct view rest = {(const uint8_t *) text, strlen(text)}, m;

        (void) !json_reader_put(j, &rest, &m);
}

/* Reads @text in pieces that end at @cut and every @step bytes after that; with a @cut by a
 * reader that has read something else before. */
static void read_cut(const ProtobufCMessageDescriptor *type, struct view text, size_t cut,
                     size_t step, struct outcome *ret)
{
        cleanup_(json_reader_freep) struct json_reader *j = NULL;
        struct view m = {0};
        size_t at = 0;
        int r;

        *ret = (struct outcome){0};
        r = json_reader_new(&j, cut > 0 ? &pb__put_request__descriptor : type, MAX);
        if (r == 0 && cut > 0) {
                spoil(j, cut);
                json_reader_begin(j, type, MAX);
        }
        while (r == 0 && at < text.len) {
                size_t n = at == 0 && cut > 0 ? cut : step;
                struct view piece = {text.p + at, min_of(n, text.len - at)}, rest = piece;

                r = json_reader_put(j, &rest, &m);
                CHECK(r != 0 || rest.len == 0);
                at += piece.len - rest.len;
        }
        if (r == JSON_READER_MESSAGE) {
                nomem_pause(true);
                buf_add(&ret->wire, m.p, m.len);
                nomem_pause(false);
                ret->n_left = text.len - at;
                r = 0;
        } else if (r == 0) {
                r = json_reader_end(j);
                ret->r = r == 0 ? -ENODATA : r;
        }
        if (r < 0) {
                struct view rest = text;

                ret->r = r;
                if (j) {
                        CHECK_EQ(json_reader_put(j, &rest, &m), r); /* and it stays so */
                        CHECK_EQ(json_reader_end(j), r);
                        snprintf(ret->why, sizeof(ret->why), "%s", json_reader_why(j));
                }
        }
}

static int write_cut(const ProtobufCMessageDescriptor *type, struct view wire, size_t cut,
                     size_t step, struct buf *out)
{
        struct json_writer w = {0};
        size_t at = 0;
        int r = 0;

        json_writer_begin(&w, type);
        if (cut > 0) { /* used before, up to somewhere */
                (void) !json_writer_put(&w, (struct view){wire.p, min_of(cut, wire.len)}, out);
                buf_clear(out);
                json_writer_begin(&w, type);
        }
        while (r == 0 && at < wire.len) {
                size_t n = at == 0 && cut > 0 ? cut : step;

                n = min_of(n, wire.len - at);
                r = json_writer_put(&w, (struct view){wire.p + at, n}, out);
                at += n;
        }
        if (r == 0)
                r = json_writer_end(&w, out);
        if (r < 0)
                CHECK_EQ(json_writer_put(&w, wire, out), r);
        json_writer_fini(&w);
        return r;
}

static bool same_bytes(const struct buf *a, const struct buf *b)
{
        return buf_len(a) == buf_len(b) &&
               (buf_len(a) == 0 || memcmp(buf_head(a), buf_head(b), buf_len(a)) == 0);
}

/* What @text is, read and written again; or the error. Whole, in two at every place, and byte
 * by byte it is the same. */
static const char *again(const ProtobufCMessageDescriptor *type, const char *text)
{
        static char out[4096];
        cleanup_(outcome_fini) struct outcome whole;
        cleanup_(buf_fini) struct buf json = {0};
        struct view t = text_view(text);
        ProtobufCMessage *m;

        read_cut(type, t, 0, SIZE_MAX, &whole);
        for (size_t cut = 0; cut < t.len; cut++) {
                cleanup_(outcome_fini) struct outcome o;

                read_cut(type, t, cut, cut == 0 ? 1 : SIZE_MAX, &o);
                CHECK_EQ(o.r, whole.r);
                CHECK_STR(o.why, whole.why);
                CHECK_EQ(o.n_left, whole.n_left);
                CHECK(same_bytes(&o.wire, &whole.wire));
        }
        if (whole.r < 0) {
                snprintf(out, sizeof(out), "%s", whole.r == -ENODATA ? "none" : whole.why);
                return out;
        }
        m = protobuf_c_message_unpack(type, NULL, buf_len(&whole.wire), whole.wire.data);
        CHECK(m);
        pb_free(m);
        CHECK_EQ(write_cut(type, (struct view){whole.wire.data, buf_len(&whole.wire)}, 0,
                           SIZE_MAX, &json),
                 0);
        snprintf(out, sizeof(out), "%.*s", (int) buf_len(&json), json.data);
        return out;
}

#define PUT &pb__put_request__descriptor
#define RANGE &pb__range_request__descriptor
#define TXN &pb__txn_request__descriptor
#define MEMBER_ADD &pb__member_add_request__descriptor
#define ROLE_ADD &pb__auth_role_add_request__descriptor
#define CREATE &pb__watch_create_request__descriptor

struct text_case {
        const ProtobufCMessageDescriptor *type;
        const char *in, *out;
};

static void check_cases(const struct text_case *c, size_t n)
{
        for (; n > 0; n--, c++) {
                const char *got = again(c->type, c->in);

                if (strcmp(got, c->out) != 0)
                        test_fail(__FILE__, __LINE__, "%s is %s, not %s", c->in, got, c->out);
        }
}

TEST(json_objects_are_messages)
{
        static const struct text_case cases[] = {
                {PUT, "", "none"},
                {PUT, " \t\r\n", "none"},
                {PUT, "null", "{}"},
                {PUT, "{}", "{}"},
                {PUT, " { } ", "{}"},
                {PUT, "{\"key\":\"Zm9v\",\"value\":\"YmFy\"}",
                 "{\"key\":\"Zm9v\",\"value\":\"YmFy\"}"},
                {PUT, "{\"key\":\"Zm9v\"}x", "{\"key\":\"Zm9v\"}"},
                {PUT, "{\"\\u006bey\":\"\\u005am9v\"}", "{\"key\":\"Zm9v\"}"},
                {PUT, "{\"key\":null,\"prev_kv\":null}", "{}"},
                {PUT, "{\"prevKv\":true}", "{\"prev_kv\":true}"},
                {PUT, "{\"prev_kv\":true}", "{\"prev_kv\":true}"},
                {PUT, "{\"prev_kv\":false}", "{}"},
                {PUT, "{\"Key\":\"Zm9v\",\"KEY\":1,\"ke\":[],\"keyy\":{},\"\":0}", "{}"},
                {PUT, "{\"foo\":{\"key\":[1,2,{\"b\":null}]},\"key\":\"YQ==\"}",
                 "{\"key\":\"YQ==\"}"},
                {PUT, "{\"foo\":1e999,\"bar\":\"\\ud800\",\"key\":\"YQ==\"}",
                 "{\"key\":\"YQ==\"}"},
                {PUT, "{\"foo\":[],\"bar\":{},\"key\":\"YQ==\"}", "{\"key\":\"YQ==\"}"},
                /* integers */
                {PUT, "{\"lease\":1}", "{\"lease\":\"1\"}"},
                {PUT, "{\"lease\":\"1\"}", "{\"lease\":\"1\"}"},
                {PUT, "{\"lease\":\" 1 \"}", "{\"lease\":\"1\"}"},
                {PUT, "{\"lease\":\"null\"}", "{}"},
                {PUT, "{\"lease\":-0}", "{}"},
                {PUT, "{\"lease\":0}", "{}"},
                {PUT, "{\"lease\":-1}", "{\"lease\":\"-1\"}"},
                {PUT, "{\"lease\":9223372036854775807}", "{\"lease\":\"9223372036854775807\"}"},
                {PUT, "{\"lease\":\"-9223372036854775808\"}",
                 "{\"lease\":\"-9223372036854775808\"}"},
                {&pb__response_header__descriptor, "{\"cluster_id\":18446744073709551615}",
                 "{\"cluster_id\":\"18446744073709551615\"}"},
                {&pb__hash_kvresponse__descriptor, "{\"hash\":4294967295}",
                 "{\"hash\":4294967295}"},
                {&pb__cache_term__descriptor, "{\"issuer\":\"18446744073709551615\"}",
                 "{\"issuer\":\"18446744073709551615\"}"},
                /* enums, which are open */
                {RANGE, "{\"sort_order\":\"DESCEND\"}", "{\"sort_order\":\"DESCEND\"}"},
                {RANGE, "{\"sortOrder\":1,\"sortTarget\":\"KEY\"}",
                 "{\"sort_order\":\"ASCEND\"}"},
                {RANGE, "{\"sort_order\":7}", "{\"sort_order\":7}"},
                {RANGE, "{\"sort_order\":-2147483648}", "{\"sort_order\":-2147483648}"},
                /* bytes */
                {PUT, "{\"key\":\"\"}", "{}"},
                {PUT, "{\"key\":\"Zm9v\\nYWJj\\r\\n\"}", "{\"key\":\"Zm9vYWJj\"}"},
                {PUT, "{\"key\":\"\\n\"}", "{}"},
                {PUT, "{\"key\":\"Zh==\"}", "{\"key\":\"Zg==\"}"},
                {PUT, "{\"key\":\"//++\"}", "{\"key\":\"//++\"}"},
                /* etcd takes only one alphabet, and that padded */
                {PUT, "{\"key\":\"__--\"}", "{\"key\":\"//++\"}"},
                {PUT, "{\"key\":\"Zg\"}", "{\"key\":\"Zg==\"}"},
                {PUT, "{\"key\":\"Zm8\"}", "{\"key\":\"Zm8=\"}"},
                /* arrays and messages */
                {TXN, "{\"compare\":null,\"success\":[],\"failure\":[]}", "{}"},
                {TXN, "{\"success\":[{}]}", "{\"success\":[{}]}"},
                {TXN,
                 "{\"success\":[{\"request_put\":{\"key\":\"YQ==\"}},{\"requestRange\":{}}],"
                 "\"failure\":[{\"request_txn\":{\"failure\":[{}]}}]}",
                 "{\"success\":[{\"request_put\":{\"key\":\"YQ==\"}},{\"request_range\":{}}],"
                 "\"failure\":[{\"request_txn\":{\"failure\":[{}]}}]}"},
                {TXN, "{\"success\":[{\"request_range\":null}]}", "{\"success\":[{}]}"},
                /* of a oneof a default counts */
                {TXN, "{\"compare\":[{\"version\":0}]}", "{\"compare\":[{\"version\":\"0\"}]}"},
                {TXN, "{\"compare\":[{\"value\":\"\"}]}", "{\"compare\":[{\"value\":\"\"}]}"},
                {TXN, "{\"compare\":[{\"version\":null}]}", "{\"compare\":[{}]}"},
                {TXN, "{\"compare\":[{\"createRevision\":\"1\",\"rangeEnd\":\"AA==\"}]}",
                 "{\"compare\":[{\"create_revision\":\"1\",\"range_end\":\"AA==\"}]}"},
                {CREATE, "{\"filters\":[]}", "{}"},
                {CREATE, "{\"filters\":[\"NOPUT\",1,\"NODELETE\",null]}",
                 "{\"filters\":[\"NOPUT\",\"NODELETE\",\"NODELETE\",\"NOPUT\"]}"},
                {MEMBER_ADD, "{\"peerURLs\":[\"a\",null,\"\"],\"isLearner\":true}",
                 "{\"peerURLs\":[\"a\",\"\",\"\"],\"isLearner\":true}"},
                {&pb__lease_time_to_live_response__descriptor, "{\"keys\":[\"\",\"YQ==\"]}",
                 "{\"keys\":[\"\",\"YQ==\"]}"},
                /* strings */
                {ROLE_ADD,
                 "{\"name\":\"a\\u0000\\\"\\\\\\/\\b\\f\\n\\r\\t<&>\\u2028\\u2029\x7f\"}",
                 "{\"name\":\"a\\u0000\\\"\\\\/\\u0008\\u000c\\n\\r\\t\\u003c\\u0026\\u003e"
                 "\\u2028\\u2029\x7f\"}"},
                {ROLE_ADD, "{\"name\":\"\\ud83d\\ude00\\u00e9\\u20ac\"}",
                 "{\"name\":\"\xf0\x9f\x98\x80\xc3\xa9\xe2\x82\xac\"}"},
                {ROLE_ADD, "{\"name\":\"\\ud800x\"}", "{\"name\":\"\xef\xbf\xbdx\"}"},
                {ROLE_ADD, "{\"name\":\"\\ud800\"}", "{\"name\":\"\xef\xbf\xbd\"}"},
                {ROLE_ADD, "{\"name\":\"\\ud800\\n\"}", "{\"name\":\"\xef\xbf\xbd\\n\"}"},
                {ROLE_ADD, "{\"name\":\"\\ud800\\ud83d\\ude00\"}",
                 "{\"name\":\"\xef\xbf\xbd\xf0\x9f\x98\x80\"}"},
                {ROLE_ADD, "{\"name\":\"\\ude00\\u0041\"}",
                 "{\"name\":\"\xef\xbf\xbd"
                 "A\"}"},
                {ROLE_ADD,
                 "{\"name\":\"a\xff"
                 "b\xed\xa0\x80\xc0\x80\xf0\x9f\x98\"}",
                 "{\"name\":\"a\xef\xbf\xbd"
                 "b\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"
                 "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"}"},
        };

        check_cases(cases, ARRAY_SIZE(cases));
}

TEST(json_that_is_none_is_refused_in_gos_words)
{
#define INVALID(c, where) "invalid character '" c "' " where
#define IN_VALUE "looking for beginning of value"
#define IN_KEY "looking for beginning of object key string"
#define AFTER_PAIR "after object key:value pair"
        static const struct text_case cases[] = {
                {PUT, "{", "unexpected EOF"},
                {PUT, "{\"key\":\"Zm9v\"", "unexpected EOF"},
                {PUT, "{\"key\":1", "unexpected EOF"},
                {PUT, "nul", "unexpected EOF"},
                {PUT, "-", "unexpected EOF"},
                {PUT, "1e", "unexpected EOF"},
                {PUT, "\"", "unexpected EOF"},
                {PUT, "{\"key\":\"Zm9v\",}", INVALID("}", IN_KEY)},
                {PUT, "{,}", INVALID(",", IN_KEY)},
                {PUT, "{key:1}", INVALID("k", IN_KEY)},
                {PUT, "{'key':1}", INVALID("\\'", IN_KEY)},
                {PUT, "{\"key\" \"Zm9v\"}", INVALID("\"", "after object key")},
                {PUT, "{\"key\":}", INVALID("}", IN_VALUE)},
                {PUT, "{\"key\":\"Zm9v\" \"a\":1}", INVALID("\"", AFTER_PAIR)},
                {PUT, "{\"key\":01}", INVALID("1", AFTER_PAIR)},
                {PUT, "{\"key\":1]", INVALID("]", AFTER_PAIR)},
                {PUT, "{\"a\":[1,}", INVALID("}", IN_VALUE)},
                {PUT, "{\"a\":[1}", INVALID("}", "after array element")},
                {PUT, "{\"a\":[,1]}", INVALID(",", IN_VALUE)},
                {PUT, "{\"a\":[[],{\"b\":[}", INVALID("}", IN_VALUE)},
                {PUT, "\xef\xbb\xbf{}", INVALID("\xc3\xaf", IN_VALUE)},
                {PUT, "{\"a\":\xa0}", INVALID("\\u00a0", IN_VALUE)},
                {PUT, "{\"a\":\xad}", INVALID("\\u00ad", IN_VALUE)},
                {PUT, "{\"a\":\x80}", INVALID("\\u0080", IN_VALUE)},
                {PUT, "{\"a\":\x7f}", INVALID("\\x7f", IN_VALUE)},
                {PUT, "{\"a\":\\}", INVALID("\\\\", IN_VALUE)},
                {PUT, "{\"a\":\a\b\f\v}", INVALID("\\a", IN_VALUE)},
                {PUT, "{\"a\":\v}", INVALID("\\v", IN_VALUE)},
                {PUT, "{\"a\":\"\x01\"}", INVALID("\\x01", "in string literal")},
                {PUT, "{\"a\":\"\n\"}", INVALID("\\n", "in string literal")},
                {PUT, "{\"a\":\"\\x\"}", INVALID("x", "in string escape code")},
                {PUT, "{\"a\":\"\\u00g0\"}",
                 INVALID("g", "in \\u hexadecimal character escape")},
                {PUT, "{\"a\":nul}", INVALID("}", "in literal null (expecting 'l')")},
                {PUT, "{\"a\":tRue}", INVALID("R", "in literal true (expecting 'r')")},
                {PUT, "{\"a\":falsE}", INVALID("E", "in literal false (expecting 'e')")},
                {PUT, "{\"a\":-}", INVALID("}", "in numeric literal")},
                {PUT, "{\"a\":+1}", INVALID("+", IN_VALUE)},
                {PUT, "{\"a\":.5}", INVALID(".", IN_VALUE)},
                {PUT, "{\"a\":1.}", INVALID("}", "after decimal point in numeric literal")},
                {PUT, "{\"a\":1e}", INVALID("}", "in exponent of numeric literal")},
                {PUT, "{\"a\":1e+}", INVALID("}", "in exponent of numeric literal")},
                {PUT, "{\"a\":1e1.0}", INVALID(".", AFTER_PAIR)},
                {PUT, "{\"a\":/*c*/1}", INVALID("/", IN_VALUE)},
                {PUT, "{\"a\":NaN}", INVALID("N", IN_VALUE)},
                /* that a text is not a message is reported only if it is JSON */
                {PUT, "{\"key\":1,\"a\"}", INVALID("}", "after object key")},
        };

        check_cases(cases, ARRAY_SIZE(cases));
}

TEST(json_that_is_another_message_is_refused_in_gos_words)
{
#define KIND(is, wants) "json: cannot unmarshal " is " into Go value of type " wants
#define AS_MESSAGE "map[string]json.RawMessage"
        static const struct text_case cases[] = {
                {PUT, "[]", KIND("array", AS_MESSAGE)},
                {PUT, "[{\"key\":\"YQ==\"}]", KIND("array", AS_MESSAGE)},
                {PUT, "1", KIND("number", AS_MESSAGE)},
                {PUT, "-1.5e-7 ", KIND("number", AS_MESSAGE)},
                {PUT, "\"x\"", KIND("string", AS_MESSAGE)},
                {PUT, "true", KIND("bool", AS_MESSAGE)},
                {PUT, "{\"key\":1}", KIND("number", "[]uint8")},
                {PUT, "{\"key\":true}", KIND("bool", "[]uint8")},
                {PUT, "{\"key\":{}}", KIND("object", "[]uint8")},
                {PUT, "{\"prev_kv\":\"true\"}", KIND("string", "bool")},
                {PUT, "{\"prev_kv\":1}", KIND("number", "bool")},
                {PUT, "{\"lease\":1.0}", KIND("number 1.0", "int64")},
                {PUT, "{\"lease\":1e3}", KIND("number 1e3", "int64")},
                {PUT, "{\"lease\":\"1.5\"}", KIND("number 1.5", "int64")},
                {PUT, "{\"lease\":9223372036854775808}",
                 KIND("number 9223372036854775808", "int64")},
                {PUT, "{\"lease\":-9223372036854775809}",
                 KIND("number -9223372036854775809", "int64")},
                {PUT, "{\"lease\":99999999999999999999}",
                 KIND("number 99999999999999999999", "int64")},
                {PUT, "{\"lease\":[]}", KIND("array", "int64")},
                {PUT, "{\"lease\":{}}", KIND("object", "int64")},
                {PUT, "{\"lease\":true}", KIND("bool", "int64")},
                {PUT, "{\"lease\":\"true\"}", KIND("bool", "int64")},
                {PUT, "{\"lease\":\"\"}", "unexpected end of JSON input"},
                {PUT, "{\"lease\":\" \"}", "unexpected end of JSON input"},
                {PUT, "{\"lease\":\"[1\"}", "unexpected end of JSON input"},
                {PUT, "{\"lease\":\"{\"}", "unexpected end of JSON input"},
                {PUT, "{\"lease\":\"{]\"}",
                 INVALID("]", "looking for beginning of object key string")},
                {PUT, "{\"lease\":\"[]\"}", KIND("array", "int64")},
                {PUT, "{\"lease\":\"-\"}", INVALID(" ", "in numeric literal")},
                {PUT, "{\"lease\":\"5.\"}",
                 INVALID(" ", "after decimal point in numeric literal")},
                {PUT, "{\"lease\":\"[5e\"}", INVALID(" ", "in exponent of numeric literal")},
                {PUT, "{\"lease\":\"tru\"}", INVALID(" ", "in literal true (expecting 'e')")},
                {PUT, "{\"lease\":\"1 2\"}", INVALID("2", "after top-level value")},
                {PUT, "{\"lease\":\"\\u0035\"}", INVALID("\\\\", IN_VALUE)},
                {PUT, "{\"lease\":\"abc\"}", INVALID("a", IN_VALUE)},
                {PUT, "{\"lease\":\"+1\"}", INVALID("+", IN_VALUE)},
                {PUT, "{\"lease\":\"01\"}", INVALID("1", "after top-level value")},
                {PUT, "{\"lease\":\"0x10\"}", INVALID("x", "after top-level value")},
                {&pb__response_header__descriptor, "{\"cluster_id\":-1}",
                 KIND("number -1", "uint64")},
                {&pb__response_header__descriptor, "{\"cluster_id\":18446744073709551616}",
                 KIND("number 18446744073709551616", "uint64")},
                {&pb__hash_kvresponse__descriptor, "{\"hash\":4294967296}",
                 KIND("number 4294967296", "uint32")},
                {RANGE, "{\"sort_order\":\"ascend\"}",
                 "unknown value \"ascend\" for enum RangeRequest.SortOrder"},
                {RANGE, "{\"sort_order\":\"\"}",
                 "unknown value \"\" for enum RangeRequest.SortOrder"},
                {RANGE, "{\"sort_order\":1.0}", KIND("number 1.0", "RangeRequest.SortOrder")},
                {RANGE, "{\"sort_order\":2147483648}",
                 KIND("number 2147483648", "RangeRequest.SortOrder")},
                {RANGE, "{\"sort_order\":true}", KIND("bool", "RangeRequest.SortOrder")},
                {TXN, "{\"success\":{}}", KIND("object", "[]json.RawMessage")},
                {TXN, "{\"success\":\"x\"}", KIND("string", "[]json.RawMessage")},
                {TXN, "{\"success\":[1]}", KIND("number", AS_MESSAGE)},
                {TXN, "{\"success\":[[]]}", KIND("array", AS_MESSAGE)},
                {TXN, "{\"success\":[{\"request_put\":[]}]}", KIND("array", AS_MESSAGE)},
                {TXN, "{\"success\":[{\"request_put\":{\"lease\":[{\"a\":[1]}]}}]}",
                 KIND("array", "int64")},
                {MEMBER_ADD, "{\"peerURLs\":[1]}", KIND("number", "string")},
                {PUT, "{\"key\":\"Z\"}", "illegal base64 data at input byte 0"},
                {PUT, "{\"key\":\"Zm9vZ\"}", "illegal base64 data at input byte 4"},
                {PUT, "{\"key\":\"Zm9v!\"}", "illegal base64 data at input byte 4"},
                {PUT, "{\"key\":\"Zg=\"}", "illegal base64 data at input byte 3"},
                {PUT, "{\"key\":\"Z===\"}", "illegal base64 data at input byte 1"},
                {PUT, "{\"key\":\"Zm9vYQ==YQ==\"}", "illegal base64 data at input byte 8"},
                /* etcd has these end the connection, or itself; and takes the one or the other
                 */
                {TXN, "{\"success\":[null]}", KIND("null", AS_MESSAGE)},
                {PUT, "{\"key\":\"YQ==\",\"key\":\"Yg==\"}", "field \"key\" comes twice"},
                {PUT, "{\"prev_kv\":true,\"prevKv\":false}", "field \"prev_kv\" comes twice"},
                {PUT, "{\"lease\":1,\"lease\":null}", "field \"lease\" comes twice"},
        };

        check_cases(cases, ARRAY_SIZE(cases));
}

/* As protobuf packs it: no defaults, numbers of an array in one run, lengths of one byte. */
TEST(json_becomes_what_protobuf_would_pack)
{
        static const struct {
                const ProtobufCMessageDescriptor *type;
                const char *text;
                size_t n;
                const char *wire;
        } cases[] = {
                {CREATE, "{\"filters\":[],\"key\":\"\",\"watch_id\":0,\"prev_kv\":false}", 0,
                 ""},
                {CREATE, "{\"filters\":[0,1],\"watch_id\":\"-1\"}", 15,
                 "\x2a\x02\x00\x01\x38\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"},
                {TXN, "{\"success\":[{\"request_put\":{\"key\":\"YQ==\"}}]}", 7,
                 "\x12\x05\x12\x03\x0a\x01"
                 "a"},
                {&pb__cache_term__descriptor, "{\"issuer\":1}", 9,
                 "\x21\x01\x00\x00\x00\x00\x00\x00\x00"},
        };

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                cleanup_(outcome_fini) struct outcome o;

                read_cut(cases[i].type, text_view(cases[i].text), 0, SIZE_MAX, &o);
                CHECK_EQ(o.r, 0);
                CHECK_EQ(buf_len(&o.wire), cases[i].n);
                CHECK(cases[i].n == 0 || memcmp(o.wire.data, cases[i].wire, cases[i].n) == 0);
        }
}

TEST(json_objects_come_one_after_the_other)
{
        static const char text[] =
                " {\"key\":\"YQ==\"}{\"key\":\"Yg==\"}\n\n null {} {\"key\":";
        static const char *const keys[] = {"a", "b", "", ""};

        for (size_t step = 1; step <= sizeof(text); step++) {
                cleanup_(json_reader_freep) struct json_reader *j = NULL;
                struct view all = {(const uint8_t *) text, sizeof(text) - 1}, m;
                size_t n = 0;

                CHECK_EQ(json_reader_new(&j, PUT, MAX), 0);
                CHECK_EQ(json_reader_end(j), 0);
                while (all.len > 0) {
                        struct view piece = {all.p, min_of(step, all.len)};
                        size_t left = piece.len;
                        int r = json_reader_put(j, &piece, &m);

                        all = (struct view){piece.p, all.len - (left - piece.len)};
                        CHECK(r >= 0);
                        if (r == 0)
                                continue;
                        CHECK(n < ARRAY_SIZE(keys));
                        CHECK_EQ(m.len, keys[n][0] ? 3 : 0);
                        CHECK(m.len == 0 || m.p[2] == (uint8_t) keys[n][0]);
                        n++;
                }
                CHECK_EQ(n, ARRAY_SIZE(keys));
                CHECK_EQ(json_reader_end(j), -EBADMSG);
                CHECK_STR(json_reader_why(j), "unexpected EOF");
        }
}

/* ---- how much ---- */

static void add(struct buf *b, const char *s)
{
        buf_add(b, s, strlen(s));
}

static int read_all(const ProtobufCMessageDescriptor *type, const struct buf *text, size_t max,
                    char why[static JSON_WHY_SIZE], struct buf *wire)
{
        cleanup_(json_reader_freep) struct json_reader *j = NULL;
        struct view t = {buf_head(text), buf_len(text)}, m;
        int r;

        CHECK_EQ(json_reader_new(&j, type, max), 0);
        r = json_reader_put(j, &t, &m);
        snprintf(why, JSON_WHY_SIZE, "%s", json_reader_why(j));
        if (r == JSON_READER_MESSAGE)
                buf_add(wire, m.p, m.len);
        return r == JSON_READER_MESSAGE ? 0 : r;
}

/* @n transactions, each in an operation of the one before: 2 * n messages. */
static void nested_txns(struct buf *b, size_t n)
{
        for (size_t i = 1; i < n; i++)
                add(b, "{\"success\":[{\"request_txn\":");
        add(b, "{\"success\":[{\"request_put\":{\"key\":\"YQ==\"}}]}");
        for (size_t i = 1; i < n; i++)
                add(b, "}]}");
}

TEST(json_nests_as_deep_as_messages_may)
{
        const struct {
                size_t n;
                bool good;
        } cases[] = {{1, true},   {10, true},   {128, true},
                     {149, true}, {150, false}, {2000, false}};

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                cleanup_(buf_fini) struct buf text = {0}, wire = {0}, back = {0};
                char why[JSON_WHY_SIZE];
                void *m = NULL;
                int r;

                nested_txns(&text, cases[i].n);
                r = read_all(TXN, &text, MAX, why, &wire);
                CHECK_EQ(r, cases[i].good ? 0 : -EBADMSG);
                if (r < 0) {
                        CHECK_STR(why, "messages nest deeper than 300");
                        continue;
                }
                CHECK_EQ(pb_unpack(TXN, (struct view){wire.data, buf_len(&wire)}, &m), 0);
                pb_free(m);
                CHECK_EQ(write_cut(TXN, (struct view){wire.data, buf_len(&wire)}, 0, 7, &back),
                         0);
                CHECK(same_bytes(&text, &back));
        }
}

TEST(json_that_nobody_knows_nests_as_deep_as_gos)
{
        for (size_t n = JSON_DEPTH_MAX - 2; n <= JSON_DEPTH_MAX + 1; n++) {
                cleanup_(buf_fini) struct buf text = {0}, wire = {0};
                char why[JSON_WHY_SIZE];
                int r;

                add(&text, "{\"x\":");
                for (size_t i = 0; i < n; i++)
                        add(&text, i % 3 ? "[" : "{\"y\":");
                add(&text, "1");
                for (size_t i = n; i-- > 0;)
                        add(&text, i % 3 ? "]" : "}");
                add(&text, ",\"key\":\"YQ==\"}");
                r = read_all(PUT, &text, MAX, why, &wire);
                if (n < JSON_DEPTH_MAX) {
                        CHECK_EQ(r, 0);
                        CHECK_EQ(buf_len(&wire), 3);
                } else {
                        CHECK_EQ(r, -EBADMSG);
                        CHECK_STR(why, "invalid character '{' exceeded max depth");
                }
        }
}

TEST(json_is_no_larger_than_it_may_be)
{
        cleanup_(buf_fini) struct buf text = {0}, wire = {0}, dense = {0};
        char why[JSON_WHY_SIZE];

        /* eight bytes of text for one of the message */
        add(&text, "{\"x\":\"");
        for (size_t i = 0; i < 1000; i++)
                add(&text, "0123456789abcdef");
        add(&text, "\"}");
        CHECK_EQ(read_all(PUT, &text, 2001, why, &wire), 0);
        CHECK_EQ(read_all(PUT, &text, 2000, why, &wire), -E2BIG);
        CHECK_STR(why, "a message has more than 2000 bytes");
        /* three characters that are ten bytes */
        add(&dense, "{\"filters\":[-1");
        for (size_t i = 0; i < 10000; i++)
                add(&dense, ",-1");
        add(&dense, "]}");
        CHECK_EQ(read_all(CREATE, &dense, 100000, why, &wire), -E2BIG);
        CHECK_EQ(read_all(CREATE, &dense, 100018, why, &wire), 0);
        CHECK_EQ(buf_len(&wire), 100015);
}

/* Puts @piece until something comes of it. */
static int put_for_ever(struct json_reader *j, const char *first, const char *piece,
                        size_t *ret_n)
{
        struct view t = text_view(first), m;
        int r = json_reader_put(j, &t, &m);

        for (*ret_n = 0; r == 0; ++*ret_n) {
                t = text_view(piece);
                r = json_reader_put(j, &t, &m);
        }
        return r;
}

/* Each message has the room, not all together; a string that may be wanted has less of it than
 * one that nobody knows. */
TEST(json_counts_each_message_alone)
{
        static const struct {
                const char *first;
                size_t n;
        } cases[] = {{"{\"key\":\"", 13}, {"{\"x\":\"", 52}, {"[", 52}, {"{\"x\":[", 52}};

        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                cleanup_(json_reader_freep) struct json_reader *j = NULL;
                struct view m, t;
                size_t n;

                CHECK_EQ(json_reader_new(&j, PUT, 64), 0);
                for (unsigned k = 0; k < 100; k++) {
                        t = text_view("{\"key\":\"YQ==\"}\n");
                        CHECK_EQ(json_reader_put(j, &t, &m), JSON_READER_MESSAGE);
                        CHECK_EQ(json_reader_put(j, &t, &m), 0);
                }
                CHECK_EQ(put_for_ever(j, cases[i].first, "          ", &n), -E2BIG);
                CHECK_EQ(n, cases[i].n);
        }
}

/* ---- random messages ---- */

static void add_text(struct buf *b, bool utf8)
{
        cleanup_(buf_fini) struct buf t = {0};
        size_t n = rnd(0, 3) ? rnd(0, 12) : rnd(0, 400);

        for (size_t i = 0; i < n; i++) {
                static const char *const chars[] = {
                        "\"",           "\\",           "<",
                        "\n",           "\x01",         "\xc3\xa9",
                        "\xe2\x82\xac", "\xe2\x80\xa8", "\xf0\x9f\x98\x80",
                        "\xef\xbf\xbd"};

                if (!utf8)
                        buf_add_u8(&t, (uint8_t) rnd(0, 255));
                else if (rnd(0, 2))
                        buf_add_u8(&t, (uint8_t) rnd(' ', '~'));
                else
                        add(&t, chars[rnd(0, ARRAY_SIZE(chars) - 1)]);
        }
        buf_add_bytes(b, buf_head(&t), buf_len(&t));
}

static uint64_t some_number(const ProtobufCFieldDescriptor *f)
{
        uint64_t v = rnd(0, 3) ? rnd(0, 3) : rnd(0, UINT64_MAX) >> rnd(0, 63);

        switch (f->type) {
        case PROTOBUF_C_TYPE_BOOL:
                return v & 1;
        case PROTOBUF_C_TYPE_ENUM:
        case PROTOBUF_C_TYPE_INT32:
                return (uint64_t) (int64_t) (int32_t) v;
        case PROTOBUF_C_TYPE_UINT32:
                return (uint32_t) v;
        default:
                return v;
        }
}

/* As protobuf packs it: in order, without defaults. */
static void add_message(struct buf *b, const ProtobufCMessageDescriptor *d, unsigned depth)
{
        uint32_t one = 0; /* of which the last oneof was */

        for (unsigned i = 0; i < d->n_fields; i++) {
                const ProtobufCFieldDescriptor *f = &d->fields[i];
                bool repeated = f->label == PROTOBUF_C_LABEL_REPEATED,
                     oneof = f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF;
                size_t n = repeated ? rnd(0, 4) : rnd(0, 1);
                cleanup_(buf_fini) struct buf packed = {0};

                if (oneof && n > 0 && one == f->quantifier_offset + 1)
                        continue;
                if (oneof && n > 0)
                        one = f->quantifier_offset + 1;
                for (size_t k = 0; k < n; k++) {
                        cleanup_(buf_fini) struct buf v = {0};
                        uint64_t x;

                        switch (f->type) {
                        case PROTOBUF_C_TYPE_MESSAGE: {
                                cleanup_(buf_fini) struct buf inner = {0};

                                if (depth == 0)
                                        break;
                                add_message(&inner, f->descriptor, depth - 1);
                                buf_add_bytes(&v, buf_head(&inner), buf_len(&inner));
                                break;
                        }
                        case PROTOBUF_C_TYPE_STRING:
                        case PROTOBUF_C_TYPE_BYTES:
                                add_text(&v, f->type == PROTOBUF_C_TYPE_STRING);
                                if (!repeated && !oneof && buf_len(&v) == 1)
                                        continue;
                                break;
                        case PROTOBUF_C_TYPE_FIXED64:
                                x = rnd(1, UINT64_MAX);
                                buf_add_varint(b, f->id << 3 | 1);
                                buf_add_u64(b, x);
                                continue;
                        default:
                                x = some_number(f);
                                if (repeated) {
                                        buf_add_varint(&packed, x);
                                } else if (x != 0 || oneof) {
                                        buf_add_varint(b, f->id << 3);
                                        buf_add_varint(b, x);
                                }
                                continue;
                        }
                        if (buf_len(&v) == 0)
                                continue;
                        buf_add_varint(b, f->id << 3 | 2);
                        buf_add(b, buf_head(&v), buf_len(&v));
                }
                if (buf_len(&packed) > 0) {
                        buf_add_varint(b, f->id << 3 | 2);
                        buf_add_bytes(b, buf_head(&packed), buf_len(&packed));
                }
        }
}

/* @wire as protobuf-c packs it. */
static void repack(const ProtobufCMessageDescriptor *d, const struct buf *wire, struct buf *out)
{
        ProtobufCMessage *m = protobuf_c_message_unpack(d, NULL, buf_len(wire), buf_head(wire));

        CHECK(m);
        pb_append(out, m);
        pb_free(m);
}

/* From which all others are reached. */
static const ProtobufCMessageDescriptor *const types[] = {
        TXN,
        &pb__txn_response__descriptor,
        &pb__watch_request__descriptor,
        &pb__watch_response__descriptor,
        &pb__lease_grant_request__descriptor,
        &pb__lease_grant_response__descriptor,
        &pb__lease_leases_response__descriptor,
        &pb__lease_time_to_live_response__descriptor,
        &pb__member_add_request__descriptor,
        &pb__member_add_response__descriptor,
        &pb__status_response__descriptor,
        &pb__alarm_response__descriptor,
        &pb__auth_role_grant_permission_request__descriptor,
        &pb__auth_role_get_response__descriptor,
        &pb__auth_change__descriptor,
        &pb__snapshot_response__descriptor,
        &pb__hash_kvresponse__descriptor,
        &pb__leader_response__descriptor,
        &pb__campaign_response__descriptor,
        &pb__cache_term__descriptor,
};

TEST(json_is_converted_there_and_back)
{
        size_t total = 0;

        for (unsigned i = 0; i < 4000; i++) {
                const ProtobufCMessageDescriptor *d = types[rnd(0, ARRAY_SIZE(types) - 1)];
                cleanup_(buf_fini) struct buf wire = {0}, json = {0}, again_ = {0}, x = {0},
                                              y = {0};
                cleanup_(outcome_fini) struct outcome o;
                struct view w;

                add_message(&wire, d, 4);
                CHECK_EQ(buf_error(&wire), 0);
                w = (struct view){buf_head(&wire), buf_len(&wire)};
                CHECK_EQ(
                        write_cut(d, w, rnd(0, w.len), rnd(0, 1) ? SIZE_MAX : rnd(1, 9), &json),
                        0);
                read_cut(d, (struct view){buf_head(&json), buf_len(&json)},
                         rnd(0, buf_len(&json)), rnd(0, 1) ? SIZE_MAX : rnd(1, 9), &o);
                if (o.r < 0)
                        test_fail(__FILE__, __LINE__, "%s: %.*s", o.why, (int) buf_len(&json),
                                  json.data);
                repack(d, &wire, &x);
                repack(d, &o.wire, &y);
                CHECK(same_bytes(&x, &y));
                CHECK_EQ(write_cut(d, (struct view){buf_head(&o.wire), buf_len(&o.wire)}, 0, 1,
                                   &again_),
                         0);
                CHECK(same_bytes(&json, &again_));
                total += buf_len(&json);
        }
        CHECK(total > 100000);
}

/* Whatever bytes come: an error, or JSON that reads. */
TEST(json_of_any_bytes_is_json_or_an_error)
{
        unsigned n_good = 0;

        for (unsigned i = 0; i < 20000; i++) {
                const ProtobufCMessageDescriptor *d = types[rnd(0, ARRAY_SIZE(types) - 1)];
                cleanup_(buf_fini) struct buf json = {0}, cut = {0};
                cleanup_(outcome_fini) struct outcome o = {0};
                uint8_t bytes[48];
                size_t n = rnd(0, sizeof(bytes));
                int r;

                for (size_t k = 0; k < n; k++)
                        bytes[k] = (uint8_t) (rnd(0, 3) ? rnd(0, 40) : rnd(0, 255));
                r = write_cut(d, (struct view){bytes, n}, 0, SIZE_MAX, &json);
                CHECK_EQ(write_cut(d, (struct view){bytes, n}, rnd(0, n), rnd(1, 5), &cut), r);
                CHECK(r == 0 || r == -EBADMSG);
                if (r < 0)
                        continue;
                CHECK(same_bytes(&json, &cut));
                read_cut(d, (struct view){buf_head(&json), buf_len(&json)}, 0, SIZE_MAX, &o);
                CHECK_EQ(o.r, 0);
                CHECK_EQ(o.n_left, 0);
                n_good++;
        }
        CHECK(n_good > 250);
}

/* ---- writing ---- */

static const char *written(const ProtobufCMessageDescriptor *d, const void *p, size_t n)
{
        static char out[512];
        struct view w = {p, n};
        int whole;

        cleanup_(buf_fini) struct buf json = {0};
        whole = write_cut(d, w, 0, SIZE_MAX, &json);
        for (size_t cut = 0; cut < n; cut++) {
                cleanup_(buf_fini) struct buf other = {0};

                CHECK_EQ(write_cut(d, w, cut, cut == 0 ? 1 : SIZE_MAX, &other), whole);
                CHECK(whole < 0 || same_bytes(&json, &other));
        }
        CHECK(whole == 0 || whole == -EBADMSG);
        if (whole < 0)
                return "bad";
        snprintf(out, sizeof(out), "%.*s", (int) buf_len(&json), json.data);
        return out;
}

#define WRITTEN(d, bytes, json) CHECK_STR(written(d, bytes, sizeof(bytes) - 1), json)

TEST(messages_are_written_as_json)
{
        WRITTEN(PUT, "", "{}");
        WRITTEN(PUT,
                "\x0a\x01"
                "a\x12\x02"
                "bc",
                "{\"key\":\"YQ==\",\"value\":\"YmM=\"}");
        /* a default that is there all the same */
        WRITTEN(PUT, "\x0a\x00\x18\x00\x20\x00", "{}");
        /* unknown fields of every wire type, and a known one of another */
        WRITTEN(PUT,
                "\xa0\x06\x01\xa1\x06"
                "12345678"
                "\xa2\x06\x03"
                "abc\xa2\x06\x00\xa5\x06"
                "1234",
                "{}");
        WRITTEN(PUT,
                "\x08\x01\x1a\x01"
                "x\x25"
                "1234\x20\x01",
                "{\"prev_kv\":true}");
        WRITTEN(&pb__txn_response__descriptor, "\x0a\x00\x10\x01\x1a\x00\x1a\x02\x0a\x00",
                "{\"header\":{},\"succeeded\":true,\"responses\":[{},{\"response_range\":{}}]"
                "}");
        /* packed, not packed, and an unknown field between */
        WRITTEN(CREATE, "\x2a\x03\x00\x01\x07", "{\"filters\":[\"NOPUT\",\"NODELETE\",7]}");
        WRITTEN(CREATE, "\x28\x00\x28\x01", "{\"filters\":[\"NOPUT\",\"NODELETE\"]}");
        WRITTEN(CREATE, "\x2a\x00\x28\x00\x2a\x01\x01\x30\x01",
                "{\"filters\":[\"NOPUT\",\"NODELETE\"],\"prev_kv\":true}");
        WRITTEN(CREATE, "\x28\x01\xa0\x06\x01\x28\x01",
                "{\"filters\":[\"NODELETE\",\"NODELETE\"]}");
        /* fields in another order, each in one run */
        WRITTEN(CREATE, "\x38\x01\x2a\x01\x01\x0a\x01k",
                "{\"watch_id\":\"1\",\"filters\":[\"NODELETE\"],\"key\":\"aw==\"}");
        /* numbers with leading zeroes, as json_reader writes lengths */
        WRITTEN(TXN, "\x12\x83\x80\x80\x00\x12\x81\x00", "bad");
        WRITTEN(TXN, "\x12\x86\x80\x80\x00\x12\x81\x80\x80\x00\x21", "bad");
        WRITTEN(TXN, "\x12\x85\x80\x80\x00\x12\x83\x00\x0a\x01", "bad");
        WRITTEN(TXN, "\x12\x86\x80\x80\x00\x12\x83\x00\x0a\x01k",
                "{\"success\":[{\"request_put\":{\"key\":\"aw==\"}}]}");
        WRITTEN(ROLE_ADD, "\x0a\x0b\xe2\x82\xac\xc3\xa9\xf0\x9f\x98\x80xy",
                "{\"name\":\"\xe2\x82\xac\xc3\xa9\xf0\x9f\x98\x80xy\"}");
        /* a number of 32 bits that has more: 2^32, 2^32 + 1 */
        WRITTEN(&pb__hash_kvresponse__descriptor, "\x10\x80\x80\x80\x80\x10", "{}");
        WRITTEN(&pb__hash_kvresponse__descriptor, "\x10\x81\x80\x80\x80\x10", "{\"hash\":1}");
        WRITTEN(ROLE_ADD,
                "\x0a\x09"
                "a\xff\xe2\x82"
                "b\xf0\x9f\x98\xc3",
                "{\"name\":\"a\\ufffd\\ufffd\\ufffdb\\ufffd\\ufffd\\ufffd\\ufffd\"}");
}

TEST(messages_that_are_none_are_not_written)
{
        /* twice, or in two runs */
        WRITTEN(PUT, "\x18\x01\x18\x02", "bad");
        WRITTEN(CREATE, "\x28\x01\x38\x01\x28\x01", "bad");
        WRITTEN(TXN, "\x12\x00\x1a\x00\x12\x00", "bad");
        WRITTEN(&pb__txn_response__descriptor, "\x0a\x00\x0a\x00", "bad");
        /* cut, or longer than what it is in */
        WRITTEN(PUT, "\x18", "bad");
        WRITTEN(PUT, "\x18\x80", "bad");
        WRITTEN(PUT, "\x0a\x02k", "bad");
        WRITTEN(PUT,
                "\xa2\x06\x03"
                "ab",
                "bad");
        WRITTEN(TXN, "\x12\x02\x12\x01\x0a", "bad");
        WRITTEN(TXN, "\x12\x01\x12", "bad");
        WRITTEN(TXN, "\x12\x02\x12\x80\x01", "bad");
        WRITTEN(CREATE, "\x2a\x01\x80\x01", "bad");
        WRITTEN(&pb__cache_term__descriptor,
                "\x21"
                "1234567",
                "bad");
        /* no tags */
        WRITTEN(PUT, "\x00\x01", "bad");
        WRITTEN(PUT, "\x0b", "bad");
        WRITTEN(PUT, "\x0f", "bad");
        WRITTEN(PUT, "\x80\x80\x80\x80\x10\x01", "bad");
        WRITTEN(PUT, "\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02", "bad");
}

TEST(a_message_is_not_written_after_its_end)
{
        cleanup_(buf_fini) struct buf out = {0};
        struct json_writer w = {0};

        json_writer_begin(&w, PUT);
        CHECK_EQ(json_writer_end(&w, &out), 0);
        CHECK_EQ(json_writer_put(&w, (struct view){0}, &out), -EBADMSG);
        CHECK_EQ(json_writer_end(&w, &out), -EBADMSG);
        json_writer_fini(&w);
        CHECK_EQ(buf_len(&out), 2);
}

/* ---- without memory ---- */

TEST(json_without_memory_is_an_error)
{
        static const char text[] =
                "{\"success\":[{\"request_txn\":{\"success\":[{\"request_put\":{\"key\":"
                "\"\\u005am9v\","
                "\"lease\":\"12x\"}}]}}],\"compare\":[{\"key\":\"YQ==\",\"version\":\"+1\"}]}";
        static const char good[] = "{\"success\":[{\"request_txn\":{\"success\":[{\"request_"
                                   "put\":{\"key\":\"\\u005am9v\","
                                   "\"lease\":\" 12\"}}]}}]}";
        size_t failed = 0;

        for (unsigned which = 0; which < 2; which++)
                for (size_t n = 0;; n++) {
                        cleanup_(outcome_fini) struct outcome o;
                        bool came;

                        nomem_after(n);
                        read_cut(TXN, text_view(which ? text : good), 0, 1, &o);
                        came = nomem_end();
                        if (!came) {
                                CHECK_EQ(o.r, which ? -EBADMSG : 0);
                                break;
                        }
                        CHECK_EQ(o.r, -ENOMEM);
                        failed++;
                }
        CHECK(failed >= 8);
        failed = 0;
        for (size_t n = 0;; n++) {
                cleanup_(buf_fini) struct buf out = {0};
                static const char wire[] = "\x12\x1c\x12\x1a\x0a\x18"
                                           "012345678901234567890123";
                int r;

                nomem_after(n);
                r = write_cut(TXN, (struct view){(const uint8_t *) wire, sizeof(wire) - 1}, 0,
                              1, &out);
                if (!nomem_end()) {
                        CHECK_EQ(r, 0);
                        break;
                }
                CHECK_EQ(r, -ENOMEM);
                failed++;
        }
        CHECK(failed > 2);
}

/* ---- base64 ---- */

TEST(base64_of_every_length_is_read_back)
{
        for (size_t n = 0; n < 100; n++) {
                uint8_t bytes[100], text[BASE64_LEN(100)], back[102];
                size_t len, where;

                for (size_t i = 0; i < n; i++)
                        bytes[i] = (uint8_t) rnd(0, 255);
                base64_write(text, bytes, n);
                CHECK_EQ(base64_read((struct view){text, BASE64_LEN(n)}, back, &len, &where),
                         0);
                CHECK_EQ(len, n);
                CHECK(n == 0 || memcmp(back, bytes, n) == 0);
                CHECK_EQ(base64_read((struct view){text, (n * 4 + 2) / 3}, back, &len, &where),
                         0);
                CHECK_EQ(len, n);
                CHECK(n == 0 || memcmp(back, bytes, n) == 0);
        }
}
