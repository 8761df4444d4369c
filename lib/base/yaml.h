/*
 * Settings in YAML, as far as files of settings go: a mapping of keys to scalars and to lists
 * of scalars, and sections, which are such mappings one level down. By libyaml.
 *
 * Anything else is an error with file and line: a second document, anchors, a mapping further
 * down, a key that comes twice. A key without a value is as if it was not there. No I/O but
 * reading the named file. Not thread-safe.
 */
#pragma once

#include "base/base.h"
#include "base/buf.h"
#include "base/conf.h"

/* One setting, in the order of the file; @section is "" at the top. A list is passed as its
 * items, joined by commas. Returns 0, -ENOMEM, or -EINVAL with the reason in *@err, before
 * which the reader puts file and line. */
typedef int (*yaml_fn)(const char *section, const char *key, const char *value, void *arg,
                       struct conf_error *err);

/* Returns 0, or a negative errno with *@err. */
must_check_ int yaml_read_file(const char *path, yaml_fn fn, void *arg, struct conf_error *err);

/* Like yaml_read_file(), for bytes that were read; @path is for errors. */
must_check_ int yaml_read(struct view text, const char *path, yaml_fn fn, void *arg,
                          struct conf_error *err);
