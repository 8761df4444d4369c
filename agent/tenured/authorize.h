/*
 * Who may change something over D-Bus: root, we ourselves, and whom polkit lets (polkit(8)).
 * Nobody is waited for: a bus or a polkit that does not answer must not delay a heartbeat.
 */
#pragma once

#include <bsd/sys/queue.h>
#include <systemd/sd-bus.h>

#include "base/base.h"

struct question;
TAILQ_HEAD(question_list, question);

/* What was asked for, done: answers @m and returns 0 or more, or sets @error and returns a
 * negative errno. */
typedef int (*authorized_fn)(sd_bus_message *m, void *userdata, sd_bus_error *error);

void authorize_init(struct question_list *l);

/* Goes on with @go when the sender of @m may do @action; answers the call with an error
 * otherwise. For a method's handler to return. */
must_check_ int authorize(struct question_list *l, sd_bus_message *m, const char *action,
                          authorized_fn go, void *userdata);

/* The connection is about to go, and with it whoever asked. */
void authorize_forget(struct question_list *l);
