/*
 * Reads settings that are written for etcd: its environment (ETCD_*), its file in YAML, and the
 * options that tenure-core does not have.
 *
 * Each of them is a setting of tenure-core, or is accepted without effect, or is refused with
 * advice what to do instead; etcd_settings lists the latter two. tenure-core(8) has the whole
 * list.
 */
#pragma once

#include "base/args.h"
#include "base/buf.h"
#include "options.h"

extern const struct args_foreign etcd_settings[];
extern const size_t n_etcd_settings;

/* Notes are for the operator: one line each, a sentence without its full stop. This one is
 * about a setting without effect. */
void etcd_note_foreign(struct buf *n, const char *shown, const struct args_foreign *f);

/* Whether @path is a file of etcd's rather than ours. Its name decides (.yml, .yaml, .json),
 * otherwise its first line that is not empty or a comment. A file that cannot be read counts as
 * ours, and reading it reports the error. */
bool etcd_is_file(const char *path);

/* Applies the settings of the file to @o. Returns 0, or a negative errno with *@err. */
must_check_ int etcd_read_file(struct options *o, const char *path, struct buf *n,
                               struct conf_error *err);

/* Applies the settings in @environment to @o, like etcd_read_file(). */
must_check_ int etcd_read_environment(struct options *o, char *const environment[],
                                      struct buf *n, struct conf_error *err);

/* Notes which variables are ignored because there is a file. */
void etcd_note_environment(char *const environment[], struct buf *n);
