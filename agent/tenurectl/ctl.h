/* What the files of tenurectl share. */
#pragma once

#include <json-c/json.h>
#include <sys/types.h>
#include <systemd/sd-bus.h>

#include "base/base.h"
#include "base/clock.h"
#include "core.h"
#include "text.h"

#define NAME "org.tenure.Membership1"
#define MANAGER NAME ".Manager"
#define NODE NAME ".Node"
#define SERVICE NAME ".Service"
#define ROOT "/org/tenure/Membership1"

/* The exit statuses of all verbs; see EXIT STATUS in tenurectl(1). */
enum {
        EXIT_FAILED = 1,
        EXIT_NOT_SO = 2,       /* this host does not hold its place; nobody holds the lock;
                                * what was waited for did not come in time */
        EXIT_PLACE_LOST = 123, /* ... or the lock was handed over */
        EXIT_NOT_MINE = 124,   /* another holder has the lock */
        EXIT_OURS = 125,       /* an error, where other statuses are the command's */
        EXIT_NOT_RUN = 126,    /* the command cannot be executed */
        EXIT_NOT_FOUND = 127,
};

/* The status for a command that execvp(3) has refused with the errno @why. */
must_check_ static inline int exit_not_run(int why)
{
        return why == ENOENT ? EXIT_NOT_FOUND : EXIT_NOT_RUN;
}

enum json_mode { JSON_OFF, JSON_SHORT, JSON_PRETTY };

/* The options of single verbs, as they were given. */
struct options {
        bool gone, voter, finish, once, keys, prefix, while_held, http, persistent, nonblock;
        bool no_legend, no_ask, no_pager, help, version;
        nsec_t wait; /* -1: not given */
        nsec_t interval, ttl, grace;
        uint64_t weight;
        uint64_t iterations; /* UINT64_MAX: not given */
        uint64_t conflict;   /* the exit status if another holder has the lock */
        uint64_t since;      /* a revision; 0: not given */
        const char *lock, *file, *tasks, *name, *cluster, *filter, *sort, *output, *event,
                *state, *tag, *zone, *node, *reason;
};

#define OPTIONS_MAX 64

struct ctl {
        sd_bus *bus;
        const char *address; /* of the bus; NULL: the system bus */
        int json;            /* an enum json_mode */
        bool legend;
        bool ask; /* polkit may ask for a password at the terminal */
        struct core_options core;
        struct options o;
        bool given[OPTIONS_MAX]; /* of the rows in options.c */
        size_t n_before;         /* how many operands of the verb stand before a `--` */
        char *done; /* owned: what the verb has done; NULL: nothing is known of that */
        struct json_object **taken; /* gets what ctl_print() would print; NULL: nobody does */
};

/* Opens the bus. Returns 0, or -1 after printing why. */
must_check_ int ctl_open_bus(struct ctl *c);

#define LEAVE_PERSISTENT UINT64_C(1) /* of LeaveWithFlags */

/* Longer than the agent waits for polkit. */
#define CTL_ASK_USEC (UINT64_C(130) * 1000000)

/* As sd_bus_call(), for a method about which polkit may have to ask a person. */
must_check_ int ctl_call(struct ctl *c, sd_bus_message *m, uint64_t timeout_usec,
                         sd_bus_error *error, sd_bus_message **ret_reply);

/* Calls a method of the agent that returns a descriptor; repeats the call for a while if other
 * programs of this user have all the descriptors that the agent lends at a time. @lock: the
 * method's argument; NULL: it has none. Returns the descriptor; -1 after printing @what and
 * why; or -ENOSYS for a lock: the agent is of release 0.1.0, and has no such method. */
must_check_ int ctl_open(struct ctl *c, const char *method, const char *lock, const char *what);

/* Prints what failed; returns -1. @error may be NULL. */
int ctl_fail(const char *what, int r, const sd_bus_error *error);

/* Flags for json-c, from --json. */
must_check_ int ctl_json_flags(const struct ctl *c);
/* Prints @o, and takes it. */
void ctl_print(const struct ctl *c, struct json_object *o);

/* Prints what the verb has done: @o, which it takes over, if the user wants JSON, and otherwise
 * the sentence, which may have several lines. If standard output cannot be written, ctl_flush()
 * reports on standard error what was done. */
void ctl_did(struct ctl *c, struct json_object *o, const char *fmt, ...) printf_(3, 4);

/* Writes what was printed; to be called before each wait. Returns 0, or -1 after printing why
 * it could not be written. */
must_check_ int ctl_flush(struct ctl *c);

/* Writes what was printed, and handles the next message of the bus, or waits for it. Returns 0,
 * or -1 after printing why the connection has ended. */
must_check_ int ctl_hear(struct ctl *c);
/* Like ctl_hear(), but waits no longer than that. */
must_check_ int ctl_hear_for(struct ctl *c, uint64_t usec);

/* Gets all properties of an object; the caller calls json_object_put(). Returns 0, or -1 after
 * printing why. */
must_check_ int ctl_get_all(struct ctl *c, const char *path, const char *interface,
                            struct json_object **ret);

/* Gets the properties of the manager. If the agent holds its place but is moving from one
 * replica to another, asks again for some seconds, until the agent can name an endpoint. */
must_check_ int ctl_get_connected(struct ctl *c, struct json_object **ret);

/* Whether the properties of the manager say that the host holds its place. */
bool ctl_is_held(struct json_object *manager);

/* Reads a{sv} into a JSON object, which the caller owns. Returns 0 or more, or a negative
 * errno. */
must_check_ int ctl_read_properties(sd_bus_message *m, struct json_object **ret);

/* A field of @o; "" or 0 if there is none. */
const char *ctl_text(struct json_object *o, const char *key);
/* A field as ctl_text(), made safe for a terminal in @out, since anybody may have written
 * it. */
const char *ctl_shown(struct json_object *o, const char *key, char out[static TEXT_SHOWN]);
int64_t ctl_number(struct json_object *o, const char *key);

/* A list that a method of the Manager returns in pages. */
struct listing {
        const char *method;
        const char *thing; /* for a person */
        const struct column *columns;
        size_t n_columns;
        /* Adds fields of ours, and says whether the options want this one; NULL: all. */
        bool (*keep)(const struct ctl *c, struct json_object *o, void *arg);
};

/* Prints the items whose names are in @argv, or all; @arg is for `keep`. Returns 0; or -1 after
 * printing why, or which of the names belong to none. */
must_check_ int ctl_list(struct ctl *c, const struct listing *l, void *arg, int argc,
                         char **argv);

/* Returns a descriptor of the page in which the agent publishes the deadline of the place, for
 * keeper_look(); or -1 after printing why. */
must_check_ int ctl_open_tenancy(struct ctl *c);
