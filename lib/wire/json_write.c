#include <inttypes.h>
#include <stdio.h>

#include "base/utf8.h"
#include "wire/base64.h"
#include "wire/json.h"

enum wire_type {
        WIRE_VARINT = 0,
        WIRE_64 = 1,
        WIRE_BYTES = 2,
        WIRE_32 = 5,
};

/* What the next bytes are. */
enum state {
        FIELD,  /* a tag, and behind it a number or a length */
        PACKED, /* a number without a tag */
        TEXT,   /* the contents of a string or of bytes */
        SKIP,
};

struct json_frame {
        const ProtobufCMessageDescriptor *type;
        uint64_t end;                          /* where the message ends, counted like w->at */
        uint64_t seen;                         /* fields, by their number in `type` */
        const ProtobufCFieldDescriptor *array; /* the field whose array is open */
};

void json_writer_begin(struct json_writer *w, const ProtobufCMessageDescriptor *type)
{
        *w = (struct json_writer){
                .type = type, .state = FIELD, .frames = w->frames, .cap_frames = w->cap_frames};
}

void json_writer_fini(struct json_writer *w)
{
        free(w->frames);
        *w = (struct json_writer){0};
}

/* ---- text ---- */

/* The characters that have escapes of their own in a string, as Go writes them. */
static void escape_one(struct buf *out, uint8_t c)
{
        static const char digits[] = "0123456789abcdef";
        char hex[] = {'\\', 'u', '0', '0', digits[c >> 4], digits[c & 15]};

        if (c == '"' || c == '\\')
                buf_add(out, (char[]){'\\', (char) c}, 2);
        else if (c == '\n' || c == '\r' || c == '\t')
                buf_add(out, c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", 2);
        else
                buf_add(out, hex, sizeof(hex));
}

/* Whether a character stands for itself: in Go, HTML's special characters do not. */
static bool is_plain(uint8_t c)
{
        return c >= ' ' && c < 0x80 && c != '"' && c != '\\' && c != '<' && c != '>' &&
               c != '&';
}

/* Whether these are the first bytes of a character whose other bytes may still come. */
static bool is_cut(const uint8_t *p, size_t n)
{
        size_t len = p[0] < 0xc2 ? 1 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 1;

        if (len <= n)
                return false;
        for (size_t i = 1; i < n; i++)
                if ((p[i] & 0xc0) != 0x80)
                        return false;
        return true;
}

/* Returns how many bytes it took. Leaves an incomplete character, unless this is @all. */
static size_t escape(struct buf *out, const uint8_t *p, size_t n, bool all)
{
        size_t i = 0, run = 0, len;

        while (i < n) {
                if (is_plain(p[i])) {
                        i++;
                        continue;
                }
                len = utf8_char(p + i, n - i);
                if (len > 1 && !(len == 3 && p[i] == 0xe2 && p[i + 1] == 0x80 &&
                                 (p[i + 2] & 0xfe) == 0xa8)) {
                        i += len;
                        continue;
                }
                buf_add(out, p + run, i - run);
                if (len == 1)
                        escape_one(out, p[i]);
                else if (len == 3) /* line and paragraph separators, which break JavaScript */
                        buf_add(out, p[i + 2] == 0xa8 ? "\\u2028" : "\\u2029", 6);
                else if (!all && is_cut(p + i, n - i))
                        return i;
                else
                        buf_add(out, "\\ufffd", 6);
                i += max_of(len, (size_t) 1);
                run = i;
        }
        buf_add(out, p + run, i - run);
        return i;
}

void json_append_string(struct buf *out, struct view text)
{
        buf_add_u8(out, '"');
        escape(out, text.p, text.len, true);
        buf_add_u8(out, '"');
}

/* ---- names and numbers ---- */

static struct json_frame *top(struct json_writer *w)
{
        return &w->frames[w->n_frames - 1];
}

static void end_array(struct json_frame *m, struct buf *out)
{
        if (m->array)
                buf_add_u8(out, ']');
        m->array = NULL;
}

/* Writes what precedes a value of w->field. */
static int name(struct json_writer *w, struct buf *out)
{
        const ProtobufCFieldDescriptor *f = w->field;
        struct json_frame *m = top(w);
        uint64_t bit = UINT64_C(1) << (f - m->type->fields);
        size_t n = strlen(f->name);
        uint8_t *to;

        if (m->array == f) {
                buf_add_u8(out, ',');
                return 0;
        }
        if (m->seen & bit)
                return -EBADMSG;
        end_array(m, out);
        to = buf_reserve(out, n + 5);
        if (!to)
                return -ENOMEM;
        if (m->seen)
                *to++ = ',';
        *to++ = '"';
        memcpy(to, f->name, n);
        to += n;
        *to++ = '"';
        *to++ = ':';
        if (f->label == PROTOBUF_C_LABEL_REPEATED) {
                *to++ = '[';
                m->array = f;
        }
        buf_commit(out, (size_t) (to - out->data) - out->end);
        m->seen |= bit;
        return 0;
}

static bool is_left_out(const ProtobufCFieldDescriptor *f)
{
        return f->label != PROTOBUF_C_LABEL_REPEATED &&
               !(f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF);
}

/* How the values of a type look, on the wire (if they are not packed) and as JSON. */
static const struct kind {
        enum wire_type wire; /* WIRE_BYTES for everything that has a length */
        bool narrow;         /* a number of 32 bits: protobuf drops the upper ones */
        bool is_signed, zigzag;
        bool quoted;
} kinds[] = {
        [PROTOBUF_C_TYPE_INT32] = {.narrow = true, .is_signed = true},
        [PROTOBUF_C_TYPE_SINT32] = {.narrow = true, .is_signed = true, .zigzag = true},
        [PROTOBUF_C_TYPE_SFIXED32] = {.wire = WIRE_32, .narrow = true, .is_signed = true},
        [PROTOBUF_C_TYPE_INT64] = {.is_signed = true, .quoted = true},
        [PROTOBUF_C_TYPE_SINT64] = {.is_signed = true, .zigzag = true, .quoted = true},
        [PROTOBUF_C_TYPE_SFIXED64] = {.wire = WIRE_64, .is_signed = true, .quoted = true},
        [PROTOBUF_C_TYPE_UINT32] = {.narrow = true},
        [PROTOBUF_C_TYPE_FIXED32] = {.wire = WIRE_32, .narrow = true},
        [PROTOBUF_C_TYPE_UINT64] = {.quoted = true},
        [PROTOBUF_C_TYPE_FIXED64] = {.wire = WIRE_64, .quoted = true},
        [PROTOBUF_C_TYPE_BOOL] = {.wire = WIRE_VARINT},
        [PROTOBUF_C_TYPE_ENUM] = {.narrow = true, .is_signed = true},
        [PROTOBUF_C_TYPE_STRING] = {.wire = WIRE_BYTES},
        [PROTOBUF_C_TYPE_BYTES] = {.wire = WIRE_BYTES},
        [PROTOBUF_C_TYPE_MESSAGE] = {.wire = WIRE_BYTES},
};

static const struct kind *kind_of(const ProtobufCFieldDescriptor *f)
{
        assert((size_t) f->type < ARRAY_SIZE(kinds));
        return &kinds[f->type];
}

/* Appends @v, as it came on the wire, as a number. */
static void add_number(struct buf *out, const struct kind *k, uint64_t v)
{
        char text[DIGITS_OF_U64 + sizeof("\"-\"")], *at = text + sizeof(text);
        bool negative;

        if (k->zigzag)
                v = v >> 1 ^ -(v & 1);
        if (k->narrow && k->is_signed)
                v = (uint64_t) (int32_t) v;
        negative = k->is_signed && (int64_t) v < 0;
        if (k->quoted)
                *--at = '"';
        at = decimal_put(at, negative ? -v : v);
        if (negative)
                *--at = '-';
        if (k->quoted)
                *--at = '"';
        buf_add(out, at, (size_t) (text + sizeof(text) - at));
}

/* An enum that has no name for the number shows the number. */
static void add_enum(struct buf *out, const ProtobufCFieldDescriptor *f, uint64_t v)
{
        const ProtobufCEnumValue *e =
                protobuf_c_enum_descriptor_get_value(f->descriptor, (int) v);

        if (e)
                buf_printf(out, "\"%s\"", e->name);
        else
                add_number(out, kind_of(f), v);
}

static int number(struct json_writer *w, uint64_t v, struct buf *out)
{
        const ProtobufCFieldDescriptor *f = w->field;
        const struct kind *k;
        int r;

        if (!f)
                return 0;
        k = kind_of(f);
        if (k->narrow)
                v = (uint32_t) v;
        if (v == 0 && is_left_out(f))
                return 0;
        r = name(w, out);
        if (r < 0)
                return r;
        if (f->type == PROTOBUF_C_TYPE_BOOL)
                buf_add(out, v ? "true" : "false", v ? 4 : 5);
        else if (f->type == PROTOBUF_C_TYPE_ENUM)
                add_enum(out, f, v);
        else
                add_number(out, k, v);
        return 0;
}

/* ---- the wire ---- */

static int enter(struct json_writer *w, const ProtobufCMessageDescriptor *type, uint64_t end,
                 struct buf *out)
{
        assert(type->n_fields <= 64); /* bits of `seen` */
        if (w->n_frames == PB_DEPTH_MAX)
                return -EBADMSG;
        if (array_reserve(&w->frames, &w->cap_frames, w->n_frames + 1, sizeof(*w->frames)) < 0)
                return -ENOMEM;
        w->frames[w->n_frames++] = (struct json_frame){.type = type, .end = end};
        buf_add_u8(out, '{');
        return 0;
}

static void leave(struct json_writer *w, struct buf *out)
{
        end_array(top(w), out);
        buf_add_u8(out, '}');
        w->n_frames--;
}

/* The fields of most messages are numbered without a gap. */
static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessageDescriptor *type,
                                                uint32_t id)
{
        if (id <= type->n_fields && type->fields[id - 1].id == id)
                return &type->fields[id - 1];
        return protobuf_c_message_descriptor_get_field(type, id);
}

