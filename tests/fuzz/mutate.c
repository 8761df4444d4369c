/*
 * Mutations that know the shape of an input: a row of steps is changed step by step, a protobuf
 * message field by field, after its descriptor. Everything follows from the seed.
 */
#include "base/rnd.h"
#include "fuzz.h"

#define STEPS_MAX 1024
#define FIELDS_MAX 256
#define NEST_MAX 6 /* of messages that are made up at once */

struct mutation {
        struct rnd rnd;
        mutate_fn bytes;
};

static size_t pick(struct mutation *m, size_t n)
{
        return n > 0 ? (size_t) (rnd_u64(&m->rnd) % n) : 0;
}

/* ---- protobuf ---- */

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

struct field {
        struct view raw; /* with its tag */
        uint32_t number;
        unsigned wire;
        struct view content; /* of BYTES */
};

static int next_field(struct view *in, struct field *ret)
{
        struct view at = *in;
        uint64_t tag, v;
        int r = view_varint(&at, &tag);

        if (r < 0)
                return r;
        *ret = (struct field){.number = (uint32_t) (tag >> 3), .wire = (unsigned) tag & 7};
        switch (ret->wire) {
        case VARINT:
                r = view_varint(&at, &v);
                break;
        case FIXED64:
                r = view_take(&at, 8, &ret->content);
                break;
        case BYTES:
                r = view_bytes(&at, &ret->content);
                break;
        case FIXED32:
                r = view_take(&at, 4, &ret->content);
                break;
        default:
                r = -EBADMSG;
        }
        if (r < 0)
                return r;
        ret->raw = (struct view){in->p, (size_t) (at.p - in->p)};
        *in = at;
        return 0;
}

static const ProtobufCFieldDescriptor *field_of(const ProtobufCMessageDescriptor *d,
                                                uint32_t number)
{
        return d ? protobuf_c_message_descriptor_get_field(d, number) : NULL;
}

static uint64_t some_number(struct mutation *m)
{
        static const int64_t edges[] = {INT64_MAX,  INT64_MIN,  -1,      -2,   INT32_MAX,
                                        INT32_MIN,  UINT32_MAX, 1 << 20, 1000, 9000000000,
                                        9000000001, 100,        500,     4096, 65536,
                                        60000,      10};

        switch (pick(m, 4)) {
        case 0:
                return (uint64_t) edges[pick(m, ARRAY_SIZE(edges))];
        case 1:
                return rnd_u64(&m->rnd) >> pick(m, 64);
        default:
                return pick(m, 10);
        }
}

static void add_text(struct mutation *m, struct buf *out)
{
        static const char *const words[] = {"",    "a",   "b",  "c",    "ab",   "abc",
                                            "d/1", "d/2", "d/", "root", "user", "u",
                                            "r",   "0",   "d0", "lock", "e",    "http://1:1"};
        uint8_t own[64] = {0};

        switch (pick(m, 8)) {
        case 0: /* "from here on", or the empty key's neighbour */
                buf_add_bytes(out, own, 1);
                break;
        case 1:
                buf_add_bytes(out, own, m->bytes(own, pick(m, 16), sizeof(own)));
                break;
        default: {
                const char *w = words[pick(m, ARRAY_SIZE(words))];

                buf_add_bytes(out, w, strlen(w));
        }
        }
}

static void make_message(struct mutation *m, const ProtobufCMessageDescriptor *d, unsigned nest,
                         struct buf *out);

static void make_field(struct mutation *m, const ProtobufCFieldDescriptor *f, unsigned nest,
                       struct buf *out)
{
        uint64_t tag = (uint64_t) f->id << 3;

