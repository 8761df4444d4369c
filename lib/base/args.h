/*
 * The arguments of a program, read in one pass: options of its own, settings of its table
 * (conf.h), and operands.
 *
 * Options are written --name=value or --name value, a few have a letter, and all may stand
 * anywhere. The arguments after `--` are operands, and so is a `-` alone. An option that is
 * repeated replaces its earlier value. Settings are collected rather than set, since the file
 * that an option may name has to be read first: args_apply() sets them over the file's, each
 * time the file is read. No I/O but --help and --version. Not thread-safe.
 */
#pragma once

#include <stdio.h>

#include "base/base.h"
#include "base/conf.h"

/* An option of the program itself; the caller's @flag becomes true, or @value the borrowed
 * text. */
struct args_option {
        char letter;      /* 0: none */
        const char *name; /* without the dashes */
        const char *hint; /* of a value, for --help */
        const char *help; /* one line */
        bool *flag;       /* this one... */
        const char **value;
        const char
                *bare; /* the value if no `=` follows; NULL: the next argument is the value */
        bool alone;    /* no other argument goes with it */
};

/* A setting of etcd, which a program of ours replaces, that this program does not have. */
struct args_foreign {
        const char *name;
        bool is_flag;     /* it has a value only after a `=` */
        bool refused;     /* otherwise it is accepted, without effect */
        const char *fine; /* if refused: the values that are accepted all the same, separated by
                             spaces; an empty value always is; NULL: no others */
        const char *why;  /* why it has no effect, or what to do instead */
};

struct args_program {
        const char *name;
        const char *version; /* NULL: --version is an option of the program */
        const struct args_option *options;
        size_t n_options;
        const struct conf_option *table; /* NULL: no settings */
        size_t n_table;
        const char *conf_path; /* the path of the settings, for --help=conf */
        /* NULL: --help and -h are options of the program */
        void (*help)(const struct args_program *p, FILE *f);
        const struct args_foreign *foreign; /* NULL: there are none */
        size_t n_foreign;
        bool one_dash; /* -name stands for --name, as in Go */
        bool operands; /* operands are accepted; otherwise they are errors */
        /* Whether all that follows these operands are operands, too; may be NULL. */
        bool (*rest)(char *const operands[], size_t n);
};

/* What was on the command line. The caller zeroes it before args_parse(). */
struct args {
        struct args_setting *settings; /* in the order in which they came */
        size_t n_settings;
        char **operands; /* ended by NULL; borrowed strings */
        size_t n_operands;
        size_t n_before;                     /* those before a `--`; all, if there is none */
        bool dashes;                         /* there is one */
        const struct args_foreign **foreign; /* those that were given, and have no effect */
        size_t n_foreign;
};

enum {
        ARGS_E_SHOWN =
                1, /* --help or --version: printed to standard output; the program ends */
};

/* Reads the arguments, and keeps pointers into @argv and @p->table. Returns 0, ARGS_E_SHOWN,
 * -ENOMEM, -EINVAL with *@err about the first invalid one, or -EIO with *@err if what was to be
 * shown could not be written; *@ret has the operands even then. */
must_check_ int args_parse(struct args *ret, const struct args_program *p, int argc,
                           char **argv, struct conf_error *err);

/* The foreign setting of that name, which has @len characters; NULL: there is none. */
const struct args_foreign *args_find_foreign(const struct args_foreign *f, size_t n_f,
                                             const char *name, size_t len);

/* Checks whether @f may be set to @value. Returns 0, or -EINVAL with *@err, which names the
 * setting @shown, as it was written. */
must_check_ int args_check_foreign(const struct args_foreign *f, const char *shown,
                                   const char *value, struct conf_error *err);

/* Applies the settings of the command line to @target, a struct of the program's table. Returns
 * 0, -EINVAL with *@err, or -ENOMEM. */
must_check_ int args_apply(const struct args *a, void *target, struct conf_error *err);

void args_fini(struct args *a);

/* The lines of --help on the program's own options, --help and --version among them. */
void args_help(const struct args_program *p, FILE *f);
