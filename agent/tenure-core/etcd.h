/*
 * What etcd can be told, taken for what it means here: its environment (ETCD_*), its file in
 * YAML, and the options that tenure-core does not have.
 *
 * Each of them is one of ours, or is accepted without effect, or is refused with what to do
 * instead; etcd_settings has the latter two. tenure-core(8) has the whole list.
 */
#pragma once

#include "base/args.h"
#include "base/buf.h"
#include "options.h"

extern const struct args_foreign etcd_settings[];
extern const size_t n_etcd_settings;

/* What a person should know of what was read goes to notes: lines, each a sentence without its
 * full stop. Here, of a setting without effect. */
void etcd_note_foreign(struct buf *n, const char *shown, const struct args_foreign *f);

/* Whether @path is a file of etcd's, rather than one of ours: by its name (.yml, .yaml, .json),
 * else by its first line that says something. A file that cannot be read is ours, and an error
 * there. */
bool etcd_is_file(const char *path);

/* Sets over @o what the file says. Returns 0, or a negative errno with *@err. */
must_check_ int etcd_read_file(struct options *o, const char *path, struct buf *n,
                               struct conf_error *err);

/* The same of the variables of @environment. */
must_check_ int etcd_read_environment(struct options *o, char *const environment[],
                                      struct buf *n, struct conf_error *err);

/* Notes which variables are not looked at, since there is a file. */
void etcd_note_environment(char *const environment[], struct buf *n);
