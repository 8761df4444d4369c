/*
 * protobuf's messages as JSON and back, by their descriptors, with no code for each message: as
 * etcd's gateway has them, whose Go library is the model for names, numbers and errors.
 *
 * Both directions work on bytes, in pieces of any size, directly between text and wire format,
 * with no tree and no struct in between: a message takes as much memory as its bytes, and an
 * answer none at all, however large it is. Pure; not thread-safe; the cost is linear in the
 * bytes, however they are cut.
 *
 * Not here: float, double, maps and the well-known types, which no message of ours has.
 */
#pragma once

#include "wire/pb.h"

/* Room for what is wrong with a text, in one sentence. */
#define JSON_WHY_SIZE 160

/* How deep texts may nest, including skipped parts: as deep as Go's reader allows. */
#define JSON_DEPTH_MAX 10000

/*
 * Reads JSON objects, each of which is a message: one after the other, with nothing or white
 * space between them.
 *
 * Names are taken as they are in the .proto or in lowerCamelCase; unknown ones are skipped with
 * whatever they have; null is as if it were not there. 64-bit integers are numbers or strings;
 * enums names or numbers; bytes base64 of either alphabet, padded or not. A field that comes
 * twice is an error: a proxy that checked the request before us may have read the other one.
 */
struct json_reader;

enum {
        JSON_READER_MESSAGE = 1, /* one is whole */
};

/* For messages of @type, which may have @max bytes in wire format and eight times as many as
 * text. Returns 0 or -ENOMEM. */
must_check_ int json_reader_new(struct json_reader **ret,
                                const ProtobufCMessageDescriptor *type, size_t max);
/* Makes @r read another text, reusing its memory. */
void json_reader_begin(struct json_reader *r, const ProtobufCMessageDescriptor *type,
                       size_t max);
/* Forgets what was read, and frees all but a little of the memory, for an owner that keeps @r.
 */
void json_reader_rest(struct json_reader *r);
struct json_reader *json_reader_free(struct json_reader *r);
DEFINE_CLEANUP(struct json_reader *, json_reader_free)

/* Takes bytes off @text, at most up to the end of one object. Returns 0: all were taken, and no
 * object is complete yet; JSON_READER_MESSAGE: @ret is a message in wire format, borrowed until
 * the next call; -EBADMSG: the text is not JSON, or not such a message; -E2BIG; or -ENOMEM.
 * After a negative result all further calls return the same. The message was not unpacked:
 * pb_unpack() may still refuse it. */
must_check_ int json_reader_put(struct json_reader *r, struct view *text, struct view *ret);

/* Bytes of memory that it holds for a message that is not complete; 0: none has begun. */
size_t json_reader_held(const struct json_reader *r);

/* The text ends here. Returns 0 if that is between two objects or before the first; otherwise
 * -EBADMSG, or the earlier error. */
must_check_ int json_reader_end(struct json_reader *r);

/* What was wrong, in one sentence, after -EBADMSG or -E2BIG: "unexpected EOF". Go's text where
 * Go has one. Borrowed. */
const char *json_reader_why(const struct json_reader *r);

/*
 * Writes one message, whose wire format comes in pieces, as a JSON object.
 *
 * Names are those of the .proto; 64-bit integers are strings; enums names; bytes base64. Fields
 * with their default value are left out, except for members of a oneof; so are unknown fields.
 *
 * A repeated field must come in one run and any other at most once, which is how protobuf-c and
 * all our code write. Other orders are valid protobuf, but would need the whole message first.
 */
struct json_frame;

#define JSON_CARRY (2 * VARINT_MAX) /* a tag, and a number behind it */

struct json_writer {
        const ProtobufCMessageDescriptor *type;
        struct json_frame *frames; /* from the message to where we are in it; owned */
        size_t n_frames, cap_frames;
        unsigned state;
        const ProtobufCFieldDescriptor *field; /* whose value comes; NULL: an unknown one */
        uint64_t at;                           /* bytes taken so far */
        uint64_t end;              /* of packed numbers, of a text, or of what is skipped */
        uint8_t carry[JSON_CARRY]; /* bytes that make no field, or no character, yet */
        unsigned n_carry;
        int error;
};

/* @w is all zeroes, or was begun before: then it keeps some hundred bytes of memory, which
 * json_writer_fini() frees. */
void json_writer_begin(struct json_writer *w, const ProtobufCMessageDescriptor *type);
void json_writer_fini(struct json_writer *w);

/* Appends to @out the JSON that can be written by now. Returns 0; -EBADMSG: not such a message,
 * or not in order; or -ENOMEM. After a negative result all further calls return the same, and
 * the text written so far is not valid JSON. */
must_check_ int json_writer_put(struct json_writer *w, struct view wire, struct buf *out);

/* The message ends here: the rest of its text. Results as above; the writer may not be used
 * again before json_writer_begin(). */
must_check_ int json_writer_end(struct json_writer *w, struct buf *out);

/* Appends @text as a JSON string, in quotes; invalid UTF-8 is replaced. Allocation failure
 * shows in buf_error(). */
void json_append_string(struct buf *out, struct view text);