static int take_length(struct json_writer *w, uint64_t n, struct buf *out)
{
        const ProtobufCFieldDescriptor *f = w->field;
        int r;

        if (n > top(w)->end - w->at)
                return -EBADMSG;
        w->end = w->at + n;
        if (!f) {
                w->state = n > 0 ? SKIP : FIELD;
                return 0;
        }
        if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
                r = name(w, out);
                return r < 0 ? r : enter(w, f->descriptor, w->end, out);
        }
        if (kind_of(f)->wire != WIRE_BYTES) {
                w->state = n > 0 ? PACKED : FIELD;
                return 0;
        }
        if (n == 0 && is_left_out(f))
                return 0;
        r = name(w, out);
        if (r < 0)
                return r;
        buf_add(out, "\"\"", n > 0 ? 1 : 2);
        w->state = n > 0 ? TEXT : FIELD;
        return 0;
}

/* @v: what came behind @tag. */
static int take_field(struct json_writer *w, uint64_t tag, uint64_t v, struct buf *out)
{
        enum wire_type wire = (enum wire_type)(tag & 7);

        if (tag > UINT32_MAX || tag >> 3 == 0)
                return -EBADMSG;
        w->field = field_of(top(w)->type, (uint32_t) (tag >> 3));
        /* as in protobuf, a field of another wire type counts as unknown */
        if (w->field && wire != kind_of(w->field)->wire &&
            !(wire == WIRE_BYTES && w->field->label == PROTOBUF_C_LABEL_REPEATED))
                w->field = NULL;
        return wire == WIRE_BYTES ? take_length(w, v, out) : number(w, v, out);
}

