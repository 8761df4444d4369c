/*
 * Programs that depend on the place without being fenced units, such as the commands of
 * `tenurectl lock`. The agent publishes for them until when the place is held
 * (member/tenancy.h), in a memory file that the service manager keeps across restarts, or in
 * a file in $RUNTIME_DIRECTORY where there is no such manager. Nobody can truncate the memory
 * file (F_SEAL_SHRINK, fcntl(2)), so a program that maps it never gets a SIGBUS. While a
 * program has a lock on the file, the place is given back only at the deadline that was
 * published last.
 */
#pragma once

#include "member/tenancy.h"
#include "session/session.h"

/* A connection of the bus that got a descriptor of the file. */
struct opener {
        char name[32]; /* of the connection */
        uid_t uid;
};
#define HOLDERS_OPENERS 8

struct holders {
        int fd; /* -1: publishing is not possible */
        uint64_t time_ns;
        struct tenancy published;
        bool has; /* the file has `published` in it */
        bool leaving;
        struct opener openers[HOLDERS_OPENERS]; /* the last ones, the newest first */
        size_t n_openers;
};

/* @stored_fd: the descriptor of that name that the service manager kept; -1: none */
#define HOLDERS_FD_NAME "tenancy"
void holders_open(struct holders *h, int stored_fd);
void holders_close(struct holders *h);

/* Publishes changes. */
void holders_tell(struct holders *h, const struct session *s, struct boot_time now);

/* The place is about to be given back. Returns whether all holders have released it, or the
 * published deadline has passed. The first call publishes that; each call checks again. */
bool holders_released(struct holders *h, const struct session *s, struct boot_time now);

/* A new read-only descriptor for a holder, or a negative errno. */
must_check_ int holders_reader(const struct holders *h);

/* A descriptor was given to connection @name of the bus, of user @uid. */
void holders_opened(struct holders *h, const char *name, uid_t uid);

/* Writes who has not released the place, as far as that is known: the process, if the lock
 * belongs to one; otherwise who opened the file. */
#define HOLDERS_BLAME_MAX 512
void holders_blame(const struct holders *h, char out[static HOLDERS_BLAME_MAX]);
