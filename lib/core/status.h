/* Errors as clients see them: gRPC code and etcd's text, which clients compare. One table for
 * all. */
#pragma once

#include "rpc/code.h"
#include "state/state.h"

struct status {
        enum rpc_code code;
        const char *text;
};

struct status status_of(enum state_outcome o);

/* The code's name in Go: "InvalidArgument". */
const char *status_code_name(enum rpc_code code);

#define STATUS_PRINTED 160

/* Formats a gRPC error as Go does: etcd reports in this form why a watch is canceled, and its
 * clients look for exactly this text, for example to log in again. */
void status_print(struct status st, char out[STATUS_PRINTED]);

/* For a negative result of pb_unpack(). */
struct status status_unpacked(int r);

extern const struct status status_ok, status_no_leader, status_timeout, status_lost,
        status_too_many, status_malformed, status_stopped, status_not_leader,
        status_bad_transferee, status_not_moved, status_nomem, status_too_large, status_learner;