        switch (f->type) {
        case PROTOBUF_C_TYPE_MESSAGE: {
                cleanup_(buf_fini) struct buf inner = {0};

                if (nest > 0)
                        make_message(m, f->descriptor, nest - 1, &inner);
                buf_add_varint(out, tag | BYTES);
                buf_add_bytes(out, buf_len(&inner) > 0 ? inner.data : (uint8_t *) "",
                              buf_len(&inner));
                break;
        }
        case PROTOBUF_C_TYPE_STRING:
        case PROTOBUF_C_TYPE_BYTES:
                buf_add_varint(out, tag | BYTES);
                add_text(m, out);
                break;
        case PROTOBUF_C_TYPE_BOOL:
                buf_add_varint(out, tag | VARINT);
                buf_add_varint(out, pick(m, 8) > 0);
                break;
        case PROTOBUF_C_TYPE_ENUM:
                buf_add_varint(out, tag | VARINT);
                buf_add_varint(out, pick(m, 16) > 0 ? pick(m, 6) : some_number(m));
                break;
        default:
                buf_add_varint(out, tag | VARINT);
                buf_add_varint(out, some_number(m));
        }
}

static void make_message(struct mutation *m, const ProtobufCMessageDescriptor *d, unsigned nest,
                         struct buf *out)
{
        for (size_t n = d->n_fields > 0 ? 1 + pick(m, 4) : 0; n > 0; n--)
                make_field(m, &d->fields[pick(m, d->n_fields)], nest, out);
}

/* A message of its own kind within itself, again and again: a txn in a txn. */
static void add_nest(struct mutation *m, const ProtobufCMessageDescriptor *d, struct view in,
                     struct buf *out)
{
        const ProtobufCFieldDescriptor *f = NULL, *g = NULL;
        size_t levels = 1 + pick(m, 24);

        for (unsigned i = 0; i < d->n_fields && !g; i++) {
                f = &d->fields[i];
                if (f->type != PROTOBUF_C_TYPE_MESSAGE)
                        continue;
                for (unsigned k = 0;
                     k < ((const ProtobufCMessageDescriptor *) f->descriptor)->n_fields && !g;
                     k++) {
                        g = &((const ProtobufCMessageDescriptor *) f->descriptor)->fields[k];
                        if (g->type != PROTOBUF_C_TYPE_MESSAGE || g->descriptor != d)
                                g = NULL;
                }
        }
        buf_add(out, in.p, in.len);
        for (; f && g && levels > 0 && buf_len(out) < 4096; levels--) {
                cleanup_(buf_fini) struct buf inner = {0}, outer = {0};

                buf_add_varint(&inner, (uint64_t) g->id << 3 | BYTES);
                buf_add_bytes(&inner, buf_len(out) > 0 ? buf_head(out) : (uint8_t *) "",
                              buf_len(out));
                buf_add_varint(&outer, (uint64_t) f->id << 3 | BYTES);
                buf_add_bytes(&outer, buf_head(&inner), buf_len(&inner));
                buf_clear(out);
                buf_add(out, buf_head(&outer), buf_len(&outer));
        }
}

static void mutate_message(struct mutation *m, const ProtobufCMessageDescriptor *d,
                           struct view in, unsigned depth, struct buf *out);

static void mutate_field(struct mutation *m, const ProtobufCMessageDescriptor *d,
                         const struct field *f, unsigned depth, struct buf *out)
{
        const ProtobufCFieldDescriptor *fd = field_of(d, f->number);

        if (f->wire == BYTES && fd && fd->type == PROTOBUF_C_TYPE_MESSAGE && depth < 200 &&
            pick(m, 16) > 0) {
                cleanup_(buf_fini) struct buf inner = {0};

                mutate_message(m, fd->descriptor, f->content, depth + 1, &inner);
                buf_add_varint(out, (uint64_t) f->number << 3 | BYTES);
                buf_add_bytes(out, buf_len(&inner) > 0 ? inner.data : (uint8_t *) "",
                              buf_len(&inner));
                return;
        }
        if (f->wire == BYTES && pick(m, 3) == 0) {
                uint8_t own[512];
                size_t n = min_of(f->content.len, sizeof(own) - 64);

                memcpy(own, f->content.p, n);
                n = m->bytes(own, n, sizeof(own));
                buf_add_varint(out, (uint64_t) f->number << 3 | BYTES);
                /* Rarely its length says more, or less, than there is. */
                if (pick(m, 16) == 0)
                        buf_add_varint(out, some_number(m));
                else
                        buf_add_varint(out, n);
                buf_add(out, own, n);
                return;
        }
        if (fd)
                make_field(m, fd, 2, out);
        else
                buf_add(out, f->raw.p, f->raw.len);
}

