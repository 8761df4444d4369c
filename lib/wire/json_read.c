#include <stdarg.h>
#include <stdio.h>

#include "base/utf8.h"
#include "wire/base64.h"
#include "wire/json_scan.h"

enum wire_type {
        WIRE_VARINT = 0,
        WIRE_64 = 1,
        WIRE_BYTES = 2,
        WIRE_32 = 5,
};

/*
 * A length is known only when the data that it counts has ended, so LENGTH bytes are reserved
 * for it. If one byte is enough, as for most, the data moves down; otherwise the number is
 * written with leading zeroes, which protobuf allows. So nothing is moved more than a few
 * times, however deeply it is nested.
 */
#define LENGTH 4
#define LENGTH_MAX ((size_t) 1 << 7 * LENGTH)
#define TOKEN_SHOWN 64 /* of a token that an error message quotes */

/* How much text a message of a given size may have: base64 takes 4/3 of the bytes, and an
 * operation of ten bytes is fifty characters. Also bounds a single string, which may have to be
 * kept until it ends. */
#define TEXT_RATIO 8
#define STRING_RATIO 2

#define KEEP ((size_t) 4096) /* the buffer that is kept from one message to the next */
#define REST ((size_t) 512)  /* kept from one text to the next, over a long wait */

/* A message that is being read. */
struct frame {
        const ProtobufCMessageDescriptor *type;
        const ProtobufCFieldDescriptor *field; /* the field whose key came last */
        uint64_t seen;                         /* fields, by their number in `type` */
        size_t depth;                          /* of its members */
        size_t length;        /* where its length is in `message`; unused for the outermost */
        size_t array, packed; /* of an array of numbers: where it begins, and its length */
        bool in_array;
};

struct json_reader {
        const ProtobufCMessageDescriptor *type;
        size_t max;   /* bytes of a message, at most */
        size_t taken; /* bytes of its text so far */
        struct json_scan scan;
        struct frame *frames; /* owned */
        size_t n_frames, cap_frames;
        bool skipping; /* skipping the value of an unknown field */
        bool bad;      /* the message is invalid, for the reason in `scan.why`; the rest is only
                          checked to be JSON */
        bool given;    /* `message` has been handed out */
        int error;
        struct buf message;
};

int json_reader_new(struct json_reader **ret, const ProtobufCMessageDescriptor *type,
                    size_t max)
{
        struct json_reader *r = calloc(1, sizeof(*r));

        if (!r)
                return -ENOMEM;
        json_reader_begin(r, type, max);
        *ret = r;
        return 0;
}

void json_reader_begin(struct json_reader *r, const ProtobufCMessageDescriptor *type,
                       size_t max)
{
        r->type = type;
        r->max = min_of(max, LENGTH_MAX / 2);
        json_reader_rest(r);
}

void json_reader_rest(struct json_reader *r)
{
        buf_reuse(&r->message, REST);
        buf_reuse(&r->scan.token, REST);
        json_scan_begin(&r->scan);
        r->taken = r->n_frames = 0;
        r->skipping = r->bad = r->given = false;
        r->error = 0;
}

struct json_reader *json_reader_free(struct json_reader *r)
{
        if (!r)
                return NULL;
        json_scan_fini(&r->scan);
        buf_fini(&r->message);
        free(r->frames);
        free(r);
        return NULL;
}

const char *json_reader_why(const struct json_reader *r)
{
        return r->scan.why;
}

/* ---- errors ---- */

/* Marks the message as invalid. The text is still read to its end: if it is not JSON, that is
 * reported instead, as in Go, which checks that first. */
static void printf_(2, 3) bad(struct json_reader *r, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        vsnprintf(r->scan.why, sizeof(r->scan.why), fmt, ap);
        va_end(ap);
        r->bad = true;
}

