/* tenurectl: what its files share. */
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
        bool ask;        /* somebody at a terminal for a password, where polkit wants one */
        bool persistent; /* over boots */
};

#define LEAVE_PERSISTENT UINT64_C(1) /* of LeaveWithFlags */

/* sd_bus_call(), of something that polkit may have to ask a person about. */
int ctl_call(struct ctl *c, sd_bus_message *m, uint64_t timeout_usec, sd_bus_error *error,
             sd_bus_message **ret_reply);

/* Says what failed; returns -1. @error may be NULL. */
int ctl_fail(const char *what, int r, const sd_bus_error *error);

/* Takes @o. */
void ctl_print(const struct ctl *c, struct json_object *o);

/* All properties of an object, to json_object_put(). Returns 0, or -1 and has said why. */
int ctl_get_all(struct ctl *c, const char *path, const char *interface,
                struct json_object **ret);

/* A field of it; "" or 0 where it is not there. */
const char *ctl_text(struct json_object *o, const char *key);
int64_t ctl_number(struct json_object *o, const char *key);

/* What a method of the Manager lists, in pages. */
struct listing {
        const char *method;
        const char *things, *thing; /* for a person */
        void (*head)(void);
        void (*row)(struct json_object *o);
};

/* Prints those whose names are in @argv, or all. Returns how many, or -1 and has said why. */
ssize_t ctl_list(struct ctl *c, const struct listing *l, int argc, char **argv);

struct core_options;

/* lock.c */
int lock_main(struct ctl *c, const struct core_options *core, bool endpoints_given, int argc,
              char **argv);
int unlock_main(struct ctl *c, const struct core_options *core, bool endpoints_given, int argc,
                char **argv);

/* services.c: verbs. */
int verb_services(struct ctl *c, int argc, char **argv);
int verb_register(struct ctl *c, int argc, char **argv);
int verb_set_tags(struct ctl *c, int argc, char **argv);
int verb_wait_revision(struct ctl *c, int argc, char **argv);
int verb_describe(struct ctl *c, int argc, char **argv);
