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
        TAG,
        VARINT,
        FIXED_64,
        FIXED_32,
        LENGTH,
        TEXT, /* the contents of a string or of bytes */
        SKIP,
};

struct json_frame {
        const ProtobufCMessageDescriptor *type;
        uint64_t left;                         /* bytes of the message that are still to come */
        uint64_t seen;                         /* fields, by their number in `type` */
        const ProtobufCFieldDescriptor *array; /* the field whose array is open */
};

void json_writer_begin(struct json_writer *w, const ProtobufCMessageDescriptor *type)
{
        *w = (struct json_writer){
                .type = type, .state = TAG, .frames = w->frames, .cap_frames = w->cap_frames};
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

/* Writes @v in decimal, after a minus sign if @negative. */
static void add_decimal(struct buf *out, uint64_t v, bool negative, bool quoted)
{
        char text[DIGITS_OF_U64 + sizeof("\"-\"")], *at = text + sizeof(text);

        if (quoted)
                *--at = '"';
        at = decimal_put(at, v);
        if (negative)
                *--at = '-';
        if (quoted)
                *--at = '"';
        buf_add(out, at, (size_t) (text + sizeof(text) - at));
}

static void add_signed(struct buf *out, int64_t v, bool quoted)
{
        add_decimal(out, v < 0 ? -(uint64_t) v : (uint64_t) v, v < 0, quoted);
}

static uint64_t unzigzag(uint64_t v)
{
        return v >> 1 ^ -(v & 1);
}

static bool has_32_bits(const ProtobufCFieldDescriptor *f)
{
        switch (f->type) {
        case PROTOBUF_C_TYPE_ENUM:
        case PROTOBUF_C_TYPE_INT32:
        case PROTOBUF_C_TYPE_SINT32:
        case PROTOBUF_C_TYPE_UINT32:
                return true;
        default:
                return false;
        }
}

static int number(struct json_writer *w, uint64_t v, struct buf *out)
{
        const ProtobufCFieldDescriptor *f = w->field;
        const ProtobufCEnumValue *e;
        int r;

        if (!f)
                return 0;
        if (has_32_bits(f))
                v = (uint32_t) v; /* protobuf drops the upper bits */
        if (v == 0 && is_left_out(f))
                return 0;
        r = name(w, out);
        if (r < 0)
                return r;
        switch (f->type) {
        case PROTOBUF_C_TYPE_BOOL:
                buf_add(out, v ? "true" : "false", v ? 4 : 5);
                break;
        case PROTOBUF_C_TYPE_ENUM:
                e = protobuf_c_enum_descriptor_get_value(f->descriptor, (int) v);
                if (e)
                        buf_printf(out, "\"%s\"", e->name);
                else
                        add_signed(out, (int32_t) v, false);
                break;
        case PROTOBUF_C_TYPE_INT32:
        case PROTOBUF_C_TYPE_SFIXED32:
                add_signed(out, (int32_t) v, false);
                break;
        case PROTOBUF_C_TYPE_SINT32:
                add_signed(out, (int32_t) unzigzag(v), false);
                break;
        case PROTOBUF_C_TYPE_UINT32:
        case PROTOBUF_C_TYPE_FIXED32:
                add_decimal(out, (uint32_t) v, false, false);
                break;
        case PROTOBUF_C_TYPE_SINT64:
                add_signed(out, (int64_t) unzigzag(v), true);
                break;
        case PROTOBUF_C_TYPE_INT64:
        case PROTOBUF_C_TYPE_SFIXED64:
                add_signed(out, (int64_t) v, true);
                break;
        default:
                add_decimal(out, v, false, true);
        }
        return 0;
}

/* The wire type of a field that is not packed; WIRE_BYTES for everything that has a length. */
static enum wire_type wire_of(const ProtobufCFieldDescriptor *f)
{
        switch (f->type) {
        case PROTOBUF_C_TYPE_STRING:
        case PROTOBUF_C_TYPE_BYTES:
        case PROTOBUF_C_TYPE_MESSAGE:
                return WIRE_BYTES;
        case PROTOBUF_C_TYPE_FIXED64:
        case PROTOBUF_C_TYPE_SFIXED64:
                return WIRE_64;
        case PROTOBUF_C_TYPE_FIXED32:
        case PROTOBUF_C_TYPE_SFIXED32:
                return WIRE_32;
        default:
                return WIRE_VARINT;
        }
}

/* ---- the wire ---- */

static enum state state_of(enum wire_type wire)
{
        return wire == WIRE_VARINT ? VARINT
               : wire == WIRE_64   ? FIXED_64
               : wire == WIRE_32   ? FIXED_32
                                   : LENGTH;
}

static int enter(struct json_writer *w, const ProtobufCMessageDescriptor *type, uint64_t n,
                 struct buf *out)
{
        assert(type->n_fields <= 64); /* bits of `seen` */
        if (w->n_frames == PB_DEPTH_MAX)
                return -EBADMSG;
        if (array_reserve(&w->frames, &w->cap_frames, w->n_frames + 1, sizeof(*w->frames)) < 0)
                return -ENOMEM;
        w->frames[w->n_frames++] = (struct json_frame){.type = type, .left = n};
        buf_add_u8(out, '{');
        return 0;
}

static void leave(struct json_writer *w, struct buf *out)
{
        end_array(top(w), out);
        buf_add_u8(out, '}');
        w->n_frames--;
}

static int take_tag(struct json_writer *w, uint64_t tag)
{
        enum wire_type wire = (enum wire_type)(tag & 7);

        if (tag > UINT32_MAX || tag >> 3 == 0)
                return -EBADMSG;
        if (wire != WIRE_VARINT && wire != WIRE_64 && wire != WIRE_32 && wire != WIRE_BYTES)
                return -EBADMSG;
        w->field = protobuf_c_message_descriptor_get_field(top(w)->type, (unsigned) (tag >> 3));
        /* as in protobuf, a field of another wire type counts as unknown */
        if (w->field && wire != wire_of(w->field) &&
            !(wire == WIRE_BYTES && w->field->label == PROTOBUF_C_LABEL_REPEATED))
                w->field = NULL;
        w->state = state_of(wire);
        return 0;
}

static int take_length(struct json_writer *w, uint64_t n, struct buf *out)
{
        const ProtobufCFieldDescriptor *f = w->field;
        int r;

        if (n > top(w)->left)
                return -EBADMSG;
        w->left = n;
        if (!f) {
                w->state = n > 0 ? SKIP : TAG;
                return 0;
        }
        if (f->type == PROTOBUF_C_TYPE_MESSAGE) {
                r = name(w, out);
                top(w)->left -= n;
                w->state = TAG;
                return r < 0 ? r : enter(w, f->descriptor, n, out);
        }
        if (wire_of(f) != WIRE_BYTES) { /* packed */
                w->packed = n > 0;
                w->state = n > 0 ? state_of(wire_of(f)) : TAG;
                return 0;
        }
        w->state = TAG;
        if (n == 0 && is_left_out(f))
                return 0;
        r = name(w, out);
        if (r < 0)
                return r;
        buf_add(out, "\"\"", n > 0 ? 1 : 2);
        w->state = n > 0 ? TEXT : TAG;
        return 0;
}

/* ---- bytes ---- */

static void take_bytes(struct json_writer *w, struct view *wire, size_t n)
{
        wire->p += n;
        wire->len -= n;
        top(w)->left -= n;
        if (w->packed || w->state == TEXT || w->state == SKIP)
                w->left -= n;
}

/* How many of the bytes at hand may belong to a number. */
static size_t at_hand(struct json_writer *w, struct view wire)
{
        uint64_t most = w->packed ? min_of(w->left, top(w)->left) : top(w)->left;

        return (size_t) min_of((uint64_t) wire.len, most);
}

/* Handles a number, or an element of a packed field. */
static int number_came(struct json_writer *w, struct buf *out)
{
        uint64_t v = w->number;

        w->number = w->n = 0;
        switch ((enum state) w->state) {
        case TAG:
                return take_tag(w, v);
        case LENGTH:
                return take_length(w, v, out);
        default:
                if (!w->packed || w->left == 0) {
                        w->packed = false;
                        w->state = TAG;
                }
                return number(w, v, out);
        }
}

static int varint(struct json_writer *w, struct view *wire, struct buf *out)
{
        size_t n = at_hand(w, *wire), i = 0;
        const uint8_t *p = wire->p;
        uint64_t number = w->number;
        unsigned k = w->n;
        uint8_t c = 0x80;

        if (n == 0)
                return -EBADMSG; /* the message ended before the number */
        for (; i < n && c >= 0x80; i++, k++) {
                c = p[i];
                if (k == VARINT_MAX - 1 && c > 1)
                        return -EBADMSG;
                number |= (uint64_t) (c & 0x7f) << 7 * k;
        }
        w->number = number;
        w->n = k;
        take_bytes(w, wire, i);
        return c < 0x80 ? number_came(w, out) : 0;
}

static int fixed(struct json_writer *w, struct view *wire, unsigned size, struct buf *out)
{
        if (at_hand(w, *wire) == 0)
                return -EBADMSG;
        w->number |= (uint64_t) wire->p[0] << 8 * w->n++;
        take_bytes(w, wire, 1);
        return w->n == size ? number_came(w, out) : 0;
}

static void add_base64(struct json_writer *w, struct view t, struct buf *out)
{
        bool last = w->left == 0;
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
        bool last = w->left == 0;
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
        struct view t = {wire->p, (size_t) min_of(w->left, (uint64_t) wire->len)};

        take_bytes(w, wire, t.len);
        if (w->field->type == PROTOBUF_C_TYPE_BYTES)
                add_base64(w, t, out);
        else
                add_string(w, t, out);
        if (w->left > 0)
                return 0;
        buf_add_u8(out, '"');
        w->state = TAG;
        return 0;
}

static void skip(struct json_writer *w, struct view *wire)
{
        take_bytes(w, wire, (size_t) min_of(w->left, (uint64_t) wire->len));
        if (w->left == 0)
                w->state = TAG;
}

static int step(struct json_writer *w, struct view *wire, struct buf *out)
{
        switch ((enum state) w->state) {
        case FIXED_64:
                return fixed(w, wire, 8, out);
        case FIXED_32:
                return fixed(w, wire, 4, out);
        case TEXT:
                return text(w, wire, out);
        case SKIP:
                skip(w, wire);
                return 0;
        default:
                return varint(w, wire, out);
        }
}

int json_writer_put(struct json_writer *w, struct view wire, struct buf *out)
{
        int r = w->error;

        if (r == 0 && w->n_frames == 0)
                r = enter(w, w->type, UINT64_MAX, out);
        while (r == 0) {
                while (w->state == TAG && w->n == 0 && top(w)->left == 0)
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

        if (r == 0 && (w->n_frames > 1 || w->state != TAG || w->n > 0))
                r = -EBADMSG;
        if (r == 0) {
                leave(w, out);
                r = buf_error(out);
        }
        w->error = r < 0 ? r : -EBADMSG; /* it is over */
        return r;
}