static int take_element(struct json_writer *w, uint64_t v, struct buf *out)
{
        if (w->at == w->end)
                w->state = FIELD;
        return number(w, v, out);
}

/* ---- bytes ---- */

static void take_bytes(struct json_writer *w, struct view *wire, size_t n)
{
        wire->p += n;
        wire->len -= n;
        w->at += n;
}

/* Takes a number, or a length, off @v. Returns 1, 0 if it is cut, or -EBADMSG. */
static int read_number(struct view *v, enum wire_type wire, uint64_t *ret)
{
        size_t len = v->len;
        uint32_t half;

        switch (wire) {
        case WIRE_VARINT:
        case WIRE_BYTES:
                if (view_varint(v, ret) == 0)
                        return 1;
                return len < VARINT_MAX ? 0 : -EBADMSG;
        case WIRE_64:
                return view_u64(v, ret) == 0;
        case WIRE_32:
                if (view_u32(v, &half) < 0)
                        return 0;
                *ret = half;
                return 1;
        }
        return -EBADMSG;
}

/* Takes a tag and the number or length after it, likewise. */
static int read_field(struct view *v, uint64_t *ret_tag, uint64_t *ret)
{
        int r = read_number(v, WIRE_VARINT, ret_tag);

        return r <= 0 ? r : read_number(v, (enum wire_type)(*ret_tag & 7), ret);
}

