/*
 * The first frame of a replica on each link that it makes, which describes its program and its
 * state.
 *
 *     introduction = FRAME_TIME_ASK  zero:u64  newest:u32  directory:u64  yours:u64  term:u64
 *                    founding:u8  process:u64  program:bytes
 *
 * The replica sends it again when any of this has changed.
 *
 * Release 0.1.0 takes it for a question of a term that is over, and skips the bytes that it
 * does not know. Its own links begin with any other frame, by which it is known. Later releases
 * may add bytes, which are skipped. Pure.
 */
#pragma once

#include "base/buf.h"
#include "base/version.h"

struct introduction {
        uint32_t newest;    /* the cluster version up to which this program can go */
        uint64_t directory; /* the id of its data directory; 0: not known */
        uint64_t yours;   /* that of the receiver, as the sender has it recorded; 0: it has not
                           */
        uint64_t term;    /* in which it is */
        bool founding;    /* it has nothing but the members with which it began */
        uint64_t process; /* a random number of its process; 0: not known */
        char program[32]; /* its version: "0.2.0" */
};

/* Of a link that begins otherwise. */
extern const struct introduction introduction_0_1;

void introduction_append(const struct introduction *in, struct buf *out);

/* Reads the first frame of a link. Returns 0; -ENODATA if it is another frame, and in *@ret
 * what is known of its sender; or -EBADMSG. */
must_check_ int introduction_read(struct view frame, struct introduction *ret);