/* The Go type of the field. */
static const char *type_name(const ProtobufCFieldDescriptor *f, char out[static TOKEN_SHOWN])
{
        const ProtobufCEnumDescriptor *e = f->descriptor;

        switch (f->type) {
        case PROTOBUF_C_TYPE_INT32:
        case PROTOBUF_C_TYPE_SINT32:
        case PROTOBUF_C_TYPE_SFIXED32:
                return "int32";
        case PROTOBUF_C_TYPE_UINT32:
        case PROTOBUF_C_TYPE_FIXED32:
                return "uint32";
        case PROTOBUF_C_TYPE_INT64:
        case PROTOBUF_C_TYPE_SINT64:
        case PROTOBUF_C_TYPE_SFIXED64:
                return "int64";
        case PROTOBUF_C_TYPE_UINT64:
        case PROTOBUF_C_TYPE_FIXED64:
                return "uint64";
        case PROTOBUF_C_TYPE_BOOL:
                return "bool";
        case PROTOBUF_C_TYPE_STRING:
                return "string";
        case PROTOBUF_C_TYPE_BYTES:
                return "[]uint8";
        case PROTOBUF_C_TYPE_ENUM:
                /* without the package, since etcd's has another name */
                snprintf(out, TOKEN_SHOWN, "%s", e->name + strlen(e->package_name) + 1);
                return out;
        default:
                return "map[string]json.RawMessage";
        }
}

static const char *kind(const struct json_event *e)
{
        switch (e->type) {
        case JSON_OBJECT:
                return "object";
        case JSON_ARRAY:
                return "array";
        case JSON_STRING:
                return "string";
        case JSON_NUMBER:
                return "number";
        case JSON_NULL:
                return "null";
        default:
                return "bool";
        }
}

static void bad_kind(struct json_reader *r, const struct json_event *e, const char *type)
{
        bad(r, "json: cannot unmarshal %s into Go value of type %s", kind(e), type);
}

static void bad_number(struct json_reader *r, const ProtobufCFieldDescriptor *f, struct view n)
{
        char name[TOKEN_SHOWN];

        bad(r, "json: cannot unmarshal number %.*s into Go value of type %s",
            (int) min_of(n.len, (size_t) TOKEN_SHOWN), (const char *) n.p, type_name(f, name));
}

/* ---- the wire ---- */

static bool is_packed(const ProtobufCFieldDescriptor *f)
{
        return f->label == PROTOBUF_C_LABEL_REPEATED && f->type != PROTOBUF_C_TYPE_STRING &&
               f->type != PROTOBUF_C_TYPE_BYTES && f->type != PROTOBUF_C_TYPE_MESSAGE;
}

/* Proto3 omits a field that has its default value, if that carries no information. */
static bool is_left_out(const ProtobufCFieldDescriptor *f)
{
        return f->label != PROTOBUF_C_LABEL_REPEATED &&
               !(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF);
}

static void add_tag(struct json_reader *r, const ProtobufCFieldDescriptor *f,
                    enum wire_type wire)
{
        buf_add_varint(&r->message, (uint64_t) f->id << 3 | wire);
}

static size_t begin_length(struct json_reader *r)
{
        static const uint8_t none[LENGTH];

        buf_add(&r->message, none, sizeof(none));
        return buf_len(&r->message) - sizeof(none);
}

static void end_length(struct json_reader *r, size_t at)
{
        uint8_t *to;
        size_t n;

        if (r->message.failed)
                return;
        to = buf_head(&r->message) + at;
        n = buf_len(&r->message) - at - LENGTH;
        if (n < 0x80) {
                *to = (uint8_t) n;
                memmove(to + 1, to + LENGTH, n);
                r->message.end -= LENGTH - 1;
                return;
        }
        for (unsigned i = 0; i < LENGTH; i++)
                to[i] = (uint8_t) ((n >> 7 * i & 0x7f) | (i < LENGTH - 1 ? 0x80 : 0));
}

