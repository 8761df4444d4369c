#include "wire/json_scan.h"

#include <stdio.h>

enum state {
        VALUE,        /* a value begins; at depth 0 or after a comma */
        VALUE_OR_END, /* after '[' */
        KEY_OR_END,   /* after '{' */
        KEY,          /* after a comma */
        COLON,
        AFTER, /* after a value inside an array or object */
        OVER,  /* after the only value */
        IN_STRING,
        ESCAPE,
        DIGITS, /* of \u */
        MINUS,
        ZERO,
        INTEGER,
        POINT,
        FRACTION,
        EXPONENT,
        EXPONENT_SIGN,
        EXPONENT_DIGITS,
        LITERAL,
};

#define TOKEN_KEEP 4096 /* the most memory that is kept from one token to the next */

void json_scan_begin(struct json_scan *s)
{
        struct buf token = s->token;

        /* A level's bit is written when the level begins. */
        memset(s, 0, offsetof(struct json_scan, objects));
        s->state = VALUE;
        s->keep = true;
        s->token = token;
        buf_reuse(&s->token, TOKEN_KEEP);
}

void json_scan_fini(struct json_scan *s)
{
        buf_fini(&s->token);
}

/* ---- errors ---- */

/* Quotes @c as Go quotes a byte: as the character with that number. */
static void quote(uint8_t c, char out[static 16])
{
        static const char shorts[] = "abtnvfr"; /* from 7 on */

        if (c == '\'' || c == '\\')
                snprintf(out, 16, "'\\%c'", c);
        else if (c >= 7 && c <= 13)
                snprintf(out, 16, "'\\%c'", shorts[c - 7]);
        else if (c < 0x20 || c == 0x7f)
                snprintf(out, 16, "'\\x%02x'", c);
        else if (c < 0x7f)
                snprintf(out, 16, "'%c'", c);
        else if (c <= 0xa0 || c == 0xad) /* not visible */
                snprintf(out, 16, "'\\u%04x'", c);
        else
                snprintf(out, 16, "'%c%c'", 0xc0 | c >> 6, 0x80 | (c & 0x3f));
}

static int bad(struct json_scan *s, uint8_t c, const char *where)
{
        char quoted[16];

        quote(c, quoted);
        snprintf(s->why, sizeof(s->why), "invalid character %s %s", quoted, where);
        return -EBADMSG;
}

/* ---- tokens ---- */

static inline void skip(struct view *text, size_t n)
{
        text->p += n;
        text->len -= n;
}

static void keep(struct json_scan *s, const void *p, size_t n)
{
        if (s->keep)
                buf_add(&s->token, p, n);
}

static void keep_char(struct json_scan *s, uint32_t c)
{
        uint8_t b[4];
        size_t n = 0;

        if (c < 0x80) {
                b[n++] = (uint8_t) c;
        } else {
                if (c < 0x800) {
                        b[n++] = (uint8_t) (0xc0 | c >> 6);
                } else {
                        if (c < 0x10000) {
                                b[n++] = (uint8_t) (0xe0 | c >> 12);
                        } else {
                                b[n++] = (uint8_t) (0xf0 | c >> 18);
                                b[n++] = (uint8_t) (0x80 | (c >> 12 & 0x3f));
                        }
                        b[n++] = (uint8_t) (0x80 | (c >> 6 & 0x3f));
                }
                b[n++] = (uint8_t) (0x80 | (c & 0x3f));
        }
        keep(s, b, n);
}

#define REPLACEMENT 0xfffd

/* The first half of a surrogate pair came without the second. */
static void high_alone(struct json_scan *s)
{
        if (s->high)
                keep_char(s, REPLACEMENT);
        s->high = 0;
}

/* The state after a value has ended. */
static enum state after(const struct json_scan *s)
{
        return s->depth > 0 ? AFTER : s->single ? OVER : VALUE;
}

static void token_begin(struct json_scan *s, enum state state)
{
        buf_reuse(&s->token, TOKEN_KEEP);
        s->escaped = false;
        s->state = state;
}

/* Returns an event with the token, or with @text if the token would be the same. */
static int token_end(struct json_scan *s, enum json_event_type type, const struct view *text,
                     struct json_event *ret)
{
        if (buf_error(&s->token) < 0)
                return -ENOMEM;
        s->state = type == JSON_KEY ? COLON : after(s);
        ret->type = type;
        ret->text = text ? *text : (struct view){buf_head(&s->token), buf_len(&s->token)};
        return JSON_SCAN_EVENT;
}

/* ---- strings ---- */

/* Handles the bytes in a string that do not stand for themselves. */
static inline bool is_special(uint8_t c)
{
        return c < 0x20 || c == '"' || c == '\\';
}

