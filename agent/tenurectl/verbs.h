/*
 * The table of verbs: what each takes, needs and prints. The reading of the command line, the
 * help, the completion, and the synopses in tenurectl(1), which a test compares, follow from
 * it.
 */
#pragma once

#include "ctl.h"

struct verb {
        const char *name;     /* one to three words, separated by spaces */
        const char *options;  /* its own, separated by spaces; NULL: none */
        const char *operands; /* as in a synopsis: "NAME [NODE]", "NAME -- COMMAND..." */
        const char *help;     /* one line */
        unsigned of; /* what it needs and prints: flags of enum options_of, and VERB_AGENT */
        /* Returns an exit status, or -1 after printing why it failed. */
        int (*fn)(struct ctl *c, int argc, char **argv);
        int failed;  /* the exit status of an error; 0: EXIT_FAILED */
        size_t rest; /* after this many words and operands, no argument is an option of ours; 0:
                        all may be */
        const char *alias; /* another name; NULL: none */
};
#define VERB_AGENT (1 << 16) /* the bus is opened before it is called */

extern const struct verb verbs[];
extern const size_t n_verbs;

/* Calls the verb with what it needs. Returns an exit status, or -1 after printing why it
 * failed. */
must_check_ int verb_call(struct ctl *c, const struct verb *v, int argc, char **argv);

/* Whether the arguments after these words and operands are not options of ours. */
bool verb_is_rest(char *const operands[], size_t n);

/* Prints each word that may follow these in the name of a verb. */
void verb_print_next(char *const words[], size_t n);

/* Finds the verb that the words begin with, and in *@ret_n how many of them are its name.
 * Without any word it is `status`. Returns NULL if there is none. */
const struct verb *verb_find(char *const words[], size_t n, size_t *ret_n);

/* Finds the operand with the number @i, as the synopsis names it: "NODE"; and whether it is
 * required. Returns false if there is none. */
#define VERB_OPERAND_MAX 64
must_check_ bool verb_operand(const struct verb *v, size_t i, char out[static VERB_OPERAND_MAX],
                              bool *ret_required);

/* verb_check() refuses options that the verb does not take, too many or too few operands, and
 * empty ones; verb_unknown() reports words that are not a verb. Both return -1 after printing
 * what is wrong, and 0 otherwise. */
must_check_ int verb_check(const struct ctl *c, const struct verb *v, int argc, char **argv);
int verb_unknown(char *const words[], size_t n);

/* Prints help on the verbs whose names begin with the words; without words, on all. Returns 0,
 * or -1 after printing that there are none. */
must_check_ int verbs_help(char *const words[], size_t n);

#define VERB(name) must_check_ int verb_##name(struct ctl *c, int argc, char **argv)
VERB(cache);
VERB(check_fencing);
VERB(complete);
VERB(core_add);
VERB(core_members);
VERB(core_move_leader);
VERB(core_promote);
VERB(core_remove);
VERB(core_replace);
VERB(core_upgrade);
VERB(describe);
VERB(entries);
VERB(help);
VERB(join);
VERB(leave);
VERB(lease_grant);
VERB(lease_keep_alive);
VERB(lease_list);
VERB(lease_revoke);
VERB(lease_ttl);
VERB(lock);
VERB(metrics);
VERB(nodes);
VERB(put);
VERB(register);
VERB(services);
VERB(set_tags);
VERB(snapshot_restore);
VERB(snapshot_save);
VERB(status);
VERB(switchover);
VERB(top);
VERB(ttl_advise);
VERB(unlock);
VERB(wait_node);
VERB(wait_revision);
VERB(wait_service);
VERB(watch);
VERB(work);
#undef VERB
