/*
 * Answers that cost as much as there are nodes or services. Whoever asks waits for his turn:
 * one piece of one answer in a turn of the loop, users take turns, then their connections, and
 * as much time as a piece has taken is left to others. No next one is begun while the bus has
 * not taken the last one.
 */
#pragma once

#include "objects.h"

/* Writes an answer to @m, in one go, and sends it; as a method's handler. */
typedef int (*list_fn)(sd_bus_message *m, struct agent *a, sd_bus_error *error);

/* For a method's handler to return. */
must_check_ int lists_ask(struct agent *a, sd_bus_message *m, list_fn fn);

/* org.freedesktop.DBus.ObjectManager, in place of sd-bus's, which answers in one go: some
 * milliseconds for each hundred objects. What changes while the answer is written is said to
 * who asked once more after it, in signals of his own, so that it is as good as one of one
 * moment.
 */
int lists_on_root(sd_bus_message *m, void *userdata, sd_bus_error *error);
