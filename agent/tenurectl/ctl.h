/* What the files of tenurectl share. */
#pragma once

#include <json-c/json.h>
#include <sys/types.h>
#include <systemd/sd-bus.h>

#include "base/base.h"

#define NAME "org.tenure.Membership1"
#define MANAGER NAME ".Manager"
#define NODE NAME ".Node"
#define SERVICE NAME ".Service"
#define ROOT "/org/tenure/Membership1"

enum json_mode { JSON_OFF, JSON_SHORT, JSON_PRETTY };

struct ctl {
        sd_bus *bus;
        enum json_mode json;
        bool legend;
        bool ask;            /* polkit may ask for a password at the terminal */
        bool persistent;     /* leave: also after the next boot */
        const char *address; /* of the bus; NULL: the system bus */
};

#define LEAVE_PERSISTENT UINT64_C(1) /* of LeaveWithFlags */

/* Longer than the agent waits for polkit. */
#define CTL_ASK_USEC (UINT64_C(130) * 1000000)

/* As sd_bus_call(), for a method about which polkit may have to ask a person. */
must_check_ int ctl_call(struct ctl *c, sd_bus_message *m, uint64_t timeout_usec,
                         sd_bus_error *error, sd_bus_message **ret_reply);

/* Calls a method of the agent that returns a descriptor; for a while again, as long as others
 * of this user have all that the agent gives out at a time. @lock: its argument; NULL: it has
 * none. Returns the descriptor; -1 after printing why, and that @what; or -ENOSYS for a lock:
 * the agent is of release 0.1.0, and knows no such method. */
must_check_ int ctl_open(struct ctl *c, const char *method, const char *lock, const char *what);

/* Prints what failed; returns -1. @error may be NULL. */
int ctl_fail(const char *what, int r, const sd_bus_error *error);

/* How JSON is to be printed, for json-c. */
must_check_ int ctl_json_flags(const struct ctl *c);
/* Prints @o, and takes it. */
void ctl_print(const struct ctl *c, struct json_object *o);

/* Gets all properties of an object; the caller calls json_object_put(). Returns 0, or -1 after
 * printing why. */
must_check_ int ctl_get_all(struct ctl *c, const char *path, const char *interface,
                            struct json_object **ret);

/* Gets those of the manager. If the agent holds its place but is changing from one core to
 * another, asks again for some seconds, until it can name a core. */
must_check_ int ctl_get_connected(struct ctl *c, struct json_object **ret);

/* Whether the properties of the manager say that the host holds its place. */
bool ctl_is_held(struct json_object *manager);

/* Reads a{sv} into a JSON object: strings, numbers, booleans, lists and pairs. Returns 0 or
 * more, or a negative errno. */
must_check_ int ctl_read_properties(sd_bus_message *m, struct json_object *o);

/* A field of @o; "" or 0 if there is none. */
const char *ctl_text(struct json_object *o, const char *key);
/* The same, made safe for a terminal in @out, since anybody may have written it. */
#define CTL_SHOWN 512
const char *ctl_shown(struct json_object *o, const char *key, char out[static CTL_SHOWN]);
int64_t ctl_number(struct json_object *o, const char *key);

/* A list that a method of the Manager returns in pages. */
struct listing {
        const char *method;
        const char *things, *thing; /* for a person */
        void (*head)(void);
        void (*row)(struct json_object *o);
};

/* Prints the items whose names are in @argv, or all. Returns how many, or -1 after printing
 * why. */
must_check_ ssize_t ctl_list(struct ctl *c, const struct listing *l, int argc, char **argv);

struct core_options;

/* lock.c */
must_check_ int lock_main(struct ctl *c, const struct core_options *core, bool endpoints_given,
                          int argc, char **argv);
must_check_ int unlock_main(struct ctl *c, const struct core_options *core,
                            bool endpoints_given, int argc, char **argv);

/* Returns a descriptor of the page in which the agent publishes the deadline of the place, for
 * keeper_look(); or -1 after printing why. */
must_check_ int ctl_open_tenancy(struct ctl *c);

/* put.c */
struct put_options {
        bool while_held;
        const char *lock; /* its name; NULL: none */
        const char *file; /* with the value; NULL: it is an operand */
};
must_check_ int put_main(struct ctl *c, const struct core_options *core, bool endpoints_given,
                         const struct put_options *o, int argc, char **argv);
/* switchover.c */
must_check_ int switchover_main(struct ctl *c, const struct core_options *core,
                                bool endpoints_given, int argc, char **argv);

/* cache.c; @prefix: all keys that begin with it */
must_check_ int cache_main(struct ctl *c, const struct core_options *core, bool endpoints_given,
                           bool prefix, int argc, char **argv);

/* services.c: verbs. */
must_check_ int verb_services(struct ctl *c, int argc, char **argv);
must_check_ int verb_register(struct ctl *c, int argc, char **argv);
must_check_ int verb_set_tags(struct ctl *c, int argc, char **argv);
must_check_ int verb_wait_revision(struct ctl *c, int argc, char **argv);
must_check_ int verb_describe(struct ctl *c, int argc, char **argv);

/* ttl.c */
must_check_ int verb_ttl(struct ctl *c, int argc, char **argv);
