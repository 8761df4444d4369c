/* The options of all verbs: one table, from which they are read, checked and shown. */
#pragma once

#include <stdio.h>

#include "base/args.h"
#include "ctl.h"

/* Groups of verbs that take an option, in addition to verbs that name it as their own. */
enum options_of {
        OF_ALL = 1 << 0,
        OF_BUS = 1 << 1,
        OF_CORE = 1 << 2,
        OF_POLKIT = 1 << 3, /* root, and users whom polkit permits */
        OF_JSON = 1 << 4,
        OF_TABLE = 1 << 5,
};

/* Reads the options into @c, and the words and operands into *@ret, which is valid after an
 * error, too. @rest: as in struct args_program. Returns 0, or -1 after printing what is
 * wrong. */
must_check_ int options_parse(struct ctl *c, int argc, char **argv,
                              bool (*rest)(char *const operands[], size_t n), struct args *ret);

/* @own: names of options, separated by spaces; NULL: none. @of: groups of them. */

/* Returns the name of an option that was given and is none of these, or NULL. */
const char *options_refused(const struct ctl *c, const char *own, unsigned of);
/* Prints " [--once] [--wait=TIME]", for a synopsis. */
void options_print_synopsis(const char *own, FILE *f);
/* Prints a line for each. */
void options_print_help(const char *own, unsigned of, FILE *f);
/* Prints what @typed may become: "--once" or "--wait=", a line for each, or values of one. */
void options_print_words(const char *typed, const char *own, unsigned of);
