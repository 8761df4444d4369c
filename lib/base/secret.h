/* Reads a password or another secret from a file of its own, so that no list of processes shows
 * it. */
#pragma once

#include <stddef.h>

#include "base/base.h"

#define SECRET_PATH_MAX 4096

/* The file for @path: a name that does not begin with '/' is a file in $CREDENTIALS_DIRECTORY,
 * if that is set (systemd.exec(5), LoadCredential=). Returns @out. */
const char *secret_path(const char *path, char out[static SECRET_PATH_MAX]);

/* Reads the first line of the file, without its end, as a string; @path is as above. Returns 0,
 * -ENODATA when it is empty, -E2BIG, or an errno of open(2) or read(2). */
must_check_ int secret_read(const char *path, char *out, size_t size);

/* Wipes and frees the secret. Accepts NULL; returns NULL. */
char *secret_free(char *secret);
