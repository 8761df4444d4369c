/*
 * Answers that cost as much as there are nodes or services. They are written piece by piece,
 * one piece in a turn of the loop; users take turns, then their connections, and as much time
 * as a piece has taken is left to other work. No answer is begun while the bus has not taken
 * the last one. answers.c has their content.
 */
#pragma once

#include "base/buf.h"
#include "objects.h"

/* What is announced while an answer is being written is announced to the caller once more,
 * after the answer. Together they are as good as a list of one moment. This is the kind of
 * objects in the answer. */
enum list_of { OF_NOTHING, OF_OBJECTS, OF_NODES, OF_SERVICES };

/* An answer that is being written. */
struct list {
        struct agent *agent;
        sd_bus_message *call;  /* borrowed */
        sd_bus_message *reply; /* owned; sent at the end */
        struct buf text;       /* for an answer that is a text */
        struct objects_at at;
        size_t bytes; /* estimated size of `reply`; a bus has a limit */
        size_t n, most;
        bool past_nodes;
};

/* How an answer is written. On failure, each function returns a negative errno or sets
 * @error. */
struct list_kind {
        enum list_of of;
        int (*begin)(struct list *l, sd_bus_error *error);
        /* Adds one more item: returns 1, or 0 after the last one. */
        int (*next)(struct list *l);
        int (*end)(struct list *l);
};

/* A method's handler returns the result. */
must_check_ int lists_ask(struct agent *a, sd_bus_message *m, const struct list_kind *kind);

/* lists_repeats(): whether an answer with such objects is being written. lists_repeat(): sends
 * @m, a copy of an announcement for its caller, after that answer. */
bool lists_repeats(const struct agent *a, enum list_of of);
void lists_repeat(struct agent *a, sd_bus_message *m);

/* answers.c: methods of the Manager and the ObjectManager, and Introspect of the parents of the
 * nodes and of the services. The last two replace sd-bus's own, which answer in one go. */
int method_list_nodes(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_list_services(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_get_nodes(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_get_services(sd_bus_message *m, void *userdata, sd_bus_error *error);
int method_describe(sd_bus_message *m, void *userdata, sd_bus_error *error);
int answers_on_root(sd_bus_message *m, void *userdata, sd_bus_error *error);
int answers_on_parent(sd_bus_message *m, void *userdata, sd_bus_error *error);