static void mutate_message(struct mutation *m, const ProtobufCMessageDescriptor *d,
                           struct view in, unsigned depth, struct buf *out)
{
        struct field f[FIELDS_MAX];
        size_t n = 0, at, other;
        struct view rest = in;
        unsigned how = (unsigned) pick(m, 16);

        while (n < FIELDS_MAX && rest.len > 0 && next_field(&rest, &f[n]) == 0)
                n++;
        at = pick(m, n);
        other = pick(m, n);
        if (n == 0 || how < 3) {
                /* One more, somewhere. */
                for (size_t i = 0; i < at && n > 0; i++)
                        buf_add(out, f[i].raw.p, f[i].raw.len);
                if (d->n_fields > 0)
                        make_field(m, &d->fields[pick(m, d->n_fields)], NEST_MAX, out);
                for (size_t i = at; i < n; i++)
                        buf_add(out, f[i].raw.p, f[i].raw.len);
                buf_add(out, rest.p, rest.len);
                return;
        }
        if (how == 3)
                return add_nest(m, d, in, out);
        if (how == 4 && depth == 0) {
                /* No protobuf any more, perhaps. */
                uint8_t *own = malloc(in.len + 64);

                if (!own)
                        abort();
                memcpy(own, in.p, in.len);
                buf_add(out, own, m->bytes(own, in.len, in.len + 64));
                free(own);
                return;
        }
        for (size_t i = 0; i < n; i++) {
                size_t take = i;

                if (i == at && how == 5)
                        continue; /* without it */
                if (how == 6)     /* in another order */
                        take = i == at ? other : i == other ? at : i;
                if (i == at && how > 7)
                        mutate_field(m, d, &f[i], depth, out);
                else
                        buf_add(out, f[take].raw.p, f[take].raw.len);
                if (i == at && how == 7)
                        for (size_t k = 1 + pick(m, 4); k > 0; k--)
                                buf_add(out, f[i].raw.p, f[i].raw.len);
        }
        buf_add(out, rest.p, rest.len);
}

/* ---- steps ---- */

static size_t read_steps(struct view in, struct view *out)
{
        size_t n = 0;

        while (n < STEPS_MAX && step_next(&in, &out[n]))
                n++;
        return n;
}

/* One step, or an input without steps, into @out. */
static void mutate_one(struct mutation *m, const struct fuzzer *f, struct view in, size_t room,
                       struct buf *out)
{
        const ProtobufCMessageDescriptor *d = NULL;
        size_t at = 0, n = in.len, cap;
        uint8_t *own;

        if (f->message)
                d = f->message(in, &at);
        if (d && at <= in.len && pick(m, 8) > 0) {
                buf_add(out, in.p, at);
                return mutate_message(m, d, (struct view){in.p + at, in.len - at}, 0, out);
        }
        cap = in.len + min_of(room, (size_t) 64);
        own = malloc(cap > 0 ? cap : 1);
        if (!own)
                abort();
        memcpy(own, in.p, in.len);
        /* What comes first says what it is. */
        if (in.len > 0 && pick(m, 6) == 0)
                own[0] = (uint8_t) pick(m, 64);
        else if (cap > 0)
                n = m->bytes(own, in.len, cap);
        buf_add(out, own, n);
        free(own);
}

static void add_steps(struct buf *out, const struct view *s, size_t from, size_t to)
{
        for (size_t i = from; i < to; i++)
                buf_add_bytes(out, s[i].p, s[i].len);
}

static void mutate_steps(struct mutation *m, const struct fuzzer *f, struct view in, size_t max,
                         struct buf *out)
{
        static struct view s[STEPS_MAX];
        size_t n = read_steps(in, s), at = pick(m, n + 1), to = at + pick(m, n - at + 1),
               room = max > in.len ? max - in.len : 0;
        cleanup_(buf_fini) struct buf one = {0};
        uint8_t fresh[16];