static void add_number(struct json_reader *r, const ProtobufCFieldDescriptor *f, uint64_t v)
{
        enum wire_type wire = WIRE_VARINT;

        switch (f->type) {
        case PROTOBUF_C_TYPE_SINT32:
        case PROTOBUF_C_TYPE_SINT64:
                v = v << 1 ^ (uint64_t) - (int64_t) (v >> 63);
                break;
        case PROTOBUF_C_TYPE_FIXED32:
        case PROTOBUF_C_TYPE_SFIXED32:
                wire = WIRE_32;
                break;
        case PROTOBUF_C_TYPE_FIXED64:
        case PROTOBUF_C_TYPE_SFIXED64:
                wire = WIRE_64;
                break;
        default:
                break;
        }
        if (v == 0 && is_left_out(f))
                return;
        if (!is_packed(f))
                add_tag(r, f, wire);
        if (wire == WIRE_VARINT)
                buf_add_varint(&r->message, v);
        else if (wire == WIRE_64)
                buf_add_u64(&r->message, v);
        else
                buf_add_u32(&r->message, (uint32_t) v);
}

/* ---- values ---- */

/* The range of an integer's type; `below` is how far it extends below zero. */
static void range(const ProtobufCFieldDescriptor *f, uint64_t *ret_max, uint64_t *ret_below)
{
        *ret_below = 0;
        switch (f->type) {
        case PROTOBUF_C_TYPE_UINT64:
        case PROTOBUF_C_TYPE_FIXED64:
                *ret_max = UINT64_MAX;
                return;
        case PROTOBUF_C_TYPE_UINT32:
        case PROTOBUF_C_TYPE_FIXED32:
                *ret_max = UINT32_MAX;
                return;
        case PROTOBUF_C_TYPE_INT64:
        case PROTOBUF_C_TYPE_SINT64:
        case PROTOBUF_C_TYPE_SFIXED64:
                *ret_max = INT64_MAX;
                *ret_below = (uint64_t) 1 << 63;
                return;
        default:
                *ret_max = INT32_MAX;
                *ret_below = (uint64_t) 1 << 31;
        }
}

/* Parses an integer of the type of @f, in two's complement. */
static bool read_integer(const ProtobufCFieldDescriptor *f, struct view t, uint64_t *ret)
{
        bool negative = t.len > 0 && t.p[0] == '-';
        uint64_t max, below, v = 0;
        size_t i = negative;

        range(f, &max, &below);
        if (i == t.len || (t.p[i] == '0' && t.len > i + 1))
                return false;
        for (; i < t.len; i++) {
                uint8_t d = (uint8_t) (t.p[i] - '0');

                if (d > 9 || __builtin_mul_overflow(v, 10, &v) ||
                    __builtin_add_overflow(v, d, &v))
                        return false;
        }
        if (v > (negative ? below : max))
                return false;
        *ret = negative ? -v : v;
        return true;
}

/* Scans @text, which must be a single value, and returns its first event. */
static int read_whole(struct json_scan *s, struct view text, struct json_event *ret)
{
        struct json_event more;
        bool any = false;
        int n;

        s->single = true;
        while ((n = json_scan_next(s, &text, any ? &more : ret)) == JSON_SCAN_EVENT)
                any = true;
        return n < 0 ? n : json_scan_end(s, any ? &more : ret);
}

/* Parses an integer in quotes. Go reads it as if the quotes were absent, so escapes are not
 * allowed. */
static void take_quoted(struct json_reader *r, const ProtobufCFieldDescriptor *f, struct view t)
{
        struct json_event e = {0};
        char name[TOKEN_SHOWN];
        struct json_scan s;
        uint64_t v;
        int n;

        if (r->scan.escaped) {
                bad(r, "invalid character '\\\\' looking for beginning of value");
                return;
        }
        if (read_integer(f, t, &v)) {
                add_number(r, f, v);
                return;
        }
        s.token = (struct buf){0};
        json_scan_begin(&s);
        n = read_whole(&s, t, &e);
        if (n == -ENOMEM)
                r->error = n;
        else if (n < 0)
                bad(r, "%s", s.why);
        else if (e.type == JSON_NUMBER && read_integer(f, e.text, &v))
                add_number(r, f, v);
        else if (e.type == JSON_NUMBER)
                bad_number(r, f, e.text);
        else if (e.type != JSON_NULL)
                bad_kind(r, &e, type_name(f, name));
        json_scan_fini(&s);
}

