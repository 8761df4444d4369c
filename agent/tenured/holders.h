/*
 * Who depends on the place without being a unit that is fenced, such as the commands of
 * `tenurectl lock`. They are told until when it is held (client/tenancy.h), in a file of
 * $RUNTIME_DIRECTORY, or of memory where there is none; and while one of them has a lock on
 * that file, the place is given back only at the deadline that they were told last.
 */
#pragma once

#include "client/tenancy.h"
#include "session/session.h"

struct holders {
        int fd; /* -1: nothing can be told */
        struct tenancy told;
        bool has; /* `told` is what is in the file */
        bool leaving;
};

void holders_open(struct holders *h);
void holders_close(struct holders *h);

/* Tells what has changed. */
void holders_tell(struct holders *h, const struct session *s, struct boot_time now);

/* The place is about to be given back: has everybody let go, or has the time passed? Looks
 * again with each call; they hear of it with the first. */
bool holders_let_go(struct holders *h, const struct session *s, struct boot_time now);

/* A new descriptor for one of them, to read from; or a negative errno. */
must_check_ int holders_reader(const struct holders *h);
