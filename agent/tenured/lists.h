/*
 * Answers that cost as much as there are nodes or services. They are written piece by piece,
 * one piece in a turn of the loop; users take turns, then their connections, and as much time
 * as a piece has taken is left to other work. No answer is begun while the bus has not taken
 * the last one. answers.c has their content.
 */
#pragma once

#include "base/buf.h"
#include "objects.h"

/* Of an answer that is written over several turns, what is announced meanwhile is announced
 * once more, only to the caller, after it: together they are as good as a list of one moment.
 */
enum list_of { OF_NOTHING, OF_OBJECTS, OF_NODES, OF_SERVICES };

/* An answer that is being written. */
struct list {
        struct agent *agent;
        sd_bus_message *call;  /* borrowed */
        sd_bus_message *reply; /* owned; to be sent at the end */
        struct buf text;       /* for one that is a text */
        struct objects_at at;
        size_t bytes; /* in `reply`, about; a bus takes only so many */
        size_t n, most;
        bool past_nodes;
};

/* How one is written. Each function returns a negative errno where it cannot, or sets @error.
 */
struct list_kind {
        enum list_of of;
        int (*begin)(struct list *l, sd_bus_error *error);
        /* A thing more: returns 1, or 0 behind the last one. */
        int (*next)(struct list *l);
        int (*end)(struct list *l);
};

/* For a method's handler to return. */
must_check_ int lists_ask(struct agent *a, sd_bus_message *m, const struct list_kind *kind);

/* Whether an answer of that kind is being written. Then the signal @m, the caller's, which has
 * just been announced to everybody, is announced again after it. */
bool lists_repeats(const struct agent *a, enum list_of of);
void lists_repeat(struct agent *a, sd_bus_message *m);

/* answers.c: Manager's methods, the ObjectManager's, and Introspect of what is above the nodes
 * and above the services; the last two in place of sd-bus's, which answers in one go. */
int method_list_nodes(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_list_services(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_get_nodes(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_get_services(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_describe(sd_bus_message *m, void *userdata, sd_bus_error *error);
int answers_on_root(sd_bus_message *m, void *userdata, sd_bus_error *error);
int answers_on_parent(sd_bus_message *m, void *userdata, sd_bus_error *error);