static void take_enum(struct json_reader *r, const ProtobufCFieldDescriptor *f,
                      const struct json_event *e)
{
        const ProtobufCEnumDescriptor *d = f->descriptor;
        char name[TOKEN_SHOWN + 1];
        uint64_t v;

        if (e->type == JSON_NUMBER) {
                if (read_integer(f, e->text, &v))
                        add_number(r, f, v);
                else
                        bad_number(r, f, e->text);
                return;
        }
        for (unsigned i = 0; i < d->n_value_names; i++)
                if (strlen(d->values_by_name[i].name) == e->text.len &&
                    memcmp(d->values_by_name[i].name, e->text.p, e->text.len) == 0) {
                        int value = d->values[d->values_by_name[i].index].value;

                        add_number(r, f, (uint64_t) (int64_t) value);
                        return;
                }
        snprintf(name, sizeof(name), "%.*s", (int) min_of(e->text.len, (size_t) TOKEN_SHOWN),
                 (const char *) e->text.p);
        for (char *c = name; *c; c++)
                if (*c < ' ' || *c == 0x7f || *c == '"')
                        *c = '?';
        bad(r, "unknown value \"%s\" for enum %s", name, type_name(f, (char[TOKEN_SHOWN]){0}));
}

/* Stores a string as protobuf requires it: invalid UTF-8 is replaced, as in Go. */
static void take_string(struct json_reader *r, const ProtobufCFieldDescriptor *f, struct view t)
{
        size_t n = 0, run = 0, i;

        if (t.len == 0 && is_left_out(f))
                return;
        for (i = 0; i < t.len; i += max_of(utf8_char(t.p + i, t.len - i), (size_t) 1))
                n += utf8_char(t.p + i, t.len - i) > 0 ? utf8_char(t.p + i, t.len - i) : 3;
        add_tag(r, f, WIRE_BYTES);
        buf_add_varint(&r->message, n);
        for (i = 0; i < t.len;) {
                size_t one = utf8_char(t.p + i, t.len - i);

                if (one > 0) {
                        i += one;
                        continue;
                }
                buf_add(&r->message, t.p + run, i - run);
                buf_add(&r->message, "\xef\xbf\xbd", 3);
                run = ++i;
        }
        buf_add(&r->message, t.p + run, t.len - run);
}

static void take_bytes(struct json_reader *r, const ProtobufCFieldDescriptor *f, struct view t)
{
        size_t at = buf_len(&r->message), room = t.len / 4 * 3 + 3, n, where;
        uint8_t *to = NULL;

        if (t.len == 0 && is_left_out(f))
                return;
        add_tag(r, f, WIRE_BYTES);
        to = buf_reserve(&r->message, VARINT_MAX + room);
        if (!to)
                return;
        if (base64_read(t, to + VARINT_MAX, &n, &where) < 0) {
                bad(r, "illegal base64 data at input byte %zu", where);
                return;
        }
        if (n == 0 && is_left_out(f)) { /* nothing but line breaks */
                r->message.end -= buf_len(&r->message) - at;
                return;
        }
        room = (size_t) (varint_put(to, n) - to);
        memmove(to + room, to + VARINT_MAX, n);
        buf_commit(&r->message, room + n);
}