        switch (pick(m, 12)) {
        case 0: /* one more */
                for (size_t i = 0; i < sizeof(fresh); i++)
                        fresh[i] = (uint8_t) (pick(m, 2) ? pick(m, 32) : rnd_u64(&m->rnd));
                add_steps(out, s, 0, at);
                mutate_one(m, f, (struct view){fresh, 1 + pick(m, sizeof(fresh))}, room, &one);
                buf_add_bytes(out, buf_len(&one) > 0 ? one.data : fresh, buf_len(&one));
                add_steps(out, s, at, n);
                break;
        case 1: /* one, or some, less */
                if (pick(m, 2))
                        to = min_of(at + 1, n);
                add_steps(out, s, 0, at);
                add_steps(out, s, to, n);
                break;
        case 2: /* some twice */
                to = min_of(to, at + 8);
                add_steps(out, s, 0, to);
                add_steps(out, s, at, n);
                break;
        case 3: /* some elsewhere */
                to = min_of(to, at + 8);
                add_steps(out, s, 0, at);
                add_steps(out, s, to, n);
                add_steps(out, s, at, to);
                break;
        case 4: { /* one again, later */
                size_t again = at < n ? at + pick(m, n - at) : n;

                add_steps(out, s, 0, again);
                if (at < n)
                        add_steps(out, s, at, at + 1);
                add_steps(out, s, again, n);
                break;
        }
        default:
                if (n == 0) {
                        buf_add_bytes(out, fresh, 0);
                        break;
                }
                at = min_of(at, n - 1);
                add_steps(out, s, 0, at);
                mutate_one(m, f, s[at], room, &one);
                buf_add_bytes(out, buf_len(&one) > 0 ? one.data : fresh, buf_len(&one));
                add_steps(out, s, at + 1, n);
        }
}

size_t mutate(const struct fuzzer *f, uint8_t *p, size_t n, size_t max, unsigned seed,
              mutate_fn bytes)
{
        cleanup_(buf_fini) struct buf out = {0}, again = {0};
        struct mutation m = {.bytes = bytes};
        size_t len;

        rnd_init(&m.rnd, seed);
        if ((!f->steps && !f->message) || pick(&m, 20) == 0)
                return bytes(p, n, max);
        buf_add(&again, p, n);
        for (size_t times = 1 + pick(&m, 3); times > 0; times--) {
                struct view in = {buf_head(&again), buf_len(&again)};

                buf_clear(&out);
                if (f->steps)
                        mutate_steps(&m, f, in, max, &out);
                else
                        mutate_one(&m, f, in, max > in.len ? max - in.len : 0, &out);
                if (buf_len(&out) > max)
                        break;
                buf_clear(&again);
                buf_add(&again, buf_len(&out) > 0 ? out.data : p, buf_len(&out));
        }
        len = min_of(buf_len(&again), max);
        if (len == 0)
                return bytes(p, n, max);
        memcpy(p, buf_head(&again), len);
        return len;
}

size_t mutate_cross(const struct fuzzer *f, struct view a, struct view b, uint8_t *out,
                    size_t max, unsigned seed)
{
        static struct view s[STEPS_MAX], t[STEPS_MAX];
        cleanup_(buf_fini) struct buf both = {0};
        struct mutation m = {0};
        size_t n, k, len;

        rnd_init(&m.rnd, seed);
        if (f->steps) {
                n = read_steps(a, s);
                k = read_steps(b, t);
                add_steps(&both, s, 0, pick(&m, n + 1));
                add_steps(&both, t, pick(&m, k + 1), k);
        } else {
                n = pick(&m, a.len + 1);
                k = pick(&m, b.len + 1);
                buf_add(&both, a.p, n);
                buf_add(&both, b.p + k, b.len - k);
        }
        len = min_of(buf_len(&both), max);
        if (len == 0) {
                len = min_of(a.len, max);
                memcpy(out, a.p, len);
                return len;
        }
        memcpy(out, buf_head(&both), len);
        return len;
}
