/* Reads a password or another secret from a file of its own, so that no list of processes shows
 * it. */
#pragma once

#include <stddef.h>

#include "base/base.h"

#define SECRET_PATH_MAX 4096

/* Where @path is: a name that does not begin with '/' is one in $CREDENTIALS_DIRECTORY, where
 * there is one (systemd.exec(5), LoadCredential=). Returns @out. */
const char *secret_path(const char *path, char out[static SECRET_PATH_MAX]);

/* Reads the first line of the file, without its end, as a string; @path is as above.
 * Returns 0, -ENODATA when it is empty, -E2BIG, or what open(2) and read(2)
 * say. */
must_check_ int secret_read(const char *path, char *out, size_t size);

/* Wipes it, and frees it; NULL is none. Returns NULL. */
char *secret_free(char *secret);
