/*
 * Configuration by table: one row gives a setting its section, key, flag, type, range, default
 * and help, and the file reader, the command line, the printed form and --help all follow from
 * it.
 *
 * Files are systemd style (inih): sections, `Key=value`, lists that an empty assignment clears.
 * An unknown key, an unknown section or a value out of range is an error with file and line;
 * nothing is half applied, since the caller fills a fresh struct and swaps it in. No I/O but
 * reading the named file. Not thread-safe.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>

#include "base/arena.h"
#include "base/base.h"
#include "base/buf.h"
#include "base/clock.h"

enum conf_type {
        CONF_STRING, /* char *, owned; NULL only where the default is NULL */
        CONF_LIST,   /* char *, owned: the items joined by commas; "" when empty */
        CONF_BOOL,   /* bool */
        CONF_UINT,   /* uint64_t, within [min, max] */
        CONF_NSEC,   /* nsec_t, written as 500ms, 10s, 5min; min and max in nanoseconds. With a
                      * max of INT64_MAX also as infinity, which is that */
        CONF_MSEC,   /* like CONF_NSEC, but a bare number is in milliseconds */
        CONF_ENUM,   /* int: the value of one of the words */
};

/* A value of an enum; the list ends with a word that is NULL. */
struct conf_word {
        const char *word;
        int value;
};

/* From err to debug, as syslog(3) counts them. */
extern const struct conf_word conf_log_levels[];

struct conf_option {
        const char *section;
        const char *key;
        const char *flag; /* without the dashes */
        enum conf_type type;
        size_t offset;    /* of the field in the target struct */
        const char *def;  /* as it would be written; NULL: unset */
        const char *help; /* one line */
        int64_t min, max;
        bool live; /* a reload applies a change; otherwise only a restart does */
        const struct conf_word *words; /* of an enum; otherwise NULL */
};

/* A message for operators: what is wrong, where, and what to do. */
struct conf_error {
        char text[512];
};

/* Sets every field of @target, zeroed before, to its default. Returns 0, or -ENOMEM. */
must_check_ int conf_defaults(const struct conf_option *o, size_t n_o, void *target);

/* Frees what the fields own; the struct may be filled again. */
void conf_clear(const struct conf_option *o, size_t n_o, void *target);

/* Reads @path over @target. Returns 0; -ENOENT when there is no such file; -EINVAL, with *@err
 * naming file, line and reason; -EFBIG if it has more than 1 MiB; or another negative errno,
 * also with *@err. */
must_check_ int conf_read_file(const struct conf_option *o, size_t n_o, void *target,
                               const char *path, struct conf_error *err);

/* Reads the NAME.conf files of @folders, which NULL ends, over @target, in the order of their
 * names. Of several files with the same name the one in the first folder counts; an empty file,
 * such as a link to /dev/null, hides the others. A folder need not exist, but one that is there
 * has to be readable. Returns 0 or a negative errno with *@err. */
must_check_ int conf_read_folders(const struct conf_option *o, size_t n_o, void *target,
                                  const char *const folders[], struct conf_error *err);

/* Finds the option of a flag whose name has @len characters. Returns NULL if there is none. */
const struct conf_option *conf_find_flag(const struct conf_option *o, size_t n_o,
                                         const char *flag, size_t len);

/* Sets one option; a list then contains only @value. An error names the option @name, as it was
 * written. Returns 0, -EINVAL with *@err, or -ENOMEM. */
must_check_ int conf_set(const struct conf_option *o, void *target, const char *value,
                         const char *name, struct conf_error *err);

/* Sets the option that has this flag, like conf_set(). */
must_check_ int conf_set_flag(const struct conf_option *o, void *target, const char *value,
                              struct conf_error *err);

/* conf_differs(): whether the setting differs between @a and @b, structs of the same table.
 * conf_swap() exchanges the two values. */
bool conf_differs(const struct conf_option *o, const void *a, const void *b);
void conf_swap(const struct conf_option *o, void *a, void *b);

/* Appends the canonical form: what was set, every key in its section. Reading it gives the same
 * struct. */
void conf_print(const struct conf_option *o, size_t n_o, const void *target, struct buf *out);

/* Writes one line per option, for --help. */
void conf_help(const struct conf_option *o, size_t n_o, FILE *f);

/* Writes the manual page of the settings file, mdoc(7): @program.conf(5), which is @path. */
void conf_man(const struct conf_option *o, size_t n_o, const char *program, const char *path,
              FILE *f);

/* Converts a word of the list to its value, and a value to its word. The first returns 0 or
 * -EINVAL, the second NULL if no word has the value. */
must_check_ int conf_word_parse(const struct conf_word *words, const char *s, int *ret);
const char *conf_word_of(const struct conf_word *words, int value);

/* Writes "kill, reboot or none" and the like, all of the words; returns @out. */
const char *conf_words(const struct conf_word *words, char *out, size_t size);

/* Parses yes, true, on, 1, y or t, in any case, and their opposites. Returns 0 or -EINVAL. */
must_check_ int bool_parse(const char *s, bool *ret);

/* Parses "10s", "500ms", "1min 30s", "1h30m", "1.5h" or a bare number of seconds: what systemd
 * and Go write. Returns 0 or -EINVAL. */
must_check_ int nsec_parse(const char *s, nsec_t *ret);

/* Writes the shortest exact form with one unit, e.g. "1500ms". */
void nsec_format(nsec_t t, char out[static 32]);
/* Like nsec_format(), for a setting: INT64_MAX is "infinity". */
void conf_time_format(nsec_t t, char out[static 32]);

/* Walks a CONF_LIST: copies the next item to @out and advances *@cursor. Returns false at the
 * end; an item that does not fit ends the list too. */
bool list_next(const char **cursor, char *out, size_t size);

/* The first item of a CONF_LIST, with all behind it, at which list_next() would end early;
 * NULL: each is shorter than @size. */
const char *list_too_long(const char *list, size_t size);

/* All items of a CONF_LIST, of any length and number, in @a. Returns 0 or -ENOMEM. */
must_check_ int list_split(const char *list, struct arena *a, char ***ret, size_t *ret_n);