static int in_string(struct json_scan *s, struct view *text, struct json_event *ret)
{
        struct view run = {text->p, 0};
        uint8_t c;

        while (run.len < text->len && !is_special(run.p[run.len]))
                run.len++;
        skip(text, run.len);
        if (run.len > 0)
                high_alone(s);
        c = text->len > 0 ? text->p[0] : 0;
        if (text->len > 0 && c == '"') {
                enum json_event_type type = s->is_key ? JSON_KEY : JSON_STRING;

                skip(text, 1);
                high_alone(s);
                if (!s->keep || (buf_len(&s->token) == 0 && !s->token.failed))
                        return token_end(s, type, &run, ret); /* it is complete: no copy */
                keep(s, run.p, run.len);
                return token_end(s, type, NULL, ret);
        }
        keep(s, run.p, run.len);
        if (text->len == 0)
                return buf_error(&s->token);
        if (c != '\\')
                return bad(s, c, "in string literal");
        skip(text, 1);
        s->escaped = true;
        s->state = ESCAPE;
        return 0;
}

static int escape(struct json_scan *s, struct view *text)
{
        static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
        uint8_t c = text->p[0];
        const char *at = c ? strchr(names, c) : NULL;

        if (c == 'u') {
                s->unit = s->n_digits = 0;
                s->state = DIGITS;
        } else if (at) {
                high_alone(s);
                keep(s, &bytes[at - names], 1);
                s->state = IN_STRING;
        } else {
                return bad(s, c, "in string escape code");
        }
        skip(text, 1);
        return 0;
}

static int digit(struct json_scan *s, struct view *text)
{
        uint8_t c = text->p[0], low = c | 0x20;

        if (c >= '0' && c <= '9')
                s->unit = s->unit << 4 | (uint32_t) (c - '0');
        else if (low >= 'a' && low <= 'f')
                s->unit = s->unit << 4 | (uint32_t) (low - 'a' + 10);
        else
                return bad(s, c, "in \\u hexadecimal character escape");
        skip(text, 1);
        if (++s->n_digits < 4)
                return 0;
        s->state = IN_STRING;
        if (s->high && s->unit >= 0xdc00 && s->unit < 0xe000) {
                keep_char(s, 0x10000 + ((s->high & 0x3ff) << 10 | (s->unit & 0x3ff)));
                s->high = 0;
                return 0;
        }
        high_alone(s);
        if (s->unit >= 0xd800 && s->unit < 0xdc00)
                s->high = s->unit;
        else
                keep_char(s, s->unit >= 0xdc00 && s->unit < 0xe000 ? REPLACEMENT : s->unit);
        return 0;
}

/* ---- numbers and literals ---- */

static bool is_digit(uint8_t c)
{
        return c >= '0' && c <= '9';
}

static int number(struct json_scan *s, struct view *text, struct json_event *ret)
{
        uint8_t c = text->p[0];
        enum state next;

        switch ((enum state) s->state) {
        case MINUS:
                if (!is_digit(c))
                        return bad(s, c, "in numeric literal");
                next = c == '0' ? ZERO : INTEGER;
                break;
        case POINT:
                if (!is_digit(c))
                        return bad(s, c, "after decimal point in numeric literal");
                next = FRACTION;
                break;
        case EXPONENT:
                if (c == '+' || c == '-') {
                        next = EXPONENT_SIGN;
                        break;
                }
                /* fall through */
        case EXPONENT_SIGN:
                if (!is_digit(c))
                        return bad(s, c, "in exponent of numeric literal");
                next = EXPONENT_DIGITS;
                break;
        default: /* the number may end here */
                if (is_digit(c) && s->state != ZERO)
                        next = (enum state) s->state;
                else if (c == '.' && (s->state == ZERO || s->state == INTEGER))
                        next = POINT;
                else if ((c | 0x20) == 'e' && s->state != EXPONENT_DIGITS)
                        next = EXPONENT;
                else
                        return token_end(s, JSON_NUMBER, NULL, ret);
        }
        keep(s, &c, 1);
        skip(text, 1);
        s->state = next;
        return 0;
}

static int literal(struct json_scan *s, struct view *text, struct json_event *ret)
{
        uint8_t c = text->p[0];

        if (c != (uint8_t) s->literal[s->n_literal]) {
                char where[48];

                snprintf(where, sizeof(where), "in literal %s (expecting '%c')", s->literal,
                         s->literal[s->n_literal]);
                return bad(s, c, where);
        }
        skip(text, 1);
        if (s->literal[++s->n_literal])
                return 0;
        return token_end(s,
                         s->literal[0] == 't'   ? JSON_TRUE
                         : s->literal[0] == 'f' ? JSON_FALSE
                                                : JSON_NULL,
                         &(struct view){0}, ret);
}

