#include "wire/pb.h"

/* The memory that a message may take: a base, plus a multiple of its size. The densest messages
 * that clients send on purpose (thousands of operations on keys of four bytes) take 25 times
 * their size. */
#define COST_BASE ((size_t) 64 << 10)
#define COST_RATIO 32
#define UNKNOWN_MAX 256 /* unknown fields in one message */
/* A message of this many bytes has at most one unknown field for every two bytes, or a number
 * of eight bytes for every one. */
#define SMALL (2 * UNKNOWN_MAX)
#define BLOCK 32 /* malloc's overhead for each block */

enum wire_type {
        WIRE_VARINT = 0,
        WIRE_64 = 1,
        WIRE_BYTES = 2,
        WIRE_32 = 5,
};

struct level {
        const ProtobufCMessageDescriptor *type;
        struct view rest;
        uint64_t seen; /* non-repeated message fields, by their number in `type` */
        size_t n_unknown;
};

struct walk {
        struct level levels[PB_DEPTH_MAX];
        size_t n;
        size_t cost, cost_max;
        size_t messages_left;
        size_t unknown_max; /* fields in one message */
};

static int enter(struct walk *w, const ProtobufCMessageDescriptor *type, struct view bytes)
{
        if (w->n == PB_DEPTH_MAX || w->messages_left == 0)
                return -E2BIG;
        w->messages_left--;
        w->levels[w->n++] = (struct level){.type = type, .rest = bytes};
        w->cost += type->sizeof_message + BLOCK;
        return 0;
}

/* Takes what follows the tag; *@ret is the value if it is length-delimited. */
static int take_value(struct view *from, enum wire_type wire, struct view *ret)
{
        uint64_t n;
        int r;

        *ret = (struct view){0};
        switch (wire) {
        case WIRE_VARINT:
                return view_varint(from, &n);
        case WIRE_64:
                return view_take(from, 8, ret);
        case WIRE_32:
                return view_take(from, 4, ret);
        case WIRE_BYTES:
                r = view_varint(from, &n);
                if (r == 0 && n > from->len)
                        r = -EBADMSG;
                return r < 0 ? r : view_take(from, (size_t) n, ret);
        default:
                return -EBADMSG; /* groups: none of our messages has ever had one */
        }
}

/* A message field that is not repeated must not come twice: protobuf would merge the two,
 * copying the first each time, and no client sends that. In a oneof the last one counts. */
static int first_time(struct level *l, const ProtobufCFieldDescriptor *f)
{
        size_t i = (size_t) (f - l->type->fields);

        if (f->label == PROTOBUF_C_LABEL_REPEATED || f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF ||
            i >= 64)
                return 0;
        if (l->seen >> i & 1)
                return -EBADMSG;
        l->seen |= UINT64_C(1) << i;
        return 0;
}

static int take_field(struct walk *w)
{
        struct level *l = &w->levels[w->n - 1];
        const ProtobufCFieldDescriptor *f;
        struct view value;
        uint64_t tag;
        int r = view_varint(&l->rest, &tag);

        if (r == 0 && tag > UINT32_MAX)
                r = -EBADMSG;
        if (r == 0)
                r = take_value(&l->rest, (enum wire_type)(tag & 7), &value);
        if (r < 0)
                return r;
        f = protobuf_c_message_descriptor_get_field(l->type, (unsigned) (tag >> 3));
        if (!f) {
                w->cost += sizeof(ProtobufCMessageUnknownField) + value.len + BLOCK;
                return ++l->n_unknown > w->unknown_max ? -E2BIG : 0;
        }
        if (f->label == PROTOBUF_C_LABEL_REPEATED)
                w->cost += sizeof(ProtobufCBinaryData);
        if ((tag & 7) != WIRE_BYTES)
                return 0;
        switch (f->type) {
        case PROTOBUF_C_TYPE_MESSAGE:
                r = first_time(l, f);
                return r < 0 ? r : enter(w, f->descriptor, value);
        case PROTOBUF_C_TYPE_BYTES:
        case PROTOBUF_C_TYPE_STRING:
                w->cost += value.len + BLOCK;
                return 0;
        default:
                w->cost += value.len * sizeof(uint64_t); /* packed, perhaps a byte each */
                return 0;
        }
}