static void enter(struct json_reader *r, const ProtobufCFieldDescriptor *f,
                  const ProtobufCMessageDescriptor *type)
{
        struct frame frame = {.type = type, .depth = r->scan.depth};

        assert(type->n_fields <= 64); /* bits of `seen` */
        if (r->n_frames == PB_DEPTH_MAX) {
                bad(r, "messages nest deeper than %d", PB_DEPTH_MAX);
                return;
        }
        if (array_reserve(&r->frames, &r->cap_frames, r->n_frames + 1, sizeof(frame)) < 0) {
                r->error = -ENOMEM;
                return;
        }
        if (f) {
                add_tag(r, f, WIRE_BYTES);
                frame.length = begin_length(r);
        }
        r->frames[r->n_frames++] = frame;
}

/* Stores a value that is no array, or an element of one. */
static void take_one(struct json_reader *r, const ProtobufCFieldDescriptor *f,
                     const struct json_event *e)
{
        char name[TOKEN_SHOWN];

        switch (f->type) {
        case PROTOBUF_C_TYPE_MESSAGE:
                if (e->type == JSON_OBJECT) {
                        enter(r, f, f->descriptor);
                        return;
                }
                break;
        case PROTOBUF_C_TYPE_STRING:
        case PROTOBUF_C_TYPE_BYTES:
                if (e->type == JSON_STRING || e->type == JSON_NULL) {
                        if (f->type == PROTOBUF_C_TYPE_STRING)
                                take_string(r, f, e->text);
                        else
                                take_bytes(r, f, e->text);
                        return;
                }
                break;
        case PROTOBUF_C_TYPE_BOOL:
                if (e->type == JSON_TRUE || e->type == JSON_FALSE || e->type == JSON_NULL) {
                        add_number(r, f, e->type == JSON_TRUE);
                        return;
                }
                break;
        default:
                if (e->type == JSON_NULL) {
                        add_number(r, f, 0);
                        return;
                }
                if (e->type != JSON_STRING && e->type != JSON_NUMBER)
                        break;
                if (f->type == PROTOBUF_C_TYPE_ENUM) {
                        take_enum(r, f, e);
                } else if (e->type == JSON_STRING) {
                        take_quoted(r, f, e->text);
                } else {
                        uint64_t v;

                        if (read_integer(f, e->text, &v))
                                add_number(r, f, v);
                        else
                                bad_number(r, f, e->text);
                }
                return;
        }
        bad_kind(r, e, type_name(f, name));
}

/* ---- members ---- */

/* Whether @name, of @n characters, is the name @json or its lowerCamelCase form. */
static bool is_name(const char *name, const uint8_t *json, size_t n)
{
        const char *at = name;
        size_t i = 0;

        if (strlen(name) == n && memcmp(name, json, n) == 0)
                return true;
        for (; *at && i < n; at++, i++) {
                char c = *at;

                if (c == '_' && at[1] >= 'a' && at[1] <= 'z')
                        c = (char) (*++at - 'a' + 'A');
                else if (c == '_' && at[1])
                        c = *++at;
                if (c != (char) json[i])
                        return false;
        }
        return !*at && i == n;
}

static void take_key(struct json_reader *r, struct frame *m, struct view key)
{
        const ProtobufCFieldDescriptor *f = m->type->fields, *past = f + m->type->n_fields;
        uint64_t bit;

        while (f < past && !is_name(f->name, key.p, key.len))
                f++;
        if (f == past) {
                r->skipping = true;
                return;
        }
        bit = UINT64_C(1) << (f - m->type->fields);
        if (m->seen & bit)
                bad(r, "field \"%s\" comes twice", f->name);
        m->seen |= bit;
        m->field = f;
}

static void take_end(struct json_reader *r, struct frame *m)
{
        if (r->scan.depth < m->depth) { /* the end of the message */
                if (r->n_frames > 1)
                        end_length(r, m->length);
                r->n_frames--;
                return;
        }
        m->in_array = false;
        if (is_packed(m->field)) {
                if (buf_len(&r->message) == m->packed + LENGTH) /* the array is empty */
                        r->message.end = r->message.off + m->array;
                else
                        end_length(r, m->packed);
        }
}