/* Of a field that is cut, all bytes are kept until the rest has come. */
static int field(struct json_writer *w, struct view *wire, struct buf *out)
{
        bool packed = w->state == PACKED;
        uint64_t left = (packed ? w->end : top(w)->end) - w->at, tag = 0, v;
        size_t had = w->n_carry, n = (size_t) min_of(left, (uint64_t) wire->len);
        struct view in = {wire->p, n};
        int r;

        if (had > 0) {
                n = min_of(n, sizeof(w->carry) - had);
                memcpy(w->carry + had, wire->p, n);
                in = (struct view){w->carry, had + n};
        }
        r = packed ? read_number(&in, kind_of(w->field)->wire, &v) : read_field(&in, &tag, &v);
        if (r < 0 || (r == 0 && n == left))
                return -EBADMSG;
        if (r == 0) {
                memcpy(w->carry + had, wire->p, n);
                w->n_carry = (unsigned) (had + n);
                take_bytes(w, wire, n);
                return 0;
        }
        w->n_carry = 0;
        take_bytes(w, wire, n - in.len);
        return packed ? take_element(w, v, out) : take_field(w, tag, v, out);
}

static void add_base64(struct json_writer *w, struct view t, struct buf *out)
{
        bool last = w->at == w->end;
        size_t n, len;
        uint8_t *to;

        /* three bytes at a time: first those left over from before */
        while (w->n_carry > 0 && w->n_carry < 3 && t.len > 0) {
                w->carry[w->n_carry++] = *t.p++;
                t.len--;
        }
        n = last ? t.len : t.len - t.len % 3;
        len = (w->n_carry == 3 || (last && w->n_carry > 0) ? 4 : 0) + BASE64_LEN(n);
        to = buf_reserve(out, len + 1);
        if (!to)
                return;
        if (w->n_carry == 3 || (last && w->n_carry > 0)) {
                base64_write(to, w->carry, w->n_carry);
                to += 4;
                w->n_carry = 0;
        }
        base64_write(to, t.p, n);
        buf_commit(out, len);
        for (; n < t.len; n++)
                w->carry[w->n_carry++] = t.p[n];
}

static void add_string(struct json_writer *w, struct view t, struct buf *out)
{
        bool last = w->at == w->end;
        size_t n;

        while (w->n_carry > 0 && t.len > 0) { /* until a character, or none */
                w->carry[w->n_carry++] = *t.p++;
                t.len--;
                n = escape(out, w->carry, w->n_carry, last && t.len == 0);
                w->n_carry -= (unsigned) n;
                memmove(w->carry, w->carry + n, w->n_carry);
        }
        if (t.len == 0)
                return;
        n = escape(out, t.p, t.len, last);
        for (; n < t.len; n++)
                w->carry[w->n_carry++] = t.p[n];
}

static int text(struct json_writer *w, struct view *wire, struct buf *out)
{
        struct view t = {wire->p, (size_t) min_of(w->end - w->at, (uint64_t) wire->len)};

        take_bytes(w, wire, t.len);
        if (w->field->type == PROTOBUF_C_TYPE_BYTES)
                add_base64(w, t, out);
        else
                add_string(w, t, out);
        if (w->at < w->end)
                return 0;
        buf_add_u8(out, '"');
        w->state = FIELD;
        return 0;
}

static void skip(struct json_writer *w, struct view *wire)
{
        take_bytes(w, wire, (size_t) min_of(w->end - w->at, (uint64_t) wire->len));
        if (w->at == w->end)
                w->state = FIELD;
}

static int step(struct json_writer *w, struct view *wire, struct buf *out)
{
        switch ((enum state) w->state) {
        case FIELD:
        case PACKED:
                return field(w, wire, out);
        case TEXT:
                return text(w, wire, out);
        case SKIP:
                skip(w, wire);
        }
        return 0;
}

int json_writer_put(struct json_writer *w, struct view wire, struct buf *out)
{
        int r = w->error;

        if (r == 0 && w->n_frames == 0)
                r = enter(w, w->type, UINT64_MAX, out);
        while (r == 0) {
                while (w->state == FIELD && top(w)->end == w->at)
                        leave(w, out);
                if (wire.len == 0)
                        break;
                r = step(w, &wire, out);
        }
        if (r == 0)
                r = buf_error(out);
        w->error = r;
        return r;
}

int json_writer_end(struct json_writer *w, struct buf *out)
{
        int r = json_writer_put(w, (struct view){0}, out);

        if (r == 0 && (w->n_frames > 1 || w->state != FIELD || w->n_carry > 0))
                r = -EBADMSG;
        if (r == 0) {
                leave(w, out);
                r = buf_error(out);
        }
        w->error = r < 0 ? r : -EBADMSG; /* it is over */
        return r;
}