/* Whether the message has only single fields and no nested messages, and is so short that it
 * cannot reach any of the bounds. That is true of most messages that come in thousands:
 * renewals and puts. */
static bool is_small(const ProtobufCMessageDescriptor *type, struct view bytes)
{
        if (bytes.len > SMALL)
                return false;
        for (unsigned i = 0; i < type->n_fields; i++)
                if (type->fields[i].type == PROTOBUF_C_TYPE_MESSAGE ||
                    type->fields[i].label == PROTOBUF_C_LABEL_REPEATED)
                        return false;
        return true;
}

/* *@ret_cost is roughly the memory that it takes; may be NULL. @logged: its memory, and what
 * this version does not know in it, are no reason to refuse it. */
static int check(const ProtobufCMessageDescriptor *type, struct view bytes, size_t max,
                 bool logged, size_t *ret_cost)
{
        struct walk w;
        int r;

        if (max > 0 && is_small(type, bytes)) {
                if (ret_cost)
                        *ret_cost = type->sizeof_message + bytes.len + 2 * BLOCK;
                return 0;
        }
        w.n = w.cost = 0;
        w.messages_left = max;
        w.cost_max = !logged && bytes.len < (SIZE_MAX - COST_BASE) / COST_RATIO
                             ? COST_BASE + bytes.len * COST_RATIO
                             : SIZE_MAX;
        w.unknown_max = logged ? SIZE_MAX : UNKNOWN_MAX;
        r = enter(&w, type, bytes);
        while (r == 0 && w.n > 0) {
                if (w.cost > w.cost_max)
                        r = -E2BIG;
                else if (w.levels[w.n - 1].rest.len == 0)
                        w.n--;
                else
                        r = take_field(&w);
        }
        if (r == 0 && ret_cost)
                *ret_cost = w.cost;
        return r;
}

int pb_check(const ProtobufCMessageDescriptor *type, struct view bytes)
{
        return check(type, bytes, SIZE_MAX, false, NULL);
}

/* ---- unpacking ---- */

struct memory {
        struct arena *arena; /* NULL: from malloc() */
        bool failed;
};

static void *memory_alloc(void *userdata, size_t n)
{
        struct memory *m = userdata;
        void *p = m->arena ? arena_alloc(m->arena, n) : malloc(n > 0 ? n : 1);

        m->failed = m->failed || !p;
        return p;
}

static void memory_free(void *userdata, void *p)
{
        struct memory *m = userdata;

        if (!m->arena) /* an arena frees everything at once */
                free(p);
}

static int unpack(const ProtobufCMessageDescriptor *type, struct view bytes, size_t max,
                  struct arena *arena, size_t *ret_cost, void *ret)
{
        struct memory memory = {.arena = arena};
        ProtobufCAllocator from = {memory_alloc, memory_free, &memory};
        ProtobufCMessage *m;
        int r = check(type, bytes, max, arena != NULL, ret_cost);

        if (r < 0)
                return r;
        m = protobuf_c_message_unpack(type, &from, bytes.len, bytes.p);
        if (!m)
                return memory.failed ? -ENOMEM : -EBADMSG;
        if (ret_cost) /* they are not counted in small messages */
                *ret_cost += m->n_unknown_fields * (sizeof(*m->unknown_fields) + BLOCK);
        memcpy(ret, &m, sizeof(m));
        return 0;
}

int pb_unpack(const ProtobufCMessageDescriptor *type, struct view bytes, void *ret)
{
        return unpack(type, bytes, SIZE_MAX, NULL, NULL, ret);
}

int pb_unpack_few(const ProtobufCMessageDescriptor *type, struct view bytes, size_t max,
                  size_t *ret_cost, void *ret)
{
        return unpack(type, bytes, max, NULL, ret_cost, ret);
}

int pb_unpack_logged(struct arena *a, const ProtobufCMessageDescriptor *type, struct view bytes,
                     void *ret)
{
        return unpack(type, bytes, SIZE_MAX, a, NULL, ret);
}

_Static_assert(SMALL / 2 * (sizeof(ProtobufCMessageUnknownField) + 2 * BLOCK) < COST_BASE &&
                       SMALL * sizeof(uint64_t) < COST_BASE,
               "what is small may cost too much");