/* ---- structure ---- */

static bool in_object(const struct json_scan *s)
{
        return s->objects[(s->depth - 1) / 8] >> (s->depth - 1) % 8 & 1;
}

static int begin(struct json_scan *s, bool object, struct json_event *ret)
{
        uint8_t bit = (uint8_t) (1 << s->depth % 8);

        if (s->depth == JSON_DEPTH_MAX)
                return bad(s, object ? '{' : '[', "exceeded max depth");
        s->objects[s->depth / 8] =
                (uint8_t) (object ? s->objects[s->depth / 8] | bit
                                  : s->objects[s->depth / 8] & (uint8_t) ~bit);
        s->depth++;
        s->state = object ? KEY_OR_END : VALUE_OR_END;
        *ret = (struct json_event){.type = object ? JSON_OBJECT : JSON_ARRAY};
        return JSON_SCAN_EVENT;
}

static int end(struct json_scan *s, struct json_event *ret)
{
        s->depth--;
        s->state = after(s);
        *ret = (struct json_event){.type = JSON_END};
        return JSON_SCAN_EVENT;
}

static int value(struct json_scan *s, struct view *text, struct json_event *ret)
{
        uint8_t c = text->p[0];
        int r = 0;

        switch (c) {
        case '{':
        case '[':
                r = begin(s, c == '{', ret);
                break;
        case '"':
                s->is_key = false;
                token_begin(s, IN_STRING);
                break;
        case '-':
        case '0' ... '9':
                token_begin(s, c == '-' ? MINUS : c == '0' ? ZERO : INTEGER);
                keep(s, &c, 1);
                break;
        case 't':
        case 'f':
        case 'n':
                token_begin(s, LITERAL);
                s->literal = c == 't' ? "true" : c == 'f' ? "false" : "null";
                s->n_literal = 1;
                break;
        default:
                r = bad(s, c, "looking for beginning of value");
        }
        if (r >= 0)
                skip(text, 1);
        return r;
}

static int structure(struct json_scan *s, struct view *text, struct json_event *ret)
{
        uint8_t c = text->p[0];

        if (c == ' ' || c == '\n' || c == '\t' || c == '\r') {
                skip(text, 1);
                return 0;
        }
        switch ((enum state) s->state) {
        case VALUE_OR_END:
                if (c != ']')
                        return value(s, text, ret);
                skip(text, 1);
                return end(s, ret);
        case KEY_OR_END:
                if (c == '}') {
                        skip(text, 1);
                        return end(s, ret);
                }
                /* fall through */
        case KEY:
                if (c != '"')
                        return bad(s, c, "looking for beginning of object key string");
                s->is_key = true;
                token_begin(s, IN_STRING);
                break;
        case COLON:
                if (c != ':')
                        return bad(s, c, "after object key");
                s->state = VALUE;
                break;
        case AFTER:
                if (c == ',') {
                        s->state = in_object(s) ? KEY : VALUE;
                        break;
                }
                if (c != (in_object(s) ? '}' : ']'))
                        return bad(s, c,
                                   in_object(s) ? "after object key:value pair"
                                                : "after array element");
                skip(text, 1);
                return end(s, ret);
        case OVER:
                return bad(s, c, "after top-level value");
        default:
                return value(s, text, ret);
        }
        skip(text, 1);
        return 0;
}

int json_scan_next(struct json_scan *s, struct view *text, struct json_event *ret)
{
        int r = 0;

        while (r == 0 && text->len > 0) {
                switch ((enum state) s->state) {
                case IN_STRING:
                        r = in_string(s, text, ret);
                        break;
                case ESCAPE:
                        r = escape(s, text);
                        break;
                case DIGITS:
                        r = digit(s, text);
                        break;
                case MINUS ... EXPONENT_DIGITS:
                        r = number(s, text, ret);
                        break;
                case LITERAL:
                        r = literal(s, text, ret);
                        break;
                default:
                        r = structure(s, text, ret);
                }
        }
        return r;
}

bool json_scan_is_between(const struct json_scan *s)
{
        return s->depth == 0 && s->state == after(s);
}

int json_scan_end(struct json_scan *s, struct json_event *ret)
{
        static const uint8_t space = ' ';
        struct view text = {&space, 1};
        int r;

        if (json_scan_is_between(s))
                return 0;
        r = json_scan_next(s, &text, ret);
        if (r < 0 || json_scan_is_between(s))
                return r;
        snprintf(s->why, sizeof(s->why), "unexpected end of JSON input");
        return -EBADMSG;
}