static void take_value(struct json_reader *r, struct frame *m, const struct json_event *e)
{
        const ProtobufCFieldDescriptor *f = m->field;

        if (m->in_array || f->label != PROTOBUF_C_LABEL_REPEATED) {
                if (e->type != JSON_NULL || m->in_array)
                        take_one(r, f, e);
                return;
        }
        if (e->type == JSON_NULL)
                return;
        if (e->type != JSON_ARRAY) {
                bad_kind(r, e, "[]json.RawMessage");
                return;
        }
        m->in_array = true;
        if (is_packed(f)) {
                m->array = buf_len(&r->message);
                add_tag(r, f, WIRE_BYTES);
                m->packed = begin_length(r);
        }
}

static void take(struct json_reader *r, const struct json_event *e)
{
        struct frame *m = r->n_frames > 0 ? &r->frames[r->n_frames - 1] : NULL;

        if (r->bad)
                return;
        if (r->skipping) {
                if (e->type != JSON_KEY && r->scan.depth == m->depth)
                        r->skipping = false; /* the skipped value has ended */
        } else if (!m) {
                if (e->type == JSON_OBJECT)
                        enter(r, NULL, r->type);
                else if (e->type != JSON_NULL)
                        bad_kind(r, e, "map[string]json.RawMessage");
        } else if (e->type == JSON_KEY) {
                take_key(r, m, e->text);
        } else if (e->type == JSON_END) {
                take_end(r, m);
        } else {
                take_value(r, m, e);
        }
        r->scan.keep = !r->skipping && !r->bad;
}

static int fail(struct json_reader *r, int error)
{
        r->error = error;
        return error;
}

static int too_large(struct json_reader *r)
{
        snprintf(r->scan.why, sizeof(r->scan.why), "a message has more than %zu bytes", r->max);
        return fail(r, -E2BIG);
}

/* Begins the next message. */
static void forget(struct json_reader *r)
{
        buf_reuse(&r->message, KEEP);
        buf_reuse(&r->scan.token, KEEP);
        r->given = false;
        r->taken = 0;
}

int json_reader_put(struct json_reader *r, struct view *text, struct view *ret)
{
        struct json_event e;
        size_t before;
        int n;

        if (r->error < 0)
                return r->error;
        if (r->given)
                forget(r);
        do {
                before = text->len;
                n = json_scan_next(&r->scan, text, &e);
                r->taken += before - text->len;
                if (n < 0)
                        return fail(r, n);
                if (n == JSON_SCAN_EVENT)
                        take(r, &e);
                if (r->error < 0)
                        return r->error;
                if (buf_error(&r->message) < 0)
                        return fail(r, -ENOMEM);
                if (r->taken / TEXT_RATIO > r->max ||
                    buf_len(&r->scan.token) / STRING_RATIO > r->max ||
                    buf_len(&r->message) > r->max)
                        return too_large(r);
        } while (n == JSON_SCAN_EVENT && r->scan.depth > 0);
        if (n == 0)
                return 0;
        if (r->bad)
                return fail(r, -EBADMSG);
        r->given = true;
        *ret = (struct view){buf_head(&r->message), buf_len(&r->message)};
        return JSON_READER_MESSAGE;
}

size_t json_reader_held(const struct json_reader *r)
{
        if (r->error < 0 || r->given || json_scan_is_between(&r->scan))
                return 0;
        return sizeof(*r) + r->scan.token.cap + r->message.cap +
               r->cap_frames * sizeof(*r->frames);
}

int json_reader_end(struct json_reader *r)
{
        struct json_event e;
        int n;

        if (r->error < 0)
                return r->error;
        n = json_scan_end(&r->scan, &e);
        if (n == JSON_SCAN_EVENT) {
                take(r, &e); /* a bare number is no message */
                n = -EBADMSG;
        } else if (n == -EBADMSG) {
                bad(r, "unexpected EOF"); /* whatever the end of the text interrupted */
        }
        return n < 0 ? fail(r, n) : 0;
}
